// SPDX-License-Identifier: Apache-2.0
//
// Scheduler: runs what is ready on a few worker threads.
//
// A Runnable (a stream's queue, a lane of a replayed graph) is run by at most one thread at a time. Its state:
//
//     Idle ──Wake──► Queued ──worker or helper takes it──► Running ──nothing to do──► Idle
//                                                            │  ▲
//                                                          Wake │ run again
//                                                            ▼  │
//                                                          Notified
//
// A Runnable that has to wait returns from Run and holds no thread; whatever it waits for calls Wake. Wake-ups may be
// spurious: Run looks at the condition again.
//
// Workers that find nothing spin for a short, bounded time and then sleep in the kernel; a Wake makes a system call
// only when nobody spins and somebody sleeps. A thread that synchronises may take the work itself (TryRun).
//
// A worker may attend a Runnable: until it leaves, it looks by itself whether there is more to do (HasMore), so that a
// submitter need not touch the state or the ready list (Signal). Before the worker does anything else it leaves: it
// says so first and then looks once more, so that either it sees the new work or the submitter sees that it has left.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "base/asymmetric_fence.h"
#include "base/futex.h"
#include "base/mutex.h"
#include "base/spin_lock.h"
#include "base/status.h"
#include "device/run_place.h"

namespace reprise::exec {
struct Bindings;
}

namespace reprise::device {

class Scheduler;
class Runnable;

/// What a running task sees of the world. Lives on the stack of the thread that runs it.
class RunContext : public RunPlace {
 public:
  RunContext(Scheduler& scheduler, Runnable* runnable, bool on_worker, int most_tasks = 0)
      : scheduler_(scheduler), most_tasks_(most_tasks) {
    running = runnable;
    is_on_worker = on_worker;
  }

  Scheduler& scheduler() const { return scheduler_; }
  /// The runnable to wake when a parked task can go on.
  Runnable* runnable() const { return running; }
  /// What the runnable is part of; itself, if nothing larger. See Runnable::SetWhole.
  const Runnable* whole() const { return whole_ != nullptr ? whole_ : running; }
  void set_whole(const Runnable* whole) { whole_ = whole; }
  /// False on a user's thread that helps while it synchronises; foreign code does not belong there.
  bool on_worker() const { return is_on_worker; }
  /// After how many tasks the thread wants to do something else; 0: it does not say.
  int most_tasks() const { return most_tasks_; }

  /// Reports that the current task failed; the first failure is kept.
  void Fail(Status status) {
    if (error_.ok()) error_ = std::move(status);
  }
  bool failed() const { return !error_.ok(); }
  Status TakeError() { return std::move(error_); }

  // Where the current task stands (RunPlace) is set by whoever runs it.

  /// What the running execution of a graph was bound to when it was launched; null when to nothing.
  const exec::Bindings* bindings = nullptr;

 private:
  Scheduler& scheduler_;
  const int most_tasks_;
  const Runnable* whole_ = nullptr;
  Status error_;
};

/// Something that a scheduler can run.
class Runnable {
 public:
  enum class Outcome {
    kIdle,        ///< nothing can be done until the next Wake
    kRequeue,     ///< there is more to do, but others come first
    kNeedsWorker  ///< the next step must not run on a helping thread
  };

  Runnable() = default;
  Runnable(const Runnable&) = delete;
  Runnable& operator=(const Runnable&) = delete;

  /// Does what can be done now. Never called by two threads at once.
  virtual Outcome Run(RunContext& context) = 0;

  /// Whether Run has anything left to do; any thread may ask, and true for too long does no harm.
  virtual bool HasMore() const noexcept { return false; }
  /// Changes whenever Run has done something.
  virtual uint64_t Progress() const noexcept { return 0; }
  /// The task that Run is in, on the thread that is in it: for handlers of signals. False when none is known.
  virtual bool FindTask(TaskSpot&) const noexcept { return false; }

 protected:
  /// A runnable that workers may attend calls Scheduler::Signal after HasMore has become true.
  explicit Runnable(bool can_be_attended) : can_be_attended_(can_be_attended) {}
  ~Runnable() = default;
  /// A thread waited for this runnable while a worker ran it: next time, workers leave it alone for a moment.
  void PreferHelper() noexcept { Set(prefers_helper_, true); }
  /// Whether who brings the tasks runs them, too: then no worker needs to stay close.
  void SetRunsItself(bool runs) noexcept { Set(runs_itself_, runs); }
  bool runs_itself() const noexcept { return runs_itself_.load(std::memory_order_relaxed); }
  /// Threads that wait for `whole` may run this runnable, too; its Run is of bounded length and waits for nothing
  /// outside.
  void SetWhole(const Runnable* whole) noexcept { Set(part_of_, whole); }
  /// A thread begins, or ends, to look all the time for what TryRunPartOf gives: loops need wake nobody for its place.
  void AddPartTaker(int32_t change) noexcept { part_takers_.fetch_add(change, std::memory_order_seq_cst); }

 private:
  friend class Scheduler;
  friend class WaitList;
  enum State : uint32_t { kStateIdle, kStateQueued, kStateRunning, kStateNotified };
  enum Attendance : uint32_t {
    kNobody,
    kAttended,
    kAsked,   ///< Retire waits for the worker to leave
    kLeaving  ///< the worker looks for the last time
  };

  // All threads read this cache line all the time, so an unchanged value is not written.
  template <class T>
  static void Set(std::atomic<T>& place, T value) noexcept {
    if (place.load(std::memory_order_relaxed) != value) place.store(value, std::memory_order_relaxed);
  }

  const bool can_be_attended_ = false;
  std::atomic<uint32_t> attendance_{kNobody};
  std::atomic<const Runnable*> part_of_{nullptr};
  std::atomic<int32_t> part_takers_{0};
  std::atomic<bool> runs_itself_{false};

  // On a cache line of its own, which waking and running threads write.
  alignas(64) std::atomic<uint32_t> state_{kStateIdle};
  // Wait lists that hold this runnable. A list may be about to wake it although its condition has let it go on already;
  // see Retire.
  std::atomic<uint32_t> waits_{0};
  // Guarded by Scheduler::ready_lock_.
  Runnable* next_ = nullptr;
  Runnable* prev_ = nullptr;
  bool linked_ = false;
  bool needs_worker_ = false;
  std::atomic<bool> prefers_helper_{false};  // not guarded; on the cache line that running threads write
};

/// The streams that wait for one condition.
///
/// Threads: thread-safe. Wake-ups happen under the list's lock, so that after Remove none can be under way.
class WaitList {
 public:
  /// Adds `runnable` unless `ready()` holds; checked under the lock that WakeAll takes, so that no wake-up is lost.
  template <class Ready>
  bool AddUnless(Ready ready, Runnable* runnable, Scheduler* scheduler) {
    MutexLock lock(mutex_);
    // Announced before the condition is read: a setter that skips the lock because it sees no announcement has set the
    // condition before the announcement.
    announced_.store(true, std::memory_order_seq_cst);
    if (ready()) return false;
    for (const Waiter& waiter : waiters_) {
      if (waiter.runnable == runnable) return true;
    }
    waiters_.push_back({runnable, scheduler});
    runnable->waits_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  void Remove(Runnable* runnable) noexcept;
  void WakeAll() noexcept;
  /// Sets the condition and wakes, under one lock.
  template <class Set>
  void SetAndWake(Set set) noexcept {
    MutexLock lock(mutex_);
    set();
    WakeLocked();
  }
  /// Wakes only if somebody may be waiting; the condition must have been set with memory_order_seq_cst before.
  void WakeIfAnnounced() noexcept {
    if (announced_.load(std::memory_order_seq_cst)) WakeAll();
  }

 private:
  struct Waiter {
    Runnable* runnable;
    Scheduler* scheduler;
  };
  void WakeLocked() noexcept REPRISE_REQUIRES(mutex_);

  SpinLock mutex_;
  std::atomic<bool> announced_{false};
  std::vector<Waiter> waiters_ REPRISE_GUARDED_BY(mutex_);
};

/// Work that a thread did alone in loops which others could have shared, had they been awake. Who is woken for a short
/// loop comes when it is over, and meanwhile may want the core on which the program goes on; but many short loops after
/// each other are worth it. So the wake-up is paid for when as much work has been done alone as one costs.
///
/// Threads: thread-safe; what several count at the same time may be lost.
class UnsharedWork {
 public:
  /// A loop that is worth so many threads begins while others sleep; true: wake them.
  bool Add(int64_t threads_worth) noexcept;
  /// There is help.
  void Forget() noexcept {
    if (ns_.load(std::memory_order_relaxed) != 0) ns_.store(0, std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> ns_{0};
};

/// Threads: thread-safe.
class Scheduler {
 public:
  explicit Scheduler(int workers);
  ~Scheduler();

  /// Makes `runnable` run soon. Callable from anywhere, also under a WaitList's lock.
  void Wake(Runnable& runnable) noexcept { Wake(runnable, true); }

  /// As Wake, without a system call: for a runnable that its owner runs itself when no other thread has taken it.
  void Offer(Runnable& runnable) noexcept { Wake(runnable, false); }

  /// Wakes `runnable`, whose HasMore has just become true, unless a worker that attends it will see that.
  void Signal(Runnable& runnable) noexcept {
    FrequentFence();
    if (!IsAttended(runnable)) Wake(runnable);
  }
  /// Wake or Offer will be called soon.
  void PrepareWake(const Runnable& runnable) const noexcept {
    PrefetchForWrite(&runnable.state_);
    PrefetchForWrite(&ready_lock_);
  }
  /// Signal will be called soon.
  void PrepareSignal(const Runnable& runnable) const noexcept {
    if (!IsAttended(runnable)) PrepareWake(runnable);
  }

  /// Runs `runnable` on the calling thread if it is queued, or has more to do, and nobody has taken it yet.
  bool TryRun(Runnable& runnable) noexcept;
  /// Runs the task that the calling thread has just brought to `runnable`, instead of Signal; false when another thread
  /// has to be told after all.
  bool TryRunBrought(Runnable& runnable) noexcept;
  /// As TryRun, for any runnable that is part of `whole`; see Runnable::SetWhole. Where there is none, parts of a loop
  /// (ParallelFor) that a task of `whole` is in.
  bool TryRunPartOf(const Runnable& whole) noexcept;
  /// Whether TryRunPartOf might find something.
  bool has_parts() const noexcept { return has_ready() || job_count_.load(std::memory_order_relaxed) != 0; }

  /// Wakes a worker if an offered runnable has not been taken yet.
  void Rouse() noexcept {
    if (has_ready()) WakeWorker();
  }
  /// Whether runnables wait for a thread.
  bool has_ready() const noexcept { return ready_count_.load(std::memory_order_relaxed) != 0; }

  /// Returns when no thread of the scheduler touches `runnable` any more and no list holds it. Nobody else may wake it
  /// from now on.
  void Retire(Runnable& runnable) noexcept;

  /// Wakes `runnable` at `when` unless CancelTimer comes first. One timer for each runnable.
  void WakeAt(Runnable& runnable, Clock::time_point when);
  void CancelTimer(Runnable& runnable) noexcept;

  /// Calls body(arg, begin, end) over disjoint ranges that cover [0, count), on this thread and on idle workers;
  /// returns when all calls have returned. Ranges begin at multiples of `grain`. `threads_worth`: how many threads the
  /// work would be worth (work_cost.h), where the caller knows that; it decides who is woken for it.
  void ParallelFor(int64_t count, int64_t grain, void (*body)(void* arg, int64_t begin, int64_t end), void* arg,
                   int64_t threads_worth = INT64_MAX);

  int workers() const { return workers_wanted_; }

  /// Whether there are threads that run what is queued.
  bool has_workers() const noexcept { return started_flag_.load(std::memory_order_acquire); }
  /// Starts the workers; fewer than wanted, with a warning in the log, where the host allows no more. 207005 when it
  /// allows none, or no thread for timers: queued work would never run. The next call tries again.
  Status Start();

 private:
  struct Job;
  // The runnable that a worker attends, and whether attending paid.
  struct Attention {
    Runnable* runnable = nullptr;
    uint32_t hits = 0;        // looks that found new work since it attends
    uint32_t reluctance = 0;  // runs that the worker lets pass before it attends again,
    uint32_t to_pass = 0;     //   and how many of them are left
    // Progress of the runnable when the worker looked last.
    uint64_t progress = 0;
    bool had_more = false;
    uint32_t next_look = 0;
    uint32_t loose = 0;
  };

  static bool IsAttended(const Runnable& runnable) noexcept {
    return runnable.attendance_.load(std::memory_order_relaxed) == Runnable::kAttended;
  }
  void Attend(Attention& attention, Runnable& runnable) noexcept;
  void AttendHeldBack(Attention& attention) noexcept;
  bool Look(Attention& attention, uint32_t round) noexcept;
  void Leave(Attention& attention) noexcept;
  void RunAttended(Attention& attention) noexcept;

  void WorkerLoop(bool extra);
  Clock::duration FirstSpin() const noexcept;
  void LearnFromWake(Clock::time_point asleep_at, Clock::time_point awake_at) noexcept;
  bool FindWork(Attention& attention, bool extra);
  Runnable* PopReady() noexcept;
  void Wake(Runnable& runnable, bool rouse) noexcept;
  void Push(Runnable& runnable, bool needs_worker, bool set_queued, bool rouse = true) noexcept;
  void Unlink(Runnable& runnable) noexcept;
  void WakeWorker() noexcept;
  void Execute(Runnable& runnable, bool on_worker, int most_tasks = 0) noexcept;
  /// With a job of `whole`; with any where that is null.
  bool HelpWithJob(const Runnable* whole) noexcept;
  void CloseJob(Job& job) noexcept;
  bool SpinForWork(Attention& attention, Clock::duration time) noexcept;
  bool LeaveToHelper() noexcept;
  bool has_work() const noexcept {
    return ready_count_.load(std::memory_order_seq_cst) != 0 || job_count_.load(std::memory_order_relaxed) != 0;
  }
  void MonitorLoop();
  void NudgeMonitor() noexcept;

  const int workers_wanted_;
  Mutex start_mutex_;
  int workers_started_ REPRISE_GUARDED_BY(start_mutex_) = 0;
  bool monitor_started_ REPRISE_GUARDED_BY(start_mutex_) = false;
  std::atomic<bool> started_flag_{false};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_ REPRISE_GUARDED_BY(start_mutex_);

  alignas(64) SpinLock ready_lock_;
  Runnable* head_ REPRISE_GUARDED_BY(ready_lock_) = nullptr;
  Runnable* tail_ REPRISE_GUARDED_BY(ready_lock_) = nullptr;
  std::atomic<uint32_t> ready_count_{0};  // written under the lock only
  std::atomic<bool> hold_back_{false};    // the list holds one runnable, whose owner will probably run it itself
  std::atomic<uint32_t> pops_{0};

  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> spinners_{0};
  std::atomic<uint32_t> epoch_{0};
  // Of Clock, in its ticks: when a sleeper was last woken, and how long that took until now.
  std::atomic<int64_t> roused_at_{INT64_MIN};
  std::atomic<int64_t> wake_took_{INT64_MAX};

  alignas(64) SpinLock job_lock_;
  Job* jobs_ REPRISE_GUARDED_BY(job_lock_) = nullptr;
  std::atomic<uint32_t> job_count_{0};
  UnsharedWork unshared_;

  // The monitor fires timers, and adds workers when all of them are stuck in foreign code that waits.
  Mutex timer_mutex_;
  std::multimap<Clock::time_point, Runnable*> timers_ REPRISE_GUARDED_BY(timer_mutex_);
  std::map<Runnable*, Clock::time_point> timer_of_ REPRISE_GUARDED_BY(timer_mutex_);
  std::atomic<uint32_t> monitor_word_{0};
  std::atomic<bool> monitor_watches_{false};
  std::atomic<int> extra_workers_{0};
  bool told_no_extra_ = false;  // of the monitor
};

/// Threads in the process that spin, of all schedulers and callers; kept at or below the number of cores.
bool TakeSpinPermit() noexcept;
void ReturnSpinPermit() noexcept;
/// How long to spin before sleeping.
Clock::duration SpinTime() noexcept;
/// Cores that this process may use.
int UsableCores() noexcept;

}  // namespace reprise::device
