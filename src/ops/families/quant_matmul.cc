// SPDX-License-Identifier: Apache-2.0
//
// Products of integers that become numbers again, and products of permuted matrices.
#include "kernels/int8_matmul.h"
#include "kernels/matmul.h"
#include "kernels/quant_rows.h"
#include "kernels/quantize.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::TensorRef;

void RunIntegerProduct(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MatMul(launch.refs[1], launch.refs[2], launch.compute, launch.Ref(0, memory), range, memory.scratch);
}

// refs: y, a, b, scale, offset, row scale, bias.
void RunQuantProduct(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Int8MatMul(launch.refs[1], launch.refs[2],
                      {.sums = {},
                       .scale = launch.refs[3],
                       .offset = launch.refs[4],
                       .row_scale = launch.refs[5],
                       .bias = launch.refs[6]},
                      launch.Ref(0, memory), range, memory.scratch);
}

// refs: y, sums, scale, offset, row scale, bias.
void RunDequantize(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::DequantizeSums({.sums = launch.Ref(1, memory),
                           .scale = launch.refs[2],
                           .offset = launch.refs[3],
                           .row_scale = launch.refs[4],
                           .bias = launch.refs[5]},
                          launch.Ref(0, memory), range);
}

// refs: y, x; ints: tanh.
void RunGeluOfSums(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::GeluOfRows(launch.Ref(1, memory), launch.ints[0] != 0, launch.refs[0], range);
}

void FinishProduct(OpCall& call, Launch& launch) {
  const TensorRef& out = launch.refs[0];
  const TensorRef& a = launch.refs[1];
  const TensorRef& b = launch.refs[2];
  launch.units = kernels::MatMulUnitCount(a, b, launch.compute, out);
  if (launch.units == 0) return;
  const int64_t per_unit = kernels::ElementCount(out) / launch.units * std::max<int64_t>(1, a.sizes[a.rank - 1]);
  launch.grain = GrainOfProduct(per_unit);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::MatMulScratchBytes(a, b, launch.compute, out)));
}

void FinishQuantProduct(OpCall& call, Launch& launch) {
  const TensorRef& out = launch.refs[0];
  const int64_t depth = launch.refs[1].sizes[launch.refs[1].rank - 1];
  launch.units = kernels::Int8MatMulUnitCount(out, depth);
  launch.grain = GrainOfProduct(kernels::ElementCount(out) / launch.units * std::max<int64_t>(1, depth));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::Int8MatMulScratchBytes(out, depth)));
}

// Null where it is absent or without elements, which is how frameworks pass absent ones.
const Operand* FindFilled(const OpCall& call, std::initializer_list<std::string_view> names) {
  for (std::string_view name : names) {
    const Operand* const operand = call.Find(name);
    if (operand != nullptr && operand->tensor->count != 0) return operand;
  }
  return nullptr;
}

struct QuantProduct {
  const Operand *a, *b, *scale, *offset, *row_scale, *bias, *out;
  TensorRef left = {}, right = {};
};

void SwapLast(TensorRef& ref) {
  std::swap(ref.sizes[ref.rank - 1], ref.sizes[ref.rank - 2]);
  std::swap(ref.strides[ref.rank - 1], ref.strides[ref.rank - 2]);
}

bool IsTransposed(const OpCall& call, std::string_view name) { return call.Has(name) && call.Bool(name); }

StatusOr<QuantProduct> QuantProductOf(const OpCall& call) {
  QuantProduct product = {.a = &call.Get("x1"),
                          .b = &call.Get("x2"),
                          .scale = FindFilled(call, {"scale", "x2Scale"}),
                          .offset = FindFilled(call, {"offset", "x2Offset", "x2OffsetOptional"}),
                          .row_scale = FindFilled(call, {"pertokenScaleOptional", "x1Scale"}),
                          .bias = FindFilled(call, {"bias", "biasOptional"}),
                          .out = &call.outputs[0]};
  for (const Operand* operand : {product.a, product.b}) {
    if (operand->rank() >= 2 && operand->rank() <= 6) continue;
    return call.InvalidOperand(*operand,
                               fmt::format("has shape {}, expected 2 to 6 dims", ShapeText(operand->sizes())));
  }
  product.left = call.RefOf(*product.a);
  product.right = call.RefOf(*product.b);
  if (IsTransposed(call, "transposeX1")) SwapLast(product.left);
  if (IsTransposed(call, "transposeX2")) SwapLast(product.right);
  return product;
}

Status QuantMatmulTypes(OpCall& call) {
  call.compute = DType::kInt32;
  for (const char* name : {"x1", "x2"}) {
    const Operand& operand = call.Get(name);
    if (operand.dtype == DType::kInt8 && operand.packed_dim < 0) continue;
    return call.InvalidOperand(operand, fmt::format("has {}, expected int8", DTypeText(operand.type_number)),
                               "numbers of 4 bits are not supported yet");
  }
  for (const char* name :
       {"yScale", "x1Offset", "yOffset", "yScaleOptional", "x1OffsetOptional", "yOffsetOptional", "x3Optional"}) {
    if (const Operand* operand = FindFilled(call, {name})) {
      return call.InvalidOperand(*operand, "is given, but is not supported yet", "pass null");
    }
  }
  for (const char* name : {"groupSize", "groupSizeOptional"}) {
    if (!call.Has(name) || call.Int(name) == 0) continue;
    return call.Invalid(fmt::format("{} is {}, but scales of groups are not supported yet", name, call.Int(name)),
                        "pass 0");
  }
  const Operand& out = call.outputs[0];
  if (kSingleAndHalfTypes.Has(out.dtype) || kQuantizedTypes.Has(out.dtype)) return {};
  return call.InvalidOperand(
      out, fmt::format("has {}, expected float32, float16, bfloat16, int8 or int32", kernels::Name(out.dtype)));
}

Status QuantMatmulShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const QuantProduct product, QuantProductOf(call));
  const TensorRef& a = product.left;
  const TensorRef& b = product.right;
  const int64_t m = a.sizes[a.rank - 2];
  const int64_t n = b.sizes[b.rank - 1];
  Dims shape;
  if (a.sizes[a.rank - 1] != b.sizes[b.rank - 2] ||
      !Broadcast({a.sizes, static_cast<size_t>(a.rank - 2)}, {b.sizes, static_cast<size_t>(b.rank - 2)}, shape)) {
    return call.Invalid(fmt::format("x1 {}{} and x2 {}{} cannot be multiplied", ShapeText(product.a->sizes()),
                                    IsTransposed(call, "transposeX1") ? " transposed" : "",
                                    ShapeText(product.b->sizes()),
                                    IsTransposed(call, "transposeX2") ? " transposed" : ""));
  }
  shape.push_back(m);
  shape.push_back(n);
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*product.out, shape, [] { return "the shape"; }));
  if (product.scale == nullptr) {
    return call.Invalid(fmt::format("{} has no elements", call.Has("scale") ? "scale" : "x2Scale"),
                        "pass one number, or one for each column of x2");
  }
  if (!kSingleAndHalfTypes.Has(product.scale->dtype) && product.scale->dtype != DType::kInt64 &&
      product.scale->dtype != DType::kUInt64) {
    return call.InvalidOperand(*product.scale,
                               fmt::format("has {}, expected float32, bfloat16, or 64 bits of aclnnTransQuantParamV2",
                                           kernels::Name(product.scale->dtype)));
  }
  for (const Operand* operand : {product.scale, product.offset}) {
    if (operand == nullptr || (operand->rank() <= 1 && (operand->tensor->count == 1 || operand->tensor->count == n))) {
      continue;
    }
    return call.InvalidOperand(*operand,
                               fmt::format("has shape {}, expected [1] or [{}]", ShapeText(operand->sizes()), n));
  }
  if (product.row_scale != nullptr) {
    if (product.row_scale->dtype != DType::kFloat) {
      return call.InvalidOperand(*product.row_scale,
                                 fmt::format("has {}, expected float32", kernels::Name(product.row_scale->dtype)));
    }
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*product.row_scale, {&m, 1}, [] { return "one for each row of x1:"; }));
  }
  if (product.bias != nullptr) {
    if (!kSingleAndHalfTypes.Has(product.bias->dtype) && product.bias->dtype != DType::kInt32) {
      return call.InvalidOperand(*product.bias, fmt::format("has {}, expected int32, float32, float16 or bfloat16",
                                                            kernels::Name(product.bias->dtype)));
    }
    // [n], or [batch, 1, n].
    Dims each(shape.data(), shape.size());
    each[each.size() - 2] = 1;
    const bool is_batch =
        product.bias->rank() > 2 &&
        std::equal(each.begin(), each.end(), product.bias->sizes().begin(), product.bias->sizes().end());
    if (!is_batch) {
      REPRISE_RETURN_IF_ERROR(call.CheckShape(*product.bias, {&n, 1}, [] { return "one for each column of x2:"; }));
    }
    if (product.out->dtype == DType::kInt32 && product.bias->dtype != DType::kInt32) {
      return call.InvalidOperand(*product.bias, fmt::format("has {}, expected int32 for a result of int32",
                                                            kernels::Name(product.bias->dtype)));
    }
  }
  return {};
}

bool IsGelu(const OpCall& call) { return call.Has("fusedOpType") && !call.Text("fusedOpType").empty(); }

Status FusedQuantMatmulShape(OpCall& call) {
  const std::string_view type = call.Text("fusedOpType");
  if (!type.empty() && type != "gelu_erf" && type != "gelu_tanh") {
    return call.Invalid(fmt::format("fusedOpType is '{}', expected gelu_erf, gelu_tanh or nothing", type));
  }
  const Operand& out = call.outputs[0];
  if (!type.empty() && !kSingleAndHalfTypes.Has(out.dtype)) {
    return call.InvalidOperand(
        out, fmt::format("has {}, expected float32, float16 or bfloat16 with fusedOpType", kernels::Name(out.dtype)));
  }
  return QuantMatmulShape(call);
}

Status LowerQuantMatmul(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const QuantProduct product, QuantProductOf(call));
  const Operand& out = *product.out;
  if (out.tensor->count == 0) return {};
  const bool is_gelu = IsGelu(call);
  const TensorRef numbers = is_gelu ? call.Temporary(DType::kFloat, out.sizes()) : TensorRef();
  Launch& launch = call.AddLaunch(RunQuantProduct);
  if (is_gelu) {
    call.WriteTemporary(launch, numbers);
  } else {
    call.Write(launch, out);
  }
  call.Read(launch, *product.a, product.left);
  call.Read(launch, *product.b, product.right);
  for (const Operand* operand : {product.scale, product.offset, product.row_scale, product.bias}) {
    call.ReadOptional(launch, operand);
  }
  FinishQuantProduct(call, launch);
  if (!is_gelu) return {};
  const int64_t n = out.sizes().back();
  Launch& gelu = call.AddLaunch(RunGeluOfSums);
  gelu.ints.push_back(call.Text("fusedOpType") == "gelu_tanh" ? 1 : 0);
  call.Write(gelu, out);
  call.ReadTemporary(gelu, numbers);
  gelu.units = out.tensor->count / n;
  gelu.grain = GrainOf(24 * n);
  return {};
}

// ---- Scales and offsets in 64 bits ----

void RunPackParam(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::PackQuantParam(launch.refs[1], launch.refs[2], launch.ints[0] != 0, launch.refs[0], range);
}

Status PackParamTypes(OpCall& call) {
  call.compute = DType::kFloat;
  const Operand& out = call.outputs[0];
  if (out.dtype == DType::kInt64 || out.dtype == DType::kUInt64) return {};
  return call.InvalidOperand(out, fmt::format("has {}, expected uint64 or int64", kernels::Name(out.dtype)));
}

Status PackParamShape(OpCall& call) {
  if (call.Has("roundMode") && call.Int("roundMode") != 0 && call.Int("roundMode") != 1) {
    return call.Invalid(fmt::format("roundMode is {}, expected 0 or 1", call.Int("roundMode")),
                        "0: the last bits are cut off, 1: they round");
  }
  const Operand* const offset = call.Find("offset");
  int64_t count = call.Get("scale").tensor->count;
  for (const Operand* operand : {call.Find("scale"), offset}) {
    if (operand == nullptr) continue;
    const int64_t own = operand->tensor->count;
    if (operand->rank() > 1 && own != operand->sizes().back()) {
      return call.InvalidOperand(*operand, fmt::format("has shape {}, expected one dim", ShapeText(operand->sizes())));
    }
    if (own != count && own != 1 && count != 1) {
      return call.InvalidOperand(*operand,
                                 fmt::format("has shape {}, expected [1] or [{}]", ShapeText(operand->sizes()), count));
    }
    count = own == 1 ? count : own;
  }
  return call.CheckCount(call.outputs[0], {&count, 1}, [] { return "one for each scale or offset:"; });
}

Status LowerPackParam(OpCall& call) {
  Launch& launch = call.AddLaunch(RunPackParam);
  launch.ints.push_back(call.Has("roundMode") ? call.Int("roundMode") : 0);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.Get("scale"));
  call.ReadOptional(launch, call.Find("offset"));
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(1);
  return {};
}

// ---- Numbers of 4 bits ----

void RunPackInt4(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::PackInt4(launch.refs[1], launch.refs[0], range);
}

Status PackInt4Shape(OpCall& call) {
  constexpr int64_t kNumbers = 8;  // of an int32
  const Operand& weight = call.Get("weight");
  if (weight.rank() == 0 || weight.sizes().back() % kNumbers != 0) {
    return call.InvalidOperand(
        weight, fmt::format("has shape {}, whose last dim is no multiple of {}", ShapeText(weight.sizes()), kNumbers));
  }
  Dims shape(weight.sizes().data(), weight.sizes().size());
  shape[shape.size() - 1] /= kNumbers;
  return call.CheckShape(call.outputs[0], shape, [] { return "the shape, with an eighth of the last dim,"; });
}

Status LowerPackInt4(OpCall& call) {
  const Operand& out = call.outputs[0];
  Launch& launch = call.AddLaunch(RunPackInt4);
  call.Write(launch, out);
  call.Read(launch, call.Get("weight"));
  launch.units = out.tensor->count == 0 ? 0 : out.tensor->count / out.sizes().back();
  launch.grain = GrainOf(call.Get("weight").sizes().back());
  return {};
}

// ---- Permuted matrices ----

// ints of a permutation of three dims; absent: as they are.
Status PermutationOf(const OpCall& call, std::string_view name, int (&order)[3]) {
  const std::span<const int64_t> given = call.Ints(name);
  for (int d = 0; d < 3; ++d) order[d] = d;
  if (given.empty()) return {};
  bool seen[3] = {};
  bool fits = given.size() == 3;
  for (int d = 0; fits && d < 3; ++d) {
    const int64_t dim = given[static_cast<size_t>(d)];
    fits = dim >= 0 && dim < 3 && !seen[dim];
    if (!fits) break;
    seen[dim] = true;
    order[d] = static_cast<int>(dim);
  }
  if (fits) return {};
  return call.Invalid(fmt::format("{} is {}, expected each of 0, 1 and 2 once", name, ShapeText(given)));
}

TensorRef Permuted(const TensorRef& ref, const int (&order)[3]) {
  TensorRef view = ref;
  for (int d = 0; d < 3; ++d) {
    view.sizes[d] = ref.sizes[order[d]];
    view.strides[d] = ref.strides[order[d]];
  }
  return view;
}

struct PermutedProduct {
  TensorRef a, b;
  int of_result[3];
  int64_t split = 1;
};

Status DescribePermuted(const OpCall& call, PermutedProduct& product) {
  for (const char* name : {"bias", "scale"}) {
    if (const Operand* operand = FindFilled(call, {name})) {
      return call.InvalidOperand(*operand, "is given, but is not supported yet", "pass null");
    }
  }
  int orders[2][3];
  REPRISE_RETURN_IF_ERROR(PermutationOf(call, "permX1", orders[0]));
  REPRISE_RETURN_IF_ERROR(PermutationOf(call, "permX2", orders[1]));
  REPRISE_RETURN_IF_ERROR(PermutationOf(call, "permY", product.of_result));
  for (const char* name : {"x1", "x2"}) {
    const Operand& operand = call.Get(name);
    if (operand.rank() == 3) continue;
    return call.InvalidOperand(operand, fmt::format("has shape {}, expected 3 dims", ShapeText(operand.sizes())));
  }
  product.a = Permuted(call.RefOf(call.Get("x1")), orders[0]);
  product.b = Permuted(call.RefOf(call.Get("x2")), orders[1]);
  if (product.a.sizes[0] != product.b.sizes[0] || product.a.sizes[2] != product.b.sizes[1]) {
    return call.Invalid(fmt::format("{} cannot be multiplied: permuted they are {} and {}", call.InputShapes(),
                                    ShapeText({product.a.sizes, 3}), ShapeText({product.b.sizes, 3})));
  }
  product.split = call.Int("batchSplitFactor");
  const bool is_second = product.of_result[0] == 1 && product.of_result[1] == 0;
  if (product.split < 1 || product.a.sizes[0] % product.split != 0 || (product.split > 1 && !is_second)) {
    return call.Invalid(
        fmt::format("batchSplitFactor is {}, expected 1, or a divisor of the {} matrices with permY 1, 0, 2",
                    product.split, product.a.sizes[0]));
  }
  const int64_t type = call.Has("cubeMathType") ? call.Int("cubeMathType") : 0;
  if (type < 0 || type > 4) return call.Invalid(fmt::format("cubeMathType is {}, expected a value from 0 to 4", type));
  return {};
}

Status PermutedShape3(OpCall& call) {
  PermutedProduct product;
  REPRISE_RETURN_IF_ERROR(DescribePermuted(call, product));
  const int64_t sizes[] = {product.a.sizes[0], product.a.sizes[1], product.b.sizes[2]};
  Dims shape;
  if (product.split > 1) {
    for (int64_t size : {product.split, sizes[1], sizes[0] / product.split * sizes[2]}) shape.push_back(size);
  } else {
    for (int d : product.of_result) shape.push_back(sizes[d]);
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the shape"; });
}

// [batch, ..] as [split, batch / split, ..].
TensorRef SplitBatchDim(const TensorRef& ref, int64_t split) {
  TensorRef view = ref;
  view.rank = 4;
  for (int d = 3; d > 1; --d) {
    view.sizes[d] = ref.sizes[d - 1];
    view.strides[d] = ref.strides[d - 1];
  }
  view.sizes[0] = split;
  view.sizes[1] = ref.sizes[0] / split;
  view.strides[1] = ref.strides[0];
  view.strides[0] = ref.strides[0] * view.sizes[1];
  return view;
}

Status LowerPermutedProduct(OpCall& call) {
  PermutedProduct product;
  REPRISE_RETURN_IF_ERROR(DescribePermuted(call, product));
  const TensorRef out = call.RefOf(call.outputs[0]);
  const int64_t n = product.b.sizes[2];
  TensorRef result = out;
  if (product.split > 1) {
    // [split, m, batch / split * n] as [split, batch / split, m, n].
    result.rank = 4;
    const int64_t inner = product.a.sizes[0] / product.split;
    const int64_t sizes[] = {product.split, inner, out.sizes[1], n};
    const int64_t strides[] = {out.strides[0], out.strides[2] * n, out.strides[1], out.strides[2]};
    std::copy_n(sizes, 4, result.sizes);
    std::copy_n(strides, 4, result.strides);
    product.a = SplitBatchDim(product.a, product.split);
    product.b = SplitBatchDim(product.b, product.split);
  } else {
    for (int d = 0; d < 3; ++d) {
      result.sizes[product.of_result[d]] = out.sizes[d];
      result.strides[product.of_result[d]] = out.strides[d];
    }
  }
  const bool is_quantized = call.Has("x2Scale");
  const TensorRef sums =
      is_quantized ? call.Temporary(DType::kInt32, {result.sizes, static_cast<size_t>(result.rank)}) : TensorRef();
  Launch& launch = call.AddLaunch(RunIntegerProduct);
  if (is_quantized) {
    call.WriteTemporary(launch, sums);
    launch.compute = DType::kInt32;
  } else {
    call.Write(launch, call.outputs[0], result);
  }
  call.Read(launch, call.Get("x1"), product.a);
  call.Read(launch, call.Get("x2"), product.b);
  FinishProduct(call, launch);
  if (!is_quantized) return {};
  Launch& finish = call.AddLaunch(RunDequantize);
  call.Write(finish, call.outputs[0], result);
  call.ReadTemporary(finish, sums);
  call.Read(finish, call.Get("x2Scale"));
  call.ReadOptional(finish, nullptr);
  call.ReadOptional(finish, FindFilled(call, {"x1Scale"}));
  call.ReadOptional(finish, nullptr);
  finish.units = n == 0 ? 0 : call.outputs[0].tensor->count / n;
  finish.grain = GrainOf(4 * n);
  return {};
}

// Of int8, with scales of the rows and columns.
Status QuantPermutedTypes(OpCall& call) {
  call.compute = DType::kInt32;
  for (const char* name : {"x1", "x2"}) {
    const Operand& operand = call.Get(name);
    if (operand.dtype == DType::kInt8) continue;
    return call.InvalidOperand(operand, fmt::format("has {}, expected int8", DTypeText(operand.type_number)),
                               "floating numbers of 8 bits are not supported");
  }
  const Operand& out = call.outputs[0];
  if (call.Int("dtype") != out.type_number) {
    return call.Invalid(fmt::format("dtype is {}, but out has {}", DTypeText(static_cast<int32_t>(call.Int("dtype"))),
                                    kernels::Name(out.dtype)),
                        "pass the type of out");
  }
  if (call.Int("groupSize") == 0) return {};
  return call.Invalid(fmt::format("groupSize is {}, but scales of groups are not supported yet", call.Int("groupSize")),
                      "pass 0");
}

Status QuantPermutedShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(PermutedShape3(call));
  PermutedProduct product;
  REPRISE_RETURN_IF_ERROR(DescribePermuted(call, product));
  if (call.Find("x2Scale") == nullptr)
    return call.Invalid("x2Scale is null", "pass one number, or one for each column");
  for (const auto& [name, size] : {std::pair("x1Scale", product.a.sizes[1]), {"x2Scale", product.b.sizes[2]}}) {
    const Operand* const operand = call.Find(name);
    if (operand == nullptr ||
        (operand->rank() == 1 && (operand->tensor->count == 1 || operand->tensor->count == size))) {
      continue;
    }
    return call.InvalidOperand(*operand,
                               fmt::format("has shape {}, expected [1] or [{}]", ShapeText(operand->sizes()), size));
  }
  return {};
}

// ---- Sums that become numbers: aclnnDequantBias ----

Status DequantBiasTypes(OpCall& call) {
  call.compute = DType::kInt32;
  const Operand& out = call.outputs[0];
  if (call.Int("outputDtype") == out.type_number) return {};
  return call.Invalid(fmt::format("outputDtype is {}, but out has {}",
                                  DTypeText(static_cast<int32_t>(call.Int("outputDtype"))), kernels::Name(out.dtype)),
                      "pass the type of out");
}

Status DequantBiasShape(OpCall& call) {
  const Operand& x = call.Get("x");
  if (x.rank() != 2) {
    return call.InvalidOperand(x, fmt::format("has shape {}, expected 2 dims", ShapeText(x.sizes())));
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.outputs[0], x.sizes(), [] { return "the shape of x,"; }));
  const Operand* const bias = call.Find("biasOptional");
  for (const Operand* operand : {&call.Get("weightScale"), bias}) {
    if (operand == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*operand, x.sizes().last(1), [] { return "one for each column of x:"; }));
  }
  if (bias != nullptr && !kSingleAndHalfTypes.Has(bias->dtype) && bias->dtype != DType::kInt32) {
    return call.InvalidOperand(
        *bias, fmt::format("has {}, expected int32, float32, float16 or bfloat16", kernels::Name(bias->dtype)));
  }
  const Operand* const rows = call.Find("activateScaleOptional");
  if (rows == nullptr) return {};
  return call.CheckShape(*rows, x.sizes().first(1), [] { return "one for each row of x:"; });
}

Status LowerDequantBias(OpCall& call) {
  const Operand& x = call.Get("x");
  Launch& launch = call.AddLaunch(RunDequantize);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, x);
  call.Read(launch, call.Get("weightScale"));
  call.ReadOptional(launch, nullptr);
  call.ReadOptional(launch, call.Find("activateScaleOptional"));
  call.ReadOptional(launch, call.Find("biasOptional"));
  launch.units = x.tensor->count == 0 ? 0 : x.sizes()[0];
  launch.grain = GrainOf(4 * x.sizes()[1]);
  return {};
}

// ---- Sums of products: aclnnQuantMatmulReduceSumWeightNz ----

// refs: out, sums, row scale, scale.
void RunReduceSums(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ReduceScaledSums(launch.Ref(1, memory), launch.refs[2], launch.refs[3], launch.refs[0], range);
}

Status ReduceSumShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const QuantProduct product, QuantProductOf(call));
  for (const char* name : {"x2Offset", "bias"}) {
    if (const Operand* operand = FindFilled(call, {name})) {
      return call.InvalidOperand(*operand, "is given, but is not supported yet", "pass null");
    }
  }
  for (const Operand* operand : {product.a, product.b}) {
    if (operand->rank() == 3) continue;
    return call.InvalidOperand(*operand, fmt::format("has shape {}, expected 3 dims", ShapeText(operand->sizes())));
  }
  const std::span<const int64_t> dims = call.Ints("dims");
  if (dims.size() != 1 || dims[0] != 0 || call.Bool("keepDims")) {
    return call.Invalid(
        fmt::format("dims is {} and keepDims {}, expected [0] and false", ShapeText(dims), call.Bool("keepDims")),
        "products are added over the dim 0");
  }
  const TensorRef& a = product.left;
  const TensorRef& b = product.right;
  if (a.sizes[0] != b.sizes[0] || a.sizes[2] != b.sizes[1]) {
    return call.Invalid(fmt::format("x1 {} and x2 {} cannot be multiplied", ShapeText(product.a->sizes()),
                                    ShapeText(product.b->sizes())));
  }
  const Operand* const row_scale = call.Find("x1Scale");
  const Operand* const scale = call.Find("x2Scale");
  if (row_scale == nullptr || scale == nullptr) {
    return call.Invalid(fmt::format("{} is null", row_scale == nullptr ? "x1Scale" : "x2Scale"),
                        "both scales are needed");
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*row_scale, {a.sizes, 2}, [] { return "one for each row of x1:"; }));
  REPRISE_RETURN_IF_ERROR(call.CheckCount(*scale, {b.sizes + 2, 1}, [] { return "one for each column of x2:"; }));
  const int64_t shape[] = {a.sizes[1], b.sizes[2]};
  return call.CheckShape(call.outputs[0], shape, [] { return "the shape"; });
}

Status LowerReduceSum(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const QuantProduct product, QuantProductOf(call));
  const Operand& out = call.outputs[0];
  if (out.tensor->count == 0) return {};
  const int64_t shape[] = {product.left.sizes[0], product.left.sizes[1], product.right.sizes[2]};
  const TensorRef sums = call.Temporary(DType::kInt32, shape);
  Launch& launch = call.AddLaunch(RunIntegerProduct);
  call.WriteTemporary(launch, sums);
  call.Read(launch, *product.a, product.left);
  call.Read(launch, *product.b, product.right);
  launch.compute = DType::kInt32;
  FinishProduct(call, launch);
  Launch& reduce = call.AddLaunch(RunReduceSums);
  call.Write(reduce, out);
  call.ReadTemporary(reduce, sums);
  call.Read(reduce, *product.row_scale);
  call.Read(reduce, *product.scale);
  reduce.units = shape[1];
  reduce.grain = GrainOf(shape[0] * shape[2] * 3);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/quant_matmul.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
