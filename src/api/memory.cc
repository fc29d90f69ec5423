// SPDX-License-Identifier: Apache-2.0
#include "reprise/memory.h"

#include <atomic>
#include <thread>

#include "api/runtime_driver.h"
#include "api/streams.h"
#include "api/throw.h"
#include "base/mutex.h"
#include "memory/snapshot.h"
#include "reprise/stream.h"
#include "runtime/device.h"

namespace reprise {
namespace {

using memory::DeviceAllocator;
using memory::HostAllocator;

// Runs `body` with the allocator, which may not be there because its settings are wrong.
template <class Body>
void WithDevice(const char* function, Body body) {
  api::Call(function, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(DeviceAllocator * allocator, api::DeviceMemory());
    return body(*allocator);
  });
}

template <class Body>
void WithHost(const char* function, Body body) {
  api::Call(function, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(HostAllocator * allocator, api::HostMemory());
    return body(*allocator);
  });
}

// The allocator and a device that exists.
template <class Result, class Body>
Result ForDevice(const char* function, int device, Body body) {
  Result result{};
  WithDevice(function, [&](DeviceAllocator& allocator) -> Status {
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const runtime::Device* found, runtime::FindDevice(device));
    result = body(allocator);
    return {};
  });
  return result;
}

}  // namespace

PoolId NewPoolId() {
  static std::atomic<uint64_t> next{1};
  return {0, next.fetch_add(1)};
}

void ChangeMemorySettings(const std::string& settings) {
  // Changes come one after another, each on top of the one before.
  static auto* const mutex = new Mutex;
  api::Call("reprise::ChangeMemorySettings", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(DeviceAllocator * device, api::DeviceMemory());
    REPRISE_ASSIGN_OR_RETURN(HostAllocator * host, api::HostMemory());
    MutexLock lock(*mutex);
    REPRISE_ASSIGN_OR_RETURN(const memory::Config::Change change, device->GetConfig().ChangedBy(settings));
    REPRISE_RETURN_IF_ERROR(device->SetConfig(change.config));
    if (change.names_fraction) {
      for (const auto& each : runtime::Devices()) {
        REPRISE_RETURN_IF_ERROR(device->SetMemoryFraction(each->id(), change.config.per_process_memory_fraction));
      }
    }
    host->SetConfig(change.config);
    return {};
  });
}

std::vector<std::pair<std::string, std::string>> MemorySettings() {
  return api::Value("reprise::MemorySettings", []() -> StatusOr<std::vector<std::pair<std::string, std::string>>> {
    REPRISE_ASSIGN_OR_RETURN(const DeviceAllocator* allocator, api::DeviceMemory());
    return allocator->GetConfig().AllSettings();
  });
}

namespace device_memory {

void* Allocate(size_t bytes, void* stream) {
  return api::Value("reprise::device_memory::Allocate", [&]() -> StatusOr<void*> {
    REPRISE_ASSIGN_OR_RETURN(DeviceAllocator * allocator, api::DeviceMemory());
    REPRISE_ASSIGN_OR_RETURN(const runtime::Stream* on, api::FindAnyStreamOrCurrent(stream));
    return allocator->Allocate(on->device().id(), bytes, on->handle());
  });
}

void Free(void* block, const TraceContextPtr& context) {
  if (block == nullptr) return;
  WithDevice("reprise::device_memory::Free",
             [&](DeviceAllocator& allocator) { return allocator.Free(block, context); });
}

void RecordStream(void* block, void* stream) {
  WithDevice("reprise::device_memory::RecordStream", [&](DeviceAllocator& allocator) -> Status {
    REPRISE_ASSIGN_OR_RETURN(const runtime::Stream* on, api::FindAnyStreamOrCurrent(stream));
    return allocator.RecordStream(block, on->handle());
  });
}

void EraseStream(void* block, void* stream) {
  WithDevice("reprise::device_memory::EraseStream", [&](DeviceAllocator& allocator) -> Status {
    REPRISE_ASSIGN_OR_RETURN(const runtime::Stream* on, api::FindAnyStreamOrCurrent(stream));
    return allocator.EraseStream(block, on->handle());
  });
}

size_t SizeOf(const void* block) noexcept {
  const DeviceAllocator* allocator = api::DeviceMemoryOrNull();
  return allocator != nullptr ? allocator->SizeOf(block) : 0;
}

void EmptyCache(PoolId pool) {
  WithDevice("reprise::device_memory::EmptyCache",
             [&](DeviceAllocator& allocator) { return allocator.EmptyCache(pool); });
}

DeviceStats Stats(int device) {
  return ForDevice<DeviceStats>("reprise::device_memory::Stats", device,
                                [&](DeviceAllocator& allocator) { return allocator.Stats(device); });
}

void ResetPeakStats(int device) {
  ForDevice<int>("reprise::device_memory::ResetPeakStats", device, [&](DeviceAllocator& allocator) {
    allocator.ResetPeakStats(device);
    return 0;
  });
}

void ResetAccumulatedStats(int device) {
  ForDevice<int>("reprise::device_memory::ResetAccumulatedStats", device, [&](DeviceAllocator& allocator) {
    allocator.ResetAccumulatedStats(device);
    return 0;
  });
}

void SetFraction(int device, double fraction) {
  WithDevice("reprise::device_memory::SetFraction", [&](DeviceAllocator& allocator) -> Status {
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const runtime::Device* found, runtime::FindDevice(device));
    return allocator.SetMemoryFraction(device, fraction);
  });
}

double Fraction(int device) {
  return ForDevice<double>("reprise::device_memory::Fraction", device,
                           [&](DeviceAllocator& allocator) { return allocator.MemoryFraction(device); });
}

MemorySnapshot Snapshot(PoolId pool) {
  return api::Value("reprise::device_memory::Snapshot", [&]() -> StatusOr<MemorySnapshot> {
    REPRISE_ASSIGN_OR_RETURN(DeviceAllocator * allocator, api::DeviceMemory());
    return allocator->Snapshot(pool);
  });
}

void RecordHistory(uint64_t entries, ContextRecorder recorder, uint32_t skipped) {
  WithDevice("reprise::device_memory::RecordHistory", [&](DeviceAllocator& allocator) -> Status {
    allocator.RecordHistory(recorder, entries, skipped);
    return {};
  });
}

void DumpSnapshot(const std::string& path) {
  WithDevice("reprise::device_memory::DumpSnapshot",
             [&](DeviceAllocator& allocator) { return memory::WriteSnapshot(allocator.Snapshot(), path); });
}

void AddOomObserver(OomObserver observer) {
  WithDevice("reprise::device_memory::AddOomObserver", [&](DeviceAllocator& allocator) -> Status {
    allocator.AddOomObserver(std::move(observer));
    return {};
  });
}

void AddFreeMemoryCallback(std::function<bool()> callback) {
  WithDevice("reprise::device_memory::AddFreeMemoryCallback", [&](DeviceAllocator& allocator) -> Status {
    allocator.AddFreeMemoryCallback(std::move(callback));
    return {};
  });
}

void SetWaitScope(void* (*leave)(), void (*enter)(void* left)) {
  api::Call("reprise::device_memory::SetWaitScope", [&]() -> Status {
    if ((leave == nullptr) != (enter == nullptr)) {
      return Error(kInvalidValue, "one of the two functions around waits for the device is missing")
          .Culprit(leave == nullptr ? "parameter leave" : "parameter enter")
          .Hint("pass both functions, or null for both");
    }
    api::SetWaitScope({leave, enter});
    return {};
  });
}

void BeginPool(int device, PoolId pool, StreamFilter filter) {
  WithDevice("reprise::device_memory::BeginPool", [&](DeviceAllocator& allocator) {
    return allocator.BeginAllocateToPool(device, pool, std::move(filter));
  });
}

void EndPool(int device, PoolId pool) {
  WithDevice("reprise::device_memory::EndPool",
             [&](DeviceAllocator& allocator) { return allocator.EndAllocateToPool(device, pool); });
}

void ReleasePool(int device, PoolId pool) {
  WithDevice("reprise::device_memory::ReleasePool",
             [&](DeviceAllocator& allocator) { return allocator.ReleasePool(device, pool); });
}

int PoolUsers(int device, PoolId pool) {
  return ForDevice<int>("reprise::device_memory::PoolUsers", device,
                        [&](DeviceAllocator& allocator) { return allocator.PoolUsers(device, pool); });
}

std::vector<void*> LiveBlocks(int device, PoolId pool) {
  return ForDevice<std::vector<void*>>("reprise::device_memory::LiveBlocks", device,
                                       [&](DeviceAllocator& allocator) { return allocator.LiveBlocks(device, pool); });
}

PoolState GetPoolState(int device, PoolId pool) {
  return api::Value("reprise::device_memory::GetPoolState", [&]() -> StatusOr<PoolState> {
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const runtime::Device* found, runtime::FindDevice(device));
    REPRISE_ASSIGN_OR_RETURN(DeviceAllocator * allocator, api::DeviceMemory());
    return allocator->GetPoolState(device, pool);
  });
}

PoolChange SetPoolState(const PoolState& state, const std::vector<uint64_t>& released) {
  return api::Value("reprise::device_memory::SetPoolState", [&]() -> StatusOr<PoolChange> {
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const runtime::Device* found, runtime::FindDevice(state.device));
    REPRISE_ASSIGN_OR_RETURN(DeviceAllocator * allocator, api::DeviceMemory());
    return allocator->SetPoolState(state, released);
  });
}

}  // namespace device_memory

namespace host_memory {

void* Allocate(size_t bytes) {
  return api::Value("reprise::host_memory::Allocate", [&]() -> StatusOr<void*> {
    REPRISE_ASSIGN_OR_RETURN(HostAllocator * allocator, api::HostMemory());
    return allocator->Allocate(bytes);
  });
}

void Free(void* block) {
  if (block == nullptr) return;
  WithHost("reprise::host_memory::Free", [&](HostAllocator& allocator) { return allocator.Free(block); });
}

bool RecordUse(const void* address, void* stream) {
  return api::Value("reprise::host_memory::RecordUse", [&]() -> StatusOr<bool> {
    REPRISE_ASSIGN_OR_RETURN(HostAllocator * allocator, api::HostMemory());
    REPRISE_ASSIGN_OR_RETURN(const runtime::Stream* on, api::FindAnyStreamOrCurrent(stream));
    return allocator->RecordUse(address, on->handle());
  });
}

bool Owns(const void* address) noexcept {
  const HostAllocator* allocator = api::HostMemoryOrNull();
  return allocator != nullptr && allocator->Owns(address);
}

void EmptyCache() {
  WithHost("reprise::host_memory::EmptyCache", [](HostAllocator& allocator) { return allocator.EmptyCache(); });
}

HostStats Stats() {
  return api::Value("reprise::host_memory::Stats", []() -> StatusOr<HostStats> {
    REPRISE_ASSIGN_OR_RETURN(HostAllocator * allocator, api::HostMemory());
    return allocator->Stats();
  });
}

void ResetPeakStats() {
  WithHost("reprise::host_memory::ResetPeakStats", [](HostAllocator& allocator) -> Status {
    allocator.ResetPeakStats();
    return {};
  });
}

void ResetAccumulatedStats() {
  WithHost("reprise::host_memory::ResetAccumulatedStats", [](HostAllocator& allocator) -> Status {
    allocator.ResetAccumulatedStats();
    return {};
  });
}

}  // namespace host_memory

// ---- Pools ----

MemPool::MemPool(int device) : MemPool(device, Options()) {}

MemPool::MemPool(int device, Options options) : id_(NewPoolId()), device_(device < 0 ? CurrentDevice() : device) {
  WithDevice("reprise::MemPool", [&](DeviceAllocator& allocator) -> Status {
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const runtime::Device* found, runtime::FindDevice(device_));
    DeviceAllocator::PoolOptions custom{std::move(options.allocate), std::move(options.free)};
    REPRISE_RETURN_IF_ERROR(allocator.CreateOrUsePool(device_, id_, std::move(custom)));
    Status status;
    if (options.no_split) status = allocator.SetNoSplit(device_, id_);
    if (status.ok() && options.use_on_oom) status = allocator.SetUseOnOom(device_, id_, true);
    if (!status.ok()) [[maybe_unused]]
      const Status released = allocator.ReleasePool(device_, id_);
    return status;
  });
}

MemPool::~MemPool() {
  DeviceAllocator& allocator = *api::DeviceMemoryOrNull();  // the constructor made it
  // Nobody would hear of an error, and what can fail is only that blocks stay cached.
  [[maybe_unused]] Status ignored = allocator.SetUseOnOom(device_, id_, false);
  ignored = allocator.ReleasePool(device_, id_);
  ignored = allocator.EmptyCache(id_);
}

int MemPool::use_count() const { return device_memory::PoolUsers(device_, id_); }
MemorySnapshot MemPool::Snapshot() const { return device_memory::Snapshot(id_); }

UsePool::UsePool(const MemPool& pool) : id_(pool.id()), device_(pool.device()) {
  device_memory::BeginPool(
      device_, id_, [thread = std::this_thread::get_id()](void*) { return std::this_thread::get_id() == thread; });
}

UsePool::~UsePool() {
  DeviceAllocator& allocator = *api::DeviceMemoryOrNull();
  [[maybe_unused]] Status ignored = allocator.EndAllocateToPool(device_, id_);
  ignored = allocator.ReleasePool(device_, id_);
}

}  // namespace reprise
