// SPDX-License-Identifier: Apache-2.0
#include "engine/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/json_text.h"
#include "engine/numbers.h"

namespace reprise::engine {
namespace {

std::map<std::string, int64_t, std::less<>> StreamsByNode(const std::vector<LogicalStream>& streams) {
  std::map<std::string, int64_t, std::less<>> ids;
  for (const LogicalStream& stream : streams) {
    for (const std::string& node : stream.nodes) ids[node] = stream.id;
  }
  return ids;
}

}  // namespace

std::string LogicalStream::Text() const {
  return fmt::format(
      "logic_stream_id: {}, user_stream_label: {}, is_assigned_by_user_stream_pass: {}, attached_stream_ids: {}, "
      "physical_model_stream_num: {}, hccl_followed_stream_num: {}.",
      id, label, is_assigned_by_pass, fmt::join(attached, ","), physical_count, followed_count);
}

Status Summary::CheckStatic(const char* what) const {
  if (is_static) return {};
  return Fail(kFailed, kWrongOrder,
              fmt::format("graph {} has {} only once it runs: shapes are not known before", name, what))
      .Culprit(fmt::format("graph {}", name))
      .Hint("ask IsStatic first");
}

std::vector<std::pair<uint32_t, uint32_t>> Cross(std::span<const std::pair<uint32_t, uint32_t>> pairs) {
  // Groups of inputs and outputs that any chain of pairs connects.
  std::vector<std::pair<std::set<uint32_t>, std::set<uint32_t>>> groups;
  for (const auto& [input, output] : pairs) {
    std::pair<std::set<uint32_t>, std::set<uint32_t>> joined{{input}, {output}};
    std::erase_if(groups, [&joined, in = input, out = output](auto& group) {
      if (!group.first.contains(in) && !group.second.contains(out)) return false;
      joined.first.merge(group.first);
      joined.second.merge(group.second);
      return true;
    });
    groups.push_back(std::move(joined));
  }
  std::set<std::pair<uint32_t, uint32_t>> all;
  for (const auto& [inputs, outputs] : groups) {
    for (const uint32_t input : inputs) {
      for (const uint32_t output : outputs) all.emplace(input, output);
    }
  }
  return {all.begin(), all.end()};
}

std::vector<LogicalStream> LogicalStreamsOf(const compiler::Executable& executable) {
  std::vector<LogicalStream> streams;
  for (const compiler::LogicalStream& found : executable.logical_streams()) {
    LogicalStream& stream = streams.emplace_back();
    stream.id = static_cast<int64_t>(streams.size()) - 1;
    stream.label = found.label;
    stream.is_assigned_by_pass = found.is_labelled;
    for (const compiler::NodeId node : found.nodes) stream.nodes.push_back(executable.graph().at(node).name);
  }
  return streams;
}

std::string StreamGraphOf(const compiler::Graph& graph, const std::vector<LogicalStream>& streams) {
  std::string text = fmt::format("digraph \"{}\" {{\n", JsonEscape(graph.name));
  for (const LogicalStream& stream : streams) {
    text += fmt::format("  subgraph cluster_{} {{\n    label=\"stream {}{}\";\n", stream.id, stream.id,
                        stream.label.empty() ? "" : ": " + JsonEscape(stream.label));
    for (size_t i = 0; i < stream.nodes.size(); ++i) {
      text += fmt::format("    \"{}\";\n", JsonEscape(stream.nodes[i]));
      if (i > 0) {
        text += fmt::format("    \"{}\" -> \"{}\";\n", JsonEscape(stream.nodes[i - 1]), JsonEscape(stream.nodes[i]));
      }
    }
    text += "  }\n";
  }
  const auto ids = StreamsByNode(streams);
  const auto edge = [&](compiler::NodeId from, const compiler::Node& to) {
    const auto first = ids.find(graph.at(from).name);
    const auto second = ids.find(to.name);
    if (first == ids.end() || second == ids.end() || first->second == second->second) return;
    text += fmt::format("  \"{}\" -> \"{}\" [style=dashed];\n", JsonEscape(first->first), JsonEscape(second->first));
  };
  for (const compiler::Node& node : graph.nodes) {
    if (node.is_removed) continue;
    for (const compiler::Input& input : node.inputs) {
      if (input.source.is_set()) edge(input.source.node, node);
    }
    for (const compiler::NodeId before : node.after) edge(before, node);
  }
  return text + "}\n";
}

std::string TimelineOf(const compiler::Graph& graph, const std::vector<LogicalStream>& streams,
                       const std::optional<compiler::ShapeCache>& cache) {
  std::map<std::string, std::string, std::less<>> types;
  for (const compiler::Node& node : graph.nodes) types[node.name] = node.type;
  std::vector<std::string> events;
  for (const LogicalStream& stream : streams) {
    for (size_t i = 0; i < stream.nodes.size(); ++i) {
      events.push_back(
          fmt::format(R"({{"name": "{}", "ph": "X", "pid": "graph {}", "tid": "stream {}", "ts": {}, "dur": 1, )"
                      R"("args": {{"stream id": {}, "task id": {}, "task type": "{}", "op name": "{}"}}}})",
                      JsonEscape(stream.nodes[i]), JsonEscape(graph.name), stream.id, i, stream.id, i,
                      JsonEscape(types[stream.nodes[i]]), JsonEscape(stream.nodes[i])));
    }
  }
  if (cache) {
    events.push_back(fmt::format(R"({{"name": "plans by shape", "ph": "C", "pid": "graph {}", "ts": 0, )"
                                 R"("args": {{"hits": {}, "misses": {}, "evictions": {}}}}})",
                                 JsonEscape(graph.name), cache->hits, cache->misses, cache->evictions));
  }
  return fmt::format("[{}]\n", fmt::join(events, ",\n "));
}

}  // namespace reprise::engine
