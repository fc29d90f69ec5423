// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantize.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;

// aclDataType numbers of what quantized numbers are: int8, int4 in the words of int32, int4.
constexpr int64_t kInt8Number = 2;
constexpr int64_t kInt32Number = 3;
constexpr int64_t kInt4Number = 29;
constexpr int64_t kPacked = 8;
// Conversions, comparisons, a division.
constexpr int64_t kCost = 4;

// refs: y, x, scale, offset; ints: square, rounding.
void RunQuantize(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Quantize(launch.refs[1], launch.refs[2], launch.refs[3], launch.ints[0] != 0,
                    static_cast<kernels::Rounding>(launch.ints[1]), launch.refs[0], range);
}

// refs: y, scale, offset, x, smooth, group index.
void RunDynamicQuantize(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::DynamicQuantize(launch.refs[3], launch.refs[4], launch.refs[5], launch.refs[0], launch.refs[1],
                           launch.refs[2], range);
}

// y has the shape of x, or an eighth of its last dim if 4-bit numbers are packed.
Status CheckQuantized(OpCall& call, const Operand& x, const Operand& y) {
  if (x.rank() == 0) return call.InvalidOperand(x, "is a scalar, expected at least one dim");
  Dims shape(x.sizes().data(), x.sizes().size());
  if (y.dtype == DType::kInt32) {
    int64_t& last = shape[shape.size() - 1];
    if (last % kPacked != 0) {
      return call.InvalidOperand(
          x, fmt::format("has shape {}, whose last dim is no multiple of {}", ShapeText(x.sizes()), kPacked),
          "an int32 of the output holds eight 4-bit numbers");
    }
    last /= kPacked;
  }
  return call.CheckShape(
      y, shape, [&] { return y.dtype == DType::kInt32 ? "the shape, with an eighth of the last dim," : "the shape"; });
}

Status CheckTarget(const OpCall& call, const Operand& y) {
  const int64_t number = call.Int("dstType");
  const bool fits = y.dtype == DType::kInt8 ? number == kInt8Number : number == kInt32Number || number == kInt4Number;
  if (fits) return {};
  return call.Invalid(fmt::format("dstType is {}, but {} has {}", DTypeText(static_cast<int32_t>(number)),
                                  call.NameOf(y), kernels::Name(y.dtype)),
                      "pass 2 (int8) with an int8 output, 3 or 29 (int4, eight in a word) with an int32 output");
}

// The dim of x that scale and offset go along.
StatusOr<int> AxisOf(const OpCall& call, const Operand& x) {
  if (!call.Has("axis")) return x.rank() - 1;
  REPRISE_ASSIGN_OR_RETURN(const int axis, call.WrapDim("axis", call.Int("axis"), x.rank()));
  if (axis + 2 >= x.rank()) return axis;
  return call.Invalid(
      fmt::format("axis is {}, expected one of the last two dims of x {}", call.Int("axis"), ShapeText(x.sizes())));
}

Status AscendQuantShape(OpCall& call) {
  const Operand& x = call.Get("x");
  REPRISE_RETURN_IF_ERROR(CheckQuantized(call, x, call.outputs[0]));
  REPRISE_ASSIGN_OR_RETURN(const int axis, AxisOf(call, x));
  const int64_t wanted = x.sizes()[static_cast<size_t>(axis)];
  for (const char* name : {"scale", "offset"}) {
    const Operand* const operand = call.Find(name);
    if (operand == nullptr) continue;
    const int64_t count = operand->tensor->count;
    const bool is_line =
        std::count_if(operand->sizes().begin(), operand->sizes().end(), [](int64_t size) { return size != 1; }) <= 1;
    if (!is_line || (count != 1 && count != wanted)) {
      return call.InvalidOperand(*operand, fmt::format("has shape {}, expected [{}] or [1] for x {}",
                                                       ShapeText(operand->sizes()), wanted, ShapeText(x.sizes())));
    }
  }
  return {};
}

// scale or offset as a tensor of x's rank.
kernels::TensorRef Along(const OpCall& call, const Operand& operand, int rank, int axis) {
  const kernels::TensorRef line = call.RefOf(operand);
  kernels::TensorRef ref = line;
  ref.rank = rank;
  std::fill_n(ref.sizes, rank, 1);
  std::fill_n(ref.strides, rank, 0);
  for (int d = 0; d < line.rank; ++d) {
    if (line.sizes[d] == 1) continue;
    ref.sizes[axis] = line.sizes[d];
    ref.strides[axis] = line.strides[d];
  }
  return ref;
}

Status LowerAscendQuant(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand* const offset = call.Find("offset");
  REPRISE_RETURN_IF_ERROR(CheckTarget(call, call.outputs[0]));
  REPRISE_ASSIGN_OR_RETURN(const int axis, AxisOf(call, x));
  constexpr std::string_view kModes[] = {"round", "floor", "ceil", "trunc"};  // by kernels::Rounding
  const std::string_view mode = call.Text("roundMode").empty() ? kModes[0] : call.Text("roundMode");
  const auto* const found = std::find(std::begin(kModes), std::end(kModes), mode);
  if (found == std::end(kModes)) {
    return call.Invalid(fmt::format("roundMode is '{}', expected round, floor, ceil or trunc", mode));
  }
  Launch& launch = call.AddLaunch(RunQuantize);
  launch.ints.push_back(call.Bool("sqrtMode") ? 1 : 0);
  launch.ints.push_back(found - std::begin(kModes));
  call.Write(launch, call.outputs[0]);
  call.Read(launch, x);
  call.Read(launch, call.Get("scale"), Along(call, call.Get("scale"), x.rank(), axis));
  if (offset == nullptr) {
    call.ReadOptional(launch, nullptr);
  } else {
    call.Read(launch, *offset, Along(call, *offset, x.rank(), axis));
  }
  launch.units = kernels::QuantizeRowCount(launch.refs[1]);
  launch.grain = GrainOf(x.sizes().back() * kCost);
  return {};
}

Status DynamicQuantShape(OpCall& call) {
  const Operand& x = call.Get("x");
  REPRISE_RETURN_IF_ERROR(CheckQuantized(call, x, call.Get("yOut")));
  const std::span<const int64_t> rows = x.sizes().first(x.sizes().size() - 1);
  for (const Operand& output : call.outputs) {
    if (&output == &call.Get("yOut")) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, rows, [] { return "the shape without the last dim"; }));
  }
  const Operand* const smooth = call.Find("smoothScalesOptional");
  const Operand* const groups = call.Has("groupIndexOptional") ? call.Find("groupIndexOptional") : nullptr;
  if (groups != nullptr && smooth == nullptr) {
    return call.InvalidOperand(*groups, "is there, but smoothScalesOptional is null",
                               "groups choose rows of smoothScalesOptional");
  }
  if (groups != nullptr && groups->rank() != 1) {
    const int64_t count = groups->tensor->count;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*groups, {&count, 1}, [] { return "one dim:"; }));
  }
  if (smooth == nullptr) return {};
  Dims expected;
  if (groups != nullptr) expected.push_back(groups->sizes()[0]);
  expected.push_back(x.sizes().back());
  return call.CheckShape(*smooth, expected, [] { return "the shape"; });
}

Status LowerDynamicQuant(OpCall& call) {
  const Operand& x = call.Get("x");
  if (call.Has("dstType")) REPRISE_RETURN_IF_ERROR(CheckTarget(call, call.Get("yOut")));
  Launch& launch = call.AddLaunch(RunDynamicQuantize);
  call.Write(launch, call.Get("yOut"));
  call.Write(launch, call.Get("scaleOut"));
  call.WriteOptional(launch, call.Has("offsetOut") ? call.Find("offsetOut") : nullptr);
  call.Read(launch, x);
  call.ReadOptional(launch, call.Find("smoothScalesOptional"));
  call.ReadOptional(launch, call.Has("groupIndexOptional") ? call.Find("groupIndexOptional") : nullptr);
  launch.units = kernels::QuantizeRowCount(launch.refs[3]);
  launch.grain = GrainOf(x.sizes().back() * 2 * kCost);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/quantization.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
