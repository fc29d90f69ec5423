// SPDX-License-Identifier: Apache-2.0
#include "device/inquiry.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <string_view>

namespace reprise::device {
namespace {

// How long after an answer the next one may take.
constexpr auto kPause = std::chrono::milliseconds(10);

struct Answers {
  std::mutex turn;
  std::mutex mutex;
  std::vector<std::string> lines;
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
    std::lock_guard lock(answers.mutex);
    answers.lines.clear();
  }
  answers.turn.unlock();
}

void Inquiry::Answer(std::string line) {
  Answers& answers = TheAnswers();
  std::lock_guard lock(answers.mutex);
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
      std::lock_guard lock(answers.mutex);
      if (!answers.lines.empty()) limit = std::min(limit, Clock::now() + kPause);
    }
    FutexWait(answers.count, seen, limit);
    if (answers.count.load(std::memory_order_acquire) != seen) {
      limit = Clock::now() + kPause;
    } else if (Clock::now() >= limit) {
      break;
    }
  }
  std::lock_guard lock(answers.mutex);
  std::vector<std::string> lines = answers.lines;
  std::sort(lines.begin(), lines.end());
  return lines;
}

// ---- Host functions that run ----------------------------------------------------------------------------------------

constinit thread_local Activity::Slot* Activity::t_slot = nullptr;

// Gives the thread's slot to the next thread that needs one.
struct Activity::Owner {
  Slot* slot = nullptr;
  ~Owner() {
    t_slot = nullptr;
    if (slot != nullptr) slot->is_taken.store(false, std::memory_order_release);
  }
};

std::atomic<Activity::Slot*>& Activity::Slots() noexcept {
  static constinit std::atomic<Slot*> first{nullptr};
  return first;
}

// Null without memory: then the host function runs unseen.
Activity::Slot* Activity::TakeSlot() noexcept {
  thread_local Owner owner;
  Slot* slot = Slots().load(std::memory_order_acquire);
  for (; slot != nullptr; slot = slot->next) {
    if (!slot->is_taken.load(std::memory_order_relaxed) && !slot->is_taken.exchange(true, std::memory_order_acquire)) {
      break;
    }
  }
  if (slot == nullptr) {
    slot = new (std::nothrow) Slot;
    if (slot == nullptr) return nullptr;
    slot->next = Slots().load(std::memory_order_relaxed);
    while (!Slots().compare_exchange_weak(slot->next, slot, std::memory_order_acq_rel)) {
    }
  }
  slot->thread.store(static_cast<int32_t>(gettid()), std::memory_order_relaxed);
  owner.slot = slot;
  return slot;
}

Activity::Activity(const void* function, const Runnable* whole, int32_t device, int32_t stream,
                   uint32_t task) noexcept {
  if (t_slot == nullptr) [[unlikely]]
    t_slot = TakeSlot();
  if (t_slot == nullptr) return;
  Slot& slot = *t_slot;
  // Who sees one of the values below sees the end of the one before, too; see Describe.
  std::atomic_thread_fence(std::memory_order_release);
  slot.function.store(function, std::memory_order_relaxed);
  slot.whole.store(whole, std::memory_order_relaxed);
  slot.awaited.store(nullptr, std::memory_order_relaxed);
  slot.device.store(device, std::memory_order_relaxed);
  slot.stream.store(stream, std::memory_order_relaxed);
  slot.task.store(task, std::memory_order_relaxed);
  slot.serial.store(slot.serial.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

Activity::~Activity() {
  if (t_slot == nullptr) return;
  t_slot->serial.store(t_slot->serial.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  t_slot->whole.store(nullptr, std::memory_order_release);
}

void Activity::WaitFor(const Runnable* stream, int32_t id) noexcept {
  if (t_slot == nullptr) return;
  t_slot->awaited_id.store(id, std::memory_order_relaxed);
  t_slot->awaited.store(stream, std::memory_order_release);
}

bool Activity::HoldsUp(const Runnable* whole) noexcept {
  for (const Slot* slot = Slots().load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
    if (slot->whole.load(std::memory_order_acquire) == whole) return true;
  }
  return false;
}

namespace {

// "f", or where the function is when nobody exports its name.
std::string NameOf(const void* function) {
  if (function == nullptr) return "of an object";  // which nobody may ask for its name: it may be gone
  Dl_info info{};
  if (dladdr(function, &info) == 0) return fmt::format("{}", function);
  if (info.dli_sname == nullptr) {
    const std::string_view file = info.dli_fname != nullptr ? info.dli_fname : "";
    return fmt::format("{:#x} in {}",
                       reinterpret_cast<uintptr_t>(function) - reinterpret_cast<uintptr_t>(info.dli_fbase),
                       file.substr(file.rfind('/') + 1));
  }
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status),
                                                         std::free);
  return name != nullptr ? name.get() : info.dli_sname;
}

}  // namespace

std::vector<std::string> Activity::Describe(int device) {
  std::vector<std::string> lines;
  for (const Slot* slot = Slots().load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
    const uint64_t serial = slot->serial.load(std::memory_order_acquire);
    if (serial % 2 == 0 || slot->device.load(std::memory_order_relaxed) != device) continue;
    const void* const function = slot->function.load(std::memory_order_relaxed);
    const Runnable* const whole = slot->whole.load(std::memory_order_relaxed);
    const int32_t stream = slot->stream.load(std::memory_order_relaxed);
    const uint32_t task = slot->task.load(std::memory_order_relaxed);
    const Runnable* const awaited = slot->awaited.load(std::memory_order_acquire);
    const int32_t awaited_id = slot->awaited_id.load(std::memory_order_relaxed);
    const int32_t thread = slot->thread.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot->serial.load(std::memory_order_relaxed) != serial) continue;  // it has ended
    std::string line =
        fmt::format("stream {}, task {}: host function {} runs on thread {}", stream, task, NameOf(function), thread);
    if (awaited != nullptr) {
      line += awaited == whole ? fmt::format(" and waits for stream {}, which waits for it: a deadlock", awaited_id)
                               : fmt::format(" and waits for stream {}", awaited_id);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace reprise::device
