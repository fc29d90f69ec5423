// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <vector>

#include "base/fault.h"
#include "base/memory_checker.h"
#include "base/mutex.h"
#include "device/memory.h"
#include "device/parked_memory.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/stream.h"

namespace reprise::runtime {

struct MemoryPool::Block {
  MemoryPool* pool;
  uint64_t bytes;
  bool idle = false;
  const void* stream = nullptr;     // handle of the stream that gave it back
  EventRecord* returned = nullptr;  // done when the work in front of the return has run; one reference

  bool free_for_all() const { return returned == nullptr || returned->done(); }
};

struct MemoryPool::All {
  Mutex mutex;
  std::map<void*, Block> blocks REPRISE_GUARDED_BY(mutex);
  std::vector<MemoryPool*> pools REPRISE_GUARDED_BY(mutex);
  std::atomic<uint32_t> count{0};  // of pools: a synchronisation without pools costs one load
  int32_t next_id REPRISE_GUARDED_BY(mutex) = 0;
};

namespace {

constexpr uint64_t kGranule = 512;

// A block may be larger than what is asked for by this factor; otherwise the waste would be.
constexpr uint64_t kMostWaste = 2;

void Drop(EventRecord*& record) {
  if (record != nullptr) record->Release();
  record = nullptr;
}

// Where memory is checked: the program has the first `asked` of the block's bytes. What is in flight may use all that
// earlier owners had, so nothing is closed then.
void HandToProgram(void* block, uint64_t asked, uint64_t bytes) {
  if (!IsMemoryChecked()) [[likely]]
    return;
  AllowAccess(block, asked);
  if (!device::ParkedMemory::Get().InFlight()) ForbidAccess(static_cast<char*>(block) + asked, bytes - asked);
}
void TakeFromProgram(void* block, uint64_t bytes) {
  if (IsMemoryChecked() && !device::ParkedMemory::Get().InFlight()) ForbidAccess(block, bytes);
}

}  // namespace

MemoryPool::All& MemoryPool::TheAll() {
  static auto* const all = new All;
  return *all;
}

HandleTable<MemoryPool, HandleKind::kMemoryPool>& MemoryPools() {
  return TheTable<MemoryPool, HandleKind::kMemoryPool>();
}

StatusOr<MemoryPool*> MemoryPool::Create(Device& device, uint64_t most_bytes) {
  auto* const pool = new MemoryPool(device.id(), most_bytes);
  pool->handle_ = FaultPoint("memory.pool") ? nullptr : MemoryPools().Insert(pool);
  if (pool->handle_ == nullptr) {
    delete pool;
    return Error(kResourceExhausted, "the process has too many memory pools")
        .Hint("destroy pools that are no longer needed with aclrtMemPoolDestroy");
  }
  All& all = TheAll();
  MutexLock lock(all.mutex);
  pool->id_ = all.next_id++;
  all.pools.push_back(pool);
  all.count.fetch_add(1);
  return pool;
}

bool MemoryPool::Destroy(MemoryPool* pool) {
  if (MemoryPools().Erase(pool->handle_, &pool->birth_) == nullptr) return false;
  All& all = TheAll();
  MutexLock lock(all.mutex);
  pool->destroyed_ = true;
  pool->TrimLocked(all, 0);
  pool->DeleteIfEmpty(all);
  return true;
}

// Only a destroyed pool goes, with its last block.
void MemoryPool::DeleteIfEmpty(All& all) {
  if (!destroyed_ || reserved_ != 0) return;
  std::erase(all.pools, this);
  all.count.fetch_sub(1);
  Retire(this, Free, birth_, false);
}

std::string MemoryPool::Describe() const { return fmt::format("memory pool {} of device {}", id_, device_); }

StatusOr<void*> MemoryPool::Take(Stream& stream, uint64_t bytes) {
  if (bytes > uint64_t{PTRDIFF_MAX})
    return Error(kOutOfDeviceMemory, fmt::format("{} cannot hold {} bytes", Describe(), bytes))
        .Hint("pass the size of the block in bytes; no block is larger than the device's memory");
  const uint64_t asked = bytes;
  bytes = (bytes + kGranule - 1) / kGranule * kGranule;
  All& all = TheAll();
  MutexLock lock(all.mutex);
  if (destroyed_)
    return Error(kInvalidHandle, fmt::format("{} was destroyed by another thread meanwhile", Describe()))
        .Hint("destroy a pool only when no other thread uses it");
  const auto take = [&](auto it) {
    Block& block = it->second;
    block.idle = false;
    Drop(block.returned);
    used_ += block.bytes;
    used_most_ = std::max(used_most_, used_);
    HandToProgram(it->first, asked, block.bytes);
    return it->first;
  };
  // Best fit among blocks that need no waiting; then among those that need it.
  auto best = all.blocks.end(), waiting = all.blocks.end();
  for (auto it = all.blocks.begin(); it != all.blocks.end(); ++it) {
    const Block& block = it->second;
    if (block.pool != this || !block.idle || block.bytes < bytes || block.bytes > kMostWaste * bytes) continue;
    const bool ready = block.stream == stream.handle() || (opportunistic_ && block.free_for_all());
    auto& candidate = ready ? best : waiting;
    if (candidate == all.blocks.end() || block.bytes < candidate->second.bytes) candidate = it;
  }
  if (best != all.blocks.end()) return take(best);
  if (waiting != all.blocks.end() && internal_dependencies_) {
    REPRISE_RETURN_IF_ERROR(WaitForPoint(stream, *waiting->second.returned));
    return take(waiting);
  }
  if (most_bytes_ != 0 && (bytes > most_bytes_ || reserved_ > most_bytes_ - bytes)) {
    TrimLocked(all, bytes > most_bytes_ ? 0 : most_bytes_ - bytes);
    if (bytes > most_bytes_ || reserved_ > most_bytes_ - bytes) {
      return Error(kOutOfDeviceMemory, fmt::format("{} has no room for {} bytes: {} of {} bytes are reserved",
                                                   Describe(), bytes, reserved_, most_bytes_))
          .Culprit(fmt::format("{} bytes that are in use", used_))
          .Hint("give blocks back with aclrtMemPoolFreeAsync, or create the pool with a larger maxSize");
    }
  }
  auto fresh = device::MemoryRegistry::Get().AllocateDevice(device_, bytes, 4096, true);
  if (!fresh.ok()) {
    const uint64_t before = reserved_;
    TrimLocked(all, 0);  // what lies idle here may be what is missing
    if (reserved_ == before) return std::move(fresh).status();
    fresh = device::MemoryRegistry::Get().AllocateDevice(device_, bytes, 4096, true);
    if (!fresh.ok()) return std::move(fresh).status();
  }
  reserved_ += bytes;
  reserved_most_ = std::max(reserved_most_, reserved_);
  used_ += bytes;
  used_most_ = std::max(used_most_, used_);
  all.blocks.emplace(*fresh, Block{this, bytes});
  if (IsMemoryChecked()) ForbidAccess(static_cast<char*>(*fresh) + asked, bytes - asked);
  return *fresh;
}

Status MemoryPool::GiveBack(void* pointer, Stream& stream) {
  All& all = TheAll();
  MutexLock lock(all.mutex);
  const auto it = all.blocks.find(pointer);
  if (it == all.blocks.end() || it->second.idle) {
    return Error(kInvalidValue, it == all.blocks.end()
                                    ? fmt::format("{} is no block of a memory pool: it {}", fmt::ptr(pointer),
                                                  device::MemoryRegistry::Get().Explain(pointer))
                                    : fmt::format("{} was given back already", fmt::ptr(pointer)))
        .Culprit("parameter ptr")
        .Hint("pass a pointer that aclrtMemPoolMallocAsync gave, once");
  }
  Block& block = it->second;
  REPRISE_ASSIGN_OR_RETURN(block.returned, RecordPoint(stream));
  block.idle = true;
  block.stream = stream.handle();
  TakeFromProgram(pointer, block.bytes);
  MemoryPool& pool = *block.pool;
  pool.used_ -= block.bytes;
  if (pool.destroyed_) {
    pool.TrimLocked(all, 0);
    pool.DeleteIfEmpty(all);
  }
  return {};
}

// Blocks whose work has not run stay: their memory is in use until then.
void MemoryPool::TrimLocked(All& all, uint64_t keep) {
  for (auto it = all.blocks.begin(); it != all.blocks.end() && reserved_ > std::max(keep, used_);) {
    Block& block = it->second;
    if (block.pool != this || !block.idle || !block.free_for_all()) {
      ++it;
      continue;
    }
    Drop(block.returned);
    (void)device::MemoryRegistry::Get().Free(it->first, device::MemoryKind::kDevice, true);
    reserved_ -= block.bytes;
    it = all.blocks.erase(it);
  }
}

void MemoryPool::TrimTo(uint64_t keep) {
  All& all = TheAll();
  MutexLock lock(all.mutex);
  TrimLocked(all, keep);
}

void MemoryPool::TrimAll() {
  device::ParkedMemory::Get().Sweep();
  All& all = TheAll();
  if (all.count.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  MutexLock lock(all.mutex);
  const std::vector<MemoryPool*> pools = all.pools;  // a destroyed one may go
  for (MemoryPool* pool : pools) {
    pool->TrimLocked(all, pool->release_threshold_);
    pool->DeleteIfEmpty(all);
  }
}

void MemoryPool::ForgetDevice(int device, device::Users users) {
  All& all = TheAll();
  if (all.count.load(std::memory_order_relaxed) == 0) return;
  MutexLock lock(all.mutex);
  for (auto it = all.blocks.begin(); it != all.blocks.end();) {
    if (it->second.pool->device_ != device) {
      ++it;
      continue;
    }
    Drop(it->second.returned);
    (void)device::MemoryRegistry::Get().Free(it->first, device::MemoryKind::kDevice, true, users);
    it = all.blocks.erase(it);
  }
  const std::vector<MemoryPool*> pools = all.pools;
  for (MemoryPool* pool : pools) {
    if (pool->device_ != device) continue;
    pool->reserved_ = pool->used_ = 0;
    pool->DeleteIfEmpty(all);
  }
}

bool MemoryPool::IsFullFor(uint64_t bytes) const {
  MutexLock lock(TheAll().mutex);
  return most_bytes_ != 0 && (bytes > most_bytes_ || reserved_ > most_bytes_ - bytes);
}

uint64_t MemoryPool::Get(PoolAttribute attribute) const {
  MutexLock lock(TheAll().mutex);
  switch (attribute) {
    case PoolAttribute::kFollowEvents: return follow_events_;
    case PoolAttribute::kOpportunistic: return opportunistic_;
    case PoolAttribute::kInternalDependencies: return internal_dependencies_;
    case PoolAttribute::kReleaseThreshold: return release_threshold_;
    case PoolAttribute::kReservedNow: return reserved_;
    case PoolAttribute::kReservedMost: return reserved_most_;
    case PoolAttribute::kUsedNow: return used_;
    case PoolAttribute::kUsedMost: return used_most_;
  }
  return 0;
}

Status MemoryPool::Set(PoolAttribute attribute, uint64_t value) {
  MutexLock lock(TheAll().mutex);
  switch (attribute) {
    case PoolAttribute::kFollowEvents: follow_events_ = value != 0; return {};
    case PoolAttribute::kOpportunistic: opportunistic_ = value != 0; return {};
    case PoolAttribute::kInternalDependencies: internal_dependencies_ = value != 0; return {};
    case PoolAttribute::kReleaseThreshold: release_threshold_ = value; return {};
    case PoolAttribute::kReservedMost:
    case PoolAttribute::kUsedMost:
      if (value != 0) {
        return Error(kInvalidValue, fmt::format("the mark is {}, must be 0: it can only be set back", value))
            .Culprit("parameter value")
            .Hint("pass the address of a 0");
      }
      (attribute == PoolAttribute::kReservedMost ? reserved_most_ : used_most_) =
          attribute == PoolAttribute::kReservedMost ? reserved_ : used_;
      return {};
    case PoolAttribute::kReservedNow:
    case PoolAttribute::kUsedNow: break;
  }
  return Error(kInvalidValue, fmt::format("attribute {} can only be read", static_cast<uint32_t>(attribute)))
      .Culprit("parameter attr")
      .Hint("ask for it with aclrtMemPoolGetAttr");
}

}  // namespace reprise::runtime
