// SPDX-License-Identifier: Apache-2.0
//
// Contents of slots that are replaced while somebody runs or reads them, and the lock of captures.
#include <gtest/gtest.h>

#include "scenario.h"
// Behind the shim:
#include "base/gated_mutex.h"
#include "expect.h"
#include "ir/slot.h"

namespace interleave {
namespace {

namespace ir = reprise::ir;
using reprise::ir::HeldTask;
using reprise::ir::TaskSlot;

struct Words {
  uint64_t word[2];
};
const ir::TaskType kWords = {.kind = ir::TaskKind::kKernel,
                             .name = "WORDS",
                             .run = [](reprise::device::RunContext&, void*) { return ir::RunResult::kDone; },
                             .operands = ir::NoOperands};

uint64_t First(const HeldTask* task) { return static_cast<const Words*>(task->payload())->word[0]; }
uint64_t Second(const HeldTask* task) { return static_cast<const Words*>(task->payload())->word[1]; }

enum class Reader { kRuns, kHolds, kRunsUnannounced };

// Two updates in one turn each, the second of which gets the memory of the first content as soon as that is free, while
// somebody uses a content: it must stay as it was found.
void UpdateInUse(Reader reader) {
  auto* users = new ir::SlotUsers;
  TaskSlot* slot = nullptr;
  {
    Straight straight;
    Words words{{1, 1}};
    slot = new TaskSlot(HeldTask::TakeOver(ir::MakeTask(kWords, words)), *users);
    slot->Replace(slot->Make(ir::MakeTask(kWords, words)));  // now there is memory for a third content
  }
  std::atomic<uint32_t> steps{0};
  std::thread user([&] {
    if (reader == Reader::kRuns) users->Enter();
    HeldTask* const task = reader == Reader::kHolds ? slot->Acquire() : slot->Current();
    const uint64_t first = First(task);
    steps.fetch_add(1);  // others come in between
    INTERLEAVE_CHECK(Second(task) == first);
    steps.fetch_add(1);
    INTERLEAVE_CHECK(First(task) == first);
    if (reader == Reader::kHolds) slot->Drop(task);
    if (reader == Reader::kRuns) users->Leave();
  });
  for (uint64_t value = 2; value <= 3; ++value) {
    Words words{{value, value}};
    const ir::Task task = ir::MakeTask(kWords, words);
    if (!slot->TryUpdate(task, [](const HeldTask&) { return true; })) slot->Replace(slot->Make(task));
  }
  users->Settle();
  user.join();
  INTERLEAVE_CHECK(First(slot->Current()) == 3);
  slot->Release();
  users->Release();
}

TEST(Slots, UpdateWhileARunUsesTheContent) {
  ExpectSound("", {.preemptions = 3}, [] { UpdateInUse(Reader::kRuns); });
}
TEST(Slots, UpdateWhileAReaderHoldsTheContent) {
  ExpectSound("", {.preemptions = 3}, [] { UpdateInUse(Reader::kHolds); });
}
TEST(Slots, MutantRunThatDoesNotSaySo) {
  ExpectFound(
      "", {}, [] { UpdateInUse(Reader::kRunsUnannounced); }, kCheckFailed);
}

// Takes the mutex for a short section, but waits for nobody when the gate is shut.
struct Barging {
  explicit Barging(reprise::GatedMutex& mutex) : lock(mutex) { lock.Unlock(); }
  reprise::ShortLock lock;
};

// One long section and two short ones.
template <class Short>
void LongAndShort() {
  reprise::GatedMutex mutex;
  std::atomic<bool> inside{false};
  const auto section = [&] {
    INTERLEAVE_CHECK(!inside.exchange(true));
    INTERLEAVE_CHECK(inside.exchange(false));
  };
  const auto brief = [&] {
    const Short lock(mutex);
    section();
  };
  std::thread one(brief), two(brief);
  {
    std::lock_guard lock(mutex);
    section();
  }
  one.join();
  two.join();
}

TEST(GatedMutex, LetsOneIn) { ExpectSound("", {.preemptions = 2}, LongAndShort<reprise::ShortLock>); }
TEST(GatedMutex, MutantThatLeavesTooEarly) { ExpectFound("", {}, LongAndShort<Barging>, kCheckFailed); }

}  // namespace
}  // namespace interleave
