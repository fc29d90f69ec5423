// SPDX-License-Identifier: Apache-2.0
//
// Pairs that become one or none: transposes around elementwise operators, reshapes, numbers, quantisation.
#include <algorithm>
#include <cmath>

#include "compiler/passes/fusions.h"
#include "compiler/passes/patterns.h"

namespace reprise::compiler {
namespace {

// Operators of one operand x whose result has its shape, element by element.
NodeId UnaryMaker(Match& match, Port port) {
  return match.Maker(
      port, {"Abs",    "Adds",      "Cast",      "Ceil", "Cos",  "Elu",    "Erf",   "Exp",        "Floor", "Gelu",
             "GeluV2", "HardSwish", "LeakyRelu", "Log",  "Mish", "Muls",   "Neg",   "Reciprocal", "Relu",  "Round",
             "Rsqrt",  "Sigmoid",   "Sign",      "Sin",  "Sqrt", "Square", "Swish", "Tanh"});
}

std::optional<std::vector<int64_t>> PermOf(const Match& match, NodeId node) {
  const std::string& type = match.graph().at(node).type;
  std::optional<std::vector<int64_t>> perm = type == "Transpose"
                                                 ? match.Integers(match.In(node, "perm"))
                                                 : match.Ints(node, type == "Permute" ? "order" : "perm");
  const opdef::Shape& shape = match.TensorOf(match.In(node, "x")).shape;
  if (!perm || !shape.has_rank() || shape.rank() != perm->size()) return std::nullopt;
  const auto rank = static_cast<int64_t>(perm->size());
  for (int64_t& dim : *perm) {
    dim += dim < 0 ? rank : 0;
    if (dim < 0 || dim >= rank) return std::nullopt;
  }
  return perm;
}

// Two transposes that cancel, with elementwise operators of one user between them. Those without are left to the pass
// that joins transposes.
void FuseTransposes(Match& match) {
  const auto last = PermOf(match, match.root());
  if (!last) return;
  std::vector<NodeId> between;
  Port port = match.In("x");
  for (NodeId node = UnaryMaker(match, port); node != kNoNode; node = UnaryMaker(match, port)) {
    between.push_back(node);
    port = match.In(node, "x");
  }
  if (between.empty()) return;
  const NodeId first = match.Maker(port, {"Transpose", "TransposeD", "Permute"});
  if (first == kNoNode) return;
  const auto perm = PermOf(match, first);
  if (!perm || perm->size() != last->size()) return;
  for (size_t d = 0; d < last->size(); ++d) {
    if ((*perm)[static_cast<size_t>((*last)[d])] == static_cast<int64_t>(d)) continue;
    return match.Refuse("the transposes around the elementwise operators do not cancel");
  }
  if (!match.IsClosed()) return;
  match.SpliceAround(between, match.In(first, "x"));
}

// A reshape of a reshape. Ranks that were added or taken away between do not count either.
void FuseReshapes(Match& match) {
  const NodeId first = match.Maker(match.In("x"), {"Reshape", "Unsqueeze", "Squeeze", "ExpandDims", "FlattenV2"});
  if (first == kNoNode) return;
  if (!match.IsClosed()) return;
  match.Replace("Reshape", {{"x", match.In(first, "x")}, {"shape", match.In("shape")}});
}

// A transpose of the last two dims between two reshapes that make the dims in front of them one, and take that apart
// again: the transpose takes them as they are.
void FuseReshapedTranspose(Match& match) {
  const NodeId transpose = match.Maker(match.In("x"), {"Transpose", "TransposeD", "Permute"});
  const NodeId flat = transpose == kNoNode ? kNoNode : match.Maker(match.In(transpose, "x"), {"Reshape"});
  if (flat == kNoNode) return;
  const auto perm = PermOf(match, transpose);
  const Port x = match.In(flat, "x");
  const opdef::Shape& from = match.TensorOf(x).shape;
  const opdef::Shape& to = match.Result().shape;
  if (!perm || perm->size() < 3 || !from.has_rank() || !to.has_rank() || from.rank() != to.rank() || from.rank() < 3) {
    return;
  }
  const auto swaps_last = [](const std::vector<int64_t>& dims) {
    std::vector<int64_t> back = dims;
    std::swap(back[back.size() - 2], back[back.size() - 1]);
    for (size_t d = 0; d < back.size(); ++d) {
      if (back[d] != static_cast<int64_t>(d)) return false;
    }
    return true;
  };
  if (!swaps_last(*perm)) return;
  const opdef::Shape& middle = match.TensorOf(match.In(transpose, "x")).shape;
  const size_t rank = from.rank();
  bool fits = AreEqual(from[rank - 2], to[rank - 1]) && AreEqual(from[rank - 1], to[rank - 2]) &&
              AreEqual(middle[perm->size() - 2], from[rank - 2]) && AreEqual(middle[perm->size() - 1], from[rank - 1]);
  for (size_t d = 0; d + 2 < rank; ++d) fits = fits && AreEqual(from[d], to[d]);
  if (!fits) return match.Refuse("the reshapes around the transpose change more than the dims in front");
  if (!match.IsClosed()) return;
  std::vector<int64_t> dims(rank);
  for (size_t d = 0; d < rank; ++d) dims[d] = static_cast<int64_t>(d);
  std::swap(dims[rank - 2], dims[rank - 1]);
  const Port order = match.AddIntegers("perm", dims);
  match.Replace("Transpose", {{"x", x}, {"perm", order}});
}

bool IsFloating(int32_t dtype) {
  constexpr int32_t kDouble = 11;
  return dtype == kFloat32 || dtype == kDouble;
}

// x * a * b, x + a + b with numbers a and b. In float32 and more: between halves the first result was rounded.
void FuseNumbers(Match& match) {
  const Tensor result = match.Result();
  if (!IsFloating(result.dtype)) return;
  const std::string type = match.node().type;
  const Port self = {match.root(), 0};
  const bool is_sum = type == "Add" || type == "AddV2" || type == "Adds" || type == "Sub";
  Port x;
  double value = 0;
  if (is_sum) {
    const Sum sum = match.Terms(self, true);
    if (sum.terms.size() != 1 || !sum.minus.empty()) return;
    x = sum.terms[0];
    value = sum.number;
  } else {
    const Product product = match.Factors(self, true);
    if (product.ports.size() != 1 || !product.divisors.empty()) return;
    x = product.ports[0];
    value = product.factor;
  }
  if (match.Mark() < 2) return;  // one number alone stays as it is
  if (match.TensorOf(x).dtype != result.dtype || match.TensorOf(x).shape != result.shape || !std::isfinite(value)) {
    return match.Refuse("the result has another type or shape than the tensor, or the number is not finite");
  }
  if (!match.IsClosed()) return;
  match.Replace(is_sum ? "Adds" : "Muls", {{"x", x}}, {{"value", static_cast<float>(value)}});
}

// Numbers out of int8 that become the same int8 again.
void FuseRequantisation(Match& match) {
  const Port y = match.In("x");
  const NodeId dequantised = match.Maker(y, {"AscendAntiQuantV2"});
  if (dequantised == kNoNode) return;
  const Port x = match.In(dequantised, "x");
  if (match.TensorOf(x).dtype != match.Result().dtype) return match.Refuse("the types of both ends differ");
  constexpr int32_t kInt8 = 2;
  if (match.Result().dtype != kInt8) return match.Refuse("the type is not int8");
  if (match.TensorOf(y).dtype == kBFloat16) return match.Refuse("bfloat16 does not keep all int8 numbers apart");
  if (match.Flag(dequantised, "sqrt_mode") || match.Flag(match.root(), "sqrt_mode")) {
    return match.Refuse("a scale counts twice");
  }
  if (match.Text(match.root(), "round_mode") != "round") return match.Refuse("the round_mode is not round");
  const auto last = static_cast<int64_t>(match.TensorOf(x).shape.rank()) - 1;
  if (const int64_t axis = match.Int(match.root(), "axis"); axis != -1 && axis != last) {
    return match.Refuse("the axis is not the last dim");
  }
  const auto scale = match.Numbers(match.In(dequantised, "scale"));
  const auto inverse = match.Numbers(match.In("scale"));
  if (!scale || !inverse || scale->size() != inverse->size()) {
    return match.Refuse("the scales are not constant, or of different numbers");
  }
  for (size_t i = 0; i < scale->size(); ++i) {
    if (std::abs((*scale)[i] * (*inverse)[i] - 1) < 1e-3) continue;
    return match.Refuse("the scales are not each other's inverse");
  }
  const auto offsets = [&](NodeId node) {
    const Port port = match.In(node, "offset");
    return port.is_set() ? match.Numbers(port) : std::optional(std::vector<double>(scale->size(), 0));
  };
  const auto offset = offsets(dequantised);
  const auto other = offsets(match.root());
  if (!offset || !other || offset->size() != scale->size() || other->size() != scale->size()) {
    return match.Refuse("the offsets are not constant, or of another number than the scales");
  }
  for (size_t i = 0; i < scale->size(); ++i) {
    if ((*offset)[i] != -(*other)[i]) return match.Refuse("the offsets do not cancel");
  }
  if (!match.IsClosed()) return;
  match.Forward(x);
}

Status RunTransposes(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Transpose", "TransposeD", "Permute"}, FuseTransposes);
}
Status RunReshapes(Graph& graph, PassContext& context) { return RunFusion(graph, context, {"Reshape"}, FuseReshapes); }
Status RunReshapedTransposes(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Reshape"}, FuseReshapedTranspose);
}
Status RunNumbers(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Mul", "Muls", "RealDiv", "Div", "Neg", "Add", "AddV2", "Adds", "Sub"},
                   FuseNumbers);
}
Status RunRequantisation(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"AscendQuantV2"}, FuseRequantisation);
}

constexpr Pass kMovementPasses[] = {
    Fusion("TransposeElementwiseFusionPass", RunTransposes, "transposes that cancel around elementwise operators"),
    Fusion("ReshapeFusionPass", RunReshapes, "reshapes that follow each other"),
    Fusion("TransposeReshapeFusionPass", RunReshapedTransposes, "reshapes around a transpose of the last two dims"),
    Fusion("DequantQuantFusionPass", RunRequantisation, "int8 that becomes numbers and int8 again"),
    Fusion("ScalarFusionPass", RunNumbers, "numbers multiplied or added one by one"),
};

}  // namespace

std::span<const Pass> MovementFusions() { return kMovementPasses; }

}  // namespace reprise::compiler
