// SPDX-License-Identifier: Apache-2.0
//
// What models chain, as one operator: norms and activations that end in a quantization, results of attention over parts
// of the keys, likely tokens.
#include "kernels/fused_rows.h"

#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::SwigluOperands;
using kernels::TensorRef;

// aclDataType.
constexpr int64_t kInt8Target = 2;
constexpr int64_t kInt32Target = 3;
constexpr int64_t kInt4Target = 29;
constexpr int64_t kCostOfExp = 8;

int64_t RowsOfLastDim(const Operand& x) { return x.tensor->count == 0 ? 0 : x.tensor->count / x.sizes().back(); }

Status CheckHasDims(const OpCall& call, const Operand& x, int least) {
  if (x.rank() >= least) return {};
  return call.InvalidOperand(
      x, fmt::format("has shape {}, expected at least {} dim{}", ShapeText(x.sizes()), least, least == 1 ? "" : "s"));
}

// [n] or [1].
Status CheckLineOrOne(const OpCall& call, const Operand* operand, int64_t n) {
  if (operand == nullptr || operand->tensor->count == 1) return {};
  if (operand->tensor->count == n && operand->sizes().back() == n) return {};
  return call.InvalidOperand(*operand,
                             fmt::format("has shape {}, expected [{}] or [1]", ShapeText(operand->sizes()), n));
}

Status CheckLastDim(const OpCall& call, std::string_view name, const Operand& x) {
  const int64_t dim = call.Int(name);
  if (dim == -1 || dim == x.rank() - 1) return {};
  return call.Invalid(fmt::format("{} is {}, expected the last dim of x {}", name, dim, ShapeText(x.sizes())),
                      "move the dim to the end first");
}

// As many elements as there are rows, in their order, whatever the shape.
Status CheckEachRow(const OpCall& call, const Operand& operand, const Operand& x) {
  int64_t rows = 1;
  for (const int64_t size : x.sizes().first(x.sizes().size() - 1)) rows *= size;
  if (operand.tensor->count == rows) return {};
  return call.InvalidOperand(
      operand, fmt::format("has shape {}, expected {} elements, one for each row of {} {}", ShapeText(operand.sizes()),
                           rows, call.NameOf(x), ShapeText(x.sizes())));
}

bool IsWanted(const Operand* operand) { return operand != nullptr && operand->tensor->count != 0; }

// ---- Norm and quantization ----

struct NormQuantAt {
  enum : size_t {
    kSum,
    kNorm,
    kOut1,
    kOut2,
    kStep1,
    kStep2,
    kX1,
    kX2,
    kGamma,
    kBeta,
    kScale1,
    kScale2,
    kZero1,
    kZero2
  };
};

void RunNormQuant(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  using At = NormQuantAt;
  const Refs& refs = launch.refs;
  kernels::NormQuant({.x1 = refs[At::kX1],
                      .x2 = refs[At::kX2],
                      .gamma = refs[At::kGamma],
                      .beta = refs[At::kBeta],
                      .scale = {refs[At::kScale1], refs[At::kScale2]},
                      .zero = {refs[At::kZero1], refs[At::kZero2]},
                      .out = {refs[At::kOut1], refs[At::kOut2]},
                      .step = {refs[At::kStep1], refs[At::kStep2]},
                      .sum = refs[At::kSum],
                      .norm = refs[At::kNorm],
                      .is_dynamic = launch.ints[0] != 0,
                      .divides = launch.ints[1] != 0,
                      .epsilon = launch.scalars[0].As<float>()},
                     range, memory.scratch);
}

struct NormQuantParts {
  const Operand *x1, *x2, *gamma, *beta, *sum, *norm;
  const Operand *scale[2], *zero[2], *out[2], *step[2];
  bool is_dynamic = false;
};

StatusOr<NormQuantParts> NormQuantPartsOf(const OpCall& call) {
  NormQuantParts parts = {.x1 = &call.Get("x1"),
                          .x2 = &call.Get("x2"),
                          .gamma = &call.Get("gamma"),
                          .beta = call.Find("betaOptional"),
                          .sum = &call.Get("xOut"),
                          .norm = IsWanted(call.Find("rmsNormOut")) ? call.Find("rmsNormOut") : nullptr,
                          .scale = {},
                          .zero = {call.Find("zeroPoints1Optional"), call.Find("zeroPoints2Optional")},
                          .out = {},
                          .step = {},
                          .is_dynamic = call.Has("scale1Out")};
  const char* const scales[2][2] = {{"scales1", "scales2Optional"}, {"smoothScale1Optional", "smoothScale2Optional"}};
  for (int k = 0; k < 2; ++k) parts.scale[k] = call.Find(scales[parts.is_dynamic ? 1 : 0][k]);
  bool wanted[2] = {true, parts.scale[1] != nullptr};
  if (call.Has("outputMask") && call.IsGiven("outputMask")) {
    const std::vector<bool> mask = call.Bools("outputMask");
    if (!mask.empty() && mask.size() != 2) {
      return call.Invalid(fmt::format("outputMask has {} values, expected 2", mask.size()),
                          "one for each of y1Out and y2Out");
    }
    for (size_t k = 0; k < mask.size(); ++k) wanted[k] = mask[k];
  }
  const char* const outs[2] = {"y1Out", "y2Out"};
  const char* const steps[2] = {"scale1Out", "scale2Out"};
  for (int k = 0; k < 2; ++k) {
    if (!wanted[k]) continue;
    parts.out[k] = call.Find(outs[k]);
    if (parts.out[k] == nullptr)
      return Error(kOperatorArgumentNull, fmt::format("{}: {} is null, but asked for", call.op.name, outs[k]))
          .Hint("pass an aclTensor for it, or leave out what asks for it");
    if (!parts.is_dynamic) continue;
    parts.step[k] = call.Find(steps[k]);
    if (parts.step[k] == nullptr) {
      return Error(kOperatorArgumentNull, fmt::format("{}: {} is null, but asked for", call.op.name, steps[k]))
          .Hint("pass an aclTensor for it, or leave out what asks for it");
    }
  }
  return parts;
}

Status NormQuantShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const NormQuantParts parts, NormQuantPartsOf(call));
  const Operand& x = *parts.x1;
  REPRISE_RETURN_IF_ERROR(CheckHasDims(call, x, 1));
  const int64_t n = x.sizes().back();
  if (call.Has("axis")) REPRISE_RETURN_IF_ERROR(CheckLastDim(call, "axis", x));
  for (const Operand* operand : {parts.x2, parts.sum, parts.norm, parts.out[0], parts.out[1]}) {
    if (operand == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*operand, x.sizes(), [] { return "the shape of x1,"; }));
  }
  for (const Operand* operand : {parts.out[0], parts.out[1]}) {
    if (operand == nullptr || operand->dtype == DType::kInt8) continue;
    return call.InvalidOperand(*operand, fmt::format("has {}, expected int8", kernels::Name(operand->dtype)));
  }
  for (const Operand* operand : {parts.gamma, parts.beta}) {
    if (operand == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*operand, {&n, 1}, [] { return "the last dim of x1:"; }));
  }
  for (int k = 0; k < 2; ++k) {
    REPRISE_RETURN_IF_ERROR(CheckLineOrOne(call, parts.scale[k], n));
    REPRISE_RETURN_IF_ERROR(CheckLineOrOne(call, parts.zero[k], n));
    if (parts.step[k] == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(CheckEachRow(call, *parts.step[k], x));
  }
  return {};
}

Status LowerNormQuant(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const NormQuantParts parts, NormQuantPartsOf(call));
  const int64_t n = parts.x1->sizes().back();
  Launch& launch = call.AddLaunch(RunNormQuant);
  launch.ints.push_back(parts.is_dynamic ? 1 : 0);
  launch.ints.push_back(call.Has("divMode") && !call.Bool("divMode") ? 0 : 1);
  launch.scalars.push_back(kernels::Scalar::Of(static_cast<float>(call.Real("epsilon"))));
  call.Write(launch, *parts.sum);
  for (const Operand* output : {parts.norm, parts.out[0], parts.out[1], parts.step[0], parts.step[1]}) {
    call.WriteOptional(launch, output);
  }
  call.Read(launch, *parts.x1);
  call.Read(launch, *parts.x2);
  call.Read(launch, *parts.gamma);
  for (const Operand* input : {parts.beta, parts.scale[0], parts.scale[1], parts.zero[0], parts.zero[1]}) {
    call.ReadOptional(launch, input);
  }
  launch.units = RowsOfLastDim(*parts.x1);
  launch.grain = GrainOf(n * kCostOfExp);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::NormQuantScratchBytes(n)));
  return {};
}

// ---- Gated activations ----

struct SwigluAt {
  enum : size_t { kOut, kStep, kX, kWeightScale, kRowScale, kBias, kScale, kOffset, kGroups };
};

void RunSwiglu(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  using At = SwigluAt;
  SwigluOperands operands = launch.State<SwigluOperands>();
  operands.out = launch.refs[At::kOut];
  operands.step = launch.refs[At::kStep];
  operands.x = launch.refs[At::kX];
  operands.weight_scale = launch.refs[At::kWeightScale];
  operands.row_scale = launch.refs[At::kRowScale];
  operands.bias = launch.refs[At::kBias];
  operands.scale = launch.refs[At::kScale];
  operands.offset = launch.refs[At::kOffset];
  operands.group_counts = launch.refs[At::kGroups];
  kernels::SwigluRows(operands, range, memory.scratch);
}

bool IsDequantSwiglu(const OpCall& call) { return call.Has("quantModeOptional"); }
// aclnnSwiGluQuantV2: x are numbers, which are scaled before they are rounded.
bool IsSwigluQuant(const OpCall& call) { return call.Has("groupListType"); }

Status ReadSwigluQuant(const OpCall& call, SwigluOperands& settings) {
  const int64_t list = call.Int("groupListType");
  if (list != 0 && list != 1) {
    return call.Invalid(fmt::format("groupListType is {}, expected 0 or 1", list), "0: ends, 1: counts");
  }
  const int64_t number = call.Int("dstType");
  const bool is_int8 = call.Get("yOut").dtype == DType::kInt8;
  if (is_int8 ? number != kInt8Target : number != kInt32Target && number != kInt4Target) {
    return call.Invalid(fmt::format("dstType is {}, but yOut has {}", number, kernels::Name(call.Get("yOut").dtype)),
                        "pass 2 (int8) with an int8 output, 3 or 29 (int4, eight in a word) with an int32 output");
  }
  const Operand* const offset = call.Find("offsetsOptional");
  if (offset != nullptr && settings.mode == SwigluOperands::Mode::kDynamic) {
    return call.InvalidOperand(*offset, "is given, but the mode is dynamic", "pass null: the scale finds no offset");
  }
  settings.multiplies = true;
  settings.holds_ends = list == 0;
  return {};
}

StatusOr<SwigluOperands> SwigluSettings(const OpCall& call) {
  SwigluOperands settings;
  if (!IsDequantSwiglu(call)) {
    settings.interleaves = call.Bool("interleaved");
    settings.clips = true;
    settings.limit = static_cast<float>(call.Real("limit"));
    settings.alpha = static_cast<float>(call.Real("alpha"));
    settings.shift = static_cast<float>(call.Real("bias"));
    return settings;
  }
  const std::string_view mode = call.Text("quantModeOptional");
  if (mode != "static" && mode != "dynamic" && !mode.empty()) {
    return call.Invalid(fmt::format("quantModeOptional is '{}', expected static or dynamic", mode));
  }
  settings.mode = mode == "dynamic" ? SwigluOperands::Mode::kDynamic : SwigluOperands::Mode::kStatic;
  settings.activates_left = call.Bool("activateLeft");
  if (IsSwigluQuant(call)) REPRISE_RETURN_IF_ERROR(ReadSwigluQuant(call, settings));
  if (!call.Has("swigluMode")) return settings;
  if (call.Int("dstType") != kInt8Target) {
    return call.Invalid(fmt::format("dstType is {}, expected 2 (int8)", call.Int("dstType")));
  }
  if (const std::string_view round = call.Text("roundModeOptional"); !round.empty() && round != "rint") {
    return call.Invalid(fmt::format("roundModeOptional is '{}', expected rint", round));
  }
  const int64_t swiglu = call.Int("swigluMode");
  if (swiglu != 0 && swiglu != 1) return call.Invalid(fmt::format("swigluMode is {}, expected 0 or 1", swiglu));
  if (swiglu == 0) return settings;
  settings.activates_left = true;
  settings.interleaves = true;
  settings.clips = true;
  settings.limit = static_cast<float>(call.Real("clampLimit"));
  settings.alpha = static_cast<float>(call.Real("gluAlpha"));
  settings.shift = static_cast<float>(call.Real("gluBias"));
  return settings;
}

Status SwigluTypes(OpCall& call) {
  const Operand& x = call.Get("x");
  call.compute = x.dtype;
  if (!IsDequantSwiglu(call)) return OneType(call);
  if (x.dtype != DType::kInt32 && !kSingleAndHalfTypes.Has(x.dtype)) {
    return call.InvalidOperand(
        x, fmt::format("has {}, expected int32, float32, float16 or bfloat16", kernels::Name(x.dtype)));
  }
  const Operand& y = call.Get("yOut");
  if (IsSwigluQuant(call)) return {};
  if (y.dtype != DType::kInt8)
    return call.InvalidOperand(y, fmt::format("has {}, expected int8", kernels::Name(y.dtype)));
  const bool is_integer = x.dtype == DType::kInt32;
  if (is_integer == (call.Find("weightScaleOptional") != nullptr)) return {};
  return call.Invalid(
      fmt::format("x has {}, and weightScaleOptional is {}", kernels::Name(x.dtype), is_integer ? "null" : "there"),
      "int32 needs it, other types do not take it");
}

// [n], [groups, n], and of one number [1], [groups] or [groups, 1], as [groups or 1, n or 1].
StatusOr<TensorRef> GroupLines(const OpCall& call, const Operand& operand, int64_t groups, int64_t n) {
  const TensorRef ref = call.RefOf(operand);
  TensorRef view = ref;
  view.rank = 2;
  const bool is_line = ref.rank == 1 && ref.sizes[0] == n;
  const bool is_each = ref.rank == 1 && !is_line && (ref.sizes[0] == groups || ref.sizes[0] == 1);
  if (is_line || is_each) {
    view.sizes[0] = is_line ? 1 : ref.sizes[0];
    view.strides[0] = is_line ? 0 : ref.strides[0];
    view.sizes[1] = is_line ? n : 1;
    view.strides[1] = is_line ? ref.strides[0] : 0;
    return view;
  }
  const bool fits =
      ref.rank == 2 && (ref.sizes[0] == 1 || ref.sizes[0] == groups) && (ref.sizes[1] == 1 || ref.sizes[1] == n);
  if (fits) return view;
  return call.InvalidOperand(operand, fmt::format("has shape {}, expected [{}], [{}, {}] or one number each",
                                                  ShapeText(operand.sizes()), n, groups, n));
}

int64_t GroupCount(const OpCall& call) {
  const Operand* const groups = call.Find("groupIndexOptional");
  return groups == nullptr ? 1 : groups->tensor->count;
}

const char* SwigluScaleName(const OpCall& call) {
  return IsSwigluQuant(call) ? "smoothScalesOptional" : "quantScaleOptional";
}

Status SwigluShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(SwigluSettings(call).status());
  const Operand& x = call.Get("x");
  REPRISE_RETURN_IF_ERROR(CheckHasDims(call, x, 1));
  const int64_t width = x.sizes().back();
  if (width % 2 != 0) {
    return call.InvalidOperand(x, fmt::format("has shape {}, whose last dim is odd", ShapeText(x.sizes())));
  }
  for (const char* name : {"dim", "activateDim"}) {
    if (call.Has(name)) REPRISE_RETURN_IF_ERROR(CheckLastDim(call, name, x));
  }
  Dims shape(x.sizes().data(), x.sizes().size());
  shape[shape.size() - 1] = width / 2;
  if (IsSwigluQuant(call) && call.outputs[0].dtype == DType::kInt32) {
    constexpr int64_t kNumbers = 8;  // of 4 bits in a word
    if (width / 2 % kNumbers != 0) {
      return call.InvalidOperand(
          x, fmt::format("has shape {}, half of whose last dim is no multiple of {}", ShapeText(x.sizes()), kNumbers));
    }
    shape[shape.size() - 1] /= kNumbers;
  }
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.outputs[0], shape, [] { return "the shape, with half of the last dim,"; }));
  if (const Operand* groups = call.Find("groupIndexOptional"); groups != nullptr && groups->rank() != 1) {
    return call.InvalidOperand(*groups, fmt::format("has shape {}, expected one dim", ShapeText(groups->sizes())));
  }
  if (!IsDequantSwiglu(call)) return {};
  if (const Operand* scale = call.Find("activationScaleOptional")) {
    REPRISE_RETURN_IF_ERROR(CheckEachRow(call, *scale, x));
  }
  const bool is_dynamic = call.Text("quantModeOptional") == "dynamic";
  if (is_dynamic) {
    const Operand* const step = call.Find("scaleOut");
    if (step == nullptr)
      return Error(kOperatorArgumentNull, fmt::format("{}: scaleOut is null, but the mode is dynamic", call.op.name))
          .Hint("pass an aclTensor for it, or leave out what asks for it");
    REPRISE_RETURN_IF_ERROR(CheckEachRow(call, *step, x));
  } else if (const char* name = SwigluScaleName(call); call.Find(name) == nullptr) {
    return call.Invalid(fmt::format("{} is null, but the mode is static", name), "pass what scales the results");
  }
  return {};
}

Status LowerSwiglu(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(SwigluOperands settings, SwigluSettings(call));
  const Operand& x = call.Get("x");
  const int64_t n = x.sizes().back() / 2;
  const int64_t groups = GroupCount(call);
  Launch& launch = call.AddLaunch(RunSwiglu);
  const auto read_lines = [&](const char* name, int64_t width) -> Status {
    const Operand* const operand = call.Find(name);
    if (operand == nullptr) {
      call.ReadOptional(launch, nullptr);
      return {};
    }
    REPRISE_ASSIGN_OR_RETURN(const TensorRef lines, GroupLines(call, *operand, groups, width));
    call.Read(launch, *operand, lines);
    return {};
  };
  call.Write(launch, call.outputs[0]);
  call.WriteOptional(launch, settings.mode == SwigluOperands::Mode::kDynamic ? call.Find("scaleOut") : nullptr);
  call.Read(launch, x);
  REPRISE_RETURN_IF_ERROR(read_lines("weightScaleOptional", 2 * n));
  call.ReadOptional(launch, call.Find("activationScaleOptional"));
  REPRISE_RETURN_IF_ERROR(read_lines("biasOptional", 2 * n));
  REPRISE_RETURN_IF_ERROR(read_lines(SwigluScaleName(call), n));
  REPRISE_RETURN_IF_ERROR(read_lines(IsSwigluQuant(call) ? "offsetsOptional" : "quantOffsetOptional", n));
  call.ReadOptional(launch, call.Find("groupIndexOptional"));
  launch.units = n == 0 ? 0 : RowsOfLastDim(x);
  launch.grain = GrainOf(n * 2 * kCostOfExp);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::SwigluScratchBytes(n)));
  launch.state = std::make_shared<const SwigluOperands>(settings);
  return {};
}

// ---- Attention over parts of the keys ----

// refs: out, log sum, then the log sums and the parts.
void RunMergeParts(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const int64_t count = launch.ints[0];
  kernels::MergeParts(&launch.refs[2], &launch.refs[2 + static_cast<size_t>(count)], count, launch.refs[0],
                      launch.refs[1], range);
}

Status MergePartsTypes(OpCall& call) {
  const std::span<const Operand> parts = call.List("localOut");
  if (parts.empty()) return call.Invalid("localOut is an empty list");
  call.compute = parts[0].dtype;
  for (const Operand& part : parts) {
    if (part.dtype == call.compute) continue;
    return call.InvalidOperand(part, fmt::format("has {}, expected the type {} of localOut[0]",
                                                 kernels::Name(part.dtype), kernels::Name(call.compute)));
  }
  const Operand& out = call.Get("out");
  if (out.dtype == call.compute) return {};
  return call.InvalidOperand(out, fmt::format("has {}, expected the type {} of localOut[0]", kernels::Name(out.dtype),
                                              kernels::Name(call.compute)));
}

Status MergePartsShape(OpCall& call) {
  const std::span<const Operand> parts = call.List("localOut");
  const std::span<const Operand> sums = call.List("lse");
  if (parts.size() != sums.size()) {
    return call.Invalid(fmt::format("lse has {} tensors and localOut {}", sums.size(), parts.size()));
  }
  const int64_t type = call.Int("updateType");
  if (type != 0 && type != 1) {
    return call.Invalid(fmt::format("updateType is {}, expected 0 or 1", type), "1: lseOut is written, too");
  }
  REPRISE_RETURN_IF_ERROR(CheckHasDims(call, parts[0], 1));
  for (const Operand& part : parts) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(part, parts[0].sizes(), [] { return "the shape of localOut[0],"; }));
  }
  for (const Operand& sum : sums) {
    REPRISE_RETURN_IF_ERROR(CheckEachRow(call, sum, parts[0]));
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("out"), parts[0].sizes(), [] { return "the shape"; }));
  if (type == 0) return {};
  const Operand* const log_sum = call.Find("lseOut");
  if (log_sum == nullptr)
    return Error(kOperatorArgumentNull, fmt::format("{}: lseOut is null, but updateType is 1", call.op.name))
        .Hint("pass an aclTensor for it, or leave out what asks for it");
  return CheckEachRow(call, *log_sum, parts[0]);
}

Status LowerMergeParts(OpCall& call) {
  const std::span<const Operand> parts = call.List("localOut");
  const std::span<const Operand> sums = call.List("lse");
  Launch& launch = call.AddLaunch(RunMergeParts);
  call.Write(launch, call.Get("out"));
  call.WriteOptional(launch, call.Int("updateType") == 1 ? call.Find("lseOut") : nullptr);
  for (const Operand& sum : sums) call.Read(launch, sum);
  for (const Operand& part : parts) call.Read(launch, part);
  launch.ints.push_back(static_cast<int64_t>(parts.size()));
  launch.units = RowsOfLastDim(call.Get("out"));
  launch.grain = GrainOf(parts[0].sizes().back() * static_cast<int64_t>(parts.size()) * 2);
  return {};
}

// ---- Likely tokens ----

void RunTopKTopP(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::TopKTopP(launch.refs[1], launch.refs[2], launch.refs[3], launch.refs[0], range, memory.scratch);
}

Status TopKTopPShape(OpCall& call) {
  const Operand& logits = call.Get("logits");
  if (logits.rank() != 2) {
    return call.InvalidOperand(logits, fmt::format("has shape {}, expected 2 dims", ShapeText(logits.sizes())));
  }
  for (const char* name : {"p", "k"}) {
    const Operand* const operand = call.Find(name);
    if (operand == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*operand, logits.sizes().first(1), [] { return "one for each row:"; }));
  }
  return call.CheckShape(call.Get("out"), logits.sizes(), [] { return "the shape"; });
}

Status LowerTopKTopP(OpCall& call) {
  const Operand& logits = call.Get("logits");
  Launch& launch = call.AddLaunch(RunTopKTopP);
  call.Write(launch, call.Get("out"));
  call.Read(launch, logits);
  call.ReadOptional(launch, call.Find("p"));
  call.ReadOptional(launch, call.Find("k"));
  const int64_t n = logits.sizes()[1];
  launch.units = RowsOfLastDim(logits);
  launch.grain = GrainOf(n * 3 * kCostOfExp);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::TopKTopPScratchBytes(n)));
  return {};
}

// ---- Rotation by a table ----

// refs: y, x, positions, table.
void RunRotateByTable(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::RotateByTable(launch.State<kernels::TableRotation>(), launch.refs[2], launch.refs[3], launch.refs[1],
                         launch.refs[0], range, memory.scratch);
}

StatusOr<kernels::TableRotation> TableRotationOf(const OpCall& call) {
  kernels::TableRotation rotation;
  rotation.head_size = call.Int("headSize");
  rotation.pairs = !call.Bool("isNeoxStyle");
  const Operand& table = call.Get("cosSinCache");
  if (table.rank() != 2 || table.sizes()[0] < 1 || table.sizes()[1] % 2 != 0 || rotation.head_size < 1 ||
      table.sizes()[1] > rotation.head_size) {
    return call.InvalidOperand(table,
                               fmt::format("has shape {}, expected [positions, an even number up to headSize {}]",
                                           ShapeText(table.sizes()), rotation.head_size));
  }
  const Operand& positions = call.Get("positions");
  const int64_t half = table.sizes()[1] / 2;
  rotation.sections[0] = half;
  if (positions.rank() != 2) return rotation;
  const std::span<const int64_t> sections = call.Ints("mropeSection");
  int64_t sum = 0;
  for (const int64_t section : sections) sum = section < 0 || section > half ? INT64_MIN / 4 : sum + section;
  rotation.alternates = call.Has("cacheMode") && call.Int("cacheMode") == 1;
  const bool may_be_four = call.Has("cacheMode") && !rotation.alternates;
  if ((sections.size() != 3 && !(may_be_four && sections.size() == 4)) || sum != half) {
    return call.Invalid(
        fmt::format("mropeSection is {}, expected three numbers that add up to {}", ShapeText(sections), half),
        "positions of two dims say which row each section takes");
  }
  std::copy(sections.begin(), sections.end(), rotation.sections);
  return rotation;
}

Status TableRotationShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const kernels::TableRotation rotation, TableRotationOf(call));
  const Operand& positions = call.Get("positions");
  if (call.Has("cacheMode") && call.Int("cacheMode") != 0 && call.Int("cacheMode") != 1) {
    return call.Invalid(fmt::format("cacheMode is {}, expected 0 or 1", call.Int("cacheMode")),
                        "0 sections one behind the other, 1 rows of positions by turns");
  }
  const auto rows = static_cast<int64_t>(call.Ints("mropeSection").size());
  const bool fits = positions.rank() == 1 || (positions.rank() == 2 && positions.sizes()[0] == rows);
  if (!fits) {
    return call.InvalidOperand(
        positions, fmt::format("has shape {}, expected [tokens] or [3, tokens]", ShapeText(positions.sizes())));
  }
  for (const auto& [in, out] : {std::pair("queryIn", "queryOut"), {"keyIn", "keyOut"}}) {
    const Operand& x = call.Get(in);
    if (x.rank() != 2 || x.sizes()[0] != positions.sizes().back() || x.sizes()[1] % rotation.head_size != 0) {
      return call.InvalidOperand(x, fmt::format("has shape {}, expected [{}, a multiple of headSize {}]",
                                                ShapeText(x.sizes()), positions.sizes().back(), rotation.head_size));
    }
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(out), x.sizes(), [] { return "the shape of what goes in,"; }));
  }
  return {};
}

Status LowerTableRotation(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const kernels::TableRotation rotation, TableRotationOf(call));
  const auto state = std::make_shared<const kernels::TableRotation>(rotation);
  for (const auto& [in, out] : {std::pair("queryIn", "queryOut"), {"keyIn", "keyOut"}}) {
    const Operand& x = call.Get(in);
    Launch& launch = call.AddLaunch(RunRotateByTable);
    call.Write(launch, call.Get(out));
    call.Read(launch, x);
    call.Read(launch, call.Get("positions"));
    call.Read(launch, call.Get("cosSinCache"));
    launch.state = state;
    launch.units = x.tensor->count == 0 ? 0 : x.sizes()[0];
    launch.grain = GrainOf(x.sizes()[1] * 4);
    const int64_t bytes = kernels::TableRotationScratchBytes(x.sizes()[1], call.Get("cosSinCache").sizes()[1]);
    call.AddScratch(launch, static_cast<uint64_t>(bytes));
  }
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/fused.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
