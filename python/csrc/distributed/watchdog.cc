// SPDX-License-Identifier: Apache-2.0
#include "distributed/watchdog.h"

#include <acl/acl.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>

#include "common/python_stack.h"
#include "device/runtime.h"
#include "distributed/monitor.h"

namespace torch_npu {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kPeriod{1};
// How long a program has to see the error of an operator by itself, before it is ended.
constexpr std::chrono::seconds kGrace{30};

struct AllWatchdogs {
  std::mutex mutex;
  std::set<Watchdog*> live;
  std::atomic<pid_t> process{0};  // whose they are
};

// Never destroyed: groups may end after static objects.
AllWatchdogs& Watchdogs() {
  static auto* const all = new AllWatchdogs;
  return *all;
}

void Say(const std::string& text) { std::fprintf(stderr, "[HCCL] %s\n", text.c_str()); }

}  // namespace

void Watchdog::Add(std::shared_ptr<Operation> operation) {
  const std::lock_guard lock(mutex_);
  if (stops_) return;
  pending_.push_back(std::move(operation));
  if (!thread_.joinable()) {
    process_ = getpid();
    thread_ = std::thread([this] { Loop(); });
    const std::lock_guard all_lock(Watchdogs().mutex);
    if (Watchdogs().process.exchange(process_) != process_) Watchdogs().live.clear();  // those of a parent
    Watchdogs().live.insert(this);
  } else if (pending_.size() == 1) {
    changed_.notify_one();
  }
}

void Watchdog::Clear() {
  const std::lock_guard lock(mutex_);
  pending_.clear();
  failed_at_ = {};
  has_marked_failed_ = false;
}

void Watchdog::SetPaused(bool is_paused) {
  const std::lock_guard lock(mutex_);
  is_paused_ = is_paused;
  changed_.notify_one();
}

// A forked process has locks and waiters as the other threads of its parent had them at that moment: it neither takes
// nor wakes them.
bool Watchdog::IsOfParent() const noexcept { return process_ != 0 && process_ != getpid(); }

Watchdog::~Watchdog() {
  Stop();
  if (IsOfParent()) (void)sync_.release();  // to destroy what somebody waits for waits for him
}

void Watchdog::Stop() noexcept {
  if (IsOfParent()) {
    if (thread_.joinable()) new std::thread(std::move(thread_));  // nothing to wait for
    return;
  }
  {
    const std::lock_guard all_lock(Watchdogs().mutex);
    Watchdogs().live.erase(this);
  }
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    changed_.notify_one();
    std::swap(thread, thread_);
  }
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
    return;
  }
  const ReleaseGil no_gil;
  thread.join();
}

void Watchdog::StopAll() noexcept {
  if (Watchdogs().process != getpid()) return;
  for (;;) {
    Watchdog* one = nullptr;
    {
      const std::lock_guard lock(Watchdogs().mutex);
      if (Watchdogs().live.empty()) return;
      one = *Watchdogs().live.begin();
    }
    one->Stop();
  }
}

void Watchdog::Loop() noexcept {
  // What this thread asks of events must not disturb a capture of another one.
  aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
  (void)aclmdlRICaptureThreadExchangeMode(&mode);
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (pending_.empty() || is_paused_) {
        changed_.wait(lock, [this] { return stops_ || (!pending_.empty() && !is_paused_); });
      }
      if (changed_.wait_for(lock, kPeriod, [this] { return stops_; })) return;
    }
    try {
      if (!Look()) return;
    } catch (const std::exception& error) {
      Say("the watchdog of group " + rules_.group + " cannot look after it any more: " + error.what());
      return;
    }
  }
}

bool Watchdog::Look() {
  if (!IsAlive()) return false;
  std::vector<std::shared_ptr<Operation>> now;
  {
    const std::lock_guard lock(mutex_);
    if (is_paused_) return true;
    now.assign(pending_.begin(), pending_.end());
  }
  std::set<const Operation*> done;
  std::vector<std::shared_ptr<Operation>> late;
  std::shared_ptr<Operation> failed;
  for (const auto& operation : now) {
    if (operation->IsDone() || operation->is_captured()) {
      done.insert(operation.get());
    } else if (operation->communicator()->error() != HCCL_SUCCESS) {
      if (!failed) failed = operation;
    } else if (operation->info().timeout.count() > 0 && operation->Age() > operation->info().timeout.count()) {
      late.push_back(operation);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    pending_.remove_if([&](const auto& operation) { return done.contains(operation.get()); });
  }
  if (!late.empty() && !HandleTimeout(late)) return false;
  return failed == nullptr || HandleFailure(failed);
}

void Watchdog::ReportTimeout() {
  if (rules_.report) Say(rules_.report());
  Monitor::DumpAll();
}

bool Watchdog::HandleTimeout(const std::vector<std::shared_ptr<Operation>>& late) {
  std::string first;
  for (const auto& operation : late) {
    const std::string text =
        c10::str("Watchdog caught collective operation timeout: ", operation->Describe(), " ran for ", operation->Age(),
                 " milliseconds before timing out. Group ", rules_.group,
                 ": see that all ranks call the same operators; one that waits for a slow rank needs a longer timeout "
                 "(init_process_group(timeout=...))");
    operation->MarkFailed(
        std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text)));
    if (first.empty()) first = text;
  }
  Say(first);
  ReportTimeout();
  if (rules_.handling != ErrorHandling::kTearDownOnly && rules_.abort_group) rules_.abort_group();
  const std::string then =
      "Some HCCL operations have failed or timed out. Due to the asynchronous nature of the device, later work may run "
      "on corrupted or incomplete data.";
  if (rules_.handling == ErrorHandling::kTearDown || rules_.handling == ErrorHandling::kTearDownOnly) {
    EndProcess(then + " To avoid data inconsistency, we are taking the entire process down.");
  }
  Say(then);
  Clear();
  return true;
}

bool Watchdog::HandleFailure(const std::shared_ptr<Operation>& failed) {
  // An operator that fails tells its communicator first, and its stream a moment later. The program is told by a wait,
  // or by the synchronisation that takes the error of the stream, so nothing may take it here.
  const bool is_in_stream = failed->communicator()->HasStreamError();
  steady_clock::time_point since;
  bool is_marked;
  std::vector<std::shared_ptr<Operation>> all;
  {
    const std::lock_guard lock(mutex_);
    const bool is_first = failed_at_ == steady_clock::time_point{};
    if (is_first) failed_at_ = steady_clock::now();
    if (is_first && !is_in_stream) return true;  // not yet, or no more: the next look tells
    since = failed_at_;
    is_marked = std::exchange(has_marked_failed_, true);
    all.assign(pending_.begin(), pending_.end());
  }
  if (!is_marked) {
    const std::exception_ptr error = failed->communicator()->Failure();
    for (const auto& operation : all) {
      if (operation->communicator() == failed->communicator()) operation->MarkFailed(error);
    }
    Say(c10::str("an operator of group ", rules_.group, " has failed: ", failed->Describe(),
                 "; the next wait or synchronisation raises what happened"));
    if (failed->communicator()->error() == HCCL_E_TIMEOUT) ReportTimeout();
  }
  if (failed->was_told() || !is_in_stream) {
    Clear();
    return true;
  }
  if (rules_.handling == ErrorHandling::kCleanUp || steady_clock::now() - since < kGrace) return true;
  EndProcess(
      "Some HCCL operations have failed or timed out. To avoid data inconsistency, we are taking the entire process "
      "down.");
}

void Watchdog::EndProcess(const std::string& why) {
  Say(why);
  (void)std::fflush(stderr);
  std::abort();
}

}  // namespace torch_npu
