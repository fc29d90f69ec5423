// SPDX-License-Identifier: Apache-2.0
//
// Many threads on one allocator of pinned memory: each block belongs to one of them at a time, whatever captures, ends,
// releases and empties meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "../unit/scale.h"
#include "memory/host_allocator.h"
#include "sim_driver.h"

namespace reprise::memory {
namespace {

using testing::SimDriver;

constexpr int kThreads = 10;

// A block that nobody else may have: all of it carries the number of its owner.
bool Holds(const unsigned char* block, size_t bytes, unsigned char tag) {
  for (size_t i = 0; i < bytes; ++i) {
    if (block[i] != tag) return false;
  }
  return true;
}

void AllAtOnce(const Config& config) {
  SimDriver driver;
  std::atomic<bool> wrong{false};
  std::atomic<bool> stop{false};
  const int rounds = ::reprise::testing::Loops(1500, 150);
  {
    HostAllocator allocator(driver, config);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(static_cast<uint64_t>(t));
        void* const own = SimDriver::S(static_cast<uintptr_t>(10 + t));
        SimDriver::SetCurrent(own);
        const auto tag = static_cast<unsigned char>(t + 1);
        std::vector<std::pair<unsigned char*, size_t>> blocks;
        for (int i = 0; i < rounds; ++i) {
          const size_t bytes = 1 + random() % 600;
          StatusOr<void*> taken = allocator.Allocate(bytes);
          if (!taken.ok()) {
            wrong = true;
            return;
          }
          auto* block = static_cast<unsigned char*>(*taken);
          std::memset(block, tag, bytes);
          blocks.emplace_back(block, bytes);
          if (random() % 3 == 0) {
            void* const stream = random() % 2 == 0 ? own : SimDriver::S(10 + random() % kThreads);
            driver.Submit(stream);
            StatusOr<bool> ours = allocator.RecordUse(block, stream);
            wrong = wrong || !ours.ok() || !*ours;
          }
          while (blocks.size() > random() % 6) {
            const size_t k = random() % blocks.size();
            wrong = wrong || !Holds(blocks[k].first, blocks[k].second, tag) || !allocator.Owns(blocks[k].first) ||
                    !allocator.Free(blocks[k].first).ok();
            blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(k));
          }
          if (random() % 8 == 0) driver.Advance(own);
          if (random() % 64 == 0) wrong = wrong || !allocator.EmptyCache().ok();
          if (random() % 64 == 0) wrong = wrong || allocator.Stats().active_requests.current < 0;
        }
        for (const auto& [block, bytes] : blocks) {
          wrong = wrong || !Holds(block, bytes, tag) || !allocator.Free(block).ok();
        }
      });
    }
    // Two that capture, each into its own pool; the graphs end some time after they were released.
    std::vector<std::thread> capturers;
    for (uint64_t c = 1; c <= 2; ++c) {
      capturers.emplace_back([&, c] {
        void* const stream = SimDriver::S(c);
        SimDriver::SetCurrent(stream);
        const PoolId pool = {c, 0};
        std::vector<std::pair<std::shared_ptr<std::atomic<bool>>, unsigned char*>> running;
        for (uint64_t round = 1; !stop || round < 5; ++round) {
          const uint64_t id = c + 2 * round;
          wrong = wrong || !allocator
                                .BeginAllocateToPool(pool,
                                                     [&driver, id](void* s) {
                                                       const CaptureState state = driver.CaptureOf(s);
                                                       return state.is_open && state.id == id;
                                                     })
                                .ok();
          driver.BeginCapture(stream, id);
          auto* block = static_cast<unsigned char*>(*allocator.Allocate(300));
          std::memset(block, 100 + static_cast<int>(c), 300);
          wrong = wrong || !allocator.RecordUse(block, stream).ok() || !allocator.Free(block).ok();
          driver.EndCapture(id);
          wrong = wrong || !allocator.EndAllocateToPool(pool).ok();
          auto idle = std::make_shared<std::atomic<bool>>(false);
          wrong = wrong || !allocator.ReleasePool(pool, [idle] { return idle->load(); }).ok();
          running.emplace_back(idle, block);
          if (running.size() > 3) {
            // Replays read the block until the graph has ended.
            for (auto& [graph, used] : running) {
              wrong = wrong || !Holds(used, 300, 100 + static_cast<unsigned char>(c));
            }
            for (auto& [graph, used] : running) *graph = true;
            running.clear();
          }
        }
        for (auto& [graph, used] : running) *graph = true;
      });
    }
    for (std::thread& thread : threads) thread.join();
    stop = true;
    for (std::thread& thread : capturers) thread.join();
    EXPECT_FALSE(wrong);
    SimDriver::SetCurrent(nullptr);
    // Twice: the first time, events are recorded that had to wait for captures.
    for (int i = 0; i < 2; ++i) {
      for (uintptr_t s = 0; s < 10 + kThreads; ++s) driver.Advance(SimDriver::S(s));
      EXPECT_TRUE(allocator.EmptyCache().ok());
    }
    if (config.pinned_use_background_threads) {
      // The thread may hold some of them in its hands.
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (allocator.Stats().active_requests.current != 0 && std::chrono::steady_clock::now() < end) {
        for (uintptr_t s = 0; s < 10 + kThreads; ++s) driver.Advance(SimDriver::S(s));
        std::this_thread::yield();
      }
      EXPECT_TRUE(allocator.EmptyCache().ok());
    }
    const HostStats stats = allocator.Stats();
    EXPECT_EQ(stats.active_requests.current, 0);
    EXPECT_EQ(stats.active_bytes.current, 0);
    EXPECT_EQ(stats.allocations.current, 0);
    EXPECT_EQ(stats.num_host_alloc - stats.num_host_free, static_cast<int64_t>(driver.live_host()));
    EXPECT_GE(stats.active_requests.allocated, int64_t{kThreads} * rounds);
  }
  EXPECT_EQ(driver.live_host(), 0u);
  EXPECT_EQ(driver.live_events(), 0u);
  EXPECT_EQ(driver.events_in_captures, 0u);
}

TEST(HostThreads, TenAllocateWhileTwoCapture) { AllAtOnce({}); }

TEST(HostThreads, AndAThreadReclaimsMeanwhile) {
  Config config;
  config.pinned_use_background_threads = true;
  AllAtOnce(config);
}

TEST(HostThreads, AndLargeBlocksGoAtOnce) {
  Config config;
  config.pinned_max_cached_size = 256;
  config.pinned_reserve_segment_size = 64 * kKiB;
  AllAtOnce(config);
}

}  // namespace
}  // namespace reprise::memory
