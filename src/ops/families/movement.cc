// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "kernels/copy.h"
#include "kernels/generate.h"
#include "kernels/remap.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/plans.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

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

// ---- Strided views
// ---------------------------------------------------------------------------------------------------

// Dims of a copy between two views; joined as they come, so that more of them fit than a tensor has.
class CopyDims {
 public:
  void Add(int64_t size, int64_t out_stride, int64_t self_stride) {
    if (size == 1) return;
    if (count_ != 0 && out_strides_[count_ - 1] == size * out_stride &&
        self_strides_[count_ - 1] == size * self_stride) {
      sizes_[count_ - 1] *= size;
    } else {
      sizes_[count_++] = size;
    }
    out_strides_[count_ - 1] = out_stride;
    self_strides_[count_ - 1] = self_stride;
  }
  bool fits() const { return count_ <= kernels::kMaxRank; }
  void Apply(kernels::TensorRef& out, kernels::TensorRef& self) const {
    out.rank = self.rank = count_;
    for (int d = 0; d < count_; ++d) {
      out.sizes[d] = self.sizes[d] = sizes_[d];
      out.strides[d] = out_strides_[d];
      self.strides[d] = self_strides_[d];
    }
  }

 private:
  int count_ = 0;
  int64_t sizes_[2 * kernels::kMaxRank] = {};
  int64_t out_strides_[2 * kernels::kMaxRank] = {};
  int64_t self_strides_[2 * kernels::kMaxRank] = {};
};

// out = self through these views.
void AddCopyOfViews(OpCall& call, const kernels::TensorRef& out, const kernels::TensorRef& self) {
  Launch& launch = call.AddLaunch(RunCopy);
  call.Write(launch, call.outputs[0], out);
  call.Read(launch, call.inputs[0], self);
  Coalesce(launch.refs);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = kGrainElements;
  launch.find_row = FindCopyRow;
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

// ---- Cut dims
// --------------------------------------------------------------------------------------------------------

void RunRemapLaunch(const Launch& launch, kernels::Range range, const Launch::Memory& memory) {
  kernels::RunRemap(launch.State<kernels::Remap>(), static_cast<const char*>(launch.Ref(1, memory).data),
                    static_cast<char*>(launch.Ref(0, memory).data), range);
}

// `pieces(d)` of each dim of out; out and self have the same rank.
template <class Pieces>
std::shared_ptr<kernels::Remap> MakeRemap(const kernels::TensorRef& out, const kernels::TensorRef& self,
                                          Pieces&& pieces) {
  auto remap = std::make_shared<kernels::Remap>();
  const int64_t item = kernels::ItemSize(out.dtype);
  remap->dtype = out.dtype;
  remap->dims.reserve(static_cast<size_t>(out.rank));
  for (int d = 0; d < out.rank; ++d) {
    remap->dims.push_back({out.sizes[d], out.strides[d] * item, self.strides[d] * item, pieces(d)});
  }
  remap->Finish();
  return remap;
}

void AddRemap(OpCall& call, std::shared_ptr<kernels::Remap> remap) {
  Launch& launch = call.AddLaunch(RunRemapLaunch);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.inputs[0]);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = kGrainElements;
  launch.state = std::move(remap);
}

using Pieces = std::vector<kernels::RemapPiece>;

Pieces WholeDim(int64_t size) { return {{0, size, 0, 1, false}}; }

Pieces RolledDim(int64_t size, int64_t shift) {
  if (shift == 0 || size == 0) return WholeDim(size);
  return {{0, shift, size - shift, 1, false}, {shift, size, 0, 1, false}};
}

enum class PadMode : uint8_t { kConstant, kReflect, kReplicate };

Pieces PaddedDim(PadMode mode, int64_t size, int64_t before, int64_t after) {
  Pieces pieces;
  const int64_t kept = size + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
  const bool is_fill = mode == PadMode::kConstant;
  const bool is_reflect = mode == PadMode::kReflect;
  int64_t at = std::max<int64_t>(before, 0);
  if (before > 0) pieces.push_back({0, before, is_reflect ? before : 0, is_reflect ? -1 : 0, is_fill});
  if (kept > 0) pieces.push_back({at, at + kept, std::max<int64_t>(-before, 0), 1, false});
  at += kept;
  if (after > 0) pieces.push_back({at, at + after, is_reflect ? size - 2 : size - 1, is_reflect ? -1 : 0, is_fill});
  if (pieces.empty()) pieces.push_back({0, 0, 0, 1, false});
  return pieces;
}

// Padding of dim d of a tensor of `rank`; pads begin with the last dim.
struct Pads {
  int64_t before = 0;
  int64_t after = 0;
};
Pads PadsOf(std::span<const int64_t> pads, int d, int rank) {
  const auto i = static_cast<size_t>(2 * (rank - 1 - d));
  return i + 1 < pads.size() ? Pads{pads[i], pads[i + 1]} : Pads{};
}

Status CheckPaddedShape(OpCall& call, std::string_view name) {
  const Operand& self = call.inputs[0];
  const std::span<const int64_t> pads = call.Ints(name);
  Dims shape;
  for (int d = 0; d < self.rank(); ++d) {
    const Pads pad = PadsOf(pads, d, self.rank());
    const int64_t size = self.sizes()[static_cast<size_t>(d)];
    constexpr int64_t kLeast = -(int64_t{1} << 61);
    if (pad.before < kLeast || pad.after < kLeast) return call.Invalid(fmt::format("{} is {}", name, ShapeText(pads)));
    const int64_t cropped = std::min<int64_t>(pad.before, 0) + std::min<int64_t>(pad.after, 0);
    int64_t padded = size;
    if (size + cropped < 0 || __builtin_add_overflow(padded, pad.before, &padded) ||
        __builtin_add_overflow(padded, pad.after, &padded)) {
      return call.Invalid(fmt::format("{} {} takes more from dim {} than the {} it has in {}", name, ShapeText(pads), d,
                                      size, call.InputShapes()));
    }
    shape.push_back(padded);
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the padded shape"; });
}

void AddPad(OpCall& call, std::string_view name, PadMode mode, const kernels::Scalar* value) {
  const kernels::TensorRef self = call.RefOf(call.inputs[0]);
  const kernels::TensorRef out = call.RefOf(call.outputs[0]);
  if (call.outputs[0].tensor->count == 0) return;
  const std::span<const int64_t> pads = call.Ints(name);
  auto remap = MakeRemap(out, self, [&](int d) {
    const Pads pad = PadsOf(pads, d, self.rank);
    return PaddedDim(mode, self.sizes[d], pad.before, pad.after);
  });
  if (value != nullptr) {
    kernels::FindCast(value->dtype, out.dtype)(reinterpret_cast<const char*>(value->bytes), 0, remap->fill, 0, 1);
  }
  AddRemap(call, std::move(remap));
}

// ---- Sequences
// -------------------------------------------------------------------------------------------------------

void RunArange(const Launch& launch, kernels::Range range, const Launch::Memory&) {
  kernels::Arange(launch.scalars[0], launch.scalars[1], launch.refs[0], range);
}

void RunLinspace(const Launch& launch, kernels::Range range, const Launch::Memory&) {
  kernels::Linspace(launch.scalars[0], launch.scalars[1], launch.ints[0], launch.refs[0], range);
}

void RunEye(const Launch& launch, kernels::Range range, const Launch::Memory&) { kernels::Eye(launch.refs[0], range); }

void RunTriangle(const Launch& launch, kernels::Range range, const Launch::Memory&) {
  kernels::Triangle(launch.refs[1], launch.ints[0] != 0, launch.ints[1], launch.refs[0], range);
}

void RunRepeatEach(const Launch& launch, kernels::Range, const Launch::Memory&) {
  kernels::RepeatEach(launch.refs[1], launch.refs[2], launch.refs[0]);
}

void RunUnfold(const Launch& launch, kernels::Range range, const Launch::Memory&) {
  kernels::Unfold(launch.refs[1], launch.State<kernels::UnfoldWindow>(), launch.refs[0], range);
}

void RunSplit(const Launch& launch, kernels::Range range, const Launch::Memory&) {
  const auto d = static_cast<size_t>(launch.ints[0]);
  kernels::TensorRef part = launch.refs[launch.refs.size() - 1];
  const int64_t step = part.strides[d] * kernels::ItemSize(part.dtype);
  int64_t first = 0;
  for (size_t i = 0; i + 1 < launch.refs.size(); ++i) {
    const kernels::TensorRef& out = launch.refs[i];
    const int64_t count = kernels::ElementCount(out);
    part.sizes[d] = out.sizes[d];
    if (count != 0) {
      kernels::Copy(part, out, {std::max<int64_t>(0, range.begin - first), std::min(count, range.end - first)});
    }
    part.data = static_cast<char*>(part.data) + out.sizes[d] * step;
    first += count;
  }
}

Status CheckRealScalars(const OpCall& call, std::initializer_list<std::string_view> names) {
  for (std::string_view name : names) {
    const kernels::Scalar& value = *call.Scalar(name);
    if (kernels::CategoryOf(value.dtype) == kernels::Category::kComplex) {
      return call.Invalid(fmt::format("{} is {}, expected a real number", name, kernels::Name(value.dtype)));
    }
    const auto number = value.As<double>();
    if (number != number || number - number != 0) return call.Invalid(fmt::format("{} is {}", name, number));
  }
  return {};
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

namespace {

// ---- Slices, repetitions, splits, stacks
// -------------------------------------------------------------------------------

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

Status PlanSlice(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const kernels::TensorRef view, SlicedView(call));
  AddCopyOfViews(call, call.RefOf(call.outputs[0]), view);
  return {};
}

Status RepeatShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const std::span<const int64_t> repeats = call.Ints("repeats");
  const auto rank = static_cast<size_t>(self.rank());
  if (repeats.size() < rank) {
    return call.Invalid(
        fmt::format("repeats is {}, expected at least {} entries for {}", ShapeText(repeats), rank, call.InputShapes()),
        "repeats names every dim of self, new ones in front");
  }
  Dims shape;
  for (size_t d = 0; d < repeats.size(); ++d) {
    const size_t own = d + rank - repeats.size();
    int64_t size = d + rank < repeats.size() ? 1 : self.sizes()[own];
    if (repeats[d] < 0 || __builtin_mul_overflow(size, repeats[d], &size)) {
      return call.Invalid(fmt::format("repeats is {}, which cannot be for {}", ShapeText(repeats), call.InputShapes()),
                          "pass no negative or huge numbers");
    }
    shape.push_back(size);
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the repeated shape"; });
}

Status PlanRepeat(OpCall& call) {
  if (call.outputs[0].tensor->count == 0) return {};
  const std::span<const int64_t> repeats = call.Ints("repeats");
  kernels::TensorRef self = call.RefOf(call.inputs[0]);
  kernels::TensorRef out = call.RefOf(call.outputs[0]);
  const int added = out.rank - self.rank;
  CopyDims dims;
  for (int d = 0; d < out.rank; ++d) {
    const int own = d - added;
    const int64_t size = own < 0 ? 1 : self.sizes[own];
    dims.Add(repeats[static_cast<size_t>(d)], out.strides[d] * size, 0);
    dims.Add(size, out.strides[d], own < 0 ? 0 : self.strides[own]);
  }
  if (dims.fits()) {
    dims.Apply(out, self);
    AddCopyOfViews(call, out, self);
    return {};
  }
  kernels::TensorRef wide = out;  // self with the rank of out
  for (int d = 0; d < out.rank; ++d) {
    wide.sizes[d] = d < added ? 1 : self.sizes[d - added];
    wide.strides[d] = d < added ? 0 : self.strides[d - added];
  }
  AddRemap(call, MakeRemap(out, wide, [&](int d) {
             Pieces pieces;
             for (int64_t r = 0; r < repeats[static_cast<size_t>(d)]; ++r) {
               pieces.push_back({r * wide.sizes[d], (r + 1) * wide.sizes[d], 0, 1, false});
             }
             return pieces;
           }));
  return {};
}

Status RepeatEachShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const int64_t repeats = call.Int("repeats");
  const int64_t total = call.Int("outputSize");
  const bool has_dim = call.Has("dim");
  int dim = 0;
  if (has_dim) {
    REPRISE_ASSIGN_OR_RETURN(dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  }
  Dims shape;
  if (has_dim) shape.assign(self.sizes().data(), self.sizes().size());
  if (!has_dim || self.rank() == 0) shape.assign(&self.tensor->count, 1);
  int64_t& size = shape[static_cast<size_t>(dim)];
  if (repeats < 0 || __builtin_mul_overflow(size, repeats, &size)) {
    return call.Invalid(fmt::format("repeats is {}, expected 0 or a moderate number", repeats));
  }
  if (total != size) {
    return call.Invalid(fmt::format("outputSize is {}, expected {}: {} times the size {}", total, size, repeats,
                                    repeats == 0 ? 0 : size / repeats));
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the repeated shape"; });
}

Status PlanRepeatEach(OpCall& call) {
  if (call.outputs[0].tensor->count == 0) return {};
  const int64_t repeats = call.Int("repeats");
  kernels::TensorRef self = call.RefOf(call.inputs[0]);
  kernels::TensorRef out = call.RefOf(call.outputs[0]);
  CopyDims dims;
  if (call.Has("dim") && self.rank != 0) {
    REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank));
    for (int d = 0; d < self.rank; ++d) {
      dims.Add(self.sizes[d], d == dim ? out.strides[d] * repeats : out.strides[d], self.strides[d]);
      if (d == dim) dims.Add(repeats, out.strides[d], 0);
    }
  } else {
    int64_t inside = call.outputs[0].tensor->count;
    for (int d = 0; d < self.rank; ++d) {
      inside /= self.sizes[d];
      dims.Add(self.sizes[d], out.strides[0] * inside, self.strides[d]);
    }
    dims.Add(repeats, out.strides[0], 0);
  }
  if (!dims.fits()) {
    return call.InvalidOperand(
        call.inputs[0],
        fmt::format("has {} dims that cannot be joined, at most {} are possible", self.rank, kernels::kMaxRank - 1),
        "pass a contiguous tensor");
  }
  dims.Apply(out, self);
  AddCopyOfViews(call, out, self);
  return {};
}

Status RepeatByTensorShape(OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand& repeats = call.Get("repeats");
  const int64_t total = call.Int("outputSize");
  if (repeats.rank() > 1 || (repeats.tensor->count != 1 && repeats.tensor->count != self.tensor->count)) {
    return call.InvalidOperand(repeats,
                               fmt::format("has shape {}, expected one entry or [{}], one for each element of {}",
                                           ShapeText(repeats.sizes()), self.tensor->count, call.NameOf(self)));
  }
  if (total < 0) return call.Invalid(fmt::format("outputSize is {}, expected the sum of repeats", total));
  return call.CheckShape(call.outputs[0], {&total, 1}, [] { return "as outputSize says, the shape"; });
}

Status PlanRepeatByTensor(OpCall& call) {
  Launch& launch = call.AddLaunch(RunRepeatEach);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.Get("self"));
  call.Read(launch, call.Get("repeats"));
  launch.units = call.outputs[0].tensor->count == 0 ? 0 : 1;
  return {};
}

Status StackedShape(OpCall& call) {
  if (call.inputs.empty()) return call.Invalid("tensors is an empty list", "pass at least one tensor");
  const Operand& first = call.inputs[0];
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), first.rank() + 1));
  for (const Operand& input : call.inputs) {
    if (std::equal(input.sizes().begin(), input.sizes().end(), first.sizes().begin(), first.sizes().end())) continue;
    return call.InvalidOperand(
        input,
        fmt::format("has shape {}, expected {} as the first", ShapeText(input.sizes()), ShapeText(first.sizes())),
        "tensors to be stacked have one shape");
  }
  Dims shape;
  for (int d = 0; d <= first.rank(); ++d) {
    if (d == dim) shape.push_back(static_cast<int64_t>(call.inputs.size()));
    if (d < first.rank()) shape.push_back(first.sizes()[static_cast<size_t>(d)]);
  }
  return call.CheckShape(call.outputs[0], shape, [] { return "the stacked shape"; });
}

Status PlanStack(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), call.outputs[0].rank()));
  if (call.outputs[0].tensor->count == 0) return {};
  Launch& launch = call.AddLaunch(RunConcat);
  launch.ints.push_back(dim);
  call.Write(launch, call.outputs[0]);
  for (const Operand& input : call.inputs) {
    kernels::TensorRef ref = call.RefOf(input);
    for (int d = ref.rank; d > dim; --d) {
      ref.sizes[d] = ref.sizes[d - 1];
      ref.strides[d] = ref.strides[d - 1];
    }
    ref.sizes[dim] = 1;
    ref.strides[dim] = 0;
    ++ref.rank;
    call.Read(launch, input, ref);
  }
  launch.units = call.outputs[0].tensor->count;
  launch.grain = kGrainElements;
  return {};
}

Status SplitShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  if (self.rank() == 0) return call.InvalidOperand(self, "has rank 0, which cannot be split");
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), self.rank()));
  const std::span<const int64_t> sizes = call.Ints("splitSize");
  const int64_t size = self.sizes()[static_cast<size_t>(dim)];
  int64_t total = 0;
  bool fits = true;
  for (int64_t part : sizes) fits = fits && part >= 0 && !__builtin_add_overflow(total, part, &total);
  if (!fits || total != size) {
    return call.Invalid(fmt::format("splitSize is {}, expected sizes that add up to the {} of dim {} of {}",
                                    ShapeText(sizes), size, dim, call.InputShapes()));
  }
  if (call.outputs.size() != sizes.size()) {
    return call.Invalid(fmt::format("out has {} tensors, splitSize {} entries", call.outputs.size(), sizes.size()),
                        "pass one tensor for each part");
  }
  Dims shape(self.sizes().data(), self.sizes().size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    shape[static_cast<size_t>(dim)] = sizes[i];
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.outputs[i], shape, [] { return "the shape of its part,"; }));
  }
  return {};
}

Status PlanSplit(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const int dim, call.WrapDim("dim", call.Int("dim"), call.inputs[0].rank()));
  Launch& launch = call.AddLaunch(RunSplit);
  launch.ints.push_back(dim);
  for (const Operand& output : call.outputs) call.Write(launch, output);
  call.Read(launch, call.inputs[0]);
  launch.units = call.inputs[0].tensor->count;
  launch.grain = kGrainElements;
  return {};
}

// ---- Padding, flips, rolls
// ---------------------------------------------------------------------------------------------

Status ConstantPadShape(OpCall& call) {
  const std::span<const int64_t> pads = call.Ints("pad");
  if (pads.size() % 2 != 0 || pads.size() > 2 * static_cast<size_t>(call.inputs[0].rank())) {
    return call.Invalid(fmt::format("pad is {}, expected two entries for each padded dim, the last dim first, of {}",
                                    ShapeText(pads), call.InputShapes()));
  }
  return CheckPaddedShape(call, "pad");
}

Status PlanConstantPad(OpCall& call) {
  const kernels::Scalar& value = *call.Scalar("value");
  REPRISE_RETURN_IF_ERROR(CheckNotComplexToReal(call, value.dtype, "value"));
  AddPad(call, "pad", PadMode::kConstant, &value);
  return {};
}

// `code`: 2 * number of padded dims + (1 for replication).
Status MirrorPadShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const int dims = call.op.computation.code / 2;
  const bool is_reflection = call.op.computation.code % 2 == 0;
  const std::span<const int64_t> pads = call.Ints("padding");
  if (pads.size() != 2 * static_cast<size_t>(dims)) {
    return call.Invalid(
        fmt::format("padding is {}, expected {} entries, the last dim first", ShapeText(pads), 2 * dims));
  }
  if (self.rank() != dims + 1 && self.rank() != dims + 2) {
    return call.InvalidOperand(
        self, fmt::format("has shape {}, expected rank {} or {}", ShapeText(self.sizes()), dims + 1, dims + 2));
  }
  for (int d = self.rank() - dims; d < self.rank(); ++d) {
    const int64_t size = self.sizes()[static_cast<size_t>(d)];
    const Pads pad = PadsOf(pads, d, self.rank());
    if (size < 1) return call.InvalidOperand(self, fmt::format("has no elements in dim {}", d));
    if (is_reflection && (pad.before >= size || pad.after >= size)) {
      return call.Invalid(fmt::format("padding is {}, expected less than the {} of dim {} of {}", ShapeText(pads), size,
                                      d, call.InputShapes()));
    }
  }
  return CheckPaddedShape(call, "padding");
}

Status PlanMirrorPad(OpCall& call) {
  AddPad(call, "padding", call.op.computation.code % 2 == 0 ? PadMode::kReflect : PadMode::kReplicate, nullptr);
  return {};
}

Status PlanFlip(OpCall& call) {
  const kernels::TensorRef self = call.RefOf(call.inputs[0]);
  const kernels::TensorRef out = call.RefOf(call.outputs[0]);
  uint32_t flipped = 0;
  for (int64_t dim : call.Ints("dims")) {
    REPRISE_ASSIGN_OR_RETURN(const int d, call.WrapDim("an entry of dims", dim, self.rank));
    if ((flipped >> d & 1) != 0) {
      return call.Invalid(fmt::format("dims {} names dim {} twice", ShapeText(call.Ints("dims")), d),
                          "name each dim once");
    }
    flipped |= 1u << d;
  }
  if (call.outputs[0].tensor->count == 0) return {};
  AddRemap(call, MakeRemap(out, self, [&](int d) {
             if ((flipped >> d & 1) == 0) return WholeDim(self.sizes[d]);
             return Pieces{{0, self.sizes[d], self.sizes[d] - 1, -1, false}};
           }));
  return {};
}

Status PlanRoll(OpCall& call) {
  const Operand& input = call.inputs[0];
  const std::span<const int64_t> shifts = call.Ints("shifts");
  const std::span<const int64_t> dims = call.Ints("dims");
  const kernels::TensorRef self = call.RefOf(input);
  const kernels::TensorRef out = call.RefOf(call.outputs[0]);
  const bool is_flat = dims.empty();
  if (is_flat ? shifts.size() != 1 : shifts.size() != dims.size()) {
    return call.Invalid(fmt::format("shifts is {} and dims is {}", ShapeText(shifts), ShapeText(dims)),
                        "pass one shift for each dim, or one shift and no dims to roll the flattened tensor");
  }
  int64_t by_dim[kernels::kMaxRank] = {};
  const auto wrapped = [](int64_t shift, int64_t size) { return size == 0 ? 0 : (shift % size + size) % size; };
  for (size_t i = 0; i < dims.size(); ++i) {
    REPRISE_ASSIGN_OR_RETURN(const int d, call.WrapDim("an entry of dims", dims[i], self.rank));
    if (self.rank == 0) continue;
    by_dim[d] = wrapped(by_dim[d] + wrapped(shifts[i], self.sizes[d]), self.sizes[d]);
  }
  const int64_t count = input.tensor->count;
  if (count == 0) return {};
  if (!is_flat) {
    AddRemap(call, MakeRemap(out, self, [&](int d) { return RolledDim(self.sizes[d], by_dim[d]); }));
    return {};
  }
  // As one dim; tensors that are not contiguous go through copies that are.
  const bool copies_self = !kernels::IsContiguous(self);
  const bool copies_out = !kernels::IsContiguous(out);
  const kernels::TensorRef from = copies_self ? call.Temporary(self.dtype, input.sizes()) : self;
  const kernels::TensorRef to = copies_out ? call.Temporary(out.dtype, input.sizes()) : out;
  const auto add = [&](const kernels::TensorRef& target, bool is_temporary, const kernels::TensorRef& source,
                       bool from_temporary, Launch::Kernel kernel) -> Launch& {
    Launch& launch = call.AddLaunch(kernel);
    if (is_temporary) {
      call.WriteTemporary(launch, target);
    } else {
      call.Write(launch, call.outputs[0], target);
    }
    if (from_temporary) {
      call.ReadTemporary(launch, source);
    } else {
      call.Read(launch, input, source);
    }
    launch.units = count;
    launch.grain = kGrainElements;
    return launch;
  };
  if (copies_self) add(from, true, self, false, RunCopy);
  const kernels::TensorRef flat = kernels::MakeContiguous(nullptr, self.dtype, {count});
  add(to, copies_out, from, copies_self, RunRemapLaunch).state =
      MakeRemap(flat, flat, [&](int) { return RolledDim(count, wrapped(shifts[0], count)); });
  if (copies_out) add(out, false, to, true, RunCopy);
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
Status PlanTriangle(OpCall& call) {
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

Status PlanFillTensor(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckNotComplexToReal(call, call.Get("value").dtype, "value"));
  return PlanCopy(call);
}

// ---- Sequences
// ---------------------------------------------------------------------------------------------------------

Status EyeShape(OpCall& call) {
  const int64_t shape[2] = {call.Int("n"), call.Int("m")};
  if (shape[0] < 0 || shape[1] < 0) return call.Invalid(fmt::format("n is {} and m is {}", shape[0], shape[1]));
  return call.CheckShape(call.outputs[0], shape, [] { return "n and m,"; });
}

Status PlanEye(OpCall& call) {
  Launch& launch = call.AddLaunch(RunEye);
  call.Write(launch, call.outputs[0]);
  const int64_t columns = call.outputs[0].sizes()[1];
  launch.units = columns == 0 ? 0 : call.outputs[0].sizes()[0];
  launch.grain = GrainOf(columns);
  return {};
}

// `code`: whether the end belongs to the sequence.
Status ArangeShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckRealScalars(call, {"start", "end", "step"}));
  const bool has_end = call.op.computation.code != 0;
  double count = 0;
  const auto start = call.Scalar("start")->As<double>();
  const auto end = call.Scalar("end")->As<double>();
  const auto step = call.Scalar("step")->As<double>();
  if (step == 0) return call.Invalid("step is 0");
  if ((end > start && step < 0) || (end < start && step > 0)) {
    return call.Invalid(fmt::format("step is {}, which does not lead from start {} to end {}", step, start, end));
  }
  if (has_end) {
    count = std::floor((end - start) / step) + 1;
  } else if (call.compute == kernels::DType::kInt64) {
    const auto first = call.Scalar("start")->As<int64_t>();
    const auto last = call.Scalar("end")->As<int64_t>();
    const auto distance = call.Scalar("step")->As<int64_t>();
    if (distance == 0) return call.Invalid("step is 0 as int64");
    const __int128 way = static_cast<__int128>(last) - first;
    count = static_cast<double>(static_cast<int64_t>((way + distance - (distance > 0 ? 1 : -1)) / distance));
  } else {
    count = std::ceil((end - start) / step);
  }
  if (!(count < 9.0e18)) return call.Invalid(fmt::format("the sequence has {} elements", count));
  const auto size = static_cast<int64_t>(count);
  return call.CheckShape(call.outputs[0], {&size, 1}, [&] {
    return fmt::format("for the sequence from {} to {} by {} the shape", start, end, step);
  });
}

Status PlanArange(OpCall& call) {
  Launch& launch = call.AddLaunch(RunArange);
  launch.scalars.push_back(*call.Scalar("start"));
  launch.scalars.push_back(*call.Scalar("step"));
  call.Write(launch, call.outputs[0]);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = kGrainElements;
  return {};
}

Status LinspaceShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckRealScalars(call, {"start", "end"}));
  const int64_t steps = call.Int("steps");
  if (steps < 0) return call.Invalid(fmt::format("steps is {}, expected 0 or more", steps));
  return call.CheckShape(call.outputs[0], {&steps, 1}, [] { return "as steps says, the shape"; });
}

Status PlanLinspace(OpCall& call) {
  Launch& launch = call.AddLaunch(RunLinspace);
  launch.scalars.push_back(*call.Scalar("start"));
  launch.scalars.push_back(*call.Scalar("end"));
  launch.ints.push_back(call.Int("steps"));
  call.Write(launch, call.outputs[0]);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = kGrainElements;
  return {};
}

// ---- Columns of images
// -------------------------------------------------------------------------------------------------

Status ReadWindow(const OpCall& call, kernels::UnfoldWindow& window) {
  const Operand& self = call.inputs[0];
  if (self.rank() != 3 && self.rank() != 4) {
    return call.InvalidOperand(
        self, fmt::format("has shape {}, expected [n, c, h, w] or [c, h, w]", ShapeText(self.sizes())));
  }
  const auto read = [&](std::string_view name, int64_t least, int64_t* values) -> Status {
    const std::span<const int64_t> given = call.Ints(name);
    if (given.size() == 2 && std::min(given[0], given[1]) >= least && std::max(given[0], given[1]) < INT32_MAX) {
      values[0] = given[0];
      values[1] = given[1];
      return {};
    }
    return call.Invalid(fmt::format("{} is {}, expected two values of at least {}", name, ShapeText(given), least));
  };
  REPRISE_RETURN_IF_ERROR(read("kernelSize", 1, window.kernel));
  REPRISE_RETURN_IF_ERROR(read("dilation", 1, window.dilation));
  REPRISE_RETURN_IF_ERROR(read("padding", 0, window.padding));
  REPRISE_RETURN_IF_ERROR(read("stride", 1, window.stride));
  for (int i = 0; i < 2; ++i) {
    const int64_t size = self.sizes()[static_cast<size_t>(self.rank() - 2 + i)];
    const int64_t room = size + 2 * window.padding[i] - window.dilation[i] * (window.kernel[i] - 1) - 1;
    if (room < 0) {
      return call.Invalid(
          fmt::format("the window [{}, {}] with dilation [{}, {}] does not fit {} with padding [{}, {}]",
                      window.kernel[0], window.kernel[1], window.dilation[0], window.dilation[1], call.InputShapes(),
                      window.padding[0], window.padding[1]));
    }
    window.out_size[i] = room / window.stride[i] + 1;
  }
  return {};
}

Status UnfoldShape(OpCall& call) {
  kernels::UnfoldWindow window;
  REPRISE_RETURN_IF_ERROR(ReadWindow(call, window));
  const Operand& self = call.inputs[0];
  const auto c = static_cast<size_t>(self.rank() - 3);
  Dims shape;
  if (self.rank() == 4) shape.push_back(self.sizes()[0]);
  shape.push_back(self.sizes()[c] * window.kernel[0] * window.kernel[1]);
  shape.push_back(window.out_size[0] * window.out_size[1]);
  return call.CheckShape(call.outputs[0], shape, [] { return "one column for each place of the window, the shape"; });
}

Status PlanUnfold(OpCall& call) {
  auto window = std::make_shared<kernels::UnfoldWindow>();
  REPRISE_RETURN_IF_ERROR(ReadWindow(call, *window));
  kernels::TensorRef self = call.RefOf(call.inputs[0]);
  kernels::TensorRef out = call.RefOf(call.outputs[0]);
  const auto add_image_dim = [](kernels::TensorRef& ref) {
    for (int d = ref.rank; d > 0; --d) {
      ref.sizes[d] = ref.sizes[d - 1];
      ref.strides[d] = ref.strides[d - 1];
    }
    ref.sizes[0] = 1;
    ref.strides[0] = 0;
    ++ref.rank;
  };
  if (self.rank == 3) {
    add_image_dim(self);
    add_image_dim(out);
  }
  Launch& launch = call.AddLaunch(RunUnfold);
  call.Write(launch, call.outputs[0], out);
  call.Read(launch, call.inputs[0], self);
  launch.units = call.outputs[0].tensor->count == 0 ? 0 : out.sizes[0] * out.sizes[1];
  launch.grain = GrainOf(out.sizes[2]);
  launch.state = std::move(window);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/movement.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
