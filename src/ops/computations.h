// SPDX-License-Identifier: Apache-2.0
//
// Everything that can be computed: the Computations that rows of the operator table refer to, from
// api/computations.csv. Each is defined at the end of the file of families/ that has its functions:
//     #include "ops/generated/FAMILY.def"
#pragma once

#include "ops/op_schema.h"

namespace reprise::ops {

#define REPRISE_COMPUTATION(name, ...) extern const Computation name;
#include "ops/computations.def"

}  // namespace reprise::ops

/// A row of api/computations.csv where its functions are known.
#define REPRISE_DEFINE_COMPUTATION(name, lowering, number, type_rule, rule_of_shape, overlap, core, more) \
  constexpr Computation name = {.dtype_rule = type_rule,                                                  \
                                .shape_rule = rule_of_shape,                                              \
                                .aliasing = Aliasing::overlap,                                            \
                                .engine = Engine::core,                                                   \
                                .lower = lowering,                                                        \
                                .code = static_cast<uint8_t>(number),                                     \
                                .takes = more};
