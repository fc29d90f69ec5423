// SPDX-License-Identifier: Apache-2.0
//
// For kernels on images: tensors [leading dims.., D, H, W] taken apart into rows along W, read and written as numbers
// of one type whatever the tensor holds and however it lies.
#pragma once

#include "kernels/cast.h"
#include "kernels/strided.h"

namespace reprise::kernels {

/// Element offset of entry `index` of the first `dims` dims of `ref`, counted in row-major order.
inline int64_t OffsetOf(const TensorRef& ref, int dims, int64_t index) {
  int64_t offset = 0;
  for (int d = dims - 1; d > 0; --d) {
    offset += index % ref.sizes[d] * ref.strides[d];
    index /= ref.sizes[d];
  }
  return dims == 0 ? 0 : offset + index * ref.strides[0];
}

/// Address of the element at `offset`.
inline char* ElementAt(const TensorRef& ref, int64_t offset) {
  return static_cast<char*>(ref.data) + offset * ItemSize(ref.dtype);
}

/// Rows of a tensor as numbers of type T, in place where they are that already.
template <class T>
class RowReaderAs {
 public:
  RowReaderAs(DType dtype, int64_t stride)
      : cast_(FindCast(dtype, DTypeOf<T>())),
        stride_(stride * ItemSize(dtype)),
        is_direct_(dtype == DTypeOf<T>() && stride == 1) {}

  bool is_direct() const { return is_direct_; }
  /// The n elements from `row` on; `buffer` has room for them.
  const T* Read(const char* row, int64_t n, T* buffer) const {
    if (is_direct_) return reinterpret_cast<const T*>(row);
    cast_(row, stride_, reinterpret_cast<char*>(buffer), sizeof(T), n);
    return buffer;
  }

 private:
  CastFn cast_;
  int64_t stride_;
  bool is_direct_;
};

template <class T>
class RowWriterAs {
 public:
  RowWriterAs(DType dtype, int64_t stride)
      : cast_(FindCast(DTypeOf<T>(), dtype)),
        stride_(stride * ItemSize(dtype)),
        is_direct_(dtype == DTypeOf<T>() && stride == 1) {}

  bool is_direct() const { return is_direct_; }
  /// Where to put the elements of `row` before Write.
  T* Buffer(char* row, T* buffer) const { return is_direct_ ? reinterpret_cast<T*>(row) : buffer; }
  void Write(char* row, const T* buffer, int64_t n) const {
    if (!is_direct_) cast_(reinterpret_cast<const char*>(buffer), sizeof(T), row, stride_, n);
  }

 private:
  CastFn cast_;
  int64_t stride_;
  bool is_direct_;
};

/// Cuts pieces off scratch memory, each aligned to 64 bytes.
class ScratchCutter {
 public:
  explicit ScratchCutter(void* memory) : at_(static_cast<char*>(memory)) {}

  template <class T>
  T* Cut(int64_t count) {
    T* piece = reinterpret_cast<T*>(at_);
    at_ += Bytes<T>(count);
    return piece;
  }
  template <class T>
  static constexpr int64_t Bytes(int64_t count) {
    return (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  }

 private:
  char* at_;
};

}  // namespace reprise::kernels
