// SPDX-License-Identifier: Apache-2.0
//
// Strided memory and the loops over it. A kernel describes its operands as
// TensorRefs (output first), folds them into a Loop and visits rows:
//
//   const Loop loop = MakeLoop({&out, &a, &b});
//   ForEachRow(loop, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
//     // n elements, operand k at ptrs[k] + i * strides[k] (bytes)
//   });
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/dtype.h"

namespace reprise::kernels {

inline constexpr int kMaxRank = 8;
inline constexpr int kMaxOperands = 4;

/// Half-open range [begin, end) of work items; what an item is, each kernel says.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
};

/// Borrowed view of a tensor. Strides count elements, are not negative and are
/// 0 along broadcast dims; `data` already includes the view's offset. Inputs
/// are only read although `data` is not const. Rank 0 is one element.
struct TensorRef {
  void* data = nullptr;
  DType dtype = DType::kUndefined;
  int rank = 0;
  int64_t sizes[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};
};

/// Row-major contiguous view. \pre at most kMaxRank sizes, none negative.
TensorRef MakeContiguous(void* data, DType dtype, std::initializer_list<int64_t> sizes);
TensorRef MakeContiguous(void* data, DType dtype, int rank, const int64_t* sizes);

/// Product of the sizes; 1 for rank 0.
inline int64_t ElementCount(const TensorRef& ref) {
  int64_t count = 1;
  for (int d = 0; d < ref.rank; ++d) count *= ref.sizes[d];
  return count;
}

/// All work of an element-wise kernel writing `out`.
inline Range FullRange(const TensorRef& out) { return {0, ElementCount(out)}; }

/// Whether the elements lie back to back in row-major order.
bool IsContiguous(const TensorRef& ref);

/// The nested loop shared by up to four operands. Dim 0 is the innermost.
struct Loop {
  int operand_count = 0;
  int rank = 1;  // at least 1
  int64_t count = 0;
  int64_t sizes[kMaxRank] = {};
  int64_t strides[kMaxRank][kMaxOperands] = {};  // bytes
  char* base[kMaxOperands] = {};
};

/// What MakeLoop may do with the order of the dims.
enum class LoopOrder : uint8_t {
  kFree,      // sort the dims so that the first operand is walked forwards
  kRowMajor,  // item i of the loop is row-major element i of the first operand
};

/// Folds operands into one loop over the shape of the first.
///
/// The others broadcast to it by NumPy's rules (right-aligned; size 1
/// repeats). Dims of size 1 vanish and neighbours that every operand walks as
/// one dim are joined, so contiguous operands give rank 1. With kFree the loop
/// visits each element once in an order of its own; a partition of
/// [0, count) is still a partition of the elements.
/// \pre shapes broadcast; ranks at most kMaxRank.
Loop MakeLoop(std::initializer_list<const TensorRef*> operands, LoopOrder order = LoopOrder::kFree);

/// Calls fn(char* const* ptrs, const int64_t* strides_bytes, int64_t n) for
/// rows that cover items [range.begin, range.end) of the loop, in order.
template <class Fn>
void ForEachRow(const Loop& loop, Range range, Fn&& fn) {
  int64_t remaining = range.end - range.begin;
  if (remaining <= 0) return;
  int64_t index[kMaxRank];
  char* ptrs[kMaxOperands];
  for (int k = 0; k < loop.operand_count; ++k) ptrs[k] = loop.base[k];
  int64_t rest = range.begin;
  for (int d = 0; d < loop.rank; ++d) {
    index[d] = 0;
    if (rest == 0) continue;
    index[d] = rest % loop.sizes[d];
    rest /= loop.sizes[d];
    for (int k = 0; k < loop.operand_count; ++k) ptrs[k] += index[d] * loop.strides[d][k];
  }
  while (true) {
    const int64_t n = std::min(loop.sizes[0] - index[0], remaining);
    fn(static_cast<char* const*>(ptrs), static_cast<const int64_t*>(loop.strides[0]), n);
    remaining -= n;
    if (remaining == 0) return;
    for (int k = 0; k < loop.operand_count; ++k) ptrs[k] -= index[0] * loop.strides[0][k];
    index[0] = 0;
    for (int d = 1; d < loop.rank; ++d) {
      for (int k = 0; k < loop.operand_count; ++k) ptrs[k] += loop.strides[d][k];
      if (++index[d] < loop.sizes[d]) break;
      for (int k = 0; k < loop.operand_count; ++k) ptrs[k] -= index[d] * loop.strides[d][k];
      index[d] = 0;
    }
  }
}

}  // namespace reprise::kernels
