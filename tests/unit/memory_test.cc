// SPDX-License-Identifier: Apache-2.0
//
// The memory registry against a naive model: a list of ranges that is searched from the beginning.
// REPRISE_MEMORY is 64M here.
#include "device/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "device/parked_memory.h"
#include "runtime/reclaim.h"
#include "scale.h"

namespace reprise::device {
namespace {

using testing::Loops;

constexpr uint64_t kMega = 1 << 20;

struct NaiveRange {
  uintptr_t begin;
  uint64_t bytes;
};

// The rules of CheckRange: inside of one range, outside of all, or an error.
enum class Verdict { kInside, kOutside, kError };
Verdict Judge(const std::vector<NaiveRange>& ranges, uintptr_t begin, uint64_t bytes) {
  if (begin + bytes < begin) return Verdict::kError;
  for (const NaiveRange& range : ranges) {
    const bool starts_inside = begin >= range.begin && begin - range.begin < range.bytes;
    if (starts_inside) return begin + bytes <= range.begin + range.bytes ? Verdict::kInside : Verdict::kError;
  }
  for (const NaiveRange& range : ranges) {
    if (range.begin >= begin && range.begin < begin + bytes) return Verdict::kError;
  }
  return Verdict::kOutside;
}

TEST(MemoryRegistry, ClassifiesLikeANaiveModel) {
  MemoryRegistry registry;
  // Addresses only; nothing is ever read or written there.
  constexpr uintptr_t kBase = 0x100000;
  constexpr uint64_t kSpan = 4096;
  std::mt19937 random(11);
  std::vector<NaiveRange> ranges;
  for (int step = 0; step < Loops(20'000, 4'000); ++step) {
    const uintptr_t begin = kBase + random() % kSpan;
    const uint64_t bytes = 1 + random() % 64;
    auto* const pointer = reinterpret_cast<void*>(begin);
    switch (random() % 4) {
      case 0: {
        bool overlaps = false;
        for (const NaiveRange& range : ranges) {
          overlaps |= begin < range.begin + range.bytes && range.begin < begin + bytes;
        }
        const Status status = registry.Register(0, pointer, bytes, {.mapped = true, .pinned = false});
        ASSERT_EQ(status.code(), overlaps ? 507910 : 0) << "step " << step;
        if (!overlaps) ranges.push_back({begin, bytes});
        break;
      }
      case 1: {
        const size_t removed = std::erase_if(ranges, [&](const NaiveRange& range) { return range.begin == begin; });
        ASSERT_EQ(registry.Unregister(pointer).code(), removed != 0 ? 0 : 507911) << "step " << step;
        break;
      }
      default: {
        auto checked = registry.CheckRange(pointer, bytes, "p");
        const Verdict verdict = Judge(ranges, begin, bytes);
        ASSERT_EQ(checked.ok(), verdict != Verdict::kError) << "step " << step;
        if (checked.ok()) {
          ASSERT_EQ(checked->kind == MemoryKind::kPageable, verdict == Verdict::kOutside) << "step " << step;
        } else {
          ASSERT_EQ(std::move(checked).status().code(), 107000);
        }
        ASSERT_EQ(registry.Find(pointer).has_value(), Judge(ranges, begin, 1) == Verdict::kInside) << "step " << step;
        ASSERT_FALSE(registry.Explain(pointer).empty());
      }
    }
  }
  for (const NaiveRange& range : ranges) ASSERT_TRUE(registry.Unregister(reinterpret_cast<void*>(range.begin)).ok());
}

TEST(MemoryRegistry, RangesThatWrapAroundAreRefused) {
  MemoryRegistry registry;
  for (const uintptr_t begin : {uintptr_t{1}, uintptr_t{4096}, UINTPTR_MAX - 100}) {
    auto* const pointer = reinterpret_cast<void*>(begin);
    EXPECT_FALSE(registry.CheckRange(pointer, UINT64_MAX, "p").ok());
    EXPECT_FALSE(registry.Register(0, pointer, UINT64_MAX, {.mapped = true, .pinned = false}).ok());
  }
  EXPECT_TRUE(registry.CheckRange(reinterpret_cast<void*>(UINTPTR_MAX - 100), 50, "p").ok());
}

TEST(MemoryRegistry, AllocationsAreAlignedCountedAndFreedOnce) {
  MemoryRegistry registry;
  std::mt19937 random(5);
  struct Block {
    void* at;
    uint64_t bytes;
  };
  std::vector<Block> blocks;
  uint64_t used = 0, peak = 0;
  for (int i = 0; i < 2000; ++i) {
    if (blocks.empty() || random() % 2 == 0) {
      const uint64_t bytes = random() % 8 == 0 ? random() % (3 * kMega) + 1 : random() % 5000 + 1;
      auto at = registry.AllocateDevice(0, bytes, 4096);
      if (used + bytes > 64 * kMega) {
        ASSERT_EQ(std::move(at).status().code(), 207001);
        continue;
      }
      ASSERT_TRUE(at.ok());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(*at) % kMemoryAlignment, 0u);
      static_cast<char*>(*at)[0] = 1;
      static_cast<char*>(*at)[bytes - 1] = 1;
      blocks.push_back({*at, bytes});
      used += bytes;
      peak = std::max(peak, used);
    } else {
      const size_t pick = random() % blocks.size();
      const Block block = blocks[pick];
      blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(pick));
      EXPECT_EQ(registry.Free(static_cast<char*>(block.at) + 1, MemoryKind::kDevice).code(), 107000)
          << "inside of a block";
      EXPECT_EQ(registry.Free(block.at, MemoryKind::kPinnedHost).code(), 107000) << "memory of another kind";
      ASSERT_TRUE(registry.Free(block.at, MemoryKind::kDevice).ok());
      EXPECT_EQ(registry.Free(block.at, MemoryKind::kDevice).code(), 107000) << "twice";
      used -= block.bytes;
    }
    ASSERT_EQ(registry.used_bytes(0), used);
    ASSERT_EQ(registry.peak_bytes(0), peak);
  }
  EXPECT_EQ(registry.FreeAllOfDevice(0), blocks.size());
  EXPECT_EQ(registry.used_bytes(0), 0u);
}

TEST(MemoryRegistry, CapacityIsPerDeviceAndExact) {
  MemoryRegistry registry;
  ASSERT_EQ(MemoryRegistry::total_bytes(), 64 * kMega);
  auto all = registry.AllocateDevice(0, 64 * kMega, 4096);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(registry.AllocateDevice(0, 1, 4096).status().code(), 207001);
  auto other = registry.AllocateDevice(1, kMega, 4096);
  EXPECT_TRUE(other.ok()) << "another device has its own memory";
  for (const uint64_t bytes : {64 * kMega + 1, uint64_t{1} << 62, UINT64_MAX}) {
    EXPECT_EQ(registry.AllocateDevice(2, bytes, 4096).status().code(), 207001) << bytes;
    EXPECT_EQ(registry.used_bytes(2), 0u);
  }
  EXPECT_EQ(registry.AllocateHost(0, UINT64_MAX).status().code(), 207001);
  EXPECT_EQ(registry.AllocateHost(0, uint64_t{1} << 62).status().code(), 207001);
  ASSERT_TRUE(registry.Free(*all, MemoryKind::kDevice).ok());
  ASSERT_TRUE(registry.Free(*other, MemoryKind::kDevice).ok());
}

TEST(MemoryRegistry, ManyThreads) {
  MemoryRegistry registry;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < Loops(3000, 500); ++i) {
        const uint64_t bytes = random() % 4000 + 1;
        auto at = registry.AllocateDevice(static_cast<int>(t % 2), bytes, 4096);
        ASSERT_TRUE(at.ok());
        auto range = registry.CheckRange(static_cast<char*>(*at) + bytes / 2, bytes - bytes / 2, "p");
        ASSERT_TRUE(range.ok());
        EXPECT_EQ(range->begin, reinterpret_cast<uintptr_t>(*at));
        ASSERT_TRUE(registry.Free(*at, MemoryKind::kDevice).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(registry.used_bytes(0) + registry.used_bytes(1), 0u);
}

// One stream, which the test says has work or none.
std::atomic<bool> g_busy = false;
const ParkedMemory::Streams kOneStream = {.any = [] { return g_busy.load(); },
                                          .busy =
                                              [](std::vector<Ticket>& tickets) {
                                                if (g_busy) tickets.push_back({nullptr, 1});
                                              },
                                          .passed = [](const Ticket&) { return !g_busy; },
                                          .visit = [](void*) { FAIL() << "nothing waits for it"; }};

MemoryRange Charged(uint64_t bytes) {
  return {.begin = kMega, .bytes = bytes, .kind = MemoryKind::kDevice, .origin = MemoryOrigin::kMapped};
}

// The work ends between the refusal and the wait: the room is there, and nothing is left to wait for.
TEST(ParkedMemory, WhatComesBackBehindARefusalIsTaken) {
  ParkedMemory::Get().SetStreams(kOneStream);
  g_busy = true;
  ParkedMemory::Get().Park(Charged(kMega), [](const MemoryRange&) {});
  int tries = 0;
  StatusOr<int> result = runtime::OrReclaim(0, kMega, [&]() -> StatusOr<int> {
    g_busy = false;
    if (tries++ == 0) return Error(207001, "no room");
    return 0;
  });
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(tries, 2);
  EXPECT_EQ(ParkedMemory::Get().bytes(0), 0u);
}

// The same, and another thread is just giving it back.
TEST(ParkedMemory, WhatOtherThreadsReleaseIsAwaited) {
  ParkedMemory::Get().SetStreams(kOneStream);
  static std::atomic<int> step;
  step = 0;
  g_busy = true;
  ParkedMemory::Get().Park(Charged(kMega), [](const MemoryRange&) {
    step = 1;
    step.notify_all();
    step.wait(1);
  });
  g_busy = false;
  std::thread other([] { ParkedMemory::Get().Sweep(); });
  step.wait(0);
  int tries = 0;
  StatusOr<int> result = runtime::OrReclaim(0, kMega, [&]() -> StatusOr<int> {
    if (++tries == 3) {
      step = 2;
      step.notify_all();
      other.join();
    }
    if (tries <= 3) return Error(207001, "no room");
    return 0;
  });
  EXPECT_TRUE(result.ok());
  EXPECT_EQ(tries, 4);
}

// What would not fit into an empty device, or into a pool that is full, does not wait for what is parked.
TEST(ParkedMemory, WhatHasNoRoomAnywayIsRefusedAtOnce) {
  ParkedMemory::Get().SetStreams(kOneStream);
  g_busy = true;
  ParkedMemory::Get().Park(Charged(kMega), [](const MemoryRange&) {});
  int tries = 0;
  const auto refuse = [&]() -> StatusOr<int> {
    ++tries;
    return Error(207001, "no room");
  };
  EXPECT_EQ(runtime::OrReclaim(0, MemoryRegistry::total_bytes() + 1, refuse).status().code(), 207001);
  EXPECT_EQ(runtime::OrReclaim(0, kMega, refuse, [] { return false; }).status().code(), 207001);
  EXPECT_EQ(tries, 2);
  g_busy = false;
  ParkedMemory::Get().Sweep();
  EXPECT_EQ(ParkedMemory::Get().bytes(0), 0u);
}

TEST(ParkedMemory, ARefusalStandsWhenNothingComesBack) {
  int tries = 0;
  StatusOr<int> result = runtime::OrReclaim(0, kMega, [&]() -> StatusOr<int> {
    ++tries;
    return Error(207001, "no room");
  });
  EXPECT_EQ(std::move(result).status().code(), 207001);
  EXPECT_EQ(tries, 1);
}

TEST(CopyUntrusted, SurvivesWildAddresses) {
  constexpr size_t kPage = 4096;
  void* const pages = mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  auto* const bytes = static_cast<char*>(pages);
  ASSERT_EQ(munmap(bytes + kPage, kPage), 0);  // a hole in the middle
  std::vector<char> local(3 * kPage, 'x');
  EXPECT_TRUE(CopyUntrusted(local.data(), bytes, kPage));
  EXPECT_EQ(local[0], 0);
  EXPECT_TRUE(CopyUntrusted(bytes + 2 * kPage, local.data() + kPage, kPage));
  EXPECT_EQ(bytes[2 * kPage], 'x');
  EXPECT_FALSE(CopyUntrusted(local.data(), bytes, 3 * kPage)) << "reads through the hole";
  EXPECT_FALSE(CopyUntrusted(bytes + kPage - 8, local.data(), 16)) << "writes into the hole";
  for (const uintptr_t wild : {uintptr_t{1}, uintptr_t{0xdeadbeef}, uintptr_t{0xdeadbeefdeadbeef}, UINTPTR_MAX - 7}) {
    EXPECT_FALSE(CopyUntrusted(local.data(), reinterpret_cast<void*>(wild), 8));
    EXPECT_FALSE(CopyUntrusted(reinterpret_cast<void*>(wild), local.data(), 8));
  }
  munmap(pages, kPage);
  munmap(bytes + 2 * kPage, kPage);
}

}  // namespace
}  // namespace reprise::device
