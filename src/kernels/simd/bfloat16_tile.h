// SPDX-License-Identifier: Apache-2.0
//
// The inner blocks of products of bfloat16, two neighbours in depth at a time (HasBFloat16Pairs). An element of c is
// one chain of fused multiply-adds over the depth, of which each pair adds its odd product first: one instruction does
// both, with these very bits where no number can be subnormal. Where some can, so says the least exponent of both
// operands, fused multiply-adds of float32 take its place.
#pragma once

#include <cstdint>

#include "kernels/float16.h"
#include "kernels/simd/low_bits.h"
#include "kernels/simd/matmul_tile.h"

namespace reprise::kernels::simd {

/// Columns of a panel.
inline constexpr int64_t kPairPanelWidth = 32;
/// A panel has an even depth: a last row of zeros, if need be.
inline constexpr int64_t EvenDepth(int64_t depth) { return depth + depth % 2; }

/// The bits of the exponent of the smallest of n numbers in each of some rows; zeros and those that are not finite
/// count as large.
uint8_t LeastExponent(LeftRows<BFloat16> numbers, int64_t rows, int64_t n);

/// Whether products of two operands, and sums of those, are never subnormal, by the exponents of their smallest numbers
/// (0 if one has a subnormal number): they are multiples of 2^(left + right - 2 * (127 + 7)), which is 2^-126 or more.
inline bool HasNoSubnormal(uint8_t left, uint8_t right) {
  constexpr int kLeastExponents = 2 * (127 + 7) - 126;
  return left != 0 && right != 0 && left + right >= kLeastExponents;
}

/// panels[j / width * width * EvenDepth(depth) + k / 2 * 2 * width + j % width * 2 + k % 2] = source[k * stride + j]
/// for j < lanes, 0 behind them to the end of the last panel.
void PairPanelsOfRows(const BFloat16* source, int64_t stride, int64_t lanes, int64_t depth, BFloat16* panels);
/// The same of source[j * stride + k].
void PairPanelsOfColumns(const BFloat16* source, int64_t stride, int64_t lanes, int64_t depth, BFloat16* panels);

/// `panels` follow each other. least: a byte of each.
struct PairPanels {
  const BFloat16* data;
  const uint8_t* least;
};

/// c[rows x cols] = left * right, or += if `accumulates`. \pre cols is a multiple of kPairPanelWidth, depth is even and
/// above 0, and has a 0 at the end of left's rows if it was made so. `left_least`: of the left operand.
void MultiplyPairBlock(LeftRows<BFloat16> left, uint8_t left_least, const PairPanels& right, float* c, int64_t c_stride,
                       int64_t rows, int64_t cols, int64_t depth, bool accumulates, const NextRead* next = nullptr);

/// How the numbers of a weight lie in the bytes of a line.
enum class PairNumbers : uint8_t {
  kBytes,    ///< int8, a line for each row
  kHalves,   ///< of 4 bits, two neighbours of a row in a byte, the first in the lower half
  kColumns,  ///< of 4 bits, two neighbours of a column, the one of the even row in the lower half: a line for two rows
};

/// The exponent of the smallest number but 0 of a weight.
inline constexpr uint8_t kLeastOfNumbers = 127;

/// Rows of a weight as panels: `depth` rows of `cols` numbers, which are even for kHalves. \pre an odd number of rows
/// of kColumns has zeros in the last upper halves
void PairPanelsOfNumbers(LowBits weight, PairNumbers numbers, int64_t cols, int64_t depth, BFloat16* panels);

/// Groups of the depth: line g of scales and offsets belongs to the next steps[g] pairs.
struct PairGroups {
  const int64_t* steps;
  int64_t count;
  const float* scale;
  const float* offset;     ///< null: 0
  int64_t stride;          ///< of both
  const float* left_sums;  ///< of row i and group g at [g * left_stride + i]; where there are offsets
  int64_t left_stride;
};

/// As MultiplyPairBlock, with panels of whole numbers: the sum over groups of scale * (sum of products + offset * left
/// sum).
void MultiplyPairGroups(LeftRows<BFloat16> left, uint8_t left_least, const BFloat16* right, PairGroups groups, float* c,
                        int64_t c_stride, int64_t rows, int64_t cols, bool accumulates, const NextRead* next);

/// to[i] = the sum of n numbers of row i.
void SumRows(LeftRows<BFloat16> numbers, int64_t rows, int64_t n, float* to);

}  // namespace reprise::kernels::simd
