// SPDX-License-Identifier: Apache-2.0
//
// Norm of all elements of a tensor: (sum of |x| ^ order) ^ (1 / order); order 0 counts the elements that are not 0,
// order infinity is the largest |x|, -infinity the smallest.
//
// Accumulation  float64. The elements are added in blocks; the order depends on range and layout.
// NaN, Inf      NaN where an element is NaN.
#pragma once

#include <span>

#include "kernels/strided.h"

namespace reprise::kernels {

/// What the elements `range` of a real tensor add to its norm: the sum, or the largest or smallest |x|.
/// \pre range is not empty.
double NormPart(const TensorRef& x, double order, Range range);

/// The norm from the parts of all elements; of none for a tensor without any.
double JoinNorms(std::span<const double> parts, double order);

}  // namespace reprise::kernels
