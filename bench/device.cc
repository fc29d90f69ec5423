// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <reprise/reprise.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernels.h"

namespace bench {
namespace {

constexpr const char* kBinary = "reprise_bench";

std::atomic<uint64_t> g_counted{0};
Stamps* g_stamps = nullptr;

int32_t Count(const RepriseKernelContext*, const void* args, size_t) {
  uint64_t amount = 0;
  std::memcpy(&amount, args, sizeof amount);
  g_counted.fetch_add(amount, std::memory_order_relaxed);
  return 0;
}
int32_t Work(const RepriseKernelContext*, const void* args, size_t) {
  WorkArguments arguments{};
  std::memcpy(&arguments, args, sizeof arguments);
  if (arguments.iterations > 0) SpinWork(arguments.iterations);
  return 0;
}
int32_t Stamp(const RepriseKernelContext* context, const void* args, size_t bytes) {
  WorkArguments arguments{};
  std::memcpy(&arguments, args, sizeof arguments);
  Stamps::Note(arguments.node);
  return Work(context, args, bytes);
}
Kernels LoadKernels() {
  // The library keeps what it is given.
  static std::vector<std::string> names;
  static std::vector<RepriseKernelDesc> descriptions;
  static RepriseKernelTable table{};
  const auto add = [](const char* name, RepriseKernelFn function) {
    descriptions.push_back({name, 0, function, REPRISE_KERNEL_VECTOR, 0, 0, nullptr, 0});
  };
  add("no_op", NoOpKernel());
  add("count", Count);
  add("work", Work);
  add("stamp", Stamp);
  const std::vector<RepriseKernelFn> mixed = MixedKernels();
  names.reserve(mixed.size());
  for (size_t i = 0; i < mixed.size(); ++i) {
    names.push_back("mixed" + std::to_string(i));
    add(names.back().c_str(), mixed[i]);
  }
  table = {REPRISE_KERNEL_ABI_VERSION, static_cast<uint32_t>(descriptions.size()), descriptions.data()};
  CHECK_ACL(repriseRegisterKernels(kBinary, &table));
  aclrtBinHandle binary = nullptr;
  CHECK_ACL(aclrtBinaryLoadFromFile(kBinary, nullptr, &binary));
  Kernels kernels;
  CHECK_ACL(aclrtBinaryGetFunction(binary, "no_op", &kernels.no_op));
  CHECK_ACL(aclrtBinaryGetFunction(binary, "count", &kernels.count));
  CHECK_ACL(aclrtBinaryGetFunction(binary, "work", &kernels.work));
  CHECK_ACL(aclrtBinaryGetFunction(binary, "stamp", &kernels.stamp));
  for (const std::string& name : names) {
    aclrtFuncHandle function = nullptr;
    CHECK_ACL(aclrtBinaryGetFunction(binary, name.c_str(), &function));
    kernels.mixed.push_back(function);
  }
  return kernels;
}

}  // namespace

void CheckAcl(int code, const char* call) {
  if (code == 0) return;
  const char* words = aclGetRecentErrMsg();
  std::fprintf(stderr, "%s returned %d\n%s\n", call, code, words != nullptr ? words : "");
  std::exit(1);
}

uint64_t Counted() { return g_counted.load(); }

Stamps::Stamps(int nodes) : at_(static_cast<size_t>(nodes)), runs_(static_cast<size_t>(nodes)) { g_stamps = this; }
Stamps::~Stamps() { g_stamps = nullptr; }
void Stamps::Note(uint32_t node) {
  g_stamps->at_[node].store(g_stamps->clock_.fetch_add(1));
  g_stamps->runs_[node].fetch_add(1);
}
void Stamps::Check(const Dag& dag, int times, const char* what) const {
  for (size_t node = 0; node < at_.size(); ++node) {
    Require(runs_[node].load() == static_cast<uint32_t>(times), what);
    for (const int before : dag.predecessors[node]) {
      Require(at_[static_cast<size_t>(before)].load() < at_[node].load(), what);
    }
  }
}

Device::Device() {
  CHECK_ACL(aclInit(nullptr));
  CHECK_ACL(aclrtSetDevice(0));
  CHECK_ACL(aclrtCreateStream(&stream_));
  kernels_ = LoadKernels();
  // Threads start at the first submission; they must not inherit the core that a row keeps the caller on.
  bench::Launch(kernels_.no_op, 0, stream_);
  CHECK_ACL(aclrtSynchronizeStream(stream_));
}
Device::~Device() {
  CHECK_ACL(aclrtDestroyStream(stream_));
  CHECK_ACL(aclrtResetDevice(0));
  CHECK_ACL(aclFinalize());
}

void Launch(aclrtFuncHandle kernel, uint64_t argument, aclrtStream stream) {
  CHECK_ACL(aclrtLaunchKernelWithHostArgs(kernel, 1, stream, nullptr, &argument, sizeof argument, nullptr, 0));
}

Graph::~Graph() {
  if (model_ != nullptr) CHECK_ACL(aclmdlRIDestroy(model_));
}

Graph CaptureChain(aclrtFuncHandle kernel, int nodes, aclrtStream stream, uint64_t argument) {
  return Capture(stream, [&] {
    for (int i = 0; i < nodes; ++i) Launch(kernel, argument, stream);
  });
}

DagRecorder::~DagRecorder() {
  for (aclrtStream stream : streams_) CHECK_ACL(aclrtDestroyStream(stream));
  for (aclrtEvent event : events_) CHECK_ACL(aclrtDestroyEvent(event));
}

Graph DagRecorder::Capture(const Dag& dag, aclrtFuncHandle kernel) {
  // A node takes over the stream of the first predecessor that is still the last on its stream.
  constexpr size_t kNone = ~size_t{0};
  std::vector<size_t> stream_of(static_cast<size_t>(dag.nodes()), kNone);
  std::vector<size_t> last;  // node, by stream
  for (size_t node = 0; node < stream_of.size(); ++node) {
    for (const int before : dag.predecessors[node]) {
      const size_t stream = stream_of[static_cast<size_t>(before)];
      if (last[stream] != static_cast<size_t>(before)) continue;
      stream_of[node] = stream;
      last[stream] = node;
      break;
    }
    if (stream_of[node] != kNone) continue;
    stream_of[node] = last.size();
    last.push_back(node);
  }
  return Record(dag, kernel, stream_of, last.size());
}

Graph DagRecorder::CaptureForkJoin(const Dag& dag, aclrtFuncHandle kernel) {
  // Root and sink stand on one stream, as a program would write it; the tasks between them on one each.
  std::vector<size_t> stream_of(static_cast<size_t>(dag.nodes()));
  for (size_t node = 0; node < stream_of.size(); ++node) stream_of[node] = node;
  stream_of.back() = 0;
  return Record(dag, kernel, stream_of, stream_of.size() - 1);
}

Graph DagRecorder::Record(const Dag& dag, aclrtFuncHandle kernel, const std::vector<size_t>& stream_of,
                          size_t streams) {
  while (streams_.size() < streams) CHECK_ACL(aclrtCreateStream(&streams_.emplace_back()));
  const size_t nodes = stream_of.size();
  while (events_.size() < nodes + 1) {
    CHECK_ACL(aclrtCreateEventExWithFlag(&events_.emplace_back(), ACL_EVENT_SYNC));
  }
  return bench::Capture(origin_, [&] {
    const aclrtEvent fork = events_[nodes];
    CHECK_ACL(aclrtRecordEvent(fork, origin_));
    std::vector<bool> inside(streams);
    for (size_t node = 0; node < nodes; ++node) {
      const size_t where = stream_of[node];
      aclrtStream stream = streams_[where];
      if (dag.predecessors[node].empty() && !inside[where]) CHECK_ACL(aclrtStreamWaitEvent(stream, fork));
      inside[where] = true;
      for (const int before : dag.predecessors[node]) {
        const auto index = static_cast<size_t>(before);
        // On one stream a node comes after all that stood there before.
        if (stream_of[index] != where) CHECK_ACL(aclrtStreamWaitEvent(stream, events_[index]));
      }
      WorkArguments arguments{dag.iterations[node], static_cast<uint32_t>(node)};
      CHECK_ACL(aclrtLaunchKernelWithHostArgs(kernel, 1, stream, nullptr, &arguments, sizeof arguments, nullptr, 0));
      bool leaves = dag.successors[node].empty();
      for (const int after : dag.successors[node]) leaves |= stream_of[static_cast<size_t>(after)] != where;
      if (leaves) CHECK_ACL(aclrtRecordEvent(events_[node], stream));
    }
    for (size_t node = 0; node < nodes; ++node) {
      if (dag.successors[node].empty()) CHECK_ACL(aclrtStreamWaitEvent(origin_, events_[node]));
    }
  });
}

}  // namespace bench
