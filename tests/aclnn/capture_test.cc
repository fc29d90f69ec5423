// SPDX-License-Identifier: Apache-2.0
//
// Operators on a capturing stream: phase two records, replays run what was recorded.
#include <memory>

#include "aclnnop/aclnn_add.h"
#include "aclnnop/aclnn_mm.h"
#include "aclnnop/aclnn_mul.h"
#include "aclnnop/aclnn_relu.h"
#include "aclnnop/aclnn_softmax.h"
#include "harness.h"

namespace aclnn_test {
namespace {

class CaptureTest : public RecordingTest {};

TEST_F(CaptureTest, NothingRunsBeforeTheReplay) {
  const TestScalar alpha(ACL_FLOAT, {1});
  TestTensor x({8}, ACL_FLOAT);
  TestTensor one({1}, ACL_FLOAT);
  x.Write(std::vector<Value>(8));
  one.Write({{1}});
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0) << RecentMessage();
  for (int i = 0; i < 3; ++i) RECORD(aclnnInplaceAdd, x.get(), one.get(), alpha.get());
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  ExpectValues(x.Read(), std::vector<Value>(8));
  for (int replay = 1; replay <= 4; ++replay) {
    Replay(model);
    ExpectValues(x.Read(), std::vector<Value>(8, Value{3.0L * replay}));
  }
  EXPECT_EQ(aclmdlRIDestroy(model), 0) << RecentMessage();
}

TEST_F(CaptureTest, ObjectsMayGoAwayRightAfterThePhases) {
  TestTensor a({4, 6}, ACL_FLOAT);
  TestTensor out({4, 6}, ACL_FLOAT);
  a.FillSmall(random);
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
  {
    const auto view = [](const TestTensor& t) {
      return aclCreateTensor(t.shape().data(), t.shape().size(), ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0,
                             t.storage());
    };
    aclTensor* x = view(a);
    aclTensor* y = view(out);
    const TestScalar two(ACL_FLOAT, {2});
    RECORD(aclnnMuls, x, two.get(), y);
    EXPECT_EQ(aclDestroyTensor(x), 0);
    EXPECT_EQ(aclDestroyTensor(y), 0);
  }
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  Replay(model);
  std::vector<Value> expected = a.Read();
  for (Value& value : expected) value.re *= 2;
  ExpectValues(out.Read(), expected);
  // New contents of the same memory are seen by the next replay.
  a.FillSmall(random);
  Replay(model);
  expected = a.Read();
  for (Value& value : expected) value.re *= 2;
  ExpectValues(out.Read(), expected);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

TEST_F(CaptureTest, ReplayEqualsEagerBitForBit) {
  const int64_t batch = 33;
  const int64_t width = 129;
  TestTensor x({batch, width}, ACL_FLOAT);
  TestTensor w({width, width}, ACL_FLOAT);
  TestTensor bias({width}, ACL_FLOAT);
  for (TestTensor* t : {&x, &w, &bias}) {
    std::vector<Value> values(static_cast<size_t>(t->count()));
    for (Value& value : values) value.re = static_cast<float>(static_cast<int>(random() % 20001) - 10000) / 7777.0F;
    t->Write(values);
  }
  const TestScalar alpha(ACL_FLOAT, {0.3L});
  TestTensor h({batch, width}, ACL_FLOAT);
  TestTensor out({batch, width}, ACL_FLOAT);
  const auto network = [&] {
    RECORD(aclnnMm, x.get(), w.get(), h.get(), 0);
    RECORD(aclnnInplaceAdd, h.get(), bias.get(), alpha.get());
    RECORD(aclnnInplaceRelu, h.get());
    RECORD(aclnnMm, h.get(), w.get(), out.get(), 0);
    RECORD(aclnnSoftmax, out.get(), -1, out.get());
  };
  network();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  const std::vector<char> eager = out.ReadStorage();
  out.Write(std::vector<Value>(static_cast<size_t>(out.count())));

  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL), 0);
  // Global mode forbids allocation in between: the workspaces of the eager run are large enough.
  const std::vector<std::unique_ptr<Memory>> kept = std::move(workspaces);
  size_t next = 0;
  const auto record = [&](const PhaseOne& one, PhaseTwo two) {
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    ASSERT_EQ(one(&bytes, &executor), 0) << RecentMessage();
    ASSERT_EQ(two(kept[next]->data(), kept[next]->bytes(), executor, stream), 0) << RecentMessage();
    ++next;
  };
#define AGAIN(op, ...) \
  record([&](uint64_t* ws, aclOpExecutor** ex) { return op##GetWorkspaceSize(__VA_ARGS__, ws, ex); }, op)
  AGAIN(aclnnMm, x.get(), w.get(), h.get(), 0);
  AGAIN(aclnnInplaceAdd, h.get(), bias.get(), alpha.get());
  AGAIN(aclnnInplaceRelu, h.get());
  AGAIN(aclnnMm, h.get(), w.get(), out.get(), 0);
  AGAIN(aclnnSoftmax, out.get(), -1, out.get());
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  for (int replay = 0; replay < 3; ++replay) {
    Replay(model);
    EXPECT_EQ(out.ReadStorage(), eager);
  }
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

TEST_F(CaptureTest, ARepeatableExecutorRecordsItsAddressesOfThatMoment) {
  const TestScalar alpha(ACL_FLOAT, {1});
  TestTensor x({4}, ACL_FLOAT);
  TestTensor y({4}, ACL_FLOAT);
  TestTensor one({1}, ACL_FLOAT);
  x.Write(std::vector<Value>(4));
  y.Write(std::vector<Value>(4));
  one.Write({{1}});
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnInplaceAddGetWorkspaceSize(x.get(), one.get(), alpha.get(), &bytes, &executor), 0);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
  ASSERT_EQ(aclnnInplaceAdd(nullptr, 0, executor, stream), 0) << RecentMessage();
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  ASSERT_EQ(aclSetInputTensorAddr(executor, 0, x.get(), y.storage()), 0) << RecentMessage();
  ASSERT_EQ(aclnnInplaceAdd(nullptr, 0, executor, stream), 0);
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
  Replay(model);
  Replay(model);
  ExpectValues(x.Read(), std::vector<Value>(4, Value{2}));
  ExpectValues(y.Read(), std::vector<Value>(4, Value{1}));
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
}

TEST_F(CaptureTest, WildAddressesAreRefusedWhileRecordingAndTheCaptureGoesOn) {
  std::vector<float> pageable(4);
  const int64_t dims[] = {4};
  TestTensor x({4}, ACL_FLOAT);
  x.Write(std::vector<Value>(4, Value{-1}));
  aclTensor* wild = aclCreateTensor(dims, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, pageable.data());
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnReluGetWorkspaceSize(wild, x.get(), &bytes, &executor), 0);
  EXPECT_EQ(aclnnRelu(nullptr, 0, executor, stream), 361001);
  RECORD(aclnnInplaceRelu, x.get());
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  Replay(model);
  ExpectValues(x.Read(), std::vector<Value>(4));
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
  EXPECT_EQ(aclDestroyTensor(wild), 0);
}

}  // namespace
}  // namespace aclnn_test
