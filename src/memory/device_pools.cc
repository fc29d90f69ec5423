// SPDX-License-Identifier: Apache-2.0
//
// Private pools, and which allocations go there.
#include <fmt/format.h>

#include <algorithm>

#include "base/fault.h"
#include "memory/device_cache.h"

namespace reprise::memory {

/// The newest scope that accepts the stream decides.
Pool* DeviceCache::RouteByScopes(void* stream) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (scope->filter(stream)) return scope->pool;
  }
  return &default_;
}

StatusOr<Pool*> DeviceCache::FindPool(PoolId id, const char* what) {
  auto it = pools_.find(id);
  if (it != pools_.end()) return it->second.get();
  return Error(kInvalidValue, fmt::format("{} is asked of pool ({}, {}), which device {} does not have", what,
                                          id.capture, id.handle, device_))
      .Culprit(fmt::format("pool ({}, {})", id.capture, id.handle))
      .Hint("use the device that the pool was made on, and no pool that was released to the end");
}

StatusOr<Pool*> DeviceCache::UsePool(PoolId id, DeviceAllocator::PoolOptions options) {
  if (id.is_default() || (id.capture != 0 && id.handle != 0)) {
    return Error(kInvalidValue, fmt::format("({}, {}) names no private pool", id.capture, id.handle))
        .Culprit("the pool id")
        .Hint("exactly one half of the id of a private pool is not zero");
  }
  if (static_cast<bool>(options.allocate) != static_cast<bool>(options.free)) {
    return Error(kInvalidValue, "a pool's own allocator consists of two functions, and one is missing")
        .Culprit(fmt::format("pool ({}, {})", id.capture, id.handle))
        .Hint("pass both, allocate and free, or none");
  }
  if (auto it = pools_.find(id); it != pools_.end()) {
    if (options.allocate) {
      return Error(kInvalidValue,
                   fmt::format("pool ({}, {}) is there already and keeps its allocator", id.capture, id.handle))
          .Culprit(fmt::format("pool ({}, {}), which has {} users", id.capture, id.handle, it->second->users))
          .Hint("pass functions only when the pool is made");
    }
    return it->second.get();
  }
  if (FaultPoint("allocator.pool")) {
    return Error(kOutOfDeviceMemory, "no host memory is left for another pool").Hint("free host memory");
  }
  auto pool = std::make_unique<Pool>(id);
  pool->options = std::move(options);
  return (pools_[id] = std::move(pool)).get();
}

Status DeviceCache::CreateOrUsePool(PoolId id, DeviceAllocator::PoolOptions options) {
  Lock lock(mutex_);
  REPRISE_ASSIGN_OR_RETURN(Pool * pool, UsePool(id, std::move(options)));
  ++pool->users;
  return {};
}

Status DeviceCache::BeginAllocateToPool(PoolId id, StreamFilter filter) {
  Lock lock(mutex_);
  if (!filter) return Error(kInvalidValue, "a scope without a filter accepts nothing").Hint("pass a filter");
  for (const Scope& scope : scopes_) {
    if (scope.pool->id != id) continue;
    return Error(kInvalidValue,
                 fmt::format("pool ({}, {}) is already recording: allocations go to it since an earlier begin",
                             id.capture, id.handle))
        .Culprit(fmt::format("pool ({}, {}) of device {}", id.capture, id.handle, device_))
        .Hint("end the first use before the next, or use another pool");
  }
  REPRISE_ASSIGN_OR_RETURN(Pool * pool, UsePool(id, {}));
  CloseFront();  // it asks no filter
  ++pool->users;
  ++pool->routed;
  scopes_.push_back({pool, std::move(filter)});
  return {};
}

Status DeviceCache::SwapFilter(PoolId id, StreamFilter filter) {
  Lock lock(mutex_);
  if (!filter) return Error(kInvalidValue, "a scope without a filter accepts nothing").Hint("pass a filter");
  for (Scope& scope : scopes_) {
    if (scope.pool->id != id) continue;
    scope.filter.swap(filter);
    return {};
  }
  return Error(kInvalidValue, fmt::format("pool ({}, {}) is not currently recording", id.capture, id.handle))
      .Culprit(fmt::format("pool ({}, {}) of device {}", id.capture, id.handle, device_))
      .Hint("begin to allocate to the pool first");
}

Status DeviceCache::EndAllocateToPool(PoolId id) {
  Lock lock(mutex_);
  const auto scope = std::find_if(scopes_.begin(), scopes_.end(), [&](const Scope& s) { return s.pool->id == id; });
  if (scope == scopes_.end()) {
    return Error(kInvalidValue, fmt::format("pool ({}, {}) is not currently recording", id.capture, id.handle))
        .Culprit(fmt::format("pool ({}, {}) of device {}", id.capture, id.handle, device_))
        .Hint("pair the calls that begin and end allocation to a pool");
  }
  Pool* const pool = scope->pool;
  --pool->routed;
  scopes_.erase(scope);
  ErasePoolIfEmpty(pool);
  return {};
}

Status DeviceCache::ReleasePool(PoolId id) {
  Lock lock(mutex_);
  REPRISE_ASSIGN_OR_RETURN(Pool * pool, FindPool(id, "release"));
  if (pool->users == 0) {
    return Error(kInvalidValue, fmt::format("pool ({}, {}) has no users left to release", id.capture, id.handle))
        .Culprit(fmt::format("pool ({}, {}) of device {}", id.capture, id.handle, device_))
        .Hint("release a pool once for each use");
  }
  if (--pool->users == 0) {
    pool->released_at = ++clock_;
    ErasePoolIfEmpty(pool);
  }
  return {};
}

/// Nothing refers to it, nothing is in it.
void DeviceCache::ErasePoolIfEmpty(Pool* pool) {
  if (pool->users == 0 && pool->segments == 0 && pool->routed == 0 && pool->borrowed == 0) pools_.erase(pool->id);
}

Status DeviceCache::SetUseOnOom(PoolId id, bool use) {
  Lock lock(mutex_);
  REPRISE_ASSIGN_OR_RETURN(Pool * pool, FindPool(id, "use when memory is out"));
  pool->use_on_oom = use;
  return {};
}

Status DeviceCache::SetNoSplit(PoolId id) {
  Lock lock(mutex_);
  REPRISE_ASSIGN_OR_RETURN(Pool * pool, FindPool(id, "whole blocks"));
  if (!pool->no_split && pool->segments != 0) {
    return Error(kInvalidValue, fmt::format("pool ({}, {}) has {} segments, whose blocks may be split already",
                                            id.capture, id.handle, pool->segments))
        .Culprit(fmt::format("pool ({}, {}) of device {}", id.capture, id.handle, device_))
        .Hint("forbid splitting before the first allocation");
  }
  pool->no_split = true;
  return {};
}

int DeviceCache::PoolUsers(PoolId id) {
  Lock lock(mutex_);
  auto it = pools_.find(id);
  return it == pools_.end() ? 0 : it->second->users;
}

std::vector<void*> DeviceCache::LiveBlocks(PoolId id) {
  std::vector<void*> live;
  Lock lock(mutex_);
  CallIn();
  for (const auto& [base, segment] : segments_) {
    if (segment->silo->blocks->pool->id != id) continue;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->use == BlockUse::kLive) live.push_back(block->address);
    }
  }
  return live;  // segments and their blocks come by address
}

bool DeviceCache::LiveBlocksAre(PoolId id, const std::vector<const void*>& blocks) {
  std::vector<const void*> expected = blocks;
  std::sort(expected.begin(), expected.end());
  const std::vector<void*> live = LiveBlocks(id);
  return std::equal(live.begin(), live.end(), expected.begin(), expected.end());
}

}  // namespace reprise::memory
