// SPDX-License-Identifier: Apache-2.0
//
// Random programs over the allocator of device memory, against an oracle that knows nothing of pools, trees and events:
// it keeps the byte range of everything that was handed out, and what still works on it. No range may be handed out or
// given back to the device while somebody may touch it; statistics are what a recount of the snapshot says; in the end
// nothing is left.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../unit/scale.h"
#include "base/fault.h"
#include "memory/block.h"
#include "memory/device_allocator.h"
#include "sim_driver.h"

namespace reprise::memory::testing {
namespace {

constexpr int kStreams = 5;  // of each device
constexpr uint64_t kTotal = 256 * kMiB;

const std::vector<std::pair<std::string, StatBySize DeviceStats::*>> kBySize = {
    {"allocation", &DeviceStats::allocation},
    {"segment", &DeviceStats::segment},
    {"active", &DeviceStats::active},
    {"inactive_split", &DeviceStats::inactive_split},
    {"allocated_bytes", &DeviceStats::allocated_bytes},
    {"reserved_bytes", &DeviceStats::reserved_bytes},
    {"active_bytes", &DeviceStats::active_bytes},
    {"inactive_split_bytes", &DeviceStats::inactive_split_bytes},
    {"requested_bytes", &DeviceStats::requested_bytes}};

/// How often programs got to what is rare.
struct Reached {
  int64_t refusals = 0, retries = 0, refusals_beside_captures = 0, lent = 0, returned_private = 0, holes = 0,
          best_fits = 0, waiting = 0, uncached = 0, joined = 0;
};

class Program : public SimDriver {
 public:
  Reached reached;

  Program(uint64_t seed, int devices) : SimDriver(kTotal, devices), seed_(seed), random_(seed) {
    config_.expandable_segments = Chance(3);
    if (!config_.expandable_segments) {
      if (Chance(4)) config_.max_split_size = 24 * kMiB;
      if (Chance(4)) config_.garbage_collection_threshold = 0.5;
    }
    config_.multi_stream_lazy_reclaim = Chance(5);
    config_.graph_capture_record_stream_reuse = Chance(2);
    config_.release_lock_on_malloc = Chance(2);
    config_.no_cache = Chance(12);
    if (Chance(4)) config_.per_process_memory_fraction = 0.7;
    if (Chance(4)) config_.roundup_power2_divisions.assign(16, 4);
    allocator_ = std::make_unique<DeviceAllocator>(*this, config_);
    expects_threads_ = Chance(3);
  }

  /// Empty, or what went wrong.
  std::string Run(int steps) {
    for (step_ = 0; step_ < steps && error_.empty(); ++step_) {
      Step();
      // Whoever looks calls the blocks of the front caches in.
      if (error_.empty() && (expects_threads_ ? Chance(16) : step_ % 4 == 0 || Chance(4))) Recount();
    }
    if (error_.empty()) Finish();
    SetCurrent(nullptr);
    ArmFault("*", 0);
    allocator_.reset();
    if (error_.empty()) {
      for (int device = 0; device < DeviceCount(); ++device) Expect(used(device) == 0, "memory is left in the driver");
      Expect(live_segments() == 0 && live_ranges() == 0 && live_events() == 0, "something is left in the driver");
    }
    return error_;
  }

  // ---- As the driver ----

  StatusOr<void*> Allocate(int device, uint64_t bytes) override {
    auto taken = SimDriver::Allocate(device, bytes);
    if (taken.ok()) owners_[static_cast<char*>(*taken)] = {bytes, device, wanted_pool_, wanted_stream_};
    return taken;
  }
  void Free(int device, void* segment) override {
    CheckReturned(device, static_cast<char*>(segment), owners_[static_cast<char*>(segment)].bytes);
    owners_.erase(static_cast<char*>(segment));
    SimDriver::Free(device, segment);
  }
  StatusOr<void*> ReserveRange(int device, uint64_t bytes, uint64_t page_bytes) override {
    auto range = SimDriver::ReserveRange(device, bytes, page_bytes);
    if (range.ok()) owners_[static_cast<char*>(*range)] = {bytes, device, wanted_pool_, wanted_stream_};
    return range;
  }
  void ReleaseRange(int device, void* range) override {
    owners_.erase(static_cast<char*>(range));
    SimDriver::ReleaseRange(device, range);
  }
  void DecommitPages(int device, void* at, uint64_t bytes, uint64_t page_bytes) override {
    CheckReturned(device, static_cast<char*>(at), bytes);
    SimDriver::DecommitPages(device, at, bytes, page_bytes);
  }
  void* CurrentStream(int device) override {
    void* current = SimDriver::CurrentStream(device);
    return current != nullptr && DeviceOf(current) == device ? current : nullptr;
  }
  void WaitForDevice(int device) override {
    Expect(!InCapture(device), "waits in a capture context");
    for (int i = 0; i < kStreams; ++i) {
      void* stream = StreamOf(device, i);
      if (!CaptureOf(stream).is_open) Advance(stream);
    }
    if (is_meanwhile_) return;
    // What other threads do until the caller goes on.
    is_meanwhile_ = true;
    busy_ = SimDriver::CurrentStream(device);  // a thread that waits begins no capture
    const PoolId pool = wanted_pool_;
    void* const stream = wanted_stream_;
    for (uint64_t steps = Pick(4); steps > 0 && error_.empty(); --steps) Meanwhile(device);
    SetCurrent(busy_);
    busy_ = nullptr;
    wanted_pool_ = pool;
    wanted_stream_ = stream;
    is_meanwhile_ = false;
  }

 private:
  struct Use {
    void* stream;
    uint64_t position;  ///< in its work
    uint64_t capture;   ///< 0: eager
    size_t task = 0;    ///< of the graph, when captured
  };
  struct Held {
    uint64_t size, requested;
    int device;
    void* stream;
    uint64_t tag;
    std::vector<Use> uses;
  };
  /// Memory that was freed, and until when somebody may touch it.
  struct Freed {
    uint64_t size;
    int device;
    void* stream;
    uint64_t position;  ///< in the work of its own stream
    std::vector<Use> uses;
    bool waited;  ///< had uses when it was freed
  };
  struct Owner {
    uint64_t bytes;
    int device;
    PoolId pool;
    void* stream;
  };
  struct Scope {
    int device;
    PoolId pool;
    uint64_t capture;  ///< 0: `stream` decides
    void* stream;
  };
  struct PoolState {
    int users = 0;
    bool use_on_oom = false;
    bool ever_on_oom = false;
    std::vector<std::pair<void*, uint64_t>> launches;  ///< of graphs that use its memory
  };

  bool Chance(int one_in) { return random_() % one_in == 0; }
  uint64_t Pick(uint64_t n) { return random_() % n; }
  int DeviceOf(void* stream) const { return static_cast<int>((reinterpret_cast<uintptr_t>(stream) - 1) / kStreams); }
  void* StreamOf(int device, int i) const { return S(static_cast<uintptr_t>(device * kStreams + i + 1)); }
  void* AnyStream(int device) { return StreamOf(device, static_cast<int>(Pick(kStreams))); }
  int AnyDevice() { return static_cast<int>(Pick(DeviceCount())); }
  bool IsOpen(void* stream) { return CaptureOf(stream).is_open; }
  void Expect(bool holds, const std::string& what) {
    if (!holds && error_.empty())
      error_ = "seed " + std::to_string(seed_) + ", step " + std::to_string(step_) + ": " + what;
  }
  uint64_t Position(void* stream) { return Submit(stream); }

  // ---- Steps ----

  void Step() {
    const int device = AnyDevice();
    SetCurrent(Chance(8) ? nullptr : AnyStream(device));
    if (expects_threads_ && Chance(4)) allocator_->ExpectThreads(device);
    switch (Pick(24)) {
      default: AllocateSome(device); break;
      case 9:
      case 10:
      case 11:
      case 12:
      case 13:
      case 14: FreeSome(); break;
      case 15:
      case 16: UseSome(); break;
      case 17: Chance(3) ? EraseSome() : AdvanceSome(device); break;
      case 18: AdvanceSome(device); break;
      case 19: CaptureSome(device); break;
      case 20: PoolCalls(device); break;
      case 21: Launch(device); break;
      case 22: Empty(device); break;
      case 23: Chance(3) ? Reconfigure() : Fail(); break;
    }
  }

  void Meanwhile(int device) {
    ++meanwhile_steps_;
    SetCurrent(Chance(8) ? nullptr : AnyStream(device));
    switch (Pick(8)) {
      default: AllocateSome(device); break;
      case 4:
      case 5: FreeSome(); break;
      case 6: Launch(device); break;
      case 7: CaptureSome(device); break;
    }
  }

  uint64_t AnySize() {
    if (expects_threads_ && Chance(2)) return 512 << Pick(3);
    switch (Pick(6)) {
      case 0: return 1 + Pick(2048);
      case 1: return 1 + Pick(kMiB);
      case 2: return (1 + Pick(8)) * kMiB / 4;
      case 3: return kMiB + 1 + Pick(9 * kMiB);
      case 4: return 10 * kMiB + Pick(30 * kMiB);
      default: return 512 << Pick(8);
    }
  }

  bool InCapture(int device) {
    void* current = CurrentStream(device);
    return current != nullptr && IsOpen(current);
  }

  PoolId PoolFor(int device, void* stream) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (scope->device != device) continue;
      const CaptureState state = CaptureOf(stream);
      if (scope->capture != 0 ? state.is_open && state.id == scope->capture : stream == scope->stream)
        return scope->pool;
    }
    return {};
  }

  void AllocateSome(int device) {
    void* stream = AnyStream(device);
    if (Chance(2)) SetCurrent(stream);
    AllocateOn(device, stream, AnySize());
  }
  void AllocateOn(int device, void* stream, uint64_t bytes) {
    const bool uncached = config_.no_cache && !InCapture(device);
    const bool may_wait = !InCapture(device);
    wanted_pool_ = uncached ? PoolId{} : PoolFor(device, stream);
    wanted_stream_ = stream;
    const std::optional<char*> best = uncached ? std::nullopt : BestFit(device, stream, bytes);
    const uint64_t meanwhile = meanwhile_steps_;
    auto got = allocator_->Allocate(device, bytes, stream);
    if (!got.ok()) {
      Status status = std::move(got).status();
      ++reached.refusals;
      if (may_wait && !uncached && !faulty_ && !best && !scopes_.empty()) ++reached.refusals_beside_captures;
      Expect(status.code() == 207001, "another error than out of memory");
      if (may_wait && !uncached && !faulty_ && !best && meanwhile == meanwhile_steps_) ExpectFlushed(device, bytes);
      Expect(!best || faulty_, "out of memory although a block was free");
      return;
    }
    char* block = static_cast<char*>(*got);
    const uint64_t size = allocator_->SizeOf(block);
    Expect(size >= bytes && size % 512 == 0, "a block of a wrong size");
    if (best) Expect(*best == block, "not the best fit");
    reached.best_fits += best ? 1 : 0;
    reached.uncached += uncached ? 1 : 0;
    CheckHandedOut(device, stream, block, size);
    Held held{size, bytes, device, stream, ++tags_, {}};
    Stamp(block, held);
    held_[block] = held;
  }

  /// From the snapshot, where that alone decides: the smallest free block of the pool and stream, then the lowest.
  std::optional<char*> BestFit(int device, void* stream, uint64_t bytes) {
    if (config_.max_split_size != UINT64_MAX || expects_threads_ || Chance(2)) return std::nullopt;
    const uint64_t size = RoundSize(bytes, config_);
    const BlockInfo* best = nullptr;
    const MemorySnapshot snapshot = allocator_->Snapshot({}, false);
    for (const SegmentInfo& segment : snapshot.segments) {
      for (const BlockInfo& block : segment.blocks) {
        // What waits may come free first.
        if (segment.device == device && block.state == BlockState::kActivePendingFree) return std::nullopt;
        if (segment.device != device || segment.stream != stream || segment.pool != wanted_pool_) continue;
        if (segment.is_large != (size > kSmallSize) || block.state != BlockState::kInactive || block.size < size)
          continue;
        if (best == nullptr || block.size < best->size) best = &block;  // segments and blocks come by address
      }
    }
    if (best == nullptr) return std::nullopt;
    return reinterpret_cast<char*>(best->address);
  }

  /// After a failure nothing is cached that could have been given back.
  void ExpectFlushed(int device, uint64_t bytes) {
    const uint64_t size = RoundSize(bytes, config_);
    if (!config_.expandable_segments) {
      const uint64_t limit = fraction_of_total();
      const uint64_t needed = SegmentSize(size, config_);
      Expect(used(device) + needed > limit, "out of memory although the device has room");
    }
    for (const SegmentInfo& segment : allocator_->Snapshot({}, false).segments) {
      const auto users = pools_.find({segment.device, segment.pool});
      if (segment.device != device || segment.is_expandable || IsOpen(segment.stream)) continue;
      // Graphs may have been launched on streams that are captured now.
      if (!segment.pool.is_default() &&
          (users->second.users > 0 || AnyCapture(device) || IsRouted(device, segment.pool)))
        continue;
      Expect(segment.blocks.size() > 1 || segment.blocks[0].state != BlockState::kInactive,
             "out of memory although an unused segment is cached");
    }
  }
  uint64_t fraction_of_total() const {
    return static_cast<uint64_t>(config_.per_process_memory_fraction * static_cast<double>(kTotal));
  }
  bool AnyCapture(int device) {
    return std::any_of(scopes_.begin(), scopes_.end(),
                       [&](const Scope& scope) { return scope.device == device && scope.capture != 0; });
  }
  bool IsRouted(int device, PoolId pool) {
    return std::any_of(scopes_.begin(), scopes_.end(),
                       [&](const Scope& scope) { return scope.device == device && scope.pool == pool; });
  }

  void FreeSome() {
    if (held_.empty()) return;
    auto it = std::next(held_.begin(), static_cast<ptrdiff_t>(Pick(held_.size())));
    if (Chance(3)) SetCurrent(it->second.stream);
    FreeOne(it);
  }
  void FreeOne(std::map<char*, Held>::iterator it) {
    const auto [block, held] = *it;
    CheckStamp(block, held);
    // As the last work on its stream, unless that work was captured.
    const uint64_t position = IsOpen(held.stream) ? 0 : Position(held.stream);
    held_.erase(it);
    if (held.uses.empty()) Stamp(block, {held.size, 0, 0, nullptr, 0xdeaddeaddeaddeadu, {}});
    freed_[block] = {held.size, held.device, held.stream, position, held.uses, !held.uses.empty()};
    const Status status = allocator_->Free(block);
    Expect(status.ok(), "a block cannot be freed");
    if (Chance(10)) Expect(!allocator_->Free(block).ok(), "a block can be freed twice");
  }

  void UseSome() {
    if (held_.empty()) return;
    auto it = std::next(held_.begin(), static_cast<ptrdiff_t>(Pick(held_.size())));
    UseOn(it, AnyStream(it->second.device));
  }
  void UseOn(std::map<char*, Held>::iterator it, void* stream) {
    const CaptureState state = CaptureOf(stream);
    if (stream != it->second.stream) {
      const uint64_t position = state.is_open ? 0 : Position(stream);
      const size_t task = state.is_open ? CaptureTask(stream) : 0;
      it->second.uses.push_back({stream, position, state.is_open ? state.id : 0, task});
    }
    Expect(allocator_->RecordStream(it->first, stream).ok(), "a use cannot be recorded");
  }

  /// The program knows that the stream is done with the block, live or freed.
  void EraseSome() {
    const auto erase = [&](char* block, std::vector<Use>& uses) {
      if (uses.empty()) return;
      void* stream = uses[Pick(uses.size())].stream;
      std::erase_if(uses, [&](const Use& use) { return use.stream == stream; });
      Expect(allocator_->EraseStream(block, stream).ok(), "a use cannot be erased");
    };
    if (Chance(2) && !held_.empty()) {
      auto it = std::next(held_.begin(), static_cast<ptrdiff_t>(Pick(held_.size())));
      erase(it->first, it->second.uses);
    } else if (!freed_.empty()) {
      auto it = std::next(freed_.begin(), static_cast<ptrdiff_t>(Pick(freed_.size())));
      if (it->second.waited) erase(it->first, it->second.uses);
    }
  }

  void AdvanceSome(int device) {
    void* stream = AnyStream(device);
    if (IsOpen(stream)) return;
    Chance(2) ? Advance(stream) : AdvanceBy(stream, 1 + Pick(4));
  }

  // Graphs, as tasks and what each comes right after; the newest tasks of each stream.
  size_t CaptureTask(void* stream) {
    Capture(stream);
    after_.push_back(newest_[stream]);
    newest_[stream] = {after_.size() - 1};
    return after_.size() - 1;
  }
  void WaitFor(void* to, void* from) {
    if (!IsOpen(to)) newest_[to].clear();
    Join(to, from);
    newest_[to].insert(newest_[from].begin(), newest_[from].end());
  }
  bool ComesBefore(size_t task, void* stream) const {
    std::set<size_t> seen;
    std::vector<size_t> left;
    const auto add = [&](const std::set<size_t>& tasks) {
      for (size_t each : tasks) {
        if (each >= task && seen.insert(each).second) left.push_back(each);
      }
    };
    if (const auto newest = newest_.find(stream); newest != newest_.end()) add(newest->second);
    while (!left.empty() && seen.count(task) == 0) {
      const size_t each = left.back();
      left.pop_back();
      add(after_[each]);
    }
    return seen.count(task) != 0;
  }

  /// What programs with side streams do inside of a capture, in any order: fork, use, join, free, allocate.
  void GoThroughForks(int device) {
    void* main = AnyStream(device);
    for (int i = 0; i < kStreams && !IsOpen(main); ++i) main = StreamOf(device, i);
    if (!IsOpen(main)) return;
    SetCurrent(main);
    for (uint64_t steps = 8 + Pick(16); steps > 0 && error_.empty(); --steps) {
      void* const side = AnyStream(device);
      const auto mine = std::find_if(held_.begin(), held_.end(), [&](const auto& held) {
        const Owner* owner = OwnerOf(held.first);
        return held.second.stream == main && owner != nullptr && owner->pool == PoolFor(device, main);
      });
      switch (Pick(5)) {
        case 0: AllocateOn(device, main, 512 << Pick(4)); break;
        case 1: AddEdge(main, side); break;
        case 2: AddEdge(side, Chance(2) ? main : AnyStream(device)); break;
        case 3:
          if (mine != held_.end() && IsOpen(side)) UseOn(mine, side);
          break;
        default:
          if (mine != held_.end()) FreeOne(mine);
      }
    }
  }
  void AddEdge(void* from, void* to) {
    if (!IsOpen(from) || from == to || to == busy_) return;
    if (Chance(2)) CaptureTask(from);
    if (!IsOpen(to) || CaptureOf(to).id == CaptureOf(from).id) WaitFor(to, from);
  }

  void CaptureSome(int device) {
    switch (Pick(6)) {
      case 0:
      case 1: {
        void* stream = AnyStream(device);
        PoolId pool{++pool_ids_, 0};
        if (Chance(3) && !graphs_.empty()) {  // shared with an earlier graph
          pool = graphs_[Pick(graphs_.size())].second;
        }
        if (IsOpen(stream) || stream == busy_) return;
        const uint64_t id = ++capture_ids_;
        const Status begun = allocator_->BeginAllocateToPool(
            device, pool, [this, id](void* s) { return CaptureOf(s).is_open && CaptureOf(s).id == id; });
        if (IsRouted(device, pool)) {
          Expect(begun.code() == 107000, "a pool is routed twice");
          return;
        }
        if (!begun.ok()) {
          Expect(faulty_, "a capture cannot begin");
          return;
        }
        ++pools_[{device, pool}].users;
        scopes_.push_back({device, pool, id, nullptr});
        BeginCapture(stream, id);
        newest_[stream].clear();
        allocator_->MarkCaptureBegin(device);
        return;
      }
      case 2: {  // a fork, or an edge between streams of one capture
        void* from = AnyStream(device);
        return AddEdge(from, AnyStream(device));
      }
      case 3:
      case 4: return GoThroughForks(device);
      default:
        if (!scopes_.empty()) EndScope(Pick(scopes_.size()));
    }
  }

  void EndScope(size_t i) {
    const Scope scope = scopes_[i];
    if (scope.capture != 0) {
      EndCapture(scope.capture);
      allocator_->MarkCaptureEnd(scope.device);
    }
    Expect(allocator_->EndAllocateToPool(scope.device, scope.pool).ok(), "a scope cannot end");
    scopes_.erase(scopes_.begin() + static_cast<ptrdiff_t>(i));
    graphs_.emplace_back(scope.device, scope.pool);
  }

  void PoolCalls(int device) {
    switch (Pick(4)) {
      case 0: {  // a scope that is no capture
        const PoolId pool{0, ++pool_ids_};
        void* stream = AnyStream(device);
        if (allocator_->BeginAllocateToPool(device, pool, [stream](void* s) { return s == stream; }).ok()) {
          ++pools_[{device, pool}].users;
          scopes_.push_back({device, pool, 0, stream});
          if (Chance(3)) Expect(allocator_->SetNoSplit(device, pool).ok(), "a pool cannot be kept whole");
          no_split_.insert(pool);
        } else {
          Expect(faulty_, "a scope cannot begin");
        }
        return;
      }
      case 1:
      case 2:
        if (!graphs_.empty()) Release(Pick(graphs_.size()));
        return;
      default:
        if (graphs_.empty()) return;
        const auto& [where, pool] = graphs_[Pick(graphs_.size())];
        PoolState& state = pools_[{where, pool}];
        state.use_on_oom = !state.use_on_oom;
        state.ever_on_oom = true;
        Expect(allocator_->SetUseOnOom(where, pool, state.use_on_oom).ok(), "a pool cannot be lent");
    }
  }

  void Release(size_t i) {
    const auto [device, pool] = graphs_[i];
    graphs_.erase(graphs_.begin() + static_cast<ptrdiff_t>(i));
    --pools_[{device, pool}].users;
    Expect(allocator_->ReleasePool(device, pool).ok(), "a pool cannot be released");
    Expect(allocator_->PoolUsers(device, pool) == (pools_[{device, pool}].users), "users are counted wrongly");
  }

  /// A graph runs on some stream: all of its pool is in use until that has got there.
  void Launch(int device) {
    if (graphs_.empty()) return;
    const auto& [where, pool] = graphs_[Pick(graphs_.size())];
    void* stream = AnyStream(where);
    (void)device;
    if (!IsOpen(stream)) pools_[{where, pool}].launches.emplace_back(stream, Position(stream));
  }

  void Empty(int device) {
    const PoolId pool = Chance(2) || graphs_.empty() ? PoolId{} : graphs_[Pick(graphs_.size())].second;
    (void)device;
    Expect(allocator_->EmptyCache(pool).ok(), "the cache cannot be emptied");
  }

  void Reconfigure() {
    if (config_.max_split_size != UINT64_MAX || config_.garbage_collection_threshold > 0) return;
    config_.expandable_segments = !config_.expandable_segments;
    Expect(allocator_->SetConfig(config_).ok(), "the settings cannot be changed");
  }

  void Fail() {
    faulty_ = true;  // from now on failures need no other reason
    ArmFault("*", 1 + static_cast<int>(Pick(6)));
  }

  // ---- Checks ----

  /// A few words at the begin, the middle and the end.
  static void Stamp(char* block, const Held& held) {
    for (uint64_t at : {uint64_t{0}, held.size / 2 / 8 * 8, held.size - 8}) std::memcpy(block + at, &held.tag, 8);
  }
  void CheckStamp(const char* block, const Held& held) {
    for (uint64_t at : {uint64_t{0}, held.size / 2 / 8 * 8, held.size - 8}) {
      Expect(std::memcmp(block + at, &held.tag, 8) == 0, "a held block was overwritten");
    }
  }

  /// Calls visit(begin, range) for all of `ranges` that meet [begin, begin + size).
  template <class Ranges, class Visit>
  static void ForEachIn(Ranges& ranges, char* begin, uint64_t size, const Visit& visit) {
    auto it = ranges.upper_bound(begin);
    if (it != ranges.begin() && std::prev(it)->first + std::prev(it)->second.size > begin) --it;
    while (it != ranges.end() && it->first < begin + size) {
      auto here = it++;
      visit(here);
    }
  }

  void CheckUses(const Freed& freed, const char* what) {
    for (const Use& use : freed.uses) {
      const bool open = use.capture != 0 && std::any_of(scopes_.begin(), scopes_.end(), [&](const Scope& scope) {
                          return scope.capture == use.capture && HasOpen(use.capture);
                        });
      const bool joined = open && config_.graph_capture_record_stream_reuse && IsOpen(freed.stream) &&
                          CaptureOf(freed.stream).id == use.capture && ComesBefore(use.task, freed.stream);
      reached.joined += joined ? 1 : 0;
      Expect(use.capture != 0 ? !open || joined : Passed(use.stream, use.position), what);
    }
  }
  bool HasOpen(uint64_t capture) {
    for (int i = 0; i < kStreams * DeviceCount(); ++i) {
      const CaptureState state = CaptureOf(S(static_cast<uintptr_t>(i + 1)));
      if (state.is_open && state.id == capture) return true;
    }
    return false;
  }

  const Owner* OwnerOf(char* at) {
    auto it = owners_.upper_bound(at);
    if (it == owners_.begin()) return nullptr;
    --it;
    return at < it->first + it->second.bytes ? &it->second : nullptr;
  }

  void CheckHandedOut(int device, void* stream, char* block, uint64_t size) {
    ForEachIn(held_, block, size, [&](auto) { Expect(false, "a block overlaps one that is held"); });
    const Owner* owner = OwnerOf(block);
    Expect(owner != nullptr && owner->device == device, "a block is in no segment of the device");
    if (!error_.empty()) return;
    Expect(owner->stream == stream, "a block of another stream");
    const bool lent = wanted_pool_.is_default() && pools_[{device, owner->pool}].use_on_oom;
    if (owner->pool != wanted_pool_) ++reached.lent;
    Expect(owner->pool == wanted_pool_ || lent, "a block of a wrong pool");
    ForEachIn(freed_, block, size, [&](auto it) {
      Expect(it->second.stream == stream, "memory of another stream without a way through the device");
      CheckUses(it->second, "a block is handed out while a stream uses it");
      // What reaches beyond stays as it was.
      char* const begin = it->first;
      const Freed freed = it->second;
      freed_.erase(it);
      if (begin < block) freed_[begin] = freed, freed_[begin].size = static_cast<uint64_t>(block - begin);
      char* const end = begin + freed.size;
      if (end > block + size) {
        freed_[block + size] = freed;
        freed_[block + size].size = static_cast<uint64_t>(end - block) - size;
        freed_[block + size].waited = false;
      }
    });
  }

  void CheckReturned(int device, char* begin, uint64_t size) {
    if (allocator_ == nullptr || finished_) return;
    ForEachIn(held_, begin, size, [&](auto) { Expect(false, "memory that is held goes back to the device"); });
    const Owner* owner = OwnerOf(begin);
    Expect(owner != nullptr, "foreign memory goes back to the device");
    if (!error_.empty()) return;
    if (!owner->pool.is_default()) {
      const PoolState& pool = pools_[{device, owner->pool}];
      ++reached.returned_private;
      Expect(pool.users == 0, "memory of a graph goes back to the device");
      for (const auto& [stream, position] : pool.launches) {
        Expect(Passed(stream, position), "memory goes back while a graph that uses it runs");
      }
    }
    ForEachIn(freed_, begin, size, [&](auto it) {
      CheckUses(it->second, "memory goes back to the device while another stream uses it");
      Expect(Passed(it->second.stream, it->second.position), "memory goes back to the device while its stream uses it");
      char* const at = it->first;
      const Freed freed = it->second;
      freed_.erase(it);
      if (at < begin) freed_[at] = freed, freed_[at].size = static_cast<uint64_t>(begin - at);
      char* const end = at + freed.size;
      if (end > begin + size) {
        freed_[begin + size] = freed;
        freed_[begin + size].size = static_cast<uint64_t>(end - begin) - size;
        freed_[begin + size].waited = false;
      }
    });
  }

  /// Statistics and snapshot say the same, and what the oracle knows.
  void Recount() {
    const MemorySnapshot snapshot = allocator_->Snapshot({}, false);
    std::vector<DeviceStats> counted(DeviceCount());
    size_t live = 0;
    uint64_t plain_and_runs = 0;
    for (const SegmentInfo& segment : snapshot.segments) {
      DeviceStats& stats = counted[segment.device];
      ++plain_and_runs;
      const auto add = [&](StatBySize& stat, uint64_t by) {
        stat.all.current += static_cast<int64_t>(by);
        (segment.is_large ? stat.large_pool : stat.small_pool).current += static_cast<int64_t>(by);
      };
      add(stats.reserved_bytes, segment.total_size);
      uint64_t at = segment.address;
      bool after_free = false;
      for (const BlockInfo& block : segment.blocks) {
        Expect(block.address == at, "blocks do not lie side by side");
        at += block.size;
        const bool is_free = block.state == BlockState::kInactive;
        Expect(!(is_free && after_free), "two free neighbours");
        after_free = is_free;
        if (is_free) {
          Expect(block.requested_size == 0, "a free block was asked for");
          if (!segment.is_expandable && segment.blocks.size() > 1) {
            add(stats.inactive_split, 1);
            add(stats.inactive_split_bytes, block.size);
          }
          continue;
        }
        add(stats.active, 1);
        add(stats.active_bytes, block.size);
        add(stats.requested_bytes, block.requested_size);
        auto* address = reinterpret_cast<char*>(block.address);
        if (block.state == BlockState::kActivePendingFree) {
          const auto freed = freed_.find(address);
          ++reached.waiting;
          Expect(freed != freed_.end() && (freed->second.waited || config_.no_cache), "a block waits for nothing");
          continue;
        }
        ++live;
        const auto held = held_.find(address);
        Expect(held != held_.end() && held->second.size == block.size && held->second.requested == block.requested_size,
               "the snapshot shows a block that is not held");
        add(stats.allocation, 1);
        add(stats.allocated_bytes, block.size);
      }
      Expect(at == segment.address + segment.total_size, "blocks do not fill their segment");
    }
    Expect(live == held_.size(), "a block that is held is not in the snapshot");
    if (plain_and_runs > live_segments() + live_ranges()) ++reached.holes;
    int64_t segments = 0;
    for (int device = 0; device < DeviceCount(); ++device) {
      const DeviceStats stats = allocator_->Stats(device);
      Expect(static_cast<uint64_t>(stats.reserved_bytes.all.current) == used(device),
             "reserved bytes are not the device's");
      segments += stats.segment.all.current;
      counted[device].segment = stats.segment;
      for (const auto& [name, member] : kBySize) {
        const StatBySize& stat = stats.*member;
        const StatBySize& expected = counted[device].*member;
        for (Stat StatBySize::*part : {&StatBySize::all, &StatBySize::small_pool, &StatBySize::large_pool}) {
          const Stat& is = stat.*part;
          Expect(is.current == (expected.*part).current,
                 name + " is " + std::to_string(is.current) + ", not " + std::to_string((expected.*part).current));
          Expect(is.peak >= is.current, name + " is above its peak");
          Expect(is.allocated - is.freed == is.current, name + " is not what came less what went");
        }
      }
    }
    Expect(segments == static_cast<int64_t>(live_segments() + live_ranges()), "segments are counted wrongly");
    Expect(plain_and_runs >= static_cast<uint64_t>(segments), "a segment is not in the snapshot");
    Expect(events_in_captures == 0, "an event was recorded in a capture");
  }

  /// Everything ends in order: then nothing may be left, not even cached.
  void Finish() {
    SetCurrent(nullptr);
    ArmFault("*", 0);
    is_meanwhile_ = true;  // nothing else goes on
    while (!scopes_.empty()) EndScope(scopes_.size() - 1);
    while (!held_.empty()) FreeOne(held_.begin());
    while (!graphs_.empty()) Release(graphs_.size() - 1);
    Recount();
    for (int round = 0; round < 2; ++round) Expect(allocator_->EmptyCache().ok(), "the cache cannot be emptied");
    for (int device = 0; device < DeviceCount(); ++device) {
      const DeviceStats stats = allocator_->Stats(device);
      reached.retries += stats.num_alloc_retries;
      for (const auto& [name, value] : stats.Flatten()) {
        if (name.ends_with(".current")) Expect(value == 0, name + " is left at " + std::to_string(value));
      }
      for (const auto& [key, pool] : pools_) {
        Expect(allocator_->ReleasePool(key.first, key.second).code() == 107000, "a pool is left");
      }
    }
    finished_ = true;
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
  Config config_;
  std::unique_ptr<DeviceAllocator> allocator_;
  int step_ = 0;
  std::string error_;
  bool faulty_ = false, finished_ = false;
  uint64_t meanwhile_steps_ = 0;
  void* busy_ = nullptr;       ///< the current stream of the thread that waits
  bool is_meanwhile_ = false;  ///< other threads go on while one waits
  uint64_t tags_ = 0, pool_ids_ = 0, capture_ids_ = 0;
  PoolId wanted_pool_;
  void* wanted_stream_ = nullptr;
  bool expects_threads_ = false;
  std::map<char*, Held> held_;
  std::map<char*, Freed> freed_;
  std::map<char*, Owner> owners_;
  std::vector<Scope> scopes_;
  std::vector<std::pair<int, PoolId>> graphs_;  ///< one entry for each user of a pool that routes no more
  std::map<std::pair<int, PoolId>, PoolState> pools_;
  std::set<PoolId> no_split_;
  std::vector<std::set<size_t>> after_;
  std::map<void*, std::set<size_t>> newest_;
};

int Cases(int full) {
  const char* cases = std::getenv("REPRISE_TEST_CASES");
  return cases != nullptr ? std::atoi(cases) : ::reprise::testing::InForm(::reprise::testing::Loops(full, full / 20));
}

TEST(DeviceRandom, ProgramsKeepToTheOracle) {
  Reached all;
  const int cases = Cases(2000);
  for (int seed = 1; seed <= cases; ++seed) {
    Program program(static_cast<uint64_t>(seed), 1 + seed % 2);
    const std::string error = program.Run(40 + seed % 200);
    ASSERT_EQ(error, "");
    const auto add = [&](int64_t Reached::*what) { all.*what += program.reached.*what; };
    for (auto what : {&Reached::refusals, &Reached::retries, &Reached::refusals_beside_captures, &Reached::lent,
                      &Reached::returned_private, &Reached::holes, &Reached::best_fits, &Reached::waiting,
                      &Reached::uncached, &Reached::joined}) {
      add(what);
    }
  }
  if (cases < 1000) return;
  // Programs are worth as much as what they get to.
  EXPECT_GT(all.refusals, 1000);
  EXPECT_GT(all.retries, 1000);
  EXPECT_GT(all.refusals_beside_captures, 10);
  EXPECT_GT(all.lent, 10);
  EXPECT_GT(all.returned_private, 1000);
  EXPECT_GT(all.holes, 100);
  EXPECT_GT(all.best_fits, 1000);
  EXPECT_GT(all.waiting, 10000);
  EXPECT_GT(all.uncached, 1000);
  EXPECT_GT(all.joined, 100);
}

}  // namespace
}  // namespace reprise::memory::testing
