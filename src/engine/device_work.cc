// SPDX-License-Identifier: Apache-2.0
#include "engine/device_work.h"

#include <fmt/format.h>

#include <map>

#include "base/calls.h"
#include "base/mutex.h"
#include "base/no_destroy.h"
#include "device/memory.h"
#include "engine/numbers.h"
#include "reprise/error.h"
#include "reprise/memory.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/stream.h"
#include "runtime/thread.h"

namespace reprise::engine {
namespace {

struct Held {
  Mutex mutex;
  std::map<int, runtime::Device*> devices REPRISE_GUARDED_BY(mutex);
};
NoDestroy<Held>& HeldDevices() {
  static NoDestroy<Held> held;
  return held;
}

Status NoMemory(uint64_t bytes, std::string_view who, std::string hint) {
  return Fail(kOutOfMemory, kInner, fmt::format("{} has no {} bytes", who, bytes)).Hint(std::move(hint));
}

}  // namespace

StatusOr<Memory> TakeMemory(const AllocatorPtr& allocator, uint64_t bytes, void* stream) {
  if (allocator != nullptr) {
    const ExternalAllocator::Block block = allocator->Malloc(bytes);
    if (block.handle == nullptr || block.address == nullptr) {
      if (block.handle != nullptr) allocator->Free(block.handle);
      return NoMemory(bytes, "the registered allocator of the stream", "let its Malloc return a block");
    }
    return Memory{block.address,
                  std::shared_ptr<void>(block.handle, [allocator](void* handle) { allocator->Free(handle); })};
  }
  try {
    void* const address = device_memory::Allocate(bytes, stream);
    return Memory{address, std::shared_ptr<void>(address, [](void* block) {
                    try {
                      device_memory::Free(block);
                    } catch (const Exception&) {  // gone with its device
                    }
                  })};
  } catch (const Exception& error) {
    return NoMemory(bytes, "the device", error.what());
  }
}

Status UseDevice(int device) {
  if (runtime::LiveContext() != nullptr) return {};
  REPRISE_ASSIGN_OR_RETURN(runtime::Device * found, runtime::FindDevice(device));
  Held& held = HeldDevices().value;
  MutexLock lock(held.mutex);
  runtime::Context* context = nullptr;
  if (held.devices.contains(device) && found->primary_active()) {
    REPRISE_ASSIGN_OR_RETURN(context, found->Open());
  } else {
    REPRISE_ASSIGN_OR_RETURN(context, found->Retain());
    held.devices[device] = found;
  }
  runtime::SetCurrentContext(context);
  return {};
}

void ReleaseDevices() {
  std::map<int, runtime::Device*> devices;
  {
    Held& held = HeldDevices().value;
    MutexLock lock(held.mutex);
    devices.swap(held.devices);
  }
  for (const auto& [id, device] : devices) {
    if (device->primary_active()) [[maybe_unused]]
      const Status released = device->Release();
  }
}

StatusOr<runtime::Stream*> FindStream(void* handle) {
  if (handle == nullptr) {
    REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
    return context->default_stream();
  }
  return runtime::FindObject(runtime::Streams(), handle, "stream");
}

bool KnownPlace::IsDeviceMemory(const void* address) {
  const device::MemoryRegistry& registry = device::MemoryRegistry::Get();
  const uint64_t changes = registry.changes();
  if (address == address_ && changes == changes_) [[likely]]
    return is_device_;
  const auto range = registry.Find(address);
  address_ = address;
  changes_ = changes;
  is_device_ = range && !range->is_host();
  return is_device_;
}

void WaitForStream(void* handle) {
  const CallGuard guard;
  runtime::Stream* const stream = guard.admitted() ? runtime::Streams().Find(handle) : nullptr;
  if (stream == nullptr || stream->is_capturing() || !stream->CheckNotInside().ok()) return;
  // What failed there is told by whoever waits for the stream in the program.
  Status status = stream->Synchronize(std::nullopt);
  if (!status.ok()) stream->ReportError(std::move(status), 0);
}

OwnStream::~OwnStream() {
  const CallGuard guard;
  runtime::Stream* const stream = handle_ != nullptr && guard.admitted() ? runtime::Streams().Find(handle_) : nullptr;
  if (stream != nullptr) runtime::Stream::Destroy(stream, runtime::Stream::DestroyMode::kWait);
}

StatusOr<runtime::Stream*> OwnStream::Get() {
  if (runtime::Stream* const stream = handle_ != nullptr ? runtime::Streams().Find(handle_) : nullptr) return stream;
  REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * stream, runtime::Stream::Create(*context, {}));
  handle_ = stream->handle();
  return stream;
}

}  // namespace reprise::engine
