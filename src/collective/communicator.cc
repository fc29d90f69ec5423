// SPDX-License-Identifier: Apache-2.0
#include "collective/communicator.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "base/calls.h"
#include "base/log.h"
#include "collective/net.h"
#include "collective/numbers.h"
#include "collective/socket.h"
#include "collective/watch.h"
#include "device/ipc_memory.h"
#include "runtime/device.h"
#include "runtime/objects.h"

namespace reprise::collective {
namespace {

constexpr size_t kMostCommunicators = 1024;

// The next step of whoever has a communicator that failed.
constexpr char kAfterFailure[] = "destroy the communicator and make a new one, or suspend and resume it on all ranks";

std::atomic<bool> g_is_forked{false};
std::atomic<int> g_deterministic{0};

// Live communicators in the order of creation; for names, resets and the end of the process.
struct Live {
  Mutex mutex;
  std::vector<Communicator*> all REPRISE_GUARDED_BY(mutex);
};
Live& TheLive() {
  static auto* const live = new Live;
  return *live;
}

struct Callbacks {
  struct One {
    StateCallback function;
    void* args;
  };
  Mutex mutex;
  std::map<std::string, One> by_name REPRISE_GUARDED_BY(mutex);
};
Callbacks& TheCallbacks() {
  static auto* const callbacks = new Callbacks;
  return *callbacks;
}

// Peers learn that the process ends in good order.
void SayGoodbye() {
  if (g_is_forked.load()) return;
  Live& live = TheLive();
  MutexLock lock(live.mutex);
  for (Communicator* each : live.all) {
    each->board().Fail(each->rank(), RankState::kLeft, kRemote,
                       fmt::format("rank {} (process {}) has ended without HcclCommDestroy", each->rank(), getpid()));
  }
  LinkThread::FlushAll();
}

}  // namespace

HandleTable<Communicator, HandleKind::kCommunicator>& Communicators() {
  return TheTable<Communicator, HandleKind::kCommunicator>();
}

bool IsForkedChild() noexcept { return g_is_forked.load(std::memory_order_relaxed); }

void NoteProcess() {
  [[maybe_unused]] static const bool once = [] {
    pthread_atfork(nullptr, nullptr, [] {
      g_is_forked.store(true);
      CloseHidden();
    });
    std::atexit(SayGoodbye);
    runtime::AtMemoryFreed(Communicator::DropDevice);
    return true;
  }();
}

StatusOr<Communicator*> FindCommunicator(const void* handle) {
  if (Communicator* found = Communicators().Find(handle)) [[likely]]
    return found;
  const HandleState state = Communicators().Classify(handle);
  return Error(kParameter, DescribeBadHandle(state, handle, "communicator"))
      .Culprit("parameter comm")
      .Hint(HintForBadHandle(state, "communicator"));
}

Communicator* FindByName(const std::string& name, int device) {
  Live& live = TheLive();
  MutexLock lock(live.mutex);
  Communicator* found = nullptr;
  for (Communicator* each : live.all) {
    if (device >= 0 && each->device() != device) continue;
    if (each->name() == name && (found == nullptr || each->rank() < found->rank())) found = each;
  }
  return found;
}

void ForEachCommunicator(const std::function<void(const Communicator&)>& call) {
  Live& live = TheLive();
  MutexLock lock(live.mutex);
  for (const Communicator* each : live.all) call(*each);
}

// ---- Counter ----

Status Counter::CheckLaunch() const { return owner_.CheckUsable(); }

void Counter::Skipped(std::string_view why) noexcept {
  if (owner_.is_destroyed()) return;
  owner_.Fail(kInternal,
              fmt::format("rank {} has dropped an operator of group {}: {}", owner_.rank(), owner_.name(), why));
}

// ---- Communicator ----

Communicator::Communicator(Place place, Settings settings)
    : place_(std::move(place)),
      settings_(std::move(settings)),
      rank_list_(new uint32_t[place_.board->ranks() + 1]),
      operators_(*this) {
  for (uint32_t rank = 0; rank <= ranks(); ++rank) rank_list_[rank] = rank;
  for (uint32_t peer = 0; peer < ranks(); ++peer) {
    sends_.push_back(std::make_unique<Counter>(*this, Counter::Of::kSends, peer));
    receives_.push_back(std::make_unique<Counter>(*this, Counter::Of::kReceives, peer));
  }
}

Communicator::~Communicator() {
  MutexLock lock(imports_mutex_);
  for (const Import& import : imports_) (void)device::CloseMemory(device::ShareKey::Unpack(import.key));
}

StatusOr<Communicator*> Communicator::Create(Place place, Settings settings) {
  NoteProcess();
  Live& live = TheLive();
  auto* const made = new Communicator(std::move(place), std::move(settings));
  {
    MutexLock lock(live.mutex);
    const auto same = std::find_if(live.all.begin(), live.all.end(), [&](const Communicator* each) {
      return each->name() == made->name() && each->device() == made->device() &&
             each->board().nonce() != made->board().nonce();
    });
    const bool is_taken = same != live.all.end();
    if (is_taken || live.all.size() >= kMostCommunicators) {
      const std::string name = made->name();
      delete made;
      if (is_taken) {
        return Error(kParameter, fmt::format("EI0014: a live communicator of this device has the name {}", name))
            .Culprit("hcclCommName")
            .Hint("choose another name, or destroy the other communicator first");
      }
      return Error(kOutOfMemory,
                   fmt::format("EI0007: the process has {} communicators, which is the most", kMostCommunicators))
          .Hint("destroy communicators that are no longer needed");
    }
    live.all.push_back(made);
  }
  made->handle_ = Communicators().Insert(made);
  REPRISE_LOG(kInfo, "HCCL", "InitGroupStage: {} on device {}", made->Describe(), made->device());
  return made;
}

std::string Communicator::Describe() const {
  std::string text = fmt::format("rank {} of {} of group {}", rank(), ranks(), name());
  if (!settings_.udi.empty()) text += fmt::format(" ({})", settings_.udi);
  return text;
}

void Communicator::Leave(const std::string& reason) noexcept {
  is_destroyed_.store(true, std::memory_order_release);
  {
    Live& live = TheLive();
    MutexLock lock(live.mutex);
    std::erase(live.all, this);
  }
  Fail(kInternal, reason);
  board().Fail(rank(), RankState::kLeft, kRemote, reason);
}

Status Communicator::Destroy(void* handle) {
  REPRISE_ASSIGN_OR_RETURN(Communicator * communicator, FindCommunicator(handle));
  if (communicator->moving.load(std::memory_order_acquire) != 0) {
    return Error(kAgain, fmt::format("comm is in use, please try again later: an operator of {} moves data",
                                     communicator->Describe()))
        .Culprit("parameter comm")
        .Hint("synchronise the streams that use it, then destroy it");
  }
  TellState(handle, Phase::kDestroyPre);
  uint64_t birth = 0;
  if (Communicators().Erase(handle, &birth) == nullptr) {
    return Error(kParameter, "another thread destroys the communicator")
        .Culprit("parameter comm")
        .Hint("let one thread destroy a communicator");
  }
  const uint64_t done = communicator->board().rank(communicator->rank()).done.load();
  REPRISE_LOG(kInfo, "HCCL", "Terminating operation due to external request: {}", communicator->Describe());
  std::string reason =
      fmt::format("rank {} destroyed group {} after seq {}", communicator->rank(), communicator->name(),
                  done == 0 ? std::string("none") : std::to_string((done - 1) & kOrdinalMask));
  // Others look for what has begun it.
  if (communicator->error() != 0) reason += fmt::format(", as it had failed: {}", communicator->error_text());
  communicator->Leave(reason);
  Retire(
      communicator, [](void* retired) { static_cast<Communicator*>(retired)->Release(); }, birth, true);
  TellState(handle, Phase::kDestroyPost);
  return {};
}

void Communicator::DropDevice(int device) {
  std::vector<Communicator*> dropped;
  {
    Live& live = TheLive();
    MutexLock lock(live.mutex);
    for (Communicator* each : live.all) {
      if (each->device() == device) dropped.push_back(each);
    }
  }
  for (Communicator* each : dropped) {
    uint64_t birth = 0;
    if (Communicators().Erase(each->handle(), &birth) == nullptr) continue;
    each->Leave(fmt::format("rank {} of group {}: device {} was reset", each->rank(), each->name(), device));
    Retire(
        each, [](void* retired) { static_cast<Communicator*>(retired)->Release(); }, birth, true);
  }
}

Status Communicator::CheckUsable() const {
  if (is_destroyed()) {
    return Error(kParameter, fmt::format("group {} was destroyed on rank {}", name(), rank()))
        .Culprit(Describe())
        .Hint("destroy graphs and finish operators before their communicator");
  }
  if (is_suspended()) {
    return Error(kSuspended, fmt::format("{} is suspended", Describe()))
        .Culprit(Describe())
        .Hint("call HcclCommResume on all ranks first");
  }
  if (const int code = error(); code != 0) {
    return Error(kRemote, fmt::format("{} has failed before ({}): {}", Describe(), code, error_text()))
        .Culprit(Describe())
        .Hint(kAfterFailure);
  }
  return {};
}

void Communicator::Fail(int code, std::string_view reason) noexcept {
  {
    MutexLock lock(error_mutex_);
    if (error_.load(std::memory_order_relaxed) == 0) {
      error_text_ = reason;
      error_.store(code, std::memory_order_release);
      REPRISE_LOG(kError, "HCCL", "TaskExecStage: {}: {}", Describe(), reason);
    }
  }
  // A suspended rank stays that: its operators end, and it can be resumed.
  if (!is_suspended()) board().Fail(rank(), RankState::kFailed, code, reason);
}

std::string Communicator::error_text() const {
  MutexLock lock(error_mutex_);
  return error_text_;
}

Status Communicator::Failure() const {
  MutexLock lock(error_mutex_);
  const int code = error_.load(std::memory_order_relaxed);
  if (code == 0) return {};
  return Error(code, error_text_).Culprit(Describe()).Hint(kAfterFailure);
}

bool Communicator::is_suspended() const {
  return board().rank(rank()).state.load() == static_cast<uint32_t>(RankState::kSuspended);
}

Status Communicator::Suspend() {
  board().Fail(rank(), RankState::kSuspended, kSuspended,
               fmt::format("rank {} has suspended group {}", rank(), name()));
  return {};
}

Status Communicator::Resume() {
  RankRow& row = board().rank(rank());
  if (row.state.load() == static_cast<uint32_t>(RankState::kReady)) return {};
  if (moving.load() != 0) {
    return Error(kAgain, fmt::format("an operator of {} moves data", Describe()))
        .Culprit(Describe())
        .Hint("synchronise the streams that use it, then resume it");
  }
  TellState(handle_, Phase::kResumePre);
  uint64_t epoch = row.epoch.load() + 1;
  for (uint32_t other = 0; other < ranks(); ++other) epoch = std::max(epoch, board().rank(other).epoch.load());
  operators_.Restart(epoch);
  for (uint32_t peer = 0; peer < ranks(); ++peer) {
    sends_[peer]->Restart(epoch);
    receives_[peer]->Restart(epoch);
  }
  {
    MutexLock lock(error_mutex_);
    error_text_.clear();
    error_.store(0, std::memory_order_release);
  }
  row.code.store(0);
  row.ForgetReasons();
  row.begun.store(0);
  row.done.store(0);
  row.epoch.store(epoch);
  row.state.store(static_cast<uint32_t>(RankState::kReady), std::memory_order_seq_cst);
  if (Net* const net = board().net()) net->TellRow(rank());
  board().Ring();
  TellState(handle_, Phase::kResumePost);
  return {};
}

StatusOr<std::byte*> Communicator::Reach(uint32_t rank, const BufferRef& buffer) {
  if (IsLocal(rank)) return reinterpret_cast<std::byte*>(buffer.address);
  if (board().IsRemote(rank)) return Error(kNotSupported, fmt::format("rank {} is on another machine", rank));
  MutexLock lock(imports_mutex_);
  const auto it =
      std::find_if(imports_.begin(), imports_.end(), [&](const Import& import) { return import.key == buffer.key; });
  if (it != imports_.end()) {
    imports_.splice(imports_.begin(), imports_, it);
    return it->block + buffer.offset;
  }
  REPRISE_ASSIGN_OR_RETURN(void* const block, device::ImportMemory(device::ShareKey::Unpack(buffer.key), device()));
  imports_.push_front({buffer.key, static_cast<std::byte*>(block)});
  return static_cast<std::byte*>(block) + buffer.offset;
}

// ---- Of the process ----

void SetStateCallback(const std::string& name, StateCallback callback, void* args) {
  Callbacks& callbacks = TheCallbacks();
  MutexLock lock(callbacks.mutex);
  if (callback == nullptr) {
    callbacks.by_name.erase(name);
  } else {
    callbacks.by_name[name] = {callback, args};
  }
}

void TellState(void* comm, Phase phase) {
  std::vector<Callbacks::One> called;
  {
    Callbacks& callbacks = TheCallbacks();
    MutexLock lock(callbacks.mutex);
    for (const auto& [name, one] : callbacks.by_name) called.push_back(one);
  }
  if (called.empty()) return;
  const WaitingCall waiting;
  for (const Callbacks::One& one : called) one.function(comm, static_cast<int>(phase), one.args);
}

void SetDeterministic(int value) { g_deterministic.store(value, std::memory_order_relaxed); }
int Deterministic() { return g_deterministic.load(std::memory_order_relaxed); }

}  // namespace reprise::collective
