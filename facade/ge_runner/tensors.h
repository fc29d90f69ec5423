// SPDX-License-Identifier: Apache-2.0
//
// From tensors of the program to those of the engine, and back.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/session.h"
#include "ge/ge_allocator.h"
#include "ge/ge_api_types.h"
#include "graph/tensor.h"

namespace gert {
class Tensor;
}

namespace reprise::ge_runner {

std::vector<engine::InputTensor> InputsOf(const std::vector<ge::Tensor>& tensors);
std::vector<engine::InputTensor> InputsOf(const std::vector<gert::Tensor>& tensors);
/// Shapes and types alone.
std::vector<engine::InputMeta> MetasOf(const std::vector<ge::Tensor>& tensors);
std::vector<engine::InputMeta> MetasOf(const std::vector<ge::InputTensorInfo>& infos);
/// With copies of the bytes.
std::vector<engine::HostTensor> CopiesOf(const std::vector<engine::InputTensor>& tensors);

/// The tensors of a run on a stream, in memory that the thread keeps from one run to the next. Allocators of the
/// program, which the engine calls meanwhile, may run other graphs: those use another one.
class RunTensors {
 public:
  template <class Tensor>
  RunTensors(const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) : buffers_(Lease()) {
    Read(inputs);
    Read(outputs);
  }
  ~RunTensors();
  RunTensors(const RunTensors&) = delete;
  RunTensors& operator=(const RunTensors&) = delete;

  std::span<const engine::InputTensor> inputs() const { return buffers_->inputs; }
  std::vector<engine::OutputTensor>& outputs() { return buffers_->outputs; }

 private:
  struct Buffers {
    std::vector<engine::InputTensor> inputs;
    std::vector<engine::OutputTensor> outputs;
  };
  using Pool = std::vector<std::unique_ptr<Buffers>>;

  static Pool& PoolOfThread();
  static std::unique_ptr<Buffers> Lease();
  void Read(const std::vector<ge::Tensor>& inputs);
  void Read(const std::vector<gert::Tensor>& inputs);
  void Read(std::vector<ge::Tensor>& outputs);
  void Read(std::vector<gert::Tensor>& outputs);

  std::unique_ptr<Buffers> buffers_;
};

/// What a run has filled in, and memory that the engine has taken.
void Return(std::vector<engine::OutputTensor>& outputs, std::vector<ge::Tensor>& tensors);
void Return(std::vector<engine::OutputTensor>& outputs, std::vector<gert::Tensor>& tensors);
void Return(std::vector<engine::HostTensor>& outputs, std::vector<ge::Tensor>& tensors);
void Return(std::vector<engine::HostTensor>& outputs, std::vector<gert::Tensor>& tensors);

/// Calls with the outputs as tensors of the program's.
void CallBack(const std::function<void(ge::Status, std::vector<gert::Tensor>&)>& callback, const Status& status,
              std::vector<engine::HostTensor>& outputs);

/// Null for null.
engine::AllocatorPtr AllocatorOf(std::shared_ptr<ge::Allocator> allocator);

}  // namespace reprise::ge_runner
