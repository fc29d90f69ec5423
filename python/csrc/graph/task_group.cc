// SPDX-License-Identifier: Apache-2.0
#include "graph/task_group.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "common/error.h"
#include "common/python_stack.h"
#include "device/runtime.h"

namespace torch_npu {
namespace {

// Streams between begin and end of an update, mostly none.
struct UpdatingStreams {
  std::atomic<int> count{0};
  std::mutex mutex;
  std::vector<aclrtStream> all;
};

UpdatingStreams& Updating() {
  static auto* const updating = new UpdatingStreams;
  return *updating;
}

void ForgetUpdate(const NPUStream& stream) {
  UpdatingStreams& updating = Updating();
  const std::lock_guard lock(updating.mutex);
  updating.count -= static_cast<int>(std::erase(updating.all, stream.handle()));
}

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
  UpdatingStreams& updating = Updating();
  const std::lock_guard lock(updating.mutex);
  updating.all.push_back(stream.handle());
  ++updating.count;
}

void TaskUpdateEnd(const NPUStream& stream) {
  RefuseExternal(stream, "aclmdlRICaptureTaskUpdateEnd");
  ForgetUpdate(stream);  // an end that fails is one, too
  CallWithoutGil(stream, "aclmdlRICaptureTaskUpdateEnd", aclmdlRICaptureTaskUpdateEnd);
}

bool IsUpdating(const NPUStream& stream) {
  UpdatingStreams& updating = Updating();
  if (updating.count.load(std::memory_order_relaxed) == 0) [[likely]]
    return false;
  const std::lock_guard lock(updating.mutex);
  return std::find(updating.all.begin(), updating.all.end(), stream.handle()) != updating.all.end();
}

}  // namespace torch_npu
