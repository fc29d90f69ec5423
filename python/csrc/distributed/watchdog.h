// SPDX-License-Identifier: Apache-2.0
//
// The thread of a process group that looks after its operators: which have ended, which take too long, which have
// failed. It sleeps while there are none.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "distributed/work.h"

namespace torch_npu {

/// TORCH_HCCL_ASYNC_ERROR_HANDLING.
enum class ErrorHandling { kNone = 0, kTearDown = 1, kCleanUp = 2, kTearDownOnly = 3 };

class Watchdog {
 public:
  struct Rules {
    ErrorHandling handling = ErrorHandling::kTearDown;
    std::string group;                    // for messages
    std::function<void()> abort_group;    // ends what waits
    std::function<std::string()> report;  // after a time-out: who lags; may be null
  };

  explicit Watchdog(Rules rules) : rules_(std::move(rules)) {}
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Looks after it from now on; starts the thread.
  void Add(std::shared_ptr<Operation> operation);
  /// Forgets all.
  void Clear();
  void SetPaused(bool is_paused);
  /// Ends the thread, within moments. Idempotent.
  void Stop() noexcept;
  /// Of all groups, before the interpreter ends.
  static void StopAll() noexcept;

 private:
  void Loop() noexcept;
  /// Whether the thread goes on.
  bool Look();
  void ReportTimeout();
  bool HandleTimeout(const std::vector<std::shared_ptr<Operation>>& late);
  bool HandleFailure(const std::shared_ptr<Operation>& failed);
  [[noreturn]] void EndProcess(const std::string& why);

  /// Of the process that this one was forked from.
  bool IsOfParent() const noexcept;

  const Rules rules_;
  struct Sync {
    std::mutex mutex;
    std::condition_variable changed;
  };
  std::unique_ptr<Sync> sync_ = std::make_unique<Sync>();
  std::mutex& mutex_ = sync_->mutex;
  std::condition_variable& changed_ = sync_->changed;
  std::list<std::shared_ptr<Operation>> pending_;
  std::thread thread_;
  std::atomic<pid_t> process_{0};  // that has the thread: a forked one has not
  bool stops_ = false;
  bool is_paused_ = false;
  std::chrono::steady_clock::time_point failed_at_{};  // the first failure since Clear
  bool has_marked_failed_ = false;                     // what failed with it
};

}  // namespace torch_npu
