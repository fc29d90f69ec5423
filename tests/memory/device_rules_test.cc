// SPDX-License-Identifier: Apache-2.0
//
// What the caching allocator of device memory does with one call after the other: sizes, reuse, streams, limits.
#include <vector>

#include "device_fixture.h"

namespace reprise::memory::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Sizes : DeviceTest {};

TEST_F(Sizes, RequestsAreRounded) {
  struct Row {
    uint64_t divisions, bytes, size;
  };
  for (const Row& row : std::vector<Row>{{0, 1, 512},
                                         {0, 511, 512},
                                         {0, 512, 512},
                                         {0, 513, 1024},
                                         {0, 3 * kMiB + 1, 3 * kMiB + 512},
                                         {1, 5000, 5120},
                                         {4, 2048, 2048},
                                         {4, 2049, 2560},
                                         {4, 1200 * kKiB, 1280 * kKiB},
                                         {4, 5 * kMiB + 1, 6 * kMiB},
                                         {8, 5 * kMiB + 1, 5 * kMiB + 512 * kKiB},
                                         {8, 8 * kMiB, 8 * kMiB}}) {
    Config with;
    with.roundup_power2_divisions.assign(16, row.divisions);
    ASSERT_EQ(a().SetConfig(with).code(), 0);
    void* block = Get(row.bytes, s1);
    // The rest of a segment may be too small for a block of its own, so only requests that split tell their size.
    EXPECT_EQ(Stats().requested_bytes.all.current, static_cast<int64_t>(row.bytes));
    EXPECT_EQ(a().SizeOf(block), row.size) << row.divisions << " " << row.bytes;
    Put(block);
    EXPECT_EQ(a().SizeOf(block), 0u);
  }
}

TEST_F(Sizes, DivisionsDependOnTheSizeClass) {
  config.roundup_power2_divisions.assign(16, 0);
  config.roundup_power2_divisions[2] = 2;  // from 4 MiB on
  EXPECT_EQ(a().SizeOf(Get(3 * kMiB + 1, s1)), 3 * kMiB + 512);
  EXPECT_EQ(a().SizeOf(Get(4 * kMiB + 1, s1)), 6 * kMiB);
}

TEST_F(Sizes, SegmentsHaveTheSizeOfTheirClass) {
  struct Row {
    uint64_t bytes, segment;
  };
  for (const Row& row : std::vector<Row>{{1, 2 * kMiB},
                                         {kMiB, 2 * kMiB},
                                         {kMiB + 1, 20 * kMiB},
                                         {10 * kMiB - 512, 20 * kMiB},
                                         {10 * kMiB, 10 * kMiB},
                                         {10 * kMiB + 1, 12 * kMiB},
                                         {33 * kMiB, 34 * kMiB}}) {
    Put(Get(row.bytes, s1));
    EXPECT_EQ(Reserved(), static_cast<int64_t>(row.segment)) << row.bytes;
    EXPECT_EQ(sim.used(), row.segment);
    ASSERT_EQ(a().EmptyCache().code(), 0);
    EXPECT_EQ(Reserved(), 0);
  }
  config.large_segment_size = 64 * kMiB;
  ASSERT_EQ(a().SetConfig(config).code(), 0);
  Put(Get(2 * kMiB, s1));
  EXPECT_EQ(Reserved(), static_cast<int64_t>(64 * kMiB));
}

TEST_F(Sizes, NothingIsNullAndTooMuchIsRefusedAtOnce) {
  EXPECT_EQ(Get(0, s1), nullptr);
  EXPECT_EQ(a().Free(nullptr).code(), 0);
  const uint64_t waits = sim.waits;
  const Status refusal = Refusal(uint64_t{1} << 60, s1);
  EXPECT_EQ(refusal.code(), 207001);
  EXPECT_EQ(Refusal(UINT64_MAX, s1).code(), 207001);
  EXPECT_EQ(sim.waits, waits);
  EXPECT_EQ(Stats().num_alloc_retries, 0);
  EXPECT_EQ(Stats().num_ooms, 2);
}

TEST_F(Sizes, UnknownDevicesAreRefused) {
  for (int device : {-1, 1, 99}) {
    auto block = a().Allocate(device, 512, s1);
    ASSERT_FALSE(block.ok());
    EXPECT_EQ(std::move(block).status().code(), 107001);
    EXPECT_EQ(a().CreateOrUsePool(device, kP).code(), 107001);
    EXPECT_EQ(a().SetMemoryFraction(device, 0.5).code(), 107001);
    EXPECT_EQ(a().Stats(device), DeviceStats{});
  }
}

struct Reuse : DeviceTest {};

TEST_F(Reuse, BestFitIsTheSmallestThenTheLowest) {
  // Blocks of 2, 3, 2, 3 MiB with live ones between them.
  std::vector<char*> blocks;
  for (uint64_t mib : {2, 1, 3, 1, 2, 1, 3, 1}) blocks.push_back(Get(mib * kMiB + 512, s1));
  for (size_t i : {6, 4, 2, 0}) Put(blocks[i]);
  EXPECT_EQ(Get(2 * kMiB, s1), blocks[0]);
  EXPECT_EQ(Get(2 * kMiB, s1), blocks[4]);
  EXPECT_EQ(Get(3 * kMiB, s1), blocks[2]);
  EXPECT_EQ(Get(2 * kMiB, s1), blocks[6]);
  EXPECT_EQ(Segments(), 1);
}

TEST_F(Reuse, SmallAndLargeRequestsShareNoSegment) {
  char* large = Get(2 * kMiB, s1);
  Put(large);
  char* small = Get(kMiB, s1);
  EXPECT_NE(small, large);
  EXPECT_EQ(Stats().segment.small_pool.current, 1);
  EXPECT_EQ(Stats().segment.large_pool.current, 1);
}

TEST_F(Reuse, BlocksBelongToTheirStream) {
  char* block = Get(512, s1);
  Put(block);
  EXPECT_NE(Get(512, s2), block);
  EXPECT_EQ(Get(512, s1), block);
  EXPECT_EQ(sim.queries, 0u);
}

TEST_F(Reuse, RestsAreSplitWhereTheyServe) {
  struct Row {
    uint64_t bytes;
    bool splits;
  };
  for (const Row& row : std::vector<Row>{{2 * kMiB, true},
                                         {512, true},
                                         {kMiB, true},
                                         {kMiB + 512, true},
                                         {10 * kMiB + 512, true},  // 2 MiB - 512 are left
                                         {11 * kMiB, false},       // 1 MiB is left of 12
                                         {11 * kMiB - 512, true}}) {
    void* block = Get(row.bytes, s1);
    EXPECT_EQ(Stats().inactive_split.all.current, row.splits ? 1 : 0) << row.bytes;
    EXPECT_EQ(a().SizeOf(block) == row.bytes, row.splits) << row.bytes;
    Put(block);
    EXPECT_EQ(Stats().inactive_split.all.current, 0);
    ASSERT_EQ(a().EmptyCache().code(), 0);
  }
}

TEST_F(Reuse, NeighboursMergeInAnyOrder) {
  std::vector<int> order{0, 1, 2, 3};
  do {
    std::vector<char*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(Get(512 * kKiB, s1));
    EXPECT_EQ(Segments(), 1);
    for (int i : order) Put(blocks[i]);
    EXPECT_EQ(Stats().inactive_split.all.current, 0);
    ASSERT_EQ(a().EmptyCache().code(), 0);
    EXPECT_EQ(Segments(), 0);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(Reuse, WrongFreesAreRefused) {
  char* block = Get(4096, s1);
  char* other = Get(4096, s1);
  int local = 0;
  EXPECT_EQ(a().Free(&local).code(), 107000);
  EXPECT_EQ(a().Free(block + 512).code(), 107000);
  Put(block);
  const Status twice = a().Free(block);
  EXPECT_EQ(twice.code(), 107000);
  EXPECT_THAT(twice.detail().what, HasSubstr("freed before"));
  EXPECT_FALSE(twice.detail().hint.empty());
  Put(other);
  EXPECT_EQ(a().Free(block).code(), 107000);  // swallowed by a neighbour by now
  EXPECT_EQ(a().Free(other).code(), 107000);
  EXPECT_EQ(Stats().allocation.all.freed, 2);
}

struct Uses : DeviceTest {};

TEST_F(Uses, AFreedBlockWaitsForEveryStreamThatUsesIt) {
  char* block = Get(512, s1);
  ASSERT_EQ(a().RecordStream(block, s2).code(), 0);
  ASSERT_EQ(a().RecordStream(block, s3).code(), 0);
  ASSERT_EQ(a().RecordStream(block, s3).code(), 0);  // once is enough
  Put(block);
  EXPECT_EQ(sim.live_events(), 2u);
  EXPECT_EQ(Stats().allocation.all.current, 0);
  EXPECT_EQ(Active(), 1);
  EXPECT_NE(Get(512, s1), block);
  sim.Advance(s3);
  EXPECT_NE(Get(512, s1), block);
  EXPECT_EQ(a().Free(block).code(), 107000);
  sim.Advance(s2);
  EXPECT_EQ(Get(512, s1), block);
  EXPECT_EQ(sim.live_events(), 0u);
}

TEST_F(Uses, TheOwnStreamAndForeignMemoryAreNone) {
  char* block = Get(512, s1);
  int local = 0;
  EXPECT_EQ(a().RecordStream(block, s1).code(), 0);
  EXPECT_EQ(a().RecordStream(&local, s2).code(), 0);
  EXPECT_EQ(a().RecordStream(nullptr, s2).code(), 0);
  EXPECT_EQ(a().EraseStream(&local, s2).code(), 0);
  Put(block);
  EXPECT_EQ(Get(512, s1), block);
}

TEST_F(Uses, AnErasedUseIsForgotten) {
  char* live = Get(512, s1);
  ASSERT_EQ(a().RecordStream(live, s2).code(), 0);
  ASSERT_EQ(a().EraseStream(live, s2).code(), 0);
  Put(live);
  EXPECT_EQ(sim.live_events(), 0u);
  char* freed = Get(512, s1);
  EXPECT_EQ(freed, live);
  ASSERT_EQ(a().RecordStream(freed, s2).code(), 0);
  ASSERT_EQ(a().RecordStream(freed, s3).code(), 0);
  Put(freed);
  ASSERT_EQ(a().EraseStream(freed, s2).code(), 0);
  EXPECT_EQ(Active(), 1);
  ASSERT_EQ(a().EraseStream(freed, s3).code(), 0);
  EXPECT_EQ(Active(), 0);
  EXPECT_EQ(sim.live_events(), 0u);
  EXPECT_EQ(Get(512, s1), freed);
}

TEST_F(Uses, AnEarlierEventThatIsNotDoneHoldsBackItsStreamOnly) {
  char* a1 = Get(512, s1);
  char* a2 = Get(1024, s1);
  char* a3 = Get(1536, s1);
  ASSERT_EQ(a().RecordStream(a1, s2).code(), 0);
  ASSERT_EQ(a().RecordStream(a2, s2).code(), 0);
  ASSERT_EQ(a().RecordStream(a3, s3).code(), 0);
  Put(a1), Put(a2), Put(a3);
  sim.Advance(s3);
  sim.AdvanceBy(s2, 1);
  char* again = Get(512, s1);
  EXPECT_EQ(again, a1);
  EXPECT_EQ(Active(), 2);  // a2 and `again`
  EXPECT_EQ(sim.live_events(), 1u);
}

TEST_F(Uses, LazyReclaimLooksOnlyWhenNothingIsCached) {
  config.multi_stream_lazy_reclaim = true;
  char* used = Get(kMiB, s1);
  char* other = Get(kMiB, s1);
  ASSERT_EQ(a().RecordStream(used, s2).code(), 0);
  Put(used), Put(other);
  sim.Advance(s2);
  EXPECT_EQ(Get(kMiB, s1), other);
  EXPECT_EQ(sim.queries, 0u);
  EXPECT_EQ(Get(kMiB, s1), used);
  EXPECT_EQ(Segments(), 1);
}

struct Limits : DeviceTest {};

TEST_F(Limits, FractionIsKeptAndCounted) {
  ASSERT_EQ(a().SetMemoryFraction(0, 0.5).code(), 0);
  EXPECT_EQ(a().MemoryFraction(0), 0.5);
  Get(500 * kMiB, s1);
  const Status refusal = Refusal(100 * kMiB, s1);
  EXPECT_EQ(refusal.code(), 207001);
  EXPECT_THAT(refusal.detail().what, HasSubstr("fraction 0.50"));
  EXPECT_EQ(Stats().num_ooms, 1);
  EXPECT_EQ(Stats().num_alloc_retries, 1);
  EXPECT_EQ(Stats().num_oom_rejections, 0);
  Get(12 * kMiB, s1);
  for (double wrong : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(a().SetMemoryFraction(0, wrong).code(), 107000);
  }
  ASSERT_EQ(a().SetMemoryFraction(0, 1).code(), 0);
  Get(100 * kMiB, s1);
}

TEST_F(Limits, RefusalByPolicyFlushesNothing) {
  config.throw_on_oom = true;
  config.per_process_memory_fraction = 0.5;
  Put(Get(400 * kMiB, s1));
  const uint64_t waits = sim.waits;
  const Status refusal = Refusal(200 * kMiB, s2);
  EXPECT_THAT(refusal.detail().hint, HasSubstr("400.00 MiB are cached for stream 0x1: EmptyCache"));
  EXPECT_EQ(Stats().num_oom_rejections, 1);
  EXPECT_EQ(Stats().num_ooms, 1);
  EXPECT_EQ(Stats().num_alloc_retries, 0);
  EXPECT_EQ(sim.waits, waits);
  EXPECT_EQ(Reserved(), static_cast<int64_t>(400 * kMiB));
}

TEST_F(Limits, AFullDeviceGetsTheCacheBack) {
  char* used = Get(500 * kMiB, s1);
  ASSERT_EQ(a().RecordStream(used, s2).code(), 0);
  Put(used);
  Put(Get(400 * kMiB, s2));
  Get(900 * kMiB, s3);  // waits for s2's event, too
  EXPECT_EQ(Stats().num_alloc_retries, 1);
  EXPECT_EQ(Stats().num_ooms, 0);
  EXPECT_EQ(Stats().num_sync_all_streams, 1);
  EXPECT_EQ(Stats().num_device_alloc, 3);
  EXPECT_EQ(Stats().num_device_free, 2);
}

TEST_F(Limits, WhatIsUsedWhileTheDeviceIsWaitedForStays) {
  char* idle = Get(500 * kMiB, s1);
  Put(idle);
  sim.on_wait = [&] {
    // Another thread takes the block, launches work, and frees it.
    EXPECT_EQ(Get(500 * kMiB, s1), idle);
    Put(idle);
  };
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(sim.used(), 500 * kMiB);
  sim.on_wait = nullptr;
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(sim.used(), 0u);
}

TEST_F(Limits, GarbageIsWhatWasNotUsedForLong) {
  config.garbage_collection_threshold = 0.5;
  char* old1 = Get(200 * kMiB, s1);
  char* old2 = Get(150 * kMiB, s1);
  char* young = Get(100 * kMiB, s2);
  char* live = Get(60 * kMiB, s1);
  Put(old1), Put(old2);
  for (int i = 0; i < 100; ++i) Put(Get(512, s3));
  Put(young);
  Get(300 * kMiB, s2);  // 512 MiB were reserved: just what may be
  EXPECT_EQ(sim.waits, 0u);
  Get(120 * kMiB, s2);
  EXPECT_EQ(sim.waits, 1u);
  EXPECT_EQ(Stats().num_alloc_retries, 0);
  EXPECT_EQ(Reserved(), static_cast<int64_t>((100 + 60 + 2 + 300 + 120) * kMiB));
  Put(live);
}

TEST_F(Limits, OversizeBlocksAreNotSplitAndCounted) {
  config.max_split_size = 64 * kMiB;
  EXPECT_EQ(Stats().max_split_size, static_cast<int64_t>(64 * kMiB));
  char* big = Get(100 * kMiB, s1);
  EXPECT_EQ(Stats().oversize_allocations.current, 1);
  EXPECT_EQ(Stats().oversize_segments.current, 1);
  Put(big);
  EXPECT_EQ(Stats().oversize_allocations.current, 0);
  EXPECT_NE(Get(30 * kMiB, s1), big);
  EXPECT_EQ(Get(90 * kMiB, s1), big);  // within the rounding
  Put(big);
  EXPECT_NE(Get(80 * kMiB, s1), big);  // not within
  EXPECT_EQ(Stats().oversize_allocations.allocated, 3);
  EXPECT_EQ(Stats().oversize_segments.current, 2);
}

TEST_F(Limits, OversizeBlocksGoBeforeTheRest) {
  config.max_split_size = 64 * kMiB;
  char* big = Get(400 * kMiB, s1);
  char* bigger = Get(500 * kMiB, s1);
  Put(big), Put(bigger);
  Put(Get(30 * kMiB, s2));
  Get(300 * kMiB, s2);
  EXPECT_EQ(Stats().num_alloc_retries, 0);
  EXPECT_EQ(Reserved(), static_cast<int64_t>((500 + 30 + 300) * kMiB));  // the 400 MiB went
}

TEST_F(Limits, FreeMemoryCallbacksComeBeforeTheDevice) {
  char* kept = Get(40 * kMiB, s1);
  int calls = 0;
  a().AddFreeMemoryCallback([&] {
    ++calls;
    if (kept == nullptr) return false;
    Put(std::exchange(kept, nullptr));  // without the lock
    return true;
  });
  char* const was = kept;
  EXPECT_EQ(Get(40 * kMiB, s1), was);
  EXPECT_EQ(calls, 1);
  Get(40 * kMiB, s1);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(Segments(), 2);
}

TEST_F(Limits, ObserversMayAllocate) {
  Get(600 * kMiB, s1);
  int calls = 0;
  a().AddOomObserver([&](int device, uint64_t bytes, uint64_t total, uint64_t free) {
    ++calls;
    EXPECT_EQ(device, 0);
    EXPECT_EQ(bytes, 600 * kMiB);
    EXPECT_EQ(total, kGiB);
    EXPECT_EQ(free, 424 * kMiB);
    Put(Get(512, s1));
  });
  EXPECT_EQ(Refusal(600 * kMiB, s1).code(), 207001);
  EXPECT_EQ(calls, 1);
}

TEST_F(Limits, TheMessageTellsWhoHoldsWhatAndWhatWouldFreeIt) {
  Get(300 * kMiB, s1);
  a().NamePool(kP, "graph 7");
  ASSERT_EQ(a().BeginAllocateToPool(0, kP, OnStream(s2)).code(), 0);
  Put(Get(200 * kMiB, s2));
  ASSERT_EQ(a().EndAllocateToPool(0, kP).code(), 0);
  // Freed, and a stream that is being captured uses it: cannot be waited for.
  char* used = Get(20 * kMiB, s1);
  sim.BeginCapture(s3, 9);
  a().MarkCaptureBegin(0);
  ASSERT_EQ(a().RecordStream(used, s3).code(), 0);
  Put(used);
  const Status refusal = Refusal(kGiB, s1);
  EXPECT_THAT(refusal.detail().what,
              AllOf(HasSubstr("NPU out of memory"), HasSubstr("tried to allocate 1.00 GiB"), HasSubstr("device 0"),
                    HasSubstr("1.00 GiB in total"), HasSubstr("504.00 MiB free"), HasSubstr("300.00 MiB are allocated"),
                    HasSubstr("520.00 MiB reserved")));
  EXPECT_THAT(refusal.detail().culprit, HasSubstr("300.00 MiB in the default pool on stream 0x1"));
  EXPECT_THAT(refusal.detail().hint, AllOf(HasSubstr("graph 7 holds 200.00 MiB in its pool: reset it"),
                                           HasSubstr("20.00 MiB wait for stream 0x3")));
  a().MarkCaptureEnd(0);
  sim.EndCapture(9);
}

TEST_F(Limits, TheMessageNamesFragmentation) {
  std::vector<char*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(Get(10 * kMiB - 512, s1));
  for (size_t i = 0; i < blocks.size(); i += 2) Put(blocks[i]);
  EXPECT_THAT(Refusal(200 * kMiB, s1).detail().hint,
              AllOf(HasSubstr("fragmentation"), HasSubstr("expandable_segments")));
}

struct Uncached : DeviceTest {
  Uncached() { config.no_cache = true; }
};

TEST_F(Uncached, EagerBlocksGoBackCapturedOnesStay) {
  char* eager = Get(700, s1);
  EXPECT_EQ(Reserved(), 1024);
  Put(eager);
  EXPECT_EQ(Reserved(), 1024);  // work on its stream may still use it
  sim.Advance(s1);
  char* next = Get(512, s1);
  EXPECT_EQ(Reserved(), 512);
  BeginCapture(s1);
  EXPECT_TRUE(a().IsCaptureContext(0));
  char* captured = Get(512, s1);
  EXPECT_EQ(PoolOf(captured), kP);
  Put(captured);
  Put(next);  // its stream is captured: nothing is recorded there
  EXPECT_EQ(Get(512, s1), captured);
  EndCapture();
  SimDriver::SetCurrent(s2);
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(Reserved(), static_cast<int64_t>(2 * kMiB));
}

TEST_F(Uncached, BlocksAreFreedAtOnceWhereNothingIsQueued) {
  struct Idle : SimDriver {
    using SimDriver::SimDriver;
    bool IsDone(void*) override { return true; }
  } idle(kGiB);
  DeviceAllocator allocator(idle, config);
  auto block = allocator.Allocate(0, 4096, s1);
  ASSERT_TRUE(block.ok());
  EXPECT_EQ(idle.used(), 4096u);
  EXPECT_EQ(allocator.Free(*block).code(), 0);
  EXPECT_EQ(idle.used(), 0u);
  EXPECT_EQ(allocator.Stats(0).active.all.current, 0);
}

}  // namespace
}  // namespace reprise::memory::testing
