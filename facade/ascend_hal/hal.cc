// SPDX-License-Identifier: Apache-2.0
//
// What profilers ask of a driver: its version, and how fast a counter runs that host and device share. There is none,
// so they take the clock of the system, as the timeline does.
#include <fmt/format.h>

#include <cstdint>

#include "runtime/device.h"
#include "runtime/report.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
using reprise::runtime::Api;
using reprise::runtime::NotNull;

namespace {

// Bytes of the number: major version, minor version, patch.
constexpr int kVersion = 0x071905;
constexpr int32_t kSystemModule = 0;
constexpr int32_t kFrequencyOfHost = 24;

}  // namespace

extern "C" {
[[gnu::visibility("default")]] int halGetAPIVersion(int* version);
[[gnu::visibility("default")]] int halGetDeviceInfo(uint32_t device, int32_t module, int32_t info, int64_t* value);
}

int halGetAPIVersion(int* version) {
  return Api("halGetAPIVersion", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(version, "halAPIVersion"));
    *version = kVersion;
    return {};
  });
}

int halGetDeviceInfo(uint32_t device, int32_t module, int32_t info, int64_t* value) {
  return Api("halGetDeviceInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(value, "value"));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const auto* found, reprise::runtime::FindDevice(device));
    if (module != kSystemModule || info != kFrequencyOfHost) {
      return Error(kFeatureNotSupported, fmt::format("moduleType {} has no infoType {} here", module, info))
          .Culprit("parameters moduleType and infoType")
          .Hint(
              "ask for moduleType 0 with infoType 24, the frequency of the counter of the host; aclrtGetDeviceInfo "
              "tells what else a device has");
    }
    *value = 0;
    return {};
  });
}
