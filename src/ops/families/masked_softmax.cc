// SPDX-License-Identifier: Apache-2.0
//
// Masked softmaxes and the pieces of a transformer around them (kernels/masked_softmax.h).
#include "kernels/masked_softmax.h"

#include "kernels/plane.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::TensorRef;

constexpr int64_t kExpCost = 16;
constexpr int64_t kGeluCost = 32;

int64_t RowScratchBytes(int64_t n) { return 3 * kernels::ScratchCutter::Bytes<double>(n); }

// ---- Scaled and masked ----

Status MaskedSoftmaxShape(OpCall& call) {
  const Operand& x = call.inputs[0];
  if (x.rank() != 4) {
    return call.InvalidOperand(x, fmt::format("has shape {}, expected 4 dims", ShapeText(x.sizes())));
  }
  if (call.Has("gradOutput")) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("y"), x.sizes(), [] { return "the shape of gradOutput,"; }));
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.outputs[0], x.sizes(), [] { return "the shape of the input,"; }));
  const Operand* const mask = call.Find("mask");
  const bool is_fixed = call.Bool(call.Has("fixedTriuMask") ? "fixedTriuMask" : "fixTriuMask");
  if (is_fixed) return {};
  if (mask == nullptr) {
    return Error(kOperatorArgumentNull, fmt::format("{}: mask is null, and no fixed one is asked for", call.op.name))
        .Hint("pass an aclTensor for it, or true for the mask above the diagonal");
  }
  const auto fits = [&](size_t d) { return mask->sizes()[d] == x.sizes()[d] || (d < 2 && mask->sizes()[d] == 1); };
  if (mask->rank() == 4 && fits(0) && fits(1) && fits(2) && fits(3)) return {};
  return call.InvalidOperand(*mask, fmt::format("has shape {}, expected {}, or 1 in the first two dims",
                                                ShapeText(mask->sizes()), ShapeText(x.sizes())));
}

// refs: out, x or dy, mask, y.
void RunMaskedSoftmax(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MaskedRows rows = {.out = &launch.refs[0], .x = &launch.refs[1]};
  if (launch.HasOperand(2)) rows.mask = &launch.refs[2];
  rows.scale = launch.scalars[0].As<double>();
  if (!launch.HasOperand(3)) return kernels::MaskedSoftmax(rows, memory.scratch, range);
  rows.y = &launch.refs[3];
  kernels::MaskedSoftmaxGrad(rows, memory.scratch, range);
}

Status LowerMaskedSoftmax(OpCall& call) {
  const Operand& x = call.inputs[0];
  if (x.tensor->count == 0) return {};
  const bool is_fixed = call.Bool(call.Has("fixedTriuMask") ? "fixedTriuMask" : "fixTriuMask");
  Launch& launch = call.AddLaunch(RunMaskedSoftmax);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, x);
  call.ReadOptional(launch, is_fixed ? nullptr : call.Find("mask"));
  call.ReadOptional(launch, call.Has("gradOutput") ? call.Find("y") : nullptr);
  launch.scalars.push_back(kernels::Scalar::Of(call.Real("scale")));
  launch.units = x.tensor->count / x.sizes()[3];
  launch.grain = GrainOf(x.sizes()[3] * kExpCost);
  call.AddScratch(launch, static_cast<uint64_t>(RowScratchBytes(x.sizes()[3])));
  return {};
}

// ---- With a bias for each position ----

Status BiasedSoftmaxShape(OpCall& call) {
  const Operand& x = call.Get("x");
  if (x.rank() != 4 && x.rank() != 5) {
    return call.InvalidOperand(
        x, fmt::format("has shape {}, expected [B, W, N, S, L] or [B * W, N, S, L]", ShapeText(x.sizes())));
  }
  if (call.Int("innerPrecisionMode") != 0) {
    return call.Invalid(fmt::format("innerPrecisionMode is {}, expected 0", call.Int("innerPrecisionMode")));
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("out"), x.sizes(), [] { return "the shape of x,"; }));
  const std::span<const int64_t> last = x.sizes().last(3);  // N, S, L
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("relativePosBias"), last, [] { return "[N, S, L]:"; }));
  const Operand* const mask = call.Find("attenMaskOptional");
  if (mask == nullptr) return {};
  const int64_t plane = last[1] * last[2];
  const int64_t windows = plane == 0 ? 0 : mask->tensor->count / plane;
  const int64_t all = x.rank() == 5 ? x.sizes()[1] : x.sizes()[0];
  const int64_t shape[] = {windows, last[1], last[2]};
  if (plane != 0 && (windows == 0 || (x.rank() == 5 ? windows != all : all % windows != 0))) {
    return call.InvalidOperand(*mask, fmt::format("has shape {}, expected [W, S, L] for x {}", ShapeText(mask->sizes()),
                                                  ShapeText(x.sizes())));
  }
  return call.CheckShape(*mask, shape, [] { return "[W, S, L]:"; });
}

// refs: out, x, bias, mask.
void RunBiasedSoftmax(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::BiasedRows rows = {.out = &launch.refs[0], .x = &launch.refs[1], .bias = &launch.refs[2]};
  const TensorRef& shape = launch.refs[1];
  if (launch.HasOperand(3)) rows.mask = &launch.refs[3];
  rows.scale = launch.scalars[0].As<double>();
  rows.heads = shape.sizes[shape.rank - 3];
  rows.steps = shape.sizes[shape.rank - 2];
  rows.length = shape.sizes[shape.rank - 1];
  kernels::BiasedSoftmax(rows, memory.scratch, range);
}

Status LowerBiasedSoftmax(OpCall& call) {
  const Operand& x = call.Get("x");
  if (x.tensor->count == 0) return {};
  Launch& launch = call.AddLaunch(RunBiasedSoftmax);
  call.Write(launch, call.Get("out"));
  call.Read(launch, x);
  call.Read(launch, call.Get("relativePosBias"));
  call.ReadOptional(launch, call.Find("attenMaskOptional"));
  launch.scalars.push_back(kernels::Scalar::Of(call.Real("scaleValue")));
  const int64_t length = x.sizes().back();
  launch.units = x.tensor->count / length;
  launch.grain = GrainOf(length * kExpCost);
  call.AddScratch(launch, static_cast<uint64_t>(RowScratchBytes(length)));
  return {};
}

// ---- GELU and a factor ----

StatusOr<bool> ByTanh(const OpCall& call) {
  if (call.Has("approximate")) {
    const int64_t mode = call.Int("approximate");
    if (mode != 0 && mode != 1) return call.Invalid(fmt::format("approximate is {}, expected 0 or 1", mode));
    return mode == 1;
  }
  const std::string_view mode = call.Text("approximateOptional");
  if (mode != "tanh" && mode != "none" && !mode.empty()) {
    return call.Invalid(fmt::format("approximateOptional is '{}', expected none or tanh", mode));
  }
  return mode == "tanh";
}

Status HalfShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(ByTanh(call).status());
  const Operand& x = call.Get(call.Has("self") ? "self" : "input");
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Has("dim") ? call.Int("dim") : -1, x.rank()));
  if (x.rank() == 0 || x.sizes()[static_cast<size_t>(dim)] % 2 != 0) {
    return call.InvalidOperand(x,
                               fmt::format("has shape {}, which has no halves in dim {}", ShapeText(x.sizes()), dim));
  }
  Dims half(x.sizes().data(), x.sizes().size());
  half[static_cast<size_t>(dim)] /= 2;
  for (const std::string_view name : {"gradOutput", "gelu", "out"}) {
    if (!call.Has(name)) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), half, [] { return "half the shape of the input:"; }));
  }
  if (!call.Has("gradInput")) return {};
  return call.CheckShape(call.Get("gradInput"), x.sizes(), [] { return "the shape of self,"; });
}

void RunGeluProduct(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::GeluProduct(launch.refs[1], launch.refs[0], launch.ints[0] != 0, launch.ints[1], range);
}

Status LowerGeluMul(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const bool by_tanh, ByTanh(call));
  const Operand& out = call.Get("out");
  Launch& launch = call.AddLaunch(RunGeluProduct);
  call.Write(launch, out);
  call.Read(launch, call.Get("input"));
  launch.ints.push_back(by_tanh ? 1 : 0);
  launch.ints.push_back(out.sizes().back());
  launch.units = out.tensor->count;
  launch.grain = GrainOf(kGeluCost);
  return {};
}

// refs: gradInput, gradOutput, self, gelu.
void RunGeGluGrad(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::GeGluGrad({.of_out = &launch.refs[1],
                      .self = &launch.refs[2],
                      .gelu = &launch.refs[3],
                      .of_self = &launch.refs[0],
                      .n = launch.ints[2],
                      .by_tanh = launch.ints[0] != 0,
                      .activates_left = launch.ints[1] != 0},
                     range);
}

Status LowerGeGluGrad(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const bool by_tanh, ByTanh(call));
  const Operand& grad = call.Get("gradOutput");
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), grad.rank()));
  int64_t inner = 1;
  for (int d = dim; d < grad.rank(); ++d) inner *= grad.sizes()[static_cast<size_t>(d)];
  Launch& launch = call.AddLaunch(RunGeGluGrad);
  call.Write(launch, call.Get("gradInput"));
  for (const std::string_view name : {"gradOutput", "self", "gelu"}) call.Read(launch, call.Get(name));
  launch.ints.push_back(by_tanh ? 1 : 0);
  launch.ints.push_back(call.Bool("activateLeft") ? 1 : 0);
  launch.ints.push_back(inner);
  launch.units = grad.tensor->count;
  launch.grain = GrainOf(kGeluCost);
  return {};
}

// ---- Heads ----

Status SplitHeadsShape(OpCall& call) {
  const Operand& qkv = call.Get("qkv");
  const int64_t heads = call.Int("numHeads");
  if (qkv.rank() != 3 || heads < 1 || qkv.sizes()[2] % (3 * heads) != 0) {
    return call.InvalidOperand(qkv, fmt::format("has shape {}, expected [B, T, 3 * numHeads * d] with numHeads = {}",
                                                ShapeText(qkv.sizes()), heads));
  }
  const int64_t shape[] = {qkv.sizes()[0], heads, qkv.sizes()[1], qkv.sizes()[2] / 3 / heads};
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("qkvBias"), qkv.sizes().last(1), [] { return "the last dim of qkv:"; }));
  for (const Operand& output : call.outputs) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, shape, [] { return "[B, numHeads, T, d]:"; }));
  }
  return {};
}

void RunSplitHeads(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const TensorRef* const outs[3] = {&launch.refs[0], &launch.refs[1], &launch.refs[2]};
  kernels::SplitHeads(launch.refs[3], launch.refs[4], outs, range);
}

Status LowerSplitHeads(OpCall& call) {
  const Operand& qkv = call.Get("qkv");
  if (qkv.tensor->count == 0) return {};
  Launch& launch = call.AddLaunch(RunSplitHeads);
  for (const Operand& output : call.outputs) call.Write(launch, output);
  call.Read(launch, qkv);
  call.Read(launch, call.Get("qkvBias"));
  launch.units = qkv.sizes()[0] * qkv.sizes()[1];
  launch.grain = GrainOf(qkv.sizes()[2] * 4);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/masked_softmax.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
