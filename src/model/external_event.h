// SPDX-License-Identifier: Apache-2.0
//
// Tasks of a graph that record an event, or wait for one, on which work outside of the graph depends. Each execution
// binds them anew when it is launched: see Model::Execute.
#pragma once

#include <cstdint>

#include "ir/task.h"
#include "runtime/event.h"

namespace reprise::model {

struct ExternalEventPayload {
  uint32_t binding;  ///< index into exec::Bindings::events
  int32_t event_id;
  runtime::EventRecord* parked_at = nullptr;  ///< of a wait that is under way
};

/// Completes the record instance that this execution published when it was launched.
extern const ir::TaskType kExternalRecord;
/// Waits for the record instance that was the newest when this execution was launched.
extern const ir::TaskType kExternalWait;

}  // namespace reprise::model
