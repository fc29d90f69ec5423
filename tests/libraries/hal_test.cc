// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "acl/acl.h"

extern "C" {
int halGetAPIVersion(int* version);
int halGetDeviceInfo(uint32_t device, int32_t module, int32_t info, int64_t* value);
}

namespace {

std::string Message() {
  const char* text = aclGetRecentErrMsg();
  return text != nullptr ? text : "";
}

TEST(Hal, TellsItsVersion) {
  int version = 0;
  EXPECT_EQ(halGetAPIVersion(&version), 0);
  EXPECT_GT(version, 0);
  EXPECT_EQ(halGetAPIVersion(nullptr), 100000);
  EXPECT_NE(Message().find("halAPIVersion"), std::string::npos);
}

TEST(Hal, HasNoCounterThatTheDeviceShares) {
  int64_t value = -1;
  EXPECT_EQ(halGetDeviceInfo(0, 0, 24, &value), 0);
  EXPECT_EQ(value, 0);
}

TEST(Hal, RefusesWhatItDoesNotKnow) {
  int64_t value = -1;
  EXPECT_EQ(halGetDeviceInfo(0, 0, 23, &value), 207000);
  EXPECT_NE(Message().find("moduleType 0 has no infoType 23 here"), std::string::npos);
  EXPECT_EQ(halGetDeviceInfo(0, 7, 24, &value), 207000);
  EXPECT_EQ(halGetDeviceInfo(60000, 0, 24, &value), 107001);
  EXPECT_EQ(halGetDeviceInfo(0, 0, 24, nullptr), 100000);
  EXPECT_EQ(value, -1);
}

}  // namespace
