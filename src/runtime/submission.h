// SPDX-License-Identifier: Apache-2.0
//
// Submission: the one door through which tasks enter streams. Each function is named for what it promises:
//
//     Submit, SubmitKernel  captured if the stream is captured, else queued
//     TryReserve, Commit    what Submit does to a free stream, without a copy; refused where Submit is needed
//     SubmitToSink          captured, for callers that hold the lock under which they found the capture
//     SubmitNow, QueueNow   queued, whether or not the stream is captured
//     SubmitLast            queued behind everything that is there, silently
//
// The members of Stream and TaskSink that take a task are private, and these functions are their only friends;
// scripts/check_layers.py and tests/unit/stream_test.cc see that it stays so.
//
// They own the payload of the task from the call on, also when they fail: then they destroy it, all but SubmitLast. A
// persistent stream stores what is queued instead of running it (task_store.h).
#pragma once

#include <cstddef>

#include "base/status.h"
#include "ir/task.h"
#include "runtime/stream.h"

namespace reprise::runtime {

/// Hands the task to the sink of the stream if it has one, else queues it. With ASCEND_LAUNCH_BLOCKING=1 it waits until
/// a queued task has run.
Status Submit(Stream& stream, const ir::Task& task);
/// As the other one. `placed` is called for a queued task as soon as its payload has its place in the order of the
/// stream, and before it can run; not for one that is captured.
Status Submit(Stream& stream, const ir::Task& task, void (*placed)(void* payload));

/// Submit for kernels: writes their arguments, too, while somebody wants them (aclopStartDumpArgs). `args_readable` is
/// false for an argument block that is read at run time only.
Status SubmitKernel(Stream& stream, const ir::Task& task, bool args_readable = true);

/// Hands the task to the sink of the stream, which has one. With the context's capture_mutex held, for the capture
/// layer: what it found out about stream and capture still holds. The payload may be destroyed under that lock.
Status SubmitToSink(Stream& stream, const ir::Task& task);

/// Queues the task past an open capture: for work that must not be captured. Waits as Submit does; `placed` likewise.
Status SubmitNow(Stream& stream, const ir::Task& task, void (*placed)(void* payload) = nullptr);

/// SubmitNow that never waits, for callers that hold a lock; WaitIfBlocking follows when they have let it go. `placed`
/// is called as soon as the payload has its place in the order of the stream, and before the task can run.
inline Status QueueNow(Stream& stream, const ir::Task& task, void (*placed)(void* payload) = nullptr) {
  return stream.Enqueue(task, placed);
}

/// Queues a task behind all others without changing what the calling thread knows of its own tasks (last_task_id).
/// Drops the task, without calling its `destroy`, when there is no memory, and on a stream that stores its tasks.
inline void SubmitLast(Stream& stream, const ir::Task& task) noexcept { stream.EnqueueLast(task); }

namespace internal {
extern constinit bool g_launch_is_blocking;
[[gnu::cold]] Status WaitForSubmitted(Stream& stream);
}  // namespace internal
/// ASCEND_LAUNCH_BLOCKING; read with the first device.
inline bool LaunchIsBlocking() { return internal::g_launch_is_blocking; }

/// Waits for the stream when ASCEND_LAUNCH_BLOCKING=1.
inline Status WaitIfBlocking(Stream& stream) {
  if (!LaunchIsBlocking()) [[likely]]
    return {};
  return internal::WaitForSubmitted(stream);
}

/// A submission in two steps: the caller writes a payload of `bytes` to the returned place, then calls Commit; no other
/// call on the stream may come in between. Null when Submit is needed (a capture, a full chunk, a stopped stream).
inline std::byte* TryReserve(Stream& stream, const ir::TaskType& type, size_t bytes) {
  return stream.TryReserve(type, bytes);
}
inline Status Commit(Stream& stream) {
  stream.Commit();
  return WaitIfBlocking(stream);
}

}  // namespace reprise::runtime
