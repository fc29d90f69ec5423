// SPDX-License-Identifier: Apache-2.0
//
// Parts of tensors by lists of places, and sums of segments. A place out of range is read and written as
// aclnnIndex and aclnnIndexPutImpl do it.
#include <array>

#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

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
    {"UnsortedSegmentSum", kArithmetic, LowerSegmentSum},
};

}  // namespace

std::span<const NamedOp> PlaceRows() { return kPlaceRows; }

}  // namespace reprise::ops::named
