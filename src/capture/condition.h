// SPDX-License-Identifier: Apache-2.0
//
// Conditional tasks: IF, WHILE and SWITCH over bodies that are captured into sub models.
#pragma once

#include <span>

#include "base/status.h"
#include "capture/model.h"
#include "runtime/stream.h"

namespace reprise::capture {

/// The numbers are those of aclmdlRICondTaskType.
enum class ConditionKind : uint32_t { kIf = 0, kWhile = 1, kSwitch = 2 };

/// Adds a conditional task to the capture of `stream` and fills `bodies` with handles of new sub models.
Status AddConditionTask(runtime::Stream& stream, Condition& condition, ConditionKind kind, std::span<void*> bodies);

}  // namespace reprise::capture
