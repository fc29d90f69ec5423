// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "kernels/adamw.h"
#include "kernels/cast.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;

// What one element costs, in light ones.
constexpr int64_t kAdamWCost = 8;

Status AdamWTypes(OpCall& call) {
  call.compute = DType::kFloat;
  for (const Operand& output : call.outputs) {
    if (output.dtype == DType::kDouble) call.compute = DType::kDouble;
  }
  return {};
}

Status AdamWShapes(OpCall& call) {
  const Operand& var = call.Get("varRef");
  for (const char* name : {"mRef", "vRef", "maxGradNormOptionalRef", "grad"}) {
    const Operand* operand = call.Find(name);
    if (operand == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*operand, var.sizes(), [] { return "the shape of varRef,"; }));
  }
  const Operand& step = call.Get("step");
  if (step.tensor->count == 1) return {};
  return call.InvalidOperand(step, fmt::format("has shape {}, expected one element", ShapeText(step.sizes())));
}

void RunAdamW(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const kernels::TensorRef& step = launch.refs[kernels::kAdamOperands];
  const double t = kernels::Scalar(step.dtype, step.data).As<double>();
  kernels::AdamW(launch.State<kernels::AdamWStep>(), t, launch.refs.data(), launch.compute, range);
}

Status LowerAdamW(OpCall& call) {
  const Operand* largest = call.Find("maxGradNormOptionalRef");
  if (!call.Bool("amsgrad")) {
    largest = nullptr;
  } else if (largest == nullptr) {
    return call.Invalid("maxGradNormOptionalRef is null, but amsgrad is true", "pass the largest vRef so far");
  }
  auto step = std::make_shared<kernels::AdamWStep>();
  *step = {call.Real("lr"),          call.Real("beta1"), call.Real("beta2"),
           call.Real("weightDecay"), call.Real("eps"),   call.Bool("maximize")};
  Launch& launch = call.AddLaunch(RunAdamW);
  call.Write(launch, call.Get("varRef"));
  call.Write(launch, call.Get("mRef"));
  call.Write(launch, call.Get("vRef"));
  call.WriteOptional(launch, largest);
  call.Read(launch, call.Get("grad"));
  call.Read(launch, call.Get("step"));
  launch.state = std::move(step);
  launch.units = call.Get("varRef").tensor->count;
  launch.grain = GrainOf(kAdamWCost);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/optimizer.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
