// SPDX-License-Identifier: Apache-2.0
//
// The message of an allocation that found no room: the numbers, who holds what, and what would free it.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "memory/device_cache.h"

namespace reprise::memory {

namespace {

constexpr size_t kNamed = 4;  ///< holders and remedies that a message lists

std::string Join(std::vector<std::pair<uint64_t, std::string>> lines) {
  std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (size_t i = 0; i < std::min(lines.size(), kNamed); ++i) text += (i == 0 ? "" : "; ") + lines[i].second;
  if (lines.size() > kNamed) text += fmt::format("; and {} more", lines.size() - kNamed);
  return text;
}

}  // namespace

std::string Bytes(uint64_t bytes) {
  if (bytes >= kGiB) return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
  if (bytes >= kMiB) return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / static_cast<double>(kMiB));
  if (bytes >= kKiB) return fmt::format("{:.2f} KiB", static_cast<double>(bytes) / static_cast<double>(kKiB));
  return fmt::format("{} bytes", bytes);
}

DeviceCache::MemoryUse DeviceCache::Account(const Request& request) {
  MemoryUse held;
  held.device = host_.driver.Size(device_);
  held.request = request.bytes;
  held.allocated = static_cast<uint64_t>(stats_.allocated_bytes.current());
  held.reserved = static_cast<uint64_t>(stats_.reserved_bytes.current());
  held.limit = Limit();
  held.fraction = fraction_;
  held.capturing = request.capturing;
  held.rejected = request.rejected;
  std::map<std::pair<PoolId, void*>, MemoryUse::Part> parts;
  std::map<PoolId, MemoryUse::PoolPart> pools;
  std::map<void*, uint64_t> waiting;
  for (const auto& [base, segment] : segments_) {
    const Pool& pool = *segment->silo->blocks->pool;
    MemoryUse::Part& part = parts[{pool.id, segment->silo->stream}];
    part.pool = pool.id;
    part.stream = segment->silo->stream;
    if (pool.is_private()) {
      MemoryUse::PoolPart& whole = pools[pool.id];
      whole.pool = pool.id;
      whole.users = pool.users;
      whole.reserved += segment->mapped;
    }
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->use == BlockUse::kLive) part.live += block->size;
      if (block->use == BlockUse::kFree) part.cached += block->size;
    }
  }
  for (const auto& [stream, queue] : events_) {
    std::set<const Block*> blocks;
    for (const PendingEvent& pending : queue) blocks.insert(pending.block);
    for (const Block* block : blocks) waiting[stream] += block->size;
  }
  for (const Block* block : deferred_) {
    for (const StreamUse& use : block->uses) waiting[use.stream] += block->size;
  }
  for (auto& [key, part] : parts) held.parts.push_back(part);
  for (auto& [id, pool] : pools) held.pools.push_back(pool);
  held.waiting.assign(waiting.begin(), waiting.end());
  return held;
}

Status DeviceCache::OutOfMemory(const MemoryUse& held) const {
  std::string what = fmt::format(
      "NPU out of memory: tried to allocate {} on device {}, which has {} in total and {} free; {} are allocated and "
      "{} "
      "reserved here",
      Bytes(held.request), device_, Bytes(held.device.total_bytes), Bytes(held.device.free_bytes),
      Bytes(held.allocated), Bytes(held.reserved));
  if (held.limit != UINT64_MAX) {
    what += fmt::format(", and {} may be (fraction {:.2f})", Bytes(held.limit), held.fraction);
  }

  std::vector<std::pair<uint64_t, std::string>> holders;
  std::vector<std::pair<uint64_t, std::string>> remedies;
  uint64_t cached_for_all = 0;
  for (const MemoryUse::Part& part : held.parts) {
    const std::string owner = part.pool.is_default() ? "the default pool" : host_.NameOf(part.pool);
    if (part.live != 0) {
      holders.emplace_back(part.live, fmt::format("{} in {} on stream {}", Bytes(part.live), owner, part.stream));
    }
    if (!part.pool.is_default() || part.cached == 0) continue;
    cached_for_all += part.cached;
    // Otherwise all that could be flushed was.
    if (held.capturing || held.rejected) {
      remedies.emplace_back(part.cached, fmt::format("{} are cached for stream {}: EmptyCache{}", Bytes(part.cached),
                                                     part.stream, held.capturing ? " before the capture" : ""));
    }
  }
  for (const MemoryUse::PoolPart& pool : held.pools) {
    const std::string owner = host_.NameOf(pool.pool);
    remedies.emplace_back(pool.reserved,
                          pool.users != 0
                              ? fmt::format("{} holds {} in its pool: reset it", owner, Bytes(pool.reserved))
                              : fmt::format("{} left {} in its pool: free what was allocated there, then EmptyCache",
                                            owner, Bytes(pool.reserved)));
  }
  for (const auto& [stream, bytes] : held.waiting) {
    remedies.emplace_back(bytes, fmt::format("{} wait for stream {}: synchronise it", Bytes(bytes), stream));
  }
  if (!held.capturing && !held.rejected && cached_for_all >= held.request) {
    remedies.emplace_back(cached_for_all,
                          fmt::format("{} are free in parts of segments that are in use (fragmentation): set "
                                      "expandable_segments:True, or max_split_size_mb",
                                      Bytes(cached_for_all)));
  }
  const bool is_beyond_all = held.request > held.device.total_bytes;  // whatever is given back
  if (is_beyond_all) remedies.clear();
  if (remedies.empty()) {
    remedies.emplace_back(0, is_beyond_all || holders.empty()
                                 ? "take a smaller batch, or start the program with a larger REPRISE_MEMORY"
                                 : "free what is not needed, or take a smaller batch");
  }
  if (holders.empty()) holders.emplace_back(0, "nothing is held here: the request alone is too large");
  return Error(kOutOfDeviceMemory, std::move(what))
      .Culprit("held: " + Join(std::move(holders)))
      .Hint(Join(std::move(remedies)));
}

}  // namespace reprise::memory
