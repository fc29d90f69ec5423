// SPDX-License-Identifier: Apache-2.0
//
// Ranks whose process is stopped or killed, on one machine and over the network; and what communicators leave behind.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "process_ranks.h"

namespace {

using namespace reprise::testing;
using Clock = std::chrono::steady_clock;

HcclResult Sum(Buffer<float>& data, size_t count, const Rank& r) {
  return HcclAllReduce(data.data(), data.data(), count, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm, r.stream);
}

void Barrier(const Rank& r) {
  EXPECT_OK(HcclBarrier(r.comm, r.stream));
  r.Wait();
}

// Runs a leader here, and again in a process of its own that reaches its children through the network.
void OnBothTiers(const char* leader, const std::string& argument = {}) {
  { Child child(leader, argument); }
  ::setenv("HCCL_IF_IP", "127.0.0.1", 1);
  ::setenv("REPRISE_HCCL_SHM", "0", 1);
  { Child child(leader, argument); }
  ::unsetenv("HCCL_IF_IP");
  ::unsetenv("REPRISE_HCCL_SHM");
}
bool HasSharedMemory() { return std::getenv("REPRISE_HCCL_SHM") == nullptr; }

void AwaitStop(pid_t pid) {
  siginfo_t info{};
  ASSERT_EQ(0, waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED));
  ASSERT_EQ(CLD_STOPPED, info.si_code);
}

// ---- Stopped ----

// HC-057, HC-086, HF-07
TEST(HcclSignals, DISABLED_StoppedRank) {
  const Arguments arguments = Read();
  Group group(arguments);
  Buffer<float> data(5000);
  data.Fill([](size_t) { return 2.0f; });
  Barrier(group.me);
  raise(SIGSTOP);
  EXPECT_OK(Sum(data, 5000, group.me));
  group.me.Wait();
  EXPECT_EQ(3.0f, data[4999]);
  EXPECT_OK(Sum(data, 5000, group.me));
  group.me.Wait();
}
TEST(HcclSignals, DISABLED_StoppedLeader) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  Arguments arguments{0, 2, {}, 0};
  OK(HcclGetRootInfo(&arguments.token));
  Child child("HcclSignals.DISABLED_StoppedRank", Write(1, 2, arguments.token, 0));
  Group group(arguments);
  const Rank& r = group.me;
  Buffer<float> data(5000);
  data.Fill([](size_t) { return 1.0f; });
  Barrier(r);
  AwaitStop(child.pid());
  aclmdlRI model = nullptr;
  ASSERT_EQ(0, aclmdlRICaptureBegin(r.stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  EXPECT_OK(Sum(data, 5000, r));
  ASSERT_EQ(0, aclmdlRICaptureEnd(r.stream, &model));
  EXPECT_OK(Sum(data, 5000, r));  // returns although the peer does not run
  EXPECT_EQ(0, aclmdlRIExecuteAsync(model, r.stream));
  EXPECT_NE(0, aclrtSynchronizeStreamWithTimeout(r.stream, 300));
  ASSERT_EQ(0, kill(child.pid(), SIGCONT));
  r.Wait();
  EXPECT_EQ(6.0f, data[4999]);
  EXPECT_EQ(0, aclmdlRIDestroy(model));
}
TEST(HcclSignals, HC_057_HC_086_HF_07_AStoppedRankGoesOn) { OnBothTiers("HcclSignals.DISABLED_StoppedLeader"); }

// HC-106. The time limit is of a group of its own: what comes before has time.
struct Hasty {
  explicit Hasty(const Rank& whole) : me(whole) {
    HcclCommConfig config;
    HcclCommConfigInit(&config);
    config.hcclExecTimeOut = 1;
    uint32_t both[] = {0, 1};
    HcclComm parent = whole.comm;
    me.comm = nullptr;
    EXPECT_OK(HcclCreateSubCommConfig(&parent, 2, both, 1, whole.rank, &config, &me.comm));
  }
  ~Hasty() { EXPECT_OK(HcclCommDestroy(me.comm)); }
  Rank me;
};
TEST(HcclSignals, DISABLED_LateRank) {
  const Arguments arguments = Read();
  Group group(arguments);
  const Hasty hasty(group.me);
  Barrier(group.me);
  raise(SIGSTOP);
  Buffer<float> data(100000);
  // The other has given up, and taken its data away.
  EXPECT_OK(Sum(data, 100000, hasty.me));
  EXPECT_EQ(507057, aclrtSynchronizeStreamWithTimeout(group.me.stream, 60000)) << Message();
}
TEST(HcclSignals, DISABLED_LateLeader) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  Arguments arguments{0, 2, {}, 0};
  OK(HcclGetRootInfo(&arguments.token));
  Child child("HcclSignals.DISABLED_LateRank", Write(1, 2, arguments.token, 0));
  Group group(arguments);
  const Hasty hasty(group.me);
  Barrier(group.me);
  AwaitStop(child.pid());
  Buffer<float> data(100000);
  EXPECT_OK(Sum(data, 100000, hasty.me));
  EXPECT_EQ(507048, aclrtSynchronizeStreamWithTimeout(group.me.stream, 60000));
  const std::string message = Message();
  const char* const state = HasSharedMemory() ? "alive, not running" : "127.0.0.1";
  EXPECT_NE(std::string::npos, message.find("EI0002")) << message;
  EXPECT_NE(std::string::npos, message.find(state)) << message;
  ASSERT_EQ(0, kill(child.pid(), SIGCONT));
  child.Join();
}
TEST(HcclSignals, HC_106_ATimeLimitTellsWhoIsStopped) { OnBothTiers("HcclSignals.DISABLED_LateLeader"); }

// ---- Killed ----

// Four ranks in each of two processes; the second one dies.
void RunFour(const Arguments& arguments) {
  std::vector<std::thread> threads;
  std::atomic<int> ready{0};
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const int device = static_cast<int>(i);
      ASSERT_EQ(0, aclrtSetDevice(device));
      Rank r{4 * arguments.rank + i, device, nullptr, nullptr};
      ASSERT_EQ(0, aclrtCreateStream(&r.stream));
      OK(HcclCommInitRootInfo(8, &arguments.token, r.rank, &r.comm));
      Barrier(r);
      if (arguments.rank == 1) {
        if (++ready == 4) raise(SIGKILL);
        pause();
      }
      Buffer<float> data(16);
      const HcclResult result = Sum(data, 16, r);
      if (result == HCCL_SUCCESS) {
        EXPECT_EQ(507057, aclrtSynchronizeStreamWithTimeout(r.stream, 60000));
      }
      EXPECT_NE(std::string::npos, Message().find("was killed")) << Message();
      EXPECT_OK(HcclCommDestroy(r.comm));
      EXPECT_EQ(0, aclrtDestroyStreamForce(r.stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
}
TEST(HcclSignals, DISABLED_FourRanks) { RunFour(Read()); }
TEST(HcclSignals, DISABLED_FourLeaders) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  Arguments arguments{0, 8, {}, 0};
  OK(HcclGetRootInfo(&arguments.token));
  Child child("HcclSignals.DISABLED_FourRanks", Write(1, 8, arguments.token, 0));
  RunFour(arguments);
  child.Kill();  // it has ended so
}
TEST(HcclSignals, HF_14_OneOfTwoProcessesOfFourRanksIsKilled) { OnBothTiers("HcclSignals.DISABLED_FourLeaders"); }

// HC-105, HF-09: a rank that is killed whenever it may be, once there is a communicator.
void RunUntilKilled(const Arguments& arguments) {
  Group group(arguments);
  const Rank& r = group.me;
  std::mt19937 random(static_cast<uint32_t>(arguments.what));
  const auto moment = std::chrono::microseconds(random() % 15000);
  int code = HcclBarrier(r.comm, r.stream);  // from here on all have a communicator
  if (code == 0) code = aclrtSynchronizeStreamWithTimeout(r.stream, 60000);
  if (r.rank == 1) {
    std::thread([moment] {
      std::this_thread::sleep_for(moment);
      raise(SIGKILL);
    }).detach();
  }
  const size_t counts[] = {5, 3000, 100000};
  Buffer<float> data(100000);
  Buffer<float> other(100000);
  for (uint32_t i = 0; code == 0; ++i) {
    const size_t count = counts[random() % 3];
    HcclResult result = HCCL_SUCCESS;
    switch (random() % 4) {
      case 0: result = Sum(data, count, r); break;
      case 1: result = HcclBroadcast(data.data(), count, HCCL_DATA_TYPE_FP32, i % 3, r.comm, r.stream); break;
      case 2: result = HcclBarrier(r.comm, r.stream); break;
      default: {
        HcclSendRecvItem items[] = {{HCCL_SEND, data.data(), count, HCCL_DATA_TYPE_FP32, (r.rank + 1) % 3},
                                    {HCCL_RECV, other.data(), count, HCCL_DATA_TYPE_FP32, (r.rank + 2) % 3}};
        result = HcclBatchSendRecv(items, 2, r.comm, r.stream);
      }
    }
    if (result != HCCL_SUCCESS) {
      code = result;
    } else if (random() % 3 != 0) {
      code = aclrtSynchronizeStreamWithTimeout(r.stream, 60000);
    }
  }
  const std::string message = Message();
  EXPECT_TRUE(code == HCCL_E_REMOTE || code == 507057) << code << ": " << message;
  EXPECT_NE(std::string::npos, message.find("rank 1 (process ")) << code << ": " << message;
  EXPECT_NE(507046, aclrtSynchronizeStreamWithTimeout(r.stream, 60000));  // ACL_ERROR_RT_STREAM_SYNC_TIMEOUT
}
TEST(HcclSignals, DISABLED_KilledRank) { RunUntilKilled(Read()); }
TEST(HcclSignals, DISABLED_KilledLeader) {
  Arguments arguments = Read();
  ASSERT_EQ(0, aclrtSetDevice(0));
  OK(HcclGetRootInfo(&arguments.token));
  Child victim("HcclSignals.DISABLED_KilledRank", Write(1, 3, arguments.token, arguments.what));
  Child other("HcclSignals.DISABLED_KilledRank", Write(2, 3, arguments.token, arguments.what));
  RunUntilKilled(arguments);
  victim.Kill();
}
TEST(HcclSignals, HC_105_HF_09_ARankIsKilledAtAnyMoment) {
  const auto files = [] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      const std::string name = entry.path().filename();
      if (name.find("reprise") != std::string::npos) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  };
  const std::vector<std::string> before = files();
  const char* const form = std::getenv("REPRISE_TEST_FORM");
  const int rounds = form != nullptr && std::string(form) == "full" ? 100 : 5;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    OnBothTiers("HcclSignals.DISABLED_KilledLeader", Write(0, 3, {}, 100 + round));
  }
  EXPECT_EQ(before, files());
}

// ---- What is left behind ----

size_t Descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}
size_t Threads() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}
// Connections are closed, and threads of rendezvous end, a little later.
void ExpectSoon(size_t most, size_t (*count)()) {
  const auto until = Clock::now() + std::chrono::seconds(60);
  while (count() > most && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_LE(count(), most);
}

TEST(HcclSignals, HC_038_NothingGrows) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  int32_t devices[] = {0, 1};
  HcclComm comms[2];
  size_t descriptors = 0;
  size_t threads = 0;
  for (int round = 0; round < 1000; ++round) {
    OK(HcclCommInitAll(2, devices, comms));
    for (HcclComm comm : comms) OK(HcclCommDestroy(comm));
    if (round == 10) {
      descriptors = Descriptors();
      threads = Threads();
    }
  }
  ExpectSoon(descriptors, Descriptors);
  ExpectSoon(threads, Threads);
}

void RunRounds(const Arguments& arguments) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclComm first = nullptr;
  OK(HcclCommInitRootInfo(2, &arguments.token, arguments.rank, &first));
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  uint32_t both[] = {0, 1};
  size_t descriptors = 0;
  size_t threads = 0;
  for (uint64_t round = 0; round < 40; ++round) {
    HcclComm part = nullptr;
    OK(HcclCreateSubCommConfig(&first, 2, both, round, arguments.rank, &config, &part));
    Rank r{arguments.rank, 0, nullptr, part};
    ASSERT_EQ(0, aclrtCreateStream(&r.stream));
    Barrier(r);
    EXPECT_EQ(0, aclrtDestroyStream(r.stream));
    OK(HcclCommDestroy(part));
    if (round == 5) {
      descriptors = Descriptors();
      threads = Threads();
    }
  }
  ExpectSoon(descriptors + 2, Descriptors);  // what the round above had not closed yet may be less than it has now
  ExpectSoon(threads + 1, Threads);
  OK(HcclCommDestroy(first));
}
TEST(HcclSignals, DISABLED_RoundsRank) { RunRounds(Read()); }
TEST(HcclSignals, DISABLED_RoundsLeader) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  Arguments arguments{0, 2, {}, 0};
  OK(HcclGetRootInfo(&arguments.token));
  Child child("HcclSignals.DISABLED_RoundsRank", Write(1, 2, arguments.token, 0));
  RunRounds(arguments);
}
TEST(HcclSignals, HC_038_NothingGrowsBetweenProcesses) { OnBothTiers("HcclSignals.DISABLED_RoundsLeader"); }

// HC-114: how often the threads of the process but this one have run.
uint64_t Switches() {
  uint64_t sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(gettid())) continue;
    std::ifstream status(task.path() / "status");
    std::string word;
    while (status >> word) {
      uint64_t count = 0;
      if (word == "voluntary_ctxt_switches:" && status >> count) sum += count;
    }
  }
  return sum;
}
TEST(HcclSignals, DISABLED_IdleRank) {
  const Arguments arguments = Read();
  Group group(arguments);
  Barrier(group.me);
  if (arguments.rank == 1) {
    raise(SIGSTOP);
  }
  Barrier(group.me);
}
TEST(HcclSignals, DISABLED_IdleLeader) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  Arguments arguments{0, 2, {}, 0};
  OK(HcclGetRootInfo(&arguments.token));
  Child child("HcclSignals.DISABLED_IdleRank", Write(1, 2, arguments.token, 0));
  Group group(arguments);
  Barrier(group.me);
  AwaitStop(child.pid());
  // A while after the last operator no thread wakes any more.
  bool is_idle = false;
  for (int looks = 0; looks < 200 && !is_idle; ++looks) {
    const uint64_t before = Switches();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    is_idle = Switches() == before;
  }
  EXPECT_TRUE(is_idle);
  ASSERT_EQ(0, kill(child.pid(), SIGCONT));
  Barrier(group.me);
}
TEST(HcclSignals, HC_114_AnIdleCommunicatorWakesNobody) { OnBothTiers("HcclSignals.DISABLED_IdleLeader"); }

}  // namespace
