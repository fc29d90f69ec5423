// SPDX-License-Identifier: Apache-2.0
//
// Tensors made of positions: sequences, the identity, triangles, repeated elements.
//
// Sequences are computed in float64 (integers: in int64 where the numbers are) and rounded once to the output's type;
// element i depends on i alone, so any partition gives the same bits.
#pragma once

#include "kernels/cast.h"
#include "kernels/strided.h"

namespace reprise::kernels {

/// out[i] = start + i * step. `out` has rank 1; floating: all is float64; integer: all is int64. `range` counts
/// elements.
void Arange(const Scalar& start, const Scalar& step, const TensorRef& out, Range range);

/// out[i] = start + i * step for the first half of `count` elements, end - (count - 1 - i) * step for the rest, with
/// step = (end - start) / (count - 1). Integers are cut towards zero, start and end first. `out` has rank 1.
void Linspace(const Scalar& start, const Scalar& end, int64_t count, const TensorRef& out, Range range);

/// out[i][j] = i == j. `range` counts rows.
void Eye(const TensorRef& out, Range range);

/// out[.., i, j] = self[.., i, j] where j - i <= diagonal (lower) or j - i >= diagonal (else), 0 elsewhere. Out may be
/// the very same view as self. `range` counts rows: the product of all sizes but the last.
void Triangle(const TensorRef& self, bool is_lower, int64_t diagonal, const TensorRef& out, Range range);

/// out[.., i, ..] = repeats[i] copies of self[i] side by side, both flat in row-major order; `repeats` (int32, int64)
/// has one element or as many as self, negative ones count as 0. What out has beyond is 0, what it lacks is left out.
/// One range only: out of rank 1.
void RepeatEach(const TensorRef& self, const TensorRef& repeats, const TensorRef& out);

}  // namespace reprise::kernels
