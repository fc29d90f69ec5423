// SPDX-License-Identifier: Apache-2.0
//
// Elements of a view, in row-major order, as contiguous numbers of the type that a kernel computes in: where they are
// already so, in place, else collected into (written from) a buffer of the kernel's.
//
//   const Staged<float> x(self), y(out);
//   Compute(x.Read(begin, n, a), y.Target(begin, b), n);
//   y.Write(begin, n, b);
#pragma once

#include <cstdint>

#include <type_traits>

#include "kernels/cast.h"
#include "kernels/simd/matmul_tile.h"
#include "kernels/strided.h"

namespace reprise::kernels {

/// Whether Staged of `type` needs no buffer.
inline bool IsInPlace(const TensorRef& ref, DType type) { return ref.dtype == type && IsContiguous(ref); }

/// `ref` with `dim` behind the others. Rank 0 stays as it is.
inline TensorRef WithDimLast(const TensorRef& ref, int dim) {
  TensorRef moved = ref;
  for (int d = dim; d + 1 < ref.rank; ++d) {
    moved.sizes[d] = ref.sizes[d + 1];
    moved.strides[d] = ref.strides[d + 1];
  }
  if (ref.rank != 0) {
    moved.sizes[ref.rank - 1] = ref.sizes[dim];
    moved.strides[ref.rank - 1] = ref.strides[dim];
  }
  return moved;
}

template <class T>
class Staged {
 public:
  explicit Staged(const TensorRef& ref) : data_(static_cast<T*>(ref.data)), in_place_(IsInPlace(ref, DTypeOf<T>())) {
    if (in_place_) return;
    loop_ = MakeLoop({&ref}, LoopOrder::kRowMajor);
    load_ = FindCast(ref.dtype, DTypeOf<T>());
    store_ = FindCast(DTypeOf<T>(), ref.dtype);
    item_ = ItemSize(ref.dtype);
    is_same_type_ = ref.dtype == DTypeOf<T>();
  }

  bool in_place() const { return in_place_; }

  /// Elements [begin, begin + n); `buffer` takes n of them unless in place.
  const T* Read(int64_t begin, int64_t n, T* buffer) const {
    if (in_place_) return data_ + begin;
    if (IsTransposed(begin, n)) {
      Transpose<false>(begin, n, buffer);
      return buffer;
    }
    T* to = buffer;
    ForEachRow(loop_, {begin, begin + n}, [&](char* const* ptrs, const int64_t* strides, int64_t count) {
      load_(ptrs[0], strides[0], reinterpret_cast<char*>(to), sizeof(T), count);
      to += count;
    });
    return buffer;
  }

  /// Where the elements from `begin` on are to be put before Write.
  T* Target(int64_t begin, T* buffer) const { return in_place_ ? data_ + begin : buffer; }

  /// Stores what Target was filled with.
  void Write(int64_t begin, int64_t n, T* buffer) const {
    if (in_place_) return;
    if (IsTransposed(begin, n)) return Transpose<true>(begin, n, buffer);
    const T* from = buffer;
    ForEachRow(loop_, {begin, begin + n}, [&](char* const* ptrs, const int64_t* strides, int64_t count) {
      store_(reinterpret_cast<const char*>(from), sizeof(T), ptrs[0], strides[0], count);
      from += count;
    });
  }

 private:
  static constexpr int64_t kTile = 16;

  // Whole rows that are columns in memory: neighbours there belong to neighbouring rows.
  bool IsTransposed(int64_t begin, int64_t n) const {
    const int64_t row = loop_.sizes[0];
    return loop_.rank >= 2 && loop_.strides[0][0] != item_ && loop_.strides[1][0] == item_ && n >= 2 * row &&
           begin % row == 0 && n % row == 0;
  }

  // Walks tiles of kTile rows, so that every line of memory is touched once per tile.
  template <bool kStore>
  void Transpose(int64_t begin, int64_t n, T* buffer) const {
    const int64_t row = loop_.sizes[0];
    Loop columns = loop_;  // over the rows: the dims but the innermost
    --columns.rank;
    for (int d = 0; d < columns.rank; ++d) {
      columns.sizes[d] = loop_.sizes[d + 1];
      columns.strides[d][0] = loop_.strides[d + 1][0];
    }
    alignas(64) T line[kTile];
    T* block = buffer;
    ForEachRow(columns, {begin / row, (begin + n) / row}, [&](char* const* ptrs, const int64_t*, int64_t count) {
      for (int64_t first = 0, width = 0; first < count; first += width, block += width * row) {
        width = std::min(kTile, count - first);
        char* at = ptrs[0] + first * item_;
        if constexpr (std::is_same_v<T, float>) {
          if (is_same_type_) {
            auto* const numbers = reinterpret_cast<float*>(at);
            const int64_t step = loop_.strides[0][0] / item_;
            kStore ? simd::Transpose(block, row, width, row, numbers, step)
                   : simd::Transpose(numbers, step, row, width, block, row);
            continue;
          }
        }
        for (int64_t i = 0; i < row; ++i, at += loop_.strides[0][0]) {
          if constexpr (kStore) {
            for (int64_t c = 0; c < width; ++c) line[c] = block[c * row + i];
            store_(reinterpret_cast<const char*>(line), sizeof(T), at, item_, width);
          } else {
            load_(at, item_, reinterpret_cast<char*>(line), sizeof(T), width);
            for (int64_t c = 0; c < width; ++c) block[c * row + i] = line[c];
          }
        }
      }
    });
  }

  T* data_;
  bool in_place_;
  bool is_same_type_ = true;
  Loop loop_;
  CastFn load_ = nullptr;
  CastFn store_ = nullptr;
  int64_t item_ = 0;
};

/// Hands out pieces of scratch, aligned.
class Arena {
 public:
  static constexpr int64_t kAlignment = 64;
  static constexpr int64_t BytesFor(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

  explicit Arena(void* memory) : next_(static_cast<char*>(memory)) {}

  template <class T>
  T* Take(int64_t count) {
    T* piece = reinterpret_cast<T*>(next_);
    next_ += BytesFor(count * static_cast<int64_t>(sizeof(T)));
    return piece;
  }
  /// A buffer for the elements, or null where they need none.
  template <class T>
  T* TakeFor(const Staged<T>& staged, int64_t count) {
    return staged.in_place() ? nullptr : Take<T>(count);
  }

 private:
  char* next_;
};

}  // namespace reprise::kernels
