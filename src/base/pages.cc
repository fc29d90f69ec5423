// SPDX-License-Identifier: Apache-2.0
#include "base/pages.h"

#include <sys/mman.h>

#include <atomic>
#include <bitset>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"

namespace reprise {
namespace {

// AddressSanitizer and its search for leaks see what comes from malloc only.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kUseRegions = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kUseRegions = false;
#else
constexpr bool kUseRegions = true;
#endif
#else
constexpr bool kUseRegions = true;
#endif

constexpr size_t kPage = 4096;
constexpr size_t kRegionPages = kRegionBytes / kPage;
// More than this gets a mapping of its own.
constexpr size_t kMostInRegion = kRegionBytes / 2;
// A remainder from this on is worth a huge page of its own, the rest of which is then wasted.
constexpr size_t kWorthHugePage = 512 << 10;
// Empty regions that are kept for the next graph.
constexpr size_t kMostSpare = 2;
// How many regions are searched for room before another one is made.
constexpr size_t kMostLooks = 8;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::byte* Map(size_t bytes) {
  const size_t all = bytes + kRegionBytes;
  void* const at = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  // Only whole aligned pieces can be huge pages.
  auto* const begin = static_cast<std::byte*>(at);
  auto* const data = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<uintptr_t>(begin), kRegionBytes));
  if (data != begin) munmap(begin, static_cast<size_t>(data - begin));
  if (begin + all != data + bytes) munmap(data + bytes, static_cast<size_t>(begin + all - data) - bytes);
  (void)madvise(data, bytes, MADV_HUGEPAGE);  // where there are none, small ones do
  return data;
}

struct Region {
  std::byte* data;
  std::bitset<kRegionPages> used;
  size_t used_pages = 0;
  size_t place;  // in Regions::all

  // The first run of free pages, or kRegionPages.
  size_t FindRun(size_t pages) const {
    if (kRegionPages - used_pages < pages) return kRegionPages;
    for (size_t begin = 0, at = 0; at != kRegionPages; ++at) {
      if (used[at]) {
        begin = at + 1;
      } else if (at + 1 - begin == pages) {
        return begin;
      }
    }
    return kRegionPages;
  }
  void Mark(size_t first, size_t pages, bool is_used) {
    for (size_t i = first; i != first + pages; ++i) used[i] = is_used;
    used_pages = is_used ? used_pages + pages : used_pages - pages;
  }
};

// Regions that have blocks or had some.
class Regions {
 public:
  std::byte* Take(size_t bytes) {
    const size_t pages = bytes / kPage;
    MutexLock lock(mutex_);
    for (size_t look = 0; look != std::min(all_.size(), kMostLooks); ++look) {
      Region& region = *all_[all_.size() - 1 - look];
      if (const size_t first = region.FindRun(pages); first != kRegionPages) return Use(region, first, pages);
    }
    auto made = std::make_unique<Region>();
    all_.reserve(all_.size() + 1);
    made->data = Map(kRegionBytes);
    made->place = all_.size();
    try {
      by_data_[made->data] = made.get();
    } catch (...) {
      munmap(made->data, kRegionBytes);
      throw;
    }
    all_.push_back(std::move(made));
    ++spare_;
    return Use(*all_.back(), 0, pages);
  }

  void Give(std::byte* data, size_t bytes) noexcept {
    const size_t into = reinterpret_cast<uintptr_t>(data) % kRegionBytes;
    MutexLock lock(mutex_);
    Region& region = *by_data_.find(data - into)->second;
    region.Mark(into / kPage, bytes / kPage, false);
    // To the front of what is searched: it has room.
    Swap(region.place, all_.size() - 1);
    if (region.used_pages != 0) return;
    if (spare_ < kMostSpare) {
      ++spare_;
      return;
    }
    munmap(region.data, kRegionBytes);
    by_data_.erase(region.data);
    all_.pop_back();
  }

  PageUse Use() {
    MutexLock lock(mutex_);
    return {all_.size(), spare_, 0};
  }

 private:
  std::byte* Use(Region& region, size_t first, size_t pages) REPRISE_REQUIRES(mutex_) {
    if (region.used_pages == 0) --spare_;
    region.Mark(first, pages, true);
    return region.data + first * kPage;
  }
  void Swap(size_t a, size_t b) REPRISE_REQUIRES(mutex_) {
    std::swap(all_[a], all_[b]);
    all_[a]->place = a;
    all_[b]->place = b;
  }

  Mutex mutex_;  // rank: last
  std::vector<std::unique_ptr<Region>> all_ REPRISE_GUARDED_BY(mutex_);
  std::unordered_map<std::byte*, Region*> by_data_ REPRISE_GUARDED_BY(mutex_);
  size_t spare_ REPRISE_GUARDED_BY(mutex_) = 0;
};

Regions& TheRegions() {
  static auto* const regions = new Regions;  // graphs may go after static objects
  return *regions;
}

std::atomic<size_t> g_mappings{0};

enum class Origin { kMalloc, kRegion, kMapping };

// What a block of that size comes from, hence also where it goes.
Origin OriginOf(size_t bytes) {
  if (!kUseRegions || bytes < kLargeBytes) return Origin::kMalloc;
  return bytes <= kMostInRegion ? Origin::kRegion : Origin::kMapping;
}

size_t MappedBytes(size_t bytes) {
  return bytes % kRegionBytes >= kWorthHugePage ? RoundUp(bytes, kRegionBytes) : bytes;
}

}  // namespace

PageBlock TakePages(size_t bytes) {
  if (OriginOf(bytes) == Origin::kMalloc) {
    void* const data = std::malloc(bytes);
    if (data == nullptr) throw std::bad_alloc();
    return {static_cast<std::byte*>(data), bytes};
  }
  if (bytes > std::numeric_limits<size_t>::max() / 2) throw std::bad_alloc();
  bytes = RoundUp(bytes, kPage);
  if (OriginOf(bytes) == Origin::kRegion) return {TheRegions().Take(bytes), bytes};
  std::byte* const data = Map(MappedBytes(bytes));
  g_mappings.fetch_add(1, std::memory_order_relaxed);
  return {data, bytes};
}

void GivePages(PageBlock block) noexcept {
  switch (OriginOf(block.bytes)) {
    case Origin::kMalloc: return std::free(block.data);
    case Origin::kRegion: return TheRegions().Give(block.data, block.bytes);
    case Origin::kMapping: break;
  }
  munmap(block.data, MappedBytes(block.bytes));
  g_mappings.fetch_sub(1, std::memory_order_relaxed);
}

PageBlock TrimPages(PageBlock block, size_t bytes) noexcept {
  const Origin origin = OriginOf(block.bytes);
  bytes = std::max<size_t>(bytes, 1);
  if (origin != Origin::kMalloc) bytes = RoundUp(bytes, kPage);
  if (bytes >= block.bytes) return block;
  if (OriginOf(bytes) != origin) {
    try {
      const PageBlock smaller = TakePages(bytes);
      std::memcpy(smaller.data, block.data, bytes);
      GivePages(block);
      return smaller;
    } catch (const std::bad_alloc&) {
      return block;
    }
  }
  if (origin == Origin::kMalloc) {
    void* const data = std::realloc(block.data, bytes);
    return data != nullptr ? PageBlock{static_cast<std::byte*>(data), bytes} : block;
  }
  if (origin == Origin::kRegion) {
    TheRegions().Give(block.data + bytes, block.bytes - bytes);
  } else if (const size_t kept = MappedBytes(bytes); kept != MappedBytes(block.bytes)) {
    munmap(block.data + kept, MappedBytes(block.bytes) - kept);
  }
  return {block.data, bytes};
}

PageUse PagesInUse() {
  PageUse use = TheRegions().Use();
  use.mappings = g_mappings.load(std::memory_order_relaxed);
  return use;
}

}  // namespace reprise
