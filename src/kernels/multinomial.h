// SPDX-License-Identifier: Apache-2.0
//
// Draws of categories by weight. Weights need not add up to anything; what is negative or no number counts as 0.
//
//   With replacement     each sample takes a uniform number of float64 (philox.h), and the first category whose sum of
//                        weights so far exceeds that share of the whole
//   Without replacement  each category takes an exponential number of float64, divided by its weight; the smallest
//                        ones win, in order
// Element i of the draw is sample or category number i of all rows together. A row without weight gives category 0, or
// the categories in order.
#pragma once

#include <cstdint>

#include "kernels/strided.h"

namespace reprise::kernels {

/// Bytes of scratch for rows of `categories`.
int64_t MultinomialScratchBytes(int64_t categories);

/// \param weights  [.., categories]
/// \param out      [.., samples], the same rows; no more samples than categories without replacement
/// \param range    rows
void Multinomial(const TensorRef& weights, bool replacement, uint64_t seed, uint64_t position, const TensorRef& out,
                 void* scratch, Range range);

}  // namespace reprise::kernels
