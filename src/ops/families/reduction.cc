// SPDX-License-Identifier: Apache-2.0
#include "kernels/reduce.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/plans.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

void RunReduceSum(const Launch& launch, kernels::Range range, const Launch::Memory&) {
  kernels::ReduceSum(launch.refs[1], static_cast<uint32_t>(launch.ints[0]), launch.compute, launch.refs[0], range);
}

// Bit d: dim d of self is reduced. No dims at all means every one.
StatusOr<uint32_t> ReducedDims(const OpCall& call) {
  const std::span<const int64_t> dims = call.Ints("dims");
  const int rank = call.inputs[0].rank();
  if (dims.empty()) return (1u << rank) - 1;
  uint32_t mask = 0;
  for (int64_t dim : dims) {
    REPRISE_ASSIGN_OR_RETURN(const int d, call.WrapDim("an entry of dims", dim, rank));
    if ((mask >> d & 1) != 0) {
      return call.Invalid(fmt::format("dims {} names dim {} twice", ShapeText(dims), d), "name each dim once");
    }
    mask |= 1u << d;
  }
  return rank == 0 ? 0 : mask;
}

}  // namespace

Status ReducedShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const uint32_t mask, ReducedDims(call));
  Dims shape;
  for (int d = 0; d < self.rank(); ++d) {
    if ((mask >> d & 1) == 0) {
      shape.push_back(self.sizes()[static_cast<size_t>(d)]);
    } else if (call.Bool("keepDims")) {
      shape.push_back(1);
    }
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the reduced shape"; });
}

Status PlanReduceSum(OpCall& call) {
  const Operand& self = call.inputs[0];
  if (kernels::CategoryOf(self.dtype) == kernels::Category::kComplex &&
      kernels::CategoryOf(call.compute) != kernels::Category::kComplex) {
    return call.InvalidOperand(self, fmt::format("is {}, which does not convert to dtype {}", kernels::Name(self.dtype),
                                                 kernels::Name(call.compute)));
  }
  REPRISE_ASSIGN_OR_RETURN(const uint32_t mask, ReducedDims(call));
  kernels::TensorRef out = call.RefOf(call.outputs[0]);
  if (call.Bool("keepDims")) {
    int kept = 0;
    for (int d = 0; d < self.rank(); ++d) {
      if ((mask >> d & 1) != 0) continue;
      out.sizes[kept] = out.sizes[d];
      out.strides[kept++] = out.strides[d];
    }
    out.rank = kept;
  }
  Launch& launch = call.AddLaunch(RunReduceSum);
  launch.ints.push_back(mask);
  call.Write(launch, call.outputs[0], out);
  call.Read(launch, self);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = launch.units == 0 ? 0 : GrainOf(self.tensor->count / launch.units);
  return {};
}

// ---- Computations -----------------------------------------------------------------------------------------------

constexpr Computation kReduceSum = {.dtype_rule = TypeOfDTypeParam, .shape_rule = ReducedShape, .plan = PlanReduceSum};

}  // namespace reprise::ops
