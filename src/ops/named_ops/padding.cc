// SPDX-License-Identifier: Apache-2.0
//
// Borders: PadV3, MirrorPad and the gradient of the former.
#include <algorithm>

#include "ops/named_ops/settings.h"
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

enum class Border : uint8_t { kConstant, kReflect, kEdge, kSymmetric };

// How many elements a dim gets at its two ends; fewer than none cut some off.
struct Margins {
  int64_t front = 0, back = 0;
};

StatusOr<Border> BorderOf(const NamedCall& call) {
  if (call.context.op.FindAttribute("mode") == nullptr) return Border::kConstant;
  std::string mode = call.context.Text("mode");
  std::transform(mode.begin(), mode.end(), mode.begin(), [](unsigned char c) { return std::tolower(c); });
  if (mode == "reflect") return Border::kReflect;
  if (call.op.type == "MirrorPad") {
    if (mode == "symmetric") return Border::kSymmetric;
  } else {
    if (mode == "constant") return Border::kConstant;
    if (mode == "edge" || mode == "replicate") return Border::kEdge;
  }
  return call.context.WrongAttribute(
      "mode", fmt::format("is '{}'", call.context.Text("mode")),
      call.op.type == "MirrorPad" ? "set it to REFLECT or SYMMETRIC" : "set it to constant, reflect or edge");
}

// By dim. The numbers are pairs, or all in front before all behind.
StatusOr<std::vector<Margins>> MarginsOf(const NamedCall& call, size_t rank) {
  const std::vector<int64_t> numbers = *call.context.Numbers("paddings");
  const bool is_paired =
      call.context.op.FindAttribute("paddings_contiguous") == nullptr || call.context.Bool("paddings_contiguous");
  // Sums of those that cancel out would overflow.
  constexpr int64_t kMost = int64_t{1} << 40;
  for (const int64_t number : numbers) {
    if (number >= -kMost && number <= kMost) continue;
    return call.WrongInput(call.Input("paddings"), fmt::format("has {} among its numbers", number), "pad by less");
  }
  std::vector<Margins> margins(rank);
  for (size_t d = 0; d < rank; ++d) {
    margins[d] = is_paired ? Margins{numbers[2 * d], numbers[2 * d + 1]} : Margins{numbers[d], numbers[rank + d]};
  }
  return margins;
}

// The border repeats elements, which have to be there.
Status CheckMargins(const NamedCall& call, Border border, const Margins& margins, size_t dim, int64_t size) {
  const int64_t most = border == Border::kReflect ? size - 1 : border == Border::kSymmetric ? size : INT64_MAX;
  const bool repeats_nothing = border == Border::kEdge && size == 0;
  if (margins.front <= most && margins.back <= most && !repeats_nothing) return {};
  return call.WrongInput(call.Input("paddings"),
                         fmt::format("adds {} and {} elements to dim {} of {}, which has too few to mirror or repeat",
                                     margins.front, margins.back, dim, size),
                         "pad by less");
}

// What lies in front of a dim, or behind it, made from its elements.
StatusOr<StridedView> BorderFrom(NamedCall& call, Border border, const StridedView& x, size_t dim, int64_t count,
                                 bool is_front) {
  const int64_t size = x.sizes[dim];
  if (border == Border::kEdge) {
    StridedView edge = Narrowed(x, dim, is_front ? 0 : size - 1, 1);
    edge.sizes[dim] = count;
    edge.strides[dim] = 0;
    return edge;
  }
  const int64_t skipped = border == Border::kReflect ? 1 : 0;
  const StridedView source = Narrowed(x, dim, is_front ? skipped : size - skipped - count, count);
  const StridedView mirrored = call.Temporary(x.dtype, source.sizes);
  REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnFlip", {source, std::vector{static_cast<int64_t>(dim)}, mirrored}));
  return mirrored;
}

// Without what negative margins cut off.
StridedView Cut(const StridedView& x, size_t dim, const Margins& margins) {
  const int64_t front = std::max<int64_t>(0, -margins.front);
  const int64_t back = std::max<int64_t>(0, -margins.back);
  return Narrowed(x, dim, front, std::max<int64_t>(0, x.sizes[dim] - front - back));
}

Status PadWithConstant(NamedCall& call, StridedView x, const std::vector<Margins>& margins) {
  StridedView out = call.OutputView();
  if (call.Has("constant_values")) {
    REPRISE_ASSIGN_OR_RETURN(const StridedView value, OneNumber(call, "constant_values"));
    REPRISE_RETURN_IF_ERROR(call.Step(kSpread, {out, value}));
  } else {
    REPRISE_RETURN_IF_ERROR(call.Step(kSetZero, {out}));
  }
  for (size_t d = 0; d < margins.size(); ++d) {
    x = Cut(x, d, margins[d]);
    out = Narrowed(out, d, std::max<int64_t>(0, margins[d].front), x.sizes[d]);
  }
  return CountOf(x.sizes) == 0 ? Status() : call.Step(kSpread, {out, x});
}

Status LowerPad(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Border border, BorderOf(call));
  StridedView x = call.Input("x").view();
  REPRISE_ASSIGN_OR_RETURN(const std::vector<Margins> margins, MarginsOf(call, x.sizes.size()));
  if (CountOf(call.shape()) == 0) return {};
  if (border == Border::kConstant) return PadWithConstant(call, std::move(x), margins);
  for (size_t d = 0; d < margins.size(); ++d) {
    const auto& [front, back] = margins[d];
    if (front == 0 && back == 0) continue;
    REPRISE_RETURN_IF_ERROR(CheckMargins(call, border, margins[d], d, x.sizes[d]));
    std::vector<StridedView> parts;
    if (front > 0) {
      REPRISE_ASSIGN_OR_RETURN(StridedView part, BorderFrom(call, border, x, d, front, true));
      parts.push_back(std::move(part));
    }
    parts.push_back(Cut(x, d, margins[d]));
    if (back > 0) {
      REPRISE_ASSIGN_OR_RETURN(StridedView part, BorderFrom(call, border, x, d, back, false));
      parts.push_back(std::move(part));
    }
    std::vector<int64_t> sizes(x.sizes.begin(), x.sizes.end());
    sizes[d] += front + back;
    const StridedView joined = call.Temporary(x.dtype, sizes);
    REPRISE_RETURN_IF_ERROR(call.Step(kConcat, {std::move(parts), static_cast<int64_t>(d), joined}));
    x = joined;
  }
  return call.Step(kCopy, {x, call.OutputView()});
}

// Adds the gradient of a border to that of the elements that it repeats.
Status AddBorder(NamedCall& call, Border border, const StridedView& grad, const StridedView& sums, size_t dim,
                 bool is_front) {
  const int64_t size = sums.sizes[dim];
  const int64_t count = grad.sizes[dim];
  const std::vector<int64_t> dims = {static_cast<int64_t>(dim)};
  if (border == Border::kEdge) {
    const StridedView edge = Narrowed(sums, dim, is_front ? 0 : size - 1, 1);
    const StridedView sum = call.Temporary(sums.dtype, edge.sizes);
    REPRISE_RETURN_IF_ERROR(call.Step(kReduceSum, {grad, dims, true, sum.dtype, sum}));
    return call.Step(kAdd, {edge, sum, edge});
  }
  const StridedView place = Narrowed(sums, dim, is_front ? 1 : size - 1 - count, count);
  const StridedView mirrored = call.Temporary(grad.dtype, grad.sizes);
  REPRISE_RETURN_IF_ERROR(StepOf(call, "aclnnFlip", {grad, dims, mirrored}));
  return call.Step(kAdd, {place, mirrored, place});
}

Status LowerPadGrad(NamedCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Border border, BorderOf(call));
  StridedView grad = call.Input("x").view();
  REPRISE_ASSIGN_OR_RETURN(const std::vector<Margins> margins, MarginsOf(call, grad.sizes.size()));
  if (CountOf(call.shape()) == 0) return {};
  for (size_t d = margins.size(); d-- > 0;) {
    const auto& [front, back] = margins[d];
    if (front < 0 || back < 0) {
      return call.WrongInput(call.Input("paddings"), fmt::format("cuts elements off dim {}", d),
                             "take the gradient of borders of 0 elements or more");
    }
    if (front == 0 && back == 0) continue;
    const int64_t size = call.shape()[d];
    REPRISE_RETURN_IF_ERROR(CheckMargins(call, border, margins[d], d, size));
    const StridedView center = Narrowed(grad, d, front, size);
    const StridedView sums = call.Temporary(Wide(grad.dtype), center.sizes);
    REPRISE_RETURN_IF_ERROR(call.Step(kCopy, {center, sums}));
    if (border != Border::kConstant && front > 0) {
      REPRISE_RETURN_IF_ERROR(AddBorder(call, border, Narrowed(grad, d, 0, front), sums, d, true));
    }
    if (border != Border::kConstant && back > 0) {
      REPRISE_RETURN_IF_ERROR(AddBorder(call, border, Narrowed(grad, d, front + size, back), sums, d, false));
    }
    grad = sums;
  }
  return call.Step(kCopy, {grad, call.OutputView()});
}

constexpr NamedOp kPaddingRows[] = {
    {"MirrorPad", {}, LowerPad},
    {"Pad", kAllTypes, LowerPad},
    {"PadV2", kAllTypes, LowerPad},
    {"PadV3", {}, LowerPad},
    {"PadV3Grad", kArithmetic, LowerPadGrad},
};

}  // namespace

std::span<const NamedOp> PaddingRows() { return kPaddingRows; }

}  // namespace reprise::ops::named
