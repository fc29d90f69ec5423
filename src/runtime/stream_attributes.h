// SPDX-License-Identifier: Apache-2.0
//
// StreamAttributes: what a program sets on a stream (aclrtSetStreamAttribute and the functions around it). Creation
// flags are no attributes: they never change, see Stream::flags.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/device.h"

namespace reprise::runtime {

/// Threads: each member alone is thread-safe.
struct StreamAttributes {
  std::atomic<uint32_t> priority{0};
  std::atomic<uint32_t> overflow_switch{0};
  std::atomic<uint32_t> tag{0};            ///< of the program's choice, for messages; 0: none
  std::atomic<uint32_t> cache_op_info{0};  ///< whether a capture keeps the texts that the program attaches to tasks
  std::atomic<uint64_t> failure_mode{0};   ///< not 0: nothing behind a failed task runs
  std::atomic<bool> failure_mode_set{false};
  CoreLimits limits;  ///< guarded by Device::limits_mutex
};

}  // namespace reprise::runtime
