// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/bfloat16_tile.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/simd/bfloat16_instructions.h"
#include "kernels/simd/words.h"

namespace reprise::kernels::simd {

#if defined(__x86_64__)
namespace {

constexpr int kLanes = 16;
constexpr int kVectors = 2;                     // of a panel
constexpr int kMostRows = 12;                   // 24 registers hold sums
constexpr int64_t kStep = 2 * kPairPanelWidth;  // elements of a pair of rows of a panel
constexpr int64_t kStepBytes = 2 * kStep;
// Memory that a tile asks for: at each step of the depth as many bytes as its panels have there.
struct Ahead {
  const char* data = nullptr;  // null: nothing
  int64_t step = 0;            // bytes
  int64_t steps = INT64_MAX;   // until the end of a row,
  int64_t jump = 0;            // and from there to the next one
};

// What will be read next, in the order of memory: the first tile of each panel asks for its share of the rows.
class Prefetcher {
 public:
  // `row_bytes`: of a row of a panel
  Prefetcher(const NextRead* next, int64_t depth, int64_t row_bytes) : depth_(depth), row_bytes_(row_bytes) {
    if (next == nullptr) return;
    next_ = *next;
    row_bytes_ /= next_.share;
  }
  // For the first tile of `count` panels from `panel` on.
  Ahead OfPanels(int64_t panel, int64_t count) const {
    if (next_.data == nullptr) return {};
    if (next_.rows == 1) return {next_.data + panel * depth_ * row_bytes_, count * row_bytes_};
    const int64_t step = count * row_bytes_;
    const int64_t steps = (next_.row_bytes + step - 1) / step;
    const int64_t row = panel * depth_ * row_bytes_ / next_.row_bytes;
    return {next_.data + row * next_.row_stride, step, steps, next_.row_stride - steps * step};
  }

 private:
  NextRead next_;
  int64_t depth_;
  int64_t row_bytes_;
};

// What tiles of kRows rows times kPanels panels read, of both operands a pair in depth after the other. kIsPlain: they
// are multiplied by fused multiply-adds of float32.
template <int kRows, int kPanels, bool kIsPlain>
class Reader {
 public:
  using Sums = __m512[kRows][kPanels][kVectors];

  REPRISE_PAIRS inline Reader(LeftRows<BFloat16> left, const BFloat16* right, int64_t panel_steps, const Ahead& next)
      : row_stride_(left.row_stride), right_(right), panel_stride_(panel_steps * kStep), next_(next) {
#pragma GCC unroll 4
    for (int g = 0; g < kBases; ++g) base_[g] = left.data + 3 * g * left.row_stride;
    if (next_.data == nullptr) next_.data = reinterpret_cast<const char*>(right);  // which is there
    row_steps_ = next_.steps;
  }

  // sum = the products of so many pairs.
  REPRISE_PAIRS inline void Multiply(int64_t steps, Sums& sum) {
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) sum[i][p][0] = sum[i][p][1] = _mm512_setzero_ps();
    }
    for (int64_t s = 0; s < steps; ++s) {
      Prefetch();
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        __m512i columns[kVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) columns[v] = _mm512_loadu_si512(right_ + p * panel_stride_ + v * 2 * kLanes);
#pragma GCC unroll 12
        for (int i = 0; i < kRows; ++i) {
          int word = 0;
          std::memcpy(&word, base_[i / 3] + i % 3 * row_stride_, sizeof word);
          const __m512i pair = _mm512_set1_epi32(word);
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) sum[i][p][v] = AddProducts(sum[i][p][v], pair, columns[v]);
        }
      }
#pragma GCC unroll 4
      for (int g = 0; g < kBases; ++g) base_[g] += 2;
      right_ += kStep;
    }
  }

 private:
  static constexpr int kBases = (kRows + 2) / 3;  // one for each three rows, so that addresses fit in registers

  REPRISE_PAIRS static inline __m512 AddProducts(__m512 sum, __m512i x, __m512i w) {
    if constexpr (!kIsPlain) return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x);
    return _mm512_fmadd_ps(Even(x), Even(w), _mm512_fmadd_ps(Odd(x), Odd(w), sum));
  }

  REPRISE_PAIRS inline void Prefetch() {
#pragma GCC unroll 8
    for (int l = 0; l < 2 * kPanels; ++l) __builtin_prefetch(next_.data + l * 64, 0, 2);
    next_.data += next_.step;
    if (--row_steps_ == 0) {
      next_.data += next_.jump;
      row_steps_ = next_.steps;
    }
  }

  const BFloat16* base_[kBases];
  int64_t row_stride_;
  const BFloat16* right_;
  int64_t panel_stride_;
  Ahead next_;
  int64_t row_steps_;
};

// Where the sums of a tile go.
struct Target {
  float* c;
  int64_t stride;
  bool accumulates;
};

// kRows rows times kPanels panels of c stay in registers over the whole depth, `steps` pairs.
template <int kRows, int kPanels, bool kIsPlain>
REPRISE_PAIRS void Tile(LeftRows<BFloat16> left, const BFloat16* right, int64_t steps, const Target& target,
                        const Ahead& next) {
  Reader<kRows, kPanels, kIsPlain> reader(left, right, steps, next);
  typename Reader<kRows, kPanels, kIsPlain>::Sums sum;
  reader.Multiply(steps, sum);
  float* c = target.c;
#pragma GCC unroll 12
  for (int i = 0; i < kRows; ++i, c += target.stride) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        float* const to = c + (p * kVectors + v) * kLanes;
        if (target.accumulates) sum[i][p][v] = _mm512_add_ps(_mm512_loadu_ps(to), sum[i][p][v]);
        _mm512_storeu_ps(to, sum[i][p][v]);
      }
    }
  }
}

// The same of one panel whose groups have scales of their own.
template <int kRows, bool kIsPlain>
REPRISE_PAIRS void ScaledTile(LeftRows<BFloat16> left, const BFloat16* right, int64_t steps, const Target& target,
                              const PairGroups& groups, const Ahead& next) {
  Reader<kRows, 1, kIsPlain> reader(left, right, steps, next);
  __m512 total[kRows][kVectors];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const float* const from = target.c + i * target.stride + v * kLanes;
      total[i][v] = target.accumulates ? _mm512_loadu_ps(from) : _mm512_setzero_ps();
    }
  }
  for (int64_t g = 0; g < groups.count; ++g) {
    typename Reader<kRows, 1, kIsPlain>::Sums sum;
    reader.Multiply(groups.steps[g], sum);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const __m512 scale = _mm512_loadu_ps(groups.scale + g * groups.stride + v * kLanes);
      if (groups.offset != nullptr) {
        const __m512 offset = _mm512_loadu_ps(groups.offset + g * groups.stride + v * kLanes);
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i) {
          const __m512 left_sum = _mm512_set1_ps(groups.left_sums[g * groups.left_stride + i]);
          sum[i][0][v] = _mm512_fmadd_ps(offset, left_sum, sum[i][0][v]);
        }
      }
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) total[i][v] = _mm512_fmadd_ps(sum[i][0][v], scale, total[i][v]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(target.c + i * target.stride + v * kLanes, total[i][v]);
  }
}

using TileFn = void (*)(LeftRows<BFloat16> left, const BFloat16* right, int64_t steps, const Target& target,
                        const Ahead& next);
using ScaledTileFn = void (*)(LeftRows<BFloat16> left, const BFloat16* right, int64_t steps, const Target& target,
                              const PairGroups& groups, const Ahead& next);

// Few rows have too few sums for the latency of an addition, so that they take several panels at a time.
constexpr int PanelsOf(int rows) {
  const int panels = kMostRows / rows;
  return panels >= 4 ? 4 : panels >= 2 ? 2 : 1;
}

// By rows - 1: of one panel, of PanelsOf(rows), and of one by fused multiply-adds.
struct TileShapes {
  TileFn of[kMostRows][3];
};
template <size_t... kIndex>
constexpr TileShapes MakeShapes(std::index_sequence<kIndex...>) {
  return {{{Tile<kIndex + 1, 1, false>, Tile<kIndex + 1, PanelsOf(kIndex + 1), false>, Tile<kIndex + 1, 1, true>}...}};
}
constexpr TileShapes kShapes = MakeShapes(std::make_index_sequence<kMostRows>());

// Sums of a group and of all of them: two registers for each.
constexpr int kMostScaledRows = kMostRows / 2;
// By rows - 1; those by fused multiply-adds behind the others.
struct ScaledShapes {
  ScaledTileFn of[kMostScaledRows][2];
};
template <size_t... kIndex>
constexpr ScaledShapes MakeScaledShapes(std::index_sequence<kIndex...>) {
  return {{{ScaledTile<kIndex + 1, false>, ScaledTile<kIndex + 1, true>}...}};
}
constexpr ScaledShapes kScaledShapes = MakeScaledShapes(std::make_index_sequence<kMostScaledRows>());

// Calls fn(i, height) for tiles of rows of about the same size, since tiles of few rows are slow.
template <class Fn>
void ForTiles(int64_t rows, int most, Fn&& fn) {
  int64_t i = 0;
  for (int64_t tiles = (rows + most - 1) / most; tiles > 0; --tiles) {
    const int64_t height = (rows - i) / tiles;
    fn(i, height);
    i += height;
  }
}

REPRISE_PAIRS __m512i LoadPart(const BFloat16* from, int64_t n) {
  if (n >= 2 * kLanes) return _mm512_loadu_si512(from);
  return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << std::max<int64_t>(0, n)) - 1), from);
}

REPRISE_PAIRS uint8_t Least(LeftRows<BFloat16> numbers, int64_t rows, int64_t n) {
  // One less, so that 0 is the largest. Not finite ones are above all that are.
  const __m512i size = _mm512_set1_epi16(0x7FFF);
  const __m512i one = _mm512_set1_epi16(1);
  __m512i least = _mm512_set1_epi16(-1);
  for (int64_t r = 0; r < rows; ++r) {
    const BFloat16* const row = numbers.data + r * numbers.row_stride;
    for (int64_t i = 0; i < n; i += 2 * kLanes) {
      const __m512i bits = _mm512_and_si512(LoadPart(row + i, n - i), size);
      least = _mm512_min_epu16(least, _mm512_sub_epi16(bits, one));
    }
  }
  const __m256i half = _mm256_min_epu16(_mm512_castsi512_si256(least), _mm512_extracti64x4_epi64(least, 1));
  const __m128i quarter = _mm_min_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const int smallest = _mm_extract_epi16(_mm_minpos_epu16(quarter), 0);
  return static_cast<uint8_t>(std::min((smallest + 1) >> 7, 255));
}

REPRISE_PAIRS void OfRows(const BFloat16* source, int64_t stride, int64_t lanes, int64_t depth, BFloat16* panels) {
  alignas(64) static constexpr uint16_t kLower[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i lower = _mm512_load_si512(kLower);
  const __m512i upper = _mm512_add_epi16(lower, _mm512_set1_epi16(16));
  const int64_t panel = kPairPanelWidth * EvenDepth(depth);
  for (int64_t k = 0; k < depth; k += 2) {
    const BFloat16* const from = source + k * stride;
    BFloat16* to = panels + k * kPairPanelWidth;
    for (int64_t j = 0; j < lanes; j += kPairPanelWidth, to += panel) {
      const __m512i even = LoadPart(from + j, lanes - j);
      const __m512i odd = k + 1 < depth ? LoadPart(from + stride + j, lanes - j) : _mm512_setzero_si512();
      _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, lower, odd));
      _mm512_storeu_si512(to + 2 * kLanes, _mm512_permutex2var_epi16(even, upper, odd));
    }
  }
}

REPRISE_PAIRS void OfColumns(const BFloat16* source, int64_t stride, int64_t lanes, int64_t depth, BFloat16* panels) {
  const int64_t even_depth = EvenDepth(depth);
  const int64_t padded = (lanes + kPairPanelWidth - 1) / kPairPanelWidth * kPairPanelWidth;
  for (int64_t j = 0; j < padded; j += kLanes) {
    BFloat16* const panel = panels + j / kPairPanelWidth * kPairPanelWidth * even_depth + j % kPairPanelWidth * 2;
    for (int64_t k = 0; k < depth; k += 2 * kLanes) {
      __m512i words[kLanes];
#pragma GCC unroll 16
      for (int l = 0; l < kLanes; ++l) {
        words[l] = j + l < lanes ? LoadPart(source + (j + l) * stride + k, depth - k) : _mm512_setzero_si512();
      }
      ExchangeWords(words);
      const auto count = static_cast<int>(std::min<int64_t>(kLanes, (even_depth - k) / 2));
      BFloat16* const to = panel + k * kPairPanelWidth;
      if (count == kLanes) {
#pragma GCC unroll 16
        for (int s = 0; s < kLanes; ++s) _mm512_storeu_si512(to + s * kStep, words[s]);
      } else {
        for (int s = 0; s < count; ++s) _mm512_storeu_si512(to + s * kStep, words[s]);
      }
    }
  }
}

REPRISE_PAIRS void AddUpRows(LeftRows<BFloat16> numbers, int64_t rows, int64_t n, float* to) {
  for (int64_t r = 0; r < rows; ++r) {
    const BFloat16* const row = numbers.data + r * numbers.row_stride;
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += 2 * kLanes) {
      const __m512i pairs = LoadPart(row + i, n - i);
      sum = _mm512_add_ps(sum, _mm512_add_ps(Even(pairs), Odd(pairs)));
    }
    to[r] = _mm512_reduce_add_ps(sum);
  }
}

// Whole numbers of two rows, 16 of each, as pairs.
REPRISE_PAIRS inline __m512i PairsOf(__m512i even, __m512i odd) {
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepi32_ps(even)), 16);  // the rest is 0
  return _mm512_or_si512(_mm512_castps_si512(_mm512_cvtepi32_ps(odd)), low);
}

// 16 bytes of a line, or fewer and zeros.
template <bool kIsWhole>
REPRISE_PAIRS inline __m128i LoadBytes(const uint8_t* line, int64_t n) {
  if constexpr (kIsWhole) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(line));
  const auto count = static_cast<unsigned>(std::clamp<int64_t>(n, 0, kLanes));
  return _mm_maskz_loadu_epi8(static_cast<__mmask16>((1U << count) - 1), line);
}

// The numbers of 16 nibbles, each of which is twice in the 16 bytes: in lower and upper halves by turns.
REPRISE_PAIRS inline __m512i NumbersOfHalves(__m128i bytes) {
  const __m512i to_top = _mm512_set1_epi64(int64_t{24} << 32 | 28);
  return _mm512_srai_epi32(_mm512_sllv_epi32(_mm512_cvtepi8_epi32(bytes), to_top), 28);
}

// Two rows of a panel; n: its numbers. `odd`: null if there is none.
template <PairNumbers kNumbers, bool kIsWhole>
REPRISE_PAIRS inline void PanelStep(const uint8_t* even, const uint8_t* odd, int64_t n, BFloat16* to) {
  __m512i numbers[2][2];  // [row][half of the panel]
  if constexpr (kNumbers == PairNumbers::kHalves) {
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r) {
      const uint8_t* const line = r == 0 ? even : odd;
      const __m128i bytes = line == nullptr ? _mm_setzero_si128() : LoadBytes<kIsWhole>(line, n / 2);
      numbers[r][0] = NumbersOfHalves(_mm_unpacklo_epi8(bytes, bytes));
      numbers[r][1] = NumbersOfHalves(_mm_unpackhi_epi8(bytes, bytes));
    }
  } else {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      numbers[0][h] = _mm512_cvtepi8_epi32(LoadBytes<kIsWhole>(even + h * kLanes, n - h * kLanes));
      if constexpr (kNumbers == PairNumbers::kColumns) {
        numbers[1][h] = _mm512_srai_epi32(numbers[0][h], 4);
        numbers[0][h] = _mm512_srai_epi32(_mm512_slli_epi32(numbers[0][h], 28), 28);
      } else {
        const __m128i bytes =
            odd == nullptr ? _mm_setzero_si128() : LoadBytes<kIsWhole>(odd + h * kLanes, n - h * kLanes);
        numbers[1][h] = _mm512_cvtepi8_epi32(bytes);
      }
    }
  }
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) _mm512_storeu_si512(to + h * 2 * kLanes, PairsOf(numbers[0][h], numbers[1][h]));
}

template <PairNumbers kNumbers>
REPRISE_PAIRS void OfNumbers(LowBits weight, int64_t cols, int64_t depth, BFloat16* panels) {
  constexpr int64_t kPanelBytes = kNumbers == PairNumbers::kHalves ? kPairPanelWidth / 2 : kPairPanelWidth;
  const int64_t panel = kPairPanelWidth * EvenDepth(depth);
  for (int64_t k = 0; k < depth; k += 2, panels += kStep) {
    const uint8_t* even = weight.data + (kNumbers == PairNumbers::kColumns ? k / 2 : k) * weight.stride;
    const uint8_t* odd = k + 1 < depth ? even + weight.stride : nullptr;
    BFloat16* to = panels;
    for (int64_t rest = cols; rest > 0; rest -= kPairPanelWidth, to += panel) {
      if (rest >= kPairPanelWidth) {
        PanelStep<kNumbers, true>(even, odd, rest, to);
      } else {
        PanelStep<kNumbers, false>(even, odd, rest, to);
      }
      even += kPanelBytes;
      if (odd != nullptr) odd += kPanelBytes;
    }
  }
}

}  // namespace

void SumRows(LeftRows<BFloat16> numbers, int64_t rows, int64_t n, float* to) { AddUpRows(numbers, rows, n, to); }
void PairPanelsOfNumbers(LowBits weight, PairNumbers numbers, int64_t cols, int64_t depth, BFloat16* panels) {
  switch (numbers) {
    case PairNumbers::kBytes: return OfNumbers<PairNumbers::kBytes>(weight, cols, depth, panels);
    case PairNumbers::kHalves: return OfNumbers<PairNumbers::kHalves>(weight, cols, depth, panels);
    default: return OfNumbers<PairNumbers::kColumns>(weight, cols, depth, panels);
  }
}

uint8_t LeastExponent(LeftRows<BFloat16> numbers, int64_t rows, int64_t n) { return Least(numbers, rows, n); }
void PairPanelsOfRows(const BFloat16* source, int64_t stride, int64_t lanes, int64_t depth, BFloat16* panels) {
  OfRows(source, stride, lanes, depth, panels);
}
void PairPanelsOfColumns(const BFloat16* source, int64_t stride, int64_t lanes, int64_t depth, BFloat16* panels) {
  OfColumns(source, stride, lanes, depth, panels);
}

void MultiplyPairBlock(LeftRows<BFloat16> left, uint8_t left_least, const PairPanels& right, float* c, int64_t c_stride,
                       int64_t rows, int64_t cols, int64_t depth, bool accumulates, const NextRead* next) {
  const int64_t steps = depth / 2;
  const int64_t panels = cols / kPairPanelWidth;
  const Prefetcher prefetcher(next, steps, kStepBytes);
  const int64_t at_once = rows <= kMostRows ? PanelsOf(static_cast<int>(rows)) : 1;
  const auto fits = [&](uint8_t least) { return HasNoSubnormal(left_least, least); };
  for (int64_t p = 0; p < panels;) {
    const bool has_several =
        at_once > 1 && p + at_once <= panels && std::all_of(right.least + p, right.least + p + at_once, fits);
    const int shape = has_several ? 1 : fits(right.least[p]) ? 0 : 2;
    Ahead ahead = prefetcher.OfPanels(p, has_several ? at_once : 1);
    ForTiles(rows, kMostRows, [&](int64_t i, int64_t height) {
      kShapes.of[height - 1][shape]({left.data + i * left.row_stride, left.row_stride}, right.data + p * steps * kStep,
                                    steps, {c + i * c_stride + p * kPairPanelWidth, c_stride, accumulates}, ahead);
      ahead = {};
    });
    p += has_several ? at_once : 1;
  }
}

void MultiplyPairGroups(LeftRows<BFloat16> left, uint8_t left_least, const BFloat16* right, PairGroups groups, float* c,
                        int64_t c_stride, int64_t rows, int64_t cols, bool accumulates, const NextRead* next) {
  int64_t steps = 0;
  for (int64_t g = 0; g < groups.count; ++g) steps += groups.steps[g];
  const Prefetcher prefetcher(next, steps, kStepBytes);
  const bool is_plain = !HasNoSubnormal(left_least, kLeastOfNumbers);
  const float* const left_sums = groups.left_sums;
  for (int64_t j = 0; j < cols; j += kPairPanelWidth, right += steps * kStep) {
    Ahead ahead = prefetcher.OfPanels(j / kPairPanelWidth, 1);
    ForTiles(rows, kMostScaledRows, [&](int64_t i, int64_t height) {
      if (left_sums != nullptr) groups.left_sums = left_sums + i;
      kScaledShapes.of[height - 1][is_plain]({left.data + i * left.row_stride, left.row_stride}, right, steps,
                                             {c + i * c_stride + j, c_stride, accumulates}, groups, ahead);
      ahead = {};
    });
    groups.scale += kPairPanelWidth;
    if (groups.offset != nullptr) groups.offset += kPairPanelWidth;
  }
}

#else

// Nobody calls these: HasBFloat16Pairs.
uint8_t LeastExponent(LeftRows<BFloat16>, int64_t, int64_t) { return 0; }
void PairPanelsOfRows(const BFloat16*, int64_t, int64_t, int64_t, BFloat16*) {}
void PairPanelsOfColumns(const BFloat16*, int64_t, int64_t, int64_t, BFloat16*) {}
void MultiplyPairBlock(LeftRows<BFloat16>, uint8_t, const PairPanels&, float*, int64_t, int64_t, int64_t, int64_t, bool,
                       const NextRead*) {}
void MultiplyPairGroups(LeftRows<BFloat16>, uint8_t, const BFloat16*, PairGroups, float*, int64_t, int64_t, int64_t,
                        bool, const NextRead*) {}
void SumRows(LeftRows<BFloat16>, int64_t, int64_t, float*) {}
void PairPanelsOfNumbers(LowBits, PairNumbers, int64_t, int64_t, BFloat16*) {}

#endif

}  // namespace reprise::kernels::simd
