// SPDX-License-Identifier: Apache-2.0
//
// Conditional tasks, while they are captured.
#pragma once

#include <span>

#include "base/status.h"
#include "model/condition.h"
#include "runtime/stream.h"

namespace reprise::capture {

/// Adds a conditional task to the capture of `stream` and fills `bodies` with handles of new sub models.
Status AddConditionTask(runtime::Stream& stream, model::Condition& condition, model::ConditionKind kind,
                        std::span<void*> bodies);

}  // namespace reprise::capture
