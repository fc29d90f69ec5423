// SPDX-License-Identifier: Apache-2.0
#include "runtime/context.h"

#include <fmt/format.h>

#include <atomic>
#include <vector>

#include "base/fault.h"
#include "runtime/device.h"
#include "runtime/stream.h"
#include "runtime/thread.h"

namespace reprise::runtime {

constinit NoDestroy<HandleTable<Context, HandleKind::kContext>> internal::g_contexts;

StatusOr<Context*> Context::Create(Device& device, bool is_primary) {
  if (FaultPoint("context")) return Error(207005, "no further context can be made (injected fault)");
  std::lock_guard lock(device.contexts_mutex);
  auto* context = new Context(device, is_primary);
  context->handle_ = Contexts().Insert(context);
  if (context->handle_ == nullptr) {
    delete context;
    return Error(207005, "the process has too many contexts");
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

void Context::Destroy(Context* context) {
  // Residents (models) go first: their pending executions run on the streams.
  for (;;) {
    ContextResident* resident = nullptr;
    {
      std::lock_guard lock(context->residents_mutex_);
      if (context->residents_.empty()) break;
      resident = *context->residents_.begin();
      context->residents_.erase(context->residents_.begin());
    }
    resident->ReleaseFromContext();
  }
  std::vector<Stream*> streams;
  context->ForEachStream([&](Stream& stream) { streams.push_back(&stream); });
  // They work side by side, so one deadline gives each of them its time.
  const Deadline patience = DeadlineAfterMs(10'000);
  for (Stream* stream : streams) Stream::Destroy(stream, Stream::DestroyMode::kTeardown, patience);
  Contexts().Erase(context->handle_);
  delete context;
}

size_t Context::CountOn(const Device& device) {
  size_t count = 0;
  Contexts().ForEach([&](Context* context) { count += &context->device_ == &device ? 1 : 0; });
  return count;
}

Status Context::Synchronize(int64_t timeout_ms) {
  const Deadline deadline = DeadlineAfterMs(timeout_ms);
  std::vector<Stream*> streams;
  ForEachStream([&](Stream& stream) { streams.push_back(&stream); });
  Status first;
  for (Stream* stream : streams) {
    {
      // Other threads may destroy streams of theirs meanwhile; one that is visited waits with that.
      std::lock_guard lock(streams_mutex_);
      if (!streams_.contains(stream)) continue;
      stream->visitors.fetch_add(1, std::memory_order_relaxed);
    }
    Status status = stream->Synchronize(deadline);
    stream->visitors.fetch_sub(1, std::memory_order_release);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

void Context::AddStream(Stream* stream) {
  std::lock_guard lock(streams_mutex_);
  streams_.insert(stream);
}

void Context::RemoveStream(Stream* stream) {
  std::lock_guard lock(streams_mutex_);
  streams_.erase(stream);
}

void Context::AddResident(ContextResident* resident) {
  std::lock_guard lock(residents_mutex_);
  residents_.insert(resident);
}

void Context::RemoveResident(ContextResident* resident) {
  std::lock_guard lock(residents_mutex_);
  residents_.erase(resident);
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
  if (handle == nullptr) return Error(107002, "this thread has no current context");
  return Error(107002, "the context that was current on this thread was destroyed")
      .Culprit("aclrtResetDevice or aclrtDestroyContext, on this or another thread");
}

void SetCurrentContext(Context* context) { ThisThread().context = context != nullptr ? context->handle() : nullptr; }

}  // namespace reprise::runtime
