// SPDX-License-Identifier: Apache-2.0
//
// Parts of tensors by lists of places, and sums of segments. A place out of range is read and written as
// aclnnIndex and aclnnIndexPutImpl do it.
#include <array>
#include <limits>

#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

using kernels::DType;
using kernels::Scalar;

// Rows of places: how many there are, one view for each dim that they name, and the dims behind those.
struct Places {
  int64_t rows = 0;
  std::vector<StridedView> columns;
  std::vector<int64_t> rest;

  /// [rows, rest]
  std::vector<int64_t> sizes() const {
    std::vector<int64_t> all = {rows};
    all.insert(all.end(), rest.begin(), rest.end());
    return all;
  }
};

// indices [.., k]: places in the first k dims of the target.
StatusOr<Places> PlacesIn(const NamedCall& call, const std::vector<int64_t>& target) {
  const NamedTensor& indices = call.Input("indices");
  const int64_t width = indices.dims.empty() ? 1 : indices.dims.back();
  if (width > static_cast<int64_t>(target.size())) {
    return call.WrongInput(indices, fmt::format("has rows of {} places for {} dims", width, target.size()),
                           "give one place for each of the first dims");
  }
  Places out;
  out.rows = 1;
  for (size_t d = 0; d + 1 < indices.dims.size(); ++d) out.rows *= indices.dims[d];
  for (int64_t column = 0; column < width; ++column) {
    StridedView view = indices.view().As(std::array{out.rows});
    view.data = Behind(view.data, column, view.dtype);
    view.strides[0] = width;
    out.columns.push_back(std::move(view));
  }
  out.rest.assign(target.begin() + width, target.end());
  return out;
}

// indices of any shape: places in the first dim.
StatusOr<Places> SlicesIn(const NamedCall& call, const std::vector<int64_t>& target) {
  const NamedTensor& indices = call.Input("indices");
  if (target.empty()) return call.WrongInput(call.Input("var"), "has no dims", "pass a tensor that has slices");
  Places out;
  out.rows = CountOf(indices.dims);
  out.columns.push_back(indices.view().As(std::array{out.rows}));
  out.rest.assign(target.begin() + 1, target.end());
  return out;
}

Status LowerGatherNd(NamedCall& call) {
  if (CountOf(call.shape()) == 0) return {};
  const StridedView x = call.Input("x").view();
  REPRISE_ASSIGN_OR_RETURN(Places places, PlacesIn(call, call.Input("x").dims));
  const StridedView out = call.OutputView().As(places.sizes());
  if (places.columns.empty()) return call.Step(kSpread, {out, x});
  return StepWith(call, "aclnnIndex", {{"self", x}, {"indices", std::move(places.columns)}, {"out", out}});
}

// What happens to the elements at the places.
enum Write : int { kPut, kAccumulate, kTake };

// The updates into `target`, whose elements are there.
Status WriteTo(NamedCall& call, const StridedView& target, Places places, std::string_view name, int write) {
  const NamedTensor& input = call.Input(name);
  const std::vector<int64_t> sizes = places.sizes();
  if (CountOf(input.dims) != CountOf(sizes)) {
    return call.WrongInput(input,
                           fmt::format("has {} elements, the places take {}", CountOf(input.dims), CountOf(sizes)),
                           "pass one part for each row of indices");
  }
  if (CountOf(sizes) == 0) return {};
  StridedView updates = input.view().As(sizes);
  if (write == kTake) {
    const StridedView negative = call.Temporary(updates.dtype, sizes);
    REPRISE_RETURN_IF_ERROR(call.Step(UnaryRoutine(kCodeNeg), {updates, negative}));
    updates = negative;
  }
  if (places.columns.empty()) {  // the whole tensor, once for each row
    if (places.rows != 1) return call.WrongInput(call.Input("indices"), "names no dim", "give one place at least");
    return write == kPut ? call.Step(kSpread, {target, updates.As(target.sizes)})
                         : call.Step(kAdd, {target, updates.As(target.sizes), target});
  }
  return StepWith(call, "aclnnIndexPutImpl",
                  {{"selfRef", target},
                   {"indices", std::move(places.columns)},
                   {"values", updates},
                   {"accumulate", write != kPut},
                   {"unsafe", false}});
}

Status LowerScatterNd(NamedCall& call) {
  const StridedView out = call.OutputView();
  REPRISE_RETURN_IF_ERROR(call.Step(kSetZero, {out}));
  REPRISE_ASSIGN_OR_RETURN(Places places, PlacesIn(call, call.shape()));
  return WriteTo(call, out, std::move(places), "x", kAccumulate);
}

Status LowerScatterSlices(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const StridedView var, call.InPlace("var"));
  REPRISE_ASSIGN_OR_RETURN(Places places, SlicesIn(call, call.Input("var").dims));
  return WriteTo(call, var, std::move(places), "updates", call.op.code);
}

Status LowerScatterNdWrite(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const StridedView var, call.InPlace("var"));
  REPRISE_ASSIGN_OR_RETURN(Places places, PlacesIn(call, call.Input("var").dims));
  return WriteTo(call, var, std::move(places), "updates", call.op.code);
}

Status LowerTensorScatter(NamedCall& call) {
  const StridedView out = call.OutputView();
  REPRISE_RETURN_IF_ERROR(call.Step(kCopy, {call.Input("x").view(), out}));
  REPRISE_ASSIGN_OR_RETURN(Places places, PlacesIn(call, call.shape()));
  return WriteTo(call, out, std::move(places), "updates", call.op.code);
}

Status LowerSegmentSum(NamedCall& call) {
  const StridedView out = call.OutputView();
  REPRISE_RETURN_IF_ERROR(call.Step(kSetZero, {out}));
  const NamedTensor& x = call.Input("x");
  if (CountOf(x.dims) == 0 || CountOf(out.sizes) == 0) return {};
  const StridedView ids = call.Input("segment_ids").view();
  const std::array<int64_t, 1> rows = {CountOf(ids.sizes)};
  const std::array<int64_t, 2> slices = {rows[0], CountOf(x.dims) / rows[0]};
  const StridedView sums = out.As(std::array{out.sizes[0], slices[1]});
  return StepWith(call, "aclnnIndexAdd",
                  {{"self", sums},
                   {"dim", int64_t{0}},
                   {"index", ids.As(rows)},
                   {"source", x.view().As(slices)},
                   {"alpha", Scalar::Of<int64_t>(1)},
                   {"out", sums}});
}

// What aclnnScatterReduce calls its reductions.
enum SegmentReduction : int { kProduct = 2, kLargest = 3, kLeast = 4 };

template <class T>
Scalar LimitOf(bool is_largest) {
  return Scalar::Of<T>(is_largest ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max());
}

// What a segment without slices is: the least number of the type for the largest slice, and the other way round.
Scalar EmptySegment(DType type, int reduction) {
  if (reduction == kProduct) return Scalar::Of<int64_t>(1);
  const bool is_largest = reduction == kLargest;
  const double sign = is_largest ? -1 : 1;
  switch (type) {
    case DType::kFloat16: return Scalar::Of<double>(sign * 65504);
    case DType::kBFloat16: return Scalar::Of<double>(sign * 0x1.FEp127);
    case DType::kFloat: return Scalar::Of<double>(sign * static_cast<double>(std::numeric_limits<float>::max()));
    case DType::kDouble: return LimitOf<double>(is_largest);
    case DType::kInt8: return LimitOf<int8_t>(is_largest);
    case DType::kUInt8: return LimitOf<uint8_t>(is_largest);
    case DType::kInt16: return LimitOf<int16_t>(is_largest);
    case DType::kInt32: return LimitOf<int32_t>(is_largest);
    default: return LimitOf<int64_t>(is_largest);
  }
}

// Slices of a segment below 0 count nowhere: they go to a row behind the last one.
Status LowerSegmentReduction(NamedCall& call) {
  const StridedView out = call.OutputView();
  const NamedTensor& x = call.Input("x");
  const Scalar first = EmptySegment(out.dtype, call.op.code);
  if (CountOf(x.dims) == 0 || CountOf(out.sizes) == 0) return call.Step(kFill, {out, first});
  const StridedView ids = call.Input("segment_ids").view();
  const std::array<int64_t, 1> count = {CountOf(ids.sizes)};
  const std::array<int64_t, 2> slices = {count[0], CountOf(x.dims) / count[0]};
  const std::array<int64_t, 2> sizes = {out.sizes[0] + 1, slices[1]};
  const StridedView begin = call.Temporary(out.dtype, sizes);
  const StridedView result = call.Temporary(out.dtype, sizes);
  const StridedView line = call.Temporary(ids.dtype, count);
  StridedView places = line.As(slices);
  places.strides[0] = 1;
  places.strides[1] = 0;
  REPRISE_RETURN_IF_ERROR(call.Step(kFill, {begin, first}));
  REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnClampMin", {ids.As(count), Scalar::Of<int64_t>(-1), line}));
  REPRISE_RETURN_IF_ERROR(StepWith(call, "aclnnScatterReduce",
                                   {{"self", begin},
                                    {"dim", int64_t{0}},
                                    {"index", places},
                                    {"src", x.view().As(slices)},
                                    {"reduce", int64_t{call.op.code}},
                                    {"includeSelf", true},
                                    {"out", result}}));
  return CopyTo(call, Narrowed(result, 0, 0, out.sizes[0]), out.As(std::array{out.sizes[0], slices[1]}));
}

constexpr NamedOp kPlaceRows[] = {
    {"GatherNd", kAllTypes, LowerGatherNd},
    {"ScatterAdd", kArithmetic, LowerScatterSlices, kAccumulate},
    {"ScatterNd", {}, LowerScatterNd},
    {"ScatterNdAdd", kArithmetic, LowerScatterNdWrite, kAccumulate},
    {"ScatterNdSub", kArithmetic, LowerScatterNdWrite, kTake},
    {"ScatterSub", kArithmetic, LowerScatterSlices, kTake},
    {"ScatterUpdate", kAllTypes, LowerScatterSlices, kPut},
    {"TensorScatterAdd", kArithmetic, LowerTensorScatter, kAccumulate},
    {"TensorScatterSub", kArithmetic, LowerTensorScatter, kTake},
    {"TensorScatterUpdate", kAllTypes, LowerTensorScatter, kPut},
    {"UnsortedSegmentMax", kRealTypes, LowerSegmentReduction, kLargest},
    {"UnsortedSegmentMaxD", kRealTypes, LowerSegmentReduction, kLargest},
    {"UnsortedSegmentMin", kRealTypes, LowerSegmentReduction, kLeast},
    {"UnsortedSegmentMinD", kRealTypes, LowerSegmentReduction, kLeast},
    {"UnsortedSegmentProd", kRealTypes, LowerSegmentReduction, kProduct},
    {"UnsortedSegmentProdD", kRealTypes, LowerSegmentReduction, kProduct},
    {"UnsortedSegmentSum", kArithmetic, LowerSegmentSum},
    {"UnsortedSegmentSumD", kArithmetic, LowerSegmentSum},
};

}  // namespace

std::span<const NamedOp> PlaceRows() { return kPlaceRows; }

}  // namespace reprise::ops::named
