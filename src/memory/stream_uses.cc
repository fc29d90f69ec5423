// SPDX-License-Identifier: Apache-2.0
//
// Blocks that other streams than their own use. A freed one waits for an event on each of them. While one of them is
// being captured nothing may be recorded or queried, so the block waits in a list until that is over, or until the
// graph shows that all its uses come before what the block's stream does next (graph_capture_record_stream_reuse).
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/fault.h"
#include "memory/device_cache.h"

namespace reprise::memory {

/// Of the calling thread: open captures of other threads do not matter, nor do scopes.
bool DeviceCache::InCaptureContext() const { return captures_ > 0 && IsOpen(host_.driver.CurrentStream(device_)); }

Status DeviceCache::RecordStream(Block* block, const void* address, void* stream) {
  Lock lock(mutex_);
  if (block->address != address || block->use != BlockUse::kLive) return {};
  if (stream == block->silo->stream || !Claim(*block)) return {};
  uint64_t capture = 0;
  if (captures_ > 0) {
    if (const CaptureState state = host_.driver.CaptureOf(stream); state.is_open) capture = state.id;
  }
  for (StreamUse& use : block->uses) {
    if (use.stream != stream) continue;
    // Whatever has run outside of captures needs an event, what was captured before or after does not change that.
    if (use.capture != capture) use.capture = use.capture == 0 || capture == 0 ? 0 : kSeveralCaptures;
    return {};
  }
  block->uses.push_back({stream, capture});
  return {};
}

Status DeviceCache::EraseStream(Block* block, const void* address, void* stream) {
  Lock lock(mutex_);
  if (block->address != address || (block->use != BlockUse::kLive && block->use != BlockUse::kWaiting)) return {};
  // The own stream of uncached memory is no use that somebody has recorded.
  if (stream == block->silo->stream) return {};
  std::erase_if(block->uses, [&](const StreamUse& use) { return use.stream == stream; });
  if (block->use == BlockUse::kLive) return {};
  if (auto it = events_.find(stream); it != events_.end()) {
    std::erase_if(it->second, [&](const PendingEvent& pending) {
      if (pending.block != block) return false;
      host_.driver.ReleaseEvent(pending.event);
      --block->pending_events;
      --pending_events_;
      return true;
    });
    if (it->second.empty()) events_.erase(it);
  }
  FreeIfUnused(block);
  RunDoomed(lock);
  return {};
}

void DeviceCache::FreeWithUses(Block* block) {
  CloseFront();  // allocations look whether blocks wait no longer
  const bool defer =
      captures_ > 0 && (InCaptureContext() || std::any_of(block->uses.begin(), block->uses.end(),
                                                          [&](const StreamUse& use) { return IsOpen(use.stream); }));
  if (!defer) {
    RecordUses(block);
  } else if (config_.graph_capture_record_stream_reuse) {
    MarkUses(block);
  }
  if (!block->uses.empty()) {
    // Also when no event could be had: the next allocation tries again.
    block->is_deferred = true;
    deferred_.push_back(block);
  } else if (block->silo->blocks->pool->uncached) {
    ProcessEvents();  // keeps nothing longer than it must
  }
}

/// Whatever has used the block in a capture comes before this point of it.
void DeviceCache::MarkUses(Block* block) {
  for (StreamUse& use : block->uses) {
    if (!use.captured() || use.capture == kSeveralCaptures) return;  // one is enough for it to wait
    const CapturePoint point = host_.driver.PointInCapture(use.stream);
    if (point.capture != use.capture) return;
    use.is_marked = true;
    use.lane = point.lane;
    use.tasks = point.tasks;
  }
}

/// Blocks of the stream whose uses come before all that it gets from now on, as the graph has it. What the stream
/// itself has done to them comes before that anyway.
void DeviceCache::FreeJoined(void* stream) {
  std::optional<CapturePoint> now;
  std::vector<Block*> waiting;
  waiting.swap(deferred_);
  for (Block* block : waiting) {
    const auto comes_before = [&](const StreamUse& use) {
      if (!use.is_marked) return false;
      if (!now) now = host_.driver.PointInCapture(stream);
      if (now->capture != use.capture) return false;
      return use.tasks == 0 || (use.lane < now->before.size() && use.tasks <= now->before[use.lane]);
    };
    if (block->silo->stream != stream || block->pending_events != 0 ||
        !std::all_of(block->uses.begin(), block->uses.end(), comes_before)) {
      deferred_.push_back(block);
      continue;
    }
    block->uses.clear();
    block->is_deferred = false;
    FreeIfUnused(block);
  }
}

/// Uses turn into events as far as events can be had.
void DeviceCache::RecordUses(Block* block) {
  while (!block->uses.empty()) {
    void* const stream = block->uses.back().stream;
    if (FaultPoint("allocator.event")) return;
    auto event = host_.driver.RecordEvent(stream);
    if (!event.ok()) return;
    events_[stream].push_back({*event, block});
    ++pending_events_;
    ++block->pending_events;
    block->uses.pop_back();
  }
}

/// Not in a capture context.
void DeviceCache::DrainDeferred() {
  std::vector<Block*> waiting;
  waiting.swap(deferred_);
  for (Block* block : waiting) {
    const bool still_captured = captures_ > 0 && std::any_of(block->uses.begin(), block->uses.end(),
                                                             [&](const StreamUse& use) { return IsOpen(use.stream); });
    if (!still_captured) {
      // The graph itself orders what was captured.
      std::erase_if(block->uses, [](const StreamUse& use) { return use.captured(); });
      RecordUses(block);
    }
    if (!block->uses.empty()) {
      deferred_.push_back(block);
      continue;
    }
    block->is_deferred = false;
    FreeIfUnused(block);
  }
}

/// Not in a capture context.
void DeviceCache::ProcessEvents() {
  if (!deferred_.empty()) DrainDeferred();
  for (auto it = events_.begin(); it != events_.end();) {
    std::deque<PendingEvent>& queue = it->second;
    while (!queue.empty() && host_.driver.IsDone(queue.front().event)) {
      const PendingEvent done = queue.front();
      queue.pop_front();
      host_.driver.ReleaseEvent(done.event);
      --pending_events_;
      --done.block->pending_events;
      FreeIfUnused(done.block);
    }
    it = queue.empty() ? events_.erase(it) : std::next(it);
  }
}

/// Of a block that waits.
void DeviceCache::FreeIfUnused(Block* block) {
  if (!block->uses.empty() || block->pending_events != 0) return;
  if (block->is_deferred) {
    block->is_deferred = false;
    std::erase(deferred_, block);
  }
  stats_.active.EndWait(block->silo->blocks->is_small, 1);
  stats_.active_bytes.EndWait(block->silo->blocks->is_small, static_cast<int64_t>(block->size));
  FreeBlock(block, nullptr);
}

void DeviceCache::MarkCapture(int by) {
  Lock lock(mutex_);
  if (by > 0) CloseFront();
  captures_ = std::max(0, captures_ + by);
  if (captures_ == 0) captured_blocks_.Clear();
  if (by > 0) ++captures_begun_;
}

std::vector<ReusedBlock> DeviceCache::TakeReusedBlocks(uint64_t capture) {
  Lock lock(mutex_);
  return captured_blocks_.Take(capture);
}

bool DeviceCache::IsCaptureContext() {
  Lock lock(mutex_);
  return InCaptureContext();
}

}  // namespace reprise::memory
