// SPDX-License-Identifier: Apache-2.0
#include "opdef/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>

namespace reprise::opdef {

// A factor of a product: a symbol, or a quotient that does not come out even.
struct Factor {
  int symbol = -1;  // -1: quotient
  std::shared_ptr<const Expression> above;
  std::shared_ptr<const Expression> below;
};

// Sum of coefficient * product. Keys are sorted factors; the empty product is the constant. No coefficient is 0.
struct Expression {
  std::map<std::vector<Factor>, int64_t> terms;
};

namespace {

int Compare(const Expression& a, const Expression& b);

int Compare(const Factor& a, const Factor& b) {
  if (a.symbol != b.symbol) {  // symbols in front of quotients
    if (a.symbol < 0 || b.symbol < 0) return a.symbol < 0 ? 1 : -1;
    return a.symbol < b.symbol ? -1 : 1;
  }
  if (a.symbol >= 0) return 0;
  const int above = Compare(*a.above, *b.above);
  return above != 0 ? above : Compare(*a.below, *b.below);
}

}  // namespace

bool operator<(const Factor& a, const Factor& b) { return Compare(a, b) < 0; }
bool operator==(const Factor& a, const Factor& b) { return Compare(a, b) == 0; }

namespace {

using Terms = std::map<std::vector<Factor>, int64_t>;

int Compare(const Expression& a, const Expression& b) {
  auto left = a.terms.begin();
  auto right = b.terms.begin();
  for (; left != a.terms.end() && right != b.terms.end(); ++left, ++right) {
    if (left->first != right->first) return left->first < right->first ? -1 : 1;
    if (left->second != right->second) return left->second < right->second ? -1 : 1;
  }
  return left != a.terms.end() ? 1 : right != b.terms.end() ? -1 : 0;
}

Terms TermsOf(const Dim& dim) {
  if (dim.is_symbolic()) return dim.expression()->terms;
  if (dim.number() == 0) return {};
  return {{{}, dim.number()}};
}

Dim Make(Terms terms) {
  std::erase_if(terms, [](const auto& term) { return term.second == 0; });
  if (terms.empty()) return {};
  if (terms.size() == 1 && terms.begin()->first.empty()) return terms.begin()->second;
  return Dim::Of(std::make_shared<const Expression>(Expression{std::move(terms)}));
}

// Adds `scale` times `terms`; false beyond 64 bits.
bool Add(Terms& sum, const Terms& terms, int64_t scale) {
  for (const auto& [factors, coefficient] : terms) {
    int64_t scaled = 0;
    int64_t& entry = sum[factors];
    if (__builtin_mul_overflow(coefficient, scale, &scaled) || __builtin_add_overflow(entry, scaled, &entry))
      return false;
  }
  return true;
}

// The product of `factors` without those of `divisor`; nothing where they are not among them.
std::optional<std::vector<Factor>> Without(std::vector<Factor> factors, const std::vector<Factor>& divisor) {
  for (const Factor& factor : divisor) {
    const auto found = std::find(factors.begin(), factors.end(), factor);
    if (found == factors.end()) return std::nullopt;
    factors.erase(found);
  }
  return factors;
}

int64_t FloorOf(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

std::string TermText(const std::vector<Factor>& factors, int64_t coefficient) {
  std::string out;
  if (coefficient != 1 || factors.empty()) out = fmt::format("{}", coefficient);
  if (coefficient == -1 && !factors.empty()) out = "-";
  for (const Factor& factor : factors) {
    if (!out.empty() && out != "-") out += "*";
    if (factor.symbol >= 0) {
      out += fmt::format("s{}", factor.symbol);
      continue;
    }
    const auto part = [](const std::shared_ptr<const Expression>& expression) {
      const Dim dim = Dim::Of(expression);
      const Terms& terms = expression->terms;
      const bool is_simple =
          terms.size() == 1 &&
          (terms.begin()->first.empty() ||
           (terms.begin()->second == 1 && terms.begin()->first.size() == 1 && terms.begin()->first[0].symbol >= 0));
      return is_simple ? dim.text() : "(" + dim.text() + ")";
    };
    // In a product, and beside other factors, a quotient stands in brackets.
    const std::string text = part(factor.above) + "//" + part(factor.below);
    out += factors.size() > 1 || coefficient != 1 ? "(" + text + ")" : text;
  }
  return out;
}

// Symbols of the expression, also those inside of quotients.
bool Contains(const Expression& expression, int symbol) {
  for (const auto& term : expression.terms) {
    for (const Factor& factor : term.first) {
      if (factor.symbol == symbol) return true;
      if (factor.symbol < 0 && (Contains(*factor.above, symbol) || Contains(*factor.below, symbol))) return true;
    }
  }
  return false;
}

}  // namespace

// ---- Dim ----

Dim Dim::Unknown() {
  Dim dim;
  dim.is_unknown_ = true;
  return dim;
}

Dim Dim::Symbol(int id) { return Make({{{Factor{id, nullptr, nullptr}}, 1}}); }

Dim Dim::Of(std::shared_ptr<const Expression> expression) {
  Dim dim;
  dim.expression_ = std::move(expression);
  return dim;
}

bool operator==(const Dim& a, const Dim& b) {
  if (a.is_unknown_ != b.is_unknown_ || a.is_symbolic() != b.is_symbolic()) return false;
  if (a.is_unknown_) return true;
  return a.is_symbolic() ? Compare(*a.expression_, *b.expression_) == 0 : a.number_ == b.number_;
}

std::optional<int64_t> Dim::least() const {
  if (is_unknown_) return std::nullopt;
  if (expression_ == nullptr) return number_;
  int64_t sum = 0;
  for (const auto& [factors, coefficient] : expression_->terms) {
    int64_t least = coefficient;
    for (const Factor& factor : factors) {
      if (coefficient < 0) return std::nullopt;
      // A quotient of what is not negative is at least 0.
      const bool is_symbol = factor.symbol >= 0;
      if (!is_symbol && (!Dim::Of(factor.above).least().has_value() || *Dim::Of(factor.above).least() < 0))
        return std::nullopt;
      if (__builtin_mul_overflow(least, is_symbol ? 2 : 0, &least)) return std::nullopt;
    }
    if (__builtin_add_overflow(sum, least, &sum)) return std::nullopt;
  }
  return sum;
}

std::string Dim::text() const {
  if (is_unknown_) return "?";
  if (expression_ == nullptr) return fmt::format("{}", number_);
  std::string out;
  // Constants come last.
  for (const bool constants : {false, true}) {
    for (const auto& [factors, coefficient] : expression_->terms) {
      if (factors.empty() != constants) continue;
      const std::string term = TermText(factors, coefficient);
      if (!out.empty() && term[0] != '-') out += "+";
      out += term;
    }
  }
  return out;
}

Dim Dim::Substitute(const std::map<int, Dim>& symbols) const {
  if (expression_ == nullptr) return *this;
  Dim sum;
  for (const auto& [factors, coefficient] : expression_->terms) {
    Dim product = coefficient;
    for (const Factor& factor : factors) {
      if (factor.symbol < 0) {
        const auto part = [&](const std::shared_ptr<const Expression>& expression) {
          return Make(expression->terms).Substitute(symbols);
        };
        product = product * FloorDiv(part(factor.above), part(factor.below));
        continue;
      }
      const auto found = symbols.find(factor.symbol);
      product = product * (found != symbols.end() ? found->second : Symbol(factor.symbol));
    }
    sum = sum + product;
  }
  return sum;
}

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_unknown() || b.is_unknown()) return Dim::Unknown();
  Terms terms = TermsOf(a);
  return Add(terms, TermsOf(b), 1) ? Make(std::move(terms)) : Dim::Unknown();
}

Dim operator-(const Dim& a, const Dim& b) {
  if (a.is_unknown() || b.is_unknown()) return Dim::Unknown();
  Terms terms = TermsOf(a);
  return Add(terms, TermsOf(b), -1) ? Make(std::move(terms)) : Dim::Unknown();
}

Dim operator*(const Dim& a, const Dim& b) {
  if (a.Is(0) || b.Is(0)) return 0;
  if (a.is_unknown() || b.is_unknown()) return Dim::Unknown();
  Terms terms;
  for (const auto& [left, first] : TermsOf(a)) {
    for (const auto& [right, second] : TermsOf(b)) {
      std::vector<Factor> factors = left;
      factors.insert(factors.end(), right.begin(), right.end());
      std::sort(factors.begin(), factors.end());
      int64_t product = 0;
      if (__builtin_mul_overflow(first, second, &product)) return Dim::Unknown();
      int64_t& entry = terms[factors];
      if (__builtin_add_overflow(entry, product, &entry)) return Dim::Unknown();
    }
  }
  return Make(std::move(terms));
}

Dim FloorDiv(const Dim& a, const Dim& b) {
  if (a.is_unknown() || b.is_unknown() || (b.is_number() && b.number() < 1)) return Dim::Unknown();
  if (a.is_number() && b.is_number()) return FloorOf(a.number(), b.number());
  if (a.Is(0)) return 0;
  const Terms above = TermsOf(a);
  const Terms below = TermsOf(b);
  if (below.size() != 1) {
    if (a == b) return 1;
    return Make(
        {{{Factor{-1,
                  a.expression() != nullptr ? a.expression() : std::make_shared<const Expression>(Expression{above}),
                  b.expression()}},
          1}});
  }
  // By one product: what it divides comes out of the quotient.
  const auto& [factors, divisor] = *below.begin();
  Terms whole;
  Terms rest;
  for (const auto& [product, coefficient] : above) {
    const std::optional<std::vector<Factor>> left = Without(product, factors);
    if (!left.has_value()) {
      rest[product] = coefficient;
      continue;
    }
    const int64_t quotient = FloorOf(coefficient, divisor);
    if (quotient != 0) whole[*left] += quotient;
    const int64_t remainder = coefficient - quotient * divisor;
    if (remainder != 0) rest[product] = remainder;
  }
  // A constant rest below a constant divisor gives nothing.
  const bool is_small = factors.empty() && rest.size() == 1 && rest.begin()->first.empty();
  if (!rest.empty() && !is_small) {
    whole[{Factor{-1, std::make_shared<const Expression>(Expression{rest}),
                  std::make_shared<const Expression>(Expression{below})}}] += 1;
  }
  return Make(std::move(whole));
}

Dim CeilDiv(const Dim& a, const Dim& b) { return FloorDiv(a + b - 1, b); }

Answer IsEqual(const Dim& a, const Dim& b) {
  if (a.is_unknown() || b.is_unknown()) return Answer::kOpen;
  const Dim difference = a - b;
  if (difference.is_number()) return difference.number() == 0 ? Answer::kYes : Answer::kNo;
  // A symbol is 2 or more, so a product of symbols is neither 0 nor 1.
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (!one->is_number() || one->number() > 1 || !other->is_symbolic()) continue;
    const Terms& terms = other->expression()->terms;
    const bool is_large = std::all_of(terms.begin(), terms.end(), [](const auto& term) {
      return term.second > 0 &&
             std::all_of(term.first.begin(), term.first.end(), [](const Factor& factor) { return factor.symbol >= 0; });
    });
    if (is_large) return Answer::kNo;
  }
  return Answer::kOpen;
}

Dim Known(const Dim& a, const Dim& b) {
  if (a.is_number() || b.is_unknown()) return a;
  return b.is_number() || a.is_unknown() ? b : a;
}

// ---- Shape ----

Shape Shape::Of(std::span<const int64_t> dims) {
  if (dims.size() == 1 && dims[0] == -2) return UnknownRank();
  Shape shape;
  for (const int64_t dim : dims) shape.dims_.push_back(dim < 0 ? Dim::Unknown() : Dim(dim));
  return shape;
}

Shape Shape::UnknownRank() {
  Shape shape;
  shape.has_rank_ = false;
  return shape;
}

Shape Shape::Unknown(size_t rank) { return Shape(std::vector<Dim>(rank, Dim::Unknown())); }

bool Shape::is_static() const {
  return has_rank_ && std::all_of(dims_.begin(), dims_.end(), [](const Dim& dim) { return dim.is_number(); });
}

Dim Shape::elements() const {
  if (!has_rank_) return Dim::Unknown();
  Dim count = 1;
  bool is_empty = false;
  for (const Dim& dim : dims_) {
    is_empty |= dim.Is(0);
    count = count * dim;
  }
  return is_empty ? Dim(0) : count;
}

std::vector<int64_t> Shape::numbers() const {
  if (!has_rank_) return {-2};
  std::vector<int64_t> out;
  for (const Dim& dim : dims_) out.push_back(dim.is_number() ? dim.number() : -1);
  return out;
}

std::string Shape::text() const {
  if (!has_rank_) return "[..]";
  std::string out = "[";
  for (const Dim& dim : dims_) out.append(out.size() > 1 ? ", " : "").append(dim.text());
  return out + "]";
}

Shape Shape::Substitute(const std::map<int, Dim>& symbols) const {
  Shape shape = *this;
  for (Dim& dim : shape.dims_) dim = dim.Substitute(symbols);
  return shape;
}

// ---- Facts ----

bool Facts::Unify(const Dim& first, const Dim& second) {
  if (first.is_unknown() || second.is_unknown()) return true;
  const Dim a = Simplify(first);
  const Dim b = Simplify(second);
  const Answer answer = IsEqual(a, b);
  if (answer != Answer::kOpen) return answer == Answer::kYes;
  equal_.emplace_back(a, b);
  // A symbol that stands by itself, and nowhere else, can be replaced; the younger one first.
  const Terms difference = (a - b).expression()->terms;
  for (auto term = difference.rbegin(); term != difference.rend(); ++term) {
    if (term->first.size() != 1 || term->first[0].symbol < 0 || (term->second != 1 && term->second != -1)) continue;
    const int symbol = term->first[0].symbol;
    Terms rest = difference;
    rest.erase(term->first);
    if (Contains(Expression{rest}, symbol)) continue;
    Terms value;
    if (!Add(value, rest, -term->second)) continue;
    const std::map<int, Dim> replacement = {{symbol, Make(std::move(value))}};
    for (auto& entry : replaced_) entry.second = entry.second.Substitute(replacement);
    replaced_.insert(*replacement.begin());
    break;
  }
  return true;
}

Dim Facts::Simplify(const Dim& dim) const { return replaced_.empty() ? dim : dim.Substitute(replaced_); }

Shape Facts::Simplify(const Shape& shape) const { return replaced_.empty() ? shape : shape.Substitute(replaced_); }

std::string Facts::text() const {
  std::string out;
  for (const auto& [a, b] : equal_) out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", a.text(), b.text());
  return out;
}

// ---- Broadcasting ----

std::optional<Dim> BroadcastDim(const Dim& a, const Dim& b, Facts& facts) {
  if (a.Is(1)) return b;
  if (b.Is(1)) return a;
  // The other one is equal or 1.
  if (a.is_unknown() || b.is_unknown()) return Known(a, b);
  if (!facts.Unify(a, b)) return std::nullopt;
  return Known(facts.Simplify(a), facts.Simplify(b));
}

std::optional<Shape> Broadcast(const Shape& a, const Shape& b, Facts& facts) {
  if (!a.has_rank() || !b.has_rank()) return Shape::UnknownRank();
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  const size_t fresh = longer.rank() - shorter.rank();
  for (size_t d = 0; d < shorter.rank(); ++d) {
    const std::optional<Dim> dim = BroadcastDim(longer[fresh + d], shorter[d], facts);
    if (!dim.has_value()) return std::nullopt;
    out[fresh + d] = *dim;
  }
  return out;
}

}  // namespace reprise::opdef
