// SPDX-License-Identifier: Apache-2.0
//
// TaskStore: the tasks of a persistent stream (ACL_STREAM_PERSISTENT). They are stored for a model that is built by
// hand and never run by the stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/spin_lock.h"
#include "base/status.h"
#include "ir/graph.h"
#include "ir/task.h"

namespace reprise::runtime {

class Stream;

/// How many tasks a captured or persistent stream may have (REPRISE_MAX_STREAM_TASKS).
size_t MaxStoredTasks();
/// 507002 for a stream that has MaxStoredTasks tasks.
Status StreamIsFull(const Stream& stream);

/// Threads: thread-safe, but for what is done with the graph.
class TaskStore {
 public:
  /// Throws std::bad_alloc, as Clean does.
  explicit TaskStore(const Stream& stream) : stream_(stream) { Clean(); }

  /// The tasks. Shared with the models that the stream is bound to.
  const std::shared_ptr<ir::Graph>& graph() const { return graph_; }

  /// For Stream alone; others call the functions of submission.h. Owns the payload from the call on, also when it
  /// fails. The number of the task; 107000 when the store is sealed, 507002 when it is full. Throws std::bad_alloc.
  StatusOr<ir::NodeId> Add(const ir::Task& task);
  /// From now on nothing can be added: a model that is built refers to the tasks.
  void Seal();
  void Unseal();
  /// Makes all kernels and draws replaceable, before a plan refers to them. Throws std::bad_alloc.
  void MakeSlots();
  /// Starts over with no tasks; models keep what they were built from.
  void Clean();

 private:
  friend StatusOr<ir::TaskSlot*> FindStoredSlot(const Stream& stream, uint32_t task_id);

  const Stream& stream_;
  SpinLock lock_;  // for writers; a graph that a model refers to does not change any more
  std::shared_ptr<ir::Graph> graph_;
  bool is_sealed_ = false;
};

/// The slot of a stored kernel or draw of random numbers, with a reference for the caller; 107000 for other tasks, and
/// for a stream that stores none.
StatusOr<ir::TaskSlot*> FindStoredSlot(const Stream& stream, uint32_t task_id);

}  // namespace reprise::runtime
