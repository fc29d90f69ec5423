// SPDX-License-Identifier: Apache-2.0
#include "memory/device_cache.h"

#include <fmt/format.h>

#include <new>

#include "base/fault.h"
#include "base/memory_checker.h"
#include "base/verbose.h"

namespace reprise::memory {

namespace {

constexpr size_t kSlab = 64;
/// What one call may need: a segment, a cut of its addresses, a cut of the block. Releases may need more and get it.
constexpr size_t kSpares = 4;
constexpr size_t kLazyBacklog = 512;

}  // namespace

DeviceCache::DeviceCache(CacheHost& host, int device, const Config& config)
    : host_(host),
      device_(device),
      is_checked_(host.driver.IsMemoryChecked()),
      config_(config),
      fraction_(config.per_process_memory_fraction) {
  uncached_.uncached = true;
  rounds_by_powers_ = RoundsByPowers(config);
  stats_.max_split_size = config.max_split_size == UINT64_MAX ? -1 : static_cast<int64_t>(config.max_split_size);
}

DeviceCache::~DeviceCache() {
  for (auto& [stream, queue] : events_) {
    for (const PendingEvent& pending : queue) host_.driver.ReleaseEvent(pending.event);
  }
  while (!segments_.empty()) {
    Segment* segment = segments_.begin()->second.get();
    char* run = nullptr;  // pages with memory end only where a block does
    for (Block* block = segment->first; block != nullptr; block = block->next) {
      block->context.reset();
      if (block->use == BlockUse::kUnmapped) continue;
      map_.Erase(block->address);
      if (run == nullptr) run = block->address;
      if (block->next != nullptr && block->next->use != BlockUse::kUnmapped) continue;
      if (segment->is_expandable()) {
        host_.driver.DecommitPages(device_, run, static_cast<uint64_t>(block->address + block->size - run),
                                   segment->page_bytes);
      }
      run = nullptr;
    }
    RemoveSegment(segment);
  }
  for (const Doomed& doomed : doomed_) doomed.options.free(doomed.base, doomed.bytes, device_, doomed.stream);
  for (const auto& slab : slabs_) {
    auto* blocks = reinterpret_cast<Block*>(slab.get());
    for (size_t i = 0; i < kSlab; ++i) blocks[i].~Block();
  }
}

// ---- Allocate ----

StatusOr<void*> DeviceCache::Allocate(uint64_t bytes, void* stream, TraceContextPtr context) {
  if (FrontCaches* const front = front_.load(std::memory_order_acquire)) {
    if (void* const block = front->Take(bytes, stream)) return block;
  }
  Request request{.bytes = bytes, .stream = stream, .context = std::move(context)};
  Lock lock(mutex_);
  if (spares_ < kSpares) {
    if (FaultPoint("allocator.block")) {
      return Error(kOutOfDeviceMemory, "NPU out of memory: no host memory is left to describe blocks with")
          .Culprit(fmt::format("request of {} on device {}", Bytes(bytes), device_))
          .Hint("free host memory");
    }
    AddSlab();
  }
  if (HasPending()) {
    if (!config_.multi_stream_lazy_reclaim && !InCaptureContext()) ProcessEvents();
    if (config_.graph_capture_record_stream_reuse && captures_ > 0) FreeJoined(stream);
  }
  request.pool = &default_;
  if (bytes >= kHugeRequest) {
    request.size = bytes;
  } else {
    uint64_t needed = bytes;
    if (is_checked_) [[unlikely]] {
      if (bytes < kMinLargeAlloc) needed += kRedZone;  // above that a segment has one of its own
      if (leaves_open_) CloseFreeBlocks();
    }
    request.size = rounds_by_powers_ ? RoundSize(needed, config_) : RoundUp(needed, kMinBlock);
    if (config_.no_cache && !InCaptureContext()) {
      request.pool = &uncached_;
    } else {
      request.pool = Route(stream);
      if (Block* block = TakeFree(request, *request.pool)) return HandOut(block, request);
    }
    ++request.pool->borrowed;
    auto taken = TakeSlowly(lock, request);
    --request.pool->borrowed;
    if (!taken.ok()) return std::move(taken).status();
    if (*taken != nullptr) return HandOut(*taken, request);
  }
  CallIn();
  ++stats_.num_ooms;
  if (request.rejected) ++stats_.num_oom_rejections;
  const MemoryUse held = Account(request);
  Trace(TraceAction::kOom, reinterpret_cast<void*>(held.device.free_bytes), bytes, stream, *request.pool,
        request.context);
  lock.unlock();
  host_.NotifyOutOfMemory(device_, bytes, held.device);
  return OutOfMemory(held);
}

Block* DeviceCache::TakeFree(const Request& request, Pool& pool) {
  Silo* silo = (request.is_small() ? pool.small : pool.large).Find(request.stream);
  if (silo == nullptr) return nullptr;
  Block** link = silo->free.FindFit(request.size);
  Block* block = *link;
  if (block == nullptr) return nullptr;
  if (request.size < config_.max_split_size) {
    if (block->size >= config_.max_split_size) return nullptr;
  } else if (block->size >= request.size + config_.max_non_split_rounding) {
    return nullptr;
  }
  if (block->size - request.size >= request.size && ShouldSplit(*block, request.size))
    return CutFront(block, request.size);
  silo->free.RemoveAt(link);
  NoteRemoved(block);
  return block;
}

/// Null when there is no room.
StatusOr<Block*> DeviceCache::TakeSlowly(Lock& lock, Request& request) {
  const auto take_free = [&]() -> Block* {
    return request.pool->uncached ? nullptr : TakeFree(request, *request.pool);
  };
  if (CallIn()) {
    if (Block* block = take_free()) return block;
  }
  lock.unlock();
  const bool called_back = host_.RunFreeMemoryCallbacks();
  lock.lock();
  if (called_back) {
    if (Block* block = take_free()) return block;
  }
  request.capturing = InCaptureContext();
  if (config_.multi_stream_lazy_reclaim && !request.capturing && HasPending()) {
    ProcessEvents();
    if (Block* block = take_free()) return block;
  }
  if (config_.garbage_collection_threshold > 0 && !request.capturing) CollectGarbage(lock, request);
  REPRISE_ASSIGN_OR_RETURN(Block * block, AllocBlock(lock, request));
  if (block != nullptr || request.rejected) return block;
  if (!request.pool->is_private() && !request.pool->uncached) {
    for (auto& [id, pool] : pools_) {
      if (pool->use_on_oom && (block = TakeFree(request, *pool)) != nullptr) return block;
    }
  }
  if (request.capturing) return nullptr;
  if (config_.max_split_size != UINT64_MAX) {
    ReleaseOversize(request.size, WaitForDevice(lock));
    RunDoomed(lock);
    REPRISE_ASSIGN_OR_RETURN(block, AllocBlock(lock, request));
    if (block != nullptr || request.rejected) return block;
  }
  ++stats_.num_alloc_retries;
  Note(VerboseEvent::kAllocationRetried, [&] {
    return fmt::format("no room for {} bytes on device {}: unused segments are given back first", request.size,
                       device_);
  });
  const Idle idle = WaitForDevice(lock);
  ProcessEvents();
  ReleaseBlocks(default_.small, idle);
  ReleaseBlocks(default_.large, idle);
  ReleaseUnusedPools({});
  RunDoomed(lock);
  // Others may have taken what was freed, and what was waited for may fit.
  if (Block* waited_for = take_free()) return waited_for;
  return AllocBlock(lock, request);
}

bool DeviceCache::ShouldSplit(const Block& block, uint64_t size) const {
  const Pool& pool = *block.silo->blocks->pool;
  if (pool.no_split || pool.uncached) return false;
  const uint64_t rest = block.size - size;
  if (block.silo->blocks->is_small || block.segment->is_expandable()) return rest >= kMinBlock;
  return size < config_.max_split_size && rest > kSmallSize;
}

/// The user has it.
[[gnu::always_inline]] inline void DeviceCache::NoteLive(Block* block, uint64_t requested) {
  const bool is_small = block->silo->blocks->is_small;
  const auto size = static_cast<int64_t>(block->size);
  if (UsesFront() && stats_.WouldRaisePeak(is_small, size, static_cast<int64_t>(requested))) [[unlikely]]
    CallInForPeak();
  block->use = BlockUse::kLive;
  block->requested = requested;
  stats_.allocation.Increase(is_small, 1);
  stats_.allocated_bytes.Increase(is_small, size);
  stats_.active.Note(stats_.allocation, is_small);
  stats_.active_bytes.Note(stats_.allocated_bytes, is_small);
  stats_.requested_bytes.Increase(is_small, static_cast<int64_t>(requested));
  if (block->size >= config_.max_split_size) {
    block->is_oversize = true;
    stats_.oversize_allocations.Increase(1);
  }
}

void* DeviceCache::HandOut(Block* block, Request& request) {
  if (block->size != request.size && ShouldSplit(*block, request.size)) InsertFree(SplitOff(block, request.size));
  NoteLive(block, request.bytes);
  if (request.bytes <= kMostInFront && request.pool == &default_) {
    block->stream = request.stream;
    block->hold.store(BlockHold::kHeld, std::memory_order_release);
  }
  if (MayBeCaptured(*block)) [[unlikely]]
    captured_blocks_.NoteGiven(host_.driver.MomentInCapture(block->silo->stream), block->address, block->size,
                               block->silo);
  if (is_checked_) [[unlikely]]
    OpenBlock(*block);
  if (trace_.is_on()) {
    block->context = std::move(request.context);
    Trace(TraceAction::kAlloc, block->address, block->size, block->silo->stream, *block->silo->blocks->pool,
          block->context);
  }
  return block->address;
}

// ---- Free ----

Status DeviceCache::Free(Block* block, const void* address, const TraceContextPtr& context) {
  if (FrontCaches* const front = front_.load(std::memory_order_acquire)) {
    if (front->Park(block, address)) return {};
  }
  Lock lock(mutex_);
  bool was_held = false;
  if (block->address != address || block->use != BlockUse::kLive || !Claim(*block, &was_held)) {
    return Error(kInvalidValue, fmt::format("the block at {} was freed before", address))
        .Culprit(fmt::format("block at {} of device {}", address, device_))
        .Hint("free each block once; find the first free in the recorded history");
  }
  if (was_held && OpenFront()) {
    FrontCaches::Taken taken;
    Block* const lost = front_caches_->ParkInNewPlace(block, taken);
    NoteTaken(taken);
    if (lost != block) {
      if (lost != nullptr) FreeParked(lost);
      return {};
    }
  }
  TakeBack(block, context);
  if (MayBeCaptured(*block)) [[unlikely]]
    captured_blocks_.NoteFreed(host_.driver.MomentInCapture(block->silo->stream), block->address,
                               block->uses.empty() ? block->silo : nullptr);
  // Memory that goes back to the device at once must not be in use on its own stream either.
  if (block->silo->blocks->pool->uncached) block->uses.push_back({block->silo->stream});
  if (block->uses.empty()) {
    FreeBlock(block, context);
  } else {
    const bool is_small = block->silo->blocks->is_small;
    stats_.active.Wait(is_small, 1);
    stats_.active_bytes.Wait(is_small, static_cast<int64_t>(block->size));
    FreeWithUses(block);
  }
  RunDoomed(lock);
  return {};
}

/// The user has it no more.
void DeviceCache::TakeBack(Block* block, const TraceContextPtr& context) {
  const bool is_small = block->silo->blocks->is_small;
  stats_.allocation.Decrease(is_small, 1);
  stats_.allocated_bytes.Decrease(is_small, static_cast<int64_t>(block->size));
  if (block->is_oversize) {
    block->is_oversize = false;
    stats_.oversize_allocations.Decrease(1);
  }
  if (trace_.is_on()) {
    Trace(TraceAction::kFreeRequested, block->address, block->size, block->silo->stream, *block->silo->blocks->pool,
          context != nullptr ? context : block->context);
  }
  block->use = BlockUse::kWaiting;
  block->hold.store(BlockHold::kNone, std::memory_order_relaxed);
  block->freed_at = ++clock_;
}

uint64_t DeviceCache::SizeOf(const Block* block, const void* address) {
  Lock lock(mutex_);
  if (block->address != address || block->use != BlockUse::kLive) return 0;
  return block->hold.load(std::memory_order_relaxed) == BlockHold::kParked ? 0 : block->size;
}

/// No stream uses it any more.
void DeviceCache::FreeBlock(Block* block, const TraceContextPtr& context) {
  Silo& silo = *block->silo;
  const bool is_small = silo.blocks->is_small;
  stats_.requested_bytes.Decrease(is_small, static_cast<int64_t>(block->requested));
  if (trace_.is_on()) {
    Trace(TraceAction::kFreeCompleted, block->address, block->size, silo.stream, *silo.blocks->pool,
          context != nullptr ? context : block->context);
  }
  if (is_checked_) [[unlikely]]
    CloseBlock(*block);
  if (block->context) block->context.reset();
  block->requested = 0;
  if (silo.blocks->pool->uncached) {
    block->use = BlockUse::kTaken;
    map_.Erase(block->address);
    RemoveSegment(block->segment);
    return;
  }
  InsertFree(block);
}

/// Makes one free block of it and its free neighbours: the neighbour grows, so that the tree mostly stays as it is.
void DeviceCache::InsertFree(Block* block) {
  Silo& silo = *block->silo;
  Block* const previous = block->previous;
  Block* const next = block->next;
  const bool with_previous = previous != nullptr && previous->use == BlockUse::kFree;
  const bool with_next = next != nullptr && next->use == BlockUse::kFree;
  // Neighbours are parts of a split segment.
  int64_t parts = 0;
  int64_t bytes = 0;
  if (with_previous) ++parts, bytes += static_cast<int64_t>(previous->size);
  if (with_next) ++parts, bytes += static_cast<int64_t>(next->size);
  Block* whole = block;
  if (with_previous) {
    whole = previous;
    if (with_next) silo.free.Remove(next);
    silo.free.Grow(previous, previous->address, previous->size + block->size + (with_next ? next->size : 0));
    Swallow(previous, block);
    if (with_next) Swallow(previous, next);
  } else if (with_next) {
    whole = next;
    map_.Erase(next->address);
    map_.Replace(block->address, next);
    silo.free.Grow(next, block->address, block->size + next->size);
    next->freed_at = std::max(next->freed_at, block->freed_at);
    next->previous = previous;
    (previous != nullptr ? previous->next : next->segment->first) = next;
    Discard(block);
  } else {
    block->use = BlockUse::kFree;
    silo.free.Insert(block);
  }
  if (whole->segment->is_expandable()) return;
  const bool is_split = whole->is_split();
  CountSplit(silo.blocks->is_small, (is_split ? 1 : 0) - parts,
             (is_split ? static_cast<int64_t>(whole->size) : 0) - bytes);
}

/// Takes the front of a free block, of which more than that stays: it keeps its place in the tree, since all before it
/// are smaller than what was taken.
Block* DeviceCache::CutFront(Block* block, uint64_t size) {
  const bool was_split = block->is_split();
  Block* front = NewBlock();
  front->address = block->address;
  front->size = size;
  front->silo = block->silo;
  front->segment = block->segment;
  front->freed_at = block->freed_at;
  front->use = BlockUse::kTaken;
  front->previous = block->previous;
  (front->previous != nullptr ? front->previous->next : front->segment->first) = front;
  front->next = block;
  block->previous = front;
  map_.Replace(front->address, front);
  block->address += size;
  block->size -= size;
  map_.Insert(block->address, block);
  if (!block->segment->is_expandable()) {
    CountSplit(block->silo->blocks->is_small, was_split ? 0 : 1,
               was_split ? -static_cast<int64_t>(size) : static_cast<int64_t>(block->size));
  }
  return front;
}

void DeviceCache::CountSplit(bool is_small, int64_t blocks, int64_t bytes) {
  if (blocks > 0) stats_.inactive_split.Increase(is_small, blocks);
  if (blocks < 0) stats_.inactive_split.Decrease(is_small, -blocks);
  if (bytes > 0) stats_.inactive_split_bytes.Increase(is_small, bytes);
  if (bytes < 0) stats_.inactive_split_bytes.Decrease(is_small, -bytes);
}

/// The block has left the tree.
void DeviceCache::NoteRemoved(Block* block) {
  block->use = BlockUse::kTaken;
  if (block->is_split() && !block->segment->is_expandable()) {
    CountSplit(block->silo->blocks->is_small, -1, -static_cast<int64_t>(block->size));
  }
}

// ---- Back to a state ----

/// The segment is one free block; it becomes what `state` says.
void DeviceCache::CutAs(Segment& segment, const PoolState::Segment& state, PoolChange& change) {
  Block* block = segment.first;
  RemoveFree(block);
  for (size_t i = 0; i + 1 < state.blocks.size(); ++i) block = SplitOff(block, state.blocks[i].size);
  std::vector<Block*> free;
  block = segment.first;
  for (const PoolState::Block& wanted : state.blocks) {
    Block* const next = block->next;
    if (wanted.is_live) {
      NoteLive(block, wanted.requested);
      if (is_checked_) OpenBlock(*block);
      Trace(TraceAction::kAlloc, block->address, block->size, segment.silo->stream, *segment.silo->blocks->pool,
            nullptr);
      change.taken.push_back(wanted.address);
    } else {
      free.push_back(block);
    }
    block = next;
  }
  for (Block* const each : free) InsertFree(each);  // no two of them are neighbours
}

// ---- Blocks ----

/// Keeps the first `size` bytes; returns a block of the rest, taken.
Block* DeviceCache::SplitOff(Block* block, uint64_t size) {
  Block* rest = NewBlock();
  rest->address = block->address + size;
  rest->size = block->size - size;
  rest->silo = block->silo;
  rest->segment = block->segment;
  rest->freed_at = block->freed_at;
  rest->use = BlockUse::kTaken;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest;
  block->next = rest;
  block->size = size;
  if (block->use != BlockUse::kUnmapped) map_.Insert(rest->address, rest);
  return rest;
}

/// Both are side by side and of one kind, and none is in the tree.
void DeviceCache::Absorb(Block* block, Block* next) {
  block->size += next->size;
  Swallow(block, next);
}

/// `block` has the size of both already.
void DeviceCache::Swallow(Block* block, Block* next) {
  block->freed_at = std::max(block->freed_at, next->freed_at);
  block->next = next->next;
  if (block->next != nullptr) block->next->previous = block;
  if (block->use != BlockUse::kUnmapped) map_.Erase(next->address);
  Discard(next);
}

Block* DeviceCache::NewBlock() {
  if (spare_ == nullptr) AddSlab();
  Block* block = spare_;
  spare_ = block->next;
  --spares_;
  block->next = nullptr;
  return block;
}

void DeviceCache::Discard(Block* block) {
  block->use = BlockUse::kSpare;
  block->address = nullptr;
  block->previous = nullptr;
  block->segment = nullptr;
  block->silo = nullptr;
  block->freed_at = 0;
  block->next = spare_;
  spare_ = block;
  ++spares_;
}

void DeviceCache::AddSlab() {
  static_assert(alignof(Block) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
  slabs_.push_back(std::make_unique<std::byte[]>(kSlab * sizeof(Block)));
  for (size_t i = 0; i < kSlab; ++i) {
    auto* block = new (slabs_.back().get() + i * sizeof(Block)) Block(this);
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    block->priority = static_cast<uint32_t>(random_ >> 32);
    Discard(block);
  }
}

}  // namespace reprise::memory
