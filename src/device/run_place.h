// SPDX-License-Identifier: Apache-2.0
//
// RunPlace: where a thread is in its work, as plain data, so that handlers of signals and threads that look for the
// reason of a hang can read it. Whoever runs tasks keeps it up to date with a few stores for each run of a stream or a
// lane, and none for each kernel.
#pragma once

#include <cstdint>

struct RepriseKernelContext;

namespace reprise::ir {
struct TaskType;
}  // namespace reprise::ir

namespace reprise::device {

class Runnable;

/// The task that runs, as far as it is known.
struct TaskSpot {
  const ir::TaskType* type = nullptr;
  const void* payload = nullptr;
  int32_t stream_id = -1;
  uint32_t task_id = 0;
  bool is_in_graph = false;
  uint32_t tasks = 1;  ///< element-wise tasks that run together: so many from task_id on
};

struct RunPlace {
  int32_t device_id = 0;
  int32_t stream_id = 0;
  uint32_t task_id = 0;
  bool is_on_worker = false;
  Runnable* running = nullptr;
  /// What the kernel that runs was given; null when none does, or nobody said so.
  const RepriseKernelContext* kernel = nullptr;
  /// Finds the task that runs where it is not the first one of the runnable's queue: in graphs. Allocates nothing,
  /// takes no locks; only for the thread whose place it is.
  bool (*find_task)(const RunPlace& place, const void* where, TaskSpot& spot) noexcept = nullptr;
  const void* where = nullptr;
};

/// Another `find_task` for the time of a scope.
class FindTaskScope {
 public:
  FindTaskScope(RunPlace& place, decltype(RunPlace::find_task) find, const void* where) noexcept
      : place_(place), find_(place.find_task), where_(place.where) {
    place.find_task = find;
    place.where = where;
  }
  FindTaskScope(const FindTaskScope&) = delete;
  FindTaskScope& operator=(const FindTaskScope&) = delete;
  ~FindTaskScope() {
    place_.find_task = find_;
    place_.where = where_;
  }

 private:
  RunPlace& place_;
  const decltype(RunPlace::find_task) find_;
  const void* const where_;
};

}  // namespace reprise::device
