// SPDX-License-Identifier: Apache-2.0
//
// Callbacks that run on a thread of the user: it subscribes to streams and polls with ProcessReport.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "runtime/stream.h"

namespace reprise::runtime {

/// Threads: thread-safe.
Status SubscribeReport(uint64_t thread_id, Stream& stream);
Status UnsubscribeReport(uint64_t thread_id, Stream& stream);
/// Runs pending callbacks of the calling thread; waits up to the timeout for one. 507012 when none came.
Status ProcessReport(int64_t timeout_ms);
/// 107015 when nobody is subscribed to the stream.
Status SubmitCallback(Stream& stream, void (*function)(void*), void* argument, bool blocks);
/// The stream goes away.
void ForgetSubscription(const Stream& stream) noexcept;

}  // namespace reprise::runtime
