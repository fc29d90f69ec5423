// SPDX-License-Identifier: Apache-2.0
//
// What a graph costs before it runs: to capture it, to keep it, to change it.
#include <reprise/reprise.h>

#include <algorithm>

#include "rows.h"

namespace bench {
namespace {

void Building(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  const auto capture = [&](int nodes, int times) -> Sampler {
    return [&bench, stream, nodes, times] {
      return Undisturbed([&] {
        double sum = 0;
        for (int i = 0; i < times; ++i) {
          const double start = NowNs();
          const Graph graph = CaptureChain(bench.device.kernels().no_op, nodes, stream);
          sum += NowNs() - start;
        }
        return sum / times / nodes;
      });
    };
  };
  Progress("B1", "capture and instantiate");
  const std::vector<int> sizes = {1000, 10000, 100000};
  const auto series = Interleave({capture(1000, 30), capture(10000, 4), capture(100000, 1)}, effort().rounds);
  for (size_t i = 0; i < sizes.size(); ++i) {
    Row row = NewRow("B1", "capture and instantiate, " + std::to_string(sizes[i]) + " nodes, per node");
    Here(row, series[i], "ns");
    Judge(row, series[i], "ns", Sense::kAtMost, 100);
    bench.table.rows.push_back(row);
  }
  Row row = NewRow("B1", "capture and instantiate, 100000 nodes over 1000");
  Here(row, series[2], "ns");
  There(row, "ours, 1000 nodes", series[0], "ns");
  Judge(row, RatiosToFirst(series[2], series[0]), "×", Sense::kAtMost, 2);
  bench.table.rows.push_back(row);
}

uint64_t Bytes(const Graph& graph) {
  reprise::GraphStats stats{};
  CHECK_ACL(reprise::GetGraphStats(graph.model(), &stats));
  return stats.memory_bytes;
}

// Layers of nodes, each waiting for `edges` nodes of the layer before: the same nodes with few edges or with many.
Dag Layers(int layers, int width, int edges) {
  Dag dag(layers * width);
  for (int layer = 1; layer < layers; ++layer) {
    for (int column = 0; column < width; ++column) {
      for (int i = 0; i < edges; ++i) dag.AddEdge((layer - 1) * width + (column + i) % width, layer * width + column);
    }
  }
  return dag;
}

void Memory(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  Progress("B2", "memory");
  for (const int nodes : {1000, 100000}) {
    const Graph graph = CaptureChain(bench.device.kernels().no_op, nodes, stream);
    const double bytes = static_cast<double>(Bytes(graph)) / nodes;
    Row row = NewRow("B2", "memory per node, chain of " + std::to_string(nodes));
    Here(row, {static_cast<double>(Bytes(graph)) / 1024}, "KiB");
    Judge(row, {bytes}, "bytes", Sense::kAtMost, 96);
    bench.table.rows.push_back(row);
  }
  DagRecorder recorder(stream);
  constexpr int kLayers = 100, kWidth = 32, kFew = 2, kMany = 18;
  const auto bytes = [&](int edges) {
    return static_cast<double>(Bytes(recorder.Capture(Layers(kLayers, kWidth, edges), bench.device.kernels().work)));
  };
  const double few = bytes(kFew);
  const double many = bytes(kMany);
  constexpr double kMore = double{kLayers - 1} * kWidth * (kMany - kFew);
  Row row = NewRow("B2", "memory per edge: 3200 nodes with 57000 edges or 6300");
  Here(row, {many / 1024}, "KiB");
  There(row, "ours, few edges", {few / 1024}, "KiB");
  Judge(row, {(many - few) / kMore}, "bytes", Sense::kAtMost, 4);
  bench.table.rows.push_back(row);
}

void GroupUpdate(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  constexpr int kNodes = 1000;
  Progress("B3", "update of a task group");
  aclrtTaskGrp group = nullptr;
  const aclrtFuncHandle count = bench.device.kernels().count;
  const Graph graph = Capture(stream, [&] {
    CHECK_ACL(aclmdlRICaptureTaskGrpBegin(stream));
    for (int i = 0; i < kNodes; ++i) Launch(count, 1, stream);
    CHECK_ACL(aclmdlRICaptureTaskGrpEnd(stream, &group));
  });
  const auto update = [&](uint64_t amount) {
    CHECK_ACL(aclmdlRICaptureTaskUpdateBegin(stream, group));
    for (int i = 0; i < kNodes; ++i) Launch(count, amount, stream);
    CHECK_ACL(aclmdlRICaptureTaskUpdateEnd(stream));
  };
  const uint64_t before = Counted();
  graph.Run(stream);
  update(3);
  graph.Run(stream);
  Require(Counted() - before == 4 * kNodes, "an updated task group added up wrongly");
  const auto series = Interleave({Repeat(Times([&] { update(1); }), kNodes)}, effort().rounds);
  Row row = NewRow("B3", "update of a task group of 1000 kernels, per node");
  Here(row, series[0], "ns");
  Judge(row, series[0], "ns", Sense::kAtMost, 50);
  bench.table.rows.push_back(row);
}

// A chain of counting kernels, some of which get new parameters.
class Changeable {
 public:
  Changeable(Bench& bench, int nodes)
      : kernel_(bench.device.kernels().count),
        graph_(CaptureChain(bench.device.kernels().count, nodes, bench.device.stream())) {
    uint32_t streams = 1;
    aclrtStream inner = nullptr;
    CHECK_ACL(aclmdlRIGetStreams(graph_.model(), &inner, &streams));
    auto tasks = static_cast<uint32_t>(nodes);
    tasks_.resize(tasks);
    CHECK_ACL(aclmdlRIGetTasksByStream(inner, tasks_.data(), &tasks));
    Require(tasks == static_cast<uint32_t>(nodes), "a chain has another number of tasks than it was given");
  }
  void Update(int changes, uint64_t amount) {
    const size_t step = tasks_.size() / static_cast<size_t>(changes);
    for (int i = 0; i < changes; ++i) {
      aclmdlRITaskParams parameters{};
      parameters.type = ACL_MODEL_RI_TASK_KERNEL;
      parameters.kernelTaskParams.funcHandle = kernel_;
      parameters.kernelTaskParams.args = &amount;
      parameters.kernelTaskParams.isHostArgs = 1;
      parameters.kernelTaskParams.argsSize = sizeof amount;
      parameters.kernelTaskParams.numBlocks = 1;
      CHECK_ACL(aclmdlRITaskSetParams(tasks_[static_cast<size_t>(i) * step], &parameters));
    }
    CHECK_ACL(aclmdlRIUpdate(graph_.model()));
  }
  const Graph& graph() const { return graph_; }

 private:
  aclrtFuncHandle kernel_;
  Graph graph_;
  std::vector<aclmdlRITask> tasks_;
};

void ParameterUpdate(Bench& bench) {
  constexpr int kChanges = 10;
  Progress("B3", "update of 10 nodes");
  aclrtStream stream = bench.device.stream();
  Changeable small(bench, 1000);
  Changeable large(bench, 100000);
  small.Update(kChanges, 101);
  const uint64_t before = Counted();
  small.graph().Run(stream);
  Require(Counted() - before == 1000 + 100 * kChanges, "changed parameters added up wrongly");
  const auto series = Interleave({Repeat(Times([&] { small.Update(kChanges, 2); }), kChanges),
                                  Repeat(Times([&] { large.Update(kChanges, 2); }), kChanges)},
                                 effort().rounds);
  Row row = NewRow("B3", "new parameters for 10 of 1000 nodes, per changed node");
  Here(row, series[0], "ns");
  Judge(row, series[0], "ns", Sense::kAtMost, 50);
  bench.table.rows.push_back(row);
  row = NewRow("B3", "new parameters for 10 nodes, of 100000 over of 1000");
  Here(row, series[1], "ns");
  There(row, "ours, 1000 nodes", series[0], "ns");
  Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, 1.5);
  bench.table.rows.push_back(row);
}

}  // namespace

void BuildingRows(Bench& bench) {
  if (bench.Wants("B1")) Building(bench);
  if (bench.Wants("B2")) Memory(bench);
  if (bench.Wants("B3")) {
    GroupUpdate(bench);
    ParameterUpdate(bench);
  }
}

}  // namespace bench
