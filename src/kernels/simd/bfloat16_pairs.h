// SPDX-License-Identifier: Apache-2.0
//
// Products of bfloat16 whose pairs of neighbours in depth one instruction multiplies and adds to float32 (AVX512_BF16),
// for left operands of 16 bits: those of float16 are the sum of two of bfloat16. Products are exact; sums are rounded
// in an order of the instruction, which takes subnormal numbers for 0. So values that are very small, or not finite,
// are left to the caller.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/simd/low_bits.h"

namespace reprise::kernels::simd {

/// Whether the processor has the instruction. Nothing else here may be called where it has not.
bool HasBFloat16Pairs();
/// Whether it is faster than two multiply-adds, too: those of Intel take longer. Where it is not, pairs pay only for
/// rows that wait for memory.
bool HasFastBFloat16Pairs();
/// For tests: as if it was, where there is the instruction.
void SetFastBFloat16PairsForTest(bool is_fast);

inline constexpr float kSmallestOfPairs = 0x1p-100F;  // sums of multiples of its last digits are never subnormal
inline constexpr float kLargestOfPairs = 0x1.FFFFFEp+127F;
/// Whether pairs leave out `value`, so that the caller must add its products.
inline bool IsBesidePairs(float value) {
  const float size = std::fabs(value);
  return value != 0 && !(size >= kSmallestOfPairs && size <= kLargestOfPairs);  // NaN, too
}

/// A row of n numbers as pairs: (n + 1) / 2 words, the even one in the lower half, in `parts` lines `stride` words
/// apart whose sum it is. One part holds bfloat16, two float16. Those beside pairs are 0; returns whether there are
/// any.
bool SpreadPairs(const float* row, int64_t n, int parts, uint32_t* to, int64_t stride);

/// Columns that packed rows are multiplied by at a time. Lines of sums, scales and offsets are in an order of their own
/// within so many, and reach to a multiple of them.
inline constexpr int64_t kPairColumns = 128;
void OrderPairLine(float* line, int64_t n);
void RestorePairLine(float* line, int64_t n);

/// Most rows of x in a block.
inline constexpr int64_t kMostPairRows = 48;

/// c[i * c_stride + j] += scale[j] * sum over k of x[i, k] * (w[k, j] + offset[j]), 16 rows of the weight at a time.
struct LowBitsPairs {
  LowBits weight;        ///< packed; a line is a row. Or data alone: within a tile of PreparePairs
  bool is_prepared;      ///< lines of sums, scales and offsets are in the order of columns, of which there is one tile
  const uint32_t* left;  ///< part p of row i from (i * parts + p) * left_stride on
  int64_t left_stride;
  int parts;
  const float* scale;
  const float* offset;  ///< null: 0
  float* c;
  int64_t c_stride;
  int64_t rows, cols, depth;
};
void MultiplyLowBitsPairs(const LowBitsPairs& block);

/// A weight in the order in which pairs are multiplied: kPairColumns columns after the other, zeros behind the last,
/// PreparedPairsBytes(depth, kPairColumns) bytes each; row k of a tile, which is even, begins at k * kPairColumns / 2.
int64_t PreparedPairsBytes(int64_t depth, int64_t cols);
void PreparePairs(const LowBits& weight, int64_t depth, int64_t cols, uint8_t* to);
/// Its number of row k.
int PreparedNumber(const uint8_t* pairs, int64_t depth, int64_t k, int64_t column);

}  // namespace reprise::kernels::simd
