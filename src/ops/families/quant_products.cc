// SPDX-License-Identifier: Apache-2.0
//
// Rows that are turned by matrices before they become integers, and gradients that do.
#include "kernels/matmul.h"
#include "kernels/quant_rows.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::TensorRef;

constexpr float kTopOfInt4 = 7;
constexpr float kTopOfInt8 = 127;
constexpr int64_t kNumbersInWord = 8;  // of 4 bits

std::string TurnedText(const Operand& operand) { return ShapeText(operand.sizes()); }

Status CheckTurnedRank(const OpCall& call, const Operand& operand, int rank) {
  if (operand.rank() == rank) return {};
  return call.InvalidOperand(operand, fmt::format("has shape {}, expected {} dims", TurnedText(operand), rank));
}

// y is int8 of the shape, or int32 with an eighth of the last dim.
Status CheckTurnedTarget(OpCall& call, const Operand& y, std::span<const int64_t> sizes) {
  Dims shape(sizes.data(), sizes.size());
  if (y.dtype == DType::kInt32) {
    int64_t& last = shape[shape.size() - 1];
    if (last % kNumbersInWord != 0) {
      return call.InvalidOperand(
          y, fmt::format("has int32, but the last dim {} is no multiple of {}", last, kNumbersInWord),
          "an int32 of the output holds eight 4-bit numbers");
    }
    last /= kNumbersInWord;
  }
  return call.CheckShape(y, shape, [] { return "the shape, with an eighth of the last dim if it is int32,"; });
}

// refs: out, a, b.
void RunFloatProduct(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MatMul(launch.Ref(1, memory), launch.Ref(2, memory), launch.compute, launch.Ref(0, memory), range,
                  memory.scratch);
}

void FinishFloatProduct(OpCall& call, Launch& launch) {
  const TensorRef& out = launch.refs[0];
  const TensorRef& a = launch.refs[1];
  const TensorRef& b = launch.refs[2];
  launch.compute = DType::kFloat;
  launch.units = kernels::MatMulUnitCount(a, b, launch.compute, out);
  if (launch.units == 0) return;
  launch.grain = GrainOfProduct(kernels::ElementCount(out) / launch.units * std::max<int64_t>(1, a.sizes[a.rank - 1]));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::MatMulScratchBytes(a, b, launch.compute, out)));
}

// refs: extent, x.
void RunTurnedExtents(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::FindExtents(launch.Ref(1, memory), {}, launch.Ref(0, memory), range);
}
// refs: y, step, x, extent; state: DynamicQuantization without operands.
void RunQuantizeTurned(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::DynamicQuantization operands = launch.State<kernels::DynamicQuantization>();
  operands.y = launch.refs[0];
  operands.step = launch.refs[1];
  operands.x = launch.Ref(2, memory);
  if (launch.HasOperand(3)) operands.extent = launch.Ref(3, memory);
  kernels::QuantizeDynamically(operands, range);
}

// ---- By two factors of a matrix: aclnnFlatQuant, V2 ----

Status FlatQuantShape(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& left = call.Get("kroneckerP1");
  const Operand& right = call.Get("kroneckerP2");
  REPRISE_RETURN_IF_ERROR(CheckTurnedRank(call, x, 3));
  const int64_t by_left[] = {x.sizes()[1], x.sizes()[1]};
  const int64_t by_right[] = {x.sizes()[2], x.sizes()[2]};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(left, by_left, [] { return "the dim 1 of x twice:"; }));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(right, by_right, [] { return "the last dim of x twice:"; }));
  if (call.Has("dstTypeMax") && call.Real("dstTypeMax") != 0) {
    return call.Invalid(fmt::format("dstTypeMax is {}, expected 0", call.Real("dstTypeMax")),
                        "it belongs to floating numbers of 4 bits, which this device does not have");
  }
  const double ratio = call.Real("clipRatio");
  if (!(ratio > 0 && ratio <= 1)) {
    return call.Invalid(fmt::format("clipRatio is {}, expected a value above 0 up to 1", ratio));
  }
  REPRISE_RETURN_IF_ERROR(CheckTurnedTarget(call, call.Get("out"), x.sizes()));
  return call.CheckShape(call.Get("quantScale"), x.sizes().first(1), [] { return "one for each matrix of x:"; });
}

Status LowerFlatQuant(OpCall& call) {
  const Operand& x = call.Get("x");
  const int64_t height = x.sizes()[1];
  const int64_t rows = x.sizes()[0] * height;
  if (x.tensor->count == 0) return {};
  const TensorRef half = call.Temporary(DType::kFloat, x.sizes());
  const TensorRef turned = call.Temporary(DType::kFloat, x.sizes());
  const int64_t extents[] = {rows, 2};
  const TensorRef extent = call.Temporary(DType::kFloat, extents);
  Launch& by_right = call.AddLaunch(RunFloatProduct);
  call.WriteTemporary(by_right, half);
  call.Read(by_right, x);
  call.Read(by_right, call.Get("kroneckerP2"));
  FinishFloatProduct(call, by_right);
  Launch& by_left = call.AddLaunch(RunFloatProduct);
  call.WriteTemporary(by_left, turned);
  call.Read(by_left, call.Get("kroneckerP1"));
  call.ReadTemporary(by_left, half);
  FinishFloatProduct(call, by_left);
  Launch& find = call.AddLaunch(RunTurnedExtents);
  call.WriteTemporary(find, extent);
  call.ReadTemporary(find, turned);
  find.units = rows;
  find.grain = GrainOf(x.sizes()[2] * 2);
  Launch& launch = call.AddLaunch(RunQuantizeTurned);
  call.Write(launch, call.Get("out"));
  call.Write(launch, call.Get("quantScale"));
  call.ReadTemporary(launch, turned);
  call.ReadTemporary(launch, extent);
  launch.state = std::make_shared<const kernels::DynamicQuantization>(kernels::DynamicQuantization{
      .share = height, .top = kTopOfInt4, .ratio = static_cast<float>(call.Real("clipRatio")), .is_packed = true});
  launch.units = rows;
  launch.grain = GrainOf(x.sizes()[2] * 6);
  return {};
}

// ---- By a rotation of parts of the rows: aclnnRotateQuant ----

constexpr int64_t kClampedTogether = 32;

// refs: x, alpha.
void RunClampGroups(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ClampGroups(launch.Ref(0, memory), launch.refs[1], kClampedTogether, range);
}

Status RotateQuantShape(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& rotation = call.Get("rotation");
  REPRISE_RETURN_IF_ERROR(CheckTurnedRank(call, x, 2));
  REPRISE_RETURN_IF_ERROR(CheckTurnedRank(call, rotation, 2));
  const int64_t k = rotation.sizes()[0];
  if (rotation.sizes()[1] != k || k == 0 || x.sizes()[1] % k != 0) {
    return call.InvalidOperand(rotation, fmt::format("has shape {}, expected a square whose side divides the columns "
                                                     "of x {}",
                                                     TurnedText(rotation), TurnedText(x)));
  }
  const int64_t axis = call.Int("axis");
  if (axis != -1 && axis != 1) return call.Invalid(fmt::format("axis is {}, expected the last dim", axis));
  if (const std::string_view mode = call.Text("roundMode"); !mode.empty() && mode != "rint") {
    return call.Invalid(fmt::format("roundMode is '{}', expected rint", mode));
  }
  if (call.Int("scaleAlg") != 0 || call.Real("dstTypeMax") != 0 || call.Bool("trans")) {
    return call.Invalid(fmt::format("scaleAlg, dstTypeMax and trans are {}, {} and {}", call.Int("scaleAlg"),
                                    call.Real("dstTypeMax"), call.Bool("trans")),
                        "pass 0, 0 and false: others belong to floating numbers of 4 and 8 bits");
  }
  const Operand* const alpha = call.Find("alpha");
  if (alpha != nullptr && alpha->tensor->count != 1) {
    return call.InvalidOperand(*alpha, fmt::format("has shape {}, expected one element", TurnedText(*alpha)));
  }
  REPRISE_RETURN_IF_ERROR(CheckTurnedTarget(call, call.Get("yOut"), x.sizes()));
  return call.CheckShape(call.Get("scaleOut"), x.sizes().first(1), [] { return "one for each row of x:"; });
}

Status LowerRotateQuant(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& y = call.Get("yOut");
  if (x.tensor->count == 0) return {};
  const int64_t k = call.Get("rotation").sizes()[0];
  const int64_t parts = x.sizes()[1] / k;
  const auto split = [&](TensorRef ref) {
    ref.rank = 3;
    ref.sizes[2] = k;
    ref.strides[2] = ref.strides[1];
    ref.sizes[1] = parts;
    ref.strides[1] = ref.strides[2] * k;
    return ref;
  };
  const TensorRef turned = call.Temporary(DType::kFloat, x.sizes());
  Launch& turn = call.AddLaunch(RunFloatProduct);
  call.WriteTemporary(turn, split(turned));
  call.Read(turn, x, split(call.RefOf(x)));
  call.Read(turn, call.Get("rotation"));
  FinishFloatProduct(call, turn);
  if (const Operand* alpha = call.Find("alpha")) {
    Launch& clamp = call.AddLaunch(RunClampGroups);
    call.WriteTemporary(clamp, turned);
    call.Read(clamp, *alpha);
    clamp.units = x.sizes()[0];
    clamp.grain = GrainOf(x.sizes()[1] * 4);
  }
  Launch& launch = call.AddLaunch(RunQuantizeTurned);
  call.Write(launch, y);
  call.Write(launch, call.Get("scaleOut"));
  call.ReadTemporary(launch, turned);
  call.ReadOptional(launch, nullptr);
  const bool is_packed = y.dtype == DType::kInt32;
  launch.state = std::make_shared<const kernels::DynamicQuantization>(
      kernels::DynamicQuantization{.top = is_packed ? kTopOfInt4 : kTopOfInt8, .is_packed = is_packed});
  launch.units = x.sizes()[0];
  launch.grain = GrainOf(x.sizes()[1] * 8);
  return {};
}

// ---- Gradients of a norm: aclnnRmsNormGradQuant ----

// refs: y, partials, dy, x, rstd, gamma, scale, offset; ints: divides, chunk, rows. A unit is a chunk of rows.
void RunNormGradQuantize(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const TensorRef partials = launch.Ref(1, memory);
  const int64_t n = partials.sizes[1];
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    float* const dgamma = static_cast<float*>(partials.data) + unit * n;
    std::fill_n(dgamma, n, 0.0F);
    kernels::NormGradQuantize({.dy = launch.refs[2],
                               .x = launch.refs[3],
                               .rstd = launch.refs[4],
                               .gamma = launch.refs[5],
                               .scale = launch.refs[6],
                               .offset = launch.refs[7],
                               .y = launch.refs[0],
                               .divides = launch.ints[0] != 0},
                              dgamma, {unit * launch.ints[1], std::min(launch.ints[2], (unit + 1) * launch.ints[1])},
                              memory.scratch);
  }
}

// refs: dgamma, partials.
void RunSumOfPartials(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::SumLines(launch.Ref(1, memory), launch.refs[0], range);
}

int64_t RowsOfNorm(const Operand& x) { return x.tensor->count == 0 ? 0 : x.tensor->count / x.sizes().back(); }

Status NormGradQuantShape(OpCall& call) {
  const Operand& x = call.Get("x");
  if (x.rank() < 1) return call.InvalidOperand(x, "is a scalar, expected at least one dim");
  const int64_t n = x.sizes().back();
  if (const std::string_view mode = call.Text("quantMode"); !mode.empty() && mode != "static") {
    return call.Invalid(fmt::format("quantMode is '{}', expected static", mode));
  }
  const Operand& out = call.Get("dxOut");
  if (out.dtype != DType::kInt8) {
    return call.InvalidOperand(out, fmt::format("has {}, expected int8", kernels::Name(out.dtype)));
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("dy"), x.sizes(), [] { return "the shape of x,"; }));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(out, x.sizes(), [] { return "the shape of x,"; }));
  for (const char* name : {"gamma", "dgammaOut"}) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), {&n, 1}, [] { return "the last dim of x:"; }));
  }
  const Operand& rstd = call.Get("rstd");
  if (rstd.tensor->count != RowsOfNorm(x)) {
    return call.InvalidOperand(rstd, fmt::format("has shape {}, expected {} elements, one for each row of x {}",
                                                 TurnedText(rstd), RowsOfNorm(x), TurnedText(x)));
  }
  for (const char* name : {"scalesX", "offsetXOptional"}) {
    const Operand* const operand = call.Find(name);
    if (operand == nullptr || operand->tensor->count == 1 ||
        (operand->tensor->count == n && operand->sizes().back() == n)) {
      continue;
    }
    return call.InvalidOperand(*operand, fmt::format("has shape {}, expected [{}] or [1]", TurnedText(*operand), n));
  }
  return {};
}

Status LowerNormGradQuant(OpCall& call) {
  const Operand& x = call.Get("x");
  const int64_t n = x.sizes().back();
  const int64_t rows = RowsOfNorm(x);
  // Fixed chunks: how the sums for gamma are cut must not depend on the threads.
  const int64_t chunk = std::clamp<int64_t>((rows + 7) / 8, 8, 256);
  const int64_t sizes[] = {(rows + chunk - 1) / chunk, n};
  const TensorRef partials = call.Temporary(DType::kFloat, sizes);
  Launch& launch = call.AddLaunch(RunNormGradQuantize);
  for (int64_t value : {call.Bool("divMode") ? int64_t{1} : 0, chunk, rows}) launch.ints.push_back(value);
  call.Write(launch, call.Get("dxOut"));
  call.WriteTemporary(launch, partials);
  for (const char* name : {"dy", "x", "rstd", "gamma", "scalesX"}) call.Read(launch, call.Get(name));
  call.ReadOptional(launch, call.Find("offsetXOptional"));
  launch.units = sizes[0];
  launch.grain = GrainOf(chunk * n * 12);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::NormGradQuantizeScratchBytes(n)));
  Launch& sum = call.AddLaunch(RunSumOfPartials);
  call.Write(sum, call.Get("dgammaOut"));
  call.ReadTemporary(sum, partials);
  sum.units = n;
  sum.grain = GrainOf(std::max<int64_t>(1, sizes[0]));
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/quant_products.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
