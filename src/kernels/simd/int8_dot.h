// SPDX-License-Identifier: Apache-2.0
//
// Products of int8 matrices, sums modulo 2^32, compiled once per instruction set: the same bits everywhere.
#pragma once

#include <cstdint>

namespace reprise::kernels::simd {

/// Bytes of a row of the left operand as PrepareInt8Row leaves it; a multiple of 64, and at most 2 * depth + 64.
int64_t Int8RowBytes(int64_t depth);
/// A row in the form that MultiplyInt8 reads, zeros behind it.
void PrepareInt8Row(const int8_t* row, int64_t depth, void* to);

/// c[i * c_stride + j] = sum over k of left[i, k] * right[j * right_stride + k], or += if `accumulates`.
struct Int8Block {
  const void* left;     ///< prepared rows, aligned to 64
  int64_t left_stride;  ///< bytes
  const int8_t* right;
  int64_t right_stride;
  int32_t* c;
  int64_t c_stride;
  int64_t rows, cols, depth;
  bool accumulates;
};
void MultiplyInt8(const Int8Block& block);

}  // namespace reprise::kernels::simd
