// SPDX-License-Identifier: Apache-2.0
//
// The current stream of a thread, for those inside who must not throw.
#pragma once

#include "base/status.h"
#include "runtime/stream.h"

namespace reprise::api {

/// What was set for the thread, else the default stream of its context when that is on the device, else null.
void* CurrentStreamOrNull(int device) noexcept;

/// Makes `stream` (null: the default one) current on the device; returns what was set before, null when nothing was.
void* ExchangeCurrentStream(int device, void* stream) noexcept;

/// The stream behind a handle of the current context; null: the calling thread's current stream.
StatusOr<runtime::Stream*> FindStreamOrCurrent(void* handle);
/// As FindStreamOrCurrent, for callers that submit nothing: the thread need not have the stream's context, or any.
StatusOr<runtime::Stream*> FindAnyStreamOrCurrent(void* handle);

}  // namespace reprise::api
