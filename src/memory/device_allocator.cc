// SPDX-License-Identifier: Apache-2.0
#include "memory/device_allocator.h"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "memory/device_cache.h"

namespace reprise::memory {

struct DeviceAllocator::State : CacheHost {
  State(Driver& the_driver, Config the_config) : CacheHost(the_driver), config(std::move(the_config)) {
    const int count = driver.DeviceCount();
    for (int device = 0; device < count; ++device) {
      caches.push_back(std::make_unique<DeviceCache>(*this, device, config));
    }
  }

  bool RunFreeMemoryCallbacks() override {
    std::vector<std::function<bool()>> called;
    {
      MutexLock lock(mutex);
      called = callbacks;
    }
    bool freed = false;
    for (const auto& callback : called) freed |= callback();
    return freed;
  }
  void NotifyOutOfMemory(int device, uint64_t bytes, DeviceSize size) override {
    std::vector<OomObserver> called;
    {
      MutexLock lock(mutex);
      called = observers;
    }
    for (const auto& observer : called) observer(device, bytes, size.total_bytes, size.free_bytes);
  }
  std::string NameOf(PoolId pool) const override {
    MutexLock lock(mutex);
    auto it = names.find(pool);
    return it != names.end() ? it->second : fmt::format("pool ({}, {})", pool.capture, pool.handle);
  }

  /// Which device it is on shows only so; most processes have one.
  Block* Find(const void* address) const {
    for (const auto& cache : caches) {
      if (Block* block = cache->Find(address)) return block;
    }
    return nullptr;
  }
  /// Null, with the reason in `status`, for a device that is not there.
  StatusOr<DeviceCache*> CacheOf(int device) const {
    if (device >= 0 && device < static_cast<int>(caches.size())) return caches[device].get();
    return Error(kInvalidDevice, fmt::format("there is no device {}", device))
        .Culprit("the device id")
        .Hint(fmt::format("use an id below {}", caches.size()));
  }

  mutable Mutex mutex;  ///< of what stands below; never held while something is called
  std::vector<std::function<bool()>> callbacks REPRISE_GUARDED_BY(mutex);
  std::vector<OomObserver> observers REPRISE_GUARDED_BY(mutex);
  std::map<PoolId, std::string> names REPRISE_GUARDED_BY(mutex);
  Config config REPRISE_GUARDED_BY(mutex);
  std::atomic<ContextRecorder> recorder{nullptr};

  std::vector<std::unique_ptr<DeviceCache>> caches;
};

DeviceAllocator::DeviceAllocator(Driver& driver, Config config)
    : state_(std::make_unique<State>(driver, std::move(config))) {}
DeviceAllocator::~DeviceAllocator() = default;

StatusOr<void*> DeviceAllocator::Allocate(int device, uint64_t bytes, void* stream) {
  if (static_cast<size_t>(device) >= state_->caches.size()) return state_->CacheOf(device).status();
  if (bytes == 0) return nullptr;
  const ContextRecorder recorder = state_->recorder.load(std::memory_order_relaxed);
  return state_->caches[device]->Allocate(bytes, stream, recorder == nullptr ? nullptr : recorder());
}

Status DeviceAllocator::Free(void* address, const TraceContextPtr& context) {
  if (address == nullptr) return {};
  Block* block = state_->Find(address);
  if (block == nullptr) {
    return Error(kInvalidValue,
                 fmt::format("{} is not the beginning of a block of this allocator, or was freed before", address))
        .Culprit(fmt::format("address {}", address))
        .Hint("free what Allocate has returned, once; find its end in the recorded history");
  }
  return block->cache->Free(block, address, context);
}

Status DeviceAllocator::RecordStream(void* address, void* stream) {
  Block* block = state_->Find(address);
  return block == nullptr ? Status() : block->cache->RecordStream(block, address, stream);
}

Status DeviceAllocator::EraseStream(void* address, void* stream) {
  Block* block = state_->Find(address);
  return block == nullptr ? Status() : block->cache->EraseStream(block, address, stream);
}

uint64_t DeviceAllocator::SizeOf(const void* address) const {
  const Block* block = state_->Find(address);
  return block == nullptr ? 0 : block->cache->SizeOf(block, address);
}

Status DeviceAllocator::EmptyCache(PoolId pool) {
  for (const auto& cache : state_->caches) cache->EmptyCache(pool);
  return {};
}

void DeviceAllocator::ForgetDevice(int device) {
  if (auto cache = state_->CacheOf(device); cache.ok()) (*cache)->Forget();
}

void DeviceAllocator::ExpectThreads(int device) {
  if (auto cache = state_->CacheOf(device); cache.ok()) (*cache)->ExpectThreads();
}

bool DeviceAllocator::IsCaptureContext(int device) {
  auto cache = state_->CacheOf(device);
  return cache.ok() && (*cache)->IsCaptureContext();
}

// ---- Pools ----

Status DeviceAllocator::CreateOrUsePool(int device, PoolId pool, PoolOptions options) {
  REPRISE_ASSIGN_OR_RETURN(DeviceCache * cache, state_->CacheOf(device));
  return cache->CreateOrUsePool(pool, std::move(options));
}

Status DeviceAllocator::BeginAllocateToPool(int device, PoolId pool, StreamFilter filter) {
  REPRISE_ASSIGN_OR_RETURN(DeviceCache * cache, state_->CacheOf(device));
  return cache->BeginAllocateToPool(pool, std::move(filter));
}

Status DeviceAllocator::SwapFilter(int device, PoolId pool, StreamFilter filter) {
  REPRISE_ASSIGN_OR_RETURN(DeviceCache * cache, state_->CacheOf(device));
  return cache->SwapFilter(pool, std::move(filter));
}

Status DeviceAllocator::EndAllocateToPool(int device, PoolId pool) {
  REPRISE_ASSIGN_OR_RETURN(DeviceCache * cache, state_->CacheOf(device));
  return cache->EndAllocateToPool(pool);
}

Status DeviceAllocator::ReleasePool(int device, PoolId pool) {
  REPRISE_ASSIGN_OR_RETURN(DeviceCache * cache, state_->CacheOf(device));
  return cache->ReleasePool(pool);
}

Status DeviceAllocator::SetUseOnOom(int device, PoolId pool, bool use) {
  REPRISE_ASSIGN_OR_RETURN(DeviceCache * cache, state_->CacheOf(device));
  return cache->SetUseOnOom(pool, use);
}

Status DeviceAllocator::SetNoSplit(int device, PoolId pool) {
  REPRISE_ASSIGN_OR_RETURN(DeviceCache * cache, state_->CacheOf(device));
  return cache->SetNoSplit(pool);
}

int DeviceAllocator::PoolUsers(int device, PoolId pool) const {
  auto cache = state_->CacheOf(device);
  return cache.ok() ? (*cache)->PoolUsers(pool) : 0;
}

std::vector<void*> DeviceAllocator::LiveBlocks(int device, PoolId pool) const {
  auto cache = state_->CacheOf(device);
  return cache.ok() ? (*cache)->LiveBlocks(pool) : std::vector<void*>{};
}

bool DeviceAllocator::LiveBlocksAre(int device, PoolId pool, const std::vector<const void*>& blocks) const {
  auto cache = state_->CacheOf(device);
  return cache.ok() && (*cache)->LiveBlocksAre(pool, blocks);
}

StatusOr<PoolState> DeviceAllocator::GetPoolState(int device, PoolId pool) const {
  REPRISE_ASSIGN_OR_RETURN(DeviceCache * cache, state_->CacheOf(device));
  return cache->GetPoolState(pool);
}

StatusOr<PoolChange> DeviceAllocator::SetPoolState(const PoolState& state, const std::vector<uint64_t>& released) {
  REPRISE_ASSIGN_OR_RETURN(DeviceCache * cache, state_->CacheOf(state.device));
  return cache->SetPoolState(state, released);
}

void DeviceAllocator::MarkCaptureBegin(int device) {
  if (auto cache = state_->CacheOf(device); cache.ok()) (*cache)->MarkCapture(1);
}

void DeviceAllocator::MarkCaptureEnd(int device) {
  if (auto cache = state_->CacheOf(device); cache.ok()) (*cache)->MarkCapture(-1);
}

std::vector<ReusedBlock> DeviceAllocator::TakeReusedBlocks(int device, uint64_t capture) {
  auto cache = state_->CacheOf(device);
  return cache.ok() ? (*cache)->TakeReusedBlocks(capture) : std::vector<ReusedBlock>{};
}

// ---- Policy ----

Status DeviceAllocator::SetMemoryFraction(int device, double fraction) {
  REPRISE_ASSIGN_OR_RETURN(DeviceCache * cache, state_->CacheOf(device));
  if (!(fraction >= 0 && fraction <= 1)) {
    return Error(kInvalidValue, fmt::format("{} is no fraction of the memory of device {}", fraction, device))
        .Culprit("the fraction")
        .Hint("pass a number from 0 to 1");
  }
  cache->SetFraction(fraction);
  return {};
}

double DeviceAllocator::MemoryFraction(int device) const {
  auto cache = state_->CacheOf(device);
  return cache.ok() ? (*cache)->Fraction() : 0;
}

Status DeviceAllocator::SetConfig(const Config& config) {
  if (config.expandable_segments && (config.max_split_size != UINT64_MAX || config.garbage_collection_threshold > 0)) {
    return Error(kInvalidValue, "expandable_segments excludes max_split_size_mb and garbage_collection_threshold")
        .Culprit("the settings")
        .Hint("set one or the other");
  }
  {
    MutexLock lock(state_->mutex);
    state_->config = config;
  }
  for (const auto& cache : state_->caches) cache->SetConfig(config);
  return {};
}

Config DeviceAllocator::GetConfig() const {
  MutexLock lock(state_->mutex);
  return state_->config;
}

// ---- Insight ----

DeviceStats DeviceAllocator::Stats(int device) const {
  auto cache = state_->CacheOf(device);
  return cache.ok() ? (*cache)->Stats() : DeviceStats{};
}

void DeviceAllocator::ResetPeakStats(int device) {
  if (auto cache = state_->CacheOf(device); cache.ok()) (*cache)->ResetPeakStats();
}

void DeviceAllocator::ResetAccumulatedStats(int device) {
  if (auto cache = state_->CacheOf(device); cache.ok()) (*cache)->ResetAccumulatedStats();
}

MemorySnapshot DeviceAllocator::Snapshot(PoolId pool, bool with_trace) const {
  MemorySnapshot snapshot;
  for (const auto& cache : state_->caches) cache->AppendTo(snapshot, pool, with_trace);
  snapshot.settings = GetConfig().Settings();
  return snapshot;
}

std::string DeviceAllocator::ExplainReport(uintptr_t address) const {
  for (const auto& cache : state_->caches) {
    if (std::string text = cache->ExplainReport(address); !text.empty()) return text;
  }
  return {};
}

void DeviceAllocator::RecordHistory(ContextRecorder recorder, uint64_t entries, uint32_t skipped) {
  state_->recorder.store(entries == 0 ? nullptr : recorder, std::memory_order_relaxed);
  for (const auto& cache : state_->caches) cache->RecordHistory(entries, skipped);
}

void DeviceAllocator::AddOomObserver(OomObserver observer) {
  MutexLock lock(state_->mutex);
  state_->observers.push_back(std::move(observer));
}

void DeviceAllocator::AddFreeMemoryCallback(std::function<bool()> callback) {
  MutexLock lock(state_->mutex);
  state_->callbacks.push_back(std::move(callback));
}

void DeviceAllocator::NamePool(PoolId pool, std::string owner) {
  MutexLock lock(state_->mutex);
  if (owner.empty()) {
    state_->names.erase(pool);
  } else {
    state_->names[pool] = std::move(owner);
  }
}

}  // namespace reprise::memory
