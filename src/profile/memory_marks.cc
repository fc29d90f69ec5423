// SPDX-License-Identifier: Apache-2.0
#include "profile/memory_marks.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "device/timeline.h"
#include "profile/markers.h"
#include "runtime/device.h"

namespace reprise::profile {
namespace {

using device::Timeline;
using Range = MemoryMarks::Range;

constexpr size_t kMostHeaps = 1u << 16;
constexpr size_t kMostRegions = 1u << 22;

struct Region {
  uint64_t number;
  uint64_t heap;
  uint64_t bytes;
};
struct Heap {
  uint64_t domain;
  Range range;
  std::map<uint64_t, Region> regions;  // by address
};
struct MemoryTables {
  Mutex mutex;
  uint64_t next REPRISE_GUARDED_BY(mutex) = 1;
  std::map<uint64_t, Heap> heaps REPRISE_GUARDED_BY(mutex);
  std::map<uint64_t, std::pair<uint64_t, uint64_t>> regions REPRISE_GUARDED_BY(mutex);  // number to heap and address
};

MemoryTables& MarkedMemory() {
  static auto* const tables = new MemoryTables;
  return *tables;
}

Status WrongRange(const Range& range, const std::string& why, const char* hint) {
  return Error(kInvalidValue, fmt::format("the range of {} bytes at {:#x} {}", range.bytes, range.address, why))
      .Culprit("the description of the range")
      .Hint(hint);
}

bool Wraps(const Range& range) { return range.address + range.bytes < range.address; }

void MarkNow(const char* what, const Range& range) {
  if (Timeline::on()) Timeline::Get().Mark(fmt::format("{} of {} bytes at {:#x}", what, range.bytes, range.address));
}

// Of that domain.
StatusOr<Heap*> FindHeap(MemoryTables& tables, uint64_t domain, uint64_t number) REPRISE_REQUIRES(tables.mutex) {
  const auto found = tables.heaps.find(number);
  if (found != tables.heaps.end() && found->second.domain == domain) return &found->second;
  return Error(kInvalidHandle, "heap is none that mstxMemHeapRegister made in this domain and that is still registered")
      .Culprit("the handle of the heap")
      .Hint("register the heap first, and unregister it last");
}

// Whether a region of the map overlaps the range.
bool OverlapsRegion(const std::map<uint64_t, Region>& regions, const Range& range) {
  auto next = regions.lower_bound(range.address);
  if (next != regions.end() && next->first < range.address + range.bytes) return true;
  return next != regions.begin() && (--next)->first + next->second.bytes > range.address;
}

}  // namespace

StatusOr<uint64_t> MemoryMarks::AddHeap(uint64_t domain, const Range& range) {
  REPRISE_RETURN_IF_ERROR(Markers::CheckDomain(domain));
  if (range.device >= runtime::Devices().size()) {
    return WrongRange(range, fmt::format("names device {}, there are {}", range.device, runtime::Devices().size()),
                      "set deviceId to the device of the memory");
  }
  if (range.address == 0 || range.bytes == 0 || Wraps(range)) {
    return WrongRange(range, "is none", "set ptr and size to memory that was allocated");
  }
  MemoryTables& tables = MarkedMemory();
  MutexLock lock(tables.mutex);
  for (const auto& [number, heap] : tables.heaps) {
    const Range& other = heap.range;
    if (range.address < other.address + other.bytes && other.address < range.address + range.bytes) {
      return WrongRange(range, fmt::format("overlaps the heap of {} bytes at {:#x}", other.bytes, other.address),
                        "unregister that heap first");
    }
  }
  if (tables.heaps.size() >= kMostHeaps) {
    return Error(kResourceExhausted, fmt::format("{} heaps are registered", kMostHeaps))
        .Hint("unregister heaps that are gone");
  }
  tables.heaps.emplace(tables.next, Heap{domain, range, {}});
  MarkNow("heap", range);
  return tables.next++;
}

Status MemoryMarks::RemoveHeap(uint64_t domain, uint64_t heap) {
  REPRISE_RETURN_IF_ERROR(Markers::CheckDomain(domain));
  MemoryTables& tables = MarkedMemory();
  MutexLock lock(tables.mutex);
  REPRISE_ASSIGN_OR_RETURN(const Heap* found, FindHeap(tables, domain, heap));
  for (const auto& entry : found->regions) tables.regions.erase(entry.second.number);
  MarkNow("end of the heap", found->range);
  tables.heaps.erase(heap);
  return {};
}

Status MemoryMarks::AddRegions(uint64_t domain, uint64_t heap, std::span<const Range> ranges, uint64_t* numbers) {
  REPRISE_RETURN_IF_ERROR(Markers::CheckDomain(domain));
  MemoryTables& tables = MarkedMemory();
  MutexLock lock(tables.mutex);
  REPRISE_ASSIGN_OR_RETURN(Heap * found, FindHeap(tables, domain, heap));
  const Range& whole = found->range;
  std::map<uint64_t, Region> added;
  for (const Range& range : ranges) {
    if (range.bytes == 0 || Wraps(range) || range.address < whole.address ||
        range.address + range.bytes > whole.address + whole.bytes) {
      return WrongRange(range, fmt::format("does not lie in the heap of {} bytes at {:#x}", whole.bytes, whole.address),
                        "register pieces of the heap");
    }
    if (OverlapsRegion(found->regions, range) || OverlapsRegion(added, range)) {
      return WrongRange(range, "overlaps another region", "unregister that region first");
    }
    added.emplace(range.address, Region{0, heap, range.bytes});
  }
  if (tables.regions.size() + added.size() > kMostRegions) {
    return Error(kResourceExhausted, fmt::format("{} regions are registered", tables.regions.size()))
        .Hint("unregister regions that are gone");
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    const uint64_t number = tables.next++;
    found->regions[ranges[i].address] = {number, heap, ranges[i].bytes};
    tables.regions[number] = {heap, ranges[i].address};
    if (numbers != nullptr) numbers[i] = number;
    MarkNow("region", ranges[i]);
  }
  return {};
}

Status MemoryMarks::RemoveRegions(uint64_t domain, std::span<const Reference> regions) {
  REPRISE_RETURN_IF_ERROR(Markers::CheckDomain(domain));
  MemoryTables& tables = MarkedMemory();
  MutexLock lock(tables.mutex);
  std::set<std::pair<uint64_t, uint64_t>> found;  // heap and address
  for (const Reference& region : regions) {
    std::pair<uint64_t, uint64_t> place{};
    if (region.is_number) {
      if (const auto known = tables.regions.find(region.value); known != tables.regions.end()) place = known->second;
    } else {
      for (const auto& [number, heap] : tables.heaps) {
        if (heap.domain == domain && heap.regions.contains(region.value)) place = {number, region.value};
      }
    }
    const auto heap = tables.heaps.find(place.first);
    if (heap == tables.heaps.end() || heap->second.domain != domain || !found.insert(place).second) {
      return Error(kInvalidValue,
                   fmt::format("{} {:#x} is no region that is registered in this domain, or is there twice",
                               region.is_number ? "handle" : "pointer", region.value))
          .Culprit("an entry of refArray")
          .Hint("pass handles that mstxMemRegionsRegister wrote, or the addresses where regions begin, once each");
    }
  }
  for (const auto& [heap, address] : found) {
    auto& of_heap = tables.heaps.at(heap).regions;
    const Region region = of_heap.at(address);
    MarkNow("end of the region", {0, address, region.bytes});
    tables.regions.erase(region.number);
    of_heap.erase(address);
  }
  return {};
}

void MemoryMarks::EndDomain(uint64_t domain) {
  MemoryTables& tables = MarkedMemory();
  MutexLock lock(tables.mutex);
  for (auto heap = tables.heaps.begin(); heap != tables.heaps.end();) {
    if (heap->second.domain != domain) {
      ++heap;
      continue;
    }
    for (const auto& entry : heap->second.regions) tables.regions.erase(entry.second.number);
    heap = tables.heaps.erase(heap);
  }
}

}  // namespace reprise::profile
