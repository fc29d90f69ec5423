// SPDX-License-Identifier: Apache-2.0
#include "ops/computations.h"
#include "ops/families/attention.h"
#include "ops/rules.h"

namespace reprise::ops::attention {
namespace {

// Places in Launch::refs of the backward pass.
enum BackwardPlace : size_t {
  kQueryGradient,
  kKeyGradient,
  kValueGradient,
  kBackQuery,
  kBackKey,
  kBackValue,
  kGradient,
  kResult,
  kBackMaximum,
  kBackSum,
  kBackMask,
  kBackShift,
  kBackDrop
};

void RunBackward(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const Refs& refs = launch.refs;
  kernels::AttentionOperands forward;
  forward.query = refs[kBackQuery];
  forward.mask = refs[kBackMask];
  forward.shift = refs[kBackShift];
  forward.drop = refs[kBackDrop];
  forward.out = refs[kResult];
  forward.maximum = refs[kBackMaximum];
  forward.sum = refs[kBackSum];
  forward.keys = {&refs[kBackKey], 1};
  forward.values = {&refs[kBackValue], 1};
  kernels::AttendBackward(launch.State<AttentionSetup>(), forward,
                          {.gradient = refs[kGradient],
                           .query = refs[kQueryGradient],
                           .key = refs[kKeyGradient],
                           .value = refs[kValueGradient]},
                          range, memory.scratch);
}

Status LowerAttentionBackward(OpCall& call) {
  Attention a;
  REPRISE_RETURN_IF_ERROR(Describe(call, a));
  const Parts& parts = a.parts;
  for (std::string_view name : {"softmaxMaxOptional", "softmaxSumOptional"}) {
    if (!call.IsGiven(name)) return call.Invalid(fmt::format("{} is missing", name), "pass what the forward pass made");
  }
  if (const Operand* shift_gradient = call.Find("dpseOut");
      shift_gradient != nullptr && shift_gradient->tensor->count != 0) {
    return call.InvalidOperand(*shift_gradient, "is not supported yet", "pass null");
  }
  REPRISE_ASSIGN_OR_RETURN(const TensorRef maximum,
                           StatisticView(call, *parts.maximum, a.query, a.is_packed, kStatisticCopies));
  REPRISE_ASSIGN_OR_RETURN(const TensorRef sum,
                           StatisticView(call, *parts.sum, a.query, a.is_packed, kStatisticCopies));
  const Operand& dy = call.Get("dy");
  REPRISE_RETURN_IF_ERROR(call.CheckShape(dy, parts.out->sizes(), [] { return "the shape of the result,"; }));
  const Operand* inputs[] = {parts.query, &parts.keys[0], &parts.values[0]};
  const std::string_view names[] = {"dqOut", "dkOut", "dvOut"};
  AttentionSetup& setup = *a.setup;
  const int64_t heads[] = {setup.heads, setup.kv_heads, setup.kv_heads};
  if (parts.query->tensor->count == 0 && parts.keys[0].tensor->count == 0) return {};
  kernels::PrepareAttention(setup, 0);
  Launch& launch = call.AddLaunch(RunBackward);
  for (size_t i = 0; i < 3; ++i) {
    const Operand& output = call.Get(names[i]);
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, inputs[i]->sizes(),
                                            [&] { return fmt::format("the shape of {},", call.NameOf(*inputs[i])); }));
    REPRISE_ASSIGN_OR_RETURN(const HeadView view, ViewAs(call, output, a.layout, heads[i], 0));
    call.Write(launch, output, view.ref);
  }
  REPRISE_ASSIGN_OR_RETURN(const HeadView gradient, ViewAs(call, dy, a.layout, setup.heads, 0));
  call.Read(launch, *parts.query, a.query.ref);
  call.Read(launch, parts.keys[0], a.keys[0].ref);
  call.Read(launch, parts.values[0], a.values[0].ref);
  call.Read(launch, dy, gradient.ref);
  call.Read(launch, *parts.out, a.out.ref);
  call.Read(launch, *parts.maximum, maximum);
  call.Read(launch, *parts.sum, sum);
  AddOptional(call, launch, a.mask_operand, a.mask, false);
  AddOptional(call, launch, parts.shift, a.shift, false);
  AddOptional(call, launch, parts.drop, a.drop, false);
  launch.state = a.setup;
  launch.units = static_cast<int64_t>(setup.sequences.size()) * setup.kv_heads;
  const int64_t per_unit =
      a.query.tokens() * setup.heads / setup.kv_heads * a.capacity * (setup.depth + setup.value_depth);
  launch.grain = std::max<int64_t>(1, kGrainOfAttention / std::max<int64_t>(1, per_unit));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::AttentionBackwardScratchBytes(setup)));
  return {};
}

}  // namespace
}  // namespace reprise::ops::attention

namespace reprise::ops {

using namespace attention;  // NOLINT: the functions that the rows name

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/attention_backward.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
