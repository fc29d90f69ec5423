// SPDX-License-Identifier: Apache-2.0
//
// Norms and softmax out of their parts, and residual sums in front of norms.
#include <algorithm>
#include <cmath>

#include "compiler/passes/fusions.h"
#include "compiler/passes/patterns.h"

namespace reprise::compiler {
namespace {

// Whether a tensor has exactly the last `count` sizes of another one.
bool HasLastDims(const Tensor& tensor, const Tensor& of, size_t count) {
  if (!tensor.shape.has_rank() || !of.shape.has_rank() || tensor.shape.rank() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (!AreEqual(tensor.shape[i], of.shape[of.shape.rank() - count + i])) return false;
  }
  return true;
}

// 1 / sqrt(sum) among the factors, which is taken out of them.
std::optional<Port> TakeInverseRoot(Match& match, Product& product) {
  for (size_t i = 0; i < product.ports.size(); ++i) {
    const size_t mark = match.Mark();
    Port sum;
    if (const NodeId root = match.Maker(product.ports[i], {"Rsqrt"}); root != kNoNode) {
      sum = match.In(root, "x");
    } else if (const NodeId power = match.Maker(product.ports[i], {"Pow"}); power != kNoNode) {
      if (match.Number(match.In(power, "x2")) == -0.5) sum = match.In(power, "x1");
    }
    if (sum.is_set()) {
      product.ports.erase(product.ports.begin() + static_cast<ptrdiff_t>(i));
      return sum;
    }
    match.BackTo(mark);
  }
  for (size_t i = 0; i < product.divisors.size(); ++i) {
    const size_t mark = match.Mark();
    Port sum;
    if (const NodeId root = match.Maker(product.divisors[i], {"Sqrt"}); root != kNoNode) {
      sum = match.In(root, "x");
    } else if (const NodeId power = match.Maker(product.divisors[i], {"Pow"}); power != kNoNode) {
      if (match.Number(match.In(power, "x2")) == 0.5) sum = match.In(power, "x1");
    }
    if (sum.is_set()) {
      product.divisors.erase(product.divisors.begin() + static_cast<ptrdiff_t>(i));
      return sum;
    }
    match.BackTo(mark);
  }
  return std::nullopt;
}

struct MeanSquare {
  Port x;
  size_t dims = 0;
  double epsilon = 0;
};

// mean(x^2) + epsilon over the last dims.
std::optional<MeanSquare> MeanSquareOf(Match& match, Port port) {
  const Sum sum = match.Terms(port);
  if (sum.terms.size() != 1 || !sum.minus.empty() || sum.number < 0) return std::nullopt;
  const auto mean = match.OverLastDims(sum.terms[0], {"ReduceMean", "ReduceMeanD"});
  if (!mean) return std::nullopt;
  const Product square = match.Factors(mean->first);
  if (square.factor != 1 || square.ports.size() != 2 || square.ports[0] != square.ports[1] ||
      !square.divisors.empty()) {
    return std::nullopt;
  }
  return MeanSquare{square.ports[0], mean->second, sum.number};
}

// The factors of a product, and of one that is cast before the last multiplication.
Product FactorsThroughCast(Match& match) {
  Product product = match.Factors({match.root(), 0}, true);
  for (size_t i = 0; i < product.ports.size(); ++i) {
    const size_t mark = match.Mark();
    const Port inner = match.BeforeCast(product.ports[i]);
    if (inner == product.ports[i]) continue;
    const Product more = match.Factors(inner);
    if (match.TensorOf(inner).dtype != kFloat32 || more.ports.size() + more.divisors.size() < 2) {
      match.BackTo(mark);
      continue;
    }
    product.ports.erase(product.ports.begin() + static_cast<ptrdiff_t>(i));
    product.factor *= more.factor;
    product.ports.insert(product.ports.end(), more.ports.begin(), more.ports.end());
    product.divisors.insert(product.divisors.end(), more.divisors.begin(), more.divisors.end());
    break;
  }
  return product;
}

// What x was before it was cast to float32, if the result of the norm has that type.
Port BeforeWidening(Match& match, Port x) {
  if (match.TensorOf(x).dtype == match.Result().dtype || !match.IsMadeBy(x, {"Cast"})) return x;
  const size_t mark = match.Mark();
  const NodeId cast = match.Maker(x, {"Cast"});
  const Port narrow = match.In(cast, "x");
  if (match.TensorOf(narrow).dtype == match.Result().dtype) return narrow;
  match.BackTo(mark);
  return x;
}

bool FitsNorm(Match& match, Port x) {
  const Tensor& from = match.TensorOf(x);
  if (from.dtype != match.Result().dtype || !IsSingleOrHalf(from.dtype)) {
    match.Refuse("the norm is computed in another type than its operand has");
    return false;
  }
  if (from.shape == match.Result().shape) return true;
  match.Refuse("the shape of the result is not that of the operand");
  return false;
}

// x / sqrt(mean(x^2) + epsilon) * gamma
void FuseRmsNorm(Match& match) {
  Product product = FactorsThroughCast(match);
  const auto root = TakeInverseRoot(match, product);
  if (!root || !product.divisors.empty() || product.factor != 1) return;
  const auto square = MeanSquareOf(match, *root);
  if (!square) return;
  const auto found = std::find(product.ports.begin(), product.ports.end(), square->x);
  if (found == product.ports.end()) return;
  product.ports.erase(found);
  if (product.ports.size() != 1) return;
  const Port x = BeforeWidening(match, square->x);
  const Port gamma = product.ports[0];
  if (!FitsNorm(match, x)) return;
  if (!HasLastDims(match.TensorOf(gamma), match.TensorOf(x), square->dims)) {
    return match.Refuse("gamma has not the sizes of the dims of the mean");
  }
  if (!IsSingleOrHalf(match.TensorOf(gamma).dtype))
    return match.Refuse("gamma is of a type that RmsNorm does not take");
  if (!match.IsClosed()) return;
  match.Replace("RmsNorm", {{"x", x}, {"gamma", gamma}}, {{"epsilon", static_cast<float>(square->epsilon)}});
}

// (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon) with gamma and beta, where they are. With a sum as the last
// node there is a beta.
void FuseLayerNorm(Match& match) {
  const std::string type = match.node().type;
  const bool has_beta = type == "Add" || type == "AddV2";
  std::vector<std::pair<Port, Port>> forms = {{Port{match.root(), 0}, Port{}}};
  if (has_beta) {
    const auto [first, second] = match.Both(match.root());
    forms = {{first, second}, {second, first}};
  }
  for (const auto& [scaled, beta] : forms) {
    match.BackTo(0);
    Product product = match.Factors(scaled, !has_beta);
    const auto root = TakeInverseRoot(match, product);
    if (!root || !product.divisors.empty() || product.factor != 1) continue;
    const auto square = MeanSquareOf(match, *root);
    if (!square) continue;
    const auto found = std::find(product.ports.begin(), product.ports.end(), square->x);
    if (found == product.ports.end()) continue;
    product.ports.erase(found);
    if (product.ports.size() > 1) continue;
    const NodeId centred = match.Maker(square->x, {"Sub"});
    if (centred == kNoNode) continue;
    const Port x = match.In(centred, "x1");
    const auto mean = match.OverLastDims(match.In(centred, "x2"), {"ReduceMean", "ReduceMeanD"});
    if (!mean || mean->first != x || mean->second != square->dims) continue;
    const Port gamma = product.ports.empty() ? Port{} : product.ports[0];
    for (const Port parameter : {gamma, beta}) {
      if (!parameter.is_set()) continue;
      const Tensor& tensor = match.TensorOf(parameter);
      if (!HasLastDims(tensor, match.TensorOf(x), square->dims) || !IsSingleOrHalf(tensor.dtype)) {
        return match.Refuse("gamma or beta has not the sizes of the dims of the mean, or a type of its own");
      }
    }
    if (!FitsNorm(match, x)) return;
    const opdef::Shape& shape = match.TensorOf(x).shape;
    std::vector<int64_t> sizes;
    for (size_t d = shape.rank() - square->dims; d < shape.rank(); ++d) {
      if (!shape[d].is_number()) return match.Refuse("the sizes of the normalised dims are not known");
      sizes.push_back(shape[d].number());
    }
    if (!match.IsClosed()) return;
    const Port normalized = match.AddIntegers("normalized_shape", sizes);
    return match.Replace("LayerNormV4", {{"x", x}, {"normalized_shape", normalized}, {"gamma", gamma}, {"beta", beta}},
                         {{"epsilon", static_cast<float>(square->epsilon)}});
  }
}

// The norm of a sum: the sum is an output of the fused operator, for those who use it.
void FuseAddRmsNorm(Match& match) {
  const Port x = match.In("x");
  const NodeId add = match.Maker(x, {"Add", "AddV2"});
  if (add == kNoNode) return;
  const auto [x1, x2] = match.Both(add);
  const Tensor& tensor = match.TensorOf(x);
  for (const Port term : {x1, x2}) {
    if (match.TensorOf(term).shape != tensor.shape || match.TensorOf(term).dtype != tensor.dtype) {
      return match.Refuse("the terms of the sum have other shapes or types than the sum");
    }
  }
  // Users of the sum will wait for all that the norm waits for: that must not be one of them.
  const Port gamma = match.In("gamma");
  const NodeKind kind = match.graph().at(gamma.node).kind;
  if ((kind != NodeKind::kConstant && kind != NodeKind::kData) || !match.node().after.empty()) {
    return match.Refuse("gamma is computed, or the norm waits for other nodes: users of the sum might come before");
  }
  if (!match.IsClosed(add)) return;
  match.ReplaceBoth(add, 2, "AddRmsNorm", {{"x1", x1}, {"x2", x2}, {"gamma", gamma}},
                    {{"epsilon", static_cast<float>(match.Real(match.root(), "epsilon").value_or(1e-6))}});
}

// Dims of a reduction with kept dims, as they are written.
std::optional<std::vector<int64_t>> ReducedDims(Match& match, NodeId node) {
  if (!match.Flag(node, "keep_dims")) return std::nullopt;
  const Port axes = match.In(node, "axes");
  std::optional<std::vector<int64_t>> dims = axes.is_set() ? match.Integers(axes) : match.Ints(node, "axes");
  const opdef::Shape& shape = match.TensorOf(match.In(node, "x")).shape;
  if (!dims || dims->empty() || !shape.has_rank()) return std::nullopt;
  for (int64_t& dim : *dims) dim += dim < 0 ? static_cast<int64_t>(shape.rank()) : 0;
  std::sort(dims->begin(), dims->end());
  for (size_t i = 1; i < dims->size(); ++i) {
    if ((*dims)[i] != (*dims)[i - 1] + 1) return std::nullopt;
  }
  return dims;
}

// exp(x - max(x)) / sum(exp(x - max(x))), also without the maximum
void FuseSoftmax(Match& match) {
  const Product product = match.Factors({match.root(), 0}, true);
  if (product.factor != 1 || product.ports.size() != 1 || product.divisors.size() != 1) return;
  const Port exponential = product.ports[0];
  const NodeId sum = match.Maker(product.divisors[0], {"ReduceSum", "ReduceSumD"});
  const NodeId exp = match.Maker(exponential, {"Exp"});
  if (sum == kNoNode || exp == kNoNode || match.In(sum, "x") != exponential) return;
  if (match.Real(exp, "base") != -1 || match.Real(exp, "scale") != 1 || match.Real(exp, "shift") != 0) return;
  const auto dims = ReducedDims(match, sum);
  if (!dims) return match.Refuse("the dims of the sum are not known, apart, or not kept");
  Port x = match.In(exp, "x");
  if (match.IsMadeBy(x, {"Sub"})) {
    const size_t mark = match.Mark();
    const NodeId centred = match.Maker(x, {"Sub"});
    const NodeId largest = match.Maker(match.In(centred, "x2"), {"ReduceMax"});
    if (largest != kNoNode && match.In(largest, "x") == match.In(centred, "x1") &&
        ReducedDims(match, largest) == dims) {
      x = match.In(centred, "x1");
    } else {
      match.BackTo(mark);
    }
  }
  if (match.TensorOf(x).dtype != match.Result().dtype) return match.Refuse("the softmax is computed in another type");
  if (!match.IsClosed()) return;
  match.Replace("SoftmaxV2", {{"x", x}}, {{"axes", *dims}});
}

// log(softmax(x)), x - max(x) - log(sum(exp(x - max(x))))
void FuseLogSoftmax(Match& match) {
  Port x;
  std::vector<int64_t> axes;
  if (match.node().type == "Log") {
    const NodeId softmax = match.Maker(match.In("x"), {"SoftmaxV2"});
    if (softmax == kNoNode || match.Flag(softmax, "half_to_float")) return;
    if (match.Real(match.root(), "base") != -1 || match.Real(match.root(), "scale") != 1 ||
        match.Real(match.root(), "shift") != 0) {
      return;
    }
    x = match.In(softmax, "x");
    axes = match.Ints(softmax, "axes");
  } else {
    const Port centred = match.In("x1");
    const NodeId log = match.Maker(match.In("x2"), {"Log"});
    const NodeId sum = log == kNoNode ? kNoNode : match.Maker(match.In(log, "x"), {"ReduceSum", "ReduceSumD"});
    const NodeId exp = sum == kNoNode ? kNoNode : match.Maker(match.In(sum, "x"), {"Exp"});
    if (exp == kNoNode || match.In(exp, "x") != centred || !match.IsMadeBy(centred, {"Sub"})) return;
    for (const NodeId node : {log, exp}) {
      if (match.Real(node, "base") != -1 || match.Real(node, "shift") != 0 || match.Real(node, "scale") != 1) return;
    }
    const NodeId sub = match.Maker(centred, {"Sub"});
    const NodeId largest = match.Maker(match.In(sub, "x2"), {"ReduceMax"});
    const auto dims = ReducedDims(match, sum);
    if (largest == kNoNode || match.In(largest, "x") != match.In(sub, "x1") || !dims ||
        ReducedDims(match, largest) != dims) {
      return;
    }
    x = match.In(sub, "x1");
    axes = *dims;
  }
  if (match.TensorOf(x).dtype != match.Result().dtype) return match.Refuse("the softmax is computed in another type");
  if (!match.IsClosed()) return;
  match.Replace("LogSoftmaxV2", {{"logits", x}}, {{"axes", axes}});
}

Status RunRmsNorm(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Mul", "RealDiv", "Div"}, FuseRmsNorm);
}
Status RunLayerNorm(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Add", "AddV2", "Mul", "RealDiv", "Div"}, FuseLayerNorm);
}
Status RunAddRmsNorm(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"RmsNorm"}, FuseAddRmsNorm);
}
Status RunSoftmax(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"RealDiv", "Div", "Mul"}, FuseSoftmax);
}

Status RunLogSoftmax(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Log", "Sub"}, FuseLogSoftmax);
}

constexpr Pass kNormPasses[] = {
    Fusion("LayerNormFusionPass", RunLayerNorm, "LayerNormV4 from means"),
    Fusion("RmsNormFusionPass", RunRmsNorm, "RmsNorm from the mean of squares"),
    Fusion("AddRmsNormFusionPass", RunAddRmsNorm, "a sum into the norm behind it"),
    Fusion("SoftmaxFusionPass", RunSoftmax, "SoftmaxV2 from exp and its sum"),
    Fusion("LogSoftmaxFusionPass", RunLogSoftmax, "LogSoftmaxV2 from its parts or from a softmax"),
};

}  // namespace

std::span<const Pass> NormFusions() { return kNormPasses; }

}  // namespace reprise::compiler
