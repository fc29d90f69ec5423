// SPDX-License-Identifier: Apache-2.0
//
// Memory of features that the static graphs of a session share (ge.exec.staticMemoryPolicy 1, 2 and 4): one block, as
// large as the graph needs that needs most. Runs come one after another: one on another stream than the run before it
// waits for that stream on the host.
#pragma once

#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/device_work.h"

namespace reprise::engine {

/// Threads: thread-safe.
class SharedFeatures {
 public:
  /// The block, of at least `bytes`, while the run is queued. Nobody else has it until the Lease ends.
  struct Unlock {
    void operator()(Mutex* mutex) const REPRISE_NOT_ANALYSED { mutex->unlock(); }
  };
  struct Lease {
    void* base;
    uint64_t bytes;
    std::unique_ptr<Mutex, Unlock> held;
  };
  StatusOr<Lease> Begin(uint64_t bytes, void* stream) REPRISE_NOT_ANALYSED;
  /// How large it is by now.
  uint64_t bytes() const;

 private:
  mutable Mutex mutex_;
  Memory memory_ REPRISE_GUARDED_BY(mutex_);
  uint64_t bytes_ REPRISE_GUARDED_BY(mutex_) = 0;
  void* stream_ REPRISE_GUARDED_BY(mutex_) = nullptr;  ///< of the run before
};

}  // namespace reprise::engine
