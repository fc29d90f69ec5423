// SPDX-License-Identifier: Apache-2.0
//
// Emit: steps from tasks and the lanes they have. The third pass of a plan: behind it every task is a step of its own,
// with the waits and publications that are left between lanes.
//
// An assignment says where each task runs. The captured lanes are an assignment as well, the one that the program made;
// it is read from the graph instead of being built.
#pragma once

#include "exec/plan.h"

namespace reprise::exec {

/// The graph on its captured lanes. Waits that an earlier one implies are left out. Linear in nodes and lanes × waits.
PlanParts Emit(const ir::Graph& graph);

/// The graph on the lanes of an assignment of its dag. Linear in nodes and waits.
PlanParts Emit(const ir::Graph& graph, const ir::Dag& dag, const Assignment& assignment);

/// The step that runs a task.
Step StepOf(const ir::Node& node);

}  // namespace reprise::exec
