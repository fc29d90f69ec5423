// SPDX-License-Identifier: Apache-2.0
//
// Waiting on a 32-bit word, with a deadline (std::atomic::wait has none).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace reprise {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;  ///< nullopt: for ever

/// Sleeps while `word` holds `seen`, until woken or the deadline; may return early. False when the deadline passed.
bool FutexWait(std::atomic<uint32_t>& word, uint32_t seen, const Deadline& deadline) noexcept;

/// Wakes up to `count` sleepers.
void FutexWake(std::atomic<uint32_t>& word, int count) noexcept;

}  // namespace reprise
