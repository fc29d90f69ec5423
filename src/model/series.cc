// SPDX-License-Identifier: Apache-2.0
//
// The numbers that tasks of a model take: their places in each series, and the envelopes of conditional tasks.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ir/series.h"
#include "model/condition.h"
#include "model/model.h"

namespace reprise::model {
namespace {

uint64_t WithOneMore(uint64_t hash, uint64_t fingerprint) { return (hash ^ fingerprint) * 0x9E3779B97F4A7C15 + 1; }

class Collector final : public ir::SeriesSink {
 public:
  explicit Collector(std::vector<SeriesUse>& uses) : uses_(uses) {}
  void Take(ir::Series& series, ir::Number& number) override {
    SeriesUse& use = Find(series);
    number.binding = static_cast<int32_t>(&use - uses_.data());
    number.value = use.count++;
    use.hash = WithOneMore(use.hash, fingerprint);
  }
  SeriesUse& Find(ir::Series& series) {
    const auto at =
        std::find_if(uses_.begin(), uses_.end(), [&](const SeriesUse& use) { return use.series == &series; });
    return at != uses_.end() ? *at : uses_.emplace_back(SeriesUse{&series, 0, 0});
  }

  uint64_t fingerprint = 0;  // of the task that tells

 private:
  std::vector<SeriesUse>& uses_;
};

class Marker final : public ir::SeriesSink {
 public:
  explicit Marker(const std::vector<SeriesUse>& uses) : uses_(uses) {}
  void Take(ir::Series&, ir::Number& number) override {
    number.graph = uses_[static_cast<size_t>(number.binding)].hash;
  }

 private:
  const std::vector<SeriesUse>& uses_;
};

ConditionTask* ConditionOf(const ir::Node& node) {
  return node.type == &kConditionTask ? static_cast<const ConditionPayload*>(node.payload)->task : nullptr;
}

// What the bodies of a conditional task use, those of tasks within them included: each series once, with the
// fingerprint of all that is done with it.
std::vector<SeriesUse> UsedBy(const ConditionTask& task) {
  std::vector<SeriesUse> used;
  Collector collector(used);
  for (const Model* body : task.bodies) {
    for (const SeriesUse& use : body->series()) {
      SeriesUse& all = collector.Find(*use.series);
      all.hash = WithOneMore(all.hash, use.hash);
    }
  }
  return used;
}

// Bodies find the envelopes of the outermost task.
void Link(ConditionTask& task, const std::vector<ConditionTask::Use>& outermost) {
  size_t most = 0;
  task.envelopes.assign(task.bodies.size(), {});
  for (size_t i = 0; i < task.bodies.size(); ++i) {
    for (const SeriesUse& use : task.bodies[i]->series()) {
      const auto at = std::find_if(outermost.begin(), outermost.end(),
                                   [&](const ConditionTask::Use& each) { return each.series == use.series; });
      task.envelopes[i].push_back(at->envelope.get());
    }
    most = std::max(most, task.envelopes[i].size());
    for (const ir::Node& node : task.bodies[i]->graph().nodes()) {
      if (ConditionTask* const inner = ConditionOf(node)) Link(*inner, outermost);
    }
  }
  task.bindings.series.resize(most);
  task.bindings.envelopes.reserve(most);
}

}  // namespace

void Model::CollectSeries() {
  series_.clear();
  Collector collector(series_);
  for (const ir::Node& node : graph_->nodes()) {
    ConditionTask* const task = ConditionOf(node);
    if (task == nullptr) {
      collector.fingerprint = ir::Fingerprint(*node.type, node.payload);
      ir::TellSeries(*node.type, node.payload, collector);
      continue;
    }
    task->uses.clear();
    for (const SeriesUse& use : UsedBy(*task)) {
      if (is_sub()) {
        SeriesUse& own = collector.Find(*use.series);
        own.hash = WithOneMore(own.hash, use.hash);
        continue;
      }
      ConditionTask::Use& added = task->uses.emplace_back(ConditionTask::Use{use.series, {}, {}});
      collector.fingerprint = use.hash;
      collector.Take(*use.series, added.number);
      added.envelope = use.series->MakeEnvelope();
    }
    if (is_sub()) continue;
    std::stable_partition(task->uses.begin(), task->uses.end(),
                          [](const ConditionTask::Use& use) { return !use.envelope->WaitsForAnswer(); });
    Link(*task, task->uses);
  }
  if (series_.empty()) return;
  Marker marker(series_);
  for (const ir::Node& node : graph_->nodes()) {
    ir::TellSeries(*node.type, node.payload, marker);
    ConditionTask* const task = ConditionOf(node);
    if (task == nullptr) continue;
    for (ConditionTask::Use& use : task->uses) marker.Take(*use.series, use.number);
  }
}

Status Model::CheckBodySeries() const {
  if (!is_sub()) return {};
  std::optional<ir::LaneId> first;
  for (const ir::Node& node : graph_->nodes()) {
    const ConditionTask* const task = ConditionOf(node);
    if (task == nullptr || UsedBy(*task).empty()) continue;
    if (!first) first = node.lane;
    if (node.lane == *first) continue;
    return Error(kFeatureNotSupported,
                 fmt::format("{} has conditional tasks with collectives on graph streams {} and {}: which of them runs "
                             "first could differ between ranks",
                             Describe(), graph_->lanes()[*first].stream_id, graph_->lanes()[node.lane].stream_id))
        .Culprit(Describe())
        .Hint("put these conditional tasks on one stream of the body");
  }
  return {};
}

Status Model::CheckSeries() const {
  for (const SeriesUse& use : series_) {
    Status status = use.series->CheckLaunch();
    if (status.ok()) continue;
    return Error(kModelNotExecutable, fmt::format("{} cannot run: {}", Describe(), status.detail().what))
        .Culprit(std::string(status.detail().culprit))
        .Hint(std::string(status.detail().hint));
  }
  return {};
}

}  // namespace reprise::model
