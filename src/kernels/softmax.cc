// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax.h"

#include "kernels/cast.h"
#include "kernels/simd/rows.h"
#include "kernels/sum_tree.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBuffer = 8 * kSumBlock;  // a row up to this length is read once

// x[i] = exp(x[i] - shift).
void ExpShifted(float* x, float shift, int64_t n) { simd::ExpShiftedRow(x, shift, n); }
void ExpShifted(double* x, double shift, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = std::exp(x[i] - shift);
}

// Largest element; NaNs are passed over (they reach the sum through the exp).
template <class T>
T MaxOf(const T* x, int64_t n, T max) {
  constexpr int64_t kLanes = 16;  // the largest does not depend on the order
  int64_t i = 0;
  if (n >= kLanes) {
    T lanes[kLanes];
    std::fill_n(lanes, kLanes, max);
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t l = 0; l < kLanes; ++l) lanes[l] = x[i + l] > lanes[l] ? x[i + l] : lanes[l];
    }
    for (T lane : lanes) max = lane > max ? lane : max;
  }
  for (; i < n; ++i) max = x[i] > max ? x[i] : max;
  return max;
}

template <class T>
void PushBlocks(const T* x, int64_t n, SumTree<T, 1>& tree) {
  for (int64_t i = 0; i < n; i += kSumBlock) {
    tree.Push(SumOfBlock(x + i, std::min(kSumBlock, n - i)));
  }
}

// One row along the dim, whatever its strides.
template <class T>
class Row {
 public:
  Row(const TensorRef& self, int64_t self_stride, const TensorRef& out, int64_t out_stride, DType compute, int64_t n)
      : load_(self.dtype, compute, DTypeOf<T>()),
        store_(FindCast(DTypeOf<T>(), out.dtype)),
        self_stride_(self_stride * ItemSize(self.dtype)),
        out_stride_(out_stride * ItemSize(out.dtype)),
        n_(n) {}

  void Run(const char* self, char* out) {
    const bool is_short = n_ <= kBuffer;
    T max = -std::numeric_limits<T>::infinity();
    ForEachChunk([&](int64_t begin, int64_t n) {
      Load(self, begin, n);
      max = MaxOf(buffer_, n, max);
    });
    SumTree<T, 1> tree;
    ForEachChunk([&](int64_t begin, int64_t n) {
      if (!is_short) Load(self, begin, n);
      ExpShifted(buffer_, max, n);
      PushBlocks(buffer_, n, tree);
    });
    T sum;
    tree.Finish(&sum);
    ForEachChunk([&](int64_t begin, int64_t n) {
      if (!is_short) {
        Load(self, begin, n);
        ExpShifted(buffer_, max, n);
      }
      for (int64_t i = 0; i < n; ++i) buffer_[i] /= sum;
      store_(reinterpret_cast<const char*>(buffer_), sizeof(T), out + begin * out_stride_, out_stride_, n);
    });
  }

 private:
  template <class Fn>
  void ForEachChunk(Fn&& fn) {
    for (int64_t begin = 0; begin < n_; begin += kBuffer) fn(begin, std::min(kBuffer, n_ - begin));
  }

  void Load(const char* self, int64_t begin, int64_t n) {
    load_.Read(self + begin * self_stride_, self_stride_, reinterpret_cast<char*>(buffer_), sizeof(T), n);
  }

  RowReader load_;
  CastFn store_;
  int64_t self_stride_;
  int64_t out_stride_;
  int64_t n_;
  alignas(64) T buffer_[kBuffer];
};

TensorRef WithoutDim(TensorRef ref, int dim) {
  if (ref.rank == 0) return ref;
  --ref.rank;
  for (int d = dim; d < ref.rank; ++d) {
    ref.sizes[d] = ref.sizes[d + 1];
    ref.strides[d] = ref.strides[d + 1];
  }
  return ref;
}

template <class T>
void RunRows(const TensorRef& self, int dim, DType compute, const TensorRef& out, Range range) {
  const TensorRef self_rows = WithoutDim(self, dim);
  const TensorRef out_rows = WithoutDim(out, dim);
  const bool is_scalar = out.rank == 0;
  Row<T> row(self, is_scalar ? 0 : self.strides[dim], out, is_scalar ? 0 : out.strides[dim], compute,
             is_scalar ? 1 : out.sizes[dim]);
  const Loop loop = MakeLoop({&out_rows, &self_rows});
  ForEachRow(loop, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    for (int64_t i = 0; i < n; ++i) row.Run(ptrs[1] + i * strides[1], ptrs[0] + i * strides[0]);
  });
}

}  // namespace

int64_t SoftmaxRowCount(const TensorRef& out, int dim) {
  if (out.rank == 0) return 1;
  return ElementCount(WithoutDim(out, dim));
}

void Softmax(const TensorRef& self, int dim, DType compute, const TensorRef& out, Range range) {
  if (range.begin >= range.end) return;
  if (compute == DType::kDouble) return RunRows<double>(self, dim, compute, out, range);
  RunRows<float>(self, dim, compute, out, range);
}

}  // namespace reprise::kernels
