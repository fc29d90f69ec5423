// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation_functions.h"

#include "ops/computations.h"
#include "ops/plans.h"
#include "ops/rules.h"

namespace reprise::ops {

constexpr Computation kRelu = ElementwiseOf<kernels::kReluFn>();

}  // namespace reprise::ops
