// SPDX-License-Identifier: Apache-2.0
//
// History: the last operators of a communicator, with HCCL_DIAGNOSE_ENABLE=1; for the log, and for the message of the
// first failure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "collective/board.h"

namespace reprise::collective {

/// Threads: thread-safe.
class History {
 public:
  /// An operator has begun; `key`: which run of it.
  void Add(const Descriptor& descriptor, const SlotKey& key, bool is_by_graph);
  /// Writes all to the log; gives the last ones, oldest first, as they stand in messages. Empty: there was none.
  std::string Tell(const std::string& communicator) const;

 private:
  struct Entry {
    Descriptor descriptor;
    SlotKey key;
    bool is_by_graph;
  };
  mutable Mutex mutex_;
  std::vector<Entry> ring_ REPRISE_GUARDED_BY(mutex_);
  uint64_t count_ REPRISE_GUARDED_BY(mutex_) = 0;
};

}  // namespace reprise::collective
