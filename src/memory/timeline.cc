// SPDX-License-Identifier: Apache-2.0
#include "memory/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace reprise::memory {
namespace {

// A block from the change with which it came to the one with which it went.
struct Lifetime {
  ptrdiff_t begin;
  ptrdiff_t end;
  uint64_t bytes;
  size_t pool;
  const TraceContext* context;
};

std::string Place(const TraceContext* context) {
  if (context == nullptr) return "place not recorded";
  const std::vector<Frame> frames = context->Frames();
  if (frames.empty()) return "place not recorded";
  return fmt::format("{} ({}:{})", frames.front().name, frames.front().filename, frames.front().line);
}

class Builder {
 public:
  Builder(const MemorySnapshot& snapshot, int device) : snapshot_(snapshot) {
    timeline_.device = device;
    if (static_cast<size_t>(device) < snapshot.device_traces.size()) {
      trace_ = &snapshot.device_traces[static_cast<size_t>(device)];
    }
  }

  Timeline Build() {
    FindPools();
    Walk();
    FindLevels();
    FindHolders();
    return std::move(timeline_);
  }

 private:
  template <class Function>
  void ForSegments(Function function) const {
    for (const SegmentInfo& segment : snapshot_.segments) {
      if (segment.device == timeline_.device) function(segment);
    }
  }

  void FindPools() {
    positions_[{}] = 0;
    ForSegments([&](const SegmentInfo& segment) { positions_[segment.pool] = 0; });
    if (trace_ != nullptr) {
      for (const TraceEntry& entry : *trace_) positions_[entry.pool] = 0;
    }
    for (auto& [id, position] : positions_) {
      position = timeline_.pools.size();
      timeline_.pools.emplace_back().id = id;
    }
  }

  void Walk() {
    if (trace_ == nullptr) return;
    for (const TraceEntry& entry : *trace_) {
      const auto bytes = static_cast<int64_t>(entry.size);
      const size_t pool = positions_[entry.pool];
      const auto here = static_cast<ptrdiff_t>(timeline_.changes.size());
      const auto change = [&](int64_t allocated, int64_t reserved) {
        timeline_.changes.push_back({entry.time_us, pool, allocated, reserved});
      };
      switch (entry.action) {
        case TraceAction::kAlloc:
          open_[entry.address] = lifetimes_.size();
          lifetimes_.push_back({here, PTRDIFF_MAX, entry.size, pool, entry.context.get()});
          change(bytes, 0);
          break;
        case TraceAction::kFreeRequested:
          if (const auto it = open_.find(entry.address); it != open_.end()) {
            lifetimes_[it->second].end = here;
            open_.erase(it);
          } else {
            lifetimes_.push_back({-1, here, entry.size, pool, nullptr});
          }
          change(-bytes, 0);
          break;
        case TraceAction::kSegmentAlloc:
        case TraceAction::kSegmentMap: change(0, bytes); break;
        case TraceAction::kSegmentFree:
        case TraceAction::kSegmentUnmap: change(0, -bytes); break;
        case TraceAction::kOom: timeline_.ooms.push_back({entry.time_us, entry.size}); break;
        case TraceAction::kFreeCompleted:
        case TraceAction::kSnapshot: break;
      }
    }
    ForSegments([&](const SegmentInfo& segment) {
      for (const BlockInfo& block : segment.blocks) {
        if (block.state != BlockState::kActiveAllocated || open_.count(block.address) != 0) continue;
        lifetimes_.push_back({-1, PTRDIFF_MAX, block.size, positions_[segment.pool], block.context.get()});
      }
    });
  }

  // What there was before the first change: what there is now, less all changes; but never less than nothing.
  void FindLevels() {
    struct Level {
      int64_t now = 0, low = 0, high = 0;
      void Move(int64_t by) {
        now += by;
        low = std::min(low, now);
        high = std::max(high, now);
      }
    };
    std::vector<std::pair<Level, Level>> levels(timeline_.pools.size());
    for (const Timeline::Change& change : timeline_.changes) {
      levels[change.pool].first.Move(change.allocated);
      levels[change.pool].second.Move(change.reserved);
    }
    ForSegments([&](const SegmentInfo& segment) {
      Timeline::Pool& pool = timeline_.pools[positions_[segment.pool]];
      pool.allocated_before += static_cast<int64_t>(segment.allocated_size);
      pool.reserved_before += static_cast<int64_t>(segment.total_size);
    });
    int64_t allocated = 0;
    int64_t reserved = 0;
    for (size_t i = 0; i < levels.size(); ++i) {
      Timeline::Pool& pool = timeline_.pools[i];
      const auto& [a, r] = levels[i];
      pool.allocated_before = std::max({pool.allocated_before - a.now, -a.low, int64_t{0}});
      pool.reserved_before = std::max({pool.reserved_before - r.now, -r.low, int64_t{0}});
      pool.allocated_peak = pool.allocated_before + a.high;
      pool.reserved_peak = pool.reserved_before + r.high;
      allocated += pool.allocated_before;
      reserved += pool.reserved_before;
    }
    timeline_.peak = allocated;
    timeline_.reserved_peak = reserved;
    for (size_t i = 0; i < timeline_.changes.size(); ++i) {
      allocated += timeline_.changes[i].allocated;
      reserved += timeline_.changes[i].reserved;
      if (allocated > timeline_.peak) {
        timeline_.peak = allocated;
        timeline_.peak_change = static_cast<ptrdiff_t>(i);
      }
      if (reserved > timeline_.reserved_peak) {
        timeline_.reserved_peak = reserved;
        timeline_.reserved_peak_change = static_cast<ptrdiff_t>(i);
      }
    }
  }

  void FindHolders() {
    std::unordered_map<const TraceContext*, std::string> places;
    std::map<std::pair<size_t, std::string>, Timeline::Holder> holders;
    for (const Lifetime& life : lifetimes_) {
      if (life.begin > timeline_.peak_change || life.end <= timeline_.peak_change) continue;
      auto place = places.find(life.context);
      if (place == places.end()) place = places.emplace(life.context, Place(life.context)).first;
      Timeline::Holder& holder = holders[{life.pool, place->second}];
      holder.pool = life.pool;
      holder.place = place->second;
      holder.bytes += static_cast<int64_t>(life.bytes);
      ++holder.blocks;
    }
    for (auto& [key, holder] : holders) timeline_.holders.push_back(std::move(holder));
    std::stable_sort(timeline_.holders.begin(), timeline_.holders.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  }

  const MemorySnapshot& snapshot_;
  const std::vector<TraceEntry>* trace_ = nullptr;
  Timeline timeline_;
  std::map<PoolId, size_t> positions_;
  std::vector<Lifetime> lifetimes_;
  std::unordered_map<uint64_t, size_t> open_;  ///< live blocks by address
};

}  // namespace

std::vector<Timeline> Timelines(const MemorySnapshot& snapshot) {
  int devices = static_cast<int>(snapshot.device_traces.size());
  for (const SegmentInfo& segment : snapshot.segments) devices = std::max(devices, segment.device + 1);
  std::vector<Timeline> timelines;
  for (int device = 0; device < devices; ++device) {
    const bool traced = static_cast<size_t>(device) < snapshot.device_traces.size() &&
                        !snapshot.device_traces[static_cast<size_t>(device)].empty();
    const bool has_segments = std::any_of(snapshot.segments.begin(), snapshot.segments.end(),
                                          [&](const SegmentInfo& s) { return s.device == device; });
    if (traced || has_segments) timelines.push_back(Builder(snapshot, device).Build());
  }
  return timelines;
}

}  // namespace reprise::memory
