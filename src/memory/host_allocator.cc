// SPDX-License-Identifier: Apache-2.0
#include "memory/host_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "base/log.h"
#include "base/mutex.h"
#include "memory/host_state.h"

namespace reprise::memory {
namespace {

constexpr uint64_t kHuge = uint64_t{1} << 60;

Status CheckPoolId(PoolId id) {
  if (id.is_default() || (id.capture != 0 && id.handle != 0)) {
    return Error(kInvalidValue, fmt::format("{} cannot name a private pool", HostPoolName(id)))
        .Culprit(fmt::format("pool {}", HostPoolName(id)))
        .Hint("exactly one half is not zero: use the id of a graph or of a pool handle");
  }
  return {};
}

}  // namespace

HostAllocator::HostAllocator(Driver& driver, Config config)
    : state_(std::make_unique<State>(driver, std::move(config))) {}

HostAllocator::~HostAllocator() {
  State& s = *state_;
  {
    MutexLock lock(s.mutex);
    s.stop = true;
  }
  s.work.notify_all();
  if (s.worker.joinable()) s.worker.join();
  s.WaitForStreams();
  for (auto& [stream, queue] : s.events) {
    for (const HostEvent& pending : queue) {
      s.driver.Wait(pending.event);
      s.driver.ReleaseEvent(pending.event);
    }
  }
  for (auto& [address, block] : s.blocks) {
    if (!block.is_reserved) s.driver.FreeHost(block.address);
  }
  if (s.reserve != nullptr) s.driver.FreeHost(s.reserve);
}

StatusOr<void*> HostAllocator::Allocate(uint64_t bytes) {
  if (bytes == 0) return static_cast<void*>(nullptr);
  State& s = *state_;
  if (bytes >= kHuge) {
    return Error(kOutOfDeviceMemory, fmt::format("{} bytes of pinned memory are more than any host has", bytes))
        .Culprit(fmt::format("a request of {} bytes", bytes))
        .Hint("check how the size was computed: a negative number looks like this");
  }
  const uint64_t size = s.Rounded(bytes);

  const bool is_routed = s.routed.load(std::memory_order_relaxed) != 0;
  void* const stream = is_routed ? s.driver.CurrentStream(s.driver.CurrentDevice()) : nullptr;
  const bool in_capture = is_routed && s.driver.CaptureOf(stream).is_open;

  State::Lock lock(s.mutex);
  HostPool* pool = is_routed ? s.Accepting(stream) : nullptr;
  if (pool != nullptr && !in_capture && !s.warned) {
    s.warned = true;
    REPRISE_LOG(kWarning, "RUNTIME", "pinned memory for pool {} is taken on a stream that is not being captured",
                HostPoolName(pool->id));
  }
  if (pool == nullptr) pool = &s.default_pool;

  // Until there is a block, the pool must not go.
  ++pool->mentions;
  const auto take = [&]() -> HostBlock* {
    std::vector<HostBlock*>& list = pool->free.Of(size);
    if (list.empty()) return nullptr;
    HostBlock* const block = list.back();
    list.pop_back();
    s.cached_bytes -= static_cast<int64_t>(size);
    return block;
  };
  if (!in_capture && s.HasPending() && !s.HasWorker()) s.Reclaim(lock);
  HostBlock* block = take();
  if (block == nullptr && pool == &s.default_pool) {
    if (void* piece = s.Carve(lock, size)) block = &s.Adopt(piece, size, *pool, true);
  }
  if (block == nullptr) {
    StatusOr<void*> memory = s.TakeMemory(lock, size);
    if (!memory.ok() && !in_capture) {
      s.EmptyCache(lock);
      block = take();
      if (block == nullptr) memory = s.TakeMemory(lock, size);
    }
    if (block == nullptr) {
      if (!memory.ok()) {
        --pool->mentions;
        return s.NoRoom(bytes, size, *pool, std::move(memory).status());
      }
      block = &s.Adopt(*memory, size, *pool, false);
    }
  }
  --pool->mentions;
  s.HandOut(*block);
  void* const address = block->address;
  // Not before now: one of them may be what was asked for.
  if (!in_capture) s.TrimTooLarge(lock);
  return address;
}

Status HostAllocator::Free(void* address) {
  if (address == nullptr) return {};
  State& s = *state_;
  const bool in_capture = s.InCapture();
  State::Lock lock(s.mutex);
  HostBlock* const block = s.Find(address);
  if (block == nullptr || block->address != address) {
    const std::string where = block == nullptr ? "lies in no block of pinned memory"
                                               : fmt::format("lies {} bytes behind the beginning of a block",
                                                             static_cast<char*>(address) - block->address);
    return Error(kInvalidValue, fmt::format("{} {}", address, where))
        .Culprit(fmt::format("address {}", address))
        .Hint("free the address that Allocate returned");
  }
  if (!block->is_allocated) {
    return Error(kInvalidValue, fmt::format("the block at {} was freed before", address))
        .Culprit(fmt::format("pinned block {} of {} bytes", address, block->size))
        .Hint("free each block once");
  }
  block->is_allocated = false;
  // One wait for this call, so that nothing that ends meanwhile makes the block free under our hands.
  block->waits = 1;
  for (HostPool* keeper : std::vector<HostPool*>(block->keepers)) {
    if (keeper->is_over()) {
      s.DropKeeper(*block, keeper);
      continue;
    }
    ++block->waits;
    keeper->parked.push_back(block);
  }
  if (!block->keepers.empty()) s.parked_bytes += static_cast<int64_t>(block->size);
  if (block->streams.empty()) {
    s.Done(*block);
  } else if (in_capture) {
    s.unrecorded.push_back(block);
  } else {
    s.HasWorker();
    s.RecordEvents(lock, {block});
  }
  if (!in_capture) s.TrimTooLarge(lock);
  return {};
}

StatusOr<bool> HostAllocator::RecordUse(const void* address, void* stream) {
  State& s = *state_;
  const bool captured = s.routed.load(std::memory_order_relaxed) != 0 && s.driver.CaptureOf(stream).is_open;
  MutexLock lock(s.mutex);
  HostBlock* const block = s.Find(address);
  if (block == nullptr) return false;
  if (!block->is_allocated) {
    return Error(kInvalidValue, fmt::format("{} lies in a block that has been freed", address))
        .Culprit(fmt::format("pinned block {} of {} bytes", static_cast<void*>(block->address), block->size))
        .Hint("keep the block until its copy has been queued");
  }
  if (HostPool* keeper = captured ? s.Accepting(stream) : nullptr) {
    if (std::find(block->keepers.begin(), block->keepers.end(), keeper) == block->keepers.end()) {
      for (HostPool* other : std::vector<HostPool*>(block->keepers)) {
        if (other->is_over()) s.DropKeeper(*block, other);
      }
      block->keepers.push_back(keeper);
      ++keeper->mentions;
    }
  } else if (std::find(block->streams.begin(), block->streams.end(), stream) == block->streams.end()) {
    block->streams.push_back(stream);
  }
  return true;
}

Status HostAllocator::EmptyCache() {
  State& s = *state_;
  if (s.InCapture()) return {};
  State::Lock lock(s.mutex);
  s.EmptyCache(lock);
  return {};
}

void HostAllocator::SetConfig(const Config& config) {
  State& s = *state_;
  const bool in_capture = s.InCapture();
  s.max_round.store(config.pinned_max_round_threshold, std::memory_order_relaxed);
  State::Lock lock(s.mutex);
  s.max_cached = config.pinned_max_cached_size;
  s.too_large = true;  // what is free now was kept by the limit before
  if (!in_capture) s.TrimTooLarge(lock);
}

bool HostAllocator::Owns(const void* address) const {
  MutexLock lock(state_->mutex);
  return state_->Find(address) != nullptr;
}

Status HostAllocator::BeginAllocateToPool(PoolId id, StreamFilter filter) {
  REPRISE_RETURN_IF_ERROR(CheckPoolId(id));
  State& s = *state_;
  MutexLock lock(s.mutex);
  if (s.RouteOf(id) != nullptr) {
    return Error(kInvalidValue, fmt::format("pool {} of pinned memory is already recording", HostPoolName(id)))
        .Culprit(fmt::format("pool {}", HostPoolName(id)))
        .Hint("end the capture that allocates to it first, or give the other one a pool of its own");
  }
  if (FaultPoint("pinned.pool")) {
    return Error(kOutOfDeviceMemory, fmt::format("no memory for the records of pool {}", HostPoolName(id)))
        .Culprit("fault point cache.pool")
        .Hint("free host memory");
  }
  HostPool*& pool = s.living[id];
  if (pool == nullptr) {
    pool = s.pools.emplace_back(std::make_unique<HostPool>()).get();
    pool->id = id;
  }
  ++pool->users;
  s.routes.push_back({pool, std::move(filter)});
  s.routed.store(static_cast<int>(s.routes.size()), std::memory_order_relaxed);
  return {};
}

Status HostAllocator::SwapFilter(PoolId id, StreamFilter filter) {
  State& s = *state_;
  MutexLock lock(s.mutex);
  State::Route* const route = s.RouteOf(id);
  if (route == nullptr) {
    return Error(kInvalidValue, fmt::format("pool {} of pinned memory is not currently recording", HostPoolName(id)))
        .Culprit(fmt::format("pool {}", HostPoolName(id)))
        .Hint("begin allocating to the pool first");
  }
  route->filter.swap(filter);
  return {};
}

Status HostAllocator::EndAllocateToPool(PoolId id) {
  State& s = *state_;
  MutexLock lock(s.mutex);
  if (s.RouteOf(id) == nullptr) {
    return Error(kInvalidValue, fmt::format("pool {} of pinned memory is not currently recording", HostPoolName(id)))
        .Culprit(fmt::format("pool {}", HostPoolName(id)))
        .Hint("begin allocating to the pool first, and end it once");
  }
  std::erase_if(s.routes, [&](const State::Route& route) { return route.pool->id == id; });
  s.routed.store(static_cast<int>(s.routes.size()), std::memory_order_relaxed);
  return {};
}

Status HostAllocator::ReleasePool(PoolId id, std::function<bool()> idle) {
  State& s = *state_;
  const bool in_capture = s.InCapture();
  State::Lock lock(s.mutex);
  const auto it = s.living.find(id);
  if (it == s.living.end()) {
    return Error(kInvalidValue, fmt::format("pool {} of pinned memory has no users", HostPoolName(id)))
        .Culprit(fmt::format("pool {}", HostPoolName(id)))
        .Hint("release a pool once for each time that allocating to it began");
  }
  HostPool& pool = *it->second;
  if (idle) {
    if (pool.busy.empty() && !pool.asked) ++s.to_ask;
    pool.busy.push_back(std::move(idle));
  }
  if (--pool.users == 0) s.living.erase(it);
  s.Settle(pool);
  // Pools that many graphs share would otherwise remember each of them. This gives up the lock, and the pool may go.
  if (!in_capture) s.AskGraphs(lock);
  s.work.notify_one();
  return {};
}

int HostAllocator::PoolUsers(PoolId id) const {
  MutexLock lock(state_->mutex);
  const auto it = state_->living.find(id);
  return it == state_->living.end() ? 0 : it->second->users;
}

HostStats HostAllocator::Stats() const {
  MutexLock lock(state_->mutex);
  return state_->stats;
}

void HostAllocator::ResetPeakStats() {
  MutexLock lock(state_->mutex);
  HostStats& stats = state_->stats;
  for (Stat* stat : {&stats.allocations, &stats.active_requests, &stats.allocated_bytes, &stats.active_bytes}) {
    stat->peak = stat->current;
  }
}

void HostAllocator::ResetAccumulatedStats() {
  MutexLock lock(state_->mutex);
  HostStats& stats = state_->stats;
  for (Stat* stat : {&stats.allocations, &stats.active_requests, &stats.allocated_bytes, &stats.active_bytes}) {
    stat->allocated = stat->freed = 0;
  }
  stats.num_host_alloc = stats.num_host_free = 0;
  stats.host_alloc_time = stats.host_free_time = {};
}

}  // namespace reprise::memory
