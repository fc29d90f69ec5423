// SPDX-License-Identifier: Apache-2.0
//
// Many threads at one allocator of device memory while another captures: nobody gets what somebody else holds, nothing
// of a graph is lent to eager work, and the counts come out even. For ThreadSanitizer above all.
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "../unit/scale.h"
#include "device_fixture.h"

namespace reprise::memory::testing {
namespace {

struct Threads : DeviceTest {
  /// Allocates, writes, lends to other streams, frees, until told to stop; at least `rounds` times.
  void Work(int self, int rounds, const std::atomic<bool>& stop) {
    void* const stream = SimDriver::S(static_cast<uintptr_t>(10 + self));
    SimDriver::SetCurrent(stream);
    std::mt19937 random(static_cast<uint32_t>(self));
    struct Held {
      uint32_t* block;
      uint64_t words;
    };
    std::vector<Held> held;
    for (int i = 0; i < rounds || !stop.load(std::memory_order_relaxed); ++i) {
      if (held.size() < 16 && random() % 2 == 0) {
        const uint64_t bytes = 4 + random() % (random() % 8 == 0 ? 2 * kMiB : 8 * kKiB);
        auto got = a().Allocate(0, bytes, stream);
        if (!got.ok()) continue;
        auto* block = static_cast<uint32_t*>(*got);
        const uint64_t words = std::min<uint64_t>(bytes / 4, 64);
        for (uint64_t w = 0; w < words; ++w) block[w] = static_cast<uint32_t>(self);
        held.push_back({block, words});
      } else if (!held.empty()) {
        const size_t which = random() % held.size();
        const Held mine = held[which];
        held.erase(held.begin() + static_cast<ptrdiff_t>(which));
        for (uint64_t w = 0; w < mine.words; ++w) {
          if (mine.block[w] != static_cast<uint32_t>(self)) overwritten.fetch_add(1);
        }
        void* other = SimDriver::S(10 + random() % 10);
        if (random() % 4 == 0 && !a().RecordStream(mine.block, other).ok()) failures.fetch_add(1);
        if (random() % 16 == 0 && !a().EraseStream(mine.block, other).ok()) failures.fetch_add(1);
        if (!a().Free(mine.block).ok()) failures.fetch_add(1);
        if (random() % 8 == 0) sim.Advance(other);
        if (random() % 512 == 0) (void)a().EmptyCache();
        if (random() % 512 == 0) (void)a().Stats(0);
        if (random() % 1024 == 0) (void)a().Snapshot();
      }
    }
    for (const Held& mine : held) {
      if (!a().Free(mine.block).ok()) failures.fetch_add(1);
    }
  }

  std::atomic<int> overwritten{0}, failures{0};
};

TEST_F(Threads, TenWorkWhileOneCaptures) {
  config.release_lock_on_malloc = true;
  a().RecordHistory(nullptr, 1000);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  const int rounds = ::reprise::testing::Loops(4000, 400);
  for (int i = 0; i < 10; ++i) threads.emplace_back([&, i] { Work(i, rounds, stop); });
  for (uint64_t round = 1; round <= static_cast<uint64_t>(::reprise::testing::Loops(40, 10)); ++round) {
    const PoolId pool{round, 0};
    BeginCapture(s1, pool, round);
    std::vector<char*> blocks;
    for (int i = 0; i < 20; ++i) blocks.push_back(Get(512 + i * 100, s1));
    sim.BeginCapture(s2, round);
    EXPECT_EQ(a().RecordStream(blocks[0], s2).code(), 0);
    for (int i = 0; i < 10; ++i) Put(blocks[i]);
    EXPECT_EQ(PoolOf(blocks[15]), pool);
    EndCapture(pool, round);
    SimDriver::SetCurrent(nullptr);
    for (int i = 10; i < 20; ++i) Put(blocks[i]);
    if (round % 2 == 0) {
      EXPECT_EQ(a().EmptyCache().code(), 0);
      EXPECT_FALSE(a().Snapshot(pool, false).segments.empty());
    }
    EXPECT_EQ(a().ReleasePool(0, pool).code(), 0);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(overwritten, 0);
  EXPECT_EQ(failures, 0);
  // With nobody else about, two rounds reclaim everything.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(a().EmptyCache().code(), 0);
  for (const auto& [name, value] : Stats().Flatten()) {
    if (name.ends_with(".current")) {
      EXPECT_EQ(value, 0) << name;
    }
  }
}

// As above without captures and history, which close the front.
TEST_F(Threads, TenWorkInFront) {
  std::atomic<int64_t> allocated{0};
  std::vector<std::thread> threads;
  a().ExpectThreads(0);
  for (int i = 0; i < 10; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(static_cast<uint32_t>(i));
      std::vector<uint32_t*> held;
      for (int round = 0; round < ::reprise::testing::Loops(8000, 1000); ++round) {
        if (held.size() < 4 && random() % 2 == 0) {
          auto got = a().Allocate(0, 512 << random() % 3, SimDriver::S(10 + random() % 2));
          if (!got.ok()) continue;
          held.push_back(static_cast<uint32_t*>(*got));
          *held.back() = static_cast<uint32_t>(i);
          allocated.fetch_add(1, std::memory_order_relaxed);
        } else if (!held.empty()) {
          if (*held.back() != static_cast<uint32_t>(i)) overwritten.fetch_add(1);
          if (!a().Free(held.back()).ok()) failures.fetch_add(1);
          held.pop_back();
        }
        if (random() % 256 == 0) (void)a().Stats(0);
        if (random() % 1024 == 0) (void)a().EmptyCache();
        if (random() % 1024 == 0) (void)a().Snapshot();
        if (random() % 128 == 0) a().ExpectThreads(0);
        if (i == 0 && random() % 64 == 0) (void)a().SetConfig(config);
      }
      for (uint32_t* block : held) {
        if (!a().Free(block).ok()) failures.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(overwritten, 0);
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(Stats().allocation.all.allocated, allocated);
  EXPECT_EQ(Stats().allocation.all.current, 0);
  EXPECT_LE(Stats().allocation.all.peak, 40);
  EXPECT_EQ(a().EmptyCache().code(), 0);
  EXPECT_EQ(Reserved(), 0);
}

TEST_F(Threads, OneFreesWhatAnotherTook) {
  constexpr int kPairs = 4;
  a().ExpectThreads(0);  // made before there are threads
  std::vector<std::thread> threads;
  std::atomic<char*> slots[kPairs] = {};
  std::atomic<bool> gave_up{false};
  const int rounds = ::reprise::testing::Loops(5000, 1000);
  for (int pair = 0; pair < kPairs; ++pair) {
    threads.emplace_back([&, pair] {
      void* const stream = SimDriver::S(static_cast<uintptr_t>(20 + pair));
      for (int i = 0; i < rounds; ++i) {
        auto got = a().Allocate(0, 512 << (i % 8), stream);
        if (!got.ok()) {
          failures.fetch_add(1);
          gave_up = true;
          return;
        }
        auto* block = static_cast<char*>(*got);
        for (char* empty = nullptr; !slots[pair].compare_exchange_weak(empty, block); empty = nullptr) {
          if (gave_up) return;
          std::this_thread::yield();
        }
      }
    });
    threads.emplace_back([&, pair] {
      for (int i = 0; i < rounds; ++i) {
        char* block = nullptr;
        while ((block = slots[pair].exchange(nullptr)) == nullptr) {
          if (gave_up) return;
          std::this_thread::yield();
        }
        if (a().SizeOf(block) < 512) failures.fetch_add(1);
        if (!a().Free(block).ok()) failures.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(Stats().allocation.all.current, 0);
  EXPECT_EQ(Stats().allocation.all.allocated, int64_t{kPairs} * rounds);
}

}  // namespace
}  // namespace reprise::memory::testing
