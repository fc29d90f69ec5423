// SPDX-License-Identifier: Apache-2.0
//
// Which strided views share memory.
#pragma once

#include <cstdint>

#include "kernels/strided.h"

namespace reprise::ops {

enum class Overlap : uint8_t {
  kNone,
  kSome,
  kUnknown,  ///< only the strides of many dims that do not nest would tell, at a price that nobody wants to pay
};

/// Whether the views have a byte in common. Exact for views of one layout, for slices of a tensor, for all whose
/// strides nest; a few thousand steps at most. \pre they have elements, and lie within the address space
Overlap OverlapOf(const kernels::TensorRef& a, const kernels::TensorRef& b);

/// Whether two elements of the view have a byte in common. \pre as above
Overlap OverlapWithin(const kernels::TensorRef& ref);

}  // namespace reprise::ops
