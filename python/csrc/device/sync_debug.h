// SPDX-License-Identifier: Apache-2.0
//
// A switch that finds calls which make the program wait for the device without saying so: .item(), blocking copies.
#pragma once

namespace torch_npu {

enum class SyncDebug { kOff = 0, kWarn = 1, kError = 2 };

SyncDebug SyncDebugMode() noexcept;
void SetSyncDebugMode(SyncDebug mode) noexcept;

/// To be called before such a wait: warns or throws, as the switch says. `what`: the call, for example ".item()".
void NoteSynchronization(const char* what);

}  // namespace torch_npu
