// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/normalize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/normalize.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/simd/exp_log-inl.h"
#include "kernels/simd/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace reprise::kernels::simd {
namespace HWY_NAMESPACE {

constexpr size_t kSumLanes = 32;
constexpr size_t kSumVecs = kSumLanes / kVecLanes;
constexpr size_t kSumBlock = 4096;

// ---- Sums ----

// The lanes of all vectors, pairwise.
HWY_INLINE HWY_ATTR float FoldSums(FloatVec* sums) {
  for (size_t width = kSumVecs / 2; width > 0; width /= 2) {
    for (size_t v = 0; v < width; ++v) sums[v] = hn::Add(sums[v], sums[v + width]);
  }
  return FoldLanes(FloatTag(), sums[0], AddLanes());
}

template <class Fn>
HWY_INLINE HWY_ATTR float SumBlockOf(size_t begin, size_t end, const Fn& fn) {
  FloatVec sums[kSumVecs];
  for (size_t v = 0; v < kSumVecs; ++v) sums[v] = hn::Zero(FloatTag());
  size_t i = begin;
  for (; i + kSumLanes <= end; i += kSumLanes) {
    for (size_t v = 0; v < kSumVecs; ++v) sums[v] = hn::Add(sums[v], fn(WholeVec(), i + v * kVecLanes));
  }
  for (size_t v = 0; v < kSumVecs; ++v, i += kVecLanes) {
    if (i >= end) break;
    if (i + kVecLanes <= end) {
      sums[v] = hn::Add(sums[v], fn(WholeVec(), i));
    } else {
      const auto inside = hn::FirstN(FloatTag(), end - i);
      sums[v] = hn::Add(sums[v], hn::IfThenElseZero(inside, fn(PartVec{end - i}, i)));
    }
  }
  return FoldSums(sums);
}

// The sum of fn(vector, position) over [0, n).
template <class Fn>
HWY_INLINE HWY_ATTR float SumOf(size_t n, const Fn& fn) {
  if (n <= kSumBlock) return SumBlockOf(0, n, fn);
  double sum = 0;
  for (size_t i = 0; i < n; i += kSumBlock) sum += SumBlockOf(i, std::min(n, i + kSumBlock), fn);
  return static_cast<float>(sum);
}

struct Values {
  const float* x;
  template <class Vec>
  HWY_INLINE HWY_ATTR FloatVec operator()(Vec vec, size_t i) const {
    return vec.Load(x + i);
  }
};

struct Products {
  const float* a;
  const float* b;
  template <class Vec>
  HWY_INLINE HWY_ATTR FloatVec operator()(Vec vec, size_t i) const {
    return hn::Mul(vec.Load(a + i), vec.Load(b + i));
  }
};

struct Triples {
  const float* a;
  const float* b;
  const float* c;
  template <class Vec>
  HWY_INLINE HWY_ATTR FloatVec operator()(Vec vec, size_t i) const {
    return hn::Mul(hn::Mul(vec.Load(a + i), vec.Load(b + i)), vec.Load(c + i));
  }
};

// a (x - mean) c
struct CenteredTriples {
  const float* a;
  const float* x;
  const float* c;
  FloatVec mean;
  template <class Vec>
  HWY_INLINE HWY_ATTR FloatVec operator()(Vec vec, size_t i) const {
    return hn::Mul(hn::Mul(vec.Load(a + i), vec.Load(c + i)), hn::Sub(vec.Load(x + i), mean));
  }
};

struct CenteredSquares {
  const float* x;
  FloatVec mean;
  template <class Vec>
  HWY_INLINE HWY_ATTR FloatVec operator()(Vec vec, size_t i) const {
    const FloatVec centered = hn::Sub(vec.Load(x + i), mean);
    return hn::Mul(centered, centered);
  }
};

// ---- Softmax ----

struct LargerLanes {
  template <class V>
  HWY_INLINE HWY_ATTR V operator()(V a, V b) const {
    return hn::Max(a, b);
  }
};

// The largest element; NaNs are passed over (they reach the sum through the exponential).
HWY_INLINE HWY_ATTR float MaxOf(const float* x, size_t n) {
  const FloatTag d;
  constexpr size_t kVecs = 4;
  const FloatVec lowest = hn::Set(d, -std::numeric_limits<float>::infinity());
  FloatVec most[kVecs] = {lowest, lowest, lowest, lowest};
  size_t i = 0;
  for (; i + kVecs * kVecLanes <= n; i += kVecs * kVecLanes) {
    for (size_t v = 0; v < kVecs; ++v) {
      const FloatVec value = hn::LoadU(d, x + i + v * kVecLanes);
      most[v] = hn::IfThenElse(hn::Gt(value, most[v]), value, most[v]);
    }
  }
  for (; i + kVecLanes <= n; i += kVecLanes) {
    const FloatVec value = hn::LoadU(d, x + i);
    most[0] = hn::IfThenElse(hn::Gt(value, most[0]), value, most[0]);
  }
  // Without NaNs.
  float max = FoldLanes(d, hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3])), LargerLanes());
  for (; i < n; ++i) max = x[i] > max ? x[i] : max;
  return max;
}

struct Exps {
  const float* x;
  FloatVec shift;
  template <class Vec>
  HWY_INLINE HWY_ATTR FloatVec operator()(Vec vec, size_t i) const {
    return Exp(hn::Sub(vec.Load(x + i), shift));
  }
};

struct StoredExps {
  const float* x;
  FloatVec shift;
  float* out;
  template <class Vec>
  HWY_INLINE HWY_ATTR FloatVec operator()(Vec vec, size_t i) const {
    const FloatVec e = Exp(hn::Sub(vec.Load(x + i), shift));
    vec.Store(e, out + i);
    return e;
  }
};

struct Multiples {
  float* x;
  FloatVec factor;
  template <class Vec>
  HWY_INLINE HWY_ATTR void operator()(Vec vec, size_t i) const {
    vec.Store(hn::Mul(vec.Load(x + i), factor), x + i);
  }
};

struct ShiftedTwice {
  const float* x;
  FloatVec first, second;
  float* out;
  template <class Vec>
  HWY_INLINE HWY_ATTR void operator()(Vec vec, size_t i) const {
    vec.Store(hn::Sub(hn::Sub(vec.Load(x + i), first), second), out + i);
  }
};

HWY_ATTR void SoftmaxRowsTarget(const float* x, float* out, int64_t rows, size_t n) {
  const FloatTag d;
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    const float sum = SumOf(n, StoredExps{x, hn::Set(d, MaxOf(x, n)), out});
    ForEachVec(n, Multiples{out, hn::Set(d, 1.0f / sum)});
  }
}

HWY_ATTR void LogSoftmaxRowsTarget(const float* x, float* out, int64_t rows, size_t n) {
  const FloatTag d;
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    const float max = MaxOf(x, n);
    const float log = std::log(SumOf(n, Exps{x, hn::Set(d, max)}));
    ForEachVec(n, ShiftedTwice{x, hn::Set(d, max), hn::Set(d, log), out});
  }
}

// The same for columns: rows whose neighbours are neighbours in memory, the elements of one `pitch` apart. Sums run in
// order, in blocks.
template <bool kLog, size_t kVecs, class Vec>
HWY_INLINE HWY_ATTR void ColumnGroup(Vec vec, const float* x, int64_t x_pitch, float* out, int64_t out_pitch,
                                     int64_t n) {
  constexpr int64_t kBlock = 128;
  const FloatTag d;
  FloatVec max[kVecs], sum[kVecs];
  for (size_t v = 0; v < kVecs; ++v) {
    max[v] = hn::Set(d, -std::numeric_limits<float>::infinity());
    sum[v] = hn::Zero(d);
  }
  for (int64_t i = 0; i < n; ++i) {
    for (size_t v = 0; v < kVecs; ++v) {
      const FloatVec value = vec.Load(x + i * x_pitch + v * kVecLanes);
      max[v] = hn::IfThenElse(hn::Gt(value, max[v]), value, max[v]);
    }
  }
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    FloatVec part[kVecs];
    for (size_t v = 0; v < kVecs; ++v) part[v] = hn::Zero(d);
    const int64_t end = std::min(n, begin + kBlock);
    for (int64_t i = begin; i < end; ++i) {
      for (size_t v = 0; v < kVecs; ++v) {
        const FloatVec e = Exp(hn::Sub(vec.Load(x + i * x_pitch + v * kVecLanes), max[v]));
        if constexpr (!kLog) vec.Store(e, out + i * out_pitch + v * kVecLanes);
        part[v] = hn::Add(part[v], e);
      }
    }
    for (size_t v = 0; v < kVecs; ++v) sum[v] = hn::Add(sum[v], part[v]);
  }
  for (size_t v = 0; v < kVecs; ++v) sum[v] = kLog ? Log(sum[v]) : hn::Div(hn::Set(d, 1.0f), sum[v]);
  for (int64_t i = 0; i < n; ++i) {
    for (size_t v = 0; v < kVecs; ++v) {
      float* to = out + i * out_pitch + v * kVecLanes;
      if constexpr (kLog) {
        vec.Store(hn::Sub(hn::Sub(vec.Load(x + i * x_pitch + v * kVecLanes), max[v]), sum[v]), to);
      } else {
        vec.Store(hn::Mul(vec.Load(to), sum[v]), to);
      }
    }
  }
}

template <bool kLog>
HWY_INLINE HWY_ATTR void Columns(const float* x, int64_t x_pitch, float* out, int64_t out_pitch, size_t columns,
                                 int64_t n) {
  constexpr size_t kVecs = 32 / kVecLanes < 4 ? 32 / kVecLanes : 4;
  size_t c = 0;
  for (; c + kVecs * kVecLanes <= columns; c += kVecs * kVecLanes) {
    ColumnGroup<kLog, kVecs>(WholeVec(), x + c, x_pitch, out + c, out_pitch, n);
  }
  for (; c + kVecLanes <= columns; c += kVecLanes) {
    ColumnGroup<kLog, 1>(WholeVec(), x + c, x_pitch, out + c, out_pitch, n);
  }
  if (c != columns) ColumnGroup<kLog, 1>(PartVec{columns - c}, x + c, x_pitch, out + c, out_pitch, n);
}

HWY_ATTR void SoftmaxColumnsTarget(bool is_log, const float* x, int64_t x_pitch, float* out, int64_t out_pitch,
                                   size_t columns, int64_t n) {
  if (is_log) {
    Columns<true>(x, x_pitch, out, out_pitch, columns, n);
  } else {
    Columns<false>(x, x_pitch, out, out_pitch, columns, n);
  }
}

struct SoftmaxGrads {
  const float* dy;
  const float* y;
  FloatVec sum;
  float* dx;
  template <class Vec>
  HWY_INLINE HWY_ATTR void operator()(Vec vec, size_t i) const {
    vec.Store(hn::Mul(hn::Sub(vec.Load(dy + i), sum), vec.Load(y + i)), dx + i);
  }
};

struct LogSoftmaxGrads {
  const float* dy;
  const float* y;
  FloatVec sum;
  float* dx;
  template <class Vec>
  HWY_INLINE HWY_ATTR void operator()(Vec vec, size_t i) const {
    vec.Store(hn::Sub(vec.Load(dy + i), hn::Mul(Exp(vec.Load(y + i)), sum)), dx + i);
  }
};

HWY_ATTR void SoftmaxGradRowsTarget(const float* dy, const float* y, float* dx, int64_t rows, size_t n) {
  for (int64_t r = 0; r < rows; ++r, dy += n, y += n, dx += n) {
    ForEachVec(n, SoftmaxGrads{dy, y, hn::Set(FloatTag(), SumOf(n, Products{dy, y})), dx});
  }
}

HWY_ATTR void LogSoftmaxGradRowsTarget(const float* dy, const float* y, float* dx, int64_t rows, size_t n) {
  for (int64_t r = 0; r < rows; ++r, dy += n, y += n, dx += n) {
    ForEachVec(n, LogSoftmaxGrads{dy, y, hn::Set(FloatTag(), SumOf(n, Values{dy})), dx});
  }
}

// ---- Norms ----

struct Normalized {
  const float* x;
  const float* weight;
  const float* bias;
  FloatVec mean, rstd;
  float* out;
  template <class Vec>
  HWY_INLINE HWY_ATTR void operator()(Vec vec, size_t i) const {
    const FloatVec value = hn::Mul(hn::Sub(vec.Load(x + i), mean), rstd);
    vec.Store(hn::Add(hn::Mul(value, vec.Load(weight + i)), vec.Load(bias + i)), out + i);
  }
};

struct Scaled {
  const float* x;
  const float* weight;
  FloatVec rstd;
  float* out;
  template <class Vec>
  HWY_INLINE HWY_ATTR void operator()(Vec vec, size_t i) const {
    vec.Store(hn::Mul(hn::Mul(vec.Load(x + i), rstd), vec.Load(weight + i)), out + i);
  }
};

HWY_ATTR void LayerNormRowsTarget(const float* x, const float* weight, const float* bias, float eps, float* out,
                                  float* mean, float* rstd, int64_t rows, size_t n) {
  const FloatTag d;
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    mean[r] = SumOf(n, Values{x}) / static_cast<float>(n);
    const FloatVec center = hn::Set(d, mean[r]);
    const float variance = SumOf(n, CenteredSquares{x, center}) / static_cast<float>(n);
    rstd[r] = 1.0f / std::sqrt(variance + eps);
    ForEachVec(n, Normalized{x, weight, bias, center, hn::Set(d, rstd[r]), out});
  }
}

HWY_ATTR void RmsNormRowsTarget(const float* x, const float* weight, float eps, float* out, float* rstd, int64_t rows,
                                size_t n) {
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    rstd[r] = 1.0f / std::sqrt(SumOf(n, Products{x, x}) / static_cast<float>(n) + eps);
    ForEachVec(n, Scaled{x, weight, hn::Set(FloatTag(), rstd[r]), out});
  }
}

// dx = rstd (dy w - a - (x - mean) b), where dw is wanted: dw += dy (x - mean) rstd, db += dy.
template <bool kDx, bool kDw, bool kDb>
struct NormGrads {
  const float* dy;
  const float* x;
  const float* weight;
  FloatVec mean, rstd, a, b;
  float* dx;
  float* dw;
  float* db;
  template <class Vec>
  HWY_INLINE HWY_ATTR void operator()(Vec vec, size_t i) const {
    const FloatVec grad = vec.Load(dy + i);
    const FloatVec centered = hn::Sub(vec.Load(x + i), mean);
    if constexpr (kDw) vec.Store(hn::Add(vec.Load(dw + i), hn::Mul(grad, hn::Mul(centered, rstd))), dw + i);
    if constexpr (kDb) vec.Store(hn::Add(vec.Load(db + i), grad), db + i);
    if constexpr (kDx) {
      const FloatVec own = hn::Sub(hn::Mul(grad, vec.Load(weight + i)), a);
      vec.Store(hn::Mul(hn::Sub(own, hn::Mul(centered, b)), rstd), dx + i);
    }
  }
};

template <bool kDb>
HWY_ATTR void NormGradRow(const float* dy, const float* x, float mean, float rstd, const float* weight, float* dx,
                          float* dw, float* db, size_t n, float a, float b) {
  const FloatTag d;
  const FloatVec m = hn::Set(d, mean), s = hn::Set(d, rstd), av = hn::Set(d, a), bv = hn::Set(d, b);
  if (dx != nullptr && dw != nullptr) {
    ForEachVec(n, NormGrads<true, true, kDb>{dy, x, weight, m, s, av, bv, dx, dw, db});
  } else if (dx != nullptr) {
    ForEachVec(n, NormGrads<true, false, false>{dy, x, weight, m, s, av, bv, dx, dw, db});
  } else {
    ForEachVec(n, NormGrads<false, true, kDb>{dy, x, weight, m, s, av, bv, dx, dw, db});
  }
}

HWY_ATTR void LayerNormGradRowsTarget(const float* dy, const float* x, const float* mean, const float* rstd,
                                      const float* weight, float* dx, float* dw, float* db, int64_t rows, size_t n) {
  const auto count = static_cast<float>(n);
  for (int64_t r = 0; r < rows; ++r, dy += n, x += n) {
    float a = 0, b = 0;
    if (dx != nullptr) {
      a = SumOf(n, Products{dy, weight}) / count;
      const FloatVec center = hn::Set(FloatTag(), mean[r]);
      b = SumOf(n, CenteredTriples{dy, x, weight, center}) / count * rstd[r] * rstd[r];
    }
    NormGradRow<true>(dy, x, mean[r], rstd[r], weight, dx, dw, db, n, a, b);
    if (dx != nullptr) dx += n;
  }
}

HWY_ATTR void RmsNormGradRowsTarget(const float* dy, const float* x, const float* rstd, const float* weight, float* dx,
                                    float* dw, int64_t rows, size_t n) {
  for (int64_t r = 0; r < rows; ++r, dy += n, x += n, dx += n) {
    const float b = SumOf(n, Triples{dy, weight, x}) / static_cast<float>(n) * rstd[r] * rstd[r];
    NormGradRow<false>(dy, x, 0.0f, rstd[r], weight, dx, dw, nullptr, n, 0.0f, b);
  }
}

HWY_ATTR float SumRowTarget(const float* x, size_t n) { return SumOf(n, Values{x}); }

}  // namespace HWY_NAMESPACE
}  // namespace reprise::kernels::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise::kernels::simd {

HWY_EXPORT(SumRowTarget);
HWY_EXPORT(SoftmaxRowsTarget);
HWY_EXPORT(LogSoftmaxRowsTarget);
HWY_EXPORT(SoftmaxColumnsTarget);
HWY_EXPORT(SoftmaxGradRowsTarget);
HWY_EXPORT(LogSoftmaxGradRowsTarget);
HWY_EXPORT(LayerNormRowsTarget);
HWY_EXPORT(LayerNormGradRowsTarget);
HWY_EXPORT(RmsNormRowsTarget);
HWY_EXPORT(RmsNormGradRowsTarget);

float SumRow(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumRowTarget)(x, static_cast<size_t>(n)); }

void SoftmaxRows(const float* x, float* out, int64_t rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(SoftmaxRowsTarget)(x, out, rows, static_cast<size_t>(n));
}

void LogSoftmaxRows(const float* x, float* out, int64_t rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(LogSoftmaxRowsTarget)(x, out, rows, static_cast<size_t>(n));
}

void SoftmaxColumns(bool is_log, const float* x, int64_t x_pitch, float* out, int64_t out_pitch, int64_t columns,
                    int64_t n) {
  HWY_DYNAMIC_DISPATCH(SoftmaxColumnsTarget)(is_log, x, x_pitch, out, out_pitch, static_cast<size_t>(columns), n);
}

void SoftmaxGradRows(const float* dy, const float* y, float* dx, int64_t rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(SoftmaxGradRowsTarget)(dy, y, dx, rows, static_cast<size_t>(n));
}

void LogSoftmaxGradRows(const float* dy, const float* y, float* dx, int64_t rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(LogSoftmaxGradRowsTarget)(dy, y, dx, rows, static_cast<size_t>(n));
}

void LayerNormRows(const float* x, const float* weight, const float* bias, float eps, float* out, float* mean,
                   float* rstd, int64_t rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(LayerNormRowsTarget)(x, weight, bias, eps, out, mean, rstd, rows, static_cast<size_t>(n));
}

void LayerNormGradRows(const float* dy, const float* x, const float* mean, const float* rstd, const float* weight,
                       float* dx, float* dw, float* db, int64_t rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(LayerNormGradRowsTarget)(dy, x, mean, rstd, weight, dx, dw, db, rows, static_cast<size_t>(n));
}

void RmsNormRows(const float* x, const float* weight, float eps, float* out, float* rstd, int64_t rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(RmsNormRowsTarget)(x, weight, eps, out, rstd, rows, static_cast<size_t>(n));
}

void RmsNormGradRows(const float* dy, const float* x, const float* rstd, const float* weight, float* dx, float* dw,
                     int64_t rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(RmsNormGradRowsTarget)(dy, x, rstd, weight, dx, dw, rows, static_cast<size_t>(n));
}

}  // namespace reprise::kernels::simd
#endif  // HWY_ONCE
