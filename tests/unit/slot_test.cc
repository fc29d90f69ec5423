// SPDX-License-Identifier: Apache-2.0
//
// Slots: contents that are replaced while they run.
#include "ir/slot.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "ir/graph.h"
#include "scale.h"

namespace reprise::ir {
namespace {

using testing::Loops;

std::atomic<int> g_alive{0};

// All words are the same, and another value once the content has been destroyed.
constexpr uint64_t kGone = 0xDEADDEADDEADDEAD;
struct Words {
  uint64_t word[8];
};
void DestroyWords(void* payload) noexcept {
  for (uint64_t& word : static_cast<Words*>(payload)->word) word = kGone;
  g_alive.fetch_sub(1, std::memory_order_relaxed);
}
const TaskType kWords = {.kind = TaskKind::kKernel,
                         .name = "WORDS",
                         .run = [](device::RunContext&, void*) { return RunResult::kDone; },
                         .destroy = DestroyWords,
                         .operands = NoOperands};

Words Filled(uint64_t value) {
  g_alive.fetch_add(1, std::memory_order_relaxed);
  Words words;
  for (uint64_t& word : words.word) word = value;
  return words;
}
/// The value that all words have; kGone when they differ.
uint64_t ValueOf(const HeldTask& task) {
  const auto& words = *static_cast<const Words*>(task.payload());
  for (const uint64_t word : words.word) {
    if (word != words.word[0]) return kGone;
  }
  return words.word[0];
}

class Slot : public ::testing::Test {
 protected:
  void SetUp() override {
    g_alive = 0;
    users = new SlotUsers;
    Words words = Filled(0);
    slot = new TaskSlot(HeldTask::TakeOver(MakeTask(kWords, words)), *users);
  }
  void TearDown() override {
    slot->Release();
    users->Release();
    EXPECT_EQ(g_alive, 0);
  }
  void Put(uint64_t value) { slot->Replace(Make(value)); }
  HeldTask* Make(uint64_t value) {
    Words words = Filled(value);
    return slot->Make(MakeTask(kWords, words));
  }
  SlotUsers* users = nullptr;
  TaskSlot* slot = nullptr;
};

TEST_F(Slot, AContentThatNobodyUsesGoesAtOnce) {
  Put(1);
  EXPECT_EQ(g_alive, 1);
  EXPECT_EQ(ValueOf(*slot->Current()), 1u);
}

TEST_F(Slot, AContentLivesUntilItsUsersHaveLeft) {
  users->Enter();
  const HeldTask* first = slot->Current();
  Put(1);
  Put(2);
  users->Enter();
  const HeldTask* third = slot->Current();
  EXPECT_EQ(ValueOf(*first), 0u);
  EXPECT_EQ(ValueOf(*third), 2u);
  EXPECT_EQ(g_alive, 3);
  users->Leave();
  EXPECT_EQ(g_alive, 3) << "one is still there";
  EXPECT_EQ(ValueOf(*first), 0u);
  users->Leave();
  EXPECT_EQ(g_alive, 1);
  EXPECT_EQ(ValueOf(*slot->Current()), 2u);
}

TEST_F(Slot, TheMemoryOfAContentIsUsedAgain) {
  std::set<const HeldTask*> places{slot->Current()};
  for (uint64_t i = 1; i <= 100; ++i) {
    Put(i);
    places.insert(slot->Current());
  }
  EXPECT_EQ(places.size(), 2u);
  // Also when it was replaced in use.
  for (uint64_t i = 1; i <= 100; ++i) {
    const SlotUse use(users);
    Put(i);
    places.insert(slot->Current());
  }
  EXPECT_EQ(places.size(), 2u);
  struct {
    Words words;
    uint64_t more[64];
  } large{Filled(1), {}};
  slot->Replace(slot->Make(MakeTask(kWords, large)));
  EXPECT_EQ(places.count(slot->Current()), 0u) << "it does not fit";
}

// A content that owns nothing but an anchor, as launches of kernels are.
struct CountingAnchor final : Anchor {
  explicit CountingAnchor(std::atomic<int>& ended) : ended_(ended) {}
  void End() noexcept override { ended_.fetch_add(1); }
  std::atomic<int>& ended_;
};
struct Anchored {
  Anchor* anchor;
  uint64_t word[7];
};
const TaskType kAnchored = {.kind = TaskKind::kKernel,
                            .name = "ANCHORED",
                            .run = [](device::RunContext&, void*) { return RunResult::kDone; },
                            .anchor = [](const void* payload) { return static_cast<const Anchored*>(payload)->anchor; },
                            .operands = NoOperands};
uint64_t WordOf(const HeldTask* task) { return static_cast<const Anchored*>(task->payload())->word[6]; }

TEST_F(Slot, AnUpdateInOneTurn) {
  std::atomic<int> ended{0};
  CountingAnchor one(ended), other(ended);
  const auto always = [](const HeldTask&) { return true; };
  const auto update = [&](Anchor& anchor, uint64_t value) {
    Anchored payload{&anchor, {0, 0, 0, 0, 0, 0, value}};
    return slot->TryUpdate(MakeTask(kAnchored, payload), always);
  };
  EXPECT_FALSE(update(one, 1)) << "no memory is there yet";
  Put(1);
  EXPECT_FALSE(update(one, 1)) << "the old content has something to destroy";
  Anchored payload{&one, {}};
  slot->Replace(slot->Make(MakeTask(kAnchored, payload)));
  std::set<const HeldTask*> places{slot->Current()};
  for (uint64_t i = 2; i < 100; ++i) {
    ASSERT_TRUE(update(one, i));
    ASSERT_EQ(WordOf(slot->Current()), i);
    places.insert(slot->Current());
  }
  EXPECT_EQ(places.size(), 2u);
  Anchored misfit{&one, {}};
  EXPECT_FALSE(slot->TryUpdate(MakeTask(kAnchored, misfit), [](const HeldTask&) { return false; }));
  EXPECT_EQ(WordOf(slot->Current()), 99u);
  // In use, or held: the old content stays.
  {
    const SlotUse use(users);
    const HeldTask* used = slot->Current();
    ASSERT_TRUE(update(one, 100));
    EXPECT_EQ(WordOf(used), 99u);
    EXPECT_FALSE(update(one, 101)) << "the memory is not free yet";
  }
  HeldTask* held = slot->Acquire();
  ASSERT_TRUE(update(one, 102));
  EXPECT_EQ(WordOf(held), 100u);
  slot->Drop(held);
  users->Settle();
  // Another anchor: the old one is given up with its content.
  ASSERT_TRUE(update(other, 103));
  users->Settle();
  one.Release();
  EXPECT_EQ(ended, 1) << "no content refers to it any more";
  other.Release();
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(WordOf(slot->Current()), 103u);
  Put(7);
  EXPECT_EQ(ended, 2);
}

TEST_F(Slot, AReaderKeepsAContentByItself) {
  HeldTask* held = slot->Acquire();
  Put(1);
  EXPECT_EQ(g_alive, 2);
  EXPECT_EQ(ValueOf(*held), 0u);
  slot->Drop(held);
  EXPECT_EQ(g_alive, 1);
  EXPECT_EQ(slot->Peek([](const HeldTask& task) { return ValueOf(task); }), 1u);
}

// As an update that a persistent stream stores and runs again and again.
TEST_F(Slot, AContentMayComeBackWhileItIsStillInUse) {
  HeldTask* a = Make(10);
  HeldTask* b = Make(20);
  const auto put = [&](HeldTask* task) {
    task->Retain();
    slot->Replace(task);
  };
  users->Enter();
  for (int i = 0; i < 5; ++i) {
    put(a);
    put(b);
  }
  EXPECT_EQ(ValueOf(*slot->Current()), 20u);
  put(a);
  users->Leave();
  EXPECT_EQ(ValueOf(*slot->Current()), 10u);
  EXPECT_EQ(g_alive, 2);
  slot->Drop(b);
  EXPECT_EQ(g_alive, 1);
  slot->Drop(a);
  EXPECT_EQ(g_alive, 1) << "it is in the slot";
}

TEST_F(Slot, UnderALockNothingOfAUserIsDestroyed) {
  slot->ReplaceUnderLock(Make(1), false);
  EXPECT_EQ(g_alive, 2);
  EXPECT_EQ(ValueOf(*slot->Current()), 1u);
  users->Settle();
  EXPECT_EQ(g_alive, 1);
  slot->ReplaceUnderLock(Make(2), true);
  EXPECT_EQ(g_alive, 1) << "harmless, and nobody is there";
  users->Enter();
  slot->ReplaceUnderLock(Make(3), true);
  slot->ReplaceUnderLock(Make(4), false);
  users->Settle();
  EXPECT_EQ(g_alive, 3) << "somebody is there";
  users->Leave();
  EXPECT_EQ(g_alive, 1);
  slot->ReplaceUnderLock(Make(5), false);
  slot->Replace(Make(6));
  users->Enter();
  users->Leave();
  EXPECT_EQ(g_alive, 1) << "the last one who leaves drops what waits";
}

TEST_F(Slot, ASlotMayGoWhileAContentWaits) {
  users->Enter();
  const HeldTask* first = slot->Current();
  Put(1);
  slot->Retain();
  slot->Release();
  EXPECT_EQ(ValueOf(*first), 0u);
  users->Leave();
}

// Users, updates and readers at the same time, over several slots of one graph.
TEST(Slots, NoRunSeesAMixtureOrWhatIsGone) {
  g_alive = 0;
  {
    constexpr int kSlots = 3;
    Graph graph;
    graph.AddLane(0, 0, kNoNode);
    std::vector<TaskSlot*> slots;
    for (int i = 0; i < kSlots; ++i) {
      Words words = Filled(1);
      slots.push_back(graph.MakeSlot(graph.Add(0, MakeTask(kWords, words))));
    }
    std::atomic<int> wrong{0};
    std::atomic<int> updating{2};
    std::atomic<uint64_t> runs{0};
    const int updates = Loops(60'000, 6'000);
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(t));
        uint64_t seen = 0;
        while (updating.load(std::memory_order_relaxed) != 0 || seen < 1000) {
          const SlotUse use(graph.slot_users());
          for (TaskSlot* slot : slots) {
            const HeldTask* task = slot->Current();
            const uint64_t value = ValueOf(*task);
            if (random() % 16 == 0) std::this_thread::yield();
            if (value == kGone || ValueOf(*task) != value) wrong.fetch_add(1, std::memory_order_relaxed);
          }
          ++seen;
        }
        runs.fetch_add(seen, std::memory_order_relaxed);
      });
    }
    threads.emplace_back([&] {
      while (updating.load(std::memory_order_relaxed) != 0) {
        for (TaskSlot* slot : slots) {
          HeldTask* task = slot->Acquire();
          if (ValueOf(*task) == kGone) wrong.fetch_add(1, std::memory_order_relaxed);
          slot->Drop(task);
          if (slot->Peek([](const HeldTask& current) { return ValueOf(current); }) == kGone) {
            wrong.fetch_add(1, std::memory_order_relaxed);
          }
        }
      }
    });
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(100 + static_cast<unsigned>(t));
        for (int i = 0; i < updates; ++i) {
          TaskSlot* slot = slots[random() % kSlots];
          Words words = Filled(static_cast<uint64_t>(i));
          slot->Replace(slot->Make(MakeTask(kWords, words)));
        }
        updating.fetch_sub(1, std::memory_order_relaxed);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_GE(runs, 2000u);
    EXPECT_EQ(g_alive, kSlots) << "nobody is left, so only the contents are";
  }
  EXPECT_EQ(g_alive, 0);
}

TEST(Slots, AContentInUseOutlivesEveryUpdateOfItsGraph) {
  g_alive = 0;
  {
    Graph graph;
    graph.AddLane(0, 0, kNoNode);
    Words words = Filled(7);
    TaskSlot* slot = graph.MakeSlot(graph.Add(0, MakeTask(kWords, words)));
    const SlotUse use(graph.slot_users());
    const HeldTask* first = slot->Current();
    std::thread updates([&] {
      for (uint64_t i = 0; i < 1000; ++i) {
        Words next = Filled(i);
        slot->Replace(slot->Make(MakeTask(kWords, next)));
      }
    });
    updates.join();
    EXPECT_EQ(ValueOf(*first), 7u);
  }
  EXPECT_EQ(g_alive, 0);
}

}  // namespace
}  // namespace reprise::ir
