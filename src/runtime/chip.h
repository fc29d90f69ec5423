// SPDX-License-Identifier: Apache-2.0
//
// The reported chip and software (910B class). Programs plan their tiles with these numbers and compare these versions;
// the CPU device does not depend on them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace reprise::runtime {

/// Fixed properties, which no environment variable changes.
namespace chip {

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

}  // namespace chip

/// Whether binaries for one chip run on the other: names of one family differ in what follows it (Ascend910B1,
/// Ascend910B4-1 ...). Upper and lower case are one.
bool SameChipFamily(std::string_view chip, std::string_view other);

struct Version {
  std::string text;
  std::string major, minor, release, patch;
  int32_t number = 0;  ///< grows from release to release: alpha < beta < rc < final
};

/// "8.5.0", "8.0.RC1.alpha001", "8.2.0-beta.1": numbers first, then words that say how far from final it is.
Version ParseVersion(const std::string& text);

/// The version that REPRISE_CANN_VERSION names.
const Version& SoftwareVersion();

}  // namespace reprise::runtime
