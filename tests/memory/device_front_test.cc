// SPDX-License-Identifier: Apache-2.0
//
// The caches in front of that of a device, which threads use that would wait for each other: what they change, and that
// nobody who asks sees that they are there.
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "../unit/scale.h"
#include "device_fixture.h"
#include "memory/front_caches.h"

namespace reprise::memory::testing {
namespace {

/// Threads that act one at a time, when a test says so.
class Actors {
 public:
  explicit Actors(int count) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this, i] { Loop(i); });
  }
  ~Actors() {
    {
      std::lock_guard lock(mutex_);
      turn_ = kEnd;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  /// Returns when actor `who` has done it.
  void Do(int who, const std::function<void()>& act) {
    std::unique_lock lock(mutex_);
    act_ = &act;
    turn_ = who;
    changed_.notify_all();
    changed_.wait(lock, [&] { return turn_ == kNobody; });
  }

 private:
  static constexpr int kNobody = -1, kEnd = -2;
  void Loop(int self) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return turn_ == self || turn_ == kEnd; });
      if (turn_ == kEnd) return;
      (*act_)();
      turn_ = kNobody;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  int turn_ = kNobody;
  const std::function<void()>* act_ = nullptr;
  std::vector<std::thread> threads_;
};

struct Front : DeviceTest {
  char* GetBy(int who, uint64_t bytes, void* stream) {
    char* block = nullptr;
    actors.Do(who, [&] { block = Get(bytes, stream); });
    return block;
  }
  void PutBy(int who, void* block) {
    actors.Do(who, [&] { Put(block); });
  }
  /// More was held than will be, of each stream: what raises a peak, or finds no memory, calls in.
  void HoldMore() {
    std::vector<char*> more;
    for (int i = 0; i < 16; ++i) more.push_back(Get(100 * kKiB, i < 8 ? s1 : s2));
    for (char* block : more) Put(block);
  }
  /// A block of 4 KiB that actor 0 has freed into its cache; what surrounds it is held.
  char* Parked(void* stream) {
    HoldMore();
    a().ExpectThreads(0);
    GetBy(0, 512, stream);
    char* const block = GetBy(0, 4096, stream);
    GetBy(0, 512, stream);
    PutBy(0, block);
    return block;
  }

  Actors actors{3};
};

// Without a front the other actor would get it: it fits exactly.
TEST_F(Front, AFreedBlockComesBackToWhoFreedIt) {
  char* const block = Parked(s1);
  EXPECT_NE(GetBy(1, 4096, s1), block);
  EXPECT_NE(GetBy(0, 4096, s2), block) << "it belongs to another stream";
  EXPECT_NE(GetBy(0, 4095, s1), block) << "other requests do not get it";
  EXPECT_EQ(GetBy(0, 4096, s1), block);
  EXPECT_NE(GetBy(0, 4096, s1), block) << "once";
}

TEST_F(Front, ItIsOpenOnlyWhereThreadsHaveMet) {
  GetBy(0, 512, s1);
  char* const block = GetBy(0, 4096, s1);
  GetBy(0, 512, s1);
  PutBy(0, block);
  EXPECT_EQ(GetBy(1, 4096, s1), block);
}

TEST_F(Front, TheNewestKindsHaveThePlaces) {
  a().ExpectThreads(0);
  std::vector<std::pair<uint64_t, char*>> blocks;
  // Of any size, so that they share places, each between two that are held.
  for (uint64_t i = 1; i <= 100; ++i) {
    blocks.emplace_back(512 * i, GetBy(0, 512 * i, s1));
    GetBy(0, 512, s1);
  }
  char* const room = Get(kMostInFront + 512, s1);  // for whoever finds nothing in front
  Get(512, s1);
  Put(room);
  for (const auto& [bytes, block] : blocks) PutBy(0, block);
  const auto [bytes, newest] = blocks.back();
  EXPECT_NE(GetBy(1, bytes, s1), newest);
  EXPECT_EQ(GetBy(0, bytes, s1), newest);
  EXPECT_EQ(GetBy(1, blocks[0].first, s1), blocks[0].second) << "what has lost its place is free for all";
}

TEST_F(Front, ABlockIsFreedOnce) {
  char* const block = Parked(s1);
  EXPECT_EQ(a().SizeOf(block), 0u);
  for (int who : {0, 1}) {
    actors.Do(who, [&] { EXPECT_EQ(a().Free(block).code(), 107000); });
  }
  EXPECT_EQ(GetBy(0, 4096, s1), block);
  EXPECT_EQ(a().SizeOf(block), 4096u);
  PutBy(1, block);
  actors.Do(0, [&] { EXPECT_EQ(a().Free(block).code(), 107000); });
}

TEST_F(Front, WhatIsThereIsFreeToWhoeverLooks) {
  char* const block = Parked(s1);
  EXPECT_EQ(Stats().allocation.all.current, 2);
  EXPECT_EQ(Stats().allocated_bytes.all.current, 1024);
  EXPECT_EQ(Stats().inactive_split.all.current, 2) << "it, and the rest of the segment";
  PutBy(0, GetBy(0, 4096, s1));
  const MemorySnapshot snapshot = a().Snapshot({}, false);
  for (const SegmentInfo& segment : snapshot.segments) {
    for (const BlockInfo& info : segment.blocks) {
      if (info.address == reinterpret_cast<uintptr_t>(block)) {
        EXPECT_EQ(info.state, BlockState::kInactive);
      }
    }
  }
}

TEST_F(Front, EmptyCacheGivesItBack) {
  a().ExpectThreads(0);
  PutBy(0, GetBy(0, 4096, s1));
  PutBy(1, GetBy(1, 4096, s2));
  EXPECT_EQ(sim.live_segments(), 2u);
  ASSERT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(sim.live_segments(), 0u);
  EXPECT_EQ(Reserved(), 0);
}

TEST_F(Front, MemoryThatIsShortTakesIt) {
  sim.set_total(2 * kMiB);
  a().ExpectThreads(0);
  PutBy(0, GetBy(0, 4096, s1));
  EXPECT_NE(GetBy(1, 4096, s2), nullptr) << "the only segment was in the way";
  EXPECT_EQ(sim.live_segments(), 1u);
}

TEST_F(Front, BeforeMemoryIsTakenFromTheDeviceTheFrontIsAsked) {
  a().ExpectThreads(0);
  std::vector<char*> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(GetBy(0, 64 * kKiB, s1));
  ASSERT_EQ(Segments(), 1);
  PutBy(0, blocks[0]);
  EXPECT_EQ(GetBy(1, 64 * kKiB, s1), blocks[0]);
  EXPECT_EQ(Segments(), 1);
}

TEST_F(Front, CapturesTakeFromTheirPool) {
  char* const block = Parked(s1);
  BeginCapture(s1);
  a().ExpectThreads(0);
  actors.Do(0, [&] {
    SimDriver::SetCurrent(s1);
    char* const captured = Get(4096, s1);
    EXPECT_NE(captured, block);
    EXPECT_EQ(PoolOf(captured), kP);
    Put(captured);
    EXPECT_EQ(Get(4096, s1), captured);
    Put(captured);
  });
  EndCapture();
  SimDriver::SetCurrent(nullptr);
  EXPECT_EQ(a().ReleasePool(0, kP).code(), 0);
  EXPECT_EQ(GetBy(1, 4096, s1), block);
}

TEST_F(Front, AScopeTakesFromItsPool) {
  char* const block = Parked(s1);
  ASSERT_EQ(a().BeginAllocateToPool(0, kP, OnStream(s1)).code(), 0);
  a().ExpectThreads(0);
  char* const mine = GetBy(0, 4096, s1);
  EXPECT_NE(mine, block);
  EXPECT_EQ(PoolOf(mine), kP);
  ASSERT_EQ(a().EndAllocateToPool(0, kP).code(), 0);
  EXPECT_EQ(a().ReleasePool(0, kP).code(), 0);
}

TEST_F(Front, BlocksThatOthersUseWait) {
  char* const block = Parked(s1);
  EXPECT_EQ(GetBy(0, 4096, s1), block);
  EXPECT_EQ(a().RecordStream(block, s2).code(), 0);
  sim.Submit(s2);
  PutBy(0, block);
  EXPECT_EQ(Stats().active.all.current, 3);
  EXPECT_NE(GetBy(0, 4096, s1), block);
  sim.Advance(s2);
  EXPECT_EQ(GetBy(0, 4096, s1), block);
}

TEST_F(Front, AUseOfWhatIsFreedIsNone) {
  char* const block = Parked(s1);
  EXPECT_EQ(a().RecordStream(block, s2).code(), 0);
  EXPECT_EQ(GetBy(0, 4096, s1), block);
  PutBy(0, block);
  EXPECT_EQ(Active(), 2);
}

TEST_F(Front, TheHistoryHasEachEvent) {
  char* const block = Parked(s1);
  a().RecordHistory(nullptr, 100);
  a().ExpectThreads(0);
  EXPECT_EQ(GetBy(1, 4096, s1), block);
  PutBy(0, block);
  EXPECT_EQ(GetBy(0, 4096, s1), block);
  std::vector<TraceAction> actions;
  const MemorySnapshot snapshot = a().Snapshot();
  for (const TraceEntry& entry : snapshot.device_traces.at(0)) actions.push_back(entry.action);
  EXPECT_THAT(actions,
              ::testing::ElementsAre(TraceAction::kAlloc, TraceAction::kFreeRequested, TraceAction::kFreeCompleted,
                                     TraceAction::kAlloc, TraceAction::kSnapshot));
}

TEST_F(Front, ADeviceThatIsResetForgetsIt) {
  char* const block = Parked(s1);
  a().ForgetDevice(0);
  EXPECT_EQ(sim.live_segments(), 0u);
  actors.Do(0, [&] { EXPECT_EQ(a().Free(block).code(), 107000); });
  a().ExpectThreads(0);
  EXPECT_NE(GetBy(0, 4096, s1), nullptr);
  EXPECT_EQ(Stats().allocation.all.current, 1);
}

TEST_F(Front, NewSettingsFindNothingOfTheOldOnes) {
  a().ExpectThreads(0);
  char* const block = GetBy(0, 5000, s1);
  PutBy(0, block);
  config.roundup_power2_divisions.assign(16, 2);
  ASSERT_EQ(a().SetConfig(config).code(), 0);
  a().ExpectThreads(0);
  EXPECT_EQ(a().SizeOf(GetBy(0, 5000, s1)), 6144u);
}

// The same program by threads that take turns, and by one thread at an allocator without fronts: same figures.
struct FrontStats : DeviceTest {};

TEST_F(FrontStats, AreThoseOfOneCache) {
  SimDriver other_sim(kGiB);
  DeviceAllocator other(other_sim, config);
  Actors actors(3);
  std::mt19937 random(1);
  struct Held {
    void* here;
    void* there;
  };
  std::vector<Held> held;
  int64_t looks = 0;
  for (int i = 0; i < ::reprise::testing::Loops(6000, 2000); ++i) {
    const int who = static_cast<int>(random() % 3);
    if (i % 500 == 0) a().ExpectThreads(0);
    // More and less is held in turn, so that there are peaks to miss.
    const size_t most = 4 + (i / 100) % 5 * 4;
    if (held.size() < most && random() % 2 == 0) {
      void* const stream = SimDriver::S(1 + random() % 2);
      const uint64_t bytes = random() % 16 == 0 ? 2 * kMiB : 100 + 500 * (random() % 3);
      Held got{nullptr, other.Allocate(0, bytes, stream).value()};
      actors.Do(who, [&] { got.here = Get(bytes, stream); });
      held.push_back(got);
    } else if (!held.empty()) {
      const size_t which = random() % held.size();
      actors.Do(who, [&] { Put(held[which].here); });
      ASSERT_EQ(other.Free(held[which].there).code(), 0);
      held.erase(held.begin() + static_cast<ptrdiff_t>(which));
    }
    if (random() % 64 != 0) continue;
    ++looks;
    std::map<std::string, int64_t> mine, theirs;
    for (const auto& [name, value] : Stats().Flatten()) mine[name] = value;
    for (const auto& [name, value] : other.Stats(0).Flatten()) theirs[name] = value;
    for (const auto& [name, value] : theirs) {
      // How segments are cut may differ.
      if (name.starts_with("allocat") || name.starts_with("active") || name.starts_with("requested")) {
        ASSERT_EQ(mine[name], value) << name << " after " << i << " steps";
      }
    }
    if (random() % 8 == 0) a().ResetPeakStats(0), other.ResetPeakStats(0);
    if (random() % 8 == 0) a().ResetAccumulatedStats(0), other.ResetAccumulatedStats(0);
  }
  EXPECT_GT(looks, 10);
  for (const Held& each : held) {
    Put(each.here);
    ASSERT_EQ(other.Free(each.there).code(), 0);
  }
}

// Threads that never have more than one block at a time, one after the other.
TEST_F(FrontStats, APeakIsWhatWasHeldAtATime) {
  Actors actors(3);
  a().ExpectThreads(0);
  for (int i = 0; i < 30; ++i) {
    actors.Do(i % 3, [&] { Put(Get(4096, s1)); });
  }
  EXPECT_EQ(Stats().allocation.all.peak, 1);
  EXPECT_EQ(Stats().allocated_bytes.all.peak, 4096);
  EXPECT_EQ(Stats().requested_bytes.small_pool.peak, 4096);
  EXPECT_EQ(Stats().allocation.all.allocated, 30);
  EXPECT_EQ(Stats().allocation.all.freed, 30);
}

}  // namespace
}  // namespace reprise::memory::testing
