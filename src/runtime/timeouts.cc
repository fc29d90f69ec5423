// SPDX-License-Identifier: Apache-2.0
#include "runtime/timeouts.h"

#include <atomic>

namespace reprise::runtime {
namespace {
std::atomic<uint64_t> g_execute_timeout{RoundExecuteTimeout(0)};
}  // namespace

uint64_t SetExecuteTimeout(uint64_t us) {
  const uint64_t rounded = RoundExecuteTimeout(us);
  g_execute_timeout = rounded;
  return rounded;
}

uint64_t ExecuteTimeout() { return g_execute_timeout; }

}  // namespace reprise::runtime
