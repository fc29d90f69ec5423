// SPDX-License-Identifier: Apache-2.0
//
// Products of int8 matrices by the matrix unit (HasMatrixUnit): sums modulo 2^32, as those of simd/int8_dot.h.
#pragma once

#include <cstdint>

namespace reprise::kernels::simd {

/// Numbers that a tile has in depth, and its rows and columns.
inline constexpr int64_t kInt8TileDepth = 64;
inline constexpr int64_t kInt8TileRows = 16;
inline constexpr int64_t kInt8TileCols = 16;

/// Columns of the right operand as tiles, all of one row of tiles after the other: those of kInt8TileCols columns
/// follow each other in depth. Columns and numbers behind the last are 0. \param right  number (k, j) lies at right[j *
/// stride + k] \param tiles  `cols` times `depth` numbers, both rounded up to whole tiles; aligned to 64
void PackInt8Tiles(const int8_t* right, int64_t stride, int64_t cols, int64_t depth, int8_t* tiles);

/// c[i * c_stride + j] = sum over k of left[i * left_stride + k] * right[k, j], or += if `accumulates`. Tiles are read
/// and written whole: rows of the left operand have zeros up to kInt8TileDepth, and there is room for rows and columns
/// up to those of a tile.
struct Int8Tiles {
  const int8_t* left;
  int64_t left_stride;
  const int8_t* tiles;
  int32_t* c;
  int64_t c_stride;
  int64_t rows, cols, depth;
  bool accumulates;
};
void MultiplyInt8Tiles(const Int8Tiles& block);

}  // namespace reprise::kernels::simd
