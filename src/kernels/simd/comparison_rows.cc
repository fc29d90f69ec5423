// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/comparison_rows.h"

#define REPRISE_FEW_TARGETS
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/comparison_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/plain_rows.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

// Plain loops, which the compiler vectorises for each instruction set.

template <ComparisonRow kRow, class T>
HWY_INLINE HWY_ATTR uint8_t Holds(T a, T b) {
  switch (kRow) {
    case ComparisonRow::kEq: return a == b;
    case ComparisonRow::kNe: return a != b;
    case ComparisonRow::kLt: return a < b;
    case ComparisonRow::kLe: return a <= b;
    case ComparisonRow::kGt: return a > b;
    case ComparisonRow::kGe: return a >= b;
  }
  return 0;
}

template <ComparisonRow kRow, class T>
HWY_ATTR void Compare(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  const T* a = static_cast<const T*>(row.in[0]);
  const T* b = static_cast<const T*>(row.in[1]);
  auto* out = static_cast<uint8_t*>(row.out);
  REPRISE_INDEPENDENT
  for (int64_t i = begin; i < end; ++i) out[i] = Holds<kRow>(a[i], b[i]);
}

template <ComparisonRow kRow, class T>
HWY_ATTR void CompareSingle(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  const T* a = static_cast<const T*>(row.in[0]);
  const T b = *static_cast<const T*>(row.in[1]);
  auto* out = static_cast<uint8_t*>(row.out);
  REPRISE_INDEPENDENT
  for (int64_t i = begin; i < end; ++i) out[i] = Holds<kRow>(a[i], b);
}

template <ComparisonRow kRow>
ElementRow RowOf(DType type) {
  ElementRow row;
  switch (type) {
    case DType::kFloat: row = ElementRow::Of(type, Compare<kRow, float>, CompareSingle<kRow, float>); break;
    case DType::kInt32: row = ElementRow::Of(type, Compare<kRow, int32_t>, CompareSingle<kRow, int32_t>); break;
    case DType::kInt64: row = ElementRow::Of(type, Compare<kRow, int64_t>, CompareSingle<kRow, int64_t>); break;
    default: return row;
  }
  row.out = DType::kBool;
  return row;
}

ElementRow FindComparisonRowTarget(ComparisonRow row, DType type) {
  switch (row) {
    case ComparisonRow::kEq: return RowOf<ComparisonRow::kEq>(type);
    case ComparisonRow::kNe: return RowOf<ComparisonRow::kNe>(type);
    case ComparisonRow::kLt: return RowOf<ComparisonRow::kLt>(type);
    case ComparisonRow::kLe: return RowOf<ComparisonRow::kLe>(type);
    case ComparisonRow::kGt: return RowOf<ComparisonRow::kGt>(type);
    case ComparisonRow::kGe: return RowOf<ComparisonRow::kGe>(type);
  }
  return {};
}

template <class T>
HWY_ATTR void Where(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const RowArgs*>(args);
  const auto* condition = static_cast<const uint8_t*>(row.in[0]);
  const T* a = static_cast<const T*>(row.in[1]);
  const T* b = static_cast<const T*>(row.in[2]);
  T* out = static_cast<T*>(row.out);
  REPRISE_INDEPENDENT
  for (int64_t i = begin; i < end; ++i) {
    const T x = a[i];
    const T y = b[i];
    out[i] = condition[i] != 0 ? x : y;
  }
}

RowFn FindWhereRowTarget(int64_t item_bytes) {
  switch (item_bytes) {
    case 1: return Where<uint8_t>;
    case 2: return Where<uint16_t>;
    case 4: return Where<uint32_t>;
    case 8: return Where<uint64_t>;
    default: return nullptr;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(FindComparisonRowTarget);
HWY_EXPORT(FindWhereRowTarget);

ElementRow FindComparisonRow(ComparisonRow row, DType type) {
  return HWY_DYNAMIC_DISPATCH(FindComparisonRowTarget)(row, type);
}

RowFn FindWhereRow(int64_t item_bytes) { return HWY_DYNAMIC_DISPATCH(FindWhereRowTarget)(item_bytes); }

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
