// SPDX-License-Identifier: Apache-2.0
//
// The streams of a model for those who show it, and the models in its conditional tasks.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/task_info.h"
#include "model/model.h"

namespace reprise::observe {

/// A lane and the graph that its nodes are in: that of the model, or in a model built by hand the stored tasks of a
/// bound stream.
struct ShownLane {
  const ir::Graph* graph;
  ir::LaneId id;  ///< in `graph`
  bool is_origin;

  const ir::Lane& lane() const { return graph->lanes()[id]; }
};

/// The origin first.
std::vector<ShownLane> LanesOf(const model::Model& model);

/// The models that the task may run, with what must hold for each; empty unless it is conditional.
struct ShownBody {
  const model::Model* model;
  std::string when;
};
std::vector<ShownBody> BodiesOf(const ir::TaskInfo& info);

/// How many tasks the model has, without those of bodies.
size_t CountTasks(const model::Model& model);

}  // namespace reprise::observe
