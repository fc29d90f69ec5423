// SPDX-License-Identifier: Apache-2.0
//
// Callbacks that run on a thread of the user: it subscribes to streams and polls with ProcessReport.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "runtime/attached_operands.h"
#include "runtime/stream.h"

namespace reprise::runtime {

/// A stream has two subscriptions, each to one thread. Callbacks go to the thread of kReport, or to that of kHostFunc
/// where no thread is subscribed for reports.
enum class Subscription : uint8_t { kReport, kHostFunc };

/// Threads: thread-safe.
Status Subscribe(Subscription kind, uint64_t thread_id, Stream& stream);
Status Unsubscribe(Subscription kind, uint64_t thread_id, Stream& stream);
/// Runs pending callbacks of the calling thread; waits up to the timeout for one (-1: for ever). 507012 when none came.
/// A thread that is not subscribed waits for a subscription, too: 107012 when none came, at once without a time limit.
Status ProcessCallbacks(Subscription kind, int64_t timeout_ms);
/// 107015 when nobody is subscribed to the stream. `operands`: null where the caller does not tell them.
Status SubmitCallback(Stream& stream, void (*function)(void*), void* argument, bool blocks,
                      AttachedOperands operands = nullptr);
/// The stream is being destroyed.
void ForgetSubscriptions(const Stream& stream) noexcept;

}  // namespace reprise::runtime
