// SPDX-License-Identifier: Apache-2.0
#include "ops/families/movement.h"

#include <cstring>

#include "kernels/copy.h"
#include "kernels/generate.h"
#include "kernels/small_float.h"
#include "ops/computations.h"
#include "ops/lowerings.h"

namespace reprise::ops {
namespace {

void RunFill(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
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
static_assert(sizeof(CastArgs) <= sizeof(ir::RangeCall::args));

void CastRow(const void* args, int64_t begin, int64_t end) {
  const auto& row = *static_cast<const CastArgs*>(args);
  row.cast(row.src + begin * row.src_stride, row.src_stride, row.dst + begin * row.dst_stride, row.dst_stride,
           end - begin);
}

bool FindCopyCall(Launch& launch, ir::RangeCall& call) {
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

bool FindFillCall(Launch& launch, ir::RangeCall& call) {
  const kernels::TensorRef& dst = launch.refs[0];
  const kernels::Scalar& value = launch.scalars[0];
  const CastArgs args{static_cast<char*>(dst.data), reinterpret_cast<const char*>(value.bytes),
                      kernels::FindCast(value.dtype, dst.dtype), kernels::ItemSize(dst.dtype), 0};
  call.function = CastRow;
  std::memcpy(call.args, &args, sizeof args);
  return true;
}

// Dim d of self from `start` on, `count` positions, `step` apart.
void Narrow(kernels::TensorRef& self, int d, int64_t start, int64_t count, int64_t step) {
  if (count != 0) self.data = static_cast<char*>(self.data) + start * self.strides[d] * kernels::ItemSize(self.dtype);
  self.sizes[d] = count;
  if (count > 1) self.strides[d] *= step;
}

// What remains of a dim of `size`: start and end as Python's slices take them.
struct Section {
  int64_t start;
  int64_t count;
};
Section SectionOf(int64_t size, int64_t start, int64_t end, int64_t step) {
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = std::clamp<int64_t>(start, 0, size);
  end = std::clamp<int64_t>(end, start, size);
  return {start, end > start ? (end - start - 1) / step + 1 : 0};
}

void RunTriangle(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Triangle(launch.refs[1], launch.ints[0] != 0, launch.ints[1], launch.refs[0], range);
}

}  // namespace

Status CheckNotComplexToReal(const OpCall& call, kernels::DType from, std::string_view name) {
  if (kernels::CategoryOf(from) != kernels::Category::kComplex ||
      kernels::CategoryOf(call.compute) == kernels::Category::kComplex) {
    return {};
  }
  return call.Invalid(fmt::format("{} is {}, which does not convert to the {} of {}", name, kernels::Name(from),
                                  kernels::Name(call.compute), call.NameOf(call.outputs[0])));
}

void AddCopyOfViews(OpCall& call, const kernels::TensorRef& out, const kernels::TensorRef& self) {
  Launch& launch = call.AddLaunch(RunCopy);
  call.Write(launch, call.outputs[0], out);
  call.Read(launch, call.inputs[0], self);
  Coalesce(launch.refs);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(1);
  launch.find_range_call = FindCopyCall;
}

void RunRemapLaunch(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::RunRemap(launch.State<kernels::Remap>(), static_cast<const char*>(launch.Ref(1, memory).data),
                    static_cast<char*>(launch.Ref(0, memory).data), range);
}

void AddRemap(OpCall& call, std::shared_ptr<kernels::Remap> remap) {
  Launch& launch = call.AddLaunch(RunRemapLaunch);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.inputs[0]);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(1);
  launch.state = std::move(remap);
}

Pieces WholeDim(int64_t size) { return {{0, size, 0, 1, false}}; }

namespace {

// ints: the numbers of the types.
void RunConvertSmall(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ConvertSmall(launch.Ref(1, memory), static_cast<int32_t>(launch.ints[0]), launch.Ref(0, memory),
                        static_cast<int32_t>(launch.ints[1]), range);
}

}  // namespace

void AddConvertSmall(OpCall& call, int32_t from, int32_t to) {
  Launch& launch = call.AddLaunch(RunConvertSmall);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.inputs[call.inputs.size() - 1]);
  launch.ints.push_back(from);
  launch.ints.push_back(to);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(1);
}

Status LowerCopy(OpCall& call) {
  const int32_t from = call.inputs[call.inputs.size() - 1].type_number;
  const int32_t to = call.outputs[0].type_number;
  if (from != to && (kernels::IsSmallFloat(from) || kernels::IsSmallFloat(to))) {
    AddConvertSmall(call, from, to);
    return {};
  }
  Launch& launch = call.AddLaunch(RunCopy);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.inputs[call.inputs.size() - 1]);
  Coalesce(launch.refs);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(1);
  launch.find_range_call = FindCopyCall;
  return {};
}

Status LowerFill(OpCall& call) {
  const kernels::Scalar& value = *call.Scalar("value");
  REPRISE_RETURN_IF_ERROR(CheckNotComplexToReal(call, value.dtype, "value"));
  Launch& launch = call.AddLaunch(RunFill);
  launch.scalars.push_back(value);
  call.Write(launch, call.outputs[0]);
  Coalesce(launch.refs);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(1);
  launch.find_range_call = FindFillCall;
  return {};
}

Status LowerConstant(OpCall& call) {
  Launch& launch = call.AddLaunch(RunFill);
  launch.scalars.push_back(kernels::Scalar::Of<int64_t>(call.op.computation.code));
  call.Write(launch, call.outputs[0]);
  Coalesce(launch.refs);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(1);
  launch.find_range_call = FindFillCall;
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

Status LowerPermute(OpCall& call) {
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
  launch.grain = GrainOf(1);
  launch.find_range_call = FindCopyCall;
  return {};
}

namespace {

StatusOr<kernels::TensorRef> SlicedView(const OpCall& call) {
  kernels::TensorRef view = call.RefOf(call.inputs[0]);
  const auto narrow = [&](int64_t axis, int64_t start, int64_t end, int64_t step, uint32_t& seen) -> Status {
    if (view.rank == 0) return call.Invalid("self has rank 0, which cannot be sliced");
    REPRISE_ASSIGN_OR_RETURN(const int d, call.WrapDim("a sliced dim", axis, view.rank));
    if (step < 1) return call.Invalid(fmt::format("the step of dim {} is {}, expected 1 or more", d, step));
    if ((seen >> d & 1) != 0) return call.Invalid(fmt::format("dim {} is sliced twice", d), "name each dim once");
    seen |= 1u << d;
    const Section section = SectionOf(view.sizes[d], start, end, step);
    Narrow(view, d, section.start, section.count, step);
    return {};
  };
  uint32_t seen = 0;
  if (call.Has("dim")) {
    REPRISE_RETURN_IF_ERROR(narrow(call.Int("dim"), call.Int("start"), call.Int("end"), call.Int("step"), seen));
    return view;
  }
  const std::span<const int64_t> starts = call.Ints("starts");
  const std::span<const int64_t> ends = call.Ints("ends");
  const std::span<const int64_t> axes = call.Ints("axes");
  const std::span<const int64_t> steps = call.Ints("steps");
  if (starts.size() != ends.size() || starts.size() != axes.size() || starts.size() != steps.size()) {
    return call.Invalid(fmt::format("starts, ends, axes and steps have {}, {}, {} and {} entries", starts.size(),
                                    ends.size(), axes.size(), steps.size()),
                        "give each of them one entry for each sliced dim");
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    REPRISE_RETURN_IF_ERROR(narrow(axes[i], starts[i], ends[i], steps[i], seen));
  }
  return view;
}

Status SliceShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const kernels::TensorRef view, SlicedView(call));
  return call.CheckShape(call.outputs[0], {view.sizes, static_cast<size_t>(view.rank)},
                         [] { return "the sliced shape"; });
}

Status LowerSlice(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const kernels::TensorRef view, SlicedView(call));
  AddCopyOfViews(call, call.RefOf(call.outputs[0]), view);
  return {};
}

Status TriangleShape(OpCall& call) {
  if (call.inputs[0].rank() < 2) {
    return call.InvalidOperand(call.inputs[0],
                               fmt::format("has shape {}, expected rank 2 or more", ShapeText(call.inputs[0].sizes())));
  }
  return ShapeOfFirstInput(call);
}

// `code`: whether the lower triangle stays.
Status LowerTriangle(OpCall& call) {
  Launch& launch = call.AddLaunch(RunTriangle);
  launch.ints.push_back(call.op.computation.code);
  // Beyond the size of any tensor the diagonal makes no difference.
  launch.ints.push_back(std::clamp<int64_t>(call.Int("diagonal"), INT64_MIN / 4, INT64_MAX / 4));
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.inputs[0]);
  const int64_t count = call.outputs[0].tensor->count;
  launch.units = count == 0 ? 0 : count / call.outputs[0].sizes().back();
  launch.grain = count == 0 ? 0 : GrainOf(call.outputs[0].sizes().back());
  return {};
}

Status FillValueShape(OpCall& call) {
  const Operand& value = call.Get("value");
  if (value.tensor->count == 1) return {};
  return call.InvalidOperand(value, fmt::format("has shape {}, expected one element", ShapeText(value.sizes())));
}

Status LowerFillTensor(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckNotComplexToReal(call, call.Get("value").dtype, "value"));
  return LowerCopy(call);
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/movement.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
