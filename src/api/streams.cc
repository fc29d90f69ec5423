// SPDX-License-Identifier: Apache-2.0
#include "api/streams.h"

#include <array>
#include <utility>

#include "api/throw.h"
#include "device/memory.h"
#include "reprise/stream.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/thread.h"

namespace reprise {
namespace {

using device::kMaxDevices;

// What was set, by device; null: the default stream.
thread_local std::array<void*, kMaxDevices> t_current{};

// A thread that never had a context (a loader of data, a worker of a framework) takes the one of the first stream that
// it names, so that it can submit to it. One whose context was destroyed is told so instead.
void AdoptContext(runtime::Context& context) {
  if (runtime::CurrentContextHandle() == nullptr) runtime::SetCurrentContext(&context);
}

StatusOr<int> DeviceOf(void* stream) {
  if (stream == nullptr) return CurrentDevice();
  REPRISE_ASSIGN_OR_RETURN(const runtime::Stream* found, runtime::FindAnyStream(stream));
  AdoptContext(found->context());
  return found->device().id();
}

StatusOr<void*> CurrentStreamOf(int device) {
  if (device < 0) device = CurrentDevice();
  REPRISE_ASSIGN_OR_RETURN(runtime::Device * found, runtime::FindDevice(device));
  if (void* stream = api::CurrentStreamOrNull(device)) return stream;
  if (runtime::CurrentContextHandle() != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(const runtime::Context* current, runtime::CurrentContext());
    (void)current;
  }
  REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, found->Open());
  AdoptContext(*context);
  return context->default_stream()->handle();
}

}  // namespace

namespace api {

void* CurrentStreamOrNull(int device) noexcept {
  if (device < 0 || device >= kMaxDevices) return nullptr;
  if (void* set = t_current[static_cast<size_t>(device)]) return set;
  const runtime::Context* context = runtime::LiveContext();
  if (context == nullptr || context->device().id() != device) return nullptr;
  return context->default_stream()->handle();
}

void* ExchangeCurrentStream(int device, void* stream) noexcept {
  return std::exchange(t_current[static_cast<size_t>(device)], stream);
}

StatusOr<runtime::Stream*> FindStreamOrCurrent(void* handle) {
  if (handle == nullptr && (handle = CurrentStreamOrNull(CurrentDevice())) == nullptr) {
    REPRISE_ASSIGN_OR_RETURN(handle, CurrentStreamOf(-1));
  }
  return runtime::FindStream(handle);
}

StatusOr<runtime::Stream*> FindAnyStreamOrCurrent(void* handle) {
  if (handle == nullptr && (handle = CurrentStreamOrNull(CurrentDevice())) == nullptr) {
    REPRISE_ASSIGN_OR_RETURN(handle, CurrentStreamOf(-1));
  }
  return runtime::FindAnyStream(handle);
}

}  // namespace api

int CurrentDevice() noexcept {
  const runtime::Context* context = runtime::LiveContext();
  return context != nullptr ? context->device().id() : std::max(0, runtime::DefaultDevice());
}

void* CurrentStream(int device) {
  return api::Value("reprise::CurrentStream", [&] { return CurrentStreamOf(device); });
}

void SetCurrentStream(void* stream) {
  api::Call("reprise::SetCurrentStream", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const int device, DeviceOf(stream));
    api::ExchangeCurrentStream(device, stream);
    return {};
  });
}

bool AnyStreamIsCapturing() noexcept { return runtime::AnyStreamIsCapturing(); }

std::optional<Exception> PendingError(void* stream) {
  Status pending;
  api::Call("reprise::PendingError", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const runtime::Stream* found, runtime::FindAnyStream(stream));
    pending = found->PendingError();
    return {};
  });
  if (pending.ok()) return std::nullopt;
  return api::ToException("aclrtSynchronizeStream", pending);
}

StreamGuard::StreamGuard(void* stream) {
  device_ = api::Value("reprise::StreamGuard", [&] { return DeviceOf(stream); });
  previous_ = api::ExchangeCurrentStream(device_, stream);
}

StreamGuard::~StreamGuard() { api::ExchangeCurrentStream(device_, previous_); }

}  // namespace reprise
