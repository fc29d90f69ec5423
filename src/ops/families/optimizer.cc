// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <memory>

#include "kernels/adamw.h"
#include "kernels/cast.h"
#include "kernels/optimizer_steps.h"
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
  const auto& numbers = launch.State<kernels::AdamWStep>();
  kernels::AdamW(numbers, std::pow(numbers.beta1, t), std::pow(numbers.beta2, t), launch.refs.data(), launch.compute,
                 range);
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

// ---- Steps whose numbers are tensors ----

using kernels::FirstNumber;
using kernels::OptimizerNumbers;
using kernels::OptimizerTensors;
using kernels::TensorRef;

constexpr std::string_view kNumberNames[] = {"beta1Power", "beta2Power", "lr",  "beta1",
                                             "beta2",      "epsilon",    "eps", "weightDecay"};

// var, m, v, grad and what belongs to them have one shape, each number is one element.
Status StepShapes(OpCall& call) {
  const Operand& var = call.Get("varRef");
  for (const std::string_view name : {"m", "v", "mRef", "vRef", "grad", "maxGradNormOptional"}) {
    if (!call.Has(name) || call.Find(name) == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), var.sizes(), [] { return "the shape of varRef,"; }));
  }
  for (const std::string_view name : kNumberNames) {
    if (!call.Has(name) || call.Get(name).tensor->count == 1) continue;
    const Operand& number = call.Get(name);
    return call.InvalidOperand(number, fmt::format("has shape {}, expected one element", ShapeText(number.sizes())));
  }
  return {};
}

// refs: var, m, v, largest, grad, then the powers, lr, beta1, beta2, eps, weightDecay.
void RunAdamWOfTensors(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const auto number = [&](size_t i) { return FirstNumber(&launch.refs[kernels::kAdamOperands + i], 0); };
  kernels::AdamWStep step = {number(2), number(3), number(4), number(6), number(5), launch.ints[0] != 0, true};
  kernels::AdamW(step, number(0) * step.beta1, number(1) * step.beta2, launch.refs.data(), launch.compute, range);
}

Status LowerAdamWOfTensors(OpCall& call) {
  const Operand* largest = call.Find("maxGradNormOptional");
  if (!call.Bool("amsgrad")) {
    largest = nullptr;
  } else if (largest == nullptr) {
    return call.Invalid("maxGradNormOptional is null, but amsgrad is true", "pass the largest vRef so far");
  }
  Launch& launch = call.AddLaunch(RunAdamWOfTensors);
  for (const std::string_view name : {"varRef", "mRef", "vRef"}) call.Write(launch, call.Get(name));
  call.ReadOptional(launch, largest);
  for (const std::string_view name :
       {"grad", "beta1Power", "beta2Power", "lr", "beta1", "beta2", "eps", "weightDecay"}) {
    call.Read(launch, call.Get(name));
  }
  launch.ints.push_back(call.Bool("maximize") ? 1 : 0);
  launch.units = call.Get("varRef").tensor->count;
  launch.grain = GrainOf(kAdamWCost);
  return {};
}

// refs: var, m, v, grad, then the powers, lr, beta1, beta2, epsilon.
void RunAdamOfTensors(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const Refs& refs = launch.refs;
  OptimizerNumbers numbers;
  numbers.power1 = FirstNumber(&refs[4], 0);
  numbers.power2 = FirstNumber(&refs[5], 0);
  numbers.rate = FirstNumber(&refs[6], 0);
  numbers.beta1 = FirstNumber(&refs[7], 0);
  numbers.beta2 = FirstNumber(&refs[8], 0);
  numbers.epsilon = FirstNumber(&refs[9], 0);
  numbers.nesterov = launch.ints[0] != 0;
  kernels::AdamStep(numbers, {.var = &refs[0], .m = &refs[1], .v = &refs[2], .gradient = &refs[3]}, range);
}

Status LowerAdamOfTensors(OpCall& call) {
  Launch& launch = call.AddLaunch(RunAdamOfTensors);
  for (const std::string_view name : {"varRef", "m", "v"}) call.Write(launch, call.Get(name));
  for (const std::string_view name : {"grad", "beta1Power", "beta2Power", "lr", "beta1", "beta2", "epsilon"}) {
    call.Read(launch, call.Get(name));
  }
  launch.ints.push_back(call.Bool("useNesterov") ? 1 : 0);
  launch.units = call.Get("varRef").tensor->count;
  launch.grain = GrainOf(2 * kAdamWCost);
  return {};
}

// ---- Steps of lists ----

// The tensors of each list fit those of paramsRef; every step has one element.
Status StepListShapes(OpCall& call) {
  const std::span<const Operand> params = call.List("paramsRef");
  for (const std::string_view name :
       {"gradsRef", "expAvgsRef", "expAvgSqsRef", "maxExpAvgSqsRef", "momentumBufferListOptionalRef", "stateSteps"}) {
    if (!call.Has(name)) continue;
    const std::span<const Operand> list = call.List(name);
    const bool may_be_empty = name == "maxExpAvgSqsRef" || name == "momentumBufferListOptionalRef";
    if (list.empty() && may_be_empty) continue;
    if (list.size() != params.size()) {
      return call.Invalid(fmt::format("{} has {} tensors, paramsRef {}", name, list.size(), params.size()),
                          "pass one for each parameter");
    }
    for (size_t i = 0; i < list.size(); ++i) {
      if (name == "stateSteps") {
        if (list[i].tensor->count == 1) continue;
        return call.InvalidOperand(list[i],
                                   fmt::format("has shape {}, expected one element", ShapeText(list[i].sizes())));
      }
      REPRISE_RETURN_IF_ERROR(
          call.CheckShape(list[i], params[i].sizes(), [] { return "the shape of its parameter,"; }));
    }
  }
  for (const std::string_view name : {"gradScaleOptional", "foundInfOptional"}) {
    if (!call.Has(name)) continue;
    const Operand* const number = call.Find(name);
    if (number == nullptr || number->tensor->count == 1) continue;
    return call.InvalidOperand(*number, fmt::format("has shape {}, expected one element", ShapeText(number->sizes())));
  }
  return {};
}

// refs: var, m, v, largest, gradient, then the step, the gradient's scale and whether it has infinities.
void RunStepOfList(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const bool is_sgd = launch.ints[0] != 0;
  if (FirstNumber(launch.RefOrNull(7), 0) == 1) return;
  OptimizerNumbers numbers = launch.State<OptimizerNumbers>();
  const double step = FirstNumber(launch.RefOrNull(5), 0) + 1;
  numbers.power1 = std::pow(numbers.beta1, step);
  numbers.power2 = std::pow(numbers.beta2, step);
  numbers.scale = FirstNumber(launch.RefOrNull(6), 1);
  numbers.stores_gradient = launch.HasOperand(6);
  const OptimizerTensors tensors = {.var = &launch.refs[0],
                                    .m = launch.RefOrNull(1),
                                    .v = launch.RefOrNull(2),
                                    .largest = launch.RefOrNull(3),
                                    .gradient = &launch.refs[4]};
  (is_sgd ? kernels::SgdStep : kernels::TorchAdamStep)(numbers, tensors, range);
}

Status LowerStepOfList(OpCall& call) {
  const bool is_sgd = call.op.computation.code != 0;
  auto numbers = std::make_shared<OptimizerNumbers>();
  numbers->rate = call.Real("lr");
  numbers->decay = call.Real("weightDecay");
  numbers->maximize = call.Bool("maximize");
  if (is_sgd) {
    numbers->momentum = call.Real("momentum");
    numbers->dampening = call.Real("dampening");
    numbers->nesterov = call.Bool("nesterov");
    numbers->is_first = call.Bool("isFirstStep");
  } else {
    numbers->beta1 = call.Real("beta1");
    numbers->beta2 = call.Real("beta2");
    numbers->epsilon = call.Real("eps");
  }
  const auto at = [&](std::string_view name, size_t i) {
    const std::span<const Operand> list = call.List(name);
    return list.empty() ? nullptr : &list[i];
  };
  const bool has_largest = !is_sgd && call.Bool("amsgrad");
  if (has_largest && call.List("maxExpAvgSqsRef").empty()) {
    return call.Invalid("maxExpAvgSqsRef has no tensors, but amsgrad is true", "pass the largest squares so far");
  }
  if (is_sgd && numbers->momentum != 0 && call.List("momentumBufferListOptionalRef").empty()) {
    return call.Invalid(
        fmt::format("momentum is {}, but momentumBufferListOptionalRef has no tensors", numbers->momentum),
        "pass a buffer for each parameter, or momentum 0");
  }
  const Operand* const scale = call.Find("gradScaleOptional");
  for (size_t i = 0; i < call.List("paramsRef").size(); ++i) {
    Launch& launch = call.AddLaunch(RunStepOfList);
    launch.state = numbers;
    launch.ints.push_back(is_sgd ? 1 : 0);
    call.Write(launch, *at("paramsRef", i));
    if (is_sgd) {
      call.WriteOptional(launch, numbers->momentum != 0 ? at("momentumBufferListOptionalRef", i) : nullptr);
      call.WriteOptional(launch, nullptr);
      call.WriteOptional(launch, nullptr);
    } else {
      call.Write(launch, *at("expAvgsRef", i));
      call.Write(launch, *at("expAvgSqsRef", i));
      call.WriteOptional(launch, has_largest ? at("maxExpAvgSqsRef", i) : nullptr);
    }
    if (scale != nullptr) {
      call.Write(launch, *at("gradsRef", i));
    } else {
      call.Read(launch, *at("gradsRef", i));
    }
    call.ReadOptional(launch, is_sgd ? nullptr : at("stateSteps", i));
    call.ReadOptional(launch, scale);
    call.ReadOptional(launch, is_sgd ? nullptr : call.Find("foundInfOptional"));
    launch.units = at("paramsRef", i)->tensor->count;
    launch.grain = GrainOf(2 * kAdamWCost);
  }
  return {};
}

// ---- The scale of a loss ----

Status ScaleShapes(OpCall& call) {
  for (const auto& operands : {std::span<const Operand>(call.inputs.begin(), call.inputs.size()),
                               std::span<const Operand>(call.outputs.begin(), call.outputs.size())}) {
    for (const Operand& operand : operands) {
      if (operand.tensor->count == 1) continue;
      return call.InvalidOperand(operand,
                                 fmt::format("has shape {}, expected one element", ShapeText(operand.sizes())));
    }
  }
  return {};
}

void RunUpdateScale(const Launch& launch, kernels::Range, const Launch::KernelMemory&) {
  kernels::UpdateScale({.scale = &launch.refs[2],
                        .tracker = &launch.refs[3],
                        .found_inf = &launch.refs[4],
                        .new_scale = &launch.refs[0],
                        .new_tracker = &launch.refs[1],
                        .growth = launch.scalars[0].As<double>(),
                        .backoff = launch.scalars[1].As<double>(),
                        .interval = launch.ints[0]});
}

Status LowerUpdateScale(OpCall& call) {
  Launch& launch = call.AddLaunch(RunUpdateScale);
  for (const std::string_view name : {"updatedScale", "updatedGrowthTracker"}) call.Write(launch, call.Get(name));
  for (const std::string_view name : {"currentScale", "growthTracker", "foundInf"}) call.Read(launch, call.Get(name));
  launch.scalars.push_back(kernels::Scalar::Of(call.Real("growthFactor")));
  launch.scalars.push_back(kernels::Scalar::Of(call.Real("backoffFactor")));
  launch.ints.push_back(call.Int("growthInterval"));
  launch.units = 1;
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/optimizer.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
