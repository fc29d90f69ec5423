// SPDX-License-Identifier: Apache-2.0
#include <reprise/kernel.h>

#include <mutex>

#include "fixture.h"

namespace reprise::testing {
namespace {

int32_t FailingKernel(const RepriseKernelContext*, const void* args, size_t bytes) {
  int32_t code = 0;
  if (bytes >= sizeof code) std::memcpy(&code, args, sizeof code);
  return code;
}

constexpr RepriseKernelDesc kKernels[] = {{"fail", 0, FailingKernel, REPRISE_KERNEL_VECTOR, 0, 1, nullptr, 0}};
constexpr RepriseKernelTable kTable = {REPRISE_KERNEL_ABI_VERSION, 1, kKernels};

struct Seen {
  uint32_t task = 0, stream = 0, thread = 0, device = 0, code = 0;
  aclError args_result = 0, function_result = 0;
  void* args = nullptr;
  uint32_t args_bytes = 0;
  int32_t first_word = 0;
  aclrtFuncHandle function = nullptr;
  std::thread::id on;
};

std::mutex g_mutex;
std::vector<Seen> g_seen;

Seen Read(aclrtExceptionInfo* info) {
  Seen seen;
  seen.task = aclrtGetTaskIdFromExceptionInfo(info);
  seen.stream = aclrtGetStreamIdFromExceptionInfo(info);
  seen.thread = aclrtGetThreadIdFromExceptionInfo(info);
  seen.device = aclrtGetDeviceIdFromExceptionInfo(info);
  seen.code = aclrtGetErrorCodeFromExceptionInfo(info);
  seen.args_result = aclrtGetArgsFromExceptionInfo(info, &seen.args, &seen.args_bytes);
  if (seen.args_result == 0 && seen.args_bytes >= 4) std::memcpy(&seen.first_word, seen.args, 4);
  seen.function_result = aclrtGetFuncHandleFromExceptionInfo(info, &seen.function);
  seen.on = std::this_thread::get_id();
  return seen;
}

void OnFailure(aclrtExceptionInfo* info) {
  const Seen seen = Read(info);
  std::lock_guard lock(g_mutex);
  g_seen.push_back(seen);
}
void OnFailureLegacy(aclrtExceptionInfo* info) { OnFailure(info); }
void OnBinaryFailure(aclrtExceptionInfo* info, void* user) {
  OnFailure(info);
  ++*static_cast<int*>(user);
}

std::vector<Seen> TakeSeen() {
  std::lock_guard lock(g_mutex);
  return std::exchange(g_seen, {});
}

class Errors : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    static const int32_t registered = repriseRegisterKernels("error_test", &kTable);
    ASSERT_EQ(registered, 0);
    MUST(aclrtBinaryLoadFromFile("error_test", nullptr, &binary_));
    MUST(aclrtBinaryGetFunction(binary_, "fail", &function_));
    TakeSeen();
    (void)aclrtGetLastError(ACL_RT_THREAD_LEVEL);
  }
  void TearDown() override {
    EXPECT_ACL(0, aclrtSetExceptionInfoCallback(nullptr));
    EXPECT_ACL(0, aclrtExceptionInfoCallbackUnregister(OnFailure));
    EXPECT_ACL(0, aclrtBinaryUnLoad(binary_));
    Runtime::TearDown();
  }
  void Fail(aclrtStream stream, int32_t code) {
    int64_t args = code;
    EXPECT_EQ(0, aclrtLaunchKernelWithHostArgs(function_, 1, stream, nullptr, &args, sizeof args, nullptr, 0));
  }
  aclrtBinHandle binary_ = nullptr;
  aclrtFuncHandle function_ = nullptr;
};

TEST_F(Errors, LastErrorIsOfTheThread) {
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 0);
  EXPECT_ACL(107001, aclrtSetDevice(77));
  std::thread([] { EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 0); }).join();
  EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 107001);
  EXPECT_EQ(aclrtPeekAtLastError(ACL_RT_THREAD_LEVEL), 107001);
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 107001);
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 0);
  EXPECT_ACL(100000, aclrtPeekAtLastError(static_cast<aclrtLastErrLevel>(1)));
  EXPECT_ACL(100000, aclrtGetLastError(static_cast<aclrtLastErrLevel>(1)));
}

TEST_F(Errors, EveryFailureIsToldOnceToEveryCallback) {
  EXPECT_ACL(0, aclrtExceptionInfoCallbackRegister(OnFailure));
  EXPECT_ACL(0, aclrtExceptionInfoCallbackRegister(OnFailure));
  EXPECT_ACL(0, aclrtSetExceptionInfoCallback(OnFailureLegacy));
  const aclrtStream stream = NewStream();
  int32_t id = -1;
  EXPECT_ACL(0, aclrtStreamGetId(stream, &id));
  Fail(stream, 507015);
  uint32_t task = 0;
  EXPECT_ACL(0, aclrtGetThreadLastTaskId(&task));
  EXPECT_ACL(507015, aclrtSynchronizeStream(stream));
  const std::vector<Seen> seen = TakeSeen();
  ASSERT_EQ(seen.size(), 2U) << "one for the list, one for the legacy slot";
  for (const Seen& one : seen) {
    EXPECT_EQ(one.code, 507015U);
    EXPECT_EQ(one.stream, static_cast<uint32_t>(id));
    EXPECT_EQ(one.task, task);
    EXPECT_EQ(one.device, 0U);
    EXPECT_NE(one.on, std::this_thread::get_id());
  }
  EXPECT_ACL(0, aclrtSynchronizeStream(stream)) << "mode continue reports a failure once";
  EXPECT_ACL(0, aclrtExceptionInfoCallbackUnregister(OnFailure));
  EXPECT_ACL(0, aclrtExceptionInfoCallbackUnregister(OnFailure));
  EXPECT_ACL(0, aclrtSetExceptionInfoCallback(nullptr));
  Fail(stream, 507018);
  aclrtStreamStatus status;
  while (aclrtStreamQuery(stream, &status) == 0 && status == ACL_STREAM_STATUS_NOT_READY) std::this_thread::yield();
  EXPECT_EQ(TakeSeen().size(), 0U);
  EXPECT_EQ(aclrtGetLastError(ACL_RT_THREAD_LEVEL), 507018);
}

TEST_F(Errors, FailedKernelShowsArgumentsAndFunction) {
  EXPECT_ACL(0, aclrtExceptionInfoCallbackRegister(OnFailure));
  int told = 0;
  EXPECT_ACL(0, aclrtBinarySetExceptionCallback(binary_, OnBinaryFailure, &told));
  Fail(nullptr, 507035);
  EXPECT_ACL(507035, aclrtSynchronizeStream(nullptr));
  const std::vector<Seen> seen = TakeSeen();
  ASSERT_GE(seen.size(), 1U);
  if (seen[0].function_result != 0) GTEST_SKIP() << "kernel tasks do not call NoteFailingKernel yet";
  EXPECT_EQ(seen.size(), 2U);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(seen[0].function, function_);
  EXPECT_EQ(seen[0].args_result, 0);
  EXPECT_EQ(seen[0].args_bytes, 8U);
  EXPECT_EQ(seen[0].first_word, 507035);
}

TEST_F(Errors, StopModeKeepsTheError) {
  const aclrtStream stream = NewStream();
  EXPECT_ACL(0, aclrtSetStreamFailureMode(stream, ACL_STOP_ON_FAILURE));
  std::atomic<int> runs{0};
  const auto count = [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); };
  Gate gate;
  gate.Block(stream);
  Fail(stream, 507015);
  EXPECT_ACL(0, aclrtLaunchHostFunc(stream, count, &runs));
  gate.Open();
  EXPECT_ACL(507015, aclrtSynchronizeStream(stream));
  EXPECT_EQ(runs, 0);
  EXPECT_ACL(507015, aclrtSynchronizeStream(stream));
  EXPECT_ACL(507015, aclrtLaunchHostFunc(stream, count, &runs));
  EXPECT_EQ(runs, 0);
}

TEST_F(Errors, GettersCopeWithNothing) {
  EXPECT_EQ(aclrtGetTaskIdFromExceptionInfo(nullptr), 0xFFFFFFFFU);
  EXPECT_EQ(aclrtGetStreamIdFromExceptionInfo(nullptr), 0xFFFFFFFFU);
  EXPECT_EQ(aclrtGetThreadIdFromExceptionInfo(nullptr), 0xFFFFFFFFU);
  EXPECT_EQ(aclrtGetDeviceIdFromExceptionInfo(nullptr), 0xFFFFFFFFU);
  EXPECT_EQ(aclrtGetErrorCodeFromExceptionInfo(nullptr), 0xFFFFFFFFU);
  void* args = nullptr;
  uint32_t bytes = 0;
  aclrtFuncHandle function = nullptr;
  EXPECT_EQ(aclrtGetArgsFromExceptionInfo(nullptr, &args, &bytes), -1);
  EXPECT_EQ(aclrtGetFuncHandleFromExceptionInfo(nullptr, &function), -1);
  EXPECT_ACL(100000, aclrtGetArgsFromExceptionInfo(nullptr, nullptr, &bytes));
  EXPECT_ACL(100000, aclrtGetFuncHandleFromExceptionInfo(nullptr, nullptr));
}

TEST_F(Errors, DeviceHasNoFaults) {
  aclrtMemUceInfo faults[2];
  size_t count = 7;
  EXPECT_ACL(0, aclrtGetMemUceInfo(0, faults, 2, &count));
  EXPECT_EQ(count, 0U);
  EXPECT_ACL(0, aclrtMemUceRepair(0, faults, 2));
  aclrtErrorInfo info;
  std::memset(&info, 0xFF, sizeof info);
  EXPECT_ACL(0, aclrtGetErrorVerbose(0, &info));
  EXPECT_EQ(info.errorType, ACL_RT_NO_ERROR);
  EXPECT_EQ(info.hasDetail, 0);
  EXPECT_ACL(0, aclrtRepairError(0, &info));
}

}  // namespace
}  // namespace reprise::testing
