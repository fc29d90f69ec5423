// SPDX-License-Identifier: Apache-2.0
//
// A graph of the engine that runs on tensors of PyTorch.
#pragma once

#include <ATen/core/Tensor.h>
#include <exe_graph/runtime/tensor.h>
#include <ge/ge_api.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "torchair/engine.h"
#include "torchair/memory.h"

namespace torchair {

class NpuGraph {
 public:
  explicit NpuGraph(std::string name) : name_(std::move(name)) {}
  ~NpuGraph();
  NpuGraph(const NpuGraph&) = delete;
  NpuGraph& operator=(const NpuGraph&) = delete;

  /// A serialised model. `placements`: of each input, 0 host, 1 device; `types`: of each output, numbers of
  /// ge::DataType; `executor`: 0 CPU, 1 device.
  void Load(const std::string& model, Options options, std::vector<int64_t> placements,
            const std::vector<int64_t>& types, int64_t executor);
  /// Shapes as the front end knows them, -1 for what it does not.
  void SetHintShape(std::vector<std::vector<int64_t>> inputs, std::vector<std::vector<int64_t>> outputs);
  /// Measures choices of the compiler on copies of these inputs, by options work_path and aoe_mode.
  void AutoTune(const std::vector<at::Tensor>& inputs);
  void Compile();
  /// Queued on `stream`. `assigned`: none, or one for each output, undefined where memory is to be found.
  std::vector<at::Tensor> Run(std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& assigned, void* stream);

  const std::string& name() const { return name_; }
  /// What the engine shares among graphs of a stream, if this one uses it: where it is. 0: it uses none.
  uintptr_t feature_address() const {
    return features_ == nullptr ? 0 : reinterpret_cast<uintptr_t>(features_->memory.get());
  }
  /// Called once, with the tasks as JSON, between the load and the first run. What it throws ends the run.
  void set_on_load(std::function<void(const std::string&)> on_load) { on_load_ = std::move(on_load); }

  bool is_static() const { return is_static_; }
  uint32_t id() const { return id_; }

 private:
  void CheckOutputs(const ge::CompiledGraphSummary& summary);
  void CheckInputs(const std::vector<at::Tensor>& inputs) const;
  void CheckGears() const;
  void FirstRun(const std::vector<at::Tensor>& inputs, void* stream);
  void TakeFeatureMemory(void* stream);
  /// An output that the engine has found memory for.
  at::Tensor TakeOutput(size_t i, void* stream);
  std::vector<at::Tensor> RunOnHost(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& assigned);

  std::string name_;
  std::shared_ptr<ge::Session> session_;  // that the graph was added to
  uint32_t id_ = 0;
  ge::Graph graph_;
  Options options_;
  std::vector<int64_t> placements_;
  std::vector<ge::DataType> types_;
  std::vector<bool> frozen_;
  std::map<size_t, size_t> shared_;                  // outputs that lie where an input does: to its place
  std::vector<bool> weights_;                        // see the engine's reprise.checkedInputIndexes
  std::vector<std::vector<int64_t>> input_shapes_;   // hints
  std::vector<std::vector<int64_t>> output_shapes_;  // hints; of static graphs those that the engine says
  bool on_device_ = true;
  bool loaded_model_ = false;
  bool compiled_ = false;
  bool is_static_ = false;
  bool has_gears_ = false;
  bool refreshable_ = false;
  bool has_collectives_ = false;
  bool is_deterministic_ = false;
  size_t const_bytes_ = 0;
  size_t feature_bytes_ = 0;

  std::function<void(const std::string&)> on_load_;
  void* stream_ = nullptr;  // of the first run
  bool has_run_ = false;
  std::shared_ptr<StreamAllocator> allocator_;
  at::DataPtr constants_;
  std::shared_ptr<FeatureBlock> features_;
  std::vector<at::Tensor> device_copies_;  // of inputs that the host has and the engine wants on the device
  std::vector<at::Tensor> kept_;           // frozen inputs
  std::vector<gert::Tensor> engine_inputs_;
  std::vector<gert::Tensor> engine_outputs_;
};

/// The type of the engine for one of PyTorch; throws where it has none.
ge::DataType TypeOf(at::ScalarType type);
std::optional<at::ScalarType> ScalarTypeOf(ge::DataType type);

}  // namespace torchair
