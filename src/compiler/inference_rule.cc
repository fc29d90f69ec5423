// SPDX-License-Identifier: Apache-2.0
#include "compiler/inference_rule.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace reprise::compiler {
namespace {

using nlohmann::json;
using opdef::Dim;

constexpr int kMostDepth = 100;
constexpr int64_t kMostPower = 64;

// A quotient that was not rounded yet.
struct Quotient {
  Dim over;
  Dim under = 1;
};

Quotient operator*(const Quotient& a, const Quotient& b) { return {a.over * b.over, a.under * b.under}; }
Quotient operator+(const Quotient& a, const Quotient& b) {
  if (a.under == b.under) return {a.over + b.over, a.under};
  return {a.over * b.under + b.over * a.under, a.under * b.under};
}
Quotient operator-(const Quotient& a, const Quotient& b) { return a + b * Quotient{-1}; }

// Divisors are positive, as far as that can be seen.
Quotient Reduced(Quotient value) {
  if (value.under.is_number() && value.under.number() < 0) {
    value.over = Dim(0) - value.over;
    value.under = Dim(0) - value.under;
  }
  return value;
}

using Symbols = std::map<std::string, Dim, std::less<>>;

// One expression. Failures are a text that says what is wrong.
class Expression {
 public:
  Expression(std::string_view text, const Symbols& symbols) : text_(text), symbols_(symbols) {}

  std::optional<Dim> Value() {
    std::optional<Quotient> value = Sum();
    SkipSpace();
    if (value && at_ != text_.size()) value = Fail("something follows the expression");
    if (!value) return std::nullopt;
    const Quotient whole = Reduced(*value);
    if (whole.under.Is(1)) return whole.over;
    if (whole.over.is_number() && whole.under.is_number() && whole.over.number() % whole.under.number() != 0) {
      Fail("is no whole number");
      return std::nullopt;
    }
    return opdef::FloorDiv(whole.over, whole.under);
  }
  const std::string& failure() const { return failure_; }

 private:
  using Result = std::optional<Quotient>;

  Result Fail(std::string what) {
    if (failure_.empty()) failure_ = std::move(what);
    return std::nullopt;
  }
  void SkipSpace() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool Take(char wanted) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  Result Sum() {
    Result value = Product();
    while (value) {
      const bool is_sum = Take('+');
      if (!is_sum && !Take('-')) break;
      const Result next = Product();
      if (!next) return next;
      value = is_sum ? *value + *next : *value - *next;
    }
    return value;
  }

  Result Product() {
    Result value = Factor();
    while (value && Take('*')) {
      const Result next = Factor();
      if (!next) return next;
      value = *value * *next;
    }
    return value;
  }

  Result Factor() {
    if (++depth_ > kMostDepth) return Fail("is nested too deeply");
    Result value = Term();
    --depth_;
    return value;
  }

  Result Term() {
    if (Take('-')) {
      const Result value = Factor();
      return value ? Result(Quotient{0} - *value) : value;
    }
    if (Take('(')) {
      Result value = Sum();
      if (value && !Take(')')) return Fail("a bracket is not closed");
      return value;
    }
    SkipSpace();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word.empty())
      return Fail(begin < text_.size() ? fmt::format("'{}' begins no number, symbol or function", text_[begin])
                                       : "ends too early");
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) return Number(word);
    if (Take('(')) return Call(word);
    const auto found = symbols_.find(word);
    if (found == symbols_.end()) return Fail(fmt::format("the symbol {} is bound by no input", word));
    return Quotient{found->second};
  }

  Result Number(std::string_view word) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size()) return Fail(fmt::format("{} is no integer", word));
    return Quotient{number};
  }

  Result Call(std::string_view name) {
    const size_t wanted = name == "Floor" || name == "Ceil"                 ? 1
                          : name == "Div" || name == "Pow" || name == "Mod" ? 2
                                                                            : 0;
    if (wanted == 0) return Fail(fmt::format("there is no function {}", name));
    Quotient arguments[2];
    for (size_t i = 0; i < wanted; ++i) {
      if (i != 0 && !Take(',')) return Fail(fmt::format("{} takes {} arguments", name, wanted));
      const Result value = Sum();
      if (!value) return value;
      arguments[i] = *value;
    }
    if (!Take(')')) return Fail(fmt::format("{} takes {} arguments, and a bracket behind them", name, wanted));
    if (name == "Floor") return Floor(arguments[0]);
    if (name == "Ceil") return Ceil(arguments[0]);
    if (name == "Pow") return Power(arguments[0], arguments[1]);
    if (arguments[1].over.Is(0)) return Fail(fmt::format("{} divides by 0", name));
    const Quotient quotient = Reduced({arguments[0].over * arguments[1].under, arguments[0].under * arguments[1].over});
    if (name == "Div") return quotient;
    return arguments[0] - arguments[1] * Floor(quotient);
  }

  static Quotient Floor(const Quotient& value) {
    const Quotient reduced = Reduced(value);
    return reduced.under.Is(1) ? reduced : Quotient{opdef::FloorDiv(reduced.over, reduced.under)};
  }

  static Quotient Ceil(const Quotient& value) {
    const Quotient reduced = Reduced(value);
    return reduced.under.Is(1) ? reduced : Quotient{opdef::CeilDiv(reduced.over, reduced.under)};
  }

  Result Power(const Quotient& base, const Quotient& exponent) {
    if (!exponent.over.is_number() || !exponent.under.Is(1)) return Quotient{Dim::Unknown()};
    const int64_t power = exponent.over.number();
    if (power > kMostPower || power < -kMostPower) return Fail(fmt::format("the exponent {} is too large", power));
    const int64_t times = std::abs(power);
    Quotient value{1};
    for (int64_t i = 0; i < times; ++i) value = value * base;
    if (power >= 0) return value;
    if (value.over.Is(0)) return Fail("Pow divides by 0");
    return Reduced({value.under, value.over});
  }

  const std::string_view text_;
  const Symbols& symbols_;
  size_t at_ = 0;
  int depth_ = 0;
  std::string failure_;
};

class Rule {
 public:
  Rule(Node& node, std::span<const RuleInput> inputs) : node_(node), inputs_(inputs) {}

  Status Apply(const std::string& text) {
    const json rule = json::parse(text, nullptr, false);
    if (rule.is_discarded()) return Wrong("is no JSON");
    const json* const shape = Member(rule, "shape");
    const json* const inputs = shape != nullptr ? Member(*shape, "inputs") : nullptr;
    const json* const outputs = shape != nullptr ? Member(*shape, "outputs") : nullptr;
    if (inputs == nullptr || !inputs->is_array() || outputs == nullptr || !outputs->is_array()) {
      return Wrong("has no lists shape.inputs and shape.outputs");
    }
    if (inputs->size() > inputs_.size()) {
      return Wrong(fmt::format("has {} inputs, the node {}", inputs->size(), inputs_.size()));
    }
    for (size_t i = 0; i < inputs->size(); ++i) REPRISE_RETURN_IF_ERROR(Bind((*inputs)[i], i));
    if (node_.outputs.empty()) node_.outputs.resize(outputs->size());
    if (outputs->size() != node_.outputs.size()) {
      return Wrong(fmt::format("has {} outputs, the node {}", outputs->size(), node_.outputs.size()));
    }
    for (size_t i = 0; i < outputs->size(); ++i) REPRISE_RETURN_IF_ERROR(SetShape((*outputs)[i], i));
    return SetTypes(Member(rule, "dtype"));
  }

 private:
  Status Wrong(std::string what) const {
    return Error(kInvalidArgument, fmt::format("node {} ({}): its _inference_rule {}", node_.name, node_.type, what))
        .Culprit(fmt::format("attribute _inference_rule of node {}", node_.name))
        .Hint(R"(give {"shape": {"inputs": [["s0"], null], "outputs": [["s0"]]}, "dtype": [0]})");
  }

  static const json* Member(const json& object, const char* name) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
  }

  static bool IsSymbol(std::string_view text) {
    if (text.size() < 2 || (text[0] != 's' && text[0] != 'v')) return false;
    return text.find_first_not_of("0123456789", 1) == std::string_view::npos;
  }

  Status Bind(const json& entry, size_t index) {
    if (entry.is_null()) return {};
    if (!entry.is_array()) return Wrong(fmt::format("gives neither a list nor null for input {}", index));
    const RuleInput& input = inputs_[index];
    for (size_t d = 0; d < entry.size(); ++d) {
      if (!entry[d].is_string()) continue;
      const auto& name = entry[d].get_ref<const std::string&>();
      if (!IsSymbol(name)) continue;
      Dim value = Dim::Unknown();
      if (name[0] == 's' && input.shape.has_rank()) {
        if (input.shape.rank() != entry.size()) {
          return Wrong(fmt::format("has {} sizes for input {}, which has the shape {}", entry.size(), index,
                                   input.shape.text()));
        }
        value = input.shape[d];
      }
      if (name[0] == 'v' && input.value) {
        if (d >= input.value->size()) {
          return Wrong(fmt::format("takes element {} of input {}, which has {}", d, index, input.value->size()));
        }
        value = (*input.value)[d];
      }
      symbols_.insert_or_assign(name, value);
    }
    return {};
  }

  Status SetShape(const json& entry, size_t index) {
    if (!entry.is_array()) return Wrong(fmt::format("gives no list for output {}", index));
    std::vector<Dim> dims;
    for (size_t d = 0; d < entry.size(); ++d) {
      const bool is_text = entry[d].is_string();
      if (!is_text && !entry[d].is_number_integer()) {
        return Wrong(fmt::format("has neither an integer nor a text for size {} of output {}", d, index));
      }
      const std::string text = is_text ? entry[d].get<std::string>() : entry[d].dump();
      Expression expression(text, symbols_);
      const std::optional<Dim> value = expression.Value();
      if (!value) {
        return Wrong(fmt::format("has \"{}\" for size {} of output {}: {}", text, d, index, expression.failure()));
      }
      if (value->is_number() && value->number() < 0) {
        return Wrong(
            fmt::format("has \"{}\" for size {} of output {}, which gives {}", text, d, index, value->number()));
      }
      dims.push_back(*value);
    }
    opdef::Shape& shape = node_.outputs[index].tensor.shape;
    if (node_.op != nullptr && shape.has_rank() && shape.rank() == dims.size()) {
      for (size_t d = 0; d < dims.size(); ++d) shape[d] = opdef::Known(shape[d], dims[d]);
    } else if (node_.op == nullptr || !shape.has_rank()) {
      shape = opdef::Shape(std::move(dims));
    }
    return {};
  }

  Status SetTypes(const json* types) {
    if (types == nullptr || node_.op != nullptr) return {};
    if (!types->is_array() || types->size() != node_.outputs.size()) {
      return Wrong(fmt::format("has no list of {} types in dtype", node_.outputs.size()));
    }
    for (size_t i = 0; i < types->size(); ++i) {
      const bool is_number = (*types)[i].is_number_integer();
      const int64_t type = is_number ? (*types)[i].get<int64_t>() : -1;
      if (type < 0 || type > INT32_MAX || opdef::TypeBits(static_cast<int32_t>(type)) <= 0) {
        return Wrong(fmt::format("has no type for output {}", i));
      }
      node_.outputs[i].tensor.dtype = static_cast<int32_t>(type);
    }
    return {};
  }

  Node& node_;
  const std::span<const RuleInput> inputs_;
  Symbols symbols_;
};

}  // namespace

const std::string* InferenceRuleOf(const Node& node) {
  for (const opdef::Attributes* attributes : {&node.notes, &node.attributes}) {
    const auto found = attributes->find("_inference_rule");
    if (found == attributes->end()) continue;
    if (const auto* text = std::get_if<std::string>(&found->second)) return text;
  }
  return nullptr;
}

Status ApplyInferenceRule(Node& node, std::span<const RuleInput> inputs) {
  const std::string* const text = InferenceRuleOf(node);
  return text != nullptr ? Rule(node, inputs).Apply(*text) : Status();
}

}  // namespace reprise::compiler
