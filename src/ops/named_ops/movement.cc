// SPDX-License-Identifier: Apache-2.0
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

constexpr NamedOp kMovementRows[] = {
    {"Assign", kAllTypes, LowerAssign},
    {"AssignAdd", kArithmetic, LowerNamedBinary, kCodeAdd},
    {"AssignSub", kArithmetic, LowerNamedBinary, kCodeSub},
    {"BroadcastTo", kAllTypes, LowerBroadcast},
    {"Concat", kAllTypes, LowerJoin},
    {"ConcatD", kAllTypes, LowerJoin},
    {"ConcatV2", kAllTypes, LowerJoin},
    {"Empty", kAllTypes, LowerConstants, 0},
    {"Expand", kAllTypes, LowerBroadcast},
    {"ExpandDims", kAllTypes, LowerReshape},
    {"Fill", kAllTypes, LowerNamedFill},
    {"Fills", kRealTypes, LowerFills},
    {"FlattenV2", kAllTypes, LowerReshape},
    {"Identity", kAllTypes, LowerNamedCopy},
    {"OnesLike", kAllTypes, LowerConstants, 1},
    {"Pack", kAllTypes, LowerJoin},
    {"Permute", kAllTypes, LowerTranspose},
    {"Reshape", kAllTypes, LowerReshape},
    As("Roll", kAllTypes, "aclnnRoll", "x @shifts @dims ="),
    {"SplitV", kAllTypes, LowerSplit},
    {"Squeeze", kAllTypes, LowerReshape},
    {"TensorMove", kAllTypes, LowerNamedCopy},
    {"Transpose", kAllTypes, LowerTranspose},
    {"TransposeD", kAllTypes, LowerTranspose},
    {"Unsqueeze", kAllTypes, LowerReshape},
    {"ZerosLike", kAllTypes, LowerConstants, 0},
};

}  // namespace

std::span<const NamedOp> MovementRows() { return kMovementRows; }

}  // namespace reprise::ops::named
