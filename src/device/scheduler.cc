// SPDX-License-Identifier: Apache-2.0
#include "device/scheduler.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "base/calls.h"
#include "base/env.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mutex.h"
#include "device/inquiry.h"
#include "device/spinning.h"
#include "device/work_cost.h"

namespace reprise::device {
namespace {

// A worker that was not able to take queued work for this long counts as stuck in foreign code.
constexpr auto kMonitorPeriod = std::chrono::milliseconds(5);
constexpr int kMonitorQuietRounds = 1;
// Bounds the threads that a program full of waiting host functions can make us start.
constexpr int kMaxExtraWorkers = 256;
constexpr auto kExtraWorkerIdle = std::chrono::seconds(1);

// A worker that was woken soon after it fell asleep spins for longer next time, up to so many times SpinTime: programs
// that compute a little between two launches would else pay for a wake-up each time.
constexpr int kMostSpinTimes = 4;

// To spin for as long as a wake-up takes costs at most twice what the better choice would have cost. So that is what a
// worker does at first, where REPRISE_SPIN_US is left as it is: no longer than that, and no shorter than this.
constexpr auto kUsualSpin = std::chrono::microseconds(50);
constexpr auto kLeastSpin = std::chrono::microseconds(10);
constexpr int64_t kWakesLearned = 4;

// How long a spinning worker leaves work to the thread that will probably wait for it: about half a microsecond.
constexpr int kHoldBackLooks = 6;
constexpr int kHoldBackPauses = 6;

// A spinning worker looks for work in the list at every pause, and at what it attends in every round of so many pauses.
// While its owner comes to run it himself, only in every so many rounds, because each look takes cache lines away from
// him: from the first number on, twice as many whenever he came again, up to the last.
constexpr int kRoundPauses = 8;
constexpr uint32_t kLooseRounds = 4;
constexpr uint32_t kMostLooseRounds = 16;
constexpr uint32_t kClockRounds = 4;
// Leaving costs as much as some hundred launches gain, so whoever left after less than so many hits lets a growing
// number of chances pass.
constexpr uint32_t kWorthIt = 16;
constexpr uint32_t kMostReluctance = 256;

// How far TryRunPartOf looks into the list.
constexpr int kPartLooks = 16;

void Pause(int times) noexcept {
  for (int i = 0; i < times; ++i) CpuRelax();
}

std::atomic<int> g_spinners{0};
// Until when nobody spins, by the clock; 0: they may.
std::atomic<Clock::rep> g_no_spinning_until{0};

bool IsSpinningHeld() noexcept {
  Clock::rep until = g_no_spinning_until.load(std::memory_order_relaxed);
  if (until == 0) return false;
  if (Clock::now().time_since_epoch().count() < until) return true;
  g_no_spinning_until.compare_exchange_strong(until, 0, std::memory_order_relaxed);
  return false;
}

}  // namespace

int UsableCores() noexcept {
  static const int cores = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    const int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return std::max(1, count);
  }();
  return cores;
}

void HoldSpinning(Clock::time_point until) noexcept {
  g_no_spinning_until.store(until.time_since_epoch().count(), std::memory_order_relaxed);
}

namespace {

bool TakeSpinPermitOf(int permits) noexcept {
  if (IsSpinningHeld()) return false;
  if (g_spinners.fetch_add(1, std::memory_order_relaxed) < permits) return true;
  ReturnSpinPermit();
  return false;
}

}  // namespace

bool TakeSpinPermit() noexcept { return TakeSpinPermitOf(UsableCores()); }

void ReturnSpinPermit() noexcept { g_spinners.fetch_sub(1, std::memory_order_relaxed); }

Clock::duration SpinTime() noexcept {
  // With one core a spinner only keeps the thread it waits for from running.
  static const Clock::duration time =
      UsableCores() == 1 ? Clock::duration::zero() : std::chrono::microseconds(EnvInt(EnvVar::kSpinUs, 0, 1'000'000));
  return time;
}

void WaitList::Remove(Runnable* runnable) noexcept {
  MutexLock lock(mutex_);
  const size_t removed =
      std::erase_if(waiters_, [runnable](const Waiter& waiter) { return waiter.runnable == runnable; });
  runnable->waits_.fetch_sub(static_cast<uint32_t>(removed), std::memory_order_release);
}

void WaitList::WakeAll() noexcept {
  MutexLock lock(mutex_);
  WakeLocked();
}

void WaitList::WakeLocked() noexcept {
  for (const Waiter& waiter : waiters_) {
    waiter.scheduler->Wake(*waiter.runnable);
    waiter.runnable->waits_.fetch_sub(1, std::memory_order_release);  // the runnable may be gone from here on
  }
  waiters_.clear();
  announced_.store(false, std::memory_order_relaxed);
}

namespace {

// Of the calling thread, the same one for as long as it lives.
uint32_t SeatOfThread() noexcept {
  static std::atomic<uint32_t> seats{0};
  static thread_local const uint32_t seat = seats.fetch_add(1, std::memory_order_relaxed);
  return seat;
}

}  // namespace

// A loop that idle workers may join. Lives on the stack of the thread that called ParallelFor.
//
// Each thread has a share of its own, the same one in loops that follow one another: what it wrote in one of them it
// finds in its caches in the next. When that is done it takes what others have left of theirs.
struct Scheduler::Job {
  int64_t count;
  int64_t grain;
  void (*body)(void*, int64_t, int64_t);
  void* arg;
  struct alignas(64) Share {
    int64_t first, end;
    std::atomic_ref<int64_t> next() { return std::atomic_ref<int64_t>(first); }
  };
  static constexpr int kMostShares = 16;
  Share shares[kMostShares];  // those behind share_count are not touched: short loops have no time for it
  int share_count;
  uint32_t taken = 1;  // shares that a thread has for its own; guarded by job_lock_
  uint32_t seat;       // of the thread whose stack it is, which has the first share
  int helpers;         // guarded by job_lock_
  std::atomic<int> active{0};
  Job* link = nullptr;
  const RunPlace* place = nullptr;  // of the thread whose stack it is
  const Runnable* whole = nullptr;  // what that thread runs is part of it

  Job(int64_t items, int64_t least, void (*what)(void*, int64_t, int64_t), void* with, int most_helpers)
      : count(items),
        grain(least),
        body(what),
        arg(with),
        share_count(std::min(most_helpers + 1, kMostShares)),
        seat(SeatOfThread()),
        helpers(most_helpers) {
    const int64_t chunks = (count + grain - 1) / grain;
    for (int i = 0; i < share_count; ++i) {
      shares[i].first = chunks * i / share_count * grain;
      shares[i].end = std::min(chunks * (i + 1) / share_count * grain, count);
    }
  }

  bool HasMore() {
    return std::any_of(shares, shares + share_count,
                       [](Share& share) { return share.next().load(std::memory_order_relaxed) < share.end; });
  }

  // Of a helper, with job_lock_ held.
  int TakeShare() {
    const int wanted = static_cast<int>((SeatOfThread() - seat) % static_cast<uint32_t>(share_count));
    for (int i = 0; i < share_count; ++i) {
      const int share = (wanted + i) % share_count;
      if ((taken >> share & 1) != 0) continue;
      taken |= uint32_t{1} << share;
      return share;
    }
    return wanted;
  }

  void Work(int own) {
    for (int i = 0; i < share_count; ++i) {
      Share& share = shares[(own + i) % share_count];
      for (;;) {
        if (share.next().load(std::memory_order_relaxed) >= share.end) break;
        const int64_t begin = share.next().fetch_add(grain, std::memory_order_relaxed);
        if (begin >= share.end) break;
        body(arg, begin, std::min(begin + grain, share.end));
      }
    }
  }
};

Scheduler::Scheduler(int workers) : workers_wanted_(workers > 0 ? workers : UsableCores()) {}

Scheduler::~Scheduler() {
  stop_ = true;
  epoch_.fetch_add(1);
  FutexWake(epoch_, INT_MAX);
  monitor_word_.fetch_add(1);
  FutexWake(monitor_word_, INT_MAX);
  for (std::thread& thread : threads_) thread.join();
  while (extra_workers_.load() != 0) {
    epoch_.fetch_add(1);
    FutexWake(epoch_, INT_MAX);
    std::this_thread::yield();
  }
}

namespace {

// What a host allows; where it allows too little, one of these is the reason.
std::string ThreadLimits() {
  const auto limit = [](int which) -> std::string {
    rlimit value{};
    if (getrlimit(static_cast<__rlimit_resource_t>(which), &value) != 0) return "unknown";
    return value.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{}", value.rlim_cur);
  };
  std::string pids = "none";
  if (FILE* file = std::fopen("/sys/fs/cgroup/pids.max", "re")) {
    char text[32] = "";
    if (std::fgets(text, sizeof text, file) != nullptr) pids.assign(text, std::strcspn(text, "\n"));
    std::fclose(file);
  }
  return fmt::format("limits: processes of the user (RLIMIT_NPROC) {}, address space (RLIMIT_AS) {}, control group {}",
                     limit(RLIMIT_NPROC), limit(RLIMIT_AS), pids);
}

}  // namespace

Status Scheduler::Start() {
  if (has_workers()) return {};
  MutexLock lock(start_mutex_);
  if (has_workers()) return {};
  std::string why;
  const auto start = [&](void (*loop)(Scheduler*)) REPRISE_REQUIRES(start_mutex_) {
    try {
      if (FaultPoint("scheduler.thread")) {
        throw std::system_error(EAGAIN, std::generic_category(), "injected fault");
      }
      threads_.emplace_back(loop, this);
      return true;
    } catch (const std::exception& error) {
      why = error.what();
      return false;
    }
  };
  try {
    threads_.reserve(static_cast<size_t>(workers_wanted_) + 1);
  } catch (const std::bad_alloc&) {
    return Error(kResourceExhausted, "no memory for the worker threads of the device").Hint("free memory of the host");
  }
  if (!monitor_started_) monitor_started_ = start([](Scheduler* self) { self->MonitorLoop(); });
  while (monitor_started_ && workers_started_ < workers_wanted_ &&
         start([](Scheduler* self) { self->WorkerLoop(false); })) {
    ++workers_started_;
  }
  if (workers_started_ == 0) {
    const NoCancel no_cancel;
    return Error(kResourceExhausted,
                 fmt::format("no worker thread of the device can be started, hence no task would run: {}", why))
        .Culprit(ThreadLimits())
        .Hint(
            "raise the limit that is reached (ulimit -u, ulimit -v, the container's limit of processes), or end "
            "other threads, and try again");
  }
  if (workers_started_ < workers_wanted_) {
    REPRISE_LOG(kWarning, "RUNTIME", "{} of {} worker threads could be started, which do all the work: {}; {}",
                workers_started_, workers_wanted_, why, ThreadLimits());
  }
  started_flag_.store(true, std::memory_order_release);
  return {};
}

void Scheduler::Wake(Runnable& runnable, bool rouse) noexcept {
  uint32_t seen = runnable.state_.load(std::memory_order_relaxed);
  for (;;) {
    switch (seen) {
      case Runnable::kStateIdle:
        if (runnable.state_.compare_exchange_weak(seen, Runnable::kStateQueued, std::memory_order_acq_rel)) {
          Push(runnable, false, false, rouse);
          return;
        }
        break;
      case Runnable::kStateRunning:
        if (runnable.state_.compare_exchange_weak(seen, Runnable::kStateNotified, std::memory_order_acq_rel)) return;
        break;
      default:
        // Queued or notified: it will look again. The exchange orders our writes before that look.
        if (runnable.state_.compare_exchange_weak(seen, seen, std::memory_order_acq_rel)) return;
        break;
    }
  }
}

void Scheduler::Push(Runnable& runnable, bool needs_worker, bool set_queued, bool rouse) noexcept {
  // What has tasks has seen to it that there are workers. Without them, this is a spurious wake-up.
  if (!has_workers()) [[unlikely]]
    (void)Start();
  {
    MutexLock lock(ready_lock_);
    // Queued and linked at once: a helper that takes it runs it to its end, and its owner may then free it.
    if (set_queued) runnable.state_.store(Runnable::kStateQueued, std::memory_order_release);
    runnable.needs_worker_ = needs_worker;
    if (!runnable.linked_) {
      runnable.linked_ = true;
      runnable.prev_ = tail_;
      runnable.next_ = nullptr;
      (tail_ != nullptr ? tail_->next_ : head_) = &runnable;
      tail_ = &runnable;
      const uint32_t count = ready_count_.load(std::memory_order_relaxed);
      hold_back_.store(count == 0 && !needs_worker && runnable.prefers_helper_.load(std::memory_order_relaxed),
                       std::memory_order_relaxed);
      ready_count_.store(count + 1, std::memory_order_release);
    }
  }
  if (rouse) WakeWorker();
}

// Behind the store of ready_count_: either we see the sleeper, or it sees the work before it sleeps.
void Scheduler::WakeWorker() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (spinners_.load(std::memory_order_relaxed) != 0) return;
  if (sleepers_.load(std::memory_order_relaxed) != 0) {
    if (SpinTime() == kUsualSpin) roused_at_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_release);
    FutexWake(epoch_, 1);
  } else {
    NudgeMonitor();
  }
}

void Scheduler::Unlink(Runnable& runnable) noexcept {
  (runnable.prev_ != nullptr ? runnable.prev_->next_ : head_) = runnable.next_;
  (runnable.next_ != nullptr ? runnable.next_->prev_ : tail_) = runnable.prev_;
  runnable.next_ = runnable.prev_ = nullptr;
  runnable.linked_ = false;
  ready_count_.store(ready_count_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
}

Runnable* Scheduler::PopReady() noexcept {
  if (ready_count_.load(std::memory_order_relaxed) == 0) return nullptr;
  MutexLock lock(ready_lock_);
  while (head_ != nullptr) {
    Runnable* runnable = head_;
    Unlink(*runnable);
    // Taken under the lock: Retire may free a runnable that is neither linked nor running.
    uint32_t queued = Runnable::kStateQueued;
    if (runnable->state_.compare_exchange_strong(queued, Runnable::kStateRunning, std::memory_order_acq_rel)) {
      pops_.fetch_add(1, std::memory_order_relaxed);
      Runnable::Set(runnable->prefers_helper_, false);  // nobody came
      return runnable;
    }
    // A helper took it; the entry was stale.
  }
  return nullptr;
}

bool Scheduler::TryRun(Runnable& runnable) noexcept {
  uint32_t seen = runnable.state_.load(std::memory_order_relaxed);
  if (seen == Runnable::kStateIdle && runnable.HasMore()) {
    // Whoever brought it has not woken the runnable, or not yet, because somebody attends it.
    if (!runnable.state_.compare_exchange_strong(seen, Runnable::kStateRunning, std::memory_order_acq_rel)) {
      return false;
    }
    Execute(runnable, false);
    return true;
  }
  if (seen != Runnable::kStateQueued) return false;
  {
    MutexLock lock(ready_lock_);
    if (runnable.needs_worker_) return false;
    uint32_t queued = Runnable::kStateQueued;
    if (!runnable.state_.compare_exchange_strong(queued, Runnable::kStateRunning, std::memory_order_acq_rel)) {
      return false;
    }
    if (runnable.linked_) Unlink(runnable);
  }
  Execute(runnable, false);
  return true;
}

bool Scheduler::TryRunBrought(Runnable& runnable) noexcept {
  uint32_t idle = Runnable::kStateIdle;
  if (!runnable.state_.compare_exchange_strong(idle, Runnable::kStateRunning, std::memory_order_acq_rel)) return false;
  Execute(runnable, false, 1);
  return true;
}

bool Scheduler::TryRunPartOf(const Runnable& whole) noexcept {
  if (!has_ready()) return HelpWithJob(&whole);
  Runnable* found = nullptr;
  {
    MutexLock lock(ready_lock_);
    int looks = kPartLooks;
    for (found = head_; found != nullptr && looks != 0; found = found->next_, --looks) {
      if (found->part_of_.load(std::memory_order_relaxed) != &whole || found->needs_worker_) continue;
      uint32_t queued = Runnable::kStateQueued;
      if (found->state_.compare_exchange_strong(queued, Runnable::kStateRunning, std::memory_order_acq_rel)) break;
    }
    if (looks == 0) found = nullptr;
    if (found != nullptr) Unlink(*found);
  }
  if (found == nullptr) return HelpWithJob(&whole);
  Execute(*found, false);
  return true;
}

void Scheduler::Execute(Runnable& runnable, bool on_worker, int most_tasks) noexcept {
  for (;;) {
    RunContext context(*this, &runnable, on_worker, most_tasks);
    const Activity::Turn turn(&context);
    const Runnable::Outcome outcome = runnable.Run(context);
    if (outcome != Runnable::Outcome::kIdle) {
      Push(runnable, outcome == Runnable::Outcome::kNeedsWorker, true);
      return;
    }
    uint32_t running = Runnable::kStateRunning;
    if (runnable.state_.compare_exchange_strong(running, Runnable::kStateIdle, std::memory_order_acq_rel)) return;
    runnable.state_.exchange(Runnable::kStateRunning, std::memory_order_acq_rel);
  }
}

void Scheduler::Retire(Runnable& runnable) noexcept {
  CancelTimer(runnable);
  for (;;) {
    uint32_t attendance = runnable.attendance_.load(std::memory_order_acquire);
    if (attendance == Runnable::kAttended) {
      runnable.attendance_.compare_exchange_strong(attendance, Runnable::kAsked, std::memory_order_acq_rel);
    }
    // In this order: once no list holds it and nobody attends it, nobody makes it leave the idle state. Who can have
    // come to attend it since are who ran it until then and who has found an entry of it in the list.
    if (attendance == Runnable::kNobody && runnable.waits_.load(std::memory_order_acquire) == 0 &&
        runnable.state_.load(std::memory_order_acquire) == Runnable::kStateIdle) {
      MutexLock lock(ready_lock_);
      if (runnable.attendance_.load(std::memory_order_acquire) == Runnable::kNobody) {
        if (runnable.linked_) Unlink(runnable);
        return;
      }
    }
    std::this_thread::yield();
  }
}

// With `runnable` being run by this worker, or in the list.
void Scheduler::Attend(Attention& attention, Runnable& runnable) noexcept {
  if (attention.runnable != nullptr) {
    if (attention.runnable == &runnable) ++attention.hits;
    return;
  }
  if (!runnable.can_be_attended_ || SpinTime() == Clock::duration::zero()) return;
  if (attention.to_pass != 0) {
    --attention.to_pass;
    return;
  }
  uint32_t nobody = Runnable::kNobody;
  if (!runnable.attendance_.compare_exchange_strong(nobody, Runnable::kAttended, std::memory_order_acq_rel)) return;
  attention.runnable = &runnable;
  attention.hits = 0;
  attention.loose = kLooseRounds;
  attention.had_more = false;
}

// What the list holds back for its owner: in the list it cannot go away.
void Scheduler::AttendHeldBack(Attention& attention) noexcept {
  if (attention.runnable != nullptr || !hold_back_.load(std::memory_order_relaxed)) return;
  MutexLock lock(ready_lock_);
  if (head_ != nullptr && head_ == tail_) Attend(attention, *head_);
}

void Scheduler::Leave(Attention& attention) noexcept {
  if (attention.runnable == nullptr) return;
  Runnable& runnable = *std::exchange(attention.runnable, nullptr);
  attention.reluctance =
      attention.hits < kWorthIt ? std::min(2 * attention.reluctance + 1, kMostReluctance) : attention.reluctance / 2;
  attention.to_pass = attention.reluctance;
  uint32_t attended = Runnable::kAttended;
  if (runnable.attendance_.compare_exchange_strong(attended, Runnable::kLeaving, std::memory_order_acq_rel)) {
    // Said first, looked second: who brings more either sees that we have gone or brought it before this look.
    RareFence();
    if (runnable.HasMore()) Wake(runnable);
  }
  runnable.attendance_.store(Runnable::kNobody, std::memory_order_release);  // it may be gone from here on
}

// Whether the worker should run what it attends.
bool Scheduler::Look(Attention& attention, uint32_t round) noexcept {
  const Runnable& runnable = *attention.runnable;
  if (runnable.attendance_.load(std::memory_order_acquire) != Runnable::kAttended) {
    Leave(attention);
    return false;
  }
  if (static_cast<int32_t>(round - attention.next_look) < 0) return false;
  const bool has_more = runnable.HasMore();
  if (!runnable.prefers_helper_.load(std::memory_order_relaxed)) {
    return has_more && runnable.state_.load(std::memory_order_relaxed) == Runnable::kStateIdle;
  }
  const uint64_t progress = runnable.Progress();
  const bool moved = progress != attention.progress;
  // There was more at the last look, too, and nobody came.
  if (has_more && attention.had_more && !moved &&
      runnable.state_.load(std::memory_order_relaxed) == Runnable::kStateIdle) {
    return true;
  }
  if (moved) {
    if (!runnable.runs_itself()) ++attention.hits;
    attention.loose = std::min(2 * attention.loose, kMostLooseRounds);
  } else {
    attention.loose = kLooseRounds;
  }
  attention.progress = progress;
  attention.had_more = has_more;
  attention.next_look = round + attention.loose;
  return false;
}

void Scheduler::RunAttended(Attention& attention) noexcept {
  Runnable& runnable = *attention.runnable;
  uint32_t idle = Runnable::kStateIdle;
  if (!runnable.state_.compare_exchange_strong(idle, Runnable::kStateRunning, std::memory_order_acq_rel)) return;
  pops_.fetch_add(1, std::memory_order_relaxed);
  Runnable::Set(runnable.prefers_helper_, false);
  ++attention.hits;
  // As in FindWork: wakers may have seen us spin.
  if (ready_count_.load(std::memory_order_seq_cst) != 0) WakeWorker();
  Execute(runnable, true);
}

bool Scheduler::FindWork(Attention& attention, bool extra) {
  if (!extra && job_count_.load(std::memory_order_relaxed) != 0) {
    Leave(attention);
    if (HelpWithJob(nullptr)) {
      pops_.fetch_add(1, std::memory_order_relaxed);  // to the monitor: this worker is not stuck
      return true;
    }
  }
  Runnable* runnable = PopReady();
  if (runnable == nullptr) return false;
  // One waker wakes one worker: whoever takes work passes the call on while there is more.
  if (ready_count_.load(std::memory_order_seq_cst) != 0) WakeWorker();
  // Parts of what is attended are a part of its run, so that it has nothing else to do meanwhile.
  if (attention.runnable != nullptr && runnable != attention.runnable &&
      runnable->part_of_.load(std::memory_order_relaxed) != attention.runnable) {
    Leave(attention);
  }
  if (!has_work()) Attend(attention, *runnable);
  Execute(*runnable, true);
  return true;
}

// Launch and wait, again and again: the waiting thread runs the work itself, without any traffic between the cores,
// provided that a spinning worker does not snatch it a hundred nanoseconds before. True when it has.
bool Scheduler::LeaveToHelper() noexcept {
  for (int i = 0; i < kHoldBackLooks && hold_back_.load(std::memory_order_relaxed); ++i) {
    Pause(kHoldBackPauses);
    if (!has_work()) return true;
  }
  return false;
}

// True when the worker should run what it attends.
bool Scheduler::SpinForWork(Attention& attention, Clock::duration time) noexcept {
  if (time == Clock::duration::zero()) return false;
  // Whoever gives his core away keeps nobody from running, and saves those who have work for him the wake-up.
  const bool yields = IsSpinningHeld();
  // The thread that brings the work has a core, too.
  if (!yields && !TakeSpinPermitOf(std::max(UsableCores() - 1, 1))) return false;
  spinners_.fetch_add(1, std::memory_order_seq_cst);
  auto end = Clock::now() + time;
  int pauses = 1;
  bool run_attended = false;
  attention.next_look = 0;
  for (uint32_t round = 0; !stop_.load(std::memory_order_relaxed); ++round) {
    if (has_work()) {
      AttendHeldBack(attention);
      if (!LeaveToHelper()) break;
      // Each look takes the list's cache line away from those who use it: looked less often, as nobody waits for us.
      pauses = kHoldBackPauses;
      end = Clock::now() + time;
    }
    if (attention.runnable != nullptr) {
      const uint32_t hits = attention.hits;
      if ((run_attended = Look(attention, round))) break;
      if (attention.hits != hits) end = Clock::now() + time;
    }
    for (int i = 0; i < kRoundPauses && !has_work(); i += pauses) Pause(pauses);
    if (yields && !has_work()) std::this_thread::yield();
    if (round % kClockRounds == 0 && !has_work() && Clock::now() >= end) break;
  }
  spinners_.fetch_sub(1, std::memory_order_seq_cst);
  if (!yields) ReturnSpinPermit();
  return run_attended;
}

Clock::duration Scheduler::FirstSpin() const noexcept {
  if (SpinTime() != kUsualSpin) return SpinTime();
  return std::clamp<Clock::duration>(Clock::duration(wake_took_.load(std::memory_order_relaxed)), kLeastSpin,
                                     kUsualSpin);
}

// By a worker that fell asleep and is awake now: nobody learns from jobs, whose wakers go on at once.
void Scheduler::LearnFromWake(Clock::time_point asleep_at, Clock::time_point awake_at) noexcept {
  const int64_t roused_at = roused_at_.load(std::memory_order_relaxed);
  if (roused_at <= asleep_at.time_since_epoch().count()) return;
  constexpr int64_t kMost = Clock::duration(kUsualSpin).count();
  const int64_t took = std::clamp<int64_t>(awake_at.time_since_epoch().count() - roused_at, 0, kMost);
  const int64_t before = std::min(wake_took_.load(std::memory_order_relaxed), kMost);
  wake_took_.store(before + (took - before) / kWakesLearned, std::memory_order_relaxed);
}

void Scheduler::WorkerLoop(bool extra) {
  pthread_setname_np(pthread_self(), "reprise-worker");
  Attention attention;
  Clock::duration spin = FirstSpin();
  while (!stop_.load(std::memory_order_relaxed)) {
    if (FindWork(attention, extra)) continue;
    // The others are no longer stuck, and have the cores.
    if (extra && (spinners_.load() != 0 || sleepers_.load() != 0)) break;
    if (SpinForWork(attention, spin)) {
      RunAttended(attention);
      continue;
    }
    if (has_work()) continue;
    Leave(attention);
    const uint32_t seen = epoch_.load(std::memory_order_acquire);
    const auto asleep_at = Clock::now();
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    bool in_time = true;
    // Announced first, looked second: a waker either sees us sleeping or we see its work.
    if (!has_work() && !stop_.load()) {
      in_time = FutexWait(epoch_, seen, extra ? Deadline(Clock::now() + kExtraWorkerIdle) : std::nullopt);
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    const auto awake_at = Clock::now();
    LearnFromWake(asleep_at, awake_at);
    const auto most = kMostSpinTimes * SpinTime();
    spin = awake_at - asleep_at < most ? std::min(2 * spin, most) : std::max(spin / 2, FirstSpin());
    if (extra && !in_time && !has_work()) break;
  }
  Leave(attention);
}

// With job_lock_ held: nobody else is to join. Jobs that are closed are no work that a spinning worker should look at.
void Scheduler::CloseJob(Job& job) noexcept {
  if (job.helpers == 0) return;
  job.helpers = 0;
  job_count_.fetch_sub(1, std::memory_order_relaxed);
}

bool Scheduler::HelpWithJob(const Runnable* whole) noexcept {
  if (job_count_.load(std::memory_order_relaxed) == 0) return false;
  Job* job = nullptr;
  int share = 0;
  {
    MutexLock lock(job_lock_);
    for (Job** at = &jobs_; *at != nullptr; at = &(*at)->link) {
      if ((*at)->helpers == 0 || (whole != nullptr && (*at)->whole != whole)) continue;
      if (!(*at)->HasMore()) {
        CloseJob(**at);
        continue;
      }
      job = *at;
      if (job->helpers == 1) {
        CloseJob(*job);
      } else {
        --job->helpers;
      }
      job->active.fetch_add(1, std::memory_order_relaxed);
      share = job->TakeShare();
      break;
    }
  }
  if (job == nullptr) return false;
  {
    const Activity::Turn turn(job->place);
    job->Work(share);
  }
  job->active.fetch_sub(1, std::memory_order_release);
  return true;
}

bool UnsharedWork::Add(int64_t threads_worth) noexcept {
  const Costs& costs = TheCosts();
  if (threads_worth < costs.wake_ns / costs.thread_ns) {
    const int64_t all = ns_.load(std::memory_order_relaxed) + threads_worth * costs.thread_ns;
    if (all < costs.wake_ns) {
      ns_.store(all, std::memory_order_relaxed);
      return false;
    }
  }
  Forget();
  return true;
}

void Scheduler::ParallelFor(int64_t count, int64_t grain, void (*body)(void*, int64_t, int64_t), void* arg,
                            int64_t threads_worth) {
  grain = std::max<int64_t>(grain, 1);
  const int64_t chunks = (count + grain - 1) / grain;
  const int helpers = static_cast<int>(std::min<int64_t>(chunks, workers_wanted_)) - 1;
  if (helpers <= 0 || !started_flag_.load(std::memory_order_acquire)) {
    if (count > 0) body(arg, 0, count);
    return;
  }
  Job job(count, grain, body, arg, helpers);
  job.place = Activity::Place();
  if (Runnable* const running = job.place != nullptr ? job.place->running : nullptr; running != nullptr) {
    const Runnable* const whole = running->part_of_.load(std::memory_order_relaxed);
    job.whole = whole != nullptr ? whole : running;
  }
  {
    MutexLock lock(job_lock_);
    job.link = jobs_;
    jobs_ = &job;
    job_count_.fetch_add(1, std::memory_order_seq_cst);
  }
  int32_t awake = 0;  // who looks for parts of what this thread runs
  if (job.whole != nullptr) awake = job.whole->part_takers_.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(spinners_.load(std::memory_order_seq_cst)) + awake >= helpers) {
    unshared_.Forget();
  } else if (sleepers_.load(std::memory_order_seq_cst) != 0 && unshared_.Add(threads_worth)) {
    epoch_.fetch_add(1, std::memory_order_release);
    FutexWake(epoch_, helpers);
  }
  job.Work(0);
  {
    MutexLock lock(job_lock_);
    for (Job** at = &jobs_; *at != nullptr; at = &(*at)->link) {
      if (*at == &job) {
        *at = job.link;
        break;
      }
    }
    CloseJob(job);
  }
  // Nobody can join any more; those who did are within their last chunk.
  for (int spins = 0; job.active.load(std::memory_order_acquire) != 0;) {
    CpuRelax();
    if (++spins % 1024 == 0) std::this_thread::yield();
  }
}

void Scheduler::WakeAt(Runnable& runnable, Clock::time_point when) {
  if (!has_workers()) (void)Start();
  {
    MutexLock lock(timer_mutex_);
    if (const auto it = timer_of_.find(&runnable); it != timer_of_.end()) {
      const auto [first, last] = timers_.equal_range(it->second);
      timers_.erase(std::find_if(first, last, [&](const auto& entry) { return entry.second == &runnable; }));
    }
    timer_of_[&runnable] = when;
    timers_.emplace(when, &runnable);
  }
  monitor_word_.fetch_add(1);
  FutexWake(monitor_word_, 1);
}

void Scheduler::CancelTimer(Runnable& runnable) noexcept {
  MutexLock lock(timer_mutex_);
  const auto it = timer_of_.find(&runnable);
  if (it == timer_of_.end()) return;
  const auto [first, last] = timers_.equal_range(it->second);
  timers_.erase(std::find_if(first, last, [&](const auto& entry) { return entry.second == &runnable; }));
  timer_of_.erase(it);
}

void Scheduler::NudgeMonitor() noexcept {
  if (monitor_watches_.exchange(true, std::memory_order_acq_rel)) return;
  monitor_word_.fetch_add(1);
  FutexWake(monitor_word_, 1);
}

void Scheduler::MonitorLoop() {
  pthread_setname_np(pthread_self(), "reprise-monitor");
  uint32_t pops_before = pops_.load();
  int quiet = 0;
  for (;;) {
    const uint32_t seen = monitor_word_.load();
    if (stop_.load()) return;  // looked at after `seen` was read, or the destructor's wake-up could be missed
    Deadline next;
    {
      MutexLock lock(timer_mutex_);
      const auto now = Clock::now();
      while (!timers_.empty() && timers_.begin()->first <= now) {
        Runnable* runnable = timers_.begin()->second;
        timers_.erase(timers_.begin());
        timer_of_.erase(runnable);
        Wake(*runnable);  // under the lock, so that CancelTimer means what it says
      }
      if (!timers_.empty()) next = timers_.begin()->first;
    }
    if (monitor_watches_.load()) {
      const uint32_t pops = pops_.load();
      const bool waiting = ready_count_.load() != 0;
      if (waiting && pops == pops_before && sleepers_.load() == 0 && quiet != 0 &&
          extra_workers_.load() < kMaxExtraWorkers && !FaultPoint("scheduler.thread")) {
        extra_workers_.fetch_add(1);
        try {
          std::thread([this] {
            WorkerLoop(true);
            extra_workers_.fetch_sub(1);
          }).detach();
        } catch (const std::exception& error) {
          extra_workers_.fetch_sub(1);
          if (!std::exchange(told_no_extra_, true)) {
            REPRISE_LOG(kWarning, "RUNTIME",
                        "all worker threads are busy or stuck in host functions, and no further one can be started: "
                        "{}; {}",
                        error.what(), ThreadLimits());
          }
        }
      }
      quiet = waiting ? 1 : quiet + 1;
      pops_before = pops;
      if (quiet > kMonitorQuietRounds) {
        quiet = 0;
        monitor_watches_.store(false);
        if (ready_count_.load() != 0) monitor_watches_.store(true);
      }
      const auto round = Clock::now() + kMonitorPeriod;
      next = next ? std::min(*next, round) : round;
    }
    FutexWait(monitor_word_, seen, next);
  }
}

}  // namespace reprise::device
