// SPDX-License-Identifier: Apache-2.0
//
// What programs pass when they make communicators. Tests carry the items of the specification.
#include "ranks.h"

namespace {

using namespace reprise::testing;

TEST(Hccl, HC_006_ConfigInitWritesHeadAndMarks) {
  static_assert(sizeof(HcclCommConfig) == 2248);
  HcclCommConfig config;
  std::memset(&config, 0x5A, sizeof config);
  HcclCommConfigInit(&config);
  uint64_t size = 0;
  uint32_t magic = 0;
  uint32_t version = 0;
  uint64_t rest = 1;
  std::memcpy(&size, config.reserved, 8);
  std::memcpy(&magic, config.reserved + 8, 4);
  std::memcpy(&version, config.reserved + 12, 4);
  std::memcpy(&rest, config.reserved + 16, 8);
  EXPECT_EQ(2248u, size);
  EXPECT_EQ(0xf0f0f0f0u, magic);
  EXPECT_EQ(11u, version);
  EXPECT_EQ(0u, rest);
  const uint32_t none = 0xffffffff;
  EXPECT_EQ(none, config.hcclBufferSize);
  EXPECT_EQ(none, config.hcclDeterministic);
  EXPECT_EQ(none, config.hcclRdmaTrafficClass);
  EXPECT_EQ(none, config.hcclRdmaServiceLevel);
  EXPECT_EQ(none, static_cast<uint32_t>(config.hcclExecTimeOut));
  EXPECT_EQ(none, config.hcclQos);
  EXPECT_EQ(none, config.hcclChannelSqDepth);
  EXPECT_EQ(16u, config.hcclSymWinMaxMemSizePerRank);
  EXPECT_EQ(0u, config.hcclOpExpansionMode);
  EXPECT_EQ(0u, config.hcclWorldRankID);
  EXPECT_EQ(0u, config.hcclJobID);
  EXPECT_EQ(0u, config.aclGraphZeroCopyEnable);
  for (const char* text : {config.hcclCommName, config.hcclUdi, config.hcclAlgo, config.hcclRetryEnable,
                           config.hcclRetryParams, config.hcclBufferName})
    EXPECT_STREQ("", text);
  HcclCommConfigInit(nullptr);  // is ignored
}

TEST(Hccl, HC_027_SeveralTokensForOneGroup) {
  constexpr uint32_t kRanks = 3;
  for (const uint32_t roots : {1u, 2u, kRanks}) {
    std::vector<HcclRootInfo> tokens(roots);
    EXPECT_EQ(0, aclrtSetDevice(0));
    for (HcclRootInfo& token : tokens) EXPECT_OK(HcclGetRootInfoScalable(&token));
    std::vector<int64_t> sums(kRanks);
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        EXPECT_EQ(0, aclrtSetDevice(static_cast<int>(rank)));
        HcclCommConfig config;
        HcclCommConfigInit(&config);
        HcclComm comm = nullptr;
        EXPECT_OK(HcclCommInitRootInfoScalable(kRanks, roots, tokens.data(), rank, 0, &config, &comm));
        uint32_t seen = 99;
        EXPECT_OK(HcclGetRankId(comm, &seen));
        EXPECT_EQ(rank, seen);
        aclrtStream stream = nullptr;
        EXPECT_EQ(0, aclrtCreateStream(&stream));
        {
          Buffer<int64_t> data(1);
          data[0] = rank + 1;
          EXPECT_OK(HcclAllReduce(data.data(), data.data(), 1, HCCL_DATA_TYPE_INT64, HCCL_REDUCE_SUM, comm, stream));
          EXPECT_EQ(0, aclrtSynchronizeStreamWithTimeout(stream, 60000)) << Message();
          sums[rank] = data[0];
        }
        EXPECT_OK(HcclCommDestroy(comm));
        EXPECT_EQ(0, aclrtDestroyStream(stream));
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::vector<int64_t>(kRanks, 6), sums) << roots;
  }
}

TEST(Hccl, HC_027_BadNumbersOfTokens) {
  EXPECT_EQ(0, aclrtSetDevice(0));
  HcclRootInfo token;
  OK(HcclGetRootInfoScalable(&token));
  HcclCommConfig config;
  HcclCommConfigInit(&config);
  HcclComm comm = nullptr;
  for (const auto& [roots, extra] : {std::pair{0u, 0u}, std::pair{3u, 0u}, std::pair{1u, 1u}}) {
    EXPECT_EQ(HCCL_E_PARA, HcclCommInitRootInfoScalable(2, roots, &token, 0, extra, &config, &comm));
    EXPECT_NE(std::string::npos, Message().find(extra != 0 ? "nExtRoot" : "nRoot"));
  }
  EXPECT_EQ(nullptr, comm);
  OK(HcclCommInitRootInfoScalable(1, 1, &token, 0, 0, &config, &comm));  // the token was not used up
  OK(HcclCommDestroy(comm));
}

}  // namespace
