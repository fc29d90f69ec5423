// SPDX-License-Identifier: Apache-2.0
#include "kernels/linalg.h"

#include <cmath>
#include <limits>

#include "kernels/arithmetic.h"
#include "kernels/batch.h"
#include "kernels/cast.h"
#include "kernels/simd/matmul_tile.h"

namespace reprise::kernels {
namespace {

bool IsComplex(DType dtype) { return CategoryOf(dtype) == Category::kComplex; }

template <class Fn>
void DispatchWide(DType dtype, Fn&& fn) {
  if (IsComplex(dtype)) return fn(TypeTag<std::complex<double>>{});
  fn(TypeTag<double>{});
}

int64_t WideBytes(DType dtype) { return IsComplex(dtype) ? 16 : 8; }

// Matrices in scratch memory have rows of a multiple of this many elements, and are worked on in blocks of as many.
constexpr int64_t kBlock = 32;

int64_t Padded(int64_t n) { return (n + kBlock - 1) / kBlock * kBlock; }

// Rows of `to` are `to_stride` elements apart; what is beyond the columns of ref becomes 0.
template <class T>
void Load(const TensorRef& ref, const char* from, T* to, int64_t to_stride) {
  const int64_t item = ItemSize(ref.dtype);
  const int64_t columns = ref.sizes[ref.rank - 1];
  const CastFn cast = FindCast(ref.dtype, DTypeOf<T>());
  for (int64_t i = 0; i < ref.sizes[ref.rank - 2]; ++i, to += to_stride) {
    cast(from + i * ref.strides[ref.rank - 2] * item, ref.strides[ref.rank - 1] * item, reinterpret_cast<char*>(to),
         sizeof(T), columns);
    std::fill(to + columns, to + Padded(columns), T{});
  }
}

template <class T>
void Store(const TensorRef& ref, const T* from, int64_t from_stride, char* to) {
  const int64_t item = ItemSize(ref.dtype);
  const CastFn cast = FindCast(DTypeOf<T>(), ref.dtype);
  for (int64_t i = 0; i < ref.sizes[ref.rank - 2]; ++i, from += from_stride) {
    cast(reinterpret_cast<const char*>(from), sizeof(T), to + i * ref.strides[ref.rank - 2] * item,
         ref.strides[ref.rank - 1] * item, ref.sizes[ref.rank - 1]);
  }
}

double Size(double value) { return std::abs(value); }
double Size(std::complex<double> value) { return std::abs(value.real()) + std::abs(value.imag()); }

// y -= factor * x
template <class T>
void SubtractScaled(T* y, T factor, const T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = SubValue(y[i], MulValue(factor, x[i]));
}

// c -= left * right, for a multiple of kBlock columns. `negated` is scratch for rows * depth elements.
template <class T>
void SubtractProduct(const T* left, const T* right, T* c, int64_t stride_left, int64_t stride_right, int64_t stride_c,
                     int64_t rows, int64_t columns, int64_t depth, T* negated) {
  if (rows <= 0 || columns <= 0 || depth <= 0) return;
  if constexpr (std::is_same_v<T, double>) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < depth; ++k) negated[i * depth + k] = -left[i * stride_left + k];
    }
    simd::MultiplyBlock({negated, depth}, {right, simd::PanelWidth(double()), stride_right}, c, stride_c, rows, columns,
                        depth, true);
  } else {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < depth; ++k) {
        SubtractScaled(c + i * stride_c, left[i * stride_left + k], right + k * stride_right, columns);
      }
    }
  }
}

// The row, at or below k, with the largest entry in column k.
template <class T>
int64_t PivotRow(const T* a, int64_t stride, int64_t n, int64_t k) {
  int64_t best = k;
  double size = Size(a[k * stride + k]);
  for (int64_t i = k + 1; i < n; ++i) {
    const double candidate = Size(a[i * stride + k]);
    if (candidate > size || (std::isnan(size) && !std::isnan(candidate))) {
      best = i;
      size = candidate;
    }
  }
  return best;
}

// Elimination in the n rows of a, `stride` elements apart, all of which the steps go along: the first n columns become
// the upper factor (what is below the diagonal is lost). True for an odd number of swapped rows.
template <class T>
bool Eliminate(T* a, int64_t stride, int64_t n, T* negated) {
  bool is_odd = false;
  for (int64_t k0 = 0; k0 < n; k0 += kBlock) {
    const int64_t end = std::min(n, k0 + kBlock);
    for (int64_t k = k0; k < end; ++k) {
      const int64_t best = PivotRow(a, stride, n, k);
      if (best != k) {
        is_odd = !is_odd;
        std::swap_ranges(a + k * stride + k0, a + (k + 1) * stride, a + best * stride + k0);
      }
      const T pivot = a[k * stride + k];
      for (int64_t i = k + 1; i < n; ++i) {
        T& factor = a[i * stride + k];
        if (factor == T{}) continue;
        factor = DivValue(factor, pivot);
        SubtractScaled(a + i * stride + k + 1, factor, a + k * stride + k + 1, end - k - 1);
      }
    }
    // The same steps for the columns to the right: within the block, then below it.
    const int64_t rest = stride - end;
    for (int64_t k = k0; k < end; ++k) {
      for (int64_t i = k + 1; i < end; ++i) {
        SubtractScaled(a + i * stride + end, a[i * stride + k], a + k * stride + end, rest);
      }
    }
    if (end == n) break;
    SubtractProduct(a + end * stride + k0, a + k0 * stride + end, a + end * stride + end, stride, stride, stride,
                    n - end, rest, end - k0, negated);
  }
  return is_odd;
}

// x := the solution of u * x = x, for the upper triangle u; `columns` is a multiple of kBlock.
template <class T>
void SolveUpper(const T* u, int64_t stride, int64_t n, bool unit, T* x, int64_t x_stride, int64_t columns, T* negated) {
  for (int64_t begin = Padded(n) - kBlock; begin >= 0; begin -= kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    SubtractProduct(u + begin * stride + end, x + end * x_stride, x + begin * x_stride, stride, x_stride, x_stride,
                    end - begin, columns, n - end, negated);
    for (int64_t i = end - 1; i >= begin; --i) {
      T* row = x + i * x_stride;
      for (int64_t k = i + 1; k < end; ++k) SubtractScaled(row, u[i * stride + k], x + k * x_stride, columns);
      if (unit) continue;
      for (int64_t j = 0; j < columns; ++j) row[j] = DivValue(row[j], u[i * stride + i]);
    }
  }
}

template <class T>
void SolveLower(const T* l, int64_t stride, int64_t n, bool unit, T* x, int64_t x_stride, int64_t columns, T* negated) {
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    SubtractProduct(l + begin * stride, x, x + begin * x_stride, stride, x_stride, x_stride, end - begin, columns,
                    begin, negated);
    for (int64_t i = begin; i < end; ++i) {
      T* row = x + i * x_stride;
      for (int64_t k = begin; k < i; ++k) SubtractScaled(row, l[i * stride + k], x + k * x_stride, columns);
      if (unit) continue;
      for (int64_t j = 0; j < columns; ++j) row[j] = DivValue(row[j], l[i * stride + i]);
    }
  }
}

// Elements of scratch for n rows of n and `columns` more columns, and for SubtractProduct.
int64_t ScratchElements(int64_t n, int64_t columns) { return n * (Padded(n) + Padded(columns)) + n * kBlock; }

}  // namespace

int64_t InverseScratchBytes(DType dtype, int64_t n) { return ScratchElements(n, n) * WideBytes(dtype); }
int64_t SignLogDetScratchBytes(DType dtype, int64_t n) { return ScratchElements(n, 0) * WideBytes(dtype); }
int64_t TriangularSolveScratchBytes(DType dtype, int64_t n, int64_t columns) {
  return ScratchElements(n, columns) * WideBytes(dtype);
}

void Inverse(const TensorRef& a, const TensorRef& out, Range batches, void* scratch) {
  DispatchWide(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const int64_t n = a.sizes[a.rank - 1];
    const int64_t half = Padded(n);
    const int64_t stride = 2 * half;
    T* const matrix = static_cast<T*>(scratch);  // a, then what becomes the inverse
    T* const negated = matrix + n * stride;
    for (int64_t batch = batches.begin; batch < batches.end; ++batch) {
      Load(a, EntryOf(a, 2, out, 2, batch), matrix, stride);
      for (int64_t i = 0; i < n; ++i) {
        std::fill_n(matrix + i * stride + half, half, T{});
        matrix[i * stride + half + i] = T{1};
      }
      Eliminate(matrix, stride, n, negated);
      SolveUpper(matrix, stride, n, false, matrix + half, stride, half, negated);
      Store(out, matrix + half, stride, EntryOf(out, 2, out, 2, batch));
    }
  });
}

void SignLogDet(const TensorRef& a, const TensorRef& sign, const TensorRef& log, Range batches, void* scratch) {
  DispatchWide(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const int64_t n = a.sizes[a.rank - 1];
    const int64_t stride = Padded(n);
    T* const matrix = static_cast<T*>(scratch);
    const CastFn store_sign = FindCast(DTypeOf<T>(), sign.dtype);
    const CastFn store_log = FindCast(DType::kDouble, log.dtype);
    for (int64_t batch = batches.begin; batch < batches.end; ++batch) {
      Load(a, EntryOf(a, 2, sign, 0, batch), matrix, stride);
      T direction = Eliminate(matrix, stride, n, matrix + n * stride) ? T{-1} : T{1};
      double size = 0;
      for (int64_t i = 0; i < n; ++i) {
        const T pivot = matrix[i * stride + i];
        const double length = std::abs(pivot);
        direction = pivot == T{} ? T{} : MulValue(direction, T(pivot / length));
        size += std::log(length);
      }
      store_sign(reinterpret_cast<const char*>(&direction), 0, EntryOf(sign, 0, sign, 0, batch), 0, 1);
      store_log(reinterpret_cast<const char*>(&size), 0, EntryOf(log, 0, sign, 0, batch), 0, 1);
    }
  });
}

void TriangularSolve(const TensorRef& b, const TensorRef& a, TriangularSystem system, const TensorRef& x, Range batches,
                     void* scratch) {
  // A transposed upper triangle is a lower one.
  TensorRef turned = a;
  if (system.transpose) {
    std::swap(turned.sizes[a.rank - 2], turned.sizes[a.rank - 1]);
    std::swap(turned.strides[a.rank - 2], turned.strides[a.rank - 1]);
  }
  DispatchWide(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const int64_t n = a.sizes[a.rank - 1];
    const int64_t columns = Padded(x.sizes[x.rank - 1]);
    const int64_t stride = Padded(n);
    T* const matrix = static_cast<T*>(scratch);
    T* const result = matrix + n * stride;
    T* const negated = result + n * columns;
    for (int64_t batch = batches.begin; batch < batches.end; ++batch) {
      Load(turned, EntryOf(turned, 2, x, 2, batch), matrix, stride);
      Load(b, EntryOf(b, 2, x, 2, batch), result, columns);
      if (system.upper != system.transpose) {
        SolveUpper(matrix, stride, n, system.unit, result, columns, columns, negated);
      } else {
        SolveLower(matrix, stride, n, system.unit, result, columns, columns, negated);
      }
      Store(x, result, columns, EntryOf(x, 2, x, 2, batch));
    }
  });
}

}  // namespace reprise::kernels
