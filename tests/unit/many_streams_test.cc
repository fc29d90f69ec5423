// SPDX-License-Identifier: Apache-2.0
//
// What a stream costs: no thread, also while it waits; and what an idle process costs: nothing.
// REPRISE_MAX_STREAMS is 20000 here.
#include <acl/acl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "scale.h"

namespace reprise {
namespace {

using testing::Loops;
using Clock = std::chrono::steady_clock;

int Threads() {
  FILE* file = std::fopen("/proc/self/status", "r");
  int threads = -1;
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "Threads: %d", &threads) == 1) break;
  }
  if (file != nullptr) std::fclose(file);
  return threads;
}

// Workers, the monitor, the test's own thread, what a sanitizer adds, and as many workers as the monitor adds at most
// when a busy machine keeps the others from running (kMaxExtraWorkers of the scheduler). Far fewer than the streams of
// any test here.
int MostThreads() { return static_cast<int>(std::thread::hardware_concurrency()) + 256 + 16; }

int64_t CpuUs() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& time) { return int64_t{time.tv_sec} * 1'000'000 + time.tv_usec; };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

class ManyStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclrtSetDevice(0), 0);
    void* memory = nullptr;
    ASSERT_EQ(aclrtMalloc(&memory, 20'000 * 8, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    cells_ = static_cast<uint64_t*>(memory);
    std::memset(cells_, 0, 20'000 * 8);
  }
  void TearDown() override {
    for (const aclrtStream stream : streams_) EXPECT_EQ(aclrtDestroyStream(stream), 0);
    EXPECT_EQ(aclrtResetDevice(0), 0);
  }
  void NewStreams(size_t count) {
    streams_.resize(count);
    for (aclrtStream& stream : streams_) ASSERT_EQ(aclrtCreateStream(&stream), 0);
  }

  std::vector<aclrtStream> streams_;
  uint64_t* cells_ = nullptr;
};

TEST_F(ManyStreams, TenThousandStreamsNeedNoThreads) {
  const auto count = static_cast<size_t>(Loops(10'000, 3'000));
  NewStreams(count);
  for (uint64_t round = 1; round <= 3; ++round) {
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(aclrtValueWrite(cells_ + i, round * (i + 1), 0, streams_[i]), 0);
    }
  }
  for (const aclrtStream stream : streams_) ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(cells_[i], 3 * (i + 1));
  EXPECT_LE(Threads(), MostThreads());
}

TEST_F(ManyStreams, WaitingStreamsHoldNoThread) {
  constexpr size_t kWaiting = 1000;
  NewStreams(kWaiting + 10);
  aclrtEvent gate = nullptr;
  ASSERT_EQ(aclrtCreateEventWithFlag(&gate, ACL_EVENT_SYNC), 0);
  for (size_t i = 0; i < kWaiting; ++i) {
    ASSERT_EQ(aclrtStreamWaitEvent(streams_[i], gate), 0);
    ASSERT_EQ(aclrtValueWrite(cells_ + i, 1, 0, streams_[i]), 0);
  }
  // The others make progress, thousands of times.
  for (int round = 0; round < Loops(1000, 100); ++round) {
    for (size_t i = kWaiting; i < streams_.size(); ++i) {
      ASSERT_EQ(aclrtMemsetAsync(cells_ + i, 8, round & 0x7F, 8, streams_[i]), 0);
    }
  }
  for (size_t i = kWaiting; i < streams_.size(); ++i)
    ASSERT_EQ(aclrtSynchronizeStreamWithTimeout(streams_[i], 60'000), 0);
  for (size_t i = 0; i < kWaiting; i += 50) {
    aclrtStreamStatus status = ACL_STREAM_STATUS_COMPLETE;
    ASSERT_EQ(aclrtStreamQuery(streams_[i], &status), 0);
    EXPECT_EQ(status, ACL_STREAM_STATUS_NOT_READY);
    EXPECT_EQ(cells_[i], 0u);
  }
  EXPECT_LE(Threads(), MostThreads());
  ASSERT_EQ(aclrtRecordEvent(gate, streams_.back()), 0);
  for (size_t i = 0; i < kWaiting; ++i) {
    ASSERT_EQ(aclrtSynchronizeStreamWithTimeout(streams_[i], 60'000), 0);
    EXPECT_EQ(cells_[i], 1u);
  }
  ASSERT_EQ(aclrtDestroyEvent(gate), 0);
}

TEST_F(ManyStreams, IdleProcessBurnsNoCpu) {
  NewStreams(100);
  aclrtEvent gate = nullptr;
  ASSERT_EQ(aclrtCreateEventWithFlag(&gate, ACL_EVENT_SYNC), 0);
  for (size_t i = 0; i < streams_.size(); ++i) {
    ASSERT_EQ(aclrtValueWrite(cells_ + i, 1, 0, streams_[i]), 0);
    if (i % 2 != 0) continue;
    ASSERT_EQ(aclrtStreamWaitEvent(streams_[i], gate), 0);
  }
  for (size_t i = 1; i < streams_.size(); i += 2) ASSERT_EQ(aclrtSynchronizeStream(streams_[i]), 0);
  // A busy machine lets threads go to sleep late, in the middle of the time that is measured, so the first good try
  // counts. Each begins with work, or one that spins for a second would pass the second try.
  int64_t least = INT64_MAX;
  const auto end = Clock::now() + std::chrono::seconds(60);
  for (bool first = true; first || (least >= 5000 && Clock::now() < end); first = false) {
    for (size_t i = 1; i < streams_.size(); i += 2) {
      ASSERT_EQ(aclrtValueWrite(cells_ + i, 1, 0, streams_[i]), 0);
      ASSERT_EQ(aclrtSynchronizeStream(streams_[i]), 0);
    }
    // The sleeps are the subject here: the time in which nothing may happen.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const int64_t before = CpuUs();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    least = std::min(least, CpuUs() - before);
  }
  EXPECT_LT(least, 5000) << "microseconds of CPU time within 200 ms of doing nothing";
  ASSERT_EQ(aclrtRecordEvent(gate, nullptr), 0);
  for (const aclrtStream stream : streams_) ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  ASSERT_EQ(aclrtDestroyEvent(gate), 0);
}

TEST_F(ManyStreams, TheLimitIsTold) {
  uint32_t available = 0;
  ASSERT_EQ(aclrtGetStreamAvailableNum(&available), 0);
  ASSERT_EQ(available, 20'000u - 1) << "all but the default stream";
  NewStreams(available);
  aclrtStream one_more = &available;
  EXPECT_EQ(aclrtCreateStream(&one_more), 207008);
  EXPECT_EQ(one_more, &available) << "the output is left alone";
}

}  // namespace
}  // namespace reprise
