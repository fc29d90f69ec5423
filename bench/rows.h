// SPDX-License-Identifier: Apache-2.0
//
// The rows of the table, by theme. A function measures those of its rows that were asked for and appends them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "device.h"
#include "harness.h"
#include "peers/peer.h"
#include "table.h"

namespace bench {

struct Bench {
  Device& device;
  Table& table;
  std::set<std::string> wanted;  ///< empty: all
  bool Wants(const std::string& id) const { return wanted.empty() || wanted.count(id) > 0; }
};

void ChainRows(Bench& bench);     ///< R1 to R4
void LaunchRows(Bench& bench);    ///< R5 to R7
void DagRows(Bench& bench);       ///< R8, R9
void TensorRows(Bench& bench);    ///< R10, R11
void EagerRows(Bench& bench);     ///< R12
void BuildingRows(Bench& bench);  ///< B1 to B3
void IdleRows(Bench& bench);      ///< S1

/// What a process of its own does for IdleRows, and prints. Returns the process's exit code.
int RunChild(const std::string& which);

/// CPU time of each thread of the process but the calling one, in nanoseconds, by thread number.
std::vector<std::pair<int, double>> ThreadTimes();

// ---- Filling rows in. ----

inline Row NewRow(const std::string& id, const std::string& what) {
  Row row;
  row.id = id;
  row.what = what;
  return row;
}
inline Row& Here(Row& row, const Series& values, const std::string& unit) {
  row.here = Of(values);
  row.here_unit = unit;
  return row;
}
inline Row& There(Row& row, const std::string& yardstick, const Series& values, const std::string& unit) {
  row.yardstick = yardstick;
  row.there = Of(values);
  row.there_unit = unit;
  return row;
}
inline Row& Judge(Row& row, const Series& values, const std::string& unit, Sense sense, double goal, double aim = 0) {
  row.figure = Of(values);
  row.figure_unit = unit;
  row.sense = sense;
  row.goal = goal;
  row.aim = aim;
  return row;
}

/// Rows whose figures depend on what else the machine does with its cores: measured again until all goals are met, a
/// few times at most. Of each row the best result stays.
template <class Measure>
void AddBestOfTries(Table& table, Measure measure) {
  std::vector<Row> best;
  for (int attempt = 1; attempt <= effort().tries; ++attempt) {
    std::vector<Row> rows = measure();
    if (best.empty()) best = rows;
    bool all_met = true;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].goal > 0 && rows[i].over_goal(rows[i].figure.median) < best[i].over_goal(best[i].figure.median)) {
        best[i] = rows[i];
        best[i].tries = attempt;
      }
      if (best[i].verdict() == Verdict::kMissed) {
        all_met = false;
        best[i].tries = attempt;
      }
    }
    if (all_met) break;
  }
  table.rows.insert(table.rows.end(), best.begin(), best.end());
}

}  // namespace bench
