// SPDX-License-Identifier: Apache-2.0
//
// Expandable segments, and what the allocator of device memory shows of itself: statistics, snapshots, history.
#include <set>
#include <vector>

#include "base/fault.h"
#include "device_fixture.h"

namespace reprise::memory::testing {
namespace {

struct Expandable : DeviceTest {
  Expandable() { config.expandable_segments = true; }
};

TEST_F(Expandable, ReservedMemoryGrowsByPages) {
  struct Row {
    uint64_t bytes;
    int64_t reserved_mib;
  };
  for (const Row& row :
       std::vector<Row>{{512, 2}, {kMiB, 2}, {kMiB, 4}, {2 * kMiB, 24}, {20 * kMiB, 44}, {30 * kMiB, 64}}) {
    Get(row.bytes, s1);
    EXPECT_EQ(Reserved(), row.reserved_mib * static_cast<int64_t>(kMiB)) << row.bytes;
  }
  EXPECT_EQ(Segments(), 2);  // one range for small blocks, one for large ones
  EXPECT_EQ(Stats().inactive_split.all.current, 0);
  EXPECT_EQ(sim.live_ranges(), 2u);
  EXPECT_EQ(sim.live_segments(), 0u);
  Get(512, s2);
  EXPECT_EQ(Segments(), 3);  // for each stream
}

TEST_F(Expandable, GrownMemoryIsOneBlock) {
  char* first = Get(15 * kMiB, s1);
  char* second = Get(100 * kMiB, s1);  // 5 MiB that are free, then new pages
  EXPECT_EQ(second, first + 15 * kMiB);
  EXPECT_EQ(Reserved(), static_cast<int64_t>(120 * kMiB));
  Put(first), Put(second);
  EXPECT_EQ(Get(115 * kMiB, s1), first);
  EXPECT_EQ(Get(5 * kMiB, s1), first + 115 * kMiB);
}

TEST_F(Expandable, WholeFreePagesGoBackAndAreFilledAgain) {
  std::vector<char*> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(Get(20 * kMiB - 512, s1));
  Put(blocks[2]), Put(blocks[3]);
  ASSERT_EQ(a().EmptyCache().code(), 0);
  // Pages of 20 MiB: what is free reaches from just before the third page's begin to within the fourth.
  EXPECT_EQ(Reserved(), static_cast<int64_t>(80 * kMiB));
  EXPECT_EQ(Segments(), 1);
  const MemorySnapshot snapshot = a().Snapshot({}, false);
  ASSERT_EQ(snapshot.segments.size(), 2u);  // a range with a hole
  for (const SegmentInfo& segment : snapshot.segments) {
    EXPECT_TRUE(segment.is_expandable);
    EXPECT_TRUE(segment.is_large);
    uint64_t at = segment.address;
    for (const BlockInfo& block : segment.blocks) {
      EXPECT_EQ(block.address, at);
      at += block.size;
    }
    EXPECT_EQ(at, segment.address + segment.total_size);
  }
  char* refilled = Get(39 * kMiB, s1);
  EXPECT_EQ(refilled, blocks[2]);
  EXPECT_EQ(Reserved(), static_cast<int64_t>(100 * kMiB));
  for (char* block : {blocks[0], blocks[1], refilled, blocks[4]}) Put(block);
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(Segments(), 0);
  EXPECT_EQ(sim.live_ranges(), 0u);
  EXPECT_EQ(Stats().num_device_alloc - Stats().num_device_free, 6 - 2);  // calls, not pages
}

TEST_F(Expandable, PrivateRangesKeepTheirPages) {
  BeginCapture(s1);
  char* block = Get(30 * kMiB, s1);
  sim.BeginCapture(s2, 7);
  Get(30 * kMiB, s2);
  Put(block);
  EndCapture();
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(Reserved(), static_cast<int64_t>(80 * kMiB));
  EXPECT_EQ(a().Snapshot(kP, false).segments.size(), 2u);
  ASSERT_EQ(a().ReleasePool(0, kP).code(), 0);
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(Reserved(), static_cast<int64_t>(40 * kMiB));
  EXPECT_EQ(sim.live_ranges(), 1u);
}

TEST_F(Expandable, DefaultRangesKeepTheirPagesInACapture) {
  Put(Get(512, s1));
  BeginCapture(s1);
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(Reserved(), static_cast<int64_t>(2 * kMiB));
  EndCapture();
}

TEST_F(Expandable, WhatCannotGrowLeavesNothingBehind) {
  EXPECT_EQ(Refusal(2 * kGiB, s1).code(), 207001);
  EXPECT_EQ(sim.live_ranges(), 0u);
  Get(900 * kMiB, s1);
  EXPECT_EQ(Refusal(200 * kMiB, s1).code(), 207001);
  EXPECT_EQ(Reserved(), static_cast<int64_t>(900 * kMiB));
  EXPECT_EQ(sim.used(), 900 * kMiB);
  Get(100 * kMiB, s1);
  ASSERT_EQ(a().SetMemoryFraction(0, 0.98).code(), 0);
  EXPECT_EQ(Refusal(20 * kMiB, s1).code(), 207001);
}

TEST_F(Expandable, BothKindsLiveSideBySide) {
  char* range = Get(2 * kMiB, s1);
  Config plain;
  ASSERT_EQ(a().SetConfig(plain).code(), 0);
  Get(30 * kMiB, s1);
  EXPECT_EQ(sim.live_segments(), 1u);
  EXPECT_EQ(Get(2 * kMiB, s1), range + 2 * kMiB);
  ASSERT_EQ(a().SetConfig(config).code(), 0);
  Get(30 * kMiB, s1);
  EXPECT_EQ(sim.live_segments(), 1u);
  Config both = config;
  both.max_split_size = 64 * kMiB;
  EXPECT_EQ(a().SetConfig(both).code(), 107000);
  EXPECT_EQ(a().GetConfig().max_split_size, UINT64_MAX);
}

TEST_F(Expandable, LargePagesCanHaveAGibibyte) {
  sim.set_total(8 * kGiB);
  config.expandable_pages_1g = true;
  Get(2 * kMiB, s1);
  Get(512, s1);
  EXPECT_EQ(Reserved(), static_cast<int64_t>(kGiB + 2 * kMiB));
}

struct Insight : DeviceTest {};

TEST_F(Insight, StatisticsHaveTheNamesOfTheSpecification) {
  std::vector<std::string> expected;
  for (const char* quantity : {"allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes",
                               "active_bytes", "inactive_split_bytes", "requested_bytes"}) {
    for (const char* size : {"all", "small_pool", "large_pool"}) {
      for (const char* what : {"current", "peak", "allocated", "freed"}) {
        expected.push_back(std::string(quantity) + "." + size + "." + what);
      }
    }
  }
  for (const char* quantity : {"oversize_allocations", "oversize_segments"}) {
    for (const char* what : {"current", "peak", "allocated", "freed"}) {
      expected.push_back(std::string(quantity) + "." + what);
    }
  }
  for (const char* count : {"num_alloc_retries", "num_ooms", "num_oom_rejections", "num_sync_all_streams",
                            "num_device_alloc", "num_device_free", "max_split_size"}) {
    expected.emplace_back(count);
  }
  std::vector<std::string> names;
  Get(700, s1);
  for (const auto& [name, value] : Stats().Flatten()) {
    names.push_back(name);
    if (name == "allocated_bytes.small_pool.peak") {
      EXPECT_EQ(value, 1024);
    }
    if (name == "requested_bytes.all.allocated") {
      EXPECT_EQ(value, 700);
    }
    if (name == "max_split_size") {
      EXPECT_EQ(value, -1);
    }
  }
  EXPECT_EQ(names, expected);
}

TEST_F(Insight, StatisticsAreReset) {
  char* block = Get(4096, s1);
  Get(512, s1);
  Put(block);
  a().ResetPeakStats(0);
  EXPECT_EQ(Stats().allocated_bytes.all, (Stat{512, 512, 4608, 4096}));
  a().ResetAccumulatedStats(0);
  EXPECT_EQ(Stats().allocated_bytes.all, (Stat{512, 512, 0, 0}));
  EXPECT_EQ(Stats().num_device_alloc, 0);
  Get(512, s1);
  EXPECT_EQ(Stats().allocated_bytes.small_pool, (Stat{1024, 1024, 512, 0}));
}

TEST_F(Insight, ActiveBlocksAreThoseHeldAndThoseThatWait) {
  char* first = Get(512, s1);
  char* second = Get(1024, s1);
  EXPECT_EQ(Stats().active_bytes.all, (Stat{1536, 1536, 1536, 0}));
  ASSERT_EQ(a().RecordStream(first, s2).code(), 0);
  Put(first);
  EXPECT_EQ(Stats().active_bytes.all, (Stat{1536, 1536, 1536, 0}));
  EXPECT_EQ(Stats().allocated_bytes.all, (Stat{1024, 1536, 1536, 512}));
  Get(2048, s1);
  EXPECT_EQ(Stats().active_bytes.small_pool, (Stat{3584, 3584, 3584, 0}));
  EXPECT_EQ(Stats().allocated_bytes.all.peak, 3072);
  a().ResetAccumulatedStats(0);
  EXPECT_EQ(Stats().active.all, (Stat{3, 3, 0, 0}));
  sim.Advance(s2);
  Put(second);
  Get(512, s1);
  EXPECT_EQ(Stats().active.all, (Stat{2, 3, 1, 2}));
  EXPECT_EQ(Stats().active_bytes.all, (Stat{2560, 3584, 512, 1536}));
  a().ResetPeakStats(0);
  EXPECT_EQ(Stats().active_bytes.all.peak, 2560);
}

TEST_F(Insight, SnapshotsShowSegmentsAndBlocks) {
  char* live = Get(700, s1);
  char* waiting = Get(512, s1);
  ASSERT_EQ(a().RecordStream(waiting, s2).code(), 0);
  Put(waiting);
  const MemorySnapshot snapshot = a().Snapshot();
  ASSERT_EQ(snapshot.segments.size(), 1u);
  const SegmentInfo& segment = snapshot.segments[0];
  EXPECT_EQ(segment.address, reinterpret_cast<uintptr_t>(live));
  EXPECT_EQ(segment.total_size, 2 * kMiB);
  EXPECT_EQ(segment.allocated_size, 1024u);
  EXPECT_EQ(segment.active_size, 1536u);
  EXPECT_EQ(segment.requested_size, 1212u);
  EXPECT_EQ(segment.stream, s1);
  EXPECT_FALSE(segment.is_large || segment.is_expandable);
  ASSERT_EQ(segment.blocks.size(), 3u);
  EXPECT_EQ(segment.blocks[0].state, BlockState::kActiveAllocated);
  EXPECT_EQ(segment.blocks[0].requested_size, 700u);
  EXPECT_EQ(segment.blocks[1].state, BlockState::kActivePendingFree);
  EXPECT_EQ(segment.blocks[2].state, BlockState::kInactive);
  EXPECT_EQ(segment.blocks[2].requested_size, 0u);
  ASSERT_EQ(snapshot.device_traces.size(), 1u);
  EXPECT_TRUE(snapshot.device_traces[0].empty());  // nothing was recorded
}

class Here : public TraceContext {
 public:
  std::vector<Frame> Frames() const override { return {{"here.cc", 1, "Here"}}; }
};
TraceContextPtr RecordHere() { return std::make_shared<Here>(); }

TEST_F(Insight, HistoryIsInOrderAndHasContexts) {
  a().RecordHistory(&RecordHere, 100);
  char* block = Get(512, s1);
  ASSERT_EQ(a().RecordStream(block, s2).code(), 0);
  Put(block);
  sim.Advance(s2);
  EXPECT_EQ(Refusal(2 * kGiB, s1).code(), 207001);
  const MemorySnapshot snapshot = a().Snapshot();
  std::vector<TraceAction> actions;
  int64_t time = 0;
  for (const TraceEntry& entry : snapshot.device_traces[0]) {
    actions.push_back(entry.action);
    EXPECT_GE(entry.time_us, time);
    time = entry.time_us;
    if (entry.action == TraceAction::kAlloc) {
      EXPECT_EQ(entry.address, reinterpret_cast<uintptr_t>(block));
      EXPECT_EQ(entry.size, 512u);
      ASSERT_NE(entry.context, nullptr);
      EXPECT_EQ(entry.context->Frames()[0].name, "Here");
    }
    if (entry.action == TraceAction::kOom) {
      EXPECT_EQ(entry.address, kGiB);
    }
  }
  using enum TraceAction;
  EXPECT_EQ(actions,
            (std::vector{kSegmentAlloc, kAlloc, kFreeRequested, kFreeCompleted, kSegmentFree, kOom, kSnapshot}));
  EXPECT_TRUE(a().Snapshot({}, false).device_traces.empty());
  a().RecordHistory(nullptr, 0);
  Get(512, s1);
  EXPECT_TRUE(a().Snapshot().device_traces[0].empty());
}

TEST_F(Insight, HistoryKeepsTheLastEntries) {
  a().RecordHistory(nullptr, 3);
  std::vector<char*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(Get(512, s1));
  Put(blocks[4]);
  const MemorySnapshot snapshot = a().Snapshot();
  const std::vector<TraceEntry>& trace = snapshot.device_traces[0];
  ASSERT_EQ(trace.size(), 3u);
  EXPECT_EQ(trace[0].action, TraceAction::kFreeRequested);
  EXPECT_EQ(trace[1].action, TraceAction::kFreeCompleted);
  EXPECT_EQ(trace[2].action, TraceAction::kSnapshot);
}

class There : public TraceContext {
 public:
  std::vector<Frame> Frames() const override { return {{"there.cc", 2, "There"}}; }
};

TEST_F(Insight, FreesHaveContextsOfTheirOwnAndActionsCanBeLeftOut) {
  using enum TraceAction;
  a().RecordHistory(&RecordHere, 100, 1u << static_cast<unsigned>(kSegmentAlloc));
  char* block = Get(512, s1);
  char* other = Get(512, s1);
  EXPECT_EQ(a().Free(block, std::make_shared<There>()).code(), 0);
  Put(other);  // as before: that of the allocation
  std::vector<std::string> seen;
  const MemorySnapshot snapshot = a().Snapshot();
  for (const TraceEntry& entry : snapshot.device_traces[0]) {
    if (entry.action != kSnapshot) seen.push_back(entry.context->Frames()[0].name);
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"Here", "Here", "There", "There", "Here", "Here"}));
}

TEST_F(Insight, APoolGoesBackToItsState) {
  ASSERT_EQ(a().BeginAllocateToPool(0, kP, [](void*) { return true; }).code(), 0);
  char* kept = Get(1000, s1);
  char* gone = Get(2000, s1);
  char* large = Get(3 << 20, s2);
  Put(gone);
  const DeviceStats before = a().Stats(0);
  auto state = a().GetPoolState(0, kP);
  ASSERT_TRUE(state.ok());
  ASSERT_EQ(state->segments.size(), 2u);
  char* later = Get(700, s1);
  char* newer = Get(5 << 20, s1);  // a segment that was not there
  const auto at = [](const void* block) { return reinterpret_cast<uint64_t>(block); };
  auto refused = a().SetPoolState(*state, {at(kept), at(large), at(later)});
  EXPECT_EQ(std::move(refused).status().code(), 107000);  // newer is held
  EXPECT_NE(a().SizeOf(later), 0u);

  auto change = a().SetPoolState(*state, {at(kept), at(large), at(later), at(newer)});
  ASSERT_TRUE(change.ok());
  EXPECT_EQ(change->freed.size(), 4u);
  EXPECT_EQ(change->taken.size(), 2u);
  EXPECT_EQ(a().LiveBlocks(0, kP).size(), 2u);
  EXPECT_EQ(a().Stats(0).allocated_bytes.all.current, before.allocated_bytes.all.current);
  EXPECT_EQ(a().Stats(0).active_bytes.all.current, before.active_bytes.all.current);
  EXPECT_EQ(a().Stats(0).requested_bytes.all.current, before.requested_bytes.all.current);
  EXPECT_EQ(a().SizeOf(kept), 1024u);
  EXPECT_EQ(Get(2000, s1), gone);  // the room behind is whole again

  // What another stream uses, and what is no state of this pool, is refused.
  ASSERT_EQ(a().RecordStream(kept, s2).code(), 0);
  EXPECT_EQ(a().SetPoolState(*state, {at(kept), at(large), at(gone)}).status().code(), 107000);
  ASSERT_EQ(a().EraseStream(kept, s2).code(), 0);
  PoolState wrong = *state;
  wrong.segments[0].blocks[0].size += 512;
  EXPECT_EQ(a().SetPoolState(wrong, {at(kept), at(large), at(gone)}).status().code(), 107000);
  wrong.pool.handle = 999;
  EXPECT_EQ(a().SetPoolState(wrong, {}).status().code(), 107000);
  EXPECT_EQ(a().GetPoolState(0, wrong.pool).status().code(), 107000);
  for (char* block : {kept, large, gone}) Put(block);
  EXPECT_EQ(a().EndAllocateToPool(0, kP).code(), 0);
}

TEST_F(Insight, PoolsOfExpandableSegmentsHaveNoState) {
  config.expandable_segments = true;
  ASSERT_EQ(a().BeginAllocateToPool(0, kP, [](void*) { return true; }).code(), 0);
  char* block = Get(512, s1);
  EXPECT_EQ(a().GetPoolState(0, kP).status().code(), 107000);
  Put(block);
  EXPECT_EQ(a().EndAllocateToPool(0, kP).code(), 0);
}

TEST_F(Insight, MapsAndUnmapsAreRecorded) {
  config.expandable_segments = true;
  a().RecordHistory(nullptr, 100);
  Put(Get(512, s1));
  ASSERT_EQ(a().EmptyCache().code(), 0);
  const MemorySnapshot snapshot = a().Snapshot();
  std::vector<TraceAction> actions;
  for (const TraceEntry& entry : snapshot.device_traces[0]) actions.push_back(entry.action);
  using enum TraceAction;
  EXPECT_EQ(actions, (std::vector{kSegmentMap, kAlloc, kFreeRequested, kFreeCompleted, kSegmentUnmap, kSnapshot}));
}

// ---------------------------------------------------------------------------------------------------------------------

/// Everything that takes something from the device or the host, once each way.
void Representative(SimDriver& sim, DeviceAllocator& a, bool expandable, int* failures) {
  void* const s1 = SimDriver::S(1);
  void* const s2 = SimDriver::S(2);
  std::vector<void*> held;
  const auto get = [&](uint64_t bytes, void* stream) -> void* {
    auto block = a.Allocate(0, bytes, stream);
    if (!block.ok()) {
      const Status status = std::move(block).status();
      EXPECT_EQ(status.code(), 207001);
      EXPECT_FALSE(status.detail().hint.empty());
      ++*failures;
      return nullptr;
    }
    held.push_back(*block);
    return *block;
  };
  const auto put = [&](void* block) {
    if (block == nullptr) return;
    EXPECT_EQ(a.Free(block).code(), 0);
    std::erase(held, block);
  };
  for (uint64_t bytes : {uint64_t{512}, kMiB, 3 * kMiB, 12 * kMiB, 30 * kMiB}) get(bytes, s1);
  for (int i = 0; i < 70; ++i) get(512, s2);  // more blocks than a slab has
  void* used = get(4096, s1);
  EXPECT_EQ(a.RecordStream(used, s2).code(), 0);
  EXPECT_EQ(a.RecordStream(used, SimDriver::S(3)).code(), 0);
  put(used);
  const PoolId pool{1, 0};
  const auto filter = [&sim](void* stream) { return sim.CaptureOf(stream).is_open; };
  if (const Status begun = a.BeginAllocateToPool(0, pool, filter); begun.ok()) {
    sim.BeginCapture(s1, 7);
    a.MarkCaptureBegin(0);
    SimDriver::SetCurrent(s1);
    void* x = get(512, s1);
    put(get(3 * kMiB, s1));
    EXPECT_EQ(a.RecordStream(x, s2).code(), 0);
    put(x);
    sim.EndCapture(7);
    a.MarkCaptureEnd(0);
    EXPECT_EQ(a.EndAllocateToPool(0, pool).code(), 0);
    EXPECT_EQ(a.ReleasePool(0, pool).code(), 0);
  } else {
    EXPECT_EQ(begun.code(), 207001);
    ++*failures;
    EXPECT_EQ(a.PoolUsers(0, pool), 0);
  }
  SimDriver::SetCurrent(nullptr);
  sim.Advance(s2);
  sim.Advance(SimDriver::S(3));
  get(5 * kMiB, s2);
  EXPECT_EQ(a.EmptyCache().code(), 0);
  if (expandable) get(100 * kMiB, s1);
  while (!held.empty()) put(held.back());
  sim.Advance(s2);
  sim.Advance(SimDriver::S(3));
  // Twice: a free whose event could not be had is tried again by the first.
  EXPECT_EQ(a.EmptyCache().code(), 0);
  EXPECT_EQ(a.EmptyCache().code(), 0);
}

void ExpectEmpty(SimDriver& sim, const DeviceStats& stats) {
  for (const auto& [name, value] : stats.Flatten()) {
    if (name.ends_with(".current")) {
      EXPECT_EQ(value, 0) << name;
    }
  }
  EXPECT_EQ(sim.used(), 0u);
  EXPECT_EQ(sim.live_segments(), 0u);
  EXPECT_EQ(sim.live_ranges(), 0u);
  EXPECT_EQ(sim.live_events(), 0u);
}

TEST(Faults, EveryFailedAcquisitionLeavesTheAllocatorWhole) {
  for (bool expandable : {false, true}) {
    for (bool in_driver : {false, true}) {
      int n = 1;
      std::set<int> outcomes;
      for (bool failed = true; failed; ++n) {
        SCOPED_TRACE(n);
        SimDriver sim(kGiB);
        Config config;
        config.expandable_segments = expandable;
        DeviceAllocator a(sim, config);
        if (in_driver) {
          sim.FailAt(n);
        } else {
          ArmFault("*", n);
        }
        int failures = 0;
        Representative(sim, a, expandable, &failures);
        outcomes.insert(failures);
        failed = in_driver ? sim.failures != 0 : FaultFired();
        sim.FailAt(0);
        ArmFault("*", 0);
        ExpectEmpty(sim, a.Stats(0));
        if (::testing::Test::HasFailure()) return;
        // Usable as ever.
        failures = 0;
        Representative(sim, a, expandable, &failures);
        EXPECT_EQ(failures, 0);
        ExpectEmpty(sim, a.Stats(0));
      }
      EXPECT_GT(n, 8);
      EXPECT_EQ(outcomes, (std::set<int>{0, 1}));  // some are made up for by a retry
    }
  }
}

}  // namespace
}  // namespace reprise::memory::testing
