// SPDX-License-Identifier: Apache-2.0
//
// The caching allocator of one device. device_cache.cc allocates and frees; stream_uses.cc knows which streams are not
// done with a block; device_segments.cc, expandable_segment.cc and device_release.cc take memory from the device and
// give it back; device_pools.cc routes; device_checks.cc closes what nobody may touch; device_insight.cc shows what
// there is, and who holds it when there is no more. In front of it are the caches of front_caches.h, once threads have
// been seen to wait for each other.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "memory/block.h"
#include "memory/block_map.h"
#include "memory/captured_blocks.h"
#include "memory/config.h"
#include "memory/device_allocator.h"
#include "memory/device_stats.h"
#include "memory/driver.h"
#include "memory/front_caches.h"
#include "memory/mutex.h"
#include "memory/trace_buffer.h"

namespace reprise::memory {

/// What the caches of all devices share. Its functions are called without the lock of a cache.
class CacheHost {
 public:
  CacheHost(Driver& the_driver) : driver(the_driver) {}  // NOLINT: a base
  virtual ~CacheHost() = default;
  /// True when one has freed something.
  virtual bool RunFreeMemoryCallbacks() = 0;
  virtual void NotifyOutOfMemory(int device, uint64_t bytes, DeviceSize size) = 0;
  /// "graph 7", or what the pool is called otherwise.
  virtual std::string NameOf(PoolId pool) const = 0;

  Driver& driver;
};

/// Threads: thread-safe, one lock, which what the front caches can do does without. It is let go while the device is
/// waited for and while foreign code runs; everything that was looked up before must be looked up again afterwards,
/// except a pool that is marked as borrowed.
class DeviceCache {
 public:
  DeviceCache(CacheHost& host, int device, const Config& config);
  ~DeviceCache();
  DeviceCache(const DeviceCache&) = delete;
  DeviceCache& operator=(const DeviceCache&) = delete;

  /// The block that begins there, if one did a moment ago.
  Block* Find(const void* address) const { return map_.Find(address); }

  // As in DeviceAllocator. A block that was looked up without the lock may stand for another address by now, so its
  // address is compared again.
  StatusOr<void*> Allocate(uint64_t bytes, void* stream, TraceContextPtr context);
  Status Free(Block* block, const void* address, const TraceContextPtr& context);
  Status RecordStream(Block* block, const void* address, void* stream);
  Status EraseStream(Block* block, const void* address, void* stream);
  uint64_t SizeOf(const Block* block, const void* address);

  void EmptyCache(PoolId pool);
  void ExpectThreads();
  void Forget();
  bool IsCaptureContext();

  Status CreateOrUsePool(PoolId id, DeviceAllocator::PoolOptions options);
  Status BeginAllocateToPool(PoolId id, StreamFilter filter);
  Status SwapFilter(PoolId id, StreamFilter filter);
  Status EndAllocateToPool(PoolId id);
  Status ReleasePool(PoolId id);
  Status SetUseOnOom(PoolId id, bool use);
  Status SetNoSplit(PoolId id);
  int PoolUsers(PoolId id);
  std::vector<void*> LiveBlocks(PoolId id);
  bool LiveBlocksAre(PoolId id, const std::vector<const void*>& blocks);

  StatusOr<PoolState> GetPoolState(PoolId id);
  StatusOr<PoolChange> SetPoolState(const PoolState& state, const std::vector<uint64_t>& released);

  void MarkCapture(int by);
  std::vector<ReusedBlock> TakeReusedBlocks(uint64_t capture);
  void SetFraction(double fraction);
  double Fraction();
  void SetConfig(const Config& config);

  DeviceStats Stats();
  void ResetPeakStats();
  void ResetAccumulatedStats();
  void AppendTo(MemorySnapshot& snapshot, PoolId pool, bool with_trace);
  void RecordHistory(uint64_t entries, uint32_t skipped);
  std::string ExplainReport(uintptr_t address);

 private:
  using Lock = UniqueLock<CacheMutex>;

  struct Request {
    uint64_t bytes;
    uint64_t size = 0;  ///< rounded
    void* stream;
    Pool* pool = nullptr;
    bool capturing = false;  ///< known once the cache had nothing
    bool rejected = false;   ///< refused by policy, so nothing is flushed for it
    TraceContextPtr context;

    bool is_small() const { return size <= kSmallSize; }
    BlockPool& blocks() const { return is_small() ? pool->small : pool->large; }
  };
  struct Scope {
    Pool* pool;
    StreamFilter filter;
  };
  struct PendingEvent {
    void* event;
    Block* block;
  };
  /// Memory of a pool with an allocator of its own, which is foreign code.
  struct Doomed {
    DeviceAllocator::PoolOptions options;
    char* base;
    uint64_t bytes;
    void* stream;
  };
  /// What a wait has proved: no stream still uses blocks freed up to `until`, except streams that were being captured.
  struct Idle {
    uint64_t until = 0;
    std::vector<void*> captured;
  };
  /// Who holds memory, for a message.
  struct MemoryUse {
    struct Part {  ///< of one pool and stream
      PoolId pool;
      void* stream = nullptr;
      uint64_t live = 0, cached = 0;
    };
    struct PoolPart {
      PoolId pool;
      uint64_t reserved = 0;
      int users = 0;
    };
    std::vector<Part> parts;
    std::vector<PoolPart> pools;                      ///< private ones
    std::vector<std::pair<void*, uint64_t>> waiting;  ///< freed bytes that wait for a stream
    DeviceSize device;
    uint64_t request = 0, allocated = 0, reserved = 0, limit = 0;
    double fraction = 1;
    bool capturing = false, rejected = false;
  };

  // device_cache.cc
  Block* TakeFree(const Request& request, Pool& pool);
  StatusOr<Block*> TakeSlowly(Lock& lock, Request& request) REPRISE_NOT_ANALYSED;
  bool ShouldSplit(const Block& block, uint64_t size) const;
  void* HandOut(Block* block, Request& request);
  void NoteLive(Block* block, uint64_t requested);
  void TakeBack(Block* block, const TraceContextPtr& context);
  void FreeBlock(Block* block, const TraceContextPtr& context);
  void InsertFree(Block* block);
  void RemoveFree(Block* block) {
    block->silo->free.Remove(block);
    NoteRemoved(block);
  }
  void NoteRemoved(Block* block);
  void CutAs(Segment& segment, const PoolState::Segment& state, PoolChange& change);
  Block* SplitOff(Block* block, uint64_t size);
  Block* CutFront(Block* block, uint64_t size);
  void CountSplit(bool is_small, int64_t blocks, int64_t bytes);
  void Absorb(Block* block, Block* next);
  void Swallow(Block* block, Block* next);
  Block* NewBlock();
  void Discard(Block* block);
  void AddSlab();

  // device_front.cc
  bool Claim(Block& block, bool* was_held = nullptr);
  bool UsesFront();
  bool MayUseFront() const;
  bool OpenFront();
  void CloseFront();
  bool CallIn();
  void CallInForPeak();
  void FreeParked(Block* block);
  void NoteTaken(const FrontCaches::Taken& taken);

  // stream_uses.cc
  bool InCaptureContext() const;
  bool IsOpen(void* stream) const { return host_.driver.CaptureOf(stream).is_open; }
  bool MayBeCaptured(const Block& block) const { return captures_ > 0 && block.silo->blocks->pool->is_private(); }
  bool HasPending() const { return pending_events_ != 0 || !deferred_.empty(); }
  void FreeWithUses(Block* block);
  void RecordUses(Block* block);
  void MarkUses(Block* block);
  void FreeJoined(void* stream);
  void DrainDeferred();
  void ProcessEvents();
  void FreeIfUnused(Block* block);

  // device_segments.cc
  StatusOr<Block*> AllocBlock(Lock& lock, Request& request) REPRISE_NOT_ANALYSED;  // opens the lock as it is configured
  bool ExceedsLimit(uint64_t more);
  uint64_t Limit();
  Block* AddSegment(char* base, uint64_t bytes, const Request& request);
  void RemoveSegment(Segment* segment);
  void CountMapped(Segment& segment, char* at, uint64_t bytes);
  void CountUnmapped(Segment& segment, char* at, uint64_t bytes);
  void RunDoomed(Lock& lock) {
    if (!doomed_.empty()) FreeDoomed(lock);
  }
  void FreeDoomed(Lock& lock) REPRISE_NOT_ANALYSED;

  // expandable_segment.cc
  StatusOr<Block*> Extend(Request& request);
  StatusOr<Block*> AddRange(const Request& request, uint64_t page_bytes);
  Block* FindRoom(const Silo& silo, uint64_t size, uint64_t page_bytes) const;
  StatusOr<Block*> Grow(Block* first, uint64_t size, uint64_t page_bytes);
  Status Map(Block* block, uint64_t bytes, uint64_t page_bytes);
  void Unmap(Block* block);

  // device_release.cc
  Idle WaitForDevice(Lock& lock) REPRISE_NOT_ANALYSED;
  void ReleaseUnusedPools(PoolId id);
  void ReleaseBlocks(BlockPool& blocks, const Idle& idle);
  std::vector<Block*> UnusedBlocks(const BlockPool& blocks, const Idle& idle) const;
  void ReleaseWhole(Block* block);
  void ReleaseOversize(uint64_t size, const Idle& idle);
  void CollectGarbage(Lock& lock, const Request& request);

  // device_pools.cc
  Pool* Route(void* stream) { return scopes_.empty() ? &default_ : RouteByScopes(stream); }
  Pool* RouteByScopes(void* stream);
  StatusOr<Pool*> FindPool(PoolId id, const char* what);
  StatusOr<Pool*> UsePool(PoolId id, DeviceAllocator::PoolOptions options);
  void ErasePoolIfEmpty(Pool* pool);

  // pool_state.cc
  Status CheckPoolState(const PoolState& state, const std::vector<uint64_t>& released) const;

  // device_checks.cc
  bool ClosesBlocksOf(const Pool& pool) const;
  void OpenBlock(const Block& block);
  void CloseBlock(const Block& block);
  void CloseFreeBlocks();

  // device_insight.cc
  void Trace(TraceAction action, const void* address, uint64_t size, void* stream, const Pool& pool,
             const TraceContextPtr& context);
  MemoryUse Account(const Request& request);
  Status OutOfMemory(const MemoryUse& held) const;

  CacheHost& host_;
  const int device_;
  const bool is_checked_;     ///< somebody watches accesses to memory
  bool leaves_open_ = false;  ///< blocks were freed while streams had work
  CacheMutex mutex_;
  BlockMap map_;
  Config config_;
  bool rounds_by_powers_ = false;
  double fraction_;
  int captures_ = 0;  ///< open ones
  uint64_t captures_begun_ = 0;
  uint64_t clock_ = 0;  ///< frees so far
  /// At the last wait for the whole device, no stream used blocks that were freed before this time.
  uint64_t idle_until_ = 0;

  Pool default_{PoolId{}};
  Pool uncached_{PoolId{}};
  std::map<PoolId, std::unique_ptr<Pool>> pools_;
  std::vector<Scope> scopes_;                           ///< newest last
  std::map<char*, std::unique_ptr<Segment>> segments_;  ///< by address

  std::unordered_map<void*, std::deque<PendingEvent>> events_;  ///< by stream, in the order of its work
  size_t pending_events_ = 0;
  std::vector<Block*> deferred_;
  std::vector<Doomed> doomed_;
  CapturedBlocks captured_blocks_;

  std::vector<std::unique_ptr<std::byte[]>> slabs_;
  Block* spare_ = nullptr;
  size_t spares_ = 0;
  uint64_t random_ = 0x2545f4914f6cdd1d;

  /// Null as long as it is closed; what it points to stays.
  std::atomic<FrontCaches*> front_{nullptr};
  std::unique_ptr<FrontCaches> front_caches_;
  uint32_t awaited_before_ = 0;  ///< of mutex_, when the front was closed
  uint32_t awaits_to_open_ = 1;  ///< so often threads wait for each other before it opens
  int64_t front_taken_ = 0;      ///< since it opened: requests that it has answered,
  int64_t front_calls_ = 0;      ///<   and how often it was called in for the sake of a peak

  DeviceCounters stats_;
  TraceBuffer trace_;
};

/// "1.25 GiB".
std::string Bytes(uint64_t bytes);

}  // namespace reprise::memory
