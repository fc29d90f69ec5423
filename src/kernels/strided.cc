// SPDX-License-Identifier: Apache-2.0
#include "kernels/strided.h"

namespace reprise::kernels {
namespace {

// Whether dim `a` should lie inside dim `b`: the first operand whose strides
// differ and are both non-zero decides. Broadcast strides say nothing.
bool GoesInside(const Loop& loop, int a, int b) {
  for (int k = 0; k < loop.operand_count; ++k) {
    const int64_t stride_a = loop.strides[a][k];
    const int64_t stride_b = loop.strides[b][k];
    if (stride_a == 0 || stride_b == 0 || stride_a == stride_b) continue;
    return stride_a < stride_b;
  }
  return false;
}

void SwapDims(Loop& loop, int a, int b) {
  std::swap(loop.sizes[a], loop.sizes[b]);
  for (int k = 0; k < loop.operand_count; ++k) std::swap(loop.strides[a][k], loop.strides[b][k]);
}

void SortDims(Loop& loop) {
  for (int d = 1; d < loop.rank; ++d) {
    for (int e = d; e > 0 && GoesInside(loop, e, e - 1); --e) SwapDims(loop, e, e - 1);
  }
}

void JoinDims(Loop& loop) {
  int last = 0;
  for (int d = 1; d < loop.rank; ++d) {
    bool joins = true;
    for (int k = 0; k < loop.operand_count; ++k) {
      joins = joins && loop.strides[d][k] == loop.sizes[last] * loop.strides[last][k];
    }
    if (joins) {
      loop.sizes[last] *= loop.sizes[d];
      continue;
    }
    ++last;
    if (last != d) SwapDims(loop, last, d);
  }
  loop.rank = last + 1;
}

}  // namespace

TensorRef MakeContiguous(void* data, DType dtype, int rank, const int64_t* sizes) {
  TensorRef ref;
  ref.data = data;
  ref.dtype = dtype;
  ref.rank = rank;
  int64_t stride = 1;
  for (int d = rank - 1; d >= 0; --d) {
    ref.sizes[d] = sizes[d];
    ref.strides[d] = stride;
    stride *= sizes[d];
  }
  return ref;
}

TensorRef MakeContiguous(void* data, DType dtype, std::initializer_list<int64_t> sizes) {
  return MakeContiguous(data, dtype, static_cast<int>(sizes.size()), sizes.begin());
}

bool IsContiguous(const TensorRef& ref) {
  int64_t expected = 1;
  for (int d = ref.rank - 1; d >= 0; --d) {
    if (ref.sizes[d] == 0) return true;
    if (ref.sizes[d] != 1 && ref.strides[d] != expected) return false;
    expected *= ref.sizes[d];
  }
  return true;
}

Loop MakeLoop(std::initializer_list<const TensorRef*> operands, LoopOrder order) {
  Loop loop;
  const TensorRef& first = **operands.begin();
  int64_t item[kMaxOperands];
  for (const TensorRef* ref : operands) {
    item[loop.operand_count] = ItemSize(ref->dtype);
    loop.base[loop.operand_count++] = static_cast<char*>(ref->data);
  }
  loop.count = ElementCount(first);
  int rank = 0;
  for (int back = 1; back <= first.rank; ++back) {
    const int64_t size = first.sizes[first.rank - back];
    if (size == 1) continue;
    loop.sizes[rank] = size;
    int k = 0;
    for (const TensorRef* ref : operands) {
      const int d = ref->rank - back;
      const bool repeats = d < 0 || ref->sizes[d] == 1;
      loop.strides[rank][k] = repeats ? 0 : ref->strides[d] * item[k];
      ++k;
    }
    ++rank;
  }
  loop.rank = rank;
  if (rank == 0) {
    loop.rank = 1;
    loop.sizes[0] = 1;
    for (int k = 0; k < loop.operand_count; ++k) loop.strides[0][k] = item[k];
  } else if (rank > 1 && loop.count != 0) {
    if (order == LoopOrder::kFree) SortDims(loop);
    JoinDims(loop);
  }
  return loop;
}

}  // namespace reprise::kernels
