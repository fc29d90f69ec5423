// SPDX-License-Identifier: Apache-2.0
//
// Words for what Activity knows: for reports of hangs, and for the one that a fatal signal leaves behind.
#pragma once

#include <string>

namespace reprise::device {

/// What the system says of a thread of this process: "computes", "sleeps (clock_nanosleep)", "waits in futex"; empty
/// when it says nothing.
std::string StateOfThread(int thread);

/// From now on a fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL) of a kernel or host function is told on standard error before
/// what happened without us happens: a handler that the program or a sanitizer has set, or the end of the process. Once
/// is enough; not with REPRISE_REPORT_FAULTS=0.
void ReportFaults() noexcept;

}  // namespace reprise::device
