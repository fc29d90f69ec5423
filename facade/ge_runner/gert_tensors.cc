// SPDX-License-Identifier: Apache-2.0
//
// Tensors of namespace gert, which are plain memory with a function that knows whose it is.
#include <algorithm>
#include <string>
#include <utility>

#include "exe_graph/runtime/tensor.h"
#include "tensors.h"

namespace reprise::ge_runner {
namespace {

// Memory that the engine has taken, behind TensorData; counted by those who share it.
struct Held {
  void* data = nullptr;
  std::shared_ptr<void> owner;
  size_t count = 1;
};

ge::graphStatus Manage(gert::TensorAddress address, gert::TensorOperateType operation, void** out) {
  auto* const held = static_cast<Held*>(address);
  if (held == nullptr) return ge::GRAPH_FAILED;
  switch (operation) {
    case gert::kGetTensorAddress:
      if (out == nullptr) return ge::GRAPH_FAILED;
      *out = held->data;
      return ge::GRAPH_SUCCESS;
    case gert::kFreeTensor:
      if (__atomic_sub_fetch(&held->count, 1, __ATOMIC_ACQ_REL) == 0) delete held;
      return ge::GRAPH_SUCCESS;
    case gert::kPlusShareCount: __atomic_add_fetch(&held->count, 1, __ATOMIC_RELAXED); return ge::GRAPH_SUCCESS;
    default: return ge::GRAPH_FAILED;
  }
}

void ReadShape(const gert::Tensor& tensor, std::vector<int64_t>& sizes) {
  const gert::Shape& shape = tensor.GetStorageShape();
  sizes.resize(std::min<size_t>(shape.GetDimNum(), gert::Shape::kMaxDimNum));
  for (size_t d = 0; d < sizes.size(); ++d) sizes[d] = shape.GetDim(d);
}

int32_t TypeOf(const gert::Tensor& tensor) {
  return tensor.GetDataType() == ge::DT_UNDEFINED ? -1 : static_cast<int32_t>(tensor.GetDataType());
}

void Describe(gert::Tensor& tensor, int32_t dtype, const std::vector<int64_t>& sizes) {
  tensor.SetDataType(static_cast<ge::DataType>(dtype));
  for (gert::Shape* shape : {&tensor.MutableStorageShape(), &tensor.MutableOriginShape()}) {
    shape->SetDimNum(0);
    for (const int64_t size : sizes) shape->AppendDim(size);
  }
}

void Hand(gert::Tensor& tensor, void* data, size_t bytes, std::shared_ptr<void> owner,
          gert::TensorPlacement placement) {
  tensor.SetData(gert::TensorData(new Held{data, std::move(owner)}, &Manage, bytes, placement));
}

}  // namespace

std::vector<engine::InputTensor> InputsOf(const std::vector<gert::Tensor>& tensors) {
  std::vector<engine::InputTensor> inputs;
  for (const gert::Tensor& tensor : tensors) {
    engine::InputTensor& input = inputs.emplace_back(
        engine::InputTensor{const_cast<void*>(tensor.GetAddr()), tensor.GetSize(), {TypeOf(tensor), {}}});
    ReadShape(tensor, input.meta.shape);
  }
  return inputs;
}

void RunTensors::Read(const std::vector<gert::Tensor>& inputs) {
  buffers_->inputs.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    engine::InputTensor& input = buffers_->inputs[i];
    input.data = const_cast<void*>(inputs[i].GetAddr());
    input.bytes = inputs[i].GetSize();
    input.meta.dtype = TypeOf(inputs[i]);
    ReadShape(inputs[i], input.meta.shape);
  }
}

void RunTensors::Read(std::vector<gert::Tensor>& outputs) {
  buffers_->outputs.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    buffers_->outputs[i].data = outputs[i].GetAddr();
    buffers_->outputs[i].bytes = outputs[i].GetSize();
  }
}

void Return(std::vector<engine::OutputTensor>& outputs, std::vector<gert::Tensor>& tensors) {
  tensors.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    engine::OutputTensor& output = outputs[i];
    Describe(tensors[i], output.dtype, output.shape);
    if (output.owner == nullptr) continue;
    Hand(tensors[i], output.data, output.bytes, std::move(output.owner), gert::kOnDeviceHbm);
  }
}

void Return(std::vector<engine::HostTensor>& outputs, std::vector<gert::Tensor>& tensors) {
  tensors.clear();
  tensors.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    Describe(tensors[i], outputs[i].dtype, outputs[i].shape);
    const auto bytes = std::make_shared<std::string>(std::move(outputs[i].bytes));
    Hand(tensors[i], bytes->data(), bytes->size(), bytes, gert::kOnHost);
  }
}

void CallBack(const std::function<void(ge::Status, std::vector<gert::Tensor>&)>& callback, const Status& status,
              std::vector<engine::HostTensor>& outputs) {
  std::vector<gert::Tensor> tensors;
  Return(outputs, tensors);
  callback(static_cast<ge::Status>(status.code()), tensors);
}

}  // namespace reprise::ge_runner
