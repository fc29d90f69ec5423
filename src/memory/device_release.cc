// SPDX-License-Identifier: Apache-2.0
//
// Giving cached memory back to the device. A block that is free for its own stream may still be worked on by what was
// queued there, so memory leaves only when the device was waited for since it was freed. Streams that are being
// captured cannot be waited for; what belongs to them stays.
#include <algorithm>

#include "memory/device_cache.h"

namespace reprise::memory {

/// Not in a capture context.
DeviceCache::Idle DeviceCache::WaitForDevice(Lock& lock) {
  Idle idle;
  for (int tries = 0; tries < 3; ++tries) {
    const uint64_t until = clock_;
    const uint64_t begun = captures_begun_;
    const bool is_whole = captures_ == 0;
    idle.captured.clear();
    if (!is_whole) {
      for (const auto& [base, segment] : segments_) {
        void* const stream = segment->silo->stream;
        if (IsOpen(stream)) idle.captured.push_back(stream);
      }
    }
    ++stats_.num_sync_all_streams;
    DrainDeferred();  // so that their events are waited for, too
    lock.unlock();
    host_.driver.WaitForDevice(device_);
    lock.lock();
    // A capture that began meanwhile may have kept its streams from being waited for, and be over already.
    if (captures_begun_ != begun) continue;
    idle.until = until;
    if (is_whole) idle_until_ = std::max(idle_until_, until);
    break;
  }
  return idle;
}

/// Free blocks that nothing works on any more.
std::vector<Block*> DeviceCache::UnusedBlocks(const BlockPool& blocks, const Idle& idle) const {
  std::vector<Block*> unused;
  for (const auto& [stream, silo] : blocks.silos) {
    if (std::find(idle.captured.begin(), idle.captured.end(), stream) != idle.captured.end()) continue;
    silo->free.ForEach([&](Block* block) {
      if (block->freed_at <= idle.until) unused.push_back(block);
    });
  }
  return unused;
}

/// A free block that is a plain segment of its own.
void DeviceCache::ReleaseWhole(Block* block) {
  RemoveFree(block);
  map_.Erase(block->address);
  RemoveSegment(block->segment);
}

void DeviceCache::ReleaseBlocks(BlockPool& blocks, const Idle& idle) {
  for (Block* block : UnusedBlocks(blocks, idle)) {
    if (block->segment->is_expandable()) {
      Unmap(block);
    } else if (!block->is_split()) {
      ReleaseWhole(block);
    }
  }
}

/// `id`: of one pool; the default pool's: of all.
void DeviceCache::ReleaseUnusedPools(PoolId id) {
  // A graph may have been launched on any stream, so only a wait for all of them will do.
  const Idle idle{idle_until_, {}};
  for (auto it = pools_.begin(); it != pools_.end();) {
    Pool* const pool = it->second.get();
    ++it;
    // Graphs that replay use free blocks of their pool, so addresses stay while there are users, and until whatever
    // they had launched is over.
    if (pool->users != 0 || pool->routed != 0 || pool->released_at > idle.until) continue;
    if (!id.is_default() && pool->id != id) continue;
    ReleaseBlocks(pool->small, idle);
    ReleaseBlocks(pool->large, idle);
    ErasePoolIfEmpty(pool);
  }
}

void DeviceCache::EmptyCache(PoolId id) {
  Lock lock(mutex_);
  if (!id.is_default() && !pools_.contains(id)) return;
  CallIn();
  const bool capturing = InCaptureContext();
  if (!capturing) {
    const Idle idle = WaitForDevice(lock);
    ProcessEvents();
    if (id.is_default()) {
      ReleaseBlocks(default_.small, idle);
      ReleaseBlocks(default_.large, idle);
    }
  }
  ReleaseUnusedPools(id);
  RunDoomed(lock);
}

/// Everything goes, whoever holds it: the device takes its memory back.
void DeviceCache::Forget() {
  Lock lock(mutex_);
  CloseFront();
  for (auto& [stream, queue] : events_) {
    for (const PendingEvent& pending : queue) {
      host_.driver.ReleaseEvent(pending.event);
      --pending.block->pending_events;
    }
  }
  events_.clear();
  pending_events_ = 0;
  deferred_.clear();
  std::vector<Block*> held;
  for (const auto& [base, segment] : segments_) {
    for (Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->use == BlockUse::kLive || block->use == BlockUse::kWaiting) held.push_back(block);
    }
  }
  for (Block* block : held) {
    block->uses.clear();
    block->is_deferred = false;
    if (block->use == BlockUse::kLive) {
      TakeBack(block, nullptr);
      FreeBlock(block, nullptr);
    } else {
      FreeIfUnused(block);  // which it is now
    }
  }
  const Idle all{UINT64_MAX, {}};
  std::vector<Pool*> pools{&default_};
  for (const auto& [id, pool] : pools_) pools.push_back(pool.get());
  for (Pool* pool : pools) {
    ReleaseBlocks(pool->small, all);
    ReleaseBlocks(pool->large, all);
    if (pool->is_private()) ErasePoolIfEmpty(pool);
  }
  RunDoomed(lock);
}

/// Blocks that are not split for a request of `size`: one that would hold it, or else the largest until they would.
void DeviceCache::ReleaseOversize(uint64_t size, const Idle& idle) {
  std::vector<Block*> oversize = UnusedBlocks(default_.large, idle);
  std::erase_if(oversize, [&](const Block* block) {
    return block->size < config_.max_split_size || block->is_split() || block->segment->is_expandable();
  });
  std::sort(oversize.begin(), oversize.end(), [](const Block* a, const Block* b) { return a->size < b->size; });
  const auto fits =
      std::find_if(oversize.begin(), oversize.end(), [&](const Block* block) { return block->size >= size; });
  if (fits != oversize.end()) {
    ReleaseWhole(*fits);
    return;
  }
  for (uint64_t released = 0; released < size && !oversize.empty(); oversize.pop_back()) {
    released += oversize.back()->size;
    ReleaseWhole(oversize.back());
  }
}

/// Large segments that have not been used for long, while more is reserved than the setting allows. Not in a capture
/// context.
void DeviceCache::CollectGarbage(Lock& lock, const Request& request) {
  const uint64_t allowed = std::min(Limit(), host_.driver.Size(device_).total_bytes);
  const auto threshold = static_cast<int64_t>(config_.garbage_collection_threshold * static_cast<double>(allowed));
  const auto is_over = [&] { return stats_.reserved_bytes.current() > threshold; };
  if (!is_over() || request.pool->uncached) return;
  const auto collectable = [&](const Idle& idle) {
    std::vector<Block*> blocks = UnusedBlocks(default_.large, idle);
    std::erase_if(blocks, [](const Block* block) { return block->is_split() || block->segment->is_expandable(); });
    return blocks;
  };
  if (collectable({UINT64_MAX, {}}).empty() && !HasPending()) return;
  const Idle idle = WaitForDevice(lock);
  ProcessEvents();
  for (std::vector<Block*> blocks = collectable(idle); is_over() && !blocks.empty(); blocks = collectable(idle)) {
    uint64_t ages = 0;
    for (const Block* block : blocks) ages += clock_ - block->freed_at;
    const uint64_t average = ages / blocks.size();
    // The oldest first, so that what is left was used last.
    std::sort(blocks.begin(), blocks.end(), [](const Block* a, const Block* b) { return a->freed_at < b->freed_at; });
    for (Block* block : blocks) {
      if (!is_over() || clock_ - block->freed_at < average) break;
      ReleaseWhole(block);
    }
  }
}

}  // namespace reprise::memory
