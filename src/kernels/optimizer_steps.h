// SPDX-License-Identifier: Apache-2.0
//
// Steps of optimizers, element by element, whose numbers are known when they run; with g the gradient, divided by its
// scale and negated where asked:
//
//   Adam (TensorFlow's)  m = m + (g - m) (1 - beta1), v = v + (g^2 - v) (1 - beta2),
//                        var = var - rate sqrt(1 - power2) / (1 - power1) n / (sqrt(v) + epsilon)
//                        with n = m, or n = m beta1 + (1 - beta1) g (Nesterov)
//   Adam (PyTorch's)     g = g + decay var; m and v as above; w = v, or largest = max(largest, v), w = largest;
//                        var = var - rate / (1 - power1) m / (sqrt(w) / sqrt(1 - power2) + epsilon)
//   SGD                  g = g + decay var; without momentum n = g, else
//                        buffer = momentum buffer + (1 - dampening) g, at the first step buffer = g;
//                        n = buffer, or n = g + momentum buffer (Nesterov); var = var - rate n
//
// Rounding  float64 throughout; what is stored rounds to its own type.
// NaN, Inf  as IEEE 754; NaN wins in the maximum.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Row-major elements of tensors of one shape. Null: absent.
struct OptimizerTensors {
  const TensorRef* var = nullptr;
  const TensorRef* m = nullptr;  ///< of SGD the buffer
  const TensorRef* v = nullptr;
  const TensorRef* largest = nullptr;
  const TensorRef* gradient = nullptr;
};

struct OptimizerNumbers {
  double rate = 0;
  double beta1 = 0;
  double beta2 = 0;
  double power1 = 0;
  double power2 = 0;
  double decay = 0;
  double epsilon = 0;
  double momentum = 0;
  double dampening = 0;
  double scale = 1;              ///< of the gradient
  bool stores_gradient = false;  ///< the gradient without its scale
  bool nesterov = false;
  bool maximize = false;
  bool is_first = false;
};

void AdamStep(const OptimizerNumbers& numbers, const OptimizerTensors& tensors, Range range);
void TorchAdamStep(const OptimizerNumbers& numbers, const OptimizerTensors& tensors, Range range);
void SgdStep(const OptimizerNumbers& numbers, const OptimizerTensors& tensors, Range range);

/// The first element as a number; `missing` for null.
double FirstNumber(const TensorRef* ref, double missing);

/// What follows a step whose loss was scaled. With found_inf > 0 the scale shrinks by `backoff` and the count of good
/// steps is 0, else the scale grows by `growth`, if it stays finite, after `interval` good steps.
struct ScaleUpdate {
  const TensorRef* scale;
  const TensorRef* tracker;
  const TensorRef* found_inf;
  const TensorRef* new_scale;    ///< may be `scale`
  const TensorRef* new_tracker;  ///< may be `tracker`
  double growth = 0;
  double backoff = 0;
  int64_t interval = 0;
};
void UpdateScale(const ScaleUpdate& update);

}  // namespace reprise::kernels
