// SPDX-License-Identifier: Apache-2.0
//
// Shapes, descriptions and tensors of namespace ge.
#include "graph/tensor.h"

#include <cstring>
#include <utility>

#include "ge/data.h"

namespace ge {
namespace {

// More dimensions than any operator has; a count beyond it is a mistake, not a shape.
constexpr size_t kMostDims = 64;

graphStatus SetDimNum(const char* api, std::vector<int64_t>& dims, size_t count) {
  return Answer(api, [&]() -> Status {
    if (count > kMostDims) {
      return Invalid(fmt::format("dim_num is {}, must be at most {}", count, kMostDims), "parameter dim_num",
                     "pass the number of dimensions of the tensor", GRAPH_PARAM_OUT_OF_RANGE);
    }
    dims.resize(count);
    return {};
  });
}

graphStatus SetDimAt(const char* api, std::vector<int64_t>& dims, size_t index, int64_t value) {
  return Answer(api, [&]() -> Status {
    if (index >= dims.size()) {
      return Invalid(fmt::format("idx is {}, but the shape has {} dimensions", index, dims.size()), "parameter idx",
                     "set the number of dimensions first", GRAPH_PARAM_OUT_OF_RANGE);
    }
    dims[index] = value;
    return {};
  });
}

int64_t DimAt(const std::vector<int64_t>& dims, size_t index) { return index < dims.size() ? dims[index] : 0; }

// -1 where a dim or the rank is unknown, or the product does not fit.
int64_t ElementsOf(const std::vector<int64_t>& dims) {
  int64_t elements = 1;
  for (const int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(elements, dim, &elements)) return -1;
  }
  return elements;
}

}  // namespace

// ---- Shape ----

Shape::Shape() : impl_(std::make_shared<Impl>()) {}
Shape::Shape(const std::vector<int64_t>& dims) : impl_(std::make_shared<Impl>(Impl{dims})) {}

size_t Shape::GetDimNum() const {
  if (!impl_ || impl_->dims == UNKNOWN_RANK) return 0;
  return impl_->dims.size();
}
graphStatus Shape::SetDim(size_t idx, int64_t value) {
  if (!impl_) impl_ = std::make_shared<Impl>();
  if (impl_.use_count() > 1) impl_ = std::make_shared<Impl>(*impl_);
  return SetDimAt("ge::Shape::SetDim", impl_->dims, idx, value);
}
std::vector<int64_t> Shape::GetDims() const { return impl_ ? impl_->dims : std::vector<int64_t>(); }
int64_t Shape::GetDim(size_t idx) const { return impl_ ? DimAt(impl_->dims, idx) : 0; }
int64_t Shape::GetShapeSize() const { return !impl_ || impl_->dims.empty() ? 0 : ElementsOf(impl_->dims); }

// ---- TensorDesc ----

TensorDesc::TensorDesc() : impl_(std::make_shared<Impl>()) {}
TensorDesc::TensorDesc(Shape shape, Format format, DataType dt) : TensorDesc() { Update(shape, format, dt); }
TensorDesc::TensorDesc(const TensorDesc& desc) : impl_(std::make_shared<Impl>(*desc.impl_)) {}
TensorDesc::TensorDesc(TensorDesc&& desc)  // NOLINT: what is left behind is a description, too
    : impl_(std::exchange(desc.impl_, std::make_shared<Impl>())) {}
TensorDesc& TensorDesc::operator=(const TensorDesc& desc) {
  if (this != &desc) impl_ = std::make_shared<Impl>(*desc.impl_);
  return *this;
}
TensorDesc& TensorDesc::operator=(TensorDesc&& desc) {  // NOLINT
  if (this != &desc) impl_ = std::exchange(desc.impl_, std::make_shared<Impl>());
  return *this;
}

void TensorDesc::Update(const Shape& shape, Format format, DataType dt) {
  impl_->dims = shape.GetDims();
  impl_->format = format;
  impl_->type = dt;
}
Shape TensorDesc::GetShape() const { return Shape(impl_->dims); }
void TensorDesc::SetShape(const Shape& shape) { impl_->dims = shape.GetDims(); }
graphStatus TensorDesc::SetUnknownDimNumShape() {
  impl_->dims = UNKNOWN_RANK;
  return GRAPH_SUCCESS;
}
graphStatus TensorDesc::SetShapeRange(const std::vector<std::pair<int64_t, int64_t>>& range) {
  impl_->range = range;
  return GRAPH_SUCCESS;
}
graphStatus TensorDesc::GetShapeRange(std::vector<std::pair<int64_t, int64_t>>& range) const {
  range = impl_->range;
  return GRAPH_SUCCESS;
}
Format TensorDesc::GetFormat() const { return impl_->format; }
void TensorDesc::SetFormat(Format format) { impl_->format = format; }
Shape TensorDesc::GetOriginShape() const { return Shape(impl_->origin_dims.value_or(impl_->dims)); }
void TensorDesc::SetOriginShape(const Shape& origin_shape) { impl_->origin_dims = origin_shape.GetDims(); }
Format TensorDesc::GetOriginFormat() const { return impl_->origin_format.value_or(impl_->format); }
void TensorDesc::SetOriginFormat(Format origin_format) { impl_->origin_format = origin_format; }
DataType TensorDesc::GetDataType() const { return impl_->type; }
void TensorDesc::SetDataType(DataType dt) { impl_->type = dt; }
graphStatus TensorDesc::GetName(AscendString& name) { return static_cast<const TensorDesc*>(this)->GetName(name); }
graphStatus TensorDesc::GetName(AscendString& name) const {
  name = AscendString(impl_->name.c_str());
  return GRAPH_SUCCESS;
}
void TensorDesc::SetName(const char* name) { impl_->name = name != nullptr ? name : ""; }
int64_t TensorDesc::GetSize() const { return impl_->size; }
void TensorDesc::SetSize(int64_t size) { impl_->size = size; }
int64_t TensorDesc::GetRealDimCnt() const { return impl_->real_dims; }
void TensorDesc::SetRealDimCnt(int64_t real_dim_count) { impl_->real_dims = real_dim_count; }
Placement TensorDesc::GetPlacement() const { return impl_->placement; }
void TensorDesc::SetPlacement(Placement placement) { impl_->placement = placement; }
void TensorDesc::SetConstData(std::unique_ptr<uint8_t[]> const_data_buffer, const size_t& const_data_len) {
  impl_->const_data = std::move(const_data_buffer);
  impl_->const_bytes = impl_->const_data ? const_data_len : 0;
}
bool TensorDesc::GetConstData(uint8_t** const_data_buffer, size_t& const_data_len) const {
  if (const_data_buffer == nullptr || !impl_->const_data) return false;
  *const_data_buffer = impl_->const_data.get();
  const_data_len = impl_->const_bytes;
  return true;
}
graphStatus TensorDesc::SetExpandDimsRule(const AscendString& expand_dims_rule) {
  impl_->expand_dims_rule = expand_dims_rule.GetString();
  return GRAPH_SUCCESS;
}
graphStatus TensorDesc::GetExpandDimsRule(AscendString& expand_dims_rule) const {
  expand_dims_rule = AscendString(impl_->expand_dims_rule.c_str());
  return GRAPH_SUCCESS;
}
void TensorDesc::SetReuseInputIndex(const uint32_t idx) { impl_->reuse_input = idx; }
bool TensorDesc::GetReuseInputIndex(uint32_t& idx) const {
  if (!impl_->reuse_input) return false;
  idx = *impl_->reuse_input;
  return true;
}

// ---- Tensor ----

Tensor::Tensor() : impl_(std::make_shared<Impl>()) {}
Tensor::Tensor(const TensorDesc& tensor_desc) : Tensor() { impl_->desc = *tensor_desc.impl_; }
Tensor::Tensor(const TensorDesc& tensor_desc, const std::vector<uint8_t>& data)
    : Tensor(tensor_desc, data.data(), data.size()) {}
Tensor::Tensor(const TensorDesc& tensor_desc, const uint8_t* data, size_t size) : Tensor(tensor_desc) {
  (void)SetData(data, size);
}
Tensor::Tensor(TensorDesc&& tensor_desc, std::vector<uint8_t>&& data)  // NOLINT: callers give them away
    : Tensor(tensor_desc, data.data(), data.size()) {}

TensorDesc Tensor::GetTensorDesc() const {
  TensorDesc desc;
  *desc.impl_ = impl_->desc;
  return desc;
}
graphStatus Tensor::SetTensorDesc(const TensorDesc& tensor_desc) {
  impl_->desc = *tensor_desc.impl_;
  return GRAPH_SUCCESS;
}

uint8_t* Tensor::GetData() { return impl_->data.get(); }
const uint8_t* Tensor::GetData() const { return impl_->data.get(); }
size_t Tensor::GetSize() const { return impl_->size; }
std::unique_ptr<uint8_t[], Tensor::DeleteFunc> Tensor::ResetData() {
  impl_->size = 0;
  return std::exchange(impl_->data, {nullptr, [](uint8_t*) {}});
}

graphStatus Tensor::SetData(std::vector<uint8_t>&& data) { return SetData(data.data(), data.size()); }  // NOLINT
graphStatus Tensor::SetData(const std::vector<uint8_t>& data) { return SetData(data.data(), data.size()); }
graphStatus Tensor::SetData(const uint8_t* data, size_t size) {
  return Answer("ge::Tensor::SetData", [&]() -> Status {
    if (data == nullptr && size != 0) return NullArgument("data");
    std::unique_ptr<uint8_t[]> copy;
    if (size != 0) {
      copy.reset(new uint8_t[size]);
      std::memcpy(copy.get(), data, size);
    }
    impl_->data = {copy.release(), [](uint8_t* memory) { delete[] memory; }};
    impl_->size = size;
    return {};
  });
}
graphStatus Tensor::SetData(const char* data) {
  if (data == nullptr) return Answer("ge::Tensor::SetData", [] { return NullArgument("data"); });
  return SetData(std::vector<AscendString>{AscendString(data)});
}
graphStatus Tensor::SetData(const std::vector<AscendString>& data) {
  std::vector<uint8_t> bytes(data.size() * 2 * sizeof(uint64_t));
  for (size_t i = 0; i < data.size(); ++i) {
    const uint64_t head[2] = {bytes.size(), data[i].GetLength()};
    std::memcpy(bytes.data() + i * sizeof head, head, sizeof head);
    bytes.insert(bytes.end(), data[i].GetString(), data[i].GetString() + data[i].GetLength() + 1);
  }
  return SetData(bytes);
}
graphStatus Tensor::SetData(uint8_t* data, size_t size, const DeleteFunc& deleter_func) {
  return Answer("ge::Tensor::SetData", [&]() -> Status {
    if (data == nullptr && size != 0) {
      return Error(GRAPH_NULL_PTR, fmt::format("data is null, size is {}", size))
          .Culprit("parameter data")
          .Hint("pass the address of the bytes, or the size 0");
    }
    impl_->data = {data, deleter_func ? deleter_func : DeleteFunc([](uint8_t*) {})};
    impl_->size = size;
    return {};
  });
}
graphStatus Tensor::ResetData(uint8_t* data, size_t size, const DeleteFunc& deleter_func) {
  return SetData(data, size, deleter_func);
}

graphStatus Tensor::IsValid() {
  return Answer("ge::Tensor::IsValid", [&]() -> Status {
    if (impl_->desc.type == DT_STRING) return {};
    const int64_t wanted = GetSizeInBytes(ElementsOf(impl_->desc.dims), impl_->desc.type);
    if (wanted >= 0 && static_cast<uint64_t>(wanted) == impl_->size) return {};
    return Invalid(fmt::format("the tensor has {} bytes, its shape [{}] and type {} ask for {}", impl_->size,
                               fmt::join(impl_->desc.dims, ", "), static_cast<int>(impl_->desc.type), wanted),
                   "the tensor", "set data and description so that they fit", GRAPH_FAILED);
  });
}
Tensor Tensor::Clone() const {
  Tensor clone;
  clone.impl_->desc = impl_->desc;
  (void)clone.SetData(static_cast<const uint8_t*>(impl_->data.get()), impl_->size);
  return clone;
}

DataType Tensor::GetDataType() const { return impl_->desc.type; }
graphStatus Tensor::SetDataType(const DataType& dtype) {
  impl_->desc.type = dtype;
  return GRAPH_SUCCESS;
}
Format Tensor::GetFormat() const { return impl_->desc.format; }
graphStatus Tensor::SetFormat(const Format& format) {
  impl_->desc.format = format;
  return GRAPH_SUCCESS;
}
Format Tensor::GetOriginFormat() const { return impl_->desc.origin_format.value_or(impl_->desc.format); }
graphStatus Tensor::SetOriginFormat(const Format& format) {
  impl_->desc.origin_format = format;
  return GRAPH_SUCCESS;
}
Placement Tensor::GetPlacement() const { return impl_->desc.placement; }
graphStatus Tensor::SetPlacement(const Placement& placement) {
  impl_->desc.placement = placement;
  return GRAPH_SUCCESS;
}
graphStatus Tensor::SetExpandDimsRule(const AscendString& expand_dims_rule) {
  impl_->desc.expand_dims_rule = expand_dims_rule.GetString();
  return GRAPH_SUCCESS;
}
graphStatus Tensor::GetExpandDimsRule(AscendString& expand_dims_rule) const {
  expand_dims_rule = AscendString(impl_->desc.expand_dims_rule.c_str());
  return GRAPH_SUCCESS;
}
size_t Tensor::GetShapeDimNum() const { return impl_->desc.dims.size(); }
graphStatus Tensor::SetShapeDimNum(size_t dim_num) {
  return SetDimNum("ge::Tensor::SetShapeDimNum", impl_->desc.dims, dim_num);
}
int64_t Tensor::GetShapeDim(size_t idx) const { return DimAt(impl_->desc.dims, idx); }
graphStatus Tensor::SetShapeDim(size_t idx, int64_t dim_value) {
  return SetDimAt("ge::Tensor::SetShapeDim", impl_->desc.dims, idx, dim_value);
}
size_t Tensor::GetOriginShapeDimNum() const { return impl_->desc.origin_dims ? impl_->desc.origin_dims->size() : 0; }
graphStatus Tensor::SetOriginShapeDimNum(size_t dim_num) {
  if (!impl_->desc.origin_dims) impl_->desc.origin_dims.emplace();
  return SetDimNum("ge::Tensor::SetOriginShapeDimNum", *impl_->desc.origin_dims, dim_num);
}
int64_t Tensor::GetOriginShapeDim(size_t idx) const {
  return impl_->desc.origin_dims ? DimAt(*impl_->desc.origin_dims, idx) : 0;
}
graphStatus Tensor::SetOriginShapeDim(size_t idx, int64_t dim_value) {
  if (!impl_->desc.origin_dims) impl_->desc.origin_dims.emplace();
  return SetDimAt("ge::Tensor::SetOriginShapeDim", *impl_->desc.origin_dims, idx, dim_value);
}

}  // namespace ge
