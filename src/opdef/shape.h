// SPDX-License-Identifier: Apache-2.0
//
// Shapes that need not be known: a size is a number, unknown, or an expression of symbols; a rank may be unknown.
//
// An expression is kept in one normal form: a sum of products of symbols and of quotients that do not come out even.
// Equal expressions are equal objects and print alike: "s0+1", "2*s0", "s0*s1", "(s0+1)//2". A symbol stands for a size
// of at least 2: sizes 0 and 1 decide how tensors broadcast, so that front ends never make symbols of them.
//
// What cannot be decided about symbols (is s0 equal to s1?) is decided by Facts: they remember what was taken to be
// equal, so that the user of a shape can check it when the sizes are there.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace reprise::opdef {

struct Expression;  // shape.cc

/// What is known about a question.
enum class Answer : uint8_t { kNo, kYes, kOpen };

/// One size.
///
/// Threads: a value type; copies share immutable data.
class Dim {
 public:
  constexpr Dim() = default;                          ///< 0
  constexpr Dim(int64_t number) : number_(number) {}  // NOLINT: sizes are numbers most of the time
  static Dim Unknown();
  /// "s<id>".
  static Dim Symbol(int id);

  bool is_number() const { return !is_unknown_ && expression_ == nullptr; }
  bool is_unknown() const { return is_unknown_; }
  bool is_symbolic() const { return expression_ != nullptr; }
  /// \pre is_number().
  int64_t number() const { return number_; }
  bool Is(int64_t number) const { return is_number() && number_ == number; }
  /// The expression; null where it is a number or unknown.
  const std::shared_ptr<const Expression>& expression() const { return expression_; }
  static Dim Of(std::shared_ptr<const Expression> expression);

  /// A number that it is never below, given that symbols are 2 or more; nothing where there is none to be seen.
  std::optional<int64_t> least() const;

  /// "128", "2*s1", "?".
  std::string text() const;
  /// The size for these numbers of the symbols; symbols that are not among them stay.
  Dim Substitute(const std::map<int, Dim>& symbols) const;

  /// Whether both are written alike. Unknown sizes are, which does not say that they are equal.
  friend bool operator==(const Dim& a, const Dim& b);

 private:
  int64_t number_ = 0;
  bool is_unknown_ = false;
  std::shared_ptr<const Expression> expression_;
};

// Unknown sizes stay unknown, but for 0 * unknown; results beyond 64 bits are unknown.
Dim operator+(const Dim& a, const Dim& b);
Dim operator-(const Dim& a, const Dim& b);
Dim operator*(const Dim& a, const Dim& b);
/// Rounded down. Unknown where b is a number below 1.
Dim FloorDiv(const Dim& a, const Dim& b);
/// Rounded up.
Dim CeilDiv(const Dim& a, const Dim& b);

/// Whether two sizes are equal, by the expressions alone.
Answer IsEqual(const Dim& a, const Dim& b);
/// The sizes of one shape, or that the rank is not known.
///
/// Threads: as Dim.
class Shape {
 public:
  Shape() = default;  ///< rank 0
  Shape(std::initializer_list<Dim> dims) : dims_(dims) {}
  explicit Shape(std::vector<Dim> dims) : dims_(std::move(dims)) {}
  /// -1 stands for an unknown size, a single -2 for an unknown rank.
  static Shape Of(std::span<const int64_t> dims);
  static Shape UnknownRank();
  /// `rank` unknown sizes.
  static Shape Unknown(size_t rank);

  bool has_rank() const { return has_rank_; }
  size_t rank() const { return dims_.size(); }
  std::vector<Dim>& dims() { return dims_; }
  const std::vector<Dim>& dims() const { return dims_; }
  Dim& operator[](size_t d) { return dims_[d]; }
  const Dim& operator[](size_t d) const { return dims_[d]; }
  const Dim& back() const { return dims_.back(); }
  /// All sizes are numbers.
  bool is_static() const;
  /// The product of the sizes; unknown with the rank.
  Dim elements() const;
  /// As numbers, unknown and symbolic sizes as -1, an unknown rank as [-2].
  std::vector<int64_t> numbers() const;

  /// "[s0, 128, 2*s1]", "[..]" where the rank is unknown.
  std::string text() const;
  Shape Substitute(const std::map<int, Dim>& symbols) const;
  friend bool operator==(const Shape& a, const Shape& b) = default;

 private:
  bool has_rank_ = true;
  std::vector<Dim> dims_;
};

/// What was taken to be equal. A fact that one symbol equals an expression replaces the symbol from then on; others are
/// kept as they are.
///
/// Threads: thread-compatible.
class Facts {
 public:
  /// Whether both are equal; where that is open it is taken to be so. Unknown sizes are left alone, and fit everything.
  bool Unify(const Dim& a, const Dim& b);
  /// With the replaced symbols replaced.
  Dim Simplify(const Dim& dim) const;
  Shape Simplify(const Shape& shape) const;
  bool empty() const { return equal_.empty(); }
  /// The pairs, in the order in which they were taken to be equal.
  const std::vector<std::pair<Dim, Dim>>& equal() const { return equal_; }
  /// "s1 = 2*s0, s3 = 4".
  std::string text() const;

 private:
  std::map<int, Dim> replaced_;
  std::vector<std::pair<Dim, Dim>> equal_;
};

/// The size of a dim that has size a in one tensor and size b in another; nothing where they do not broadcast.
std::optional<Dim> BroadcastDim(const Dim& a, const Dim& b, Facts& facts);
/// Aligned at the last dim. An unknown rank gives an unknown rank.
std::optional<Shape> Broadcast(const Shape& a, const Shape& b, Facts& facts);
/// The better known of two sizes that are equal.
Dim Known(const Dim& a, const Dim& b);

}  // namespace reprise::opdef
