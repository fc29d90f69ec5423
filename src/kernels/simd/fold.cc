// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/fold.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/fold.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;

constexpr size_t kLanes = 16;  // kSumLanes

template <SumOf what>
HWY_INLINE HWY_ATTR FloatVec Term(FloatVec x, FloatVec shift) {
  if constexpr (what == SumOf::kMagnitude) return hn::Abs(x);
  if constexpr (what == SumOf::kSquare) return hn::Mul(x, x);
  if constexpr (what == SumOf::kSquaredDeviation) {
    const FloatVec d = hn::Sub(x, shift);
    return hn::Mul(d, d);
  }
  return x;
}

// The sum of 16 lanes in as many vectors as that takes, pairwise.
template <size_t kVectors>
HWY_INLINE HWY_ATTR float FoldVectors(FloatVec (&sums)[kVectors]) {
  for (size_t width = kVectors / 2; width > 0; width /= 2) {
    for (size_t v = 0; v < width; ++v) sums[v] = hn::Add(sums[v], sums[v + width]);
  }
  return FoldLanes(FloatTag(), sums[0], AddLanes());
}

// The 16 lanes lie in 1, 2 or 4 vectors.
template <SumOf what>
HWY_ATTR void SumBlock(const void* data, int64_t count, const void* shift_at, void* out) {
  const FloatTag d;
  constexpr size_t kWidth = hn::MaxLanes(d);
  constexpr size_t kVectors = kLanes / kWidth;
  const auto* x = static_cast<const float*>(data);
  const auto n = static_cast<size_t>(count);
  const float shift_value = what == SumOf::kSquaredDeviation ? *static_cast<const float*>(shift_at) : 0.0f;
  const FloatVec shift = hn::Set(d, shift_value);
  FloatVec sums[kVectors];
  for (FloatVec& sum : sums) sum = hn::Zero(d);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t v = 0; v < kVectors; ++v) {
      sums[v] = hn::Add(sums[v], Term<what>(hn::LoadU(d, x + i + v * kWidth), shift));
    }
  }
  if (i != n) {  // the missing elements give the term 0
    HWY_ALIGN float tail[kLanes];
    for (float& value : tail) value = shift_value;
    for (size_t j = 0; i + j < n; ++j) tail[j] = x[i + j];
    for (size_t v = 0; v < kVectors; ++v) {
      sums[v] = hn::Add(sums[v], Term<what>(hn::Load(d, tail + v * kWidth), shift));
    }
  }
  *static_cast<float*>(out) = FoldVectors(sums);
}

// Sums of kBlocks blocks of 512: as SumBlock gives them one by one, but so many chains of additions run at a time.
template <SumOf what, size_t kBlocks>
HWY_ATTR void SumBlocks(const void* data, const void* shift_at, void* out) {
  const FloatTag d;
  constexpr size_t kWidth = hn::MaxLanes(d);
  constexpr size_t kVectors = kLanes / kWidth;
  constexpr size_t kBlock = 512;
  const auto* x = static_cast<const float*>(data);
  const FloatVec shift = hn::Set(d, what == SumOf::kSquaredDeviation ? *static_cast<const float*>(shift_at) : 0.0f);
  FloatVec sums[kBlocks][kVectors];
  for (auto& block : sums) {
    for (FloatVec& sum : block) sum = hn::Zero(d);
  }
  for (size_t i = 0; i < kBlock; i += kLanes) {
    for (size_t b = 0; b < kBlocks; ++b) {
      for (size_t v = 0; v < kVectors; ++v) {
        sums[b][v] = hn::Add(sums[b][v], Term<what>(hn::LoadU(d, x + b * kBlock + i + v * kWidth), shift));
      }
    }
  }
  for (size_t b = 0; b < kBlocks; ++b) static_cast<float*>(out)[b] = FoldVectors(sums[b]);
}

// NaN in `x` or `acc` stays: comparisons with it are false, and the selection then takes the operand that is one.
template <bool is_max, class Vec>
HWY_INLINE HWY_ATTR Vec Extreme(Vec acc, Vec x) {
  const auto better = is_max ? hn::Gt(x, acc) : hn::Lt(x, acc);
  return hn::IfThenElse(hn::Or(better, hn::IsNaN(x)), x, acc);
}

template <bool is_max>
struct ExtremeLanes {
  template <class Vec>
  HWY_INLINE HWY_ATTR Vec operator()(Vec a, Vec b) const {
    return Extreme<is_max>(a, b);
  }
};

template <bool is_max>
HWY_ATTR void ExtremeBlock(const void* data, int64_t count, const void*, void* out) {
  const FloatTag d;
  constexpr size_t kWidth = hn::MaxLanes(d);
  constexpr size_t kVectors = 4;
  const auto* x = static_cast<const float*>(data);
  const auto n = static_cast<size_t>(count);
  const float worst = is_max ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  FloatVec best[kVectors];
  for (FloatVec& b : best) b = hn::Set(d, worst);
  // A NaN that meets the vectors is found apart; what they hold then does not matter.
  auto nan = hn::IsNaN(hn::Zero(d));
  size_t i = 0;
  for (; i + kVectors * kWidth <= n; i += kVectors * kWidth) {
    for (size_t v = 0; v < kVectors; ++v) {
      const FloatVec in = hn::LoadU(d, x + i + v * kWidth);
      best[v] = is_max ? hn::Max(best[v], in) : hn::Min(best[v], in);
      nan = hn::Or(nan, hn::IsNaN(in));
    }
  }
  if (!hn::AllFalse(d, nan)) {
    *static_cast<float*>(out) = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  for (; i + kWidth <= n; i += kWidth) best[0] = Extreme<is_max>(best[0], hn::LoadU(d, x + i));
  best[0] = Extreme<is_max>(Extreme<is_max>(best[0], best[1]), Extreme<is_max>(best[2], best[3]));
  float result = FoldLanes(d, best[0], ExtremeLanes<is_max>());
  const auto take = [&result](float value) {
    if ((is_max ? value > result : value < result) || value != value) result = value;
  };
  for (; i < n; ++i) take(x[i]);
  *static_cast<float*>(out) = result;
}

template <class Fn>
HWY_INLINE HWY_ATTR void FoldRow(void* acc_at, const void* data, int64_t count, Fn fn) {
  const FloatTag d;
  const size_t width = hn::Lanes(d);
  auto* acc = static_cast<float*>(acc_at);
  const auto* x = static_cast<const float*>(data);
  const auto n = static_cast<size_t>(count);
  size_t i = 0;
  for (; i + 2 * width <= n; i += 2 * width) {
    const FloatVec first = fn(hn::LoadU(d, acc + i), hn::LoadU(d, x + i));
    const FloatVec second = fn(hn::LoadU(d, acc + i + width), hn::LoadU(d, x + i + width));
    hn::StoreU(first, d, acc + i);
    hn::StoreU(second, d, acc + i + width);
  }
  if (i + width <= n) {
    hn::StoreU(fn(hn::LoadU(d, acc + i), hn::LoadU(d, x + i)), d, acc + i);
    i += width;
  }
  if (i == n) return;
  HWY_ALIGN float acc_tail[kLanes] = {};
  HWY_ALIGN float x_tail[kLanes] = {};
  for (size_t j = 0; i + j < n; ++j) acc_tail[j] = acc[i + j];
  for (size_t j = 0; i + j < n; ++j) x_tail[j] = x[i + j];
  hn::Store(fn(hn::Load(d, acc_tail), hn::Load(d, x_tail)), d, acc_tail);
  for (size_t j = 0; i + j < n; ++j) acc[i + j] = acc_tail[j];
}

HWY_ATTR void AddRow(void* acc, const void* x, int64_t n) {
  FoldRow(acc, x, n, [](FloatVec a, FloatVec b) HWY_ATTR { return hn::Add(a, b); });
}
template <bool is_max>
HWY_ATTR void ExtremeRow(void* acc, const void* x, int64_t n) {
  FoldRow(acc, x, n, [](FloatVec a, FloatVec b) HWY_ATTR { return Extreme<is_max>(a, b); });
}

// Each lane of the columns has a register.
HWY_INLINE HWY_ATTR void AddVectorOfColumns(const char* rows, int64_t step, int64_t count, float* out) {
  constexpr int64_t kAhead = 16;  // rows: their lines lie apart
  constexpr auto kRows = static_cast<int64_t>(kLanes);
  const FloatTag d;
  FloatVec sums[kLanes];
  for (FloatVec& sum : sums) sum = hn::Zero(d);
  const auto add = [&](size_t lane) HWY_ATTR {
    sums[lane] = hn::Add(sums[lane], hn::LoadU(d, reinterpret_cast<const float*>(rows)));
    rows += step;
  };
  int64_t i = 0;
  for (; i + kRows <= count; i += kRows) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      __builtin_prefetch(rows + kAhead * step);
      add(lane);
    }
  }
  for (size_t lane = 0; i + static_cast<int64_t>(lane) < count; ++lane) add(lane);
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane) sums[lane] = hn::Add(sums[lane], sums[lane + width]);
  }
  hn::StoreU(sums[0], d, out);
}

// The last vector begins where it ends with the columns.
HWY_ATTR void AddColumns(const void* rows, int64_t step, int64_t count, int64_t columns, void* out) {
  const auto width = static_cast<int64_t>(hn::Lanes(FloatTag()));
  for (int64_t j = 0; j < columns; j += width) {
    const int64_t at = std::min(j, columns - width);
    AddVectorOfColumns(static_cast<const char*>(rows) + at * static_cast<int64_t>(sizeof(float)), step, count,
                       static_cast<float*>(out) + at);
  }
}

BlockFn FindSumBlockTarget(SumOf what) {
  switch (what) {
    case SumOf::kValue: return SumBlock<SumOf::kValue>;
    case SumOf::kMagnitude: return SumBlock<SumOf::kMagnitude>;
    case SumOf::kSquare: return SumBlock<SumOf::kSquare>;
    case SumOf::kSquaredDeviation: return SumBlock<SumOf::kSquaredDeviation>;
  }
  return nullptr;
}
template <size_t kBlocks>
BlocksFn FindBlocks(SumOf what) {
  switch (what) {
    case SumOf::kValue: return SumBlocks<SumOf::kValue, kBlocks>;
    case SumOf::kMagnitude: return SumBlocks<SumOf::kMagnitude, kBlocks>;
    case SumOf::kSquare: return SumBlocks<SumOf::kSquare, kBlocks>;
    case SumOf::kSquaredDeviation: return SumBlocks<SumOf::kSquaredDeviation, kBlocks>;
  }
  return nullptr;
}
BlocksFn FindSumBlocksTarget(SumOf what, int blocks) { return blocks == 2 ? FindBlocks<2>(what) : FindBlocks<4>(what); }
BlockFn FindExtremeBlockTarget(bool is_max) { return is_max ? ExtremeBlock<true> : ExtremeBlock<false>; }
RowFoldFn FindAddRowTarget() { return AddRow; }
ColumnsFn FindAddColumnsTarget() { return AddColumns; }
RowFoldFn FindExtremeRowTarget(bool is_max) { return is_max ? ExtremeRow<true> : ExtremeRow<false>; }

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(FindSumBlockTarget);
HWY_EXPORT(FindSumBlocksTarget);
HWY_EXPORT(FindExtremeBlockTarget);
HWY_EXPORT(FindAddRowTarget);
HWY_EXPORT(FindExtremeRowTarget);
HWY_EXPORT(FindAddColumnsTarget);

BlockFn FindSumBlock(SumOf what) { return HWY_DYNAMIC_DISPATCH(FindSumBlockTarget)(what); }
BlocksFn FindSumBlocks(SumOf what, int blocks) { return HWY_DYNAMIC_DISPATCH(FindSumBlocksTarget)(what, blocks); }
BlockFn FindExtremeBlock(bool is_max) { return HWY_DYNAMIC_DISPATCH(FindExtremeBlockTarget)(is_max); }
ColumnsFn FindAddColumns() { return HWY_DYNAMIC_DISPATCH(FindAddColumnsTarget)(); }
RowFoldFn FindAddRow() { return HWY_DYNAMIC_DISPATCH(FindAddRowTarget)(); }
RowFoldFn FindExtremeRow(bool is_max) { return HWY_DYNAMIC_DISPATCH(FindExtremeRowTarget)(is_max); }

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
