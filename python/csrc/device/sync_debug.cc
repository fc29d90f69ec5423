// SPDX-License-Identifier: Apache-2.0
#include "device/sync_debug.h"

#include <c10/util/Exception.h>

#include <atomic>

namespace torch_npu {
namespace {

std::atomic<SyncDebug> g_mode{SyncDebug::kOff};

}  // namespace

SyncDebug SyncDebugMode() noexcept { return g_mode.load(std::memory_order_relaxed); }
void SetSyncDebugMode(SyncDebug mode) noexcept { g_mode.store(mode, std::memory_order_relaxed); }

void NoteSynchronization(const char* what) {
  const SyncDebug mode = SyncDebugMode();
  if (mode == SyncDebug::kOff) [[likely]]
    return;
  TORCH_CHECK(mode == SyncDebug::kWarn, what,
              " is a synchronizing NPU operation, which torch.npu.set_sync_debug_mode forbids now");
  TORCH_WARN(what, " is a synchronizing NPU operation");
}

}  // namespace torch_npu
