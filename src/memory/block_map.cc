// SPDX-License-Identifier: Apache-2.0
#include "memory/block_map.h"

namespace reprise::memory {

namespace {

/// While it lives, readers of the shard look again.
class Writing {
 public:
  explicit Writing(std::atomic<uint64_t>& version) : version_(version) {
    version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  ~Writing() { version_.store(version_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  std::atomic<uint64_t>& version_;
};

}  // namespace

BlockMap::BlockMap() {
  for (Shard& shard : shards_) {
    shard.tables.push_back(std::make_unique<Table>(64));
    shard.table.store(shard.tables.back().get(), std::memory_order_release);
  }
}

BlockMap::~BlockMap() = default;

void BlockMap::Place(Table& table, const void* address, Block* block) {
  size_t i = Home(Hash(address), table);
  while (table.entries[i].address.load(std::memory_order_relaxed) != nullptr) i = (i + 1) & table.mask;
  // A reader that sees one of the two also sees the odd version.
  table.entries[i].block.store(block, std::memory_order_release);
  table.entries[i].address.store(address, std::memory_order_release);
}

void BlockMap::Insert(const void* address, Block* block) {
  Shard& shard = ShardOf(Hash(address));
  Table* table = shard.table.load(std::memory_order_relaxed);
  if (2 * (shard.used + 1) > table->mask + 1) {
    auto larger = std::make_unique<Table>(2 * (table->mask + 1));
    for (size_t i = 0; i <= table->mask; ++i) {
      const Entry& entry = table->entries[i];
      const void* key = entry.address.load(std::memory_order_relaxed);
      if (key != nullptr) Place(*larger, key, entry.block.load(std::memory_order_relaxed));
    }
    table = larger.get();
    shard.tables.push_back(std::move(larger));
    // The old table keeps what it held, so readers in it find what they may ask for.
    shard.table.store(table, std::memory_order_release);
  }
  const Writing writing(shard.version);
  Place(*table, address, block);
  ++shard.used;
}

void BlockMap::Erase(const void* address) {
  const uint64_t hash = Hash(address);
  Shard& shard = ShardOf(hash);
  Table& table = *shard.table.load(std::memory_order_relaxed);
  size_t hole = Home(hash, table);
  while (table.entries[hole].address.load(std::memory_order_relaxed) != address) hole = (hole + 1) & table.mask;
  const Writing writing(shard.version);
  // Entries behind the hole move up where their home allows, so that no marks of erased ones pile up.
  for (size_t i = (hole + 1) & table.mask;; i = (i + 1) & table.mask) {
    Entry& entry = table.entries[i];
    const void* key = entry.address.load(std::memory_order_relaxed);
    if (key == nullptr) break;
    const size_t home = Home(Hash(key), table);
    if (((i - home) & table.mask) < ((i - hole) & table.mask)) continue;
    table.entries[hole].block.store(entry.block.load(std::memory_order_relaxed), std::memory_order_release);
    table.entries[hole].address.store(key, std::memory_order_release);
    hole = i;
  }
  table.entries[hole].address.store(nullptr, std::memory_order_release);
  --shard.used;
}

void BlockMap::Replace(const void* address, Block* block) {
  const uint64_t hash = Hash(address);
  Table& table = *ShardOf(hash).table.load(std::memory_order_relaxed);
  size_t i = Home(hash, table);
  while (table.entries[i].address.load(std::memory_order_relaxed) != address) i = (i + 1) & table.mask;
  table.entries[i].block.store(block, std::memory_order_release);
}

}  // namespace reprise::memory
