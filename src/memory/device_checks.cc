// SPDX-License-Identifier: Apache-2.0
//
// Blocks under a checker of memory (base/memory_checker.h): open as far as they were asked for, closed while they are
// free. What runs on streams may still use a block that was freed, as it may use all that an earlier owner had, so
// blocks are closed only while no stream has work. Graphs use the free blocks of their pools: these stay open.
#include <fmt/format.h>

#include "base/memory_checker.h"
#include "memory/device_cache.h"

namespace reprise::memory {

bool DeviceCache::ClosesBlocksOf(const Pool& pool) const { return !pool.is_private() && !pool.options.allocate; }

/// The user has it.
void DeviceCache::OpenBlock(const Block& block) {
  const Pool& pool = *block.silo->blocks->pool;
  if (pool.options.allocate) return;  // foreign memory
  AllowAccess(block.address, block.requested);
  if (!ClosesBlocksOf(pool) || !host_.driver.IsIdle()) return;
  ForbidAccess(block.address + block.requested, block.size - block.requested);
}

/// Nobody has it.
void DeviceCache::CloseBlock(const Block& block) {
  if (!ClosesBlocksOf(*block.silo->blocks->pool)) return;
  if (host_.driver.IsIdle()) {
    ForbidAccess(block.address, block.size);
  } else {
    leaves_open_ = true;
  }
}

/// Those that were freed while streams had work.
void DeviceCache::CloseFreeBlocks() {
  if (!host_.driver.IsIdle()) return;
  leaves_open_ = false;
  for (const BlockPool* blocks : {&default_.small, &default_.large}) {
    for (const auto& [stream, silo] : blocks->silos) {
      silo->free.ForEach([](const Block* block) { ForbidAccess(block->address, block->size); });
    }
  }
}

std::string DeviceCache::ExplainReport(uintptr_t address) {
  if (!mutex_.try_lock()) return {};
  const Lock lock(mutex_, std::adopt_lock);
  auto* const at = reinterpret_cast<char*>(address);
  const auto after = segments_.upper_bound(at);
  if (after == segments_.begin()) return {};
  const Segment& segment = *std::prev(after)->second;
  if (at >= segment.base + segment.bytes) return {};
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    if (at >= block->address + block->size) continue;
    const auto offset = static_cast<uint64_t>(at - block->address);
    if (block->use == BlockUse::kUnmapped) return fmt::format("{:#x} has no memory", address);
    if (block->use != BlockUse::kLive) {
      return fmt::format(
          "{:#x} lies in memory that the caching allocator holds and nobody has: it was freed, or never "
          "handed out ({} free bytes from {})",
          address, block->size, fmt::ptr(block->address));
    }
    if (offset < block->requested) {
      return fmt::format("{:#x} lies {} bytes into the block of {} bytes at {} of the caching allocator", address,
                         offset, block->requested, fmt::ptr(block->address));
    }
    return fmt::format("{:#x} lies {} bytes behind the end of the block of {} bytes at {} of the caching allocator",
                       address, offset - block->requested, block->requested, fmt::ptr(block->address));
  }
  return {};
}

}  // namespace reprise::memory
