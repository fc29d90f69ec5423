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
  kBackDrop,
  kBackQueryRope,
  kBackKeyRope,
  kQueryRopeGradient,
  kKeyRopeGradient
};

void RunBackward(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const Refs& refs = launch.refs;
  kernels::AttentionOperands forward;
  forward.query = refs[kBackQuery];
  forward.mask = refs[kBackMask];
  forward.shift = refs[kBackShift];
  forward.drop = refs[kBackDrop];
  forward.query_rope = refs[kBackQueryRope];
  forward.key_rope = refs[kBackKeyRope];
  forward.out = refs[kResult];
  forward.maximum = refs[kBackMaximum];
  forward.sum = refs[kBackSum];
  forward.keys = {&refs[kBackKey], 1};
  forward.values = {&refs[kBackValue], 1};
  kernels::AttendBackward(launch.State<AttentionSetup>(), forward,
                          {.gradient = refs[kGradient],
                           .query = refs[kQueryGradient],
                           .key = refs[kKeyGradient],
                           .value = refs[kValueGradient],
                           .query_rope = refs[kQueryRopeGradient],
                           .key_rope = refs[kKeyRopeGradient]},
                          range, memory.scratch);
}

// refs: gradient of the sink, sink, gradient, result, maximum, sum.
void RunSinkGradient(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const Refs& refs = launch.refs;
  kernels::AttentionOperands forward;
  forward.sink = refs[1];
  forward.out = refs[3];
  forward.maximum = refs[4];
  forward.sum = refs[5];
  kernels::SinkGradient(launch.State<AttentionSetup>(), forward, refs[2], refs[0], range);
}

// What the largest call with these shapes needs: a sequence of all queries and all keys.
void LowerBackwardSize(OpCall& call, Attention& a) {
  AttentionSetup& setup = *a.setup;
  for (AttentionSequence& s : setup.sequences) s.keys = a.capacity;
  kernels::PrepareAttention(setup, 0);
  Launch& launch = call.AddLaunch(RunBackward);
  launch.units = INT32_MAX;
  launch.grain = 1;
  call.AddScratch(launch, static_cast<uint64_t>(kernels::AttentionBackwardScratchBytes(setup)));
}

struct RopeGradients {
  const Operand *query = nullptr, *key = nullptr;
  TensorRef query_view, key_view;
};

// The gradients of the parts that come apart.
StatusOr<RopeGradients> ReadRopeGradients(OpCall& call, const Attention& a) {
  RopeGradients result;
  const Parts& parts = a.parts;
  if (parts.query_rope == nullptr) return result;
  for (int i = 0; i < 2; ++i) {
    const std::string_view name = i == 0 ? "dqRopeOut" : "dkRopeOut";
    const Operand* output = call.Find(name);
    if (output == nullptr) {
      return Error(kOperatorArgumentNull, fmt::format("{}: {} is null", call.op.name, name))
          .Hint("pass a tensor of the shape of the part that is turned");
    }
    const Operand& like = i == 0 ? *parts.query_rope : *parts.key_rope;
    REPRISE_RETURN_IF_ERROR(
        call.CheckShape(*output, like.sizes(), [&] { return fmt::format("the shape of {},", call.NameOf(like)); }));
    const int64_t heads = i == 0 ? a.setup->heads : a.setup->kv_heads;
    REPRISE_ASSIGN_OR_RETURN(const HeadView view, ViewAs(call, *output, a.layout, heads, 0));
    (i == 0 ? result.query : result.key) = output;
    (i == 0 ? result.query_view : result.key_view) = view.ref;
  }
  return result;
}

// The gradient of the sink.
Status AddSinkGradient(OpCall& call, const Attention& a, const TensorRef& maximum, const TensorRef& sum,
                       const Operand& dy, const TensorRef& gradient) {
  const Parts& parts = a.parts;
  if (parts.sink == nullptr) return {};
  const Operand* output = call.Find("dsinkOut");
  if (output == nullptr) {
    return Error(kOperatorArgumentNull, fmt::format("{}: dsinkOut is null", call.op.name))
        .Hint("pass a tensor with a number for each head");
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*output, parts.sink->sizes(), [] { return "the shape of sinkOptional,"; }));
  Launch& launch = call.AddLaunch(RunSinkGradient);
  call.Write(launch, *output);
  call.Read(launch, *parts.sink, a.sink);
  call.Read(launch, dy, gradient);
  call.Read(launch, *parts.out, a.out.ref);
  call.Read(launch, *parts.maximum, maximum);
  call.Read(launch, *parts.sum, sum);
  launch.state = a.setup;
  launch.units = a.setup->heads;
  launch.grain = 1;
  return {};
}

Status LowerAttentionBackward(OpCall& call) {
  Attention a;
  REPRISE_RETURN_IF_ERROR(Describe(call, a));
  if (call.only_tells_size()) {
    LowerBackwardSize(call, a);
    return {};
  }
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
  REPRISE_ASSIGN_OR_RETURN(const HeadView gradient, ViewAs(call, dy, a.layout, setup.heads, 0));
  REPRISE_ASSIGN_OR_RETURN(const RopeGradients rope, ReadRopeGradients(call, a));
  REPRISE_RETURN_IF_ERROR(AddSinkGradient(call, a, maximum, sum, dy, gradient.ref));
  Launch& launch = call.AddLaunch(RunBackward);
  for (size_t i = 0; i < 3; ++i) {
    const Operand& output = call.Get(names[i]);
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, inputs[i]->sizes(),
                                            [&] { return fmt::format("the shape of {},", call.NameOf(*inputs[i])); }));
    REPRISE_ASSIGN_OR_RETURN(const HeadView view, ViewAs(call, output, a.layout, heads[i], 0));
    call.Write(launch, output, view.ref);
  }
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
  AddOptional(call, launch, parts.query_rope, a.query_rope, false);
  AddOptional(call, launch, parts.key_rope, a.key_rope, false);
  AddOptional(call, launch, rope.query, rope.query_view, true);
  AddOptional(call, launch, rope.key, rope.key_view, true);
  launch.state = a.setup;
  launch.units = static_cast<int64_t>(setup.sequences.size()) * setup.kv_heads;
  const int64_t per_unit =
      a.query.tokens() * setup.heads / setup.kv_heads * a.capacity * (setup.depth + setup.value_depth);
  launch.grain = GrainOfProduct(per_unit);
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
