// SPDX-License-Identifier: Apache-2.0
//
// From tensors of the program to those of the engine, and back.
#pragma once

#include <functional>
#include <memory>
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

std::vector<engine::OutputTensor> OutputsOf(std::vector<ge::Tensor>& tensors);
std::vector<engine::OutputTensor> OutputsOf(std::vector<gert::Tensor>& tensors);
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
