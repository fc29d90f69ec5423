// SPDX-License-Identifier: Apache-2.0
//
// The update of a task group: kernels of a captured graph are replaced without capturing again.
#pragma once

#include "base/status.h"
#include "model/model.h"
#include "runtime/stream.h"

namespace reprise::model {

/// From now on each kernel launched on `stream` replaces the next kernel of the group, in stream order, instead of
/// running.
Status BeginUpdate(runtime::Stream& stream, TaskGroup& group);
/// 507000 when fewer kernels came than the group has; what was replaced stays replaced.
Status EndUpdate(runtime::Stream& stream);

}  // namespace reprise::model
