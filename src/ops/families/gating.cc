// SPDX-License-Identifier: Apache-2.0
//
// The choice of experts by their scores.
#include "kernels/gating.h"

#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::TensorRef;

constexpr int64_t kMostChosen = 1024;

void RunGating(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ChooseExperts(launch.refs[3], launch.refs[4], launch.refs[0], launch.refs[1], launch.refs[2], range,
                         memory.scratch);
}

// [row, ..] as [1, row, ..].
void AddOuterDim(TensorRef& ref) {
  for (int d = ref.rank++; d > 0; --d) {
    ref.sizes[d] = ref.sizes[d - 1];
    ref.strides[d] = ref.strides[d - 1];
  }
  ref.sizes[0] = 1;
  ref.strides[0] = 0;
}

Status GatingShape(OpCall& call) {
  const Operand& x = call.inputs[0];
  if (x.rank() != 2 && x.rank() != 3) {
    return call.InvalidOperand(x, fmt::format("has shape {}, expected 2 or 3 dims", ShapeText(x.sizes())));
  }
  const int64_t k = call.Int("k");
  const int64_t most = std::min(kMostChosen, x.sizes().back());
  if (k < 0 || k > most) return call.Invalid(fmt::format("k is {}, expected a value from 0 to {}", k, most));
  Dims shape(x.sizes().data(), x.sizes().size() - 1);
  if (const Operand* finished = call.Find("finishedOptional")) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*finished, shape, [] { return "the rows"; }));
  }
  shape.push_back(k);
  for (const Operand& output : call.outputs) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, shape, [] { return "the shape"; }));
  }
  return {};
}

Status LowerGating(OpCall& call) {
  Launch& launch = call.AddLaunch(RunGating);
  for (const Operand& output : call.outputs) call.Write(launch, output);
  call.Read(launch, call.inputs[0]);
  const Operand* finished = call.Find("finishedOptional");
  call.ReadOptional(launch, finished);
  if (call.inputs[0].rank() == 2) {
    for (TensorRef& ref : launch.refs) AddOuterDim(ref);
  }
  if (call.outputs[0].tensor->count == 0) return {};
  const int64_t columns = call.inputs[0].sizes().back();
  launch.units = call.inputs[0].tensor->count / columns;
  launch.grain = GrainOf(columns * 16);
  call.AddScratch(launch, static_cast<uint64_t>(columns) * 8);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/gating.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
