// SPDX-License-Identifier: Apache-2.0
#include "graph/task_group.h"

#include "common/error.h"
#include "common/python_stack.h"
#include "device/runtime.h"

namespace torch_npu {
namespace {

template <class Function>
void CallWithoutGil(const NPUStream& stream, const char* name, Function&& function) {
  RefuseExternal(stream, name);
  aclrtStream const handle = stream.handle();
  EnsureContext();
  int code;
  {
    const ReleaseGil no_gil;
    code = function(handle);
  }
  Check(code, name);
}

}  // namespace

void TaskGroupBegin(const NPUStream& stream) {
  CallWithoutGil(stream, "aclmdlRICaptureTaskGrpBegin", aclmdlRICaptureTaskGrpBegin);
}

NPUTaskGroupHandle TaskGroupEnd(const NPUStream& stream) {
  NPUTaskGroupHandle group;
  CallWithoutGil(stream, "aclmdlRICaptureTaskGrpEnd",
                 [&](aclrtStream handle) { return aclmdlRICaptureTaskGrpEnd(handle, &group.task_group); });
  return group;
}

void TaskUpdateBegin(const NPUStream& stream, const NPUTaskGroupHandle& group) {
  CallWithoutGil(stream, "aclmdlRICaptureTaskUpdateBegin",
                 [&](aclrtStream handle) { return aclmdlRICaptureTaskUpdateBegin(handle, group.task_group); });
}

void TaskUpdateEnd(const NPUStream& stream) {
  CallWithoutGil(stream, "aclmdlRICaptureTaskUpdateEnd", aclmdlRICaptureTaskUpdateEnd);
}

}  // namespace torch_npu
