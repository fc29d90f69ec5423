// SPDX-License-Identifier: Apache-2.0
//
// What compiling a graph costs for each of its nodes: a chain of element-wise operators, from AddGraph to CompileGraph,
// without tuning. Each size is compiled several times, in sessions of their own; the medians are printed.
//
//     ge_compile_cost [nodes…]
#include <ge/ge_api.h>
#include <graph/graph.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "all_ops.h"

namespace {

using Options = std::map<ge::AscendString, ge::AscendString>;
constexpr int kTimes = 3;

void Must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s: %s\n", what, ge::GEGetErrorMsgV2().GetString());
  std::exit(1);
}

ge::Graph Chain(int nodes) {
  const ge::TensorDesc desc(ge::Shape({8, 64}), ge::FORMAT_ND, ge::DT_FLOAT);
  ge::op::Data x("x");
  x.set_attr_index(0);
  x.update_input_desc_x(desc);
  x.update_output_desc_y(desc);
  ge::Operator last = x;
  for (int i = 0; i < nodes; ++i) {
    const std::string name = "node" + std::to_string(i);
    switch (i % 3) {
      case 0: last = ge::op::Add(name.c_str()).set_input_x1(last).set_input_x2(x); break;
      case 1: last = ge::op::Relu(name.c_str()).set_input_x(last); break;
      default: last = ge::op::Mul(name.c_str()).set_input_x1(last).set_input_x2(x);
    }
  }
  ge::Graph graph("chain");
  graph.SetInputs({x}).SetOutputs({last});
  return graph;
}

double MillisecondsToCompile(int nodes) {
  const ge::Graph graph = Chain(nodes);
  ge::Session session{Options()};
  const auto begin = std::chrono::steady_clock::now();
  Must(session.AddGraph(1, graph) == ge::SUCCESS, "AddGraph");
  Must(session.CompileGraph(1) == ge::SUCCESS, "CompileGraph");
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int count, char** words) {
  std::vector<int> sizes;
  for (int i = 1; i < count; ++i) sizes.push_back(std::max(1, std::atoi(words[i])));
  if (sizes.empty()) sizes = {100, 1000, 10000, 50000, 100000};
  Must(ge::GEInitialize(Options{{"ge.exec.deviceId", "0"}, {"ge.graphRunMode", "0"}}) == ge::SUCCESS, "GEInitialize");
  std::printf("| Nodes | to compile, ms | for each node, ms |\n|--:|--:|--:|\n");
  for (const int nodes : sizes) {
    std::vector<double> times;
    for (int i = 0; i < kTimes; ++i) times.push_back(MillisecondsToCompile(nodes));
    std::sort(times.begin(), times.end());
    std::printf("| %d | %.1f | %.4f |\n", nodes, times[kTimes / 2], times[kTimes / 2] / nodes);
    std::fflush(stdout);
  }
  return ge::GEFinalize() == ge::SUCCESS ? 0 : 1;
}
