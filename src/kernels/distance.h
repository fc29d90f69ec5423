// SPDX-License-Identifier: Apache-2.0
//
// Distances between rows of matrices, and what they give back.
//
// Formula       d(a, b) = (sum over m of |a[m] - b[m]|^p)^(1/p); p = 0: how many m differ; p = Inf: the largest
//   difference. Its gradient with regard to a is 0 where d is 0, and for p = 0.
// Accumulation  in the type of the data, float32 or float64, in eight sums of every eighth element.
// NaN, Inf      IEEE 754; the largest difference is NaN if one is.
// Data          row-major, of one type; out overlaps nothing. The result does not depend on how units are cut.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Two batches of matrices; a batch of several sizes is walked by strides in matrices, 0 where it repeats.
struct RowPairs {
  double p = 2;  ///< 0 or more, or Inf
  int64_t rows = 0;
  int64_t others = 0;
  int64_t columns = 0;
  int batch_rank = 0;
  int64_t batch[kMaxRank] = {};
  int64_t row_steps[kMaxRank] = {};    ///< from batch to batch, in matrices
  int64_t other_steps[kMaxRank] = {};  ///< of the others

  int64_t batches() const;
};

/// out [batches, rows, others]; a unit is a row of a batch.
void Distances(const RowPairs& pairs, DType type, const void* rows, const void* others, void* out, Range units);
/// out [batches, rows, columns] = sum over the others of grad * (gradient of the distance); a unit is a row of a batch.
void DistanceGradients(const RowPairs& pairs, DType type, const void* grad, const void* rows, const void* others,
                       const void* distances, void* out, Range units);
/// out: the distances of rows i < j in row-major order of (i, j); a unit is a row i.
void OwnDistances(const RowPairs& pairs, DType type, const void* rows, void* out, Range units);

}  // namespace reprise::kernels
