// SPDX-License-Identifier: Apache-2.0
//
// The table of the benchmarks: verdicts, and what is written from fixed rows.
#include "bench/table.h"
#include "support/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace bench {
namespace {

using testing::HasSubstr;
using testing::Not;

Row Judged(const std::string& id, Sense sense, double goal, Spread figure) {
  Row row;
  row.id = id;
  row.what = "row <" + id + "> & more | less";
  row.here = {1, 2, 3};
  row.here_unit = "ns";
  row.yardstick = "flat loop";
  row.there = {0.5, 1, 1.5};
  row.there_unit = "ns";
  row.figure = figure;
  row.figure_unit = "×";
  row.sense = sense;
  row.goal = goal;
  return row;
}

Table Example() {
  Table table;
  table.conditions = "two \"cores\"";
  table.rows.push_back(Judged("R1", Sense::kAtMost, 2, {1.5, 1.9, 4}));
  table.rows.push_back(Judged("R2", Sense::kAtLeast, 7, {4, 5, 6}));
  table.rows.back().tries = 3;
  table.rows.push_back(Judged("R3", Sense::kAtLeast, 15, {}));
  table.rows.back().missing = "not installed";
  table.rows.push_back(Judged("R4", Sense::kAtMost, 0, {1, 1, 1}));
  return table;
}

std::string LineOf(const std::string& text, const std::string& start) {
  const size_t at = text.find("\n" + start);
  if (at == std::string::npos) return "";
  return text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

TEST(BenchTable, SpreadIsLeastMedianMost) {
  const Spread spread = Of({5, 1, 4, 2, 3});
  EXPECT_EQ(spread.least, 1);
  EXPECT_EQ(spread.median, 3);
  EXPECT_EQ(spread.most, 5);
  EXPECT_EQ(Of({}).median, 0);
}

TEST(BenchTable, MedianDecides) {
  const Table table = Example();
  EXPECT_EQ(table.rows[0].verdict(), Verdict::kMet) << "although the greatest sample is above the goal";
  EXPECT_EQ(table.rows[1].verdict(), Verdict::kMissed);
  EXPECT_EQ(table.rows[2].verdict(), Verdict::kNoPeer);
  EXPECT_EQ(table.rows[3].verdict(), Verdict::kNone);
  EXPECT_EQ(Judged("R", Sense::kAtMost, 2, {2, 2, 2}).verdict(), Verdict::kMet) << "the goal itself is met";
  EXPECT_EQ(Judged("R", Sense::kAtLeast, 1, {0, 0, 0}).verdict(), Verdict::kMissed);
}

TEST(BenchTable, DistanceFromTheGoalPointsOneWay) {
  EXPECT_DOUBLE_EQ(Judged("R", Sense::kAtMost, 2, {}).over_goal(3), 1.5);
  EXPECT_DOUBLE_EQ(Judged("R", Sense::kAtLeast, 3, {}).over_goal(2), 1.5);
  EXPECT_DOUBLE_EQ(Judged("R", Sense::kAtMost, 0, {}).over_goal(2), 0);
}

TEST(BenchTable, Markdown) {
  const std::string text = Example().Markdown();
  EXPECT_EQ(LineOf(text, "| R1"),
            "| R1 | row <R1> & more \\| less | 2.00 ns (1.00 to 3.00) | flat loop | 1.00 ns (0.50 to 1.50) | "
            "1.90 × (1.50 to 4.00) | ≤ 2 × | met |");
  EXPECT_THAT(LineOf(text, "| R2"), HasSubstr("| ≥ 7 × | **missed**, 3 tries |"));
  EXPECT_EQ(LineOf(text, "| R3"),
            "| R3 | row <R3> & more \\| less | | flat loop: not installed | | | ≥ 15 × | no peer |");
  EXPECT_THAT(LineOf(text, "| R4"), HasSubstr("| 1.00 × | | – |"));
  EXPECT_THAT(text, HasSubstr("1 met, 1 missed, 1 without their peer, 1 for comparison only."));
}

TEST(BenchTable, PlotShowsRowsWithGoalAndFigure) {
  const std::string text = Example().Svg();
  EXPECT_EQ(text.rfind("<svg ", 0), 0U);
  EXPECT_THAT(text, HasSubstr("row &lt;R1&gt; &amp; more | less"));
  EXPECT_THAT(text, HasSubstr("1.90 ×, goal ≤ 2 ×"));
  EXPECT_THAT(text, HasSubstr("5.00 ×, goal ≥ 7 ×"));
  EXPECT_THAT(text, Not(HasSubstr("&lt;R3&gt;"))) << "there is nothing to draw without a peer";
  EXPECT_THAT(text, Not(HasSubstr("&lt;R4&gt;"))) << "there is nothing to draw without a goal";
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  EXPECT_EQ(text.substr(text.size() - 7), "</svg>\n");
}

TEST(BenchTable, PlotWithoutRowsIsStillAPicture) {
  const std::string text = Table{}.Svg();
  EXPECT_THAT(text, HasSubstr("goal"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(BenchTable, JsonCanBeReadBack) {
  const nlohmann::json json = reprise::testing::ParseJson(Example().Json());
  EXPECT_EQ(json["conditions"], "two \"cores\"");
  ASSERT_EQ(json["rows"].size(), 4U);
  EXPECT_EQ(json["rows"][0]["verdict"], "met");
  EXPECT_EQ(json["rows"][0]["figure"]["median"], 1.9);
  EXPECT_EQ(json["rows"][1]["goal"]["at"], "least");
  EXPECT_EQ(json["rows"][1]["tries"], 3);
  EXPECT_EQ(json["rows"][2]["missing"], "not installed");
  EXPECT_FALSE(json["rows"][2].contains("figure"));
  EXPECT_FALSE(json["rows"][3].contains("goal"));
  EXPECT_EQ(reprise::testing::ParseJson(Table{}.Json())["rows"].size(), 0U);
}

}  // namespace
}  // namespace bench
