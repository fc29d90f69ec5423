// SPDX-License-Identifier: Apache-2.0
//
// Element types: the enum, what each is (size, name, category, C++ type), and
// the two relations the operator table needs: promotion and safe casting.
#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <type_traits>
#include <utility>

#include "kernels/float16.h"

namespace reprise::kernels {

/// Element type of a tensor. The numbers equal those of aclDataType.
enum class DType : int32_t {
  kUndefined = -1,
  kFloat = 0,
  kFloat16 = 1,
  kInt8 = 2,
  kInt32 = 3,
  kUInt8 = 4,
  kInt16 = 6,
  kUInt16 = 7,
  kUInt32 = 8,
  kInt64 = 9,
  kUInt64 = 10,
  kDouble = 11,
  kBool = 12,
  kComplex64 = 16,
  kComplex128 = 17,
  kBFloat16 = 27,
};

/// Every element type the kernels compute with, in ascending number.
inline constexpr std::array<DType, 15> kAllDTypes = {
    DType::kFloat,  DType::kFloat16, DType::kInt8,      DType::kInt32,      DType::kUInt8,
    DType::kInt16,  DType::kUInt16,  DType::kUInt32,    DType::kInt64,      DType::kUInt64,
    DType::kDouble, DType::kBool,    DType::kComplex64, DType::kComplex128, DType::kBFloat16};

/// Categories in promotion order: a higher one absorbs a lower one.
enum class Category : uint8_t { kBool, kInteger, kFloating, kComplex };

/// One stored boolean. Any non-zero byte reads as true; writes store 0 or 1.
struct Bool {
  uint8_t byte = 0;

  constexpr Bool() = default;
  constexpr explicit Bool(bool value) : byte(value ? 1 : 0) {}
  constexpr explicit operator bool() const { return byte != 0; }
};
static_assert(sizeof(Bool) == 1);

/// Position of `dtype` in kAllDTypes, or -1 for a type the kernels do not know.
constexpr int DTypeIndex(DType dtype) {
  switch (dtype) {
    case DType::kFloat: return 0;
    case DType::kFloat16: return 1;
    case DType::kInt8: return 2;
    case DType::kInt32: return 3;
    case DType::kUInt8: return 4;
    case DType::kInt16: return 5;
    case DType::kUInt16: return 6;
    case DType::kUInt32: return 7;
    case DType::kInt64: return 8;
    case DType::kUInt64: return 9;
    case DType::kDouble: return 10;
    case DType::kBool: return 11;
    case DType::kComplex64: return 12;
    case DType::kComplex128: return 13;
    case DType::kBFloat16: return 14;
    case DType::kUndefined: break;
  }
  return -1;
}

/// True for the types of kAllDTypes; use it on numbers that come from outside.
constexpr bool IsKnown(DType dtype) { return DTypeIndex(dtype) >= 0; }

/// Bytes of one element; 0 for an unknown type.
constexpr int64_t ItemSize(DType dtype) {
  constexpr int64_t kBytes[15] = {4, 2, 1, 4, 1, 2, 2, 4, 8, 8, 8, 1, 8, 16, 2};
  const int index = DTypeIndex(dtype);
  return index < 0 ? 0 : kBytes[index];
}

/// Lower-case name as PyTorch spells it ("float32"); "undefined" if unknown.
std::string_view Name(DType dtype);

/// \pre IsKnown(dtype).
constexpr Category CategoryOf(DType dtype) {
  switch (dtype) {
    case DType::kBool: return Category::kBool;
    case DType::kFloat:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kDouble: return Category::kFloating;
    case DType::kComplex64:
    case DType::kComplex128: return Category::kComplex;
    default: return Category::kInteger;
  }
}

/// Type in which two tensors are computed together; PyTorch's table.
///
/// bool < integer < floating < complex; within a category the narrowest type
/// holding both. float16 with bfloat16 gives float32, complex64 with float64
/// gives complex128, uint8 with a signed type gives the next wide enough signed
/// type. uint16, uint32 and uint64 mix with bool, floating and complex types
/// and with themselves only.
/// \returns kUndefined where no type is agreed on or an argument is unknown.
DType Promote(DType a, DType b);

/// Type in which a tensor and a weakly typed scalar are computed: the scalar
/// changes the type only if its category is higher. Then an integer scalar
/// gives int64, a floating one float32, a complex one the complex type of the
/// tensor's precision (complex64 unless the tensor is float64).
DType PromoteWithScalar(DType tensor, DType scalar);

/// Whether a result of type `from` may be stored in `to`: never from complex to
/// real, from floating to integer, or from anything else to bool.
bool CanCast(DType from, DType to);

// ---- From a DType to a C++ type ----

template <class T>
struct TypeTag {
  using Type = T;
};

template <class T>
inline constexpr bool kIsComplex = false;
template <class R>
inline constexpr bool kIsComplex<std::complex<R>> = true;
template <class T>
inline constexpr bool kIsReducedFloat = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

/// Type of the arithmetic on T: float32 for the 16-bit floats, else T.
template <class T>
using MathType = std::conditional_t<kIsReducedFloat<T>, float, T>;

/// The DType of a C++ element type.
template <class T>
constexpr DType DTypeOf() {
  if constexpr (std::is_same_v<T, float>) return DType::kFloat;
  if constexpr (std::is_same_v<T, Half>) return DType::kFloat16;
  if constexpr (std::is_same_v<T, int8_t>) return DType::kInt8;
  if constexpr (std::is_same_v<T, int32_t>) return DType::kInt32;
  if constexpr (std::is_same_v<T, uint8_t>) return DType::kUInt8;
  if constexpr (std::is_same_v<T, int16_t>) return DType::kInt16;
  if constexpr (std::is_same_v<T, uint16_t>) return DType::kUInt16;
  if constexpr (std::is_same_v<T, uint32_t>) return DType::kUInt32;
  if constexpr (std::is_same_v<T, int64_t>) return DType::kInt64;
  if constexpr (std::is_same_v<T, uint64_t>) return DType::kUInt64;
  if constexpr (std::is_same_v<T, double>) return DType::kDouble;
  if constexpr (std::is_same_v<T, Bool>) return DType::kBool;
  if constexpr (std::is_same_v<T, std::complex<float>>) return DType::kComplex64;
  if constexpr (std::is_same_v<T, std::complex<double>>) return DType::kComplex128;
  if constexpr (std::is_same_v<T, BFloat16>) return DType::kBFloat16;
  return DType::kUndefined;
}

/// Calls fn(TypeTag<T>{}) with the C++ type of `dtype`.
/// \pre IsKnown(dtype); anything else is a bug of the caller and aborts.
template <class Fn>
decltype(auto) DispatchAll(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kFloat: return fn(TypeTag<float>{});
    case DType::kFloat16: return fn(TypeTag<Half>{});
    case DType::kInt8: return fn(TypeTag<int8_t>{});
    case DType::kInt32: return fn(TypeTag<int32_t>{});
    case DType::kUInt8: return fn(TypeTag<uint8_t>{});
    case DType::kInt16: return fn(TypeTag<int16_t>{});
    case DType::kUInt16: return fn(TypeTag<uint16_t>{});
    case DType::kUInt32: return fn(TypeTag<uint32_t>{});
    case DType::kInt64: return fn(TypeTag<int64_t>{});
    case DType::kUInt64: return fn(TypeTag<uint64_t>{});
    case DType::kDouble: return fn(TypeTag<double>{});
    case DType::kBool: return fn(TypeTag<Bool>{});
    case DType::kComplex64: return fn(TypeTag<std::complex<float>>{});
    case DType::kComplex128: return fn(TypeTag<std::complex<double>>{});
    case DType::kBFloat16: return fn(TypeTag<BFloat16>{});
    case DType::kUndefined: break;
  }
  std::abort();
}

/// DispatchAll restricted to float32, float16, bfloat16 and float64.
template <class Fn>
decltype(auto) DispatchFloating(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kFloat: return fn(TypeTag<float>{});
    case DType::kFloat16: return fn(TypeTag<Half>{});
    case DType::kDouble: return fn(TypeTag<double>{});
    case DType::kBFloat16: return fn(TypeTag<BFloat16>{});
    default: std::abort();
  }
}

}  // namespace reprise::kernels
