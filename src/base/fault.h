// SPDX-License-Identifier: Apache-2.0
//
// Fault points: every place that acquires something (memory, stream, event, thread, file) passes one, so that tests
// can make the N-th acquisition fail and prove that nothing leaks.
#pragma once

#include <atomic>
#include <string_view>

namespace reprise {

namespace internal {
// Set until the first pass, which reads REPRISE_FAIL_AT.
extern constinit std::atomic<bool> g_fault_armed;
bool ArmedFaultPoint(std::string_view name) noexcept;
}  // namespace internal

/// True when the fault point `name` must fail now. Armed by REPRISE_FAIL_AT=name:N or ArmFault; costs one relaxed
/// load when nothing is armed.
inline bool FaultPoint(std::string_view name) noexcept {
  return internal::g_fault_armed.load(std::memory_order_relaxed) && internal::ArmedFaultPoint(name);
}

/// Makes the `n`-th next pass through `name` fail ("*" = any point); n == 0 disarms. Thread-safe.
void ArmFault(std::string_view name, int n);

/// Whether the armed fault has fired since ArmFault.
bool FaultFired();

}  // namespace reprise
