// SPDX-License-Identifier: Apache-2.0
//
// Fault points: every place that acquires something (memory, stream, event, thread, file) passes one, so that tests
// can make the N-th acquisition fail and prove that nothing leaks.
#pragma once

#include <string_view>

namespace reprise {

/// True when the fault point `name` must fail now. Armed by REPRISE_FAIL_AT=name:N or ArmFault; costs one relaxed
/// load when nothing is armed.
bool FaultPoint(std::string_view name) noexcept;

/// Makes the `n`-th next pass through `name` fail ("*" = any point); n == 0 disarms. Thread-safe.
void ArmFault(std::string_view name, int n);

/// Whether the armed fault has fired since ArmFault.
bool FaultFired();

}  // namespace reprise
