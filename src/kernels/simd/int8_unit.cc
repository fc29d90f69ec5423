// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/int8_unit.h"

#include <algorithm>

#include "kernels/simd/matrix_instructions.h"
#include "kernels/simd/words.h"

namespace reprise::kernels::simd {

#if defined(__x86_64__)
namespace {

constexpr int kLanes = 16;
constexpr int64_t kTileBytes = kInt8TileRows * kInt8TileDepth;
constexpr int64_t kColumnBytes = kInt8TileCols * 4;  // a row of a tile: four numbers of each column

inline int64_t TilesOf(int64_t n, int64_t of) { return (n + of - 1) / of; }

// Registers 0 to 3 are sums of kRows times kCols tiles, 4 and 5 rows of the left operand, 6 and 7 columns.
template <int kRows, int kCols>
REPRISE_MATRIX void SumTiles(const Int8Tiles& block, int64_t row, int64_t col) {
  const int64_t stride = block.c_stride * static_cast<int64_t>(sizeof(int32_t));
  int32_t* const c = block.c + row * block.c_stride + col;
  int32_t* const below = c + kInt8TileRows * block.c_stride;
  if (block.accumulates) {
    _tile_loadd(0, c, stride);
    if constexpr (kCols == 2) _tile_loadd(1, c + kInt8TileCols, stride);
    if constexpr (kRows == 2) _tile_loadd(2, below, stride);
    if constexpr (kRows == 2 && kCols == 2) _tile_loadd(3, below + kInt8TileCols, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const int64_t steps = TilesOf(block.depth, kInt8TileDepth);
  const int8_t* left = block.left + row * block.left_stride;
  const int8_t* const left_below = left + kInt8TileRows * block.left_stride;
  const int8_t* right = block.tiles + col / kInt8TileCols * steps * kTileBytes;
  for (int64_t s = 0; s < steps; ++s) {
    const int64_t k = s * kInt8TileDepth;
    _tile_loadd(4, left + k, block.left_stride);
    _tile_loadd(6, right + s * kTileBytes, kColumnBytes);
    _tile_dpbssd(0, 4, 6);
    if constexpr (kCols == 2) {
      _tile_loadd(7, right + (steps + s) * kTileBytes, kColumnBytes);
      _tile_dpbssd(1, 4, 7);
    }
    if constexpr (kRows == 2) {
      _tile_loadd(5, left_below + k, block.left_stride);
      _tile_dpbssd(2, 5, 6);
      if constexpr (kCols == 2) _tile_dpbssd(3, 5, 7);
    }
  }
  _tile_stored(0, c, stride);
  if constexpr (kCols == 2) _tile_stored(1, c + kInt8TileCols, stride);
  if constexpr (kRows == 2) _tile_stored(2, below, stride);
  if constexpr (kRows == 2 && kCols == 2) _tile_stored(3, below + kInt8TileCols, stride);
}

REPRISE_MATRIX inline __m512i LoadNumbers(const int8_t* from, int64_t n) {
  if (n >= kInt8TileDepth) return _mm512_loadu_si512(from);
  return _mm512_maskz_loadu_epi8((uint64_t{1} << std::max<int64_t>(0, n)) - 1, from);
}

}  // namespace

REPRISE_MATRIX void PackInt8Tiles(const int8_t* right, int64_t stride, int64_t cols, int64_t depth, int8_t* tiles) {
  for (int64_t j = 0; j < cols; j += kInt8TileCols) {
    for (int64_t k = 0; k < depth; k += kInt8TileDepth, tiles += kTileBytes) {
      __m512i words[kLanes];
#pragma GCC unroll 16
      for (int l = 0; l < kLanes; ++l) {
        words[l] = j + l < cols ? LoadNumbers(right + (j + l) * stride + k, depth - k) : _mm512_setzero_si512();
      }
      ExchangeWords(words);
#pragma GCC unroll 16
      for (int l = 0; l < kLanes; ++l) _mm512_store_si512(tiles + l * kColumnBytes, words[l]);
    }
  }
}

REPRISE_MATRIX void MultiplyInt8Tiles(const Int8Tiles& block) {
  const TileRegisters registers;
  const int64_t row_tiles = TilesOf(block.rows, kInt8TileRows);
  const int64_t col_tiles = TilesOf(block.cols, kInt8TileCols);
  for (int64_t c = 0; c < col_tiles; c += 2) {
    const bool has_two_columns = c + 1 < col_tiles;
    for (int64_t r = 0; r < row_tiles; r += 2) {
      const int64_t row = r * kInt8TileRows;
      const int64_t col = c * kInt8TileCols;
      if (r + 1 < row_tiles) {
        has_two_columns ? SumTiles<2, 2>(block, row, col) : SumTiles<2, 1>(block, row, col);
      } else {
        has_two_columns ? SumTiles<1, 2>(block, row, col) : SumTiles<1, 1>(block, row, col);
      }
    }
  }
}

#else

// Nobody calls these: HasMatrixUnit.
void PackInt8Tiles(const int8_t*, int64_t, int64_t, int64_t, int8_t*) {}
void MultiplyInt8Tiles(const Int8Tiles&) {}

#endif

}  // namespace reprise::kernels::simd
