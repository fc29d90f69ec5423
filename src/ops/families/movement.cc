// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/copy.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/plans.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

void RunCopy(const Launch& launch, kernels::Range range, const Launch::Memory&) {
  kernels::Copy(launch.refs[1], launch.refs[0], range);
}

void RunFill(const Launch& launch, kernels::Range range, const Launch::Memory&) {
  kernels::Fill(launch.refs[0], launch.scalars[0], range);
}

// A row conversion with its operands, as the arguments of a row function.
struct CastArgs {
  char* dst;
  const char* src;
  kernels::CastFn cast;
  int64_t dst_stride;
  int64_t src_stride;
};
static_assert(sizeof(CastArgs) <= sizeof(ir::RowCall::args));

void CastRow(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const CastArgs*>(args);
  row.cast(row.src + begin * row.src_stride, row.src_stride, row.dst + begin * row.dst_stride, row.dst_stride,
           end - begin);
}

bool FindCopyRow(Launch& launch, ir::RowCall& call) {
  const kernels::TensorRef& dst = launch.refs[0];
  const kernels::TensorRef& src = launch.refs[1];
  const bool is_single = src.rank != 0 && src.strides[0] == 0;
  const CastArgs args{static_cast<char*>(dst.data), static_cast<const char*>(src.data),
                      kernels::FindCast(src.dtype, dst.dtype), kernels::ItemSize(dst.dtype),
                      is_single ? 0 : kernels::ItemSize(src.dtype)};
  call.function = CastRow;
  std::memcpy(call.args, &args, sizeof args);
  return true;
}

bool FindFillRow(Launch& launch, ir::RowCall& call) {
  const kernels::TensorRef& dst = launch.refs[0];
  const kernels::Scalar& value = launch.scalars[0];
  const CastArgs args{static_cast<char*>(dst.data), reinterpret_cast<const char*>(value.bytes),
                      kernels::FindCast(value.dtype, dst.dtype), kernels::ItemSize(dst.dtype), 0};
  call.function = CastRow;
  std::memcpy(call.args, &args, sizeof args);
  return true;
}

void RunConcat(const Launch& launch, kernels::Range range, const Launch::Memory&) {
  const std::span<const kernels::TensorRef> sources(launch.refs.begin() + 1, launch.refs.end());
  kernels::Concat(sources, static_cast<int>(launch.ints[0]), launch.refs[0], range);
}

// A rank-1 tensor without elements says nothing about the shape: frameworks start lists of results with one.
bool IsSkipped(const Operand& operand) { return operand.rank() == 1 && operand.tensor->count == 0; }

const Operand* FirstOfConcat(const OpCall& call) {
  for (const Operand& input : call.inputs) {
    if (!IsSkipped(input)) return &input;
  }
  return call.inputs.empty() ? nullptr : &call.inputs[0];
}

Status CheckNotComplexToReal(const OpCall& call, kernels::DType from, std::string_view name) {
  if (kernels::CategoryOf(from) != kernels::Category::kComplex ||
      kernels::CategoryOf(call.compute) == kernels::Category::kComplex) {
    return {};
  }
  return call.Invalid(fmt::format("{} is {}, which does not convert to the {} of {}", name, kernels::Name(from),
                                  kernels::Name(call.compute), call.NameOf(call.outputs[0])));
}

}  // namespace

Status PlanCopy(OpCall& call) {
  Launch& launch = call.AddLaunch(RunCopy);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.inputs[call.inputs.size() - 1]);
  Coalesce(launch.refs);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = kGrainElements;
  launch.find_row = FindCopyRow;
  return {};
}

Status PlanFill(OpCall& call) {
  const kernels::Scalar& value = *call.Scalar("value");
  REPRISE_RETURN_IF_ERROR(CheckNotComplexToReal(call, value.dtype, "value"));
  Launch& launch = call.AddLaunch(RunFill);
  launch.scalars.push_back(value);
  call.Write(launch, call.outputs[0]);
  Coalesce(launch.refs);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = kGrainElements;
  launch.find_row = FindFillRow;
  return {};
}

Status PlanConstant(OpCall& call) {
  Launch& launch = call.AddLaunch(RunFill);
  launch.scalars.push_back(kernels::Scalar::Of<int64_t>(call.op.computation.code));
  call.Write(launch, call.outputs[0]);
  Coalesce(launch.refs);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = kGrainElements;
  launch.find_row = FindFillRow;
  return {};
}

Status PermutedShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const std::span<const int64_t> dims = call.Ints("dims");
  const int rank = self.rank();
  const auto wrong = [&](std::string why) {
    return call.Invalid(fmt::format("dims is {}, which {} for {}", ShapeText(dims), why, call.InputShapes()),
                        fmt::format("name each of the {} dims of {} once", rank, call.NameOf(self)));
  };
  if (dims.size() != static_cast<size_t>(rank)) return wrong(fmt::format("has {} entries, not {}", dims.size(), rank));
  Dims shape;
  uint32_t seen = 0;
  for (int64_t dim : dims) {
    REPRISE_ASSIGN_OR_RETURN(const int from, call.WrapDim("an entry of dims", dim, rank));
    if ((seen >> from & 1) != 0) return wrong(fmt::format("names dim {} twice", from));
    seen |= 1u << from;
    shape.push_back(self.sizes()[static_cast<size_t>(from)]);
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the permuted shape"; });
}

Status PlanPermute(OpCall& call) {
  const kernels::TensorRef self = call.RefOf(call.inputs[0]);
  kernels::TensorRef view = self;
  int d = 0;
  for (int64_t dim : call.Ints("dims")) {
    const auto from = static_cast<size_t>(dim < 0 ? dim + self.rank : dim);
    view.sizes[d] = self.sizes[from];
    view.strides[d++] = self.strides[from];
  }
  Launch& launch = call.AddLaunch(RunCopy);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.inputs[0], view);
  Coalesce(launch.refs);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = kGrainElements;
  launch.find_row = FindCopyRow;
  return {};
}

Status ConcatenatedShape(OpCall& call) {
  const Operand* first = FirstOfConcat(call);
  if (first == nullptr) return call.Invalid("tensors is an empty list", "pass at least one tensor");
  if (first->rank() == 0) {
    return call.InvalidOperand(*first, "has rank 0, tensors to be joined need a dim", "give it the shape [1]");
  }
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), first->rank()));
  Dims shape(first->sizes().data(), first->sizes().size());
  int64_t& total = shape[static_cast<size_t>(dim)];
  total = 0;
  for (const Operand& input : call.inputs) {
    if (IsSkipped(input)) continue;
    const std::span<const int64_t> sizes = input.sizes();
    bool fits = sizes.size() == shape.size();
    for (size_t d = 0; fits && d < sizes.size(); ++d)
      fits = static_cast<int>(d) == dim || sizes[d] == first->sizes()[d];
    if (!fits) {
      return call.InvalidOperand(
          input,
          fmt::format("has shape {}, expected {} but for dim {}", ShapeText(sizes), ShapeText(first->sizes()), dim),
          "tensors to be joined differ in the joined dim only");
    }
    if (__builtin_add_overflow(total, sizes[static_cast<size_t>(dim)], &total)) {
      return call.Invalid(fmt::format("the sizes of dim {} add up to more than 64 bits hold", dim));
    }
  }
  return call.CheckShape(call.outputs[0], shape, [&] { return fmt::format("along dim {} the joined shape", dim); });
}

Status PlanConcat(OpCall& call) {
  const int64_t dim = call.Int("dim");
  const int rank = call.outputs[0].rank();
  Launch& launch = call.AddLaunch(RunConcat);
  launch.ints.push_back(dim < 0 ? dim + rank : dim);
  call.Write(launch, call.outputs[0]);
  for (const Operand& input : call.inputs) {
    if (input.tensor->count != 0) call.Read(launch, input);
  }
  launch.units = call.outputs[0].tensor->count;
  launch.grain = kGrainElements;
  return {};
}

// ---- Computations -----------------------------------------------------------------------------------------------

constexpr Computation kCast = {
    .dtype_rule = TypeOfDTypeParam, .shape_rule = BroadcastInputs, .aliasing = Aliasing::kSameView, .plan = PlanCopy};
constexpr Computation kCopy = {
    .dtype_rule = TypeOfOutput, .shape_rule = BroadcastInputs, .aliasing = Aliasing::kSameView, .plan = PlanCopy};
constexpr Computation kFill = {.dtype_rule = TypeOfOutput, .shape_rule = BroadcastInputs, .plan = PlanFill};
constexpr Computation kZero = {
    .dtype_rule = TypeOfOutput, .shape_rule = BroadcastInputs, .plan = PlanConstant, .code = 0};
constexpr Computation kOne = {
    .dtype_rule = TypeOfOutput, .shape_rule = BroadcastInputs, .plan = PlanConstant, .code = 1};
constexpr Computation kCat = {.dtype_rule = PromoteInputs, .shape_rule = ConcatenatedShape, .plan = PlanConcat};
constexpr Computation kPermute = {.dtype_rule = OneType, .shape_rule = PermutedShape, .plan = PlanPermute};

}  // namespace reprise::ops
