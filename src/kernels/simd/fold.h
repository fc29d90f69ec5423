// SPDX-License-Identifier: Apache-2.0
//
// Vector bodies of reductions over float32; the formulas and the order of summation are those of reduce.h. Compiled
// once per instruction set and chosen at run time; every set gives the same bits.
#pragma once

#include <cstdint>

namespace reprise::kernels::simd {

/// What is added up.
enum class SumOf : uint8_t { kValue, kMagnitude, kSquare, kSquaredDeviation };

/// The fold of n contiguous elements, n at most kSumBlock for sums. `shift` points to the float that kSquaredDeviation
/// subtracts, else it is not read; `out` to one float.
using BlockFn = void (*)(const void* x, int64_t n, const void* shift, void* out);
BlockFn FindSumBlock(SumOf what);
/// Sums of 2 or 4 blocks of kSumBlock elements each, to as many floats; the bits of BlockFn, but faster.
using BlocksFn = void (*)(const void* x, const void* shift, void* out);
BlocksFn FindSumBlocks(SumOf what, int blocks);
/// Largest or smallest; NaN if there is one.
BlockFn FindExtremeBlock(bool is_max);

/// acc[j] = fold of acc[j] and x[j].
using RowFoldFn = void (*)(void* acc, const void* x, int64_t n);
RowFoldFn FindAddRow();
RowFoldFn FindExtremeRow(bool is_max);

/// Of rows side by side, `step` bytes apart: out[j] = the sum of column j, at most kSumBlock elements, with the bits of
/// BlockFn. At least 16 columns.
using ColumnsFn = void (*)(const void* rows, int64_t step, int64_t count, int64_t columns, void* out);
ColumnsFn FindAddColumns();

}  // namespace reprise::kernels::simd
