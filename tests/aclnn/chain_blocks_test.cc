// SPDX-License-Identifier: Apache-2.0
//
// What replays of chains (src/ops/picture_chain.h) store of results in blocks of the caching allocator.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "../unit/scale.h"
#include "chain_fixture.h"
#include "harness.h"
#include "reprise/graph.h"
#include "reprise/memory.h"

namespace aclnn_test {
namespace {

// Programs whose pictures lie in the pool of a graph, from kPictures on: what need not be stored there is known by what
// stood there before, which is left.
class PoolTest : public ChainTest {
 protected:
  static constexpr char kSign = 0x5A;

  void TearDown() override {
    Clear();
    ChainTest::TearDown();
  }
  void Clear() {
    for (Place& place : places) {
      EXPECT_EQ(aclDestroyTensor(place.tensor), 0);
      if (place.is_held) reprise::device_memory::Free(place.block);
    }
    for (char* const block : others) reprise::device_memory::Free(block);
    places.clear();
    others.clear();
  }

  void* StorageOf(size_t picture) const override {
    return picture < kPictures ? ChainTest::StorageOf(picture) : places[picture - kPictures].block;
  }
  aclTensor* TensorOf(size_t picture) const override {
    return picture < kPictures ? ChainTest::TensorOf(picture) : places[picture - kPictures].tensor;
  }
  uint64_t bytes() const { return before[0].size(); }
  char* Allocate(uint64_t count) const { return static_cast<char*>(reprise::device_memory::Allocate(count, stream)); }
  // The number of a picture.
  size_t Make() {
    char* const block = Allocate(bytes());
    const Shape& shape = pictures[0]->shape();
    aclTensor* const tensor = aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, pictures[0]->strides().data(), 0,
                                              ACL_FORMAT_NCHW, shape.data(), shape.size(), block);
    places.push_back({block, tensor, true, {}});
    return kPictures + places.size() - 1;
  }
  void Drop(size_t picture) {
    Place& place = places[picture - kPictures];
    reprise::device_memory::Free(place.block);
    place.is_held = false;
  }
  // A few bytes of what was freed first, as a rule: it is the smallest block that fits.
  void TakeSome() { others.push_back(Allocate(512)); }

  void Call(Kind kind, size_t a, size_t b, size_t out, size_t weight = 1) {
    Each({kind, a, b, out, weight}, [&](const PhaseOne& one_, PhaseTwo two) { Record(one_, two); });
  }

  void Sign() {
    Reset();
    for (const Place& place : places) std::memset(place.block, kSign, bytes());
  }
  void Execute(reprise::Graph& graph) {
    graph.Replay(stream);
    ASSERT_EQ(aclrtSynchronizeStream(stream), 0) << RecentMessage();
  }
  std::vector<char> BytesAt(size_t picture) const {
    const char* const block = places[picture - kPictures].block;
    return {block, block + bytes()};
  }
  bool IsSigned(size_t picture) const { return BytesAt(picture) == std::vector<char>(bytes(), kSign); }

  // The first execution runs each task by itself: what it leaves is what all others leave, but for pictures that are
  // not stored.
  void Check(reprise::Graph& graph, const std::vector<size_t>& not_stored, int replays = kEnoughReplays + 12) {
    Sign();
    Execute(graph);
    const auto expected = All();
    for (size_t i = 0; i < places.size(); ++i) places[i].expected = BytesAt(kPictures + i);
    for (int i = 1; i < replays; ++i) {
      Sign();
      Execute(graph);
      EXPECT_EQ(All(), expected) << i;
      for (size_t p = kPictures; p < kPictures + places.size(); ++p) {
        if (std::find(not_stored.begin(), not_stored.end(), p) != not_stored.end()) continue;
        ASSERT_EQ(BytesAt(p), places[p - kPictures].expected) << "replay " << i << ", picture " << p;
      }
    }
    for (const size_t picture : not_stored) EXPECT_EQ(IsSigned(picture), Chains()) << picture;
    EXPECT_EQ(executions() != 0, Chains());
  }

  struct Place {
    char* block;
    aclTensor* tensor;
    bool is_held;
    std::vector<char> expected;
  };
  std::vector<Place> places;
  std::vector<char*> others;
};

TEST_P(PoolTest, ResultsInBlocksThatWereUsedAgainAreNotStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Drop(first);
  TakeSome();
  Call(kOneTap, second, second, 1, 2);
  Drop(second);
  others.push_back(Allocate(bytes()));  // the rest of the first one, and a part of the second
  Call(kRelu, 1, 1, 1);
  capture.End();
  Check(graph, {first, second});
}

TEST_P(PoolTest, ResultsThatTheProgramHoldsAreStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  TakeSome();
  Call(kOneTap, second, second, 1, 2);
  capture.End();
  Drop(first);
  TakeSome();
  Check(graph, {});
}

// References that own nothing are good for as long as nobody else gets the memory.
TEST_P(PoolTest, ResultsInBlocksThatWereFreedAreStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Call(kOneTap, second, second, 1, 2);
  Drop(first);
  Drop(second);
  capture.End();
  Check(graph, {});
}

TEST_P(PoolTest, ResultsThatALaterCaptureWritesOverAreStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Call(kOneTap, second, second, 1, 2);
  Drop(first);
  capture.End();
  reprise::Graph later;
  reprise::Graph::CaptureOptions options;
  options.stream = stream;
  options.pool = graph.pool();
  reprise::Capture after(later, options);
  const size_t third = Make();
  EXPECT_EQ(places[third - kPictures].block, places[first - kPictures].block);
  Call(kRelu, 0, 0, third);
  Drop(second);
  TakeSome();
  after.End();
  Check(graph, {});
}

// A block of an earlier graph that ends in this one: who holds that graph may still look at it.
TEST_P(PoolTest, ResultsInBlocksOfAnEarlierCaptureAreStored) {
  reprise::Graph earlier;
  reprise::Capture before_it(earlier, stream);
  const size_t first = Make();
  Call(kRelu, 0, 0, first);
  before_it.End();
  reprise::Graph graph;
  reprise::Graph::CaptureOptions options;
  options.stream = stream;
  options.pool = earlier.pool();
  reprise::Capture capture(graph, options);
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Drop(first);
  TakeSome();
  Call(kOneTap, second, second, 1, 2);
  capture.End();
  Check(graph, {});
}

// Whoever wrote there last may be looked at: it is the picture of the second owner.
TEST_P(PoolTest, TheLastOwnerOfABlockIsStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Drop(first);
  const size_t third = Make();
  EXPECT_EQ(places[third - kPictures].block, places[first - kPictures].block);
  Call(kOneTap, second, second, third, 2);
  Call(kRelu, third, third, 1);
  Drop(second);
  TakeSome();
  Call(kOneTap, 1, 1, 2, 0);
  capture.End();
  Check(graph, {second});
}

// By an address that it has kept.
TEST_P(PoolTest, WhatATaskReadsBehindThatIsStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Drop(first);
  TakeSome();
  Call(kOneTap, second, second, 1, 2);
  Call(kMul, first, 1, 2);
  capture.End();
  Check(graph, {});
}

TEST_P(PoolTest, WhatAHostFunctionMayReadIsStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Drop(first);
  TakeSome();
  Call(kOneTap, second, second, 1, 2);
  Gate gate;
  ASSERT_EQ(aclrtLaunchHostFunc(stream, Gate::Wait, &gate), 0) << RecentMessage();
  capture.End();
  Check(graph, {});
}

// The program may have put its new arguments anywhere.
TEST_P(PoolTest, AGraphWhoseTasksHaveChangedStoresAll) {
  reprise::Graph graph(reprise::Graph::Options{true});
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Drop(first);
  TakeSome();
  Call(kOneTap, second, second, 1, 2);
  Call(kRelu, 1, 1, 2);
  capture.End();
  graph.Instantiate();
  Check(graph, {first});
  aclmdlRI const model = graph.raw_graph();
  aclrtStream captured = nullptr;
  uint32_t count = 1;
  ASSERT_EQ(aclmdlRIGetStreams(model, &captured, &count), 0) << RecentMessage();
  aclmdlRITask tasks[4] = {};
  count = 4;
  ASSERT_EQ(aclmdlRIGetTasksByStream(captured, tasks, &count), 0) << RecentMessage();
  ASSERT_EQ(aclmdlRITaskDisable(tasks[3]), 0) << RecentMessage();
  graph.Instantiate();
  Sign();
  Execute(graph);
  EXPECT_FALSE(IsSigned(first));
  const uint64_t until = executions();
  Check(graph, {}, 30);
  EXPECT_EQ(executions() > until, Chains());
}

// Which of the two blocks a later one is a part of is the allocator's business.
TEST_P(PoolTest, ResultsInBlocksThatWerePassedOverAreNotStored) {
  reprise::Graph graph;
  reprise::Capture capture(graph, stream);
  const size_t first = Make();
  Call(kOneTap, 0, 0, first);
  const size_t second = Make();
  Call(kRelu, first, first, second);
  Call(kOneTap, second, second, 1, 2);
  Drop(first);
  Drop(second);
  TakeSome();
  capture.End();
  Check(graph, {first, second});
}

// Allocations and calls in any order. Of all blocks but those that could have been used again all bytes are as the
// tasks leave them, one by one.
TEST_P(PoolTest, RandomProgramsLeaveWhatAnybodyMayLookAt) {
  size_t not_stored = 0;
  const int rounds = reprise::testing::InForm(reprise::testing::Loops(400, 24));
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    reprise::Graph graph;
    reprise::Capture capture(graph, stream);
    std::vector<size_t> held = {0};
    std::set<size_t> reused;
    // What is taken would fit into any of them.
    const auto note_taken = [&] {
      for (size_t i = 0; i < places.size(); ++i) {
        if (!places[i].is_held) reused.insert(kPictures + i);
      }
    };
    for (int i = 0; i < 14; ++i) {
      const auto kind = static_cast<Kind>(random() % kKinds);
      const size_t a = random() % 4 != 0 ? held.back() : held[random() % held.size()];
      const size_t b = held[random() % held.size()];
      if (kind == kMean || kind == kRows || kind == kPart) {  // which write no picture
        Call(kind, a, a, a, random() % kWeights);
        continue;
      }
      const size_t out = Make();
      note_taken();
      Call(kind, a, b, out, random() % kWeights);
      held.push_back(out);
      while (held.size() > 2 && random() % 3 != 0) {
        const size_t which = random() % (held.size() - 1);  // mostly not what was computed last
        if (held[which] < kPictures) break;
        Drop(held[which]);
        held.erase(held.begin() + static_cast<ptrdiff_t>(which));
      }
      if (random() % 4 == 0) {
        TakeSome();
        note_taken();
      }
    }
    capture.End();
    for (int replay = 0; replay < kEnoughReplays; ++replay) {
      Sign();
      Execute(graph);
      for (size_t p = kPictures; p < kPictures + places.size(); ++p) {
        Place& place = places[p - kPictures];
        if (replay == 0) place.expected = BytesAt(p);
        if (reused.count(p) != 0) {
          not_stored += IsSigned(p) ? 1 : 0;
          continue;
        }
        ASSERT_EQ(BytesAt(p), place.expected) << "replay " << replay << ", picture " << p;
      }
    }
    Clear();
  }
  EXPECT_EQ(executions() >= static_cast<uint64_t>(rounds), Chains());
  EXPECT_EQ(not_stored != 0, Chains());
}

INSTANTIATE_TEST_SUITE_P(Sizes, PoolTest, testing::Values(kLarge));

}  // namespace
}  // namespace aclnn_test
