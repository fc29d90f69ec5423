// SPDX-License-Identifier: Apache-2.0
//
// Handles: a stale, foreign or invented one is never taken for a live one, also while other threads make new ones.
#include "base/handle_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/calls.h"
#include "scale.h"

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

TEST(HandleTable, HiddenIsNotFoundButVisitedAndCanComeBack) {
  auto table = std::make_unique<Table>();
  Thing thing;
  void* const handle = table->Insert(&thing);
  EXPECT_TRUE(table->Hide(handle));
  EXPECT_FALSE(table->Hide(handle)) << "two threads may destroy it";
  EXPECT_EQ(table->Find(handle), nullptr);
  EXPECT_EQ(table->Erase(handle), nullptr);
  int visited = 0;
  table->ForEach([&](Thing*) { ++visited; });
  EXPECT_EQ(visited, 1);
  table->Show(handle);
  EXPECT_EQ(table->Find(handle), &thing);
  EXPECT_TRUE(table->Hide(handle));
  uint64_t birth = 0;
  EXPECT_EQ(table->EraseHidden(handle, &birth), &thing);
  EXPECT_NE(birth, 0u);
  table->Show(handle);  // too late
  EXPECT_EQ(table->Find(handle), nullptr);
  EXPECT_EQ(table->live(), 0u);
}

// ---- What calls keep (base/calls.h) ----

struct Counted {
  explicit Counted(std::atomic<int>& count) : freed(count) {}
  ~Counted() { ++freed; }
  std::atomic<int>& freed;
};
using CountedTable = HandleTable<Counted, HandleKind::kNotify>;

// A thread that does what it is told, one step after the other, in a call of its own.
class Caller {
 public:
  Caller() : thread_([this] { Run(); }) {}
  ~Caller() {
    Do(nullptr);
    thread_.join();
  }
  void Do(std::function<void()> step) {
    std::unique_lock lock(mutex_);
    step_ = std::move(step);
    has_step_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !has_step_; });
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    for (bool goes_on = true; goes_on;) {
      changed_.wait(lock, [this] { return has_step_; });
      if (step_) step_();
      goes_on = step_ != nullptr;
      has_step_ = false;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> step_;
  bool has_step_ = false;
  std::thread thread_;
};

class Calls : public ::testing::Test {
 protected:
  void* Make() { return table_.Insert(new Counted(freed_)); }
  // As a C function that destroys.
  void Destroy(void* handle) {
    const CallGuard call;
    EXPECT_TRUE(table_.Destroy(handle, true));
  }
  CountedTable table_;
  std::atomic<int> freed_{0};
};

TEST_F(Calls, WithoutOthersAnObjectGoesAtOnce) {
  Destroy(Make());
  EXPECT_EQ(freed_.load(), 1);
  Caller outside;
  outside.Do([] { const CallGuard call; });  // known, and in no call
  Destroy(Make());
  EXPECT_EQ(freed_.load(), 2);
}

TEST_F(Calls, WhatACallMayHaveFoundStaysUntilItEnds) {
  void* const handle = Make();
  Caller other;
  std::unique_ptr<CallGuard> call;
  other.Do([&] {
    call = std::make_unique<CallGuard>();
    EXPECT_NE(table_.Find(handle), nullptr);
  });
  Destroy(handle);
  EXPECT_EQ(freed_.load(), 0);
  EXPECT_EQ(table_.Find(handle), nullptr);
  Caller late;  // a call that began since does not keep it
  std::unique_ptr<CallGuard> later;
  late.Do([&] { later = std::make_unique<CallGuard>(); });
  other.Do([&] { call.reset(); });
  EXPECT_EQ(freed_.load(), 1) << "the end of the last call frees it";
  late.Do([&] { later.reset(); });
}

TEST_F(Calls, ACallThatWaitsKeepsWhatItKnowsAndNoMore) {
  void* const known = Make();
  Caller other;
  std::unique_ptr<CallGuard> call;
  std::unique_ptr<WaitingCall> waiting;
  other.Do([&] {
    call = std::make_unique<CallGuard>();
    waiting = std::make_unique<WaitingCall>();
  });
  Destroy(known);
  EXPECT_EQ(freed_.load(), 0);
  for (int i = 0; i < 1000; ++i) Destroy(Make());
  EXPECT_EQ(freed_.load(), 1000) << "a thread that waits keeps memory of objects that have come since";
  void* const found = Make();
  other.Do([&] {
    {
      const CallGuard within;  // of a callback
      EXPECT_NE(table_.Find(found), nullptr);
      std::thread([&] { Destroy(found); }).join();
      EXPECT_EQ(freed_.load(), 1000);
    }
    waiting.reset();
    call.reset();
  });
  EXPECT_EQ(freed_.load(), 1002);
}

TEST_F(Calls, OnlyCallsThatRunAreWaitedFor) {
  Caller other;
  std::unique_ptr<CallGuard> call;
  std::unique_ptr<WaitingCall> waiting;
  other.Do([&] {
    call = std::make_unique<CallGuard>();
    waiting = std::make_unique<WaitingCall>();
  });
  EXPECT_TRUE(AwaitCalls());
  std::atomic<bool> returned{false};
  other.Do([&] { waiting.reset(); });
  Caller destroyer;
  std::thread ends([&] { other.Do([&] { call.reset(); }); });
  destroyer.Do([&] {
    const CallGuard own;
    PatienceWithCalls() = 60'000;
    returned = AwaitCalls();
  });
  ends.join();
  EXPECT_TRUE(returned.load());
  PatienceWithCalls() = 1000;
}

// A call that stays inside is given up; what it may know stays, and what comes behind it still comes.
TEST_F(Calls, WhoGivesUpLeavesTheRestToTheLastCall) {
  void* const handle = Make();
  Caller other;
  std::unique_ptr<CallGuard> call;
  other.Do([&] {
    call = std::make_unique<CallGuard>();
    EXPECT_NE(table_.Find(handle), nullptr);
  });
  PatienceWithCalls() = 0;
  {
    const CallGuard own;
    uint64_t birth = 0;
    Counted* const object = table_.Erase(handle, &birth);
    EXPECT_FALSE(AwaitCalls());
    RetireObject(object, birth, true);
  }
  PatienceWithCalls() = 1000;
  EXPECT_EQ(freed_.load(), 0);
  other.Do([&] { call.reset(); });
  EXPECT_EQ(freed_.load(), 1);
}

TEST_F(Calls, OfManyThreadsNobodySeesWhatIsFreed) {
  constexpr int kHandles = 4;
  std::atomic<void*> handles[kHandles];
  for (auto& handle : handles) handle = Make();
  std::atomic<bool> done{false};
  std::vector<std::thread> users;
  for (int i = 0; i < 3; ++i) {
    users.emplace_back([&, i] {
      for (size_t at = static_cast<size_t>(i); !done.load(); ++at) {
        const CallGuard call;
        if (const Counted* found = table_.Find(handles[at % kHandles].load())) {
          EXPECT_EQ(&found->freed, &freed_);
        }
      }
    });
  }
  const int rounds = testing::Loops(20'000, 2'000);
  for (int round = 0; round < rounds; ++round) {
    const CallGuard call;
    EXPECT_TRUE(table_.Destroy(handles[round % kHandles].exchange(Make()), round % 3 == 0));
  }
  done = true;
  for (std::thread& user : users) user.join();
  for (auto& handle : handles) Destroy(handle.load());
  EXPECT_EQ(freed_.load(), rounds + kHandles);
  EXPECT_EQ(RetiredObjects(), 0u);
}

}  // namespace
}  // namespace reprise
