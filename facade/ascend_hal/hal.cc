// SPDX-License-Identifier: Apache-2.0
//
// What profilers ask of a driver: its version, and how fast the counter of MsprofSysCycleTime runs.
#include <cstdint>

#include "runtime/report.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
using reprise::runtime::Api;
using reprise::runtime::NotNull;

extern "C" {
[[gnu::visibility("default")]] int halGetAPIVersion(int* version);
[[gnu::visibility("default")]] int halGetDeviceInfo(uint32_t device, int32_t module, int32_t info, int64_t* value);
}

int halGetAPIVersion(int* version) {
  return Api("halGetAPIVersion", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(version, "version"));
    *version = 0x071905;
    return {};
  });
}

int halGetDeviceInfo(uint32_t device, int32_t module, int32_t info, int64_t* value) {
  return Api("halGetDeviceInfo", [&]() -> Status {
    (void)device;
    (void)module;
    (void)info;
    REPRISE_RETURN_IF_ERROR(NotNull(value, "value"));
    *value = 0;
    return {};
  });
}
