// SPDX-License-Identifier: Apache-2.0
//
// Right operands of matrix products rearranged into the panels that simd/matmul_tile.h multiplies, compiled once per
// instruction set. Only moves and widens: the same bits everywhere.
#pragma once

#include <cstdint>

#include "kernels/float16.h"

namespace reprise::kernels::simd {

/// One panel of columns that lie back to back in depth: panel[k * width + j] = source[j * stride + k] for j < lanes and
/// k < depth, 0 for j from lanes to width = PanelWidth(float()). \pre 0 < lanes <= width
void PanelOfColumns(const float* source, int64_t stride, int64_t lanes, int64_t depth, float* panel);
void PanelOfColumns(const Half* source, int64_t stride, int64_t lanes, int64_t depth, float* panel);
void PanelOfColumns(const BFloat16* source, int64_t stride, int64_t lanes, int64_t depth, float* panel);

/// Panels of rows: panels[j / width * width * depth + k * width + j % width] = source[k * stride + j] for j < lanes, 0
/// behind them to the end of the last panel.
void PanelsOfRows(const float* source, int64_t stride, int64_t lanes, int64_t depth, float* panels);
void PanelsOfRows(const Half* source, int64_t stride, int64_t lanes, int64_t depth, float* panels);
void PanelsOfRows(const BFloat16* source, int64_t stride, int64_t lanes, int64_t depth, float* panels);

/// row[j] = alpha * row[j] + beta * addend[j], each product rounded.
void ScaleAddRow(float* row, float alpha, const float* addend, float beta, int64_t n);

}  // namespace reprise::kernels::simd
