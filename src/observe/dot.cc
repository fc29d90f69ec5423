// SPDX-License-Identifier: Apache-2.0
#include "observe/dot.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include "base/text_file.h"
#include "ir/graph.h"
#include "observe/colours.h"

namespace reprise::observe {
namespace {

// The characters of a quoted DOT string.
std::string EscapeDot(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out;
}

}  // namespace

std::string Dot(const model::Model& model) {
  const ir::Graph& graph = model.graph();
  std::string out = fmt::format(
      "digraph \"{}\" {{\n  rankdir=TB;\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\", "
      "fontsize=10];\n",
      EscapeDot(model.Describe()));
  const auto put = std::back_inserter(out);
  for (ir::LaneId lane_id = 0; lane_id < graph.lanes().size(); ++lane_id) {
    const ir::Lane& lane = graph.lanes()[lane_id];
    fmt::format_to(put, "  subgraph cluster_{0} {{\n    label=\"{1} {2} (captured stream {3})\";\n", lane_id,
                   lane_id == 0 ? "origin, stream" : "stream", lane.stream_id, lane.user_stream_id);
    for (const ir::NodeId id : lane.nodes) {
      const ir::Node& node = graph.node(id);
      const ir::TaskInfo info = ir::Describe(node);
      fmt::format_to(put, "    n{} [label=\"{}\\n{}, task {}\", fillcolor=\"{}\"", id, EscapeDot(info.name),
                     info.type_name, node.position, ColoursOf(node.type->kind).fill);
      if (!info.stack.empty()) fmt::format_to(put, ", tooltip=\"{}\"", EscapeDot(info.stack.front()));
      out += "];\n";
    }
    for (size_t i = 1; i < lane.nodes.size(); ++i) {
      fmt::format_to(put, "    n{} -> n{};\n", lane.nodes[i - 1], lane.nodes[i]);
    }
    out += "  }\n";
  }
  for (const ir::Lane& lane : graph.lanes()) {
    for (const ir::NodeId id : lane.nodes) {
      const ir::Node& node = graph.node(id);
      if (node.type != &ir::kEdgeWait) continue;
      fmt::format_to(put, "  n{} -> n{} [color=\"#b3452f\"];\n",
                     static_cast<const ir::EdgePayload*>(node.payload)->record, id);
    }
  }
  return out + "}\n";
}

Status WriteDot(const model::Model& model, const std::string& path) { return WriteTextFile(path, Dot(model)); }

}  // namespace reprise::observe
