// SPDX-License-Identifier: Apache-2.0
#include "runtime/context.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/fault.h"
#include "base/mutex.h"
#include "device/inquiry.h"
#include "runtime/device.h"
#include "runtime/stream.h"
#include "runtime/thread.h"

namespace reprise::runtime {

constinit NoDestroy<HandleTable<Context, HandleKind::kContext>> internal::g_contexts;

StatusOr<Context*> Context::Create(Device& device, bool is_primary) {
  RefuseInForks();
  if (FaultPoint("context"))
    return Error(kResourceExhausted, "no further context can be made (injected fault)")
        .Hint("destroy contexts that are no longer needed");
  MutexLock lock(device.contexts_mutex);
  auto* context = new Context(device, is_primary);
  context->handle_ = Contexts().Insert(context);
  if (context->handle_ == nullptr) {
    delete context;
    return Error(kResourceExhausted, "the process has too many contexts")
        .Hint("destroy contexts that are no longer needed");
  }
  auto stream = Stream::Create(*context, {});
  if (!stream.ok()) {
    Contexts().Erase(context->handle_);
    delete context;
    return std::move(stream).status();
  }
  context->default_stream_ = *stream;
  return context;
}

bool Context::Destroy(Context* context) {
  if (context->is_leaving_.exchange(true)) return false;
  // While its work comes to an end, host functions and callbacks may still use it.
  context->DestroyContents();
  Contexts().Hide(context->handle_);
  (void)AwaitCalls();  // who is still inside finds it closed
  {
    MutexLock lock(context->streams_mutex_);
    context->is_closed_ = true;
  }
  {
    MutexLock lock(context->residents_mutex_);
    context->takes_residents_ = false;
  }
  context->DestroyContents();  // what came meanwhile
  uint64_t birth = 0;
  Contexts().EraseHidden(context->handle_, &birth);
  Retire(
      context, [](void* retired) { delete static_cast<Context*>(retired); }, birth, true);
  return true;
}

void Context::DestroyContents() {
  // Residents (models) go first: their pending executions run on the streams.
  for (;;) {
    ContextResident* resident = nullptr;
    {
      MutexLock lock(residents_mutex_);
      if (residents_.empty()) break;
      resident = *residents_.begin();
      residents_.erase(residents_.begin());
      ++leaving_residents_;
    }
    resident->ReleaseFromContext();
    ResidentIsGone();
  }
  // They work side by side, so one deadline gives each of them its time.
  const Deadline patience = DeadlineAfterMs(10'000);
  for (;;) {
    std::vector<Stream*> streams;
    ForEachStream([&](Stream& stream) { streams.push_back(&stream); });
    for (Stream* stream : streams) {
      {
        // What another thread is destroying stays in the list, or is counted, until it is gone.
        MutexLock lock(streams_mutex_);
        if (!streams_.contains(stream) || !Streams().Hide(stream->handle())) continue;
      }
      (void)AwaitCalls();
      Stream::DestroyHidden(stream, Stream::DestroyMode::kTeardown, patience);
    }
    {
      MutexLock lock(streams_mutex_);
      MutexLock residents_lock(residents_mutex_);
      if (streams_.empty() && hidden_streams_ == 0 && leaving_residents_ == 0) return;
    }
    const NoCancel no_cancel;
    const WaitingCall waiting;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

size_t Context::CountOn(const Device& device) {
  size_t count = 0;
  Contexts().ForEach([&](Context* context) { count += &context->device_ == &device ? 1 : 0; });
  return count;
}

Status Context::CheckNotInside(const char* what) const {
  const device::Runnable* const mine = device::Activity::Mine();
  if (mine == nullptr) [[likely]]
    return {};
  Status inside;
  Streams().ForEach([&](Stream* stream) {
    if (stream == mine && &stream->context() == this) inside = stream->CheckNotInside(what);
  });
  return inside;
}

Status Context::Synchronize(int64_t timeout_ms) {
  const Deadline deadline = DeadlineAfterMs(timeout_ms);
  // At once: other streams may depend on the one that a host function holds up.
  if (!deadline) REPRISE_RETURN_IF_ERROR(CheckNotInside("waits for that stream"));
  std::vector<Stream*> streams;
  ForEachStream([&](Stream& stream) { streams.push_back(&stream); });
  Status first;
  for (Stream* stream : streams) {
    {
      // Other threads may destroy streams of theirs meanwhile; one that is visited waits with that.
      MutexLock lock(streams_mutex_);
      if (!streams_.contains(stream)) continue;
      stream->visitors.fetch_add(1, std::memory_order_relaxed);
    }
    Status status = stream->Synchronize(deadline);
    stream->visitors.fetch_sub(1, std::memory_order_release);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

bool Context::AddStream(Stream* stream) {
  MutexLock lock(streams_mutex_);
  if (is_closed_) return false;
  streams_.insert(stream);
  return true;
}

void Context::HideStream(Stream* stream) {
  MutexLock lock(streams_mutex_);
  streams_.erase(stream);
  ++hidden_streams_;
}

void Context::RemoveStream(Stream* stream) {
  MutexLock lock(streams_mutex_);
  if (streams_.erase(stream) == 0) --hidden_streams_;
}

bool Context::AddResident(ContextResident* resident) {
  MutexLock lock(residents_mutex_);
  if (!takes_residents_) return false;
  residents_.insert(resident);
  return true;
}

bool Context::TakeResident(ContextResident* resident) {
  MutexLock lock(residents_mutex_);
  if (residents_.erase(resident) == 0) return false;
  ++leaving_residents_;
  return true;
}

void Context::ResidentIsGone() {
  MutexLock lock(residents_mutex_);
  --leaving_residents_;
}

void* CurrentContextHandle() { return ThisThread().context; }

namespace {
std::atomic<int> g_default_device{-1};
}  // namespace

void SetDefaultDevice(int device) { g_default_device.store(device, std::memory_order_relaxed); }
int DefaultDevice() { return g_default_device.load(std::memory_order_relaxed); }

StatusOr<Context*> CurrentContext() {
  void* handle = ThisThread().context;
  if (Context* context = Contexts().Find(handle)) return context;
  if (const int id = DefaultDevice(); handle == nullptr && id >= 0) {
    REPRISE_ASSIGN_OR_RETURN(Device * device, FindDevice(id));
    REPRISE_ASSIGN_OR_RETURN(Context * context, device->Open());
    SetCurrentContext(context);
    return context;
  }
  if (handle == nullptr) {
    if (device::Activity::Mine() == nullptr) return Error(kNoContext, "this thread has no current context");
    return Error(kNoContext, "a host function has no current context")
        .Culprit(fmt::format("thread {} of the device, which runs the host function", ThreadId()))
        .Hint("make this call on a thread of the program: a host function holds its stream up, and must not wait");
  }
  return Error(kNoContext, "the context that was current on this thread was destroyed")
      .Culprit("aclrtResetDevice or aclrtDestroyContext, on this or another thread");
}

void SetCurrentContext(Context* context) { ThisThread().context = context != nullptr ? context->handle() : nullptr; }

}  // namespace reprise::runtime
