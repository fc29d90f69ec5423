// SPDX-License-Identifier: Apache-2.0
//
// Connectionist temporal classification: the probability of a sequence of labels without an alignment.
//
// Formula   The labels of item n with blanks around each are l' of 2 S + 1 entries. alpha[t, s] is the logarithm of the
//   probability of all ways that emit the first s entries by time t; loss = -log(exp alpha[T - 1, last] + exp alpha[T -
//   1, last but one]). The gradient with regard to the logarithms of the probabilities is
//     grad * (exp(log_probs[t, c]) - exp(log(sum over s with l'[s] = c of exp(alpha + beta)) + loss - log_probs[t, c]))
//   and 0 from the length of the item on. With zero_infinity an item whose loss is infinite gives 0 back.
// Accumulation  float64, rounded once.
// Lengths   A label that is none of the classes counts as the blank.
// Data      row-major, float32 or float64: log_probs [T, N, C], alpha [N, T, stride]; targets int64. A unit is an item.
#pragma once

#include <vector>

#include "kernels/strided.h"

namespace reprise::kernels {

struct CtcShape {
  int64_t times = 0;
  int64_t items = 0;
  int64_t classes = 0;
  int64_t blank = 0;
  int64_t alpha_stride = 0;  ///< at least 2 * the longest target + 1
  bool zero_infinity = false;
  std::vector<int64_t> input_lengths;  ///< each at most `times`
  std::vector<int64_t> target_lengths;
  std::vector<int64_t> target_begins;  ///< of each item in targets

  int64_t longest() const;
};

void CtcLoss(const CtcShape& shape, DType type, const void* log_probs, const int64_t* targets, void* loss, void* alpha,
             Range items);
/// `scratch`: CtcScratchBytes of this call.
void CtcGradient(const CtcShape& shape, DType type, const void* grad, const void* log_probs, const int64_t* targets,
                 const void* loss, const void* alpha, void* out, void* scratch, Range items);
int64_t CtcScratchBytes(const CtcShape& shape);

}  // namespace reprise::kernels
