// SPDX-License-Identifier: Apache-2.0
#include "fixture.h"

namespace reprise::testing {
namespace {

class Timeouts : public Runtime {
 protected:
  void TearDown() override {
    EXPECT_ACL(0, aclrtSetOpWaitTimeout(0));
    EXPECT_ACL(0, aclrtSetOpExecuteTimeOut(0));
    Runtime::TearDown();
  }
};

TEST_F(Timeouts, ExecutionLimitIsAMultipleOfTheInterval) {
  uint64_t interval = 0;
  EXPECT_ACL(0, aclrtGetOpTimeOutInterval(&interval));
  ASSERT_GT(interval, 0U);
  uint32_t ms = 0;
  EXPECT_ACL(0, aclrtGetOpExecuteTimeout(&ms));
  EXPECT_EQ(ms, interval * 254 / 1000);
  EXPECT_EQ((ms + 999) / 1000, 1091U);
  uint64_t actual = 0;
  EXPECT_ACL(0, aclrtSetOpExecuteTimeOutV2(1, &actual));
  EXPECT_EQ(actual, interval);
  EXPECT_ACL(0, aclrtSetOpExecuteTimeOutV2(interval, &actual));
  EXPECT_EQ(actual, interval);
  EXPECT_ACL(0, aclrtSetOpExecuteTimeOutV2(interval + 1, &actual));
  EXPECT_EQ(actual, 2 * interval);
  EXPECT_ACL(0, aclrtGetOpExecuteTimeout(&ms));
  EXPECT_EQ(ms, 2 * interval / 1000);
  EXPECT_ACL(0, aclrtSetOpExecuteTimeOutV2(UINT64_MAX, &actual));
  EXPECT_EQ(actual, 254 * interval);
  EXPECT_ACL(0, aclrtSetOpExecuteTimeOut(10));
  EXPECT_ACL(0, aclrtGetOpExecuteTimeout(&ms));
  EXPECT_EQ(ms, 3 * interval / 1000);
  EXPECT_ACL(0, aclrtSetOpExecuteTimeOutWithMs(10));
  EXPECT_ACL(0, aclrtGetOpExecuteTimeout(&ms));
  EXPECT_EQ(ms, interval / 1000);
  EXPECT_ACL(0, aclrtSetOpExecuteTimeOut(0));
  EXPECT_ACL(0, aclrtGetOpExecuteTimeout(&ms));
  EXPECT_EQ(ms, 254 * interval / 1000);
}

TEST_F(Timeouts, EventWaitsTakeTheDefault) {
  EXPECT_ACL(0, aclrtSetOpWaitTimeout(1));
  const aclrtStream stream = NewStream();
  const aclrtStream other = NewStream();
  Gate gate;
  gate.Block(other);
  aclrtEvent event = nullptr;
  MUST(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
  MUST(aclrtRecordEvent(event, other));
  MUST(aclrtStreamWaitEvent(stream, event));
  const int result = aclrtSynchronizeStreamWithTimeout(stream, kPatience);
  EXPECT_NE(result, 0);
  EXPECT_NE(result, 507046) << "the wait itself must end after a second";
  EXPECT_EQ(result / 1000, 507);
  gate.Open();
  EXPECT_ACL(0, aclrtSynchronizeStream(other));
}

class Overflow : public Runtime {
 protected:
  void TearDown() override {
    EXPECT_ACL(0, aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_INFNAN));
    Runtime::TearDown();
  }
};

TEST_F(Overflow, StatusIsCopiedAndCleared) {
  const aclrtStream stream = NewStream();
  auto* status = static_cast<unsigned char*>(NewMemory(128));
  std::memset(status, 0xEE, 128);
  EXPECT_ACL(0, aclrtResetOverflowStatus(stream));
  EXPECT_ACL(0, aclrtGetOverflowStatus(status, 64, stream));
  EXPECT_ACL(0, aclrtSynchronizeStream(stream));
  EXPECT_EQ(status[0], 0);
  EXPECT_EQ(status[63], 0);
  EXPECT_EQ(status[64], 0xEE);
  unsigned char host[64];
  EXPECT_ACL(107000, aclrtGetOverflowStatus(status, 32, stream));
  EXPECT_ACL(107000, aclrtGetOverflowStatus(status + 100, 64, stream));
  EXPECT_ACL(107000, aclrtGetOverflowStatus(host, 64, stream));
}

TEST_F(Overflow, SaturationModeOpensTheOlderCalls) {
  aclrtFloatOverflowMode mode = ACL_RT_OVERFLOW_MODE_UNDEF;
  EXPECT_ACL(0, aclrtGetDeviceSatMode(&mode));
  EXPECT_EQ(mode, ACL_RT_OVERFLOW_MODE_INFNAN);
  void* address = nullptr;
  auto* out = static_cast<unsigned char*>(NewMemory(64));
  EXPECT_ACL(207000, aclrtCtxGetFloatOverflowAddr(&address));
  EXPECT_ACL(207000, aclrtGetFloatOverflowStatus(out, 64, nullptr));
  EXPECT_ACL(207000, aclrtResetFloatOverflowStatus(nullptr));
  EXPECT_ACL(207000, aclrtNpuGetFloatOverFlowStatus(out, 64, 0, nullptr));
  EXPECT_ACL(207000, aclrtNpuClearFloatOverFlowStatus(0, nullptr));
  EXPECT_ACL(107000, aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_UNDEF));
  EXPECT_ACL(0, aclrtSetDeviceSatMode(ACL_RT_OVERFLOW_MODE_SATURATION));
  EXPECT_ACL(0, aclrtGetDeviceSatMode(&mode));
  EXPECT_EQ(mode, ACL_RT_OVERFLOW_MODE_SATURATION);
  EXPECT_ACL(0, aclrtCtxGetFloatOverflowAddr(&address));
  ASSERT_NE(address, nullptr);
  // A kernel would raise the flag; here the test does.
  std::memset(address, 1, 64);
  EXPECT_ACL(0, aclrtGetFloatOverflowStatus(out, 64, nullptr));
  EXPECT_ACL(0, aclrtSynchronizeStream(nullptr));
  EXPECT_EQ(out[0], 1);
  EXPECT_ACL(0, aclrtNpuClearFloatOverFlowStatus(0, nullptr));
  EXPECT_ACL(0, aclrtNpuGetFloatOverFlowStatus(out, 64, 0, nullptr));
  EXPECT_ACL(0, aclrtSynchronizeStream(nullptr));
  EXPECT_EQ(out[0], 0);
  std::memset(address, 1, 64);
  EXPECT_ACL(0, aclrtResetFloatOverflowStatus(nullptr));
  EXPECT_ACL(0, aclrtSynchronizeStream(nullptr));
  EXPECT_EQ(*static_cast<unsigned char*>(address), 0);
  EXPECT_ACL(107000, aclrtNpuGetFloatOverFlowStatus(out, 64, 1, nullptr));
  EXPECT_ACL(107000, aclrtNpuClearFloatOverFlowStatus(1, nullptr));
}

TEST_F(Overflow, StatusOfAContextEndsWithIt) {
  aclrtContext context = nullptr;
  MUST(aclrtCreateContext(&context, 0));
  const aclrtStream stream = NewStream();
  auto* out = static_cast<unsigned char*>(NewMemory(64));
  Gate gate;
  gate.Block(stream);
  EXPECT_ACL(0, aclrtGetOverflowStatus(out, 64, stream));
  gate.Open();
  EXPECT_ACL(0, aclrtDestroyContext(context));
  MUST(aclrtSetDevice(0));
  EXPECT_ACL(0, aclrtResetDevice(0));
}

TEST_F(Overflow, SwitchIsOnOrOff) {
  const aclrtStream stream = NewStream();
  uint32_t flag = 7;
  EXPECT_ACL(0, aclrtGetStreamOverflowSwitch(stream, &flag));
  EXPECT_EQ(flag, 0U);
  EXPECT_ACL(0, aclrtSetStreamOverflowSwitch(stream, 1));
  EXPECT_ACL(0, aclrtGetStreamOverflowSwitch(stream, &flag));
  EXPECT_EQ(flag, 1U);
  EXPECT_ACL(107000, aclrtSetStreamOverflowSwitch(stream, 2));
}

}  // namespace
}  // namespace reprise::testing
