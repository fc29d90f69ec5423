// SPDX-License-Identifier: Apache-2.0
//
// Launches of matrix products (matmul.cc), for operators that make some of their own.
#pragma once

#include "ops/op_call.h"

namespace reprise::ops {

/// Cuts a launch whose operands are out, a and b in this order: units, grain, scratch; b may be prepared. Its kernel
/// calls kernels::MatMul with PreparedRight.
void SplitProduct(OpCall& call, Launch& launch);

/// What the kernel passes as prepared right operand; null: there is none.
inline const void* PreparedRight(const Launch& launch) {
  return launch.uses[2].is_prepared ? launch.refs[2].data : nullptr;
}

}  // namespace reprise::ops
