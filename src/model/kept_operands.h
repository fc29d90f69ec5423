// SPDX-License-Identifier: Apache-2.0
//
// What a captured graph makes of memory that its tasks only read, weights for the most part, and keeps from execution
// to execution while nobody writes it: right operands of products in panels, packed filters (ir::Keeping).
//
// Whether somebody has written it since, each execution asks the kernel (device/write_watch.h), once for all operands.
// A graph whose tasks could let other work in between (they wait, or only their code knows what they write) asks for
// each task that reads a form when the task begins.
//
// Where a graph has a chain (ir/chain.h), its links run in place of their tasks once all of their operands are kept.
//
// Results are the same bits with and without.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/write_watch.h"
#include "exec/keeper.h"
#include "ir/graph.h"

namespace reprise::model {

class ChainSteps;
class KeptForm;

/// Of one graph. Threads: as exec::Keeper says.
class KeptOperands final : public exec::Keeper {
 public:
  /// Nothing when there is nothing to keep in the graph, which must outlive the object. `before`: what was kept of the
  /// graph until now, so that its forms need not be made again.
  static std::unique_ptr<KeptOperands> Of(const ir::Graph& graph, std::unique_ptr<KeptOperands> before);
  ~KeptOperands() override;

  bool Begin(exec::Plan& plan, bool is_new, device::RunContext& context) noexcept override;
  void Change(exec::Plan& plan, std::span<const ir::NodeId> changed) noexcept override;

 private:
  struct Kept;
  struct Use;

  explicit KeptOperands(const ir::Graph& graph);
  void Find();
  void FindChain();
  bool FindFormsOfChain();
  void DropChain(exec::Plan& plan) noexcept;
  void TurnChain(exec::Plan& plan) noexcept;
  void Redirect(exec::Plan& plan);
  void GiveBack(exec::Plan& plan, Use& use);
  void LookAtAll();
  void Advance(Kept& kept, device::RunContext& context, uint64_t& room);
  static ir::RunResult Run(device::RunContext& context, void* data);

  const ir::Graph& graph_;
  uint32_t executions_ = 0;
  bool has_looked_for_ = false;
  bool asks_each_task_ = false;
  std::vector<std::unique_ptr<Kept>> kept_;
  std::vector<std::unique_ptr<Use>> uses_;    ///< makers before their takers
  std::unique_ptr<device::WriteWatch> look_;  ///< of all operands that are awake
  bool is_look_stale_ = true;
  bool looks_one_by_one_ = false;
  std::vector<std::shared_ptr<KeptForm>> inherited_;
  std::unique_ptr<ChainSteps> chain_;
  uint32_t chain_rest_ = 0;   ///< executions before a chain is looked for
  uint32_t chain_rests_ = 1;  ///< how many the last time
};

/// What all graphs of the process keep. For tests.
struct KeptTotals {
  uint64_t made = 0;     ///< forms, so far
  uint64_t dropped = 0;  ///< because their operand was written, so far
  uint64_t bytes = 0;    ///< of forms now
  uint64_t chained = 0;  ///< executions of chains (ir/chain.h), so far
  uint64_t links = 0;    ///< that took the place of tasks in these
  uint64_t linked = 0;   ///< tasks that they took the place of
};
KeptTotals TotalsOfKept();

}  // namespace reprise::model
