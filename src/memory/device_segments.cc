// SPDX-License-Identifier: Apache-2.0
//
// Taking memory from the device and giving it back, counted.
#include <fmt/format.h>

#include "base/fault.h"
#include "base/verbose.h"
#include "memory/device_cache.h"

namespace reprise::memory {

/// Of the reserved bytes of this process; unlimited: UINT64_MAX.
uint64_t DeviceCache::Limit() {
  if (fraction_ >= 1) return UINT64_MAX;
  return static_cast<uint64_t>(fraction_ * static_cast<double>(host_.driver.Size(device_).total_bytes));
}

bool DeviceCache::ExceedsLimit(uint64_t more) {
  const uint64_t limit = Limit();
  const auto reserved = static_cast<uint64_t>(stats_.reserved_bytes.current());
  return more > limit || reserved > limit - more;
}

/// A taken block of at least the size, that no tree knows. Null when there is no room.
StatusOr<Block*> DeviceCache::AllocBlock(Lock& lock, Request& request) {
  Pool& pool = *request.pool;
  const uint64_t bytes = pool.uncached ? request.size : SegmentSize(request.size, config_);
  const auto no_room = [&]() -> Block* {
    request.rejected = config_.throw_on_oom;
    return nullptr;
  };
  if (config_.expandable_segments && !pool.uncached && !pool.no_split && !pool.options.allocate) {
    REPRISE_ASSIGN_OR_RETURN(Block * extended, Extend(request));
    return extended != nullptr ? extended : no_room();
  }
  if (ExceedsLimit(bytes) || FaultPoint("allocator.segment")) return no_room();
  void* base = nullptr;
  if (pool.options.allocate) {
    lock.unlock();
    base = pool.options.allocate(bytes, device_, request.stream);
    lock.lock();
    if (base == nullptr) return no_room();
  } else {
    if (config_.release_lock_on_malloc) lock.unlock();
    auto taken = host_.driver.Allocate(device_, bytes);
    if (!lock.owns_lock()) lock.lock();
    if (!taken.ok()) {
      Status status = std::move(taken).status();
      if (status.code() != kOutOfDeviceMemory) return status;
      return no_room();
    }
    base = *taken;
  }
  return AddSegment(static_cast<char*>(base), bytes, request);
}

/// A plain segment of one block, taken.
Block* DeviceCache::AddSegment(char* base, uint64_t bytes, const Request& request) {
  auto segment = std::make_unique<Segment>();
  segment->base = base;
  segment->bytes = bytes;
  segment->silo = request.blocks().FindOrMake(request.stream);
  segment->context = request.context;
  segment->is_oversize = bytes >= config_.max_split_size;
  ++segment->silo->segments;
  Block* block = NewBlock();
  block->address = base;
  block->size = bytes;
  block->silo = segment->silo;
  block->segment = segment.get();
  block->freed_at = clock_;
  block->use = BlockUse::kTaken;
  segment->first = block;
  map_.Insert(base, block);
  CountMapped(*segment, base, bytes);
  segments_[base] = std::move(segment);
  return block;
}

/// Plain or a range without memory. The map no longer knows its blocks.
void DeviceCache::RemoveSegment(Segment* segment) {
  Silo* silo = segment->silo;
  BlockPool* blocks = silo->blocks;
  const DeviceAllocator::PoolOptions& options = blocks->pool->options;
  if (segment->is_expandable()) {
    host_.driver.ReleaseRange(device_, segment->base);
  } else {
    if (options.free) {
      doomed_.push_back({options, segment->base, segment->bytes, silo->stream});
    } else {
      host_.driver.Free(device_, segment->base);
    }
    CountUnmapped(*segment, segment->base, segment->bytes);
  }
  for (Block* block = segment->first; block != nullptr;) {
    Block* const next = block->next;
    Discard(block);
    block = next;
  }
  segments_.erase(segment->base);
  --silo->segments;
  blocks->EraseIfEmpty(silo);
}

namespace {

std::string DescribeSegment(const Segment& segment, const void* at, uint64_t bytes) {
  const Pool& pool = *segment.silo->blocks->pool;
  return fmt::format("{} of {} bytes at {} for stream {}, {}", segment.is_expandable() ? "a part" : "a segment", bytes,
                     at, segment.silo->stream, pool.is_private() ? "in a private pool" : "in the pool that all share");
}

}  // namespace

void DeviceCache::CountMapped(Segment& segment, char* at, uint64_t bytes) {
  Pool& pool = *segment.silo->blocks->pool;
  const bool is_small = segment.silo->blocks->is_small;
  if (segment.mapped == 0) {
    ++pool.segments;
    stats_.segment.Increase(is_small, 1);
    if (segment.is_oversize) stats_.oversize_segments.Increase(1);
  }
  segment.mapped += bytes;
  stats_.reserved_bytes.Increase(is_small, static_cast<int64_t>(bytes));
  ++stats_.num_device_alloc;
  Trace(segment.is_expandable() ? TraceAction::kSegmentMap : TraceAction::kSegmentAlloc, at, bytes,
        segment.silo->stream, pool, segment.context);
  Note(VerboseEvent::kSegmentAllocated, [&] { return DescribeSegment(segment, at, bytes); });
}

void DeviceCache::CountUnmapped(Segment& segment, char* at, uint64_t bytes) {
  Pool& pool = *segment.silo->blocks->pool;
  const bool is_small = segment.silo->blocks->is_small;
  segment.mapped -= bytes;
  if (segment.mapped == 0) {
    --pool.segments;
    stats_.segment.Decrease(is_small, 1);
    if (segment.is_oversize) stats_.oversize_segments.Decrease(1);
  }
  stats_.reserved_bytes.Decrease(is_small, static_cast<int64_t>(bytes));
  ++stats_.num_device_free;
  Trace(segment.is_expandable() ? TraceAction::kSegmentUnmap : TraceAction::kSegmentFree, at, bytes,
        segment.silo->stream, pool, segment.context);
  Note(VerboseEvent::kSegmentFreed, [&] { return DescribeSegment(segment, at, bytes); });
}

/// Calls the allocators of pools that have their own, without the lock.
void DeviceCache::FreeDoomed(Lock& lock) {
  std::vector<Doomed> doomed;
  doomed.swap(doomed_);
  lock.unlock();
  for (const Doomed& each : doomed) each.options.free(each.base, each.bytes, device_, each.stream);
  doomed.clear();
  lock.lock();
}

}  // namespace reprise::memory
