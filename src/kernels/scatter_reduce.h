// SPDX-License-Identifier: Apache-2.0
//
// Elements combined at the places that indices tell, and elements of a flat tensor.
//
// Scatter   target[..index[..i..]..] is combined with src[..i..] along one dim, in ascending order of i. Places that an
//   index names lose what was there first unless it counts. A mean divides by the number of what was added up, integers
//   towards minus infinity.
// Take, Put go by row-major positions of all elements; put in ascending order of the indices.
// Indices   below 0 count from the end; one out of range reads 0 and writes nothing.
// NaN       wins in max and min.
// Data      row-major, of one type of StageOf; indices int64. The result does not depend on how units are cut.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// The type that elements are combined in: float32 for the 16-bit floats, int64 for the narrower integers and bool,
/// which keeps the low bits of sums and products.
DType StageOf(DType type);

enum class ScatterReduction : uint8_t { kReplace, kSum, kProduct, kMax, kMin, kMean };

struct ScatterReduceShape {
  ScatterReduction op = ScatterReduction::kSum;
  bool includes_self = true;
  int rank = 0;
  int dim = 0;
  int64_t sizes[kMaxRank] = {};  ///< of index
  int64_t index_strides[kMaxRank] = {};
  int64_t src_strides[kMaxRank] = {};
  int64_t target_strides[kMaxRank] = {};
  int64_t target_size = 0;  ///< along dim

  int64_t lines() const;
  /// Whether it matters how often a place is named.
  bool counts_places() const { return op == ScatterReduction::kMean || !includes_self; }
};

/// A unit is a line of index along dim; no two share a place. `counts` is scratch for target_size numbers if
/// counts_places.
void ScatterReduceLines(const ScatterReduceShape& shape, DType type, void* target, const int64_t* index,
                        const void* src, int64_t* counts, Range lines);

/// out[i] = self[index[i]], n elements of self; elements of `item` bytes. A unit is an element.
void Take(const void* self, int64_t n, const int64_t* index, void* out, int64_t item, Range range);
/// self[index[i]] = src[i], or += src[i].
void Put(DType type, void* self, int64_t n, const int64_t* index, const void* src, int64_t count, bool accumulates);

/// Rows with the same place become one: indices [count, depth] are copied, values [count, width] added up to those of
/// row place[i] of [rows, ..], which begin as 0.
void Coalesce(DType type, const int64_t* place, int64_t count, int64_t rows, const int64_t* indices, int64_t depth,
              const void* values, int64_t width, int64_t* new_indices, void* new_values);

}  // namespace reprise::kernels
