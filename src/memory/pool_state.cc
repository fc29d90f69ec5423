// SPDX-License-Identifier: Apache-2.0
//
// Private pools as they are at a moment, and back to that.
#include <fmt/format.h>

#include <algorithm>

#include "memory/device_cache.h"

namespace reprise::memory {
namespace {

uint64_t AddressOf(const void* at) { return reinterpret_cast<uintptr_t>(at); }

Status CannotSetBack(int device, PoolId pool, const std::string& why) {
  return Error(kInvalidValue, fmt::format("pool ({}, {}) cannot be set back: {}", pool.capture, pool.handle, why))
      .Culprit(fmt::format("pool ({}, {}) of device {}", pool.capture, pool.handle, device))
      .Hint("free what was allocated in the pool since its state was taken, and set it back outside of captures");
}

/// Blocks that lie side by side from the first byte of the segment to the last, no two free ones beside each other.
bool IsTiled(const PoolState::Segment& segment) {
  uint64_t at = segment.address;
  bool after_free = false;
  for (const PoolState::Block& block : segment.blocks) {
    if (block.address != at || block.size == 0 || block.size > segment.size || (after_free && !block.is_live)) {
      return false;
    }
    at += block.size;
    after_free = !block.is_live;
  }
  return at == segment.address + segment.size;
}

}  // namespace

StatusOr<PoolState> DeviceCache::GetPoolState(PoolId id) {
  Lock lock(mutex_);
  REPRISE_RETURN_IF_ERROR(FindPool(id, "its state").status());
  if (HasPending() && !InCaptureContext()) ProcessEvents();
  PoolState state;
  state.device = device_;
  state.pool = id;
  for (const auto& [base, segment] : segments_) {
    if (segment->silo->blocks->pool->id != id) continue;
    if (segment->is_expandable()) {
      return Error(kInvalidValue, fmt::format("the state of pool ({}, {}) cannot be kept: its segments are expandable",
                                              id.capture, id.handle))
          .Culprit(fmt::format("pool ({}, {}) of device {}", id.capture, id.handle, device_))
          .Hint("set expandable_segments:False in PYTORCH_NPU_ALLOC_CONF");
    }
    PoolState::Segment& kept = state.segments.emplace_back();
    kept.address = AddressOf(base);
    kept.size = segment->bytes;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->use == BlockUse::kWaiting) {
        return Error(kInvalidValue,
                     fmt::format("the state of pool ({}, {}) cannot be kept: a stream still uses the block at "
                                 "{:#x}, which was freed",
                                 id.capture, id.handle, AddressOf(block->address)))
            .Culprit(fmt::format("block at {:#x} of device {}", AddressOf(block->address), device_))
            .Hint("wait for the streams that use it, then ask again");
      }
      kept.blocks.push_back({AddressOf(block->address), block->size, block->requested, block->use == BlockUse::kLive});
    }
  }
  return state;
}

/// Everything that can be wrong, so that nothing is changed then.
Status DeviceCache::CheckPoolState(const PoolState& state, const std::vector<uint64_t>& released) const {
  const PoolId id = state.pool;
  for (const PoolState::Segment& wanted : state.segments) {
    const auto found = segments_.find(reinterpret_cast<char*>(static_cast<uintptr_t>(wanted.address)));
    if (found == segments_.end() || found->second->silo->blocks->pool->id != id ||
        found->second->bytes != wanted.size || found->second->is_expandable() || !IsTiled(wanted)) {
      return CannotSetBack(
                 device_, id,
                 fmt::format("it has no segment at {:#x} with {} bytes any more", wanted.address, wanted.size))
          .Hint("keep a user of the pool from the time its state is taken until it is set back");
    }
  }
  for (const auto& [base, segment] : segments_) {
    if (segment->silo->blocks->pool->id != id) continue;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      const uint64_t address = AddressOf(block->address);
      if (block->use == BlockUse::kWaiting || (block->use == BlockUse::kLive && !block->uses.empty())) {
        return CannotSetBack(device_, id, fmt::format("another stream uses the block at {:#x}", address))
            .Hint("free what was given to record_stream, and wait for those streams first");
      }
      if (block->use == BlockUse::kLive && !std::binary_search(released.begin(), released.end(), address)) {
        return CannotSetBack(device_, id,
                             fmt::format("the block at {:#x} ({} bytes) is held by somebody who has not "
                                         "been named",
                                         address, block->requested))
            .Hint("free it, or name its storage among those that are stale or live again");
      }
    }
  }
  return {};
}

StatusOr<PoolChange> DeviceCache::SetPoolState(const PoolState& state, const std::vector<uint64_t>& released) {
  std::vector<uint64_t> sorted = released;
  std::sort(sorted.begin(), sorted.end());
  Lock lock(mutex_);
  REPRISE_RETURN_IF_ERROR(FindPool(state.pool, "an earlier state").status());
  if (HasPending() && !InCaptureContext()) ProcessEvents();
  REPRISE_RETURN_IF_ERROR(CheckPoolState(state, sorted));
  PoolChange change;
  std::vector<Block*> live;
  for (const auto& [base, segment] : segments_) {
    if (segment->silo->blocks->pool->id != state.pool) continue;
    for (Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->use == BlockUse::kLive) live.push_back(block);
    }
  }
  for (Block* const block : live) {
    change.freed.push_back(AddressOf(block->address));
    TakeBack(block, nullptr);
    FreeBlock(block, nullptr);
  }
  for (const PoolState::Segment& segment : state.segments) {
    CutAs(*segments_.at(reinterpret_cast<char*>(static_cast<uintptr_t>(segment.address))), segment, change);
  }
  return change;
}

}  // namespace reprise::memory
