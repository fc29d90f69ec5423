// SPDX-License-Identifier: Apache-2.0
//
// Values that depend on rank and place, and what reductions make of them, one after the other.
#pragma once

#include <hccl/hccl.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace reprise::testing {

template <class T>
struct TypeOf;
template <>
struct TypeOf<float> {
  static constexpr HcclDataType value = HCCL_DATA_TYPE_FP32;
};
template <>
struct TypeOf<double> {
  static constexpr HcclDataType value = HCCL_DATA_TYPE_FP64;
};
template <>
struct TypeOf<int8_t> {
  static constexpr HcclDataType value = HCCL_DATA_TYPE_INT8;
};
template <>
struct TypeOf<int16_t> {
  static constexpr HcclDataType value = HCCL_DATA_TYPE_INT16;
};
template <>
struct TypeOf<int32_t> {
  static constexpr HcclDataType value = HCCL_DATA_TYPE_INT32;
};
template <>
struct TypeOf<int64_t> {
  static constexpr HcclDataType value = HCCL_DATA_TYPE_INT64;
};
template <>
struct TypeOf<uint8_t> {
  static constexpr HcclDataType value = HCCL_DATA_TYPE_UINT8;
};
template <>
struct TypeOf<uint64_t> {
  static constexpr HcclDataType value = HCCL_DATA_TYPE_UINT64;
};

template <class T>
T ValueOf(uint32_t rank, size_t i) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(std::sin(static_cast<double>(rank * 7919 + i))) * 3;
  } else {
    return static_cast<T>(rank * 31 + i * 17 + 1);
  }
}

template <class T>
T Combine(T a, T b, HcclReduceOp op) {
  if constexpr (std::is_integral_v<T>) {
    const auto x = static_cast<uint64_t>(a);
    const auto y = static_cast<uint64_t>(b);
    if (op == HCCL_REDUCE_SUM) return static_cast<T>(x + y);
    if (op == HCCL_REDUCE_PROD) return static_cast<T>(x * y);
  } else {
    if (op == HCCL_REDUCE_SUM) return a + b;
    if (op == HCCL_REDUCE_PROD) return a * b;
  }
  return op == HCCL_REDUCE_MAX ? std::max(a, b) : std::min(a, b);
}

template <class T>
T Folded(size_t ranks, size_t i, HcclReduceOp op) {
  T value = ValueOf<T>(0, i);
  for (uint32_t rank = 1; rank < ranks; ++rank) value = Combine(value, ValueOf<T>(rank, i), op);
  return value;
}

}  // namespace reprise::testing
