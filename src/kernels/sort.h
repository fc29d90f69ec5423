// SPDX-License-Identifier: Apache-2.0
//
// Sorting, selecting and searching along one dim.
//
// Order     NaN is larger than any number, equal elements keep their order
//   (ascending and descending), both zeros are equal.
// Sort      values[i], indices[i] = element i of the sorted row and where it was.
// TopK      the k largest (smallest) elements; sorted, from the best on; else in
//   no order that is worth a name. Of equal elements the first ones.
// Median    element (n - 1) / 2 of the sorted row; NaN if there is one (then the
//   first), or that of the numbers alone, where there are any. Of equal elements any.
// Rank      element k of the sorted row.
// Search    where x goes in the sorted row: before (right: behind) the elements
//   that equal it; NaN goes to the end. Compared in the common type.
// Types     no complex ones. Values are copied, not computed.
// Aliasing  none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Bytes that a call needs for rows of n elements.
int64_t SortScratch(DType dtype, int64_t n);
int64_t TopKScratch(DType dtype, int64_t n, int64_t k);
int64_t MedianScratch(DType dtype, int64_t n);

/// \param values, indices  shape of self (TopK: k in the place of the dim; Median: without the dim); no data: not
/// wanted \param range            counts rows: elements of self without the dim
void Sort(const TensorRef& self, int dim, bool descending, const TensorRef& values, const TensorRef& indices,
          Range range, void* scratch);
void TopK(const TensorRef& self, int64_t k, int dim, bool largest, bool sorted, const TensorRef& values,
          const TensorRef& indices, Range range, void* scratch);
enum class RowChoice : uint8_t { kMedian, kMedianOfNumbers, kRank };
/// \param rank  k for kRank, from 0 on
void Median(const TensorRef& self, int dim, RowChoice choice, int64_t rank, const TensorRef& values,
            const TensorRef& indices, Range range, void* scratch);
/// Of all elements.
void MedianOfAll(const TensorRef& self, RowChoice choice, const TensorRef& value, void* scratch);

/// \param sequence  [.., n]; of rank 1: for all rows of self
/// \param sorter    no data, or int64 like sequence: where its sorted elements are; one outside of the row is passed
/// over
///                  to the nearest
/// \param self      [.., m], or any shape where sequence is of rank 1
/// \param compute   type of the comparison
/// \param range     counts elements of out, row-major
void SearchSorted(const TensorRef& sequence, const TensorRef& sorter, const TensorRef& self, DType compute, bool right,
                  const TensorRef& out, Range range);

}  // namespace reprise::kernels
