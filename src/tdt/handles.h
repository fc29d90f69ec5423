// SPDX-License-Identifier: Apache-2.0
//
// Handles of small objects that several threads may use at once: every use happens under the lock of the table, so an
// object cannot go away under a call. What blocks or copies much holds a shared_ptr instead and lets the lock go.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/fault.h"
#include "base/handle_table.h"
#include "base/mutex.h"
#include "base/status.h"

namespace reprise::tdt {

/// 107017 saying what is wrong with a handle.
inline Status BadHandle(HandleState state, const void* handle, const char* kind) {
  return Error(kInvalidHandle, DescribeBadHandle(state, handle, kind))
      .Culprit(fmt::format("handle {}", fmt::ptr(handle)))
      .Hint(fmt::format("pass a {} that its creating call returned and that is still alive", kind));
}

/// Threads: thread-safe. `use` must not touch the same table.
template <class T, HandleKind Kind>
class GuardedTable {
 public:
  explicit GuardedTable(const char* kind) : kind_(kind) {}

  StatusOr<void*> Add(std::unique_ptr<T> object) {
    MutexLock lock(mutex_);
    void* const handle = FaultPoint("tdt.object") ? nullptr : table_.Insert(object.get());
    if (handle == nullptr) {
      return Error(kResourceExhausted, fmt::format("the process has no room for another {}", kind_))
          .Culprit(fmt::format("{} live objects of this kind", table_.live()))
          .Hint("destroy those that are no longer needed");
    }
    (void)object.release();  // the table holds it until Take
    return handle;
  }

  /// Runs `use(T&)`, which returns a Status.
  template <class Use>
  Status With(const void* handle, Use use) const {
    MutexLock lock(mutex_);
    T* const object = table_.Find(handle);
    if (object == nullptr) return BadHandle(table_.Classify(handle), handle, kind_);
    return use(*object);
  }

  StatusOr<std::unique_ptr<T>> Take(const void* handle) {
    MutexLock lock(mutex_);
    T* const object = table_.Erase(handle);
    if (object == nullptr) return BadHandle(table_.Classify(handle), handle, kind_);
    return std::unique_ptr<T>(object);
  }

  size_t live() const {
    MutexLock lock(mutex_);
    return table_.live();
  }

 private:
  const char* const kind_;
  mutable Mutex mutex_;
  HandleTable<T, Kind> table_ REPRISE_GUARDED_BY(mutex_);
};

}  // namespace reprise::tdt
