// SPDX-License-Identifier: Apache-2.0
#include "kernels/loss.h"

#include <algorithm>
#include <cmath>

#include "kernels/simd/loss.h"
#include "kernels/simd/normalize.h"
#include "kernels/staged.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kChunk = 1024;

double AtLeastMinus100(double log) { return log < -100.0 ? -100.0 : log; }
double LogOnePlusExp(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

double SignOf(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0; }

double LossValue(LossOp op, double x, double t, double p, double beta) {
  const double d = x - t;
  switch (op) {
    case LossOp::kMse: return d * d;
    case LossOp::kL1: return std::fabs(d);
    case LossOp::kSmoothL1: return std::fabs(d) < beta ? 0.5 * d * d / beta : std::fabs(d) - 0.5 * beta;
    case LossOp::kBce: return (t - 1.0) * AtLeastMinus100(std::log1p(-x)) - t * AtLeastMinus100(std::log(x));
    case LossOp::kBceLogits: return (1.0 - t) * x + (1.0 + (p - 1.0) * t) * (std::isnan(x) ? x : LogOnePlusExp(-x));
    case LossOp::kKl: return (t == 0.0 ? 0.0 : t * std::log(t)) - t * x;
    case LossOp::kKlLog: return std::exp(t) * (t - x);
    case LossOp::kMseGrad: return 2.0 * d;
    case LossOp::kBceLogitsGrad: {
      const double e = std::exp(-std::fabs(x));
      return (p * t + 1.0 - t) * ((x < 0 ? e : 1.0) / (1.0 + e)) - p * t;
    }
    case LossOp::kKlGrad: return -t;
    case LossOp::kKlLogGrad: return -std::exp(t);
    case LossOp::kSoftMargin: return LogOnePlusExp(-t * x);
    case LossOp::kSoftMarginGrad: {
      const double e = std::exp(-std::fabs(t * x));
      return -t * ((t * x > 0 ? e : 1.0) / (1.0 + e));
    }
    case LossOp::kL1Grad: return SignOf(d);
    case LossOp::kSmoothL1Grad: return std::fabs(d) < beta ? d / beta : SignOf(d);
    case LossOp::kBceGrad: return d / std::max((1.0 - x) * x, 1e-12);
    case LossOp::kKlTargetGrad: return t == 0.0 ? 0.0 : std::log(t) + 1.0 - x;
    case LossOp::kKlLogTargetGrad: return std::exp(t) * (t + 1.0 - x);
  }
  return 0;
}

void LossRow(LossOp op, const double* x, const double* target, const double* pos_weight, double beta, double* out,
             int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = LossValue(op, x[i], target[i], pos_weight != nullptr ? pos_weight[i] : 1.0, beta);
  }
}
using simd::LossRow;

double SumRow(const double* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}
using simd::SumRow;

// An operand that may be absent or one number for all elements.
template <class T>
class Factor {
 public:
  explicit Factor(const TensorRef* ref) : is_given_(ref != nullptr), staged_(ref != nullptr ? *ref : One()) {
    if (ref == nullptr) return;
    is_single_ = std::all_of(ref->strides, ref->strides + ref->rank, [](int64_t stride) { return stride == 0; });
    if (is_single_ && ElementCount(*ref) != 0) single_ = *staged_.Read(0, 1, &single_);
  }

  /// Null for an absent one.
  const T* Read(int64_t begin, int64_t n, T* buffer) const {
    return is_given_ ? staged_.Read(begin, n, buffer) : nullptr;
  }
  void Multiply(T* out, int64_t begin, int64_t n, T* buffer) const {
    if (!is_given_) return;
    if (is_single_) {
      for (int64_t i = 0; i < n; ++i) out[i] *= single_;
    } else {
      const T* factors = staged_.Read(begin, n, buffer);
      for (int64_t i = 0; i < n; ++i) out[i] *= factors[i];
    }
  }

 private:
  static const TensorRef& One() {
    static const TensorRef one = MakeContiguous(nullptr, DTypeOf<T>(), {0});
    return one;
  }

  bool is_given_;
  bool is_single_ = false;
  T single_ = 1;
  Staged<T> staged_;
};

// Calls fn(values of the loss, first element, count) for chunks; target(first) is where they are to be put.
template <class T, class Target, class Fn>
void ForEachChunk(LossOp op, const LossOperands& operands, Range range, Target target, Fn fn) {
  alignas(64) T x_buffer[kChunk];
  alignas(64) T t_buffer[kChunk];
  alignas(64) T p_buffer[kChunk];
  const Staged<T> x(*operands.x);
  const Staged<T> t(*operands.target);
  const Factor<T> p(operands.pos_weight);
  const Factor<T> weight(operands.weight);
  const Factor<T> grad(operands.grad);
  const T scale = static_cast<T>(operands.scale);
  for (int64_t begin = range.begin; begin < range.end; begin += kChunk) {
    const int64_t n = std::min(kChunk, range.end - begin);
    T* out = target(begin);
    LossRow(op, x.Read(begin, n, x_buffer), t.Read(begin, n, t_buffer), p.Read(begin, n, p_buffer),
            static_cast<T>(operands.beta), out, n);
    weight.Multiply(out, begin, n, x_buffer);
    grad.Multiply(out, begin, n, x_buffer);
    if (scale != T{1}) {
      for (int64_t i = 0; i < n; ++i) out[i] *= scale;
    }
    fn(out, begin, n);
  }
}

template <class T>
void MapLossOf(LossOp op, const LossOperands& operands, const TensorRef& out, Range range) {
  alignas(64) T buffer[kChunk];
  const Staged<T> staged(out);
  ForEachChunk<T>(
      op, operands, range, [&](int64_t begin) { return staged.Target(begin, buffer); },
      [&](T*, int64_t begin, int64_t n) { staged.Write(begin, n, buffer); });
}

template <class T>
double SumLossOf(LossOp op, const LossOperands& operands, Range range) {
  alignas(64) T buffer[kChunk];
  double sum = 0;
  ForEachChunk<T>(
      op, operands, range, [&](int64_t) { return buffer; },
      [&](const T* values, int64_t, int64_t n) { sum += static_cast<double>(SumRow(values, n)); });
  return sum;
}

}  // namespace

void MapLoss(LossOp op, const LossOperands& operands, DType compute, const TensorRef& out, Range range) {
  if (compute == DType::kDouble) {
    MapLossOf<double>(op, operands, out, range);
  } else {
    MapLossOf<float>(op, operands, out, range);
  }
}

double SumLoss(LossOp op, const LossOperands& operands, DType compute, Range range) {
  return compute == DType::kDouble ? SumLossOf<double>(op, operands, range) : SumLossOf<float>(op, operands, range);
}

}  // namespace reprise::kernels
