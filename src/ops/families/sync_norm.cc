// SPDX-License-Identifier: Apache-2.0
//
// Batch normalisation in pieces (kernels/sync_norm.h).
#include "kernels/sync_norm.h"

#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::SyncNormArgs;
using kernels::TensorRef;

constexpr int64_t kSyncNormCost = 6;

using SyncRef = const TensorRef* SyncNormArgs::*;

// A parameter and where the kernels want it.
struct SyncOperand {
  std::string_view name;
  SyncRef place;
  enum Shape : uint8_t { kWhole, kEach, kParts, kAny } shape;
};

enum SyncKind : uint8_t {
  kSyncStats,
  kSyncSums,
  kSyncNormalise,
  kSyncGradients,
  kSyncGradientOfX,
  kSyncGather,
  kSyncGatherSums,
  kSyncKinds
};

struct SyncOperation {
  void (*run)(const SyncNormArgs&, kernels::Range);
  std::vector<SyncOperand> outputs;
  std::vector<SyncOperand> inputs;
};

const SyncOperation& OperationOf(uint8_t kind) {
  using O = SyncOperand;
  using A = SyncNormArgs;
  static const SyncOperation kOperations[kSyncKinds] = {
      {kernels::SyncNormStats,
       {{"mean", &A::mean, O::kEach}, {"invstd", &A::invstd, O::kEach}},
       {{"input", &A::x, O::kWhole}}},
      {kernels::SyncNormSums,
       {{"sum", &A::sum, O::kEach}, {"squareSum", &A::product, O::kEach}},
       {{"x", &A::x, O::kWhole}}},
      {kernels::SyncNormalise,
       {{"output", &A::out, O::kWhole}},
       {{"input", &A::x, O::kWhole},
        {"weight", &A::weight, O::kEach},
        {"bias", &A::bias, O::kEach},
        {"mean", &A::mean, O::kEach},
        {"invstd", &A::invstd, O::kEach}}},
      {kernels::SyncNormGradients,
       {{"sumDy", &A::sum, O::kEach},
        {"sumDyXmu", &A::product, O::kEach},
        {"gradWeight", &A::of_weight, O::kEach},
        {"gradBias", &A::of_bias, O::kEach}},
       {{"gradOut", &A::dy, O::kWhole},
        {"input", &A::x, O::kWhole},
        {"mean", &A::mean, O::kEach},
        {"invstd", &A::invstd, O::kEach}}},
      {kernels::SyncNormGradientOfX,
       {{"gradInput", &A::out, O::kWhole}},
       {{"gradOut", &A::dy, O::kWhole},
        {"input", &A::x, O::kWhole},
        {"mean", &A::mean, O::kEach},
        {"invstd", &A::invstd, O::kEach},
        {"weight", &A::weight, O::kEach},
        {"sumDy", &A::sum, O::kEach},
        {"sumDyXmu", &A::product, O::kEach},
        {"counter", &A::counts, O::kAny}}},
      {kernels::SyncNormGather,
       {{"meanAll", &A::all_mean, O::kEach},
        {"invstdAll", &A::all_invstd, O::kEach},
        {"runningMean", &A::running_mean, O::kEach},
        {"runningVar", &A::running_var, O::kEach}},
       {{"mean", &A::mean, O::kParts}, {"invstd", &A::invstd, O::kParts}, {"counts", &A::counts, O::kAny}}},
      {kernels::SyncNormGatherSums,
       {{"batchMean", &A::all_mean, O::kEach},
        {"batchInvstd", &A::all_invstd, O::kEach},
        {"mean", &A::running_mean, O::kEach},
        {"variance", &A::running_var, O::kEach}},
       {{"totalSum", &A::sum, O::kParts},
        {"totalSquareSum", &A::product, O::kParts},
        {"sampleCount", &A::counts, O::kAny}}},
  };
  return kOperations[kind];
}

const SyncOperation& OperationOf(const OpCall& call) { return OperationOf(call.op.computation.code); }

// [N, C, ..] of the tensor that is normalised, or [parts, C].
StatusOr<const Operand*> LeadOf(const OpCall& call) {
  const SyncOperation& operation = OperationOf(call);
  const auto shape = operation.inputs[0].shape;
  const Operand& lead = call.Get(operation.inputs[0].name);
  if (shape == SyncOperand::kParts ? lead.rank() != 2 : lead.rank() < 2) {
    return call.InvalidOperand(lead, fmt::format("has shape {}, expected {}", ShapeText(lead.sizes()),
                                                 shape == SyncOperand::kParts ? "[parts, C]" : "[N, C, ..]"));
  }
  return &lead;
}

// What the mask of the gradients leaves out.
bool IsLeftOut(const OpCall& call, std::string_view name) {
  if (call.op.computation.code != kSyncGradients) return false;
  if (name == "gradWeight") return !call.Bool("weightG");
  if (name == "gradBias") return !call.Bool("biasG");
  return !call.Bool("inputG");
}

Status SyncNormShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Operand* lead, LeadOf(call));
  const int64_t channels = lead->sizes()[1];
  const auto check = [&](const SyncOperand& part) -> Status {
    const Operand* const operand = call.Find(part.name);
    if (operand == nullptr || part.shape == SyncOperand::kAny || IsLeftOut(call, part.name)) return {};
    if (part.shape == SyncOperand::kEach) {
      return call.CheckCount(*operand, {&channels, 1}, [] { return "one element for each channel,"; });
    }
    return call.CheckShape(*operand, lead->sizes(),
                           [&] { return fmt::format("the shape of {},", call.NameOf(*lead)); });
  };
  const SyncOperation& operation = OperationOf(call);
  for (const SyncOperand& part : operation.outputs) REPRISE_RETURN_IF_ERROR(check(part));
  for (const SyncOperand& part : operation.inputs) REPRISE_RETURN_IF_ERROR(check(part));
  for (const std::string_view name : {"counts", "sampleCount"}) {
    if (!call.Has(name)) continue;
    const Operand& counts = call.Get(name);
    if (counts.tensor->count == lead->sizes()[0]) continue;
    return call.InvalidOperand(counts, fmt::format("has shape {}, expected {} elements, one for each part",
                                                   ShapeText(counts.sizes()), lead->sizes()[0]));
  }
  return {};
}

void RunSyncNorm(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const SyncOperation& operation = OperationOf(static_cast<uint8_t>(launch.ints[0]));
  SyncNormArgs args;
  args.momentum = launch.scalars[0].As<double>();
  args.eps = launch.scalars[1].As<double>();
  size_t at = 0;
  const auto take = [&](const SyncOperand& part) {
    if (launch.HasOperand(at)) args.*part.place = &launch.refs[at];
    ++at;
  };
  for (const SyncOperand& part : operation.outputs) take(part);
  for (const SyncOperand& part : operation.inputs) take(part);
  operation.run(args, range);
}

Status LowerSyncNorm(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Operand* lead, LeadOf(call));
  const SyncOperation& operation = OperationOf(call);
  for (const SyncOperand& part : operation.outputs) {
    if (call.op.computation.code != kSyncGradients || IsLeftOut(call, part.name) || call.Find(part.name) != nullptr)
      continue;
    return call.Invalid(fmt::format("{} is null, but asked for", part.name),
                        "pass a tensor, or false for what asks for it");
  }
  Launch& launch = call.AddLaunch(RunSyncNorm);
  launch.ints.push_back(call.op.computation.code);
  launch.scalars.push_back(kernels::Scalar::Of(call.Has("momentum") ? call.Real("momentum") : 0.0));
  launch.scalars.push_back(kernels::Scalar::Of(call.Has("eps") ? call.Real("eps") : 0.0));
  for (const SyncOperand& part : operation.outputs) {
    call.WriteOptional(launch, IsLeftOut(call, part.name) ? nullptr : call.Find(part.name));
  }
  for (const SyncOperand& part : operation.inputs) call.ReadOptional(launch, call.Find(part.name));
  launch.units = lead->sizes()[1];
  launch.grain = GrainOf(launch.units == 0 ? 1 : lead->tensor->count / launch.units * kSyncNormCost);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/sync_norm.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
