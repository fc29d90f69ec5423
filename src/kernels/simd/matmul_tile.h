// SPDX-License-Identifier: Apache-2.0
//
// The inner blocks of matrix products, float32 and float64, compiled once per instruction set. Fused multiply-add is
// used where the processor has it, so bits may differ between instruction sets (not between cuts of a block into rows
// and columns: each element is a chain over the depth of its own).
#pragma once

#include <cstdint>

#include "kernels/float16.h"

namespace reprise::kernels::simd {

/// A multiple of the rows of a tile on every processor.
inline constexpr int64_t kTileRows = 12;

/// Columns of one panel of the right operand on this processor; divides 32.
int64_t PanelWidth(float);
int64_t PanelWidth(double);

/// Left operand: element (i, k) lies at data[i * row_stride + k].
template <class T>
struct LeftRows {
  const T* data;
  int64_t row_stride;
};

/// Right operand: element (k, j) of panel p lies at
/// data[p * panel_stride + k * row_stride + j].
template <class T>
struct RightPanels {
  const T* data;
  int64_t panel_stride;
  int64_t row_stride;
};

/// Memory that will be read soon; any address.
struct NextRead {
  const char* data = nullptr;  ///< null: nothing
  int64_t rows = 0;
  int64_t row_stride = 0;  ///< bytes
  int64_t row_bytes = 0;
  /// The panels themselves lie in memory, back to back: each is asked for during the one before, of this as many bytes
  /// during the last. Panels that are read together count as one.
  bool is_behind_panels = false;
  int share = 1;  ///< bytes of panels that become of one byte
};

/// c[rows x cols] = left * right, or += if `accumulates`. Rows of c are `c_stride` elements apart. \pre cols is a
/// multiple of PanelWidth(T()); depth > 0. `next` is on its way to the caches afterwards. Panels of 16 bits
/// are widened in registers: the bits are those of widened panels.
void MultiplyBlock(LeftRows<float> left, RightPanels<float> right, float* c, int64_t c_stride, int64_t rows,
                   int64_t cols, int64_t depth, bool accumulates, const NextRead* next = nullptr);
void MultiplyBlock(LeftRows<float> left, RightPanels<Half> right, float* c, int64_t c_stride, int64_t rows,
                   int64_t cols, int64_t depth, bool accumulates, const NextRead* next = nullptr);
void MultiplyBlock(LeftRows<float> left, RightPanels<BFloat16> right, float* c, int64_t c_stride, int64_t rows,
                   int64_t cols, int64_t depth, bool accumulates, const NextRead* next = nullptr);
void MultiplyBlock(LeftRows<double> left, RightPanels<double> right, double* c, int64_t c_stride, int64_t rows,
                   int64_t cols, int64_t depth, bool accumulates, const NextRead* next = nullptr);

/// Whether this processor widens float16 by itself. Else panels of it cost more than they save.
bool WidensHalf();

/// As MultiplyBlock, for few rows and a right operand that is read where it lies, once, and widened on the way.
template <class T, class B>
struct StreamBlock {
  LeftRows<T> left;
  const B* right;
  int64_t right_stride;  ///< elements
  T* c;
  int64_t c_stride;
  int64_t rows, cols, depth;
  bool accumulates;
};

/// Columns of the right operand lie back to back in depth: element (k, j) at right[j * right_stride + k]. An element of
/// c is the sum of as many chains as a vector has lanes.
void MultiplyByColumns(const StreamBlock<float, float>& block);
void MultiplyByColumns(const StreamBlock<float, Half>& block);
void MultiplyByColumns(const StreamBlock<float, BFloat16>& block);
void MultiplyByColumns(const StreamBlock<float, int8_t>& block);
void MultiplyByColumns(const StreamBlock<double, double>& block);

/// Rows do: element (k, j) at right[k * right_stride + j]. One chain. \pre not `accumulates`.
void MultiplyByRows(const StreamBlock<float, float>& block);
void MultiplyByRows(const StreamBlock<float, Half>& block);
void MultiplyByRows(const StreamBlock<float, BFloat16>& block);
void MultiplyByRows(const StreamBlock<float, int8_t>& block);
void MultiplyByRows(const StreamBlock<double, double>& block);

/// c = left * right, all where they lie, of so little that cutting and packing would take longer than to multiply. An
/// element is one chain, as in MultiplyBlock. \pre cols is a multiple of 8; not `accumulates`
void MultiplySmall(const StreamBlock<float, float>& block);

/// dst[j * dst_stride + i] = src[i * src_stride + j] for i < rows, j < cols.
void Transpose(const float* src, int64_t src_stride, int64_t rows, int64_t cols, float* dst, int64_t dst_stride);

}  // namespace reprise::kernels::simd
