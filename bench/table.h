// SPDX-License-Identifier: Apache-2.0
//
// The table of results: rows with a goal, a figure with its spread, and a verdict; as Markdown, as a plot, as JSON.
// Plain text work: knows nothing of how the figures came about.
#pragma once

#include <string>
#include <vector>

namespace bench {

/// Least, median and greatest of the samples.
struct Spread {
  double least = 0;
  double median = 0;
  double most = 0;
};
Spread Of(std::vector<double> values);

enum class Sense { kAtMost, kAtLeast };
/// kNone: shown for comparison, nothing was promised. kNoPeer: what it is compared with is not here.
enum class Verdict { kMet, kMissed, kNoPeer, kNone };

struct Row {
  std::string id;    ///< "R1"
  std::string what;  ///< "chain of 1000 no-ops, launch to end of wait"
  Spread here;       ///< our own time or amount
  std::string here_unit;
  std::string yardstick;  ///< what it is compared with; empty: nothing
  Spread there;
  std::string there_unit;
  Spread figure;            ///< what is judged, usually a ratio
  std::string figure_unit;  ///< "×", "ns"
  Sense sense = Sense::kAtMost;
  double goal = 0;      ///< 0: none
  double aim = 0;       ///< further than the goal; 0: none
  int tries = 1;        ///< how often the row was measured until this result
  std::string missing;  ///< why there is no figure: "oneTBB is not installed"

  Verdict verdict() const;
  /// How many times further than promised: above 1 is missed, whatever the sense. 0 where there is no goal or figure.
  double over_goal(double value) const;
};

/// "2.0 ×", "≤ 2.0 × (aim 1.5 ×)".
std::string Text(double value, const std::string& unit);
std::string Text(const Spread& spread, const std::string& unit);
std::string GoalText(const Row& row);
const char* Word(Verdict verdict);

struct Table {
  std::vector<Row> rows;
  std::string conditions;  ///< one or two sentences above the table

  std::string Markdown() const;
  /// A bar for each row with a goal: figure over goal on a logarithmic axis.
  std::string Svg() const;
  std::string Json() const;
};

}  // namespace bench
