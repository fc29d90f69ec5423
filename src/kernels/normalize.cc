// SPDX-License-Identifier: Apache-2.0
#include "kernels/normalize.h"

#include <algorithm>
#include <cmath>

#include "kernels/simd/normalize.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

// ---- Rows of float64; those of float32 are in simd/ ----

template <class Fn>
double SumOf(int64_t n, Fn fn) {
  constexpr int64_t kLanes = 8;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lanes[l] += fn(i + l);
  }
  for (int64_t l = 0; i + l < n; ++l) lanes[l] += fn(i + l);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

double MaxOf(const double* x, int64_t n) {
  double max = -INFINITY;
  for (int64_t i = 0; i < n; ++i) max = x[i] > max ? x[i] : max;
  return max;
}

void SoftmaxRows(const double* x, double* out, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    const double max = MaxOf(x, n);
    const double sum = SumOf(n, [&](int64_t i) { return out[i] = std::exp(x[i] - max); });
    for (int64_t i = 0; i < n; ++i) out[i] /= sum;
  }
}

void LogSoftmaxRows(const double* x, double* out, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    const double max = MaxOf(x, n);
    const double log = std::log(SumOf(n, [&](int64_t i) { return std::exp(x[i] - max); }));
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] - max - log;
  }
}

void SoftmaxGradRows(const double* dy, const double* y, double* dx, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, dy += n, y += n, dx += n) {
    const double sum = SumOf(n, [&](int64_t i) { return dy[i] * y[i]; });
    for (int64_t i = 0; i < n; ++i) dx[i] = (dy[i] - sum) * y[i];
  }
}

void LogSoftmaxGradRows(const double* dy, const double* y, double* dx, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, dy += n, y += n, dx += n) {
    const double sum = SumOf(n, [&](int64_t i) { return dy[i]; });
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] - std::exp(y[i]) * sum;
  }
}

void LayerNormRows(const double* x, const double* weight, const double* bias, double eps, double* out, double* mean,
                   double* rstd, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    const double center = SumOf(n, [&](int64_t i) { return x[i]; }) / static_cast<double>(n);
    const double squares = SumOf(n, [&](int64_t i) { return (x[i] - center) * (x[i] - center); });
    mean[r] = center;
    rstd[r] = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
    for (int64_t i = 0; i < n; ++i) out[i] = (x[i] - center) * rstd[r] * weight[i] + bias[i];
  }
}

void RmsNormRows(const double* x, const double* weight, double eps, double* out, double* rstd, int64_t rows,
                 int64_t n) {
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    const double squares = SumOf(n, [&](int64_t i) { return x[i] * x[i]; });
    rstd[r] = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] * rstd[r] * weight[i];
  }
}

void NormGradRow(const double* dy, const double* x, double mean, double rstd, const double* weight, double* dx,
                 double* dw, double* db, int64_t n, double a, double b) {
  for (int64_t i = 0; i < n; ++i) {
    const double centered = x[i] - mean;
    if (dw != nullptr) dw[i] += dy[i] * centered * rstd;
    if (db != nullptr) db[i] += dy[i];
    if (dx != nullptr) dx[i] = (dy[i] * weight[i] - a - centered * b) * rstd;
  }
}

void LayerNormGradRows(const double* dy, const double* x, const double* mean, const double* rstd, const double* weight,
                       double* dx, double* dw, double* db, int64_t rows, int64_t n) {
  const auto count = static_cast<double>(n);
  for (int64_t r = 0; r < rows; ++r, dy += n, x += n) {
    const double a = SumOf(n, [&](int64_t i) { return dy[i] * weight[i]; }) / count;
    const double products = SumOf(n, [&](int64_t i) { return dy[i] * weight[i] * (x[i] - mean[r]); });
    NormGradRow(dy, x, mean[r], rstd[r], weight, dx, dw, db, n, a, products / count * rstd[r] * rstd[r]);
    if (dx != nullptr) dx += n;
  }
}

void RmsNormGradRows(const double* dy, const double* x, const double* rstd, const double* weight, double* dx,
                     double* dw, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r, dy += n, x += n, dx += n) {
    const double products = SumOf(n, [&](int64_t i) { return dy[i] * weight[i] * x[i]; });
    NormGradRow(dy, x, 0, rstd[r], weight, dx, dw, nullptr, n, 0,
                products / static_cast<double>(n) * rstd[r] * rstd[r]);
  }
}

using simd::LayerNormGradRows;
using simd::LayerNormRows;
using simd::LogSoftmaxGradRows;
using simd::LogSoftmaxRows;
using simd::RmsNormGradRows;
using simd::RmsNormRows;
using simd::SoftmaxGradRows;
using simd::SoftmaxRows;

// ---- Operands ----

template <class Fn>
void DispatchMath(DType compute, Fn&& fn) {
  if (compute == DType::kDouble) {
    fn(TypeTag<double>{});
  } else {
    fn(TypeTag<float>{});
  }
}

// A tensor that may be absent, with its buffer.
template <class T>
class Operand {
 public:
  Operand(const TensorRef* ref, int64_t elements, Arena& arena, bool is_wanted = true)
      : is_given_(ref != nullptr), staged_(ref ? *ref : None()) {
    if (is_given_ ? !staged_.in_place() : is_wanted) buffer_ = arena.Take<T>(elements);
  }

  bool is_given() const { return is_given_; }
  const T* Read(int64_t begin, int64_t n) const { return staged_.Read(begin, n, buffer_); }
  T* Target(int64_t begin) const { return is_given_ ? staged_.Target(begin, buffer_) : buffer_; }
  void Write(int64_t begin, int64_t n) const {
    if (is_given_) staged_.Write(begin, n, buffer_);
  }
  /// All of it, or `absent` n times.
  const T* ReadOr(int64_t n, T absent) const {
    if (is_given_) return Read(0, n);
    std::fill_n(buffer_, n, absent);
    return buffer_;
  }

 private:
  static const TensorRef& None() {
    static const TensorRef none = MakeContiguous(nullptr, DTypeOf<T>(), {0});
    return none;
  }

  bool is_given_;
  Staged<T> staged_;
  T* buffer_ = nullptr;
};

template <class Fn>
void ForEachBatch(Range rows, int64_t batch, Fn fn) {
  for (int64_t row = rows.begin; row < rows.end; row += batch) fn(row, std::min(batch, rows.end - row));
}

TensorRef WithoutLast(const TensorRef& ref) {
  TensorRef rows = ref;
  if (rows.rank != 0) --rows.rank;
  return rows;
}

// Softmax of float32 rows that are columns in memory, without moving them; false where they are not.
bool SoftmaxInColumns(RowOp op, const TensorRef& out, const TensorRef& a, int64_t n, Range rows) {
  constexpr int64_t kFewest = 8;  // columns side by side that are worth it
  if (out.rank < 2 || out.dtype != DType::kFloat || a.dtype != DType::kFloat) return false;
  const TensorRef out_rows = WithoutLast(out);
  const TensorRef a_rows = WithoutLast(a);
  const Loop loop = MakeLoop({&out_rows, &a_rows}, LoopOrder::kRowMajor);
  constexpr int64_t kItem = sizeof(float);
  if (loop.strides[0][0] != kItem || loop.strides[0][1] != kItem || loop.sizes[0] < kFewest) return false;
  ForEachRow(loop, rows, [&](char* const* ptrs, const int64_t*, int64_t count) {
    simd::SoftmaxColumns(op == RowOp::kLogSoftmax, reinterpret_cast<const float*>(ptrs[1]), a.strides[a.rank - 1],
                         reinterpret_cast<float*>(ptrs[0]), out.strides[out.rank - 1], count, n);
  });
  return true;
}

template <class T>
void MapRowsOf(RowOp op, const TensorRef& out, const TensorRef& a, const TensorRef* b, RowWork work, void* scratch,
               Range rows) {
  Arena arena(scratch);
  const int64_t n = work.length;
  const Staged<T> target(out);
  const Staged<T> first(a);
  T* out_buffer = arena.TakeFor(target, work.batch * n);
  T* a_buffer = arena.TakeFor(first, work.batch * n);
  if (op == RowOp::kSoftmax || op == RowOp::kLogSoftmax) {
    if (!target.in_place() && n > 1 && SoftmaxInColumns(op, out, a, n, rows)) return;
    return ForEachBatch(rows, work.batch, [&](int64_t row, int64_t count) {
      const T* x = first.Read(row * n, count * n, a_buffer);
      T* y = target.Target(row * n, out_buffer);
      if (op == RowOp::kSoftmax) {
        SoftmaxRows(x, y, count, n);
      } else {
        LogSoftmaxRows(x, y, count, n);
      }
      target.Write(row * n, count * n, out_buffer);
    });
  }
  const Staged<T> second(*b);
  T* b_buffer = arena.TakeFor(second, work.batch * n);
  ForEachBatch(rows, work.batch, [&](int64_t row, int64_t count) {
    const T* dy = first.Read(row * n, count * n, a_buffer);
    const T* y = second.Read(row * n, count * n, b_buffer);
    T* dx = target.Target(row * n, out_buffer);
    if (op == RowOp::kSoftmaxGrad) {
      SoftmaxGradRows(dy, y, dx, count, n);
    } else {
      LogSoftmaxGradRows(dy, y, dx, count, n);
    }
    target.Write(row * n, count * n, out_buffer);
  });
}

// The sum x = alpha * x1 + x2, as it reads after it was stored, if it is.
template <class T>
const T* ReadSum(const Operand<T>& x1, T alpha, const Operand<T>& x2, const Operand<T>& x, int64_t begin, int64_t n) {
  const T* a = x1.Read(begin, n);
  const T* b = x2.Read(begin, n);
  T* sum = x.Target(begin);
  if (alpha == T{1}) {
    for (int64_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
  } else {
    for (int64_t i = 0; i < n; ++i) sum[i] = alpha * a[i] + b[i];
  }
  if (!x.is_given()) return sum;
  x.Write(begin, n);
  return x.Read(begin, n);
}

template <class T>
void NormOf(const NormOperands& operands, bool is_layer_norm, T eps, RowWork work, void* scratch, Range rows) {
  Arena arena(scratch);
  const int64_t n = work.length;
  const int64_t elements = work.batch * n;
  const Operand<T> weight(operands.weight, n, arena);
  const Operand<T> x(operands.x, elements, arena);
  const Operand<T> out(operands.out, elements, arena);
  const Operand<T> rstd(operands.rstd, work.batch, arena);
  const T* w = weight.ReadOr(n, 1);
  const auto alpha = static_cast<T>(operands.alpha);
  const Operand<T> x1(operands.x1, elements, arena, false);
  const Operand<T> x2(operands.x2, elements, arena, false);
  const auto read = [&](int64_t row, int64_t count) {
    return x1.is_given() ? ReadSum(x1, alpha, x2, x, row * n, count * n) : x.Read(row * n, count * n);
  };
  if (is_layer_norm) {
    const Operand<T> bias(operands.bias, n, arena);
    const Operand<T> mean(operands.mean, work.batch, arena);
    const T* b = bias.ReadOr(n, 0);
    return ForEachBatch(rows, work.batch, [&](int64_t row, int64_t count) {
      LayerNormRows(read(row, count), w, b, eps, out.Target(row * n), mean.Target(row), rstd.Target(row), count, n);
      out.Write(row * n, count * n);
      mean.Write(row, count);
      rstd.Write(row, count);
    });
  }
  ForEachBatch(rows, work.batch, [&](int64_t row, int64_t count) {
    RmsNormRows(read(row, count), w, eps, out.Target(row * n), rstd.Target(row), count, n);
    out.Write(row * n, count * n);
    rstd.Write(row, count);
  });
}

template <class T>
void NormGradOf(const NormOperands& operands, RowWork work, void* scratch, T* dw, T* db, Range rows) {
  Arena arena(scratch);
  const int64_t n = work.length;
  const int64_t elements = work.batch * n;
  const Operand<T> weight(operands.weight, n, arena);
  const Operand<T> x(operands.x, elements, arena);
  const Operand<T> dx(operands.out, elements, arena, false);
  const Operand<T> rstd(operands.rstd, work.batch, arena);
  const Operand<T> mean(operands.mean, work.batch, arena, false);
  const Operand<T> dy(operands.dy, elements, arena);
  const Operand<T> x1(operands.x1, elements, arena, false);
  const Operand<T> x2(operands.x2, elements, arena, false);
  const Operand<T> scaled(operands.scaled, elements, arena, false);
  const auto alpha = static_cast<T>(operands.alpha);
  const T* w = weight.ReadOr(n, 1);
  if (dw != nullptr) std::fill_n(dw, n, T{0});
  if (db != nullptr) std::fill_n(db, n, T{0});
  ForEachBatch(rows, work.batch, [&](int64_t row, int64_t count) {
    const T* grad = dy.Read(row * n, count * n);
    const T* from = x1.is_given() ? ReadSum(x1, alpha, x2, x, row * n, count * n) : x.Read(row * n, count * n);
    T* to = operands.out != nullptr ? dx.Target(row * n) : nullptr;
    if (operands.mean != nullptr) {
      LayerNormGradRows(grad, from, mean.Read(row, count), rstd.Read(row, count), w, to, dw, db, count, n);
    } else {
      RmsNormGradRows(grad, from, rstd.Read(row, count), w, to, dw, count, n);
    }
    dx.Write(row * n, count * n);
    if (!scaled.is_given() || to == nullptr) return;
    T* product = scaled.Target(row * n);
    for (int64_t i = 0; i < count * n; ++i) product[i] = alpha * to[i];
    scaled.Write(row * n, count * n);
  });
}

template <class T>
void SumPartialsOf(const T* partials, int64_t count, int64_t stride, const TensorRef& out, Range range) {
  constexpr int64_t kColumns = 256;
  alignas(64) T buffer[kColumns];
  const Staged<T> target(out);
  for (int64_t begin = range.begin; begin < range.end; begin += kColumns) {
    const int64_t n = std::min(kColumns, range.end - begin);
    T* sums = target.Target(begin, buffer);
    std::fill_n(sums, n, T{0});
    for (int64_t p = 0; p < count; ++p) {
      const T* from = partials + p * stride + begin;
      for (int64_t j = 0; j < n; ++j) sums[j] += from[j];
    }
    target.Write(begin, n, buffer);
  }
}

}  // namespace

int64_t StagingBytes(const TensorRef& ref, DType compute, int64_t elements) {
  const bool is_double = compute == DType::kDouble;
  if (IsInPlace(ref, is_double ? DType::kDouble : DType::kFloat)) return 0;
  return Arena::BytesFor(elements * (is_double ? 8 : 4));
}

int64_t NormScratchBytes(const NormOperands& operands, bool is_layer_norm, DType compute, RowWork work) {
  const int64_t item = compute == DType::kDouble ? 8 : 4;
  int64_t bytes = 0;
  const auto add = [&](const TensorRef* ref, int64_t elements, bool is_wanted) {
    if (ref != nullptr) {
      bytes += StagingBytes(*ref, compute, elements);
    } else if (is_wanted) {
      bytes += Arena::BytesFor(elements * item);
    }
  };
  const int64_t elements = work.batch * work.length;
  const bool is_grad = operands.dy != nullptr;
  add(operands.weight, work.length, true);
  add(operands.x, elements, true);
  add(operands.out, elements, !is_grad);
  add(operands.rstd, work.batch, true);
  add(operands.mean, work.batch, is_layer_norm && !is_grad);
  add(operands.bias, work.length, is_layer_norm && !is_grad);
  add(operands.dy, elements, false);
  add(operands.x1, elements, false);
  add(operands.x2, elements, false);
  add(operands.scaled, elements, false);
  return bytes;
}

void LogSoftmaxOfRows(const float* x, float* out, int64_t rows, int64_t n) { simd::LogSoftmaxRows(x, out, rows, n); }
void LogSoftmaxOfRows(const double* x, double* out, int64_t rows, int64_t n) { LogSoftmaxRows(x, out, rows, n); }

void MapRows(RowOp op, const TensorRef& out, const TensorRef& a, const TensorRef* b, DType compute, RowWork work,
             void* scratch, Range rows) {
  DispatchMath(compute, [&]<class T>(TypeTag<T>) { MapRowsOf<T>(op, out, a, b, work, scratch, rows); });
}

void LayerNorm(const NormOperands& operands, double eps, DType compute, RowWork work, void* scratch, Range rows) {
  DispatchMath(compute,
               [&]<class T>(TypeTag<T>) { NormOf<T>(operands, true, static_cast<T>(eps), work, scratch, rows); });
}

void RmsNorm(const NormOperands& operands, double eps, DType compute, RowWork work, void* scratch, Range rows) {
  DispatchMath(compute,
               [&]<class T>(TypeTag<T>) { NormOf<T>(operands, false, static_cast<T>(eps), work, scratch, rows); });
}

void NormGrad(const NormOperands& operands, DType compute, RowWork work, void* scratch, void* dw, void* db,
              Range rows) {
  DispatchMath(compute, [&]<class T>(TypeTag<T>) {
    NormGradOf<T>(operands, work, scratch, static_cast<T*>(dw), static_cast<T*>(db), rows);
  });
}

void SumPartials(const void* partials, int64_t count, int64_t stride, DType compute, const TensorRef& out,
                 Range range) {
  DispatchMath(compute,
               [&]<class T>(TypeTag<T>) { SumPartialsOf(static_cast<const T*>(partials), count, stride, out, range); });
}

}  // namespace reprise::kernels
