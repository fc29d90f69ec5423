// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/int8_dot.h"

#include <algorithm>
#include <cstring>
#include <new>

#define REPRISE_DOT_TARGETS
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/int8_dot.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/fold_lanes-inl.h"

// Highway's AVX3_DL asks for this instruction of the processor, but not of the compiler.
#undef REPRISE_DOT_TARGET
#if HWY_TARGET == HWY_AVX3_DL
#define REPRISE_DOT_TARGET HWY_TARGET_STR ",avx512vnni"
#else
#define REPRISE_DOT_TARGET HWY_TARGET_STR
#endif
HWY_PUSH_ATTRIBUTES(REPRISE_DOT_TARGET);
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Words: what a number of a prepared row is. Sum: a vector of partial sums. Dot adds the products of one step.
#if HWY_TARGET == HWY_AVX3_DL
// The instruction multiplies unsigned bytes by signed ones: rows are 128 too large, which Correction takes back.
using Word = uint8_t;
constexpr Word kZero = 128;
constexpr int64_t kStep = 64;
using Sums = hn::FixedTag<int32_t, 16>;
using Sum = hn::Vec<Sums>;
using Row = __m512i;
HWY_INLINE HWY_ATTR Row LoadRow(const Word* from) { return _mm512_load_si512(from); }
HWY_INLINE HWY_ATTR Row LoadColumn(const int8_t* from) { return _mm512_loadu_si512(from); }
HWY_INLINE HWY_ATTR Sum Dot(Sum sum, Row row, Row column) { return Sum{_mm512_dpbusd_epi32(sum.raw, row, column)}; }
#elif HWY_TARGET == HWY_SCALAR
using Word = int16_t;
constexpr Word kZero = 0;
constexpr int64_t kStep = 1;
using Sums = hn::Sisd<int32_t>;
using Sum = hn::Vec<Sums>;
using Row = int32_t;
HWY_INLINE Row LoadRow(const Word* from) { return *from; }
HWY_INLINE Row LoadColumn(const int8_t* from) { return *from; }
HWY_INLINE Sum Dot(Sum sum, Row row, Row column) { return hn::Add(sum, hn::Set(Sums(), row * column)); }
#else
using Word = int16_t;
constexpr Word kZero = 0;
using Words = hn::CappedTag<int16_t, 32>;
using Sums = hn::RepartitionToWide<Words>;
using Sum = hn::Vec<Sums>;
using Row = hn::Vec<Words>;
constexpr int64_t kStep = static_cast<int64_t>(hn::MaxLanes(Words()));
HWY_INLINE HWY_ATTR Row LoadRow(const Word* from) { return hn::Load(Words(), from); }
HWY_INLINE HWY_ATTR Row LoadColumn(const int8_t* from) {
  return hn::PromoteTo(Words(), hn::LoadU(hn::Rebind<int8_t, Words>(), from));
}
HWY_INLINE HWY_ATTR Sum Dot(Sum sum, Row row, Row column) {
  Sum rest = hn::Zero(Sums());
  const Sum added = hn::ReorderWidenMulAccumulate(Sums(), row, column, sum, rest);
  return hn::Add(added, rest);
}
#endif

constexpr int kCols = 4;

// Four columns: so many numbers are read where they lie, then those in `rest`, which has zeros behind them. A column
// that is not there is another one, whose sums are not stored.
struct Columns {
  const int8_t* at[kCols];
  int64_t count, whole;
  bool has_rest;
  alignas(64) int8_t rest[kCols][64];
  int32_t bias[kCols];  // added to each sum

  HWY_INLINE HWY_ATTR Columns(const int8_t* right, int64_t stride, int64_t cols, int64_t depth)
      : count(cols), whole(depth / kStep * kStep), has_rest(whole != depth) {
    for (int64_t s = 0; s < kCols; ++s) at[s] = right + std::min(s, cols - 1) * stride;
    if (has_rest) {
      std::memset(rest, 0, sizeof rest);
      for (int s = 0; s < kCols; ++s) std::memcpy(rest[s], at[s] + whole, static_cast<size_t>((depth - whole) & 63));
    }
    std::fill_n(bias, kCols, 0);
    TakeBackZero();
  }

 private:
  // kZero, which each number of a row is too large.
  HWY_INLINE HWY_ATTR void TakeBackZero() {
#if HWY_TARGET == HWY_AVX3_DL
    const Row ones = _mm512_set1_epi8(1);
    Sum sum[kCols];
    for (auto& each : sum) each = hn::Zero(Sums());
    for (int64_t k = 0; k < whole; k += kStep) {
      for (int s = 0; s < kCols; ++s) sum[s] = Dot(sum[s], ones, LoadColumn(at[s] + k));
    }
    for (int s = 0; s < kCols && has_rest; ++s) sum[s] = Dot(sum[s], ones, LoadColumn(rest[s]));
    FoldFour(Sums(), sum, bias);
    for (int32_t& each : bias) each = static_cast<int32_t>(0U - kZero * static_cast<uint32_t>(each));
#endif
  }
};

// kRows rows, `stride` words apart, times four columns.
template <int kRows>
HWY_ATTR void Tile(const Word* left, int64_t stride, const Columns& columns, int32_t* c, int64_t c_stride,
                   bool accumulates) {
  Sum sum[kRows][kCols];
  for (int r = 0; r < kRows; ++r) {
    for (int s = 0; s < kCols; ++s) sum[r][s] = hn::Zero(Sums());
  }
  const int8_t* const at[kCols] = {columns.at[0], columns.at[1], columns.at[2], columns.at[3]};
  const int64_t whole = columns.whole;
  for (int64_t k = 0; k < whole; k += kStep) {
    Row row[kRows];
    for (int r = 0; r < kRows; ++r) row[r] = LoadRow(left + r * stride + k);
    for (int s = 0; s < kCols; ++s) {
      const Row column = LoadColumn(at[s] + k);
      for (int r = 0; r < kRows; ++r) sum[r][s] = Dot(sum[r][s], row[r], column);
    }
  }
  if (columns.has_rest) {
    for (int s = 0; s < kCols; ++s) {
      const Row column = LoadColumn(columns.rest[s]);
      for (int r = 0; r < kRows; ++r) sum[r][s] = Dot(sum[r][s], LoadRow(left + r * stride + whole), column);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    int32_t totals[kCols];
    FoldFour(Sums(), sum[r], totals);
    for (int64_t s = 0; s < columns.count; ++s) {
      int32_t& to = c[r * c_stride + s];
      const uint32_t total = static_cast<uint32_t>(totals[s]) + static_cast<uint32_t>(columns.bias[s]);
      to = static_cast<int32_t>(accumulates ? static_cast<uint32_t>(to) + total : total);
    }
  }
}

}  // namespace

HWY_ATTR int64_t RowBytesTarget(int64_t depth) {
  const int64_t step = std::max<int64_t>(kStep, 64 / static_cast<int64_t>(sizeof(Word)));
  return (depth + step - 1) / step * step * static_cast<int64_t>(sizeof(Word));
}

HWY_ATTR void PrepareRowTarget(const int8_t* row, int64_t depth, void* to) {
  auto* const words = static_cast<Word*>(to);
  for (int64_t k = 0; k < depth; ++k) words[k] = static_cast<Word>(row[k] + kZero);
  const int64_t end = RowBytesTarget(depth) / static_cast<int64_t>(sizeof(Word));
  std::fill(words + depth, words + end, kZero);
}

HWY_ATTR void MultiplyTarget(const Int8Block& block) {
  // Columns that the first-level cache keeps for all rows.
  constexpr int64_t kStripe = 32;
  const int64_t stride = block.left_stride / static_cast<int64_t>(sizeof(Word));
  for (int64_t j = 0; j < block.cols; j += kStripe) {
    const int64_t end = std::min(block.cols, j + kStripe);
    alignas(Columns) unsigned char memory[kStripe / kCols * sizeof(Columns)];
    auto* const columns = reinterpret_cast<Columns*>(memory);
    int64_t count = 0;
    for (int64_t s = j; s < end; s += kCols) {
      new (columns + count++) Columns(block.right + s * block.right_stride, block.right_stride,
                                      std::min<int64_t>(kCols, end - s), block.depth);
    }
    int64_t i = 0;
    const auto rows = [&](auto tile, int64_t step) HWY_ATTR {
      for (; i + step <= block.rows; i += step) {
        for (int64_t s = 0; s < count; ++s) {
          tile(static_cast<const Word*>(block.left) + i * stride, stride, columns[s],
               block.c + i * block.c_stride + j + s * kCols, block.c_stride, block.accumulates);
        }
      }
    };
#if HWY_TARGET == HWY_AVX3_DL
    rows(Tile<4>, 4);
#endif
    rows(Tile<2>, 2);
    rows(Tile<1>, 1);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(RowBytesTarget);
HWY_EXPORT(PrepareRowTarget);
HWY_EXPORT(MultiplyTarget);

int64_t Int8RowBytes(int64_t depth) { return HWY_DYNAMIC_DISPATCH(RowBytesTarget)(depth); }
void PrepareInt8Row(const int8_t* row, int64_t depth, void* to) {
  HWY_DYNAMIC_DISPATCH(PrepareRowTarget)(row, depth, to);
}
void MultiplyInt8(const Int8Block& block) { HWY_DYNAMIC_DISPATCH(MultiplyTarget)(block); }

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
