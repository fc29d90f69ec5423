// SPDX-License-Identifier: Apache-2.0
//
// One state, many threads: replays of several graphs and eager draws. Whatever the order, no offset is used twice and
// none is left out.
#include <algorithm>
#include <latch>

#include "scale.h"
#include "world.h"

namespace reprise::testing {
namespace {

using kernels::Distribution;
using kernels::DrawCall;

// What a draw at an offset gives: 128 bits that tell the offset, as good as.
using Mark = std::pair<uint64_t, uint64_t>;

class Threads : public RandomWorld {
 protected:
  static DrawCall Marks(uint64_t* out) {
    DrawCall call;
    call.distribution = Distribution::kRandint;
    call.type = kernels::DType::kUInt64;
    call.range = 0;
    call.count = 2;
    call.out = out;
    return call;
  }
  static Mark At(uint64_t seed, uint64_t position) {
    uint64_t words[2];
    EXPECT_EQ(kernels::Draw(Marks(words), seed, position, {0, 2}), -1);
    return {words[0], words[1]};
  }
};

TEST_F(Threads, EachOffsetIsUsedOnce) {
  constexpr int kGraphs = 2, kReplayers = 3, kDrawers = 2;
  const int rounds = Loops(150, 25);
  constexpr uint64_t kSeed = 31337;
  Seed(kSeed);
  // Graph g makes g + 1 draws.
  std::vector<std::unique_ptr<Graph>> graphs;
  std::vector<std::unique_ptr<Buffer<uint64_t>>> outs;
  for (int g = 0; g < kGraphs; ++g) {
    graphs.push_back(std::make_unique<Graph>());
    outs.push_back(std::make_unique<Buffer<uint64_t>>(2 * (g + 1)));
    graphs.back()->Begin(stream_);
    for (int k = 0; k <= g; ++k) Draw(stream_, *generator_, Marks(outs.back()->data() + 2 * k));
    graphs.back()->End(stream_);
  }
  // A replay and the copy of what it drew are one step; the lock keeps other replays of the graph out of it.
  std::vector<std::mutex> turns(kGraphs);
  std::mutex all_mutex;
  std::vector<Mark> all;
  std::latch start(kReplayers + kDrawers);
  const auto collect = [&](const std::vector<uint64_t>& words) {
    std::lock_guard lock(all_mutex);
    for (size_t i = 0; i < words.size(); i += 2) all.push_back({words[i], words[i + 1]});
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kReplayers; ++t) {
    threads.emplace_back([&, t] {
      EXPECT_EQ(0, aclrtSetDevice(0));
      const aclrtStream stream = NewStream();
      start.arrive_and_wait();
      for (int i = 0; i < rounds; ++i) {
        const auto g = static_cast<size_t>((t + i) % kGraphs);
        std::vector<uint64_t> words;
        {
          std::lock_guard lock(turns[g]);
          graphs[g]->Replay(stream);
          ASSERT_EQ(0, aclrtSynchronizeStream(stream));
          words = outs[g]->Copy();
        }
        collect(words);
      }
      ASSERT_EQ(0, aclrtDestroyStream(stream));
      ASSERT_EQ(0, aclrtResetDevice(0));
    });
  }
  for (int t = 0; t < kDrawers; ++t) {
    threads.emplace_back([&] {
      EXPECT_EQ(0, aclrtSetDevice(0));
      const aclrtStream stream = NewStream();
      const auto shared = generator_->GraphsafeGetState();
      {
        const Buffer<uint64_t> out(2);
        start.arrive_and_wait();
        for (int i = 0; i < rounds; ++i) {
          Draw(stream, *shared, Marks(out.data()));
          ASSERT_EQ(0, aclrtSynchronizeStream(stream));
          collect(out.Copy());
        }
      }
      ASSERT_EQ(0, aclrtDestroyStream(stream));
      ASSERT_EQ(0, aclrtResetDevice(0));
    });
  }
  for (std::thread& thread : threads) thread.join();

  const uint64_t draws = Offset() / 4;
  ASSERT_EQ(all.size(), draws) << "the state counts what was drawn";
  std::vector<Mark> expected;
  for (uint64_t i = 0; i < draws; ++i) expected.push_back(At(kSeed, i));
  std::sort(all.begin(), all.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(all, expected);
}

// The draws of one replay are neighbours, whatever others take meanwhile.
TEST_F(Threads, AReplayTakesItsNumbersInOnePiece) {
  constexpr int kDraws = 4;
  const int rounds = Loops(300, 50);
  const int takes = Loops(200'000, 20'000);
  Seed(5);
  const Buffer<uint64_t> out(2 * kDraws);
  Graph graph;
  graph.Begin(stream_);
  for (int k = 0; k < kDraws; ++k) Draw(stream_, *generator_, Marks(out.data() + 2 * k));
  graph.End(stream_);
  std::atomic<bool> stop{false};
  std::thread taker([&] {
    const auto shared = generator_->GraphsafeGetState();
    for (int i = 0; i < takes && !stop.load(); ++i) EXPECT_TRUE(shared->state()->Take(4, 0).ok());
  });
  std::vector<std::vector<Mark>> replays;
  for (int i = 0; i < rounds; ++i) {
    graph.Replay(stream_);
    MUST(aclrtSynchronizeStream(stream_));
    auto& marks = replays.emplace_back();
    for (size_t k = 0; k < kDraws; ++k) marks.push_back({out[2 * k], out[2 * k + 1]});
    if (i == 20) stop = true;  // enough of those; what follows is neighbour to neighbour
  }
  stop = true;
  taker.join();
  // Where each replay began is found by its first number, within what was taken in all.
  const uint64_t end = Offset() / 4;
  std::map<Mark, size_t> first_of;
  for (size_t i = 0; i < replays.size(); ++i) first_of[replays[i][0]] = i;
  size_t found = 0;
  for (uint64_t p = 0; p < end && found < replays.size(); ++p) {
    const auto at = first_of.find(At(5, p));
    if (at == first_of.end()) continue;
    ++found;
    for (uint64_t k = 0; k < kDraws; ++k) ASSERT_EQ(replays[at->second][k], At(5, p + k)) << "replay " << at->second;
  }
  EXPECT_EQ(found, replays.size());
}

// A state is read as it was at one moment.
TEST_F(Threads, SeedAndOffsetAreReadTogether) {
  const int rounds = Loops(20'000, 3'000);
  Seed(1);
  std::atomic<bool> stop{false};
  // The seed tells which offset belongs to it.
  std::thread writer([&] {
    std::vector<uint8_t> state(16, 0);
    for (int i = 0; i < rounds; ++i) {
      state[0] = static_cast<uint8_t>(i % 2 + 1);
      state[8] = static_cast<uint8_t>((i % 2 + 1) * 4);
      ASSERT_TRUE(generator_->SetState(state).ok());
    }
    stop = true;
  });
  while (!stop.load()) {
    const auto state = *generator_->GetState();
    if (state[8] != 0) {
      ASSERT_EQ(state[8], state[0] * 4) << "halves of two states";
    }
  }
  writer.join();
}

}  // namespace
}  // namespace reprise::testing
