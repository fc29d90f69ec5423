// SPDX-License-Identifier: Apache-2.0
//
// What patterns compute: products and sums of any number of nodes, halves of tensors, reductions.
#include <algorithm>
#include <cmath>

#include "compiler/passes/patterns.h"

namespace reprise::compiler {
namespace {

constexpr size_t kMostFactors = 8;  // of a product that a pattern may have

}  // namespace

bool IsNear(double value, double expected, int32_t dtype) {
  const double tolerance = dtype == kBFloat16 ? 8e-3 : dtype == kFloat16 ? 1e-3 : 2e-5;
  return std::abs(value - expected) <= tolerance * std::abs(expected);
}

Product Match::Factors(Port port, bool is_outermost) {
  Product product;
  struct Part {
    Port port;
    bool is_divisor;
  };
  std::vector<Part> left = {{port, false}};
  bool is_first = is_outermost;
  while (!left.empty()) {
    const Port part = left.back().port;
    const bool is_divisor = left.back().is_divisor;
    left.pop_back();
    const auto multiply = [&](double by) { product.factor *= is_divisor ? 1 / by : by; };
    const bool is_free = is_first || rewriter_.HasOneReader(part);
    is_first = false;
    if (const auto number = Number(part)) {
      multiply(*number);
      continue;
    }
    if (is_free && product.ports.size() + product.divisors.size() + left.size() < kMostFactors) {
      const size_t mark = Mark();
      const auto take = [&](std::string_view type) { return Maker(part, {type}); };
      if (const NodeId mul = take("Mul"); mul != kNoNode) {
        left.push_back({In(mul, "x2"), is_divisor});
        left.push_back({In(mul, "x1"), is_divisor});
        continue;
      }
      if (const NodeId div = Maker(part, {"RealDiv", "Div"}); div != kNoNode) {
        left.push_back({In(div, "x2"), !is_divisor});
        left.push_back({In(div, "x1"), is_divisor});
        continue;
      }
      if (const NodeId muls = take("Muls"); muls != kNoNode) {
        multiply(Real(muls, "value").value_or(0));
        left.push_back({In(muls, "x"), is_divisor});
        continue;
      }
      if (const NodeId neg = take("Neg"); neg != kNoNode) {
        product.factor = -product.factor;
        left.push_back({In(neg, "x"), is_divisor});
        continue;
      }
      if (const NodeId reciprocal = take("Reciprocal"); reciprocal != kNoNode) {
        left.push_back({In(reciprocal, "x"), !is_divisor});
        continue;
      }
      if (const NodeId square = take("Square"); square != kNoNode) {
        std::vector<Port>& list = is_divisor ? product.divisors : product.ports;
        list.insert(list.end(), 2, In(square, "x"));
        continue;
      }
      if (const NodeId power = take("Pow"); power != kNoNode) {
        const std::optional<double> exponent = Number(In(power, "x2"));
        if (exponent == 2 || exponent == 3) {
          std::vector<Port>& list = is_divisor ? product.divisors : product.ports;
          list.insert(list.end(), static_cast<size_t>(*exponent), In(power, "x1"));
          continue;
        }
      }
      BackTo(mark);
    }
    (is_divisor ? product.divisors : product.ports).push_back(part);
  }
  return product;
}

Sum Match::Terms(Port port, bool is_outermost) {
  Sum sum;
  struct Part {
    Port port;
    bool is_minus;
  };
  std::vector<Part> left = {{port, false}};
  bool is_first = is_outermost;
  while (!left.empty()) {
    const auto [part, is_minus] = left.back();
    left.pop_back();
    const bool is_free = is_first || rewriter_.HasOneReader(part);
    is_first = false;
    if (const auto number = Number(part)) {
      sum.number += is_minus ? -*number : *number;
      continue;
    }
    if (is_free && sum.terms.size() + sum.minus.size() + left.size() < kMostFactors) {
      if (const NodeId add = Maker(part, {"Add", "AddV2"}); add != kNoNode) {
        left.push_back({In(add, "x2"), is_minus});
        left.push_back({In(add, "x1"), is_minus});
        continue;
      }
      if (const NodeId sub = Maker(part, {"Sub"}); sub != kNoNode) {
        left.push_back({In(sub, "x2"), !is_minus});
        left.push_back({In(sub, "x1"), is_minus});
        continue;
      }
      if (const NodeId adds = Maker(part, {"Adds"}); adds != kNoNode) {
        sum.number += (is_minus ? -1 : 1) * Real(adds, "value").value_or(0);
        left.push_back({In(adds, "x"), is_minus});
        continue;
      }
    }
    (is_minus ? sum.minus : sum.terms).push_back(part);
  }
  return sum;
}

std::optional<Half> Match::HalfOf(Port port) {
  if (!port.is_set() || !IsPlain(port.node)) return std::nullopt;
  const Node& maker = graph().at(port.node);
  if (maker.type == "SplitV" && maker.outputs.size() == 2) {
    const Port x = In(port.node, "x");
    const auto dim = Integers(In(port.node, "split_dim"));
    const opdef::Shape& shape = TensorOf(x).shape;
    if (!dim || dim->size() != 1 || !shape.has_rank()) return std::nullopt;
    const auto rank = static_cast<int64_t>(shape.rank());
    const int64_t d = (*dim)[0] < 0 ? (*dim)[0] + rank : (*dim)[0];
    if (d < 0 || d >= rank) return std::nullopt;
    const auto sizes = Integers(In(port.node, "size_splits"));
    if (!sizes || sizes->size() != 2) return std::nullopt;
    const opdef::Dim& whole = shape[static_cast<size_t>(d)];
    for (const int64_t size : *sizes) {
      if (size != -1 && !(whole.is_number() && whole.number() == 2 * size)) return std::nullopt;
    }
    if ((*sizes)[0] == -1 && (*sizes)[1] == -1) return std::nullopt;
    inner_.push_back(port.node);
    return Half{x, d, static_cast<int>(port.output), false};
  }
  if (maker.type != "StridedSliceV2" || port.output != 0) return std::nullopt;
  const Port x = In(port.node, "x");
  const opdef::Shape& shape = TensorOf(x).shape;
  const auto begin = Integers(In(port.node, "begin"));
  const auto end = Integers(In(port.node, "end"));
  const auto axes = Integers(In(port.node, "axes"));
  const Port stride_port = In(port.node, "strides");
  const auto strides = stride_port.is_set() ? Integers(stride_port) : std::optional(std::vector<int64_t>{1});
  if (!begin || !end || !axes || !strides || !shape.has_rank()) return std::nullopt;
  if (begin->size() != 1 || end->size() != 1 || axes->size() != 1 || strides->size() != 1) return std::nullopt;
  for (const char* mask : {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"}) {
    if (Int(port.node, mask) != 0) return std::nullopt;
  }
  const auto rank = static_cast<int64_t>(shape.rank());
  const int64_t d = (*axes)[0] < 0 ? (*axes)[0] + rank : (*axes)[0];
  if (d < 0 || d >= rank || !shape[static_cast<size_t>(d)].is_number()) return std::nullopt;
  const int64_t size = shape[static_cast<size_t>(d)].number();
  const auto clamp = [size](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  const int64_t first = clamp((*begin)[0]);
  const int64_t stop = clamp((*end)[0]);
  if (size % 2 != 0) return std::nullopt;
  std::optional<Half> half;
  if ((*strides)[0] == 1 && first == 0 && stop == size / 2) half = Half{x, d, 0, false};
  if ((*strides)[0] == 1 && first == size / 2 && stop == size) half = Half{x, d, 1, false};
  if ((*strides)[0] == 2 && first <= 1 && stop >= size - 1 + first) {
    half = Half{x, d, static_cast<int>(first), true};
  }
  if (half) inner_.push_back(port.node);
  return half;
}

std::optional<std::pair<Port, size_t>> Match::OverLastDims(Port port, std::initializer_list<std::string_view> types) {
  if (!IsMadeBy(port, types)) return std::nullopt;
  const NodeId node = port.node;
  const Port x = In(node, "x");
  const opdef::Shape& shape = TensorOf(x).shape;
  if (!Flag(node, "keep_dims") || !shape.has_rank()) return std::nullopt;
  const Port axes_port = In(node, "axes");
  std::vector<int64_t> axes;
  if (axes_port.is_set()) {
    const auto given = Integers(axes_port);
    if (!given) return std::nullopt;
    axes = *given;
  } else {
    axes = Ints(node, "axes");
  }
  const auto rank = static_cast<int64_t>(shape.rank());
  for (int64_t& axis : axes) axis = axis < 0 ? axis + rank : axis;
  std::sort(axes.begin(), axes.end());
  if (axes.empty() || axes.front() < 0 || axes.back() != rank - 1) return std::nullopt;
  for (size_t i = 1; i < axes.size(); ++i) {
    if (axes[i] != axes[i - 1] + 1) return std::nullopt;
  }
  inner_.push_back(node);
  return std::pair(x, axes.size());
}

}  // namespace reprise::compiler
