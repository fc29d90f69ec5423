// SPDX-License-Identifier: Apache-2.0
//
// Turns of executions of one replay, one of which is given up while the one before it ends.
#include <gtest/gtest.h>

#include "scenario.h"
// Behind the shim:
#include "exec/plan.h"
#include "exec/replay.h"
#include "expect.h"

namespace interleave {
namespace {

using reprise::device::RunContext;
using reprise::device::Runnable;
using reprise::exec::Plan;
using reprise::exec::Replay;
using reprise::ir::RunResult;
namespace ir = reprise::ir;

struct CountPayload {
  std::atomic<int>* runs;
};
const ir::TaskType kCount = {.kind = ir::TaskKind::kKernel,
                             .name = "COUNT",
                             .run =
                                 [](RunContext&, void* payload) {
                                   static_cast<CountPayload*>(payload)->runs->fetch_add(1);
                                   return RunResult::kDone;
                                 },
                             .never_waits = true};

/// Runs one execution, as a stream does.
class Execution final : public Runnable {
 public:
  Execution(Replay& replay, uint64_t ticket) : replay_(replay) { progress_.ticket = ticket; }
  Outcome Run(RunContext& context) override {
    if (over_) return Outcome::kIdle;  // a wake-up that came late
    const RunResult result = replay_.Run(context, progress_);
    if (result == RunResult::kParked) return Outcome::kIdle;
    if (result == RunResult::kNeedsWorker) return Outcome::kNeedsWorker;
    over_ = true;
    done.Set();
    return Outcome::kIdle;
  }
  Flag done;

 private:
  Replay& replay_;
  Replay::Progress progress_{};
  bool over_ = false;
};

// The turns are 0, 1 and 2. Turn 1 is given up at any moment while 0 runs and ends, or before; 2 comes all the same.
void MiddleIsGivenUp(bool cancels) {
  Device device(1);
  std::atomic<int> runs{0};
  ir::Graph graph;
  graph.AddLane(0, 0, ir::kNoNode);
  CountPayload payload{&runs};
  graph.Add(0, ir::MakeTask(kCount, payload));
  std::unique_ptr<Replay> replay;
  {
    Straight straight;
    replay = std::make_unique<Replay>(Plan::Compile(graph), *device);
  }
  {
    const uint64_t first_turn = replay->Submit();
    const uint64_t given_up = replay->Submit();
    const uint64_t last_turn = replay->Submit();
    Kept<Execution> first(*replay, first_turn);
    Kept<Execution> last(*replay, last_turn);
    device->Wake(*first);
    device->Wake(*last);
    if (cancels) replay->Cancel(given_up);
    first->done.Wait();
    last->done.Wait();
    device->Retire(*first);
    device->Retire(*last);
  }
  INTERLEAVE_CHECK(runs.load() == 2);
  Straight straight;
  replay.reset();
}

TEST(Turns, OneIsGivenUpWhileTheOneBeforeEnds) {
  ExpectSound("", {.preemptions = 2}, [] { MiddleIsGivenUp(true); });
}
TEST(Turns, MutantThatKeepsTheOneInTheMiddle) {
  ExpectFound(
      "", {}, [] { MiddleIsGivenUp(false); }, kDeadlock);
}

}  // namespace
}  // namespace interleave
