// SPDX-License-Identifier: Apache-2.0
//
// Ranks in several processes (P). Each test runs this program again, once for each rank but the first. Tests carry the
// items of the specification.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>

#include "process_ranks.h"

namespace {

using namespace reprise::testing;
using Clock = std::chrono::steady_clock;

// What each rank does and checks for itself: all operators, small, middle and large.
void RunOperators(const Arguments& arguments) {
  Group group(arguments);
  const Rank& r = group.me;
  const uint32_t n = arguments.ranks;
  for (const size_t count : {3u, 1500u, 70001u}) {
    Buffer<float> send(count * n);
    Buffer<float> receive(count * n);
    const auto reset = [&] {
      send.Fill([&](size_t i) { return ValueOf(r.rank, i); });
      receive.Fill([](size_t) { return -1.0f; });
    };
    const auto folded = [&](size_t i) {
      float sum = ValueOf(0, i);
      for (uint32_t k = 1; k < n; ++k) sum += ValueOf(k, i);
      return sum;
    };
    const auto f32 = HCCL_DATA_TYPE_FP32;
    for (int round = 0; round < 2; ++round) {
      reset();
      EXPECT_OK(HcclAllReduce(send.data(), receive.data(), count, f32, HCCL_REDUCE_SUM, r.comm, r.stream));
      r.Wait();
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(folded(i), receive[i]) << i;
      reset();
      EXPECT_OK(HcclAllGather(send.data(), receive.data(), count, f32, r.comm, r.stream));
      r.Wait();
      for (size_t i = 0; i < count * n; ++i)
        ASSERT_EQ(ValueOf(static_cast<uint32_t>(i / count), i % count), receive[i]);
      reset();
      EXPECT_OK(HcclReduceScatter(send.data(), receive.data(), count, f32, HCCL_REDUCE_SUM, r.comm, r.stream));
      r.Wait();
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(folded(r.rank * count + i), receive[i]);
      reset();
      EXPECT_OK(HcclAlltoAll(send.data(), count, f32, receive.data(), count, f32, r.comm, r.stream));
      r.Wait();
      for (size_t i = 0; i < count * n; ++i)
        ASSERT_EQ(ValueOf(static_cast<uint32_t>(i / count), r.rank * count + i % count), receive[i]);
      std::vector<uint64_t> counts(n, count);
      std::vector<uint64_t> places;
      for (uint32_t k = 0; k < n; ++k) places.push_back(k * count);
      reset();
      EXPECT_OK(HcclAlltoAllV(send.data(), counts.data(), places.data(), f32, receive.data(), counts.data(),
                              places.data(), f32, r.comm, r.stream));
      r.Wait();
      for (size_t i = 0; i < count * n; ++i)
        ASSERT_EQ(ValueOf(static_cast<uint32_t>(i / count), r.rank * count + i % count), receive[i]);
      for (uint32_t root = 0; root < n; ++root) {
        reset();
        EXPECT_OK(HcclBroadcast(send.data(), count, f32, root, r.comm, r.stream));
        EXPECT_OK(HcclScatter(send.data(), receive.data(), count, f32, root, r.comm, r.stream));
        r.Wait();
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(ValueOf(root, i), send[i]);
        for (size_t i = 0; i < count && r.rank != 0; ++i) ASSERT_EQ(ValueOf(root, r.rank * count + i), receive[i]);
      }
      reset();
      const uint32_t next = (r.rank + 1) % n;
      const uint32_t last = (r.rank + n - 1) % n;
      EXPECT_OK(HcclGroupStart());
      EXPECT_OK(HcclSend(send.data(), count, f32, next, r.comm, r.stream));
      EXPECT_OK(HcclRecv(receive.data(), count, f32, last, r.comm, r.stream));
      EXPECT_OK(HcclGroupEnd());
      EXPECT_OK(HcclBarrier(r.comm, r.stream));
      r.Wait();
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(ValueOf(last, i), receive[i]);
    }
  }
  // Memory that others cannot map: that of the host.
  void* host = nullptr;
  ASSERT_EQ(0, aclrtMallocHost(&host, 100000 * sizeof(float)));
  auto* const values = static_cast<float*>(host);
  for (size_t i = 0; i < 100000; ++i) values[i] = ValueOf(r.rank, i);
  EXPECT_OK(HcclAllReduce(values, values, 100000, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_MAX, r.comm, r.stream));
  r.Wait();
  for (size_t i = 0; i < 100000; ++i) {
    float most = ValueOf(0, i);
    for (uint32_t k = 1; k < n; ++k) most = std::max(most, ValueOf(k, i));
    ASSERT_EQ(most, values[i]);
  }
  EXPECT_EQ(0, aclrtFreeHost(host));
}

// Many small operators in a row, eager and as a graph.
void RunRow(const Rank& r, uint32_t ranks) {
  Buffer<int32_t> data(1);
  for (int i = 0; i < 200; ++i)
    EXPECT_OK(HcclAllReduce(data.data(), data.data(), 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_MAX, r.comm, r.stream));
  r.Wait();
  aclmdlRI model = nullptr;
  ASSERT_EQ(0, aclmdlRICaptureBegin(r.stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < 3; ++i)
    EXPECT_OK(HcclAllReduce(data.data(), data.data(), 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, r.comm, r.stream));
  ASSERT_EQ(0, aclmdlRICaptureEnd(r.stream, &model));
  int32_t wanted = 1;
  for (uint32_t i = 0; i < 3; ++i) wanted *= static_cast<int32_t>(ranks);
  for (int step = 0; step < 50; ++step) {
    data[0] = 1;
    // HC-082: one rank calls what the others replay.
    if (r.rank == 0 && step % 2 == 0) {
      for (int i = 0; i < 3; ++i)
        EXPECT_OK(HcclAllReduce(data.data(), data.data(), 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, r.comm, r.stream));
    } else {
      EXPECT_EQ(0, aclmdlRIExecuteAsync(model, r.stream)) << Message();
    }
    r.Wait();
    ASSERT_EQ(wanted, data[0]);
  }
  EXPECT_EQ(0, aclmdlRIDestroy(model));
}

// The second machine of two is cut off from the first; each finds the other's ranks lost.
void RunBlackHole(const Arguments& arguments) {
  Group group(arguments);
  const Rank& r = group.me;
  Buffer<float> data(16);
  EXPECT_OK(HcclBarrier(r.comm, r.stream));
  r.Wait();
  if (2 * r.rank == arguments.ranks) {
    EXPECT_EQ(0, std::system("ip link set vb down"));
  }
  int code = 0;
  const auto begin = Clock::now();
  while (code == 0) {
    EXPECT_OK(HcclAllReduce(data.data(), data.data(), 16, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_MAX, r.comm, r.stream));
    code = aclrtSynchronizeStreamWithTimeout(r.stream, 60000);
  }
  EXPECT_EQ(507057, code) << Message();
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
}

// The last rank is killed while the others wait for it, or in the midst of large operators, or while another one reads
// from the root.
void RunDeath(const Arguments& arguments) {
  Group group(arguments);
  const Rank& r = group.me;
  const bool is_broadcast = arguments.what == 12;
  const bool is_large = arguments.what == 4 || is_broadcast;
  const size_t count = is_broadcast ? size_t{1} << 24 : is_large ? size_t{1} << 20 : 16;
  Buffer<float> data(count);
  EXPECT_OK(HcclBarrier(r.comm, r.stream));
  r.Wait();
  const bool dies = r.rank + 1 == arguments.ranks;
  if (dies && !is_large) raise(SIGKILL);
  int code = 0;
  const auto begin = Clock::now();
  for (int i = 0; i < 400 && code == 0; ++i) {
    const auto f32 = HCCL_DATA_TYPE_FP32;
    const HcclResult result =
        is_broadcast ? HcclBroadcast(data.data(), count, f32, 0, r.comm, r.stream)
                     : HcclAllReduce(data.data(), data.data(), count, f32, HCCL_REDUCE_MAX, r.comm, r.stream);
    if (result != HCCL_SUCCESS) {
      EXPECT_EQ(HCCL_E_REMOTE, result);
      break;
    }
    if (dies && i == 3) {
      if (is_broadcast) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      raise(SIGKILL);
    }
    code = aclrtSynchronizeStreamWithTimeout(r.stream, 60000);
  }
  EXPECT_EQ(507057, code) << Message();
  const std::string message = Message();
  EXPECT_NE(std::string::npos, message.find("rank " + std::to_string(arguments.ranks - 1) + " (process ")) << message;
  EXPECT_NE(std::string::npos, message.find("killed")) << message;
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
  HcclResult error = HCCL_SUCCESS;
  EXPECT_OK(HcclGetCommAsyncError(r.comm, &error));
  EXPECT_EQ(HCCL_E_REMOTE, error);
}

// One rank calls something else.
void RunMismatch(const Arguments& arguments) {
  Group group(arguments);
  const Rank& r = group.me;
  Buffer<float> data(16);
  EXPECT_OK(HcclAllReduce(data.data(), data.data(), r.rank == 1 ? 5 : 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm,
                          r.stream));
  EXPECT_EQ(507049, aclrtSynchronizeStreamWithTimeout(r.stream, 60000));
  EXPECT_NE(std::string::npos, Message().find("rank 1: AllReduce, count 5")) << Message();
}

// The last rank does not call what the others wait for, until they have given up. They tell it through another group.
void RunLate(const Arguments& arguments) {
  Group group(arguments, 1);
  Rank r = group.me;
  std::vector<uint32_t> all;
  for (uint32_t rank = 0; rank < arguments.ranks; ++rank) all.push_back(rank);
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  config.hcclExecTimeOut = 600;
  HcclComm patient = nullptr;
  OK(HcclCreateSubCommConfig(&r.comm, arguments.ranks, all.data(), 7, r.rank, &config, &patient));
  const std::string last = "rank " + std::to_string(arguments.ranks - 1) + " (process ";
  Buffer<float> data(16);
  if (r.rank + 1 != arguments.ranks) {
    EXPECT_OK(HcclAllReduce(data.data(), data.data(), 16, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm, r.stream));
    const int code = aclrtSynchronizeStreamWithTimeout(r.stream, 60000);
    const std::string message = Message();
    // Whoever is first out of time, takes the others with it.
    EXPECT_TRUE(code == 507048 || code == 507057) << code;
    EXPECT_NE(std::string::npos, message.find(last)) << message;
  }
  aclrtStream other = nullptr;
  EXPECT_EQ(0, aclrtCreateStream(&other));
  EXPECT_OK(HcclBarrier(patient, other));
  EXPECT_EQ(0, aclrtSynchronizeStreamWithTimeout(other, 60000)) << Message();
  EXPECT_OK(HcclCommDestroy(patient));
  EXPECT_EQ(0, aclrtDestroyStreamForce(other));
}

// Two of three ranks come.
void RunMissing() {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclRootInfo token;
  OK(HcclGetRootInfo(&token));
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_EQ(0, aclrtSetDevice(0));
      HcclComm comm = nullptr;
      EXPECT_EQ(HCCL_E_TIMEOUT, HcclCommInitRootInfo(3, &token, 2 * rank, &comm));
      EXPECT_NE(std::string::npos, Message().find("missing: 1")) << Message();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(900));
}

void RunBadEnvironment() {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclRootInfo token;
  EXPECT_EQ(HCCL_E_PARA, HcclGetRootInfo(&token));
  const std::string message = Message();
  EXPECT_NE(std::string::npos, message.find("EI0001")) << message;
  EXPECT_NE(std::string::npos, message.find(std::string("for environment variable ") +
                                            std::getenv("REPRISE_TEST_VARIABLE") + " is invalid"))
      << message;
}

std::string TablePath() {
  return std::string("/tmp/reprise_hccl_table_") + std::getenv("REPRISE_TEST_TABLE") + ".json";
}

// A rank of a table, twice in a row.
void RunTable(const Arguments& arguments) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  for (int round = 0; round < 2; ++round) {
    HcclComm comm = nullptr;
    OK(HcclCommInitClusterInfo(TablePath().c_str(), arguments.rank, &comm));
    char name[128];
    EXPECT_OK(HcclGetCommName(comm, name));
    EXPECT_STREQ("hccl_world_group", name);
    uint32_t size = 0;
    EXPECT_OK(HcclGetRankSize(comm, &size));
    EXPECT_EQ(arguments.ranks, size);
    Buffer<int32_t> data(5000);
    data.Fill([&](size_t) { return static_cast<int32_t>(arguments.rank); });
    aclrtStream stream = nullptr;
    ASSERT_EQ(0, aclrtCreateStream(&stream));
    EXPECT_OK(HcclAllReduce(data.data(), data.data(), 5000, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, comm, stream));
    EXPECT_EQ(0, aclrtSynchronizeStreamWithTimeout(stream, 60000)) << Message();
    EXPECT_EQ(static_cast<int32_t>(arguments.ranks * (arguments.ranks - 1) / 2), data[4999]);
    EXPECT_EQ(0, aclrtDestroyStream(stream));
    EXPECT_OK(HcclCommDestroy(comm));
  }
}

// Rank 0 of a job with the table of another one, whose rank 0 is there.
void RunSecondJob() {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclComm comm = nullptr;
  EXPECT_EQ(HCCL_E_PARA, HcclCommInitClusterInfo(TablePath().c_str(), 0, &comm));
  EXPECT_NE(std::string::npos, Message().find("EI0019")) << Message();
}

// Every operator with values that are checked, some of it more than staging has room for at once (HCCL_BUFFSIZE=1).
void SubmitAll(const Rank& r, uint32_t n, size_t count, Buffer<float>& send, std::vector<Buffer<float>>& out) {
  const auto f32 = HCCL_DATA_TYPE_FP32;
  std::vector<uint64_t> counts;
  std::vector<uint64_t> places;
  std::vector<uint64_t> matrix;
  uint64_t end = 0;
  for (uint32_t k = 0; k < n; ++k) {
    counts.push_back(k == 1 ? 0 : count / (k + 1));
    places.push_back(end);
    end += counts.back() + 3;
    for (uint32_t i = 0; i < n; ++i) matrix.push_back((k * 31 + i * 7) % 100 + i);
  }
  const uint32_t next = (r.rank + 1) % n;
  const uint32_t last = (r.rank + n - 1) % n;
  size_t i = 0;
  const auto to = [&] { return out[i++].data(); };
  EXPECT_OK(HcclAllReduce(send.data(), to(), count, f32, HCCL_REDUCE_SUM, r.comm, r.stream));
  EXPECT_OK(HcclReduce(send.data(), to(), count, f32, HCCL_REDUCE_SUM, n - 1, r.comm, r.stream));
  EXPECT_OK(HcclReduceScatter(send.data(), to(), count, f32, HCCL_REDUCE_MAX, r.comm, r.stream));
  EXPECT_OK(HcclReduceScatterV(send.data(), counts.data(), places.data(), to(), counts[r.rank], f32, HCCL_REDUCE_SUM,
                               r.comm, r.stream));
  EXPECT_OK(HcclAllGather(send.data(), to(), count, f32, r.comm, r.stream));
  EXPECT_OK(HcclAllGatherV(send.data(), counts[r.rank], to(), counts.data(), places.data(), f32, r.comm, r.stream));
  EXPECT_OK(HcclScatter(send.data(), to(), count, f32, n - 1, r.comm, r.stream));
  EXPECT_OK(HcclAlltoAll(send.data(), count, f32, to(), count, f32, r.comm, r.stream));
  std::vector<uint64_t> out_counts;
  std::vector<uint64_t> in_counts;
  std::vector<uint64_t> even;
  for (uint32_t k = 0; k < n; ++k) {
    out_counts.push_back(matrix[r.rank * n + k] * (count > 100 ? 50 : 1));
    in_counts.push_back(matrix[k * n + r.rank] * (count > 100 ? 50 : 1));
    even.push_back(k * 6000);
  }
  EXPECT_OK(HcclAlltoAllV(send.data(), out_counts.data(), even.data(), f32, to(), in_counts.data(), even.data(), f32,
                          r.comm, r.stream));
  EXPECT_OK(HcclAlltoAllVC(send.data(), matrix.data(), f32, to(), f32, r.comm, r.stream));
  HcclSendRecvItem items[] = {{HCCL_SEND, send.data(), count, f32, next}, {HCCL_RECV, to(), count, f32, last}};
  EXPECT_OK(HcclBatchSendRecv(items, 2, r.comm, r.stream));
  // One after the other around the ring, so that rank 0 has to send first.
  float* const passed = to();
  const auto pass_on = [&] { EXPECT_OK(HcclSend(send.data(), count, f32, next, r.comm, r.stream)); };
  if (r.rank == 0) pass_on();
  EXPECT_OK(HcclRecv(passed, count, f32, last, r.comm, r.stream));
  if (r.rank != 0) pass_on();
  EXPECT_OK(HcclBarrier(r.comm, r.stream));
  EXPECT_OK(HcclBroadcast(out[0].data(), count, f32, 1, r.comm, r.stream));
}

// HC-040 to HC-049, HC-071 to HC-073, HC-081: between machines as in one process, eagerly and captured.
void RunEverything(const Arguments& arguments) {
  Group group(arguments);
  const Rank& r = group.me;
  const uint32_t n = arguments.ranks;
  for (const size_t count : {size_t{5}, size_t{140001}}) {
    const size_t room = std::max<size_t>(count * n + 64, 30000);
    Buffer<float> send(room);
    send.Fill([&](size_t i) { return ValueOf(r.rank, i); });
    std::vector<Buffer<float>> out;
    for (int i = 0; i < 12; ++i) {
      out.emplace_back(room);
      std::fill_n(out.back().data(), room, -1.0f);
    }
    SubmitAll(r, n, count, send, out);
    r.Wait();
    std::vector<std::vector<float>> eager;
    for (Buffer<float>& each : out) eager.push_back(each.Values());
    for (size_t i = 0; i < count; ++i) {
      float sum = ValueOf(0, i);
      float most = ValueOf(0, r.rank * count + i);
      for (uint32_t k = 1; k < n; ++k) {
        sum += ValueOf(k, i);
        most = std::max(most, ValueOf(k, r.rank * count + i));
      }
      ASSERT_EQ(sum, eager[0][i]) << i;
      ASSERT_EQ(r.rank + 1 == n ? sum : -1.0f, eager[1][i]) << i;
      ASSERT_EQ(most, eager[2][i]) << i;
      for (uint32_t k = 0; k < n; ++k) {
        ASSERT_EQ(ValueOf(k, i), eager[4][k * count + i]);
        ASSERT_EQ(ValueOf(k, r.rank * count + i), eager[7][k * count + i]);
      }
      ASSERT_EQ(ValueOf(n - 1, r.rank * count + i), eager[6][i]);
      ASSERT_EQ(ValueOf((r.rank + n - 1) % n, i), eager[10][i]);
      ASSERT_EQ(ValueOf((r.rank + n - 1) % n, i), eager[11][i]);
    }
    uint64_t place = 0;
    uint64_t own_place = 0;
    for (uint32_t k = 0; k < n; ++k) {
      const uint64_t part = k == 1 ? 0 : count / (k + 1);
      if (k == r.rank) own_place = place;
      for (uint64_t i = 0; i < part; ++i) ASSERT_EQ(ValueOf(k, i), eager[5][place + i]);
      ASSERT_EQ(-1.0f, eager[5][place + part]);
      place += part + 3;
    }
    for (uint64_t i = 0; i < (r.rank == 1 ? 0 : count / (r.rank + 1)); ++i) {
      float sum = ValueOf(0, own_place + i);
      for (uint32_t k = 1; k < n; ++k) sum += ValueOf(k, own_place + i);
      ASSERT_EQ(sum, eager[3][i]) << i;
    }
    uint64_t packed = 0;
    for (uint32_t k = 0; k < n; ++k) {
      const uint64_t part = (k * 31 + r.rank * 7) % 100 + r.rank;
      uint64_t from = 0;
      for (uint32_t i = 0; i < r.rank; ++i) from += (k * 31 + i * 7) % 100 + i;
      for (uint64_t i = 0; i < part; ++i) ASSERT_EQ(ValueOf(k, from + i), eager[9][packed + i]);
      packed += part;
      for (uint64_t i = 0; i < part * (count > 100 ? 50 : 1); ++i)
        ASSERT_EQ(ValueOf(k, r.rank * 6000 + i), eager[8][k * 6000 + i]);
    }
    aclmdlRI model = nullptr;
    ASSERT_EQ(0, aclmdlRICaptureBegin(r.stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    SubmitAll(r, n, count, send, out);
    ASSERT_EQ(0, aclmdlRICaptureEnd(r.stream, &model));
    for (int step = 0; step < 2; ++step) {
      for (Buffer<float>& each : out) std::fill_n(each.data(), room, -1.0f);
      ASSERT_EQ(0, aclmdlRIExecuteAsync(model, r.stream)) << Message();
      r.Wait();
      for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(eager[i], out[i].Values()) << i;
    }
    EXPECT_EQ(0, aclmdlRIDestroy(model));
  }
  // A part of the group that lies on both machines, and the rest of it.
  const std::vector<uint32_t> members = r.rank % 2 == 0 ? std::vector<uint32_t>{0, 2} : std::vector<uint32_t>{1, 3};
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  Rank part = r;
  part.rank = r.rank / 2;
  if (n == 4) {
    HcclComm parent = r.comm;
    OK(HcclCreateSubCommConfig(&parent, 2, const_cast<uint32_t*>(members.data()), r.rank % 2, part.rank, &config,
                               &part.comm));
    Buffer<int32_t> data(1);
    data[0] = static_cast<int32_t>(r.rank);
    EXPECT_OK(HcclAllReduce(data.data(), data.data(), 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, part.comm, r.stream));
    r.Wait();
    EXPECT_EQ(static_cast<int32_t>(members[0] + members[1]), data[0]);
    EXPECT_OK(HcclCommDestroy(part.comm));
  }
  // Numbers begin anew.
  EXPECT_OK(HcclBarrier(r.comm, r.stream));
  r.Wait();
  EXPECT_OK(HcclCommSuspend(r.comm));
  EXPECT_OK(HcclCommResume(r.comm));
}

}  // namespace

void reprise::testing::RunSmall(const Rank& rank, uint32_t ranks) { RunRow(rank, ranks); }

void reprise::testing::RunRank(const Arguments& arguments) {
  switch (arguments.what) {
    case 9: return RunEverything(arguments);
    case 1: return RunOperators(arguments);
    case 2: {
      Group group(arguments);
      return RunRow(group.me, arguments.ranks);
    }
    case 3:
    case 4:
    case 12: return RunDeath(arguments);
    case 5: return RunMismatch(arguments);
    case 6: return RunMissing();
    case 7: return RunBadEnvironment();
    case 8: return RunTable(arguments);
    case 10: return RunLate(arguments);
    case 11: return RunBlackHole(arguments);
    case 13: return RunSecondJob();
    case 14: return RunConditions(arguments, false);
    case 15: return RunConditions(arguments, true);
  }
}

namespace {

TEST(HcclProcesses, DISABLED_Rank) { RunRank(Read()); }

// On how many machines the ranks are made to believe that they are: neighbours are together.
int Machines() {
  const char* const text = std::getenv("REPRISE_TEST_MACHINES");
  return text != nullptr ? std::atoi(text) : 1;
}
void UseMachineOf(uint32_t rank, uint32_t ranks) {
  if (Machines() <= 1) return;
  const uint32_t machine = rank * static_cast<uint32_t>(Machines()) / ranks;
  ::setenv("REPRISE_HCCL_HOST_ID", ("machine " + std::to_string(machine)).c_str(), 1);
}

void RunAll(uint32_t ranks, int what, bool last_dies = false) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  Arguments mine{0, ranks, {}, what};
  OK(HcclGetRootInfo(&mine.token));
  std::vector<std::unique_ptr<Child>> children;
  for (uint32_t rank = 1; rank < ranks; ++rank) {
    UseMachineOf(rank, ranks);
    children.push_back(std::make_unique<Child>("HcclProcesses.DISABLED_Rank", Write(rank, ranks, mine.token, what)));
  }
  RunRank(mine);
  for (size_t i = 0; i < children.size(); ++i) {
    if (last_dies && i + 1 == children.size()) {
      children[i]->Kill();  // it may have ended, as it should
    } else {
      children[i]->Join();
    }
  }
}

// A process with variables of its own, which has rank 0 and begins the others.
TEST(HcclProcesses, DISABLED_Leader) {
  const Arguments what = Read();
  RunAll(what.ranks, what.what, what.rank == 1);
}
void RunApart(uint32_t ranks, int machines, int what, bool last_dies = false) {
  ::setenv("HCCL_IF_IP", "127.0.0.1", 1);
  ::setenv("HCCL_BUFFSIZE", "1", 1);
  ::setenv("REPRISE_TEST_MACHINES", std::to_string(machines).c_str(), 1);
  UseMachineOf(0, ranks);
  if (machines == 0) ::setenv("REPRISE_HCCL_SHM", "0", 1);
  { Child leader("HcclProcesses.DISABLED_Leader", Write(last_dies ? 1 : 0, ranks, {}, what)); }
  for (const char* name :
       {"HCCL_IF_IP", "HCCL_BUFFSIZE", "REPRISE_TEST_MACHINES", "REPRISE_HCCL_HOST_ID", "REPRISE_HCCL_SHM"})
    ::unsetenv(name);
}

TEST(HcclProcesses, HC_040_to_HC_049_EveryOperatorOnOneMachine) { RunAll(3, 9); }
TEST(HcclProcesses, HC_071_HC_073_EachProcessOnItsOwnMachine) {
  for (const uint32_t n : {2u, 3u}) RunApart(n, 0, 9);
}
TEST(HcclProcesses, HC_072_TwoMachinesOfTwoRanks) {
  RunApart(4, 2, 9);
  RunApart(4, 2, 2);
}
TEST(HcclProcesses, HF_04_ARankThatDoesNotComeIsNamed) {
  RunAll(3, 10);
  RunApart(4, 2, 10);
}
TEST(HcclProcesses, HC_100_MismatchBetweenMachines) { RunApart(3, 2, 5); }
TEST(HcclProcesses, HC_109_ARankOfAnotherMachineIsKilled) {
  RunApart(4, 2, 3, true);
  RunApart(3, 0, 4, true);
  RunApart(3, 0, 12, true);
}

// Those of ours: other programs come and go meanwhile.
std::vector<std::string> SharedFiles() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.find("reprise") != std::string::npos) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(HcclProcesses, HC_005_HC_040_to_HC_048_OperatorsBetweenProcesses) {
  for (const uint32_t n : {2u, 4u}) RunAll(n, 1);
}
TEST(HcclProcesses, HC_070_HC_082_SmallOperatorsInARow) { RunAll(4, 2); }
TEST(HcclProcesses, HC_090_ConditionalTasks) {
  RunAll(3, 14);
  RunApart(4, 2, 14);
  RunApart(3, 0, 14);
}
TEST(HcclProcesses, HC_091_ConditionsThatDiffer) {
  RunAll(3, 15);
  RunApart(4, 2, 15);
}
TEST(HcclProcesses, HC_100_MismatchBetweenProcesses) { RunAll(3, 5); }
TEST(HcclProcesses, HC_104_HF_01_AKilledRankIsNamed) { RunAll(4, 3, true); }
TEST(HcclProcesses, HC_039_HC_105_KilledInTheMidstOfWork) {
  const std::vector<std::string> before = SharedFiles();
  RunAll(3, 4, true);
  EXPECT_EQ(before, SharedFiles());
}

TEST(HcclProcesses, HC_013_AMissingRankIsNamed) {
  ::setenv("HCCL_CONNECT_TIMEOUT", "1", 1);
  Child child("HcclProcesses.DISABLED_Rank", Write(0, 0, {}, 6));
  ::unsetenv("HCCL_CONNECT_TIMEOUT");
}

// Three ranks of a table with two servers, which are both this machine: through the network.
TEST(HcclProcesses, HC_030_RankTableOfTwoServers) {
  ::setenv("REPRISE_TEST_TABLE", std::to_string(getpid()).c_str(), 1);
  std::ofstream(TablePath())
      << R"({"status":"completed","version":"1.0","server_count":"2","server_list":[{"server_id":"a","device":[)"
      << R"({"device_id":"0","device_ip":"127.0.0.1","rank_id":"0"},{"device_id":"1","device_ip":"127.0.0.1",)"
      << R"("rank_id":"1"}]},{"server_id":"b","device":[{"device_id":"0","device_ip":"127.0.0.2","rank_id":"2"}]}]})";
  {
    Child one("HcclProcesses.DISABLED_Rank", Write(1, 3, {}, 8));
    Child two("HcclProcesses.DISABLED_Rank", Write(2, 3, {}, 8));
    RunTable({0, 3, {}, 8});
  }
  std::remove(TablePath().c_str());
}

TEST(HcclProcesses, HC_111_BadVariablesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"HCCL_CONNECT_TIMEOUT", "0"}, {"HCCL_EXEC_TIMEOUT", "soon"}, {"HCCL_BUFFSIZE", "0"},     {"HCCL_RDMA_TC", "3"},
      {"HCCL_ALGO", "level0:best"},  {"HCCL_IF_IP", "here"},        {"HCCL_DETERMINISTIC", "1"}};
  for (const auto& [name, value] : cases) {
    ::setenv(name, value, 1);
    ::setenv("REPRISE_TEST_VARIABLE", name, 1);
    { Child child("HcclProcesses.DISABLED_Rank", Write(0, 0, {}, 7)); }
    ::unsetenv(name);
  }
}

// Whether this process serves a rendezvous: a socket with an abstract name is among its descriptors.
bool IsServing() {
  std::ifstream table("/proc/self/net/unix");
  std::string line;
  while (std::getline(table, line)) {
    if (line.find("@reprise-hccl-") == std::string::npos) continue;
    std::istringstream words(line);
    std::string word;
    for (int i = 0; i < 7; ++i) words >> word;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      if (std::filesystem::read_symlink(entry, error) == "socket:[" + word + "]") return true;
    }
  }
  return false;
}

TEST(HcclProcesses, HC_028_HC_029_HF_08_RankTables) {
  ::setenv("REPRISE_TEST_TABLE", std::to_string(getpid()).c_str(), 1);
  const auto write = [](const std::string& text) { std::ofstream(TablePath()) << text; };
  const std::string good =
      R"({"status":"completed","version":"1.0","server_count":"1","server_list":[{"server_id":"a","device":[)"
      R"({"device_id":"0","device_ip":"127.0.0.1","rank_id":"0"},{"device_id":"1","rank_id":"1"}]}]})";
  write(good);
  {
    Child child("HcclProcesses.DISABLED_Rank", Write(1, 2, {}, 8));
    RunTable({0, 2, {}, 8});
  }
  HcclComm comm = nullptr;
  EXPECT_EQ(HCCL_E_OPEN_FILE_FAILURE, HcclCommInitClusterInfo("/nonexistent/table", 0, &comm));
  EXPECT_EQ(HCCL_E_PARA, HcclCommInitClusterInfo(TablePath().c_str(), 2, &comm));
  const auto bad = [&](const std::string& from, const std::string& to, const char* category) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    write(text);
    EXPECT_EQ(HCCL_E_PARA, HcclCommInitClusterInfo(TablePath().c_str(), 0, &comm)) << text;
    EXPECT_NE(std::string::npos, Message().find(category)) << Message();
  };
  // HF-08: a second job with the table, while rank 0 of the first waits for its rank 1.
  write(good + " ");
  std::thread first([] {
    EXPECT_EQ(0, aclrtSetDevice(0));
    HcclComm own = nullptr;
    OK(HcclCommInitClusterInfo(TablePath().c_str(), 0, &own));
    EXPECT_OK(HcclCommDestroy(own));
  });
  while (!IsServing()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  { Child second("HcclProcesses.DISABLED_Rank", Write(0, 2, {}, 13)); }
  ASSERT_EQ(0, aclrtSetDevice(1));
  OK(HcclCommInitClusterInfo(TablePath().c_str(), 1, &comm));
  EXPECT_OK(HcclCommDestroy(comm));
  first.join();
  bad("{\"status\"", "[", "EI0004");
  bad("completed", "initializing", "EI0004");
  bad("\"server_count\":\"1\"", "\"server_count\":\"2\"", "EI0014");
  bad("\"rank_id\":\"1\"", "\"rank_id\":\"0\"", "EI0014");
  bad("\"rank_id\":\"1\"", "\"rank_id\":1", "EI0016");
  std::remove(TablePath().c_str());
}

TEST(HcclProcesses, HC_079_AForkedChildIsRefused) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclRootInfo token;
  OK(HcclGetRootInfo(&token));
  HcclComm comm = nullptr;
  OK(HcclCommInitRootInfo(1, &token, 0, &comm));
  const pid_t pid = fork();
  if (pid == 0) {
    uint32_t rank = 0;
    _exit(HcclGetRankId(comm, &rank) == HCCL_E_UNAVAIL ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(pid, waitpid(pid, &status, 0));
  EXPECT_EQ(0, status);
  EXPECT_OK(HcclCommDestroy(comm));
}

}  // namespace
