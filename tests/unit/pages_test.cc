// SPDX-License-Identifier: Apache-2.0
//
// Blocks of large memory: no two overlap, they keep what is in them, and all of it comes back.
#include "base/pages.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "base/gated_mutex.h"
#include "scale.h"

namespace reprise {
namespace {

using testing::kAddressSanitized;
using testing::Loops;

struct Held {
  PageBlock block;
  std::byte mark;
};

// The ends and one byte of each page are enough to see that somebody else writes there.
void Mark(const Held& held) {
  for (size_t i = 0; i < held.block.bytes; i += 4096) held.block.data[i] = held.mark;
  held.block.data[held.block.bytes - 1] = held.mark;
}
bool IsMarked(const Held& held, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 4096) {
    if (held.block.data[i] != held.mark) return false;
  }
  return true;
}

size_t AnySize(std::mt19937& random) {
  switch (random() % 4) {
    case 0: return 1 + random() % kLargeBytes;
    case 1: return kLargeBytes + random() % (kRegionBytes - kLargeBytes);
    case 2: return 1 + random() % (3 * kRegionBytes);
    default: return kLargeBytes << random() % 6;
  }
}

void TakeAndGive(uint32_t seed, int loops) {
  std::mt19937 random(seed);
  std::vector<Held> all;
  for (int i = 0; i < loops; ++i) {
    const size_t at = all.empty() ? 0 : random() % all.size();
    if (all.size() < 12 && random() % 3 != 0) {
      const size_t bytes = AnySize(random);
      all.push_back({TakePages(bytes), static_cast<std::byte>(random())});
      ASSERT_GE(all.back().block.bytes, bytes);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(all.back().block.data) % 16, 0u);
      Mark(all.back());
    } else if (!all.empty() && random() % 2 == 0) {
      ASSERT_TRUE(IsMarked(all[at], all[at].block.bytes));
      GivePages(all[at].block);
      all[at] = all.back();
      all.pop_back();
    } else if (!all.empty()) {
      const size_t before = all[at].block.bytes;
      const size_t bytes = 1 + random() % before;
      all[at].block = TrimPages(all[at].block, bytes);
      ASSERT_LE(all[at].block.bytes, before);
      ASSERT_GE(all[at].block.bytes, bytes);
      ASSERT_TRUE(IsMarked(all[at], bytes));
      Mark(all[at]);
    }
  }
  for (const Held& held : all) {
    ASSERT_TRUE(IsMarked(held, held.block.bytes));
    GivePages(held.block);
  }
}

void ExpectAllBack() {
  const PageUse use = PagesInUse();
  EXPECT_EQ(use.mappings, 0u);
  EXPECT_EQ(use.regions, use.spare_regions);
  EXPECT_LE(use.spare_regions, 2u);
}

TEST(Pages, BlocksAreApartAndComeBack) {
  for (uint32_t seed = 0; seed < 4; ++seed) TakeAndGive(seed, Loops(600, 100));
  ExpectAllBack();
}

TEST(Pages, ManyThreadsTakeAndGive) {
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) threads.emplace_back(TakeAndGive, 10 + i, Loops(300, 60));
  for (std::thread& thread : threads) thread.join();
  ExpectAllBack();
}

TEST(Pages, MoreThanThereIsIsRefused) {
  if (kAddressSanitized) GTEST_SKIP() << "AddressSanitizer ends a program that asks for so much";
  EXPECT_THROW(TakePages(SIZE_MAX / 4), std::bad_alloc);
  EXPECT_THROW(TakePages(SIZE_MAX - 1), std::bad_alloc);
  ExpectAllBack();
}

TEST(Pages, AnArrayKeepsWhatItHasWhileItGrowsAndIsTrimmed) {
  for (const size_t count : {0u, 1u, 16u, 17u, 5000u, 20'000u, 70'000u, 600'000u}) {
    GrowingArray<uint64_t> array;
    for (size_t i = 0; i < count; ++i) {
      array.MakeRoom();
      array.Append(i * 3);
    }
    array.Trim();
    EXPECT_LE(array.memory_bytes(), count * 8 + 4096);
    ASSERT_EQ(array.size(), count);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(array[i], i * 3);
    array.MakeRoom();  // also after a trim
    array.Append(1);
    EXPECT_EQ(array.back(), 1u);
  }
  ExpectAllBack();
}

TEST(Pages, AStandardContainerGivesBackWhatItTook) {
  {
    std::vector<uint32_t, PageAllocator<uint32_t>> numbers;
    for (uint32_t i = 0; i < 1'000'000; ++i) numbers.push_back(i);
    numbers.resize(40'000);
    numbers.shrink_to_fit();
    for (uint32_t i = 0; i < 40'000; ++i) ASSERT_EQ(numbers[i], i);
  }
  ExpectAllBack();
}

TEST(GatedMutex, LongAndShortSectionsExcludeEachOther) {
  GatedMutex mutex;
  uint64_t count = 0;  // guarded by the mutex
  std::atomic<bool> somebody{false};
  const auto inside = [&] {
    EXPECT_FALSE(somebody.exchange(true));
    ++count;
    somebody = false;
  };
  constexpr int kThreads = 4;
  const int loops = Loops(50'000, 5'000);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < loops; ++turn) {
        if (i == 0 || turn % 100 == 0) {
          std::lock_guard lock(mutex);
          inside();
        } else {
          ShortLock lock(mutex);
          inside();
          if (turn % 2 == 0) lock.Unlock();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, static_cast<uint64_t>(kThreads) * static_cast<uint64_t>(loops));
}

}  // namespace
}  // namespace reprise
