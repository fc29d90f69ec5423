// SPDX-License-Identifier: Apache-2.0
//
// Rows that become integers of 8 or 4 bits, or come from such: by given scales, by what is in them, after a norm or an
// activation.
#include "kernels/quant_rows.h"

#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::TensorRef;

// aclDataType numbers.
constexpr int64_t kDstInt8 = 2;
constexpr int64_t kDstInt32 = 3;
constexpr int64_t kDstInt4 = 29;
constexpr int64_t kNumbersOfWord = 8;
constexpr int64_t kQuantCost = 6;
constexpr int64_t kGeluCost = 24;

std::string QuantShapeText(const Operand& operand) { return ShapeText(operand.sizes()); }

Status CheckRankOf(const OpCall& call, const Operand& x, int least, int most = kernels::kMaxRank) {
  if (x.rank() >= least && x.rank() <= most) return {};
  return call.InvalidOperand(
      x, fmt::format("has shape {}, expected {} dims", QuantShapeText(x),
                     least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most)));
}

int64_t RowCountOf(const Operand& x) { return x.tensor->count == 0 ? 0 : x.tensor->count / x.sizes().back(); }

// Whether y holds eight numbers in an int32, as its type says, and the attribute, if there is one.
bool IsPackedTarget(const Operand& y) { return y.dtype == DType::kInt32; }

// y is int8 of the shape, or int32 of eight 4-bit numbers each; the attribute names the type.
Status CheckIntegerTarget(OpCall& call, const Operand& y, std::span<const int64_t> sizes, std::string_view attribute) {
  if (!attribute.empty()) {
    const int64_t number = call.Int(attribute);
    const bool fits = y.dtype == DType::kInt8 ? number == kDstInt8 : number == kDstInt32 || number == kDstInt4;
    if (!fits) {
      return call.Invalid(fmt::format("{} is {}, but {} has {}", attribute, DTypeText(static_cast<int32_t>(number)),
                                      call.NameOf(y), kernels::Name(y.dtype)),
                          "pass 2 (int8) with an int8 output, 3 or 29 (int4, eight in a word) with an int32 output");
    }
  }
  Dims shape(sizes.data(), sizes.size());
  if (IsPackedTarget(y)) {
    int64_t& last = shape[shape.size() - 1];
    if (last % kNumbersOfWord != 0) {
      return call.InvalidOperand(
          y, fmt::format("has int32, but the last dim {} is no multiple of {}", last, kNumbersOfWord),
          "an int32 of the output holds eight 4-bit numbers");
    }
    last /= kNumbersOfWord;
  }
  return call.CheckShape(
      y, shape, [&] { return IsPackedTarget(y) ? "the shape, with an eighth of the last dim," : "the shape"; });
}

Status CheckTextIs(const OpCall& call, std::string_view name, std::initializer_list<std::string_view> known) {
  const std::string_view text = call.Text(name);
  if (text.empty()) return {};
  std::string names;
  for (std::string_view each : known) {
    if (text == each) return {};
    names.append(names.empty() ? "" : ", ").append(each);
  }
  return call.Invalid(fmt::format("{} is '{}', expected {}", name, text, names));
}

// [n] or one number, dims of size 1 around it: as a tensor of `rank` along dim `axis`.
StatusOr<TensorRef> SpreadAlong(const OpCall& call, const Operand& operand, int rank, int axis, int64_t n) {
  const TensorRef line = call.RefOf(operand);
  TensorRef ref = line;
  ref.rank = rank;
  std::fill_n(ref.sizes, rank, 1);
  std::fill_n(ref.strides, rank, 0);
  int lines = 0;
  for (int d = 0; d < line.rank; ++d) {
    if (line.sizes[d] == 1) continue;
    ++lines;
    ref.sizes[axis] = line.sizes[d];
    ref.strides[axis] = line.strides[d];
  }
  if (lines == 0 || (lines == 1 && ref.sizes[axis] == n)) return ref;
  return call.InvalidOperand(operand, fmt::format("has shape {}, expected [{}] or [1]", QuantShapeText(operand), n));
}

Status ReadSpread(OpCall& call, Launch& launch, const Operand* operand, int rank, int axis, int64_t n) {
  if (operand == nullptr) {
    call.ReadOptional(launch, nullptr);
    return {};
  }
  REPRISE_ASSIGN_OR_RETURN(const TensorRef view, SpreadAlong(call, *operand, rank, axis, n));
  call.Read(launch, *operand, view);
  return {};
}

Status CheckSpread(const OpCall& call, const Operand* operand, const Operand& x, int axis) {
  if (operand == nullptr) return {};
  return SpreadAlong(call, *operand, x.rank(), axis, x.sizes()[static_cast<size_t>(axis)]).status();
}

Status CheckOneForEachRow(const OpCall& call, const Operand& operand, const Operand& x) {
  int64_t rows = 1;
  for (const int64_t size : x.sizes().first(x.sizes().size() - 1)) rows *= size;
  if (operand.tensor->count == rows) return {};
  return call.InvalidOperand(operand, fmt::format("has shape {}, expected {} elements, one for each row of {} {}",
                                                  QuantShapeText(operand), rows, call.NameOf(x), QuantShapeText(x)));
}

Status MissingOutput(const OpCall& call, std::string_view name, std::string_view why) {
  return Error(kOperatorArgumentNull, fmt::format("{}: {} is null, but {}", call.op.name, name, why))
      .Hint("pass an aclTensor for it, or leave out what asks for it");
}

// ---- By given scales: aclnnQuantize, aclnnGroupQuant ----

// refs: y, x, scale, offset, group ends; ints: divides, packed.
void RunScaleQuantization(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::QuantizeByScale({.x = launch.refs[1],
                            .scale = launch.refs[2],
                            .offset = launch.refs[3],
                            .y = launch.refs[0],
                            .group_ends = launch.refs[4],
                            .divides = launch.ints[0] != 0,
                            .is_packed = launch.ints[1] != 0},
                           range);
}

Status QuantizeShape(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& out = call.Get("out");
  REPRISE_RETURN_IF_ERROR(CheckRankOf(call, x, 1));
  REPRISE_ASSIGN_OR_RETURN(const int axis, call.WrapDim("axis", call.Int("axis"), x.rank()));
  if (out.dtype != DType::kInt8 && out.dtype != DType::kUInt8 && out.dtype != DType::kInt32) {
    return call.InvalidOperand(out, fmt::format("has {}, expected int8, uint8 or int32", kernels::Name(out.dtype)));
  }
  if (call.Type("dtype") != out.dtype) {
    return call.Invalid(fmt::format("dtype is {}, but out has {}", DTypeText(static_cast<int32_t>(call.Int("dtype"))),
                                    kernels::Name(out.dtype)),
                        "pass the type of out");
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(out, x.sizes(), [] { return "the shape of x,"; }));
  REPRISE_RETURN_IF_ERROR(CheckSpread(call, call.Find("scales"), x, axis));
  return CheckSpread(call, call.Find("zeroPoints"), x, axis);
}

Status LowerQuantize(OpCall& call) {
  const Operand& x = call.Get("x");
  REPRISE_ASSIGN_OR_RETURN(const int axis, call.WrapDim("axis", call.Int("axis"), x.rank()));
  const int64_t n = x.sizes()[static_cast<size_t>(axis)];
  Launch& launch = call.AddLaunch(RunScaleQuantization);
  for (int64_t value : {1, 0}) launch.ints.push_back(value);
  call.Write(launch, call.Get("out"));
  call.Read(launch, x);
  REPRISE_RETURN_IF_ERROR(ReadSpread(call, launch, call.Find("scales"), x.rank(), axis, n));
  REPRISE_RETURN_IF_ERROR(ReadSpread(call, launch, call.Find("zeroPoints"), x.rank(), axis, n));
  call.ReadOptional(launch, nullptr);
  launch.units = RowCountOf(x);
  launch.grain = GrainOf(x.sizes().back() * kQuantCost);
  return {};
}

Status GroupQuantShape(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& groups = call.Get("groupIndex");
  const Operand* const offset = call.Find("offsetOptional");
  REPRISE_RETURN_IF_ERROR(CheckRankOf(call, x, 2, 2));
  REPRISE_RETURN_IF_ERROR(CheckRankOf(call, groups, 1, 1));
  REPRISE_RETURN_IF_ERROR(CheckIntegerTarget(call, call.Get("y"), x.sizes(), "dstType"));
  const int64_t shape[] = {groups.sizes()[0], x.sizes()[1]};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("scale"), shape, [] { return "a row for each group,"; }));
  if (offset == nullptr || offset->tensor->count == 1) return {};
  return call.InvalidOperand(*offset, fmt::format("has shape {}, expected one element", QuantShapeText(*offset)));
}

Status LowerGroupQuant(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& y = call.Get("y");
  Launch& launch = call.AddLaunch(RunScaleQuantization);
  for (int64_t value : {0, IsPackedTarget(y) ? 1 : 0}) launch.ints.push_back(value);
  call.Write(launch, y);
  call.Read(launch, x);
  call.Read(launch, call.Get("scale"));
  REPRISE_RETURN_IF_ERROR(ReadSpread(call, launch, call.Find("offsetOptional"), 2, 1, 1));
  call.Read(launch, call.Get("groupIndex"));
  launch.units = RowCountOf(x);
  launch.grain = GrainOf(x.sizes()[1] * kQuantCost);
  return {};
}

// ---- By what is in them: aclnnDynamicQuantV3, V4 ----

// refs: y, step, offset, x, smooth, extent; state: DynamicQuantization without operands.
void RunDynamicRows(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::DynamicQuantization operands = launch.State<kernels::DynamicQuantization>();
  operands.y = launch.refs[0];
  operands.step = launch.refs[1];
  operands.offset = launch.refs[2];
  operands.x = launch.Ref(3, memory);
  operands.smooth = launch.refs[4];
  if (launch.HasOperand(5)) operands.extent = launch.Ref(5, memory);
  kernels::QuantizeDynamically(operands, range);
}

// refs: extent, x, smooth.
void RunFindExtents(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::FindExtents(launch.refs[1], launch.refs[2], launch.Ref(0, memory), range);
}

enum class DynamicMode : uint8_t { kToken, kTensor, kChannel };

StatusOr<DynamicMode> DynamicModeOf(const OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckTextIs(call, "quantMode", {"pertoken", "pertensor", "perchannel"}));
  const std::string_view mode = call.Text("quantMode");
  return mode == "pertensor"    ? DynamicMode::kTensor
         : mode == "perchannel" ? DynamicMode::kChannel
                                : DynamicMode::kToken;
}

Status DynamicModesShape(OpCall& call) {
  const Operand& x = call.Get("x");
  REPRISE_ASSIGN_OR_RETURN(const DynamicMode mode, DynamicModeOf(call));
  REPRISE_RETURN_IF_ERROR(CheckRankOf(call, x, mode == DynamicMode::kChannel ? 2 : 1));
  REPRISE_RETURN_IF_ERROR(CheckIntegerTarget(call, call.Get("yOut"), x.sizes(), "dstType"));
  if (mode != DynamicMode::kToken && IsPackedTarget(call.Get("yOut"))) {
    return call.Invalid(fmt::format("quantMode is '{}', but yOut has int32", call.Text("quantMode")),
                        "pertensor and perchannel give int8 only");
  }
  if (call.Has("dstTypeMax") && call.Real("dstTypeMax") != 0) {
    return call.Invalid(fmt::format("dstTypeMax is {}, expected 0", call.Real("dstTypeMax")),
                        "it belongs to hifloat8, which this device does not have");
  }
  if (const Operand* groups = call.Find("groupIndexOptional")) {
    return call.InvalidOperand(*groups, "is given, but is not supported yet", "call aclnnDynamicQuantV2 with groups");
  }
  const bool is_symmetric = call.Bool("isSymmetrical");
  if (!is_symmetric && call.Find("offsetOut") == nullptr) {
    return MissingOutput(call, "offsetOut", "isSymmetrical is false");
  }
  Dims shape;
  if (mode == DynamicMode::kTensor) {
    shape.push_back(1);
  } else {
    for (int64_t size : x.sizes().first(x.sizes().size() - 1)) shape.push_back(size);
    if (mode == DynamicMode::kChannel) shape[shape.size() - 1] = x.sizes().back();
  }
  const auto what = [] { return "a number for each row, for each column or for all:"; };
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("scaleOut"), shape, what));
  if (!is_symmetric) REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("offsetOut"), shape, what));
  return CheckSpread(call, call.Find("smoothScalesOptional"), x, x.rank() - 1);
}

void SwapLastDims(TensorRef& ref) {
  if (ref.rank < 2) return;
  std::swap(ref.sizes[ref.rank - 1], ref.sizes[ref.rank - 2]);
  std::swap(ref.strides[ref.rank - 1], ref.strides[ref.rank - 2]);
}

Status LowerDynamicModes(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& y = call.Get("yOut");
  const Operand* const smooth = call.Find("smoothScalesOptional");
  REPRISE_ASSIGN_OR_RETURN(const DynamicMode mode, DynamicModeOf(call));
  if (x.tensor->count == 0) return {};
  TensorRef x_view = call.RefOf(x);
  TensorRef y_view = call.RefOf(y);
  TensorRef smooth_view;
  if (smooth != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(smooth_view, SpreadAlong(call, *smooth, x.rank(), x.rank() - 1, x.sizes().back()));
  }
  if (mode == DynamicMode::kChannel) {
    for (TensorRef* ref : {&x_view, &y_view, &smooth_view}) SwapLastDims(*ref);
  }
  const int64_t width = x_view.sizes[x_view.rank - 1];
  const int64_t rows = x.tensor->count / width;
  const auto read_input = [&](Launch& launch) {
    call.Read(launch, x, x_view);
    if (smooth == nullptr) {
      call.ReadOptional(launch, nullptr);
    } else {
      call.Read(launch, *smooth, smooth_view);
    }
  };
  TensorRef extent;
  if (mode == DynamicMode::kTensor) {
    const int64_t sizes[] = {rows, 2};
    extent = call.Temporary(DType::kFloat, sizes);
    Launch& find = call.AddLaunch(RunFindExtents);
    call.WriteTemporary(find, extent);
    read_input(find);
    find.units = rows;
    find.grain = GrainOf(width * kQuantCost);
  }
  Launch& launch = call.AddLaunch(RunDynamicRows);
  call.Write(launch, y, y_view);
  call.Write(launch, call.Get("scaleOut"));
  call.WriteOptional(launch, call.Bool("isSymmetrical") ? nullptr : call.Find("offsetOut"));
  read_input(launch);
  if (mode == DynamicMode::kTensor) {
    call.ReadTemporary(launch, extent);
  } else {
    call.ReadOptional(launch, nullptr);
  }
  launch.state = std::make_shared<const kernels::DynamicQuantization>(kernels::DynamicQuantization{
      .share = rows, .top = IsPackedTarget(y) ? 7.0F : 127.0F, .is_packed = IsPackedTarget(y)});
  launch.units = rows;
  launch.grain = GrainOf(width * 2 * kQuantCost);
  return {};
}

// ---- After an activation: aclnnGeluQuant ----

// refs: y, step, x, scale, offset; ints: tanh.
void RunGeluQuantize(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::GeluQuantize({.x = launch.refs[2],
                         .scale = launch.refs[3],
                         .offset = launch.refs[4],
                         .y = launch.refs[0],
                         .step = launch.refs[1],
                         .is_tanh = launch.ints[0] != 0},
                        range, memory.scratch);
}

bool IsDynamicGelu(const OpCall& call) { return call.Text("quantMode") != "static"; }

Status GeluQuantShape(OpCall& call) {
  const Operand& x = call.Get("self");
  REPRISE_RETURN_IF_ERROR(CheckTextIs(call, "approximate", {"none", "tanh"}));
  REPRISE_RETURN_IF_ERROR(CheckTextIs(call, "quantMode", {"static", "dynamic"}));
  REPRISE_RETURN_IF_ERROR(CheckTextIs(call, "roundMode", {"rint"}));
  REPRISE_RETURN_IF_ERROR(CheckRankOf(call, x, 1));
  REPRISE_RETURN_IF_ERROR(CheckIntegerTarget(call, call.Get("y"), x.sizes(), "dstType"));
  REPRISE_RETURN_IF_ERROR(CheckSpread(call, call.Find("inputScaleOptional"), x, x.rank() - 1));
  REPRISE_RETURN_IF_ERROR(CheckSpread(call, call.Find("inputOffsetOptional"), x, x.rank() - 1));
  if (!IsDynamicGelu(call)) {
    if (call.Find("inputScaleOptional") != nullptr) return {};
    return call.Invalid("inputScaleOptional is null, but quantMode is static", "pass what the results are scaled by");
  }
  if (const Operand* offset = call.Find("inputOffsetOptional")) {
    return call.InvalidOperand(*offset, "is given, but quantMode is dynamic", "pass null: the scale finds no offset");
  }
  const Operand* const step = call.Find("outScaleOptional");
  if (step == nullptr) return MissingOutput(call, "outScaleOptional", "quantMode is dynamic");
  return CheckOneForEachRow(call, *step, x);
}

Status LowerGeluQuant(OpCall& call) {
  const Operand& x = call.Get("self");
  const int64_t n = x.sizes().back();
  Launch& launch = call.AddLaunch(RunGeluQuantize);
  launch.ints.push_back(call.Text("approximate") == "tanh" ? 1 : 0);
  call.Write(launch, call.Get("y"));
  call.WriteOptional(launch, IsDynamicGelu(call) ? call.Find("outScaleOptional") : nullptr);
  call.Read(launch, x);
  REPRISE_RETURN_IF_ERROR(ReadSpread(call, launch, call.Find("inputScaleOptional"), 1, 0, n));
  REPRISE_RETURN_IF_ERROR(ReadSpread(call, launch, call.Find("inputOffsetOptional"), 1, 0, n));
  launch.units = RowCountOf(x);
  launch.grain = GrainOf(n * kGeluCost);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::GeluQuantizeScratchBytes(n)));
  return {};
}

// ---- After a norm: aclnnRmsNormQuant, V3 ----

// refs: y, rstd, x, gamma, beta, scale, offset; ints: divides, packed; scalars: epsilon.
void RunNormQuantize(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::NormQuantize({.x = launch.refs[2],
                         .gamma = launch.refs[3],
                         .beta = launch.refs[4],
                         .scale = launch.refs[5],
                         .offset = launch.refs[6],
                         .y = launch.refs[0],
                         .rstd = launch.refs[1],
                         .epsilon = launch.scalars[0].As<float>(),
                         .divides = launch.ints[0] != 0,
                         .is_packed = launch.ints[1] != 0},
                        range, memory.scratch);
}

bool WantsRstd(const OpCall& call) { return call.Has("outputRstd") && call.Bool("outputRstd"); }

Status RmsNormQuantShape(OpCall& call) {
  const Operand& x = call.Get("x");
  REPRISE_RETURN_IF_ERROR(CheckRankOf(call, x, 1));
  const int64_t n = x.sizes().back();
  for (const char* name : {"gamma", "beta"}) {
    const Operand* const operand = call.Find(name);
    if (operand == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*operand, {&n, 1}, [] { return "the last dim of x:"; }));
  }
  for (const char* name : {"scale", "offset"}) {
    REPRISE_RETURN_IF_ERROR(CheckSpread(call, call.Find(name), x, x.rank() - 1));
  }
  REPRISE_RETURN_IF_ERROR(CheckIntegerTarget(call, call.Get("y"), x.sizes(), ""));
  if (!WantsRstd(call)) return {};
  const Operand* const rstd = call.Find("rstd");
  if (rstd == nullptr) return MissingOutput(call, "rstd", "outputRstd is true");
  return CheckOneForEachRow(call, *rstd, x);
}

Status LowerRmsNormQuant(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& y = call.Get("y");
  const int64_t n = x.sizes().back();
  Launch& launch = call.AddLaunch(RunNormQuantize);
  launch.ints.push_back(call.Has("divMode") && call.Bool("divMode") ? 1 : 0);
  launch.ints.push_back(IsPackedTarget(y) ? 1 : 0);
  launch.scalars.push_back(kernels::Scalar::Of(static_cast<float>(call.Real("epsilon"))));
  call.Write(launch, y);
  call.WriteOptional(launch, WantsRstd(call) ? call.Find("rstd") : nullptr);
  call.Read(launch, x);
  call.Read(launch, call.Get("gamma"));
  call.ReadOptional(launch, call.Find("beta"));
  REPRISE_RETURN_IF_ERROR(ReadSpread(call, launch, call.Find("scale"), 1, 0, n));
  REPRISE_RETURN_IF_ERROR(ReadSpread(call, launch, call.Find("offset"), 1, 0, n));
  launch.units = RowCountOf(x);
  launch.grain = GrainOf(n * kQuantCost);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::NormQuantizeScratchBytes(n)));
  return {};
}

// ---- Numbers again: aclnnAscendAntiQuant ----

// refs: y, x, scale, offset; ints: square, packed.
void RunAntiquantize(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Antiquantize(launch.refs[1], launch.ints[1] != 0, launch.refs[2], launch.refs[3], launch.ints[0] != 0,
                        launch.refs[0], range);
}

Status AntiQuantShape(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& y = call.Get("y");
  REPRISE_RETURN_IF_ERROR(CheckRankOf(call, x, 1));
  const int64_t number = call.Int("dstType");
  if (number != y.type_number) {
    return call.Invalid(
        fmt::format("dstType is {}, but y has {}", DTypeText(static_cast<int32_t>(number)), kernels::Name(y.dtype)),
        "pass the type of y");
  }
  Dims shape(x.sizes().data(), x.sizes().size());
  if (x.dtype == DType::kInt32) shape[shape.size() - 1] *= kNumbersOfWord;
  REPRISE_RETURN_IF_ERROR(call.CheckShape(y, shape, [] { return "an element for each number:"; }));
  for (const char* name : {"scale", "offset"}) {
    REPRISE_RETURN_IF_ERROR(CheckSpread(call, call.Find(name), y, y.rank() - 1));
  }
  return {};
}

Status LowerAntiQuant(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& y = call.Get("y");
  const int64_t n = y.sizes().back();
  Launch& launch = call.AddLaunch(RunAntiquantize);
  launch.ints.push_back(call.Bool("sqrtMode") ? 1 : 0);
  launch.ints.push_back(x.dtype == DType::kInt32 ? 1 : 0);
  call.Write(launch, y);
  call.Read(launch, x);
  REPRISE_RETURN_IF_ERROR(ReadSpread(call, launch, call.Find("scale"), y.rank(), y.rank() - 1, n));
  REPRISE_RETURN_IF_ERROR(ReadSpread(call, launch, call.Find("offset"), y.rank(), y.rank() - 1, n));
  launch.units = RowCountOf(y);
  launch.grain = GrainOf(n * kQuantCost);
  return {};
}

// ---- Blocks: aclnnDynamicBlockQuant, V2 ----

// refs: y, step, x; state: BlockQuantization without operands.
void RunBlocks(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::BlockQuantization operands = launch.State<kernels::BlockQuantization>();
  operands.y = launch.refs[0];
  operands.step = launch.refs[1];
  operands.x = launch.refs[2];
  kernels::QuantizeBlocks(operands, range);
}

Status BlockQuantShape(OpCall& call) {
  const Operand& x = call.Get("x");
  REPRISE_RETURN_IF_ERROR(CheckTextIs(call, "roundModeOptional", {"rint"}));
  REPRISE_RETURN_IF_ERROR(CheckRankOf(call, x, 2, 3));
  const int64_t block[] = {call.Int("rowBlockSize"), call.Int("colBlockSize")};
  if (block[0] < 1 || block[1] < 1) {
    return call.Invalid(
        fmt::format("rowBlockSize and colBlockSize are {} and {}, expected at least 1", block[0], block[1]));
  }
  for (const char* name : {"minScale", "dstTypeMax"}) {
    if (call.Has(name) && !(call.Real(name) >= 0)) {
      return call.Invalid(fmt::format("{} is {}, expected at least 0", name, call.Real(name)));
    }
  }
  REPRISE_RETURN_IF_ERROR(CheckIntegerTarget(call, call.Get("yOut"), x.sizes(), "dstType"));
  Dims shape(x.sizes().data(), x.sizes().size());
  for (size_t k = 0; k < 2; ++k) {
    int64_t& size = shape[shape.size() - 2 + k];
    size = size / block[k] + (size % block[k] != 0 ? 1 : 0);
  }
  return call.CheckShape(call.Get("scaleOut"), shape, [] { return "one for each block:"; });
}

Status LowerBlockQuant(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& step = call.Get("scaleOut");
  auto settings = std::make_shared<kernels::BlockQuantization>();
  settings->rows = call.Int("rowBlockSize");
  settings->columns = call.Int("colBlockSize");
  settings->least = static_cast<float>(call.Real("minScale"));
  if (call.Has("dstTypeMax") && call.Real("dstTypeMax") != 0) {
    settings->top = static_cast<float>(call.Real("dstTypeMax"));
  }
  Launch& launch = call.AddLaunch(RunBlocks);
  call.Write(launch, call.Get("yOut"));
  call.Write(launch, step);
  call.Read(launch, x);
  launch.units = x.tensor->count == 0 ? 0 : step.tensor->count / step.sizes().back();
  launch.grain = GrainOf(std::min(settings->rows, x.sizes()[x.sizes().size() - 2]) * x.sizes().back() * kQuantCost);
  launch.state = std::move(settings);
  return {};
}

// ---- There and back: aclnnFakeQuantPerTensorAffineCachemask, PerChannel ----

// refs: out, mask, x, scale, zero; ints: least, greatest, enabled.
void RunFakeQuantize(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::FakeQuantize({.x = launch.refs[2],
                         .scale = launch.refs[3],
                         .zero = launch.refs[4],
                         .out = launch.refs[0],
                         .mask = launch.refs[1],
                         .low = launch.ints[0],
                         .high = launch.ints[1],
                         .enabled = launch.ints[2] != 0},
                        range);
}

StatusOr<int> FakeQuantAxis(const OpCall& call, const Operand& x) {
  if (!call.Has("axis")) return std::max(x.rank(), 1) - 1;
  return call.WrapDim("axis", call.Int("axis"), x.rank());
}

Status FakeQuantShape(OpCall& call) {
  const Operand& x = call.Get("self");
  REPRISE_ASSIGN_OR_RETURN(const int axis, FakeQuantAxis(call, x));
  const int64_t low = call.Int("quantMin");
  const int64_t high = call.Int("quantMax");
  if (low > high) return call.Invalid(fmt::format("quantMin is {}, but quantMax is {}", low, high));
  for (const char* name : {"out", "mask"}) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), x.sizes(), [] { return "the shape of self,"; }));
  }
  const bool has_axis = call.Has("axis");
  if (has_axis) REPRISE_RETURN_IF_ERROR(CheckRankOf(call, x, 1));
  for (const char* name : {"scale", "zeroPoint"}) {
    const Operand& operand = call.Get(name);
    const int64_t wanted = has_axis ? x.sizes()[static_cast<size_t>(axis)] : 1;
    if (operand.tensor->count == wanted && operand.rank() <= 1) continue;
    return call.InvalidOperand(operand, fmt::format("has shape {}, expected [{}]", QuantShapeText(operand), wanted));
  }
  return {};
}

Status LowerFakeQuant(OpCall& call) {
  const Operand& x = call.Get("self");
  REPRISE_ASSIGN_OR_RETURN(const int axis, FakeQuantAxis(call, x));
  const int rank = std::max(x.rank(), 1);
  Launch& launch = call.AddLaunch(RunFakeQuantize);
  launch.ints.push_back(call.Int("quantMin"));
  launch.ints.push_back(call.Int("quantMax"));
  launch.ints.push_back(!call.Has("fakeQuantEnabled") || call.Real("fakeQuantEnabled") != 0 ? 1 : 0);
  for (const char* name : {"out", "mask"})
    call.Write(launch, call.Get(name), AtLeastOneDim(call.RefOf(call.Get(name))));
  call.Read(launch, x, AtLeastOneDim(call.RefOf(x)));
  const int64_t n = x.rank() == 0 ? 1 : x.sizes()[static_cast<size_t>(axis)];
  for (const char* name : {"scale", "zeroPoint"}) {
    REPRISE_RETURN_IF_ERROR(ReadSpread(call, launch, &call.Get(name), rank, axis, n));
  }
  launch.units = x.rank() == 0 ? 1 : RowCountOf(x);
  launch.grain = GrainOf((x.rank() == 0 ? 1 : x.sizes().back()) * kQuantCost);
  return {};
}

// ---- Into a cache: aclnnInplaceQuantScatter, V2 ----

// refs: self, index, updates, scale, zero; ints: axis.
void RunQuantScatter(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::ScatterQuantized({.self = launch.refs[0],
                             .index = launch.refs[1],
                             .updates = launch.refs[2],
                             .scale = launch.refs[3],
                             .zero = launch.refs[4],
                             .axis = static_cast<int>(launch.ints[0])},
                            range);
}

Status QuantScatterShape(OpCall& call) {
  const Operand& self = call.Get("selfRef");
  const Operand& updates = call.Get("updates");
  const Operand& index = call.Get("indices");
  REPRISE_RETURN_IF_ERROR(CheckRankOf(call, self, 2));
  REPRISE_RETURN_IF_ERROR(CheckRankOf(call, index, 1, 1));
  if (self.dtype != DType::kInt8) {
    return call.InvalidOperand(self, fmt::format("has {}, expected int8", kernels::Name(self.dtype)));
  }
  if (call.Has("roundMode")) REPRISE_RETURN_IF_ERROR(CheckTextIs(call, "roundMode", {"rint"}));
  if (call.Int("reduction") != 1) {
    return call.Invalid(fmt::format("reduction is {}, expected 1", call.Int("reduction")), "1: update");
  }
  REPRISE_ASSIGN_OR_RETURN(const int axis, call.WrapDim("axis", call.Int("axis"), self.rank()));
  REPRISE_ASSIGN_OR_RETURN(const int along, call.WrapDim("quantAxis", call.Int("quantAxis"), self.rank()));
  if (axis == 0) return call.Invalid("axis is the dim 0, expected another one", "indices count along dim 0 of updates");
  bool fits = updates.rank() == self.rank() && updates.sizes()[0] == index.sizes()[0];
  for (size_t d = 0; fits && d < self.sizes().size(); ++d) {
    fits = d == 0 || d == static_cast<size_t>(axis) ? updates.sizes()[d] <= self.sizes()[d]
                                                    : updates.sizes()[d] == self.sizes()[d];
  }
  if (!fits) {
    return call.InvalidOperand(
        updates, fmt::format("has shape {}, for selfRef {}, {} indices and axis {}", QuantShapeText(updates),
                             QuantShapeText(self), index.sizes()[0], axis));
  }
  REPRISE_RETURN_IF_ERROR(CheckSpread(call, call.Find("quantScales"), updates, along));
  return CheckSpread(call, call.Find("quantZeroPoints"), updates, along);
}

Status LowerQuantScatter(OpCall& call) {
  const Operand& self = call.Get("selfRef");
  const Operand& updates = call.Get("updates");
  REPRISE_ASSIGN_OR_RETURN(const int axis, call.WrapDim("axis", call.Int("axis"), self.rank()));
  REPRISE_ASSIGN_OR_RETURN(const int along, call.WrapDim("quantAxis", call.Int("quantAxis"), self.rank()));
  const int64_t n = updates.sizes()[static_cast<size_t>(along)];
  Launch& launch = call.AddLaunch(RunQuantScatter);
  launch.ints.push_back(axis);
  call.Write(launch, self);
  call.Read(launch, call.Get("indices"));
  call.Read(launch, updates);
  REPRISE_RETURN_IF_ERROR(ReadSpread(call, launch, call.Find("quantScales"), updates.rank(), along, n));
  REPRISE_RETURN_IF_ERROR(ReadSpread(call, launch, call.Find("quantZeroPoints"), updates.rank(), along, n));
  launch.units = RowCountOf(updates);
  // Updates of one index may fall on rows of another: in their order.
  launch.grain = 0;
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/quant_rows.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
