// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/bfloat16_pairs.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "kernels/simd/bfloat16_instructions.h"

namespace reprise::kernels::simd {
namespace {

// Where the tile of a prepared weight has a number: a pair of rows has two vectors of 16 times 32 bits, whose halves
// are of the even and the odd row and have numbers of columns that are 16 apart.
struct PairPlace {
  int64_t byte;
  int shift;
};
PairPlace PlaceOf(int64_t k, int64_t column) {
  const int64_t vector = column / 16;
  return {k / 2 * kPairColumns + vector / 4 * 64 + column % 16 * 4 + k % 2 * 2 + vector % 4 / 2,
          static_cast<int>(vector % 2 * 4)};
}

std::atomic<bool> is_fast_for_test{false};

}  // namespace

void SetFastBFloat16PairsForTest(bool is_fast) { is_fast_for_test.store(is_fast, std::memory_order_relaxed); }

#if defined(__x86_64__)
namespace {

constexpr int kLanes = 16;
constexpr int kVectors = kPairColumns / kLanes;
constexpr int kLine = kPairColumns / 2;  // bytes
constexpr int64_t kRowsAtOnce = 16;      // of the weight: lines that lie in the same sets of a cache fit there
constexpr int64_t kAhead = 256;          // bytes of a row
constexpr int64_t kPreparedAhead = 4096;

// A vector has the same half of bytes of every other one in the lower or upper half of each 16 bytes of two rows:
// lane l of vector 4 * h + q is column 32 * (l / 4) + 16 * h + 4 * (l % 4) + q.
constexpr int64_t ColumnOfPlace(int64_t place) {
  const int64_t lane = place % kLanes;
  const int64_t vector = place / kLanes;
  return 32 * (lane / 4) + 16 * (vector / 4) + 4 * (lane % 4) + vector % 4;
}

// Sixteen rows of the weight or fewer, by pairs.
struct Rows {
  const uint8_t* from;
  int64_t stride;
  int64_t pairs;
  bool has_one;          // behind the pairs
  const uint32_t* left;  // the word of the first pair
  const uint8_t* next;   // what memory is asked for, as far apart as these rows
  int64_t next_stride;
};

REPRISE_PAIRS inline __m512i LoadTable() {
  // The fifth bit of an index belongs to the next number: every value is there twice.
  alignas(64) static constexpr float kNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
  const __m512i words = _mm512_srli_epi32(_mm512_castps_si512(_mm512_load_ps(kNumbers)), 16);
  return _mm512_broadcast_i64x4(_mm512_cvtepi32_epi16(words));
}

// The numbers of a pair of rows, four in each half of 32 bits.
struct Halves {
  __m512i of[2];
};
REPRISE_PAIRS inline Halves Interleave(__m512i first, __m512i second) {
  return {{_mm512_unpacklo_epi16(first, second), _mm512_unpackhi_epi16(first, second)}};
}

template <int kRows, int kParts>
REPRISE_PAIRS inline void AddPair(__m512i table, const Halves& halves, const uint32_t* left, int64_t left_stride,
                                  __m512 (&sum)[kRows][kVectors]) {
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const auto w = (__m512bh)_mm512_permutexvar_epi16(_mm512_srli_epi16(halves.of[v / 4], 4 * (v % 4)), table);
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int p = 0; p < kParts; ++p) {
        const auto x = (__m512bh)_mm512_set1_epi32(static_cast<int>(left[(r * kParts + p) * left_stride]));
        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], w, x);
      }
    }
  }
}

// kRows rows of x times a tile of columns. x_sums: of each row.
template <bool kIsPrepared, int kRows, int kParts>
REPRISE_PAIRS void AddTile(const LowBitsPairs& block, const Rows& rows, const float* x_sums, int64_t i, int64_t j) {
  const __m512i table = LoadTable();
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_setzero_ps();
  }
  const uint8_t* from = rows.from;
  const uint8_t* next = rows.next;
  const uint32_t* left = rows.left + i * kParts * block.left_stride;
  for (int64_t p = 0; p < rows.pairs; ++p, from += 2 * rows.stride, ++left) {
    __builtin_prefetch(next);
    __builtin_prefetch(next + rows.next_stride);
    next += 2 * rows.next_stride;
    const __m512i first = _mm512_loadu_si512(from);
    const __m512i second = _mm512_loadu_si512(from + rows.stride);
    const Halves halves = kIsPrepared ? Halves{{first, second}} : Interleave(first, second);
    AddPair<kRows, kParts>(table, halves, left, block.left_stride, sum);
  }
  if (!kIsPrepared && rows.has_one) {
    const Halves halves = Interleave(_mm512_loadu_si512(from), _mm512_setzero_si512());
    AddPair<kRows, kParts>(table, halves, left, block.left_stride, sum);
  }
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
    float* const c = block.c + (i + r) * block.c_stride + j;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      if (block.offset != nullptr) {
        const __m512 offset = _mm512_loadu_ps(block.offset + j + v * kLanes);
        sum[r][v] = _mm512_fmadd_ps(offset, _mm512_set1_ps(x_sums[i + r]), sum[r][v]);
      }
      const __m512 scale = _mm512_loadu_ps(block.scale + j + v * kLanes);
      float* const to = c + v * kLanes;
      _mm512_storeu_ps(to, _mm512_fmadd_ps(sum[r][v], scale, _mm512_loadu_ps(to)));
    }
  }
}

template <bool kIsPrepared, int kParts>
REPRISE_PAIRS void AddTileOfRows(const LowBitsPairs& block, Rows rows, const float* x_sums, int64_t j) {
  int64_t i = 0;
  for (; i + 3 <= block.rows; i += 3) {
    AddTile<kIsPrepared, 3, kParts>(block, rows, x_sums, i, j);
    rows.next = rows.from;  // which is there
    rows.next_stride = rows.stride;
  }
  if (i + 2 == block.rows) AddTile<kIsPrepared, 2, kParts>(block, rows, x_sums, i, j);
  if (i + 1 == block.rows) AddTile<kIsPrepared, 1, kParts>(block, rows, x_sums, i, j);
}

// Up to 16 numbers of a row, those behind them 0; returns whether some are beside pairs.
REPRISE_PAIRS inline bool SpreadVector(const float* row, int64_t n, int parts, uint32_t* to, int64_t stride) {
  const auto count = static_cast<unsigned>(std::min<int64_t>(n, kLanes));
  const auto lanes = static_cast<__mmask16>((1U << count) - 1);
  __m512 rest = _mm512_maskz_loadu_ps(lanes, row);
  const __m512 size = _mm512_abs_ps(rest);
  const __mmask16 fits = _mm512_cmp_ps_mask(size, _mm512_set1_ps(kSmallestOfPairs), _CMP_GE_OQ) &
                         _mm512_cmp_ps_mask(size, _mm512_set1_ps(kLargestOfPairs), _CMP_LE_OQ);
  const __mmask16 beside = _mm512_cmp_ps_mask(size, _mm512_setzero_ps(), _CMP_NEQ_UQ) & ~fits;
  rest = _mm512_maskz_mov_ps(fits, rest);
  const auto words = static_cast<__mmask8>((1U << (count + 1) / 2) - 1);
  for (int p = 0; p < parts; ++p) {
    // Cut off, not rounded: each part takes eight of the digits that are left.
    const __m512i bits = _mm512_and_si512(_mm512_castps_si512(rest), _mm512_set1_epi32(static_cast<int>(0xFFFF0000U)));
    _mm256_mask_storeu_epi32(to + p * stride, words, _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
    rest = _mm512_sub_ps(rest, _mm512_castsi512_ps(bits));
  }
  return beside != 0;
}

REPRISE_PAIRS bool Spread(const float* row, int64_t n, int parts, uint32_t* to, int64_t stride) {
  bool has_others = false;
  for (int64_t k = 0; k < n; k += kLanes) has_others |= SpreadVector(row + k, n - k, parts, to + k / 2, stride);
  return has_others;
}

// The sum of `words` pairs in `parts` lines.
float SumOfPairs(const uint32_t* left, int64_t stride, int parts, int64_t words) {
  float sum = 0;
  for (int p = 0; p < parts; ++p) {
    for (int64_t k = 0; k < words; ++k) {
      const uint32_t pair = left[p * stride + k];
      sum += std::bit_cast<float>(pair << 16) + std::bit_cast<float>(pair & 0xFFFF0000U);
    }
  }
  return sum;
}

// Rows of memory from row k on, tile by tile.
template <int kParts>
REPRISE_PAIRS void MultiplyRows(const LowBitsPairs& block, int64_t k, int64_t depth, const float* x_sums) {
  const int64_t stride = block.weight.stride;
  const int64_t bytes = (block.cols + 1) / 2;
  const uint8_t* const line = block.weight.data + k * stride;
  for (int64_t j = 0; j < block.cols; j += kPairColumns) {
    // Further on in these rows, or as far into the next ones.
    const int64_t at = j / 2;
    const uint8_t* const next =
        at + kAhead < bytes ? line + at + kAhead
                            : line + kRowsAtOnce * stride + std::max<int64_t>(0, at + kAhead - bytes) / kLine * kLine;
    Rows rows = {line + at, stride, depth / 2, depth % 2 != 0, block.left + k / 2, next, stride};
    alignas(64) uint8_t rest[kRowsAtOnce][kLine];
    if (j + kPairColumns > block.cols) {
      for (int64_t s = 0; s < depth; ++s) {
        std::fill_n(rest[s], kLine, uint8_t{0});
        std::memcpy(rest[s], rows.from + s * stride, static_cast<size_t>(bytes - at));
      }
      rows.from = rest[0];
      rows.stride = kLine;
    }
    AddTileOfRows<false, kParts>(block, rows, x_sums, j);
  }
}

template <int kParts>
REPRISE_PAIRS void Multiply(const LowBitsPairs& block) {
  for (int64_t k = 0; k < block.depth; k += kRowsAtOnce) {
    const int64_t depth = std::min(kRowsAtOnce, block.depth - k);
    const int64_t pairs = (depth + 1) / 2;
    const uint32_t* const left = block.left + k / 2;
    float x_sums[kMostPairRows] = {};
    for (int64_t i = 0; block.offset != nullptr && i < block.rows; ++i) {
      x_sums[i] = SumOfPairs(left + i * kParts * block.left_stride, block.left_stride, kParts, pairs);
    }
    if (block.is_prepared) {
      const uint8_t* const from = block.weight.data + k * kLine;
      AddTileOfRows<true, kParts>(block, {from, kLine, pairs, false, left, from + kPreparedAhead, kLine}, x_sums, 0);
    } else {
      MultiplyRows<kParts>(block, k, depth, x_sums);
    }
  }
}

// Four vectors of 4 x 4 floats: from columns that lie together to those of one place in each four, or back.
REPRISE_PAIRS inline void Exchange(const float* from, float* to, int64_t from_step, int64_t to_step) {
  __m512 a[4];
  for (int l = 0; l < 4; ++l) a[l] = _mm512_loadu_ps(from + l * from_step);
  const __m512 a01 = _mm512_shuffle_f32x4(a[0], a[1], 0x44);
  const __m512 a23 = _mm512_shuffle_f32x4(a[2], a[3], 0x44);
  const __m512 b01 = _mm512_shuffle_f32x4(a[0], a[1], 0xEE);
  const __m512 b23 = _mm512_shuffle_f32x4(a[2], a[3], 0xEE);
  // Row r of each.
  const __m512 rows[4] = {_mm512_shuffle_f32x4(a01, a23, 0x88), _mm512_shuffle_f32x4(a01, a23, 0xDD),
                          _mm512_shuffle_f32x4(b01, b23, 0x88), _mm512_shuffle_f32x4(b01, b23, 0xDD)};
  const __m512 low01 = _mm512_unpacklo_ps(rows[0], rows[1]);
  const __m512 low23 = _mm512_unpacklo_ps(rows[2], rows[3]);
  const __m512 high01 = _mm512_unpackhi_ps(rows[0], rows[1]);
  const __m512 high23 = _mm512_unpackhi_ps(rows[2], rows[3]);
  _mm512_storeu_ps(to, _mm512_shuffle_ps(low01, low23, 0x44));
  _mm512_storeu_ps(to + to_step, _mm512_shuffle_ps(low01, low23, 0xEE));
  _mm512_storeu_ps(to + 2 * to_step, _mm512_shuffle_ps(high01, high23, 0x44));
  _mm512_storeu_ps(to + 3 * to_step, _mm512_shuffle_ps(high01, high23, 0xEE));
}

REPRISE_PAIRS void Order(float* line, int64_t n) {
  float columns[kPairColumns];
  for (int64_t j = 0; j < n; j += kPairColumns) {
    std::copy_n(line + j, kPairColumns, columns);
    for (int half = 0; half < 2; ++half) Exchange(columns + 16 * half, line + j + 64 * half, 32, kLanes);
  }
}

}  // namespace

bool HasBFloat16Pairs() {
  static const bool has_instruction = __builtin_cpu_supports("avx512bf16") != 0;
  return has_instruction && LowBitsStep() == 2 * kLanes;  // where tests choose another instruction set, it is smaller
}

bool HasFastBFloat16Pairs() {
  static const bool is_fast = __builtin_cpu_is("intel") == 0;
  return HasBFloat16Pairs() && (is_fast || is_fast_for_test.load(std::memory_order_relaxed));
}

bool SpreadPairs(const float* row, int64_t n, int parts, uint32_t* to, int64_t stride) {
  return Spread(row, n, parts, to, stride);
}
void OrderPairLine(float* line, int64_t n) { Order(line, n); }
void MultiplyLowBitsPairs(const LowBitsPairs& block) { block.parts == 1 ? Multiply<1>(block) : Multiply<2>(block); }
#else
namespace {
constexpr int64_t ColumnOfPlace(int64_t place) { return place; }
}  // namespace
bool HasBFloat16Pairs() { return false; }
bool HasFastBFloat16Pairs() { return false; }
bool SpreadPairs(const float*, int64_t, int, uint32_t*, int64_t) { return false; }
void OrderPairLine(float*, int64_t) {}
void MultiplyLowBitsPairs(const LowBitsPairs&) {}
#endif

int64_t PreparedPairsBytes(int64_t depth, int64_t cols) {
  return (cols + kPairColumns - 1) / kPairColumns * kPairColumns * ((depth + 1) / 2);
}

void PreparePairs(const LowBits& weight, int64_t depth, int64_t cols, uint8_t* to) {
  constexpr int64_t kTileLine = kPairColumns / 2;
  const int64_t tile_bytes = PreparedPairsBytes(depth, kPairColumns);
  for (int64_t j = 0; j < cols; j += kPairColumns, to += tile_bytes) {
    const int64_t bytes = (std::min(kPairColumns, cols - j) + 1) / 2;
    for (int64_t k = 0; k < (depth + 1) / 2 * 2; ++k) {
      uint8_t line[kTileLine] = {};
      if (k < depth) std::memcpy(line, weight.data + k * weight.stride + j / 2, static_cast<size_t>(bytes));
      uint8_t* const pair = to + k / 2 * kPairColumns;
      for (int64_t column = 0; column < kPairColumns; column += column % 16 == 15 ? 17 : 1) {
        const int shift = static_cast<int>(column % 2 * 4);
        const int low = line[column / 2] >> shift & 15;
        const int high = line[column / 2 + 8] >> shift & 15;
        pair[PlaceOf(k % 2, column).byte] = static_cast<uint8_t>(low | high << 4);
      }
    }
  }
}

int PreparedNumber(const uint8_t* pairs, int64_t depth, int64_t k, int64_t column) {
  const PairPlace place = PlaceOf(k, column % kPairColumns);
  const uint8_t* const tile = pairs + column / kPairColumns * kPairColumns * ((depth + 1) / 2);
  const int number = tile[place.byte] >> place.shift & 15;
  return number < 8 ? number : number - 16;
}

void RestorePairLine(float* line, int64_t n) {
  float places[kPairColumns];
  for (int64_t j = 0; j < n; j += kPairColumns) {
    std::copy_n(line + j, kPairColumns, places);
    for (int64_t p = 0; p < kPairColumns; ++p) line[j + ColumnOfPlace(p)] = places[p];
  }
}

}  // namespace reprise::kernels::simd
