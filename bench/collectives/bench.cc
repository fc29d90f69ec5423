// SPDX-License-Identifier: Apache-2.0
//
// What collectives cost, against goals, raw limits of the machine, Gloo through c10d, and Open MPI.
//
//   collectives_bench [--rows HP-01,HP-05] [--quick] [--python PYTHON] [--markdown FILE] [--json FILE]
//
// Ranks are processes of their own that sleep while nobody asks them (group.h), so that all who are compared can be
// there at once and be measured in turns. --python has PyTorch, and torch_npu for the rows of our backend; without it,
// or without mpirun, the rows say so. Prints the table; ends with 0 whatever the verdicts are, with 1 when a result was
// wrong.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>

#include "../rows.h"
#include "../yardsticks.h"
#include "group.h"

namespace bench {
namespace {

constexpr const char* kUsage =
    "usage: collectives_bench [--rows HP-01,HP-05] [--quick] [--python PYTHON] [--markdown FILE] [--json FILE]\n"
    "  --rows    only these rows: HP-01 to HP-12\n"
    "  --python  has torch, and torch_npu on its path: compared with Gloo, and our backend measured\n"
    "  --quick   fewer and shorter samples: shows that everything works, not how fast it is\n";

constexpr const char* kRows[] = {"HP-01", "HP-02", "HP-03", "HP-04", "HP-05", "HP-06",
                                 "HP-07", "HP-08", "HP-09", "HP-10", "HP-11", "HP-12"};

constexpr size_t kLarge = 16 << 20;

std::string OwnFolder() {
  char path[4096] = {};
  Require(readlink("/proc/self/exe", path, sizeof path - 1) > 0, "cannot find the programs of the ranks");
  const std::string text = path;
  return text.substr(0, text.rfind('/'));
}

void BusyFor(double ns) {
  const double end = NowNs() + ns;
  while (NowNs() < end) {
  }
}

class Run {
 public:
  Run(Table& table, std::set<std::string> wanted, std::string python)
      : table_(table), wanted_(std::move(wanted)), python_(std::move(python)) {}
  void All();

 private:
  using Groups = std::unique_ptr<Group>;
  bool Wants(const std::string& id, const std::string& what) const {
    if (!wanted_.empty() && wanted_.count(id) == 0) return false;
    Progress(id, what);
    return true;
  }
  // ---- Who is measured ----
  Groups Ours(int ranks, std::vector<std::pair<std::string, std::string>> environment = {}) const {
    environment.emplace_back("REPRISE_DEVICES", "1");
    return std::make_unique<Group>(
        Group::Way{"Reprise", ranks, {OwnFolder() + "/collectives_rank", "FOLDER", "RANK", "RANKS"}, environment});
  }
  Groups InOneProcess(int devices) const {
    return std::make_unique<Group>(Group::Way{"Reprise",
                                              1,
                                              {OwnFolder() + "/collectives_rank", "FOLDER", "RANK", "RANKS"},
                                              {{"REPRISE_DEVICES", std::to_string(devices)}}});
  }
  Groups Plain() const {
    return std::make_unique<Group>(Group::Way{"Reprise without libhccl",
                                              1,
                                              {OwnFolder() + "/collectives_plain", "FOLDER", "RANK", "RANKS"},
                                              {{"REPRISE_DEVICES", "1"}}});
  }
  // Null when it is not here; `why` says it.
  Groups Peer(Group::Way way, const std::string& act, std::string& why) const {
    auto group = std::make_unique<Group>(std::move(way));
    if (!group->Try(act).empty()) return group;
    why = group->why();
    return nullptr;
  }
  Groups Torch(const std::string& backend, int ranks, std::string& why) const {
    if (python_.empty()) {
      why = "no --python given";
      return nullptr;
    }
    return Peer({backend + " of torch.distributed",
                 ranks,
                 {python_, REPRISE_BENCH_COLLECTIVES "/peer.py", backend, "FOLDER", "RANK", "RANKS"},
                 {{"OMP_NUM_THREADS", "1"}, {"REPRISE_DEVICES", "1"}}},
                "allreduce 4 1", why);
  }
  Groups Mpi(int ranks, std::string& why) const {
    if (access((OwnFolder() + "/collectives_mpi").c_str(), X_OK) != 0) {
      why = "not installed when the benchmarks were configured";
      return nullptr;
    }
    return Peer({"Open MPI",
                 ranks,
                 {"mpirun", "--oversubscribe", "-n", std::to_string(ranks), OwnFolder() + "/collectives_mpi", "FOLDER"},
                 {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}}},
                "allreduce 4 1", why);
  }

  // ---- Rows ----
  void Add(Row row) { table_.rows.push_back(std::move(row)); }
  static Row Missing(Row row, const std::string& yardstick, const std::string& why, double goal) {
    row.yardstick = yardstick;
    row.missing = why;
    row.sense = Sense::kAtLeast;
    row.goal = goal;
    row.figure_unit = "×";
    return row;
  }
  // How many times as fast as a peer.
  void Faster(const std::string& id, const std::string& what, Group& ours, Group* peer, const std::string& name,
              const std::string& why, const std::string& act, const std::string& unit, double units, double goal,
              const std::string& peer_act = {});
  void InProcess();
  void Parked();
  void SmallBetweenProcesses();
  void AgainstMpi();
  void Large();
  void LargeOf(Group& ours, const std::string& act, size_t bytes, double copied, Group* gloo,
               const std::string& no_gloo, Group* mpi, const std::string& no_mpi);
  void Broadcasts();
  void Graphs();
  void IdleGroups();
  void ManyRanks();
  void Network();
  void Creation();
  void Without();

  Table& table_;
  const std::set<std::string> wanted_;
  const std::string python_;
};

void Run::Faster(const std::string& id, const std::string& what, Group& ours, Group* peer, const std::string& name,
                 const std::string& why, const std::string& act, const std::string& unit, double units, double goal,
                 const std::string& peer_act) {
  Row row = NewRow(id, what);
  if (peer == nullptr) return Add(Missing(row, name, why, goal));
  const std::string& there = peer_act.empty() ? act : peer_act;
  if (peer->Try(there + " 1").empty()) return Add(Missing(row, name, peer->why(), goal));
  const auto series = Interleave({peer->Timed(there, units), ours.Timed(act, units)}, effort().rounds);
  Here(row, series[1], unit);
  There(row, name, series[0], unit);
  Add(Judge(row, Inverse(RatiosToFirst(series[1], series[0])), "×", Sense::kAtLeast, goal));
}

// HP-01
void Run::InProcess() {
  if (!Wants("HP-01", "two ranks in one process")) return;
  // What is without collectives is measured in a process that has none: they change how its threads wait.
  const Groups plain = Plain();
  const Groups group = InOneProcess(2);
  group->Ask("local_allreduce 2 1");
  const Sampler trip = [] {
    const Pinned pinned(UsableCores().front());
    SpinPeer peer(UsableCores().back());
    peer.RoundTrip();
    return Undisturbed([&] {
      constexpr int kTrips = 10000;
      const double start = NowNs();
      for (int i = 0; i < kTrips; ++i) peer.RoundTrip();
      return (NowNs() - start) / kTrips / 1e3;
    });
  };
  const auto series = Interleave(
      {plain->Timed("empty", 1e3), trip, group->Timed("local_allreduce 2", 1e3), group->Timed("local_threads 2", 1e3)},
      effort().rounds);
  Series limit;
  for (size_t i = 0; i < series[0].size(); ++i)
    limit.push_back(series[0][i] + series[1][std::min(i, series[1].size() - 1)]);
  const std::string yardstick = "launch and wait of an empty task, and a spinning round trip";
  Row row = NewRow("HP-01", "allreduce of 4 bytes, 2 ranks in one process, one thread drives both");
  Here(row, series[2], "µs");
  There(row, yardstick, limit, "µs");
  Add(Judge(row, RatiosToFirst(series[2], limit), "×", Sense::kAtMost, 3));
  row = NewRow("HP-01", "the same, a thread drives each");
  Here(row, series[3], "µs");
  There(row, yardstick, limit, "µs");
  Add(Judge(row, RatiosToFirst(series[3], limit), "×", Sense::kAtMost, 0));
}

// HP-02
void Run::Parked() {
  if (!Wants("HP-02", "a rank that has parked")) return;
  const Groups group = Ours(2);
  group->Ask("late 2");
  constexpr int kTimes = 20;
  // Of one rank that waits: from when the other comes to when it is done.
  const Sampler late = [&] {
    return Undisturbed(
        [&] {
          const auto reports = group->Ask("late " + std::to_string(kTimes));
          Series took;
          for (size_t i = 0; i < kTimes; ++i) took.push_back((reports[1].more[i] - reports[0].more[i]) / 1e3);
          return Of(took).median;
        },
        [&] { return group->preemptions(); });
  };
  const Sampler trip = [] {
    const Pinned pinned(UsableCores().front());
    FutexPeer peer(UsableCores().back());
    peer.RoundTrip();
    return Undisturbed([&] {
      Series took;
      for (int i = 0; i < kTimes; ++i) {
        BusyFor(1e6);
        const double start = NowNs();
        peer.RoundTrip();
        took.push_back((NowNs() - start) / 1e3);
      }
      return Of(took).median;
    });
  };
  const auto series = Interleave({trip, late}, effort().rounds);
  Row row =
      NewRow("HP-02", "allreduce of 4 bytes, 2 processes: the last rank comes after 1 ms, until the other is done");
  Here(row, series[1], "µs");
  There(row, "futex round trip after 1 ms", series[0], "µs");
  Add(Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, 2));
}

// HP-03
void Run::SmallBetweenProcesses() {
  if (!Wants("HP-03", "4 bytes between processes, against Gloo")) return;
  std::string no_gloo, no_hccl;
  const Groups ours = Ours(2);
  const Groups gloo = Torch("gloo", 2, no_gloo);
  const Groups hccl = Torch("hccl", 2, no_hccl);
  Faster("HP-03", "allreduce of 4 bytes, 2 processes, faster than Gloo", *ours, gloo.get(), "Gloo through c10d",
         no_gloo, "allreduce 4", "µs", 1e3, 20);
  const std::string what = "the same through torch.distributed's backend hccl";
  if (hccl == nullptr) return Add(Missing(NewRow("HP-03", what), "Gloo through c10d", no_hccl, 5));
  Faster("HP-03", what, *hccl, gloo.get(), "Gloo through c10d", no_gloo, "allreduce 4", "µs", 1e3, 5);
}

// HP-04
void Run::AgainstMpi() {
  if (!Wants("HP-04", "4 bytes between processes, against Open MPI")) return;
  const int many = std::max(8, static_cast<int>(UsableCores().size()) * 4);
  for (const int ranks : {2, many}) {
    std::string why;
    const Groups ours = Ours(ranks);
    const Groups mpi = Mpi(ranks, why);
    const std::string count = std::to_string(ranks);
    Faster("HP-04",
           "allreduce of 4 bytes, " + count + " processes on " + std::to_string(UsableCores().size()) +
               " cores, faster than Open MPI",
           *ours, mpi.get(), "Open MPI, shared memory", why, "allreduce 4", "µs", 1e3, ranks == 2 ? 0.5 : 1);
  }
}

// HP-05
void Run::LargeOf(Group& ours, const std::string& act, size_t bytes, double copied, Group* gloo,
                  const std::string& no_gloo, Group* mpi, const std::string& no_mpi) {
  const std::string size = std::to_string(bytes);
  const std::string what = act + " of " + std::to_string(bytes >> 20) + " MiB, 2 processes";
  const auto share = static_cast<size_t>(static_cast<double>(bytes) * copied) / 4096 * 4096;
  ours.Ask(act + " " + size + " 1");
  const auto series = Interleave({ours.Timed("copy " + std::to_string(share), 1e6), ours.Timed(act + " " + size, 1e6)},
                                 effort().slow_rounds);
  Row row = NewRow("HP-05", what);
  Here(row, series[1], "ms");
  There(row, "memcpy of as many bytes on both cores", series[0], "ms");
  Add(Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, 1.3));
  Faster("HP-05", what + ", faster than Gloo", ours, gloo, "Gloo through c10d", no_gloo, act + " " + size, "ms", 1e6,
         2.5);
  Faster("HP-05", what + ", faster than Open MPI", ours, mpi, "Open MPI, shared memory", no_mpi, act + " " + size, "ms",
         1e6, 1);
}

void Run::Large() {
  if (!Wants("HP-05", "large data")) return;
  std::string no_gloo, no_mpi;
  const Groups ours = Ours(2);
  const Groups gloo = Torch("gloo", 2, no_gloo);
  const Groups mpi = Mpi(2, no_mpi);
  // How much each rank has to copy at least, of a copy's two transfers for each byte: reads of all inputs once and
  // writes of all outputs once, for reductions; reads of what is written, for the others.
  for (const auto& [act, copied] :
       {std::pair{"allreduce", 1.0}, {"allgather", 1.0}, {"reduce_scatter", 0.75}, {"all_to_all", 1.0}})
    LargeOf(*ours, act, kLarge, copied, gloo.get(), no_gloo, mpi.get(), no_mpi);
  LargeOf(*ours, "allreduce", 4 * kLarge, 1, gloo.get(), no_gloo, mpi.get(), no_mpi);
}

// HP-06
void Run::Broadcasts() {
  if (!Wants("HP-06", "broadcast")) return;
  for (const int ranks : {2, 4}) {
    const Groups ours = Ours(ranks);
    const std::string size = std::to_string(kLarge);
    ours->Ask("broadcast " + size + " 1");
    const auto series =
        Interleave({ours->Timed("copy_others " + size, 1e6), ours->Timed("broadcast " + size, 1e6)}, effort().rounds);
    Row row = NewRow(
        "HP-06", "broadcast of 16 MiB to " + std::to_string(ranks - 1) + " other process" + (ranks == 2 ? "" : "es"));
    Here(row, series[1], "ms");
    There(row, "a memcpy in each of them", series[0], "ms");
    Add(Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, 1.2));
  }
}

// HP-07
void Run::Graphs() {
  if (!Wants("HP-07", "graphs of collectives")) return;
  {
    const Groups group = InOneProcess(2), other = InOneProcess(2);
    group->Ask("local_launch 2 1");
    const auto series =
        Interleave({other->Timed("local_launch_empty 2", 2e3), group->Timed("local_launch 2", 2e3)}, effort().rounds);
    Row row = NewRow("HP-07", "launch call, graph of 100 allreduces of 4 bytes, 2 ranks in one process");
    Here(row, series[1], "µs");
    There(row, "launch call, graph of 100 empty kernels", series[0], "µs");
    Add(Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, 1.5));
  }
  const Groups ours = Ours(2);
  ours->Ask("replay_many 4 1");
  const auto series =
      Interleave({ours->Timed("replay_many 4", 1e5), ours->Timed("eager_many 4", 1e5)}, effort().rounds);
  Row row = NewRow("HP-07", "allreduce of 4 bytes in a replay of 100, 2 processes: faster than called");
  Here(row, series[0], "µs");
  There(row, "ours, 100 calls and a wait", series[1], "µs");
  Add(Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtLeast, 1.3));
}

// HP-08
void Run::IdleGroups() {
  if (!Wants("HP-08", "idle communicators")) return;
  const Groups ours = Ours(2);
  Series used, sleeps;
  for (int i = 0; i < std::min(effort().rounds, 5); ++i) {
    double most = 0, most_sleeps = 0;
    for (const Report& report : ours->Ask("idle 1000")) {
      most = std::max(most, report.more[0] / 1e3);
      most_sleeps = std::max(most_sleeps, report.more[1]);
    }
    used.push_back(most);
    sleeps.push_back(most_sleeps);
  }
  Row row = NewRow("HP-08", "CPU time of a process with an idle communicator, in a second");
  Here(row, used, "µs");
  Add(Judge(row, used, "µs", Sense::kAtMost, 1000));
  row = NewRow("HP-08", "wake-ups of its threads in that second");
  Here(row, sleeps, "wakes");
  // The table has no goal of 0.
  Add(Judge(row, sleeps, "wakes", Sense::kAtMost, 0.5));
}

// HP-09
void Run::ManyRanks() {
  if (!Wants("HP-09", "64 ranks in one process")) return;
  const Groups group = InOneProcess(64), other = InOneProcess(64);
  group->Ask("local_barrier 64 1");
  const auto series =
      Interleave({other->Timed("local_empty 64", 1e3), group->Timed("local_barrier 64", 1e3)}, effort().rounds);
  Row row = NewRow("HP-09", "barrier of 64 ranks in one process, one thread drives all");
  Here(row, series[1], "µs");
  There(row, "an empty task on each of 64 streams", series[0], "µs");
  Add(Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, 3));
}

// HP-10
void Run::Network() {
  if (!Wants("HP-10", "network over the loopback interface")) return;
  const Groups ours = Ours(2, {{"REPRISE_HCCL_SHM", "0"}, {"HCCL_IF_IP", "127.0.0.1"}});
  const std::string size = std::to_string(kLarge);
  ours->Ask("broadcast " + size + " 1");
  auto series = Interleave({ours->Timed("raw " + size, 1e6), ours->Timed("broadcast " + size, 1e6)}, effort().rounds);
  Row row = NewRow("HP-10", "broadcast of 16 MiB through TCP, 2 processes");
  Here(row, series[1], "ms");
  There(row, "the same bytes through a bare socket", series[0], "ms");
  Add(Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, 1.3));
  const Sampler wake = [] {
    const Pinned pinned(UsableCores().front());
    FutexPeer peer(UsableCores().back());
    peer.RoundTrip();
    return Undisturbed([&] {
      constexpr int kTrips = 200;
      const double start = NowNs();
      for (int i = 0; i < kTrips; ++i) peer.RoundTrip();
      return (NowNs() - start) / kTrips / 1e3;
    });
  };
  series = Interleave({ours->Timed("raw 4", 1e3), wake, ours->Timed("allreduce 4", 1e3)}, effort().rounds);
  Series limit;
  for (size_t i = 0; i < series[0].size(); ++i)
    limit.push_back(2 * series[0][i] + series[1][std::min(i, series[1].size() - 1)]);
  row = NewRow("HP-10", "allreduce of 4 bytes through TCP, 2 processes");
  Here(row, series[2], "µs");
  There(row, "2 round trips of a bare socket and 2 wakes", limit, "µs");
  Add(Judge(row, RatiosToFirst(series[2], limit), "×", Sense::kAtMost, 1));
}

// HP-11
void Run::Creation() {
  if (!Wants("HP-11", "creation of communicators")) return;
  {
    const Groups ours = Ours(8);
    Series took;
    for (int i = 0; i < effort().rounds; ++i) {
      const std::string token = "t" + std::to_string(i);
      ours->Ask("token " + token);
      took.push_back(ours->Ns("create " + token) / 1e6);
    }
    Row row = NewRow("HP-11", "communicator of 8 processes, of a token");
    Here(row, took, "ms");
    Add(Judge(row, took, "ms", Sense::kAtMost, 100));
  }
  const Groups group = InOneProcess(64);
  Series took;
  for (int i = 0; i < effort().rounds; ++i) took.push_back(group->Ns("local_create 64") / 1e6);
  Row row = NewRow("HP-11", "HcclCommInitAll of 64 ranks");
  Here(row, took, "ms");
  Add(Judge(row, took, "ms", Sense::kAtMost, 20));
}

// HP-12
void Run::Without() {
  if (!Wants("HP-12", "streams without collectives")) return;
  const Groups plain = Plain();
  const Groups ours = Ours(2);
  ours->Ask("join");
  for (const auto& [act, what, units] : {std::tuple{"launches", "no-op launch without a capture, sustained", 1e3},
                                         {"replay", "launch and wait, 10 nodes, hot", 1.0}}) {
    const auto series = Interleave({plain->Timed(act, units), ours->Timed(act, units)}, effort().small_rounds);
    Row row = NewRow("HP-12", std::string(what) + ", in a process with a communicator");
    Here(row, series[1], "ns");
    There(row, "in a process without libhccl", series[0], "ns");
    Add(Judge(row, RatiosToFirst(series[1], series[0]), "×", Sense::kAtMost, 1.1));
  }
}

void Run::All() {
  InProcess();
  Parked();
  SmallBetweenProcesses();
  AgainstMpi();
  Large();
  Broadcasts();
  Graphs();
  IdleGroups();
  ManyRanks();
  Network();
  Creation();
  Without();
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string Conditions(bool quick, double others) {
  std::ostringstream text;
  text << CpuName() << ", " << UsableCores().size() << " cores used; " << effort().rounds
       << " samples of most figures, taken in turn with the yardstick; " << DisturbedSamples()
       << " were disturbed whenever they were taken; other processes used " << std::fixed << std::setprecision(2)
       << others << " cores meanwhile. Compare ratios, not times.";
  if (quick) text << " A quick run: too few samples to judge by.";
  return text.str();
}

void WriteFile(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << text;
  file.close();
  Require(file.good(), ("cannot write " + path).c_str());
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  std::string markdown, json, python;
  std::set<std::string> wanted;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const bool has_value = i + 1 < argc;
    if (option == "--quick") {
      quick = true;
    } else if (option == "--rows" && has_value) {
      std::istringstream list(argv[++i]);
      for (std::string id; std::getline(list, id, ',');) wanted.insert(id);
    } else if (option == "--python" && has_value) {
      python = argv[++i];
    } else if (option == "--markdown" && has_value) {
      markdown = argv[++i];
    } else if (option == "--json" && has_value) {
      json = argv[++i];
    } else {
      std::fputs(bench::kUsage, option == "--help" ? stdout : stderr);
      return option == "--help" ? 0 : 2;
    }
  }
  for (const std::string& id : wanted) {
    if (std::find(std::begin(bench::kRows), std::end(bench::kRows), id) == std::end(bench::kRows)) {
      std::fprintf(stderr, "collectives_bench: there is no row %s\n%s", id.c_str(), bench::kUsage);
      return 2;
    }
  }
  if (quick) bench::effort() = {3, 3, 9, 5e5, 1};
  std::vector<std::string> expected;
  for (const char* id : bench::kRows) {
    if (wanted.empty() || wanted.count(id) > 0) expected.emplace_back(id);
  }
  bench::ExpectRows(expected);
  const bench::OtherLoad others;
  bench::Table table;
  bench::Run(table, wanted, python).All();
  table.conditions = bench::Conditions(quick, others.Cores());
  std::fputs(table.Markdown().c_str(), stdout);
  bench::WriteFile(markdown, table.Markdown());
  bench::WriteFile(json, table.Json());
  return 0;
}
