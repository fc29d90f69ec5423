// SPDX-License-Identifier: Apache-2.0
//
// reprise::Graph: its states, what each call refuses, and what is left after every way out of a capture.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "fixture.h"

namespace reprise::testing {
namespace {

using Lifecycle = GraphTest;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_F(Lifecycle, CapturedWorkRunsAtEachReplayAndNotBefore) {
  Graph graph;
  float* x = Floats(4, stream_);
  std::fill(x, x + 4, 1.0f);
  {
    Capture capture(graph, stream_);
    Apply(stream_, x, 4, [](float v) { return 2 * v; });
  }
  EXPECT_EQ(graph.state(), GraphState::kReady);
  EXPECT_EQ(x[0], 1.0f);
  for (int i = 0; i < 3; ++i) graph.Replay();
  Wait(stream_);
  EXPECT_EQ(x[3], 8.0f);
  device_memory::Free(x);
}

TEST_F(Lifecycle, NothingIsPossibleWithoutACapture) {
  Graph graph;
  EXPECT_TRUE(Refused(507011, "without a preceding successful capture", [&] { graph.Replay(); }));
  EXPECT_TRUE(Refused(507011, "without a preceding successful capture", [&] { (void)graph.pool(); }));
  EXPECT_TRUE(Refused(507011, "capture_end", [&] { graph.Instantiate(); }));
  EXPECT_TRUE(Refused(507011, "keep_graph=True", [&] { (void)graph.raw_graph(); }));
  EXPECT_TRUE(Refused(507011, "without a preceding", [&] { (void)graph.raw_executable(); }));
  EXPECT_TRUE(Refused(507011, "without a preceding", [&] { (void)graph.memory(); }));
  EXPECT_TRUE(Refused(107029, "capture_begin", [&] { graph.CaptureEnd(); }));
  EXPECT_TRUE(Refused(107029, "not capturing", [&] { (void)graph.BeginIf(&graph); }));
  EXPECT_TRUE(Refused(107029, "no body", [&] { graph.EndConditional(); }));
  EXPECT_FALSE(graph.Dump("/nonexistent/folder/graph.json"));
  graph.Reset();
  EXPECT_EQ(graph.state(), GraphState::kEmpty);
}

TEST_F(Lifecycle, ASecondCaptureNeedsAReset) {
  Graph graph;
  graph.CaptureBegin();
  EXPECT_TRUE(Refused(107026, "already capturing", [&] { graph.CaptureBegin(); }));
  graph.CaptureEnd();
  EXPECT_TRUE(Refused(107026, "already owns a captured graph", [&] { graph.CaptureBegin(); }));
  graph.Reset();
  graph.CaptureBegin();
  graph.CaptureEnd();
  EXPECT_EQ(graph.state(), GraphState::kReady);
}

TEST_F(Lifecycle, TheDefaultStreamAndCapturedStreamsAreRefused) {
  const Books before = Books::Take();
  Graph graph, other;
  SetCurrentStream(nullptr);
  EXPECT_TRUE(Refused(107031, "non-default stream", [&] { graph.CaptureBegin(); }));
  SetCurrentStream(stream_);
  graph.CaptureBegin();
  EXPECT_TRUE(Refused(107027, "captured already", [&] { other.CaptureBegin(); }));
  EXPECT_EQ(other.state(), GraphState::kEmpty);
  graph.CaptureEnd();
  graph.Replay();
  Wait(stream_);
  graph.Reset();
  EXPECT_EQ(Books::Take(), before);
}

TEST_F(Lifecycle, BadOptionsChangeNothing) {
  const Books before = Books::Take();
  Graph graph;
  Graph::CaptureOptions both;
  both.pool = {1, 2};
  EXPECT_TRUE(Refused(107000, "not a pool", [&] { graph.CaptureBegin(both); }));
  Graph::CaptureOptions mode;
  mode.mode = static_cast<CaptureMode>(7);
  EXPECT_TRUE(Refused(107000, "mode is 7", [&] { graph.CaptureBegin(mode); }));
  Graph::CaptureOptions stale;
  stale.stream = reinterpret_cast<void*>(0x1234);
  EXPECT_TRUE(Refused(107017, "", [&] { graph.CaptureBegin(stale); }));
  EXPECT_EQ(StatusOf(stream_), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  EXPECT_EQ(Books::Take(), before);
  graph.CaptureBegin();
  graph.CaptureEnd();
}

TEST_F(Lifecycle, EndOnAnotherStreamLeavesTheCaptureOpen) {
  Graph graph;
  aclrtStream other = NewStream();
  graph.CaptureBegin();
  {
    const StreamGuard guard(other);
    EXPECT_TRUE(Refused(107036, "same stream", [&] { graph.CaptureEnd(); }));
  }
  EXPECT_EQ(graph.state(), GraphState::kCapturing);
  graph.CaptureEnd();
  EXPECT_EQ(graph.state(), GraphState::kReady);
}

TEST_F(Lifecycle, EndOnAnotherThreadLeavesTheCaptureOpenUnlessRelaxed) {
  Graph graph;
  graph.CaptureBegin();
  aclrtContext context = nullptr;
  ASSERT_EQ(0, aclrtGetCurrentContext(&context));
  const auto end = [&] {
    aclrtSetCurrentContext(context);
    const StreamGuard guard(stream_);
    graph.CaptureEnd();
  };
  std::thread([&] { EXPECT_TRUE(Refused(107038, "same thread", end)); }).join();
  EXPECT_EQ(graph.state(), GraphState::kCapturing);
  graph.CaptureEnd();
  graph.Reset();
  Graph::CaptureOptions relaxed;
  relaxed.mode = CaptureMode::kRelaxed;
  graph.CaptureBegin(relaxed);
  std::thread([&] { EXPECT_EQ(CodeOf(end), 0); }).join();
  EXPECT_EQ(graph.state(), GraphState::kReady);
}

TEST_F(Lifecycle, AnUnjoinedStreamFailsTheCaptureAndLeavesNothing) {
  const Books before = Books::Take();
  Graph graph;
  aclrtStream side = NewStream();
  aclrtEvent event = nullptr;
  ASSERT_EQ(0, aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
  graph.CaptureBegin();
  void* block = device_memory::Allocate(1000, stream_);
  ASSERT_EQ(0, aclrtRecordEvent(event, stream_));
  ASSERT_EQ(0, aclrtStreamWaitEvent(side, event));
  device_memory::Free(block);
  EXPECT_TRUE(Refused(107025, "not joined", [&] { graph.CaptureEnd(); }));
  EXPECT_EQ(graph.state(), GraphState::kFailed);
  EXPECT_EQ(StatusOf(stream_), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  EXPECT_TRUE(Refused(507011, "failed", [&] { graph.Replay(); }));
  device_memory::EmptyCache();
  EXPECT_EQ(Books::Take(), before);
  // A failed graph captures again without a reset.
  graph.CaptureBegin();
  graph.CaptureEnd();
  EXPECT_EQ(graph.state(), GraphState::kReady);
  ASSERT_EQ(0, aclrtDestroyEvent(event));
}

TEST_F(Lifecycle, AScopeThatIsLeftByAnExceptionDiscardsItsCapture) {
  const Books before = Books::Take();
  Graph graph;
  aclrtStream other = NewStream();
  SetCurrentStream(other);
  try {
    Capture capture(graph, stream_);
    EXPECT_EQ(CurrentStream(), stream_);
    device_memory::Free(device_memory::Allocate(1 << 20));
    throw std::runtime_error("the user's");
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the user's");
  }
  EXPECT_EQ(graph.state(), GraphState::kEmpty);
  EXPECT_EQ(CurrentStream(), other);
  EXPECT_EQ(StatusOf(stream_), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  device_memory::EmptyCache();
  EXPECT_EQ(Books::Take(), before);
}

TEST_F(Lifecycle, AScopeEndsItsCaptureOnce) {
  Graph graph;
  {
    Capture capture(graph, stream_);
    capture.End();
    EXPECT_EQ(graph.state(), GraphState::kReady);
    EXPECT_NO_THROW(capture.End());
  }
  EXPECT_EQ(graph.state(), GraphState::kReady);
}

TEST_F(Lifecycle, AGraphMovesWithAnOpenCapture) {
  Graph first;
  first.CaptureBegin();
  float* x = Floats(1, stream_);
  Graph second = std::move(first);
  EXPECT_EQ(&Graph::Capturing(stream_), &second);
  Apply(stream_, x, 1, [](float) { return 5.0f; });
  second.CaptureEnd();
  Graph third;
  third = std::move(second);
  third.Replay();
  Wait(stream_);
  EXPECT_EQ(*x, 5.0f);
  device_memory::Free(x);
}

TEST_F(Lifecycle, CapturingNamesTheGraph) {
  EXPECT_TRUE(Refused(107029, "not being captured", [] { (void)Graph::Capturing(); }));
  ASSERT_EQ(0, aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  EXPECT_TRUE(Refused(107029, "not by a reprise::Graph", [] { (void)Graph::Capturing(); }));
  aclmdlRI model = nullptr;
  ASSERT_EQ(0, aclmdlRICaptureEnd(stream_, &model));
  ASSERT_EQ(0, aclmdlRIDestroy(model));
}

TEST_F(Lifecycle, AnObjectThatGoesWhileItCapturesAbortsTheCapture) {
  const Books before = Books::Take();
  {
    Graph graph;
    graph.CaptureBegin();
    device_memory::Free(device_memory::Allocate(100));
  }
  EXPECT_EQ(StatusOf(stream_), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  device_memory::EmptyCache();
  EXPECT_EQ(Books::Take(), before);
}

TEST_F(Lifecycle, KeepGraphInstantiatesWhenAsked) {
  Graph graph(Graph::Options{true});
  float* x = Floats(1, stream_);
  *x = 1;
  {
    Capture capture(graph, stream_);
    Apply(stream_, x, 1, [](float v) { return v + 1; });
  }
  EXPECT_EQ(graph.state(), GraphState::kCaptured);
  EXPECT_FALSE(graph.pool().is_default());
  EXPECT_NE(graph.raw_graph(), nullptr);
  EXPECT_TRUE(Refused(507011, "not instantiated", [&] { (void)graph.raw_executable(); }));
  graph.Instantiate();
  graph.Instantiate();
  EXPECT_NE(graph.raw_executable(), nullptr);
  graph.Replay();
  Wait(stream_);
  EXPECT_EQ(*x, 2);

  Graph lazy(Graph::Options{true});
  lazy.CaptureBegin();
  Apply(stream_, x, 1, [](float v) { return 10 * v; });
  lazy.CaptureEnd();
  lazy.Replay();  // instantiates
  Wait(stream_);
  EXPECT_EQ(*x, 20);
  EXPECT_EQ(lazy.state(), GraphState::kReady);

  Graph plain;
  plain.CaptureBegin();
  plain.CaptureEnd();
  EXPECT_TRUE(Refused(507011, "not kept", [&] { plain.Instantiate(); }));
  device_memory::Free(x);
}

TEST_F(Lifecycle, ChangesOfTheRawGraphArePickedUpByInstantiate) {
  Graph graph(Graph::Options{true});
  auto* cell = static_cast<uint64_t*>(device_memory::Allocate(8, stream_));
  *cell = 0;
  {
    Capture capture(graph, stream_);
    ASSERT_EQ(0, aclrtValueWrite(cell, 1, 0, stream_));
  }
  uint32_t streams = 0;
  ASSERT_EQ(0, aclmdlRIGetStreams(graph.raw_graph(), nullptr, &streams));
  ASSERT_EQ(streams, 1u);
  aclrtStream lane = nullptr;
  ASSERT_EQ(0, aclmdlRIGetStreams(graph.raw_graph(), &lane, &streams));
  uint32_t tasks = 0;
  ASSERT_EQ(0, aclmdlRIGetTasksByStream(lane, nullptr, &tasks));
  std::vector<aclmdlRITask> all(tasks);
  ASSERT_EQ(0, aclmdlRIGetTasksByStream(lane, all.data(), &tasks));
  ASSERT_EQ(0, aclmdlRITaskDisable(all[0]));
  graph.Instantiate();
  graph.Replay();
  Wait(stream_);
  EXPECT_EQ(*cell, 0u);
  device_memory::Free(cell);
}

TEST_F(Lifecycle, ReplaysOfOneGraphNeverOverlap) {
  Graph graph;
  auto* sum = static_cast<int*>(device_memory::Allocate(8, stream_));
  sum[0] = sum[1] = 0;
  {
    Capture capture(graph, stream_);
    ASSERT_EQ(0, LaunchClosure(stream_, "two halves of one step", [sum] {
                const int before = sum[0]++;
                std::this_thread::yield();
                if (sum[0] != before + 1) sum[1] = 1;
                return 0;
              }));
  }
  aclrtContext context = nullptr;
  ASSERT_EQ(0, aclrtGetCurrentContext(&context));
  std::vector<std::thread> threads;
  constexpr int kThreads = 4, kReplays = 200;
  for (int i = 0; i < kThreads; ++i) {
    aclrtStream on = NewStream();
    threads.emplace_back([&, on] {
      aclrtSetCurrentContext(context);
      for (int k = 0; k < kReplays; ++k) graph.Replay(on);
      aclrtSynchronizeStream(on);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum[0], kThreads * kReplays);
  EXPECT_EQ(sum[1], 0);
  device_memory::Free(sum);
}

TEST_F(Lifecycle, ReplayIsRefusedOnACapturedStream) {
  Graph graph, outer;
  graph.CaptureBegin();
  graph.CaptureEnd();
  outer.CaptureBegin();
  EXPECT_TRUE(Refused(107027, "captur", [&] { graph.Replay(); }));
  outer.CaptureEnd();
  EXPECT_EQ(outer.state(), GraphState::kReady);
}

// As aclmdlRIExecuteAsync refuses them.
TEST_F(Lifecycle, ReplayIsRefusedOnStreamsThatExecuteNoGraphs) {
  Graph graph;
  graph.CaptureBegin();
  graph.CaptureEnd();
  aclrtStream storing = nullptr;
  ASSERT_EQ(0, aclrtCreateStreamWithConfig(&storing, 0, ACL_STREAM_PERSISTENT));
  EXPECT_TRUE(Refused(107000, "cannot execute a model", [&] { graph.Replay(storing); }));
  aclmdlRI built = nullptr;
  ASSERT_EQ(0, aclmdlRIBuildBegin(&built, 0));
  ASSERT_EQ(0, aclmdlRIBindStream(built, storing, ACL_MODEL_STREAM_FLAG_HEAD));
  EXPECT_TRUE(Refused(107000, "is bound to a built model", [&] { graph.Replay(storing); }));
  ASSERT_EQ(0, aclmdlRIDestroy(built));
  ASSERT_EQ(0, aclrtDestroyStream(storing));
}

TEST_F(Lifecycle, ResetWaitsForWhatRuns) {
  Graph graph;
  std::atomic<int> runs{0};
  {
    Capture capture(graph, stream_);
    ASSERT_EQ(0, LaunchClosure(stream_, "count", [&] {
                ++runs;
                return 0;
              }));
  }
  for (int i = 0; i < 50; ++i) graph.Replay();
  graph.Reset();
  EXPECT_EQ(runs, 50);
  EXPECT_EQ(graph.state(), GraphState::kEmpty);
  graph.Reset();
}

TEST_F(Lifecycle, AGraphOutlivesItsContextHarmlessly) {
  Graph graph;
  graph.CaptureBegin();
  graph.CaptureEnd();
  Graph open;
  open.CaptureBegin();
  ASSERT_EQ(0, aclrtResetDeviceForce(0));
  EXPECT_EQ(CodeOf([&] { graph.Replay(stream_); }) == 0, false);
  ASSERT_EQ(0, aclrtSetDevice(0));
  EXPECT_TRUE(Refused(107017, "", [&] { (void)graph.raw_executable(); }));
  graph.Reset();
  open.Reset();
  stream_ = NewStream();
  SetCurrentStream(stream_);
  graph.CaptureBegin();
  graph.CaptureEnd();
  EXPECT_EQ(graph.state(), GraphState::kReady);
}

TEST_F(Lifecycle, DumpsByTheEndingOfTheName) {
  Graph graph;
  float* x = Floats(1, stream_);
  {
    Capture capture(graph, stream_);
    Apply(stream_, x, 1, [](float v) { return v; });
  }
  const std::string folder = ::testing::TempDir() + "reprise_dumps_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  EXPECT_TRUE(graph.Dump(folder + "/graph.json"));
  EXPECT_TRUE(graph.Dump(folder + "/graph.dot"));
  EXPECT_TRUE(graph.Dump(folder + "/graph.svg"));
  EXPECT_THAT(ReadFile(folder + "/graph.json"), ::testing::HasSubstr("\"apply\""));
  EXPECT_THAT(ReadFile(folder + "/graph.dot"),
              ::testing::AllOf(::testing::StartsWith("digraph"), ::testing::HasSubstr("apply")));
  EXPECT_THAT(ReadFile(folder + "/graph.svg"), ::testing::HasSubstr("<svg"));
  EXPECT_TRUE(Refused(107009, "/nonexistent", [&] { graph.Dump("/nonexistent/graph.dot"); }));
  std::filesystem::remove_all(folder);
  device_memory::Free(x);
}

}  // namespace
}  // namespace reprise::testing
