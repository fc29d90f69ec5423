// SPDX-License-Identifier: Apache-2.0
#include "compiler/streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "compiler/custom_op.h"

namespace reprise::compiler {
namespace {

const std::string* TextNote(const Node& node, std::string_view name) {
  for (const opdef::Attributes* attributes : {&node.notes, &node.attributes}) {
    const auto found = attributes->find(name);
    if (found == attributes->end()) continue;
    if (const auto* text = std::get_if<std::string>(&found->second); text != nullptr && !text->empty()) return text;
  }
  return nullptr;
}

}  // namespace

StatusOr<StreamPlan> AssignStreams(const Graph& graph, bool has_single_stream) {
  StreamPlan plan;
  plan.stream_of.assign(graph.nodes.size(), 0);
  // The first stream is there whether or not a node runs on it: it is the caller's.
  plan.streams.emplace_back();
  std::map<std::string, uint32_t> by_label;
  uint32_t collectives = 0;
  for (const NodeId id : TopologicalOrder(graph)) {
    const Node& node = graph.at(id);
    if (node.kind == NodeKind::kData || node.kind == NodeKind::kConstant) continue;
    const std::string* label = TextNote(node, "_user_stream_label");
    if (label == nullptr) label = TextNote(node, "_stream_label");
    uint32_t stream = 0;
    if (label != nullptr) {
      if (has_single_stream) {
        return Error(kInvalidArgument,
                     fmt::format("node {}: has the stream label {}, but the graph has a single stream", node.name,
                                 *label))
            .Culprit(fmt::format("graph {}, option ge.enableSingleStream", graph.name))
            .Hint("take the option or the label away");
      }
      const auto [entry, is_new] = by_label.try_emplace(*label, static_cast<uint32_t>(plan.streams.size()));
      if (is_new) plan.streams.push_back({*label, {}, {}, true});
      stream = entry->second;
    } else if (IsCollective(node) && !has_single_stream) {
      if (collectives == 0) {
        collectives = static_cast<uint32_t>(plan.streams.size());
        plan.streams.emplace_back();
      }
      stream = collectives;
    }
    plan.stream_of[id] = stream;
    plan.streams[stream].nodes.push_back(id);
    const std::string* const priority = TextNote(node, "_user_stream_priority");
    if (priority != nullptr && plan.streams[stream].priority.empty()) plan.streams[stream].priority = *priority;
  }
  return plan;
}

void TaskOrder::Add(uint32_t stream, const std::vector<uint32_t>& before) {
  const uint32_t task = size();
  stream_of_.push_back(stream);
  waits_.emplace_back();
  if (streams_ == 1) return;
  seen_.resize(seen_.size() + streams_, kNone);
  const auto row = [this](uint32_t of) { return seen_.data() + size_t{of} * streams_; };
  const auto join = [&](uint32_t earlier) {
    for (uint32_t s = 0; s < streams_; ++s) {
      const uint32_t other = row(earlier)[s];
      uint32_t& mine = row(task)[s];
      if (other != kNone && (mine == kNone || mine < other)) mine = other;
    }
  };
  if (last_[stream] != kNone) join(last_[stream]);
  // The latest first: they cover others.
  std::vector<uint32_t> sorted = before;
  std::sort(sorted.rbegin(), sorted.rend());
  for (const uint32_t first : sorted) {
    const uint32_t known = row(task)[stream_of_[first]];
    if (known != kNone && known >= first) continue;
    if (stream_of_[first] != stream) waits_[task].push_back(first);
    join(first);
  }
  row(task)[stream] = task;
  last_[stream] = task;
}

bool TaskOrder::IsBefore(uint32_t first, uint32_t then) const {
  if (first >= then) return false;
  if (streams_ == 1) return true;
  const uint32_t known = seen_[size_t{then} * streams_ + stream_of_[first]];
  return known != kNone && known >= first;
}

size_t TaskOrder::events() const {
  std::vector<bool> records(size(), false);
  for (const std::vector<uint32_t>& waits : waits_) {
    for (const uint32_t task : waits) records[task] = true;
  }
  return static_cast<size_t>(std::count(records.begin(), records.end(), true));
}

}  // namespace reprise::compiler
