// SPDX-License-Identifier: Apache-2.0
#include "tensors.h"

#include <string>
#include <utility>

namespace reprise::ge_runner {
namespace {

int32_t TypeOf(ge::DataType type) { return type == ge::DT_UNDEFINED ? -1 : static_cast<int32_t>(type); }

void ReadShape(const ge::Tensor& tensor, std::vector<int64_t>& shape) {
  shape.resize(tensor.GetShapeDimNum());
  for (size_t d = 0; d < shape.size(); ++d) shape[d] = tensor.GetShapeDim(d);
}

std::vector<int64_t> ShapeOf(const ge::Tensor& tensor) {
  std::vector<int64_t> shape;
  ReadShape(tensor, shape);
  return shape;
}

// What a tensor is; setting a size that is there cannot fail.
void Describe(ge::Tensor& tensor, int32_t dtype, const std::vector<int64_t>& shape, ge::Placement placement) {
  static_cast<void>(tensor.SetDataType(static_cast<ge::DataType>(dtype)));
  static_cast<void>(tensor.SetPlacement(placement));
  static_cast<void>(tensor.SetShapeDimNum(shape.size()));
  static_cast<void>(tensor.SetOriginShapeDimNum(shape.size()));
  for (size_t d = 0; d < shape.size(); ++d) {
    static_cast<void>(tensor.SetShapeDim(d, shape[d]));
    static_cast<void>(tensor.SetOriginShapeDim(d, shape[d]));
  }
}

class ProgramAllocator final : public engine::ExternalAllocator {
 public:
  explicit ProgramAllocator(std::shared_ptr<ge::Allocator> allocator) : allocator_(std::move(allocator)) {}
  Block Malloc(uint64_t bytes) override {
    ge::MemBlock* const block = allocator_->Malloc(bytes);
    return block != nullptr ? Block{block->GetAddr(), block} : Block{};
  }
  void Free(void* handle) override { static_cast<ge::MemBlock*>(handle)->Free(); }

 private:
  const std::shared_ptr<ge::Allocator> allocator_;
};

}  // namespace

std::vector<engine::InputTensor> InputsOf(const std::vector<ge::Tensor>& tensors) {
  std::vector<engine::InputTensor> inputs;
  for (const ge::Tensor& tensor : tensors) {
    inputs.push_back(
        {const_cast<uint8_t*>(tensor.GetData()), tensor.GetSize(), {TypeOf(tensor.GetDataType()), ShapeOf(tensor)}});
  }
  return inputs;
}

std::vector<engine::InputMeta> MetasOf(const std::vector<ge::Tensor>& tensors) {
  std::vector<engine::InputMeta> metas;
  for (const ge::Tensor& tensor : tensors) metas.push_back({TypeOf(tensor.GetDataType()), ShapeOf(tensor)});
  return metas;
}

std::vector<engine::InputMeta> MetasOf(const std::vector<ge::InputTensorInfo>& infos) {
  std::vector<engine::InputMeta> metas;
  for (const ge::InputTensorInfo& info : infos) metas.push_back({static_cast<int32_t>(info.data_type), info.dims});
  return metas;
}

std::vector<engine::HostTensor> CopiesOf(const std::vector<engine::InputTensor>& tensors) {
  std::vector<engine::HostTensor> copies;
  for (const engine::InputTensor& tensor : tensors) {
    std::string bytes;
    if (tensor.data != nullptr) bytes.assign(static_cast<const char*>(tensor.data), tensor.bytes);
    copies.push_back({tensor.meta.dtype, tensor.meta.shape, std::move(bytes)});
  }
  return copies;
}

RunTensors::Pool& RunTensors::PoolOfThread() {
  thread_local Pool pool;
  return pool;
}

std::unique_ptr<RunTensors::Buffers> RunTensors::Lease() {
  Pool& pool = PoolOfThread();
  if (pool.empty()) return std::make_unique<Buffers>();
  std::unique_ptr<Buffers> buffers = std::move(pool.back());
  pool.pop_back();
  return buffers;
}

RunTensors::~RunTensors() {
  for (engine::OutputTensor& output : buffers_->outputs) output.owner.reset();
  PoolOfThread().push_back(std::move(buffers_));
}

void RunTensors::Read(const std::vector<ge::Tensor>& inputs) {
  buffers_->inputs.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    engine::InputTensor& input = buffers_->inputs[i];
    input.data = const_cast<uint8_t*>(inputs[i].GetData());
    input.bytes = inputs[i].GetSize();
    input.meta.dtype = TypeOf(inputs[i].GetDataType());
    ReadShape(inputs[i], input.meta.shape);
  }
}

void RunTensors::Read(std::vector<ge::Tensor>& outputs) {
  buffers_->outputs.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    buffers_->outputs[i].data = outputs[i].GetData();
    buffers_->outputs[i].bytes = outputs[i].GetSize();
  }
}

void Return(std::vector<engine::OutputTensor>& outputs, std::vector<ge::Tensor>& tensors) {
  tensors.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    engine::OutputTensor& output = outputs[i];
    Describe(tensors[i], output.dtype, output.shape, ge::kPlacementDevice);
    if (output.owner == nullptr) continue;
    static_cast<void>(tensors[i].SetData(static_cast<uint8_t*>(output.data), output.bytes,
                                         [owner = std::move(output.owner)](uint8_t*) mutable { owner.reset(); }));
  }
}

void Return(std::vector<engine::HostTensor>& outputs, std::vector<ge::Tensor>& tensors) {
  tensors.clear();
  for (engine::HostTensor& output : outputs) {
    ge::Tensor& tensor = tensors.emplace_back();
    Describe(tensor, output.dtype, output.shape, ge::kPlacementHost);
    const auto bytes = std::make_shared<std::string>(std::move(output.bytes));
    static_cast<void>(tensor.SetData(reinterpret_cast<uint8_t*>(bytes->data()), bytes->size(), [bytes](uint8_t*) {}));
  }
}

engine::AllocatorPtr AllocatorOf(std::shared_ptr<ge::Allocator> allocator) {
  return allocator != nullptr ? std::make_shared<ProgramAllocator>(std::move(allocator)) : nullptr;
}

}  // namespace reprise::ge_runner
