// SPDX-License-Identifier: Apache-2.0
//
// A graph of a million tasks: captured, replayed and destroyed within seconds, and with a bound on what a task costs.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "../unit/scale.h"
#include "stress.h"

namespace reprise::stress {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMul = 6364136223846793005;
constexpr uint64_t kAdd = 1442695040888963407;
constexpr int kForks = 1000;
// Measured: 156 bytes for a kernel of three arguments, with its place in the graph and its step of the plan.
constexpr int64_t kMostBytesOfTask = 235;

uint64_t Axpb(uint64_t value, int64_t times) {
  for (int64_t i = 0; i < times; ++i) value = value * kMul + kAdd;
  return value;
}

int64_t ResidentBytes() {
  long long size = 0;
  long long resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%lld %lld", &size, &resident) != 2) resident = 0;
  std::fclose(file);
  return resident * sysconf(_SC_PAGESIZE);
}

class Million : public Device {
 protected:
  static int64_t Ms(Clock::time_point since) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since).count();
  }
};

TEST_F(Million, TasksAreCapturedReplayedAndDestroyed) {
  const Overseer overseer([] { return std::string("the graph of a million tasks"); });
  const int kernels_of_fork = testing::Loops(1'000'000, 20'000) / kForks / 2;
  const aclrtFuncHandle axpb = Kernel("axpb");
  aclrtStream origin = nullptr;
  aclrtStream forked = nullptr;
  aclrtEvent fork = nullptr;
  aclrtEvent join = nullptr;
  void* memory = nullptr;
  ASSERT_OK(aclrtCreateStream(&origin));
  ASSERT_OK(aclrtCreateStream(&forked));
  ASSERT_OK(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
  ASSERT_OK(aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
  ASSERT_OK(aclrtMalloc(&memory, 16, ACL_MEM_MALLOC_HUGE_FIRST));
  ASSERT_OK(aclrtMemset(memory, 16, 0, 16));
  auto* const cells = static_cast<uint64_t*>(memory);

  malloc_trim(0);
  const int64_t before = ResidentBytes();
  auto start = Clock::now();
  int64_t tasks = 0;
  int cell_of_origin = 0;
  int cell_of_forked = 1;
  ASSERT_OK(aclmdlRICaptureBegin(origin, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  for (int i = 0; i < kForks; ++i) {
    ASSERT_OK(aclrtRecordEvent(fork, origin));
    ASSERT_OK(aclrtStreamWaitEvent(forked, fork));
    for (int k = 0; k < kernels_of_fork; ++k) {
      ASSERT_EQ(Launch(origin, axpb, cells + cell_of_origin, kMul, kAdd), 0);
      ASSERT_EQ(Launch(forked, axpb, cells + cell_of_forked, kMul, kAdd), 0);
    }
    ASSERT_OK(aclrtRecordEvent(join, forked));
    ASSERT_OK(aclrtStreamWaitEvent(origin, join));
    // The streams change places in the cells: a join or fork that is missed lets two kernels overlap.
    std::swap(cell_of_origin, cell_of_forked);
    tasks += 2 * kernels_of_fork + 4;
  }
  aclmdlRI model = nullptr;
  ASSERT_OK(aclmdlRICaptureEnd(origin, &model));
  const int64_t captured_ms = Ms(start);
  malloc_trim(0);
  const int64_t used = ResidentBytes() - before;

  constexpr int kReplays = 3;
  start = Clock::now();
  for (int i = 0; i < kReplays; ++i) ASSERT_OK(aclmdlRIExecuteAsync(model, origin));
  ASSERT_OK(aclrtSynchronizeStreamWithTimeout(origin, 300'000));
  const int64_t replayed_ms = Ms(start) / kReplays;
  uint64_t got[2] = {};
  ASSERT_OK(aclrtMemcpy(got, sizeof got, memory, sizeof got, ACL_MEMCPY_DEVICE_TO_HOST));
  EXPECT_THAT(got, ::testing::Each(Axpb(0, int64_t{kReplays} * kForks * kernels_of_fork)));

  start = Clock::now();
  EXPECT_OK(aclmdlRIDestroy(model));
  const int64_t destroyed_ms = Ms(start);
  malloc_trim(0);
  const int64_t left = ResidentBytes() - before;
  std::printf(
      "%lld tasks: %lld bytes each; captured in %lld ms, replayed in %lld ms, destroyed in %lld ms; %lld KiB left\n",
      static_cast<long long>(tasks), static_cast<long long>(used / tasks), static_cast<long long>(captured_ms),
      static_cast<long long>(replayed_ms), static_cast<long long>(destroyed_ms), static_cast<long long>(left / 1024));
  if (!testing::kSanitized) {  // shadow memory and quarantines tell nothing
    EXPECT_LT(used, kMostBytesOfTask * tasks);
    EXPECT_LT(left, std::max<int64_t>(used / 20, 2 << 20)) << "of " << used << " bytes";
  }
  EXPECT_OK(aclrtFree(memory));
  EXPECT_OK(aclrtDestroyEvent(fork));
  EXPECT_OK(aclrtDestroyEvent(join));
  EXPECT_OK(aclrtDestroyStream(origin));
  EXPECT_OK(aclrtDestroyStream(forked));
}

}  // namespace
}  // namespace reprise::stress
