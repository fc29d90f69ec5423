// SPDX-License-Identifier: Apache-2.0
//
// Rotary position embedding.
#include "kernels/rotary.h"

#include "kernels/matmul.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::TensorRef;

void RunRotate(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Rotate(static_cast<kernels::RotaryMode>(launch.ints[0]), launch.refs[1], launch.refs[2], launch.refs[3],
                  launch.refs[0], range, memory.scratch);
}

void RunRotateBackward(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::RotateBackward(static_cast<kernels::RotaryMode>(launch.ints[0]), launch.refs[1], launch.refs[2],
                          launch.refs[3], launch.refs[0], range, memory.scratch);
}

void RunAngleBackward(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::RotaryAngleBackward(static_cast<kernels::RotaryMode>(launch.ints[0]), launch.refs[2], launch.refs[3],
                               launch.refs[0], launch.refs[1], range, memory.scratch);
}

Status CheckRotaryMode(const OpCall& call, int64_t mode, const Operand& x) {
  if (mode < 0 || mode > static_cast<int64_t>(kernels::RotaryMode::kInterleaveHalf)) {
    return call.Invalid(fmt::format("mode is {}, expected a value from 0 to 3", mode),
                        "0 half, 1 interleave, 2 quarter, 3 interleave-half");
  }
  const int64_t parts = mode == static_cast<int64_t>(kernels::RotaryMode::kQuarter) ? 4 : 2;
  if (x.rank() == 0 || x.sizes().back() % parts != 0) {
    return call.InvalidOperand(x, fmt::format("has shape {}, its last dim must be a multiple of {} for mode {}",
                                              ShapeText(x.sizes()), parts, mode));
  }
  return {};
}

// cos or sin, whose dims are those of x or 1.
Status CheckAngles(const OpCall& call, const Operand& angles, const Operand& x) {
  const std::span<const int64_t> sizes = angles.sizes();
  bool fits = sizes.size() == x.sizes().size();
  for (size_t d = 0; fits && d < sizes.size(); ++d) {
    fits = sizes[d] == x.sizes()[d] || (sizes[d] == 1 && d + 1 < sizes.size());
  }
  if (fits) return {};
  return call.InvalidOperand(angles, fmt::format("has shape {}, expected that of {} {}, or 1 in dims but the last",
                                                 ShapeText(sizes), call.NameOf(x), ShapeText(x.sizes())));
}

TensorRef Repeated(TensorRef ref) {
  for (int d = 0; d < ref.rank; ++d) {
    if (ref.sizes[d] == 1) ref.strides[d] = 0;
  }
  return ref;
}

void FinishRotary(OpCall& call, Launch& launch, int64_t mode, const TensorRef& x, int64_t units, int64_t per_unit) {
  launch.ints.push_back(mode);
  launch.units = units;
  if (units == 0) return;
  launch.grain = GrainOf(4 * per_unit);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::RotaryScratchBytes(x)));
}

// One tensor turned, from x to out.
void AddRotation(OpCall& call, Launch::Kernel kernel, int64_t mode, const Operand& x, const Operand& cos,
                 const Operand& sin, const Operand& out) {
  Launch& launch = call.AddLaunch(kernel);
  call.Write(launch, out);
  call.Read(launch, x);
  call.Read(launch, cos, Repeated(call.RefOf(cos)));
  call.Read(launch, sin, Repeated(call.RefOf(sin)));
  const TensorRef ref = call.RefOf(x);
  FinishRotary(call, launch, mode, ref, kernels::RotaryRowCount(ref), ref.sizes[ref.rank - 1]);
}

Status RotaryTypes(OpCall& call) {
  call.compute = call.inputs[0].dtype;
  for (const auto& operand : call.inputs) {
    if (operand.dtype == call.compute) continue;
    return call.InvalidOperand(operand, fmt::format("has {}, expected the type {} of {}", kernels::Name(operand.dtype),
                                                    kernels::Name(call.compute), call.NameOf(call.inputs[0])));
  }
  return OneType(call);
}

// Operators without a parameter for it have one mode, their code.
int64_t RotaryModeOf(const OpCall& call) {
  return call.Has("mode") ? call.Int("mode") : static_cast<int64_t>(call.op.computation.code);
}

Status RotaryShape(OpCall& call) {
  const Operand& x = call.inputs[0];
  REPRISE_RETURN_IF_ERROR(CheckRotaryMode(call, RotaryModeOf(call), x));
  REPRISE_RETURN_IF_ERROR(CheckAngles(call, call.inputs[1], x));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.inputs[2], call.inputs[1].sizes(), [] { return "the shape of cos,"; }));
  return call.CheckShape(call.outputs[0], x.sizes(), [] { return "the shape"; });
}

Status LowerRotary(OpCall& call) {
  AddRotation(call, RunRotate, RotaryModeOf(call), call.inputs[0], call.inputs[1], call.inputs[2], call.outputs[0]);
  return {};
}

// refs: out, x, matrix.
void RunTurnByMatrix(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MatMul(launch.refs[1], launch.refs[2], kernels::DType::kFloat, launch.Ref(0, memory), range, memory.scratch);
}

// refs: out, x, turned, cos, sin.
void RunCombineRotation(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::CombineRotation(launch.refs[1], launch.Ref(2, memory), launch.refs[3], launch.refs[4], launch.refs[0], range,
                           memory.scratch);
}

Status MatrixRotaryShape(OpCall& call) {
  const Operand* rotate = call.Find("rotateOptional");
  if (rotate == nullptr) return RotaryShape(call);
  const Operand& x = call.inputs[0];
  if (x.rank() < 2) {
    return call.InvalidOperand(x, fmt::format("has shape {}, expected at least 2 dims", ShapeText(x.sizes())));
  }
  const int64_t matrix[] = {x.sizes().back(), x.sizes().back()};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*rotate, matrix, [] { return "a matrix of the elements of x,"; }));
  REPRISE_RETURN_IF_ERROR(CheckAngles(call, call.Get("cos"), x));
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("sin"), call.Get("cos").sizes(), [] { return "the shape of cos,"; }));
  return call.CheckShape(call.outputs[0], x.sizes(), [] { return "the shape"; });
}

Status LowerMatrixRotary(OpCall& call) {
  const Operand* rotate = call.Find("rotateOptional");
  if (rotate == nullptr) return LowerRotary(call);
  const Operand& x = call.inputs[0];
  if (x.tensor->count == 0) return {};
  const TensorRef lines = call.RefOf(x);
  const TensorRef turned = call.Temporary(kernels::DType::kFloat, x.sizes());
  const TensorRef matrix = call.RefOf(*rotate);
  Launch& turn = call.AddLaunch(RunTurnByMatrix);
  call.WriteTemporary(turn, turned);
  call.Read(turn, x);
  call.Read(turn, *rotate);
  turn.units = kernels::MatMulUnitCount(lines, matrix, kernels::DType::kFloat, turned);
  turn.grain = GrainOfProduct(x.tensor->count / std::max<int64_t>(1, turn.units) * matrix.sizes[0]);
  call.AddScratch(turn,
                  static_cast<uint64_t>(kernels::MatMulScratchBytes(lines, matrix, kernels::DType::kFloat, turned)));
  Launch& combine = call.AddLaunch(RunCombineRotation);
  call.Write(combine, call.outputs[0]);
  call.Read(combine, x);
  call.ReadTemporary(combine, turned);
  for (const char* name : {"cos", "sin"}) call.Read(combine, call.Get(name), Repeated(call.RefOf(call.Get(name))));
  combine.units = kernels::RotaryRowCount(lines);
  combine.grain = GrainOf(4 * matrix.sizes[0]);
  call.AddScratch(combine, static_cast<uint64_t>(kernels::RotaryScratchBytes(lines)));
  return {};
}

// Whether the gradients of the angles are wanted, for which x is needed.
bool WantsAngles(const OpCall& call) {
  return call.Find("xOptional") != nullptr && (call.Find("dcosOut") != nullptr || call.Find("dsinOut") != nullptr);
}

Status RotaryBackwardShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(RotaryShape(call));
  if (WantsAngles(call)) {
    const Operand* const x = call.Find("xOptional");
    for (std::string_view name : {"dcosOut", "dsinOut"}) {
      if (call.Find(name) != nullptr) continue;
      return call.Invalid(fmt::format("{} is null, but the gradient of the other angle is wanted", name),
                          "pass both, or null for both");
    }
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*x, call.inputs[0].sizes(), [] { return "the shape of dy,"; }));
    for (std::string_view name : {"dcosOut", "dsinOut"}) {
      REPRISE_RETURN_IF_ERROR(
          call.CheckShape(call.Get(name), call.inputs[1].sizes(), [] { return "the shape of cos,"; }));
    }
  }
  return {};
}

Status LowerRotaryBackward(OpCall& call) {
  const Operand& dy = call.inputs[0];
  AddRotation(call, RunRotateBackward, call.Int("mode"), dy, call.inputs[1], call.inputs[2], call.outputs[0]);
  if (!WantsAngles(call)) return {};
  const Operand* const x = call.Find("xOptional");
  Launch& launch = call.AddLaunch(RunAngleBackward);
  call.Write(launch, call.Get("dcosOut"));
  call.Write(launch, call.Get("dsinOut"));
  call.Read(launch, dy);
  call.Read(launch, *x);
  const TensorRef dcos = call.RefOf(call.Get("dcosOut"));
  const int64_t units = kernels::RotaryRowCount(dcos);
  FinishRotary(call, launch, call.Int("mode"), dcos, units, units == 0 ? 0 : dy.tensor->count / units);
  return {};
}

StatusOr<int64_t> AppliedMode(const OpCall& call) {
  if (!call.Has("rotaryMode")) return int64_t{0};
  const std::string_view name = call.Text("rotaryMode");
  int64_t mode = 0;
  for (std::string_view known : {"half", "interleave", "quarter"}) {
    if (name == known) return mode;
    ++mode;
  }
  return call.Invalid(fmt::format("rotaryMode is '{}', expected half, interleave or quarter", name));
}

// query and key, each [B, S, N, D] (layout 1), [S, B, N, D] (2), [B, N, S, D] (3) or [T, N, D] (4), with as many heads
// as they like; cos and sin repeat over the heads.
Status ApplyRotaryShape(OpCall& call) {
  const int64_t layout = call.Int("layout");
  if (layout < 1 || layout > 4) {
    return call.Invalid(fmt::format("layout is {}, expected a value from 1 to 4", layout),
                        "1 BSND, 2 SBND, 3 BNSD, 4 TND");
  }
  const int rank = layout == 4 ? 3 : 4;
  REPRISE_ASSIGN_OR_RETURN(const int64_t mode, AppliedMode(call));
  for (size_t i = 0; i < 2; ++i) {
    const Operand& x = call.inputs[i];
    if (x.rank() != rank) {
      return call.InvalidOperand(
          x, fmt::format("has shape {}, expected {} dims for layout {}", ShapeText(x.sizes()), rank, layout));
    }
    REPRISE_RETURN_IF_ERROR(CheckRotaryMode(call, mode, x));
    REPRISE_RETURN_IF_ERROR(CheckAngles(call, call.inputs[2], x));
    REPRISE_RETURN_IF_ERROR(CheckAngles(call, call.inputs[3], x));
  }
  return {};
}

Status LowerApplyRotary(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const int64_t mode, AppliedMode(call));
  for (size_t i = 0; i < 2; ++i) {
    AddRotation(call, RunRotate, mode, call.inputs[i], call.inputs[2], call.inputs[3], call.outputs[i]);
  }
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/rotary.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
