// SPDX-License-Identifier: Apache-2.0
//
// Products with weights of few bits, and products in groups.
#include <array>

#include "kernels/antiquant_matmul.h"
#include "kernels/matmul.h"
#include "kernels/quantize.h"
#include "ops/computations.h"
#include "ops/families/grouped.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace grouped {

using kernels::AntiquantWeight;
using kernels::DType;
using kernels::TensorRef;

TensorRef Slice(TensorRef ref, int64_t e, int stacked) {
  if (ref.rank != stacked || ref.data == nullptr) return ref;
  ref.data = static_cast<char*>(ref.data) + e * ref.strides[0] * kernels::ItemSize(ref.dtype);
  --ref.rank;
  for (int d = 0; d < ref.rank; ++d) {
    ref.sizes[d] = ref.sizes[d + 1];
    ref.strides[d] = ref.strides[d + 1];
  }
  return ref;
}

void MakeMatrix(TensorRef& ref) {
  for (; ref.data != nullptr && ref.rank < 2; ++ref.rank) {
    ref.sizes[1] = ref.rank == 0 ? 1 : ref.sizes[0];
    ref.strides[1] = ref.rank == 0 ? 0 : ref.strides[0];
    ref.sizes[0] = 1;
    ref.strides[0] = 0;
  }
}

void Narrow(TensorRef& ref, int dim, int64_t begin, int64_t size) {
  ref.data = static_cast<char*>(ref.data) + begin * ref.strides[dim] * kernels::ItemSize(ref.dtype);
  ref.sizes[dim] = size;
}

GroupRange GroupAt(const TensorRef& list, const GroupedParams& params, int64_t i, int64_t limit) {
  const kernels::CastFn cast = kernels::FindCast(list.dtype, DType::kInt64);
  const auto read = [&](int64_t row, int64_t column) {
    int64_t value = 0;
    const int64_t at = row * list.strides[0] + column * (list.rank == 2 ? list.strides[1] : 0);
    cast(static_cast<const char*>(list.data) + at * kernels::ItemSize(list.dtype), 0, reinterpret_cast<char*>(&value),
         0, 1);
    return value;
  };
  if (params.list_type == kEnds) {
    // An end before one that was there already ends an empty group: no two groups share a row.
    int64_t begin = 0;
    for (int64_t before = 0; before < i; ++before) begin = std::clamp<int64_t>(read(before, 0), begin, limit);
    return {i, begin, std::clamp<int64_t>(read(i, 0), begin, limit)};
  }
  const int64_t column = params.list_type == kIndexAndCount ? 1 : 0;
  int64_t begin = 0;
  for (int64_t before = 0; before < i; ++before) {
    begin += std::clamp<int64_t>(read(before, column), 0, limit - begin);
  }
  const int64_t end = begin + std::clamp<int64_t>(read(i, column), 0, limit - begin);
  const int64_t e = column == 1 ? read(i, 0) : i;
  if (e < 0 || e >= params.count) return {0, begin, begin};
  return {e, begin, end};
}

void RunGroups(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& params = launch.State<GroupedParams>();
  const TensorRef& list = launch.refs[2];
  const int64_t places = list.sizes[0];
  const auto entry = [&](const GroupedParams::List& from, int64_t e) {
    if (from.count == 0) return TensorRef();
    return Slice(launch.refs[from.first + (from.count == 1 ? 0 : static_cast<size_t>(e))], e, from.stacked);
  };
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const int64_t block = unit / places;
    TensorRef x = launch.Ref(1, memory);
    TensorRef y = launch.Ref(0, memory);
    const bool by_rows = params.group_type == kSplitRows;
    const GroupRange group = GroupAt(list, params, unit % places, x.sizes[by_rows ? 0 : 1]);
    const int64_t size = group.end - group.begin;
    TensorRef weight = entry(params.weight, group.e);
    if (by_rows) {
      if (size == 0) continue;
      Narrow(x, 0, group.begin, size);
      Narrow(y, 0, group.begin, size);
    } else {
      y = Slice(y, group.e, 3);
      Narrow(x, 1, group.begin, size);
      Narrow(weight, 0, group.begin, size);
    }
    if (params.scale.count != 0) {
      TensorRef bias = entry(params.bias, group.e);
      AntiquantWeight quantized = {weight, params.packing, 0, entry(params.scale, group.e),
                                   entry(params.offset, group.e)};
      MakeMatrix(quantized.scale);
      MakeMatrix(quantized.offset);
      quantized.group = std::max<int64_t>(1, x.sizes[1] / quantized.scale.sizes[0]);
      kernels::AntiquantMatMul(x, quantized, bias, y, {block, block + 1}, memory.scratch);
      continue;
    }
    const int64_t n0 = block * params.columns;
    const int64_t columns = std::min(params.columns, y.sizes[1] - n0);
    Narrow(weight, 1, n0, columns);
    Narrow(y, 1, n0, columns);
    kernels::MatMulEpilogue epilogue;
    epilogue.beta = kernels::Scalar::Of<int64_t>(1);
    epilogue.addend = entry(params.bias, group.e);
    MakeMatrix(epilogue.addend);
    if (epilogue.addend.data != nullptr) Narrow(epilogue.addend, 1, n0, columns);
    if (params.accumulates) epilogue.addend = y;
    kernels::MatMul(x, weight, launch.compute, y, {0, kernels::MatMulUnitCount(x, weight, launch.compute, y)},
                    memory.scratch, epilogue.addend.data == nullptr ? nullptr : &epilogue);
  }
}

void RunDequantizeGroups(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& params = launch.State<GroupedParams>();
  const auto entry = [&](const GroupedParams::List& from, int64_t e) {
    if (from.count == 0) return TensorRef();
    return Slice(launch.refs[from.first + (from.count == 1 ? 0 : static_cast<size_t>(e))], e, from.stacked);
  };
  for (int64_t place = range.begin; place < range.end; ++place) {
    TensorRef sums = launch.Ref(1, memory);
    TensorRef y = launch.refs[0];
    const GroupRange group = GroupAt(launch.refs[2], params, place, sums.sizes[0]);
    const int64_t size = group.end - group.begin;
    if (size == 0) continue;
    Narrow(sums, 0, group.begin, size);
    Narrow(y, 0, group.begin, size);
    TensorRef rows = launch.Ref(3, memory);
    if (rows.data != nullptr && rows.sizes[0] != 1) Narrow(rows, 0, group.begin, size);
    kernels::DequantizeSums({.sums = sums,
                             .scale = entry(params.scale, group.e),
                             .offset = {},
                             .row_scale = rows,
                             .bias = entry(params.bias, group.e)},
                            y, {0, size});
  }
}

}  // namespace grouped
namespace {

using namespace grouped;  // NOLINT(google-build-using-namespace) - the same file

using kernels::AntiquantWeight;
using kernels::DType;
using kernels::Packing;
using kernels::TensorRef;

std::string Shape(const Operand& operand) { return ShapeText(operand.sizes()); }

// ---- Weights of few bits ----

bool IsQuantized(const Operand& weight) { return weight.dtype == DType::kInt8 || weight.dtype == DType::kInt32; }

// 4-bit numbers in an element of the weight: eight in an int32, two in a byte of int4. 1: it is not packed.
int64_t PackedNumbers(const Operand& weight) {
  if (weight.dtype == DType::kInt32) return 8;
  return weight.packed_dim >= 0 ? 2 : 1;
}

// Whether the numbers of a row share elements of the weight of `sizes`, whose rows are `k`, not those of a column.
bool IsPackedAlongRows(const Operand& weight, std::span<const int64_t> sizes, int64_t k) {
  if (weight.packed_dim >= 0) return weight.packed_dim + 1 == weight.rank();
  return weight.dtype == DType::kInt32 && sizes[0] == k;
}

// How the weight [k, n] of `sizes` is packed; refuses other shapes.
Status FindPacking(const OpCall& call, const Operand& weight, std::span<const int64_t> sizes, int64_t k, int64_t n,
                   Packing& packing) {
  const int64_t numbers = PackedNumbers(weight);
  const bool along_rows = IsPackedAlongRows(weight, sizes, k);
  packing = numbers == 1 ? Packing::kNone : along_rows ? Packing::kAlongRows : Packing::kAlongColumns;
  const int64_t rows = sizes[0] * (along_rows ? 1 : numbers);
  const int64_t columns = sizes[1] * (along_rows ? numbers : 1);
  const bool is_of_matrix = weight.packed_dim < 0 || weight.packed_dim + 2 >= weight.rank();
  if (rows == k && columns == n && is_of_matrix) return {};
  return call.InvalidOperand(
      weight,
      fmt::format(
          "has shape {}{}, expected a weight of {} rows and {} columns", Shape(weight),
          weight.packed_dim >= 0 ? fmt::format(", bytes of int4 along dim {}", weight.packed_dim) : std::string(), k,
          n),
      "an int32 holds eight 4-bit numbers of a row or of a column; int4 has a number for each element");
}

int64_t ColumnsOf(const Operand& weight, std::span<const int64_t> sizes, int64_t k) {
  return sizes[1] * (IsPackedAlongRows(weight, sizes, k) ? PackedNumbers(weight) : 1);
}

// Scales of `groups` groups of rows as [groups, n].
Status CheckScale(const OpCall& call, const Operand& scale, std::span<const int64_t> sizes, int64_t groups, int64_t n) {
  const bool fits = groups == 1 ? sizes.empty() || (sizes.size() == 1 && (sizes[0] == 1 || sizes[0] == n)) ||
                                      (sizes.size() == 2 && sizes[0] == 1 && (sizes[1] == 1 || sizes[1] == n))
                                : sizes.size() == 2 && sizes[0] == groups && sizes[1] == n;
  if (fits) return {};
  return call.InvalidOperand(scale, fmt::format("has shape {}, expected {} for the weight", Shape(scale),
                                                groups == 1 ? fmt::format("[{}], [1, {}] or one element", n, n)
                                                            : fmt::format("[{}, {}]", groups, n)));
}

// refs: y, x, weight, scale, offset, bias; ints: packing, group.
AntiquantWeight WeightOf(const Launch& launch) {
  return {launch.refs[2], static_cast<Packing>(launch.ints[0]),
          launch.ints[1], launch.refs[3],
          launch.refs[4], launch.uses[2].is_prepared};
}

PreparedForm FindPreparedAntiquant(const Launch& launch) {
  if (launch.units == 0) return {};
  const int64_t bytes = kernels::PreparedAntiquantBytes(launch.refs[1], WeightOf(launch));
  return {2, static_cast<uint64_t>(bytes), kernels::PrepareAntiquant, [](Launch&) {}, true};
}

void RunAntiquant(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  AntiquantWeight weight = WeightOf(launch);
  MakeMatrix(weight.scale);
  MakeMatrix(weight.offset);
  TensorRef bias = launch.refs[5];
  if (bias.data != nullptr && bias.rank == 2) {
    bias.sizes[0] = bias.sizes[1];
    bias.strides[0] = bias.strides[1];
  }
  kernels::AntiquantMatMul(launch.refs[1], weight, bias, launch.refs[0], range, memory.scratch);
}

void SplitAntiquant(OpCall& call, Launch& launch, int64_t columns, int64_t multiply_adds) {
  launch.units = kernels::AntiquantUnitCount(columns);
  if (launch.units == 0) return;
  launch.grain = GrainOfProduct(multiply_adds / launch.units);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::AntiquantScratchBytes()));
}

int64_t RowsOfGroup(const OpCall& call, int64_t k) {
  const int64_t group = call.Int("antiquantGroupSize");
  return group == 0 ? std::max<int64_t>(k, 1) : group;
}

Status RefuseGiven(const OpCall& call, std::initializer_list<const char*> names, const char* what) {
  for (const char* name : names) {
    const Operand* const operand = call.Has(name) ? call.Find(name) : nullptr;
    if (operand == nullptr || operand->tensor->count == 0) continue;
    return call.Invalid(fmt::format("{} is given, but {} not supported yet", name, what), "pass null");
  }
  return {};
}

Status WeightQuantShape(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& weight = call.Get("weight");
  for (const Operand* operand : {&x, &weight}) {
    if (operand->rank() != 2)
      return call.InvalidOperand(*operand, fmt::format("has shape {}, expected 2 dims", Shape(*operand)));
  }
  REPRISE_RETURN_IF_ERROR(RefuseGiven(call, {"quantScaleOptional", "quantOffsetOptional"}, "quantized results are"));
  const int64_t group = call.Int("antiquantGroupSize");
  if (group < 0) return call.Invalid(fmt::format("antiquantGroupSize is {}, expected 0 or more", group));
  const int64_t k = x.sizes()[1];
  const int64_t n = ColumnsOf(weight, weight.sizes(), k);
  Packing packing = Packing::kNone;
  REPRISE_RETURN_IF_ERROR(FindPacking(call, weight, weight.sizes(), k, n, packing));
  const int64_t groups = group == 0 ? 1 : std::max<int64_t>(1, (k + group - 1) / group);
  const Operand& scale = call.Get("antiquantScale");
  REPRISE_RETURN_IF_ERROR(CheckScale(call, scale, scale.sizes(), groups, n));
  if (const Operand* offset = call.Find("antiquantOffsetOptional")) {
    REPRISE_RETURN_IF_ERROR(CheckScale(call, *offset, offset->sizes(), groups, n));
  }
  if (const Operand* bias = call.Find("biasOptional")) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*bias, {&n, 1}, [] { return "one value for each column:"; }));
  }
  const std::array expected = {x.sizes()[0], n};
  return call.CheckShape(call.outputs[0], expected, [] { return "the shape"; });
}

Status LowerWeightQuant(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& weight = call.Get("weight");
  const Operand& y = call.outputs[0];
  Launch& launch = call.AddLaunch(RunAntiquant);
  Packing packing = Packing::kNone;
  REPRISE_RETURN_IF_ERROR(FindPacking(call, weight, weight.sizes(), x.sizes()[1], y.sizes()[1], packing));
  launch.ints.push_back(static_cast<int64_t>(packing));
  launch.ints.push_back(RowsOfGroup(call, x.sizes()[1]));
  call.Write(launch, y);
  call.Read(launch, x);
  call.Read(launch, weight);
  call.Read(launch, call.Get("antiquantScale"));
  call.ReadOptional(launch, call.Find("antiquantOffsetOptional"));
  call.ReadOptional(launch, call.Find("biasOptional"));
  if (y.tensor->count == 0) return {};
  SplitAntiquant(call, launch, y.sizes()[1], y.tensor->count * x.sizes()[1]);
  launch.find_prepared = FindPreparedAntiquant;
  return {};
}

// ---- Groups ----

// A list; none where it is absent or all of its tensors are empty, which is how frameworks pass absent ones.
std::span<const Operand> Given(const OpCall& call, std::string_view name) {
  const std::span<const Operand> list = call.List(name);
  const bool has_elements =
      std::any_of(list.begin(), list.end(), [](const Operand& operand) { return operand.tensor->count != 0; });
  return has_elements ? list : std::span<const Operand>();
}

struct Groups {
  std::span<const Operand> x, weight, bias, scale, offset, y;
  std::span<const Operand> sum_scale, row_scale;  // of sums of integers
  bool is_integer = false;                        // x and weight are int8, the sums become numbers again
  const Operand* list = nullptr;
  int64_t group_type = kNoSplit;
  int64_t list_type = kEnds;
  int64_t count = 0;
  bool is_known = false;          // the caller's shapes or numbers say where groups begin
  std::span<const int64_t> ends;  // of rows, as numbers of the caller

  int64_t RowsOf(int64_t e) const {
    const auto at = static_cast<size_t>(e);
    return ends[at] - (e == 0 ? 0 : ends[at - 1]);
  }
};

Groups GroupsOf(const OpCall& call) {
  Groups groups;
  groups.x = call.List("x");
  groups.weight = call.List("weight");
  groups.bias = Given(call, "biasOptional");
  groups.scale = Given(call, "antiquantScaleOptional");
  groups.offset = Given(call, "antiquantOffsetOptional");
  groups.y = call.List(call.Has("y") ? "y" : "out");
  groups.is_integer = !groups.x.empty() && groups.x[0].dtype == DType::kInt8;
  if (groups.is_integer) {
    groups.sum_scale = Given(call, "scaleOptional");
    groups.row_scale = Given(call, "perTokenScaleOptional");
  }
  groups.list = call.Find("groupListOptional");
  if (call.Has("groupType")) {
    groups.group_type = call.Int("groupType");
  } else {
    // The first version: numbers of the caller, which count if x is a single tensor.
    groups.group_type = groups.x.size() == 1 ? kSplitRows : kNoSplit;
    if (groups.x.size() == 1) groups.ends = call.Ints("groupListOptional");
  }
  if (call.Has("groupListType")) groups.list_type = call.Int("groupListType");
  const bool is_stacked = groups.weight.size() == 1 && groups.weight[0].rank() == 3;
  const auto stacked = is_stacked ? groups.weight[0].sizes()[0] : 0;
  groups.count = std::max<int64_t>({static_cast<int64_t>(groups.x.size()), static_cast<int64_t>(groups.weight.size()),
                                    static_cast<int64_t>(groups.y.size()), stacked});
  if (groups.group_type == kSplitDepth && groups.y.size() == 1 && groups.y[0].rank() == 3) {
    groups.count = groups.y[0].sizes()[0];
  }
  groups.is_known = groups.group_type == kNoSplit || !call.Has("groupType") ||
                    (groups.group_type == kSplitRows && (groups.x.size() > 1 || groups.y.size() > 1));
  return groups;
}

// Sizes of entry e of a list: tensor e, or slice e of the only one, which then has `stacked` dims.
std::span<const int64_t> SizesOf(std::span<const Operand> list, int64_t e, size_t stacked) {
  const std::span<const int64_t> sizes = list[list.size() == 1 ? 0 : static_cast<size_t>(e)].sizes();
  return list.size() == 1 && sizes.size() == stacked ? sizes.subspan(1) : sizes;
}
const Operand& OperandOf(std::span<const Operand> list, int64_t e) {
  return list[list.size() == 1 ? 0 : static_cast<size_t>(e)];
}
// Whether the only tensor of a list of scales has one slice for each group.
bool IsStacked(std::span<const Operand> list, int64_t count) {
  return list.size() == 1 && list[0].rank() > 1 && list[0].sizes()[0] == count;
}

Status CheckLength(const OpCall& call, std::string_view name, std::span<const Operand> list, int64_t count) {
  if (list.size() <= 1 || static_cast<int64_t>(list.size()) == count) return {};
  return call.Invalid(
      fmt::format("{} has {} tensors, expected 1 or one for each of {} groups", name, list.size(), count));
}

// Columns of the weight of group e, which has `k` rows.
Status CheckGroupWeight(const OpCall& call, const Groups& groups, int64_t e, int64_t k, int64_t& n, Packing& packing) {
  const Operand& weight = OperandOf(groups.weight, e);
  const std::span<const int64_t> sizes = SizesOf(groups.weight, e, 3);
  if (sizes.size() != 2) {
    return call.InvalidOperand(
        weight, fmt::format("has shape {}, expected [k, n], or [groups, k, n] in a list of one", Shape(weight)));
  }
  n = ColumnsOf(weight, sizes, k);
  REPRISE_RETURN_IF_ERROR(FindPacking(call, weight, sizes, k, n, packing));
  if (!groups.bias.empty()) {
    const std::span<const int64_t> bias = SizesOf(groups.bias, e, 2);
    if (bias.size() != 1 || bias[0] != n) {
      return call.InvalidOperand(OperandOf(groups.bias, e),
                                 fmt::format("has shape {}, expected [{}], or [groups, {}] in a list of one",
                                             Shape(OperandOf(groups.bias, e)), n, n));
    }
  }
  if (!IsQuantized(weight) || groups.is_integer) return {};
  if (groups.scale.empty()) {
    return call.Invalid(
        fmt::format("antiquantScaleOptional is null, but {} has {}", call.NameOf(weight), kernels::Name(weight.dtype)));
  }
  for (const std::span<const Operand>& list : {groups.scale, groups.offset}) {
    if (list.empty()) continue;
    const Operand& scale = OperandOf(list, e);
    // [n] or [rows, n], one dim more in a list of one.
    std::span<const int64_t> own = scale.sizes();
    const bool is_stacked = IsStacked(list, groups.count);
    if (is_stacked) own = own.subspan(1);
    const bool has_own = is_stacked || list.size() > 1 || groups.count == 1;
    const bool fits = has_own && ((own.size() == 1 && own[0] == n) ||
                                  (own.size() == 2 && own[1] == n && own[0] > 0 && k % own[0] == 0));
    if (!fits) {
      return call.InvalidOperand(scale, fmt::format("has shape {}, expected [groups, {}] or [groups, parts of {}, {}]",
                                                    Shape(scale), n, k, n));
    }
  }
  return {};
}

Status CheckGroupList(OpCall& call, const Groups& groups) {
  if (groups.list == nullptr) {
    return call.Invalid("groupListOptional is null, but x and the result are single tensors whose groups it tells",
                        "pass where groups end, or how long they are");
  }
  const std::span<const int64_t> sizes = groups.list->sizes();
  const bool is_pair = groups.list_type == kIndexAndCount;
  if (!is_pair) {
    return call.CheckShape(*groups.list, {&groups.count, 1}, [] { return "one number for each group:"; });
  }
  const bool fits = sizes.size() == 2 && sizes[1] == 2 && groups.group_type == kSplitRows;
  if (fits) return {};
  return call.InvalidOperand(
      *groups.list, fmt::format("has shape {}, expected [.., 2], with groupType 0, for {} groups", Shape(*groups.list),
                                groups.count));
}

// x and weight int8, result of numbers or of the sums.
Status IntegerTypes(OpCall& call, const Groups& groups) {
  call.compute = DType::kInt32;
  for (const std::span<const Operand>& list : {groups.x, groups.weight}) {
    for (const Operand& operand : list) {
      if (operand.dtype == DType::kInt8 && operand.packed_dim < 0) continue;
      return call.InvalidOperand(operand,
                                 fmt::format("has {}, expected the type int8 of x[0]", DTypeText(operand.type_number)));
    }
  }
  for (const Operand& y : groups.y) {
    if (kSingleAndHalfTypes.Has(y.dtype) || y.dtype == DType::kInt32) continue;
    return call.InvalidOperand(
        y, fmt::format("has {}, expected float32, float16, bfloat16 or int32 for x of int8", kernels::Name(y.dtype)));
  }
  return {};
}

Status CheckIntegerProduct(OpCall& call, const Groups& groups) {
  if (groups.group_type != kSplitRows || groups.x.size() != 1 || groups.y.size() != 1) {
    return call.Invalid(fmt::format("x of int8 comes as {} tensors with groupType {} and {} results", groups.x.size(),
                                    groups.group_type, groups.y.size()),
                        "products of integers in groups take a single x and result, and groupType 0");
  }
  const int64_t m = groups.x[0].sizes()[0];
  const int64_t n = groups.y[0].sizes().back();
  if (groups.sum_scale.empty() && groups.y[0].dtype != DType::kInt32) {
    return call.Invalid(
        fmt::format("scaleOptional is null, but {} has {}", call.NameOf(groups.y[0]), kernels::Name(groups.y[0].dtype)),
        "pass scales of the columns of each weight, or a result of int32");
  }
  REPRISE_RETURN_IF_ERROR(CheckLength(call, "scaleOptional", groups.sum_scale, groups.count));
  for (int64_t e = 0; e < groups.count && !groups.sum_scale.empty(); ++e) {
    const Operand& scale = OperandOf(groups.sum_scale, e);
    const std::span<const int64_t> sizes = SizesOf(groups.sum_scale, e, 2);
    const bool has_type =
        kSingleAndHalfTypes.Has(scale.dtype) || scale.dtype == DType::kInt64 || scale.dtype == DType::kUInt64;
    const bool is_own =
        groups.sum_scale.size() > 1 || groups.count == 1 || (scale.rank() == 2 && scale.sizes()[0] == groups.count);
    if (has_type && is_own && sizes.size() == 1 && (sizes[0] == n || sizes[0] == 1)) continue;
    return call.InvalidOperand(
        scale, fmt::format("has {} {}, expected [{}, {}], or [{}] for each group, of float32, bfloat16 or 64 bits",
                           kernels::Name(scale.dtype), Shape(scale), groups.count, n, n));
  }
  if (groups.row_scale.empty()) return {};
  const Operand& rows = groups.row_scale[0];
  if (groups.row_scale.size() != 1 || rows.dtype != DType::kFloat) {
    return call.InvalidOperand(rows,
                               fmt::format("has {}, expected a single tensor of float32", kernels::Name(rows.dtype)));
  }
  return call.CheckShape(rows, {&m, 1}, [] { return "one for each row of x:"; });
}

Status GroupedTypes(OpCall& call) {
  const Groups groups = GroupsOf(call);
  if (groups.x.empty()) return call.Invalid("x is an empty list");
  if (groups.weight.empty()) return call.Invalid("weight is an empty list");
  if (groups.y.empty()) return call.Invalid(fmt::format("{} is an empty list", call.Has("y") ? "y" : "out"));
  call.compute = groups.x[0].dtype;
  if (groups.is_integer && !call.Has("groupType")) {
    return call.InvalidOperand(groups.x[0], "has int8, which this version does not multiply",
                               "call aclnnGroupedMatmulV4, whose groups are a tensor");
  }
  if (groups.is_integer) return IntegerTypes(call, groups);
  if (!kFloatingTypes.Has(call.compute)) {
    return call.InvalidOperand(groups.x[0],
                               fmt::format("has {}, expected a floating type or int8", kernels::Name(call.compute)));
  }
  for (const std::span<const Operand>& list : {groups.x, groups.weight, groups.y}) {
    for (const Operand& operand : list) {
      if (operand.dtype == call.compute ||
          (&operand >= groups.weight.data() && &operand < groups.weight.data() + groups.weight.size() &&
           IsQuantized(operand) && operand.dtype == groups.weight[0].dtype)) {
        continue;
      }
      return call.InvalidOperand(operand, fmt::format("has {}, expected the type {} of x[0]",
                                                      kernels::Name(operand.dtype), kernels::Name(call.compute)));
    }
  }
  if (IsQuantized(groups.weight[0]) && call.compute == DType::kDouble) {
    return call.InvalidOperand(groups.x[0], "has float64, which does not go with a quantized weight");
  }
  return {};
}

// Refuses what is not supported yet.
Status CheckGroupedOptions(const OpCall& call, const Groups& groups) {
  REPRISE_RETURN_IF_ERROR(RefuseGiven(call, {"offsetOptional"}, "quantized results are"));
  REPRISE_RETURN_IF_ERROR(
      RefuseGiven(call,
                  {"activationInputOptional", "activationQuantScaleOptional", "activationQuantOffsetOptional",
                   "activationFeatureOutOptional", "dynQuantScaleOutOptional"},
                  "activations are"));
  if (call.Has("actType") && call.Int("actType") != 0) {
    return call.Invalid(fmt::format("actType is {}, but activations are not supported yet", call.Int("actType")),
                        "pass 0");
  }
  const int64_t split_item = call.Int("splitItem");
  if (split_item < 0 || split_item > 3) {
    return call.Invalid(fmt::format("splitItem is {}, expected a value from 0 to 3", split_item));
  }
  if (call.Has("quantGroupSize") && call.Int("quantGroupSize") != 0) {
    return call.Invalid(fmt::format("quantGroupSize is {}, but scales of parts of the depth are not supported yet",
                                    call.Int("quantGroupSize")),
                        "pass 0");
  }
  if (groups.is_integer) return {};
  return RefuseGiven(call, {"scaleOptional", "perTokenScaleOptional"}, "scales of a product of floating numbers are");
}

// The numbers that say how the groups lie, and the lengths of the lists.
Status CheckGroups(const OpCall& call, const Groups& groups) {
  const int64_t split_item = call.Int("splitItem");
  if (groups.group_type != kNoSplit && groups.group_type != kSplitRows && groups.group_type != kSplitDepth) {
    return call.Invalid(
        fmt::format("groupType is {}, expected -1 (none), 0 (rows of x) or 2 (depth)", groups.group_type));
  }
  if (groups.list_type < kEnds || groups.list_type > kIndexAndCount) {
    return call.Invalid(
        fmt::format("groupListType is {}, expected 0 (ends), 1 (counts) or 2 (index and count)", groups.list_type));
  }
  const bool wants_single = split_item >= 2;
  if (wants_single ? groups.y.size() != 1 : static_cast<int64_t>(groups.y.size()) != groups.count) {
    return call.Invalid(fmt::format("splitItem is {}, but {} has {} tensors for {} groups", split_item,
                                    call.Has("y") ? "y" : "out", groups.y.size(), groups.count),
                        "0 and 1 give one result for each group, 2 and 3 a single one");
  }
  REPRISE_RETURN_IF_ERROR(CheckLength(call, "x", groups.x, groups.count));
  REPRISE_RETURN_IF_ERROR(CheckLength(call, "weight", groups.weight, groups.count));
  REPRISE_RETURN_IF_ERROR(CheckLength(call, "biasOptional", groups.bias, groups.count));
  REPRISE_RETURN_IF_ERROR(CheckLength(call, "antiquantScaleOptional", groups.scale, groups.count));
  REPRISE_RETURN_IF_ERROR(CheckLength(call, "antiquantOffsetOptional", groups.offset, groups.count));
  return {};
}

// Groups are ranges of the depth: each has a result [m, n].
Status DepthSplitShape(OpCall& call, const Groups& groups) {
  const Operand& x = groups.x[0];
  const Operand& weight = groups.weight[0];
  const bool fits = groups.x.size() == 1 && groups.weight.size() == 1 && weight.rank() == 2 && !IsQuantized(weight) &&
                    groups.y.size() == 1 && weight.sizes()[0] == x.sizes()[1] && groups.bias.empty();
  if (!fits) {
    return call.Invalid(
        fmt::format("groupType 2 takes x [m, k], weight [k, n], one result [groups, m, n] and no bias, "
                    "but got {}",
                    call.InputShapes()));
  }
  const Dims shape = [&] {
    Dims dims;
    for (int64_t size : {groups.count, x.sizes()[0], weight.sizes()[1]}) dims.push_back(size);
    return dims;
  }();
  REPRISE_RETURN_IF_ERROR(call.CheckShape(groups.y[0], shape, [] { return "the shape"; }));
  return CheckGroupList(call, groups);
}

// Numbers of the caller: one for each group, ascending up to the rows of x.
Status CheckGroupEnds(const OpCall& call, const Groups& groups) {
  if (call.Has("groupType") || groups.x.size() > 1) return {};
  if (groups.ends.empty() && (groups.y.size() > 1 || groups.count == 1)) return {};
  if (static_cast<int64_t>(groups.ends.size()) != groups.count) {
    return call.Invalid(fmt::format("groupListOptional has {} numbers, expected one for each of {} groups",
                                    groups.ends.size(), groups.count),
                        "pass where the rows of each group end");
  }
  int64_t before = 0;
  for (const int64_t end : groups.ends) {
    if (end < before) {
      return call.Invalid(
          fmt::format("groupListOptional is {}, expected ends that ascend from 0", ShapeText(groups.ends)));
    }
    before = end;
  }
  if (before == groups.x[0].sizes()[0]) return {};
  return call.Invalid(
      fmt::format("groupListOptional is {}, but x[0] has {} rows", ShapeText(groups.ends), groups.x[0].sizes()[0]));
}

// The result that group e writes to, its own or that of all.
Status CheckGroupResult(OpCall& call, const Groups& groups, int64_t e, const Operand& x, int64_t n) {
  const Operand& y = OperandOf(groups.y, e);
  int64_t rows = 0;
  if (groups.y.size() <= 1 && groups.count != 1) {
    for (const Operand& part : groups.x) rows += part.sizes()[0];
  } else if (groups.x.size() > 1 || groups.count == 1) {
    rows = x.sizes()[0];
  } else if (!groups.ends.empty()) {
    rows = groups.RowsOf(e);
  } else if (y.rank() == 2) {
    rows = y.sizes()[0];
  }
  const std::array shape = {rows, n};
  return call.CheckShape(y, shape, [] { return "the shape"; });
}

Status GroupedShape(OpCall& call) {
  const Groups groups = GroupsOf(call);
  REPRISE_RETURN_IF_ERROR(CheckGroupedOptions(call, groups));
  REPRISE_RETURN_IF_ERROR(CheckGroups(call, groups));
  for (const Operand& x : groups.x) {
    if (x.rank() != 2) return call.InvalidOperand(x, fmt::format("has shape {}, expected 2 dims", Shape(x)));
  }
  if (groups.is_integer) REPRISE_RETURN_IF_ERROR(CheckIntegerProduct(call, groups));
  REPRISE_RETURN_IF_ERROR(CheckGroupEnds(call, groups));
  if (groups.group_type == kSplitDepth) return DepthSplitShape(call, groups);
  int64_t n = 0;
  Packing packing = Packing::kNone;
  int64_t rows = 0;
  Packing first = packing;
  for (int64_t e = 0; e < groups.count; ++e) {
    const Operand& x = OperandOf(groups.x, e);
    REPRISE_RETURN_IF_ERROR(CheckGroupWeight(call, groups, e, x.sizes()[1], n, packing));
    if (e == 0) first = packing;
    if (packing != first) {
      return call.InvalidOperand(OperandOf(groups.weight, e), "is not packed as weight[0]", "pack all weights alike");
    }
    REPRISE_RETURN_IF_ERROR(CheckGroupResult(call, groups, e, x, n));
    rows += OperandOf(groups.y, e).sizes()[0];
  }
  if (groups.is_known) {
    if (groups.x.size() == 1 && groups.y.size() > 1 && rows != groups.x[0].sizes()[0]) {
      return call.InvalidOperand(groups.x[0],
                                 fmt::format("has {} rows, the results have {}", groups.x[0].sizes()[0], rows));
    }
    return {};
  }
  return CheckGroupList(call, groups);
}

// refs: y, x, weight, bias. out = x x weight + bias.
void RunProduct(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MatMulEpilogue epilogue;
  epilogue.beta = kernels::Scalar::Of<int64_t>(1);
  epilogue.addend = launch.refs[3];
  MakeMatrix(epilogue.addend);
  kernels::MatMul(launch.refs[1], launch.refs[2], launch.compute, launch.refs[0], range, memory.scratch,
                  epilogue.addend.data == nullptr ? nullptr : &epilogue);
}

// One launch for each group.
Status LowerKnownGroups(OpCall& call, const Groups& groups) {
  int64_t row = 0;
  for (int64_t e = 0; e < groups.count; ++e) {
    const Operand& x_operand = OperandOf(groups.x, e);
    const Operand& y_operand = OperandOf(groups.y, e);
    TensorRef x = call.RefOf(x_operand);
    TensorRef y = call.RefOf(y_operand);
    const int64_t rows = groups.x.size() > 1 || groups.count == 1 ? x.sizes[0]
                         : !groups.ends.empty()                   ? groups.RowsOf(e)
                                                                  : y.sizes[0];
    if (groups.x.size() == 1 && groups.count > 1) Narrow(x, 0, row, rows);
    if (groups.y.size() == 1 && groups.count > 1) Narrow(y, 0, row, rows);
    row += rows;
    const Operand& weight_operand = OperandOf(groups.weight, e);
    const TensorRef weight = Slice(call.RefOf(weight_operand), e, groups.weight.size() == 1 ? 3 : -1);
    const auto read_list = [&](Launch& launch, std::span<const Operand> list, int stacked) {
      if (list.empty()) return call.ReadOptional(launch, nullptr);
      const Operand& operand = OperandOf(list, e);
      call.Read(launch, operand, Slice(call.RefOf(operand), e, list.size() == 1 ? stacked : -1));
    };
    if (kernels::ElementCount(y) == 0) continue;
    if (IsQuantized(weight_operand)) {
      int64_t n = 0;
      Packing packing = Packing::kNone;
      REPRISE_RETURN_IF_ERROR(CheckGroupWeight(call, groups, e, x.sizes[1], n, packing));
      Launch& launch = call.AddLaunch(RunAntiquant);
      call.Write(launch, y_operand, y);
      call.Read(launch, x_operand, x);
      call.Read(launch, weight_operand, weight);
      for (const std::span<const Operand>& list : {groups.scale, groups.offset}) {
        read_list(launch, list, IsStacked(list, groups.count) ? list[0].rank() : -1);
      }
      read_list(launch, groups.bias, 2);
      const TensorRef& scale = launch.refs[3];
      launch.ints.push_back(static_cast<int64_t>(packing));
      launch.ints.push_back(std::max<int64_t>(1, scale.rank == 2 ? x.sizes[1] / scale.sizes[0] : x.sizes[1]));
      SplitAntiquant(call, launch, n, kernels::ElementCount(y) * x.sizes[1]);
      continue;
    }
    Launch& launch = call.AddLaunch(RunProduct);
    call.Write(launch, y_operand, y);
    call.Read(launch, x_operand, x);
    call.Read(launch, weight_operand, weight);
    read_list(launch, groups.bias, 2);
    launch.units = kernels::MatMulUnitCount(x, weight, launch.compute, y);
    const int64_t per_unit = kernels::ElementCount(y) / launch.units * std::max<int64_t>(1, x.sizes[1]);
    launch.grain = GrainOfProduct(per_unit);
    call.AddScratch(launch, static_cast<uint64_t>(kernels::MatMulScratchBytes(x, weight, launch.compute, y)));
  }
  return {};
}

Status LowerGrouped(OpCall& call) {
  const Groups groups = GroupsOf(call);
  if (groups.is_known && !groups.is_integer) return LowerKnownGroups(call, groups);
  const Operand& x = groups.x[0];
  const Operand& y = groups.y[0];
  const bool is_quantized = IsQuantized(groups.weight[0]) && !groups.is_integer;
  GroupedParams params = {};
  params.group_type = groups.group_type;
  params.list_type = groups.list_type;
  params.count = groups.count;
  int64_t n = y.sizes().back();
  if (is_quantized) {
    REPRISE_RETURN_IF_ERROR(CheckGroupWeight(call, groups, 0, x.sizes()[1], n, params.packing));
  }
  params.columns = is_quantized ? kernels::kAntiquantColumns : 256;
  const TensorRef sums = groups.is_integer ? call.Temporary(DType::kInt32, y.sizes()) : TensorRef();
  Launch& launch = call.AddLaunch(RunGroups);
  if (groups.is_integer) {
    call.WriteTemporary(launch, sums);
    launch.compute = DType::kInt32;
  } else {
    call.Write(launch, y);
  }
  call.Read(launch, x);
  call.Read(launch, *groups.list);
  const auto read = [&](Launch& into, std::span<const Operand> list, int stacked, GroupedParams::List& place) {
    place = {into.refs.size(), list.size(), list.size() == 1 ? stacked : -1};
    for (const Operand& operand : list) call.Read(into, operand);
  };
  read(launch, groups.weight, 3, params.weight);
  if (!groups.is_integer) read(launch, groups.bias, 2, params.bias);
  if (is_quantized) {
    read(launch, groups.scale, IsStacked(groups.scale, groups.count) ? groups.scale[0].rank() : -1, params.scale);
    read(launch, groups.offset, IsStacked(groups.offset, groups.count) ? groups.offset[0].rank() : -1, params.offset);
  }
  launch.state = std::make_shared<GroupedParams>(params);
  if (y.tensor->count == 0) return {};
  launch.units = (n + params.columns - 1) / params.columns * groups.list->sizes()[0];
  if (launch.units == 0) return {};
  const int64_t multiply_adds = x.tensor->count * n;
  launch.grain = GrainOfProduct(multiply_adds / launch.units);
  const int64_t scratch = is_quantized ? kernels::AntiquantScratchBytes() : kernels::kMostMatMulScratchBytes;
  call.AddScratch(launch, static_cast<uint64_t>(scratch));
  if (!groups.is_integer) return {};
  Launch& finish = call.AddLaunch(RunDequantizeGroups);
  call.Write(finish, y);
  call.ReadTemporary(finish, sums);
  call.Read(finish, *groups.list);
  call.ReadOptional(finish, groups.row_scale.empty() ? nullptr : &groups.row_scale[0]);
  params.weight = {};
  read(finish, groups.sum_scale, groups.sum_scale.empty() || groups.sum_scale[0].rank() != 2 ? -1 : 2, params.scale);
  read(finish, groups.bias, groups.bias.empty() || groups.bias[0].rank() != 2 ? -1 : 2, params.bias);
  finish.state = std::make_shared<GroupedParams>(params);
  finish.units = groups.list->sizes()[0];
  finish.grain = GrainOf(4 * y.tensor->count / std::max<int64_t>(1, finish.units));
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/grouped_matmul.def"
#include "ops/prepared_weights.h"
#undef REPRISE_COMPUTATION

int64_t MostPreparedAntiquantRows() { return kernels::MostPreparedAntiquantRows(); }

}  // namespace reprise::ops
