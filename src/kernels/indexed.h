// SPDX-License-Identifier: Apache-2.0
//
// Elements found by indices: the loop behind gather, index, index_select, embedding, scatter, index_add, index_put.
//
// Formula   place(i) = self_offset(i) + sum over k of index_k(i) * step_k
//             Gather:   value(i) = self[place(i)]
//             Scatter:  self[place(i)] = value(i), or += or *=, in row-major order of i
//   An index below 0 counts from the end if the plan says so. One that is out of range reads 0 and writes nothing.
// Sums      Integers wrap modulo 2^bits; bool + is or, bool * is and. float16 and bfloat16 are added up by the caller
// in
//   float32: the accumulating functions take no 16-bit float as self.
// Splitting along one dim of the loop, IndexLoop::split, which never leads two items to one place when it matters;
// where
//   rows are written that one index each finds, by place, so that each part reads all indices.
#pragma once

#include "kernels/cast.h"
#include "kernels/strided.h"

namespace reprise::kernels {

inline constexpr int kMaxIndices = kMaxRank;

/// One tensor of indices.
struct IndexOperand {
  int64_t strides[kMaxRank] = {};  // bytes, along the dims of the loop
  int64_t size = 0;                // of the indexed dim
  int64_t step = 0;                // bytes of self from one index to the next
  int64_t begin = 0;               // bytes from the data of the tensor to its first index
  bool is_wide = false;            // int64, else int32
  bool wraps = true;               // below 0 counts from the end
};

/// The loop, without addresses. Filled from the outermost dim to the innermost by AddDim, then Finish.
struct IndexLoop {
  int rank = 0;
  int index_count = 0;
  int split = -1;          // dim whose positions a Range counts; -1: none, all is one unit
  bool by_places = false;  // a Range counts values of the one index: each part writes what belongs to its own
  int64_t sizes[kMaxRank] = {};
  int64_t value_strides[kMaxRank] = {};  // bytes
  int64_t self_strides[kMaxRank] = {};   // bytes; 0 along dims that only the indices walk
  IndexOperand indices[kMaxIndices];

  /// Strides of the indices along it are set by the caller: indices[k].strides[return value].
  int AddDim(int64_t size, int64_t value_stride, int64_t self_stride) {
    sizes[rank] = size;
    value_strides[rank] = value_stride;
    self_strides[rank] = self_stride;
    return rank++;
  }
  /// Joins dims and chooses `split`; with `writes_self` among those along which places are distinct.
  void Finish(bool writes_self);
  int64_t count() const {
    int64_t product = 1;
    for (int d = 0; d < rank; ++d) product *= sizes[d];
    return product;
  }
  /// Positions of the split dim, or places.
  int64_t units() const { return by_places ? indices[0].size : split < 0 ? 1 : sizes[split]; }
};

enum class ScatterOp : uint8_t { kReplace, kAdd, kMultiply };

/// `indices`: the data of each tensor of indices. `range` counts positions of loop.split.
void GatherIndexed(const IndexLoop& loop, const char* self, const void* const* indices, DType dtype, char* value,
                   Range range);

/// `value` is of type `value_dtype` and converts to `dtype`, the type of self, then is multiplied by `alpha` unless
/// that is null. \pre dtype is no 16-bit float unless op is kReplace.
void ScatterIndexed(const IndexLoop& loop, ScatterOp op, char* self, DType dtype, const void* const* indices,
                    const char* value, DType value_dtype, const Scalar* alpha, Range range);

/// Gradient of an embedding: row v of `out` [rows, width] is the sum of the rows of `grad` [n, width] whose index is v,
/// in ascending order, divided by their number if `by_frequency`; rows without any, and row `padding`, are 0. Sums in
/// float32 (float64 for that). `heads` (rows) and `links` (n) are int64 scratch, shared by all ranges, `line` scratch
/// of this range for `width` elements of 8 bytes. `range` counts rows of out.
void EmbeddingGradient(const TensorRef& grad, const void* indices, int64_t index_stride, bool is_wide, int64_t n,
                       int64_t padding, bool by_frequency, const TensorRef& out, int64_t* heads, int64_t* links,
                       void* line, Range range);

}  // namespace reprise::kernels
