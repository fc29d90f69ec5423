// SPDX-License-Identifier: Apache-2.0
//
// Nothing grows with the number of captures and replays, a steady replay allocates nothing, and a process may end at
// any time.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "../unit/scale.h"
#include "base/handle_table.h"
#include "device/memory.h"
#include "model/model.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/event.h"
#include "runtime/stream.h"
#include "stress.h"

// Counts the blocks of the process, those of the libraries too: our malloc comes first in the order of symbols.
// Sanitizers bring their own, which is left in place.
namespace {
std::atomic<int64_t> allocations{0};
std::atomic<int64_t> frees{0};
}  // namespace

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define REPRISE_COUNTS_ALLOCATIONS 1
#define REPRISE_EXPORT __attribute__((visibility("default")))
extern "C" {
void* __libc_malloc(size_t bytes);                      // NOLINT: names of glibc
void* __libc_calloc(size_t count, size_t bytes);        // NOLINT
void* __libc_realloc(void* memory, size_t bytes);       // NOLINT
void* __libc_memalign(size_t alignment, size_t bytes);  // NOLINT
void __libc_free(void* memory);                         // NOLINT

REPRISE_EXPORT void* malloc(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
REPRISE_EXPORT void* calloc(size_t count, size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
REPRISE_EXPORT void* realloc(void* memory, size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (memory != nullptr) frees.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(memory, bytes);
}
REPRISE_EXPORT void* aligned_alloc(size_t alignment, size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}
REPRISE_EXPORT int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  *memory = __libc_memalign(alignment, bytes);
  return *memory != nullptr ? 0 : ENOMEM;
}
REPRISE_EXPORT void free(void* memory) {
  if (memory != nullptr) frees.fetch_add(1, std::memory_order_relaxed);
  __libc_free(memory);
}
}
#else
#define REPRISE_COUNTS_ALLOCATIONS 0
#endif

namespace reprise::stress {
namespace {

using testing::Loops;

// More blocks than this after thousands of rounds are a leak; fewer are pools and caches that breathe. On a busy
// machine more is in flight at times, and the scheduler adds workers, so they may grow by more once. A leak grows in
// every turn.
constexpr int64_t kBreath = 200;
constexpr size_t kBreathBytes = 4u << 20;
constexpr int kTurns = 5;

int64_t LiveBlocks() { return allocations.load() - frees.load(); }

size_t ResidentBytes() {
  size_t size = 0;
  size_t resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%zu %zu", &size, &resident) != 2) resident = 0;
  std::fclose(file);
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// What must be the same before and after.
struct Usage {
  size_t streams = runtime::Streams().live();
  size_t events = runtime::Events().live();
  size_t models = model::Models().live();
  size_t lanes = model::LaneHandles().live();
  size_t groups = model::TaskGroups().live();
  size_t conditions = model::Conditions().live();
  int64_t stream_ids = runtime::Devices()[0]->stream_ids().available();
  int64_t event_ids = runtime::Devices()[0]->event_ids().available();
  uint64_t device_bytes = device::MemoryRegistry::Get().used_bytes(0);

  bool operator==(const Usage&) const = default;
  friend void PrintTo(const Usage& u, std::ostream* out) {
    *out << "streams " << u.streams << ", events " << u.events << ", models " << u.models << ", lanes " << u.lanes
         << ", groups " << u.groups << ", conditions " << u.conditions << ", free stream ids " << u.stream_ids
         << ", free event ids " << u.event_ids << ", device bytes " << u.device_bytes;
  }
};

class Growth : public Device {
 protected:
  void SetUp() override {
    Device::SetUp();
    axpb_ = Kernel("axpb");
    ASSERT_OK(aclrtCreateStream(&origin_));
    ASSERT_OK(aclrtCreateStream(&forked_));
    ASSERT_OK(aclrtCreateStream(&aux_));
    ASSERT_OK(aclrtCreateEventExWithFlag(&event_, ACL_EVENT_SYNC));
    void* memory = nullptr;
    ASSERT_OK(aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    cells_ = static_cast<uint64_t*>(memory);
    ASSERT_OK(aclrtMemset(cells_, 64, 0, 64));
  }
  void TearDown() override {
    EXPECT_OK(aclrtFree(cells_));
    EXPECT_OK(aclrtDestroyEvent(event_));
    for (const aclrtStream stream : {origin_, forked_, aux_}) EXPECT_OK(aclrtDestroyStream(stream));
    Device::TearDown();
  }

  aclError Axpb(aclrtStream stream, int cell) { return Launch(stream, axpb_, cells_ + cell, 3, 1); }

  // A graph with everything that can be left behind: a fork, a task group, an external event, a conditional task, a
  // name, a callback.
  aclmdlRI Capture() {
    EXPECT_OK(aclmdlRICaptureBegin(origin_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    aclmdlRI model = nullptr;
    EXPECT_OK(aclmdlRICaptureGetInfo(origin_, nullptr, &model));
    aclrtEvent external = nullptr;
    EXPECT_OK(aclrtCreateEventExWithFlag(&external, ACL_EVENT_SYNC));
    EXPECT_OK(aclrtRecordEvent(event_, origin_));
    EXPECT_OK(aclrtStreamWaitEvent(forked_, event_));
    EXPECT_OK(aclmdlRICaptureTaskGrpBegin(forked_));
    EXPECT_OK(Axpb(forked_, 0));
    EXPECT_OK(aclmdlRICaptureTaskGrpEnd(forked_, &group_));
    aclmdlRICondHandle handle = nullptr;
    EXPECT_OK(aclmdlRICondHandleCreate(model, 1, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &handle));
    aclmdlRI body = nullptr;
    aclmdlRICondTaskParams params = {};
    params.handle = handle;
    params.type = ACL_MODEL_RI_COND_TYPE_IF;
    params.size = 1;
    params.modelRIArray = &body;
    EXPECT_OK(aclmdlRIAddCondTask(params, origin_, 0));
    EXPECT_OK(aclmdlRICaptureToModelRIBegin(aux_, body, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    EXPECT_OK(Axpb(aux_, 1));
    EXPECT_OK(aclmdlRICaptureEnd(aux_, nullptr));
    EXPECT_OK(aclrtRecordEvent(event_, forked_));
    EXPECT_OK(aclrtStreamWaitEvent(origin_, event_));
    EXPECT_OK(aclrtRecordEventWithFlag(external, origin_, ACL_EVENT_RECORD_EXTERNAL));
    EXPECT_OK(aclmdlRISetName(model, "a name that does not fit into a short string"));
    aclmdlRI ended = nullptr;
    EXPECT_OK(aclmdlRICaptureEnd(origin_, &ended));
    external_ = external;
    return ended;
  }

  void Cycle() {
    const aclmdlRI model = Capture();
    EXPECT_OK(aclmdlRICaptureTaskUpdateBegin(aux_, group_));
    EXPECT_OK(Axpb(aux_, 2));
    EXPECT_OK(aclmdlRICaptureTaskUpdateEnd(aux_));
    EXPECT_OK(aclmdlRIExecuteAsync(model, origin_));
    EXPECT_OK(aclrtSynchronizeStreamWithTimeout(origin_, kWaitMs));
    EXPECT_OK(aclrtSynchronizeStreamWithTimeout(aux_, kWaitMs));
    EXPECT_OK(aclmdlRIDestroy(model));
    EXPECT_OK(aclrtDestroyEvent(external_));
  }

  // A capture that comes to nothing.
  void FailedCycle() {
    EXPECT_OK(aclmdlRICaptureBegin(origin_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    EXPECT_OK(aclrtRecordEvent(event_, origin_));
    EXPECT_OK(aclrtStreamWaitEvent(forked_, event_));
    EXPECT_OK(aclmdlRICaptureTaskGrpBegin(forked_));
    EXPECT_OK(Axpb(forked_, 0));
    aclmdlRI model = nullptr;
    EXPECT_EQ(aclmdlRICaptureEnd(origin_, &model), 107033);
    EXPECT_EQ(model, nullptr);
  }

  aclrtFuncHandle axpb_ = nullptr;
  aclrtStream origin_ = nullptr;
  aclrtStream forked_ = nullptr;
  aclrtStream aux_ = nullptr;
  aclrtEvent event_ = nullptr;
  aclrtEvent external_ = nullptr;
  aclrtTaskGrp group_ = nullptr;
  uint64_t* cells_ = nullptr;
};

TEST_F(Growth, CapturesLeaveNothingBehind) {
  const int cycles = Loops(10'000, 100);
  for (int i = 0; i < cycles / 20; ++i) Cycle();  // pools and caches fill
  for (int i = 0; i < cycles / 40; ++i) FailedCycle();
  const Usage before;
  int64_t blocks = 0;
  size_t bytes = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const int64_t blocks_before = LiveBlocks();
    const size_t resident = ResidentBytes();
    for (int i = 0; i < cycles; ++i) Cycle();
    for (int i = 0; i < cycles; ++i) FailedCycle();
    EXPECT_EQ(Usage(), before);
    if (testing::kSanitized) return;  // quarantines and shadow memory grow
    blocks = LiveBlocks() - blocks_before;
    bytes = std::max(ResidentBytes(), resident) - resident;
    if (blocks <= kBreath && bytes <= kBreathBytes) break;
  }
  EXPECT_LE(blocks, kBreath) << "in " << cycles << " captures";
  EXPECT_LE(bytes, kBreathBytes);
}

// Replays that are queued and synchronised, on one stream and on two, with and without a fork.
TEST_F(Growth, ReplaysAllocateNothing) {
  const aclmdlRI model = Capture();
  aclmdlRI simple = nullptr;
  ASSERT_OK(aclmdlRICaptureBegin(origin_, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  for (int i = 0; i < 10; ++i) ASSERT_OK(Axpb(origin_, 3));
  ASSERT_OK(aclmdlRICaptureEnd(origin_, &simple));
  const auto replay = [&](int count) {
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(aclmdlRIExecuteAsync(simple, i % 3 == 0 ? forked_ : origin_), 0);
      EXPECT_EQ(Axpb(origin_, 4), 0);
      EXPECT_EQ(aclrtRecordEvent(event_, origin_), 0);
      EXPECT_EQ(aclrtStreamWaitEvent(forked_, event_), 0);
      if (i % 8 == 0) {
        EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(forked_, kWaitMs), 0);
      }
    }
    EXPECT_OK(aclrtSynchronizeStream(origin_));
    EXPECT_OK(aclrtSynchronizeStream(forked_));
  };
  const int count = Loops(2000, 200);
  replay(count);
#if REPRISE_COUNTS_ALLOCATIONS
  // More work in flight than there ever was, on a busy machine, makes the pools of records and chunks a little larger;
  // one block for each replay would be thousands.
  int64_t made = INT64_MAX;
  for (int turn = 0; turn < kTurns && made > 64; ++turn) {
    const int64_t before = allocations.load();
    replay(count);
    made = allocations.load() - before;
  }
  EXPECT_LE(made, 64) << "in " << count << " replays";
#else
  replay(count);
#endif

  // A graph with external events makes its list of records for each execution; it does not grow.
  const auto replay_external = [&] {
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(aclmdlRIExecuteAsync(model, origin_), 0);
      if (i % 8 == 0) {
        EXPECT_OK(aclrtSynchronizeStream(origin_));
      }
    }
    EXPECT_OK(aclrtSynchronizeStream(origin_));
  };
  replay_external();
  const Usage usage;
  int64_t blocks = INT64_MAX;
  for (int turn = 0; turn < kTurns && blocks > kBreath; ++turn) {
    const int64_t before = LiveBlocks();
    replay_external();
    blocks = LiveBlocks() - before;
  }
  EXPECT_EQ(Usage(), usage);
  EXPECT_LE(blocks, kBreath) << "in " << count << " replays";
  EXPECT_OK(aclmdlRIDestroy(model));
  EXPECT_OK(aclmdlRIDestroy(simple));
  EXPECT_OK(aclrtDestroyEvent(external_));
}

#if REPRISE_COUNTS_ALLOCATIONS
TEST_F(Growth, TheCounterSeesTheLibraries) {
  const int64_t before = LiveBlocks();
  const aclmdlRI model = Capture();
  const int64_t during = LiveBlocks();
  EXPECT_GT(during, before);
  EXPECT_OK(aclmdlRIDestroy(model));
  EXPECT_OK(aclrtDestroyEvent(external_));
  EXPECT_LT(LiveBlocks(), during);
}
#endif

// ---- Processes that end in the middle of things ----
// The work is done in a new process: a fork alone has no worker threads.

constexpr char kWork[] = "REPRISE_TEST_EXIT";

class Leaver {
 public:
  explicit Leaver(const std::string& how) : how_(how) {}

  // Makes everything live at once, then leaves.
  [[noreturn]] void Run() {
    ::alarm(120);  // a process that hangs is ended by SIGALRM
    Must(aclInit(nullptr));
    Must(aclrtSetDevice(0));
    aclrtBinHandle binary = nullptr;
    Must(aclrtBinaryLoadFromFile(kKernels.c_str(), nullptr, &binary));
    aclrtFuncHandle spin = nullptr;
    aclrtFuncHandle slow = nullptr;
    Must(aclrtBinaryGetFunction(binary, "spin_until", &spin));
    Must(aclrtBinaryGetFunction(binary, "slow_axpb", &slow));
    aclrtStream busy = nullptr;
    aclrtStream waiting = nullptr;
    aclrtStream capturing = nullptr;
    for (aclrtStream* stream : {&busy, &waiting, &capturing}) Must(aclrtCreateStream(stream));
    aclrtEvent never = nullptr;
    Must(aclrtCreateEventWithFlag(&never, ACL_EVENT_EXTERNAL));
    void* memory = nullptr;
    Must(aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    Must(aclrtMemset(memory, 64, 0, 64));
    auto* const cells = static_cast<uint64_t*>(memory);
    aclmdlRI model = nullptr;
    Must(aclmdlRICaptureBegin(busy, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    Must(Launch(busy, slow, cells, 3, 1, 1000));
    Must(aclmdlRICaptureEnd(busy, &model));
    for (int i = 0; i < 20; ++i) Must(aclmdlRIExecuteAsync(model, busy));
    Must(Launch(busy, spin, cells + 1, 100));  // a kernel that runs while the process ends
    Must(aclrtStreamWaitEvent(waiting, never));
    Must(aclmdlRIExecuteAsync(model, waiting));
    Must(aclmdlRICaptureBegin(capturing, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    Must(Launch(capturing, slow, cells, 3, 1, 10));
    if (how_ == "exit") std::exit(0);  // NOLINT: threads are running on purpose
    if (how_ == "quick_exit") std::quick_exit(0);
    if (how_ == "finalize") {
      (void)aclFinalize();
      std::exit(0);  // NOLINT
    }
    // An exit by another thread.
    std::thread([] { std::exit(0); }).join();  // NOLINT
    std::abort();
  }

 private:
  static void Must(int got) {
    if (got == 0) return;
    const char* message = aclGetRecentErrMsg();
    std::fprintf(stderr, "a call returned %d: %s\n", got, message != nullptr ? message : "");
    std::_Exit(2);
  }
  const std::string how_;
};

// Runs before main in the processes that the tests below start.
const bool leaves = [] {
  if (const char* how = std::getenv(kWork)) Leaver(how).Run();
  return false;
}();

class Exit : public ::testing::TestWithParam<const char*> {};

TEST_P(Exit, InTheMiddleOfWork) {
  const int times = Loops(10, 2);
  for (int i = 0; i < times; ++i) {
    pid_t child = 0;
    char name[] = "stress_growth";
    char* args[] = {name, nullptr};
    ::setenv(kWork, GetParam(), 1);
    const int error = ::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, args, environ);
    ::unsetenv(kWork);
    ASSERT_EQ(error, 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_FALSE(WIFSIGNALED(status)) << "ended by signal " << WTERMSIG(status)
                                      << (WTERMSIG(status) == SIGALRM ? ", it hung" : "");
    ASSERT_EQ(WEXITSTATUS(status), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Exit, ::testing::Values("exit", "quick_exit", "finalize", "thread"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace reprise::stress
