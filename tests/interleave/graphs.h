// SPDX-License-Identifier: Apache-2.0
//
// Small graphs, and a runnable that executes them as a stream does.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "scenario.h"
// Behind the shim:
#include "exec/plan.h"
#include "exec/replay.h"

namespace interleave {

using reprise::device::RunContext;
using reprise::device::Runnable;
using reprise::exec::Plan;
using reprise::exec::Replay;
using reprise::ir::RunResult;
namespace ir = reprise::ir;

/// A node appends its letter; what a lane appends is ordered, and what edges say.
struct Log {
  std::atomic<uint32_t> count{0};
  char letters[16] = {};
};
struct LetterPayload {
  Log* log;
  char letter;
};
inline const ir::TaskType kLetter = {.kind = ir::TaskKind::kKernel,
                                     .name = "LETTER",
                                     .run =
                                         [](RunContext&, void* payload) {
                                           const auto& p = *static_cast<LetterPayload*>(payload);
                                           p.log->letters[p.log->count.fetch_add(1)] = p.letter;
                                           return RunResult::kDone;
                                         },
                                     .never_waits = true,
                                     .operands = ir::NoOperands};

class SmallGraph {
 public:
  explicit SmallGraph(int lanes) {
    for (int i = 0; i < lanes; ++i) graph_.AddLane(i, i, ir::kNoNode);
  }
  void Letter(ir::LaneId lane, char letter) {
    LetterPayload payload{&log, letter};
    graph_.Add(lane, ir::MakeTask(kLetter, payload));
  }
  ir::NodeId Record(ir::LaneId lane) {
    ir::EdgePayload payload{static_cast<ir::NodeId>(graph_.nodes().size()), 0, 0};
    return graph_.Add(lane, ir::MakeTask(ir::kEdgeRecord, payload));
  }
  void Wait(ir::LaneId lane, ir::NodeId record) {
    ir::EdgePayload payload{record, 0, 0};
    graph_.Add(lane, ir::MakeTask(ir::kEdgeWait, payload));
  }
  std::unique_ptr<Plan> Compile() { return Plan::Compile(graph_); }
  const ir::Graph& graph() const { return graph_; }
  /// On two execution lanes, which tasks that take long are worth.
  std::unique_ptr<Plan> LayOut() {
    const ir::Dag dag = ir::BuildDag(graph_);
    const std::vector<uint32_t> costs(dag.size(), 100'000);
    auto plan = Plan::Compile(graph_, dag, reprise::exec::Schedule(dag, 2, costs));
    INTERLEAVE_CHECK(plan->lanes().size() == 2);
    return plan;
  }
  /// Letters in the order in which they ran.
  std::string Letters() const { return std::string(log.letters, log.count.load()); }
  bool Ordered(char first, char second) const {
    const std::string letters = Letters();
    return letters.find(first) < letters.find(second) && letters.find(second) != std::string::npos;
  }
  Log log;

 private:
  ir::Graph graph_;
};

/// Runs executions of a replay, as a stream does.
class Driver final : public Runnable {
 public:
  Driver(Replay& replay, int times) : Driver(replay, replay.Submit(), times) {}
  /// The first of them has its turn already.
  Driver(Replay& replay, uint64_t turn, int times) : replay_(replay), left_(times) { progress_.ticket = turn; }
  Outcome Run(RunContext& context) override {
    while (left_ != 0) {
      if (drop.load()) {
        const bool was_queued = progress_.phase == Replay::Progress::kQueued;
        replay_.Abandon(progress_, context.runnable());
        if (was_queued) replay_.Cancel(progress_.ticket);
        left_ = 0;
        break;
      }
      const RunResult result = replay_.Run(context, progress_);
      if (result == RunResult::kParked) return Outcome::kIdle;
      if (result == RunResult::kNeedsWorker) return Outcome::kNeedsWorker;
      if (context.failed()) failure = context.TakeError().code();
      if (--left_ != 0) progress_.ticket = replay_.Submit();
    }
    done.Set();
    return Outcome::kIdle;
  }
  Flag done;
  int failure = 0;
  std::atomic<bool> drop{false};  ///< gives the execution up at the next chance

 private:
  Replay& replay_;
  Replay::Progress progress_{};
  int left_;
};

}  // namespace interleave
