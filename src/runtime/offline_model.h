// SPDX-License-Identifier: Apache-2.0
//
// Offline models, as the functions aclmdl* know them: graphs that were compiled ahead of time, by number, with
// descriptions and lists of buffers. What loads and runs them is the graph engine, whose libraries are opened with the
// first model: programs without models load none of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/handle_table.h"
#include "base/status.h"

namespace reprise::runtime {

class Context;
class Stream;

/// An input or output of a model.
struct ModelTensor {
  std::string name;
  std::string alias;          ///< of at most 127 bytes: the name, or what stands for a longer one
  int32_t type = -1;          ///< aclDataType
  int32_t format = -1;        ///< aclFormat
  std::vector<int64_t> dims;  ///< -1: a run decides; a single -2: also how many there are. With gears: of the largest
  size_t bytes = 0;           ///< 0: a run decides
  std::vector<int64_t> open_dims;  ///< as `dims`, but -1 where gears differ
};

/// Which sizes the gears of a model choose.
enum class GearKind : uint8_t { kNone, kBatch, kImage, kDims };

struct ModelDescription {
  uint32_t id = 0;
  std::vector<ModelTensor> inputs;
  std::vector<ModelTensor> outputs;
  size_t work_bytes = 0;    ///< between the nodes; 0: a run decides
  size_t weight_bytes = 0;  ///< of constants
  GearKind gear_kind = GearKind::kNone;
  std::vector<std::vector<int64_t>> gears;  ///< for each, the sizes that it chooses, in the order of the open dims
  /// With gears: the last input takes the sizes of the gear that is chosen for a run.
  bool has_gear_input() const { return gear_kind != GearKind::kNone; }
};

/// A buffer of a run.
struct ModelBuffer {
  void* data = nullptr;  ///< device memory; of outputs null: the run takes memory, as aclrtMalloc does
  size_t bytes = 0;
  std::vector<int64_t> dims;  ///< inputs: what the caller says, if `has_dims`; outputs: filled in
  bool has_dims = false;
  int32_t type = -1;  ///< outputs: filled in
};

/// Threads: thread-safe. Runs come one after another, in the order of the calls.
class OfflineModel {
 public:
  virtual ~OfflineModel() = default;  ///< waits for the streams of its runs
  virtual const ModelDescription& description() const = 0;
  /// Memory of the caller, as large as the description says; null: the model's own. Before the first run.
  virtual Status SetMemory(void* work, size_t work_bytes, void* weights, size_t weight_bytes) = 0;
  /// Queues a run; null: a stream of the model's own, for which it waits. \param gear empty: that of the inputs' shapes
  virtual Status Run(Stream* stream, std::span<const ModelBuffer> inputs, std::span<ModelBuffer> outputs,
                     std::span<const int64_t> gear) = 0;
};

/// What the graph engine does; its one exported function returns the table.
struct OfflineModels {
  const char* build;  ///< of which build it is: kOfflineModelsBuild
  /// A model of bytes that the graph engine has compiled, in the current context. Refuses (100012) damaged ones,
  /// (100013) bytes of another kind, (200001) models for chips.
  StatusOr<std::shared_ptr<OfflineModel>> (*load)(std::string_view bytes, uint32_t id);
};
inline constexpr char kOfflineModelsBuild[] = "1";
inline constexpr char kOfflineModelsLibrary[] = "libreprise_engine.so";
inline constexpr char kOfflineModelsSymbol[] = "reprise_offline_models";

/// What stands behind aclmdlDesc*. Threads: thread-compatible.
struct ModelDesc {
  std::shared_ptr<const ModelDescription> about;  ///< null: not filled yet
};
/// What stands behind aclmdlDataset*: handles, and descriptors that the list owns. Threads: thread-compatible.
struct ModelDataset {
  struct Entry {
    void* buffer = nullptr;      ///< aclDataBuffer*
    void* descriptor = nullptr;  ///< aclTensorDesc*; null: none
  };
  std::vector<Entry> entries;
  std::vector<int64_t> gear;  ///< of the next runs; empty: not chosen

  ModelDataset() = default;
  ~ModelDataset();
  ModelDataset(const ModelDataset&) = delete;
  ModelDataset& operator=(const ModelDataset&) = delete;
};
HandleTable<ModelDesc, HandleKind::kModelDesc>& ModelDescs();
HandleTable<ModelDataset, HandleKind::kModelDataset>& ModelDatasets();

// ---- Models by number ----
// Threads: thread-safe.

/// Loads a model and gives it a number.
StatusOr<uint32_t> LoadOfflineModel(std::string_view bytes, void* work, size_t work_bytes, void* weights,
                                    size_t weight_bytes);
/// A model that gets no number.
StatusOr<std::shared_ptr<OfflineModel>> OpenOfflineModel(std::string_view bytes);
/// The bytes of a file. 100003 with the reason of the system.
StatusOr<std::string> ReadModelFile(const char* path);
/// 100011 for a number that no model has, 107004 when its context is gone or on another device.
StatusOr<std::shared_ptr<OfflineModel>> FindOfflineModel(uint32_t id);
/// Waits for runs of it.
Status UnloadOfflineModel(uint32_t id);

}  // namespace reprise::runtime
