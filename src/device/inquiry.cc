// SPDX-License-Identifier: Apache-2.0
#include "device/inquiry.h"

#include <unistd.h>

#include <algorithm>
#include <new>

#include "base/mutex.h"

namespace reprise::device {
namespace {

// How long after an answer the next one may take.
constexpr auto kPause = std::chrono::milliseconds(10);

struct Answers {
  Mutex turn;
  Mutex mutex;
  std::vector<std::string> lines REPRISE_GUARDED_BY(mutex);
  std::atomic<uint32_t> count{0};
};

Answers& TheAnswers() {
  static auto* const answers = new Answers;
  return *answers;
}

}  // namespace

std::atomic<bool> Inquiry::open_{false};

Inquiry::Inquiry() {
  TheAnswers().turn.lock();
  open_.store(true, std::memory_order_seq_cst);
}

Inquiry::~Inquiry() {
  Answers& answers = TheAnswers();
  open_.store(false, std::memory_order_seq_cst);
  {
    MutexLock lock(answers.mutex);
    answers.lines.clear();
  }
  answers.turn.unlock();
}

void Inquiry::Answer(std::string line) {
  Answers& answers = TheAnswers();
  MutexLock lock(answers.mutex);
  if (!open_.load() || std::find(answers.lines.begin(), answers.lines.end(), line) != answers.lines.end()) return;
  answers.lines.push_back(std::move(line));
  answers.count.fetch_add(1, std::memory_order_release);
  FutexWake(answers.count, 1);
}

std::vector<std::string> Inquiry::Collect(Clock::duration patience) {
  Answers& answers = TheAnswers();
  for (auto limit = Clock::now() + patience;;) {
    const uint32_t seen = answers.count.load(std::memory_order_acquire);
    {
      MutexLock lock(answers.mutex);
      if (!answers.lines.empty()) limit = std::min(limit, Clock::now() + kPause);
    }
    FutexWait(answers.count, seen, limit);
    if (answers.count.load(std::memory_order_acquire) != seen) {
      limit = Clock::now() + kPause;
    } else if (Clock::now() >= limit) {
      break;
    }
  }
  MutexLock lock(answers.mutex);
  std::vector<std::string> lines = answers.lines;
  std::sort(lines.begin(), lines.end());
  return lines;
}

// ---- What threads do ----

constinit thread_local Activity::Slot* Activity::t_slot = nullptr;

namespace {

// Not std::atomic: threads come and go in the midst of what tests/interleave explores, where this is of no interest.
template <class T>
bool Replace(T& place, T& expected, T desired) noexcept {
  return __atomic_compare_exchange_n(&place, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

int64_t NowNs() noexcept { return Clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

}  // namespace

// Gives the thread's slot to the next thread that needs one.
struct Activity::Owner {
  Slot* slot = nullptr;
  ~Owner() {
    t_slot = nullptr;
    if (slot != nullptr) __atomic_store_n(&slot->is_taken, false, __ATOMIC_RELEASE);
  }
};

constinit Activity::Slot* Activity::g_first = nullptr;
constinit Activity::Slot Activity::g_nobody;

Activity::Slot* Activity::Slots() noexcept { return __atomic_load_n(&g_first, __ATOMIC_ACQUIRE); }

// One that nobody looks at without memory: then the thread runs unseen.
Activity::Slot* Activity::TakeSlot() noexcept {
  thread_local Owner owner;
  Slot* slot = Slots();
  for (; slot != nullptr; slot = slot->next) {
    bool is_taken = false;
    if (!__atomic_load_n(&slot->is_taken, __ATOMIC_RELAXED) && Replace(slot->is_taken, is_taken, true)) break;
  }
  if (slot == nullptr) {
    slot = new (std::nothrow) Slot;
    if (slot == nullptr) return &g_nobody;
    Slot* first = Slots();
    do {
      slot->next = first;
    } while (!Replace(g_first, first, slot));
  }
  __atomic_store_n(&slot->thread, static_cast<int32_t>(gettid()), __ATOMIC_RELAXED);
  owner.slot = slot;
  return slot;
}

Activity::Activity(const void* function, const Runnable* whole, int32_t device, int32_t stream, uint32_t task,
                   Kind kind) noexcept {
  if (t_slot == nullptr) [[unlikely]]
    t_slot = TakeSlot();
  Slot& slot = *t_slot;
  const uint64_t serial = slot.serial.load(std::memory_order_relaxed);
  // A callback that takes up others (aclrtProcessReport) is told, not they.
  if (t_slot == &g_nobody || serial % 2 != 0) return;
  is_set_ = true;
  // Who sees one of the values below sees the end of the one before, too; see Describe.
  std::atomic_thread_fence(std::memory_order_release);
  slot.function.store(function, std::memory_order_relaxed);
  slot.whole.store(whole, std::memory_order_relaxed);
  slot.awaited_what.store(nullptr, std::memory_order_relaxed);
  slot.device.store(device, std::memory_order_relaxed);
  slot.stream.store(stream, std::memory_order_relaxed);
  slot.task.store(task, std::memory_order_relaxed);
  slot.kind.store(kind, std::memory_order_relaxed);
  slot.since_ns.store(NowNs(), std::memory_order_relaxed);
  slot.serial.store(serial + 1, std::memory_order_release);
}

Activity::~Activity() {
  if (!is_set_ || t_slot == nullptr) return;
  t_slot->serial.store(t_slot->serial.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  t_slot->whole.store(nullptr, std::memory_order_release);
}

Activity::Wait::Wait(const char* what, int64_t id, const Runnable* stream) noexcept {
  if (t_slot == nullptr || t_slot == &g_nobody || t_slot->serial.load(std::memory_order_relaxed) % 2 == 0) return;
  is_set_ = true;
  what_before_ = t_slot->awaited_what.load(std::memory_order_relaxed);
  id_before_ = t_slot->awaited_id.load(std::memory_order_relaxed);
  stream_before_ = t_slot->awaited.load(std::memory_order_relaxed);
  t_slot->awaited.store(stream, std::memory_order_relaxed);
  t_slot->awaited_id.store(id, std::memory_order_relaxed);
  t_slot->awaited_what.store(what, std::memory_order_release);
}

Activity::Wait::~Wait() {
  if (!is_set_) return;
  t_slot->awaited.store(stream_before_, std::memory_order_relaxed);
  t_slot->awaited_id.store(id_before_, std::memory_order_relaxed);
  t_slot->awaited_what.store(what_before_, std::memory_order_release);
}

bool Activity::HoldsUp(const Runnable* whole) noexcept {
  for (const Slot* slot = Slots(); slot != nullptr; slot = slot->next) {
    if (slot->whole.load(std::memory_order_acquire) == whole) return true;
  }
  return false;
}

bool Activity::MyFunction(Function& function) noexcept {
  const Slot* const slot = t_slot;
  if (slot == nullptr || slot->serial.load(std::memory_order_relaxed) % 2 == 0) return false;
  function = {slot->function.load(std::memory_order_relaxed), slot->kind.load(std::memory_order_relaxed),
              slot->device.load(std::memory_order_relaxed), slot->stream.load(std::memory_order_relaxed),
              slot->task.load(std::memory_order_relaxed)};
  return true;
}

}  // namespace reprise::device
