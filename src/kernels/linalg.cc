// SPDX-License-Identifier: Apache-2.0
#include "kernels/linalg.h"

#include <cmath>
#include <limits>

#include "kernels/arithmetic.h"
#include "kernels/batch.h"
#include "kernels/cast.h"

namespace reprise::kernels {
namespace {

bool IsComplex(DType dtype) { return CategoryOf(dtype) == Category::kComplex; }

template <class Fn>
void DispatchWide(DType dtype, Fn&& fn) {
  if (IsComplex(dtype)) return fn(TypeTag<std::complex<double>>{});
  fn(TypeTag<double>{});
}

int64_t WideBytes(DType dtype) { return IsComplex(dtype) ? 16 : 8; }

template <class T>
void Load(const TensorRef& ref, const char* from, T* to) {
  const int64_t item = ItemSize(ref.dtype);
  const int64_t rows = ref.sizes[ref.rank - 2];
  const int64_t columns = ref.sizes[ref.rank - 1];
  const CastFn cast = FindCast(ref.dtype, DTypeOf<T>());
  for (int64_t i = 0; i < rows; ++i) {
    cast(from + i * ref.strides[ref.rank - 2] * item, ref.strides[ref.rank - 1] * item,
         reinterpret_cast<char*>(to + i * columns), sizeof(T), columns);
  }
}

template <class T>
void Store(const TensorRef& ref, const T* from, char* to) {
  const int64_t item = ItemSize(ref.dtype);
  const int64_t rows = ref.sizes[ref.rank - 2];
  const int64_t columns = ref.sizes[ref.rank - 1];
  const CastFn cast = FindCast(DTypeOf<T>(), ref.dtype);
  for (int64_t i = 0; i < rows; ++i) {
    cast(reinterpret_cast<const char*>(from + i * columns), sizeof(T), to + i * ref.strides[ref.rank - 2] * item,
         ref.strides[ref.rank - 1] * item, columns);
  }
}

double Size(double value) { return std::abs(value); }
double Size(std::complex<double> value) { return std::abs(value.real()) + std::abs(value.imag()); }

// y -= factor * x
template <class T>
void SubtractScaled(T* y, T factor, const T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = SubValue(y[i], MulValue(factor, x[i]));
}

// Brings the row with the largest entry of column k, at or below row k, to row k. False: it was there already.
template <class T>
bool Pivot(T* a, int64_t n, int64_t k, T* other, int64_t other_columns) {
  int64_t best = k;
  double size = Size(a[k * n + k]);
  for (int64_t i = k + 1; i < n; ++i) {
    const double candidate = Size(a[i * n + k]);
    if (candidate > size || (std::isnan(size) && !std::isnan(candidate))) {
      best = i;
      size = candidate;
    }
  }
  if (best == k) return false;
  std::swap_ranges(a + k * n, a + (k + 1) * n, a + best * n);
  std::swap_ranges(other + k * other_columns, other + (k + 1) * other_columns, other + best * other_columns);
  return true;
}

// The upper factor replaces a; `other`, if any, becomes what the same steps make of its rows. True for an odd number of
// swapped rows.
template <class T>
bool Eliminate(T* a, int64_t n, T* other, int64_t other_columns) {
  bool is_odd = false;
  for (int64_t k = 0; k < n; ++k) {
    if (Pivot(a, n, k, other, other_columns)) is_odd = !is_odd;
    const T pivot = a[k * n + k];
    for (int64_t i = k + 1; i < n; ++i) {
      if (a[i * n + k] == T{}) continue;
      const T factor = DivValue(a[i * n + k], pivot);
      SubtractScaled(a + i * n + k + 1, factor, a + k * n + k + 1, n - k - 1);
      SubtractScaled(other + i * other_columns, factor, other + k * other_columns, other_columns);
    }
  }
  return is_odd;
}

// x := the solution of u * x = x, for the upper triangle u.
template <class T>
void SolveUpper(const T* u, int64_t n, bool unit, T* x, int64_t columns) {
  for (int64_t i = n - 1; i >= 0; --i) {
    T* row = x + i * columns;
    for (int64_t k = i + 1; k < n; ++k) SubtractScaled(row, u[i * n + k], x + k * columns, columns);
    if (unit) continue;
    for (int64_t j = 0; j < columns; ++j) row[j] = DivValue(row[j], u[i * n + i]);
  }
}

template <class T>
void SolveLower(const T* l, int64_t n, bool unit, T* x, int64_t columns) {
  for (int64_t i = 0; i < n; ++i) {
    T* row = x + i * columns;
    for (int64_t k = 0; k < i; ++k) SubtractScaled(row, l[i * n + k], x + k * columns, columns);
    if (unit) continue;
    for (int64_t j = 0; j < columns; ++j) row[j] = DivValue(row[j], l[i * n + i]);
  }
}

}  // namespace

int64_t InverseScratchBytes(DType dtype, int64_t n) { return 2 * n * n * WideBytes(dtype); }
int64_t SignLogDetScratchBytes(DType dtype, int64_t n) { return n * n * WideBytes(dtype); }
int64_t TriangularSolveScratchBytes(DType dtype, int64_t n, int64_t columns) {
  return (n * n + n * columns) * WideBytes(dtype);
}

void Inverse(const TensorRef& a, const TensorRef& out, Range batches, void* scratch) {
  DispatchWide(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const int64_t n = a.sizes[a.rank - 1];
    T* const matrix = static_cast<T*>(scratch);
    T* const result = matrix + n * n;
    for (int64_t batch = batches.begin; batch < batches.end; ++batch) {
      Load(a, EntryOf(a, 2, out, 2, batch), matrix);
      std::fill_n(result, n * n, T{});
      for (int64_t i = 0; i < n; ++i) result[i * n + i] = T{1};
      Eliminate(matrix, n, result, n);
      SolveUpper(matrix, n, false, result, n);
      Store(out, result, EntryOf(out, 2, out, 2, batch));
    }
  });
}

void SignLogDet(const TensorRef& a, const TensorRef& sign, const TensorRef& log, Range batches, void* scratch) {
  DispatchWide(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const int64_t n = a.sizes[a.rank - 1];
    T* const matrix = static_cast<T*>(scratch);
    const CastFn store_sign = FindCast(DTypeOf<T>(), sign.dtype);
    const CastFn store_log = FindCast(DType::kDouble, log.dtype);
    for (int64_t batch = batches.begin; batch < batches.end; ++batch) {
      Load(a, EntryOf(a, 2, sign, 0, batch), matrix);
      T direction = Eliminate(matrix, n, matrix, 0) ? T{-1} : T{1};
      double size = 0;
      for (int64_t i = 0; i < n; ++i) {
        const T pivot = matrix[i * n + i];
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
    const int64_t columns = x.sizes[x.rank - 1];
    T* const matrix = static_cast<T*>(scratch);
    T* const result = matrix + n * n;
    for (int64_t batch = batches.begin; batch < batches.end; ++batch) {
      Load(turned, EntryOf(turned, 2, x, 2, batch), matrix);
      Load(b, EntryOf(b, 2, x, 2, batch), result);
      if (system.upper != system.transpose) {
        SolveUpper(matrix, n, system.unit, result, columns);
      } else {
        SolveLower(matrix, n, system.unit, result, columns);
      }
      Store(x, result, EntryOf(x, 2, x, 2, batch));
    }
  });
}

}  // namespace reprise::kernels
