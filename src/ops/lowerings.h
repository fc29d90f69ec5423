// SPDX-License-Identifier: Apache-2.0
//
// The lowering functions, and the rules that belong to one of them. Each checks the attributes of a call whose types
// and shapes are already right, and adds its launches.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "kernels/elementwise.h"
#include "ops/op_schema.h"
#include "ops/rules.h"

namespace reprise::ops {

struct Operand;

// families/elementwise.cc

/// out = fn(inputs), element by element; `numbers` are its numbers, of any type.
Status LowerElementwise(OpCall& call, const kernels::ElementFn& fn, std::span<const kernels::Scalar> numbers = {});
/// out = fn(inputs) for operands that the caller chooses.
Status LowerElementwise(OpCall& call, const kernels::ElementFn& fn, std::span<const kernels::Scalar> numbers,
                        std::span<const Operand* const> inputs);
/// A view of an operand. The function reads views of inputs, which broadcast to the view of the output.
struct ElementView {
  const Operand* operand;
  kernels::TensorRef ref;
};
Status LowerElementwise(OpCall& call, const kernels::ElementFn& fn, std::span<const kernels::Scalar> numbers,
                        const ElementView& out, std::span<const ElementView> inputs);
/// A Computation::lower that applies a function without numbers.
template <const kernels::ElementFn& kFn>
Status LowerFunction(OpCall& call) {
  return LowerElementwise(call, kFn);
}

/// The computation that applies one function to its operands in order.
template <const kernels::ElementFn& kFn>
constexpr Computation ElementwiseOf(Status (*dtype_rule)(OpCall&) = PromoteInputs) {
  return {.dtype_rule = dtype_rule,
          .shape_rule = BroadcastInputs,
          .aliasing = Aliasing::kSameView,
          .lower = LowerFunction<kFn>};
}
/// The computation of an element-wise operator with a lowering function of its own.
constexpr Computation ElementwiseWith(Status (*lower)(OpCall&), Status (*dtype_rule)(OpCall&) = PromoteInputs,
                                      uint8_t code = 0) {
  return {.dtype_rule = dtype_rule,
          .shape_rule = BroadcastInputs,
          .aliasing = Aliasing::kSameView,
          .lower = lower,
          .code = code};
}

/// Whether `type` has the scalar's value, apart from the precision of floating types.
bool KeepsValue(const kernels::Scalar& scalar, kernels::DType type);
/// As KeepsValue, but integers may wrap.
bool Survives(const kernels::Scalar& scalar, kernels::DType type);
/// The value of scalar attribute `name`; 161002 when the type of the computation cannot hold it.
Status NumberOf(const OpCall& call, std::string_view name, kernels::Scalar& number);

// families/arithmetic.cc

/// out = input 0 + alpha * input 1, or minus; alpha is 1 if the row has no such attribute.
Status LowerAdd(OpCall& call);
Status LowerSub(OpCall& call);

// families/movement.cc

/// out = cast(last input), which broadcasts to it.
Status LowerCopy(OpCall& call);
/// out = parameter value.
Status LowerFill(OpCall& call);
/// out = code.
Status LowerConstant(OpCall& call);
/// Shape of `self` with its dims in the order of parameter dims.
Status PermutedShape(OpCall& call);
Status LowerPermute(OpCall& call);

// families/joining.cc

/// Shapes joined along parameter dim.
Status ConcatenatedShape(OpCall& call);
Status LowerConcat(OpCall& call);

// families/matmul.cc

/// Ranks as NumPy's matmul takes them; batch dims broadcast.
Status MatmulShape(OpCall& call);
/// Matrix by matrix.
Status MatrixShape(OpCall& call);
/// Batches of the same size.
Status BatchMatrixShape(OpCall& call);
Status LowerMatmul(OpCall& call);

// families/reduction.cc, families/normalization.cc

/// Shape of self without parameter dims, or with size 1 there if keepDims.
Status ReducedShape(OpCall& call);
Status LowerReduceSum(OpCall& call);
Status LowerSoftmax(OpCall& call);

}  // namespace reprise::ops
