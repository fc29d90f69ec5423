// SPDX-License-Identifier: Apache-2.0
//
// Products in groups with what models do before and after them: sums that are added to, activations that quantize, rows
// that go back to their tokens, rows that are quantized first.
#include "kernels/fused_rows.h"
#include "kernels/matmul.h"
#include "kernels/quant_rows.h"
#include "kernels/quantize.h"
#include "ops/computations.h"
#include "ops/families/grouped.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::TensorRef;

constexpr int64_t kGroupedBlock = 256;  // columns of a work item

std::string GroupText(const Operand& operand) { return ShapeText(operand.sizes()); }

Status CheckGroupedRank(const OpCall& call, const Operand& operand, int rank) {
  if (operand.rank() == rank) return {};
  return call.InvalidOperand(operand, fmt::format("has shape {}, expected {} dims", GroupText(operand), rank));
}

Status RefuseOperands(const OpCall& call, std::initializer_list<const char*> names, std::string_view why) {
  for (const char* name : names) {
    const Operand* const operand = call.Find(name);
    if (operand == nullptr || operand->tensor->count == 0) continue;
    return call.InvalidOperand(*operand, fmt::format("is given, but {}", why), "pass null");
  }
  return {};
}

Status CheckInt8(const OpCall& call, const Operand& operand) {
  if (operand.dtype == DType::kInt8 && operand.packed_dim < 0) return {};
  return call.InvalidOperand(operand, fmt::format("has {}, expected int8", DTypeText(operand.type_number)),
                             "numbers of 4 bits and floating numbers of 8 bits are not supported");
}

Status CheckListType(const OpCall& call) {
  const int64_t type = call.Has("groupListType") ? call.Int("groupListType") : 0;
  if (type == grouped::kEnds || type == grouped::kCounts) return {};
  return call.Invalid(fmt::format("groupListType is {}, expected 0 or 1", type), "0: ends, 1: counts");
}

int64_t ListTypeOf(const OpCall& call) {
  return call.Has("groupListType") ? call.Int("groupListType") : grouped::kEnds;
}

void SwapMatrixDims(TensorRef& ref) {
  std::swap(ref.sizes[ref.rank - 1], ref.sizes[ref.rank - 2]);
  std::swap(ref.strides[ref.rank - 1], ref.strides[ref.rank - 2]);
}

// x of sums [m, n]: an operand, or what a launch before left.
struct SumSource {
  const Operand* operand = nullptr;
  TensorRef temporary;
};

// The sums of products of x [m, k] and weights, [groups, k, n] or one [k, n] each, as int32 [m, n].
TensorRef AddGroupedSums(OpCall& call, const SumSource& x, std::span<const Operand> weights, bool is_turned,
                         const Operand& list, int64_t groups, int64_t m, int64_t k, int64_t n) {
  const int64_t shape[] = {m, n};
  const TensorRef sums = call.Temporary(DType::kInt32, shape);
  Launch& launch = call.AddLaunch(grouped::RunGroups);
  launch.compute = DType::kInt32;
  call.WriteTemporary(launch, sums);
  if (x.operand != nullptr) {
    call.Read(launch, *x.operand);
  } else {
    call.ReadTemporary(launch, x.temporary);
  }
  call.Read(launch, list);
  grouped::GroupedParams params = {};
  params.group_type = grouped::kSplitRows;
  params.list_type = ListTypeOf(call);
  params.count = groups;
  params.columns = kGroupedBlock;
  params.weight = {launch.refs.size(), weights.size(), weights.size() == 1 ? 3 : -1};
  for (const Operand& weight : weights) {
    TensorRef view = call.RefOf(weight);
    if (is_turned) SwapMatrixDims(view);
    call.Read(launch, weight, view);
  }
  launch.state = std::make_shared<grouped::GroupedParams>(params);
  if (m == 0 || n == 0) return sums;
  launch.units = (n + kGroupedBlock - 1) / kGroupedBlock * groups;
  launch.grain = GrainOfProduct(m * n * std::max<int64_t>(k, 1) / std::max<int64_t>(1, launch.units));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::kMostMatMulScratchBytes));
  return sums;
}

// ---- Sums that are added to: aclnnGroupedMatmulAdd, V2 ----

Status GroupedAddTypes(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& weight = call.Get("weight");
  const Operand& y = call.outputs[0];
  call.compute = x.dtype;
  if (weight.dtype != x.dtype) {
    return call.InvalidOperand(
        weight, fmt::format("has {}, expected the type {} of x", kernels::Name(weight.dtype), kernels::Name(x.dtype)));
  }
  if (y.dtype == DType::kFloat) return {};
  return call.InvalidOperand(y, fmt::format("has {}, expected float32", kernels::Name(y.dtype)));
}

Status GroupedAddShape(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& weight = call.Get("weight");
  const Operand& list = call.Get("groupList");
  const Operand& y = call.outputs[0];
  if (!call.Bool("transposeX") || call.Bool("transposeWeight") || call.Int("groupType") != grouped::kSplitDepth) {
    return call.Invalid(fmt::format("transposeX, transposeWeight and groupType are {}, {} and {}",
                                    call.Bool("transposeX"), call.Bool("transposeWeight"), call.Int("groupType")),
                        "pass true, false and 2: groups are rows of x and of weight");
  }
  REPRISE_RETURN_IF_ERROR(CheckListType(call));
  REPRISE_RETURN_IF_ERROR(CheckGroupedRank(call, x, 2));
  REPRISE_RETURN_IF_ERROR(CheckGroupedRank(call, weight, 2));
  REPRISE_RETURN_IF_ERROR(CheckGroupedRank(call, list, 1));
  if (weight.sizes()[0] != x.sizes()[0]) {
    return call.InvalidOperand(
        weight, fmt::format("has shape {}, expected as many rows as x {}", GroupText(weight), GroupText(x)));
  }
  const int64_t groups = list.sizes()[0];
  const int64_t wide[] = {groups, x.sizes()[1], weight.sizes()[1]};
  const int64_t flat[] = {groups * x.sizes()[1], weight.sizes()[1]};
  if (std::equal(std::begin(flat), std::end(flat), y.sizes().begin(), y.sizes().end())) return {};
  return call.CheckShape(y, wide, [] { return "a product for each group,"; });
}

Status LowerGroupedAdd(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& weight = call.Get("weight");
  const Operand& list = call.Get("groupList");
  const Operand& y = call.outputs[0];
  if (y.tensor->count == 0) return {};
  TensorRef turned = call.RefOf(x);
  SwapMatrixDims(turned);
  TensorRef out = call.RefOf(y);
  if (out.rank == 2) {
    out.rank = 3;
    out.sizes[2] = out.sizes[1];
    out.strides[2] = out.strides[1];
    out.sizes[1] = x.sizes()[1];
    out.strides[1] = out.strides[0];
    out.sizes[0] = list.sizes()[0];
    out.strides[0] = out.strides[1] * out.sizes[1];
  }
  Launch& launch = call.AddLaunch(grouped::RunGroups);
  call.Write(launch, y, out);
  call.Read(launch, x, turned);
  call.Read(launch, list);
  grouped::GroupedParams params = {};
  params.group_type = grouped::kSplitDepth;
  params.list_type = ListTypeOf(call);
  params.count = list.sizes()[0];
  params.columns = kGroupedBlock;
  params.weight = {launch.refs.size(), 1, -1};
  params.accumulates = true;
  call.Read(launch, weight);
  launch.state = std::make_shared<grouped::GroupedParams>(params);
  launch.units = (out.sizes[2] + kGroupedBlock - 1) / kGroupedBlock * params.count;
  launch.grain = GrainOfProduct(x.tensor->count * out.sizes[2] / launch.units);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::kMostMatMulScratchBytes));
  return {};
}

// ---- Activations that quantize: aclnnGroupedMatmulSwigluQuant* ----

struct SwigluProduct {
  const Operand *x, *list, *row_scale, *smooth, *out, *step;
  std::span<const Operand> weights, scales;
  int64_t groups = 0, k = 0, n = 0;  // n of the result
};

StatusOr<SwigluProduct> SwigluProductOf(const OpCall& call) {
  SwigluProduct product = {.x = &call.Get("x"),
                           .list = &call.Get("groupList"),
                           .row_scale = &call.Get("xScale"),
                           .smooth = call.Find("smoothScaleOptional"),
                           .out = &call.Get("output"),
                           .step = &call.Get("outputScale"),
                           .weights = call.List("weight"),
                           .scales = call.List("weightScale")};
  if (product.weights.empty() && call.Find("weight") != nullptr) product.weights = {call.Find("weight"), 1};
  if (product.scales.empty() && call.Find("weightScale") != nullptr) product.scales = {call.Find("weightScale"), 1};
  for (const auto& [name, list] : {std::pair("weight", product.weights), {"weightScale", product.scales}}) {
    if (list.empty()) return call.Invalid(fmt::format("{} is an empty list", name));
  }
  return product;
}

Status SwigluProductTypes(OpCall& call) {
  call.compute = DType::kInt32;
  REPRISE_ASSIGN_OR_RETURN(const SwigluProduct product, SwigluProductOf(call));
  REPRISE_RETURN_IF_ERROR(CheckInt8(call, *product.x));
  for (const Operand& weight : product.weights) REPRISE_RETURN_IF_ERROR(CheckInt8(call, weight));
  REPRISE_RETURN_IF_ERROR(CheckInt8(call, *product.out));
  REPRISE_RETURN_IF_ERROR(
      RefuseOperands(call, {"bias", "offset", "biasOptional"}, "products with it are not supported yet"));
  for (const Operand& each : call.List("weightAssistMatrixOptional")) {
    if (each.tensor->count == 0) continue;
    return call.InvalidOperand(each, "is given, but it belongs to weights of 4 bits, which are not supported yet",
                               "pass null");
  }
  return {};
}

Status SwigluProductShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(SwigluProduct product, SwigluProductOf(call));
  for (const char* name : {"dequantMode", "quantMode"}) {
    if (!call.Has(name) || call.Int(name) == 0) continue;
    return call.Invalid(fmt::format("{} is {}, expected 0", name, call.Int(name)), "0: by rows and columns");
  }
  REPRISE_RETURN_IF_ERROR(CheckListType(call));
  REPRISE_RETURN_IF_ERROR(CheckGroupedRank(call, *product.x, 2));
  REPRISE_RETURN_IF_ERROR(CheckGroupedRank(call, *product.list, 1));
  const int64_t m = product.x->sizes()[0];
  const int64_t groups = product.list->sizes()[0];
  const bool is_stacked = product.weights.size() == 1;
  if (!is_stacked && static_cast<int64_t>(product.weights.size()) != groups) {
    return call.Invalid(
        fmt::format("weight has {} tensors, expected 1 or one for each of {} groups", product.weights.size(), groups));
  }
  int64_t width = -1;
  for (const Operand& weight : product.weights) {
    REPRISE_RETURN_IF_ERROR(CheckGroupedRank(call, weight, is_stacked ? 3 : 2));
    const std::span<const int64_t> sizes = weight.sizes();
    if (width < 0) width = sizes.back();
    const bool fits = sizes[sizes.size() - 2] == product.x->sizes()[1] && sizes.back() == width && width % 2 == 0 &&
                      (!is_stacked || sizes[0] == groups);
    if (fits) continue;
    return call.InvalidOperand(weight, fmt::format("has shape {}, expected {} groups of {} rows and an even number of "
                                                   "columns",
                                                   GroupText(weight), groups, product.x->sizes()[1]));
  }
  const int64_t scales[] = {groups, width};
  if (product.scales.size() != 1) {
    return call.Invalid(
        fmt::format("weightScale has {} tensors, expected one of {}", product.scales.size(), ShapeText(scales)));
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(product.scales[0], scales, [] { return "a row for each group,"; }));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*product.row_scale, {&m, 1}, [] { return "one for each row of x:"; }));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*product.step, {&m, 1}, [] { return "one for each row of x:"; }));
  if (product.smooth != nullptr) {
    const int64_t smooth[] = {groups, width / 2};
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*product.smooth, smooth, [] { return "a row for each group,"; }));
  }
  const int64_t shape[] = {m, width / 2};
  return call.CheckShape(*product.out, shape, [] { return "the shape"; });
}

// refs: out, step, sums, weight scale, row scale, smooth, groups; state: SwigluOperands without operands.
void RunGroupedSwiglu(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::SwigluOperands operands = launch.State<kernels::SwigluOperands>();
  operands.out = launch.refs[0];
  operands.step = launch.refs[1];
  operands.x = launch.Ref(2, memory);
  operands.weight_scale = launch.refs[3];
  operands.row_scale = launch.refs[4];
  operands.scale = launch.refs[5];
  operands.group_counts = launch.refs[6];
  kernels::SwigluRows(operands, range, memory.scratch);
}

Status LowerSwigluProduct(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const SwigluProduct product, SwigluProductOf(call));
  const int64_t m = product.x->sizes()[0];
  const int64_t n = product.out->sizes()[1];
  const TensorRef sums = AddGroupedSums(call, {.operand = product.x, .temporary = {}}, product.weights, false,
                                        *product.list, product.list->sizes()[0], m, product.x->sizes()[1], 2 * n);
  Launch& launch = call.AddLaunch(RunGroupedSwiglu);
  call.Write(launch, *product.out);
  call.Write(launch, *product.step);
  call.ReadTemporary(launch, sums);
  call.Read(launch, product.scales[0]);
  call.Read(launch, *product.row_scale);
  call.ReadOptional(launch, product.smooth);
  call.Read(launch, *product.list);
  auto settings = std::make_shared<kernels::SwigluOperands>();
  settings->mode = kernels::SwigluOperands::Mode::kDynamic;
  settings->holds_ends = ListTypeOf(call) == grouped::kEnds;
  launch.state = std::move(settings);
  launch.units = n == 0 ? 0 : m;
  launch.grain = GrainOf(n * 16);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::SwigluScratchBytes(n)));
  return {};
}

// ---- Rows back to their tokens: aclnnGroupedMatmulFinalizeRouting* ----

const Operand* FindEither(const OpCall& call, const char* one, const char* other) {
  return call.Has(one) ? call.Find(one) : call.Find(other);
}

struct RoutedProduct {
  const Operand *x, *weight, *scale, *row_scale, *list, *shared, *logit, *index, *out;
};

StatusOr<RoutedProduct> RoutedProductOf(const OpCall& call) {
  const RoutedProduct product = {.x = &call.Get("x1"),
                                 .weight = &call.Get("x2"),
                                 .scale = FindEither(call, "scale", "scaleOptional"),
                                 .row_scale = call.Find("pertokenScaleOptional"),
                                 .list = FindEither(call, "groupList", "groupListOptional"),
                                 .shared = FindEither(call, "sharedInput", "sharedInputOptional"),
                                 .logit = FindEither(call, "logit", "logitOptional"),
                                 .index = FindEither(call, "rowIndex", "rowIndexOptional"),
                                 .out = &call.Get("out")};
  for (const auto& [operand, name] : {std::pair(product.scale, "scaleOptional"),
                                      {product.list, "groupListOptional"},
                                      {product.index, "rowIndexOptional"}}) {
    if (operand != nullptr) continue;
    return call.Invalid(fmt::format("{} is null, but the result is made of rows by it", name), "pass a tensor for it");
  }
  return product;
}

Status RoutedProductTypes(OpCall& call) {
  call.compute = DType::kInt32;
  REPRISE_ASSIGN_OR_RETURN(const RoutedProduct product, RoutedProductOf(call));
  REPRISE_RETURN_IF_ERROR(CheckInt8(call, *product.x));
  REPRISE_RETURN_IF_ERROR(CheckInt8(call, *product.weight));
  REPRISE_RETURN_IF_ERROR(RefuseOperands(
      call, {"bias", "biasOptional", "offsetOptional", "antiquantScaleOptional", "antiquantOffsetOptional"},
      "products with it are not supported yet"));
  if (!kSingleAndHalfTypes.Has(product.scale->dtype) && product.scale->dtype != DType::kInt64 &&
      product.scale->dtype != DType::kUInt64) {
    return call.InvalidOperand(*product.scale,
                               fmt::format("has {}, expected float32, bfloat16, or 64 bits of aclnnTransQuantParamV2",
                                           kernels::Name(product.scale->dtype)));
  }
  return {};
}

Status RoutedProductShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const RoutedProduct product, RoutedProductOf(call));
  if (call.Int("dtype") != 0) {
    return call.Invalid(fmt::format("dtype is {}, expected 0", call.Int("dtype")), "0: float32");
  }
  if (call.Bool("transposeX1")) return call.Invalid("transposeX1 is true, expected false");
  REPRISE_RETURN_IF_ERROR(CheckListType(call));
  REPRISE_RETURN_IF_ERROR(CheckGroupedRank(call, *product.x, 2));
  REPRISE_RETURN_IF_ERROR(CheckGroupedRank(call, *product.weight, 3));
  REPRISE_RETURN_IF_ERROR(CheckGroupedRank(call, *product.list, 1));
  const bool is_turned = call.Bool("transposeX2");
  const int64_t m = product.x->sizes()[0];
  const int64_t groups = product.list->sizes()[0];
  const std::span<const int64_t> sizes = product.weight->sizes();
  const int64_t n = sizes[is_turned ? 1 : 2];
  if (sizes[0] != groups || sizes[is_turned ? 2 : 1] != product.x->sizes()[1]) {
    return call.InvalidOperand(*product.weight, fmt::format("has shape {}, expected {} groups for x1 {}",
                                                            GroupText(*product.weight), groups, GroupText(*product.x)));
  }
  const int64_t by_group[] = {groups, n};
  REPRISE_RETURN_IF_ERROR(call.CheckCount(*product.scale, by_group, [] { return "a row for each group,"; }));
  for (const Operand* each : {product.row_scale, product.logit, product.index}) {
    if (each == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*each, {&m, 1}, [] { return "one for each row of x1:"; }));
  }
  const int64_t batch = n != 0                     ? product.out->tensor->count / n
                        : product.out->rank() == 2 ? product.out->sizes()[0]
                                                   : 0;
  const int64_t rows[] = {batch, n};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*product.out, rows, [] { return "columns as x2:"; }));
  if (product.shared == nullptr) return {};
  const int64_t first = call.Int("sharedInputOffset");
  REPRISE_RETURN_IF_ERROR(CheckGroupedRank(call, *product.shared, 2));
  if (product.shared->sizes()[1] == n && first >= 0 && first <= rows[0] - product.shared->sizes()[0]) return {};
  return call.InvalidOperand(*product.shared, fmt::format("has shape {} from row {} on, for out {}",
                                                          GroupText(*product.shared), first, GroupText(*product.out)));
}

// refs: out, sums, scale, row scale, weight, index, groups, shared; state: GroupedRowSum without operands.
void RunRoutedSum(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::GroupedRowSum operands = launch.State<kernels::GroupedRowSum>();
  operands.out = launch.refs[0];
  operands.sums = launch.Ref(1, memory);
  operands.scale = launch.refs[2];
  operands.row_scale = launch.refs[3];
  operands.weight = launch.refs[4];
  operands.index = launch.refs[5];
  operands.groups = launch.refs[6];
  operands.shared = launch.refs[7];
  kernels::SumGroupedRows(operands, range);
}

Status LowerRoutedProduct(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const RoutedProduct product, RoutedProductOf(call));
  const int64_t m = product.x->sizes()[0];
  const int64_t n = product.out->sizes()[1];
  const TensorRef sums =
      AddGroupedSums(call, {.operand = product.x, .temporary = {}}, {product.weight, 1}, call.Bool("transposeX2"),
                     *product.list, product.list->sizes()[0], m, product.x->sizes()[1], n);
  Launch& launch = call.AddLaunch(RunRoutedSum);
  call.Write(launch, *product.out);
  call.ReadTemporary(launch, sums);
  call.Read(launch, *product.scale);
  call.ReadOptional(launch, product.row_scale);
  call.ReadOptional(launch, product.logit);
  call.Read(launch, *product.index);
  call.Read(launch, *product.list);
  call.ReadOptional(launch, product.shared);
  auto settings = std::make_shared<kernels::GroupedRowSum>();
  settings->holds_ends = ListTypeOf(call) == grouped::kEnds;
  settings->shared_weight = static_cast<float>(call.Real("sharedInputWeight"));
  settings->shared_first = call.Int("sharedInputOffset");
  launch.state = std::move(settings);
  if (product.out->tensor->count == 0) return {};
  launch.units = (n + kernels::kGroupedRowSumColumns - 1) / kernels::kGroupedRowSumColumns;
  launch.grain = GrainOf((m + product.out->sizes()[0]) * kernels::kGroupedRowSumColumns * 4);
  return {};
}

// ---- Rows that are quantized first: aclnnQuantMatmulDequant, aclnnQuantGroupedMatmulDequant ----

// refs: y, x, smooth, step; y = x * smooth / step.
void RunQuantizeRows(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::QuantizeByScale({.x = launch.refs[1],
                            .smooth = launch.refs[2],
                            .scale = launch.refs[3],
                            .offset = {},
                            .y = launch.Ref(0, memory),
                            .group_ends = {},
                            .divides = true},
                           range);
}
// refs: y, step, x, smooth, extent.
void RunQuantizeRowsByThemselves(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::DynamicQuantization operands;
  operands.y = launch.Ref(0, memory);
  operands.step = launch.Ref(1, memory);
  operands.x = launch.refs[2];
  operands.smooth = launch.refs[3];
  if (launch.HasOperand(4)) operands.extent = launch.Ref(4, memory);
  operands.share = operands.x.sizes[0];
  kernels::QuantizeDynamically(operands, range);
}
// refs: extent, x, smooth.
void RunRowExtents(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::FindExtents(launch.refs[1], launch.refs[2], launch.Ref(0, memory), range);
}

struct DequantProduct {
  const Operand *x, *weight, *scale, *bias, *x_scale, *smooth, *list, *out;
  bool is_turned = false;
  bool is_shared = false;  // one step for all rows
};

DequantProduct DequantProductOf(const OpCall& call) {
  const Operand* const x_scale = call.Find("xScaleOptional");
  return {.x = &call.Get("x"),
          .weight = &call.Get("weight"),
          .scale = &call.Get("weightScale"),
          .bias = call.Find("biasOptional"),
          .x_scale = x_scale,
          .smooth = call.Find("smoothScaleOptional"),
          .list = call.Has("groupList") ? call.Find("groupList") : nullptr,
          .out = &call.Get("out"),
          .is_turned = call.Bool("transposeWeight"),
          .is_shared = x_scale != nullptr ? x_scale->tensor->count == 1 : call.Text("xQuantMode") == "pertensor"};
}

Status DequantProductTypes(OpCall& call) {
  call.compute = call.Get("x").dtype;
  const DequantProduct product = DequantProductOf(call);
  REPRISE_RETURN_IF_ERROR(CheckInt8(call, *product.weight));
  REPRISE_RETURN_IF_ERROR(
      RefuseOperands(call, {"xOffsetOptional"}, "rows that are quantized with an offset are not supported yet"));
  if (product.scale->dtype != DType::kFloat && product.scale->dtype != DType::kInt64 &&
      product.scale->dtype != DType::kUInt64) {
    return call.InvalidOperand(*product.scale,
                               fmt::format("has {}, expected float32, or 64 bits of aclnnTransQuantParamV2",
                                           kernels::Name(product.scale->dtype)));
  }
  if (product.out->dtype == product.x->dtype) return {};
  return call.InvalidOperand(*product.out,
                             fmt::format("has {}, expected the type {} of x", kernels::Name(product.out->dtype),
                                         kernels::Name(product.x->dtype)));
}

Status DequantProductShape(OpCall& call) {
  const DequantProduct product = DequantProductOf(call);
  const std::string_view mode = call.Text("xQuantMode");
  if (!mode.empty() && mode != "pertoken" && mode != "pertensor") {
    return call.Invalid(fmt::format("xQuantMode is '{}', expected pertoken or pertensor", mode));
  }
  const bool has_groups = call.Has("groupList");
  REPRISE_RETURN_IF_ERROR(CheckGroupedRank(call, *product.x, 2));
  REPRISE_RETURN_IF_ERROR(CheckGroupedRank(call, *product.weight, has_groups ? 3 : 2));
  const int64_t m = product.x->sizes()[0];
  const int64_t k = product.x->sizes()[1];
  const std::span<const int64_t> sizes = product.weight->sizes();
  const size_t last = sizes.size() - 1;
  const int64_t n = sizes[product.is_turned ? last - 1 : last];
  if (sizes[product.is_turned ? last : last - 1] != k) {
    return call.InvalidOperand(*product.weight,
                               fmt::format("has shape {}{}, expected a depth of {} as x {}", GroupText(*product.weight),
                                           product.is_turned ? " transposed" : "", k, GroupText(*product.x)));
  }
  Dims columns;
  if (has_groups) {
    REPRISE_RETURN_IF_ERROR(CheckGroupedRank(call, *product.list, 1));
    REPRISE_RETURN_IF_ERROR(
        call.CheckShape(*product.list, sizes.first(1), [] { return "one for each matrix of weight:"; }));
    columns.push_back(sizes[0]);
  }
  columns.push_back(n);
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*product.scale, columns, [] { return "one for each column of weight,"; }));
  if (product.bias != nullptr) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*product.bias, columns, [] { return "one for each column of weight,"; }));
  }
  if (product.smooth != nullptr) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*product.smooth, {&k, 1}, [] { return "one for each column of x:"; }));
  }
  if (product.x_scale != nullptr && product.x_scale->tensor->count != 1) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*product.x_scale, {&m, 1}, [] { return "one for each row of x:"; }));
  }
  const int64_t shape[] = {m, n};
  return call.CheckShape(*product.out, shape, [] { return "the shape"; });
}

struct QuantizedRows {
  TensorRef numbers, step;  // of the workspace; step without data if the caller gives it
};

QuantizedRows AddQuantizedRows(OpCall& call, const DequantProduct& product) {
  const int64_t m = product.x->sizes()[0];
  const int64_t k = product.x->sizes()[1];
  const int64_t steps = product.is_shared ? 1 : m;
  QuantizedRows rows;
  rows.numbers = call.Temporary(DType::kInt8, product.x->sizes());
  if (product.x_scale != nullptr) {
    Launch& launch = call.AddLaunch(RunQuantizeRows);
    call.WriteTemporary(launch, rows.numbers);
    call.Read(launch, *product.x);
    call.ReadOptional(launch, product.smooth);
    TensorRef column = call.RefOf(*product.x_scale);
    column.strides[0] = column.rank == 0 ? 0 : column.strides[0];
    column.rank = 2;
    column.sizes[0] = steps;
    column.sizes[1] = 1;
    call.Read(launch, *product.x_scale, column);
    launch.units = k == 0 ? 0 : m;
    launch.grain = GrainOf(k * 8);
    return rows;
  }
  rows.step = call.Temporary(DType::kFloat, {&steps, 1});
  TensorRef extent;
  if (product.is_shared) {
    const int64_t sizes[] = {m, 2};
    extent = call.Temporary(DType::kFloat, sizes);
    Launch& find = call.AddLaunch(RunRowExtents);
    call.WriteTemporary(find, extent);
    call.Read(find, *product.x);
    call.ReadOptional(find, product.smooth);
    find.units = k == 0 ? 0 : m;
    find.grain = GrainOf(k * 4);
  }
  Launch& launch = call.AddLaunch(RunQuantizeRowsByThemselves);
  call.WriteTemporary(launch, rows.numbers);
  call.WriteTemporary(launch, rows.step);
  call.Read(launch, *product.x);
  call.ReadOptional(launch, product.smooth);
  if (product.is_shared) {
    call.ReadTemporary(launch, extent);
  } else {
    call.ReadOptional(launch, nullptr);
  }
  launch.units = k == 0 ? 0 : m;
  launch.grain = GrainOf(k * 12);
  return rows;
}

// refs: sums, x, weight.
void RunPlainSums(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MatMul(launch.Ref(1, memory), launch.refs[2], launch.compute, launch.Ref(0, memory), range, memory.scratch);
}
// refs: y, sums, scale, row scale, bias.
void RunPlainDequantize(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::DequantizeSums({.sums = launch.Ref(1, memory),
                           .scale = launch.refs[2],
                           .offset = {},
                           .row_scale = launch.Ref(3, memory),
                           .bias = launch.refs[4]},
                          launch.refs[0], range);
}

void ReadSteps(OpCall& call, Launch& launch, const DequantProduct& product, const QuantizedRows& rows) {
  if (product.x_scale != nullptr) {
    TensorRef line = call.RefOf(*product.x_scale);
    if (line.rank == 0) {
      line.rank = 1;
      line.sizes[0] = 1;
    }
    call.Read(launch, *product.x_scale, line);
  } else {
    call.ReadTemporary(launch, rows.step);
  }
}

Status LowerDequantProduct(OpCall& call) {
  const DequantProduct product = DequantProductOf(call);
  const int64_t m = product.x->sizes()[0];
  const int64_t k = product.x->sizes()[1];
  const int64_t n = product.out->sizes()[1];
  if (m == 0 || n == 0) return {};
  if (k == 0)
    return call.InvalidOperand(*product.x, fmt::format("has shape {}, expected columns", GroupText(*product.x)));
  const QuantizedRows rows = AddQuantizedRows(call, product);
  if (product.list != nullptr) {
    const int64_t groups = product.list->sizes()[0];
    const TensorRef sums = AddGroupedSums(call, {.operand = nullptr, .temporary = rows.numbers}, {product.weight, 1},
                                          product.is_turned, *product.list, groups, m, k, n);
    Launch& finish = call.AddLaunch(grouped::RunDequantizeGroups);
    call.Write(finish, *product.out);
    call.ReadTemporary(finish, sums);
    call.Read(finish, *product.list);
    ReadSteps(call, finish, product, rows);
    grouped::GroupedParams params = {};
    params.list_type = grouped::kEnds;
    params.count = groups;
    params.scale = {finish.refs.size(), 1, 2};
    call.Read(finish, *product.scale);
    if (product.bias != nullptr) {
      params.bias = {finish.refs.size(), 1, 2};
      call.Read(finish, *product.bias);
    }
    finish.state = std::make_shared<grouped::GroupedParams>(params);
    finish.units = groups;
    finish.grain = GrainOf(4 * m * n / std::max<int64_t>(1, groups));
    return {};
  }
  const TensorRef sums = call.Temporary(DType::kInt32, product.out->sizes());
  TensorRef weight = call.RefOf(*product.weight);
  if (product.is_turned) SwapMatrixDims(weight);
  Launch& launch = call.AddLaunch(RunPlainSums);
  launch.compute = DType::kInt32;
  call.WriteTemporary(launch, sums);
  call.ReadTemporary(launch, rows.numbers);
  call.Read(launch, *product.weight, weight);
  launch.units = kernels::MatMulUnitCount(rows.numbers, weight, launch.compute, sums);
  launch.grain = GrainOfProduct(m * n * k / std::max<int64_t>(1, launch.units));
  call.AddScratch(launch,
                  static_cast<uint64_t>(kernels::MatMulScratchBytes(rows.numbers, weight, launch.compute, sums)));
  Launch& finish = call.AddLaunch(RunPlainDequantize);
  call.Write(finish, *product.out);
  call.ReadTemporary(finish, sums);
  call.Read(finish, *product.scale);
  ReadSteps(call, finish, product, rows);
  call.ReadOptional(finish, product.bias);
  finish.units = m;
  finish.grain = GrainOf(4 * n);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/grouped_fused.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
