// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/verbose.h"
#include "compiler/passes/passes.h"
#include "compiler/rewrite.h"

namespace reprise::compiler {
namespace {

constexpr size_t kMostRefusals = 16;  // kept of one pass
constexpr int kMostRounds = 16;       // of a stage that repeats

struct StageRow {
  std::string_view name;
  bool repeats;
};
constexpr std::array<StageRow, static_cast<size_t>(Stage::kCount)> kStages = {{
    {"PreRunAfterNormalizeGraph", false},
    {"AfterInfershape", true},
    {"PreRunAfterPrepare", false},
    {"PreRunAfterOptimizeOriginalGraph", true},
    {"OptimizeStage1_1", true},
    {"OptimizeStage1_2", true},
    {"PreRunAfterOptimizeAfterStage1", false},
    {"PreRunAfterOptimizeGraphBeforeBuild", false},
    {"PreRunAfterMemConflictProc", false},
}};

const bool* FindSwitch(const Switches& switches, std::string_view name) {
  auto found = switches.find(name);
  if (found == switches.end()) found = switches.find("ALL");
  return found != switches.end() ? &found->second : nullptr;
}

// The graph and all below it, each once, callers first. What a visit takes out of a graph is not visited any more.
template <class Visit>
class GraphWalk {
 public:
  explicit GraphWalk(const Visit& visit) : visit_(visit) {}

  Status Run(Graph& graph) {
    if (!seen_.insert(&graph).second) return {};
    REPRISE_RETURN_IF_ERROR(visit_(graph));
    const size_t first = kept_.size();
    for (const Node& node : graph.nodes) {
      if (!node.is_removed) kept_.insert(kept_.end(), node.graphs.begin(), node.graphs.end());
    }
    const size_t end = kept_.size();
    for (size_t i = first; i < end; ++i) REPRISE_RETURN_IF_ERROR(Run(*kept_[i]));
    return {};
  }

 private:
  const Visit& visit_;
  std::set<const Graph*> seen_;
  std::vector<std::shared_ptr<Graph>> kept_;  // a visit may take out the node that holds one
};

template <class Visit>
Status ForEachGraph(Graph& graph, const Visit& visit) {
  return GraphWalk<Visit>(visit).Run(graph);
}

class Runner {
 public:
  Runner(Graph& graph, const PassOptions& options, PassRecords& records)
      : graph_(graph), options_(options), records_(records) {}

  Status Run() {
    REPRISE_RETURN_IF_ERROR(Infer());
    for (size_t stage = 0; stage < kStages.size(); ++stage) {
      REPRISE_RETURN_IF_ERROR(RunStage(static_cast<Stage>(stage)));
      if (options_.on_stage) options_.on_stage(static_cast<Stage>(stage), graph_);
    }
    REPRISE_RETURN_IF_ERROR(ForEachGraph(graph_, [&](Graph& graph) { return Sort(graph, options_.order); }));
    Tell();
    return {};
  }

 private:
  Status RunStage(Stage stage) {
    const int rounds = kStages[static_cast<size_t>(stage)].repeats ? kMostRounds : 1;
    bool has_changed = true;
    for (int round = 0; round < rounds && has_changed; ++round) {
      has_changed = false;
      for (const Pass& pass : Passes()) {
        if (pass.stage != stage || !IsAdmitted(pass, options_)) continue;
        REPRISE_ASSIGN_OR_RETURN(const bool changed, RunOne(pass));
        has_changed |= changed;
      }
      if (has_changed) REPRISE_RETURN_IF_ERROR(Check(stage));
    }
    return {};
  }

  StatusOr<bool> RunOne(const Pass& pass) {
    // Of places that were left, the last round counts.
    PassRecord& total = records_[std::string(pass.name)];
    PassRecord now;
    PassContext context{options_, facts_, &graph_, &now};
    Status status = ForEachGraph(graph_, [&](Graph& graph) { return pass.run(graph, context); });
    if (!status.ok()) {
      Status::Detail detail = status.detail();
      detail.what = fmt::format("{}: {}", pass.name, detail.what);
      return Status(std::move(detail));
    }
    total.changed += now.changed;
    total.matched = total.changed + (now.matched - now.changed);
    total.refusals = std::move(now.refusals);
    return now.changed != 0;
  }

  Status Infer() {
    return ForEachGraph(graph_, [&](Graph& graph) { return InferShapes(graph, facts_); });
  }

  Status Check(Stage stage) {
    Status status = Verify(graph_);
    if (status.ok()) status = Infer();
    if (status.ok()) return {};
    Status::Detail detail = status.detail();
    detail.what = fmt::format("behind the passes of {}: {}", NameOf(stage), detail.what);
    return Status(std::move(detail));
  }

  void Tell() const {
    for (const auto& [name, record] : records_) {
      Count(VerboseEvent::kPassChanged, record.changed);
      Count(VerboseEvent::kPassRefused, record.matched - record.changed);
      if (!IsVerbose(VerboseCategory::kFusion)) continue;
      if (record.changed != 0) {
        reprise::Tell(VerboseEvent::kPassChanged,
                      fmt::format("graph {}: {}: {} of {} places", graph_.name, name, record.changed, record.matched));
      }
      for (const std::string& refusal : record.refusals) {
        reprise::Tell(VerboseEvent::kPassRefused, fmt::format("graph {}: {}: {}", graph_.name, name, refusal));
      }
    }
  }

  Graph& graph_;
  const PassOptions& options_;
  PassRecords& records_;
  opdef::Facts facts_;
};

}  // namespace

bool CanBeDisabled(std::string_view name) {
  return name == "RemoveSameConstPass" || name == "ConstantFoldingPass" || name == "TransOpWithoutReshapeFusionPass";
}

std::string_view NameOf(Stage stage) { return kStages[static_cast<size_t>(stage)].name; }

void PassContext::Refused(const Node& node, std::string_view reason) {
  ++record->matched;
  if (record->refusals.size() >= kMostRefusals) return;
  record->refusals.push_back(fmt::format("node {} ({}): {}", node.name, node.type, reason));
}

const Pass* FindPass(std::string_view name) {
  const std::span<const Pass> passes = Passes();
  const auto found = std::find_if(passes.begin(), passes.end(), [&](const Pass& pass) { return pass.name == name; });
  return found != passes.end() ? &*found : nullptr;
}

bool IsAdmitted(const Pass& pass, const PassOptions& options) {
  if (pass.level == Level::kO0) return true;
  if (const bool* is_on = FindSwitch(options.switched, pass.name)) return *is_on;
  if (pass.level > options.level) return false;
  if (pass.switched_by == "ge.oo.constantFolding" && !options.folds_constants) return false;
  if (pass.switched_by == "ge.oo.deadCodeElimination" && !options.drops_dead_code) return false;
  const std::vector<std::string>& disabled = options.disabled;
  if (CanBeDisabled(pass.name) && std::find(disabled.begin(), disabled.end(), pass.name) != disabled.end())
    return false;
  if (pass.group == PassGroup::kPlain) return true;
  const Switches& file = pass.group == PassGroup::kGraphFusion ? options.graph_fusions : options.buffer_fusions;
  const bool* is_on = FindSwitch(file, pass.name);
  return is_on == nullptr || *is_on;
}

std::string TextOf(const PassOptions& options) {
  std::string text =
      fmt::format("order {}{}{}, scratch {}, shared {}, without", static_cast<int>(options.order),
                  options.prefers_memory ? ", memory first" : "", options.is_inference ? ", inference" : "",
                  fmt::join(options.scratch_inputs, " "), fmt::join(options.shared_inputs, " "));
  for (const Pass& pass : Passes()) {
    if (!IsAdmitted(pass, options)) text += fmt::format(" {}", pass.name);
  }
  return text;
}

Status RunPasses(Graph& graph, const PassOptions& options, PassRecords* records) {
  PassRecords own;
  return Runner(graph, options, records != nullptr ? *records : own).Run();
}

Status RunPass(const Pass& pass, Graph& graph, const PassOptions& options, PassRecord* record) {
  PassRecord own;
  opdef::Facts facts;
  PassContext context{options, facts, &graph, record != nullptr ? record : &own};
  return ForEachGraph(graph, [&](Graph& each) { return pass.run(each, context); });
}

}  // namespace reprise::compiler
