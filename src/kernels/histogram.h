// SPDX-License-Identifier: Apache-2.0
//
// Counts of elements, and the scaling of slices.
//
// Bincount   out[b] = number of elements b of self, or the sum of their weights; elements outside of [0, size of out)
//   are passed over. Weights are added in float64, in row-major order, and cast once.
// Histogram  counts[b] = number of elements x with b = floor((x - low) / (high - low) * bins), high itself in the last
//   bin; elements outside of [low, high] and NaN are passed over. In float32 (float64 for float64 and
//   integers of 32 and 64 bits).
// Renorm     out = self * f of the element's slice, f = limit / (norm + 1e-7) where the norm is larger than limit, else
//   1; in float32 (float64 for float64), rounded once.
// Aliasing   none; Renorm: out may be the very same view as self.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// \param weights  like self; no data: counts
/// \param scratch  8 bytes for each element of out
void Bincount(const TensorRef& self, const TensorRef& weights, const TensorRef& out, void* scratch);

/// The elements `range` of self in row-major order. Where low equals high, what `data_low` and `data_high` hold takes
/// their place (one element each, of float32 or float64; one step further out on either side if they are equal, too).
void Histogram(const TensorRef& self, double low, double high, const TensorRef& data_low, const TensorRef& data_high,
               int64_t bins, int64_t* counts, Range range);

/// What Histogram computes in for elements of a type; data_low and data_high have it.
DType HistogramType(DType self);

/// \param norms  one for each slice, contiguous, of float32 or float64
/// \param range  counts elements of out
void Renorm(const TensorRef& self, const TensorRef& norms, int dim, double limit, const TensorRef& out, Range range);

}  // namespace reprise::kernels
