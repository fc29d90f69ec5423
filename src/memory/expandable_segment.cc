// SPDX-License-Identifier: Apache-2.0
//
// Expandable segments: a silo's range of addresses, larger than the device, that gets memory page by page where it is
// needed and loses it where it is free. So memory of any size stays one range, and fragments less.
#include <algorithm>

#include "base/fault.h"
#include "memory/device_cache.h"

namespace reprise::memory {

StatusOr<Block*> DeviceCache::Extend(Request& request) {
  const uint64_t page = request.is_small() ? kSmallSegment : config_.expandable_pages_1g ? kGiB : kLargePage;
  const Silo* silo = request.blocks().Find(request.stream);
  Block* first = silo == nullptr ? nullptr : FindRoom(*silo, request.size, page);
  if (first == nullptr) {
    REPRISE_ASSIGN_OR_RETURN(first, AddRange(request, page));
    if (first == nullptr) return nullptr;
  }
  return Grow(first, request.size, page);
}

/// Where to begin, in the order of addresses: a free or unmapped block with enough of its kind behind it, of which
/// some has no memory yet. Null: none.
Block* DeviceCache::FindRoom(const Silo& silo, uint64_t size, uint64_t page_bytes) const {
  const auto is_room = [](const Block* block) {
    return block != nullptr && (block->use == BlockUse::kFree || block->use == BlockUse::kUnmapped);
  };
  for (Block* hole : silo.unmapped) {
    if (hole->segment->page_bytes != page_bytes) continue;
    Block* const first = is_room(hole->previous) ? hole->previous : hole;
    uint64_t room = 0;
    for (const Block* block = first; is_room(block) && room < size; block = block->next) room += block->size;
    if (room >= size) return first;
  }
  return nullptr;
}

/// A new range, all of it unmapped. Null when there is none, or none large enough.
StatusOr<Block*> DeviceCache::AddRange(const Request& request, uint64_t page_bytes) {
  const uint64_t total = host_.driver.Size(device_).total_bytes;
  const uint64_t bytes = RoundUp(total + total / 8, page_bytes);
  if (request.size > bytes || ExceedsLimit(RoundUp(request.size, page_bytes))) return nullptr;
  if (FaultPoint("allocator.range")) return nullptr;
  auto range = host_.driver.ReserveRange(device_, bytes, page_bytes);
  if (!range.ok()) {
    Status status = std::move(range).status();
    if (status.code() != kOutOfDeviceMemory) return status;
    return nullptr;
  }
  auto segment = std::make_unique<Segment>();
  segment->base = static_cast<char*>(*range);
  segment->bytes = bytes;
  segment->page_bytes = page_bytes;
  segment->silo = request.blocks().FindOrMake(request.stream);
  segment->context = request.context;
  ++segment->silo->segments;
  Block* block = NewBlock();
  block->address = segment->base;
  block->size = bytes;
  block->silo = segment->silo;
  block->segment = segment.get();
  block->use = BlockUse::kUnmapped;
  segment->first = block;
  segment->silo->unmapped.insert(block);
  segments_[segment->base] = std::move(segment);
  return block;
}

/// Makes one taken block of `first` and as much behind it as `size` needs. Null when the device has no room: what was
/// there before, and what could be mapped, is free then.
StatusOr<Block*> DeviceCache::Grow(Block* first, uint64_t size, uint64_t page_bytes) {
  Segment* const segment = first->segment;
  uint64_t more = 0;
  uint64_t seen = 0;
  for (const Block* block = first; seen < size; block = block->next) {
    const bool is_hole = block->use == BlockUse::kUnmapped;
    const uint64_t part = is_hole ? std::min(block->size, RoundUp(size - seen, page_bytes)) : block->size;
    if (is_hole) more += part;
    seen += part;
  }
  Block* grown = nullptr;
  Status failure;
  if (!ExceedsLimit(more)) {
    for (Block* block = first; grown == nullptr || grown->size < size; block = grown->next) {
      if (block->use == BlockUse::kUnmapped) {
        const uint64_t missing = size - (grown == nullptr ? 0 : grown->size);
        failure = Map(block, std::min(block->size, RoundUp(missing, page_bytes)), page_bytes);
        if (!failure.ok()) break;
      } else {
        RemoveFree(block);
      }
      if (grown == nullptr) {
        grown = block;
      } else {
        Absorb(grown, block);
      }
    }
  }
  if (grown != nullptr && grown->size >= size) return grown;
  if (grown != nullptr) InsertFree(grown);
  if (segment->mapped == 0) {
    segment->silo->unmapped.erase(segment->first);
    RemoveSegment(segment);
  }
  if (!failure.ok() && failure.code() != kOutOfDeviceMemory) return failure;
  return nullptr;
}

/// Gives the front of an unmapped block memory: it is taken then, and the rest stays unmapped. Changes nothing when it
/// fails.
Status DeviceCache::Map(Block* block, uint64_t bytes, uint64_t page_bytes) {
  Segment& segment = *block->segment;
  if (FaultPoint("allocator.pages"))
    return Error(kOutOfDeviceMemory, "no room for pages").Hint("free memory of the host");
  REPRISE_RETURN_IF_ERROR(host_.driver.CommitPages(device_, block->address, bytes, page_bytes));
  auto& unmapped = block->silo->unmapped;
  unmapped.erase(block);
  if (bytes < block->size) {
    Block* rest = SplitOff(block, bytes);
    rest->use = BlockUse::kUnmapped;
    unmapped.insert(rest);
  }
  block->use = BlockUse::kTaken;
  block->freed_at = clock_;
  map_.Insert(block->address, block);
  CountMapped(segment, block->address, bytes);
  return {};
}

/// Takes the whole pages of a free block back, and the range when nothing is left in it.
void DeviceCache::Unmap(Block* block) {
  Segment* const segment = block->segment;
  const uint64_t page = segment->page_bytes;
  const auto offset = static_cast<uint64_t>(block->address - segment->base);
  const uint64_t begin = RoundUp(offset, page);
  const uint64_t end = (offset + block->size) / page * page;
  if (begin >= end) return;
  RemoveFree(block);
  if (offset + block->size > end) InsertFree(SplitOff(block, end - offset));
  Block* hole = block;
  if (begin > offset) {
    hole = SplitOff(block, begin - offset);
    InsertFree(block);
  }
  map_.Erase(hole->address);
  host_.driver.DecommitPages(device_, hole->address, hole->size, page);
  hole->use = BlockUse::kUnmapped;
  CountUnmapped(*segment, hole->address, hole->size);
  auto& unmapped = hole->silo->unmapped;
  if (Block* next = hole->next; next != nullptr && next->use == BlockUse::kUnmapped) {
    unmapped.erase(next);
    Absorb(hole, next);
  }
  if (Block* previous = hole->previous; previous != nullptr && previous->use == BlockUse::kUnmapped) {
    unmapped.erase(previous);
    Absorb(previous, hole);
    hole = previous;
  }
  if (segment->mapped == 0) {
    RemoveSegment(segment);
  } else {
    unmapped.insert(hole);
  }
}

}  // namespace reprise::memory
