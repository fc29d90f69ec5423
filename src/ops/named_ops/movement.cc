// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::Scalar;

// ---- Copies and constants ----

// The elements in their order under another shape.
Status LowerReshape(NamedCall& call) {
  const std::array flat = {CountOf(call.shape())};
  return call.Step(kCopy, {call.inputs[0].view().As(flat), call.OutputView().As(flat)});
}

Status LowerConstants(NamedCall& call) {
  return call.Step(call.op.code == 0 ? kSetZero : kSetOne, {call.OutputView()});
}

Status LowerFills(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Scalar value, ScalarFor(call, "value", call.output().dtype()));
  return call.Step(kFill, {call.OutputView(), value});
}

Status LowerNamedFill(NamedCall& call) {
  return call.Step(kSpread, {call.OutputView(), call.Input("value").view().As({})});
}

Status LowerAssign(NamedCall& call) { return call.Step(kSpread, {call.OutputView(), call.Input("value").view()}); }

Status LowerBroadcast(NamedCall& call) { return call.Step(kSpread, {call.OutputView(), call.Input("x").view()}); }

// ---- Order of the dims ----

Status LowerTranspose(NamedCall& call) {
  const std::string_view name = call.op.type == "Permute" ? "order" : "perm";
  REPRISE_ASSIGN_OR_RETURN(std::vector<int64_t> perm, DimsOf(call, name));
  return call.Step(kPermute, {call.inputs[0].view(), std::move(perm), call.OutputView()});
}

// ---- Joining and splitting ----

Status LowerJoin(NamedCall& call) {
  const std::span<const NamedTensor> list = call.List("x");
  const bool is_pack = call.op.type == "Pack";
  const std::string_view name = is_pack ? "axis" : "concat_dim";
  REPRISE_ASSIGN_OR_RETURN(const int64_t dim, DimOf(call, name, call.shape().size()));
  std::vector<StridedView> views;
  for (const NamedTensor& input : list) {
    std::vector<int64_t> sizes = input.dims;
    if (is_pack) sizes.insert(sizes.begin() + dim, 1);
    if (sizes.empty()) sizes = {1};  // what Concat makes of a number
    views.push_back(input.view().As(sizes));
  }
  return call.Step(kConcat, {std::move(views), dim, call.OutputView()});
}

// Inference has found out the size that is given as -1.
Status LowerSplit(NamedCall& call) {
  const NamedTensor& x = call.Input("x");
  REPRISE_ASSIGN_OR_RETURN(const int64_t dim, DimOf(call, "split_dim", x.dims.size()));
  std::vector<int64_t> sizes;
  std::vector<StridedView> parts;
  for (const NamedTensor& part : call.OutputList("y")) {
    sizes.push_back(part.dims[static_cast<size_t>(dim)]);
    parts.push_back(part.view());
  }
  return call.Step(Routine::Of("aclnnSplitWithSize"), {x.view(), std::move(sizes), dim, std::move(parts)});
}

// The slices along a dim, each a part of size 1.
Status LowerUnpack(NamedCall& call) {
  const NamedTensor& x = call.Input("x");
  REPRISE_ASSIGN_OR_RETURN(const int64_t dim, DimOf(call, "axis", x.dims.size()));
  std::vector<int64_t> sizes = x.dims;
  sizes[static_cast<size_t>(dim)] = 1;
  std::vector<StridedView> parts;
  for (const NamedTensor& part : call.OutputList("y")) parts.push_back(part.view().As(sizes));
  if (parts.empty()) return {};
  return StepOf(call, "aclnnSplitWithSize", {x.view(), std::vector<int64_t>(parts.size(), 1), dim, std::move(parts)});
}

// ---- Views ----

// A view of a tensor's memory by numbers that are known at the call.
StatusOr<StridedView> ViewBy(const NamedCall& call, const NamedTensor& tensor, std::string_view prefix) {
  const std::string names[3] = {fmt::format("{}size", prefix), fmt::format("{}stride", prefix),
                                fmt::format("{}storage_offset", prefix)};
  const std::vector<int64_t> sizes = *call.context.Numbers(names[0]);
  const std::vector<int64_t> strides = *call.context.Numbers(names[1]);
  const std::vector<int64_t> offset = *call.context.Numbers(names[2]);
  const auto wrong = [&](int which, std::string text) {
    return call.WrongInput(call.Input(names[which]), std::move(text), "pass the sizes, strides and offset of a view");
  };
  if (sizes.size() > kernels::kMaxRank) return wrong(0, fmt::format("has {} dims", sizes.size()));
  if (strides.size() != sizes.size()) {
    return wrong(1, fmt::format("has {} strides for {} dims", strides.size(), sizes.size()));
  }
  if (offset.size() != 1 || offset[0] < 0) return wrong(2, fmt::format("is {}", ShapeText(offset)));
  const int64_t count = CountOf(tensor.dims);
  const bool is_empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  __int128 last = offset[0];
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0) return wrong(0, fmt::format("is {}", ShapeText(sizes)));
    if (strides[d] < 0) return wrong(1, fmt::format("is {}", ShapeText(strides)));
    // Looked at before the next dim is added, so that no sum overflows.
    if (last < count) last += static_cast<__int128>(std::max<int64_t>(0, sizes[d] - 1)) * strides[d];
  }
  if (!is_empty && last >= count) {
    return call.WrongInput(tensor,
                           fmt::format("has {} elements, too few for a view of sizes {}, strides {} and offset {}",
                                       count, ShapeText(sizes), ShapeText(strides), offset[0]),
                           "pass a view that lies within the tensor");
  }
  StridedView view = tensor.view();
  view.data = Behind(view.data, is_empty ? 0 : offset[0], view.dtype);
  view.sizes.assign(sizes.data(), sizes.size());
  view.strides.assign(strides.data(), strides.size());
  return view;
}

Status LowerAsStrided(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const StridedView view, ViewBy(call, call.Input("x"), ""));
  return call.Step(kCopy, {view, call.OutputView()});
}

Status LowerViewCopy(NamedCall& call) {
  REPRISE_RETURN_IF_ERROR(call.InPlace("dst").status());
  REPRISE_ASSIGN_OR_RETURN(const StridedView to, ViewBy(call, call.Output("dst"), "dst_"));
  REPRISE_ASSIGN_OR_RETURN(const StridedView from, ViewBy(call, call.Input("src"), "src_"));
  return call.Step(kSpread, {to, from});
}

Status LowerTile(NamedCall& call) {
  std::vector<int64_t> repeats = *call.context.Numbers("multiples");
  while (repeats.size() < call.shape().size()) repeats.insert(repeats.begin(), 1);
  return StepOf(call, "aclnnRepeat", {call.Input("x").view(), std::move(repeats), call.OutputView()});
}

// The same bytes.
Status LowerBitcast(NamedCall& call) {
  const auto bytes_of = [](const NamedTensor& tensor) {
    const std::array count = {CountOf(tensor.dims) * kernels::ItemSize(tensor.dtype())};
    return StridedView::Of(kernels::DType::kUInt8, count, tensor.data);
  };
  return call.Step(kCopy, {bytes_of(call.inputs[0]), bytes_of(call.output())});
}

// ---- Slices ----

// One dim of a slice: elements begin, begin + stride …; gone dims are not part of the result.
struct Slice {
  int64_t begin = 0, count = 0, stride = 1;
};

int64_t PlaceOf(int64_t place, int64_t size, int64_t stride) {
  if (place < 0 && place >= -size) place += size;
  return stride > 0 ? std::clamp<int64_t>(place, 0, size) : std::clamp<int64_t>(place, -1, size - 1);
}

bool HasBit(int64_t mask, size_t bit) { return bit < 63 && (mask >> bit & 1) != 0; }

// By dim of x. Inference has checked the numbers.
std::vector<Slice> SlicesOf(const NamedCall& call, const std::vector<int64_t>& sizes) {
  const std::vector<int64_t> begin = *call.context.Numbers("begin");
  const std::vector<int64_t> end = *call.context.Numbers("end");
  const std::optional<std::vector<int64_t>> axes = call.context.Numbers("axes");
  const std::optional<std::vector<int64_t>> strides = call.context.Numbers("strides");
  const int64_t ellipsis = call.context.Int("ellipsis_mask");
  const int64_t fresh = call.context.Int("new_axis_mask");
  const int64_t shrink = call.context.Int("shrink_axis_mask");
  std::vector<Slice> slices(sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d) slices[d].count = sizes[d];
  size_t taken = 0;  // entries that stand for a dim
  for (size_t i = 0; i < begin.size(); ++i) taken += HasBit(ellipsis, i) || HasBit(fresh, i) ? 0 : 1;
  const bool by_place = !axes.has_value() || axes->empty();
  size_t dim = 0;
  for (size_t i = 0; i < begin.size(); ++i) {
    if (by_place && HasBit(ellipsis, i)) {
      dim += sizes.size() - std::min(sizes.size(), taken);
      continue;
    }
    if (by_place && HasBit(fresh, i)) continue;
    if (by_place && dim >= sizes.size()) break;
    const int64_t axis = by_place ? static_cast<int64_t>(dim++) : (*axes)[i];
    const auto d = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(sizes.size()) : axis);
    const int64_t size = sizes[d];
    Slice& slice = slices[d];
    if (HasBit(shrink, i)) {
      slice = {begin[i] < 0 ? begin[i] + size : begin[i], 1, 1};
      continue;
    }
    slice.stride = strides.has_value() && !strides->empty() ? (*strides)[i] : 1;
    slice.begin = HasBit(call.context.Int("begin_mask"), i) ? (slice.stride > 0 ? 0 : size - 1)
                                                            : PlaceOf(begin[i], size, slice.stride);
    const int64_t stop =
        HasBit(call.context.Int("end_mask"), i) ? (slice.stride > 0 ? size : -1) : PlaceOf(end[i], size, slice.stride);
    const int64_t span = slice.stride > 0 ? stop - slice.begin : slice.begin - stop;
    const int64_t step = slice.stride > 0 ? slice.stride : -std::max(slice.stride, -INT64_MAX);
    slice.count = span <= 0 ? 0 : (span - 1) / step + 1;
  }
  return slices;
}

// Slices that run backwards are taken forwards and turned round.
Status LowerStridedSlice(NamedCall& call) {
  const NamedTensor& x = call.Input("x");
  if (CountOf(call.shape()) == 0) return {};
  StridedView view = x.view();
  std::vector<int64_t> turned;
  const std::vector<Slice> slices = SlicesOf(call, x.dims);
  for (size_t d = 0; d < slices.size(); ++d) {
    const auto& [begin, count, stride] = slices[d];
    const bool is_turned = stride < 0 && count > 1;
    if (is_turned) turned.push_back(static_cast<int64_t>(d));
    view = Narrowed(std::move(view), d, is_turned ? begin + (count - 1) * stride : begin, count);
    if (count > 1) view.strides[d] *= stride < 0 ? -stride : stride;
  }
  const StridedView out = call.OutputView().As(view.sizes);
  return turned.empty() ? call.Step(kCopy, {view, out}) : StepOf(call, "aclnnFlip", {view, std::move(turned), out});
}

// ---- Numbers ----

Status LowerShape(NamedCall& call) {
  const std::vector<int64_t>& dims = call.Input("x").dims;
  return call.Step(kCopy, {call.Numbers(kernels::DType::kInt64, call.shape(), dims.data()), call.OutputView()});
}

// start + i * (stop - start) / (num - 1); both ends may be known only on the device.
Status LowerLinSpace(NamedCall& call) {
  const StridedView out = call.OutputView();
  const int64_t count = out.sizes[0];
  if (call.Input("start").has_constant && call.Input("stop").has_constant) {
    return StepAsFunction(call, "aclnnLinspace", "$start $stop #num =");
  }
  if (count == 0) return {};
  REPRISE_ASSIGN_OR_RETURN(const StridedView start, OneNumber(call, "start"));
  REPRISE_ASSIGN_OR_RETURN(const StridedView stop, OneNumber(call, "stop"));
  const StridedView step = call.Temporary(out.dtype, {});
  REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(kCodeSub), {stop, start, step}));
  REPRISE_RETURN_IF_ERROR(call.Step(
      kMulScalar, {step, Scalar::Of<double>(1.0 / static_cast<double>(std::max<int64_t>(1, count - 1))), step}));
  const StridedView places = call.Temporary(out.dtype, out.sizes);
  REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnArange",
                                 {Scalar::Of<int64_t>(0), Scalar::Of<int64_t>(count), Scalar::Of<int64_t>(1), places}));
  REPRISE_RETURN_IF_ERROR(call.Step(BinaryRoutine(kCodeMul), {places, step, places}));
  return call.Step(kAdd, {places, start, out});
}

// Between formats that are plain memory of one shape.
Status LowerTransData(NamedCall& call) {
  const std::string from = call.context.Text("src_format");
  const std::string to = call.context.Text("dst_format");
  const auto is_plain = [](const std::string& name) { return name == "ND" || name.starts_with("FRACTAL_NZ"); };
  if (from == to || (is_plain(from) && is_plain(to))) return LowerNamedCopy(call);
  return call.context.WrongAttribute("dst_format", fmt::format("is {}, to which nothing converts {}", to, from),
                                     "permute the dims with Transpose");
}

constexpr NamedOp kMovementRows[] = {
    MovesBits({"AsStrided", {}, LowerAsStrided}),
    MovesBits({"Assign", kAllTypes, LowerAssign}),
    {"AssignAdd", kArithmetic, LowerNamedBinary, kCodeAdd},
    {"AssignSub", kArithmetic, LowerNamedBinary, kCodeSub},
    MovesBits({"Bitcast", {}, LowerBitcast}),
    MovesBits({"BroadcastTo", kAllTypes, LowerBroadcast}),
    {"BroadcastToD", kAllTypes, LowerBroadcast},
    {"Concat", kAllTypes, LowerJoin},
    {"ConcatD", kAllTypes, LowerJoin},
    MovesBits({"ConcatV2", kAllTypes, LowerJoin}),
    {"ConcatV2D", kAllTypes, LowerJoin},
    {"Empty", kAllTypes, LowerConstants, 0},
    {"EnsureShape", {}, LowerNamedCopy},
    MovesBits({"Expand", kAllTypes, LowerBroadcast}),
    {"ExpandD", kAllTypes, LowerBroadcast},
    MovesBits({"ExpandDims", kAllTypes, LowerReshape}),
    {"Fill", kAllTypes, LowerNamedFill},
    {"FillD", kAllTypes, LowerNamedFill},
    {"Fills", kRealTypes, LowerFills},
    {"Flatten", kAllTypes, LowerReshape},
    MovesBits({"FlattenV2", kAllTypes, LowerReshape}),
    MovesBits({"Identity", kAllTypes, LowerNamedCopy}),
    {"LinSpace", {}, LowerLinSpace},
    As("OneHot", kIndexTypes, "aclnnOneHot", "x #depth on_value off_value @axis ="),
    As("OneHotD", {}, "aclnnOneHot", "x #depth on_value off_value @axis ="),
    {"OnesLike", kAllTypes, LowerConstants, 1},
    MovesBits({"Pack", kAllTypes, LowerJoin}),
    MovesBits({"Permute", kAllTypes, LowerTranspose}),
    As("Range", {}, "aclnnArange", "$start $limit $delta ="),
    MovesBits({"Reshape", kAllTypes, LowerReshape}),
    As("ReverseV2", {}, "aclnnFlip", "x #axis ="),
    As("ReverseV2D", {}, "aclnnFlip", "x #axis ="),
    As("Roll", kAllTypes, "aclnnRoll", "x @shifts @dims ="),
    As("RollV2", {}, "aclnnRoll", "input #shift #axes ="),
    {"Shape", {}, LowerShape},
    {"Split", kAllTypes, LowerSplit},
    {"SplitD", kAllTypes, LowerSplit},
    MovesBits({"SplitV", kAllTypes, LowerSplit}),
    {"SplitVD", kAllTypes, LowerSplit},
    MovesBits({"Squeeze", kAllTypes, LowerReshape}),
    MovesBits({"SqueezeV2", kAllTypes, LowerReshape}),
    MovesBits({"SqueezeV3", kAllTypes, LowerReshape}),
    {"StopGradient", {}, LowerNamedCopy},
    {"StridedSlice", {}, LowerStridedSlice},
    {"StridedSliceD", {}, LowerStridedSlice},
    MovesBits({"StridedSliceV2", {}, LowerStridedSlice}),
    MovesBits({"TensorMove", kAllTypes, LowerNamedCopy}),
    MovesBits({"Tile", {}, LowerTile}),
    {"TileD", {}, LowerTile},
    {"TransData", {}, LowerTransData},
    MovesBits({"Transpose", kAllTypes, LowerTranspose}),
    {"TransposeD", kAllTypes, LowerTranspose},
    As("Tril", {}, "aclnnTril", "x @diagonal ="),
    As("Triu", {}, "aclnnTriu", "x @diagonal ="),
    MovesBits({"Unpack", {}, LowerUnpack}),
    MovesBits({"Unsqueeze", kAllTypes, LowerReshape}),
    MovesBits({"UnsqueezeV2", kAllTypes, LowerReshape}),
    MovesBits({"UnsqueezeV3", kAllTypes, LowerReshape}),
    MovesBits({"ViewCopy", {}, LowerViewCopy}),
    {"ZerosLike", kAllTypes, LowerConstants, 0},
};

}  // namespace

std::span<const NamedOp> MovementRows() { return kMovementRows; }

}  // namespace reprise::ops::named
