// SPDX-License-Identifier: Apache-2.0
#include "kernels/dtype.h"

#include <algorithm>

namespace reprise::kernels {
namespace {

constexpr bool IsWideUnsigned(DType dtype) {
  return dtype == DType::kUInt16 || dtype == DType::kUInt32 || dtype == DType::kUInt64;
}

DType PromoteIntegers(DType a, DType b) {
  if (IsWideUnsigned(a) || IsWideUnsigned(b)) return DType::kUndefined;
  const int64_t bytes = std::max(ItemSize(a), ItemSize(b));
  if (bytes == 8) return DType::kInt64;
  if (bytes == 4) return DType::kInt32;
  return DType::kInt16;  // int16 with a narrower one, or int8 with uint8
}

DType PromoteFloats(DType a, DType b) {
  if (a == DType::kDouble || b == DType::kDouble) return DType::kDouble;
  return DType::kFloat;  // float32 with a 16-bit type, or the two 16-bit types
}

bool IsDoublePrecision(DType dtype) { return dtype == DType::kDouble || dtype == DType::kComplex128; }

}  // namespace

std::string_view Name(DType dtype) {
  constexpr std::string_view kNames[15] = {"float32", "float16", "int8",      "int32",      "uint8",
                                           "int16",   "uint16",  "uint32",    "int64",      "uint64",
                                           "float64", "bool",    "complex64", "complex128", "bfloat16"};
  const int index = DTypeIndex(dtype);
  return index < 0 ? "undefined" : kNames[index];
}

DType Promote(DType a, DType b) {
  if (!IsKnown(a) || !IsKnown(b)) return DType::kUndefined;
  if (a == b) return a;
  const Category category_a = CategoryOf(a);
  const Category category_b = CategoryOf(b);
  const Category higher = std::max(category_a, category_b);
  if (higher == Category::kComplex) {
    return IsDoublePrecision(a) || IsDoublePrecision(b) ? DType::kComplex128 : DType::kComplex64;
  }
  if (category_a != category_b) return category_a == higher ? a : b;
  return higher == Category::kFloating ? PromoteFloats(a, b) : PromoteIntegers(a, b);
}

DType PromoteWithScalar(DType tensor, DType scalar) {
  if (!IsKnown(tensor) || !IsKnown(scalar)) return DType::kUndefined;
  if (CategoryOf(scalar) <= CategoryOf(tensor)) return tensor;
  switch (CategoryOf(scalar)) {
    case Category::kInteger: return DType::kInt64;
    case Category::kFloating: return DType::kFloat;
    default: return tensor == DType::kDouble ? DType::kComplex128 : DType::kComplex64;
  }
}

bool CanCast(DType from, DType to) {
  if (!IsKnown(from) || !IsKnown(to)) return false;
  const Category source = CategoryOf(from);
  const Category target = CategoryOf(to);
  if (target == Category::kInteger) return source <= Category::kInteger;
  return source <= target;
}

}  // namespace reprise::kernels
