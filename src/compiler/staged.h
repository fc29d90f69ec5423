// SPDX-License-Identifier: Apache-2.0
//
// Graphs whose shapes are known only when they run: sizes of inputs, results whose size depends on data, branches and
// loops.
//
// A run goes stage by stage. The shapes of a stage's inputs give those of the nodes behind them, as far as that goes;
// these nodes are one Program, kept for the next run with such shapes. What stopped it runs next, one by one, after a
// wait for the stream: operators whose results' shapes depend on data or whose shape is decided by a value on the
// device, and nodes that call graphs. What is left is the next stage.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "compiler/executable.h"
#include "compiler/graph.h"

namespace reprise::compiler {

/// Whether one Program cannot serve all runs. \pre shapes were inferred.
bool IsStaged(const Graph& graph);

StatusOr<std::shared_ptr<Executable>> CompileStaged(Graph graph, const CompileOptions& options);

/// Plans that a graph keeps for the shapes that came along: how often a stage found one, made one, and dropped one for
/// another.
struct ShapeCache {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t evictions = 0;
};
/// Nothing for static executables.
std::optional<ShapeCache> ShapeCacheOf(const Executable& executable);

/// Puts the nodes of called graphs (PartitionedCall) in the place of the calls.
Status InlineCalls(Graph& graph);

}  // namespace reprise::compiler
