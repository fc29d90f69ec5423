// SPDX-License-Identifier: Apache-2.0
//
// Fold: the same element of several buffers combined in the order of the buffers. Each element on its own, so the
// result does not depend on how the elements are cut.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace reprise::collective {

using kernels::DType;

enum class FoldKind : uint8_t { kSum, kProduct, kMax, kMin };

/// dst[i] = sources[0][i] op sources[1][i] op … from left to right. Half and BFloat16 are combined in float32 and
/// rounded once, to nearest even; other types in their own. Integers wrap around. A NaN makes the maximum and the
/// minimum a NaN; +0 is greater than -0. `dst` may be one of the sources. Types: integers, Half, BFloat16, float,
/// double.
void Fold(DType type, FoldKind kind, void* dst, const void* const* sources, size_t source_count, int64_t count);

}  // namespace reprise::collective
