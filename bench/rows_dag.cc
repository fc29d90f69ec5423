// SPDX-License-Identifier: Apache-2.0
//
// Graphs with more than one thing to do at a time: forks that join, and random DAGs, on two threads.
#include <algorithm>

#include "rows.h"

namespace bench {
namespace {

struct PeerRun {
  std::string name;
  std::unique_ptr<Peer> peer;
  PeerWork work;
};

// The peers that are here, each with the graph, which was checked.
std::vector<PeerRun> PeersFor(const Dag& dag) {
  std::vector<PeerRun> runs;
  for (const PeerEntry& entry : Peers()) {
    if (!entry.missing.empty() || !entry.shapes) continue;
    PeerRun run{entry.name, entry.make(), {}};
    if (!run.peer->missing().empty()) continue;
    {
      const Stamps stamps(dag.nodes());
      const PeerWork checked = run.peer->Graph(dag, Body::kStamp);
      checked(2);
      stamps.Check(dag, 2, "a peer broke the order of a graph");
    }
    run.work = run.peer->Graph(dag, Body::kWork);
    runs.push_back(std::move(run));
  }
  return runs;
}

void CheckOrder(const Dag& dag, const Graph& stamping, aclrtStream stream) {
  const Stamps stamps(dag.nodes());
  constexpr int kRuns = 12;  // costs are learnt meanwhile
  for (int i = 0; i < kRuns; ++i) stamping.Run(stream);
  stamps.Check(dag, kRuns, "a replay broke the order of its graph");
}

size_t Best(const std::vector<Series>& series, size_t first) {
  size_t best = first;
  for (size_t i = first; i < series.size(); ++i) {
    if (Of(series[i]).median < Of(series[best]).median) best = i;
  }
  return best;
}

void ForkJoin(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  DagRecorder recorder(stream);
  struct Case {
    int width;
    double us;
    double goal;
  };
  for (const Case& c : {Case{2, 1, 0.70}, Case{16, 1, 0.88}, Case{256, 1, 0.93}, Case{2, 10, 0.90}, Case{16, 10, 0.95},
                        Case{256, 10, 0.97}}) {
    const std::string name = std::to_string(c.width) + " tasks of " + std::to_string(static_cast<int>(c.us)) + " µs";
    Progress("R8", "fork-join, " + name);
    const Dag dag = ForkJoinDag(c.width, static_cast<uint32_t>(c.us * IterationsPerUs()));
    CheckOrder(dag, recorder.CaptureForkJoin(dag, bench.device.kernels().stamp), stream);
    const Graph graph = recorder.CaptureForkJoin(dag, bench.device.kernels().work);
    for (int i = 0; i < 10; ++i) graph.Run(stream);
    std::vector<PeerRun> peers = PeersFor(dag);
    AddBestOfTries(bench.table, [&] {
      std::vector<Sampler> samplers = {Repeat(Times([&] { SerialNs(dag); })),
                                       Repeat(Times([&] { graph.Run(stream); }))};
      for (PeerRun& run : peers) samplers.push_back(RepeatPeer(*run.peer, run.work));
      const auto series = Interleave(samplers, effort().rounds);
      const double serial = std::min(TrueSerialNs(dag), Of(series[0]).least);
      std::vector<Row> rows;
      Row row = NewRow("R8", "fork-join, " + name + ": efficiency");
      Here(row, Scaled(series[1], 1e-3), "µs");
      There(row, "half the serial time", Scaled(series[0], 0.5e-3), "µs");
      Judge(row, Scaled(Inverse(series[1]), serial / 2), "of ideal", Sense::kAtLeast, c.goal);
      rows.push_back(row);
      row = NewRow("R8", "fork-join, " + name + ": against the best peer");
      if (peers.empty()) {
        row.yardstick = "a peer";
        row.missing = "none is installed";
        row.goal = 1;
        row.sense = Sense::kAtLeast;
        row.figure_unit = "×";
      } else {
        const size_t best = Best(series, 2);
        Here(row, Scaled(series[1], 1e-3), "µs");
        There(row, peers[best - 2].name, Scaled(series[best], 1e-3), "µs");
        Judge(row, Ratios(series[best], series[1]), "×", Sense::kAtLeast, 1);
      }
      rows.push_back(row);
      return rows;
    });
  }
}

void RandomDags(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  DagRecorder recorder(stream);
  struct Case {
    const char* name;
    int window;
    double learnt_goal;
  };
  for (const Case& c : {Case{"wide", 1 << 30, 1.06}, Case{"deep", 8, 1.15}}) {
    const Dag dag = RandomDag(1000, c.window, 42);
    const std::string name = c.name;
    Progress("R9", "random graph of 1000 nodes, " + name);
    CheckOrder(dag, recorder.Capture(dag, bench.device.kernels().stamp), stream);
    const Graph graph = recorder.Capture(dag, bench.device.kernels().work);
    for (int i = 0; i < 10; ++i) graph.Run(stream);
    std::vector<PeerRun> peers = PeersFor(dag);
    const double bound = BoundOfSerial(dag);
    const Graph awake = CaptureChain(bench.device.kernels().no_op, 10, stream);
    const auto first_replay = [&] {
      return Undisturbed([&] {
        const Graph fresh = recorder.Capture(dag, bench.device.kernels().work);
        awake.Run(stream);
        const double start = NowNs();
        fresh.Run(stream);
        return NowNs() - start;
      });
    };
    AddBestOfTries(bench.table, [&] {
      std::vector<Sampler> samplers = {Repeat(Times([&] { SerialNs(dag); })), Repeat(Times([&] { graph.Run(stream); })),
                                       first_replay};
      for (PeerRun& run : peers) samplers.push_back(RepeatPeer(*run.peer, run.work));
      const auto series = Interleave(samplers, effort().rounds);
      const double serial = std::min(TrueSerialNs(dag), Of(series[0]).least);
      const auto over_bound = [&](size_t i) { return Scaled(series[i], 1 / (bound * serial)); };
      std::vector<Row> rows;
      for (const bool learnt : {true, false}) {
        const size_t here = learnt ? 1 : 2;
        Row row = NewRow(
            "R9", "random graph, " + name + (learnt ? ", after 10 replays" : ", first replay") + ": time over bound");
        Here(row, Scaled(series[here], 1e-3), "µs");
        if (!peers.empty()) {
          const size_t best = Best(series, 3);
          There(row, peers[best - 3].name, over_bound(best), "×");
        }
        Judge(row, over_bound(here), "×", Sense::kAtMost, learnt ? c.learnt_goal : 1.25);
        rows.push_back(row);
      }
      return rows;
    });
  }
}

}  // namespace

void DagRows(Bench& bench) {
  if (bench.Wants("R8")) ForkJoin(bench);
  if (bench.Wants("R9")) RandomDags(bench);
}

}  // namespace bench
