// SPDX-License-Identifier: Apache-2.0
#include "compiler/dump/streams.h"

#include <fmt/format.h>

#include <iterator>
#include <map>

#include "compiler/dump/quoted.h"

namespace reprise::compiler {

std::string ToStreamGraph(const StreamGraph& graph) {
  std::map<uint32_t, std::vector<size_t>> streams;
  for (size_t i = 0; i < graph.nodes.size(); ++i) streams[graph.nodes[i].stream].push_back(i);
  std::string dot = fmt::format("digraph {} {{\n  node [shape=box, fontname=\"sans-serif\"];\n", Quoted(graph.name));
  auto out = std::back_inserter(dot);
  for (const auto& [stream, nodes] : streams) {
    fmt::format_to(out, "  subgraph cluster_{} {{\n    label=\"stream {}\";\n", stream, stream);
    for (const size_t i : nodes) {
      fmt::format_to(out, "    n{} [label={}];\n", i, Quoted(graph.nodes[i].name + "\n" + graph.nodes[i].type));
    }
    for (size_t k = 1; k < nodes.size(); ++k) fmt::format_to(out, "    n{} -> n{};\n", nodes[k - 1], nodes[k]);
    dot += "  }\n";
  }
  for (const auto& [first, then] : graph.waits) fmt::format_to(out, "  n{} -> n{} [style=dashed];\n", first, then);
  return dot + "}\n";
}

}  // namespace reprise::compiler
