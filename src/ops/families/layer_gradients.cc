// SPDX-License-Identifier: Apache-2.0
//
// Gradients of batch normalisation (kernels/layer_gradients.h).
#include "kernels/layer_gradients.h"

#include <algorithm>

#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::BatchNormGradient;

// The statistics that the normalisation used: those of the batch, or the running ones.
struct NormStatistics {
  std::string_view mean, spread;
};
NormStatistics StatisticsOf(const OpCall& call) {
  if (call.Bool("training")) return {"saveMean", "saveInvstd"};
  return {"runningMean", "runningVar"};
}

Status BatchNormBackwardShape(OpCall& call) {
  const Operand& input = call.Get("input");
  if (input.rank() < 2) {
    return call.InvalidOperand(input, fmt::format("has shape {}, expected [N, C, ..]", ShapeText(input.sizes())));
  }
  const int64_t channels = input.sizes()[1];
  const std::span<const int64_t> line(&channels, 1);
  const auto whole = [] { return "the shape of input,"; };
  const auto single = [] { return "one element for each channel,"; };
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("gradOut"), input.sizes(), whole));
  const NormStatistics statistics = StatisticsOf(call);
  for (std::string_view name : {statistics.mean, statistics.spread}) {
    const Operand* operand = call.Find(name);
    if (operand == nullptr) {
      return call.Invalid(fmt::format("{} is null, and training is {}", name, call.Bool("training")),
                          "pass the statistics that the normalisation used");
    }
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*operand, line, single));
  }
  if (const Operand* weight = call.Find("weight")) REPRISE_RETURN_IF_ERROR(call.CheckShape(*weight, line, single));
  for (size_t i = 0; i < 3; ++i) {
    REPRISE_ASSIGN_OR_RETURN(const Operand* wanted, WantedGradient(call, i));
    if (wanted == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(i == 0 ? call.CheckShape(*wanted, input.sizes(), whole)
                                   : call.CheckShape(*wanted, line, single));
  }
  return {};
}

// refs: the three gradients, gradOut, input, weight, the mean, and the variance or its inverse root.
void RunBatchNormBackward(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  BatchNormGradient operands;
  operands.of_x = launch.RefOrNull(0);
  operands.of_weight = launch.RefOrNull(1);
  operands.of_bias = launch.RefOrNull(2);
  operands.grad = launch.RefOrNull(3);
  operands.x = launch.RefOrNull(4);
  operands.weight = launch.RefOrNull(5);
  operands.mean = launch.RefOrNull(6);
  (launch.ints[0] != 0 ? operands.invstd : operands.variance) = launch.RefOrNull(7);
  operands.eps = launch.scalars[0].As<double>();
  kernels::BatchNormBackward(operands, range);
}

Status LowerBatchNormBackward(OpCall& call) {
  const Operand& input = call.Get("input");
  const Operand* wanted[3];
  for (size_t i = 0; i < 3; ++i) {
    REPRISE_ASSIGN_OR_RETURN(wanted[i], WantedGradient(call, i));
  }
  const NormStatistics statistics = StatisticsOf(call);
  Launch& launch = call.AddLaunch(RunBatchNormBackward);
  for (const Operand* output : wanted) call.WriteOptional(launch, output);
  call.Read(launch, call.Get("gradOut"));
  call.Read(launch, input);
  call.ReadOptional(launch, call.Find("weight"));
  call.Read(launch, call.Get(statistics.mean));
  call.Read(launch, call.Get(statistics.spread));
  launch.ints.push_back(call.Bool("training") ? 1 : 0);
  launch.scalars.push_back(kernels::Scalar::Of(call.Real("eps")));
  launch.units = input.sizes()[1];
  launch.grain = GrainOf(4 * input.tensor->count / std::max<int64_t>(1, launch.units));
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/layer_gradients.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
