// SPDX-License-Identifier: Apache-2.0
//
// What the launching thread pays, and what a small graph takes until it has run: hot, and after a pause.
#include <dirent.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "rows.h"

namespace bench {
namespace {

void BusyFor(double ns) {
  for (const double end = NowNs() + ns; NowNs() < end;) _mm_pause();
}

// A worker of the device has just run `graph`, so that it spins when this returns. The caller must not help, so it asks
// instead of waiting.
void WakeWorker(const Graph& graph, aclrtStream stream) {
  graph.Launch(stream);
  const double end = NowNs() + 1e9;
  for (;;) {
    aclrtStreamStatus status{};
    CHECK_ACL(aclrtStreamQuery(stream, &status));
    if (status == ACL_STREAM_STATUS_COMPLETE) break;
    Require(NowNs() < end, "a graph of 10 kernels has not run within a second");
  }
  BusyFor(2e3);  // until it looks for more; far less than it spins
}

// Nanoseconds of one launch call: the median of many, less what reading the clock takes. A call during which the caller
// lost its core is none: a worker that the kernel put there ran the graph meanwhile.
Sampler LaunchCall(aclrtStream stream, const Graph& small, const Graph& graph, int calls) {
  return [stream, &small, &graph, calls] {
    Series times;
    Series disturbed;
    for (int i = 0; i < calls; ++i) {
      WakeWorker(small, stream);
      const int64_t switches = OwnSwitches();
      const double before = NowNs();
      const double start = NowNs();
      graph.Launch(stream);
      const double took = (NowNs() - start) - (start - before);
      (OwnSwitches() == switches ? times : disturbed).push_back(took);
      CHECK_ACL(aclrtSynchronizeStream(stream));
    }
    if (times.size() >= 10) return Of(times).median;
    CountDisturbed();
    times.insert(times.end(), disturbed.begin(), disturbed.end());
    return Of(times).median;
  };
}

void LaunchCalls(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  Progress("R5", "launch call");
  const Graph small = CaptureChain(bench.device.kernels().no_op, 10, stream);
  const Graph large = CaptureChain(bench.device.kernels().no_op, 100000, stream);
  const auto series =
      Interleave({LaunchCall(stream, small, small, 200), LaunchCall(stream, small, large, 50)}, effort().rounds);
  Row row = NewRow("R5", "launch call, 10 nodes");
  Here(row, series[0], "ns");
  Judge(row, series[0], "ns", Sense::kAtMost, 100);
  bench.table.rows.push_back(row);
  row = NewRow("R5", "launch call, 100000 nodes");
  Here(row, series[1], "ns");
  Judge(row, series[1], "ns", Sense::kAtMost, 100);
  bench.table.rows.push_back(row);
  row = NewRow("R5", "launch call, 100000 nodes over 10");
  Here(row, series[1], "ns");
  There(row, "ours, 10 nodes", series[0], "ns");
  Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, 1.5);
  bench.table.rows.push_back(row);
}

void SmallGraph(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  Progress("R6", "launch and wait, 10 nodes, hot");
  const Graph graph = CaptureChain(bench.device.kernels().no_op, 10, stream);
  const Sampler here = Repeat(Times([&] { graph.Run(stream); }));
  const Sampler spin = [] {
    return Undisturbed([] {
      const Pinned pinned(UsableCores().front());
      SpinPeer peer(UsableCores().back());
      const int trips = UsableCores().size() > 1 ? 10000 : 2;
      for (int i = 0; i < trips; ++i) peer.RoundTrip();
      const double start = NowNs();
      for (int i = 0; i < trips; ++i) peer.RoundTrip();
      return (NowNs() - start) / trips;
    });
  };
  auto series = Interleave({here, spin}, effort().small_rounds);
  Row row = NewRow("R6", "launch and wait, 10 nodes, hot");
  Here(row, series[0], "ns");
  There(row, "round trip of two spinning threads", series[1], "ns");
  Judge(row, series[0], "ns", Sense::kAtMost, 250);
  bench.table.rows.push_back(row);
  for (const PeerEntry& entry : Peers()) {
    if (!entry.missing.empty() || !entry.shapes) continue;
    Progress("R6", "launch and wait, 10 nodes, hot, " + entry.name);
    const std::unique_ptr<Peer> peer = entry.make();
    if (!peer->missing().empty()) continue;
    const PeerWork work = peer->Graph(ChainDag(10), Body::kNothing);
    series = Interleave({here, RepeatPeer(*peer, work)}, effort().rounds);
    row = NewRow("R6", "launch and wait, 10 nodes, faster than " + entry.name);
    Here(row, series[0], "ns");
    There(row, entry.name, series[1], "ns");
    Judge(row, Ratios(series[1], series[0]), "×", Sense::kAtLeast, 0);
    bench.table.rows.push_back(row);
  }
}

void ColdStart(Bench& bench) {
  aclrtStream stream = bench.device.stream();
  Progress("R7", "launch and wait after 1 ms");
  const Graph graph = CaptureChain(bench.device.kernels().no_op, 10, stream);
  graph.Run(stream);
  // A round trip inside one core is a mere switch of threads. So the caller and its peer are kept on two; the device's
  // workers have started before and stay free to run anywhere.
  const Pinned pinned(UsableCores().front());
  FutexPeer peer(UsableCores().back());
  peer.RoundTrip();
  const auto after_a_pause = [](auto body) -> Sampler {
    return [body] {
      return Undisturbed([&] {
        BusyFor(1e6);
        const double start = NowNs();
        body();
        return (NowNs() - start) / 1e3;
      });
    };
  };
  const auto series = Interleave({after_a_pause([&] { peer.RoundTrip(); }), after_a_pause([&] { graph.Run(stream); })},
                                 effort().small_rounds);
  Row row = NewRow("R7", "launch and wait, 10 nodes, after 1 ms");
  Here(row, series[1], "µs");
  There(row, "futex round trip after 1 ms", series[0], "µs");
  Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, 0.5);
  bench.table.rows.push_back(row);

  // How long a thread of the device goes on spinning when nothing more comes. A round trip is two wake-ups.
  const double wake_up_us = Of(series[0]).median / 2;
  Series spun;
  for (int i = 0; i < effort().rounds; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const auto before = ThreadTimes();
    graph.Run(stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const auto after = ThreadTimes();
    double longest = 0;
    for (const auto& [thread, time] : after) {
      for (const auto& [same, earlier] : before) {
        if (same == thread) longest = std::max(longest, time - earlier);
      }
    }
    spun.push_back(longest / 1e3);
  }
  row = NewRow("R7", "CPU time of the busiest thread after a launch, over a wake-up");
  Here(row, spun, "µs");
  There(row, "a wake-up: half a round trip", {wake_up_us}, "µs");
  Judge(row, Scaled(spun, 1 / wake_up_us), "×", Sense::kAtMost, 2);
  bench.table.rows.push_back(row);
}

}  // namespace

std::vector<std::pair<int, double>> ThreadTimes() {
  std::vector<std::pair<int, double>> times;
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return times;
  const auto self = static_cast<int>(syscall(SYS_gettid));
  while (const dirent* entry = readdir(folder)) {
    const int thread = std::atoi(entry->d_name);
    if (thread <= 0 || thread == self) continue;
    const std::string path = "/proc/self/task/" + std::to_string(thread) + "/schedstat";
    if (std::FILE* file = std::fopen(path.c_str(), "r")) {
      unsigned long long ran = 0;
      if (std::fscanf(file, "%llu", &ran) == 1) times.emplace_back(thread, static_cast<double>(ran));
      std::fclose(file);
    }
  }
  closedir(folder);
  return times;
}

void LaunchRows(Bench& bench) {
  if (bench.Wants("R5")) LaunchCalls(bench);
  if (bench.Wants("R6")) SmallGraph(bench);
  if (bench.Wants("R7")) ColdStart(bench);
}

}  // namespace bench
