// SPDX-License-Identifier: Apache-2.0
//
// Tasks of a graph that can be replaced by submitting them again. Between begin and end every operator is exactly one
// kernel task; other tasks are refused.
#pragma once

#include <acl/acl.h>

#include "device/stream.h"

namespace torch_npu {

/// Valid as long as the graph that holds the tasks.
struct NPUTaskGroupHandle {
  aclrtTaskGrp task_group = nullptr;
};

/// On a capturing stream: what is submitted to it from here on belongs to a new group.
void TaskGroupBegin(const NPUStream& stream);
NPUTaskGroupHandle TaskGroupEnd(const NPUStream& stream);

/// On a stream that is not capturing: what is submitted to it does not run, but takes, in order, the places of the
/// group's tasks. As many as the group holds; with fewer the end throws, and leaves the update state all the same.
void TaskUpdateBegin(const NPUStream& stream, const NPUTaskGroupHandle& group);
void TaskUpdateEnd(const NPUStream& stream);
/// Between the two.
bool IsUpdating(const NPUStream& stream);

}  // namespace torch_npu
