// SPDX-License-Identifier: Apache-2.0
#include "kernels/pool.h"

#include <cstring>

#include "kernels/plane.h"
#include "kernels/pool_window.h"
#include "kernels/simd/centred_sums.h"
#include "kernels/sum_tree.h"

namespace reprise::kernels {
namespace {

// ---- Max ----

// best[i] = x[i * stride] where that is larger or NaN, with its index. A loop that compilers vectorise.
template <int kStride, bool kIndex, class T>
void Take(const T* __restrict x, int64_t any_stride, int32_t position, int64_t n, T* __restrict best,
          int32_t* __restrict index) {
  const int64_t stride = kStride != 0 ? kStride : any_stride;
  for (int64_t i = 0; i < n; ++i) {
    const T value = x[i * stride];
    const bool takes = static_cast<bool>(static_cast<int>(value > best[i]) | static_cast<int>(value != value));
    best[i] = takes ? value : best[i];
    if constexpr (kIndex) index[i] = takes ? position + static_cast<int32_t>(i * stride) : index[i];
  }
}

// The same for kTaps neighbours of each, one after the other.
template <int kTaps, int kStride, bool kIndex, class T>
void TakeNeighbours(const T* __restrict x, int32_t position, int64_t n, T* __restrict best, int32_t* __restrict index) {
  for (int64_t i = 0; i < n; ++i) {
    T most = best[i];
    int32_t at = kIndex ? index[i] : 0;
    for (int tap = 0; tap < kTaps; ++tap) {
      const T value = x[i * kStride + tap];
      const bool takes = static_cast<bool>(static_cast<int>(value > most) | static_cast<int>(value != value));
      most = takes ? value : most;
      if constexpr (kIndex) at = takes ? position + static_cast<int32_t>(i * kStride) + tap : at;
    }
    best[i] = most;
    if constexpr (kIndex) index[i] = at;
  }
}

// The outputs whose windows have a tap of a row of the kernel inside of the input, and where the first of them has it.
struct MaxTap {
  int64_t begin;
  int64_t end;
  int64_t at;
};

// Elements of a row with all that windows see beside it.
int64_t PaddedWidth(const PoolDim& w) {
  return std::max(w.pad + w.in, (w.out - 1) * w.stride + (w.kernel - 1) * w.dilation + 1);
}

template <class T, bool kIndex>
class MaxRows {
 public:
  MaxRows(const PoolShape& shape, const TensorRef& self, const TensorRef& out, void* scratch)
      : shape_(shape),
        self_(self),
        out_(out),
        read_(self.dtype, self.strides[self.rank - 1]),
        write_(out.dtype, out.strides[out.rank - 1]) {
    ScratchCutter cut(scratch);
    row_ = cut.Cut<T>(shape.w.in);
    best_ = cut.Cut<T>(shape.w.out);
    index_ = cut.Cut<int32_t>(shape.w.out);
    first_ = cut.Cut<int32_t>(shape.w.out);
    taps_ = cut.Cut<MaxTap>(shape.w.kernel);
    padded_ = cut.Cut<T>(PaddedWidth(shape.w));
    take_ = FindNeighbours(shape.w);
    if (take_ != nullptr) std::fill_n(padded_, PaddedWidth(shape.w), Lowest());
    // Once: rows may be short, and divisions take longer than comparisons.
    const PoolDim& w = shape.w;
    for (int64_t o = 0; o < w.out; ++o) first_[o] = static_cast<int32_t>(First(o * w.stride - w.pad, w.dilation));
    for (int64_t kw = 0; kw < w.kernel; ++kw) {
      const int64_t shift = kw * w.dilation - w.pad;
      const int64_t begin = shift >= 0 ? 0 : (-shift + w.stride - 1) / w.stride;
      const int64_t end = w.in <= shift ? 0 : std::min(w.out, (w.in - 1 - shift) / w.stride + 1);
      taps_[kw] = {begin, end, begin * w.stride + shift};
    }
  }

  void SetPlane(int64_t plane) {
    from_ = OffsetOf(self_, self_.rank - 3, plane);
    to_ = OffsetOf(out_, out_.rank - 3, plane);
  }

  // Leaves the indices of the row of the plane.
  const int32_t* Run(int64_t oh) {
    const PoolDim& h = shape_.h;
    const PoolDim& w = shape_.w;
    const int64_t to = to_ + oh * out_.strides[out_.rank - 2];
    T* best = write_.Buffer(ElementAt(out_, to), best_);
    std::fill_n(best, w.out, Lowest());
    const int64_t first_h = oh * h.stride - h.pad;
    if constexpr (kIndex) {
      const auto begin = static_cast<int32_t>(First(first_h, h.dilation) * w.in);
      for (int64_t o = 0; o < w.out; ++o) index_[o] = begin + first_[o];
    }
    for (int64_t kh = 0; kh < h.kernel; ++kh) {
      const int64_t ih = first_h + kh * h.dilation;
      if (ih < 0 || ih >= h.in) continue;
      const T* row = read_.Read(ElementAt(self_, from_ + ih * self_.strides[self_.rank - 2]), w.in, row_);
      if (take_ != nullptr) {
        std::copy_n(row, w.in, padded_ + w.pad);
        take_(padded_, static_cast<int32_t>(ih * w.in - w.pad), w.out, best, index_);
        continue;
      }
      for (int64_t kw = 0; kw < w.kernel; ++kw) {
        const auto [begin, end, at] = taps_[kw];
        if (begin >= end) continue;
        const auto position = static_cast<int32_t>(ih * w.in + at);
        switch (w.stride) {
          case 1: Take<1, kIndex>(row + at, 1, position, end - begin, best + begin, index_ + begin); break;
          case 2: Take<2, kIndex>(row + at, 2, position, end - begin, best + begin, index_ + begin); break;
          default: Take<0, kIndex>(row + at, w.stride, position, end - begin, best + begin, index_ + begin);
        }
      }
    }
    write_.Write(ElementAt(out_, to), best, w.out);
    return index_;
  }

 private:
  using TakeFn = void (*)(const T*, int32_t, int64_t, T*, int32_t*);

  // Nothing is smaller, so that it takes no place in front of the row or behind it.
  static T Lowest() {
    if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
    return std::numeric_limits<T>::lowest();
  }

  // For windows of few neighbours, which take all of them in one pass over a row with its padding.
  static TakeFn FindNeighbours(const PoolDim& w) {
    if (w.dilation != 1) return nullptr;
    if (w.kernel == 3 && w.stride == 2) return TakeNeighbours<3, 2, kIndex, T>;
    if (w.kernel == 3 && w.stride == 1) return TakeNeighbours<3, 1, kIndex, T>;
    if (w.kernel == 2 && w.stride == 2) return TakeNeighbours<2, 2, kIndex, T>;
    return nullptr;
  }

  // Where a window that begins at `first` enters the input.
  static int64_t First(int64_t first, int64_t dilation) {
    return first >= 0 ? first : first + (-first + dilation - 1) / dilation * dilation;
  }

  const PoolShape& shape_;
  const TensorRef& self_;
  const TensorRef& out_;
  RowReaderAs<T> read_;
  RowWriterAs<T> write_;
  T* row_;
  T* best_;
  int32_t* index_;
  int32_t* first_;  // of each window, in its row
  MaxTap* taps_;
  T* padded_;
  TakeFn take_;
  int64_t from_ = 0;  // of the plane
  int64_t to_ = 0;
};

void WriteMask(const PoolShape& shape, const int32_t* index, int64_t plane, int64_t oh, const TensorRef& mask) {
  const PoolDim& h = shape.h;
  const PoolDim& w = shape.w;
  const int64_t taps_stride = mask.strides[mask.rank - 2];
  const int64_t stride = mask.strides[mask.rank - 1];
  char* base = ElementAt(mask, OffsetOf(mask, mask.rank - 2, plane));
  for (int64_t tap = 0; tap < h.kernel * w.kernel; ++tap) {
    const int64_t ih = oh * h.stride - h.pad + tap / w.kernel * h.dilation;
    const int64_t shift = tap % w.kernel * w.dilation - w.pad;
    char* row = base + tap * taps_stride + oh * w.out * stride;
    for (int64_t o = 0; o < w.out; ++o) {
      const int64_t iw = o * w.stride + shift;
      row[o * stride] = iw >= 0 && iw < w.in && ih >= 0 && index[o] == ih * w.in + iw ? 1 : 0;
    }
    if (oh + 1 == h.out) {
      row = base + tap * taps_stride;
      for (int64_t i = h.out * w.out; i < mask.sizes[mask.rank - 1]; ++i) row[i * stride] = 0;
    }
  }
}

template <class T, bool kIndex>
void RunMax(const PoolShape& shape, const TensorRef& self, const TensorRef& out, const TensorRef* indices,
            const TensorRef* mask, Range rows, void* scratch) {
  MaxRows<T, kIndex> max(shape, self, out, scratch);
  int64_t plane = 0;
  int64_t oh = 0;
  int64_t to_index = 0;
  for (int64_t unit = rows.begin; unit < rows.end; ++unit, ++oh) {
    if (oh == shape.h.out || unit == rows.begin) {
      plane = unit / shape.h.out;
      oh = unit % shape.h.out;
      max.SetPlane(plane);
      if (indices != nullptr) to_index = OffsetOf(*indices, indices->rank - 3, plane);
    }
    const int32_t* index = max.Run(oh);
    if constexpr (kIndex) {
      if (mask != nullptr) WriteMask(shape, index, plane, oh, *mask);
      if (indices == nullptr) continue;
      const int64_t to = to_index + oh * indices->strides[indices->rank - 2];
      RowWriterAs<int32_t> write(indices->dtype, indices->strides[indices->rank - 1]);
      char* row = ElementAt(*indices, to);
      if (write.is_direct()) {
        std::memcpy(row, index, static_cast<size_t>(shape.w.out) * sizeof(int32_t));
      } else {
        write.Write(row, index, shape.w.out);
      }
    }
  }
}

template <class T>
void RunMaxAs(const PoolShape& shape, const TensorRef& self, const TensorRef& out, const TensorRef* indices,
              const TensorRef* mask, Range rows, void* scratch) {
  if (indices != nullptr || mask != nullptr) return RunMax<T, true>(shape, self, out, indices, mask, rows, scratch);
  RunMax<T, false>(shape, self, out, indices, mask, rows, scratch);
}

// ---- Average ----

float SumOfLong(const float* x, int64_t n) { return simd::SumBlock(x, n); }
double SumOfLong(const double* x, int64_t n) { return SumOfBlock(x, n); }

template <class T>
T SumOfRow(const T* x, int64_t n) {
  T sum{};
  if (n < kSumLanes) {
    for (int64_t i = 0; i < n; ++i) sum += x[i];
  } else {
    for (int64_t i = 0; i < n; i += kSumBlock) sum += SumOfLong(x + i, std::min(kSumBlock, n - i));
  }
  return sum;
}

template <class T>
void RunAvg(const PoolShape& shape, const TensorRef& self, const TensorRef& out, Range rows, void* scratch) {
  const PoolDim& w = shape.w;
  ScratchCutter cut(scratch);
  T* buffer = cut.Cut<T>(w.in);
  T* sums = cut.Cut<T>(w.in);
  T* result = cut.Cut<T>(w.out);
  Window* windows = cut.Cut<Window>(w.out);
  for (int64_t o = 0; o < w.out; ++o) windows[o] = WindowOf(w, o, shape.count_include_pad);
  const RowReaderAs<T> read(self.dtype, self.strides[self.rank - 1]);
  const RowWriterAs<T> write(out.dtype, out.strides[out.rank - 1]);
  const int rank = self.rank;
  for (int64_t unit = rows.begin; unit < rows.end; ++unit) {
    const int64_t oh = unit % shape.h.out;
    const int64_t od = unit / shape.h.out % shape.d.out;
    const int64_t plane = unit / shape.h.out / shape.d.out;
    const Window in_d = WindowOf(shape.d, od, shape.count_include_pad);
    const Window in_h = WindowOf(shape.h, oh, shape.count_include_pad);
    const int64_t from = OffsetOf(self, rank - 3, plane);
    const T* sum = nullptr;
    for (int64_t id = in_d.begin; id < in_d.end; ++id) {
      for (int64_t ih = in_h.begin; ih < in_h.end; ++ih) {
        const char* at = ElementAt(self, from + id * self.strides[rank - 3] + ih * self.strides[rank - 2]);
        const T* row = read.Read(at, w.in, sum == nullptr ? sums : buffer);
        if (sum == nullptr) {
          sum = row;
        } else {
          for (int64_t i = 0; i < w.in; ++i) sums[i] = sum[i] + row[i];
          sum = sums;
        }
      }
    }
    const int64_t to = OffsetOf(out, rank - 3, plane) + od * out.strides[rank - 3] + oh * out.strides[rank - 2];
    T* values = write.Buffer(ElementAt(out, to), result);
    const int64_t extent = in_d.extent * in_h.extent;
    for (int64_t o = 0; o < w.out; ++o) {
      const int64_t divisor = shape.divisor_override != 0 ? shape.divisor_override : extent * windows[o].extent;
      const T total = sum == nullptr ? T{} : SumOfRow(sum + windows[o].begin, windows[o].end - windows[o].begin);
      values[o] = windows[o].end <= windows[o].begin || sum == nullptr ? T{} : total / static_cast<T>(divisor);
    }
    write.Write(ElementAt(out, to), values, w.out);
  }
}

// ---- Backward ----

// The plane that gradients are added up in: that of grad_in itself where it is a plain one of type T.
template <class T>
class GradPlane {
 public:
  GradPlane(const TensorRef& grad_in, T* buffer)
      : grad_(grad_in),
        h_(grad_in.sizes[grad_in.rank - 2]),
        w_(grad_in.sizes[grad_in.rank - 1]),
        write_(grad_in.dtype, grad_in.strides[grad_in.rank - 1]),
        buffer_(buffer) {
    is_direct_ = write_.is_direct() && grad_in.strides[grad_in.rank - 2] == w_;
  }

  T* Begin(int64_t plane) {
    offset_ = OffsetOf(grad_, grad_.rank - 2, plane);
    T* sums = is_direct_ ? reinterpret_cast<T*>(ElementAt(grad_, offset_)) : buffer_;
    std::fill_n(sums, h_ * w_, T{});
    return sums;
  }
  void End() const {
    if (is_direct_) return;
    for (int64_t ih = 0; ih < h_; ++ih) {
      char* row = ElementAt(grad_, offset_ + ih * grad_.strides[grad_.rank - 2]);
      const T* sums = buffer_ + ih * w_;
      if (write_.is_direct()) {
        std::memcpy(row, sums, static_cast<size_t>(w_) * sizeof(T));
      } else {
        write_.Write(row, sums, w_);
      }
    }
  }

 private:
  const TensorRef& grad_;
  int64_t h_, w_;
  RowWriterAs<T> write_;
  T* buffer_;
  int64_t offset_ = 0;
  bool is_direct_;
};

template <class T>
void RunMaxBackward(const TensorRef& grad_out, const TensorRef& indices, const TensorRef& grad_in, Range planes,
                    void* scratch) {
  const int rank = grad_in.rank;
  const int64_t size = grad_in.sizes[rank - 2] * grad_in.sizes[rank - 1];
  const int64_t rows = grad_out.sizes[rank - 2];
  const int64_t n = grad_out.sizes[rank - 1];
  ScratchCutter cut(scratch);
  T* grads = cut.Cut<T>(n);
  int64_t* index = cut.Cut<int64_t>(n);
  GradPlane<T> plane_sums(grad_in, cut.Cut<T>(0));
  const RowReaderAs<T> read(grad_out.dtype, grad_out.strides[rank - 1]);
  const RowReaderAs<int64_t> read_index(indices.dtype, indices.strides[rank - 1]);
  for (int64_t plane = planes.begin; plane < planes.end; ++plane) {
    T* sums = plane_sums.Begin(plane);
    const int64_t from = OffsetOf(grad_out, rank - 2, plane);
    const int64_t from_index = OffsetOf(indices, rank - 2, plane);
    for (int64_t oh = 0; oh < rows; ++oh) {
      const T* g = read.Read(ElementAt(grad_out, from + oh * grad_out.strides[rank - 2]), n, grads);
      const int64_t* at = read_index.Read(ElementAt(indices, from_index + oh * indices.strides[rank - 2]), n, index);
      for (int64_t o = 0; o < n; ++o) {
        if (static_cast<uint64_t>(at[o]) < static_cast<uint64_t>(size)) sums[at[o]] += g[o];
      }
    }
    plane_sums.End();
  }
}

template <class T>
void RunAvgBackward(const PoolShape& shape, const TensorRef& grad_out, const TensorRef& grad_in, Range planes,
                    void* scratch) {
  const int rank = grad_in.rank;
  const PoolDim& h = shape.h;
  const PoolDim& w = shape.w;
  ScratchCutter cut(scratch);
  T* grads = cut.Cut<T>(w.out);
  T* spread = cut.Cut<T>(w.in);
  GradPlane<T> plane_sums(grad_in, cut.Cut<T>(0));
  const RowReaderAs<T> read(grad_out.dtype, grad_out.strides[rank - 1]);
  for (int64_t plane = planes.begin; plane < planes.end; ++plane) {
    T* sums = plane_sums.Begin(plane);
    const int64_t from = OffsetOf(grad_out, rank - 2, plane);
    for (int64_t oh = 0; oh < h.out; ++oh) {
      const Window in_h = WindowOf(h, oh, shape.count_include_pad);
      const T* g = read.Read(ElementAt(grad_out, from + oh * grad_out.strides[rank - 2]), w.out, grads);
      std::fill_n(spread, w.in, T{});
      for (int64_t o = 0; o < w.out; ++o) {
        const Window in_w = WindowOf(w, o, shape.count_include_pad);
        const T share = g[o] / static_cast<T>(in_h.extent * in_w.extent);
        for (int64_t i = in_w.begin; i < in_w.end; ++i) spread[i] += share;
      }
      for (int64_t ih = in_h.begin; ih < in_h.end; ++ih) {
        T* row = sums + ih * w.in;
        for (int64_t i = 0; i < w.in; ++i) row[i] += spread[i];
      }
    }
    plane_sums.End();
  }
}

}  // namespace

int64_t PoolRowCount(const TensorRef& out) {
  int64_t rows = 1;
  for (int d = 0; d + 1 < out.rank; ++d) rows *= out.sizes[d];
  return rows;
}

int64_t PoolScratchBytes(const PoolShape& shape) {
  return ScratchCutter::Bytes<double>(shape.w.in) * 2 + ScratchCutter::Bytes<double>(shape.w.out) +
         ScratchCutter::Bytes<Window>(shape.w.out) + ScratchCutter::Bytes<int32_t>(shape.w.out) +
         ScratchCutter::Bytes<double>(PaddedWidth(shape.w)) + ScratchCutter::Bytes<MaxTap>(shape.w.kernel);
}

void MaxPool(const PoolShape& shape, const TensorRef& self, const TensorRef& out, const TensorRef* indices,
             const TensorRef* mask, Range rows, void* scratch) {
  switch (self.dtype) {
    case DType::kFloat:
    case DType::kFloat16:
    case DType::kBFloat16: return RunMaxAs<float>(shape, self, out, indices, mask, rows, scratch);
    case DType::kDouble: return RunMaxAs<double>(shape, self, out, indices, mask, rows, scratch);
    case DType::kUInt64: return RunMaxAs<uint64_t>(shape, self, out, indices, mask, rows, scratch);
    default: return RunMaxAs<int64_t>(shape, self, out, indices, mask, rows, scratch);
  }
}

void AvgPool(const PoolShape& shape, const TensorRef& self, const TensorRef& out, Range rows, void* scratch) {
  if (self.dtype == DType::kDouble) return RunAvg<double>(shape, self, out, rows, scratch);
  RunAvg<float>(shape, self, out, rows, scratch);
}

int64_t PoolBackwardScratchBytes(const TensorRef& grad_out, const TensorRef& grad_in) {
  const int rank = grad_in.rank;
  return ScratchCutter::Bytes<double>(grad_out.sizes[rank - 1]) * 2 +
         ScratchCutter::Bytes<double>(grad_in.sizes[rank - 1]) +
         ScratchCutter::Bytes<double>(grad_in.sizes[rank - 2] * grad_in.sizes[rank - 1]);
}

void MaxPoolBackward(const TensorRef& grad_out, const TensorRef& indices, const TensorRef& grad_in, Range planes,
                     void* scratch) {
  if (grad_in.dtype == DType::kDouble) {
    return RunMaxBackward<double>(grad_out, indices, grad_in, planes, scratch);
  }
  RunMaxBackward<float>(grad_out, indices, grad_in, planes, scratch);
}

void AvgPoolBackward(const PoolShape& shape, const TensorRef& grad_out, const TensorRef& grad_in, Range planes,
                     void* scratch) {
  if (grad_in.dtype == DType::kDouble) return RunAvgBackward<double>(shape, grad_out, grad_in, planes, scratch);
  RunAvgBackward<float>(shape, grad_out, grad_in, planes, scratch);
}

}  // namespace reprise::kernels
