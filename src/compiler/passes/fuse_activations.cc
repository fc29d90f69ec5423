// SPDX-License-Identifier: Apache-2.0
//
// Activations out of their parts: bounds, Gelu, Swish, Mish, and gated units.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/passes/fusions.h"
#include "compiler/passes/patterns.h"

namespace reprise::compiler {
namespace {

// The result has the type and shape of x, so that the activation may stand in its place.
bool FitsResult(Match& match, Port x) {
  const Tensor& from = match.TensorOf(x);
  const Tensor& to = match.Result();
  if (from.dtype != to.dtype || !IsSingleOrHalf(from.dtype)) {
    match.Refuse("the activation is computed in another type than its operand has, or in none of its own types");
    return false;
  }
  if (from.shape.has_rank() && from.shape == to.shape) return true;
  match.Refuse("the shape of the result is not that of the operand");
  return false;
}

// ports[i] and the only other one of two factors.
Port OtherOf(const Product& product, size_t i) { return product.ports[1 - i]; }

bool IsPower(const Product& product, Port x, size_t exponent) {
  return product.divisors.empty() && product.ports.size() == exponent &&
         std::all_of(product.ports.begin(), product.ports.end(), [&](Port port) { return port == x; });
}

// y = factor * x for a port x that is known.
std::optional<double> MultipleOf(Match& match, Port y, Port x) {
  if (y == x) return 1;
  const Product product = match.Factors(y);
  if (!IsPower(product, x, 1)) return std::nullopt;
  return product.factor;
}

// sqrt(2/pi) * (x + 0.044715 x^3), in one of its forms.
bool IsTanhArgument(Match& match, Port argument, Port x) {
  constexpr double kOuter = 0.7978845608028654;
  constexpr double kInner = 0.044715;
  const Product outer = match.Factors(argument);
  if (!IsNear(outer.factor, kOuter, match.Result().dtype) || !outer.divisors.empty()) return false;
  if (outer.ports.size() == 1) {  // x + 0.044715 x^3
    const Sum sum = match.Terms(outer.ports[0]);
    if (sum.number != 0 || sum.terms.size() != 2 || !sum.minus.empty()) return false;
    for (size_t i = 0; i < 2; ++i) {
      if (sum.terms[i] != x) continue;
      const Product cube = match.Factors(sum.terms[1 - i]);
      if (IsNear(cube.factor, kInner, match.Result().dtype) && IsPower(cube, x, 3)) return true;
      // x^3 may have been made by hand: x * x has two users then.
      if (!IsNear(cube.factor, kInner, match.Result().dtype) || cube.ports.size() != 2) continue;
      const size_t at = cube.ports[0] == x ? 1 : 0;
      if (cube.ports[1 - at] == x && IsPower(match.Factors(cube.ports[at], true), x, 2)) return true;
    }
    return false;
  }
  if (outer.ports.size() != 2) return false;  // x * (1 + 0.044715 x^2)
  for (size_t i = 0; i < 2; ++i) {
    if (outer.ports[i] != x) continue;
    const Sum sum = match.Terms(OtherOf(outer, i));
    if (sum.number != 1 || sum.terms.size() != 1 || !sum.minus.empty()) return false;
    const Product square = match.Factors(sum.terms[0]);
    return IsNear(square.factor, kInner, match.Result().dtype) && IsPower(square, x, 2);
  }
  return false;
}

// 0.5 * x * (1 + erf(x / sqrt(2))), 0.5 * x * (1 + tanh(..))
void FuseGelu(Match& match) {
  const Product product = match.Factors({match.root(), 0}, true);
  if (product.ports.size() != 2 || !product.divisors.empty()) return;
  const size_t mark = match.Mark();
  for (size_t i = 0; i < 2; ++i) {
    match.BackTo(mark);
    const Port x = product.ports[i];
    const Sum sum = match.Terms(OtherOf(product, i));
    if (sum.terms.size() != 1 || !sum.minus.empty() || !IsNear(product.factor * sum.number, 0.5, match.Result().dtype))
      continue;
    const Product inner = match.Factors(sum.terms[0]);
    if (inner.ports.size() != 1 || !inner.divisors.empty() ||
        !IsNear(product.factor * inner.factor, 0.5, match.Result().dtype))
      continue;
    std::string approximate;
    if (const NodeId erf = match.Maker(inner.ports[0], {"Erf"}); erf != kNoNode) {
      const auto factor = MultipleOf(match, match.In(erf, "x"), x);
      if (!factor || !IsNear(*factor, 0.7071067811865476, match.Result().dtype)) continue;
      approximate = "none";
    } else if (const NodeId tanh = match.Maker(inner.ports[0], {"Tanh"}); tanh != kNoNode) {
      if (!IsTanhArgument(match, match.In(tanh, "x"), x)) continue;
      approximate = "tanh";
    } else {
      continue;
    }
    if (!FitsResult(match, x) || !match.IsClosed()) return;
    return match.Replace("GeluV2", {{"x", x}}, {{"approximate", approximate}});
  }
}

// The sigmoid of factor * x, by Sigmoid or as a divisor 1 + exp(-factor * x).
std::optional<double> SigmoidOf(Match& match, const Product& product, Port x) {
  if (product.divisors.size() == 1 && product.ports.size() == 1) {
    const Sum sum = match.Terms(product.divisors[0]);
    if (sum.number != 1 || sum.terms.size() != 1 || !sum.minus.empty()) return std::nullopt;
    const NodeId exponential = match.Maker(sum.terms[0], {"Exp"});
    if (exponential == kNoNode || match.Real(exponential, "base") != -1 || match.Real(exponential, "shift") != 0) {
      return std::nullopt;
    }
    const auto factor = MultipleOf(match, match.In(exponential, "x"), x);
    if (!factor) return std::nullopt;
    return -*factor * match.Real(exponential, "scale").value_or(0);
  }
  if (!product.divisors.empty() || product.ports.size() != 2) return std::nullopt;
  const Port other = product.ports[0] == x ? product.ports[1] : product.ports[0];
  const NodeId sigmoid = match.Maker(other, {"Sigmoid"});
  if (sigmoid == kNoNode) return std::nullopt;
  return MultipleOf(match, match.In(sigmoid, "x"), x);
}

// x * sigmoid(x), x / (1 + exp(-x)); with 1.702 x FastGelu
void FuseSwish(Match& match) {
  const Product product = match.Factors({match.root(), 0}, true);
  if (product.factor != 1) return;
  const size_t mark = match.Mark();
  for (const Port x : product.ports) {
    match.BackTo(mark);
    const auto factor = SigmoidOf(match, product, x);
    if (!factor) continue;
    const bool is_fast_gelu = std::abs(*factor - 1.702) < 1e-6;
    if (*factor != 1 && !is_fast_gelu) return match.Refuse(fmt::format("the sigmoid is that of {} * x", *factor));
    if (!FitsResult(match, x) || !match.IsClosed()) return;
    return match.Replace(is_fast_gelu ? "FastGelu" : "Swish", {{"x", x}});
  }
}

// x * tanh(log(1 + exp(x)))
void FuseMish(Match& match) {
  const auto [first, second] = match.Both(match.root());
  for (const auto& [x, other] : {std::pair(first, second), std::pair(second, first)}) {
    match.BackTo(0);
    const NodeId tanh = match.Maker(other, {"Tanh"});
    if (tanh == kNoNode) continue;
    Port exponential;
    if (const NodeId log = match.Maker(match.In(tanh, "x"), {"Log1p"}); log != kNoNode) {
      exponential = match.In(log, "x");
    } else if (const NodeId plain = match.Maker(match.In(tanh, "x"), {"Log"}); plain != kNoNode) {
      if (match.Real(plain, "base") != -1 || match.Real(plain, "scale") != 1 || match.Real(plain, "shift") != 0)
        continue;
      const Sum sum = match.Terms(match.In(plain, "x"));
      if (sum.number != 1 || sum.terms.size() != 1 || !sum.minus.empty()) continue;
      exponential = sum.terms[0];
    } else {
      continue;
    }
    const NodeId exp = match.Maker(exponential, {"Exp"});
    if (exp == kNoNode || match.In(exp, "x") != x) continue;
    if (match.Real(exp, "base") != -1 || match.Real(exp, "scale") != 1 || match.Real(exp, "shift") != 0) continue;
    if (match.Result().dtype == kBFloat16) return match.Refuse("Mish has no bfloat16");
    if (!FitsResult(match, x) || !match.IsClosed()) return;
    return match.Replace("Mish", {{"x", x}});
  }
}

// One half of a tensor times an activation of the other.
void FuseGatedUnit(Match& match) {
  const auto [first, second] = match.Both(match.root());
  for (const auto& [gated, activation] : {std::pair(first, second), std::pair(second, first)}) {
    match.BackTo(0);
    const NodeId function = match.Maker(activation, {"Swish", "GeluV2", "Gelu", "Sigmoid"});
    if (function == kNoNode) continue;
    const std::string type = match.graph().at(function).type;
    const auto active = match.HalfOf(match.In(function, "x"));
    const auto other = match.HalfOf(gated);
    if (!active || !other || active->whole != other->whole || active->dim != other->dim ||
        active->index == other->index || active->is_interleaved || other->is_interleaved) {
      continue;
    }
    const int32_t dtype = match.TensorOf(active->whole).dtype;
    if (!IsSingleOrHalf(dtype) || dtype != match.Result().dtype) return match.Refuse("the type has no gated unit");
    const bool is_left = active->index == 0;
    if (type == "Swish" && match.Real(function, "scale") != 1) return match.Refuse("the Swish has a scale");
    if (type == "Swish" && !is_left) return match.Refuse("SwiGlu wants the Swish of the first half");
    if (type == "Sigmoid" && is_left) return match.Refuse("GLU wants the Sigmoid of the second half");
    if (!match.IsClosed()) return;
    if (type == "Swish") return match.Replace("SwiGlu", {{"x", active->whole}}, {{"dim", active->dim}});
    if (type == "Sigmoid") return match.Replace("GLU", {{"x", active->whole}}, {{"dim", active->dim}});
    const bool is_erf = type == "GeluV2" && match.Text(function, "approximate") == "none";
    return match.Replace("GeGluV2", {{"x", active->whole}},
                         {{"dim", active->dim}, {"approximate", int64_t{is_erf ? 0 : 1}}, {"activate_left", is_left}});
  }
}

// The larger of a tensor and a number, or the smaller one; nothing where neither operand is a number.
struct Bounded {
  Port x;
  double bound;
};
std::optional<Bounded> BoundedBy(const Match& match, NodeId node) {
  const auto [first, second] = match.Both(node);
  if (const auto number = match.Number(second)) return Bounded{first, *number};
  if (const auto number = match.Number(first)) return Bounded{second, *number};
  return std::nullopt;
}

// min(max(x, low), high), max(min(x, high), low)
void FuseClip(Match& match) {
  const bool is_smaller = match.node().type == "Minimum";
  const auto outer = BoundedBy(match, match.root());
  if (!outer) return;
  const NodeId other = match.Maker(outer->x, {is_smaller ? "Maximum" : "Minimum"});
  if (other == kNoNode) return;
  const auto inner = BoundedBy(match, other);
  if (!inner) return;
  const double low = is_smaller ? inner->bound : outer->bound;
  const double high = is_smaller ? outer->bound : inner->bound;
  if (!(low <= high)) return match.Refuse("the bounds are none");  // one number then, which depends on the order
  if (!FitsResult(match, inner->x) || !match.IsClosed()) return;
  const int32_t dtype = match.Result().dtype;
  match.Replace("ClipByValueV2", {{"x", inner->x},
                                  {"clip_value_min", match.AddConstant("low", dtype, {}, std::span(&low, 1))},
                                  {"clip_value_max", match.AddConstant("high", dtype, {}, std::span(&high, 1))}});
}

Status RunClip(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Maximum", "Minimum"}, FuseClip);
}
Status RunGelu(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Mul", "Muls", "RealDiv", "Div"}, FuseGelu);
}
Status RunSwish(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Mul", "RealDiv", "Div"}, FuseSwish);
}
Status RunMish(Graph& graph, PassContext& context) { return RunFusion(graph, context, {"Mul"}, FuseMish); }
Status RunGatedUnit(Graph& graph, PassContext& context) { return RunFusion(graph, context, {"Mul"}, FuseGatedUnit); }

constexpr Pass kActivationPasses[] = {
    Fusion("ClipFusionPass", RunClip, "bounds from Maximum and Minimum"),
    Fusion("GeluFusionPass", RunGelu, "Gelu from erf or tanh"),
    Fusion("SwishFusionPass", RunSwish, "Swish, FastGelu from x and its sigmoid"),
    Fusion("MishFusionPass", RunMish, "Mish from tanh, log and exp"),
    Fusion("SwiGluFusionPass", RunGatedUnit, "SwiGlu, GeGluV2, GLU from halves"),
};

}  // namespace

std::span<const Pass> ActivationFusions() { return kActivationPasses; }

}  // namespace reprise::compiler
