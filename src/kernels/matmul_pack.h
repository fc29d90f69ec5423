// SPDX-License-Identifier: Apache-2.0
//
// Blocks of the operands of a matrix product in the order in which tiles read them. Internal to kernels/matmul.cc.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cast.h"
#include "kernels/matmul_problem.h"
#include "kernels/simd/matmul_tile.h"
#include "kernels/simd/matrix_unit.h"
#include "kernels/simd/panels.h"

namespace reprise::kernels::matmul {

/// A block of an operand: lanes (rows of a, columns of b) by depth; strides in bytes.
struct Block {
  const char* data;
  int64_t lane_stride;
  int64_t depth_stride;
  DType dtype;
  CastFn cast;
};

// dst[j * dst_stride + i] = src[i * src_stride + j]
template <class T>
void Transpose(const T* src, int64_t src_stride, int64_t rows, int64_t cols, T* dst, int64_t dst_stride) {
  if constexpr (std::is_same_v<T, float>) {
    simd::Transpose(src, src_stride, rows, cols, dst, dst_stride);
  } else {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) dst[j * dst_stride + i] = src[i * src_stride + j];
    }
  }
}

/// Copies a block to dst[lane * row_stride + k]; `line` is scratch, see Layout.
template <class T>
void PackRows(const Block& block, int64_t lanes, int64_t depth, T* dst, int64_t row_stride, T* line) {
  constexpr int64_t kItem = sizeof(T);
  if (block.depth_stride <= block.lane_stride || lanes == 1) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      block.cast(block.data + lane * block.lane_stride, block.depth_stride,
                 reinterpret_cast<char*>(dst + lane * row_stride), kItem, depth);
    }
    return;
  }
  for (int64_t begin = 0; begin < lanes; begin += kBlockDepth) {
    const int64_t part = std::min(kBlockDepth, lanes - begin);
    for (int64_t k = 0; k < depth; k += kLines) {
      const int64_t count = std::min(kLines, depth - k);
      for (int64_t l = 0; l < count; ++l) {
        block.cast(block.data + begin * block.lane_stride + (k + l) * block.depth_stride, block.lane_stride,
                   reinterpret_cast<char*>(line + l * kBlockDepth), kItem, part);
      }
      Transpose(line, kBlockDepth, count, part, dst + begin * row_stride + k, row_stride);
    }
  }
}

/// Panels straight from the memory of the operand. \return false when there is no vector body for it
template <class B>
void PackPanelsOf(const Block& block, int64_t lanes, int64_t depth, int64_t width, bool by_columns, float* dst) {
  const auto* const from = reinterpret_cast<const B*>(block.data);
  constexpr int64_t kItem = sizeof(B);
  if (!by_columns) return simd::PanelsOfRows(from, block.depth_stride / kItem, lanes, depth, dst);
  const int64_t stride = block.lane_stride / kItem;
  for (int64_t lane = 0; lane < lanes; lane += width) {
    simd::PanelOfColumns(from + lane * stride, stride, std::min(width, lanes - lane), depth, dst + lane * depth);
  }
}

inline bool PackPanelsFast(const Block& block, int64_t lanes, int64_t depth, int64_t width, float* dst) {
  const int64_t item = ItemSize(block.dtype);
  const bool by_columns = block.depth_stride == item;
  if (!by_columns && block.lane_stride != item) return false;
  switch (block.dtype) {
    case DType::kFloat: PackPanelsOf<float>(block, lanes, depth, width, by_columns, dst); return true;
    case DType::kFloat16: PackPanelsOf<Half>(block, lanes, depth, width, by_columns, dst); return true;
    case DType::kBFloat16: PackPanelsOf<BFloat16>(block, lanes, depth, width, by_columns, dst); return true;
    default: return false;
  }
}

/// A block of bfloat16 as panels of pairs, see simd/bfloat16_tile.h.
inline void PackPairPanels(const Block& block, int64_t lanes, int64_t depth, BFloat16* dst) {
  constexpr int64_t kItem = sizeof(BFloat16);
  const auto* const from = reinterpret_cast<const BFloat16*>(block.data);
  const int64_t lane_stride = block.lane_stride / kItem;
  const int64_t depth_stride = block.depth_stride / kItem;
  if (depth_stride == 1) return simd::PairPanelsOfColumns(from, lane_stride, lanes, depth, dst);
  if (lane_stride == 1) return simd::PairPanelsOfRows(from, depth_stride, lanes, depth, dst);
  constexpr int64_t kWidth = simd::kPairPanelWidth;
  BFloat16 row[2][kBlockDepth];
  for (int64_t k = 0; k < depth; k += 2) {
    for (int64_t begin = 0; begin < lanes; begin += kBlockDepth) {
      const int64_t count = std::min(kBlockDepth, lanes - begin);
      for (int64_t s = 0; s < 2; ++s) {
        for (int64_t j = 0; j < count; ++j) {
          row[s][j] = k + s < depth ? from[(begin + j) * lane_stride + (k + s) * depth_stride] : BFloat16();
        }
      }
      BFloat16* to = dst + begin * simd::EvenDepth(depth) + k * kWidth;
      for (int64_t j = 0; j < count; j += kWidth, to += kWidth * simd::EvenDepth(depth)) {
        simd::PairPanelsOfRows(row[0] + j, kBlockDepth, std::min(kWidth, count - j), 2, to);
      }
    }
  }
}

/// Rearranges a block into panels of `width` lanes: dst[(lane / width) * depth * width + k * width + lane % width],
/// missing lanes zero. `line` is scratch, see Layout.
template <class T>
void PackPanels(const Block& block, int64_t lanes, int64_t depth, int64_t width, T* dst, T* line) {
  constexpr int64_t kItem = sizeof(T);
  if constexpr (std::is_same_v<T, float>) {
    if (PackPanelsFast(block, lanes, depth, width, dst)) return;
  }
  const int64_t padded = RoundUp(lanes, width);
  if (block.lane_stride <= block.depth_stride || depth == 1) {
    for (int64_t k = 0; k < depth; ++k) {
      block.cast(block.data + k * block.depth_stride, block.lane_stride, reinterpret_cast<char*>(line), kItem, lanes);
      std::fill(line + lanes, line + padded, T{});
      for (int64_t lane = 0; lane < padded; lane += width) {
        std::copy_n(line + lane, width, dst + lane * depth + k * width);
      }
    }
    return;
  }
  // Lanes are contiguous in depth: read a few at a time and exchange rows and columns.
  for (int64_t lane = 0; lane < padded; lane += kLines) {
    const int64_t count = std::min(kLines, padded - lane);
    for (int64_t l = 0; l < count; ++l) {
      T* to = line + l * kBlockDepth;
      if (lane + l < lanes) {
        block.cast(block.data + (lane + l) * block.lane_stride, block.depth_stride, reinterpret_cast<char*>(to), kItem,
                   depth);
      } else {
        std::fill_n(to, depth, T{});
      }
    }
    // Panels are narrower than kLines on some processors.
    for (int64_t l = 0; l < count; l += width) {
      Transpose(line + l * kBlockDepth, kBlockDepth, std::min(width, count - l), depth,
                dst + (lane + l) / width * width * depth + (lane + l) % width, width);
    }
  }
}

/// A block as panels of pairs of so many parts, see simd/matrix_unit.h, and the byte of each. Its cast goes to float32.
/// `numbers` is scratch for panels of float32.
inline void PackPartPanels(const Block& block, int64_t lanes, int64_t depth, int parts, float* numbers, float* line,
                           BFloat16* dst, uint8_t* least) {
  constexpr int64_t kWidth = simd::kPairPanelWidth;
  PackPanels(block, lanes, depth, kWidth, numbers, line);
  for (int64_t j = 0; j < lanes; j += kWidth) {
    *least++ = simd::PartsOfPanel(numbers + j * depth, depth, parts, dst);
    dst += parts * simd::EvenDepth(depth) * kWidth;
  }
}

}  // namespace reprise::kernels::matmul
