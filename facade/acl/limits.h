// SPDX-License-Identifier: Apache-2.0
//
// Arguments of core budgets.
#pragma once

#include "acl/acl.h"
#include "check.h"
#include "runtime/device.h"
#include "runtime/limits.h"

namespace reprise::facade {

/// 107000 for an unknown type, for 0 cores, and for more than the chip has.
inline Status CheckCores(aclrtDevResLimitType type, uint32_t value) {
  REPRISE_RETURN_IF_ERROR(InRange(type, ACL_RT_DEV_RES_CUBE_CORE, ACL_RT_DEV_RES_VECTOR_CORE, "type"));
  return InRange(value, 1, runtime::HardwareCores(type), "value");
}

}  // namespace reprise::facade
