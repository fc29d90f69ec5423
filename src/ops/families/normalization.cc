// SPDX-License-Identifier: Apache-2.0
#include "kernels/softmax.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/plans.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

// Two passes and an exponential for each element.
constexpr int64_t kSoftmaxCost = 8;

void RunSoftmax(const Launch& launch, kernels::Range range, const Launch::Memory&) {
  kernels::Softmax(launch.refs[1], static_cast<int>(launch.ints[0]), launch.compute, launch.refs[0], range);
}

}  // namespace

Status PlanSoftmax(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  Launch& launch = call.AddLaunch(RunSoftmax);
  launch.ints.push_back(dim);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, self);
  if (call.outputs[0].tensor->count == 0) return {};
  launch.units = kernels::SoftmaxRowCount(launch.refs[0], dim);
  launch.grain = GrainOf(call.outputs[0].tensor->count / launch.units * kSoftmaxCost);
  return {};
}

// ---- Computations -----------------------------------------------------------------------------------------------

constexpr Computation kSoftmax = {
    .dtype_rule = PromoteInputs, .shape_rule = BroadcastInputs, .aliasing = Aliasing::kSameView, .plan = PlanSoftmax};

}  // namespace reprise::ops
