// SPDX-License-Identifier: Apache-2.0
//
// What device memory is divided into. A segment is a range taken from the device, cut into blocks that lie side by
// side. Segments and blocks belong for ever to one silo: a stream within the small or the large half of a pool.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "memory/device_allocator.h"
#include "memory/free_tree.h"
#include "reprise/memory_types.h"

namespace reprise::memory {

inline constexpr uint64_t kMinBlock = 512;
inline constexpr uint64_t kSmallSize = 1 * kMiB;       ///< up to this: small pool
inline constexpr uint64_t kSmallSegment = 2 * kMiB;    ///< also the page of small expandable segments
inline constexpr uint64_t kLargePage = 20 * kMiB;      ///< of large expandable segments
inline constexpr uint64_t kMinLargeAlloc = 10 * kMiB;  ///< from here on a segment for each request
inline constexpr uint64_t kRoundLarge = 2 * kMiB;
inline constexpr uint64_t kHugeRequest = uint64_t{1} << 60;

class DeviceCache;
struct Silo;
struct BlockPool;
struct Pool;
struct Segment;

enum class BlockUse : uint8_t {
  kSpare,     ///< describes no memory
  kTaken,     ///< a call that is under way uses it
  kFree,      ///< in the silo's tree
  kLive,      ///< held by the user
  kWaiting,   ///< freed, but a stream uses it
  kUnmapped,  ///< addresses without memory, of an expandable segment
};

/// Whether a block that the cache takes to be live may pass through the front caches.
enum class BlockHold : uint8_t {
  kNone,   ///< it may not
  kHeld,   ///< the user has it, and may free it there
  kParked  ///< it lies there: freed
};

/// In StreamUse: tasks of several graphs.
inline constexpr uint64_t kSeveralCaptures = UINT64_MAX;

struct StreamUse {
  void* stream = nullptr;
  uint64_t capture = 0;  ///< not 0: the use is a task of a graph, which orders it
  // When the block was freed, with graph_capture_record_stream_reuse.
  bool is_marked = false;  ///< the use comes before a known place in its capture:
  uint32_t lane = 0;
  uint32_t tasks = 0;

  bool captured() const { return capture != 0; }
};

/// All under the lock of its device, but for `cache` and what front_caches.h says. The objects are never given back
/// before the allocator goes, so a stale pointer to one can be looked at.
struct Block {
  explicit Block(DeviceCache* owner) : cache(owner) {}

  DeviceCache* const cache;
  char* address = nullptr;
  uint64_t size = 0;  ///< bytes
  // Of the tree.
  Block* left = nullptr;
  Block* right = nullptr;
  uint32_t priority = 0;

  BlockUse use = BlockUse::kSpare;
  bool is_deferred = false;  ///< in the list of frees that wait for the end of a capture
  bool is_oversize = false;
  std::atomic<BlockHold> hold{BlockHold::kNone};
  uint32_t pending_events = 0;
  void* stream = nullptr;  ///< of its silo, once it was handed out
  Silo* silo = nullptr;
  Block* previous = nullptr;  ///< neighbours in the segment
  Block* next = nullptr;      ///< also the list of spare objects
  Segment* segment = nullptr;
  uint64_t requested = 0;  ///< bytes
  uint64_t freed_at = 0;   ///< on the clock of the device, which counts frees
  std::vector<StreamUse> uses;
  TraceContextPtr context;

  bool is_split() const { return previous != nullptr || next != nullptr; }
};

template <class F>
void FreeTree::Walk(Block* node, const F& visit) {
  if (node == nullptr) return;
  Walk(node->left, visit);
  visit(node);
  Walk(node->right, visit);
}

struct ByAddress {
  bool operator()(const Block* a, const Block* b) const { return a->address < b->address; }
};

struct Segment {
  char* base = nullptr;
  uint64_t bytes = 0;       ///< addresses
  uint64_t mapped = 0;      ///< bytes that the device misses; all of them unless expandable
  uint64_t page_bytes = 0;  ///< 0: not expandable
  Silo* silo = nullptr;
  Block* first = nullptr;
  bool is_oversize = false;
  TraceContextPtr context;

  bool is_expandable() const { return page_bytes != 0; }
};

struct Silo {
  BlockPool* blocks = nullptr;
  void* stream = nullptr;
  FreeTree free;
  std::set<Block*, ByAddress> unmapped;
  size_t segments = 0;
};

/// The small or the large half of a pool.
struct BlockPool {
  Pool* pool = nullptr;
  bool is_small = false;
  std::unordered_map<void*, std::unique_ptr<Silo>> silos;
  Silo* recent = nullptr;

  Silo* Find(void* stream) {
    if (recent != nullptr && recent->stream == stream) return recent;
    auto it = silos.find(stream);
    if (it == silos.end()) return nullptr;
    return recent = it->second.get();
  }
  Silo* FindOrMake(void* stream);
  void EraseIfEmpty(Silo* silo);
};

struct Pool {
  explicit Pool(PoolId name) : id(name) {
    small.pool = large.pool = this;
    small.is_small = true;
  }

  const PoolId id;
  int users = 0;        ///< without any, unused segments may go
  size_t segments = 0;  ///< those that have memory
  int routed = 0;       ///< scopes that name it
  int borrowed = 0;     ///< allocations that let go of the lock while they use it
  bool no_split = false;
  bool use_on_oom = false;
  bool uncached = false;
  uint64_t released_at = 0;  ///< when the last user left: until then its memory was used from anywhere
  DeviceAllocator::PoolOptions options;
  BlockPool small, large;

  bool is_private() const { return !id.is_default(); }
};

inline uint64_t RoundUp(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// What a request of `bytes` occupies.
uint64_t RoundSize(uint64_t bytes, const Config& config);
/// Whether that is more than the next multiple of 512.
bool RoundsByPowers(const Config& config);
/// What is taken from the device for a request of the rounded `size`.
uint64_t SegmentSize(uint64_t size, const Config& config);

}  // namespace reprise::memory
