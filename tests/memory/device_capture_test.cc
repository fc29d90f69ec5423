// SPDX-License-Identifier: Apache-2.0
//
// Device memory and captures: what goes to which pool, what stays where, what waits until a capture is over.
#include <thread>
#include <utility>
#include <vector>

#include "device_fixture.h"

namespace reprise::memory::testing {
namespace {

using ::testing::HasSubstr;

struct Routing : DeviceTest {};

TEST_F(Routing, TheStreamDecidesNotTheThread) {
  BeginCapture(s1);
  char* inside = Get(512, s1);
  char* outside = Get(512, s2);
  char* other_thread = nullptr;
  std::thread([&] {
    SimDriver::SetCurrent(s2);
    other_thread = Get(512, s1);
  }).join();
  EndCapture();
  EXPECT_EQ(PoolOf(inside), kP);
  EXPECT_EQ(PoolOf(outside), PoolId{});
  EXPECT_EQ(PoolOf(other_thread), kP);
  EXPECT_EQ(PoolOf(Get(512, s1)), PoolId{});
}

TEST_F(Routing, AForkedStreamGetsASiloOfTheSamePool) {
  BeginCapture(s1);
  Get(512, s1);
  sim.BeginCapture(s2, 7);
  Get(512, s2);
  const MemorySnapshot snapshot = a().Snapshot(kP, false);
  ASSERT_EQ(snapshot.segments.size(), 2u);
  EXPECT_EQ(snapshot.segments[0].pool, kP);
  EXPECT_EQ(snapshot.segments[1].pool, kP);
  EXPECT_NE(snapshot.segments[0].stream, snapshot.segments[1].stream);
  EndCapture();
}

TEST_F(Routing, TheNewestScopeWinsAndLeavingRestores) {
  const auto all = [](void*) { return true; };
  ASSERT_EQ(a().BeginAllocateToPool(0, kP, all).code(), 0);
  EXPECT_EQ(PoolOf(Get(512, s1)), kP);
  ASSERT_EQ(a().BeginAllocateToPool(0, kQ, OnStream(s1)).code(), 0);
  EXPECT_EQ(PoolOf(Get(512, s1)), kQ);
  EXPECT_EQ(PoolOf(Get(512, s2)), kP);
  ASSERT_EQ(a().EndAllocateToPool(0, kQ).code(), 0);
  EXPECT_EQ(PoolOf(Get(512, s1)), kP);
  ASSERT_EQ(a().EndAllocateToPool(0, kP).code(), 0);
  EXPECT_EQ(PoolOf(Get(512, s1)), PoolId{});
}

TEST_F(Routing, SwappingTheFilterCountsNoUser) {
  ASSERT_EQ(a().BeginAllocateToPool(0, kP, OnStream(s1)).code(), 0);
  ASSERT_EQ(a().SwapFilter(0, kP, OnStream(s2)).code(), 0);
  EXPECT_EQ(a().PoolUsers(0, kP), 1);
  EXPECT_EQ(PoolOf(Get(512, s1)), PoolId{});
  EXPECT_EQ(PoolOf(Get(512, s2)), kP);
  ASSERT_EQ(a().EndAllocateToPool(0, kP).code(), 0);
}

TEST_F(Routing, MisuseIsRefusedAndChangesNothing) {
  EXPECT_THAT(a().EndAllocateToPool(0, kP).detail().what, HasSubstr("not currently recording"));
  EXPECT_THAT(a().SwapFilter(0, kP, OnStream(s1)).detail().what, HasSubstr("not currently recording"));
  ASSERT_EQ(a().BeginAllocateToPool(0, kP, OnStream(s1)).code(), 0);
  const Status twice = a().BeginAllocateToPool(0, kP, OnStream(s2));
  EXPECT_EQ(twice.code(), 107000);
  EXPECT_THAT(twice.detail().what, HasSubstr("already recording"));
  EXPECT_EQ(a().PoolUsers(0, kP), 1);
  EXPECT_EQ(PoolOf(Get(512, s1)), kP);
  ASSERT_EQ(a().EndAllocateToPool(0, kP).code(), 0);
  EXPECT_EQ(a().BeginAllocateToPool(0, kP, nullptr).code(), 107000);
  for (PoolId wrong : {PoolId{0, 0}, PoolId{1, 1}}) {
    EXPECT_EQ(a().CreateOrUsePool(0, wrong).code(), 107000);
    EXPECT_EQ(a().BeginAllocateToPool(0, wrong, OnStream(s1)).code(), 107000);
  }
  for (const Status& status : {a().ReleasePool(0, kQ), a().SetUseOnOom(0, kQ, true), a().SetNoSplit(0, kQ)}) {
    EXPECT_EQ(status.code(), 107000);
    EXPECT_THAT(status.detail().culprit, HasSubstr("pool (0, 2)"));
    EXPECT_FALSE(status.detail().hint.empty());
  }
  EXPECT_EQ(a().SetNoSplit(0, kP).code(), 107000);  // has a segment
  ASSERT_EQ(a().ReleasePool(0, kP).code(), 0);
  EXPECT_EQ(a().ReleasePool(0, kP).code(), 107000);
}

struct Private : DeviceTest {};

TEST_F(Private, SegmentsStayWhileThereAreUsers) {
  BeginCapture(s1);
  char* temporary = Get(4 * kMiB, s1);
  Put(temporary);
  EXPECT_EQ(Get(4 * kMiB, s1), temporary);  // the same order at each replay
  Put(temporary);
  EndCapture();
  Put(Get(4 * kMiB, s2));
  ASSERT_EQ(a().EmptyCache().code(), 0);
  ASSERT_EQ(a().EmptyCache(kP).code(), 0);
  EXPECT_EQ(sim.used(), 20 * kMiB);
  EXPECT_NE(Get(4 * kMiB, s1), temporary);  // eager work gets none of it
  // Nor when memory is out.
  EXPECT_EQ(Refusal(kGiB - 30 * kMiB, s1).code(), 207001);
  EXPECT_EQ(a().Snapshot(kP, false).segments.size(), 1u);
  ASSERT_EQ(a().ReleasePool(0, kP).code(), 0);
  EXPECT_EQ(a().PoolUsers(0, kP), 0);
  Get(kGiB - 30 * kMiB, s1);
  EXPECT_EQ(a().Snapshot(kP, false).segments.size(), 0u);
}

TEST_F(Private, WhatIsHeldOutlivesTheGraph) {
  BeginCapture(s1);
  char* result = Get(4 * kMiB, s1);
  EndCapture();
  ASSERT_EQ(a().ReleasePool(0, kP).code(), 0);
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(sim.used(), 20 * kMiB);
  EXPECT_TRUE(a().LiveBlocksAre(0, kP, {result}));
  EXPECT_FALSE(a().LiveBlocksAre(0, kP, {}));
  EXPECT_FALSE(a().LiveBlocksAre(0, kP, {result, result + 512}));
  Put(result);
  EXPECT_TRUE(a().LiveBlocksAre(0, kP, {}));
  ASSERT_EQ(a().EmptyCache(kP).code(), 0);
  EXPECT_EQ(sim.used(), 0u);
  EXPECT_EQ(a().ReleasePool(0, kP).code(), 107000);  // gone
}

TEST_F(Private, ASharedPoolLivesAsLongAsItsLastUser) {
  BeginCapture(s1, kQ);
  char* first = Get(512, s1);
  Put(first);
  EndCapture(kQ);
  BeginCapture(s1, kQ, 8);
  EXPECT_EQ(Get(512, s1), first);  // the second graph saves memory
  EndCapture(kQ, 8);
  EXPECT_EQ(a().PoolUsers(0, kQ), 2);
  ASSERT_EQ(a().ReleasePool(0, kQ).code(), 0);
  Put(first);
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(Reserved(), static_cast<int64_t>(2 * kMiB));
  ASSERT_EQ(a().ReleasePool(0, kQ).code(), 0);
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(Reserved(), 0);
}

TEST_F(Private, AReleasedPoolCanBeUsedAgain) {
  for (bool emptied : {true, false}) {
    BeginCapture(s1, kQ);
    char* held = Get(512, s1);
    EndCapture(kQ);
    ASSERT_EQ(a().ReleasePool(0, kQ).code(), 0);
    if (emptied) {
      ASSERT_EQ(a().EmptyCache().code(), 0);
    }
    BeginCapture(s1, kQ, 8);
    Put(held);
    ASSERT_EQ(a().EmptyCache().code(), 0);
    EXPECT_EQ(Get(512, s1), held);
    EndCapture(kQ, 8);
    Put(held);
    ASSERT_EQ(a().ReleasePool(0, kQ).code(), 0);
  }
}

TEST_F(Private, ReleasedMemoryStaysUntilItsLastLaunchWasWaitedFor) {
  BeginCapture(s1);
  Put(Get(512, s1));
  EndCapture();
  // While the device is waited for, another thread launches the graph and drops it.
  sim.on_wait = [&] { ASSERT_EQ(a().ReleasePool(0, kP).code(), 0); };
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(sim.used(), 2 * kMiB);
  sim.on_wait = nullptr;
  BeginCapture(s1, kQ);
  ASSERT_EQ(a().EmptyCache().code(), 0);  // in a capture, without a wait
  EXPECT_EQ(sim.used(), 2 * kMiB);
  EndCapture(kQ);
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(sim.used(), 0u);
}

TEST_F(Private, UseOnOomLendsWhatAPoolHasCached) {
  ASSERT_EQ(a().CreateOrUsePool(0, kQ).code(), 0);
  ASSERT_EQ(a().SetUseOnOom(0, kQ, true).code(), 0);
  ASSERT_EQ(a().BeginAllocateToPool(0, kQ, OnStream(s1)).code(), 0);
  char* cached = Get(600 * kMiB, s1);
  Put(cached);
  ASSERT_EQ(a().EndAllocateToPool(0, kQ).code(), 0);
  ASSERT_EQ(a().ReleasePool(0, kQ).code(), 0);
  EXPECT_EQ(Get(600 * kMiB, s1), cached);
  EXPECT_EQ(PoolOf(cached), kQ);
  EXPECT_EQ(Stats().num_alloc_retries, 0);
  Put(cached);
  ASSERT_EQ(a().SetUseOnOom(0, kQ, false).code(), 0);
  EXPECT_EQ(Refusal(600 * kMiB, s1).code(), 207001);
  ASSERT_EQ(a().ReleasePool(0, kQ).code(), 0);
  EXPECT_NE(Get(600 * kMiB, s1), nullptr);
}

TEST_F(Private, NoSplitKeepsBlocksWhole) {
  ASSERT_EQ(a().CreateOrUsePool(0, kQ).code(), 0);
  ASSERT_EQ(a().SetNoSplit(0, kQ).code(), 0);
  ASSERT_EQ(a().BeginAllocateToPool(0, kQ, OnStream(s1)).code(), 0);
  char* big = Get(10 * kMiB, s1);
  Put(big);
  EXPECT_EQ(Get(2 * kMiB, s1), big);
  EXPECT_EQ(a().SizeOf(big), 10 * kMiB);
  EXPECT_NE(Get(2 * kMiB, s1), big);
  EXPECT_EQ(Segments(), 2);
  ASSERT_EQ(a().EndAllocateToPool(0, kQ).code(), 0);
}

TEST_F(Private, ItsOwnAllocatorIsCalledInPairs) {
  struct Call {
    void* segment;
    uint64_t bytes;
    void* stream;
    bool operator==(const Call&) const = default;
  };
  std::vector<Call> taken, given;
  {
    DeviceAllocator::PoolOptions options;
    options.allocate = [&](uint64_t bytes, int device, void* stream) {
      EXPECT_EQ(device, 0);
      EXPECT_EQ(a().PoolUsers(0, kQ), 2);  // no lock is held
      taken.push_back({sim.Allocate(0, bytes).value(), bytes, stream});
      return taken.back().segment;
    };
    ASSERT_EQ(a().CreateOrUsePool(0, kQ, {options.allocate, nullptr}).code(), 107000);
    options.free = [&](void* segment, uint64_t bytes, int, void* stream) {
      EXPECT_EQ(a().SizeOf(segment), 0u);
      given.push_back({segment, bytes, stream});
      sim.Free(0, segment);
    };
    ASSERT_EQ(a().CreateOrUsePool(0, kQ, options).code(), 0);
    EXPECT_EQ(a().CreateOrUsePool(0, kQ, options).code(), 107000);
  }
  ASSERT_EQ(a().BeginAllocateToPool(0, kQ, [](void*) { return true; }).code(), 0);
  char* one = Get(5000, s1);
  char* two = Get(12 * kMiB, s2);
  ASSERT_EQ(a().EndAllocateToPool(0, kQ).code(), 0);
  EXPECT_EQ(taken, (std::vector<Call>{{one, 2 * kMiB, s1}, {two, 12 * kMiB, s2}}));
  ASSERT_EQ(a().ReleasePool(0, kQ).code(), 0);
  ASSERT_EQ(a().ReleasePool(0, kQ).code(), 0);
  Put(one);
  ASSERT_EQ(a().EmptyCache(kQ).code(), 0);
  EXPECT_EQ(given, (std::vector<Call>{{one, 2 * kMiB, s1}}));
  EXPECT_EQ(Reserved(), static_cast<int64_t>(12 * kMiB));
  allocator_.reset();  // what is held goes back, too
  EXPECT_EQ(given.size(), 2u);
}

TEST_F(Private, MemPoolsAreNoCaptures) {
  ASSERT_EQ(a().CreateOrUsePool(0, kQ).code(), 0);
  EXPECT_EQ(a().PoolUsers(0, kQ), 1);
  Put(Get(600 * kMiB, s1));
  ASSERT_EQ(a().BeginAllocateToPool(0, kQ, OnStream(s1)).code(), 0);
  EXPECT_EQ(a().PoolUsers(0, kQ), 2);
  EXPECT_FALSE(a().IsCaptureContext(0));
  char* used = Get(512, s1);
  ASSERT_EQ(a().RecordStream(used, s2).code(), 0);
  Put(used);
  sim.Advance(s2);
  EXPECT_EQ(Get(512, s1), used);  // an event sufficed
  Get(600 * kMiB, s1);            // the default cache makes room
  EXPECT_EQ(Stats().num_alloc_retries, 1);
  // Another thread empties the cache meanwhile.
  Put(Get(512, s3));
  std::thread([&] { EXPECT_EQ(a().EmptyCache().code(), 0); }).join();
  EXPECT_EQ(a().Snapshot({}, false).segments.size(), 2u);
  ASSERT_EQ(a().EndAllocateToPool(0, kQ).code(), 0);
  ASSERT_EQ(a().ReleasePool(0, kQ).code(), 0);
  EXPECT_EQ(a().PoolUsers(0, kQ), 1);
}

struct Capturing : DeviceTest {};

TEST_F(Capturing, ContextIsTheThreadsCurrentStream) {
  EXPECT_FALSE(a().IsCaptureContext(0));
  BeginCapture(s1);
  EXPECT_TRUE(a().IsCaptureContext(0));
  SimDriver::SetCurrent(s2);
  EXPECT_FALSE(a().IsCaptureContext(0));
  SimDriver::SetCurrent(s1);
  std::thread([&] { EXPECT_FALSE(a().IsCaptureContext(0)); }).join();
  EndCapture();
  EXPECT_FALSE(a().IsCaptureContext(0));
  EXPECT_FALSE(a().IsCaptureContext(5));
}

TEST_F(Capturing, ABlockUsedByAForkIsNotHandedOutBeforeTheEnd) {
  BeginCapture(s1);
  char* block = Get(512, s1);
  sim.BeginCapture(s2, 7);
  ASSERT_EQ(a().RecordStream(block, s2).code(), 0);
  Put(block);
  EXPECT_NE(Get(512, s1), block);
  EndCapture();
  // The graph orders that use: no event is needed.
  Get(512, s1);
  EXPECT_EQ(sim.live_events(), 0u);
  BeginCapture(s1, kP, 8);
  EXPECT_EQ(Get(512, s1), block);
  EndCapture(kP, 8);
}

struct JoinedReuse : DeviceTest {
  JoinedReuse() { config.graph_capture_record_stream_reuse = true; }
  /// A block of s1 that a task of s2 uses, freed.
  char* UsedOnAFork() {
    char* block = Get(512, s1);
    sim.Join(s2, s1);
    sim.Capture(s2);
    EXPECT_EQ(a().RecordStream(block, s2).code(), 0);
    Put(block);
    return block;
  }
};

TEST_F(JoinedReuse, ABlockComesBackInTheCaptureOnceItsStreamWaitsForTheFork) {
  BeginCapture(s1);
  char* block = UsedOnAFork();
  EXPECT_EQ(Active(), 1);
  Put(Get(512, s1));
  EXPECT_NE(Get(512, s1), block);
  sim.Join(s1, s2);
  EXPECT_EQ(Get(512, s1), block);
  EXPECT_EQ(Active(), 2);
  EndCapture();
}

TEST_F(JoinedReuse, TheForkMayGoOnAfterwards) {
  BeginCapture(s1);
  char* block = UsedOnAFork();
  sim.Join(s1, s2);
  sim.Capture(s2);  // of other memory: it was submitted after the free
  EXPECT_EQ(Get(512, s1), block);
  EndCapture();
}

TEST_F(JoinedReuse, AWaitForEarlierWorkIsNotEnough) {
  BeginCapture(s1);
  sim.Join(s2, s1);
  sim.Capture(s2);
  sim.Join(s1, s2);
  char* block = UsedOnAFork();
  EXPECT_NE(Get(512, s1), block);
  EndCapture();
}

TEST_F(JoinedReuse, AWayThroughOtherStreamsCounts) {
  BeginCapture(s1);
  char* block = UsedOnAFork();
  sim.Join(s3, s2);
  EXPECT_NE(Get(512, s1), block);
  sim.Join(s1, s3);
  EXPECT_EQ(Get(512, s1), block);
  EndCapture();
}

TEST_F(JoinedReuse, AllStreamsThatUsedItHaveToBeThere) {
  BeginCapture(s1);
  char* block = Get(512, s1);
  for (void* side : {s2, s3}) {
    sim.Join(side, s1);
    sim.Capture(side);
    ASSERT_EQ(a().RecordStream(block, side).code(), 0);
  }
  Put(block);
  sim.Join(s1, s2);
  EXPECT_NE(Get(512, s1), block);
  sim.Join(s1, s3);
  EXPECT_EQ(Get(512, s1), block);
  EndCapture();
}

TEST_F(JoinedReuse, UsesBeforeTheCaptureOrInAnotherOneWaitForTheEnd) {
  char* eager = Get(512, s1);
  ASSERT_EQ(a().RecordStream(eager, s2).code(), 0);
  BeginCapture(s2, kQ, 6);
  char* twice = Get(4 * kMiB, s2);
  sim.Join(s3, s2);
  sim.Capture(s3);
  ASSERT_EQ(a().RecordStream(twice, s3).code(), 0);
  EndCapture(kQ, 6);
  BeginCapture(s2, kQ);
  sim.Join(s1, s2);
  sim.Join(s3, s2);
  for (void* side : {s2, s3}) sim.Capture(side);
  ASSERT_EQ(a().RecordStream(eager, s2).code(), 0);
  ASSERT_EQ(a().RecordStream(twice, s3).code(), 0);
  Put(eager);
  Put(twice);
  sim.Join(s1, s2);
  sim.Join(s2, s3);
  Get(512, s1);
  EXPECT_NE(Get(4 * kMiB, s2), twice);
  EXPECT_EQ(Active(), 4);
  EXPECT_EQ(sim.live_events(), 0u);
  EndCapture(kQ);
}

TEST_F(JoinedReuse, WithoutTheSettingItWaitsForTheEnd) {
  config.graph_capture_record_stream_reuse = false;
  BeginCapture(s1);
  char* block = UsedOnAFork();
  sim.Join(s1, s2);
  EXPECT_NE(Get(512, s1), block);
  config.graph_capture_record_stream_reuse = true;
  ASSERT_EQ(a().SetConfig(config).code(), 0);
  EXPECT_NE(Get(512, s1), block);  // where it was used last was not noted
  EndCapture();
}

TEST_F(Capturing, AnEagerUseIsRecordedAfterTheCapture) {
  char* x = Get(512, s1);
  ASSERT_EQ(a().RecordStream(x, s2).code(), 0);
  BeginCapture(s1);
  sim.BeginCapture(s2, 7);
  ASSERT_EQ(a().RecordStream(x, s2).code(), 0);  // used inside as well: the eager use remains one
  Put(x);
  EXPECT_EQ(sim.live_events(), 0u);
  EndCapture();
  SimDriver::SetCurrent(s3);
  EXPECT_NE(Get(512, s1), x);
  EXPECT_EQ(sim.live_events(), 1u);
  sim.Advance(s2);
  EXPECT_EQ(Get(512, s1), x);
}

TEST_F(Capturing, AUseThatWasCapturedAndThenRunIsEager) {
  char* x = Get(512, s1);
  BeginCapture(s2);
  ASSERT_EQ(a().RecordStream(x, s2).code(), 0);
  EndCapture();
  ASSERT_EQ(a().RecordStream(x, s2).code(), 0);
  BeginCapture(s3, kP, 8);
  Put(x);
  EndCapture(kP, 8);
  EXPECT_NE(Get(512, s1), x);
  sim.Advance(s2);
  EXPECT_EQ(Get(512, s1), x);
}

TEST_F(Capturing, AnotherThreadsFreeRecordsNothingOnACapturedStream) {
  char* x = Get(512, s1);
  ASSERT_EQ(a().RecordStream(x, s2).code(), 0);
  BeginCapture(s2);
  std::thread([&] {
    SimDriver::SetCurrent(s1);
    Put(x);
    EXPECT_EQ(sim.live_events(), 0u);
    EXPECT_NE(Get(512, s1), x);
    EXPECT_EQ(sim.live_events(), 0u);
  }).join();
  EndCapture();
  EXPECT_EQ(sim.events_in_captures, 0u);
  SimDriver::SetCurrent(s1);
  EXPECT_NE(Get(512, s1), x);
  EXPECT_EQ(sim.live_events(), 1u);
}

TEST_F(Capturing, OtherThreadsGoOnReclaiming) {
  char* x = Get(512, s1);
  ASSERT_EQ(a().RecordStream(x, s3).code(), 0);
  BeginCapture(s2);
  std::thread([&] {
    SimDriver::SetCurrent(s1);
    Put(x);
    EXPECT_EQ(sim.live_events(), 1u);
    sim.Advance(s3);
    EXPECT_EQ(Get(512, s1), x);
  }).join();
  EndCapture();
}

TEST_F(Capturing, NoEventIsLookedAt) {
  char* x = Get(512, s1);
  ASSERT_EQ(a().RecordStream(x, s2).code(), 0);
  Put(x);
  BeginCapture(s1);
  const uint64_t queries = sim.queries;
  Put(Get(512, s1));
  Get(4 * kMiB, s1);
  EXPECT_EQ(sim.queries, queries);
  EndCapture();
}

TEST_F(Capturing, AnErasedUseFreesADeferredBlock) {
  BeginCapture(s1);
  char* block = Get(512, s1);
  sim.BeginCapture(s2, 7);
  ASSERT_EQ(a().RecordStream(block, s2).code(), 0);
  Put(block);
  ASSERT_EQ(a().EraseStream(block, s2).code(), 0);
  EXPECT_EQ(Get(512, s1), block);
  EndCapture();
  EXPECT_EQ(Active(), 1);
}

TEST_F(Capturing, EmptyingTheCacheNeitherWaitsNorFreesWhatEagerWorkHas) {
  Put(Get(512, s2));
  BeginCapture(s1);
  const uint64_t waits = sim.waits;
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(sim.waits, waits);
  EXPECT_EQ(sim.used(), 2 * kMiB);
  // Nor does running out of memory.
  const Status refusal = Refusal(kGiB, s1);
  EXPECT_EQ(refusal.code(), 207001);
  EXPECT_THAT(refusal.detail().hint, HasSubstr("cached for stream 0x2: EmptyCache before the capture"));
  EXPECT_THAT(Refusal(2 * kGiB, s1).detail().hint, HasSubstr("take a smaller batch"))
      << "more than there is in total: nothing that is given back would do";
  EXPECT_EQ(sim.waits, waits);
  EXPECT_EQ(Stats().num_alloc_retries, 0);
  EXPECT_EQ(Stats().num_ooms, 2);
  EndCapture();
}

TEST_F(Capturing, OthersFlushAllButWhatCapturedStreamsOwn) {
  Put(Get(300 * kMiB, s1));
  Put(Get(300 * kMiB, s2));
  BeginCapture(s1);
  SimDriver::SetCurrent(s2);
  Get(600 * kMiB, s3);
  EXPECT_EQ(Stats().num_alloc_retries, 1);
  EXPECT_EQ(Reserved(), static_cast<int64_t>(900 * kMiB));
  EXPECT_EQ(Refusal(300 * kMiB, s3).code(), 207001);
  EndCapture();
  Get(300 * kMiB, s3);
}

TEST_F(Capturing, AStreamThatWasCapturedDuringTheWaitKeepsItsBlocks) {
  Put(Get(512, s1));
  BeginCapture(s1);
  SimDriver::SetCurrent(s2);
  sim.on_wait = [&] { EndCapture(); };
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(sim.used(), 2 * kMiB);
  sim.on_wait = nullptr;
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(sim.used(), 0u);
}

TEST_F(Capturing, AWaitProvesNothingForACaptureThatCameAndWent) {
  Put(Get(512, s1));
  bool came = false;
  sim.on_wait = [&] {
    // It may have kept its streams from being waited for; afterwards there is no sign of it.
    if (std::exchange(came, true)) return;
    BeginCapture(s1);
    EndCapture();
    SimDriver::SetCurrent(nullptr);
  };
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(sim.waits, 2u);
  EXPECT_EQ(sim.used(), 0u);
}

TEST_F(Capturing, AFailedCaptureLeavesNoScopeAndNoUser) {
  for (int round = 0; round < 10; ++round) {
    BeginCapture(s1, kQ);
    char* block = Get(512, s1);
    EndCapture(kQ);
    ASSERT_EQ(a().ReleasePool(0, kQ).code(), 0);
    Put(block);
    ASSERT_EQ(a().EmptyCache().code(), 0);
    EXPECT_EQ(a().PoolUsers(0, kQ), 0);
    EXPECT_EQ(sim.used(), 0u);
  }
}

/// b = a.clone(), then five times b = b.clone() + 1, as the specification counts it.
TEST_F(Capturing, TheScenarioOfTheSpecificationHasItsNumbers) {
  struct Row {
    uint64_t bytes;
    int64_t segments, reserved, left;
  };
  for (const Row& row : std::vector<Row>{{512, 1, 2 * kMiB, 2 * kMiB},
                                         {kMiB, 2, 4 * kMiB, 2 * kMiB},
                                         {kMiB + 512, 1, 20 * kMiB, 20 * kMiB},
                                         {10 * kMiB - 512, 2, 40 * kMiB, 20 * kMiB},
                                         {10 * kMiB + 512, 3, 36 * kMiB, 12 * kMiB}}) {
    SCOPED_TRACE(row.bytes);
    char* const a0 = Get(row.bytes, s1);
    ASSERT_EQ(a().EmptyCache().code(), 0);
    const DeviceStats before = Stats();
    BeginCapture(s1);
    char* b = Get(row.bytes, s1);
    for (int i = 0; i < 5; ++i) {
      char* clone = Get(row.bytes, s1);
      char* sum = Get(row.bytes, s1);
      Put(clone), Put(b);
      b = sum;
    }
    EndCapture();
    EXPECT_EQ(Stats().segment.all.current - before.segment.all.current, row.segments);
    EXPECT_EQ(Stats().reserved_bytes.all.current - before.reserved_bytes.all.current, row.reserved);
    EXPECT_EQ(Stats().active.all.current - before.active.all.current, 1);
    ASSERT_EQ(a().EmptyCache().code(), 0);
    EXPECT_EQ(Stats().segment.all.current - before.segment.all.current, row.segments);
    ASSERT_EQ(a().ReleasePool(0, kP).code(), 0);
    ASSERT_EQ(a().EmptyCache().code(), 0);
    EXPECT_EQ(Stats().segment.all.current - before.segment.all.current, 1);
    EXPECT_EQ(Stats().reserved_bytes.all.current - before.reserved_bytes.all.current, row.left);
    EXPECT_EQ(Stats().active_bytes.all.current - before.active_bytes.all.current, static_cast<int64_t>(row.bytes));
    Put(b), Put(a0);
    ASSERT_EQ(a().EmptyCache().code(), 0);
    EXPECT_EQ(Reserved(), 0);
  }
}

TEST_F(Capturing, TwoGraphsNeedTheSumOfTheirMemoryUnlessTheyShare) {
  const auto capture = [&](PoolId pool, uint64_t id) {
    BeginCapture(s1, pool, id);
    Put(Get(kMiB, s1));
    EndCapture(pool, id);
  };
  capture({1, 0}, 1);
  capture({2, 0}, 2);
  EXPECT_EQ(Reserved(), static_cast<int64_t>(4 * kMiB));
  capture({2, 0}, 3);
  EXPECT_EQ(Reserved(), static_cast<int64_t>(4 * kMiB));
}

// A reset of the device takes its memory, whoever holds it.
class Forgotten : public DeviceTest {};

TEST_F(Forgotten, EverythingGoesAndTheAllocatorGoesOn) {
  for (const bool expandable : {false, true}) {
    SCOPED_TRACE(expandable);
    Config now = a().GetConfig();
    now.expandable_segments = expandable;
    ASSERT_EQ(a().SetConfig(now).code(), 0);
    char* const live = Get(3 << 20, s1);
    Get(700, s2);
    Put(Get(40 << 20, s1));
    char* const waiting = Get(512, s1);
    ASSERT_EQ(a().RecordStream(waiting, s2).code(), 0);
    Put(waiting);
    BeginCapture(s3);
    Get(100, s3);
    char* const deferred = Get(512, s3);
    ASSERT_EQ(a().RecordStream(deferred, s1).code(), 0);
    Put(deferred);
    EndCapture();  // the graph has its pool still
    a().ForgetDevice(0);
    EXPECT_EQ(sim.used(), 0u);
    EXPECT_EQ(sim.live_segments(), 0u);
    EXPECT_EQ(sim.live_ranges(), 0u);
    EXPECT_EQ(sim.live_events(), 0u);
    const DeviceStats stats = Stats();
    for (const StatBySize* stat :
         {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
          &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes}) {
      EXPECT_EQ(stat->all.current, 0);
      EXPECT_EQ(stat->small_pool.current, 0);
      EXPECT_EQ(stat->large_pool.current, 0);
    }
    EXPECT_EQ(a().Free(live).code(), 107000) << "it is gone";
    EXPECT_EQ(a().PoolUsers(0, kP), 1);
    EXPECT_EQ(a().ReleasePool(0, kP).code(), 0);
    EXPECT_EQ(a().PoolUsers(0, kP), 0);
    Put(Get(3 << 20, s1));
    SimDriver::SetCurrent(nullptr);
    ASSERT_EQ(a().EmptyCache().code(), 0);
  }
}

// What a capture is told of its blocks: those whose memory it has seen given out anew, or passed over.
struct Reused : DeviceTest {
  void Record(void* stream, int tasks) {
    for (int i = 0; i < tasks; ++i) sim.Capture(stream);
  }
  // begin, end, and the tasks between which the block lived.
  using Blocks = std::vector<std::vector<uint64_t>>;
  Blocks Take(uint64_t capture = 7) {
    Blocks blocks;
    for (const ReusedBlock& block : a().TakeReusedBlocks(0, capture)) {
      blocks.push_back({block.begin, block.end, block.first, block.behind});
    }
    return blocks;
  }
  static std::vector<uint64_t> Block(const char* begin, uint64_t bytes, uint64_t first, uint64_t behind) {
    const auto address = reinterpret_cast<uintptr_t>(begin);
    return {address, address + bytes, first, behind};
  }
};

TEST_F(Reused, ABlockThatIsGivenOutAnewIsTold) {
  BeginCapture(s1);
  Record(s1, 2);
  char* block = Get(4 * kMiB, s1);
  Record(s1, 3);
  Put(block);
  Record(s1, 1);
  EXPECT_EQ(Get(4 * kMiB, s1), block);
  Record(s1, 1);
  EXPECT_EQ(Take(), (Blocks{Block(block, 4 * kMiB, 2, 5)}));
  EXPECT_EQ(Take(), Blocks{}) << "told once";
  EndCapture();
}

TEST_F(Reused, APartIsEnough) {
  BeginCapture(s1);
  char* first = Get(6 * kMiB, s1);
  Record(s1, 1);
  Put(first);
  char* part = Get(2 * kMiB, s1);
  Record(s1, 1);
  EXPECT_EQ(part, first);
  Put(part);
  char* over_both = Get(5 * kMiB, s1);
  EXPECT_EQ(over_both, first);
  EXPECT_EQ(Take(), (Blocks{Block(first, 6 * kMiB, 0, 1), Block(part, 2 * kMiB, 1, 2)}));
  EndCapture();
}

TEST_F(Reused, NeighboursThatNobodyGotAreNot) {
  BeginCapture(s1);
  char* first = Get(4 * kMiB, s1);
  char* second = Get(2 * kMiB, s1);
  EXPECT_EQ(second, first + 4 * kMiB);
  Record(s1, 1);
  Put(first);
  Put(second);  // one free block from now on
  EXPECT_EQ(Get(4 * kMiB, s1), first);
  EXPECT_EQ(Take(), (Blocks{Block(first, 4 * kMiB, 0, 1)}));
  EndCapture();
}

// Which of the blocks that fit is chosen is the allocator's business.
TEST_F(Reused, WhatIsPassedOverIsTold) {
  BeginCapture(s1);
  char* large = Get(6 * kMiB, s1);
  Get(2 * kMiB, s1);  // so that free ones do not become one
  char* small = Get(3 * kMiB, s1);
  Get(2 * kMiB, s1);
  Record(s1, 1);
  Put(large);
  Record(s1, 1);
  Put(small);
  EXPECT_EQ(Get(2 * kMiB, s1), small);
  EXPECT_EQ(Take(), (Blocks{Block(large, 6 * kMiB, 0, 1), Block(small, 3 * kMiB, 0, 2)}));
  EndCapture();
}

TEST_F(Reused, WhatIsTooSmallOrOfAnotherStreamIsNotPassedOver) {
  BeginCapture(s1);
  BeginCapture(s2, kQ, 8);
  char* block = Get(4 * kMiB, s1);
  Get(2 * kMiB, s1);  // so that it stays a block of its own
  Record(s1, 1);
  Put(block);
  EXPECT_NE(Get(5 * kMiB, s1), block);
  EXPECT_NE(Get(4 * kMiB, s2), block);
  EXPECT_EQ(Take(7), Blocks{});
  EndCapture(kQ, 8);
  EndCapture();
}

TEST_F(Reused, WhatIsFreedAndNotGivenOutStays) {
  BeginCapture(s1);
  char* block = Get(4 * kMiB, s1);
  Record(s1, 1);
  Put(block);
  Record(s1, 1);
  EXPECT_EQ(Take(), Blocks{});
  EndCapture();
}

TEST_F(Reused, WhatNoTaskHasUsedIsNothingToTell) {
  BeginCapture(s1);
  Record(s1, 1);
  char* block = Get(4 * kMiB, s1);
  Put(block);
  EXPECT_EQ(Get(4 * kMiB, s1), block);
  EXPECT_EQ(Take(), Blocks{});
  EndCapture();
}

TEST_F(Reused, ALaterCaptureInTheSamePoolTellsNothingOfTheFirst) {
  BeginCapture(s1, kQ);
  char* block = Get(4 * kMiB, s1);
  Record(s1, 1);
  Put(block);
  EXPECT_EQ(Take(), Blocks{});
  EndCapture(kQ);
  BeginCapture(s1, kQ, 8);
  EXPECT_EQ(Get(4 * kMiB, s1), block);
  Record(s1, 1);
  EXPECT_EQ(Take(8), Blocks{});
  EXPECT_EQ(Take(7), Blocks{});
  EndCapture(kQ, 8);
}

TEST_F(Reused, ABlockOfAnEarlierCaptureIsNoneOfThisOne) {
  BeginCapture(s1, kQ);
  char* block = Get(4 * kMiB, s1);
  Record(s1, 1);
  EndCapture(kQ);
  BeginCapture(s1, kQ, 8);
  Record(s1, 1);
  Put(block);
  EXPECT_EQ(Get(4 * kMiB, s1), block);
  EXPECT_EQ(Take(8), Blocks{});
  EndCapture(kQ, 8);
}

TEST_F(Reused, BlocksThatAnotherStreamUsesWaitForTheEnd) {
  BeginCapture(s1);
  char* block = Get(4 * kMiB, s1);
  Record(s1, 1);
  ASSERT_EQ(a().RecordStream(block, s2).code(), 0);
  Put(block);
  EXPECT_NE(Get(4 * kMiB, s1), block);
  EXPECT_EQ(Take(), Blocks{});
  EndCapture();
}

TEST_F(Reused, CapturesAreKeptApart) {
  BeginCapture(s1);
  BeginCapture(s2, kQ, 8);
  char* first = Get(4 * kMiB, s1);
  char* second = Get(4 * kMiB, s2);
  Record(s1, 1);
  Record(s2, 2);
  Put(first);
  Put(second);
  EXPECT_EQ(Get(4 * kMiB, s2), second);
  EXPECT_EQ(Take(7), Blocks{});
  EXPECT_EQ(Take(8), (Blocks{Block(second, 4 * kMiB, 0, 2)}));
  EndCapture(kQ, 8);
  EndCapture();
}

TEST_F(Reused, MemoryOfOthersIsNotLookedAt) {
  char* before = Get(4 * kMiB, s1);
  BeginCapture(s1);
  Record(s1, 1);
  Put(before);  // of the default pool
  char* aside = Get(4 * kMiB, s2);
  Put(aside);
  EXPECT_EQ(Get(4 * kMiB, s2), aside);
  EXPECT_EQ(Take(), Blocks{});
  EndCapture();
  EXPECT_EQ(Take(), Blocks{});
}

TEST_F(Reused, WhatNobodyTakesIsForgotten) {
  BeginCapture(s1);
  char* block = Get(4 * kMiB, s1);
  Record(s1, 1);
  Put(block);
  Get(4 * kMiB, s1);
  EndCapture();
  EXPECT_EQ(Take(), Blocks{});
}

}  // namespace
}  // namespace reprise::memory::testing
