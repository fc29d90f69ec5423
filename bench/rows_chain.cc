// SPDX-License-Identifier: Apache-2.0
//
// Chains of kernels that do nothing: what a replay costs for each node, from the launch to the end of the wait.
#include "rows.h"

namespace bench {
namespace {

void CheckChain(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  const uint64_t before = Counted();
  const Graph graph = CaptureChain(bench.device.kernels().count, 1000, stream);
  Require(Counted() == before, "a captured kernel ran during the capture");
  graph.Run(stream);
  graph.Run(stream);
  Require(Counted() - before == 2000, "two replays of 1000 kernels did not run 2000 kernels");
}

void AgainstFlat(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  for (const int nodes : {1000, 10000}) {
    Progress("R1", "chain of " + std::to_string(nodes));
    const Graph graph = CaptureChain(bench.device.kernels().no_op, nodes, stream);
    const std::vector<FlatNode> flat(static_cast<size_t>(nodes), FlatNode{FlatNoOp, nullptr});
    const auto series =
        Interleave({Repeat(Times([&] { RunFlat(flat); }), nodes), Repeat(Times([&] { graph.Run(stream); }), nodes)},
                   effort().rounds);
    Row row = NewRow("R1", "chain of " + std::to_string(nodes) + " no-ops, per node");
    Here(row, series[1], "ns");
    There(row, "flat loop", series[0], "ns");
    Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, 2.0, 1.5);
    bench.table.rows.push_back(row);
  }
}

void AgainstPeers(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  constexpr int kNodes = 1000;
  const Graph graph = CaptureChain(bench.device.kernels().no_op, kNodes, stream);
  for (const PeerEntry& entry : Peers()) {
    Progress("R2", "chain of 1000, " + entry.name);
    Row row = NewRow("R2", "chain of 1000, faster than " + entry.name);
    row.yardstick = entry.name;
    row.sense = Sense::kAtLeast;
    row.figure_unit = "×";
    row.goal = entry.chain_goal;
    row.missing = entry.missing;
    if (row.missing.empty()) {
      const std::unique_ptr<Peer> peer = entry.make();
      row.missing = peer->missing();
      if (row.missing.empty()) {
        const Dag chain = ChainDag(kNodes);
        PeerWork work = peer->OwnChain(kNodes);
        if (!work) {
          const PeerWork counting = peer->Graph(chain, Body::kCount);
          const uint64_t before = PeerCount();
          counting(2);
          Require(PeerCount() - before == 2 * kNodes, "a peer's chain miscounted");
          work = peer->Graph(chain, Body::kNothing);
        }
        const auto series = Interleave(
            {Repeat(Times([&] { graph.Run(stream); }), kNodes), RepeatPeer(*peer, work, kNodes)}, effort().rounds);
        Here(row, series[0], "ns");
        There(row, entry.name, series[1], "ns");
        Judge(row, Ratios(series[1], series[0]), "×", Sense::kAtLeast, entry.chain_goal);
      }
    }
    bench.table.rows.push_back(row);
  }
}

void ManyNodes(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  Progress("R3", "chain of 100000");
  const Graph small = CaptureChain(bench.device.kernels().no_op, 1000, stream);
  const Graph large = CaptureChain(bench.device.kernels().no_op, 100000, stream);
  const auto series =
      Interleave({Repeat(Times([&] { small.Run(stream); }), 1000), Repeat(Times([&] { large.Run(stream); }), 100000)},
                 effort().rounds);
  Row row = NewRow("R3", "chain of 100000 no-ops, per node");
  Here(row, series[1], "ns");
  There(row, "ours, 1000 nodes", series[0], "ns");
  Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, 1.3);
  bench.table.rows.push_back(row);
}

void MixedKernels(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  for (const int nodes : {1000, 10000}) {
    Progress("R4", std::to_string(nodes) + " nodes of 256 kernels");
    const std::vector<int> mix = RandomMix(nodes);
    std::vector<FlatNode> flat;
    for (const int which : mix) flat.push_back({MixedNoOps()[static_cast<size_t>(which)], nullptr});
    const Graph graph = Capture(stream, [&] {
      for (const int which : mix) Launch(bench.device.kernels().mixed[static_cast<size_t>(which)], 0, stream);
    });
    const auto series =
        Interleave({Repeat(Times([&] { RunFlat(flat); }), nodes), Repeat(Times([&] { graph.Run(stream); }), nodes)},
                   effort().rounds);
    Row row = NewRow("R4", std::to_string(nodes) + " nodes of 256 kernels in random order, per node");
    Here(row, series[1], "ns");
    There(row, "flat loop, same mix", series[0], "ns");
    Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, 1.2, nodes <= 1000 ? 0.5 : 0);
    bench.table.rows.push_back(row);
  }
}

}  // namespace

void ChainRows(Bench& bench) {
  CheckChain(bench);
  if (bench.Wants("R1")) AgainstFlat(bench);
  if (bench.Wants("R2")) AgainstPeers(bench);
  if (bench.Wants("R3")) ManyNodes(bench);
  if (bench.Wants("R4")) MixedKernels(bench);
}

}  // namespace bench
