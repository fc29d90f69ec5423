// SPDX-License-Identifier: Apache-2.0
//
// Losses of classes: negative log likelihood and cross entropy. A sample has one score for each of C classes and a
// target, the number of its class.
//
// Formulas, for a sample with target t, w = weight of t or 1; nothing for a target that is to be ignored
//   Nll          l = -w x[t]
//   CrossEntropy q = x - log(sum of exp(x)), l = (1 - smoothing) (-w q[t]) + smoothing / C sum of (-weight[c] q[c])
//   The mean divides the sum of l by the sum of w.
//   SoftmaxCross l = sum of -labels[c] q[c], backprop = exp(q) - labels
// A target that is no class (and not ignored) makes the loss NaN; its gradients are 0.
// Accumulation  float32 for float32, float16 and bfloat16, float64 for float64; sums over samples, and over the classes
//   of smoothed or given labels, in float64 with a correction.
// Aliasing  none.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/strided.h"

namespace reprise::kernels {

/// A sum that keeps what each addition rounds away; exact enough for any number of terms.
struct LongSum {
  double sum = 0;
  double lost = 0;

  void Add(double term) {
    const double next = sum + term;
    lost += std::fabs(sum) >= std::fabs(term) ? (sum - next) + term : (term - next) + sum;
    sum = next;
  }
  void Add(const LongSum& other) {
    Add(other.sum);
    lost += other.lost;
  }
  /// Infinities and NaN have lost nothing.
  double Value() const { return std::isfinite(sum) ? sum + lost : sum; }
};

/// Sums over samples.
struct ClassSums {
  LongSum loss;    ///< l without its smoothing part
  LongSum weight;  ///< w
  LongSum smooth;  ///< sum of -weight[c] q[c]
};

struct ClassOperands {
  const TensorRef* scores = nullptr;  ///< classes last
  const TensorRef* target = nullptr;  ///< int32 or int64; the shape of scores without classes
  const TensorRef* weight = nullptr;  ///< [C] or null
  int64_t ignored = -100;
  double smoothing = 0;
};

/// Adds samples [range.begin, range.end) to `sums`; writes l of each to `out` unless that is null.
void Nll(const ClassOperands& operands, DType compute, const TensorRef* out, ClassSums& sums, Range range);

/// Gradients -w g, g = grad (one for all samples or one each) / divisor, at the target, 0 elsewhere.
void NllGrad(const ClassOperands& operands, const TensorRef& grad, double divisor, DType compute, const TensorRef& out,
             Range range);

/// Bytes of scratch of the functions below for classes of `out`.
int64_t ClassScratchBytes(int64_t classes, DType compute);

/// As Nll; also writes q.
void CrossEntropy(const ClassOperands& operands, DType compute, const TensorRef& log_prob, const TensorRef* out,
                  ClassSums& sums, void* scratch, Range range);
/// Gradients of CrossEntropy with respect to x; `operands.scores` is q.
void CrossEntropyGrad(const ClassOperands& operands, const TensorRef& grad, double divisor, DType compute,
                      const TensorRef& out, void* scratch, Range range);
/// The sum of w over samples.
double SumOfTargetWeights(const ClassOperands& operands, DType compute, Range range);

void SoftmaxCross(const TensorRef& scores, const TensorRef& labels, DType compute, const TensorRef& loss,
                  const TensorRef& backprop, void* scratch, Range range);

}  // namespace reprise::kernels
