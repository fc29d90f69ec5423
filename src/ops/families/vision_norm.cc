// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/channel_norm.h"
#include "ops/computations.h"
#include "ops/families/plane_convolution.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::TensorRef;

// Light operations for each element: sums, squares, scaling.
constexpr int64_t kNormCost = 3;
// Elements of a channel from which on those that are next to each other are worth a call.
constexpr int64_t kLeastRow = 16;

struct NormParams {
  bool training = false;
  double momentum = 0;
  double eps = 0;
  int64_t groups = 1;
};

// A vector with one entry for each channel.
Status CheckVector(OpCall& call, std::string_view name, int64_t channels) {
  const Operand* operand = call.Find(name);
  if (operand == nullptr) return {};
  return call.CheckShape(*operand, {&channels, 1}, [] { return "one entry for each channel:"; });
}

// ---- BatchNorm ----

kernels::BatchNormArgs BatchNormArgsOf(const Launch& launch) {
  const auto& params = launch.State<NormParams>();
  return {.self = &launch.refs[5],
          .weight = launch.RefOrNull(6),
          .bias = launch.RefOrNull(7),
          .running_mean = launch.RefOrNull(3),
          .running_var = launch.RefOrNull(4),
          .out = &launch.refs[0],
          .save_mean = launch.RefOrNull(1),
          .save_invstd = launch.RefOrNull(2),
          .training = params.training,
          .momentum = params.momentum,
          .eps = params.eps};
}

void RunBatchNorm(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::BatchNorm(BatchNormArgsOf(launch), range);
}

// Without training each element is computed on its own, so that graphs can run it with its neighbours.
void RunBatchNormElements(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::BatchNormElements(BatchNormArgsOf(launch), range);
}

bool HasElements(const NormParams& params, const TensorRef& self, const TensorRef& out) {
  return !params.training && self.dtype == kernels::DType::kFloat && out.dtype == kernels::DType::kFloat &&
         kernels::IsContiguous(self) && kernels::IsContiguous(out) &&
         kernels::ElementCount(self) >= self.sizes[0] * self.sizes[1] * kLeastRow;
}

// Values of channels are read for all elements; self may be out, element by element.
bool FindBatchNormRows(const Launch& launch, uint64_t& broadcast) {
  const auto begin_of = [](const TensorRef& ref) { return reinterpret_cast<uintptr_t>(ref.data); };
  const uintptr_t begin = begin_of(launch.refs[0]);
  const uintptr_t end = begin + ExtentBytes(launch.refs[0]);
  uint64_t bit = 1;
  broadcast = 0;
  for (size_t i = 1; i < launch.refs.size(); ++i) {
    if (launch.uses[i].slot < 0) continue;
    bit <<= 1;
    const TensorRef& ref = launch.refs[i];
    const bool is_self = i == 5;
    if (!is_self) broadcast |= bit;
    if (is_self && begin_of(ref) == begin) continue;
    if (begin_of(ref) < end && begin < begin_of(ref) + ExtentBytes(ref)) return false;
  }
  return true;
}

Status BatchNormShape(OpCall& call) {
  const Operand& input = call.Get("input");
  if (input.rank() < 2) {
    return call.InvalidOperand(input, fmt::format("has shape {}, expected [N, C, ..]", ShapeText(input.sizes())));
  }
  const int64_t channels = input.sizes()[1];
  for (const std::string_view name : {"weight", "bias", "runningMean", "runningVar"}) {
    REPRISE_RETURN_IF_ERROR(CheckVector(call, name, channels));
  }
  if (call.Bool("training")) {
    for (const std::string_view name : {"saveMean", "saveInvstd"}) {
      REPRISE_RETURN_IF_ERROR(CheckVector(call, name, channels));
    }
  } else {
    for (const std::string_view name : {"runningMean", "runningVar"}) {
      call.LeaveAsIs(name);
      if (call.Find(name) != nullptr) continue;
      return call.Invalid(fmt::format("{} is null, without training its values are needed", name));
    }
  }
  return call.CheckShape(call.Get("output"), input.sizes(), [] { return "the shape of input:"; });
}

Status LowerBatchNorm(OpCall& call) {
  const Operand& input = call.Get("input");
  if (input.tensor->count == 0) return {};
  const NormParams params{call.Bool("training"), call.Real("momentum"), call.Real("eps"), 1};
  const bool by_elements = HasElements(params, call.RefOf(input), call.RefOf(call.Get("output")));
  Launch& launch = call.AddLaunch(by_elements ? RunBatchNormElements : RunBatchNorm);
  launch.state = std::make_shared<NormParams>(params);
  call.Write(launch, call.Get("output"));
  call.WriteOptional(launch, params.training ? call.Find("saveMean") : nullptr);
  call.WriteOptional(launch, params.training ? call.Find("saveInvstd") : nullptr);
  if (params.training) {
    call.WriteOptional(launch, call.Find("runningMean"));
    call.WriteOptional(launch, call.Find("runningVar"));
  } else {
    call.Read(launch, call.Get("runningMean"));
    call.Read(launch, call.Get("runningVar"));
  }
  call.Read(launch, input);
  call.ReadOptional(launch, call.Find("weight"));
  call.ReadOptional(launch, call.Find("bias"));
  if (by_elements) {
    launch.units = input.tensor->count;
    launch.grain = GrainOf(kNormCost);
    launch.find_rows = FindBatchNormRows;
    return {};
  }
  launch.units = input.sizes()[1];
  launch.grain = GrainOf(input.tensor->count / launch.units * kNormCost);
  return {};
}

// ---- GroupNorm ----

void RunGroupNorm(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const auto& params = launch.State<NormParams>();
  kernels::GroupNorm({.self = &launch.refs[3],
                      .gamma = launch.RefOrNull(4),
                      .beta = launch.RefOrNull(5),
                      .out = &launch.refs[0],
                      .mean = &launch.refs[1],
                      .rstd = &launch.refs[2],
                      .groups = params.groups,
                      .eps = params.eps},
                     range);
}

void RunGroupNormBackward(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const TensorRef sums = launch.Ref(1, memory);
  kernels::GroupNormBackward({.grad_out = &launch.refs[2],
                              .self = &launch.refs[3],
                              .mean = &launch.refs[4],
                              .rstd = &launch.refs[5],
                              .gamma = launch.RefOrNull(6),
                              .grad_in = launch.RefOrNull(0),
                              .sums = &sums,
                              .groups = launch.ints[0]},
                             range);
}

void RunParameterGrad(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::GroupNormParameterGrad(launch.Ref(1, memory), launch.ints[0], launch.refs[0], range);
}

// N, C, HxW and group against `self`.
Status CheckGroups(const OpCall& call, const Operand& self) {
  const int64_t n = call.Int("N");
  const int64_t channels = call.Int("C");
  const int64_t size = call.Int("HxW");
  const int64_t groups = call.Int("group");
  if (self.rank() < 2 || self.sizes()[0] != n || self.sizes()[1] != channels || n < 0 || size < 0 ||
      (n * channels != 0 && self.tensor->count / n / channels != size)) {
    return call.InvalidOperand(self,
                               fmt::format("has shape {}, expected [N = {}, C = {}, ..] with HxW = {} elements each",
                                           ShapeText(self.sizes()), n, channels, size));
  }
  if (groups < 1 || channels % groups != 0) {
    return call.Invalid(fmt::format("group is {}, expected a divisor of C = {}", groups, channels));
  }
  return {};
}

Status GroupNormShape(OpCall& call) {
  const Operand& self = call.Get("self");
  REPRISE_RETURN_IF_ERROR(CheckGroups(call, self));
  REPRISE_RETURN_IF_ERROR(CheckVector(call, "gamma", call.Int("C")));
  REPRISE_RETURN_IF_ERROR(CheckVector(call, "beta", call.Int("C")));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("out"), self.sizes(), [] { return "the shape of self:"; }));
  const int64_t stats[2] = {call.Int("N"), call.Int("group")};
  for (const std::string_view name : {"meanOut", "rstdOut"}) {
    REPRISE_RETURN_IF_ERROR(call.CheckCount(call.Get(name), stats, [] { return "the shape [N, group],"; }));
  }
  return {};
}

Status LowerGroupNorm(OpCall& call) {
  const Operand& self = call.Get("self");
  if (self.tensor->count == 0) return {};
  NormParams params;
  params.eps = call.Real("eps");
  params.groups = call.Int("group");
  Launch& launch = call.AddLaunch(RunGroupNorm);
  launch.state = std::make_shared<NormParams>(params);
  for (const std::string_view name : {"out", "meanOut", "rstdOut"}) call.Write(launch, call.Get(name));
  call.Read(launch, self);
  call.ReadOptional(launch, call.Find("gamma"));
  call.ReadOptional(launch, call.Find("beta"));
  launch.units = self.sizes()[0] * params.groups;
  launch.grain = GrainOf(self.tensor->count / launch.units * kNormCost);
  return {};
}

// ---- GroupNormBackward ----

struct Wanted {
  const Operand* grad[3] = {};  // of the input, of gamma, of beta; null: not wanted
};

StatusOr<Wanted> ReadMask(const OpCall& call) {
  constexpr std::string_view kNames[3] = {"gradInput", "gradGammaOut", "gradBetaOut"};
  const std::vector<bool> mask = call.Bools("outputMask");
  if (mask.size() != 3) {
    return call.Invalid(
        fmt::format("outputMask has {} entries, expected 3 for gradInput, gradGammaOut and gradBetaOut", mask.size()));
  }
  Wanted wanted;
  for (size_t i = 0; i < 3; ++i) {
    if (!mask[i]) continue;
    wanted.grad[i] = call.Find(kNames[i]);
    if (wanted.grad[i] == nullptr)
      return call.Invalid(fmt::format("{} is null, but outputMask asks for it", kNames[i]));
  }
  return wanted;
}

Status GroupNormBackwardShape(OpCall& call) {
  const Operand& input = call.Get("input");
  REPRISE_RETURN_IF_ERROR(CheckGroups(call, input));
  REPRISE_ASSIGN_OR_RETURN(const Wanted wanted, ReadMask(call));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("gradOut"), input.sizes(), [] { return "the shape of input,"; }));
  const int64_t stats[2] = {call.Int("N"), call.Int("group")};
  for (const std::string_view name : {"mean", "rstd"}) {
    REPRISE_RETURN_IF_ERROR(call.CheckCount(call.Get(name), stats, [] { return "the shape [N, group],"; }));
  }
  REPRISE_RETURN_IF_ERROR(CheckVector(call, "gamma", call.Int("C")));
  if (wanted.grad[0] != nullptr) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*wanted.grad[0], input.sizes(), [] { return "the shape of input,"; }));
  }
  const int64_t channels[1] = {call.Int("C")};
  for (int i = 1; i < 3; ++i) {
    if (wanted.grad[i] == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*wanted.grad[i], channels, [] { return "the shape [C],"; }));
  }
  return {};
}

Status LowerGroupNormBackward(OpCall& call) {
  const Operand& input = call.Get("input");
  REPRISE_ASSIGN_OR_RETURN(const Wanted wanted, ReadMask(call));
  const int64_t sizes[3] = {call.Int("N"), call.Int("C"), 2};
  const TensorRef sums = call.Temporary(kernels::DType::kDouble, sizes);
  if (sizes[0] != 0 && sizes[1] != 0) {
    Launch& launch = call.AddLaunch(RunGroupNormBackward);
    launch.ints.push_back(call.Int("group"));
    call.WriteOptional(launch, wanted.grad[0]);
    call.WriteTemporary(launch, sums);
    for (const std::string_view name : {"gradOut", "input", "mean", "rstd"}) call.Read(launch, call.Get(name));
    call.ReadOptional(launch, call.Find("gamma"));
    launch.units = sizes[0] * call.Int("group");
    launch.grain = GrainOf(input.tensor->count / launch.units * 2 * kNormCost);
  }
  for (int i = 1; i < 3; ++i) {
    if (wanted.grad[i] == nullptr) continue;
    Launch& launch = call.AddLaunch(RunParameterGrad);
    launch.ints.push_back(i - 1);
    call.Write(launch, *wanted.grad[i]);
    call.ReadTemporary(launch, sums);
    launch.units = sizes[1];
    launch.grain = GrainOf(sizes[0] * 4);
  }
  return {};
}

}  // namespace

bool FindElementNorm(const Launch& launch, kernels::BatchNormArgs& args) {
  if (launch.kernel != RunBatchNormElements) return false;
  args = BatchNormArgsOf(launch);
  return true;
}

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/vision_norm.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
