// SPDX-License-Identifier: Apache-2.0
#include "api/streams.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "api/throw.h"
#include "reprise/stream.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/thread.h"

namespace reprise {
namespace {

constexpr int kMaxDevices = 64;

// What was set, by device; null: the default stream.
thread_local std::array<void*, kMaxDevices> t_current{};

StatusOr<int> DeviceOf(void* stream) {
  if (stream == nullptr) return CurrentDevice();
  REPRISE_ASSIGN_OR_RETURN(const runtime::Stream* found, runtime::FindAnyStream(stream));
  return found->device().id();
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
  if (handle == nullptr) handle = CurrentStreamOrNull(CurrentDevice());
  return runtime::FindStream(handle);
}

StatusOr<runtime::Stream*> FindAnyStreamOrCurrent(void* handle) {
  if (handle == nullptr) handle = CurrentStreamOrNull(CurrentDevice());
  return runtime::FindAnyStream(handle);
}

}  // namespace api

int CurrentDevice() noexcept {
  const runtime::Context* context = runtime::LiveContext();
  return context != nullptr ? context->device().id() : 0;
}

void* CurrentStream(int device) {
  return api::Value("reprise::CurrentStream", [&]() -> StatusOr<void*> {
    if (device < 0) device = CurrentDevice();
    REPRISE_ASSIGN_OR_RETURN(const runtime::Device* found, runtime::FindDevice(device));
    if (void* stream = api::CurrentStreamOrNull(found->id())) return stream;
    return Error(107002, fmt::format("no context of device {} is current in this thread", device))
        .Hint(fmt::format("call aclrtSetDevice({}) in this thread first", device));
  });
}

void SetCurrentStream(void* stream) {
  api::Call("reprise::SetCurrentStream", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const int device, DeviceOf(stream));
    api::ExchangeCurrentStream(device, stream);
    return {};
  });
}

StreamGuard::StreamGuard(void* stream) {
  device_ = api::Value("reprise::StreamGuard", [&] { return DeviceOf(stream); });
  previous_ = api::ExchangeCurrentStream(device_, stream);
}

StreamGuard::~StreamGuard() { api::ExchangeCurrentStream(device_, previous_); }

}  // namespace reprise
