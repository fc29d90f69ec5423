// SPDX-License-Identifier: Apache-2.0
#include "runtime/submission.h"

#include <mutex>
#include <string>
#include <utility>

#include "base/gated_mutex.h"
#include "device/inquiry.h"
#include "runtime/context.h"
#include "runtime/dump.h"

namespace reprise::runtime {

constinit bool internal::g_launch_is_blocking = false;

Status Submit(Stream& stream, const ir::Task& task) { return Submit(stream, task, nullptr); }

Status Submit(Stream& stream, const ir::Task& task, void (*placed)(void* payload)) {
  if (stream.sink() != nullptr) [[unlikely]] {
    ShortLock lock(stream.context().capture_mutex);
    // Looked up again under the lock: another thread may have ended the capture meanwhile.
    if (TaskSink* sink = stream.sink()) {
      const bool is_capture = sink->capture_id() != 0;
      bool taken = false;
      Status status = sink->Record(stream, task, taken);
      lock.Unlock();
      if (!taken) task.Destroy();
      return status.ok() && !is_capture ? WaitIfBlocking(stream) : std::move(status);
    }
  }
  return SubmitNow(stream, task, placed);
}

Status SubmitKernel(Stream& stream, const ir::Task& task, bool args_readable) {
  if (!Dump::wants_args()) [[likely]]
    return Submit(stream, task);
  const std::string line = Dump::DescribeLaunch(stream, task, args_readable);
  REPRISE_RETURN_IF_ERROR(Submit(stream, task));
  Dump::Get().WriteLaunch(line);
  return {};
}

Status SubmitToSink(Stream& stream, const ir::Task& task) {
  bool taken = false;
  Status status = stream.sink()->Record(stream, task, taken);
  if (!taken) task.Destroy();
  return status;
}

Status SubmitNow(Stream& stream, const ir::Task& task, void (*placed)(void* payload)) {
  REPRISE_RETURN_IF_ERROR(QueueNow(stream, task, placed));
  return WaitIfBlocking(stream);
}

Status internal::WaitForSubmitted(Stream& stream) {
  // What is stored does not run, and what a host function submits to its own stream runs behind it.
  if (stream.is_persistent() || device::Activity::Mine() == &stream) return {};
  return stream.Synchronize(std::nullopt);
}

}  // namespace reprise::runtime
