// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/low_bits.h"

#include <algorithm>
#include <cstring>

#define REPRISE_FEW_TARGETS
#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/low_bits.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/widen-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<Floats>;

constexpr int64_t kMostLanes = 16;

int64_t LanesOf() { return static_cast<int64_t>(hn::Lanes(Floats())); }

struct Pair {
  FloatVec first;
  FloatVec second;
};

// The halves of bytes as numbers: the lower ones, the upper ones.
HWY_INLINE HWY_ATTR Pair Halves(Floats d, const uint8_t* from) {
  const hn::Rebind<uint8_t, Floats> bytes;
#if HWY_TARGET == HWY_AVX3
  const hn::Rebind<int32_t, Floats> words;
  alignas(64) static constexpr float kNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
  const auto table = hn::Load(d, kNumbers);
  const auto both = hn::PromoteTo(words, hn::LoadU(bytes, from));
  return {hn::TableLookupLanes(table, hn::IndicesFromVec(d, hn::And(both, hn::Set(words, 15)))),
          hn::TableLookupLanes(table, hn::IndicesFromVec(d, hn::ShiftRight<4>(both)))};
#else
  // To the top and back, which extends the sign.
  const hn::Rebind<int32_t, Floats> words;
  const auto both = hn::PromoteTo(words, hn::LoadU(bytes, from));
  return {hn::ConvertTo(d, hn::ShiftRight<28>(hn::ShiftLeft<28>(both))),
          hn::ConvertTo(d, hn::ShiftRight<28>(hn::ShiftLeft<24>(both)))};
#endif
}

// The next 2 * lanes numbers of a line; packed: those at even places, those at odd ones.
template <bool kPacked>
HWY_INLINE HWY_ATTR Pair Numbers(Floats d, const uint8_t* from) {
  if constexpr (kPacked) {
    return Halves(d, from);
  } else {
    const auto* const numbers = reinterpret_cast<const int8_t*>(from);
    return {Widen(d, numbers), Widen(d, numbers + hn::Lanes(d))};
  }
}

template <bool kPacked>
constexpr int64_t BytesOf(int64_t numbers) {
  return kPacked ? (numbers + 1) / 2 : numbers;
}

// The last numbers of a line, zeros behind them.
template <bool kPacked>
struct Rest {
  alignas(64) uint8_t bytes[2 * kMostLanes] = {};

  HWY_INLINE Rest(const uint8_t* from, int64_t n) {
    n &= 2 * kMostLanes - 1;  // which it is below
    std::memcpy(bytes, from, static_cast<size_t>(BytesOf<kPacked>(n)));
    if (kPacked && n % 2 != 0) bytes[n / 2] &= 15;
  }
};

// ---- By columns ----

HWY_INLINE HWY_ATTR void AddProducts(Floats d, const float* x, const Pair& w, FloatVec& sum) {
  sum = hn::MulAdd(hn::LoadU(d, x), w.first, sum);
  sum = hn::MulAdd(hn::LoadU(d, x + hn::Lanes(d)), w.second, sum);
}

// The last n numbers of a group, with the offset; zeros behind them.
template <bool kPacked, bool kHasOffset>
HWY_INLINE HWY_ATTR Pair LastNumbers(Floats d, const uint8_t* from, int64_t n, float offset) {
  const Pair w = Numbers<kPacked>(d, Rest<kPacked>(from, n).bytes);
  if constexpr (!kHasOffset) return w;
  const auto shift = hn::Set(d, offset);
  const auto rest = static_cast<size_t>(n);
  const size_t first = kPacked ? (rest + 1) / 2 : std::min(rest, hn::Lanes(d));
  return {hn::IfThenElseZero(hn::FirstN(d, first), hn::Add(w.first, shift)),
          hn::IfThenElseZero(hn::FirstN(d, rest - first), hn::Add(w.second, shift))};
}

constexpr int64_t kLine = 64;  // of a cache
constexpr int64_t kColumnsAhead = 8 * 2048;

// Lines from the weight's line at `from` on, `bytes` of each, asked for one after the other: in the order of memory,
// whatever the order in which they are read.
class LinesAhead {
 public:
  LinesAhead(const uint8_t* from, int64_t bytes, int64_t stride)
      : next_(from), end_(from + bytes), bytes_(bytes), stride_(stride) {}

  // For so many bytes that are read meanwhile.
  HWY_INLINE void Ask(int64_t bytes) {
    for (due_ += bytes; due_ >= kLine; due_ -= kLine) {
      __builtin_prefetch(next_);
      next_ += kLine;
      if (next_ < end_) continue;
      end_ += stride_;
      next_ = end_ - bytes_;
    }
  }

 private:
  const uint8_t* next_;
  const uint8_t* end_;
  const int64_t bytes_, stride_;
  int64_t due_ = 0;
};

// kRows rows of x by kCols columns. kHasRests: groups do not divide by the numbers of a step.
template <bool kPacked, bool kHasOffset, bool kHasRests, int kRows, int kCols>
HWY_ATTR void ColumnsTile(const LowBitsColumns& block, int64_t i, int64_t j) {
  const Floats d;
  const int64_t lanes = LanesOf();
  const int64_t step = 2 * lanes;
  const int64_t stride = block.weight.stride;
  const int64_t left_stride = block.left_stride;
  const float* a = block.left + i * left_stride;
  const uint8_t* from = block.weight.data + j * stride;
  FloatVec total[kRows][kCols];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCols; ++c) total[r][c] = hn::Zero(d);
  }
  const float* scale = block.scale + j;
  const float* offset = kHasOffset ? block.offset + j : nullptr;
  LinesAhead next_columns(from + kCols * stride, BytesOf<kPacked>(block.depth), stride);
  for (int64_t begin = 0; begin < block.depth; begin += block.group) {
    const int64_t n = std::min(block.group, block.depth - begin);
    if constexpr (kHasRests) from = block.weight.data + j * stride + (kPacked ? begin / 2 : begin);
    FloatVec sum[kRows][kCols];
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kCols; ++c) sum[r][c] = hn::Zero(d);
    }
    int64_t k = 0;
    for (; k + step <= n; k += step) {
      if constexpr (kRows == 1) next_columns.Ask(kCols * BytesOf<kPacked>(step));
      for (int c = 0; c < kCols; ++c) {
        Pair w = Numbers<kPacked>(d, from + c * stride);
        if constexpr (kHasOffset) {
          const auto shift = hn::Set(d, offset[c]);
          w = {hn::Add(w.first, shift), hn::Add(w.second, shift)};
        }
        for (int r = 0; r < kRows; ++r) AddProducts(d, a + r * left_stride, w, sum[r][c]);
      }
      a += step;
      from += BytesOf<kPacked>(step);
    }
    if (kHasRests && k < n) {
      for (int c = 0; c < kCols; ++c) {
        const Pair w = LastNumbers<kPacked, kHasOffset>(d, from + c * stride, n - k, kHasOffset ? offset[c] : 0);
        for (int r = 0; r < kRows; ++r) AddProducts(d, a + r * left_stride, w, sum[r][c]);
      }
      a += step;
    }
    for (int c = 0; c < kCols; ++c) {
      const auto factor = hn::Set(d, scale[c]);
      for (int r = 0; r < kRows; ++r) total[r][c] = hn::MulAdd(sum[r][c], factor, total[r][c]);
    }
    scale += block.group_stride;
    if constexpr (kHasOffset) offset += block.group_stride;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCols; ++c) {
      float& to = block.c[(i + r) * block.c_stride + j + c];
      const float value = hn::GetLane(hn::SumOfLanes(d, total[r][c]));
      to = block.accumulates ? to + value : value;
    }
  }
}

template <bool kPacked, bool kHasOffset, bool kHasRests, int kRows, int kCols>
HWY_ATTR void ColumnsOfRows(const LowBitsColumns& block, int64_t i) {
  int64_t j = 0;
  for (; j + kCols <= block.cols; j += kCols) ColumnsTile<kPacked, kHasOffset, kHasRests, kRows, kCols>(block, i, j);
  for (; j < block.cols; ++j) ColumnsTile<kPacked, kHasOffset, kHasRests, kRows, 1>(block, i, j);
}

template <bool kPacked, bool kHasOffset, bool kHasRests>
HWY_ATTR void ByColumns(const LowBitsColumns& block) {
  // As many sums as there are registers for.
#if HWY_TARGET == HWY_AVX3
  constexpr int kOne = 8, kTwo = 4, kFour = 2;
#else
  constexpr int kOne = 4, kTwo = 2, kFour = 1;
#endif
  int64_t i = 0;
  for (; i + 4 <= block.rows; i += 4) ColumnsOfRows<kPacked, kHasOffset, kHasRests, 4, kFour>(block, i);
  for (; i + 2 <= block.rows; i += 2) ColumnsOfRows<kPacked, kHasOffset, kHasRests, 2, kTwo>(block, i);
  if (i < block.rows) ColumnsOfRows<kPacked, kHasOffset, kHasRests, 1, kOne>(block, i);
}

template <bool kPacked, bool kHasOffset>
HWY_ATTR void ByColumns(const LowBitsColumns& block) {
  const int64_t step = 2 * LanesOf();
  if (block.depth % step == 0 && (block.group % step == 0 || block.group >= block.depth)) {
    ByColumns<kPacked, kHasOffset, false>(block);
  } else {
    ByColumns<kPacked, kHasOffset, true>(block);
  }
}

HWY_ATTR void Columns(const LowBitsColumns& block) {
  if (block.weight.is_packed) {
    block.offset == nullptr ? ByColumns<true, false>(block) : ByColumns<true, true>(block);
  } else {
    block.offset == nullptr ? ByColumns<false, false>(block) : ByColumns<false, true>(block);
  }
}

// ---- By rows ----

// kRows rows times kSteps lines, two vectors of columns. `at` gives the bytes of a line.
template <bool kPacked, bool kHasOffset, int kRows, int kSteps, class At>
HWY_INLINE HWY_ATTR void RowsTile(const LowBitsRows& block, const float* a, int64_t i, int64_t j, At at) {
  const Floats d;
  const int64_t lanes = LanesOf();
  Pair sum[kRows];
  for (int r = 0; r < kRows; ++r) sum[r] = {hn::Zero(d), hn::Zero(d)};
  for (int s = 0; s < kSteps; ++s) {
    Pair w = Numbers<kPacked>(d, at(s));
    if constexpr (kHasOffset) {
      w = {hn::Add(w.first, hn::LoadU(d, block.offset + j)), hn::Add(w.second, hn::LoadU(d, block.offset + j + lanes))};
    }
    for (int r = 0; r < kRows; ++r) {
      const auto x = hn::Set(d, a[r * block.left_stride + s]);
      sum[r] = {hn::MulAdd(x, w.first, sum[r].first), hn::MulAdd(x, w.second, sum[r].second)};
    }
  }
  const auto first = hn::LoadU(d, block.scale + j);
  const auto second = hn::LoadU(d, block.scale + j + lanes);
  for (int r = 0; r < kRows; ++r) {
    float* const to = block.c + (i + r) * block.c_stride + j;
    hn::StoreU(hn::MulAdd(sum[r].first, first, hn::LoadU(d, to)), d, to);
    hn::StoreU(hn::MulAdd(sum[r].second, second, hn::LoadU(d, to + lanes)), d, to + lanes);
  }
}

template <bool kPacked, bool kHasOffset, int kRows, int kSteps>
HWY_ATTR void RowsOfSteps(const LowBitsRows& block, int64_t i, int64_t k) {
  const int64_t step = 2 * LanesOf();
  const int64_t stride = block.weight.stride;
  const uint8_t* const from = block.weight.data + k * stride;
  const float* const a = block.left + i * block.left_stride + k;
  // Lines that are read about a microsecond later: each is too short for the processor to foresee the next.
  const uint8_t* const next = from + std::max<int64_t>(kSteps, kColumnsAhead / block.cols) * stride;
  int64_t j = 0;
  for (; j + step <= block.cols; j += step) {
    const uint8_t* const line = from + BytesOf<kPacked>(j);
    if (i == 0 && BytesOf<kPacked>(j) % kLine == 0) {
      for (int s = 0; s < kSteps; ++s) __builtin_prefetch(next + s * stride + BytesOf<kPacked>(j));
    }
    RowsTile<kPacked, kHasOffset, kRows, kSteps>(block, a, i, j, [&](int s) { return line + s * stride; });
  }
  if (j == block.cols) return;
  alignas(64) uint8_t rest[kSteps][2 * kMostLanes];
  for (int s = 0; s < kSteps; ++s) {
    const Rest<kPacked> bytes(from + s * stride + BytesOf<kPacked>(j), block.cols - j);
    std::memcpy(rest[s], bytes.bytes, sizeof bytes.bytes);
  }
  RowsTile<kPacked, kHasOffset, kRows, kSteps>(block, a, i, j, [&](int s) { return rest[s]; });
}

template <bool kPacked, bool kHasOffset, int kSteps>
HWY_ATTR void RowsOfStepsForAll(const LowBitsRows& block, int64_t k) {
  int64_t i = 0;
  for (; i + 4 <= block.rows; i += 4) RowsOfSteps<kPacked, kHasOffset, 4, kSteps>(block, i, k);
  for (; i + 2 <= block.rows; i += 2) RowsOfSteps<kPacked, kHasOffset, 2, kSteps>(block, i, k);
  if (i < block.rows) RowsOfSteps<kPacked, kHasOffset, 1, kSteps>(block, i, k);
}

template <bool kPacked, bool kHasOffset>
HWY_ATTR void ByRows(const LowBitsRows& block) {
  int64_t k = 0;
  for (; k + 8 <= block.depth; k += 8) RowsOfStepsForAll<kPacked, kHasOffset, 8>(block, k);
  for (; k + 4 <= block.depth; k += 4) RowsOfStepsForAll<kPacked, kHasOffset, 4>(block, k);
  for (; k < block.depth; ++k) RowsOfStepsForAll<kPacked, kHasOffset, 1>(block, k);
}

HWY_ATTR void Rows(const LowBitsRows& block) {
  if (block.weight.is_packed) {
    block.offset == nullptr ? ByRows<true, false>(block) : ByRows<true, true>(block);
  } else {
    block.offset == nullptr ? ByRows<false, false>(block) : ByRows<false, true>(block);
  }
}

// ---- Panels ----

// Where row `k` of columns from j on lies.
HWY_INLINE float* PanelAt(const LowBitsPanels& block, int64_t k, int64_t j) {
  const int64_t within = j % block.width;
  return block.panels + (j - within) * block.panel_depth + (block.at + k) * block.width + within;
}

HWY_INLINE HWY_ATTR Pair Scaled(Floats d, Pair w, const LowBitsPanels& block, int64_t j) {
  const int64_t lanes = LanesOf();
  if (block.offset != nullptr) {
    w = {hn::Add(w.first, hn::LoadU(d, block.offset + j)), hn::Add(w.second, hn::LoadU(d, block.offset + j + lanes))};
  }
  return {hn::Mul(w.first, hn::LoadU(d, block.scale + j)), hn::Mul(w.second, hn::LoadU(d, block.scale + j + lanes))};
}

template <bool kPacked>
HWY_ATTR void RowsToPanels(const LowBitsPanels& block) {
  const Floats d;
  const int64_t lanes = LanesOf();
  const int64_t step = 2 * lanes;
  for (int64_t k = 0; k < block.depth; ++k) {
    const uint8_t* const line = block.weight.data + k * block.weight.stride;
    const auto put = [&](int64_t j, const uint8_t* from) HWY_ATTR {
      const Pair w = Scaled(d, Numbers<kPacked>(d, from), block, j);
      float* const to = PanelAt(block, k, j);
      if constexpr (kPacked) {
        hn::StoreInterleaved2(w.first, w.second, d, to);
      } else {
        hn::StoreU(w.first, d, to);
        hn::StoreU(w.second, d, to + lanes);
      }
    };
    int64_t j = 0;
    for (; j + step <= block.cols; j += step) put(j, line + BytesOf<kPacked>(j));
    if (j < block.cols) put(j, Rest<kPacked>(line + BytesOf<kPacked>(j), block.cols - j).bytes);
  }
}

HWY_ATTR void ToPanelsOfRows(const LowBitsPanels& block) {
  block.weight.is_packed ? RowsToPanels<true>(block) : RowsToPanels<false>(block);
}

HWY_ATTR void ToPanelsOfLines(const LowBitsPanels& block) {
  if (!block.weight.is_packed) return RowsToPanels<false>(block);
  const Floats d;
  const int64_t lanes = LanesOf();
  const int64_t step = 2 * lanes;
  for (int64_t k = 0; k < block.depth; k += 2) {
    const uint8_t* const line = block.weight.data + k / 2 * block.weight.stride;
    for (int64_t j = 0; j < block.cols; j += step) {
      alignas(64) uint8_t rest[2 * kMostLanes] = {};
      const uint8_t* from = line + j;
      if (j + step > block.cols) {
        std::memcpy(rest, from, static_cast<size_t>(block.cols - j));
        from = rest;
      }
      const Pair low = Halves(d, from);
      const Pair high = Halves(d, from + lanes);
      const Pair even = Scaled(d, {low.first, high.first}, block, j);
      const Pair odd = Scaled(d, {low.second, high.second}, block, j);
      float* const to = PanelAt(block, k, j);
      hn::StoreU(even.first, d, to);
      hn::StoreU(even.second, d, to + lanes);
      if (k + 1 < block.depth) {
        hn::StoreU(odd.first, d, to + block.width);
        hn::StoreU(odd.second, d, to + block.width + lanes);
      }
    }
  }
}

// ---- Bytes ----

HWY_ATTR void BytesTurned(const uint8_t* src, int64_t src_stride, int64_t rows, int64_t cols, uint8_t* dst,
                          int64_t dst_stride) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr int kLines = 16;
  const hn::FixedTag<uint8_t, kLines> d;
  using Line = hn::Vec<decltype(d)>;
  for (; i + kLines <= rows; i += kLines) {
    int64_t j = 0;
    for (; j + kLines <= cols; j += kLines) {
      // Lines half of the block apart are interleaved: four times, and rows have become columns.
      Line lines[kLines];
      for (int l = 0; l < kLines; ++l) lines[l] = hn::LoadU(d, src + (i + l) * src_stride + j);
      for (int round = 0; round < 4; ++round) {
        Line mixed[kLines];
        for (int l = 0; l < kLines / 2; ++l) {
          mixed[2 * l] = hn::InterleaveLower(d, lines[l], lines[l + kLines / 2]);
          mixed[2 * l + 1] = hn::InterleaveUpper(d, lines[l], lines[l + kLines / 2]);
        }
        for (int l = 0; l < kLines; ++l) lines[l] = mixed[l];
      }
      for (int l = 0; l < kLines; ++l) hn::StoreU(lines[l], d, dst + (j + l) * dst_stride + i);
    }
    for (; j < cols; ++j) {
      for (int64_t l = i; l < i + kLines; ++l) dst[j * dst_stride + l] = src[l * src_stride + j];
    }
  }
#endif
  for (; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) dst[j * dst_stride + i] = src[i * src_stride + j];
  }
}

int64_t Step() { return 2 * LanesOf(); }

HWY_ATTR void Ordered([[maybe_unused]] float* line, [[maybe_unused]] int64_t n) {
#if HWY_TARGET != HWY_SCALAR  // with one lane, every number is in its place
  const Floats d;
  const int64_t lanes = LanesOf();
  for (int64_t j = 0; j < n; j += 2 * lanes) {
    const auto low = hn::LoadU(d, line + j);
    const auto high = hn::LoadU(d, line + j + lanes);
    hn::StoreU(hn::ConcatEven(d, high, low), d, line + j);
    hn::StoreU(hn::ConcatOdd(d, high, low), d, line + j + lanes);
  }
#endif
}

}  // namespace

HWY_ATTR int64_t StepTarget() { return Step(); }
HWY_ATTR void OrderTarget(float* line, int64_t n) { Ordered(line, n); }
HWY_ATTR void ColumnsTarget(const LowBitsColumns& block) { Columns(block); }
HWY_ATTR void RowsTarget(const LowBitsRows& block) { Rows(block); }
HWY_ATTR void RowsToPanelsTarget(const LowBitsPanels& block) { ToPanelsOfRows(block); }
HWY_ATTR void LinesToPanelsTarget(const LowBitsPanels& block) { ToPanelsOfLines(block); }
HWY_ATTR void TransposeBytesTarget(const uint8_t* src, int64_t src_stride, int64_t rows, int64_t cols, uint8_t* dst,
                                   int64_t dst_stride) {
  BytesTurned(src, src_stride, rows, cols, dst, dst_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(StepTarget);
HWY_EXPORT(OrderTarget);
HWY_EXPORT(ColumnsTarget);
HWY_EXPORT(RowsTarget);
HWY_EXPORT(RowsToPanelsTarget);
HWY_EXPORT(LinesToPanelsTarget);
HWY_EXPORT(TransposeBytesTarget);

int64_t LowBitsStep() { return HWY_DYNAMIC_DISPATCH(StepTarget)(); }

int64_t SpreadLength(int64_t depth, int64_t group) {
  const int64_t step = LowBitsStep();
  const auto padded = [step](int64_t n) { return (n + step - 1) / step * step; };
  return depth / group * padded(group) + padded(depth % group);
}

void SpreadRow(const float* row, int64_t depth, int64_t group, bool is_packed, float* to) {
  const int64_t step = LowBitsStep();
  for (int64_t begin = 0; begin < depth; begin += group) {
    const int64_t n = std::min(group, depth - begin);
    const int64_t padded = (n + step - 1) / step * step;
    std::copy_n(row + begin, n, to);
    std::fill(to + n, to + padded, 0.0F);
    OrderLine(to, padded, is_packed);
    to += padded;
  }
}

void OrderLine(float* line, int64_t n, bool is_packed) {
  if (is_packed) HWY_DYNAMIC_DISPATCH(OrderTarget)(line, n);
}

void RestoreLine(float* line, int64_t n, bool is_packed) {
  if (!is_packed) return;
  const int64_t step = LowBitsStep();
  float block[32];
  for (int64_t j = 0; j < n; j += step) {
    std::copy_n(line + j, step, block);
    for (int64_t l = 0; l < step / 2; ++l) {
      line[j + 2 * l] = block[l];
      line[j + 2 * l + 1] = block[step / 2 + l];
    }
  }
}

void MultiplyLowBitsByColumns(const LowBitsColumns& block) { HWY_DYNAMIC_DISPATCH(ColumnsTarget)(block); }
void MultiplyLowBitsByRows(const LowBitsRows& block) { HWY_DYNAMIC_DISPATCH(RowsTarget)(block); }
void LowBitsRowsToPanels(const LowBitsPanels& block) { HWY_DYNAMIC_DISPATCH(RowsToPanelsTarget)(block); }
void LowBitsLinesToPanels(const LowBitsPanels& block) { HWY_DYNAMIC_DISPATCH(LinesToPanelsTarget)(block); }

void TransposeBytes(const uint8_t* src, int64_t src_stride, int64_t rows, int64_t cols, uint8_t* dst,
                    int64_t dst_stride) {
  HWY_DYNAMIC_DISPATCH(TransposeBytesTarget)(src, src_stride, rows, cols, dst, dst_stride);
}

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
