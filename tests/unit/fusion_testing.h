// SPDX-License-Identifier: Apache-2.0
//
// Tables of graphs for the fusions of the compiler: what each makes of them, and what it leaves, with the reason.
#pragma once

#include <string>
#include <vector>

#include "pass_testing.h"

namespace reprise::compiler::testing {

struct Case {
  const char* pass;
  std::string before;
  std::string after;
};

// Leaves the graph as it is, and says why; empty: it is no place of the pass.
struct Refusal {
  const char* pass;
  std::string before;
  std::string reason;
};

inline std::string Whole(const std::string& body) { return "graph g\n" + body; }

inline void ExpectFusions(const std::vector<Case>& cases) {
  for (const Case& each : cases) {
    SCOPED_TRACE(each.before);
    const PassRecord record = ExpectPass(each.pass, Whole(each.before), Whole(each.after));
    EXPECT_EQ(record.changed, 1U);
  }
}

inline void ExpectRefusals(const std::vector<Refusal>& cases) {
  for (const Refusal& each : cases) {
    SCOPED_TRACE(each.before);
    const PassRecord record = ExpectPass(each.pass, Whole(each.before), Whole(each.before));
    if (each.reason.empty()) {
      EXPECT_EQ(record.matched, 0U);
      continue;
    }
    std::string all;
    for (const std::string& refusal : record.refusals) all += refusal + "\n";
    EXPECT_NE(all.find(each.reason), std::string::npos) << all;
  }
}

}  // namespace reprise::compiler::testing
