// SPDX-License-Identifier: Apache-2.0
//
// One stage of a graph, for inputs of known shapes: what runs as one Program, what runs one by one behind it, and what
// is left.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "compiler/graph.h"
#include "compiler/program.h"

namespace reprise::compiler {

/// Values of a stage, numbered: its inputs, the outputs of its program, the outputs of what runs one by one.
using ValueId = uint32_t;

/// A node that runs alone, when all of its inputs are there.
struct LoneNode {
  Graph graph;  ///< Data nodes and the node, whose outputs are the results
  NodeId node = kNoNode;
  std::vector<ValueId> inputs;
  ValueId first_output = 0;
  std::vector<std::shared_ptr<Executable>> called;  ///< of a node that calls graphs
};

struct StagePlan {
  ProgramOwner program;  ///< null where nothing is to be computed
  Graph graph;           ///< that the program was made of
  std::vector<ValueId> program_inputs;
  std::vector<Tensor> program_outputs;
  std::vector<LoneNode> lone;
  Graph rest;  ///< without results: the stage is the last one
  std::vector<ValueId> rest_inputs;
  bool has_rest = false;
  /// Where a result of the stage comes from: a value, or with `from_rest` a result of the rest.
  struct Source {
    bool from_rest = false;
    uint32_t number = 0;
  };
  std::vector<Source> results;
};

/// \pre `graph` has the shapes of its inputs, and constants in the place of inputs whose values are known; its node
///      lists are those of the stage, of which `inputs` are the Data nodes.
StatusOr<std::unique_ptr<StagePlan>> PlanStage(Graph graph, const CompileOptions& options);

/// Whether a node can be part of a program: its shapes are known, and so are the values that decide them, and it is
/// none of the program's own.
bool IsReady(const Graph& graph, NodeId node);

}  // namespace reprise::compiler
