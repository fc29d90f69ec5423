// SPDX-License-Identifier: Apache-2.0
//
// Handles: a stale, foreign or invented one is never taken for a live one, also while other threads make new ones.
#include "base/handle_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace reprise {
namespace {

struct Thing {
  void* handle = nullptr;
  int value = 0;
};
using Table = HandleTable<Thing, HandleKind::kEvent>;

uint64_t Slot(const void* handle) { return HandleBits(handle) & 0xFFFFFFFF; }
uint64_t Generation(const void* handle) { return HandleBits(handle) >> 32 & 0xFFFFFF; }
void* FromBits(uint64_t bits) { return reinterpret_cast<void*>(bits); }

TEST(HandleTable, FindsWhatWasInserted) {
  auto table = std::make_unique<Table>();
  Thing thing;
  thing.handle = table->Insert(&thing);
  EXPECT_EQ(table->Find(thing.handle), &thing);
  EXPECT_EQ(table->live(), 1u);
  EXPECT_EQ(HandleKindBits(thing.handle), static_cast<uint8_t>(HandleKind::kEvent));
  EXPECT_EQ(table->Erase(thing.handle), &thing);
  EXPECT_EQ(table->Find(thing.handle), nullptr);
  EXPECT_EQ(table->live(), 0u);
}

TEST(HandleTable, EraseTwiceIsRefused) {
  auto table = std::make_unique<Table>();
  Thing first, second;
  void* const stale = table->Insert(&first);
  EXPECT_EQ(table->Erase(stale), &first);
  EXPECT_EQ(table->Erase(stale), nullptr);
  void* const fresh = table->Insert(&second);
  EXPECT_EQ(table->Erase(stale), nullptr) << "the old handle erased the slot's new object";
  EXPECT_EQ(table->Find(fresh), &second);
}

TEST(HandleTable, ReusedSlotGetsANewGeneration) {
  auto table = std::make_unique<Table>();
  Thing thing;
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    void* const handle = table->Insert(&thing);
    EXPECT_EQ(Slot(handle), 0u) << "the free slot was not reused";
    EXPECT_TRUE(seen.insert(Generation(handle)).second) << "generation " << Generation(handle) << " came twice";
    for (const uint64_t old : seen) {
      const bool is_live = old == Generation(handle);
      const uint64_t bits = HandleBits(handle);
      EXPECT_EQ(table->Find(FromBits((bits & ~(uint64_t{0xFFFFFF} << 32)) | old << 32)) != nullptr, is_live);
      if (seen.size() > 16) break;  // all of them would be quadratic
    }
    table->Erase(handle);
  }
}

TEST(HandleTable, ClassifiesBadHandles) {
  auto table = std::make_unique<Table>();
  auto others = std::make_unique<HandleTable<Thing, HandleKind::kStream>>();
  Thing thing, other;
  int local = 0;
  void* const handle = table->Insert(&thing);
  void* const foreign_kind = others->Insert(&other);
  EXPECT_EQ(table->Classify(nullptr), HandleState::kNull);
  EXPECT_EQ(table->Classify(handle), HandleState::kLive);
  EXPECT_EQ(table->Classify(foreign_kind), HandleState::kWrongKind);
  for (void* wild : {static_cast<void*>(&local), FromBits(1), FromBits(0xdeadbeefdeadbeef), FromBits(UINT64_MAX)}) {
    EXPECT_EQ(table->Classify(wild), HandleState::kForeign) << wild;
    EXPECT_EQ(table->Find(wild), nullptr);
    EXPECT_EQ(table->Erase(wild), nullptr);
  }
  table->Erase(handle);
  EXPECT_EQ(table->Classify(handle), HandleState::kDestroyed);
}

TEST(HandleTable, InventedHandlesOfTheRightKindAreNotFound) {
  auto table = std::make_unique<Table>();
  Thing thing;
  void* const handle = table->Insert(&thing);
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t bits = (uint64_t{static_cast<uint8_t>(HandleKind::kEvent)} << 56) | random() >> 8;
    if (bits == HandleBits(handle)) continue;
    EXPECT_EQ(table->Find(FromBits(bits)), nullptr);
  }
}

TEST(HandleTable, HoldsManyAndVisitsEachOnce) {
  auto table = std::make_unique<Table>();
  std::vector<Thing> things(5000);
  for (Thing& thing : things) thing.handle = table->Insert(&thing);
  for (size_t i = 0; i < things.size(); i += 3) table->Erase(things[i].handle);
  table->ForEach([](Thing* thing) { ++thing->value; });
  for (size_t i = 0; i < things.size(); ++i) {
    EXPECT_EQ(things[i].value, i % 3 == 0 ? 0 : 1);
    EXPECT_EQ(table->Find(things[i].handle), i % 3 == 0 ? nullptr : &things[i]);
  }
}

// Each thread looks up its own live handles and stale ones of everybody; only the former may be found.
TEST(HandleTable, ConcurrentInsertFindErase) {
  auto table = std::make_unique<Table>();
  constexpr int kThreads = 4;
  constexpr int kRounds = 20'000;
  std::atomic<void*> stale[kThreads] = {};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<Thing> things(64);
      for (int i = 0; i < kRounds; ++i) {
        Thing& thing = things[random() % things.size()];
        if (thing.handle == nullptr) {
          thing.handle = table->Insert(&thing);
        } else if (table->Find(thing.handle) != &thing) {
          ++wrong;
        } else if (random() % 2 == 0) {
          void* const handle = thing.handle;
          if (table->Erase(handle) != &thing) ++wrong;
          if (table->Find(handle) != nullptr) ++wrong;
          thing.handle = nullptr;
          stale[t].store(handle);
        }
        if (table->Find(stale[random() % kThreads].load()) != nullptr) ++wrong;
      }
      for (Thing& thing : things) {
        if (thing.handle != nullptr && table->Erase(thing.handle) != &thing) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(table->live(), 0u);
}

TEST(HandleTable, EveryKindHasAName) {
  std::set<std::string> names;
  for (int kind = 0; kind < 256; ++kind) {
    if (const char* name = HandleKindName(static_cast<uint8_t>(kind))) {
      EXPECT_TRUE(names.insert(name).second) << name << " names two kinds";
    }
  }
  EXPECT_NE(HandleKindName(static_cast<uint8_t>(HandleKind::kDataBuffer)), nullptr);
  EXPECT_NE(DescribeBadHandle(HandleState::kDestroyed, FromBits(0x52ull << 56), "stream").find("destroyed"),
            std::string::npos);
}

}  // namespace
}  // namespace reprise
