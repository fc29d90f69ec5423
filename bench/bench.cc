// SPDX-License-Identifier: Apache-2.0
//
// What capture and replay cost, against goals: see rows.h for the rows, harness.h for the method.
//
//   reprise_bench [--rows R1,R8] [--quick] [--markdown FILE] [--svg FILE] [--json FILE]
//
// Prints the table; says on standard error what it measures meanwhile. Ends with 0 whatever the verdicts are, and with
// 1 when a result was wrong.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <string>

#include "rows.h"

namespace {

constexpr const char* kUsage =
    "usage: reprise_bench [--rows R1,R8] [--quick] [--markdown FILE] [--svg FILE] [--json FILE]\n"
    "  --rows   only these rows: R1 to R12, B1 to B3, S1\n"
    "  --quick  fewer and shorter samples, one try: shows that everything works, not how fast it is\n";

constexpr const char* kRows[] = {"R1", "R2",  "R3",  "R4",  "R5", "R6", "R7", "R8",
                                 "R9", "R10", "R11", "R12", "B1", "B2", "B3", "S1"};

void Write(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << text;
  file.close();
  bench::Require(file.good(), ("cannot write " + path).c_str());
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string Conditions(bool quick, double others) {
  std::ostringstream text;
  text << CpuName() << ", " << bench::UsableCores().size() << " cores used; " << bench::effort().rounds
       << " samples of most figures, taken in turn with the yardstick; " << bench::DisturbedSamples()
       << " were disturbed whenever they were taken; other processes used " << std::fixed << std::setprecision(2)
       << others << " cores meanwhile. Compare ratios, not times.";
  if (bench::UsableCores().size() < 2) text << " With a single core, rows of two threads say nothing.";
  if (quick) text << " A quick run: too few samples to judge by.";
  return text.str();
}

}  // namespace

int main(int argc, char** argv) {
  std::string markdown, svg, json;
  std::set<std::string> wanted;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const bool has_value = i + 1 < argc;
    if (option == "--child" && has_value) return bench::RunChild(argv[++i]);
    if (option == "--quick") {
      quick = true;
    } else if (option == "--rows" && has_value) {
      std::istringstream list(argv[++i]);
      for (std::string id; std::getline(list, id, ',');) wanted.insert(id);
    } else if (option == "--markdown" && has_value) {
      markdown = argv[++i];
    } else if (option == "--svg" && has_value) {
      svg = argv[++i];
    } else if (option == "--json" && has_value) {
      json = argv[++i];
    } else {
      std::fputs(kUsage, option == "--help" ? stdout : stderr);
      return option == "--help" ? 0 : 2;
    }
  }
  for (const std::string& id : wanted) {
    if (std::find(std::begin(kRows), std::end(kRows), id) == std::end(kRows)) {
      std::fprintf(stderr, "reprise_bench: there is no row %s\n%s", id.c_str(), kUsage);
      return 2;
    }
  }
  if (quick) bench::effort() = {3, 3, 9, 5e5, 1};
  std::vector<std::string> expected;
  for (const char* id : kRows) {
    if (wanted.empty() || wanted.count(id) > 0) expected.emplace_back(id);
  }
  bench::ExpectRows(expected);
  const bench::OtherLoad others;

  bench::Table table;
  {
    bench::Device device;
    bench::Bench run{device, table, wanted};
    bench::ChainRows(run);
    bench::LaunchRows(run);
    bench::DagRows(run);
    bench::TensorRows(run);
    bench::EagerRows(run);
    bench::BuildingRows(run);
    bench::IdleRows(run);
  }
  table.conditions = Conditions(quick, others.Cores());
  std::fputs(table.Markdown().c_str(), stdout);
  Write(markdown, table.Markdown());
  Write(svg, table.Svg());
  Write(json, table.Json());
  return 0;
}
