// SPDX-License-Identifier: Apache-2.0
//
// Two threads that execute one model on one stream: each execution has its turn, none waits for one queued behind it.
#include <acl/acl.h>
#include <gtest/gtest.h>

#include <thread>

namespace {

constexpr int kExecutions = 5000;

TEST(ExecuteRace, ThreadsShareAModelAndAStream) {
  ASSERT_EQ(aclrtSetDevice(0), 0);
  aclrtContext context = nullptr;
  ASSERT_EQ(aclrtGetCurrentContext(&context), 0);
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), 0);
  void* cell = nullptr;
  ASSERT_EQ(aclrtMalloc(&cell, 64, ACL_MEM_MALLOC_HUGE_FIRST), 0);
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL), 0);
  ASSERT_EQ(aclrtMemsetAsync(cell, 64, 1, 64, stream), 0);
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0);
  const auto execute = [&] {
    EXPECT_EQ(aclrtSetCurrentContext(context), 0);
    for (int i = 0; i < kExecutions; ++i) ASSERT_EQ(aclmdlRIExecuteAsync(model, stream), 0);
  };
  std::thread other(execute);
  execute();
  other.join();
  ASSERT_EQ(aclrtSynchronizeStreamWithTimeout(stream, 60'000), 0) << "an execution waits for one queued behind it";
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
  EXPECT_EQ(aclrtFree(cell), 0);
  EXPECT_EQ(aclrtDestroyStream(stream), 0);
  EXPECT_EQ(aclrtResetDevice(0), 0);
}

}  // namespace
