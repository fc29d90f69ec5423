// SPDX-License-Identifier: Apache-2.0
//
// Fixed properties of the reported chip (910B class) that no environment variable changes. Programs plan their tiles
// with these numbers; the CPU device does not depend on them.
#pragma once

#include <cstdint>

namespace reprise::facade::profile {

constexpr int64_t kUbBytes = 192 << 10;  ///< local memory of a vector core
constexpr int64_t kL0aBytes = 64 << 10;
constexpr int64_t kL0bBytes = 64 << 10;
constexpr int64_t kL0cBytes = 128 << 10;
constexpr int64_t kL1Bytes = 512 << 10;
constexpr int64_t kBiasTableBytes = 1 << 10;
constexpr int64_t kClockMhz = 1800;
constexpr int64_t kNpuArch = 2201;     ///< DAV_2201
constexpr int64_t kMaxBlocks = 65535;  ///< of one kernel launch
constexpr uint32_t kLeastPriority = 7;

}  // namespace reprise::facade::profile
