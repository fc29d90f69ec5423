// SPDX-License-Identifier: Apache-2.0
//
// Norms of sums, norms with an activation (kernels/norm_variants.h).
#include "kernels/norm_variants.h"

#include "kernels/channel_norm.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::GroupSwishArgs;
using kernels::SumNormArgs;
using kernels::SumNormGradArgs;
using kernels::TensorRef;

// Light elements that one element costs: conversions to float64 and back, sums, squares.
constexpr int64_t kSumNormCost = 8;
constexpr int64_t kSwishCost = 24;

// ---- Norms of sums ----

enum SumNormKind : uint8_t { kAddLayer, kAddRmsCast, kGemma };

// The operand by the first of these names that the row has.
const Operand* FindAny(const OpCall& call, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (call.Has(name)) return call.Find(name);
  }
  return nullptr;
}

// gamma has the shape of the last dims of x.
StatusOr<int64_t> RowLength(const OpCall& call, const Operand& x) {
  const Operand& gamma = call.Get("gamma");
  std::span<const int64_t> inner = gamma.sizes();
  const auto is_end = [&] {
    return inner.size() <= x.sizes().size() &&
           std::equal(inner.begin(), inner.end(), x.sizes().end() - static_cast<std::ptrdiff_t>(inner.size()));
  };
  while (inner.size() > 1 && inner[0] == 1 && !is_end()) inner = inner.subspan(1);
  if (inner.empty() || !is_end()) {
    return call.InvalidOperand(gamma,
                               fmt::format("has shape {}, which is not the end of the shape {} of {}",
                                           ShapeText(gamma.sizes()), ShapeText(x.sizes()), call.NameOf(x)),
                               "pass one number for each element that is normalised together");
  }
  return gamma.tensor->count;
}

Status CheckNumberOf(const OpCall& call, const Operand* operand, int64_t count, std::string_view what) {
  if (operand == nullptr || operand->tensor->count == count) return {};
  return call.InvalidOperand(
      *operand, fmt::format("has shape {}, expected {} elements, {}", ShapeText(operand->sizes()), count, what));
}

Status SumNormShape(OpCall& call) {
  const Operand& x = *FindAny(call, {"x1", "x"});
  REPRISE_ASSIGN_OR_RETURN(const int64_t length, RowLength(call, x));
  for (const std::string_view name : {"x2", "yOut", "y1Out", "y2Out", "xOut", "dy", "dsumOptional", "dxOut"}) {
    if (!call.Has(name)) continue;
    const Operand* const operand = call.Find(name);
    if (operand == nullptr || (name == "xOut" && call.Has("additionalOutput") && !call.Bool("additionalOutput")))
      continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*operand, x.sizes(), [&] { return "the shape of the first addend,"; }));
  }
  const int64_t rows = length == 0 ? 0 : x.tensor->count / length;
  for (const std::string_view name : {"mean", "rstd", "meanOut", "rstdOut"}) {
    if (!call.Has(name)) continue;
    REPRISE_RETURN_IF_ERROR(CheckNumberOf(call, call.Find(name), rows, "one for each row"));
  }
  for (const std::string_view name : {"beta", "dgammaOut", "dbetaOut"}) {
    if (!call.Has(name)) continue;
    REPRISE_RETURN_IF_ERROR(CheckNumberOf(call, call.Find(name), length, "as gamma"));
  }
  if (!call.Has("biasOptional")) return {};
  const Operand* const bias = call.Find("biasOptional");
  if (bias == nullptr || bias->tensor->count == length) return {};
  return call.CheckShape(*bias, x.sizes(), [] { return "the shape of gamma or of x1,"; });
}

// refs: x1, x2, bias, gamma, beta behind out, out2, sum, mean, rstd.
void RunSumNorm(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  SumNormArgs args = launch.State<SumNormArgs>();
  args.out = &launch.refs[0];
  args.out2 = launch.RefOrNull(1);
  args.sum = launch.RefOrNull(2);
  args.mean = launch.RefOrNull(3);
  args.rstd = launch.RefOrNull(4);
  args.x1 = &launch.refs[5];
  args.x2 = launch.RefOrNull(6);
  args.bias = launch.RefOrNull(7);
  args.gamma = &launch.refs[8];
  args.beta = launch.RefOrNull(9);
  kernels::SumNorm(args, memory.scratch, range);
}

Status LowerSumNorm(OpCall& call) {
  const auto kind = static_cast<SumNormKind>(call.op.computation.code);
  const Operand& x = *FindAny(call, {"x1", "x"});
  if (x.tensor->count == 0) return {};
  auto args = std::make_shared<SumNormArgs>();
  args->length = call.Get("gamma").tensor->count;
  args->centres = kind == kAddLayer;
  args->rounds_sum = kind == kAddRmsCast;
  args->shift = kind == kGemma ? 1 : 0;
  args->eps = call.Real("epsilon");
  const bool has_sum = kind == kAddRmsCast || (kind == kAddLayer && call.Bool("additionalOutput"));
  const int64_t length = args->length;
  Launch& launch = call.AddLaunch(RunSumNorm);
  launch.state = std::move(args);
  call.Write(launch, *FindAny(call, {"yOut", "y2Out"}));
  call.WriteOptional(launch, FindAny(call, {"y1Out"}));
  call.WriteOptional(launch, has_sum ? call.Find("xOut") : nullptr);
  call.WriteOptional(launch, FindAny(call, {"meanOut"}));
  call.WriteOptional(launch, FindAny(call, {"rstdOut"}));
  call.Read(launch, x);
  call.ReadOptional(launch, FindAny(call, {"x2"}));
  call.ReadOptional(launch, FindAny(call, {"biasOptional"}));
  call.Read(launch, call.Get("gamma"));
  call.ReadOptional(launch, FindAny(call, {"beta"}));
  launch.units = x.tensor->count / length;
  launch.grain = GrainOf(length * kSumNormCost);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::SumNormScratchBytes(length)));
  return {};
}

// refs: dx, or dgamma and dbeta, then dy, x1, x2, mean, rstd, gamma, dsum.
SumNormGradArgs GradArgsOf(const Launch& launch, size_t outputs) {
  SumNormGradArgs args = {.dy = &launch.refs[outputs],
                          .x1 = &launch.refs[outputs + 1],
                          .x2 = &launch.refs[outputs + 2],
                          .mean = &launch.refs[outputs + 3],
                          .rstd = &launch.refs[outputs + 4],
                          .gamma = &launch.refs[outputs + 5],
                          .dsum = launch.RefOrNull(outputs + 6)};
  args.length = launch.ints[0];
  args.rows = launch.ints[1];
  return args;
}

void RunSumNormGradOfX(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  SumNormGradArgs args = GradArgsOf(launch, 1);
  args.dx = &launch.refs[0];
  kernels::SumNormGradOfX(args, memory.scratch, range);
}

void RunSumNormGradOfParameters(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  SumNormGradArgs args = GradArgsOf(launch, 2);
  args.dgamma = &launch.refs[0];
  args.dbeta = &launch.refs[1];
  kernels::SumNormGradOfParameters(args, range);
}

Status LowerAddLayerNormGrad(OpCall& call) {
  const Operand& x = call.Get("x1");
  const int64_t length = call.Get("gamma").tensor->count;
  const int64_t rows = length == 0 ? 0 : x.tensor->count / length;
  const auto read = [&](Launch& launch) {
    launch.ints.push_back(length);
    launch.ints.push_back(rows);
    for (const std::string_view name : {"dy", "x1", "x2", "mean", "rstd", "gamma"}) call.Read(launch, call.Get(name));
    call.ReadOptional(launch, call.Find("dsumOptional"));
  };
  Launch& of_x = call.AddLaunch(RunSumNormGradOfX);
  call.Write(of_x, call.Get("dxOut"));
  read(of_x);
  of_x.units = rows;
  of_x.grain = GrainOf(length * kSumNormCost);
  call.AddScratch(of_x, static_cast<uint64_t>(kernels::SumNormGradScratchBytes(length)));
  Launch& of_parameters = call.AddLaunch(RunSumNormGradOfParameters);
  call.Write(of_parameters, call.Get("dgammaOut"));
  call.Write(of_parameters, call.Get("dbetaOut"));
  read(of_parameters);
  of_parameters.units = length;
  of_parameters.grain = GrainOf(rows * kSumNormCost);
  return {};
}

// ---- Groups with an activation ----

Status CheckDataFormat(const OpCall& call) {
  if (!call.Has("dataFormatOptional")) return {};
  const std::string_view format = call.Text("dataFormatOptional");
  if (format.empty() || format == "NCHW" || format == "ND") return {};
  return call.Invalid(fmt::format("dataFormatOptional is '{}', expected NCHW", format),
                      "pass tensors whose second dim counts the channels");
}

int64_t GroupsOf(const OpCall& call) { return call.Int(call.Has("group") ? "group" : "numGroups"); }

Status GroupSwishShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckDataFormat(call));
  const Operand& x = *FindAny(call, {"x", "self"});
  if (x.rank() < 2) {
    return call.InvalidOperand(x, fmt::format("has shape {}, expected [N, C, ..]", ShapeText(x.sizes())));
  }
  const int64_t channels = x.sizes()[1];
  const int64_t groups = GroupsOf(call);
  if (groups < 1 || channels % groups != 0) {
    return call.Invalid(fmt::format("{} is {}, expected a divisor of the {} channels",
                                    call.Has("group") ? "group" : "numGroups", groups, channels));
  }
  for (const std::string_view name : {"gamma", "beta", "dgammaOut", "dbetaOut"}) {
    if (!call.Has(name)) continue;
    const Operand* const operand = call.Find(name);
    if (operand == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckCount(*operand, {&channels, 1}, [] { return "one element for each channel,"; }));
  }
  for (const std::string_view name : {"mean", "rstd", "meanOut", "rstdOut"}) {
    if (!call.Has(name)) continue;
    REPRISE_RETURN_IF_ERROR(
        CheckNumberOf(call, call.Find(name), x.sizes()[0] * groups, "one for each group of an entry of the batch"));
  }
  for (const std::string_view name : {"out", "yOut", "dy", "dxOut"}) {
    if (!call.Has(name)) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), x.sizes(), [] { return "the shape of the input,"; }));
  }
  return {};
}

// refs: out, mean, rstd, x, gamma, beta; of gradients dx, sums, dy, mean, rstd, x, gamma, beta.
void RunGroupSwish(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  GroupSwishArgs args = launch.State<GroupSwishArgs>();
  args.out = &launch.refs[0];
  args.mean = launch.RefOrNull(1);
  args.rstd = launch.RefOrNull(2);
  args.x = &launch.refs[3];
  args.gamma = launch.RefOrNull(4);
  args.beta = launch.RefOrNull(5);
  kernels::GroupNormSwish(args, range);
}

void RunGroupSwishGrad(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  GroupSwishArgs args = launch.State<GroupSwishArgs>();
  const TensorRef sums = launch.Ref(1, memory);
  args.out = &launch.refs[0];
  args.sums = &sums;
  args.dy = &launch.refs[2];
  args.mean = &launch.refs[3];
  args.rstd = &launch.refs[4];
  args.x = &launch.refs[5];
  args.gamma = launch.RefOrNull(6);
  args.beta = launch.RefOrNull(7);
  kernels::GroupNormSwishGrad(args, range);
}

void RunSumOfSwishGrad(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::GroupNormParameterGrad(launch.Ref(1, memory), launch.ints[0], launch.refs[0], range);
}

std::shared_ptr<GroupSwishArgs> SwishSettings(const OpCall& call) {
  auto args = std::make_shared<GroupSwishArgs>();
  args->groups = GroupsOf(call);
  if (call.Has("eps")) args->eps = call.Real("eps");
  for (const std::string_view name : {"activateSwish", "activateSilu"}) {
    if (call.Has(name)) args->activates = call.Bool(name);
  }
  if (call.Has("swishScale")) args->scale = call.Real("swishScale");
  return args;
}

Status LowerGroupSwish(OpCall& call) {
  const Operand& x = *FindAny(call, {"x", "self"});
  if (x.tensor->count == 0) return {};
  Launch& launch = call.AddLaunch(RunGroupSwish);
  launch.state = SwishSettings(call);
  call.Write(launch, *FindAny(call, {"out", "yOut"}));
  call.WriteOptional(launch, call.Find("meanOut"));
  call.WriteOptional(launch, call.Find("rstdOut"));
  call.Read(launch, x);
  call.ReadOptional(launch, call.Find("gamma"));
  call.ReadOptional(launch, call.Find("beta"));
  launch.units = x.sizes()[0] * GroupsOf(call);
  launch.grain = GrainOf(x.tensor->count / launch.units * kSwishCost);
  return {};
}

Status LowerGroupSwishGrad(OpCall& call) {
  const Operand& x = call.Get("x");
  const int64_t sizes[] = {x.sizes()[0], x.sizes()[1], 2};
  const TensorRef sums = call.Temporary(kernels::DType::kDouble, sizes);
  if (x.tensor->count != 0) {
    Launch& launch = call.AddLaunch(RunGroupSwishGrad);
    launch.state = SwishSettings(call);
    call.Write(launch, call.Get("dxOut"));
    call.WriteTemporary(launch, sums);
    for (const std::string_view name : {"dy", "mean", "rstd", "x"}) call.Read(launch, call.Get(name));
    call.ReadOptional(launch, call.Find("gamma"));
    call.ReadOptional(launch, call.Find("beta"));
    launch.units = sizes[0] * GroupsOf(call);
    launch.grain = GrainOf(x.tensor->count / launch.units * 2 * kSwishCost);
  }
  const std::string_view wanted[2] = {"dgammaIsRequire", "dbetaIsRequire"};
  const std::string_view outputs[2] = {"dgammaOut", "dbetaOut"};
  for (int64_t i = 0; i < 2; ++i) {
    if (!call.Bool(wanted[i])) continue;
    const Operand* const output = call.Find(outputs[i]);
    if (output == nullptr) {
      return call.Invalid(fmt::format("{} is null, and {} asks for it", outputs[i], wanted[i]),
                          "pass a tensor or false");
    }
    if (x.tensor->count == 0 && sizes[1] != 0) {
      return call.InvalidOperand(x, fmt::format("has shape {}, without elements", ShapeText(x.sizes())),
                                 "leave out the call: all gradients are 0");
    }
    Launch& launch = call.AddLaunch(RunSumOfSwishGrad);
    launch.ints.push_back(i);
    call.Write(launch, *output);
    call.ReadTemporary(launch, sums);
    launch.units = sizes[1];
    launch.grain = GrainOf(sizes[0] * 4);
  }
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/norm_variants.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
