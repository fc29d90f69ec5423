// SPDX-License-Identifier: Apache-2.0
#include "runtime/callback.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <memory>

#include "base/condition_variable.h"
#include "base/mutex.h"
#include "base/symbols.h"
#include "device/inquiry.h"
#include "ir/task_info.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/submission.h"
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
  std::atomic<bool> begun{false};
  const device::Runnable* whole;  // the stream that it holds up; null when nothing waits for it
  int32_t device;
  int32_t stream;
  uint32_t task;
  device::WaitList waiters;
};

using Queue = std::deque<std::shared_ptr<Pending>>;

// The mailbox of one subscribed thread.
struct ReportThread {
  int device;
  size_t streams = 0;
  Queue queue;
  ConditionVariable arrived;
};

// One of each kind.
struct SubscriptionRegistry {
  const char* subscribe;
  const char* unsubscribe;
  Mutex mutex{};
  std::map<uint64_t, std::shared_ptr<ReportThread>> threads{};
  std::map<const Stream*, uint64_t> thread_of{};
  ConditionVariable thread_came{};
};

SubscriptionRegistry& TheSubscriptions(Subscription kind) {
  static auto* const reports = new SubscriptionRegistry{"aclrtSubscribeReport", "aclrtUnSubscribeReport"};
  static auto* const host_functions = new SubscriptionRegistry{"aclrtSubscribeHostFunc", "aclrtUnSubscribeHostFunc"};
  return kind == Subscription::kReport ? *reports : *host_functions;
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
  return Error(kStreamNotSubscribed,
               fmt::format("thread {} is no longer subscribed; its callback was dropped", thread_id))
      .Hint("synchronise the stream before its thread is unsubscribed");
}

struct CallbackPayload {
  void (*function)(void*);
  void* argument;
  uint64_t thread_id;
  Subscription kind;
  bool blocks;
  const std::vector<ir::Operand>* operands;     // owned; null where nobody has told them
  std::shared_ptr<Pending>* pending = nullptr;  // while a blocking callback is under way
};

bool Post(Subscription kind, uint64_t thread_id, std::shared_ptr<Pending> pending) {
  SubscriptionRegistry& registry = TheSubscriptions(kind);
  MutexLock lock(registry.mutex);
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
    pending->whole = p->blocks ? context.whole() : nullptr;
    pending->device = context.device_id;
    pending->stream = context.stream_id;
    pending->task = context.task_id;
    if (!Post(p->kind, p->thread_id, pending)) {
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

void DestroyCallback(void* payload) noexcept {
  delete static_cast<CallbackPayload*>(payload)->pending;
  delete static_cast<CallbackPayload*>(payload)->operands;
}

void DescribeCallback(const void* payload, ir::TaskInfo& info) {
  const auto* p = static_cast<const CallbackPayload*>(payload);
  if (p->operands != nullptr && !info.names_only) info.attached = *p->operands;
  if (p->pending == nullptr) return;
  const Pending& pending = **p->pending;
  info.waits_for =
      fmt::format("callback {} of subscribed thread {}, {}",
                  DescribeFunction(reinterpret_cast<const void*>(p->function)), p->thread_id,
                  pending.begun.load(std::memory_order_relaxed)
                      ? "which runs it"
                      : fmt::format("which has not come for it with {}",
                                    p->kind == Subscription::kReport ? "aclrtProcessReport" : "aclrtProcessHostFunc"));
}

void OperandsOfCallback(const void* payload, ir::OperandSink& sink) {
  TellAttached(static_cast<const CallbackPayload*>(payload)->operands, sink);
}

constexpr ir::TaskType kCallback = {.kind = ir::TaskKind::kCallback,
                                    .name = "HOSTFUNC_CALLBACK",
                                    .run = RunCallback,
                                    .destroy = DestroyCallback,
                                    .cancel = CancelCallback,
                                    .describe = DescribeCallback,
                                    .operands = OperandsOfCallback};

}  // namespace

Status Subscribe(Subscription kind, uint64_t thread_id, Stream& stream) {
  SubscriptionRegistry& registry = TheSubscriptions(kind);
  MutexLock lock(registry.mutex);
  if (const auto it = registry.thread_of.find(&stream); it != registry.thread_of.end()) {
    return Error(kStreamSubscribe, fmt::format("{} is subscribed already", stream.Describe()))
        .Culprit(fmt::format("an earlier {} for thread {}", registry.subscribe, it->second))
        .Hint(fmt::format("a stream has one thread: end that subscription with {} first", registry.unsubscribe));
  }
  // Closed before its subscriptions are dropped, which takes the lock.
  if (stream.is_closed())
    return Error(kInvalidHandle, "the stream was destroyed by another thread meanwhile")
        .Hint("destroy a stream only when no other thread uses it");
  auto it = registry.threads.find(thread_id);
  if (it == registry.threads.end()) {
    if (registry.threads.size() >= kMaxThreads) {
      return Error(kThreadSubscribe, fmt::format("{} threads are subscribed, which is the limit", kMaxThreads))
          .Hint(
              fmt::format("let one thread serve several streams, or end a subscription with {}", registry.unsubscribe));
    }
    it = registry.threads.emplace(thread_id, std::make_shared<ReportThread>()).first;
    it->second->device = stream.device().id();
    registry.thread_came.notify_all();
  } else if (it->second->device != stream.device().id()) {
    return Error(kThreadSubscribe, fmt::format("thread {} serves device {}, not device {}", thread_id,
                                               it->second->device, stream.device().id()))
        .Hint("subscribe one thread for each device");
  }
  registry.thread_of[&stream] = thread_id;
  ++it->second->streams;
  return {};
}

Status Unsubscribe(Subscription kind, uint64_t thread_id, Stream& stream) {
  SubscriptionRegistry& registry = TheSubscriptions(kind);
  UniqueLock lock(registry.mutex);
  const auto thread = registry.threads.find(thread_id);
  if (thread == registry.threads.end()) {
    return Error(kThreadSubscribe, fmt::format("thread {} is not subscribed", thread_id))
        .Hint(fmt::format("pass the id that was given to {}, once for each stream", registry.subscribe));
  }
  const auto it = registry.thread_of.find(&stream);
  if (it == registry.thread_of.end() || it->second != thread_id) {
    return Error(kStreamSubscribe, fmt::format("{} is not subscribed to thread {}", stream.Describe(), thread_id))
        .Hint(fmt::format("pass the stream and the id that were given to {}", registry.subscribe));
  }
  registry.thread_of.erase(it);
  const Queue left = RemoveStream(registry, thread);
  lock.unlock();
  Drop(left);
  return {};
}

void ForgetSubscriptions(const Stream& stream) noexcept {
  for (const Subscription kind : {Subscription::kReport, Subscription::kHostFunc}) {
    SubscriptionRegistry& registry = TheSubscriptions(kind);
    UniqueLock lock(registry.mutex);
    const auto it = registry.thread_of.find(&stream);
    if (it == registry.thread_of.end()) continue;
    const auto thread = registry.threads.find(it->second);
    registry.thread_of.erase(it);
    if (thread == registry.threads.end()) continue;
    const Queue left = RemoveStream(registry, thread);
    lock.unlock();
    Drop(left);
  }
}

Status ProcessCallbacks(Subscription kind, int64_t timeout_ms) {
  SubscriptionRegistry& registry = TheSubscriptions(kind);
  // Programs subscribe the pthread id as a rule, some the kernel's thread id.
  const auto self = static_cast<uint64_t>(pthread_self());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::max<int64_t>(0, timeout_ms));
  UniqueLock lock(registry.mutex);
  const NoCancel no_cancel;
  const WaitingCall waiting;
  std::shared_ptr<ReportThread> thread;
  const auto is_subscribed = [&] {
    auto it = registry.threads.find(self);
    if (it == registry.threads.end()) it = registry.threads.find(static_cast<uint64_t>(ThreadId()));
    if (it != registry.threads.end()) thread = it->second;
    return thread != nullptr;
  };
  // A thread often polls before the one that made it gets to subscribe it. Without a limit it could wait for ever.
  if (!is_subscribed() && (timeout_ms < 0 || !registry.thread_came.wait_until(lock, deadline, is_subscribed))) {
    return Error(kThreadSubscribe, fmt::format("this thread ({}) is not subscribed", self))
        .Hint(fmt::format("call {} with this thread's id first", registry.subscribe));
  }
  const auto arrived = [&] { return !thread->queue.empty() || thread->streams == 0; };
  if (timeout_ms < 0) {
    thread->arrived.wait(lock, arrived);
  } else {
    thread->arrived.wait_until(lock, deadline, arrived);
  }
  if (thread->queue.empty()) {
    if (thread->streams == 0)
      return Error(kReportTimeout, "the thread was unsubscribed while it waited for a callback")
          .Hint("leave the loop that waits for callbacks when the thread's last subscription ends");
    return Error(kReportTimeout, fmt::format("no callback arrived within {} ms", timeout_ms))
        .Hint("call again, with a longer timeout if callbacks are due");
  }
  Queue batch;
  batch.swap(thread->queue);
  lock.unlock();
  for (const auto& pending : batch) {
    pending->begun.store(true, std::memory_order_relaxed);
    {
      const device::Activity activity(
          reinterpret_cast<const void*>(pending->function), pending->whole, pending->device, pending->stream,
          pending->task,
          pending->whole != nullptr ? device::Activity::Kind::kCallback : device::Activity::Kind::kFreeCallback);
      pending->function(pending->argument);
    }
    pending->waiters.SetAndWake([&] { pending->done.store(true, std::memory_order_release); });
  }
  return {};
}

Status SubmitCallback(Stream& stream, void (*function)(void*), void* argument, bool blocks, AttachedOperands operands) {
  for (const Subscription kind : {Subscription::kReport, Subscription::kHostFunc}) {
    uint64_t thread_id = 0;
    {
      SubscriptionRegistry& registry = TheSubscriptions(kind);
      MutexLock lock(registry.mutex);
      const auto it = registry.thread_of.find(&stream);
      if (it == registry.thread_of.end()) continue;
      thread_id = it->second;
    }
    CallbackPayload payload{function, argument, thread_id, kind, blocks, operands.release()};
    return Submit(stream, ir::MakeTask(kCallback, payload));
  }
  return Error(kStreamNotSubscribed, fmt::format("no thread is subscribed to {}", stream.Describe()));
}

}  // namespace reprise::runtime
