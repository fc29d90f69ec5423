// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

#include "acl/acl.h"

extern "C" {
union HcclConfigValue {
  int32_t value;
};
int HcclSetConfig(int config, HcclConfigValue value);
int HcclGetConfig(int config, HcclConfigValue* value);
const char* HcclGetErrorString(int code);
uint32_t HcclGetCommConfigCapability();
int HcclCommDestroy(void* comm);
int HcclGetRootInfo(void* info);
int HcclAllReduce(void* send, void* receive, uint64_t count, int type, int op, void* comm, aclrtStream stream);
}

namespace {

std::string Message() {
  const char* text = aclGetRecentErrMsg();
  return text != nullptr ? text : "";
}

TEST(Hccl, KeepsWhetherItIsDeterministic) {
  for (const int32_t value : {1, 2, 0}) {
    EXPECT_EQ(HcclSetConfig(0, {value}), 0);
    HcclConfigValue read{-1};
    EXPECT_EQ(HcclGetConfig(0, &read), 0);
    EXPECT_EQ(read.value, value);
  }
  for (const int32_t value : {-1, 3}) EXPECT_EQ(HcclSetConfig(0, {value}), 1);
  EXPECT_NE(Message().find("configValue of HCCL_DETERMINISTIC is 3, must be 0 to 2"), std::string::npos);
  EXPECT_EQ(HcclSetConfig(1, {7}), 0);  // another configuration: without effect
  EXPECT_EQ(HcclGetConfig(0, nullptr), 2);
}

TEST(Hccl, HasATextForEachNumber) {
  std::set<std::string> texts;
  for (int code = 0; code <= 24; ++code) texts.insert(HcclGetErrorString(code));
  EXPECT_EQ(texts.size(), 25u);
  for (const int code : {-1, 25, 999}) EXPECT_STREQ(HcclGetErrorString(code), HcclGetErrorString(1042));
  EXPECT_EQ(texts.count(HcclGetErrorString(-1)), 0u);
}

TEST(Hccl, RefusesCollectives) {
  EXPECT_EQ(HcclGetCommConfigCapability(), 12u);
  EXPECT_EQ(HcclCommDestroy(nullptr), 0);
  char info[4108];
  EXPECT_EQ(HcclGetRootInfo(info), 5);
  const std::string message = Message();
  EXPECT_NE(message.find("HcclGetRootInfo failed: not supported here: there are no collectives on this device yet"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("gloo"), std::string::npos);
  EXPECT_EQ(HcclAllReduce(nullptr, nullptr, 0, 4, 0, nullptr, nullptr), 5);
  EXPECT_NE(Message().find("HcclAllReduce"), std::string::npos);
}

}  // namespace
