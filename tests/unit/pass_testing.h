// SPDX-License-Identifier: Apache-2.0
//
// Passes of the compiler, tested on graphs as text: what stands there before, and what behind.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph.h"
#include "compiler/passes/passes.h"
#include "compiler/rewrite.h"
#include "compiler/text.h"

namespace reprise::compiler::testing {

/// Verified, with shapes worked out; graphs that are called, too.
inline Status Check(Graph& graph) {
  REPRISE_RETURN_IF_ERROR(Verify(graph));
  opdef::Facts facts;
  REPRISE_RETURN_IF_ERROR(InferShapes(graph, facts));
  for (Node& node : graph.nodes) {
    for (const auto& inner : node.graphs) REPRISE_RETURN_IF_ERROR(Check(*inner));
  }
  return {};
}

/// The graph of a text, verified and with shapes; null and a failed test where it is none.
inline std::unique_ptr<Graph> Read(std::string_view text) {
  StatusOr<std::unique_ptr<Graph>> graph = FromText(text);
  if (!graph.ok()) {
    const Status status = std::move(graph).status();
    ADD_FAILURE() << status.detail().what << "\n" << status.detail().culprit << "\n" << text;
    return nullptr;
  }
  const Status status = Check(**graph);
  if (status.ok()) return std::move(graph).value();
  ADD_FAILURE() << status.detail().what << "\n" << text;
  return nullptr;
}

/// Names behind "after" in the order of the alphabet.
inline void SortOrder(Graph& graph) {
  const auto by_name = [&](NodeId a, NodeId b) { return graph.at(a).name < graph.at(b).name; };
  std::sort(graph.results_after.begin(), graph.results_after.end(), by_name);
  for (Node& node : graph.nodes) {
    std::sort(node.after.begin(), node.after.end(), by_name);
    for (const auto& inner : node.graphs) SortOrder(*inner);
  }
}

/// Lines in an order that does not depend on that of the nodes: those of each graph by name, its return last.
inline std::string Sorted(Graph& graph) {
  SortOrder(graph);
  const std::string text = ToText(graph, Notes::kShow);
  std::string sorted;
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at + 1);
    at = end + 1;
    const bool is_edge = line.starts_with("graph ") || line.starts_with("return ") || line == "\n";
    if (!is_edge) {
      lines.push_back(line);
      continue;
    }
    std::sort(lines.begin(), lines.end());
    for (const std::string& each : lines) sorted += each;
    lines.clear();
    sorted += line;
  }
  return sorted;
}

/// Runs one pass on `before`: it must give `after`, names, types, notes and order of nodes by edges included. Returns
/// what the pass counted.
inline PassRecord ExpectPass(std::string_view pass, std::string_view before, std::string_view after,
                             const PassOptions& options = {}) {
  PassRecord record;
  const Pass* found = FindPass(pass);
  if (found == nullptr) {
    ADD_FAILURE() << "there is no pass " << pass;
    return record;
  }
  const std::unique_ptr<Graph> graph = Read(before);
  const std::unique_ptr<Graph> wanted = Read(after);
  if (graph == nullptr || wanted == nullptr) return record;
  const std::string unchanged = Sorted(*graph);
  Status status = RunPass(*found, *graph, options, &record);
  EXPECT_TRUE(status.ok()) << status.detail().what;
  if (!status.ok()) return record;
  const std::string by_pass = Sorted(*graph);
  status = Check(*graph);
  EXPECT_TRUE(status.ok()) << pass << ": " << status.detail().what << "\n" << ToText(*graph);
  EXPECT_EQ(by_pass, Sorted(*graph)) << pass << " left types or shapes that inference does not find";
  EXPECT_EQ(by_pass, Sorted(*wanted)) << pass;
  EXPECT_EQ(record.changed != 0, by_pass != unchanged) << pass << " counts " << record.changed << " changes";
  return record;
}

/// The pass leaves the graph as it is.
inline PassRecord ExpectNoPass(std::string_view pass, std::string_view before, const PassOptions& options = {}) {
  return ExpectPass(pass, before, before, options);
}

}  // namespace reprise::compiler::testing
