// SPDX-License-Identifier: Apache-2.0
#include "runtime/callback.h"

#include <fmt/format.h>
#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/thread.h"

namespace reprise::runtime {
namespace {

using device::RunContext;
using ir::RunResult;

constexpr size_t kMaxThreads = 1024;

// A callback on its way to a report thread, and back.
struct Pending {
  void (*function)(void*);
  void* argument;
  std::atomic<bool> done{false};
  bool dropped = false;  // written before done: its thread was unsubscribed, nobody has run it
  device::WaitList waiters;
};

using Queue = std::deque<std::shared_ptr<Pending>>;

// The mailbox of one subscribed thread.
struct ReportThread {
  int device;
  size_t streams = 0;
  Queue queue;
  std::condition_variable arrived;
};

struct SubscriptionRegistry {
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<ReportThread>> threads;
  std::map<const Stream*, uint64_t> thread_of;
};

SubscriptionRegistry& TheSubscriptions() {
  static auto* const registry = new SubscriptionRegistry;
  return *registry;
}

// Takes one stream from its thread; with the last one the thread goes, and what it has not run is returned. Under the
// registry's mutex.
Queue RemoveStream(SubscriptionRegistry& registry,
                   std::map<uint64_t, std::shared_ptr<ReportThread>>::iterator thread) noexcept {
  Queue left;
  if (--thread->second->streams != 0) return left;
  left.swap(thread->second->queue);
  thread->second->arrived.notify_all();
  registry.threads.erase(thread);
  return left;
}

// Lets the streams go on that wait for callbacks which nobody will run.
void Drop(const Queue& queue) noexcept {
  for (const auto& pending : queue) {
    pending->waiters.SetAndWake([&] {
      pending->dropped = true;
      pending->done.store(true, std::memory_order_release);
    });
  }
}

Status Unsubscribed(uint64_t thread_id) {
  return Error(107015, fmt::format("thread {} is no longer subscribed; its callback was dropped", thread_id));
}

struct CallbackPayload {
  void (*function)(void*);
  void* argument;
  uint64_t thread_id;
  bool blocks;
  bool posted = false;
  std::shared_ptr<Pending>* pending = nullptr;  // while a blocking callback is under way
};

bool Post(uint64_t thread_id, std::shared_ptr<Pending> pending) {
  SubscriptionRegistry& registry = TheSubscriptions();
  std::lock_guard lock(registry.mutex);
  const auto it = registry.threads.find(thread_id);
  if (it == registry.threads.end()) return false;
  it->second->queue.push_back(std::move(pending));
  it->second->arrived.notify_all();
  return true;
}

RunResult RunCallback(RunContext& context, void* payload) {
  auto* p = static_cast<CallbackPayload*>(payload);
  if (p->pending == nullptr) {
    auto pending = std::make_shared<Pending>();
    pending->function = p->function;
    pending->argument = p->argument;
    if (!Post(p->thread_id, pending)) {
      context.Fail(Unsubscribed(p->thread_id));
      return RunResult::kDone;
    }
    if (!p->blocks) return RunResult::kDone;
    p->pending = new std::shared_ptr<Pending>(std::move(pending));
  }
  Pending& pending = **p->pending;
  const auto done = [&pending] { return pending.done.load(std::memory_order_acquire); };
  if (!done() && pending.waiters.AddUnless(done, context.runnable(), &context.scheduler())) return RunResult::kParked;
  if (pending.dropped) context.Fail(Unsubscribed(p->thread_id));
  delete p->pending;
  p->pending = nullptr;
  return RunResult::kDone;
}

void CancelCallback(void* payload, device::Runnable* runnable) noexcept {
  auto* p = static_cast<CallbackPayload*>(payload);
  if (p->pending != nullptr) (*p->pending)->waiters.Remove(runnable);
}

void DestroyCallback(void* payload) noexcept { delete static_cast<CallbackPayload*>(payload)->pending; }

constexpr ir::TaskType kCallback = {ir::TaskKind::kCallback, "HOSTFUNC_CALLBACK", RunCallback, DestroyCallback,
                                    CancelCallback};

}  // namespace

Status SubscribeReport(uint64_t thread_id, Stream& stream) {
  SubscriptionRegistry& registry = TheSubscriptions();
  std::lock_guard lock(registry.mutex);
  if (const auto it = registry.thread_of.find(&stream); it != registry.thread_of.end()) {
    return Error(107011, fmt::format("{} is subscribed already", stream.Describe()))
        .Culprit(fmt::format("thread {}", it->second));
  }
  auto it = registry.threads.find(thread_id);
  if (it == registry.threads.end()) {
    if (registry.threads.size() >= kMaxThreads) {
      return Error(107012, fmt::format("{} threads are subscribed, which is the limit", kMaxThreads));
    }
    it = registry.threads.emplace(thread_id, std::make_shared<ReportThread>()).first;
    it->second->device = stream.device().id();
  } else if (it->second->device != stream.device().id()) {
    return Error(107012, fmt::format("thread {} serves device {}, not device {}", thread_id, it->second->device,
                                     stream.device().id()));
  }
  registry.thread_of[&stream] = thread_id;
  ++it->second->streams;
  return {};
}

Status UnsubscribeReport(uint64_t thread_id, Stream& stream) {
  SubscriptionRegistry& registry = TheSubscriptions();
  std::unique_lock lock(registry.mutex);
  const auto thread = registry.threads.find(thread_id);
  if (thread == registry.threads.end()) {
    return Error(107012, fmt::format("thread {} is not subscribed", thread_id));
  }
  const auto it = registry.thread_of.find(&stream);
  if (it == registry.thread_of.end() || it->second != thread_id) {
    return Error(107011, fmt::format("{} is not subscribed to thread {}", stream.Describe(), thread_id));
  }
  registry.thread_of.erase(it);
  const Queue left = RemoveStream(registry, thread);
  lock.unlock();
  Drop(left);
  return {};
}

void ForgetSubscription(const Stream& stream) noexcept {
  SubscriptionRegistry& registry = TheSubscriptions();
  std::unique_lock lock(registry.mutex);
  const auto it = registry.thread_of.find(&stream);
  if (it == registry.thread_of.end()) return;
  const auto thread = registry.threads.find(it->second);
  registry.thread_of.erase(it);
  if (thread == registry.threads.end()) return;
  const Queue left = RemoveStream(registry, thread);
  lock.unlock();
  Drop(left);
}

Status ProcessReport(int64_t timeout_ms) {
  SubscriptionRegistry& registry = TheSubscriptions();
  // Programs subscribe the pthread id as a rule, some the kernel's thread id.
  const auto self = static_cast<uint64_t>(pthread_self());
  std::unique_lock lock(registry.mutex);
  auto it = registry.threads.find(self);
  if (it == registry.threads.end()) it = registry.threads.find(static_cast<uint64_t>(ThreadId()));
  if (it == registry.threads.end()) return Error(107012, fmt::format("this thread ({}) is not subscribed", self));
  const std::shared_ptr<ReportThread> thread = it->second;
  const NoCancel no_cancel;
  const WaitingCall waiting;
  const auto arrived = [&] { return !thread->queue.empty() || thread->streams == 0; };
  if (timeout_ms < 0) {
    thread->arrived.wait(lock, arrived);
  } else {
    thread->arrived.wait_for(lock, std::chrono::milliseconds(timeout_ms), arrived);
  }
  if (thread->queue.empty()) return Error(507012, fmt::format("no callback arrived within {} ms", timeout_ms));
  Queue batch;
  batch.swap(thread->queue);
  lock.unlock();
  for (const auto& pending : batch) {
    pending->function(pending->argument);
    pending->waiters.SetAndWake([&] { pending->done.store(true, std::memory_order_release); });
  }
  return {};
}

Status SubmitCallback(Stream& stream, void (*function)(void*), void* argument, bool blocks) {
  uint64_t thread_id = 0;
  {
    SubscriptionRegistry& registry = TheSubscriptions();
    std::lock_guard lock(registry.mutex);
    const auto it = registry.thread_of.find(&stream);
    if (it == registry.thread_of.end()) {
      return Error(107015, fmt::format("no thread is subscribed to {}", stream.Describe()));
    }
    thread_id = it->second;
  }
  CallbackPayload payload{function, argument, thread_id, blocks};
  return stream.Submit(ir::MakeTask(kCallback, payload));
}

}  // namespace reprise::runtime
