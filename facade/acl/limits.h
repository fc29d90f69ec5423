// SPDX-License-Identifier: Apache-2.0
//
// Core budgets: of a stream before that of the process before what the chip has.
#pragma once

#include <mutex>

#include "acl/acl.h"
#include "check.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace reprise::facade {

/// What launches get; `stream` may be null. `type` is valid.
inline uint32_t EffectiveCores(runtime::Device& device, const runtime::Stream* stream, aclrtDevResLimitType type) {
  std::lock_guard lock(device.limits_mutex);
  if (stream != nullptr && stream->attributes.limits.cores[type] != 0) return stream->attributes.limits.cores[type];
  return device.limits.cores[type] != 0 ? device.limits.cores[type] : runtime::HardwareCores(type);
}

/// 107000 for an unknown type, for 0 cores, and for more than the chip has.
inline Status CheckCores(aclrtDevResLimitType type, uint32_t value) {
  REPRISE_RETURN_IF_ERROR(InRange(type, ACL_RT_DEV_RES_CUBE_CORE, ACL_RT_DEV_RES_VECTOR_CORE, "type"));
  return InRange(value, 1, runtime::HardwareCores(type), "value");
}

}  // namespace reprise::facade
