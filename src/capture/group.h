// SPDX-License-Identifier: Apache-2.0
//
// Task groups: kernels of a captured graph that a later call replaces, without capturing again.
#pragma once

#include "base/status.h"
#include "capture/model.h"
#include "runtime/stream.h"

namespace reprise::capture {

/// Opens a group on a capturing stream; the kernels submitted until EndGroup belong to it.
Status BeginGroup(runtime::Stream& stream);
StatusOr<TaskGroup*> EndGroup(runtime::Stream& stream);

/// From now on each kernel launched on `stream` replaces the next kernel of the group, in stream order, instead of
/// running.
Status BeginUpdate(runtime::Stream& stream, TaskGroup& group);
/// 507000 when fewer kernels came than the group has; what was replaced stays replaced.
Status EndUpdate(runtime::Stream& stream);

}  // namespace reprise::capture
