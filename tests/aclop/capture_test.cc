// SPDX-License-Identifier: Apache-2.0
//
// Calls by type on a stream that is captured: what is recorded stands on its own.
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <thread>

#include "../unit/scale.h"
#include "harness.h"

namespace aclop_test {
namespace {

using CaptureTest = AclopTest;

TEST_F(CaptureTest, ReplaysNeedNoneOfTheObjects) {
  const Tensor x1(ACL_FLOAT16, {64, 32}, Values(64 * 32, 0.5));
  const Tensor x2(ACL_FLOAT16, {32, 48}, Values(32 * 48, 2));
  const Tensor bias(ACL_FLOAT16, {48}, Values(48, 1));
  const Tensor y(ACL_FLOAT16, {64, 48});
  const Tensor z(ACL_FLOAT16, {48, 64});
  const Tensor total(ACL_FLOAT16, {});
  ASSERT_EQ(0, aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  {
    Attr attr;
    attr.Bool("transpose_x1", false);
    ASSERT_EQ(0, Launch("MatMulV2", {&x1, &x2, &bias}, y, &attr)) << RecentMessage();
    const auto perm = Tensor::Constant(ACL_INT64, {2}, {1, 0});
    ASSERT_EQ(0, Launch("Transpose", {&y, perm.get()}, z)) << RecentMessage();
    const auto axes = Tensor::Constant(ACL_INT32, {2}, {0, 1});
    ASSERT_EQ(0, Launch("ReduceSum", {&z, axes.get()}, total)) << RecentMessage();
  }
  aclmdlRI model = nullptr;
  ASSERT_EQ(0, aclmdlRICaptureEnd(stream, &model)) << RecentMessage();
  aclrtStream other = nullptr;
  ASSERT_EQ(0, aclrtCreateStream(&other));
  for (const double value : {0.5, 1.0, -1.0}) {
    const std::vector<char> bytes = Encode(ACL_FLOAT16, Values(64 * 32, value / 32));
    std::memcpy(x1.memory(), bytes.data(), bytes.size());
    ASSERT_EQ(0, aclmdlRIExecuteAsync(model, other)) << RecentMessage();
    ASSERT_EQ(0, aclrtSynchronizeStream(other)) << RecentMessage();
    const double product = 2 * value + 1;
    EXPECT_EQ(Values(48 * 64, product), z.Read());
    EXPECT_EQ(Values{product * 64 * 48}, total.Read());
  }
  ASSERT_EQ(0, aclmdlRIDestroy(model));
  ASSERT_EQ(0, aclrtDestroyStream(other));
}

TEST_F(CaptureTest, ARefusedCallLeavesTheCaptureAsItWas) {
  const Tensor x(ACL_FLOAT, {2}, {1, 2});
  const Tensor y(ACL_FLOAT, {2}, {0, 0});
  const Tensor wrong(ACL_FLOAT, {3});
  ASSERT_EQ(0, aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  ASSERT_EQ(0, Launch("Neg", {&x}, y)) << RecentMessage();
  EXPECT_EQ(100022, Launch("Neg", {&x}, wrong));
  EXPECT_EQ(100024, Launch("Neck", {&x}, y));
  EXPECT_EQ(100021, Launch("Neg", {}, y));
  ASSERT_EQ(0, Launch("Add", {&y, &y}, y)) << RecentMessage();
  aclmdlRI model = nullptr;
  ASSERT_EQ(0, aclmdlRICaptureEnd(stream, &model)) << RecentMessage();
  for (int replay = 0; replay < 2; ++replay) {
    ASSERT_EQ(0, aclmdlRIExecuteAsync(model, stream));
    ASSERT_EQ(0, aclrtSynchronizeStream(stream));
    EXPECT_EQ((Values{-2, -4}), y.Read());
  }
  ASSERT_EQ(0, aclmdlRIDestroy(model));
}

TEST_F(CaptureTest, DumpsShowTheTypes) {
  const Tensor x(ACL_FLOAT, {4}, Values(4, 2));
  const Tensor y(ACL_FLOAT, {4});
  ASSERT_EQ(0, aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  ASSERT_EQ(0, Launch("RealDiv", {&x, &x}, y)) << RecentMessage();
  aclmdlRI model = nullptr;
  ASSERT_EQ(0, aclmdlRICaptureEnd(stream, &model));
  const std::string path = testing::TempDir() + "aclop_capture_" + std::to_string(getpid()) + ".json";
  ASSERT_EQ(0, aclmdlRIDebugJsonPrint(model, path.c_str(), 0)) << RecentMessage();
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(text, testing::HasSubstr("\"RealDiv\""));
  EXPECT_EQ(0, unlink(path.c_str()));
  ASSERT_EQ(0, aclmdlRIDestroy(model));
}

// Workspaces and intermediate results of a graph that is thrown away go with it; the leak checker says if not.
TEST_F(CaptureTest, AnAbandonedCaptureFreesItsMemory) {
  const Tensor x1(ACL_FLOAT16, {16, 16}, Values(256, 1));
  const Tensor bias(ACL_FLOAT16, {16}, Values(16, 1));
  const Tensor y(ACL_FLOAT16, {16, 16});
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(0, aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    ASSERT_EQ(0, Launch("MatMul", {&x1, &x1, &bias}, y)) << RecentMessage();
    aclmdlRI model = nullptr;
    ASSERT_EQ(0, aclmdlRICaptureEnd(stream, &model));
    ASSERT_EQ(0, aclmdlRIDestroy(model));
  }
}

TEST_F(CaptureTest, ThreadsCallAtTheSameTime) {
  const int loops = reprise::testing::Loops(200, 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ASSERT_EQ(0, aclrtSetDevice(0));
      aclrtStream own = nullptr;
      ASSERT_EQ(0, aclrtCreateStream(&own));
      {
        const Tensor x(ACL_FLOAT, {8, 8}, Values(64, t));
        const Tensor y(ACL_FLOAT, {8, 8});
        const Tensor bias(ACL_FLOAT, {8}, Values(8, 1));
        Attr attr;
        attr.Bool("transpose_x2", true);
        Arrays in({&x, &x, &bias});
        Arrays out({&y});
        for (int i = 0; i < loops; ++i) {
          ASSERT_EQ(0, aclopCompileAndExecute("MatMulV2", 3, in.descs.data(), in.buffers.data(), 1, out.descs.data(),
                                              out.buffers.data(), attr.get(), 0, 0, nullptr, own))
              << RecentMessage();
          // A refusal in between: "value" is not set.
          ASSERT_EQ(100023, aclopExecute("Adds", 1, out.descs.data(), out.buffers.data(), 1, out.descs.data(),
                                         out.buffers.data(), nullptr, own));
        }
        ASSERT_EQ(0, aclrtSynchronizeStream(own));
        EXPECT_EQ(Values(64, 8.0 * t * t + 1), y.Read());
      }
      ASSERT_EQ(0, aclrtDestroyStream(own));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace aclop_test
