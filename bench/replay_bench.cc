// SPDX-License-Identifier: Apache-2.0
//
// What capture and replay cost on the host: chains of kernels that do nothing, so that only our own work is left.
//
//   replay_bench [table.md]     prints a Markdown table, and writes it to the file
//
// Method. Everything runs in one process, and what is compared is measured in turn: flat, replay, flat, replay, … A
// sample covers a few milliseconds of repetitions. A sample during which the kernel took one of our threads off its
// core is taken again, a bounded number of times. Times of virtual machines drift by factors, so read the ratios; each
// is the median of the ratios of neighbouring samples.
//
// The yardstick is a flat array of function pointers, called in a loop on one thread: what no executor can beat without
// emitting code. For cold starts it is a round trip between two threads over a futex.
#include <acl/acl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <reprise/reprise.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kRounds = 11;        // samples of each figure
constexpr int kColdRounds = 61;    // single starts: no repetitions to average over
constexpr int kRetakes = 6;        // of a sample that was disturbed
constexpr double kSampleNs = 4e6;  // of repetitions in one sample
constexpr auto kIdle = std::chrono::milliseconds(1);

void Check(int code, const char* call) {
  if (code == 0) return;
  const char* words = aclGetRecentErrMsg();
  std::fprintf(stderr, "%s returned %d\n%s\n", call, code, words != nullptr ? words : "");
  std::exit(1);
}
#define CHECK_ACL(call) Check(call, #call)

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "replay_bench: %s\n", what);
  std::exit(1);
}

// ---- Kernels ----------------------------------------------------------------------------------------------------

uint64_t g_runs = 0;  // one stream, so one thread at a time

int32_t NoOp(const RepriseKernelContext*, const void*, size_t) {
  asm volatile("" ::: "memory");
  return 0;
}

int32_t Count(const RepriseKernelContext*, const void*, size_t) {
  ++g_runs;
  return 0;
}

constexpr RepriseKernelDesc kKernels[] = {
    {"no_op", 0, NoOp, REPRISE_KERNEL_VECTOR, 0, 0, nullptr, 0},
    {"count", 0, Count, REPRISE_KERNEL_VECTOR, 0, 0, nullptr, 0},
};
constexpr RepriseKernelTable kTable = {REPRISE_KERNEL_ABI_VERSION, 2, kKernels};

struct Kernels {
  aclrtFuncHandle no_op = nullptr;
  aclrtFuncHandle count = nullptr;
};

Kernels LoadKernels() {
  CHECK_ACL(repriseRegisterKernels("replay_bench", &kTable));
  aclrtBinHandle binary = nullptr;
  CHECK_ACL(aclrtBinaryLoadFromFile("replay_bench", nullptr, &binary));
  Kernels kernels;
  CHECK_ACL(aclrtBinaryGetFunction(binary, "no_op", &kernels.no_op));
  CHECK_ACL(aclrtBinaryGetFunction(binary, "count", &kernels.count));
  return kernels;
}

void Launch(aclrtFuncHandle kernel, aclrtStream stream) {
  uint64_t argument = 0;
  CHECK_ACL(aclrtLaunchKernelWithHostArgs(kernel, 1, stream, nullptr, &argument, sizeof argument, nullptr, 0));
}

aclmdlRI Capture(aclrtFuncHandle kernel, int nodes, aclrtStream stream) {
  aclmdlRI graph = nullptr;
  CHECK_ACL(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < nodes; ++i) Launch(kernel, stream);
  CHECK_ACL(aclmdlRICaptureEnd(stream, &graph));
  return graph;
}

void Replay(aclmdlRI graph, aclrtStream stream) {
  CHECK_ACL(aclmdlRIExecuteAsync(graph, stream));
  CHECK_ACL(aclrtSynchronizeStream(stream));
}

// ---- Yardsticks -------------------------------------------------------------------------------------------------

struct FlatNode {
  void (*function)(void*);
  void* argument;
};

__attribute__((noinline)) void FlatNoOp(void*) { asm volatile("" ::: "memory"); }

__attribute__((noinline)) void RunFlat(const std::vector<FlatNode>& nodes) {
  for (const FlatNode& node : nodes) node.function(node.argument);
}

// The cores that the process may use. Asked before anybody is pinned.
std::vector<int> UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

void Pin(pthread_t thread, int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(thread, sizeof set, &set);
}

// Two threads that hand a word to and fro; both sleep while they wait.
class FutexPeer {
 public:
  explicit FutexPeer(int core) : thread_([this] { Answer(); }) { Pin(thread_.native_handle(), core); }
  ~FutexPeer() {
    stop_ = true;
    Post(question_);
    thread_.join();
  }

  void RoundTrip() {
    const uint32_t before = answer_.load();
    Post(question_);
    Await(answer_, before);
  }

 private:
  static void Post(std::atomic<uint32_t>& word) {
    word.fetch_add(1);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  static void Await(std::atomic<uint32_t>& word, uint32_t seen) {
    while (word.load() == seen) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
  }
  void Answer() {
    for (uint32_t seen = 0;;) {
      Await(question_, seen);
      seen = question_.load();
      if (stop_) return;
      Post(answer_);
    }
  }

  std::atomic<uint32_t> question_{0};
  std::atomic<uint32_t> answer_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// ---- Sampling ---------------------------------------------------------------------------------------------------

double NowNs() {
  using namespace std::chrono;
  return duration<double, std::nano>(steady_clock::now().time_since_epoch()).count();
}

int64_t Preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

int g_disturbed = 0;  // samples that were kept although every retake was disturbed as well

// One undisturbed call of `sample`, which returns the nanoseconds it wants counted.
template <class Sample>
double Undisturbed(Sample sample) {
  double least = 0;
  for (int i = 0; i < kRetakes; ++i) {
    const int64_t before = Preemptions();
    const double ns = sample();
    if (Preemptions() == before) return ns;
    if (i == 0 || ns < least) least = ns;
  }
  ++g_disturbed;
  return least;
}

// Nanoseconds of one call, from enough calls to fill a sample.
template <class Body>
class Timed {
 public:
  explicit Timed(Body body) : body_(body) {
    const double start = NowNs();
    body_();
    repetitions_ = std::clamp(static_cast<int>(kSampleNs / (NowNs() - start + 1)), 1, 1 << 20);
  }
  double Sample() {
    return Undisturbed([this] {
      const double start = NowNs();
      for (int i = 0; i < repetitions_; ++i) body_();
      return (NowNs() - start) / repetitions_;
    });
  }

 private:
  Body body_;
  int repetitions_;
};

struct Spread {
  double least = 0, median = 0, most = 0;
};

Spread Of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

std::string Text(const Spread& s, const char* unit) {
  char text[96];
  const int digits = s.median < 10 ? 2 : s.median < 100 ? 1 : 0;
  std::snprintf(text, sizeof text, "%.*f %s (%.*f to %.*f)", digits, s.median, unit, digits, s.least, digits, s.most);
  return text;
}

// ---- The table --------------------------------------------------------------------------------------------------

struct Table {
  std::string text =
      "| What | Here: median (least to most) | Yardstick | Yardstick's time | Ratio |\n|---|--:|---|--:|--:|\n";

  void Add(const std::string& what, const std::string& here, const std::string& yardstick = "",
           const std::string& yardstick_time = "", const std::string& ratio = "") {
    const std::string row =
        "| " + what + " | " + here + " | " + yardstick + " | " + yardstick_time + " | " + ratio + " |\n";
    text += row;
  }
};

// Samples of two things, in turn.
struct Pair {
  std::vector<double> here, yardstick, ratio;
  void Add(double a, double b) {
    here.push_back(a);
    yardstick.push_back(b);
    ratio.push_back(a / b);
  }
};

std::vector<double> Scaled(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

void CheckReplays(const Kernels& kernels, aclrtStream stream) {
  aclmdlRI graph = Capture(kernels.count, 1000, stream);
  Require(g_runs == 0, "a captured kernel ran during the capture");
  Replay(graph, stream);
  Replay(graph, stream);
  Require(g_runs == 2000, "two replays of 1000 kernels did not run 2000 kernels");
  CHECK_ACL(aclmdlRIDestroy(graph));
}

void Chains(Table& table, const Kernels& kernels, aclrtStream stream) {
  for (const int nodes : {10, 100, 1000, 10000}) {
    aclmdlRI graph = Capture(kernels.no_op, nodes, stream);
    const std::vector<FlatNode> flat(static_cast<size_t>(nodes), FlatNode{FlatNoOp, nullptr});
    Timed replay([&] { Replay(graph, stream); });
    Timed yardstick([&] { RunFlat(flat); });
    Pair pair;
    for (int round = 0; round < kRounds; ++round) pair.Add(replay.Sample() / nodes, yardstick.Sample() / nodes);
    table.Add("replay of " + std::to_string(nodes) + " nodes, launch to end of wait, per node",
              Text(Of(pair.here), "ns"), "flat loop", Text(Of(pair.yardstick), "ns"), Text(Of(pair.ratio), "×"));
    CHECK_ACL(aclmdlRIDestroy(graph));
  }
}

// The launching call alone: the stream is idle before, and what is launched is waited for outside of the time. The time
// of reading the clock, which is in every single sample, is taken off.
void LaunchCall(Table& table, const Kernels& kernels, aclrtStream stream) {
  aclmdlRI small = Capture(kernels.no_op, 10, stream);
  aclmdlRI large = Capture(kernels.no_op, 10000, stream);
  constexpr int kCalls = 200;
  const auto sample = [&](aclmdlRI graph) {
    return Undisturbed([&] {
      std::vector<double> calls(kCalls);
      for (double& call : calls) {
        const double before = NowNs();
        const double start = NowNs();
        CHECK_ACL(aclmdlRIExecuteAsync(graph, stream));
        call = (NowNs() - start) - (start - before);
        CHECK_ACL(aclrtSynchronizeStream(stream));
      }
      return Of(calls).median;
    });
  };
  Pair pair;
  for (int round = 0; round < kRounds; ++round) {
    const double with_large = sample(large);
    pair.Add(with_large, sample(small));
  }
  table.Add("the launch call alone, 10 nodes", Text(Of(pair.yardstick), "ns"));
  // The launch does not walk the graph. What differs is the worker: the waiting caller runs the graph for longer than a
  // worker spins, so that the next launch finds it asleep and pays for a wake-up.
  table.Add("the launch call alone, 10000 nodes (finds the worker asleep)", Text(Of(pair.here), "ns"),
            "the same, 10 nodes", Text(Of(pair.yardstick), "ns"), Text(Of(pair.ratio), "×"));
  CHECK_ACL(aclmdlRIDestroy(small));
  CHECK_ACL(aclmdlRIDestroy(large));
}

void Eager(Table& table, const Kernels& kernels, aclrtStream stream) {
  constexpr int kLaunches = 1000;
  aclmdlRI graph = Capture(kernels.no_op, kLaunches, stream);
  Timed eager([&] {
    for (int i = 0; i < kLaunches; ++i) Launch(kernels.no_op, stream);
    CHECK_ACL(aclrtSynchronizeStream(stream));
  });
  Timed replay([&] { Replay(graph, stream); });
  Pair pair;
  for (int round = 0; round < kRounds; ++round) pair.Add(eager.Sample() / kLaunches, replay.Sample() / kLaunches);
  table.Add("eager launches, 1000 and one wait, per launch", Text(Of(pair.here), "ns"), "replay of the same",
            Text(Of(pair.yardstick), "ns"), Text(Of(pair.ratio), "×"));
  CHECK_ACL(aclmdlRIDestroy(graph));
}

void Building(Table& table, const Kernels& kernels, aclrtStream stream) {
  const auto sample = [&](int nodes) {
    return Undisturbed([&] {
      const double start = NowNs();
      aclmdlRI graph = Capture(kernels.no_op, nodes, stream);
      const double ns = NowNs() - start;
      CHECK_ACL(aclmdlRIDestroy(graph));
      return ns / nodes;
    });
  };
  std::vector<double> tiny;
  tiny.reserve(kRounds);
  for (int round = 0; round < kRounds; ++round) tiny.push_back(sample(10));
  table.Add("capture + instantiate, 10 nodes, per node", Text(Of(tiny), "ns"));
  for (const int nodes : {1000, 10000, 100000}) {
    Pair pair;
    for (int round = 0; round < kRounds; ++round) {
      const double many = sample(nodes);
      pair.Add(many, sample(1000));
    }
    const bool is_yardstick = nodes == 1000;
    table.Add("capture + instantiate, " + std::to_string(nodes) + " nodes, per node", Text(Of(pair.here), "ns"),
              is_yardstick ? "" : "the same, 1000 nodes", is_yardstick ? "" : Text(Of(pair.yardstick), "ns"),
              is_yardstick ? "" : Text(Of(pair.ratio), "×"));
  }
  for (const int nodes : {1000, 100000}) {
    aclmdlRI graph = Capture(kernels.no_op, nodes, stream);
    reprise::GraphStats stats{};
    CHECK_ACL(reprise::GetGraphStats(graph, &stats));
    char text[64];
    std::snprintf(text, sizeof text, "%.1f bytes", static_cast<double>(stats.memory_bytes) / nodes);
    table.Add("memory of a graph of " + std::to_string(nodes) + " nodes with 8 bytes of arguments, per node", text);
    CHECK_ACL(aclmdlRIDestroy(graph));
  }
}

void Cold(Table& table, const Kernels& kernels, aclrtStream stream) {
  aclmdlRI graph = Capture(kernels.no_op, 10, stream);
  Replay(graph, stream);
  // A round trip inside one core is a mere switch of threads. So the caller and its peer are kept on two; the device's
  // workers have started before and stay free to run anywhere.
  const std::vector<int> cores = UsableCores();
  Pin(pthread_self(), cores.front());
  FutexPeer peer(cores.back());
  peer.RoundTrip();
  const auto sample = [](auto body) {
    return Undisturbed([&] {
      std::this_thread::sleep_for(kIdle);
      const double start = NowNs();
      body();
      return NowNs() - start;
    });
  };
  Pair pair;
  for (int round = 0; round < kColdRounds; ++round) {
    const double cold = sample([&] { Replay(graph, stream); });
    pair.Add(cold, sample([&] { peer.RoundTrip(); }));
  }
  table.Add("replay of 10 nodes after 1 ms idle, launch to end of wait", Text(Of(Scaled(pair.here, 1e-3)), "µs"),
            "futex round trip after 1 ms idle", Text(Of(Scaled(pair.yardstick, 1e-3)), "µs"),
            Text(Of(pair.ratio), "×"));
  CHECK_ACL(aclmdlRIDestroy(graph));
}

std::string Conditions() {
  char text[256];
  std::snprintf(text, sizeof text,
                "%u cores, %d samples of each figure (%d of the cold start), %d of them disturbed by other processes. "
                "Compare the ratios, not the times.\n",
                std::thread::hardware_concurrency(), kRounds, kColdRounds, g_disturbed);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  CHECK_ACL(aclInit(nullptr));
  CHECK_ACL(aclrtSetDevice(0));
  aclrtStream stream = nullptr;
  CHECK_ACL(aclrtCreateStream(&stream));
  const Kernels kernels = LoadKernels();
  CheckReplays(kernels, stream);

  Table table;
  Chains(table, kernels, stream);
  LaunchCall(table, kernels, stream);
  Eager(table, kernels, stream);
  Building(table, kernels, stream);
  Cold(table, kernels, stream);

  CHECK_ACL(aclrtDestroyStream(stream));
  CHECK_ACL(aclrtResetDevice(0));
  CHECK_ACL(aclFinalize());

  const std::string page = Conditions() + "\n" + table.text;
  std::fputs(page.c_str(), stdout);
  if (argc > 1) {
    std::FILE* file = std::fopen(argv[1], "w");
    Require(file != nullptr && std::fputs(page.c_str(), file) >= 0 && std::fclose(file) == 0, "cannot write the table");
  }
  return 0;
}
