// SPDX-License-Identifier: Apache-2.0
//
// Floating numbers of 8 bits: products of them that are added, rows of groups that become such, alone and after a gated
// activation; and rotated products that are written to quantized caches.
#include "kernels/matmul.h"
#include "kernels/small_rows.h"
#include "ops/computations.h"
#include "ops/families/grouped.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::SmallFloat;
using kernels::TensorRef;

constexpr int64_t kSmallColumns = 256;  // of a work item of products in groups
constexpr int64_t kSmallCost = 24;      // of an element that is rounded
constexpr int64_t kGateCost = 24;
constexpr int64_t kExponentBlock = 2 * kernels::kSmallGroup;  // numbers of a pair of exponents

std::string SmallShape(const Operand& operand) { return ShapeText(operand.sizes()); }

int64_t CeilOf(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

bool HoldsExponents(const Operand* operand) {
  return operand != nullptr && operand->type_number == static_cast<int32_t>(SmallFloat::kFloat8E8M0);
}

// float8_e4m3fn, float8_e5m2, hifloat8.
Status CheckSmallNumbers(const OpCall& call, const Operand& operand) {
  if (kernels::IsSmallFloat(operand.type_number) && !HoldsExponents(&operand)) return {};
  return call.InvalidOperand(
      operand, fmt::format("has {}, expected float8_e4m3fn, float8_e5m2 or hifloat8", DTypeText(operand.type_number)));
}

Status CheckSmallRank(const OpCall& call, const Operand& operand, int least, int most) {
  if (operand.rank() >= least && operand.rank() <= most) return {};
  return call.InvalidOperand(
      operand, fmt::format("has shape {}, expected {} dims", SmallShape(operand),
                           least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most)));
}

void SwapSmallDims(TensorRef& ref, int a, int b) {
  std::swap(ref.sizes[a], ref.sizes[b]);
  std::swap(ref.strides[a], ref.strides[b]);
}
void SwapLastTwo(TensorRef& ref) { SwapSmallDims(ref, ref.rank - 1, ref.rank - 2); }

// ---- Products that are added: aclnnQuantBatchMatmulInplaceAdd, aclnnQuantGroupedMatmulInplaceAdd ----

struct AddedProduct {
  const Operand *x1, *x2, *scale1, *scale2, *list, *y;
  bool turns1 = false, turns2 = false;  // x1 is [k, m], x2 [n, k]
  int64_t m = 0, k = 0, n = 0;

  bool has_exponents() const { return HoldsExponents(scale2); }
};

// Whether neighbours in the first dim are nearer to each other than those in the second.
bool IsTurnedView(const Operand& operand) { return operand.tensor->strides[0] < operand.tensor->strides[1]; }

StatusOr<AddedProduct> AddedProductOf(const OpCall& call) {
  const bool has_groups = call.Has("groupList");
  AddedProduct product = {.x1 = &call.Get("x1"),
                          .x2 = &call.Get("x2"),
                          .scale1 = call.Find(has_groups ? "scale1Optional" : "x1ScaleOptional"),
                          .scale2 = call.Find(has_groups ? "scale2" : "x2Scale"),
                          .list = has_groups ? call.Find("groupList") : nullptr,
                          .y = &call.outputs[0]};
  const int most = has_groups ? 2 : kernels::kMaxRank;
  REPRISE_RETURN_IF_ERROR(CheckSmallRank(call, *product.x1, 2, most));
  REPRISE_RETURN_IF_ERROR(CheckSmallRank(call, *product.x2, 2, most));
  REPRISE_RETURN_IF_ERROR(CheckSmallRank(call, *product.y, has_groups ? 3 : 2, has_groups ? 3 : kernels::kMaxRank));
  const std::span<const int64_t> left = product.x1->sizes().last(2);
  const std::span<const int64_t> right = product.x2->sizes().last(2);
  if (has_groups) {
    // x1 lies as [k, m] and is told so, or as [m, k], a view with the strides of that.
    product.k = right[0];
    const int64_t m = product.y->sizes()[1];
    product.turns1 = left[0] == product.k && left[1] == m && (m != product.k || !IsTurnedView(*product.x1));
  } else {
    product.turns1 = call.Bool("transposeX1");
    product.turns2 = call.Bool("transposeX2");
    product.k = right[product.turns2 ? 1 : 0];
  }
  product.m = left[product.turns1 ? 1 : 0];
  product.n = right[product.turns2 ? 0 : 1];
  if (left[product.turns1 ? 0 : 1] == product.k) return product;
  return call.Invalid(fmt::format("{} cannot be multiplied: x1 has a depth of {}, x2 of {}", call.InputShapes(),
                                  left[product.turns1 ? 0 : 1], product.k),
                      has_groups ? "x1 is [m, k], x2 [k, n], yRef [groups, m, n]"
                                 : "see transposeX1 and transposeX2: x1 is [.., m, k], x2 [.., k, n]");
}

Status AddedProductTypes(OpCall& call) {
  call.compute = DType::kFloat;
  const bool has_groups = call.Has("groupList");
  for (const char* name : {"x1", "x2"}) REPRISE_RETURN_IF_ERROR(CheckSmallNumbers(call, call.Get(name)));
  const char* const names[] = {has_groups ? "scale1Optional" : "x1ScaleOptional", has_groups ? "scale2" : "x2Scale"};
  for (const char* name : names) {
    const Operand* const scale = call.Find(name);
    if (scale == nullptr || scale->type_number == 0 || HoldsExponents(scale)) continue;
    return call.InvalidOperand(*scale,
                               fmt::format("has {}, expected float32 or float8_e8m0", DTypeText(scale->type_number)));
  }
  const Operand& y = call.outputs[0];
  if (y.dtype != DType::kFloat) {
    return call.InvalidOperand(y, fmt::format("has {}, expected float32", DTypeText(y.type_number)));
  }
  const bool has_exponents = HoldsExponents(call.Find(names[1]));
  if (has_exponents == HoldsExponents(call.Find(names[0]))) return {};
  if (call.Find(names[0]) == nullptr && !has_exponents) return {};
  return call.Invalid(fmt::format("of {} and {} only one has exponents (float8_e8m0)", names[0], names[1]),
                      "scale both matrices by exponents of 32 neighbours, or by float32");
}

// Attribute groupSize: 0, or m, n and k of a scale in 16 bits each.
Status CheckGroupSize(const OpCall& call, const AddedProduct& product) {
  constexpr int64_t kOneOneThirtyTwo = (int64_t{1} << 32) + (int64_t{1} << 16) + kernels::kSmallGroup;
  const int64_t size = call.Int("groupSize");
  if (size == 0 || (size == kOneOneThirtyTwo && product.has_exponents())) return {};
  return call.Invalid(fmt::format("groupSize is {}, expected 0{}", size,
                                  product.has_exponents() ? fmt::format(" or {}", kOneOneThirtyTwo) : ""),
                      "m, n and k of what shares a scale, in 16 bits each: 1, 1 and 32 for exponents");
}

// Exponents as [blocks, lines, 2]; they may be told with the first two dims exchanged.
StatusOr<TensorRef> ExponentsOf(const OpCall& call, const Operand& scale, int64_t blocks, int64_t lines,
                                bool is_exchanged) {
  REPRISE_RETURN_IF_ERROR(CheckSmallRank(call, scale, 3, 3));
  const std::span<const int64_t> sizes = scale.sizes();
  const bool fits = sizes[0] == blocks && sizes[1] == lines && sizes[2] == 2;
  const bool fits_exchanged = sizes[1] == blocks && sizes[0] == lines && sizes[2] == 2;
  if (!fits && !fits_exchanged) {
    return call.InvalidOperand(scale,
                               fmt::format("has shape {}, expected [{}, {}, 2] or [{}, {}, 2]", SmallShape(scale),
                                           blocks, lines, lines, blocks),
                               "two exponents for each 64 numbers of the sum, for each row of x1 or column of x2");
  }
  TensorRef ref = call.RefOf(scale);
  if (fits_exchanged && (is_exchanged || !fits)) SwapSmallDims(ref, 0, 1);
  return ref;
}

// Numbers, one for each group or column or one for all, as a tensor that broadcasts to y.
StatusOr<TensorRef> NumbersAlong(const OpCall& call, const Operand& scale, int y_rank,
                                 std::initializer_list<std::pair<int, int64_t>> lines) {
  TensorRef out = call.RefOf(scale);
  const TensorRef given = out;
  out.rank = y_rank;
  std::fill_n(out.sizes, y_rank, 1);
  std::fill_n(out.strides, y_rank, 0);
  auto line = lines.begin();
  bool fits = true;
  for (int d = 0; d < given.rank && fits; ++d) {
    if (given.sizes[d] == 1) continue;
    while (line != lines.end() && line->second != given.sizes[d]) ++line;
    fits = line != lines.end();
    if (!fits) break;
    out.sizes[line->first] = given.sizes[d];
    out.strides[line->first] = given.strides[d];
    ++line;
  }
  if (fits) return out;
  std::string wanted;
  for (const auto& [dim, size] : lines) wanted.append(wanted.empty() ? "" : ", ").append(fmt::format("{}", size));
  return call.InvalidOperand(scale,
                             fmt::format("has shape {}, expected [{}] or one number", SmallShape(scale), wanted));
}

struct AddedScales {
  TensorRef column, row;  // that broadcast to y; or without data
  TensorRef exponents1, exponents2;
};

StatusOr<AddedScales> AddedScalesOf(const OpCall& call, const AddedProduct& product) {
  AddedScales scales;
  const int rank = product.y->rank();
  if (product.has_exponents()) {
    const int64_t groups = product.list == nullptr ? 0 : product.list->sizes()[0];
    const int64_t blocks =
        product.list == nullptr ? CeilOf(product.k, kExponentBlock) : product.k / kExponentBlock + groups;
    const auto is_exchanged = [&](const Operand& scale, bool by_product) {
      return product.list == nullptr ? by_product : scale.rank() == 3 && IsTurnedView(scale);
    };
    REPRISE_ASSIGN_OR_RETURN(scales.exponents1, ExponentsOf(call, *product.scale1, blocks, product.m,
                                                            is_exchanged(*product.scale1, !product.turns1)));
    REPRISE_ASSIGN_OR_RETURN(scales.exponents2, ExponentsOf(call, *product.scale2, blocks, product.n,
                                                            is_exchanged(*product.scale2, product.turns2)));
    return scales;
  }
  if (product.list != nullptr) {
    const int64_t groups = product.list->sizes()[0];
    REPRISE_ASSIGN_OR_RETURN(scales.column,
                             NumbersAlong(call, *product.scale2, rank, {{0, groups}, {rank - 1, product.n}}));
    if (product.scale1 == nullptr) return scales;
    REPRISE_ASSIGN_OR_RETURN(scales.row, NumbersAlong(call, *product.scale1, rank, {{0, groups}}));
    return scales;
  }
  REPRISE_ASSIGN_OR_RETURN(scales.column, NumbersAlong(call, *product.scale2, rank, {{rank - 1, product.n}}));
  if (product.scale1 == nullptr) return scales;
  REPRISE_ASSIGN_OR_RETURN(scales.row, NumbersAlong(call, *product.scale1, rank, {{rank - 2, product.m}}));
  return scales;
}

Status AddedProductShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const AddedProduct product, AddedProductOf(call));
  if (product.has_exponents() && (product.x1->rank() != 2 || product.x2->rank() != 2)) {
    return call.InvalidOperand(product.x1->rank() != 2 ? *product.x1 : *product.x2,
                               "is no matrix, as numbers with exponents must be", "multiply matrix by matrix");
  }
  Dims shape;
  if (product.list == nullptr) {
    const std::span<const int64_t> left = product.x1->sizes();
    const std::span<const int64_t> right = product.x2->sizes();
    if (!Broadcast(left.first(left.size() - 2), right.first(right.size() - 2), shape)) {
      return call.Invalid(fmt::format("the batch dims of {} do not broadcast", call.InputShapes()));
    }
  } else {
    if (call.Int("groupListType") != grouped::kEnds && call.Int("groupListType") != grouped::kCounts) {
      return call.Invalid(fmt::format("groupListType is {}, expected 0 or 1", call.Int("groupListType")),
                          "0: ends, 1: counts");
    }
    REPRISE_RETURN_IF_ERROR(CheckSmallRank(call, *product.list, 1, 1));
    shape.push_back(product.list->sizes()[0]);
  }
  shape.push_back(product.m);
  shape.push_back(product.n);
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*product.y, shape, [] { return "that of the products,"; }));
  REPRISE_RETURN_IF_ERROR(CheckGroupSize(call, product));
  return AddedScalesOf(call, product).status();
}

// refs: out, x, exponents, groups; ints: type, holds ends.
void RunWidenSmall(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::WidenSmall({.x = launch.refs[1],
                       .exponents = launch.refs[2],
                       .groups = launch.refs[3],
                       .holds_ends = launch.ints[1] != 0,
                       .type = static_cast<SmallFloat>(launch.ints[0]),
                       .out = launch.Ref(0, memory)},
                      range);
}
// refs: product, a, b.
void RunWideProduct(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MatMul(launch.Ref(1, memory), launch.Ref(2, memory), launch.compute, launch.Ref(0, memory), range,
                  memory.scratch);
}
// refs: product [groups, m, n], a [m, k], b [k, n], groups; state: GroupedParams.
void RunWideGroups(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& params = launch.State<grouped::GroupedParams>();
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    TensorRef product = launch.Ref(0, memory);
    TensorRef a = launch.Ref(1, memory);
    TensorRef b = launch.Ref(2, memory);
    const grouped::GroupRange group = grouped::GroupAt(launch.refs[3], params, unit % params.count, a.sizes[1]);
    if (group.begin == group.end) continue;  // nobody reads its product
    const int64_t n0 = unit / params.count * params.columns;
    const int64_t columns = std::min(params.columns, b.sizes[1] - n0);
    product = grouped::Slice(product, group.e, 3);
    grouped::Narrow(a, 1, group.begin, group.end - group.begin);
    grouped::Narrow(b, 0, group.begin, group.end - group.begin);
    grouped::Narrow(b, 1, n0, columns);
    grouped::Narrow(product, 1, n0, columns);
    kernels::MatMul(a, b, launch.compute, product, {0, kernels::MatMulUnitCount(a, b, launch.compute, product)},
                    memory.scratch);
  }
}
// refs: y, product, column scale, row scale, groups; ints: holds ends, depth.
void RunAddScaled(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::AddScaledProduct({.product = launch.Ref(1, memory),
                             .column_scale = launch.refs[2],
                             .row_scale = launch.refs[3],
                             .groups = launch.refs[4],
                             .holds_ends = launch.ints[0] != 0,
                             .depth = launch.ints[1],
                             .y = launch.refs[0]},
                            range);
}

void ReadView(OpCall& call, Launch& launch, const Operand* operand, const TensorRef& view) {
  if (operand == nullptr || view.data == nullptr) {
    call.ReadOptional(launch, nullptr);
  } else {
    call.Read(launch, *operand, view);
  }
}

// An operand as float32, times its exponents where it has some.
TensorRef AddWidened(OpCall& call, const Operand& x, TensorRef view, const Operand* scale, const TensorRef& exponents,
                     const Operand* list, bool holds_ends) {
  const TensorRef out = call.Temporary(DType::kFloat, {view.sizes, static_cast<size_t>(view.rank)});
  Launch& launch = call.AddLaunch(RunWidenSmall);
  launch.ints.push_back(x.type_number);
  launch.ints.push_back(holds_ends ? 1 : 0);
  call.WriteTemporary(launch, out);
  call.Read(launch, x, view);
  ReadView(call, launch, scale, exponents);
  call.ReadOptional(launch, exponents.data == nullptr ? nullptr : list);
  const int64_t width = view.sizes[view.rank - 1];
  launch.units = width == 0 ? 0 : x.tensor->count / width;
  launch.grain = GrainOf(width * 4);
  return out;
}

Status LowerAddedProduct(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const AddedProduct product, AddedProductOf(call));
  REPRISE_ASSIGN_OR_RETURN(const AddedScales scales, AddedScalesOf(call, product));
  if (product.y->tensor->count == 0 || product.k == 0) return {};
  const bool holds_ends = product.list == nullptr || call.Int("groupListType") == grouped::kEnds;
  // Exponents go along k: x1 is seen as [k, m] with them.
  TensorRef a = call.RefOf(*product.x1);
  bool is_turned = product.turns1;
  if (product.has_exponents() && !is_turned) {
    SwapLastTwo(a);
    is_turned = true;
  }
  a = AddWidened(call, *product.x1, a, product.scale1, scales.exponents1, product.list, holds_ends);
  if (is_turned) SwapLastTwo(a);
  TensorRef b = call.RefOf(*product.x2);
  is_turned = product.turns2;
  if (product.has_exponents() && is_turned) {
    SwapLastTwo(b);
    is_turned = false;
  }
  b = AddWidened(call, *product.x2, b, product.scale2, scales.exponents2, product.list, holds_ends);
  if (is_turned) SwapLastTwo(b);

  const TensorRef sums = call.Temporary(DType::kFloat, product.y->sizes());
  Launch& launch = call.AddLaunch(product.list == nullptr ? RunWideProduct : RunWideGroups);
  call.WriteTemporary(launch, sums);
  call.ReadTemporary(launch, a);
  call.ReadTemporary(launch, b);
  const int64_t multiply_adds = product.y->tensor->count * product.k;
  if (product.list == nullptr) {
    launch.units = kernels::MatMulUnitCount(a, b, launch.compute, sums);
    launch.grain = GrainOfProduct(multiply_adds / std::max<int64_t>(1, launch.units));
    call.AddScratch(launch, static_cast<uint64_t>(kernels::MatMulScratchBytes(a, b, launch.compute, sums)));
  } else {
    call.Read(launch, *product.list);
    grouped::GroupedParams params = {};
    params.list_type = call.Int("groupListType");
    params.count = product.list->sizes()[0];
    params.columns = kSmallColumns;
    launch.state = std::make_shared<grouped::GroupedParams>(params);
    launch.units = CeilOf(product.n, kSmallColumns) * params.count;
    launch.grain = GrainOfProduct(product.m * product.n * product.k / launch.units);
    call.AddScratch(launch, static_cast<uint64_t>(kernels::kMostMatMulScratchBytes));
  }
  Launch& finish = call.AddLaunch(RunAddScaled);
  finish.ints.push_back(holds_ends ? 1 : 0);
  finish.ints.push_back(product.k);
  call.Write(finish, *product.y);
  call.ReadTemporary(finish, sums);
  ReadView(call, finish, product.scale2, scales.column);
  ReadView(call, finish, product.scale1, scales.row);
  call.ReadOptional(finish, product.list);
  finish.units = product.y->tensor->count / product.n;
  finish.grain = GrainOf(product.n * 4);
  return {};
}

// ---- Rows that become such numbers: aclnnGroupedDynamicBlockQuant, V2 ----

// The type of y, which an attribute names, too.
Status CheckSmallTarget(const OpCall& call, const Operand& y) {
  REPRISE_RETURN_IF_ERROR(CheckSmallNumbers(call, y));
  if (call.Int("dstType") == y.type_number) return {};
  return call.Invalid(fmt::format("dstType is {}, but {} has {}", DTypeText(static_cast<int32_t>(call.Int("dstType"))),
                                  call.NameOf(y), DTypeText(y.type_number)),
                      "pass the number of the output's type: 34 hifloat8, 35 float8_e5m2, 36 float8_e4m3fn");
}

SmallFloat SmallTypeOf(const Operand& operand) { return static_cast<SmallFloat>(operand.type_number); }

// Attribute dstTypeMax; 0 stands for the greatest number of the type.
float TopOf(const OpCall& call, const Operand& y) {
  const double top = call.Has("dstTypeMax") ? call.Real("dstTypeMax") : 0;
  return top > 0 ? static_cast<float>(top) : kernels::GreatestSmall(SmallTypeOf(y));
}

Status CheckNotNegative(const OpCall& call, const char* name) {
  if (!call.Has(name) || call.Real(name) >= 0) return {};
  return call.Invalid(fmt::format("{} is {}, expected at least 0", name, call.Real(name)));
}

// 'rint' for float8, 'round' for hifloat8; `takes_rint`: hifloat8 takes 'rint', too.
Status CheckRounding(const OpCall& call, const char* name, const Operand& y, bool takes_rint) {
  const std::string_view rounding = call.Text(name);
  const bool is_hifloat = y.type_number == static_cast<int32_t>(SmallFloat::kHiFloat8);
  if (rounding.empty() || rounding == (is_hifloat ? "round" : "rint")) return {};
  if (is_hifloat && takes_rint && rounding == "rint") return {};
  return call.Invalid(
      fmt::format("{} is '{}', expected {}", name, rounding, is_hifloat ? "round for hifloat8" : "rint for float8"),
      rounding == "hybrid" ? "'hybrid' rounds some numbers at random, and no rule for them is published" : "");
}

Status GroupedBlockTypes(OpCall& call) {
  call.compute = DType::kFloat;
  return CheckSmallTarget(call, call.Get("yOut"));
}

Status GroupedBlockShape(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& list = call.Get("groupList");
  const Operand& y = call.Get("yOut");
  REPRISE_RETURN_IF_ERROR(CheckRounding(call, "roundModeOptional", y, true));
  REPRISE_RETURN_IF_ERROR(CheckSmallRank(call, x, 2, 3));
  REPRISE_RETURN_IF_ERROR(CheckSmallRank(call, list, 1, 1));
  if (call.Int("groupListType") != 0) {
    return call.Invalid(fmt::format("groupListType is {}, expected 0", call.Int("groupListType")),
                        "0: groupList tells where groups end");
  }
  const int64_t rows = call.Int("rowBlockSize");
  const int64_t columns = call.Int("colBlockSize");
  if (rows < 1 || columns < 1) {
    return call.Invalid(fmt::format("rowBlockSize and colBlockSize are {} and {}, expected at least 1", rows, columns));
  }
  for (const char* name : {"minScale", "dstTypeMax"}) REPRISE_RETURN_IF_ERROR(CheckNotNegative(call, name));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(y, x.sizes(), [] { return "the shape of x,"; }));
  Dims shape(x.sizes().data(), x.sizes().size());
  int64_t& down = shape[shape.size() - 2];
  down = down / rows + list.sizes()[0];
  shape[shape.size() - 1] = CeilOf(x.sizes().back(), columns);
  return call.CheckShape(call.Get("scaleOut"), shape, [] { return "one for each block that groups may have:"; });
}

// refs: y, step, x, ends; state: GroupedBlocks without operands.
void RunGroupedBlocks(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::GroupedBlocks operands = launch.State<kernels::GroupedBlocks>();
  operands.y = launch.refs[0];
  operands.step = launch.refs[1];
  operands.x = launch.refs[2];
  operands.ends = launch.refs[3];
  kernels::QuantizeGroupedBlocks(operands, range);
}

Status LowerGroupedBlocks(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& y = call.Get("yOut");
  const Operand& step = call.Get("scaleOut");
  auto settings = std::make_shared<kernels::GroupedBlocks>();
  settings->type = SmallTypeOf(y);
  settings->rows = call.Int("rowBlockSize");
  settings->columns = call.Int("colBlockSize");
  settings->top = TopOf(call, y);
  if (call.Real("minScale") > 0) settings->most = static_cast<float>(1 / call.Real("minScale"));
  Launch& launch = call.AddLaunch(RunGroupedBlocks);
  call.Write(launch, y);
  call.Write(launch, step);
  call.Read(launch, x);
  call.Read(launch, call.Get("groupList"));
  const std::span<const int64_t> sizes = step.sizes();
  const int64_t matrices = sizes.size() == 3 ? sizes[0] : 1;
  launch.units = sizes.back() == 0 ? 0 : matrices * (sizes[sizes.size() - 2] + 1);
  launch.grain = GrainOf(std::min(settings->rows, x.sizes()[x.sizes().size() - 2]) * x.sizes().back() * kSmallCost);
  launch.state = std::move(settings);
  return {};
}

// ---- Scaled, with what was greatest: aclnnQuantMax, aclnnGroupedQuantMax ----

Status QuantMaxTypes(OpCall& call) {
  call.compute = DType::kFloat;
  return CheckSmallTarget(call, call.Get("y"));
}

Status QuantMaxShape(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& y = call.Get("y");
  const Operand& scale = call.Get("scale");
  const Operand* const list = call.Find("groupList");
  REPRISE_RETURN_IF_ERROR(CheckRounding(call, "roundMode", y, false));
  REPRISE_RETURN_IF_ERROR(CheckSmallRank(call, x, list != nullptr ? 2 : 1, 8));
  if (list != nullptr) REPRISE_RETURN_IF_ERROR(CheckSmallRank(call, *list, 1, 1));
  Dims groups;
  groups.push_back(list != nullptr ? list->sizes()[0] : 1);
  REPRISE_RETURN_IF_ERROR(call.CheckShape(y, x.sizes(), [] { return "the shape of x,"; }));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(scale, groups, [] { return "one number for each group:"; }));
  return call.CheckShape(call.Get("amax"), groups, [] { return "one number for each group:"; });
}

// refs: y, extent, x, scale, ends; ints: the type of y.
void RunQuantizeScaled(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ScaledSmall operands;
  operands.y = launch.refs[0];
  operands.extent = launch.Ref(1, memory);
  operands.x = launch.refs[2];
  operands.scale = launch.refs[3];
  if (launch.HasOperand(4)) operands.ends = launch.refs[4];
  operands.type = static_cast<SmallFloat>(launch.ints[0]);
  kernels::QuantizeScaled(operands, range);
}

// refs: amax, extent, ends; ints: the size of the first dim.
void RunGroupExtents(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const TensorRef ends = launch.HasOperand(2) ? launch.refs[2] : TensorRef();
  kernels::FindGroupExtents(launch.Ref(1, memory), ends, launch.ints[0], launch.refs[0], range);
}

Status LowerQuantMax(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& y = call.Get("y");
  const Operand& amax = call.Get("amax");
  const Operand* const list = call.Find("groupList");
  const int64_t rows = x.sizes().back() == 0 ? 0 : x.tensor->count / x.sizes().back();
  const TensorRef extent = call.Temporary(DType::kFloat, std::array{rows});
  Launch& quantize = call.AddLaunch(RunQuantizeScaled);
  call.Write(quantize, y);
  call.WriteTemporary(quantize, extent);
  call.Read(quantize, x);
  call.Read(quantize, call.Get("scale"));
  call.ReadOptional(quantize, list);
  quantize.ints.push_back(y.type_number);
  quantize.units = rows;
  quantize.grain = GrainOf(x.sizes().back() * kSmallCost);
  Launch& find = call.AddLaunch(RunGroupExtents);
  call.Write(find, amax);
  call.ReadTemporary(find, extent);
  call.ReadOptional(find, list);
  find.ints.push_back(rows == 0 ? 0 : x.sizes()[0]);
  find.units = amax.tensor->count;
  find.grain = GrainOf(rows);
  return {};
}

// ---- After a gated activation: aclnnSwigluGroupQuant ----

enum QuantMode : int64_t { kOfBlocks = 0, kOfExponents = 1, kOfGivenSteps = 2, kOfGroups = 3 };

int64_t RowsOfLast(const Operand& operand) {
  int64_t rows = 1;
  for (const int64_t size : operand.sizes().first(operand.sizes().size() - 1)) rows *= size;
  return rows;
}

// x [.., 2 n] and what has a row or a number for each of its rows.
Status CheckGatedRows(OpCall& call, const Operand& x) {
  REPRISE_RETURN_IF_ERROR(CheckSmallRank(call, x, 1, kernels::kMaxRank));
  if (x.sizes().back() % 2 != 0) {
    return call.InvalidOperand(x, fmt::format("has shape {}, expected an even last dim", SmallShape(x)));
  }
  if (const Operand* weight = call.Find("weightOptional"); weight != nullptr) {
    if (weight->tensor->count != RowsOfLast(x)) {
      return call.InvalidOperand(*weight, fmt::format("has shape {}, expected one number for each of {} rows of x",
                                                      SmallShape(*weight), RowsOfLast(x)));
    }
  }
  const Operand* const groups = call.Find("groupIndexOptional");
  return groups == nullptr ? Status() : CheckSmallRank(call, *groups, 1, 1);
}

bool IsWanted(const Operand* output) { return output != nullptr && output->tensor->count != 0; }

Status GroupedSwigluTypes(OpCall& call) {
  call.compute = DType::kFloat;
  const Operand& x = call.Get("x");
  const Operand& y = call.Get("yOut");
  const Operand* const step = call.Find("yScaleOut");
  const int64_t mode = call.Int("quantMode");
  if (mode < kOfBlocks || mode > kOfGroups) {
    return call.Invalid(fmt::format("quantMode is {}, expected a value from 0 to 3", mode),
                        "0: blocks of 128, 1: exponents of 32 neighbours, 2: steps that are given, 3: by groups");
  }
  REPRISE_RETURN_IF_ERROR(CheckSmallTarget(call, y));
  const bool is_hifloat = y.type_number == static_cast<int32_t>(SmallFloat::kHiFloat8);
  if (is_hifloat != (mode >= kOfGivenSteps)) {
    return call.InvalidOperand(y, fmt::format("has {}, but quantMode is {}", DTypeText(y.type_number), mode),
                               "modes 0 and 1 give float8_e4m3fn or float8_e5m2, 2 and 3 hifloat8");
  }
  if (IsWanted(step)) {
    const int32_t wanted = mode == kOfExponents ? static_cast<int32_t>(SmallFloat::kFloat8E8M0) : 0;
    if (step->type_number != wanted) {
      return call.InvalidOperand(*step,
                                 fmt::format("has {}, expected {}", DTypeText(step->type_number), DTypeText(wanted)));
    }
  }
  const Operand* const origin = call.Find("yOriginOut");
  if (!call.Bool("outputOrigin") || origin == nullptr || origin->type_number == x.type_number) return {};
  return call.InvalidOperand(*origin, fmt::format("has {}, expected the type {} of x", DTypeText(origin->type_number),
                                                  DTypeText(x.type_number)));
}

Status MissingResult(const OpCall& call, std::string_view name, std::string_view why) {
  return Error(kOperatorArgumentNull, fmt::format("{}: {} is null, but {}", call.op.name, name, why))
      .Hint("pass an aclTensor for it");
}

Status GroupedSwigluShape(OpCall& call) {
  const Operand& x = call.Get("x");
  const int64_t mode = call.Int("quantMode");
  REPRISE_RETURN_IF_ERROR(CheckGatedRows(call, x));
  const int64_t n = x.sizes().back() / 2;
  const int64_t block = call.Int("blockSize");
  const int64_t own = mode == kOfBlocks ? kernels::kSmallBlock : mode == kOfExponents ? kernels::kSmallGroup : 0;
  if (block != 0 && block != own) {
    return call.Invalid(fmt::format("blockSize is {}, expected 0{} for quantMode {}", block,
                                    own == 0 ? "" : fmt::format(" or {}", own), mode));
  }
  Dims shape(x.sizes().data(), x.sizes().size());
  shape[shape.size() - 1] = n;
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("yOut"), shape, [] { return "half of x,"; }));
  const Operand* const origin = call.Find("yOriginOut");
  if (call.Bool("outputOrigin")) {
    if (origin == nullptr) return MissingResult(call, "yOriginOut", "outputOrigin is true");
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*origin, shape, [] { return "half of x,"; }));
  }
  const Operand* const groups = call.Find("groupIndexOptional");
  const int64_t count = groups == nullptr ? 1 : groups->sizes()[0];
  const Operand* const step = call.Find("yScaleOut");
  if (mode == kOfGivenSteps) {
    const Operand* const given = call.Find("scaleOptional");
    if (given == nullptr) {
      return call.Invalid("scaleOptional is null, but quantMode is 2", "pass the step of each group, or one");
    }
    if (given->tensor->count != 1 && given->tensor->count != count) {
      return call.InvalidOperand(*given, fmt::format("has shape {}, expected [{}] or [1]", SmallShape(*given), count));
    }
    if (!IsWanted(step)) return {};
    return call.InvalidOperand(
        *step, fmt::format("has shape {}, expected no elements: quantMode 2 finds no steps", SmallShape(*step)));
  }
  if (step == nullptr) return MissingResult(call, "yScaleOut", fmt::format("quantMode is {}", mode));
  if (mode == kOfGroups) return call.CheckShape(*step, {&count, 1}, [] { return "one for each group,"; });
  shape[shape.size() - 1] = CeilOf(n, mode == kOfBlocks ? kernels::kSmallBlock : kExponentBlock);
  if (mode == kOfExponents) shape.push_back(2);
  return call.CheckShape(*step, shape, [] { return "one for each block,"; });
}

// refs: y, step, origin, x, weight, counts, given; state: SmallSwiglu without operands.
void RunGroupedSwigluQuant(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::SmallSwiglu operands = launch.State<kernels::SmallSwiglu>();
  operands.y = launch.refs[0];
  operands.step = launch.refs[1];
  operands.origin = launch.refs[2];
  operands.x = launch.refs[3];
  operands.weight = launch.refs[4];
  operands.counts = launch.refs[5];
  operands.given = launch.refs[6];
  kernels::QuantizeSwiglu(operands, range, memory.scratch);
}
// refs: extent, x, weight; state: SmallSwiglu without operands.
void RunSwigluExtents(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::SmallSwiglu operands = launch.State<kernels::SmallSwiglu>();
  operands.x = launch.refs[1];
  operands.weight = launch.refs[2];
  kernels::FindSwigluExtents(operands, launch.Ref(0, memory), range, memory.scratch);
}
// refs: step, extent, counts; state: SmallSwiglu without operands.
void RunGroupSteps(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::FindGroupSteps(launch.Ref(1, memory), launch.refs[2], launch.State<kernels::SmallSwiglu>().top,
                          launch.refs[0], range);
}

Status LowerGroupedSwigluQuant(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& y = call.Get("yOut");
  const Operand* const weight = call.Find("weightOptional");
  const Operand* const counts = call.Find("groupIndexOptional");
  const Operand* const step = call.Find("yScaleOut");
  const int64_t mode = call.Int("quantMode");
  const int64_t n = x.sizes().back() / 2;
  const int64_t rows = RowsOfLast(x);
  auto settings = std::make_shared<kernels::SmallSwiglu>();
  settings->type = SmallTypeOf(y);
  settings->limit = static_cast<float>(call.Real("clampLimit"));
  settings->rounds_up = call.Bool("roundScale");
  switch (mode) {
    case kOfBlocks:
      settings->mode = kernels::SmallSwiglu::Mode::kBlocks;
      settings->top = kernels::GreatestSmall(settings->type);
      break;
    case kOfExponents:
      settings->mode = kernels::SmallSwiglu::Mode::kExponents;
      settings->top = settings->type == SmallFloat::kFloat8E4M3 ? 8 : 15;  // exponent of the greatest number
      break;
    default:
      settings->mode = kernels::SmallSwiglu::Mode::kGiven;
      settings->top = TopOf(call, y);
      break;
  }
  const auto scratch = static_cast<uint64_t>(kernels::SmallSwigluScratchBytes(n));
  const int64_t units = n == 0 ? 0 : rows;
  if (mode == kOfGroups) {
    const TensorRef extent = call.Temporary(DType::kFloat, {&rows, 1});
    Launch& find = call.AddLaunch(RunSwigluExtents);
    call.WriteTemporary(find, extent);
    call.Read(find, x);
    call.ReadOptional(find, weight);
    find.state = settings;
    find.units = units;
    find.grain = GrainOf(n * kGateCost);
    call.AddScratch(find, scratch);
    Launch& divide = call.AddLaunch(RunGroupSteps);
    call.Write(divide, *step);
    call.ReadTemporary(divide, extent);
    call.ReadOptional(divide, counts);
    divide.state = settings;
    divide.units = n == 0 ? 0 : step->tensor->count;
    divide.grain = GrainOf(4 * rows);
  }
  Launch& launch = call.AddLaunch(RunGroupedSwigluQuant);
  call.Write(launch, y);
  call.WriteOptional(launch, mode < kOfGivenSteps ? step : nullptr);
  call.WriteOptional(launch, call.Bool("outputOrigin") ? call.Find("yOriginOut") : nullptr);
  call.Read(launch, x);
  call.ReadOptional(launch, weight);
  call.ReadOptional(launch, counts);
  call.ReadOptional(launch, mode == kOfGroups ? step : mode == kOfGivenSteps ? call.Find("scaleOptional") : nullptr);
  launch.state = std::move(settings);
  launch.units = units;
  launch.grain = GrainOf(n * (kGateCost + kSmallCost));
  call.AddScratch(launch, scratch);
  return {};
}

// ---- Its gradient: aclnnSwigluGroupQuantGrad ----

Status GroupedSwigluGradTypes(OpCall& call) {
  call.compute = DType::kFloat;
  const Operand& x = call.Get("x");
  for (const char* name : {"gradY", "yOriginOptional", "gradXOut"}) {
    const Operand* const operand = call.Find(name);
    if (operand == nullptr || operand->dtype == x.dtype || operand->tensor->count == 0) continue;
    return call.InvalidOperand(*operand, fmt::format("has {}, expected the type {} of x",
                                                     DTypeText(operand->type_number), DTypeText(x.type_number)));
  }
  return {};
}

Status GroupedSwigluGradShape(OpCall& call) {
  const Operand& x = call.Get("x");
  REPRISE_RETURN_IF_ERROR(CheckGatedRows(call, x));
  Dims shape(x.sizes().data(), x.sizes().size());
  shape[shape.size() - 1] /= 2;
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("gradY"), shape, [] { return "half of x,"; }));
  if (const Operand* origin = call.Find("yOriginOptional"); IsWanted(origin)) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*origin, shape, [] { return "half of x,"; }));
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("gradXOut"), x.sizes(), [] { return "the shape of x,"; }));
  const Operand* const weight = call.Find("weightOptional");
  const Operand* const grad_weight = call.Find("gradWeightOutOptional");
  if (weight == nullptr) {
    if (!IsWanted(grad_weight)) return {};
    return call.InvalidOperand(*grad_weight,
                               fmt::format("has shape {}, but weightOptional is null", SmallShape(*grad_weight)),
                               "pass null, or a tensor without elements");
  }
  if (grad_weight == nullptr || grad_weight->tensor->count == weight->tensor->count) return {};
  return call.InvalidOperand(*grad_weight, fmt::format("has shape {}, expected that of weightOptional {}",
                                                       SmallShape(*grad_weight), SmallShape(*weight)));
}

// refs: grad x, grad weight, grad, x, weight, origin, counts; scalars: limit.
void RunSwigluGradient(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::SwigluGradient({.grad = launch.refs[2],
                           .x = launch.refs[3],
                           .weight = launch.refs[4],
                           .origin = launch.refs[5],
                           .counts = launch.refs[6],
                           .grad_x = launch.refs[0],
                           .grad_weight = launch.refs[1],
                           .limit = launch.scalars[0].As<float>()},
                          range, memory.scratch);
}

Status LowerGroupedSwigluGrad(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand* const weight = call.Find("weightOptional");
  const Operand* const origin = call.Find("yOriginOptional");
  const int64_t n = x.sizes().back() / 2;
  Launch& launch = call.AddLaunch(RunSwigluGradient);
  launch.scalars.push_back(kernels::Scalar::Of(static_cast<float>(call.Real("clampLimit"))));
  call.Write(launch, call.Get("gradXOut"));
  call.WriteOptional(launch, weight == nullptr ? nullptr : call.Find("gradWeightOutOptional"));
  call.Read(launch, call.Get("gradY"));
  call.Read(launch, x);
  call.ReadOptional(launch, weight);
  call.ReadOptional(launch, IsWanted(origin) ? origin : nullptr);
  call.ReadOptional(launch, call.Find("groupIndexOptional"));
  launch.units = n == 0 ? 0 : RowsOfLast(x);
  launch.grain = GrainOf(n * 2 * kGateCost);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::SmallSwigluGradientScratchBytes(n)));
  return {};
}

// ---- Turned into quantized caches: aclnnDequantRopeQuantKvcache ----

struct CacheCall {
  const Operand *x, *cos, *sin, *slots, *weight_scale, *row_scale, *bias;
  const Operand* cache[2];
  const Operand* scale[2];
  const Operand* offset[2];
  const Operand *q, *k, *v;
  bool is_paged = false, keeps = false;
  int64_t tokens = 0, per_sequence = 0, width = 0, q_heads = 0, kv_heads = 0, size = 0;
};

CacheCall CacheCallOf(const OpCall& call) {
  return {.x = &call.Get("x"),
          .cos = &call.Get("cos"),
          .sin = &call.Get("sin"),
          .slots = &call.Get("indices"),
          .weight_scale = call.Find("weightScaleOptional"),
          .row_scale = call.Find("activationScaleOptional"),
          .bias = call.Find("biasOptional"),
          .cache = {&call.Get("kCacheRef"), &call.Get("vCacheRef")},
          .scale = {&call.Get("scaleK"), &call.Get("scaleV")},
          .offset = {call.Find("offsetKOptional"), call.Find("offsetVOptional")},
          .q = &call.Get("qOut"),
          .k = call.Find("kOut"),
          .v = call.Find("vOut"),
          .is_paged = call.Text("cacheModeOptional") == "page",
          .keeps = call.Bool("kvOutput")};
}

Status CacheCallTypes(OpCall& call) {
  call.compute = DType::kFloat;
  const CacheCall o = CacheCallOf(call);
  const bool is_integer = o.x->dtype == DType::kInt32;
  const bool is_half = o.x->dtype == DType::kFloat16 || o.x->dtype == DType::kBFloat16;
  if (!is_integer && !is_half && o.x->dtype != DType::kFloat) {
    return call.InvalidOperand(
        *o.x, fmt::format("has {}, expected int32, float16, bfloat16 or float32", DTypeText(o.x->type_number)));
  }
  if (is_integer && o.weight_scale == nullptr) {
    return call.Invalid("weightScaleOptional is null, but x has int32", "pass what the sums are scaled by");
  }
  const Operand* const only_for_integers[] = {o.weight_scale, o.row_scale, o.bias};
  for (const Operand* operand : only_for_integers) {
    if (is_integer || !IsWanted(operand)) continue;
    return call.InvalidOperand(
        *operand, fmt::format("is given, but x has {}, which needs no scaling", DTypeText(o.x->type_number)),
        "pass null, or x as int32");
  }
  for (const Operand* cache : o.cache) {
    if (cache->dtype == DType::kInt8) continue;
    return call.InvalidOperand(*cache, fmt::format("has {}, expected int8", DTypeText(cache->type_number)));
  }
  if (o.sin->dtype != o.cos->dtype) {
    return call.InvalidOperand(*o.sin, fmt::format("has {}, expected the type {} of cos", DTypeText(o.sin->type_number),
                                                   DTypeText(o.cos->type_number)));
  }
  const Operand* const results[] = {o.q, o.keeps ? o.k : nullptr, o.keeps ? o.v : nullptr};
  for (const Operand* result : results) {
    if (result == nullptr || result->dtype == o.cos->dtype) continue;
    return call.InvalidOperand(*result, fmt::format("has {}, expected the type {} of cos",
                                                    DTypeText(result->type_number), DTypeText(o.cos->type_number)));
  }
  return {};
}

Status CheckTextOf(const OpCall& call, const char* name, std::string_view known, std::string_view other = {}) {
  const std::string_view text = call.Text(name);
  if (text.empty() || text == known || (!other.empty() && text == other)) return {};
  return call.Invalid(fmt::format("{} is '{}', expected {}{}", name, text, known,
                                  other.empty() ? std::string() : fmt::format(" or {}", other)));
}

// Scale or offset as [heads, size], sizes 1 where a number counts for all.
StatusOr<TensorRef> HeadNumbers(const OpCall& call, const Operand& operand, int64_t heads, int64_t size) {
  TensorRef ref = call.RefOf(operand);
  TensorRef out = ref;
  out.rank = 2;
  std::fill_n(out.sizes, 2, 1);
  std::fill_n(out.strides, 2, 0);
  const bool is_flat = ref.rank == 1 && ref.sizes[0] == heads * size && heads != 1 && size != 1;
  if (is_flat) {
    out.sizes[0] = heads;
    out.sizes[1] = size;
    out.strides[0] = size * ref.strides[0];
    out.strides[1] = ref.strides[0];
    return out;
  }
  bool fits = ref.rank <= 2;
  for (int back = 1; fits && back <= ref.rank; ++back) {
    const int64_t given = ref.sizes[ref.rank - back];
    fits = given == 1 || given == (back == 1 ? size : heads);
    if (given == 1) continue;
    out.sizes[2 - back] = given;
    out.strides[2 - back] = ref.strides[ref.rank - back];
  }
  if (fits) return out;
  return call.InvalidOperand(
      operand, fmt::format("has shape {}, expected [{}], [{}, {}] or [1]", SmallShape(operand), size, heads, size));
}

// Sizes of the call.
Status MeasureCaches(const OpCall& call, CacheCall& o) {
  REPRISE_RETURN_IF_ERROR(CheckSmallRank(call, *o.x, 2, 3));
  const std::span<const int64_t> splits = call.Ints("sizeSplits");
  for (const Operand* cache : o.cache) REPRISE_RETURN_IF_ERROR(CheckSmallRank(call, *cache, 4, 4));
  o.width = o.x->sizes().back();
  o.kv_heads = o.cache[0]->sizes()[2];
  o.size = o.cache[0]->sizes()[3];
  o.tokens = RowsOfLast(*o.x);
  o.per_sequence = o.x->rank() == 3 ? o.x->sizes()[1] : 1;
  const int64_t kv = o.kv_heads * o.size;
  const bool fits = splits.size() == 3 && splits[0] >= 0 && splits[1] == kv && splits[2] == kv &&
                    splits[0] + 2 * kv == o.width && (o.size == 0 ? splits[0] == 0 : splits[0] % o.size == 0);
  if (!fits) {
    return call.Invalid(fmt::format("sizeSplits is {}, but x has rows of {} and kCacheRef {} heads of {}",
                                    ShapeText(splits), o.width, o.kv_heads, o.size),
                        "pass the elements of q, k and v in a row of x, in whole heads");
  }
  if (o.size % 2 != 0) {
    return call.InvalidOperand(*o.cache[0],
                               fmt::format("has shape {}, expected an even last dim", SmallShape(*o.cache[0])),
                               "a head is turned in two halves");
  }
  o.q_heads = o.size == 0 ? 0 : splits[0] / o.size;
  return {};
}

Status CheckCountIs(const OpCall& call, const Operand& operand, int64_t count, std::string_view what) {
  if (operand.tensor->count == count) return {};
  return call.InvalidOperand(operand,
                             fmt::format("has shape {}, expected {} elements, {}", SmallShape(operand), count, what));
}

// Rows of `size` elements, whatever the dims before.
Status CheckRows(const OpCall& call, const Operand& operand, int64_t rows, int64_t size, std::string_view what) {
  if (operand.rank() > 0 && operand.sizes().back() == size && RowsOfLast(operand) == rows) return {};
  return call.InvalidOperand(operand,
                             fmt::format("has shape {}, expected [{}, {}], {}", SmallShape(operand), rows, size, what));
}

Status CacheCallShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckTextOf(call, "quantModeOptional", "static"));
  REPRISE_RETURN_IF_ERROR(CheckTextOf(call, "layoutOptional", "BSND"));
  REPRISE_RETURN_IF_ERROR(CheckTextOf(call, "cacheModeOptional", "contiguous", "page"));
  CacheCall o = CacheCallOf(call);
  REPRISE_RETURN_IF_ERROR(MeasureCaches(call, o));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*o.cache[1], o.cache[0]->sizes(), [] { return "the shape of kCacheRef,"; }));
  for (const Operand* operand : {o.cos, o.sin}) {
    REPRISE_RETURN_IF_ERROR(CheckRows(call, *operand, o.tokens, o.size, "a row of angles for each token"));
  }
  const int64_t sequences = o.is_paged ? o.tokens : o.x->sizes()[0];
  REPRISE_RETURN_IF_ERROR(
      CheckCountIs(call, *o.slots, sequences, o.is_paged ? "one for each token" : "one for each sequence"));
  if (!o.is_paged && sequences > o.cache[0]->sizes()[0]) {
    return call.InvalidOperand(
        *o.x, fmt::format("has {} sequences, but kCacheRef has pages for {}", sequences, o.cache[0]->sizes()[0]));
  }
  for (const Operand* operand : {o.weight_scale, o.bias}) {
    if (operand == nullptr || o.x->dtype != DType::kInt32) continue;
    REPRISE_RETURN_IF_ERROR(CheckRows(call, *operand, 1, o.width, "one for each column of x"));
  }
  if (o.row_scale != nullptr && o.x->dtype == DType::kInt32) {
    REPRISE_RETURN_IF_ERROR(CheckCountIs(call, *o.row_scale, o.tokens, "one for each row of x"));
  }
  for (int i = 0; i < 2; ++i) {
    REPRISE_RETURN_IF_ERROR(HeadNumbers(call, *o.scale[i], o.kv_heads, o.size).status());
    if (o.offset[i] == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(HeadNumbers(call, *o.offset[i], o.kv_heads, o.size).status());
  }
  Dims shape(o.x->sizes().data(), o.x->sizes().size() - 1);
  shape.push_back(o.q_heads);
  shape.push_back(o.size);
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*o.q, shape, [] { return "the heads of each token,"; }));
  if (!o.keeps) return {};
  shape[shape.size() - 2] = o.kv_heads;
  for (const auto& [name, result] : {std::pair("kOut", o.k), {"vOut", o.v}}) {
    if (result == nullptr) return MissingResult(call, name, "kvOutput is true");
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*result, shape, [] { return "the heads of each token,"; }));
  }
  return {};
}

// refs: k cache, v cache, q, k, v, x, weight scale, row scale, bias, cos, sin, slots, scales, offsets; state:
// TurnedCaches without operands.
void RunTurnedCaches(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::TurnedCaches o = launch.State<kernels::TurnedCaches>();
  size_t next = 0;
  for (TensorRef* ref : {&o.cache[0], &o.cache[1], &o.q, &o.k, &o.v, &o.x, &o.weight_scale, &o.row_scale, &o.bias,
                         &o.cos, &o.sin, &o.slots, &o.scale[0], &o.scale[1], &o.offset[0], &o.offset[1]}) {
    *ref = launch.refs[next++];
  }
  kernels::TurnIntoCaches(o, range, memory.scratch);
}

Status LowerTurnedCaches(OpCall& call) {
  CacheCall o = CacheCallOf(call);
  REPRISE_RETURN_IF_ERROR(MeasureCaches(call, o));
  auto settings = std::make_shared<kernels::TurnedCaches>();
  settings->q_heads = o.q_heads;
  settings->kv_heads = o.kv_heads;
  settings->size = o.size;
  settings->per_sequence = o.is_paged ? 0 : o.per_sequence;
  const bool is_integer = o.x->dtype == DType::kInt32;
  Launch& launch = call.AddLaunch(RunTurnedCaches);
  call.Write(launch, *o.cache[0]);
  call.Write(launch, *o.cache[1]);
  call.Write(launch, *o.q);
  call.WriteOptional(launch, o.keeps ? o.k : nullptr);
  call.WriteOptional(launch, o.keeps ? o.v : nullptr);
  call.Read(launch, *o.x);
  call.ReadOptional(launch, is_integer ? o.weight_scale : nullptr);
  call.ReadOptional(launch, is_integer ? o.row_scale : nullptr);
  call.ReadOptional(launch, is_integer ? o.bias : nullptr);
  call.Read(launch, *o.cos);
  call.Read(launch, *o.sin);
  call.Read(launch, *o.slots);
  for (int i = 0; i < 2; ++i) {
    REPRISE_ASSIGN_OR_RETURN(const TensorRef scale, HeadNumbers(call, *o.scale[i], o.kv_heads, o.size));
    call.Read(launch, *o.scale[i], scale);
  }
  for (int i = 0; i < 2; ++i) {
    if (o.offset[i] == nullptr) {
      call.ReadOptional(launch, nullptr);
      continue;
    }
    REPRISE_ASSIGN_OR_RETURN(const TensorRef offset, HeadNumbers(call, *o.offset[i], o.kv_heads, o.size));
    call.Read(launch, *o.offset[i], offset);
  }
  launch.units = o.width == 0 ? 0 : o.tokens;
  // Of two tokens with one line of a cache the later one counts.
  launch.grain = o.is_paged ? 0 : GrainOf(o.width * 8);
  launch.state = std::move(settings);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::TurnedCachesScratchBytes(o.width)));
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/small_floats.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
