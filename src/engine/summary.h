// SPDX-License-Identifier: Apache-2.0
//
// What a program can ask about a compiled graph.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compiler/executable.h"
#include "compiler/staged.h"

namespace reprise::engine {

/// Sizes that are reported are never 0.
inline constexpr uint64_t kLeastRegion = 512;

/// A constant in a file.
struct WeightFile {
  std::string path;
  uint64_t bytes = 0;
  uint64_t offset = 0;
  std::string id;
};

/// Nodes that run one after another because the graph says so.
struct LogicalStream {
  int64_t id = 0;
  std::string label;  ///< of the program; may be empty
  std::vector<std::string> nodes;
  bool is_assigned_by_pass = false;  ///< because of the label
  // None is attached to another one, and each is one of the device's.
  std::vector<int64_t> attached = {};
  size_t physical_count = 1;
  size_t followed_count = 0;

  std::string Text() const;
};

struct Summary {
  std::string name;
  bool is_static = false;
  compiler::MemoryNeeds needs;  ///< as they are
  bool is_refreshable = false;
  size_t stream_count = 0;
  size_t event_count = 0;
  std::vector<std::vector<int64_t>> output_shapes;
  std::vector<int32_t> output_types;
  std::vector<std::pair<uint32_t, uint32_t>> shared;
  std::vector<WeightFile> weights;
  std::vector<LogicalStream> streams;
  std::string stream_graph;  ///< in the language of Graphviz

  uint64_t const_size() const { return AtLeast(needs.constants); }
  uint64_t feature_size() const { return AtLeast(needs.features); }
  uint64_t refreshable_size() const { return AtLeast(needs.features - needs.fixed_features); }
  /// kFailed for what only graphs have whose shapes are all known.
  Status CheckStatic(const char* what) const;

 private:
  static uint64_t AtLeast(uint64_t bytes) { return bytes != 0 ? bytes : kLeastRegion; }
};

/// The pairs with those that follow: all inputs and outputs at one address, each with each.
std::vector<std::pair<uint32_t, uint32_t>> Cross(std::span<const std::pair<uint32_t, uint32_t>> pairs);
/// Numbers follow each other from 0.
std::vector<LogicalStream> LogicalStreamsOf(const compiler::Executable& executable);
/// One cluster for each stream, its nodes in order, dashed edges between streams.
std::string StreamGraphOf(const compiler::Graph& graph, const std::vector<LogicalStream>& streams);
/// The nodes as events of a timeline, in JSON: stream, place in it, type, name; and a counter of plans by shape.
std::string TimelineOf(const compiler::Graph& graph, const std::vector<LogicalStream>& streams,
                       const std::optional<compiler::ShapeCache>& cache);

}  // namespace reprise::engine
