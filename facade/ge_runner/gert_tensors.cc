// SPDX-License-Identifier: Apache-2.0
//
// Tensors of namespace gert, which are plain memory with a function that knows whose it is.
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

std::vector<int64_t> ShapeOf(const gert::Tensor& tensor) {
  const gert::Shape& shape = tensor.GetStorageShape();
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < shape.GetDimNum() && d < gert::Shape::kMaxDimNum; ++d) sizes.push_back(shape.GetDim(d));
  return sizes;
}

void Describe(gert::Tensor& tensor, int32_t dtype, const std::vector<int64_t>& sizes) {
  tensor.SetDataType(static_cast<ge::DataType>(dtype));
  for (gert::Shape* shape : {&tensor.MutableStorageShape(), &tensor.MutableOriginShape()}) {
    shape->SetDimNum(0);
    for (const int64_t size : sizes) shape->AppendDim(size);
  }
}

void Hand(gert::Tensor& tensor, void* data, size_t bytes, std::shared_ptr<void> owner, gert::TensorPlacement placement) {
  tensor.SetData(gert::TensorData(new Held{data, std::move(owner)}, &Manage, bytes, placement));
}

}  // namespace

std::vector<engine::InputTensor> InputsOf(const std::vector<gert::Tensor>& tensors) {
  std::vector<engine::InputTensor> inputs;
  for (const gert::Tensor& tensor : tensors) {
    const int32_t dtype = tensor.GetDataType() == ge::DT_UNDEFINED ? -1 : static_cast<int32_t>(tensor.GetDataType());
    inputs.push_back({const_cast<void*>(tensor.GetAddr()), tensor.GetSize(), {dtype, ShapeOf(tensor)}});
  }
  return inputs;
}

std::vector<engine::OutputTensor> OutputsOf(std::vector<gert::Tensor>& tensors) {
  std::vector<engine::OutputTensor> outputs(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    outputs[i].data = tensors[i].GetAddr();
    outputs[i].bytes = tensors[i].GetSize();
  }
  return outputs;
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
