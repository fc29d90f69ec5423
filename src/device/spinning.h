// SPDX-License-Identifier: Apache-2.0
//
// When threads of this process must not spin although a core of its own would be free: other processes of the machine,
// for which they wait, need it.
#pragma once

#include "base/futex.h"  // Clock

namespace reprise::device {

/// Until then TakeSpinPermit refuses everybody, and workers that look for work give their core away between two looks.
/// The last call counts.
void HoldSpinning(Clock::time_point until) noexcept;

}  // namespace reprise::device
