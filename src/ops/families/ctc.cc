// SPDX-License-Identifier: Apache-2.0
//
// Connectionist temporal classification (kernels/ctc.h).
#include "kernels/ctc.h"

#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::CtcShape;
using kernels::DType;

std::string_view TargetLengthsName(const OpCall& call) {
  return call.Has("targetlengths") ? "targetlengths" : "targetLengths";
}

// Lengths of the items: one for each, none negative, none above `most`.
Status ReadLengths(const OpCall& call, std::string_view name, int64_t items, int64_t most,
                   std::vector<int64_t>& lengths) {
  const std::span<const int64_t> given = call.Ints(name);
  if (given.size() != static_cast<size_t>(items)) {
    return call.Invalid(
        fmt::format("{} has {} entries, expected {}: one for each sequence", name, given.size(), items));
  }
  for (const int64_t length : given) {
    if (length >= 0 && length <= most) continue;
    return call.Invalid(fmt::format("{} is {}, expected lengths from 0 to {}", name, ShapeText(given), most));
  }
  lengths.assign(given.begin(), given.end());
  return {};
}

// Targets are [N, S], or the labels of all sequences end to end.
Status ReadTargets(const OpCall& call, CtcShape& shape) {
  const Operand& targets = call.Get("targets");
  const bool is_padded = targets.rank() == 2;
  if (targets.rank() != 1 && !(is_padded && targets.sizes()[0] == shape.items)) {
    return call.InvalidOperand(targets, fmt::format("has shape {}, expected [{}, longest] or one dim",
                                                    ShapeText(targets.sizes()), shape.items));
  }
  const int64_t most = is_padded ? targets.sizes()[1] : targets.tensor->count;
  REPRISE_RETURN_IF_ERROR(ReadLengths(call, TargetLengthsName(call), shape.items, most, shape.target_lengths));
  int64_t begin = 0;
  for (size_t n = 0; n < shape.target_lengths.size(); ++n) {
    shape.target_begins.push_back(is_padded ? static_cast<int64_t>(n) * most : begin);
    begin += shape.target_lengths[n];
  }
  if (is_padded || begin == targets.tensor->count) return {};
  return call.InvalidOperand(
      targets, fmt::format("has {} labels, {} add up to {}", targets.tensor->count, TargetLengthsName(call), begin));
}

Status ReadCtc(OpCall& call, CtcShape& shape) {
  const Operand& log_probs = call.Get("logProbs");
  if (log_probs.rank() != 3) {
    return call.InvalidOperand(
        log_probs, fmt::format("has shape {}, expected [time, batch, classes]", ShapeText(log_probs.sizes())));
  }
  shape.times = log_probs.sizes()[0];
  shape.items = log_probs.sizes()[1];
  shape.classes = log_probs.sizes()[2];
  shape.blank = call.Int("blank");
  shape.zero_infinity = call.Bool("zeroInfinity");
  if (shape.blank < 0 || shape.blank >= shape.classes) {
    return call.Invalid(fmt::format("blank is {}, logProbs has {} classes", shape.blank, shape.classes));
  }
  REPRISE_RETURN_IF_ERROR(ReadLengths(call, "inputLengths", shape.items, shape.times, shape.input_lengths));
  REPRISE_RETURN_IF_ERROR(ReadTargets(call, shape));
  const Operand& alpha = call.Get(call.Has("gradOut") ? "logAlpha" : "logAlphaOut");
  const int64_t least[3] = {shape.items, shape.times, 2 * shape.longest() + 1};
  const bool has_room =
      alpha.rank() == 3 && alpha.sizes()[0] == least[0] && alpha.sizes()[1] == least[1] && alpha.sizes()[2] >= least[2];
  if (!has_room) {
    REPRISE_RETURN_IF_ERROR(
        call.CheckShape(alpha, least, [] { return "[batch, time, twice the longest target and one, or more]:"; }));
  }
  shape.alpha_stride = alpha.sizes()[2];
  return {};
}

Status CtcLossShape(OpCall& call) {
  CtcShape shape;
  REPRISE_RETURN_IF_ERROR(ReadCtc(call, shape));
  const auto one_each = [] { return "one for each sequence,"; };
  if (!call.Has("gradOut")) return call.CheckShape(call.Get("negLogLikelihoodOut"), {&shape.items, 1}, one_each);
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("gradOut"), {&shape.items, 1}, one_each));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("negLogLikelihood"), {&shape.items, 1}, one_each));
  return call.CheckShape(call.outputs[0], call.Get("logProbs").sizes(), [] { return "the shape of logProbs,"; });
}

// refs: loss, alpha, log_probs, targets.
void RunCtcLoss(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::CtcLoss(launch.State<CtcShape>(), launch.refs[0].dtype, DataOf<void>(launch, 2, memory),
                   DataOf<int64_t>(launch, 3, memory), DataOf<void>(launch, 0, memory), DataOf<void>(launch, 1, memory),
                   range);
}

int64_t CostOfItem(const CtcShape& shape) { return shape.times * (20 * (2 * shape.longest() + 1) + shape.classes); }

Status LowerCtcLoss(OpCall& call) {
  auto shape = std::make_shared<CtcShape>();
  REPRISE_RETURN_IF_ERROR(ReadCtc(call, *shape));
  const DType type = WideFloatOf(call.compute);
  const Dense log_probs = DenseInput(call, call.Get("logProbs"), type);
  const Dense targets = DenseInput(call, call.Get("targets"), DType::kInt64);
  const Dense loss = DenseOutput(call, call.Get("negLogLikelihoodOut"), type);
  const Dense alpha = DenseOutput(call, call.Get("logAlphaOut"), type);
  Launch& launch = call.AddLaunch(RunCtcLoss);
  loss.Write(call, launch);
  alpha.Write(call, launch);
  log_probs.Read(call, launch);
  targets.Read(call, launch);
  launch.units = shape->items;
  launch.grain = GrainOf(CostOfItem(*shape));
  launch.state = std::move(shape);
  loss.Store(call);
  alpha.Store(call);
  return {};
}

// refs: out, grad, log_probs, targets, loss, alpha.
void RunCtcGradient(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::CtcGradient(launch.State<CtcShape>(), launch.refs[0].dtype, DataOf<void>(launch, 1, memory),
                       DataOf<void>(launch, 2, memory), DataOf<int64_t>(launch, 3, memory),
                       DataOf<void>(launch, 4, memory), DataOf<void>(launch, 5, memory),
                       DataOf<void>(launch, 0, memory), memory.scratch, range);
}

Status LowerCtcLossBackward(OpCall& call) {
  auto shape = std::make_shared<CtcShape>();
  REPRISE_RETURN_IF_ERROR(ReadCtc(call, *shape));
  if (call.outputs[0].tensor->count == 0) return {};
  const DType type = WideFloatOf(call.compute);
  const Dense grad = DenseInput(call, call.Get("gradOut"), type);
  const Dense log_probs = DenseInput(call, call.Get("logProbs"), type);
  const Dense targets = DenseInput(call, call.Get("targets"), DType::kInt64);
  const Dense loss = DenseInput(call, call.Get("negLogLikelihood"), type);
  const Dense alpha = DenseInput(call, call.Get("logAlpha"), type);
  const Dense out = DenseOutput(call, call.outputs[0], type);
  Launch& launch = call.AddLaunch(RunCtcGradient);
  out.Write(call, launch);
  for (const Dense* input : {&grad, &log_probs, &targets, &loss, &alpha}) input->Read(call, launch);
  launch.units = shape->items;
  launch.grain = GrainOf(2 * CostOfItem(*shape));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::CtcScratchBytes(*shape)));
  launch.state = std::move(shape);
  out.Store(call);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/ctc.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
