// SPDX-License-Identifier: Apache-2.0
//
// What the aclmdlRI* files share: handles of tasks, and refusals for bodies of conditional tasks.
#pragma once

#include <fmt/format.h>

#include "acl/acl.h"
#include "base/status.h"
#include "model/execution_policy.h"
#include "model/model.h"
#include "runtime/kernel.h"

namespace reprise::facade {

/// A task of a model, as its handle names it. For a model built by hand the graph is that of a bound stream.
struct TaskRef {
  model::Model* model = nullptr;
  const ir::Graph* graph = nullptr;
  ir::NodeId node = 0;

  ir::Node operator*() const { return graph->node(node); }
};

/// 107000 for null, 107017 for a handle that is not live, 207000 for a task of a body.
StatusOr<TaskRef> FindTask(aclmdlRITask task, const char* api);

/// Launch attributes of a public configuration; null gives the defaults.
StatusOr<runtime::LaunchAttributes> ReadLaunchAttributes(const aclrtLaunchKernelCfg* cfg);

}  // namespace reprise::facade
