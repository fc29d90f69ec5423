// SPDX-License-Identifier: Apache-2.0
//
// What a cache shows of itself: statistics, snapshots, history.
#include <utility>

#include "memory/device_cache.h"

namespace reprise::memory {

void DeviceCache::Trace(TraceAction action, const void* address, uint64_t size, void* stream, const Pool& pool,
                        const TraceContextPtr& context) {
  if (!trace_.Keeps(action)) return;
  trace_.Add({.action = action,
              .device = device_,
              .address = reinterpret_cast<uintptr_t>(address),
              .size = size,
              .stream = stream,
              .pool = pool.id,
              .context = context});
}

DeviceStats DeviceCache::Stats() {
  Lock lock(mutex_);
  CallIn();
  return stats_.Show();
}

void DeviceCache::ResetPeakStats() {
  Lock lock(mutex_);
  CallIn();
  stats_.ResetPeaks();
}

void DeviceCache::ResetAccumulatedStats() {
  Lock lock(mutex_);
  CallIn();
  stats_.ResetAccumulated();
}

void DeviceCache::SetFraction(double fraction) {
  Lock lock(mutex_);
  fraction_ = fraction;
}

double DeviceCache::Fraction() {
  Lock lock(mutex_);
  return fraction_;
}

void DeviceCache::SetConfig(const Config& config) {
  Lock lock(mutex_);
  CloseFront();
  // A fraction that was set by a call stays when the settings do not change theirs.
  if (config.per_process_memory_fraction != config_.per_process_memory_fraction) {
    fraction_ = config.per_process_memory_fraction;
  }
  config_ = config;
  rounds_by_powers_ = RoundsByPowers(config);
  stats_.max_split_size = config.max_split_size == UINT64_MAX ? -1 : static_cast<int64_t>(config.max_split_size);
}

void DeviceCache::RecordHistory(uint64_t entries, uint32_t skipped) {
  TraceBuffer dropped;  // contexts end without the lock
  Lock lock(mutex_);
  CloseFront();
  std::swap(trace_, dropped);
  trace_.Restart(entries, skipped);
  lock.unlock();
}

namespace {

BlockInfo Describe(const Block& block) {
  BlockInfo info;
  info.address = reinterpret_cast<uintptr_t>(block.address);
  info.size = block.size;
  info.requested_size = block.requested;
  info.context = block.context;
  switch (block.use) {
    case BlockUse::kLive: info.state = BlockState::kActiveAllocated; break;
    case BlockUse::kWaiting: info.state = BlockState::kActivePendingFree; break;
    default: break;
  }
  return info;
}

}  // namespace

/// A range with holes becomes several segments, so that the blocks of each lie side by side.
void DeviceCache::AppendTo(MemorySnapshot& snapshot, PoolId pool, bool with_trace) {
  Lock lock(mutex_);
  CallIn();
  for (const auto& [base, segment] : segments_) {
    const BlockPool& blocks = *segment->silo->blocks;
    if (!pool.is_default() && blocks.pool->id != pool) continue;
    SegmentInfo* info = nullptr;
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->use == BlockUse::kUnmapped) {
        info = nullptr;
        continue;
      }
      if (info == nullptr) {
        info = &snapshot.segments.emplace_back();
        info->device = device_;
        info->address = reinterpret_cast<uintptr_t>(block->address);
        info->stream = segment->silo->stream;
        info->pool = blocks.pool->id;
        info->is_large = !blocks.is_small;
        info->is_expandable = segment->is_expandable();
        info->context = segment->context;
      }
      info->blocks.push_back(Describe(*block));
      info->total_size += block->size;
      if (block->use == BlockUse::kLive) info->allocated_size += block->size;
      if (block->use == BlockUse::kLive || block->use == BlockUse::kWaiting) {
        info->active_size += block->size;
        info->requested_size += block->requested;
      }
    }
  }
  if (!with_trace) return;
  Trace(TraceAction::kSnapshot, nullptr, static_cast<uint64_t>(stats_.reserved_bytes.current()), nullptr, default_,
        nullptr);
  snapshot.device_traces.push_back(trace_.Entries());
}

}  // namespace reprise::memory
