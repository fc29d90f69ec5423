// SPDX-License-Identifier: Apache-2.0
//
// Scratch matrices are stored by columns: all loops go along one.
#include "kernels/factorization.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>

#include "kernels/arithmetic.h"
#include "kernels/cast.h"
#include "kernels/plane.h"

namespace reprise::kernels {
namespace {

constexpr int kMostSweeps = 64;  // of Jacobi's rotations; ten do for any matrix that was ever seen

template <class Fn>
void WithWide(DType type, Fn&& fn) {
  if (CategoryOf(type) == Category::kComplex) return fn(TypeTag<std::complex<double>>{});
  fn(TypeTag<double>{});
}

int64_t WideItem(DType type) { return CategoryOf(type) == Category::kComplex ? 16 : 8; }

double Conjugate(double x) { return x; }
std::complex<double> Conjugate(std::complex<double> x) { return std::conj(x); }
double RealOf(double x) { return x; }
double RealOf(std::complex<double> x) { return x.real(); }
double SquareOf(double x) { return x * x; }
double SquareOf(std::complex<double> x) { return x.real() * x.real() + x.imag() * x.imag(); }
bool IsFinite(double x) { return std::isfinite(x); }
bool IsFinite(std::complex<double> x) { return std::isfinite(x.real()) && std::isfinite(x.imag()); }
double LargestPart(double x) { return std::abs(x); }
double LargestPart(std::complex<double> x) { return std::max(std::abs(x.real()), std::abs(x.imag())); }

// ---- Columns ----

constexpr int64_t kLanes = 4;

// Sum of conj(x) * y.
template <class T>
T Dot(const T* x, const T* y, int64_t n) {
  T lanes[kLanes] = {};
  const int64_t whole = n - n % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] = AddValue(lanes[k], MulValue(Conjugate(x[i + k]), y[i + k]));
  }
  for (int64_t i = whole; i < n; ++i) lanes[0] = AddValue(lanes[0], MulValue(Conjugate(x[i]), y[i]));
  return AddValue(AddValue(lanes[0], lanes[1]), AddValue(lanes[2], lanes[3]));
}

template <class T>
double SquareSum(const T* x, int64_t n) {
  double lanes[kLanes] = {};
  const int64_t whole = n - n % kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] += SquareOf(x[i + k]);
  }
  for (int64_t i = whole; i < n; ++i) lanes[0] += SquareOf(x[i]);
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

// y += factor * x
template <class T>
void AddScaled(T* y, T factor, const T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = AddValue(y[i], MulValue(factor, x[i]));
}

// ---- Loading and storing ----

// Where matrix number `index` of the batch begins.
char* MatrixOf(const TensorRef& ref, int tail, int64_t index) {
  return ElementAt(ref, OffsetOf(ref, ref.rank - tail, index));
}

template <class T>
void LoadColumns(const TensorRef& ref, int64_t index, T* to) {
  const int64_t item = ItemSize(ref.dtype);
  const int64_t rows = ref.sizes[ref.rank - 2];
  const CastFn cast = FindCast(ref.dtype, DTypeOf<T>());
  const char* from = MatrixOf(ref, 2, index);
  for (int64_t j = 0; j < ref.sizes[ref.rank - 1]; ++j, to += rows) {
    cast(from + j * ref.strides[ref.rank - 1] * item, ref.strides[ref.rank - 2] * item, reinterpret_cast<char*>(to),
         sizeof(T), rows);
  }
}

// Columns of `from` lie `stride` elements apart.
template <class T>
void StoreColumns(const TensorRef& ref, int64_t index, const T* from, int64_t stride) {
  const int64_t item = ItemSize(ref.dtype);
  const CastFn cast = FindCast(DTypeOf<T>(), ref.dtype);
  char* to = MatrixOf(ref, 2, index);
  for (int64_t j = 0; j < ref.sizes[ref.rank - 1]; ++j, from += stride) {
    cast(reinterpret_cast<const char*>(from), sizeof(T), to + j * ref.strides[ref.rank - 1] * item,
         ref.strides[ref.rank - 2] * item, ref.sizes[ref.rank - 2]);
  }
}

// ---- Cholesky ----

// Row-major: a[i * n + j], j <= i, becomes the lower factor. False: not positive definite.
template <class T>
bool FactorLower(T* a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    T* row = a + i * n;
    for (int64_t j = 0; j < i; ++j) {
      const T sum = SubValue(row[j], Dot(a + j * n, row, j));
      row[j] = DivValue(sum, a[j * n + j]);
    }
    const double square = RealOf(row[i]) - SquareSum(row, i);
    if (!(square > 0) || !std::isfinite(square)) return false;
    row[i] = T(std::sqrt(square));
  }
  return true;
}

template <class T>
void RunCholesky(const TensorRef& a, bool upper, const TensorRef& out, Range batches, T* work) {
  const int64_t n = a.sizes[a.rank - 1];
  for (int64_t b = batches.begin; b < batches.end; ++b) {
    // By columns, the upper triangle is the lower one by rows; the lower triangle has to be turned.
    LoadColumns(a, b, work);
    if (upper) {
      for (int64_t i = 0; i < n * n; ++i) work[i] = Conjugate(work[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < i; ++j) work[i * n + j] = work[j * n + i];
      }
    }
    if (!FactorLower(work, n)) {
      for (int64_t i = 0; i < n; ++i) std::fill_n(work + i * n, i + 1, T(std::numeric_limits<double>::quiet_NaN()));
    }
    for (int64_t i = 0; i < n; ++i) std::fill_n(work + i * n + i + 1, n - i - 1, T(0));
    if (upper) {
      for (int64_t i = 0; i < n * n; ++i) work[i] = Conjugate(work[i]);
      StoreColumns(out, b, work, n);
      continue;
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < i; ++j) std::swap(work[i * n + j], work[j * n + i]);
    }
    StoreColumns(out, b, work, n);
  }
}

// ---- Householder's reflections ----

// Makes x[0 .. n) a multiple of the first unit vector: x becomes (beta, v[1], ..), v[0] = 1; returns tau of the
// reflection 1 - tau * v * v^H, whose adjoint is applied to x.
template <class T>
T MakeReflection(T* x, int64_t n) {
  const T alpha = x[0];
  const double rest = SquareSum(x + 1, n - 1);
  bool is_real = true;
  if constexpr (kIsComplex<T>) is_real = alpha.imag() == 0;
  if (rest == 0 && is_real) return T(0);
  const double norm = std::sqrt(rest + SquareOf(alpha));
  const double beta = RealOf(alpha) >= 0 ? -norm : norm;
  const T scale = DivValue(T(1), SubValue(alpha, T(beta)));
  for (int64_t i = 1; i < n; ++i) x[i] = MulValue(x[i], scale);
  x[0] = T(beta);
  return DivValue(SubValue(T(beta), alpha), T(beta));
}

// y := (1 - tau * v * v^H) * y, v = (1, v[1], ..).
template <class T>
void Reflect(const T* v, T tau, T* y, int64_t n) {
  if (tau == T(0)) return;
  const T sum = AddValue(y[0], Dot(v + 1, y + 1, n - 1));
  const T factor = MulValue(tau, sum);
  y[0] = SubValue(y[0], factor);
  AddScaled(y + 1, SubValue(T(0), factor), v + 1, n - 1);
}

// Columns of a [m, n]: r in the upper triangle, the reflections below it.
template <class T>
void Triangulate(T* a, int64_t m, int64_t n, T* taus) {
  for (int64_t k = 0; k < std::min(m, n); ++k) {
    T* column = a + k * m + k;
    taus[k] = MakeReflection(column, m - k);
    for (int64_t j = k + 1; j < n; ++j) Reflect(column, Conjugate(taus[k]), a + j * m + k, m - k);
  }
}

// Columns of q := reflections * q.
template <class T>
void ApplyReflections(const T* a, int64_t m, int64_t count, const T* taus, T* q, int64_t columns) {
  for (int64_t k = count - 1; k >= 0; --k) {
    for (int64_t j = 0; j < columns; ++j) Reflect(a + k * m + k, taus[k], q + j * m + k, m - k);
  }
}

template <class T>
void MakeIdentity(T* q, int64_t rows, int64_t columns) {
  std::fill_n(q, rows * columns, T(0));
  for (int64_t j = 0; j < std::min(rows, columns); ++j) q[j * rows + j] = T(1);
}

template <class T>
void RunQr(const TensorRef& a, const TensorRef* q, const TensorRef& r, Range batches, void* scratch) {
  const int64_t m = a.sizes[a.rank - 2];
  const int64_t n = a.sizes[a.rank - 1];
  const int64_t k = std::min(m, n);
  ScratchCutter cut(scratch);
  T* work = cut.Cut<T>(m * n);
  T* taus = cut.Cut<T>(k);
  T* factor = cut.Cut<T>(q != nullptr ? m * q->sizes[q->rank - 1] : 0);
  for (int64_t b = batches.begin; b < batches.end; ++b) {
    LoadColumns(a, b, work);
    Triangulate(work, m, n, taus);
    if (q != nullptr) {
      const int64_t columns = q->sizes[q->rank - 1];
      MakeIdentity(factor, m, columns);
      ApplyReflections(work, m, k, taus, factor, columns);
      StoreColumns(*q, b, factor, m);
    }
    for (int64_t j = 0; j < n; ++j) {
      if (j + 1 < m) std::fill(work + j * m + j + 1, work + (j + 1) * m, T(0));
    }
    StoreColumns(r, b, work, m);
  }
}

// ---- Singular values ----

// Rotates columns x and y so that they are orthogonal, and the columns of v alike. False: they were already.
template <class T>
bool Rotate(T* x, T* y, int64_t n, T* vx, T* vy, int64_t vn) {
  const double a = SquareSum(x, n);
  const double b = SquareSum(y, n);
  const T c = Dot(x, y, n);
  const double size = std::sqrt(SquareOf(c));
  const double tolerance = 4 * std::numeric_limits<double>::epsilon() * std::sqrt(static_cast<double>(n));
  if (size <= tolerance * std::sqrt(a) * std::sqrt(b) || size == 0) return false;
  const T phase = DivValue(c, T(size));
  const double zeta = (b - a) / (2 * size);
  const double tangent = (zeta >= 0 ? 1.0 : -1.0) / (std::abs(zeta) + std::hypot(1.0, zeta));
  const double cosine = 1 / std::hypot(1.0, tangent);
  const T sine = MulValue(T(cosine * tangent), phase);
  const auto turn = [&](T* p, T* r, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      const T left = p[i];
      p[i] = SubValue(MulValue(T(cosine), left), MulValue(Conjugate(sine), r[i]));
      r[i] = AddValue(MulValue(sine, left), MulValue(T(cosine), r[i]));
    }
  };
  turn(x, y, n);
  if (vx != nullptr) turn(vx, vy, vn);
  return true;
}

// Columns of w [n, n] become orthogonal, those of v [n, n] are rotated along.
template <class T>
void Orthogonalise(T* w, T* v, int64_t n) {
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    bool has_turned = false;
    for (int64_t i = 0; i + 1 < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) {
        has_turned |=
            Rotate(w + i * n, w + j * n, n, v == nullptr ? nullptr : v + i * n, v == nullptr ? nullptr : v + j * n, n);
      }
    }
    if (!has_turned) return;
  }
}

// Columns [have, columns) of q [rows, columns] become orthonormal to each other and to those before them. `left` is
// scratch for `rows` numbers.
template <class T>
void Complete(T* q, int64_t rows, int64_t have, int64_t columns, double* left) {
  if (have >= columns) return;
  // How much of each unit vector the columns so far leave.
  std::fill_n(left, rows, 1.0);
  for (int64_t j = 0; j < have; ++j) {
    for (int64_t i = 0; i < rows; ++i) left[i] -= SquareOf(q[j * rows + i]);
  }
  for (int64_t j = have; j < columns; ++j) {
    const int64_t best = std::max_element(left, left + rows) - left;
    T* column = q + j * rows;
    std::fill_n(column, rows, T(0));
    column[best] = T(1);
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t k = 0; k < j; ++k) {
        AddScaled(column, SubValue(T(0), Dot(q + k * rows, column, rows)), q + k * rows, rows);
      }
      const double norm = std::sqrt(SquareSum(column, rows));
      for (int64_t i = 0; i < rows; ++i) column[i] = MulValue(column[i], T(1 / norm));
    }
    for (int64_t i = 0; i < rows; ++i) left[i] -= SquareOf(column[i]);
    left[best] = -1;
  }
}

template <class T>
struct SvdWork {
  T* a;      // [m, n], or its adjoint: m >= n
  T* taus;   // [n]
  T* core;   // [n, n]: r, then orthogonal columns
  T* turns;  // [n, n]
  T* u;      // [m, m]
  T* v;      // [n, n]
  double* sigma;
  double* left;  // [m]
  int64_t* order;

  static SvdWork Of(void* scratch, int64_t m, int64_t n, int64_t columns) {
    ScratchCutter cut(scratch);
    SvdWork work;
    work.a = cut.Cut<T>(m * n);
    work.taus = cut.Cut<T>(n);
    work.core = cut.Cut<T>(n * n);
    work.turns = cut.Cut<T>(n * n);
    work.u = cut.Cut<T>(m * columns);
    work.v = cut.Cut<T>(n * n);
    work.sigma = cut.Cut<double>(n);
    work.left = cut.Cut<double>(m);
    work.order = cut.Cut<int64_t>(n);
    return work;
  }
};

// Columns of `to` [columns, rows] = adjoint of ref [rows, columns].
template <class T>
void LoadAdjoint(const TensorRef& ref, int64_t index, T* to) {
  TensorRef turned = ref;
  std::swap(turned.sizes[ref.rank - 1], turned.sizes[ref.rank - 2]);
  std::swap(turned.strides[ref.rank - 1], turned.strides[ref.rank - 2]);
  LoadColumns(turned, index, to);
  for (int64_t i = 0; i < ref.sizes[ref.rank - 1] * ref.sizes[ref.rank - 2]; ++i) to[i] = Conjugate(to[i]);
}

// w.a [m, n], m >= n, of finite numbers: w.sigma, and w.u [m, columns], w.v [n, n] unless `columns` is negative.
template <class T>
void Decompose(const SvdWork<T>& w, int64_t m, int64_t n, int64_t columns) {
  // Numbers whose squares neither overflow nor vanish.
  double most = 0;
  for (int64_t i = 0; i < m * n; ++i) most = std::max(most, LargestPart(w.a[i]));
  int exponent = 0;
  if (most > 0) std::frexp(most, &exponent);
  for (int64_t i = 0; i < m * n; ++i) {
    if constexpr (kIsComplex<T>) {
      w.a[i] = T(std::ldexp(w.a[i].real(), -exponent), std::ldexp(w.a[i].imag(), -exponent));
    } else {
      w.a[i] = std::ldexp(w.a[i], -exponent);
    }
  }
  Triangulate(w.a, m, n, w.taus);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) w.core[j * n + i] = i <= j ? w.a[j * m + i] : T(0);
  }
  const bool has_vectors = columns >= 0;
  if (has_vectors) MakeIdentity(w.turns, n, n);
  Orthogonalise(w.core, has_vectors ? w.turns : nullptr, n);
  for (int64_t j = 0; j < n; ++j) {
    w.left[j] = std::sqrt(SquareSum(w.core + j * n, n));
    w.order[j] = j;
  }
  std::stable_sort(w.order, w.order + n, [&](int64_t a, int64_t b) { return w.left[a] > w.left[b]; });
  for (int64_t j = 0; j < n; ++j) w.sigma[j] = std::ldexp(w.left[w.order[j]], exponent);
  if (!has_vectors) return;
  // Columns that are nothing but rounding errors have no direction.
  const double least =
      n == 0 ? 0 : w.left[w.order[0]] * std::numeric_limits<double>::epsilon() * static_cast<double>(std::max(m, n));
  int64_t rank = 0;
  std::fill_n(w.u, m * columns, T(0));
  for (int64_t j = 0; j < n; ++j) {
    const int64_t from = w.order[j];
    std::copy_n(w.turns + from * n, n, w.v + j * n);
    if (!(w.left[from] > least)) continue;
    for (int64_t i = 0; i < n; ++i) w.u[j * m + i] = MulValue(w.core[from * n + i], T(1 / w.left[from]));
    rank = j + 1;
  }
  ApplyReflections(w.a, m, n, w.taus, w.u, rank);
  Complete(w.u, m, rank, columns, w.left);
}

template <class T>
void RunSvd(const TensorRef& a, const TensorRef& sigma, const TensorRef& u, const TensorRef& v, bool has_vectors,
            Range batches, void* scratch) {
  const int64_t rows = a.sizes[a.rank - 2];
  const int64_t columns = a.sizes[a.rank - 1];
  const bool is_wide = rows < columns;
  const int64_t m = std::max(rows, columns);
  const int64_t n = std::min(rows, columns);
  const TensorRef& tall = is_wide ? v : u;  // the larger factor
  const TensorRef& small = is_wide ? u : v;
  const int64_t wanted = has_vectors ? tall.sizes[tall.rank - 1] : -1;
  const auto work = SvdWork<T>::Of(scratch, m, n, std::max<int64_t>(wanted, 0));
  const CastFn store = FindCast(DType::kDouble, sigma.dtype);
  for (int64_t b = batches.begin; b < batches.end; ++b) {
    if (is_wide) {
      LoadAdjoint(a, b, work.a);
    } else {
      LoadColumns(a, b, work.a);
    }
    const bool is_finite = std::all_of(work.a, work.a + m * n, [](T x) { return IsFinite(x); });
    if (is_finite) {
      Decompose(work, m, n, wanted);
    } else {
      const double nan = std::numeric_limits<double>::quiet_NaN();
      std::fill_n(work.sigma, n, nan);
      std::fill_n(work.u, m * std::max<int64_t>(wanted, 0), T(nan));
      std::fill_n(work.v, n * n, T(nan));
    }
    store(reinterpret_cast<const char*>(work.sigma), sizeof(double), MatrixOf(sigma, 1, b),
          sigma.strides[sigma.rank - 1] * ItemSize(sigma.dtype), n);
    if (wanted < 0) continue;
    T* right = is_wide ? work.u : work.v;
    for (int64_t i = 0; i < (is_wide ? m * wanted : n * n); ++i) right[i] = Conjugate(right[i]);
    StoreColumns(tall, b, work.u, m);
    StoreColumns(small, b, work.v, n);
  }
}

}  // namespace

int64_t CholeskyScratchBytes(DType type, int64_t n) { return n * n * WideItem(type); }

void Cholesky(const TensorRef& a, bool upper, const TensorRef& out, Range batches, void* scratch) {
  WithWide(a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    RunCholesky(a, upper, out, batches, static_cast<T*>(scratch));
  });
}

int64_t QrScratchBytes(DType type, int64_t m, int64_t n, int64_t q_columns) {
  return (m * n + std::min(m, n) + m * q_columns) * WideItem(type) + 3 * 64;
}

void Qr(const TensorRef& a, const TensorRef* q, const TensorRef& r, Range batches, void* scratch) {
  WithWide(a.dtype, [&](auto tag) { RunQr<typename decltype(tag)::Type>(a, q, r, batches, scratch); });
}

int64_t SvdScratchBytes(DType type, int64_t m, int64_t n, int64_t columns) {
  const int64_t tall = std::max(m, n);
  const int64_t small = std::min(m, n);
  return (tall * small + small + 3 * small * small + tall * columns) * WideItem(type) + (2 * small + tall) * 8 + 9 * 64;
}

void Svd(const TensorRef& a, const TensorRef& sigma, const TensorRef& u, const TensorRef& v, bool has_vectors,
         Range batches, void* scratch) {
  WithWide(a.dtype,
           [&](auto tag) { RunSvd<typename decltype(tag)::Type>(a, sigma, u, v, has_vectors, batches, scratch); });
}

}  // namespace reprise::kernels
