// SPDX-License-Identifier: Apache-2.0
#include "model/chain_steps.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "ir/dag.h"
#include "ir/task_info.h"

namespace reprise::model {

/// Where a link stands: the payload of the task that runs it.
struct ChainSteps::Place {
  ir::Link* link;
  std::vector<ir::NodeId> tasks;  ///< whose place it takes
  std::string name;               ///< of what it computes

  static ir::RunResult Run(device::RunContext& context, void* payload) {
    static_cast<Place*>(payload)->link->Run(context);
    return ir::RunResult::kDone;
  }
  static void Describe(const void* payload, ir::TaskInfo& info) {
    info.name = static_cast<const Place*>(payload)->name;
  }
};

namespace {

// Names of the tasks, those of one call that is several tasks once.
std::string NameOf(std::span<const ir::ChainTask> tasks) {
  std::string names, last;
  for (const ir::ChainTask& task : tasks) {
    ir::TaskInfo info;
    info.names_only = true;
    ir::Describe(*task.type, task.payload, info);
    if (info.name.empty()) info.name = info.type_name;
    if (info.name == last) continue;
    names += names.empty() ? info.name : ", " + info.name;
    last = std::move(info.name);
  }
  return names;
}

// Blocks of the graph, by the tasks that have these ids.
std::vector<ir::ReusedBlock> ReusedAmong(const std::vector<ir::NodeId>& ids, const ir::Graph& graph) {
  std::vector<ir::ReusedBlock> blocks = graph.reused_blocks();
  const auto place_of = [&](ir::NodeId id) {
    return static_cast<uint32_t>(std::lower_bound(ids.begin(), ids.end(), id) - ids.begin());
  };
  for (ir::ReusedBlock& block : blocks) {
    block.first = place_of(block.first);
    block.behind = place_of(block.behind);
  }
  return blocks;
}

}  // namespace

ChainSteps::ChainSteps() = default;
ChainSteps::~ChainSteps() = default;

std::unique_ptr<ChainSteps> ChainSteps::Of(const ir::Graph& graph) {
  if (graph.lanes().size() != 1) return nullptr;
  decltype(ir::TaskType::chain) make = nullptr;
  std::vector<ir::ChainTask> tasks;
  std::vector<ir::NodeId> ids;
  bool is_whole = true;
  ir::NodeId id = 0;
  for (auto at = graph.nodes().begin(); at != graph.nodes().end(); ++at, ++id) {
    const ir::Node node = *at;
    if (!ir::IsActive(node)) continue;
    if (ir::IsSlot(node.type)) {  // whose task may change, and then read any memory
      is_whole = false;
      break;
    }
    if (node.type->chain != nullptr) make = node.type->chain;
    tasks.push_back({node.type, node.payload});
    ids.push_back(id);
  }
  if (make == nullptr) return nullptr;
  std::unique_ptr<ChainSteps> steps(new ChainSteps);
  steps->chain_ = make(tasks, is_whole ? ReusedAmong(ids, graph) : std::vector<ir::ReusedBlock>());
  if (steps->chain_.parts.empty()) return nullptr;
  for (const ir::Chain::Part& part : steps->chain_.parts) {
    const auto first = ids.begin() + static_cast<ptrdiff_t>(part.first);
    auto place = std::make_unique<Place>();
    place->link = part.link.get();
    place->name = NameOf(std::span(tasks).subspan(part.first, part.runs));
    place->tasks.assign(first, first + static_cast<ptrdiff_t>(part.count));
    steps->tasks_ += part.count;
    steps->places_.push_back(std::move(place));
  }
  return steps;
}

bool ChainSteps::Prepare(exec::Plan& plan) {
  static const ir::TaskType kLinkTask{.kind = ir::TaskKind::kKernel,
                                      .name = "KERNEL_AICORE",
                                      .run = Place::Run,
                                      .describe = Place::Describe,
                                      .never_waits = true,
                                      .operands = ir::OpaqueOperands};
  is_on_ = false;
  detour_.steps.clear();
  detour_.rows.clear();
  for (const auto& place : places_) {
    if (!plan.AddDetour(place->tasks, kLinkTask, place.get(), detour_)) return false;
  }
  return true;
}

// What is there when it is turned on may be redirected, and comes back so.
void ChainSteps::Turn(exec::Plan& plan, bool on) noexcept {
  if (std::exchange(is_on_, on) != on) plan.Swap(detour_);
}

}  // namespace reprise::model
