// SPDX-License-Identifier: Apache-2.0
//
// Bindings: what one execution of a graph is bound to when it is launched, beyond what its tasks hold themselves. The
// launch fills them, the tasks of that execution find them in their RunContext.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "ir/series.h"

namespace reprise::runtime {
class EventRecord;
}

namespace reprise::exec {

/// Inputs and outputs that a launch binds belong here, too; so far tasks name their memory themselves.
struct Bindings {
  /// External events, by the number that the task has: the record that this execution completes, or the one that it
  /// waits for, null when there is nothing to wait for. Whoever launches holds one reference each.
  std::vector<runtime::EventRecord*> events;
  /// Where the regions of a compiled graph begin: constants, features, inputs, outputs, as whoever compiled it counts
  /// them; see Binder. Captured tasks name their memory themselves.
  std::vector<void*> bases;
  /// The first number that this execution has of each series that its tasks use (ir/series.h), by the number that the
  /// task has.
  std::vector<uint64_t> series;
  /// Of an execution of a body of a conditional task: where each of its series has its numbers from; else empty.
  std::vector<ir::Envelope*> envelopes;
  /// Of an execution of a body: which branches lead to it; 0 for a graph that was launched.
  uint64_t branch = 0;
};

/// Gives the tasks of a graph the addresses of one execution.
class Binder {
 public:
  virtual ~Binder() = default;
  /// Called when the execution has its turn and none runs. Changes payloads in place and adds the nodes whose memory
  /// moved. Throws std::bad_alloc before it has changed anything.
  virtual void Bind(const Bindings& bindings, std::vector<ir::NodeId>& moved) = 0;
};

}  // namespace reprise::exec
