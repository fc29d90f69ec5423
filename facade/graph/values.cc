// SPDX-License-Identifier: Apache-2.0
//
// Texts, shapes, descriptions and tensors of namespace ge.
#include <fmt/format.h>

#include <utility>

#include "ge/values.h"
#include "runtime/report.h"

using reprise::Error;
using reprise::Status;
using reprise::runtime::Api;

namespace ge {
namespace {

// More dimensions than any operator has; a count beyond it is a mistake, not a shape.
constexpr size_t kMostDims = 64;

graphStatus SetDimNum(const char* api, std::vector<int64_t>& dims, size_t count) {
  return static_cast<graphStatus>(Api(api, [&]() -> Status {
    if (count > kMostDims) {
      return Error(GRAPH_PARAM_OUT_OF_RANGE, fmt::format("dim_num is {}, must be at most {}", count, kMostDims))
          .Culprit("parameter dim_num")
          .Hint("pass the number of dimensions of the tensor");
    }
    dims.resize(count);
    return {};
  }));
}

graphStatus SetDim(const char* api, std::vector<int64_t>& dims, size_t index, int64_t value) {
  return static_cast<graphStatus>(Api(api, [&]() -> Status {
    if (index >= dims.size()) {
      return Error(GRAPH_PARAM_OUT_OF_RANGE,
                   fmt::format("idx is {}, but the shape has {} dimensions", index, dims.size()))
          .Culprit("parameter idx")
          .Hint("set the number of dimensions first");
    }
    dims[index] = value;
    return {};
  }));
}

}  // namespace

AscendString::AscendString(const char* text)
    : text_(text != nullptr ? std::make_shared<std::string>(text) : std::shared_ptr<std::string>()) {}
const char* AscendString::GetString() const { return text_ ? text_->c_str() : ""; }
bool AscendString::operator<(const AscendString& other) const {
  return std::string_view(GetString()) < std::string_view(other.GetString());
}
bool AscendString::operator==(const AscendString& other) const {
  return std::string_view(GetString()) == std::string_view(other.GetString());
}

struct Shape::Impl {
  std::vector<int64_t> dims;
};

Shape::Shape() : impl_(std::make_shared<Impl>()) {}
Shape::Shape(const std::vector<int64_t>& dims) : impl_(std::make_shared<Impl>(Impl{dims})) {}
std::vector<int64_t> Shape::GetDims() const { return impl_ ? impl_->dims : std::vector<int64_t>(); }

struct TensorDesc::Impl {
  std::vector<int64_t> dims;
  std::vector<int64_t> origin_dims;
  DataType type = DT_FLOAT;
  Format format = FORMAT_ND;
  Format origin_format = FORMAT_ND;
  Placement placement = kPlacementHost;
};

TensorDesc::TensorDesc() : impl_(std::make_shared<Impl>()) {}
DataType TensorDesc::GetDataType() const { return impl_->type; }
Format TensorDesc::GetFormat() const { return impl_->format; }
Placement TensorDesc::GetPlacement() const { return impl_->placement; }
Shape TensorDesc::GetShape() const { return Shape(impl_->dims); }
void TensorDesc::SetDataType(DataType type) { impl_->type = type; }
void TensorDesc::SetFormat(Format format) { impl_->format = format; }
void TensorDesc::SetOriginFormat(Format format) { impl_->origin_format = format; }
void TensorDesc::SetOriginShape(const Shape& shape) { impl_->origin_dims = shape.GetDims(); }
void TensorDesc::SetPlacement(Placement placement) { impl_->placement = placement; }

struct Tensor::Impl {
  TensorDesc::Impl desc;
  std::unique_ptr<uint8_t[], DeleteFunc> data{nullptr, [](uint8_t*) {}};
  size_t size = 0;
};

Tensor::Tensor() : impl_(std::make_shared<Impl>()) {}
uint8_t* Tensor::GetData() { return impl_->data.get(); }
const uint8_t* Tensor::GetData() const { return impl_->data.get(); }
DataType Tensor::GetDataType() const { return impl_->desc.type; }
Format Tensor::GetFormat() const { return impl_->desc.format; }
Placement Tensor::GetPlacement() const { return impl_->desc.placement; }
TensorDesc Tensor::GetTensorDesc() const {
  TensorDesc desc;
  *desc.impl_ = impl_->desc;
  return desc;
}
size_t Tensor::GetShapeDimNum() const { return impl_->desc.dims.size(); }
size_t Tensor::GetOriginShapeDimNum() const { return impl_->desc.origin_dims.size(); }
int64_t Tensor::GetShapeDim(size_t index) const {
  return index < impl_->desc.dims.size() ? impl_->desc.dims[index] : 0;
}

graphStatus Tensor::SetData(uint8_t* data, size_t size, const DeleteFunc& deleter) {
  return static_cast<graphStatus>(Api("ge::Tensor::SetData", [&]() -> Status {
    if (data == nullptr && size != 0) {
      return Error(GRAPH_NULL_PTR, fmt::format("data is null, size is {}", size))
          .Culprit("parameter data")
          .Hint("pass the address of the bytes, or the size 0");
    }
    impl_->data = {data, deleter ? deleter : DeleteFunc([](uint8_t*) {})};
    impl_->size = size;
    return {};
  }));
}
graphStatus Tensor::ResetData(uint8_t* data, size_t size, const DeleteFunc& deleter) {
  return SetData(data, size, deleter);
}
std::unique_ptr<uint8_t[], Tensor::DeleteFunc> Tensor::ResetData() {
  impl_->size = 0;
  return std::exchange(impl_->data, {nullptr, [](uint8_t*) {}});
}

graphStatus Tensor::SetTensorDesc(const TensorDesc& desc) {
  impl_->desc = *desc.impl_;
  return GRAPH_SUCCESS;
}
graphStatus Tensor::SetDataType(const DataType& type) {
  impl_->desc.type = type;
  return GRAPH_SUCCESS;
}
graphStatus Tensor::SetFormat(const Format& format) {
  impl_->desc.format = format;
  return GRAPH_SUCCESS;
}
graphStatus Tensor::SetPlacement(const Placement& placement) {
  impl_->desc.placement = placement;
  return GRAPH_SUCCESS;
}
graphStatus Tensor::SetShapeDimNum(size_t count) {
  return SetDimNum("ge::Tensor::SetShapeDimNum", impl_->desc.dims, count);
}
graphStatus Tensor::SetShapeDim(size_t index, int64_t value) {
  return SetDim("ge::Tensor::SetShapeDim", impl_->desc.dims, index, value);
}
graphStatus Tensor::SetOriginShapeDimNum(size_t count) {
  return SetDimNum("ge::Tensor::SetOriginShapeDimNum", impl_->desc.origin_dims, count);
}
graphStatus Tensor::SetOriginShapeDim(size_t index, int64_t value) {
  return SetDim("ge::Tensor::SetOriginShapeDim", impl_->desc.origin_dims, index, value);
}

const char* GetFormatName(Format format) {
  static const std::map<int, const char*> names = {
      {0, "NCHW"},
      {1, "NHWC"},
      {2, "ND"},
      {3, "NC1HWC0"},
      {4, "FRACTAL_Z"},
      {5, "NC1C0HWPAD"},
      {6, "NHWC1C0"},
      {7, "FSR_NCHW"},
      {8, "FRACTAL_DECONV"},
      {9, "C1HWNC0"},
      {12, "NC1HWC0_C04"},
      {13, "FRACTAL_Z_C04"},
      {14, "CHWN"},
      {16, "HWCN"},
      {17, "NC1KHKWHWC0"},
      {18, "BN_WEIGHT"},
      {19, "FILTER_HWCK"},
      {25, "C1HWNCoC0"},
      {26, "MD"},
      {27, "NDHWC"},
      {28, "FRACTAL_ZZ"},
      {29, "FRACTAL_NZ"},
      {30, "NCDHW"},
      {31, "DHWCN"},
      {32, "NDC1HWC0"},
      {33, "FRACTAL_Z_3D"},
      {34, "CN"},
      {35, "NC"},
      {36, "DHWNC"},
      {38, "FRACTAL_ZN_LSTM"},
      {39, "FRACTAL_Z_G"},
      {41, "ALL"},
      {42, "NULL"},
      {43, "ND_RNN_BIAS"},
      {44, "FRACTAL_ZN_RNN"},
      {45, "NYUV"},
      {46, "NYUV_A"},
      {47, "NCL"},
      {48, "FRACTAL_Z_WINO"},
      {49, "C1HWC0"},
      {50, "FRACTAL_NZ_C0_16"},
      {51, "FRACTAL_NZ_C0_32"},
      {52, "FRACTAL_NZ_C0_2"},
      {53, "FRACTAL_NZ_C0_4"},
      {54, "FRACTAL_NZ_C0_8"},
  };
  const auto found = names.find(static_cast<int>(format) & 0xFF);
  return found != names.end() ? found->second : "RESERVED";
}

}  // namespace ge
