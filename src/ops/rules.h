// SPDX-License-Identifier: Apache-2.0
//
// The rules that many operators share: which type a computation uses, which shape its result has.
#pragma once

#include "base/status.h"
#include "device/work_cost.h"
#include "kernels/matmul.h"
#include "ops/op_call.h"

namespace reprise::ops {

// ---- Types: set OpCall::compute; all but the last two check that the outputs can hold it ----

/// The promoted type of the tensors, then of the weakly typed scalars.
Status PromoteInputs(OpCall& call);
/// As PromoteInputs, and float32 where the promoted type is an integer or bool.
Status PromoteInputsToFloating(OpCall& call);
/// The promoted type, whatever the outputs are: for results that any of them can hold.
Status PromoteInputsAlone(OpCall& call);
/// Inputs and outputs have one type.
Status OneType(OpCall& call);
/// The type of the first output; inputs convert to it whatever they are.
Status TypeOfOutput(OpCall& call);
/// Parameter dtype, which must be the type of the output.
Status TypeOfDTypeParam(OpCall& call);
/// The type of the first input, whatever the outputs are.
Status TypeOfSelf(OpCall& call);
/// float32, whatever comes in and goes out.
Status ComputeInFloat(OpCall& call);

// ---- Shapes ----

/// Any; where they must fit, the lowering checks them.
Status AnyShape(OpCall& call);
/// The first output has the shape of the first input.
Status ShapeOfFirstInput(OpCall& call);
/// Every output has the broadcast shape of the inputs: right-aligned, sizes equal or 1.
Status BroadcastInputs(OpCall& call);

/// The broadcast shape of two shapes; null where they do not broadcast.
bool Broadcast(std::span<const int64_t> a, std::span<const int64_t> b, Dims& result);
/// A tensor of rank 0 as one of rank 1.
kernels::TensorRef AtLeastOneDim(kernels::TensorRef ref);
/// `index` has as many dims as `tensor` and no greater sizes, but for dim `but_dim` (-1: for none).
Status CheckIndexFits(const OpCall& call, const Operand& index, const Operand& tensor, int but_dim);

// ---- Results that a mask asks for ----

/// The result among gradInput, gradWeight and gradBias that entry `which` of attribute outputMask asks for; null where
/// it asks for none.
StatusOr<const Operand*> WantedGradient(const OpCall& call, size_t which);

// ---- Splitting ----

/// Units that are worth a thread when one costs `elements` of light work.
inline int64_t GrainOf(int64_t elements) { return device::GrainOf({.elements = elements}); }

/// Units that are worth a thread when each makes `multiply_adds` of them.
inline int64_t GrainOfProduct(int64_t multiply_adds) { return device::GrainOf({.multiply_adds = multiply_adds}); }

/// Work items of a matrix product that are worth a thread.
inline int64_t GrainOf(const kernels::ProductWork& item) {
  return device::GrainOf({.multiply_adds = item.multiply_adds, .bytes = item.bytes});
}

}  // namespace reprise::ops
