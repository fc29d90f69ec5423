// SPDX-License-Identifier: Apache-2.0
#include "opdef/shape.h"

#include <gtest/gtest.h>

#include <random>

namespace reprise::opdef {
namespace {

const Dim s0 = Dim::Symbol(0);
const Dim s1 = Dim::Symbol(1);
const Dim s2 = Dim::Symbol(2);

TEST(DimTest, EqualExpressionsPrintAlike) {
  EXPECT_EQ("128", Dim(128).text());
  EXPECT_EQ("?", Dim::Unknown().text());
  EXPECT_EQ("s0+1", (1 + s0).text());
  EXPECT_EQ("2*s0", (s0 + s0).text());
  EXPECT_EQ("s0*s1", (s1 * s0).text());
  EXPECT_EQ("s0-s1-3", (s0 - 3 - s1).text());
  EXPECT_EQ("(s0+1)//2", FloorDiv(s0 + 1, 2).text());
  EXPECT_EQ("3*(s0//2)+1", (3 * FloorDiv(s0, 2) + 1).text());
  EXPECT_EQ(s0 * (s1 + 2), 2 * s0 + s1 * s0);
  EXPECT_EQ(Dim(3), s0 + 3 - s0);
  EXPECT_FALSE(s0 == s1);
}

TEST(DimTest, WhatDividesComesOutOfAQuotient) {
  EXPECT_EQ(s1, FloorDiv(s0 * s1, s0));
  EXPECT_EQ(s0 * 4, FloorDiv(s0 * 128, 32));
  EXPECT_EQ("s0+(s1+1)//2", FloorDiv(2 * s0 + s1 + 1, 2).text());
  EXPECT_EQ(s0, FloorDiv(2 * s0 + 1, 2));
  EXPECT_EQ(s0 + 1, CeilDiv(2 * s0 + 1, 2));
  EXPECT_EQ(Dim(-2), FloorDiv(-3, 2));
  EXPECT_EQ(Dim(1), FloorDiv(s0 + s1, s0 + s1));
  EXPECT_TRUE(FloorDiv(s0, 0).is_unknown());
  EXPECT_EQ(s0 - 1, FloorDiv(2 * s0 - 1, 2));
}

TEST(DimTest, UnknownSpreadsAndZeroWins) {
  EXPECT_TRUE((Dim::Unknown() + 1).is_unknown());
  EXPECT_TRUE((s0 * Dim::Unknown()).is_unknown());
  EXPECT_EQ(Dim(0), Dim::Unknown() * 0);
  EXPECT_TRUE((Dim(INT64_MAX) + 1).is_unknown());
  EXPECT_TRUE((Dim(INT64_MAX) * s0 * 2).is_unknown());
}

TEST(DimTest, QuestionsAreDecidedWhereTheyCanBe) {
  EXPECT_EQ(Answer::kYes, IsEqual(s0 + 1, 1 + s0));
  EXPECT_EQ(Answer::kNo, IsEqual(s0 + 1, s0));
  EXPECT_EQ(Answer::kOpen, IsEqual(s0, s1));
  EXPECT_EQ(Answer::kOpen, IsEqual(s0, 5));
  EXPECT_EQ(Answer::kNo, IsEqual(s0, 1)) << "a symbol is 2 or more";
  EXPECT_EQ(Answer::kNo, IsEqual(0, s0 * s1));
  EXPECT_EQ(Answer::kOpen, IsEqual(Dim::Unknown(), 5));
  EXPECT_EQ(5, (2 * s0 + 1).least());
  EXPECT_EQ(std::nullopt, (s0 - s1).least());
  EXPECT_EQ(0, FloorDiv(s0, 3).least());
}

// An expression and its numbers: whatever was built, substituting gives what computing with numbers gives.
TEST(DimTest, SubstitutingIsComputing) {
  std::mt19937 random(20261123);
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int round = 0; round < 2000; ++round) {
    const std::map<int, Dim> numbers = {{0, pick(2, 9)}, {1, pick(2, 9)}, {2, pick(2, 9)}};
    Dim symbolic = s0;
    Dim number = numbers.at(0);
    for (int64_t step = pick(1, 5); step > 0; --step) {
      const int id = static_cast<int>(pick(0, 2));
      const int64_t constant = pick(1, 5);
      const bool by_symbol = pick(0, 1) == 1;
      const Dim other = by_symbol ? Dim::Symbol(id) + constant : Dim(constant);
      const Dim value = by_symbol ? numbers.at(id) + constant : Dim(constant);
      switch (pick(0, 3)) {
        case 0: symbolic = symbolic + other, number = number + value; break;
        case 1: symbolic = symbolic - other, number = number - value; break;
        case 2: symbolic = symbolic * other, number = number * value; break;
        default: symbolic = FloorDiv(symbolic, other), number = FloorDiv(number, value); break;
      }
    }
    ASSERT_EQ(number, symbolic.Substitute(numbers)) << symbolic.text();
    const std::optional<int64_t> least = symbolic.least();
    if (least.has_value()) {
      ASSERT_LE(*least, number.number()) << symbolic.text();
    }
  }
}

TEST(ShapeTest, TextAndNumbers) {
  EXPECT_EQ("[s0, 128, 2*s1]", (Shape{s0, 128, s1 * 2}).text());
  EXPECT_EQ("[]", Shape().text());
  EXPECT_EQ("[..]", Shape::UnknownRank().text());
  EXPECT_EQ((std::vector<int64_t>{-1, 4}), (Shape{s0, 4}).numbers());
  EXPECT_EQ((std::vector<int64_t>{-2}), Shape::UnknownRank().numbers());
  const int64_t unknown_rank[] = {-2};
  const int64_t unknown_dim[] = {-1, 3};
  EXPECT_FALSE(Shape::Of(unknown_rank).has_rank());
  EXPECT_EQ((Shape{Dim::Unknown(), 3}), Shape::Of(unknown_dim));
  EXPECT_EQ("3*s0*s1", (Shape{s0, 3, s1}).elements().text());
  EXPECT_EQ(Dim(0), (Shape{Dim::Unknown(), 0}).elements());
  EXPECT_TRUE((Shape{2, 3}).is_static());
  EXPECT_FALSE((Shape{2, s0}).is_static());
}

TEST(FactsTest, WhatWasTakenToBeEqualIsUsed) {
  Facts facts;
  EXPECT_TRUE(facts.Unify(s1, 2 * s0));
  EXPECT_EQ("s1 = 2*s0", facts.text());
  EXPECT_EQ("2*s0+1", facts.Simplify(s1 + 1).text());
  EXPECT_TRUE(facts.Unify(s1, s0 * 2)) << "known by now";
  EXPECT_EQ(1u, facts.equal().size());
  EXPECT_TRUE(facts.Unify(s0, 4));
  EXPECT_EQ(Dim(8), facts.Simplify(s1));
  EXPECT_FALSE(facts.Unify(s1, 9));
  EXPECT_TRUE(facts.Unify(Dim::Unknown(), 7));
  EXPECT_TRUE(facts.Unify(s2 * s2, 16)) << "kept, though nothing can be replaced";
  EXPECT_EQ(3u, facts.equal().size());
}

TEST(FactsTest, Broadcasting) {
  Facts facts;
  EXPECT_EQ("[s0, 128]", Broadcast(Shape{s0, 1}, Shape{128}, facts)->text());
  EXPECT_EQ("[4, s0]", Broadcast(Shape{Dim::Unknown(), s0}, Shape{4, Dim::Unknown()}, facts)->text());
  EXPECT_FALSE(Broadcast(Shape{3}, Shape{2}, facts).has_value());
  EXPECT_FALSE(Broadcast(Shape{s0}, Shape{0}, facts).has_value());
  EXPECT_FALSE(Broadcast(Shape::UnknownRank(), Shape{2}, facts)->has_rank());
  EXPECT_TRUE(facts.empty());
  EXPECT_EQ("[s0]", Broadcast(Shape{s0}, Shape{s1}, facts)->text());
  EXPECT_EQ("s0 = s1", facts.text());
}

}  // namespace
}  // namespace reprise::opdef
