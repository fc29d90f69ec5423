// SPDX-License-Identifier: Apache-2.0
//
// Who is told when a task fails. Listeners run on one internal thread, never on the thread that ran the task: that may
// be a user's thread, in the middle of a synchronisation.
#pragma once

#include <cstdint>
#include <functional>

namespace reprise::runtime {

constexpr uint32_t kUnknownThread = UINT32_MAX;

/// What is known about a failed task. `args` stays valid until all listeners have returned.
struct TaskFailure {
  uint32_t task_id = 0;
  int32_t stream_id = 0;
  uint32_t thread_id = kUnknownThread;  ///< kernel thread id of the submitter
  int32_t device_id = 0;
  int error_code = 0;  ///< public number, for example 507015
  // Kernels only.
  const void* args = nullptr;
  uint32_t args_bytes = 0;
  void* function = nullptr;  ///< handle
  void* binary = nullptr;    ///< handle
};

using FailureListener = std::function<void(const TaskFailure&)>;

/// The one slot of the older interface; an empty function clears it.
void SetFailureSlot(FailureListener listener);
/// Listeners with a key; a key is kept once, the first time wins.
void AddFailureListener(const void* key, FailureListener listener);
/// Does not wait for a listener that is running.
void RemoveFailureListener(const void* key);
/// Told about failed kernels of one binary (its handle); the last one set wins.
void SetBinaryFailureListener(const void* binary, FailureListener listener);

/// Called by a kernel task that fails, before it returns: adds to the report of the failure what only the task knows.
/// Holds for the next NotifyTaskFailure of the calling thread.
void NoteFailingKernel(const void* args, uint32_t args_bytes, void* function, void* binary);

/// Tells all listeners, and returns when they have returned, so that a program which synchronises hears of the failure
/// first. Listeners that themselves wait for the failing stream cannot succeed; after ten seconds they are not waited
/// for any longer. No lock may be held.
void NotifyTaskFailure(TaskFailure failure) noexcept;

}  // namespace reprise::runtime
