// SPDX-License-Identifier: Apache-2.0
//
// fusion_result.json: which fusions matched, and which were made, in each graph of the process.
#pragma once

#include <string>

namespace reprise::engine {

/// Keeps what compiler::FusionResult says of a graph; writes the file if it is wanted `now`. It lies in
/// $ASCEND_WORK_PATH/FE/PID, or else in the current folder. A file that cannot be written is a warning.
///
/// Threads: thread-safe.
void NoteFusions(std::string text, bool now);
/// The engine ends: writes what was kept and not written, and forgets it.
void WriteFusions();

}  // namespace reprise::engine
