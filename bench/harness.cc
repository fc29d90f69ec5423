// SPDX-License-Identifier: Apache-2.0
#include "harness.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace bench {
namespace {

int g_disturbed = 0;

std::vector<int> AskCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

const std::vector<int> g_cores = AskCores();
std::vector<std::string> g_expected;

// CPU time of the whole machine less that of this process and its children.
double OthersNs() {
  std::FILE* file = std::fopen("/proc/stat", "r");
  if (file == nullptr) return 0;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, soft = 0, steal = 0;
  const int read = std::fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &waiting,
                               &irq, &soft, &steal);
  std::fclose(file);
  if (read != 8) return 0;
  const double tick_ns = 1e9 / static_cast<double>(sysconf(_SC_CLK_TCK));
  rusage children{};
  getrusage(RUSAGE_CHILDREN, &children);
  const double own = CpuNs() + static_cast<double>(children.ru_utime.tv_sec + children.ru_stime.tv_sec) * 1e9 +
                     static_cast<double>(children.ru_utime.tv_usec + children.ru_stime.tv_usec) * 1e3;
  return (user + nice + system + irq + soft + steal) * tick_ns - own;
}

}  // namespace

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "reprise_bench: %s\n", what);
  std::exit(1);
}

double NowNs() {
  using namespace std::chrono;
  return duration<double, std::nano>(steady_clock::now().time_since_epoch()).count();
}

double CpuNs() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

const std::vector<int>& UsableCores() { return g_cores; }

void PinThisThread(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);  // a machine that refuses is measured unpinned
}

Pinned::Pinned(int core) : before_(AskCores()) { PinThisThread({core}); }
Pinned::~Pinned() { PinThisThread(before_); }

Effort& effort() {
  static Effort instance;
  return instance;
}

int64_t Preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

int64_t OwnSwitches() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw + usage.ru_nvcsw;
}

int DisturbedSamples() { return g_disturbed; }
void CountDisturbed() { ++g_disturbed; }

std::vector<Series> Interleave(const std::vector<Sampler>& samplers, int rounds) {
  std::vector<Series> all(samplers.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < samplers.size(); ++i) all[i].push_back(samplers[i]());
  }
  all[0].push_back(samplers[0]());
  return all;
}

Series RatiosToFirst(const Series& value, const Series& yardstick) {
  Series ratios;
  for (size_t i = 0; i < value.size(); ++i) ratios.push_back(value[i] / std::min(yardstick[i], yardstick[i + 1]));
  return ratios;
}

Series Ratios(const Series& a, const Series& b) {
  Series ratios;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) ratios.push_back(a[i] / b[i]);
  return ratios;
}

Series Scaled(Series values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

Series Inverse(Series values) {
  for (double& value : values) value = 1 / value;
  return values;
}

OtherLoad::OtherLoad() : wall_ns_(NowNs()), others_ns_(OthersNs()) {}
double OtherLoad::Cores() const {
  // The kernel counts in steps of 10 ms, so that a short run may come out below zero.
  return std::max(0.0, (OthersNs() - others_ns_) / (NowNs() - wall_ns_));
}

void ExpectRows(const std::vector<std::string>& ids) { g_expected = ids; }

void Progress(const std::string& row, const std::string& what) {
  const auto at = std::find(g_expected.begin(), g_expected.end(), row) - g_expected.begin() + 1;
  std::fprintf(stderr, "[%2d/%d] %-3s %s\n", static_cast<int>(at), static_cast<int>(g_expected.size()), row.c_str(),
               what.c_str());
}

}  // namespace bench
