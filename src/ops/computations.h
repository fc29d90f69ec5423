// SPDX-License-Identifier: Apache-2.0
//
// Everything that can be computed: the Computations that rows of the operator table refer to. Each is defined in the
// file of its family in families/.
#pragma once

#include "ops/op_schema.h"

namespace reprise::ops {

#define REPRISE_COMPUTATION(name) extern const Computation name;
#include "ops/op_ids.def"

}  // namespace reprise::ops
