// SPDX-License-Identifier: Apache-2.0
//
// Products with weights of 8 and 4 bits, widened in registers, and blocks of them as panels of float32; compiled once
// per instruction set. Fused multiply-add is used where the processor has it, so bits may differ between instruction
// sets, not between cuts of a block into rows and columns.
#pragma once

#include <cstdint>

namespace reprise::kernels::simd {

/// Numbers that lie back to back in lines: int8, or two of 4 bits in a byte, the first in the lower half.
struct LowBits {
  const uint8_t* data;
  int64_t stride;  ///< bytes between lines
  bool is_packed;
};

/// Numbers that are widened at a time, on this processor: a power of two, 32 at most.
int64_t LowBitsStep();

/// Floats that SpreadRow writes for `depth` numbers in groups of `group`.
int64_t SpreadLength(int64_t depth, int64_t group);
/// A row of the left operand as LowBitsColumns wants it: groups padded with zeros, in the order of widened numbers.
void SpreadRow(const float* row, int64_t depth, int64_t group, bool is_packed, float* to);

/// c[i * c_stride + j] = sum over groups g of scale(g, j) * sum over k in g of x[i, k] * (w[j, k] + offset(g, j)), or
/// += if `accumulates`. A sum has as many chains as a vector has lanes.
struct LowBitsColumns {
  LowBits weight;  ///< a line is a column
  const float* left;
  int64_t left_stride;
  const float* scale;   ///< (g, j) at [g * group_stride + j]
  const float* offset;  ///< alike; null: 0
  int64_t group_stride;
  int64_t group;  ///< even, or not less than depth, if the weight is packed
  float* c;
  int64_t c_stride;
  int64_t rows, cols, depth;
  bool accumulates;
};
void MultiplyLowBitsByColumns(const LowBitsColumns& block);

/// Scales, offsets and sums of columns in the order in which packed rows are widened, and back; n counts up to a
/// multiple of LowBitsStep(). Others stay.
void OrderLine(float* line, int64_t n, bool is_packed);
void RestoreLine(float* line, int64_t n, bool is_packed);

/// c[i * c_stride + j] += scale[j] * sum over k of x[i, k] * (w[k, j] + offset[j]), eight rows of the weight at a time,
/// then four, then each. Lines of c, scale and offset are in the order of OrderLine and reach to a multiple of
/// LowBitsStep(), zeros behind `cols`.
struct LowBitsRows {
  LowBits weight;  ///< a line is a row
  const float* left;
  int64_t left_stride;
  const float* scale;
  const float* offset;  ///< null: 0
  float* c;
  int64_t c_stride;
  int64_t rows, cols, depth;
};
void MultiplyLowBitsByRows(const LowBitsRows& block);

/// Panels as simd/matmul_tile.h multiplies them, of `depth` rows of a weight from row `at` of panels of `panel_depth`:
/// (w[k, j] + offset[j]) * scale[j], zeros behind `cols`. Scale and offset as for LowBitsRows.
struct LowBitsPanels {
  LowBits weight;
  const float* scale;
  const float* offset;
  int64_t cols, depth;
  float* panels;
  int64_t width;  ///< of a panel; a multiple of LowBitsStep()
  int64_t panel_depth, at;
};
/// A line is a row.
void LowBitsRowsToPanels(const LowBitsPanels& block);
/// Lines as TransposeBytes leaves columns: one for each row, or packed for two rows, the even one in the lower halves;
/// scales stay in their order then. \pre `at` is even if packed
void LowBitsLinesToPanels(const LowBitsPanels& block);

/// dst[j * dst_stride + i] = src[i * src_stride + j] for i < rows, j < cols.
void TransposeBytes(const uint8_t* src, int64_t src_stride, int64_t rows, int64_t cols, uint8_t* dst,
                    int64_t dst_stride);

}  // namespace reprise::kernels::simd
