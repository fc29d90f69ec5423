// SPDX-License-Identifier: Apache-2.0
//
// The caching allocator of pinned memory, rule by rule, on a simulated device.
#include "memory/host_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../unit/scale.h"
#include "base/fault.h"
#include "sim_driver.h"

namespace reprise::memory {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::SimDriver;

constexpr PoolId kPoolA = {1, 0};
constexpr PoolId kPoolB = {0, 2};
void* const kEager = SimDriver::S(1);
void* const kCaptured = SimDriver::S(2);
void* const kOther = SimDriver::S(3);

class HostAllocatorTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(driver_.events_in_captures, 0u);
    allocator_.reset();
    EXPECT_EQ(driver_.live_host(), 0u);
    EXPECT_EQ(driver_.live_events(), 0u);
    SimDriver::SetCurrent(nullptr);
    ArmFault("*", 0);
  }

  void Use(Config config) { allocator_ = std::make_unique<HostAllocator>(driver_, config); }
  char* Take(uint64_t bytes) {
    StatusOr<void*> block = allocator_->Allocate(bytes);
    EXPECT_TRUE(block.ok()) << (block.ok() ? "" : std::move(block).status().detail().what);
    return static_cast<char*>(*block);
  }
  // A copy of the block on a stream.
  void Copy(void* block, void* stream) {
    driver_.Submit(stream);
    StatusOr<bool> ours = allocator_->RecordUse(block, stream);
    ASSERT_TRUE(ours.ok());
    ASSERT_TRUE(*ours);
  }
  void Free(void* block) { EXPECT_TRUE(allocator_->Free(block).ok()); }
  // The calling thread captures `stream` into `pool`.
  void BeginCapture(PoolId pool, void* stream = kCaptured) {
    SimDriver::SetCurrent(stream);
    const uint64_t id = ++captures_;
    ASSERT_TRUE(allocator_
                    ->BeginAllocateToPool(pool,
                                          [this, id](void* s) {
                                            const CaptureState state = driver_.CaptureOf(s);
                                            return state.is_open && state.id == id;
                                          })
                    .ok());
    driver_.BeginCapture(stream, id);
    open_[pool] = id;
  }
  void EndCapture(PoolId pool) {
    driver_.EndCapture(open_[pool]);
    EXPECT_TRUE(allocator_->EndAllocateToPool(pool).ok());
    SimDriver::SetCurrent(nullptr);
  }
  HostStats Stats() { return allocator_->Stats(); }
  void Empty() { EXPECT_TRUE(allocator_->EmptyCache().ok()); }

  SimDriver driver_;
  std::unique_ptr<HostAllocator> allocator_ = std::make_unique<HostAllocator>(driver_, Config{});
  uint64_t captures_ = 0;
  std::map<PoolId, uint64_t> open_;
};

// ---- The default pool ----

TEST_F(HostAllocatorTest, NothingIsNull) {
  EXPECT_EQ(Take(0), nullptr);
  Free(nullptr);
  EXPECT_EQ(Stats().allocations.allocated, 0);
}

TEST_F(HostAllocatorTest, SizesAreRoundedUpToPowersOfTwo) {
  const struct {
    uint64_t bytes, size;
  } table[] = {{1, 1}, {2, 2}, {3, 4}, {511, 512}, {512, 512}, {513, 1024}, {100000, 131072}, {3 << 20, 4 << 20}};
  int64_t sum = 0;
  for (const auto& row : table) {
    std::memset(Take(row.bytes), 7, row.bytes);
    sum += static_cast<int64_t>(row.size);
    EXPECT_EQ(Stats().active_bytes.current, sum) << row.bytes;
    EXPECT_EQ(Stats().allocated_bytes.current, sum) << row.bytes;
  }
}

TEST_F(HostAllocatorTest, AboveTheThresholdNothingIsRounded) {
  Config config;
  config.pinned_max_round_threshold = kMiB;
  Use(config);
  char* small = Take(kMiB - 1);
  char* large = Take(kMiB + 1);
  EXPECT_EQ(Stats().active_bytes.current, static_cast<int64_t>(2 * kMiB + 1));
  Free(large);
  EXPECT_NE(Take(kMiB + 2), large) << "another size is another class";
  EXPECT_EQ(Take(kMiB + 1), large);
  Free(small);
  EXPECT_EQ(Take(kMiB - 5), small);
}

TEST_F(HostAllocatorTest, TheBlockFreedLastIsUsedFirst) {
  char* a = Take(1000);
  char* b = Take(1000);
  char* c = Take(5000);
  Free(a);
  Free(b);
  Free(c);
  EXPECT_EQ(Take(600), b);
  EXPECT_EQ(Take(1024), a);
  EXPECT_EQ(Take(8192), c);
  EXPECT_EQ(Stats().num_host_alloc, 3);
}

TEST_F(HostAllocatorTest, ABlockIsUsedAgainWhenEveryStreamHasPassed) {
  char* block = Take(1000);
  Copy(block, kEager);
  Copy(block + 500, kOther);
  Free(block);
  EXPECT_NE(Take(1000), block);
  driver_.Advance(kEager);
  EXPECT_NE(Take(1000), block);
  driver_.Advance(kOther);
  EXPECT_EQ(Take(1000), block);
}

TEST_F(HostAllocatorTest, AStreamThatIsBehindHoldsUpNoOther) {
  char* slow = Take(1000);
  char* fast = Take(1000);
  Copy(slow, kEager);
  Copy(fast, kOther);
  Free(slow);
  Free(fast);
  driver_.Advance(kOther);
  EXPECT_EQ(Take(1000), fast);
}

TEST_F(HostAllocatorTest, AnEventStandsBehindTheFreeOnceForEachStream) {
  char* block = Take(1000);
  for (int i = 0; i < 5; ++i) Copy(block, kEager);
  Free(block);
  EXPECT_EQ(driver_.live_events(), 1u);
  driver_.Advance(kEager);
  Empty();
  EXPECT_EQ(driver_.live_events(), 0u);
  EXPECT_EQ(driver_.live_host(), 0u);
}

TEST_F(HostAllocatorTest, ForeignMemoryIsNotOurs) {
  char foreign[16];
  char* block = Take(1000);
  EXPECT_FALSE(*allocator_->RecordUse(foreign, kEager));
  EXPECT_FALSE(allocator_->Owns(foreign));
  EXPECT_FALSE(allocator_->Owns(nullptr));
  EXPECT_TRUE(allocator_->Owns(block));
  EXPECT_TRUE(allocator_->Owns(block + 1023)) << "the rounded size is the block's";
  EXPECT_FALSE(allocator_->Owns(block + 1024));
}

TEST_F(HostAllocatorTest, WrongFreesAreRefusedWithTheBlockAndWhatToDo) {
  char foreign[16];
  char* block = Take(1000);
  const auto refused = [&](void* address) {
    const Status status = allocator_->Free(address);
    EXPECT_EQ(status.code(), 107000);
    return status.ok() ? "" : status.detail().what + "; " + status.detail().culprit + "; " + status.detail().hint;
  };
  EXPECT_THAT(refused(foreign), AllOf(HasSubstr("no block"), HasSubstr("Allocate returned")));
  EXPECT_THAT(refused(block + 8), HasSubstr("8 bytes behind the beginning"));
  Free(block);
  EXPECT_THAT(refused(block), AllOf(HasSubstr("freed before"), HasSubstr("1024 bytes")));
  const Status use = allocator_->RecordUse(block, kEager).status();
  EXPECT_EQ(use.code(), 107000);
  EXPECT_THAT(use.detail().what, HasSubstr("has been freed"));
  EXPECT_EQ(Stats().active_requests.freed, 1);
}

TEST_F(HostAllocatorTest, HugeRequestsAreRefusedAtOnce) {
  for (const uint64_t bytes : {UINT64_MAX, uint64_t{1} << 63, uint64_t{1} << 60}) {
    EXPECT_EQ(allocator_->Allocate(bytes).status().code(), 207001);
  }
  EXPECT_EQ(Stats().num_host_alloc, 0);
}

TEST_F(HostAllocatorTest, WithoutRoomTheCacheIsEmptiedAndItIsTriedAgain) {
  char* cached = Take(4000);
  Free(cached);
  driver_.FailAt(1);
  char* block = Take(100000);
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(Stats().num_host_free, 1) << "the cached block made room";
  EXPECT_EQ(Stats().allocations.current, 1);
}

TEST_F(HostAllocatorTest, WithoutRoomTheMessageSaysWhoHoldsWhat) {
  BeginCapture(kPoolA);
  char* kept = Take(3 * kMiB);
  Copy(kept, kCaptured);
  Free(kept);
  EndCapture(kPoolA);
  char* waiting = Take(kMiB);
  Copy(waiting, kEager);
  Free(waiting);
  Take(2 * kMiB);
  ArmFault("pinned.host", 1);
  driver_.FailAt(1);
  const Status status = allocator_->Allocate(64 * kMiB).status();
  EXPECT_TRUE(FaultFired());
  ASSERT_EQ(status.code(), 207001);
  EXPECT_THAT(status.detail().what, AllOf(HasSubstr("out of pinned host memory"), HasSubstr("64.0 MiB")));
  EXPECT_THAT(status.detail().culprit,
              AllOf(HasSubstr("2.0 MiB are handed out"), HasSubstr("1.0 MiB wait for streams"),
                    HasSubstr("4.0 MiB are kept for captured copies"), HasSubstr("pool (1,0) (4.0 MiB)")));
  EXPECT_THAT(status.detail().hint, HasSubstr("reset graphs"));
  EXPECT_NE(Take(64 * kMiB), nullptr);
}

TEST_F(HostAllocatorTest, WithoutRoomABlockOfTwoGraphsIsCountedOnce) {
  char* input = Take(4 * kMiB);
  for (const PoolId pool : {kPoolA, kPoolB}) {
    BeginCapture(pool);
    Copy(input, kCaptured);
    EndCapture(pool);
  }
  Free(input);
  const auto culprit = [&] {
    ArmFault("pinned.host", 1);
    driver_.FailAt(1);
    return std::move(allocator_->Allocate(64 * kMiB)).status().detail().culprit;
  };
  const char* kept = "0 bytes wait for streams, 4.0 MiB are kept for captured copies";
  EXPECT_THAT(culprit(), HasSubstr(kept));
  ASSERT_TRUE(allocator_->ReleasePool(kPoolA).ok());
  EXPECT_THAT(culprit(), HasSubstr(kept));
  ASSERT_TRUE(allocator_->ReleasePool(kPoolB).ok());
  EXPECT_THAT(culprit(), HasSubstr("0 bytes wait for streams, 0 bytes are kept"));
}

TEST_F(HostAllocatorTest, EmptyCacheReturnsWhatNobodyUses) {
  char* used = Take(100);
  char* waits = Take(200);
  char* cached = Take(300);
  Copy(waits, kEager);
  Free(waits);
  Free(cached);
  Empty();
  EXPECT_EQ(driver_.live_host(), 2u);
  EXPECT_EQ(Stats().allocations.current, 2);
  EXPECT_EQ(driver_.waits, 0u) << "it does not wait";
  driver_.Advance(kEager);
  Empty();
  EXPECT_EQ(driver_.live_host(), 1u);
  Free(used);
  Empty();
  EXPECT_EQ(driver_.live_host(), 0u);
  EXPECT_EQ(Stats().allocated_bytes.current, 0);
}

TEST_F(HostAllocatorTest, LargeBlocksAreNotCachedAboveTheLimit) {
  Config config;
  config.pinned_max_cached_size = kMiB;
  Use(config);
  char* small = Take(kMiB);
  char* large = Take(2 * kMiB);
  char* waits = Take(4 * kMiB);
  Copy(waits, kEager);
  Free(small);
  Free(large);
  Free(waits);
  EXPECT_EQ(driver_.live_host(), 2u) << "the small one, and the one that a stream uses";
  driver_.Advance(kEager);
  EXPECT_EQ(Take(kMiB), small);
  EXPECT_EQ(driver_.live_host(), 1u);
}

TEST_F(HostAllocatorTest, ThereIsNoStreamQueryWhileNothingIsRouted) {
  class Counting : public SimDriver {
   public:
    void* CurrentStream(int device) override { return ++asked, SimDriver::CurrentStream(device); }
    CaptureState CaptureOf(void* stream) override { return ++asked, SimDriver::CaptureOf(stream); }
    int asked = 0;
  } driver;
  HostAllocator allocator(driver, {});
  for (int i = 0; i < 10; ++i) {
    StatusOr<void*> block = allocator.Allocate(100);
    EXPECT_TRUE(allocator.Free(*block).ok());
  }
  EXPECT_TRUE(allocator.EmptyCache().ok());
  EXPECT_EQ(driver.asked, 0);
  EXPECT_EQ(driver.queries, 0u);
}

// ---- Reserve segment ----

TEST_F(HostAllocatorTest, TheReserveSegmentIsCarvedInPagesAndThenAllocationsGoOn) {
  Config config;
  config.pinned_reserve_segment_size = kMiB;
  Use(config);
  char* first = Take(100);
  char* second = Take(5000);
  char* third = Take(100);
  EXPECT_EQ(second - first, 4096);
  EXPECT_EQ(third - second, 8192);
  EXPECT_EQ(driver_.live_host(), 1u);
  char* outside = Take(kMiB);
  EXPECT_EQ(driver_.live_host(), 2u);
  Free(second);
  EXPECT_EQ(Take(8192), second) << "its pieces are cached like any block";
  Empty();
  EXPECT_EQ(Stats().allocations.current, 4);
  for (char* block : {first, second, third, outside}) Free(block);
  Empty();
  EXPECT_EQ(driver_.live_host(), 1u) << "the segment stays";
  EXPECT_EQ(Stats().allocations.current, 0);
  EXPECT_EQ(Take(512 * kKiB), first) << "and is carved from its beginning again";
  EXPECT_EQ(Take(512 * kKiB), first + 512 * kKiB);
}

TEST_F(HostAllocatorTest, WithoutRoomForTheReserveSegmentBlocksAreTakenOneByOne) {
  Config config;
  config.pinned_reserve_segment_size = kMiB;
  Use(config);
  driver_.FailAt(1);
  EXPECT_NE(Take(100), nullptr);
  EXPECT_EQ(Stats().num_host_alloc, 1);
}

TEST_F(HostAllocatorTest, PrivatePoolsDoNotTouchTheReserveSegment) {
  Config config;
  config.pinned_reserve_segment_size = kMiB;
  Use(config);
  char* ours = Take(100);
  BeginCapture(kPoolA);
  char* captured = Take(100);
  EXPECT_TRUE(captured < ours || captured >= ours + kMiB);
  EndCapture(kPoolA);
}

// ---- Captures ----

TEST_F(HostAllocatorTest, HP1TheCurrentStreamDecidesThePool) {
  char* before = Take(1000);
  Free(before);
  BeginCapture(kPoolA);
  char* captured = Take(1000);
  EXPECT_NE(captured, before) << "the default pool's block is not for the capture";
  SimDriver::SetCurrent(kEager);
  EXPECT_EQ(Take(1000), before) << "another stream goes on with the default pool";
  SimDriver::SetCurrent(kCaptured);
  EndCapture(kPoolA);
}

TEST_F(HostAllocatorTest, HP1TheOldestFilterThatAcceptsDecides) {
  ASSERT_TRUE(allocator_->BeginAllocateToPool(kPoolA, [](void* s) { return s == kOther; }).ok());
  ASSERT_TRUE(allocator_->BeginAllocateToPool(kPoolB, [](void*) { return true; }).ok());
  SimDriver::SetCurrent(kOther);
  char* in_a = Take(1000);
  SimDriver::SetCurrent(kEager);
  char* in_b = Take(1000);
  Free(in_b);
  Free(in_a);
  EXPECT_EQ(Take(1000), in_b);
  SimDriver::SetCurrent(kOther);
  EXPECT_EQ(Take(1000), in_a);
}

TEST_F(HostAllocatorTest, HP2WhatACapturedCopyUsesIsNeverHandedOutWhileThePoolHasUsers) {
  BeginCapture(kPoolA);
  char* first = Take(1000);
  std::memset(first, 1, 1000);
  Copy(first, kCaptured);
  Free(first);
  char* second = Take(1000);
  EXPECT_NE(second, first);
  Copy(second, kCaptured);
  Free(second);
  EndCapture(kPoolA);
  const int64_t owned = Stats().allocations.current;
  Empty();
  std::set<char*> fresh;
  for (int i = 0; i < 32; ++i) fresh.insert(Take(1000));
  EXPECT_EQ(fresh.count(first) + fresh.count(second), 0u);
  EXPECT_GE(Stats().allocations.current, owned);
  EXPECT_EQ(first[999], 1) << "a replay reads what was there";
}

TEST_F(HostAllocatorTest, HP2ItHoldsForCapturesOnThePoolThatComeLater) {
  BeginCapture(kPoolA);
  char* used = Take(1000);
  Copy(used, kCaptured);
  Free(used);
  EndCapture(kPoolA);
  BeginCapture(kPoolA, kOther);
  EXPECT_EQ(allocator_->PoolUsers(kPoolA), 2);
  EXPECT_NE(Take(1000), used);
  EndCapture(kPoolA);
  ASSERT_TRUE(allocator_->ReleasePool(kPoolA).ok());
  Empty();
  BeginCapture(kPoolA);
  EXPECT_NE(Take(1000), used) << "one of two graphs is gone";
  EndCapture(kPoolA);
}

TEST_F(HostAllocatorTest, HP3WhatNoCopyUsesIsHandedOutAgainInThePool) {
  BeginCapture(kPoolA);
  char* unused = Take(1000);
  Free(unused);
  EXPECT_EQ(Take(1000), unused);
  Free(unused);
  EndCapture(kPoolA);
  EXPECT_NE(Take(1000), unused) << "the default pool does not see it";
  BeginCapture(kPoolA, kOther);
  EXPECT_EQ(Take(1000), unused) << "a later capture on the pool does";
  EndCapture(kPoolA);
}

TEST_F(HostAllocatorTest, HP4NoEventWorkWithinACapture) {
  char* before = Take(1000);
  Copy(before, kEager);
  char* waits = Take(1000);
  Copy(waits, kEager);
  Free(waits);
  const size_t events = driver_.live_events();
  const uint64_t queries = driver_.queries;
  driver_.Advance(kEager);
  BeginCapture(kPoolA);
  char* captured = Take(1000);
  Copy(captured, kCaptured);
  Free(captured);
  Free(before);
  Take(2000);
  Empty();
  EXPECT_EQ(driver_.live_events(), events);
  EXPECT_EQ(driver_.queries, queries);
  EXPECT_EQ(Stats().num_host_free, 0) << "and nothing goes to the driver";
  EndCapture(kPoolA);
  EXPECT_EQ(Take(1000), waits);
  EXPECT_NE(Take(1000), before) << "its event was recorded just now";
  driver_.Advance(kEager);
  EXPECT_EQ(Take(1000), before);
}

TEST_F(HostAllocatorTest, HP5TheCacheIsEmptiedAroundPoolsWithUsers) {
  BeginCapture(kPoolA);
  char* used = Take(1000);
  Copy(used, kCaptured);
  Free(used);
  Free(Take(2000));
  EndCapture(kPoolA);
  const HostStats before = Stats();
  Empty();
  EXPECT_EQ(Stats().allocations, before.allocations);
  EXPECT_EQ(Stats().active_requests, before.active_requests);
}

TEST_F(HostAllocatorTest, HP6TenCyclesDoNotGrowWithOrWithoutCapturedUse) {
  for (const bool use : {false, true}) {
    for (const bool new_pool : {false, true}) {
      int64_t owned = 0;
      for (uint64_t i = 0; i < 10; ++i) {
        const PoolId pool = new_pool ? PoolId{100 + i, 0} : kPoolA;
        BeginCapture(pool);
        char* block = Take(1000);
        if (use) Copy(block, kCaptured);
        Free(block);
        EndCapture(pool);
        ASSERT_TRUE(allocator_->ReleasePool(pool).ok());
        Empty();
        if (i == 0) owned = Stats().allocations.current;
        EXPECT_EQ(Stats().allocations.current, owned) << use << new_pool << i;
        EXPECT_EQ(driver_.live_host(), static_cast<size_t>(owned));
      }
      EXPECT_EQ(owned, 0);
    }
  }
}

#if defined(__GLIBC__)
TEST_F(HostAllocatorTest, HP6NorDoTheRecordsOfPools) {
  if (reprise::testing::kSanitized) GTEST_SKIP() << "a sanitizer has its own malloc";
  const auto cycle = [&] {
    BeginCapture(kPoolA);
    char* block = Take(1000);
    Copy(block, kCaptured);
    EndCapture(kPoolA);
    ASSERT_TRUE(allocator_->ReleasePool(kPoolA, [] { return true; }).ok());
    Free(block);
    Empty();
  };
  for (int i = 0; i < 10; ++i) cycle();
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < 1000; ++i) cycle();
  EXPECT_LT(mallinfo2().uordblks, before + 10000);
}
#endif

TEST_F(HostAllocatorTest, HP6BlocksComeBackOnlyWhenTheLastReplayHasEnded) {
  bool idle = false;
  int asked = 0;
  BeginCapture(kPoolA);
  char* used = Take(1000);
  Copy(used, kCaptured);
  Free(used);
  EndCapture(kPoolA);
  ASSERT_TRUE(allocator_->ReleasePool(kPoolA, [&] { return ++asked, idle; }).ok());
  EXPECT_EQ(allocator_->PoolUsers(kPoolA), 0);
  Empty();
  EXPECT_EQ(Stats().active_requests.current, 1);
  EXPECT_EQ(driver_.live_host(), 1u);
  EXPECT_GT(asked, 0);
  idle = true;
  Take(50);
  EXPECT_EQ(Stats().active_requests.current, 1) << "the new block; the old one is free, allocations ask, too";
  Empty();
  EXPECT_EQ(driver_.live_host(), 1u);
  const int last = asked;
  Empty();
  EXPECT_EQ(asked, last) << "once idle, it is not asked again";
}

TEST_F(HostAllocatorTest, HP6AllGraphsOfThePoolMustHaveEnded) {
  bool first = false;
  bool second = false;
  for (int i = 0; i < 2; ++i) {
    BeginCapture(kPoolA);
    char* used = Take(1000);
    Copy(used, kCaptured);
    Free(used);
    EndCapture(kPoolA);
  }
  ASSERT_TRUE(allocator_->ReleasePool(kPoolA, [&] { return first; }).ok());
  first = true;
  Empty();
  EXPECT_EQ(driver_.live_host(), 2u) << "another graph uses the pool";
  ASSERT_TRUE(allocator_->ReleasePool(kPoolA, [&] { return second; }).ok());
  Empty();
  EXPECT_EQ(driver_.live_host(), 2u) << "it may still run";
  second = true;
  Empty();
  EXPECT_EQ(driver_.live_host(), 0u);
}

TEST_F(HostAllocatorTest, HP6ABlockThatOutlivesItsPoolIsStillGood) {
  BeginCapture(kPoolA);
  char* used = Take(1000);
  Copy(used, kCaptured);
  EndCapture(kPoolA);
  ASSERT_TRUE(allocator_->ReleasePool(kPoolA).ok());
  Empty();
  ASSERT_TRUE(allocator_->Owns(used));
  std::memset(used, 3, 1000);
  Copy(used, kEager);
  Free(used);
  Empty();
  EXPECT_EQ(driver_.live_host(), 1u) << "the eager copy still runs";
  driver_.Advance(kEager);
  Empty();
  EXPECT_EQ(driver_.live_host(), 0u);
}

TEST_F(HostAllocatorTest, DV19ANewLifeOfAPoolSharesNothingWithTheOneBefore) {
  bool idle = false;
  BeginCapture(kPoolA);
  char* old_free = Take(1000);
  char* old_used = Take(1000);
  Copy(old_used, kCaptured);
  Free(old_free);
  Free(old_used);
  EndCapture(kPoolA);
  ASSERT_TRUE(allocator_->ReleasePool(kPoolA, [&] { return idle; }).ok());
  BeginCapture(kPoolA);
  EXPECT_EQ(allocator_->PoolUsers(kPoolA), 1);
  char* fresh = Take(1000);
  EXPECT_NE(fresh, old_free);
  EXPECT_NE(fresh, old_used);
  Copy(fresh, kCaptured);
  Free(fresh);
  EndCapture(kPoolA);
  idle = true;
  Empty();
  EXPECT_EQ(driver_.live_host(), 1u) << "the old life is gone, the new one is not";
  EXPECT_TRUE(allocator_->Owns(fresh));
}

TEST_F(HostAllocatorTest, HP7TwoGraphsOnOnePoolNeverGetTheSameUsedBlock) {
  std::set<char*> used;
  for (int graph = 0; graph < 4; ++graph) {
    BeginCapture(kPoolA);
    for (int i = 0; i < 3; ++i) {
      char* block = Take(1000);
      EXPECT_TRUE(used.insert(block).second);
      Copy(block, kCaptured);
      Free(block);
    }
    EndCapture(kPoolA);
  }
}

TEST_F(HostAllocatorTest, HP8ABlockFromBeforeThatIsFreedInTheCaptureBelongsToTheGraph) {
  char* before = Take(1000);
  Copy(before, kEager);
  BeginCapture(kPoolA);
  Copy(before, kCaptured);
  Free(before);
  EndCapture(kPoolA);
  driver_.Advance(kEager);
  driver_.Advance(kCaptured);
  Empty();
  driver_.Advance(kEager);
  Empty();
  EXPECT_EQ(driver_.live_events(), 0u);
  for (int i = 0; i < 32; ++i) EXPECT_NE(Take(1000), before);
  ASSERT_TRUE(allocator_->ReleasePool(kPoolA).ok());
  EXPECT_EQ(Take(1000), before) << "it goes back to the default pool, where it came from";
}

TEST_F(HostAllocatorTest, HP8ABlockThatIsFreedAfterTheCaptureBelongsToTheGraph) {
  char* before = Take(1000);
  BeginCapture(kPoolA);
  Copy(before, kCaptured);
  EndCapture(kPoolA);
  Free(before);
  Empty();
  EXPECT_NE(Take(1000), before);
  ASSERT_TRUE(allocator_->ReleasePool(kPoolA).ok());
  EXPECT_EQ(Take(1000), before);
}

TEST_F(HostAllocatorTest, ABlockOfTwoGraphsWaitsForBoth) {
  for (const auto& [first, second] : {std::pair(kPoolA, kPoolB), {kPoolB, kPoolA}}) {
    char* input = Take(1000);
    for (const PoolId pool : {kPoolA, kPoolB}) {
      BeginCapture(pool);
      Copy(input, kCaptured);
      EndCapture(pool);
    }
    Free(input);
    ASSERT_TRUE(allocator_->ReleasePool(first).ok());
    char* other = Take(1000);
    EXPECT_NE(other, input);
    ASSERT_TRUE(allocator_->ReleasePool(second).ok());
    EXPECT_EQ(Take(1000), input);
  }
}

TEST_F(HostAllocatorTest, APoolThatManyGraphsShareForgetsThoseThatHaveEnded) {
  BeginCapture(kPoolA);
  EndCapture(kPoolA);
  int asked = 0;
  for (int i = 0; i < 50; ++i) {
    BeginCapture(kPoolA);
    EndCapture(kPoolA);
    ASSERT_TRUE(allocator_->ReleasePool(kPoolA, [&] { return ++asked != 0; }).ok());
  }
  EXPECT_EQ(asked, 50) << "once each, and at once";
  Empty();
  EXPECT_EQ(asked, 50);
  EXPECT_EQ(allocator_->PoolUsers(kPoolA), 1);
}

TEST_F(HostAllocatorTest, DV20AFreeRecordsNothingOnAStreamThatIsCapturedMeanwhile) {
  char* block = Take(1000);
  Copy(block, kCaptured);
  // A capture that no pool knows of, by the runtime's functions alone.
  driver_.BeginCapture(kCaptured, 77);
  Free(block);
  driver_.Advance(kCaptured);
  EXPECT_NE(Take(1000), block);
  EXPECT_EQ(driver_.live_events(), 0u);
  driver_.EndCapture(77);
  EXPECT_NE(Take(1000), block) << "the event stands behind the capture";
  EXPECT_EQ(driver_.live_events(), 1u);
  driver_.Advance(kCaptured);
  EXPECT_EQ(Take(1000), block);
}

TEST_F(HostAllocatorTest, HP9AThreadOnAnotherStreamKeepsToTheDefaultPool) {
  char* cached = Take(1000);
  Free(cached);
  BeginCapture(kPoolA);
  char* taken = nullptr;
  std::thread loader([&] {
    taken = Take(1000);
    Free(taken);
    taken = Take(1000);
  });
  loader.join();
  EXPECT_EQ(taken, cached);
  EndCapture(kPoolA);
  ASSERT_TRUE(allocator_->ReleasePool(kPoolA).ok());
  Empty();
  EXPECT_TRUE(allocator_->Owns(taken));
}

TEST_F(HostAllocatorTest, DV07AnotherFilterTakesOverWithoutAUser) {
  ASSERT_TRUE(allocator_->BeginAllocateToPool(kPoolA, [](void* s) { return s == kOther; }).ok());
  SimDriver::SetCurrent(kOther);
  char* block = Take(1000);
  Free(block);
  ASSERT_TRUE(allocator_->SwapFilter(kPoolA, [](void* s) { return s == kEager; }).ok());
  EXPECT_EQ(allocator_->PoolUsers(kPoolA), 1);
  EXPECT_NE(Take(1000), block);
  SimDriver::SetCurrent(kEager);
  EXPECT_EQ(Take(1000), block);
}

TEST_F(HostAllocatorTest, WrongCallsOfPoolsAreRefused) {
  const StreamFilter all = [](void*) { return true; };
  const auto text = [](const Status& status) {
    EXPECT_EQ(status.code(), 107000);
    return status.ok() ? "" : status.detail().what + "; " + status.detail().culprit + "; " + status.detail().hint;
  };
  EXPECT_THAT(text(allocator_->BeginAllocateToPool({}, all)), HasSubstr("(0,0) cannot name a private pool"));
  EXPECT_THAT(text(allocator_->BeginAllocateToPool({3, 4}, all)), HasSubstr("(3,4)"));
  EXPECT_THAT(text(allocator_->EndAllocateToPool(kPoolA)), HasSubstr("not currently recording"));
  EXPECT_THAT(text(allocator_->SwapFilter(kPoolA, all)), HasSubstr("not currently recording"));
  EXPECT_THAT(text(allocator_->ReleasePool(kPoolA)), HasSubstr("no users"));
  ASSERT_TRUE(allocator_->BeginAllocateToPool(kPoolA, all).ok());
  EXPECT_THAT(text(allocator_->BeginAllocateToPool(kPoolA, all)), HasSubstr("already recording"));
  EXPECT_EQ(allocator_->PoolUsers(kPoolA), 1) << "the refused call counts no user";
  ASSERT_TRUE(allocator_->EndAllocateToPool(kPoolA).ok());
  EXPECT_EQ(allocator_->PoolUsers(kPoolA), 1);
  EXPECT_THAT(text(allocator_->EndAllocateToPool(kPoolA)), HasSubstr("not currently recording"));
  ASSERT_TRUE(allocator_->ReleasePool(kPoolA).ok());
  EXPECT_THAT(text(allocator_->ReleasePool(kPoolA)), HasSubstr("(1,0) of pinned memory has no users"));
}

// ---- Statistics ----

TEST_F(HostAllocatorTest, StatisticsCountBlocksBytesAndTimes) {
  char* a = Take(1000);
  char* b = Take(3000);
  Free(a);
  const HostStats stats = Stats();
  EXPECT_EQ(stats.allocations, (Stat{2, 2, 2, 0}));
  EXPECT_EQ(stats.active_requests, (Stat{1, 2, 2, 1}));
  EXPECT_EQ(stats.allocated_bytes, (Stat{5120, 5120, 5120, 0}));
  EXPECT_EQ(stats.active_bytes, (Stat{4096, 5120, 5120, 1024}));
  EXPECT_EQ(stats.num_host_alloc, 2);
  EXPECT_EQ(stats.num_host_free, 0);
  EXPECT_EQ(stats.host_alloc_time.count, 2);
  EXPECT_LE(stats.host_alloc_time.min, stats.host_alloc_time.max);
  EXPECT_GE(stats.host_alloc_time.total, stats.host_alloc_time.max);
  Empty();
  EXPECT_EQ(Stats().allocations, (Stat{1, 2, 2, 1}));
  EXPECT_EQ(Stats().host_free_time.count, 1);
  allocator_->ResetPeakStats();
  EXPECT_EQ(Stats().allocations, (Stat{1, 1, 2, 1}));
  EXPECT_EQ(Stats().active_bytes.peak, 4096);
  allocator_->ResetAccumulatedStats();
  EXPECT_EQ(Stats().allocations, (Stat{1, 1, 0, 0}));
  EXPECT_EQ(Stats().num_host_alloc, 0);
  EXPECT_EQ(Stats().host_alloc_time.count, 0);
  Free(b);
  EXPECT_EQ(Stats().active_requests, (Stat{0, 1, 0, 1}));
}

TEST_F(HostAllocatorTest, FlattenNamesEveryNumber) {
  HostStats stats;
  stats.num_host_alloc = 1;
  stats.num_host_free = 2;
  stats.allocations = {3, 4, 5, 6};
  stats.active_requests = {7, 8, 9, 10};
  stats.allocated_bytes = {11, 12, 13, 14};
  stats.active_bytes = {15, 16, 17, 18};
  stats.host_alloc_time = {20, 9, 1, 4};
  stats.host_free_time = {0, 0, 0, 0};
  std::map<std::string, int64_t> flat;
  for (const auto& [key, value] : stats.Flatten()) EXPECT_TRUE(flat.emplace(key, value).second) << key;
  EXPECT_EQ(flat.size(), 2u + 16 + 10);
  EXPECT_EQ(flat["num_host_alloc"], 1);
  EXPECT_EQ(flat["num_host_free"], 2);
  EXPECT_EQ(flat["allocations.current"], 3);
  EXPECT_EQ(flat["active_requests.peak"], 8);
  EXPECT_EQ(flat["allocated_bytes.allocated"], 13);
  EXPECT_EQ(flat["active_bytes.freed"], 18);
  EXPECT_EQ(flat["host_alloc_time.total"], 20);
  EXPECT_EQ(flat["host_alloc_time.max"], 9);
  EXPECT_EQ(flat["host_alloc_time.min"], 1);
  EXPECT_EQ(flat["host_alloc_time.count"], 4);
  EXPECT_EQ(flat["host_alloc_time.avg"], 5);
  EXPECT_EQ(flat["host_free_time.avg"], 0);
}

// ---- Background thread ----

TEST_F(HostAllocatorTest, TheBackgroundThreadReclaimsWithoutACall) {
  Config config;
  config.pinned_use_background_threads = true;
  Use(config);
  bool idle = false;
  BeginCapture(kPoolA);
  char* kept = Take(1000);
  Copy(kept, kCaptured);
  Free(kept);
  EndCapture(kPoolA);
  char* block = Take(1000);
  Copy(block, kEager);
  Free(block);
  EXPECT_EQ(Stats().active_requests.current, 2);
  std::mutex mutex;
  ASSERT_TRUE(allocator_
                  ->ReleasePool(kPoolA,
                                [&] {
                                  std::lock_guard lock(mutex);
                                  return idle;
                                })
                  .ok());
  driver_.Advance(kEager);
  {
    std::lock_guard lock(mutex);
    idle = true;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (Stats().active_requests.current != 0 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(Stats().active_requests.current, 0);
  allocator_.reset();
}

TEST_F(HostAllocatorTest, WithoutAThreadAllocationsDoItsWork) {
  Config config;
  config.pinned_use_background_threads = true;
  Use(config);
  ArmFault("pinned.thread", 1);
  char* block = Take(1000);
  Copy(block, kEager);
  Free(block);
  EXPECT_TRUE(FaultFired());
  driver_.Advance(kEager);
  EXPECT_EQ(Take(1000), block);
}

// ---- Faults ----

TEST_F(HostAllocatorTest, AStreamThatIsGoneHoldsNothing) {
  class Gone : public SimDriver {
   public:
    StatusOr<void*> RecordEvent(void*) override { return Error(107017, "no such stream"); }
  } driver;
  HostAllocator allocator(driver, {});
  void* block = *allocator.Allocate(1000);
  ASSERT_TRUE(allocator.RecordUse(block, kEager).ok());
  EXPECT_TRUE(allocator.Free(block).ok());
  EXPECT_EQ(*allocator.Allocate(1000), block);
}

TEST_F(HostAllocatorTest, WithoutAnEventTheBlockWaitsUntilThereIsOne) {
  char* block = Take(1000);
  Copy(block, kEager);
  Copy(block, kOther);
  driver_.FailAt(2);
  Free(block);
  driver_.Advance(kEager);
  driver_.Advance(kOther);
  EXPECT_NE(Take(1000), block) << "the second event is recorded behind the advance";
  driver_.Advance(kOther);
  EXPECT_EQ(Take(1000), block);
}

// Each acquisition of a program fails once: by a fault point, then in the driver.
TEST_F(HostAllocatorTest, AnyAcquisitionMayFailAndNothingIsLost) {
  for (const auto& [in_driver, reserve] : {std::pair(false, false), {false, true}, {true, false}, {true, true}}) {
    int failures = 0;
    for (int n = 1;; ++n) {
      ASSERT_LT(n, 100);
      SimDriver driver;
      {
        Config config;
        config.pinned_reserve_segment_size = reserve ? kMiB : 0;
        HostAllocator allocator(driver, config);
        in_driver ? driver.FailAt(n) : ArmFault("*", n);
        int refused = 0;
        std::vector<void*> live;
        const auto take = [&](uint64_t bytes) -> void* {
          StatusOr<void*> block = allocator.Allocate(bytes);
          if (block.ok()) return live.emplace_back(*block);
          const Status status = std::move(block).status();
          EXPECT_EQ(status.code(), 207001);
          EXPECT_FALSE(status.detail().hint.empty());
          ++refused;
          return nullptr;
        };
        const auto copy_and_free = [&](void* block, void* stream) {
          if (block == nullptr) return;
          driver.Submit(stream);
          ASSERT_TRUE(allocator.RecordUse(block, stream).ok());
          ASSERT_TRUE(allocator.Free(block).ok());
          std::erase(live, block);
        };
        SimDriver::SetCurrent(nullptr);
        take(1000);
        copy_and_free(take(kMiB), kEager);
        copy_and_free(take(2000), kOther);
        const Status begin = allocator.BeginAllocateToPool(kPoolA, [](void* s) { return s == kCaptured; });
        refused += begin.ok() ? 0 : 1;
        driver.BeginCapture(kCaptured, 5);
        SimDriver::SetCurrent(kCaptured);
        take(1000);
        copy_and_free(take(1000), kCaptured);
        SimDriver::SetCurrent(nullptr);
        driver.EndCapture(5);
        if (begin.ok()) {
          ASSERT_TRUE(allocator.EndAllocateToPool(kPoolA).ok());
          ASSERT_TRUE(allocator.ReleasePool(kPoolA).ok());
        }
        // With that over, everything works, and everything is found again.
        driver.FailAt(0);
        const bool fired = in_driver ? driver.failures != 0 : FaultFired();
        ArmFault("*", 0);
        EXPECT_NE(take(64 * kMiB), nullptr);
        for (void* block : live) EXPECT_TRUE(allocator.Free(block).ok());
        for (void* stream : {kEager, kOther, kCaptured}) driver.Advance(stream);
        EXPECT_TRUE(allocator.EmptyCache().ok());
        for (void* stream : {kEager, kOther, kCaptured}) driver.Advance(stream);
        EXPECT_TRUE(allocator.EmptyCache().ok());
        const HostStats stats = allocator.Stats();
        EXPECT_EQ(stats.active_requests.current, 0) << n;
        EXPECT_EQ(stats.active_bytes.current, 0) << n;
        EXPECT_EQ(stats.allocations.current, 0) << n;
        EXPECT_EQ(stats.num_host_alloc - stats.num_host_free, static_cast<int64_t>(driver.live_host())) << n;
        EXPECT_EQ(driver.live_events(), 0u) << n;
        if (!fired) break;
        ++failures;
      }
      EXPECT_EQ(driver.live_host(), 0u) << n;
    }
    EXPECT_EQ(failures, 8 - (reserve ? 1 : 0) - (in_driver ? 1 : 0));
  }
}

}  // namespace
}  // namespace reprise::memory
