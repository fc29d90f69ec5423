// SPDX-License-Identifier: Apache-2.0
//
// Logical streams of a graph: on which one each node runs, and what orders them.
//
// A node runs where its label says (_user_stream_label before _stream_label), collectives on a stream of their own, all
// others on the first one. Between streams an edge of the graph becomes an event, unless an earlier one covers it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/graph.h"

namespace reprise::compiler {

struct LogicalStream {
  std::string label;     ///< of the user; empty: the engine's own
  std::string priority;  ///< _user_stream_priority of its first node that has one
  std::vector<NodeId> nodes;
  bool is_labelled = false;
};

struct StreamPlan {
  std::vector<LogicalStream> streams;  ///< at least one; numbers without gaps
  std::vector<uint32_t> stream_of;     ///< by node
};

/// Refuses (100000) labels where there may be one stream only, with the node and the label.
StatusOr<StreamPlan> AssignStreams(const Graph& graph, bool has_single_stream);

/// The order of tasks that streams and events make. Tasks are numbered in an order that is one of those it allows.
class TaskOrder {
 public:
  explicit TaskOrder(uint32_t streams) : streams_(streams) {}

  /// The next task: its stream, and the tasks that come before it on other streams. Keeps the waits that are needed.
  void Add(uint32_t stream, const std::vector<uint32_t>& before);

  uint32_t streams() const { return streams_; }
  uint32_t size() const { return static_cast<uint32_t>(stream_of_.size()); }
  uint32_t stream_of(uint32_t task) const { return stream_of_[task]; }
  /// Tasks of other streams that the task has to wait for by events.
  const std::vector<uint32_t>& waits_of(uint32_t task) const { return waits_[task]; }
  /// Whether `first` has ended when `then` begins; a task does not come before itself.
  bool IsBefore(uint32_t first, uint32_t then) const;
  /// How many tasks record an event.
  size_t events() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t streams_;
  std::vector<uint32_t> stream_of_;
  std::vector<std::vector<uint32_t>> waits_;
  std::vector<uint32_t> last_ = std::vector<uint32_t>(streams_, kNone);  // task of each stream
  // Of several streams: by task and stream, the last task there that has ended when the task has; kNone: none.
  std::vector<uint32_t> seen_;
};

}  // namespace reprise::compiler
