// SPDX-License-Identifier: Apache-2.0
//
// Random numbers in graphs: each replay draws what the same calls would have drawn eagerly at that moment.
#include <reprise/random.h>

#include <numeric>
#include <set>
#include <thread>

#include "fixture.h"

namespace reprise::testing {
namespace {

constexpr size_t kCount = 1000;
constexpr auto kFloat = ElementType::kFloat32;
using Numbers = std::vector<float>;

class RandomGraph : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    x_ = Floats(kCount, stream_);
  }
  void TearDown() override {
    device_memory::Free(x_);
    GraphTest::TearDown();
  }
  Numbers Read(aclrtStream stream = nullptr) {
    Wait(stream != nullptr ? stream : stream_);
    return Numbers(x_, x_ + kCount);
  }
  void Draw(Generator& generator) { DrawUniform(nullptr, generator, x_, kFloat, kCount); }
  Numbers Eager(Generator& generator) {
    Draw(generator);
    return Read();
  }
  Numbers Replay(Graph& graph) {
    std::fill(x_, x_ + kCount, -1.0f);
    graph.Replay();
    return Read();
  }
  float* x_ = nullptr;
};

TEST_F(RandomGraph, ReplaysGoOnWhereEagerDrawsWouldHave) {
  Generator generator;
  generator.ManualSeed(3);
  std::vector<Numbers> expected;
  for (int i = 0; i < 5; ++i) expected.push_back(Eager(generator));
  generator.ManualSeed(3);
  Graph graph;
  {
    Capture capture(graph);
    Draw(generator);
  }
  EXPECT_EQ(generator.offset(), 0u) << "a capture draws nothing";
  EXPECT_EQ(Replay(graph), expected[0]);
  EXPECT_EQ(Replay(graph), expected[1]);
  EXPECT_EQ(Eager(generator), expected[2]);
  EXPECT_EQ(Replay(graph), expected[3]);
  generator.ManualSeed(3);
  EXPECT_EQ(Replay(graph), expected[0]);
  EXPECT_NE(expected[0], expected[1]);
}

TEST_F(RandomGraph, TwoGeneratorsAndTheDefaultOneInOneGraph) {
  Generator a, b, standard = Generator::Default();
  const auto seed = [&] {
    a.ManualSeed(1);
    b.ManualSeed(2);
    standard.ManualSeed(3);
  };
  float* parts[3] = {Floats(kCount, stream_), Floats(kCount, stream_), Floats(kCount, stream_)};
  const auto draw = [&] {
    DrawNormal(nullptr, a, parts[0], kFloat, kCount);
    DrawNormal(nullptr, b, parts[1], kFloat, kCount);
    DrawNormal(nullptr, standard, parts[2], kFloat, kCount);
    DrawNormal(nullptr, a, x_, kFloat, kCount);
  };
  const auto read = [&] {
    std::vector<Numbers> all{Read()};
    for (const float* part : parts) all.emplace_back(part, part + kCount);
    return all;
  };
  seed();
  draw();
  const auto first = read();
  draw();
  const auto second = read();
  Graph graph;
  {
    Capture capture(graph);
    draw();
  }
  seed();
  graph.Replay();
  EXPECT_EQ(read(), first);
  graph.Replay();
  EXPECT_EQ(read(), second);
  EXPECT_EQ(a.offset(), 16u);
  EXPECT_EQ(b.offset(), 8u);
  for (float* part : parts) device_memory::Free(part);
}

TEST_F(RandomGraph, CellsAreTwoSmallBlocksOutsideOfThePoolWhileTheGraphLives) {
  Generator generator;
  const Books before = Books::Take();
  {
    Graph without, with;
    without.CaptureBegin();
    without.CaptureEnd();
    EXPECT_EQ(Books::Take().device_live, before.device_live);
    {
      Capture capture(with);
      Draw(generator);
      Draw(generator);
    }
    EXPECT_EQ(Books::Take().device_live, before.device_live + 2);
    EXPECT_EQ(with.memory().device_reserved_bytes, 0u);
    for (int i = 0; i < 10; ++i) with.Replay();
    Wait(stream_);
  }
  EXPECT_EQ(Books::Take().device_live, before.device_live);
}

TEST_F(RandomGraph, AFailedCaptureChargesNothing) {
  Generator generator;
  generator.ManualSeed(8);
  const Numbers expected = Eager(generator);
  generator.ManualSeed(8);
  Graph graph;
  aclrtStream side = NewStream();
  aclrtEvent event = nullptr;
  ASSERT_EQ(0, aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
  const int64_t live = device_memory::Stats(0).allocation.all.current;
  {
    const StreamGuard guard(stream_);
    graph.CaptureBegin();
    Draw(generator);
    ASSERT_EQ(0, aclrtRecordEvent(event, stream_));
    ASSERT_EQ(0, aclrtStreamWaitEvent(side, event));
    EXPECT_EQ(CodeOf([&] { graph.CaptureEnd(); }), 107025);
  }
  EXPECT_EQ(generator.offset(), 0u);
  EXPECT_EQ(device_memory::Stats(0).allocation.all.current, live) << "the cells are still there";
  EXPECT_EQ(Eager(generator), expected);
  ASSERT_EQ(0, aclrtDestroyEvent(event));
}

TEST_F(RandomGraph, TwoGraphsShareAGenerator) {
  Generator generator;
  generator.ManualSeed(5);
  std::vector<Numbers> expected;
  for (int i = 0; i < 6; ++i) expected.push_back(Eager(generator));
  generator.ManualSeed(5);
  Graph one, two;
  {
    Capture capture(one);
    Draw(generator);
  }
  {
    Capture capture(two);
    Draw(generator);
  }
  for (int i = 0; i < 6; ++i) EXPECT_EQ(Replay(i % 3 == 1 ? two : one), expected[static_cast<size_t>(i)]);
}

TEST_F(RandomGraph, ReplaysOnSeveralStreamsDrawEachNumberOnce) {
  // Without a wait in between: the cells of one replay must not be written while the one before reads them.
  Generator generator;
  generator.ManualSeed(11);
  constexpr int kReplays = 60;
  std::multiset<float> expected;
  for (int i = 0; i < kReplays; ++i) expected.insert(Eager(generator)[7]);
  generator.ManualSeed(11);
  Graph graph;
  std::multiset<float> drawn;
  {
    Capture capture(graph);
    Draw(generator);
    ASSERT_EQ(0, LaunchClosure(stream_, "note", [&] {
                drawn.insert(x_[7]);  // executions of one graph never overlap
                return 0;
              }));
  }
  aclrtStream streams[3] = {stream_, NewStream(), NewStream()};
  for (int i = 0; i < kReplays; ++i) graph.Replay(streams[i % 3]);
  for (aclrtStream stream : streams) Wait(stream);
  EXPECT_EQ(drawn, expected);
}

TEST_F(RandomGraph, SideStreamsOfTheCaptureDrawToo) {
  Generator generator;
  generator.ManualSeed(21);
  const Numbers expected = Eager(generator);
  generator.ManualSeed(21);
  Graph graph;
  aclrtStream side = NewStream();
  aclrtEvent fork = nullptr, join = nullptr;
  ASSERT_EQ(0, aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
  ASSERT_EQ(0, aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
  {
    Capture capture(graph);
    ASSERT_EQ(0, aclrtRecordEvent(fork, stream_));
    ASSERT_EQ(0, aclrtStreamWaitEvent(side, fork));
    DrawUniform(side, generator, x_, kFloat, kCount);
    ASSERT_EQ(0, aclrtRecordEvent(join, side));
    ASSERT_EQ(0, aclrtStreamWaitEvent(stream_, join));
  }
  EXPECT_EQ(Replay(graph), expected);
  ASSERT_EQ(0, aclrtDestroyEvent(fork));
  ASSERT_EQ(0, aclrtDestroyEvent(join));
}

TEST_F(RandomGraph, CapturesThatNoGraphOwnsAndBodiesOfConditionsAreRefused) {
  Generator generator;
  ASSERT_EQ(0, aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  EXPECT_TRUE(Refused(107030, "reprise::Graph", [&] { Draw(generator); }));
  aclmdlRI model = nullptr;
  ASSERT_EQ(0, aclmdlRICaptureEnd(stream_, &model));
  ASSERT_EQ(0, aclmdlRIDestroy(model));

  auto* flag = static_cast<bool*>(device_memory::Allocate(1));
  Graph graph;
  {
    Capture capture(graph);
    (void)graph.BeginIf(flag);
    EXPECT_TRUE(Refused(107030, "RNG inside conditional nodes is not supported", [&] { Draw(generator); }));
    graph.EndConditional();
  }
  EXPECT_EQ(graph.state(), GraphState::kReady);
  device_memory::Free(flag);
}

TEST_F(RandomGraph, ThreadsThatReplayAndDrawTakeEachNumberOnce) {
  Generator generator;
  generator.ManualSeed(77);
  constexpr int kEach = 40, kThreads = 3;
  std::multiset<float> expected;
  for (int i = 0; i < kEach * (kThreads + 1); ++i) expected.insert(Eager(generator)[0]);
  generator.ManualSeed(77);
  Graph graph;
  std::multiset<float> drawn;
  {
    Capture capture(graph);
    Draw(generator);
    ASSERT_EQ(0, LaunchClosure(stream_, "note", [&] {
                drawn.insert(x_[0]);
                return 0;
              }));
  }
  aclrtContext context = nullptr;
  ASSERT_EQ(0, aclrtGetCurrentContext(&context));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    aclrtStream own = NewStream();
    threads.emplace_back([&, own] {
      aclrtSetCurrentContext(context);
      for (int i = 0; i < kEach; ++i) graph.Replay(own);
      aclrtSynchronizeStream(own);
    });
  }
  std::multiset<float> eager;
  aclrtStream own = NewStream();
  float* y = Floats(kCount, own);
  for (int i = 0; i < kEach; ++i) {
    DrawUniform(own, generator, y, kFloat, kCount);
    Wait(own);
    eager.insert(y[0]);
  }
  for (std::thread& thread : threads) thread.join();
  drawn.merge(eager);
  EXPECT_EQ(drawn, expected);
  device_memory::Free(y);
}

}  // namespace
}  // namespace reprise::testing
