// SPDX-License-Identifier: Apache-2.0
//
// From an address to the block that begins there. Looking one up takes no lock and writes nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/spin_lock.h"

namespace reprise::memory {

struct Block;

/// Open addressing in shards. A writer makes its shard's version odd while it moves entries; a reader that saw another
/// version afterwards looks again. What a reader finds may be stale by the time it looks at it: the lock of the device
/// decides.
///
/// Threads: one writer at a time, any readers.
class BlockMap {
 public:
  BlockMap();
  ~BlockMap();
  BlockMap(const BlockMap&) = delete;
  BlockMap& operator=(const BlockMap&) = delete;

  Block* Find(const void* address) const;
  void Insert(const void* address, Block* block);
  void Erase(const void* address);
  /// Another block for an address that is there.
  void Replace(const void* address, Block* block);

 private:
  struct Entry {
    std::atomic<const void*> address{nullptr};
    std::atomic<Block*> block{nullptr};
  };
  struct Table {
    explicit Table(size_t capacity) : mask(capacity - 1), entries(new Entry[capacity]) {}
    const size_t mask;
    const std::unique_ptr<Entry[]> entries;
  };
  struct alignas(64) Shard {
    std::atomic<uint64_t> version{0};
    std::atomic<Table*> table{nullptr};
    size_t used = 0;
    /// Outgrown tables stay, since a reader may be in one; together they are smaller than the one in use.
    std::vector<std::unique_ptr<Table>> tables;
  };
  static constexpr size_t kShards = 16;

  static uint64_t Hash(const void* address) {
    // Blocks begin at multiples of 512; the product's upper bits depend on all of them.
    return (reinterpret_cast<uintptr_t>(address) >> 9) * 0x9e3779b97f4a7c15;
  }
  Shard& ShardOf(uint64_t hash) { return shards_[hash >> 60]; }
  const Shard& ShardOf(uint64_t hash) const { return shards_[hash >> 60]; }
  static size_t Home(uint64_t hash, const Table& table) { return (hash >> 20) & table.mask; }
  static void Place(Table& table, const void* address, Block* block);

  std::array<Shard, kShards> shards_;
};

inline Block* BlockMap::Find(const void* address) const {
  const uint64_t hash = Hash(address);
  const Shard& shard = ShardOf(hash);
  for (;;) {
    const uint64_t version = shard.version.load(std::memory_order_acquire);
    if ((version & 1) == 0) {
      const Table& table = *shard.table.load(std::memory_order_acquire);
      Block* found = nullptr;
      // Bounded, since a table that is being written to may look full.
      for (size_t i = Home(hash, table), n = 0; n <= table.mask; ++n, i = (i + 1) & table.mask) {
        const void* here = table.entries[i].address.load(std::memory_order_acquire);
        if (here == nullptr) break;
        if (here == address) {
          found = table.entries[i].block.load(std::memory_order_acquire);
          break;
        }
      }
      // The loads above are acquires, so this one cannot be made before them.
      if (shard.version.load(std::memory_order_relaxed) == version) return found;
    }
    CpuRelax();
  }
}

}  // namespace reprise::memory
