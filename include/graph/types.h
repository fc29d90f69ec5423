/* SPDX-License-Identifier: Apache-2.0 */
/* Types of elements, formats of tensors, and where they lie. */
#ifndef REPRISE_GRAPH_TYPES_H_
#define REPRISE_GRAPH_TYPES_H_

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "graph/ascend_string.h"
#include "graph/ge_error_codes.h"

#pragma GCC visibility push(default)

namespace ge {

const int64_t UNKNOWN_DIM = -1;
const int64_t UNKNOWN_DIM_NUM = -2;
const int64_t UNKNOWN_DIM_SIZE = -1;
const std::vector<int64_t> UNKNOWN_SHAPE = {-1};
const std::vector<int64_t> UNKNOWN_RANK = {-2};
const std::vector<int64_t> DUMMY_SHAPE = {-3};

/* GetSizeByDataType gives this much more than the number of bits for types that are smaller than a byte. */
const int32_t kDataTypeSizeBitOffset = 1000;

enum DataType : int32_t {
  DT_FLOAT = 0,
  DT_FLOAT16 = 1,
  DT_INT8 = 2,
  DT_INT32 = 3,
  DT_UINT8 = 4,
  DT_INT16 = 6,
  DT_UINT16 = 7,
  DT_UINT32 = 8,
  DT_INT64 = 9,
  DT_UINT64 = 10,
  DT_DOUBLE = 11,
  DT_BOOL = 12,
  DT_STRING = 13,
  DT_DUAL_SUB_INT8 = 14,
  DT_DUAL_SUB_UINT8 = 15,
  DT_COMPLEX64 = 16,
  DT_COMPLEX128 = 17,
  DT_QINT8 = 18,
  DT_QINT16 = 19,
  DT_QINT32 = 20,
  DT_QUINT8 = 21,
  DT_QUINT16 = 22,
  DT_RESOURCE = 23,
  DT_STRING_REF = 24,
  DT_DUAL = 25,
  DT_VARIANT = 26,
  DT_BF16 = 27,
  DT_UNDEFINED = 28,
  DT_INT4 = 29,
  DT_UINT1 = 30,
  DT_INT2 = 31,
  DT_UINT2 = 32,
  DT_COMPLEX32 = 33,
  DT_HIFLOAT8 = 34,
  DT_FLOAT8_E5M2 = 35,
  DT_FLOAT8_E4M3FN = 36,
  DT_FLOAT8_E8M0 = 37,
  DT_FLOAT6_E3M2 = 38,
  DT_FLOAT6_E2M3 = 39,
  DT_FLOAT4_E2M1 = 40,
  DT_FLOAT4_E1M2 = 41,
  DT_MAX = 42
};

/* Bits 0 to 7 are one of these; 8 to 23 a number of groups; 24 to 27 the code of C0. */
enum Format : int32_t {
  FORMAT_NCHW = 0,
  FORMAT_NHWC = 1,
  FORMAT_ND = 2,
  FORMAT_NC1HWC0 = 3,
  FORMAT_FRACTAL_Z = 4,
  FORMAT_NC1C0HWPAD = 5,
  FORMAT_NHWC1C0 = 6,
  FORMAT_FSR_NCHW = 7,
  FORMAT_FRACTAL_DECONV = 8,
  FORMAT_C1HWNC0 = 9,
  FORMAT_NC1HWC0_C04 = 12,
  FORMAT_FRACTAL_Z_C04 = 13,
  FORMAT_CHWN = 14,
  FORMAT_HWCN = 16,
  FORMAT_NC1KHKWHWC0 = 17,
  FORMAT_BN_WEIGHT = 18,
  FORMAT_FILTER_HWCK = 19,
  FORMAT_C1HWNCoC0 = 25,
  FORMAT_MD = 26,
  FORMAT_NDHWC = 27,
  FORMAT_FRACTAL_ZZ = 28,
  FORMAT_FRACTAL_NZ = 29,
  FORMAT_NCDHW = 30,
  FORMAT_DHWCN = 31,
  FORMAT_NDC1HWC0 = 32,
  FORMAT_FRACTAL_Z_3D = 33,
  FORMAT_CN = 34,
  FORMAT_NC = 35,
  FORMAT_DHWNC = 36,
  FORMAT_FRACTAL_ZN_LSTM = 38,
  FORMAT_FRACTAL_Z_G = 39,
  FORMAT_RESERVED = 40,
  FORMAT_ALL = 41,
  FORMAT_NULL = 42,
  FORMAT_ND_RNN_BIAS = 43,
  FORMAT_FRACTAL_ZN_RNN = 44,
  FORMAT_NYUV = 45,
  FORMAT_NYUV_A = 46,
  FORMAT_NCL = 47,
  FORMAT_FRACTAL_Z_WINO = 48,
  FORMAT_C1HWC0 = 49,
  FORMAT_FRACTAL_NZ_C0_16 = 50,
  FORMAT_FRACTAL_NZ_C0_32 = 51,
  FORMAT_FRACTAL_NZ_C0_2 = 52,
  FORMAT_FRACTAL_NZ_C0_4 = 53,
  FORMAT_FRACTAL_NZ_C0_8 = 54,
  FORMAT_MAX = 0xFF
};

enum Placement : int32_t { kPlacementHost = 0, kPlacementDevice = 1, kPlacementEnd = 2 };

enum DeviceType : int32_t { NPU = 0, CPU = 1 };

/* "NCHW" of FORMAT_NCHW; "RESERVED" for a number that is no format. */
const char* GetFormatName(Format format);

inline int32_t GetPrimaryFormat(int32_t format) { return format & 0xFF; }
inline int32_t GetSubFormat(int32_t format) { return (format >> 8) & 0xFFFF; }
inline bool HasSubFormat(int32_t format) { return GetSubFormat(format) != 0; }
inline int32_t GetFormatFromSub(int32_t primary, int32_t sub) { return (primary & 0xFF) | ((sub & 0xFFFF) << 8); }
inline bool HasC0Format(int32_t format) { return ((format >> 24) & 0xF) != 0; }
/* The number of elements of C0; -1 where the format does not say. */
inline int64_t GetC0Value(int32_t format) {
  return HasC0Format(format) ? int64_t(1) << (((format >> 24) & 0xF) - 1) : -1;
}
inline int32_t GetFormatFromC0(int32_t format, int32_t code) { return (format & 0xFFFFFF) | ((code & 0xF) << 24); }

/* Bytes of one element; kDataTypeSizeBitOffset and the number of bits for smaller ones; -1 for texts and others. */
int32_t GetSizeByDataType(DataType type);
/* Bytes of so many elements; -1 for a negative count, a type without a size, and what does not fit. */
int64_t GetSizeInBytes(int64_t element_count, DataType type);

/* A set of types, as prototypes of operators name them. */
struct TensorType {
  explicit TensorType(DataType type) : types(1, type) {}
  TensorType(const std::initializer_list<DataType>& list) : types(list) {}  // NOLINT: prototypes rely on it

  static TensorType FLOAT() { return {DT_FLOAT, DT_FLOAT16, DT_BF16}; }
  static TensorType INT8() { return TensorType(DT_INT8); }
  static TensorType INT16() { return TensorType(DT_INT16); }
  static TensorType INT32() { return TensorType(DT_INT32); }
  static TensorType INT64() { return TensorType(DT_INT64); }
  static TensorType UINT8() { return TensorType(DT_UINT8); }
  static TensorType BOOL() { return TensorType(DT_BOOL); }
  static TensorType STRING() { return TensorType(DT_STRING); }
  static TensorType ALL() { return Of(kEvery); }
  static TensorType BasicType() { return Of(kFloating | kInteger | kComplex | kQuantized); }
  static TensorType OrdinaryType() { return Of(kFloating | kInteger | kComplex | kBool); }
  static TensorType NumberType() { return Of(kFloating | kInteger | kComplex | kQuantized); }
  static TensorType RealNumberType() { return Of(kFloating | kInteger); }
  static TensorType UnaryDataType() { return Of(kFloating | kComplex); }
  static TensorType ComplexDataType() { return Of(kComplex); }
  static TensorType FloatingDataType() { return Of(kFloating); }
  static TensorType QuantifiedType() { return Of(kQuantized); }
  static TensorType IntegerDataType() { return Of(kInteger); }
  static TensorType SignedDataType() { return {DT_INT8, DT_INT16, DT_INT32, DT_INT64}; }
  static TensorType UnsignedDataType() { return {DT_UINT8, DT_UINT16, DT_UINT32, DT_UINT64}; }
  static TensorType IndexNumberType() { return {DT_INT32, DT_INT64}; }
  static TensorType NotNumberType() { return {DT_STRING, DT_RESOURCE}; }

  std::vector<DataType> types;

 private:
  enum Kind { kFloating = 1, kInteger = 2, kComplex = 4, kQuantized = 8, kBool = 16, kText = 32, kEvery = 63 };
  static TensorType Of(int kinds);
};

inline TensorType TensorType::Of(int kinds) {
  static const struct {
    DataType type;
    int kind;
  } kKinds[] = {
      {DT_FLOAT, kFloating},    {DT_FLOAT16, kFloating},   {DT_BF16, kFloating},     {DT_DOUBLE, kFloating},
      {DT_INT8, kInteger},      {DT_INT16, kInteger},      {DT_INT32, kInteger},     {DT_INT64, kInteger},
      {DT_UINT8, kInteger},     {DT_UINT16, kInteger},     {DT_UINT32, kInteger},    {DT_UINT64, kInteger},
      {DT_COMPLEX64, kComplex}, {DT_COMPLEX128, kComplex}, {DT_QINT8, kQuantized},   {DT_QINT16, kQuantized},
      {DT_QINT32, kQuantized},  {DT_QUINT8, kQuantized},   {DT_QUINT16, kQuantized}, {DT_BOOL, kBool},
      {DT_STRING, kText},       {DT_RESOURCE, kText},
  };
  TensorType set({});
  for (const auto& entry : kKinds) {
    if ((entry.kind & kinds) != 0) set.types.push_back(entry.type);
  }
  return set;
}

}  // namespace ge

#pragma GCC visibility pop

#endif  // REPRISE_GRAPH_TYPES_H_
