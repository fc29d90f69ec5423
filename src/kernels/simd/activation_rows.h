// SPDX-License-Identifier: Apache-2.0
//
// Vector rows of the activation functions (activation_functions.h).
#pragma once

#include "kernels/elementwise.h"

namespace reprise::kernels::simd {

enum class ActivationRow : uint8_t {
  kElu,
  kFastGelu,
  kGeGlu,
  kGeGluTanh,
  kGelu,
  kGeluBackward,
  kGeluTanh,
  kGeluTanhBackward,
  kGlu,
  kGluGateBackward,
  kHardsigmoid,
  kHardswish,
  kHardtanh,
  kLeakyRelu,
  kMish,
  kRelu,
  kSigmoid,
  kSigmoidBackward,
  kSilu,
  kSiluBackward,
  kSoftplus,
  kSwiGlu,
  kSwiGluGateBackward,
  kTanhBackward,
  kThreshold,
  kThresholdBackward,
};

/// \pre type is float32, float16 or bfloat16.
ElementRow FindActivationRow(ActivationRow row, DType type);

}  // namespace reprise::kernels::simd
