// SPDX-License-Identifier: Apache-2.0
//
// What instructions_test counts: each phase is dumped by callgrind under a name. Alone it does the same and counts
// nothing. Prints a line for each phase: its name, and for how many operations it stands.
//
//   engine_instructions_driver [whole]     whole: leaves the counting to callgrind's own options
#include <acl/acl.h>
#include <reprise/kernel.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define PHASE_BEGINS() \
  if (g_phases) CALLGRIND_ZERO_STATS
#define PHASE_ENDS(name) \
  if (g_phases) CALLGRIND_DUMP_STATS_AT(name)
#else
#define PHASE_BEGINS() (void)0
#define PHASE_ENDS(name) (void)0
#endif

namespace {

[[maybe_unused]] bool g_phases = true;

constexpr int kNodes = 10'000;
constexpr int kLaunches = 2'000;
constexpr int kLargeLaunches = 15;  // of the graph of kNodes
constexpr int kFrees = 1'000;

void Must(int code, const char* call) {
  if (code == 0) return;
  const char* words = aclGetRecentErrMsg();
  std::fprintf(stderr, "%s returned %d\n%s\n", call, code, words != nullptr ? words : "");
  std::exit(1);
}
#define MUST(call) Must(call, #call)

uint64_t g_runs = 0;  // by one stream

int32_t Count(const RepriseKernelContext*, const void*, size_t) {
  ++g_runs;
  return 0;
}
constexpr RepriseKernelDesc kKernels[] = {{"count", 0, Count, REPRISE_KERNEL_VECTOR, 0, 0, nullptr, 0}};
constexpr RepriseKernelTable kTable = {REPRISE_KERNEL_ABI_VERSION, 1, kKernels};

std::atomic<bool> g_open{false};
void WaitForGate(void*) { g_open.wait(false); }

// What is submitted behind it stays queued, so that the submission alone is counted, and always the same way of it.
void Block(aclrtStream stream) {
  g_open.store(false);
  MUST(aclrtLaunchHostFunc(stream, WaitForGate, nullptr));
}
void Open(aclrtStream stream) {
  g_open.store(true);
  g_open.notify_all();
  MUST(aclrtSynchronizeStream(stream));
}

aclrtFuncHandle g_kernel = nullptr;

void Launch(aclrtStream stream) {
  uint64_t argument = 0;
  MUST(aclrtLaunchKernelWithHostArgs(g_kernel, 1, stream, nullptr, &argument, sizeof argument, nullptr, 0));
}

aclmdlRI Capture(aclrtStream stream, int nodes) {
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  for (int i = 0; i < nodes; ++i) Launch(stream);
  MUST(aclmdlRICaptureEnd(stream, &model));
  return model;
}

void Replay(aclmdlRI model, aclrtStream stream, int times) {
  for (int i = 0; i < times; ++i) {
    MUST(aclmdlRIExecuteAsync(model, stream));
    MUST(aclrtSynchronizeStream(stream));
  }
}

}  // namespace

int main(int argc, char**) {
  g_phases = argc == 1;
  aclrtStream stream = nullptr;
  aclrtBinHandle binary = nullptr;
  MUST(aclrtSetDevice(0));
  MUST(repriseRegisterKernels("driver", &kTable));
  MUST(aclrtBinaryLoadFromFile("driver", nullptr, &binary));
  MUST(aclrtBinaryGetFunction(binary, "count", &g_kernel));
  MUST(aclrtCreateStream(&stream));

  // Each phase twice, short and long: the difference is that of the operations alone.
  const auto capture = [&](const char* name, int nodes) {
    PHASE_BEGINS();
    aclmdlRI model = Capture(stream, nodes);
    PHASE_ENDS(name);
    std::printf("%s %d\n", name, nodes);
    MUST(aclmdlRIDestroy(model));
  };
  capture("warm", kNodes);
  capture("capture.short", kNodes / 10);
  capture("capture.long", kNodes);

  const aclmdlRI model = Capture(stream, kNodes);
  const auto replay = [&](const char* name, int times) {
    PHASE_BEGINS();
    Replay(model, stream, times);
    PHASE_ENDS(name);
    std::printf("%s %d\n", name, times * kNodes);
  };
  replay("warm", 2);
  replay("replay.short", 2);
  replay("replay.long", 12);

  const aclmdlRI small = Capture(stream, 1);
  const auto launch = [&](const char* name, int times, bool eager) {
    Block(stream);
    PHASE_BEGINS();
    for (int i = 0; i < times; ++i) {
      if (eager) {
        Launch(stream);
      } else {
        MUST(aclmdlRIExecuteAsync(small, stream));
      }
    }
    PHASE_ENDS(name);
    Open(stream);
    std::printf("%s %d\n", name, times);
  };
  for (const bool eager : {false, true}) {
    launch("warm", kLaunches, eager);
    launch(eager ? "eager.short" : "launch.short", kLaunches / 10, eager);
    launch(eager ? "eager.long" : "launch.long", kLaunches, eager);
  }
  // The price of a launch does not depend on what is launched.
  const auto launch_large = [&](const char* name, int times) {
    Block(stream);
    PHASE_BEGINS();
    for (int i = 0; i < times; ++i) MUST(aclmdlRIExecuteAsync(model, stream));
    PHASE_ENDS(name);
    Open(stream);
    std::printf("%s %d\n", name, times);
  };
  launch_large("large.short", kLargeLaunches);
  launch_large("large.long", 3 * kLargeLaunches);

  // Streams that have worked, and work no more.
  std::vector<aclrtStream> idle(1'500);
  for (aclrtStream& each : idle) {
    MUST(aclrtCreateStream(&each));
    Launch(each);
    MUST(aclrtSynchronizeStream(each));
  }
  const auto free = [&](const char* name, int times) {
    std::vector<void*> memory(static_cast<size_t>(times));
    PHASE_BEGINS();
    for (void*& each : memory) MUST(aclrtMalloc(&each, 4096, ACL_MEM_MALLOC_HUGE_FIRST));
    for (void* each : memory) MUST(aclrtFree(each));
    PHASE_ENDS(name);
    std::printf("%s %d\n", name, times);
  };
  free("warm", kFrees);
  free("free.short", kFrees / 10);
  free("free.long", kFrees);
  for (const aclrtStream each : idle) MUST(aclrtDestroyStream(each));

  const uint64_t runs = idle.size() + uint64_t{16 + 4 * kLargeLaunches} * kNodes + 2 * (2 * kLaunches + kLaunches / 10);
  std::printf("runs %llu\n", static_cast<unsigned long long>(g_runs));
  if (g_runs != runs) {
    std::fprintf(stderr, "%llu kernels ran, not %llu\n", static_cast<unsigned long long>(g_runs),
                 static_cast<unsigned long long>(runs));
    return 1;
  }
  MUST(aclmdlRIDestroy(small));
  MUST(aclmdlRIDestroy(model));
  MUST(aclrtDestroyStream(stream));
  MUST(aclrtResetDevice(0));
  return 0;
}
