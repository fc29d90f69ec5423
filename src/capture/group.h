// SPDX-License-Identifier: Apache-2.0
//
// Task groups, while they are captured: which kernels of a capture can be replaced together later. model/group.h
// replaces them.
#pragma once

#include "base/status.h"
#include "model/model.h"
#include "runtime/stream.h"

namespace reprise::capture {

/// Opens a group on a capturing stream; the kernels submitted until EndGroup belong to it.
Status BeginGroup(runtime::Stream& stream);
StatusOr<model::TaskGroup*> EndGroup(runtime::Stream& stream);

}  // namespace reprise::capture
