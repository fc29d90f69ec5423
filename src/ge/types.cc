// SPDX-License-Identifier: Apache-2.0
#include "graph/types.h"

#include <cstring>
#include <map>
#include <string_view>

#include "ge/data.h"
#include "opdef/graph_op.h"

namespace ge {

Status NullArgument(const char* parameter) {
  return Error(GRAPH_NULL_PTR, fmt::format("{} is null", parameter))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint("pass an address");
}

Status Invalid(std::string what, std::string culprit, std::string hint, graphStatus number) {
  return Error(static_cast<int>(number), std::move(what)).Culprit(std::move(culprit)).Hint(std::move(hint));
}

AscendString::AscendString(const char* name)
    : text_(name != nullptr ? std::make_shared<Text>(Text{name}) : std::shared_ptr<Text>()) {}
AscendString::AscendString(const char* name, size_t length)
    : text_(name != nullptr ? std::make_shared<Text>(Text{std::string(name, length)}) : std::shared_ptr<Text>()) {}

const char* AscendString::GetString() const { return text_ ? text_->text.c_str() : ""; }
size_t AscendString::GetLength() const { return text_ ? text_->text.size() : 0; }

namespace {

std::string_view View(const AscendString& text) { return {text.GetString(), text.GetLength()}; }

}  // namespace

size_t AscendString::Find(const AscendString& text) const { return View(*this).find(View(text)); }
size_t AscendString::Hash() const { return std::hash<std::string_view>()(View(*this)); }
bool AscendString::operator<(const AscendString& other) const { return View(*this) < View(other); }
bool AscendString::operator>(const AscendString& other) const { return View(*this) > View(other); }
bool AscendString::operator<=(const AscendString& other) const { return View(*this) <= View(other); }
bool AscendString::operator>=(const AscendString& other) const { return View(*this) >= View(other); }
bool AscendString::operator==(const AscendString& other) const { return View(*this) == View(other); }
bool AscendString::operator!=(const AscendString& other) const { return View(*this) != View(other); }

int32_t GetSizeByDataType(DataType type) {
  switch (type) {
    case DT_RESOURCE:
    case DT_VARIANT: return 8;
    case DT_DUAL: return 5;
    case DT_DUAL_SUB_INT8:
    case DT_DUAL_SUB_UINT8:
    case DT_QINT8:
    case DT_QUINT8: return 1;
    case DT_QINT16:
    case DT_QUINT16: return 2;
    case DT_QINT32:
    case DT_COMPLEX32: return 4;
    case DT_UINT1: return kDataTypeSizeBitOffset + 1;
    case DT_INT2:
    case DT_UINT2: return kDataTypeSizeBitOffset + 2;
    case DT_INT4:
    case DT_FLOAT4_E2M1:
    case DT_FLOAT4_E1M2: return kDataTypeSizeBitOffset + 4;
    case DT_FLOAT6_E3M2:
    case DT_FLOAT6_E2M3: return kDataTypeSizeBitOffset + 6;
    default: break;
  }
  const int64_t bits = reprise::opdef::TypeBits(type);
  return bits > 0 && bits % 8 == 0 ? static_cast<int32_t>(bits / 8) : -1;
}

int64_t GetSizeInBytes(int64_t element_count, DataType type) {
  const int32_t size = GetSizeByDataType(type);
  if (element_count < 0 || size < 0) return -1;
  const bool is_packed = size > kDataTypeSizeBitOffset;
  int64_t total = 0;
  if (__builtin_mul_overflow(element_count, is_packed ? size - kDataTypeSizeBitOffset : size, &total)) return -1;
  return is_packed ? total / 8 + (total % 8 != 0 ? 1 : 0) : total;
}

const char* GetFormatName(Format format) {
  static const std::map<int, const char*> names = {
      {FORMAT_NCHW, "NCHW"},
      {FORMAT_NHWC, "NHWC"},
      {FORMAT_ND, "ND"},
      {FORMAT_NC1HWC0, "NC1HWC0"},
      {FORMAT_FRACTAL_Z, "FRACTAL_Z"},
      {FORMAT_NC1C0HWPAD, "NC1C0HWPAD"},
      {FORMAT_NHWC1C0, "NHWC1C0"},
      {FORMAT_FSR_NCHW, "FSR_NCHW"},
      {FORMAT_FRACTAL_DECONV, "FRACTAL_DECONV"},
      {FORMAT_C1HWNC0, "C1HWNC0"},
      {FORMAT_NC1HWC0_C04, "NC1HWC0_C04"},
      {FORMAT_FRACTAL_Z_C04, "FRACTAL_Z_C04"},
      {FORMAT_CHWN, "CHWN"},
      {FORMAT_HWCN, "HWCN"},
      {FORMAT_NC1KHKWHWC0, "NC1KHKWHWC0"},
      {FORMAT_BN_WEIGHT, "BN_WEIGHT"},
      {FORMAT_FILTER_HWCK, "FILTER_HWCK"},
      {FORMAT_C1HWNCoC0, "C1HWNCoC0"},
      {FORMAT_MD, "MD"},
      {FORMAT_NDHWC, "NDHWC"},
      {FORMAT_FRACTAL_ZZ, "FRACTAL_ZZ"},
      {FORMAT_FRACTAL_NZ, "FRACTAL_NZ"},
      {FORMAT_NCDHW, "NCDHW"},
      {FORMAT_DHWCN, "DHWCN"},
      {FORMAT_NDC1HWC0, "NDC1HWC0"},
      {FORMAT_FRACTAL_Z_3D, "FRACTAL_Z_3D"},
      {FORMAT_CN, "CN"},
      {FORMAT_NC, "NC"},
      {FORMAT_DHWNC, "DHWNC"},
      {FORMAT_FRACTAL_ZN_LSTM, "FRACTAL_ZN_LSTM"},
      {FORMAT_FRACTAL_Z_G, "FRACTAL_Z_G"},
      {FORMAT_ALL, "ALL"},
      {FORMAT_NULL, "NULL"},
      {FORMAT_ND_RNN_BIAS, "ND_RNN_BIAS"},
      {FORMAT_FRACTAL_ZN_RNN, "FRACTAL_ZN_RNN"},
      {FORMAT_NYUV, "NYUV"},
      {FORMAT_NYUV_A, "NYUV_A"},
      {FORMAT_NCL, "NCL"},
      {FORMAT_FRACTAL_Z_WINO, "FRACTAL_Z_WINO"},
      {FORMAT_C1HWC0, "C1HWC0"},
      {FORMAT_FRACTAL_NZ_C0_16, "FRACTAL_NZ_C0_16"},
      {FORMAT_FRACTAL_NZ_C0_32, "FRACTAL_NZ_C0_32"},
      {FORMAT_FRACTAL_NZ_C0_2, "FRACTAL_NZ_C0_2"},
      {FORMAT_FRACTAL_NZ_C0_4, "FRACTAL_NZ_C0_4"},
      {FORMAT_FRACTAL_NZ_C0_8, "FRACTAL_NZ_C0_8"},
  };
  const auto found = names.find(GetPrimaryFormat(format));
  return found != names.end() ? found->second : "RESERVED";
}

}  // namespace ge
