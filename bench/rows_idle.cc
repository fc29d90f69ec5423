// SPDX-License-Identifier: Apache-2.0
//
// What the device does when it has nothing to do, and with a single core. In processes of their own, where no peer has
// threads.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "rows.h"

namespace bench {
namespace {

constexpr int kReplays = 20;
constexpr int kChildSeconds = 60;

// Runs this program as `--child which`; the numbers that it prints, one line a series. Empty when it fails.
std::vector<Series> AskChild(const std::string& which) {
  char path[4096] = {};
  if (readlink("/proc/self/exe", path, sizeof path - 1) <= 0) return {};
  const std::string command = "'" + std::string(path) + "' --child " + which;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::vector<Series> all;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    std::istringstream numbers(line);
    Series series;
    for (double number = 0; numbers >> number;) series.push_back(number);
    if (!series.empty()) all.push_back(series);
  }
  return pclose(pipe) == 0 ? all : std::vector<Series>{};
}

void Print(const Series& series) {
  for (const double value : series) std::printf("%.6g ", value);
  std::printf("\n");
}

// Replays of every kind, checked.
void RunAllSorts(Device& device, int replays) {
  aclrtStream stream = device.stream();
  const uint64_t before = Counted();
  const Graph chain = CaptureChain(device.kernels().count, 1000, stream);
  for (int i = 0; i < replays; ++i) chain.Run(stream);
  for (int i = 0; i < 1000; ++i) Launch(device.kernels().count, 1, stream);
  CHECK_ACL(aclrtSynchronizeStream(stream));
  Require(Counted() - before == 1000U * (static_cast<uint64_t>(replays) + 1), "kernels got lost");
  DagRecorder recorder(stream);
  const Dag dag = ForkJoinDag(16, static_cast<uint32_t>(IterationsPerUs()));
  const Graph fork = recorder.CaptureForkJoin(dag, device.kernels().stamp);
  const Stamps stamps(dag.nodes());
  for (int i = 0; i < replays; ++i) fork.Run(stream);
  stamps.Check(dag, replays, "a replay broke the order of its graph");
}

void MeasureIdle() {
  Device device;
  Series used;
  Series spinning;
  for (int round = 0; round < 5; ++round) {
    RunAllSorts(device, kReplays);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const double before = CpuNs();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    used.push_back((CpuNs() - before) / 1e3);
    // Threads that go on for more than a moment after a wide graph: they were woken, and spin.
    DagRecorder recorder(device.stream());
    const Dag dag = ForkJoinDag(16, 0);
    const Graph fork = recorder.CaptureForkJoin(dag, device.kernels().work);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const auto earlier = ThreadTimes();
    fork.Run(device.stream());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    int busy = 0;
    for (const auto& [thread, time] : ThreadTimes()) {
      for (const auto& [same, old] : earlier) busy += same == thread && time - old > 20e3 ? 1 : 0;
    }
    spinning.push_back(busy);
  }
  Print(used);
  Print(spinning);
}

}  // namespace

int RunChild(const std::string& which) {
  alarm(kChildSeconds);  // a hang is a result too
  if (which == "idle") {
    MeasureIdle();
    return 0;
  }
  if (which == "one-core") {
    PinThisThread({UsableCores().front()});
    Device device;
    RunAllSorts(device, kReplays);
    Print({2.0 * kReplays});
    return 0;
  }
  return 1;
}

void IdleRows(Bench& bench) {
  if (!bench.Wants("S1")) return;
  Progress("S1", "idle");
  const auto idle = AskChild("idle");
  Require(idle.size() == 2, "the process that measures idle time failed");
  Row row = NewRow("S1", "CPU time from 10 to 210 ms after the last launch");
  Here(row, idle[0], "µs");
  Judge(row, idle[0], "µs", Sense::kAtMost, 200);
  bench.table.rows.push_back(row);
  row = NewRow("S1", "threads of the device that spin after a wide graph");
  Here(row, idle[1], "threads");
  Judge(row, idle[1], "threads", Sense::kAtMost, static_cast<double>(UsableCores().size()));
  bench.table.rows.push_back(row);
  Progress("S1", "one core");
  const auto one = AskChild("one-core");
  const double completed = one.empty() ? 0 : one[0][0];
  row = NewRow("S1", "replays that complete with one core, of 40");
  Here(row, {completed}, "replays");
  Judge(row, {completed}, "replays", Sense::kAtLeast, 2.0 * kReplays);
  bench.table.rows.push_back(row);
}

}  // namespace bench
