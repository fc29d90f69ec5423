// SPDX-License-Identifier: Apache-2.0
//
// Storages: the pieces of memory that a lowered graph works on, before and after they have places.
//
// Lowering gives each storage an address that nothing lies at, and writes tasks over such addresses. The memory plan
// then gives each storage a place: an offset in one of the regions. Program turns addresses into places.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "compiler/executable.h"
#include "compiler/graph.h"
#include "compiler/streams.h"
#include "ops/launch.h"

namespace reprise::compiler {

/// Regions by number: constants, features, then inputs and outputs.
inline constexpr uint32_t kConstantRegion = 0;
inline constexpr uint32_t kFeatureRegion = 1;
inline constexpr uint32_t kFirstInputRegion = 2;

/// Where storages of constants and features begin.
inline constexpr uint64_t kStorageAlignment = 512;

using StorageId = uint32_t;
inline constexpr StorageId kNoStorage = ~StorageId{0};

/// Where memory is touched on one stream.
struct Touch {
  uint32_t stream;
  uint32_t first;  ///< task
  uint32_t last;
};

/// An operand within a constant, and how the bytes of its storage are made from it.
struct FormOfConstant {
  kernels::TensorRef operand;                                         ///< data: none
  uint64_t offset = 0;                                                ///< of the operand in the constant
  void (*write)(const kernels::TensorRef& from, void* to) = nullptr;  ///< null: `packing` does it
  std::shared_ptr<const ops::Launch> packing;                         ///< see ops::Pack
  std::vector<int64_t> key;                                           ///< of what `packing` makes

  /// `constant`: its bytes; `to`: those of the storage.
  void Write(const void* constant, void* to) const {
    kernels::TensorRef from = operand;
    from.data = const_cast<char*>(static_cast<const char*>(constant)) + offset;  // which is only read
    packing != nullptr ? ops::Pack(*packing, from, to) : write(from, to);
  }
};

struct Storage {
  enum class Kind : uint8_t {
    kConstant,  ///< `constant`
    kFeature,   ///< a value between two nodes, or memory that one node works in
    kInput,     ///< number `index` of the graph
    kOutput,    ///< number `index` of the graph
  };

  Kind kind = Kind::kFeature;
  uint32_t index = 0;
  uint64_t address = 0;  ///< stands for it in the tasks
  uint64_t bytes = 0;
  std::shared_ptr<const Constant> constant;
  std::optional<FormOfConstant> form;  ///< of the constant, instead of its bytes
  // Of the tasks, by their places: the first that touches it, and the one behind the last.
  uint32_t begin = UINT32_MAX;
  uint32_t end = 0;
  std::vector<Touch> touches;  ///< by stream, where there are several
  // After the plan:
  StorageId same_as = kNoStorage;  ///< lies where this other one lies
  uint64_t offset = 0;             ///< in its region
};

struct ReleaseLaunch {
  void operator()(const ops::Launch* launch) const { launch->Release(); }
};
using LaunchOwner = std::unique_ptr<ops::Launch, ReleaseLaunch>;

/// A launch over addresses of storages.
struct LoweredTask {
  LaunchOwner launch;
  uint64_t workspace = 0;  ///< address; 0: none
  NodeId node = kNoNode;   ///< kNoNode: a copy to an output
};

struct Lowered {
  std::vector<Storage> storages;  ///< by address
  std::vector<LoweredTask> tasks;
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  StreamPlan streams;
  TaskOrder order{1};

  uint32_t regions() const { return kFirstInputRegion + inputs + outputs; }
  uint32_t RegionOf(const Storage& storage) const;
  /// The storage that the address lies in. \pre one does.
  StorageId Find(uint64_t address) const;
  StorageId Find(const void* address) const { return Find(reinterpret_cast<uintptr_t>(address)); }
  /// Gives it an address behind all others.
  StorageId Add(Storage storage);

  /// visit(storage, operand, is_write) for what a task touches; its workspace is operand -1.
  template <class Visit>
  void ForEachOperand(const LoweredTask& task, Visit visit) const {
    for (size_t i = 0; i < task.launch->refs.size(); ++i) {
      if (task.launch->uses[i].slot < 0) continue;
      visit(Find(task.launch->refs[i].data), static_cast<int>(i), task.launch->uses[i].is_write);
    }
    if (task.workspace != 0) visit(Find(task.workspace), -1, true);
  }
};

/// Tasks of a graph whose shapes are known, in an order that its edges allow. Refuses operators without steps (100024)
/// and what their steps refuse, with the node.
StatusOr<Lowered> Lower(const Graph& graph, bool has_single_stream);

/// Makes one task of short ones that ops::Launch::join can join and that need nothing of each other. \pre one stream,
/// and no order yet
void JoinTasks(Lowered& lowered);

/// Makes one task of several, each of which reads what the one before writes (ops::Launch::fuse). \pre one stream, and
/// no order yet
void FuseTasks(Lowered& lowered);

/// Packs constants that a task packs for another one (ops::Launch::tell_packing), once, and takes the task away.
/// \pre no order yet
void PackConstants(Lowered& lowered);

/// Lets tasks read constants in the forms that their kernels like best (ops::PreparedForm). Constants that nobody reads
/// otherwise take no memory.
void PrepareConstants(Lowered& lowered);

/// Gives all storages places: element-wise tasks write over an operand that nobody needs any more, and features whose
/// lives do not overlap share bytes.
StatusOr<MemoryNeeds> PlanMemory(Lowered& lowered, const CompileOptions& options);

/// Whether all storages lie in their regions and no two of them share bytes that are needed at once. Works from tasks
/// and places alone. 500000 with both storages: a mistake of the plan.
Status ValidateMemory(const Lowered& lowered, const MemoryNeeds& needs);

/// How large a tensor is; nothing where its shape or type is not known.
std::optional<uint64_t> BytesOf(const Tensor& tensor);
std::optional<uint64_t> BytesOf(int32_t dtype, std::span<const int64_t> dims);

}  // namespace reprise::compiler
