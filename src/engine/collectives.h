// SPDX-License-Identifier: Apache-2.0
//
// Collective operators of graphs (HcomAllReduce, HcomSend, …): each is one call of libhccl.so on the stream of the run,
// in the order of the graph. `group` names a communicator of this process.
//
// libhccl.so is opened when the first graph with such an operator is loaded; graphs without one never need it.
#pragma once

#include "base/status.h"
#include "compiler/graph.h"

namespace reprise::engine {

/// Makes the operators known to the compiler. Any number of times. Threads: thread-safe.
void RegisterCollectives();

/// Whether the groups that the graph and those below it name are there. Refuses the first that is not, with its node.
Status CheckGroups(const compiler::Graph& graph);

}  // namespace reprise::engine
