// SPDX-License-Identifier: Apache-2.0
//
// Matrix products with what models put behind and beside them (kernels/projections.h).
#include "kernels/projections.h"

#include "kernels/matmul.h"
#include "kernels/plane.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::RowFunction;
using kernels::TensorRef;

constexpr int64_t kFunctionCost = 32;

struct NamedFunction {
  std::string_view name;
  RowFunction function;
};

DType MathTypeOf(const OpCall& call) { return call.compute == DType::kDouble ? DType::kDouble : DType::kFloat; }

// refs: out, a, b, addend.
void RunProjection(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MatMulEpilogue epilogue;
  if (launch.HasOperand(3)) {
    epilogue.beta = kernels::Scalar::Of<int64_t>(1);
    epilogue.addend = launch.Ref(3, memory);
  }
  kernels::MatMul(launch.Ref(1, memory), launch.Ref(2, memory), launch.compute, launch.Ref(0, memory), range,
                  memory.scratch, launch.HasOperand(3) ? &epilogue : nullptr);
}

// The operands of the launch are there.
void SplitProjection(OpCall& call, Launch& launch) {
  const TensorRef& a = launch.refs[1];
  const TensorRef& b = launch.refs[2];
  const TensorRef& out = launch.refs[0];
  launch.units = kernels::MatMulUnitCount(a, b, launch.compute, out);
  if (launch.units == 0) return;
  launch.grain = GrainOf(kernels::MatMulUnitWork(a, b, launch.compute, out));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::MatMulScratchBytes(a, b, launch.compute, out)));
}

// A line [n], or one of each expert [E, n], as many dims as `rank`.
TensorRef LineOf(const TensorRef& bias, int rank, int64_t which) {
  TensorRef line = bias;
  const int last = bias.rank - 1;
  const int64_t offset = bias.rank == 2 ? which * bias.strides[0] * kernels::ItemSize(bias.dtype) : 0;
  line.data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(bias.data) + static_cast<uintptr_t>(offset));
  line.rank = rank;
  for (int d = 0; d < rank; ++d) {
    line.sizes[d] = d == rank - 1 ? bias.sizes[last] : 1;
    line.strides[d] = d == rank - 1 ? bias.strides[last] : 0;
  }
  return line;
}

// refs: out, x, other.
void RunFuseRows(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const TensorRef x = launch.Ref(1, memory);
  kernels::FuseRows(static_cast<RowFunction>(launch.ints[0]), x, launch.RefOrNull(2), launch.Ref(0, memory), range);
}

// ---- FusedMatmul ----

StatusOr<RowFunction> FusedFunction(const OpCall& call) {
  constexpr NamedFunction kFunctions[] = {
      {"", RowFunction::kNone},         {"16cast32", RowFunction::kNone},      {"relu", RowFunction::kRelu},
      {"gelu_erf", RowFunction::kGelu}, {"gelu_tanh", RowFunction::kGeluTanh}, {"add", RowFunction::kAdd},
      {"mul", RowFunction::kMul}};
  const std::string_view name = call.Text("fusedOpType");
  for (const NamedFunction& entry : kFunctions) {
    if (entry.name != name) continue;
    const bool needs_other = entry.function == RowFunction::kAdd || entry.function == RowFunction::kMul;
    if (needs_other && call.Find("x3") == nullptr) {
      return call.Invalid(fmt::format("x3 is null, but fusedOpType is '{}'", name), "pass what is added or multiplied");
    }
    return entry.function;
  }
  return call.Invalid(
      fmt::format("fusedOpType is '{}', expected '', 16cast32, relu, gelu_erf, gelu_tanh, add or mul", name));
}

Status FusedMatmulShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(FusedFunction(call).status());
  const Operand& a = call.Get("x1");
  const Operand& b = call.Get("x2");
  if (a.rank() < 2 || b.rank() < 2 || a.sizes().back() != b.sizes()[b.sizes().size() - 2]) {
    return call.Invalid(fmt::format("{} cannot be multiplied", call.InputShapes()),
                        "pass matrices where x1 has as many columns as x2 has rows");
  }
  Dims shape;
  if (!Broadcast(a.sizes().first(a.sizes().size() - 2), b.sizes().first(b.sizes().size() - 2), shape)) {
    return call.Invalid(fmt::format("the batch dims of {} do not broadcast", call.InputShapes()));
  }
  shape.push_back(a.sizes()[a.sizes().size() - 2]);
  shape.push_back(b.sizes().back());
  if (const Operand* bias = call.Find("bias")) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*bias, {shape.end() - 1, 1}, [] { return "the columns of the product:"; }));
  }
  const auto what = [] { return "that of the product:"; };
  if (const Operand* other = call.Find("x3")) REPRISE_RETURN_IF_ERROR(call.CheckShape(*other, shape, what));
  return call.CheckShape(call.Get("y"), shape, what);
}

Status LowerFusedMatmul(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const RowFunction function, FusedFunction(call));
  if (call.Int("cubeMathType") < 0 || call.Int("cubeMathType") > 4) {
    return call.Invalid(fmt::format("cubeMathType is {}, expected a value from 0 to 4", call.Int("cubeMathType")));
  }
  const Operand& out = call.Get("y");
  const bool is_plain = function == RowFunction::kNone;
  const TensorRef sums = is_plain ? TensorRef() : call.Temporary(MathTypeOf(call), out.sizes());
  Launch& launch = call.AddLaunch(RunProjection);
  is_plain ? call.Write(launch, out) : call.WriteTemporary(launch, sums);
  call.Read(launch, call.Get("x1"));
  call.Read(launch, call.Get("x2"));
  if (const Operand* bias = call.Find("bias")) {
    call.Read(launch, *bias, LineOf(call.RefOf(*bias), out.rank(), 0));
  } else {
    call.ReadOptional(launch, nullptr);
  }
  SplitProjection(call, launch);
  if (is_plain) return {};
  Launch& fuse = call.AddLaunch(RunFuseRows);
  call.Write(fuse, out);
  call.ReadTemporary(fuse, sums);
  const bool needs_other = function == RowFunction::kAdd || function == RowFunction::kMul;
  call.ReadOptional(fuse, needs_other ? call.Find("x3") : nullptr);
  fuse.ints.push_back(static_cast<int64_t>(function));
  fuse.units = out.tensor->count;
  fuse.grain = GrainOf(kFunctionCost);
  return {};
}

// ---- Feed-forward networks, of experts if need be ----

StatusOr<RowFunction> Activation(const OpCall& call) {
  constexpr NamedFunction kFunctions[] = {{"relu", RowFunction::kRelu},
                                          {"gelu", RowFunction::kGelu},
                                          {"fastgelu", RowFunction::kFastGelu},
                                          {"silu", RowFunction::kSilu}};
  const std::string_view name = call.Text("activation");
  for (const NamedFunction& entry : kFunctions) {
    if (entry.name == name) return entry.function;
  }
  return call.Invalid(fmt::format("activation is '{}', expected relu, gelu, fastgelu or silu", name),
                      "compute gated activations with operators of their own");
}

Status CheckNotQuantized(const OpCall& call) {
  for (const std::string_view name : {"scale", "offset", "deqScale1", "deqScale2", "antiquantScale1", "antiquantScale2",
                                      "antiquantOffset1", "antiquantOffset2"}) {
    if (call.Find(name) == nullptr) continue;
    return call.Invalid(fmt::format("{} is not null, and quantized networks are not supported", name),
                        "pass null, and weights of a floating type");
  }
  return {};
}

// The row behind the last one of each expert; without experts that of all.
StatusOr<std::vector<int64_t>> ExpertEnds(const OpCall& call, int64_t rows) {
  const std::span<const int64_t> tokens = call.Ints("expertTokens");
  if (tokens.empty()) return std::vector<int64_t>{rows};
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (const int64_t count : tokens) {
    const int64_t next = call.Bool("tokensIndexFlag") ? count : end + count;
    if (next < end || next > rows) {
      return call.Invalid(fmt::format("expertTokens {} does not cut the {} rows of x", ShapeText(tokens), rows),
                          "pass the rows of each expert, or with tokensIndexFlag their ends, ascending");
    }
    end = next;
    ends.push_back(end);
  }
  if (end == rows) return ends;
  return call.Invalid(fmt::format("expertTokens {} leaves rows of x, which has {}", ShapeText(tokens), rows),
                      "let the experts have all rows");
}

Status FfnShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckNotQuantized(call));
  REPRISE_RETURN_IF_ERROR(Activation(call).status());
  const Operand& x = call.Get("x");
  const bool has_experts = !call.Ints("expertTokens").empty();
  const int rank = has_experts ? 3 : 2;
  const Operand& first = call.Get("weight1");
  const Operand& second = call.Get("weight2");
  if (x.rank() < 2)
    return call.InvalidOperand(x, fmt::format("has shape {}, expected 2 dims or more", ShapeText(x.sizes())));
  if (first.rank() != rank || second.rank() != rank) {
    return call.Invalid(fmt::format("weight1 {} and weight2 {} have other dims than {} that {}",
                                    ShapeText(first.sizes()), ShapeText(second.sizes()), rank,
                                    has_experts ? "experts have" : "a network has"));
  }
  const auto experts = static_cast<int64_t>(call.Ints("expertTokens").size());
  const int64_t depth = x.sizes().back();
  const int64_t inner = first.sizes()[static_cast<size_t>(rank - 1)];
  const int64_t columns = second.sizes()[static_cast<size_t>(rank - 1)];
  const int64_t shapes[2][3] = {{experts, depth, inner}, {experts, inner, columns}};
  const auto what = [] { return "that of its place in the network:"; };
  const std::string_view weights[2] = {"weight1", "weight2"};
  const std::string_view biases[2] = {"bias1", "bias2"};
  for (int i = 0; i < 2; ++i) {
    const size_t skipped = has_experts ? 0 : 1;
    REPRISE_RETURN_IF_ERROR(
        call.CheckShape(call.Get(weights[i]), std::span<const int64_t>(shapes[i]).subspan(skipped), what));
    const int64_t line[2] = {experts, shapes[i][2]};
    if (const Operand* bias = call.Find(biases[i])) {
      REPRISE_RETURN_IF_ERROR(call.CheckShape(*bias, std::span<const int64_t>(line).subspan(skipped), what));
    }
  }
  Dims shape(x.sizes().data(), x.sizes().size());
  shape[shape.size() - 1] = columns;
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("y"), shape, [] { return "the shape of x with other columns:"; }));
  return ExpertEnds(call, depth == 0 ? 0 : x.tensor->count / depth).status();
}

// Rows [begin, end) of a matrix.
TensorRef RowsBetween(const TensorRef& matrix, int64_t begin, int64_t end) {
  TensorRef rows = matrix;
  const int64_t bytes = begin * matrix.strides[0] * kernels::ItemSize(matrix.dtype);
  rows.data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(matrix.data) + static_cast<uintptr_t>(bytes));
  rows.sizes[0] = end - begin;
  return rows;
}

// One expert's weight.
TensorRef ExpertOf(const TensorRef& weight, int64_t expert) {
  if (weight.rank == 2) return weight;
  TensorRef matrix = RowsBetween(weight, expert, expert + 1);
  for (int d = 0; d < 2; ++d) {
    matrix.sizes[d] = weight.sizes[d + 1];
    matrix.strides[d] = weight.strides[d + 1];
  }
  matrix.rank = 2;
  return matrix;
}

// Between an operand and rows of a temporary, which has its elements in their order.
void AddCopy(OpCall& call, const Operand& operand, const TensorRef& rows, bool writes_operand) {
  const TensorRef temporary = kernels::MakeContiguous(rows.data, rows.dtype, operand.rank(), operand.sizes().data());
  Launch& launch = call.AddLaunch(RunCopy);
  if (writes_operand) {
    call.Write(launch, operand);
    call.ReadTemporary(launch, temporary);
  } else {
    call.WriteTemporary(launch, temporary);
    call.Read(launch, operand);
  }
  launch.units = operand.tensor->count;
  launch.grain = GrainOf(1);
}

Status LowerFfn(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const RowFunction function, Activation(call));
  const Operand& x = call.Get("x");
  const Operand& y = call.Get("y");
  const int64_t depth = x.sizes().back();
  const int64_t inner = call.Get("weight1").sizes().back();
  const int64_t columns = y.sizes().back();
  if (depth == 0 || y.tensor->count == 0) {
    if (y.tensor->count == 0) return {};
    return call.InvalidOperand(x, fmt::format("has shape {}, without columns", ShapeText(x.sizes())));
  }
  const int64_t rows = x.tensor->count / depth;
  REPRISE_ASSIGN_OR_RETURN(const std::vector<int64_t> ends, ExpertEnds(call, rows));
  const DType math = MathTypeOf(call);
  const int64_t x_shape[] = {rows, depth};
  const int64_t inner_shape[] = {rows, inner};
  const int64_t y_shape[] = {rows, columns};
  const TensorRef in = call.Temporary(math, x_shape);
  const TensorRef sums = call.Temporary(math, inner_shape);
  const TensorRef active = call.Temporary(math, inner_shape);
  const TensorRef out = call.Temporary(math, y_shape);
  AddCopy(call, x, in, false);
  const auto project = [&](const TensorRef& from, const TensorRef& to, std::string_view weight, std::string_view bias) {
    int64_t begin = 0;
    for (size_t expert = 0; expert < ends.size(); ++expert) {
      Launch& launch = call.AddLaunch(RunProjection);
      call.WriteTemporary(launch, RowsBetween(to, begin, ends[expert]));
      call.ReadTemporary(launch, RowsBetween(from, begin, ends[expert]));
      const auto which = static_cast<int64_t>(expert);
      call.Read(launch, call.Get(weight), ExpertOf(call.RefOf(call.Get(weight)), which));
      if (const Operand* line = call.Find(bias)) {
        call.Read(launch, *line, LineOf(call.RefOf(*line), 2, which));
      } else {
        call.ReadOptional(launch, nullptr);
      }
      SplitProjection(call, launch);
      begin = ends[expert];
    }
  };
  project(in, sums, "weight1", "bias1");
  Launch& launch = call.AddLaunch(RunFuseRows);
  call.WriteTemporary(launch, active);
  call.ReadTemporary(launch, sums);
  call.ReadOptional(launch, nullptr);
  launch.ints.push_back(static_cast<int64_t>(function));
  launch.units = rows * inner;
  launch.grain = GrainOf(kFunctionCost);
  project(active, out, "weight2", "bias2");
  AddCopy(call, y, out, true);
  return {};
}

// ---- Low-rank additions ----

Status AddLoraShape(OpCall& call) {
  const Operand& y = call.Get("y");
  const Operand& x = call.Get("x");
  const Operand& b = call.Get("weightB");
  const Operand* const a = call.Find("weightAOptional");
  if (y.rank() != 2 || x.rank() != 2 || b.rank() != 4 || x.sizes()[0] != y.sizes()[0]) {
    return call.Invalid(fmt::format("{} do not fit", call.InputShapes()),
                        "pass y [batch, columns], x [batch, H1] and weightB [W, layers, H2, R]");
  }
  const int64_t rank = b.sizes()[3];
  const int64_t a_shape[] = {b.sizes()[0], b.sizes()[1], rank, x.sizes()[1]};
  if (a != nullptr) REPRISE_RETURN_IF_ERROR(call.CheckShape(*a, a_shape, [] { return "[W, layers, R, H1]:"; }));
  if (a == nullptr && x.sizes()[1] != rank) {
    return call.InvalidOperand(
        x, fmt::format("has shape {}, expected {} columns as weightB has without weightAOptional", ShapeText(x.sizes()),
                       rank));
  }
  const int64_t offset = call.Int("yOffset");
  const int64_t width = call.Int("ySliceSize");
  if (offset < 0 || width < 0 || width > b.sizes()[2] || offset > y.sizes()[1] - width) {
    return call.Invalid(fmt::format("yOffset {} and ySliceSize {} do not fit y {} and weightB {}", offset, width,
                                    ShapeText(y.sizes()), ShapeText(b.sizes())));
  }
  if (call.Int("layerIdx") < 0 || call.Int("layerIdx") >= b.sizes()[1]) {
    return call.Invalid(fmt::format("layerIdx is {}, weightB {} has {} layers", call.Int("layerIdx"),
                                    ShapeText(b.sizes()), b.sizes()[1]));
  }
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("indices"), x.sizes().first(1), [] { return "an element for each row:"; }));
  return call.CheckShape(call.Get("out"), y.sizes(), [] { return "the shape of y,"; });
}

// refs: out, y, x, weightB, indices, weightA.
kernels::LoraRows LoraOf(const Launch& launch) {
  kernels::LoraRows rows = launch.State<kernels::LoraRows>();
  rows.out = &launch.refs[0];
  rows.y = &launch.refs[1];
  rows.x = &launch.refs[2];
  rows.b = &launch.refs[3];
  rows.indices = &launch.refs[4];
  rows.a = launch.RefOrNull(5);
  return rows;
}

void RunAddLora(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::AddLora(LoraOf(launch), memory.scratch, range);
}

Status LowerAddLora(OpCall& call) {
  auto rows = std::make_shared<kernels::LoraRows>();
  rows->layer = call.Int("layerIdx");
  rows->scale = call.Real("scale");
  rows->offset = call.Int("yOffset");
  rows->width = call.Int("ySliceSize");
  const Operand& x = call.Get("x");
  Launch& launch = call.AddLaunch(RunAddLora);
  const int64_t width = rows->width;
  launch.state = std::move(rows);
  call.Write(launch, call.Get("out"));
  for (const std::string_view name : {"y", "x", "weightB", "indices"}) call.Read(launch, call.Get(name));
  call.ReadOptional(launch, call.Find("weightAOptional"));
  launch.units = x.sizes()[0];
  launch.grain = GrainOf(call.Get("weightB").sizes()[3] * (x.sizes()[1] + width));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::AddLoraScratchBytes(LoraOf(launch))));
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/projections.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
