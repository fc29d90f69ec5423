// SPDX-License-Identifier: Apache-2.0
//
// Communicators, groups, refusals and failures of ranks in one process.
// Tests carry the items of the specification.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "../runtime/child.h"
#include "ranks.h"

namespace {

using namespace reprise::testing;
using Clock = std::chrono::steady_clock;

TEST(Hccl, HC_010_HC_016_HC_022_TokensBringThreadsTogether) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  std::set<std::string> names;
  for (int round = 0; round < 3; ++round) {
    HcclRootInfo token;
    OK(HcclGetRootInfo(&token));
    std::vector<HcclComm> comms(4);
    std::vector<std::string> seen(4);
    std::vector<std::thread> threads;
    for (uint32_t r = 0; r < 4; ++r) {
      threads.emplace_back([&, r] {
        EXPECT_EQ(0, aclrtSetDevice(static_cast<int>(r)));
        EXPECT_OK(HcclCommInitRootInfo(4, &token, r, &comms[r]));
        uint32_t rank = 99;
        uint32_t size = 0;
        EXPECT_OK(HcclGetRankId(comms[r], &rank));
        EXPECT_OK(HcclGetRankSize(comms[r], &size));
        EXPECT_EQ(r, rank);
        EXPECT_EQ(4u, size);
        char name[128];
        EXPECT_OK(HcclGetCommName(comms[r], name));
        seen[r] = name;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(4u, std::set<HcclComm>(comms.begin(), comms.end()).size());
    for (const std::string& name : seen) EXPECT_EQ(seen[0], name);
    EXPECT_TRUE(names.insert(seen[0]).second) << seen[0];
    EXPECT_LT(seen[0].size(), 128u);
    HcclComm found = nullptr;
    EXPECT_OK(HcclCommGetHandleWithName(seen[0].c_str(), &found));  // HC-023
    EXPECT_EQ(comms[0], found);
    HcclComm again = nullptr;
    EXPECT_EQ(HCCL_E_PARA, HcclCommInitRootInfo(4, &token, 0, &again));  // used already
    for (HcclComm comm : comms) EXPECT_OK(HcclCommDestroy(comm));
    EXPECT_EQ(HCCL_E_PARA, HcclCommDestroy(comms[0]));  // HC-035
    EXPECT_EQ(HCCL_E_PARA, HcclCommGetHandleWithName(seen[0].c_str(), &found));
  }
  EXPECT_OK(HcclCommDestroy(nullptr));
  int foreign = 0;
  EXPECT_EQ(HCCL_E_PARA, HcclCommDestroy(&foreign));
}

TEST(Hccl, HC_017_ManyTokensAtOnce) {
  std::vector<std::thread> threads;
  for (int group = 0; group < 8; ++group) {
    threads.emplace_back([] {
      EXPECT_EQ(0, aclrtSetDevice(0));
      HcclRootInfo token;
      OK(HcclGetRootInfo(&token));
      HcclComm comms[2] = {};
      std::thread other([&] {
        EXPECT_EQ(0, aclrtSetDevice(1));
        EXPECT_OK(HcclCommInitRootInfo(2, &token, 1, &comms[1]));
      });
      EXPECT_OK(HcclCommInitRootInfo(2, &token, 0, &comms[0]));
      other.join();
      for (HcclComm comm : comms) EXPECT_OK(HcclCommDestroy(comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Hccl, HC_025_OneThreadBringsAllRanks) {
  Ranks ranks(4);
  std::vector<Buffer<float>> data;
  for (Rank& r : ranks) {
    r.Use();
    data.emplace_back(20000);
    data.back().Fill([&](size_t) { return static_cast<float>(r.rank); });
  }
  ranks.InLine([&](Rank& r) {
    float* const at = data[r.rank].data();
    EXPECT_OK(HcclAllReduce(at, at, 20000, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm, r.stream));
  });
  for (Buffer<float>& each : data) EXPECT_EQ(6.0f, each[19999]);
}

// HC-118: what waits is told on standard error.
TEST(Hccl, DISABLED_Stall) {
  Ranks ranks(2);
  ranks[0].Use();
  EXPECT_OK(HcclBarrier(ranks[0].comm, ranks[0].stream));
  // Until it is told, which ends the wait.
  std::thread ends([&] {
    const auto until = Clock::now() + std::chrono::seconds(60);
    while (Clock::now() < until && std::filesystem::file_size(std::getenv("REPRISE_TEST_FILE")) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_OK(HcclCommDestroy(ranks[1].comm));
    ranks[1].comm = nullptr;
  });
  EXPECT_NE(0, aclrtSynchronizeStreamWithTimeout(ranks[0].stream, 120000));
  ends.join();
}
TEST(Hccl, HC_118_AStallReportNamesTheMissingRank) {
  const std::string path = "/tmp/reprise_hccl_stall_" + std::to_string(getpid());
  char program[4096] = "";
  ASSERT_LT(0, readlink("/proc/self/exe", program, sizeof program - 1));
  const std::string command = "REPRISE_STALL_MS=50 REPRISE_TEST_FILE=" + path + " " + program +
                              " --gtest_filter=Hccl.DISABLED_Stall --gtest_also_run_disabled_tests --gtest_output= "
                              ">/dev/null 2>" +
                              path;
  EXPECT_EQ(0, std::system(command.c_str()));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::remove(path.c_str());
  EXPECT_NE(std::string::npos, text.str().find("HCCL_BARRIER")) << text.str();
  EXPECT_NE(std::string::npos, text.str().find("seq 0: did not come: rank 1 (process ")) << text.str();
}

// HC-004: they look at no parameter.
TEST(Hccl, DISABLED_Profiled) {
  Ranks ranks(2);
  std::vector<Buffer<float>> data;
  for (Rank& r : ranks) {
    r.Use();
    data.emplace_back(12);
  }
  std::vector<aclmdlRI> models;
  ranks.InLine([&](Rank& r) {
    EXPECT_OK(HcclAllReduce(data[r.rank].data(), data[r.rank].data(), 5, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm,
                            r.stream));
    EXPECT_OK(HcclAllGather(data[r.rank].data(), data[r.rank].data(), 6, HCCL_DATA_TYPE_FP32, r.comm, r.stream));
    aclmdlRI model = nullptr;
    OK(aclmdlRICaptureBegin(r.stream, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL));
    EXPECT_OK(HcclBroadcast(data[r.rank].data(), 7, HCCL_DATA_TYPE_FP32, 0, r.comm, r.stream));
    OK(aclmdlRICaptureEnd(r.stream, &model));
    OK(aclmdlRIExecuteAsync(model, r.stream));
    models.push_back(model);
  });
  for (aclmdlRI model : models) EXPECT_EQ(0, aclmdlRIDestroy(model));
}

TEST(Hccl, HC_116_TimelinesShowGroupsAndBytes) {
  const std::string path = "/tmp/reprise_hccl_profile_" + std::to_string(getpid()) + ".json";
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "REPRISE_PROFILE=" + path + " " + program +
                              " --gtest_also_run_disabled_tests --gtest_output= "
                              "--gtest_filter=Hccl.DISABLED_Profiled >/dev/null";
  ASSERT_EQ(0, std::system(command.c_str()));
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::remove(path.c_str());
  for (const char* const part :
       {R"("name":"HCCL_ALLREDUCE")", R"("name":"HCCL_ALLGATHER")", R"("name":"HCCL_BROADCAST")",
        R"("collective":"group )", "rank 0 of 2, sends 20 bytes, receives 20 bytes",
        "rank 1 of 2, sends 24 bytes, receives 48 bytes", "rank 0 of 2, sends 28 bytes, receives ",
        "receives 28 bytes"}) {
    EXPECT_NE(std::string::npos, text.str().find(part)) << part << "\n" << text.str();
  }
}

TEST(Hccl, HC_004_FunctionsForOperatorDevelopersAreRefused) {
  void* const library = dlopen("libhccl.so", RTLD_LAZY | RTLD_NOLOAD);
  ASSERT_NE(nullptr, library) << dlerror();
  for (const char* name : {"HcclGetCommConfig",
                           "HcclSetCommConfig",
                           "HcclChannelAcquireWithConfig",
                           "HcclChannelConfigCreate",
                           "HcclChannelConfigDestroy",
                           "HcclChannelConfigSetInt",
                           "HcclChannelConfigSetStr",
                           "HcclChannelDestroy",
                           "HcclChannelQuery",
                           "HcclCreateOpResCtx",
                           "HcclKfcAllocOpArgs",
                           "HcclKfcFreeOpArgs",
                           "HcclKfcOpArgsSetAlgConfig",
                           "HcclKfcOpArgsSetCommEngine",
                           "HcclKfcOpArgsSetCount",
                           "HcclKfcOpArgsSetDstDataType",
                           "HcclKfcOpArgsSetReduceType",
                           "HcclKfcOpArgsSetSrcDataType",
                           "HcclGetHeterogMode",
                           "HcclRankGraphGetEndpointDesc",
                           "HcclRankGraphGetEndpointInfo",
                           "HcclRankGraphGetEndpointNum",
                           "HcclRankGraphGetLinks",
                           "HcclChannelAcquire",
                           "HcclChannelGetHcclBuffer",
                           "HcclChannelGetRemoteMems",
                           "HcclCommMemReg",
                           "HcclDedicatedThreadAcquire",
                           "HcclEngineCtxCopy",
                           "HcclEngineCtxCreate",
                           "HcclEngineCtxDestroy",
                           "HcclEngineCtxGet",
                           "HcclGetHcclBuffer",
                           "HcclGetHcclBufferCleared",
                           "HcclThreadAcquire",
                           "HcclThreadAcquireWithConfig",
                           "HcclThreadAcquireWithStream",
                           "HcclThreadResGetInfo",
                           "HcclTeamCreate",
                           "HcclTeamDestroy",
                           "HcommAclrtNotifyRecordOnThread",
                           "HcommAclrtNotifyWaitOnThread",
                           "HcommAcquireComm",
                           "HcommBatchModeEnd",
                           "HcommBatchModeStart",
                           "HcommChannelFence",
                           "HcommChannelFenceOnThread",
                           "HcommChannelNotifyRecord",
                           "HcommChannelNotifyRecordOnThread",
                           "HcommChannelNotifyWait",
                           "HcommChannelNotifyWaitOnThread",
                           "HcommFenceOnThread",
                           "HcommLocalCopyOnThread",
                           "HcommLocalReduceOnThread",
                           "HcommReadNbi",
                           "HcommReadNbiOnThread",
                           "HcommReadOnThread",
                           "HcommReadReduceOnThread",
                           "HcommReleaseComm",
                           "HcommThreadNotifyRecordOnThread",
                           "HcommThreadNotifyWaitOnThread",
                           "HcommWriteNbi",
                           "HcommWriteNbiOnThread",
                           "HcommWriteOnThread",
                           "HcommWriteReduceOnThread",
                           "HcommWriteReduceWithNotifyOnThread",
                           "HcommWriteWithNotifyNbi",
                           "HcommWriteWithNotifyNbiOnThread",
                           "HcommWriteWithNotifyOnThread",
                           "HcommChannelCreate",
                           "HcommChannelDestroy",
                           "HcommChannelGetStatus",
                           "HcommEndpointCreate",
                           "HcommEndpointDestroy",
                           "HcommMemExport",
                           "HcommMemImport",
                           "HcommMemReg",
                           "HcommMemUnimport",
                           "HcommMemUnreg",
                           "HcommThreadAlloc",
                           "HcommThreadFree"}) {
    auto* const function = reinterpret_cast<int (*)()>(dlsym(library, name));
    ASSERT_NE(nullptr, function) << name;
    EXPECT_EQ(HCCL_E_NOT_SUPPORT, function()) << name;
    EXPECT_NE(std::string::npos, Message().find(name)) << Message();
  }
  dlclose(library);
}

TEST(Hccl, HC_011_HC_012_OneRankAndBadArguments) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclRootInfo token;
  OK(HcclGetRootInfo(&token));
  HcclComm comm = nullptr;
  EXPECT_EQ(HCCL_E_PTR, HcclGetRootInfo(nullptr));
  EXPECT_EQ(HCCL_E_PARA, HcclCommInitRootInfo(0, &token, 0, &comm));
  EXPECT_EQ(HCCL_E_PARA, HcclCommInitRootInfo(2, &token, 2, &comm));
  EXPECT_EQ(HCCL_E_PTR, HcclCommInitRootInfo(1, nullptr, 0, &comm));
  EXPECT_EQ(HCCL_E_PTR, HcclCommInitRootInfo(1, &token, 0, nullptr));
  HcclRootInfo broken{};
  EXPECT_EQ(HCCL_E_PARA, HcclCommInitRootInfo(1, &broken, 0, &comm));
  OK(HcclCommInitRootInfo(1, &token, 0, &comm));
  EXPECT_OK(HcclCommDestroy(comm));
}

TEST(Hccl, HC_014_HC_015_RanksThatDoNotFit) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  for (const bool same_rank : {true, false}) {
    HcclRootInfo token;
    OK(HcclGetRootInfo(&token));
    std::vector<std::thread> threads;
    std::vector<std::string> messages(2);
    for (uint32_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        EXPECT_EQ(0, aclrtSetDevice(static_cast<int>(i)));
        HcclComm comm = nullptr;
        EXPECT_EQ(HCCL_E_PARA, HcclCommInitRootInfo(same_rank ? 3 : 3 + i, &token, same_rank ? 1 : i, &comm));
        messages[i] = Message();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& message : messages) EXPECT_NE(std::string::npos, message.find("EI0014")) << message;
  }
}

TEST(Hccl, HC_018_to_HC_021_Configurations) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclCommConfig config;
  const auto create = [&](HcclComm* comm) {
    HcclRootInfo token;
    EXPECT_OK(HcclGetRootInfo(&token));
    return HcclCommInitRootInfoConfig(1, &token, 0, &config, comm);
  };
  const auto with_size = [&](uint64_t size) { std::memcpy(config.reserved, &size, sizeof size); };
  HcclComm comm = nullptr;
  HcclCommConfigInit(nullptr);
  for (const uint64_t size : {32u, 2232u, 2240u, 2248u, 4096u}) {
    std::vector<char> bytes(4096);
    HcclCommConfigInit(&config);
    with_size(size);
    std::memcpy(bytes.data(), &config, sizeof config);
    HcclRootInfo token;
    OK(HcclGetRootInfo(&token));
    OK(HcclCommInitRootInfoConfig(1, &token, 0, reinterpret_cast<HcclCommConfig*>(bytes.data()), &comm)) << size;
    EXPECT_OK(HcclCommDestroy(comm));
  }
  HcclCommConfigInit(&config);
  std::strcpy(config.hcclCommName, "named");
  OK(create(&comm));
  char name[128];
  EXPECT_OK(HcclGetCommName(comm, name));
  EXPECT_STREQ("named", name);
  HcclComm second = nullptr;
  EXPECT_EQ(HCCL_E_PARA, create(&second));
  EXPECT_OK(HcclCommDestroy(comm));
  OK(create(&comm));
  EXPECT_OK(HcclCommDestroy(comm));
  const auto bad = [&](const char* what, const std::function<void()>& change) {
    HcclCommConfigInit(&config);
    change();
    EXPECT_EQ(HCCL_E_PARA, create(&comm)) << what;
  };
  bad("magic", [&] { config.reserved[8] = 0; });
  bad("size", [&] { with_size(31); });
  bad("name", [&] { std::memset(config.hcclCommName, 'x', sizeof config.hcclCommName); });
  bad("buffer", [&] { config.hcclBufferSize = 0; });
  bad("mode", [&] { config.hcclOpExpansionMode = 7; });
  // Ranks that differ.
  HcclRootInfo token;
  OK(HcclGetRootInfo(&token));
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      EXPECT_EQ(0, aclrtSetDevice(static_cast<int>(i)));
      HcclCommConfig own;
      HcclCommConfigInit(&own);
      own.hcclBufferSize = 100 + i;
      HcclComm made = nullptr;
      EXPECT_EQ(HCCL_E_PARA, HcclCommInitRootInfoConfig(2, &token, i, &own, &made));
      EXPECT_NE(std::string::npos, Message().find("hcclBufferSize differs between ranks: 10")) << Message();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Hccl, HC_024_InitAll) {
  ASSERT_EQ(0, aclrtSetDevice(2));
  int32_t devices[] = {3, 1};
  HcclComm comms[2];
  OK(HcclCommInitAll(2, devices, comms));
  int32_t current = -1;
  EXPECT_EQ(0, aclrtGetDevice(&current));
  EXPECT_EQ(2, current);
  uint32_t rank = 9;
  EXPECT_OK(HcclGetRankId(comms[1], &rank));
  EXPECT_EQ(1u, rank);
  for (HcclComm comm : comms) EXPECT_OK(HcclCommDestroy(comm));
  int32_t twice[] = {1, 1};
  int32_t wrong[] = {0, 77};
  EXPECT_EQ(HCCL_E_PARA, HcclCommInitAll(2, twice, comms));
  EXPECT_EQ(HCCL_E_PARA, HcclCommInitAll(2, wrong, comms));
  EXPECT_EQ(HCCL_E_PARA, HcclCommInitAll(0, devices, comms));
  EXPECT_EQ(HCCL_E_PTR, HcclCommInitAll(2, nullptr, comms));
}

TEST(Hccl, HC_026_OneThreadCreatesAllRanksInAGroup) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclRootInfo token;
  OK(HcclGetRootInfo(&token));
  HcclComm comms[3] = {};
  OK(HcclGroupStart());
  bool in_group = false;
  EXPECT_OK(HcclGroupStatusGet(&in_group));
  EXPECT_TRUE(in_group);
  for (uint32_t r = 0; r < 3; ++r) {
    ASSERT_EQ(0, aclrtSetDevice(static_cast<int>(r)));
    OK(HcclCommInitRootInfo(3, &token, r, &comms[r]));
  }
  OK(HcclGroupEnd());
  for (HcclComm comm : comms) {
    ASSERT_NE(nullptr, comm);
    EXPECT_OK(HcclCommDestroy(comm));
  }
  EXPECT_EQ(HCCL_E_NOT_SUPPORT, HcclGroupEnd());  // HC-066
}

TEST(Hccl, HC_031_to_HC_034_PartsOfAGroup) {
  Ranks ranks(4);
  HcclComm parts[4] = {};
  uint32_t members[] = {0, 2};
  ranks.InThreads([&](Rank& r) {
    HcclCommConfig config;
    HcclCommConfigInit(&config);
    if (r.rank % 2 != 0) {
      EXPECT_OK(HcclCreateSubCommConfig(&r.comm, 0, nullptr, 0xFFFFFFFF, 0, &config, &parts[r.rank]));
      EXPECT_EQ(nullptr, parts[r.rank]);
      return;
    }
    EXPECT_OK(HcclCreateSubCommConfig(&r.comm, 2, members, 5, r.rank / 2, &config, &parts[r.rank]));
    uint32_t rank = 9;
    EXPECT_OK(HcclGetRankId(parts[r.rank], &rank));
    EXPECT_EQ(r.rank / 2, rank);
    char name[128];
    char parent[128];
    EXPECT_OK(HcclGetCommName(parts[r.rank], name));
    EXPECT_OK(HcclGetCommName(r.comm, parent));
    EXPECT_EQ(std::string(parent) + "_sub_5", name);
    HcclComm second = nullptr;
    EXPECT_EQ(HCCL_E_PARA, HcclCreateSubCommConfig(&r.comm, 2, members, 5, r.rank / 2, &config, &second));
  });
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  HcclComm comm = ranks[0].comm;
  HcclComm made = nullptr;
  uint32_t unsorted[] = {2, 0};
  EXPECT_EQ(HCCL_E_PARA, HcclCreateSubCommConfig(&comm, 2, nullptr, 5, 0, &config, &made));
  EXPECT_EQ(HCCL_E_PARA, HcclCreateSubCommConfig(&comm, 2, members, 0xFFFFFFFF, 0, &config, &made));
  EXPECT_EQ(HCCL_E_PARA, HcclCreateSubCommConfig(&comm, 0, members, 6, 0, &config, &made));
  EXPECT_EQ(HCCL_E_PARA, HcclCreateSubCommConfig(&comm, 2, members, 6, 2, &config, &made));
  EXPECT_EQ(HCCL_E_PARA, HcclCreateSubCommConfig(&comm, 2, unsorted, 6, 1, &config, &made));
  EXPECT_EQ(HCCL_E_PARA, HcclCreateSubCommConfig(&comm, 2, members, 6, 1, &config, &made));
  EXPECT_EQ(HCCL_E_PTR, HcclCreateSubCommConfig(&comm, 2, members, 6, 0, nullptr, &made));
  // The part works, also when the whole is gone.
  for (Rank& r : ranks) EXPECT_OK(HcclCommDestroy(std::exchange(r.comm, nullptr)));
  std::vector<Buffer<int32_t>> data;
  for (Rank& r : ranks) {
    r.Use();
    data.emplace_back(1);
    data.back()[0] = static_cast<int32_t>(r.rank) + 1;
  }
  ranks.InLine([&](Rank& r) {
    if (r.rank % 2 != 0) return;
    int32_t* const at = data[r.rank].data();
    EXPECT_OK(HcclAllReduce(at, at, 1, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, parts[r.rank], r.stream));
  });
  EXPECT_EQ(4, data[0][0]);
  EXPECT_EQ(4, data[2][0]);
  for (HcclComm part : parts) EXPECT_OK(HcclCommDestroy(part));
}

TEST(Hccl, HC_050_to_HC_056_WrongCalls) {
  Ranks ranks(2);
  Rank& r = ranks[0];
  r.Use();
  Buffer<float> a(64);
  Buffer<float> b(64);
  const auto f32 = HCCL_DATA_TYPE_FP32;
  const auto reduce = [&](void* s, void* d, uint64_t n, int type, int op, HcclComm c, aclrtStream stream) {
    return HcclAllReduce(s, d, n, static_cast<HcclDataType>(type), static_cast<HcclReduceOp>(op), c, stream);
  };
  EXPECT_OK(reduce(nullptr, nullptr, 0, f32, 0, nullptr, nullptr));
  EXPECT_EQ(HCCL_E_PARA, reduce(a.data(), b.data(), 0x800000000, f32, 0, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PTR, reduce(a.data(), b.data(), 1, f32, 0, r.comm, nullptr));
  EXPECT_EQ(HCCL_E_PTR, reduce(a.data(), b.data(), 1, f32, 0, nullptr, r.stream));
  EXPECT_EQ(HCCL_E_PTR, reduce(nullptr, b.data(), 1, f32, 0, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PTR, reduce(a.data(), nullptr, 1, f32, 0, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, reduce(a.data(), b.data(), 1, f32, 0, &ranks, r.stream));
  for (const int type : {12, 13, 14, 17, 255})
    EXPECT_EQ(HCCL_E_NOT_SUPPORT, reduce(a.data(), b.data(), 1, type, 0, r.comm, r.stream));
  for (const int op : {4, 255}) EXPECT_EQ(HCCL_E_NOT_SUPPORT, reduce(a.data(), b.data(), 1, f32, op, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, HcclBroadcast(a.data(), 1, f32, 2, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, HcclSend(a.data(), 1, f32, 2, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_NOT_SUPPORT, HcclSend(a.data(), 1, f32, 0, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, HcclAlltoAll(a.data(), 1, f32, b.data(), 2, f32, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, HcclAlltoAll(a.data(), 1, f32, b.data(), 1, HCCL_DATA_TYPE_INT32, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, HcclAlltoAll(a.data(), 1, f32, a.data(), 1, f32, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PTR, HcclScatter(nullptr, b.data(), 1, f32, 0, r.comm, r.stream));
  float plain[4] = {};
  EXPECT_EQ(HCCL_E_PARA, reduce(plain, b.data(), 1, f32, 0, r.comm, r.stream));
  EXPECT_NE(std::string::npos, Message().find("sendBuf")) << Message();
  EXPECT_EQ(HCCL_E_PARA, reduce(reinterpret_cast<char*>(a.data()) + 1, b.data(), 1, f32, 0, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, reduce(a.data(), b.data(), uint64_t{1} << 30, f32, 0, r.comm, r.stream));
  EXPECT_EQ(HCCL_E_PARA, HcclBroadcast(a.data(), 1, f32, 0, r.comm, ranks[1].stream));  // of another device
  HcclResult error = HCCL_E_INTERNAL;
  EXPECT_OK(HcclGetCommAsyncError(r.comm, &error));
  EXPECT_EQ(HCCL_SUCCESS, error);  // refusals leave nothing behind
}

TEST(Hccl, HC_065_HC_067_HC_068_GroupsOfOperators) {
  Ranks ranks(2);
  Ranks others(2);
  std::vector<Buffer<int32_t>> data;
  std::vector<Buffer<int32_t>> more;
  for (Rank& r : ranks) {
    r.Use();
    data.emplace_back(4);
    more.emplace_back(4);
    data.back().Fill([](size_t) { return 1; });
    more.back().Fill([](size_t) { return 1; });
  }
  ranks.InLine([&](Rank& r) {
    int32_t* const at = data[r.rank].data();
    EXPECT_OK(HcclGroupStart());
    EXPECT_OK(HcclGroupStart());
    EXPECT_OK(HcclAllReduce(at, at, 4, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, r.comm, r.stream));
    EXPECT_OK(HcclGroupEnd());
    EXPECT_OK(HcclAllReduce(at, at, 4, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, r.comm, r.stream));
    EXPECT_OK(HcclGroupEnd());
  });
  EXPECT_EQ(4, data[0][0]);
  EXPECT_EQ(4, data[1][3]);
  ranks.InLine([&](Rank& r) {
    int32_t* const at = data[r.rank].data();
    int32_t* const there = more[r.rank].data();
    EXPECT_OK(HcclGroupStart());
    EXPECT_OK(HcclAllReduce(there, there, 4, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, others[r.rank].comm, r.stream));
    EXPECT_EQ(HCCL_E_PARA, HcclBroadcast(at, 4, HCCL_DATA_TYPE_INT32, 7, r.comm, r.stream));
    EXPECT_OK(HcclAllReduce(at, at, 4, HCCL_DATA_TYPE_INT32, HCCL_REDUCE_SUM, r.comm, r.stream));
    EXPECT_EQ(HCCL_E_PARA, HcclGroupEnd());
  });
  EXPECT_EQ(4, data[0][0]);
  EXPECT_EQ(2, more[1][0]);
  EXPECT_OK(HcclGroupStart());
  HcclSendRecvItem item = {HCCL_SEND, data[0].data(), 1, HCCL_DATA_TYPE_INT32, 1};
  EXPECT_EQ(HCCL_E_NOT_SUPPORT, HcclBatchSendRecv(&item, 1, ranks[0].comm, ranks[0].stream));
  EXPECT_EQ(HCCL_E_NOT_SUPPORT, HcclGroupEnd());
}

TEST(Hccl, HC_100_HC_107_HF_02_HF_05_MismatchesFailEverywhere) {
  struct Case {
    const char* field;
    std::function<HcclResult(Rank&, Buffer<float>&, bool)> call;
  };
  const auto reduce = [](Rank& r, Buffer<float>& b, uint64_t count, HcclDataType type, HcclReduceOp op) {
    return HcclAllReduce(b.data(), b.data(), count, type, op, r.comm, r.stream);
  };
  const Case cases[] = {
      {"count", [&](Rank& r, Buffer<float>& b,
                    bool odd) { return reduce(r, b, odd ? 3 : 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM); }},
      {"dataType",
       [&](Rank& r, Buffer<float>& b, bool odd) {
         return reduce(r, b, 4, odd ? HCCL_DATA_TYPE_INT32 : HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM);
       }},
      {"op", [&](Rank& r, Buffer<float>& b,
                 bool odd) { return reduce(r, b, 4, HCCL_DATA_TYPE_FP32, odd ? HCCL_REDUCE_MAX : HCCL_REDUCE_SUM); }},
      {"root",
       [&](Rank& r, Buffer<float>& b, bool odd) {
         return HcclBroadcast(b.data(), 4, HCCL_DATA_TYPE_FP32, odd ? 1 : 0, r.comm, r.stream);
       }},
      {"order", [&](Rank& r, Buffer<float>& b, bool odd) {
         return odd ? HcclBroadcast(b.data(), 4, HCCL_DATA_TYPE_FP32, 0, r.comm, r.stream)
                    : reduce(r, b, 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM);
       }}};
  for (const Case& test : cases) {
    SCOPED_TRACE(test.field);
    Ranks ranks(4);
    std::vector<Buffer<float>> buffers;
    for (Rank& r : ranks) {
      r.Use();
      buffers.emplace_back(8);
      EXPECT_OK(test.call(r, buffers.back(), r.rank == 2));
    }
    for (Rank& r : ranks) {
      r.Use();
      EXPECT_EQ(507049, aclrtSynchronizeStreamWithTimeout(r.stream, 60000));
      const std::string message = Message();
      EXPECT_NE(std::string::npos, message.find("EI0005")) << message;
      EXPECT_NE(std::string::npos,
                message.find("The arguments for collective communication are inconsistent between ranks"));
      EXPECT_NE(std::string::npos, message.find("rank 2: ")) << message;
      EXPECT_NE(std::string::npos, message.find("rank 0, 1, 3: ")) << message;
      EXPECT_NE(std::string::npos, message.find(test.field)) << message;
      HcclResult error = HCCL_SUCCESS;
      EXPECT_OK(HcclGetCommAsyncError(r.comm, &error));
      EXPECT_EQ(HCCL_E_PARA, error);
      EXPECT_EQ(HCCL_E_REMOTE, test.call(r, buffers[r.rank], false));
      EXPECT_EQ(0, aclrtSynchronizeStream(r.stream));  // the error was told once
    }
  }
}

TEST(Hccl, HC_102_SwappedOrdersFailAtTheFirstOperator) {
  Ranks ranks(2);
  std::vector<Buffer<float>> buffers;
  for (Rank& r : ranks) {
    r.Use();
    Buffer<float>& b = buffers.emplace_back(8);
    const auto broadcast = [&] { return HcclBroadcast(b.data(), 4, HCCL_DATA_TYPE_FP32, 0, r.comm, r.stream); };
    const auto sum = [&] {
      return HcclAllReduce(b.data(), b.data(), 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm, r.stream);
    };
    EXPECT_OK(r.rank == 1 ? broadcast() : sum());
    // Refused when the first operators have met already.
    const HcclResult second = r.rank == 1 ? sum() : broadcast();
    EXPECT_TRUE(second == HCCL_SUCCESS || (second == HCCL_E_REMOTE && r.rank == 1)) << second << Message();
  }
  for (Rank& r : ranks) {
    r.Use();
    EXPECT_EQ(507049, aclrtSynchronizeStreamWithTimeout(r.stream, 60000));
    const std::string message = Message();
    for (const char* part : {"EI0005", "seq 0", "order", "AllReduce, count 4", "Broadcast, count 4"})
      EXPECT_NE(std::string::npos, message.find(part)) << part << ": " << message;
  }
}

TEST(Hccl, HC_108_AFailedGroupLeavesOthersWorking) {
  Ranks ranks(2);
  Ranks others(2);
  std::vector<Buffer<float>> buffers;
  for (Rank& r : ranks) {
    r.Use();
    Buffer<float>& b = buffers.emplace_back(8);
    b.Fill([](size_t) { return 1.0f; });
    EXPECT_OK(HcclAllReduce(b.data(), b.data(), 3 + r.rank, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm, r.stream));
  }
  for (Rank& r : ranks) {
    r.Use();
    EXPECT_EQ(507049, aclrtSynchronizeStreamWithTimeout(r.stream, 60000));
  }
  others.InLine([&](Rank& r) {
    float* const data = buffers[r.rank].data();
    EXPECT_OK(HcclAllReduce(data, data, 8, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm, r.stream));
  });
  EXPECT_EQ(2.0f, buffers[0][7]);
}

TEST(Hccl, DISABLED_Diagnosed) {
  Ranks ranks(2);
  std::vector<Buffer<float>> buffers;
  for (Rank& r : ranks) {
    r.Use();
    buffers.emplace_back(8);
  }
  const auto reduce = [&](Rank& r, uint64_t count) {
    float* const data = buffers[r.rank].data();
    EXPECT_OK(HcclAllReduce(data, data, count, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_MAX, r.comm, r.stream));
  };
  for (uint64_t i = 1; i < 8; ++i) ranks.InLine([&](Rank& r) { reduce(r, i); });
  for (Rank& r : ranks) {
    r.Use();
    reduce(r, 1 + r.rank);
  }
  for (Rank& r : ranks) {
    r.Use();
    EXPECT_EQ(507049, aclrtSynchronizeStreamWithTimeout(r.stream, 60000));
    const std::string message = Message();
    EXPECT_NE(std::string::npos, message.find("Rank " + std::to_string(r.rank) +
                                              " has called last: seq 3: AllReduce, "
                                              "count 4, fp32, max; seq 4: AllReduce, count 5"))
        << message;
    EXPECT_NE(std::string::npos, message.find("seq 7: AllReduce, count " + std::to_string(1 + r.rank))) << message;
  }
}
TEST(Hccl, HC_110_TheLastOperatorsOfAFailedGroup) {
  ::setenv("HCCL_DIAGNOSE_ENABLE", "1", 1);
  { Child child("Hccl.DISABLED_Diagnosed", ""); }
  ::unsetenv("HCCL_DIAGNOSE_ENABLE");
}

TEST(Hccl, HC_101_PairsOfCountsAreCompared) {
  Ranks ranks(2);
  std::vector<Buffer<int32_t>> buffers;
  for (Rank& r : ranks) {
    r.Use();
    buffers.emplace_back(64);
    const uint64_t send[] = {1, 2};
    const uint64_t receive[] = {r.rank == 0 ? 1u : 3u, r.rank == 0 ? 1u : 2u};
    const uint64_t offsets[] = {0, 8};
    EXPECT_OK(HcclAlltoAllV(buffers.back().data(), send, offsets, HCCL_DATA_TYPE_INT32, buffers.back().data() + 32,
                            receive, offsets, HCCL_DATA_TYPE_INT32, r.comm, r.stream));
  }
  for (Rank& r : ranks) {
    r.Use();
    EXPECT_EQ(507049, aclrtSynchronizeStreamWithTimeout(r.stream, 60000));
    EXPECT_NE(std::string::npos, Message().find("rank 0 sends 2 elements to rank 1, which receives 3 from it"))
        << Message();
  }
}

TEST(Hccl, HC_103_HF_04_ARankThatNeverComes) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  config.hcclExecTimeOut = 1;
  HcclRootInfo token;
  OK(HcclGetRootInfo(&token));
  HcclComm comms[2];
  OK(HcclGroupStart());
  for (uint32_t i = 0; i < 2; ++i) OK(HcclCommInitRootInfoConfig(2, &token, i, &config, &comms[i]));  // of one device
  OK(HcclGroupEnd());
  aclrtStream stream = nullptr;
  OK(aclrtCreateStream(&stream));
  Buffer<float> data(4);
  const auto begin = Clock::now();
  OK(HcclAllReduce(data.data(), data.data(), 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comms[0], stream));
  EXPECT_EQ(507048, aclrtSynchronizeStreamWithTimeout(stream, 60000));
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(900));
  const std::string message = Message();
  EXPECT_NE(std::string::npos, message.find("EI0002")) << message;
  EXPECT_NE(std::string::npos, message.find("did not come: rank 1")) << message;
  HcclResult error = HCCL_SUCCESS;
  for (int i = 0; i < 2; ++i) {  // it stays
    EXPECT_OK(HcclGetCommAsyncError(comms[0], &error));
    EXPECT_EQ(HCCL_E_TIMEOUT, error);
    const std::string kept = Message();
    EXPECT_NE(std::string::npos, kept.find("EI0002")) << kept;
    EXPECT_NE(std::string::npos, kept.find("did not come: rank 1")) << kept;
  }
  for (HcclComm comm : comms) EXPECT_OK(HcclCommDestroy(comm));  // HF-03
  EXPECT_EQ(0, aclrtDestroyStream(stream));
}

TEST(Hccl, HC_036_DestroyWhileItWaits) {
  Ranks ranks(2);
  std::vector<Buffer<float>> data;
  for (Rank& r : ranks) {
    r.Use();
    data.emplace_back(4);
  }
  ranks[0].Use();
  OK(HcclAllReduce(data[0].data(), data[0].data(), 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, ranks[0].comm,
                   ranks[0].stream));
  OK(HcclCommDestroy(std::exchange(ranks[0].comm, nullptr)));
  EXPECT_EQ(507057, aclrtSynchronizeStreamWithTimeout(ranks[0].stream, 60000));
  ranks[1].Use();
  const HcclResult late = HcclAllReduce(data[1].data(), data[1].data(), 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM,
                                        ranks[1].comm, ranks[1].stream);
  EXPECT_OK(late);
  // What rank 0 had published before it went is enough for rank 1, or it learns that rank 0 has gone.
  const int code = aclrtSynchronizeStreamWithTimeout(ranks[1].stream, 60000);
  EXPECT_TRUE(code == 507057) << code;
  EXPECT_NE(std::string::npos, Message().find("destroyed")) << Message();
}

// A page that whoever reads it waits for, until it is let go.
class HeldPage {
 public:
  explicit HeldPage(const void* within) {
    const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    page_ = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(within) + size - 1) / size * size);
    is_held_.store(true);
    readers_.store(0);
    struct sigaction action {};
    action.sa_sigaction = [](int, siginfo_t*, void*) {
      readers_.fetch_add(1);
      const timespec moment{0, 1000000};
      while (is_held_.load()) nanosleep(&moment, nullptr);
      mprotect(page_, static_cast<size_t>(sysconf(_SC_PAGESIZE)), PROT_READ | PROT_WRITE);
    };
    action.sa_flags = SA_SIGINFO;
    EXPECT_EQ(0, sigaction(SIGSEGV, &action, &before_));
    EXPECT_EQ(0, mprotect(page_, size, PROT_NONE));
  }
  ~HeldPage() {
    LetGo();
    EXPECT_EQ(0, mprotect(page_, static_cast<size_t>(sysconf(_SC_PAGESIZE)), PROT_READ | PROT_WRITE));
    EXPECT_EQ(0, sigaction(SIGSEGV, &before_, nullptr));
  }
  static void AwaitReader() {
    while (readers_.load() == 0) std::this_thread::yield();
  }
  static void LetGo() { is_held_.store(false); }

 private:
  static inline void* page_;
  static inline std::atomic<bool> is_held_;
  static inline std::atomic<int> readers_;
  struct sigaction before_ {};
};

TEST(Hccl, HC_037_DestroyWhileBytesMove) {
  Ranks ranks(2);
  constexpr size_t kCount = 1 << 16;
  std::vector<Buffer<float>> sent;
  std::vector<Buffer<float>> received;
  for (Rank& r : ranks) {
    r.Use();
    sent.emplace_back(kCount);
    received.emplace_back(kCount);
    sent.back().Fill([&](size_t) { return 1.0f + static_cast<float>(r.rank); });
  }
  {
    const HeldPage page(sent[1].data());
    for (Rank& r : ranks) {
      r.Use();
      OK(HcclAllReduce(sent[r.rank].data(), received[r.rank].data(), kCount, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM,
                       r.comm, r.stream));
    }
    HeldPage::AwaitReader();
    EXPECT_EQ(HCCL_E_AGAIN, HcclCommDestroy(ranks[0].comm));
    EXPECT_NE(std::string::npos, Message().find("comm is in use, please try again later")) << Message();
  }
  for (Rank& r : ranks) {
    r.Use();
    r.Wait();
    EXPECT_OK(HcclCommDestroy(std::exchange(r.comm, nullptr)));
    EXPECT_EQ(3.0f, received[r.rank][0]);
    EXPECT_EQ(3.0f, received[r.rank][kCount - 1]);
  }
}

TEST(Hccl, HF_12_TwoGroupsInOppositeOrders) {
  ASSERT_EQ(0, aclrtSetDevice(0));
  HcclComm comms[2][2];  // by group and rank
  aclrtStream streams[2] = {};
  for (int group = 0; group < 2; ++group) {
    HcclCommConfig config;
    HcclCommConfigInit(&config);
    config.hcclExecTimeOut = group == 0 ? 2 : 0;
    std::strcpy(config.hcclCommName, group == 0 ? "the first" : "the second");
    HcclRootInfo token;
    OK(HcclGetRootInfo(&token));
    OK(HcclGroupStart());
    for (uint32_t rank = 0; rank < 2; ++rank) {
      OK(aclrtSetDevice(static_cast<int>(rank)));
      OK(HcclCommInitRootInfoConfig(2, &token, rank, &config, &comms[group][rank]));
    }
    OK(HcclGroupEnd());
  }
  std::vector<Buffer<float>> data;
  for (const int rank : {1, 0}) {
    OK(aclrtSetDevice(rank));
    OK(aclrtCreateStream(&streams[rank]));
    data.emplace_back(4);
    for (const int turn : {0, 1}) {
      OK(HcclAllReduce(data.back().data(), data.back().data(), 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM,
                       comms[(turn + rank) % 2][rank], streams[rank]));
    }
  }
  OK(aclrtSetDevice(0));
  EXPECT_EQ(507048, aclrtSynchronizeStreamWithTimeout(streams[0], 60000));
  const std::string message = Message();
  for (const char* const part : {"AllReduce of group the first, seq 0, on rank 0 has waited 2 s",
                                 "rank 1 waits in AllReduce of group the second, seq 0, for this rank"}) {
    EXPECT_NE(std::string::npos, message.find(part)) << message;
  }
  // What is behind the operator that failed comes to its end: in the second group both ranks meet.
  for (int rank = 0; rank < 2; ++rank) {
    OK(aclrtSetDevice(rank));
    EXPECT_EQ(rank == 0 ? 0 : 507057, aclrtSynchronizeStreamWithTimeout(streams[rank], 60000)) << Message();
  }
  for (int rank = 0; rank < 2; ++rank) {
    OK(aclrtSetDevice(rank));
    for (auto& group : comms) EXPECT_OK(HcclCommDestroy(group[rank]));
    EXPECT_EQ(0, aclrtDestroyStreamForce(streams[rank]));
  }
}

TEST(Hccl, HF_15_ADeviceThatIsReset) {
  int32_t devices[] = {6, 7};
  HcclComm comms[2];
  for (const int device : devices) OK(aclrtSetDevice(device));
  OK(HcclCommInitAll(2, devices, comms));
  OK(aclrtResetDeviceForce(6));
  uint32_t rank = 0;
  EXPECT_EQ(HCCL_E_PARA, HcclGetRankId(comms[0], &rank));
  OK(aclrtSetDevice(7));
  aclrtStream stream = nullptr;
  OK(aclrtCreateStream(&stream));
  EXPECT_OK(HcclBarrier(comms[1], stream));
  EXPECT_EQ(507057, aclrtSynchronizeStreamWithTimeout(stream, 60000));
  EXPECT_NE(std::string::npos, Message().find("device 6 was reset")) << Message();
  EXPECT_EQ(0, aclrtDestroyStream(stream));
  EXPECT_OK(HcclCommDestroy(comms[1]));
}

TEST(Hccl, HC_074_HC_075_HC_076_SettingsSuspensionCallbacks) {
  for (const int32_t value : {1, 2, 0}) {
    EXPECT_OK(HcclSetConfig(HCCL_DETERMINISTIC, HcclConfigValue{value}));
    HcclConfigValue read{-1};
    EXPECT_OK(HcclGetConfig(HCCL_DETERMINISTIC, &read));
    EXPECT_EQ(value, read.value);
  }
  EXPECT_EQ(HCCL_E_PARA, HcclSetConfig(HCCL_DETERMINISTIC, HcclConfigValue{3}));
  static std::vector<int> phases;
  phases.clear();
  EXPECT_OK(HcclCommRegCommStateCallback(
      "test",
      [](HcclComm, HcclCommStatePhase phase, void*) -> HcclResult {
        phases.push_back(phase);
        return HCCL_SUCCESS;
      },
      nullptr));
  {
    Ranks ranks(2);
    std::vector<Buffer<float>> data;
    char name[128];
    EXPECT_OK(HcclGetCommName(ranks[0].comm, name));
    for (Rank& r : ranks) {
      r.Use();
      data.emplace_back(4);
      data.back().Fill([](size_t) { return 1.0f; });
      EXPECT_OK(HcclCommSuspend(r.comm));
      EXPECT_EQ(HCCL_E_SUSPENDING, HcclBroadcast(data.back().data(), 1, HCCL_DATA_TYPE_FP32, 0, r.comm, r.stream));
    }
    HcclCommStatus status = HCCL_COMM_STATUS_READY;
    EXPECT_OK(HcclCommGetStatus(name, &status));
    EXPECT_EQ(HCCL_COMM_STATUS_SUSPENDING, status);
    for (Rank& r : ranks) EXPECT_OK(HcclCommResume(r.comm));
    EXPECT_OK(HcclCommGetStatus(name, &status));
    EXPECT_EQ(HCCL_COMM_STATUS_READY, status);
    ranks.InLine([&](Rank& r) {
      EXPECT_OK(HcclAllReduce(data[r.rank].data(), data[r.rank].data(), 4, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm,
                              r.stream));
    });
    EXPECT_EQ(2.0f, data[1][3]);
  }
  EXPECT_EQ((std::vector<int>{2, 3, 2, 3, 0, 1, 0, 1}), phases);
  EXPECT_OK(HcclCommRegCommStateCallback("test", nullptr, nullptr));
}

TEST(Hccl, HC_007_HC_008_TextsAndCapabilities) {
  EXPECT_GT(HcclGetCommConfigCapability(), static_cast<uint32_t>(HCCL_COMM_CONFIG_BUFFER_NAME));
  std::set<std::string> texts;
  for (int code = 0; code <= 24; ++code) texts.insert(HcclGetErrorString(static_cast<HcclResult>(code)));
  EXPECT_EQ(25u, texts.size());
  for (const int code : {-1, 25, 999}) EXPECT_STREQ("unknown error", HcclGetErrorString(static_cast<HcclResult>(code)));
}

TEST(Hccl, HC_077_HC_078_MemoryOfCommunicators) {
  Ranks ranks(2);
  const HcclComm comm = ranks[0].comm;
  ranks[0].Use();
  void* range = nullptr;
  constexpr size_t kBytes = size_t{4} << 20;
  OK(aclrtReserveMemAddress(&range, kBytes, 0, nullptr, 0));
  EXPECT_EQ(HCCL_E_PARA, HcclCommSetMemoryRange(comm, range, kBytes, 1, 0));
  EXPECT_OK(HcclCommSetMemoryRange(comm, range, kBytes, 0, 0));
  EXPECT_EQ(HCCL_E_PARA, HcclCommSetMemoryRange(comm, static_cast<char*>(range) + 4096, 4096, 0, 0));
  void* const half = static_cast<char*>(range) + kBytes / 2;
  EXPECT_OK(HcclCommActivateCommMemory(comm, half, kBytes / 2, 0, range, 0));
  EXPECT_EQ(HCCL_E_PARA, HcclCommActivateCommMemory(comm, half, 4096, 0, range, 0));
  EXPECT_EQ(HCCL_E_PARA, HcclCommActivateCommMemory(comm, half, kBytes, 0, range, 0));
  EXPECT_EQ(HCCL_E_PARA, HcclCommUnsetMemoryRange(comm, range));
  EXPECT_EQ(HCCL_E_NOT_FOUND, HcclCommDeactivateCommMemory(comm, range));
  EXPECT_OK(HcclCommDeactivateCommMemory(comm, half));
  EXPECT_OK(HcclCommUnsetMemoryRange(comm, range));
  EXPECT_EQ(HCCL_E_NOT_FOUND, HcclCommUnsetMemoryRange(comm, range));
  EXPECT_EQ(0, aclrtReleaseMemAddress(range));
  std::vector<Buffer<int32_t>> data;
  for (Rank& r : ranks) {
    r.Use();
    data.emplace_back(1000);
    data.back()[7] = static_cast<int32_t>(r.rank) + 40;
  }
  void* window = nullptr;
  EXPECT_OK(HcclCommRegister(comm, data[0].data(), 4000, &window, 0));
  uint32_t peers[] = {1};
  EXPECT_OK(HcclCommExchangeMem(comm, window, peers, 1));
  EXPECT_OK(HcclCommDeregister(comm, window));
  EXPECT_EQ(HCCL_E_NOT_FOUND, HcclCommDeregister(comm, window));
  for (const bool fits : {true, false}) {
    ranks.InThreads([&](Rank& r) {
      HcclCommSymWindow symmetric = nullptr;
      const HcclResult result =
          HcclCommSymWinRegister(r.comm, data[r.rank].data(), fits ? 4000 : 1000 + 4 * r.rank, &symmetric, 1);
      EXPECT_EQ(fits ? HCCL_SUCCESS : HCCL_E_PARA, result) << Message();
      if (!fits) return;
      void* peer = nullptr;
      EXPECT_OK(HcclSymWinGetPeerPointer(symmetric, 28, 1 - r.rank, &peer));
      EXPECT_EQ(static_cast<int32_t>(1 - r.rank) + 40, *static_cast<int32_t*>(peer));
      HcclCommSymWindow found = nullptr;
      size_t offset = 0;
      EXPECT_OK(HcclCommSymWinGet(r.comm, &data[r.rank][5], 8, &found, &offset));
      EXPECT_EQ(symmetric, found);
      EXPECT_EQ(20u, offset);
      EXPECT_OK(HcclCommSymWinDeregister(symmetric));
    });
  }
  void* memory = nullptr;
  EXPECT_EQ(1, HcommMemAlloc(&memory, 0));
  EXPECT_EQ(2, HcommMemAlloc(nullptr, 8));
  EXPECT_EQ(0, HcommMemAlloc(&memory, 8));
  EXPECT_EQ(0, HcommMemFree(memory));
}

}  // namespace
