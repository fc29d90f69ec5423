// SPDX-License-Identifier: Apache-2.0
//
// Every acquisition of a capture may fail: in its beginning, its body and its end. Each time nothing is left of it, and
// the same capture then succeeds.
#include "base/fault.h"

#include "fixture.h"

namespace reprise::testing {
namespace {

using Faults = GraphTest;

struct Program {
  const char* name;
  void (*body)(aclrtStream stream, Graph& graph);
};

void Plain(aclrtStream stream, Graph&) {
  void* block = device_memory::Allocate(1000, stream);
  const int set = aclrtMemsetAsync(block, 1000, 1, 1000, stream);
  device_memory::Free(block);
  if (set != 0) throw std::runtime_error("refused");
}

void WithPinnedMemory(aclrtStream stream, Graph&) {
  void* pinned = host_memory::Allocate(100);
  void* device = nullptr;
  try {
    device = device_memory::Allocate(100, stream);
  } catch (...) {
    host_memory::Free(pinned);
    throw;
  }
  const int copied = aclrtMemcpyAsync(device, 100, pinned, 100, ACL_MEMCPY_HOST_TO_DEVICE, stream);
  if (copied == 0) host_memory::RecordUse(pinned, stream);
  device_memory::Free(device);
  host_memory::Free(pinned);
  if (copied != 0) throw std::runtime_error("refused");
}

void WithACondition(aclrtStream stream, Graph& graph) {
  void* flag = device_memory::Allocate(1, stream);
  try {
    (void)graph.BeginIf(flag);
    device_memory::Free(device_memory::Allocate(100));
    graph.EndConditional();
  } catch (...) {
    device_memory::Free(flag);
    throw;
  }
  device_memory::Free(flag);
}

TEST_F(Faults, AtEachStepOfEachCapture) {
  // What is made once for the process is there before the counting begins.
  {
    Graph warm;
    Capture capture(warm, stream_);
    WithACondition(stream_, warm);
    WithPinnedMemory(stream_, warm);
  }
  const Program programs[] = {{"plain", Plain}, {"pinned", WithPinnedMemory}, {"condition", WithACondition}};
  for (const Program& program : programs) {
    int n = 1;
    for (bool through = false; !through; ++n) {
      ASSERT_LT(n, 200) << program.name << " never gets through";
      SCOPED_TRACE(std::string(program.name) + ", acquisition " + std::to_string(n));
      device_memory::EmptyCache();
      host_memory::EmptyCache();
      const Books before = Books::Take();
      const PoolId pool = NewPoolId();
      Graph graph;
      Graph::CaptureOptions options;
      options.stream = stream_;
      options.pool = pool;
      const auto run = [&] {
        Capture capture(graph, options);
        program.body(stream_, graph);
      };
      ArmFault("*", n);
      bool threw = false;
      try {
        run();
      } catch (const std::exception&) {
        threw = true;
      }
      const bool fired = FaultFired();
      ArmFault("*", 0);
      through = !fired;
      EXPECT_TRUE(fired || !threw) << "failed although nothing was made to fail";
      EXPECT_EQ(StatusOf(stream_), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
      EXPECT_EQ(CurrentStream(), stream_);
      if (threw) {
        EXPECT_TRUE(graph.state() == GraphState::kEmpty || graph.state() == GraphState::kFailed);
        EXPECT_EQ(device_memory::PoolUsers(0, pool), 0) << "the pool is still owed";
      } else {
        graph.Replay();
        Wait(stream_);
      }
      graph.Reset();
      device_memory::EmptyCache();
      host_memory::EmptyCache();
      EXPECT_EQ(Books::Take(), before);
      // The same capture, undisturbed.
      run();
      EXPECT_EQ(graph.state(), GraphState::kReady);
      graph.Replay();
      Wait(stream_);
    }
    EXPECT_GT(n, 8) << program.name << " passes too few fault points to mean anything";
  }
}

}  // namespace
}  // namespace reprise::testing
