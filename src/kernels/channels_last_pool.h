// SPDX-License-Identifier: Apache-2.0
//
// Pools of tensors whose channels lie back to back (NHWC): values as pool.h says, but for means of rows of eight and
// more elements, whose sums are taken one by one. No indices.
#pragma once

#include "kernels/pool.h"

namespace reprise::kernels {

/// Whether the functions below take these views [N, C, 1, H, W].
bool FitsChannelsLast(const TensorRef& self, const TensorRef& out);

/// Rows of outputs: the units.
int64_t ChannelsLastPoolRows(const TensorRef& out);
/// Of one of them, in light operations.
int64_t ChannelsLastPoolCost(const PoolShape& shape, const TensorRef& out);
int64_t ChannelsLastPoolScratchBytes(const TensorRef& out);
void ChannelsLastMaxPool(const PoolShape& shape, const TensorRef& self, const TensorRef& out, Range rows,
                         void* scratch);
void ChannelsLastAvgPool(const PoolShape& shape, const TensorRef& self, const TensorRef& out, Range rows,
                         void* scratch);

}  // namespace reprise::kernels
