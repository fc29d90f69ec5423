// SPDX-License-Identifier: Apache-2.0
//
// The rules of generators, one by one, against an environment that does what the test says.
#include "rng/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace reprise::rng {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Write {
  void* stream;
  const int64_t* seed_cell;
  const int64_t* offset_cell;
  int64_t seed, offset;
};

// Captures are numbers that the test sets; cells are counted; writes happen at once and are kept.
class FakeEnvironment final : public Environment {
 public:
  ~FakeEnvironment() override {
    EXPECT_THAT(cells, IsEmpty()) << "cells that nobody freed";
    graphs.clear();  // states free their cells here
  }

  uint64_t CurrentCapture(int) override { return current; }
  uint64_t CaptureOf(void* stream) override { return stream_captures[stream]; }
  Status Register(uint64_t capture, std::shared_ptr<GeneratorState> state) override {
    std::lock_guard lock(mutex);
    if (!graphs.contains(capture)) {
      return Error(107030, "the capture does not belong to a graph").Hint("capture with a graph");
    }
    if (bodies.contains(capture)) return Error(107030, "RNG inside conditional nodes is not supported");
    graphs[capture].insert(std::move(state));
    return {};
  }
  StatusOr<int64_t*> AllocateCell(int device) override {
    if (on_allocate) on_allocate();
    std::lock_guard lock(mutex);
    if (allocations_left-- == 0) return Error(207001, "no room for a cell");
    auto* cell = new int64_t(-1);
    cells[cell] = device;
    return cell;
  }
  void FreeCell(int64_t* cell) noexcept override {
    std::lock_guard lock(mutex);
    EXPECT_EQ(cells.erase(cell), 1u);
    delete cell;
  }
  Status WriteCells(void* stream, int64_t* seed_cell, int64_t seed, int64_t* offset_cell, int64_t offset) override {
    if (write_fails) return Error(507002, "the stream is full");
    *seed_cell = seed;
    *offset_cell = offset;
    writes.push_back({stream, seed_cell, offset_cell, seed, offset});
    return {};
  }

  uint64_t current = 0;
  std::map<void*, uint64_t> stream_captures;
  std::map<uint64_t, std::set<std::shared_ptr<GeneratorState>>> graphs;
  std::set<uint64_t> bodies;
  std::map<int64_t*, int> cells;
  std::vector<Write> writes;
  int allocations_left = 1000;
  bool write_fails = false;
  std::function<void()> on_allocate;
  std::mutex mutex;
};

::testing::AssertionResult Refused(int code, const char* words, const Status& status) {
  if (status.code() != code) {
    return ::testing::AssertionFailure() << "number " << status.code() << ", not " << code << ": "
                                         << (status.ok() ? "" : status.detail().what);
  }
  const auto& detail = status.detail();
  if (detail.what.find(words) == std::string::npos) return ::testing::AssertionFailure() << detail.what;
  if (detail.culprit.empty() || detail.hint.empty()) return ::testing::AssertionFailure() << "no culprit or no hint";
  return ::testing::AssertionSuccess();
}
template <class T>
::testing::AssertionResult Refused(int code, const char* words, StatusOr<T> result) {
  return Refused(code, words, std::move(result).status());
}

class GeneratorRules : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = Generator::Create(environment_, 3);
    ASSERT_TRUE(made.ok());
    generator_ = *made;
  }
  // What a graph does.
  void Begin(uint64_t capture) {
    environment_.graphs[capture];
    environment_.current = capture;
    environment_.stream_captures[kStream] = capture;
  }
  uint64_t End() {
    const uint64_t capture = std::exchange(environment_.current, 0);
    environment_.stream_captures[kStream] = 0;
    return generator_->state()->CaptureEpilogue(capture);
  }
  PhiloxArguments Take(uint64_t increment = 4) {
    auto arguments = generator_->Take(increment, kStream);
    EXPECT_TRUE(arguments.ok());
    return *arguments;
  }
  uint64_t Offset() {
    auto offset = generator_->PhiloxOffset();
    EXPECT_TRUE(offset.ok());
    return *offset;
  }
  Status Replay(uint64_t capture, uint64_t increment) {
    return generator_->state()->ReplayPrologue(capture, increment, kStream);
  }

  static inline void* const kStream = reinterpret_cast<void*>(0x10);
  FakeEnvironment environment_;
  std::shared_ptr<Generator> generator_;
};

// ---- Eager ----

TEST_F(GeneratorRules, StartsWithTheDefaultSeed) {
  EXPECT_EQ(generator_->CurrentSeed(), 67280421310721u);
  EXPECT_EQ(*generator_->GetOffset(), 0u);
  EXPECT_EQ(generator_->device(), 3);
}

TEST_F(GeneratorRules, TakeGivesValuesAndMovesOnInFours) {
  ASSERT_TRUE(generator_->SetCurrentSeed(7).ok());
  for (const auto& [increment, after] : {std::pair<uint64_t, uint64_t>{4, 4}, {1, 8}, {5, 16}, {0, 16}, {8, 24}}) {
    const uint64_t before = Offset();
    const PhiloxArguments arguments = Take(increment);
    EXPECT_FALSE(arguments.captured());
    EXPECT_EQ(arguments.Seed(), 7u);
    EXPECT_EQ(arguments.Offset(), before);
    EXPECT_EQ(Offset(), after) << "increment " << increment;
  }
  auto inputs = generator_->EngineInputs(2);
  ASSERT_TRUE(inputs.ok());
  EXPECT_EQ(inputs->seed, 7u);
  EXPECT_EQ(inputs->offset, 24u);
  EXPECT_EQ(Offset(), 28u);
}

TEST_F(GeneratorRules, SeedSetsTheOffsetToZero) {
  Take();
  ASSERT_TRUE(generator_->SetCurrentSeed(5).ok());
  EXPECT_EQ(Offset(), 0u);
  Take();
  ASSERT_TRUE(generator_->SetCurrentSeed(5).ok()) << "also when the seed is the same";
  EXPECT_EQ(Offset(), 0u);
  Take();
  const uint64_t seed = *generator_->NewSeed();
  EXPECT_EQ(generator_->CurrentSeed(), seed);
  EXPECT_NE(generator_->CurrentSeed(), 5u);
  EXPECT_EQ(Offset(), 0u);
}

TEST_F(GeneratorRules, OffsetsAreMultiplesOfFour) {
  EXPECT_TRUE(Refused(107000, "multiple of 4", generator_->SetOffset(6)));
  EXPECT_TRUE(Refused(107000, "multiple of 4", generator_->SetPhiloxOffset(6)));
  EXPECT_TRUE(Refused(107000, "largest", generator_->SetOffset(uint64_t{1} << 63)));
  EXPECT_EQ(Offset(), 0u);
  EXPECT_TRUE(generator_->SetOffset(8).ok());
  EXPECT_EQ(*generator_->GetOffset(), 8u);
  EXPECT_TRUE(generator_->SetPhiloxOffset(12).ok());
  EXPECT_EQ(*generator_->GetOffset(), 12u);
}

TEST_F(GeneratorRules, OverflowIsRefusedAndChangesNothing) {
  ASSERT_TRUE(generator_->SetOffset(GeneratorState::kMaxOffset - 4).ok());
  EXPECT_TRUE(Refused(207012, "cannot move on by 5", generator_->Take(5, kStream)));
  EXPECT_TRUE(Refused(207012, "offset", generator_->Take(UINT64_MAX, kStream)));
  EXPECT_EQ(Offset(), GeneratorState::kMaxOffset - 4);
  EXPECT_EQ(Take(4).Offset(), GeneratorState::kMaxOffset - 4);
  EXPECT_TRUE(Refused(207012, "offset", generator_->Take(1, kStream)));

  Begin(1);
  ASSERT_TRUE(generator_->SetPhiloxOffset(GeneratorState::kMaxOffset).ok());
  EXPECT_TRUE(Refused(207012, "within the capture", generator_->Take(1, kStream)));
  EXPECT_EQ(Offset(), GeneratorState::kMaxOffset);
  End();
  generator_->state()->RemoveCapture(1);
}

TEST_F(GeneratorRules, StateIsSeedThenOffset) {
  ASSERT_TRUE(generator_->SetState(std::vector<uint8_t>{8, 7, 6, 5, 4, 3, 2, 1, 4, 1, 0, 0, 0, 0, 0, 0}).ok());
  EXPECT_EQ(generator_->CurrentSeed(), 0x0102030405060708u);
  EXPECT_EQ(Offset(), 0x104u);
  Take();
  EXPECT_THAT(*generator_->GetState(), ElementsAre(8, 7, 6, 5, 4, 3, 2, 1, 8, 1, 0, 0, 0, 0, 0, 0));
  // The seed alone.
  ASSERT_TRUE(generator_->SetState(std::vector<uint8_t>{9, 0, 0, 0, 0, 0, 0, 0}).ok());
  EXPECT_EQ(generator_->CurrentSeed(), 9u);
  EXPECT_EQ(Offset(), 0u);
  for (const size_t size : {0, 7, 9, 15, 17, 5056}) {
    EXPECT_TRUE(Refused(107000, "RNG state is wrong size", generator_->SetState(std::vector<uint8_t>(size, 1))));
  }
  EXPECT_TRUE(Refused(107000, "multiple of 4",
                      generator_->SetState(std::vector<uint8_t>{1, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0})));
  EXPECT_EQ(generator_->CurrentSeed(), 9u) << "a refused state changes nothing";
}

TEST_F(GeneratorRules, CloneIsIndependentSharedIsNot) {
  Take();
  auto clone = *generator_->Clone();
  auto shared = generator_->GraphsafeGetState();
  Take();
  EXPECT_EQ(*clone->GetOffset(), 4u);
  EXPECT_EQ(*shared->GetOffset(), 8u);
  EXPECT_EQ(clone->device(), 3);
  ASSERT_TRUE(clone->GraphsafeSetState(generator_.get()).ok());
  ASSERT_TRUE(clone->Take(4, kStream).ok());
  EXPECT_EQ(Offset(), 12u);
  EXPECT_EQ(clone->state(), generator_->state());
  ASSERT_TRUE(clone->GraphsafeSetState(clone.get()).ok()) << "with itself";
  EXPECT_EQ(clone->state(), generator_->state());

  EXPECT_TRUE(Refused(107000, "NPU Generator", generator_->GraphsafeSetState(nullptr)));
  const auto other = *Generator::Create(environment_, 4);
  EXPECT_TRUE(Refused(107000, "NPU Generator", generator_->GraphsafeSetState(other.get())));
}

TEST_F(GeneratorRules, DefaultGeneratorsAreMadeOnceWithSeedsOfTheirOwn) {
  DefaultGenerators generators(environment_);
  const auto first = generators.Of(0);
  EXPECT_EQ(generators.Of(0), first);
  EXPECT_NE(generators.Of(1), first);
  EXPECT_NE(generators.Of(1)->CurrentSeed(), first->CurrentSeed());
  EXPECT_NE(first->CurrentSeed(), GeneratorState::kDefaultSeed);
  EXPECT_EQ(*first->GetOffset(), 0u);
  EXPECT_EQ(generators.Of(1)->device(), 1);
  environment_.current = 9;  // the first call of a process may come in a capture
  EXPECT_EQ(generators.Of(2)->device(), 2);
  EXPECT_NE(UnforeseeableSeed(), UnforeseeableSeed());
}

TEST(PhiloxArguments, ForeignSeedsDifferWithSeedAndOffset) {
  std::set<uint64_t> seeds;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{2}, uint64_t{1} << 32}) {
    for (uint64_t offset = 0; offset < 1000; offset += 4) {
      const int64_t cells[2] = {static_cast<int64_t>(seed), 400};
      const PhiloxArguments eager{seed, offset + 400, nullptr, nullptr, 0};
      const PhiloxArguments captured{0, 0, &cells[0], &cells[1], offset};
      EXPECT_EQ(eager.ForeignSeed(), captured.ForeignSeed());
      seeds.insert(eager.ForeignSeed());
    }
  }
  EXPECT_EQ(seeds.size(), 1000u);
}

// ---- In a capture ----

TEST_F(GeneratorRules, WhatNeedsValuesNowIsRefusedInACapture) {
  Begin(1);
  EXPECT_TRUE(Refused(107027, "captured", Generator::Create(environment_, 3)));
  EXPECT_TRUE(Refused(107027, "captured", generator_->Clone()));
  EXPECT_TRUE(Refused(107027, "captured", generator_->NewSeed()));
  EXPECT_TRUE(Refused(107027, "captured", generator_->GetOffset()));
  EXPECT_TRUE(Refused(107027, "captured", generator_->SetOffset(8)));
  EXPECT_TRUE(Refused(107027, "captured", generator_->EngineInputs(4)));
  EXPECT_THAT(environment_.graphs[1], IsEmpty()) << "a refused call registers nothing";
  // Adopting a state and sharing one are allowed.
  const Generator adopted(generator_->state());
  EXPECT_EQ(generator_->GraphsafeGetState()->state(), generator_->state());
  EXPECT_TRUE(generator_->GraphsafeSetState(&adopted).ok());
  EXPECT_EQ(generator_->CurrentSeed(), GeneratorState::kDefaultSeed);
  EXPECT_EQ(End(), 0u);
}

TEST_F(GeneratorRules, FirstDrawOfACaptureRegisters) {
  ASSERT_TRUE(generator_->SetOffset(100).ok());
  Begin(7);
  EXPECT_THAT(environment_.cells, IsEmpty());
  const PhiloxArguments first = Take();
  ASSERT_TRUE(first.captured());
  EXPECT_EQ(environment_.graphs[7].count(generator_->state()), 1u);
  EXPECT_EQ(environment_.cells.size(), 2u);
  for (const auto& [cell, device] : environment_.cells) EXPECT_EQ(device, 3);
  EXPECT_NE(first.seed_cell, first.offset_cell);
  const PhiloxArguments second = Take(9);
  EXPECT_EQ(second.seed_cell, first.seed_cell);
  EXPECT_EQ(second.offset_cell, first.offset_cell);
  EXPECT_EQ(environment_.cells.size(), 2u);
  EXPECT_EQ(first.offset_in_graph, 0u);
  EXPECT_EQ(second.offset_in_graph, 4u);
  EXPECT_EQ(Offset(), 16u) << "that of the capture";
  EXPECT_EQ(End(), 16u);
  EXPECT_EQ(generator_->state()->CaptureEpilogue(7), 0u) << "told once";
  EXPECT_EQ(Offset(), 100u) << "capturing draws nothing";
  generator_->state()->RemoveCapture(7);
  EXPECT_THAT(environment_.cells, IsEmpty());
  EXPECT_EQ(Offset(), 100u);
  generator_->state()->RemoveCapture(7);  // once more is no harm
  EXPECT_EQ(generator_->state()->CaptureEpilogue(7), 0u);
}

TEST_F(GeneratorRules, OwnStreamOfADrawDecides) {
  Begin(1);
  void* const other = reinterpret_cast<void*>(0x20);
  EXPECT_FALSE(generator_->Take(4, other)->captured());
  environment_.current = 0;
  EXPECT_TRUE(Take().captured());
  environment_.current = 1;
  EXPECT_EQ(End(), 4u);
  EXPECT_EQ(Offset(), 4u);
  generator_->state()->RemoveCapture(1);
}

TEST_F(GeneratorRules, CapturesWithoutGraphAndBodiesRefuse) {
  environment_.stream_captures[kStream] = environment_.current = 5;
  auto refused = generator_->Take(4, kStream);
  EXPECT_EQ(std::move(refused).status().code(), 107030);
  environment_.graphs[5];
  environment_.bodies.insert(5);
  auto in_body = generator_->Take(4, kStream);
  const Status status = std::move(in_body).status();
  EXPECT_EQ(status.code(), 107030);
  EXPECT_THAT(status.detail().what, HasSubstr("RNG inside conditional nodes"));
  EXPECT_EQ(generator_->GetState().ok(), false);
  EXPECT_THAT(environment_.cells, IsEmpty());
  End();
}

TEST_F(GeneratorRules, NoMemoryForCellsIsToldAndTheNextCallTriesAgain) {
  Begin(2);
  environment_.allocations_left = 1;
  auto refused = generator_->Take(4, kStream);
  EXPECT_EQ(std::move(refused).status().code(), 207001);
  EXPECT_THAT(environment_.cells, IsEmpty()) << "the first of the two went again";
  EXPECT_EQ(End(), 0u);
  EXPECT_TRUE(Replay(2, 0).ok());
  Begin(2);
  environment_.allocations_left = 10;
  EXPECT_TRUE(Take().captured());
  EXPECT_EQ(End(), 4u);
  generator_->state()->RemoveCapture(2);
}

TEST_F(GeneratorRules, SeedInACaptureMustBeTheSame) {
  ASSERT_TRUE(generator_->SetCurrentSeed(11).ok());
  ASSERT_TRUE(generator_->SetOffset(40).ok());
  Begin(1);
  EXPECT_TRUE(generator_->SetCurrentSeed(11).ok());
  for (const uint64_t seed : {0, 10, 12}) {
    EXPECT_TRUE(Refused(107030, "new seed", generator_->SetCurrentSeed(seed)));
  }
  std::vector<uint8_t> other(16, 0);
  other[0] = 12;
  EXPECT_TRUE(Refused(107030, "new seed", generator_->SetState(other)));
  EXPECT_THAT(environment_.graphs[1], IsEmpty());
  Take();
  EXPECT_TRUE(generator_->SetCurrentSeed(11).ok());
  EXPECT_EQ(Offset(), 4u) << "the offset stays, too";
  EXPECT_TRUE(Refused(107030, "new seed", generator_->SetState(other)));
  EXPECT_EQ(generator_->CurrentSeed(), 11u);
  EXPECT_EQ(End(), 4u);
  EXPECT_EQ(Offset(), 40u);
  generator_->state()->RemoveCapture(1);
}

TEST_F(GeneratorRules, StateInACaptureHoldsTheOffsetOfTheCapture) {
  ASSERT_TRUE(generator_->SetCurrentSeed(11).ok());
  ASSERT_TRUE(generator_->SetOffset(400).ok());
  Begin(1);
  Take();
  auto saved = *generator_->GetState();
  EXPECT_EQ(saved[8], 4u);
  EXPECT_EQ(Take().offset_in_graph, 4u);
  EXPECT_EQ(Take().offset_in_graph, 8u);
  ASSERT_TRUE(generator_->SetState(saved).ok());
  EXPECT_EQ(Take().offset_in_graph, 4u);
  EXPECT_TRUE(Refused(107000, "multiple of 4", generator_->SetPhiloxOffset(5)));
  // 8 bytes: back to the beginning of the capture.
  ASSERT_TRUE(generator_->SetState(std::span<const uint8_t>(saved).first(8)).ok());
  EXPECT_EQ(Take().offset_in_graph, 0u);
  EXPECT_EQ(End(), 4u);
  EXPECT_EQ(Offset(), 400u);
  generator_->state()->RemoveCapture(1);
}

// ---- Replay ----

TEST_F(GeneratorRules, PrologueWritesWhatTheStateHasAndMovesItOn) {
  ASSERT_TRUE(generator_->SetCurrentSeed(11).ok());
  ASSERT_TRUE(generator_->SetOffset(40).ok());
  Begin(1);
  const PhiloxArguments draw = Take();
  Take();
  const uint64_t increment = End();
  ASSERT_EQ(increment, 8u);
  ASSERT_TRUE(Replay(1, increment).ok());
  EXPECT_EQ(draw.Seed(), 11u);
  EXPECT_EQ(draw.Offset(), 40u);
  EXPECT_EQ(Offset(), 48u);
  Take();  // eager
  ASSERT_TRUE(Replay(1, increment).ok());
  EXPECT_EQ(draw.Offset(), 52u);
  ASSERT_TRUE(generator_->SetCurrentSeed(UINT64_MAX).ok());
  ASSERT_TRUE(Replay(1, increment).ok());
  EXPECT_EQ(draw.Seed(), UINT64_MAX);
  EXPECT_EQ(draw.Offset(), 0u);
  EXPECT_EQ(Offset(), 8u);
  ASSERT_EQ(environment_.writes.size(), 3u);
  EXPECT_EQ(environment_.writes[0].stream, kStream);
  EXPECT_EQ(environment_.writes[0].seed_cell, draw.seed_cell);
  generator_->state()->RemoveCapture(1);
  ASSERT_TRUE(Replay(1, increment).ok()) << "nothing is left to do";
  EXPECT_EQ(Offset(), 8u);
}

// The increment is 0 and still the draws read the cells.
TEST_F(GeneratorRules, PrologueWritesWithoutAnIncrementWhenADrawReads) {
  ASSERT_TRUE(generator_->SetCurrentSeed(11).ok());
  Begin(1);
  const auto saved = *generator_->GetState();
  const PhiloxArguments draw = Take();
  ASSERT_TRUE(generator_->SetState(saved).ok());
  ASSERT_EQ(End(), 0u);
  ASSERT_TRUE(Replay(1, 0).ok());
  ASSERT_EQ(environment_.writes.size(), 1u);
  EXPECT_EQ(draw.Seed(), 11u);
  EXPECT_EQ(draw.Offset(), 0u);
  EXPECT_EQ(Offset(), 0u);
  generator_->state()->RemoveCapture(1);
}

TEST_F(GeneratorRules, PrologueDoesNothingWhenNoDrawReads) {
  Begin(1);
  ASSERT_TRUE(generator_->SetPhiloxOffset(8).ok());
  ASSERT_EQ(End(), 8u);
  ASSERT_TRUE(Replay(1, 8).ok());
  EXPECT_THAT(environment_.writes, IsEmpty());
  EXPECT_EQ(Offset(), 0u);
  generator_->state()->RemoveCapture(1);
}

TEST_F(GeneratorRules, PrologueIsRefusedInACaptureAndWhenTheOffsetIsUsedUp) {
  Begin(1);
  Take();
  ASSERT_EQ(End(), 4u);
  environment_.stream_captures[kStream] = 9;
  EXPECT_TRUE(Refused(107027, "captured", Replay(1, 4)));
  environment_.stream_captures[kStream] = 0;
  EXPECT_EQ(Offset(), 0u);
  ASSERT_TRUE(generator_->SetOffset(GeneratorState::kMaxOffset).ok());
  EXPECT_TRUE(Refused(207012, "offset", Replay(1, 4)));
  EXPECT_THAT(environment_.writes, IsEmpty());
  ASSERT_TRUE(generator_->SetOffset(12).ok());
  environment_.write_fails = true;
  EXPECT_EQ(Replay(1, 4).code(), 507002);
  EXPECT_EQ(Offset(), 16u) << "a replay that fails to launch has moved the offset on";
  generator_->state()->RemoveCapture(1);
}

TEST_F(GeneratorRules, SeveralCapturesShareAState) {
  Begin(1);
  const PhiloxArguments one = Take();
  const uint64_t first = End();
  Begin(2);
  const PhiloxArguments two = Take();
  Take();
  const uint64_t second = End();
  EXPECT_NE(one.seed_cell, two.seed_cell);
  EXPECT_EQ(environment_.cells.size(), 4u);
  ASSERT_TRUE(Replay(1, first).ok());
  ASSERT_TRUE(Replay(2, second).ok());
  EXPECT_EQ(one.Offset(), 0u) << "cells of its own";
  EXPECT_EQ(two.Offset(), 4u);
  EXPECT_EQ(Offset(), 12u);
  generator_->state()->RemoveCapture(1);
  EXPECT_EQ(environment_.cells.size(), 2u);
  ASSERT_TRUE(Replay(2, second).ok());
  EXPECT_EQ(two.Offset(), 12u);
  // An id comes again.
  Begin(1);
  EXPECT_EQ(Take().offset_in_graph, 0u);
  EXPECT_EQ(End(), 4u);
  generator_->state()->RemoveCapture(1);
  generator_->state()->RemoveCapture(2);
}

// The state goes with its last owner and frees what captures have left.
TEST_F(GeneratorRules, CellsGoWithTheState) {
  Begin(1);
  Take();
  End();
  EXPECT_EQ(environment_.cells.size(), 2u);
  environment_.graphs.clear();
  generator_.reset();
  EXPECT_THAT(environment_.cells, IsEmpty());
}

// While one thread is between its look and its insert, another draws: one pair of cells is left, and used by both.
TEST_F(GeneratorRules, TwoThreadsRegisterOnce) {
  Begin(1);
  std::set<const int64_t*> cells;
  std::set<uint64_t> offsets;
  bool nested = false;
  environment_.on_allocate = [&] {
    if (std::exchange(nested, true)) return;
    std::thread([&] {  // the mutex is free while memory is taken, or this would not return
      const PhiloxArguments other = Take();
      cells.insert(other.seed_cell);
      offsets.insert(other.offset_in_graph);
    })
        .join();
  };
  const PhiloxArguments mine = Take();
  cells.insert(mine.seed_cell);
  offsets.insert(mine.offset_in_graph);
  EXPECT_TRUE(nested);
  EXPECT_EQ(cells.size(), 1u);
  EXPECT_THAT(offsets, ElementsAre(0, 4));
  EXPECT_EQ(environment_.cells.size(), 2u);
  EXPECT_EQ(End(), 8u);
  generator_->state()->RemoveCapture(1);
}

}  // namespace
}  // namespace reprise::rng
