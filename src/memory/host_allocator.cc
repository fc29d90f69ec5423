// SPDX-License-Identifier: Apache-2.0
#include "memory/host_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "base/log.h"

namespace reprise::memory {
namespace {

constexpr uint64_t kHuge = uint64_t{1} << 60;
constexpr uint64_t kReserveStep = 4 * kKiB;
constexpr size_t kIdleQueues = 4;
constexpr auto kBackgroundPause = std::chrono::microseconds(100);

struct Block;

// Free blocks by size, the one freed last on top: it is the warmest.
class FreeLists {
 public:
  std::vector<Block*>& Of(uint64_t size) {
    return std::has_single_bit(size) ? powers_[static_cast<size_t>(std::countr_zero(size))] : others_[size];
  }
  template <class Take>
  void RemoveIf(Take take) {
    for (std::vector<Block*>& list : powers_) std::erase_if(list, take);
    for (auto it = others_.begin(); it != others_.end();) {
      std::erase_if(it->second, take);
      it = it->second.empty() ? others_.erase(it) : std::next(it);
    }
  }

 private:
  std::array<std::vector<Block*>, 64> powers_;
  std::map<uint64_t, std::vector<Block*>> others_;  // sizes above the limit of rounding
};

// One life of a pool: from its first user to its last block. The default pool has one that never ends.
struct Pool {
  PoolId id;
  int users = 0;
  int64_t blocks = 0;    ///< of it
  int64_t mentions = 0;  ///< blocks that name it as a keeper, allocations that are on their way
  FreeLists free;
  std::vector<Block*> parked;               ///< freed blocks that captured copies of its graphs use
  std::vector<std::function<bool()>> busy;  ///< of graphs that have released it and may still run
  bool asked = false;                       ///< some thread has taken `busy` along to ask

  bool is_over() const { return users == 0 && busy.empty() && !asked; }
};

struct Block {
  char* address = nullptr;
  uint64_t size = 0;
  Pool* pool = nullptr;
  bool is_allocated = false;
  bool is_reserved = false;    ///< part of the reserve segment
  int waits = 0;               ///< once freed: what has to happen before somebody else may have it
  std::vector<void*> streams;  ///< that have used it, without an event behind the use yet
  std::vector<Pool*> keepers;  ///< whose captured copies use it
};

struct PendingEvent {
  void* event;
  Block* block;
};

void Add(Stat& stat, int64_t amount) {
  stat.current += amount;
  (amount > 0 ? stat.allocated : stat.freed) += amount > 0 ? amount : -amount;
  stat.peak = std::max(stat.peak, stat.current);
}

void Add(DurationStat& stat, std::chrono::steady_clock::duration time) {
  const int64_t us = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  stat.min = stat.count == 0 ? us : std::min(stat.min, us);
  stat.max = std::max(stat.max, us);
  stat.total += us;
  ++stat.count;
}

std::string Words(PoolId id) { return fmt::format("({},{})", id.capture, id.handle); }

std::string Bytes(int64_t bytes) {
  if (bytes < static_cast<int64_t>(kMiB)) return fmt::format("{} bytes", bytes);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
}

Status CheckPoolId(PoolId id) {
  if (id.is_default() || (id.capture != 0 && id.handle != 0)) {
    return Error(107000, fmt::format("{} cannot name a private pool", Words(id)))
        .Culprit(fmt::format("pool {}", Words(id)))
        .Hint("exactly one half is not zero: use the id of a graph or of a pool handle");
  }
  return {};
}

}  // namespace

struct HostAllocator::State {
  State(Driver& d, Config c) : driver(d), config(std::move(c)) { default_pool.users = 1; }

  using Lock = std::unique_lock<std::mutex>;
  struct Route {
    Pool* pool;
    StreamFilter filter;
  };

  Driver& driver;
  const Config config;
  // Whether there are routes. Relaxed: a thread that begins a capture sees what it wrote, and how others are brought to
  // allocate in it is order enough.
  std::atomic<int> routed{0};

  mutable std::mutex mutex;
  std::map<uintptr_t, Block> blocks;  ///< by address
  Pool default_pool;
  std::vector<std::unique_ptr<Pool>> pools;                    ///< lives of private pools
  std::map<PoolId, Pool*> living;                              ///< those with users
  std::vector<Route> routes;                                   ///< oldest first
  std::unordered_map<void*, std::deque<PendingEvent>> events;  ///< by stream, in order
  int64_t pending_events = 0;
  std::vector<Block*> unrecorded;  ///< freed blocks whose uses need events as soon as that is allowed
  int64_t to_ask = 0;              ///< pools that have somebody to ask
  int64_t parked_bytes = 0;
  int64_t cached_bytes = 0;
  bool too_large = false;  ///< the default pool has a free block that is too large to be kept
  bool warned = false;
  HostStats stats;

  char* reserve = nullptr;
  uint64_t reserve_used = 0;
  bool reserve_tried = false;

  std::thread worker;
  std::condition_variable work;
  bool worker_tried = false;
  bool stop = false;

  // ------------------------------------------------------------------------------------------------------- lookups

  Block* Find(const void* address) {
    const auto at = reinterpret_cast<uintptr_t>(address);
    auto it = blocks.upper_bound(at);
    if (it == blocks.begin()) return nullptr;
    --it;
    return at < it->first + it->second.size ? &it->second : nullptr;
  }

  Pool* Accepting(void* stream) {
    for (const Route& route : routes) {
      if (route.filter(stream)) return route.pool;
    }
    return nullptr;
  }

  Route* RouteOf(PoolId id) {
    const auto it = std::find_if(routes.begin(), routes.end(), [&](const Route& r) { return r.pool->id == id; });
    return it == routes.end() ? nullptr : &*it;
  }

  // Event work and returning memory are for those whose stream is not being captured.
  bool InCapture() {
    if (routed.load(std::memory_order_relaxed) == 0) return false;
    return driver.CaptureOf(driver.CurrentStream(driver.CurrentDevice())).is_open;
  }

  uint64_t Rounded(uint64_t bytes) const {
    return bytes > config.pinned_max_round_threshold ? bytes : std::bit_ceil(bytes);
  }

  // ------------------------------------------------------------------------------------------------ life of a block

  // Nobody uses the freed block any more.
  void Reuse(Block& block) {
    Add(stats.active_requests, -1);
    Add(stats.active_bytes, -static_cast<int64_t>(block.size));
    cached_bytes += static_cast<int64_t>(block.size);
    block.pool->free.Of(block.size).push_back(&block);
    too_large |= block.size > config.pinned_max_cached_size && block.pool == &default_pool;
  }
  void Done(Block& block) {
    if (--block.waits == 0) Reuse(block);
  }

  void HandOut(Block& block) {
    block.is_allocated = true;
    Add(stats.active_requests, 1);
    Add(stats.active_bytes, static_cast<int64_t>(block.size));
  }

  void DropKeeper(Block& block, Pool* pool) {
    std::erase(block.keepers, pool);
    --pool->mentions;
  }

  Block& Adopt(void* memory, uint64_t size, Pool& pool, bool is_reserved) {
    Block& block = blocks[reinterpret_cast<uintptr_t>(memory)];
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
  void* Disown(Block& block) {
    --block.pool->blocks;
    cached_bytes -= static_cast<int64_t>(block.size);
    Add(stats.allocations, -1);
    Add(stats.allocated_bytes, -static_cast<int64_t>(block.size));
    char* const address = block.address;
    const bool is_reserved = block.is_reserved;
    blocks.erase(reinterpret_cast<uintptr_t>(address));
    return is_reserved ? nullptr : address;
  }

  // --------------------------------------------------------------------------------------------- events and keepers

  // Asks for events behind the uses of freed blocks that nobody else looks at meanwhile. Without the lock: submitting
  // may run other work, which may allocate.
  void RecordEvents(Lock& lock, const std::vector<Block*>& batch) {
    if (batch.empty()) return;
    struct Recorded {
      Block* block;
      void* stream;
      void* event;  ///< null: the stream is gone, and its work with it
    };
    std::vector<Recorded> recorded;
    lock.unlock();
    for (Block* block : batch) {
      std::erase_if(block->streams, [&](void* stream) {
        if (FaultPoint("pinned.event") || driver.CaptureOf(stream).is_open) return false;
        StatusOr<void*> event = driver.RecordEvent(stream);
        if (event.ok()) {
          recorded.push_back({block, stream, *event});
          return true;
        }
        // No such stream any more. Anything else may be better the next time.
        return std::move(event).status().code() == 107017;
      });
    }
    lock.lock();
    for (const Recorded& r : recorded) {
      events[r.stream].push_back({r.event, r.block});
      ++r.block->waits;
      ++pending_events;
    }
    for (Block* block : batch) {
      if (block->streams.empty()) {
        Done(*block);
      } else {
        unrecorded.push_back(block);
      }
    }
    work.notify_one();
  }

  void QueryEvents() {
    if (pending_events == 0) return;
    for (auto it = events.begin(); it != events.end();) {
      std::deque<PendingEvent>& queue = it->second;
      while (!queue.empty() && driver.IsDone(queue.front().event)) {
        driver.ReleaseEvent(queue.front().event);
        Done(*queue.front().block);
        queue.pop_front();
        --pending_events;
      }
      // A few stay for the next time: their memory, and a look at them, cost less than new ones.
      it = queue.empty() && events.size() > kIdleQueues ? events.erase(it) : std::next(it);
    }
  }

  // Asks the graphs that have released their pools whether they have ended.
  void AskGraphs(Lock& lock) {
    if (to_ask == 0) return;
    std::vector<std::pair<Pool*, std::vector<std::function<bool()>>>> asked;
    for (const auto& pool : pools) {
      if (pool->busy.empty() || pool->asked) continue;
      pool->asked = true;
      asked.emplace_back(pool.get(), std::move(pool->busy));
      pool->busy.clear();
    }
    if (asked.empty()) return;
    lock.unlock();
    for (auto& [pool, busy] : asked) std::erase_if(busy, [](const std::function<bool()>& idle) { return idle(); });
    lock.lock();
    for (auto& [pool, busy] : asked) {
      pool->asked = false;
      // Others may have come while the lock was not held.
      std::move(busy.begin(), busy.end(), std::back_inserter(pool->busy));
      if (pool->busy.empty()) --to_ask;
      Settle(*pool);
    }
  }

  // When a life is over, what its graphs used is free.
  void Settle(Pool& pool) {
    if (!pool.is_over()) return;
    for (Block* block : std::exchange(pool.parked, {})) {
      parked_bytes -= static_cast<int64_t>(block->size);
      DropKeeper(*block, &pool);
      Done(*block);
    }
  }

  // All that may have become free. Not in a capture. The lock is given up in between.
  void Reclaim(Lock& lock) {
    AskGraphs(lock);
    if (!unrecorded.empty()) RecordEvents(lock, std::exchange(unrecorded, {}));
    QueryEvents();
  }

  bool HasPending() const { return pending_events != 0 || !unrecorded.empty() || to_ask != 0; }

  // --------------------------------------------------------------------------------------------------------- memory

  StatusOr<void*> TakeMemory(Lock& lock, uint64_t bytes) {
    lock.unlock();
    const auto begin = std::chrono::steady_clock::now();
    StatusOr<void*> memory =
        FaultPoint("pinned.host") ? Error(207001, "fault point cache.host") : driver.AllocateHost(bytes);
    const auto end = std::chrono::steady_clock::now();
    lock.lock();
    if (memory.ok()) {
      ++stats.num_host_alloc;
      Add(stats.host_alloc_time, end - begin);
    }
    return memory;
  }

  void ReturnMemory(Lock& lock, const std::vector<void*>& memory) {
    if (memory.empty()) return;
    lock.unlock();
    std::vector<std::chrono::steady_clock::duration> times;
    for (void* block : memory) {
      const auto begin = std::chrono::steady_clock::now();
      driver.FreeHost(block);
      times.push_back(std::chrono::steady_clock::now() - begin);
    }
    lock.lock();
    for (const auto time : times) {
      ++stats.num_host_free;
      Add(stats.host_free_time, time);
    }
  }

  // The next piece of the reserve segment; null when it has no room, or there is none.
  void* Carve(Lock& lock, uint64_t size) {
    const uint64_t total = config.pinned_reserve_segment_size;
    if (total == 0) return nullptr;
    if (!reserve_tried) {
      reserve_tried = true;
      StatusOr<void*> segment = TakeMemory(lock, total);
      if (segment.ok()) {
        reserve = static_cast<char*>(*segment);
      } else {
        REPRISE_LOG(kWarning, "RUNTIME", "no {} for the reserve of pinned memory: blocks are taken one by one",
                    Bytes(static_cast<int64_t>(total)));
      }
    }
    if (reserve == nullptr || size > total - reserve_used) return nullptr;
    void* const piece = reserve + reserve_used;
    reserve_used += std::min(total - reserve_used, (size + kReserveStep - 1) / kReserveStep * kReserveStep);
    return piece;
  }

  void Trim(Lock& lock, Pool& pool, uint64_t above) {
    std::vector<void*> memory;
    std::vector<Block*> unused;
    pool.free.RemoveIf([&](Block* block) {
      if (block->size <= above || block->is_reserved) return false;
      unused.push_back(block);
      return true;
    });
    for (Block* block : unused) memory.push_back(Disown(*block));
    ReturnMemory(lock, memory);
  }

  void TrimTooLarge(Lock& lock) {
    if (std::exchange(too_large, false)) Trim(lock, default_pool, config.pinned_max_cached_size);
  }

  // The reserve segment stays; once none of it is in use, it is carved from its beginning again.
  void ResetReserve() {
    if (reserve == nullptr || reserve_used == 0) return;
    std::vector<Block*> pieces;
    const auto end = blocks.lower_bound(reinterpret_cast<uintptr_t>(reserve) + config.pinned_reserve_segment_size);
    for (auto it = blocks.lower_bound(reinterpret_cast<uintptr_t>(reserve)); it != end; ++it) {
      if (it->second.is_allocated || it->second.waits != 0) return;
      pieces.push_back(&it->second);
    }
    default_pool.free.RemoveIf([](const Block* block) { return block->is_reserved; });
    for (Block* piece : pieces) Disown(*piece);
    reserve_used = 0;
  }

  void EmptyCache(Lock& lock) {
    Reclaim(lock);
    Trim(lock, default_pool, 0);
    ResetReserve();
    // Trim gives up the lock: mentioned pools stay, and the list may grow behind us.
    for (size_t i = 0; i < pools.size(); ++i) {
      Pool& pool = *pools[i];
      if (pool.users != 0) continue;
      ++pool.mentions;
      Trim(lock, pool, 0);
      --pool.mentions;
    }
    std::erase_if(pools, [](const std::unique_ptr<Pool>& pool) {
      return pool->is_over() && pool->blocks == 0 && pool->mentions == 0;
    });
  }

  // Behind all uses that have no event yet, of live blocks, too. Nobody else calls any more.
  void WaitForStreams() {
    std::vector<void*> streams;
    for (const auto& [address, block] : blocks)
      streams.insert(streams.end(), block.streams.begin(), block.streams.end());
    std::sort(streams.begin(), streams.end());
    streams.erase(std::unique(streams.begin(), streams.end()), streams.end());
    for (void* stream : streams) {
      if (driver.CaptureOf(stream).is_open) continue;
      StatusOr<void*> event = driver.RecordEvent(stream);
      if (!event.ok()) continue;
      driver.Wait(*event);
      driver.ReleaseEvent(*event);
    }
  }

  Status NoRoom(uint64_t bytes, uint64_t size, const Pool& pool, const Status& reason) const {
    int64_t allocated = 0;
    int64_t of_pools = 0;
    std::map<PoolId, int64_t> by_pool;
    for (const auto& [address, block] : blocks) {
      const auto amount = static_cast<int64_t>(block.size);
      if (block.is_allocated) allocated += amount;
      if (block.pool == &default_pool) continue;
      of_pools += amount;
      by_pool[block.pool->id] += amount;
    }
    std::string pools_text;
    if (!by_pool.empty()) {
      const auto most = std::max_element(by_pool.begin(), by_pool.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
      pools_text = fmt::format("; {} of all belong to private pools, most to pool {} ({})", Bytes(of_pools),
                               Words(most->first), Bytes(most->second));
    }
    const int64_t waiting = stats.active_bytes.current - allocated - parked_bytes;
    const char* hint = "free pinned blocks, or take smaller ones";
    if (parked_bytes > 0 && parked_bytes >= waiting) {
      hint = "reset graphs that are no longer needed: their captured copies keep blocks that were freed";
    } else if (waiting > 0) {
      hint = "synchronise the streams that still use blocks that were freed";
    } else if (!routes.empty() && cached_bytes > 0) {
      hint = "empty the cache before the capture begins: within it, cached blocks cannot be returned";
    }
    return Error(207001, fmt::format("out of pinned host memory: tried to take {} for a request of {} bytes ({})",
                                     Bytes(static_cast<int64_t>(size)), bytes, reason.detail().what))
        .Culprit(fmt::format("pool {}; of the pinned memory {} are handed out, {} cached, {} wait for streams, {} are "
                             "kept for captured copies{}",
                             Words(pool.id), Bytes(allocated), Bytes(cached_bytes), Bytes(waiting), Bytes(parked_bytes),
                             pools_text))
        .Hint(hint);
  }

  // ------------------------------------------------------------------------------------------------------ background

  // In the thread of its own, if the settings want one: blocks of which nobody allocates more become free, too.
  void Run() {
    Lock lock(mutex);
    while (!stop) {
      if (!HasPending()) {
        work.wait(lock, [&] { return stop || HasPending(); });
        continue;
      }
      Reclaim(lock);
      TrimTooLarge(lock);
      if (!stop) work.wait_for(lock, kBackgroundPause);
    }
  }

  bool HasWorker() {
    if (!config.pinned_use_background_threads) return false;
    if (!worker_tried) {
      worker_tried = true;
      try {
        if (!FaultPoint("pinned.thread")) worker = std::thread([this] { Run(); });
      } catch (const std::system_error&) {
        REPRISE_LOG(kWarning, "RUNTIME", "no thread for pinned memory: allocations do its work");
      }
    }
    return worker.joinable();
  }
};

HostAllocator::HostAllocator(Driver& driver, Config config)
    : state_(std::make_unique<State>(driver, std::move(config))) {}

HostAllocator::~HostAllocator() {
  State& s = *state_;
  {
    std::lock_guard lock(s.mutex);
    s.stop = true;
  }
  s.work.notify_all();
  if (s.worker.joinable()) s.worker.join();
  s.WaitForStreams();
  for (auto& [stream, queue] : s.events) {
    for (const PendingEvent& pending : queue) {
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
    return Error(207001, fmt::format("{} bytes of pinned memory are more than any host has", bytes))
        .Culprit(fmt::format("a request of {} bytes", bytes))
        .Hint("check how the size was computed: a negative number looks like this");
  }
  const uint64_t size = s.Rounded(bytes);

  const bool is_routed = s.routed.load(std::memory_order_relaxed) != 0;
  void* const stream = is_routed ? s.driver.CurrentStream(s.driver.CurrentDevice()) : nullptr;
  const bool in_capture = is_routed && s.driver.CaptureOf(stream).is_open;

  State::Lock lock(s.mutex);
  Pool* pool = is_routed ? s.Accepting(stream) : nullptr;
  if (pool != nullptr && !in_capture && !s.warned) {
    s.warned = true;
    REPRISE_LOG(kWarning, "RUNTIME", "pinned memory for pool {} is taken on a stream that is not being captured",
                Words(pool->id));
  }
  if (pool == nullptr) pool = &s.default_pool;

  // Until there is a block, the pool must not go.
  ++pool->mentions;
  const auto take = [&]() -> Block* {
    std::vector<Block*>& list = pool->free.Of(size);
    if (list.empty()) return nullptr;
    Block* const block = list.back();
    list.pop_back();
    s.cached_bytes -= static_cast<int64_t>(size);
    return block;
  };
  if (!in_capture && s.HasPending() && !s.HasWorker()) s.Reclaim(lock);
  Block* block = take();
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
  Block* const block = s.Find(address);
  if (block == nullptr || block->address != address) {
    const std::string where = block == nullptr ? "lies in no block of pinned memory"
                                               : fmt::format("lies {} bytes behind the beginning of a block",
                                                             static_cast<char*>(address) - block->address);
    return Error(107000, fmt::format("{} {}", address, where))
        .Culprit(fmt::format("address {}", address))
        .Hint("free the address that Allocate returned");
  }
  if (!block->is_allocated) {
    return Error(107000, fmt::format("the block at {} was freed before", address))
        .Culprit(fmt::format("pinned block {} of {} bytes", address, block->size))
        .Hint("free each block once");
  }
  block->is_allocated = false;
  // One wait for this call, so that nothing that ends meanwhile makes the block free under our hands.
  block->waits = 1;
  for (Pool* keeper : std::vector<Pool*>(block->keepers)) {
    if (keeper->is_over()) {
      s.DropKeeper(*block, keeper);
      continue;
    }
    ++block->waits;
    s.parked_bytes += static_cast<int64_t>(block->size);
    keeper->parked.push_back(block);
  }
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
  std::lock_guard lock(s.mutex);
  Block* const block = s.Find(address);
  if (block == nullptr) return false;
  if (!block->is_allocated) {
    return Error(107000, fmt::format("{} lies in a block that has been freed", address))
        .Culprit(fmt::format("pinned block {} of {} bytes", static_cast<void*>(block->address), block->size))
        .Hint("keep the block until its copy has been queued");
  }
  if (Pool* keeper = captured ? s.Accepting(stream) : nullptr) {
    if (std::find(block->keepers.begin(), block->keepers.end(), keeper) == block->keepers.end()) {
      for (Pool* other : std::vector<Pool*>(block->keepers)) {
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

bool HostAllocator::Owns(const void* address) const {
  std::lock_guard lock(state_->mutex);
  return state_->Find(address) != nullptr;
}

Status HostAllocator::BeginAllocateToPool(PoolId id, StreamFilter filter) {
  REPRISE_RETURN_IF_ERROR(CheckPoolId(id));
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  if (s.RouteOf(id) != nullptr) {
    return Error(107000, fmt::format("pool {} of pinned memory is already recording", Words(id)))
        .Culprit(fmt::format("pool {}", Words(id)))
        .Hint("end the capture that allocates to it first, or give the other one a pool of its own");
  }
  if (FaultPoint("pinned.pool")) {
    return Error(207001, fmt::format("no memory for the records of pool {}", Words(id)))
        .Culprit("fault point cache.pool")
        .Hint("free host memory");
  }
  Pool*& pool = s.living[id];
  if (pool == nullptr) {
    pool = s.pools.emplace_back(std::make_unique<Pool>()).get();
    pool->id = id;
  }
  ++pool->users;
  s.routes.push_back({pool, std::move(filter)});
  s.routed.store(static_cast<int>(s.routes.size()), std::memory_order_relaxed);
  return {};
}

Status HostAllocator::SwapFilter(PoolId id, StreamFilter filter) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  State::Route* const route = s.RouteOf(id);
  if (route == nullptr) {
    return Error(107000, fmt::format("pool {} of pinned memory is not currently recording", Words(id)))
        .Culprit(fmt::format("pool {}", Words(id)))
        .Hint("begin allocating to the pool first");
  }
  route->filter.swap(filter);
  return {};
}

Status HostAllocator::EndAllocateToPool(PoolId id) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  if (s.RouteOf(id) == nullptr) {
    return Error(107000, fmt::format("pool {} of pinned memory is not currently recording", Words(id)))
        .Culprit(fmt::format("pool {}", Words(id)))
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
    return Error(107000, fmt::format("pool {} of pinned memory has no users", Words(id)))
        .Culprit(fmt::format("pool {}", Words(id)))
        .Hint("release a pool once for each time that allocating to it began");
  }
  Pool& pool = *it->second;
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
  std::lock_guard lock(state_->mutex);
  const auto it = state_->living.find(id);
  return it == state_->living.end() ? 0 : it->second->users;
}

HostStats HostAllocator::Stats() const {
  std::lock_guard lock(state_->mutex);
  return state_->stats;
}

void HostAllocator::ResetPeakStats() {
  std::lock_guard lock(state_->mutex);
  HostStats& stats = state_->stats;
  for (Stat* stat : {&stats.allocations, &stats.active_requests, &stats.allocated_bytes, &stats.active_bytes}) {
    stat->peak = stat->current;
  }
}

void HostAllocator::ResetAccumulatedStats() {
  std::lock_guard lock(state_->mutex);
  HostStats& stats = state_->stats;
  for (Stat* stat : {&stats.allocations, &stats.active_requests, &stats.allocated_bytes, &stats.active_bytes}) {
    stat->allocated = stat->freed = 0;
  }
  stats.num_host_alloc = stats.num_host_free = 0;
  stats.host_alloc_time = stats.host_free_time = {};
}

}  // namespace reprise::memory

namespace reprise {

std::vector<std::pair<std::string, int64_t>> HostStats::Flatten() const {
  std::vector<std::pair<std::string, int64_t>> out = {{"num_host_alloc", num_host_alloc},
                                                      {"num_host_free", num_host_free}};
  const auto add_stat = [&](const std::string& name, const Stat& stat) {
    out.emplace_back(name + ".current", stat.current);
    out.emplace_back(name + ".peak", stat.peak);
    out.emplace_back(name + ".allocated", stat.allocated);
    out.emplace_back(name + ".freed", stat.freed);
  };
  add_stat("allocations", allocations);
  add_stat("active_requests", active_requests);
  add_stat("allocated_bytes", allocated_bytes);
  add_stat("active_bytes", active_bytes);
  const auto add_time = [&](const std::string& name, const DurationStat& time) {
    out.emplace_back(name + ".total", time.total);
    out.emplace_back(name + ".max", time.max);
    out.emplace_back(name + ".min", time.min);
    out.emplace_back(name + ".count", time.count);
    out.emplace_back(name + ".avg", time.avg());
  };
  add_time("host_alloc_time", host_alloc_time);
  add_time("host_free_time", host_free_time);
  return out;
}

}  // namespace reprise
