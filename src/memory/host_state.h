// SPDX-License-Identifier: Apache-2.0
//
// What the allocator of pinned memory consists of: blocks, lives of pools, events. Only for its own sources.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/condition_variable.h"
#include "base/mutex.h"
#include "base/status.h"
#include "memory/config.h"
#include "memory/driver.h"
#include "memory/host_allocator.h"
#include "reprise/memory_types.h"

namespace reprise::memory {

struct HostBlock;

// Free blocks by size, the one freed last on top: it is the warmest.
class HostFreeLists {
 public:
  std::vector<HostBlock*>& Of(uint64_t size) {
    // Not has_single_bit, which is a call where the processor may lack the instruction.
    return (size & (size - 1)) == 0 ? powers_[static_cast<size_t>(std::countr_zero(size))] : others_[size];
  }
  template <class Take>
  void RemoveIf(Take take) {
    for (std::vector<HostBlock*>& list : powers_) std::erase_if(list, take);
    for (auto it = others_.begin(); it != others_.end();) {
      std::erase_if(it->second, take);
      it = it->second.empty() ? others_.erase(it) : std::next(it);
    }
  }

 private:
  std::array<std::vector<HostBlock*>, 64> powers_;
  std::map<uint64_t, std::vector<HostBlock*>> others_;  // sizes above the limit of rounding
};

// One life of a pool: from its first user to its last block. The default pool has one that never ends.
struct HostPool {
  PoolId id;
  int users = 0;
  int64_t blocks = 0;    ///< of it
  int64_t mentions = 0;  ///< blocks that name it as a keeper, allocations that are on their way
  HostFreeLists free;
  std::vector<HostBlock*> parked;           ///< freed blocks that captured copies of its graphs use
  std::vector<std::function<bool()>> busy;  ///< of graphs that have released it and may still run
  bool asked = false;                       ///< a thread has taken `busy` and asks

  bool is_over() const { return users == 0 && busy.empty() && !asked; }
};

struct HostBlock {
  char* address = nullptr;
  uint64_t size = 0;
  HostPool* pool = nullptr;
  bool is_allocated = false;
  bool is_reserved = false;        ///< part of the reserve segment
  int waits = 0;                   ///< once freed: events and graphs that must end before it is given out again
  std::vector<void*> streams;      ///< that have used it, without an event behind the use yet
  std::vector<HostPool*> keepers;  ///< whose captured copies use it
};

struct HostEvent {
  void* event;
  HostBlock* block;
};

/// For messages.
std::string HostPoolName(PoolId id);

struct HostAllocator::State {
  State(Driver& d, Config c)
      : driver(d),
        config(std::move(c)),
        max_round(config.pinned_max_round_threshold),
        max_cached(config.pinned_max_cached_size) {
    default_pool.users = 1;
  }

  using Lock = UniqueLock<Mutex>;
  struct Route {
    HostPool* pool;
    StreamFilter filter;
  };

  Driver& driver;
  const Config config;              ///< as made; what may change stands below
  std::atomic<uint64_t> max_round;  ///< read without the lock: a request goes by the old limit or by the new one
  // Whether there are routes. Relaxed: a thread that begins a capture sees what it wrote, and how others are brought to
  // allocate in it is order enough.
  std::atomic<int> routed{0};

  mutable Mutex mutex;
  std::map<uintptr_t, HostBlock> blocks;  ///< by address
  HostPool default_pool;
  std::vector<std::unique_ptr<HostPool>> pools;             ///< lives of private pools
  std::map<PoolId, HostPool*> living;                       ///< those with users
  std::vector<Route> routes;                                ///< oldest first
  std::unordered_map<void*, std::deque<HostEvent>> events;  ///< by stream, in order
  int64_t pending_events = 0;
  std::vector<HostBlock*> unrecorded;  ///< freed blocks whose uses need events as soon as that is allowed
  int64_t to_ask = 0;                  ///< pools that have somebody to ask
  int64_t parked_bytes = 0;
  int64_t cached_bytes = 0;
  uint64_t max_cached;
  bool too_large = false;  ///< the default pool has a free block that is too large to be kept
  bool warned = false;
  HostStats stats;

  char* reserve = nullptr;
  uint64_t reserve_used = 0;
  bool reserve_tried = false;

  std::thread worker;
  ConditionVariable work;
  bool worker_tried = false;
  bool stop = false;

  static void Add(Stat& stat, int64_t amount) {
    stat.current += amount;
    (amount > 0 ? stat.allocated : stat.freed) += amount > 0 ? amount : -amount;
    stat.peak = std::max(stat.peak, stat.current);
  }

  static void Add(DurationStat& stat, std::chrono::steady_clock::duration time) {
    const int64_t us = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
    stat.min = stat.count == 0 ? us : std::min(stat.min, us);
    stat.max = std::max(stat.max, us);
    stat.total += us;
    ++stat.count;
  }

  // ---- Lookups ----

  HostBlock* Find(const void* address) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    auto it = blocks.upper_bound(at);
    if (it == blocks.begin()) return nullptr;
    --it;
    return at < it->first + it->second.size ? &it->second : nullptr;
  }

  HostPool* Accepting(void* stream) {
    for (const Route& route : routes) {
      if (route.filter(stream)) return route.pool;
    }
    return nullptr;
  }

  Route* RouteOf(PoolId id) {
    const auto it = std::find_if(routes.begin(), routes.end(), [&](const Route& r) { return r.pool->id == id; });
    return it == routes.end() ? nullptr : &*it;
  }

  // Whether the calling thread's current stream is being captured: then it neither records events nor returns memory.
  bool InCapture() {
    if (routed.load(std::memory_order_relaxed) == 0) return false;
    return driver.CaptureOf(driver.CurrentStream(driver.CurrentDevice())).is_open;
  }

  uint64_t Rounded(uint64_t bytes) const {
    return bytes > max_round.load(std::memory_order_relaxed) ? bytes : std::bit_ceil(bytes);
  }

  // ---- Life of a block ----

  // No stream uses the freed block any more.
  void Reuse(HostBlock& block) {
    Add(stats.active_requests, -1);
    Add(stats.active_bytes, -static_cast<int64_t>(block.size));
    cached_bytes += static_cast<int64_t>(block.size);
    block.pool->free.Of(block.size).push_back(&block);
    too_large |= block.size > max_cached && block.pool == &default_pool;
  }
  void Done(HostBlock& block) {
    if (--block.waits == 0) Reuse(block);
  }

  void HandOut(HostBlock& block) {
    block.is_allocated = true;
    Add(stats.active_requests, 1);
    Add(stats.active_bytes, static_cast<int64_t>(block.size));
  }

  void DropKeeper(HostBlock& block, HostPool* pool) {
    std::erase(block.keepers, pool);
    --pool->mentions;
  }

  HostBlock& Adopt(void* memory, uint64_t size, HostPool& pool, bool is_reserved) {
    HostBlock& block = blocks[reinterpret_cast<uintptr_t>(memory)];
    block.address = static_cast<char*>(memory);
    block.size = size;
    block.pool = &pool;
    block.is_reserved = is_reserved;
    ++pool.blocks;
    Add(stats.allocations, 1);
    Add(stats.allocated_bytes, static_cast<int64_t>(size));
    return block;
  }

  // The block is on no list any more. Its memory, if it is to be returned to the driver.
  void* Disown(HostBlock& block) {
    --block.pool->blocks;
    cached_bytes -= static_cast<int64_t>(block.size);
    Add(stats.allocations, -1);
    Add(stats.allocated_bytes, -static_cast<int64_t>(block.size));
    char* const address = block.address;
    const bool is_reserved = block.is_reserved;
    blocks.erase(reinterpret_cast<uintptr_t>(address));
    return is_reserved ? nullptr : address;
  }

  // ---- Events and keepers ----

  // Records events behind the uses of freed blocks, which no other thread looks at meanwhile. Without the lock:
  // submitting may run other work, which may allocate.
  void RecordEvents(Lock& lock, const std::vector<HostBlock*>& batch) REPRISE_NOT_ANALYSED;
  void QueryEvents();
  // Asks the graphs that have released their pools whether they have ended.
  void AskGraphs(Lock& lock) REPRISE_NOT_ANALYSED;
  // At the end of a pool's life, the blocks that its graphs used become free.
  void Settle(HostPool& pool);
  // Frees all blocks that may have become free. Not in a capture. The lock is given up in between.
  void Reclaim(Lock& lock) {
    AskGraphs(lock);
    if (!unrecorded.empty()) RecordEvents(lock, std::exchange(unrecorded, {}));
    QueryEvents();
  }

  bool HasPending() const { return pending_events != 0 || !unrecorded.empty() || to_ask != 0; }

  // ---- Memory ----

  StatusOr<void*> TakeMemory(Lock& lock, uint64_t bytes) REPRISE_NOT_ANALYSED;
  void ReturnMemory(Lock& lock, const std::vector<void*>& memory) REPRISE_NOT_ANALYSED;
  // The next piece of the reserve segment; null when it has no room, or there is none.
  void* Carve(Lock& lock, uint64_t size);
  void Trim(Lock& lock, HostPool& pool, uint64_t above);
  void TrimTooLarge(Lock& lock) {
    if (std::exchange(too_large, false)) Trim(lock, default_pool, max_cached);
  }

  // The reserve segment stays; once none of it is in use, it is carved from its beginning again.
  void ResetReserve();
  void EmptyCache(Lock& lock);
  // Waits for all uses that have no event yet, of live blocks, too. No other thread calls any more.
  void WaitForStreams();
  Status NoRoom(uint64_t bytes, uint64_t size, const HostPool& pool, const Status& reason) const;

  // ---- Background ----

  // Body of the background thread, if the settings ask for one: it frees blocks also when no thread allocates.
  void Run();
  bool HasWorker();
};

}  // namespace reprise::memory
