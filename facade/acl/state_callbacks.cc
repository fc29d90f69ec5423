// SPDX-License-Identifier: Apache-2.0
#include "state_callbacks.h"

#include <set>

namespace reprise::facade {
namespace {

/// Contexts whose end will be announced.
struct WatchedContexts {
  std::mutex mutex;
  std::set<void*> handles;
};

WatchedContexts& Watched() {
  static auto* const watched = new WatchedContexts;
  return *watched;
}

// Told by the context, before its streams go, that it is being destroyed.
class ContextWatch final : public runtime::ContextResident {
 public:
  explicit ContextWatch(runtime::Context& context) : context_(context) {}

  void ReleaseFromContext() override {
    std::vector<runtime::Stream*> streams;
    context_.ForEachStream([&](runtime::Stream& stream) { streams.push_back(&stream); });
    for (const runtime::Stream* stream : streams) AnnounceStream(*stream, ACL_RT_STREAM_STATE_DESTROY_PRE);
    {
      WatchedContexts& watched = Watched();
      std::lock_guard lock(watched.mutex);
      watched.handles.erase(context_.handle());
    }
    delete this;
  }

 private:
  runtime::Context& context_;
};

}  // namespace

NamedCallbacks<aclrtDeviceStateCallback>& DeviceStateCallbacks() {
  static auto* const callbacks = new NamedCallbacks<aclrtDeviceStateCallback>;
  return *callbacks;
}

NamedCallbacks<aclrtStreamStateCallback>& StreamStateCallbacks() {
  static auto* const callbacks = new NamedCallbacks<aclrtStreamStateCallback>;
  return *callbacks;
}

NamedCallbacks<aclrtDeviceTaskAbortCallback>& TaskAbortCallbacks() {
  static auto* const callbacks = new NamedCallbacks<aclrtDeviceTaskAbortCallback>;
  return *callbacks;
}

void AnnounceDevice(int32_t device_id, aclrtDeviceState state) {
  const WaitingCall waiting;
  for (const auto& [function, args] : DeviceStateCallbacks().All()) function(device_id, state, args);
}

void AnnounceStream(const runtime::Stream& stream, aclrtStreamState state) {
  const WaitingCall waiting;
  for (const auto& [function, args] : StreamStateCallbacks().All()) function(stream.handle(), state, args);
}

void AnnounceContext(runtime::Context& context) {
  {
    WatchedContexts& watched = Watched();
    std::lock_guard lock(watched.mutex);
    if (!watched.handles.insert(context.handle()).second) return;
  }
  auto watch = std::make_unique<ContextWatch>(context);
  if (!context.AddResident(watch.get())) return;
  (void)watch.release();  // the context's
  AnnounceStream(*context.default_stream(), ACL_RT_STREAM_STATE_CREATE_POST);
}

}  // namespace reprise::facade
