// SPDX-License-Identifier: Apache-2.0
#include "memory/host_state.h"

#include <fmt/format.h>

#include <system_error>

#include "base/fault.h"
#include "base/log.h"

namespace reprise::memory {
namespace {

constexpr uint64_t kReserveStep = 4 * kKiB;
constexpr size_t kIdleQueues = 4;
constexpr auto kBackgroundPause = std::chrono::microseconds(100);

std::string Bytes(int64_t bytes) {
  if (bytes < static_cast<int64_t>(kMiB)) return fmt::format("{} bytes", bytes);
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
}

}  // namespace

std::string HostPoolName(PoolId id) { return fmt::format("({},{})", id.capture, id.handle); }

void HostAllocator::State::RecordEvents(Lock& lock, const std::vector<HostBlock*>& batch) {
  if (batch.empty()) return;
  struct Recorded {
    HostBlock* block;
    void* stream;
    void* event;
  };
  std::vector<Recorded> recorded;
  lock.unlock();
  for (HostBlock* block : batch) {
    std::erase_if(block->streams, [&](void* stream) {
      if (FaultPoint("pinned.event") || driver.CaptureOf(stream).is_open) return false;
      StatusOr<void*> event = driver.RecordEvent(stream);
      if (event.ok()) {
        recorded.push_back({block, stream, *event});
        return true;
      }
      // No such stream any more. Anything else may be better the next time.
      return std::move(event).status().code() == kInvalidHandle;
    });
  }
  lock.lock();
  for (const Recorded& r : recorded) {
    events[r.stream].push_back({r.event, r.block});
    ++r.block->waits;
    ++pending_events;
  }
  for (HostBlock* block : batch) {
    if (block->streams.empty()) {
      Done(*block);
    } else {
      unrecorded.push_back(block);
    }
  }
  work.notify_one();
}

void HostAllocator::State::QueryEvents() {
  if (pending_events == 0) return;
  for (auto it = events.begin(); it != events.end();) {
    std::deque<HostEvent>& queue = it->second;
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

void HostAllocator::State::AskGraphs(Lock& lock) {
  if (to_ask == 0) return;
  std::vector<std::pair<HostPool*, std::vector<std::function<bool()>>>> asked;
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

void HostAllocator::State::Settle(HostPool& pool) {
  if (!pool.is_over()) return;
  for (HostBlock* block : std::exchange(pool.parked, {})) {
    DropKeeper(*block, &pool);
    if (block->keepers.empty()) parked_bytes -= static_cast<int64_t>(block->size);
    Done(*block);
  }
}

StatusOr<void*> HostAllocator::State::TakeMemory(Lock& lock, uint64_t bytes) {
  lock.unlock();
  const auto begin = std::chrono::steady_clock::now();
  StatusOr<void*> memory =
      FaultPoint("pinned.host") ? Error(kOutOfDeviceMemory, "fault point pinned.host") : driver.AllocateHost(bytes);
  const auto end = std::chrono::steady_clock::now();
  lock.lock();
  if (memory.ok()) {
    ++stats.num_host_alloc;
    Add(stats.host_alloc_time, end - begin);
  }
  return memory;
}

void HostAllocator::State::ReturnMemory(Lock& lock, const std::vector<void*>& memory) {
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

void* HostAllocator::State::Carve(Lock& lock, uint64_t size) {
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

void HostAllocator::State::Trim(Lock& lock, HostPool& pool, uint64_t above) {
  std::vector<void*> memory;
  std::vector<HostBlock*> unused;
  pool.free.RemoveIf([&](HostBlock* block) {
    if (block->size <= above || block->is_reserved) return false;
    unused.push_back(block);
    return true;
  });
  for (HostBlock* block : unused) memory.push_back(Disown(*block));
  ReturnMemory(lock, memory);
}

void HostAllocator::State::ResetReserve() {
  if (reserve == nullptr || reserve_used == 0) return;
  std::vector<HostBlock*> pieces;
  const auto end = blocks.lower_bound(reinterpret_cast<uintptr_t>(reserve) + config.pinned_reserve_segment_size);
  for (auto it = blocks.lower_bound(reinterpret_cast<uintptr_t>(reserve)); it != end; ++it) {
    if (it->second.is_allocated || it->second.waits != 0) return;
    pieces.push_back(&it->second);
  }
  default_pool.free.RemoveIf([](const HostBlock* block) { return block->is_reserved; });
  for (HostBlock* piece : pieces) Disown(*piece);
  reserve_used = 0;
}

void HostAllocator::State::EmptyCache(Lock& lock) {
  Reclaim(lock);
  Trim(lock, default_pool, 0);
  ResetReserve();
  // Trim gives up the lock: mentioned pools stay, and the list may grow behind us.
  for (size_t i = 0; i < pools.size(); ++i) {
    HostPool& pool = *pools[i];
    if (pool.users != 0) continue;
    ++pool.mentions;
    Trim(lock, pool, 0);
    --pool.mentions;
  }
  std::erase_if(pools, [](const std::unique_ptr<HostPool>& pool) {
    return pool->is_over() && pool->blocks == 0 && pool->mentions == 0;
  });
}

void HostAllocator::State::WaitForStreams() {
  std::vector<void*> streams;
  for (const auto& [address, block] : blocks) streams.insert(streams.end(), block.streams.begin(), block.streams.end());
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

Status HostAllocator::State::NoRoom(uint64_t bytes, uint64_t size, const HostPool& pool, const Status& reason) const {
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
                             HostPoolName(most->first), Bytes(most->second));
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
  return Error(kOutOfDeviceMemory,
               fmt::format("out of pinned host memory: tried to take {} for a request of {} bytes ({})",
                           Bytes(static_cast<int64_t>(size)), bytes, reason.detail().what))
      .Culprit(fmt::format("pool {}; of the pinned memory {} are handed out, {} cached, {} wait for streams, {} are "
                           "kept for captured copies{}",
                           HostPoolName(pool.id), Bytes(allocated), Bytes(cached_bytes), Bytes(waiting),
                           Bytes(parked_bytes), pools_text))
      .Hint(hint);
}

void HostAllocator::State::Run() {
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

bool HostAllocator::State::HasWorker() {
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
