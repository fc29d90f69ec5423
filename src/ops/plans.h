// SPDX-License-Identifier: Apache-2.0
//
// The plan functions, and the rules that belong to one of them. Each checks the attributes of a call whose types and
// shapes are already right, and adds its launches.
#pragma once

#include "base/status.h"
#include "ops/op_schema.h"

namespace reprise::ops {

// families/elementwise.cc; `code` is a kernels::BinaryOp or kernels::UnaryOp.

/// out = op(input 0, input 1); attribute alpha if the row has it.
Status PlanBinary(OpCall& call);
/// out = op(input 0).
Status PlanUnary(OpCall& call);

// families/movement.cc

/// out = cast(last input), which broadcasts to it.
Status PlanCopy(OpCall& call);
/// out = parameter value.
Status PlanFill(OpCall& call);
/// out = code.
Status PlanConstant(OpCall& call);
/// Shape of `self` with its dims in the order of parameter dims.
Status PermutedShape(OpCall& call);
Status PlanPermute(OpCall& call);
/// Shapes joined along parameter dim.
Status ConcatenatedShape(OpCall& call);
Status PlanConcat(OpCall& call);

// families/matmul.cc

/// Ranks as NumPy's matmul takes them; batch dims broadcast.
Status MatmulShape(OpCall& call);
/// Matrix by matrix.
Status MatrixShape(OpCall& call);
/// Batches of the same size.
Status BatchMatrixShape(OpCall& call);
Status PlanMatmul(OpCall& call);

// families/reduction.cc, families/normalization.cc

/// Shape of self without parameter dims, or with size 1 there if keepDims.
Status ReducedShape(OpCall& call);
Status PlanReduceSum(OpCall& call);
Status PlanSoftmax(OpCall& call);

}  // namespace reprise::ops
