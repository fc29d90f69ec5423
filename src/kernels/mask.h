// SPDX-License-Identifier: Apache-2.0
//
// Writing where a mask says so. A mask is bool or uint8; any non-zero byte is true.
// Elements are moved bit for bit.
#pragma once

#include "kernels/cast.h"
#include "kernels/strided.h"

namespace reprise::kernels {

/// self[i] = value where mask[i]; the mask broadcasts to self, `value` is one item of self's type. `range` counts
/// elements.
void MaskedFill(const TensorRef& self, const TensorRef& mask, const void* value, Range range);

/// self[i] = the next element of source (row-major), for each i in row-major order where mask[i]; the mask broadcasts.
/// Stops when source is used up.
void MaskedScatter(const TensorRef& self, const TensorRef& mask, const TensorRef& source);

}  // namespace reprise::kernels
