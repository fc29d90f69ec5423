// SPDX-License-Identifier: Apache-2.0
#include "runtime/exception.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/condition_variable.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mutex.h"

namespace reprise::runtime {
namespace {

constexpr std::chrono::seconds kLongestListener{10};

struct FailureReport {
  TaskFailure failure;
  std::vector<FailureListener> listeners;
  bool done = false;
};

struct ListenerRegistry {
  Mutex mutex;
  ConditionVariable arrived;
  ConditionVariable finished;
  FailureListener slot REPRISE_GUARDED_BY(mutex);
  std::vector<std::pair<const void*, FailureListener>> listeners REPRISE_GUARDED_BY(mutex);
  std::map<const void*, FailureListener> of_binary REPRISE_GUARDED_BY(mutex);
  std::atomic<size_t> count{0};  // of all of them: a failure costs nothing more when nobody listens
  std::deque<std::shared_ptr<FailureReport>> queue REPRISE_GUARDED_BY(mutex);
  bool thread_started REPRISE_GUARDED_BY(mutex) = false;

  void Recount() REPRISE_REQUIRES(mutex) { count = listeners.size() + of_binary.size() + (slot ? 1 : 0); }
};

// Never destroyed: its thread waits on it until the process ends.
ListenerRegistry& TheListeners() {
  static auto* const registry = new ListenerRegistry;
  return *registry;
}

thread_local bool t_is_listener_thread = false;
thread_local TaskFailure t_kernel;  // of NoteFailingKernel

void Tell(const FailureReport& report) {
  for (const FailureListener& listener : report.listeners) listener(report.failure);
}

void ListenerLoop() {
  t_is_listener_thread = true;
  ListenerRegistry& registry = TheListeners();
  UniqueLock lock(registry.mutex);
  for (;;) {
    registry.arrived.wait(lock, [&]() REPRISE_REQUIRES(registry.mutex) { return !registry.queue.empty(); });
    const std::shared_ptr<FailureReport> report = std::move(registry.queue.front());
    registry.queue.pop_front();
    lock.unlock();
    try {
      Tell(*report);
    } catch (...) {
      REPRISE_LOG(kError, "RUNTIME", "a callback for failed tasks threw an exception");
    }
    lock.lock();
    report->done = true;
    registry.finished.notify_all();
  }
}

}  // namespace

void SetFailureSlot(FailureListener listener) {
  ListenerRegistry& registry = TheListeners();
  MutexLock lock(registry.mutex);
  registry.slot = std::move(listener);
  registry.Recount();
}

void AddFailureListener(const void* key, FailureListener listener) {
  ListenerRegistry& registry = TheListeners();
  MutexLock lock(registry.mutex);
  for (const auto& [known, unused] : registry.listeners) {
    if (known == key) return;
  }
  registry.listeners.emplace_back(key, std::move(listener));
  registry.Recount();
}

void RemoveFailureListener(const void* key) {
  ListenerRegistry& registry = TheListeners();
  MutexLock lock(registry.mutex);
  std::erase_if(registry.listeners, [&](const auto& entry) { return entry.first == key; });
  registry.Recount();
}

void SetBinaryFailureListener(const void* binary, FailureListener listener) {
  ListenerRegistry& registry = TheListeners();
  MutexLock lock(registry.mutex);
  registry.of_binary[binary] = std::move(listener);
  registry.Recount();
}

void NoteFailingKernel(const void* args, uint32_t args_bytes, void* function, void* binary) {
  t_kernel.args = args;
  t_kernel.args_bytes = args_bytes;
  t_kernel.function = function;
  t_kernel.binary = binary;
}

void NotifyTaskFailure(TaskFailure failure) noexcept try {
  const TaskFailure kernel = std::exchange(t_kernel, {});
  if (failure.function == nullptr) {
    failure.args = kernel.args;
    failure.args_bytes = kernel.args_bytes;
    failure.function = kernel.function;
    failure.binary = kernel.binary;
  }
  ListenerRegistry& registry = TheListeners();
  if (registry.count.load() == 0) return;

  auto report = std::make_shared<FailureReport>();
  report->failure = failure;
  UniqueLock lock(registry.mutex);
  if (registry.slot) report->listeners.push_back(registry.slot);
  for (const auto& [key, listener] : registry.listeners) report->listeners.push_back(listener);
  if (failure.binary != nullptr) {
    const auto it = registry.of_binary.find(failure.binary);
    if (it != registry.of_binary.end()) report->listeners.push_back(it->second);
  }
  if (report->listeners.empty()) return;
  if (t_is_listener_thread) {  // a listener synchronised another stream and ran its failing task
    lock.unlock();
    Tell(*report);
    return;
  }
  if (!registry.thread_started) {
    try {
      if (FaultPoint("exception.thread")) throw std::system_error(EAGAIN, std::generic_category(), "injected fault");
      std::thread(ListenerLoop).detach();
      registry.thread_started = true;
    } catch (const std::system_error& error) {
      REPRISE_LOG(kWarning, "RUNTIME",
                  "no thread for the callbacks of failed tasks, they run where the task failed: {}", error.what());
      lock.unlock();
      Tell(*report);
      return;
    }
  }
  registry.queue.push_back(report);
  registry.arrived.notify_one();
  if (!registry.finished.wait_for(lock, kLongestListener, [&] { return report->done; })) {
    REPRISE_LOG(kWarning, "RUNTIME", "a callback for failed tasks still runs after {} s; going on without it",
                kLongestListener.count());
  }
} catch (...) {
  REPRISE_LOG(kError, "RUNTIME", "a failed task could not be reported to its callbacks");
}

}  // namespace reprise::runtime
