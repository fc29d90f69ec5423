// SPDX-License-Identifier: Apache-2.0
//
// Rows of comparisons and choice (comparison_functions.h) for every instruction set.
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels::simd {

enum class ComparisonRow : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe };

/// Undefined unless `type` is float32, int32 or int64.
ElementRow FindComparisonRow(ComparisonRow row, DType type);

/// out = in[0] ? in[1] : in[2] for elements of that many bytes; null for other numbers than 1, 2, 4 and 8.
RowFn FindWhereRow(int64_t item_bytes);

}  // namespace reprise::kernels::simd
