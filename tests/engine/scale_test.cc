// SPDX-License-Identifier: Apache-2.0
//
// A million nodes on one stream, and hundreds of graphs replayed by many threads at once, with conditions inside each
// other. stress_million has the graph of a million nodes with forks and its price in memory; stress_threads has
// captures, updates and destructions side by side.
#include <barrier>
#include <stdexcept>
#include <thread>
#include <vector>

#include "engine.h"

namespace reprise::engine {
namespace {

class Scale : public Engine {
 protected:
  uint64_t* NewCells(size_t count) { return static_cast<uint64_t*>(NewMemory(count * 8)); }

  aclmdlRI ModelOf(aclrtStream stream) {
    aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
    aclmdlRI model = nullptr;
    EXPECT_EQ(aclmdlRICaptureGetInfo(stream, &status, &model), 0);
    return model;
  }
  struct Condition {
    uint64_t* cell = nullptr;
    aclmdlRI body = nullptr;
  };
  /// A condition with one body on a stream that is captured; `value` is what its cell holds when an execution begins.
  Condition AddCondition(aclrtStream stream, aclmdlRICondTaskType type, uint32_t value,
                         const std::function<void(uint64_t*)>& between = {}) {
    Condition condition;
    aclmdlRICondHandle handle = nullptr;
    EXPECT_ACL(0, aclmdlRICondHandleCreate(ModelOf(stream), value, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &handle));
    EXPECT_ACL(0, aclmdlRICondHandleGetCondPtr(handle, &condition.cell));
    if (between) between(condition.cell);
    aclmdlRICondTaskParams params = {};
    params.handle = handle;
    params.type = type;
    params.size = 1;
    params.modelRIArray = &condition.body;
    EXPECT_ACL(0, aclmdlRIAddCondTask(params, stream, 0));
    return condition;
  }
  void BeginBody(aclrtStream stream, aclmdlRI body) {
    EXPECT_ACL(0, aclmdlRICaptureToModelRIBegin(stream, body, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  }
  void EndBody(aclrtStream stream) {
    aclmdlRI body = nullptr;
    EXPECT_ACL(0, aclmdlRICaptureEnd(stream, &body));
  }

  static constexpr int kTurns = 3;
  static constexpr int kInner = 2;
  /// cell += 1; kTurns times: { cell += 10; kInner times: cell += 100; if the turn is odd: cell += 1000 }
  static constexpr uint64_t kNested = 1 + kTurns * 10 + kTurns * kInner * 100 + 2 * 1000;
  aclmdlRI CaptureNested(aclrtStream origin, const aclrtStream (&bodies)[3], uint64_t* cell) {
    EXPECT_ACL(0, aclmdlRICaptureBegin(origin, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    EXPECT_EQ(Axpb(origin, cell, 1, 1), 0);
    const Condition loop = AddCondition(origin, ACL_MODEL_RI_COND_TYPE_WHILE, kTurns);
    BeginBody(bodies[0], loop.body);
    EXPECT_EQ(Axpb(bodies[0], cell, 1, 10), 0);
    // Defaults come once in an execution; the inner loop gets its number in each turn of the outer one.
    const Condition inner = AddCondition(bodies[0], ACL_MODEL_RI_COND_TYPE_WHILE, 0,
                                         [&](uint64_t* at) { EXPECT_EQ(Axpb(bodies[0], at, 0, kInner), 0); });
    BeginBody(bodies[1], inner.body);
    EXPECT_EQ(Axpb(bodies[1], cell, 1, 100), 0);
    EXPECT_EQ(Axpb(bodies[1], inner.cell, 1, UINT64_MAX), 0);  // one less
    EndBody(bodies[1]);
    const Condition odd = AddCondition(bodies[0], ACL_MODEL_RI_COND_TYPE_IF, 0,
                                       [&](uint64_t* at) { EXPECT_EQ(Parity(bodies[0], at, loop.cell), 0); });
    BeginBody(bodies[2], odd.body);
    EXPECT_EQ(Axpb(bodies[2], cell, 1, 1000), 0);
    EndBody(bodies[2]);
    EXPECT_EQ(Axpb(bodies[0], loop.cell, 1, UINT64_MAX), 0);
    EndBody(bodies[0]);
    aclmdlRI model = nullptr;
    EXPECT_ACL(0, aclmdlRICaptureEnd(origin, &model));
    return model;
  }
};

TEST_F(Scale, AMillionNodesOnOneStream) {
  const Alarm alarm;
  const int64_t nodes = Loops(1'000'000, 50'000);
  const aclrtStream stream = NewStream();
  uint64_t* const cell = NewCells(1);
  const aclmdlRI model = CaptureChain(stream, cell, nodes);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(aclmdlRIExecuteAsync(model, stream), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  EXPECT_EQ(*cell, AxpbOf(0, 2 * nodes));
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  EXPECT_ACL(0, aclrtFree(cell));
  EXPECT_ACL(0, aclrtDestroyStream(stream));
}

// Eight threads with streams of their own replay three hundred graphs, each its share, and all of them a few that they
// share. Every third graph has conditions inside each other.
TEST_F(Scale, HundredsOfGraphsFromManyThreads) {
  const Alarm alarm;
  constexpr int kThreads = 8;
  const int graphs = Loops(300, 40);
  const int rounds = Loops(20, 4);
  constexpr int kShared = 4;
  constexpr int kNodes = 25;
  const aclrtStream origin = NewStream();
  const aclrtStream bodies[3] = {NewStream(), NewStream(), NewStream()};
  uint64_t* const cells = NewCells(size_t{2} * static_cast<size_t>(graphs));
  std::vector<aclmdlRI> models;
  models.reserve(static_cast<size_t>(graphs));
  for (int i = 0; i < graphs; ++i) {
    uint64_t* const cell = cells + 2 * i;
    models.push_back(i % 3 == 0   ? CaptureNested(origin, bodies, cell)
                     : i % 3 == 1 ? CaptureChain(origin, cell, kNodes)
                                  : CaptureForks(origin, bodies[0], cell, 2, kNodes));
  }
  ASSERT_FALSE(HasFailure());
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      EXPECT_EQ(aclrtSetCurrentContext(context_), 0);
      const aclrtStream own = NewStream();
      start.arrive_and_wait();
      for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < kShared; ++i) EXPECT_EQ(aclmdlRIExecuteAsync(models[static_cast<size_t>(i)], own), 0);
        for (int i = kShared + number; i < graphs; i += kThreads) {
          EXPECT_EQ(aclmdlRIExecuteAsync(models[static_cast<size_t>(i)], own), 0);
        }
        if (round % 4 == number % 4) {
          EXPECT_EQ(aclrtSynchronizeStream(own), 0);
        }
      }
      EXPECT_EQ(aclrtSynchronizeStream(own), 0);
      EXPECT_EQ(aclrtDestroyStream(own), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  int wrong = 0;
  for (int i = 0; i < graphs; ++i) {
    const int64_t executions = int64_t{rounds} * (i < kShared ? kThreads : 1);
    const uint64_t* const cell = cells + 2 * i;
    const uint64_t expected = i % 3 == 0   ? kNested * static_cast<uint64_t>(executions)
                              : i % 3 == 1 ? AxpbOf(0, executions * kNodes)
                                           : AxpbOf(0, executions * 2 * kNodes);
    wrong += cell[0] != expected || cell[1] != (i % 3 == 2 ? expected : 0) ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0) << "of " << graphs << " graphs; the first cell of nested conditions holds " << cells[0];
  for (const aclmdlRI model : models) EXPECT_EQ(aclmdlRIDestroy(model), 0);
  EXPECT_ACL(0, aclrtFree(cells));
}

}  // namespace
}  // namespace reprise::engine
