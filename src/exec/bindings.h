// SPDX-License-Identifier: Apache-2.0
//
// Bindings: what one execution of a graph is bound to when it is launched, beyond what its tasks hold themselves. The
// launch fills them, the tasks of that execution find them in their RunContext.
#pragma once

#include <vector>

namespace reprise::runtime {
class EventRecord;
}

namespace reprise::exec {

/// Inputs and outputs that a launch binds belong here, too; so far tasks name their memory themselves.
struct Bindings {
  /// External events, by the number that the task has: the record that this execution completes, or the one that it
  /// waits for, null when there is nothing to wait for. Whoever launches holds one reference each.
  std::vector<runtime::EventRecord*> events;
};

}  // namespace reprise::exec
