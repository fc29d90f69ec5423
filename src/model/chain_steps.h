// SPDX-License-Identifier: Apache-2.0
//
// The chain of a graph (ir/chain.h) as steps of its plan.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "exec/plan.h"
#include "ir/chain.h"
#include "ir/graph.h"

namespace reprise::model {

/// Threads: those of exec::Keeper.
class ChainSteps {
 public:
  /// Null when the tasks of the graph, which must outlive the object, make no chain.
  static std::unique_ptr<ChainSteps> Of(const ir::Graph& graph);
  ~ChainSteps();

  ir::Chain& chain() { return chain_; }
  /// The plan has been made since: none of its steps is the chain's. False when they cannot be.
  bool Prepare(exec::Plan& plan);
  /// Lets the links run, or the tasks.
  void Turn(exec::Plan& plan, bool on) noexcept;
  bool is_on() const { return is_on_; }
  uint64_t links() const { return places_.size(); }
  uint64_t tasks() const { return tasks_; }

 private:
  struct Place;

  ChainSteps();

  ir::Chain chain_;
  std::vector<std::unique_ptr<Place>> places_;
  uint64_t tasks_ = 0;  ///< whose places the links take
  exec::Plan::Detour detour_;
  bool is_on_ = false;
};

}  // namespace reprise::model
