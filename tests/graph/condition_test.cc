// SPDX-License-Identifier: Apache-2.0
//
// Conditions in captured graphs: bodies, their memory, and what is left when one goes wrong.
#include "fixture.h"

namespace reprise::testing {
namespace {

class Conditions : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    flag_ = static_cast<bool*>(device_memory::Allocate(1, stream_));
    x_ = Floats(1, stream_);
  }
  void TearDown() override {
    device_memory::Free(flag_);
    device_memory::Free(x_);
    GraphTest::TearDown();
  }
  float Run(Graph& graph, bool flag) {
    *flag_ = flag;
    *x_ = 1;
    graph.Replay();
    Wait(stream_);
    return *x_;
  }
  bool* flag_ = nullptr;
  float* x_ = nullptr;
};

TEST_F(Conditions, TheBodyRunsIfTheByteIsSetThen) {
  Graph graph;
  {
    Capture capture(graph, stream_);
    void* body = graph.BeginIf(flag_);
    EXPECT_EQ(CurrentStream(), body);
    Apply(body, x_, 1, [](float v) { return v + 10; });
    graph.EndConditional();
    EXPECT_EQ(CurrentStream(), stream_);
    Apply(stream_, x_, 1, [](float v) { return 2 * v; });
  }
  EXPECT_EQ(Run(graph, false), 2);
  EXPECT_EQ(Run(graph, true), 22);
  EXPECT_EQ(Run(graph, false), 2);
}

TEST_F(Conditions, BodiesNestAndAllocateFromTheRootsPool) {
  Graph graph;
  void *in_body = nullptr, *in_inner = nullptr, *after = nullptr;
  int users = 0;
  {
    Capture capture(graph, stream_);
    void* body = graph.BeginIf(flag_);
    in_body = device_memory::Allocate(400);
    Apply(body, x_, 1, [](float v) { return v + 1; });
    void* inner = graph.BeginIf(flag_);
    in_inner = device_memory::Allocate(400);
    Apply(inner, x_, 1, [](float v) { return v + 100; });
    graph.EndConditional();
    graph.EndConditional();
    after = device_memory::Allocate(400);
    users = 1;
  }
  EXPECT_EQ(device_memory::PoolUsers(0, graph.pool()), users);
  uint64_t live = 0;  // in blocks of 512 bytes, also where these have red zones
  for (const SegmentInfo& segment : device_memory::Snapshot(graph.pool()).segments) live += segment.allocated_size;
  EXPECT_EQ(live, 3 * 512u);
  EXPECT_EQ(Run(graph, true), 102);
  EXPECT_EQ(Run(graph, false), 1);
  for (void* block : {in_body, in_inner, after}) device_memory::Free(block);
}

TEST_F(Conditions, ABodyIsCapturedOnAStreamOfTheCaller) {
  Graph graph;
  aclrtStream body = nullptr;
  ASSERT_EQ(aclrtCreateStream(&body), 0);
  {
    Capture capture(graph, stream_);
    EXPECT_TRUE(Refused(107000, "being captured already", [&] { (void)graph.BeginIf(flag_, stream_); }));
    for (int turn = 0; turn < 2; ++turn) {  // it outlives the body, and serves the next one
      EXPECT_EQ(graph.BeginIf(flag_, body), body);
      EXPECT_EQ(CurrentStream(), body);
      EXPECT_TRUE(Refused(107000, "being captured already", [&] { (void)graph.BeginIf(flag_, body); }));
      Apply(body, x_, 1, [](float v) { return v + 10; });
      graph.EndConditional();
      EXPECT_EQ(CurrentStream(), stream_);
    }
  }
  EXPECT_EQ(Run(graph, false), 1);
  EXPECT_EQ(Run(graph, true), 21);
  EXPECT_EQ(StatusOf(body), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  EXPECT_EQ(aclrtDestroyStream(body), 0);
}

TEST_F(Conditions, ThePredicateMustBeOnTheDevice) {
  Graph graph;
  bool on_stack = true;
  Capture capture(graph, stream_);
  EXPECT_TRUE(Refused(107000, "must be on the device", [&] { (void)graph.BeginIf(&on_stack); }));
  capture.End();
  EXPECT_EQ(graph.state(), GraphState::kReady);
}

TEST_F(Conditions, AnAbandonedBodyFailsTheCaptureButNotTheRestOfIt) {
  const Books before = Books::Take();
  Graph graph;
  EXPECT_TRUE(Refused(107029, "no body", [&] { graph.AbandonConditional("nothing"); }));
  graph.CaptureBegin();
  void* body = graph.BeginIf(flag_);
  Apply(body, x_, 1, [](float v) { return v; });
  graph.AbandonConditional("no such file");
  EXPECT_EQ(CurrentStream(), stream_);
  EXPECT_EQ(StatusOf(stream_), ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE);
  body = graph.BeginIf(flag_);
  Apply(body, x_, 1, [](float v) { return v; });
  graph.EndConditional();
  Apply(stream_, x_, 1, [](float v) { return v; });
  EXPECT_TRUE(Refused(107045, "no such file", [&] { graph.CaptureEnd(); }));
  EXPECT_EQ(graph.state(), GraphState::kFailed);
  EXPECT_EQ(StatusOf(stream_), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  device_memory::EmptyCache();
  EXPECT_EQ(Books::Take(), before);
}

TEST_F(Conditions, AnOpenBodyFailsTheCaptureAndStreamsAreRestored) {
  const Books before = Books::Take();
  Graph graph;
  graph.CaptureBegin();
  void* body = graph.BeginIf(flag_);
  device_memory::Free(device_memory::Allocate(1 << 20));
  Apply(body, x_, 1, [](float v) { return v; });
  EXPECT_TRUE(Refused(107045, "still open", [&] { graph.CaptureEnd(); }));
  EXPECT_EQ(graph.state(), GraphState::kFailed);
  EXPECT_EQ(CurrentStream(), stream_);
  EXPECT_EQ(StatusOf(stream_), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  device_memory::EmptyCache();
  EXPECT_EQ(Books::Take(), before);
}

TEST_F(Conditions, AScopeLeftInsideABodyRestoresEverything) {
  const Books before = Books::Take();
  Graph graph;
  try {
    Capture capture(graph, stream_);
    (void)graph.BeginIf(flag_);
    (void)graph.BeginIf(flag_);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(graph.state(), GraphState::kEmpty);
  EXPECT_EQ(CurrentStream(), stream_);
  EXPECT_EQ(StatusOf(stream_), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  device_memory::EmptyCache();
  EXPECT_EQ(Books::Take(), before);
}

}  // namespace
}  // namespace reprise::testing
