// SPDX-License-Identifier: Apache-2.0
//
// Stall reports: what the streams run and wait for, told when a thread waits for long without progress, so that a
// program that hangs does not do so without a word.
#pragma once

#include <atomic>
#include <string>

#include "base/futex.h"

namespace reprise::runtime {

class Context;
class Device;

/// REPRISE_STALL_MS; the longest duration for never.
Clock::duration StallTime();

/// What the parked streams of the context wait for, and what the others run, with `separator` between them; null: of
/// all contexts of the device. Gives the streams `patience` to answer. Empty when there is nothing to tell.
std::string WhoWaits(const Device& device, const Context* context, const char* separator, Clock::duration patience);

/// Tells on standard error that a thread has waited for StallTime for `awaited`, and what WhoWaits says.
void TellStall(const std::string& awaited, const Device& device, const Context* context, int thread);

namespace internal {
extern constinit std::atomic<bool> g_helpers_are_watched;
void StartWatchingHelpers(Device& device) noexcept;
}  // namespace internal

/// A thread that synchronises is about to help: it cannot tell by itself that a kernel which it runs does not end, so a
/// timer looks after all helping threads while there are some.
inline void WatchHelpers(Device& device) noexcept {
  if (internal::g_helpers_are_watched.load(std::memory_order_relaxed)) [[likely]]
    return;
  internal::StartWatchingHelpers(device);
}

}  // namespace reprise::runtime
