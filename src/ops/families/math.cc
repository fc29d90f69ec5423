// SPDX-License-Identifier: Apache-2.0
#include "kernels/math_functions.h"

#include "ops/computations.h"
#include "ops/plans.h"
#include "ops/rules.h"

namespace reprise::ops {

constexpr Computation kExp = ElementwiseOf<kernels::kExpFn>(PromoteInputsToFloating);

}  // namespace reprise::ops
