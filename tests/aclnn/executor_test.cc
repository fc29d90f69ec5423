// SPDX-License-Identifier: Apache-2.0
//
// Life of executors: repeatable ones, new addresses, objects that go away early, two threads.
#include <memory>
#include <thread>

#include "aclnnop/aclnn_add.h"
#include "aclnnop/aclnn_argmax.h"
#include "aclnnop/aclnn_cat.h"
#include "aclnnop/aclnn_copy.h"
#include "aclnnop/aclnn_mm.h"
#include "aclnnop/aclnn_mul.h"
#include "harness.h"

namespace aclnn_test {
namespace {

class ExecutorTest : public AclnnTest {
 protected:
  TestScalar alpha{ACL_FLOAT, {1}};

  std::unique_ptr<TestTensor> Filled(const Shape& shape) {
    auto tensor = std::make_unique<TestTensor>(shape, ACL_FLOAT);
    tensor->FillSmall(random);
    return tensor;
  }
  static std::vector<Value> Sum(const TestTensor& a, const TestTensor& b) {
    std::vector<Value> sum = a.Read();
    const std::vector<Value> other = b.Read();
    for (size_t i = 0; i < sum.size(); ++i) sum[i].re += other[i].re;
    return sum;
  }
};

TEST_F(ExecutorTest, ObjectsMayGoAwayBetweenThePhases) {
  const auto a = Filled({3, 4});
  const auto b = Filled({3, 4});
  TestTensor out({3, 4}, ACL_FLOAT);
  const auto copy = [](const TestTensor& t) {
    return aclCreateTensor(t.shape().data(), t.shape().size(), ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0,
                           t.storage());
  };
  aclTensor* const tensors[] = {copy(*a), copy(*b), copy(out)};
  float one = 1;
  aclScalar* scalar = aclCreateScalar(&one, ACL_FLOAT);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnAddGetWorkspaceSize(tensors[0], tensors[1], scalar, tensors[2], &bytes, &executor), 0);
  for (aclTensor* tensor : tensors) EXPECT_EQ(aclDestroyTensor(tensor), 0);
  EXPECT_EQ(aclDestroyScalar(scalar), 0);
  ASSERT_EQ(aclnnAdd(nullptr, 0, executor, stream), 0) << RecentMessage();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  ExpectValues(out.Read(), Sum(*a, *b));
}

TEST_F(ExecutorTest, ANeverUsedExecutorCanBeDestroyed) {
  const auto a = Filled({2});
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnAddGetWorkspaceSize(a->get(), a->get(), alpha.get(), a->get(), &bytes, &executor), 0);
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 561102);
}

TEST_F(ExecutorTest, ThePhasesMayRunOnDifferentThreads) {
  const auto a = Filled({2, 5});
  const auto b = Filled({2, 5});
  TestTensor out({2, 5}, ACL_FLOAT);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  std::thread([&] {  // no context here: phase one needs none
    EXPECT_EQ(aclnnAddGetWorkspaceSize(a->get(), b->get(), alpha.get(), out.get(), &bytes, &executor), 0);
  })
      .join();
  std::thread([&] {
    EXPECT_EQ(aclrtSetDevice(0), 0);
    EXPECT_EQ(aclnnAdd(nullptr, 0, executor, stream), 0) << RecentMessage();
  }).join();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  ExpectValues(out.Read(), Sum(*a, *b));
}

TEST_F(ExecutorTest, ARepeatableExecutorRunsUntilItIsDestroyed) {
  const auto x = Filled({6});
  const auto step = Filled({6});
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnInplaceAddGetWorkspaceSize(x->get(), step->get(), alpha.get(), &bytes, &executor), 0);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);
  std::vector<Value> expected = x->Read();
  const std::vector<Value> steps = step->Read();
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(aclnnInplaceAdd(nullptr, 0, executor, stream), 0) << RecentMessage();
    for (size_t k = 0; k < expected.size(); ++k) expected[k].re += steps[k].re;
  }
  // Destroyed while its kernels may still wait in the stream.
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
  EXPECT_EQ(aclnnInplaceAdd(nullptr, 0, executor, stream), 561102);
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  ExpectValues(x->Read(), expected);
}

TEST_F(ExecutorTest, LittleMemoryIsNotTheCallers) {
  // Cut into pieces whose results a second task compares; the memory between the two is of each execution.
  constexpr int64_t kCount = 300000;
  TestTensor x({kCount}, ACL_FLOAT);
  TestTensor best({}, ACL_INT64);
  std::vector<Value> values(kCount, Value{-1, 0});
  values[123456].re = 2;
  x.Write(values);
  uint64_t bytes = 1;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnArgMaxGetWorkspaceSize(x.get(), 0, false, best.get(), &bytes, &executor), 0) << RecentMessage();
  EXPECT_EQ(bytes, 0u);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);
  // On two streams at once, each with an answer of its own.
  TestTensor y({kCount}, ACL_FLOAT);
  values[123456].re = -1;
  values[299999].re = 3;
  y.Write(values);
  TestTensor second({}, ACL_INT64);
  aclrtStream other = nullptr;
  ASSERT_EQ(aclrtCreateStream(&other), 0);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(aclSetInputTensorAddr(executor, 0, x.get(), x.storage()), 0) << RecentMessage();
    ASSERT_EQ(aclSetOutputTensorAddr(executor, 0, best.get(), best.storage()), 0) << RecentMessage();
    ASSERT_EQ(aclnnArgMax(nullptr, 0, executor, stream), 0) << RecentMessage();
    ASSERT_EQ(aclSetInputTensorAddr(executor, 0, x.get(), y.storage()), 0) << RecentMessage();
    ASSERT_EQ(aclSetOutputTensorAddr(executor, 0, best.get(), second.storage()), 0) << RecentMessage();
    ASSERT_EQ(aclnnArgMax(nullptr, 0, executor, other), 0) << RecentMessage();
  }
  ASSERT_EQ(aclrtSynchronizeStream(other), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  EXPECT_EQ(best.Read()[0].re, 123456);
  EXPECT_EQ(second.Read()[0].re, 299999);
  // A graph keeps it.
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL), 0);
  ASSERT_EQ(aclnnArgMax(nullptr, 0, executor, stream), 0) << RecentMessage();
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  ASSERT_EQ(aclDestroyAclOpExecutor(executor), 0);
  second.Write({{0, 0}});
  for (int i = 0; i < 2; ++i) ASSERT_EQ(aclmdlRIExecuteAsync(model, stream), 0) << RecentMessage();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  EXPECT_EQ(second.Read()[0].re, 299999);
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
  EXPECT_EQ(aclrtDestroyStream(other), 0);
}

TEST_F(ExecutorTest, AddressesCanBeMovedThroughEveryForm) {
  const Shape shape = {3, 4};
  const auto a = Filled(shape);
  const auto b = Filled(shape);
  const auto a2 = Filled(shape);
  const auto b2 = Filled(shape);
  TestTensor out(shape, ACL_FLOAT);
  TestTensor out2(shape, ACL_FLOAT);
  TestTensor out3(shape, ACL_FLOAT);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnAddGetWorkspaceSize(a->get(), b->get(), alpha.get(), out.get(), &bytes, &executor), 0);
  EXPECT_EQ(aclSetInputTensorAddr(executor, 0, a->get(), a2->storage()), 561000) << "not repeatable yet";
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);

  ASSERT_EQ(aclnnAdd(nullptr, 0, executor, stream), 0);
  // What was submitted keeps its addresses although the executor moves on at once.
  ASSERT_EQ(aclSetInputTensorAddr(executor, 0, a->get(), a2->storage()), 0) << RecentMessage();
  ASSERT_EQ(AclSetOutputTensorAddr(executor, 0, out.get(), out2.storage()), 0) << RecentMessage();
  ASSERT_EQ(aclnnAdd(nullptr, 0, executor, stream), 0);
  ASSERT_EQ(aclSetTensorAddr(executor, 1, b->get(), b2->storage()), 0) << RecentMessage();
  ASSERT_EQ(AclSetTensorAddr(executor, 2, out.get(), out3.storage()), 0) << RecentMessage();
  ASSERT_EQ(aclnnAdd(nullptr, 0, executor, stream), 0);
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  ExpectValues(out.Read(), Sum(*a, *b));
  ExpectValues(out2.Read(), Sum(*a2, *b));
  ExpectValues(out3.Read(), Sum(*a2, *b2));

  EXPECT_EQ(aclSetInputTensorAddr(executor, 2, a->get(), a2->storage()), 161002);
  EXPECT_EQ(aclSetOutputTensorAddr(executor, 1, a->get(), a2->storage()), 161002);
  EXPECT_EQ(aclSetTensorAddr(executor, 3, a->get(), a2->storage()), 161002);
  EXPECT_EQ(aclSetInputTensorAddr(executor, 0, nullptr, a2->storage()), 561103);
  EXPECT_EQ(aclSetInputTensorAddr(executor, 0, a->get(), nullptr), 561103);
  TestTensor other_shape({2, 2}, ACL_FLOAT);
  EXPECT_EQ(aclSetInputTensorAddr(executor, 0, other_shape.get(), a2->storage()), 161002);
  // A wild address is found by phase two, and the executor lives on.
  ASSERT_EQ(aclSetInputTensorAddr(executor, 0, a->get(), &bytes), 0);
  EXPECT_EQ(aclnnAdd(nullptr, 0, executor, stream), 361001);
  ASSERT_EQ(aclSetInputTensorAddr(executor, 0, a->get(), a->storage()), 0);
  EXPECT_EQ(aclnnAdd(nullptr, 0, executor, stream), 0) << RecentMessage();
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
  EXPECT_EQ(aclrtSynchronizeStream(stream), 0);
}

TEST_F(ExecutorTest, AnInplaceTensorMovesAsInputAndOutput) {
  const auto x = Filled({5});
  const auto y = Filled({5});
  const auto step = Filled({5});
  const std::vector<Value> x_before = x->Read();
  const std::vector<Value> expected = Sum(*y, *step);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnInplaceAddGetWorkspaceSize(x->get(), step->get(), alpha.get(), &bytes, &executor), 0);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);
  ASSERT_EQ(aclSetOutputTensorAddr(executor, 0, x->get(), y->storage()), 0) << RecentMessage();
  ASSERT_EQ(aclnnInplaceAdd(nullptr, 0, executor, stream), 0) << RecentMessage();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  ExpectValues(x->Read(), x_before);
  ExpectValues(y->Read(), expected);
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
}

TEST_F(ExecutorTest, OffsetsAndStridesStayWhenAnAddressMoves) {
  TestTensor src({4, 3}, ACL_FLOAT, random);
  src.FillSmall(random);
  TestTensor first({4, 3}, ACL_FLOAT);
  TestTensor second({4, 3}, ACL_FLOAT);
  const Memory copy(src.storage_bytes());
  ASSERT_EQ(aclrtMemcpy(copy.data(), copy.bytes(), src.storage(), copy.bytes(), ACL_MEMCPY_DEVICE_TO_DEVICE), 0);
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnInplaceCopyGetWorkspaceSize(first.get(), src.get(), &bytes, &executor), 0);
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);
  ASSERT_EQ(aclSetTensorAddr(executor, 1, src.get(), copy.data()), 0);
  ASSERT_EQ(aclSetTensorAddr(executor, 0, first.get(), second.storage()), 0);
  ASSERT_EQ(aclnnInplaceCopy(nullptr, 0, executor, stream), 0) << RecentMessage();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  ExpectValues(second.Read(), src.Read());
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
}

TEST_F(ExecutorTest, ElementsOfListsMoveThroughTheDynamicForms) {
  const auto a = Filled({2, 2});
  const auto b = Filled({3, 2});
  const auto b2 = Filled({3, 2});
  TestTensor out({5, 2}, ACL_FLOAT);
  TestTensor out2({5, 2}, ACL_FLOAT);
  std::vector<const aclTensor*> views;
  for (const TestTensor* t : {a.get(), b.get()}) {
    views.push_back(
        aclCreateTensor(t->shape().data(), 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, t->storage()));
  }
  aclTensorList* list = aclCreateTensorList(views.data(), views.size());
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnCatGetWorkspaceSize(list, 0, out.get(), &bytes, &executor), 0) << RecentMessage();
  ASSERT_EQ(aclSetAclOpExecutorRepeatable(executor), 0);
  ASSERT_EQ(aclSetDynamicInputTensorAddr(executor, 0, 1, list, b2->storage()), 0) << RecentMessage();
  ASSERT_EQ(aclSetTensorAddr(executor, 1, out.get(), out2.storage()), 0) << RecentMessage();
  ASSERT_EQ(aclnnCat(nullptr, 0, executor, stream), 0) << RecentMessage();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  std::vector<Value> expected = a->Read();
  for (const Value& value : b2->Read()) expected.push_back(value);
  ExpectValues(out2.Read(), expected);

  ASSERT_EQ(AclSetDynamicTensorAddr(executor, 0, 1, list, b->storage()), 0) << RecentMessage();
  EXPECT_EQ(aclSetDynamicInputTensorAddr(executor, 0, 2, list, b->storage()), 161002);
  EXPECT_EQ(aclSetDynamicInputTensorAddr(executor, 1, 0, list, b->storage()), 161002);
  EXPECT_EQ(aclSetDynamicOutputTensorAddr(executor, 0, 0, list, b->storage()), 161002) << "a tensor, not a list";
  EXPECT_EQ(aclSetInputTensorAddr(executor, 0, out.get(), b->storage()), 161002) << "a list, not a tensor";
  EXPECT_EQ(aclDestroyAclOpExecutor(executor), 0);
  EXPECT_EQ(aclDestroyTensorList(list), 0);
}

TEST_F(ExecutorTest, ARawAddressCanBeSetBeforePhaseOne) {
  const auto a = Filled({4});
  TestTensor out({4}, ACL_FLOAT);
  const int64_t dims[] = {4};
  aclTensor* tensor = aclCreateTensor(dims, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, nullptr);
  EXPECT_EQ(RUN(aclnnInplaceCopy, out.get(), tensor), 161001);
  ASSERT_EQ(aclSetRawTensorAddr(tensor, a->storage()), 0);
  ASSERT_EQ(RUN(aclnnInplaceCopy, out.get(), tensor), 0) << RecentMessage();
  ExpectValues(out.Read(), a->Read());
  EXPECT_EQ(aclDestroyTensor(tensor), 0);
}

TEST_F(ExecutorTest, ManyThreadsPlanAndLaunchAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      EXPECT_EQ(aclrtSetDevice(0), 0);
      aclrtStream own = nullptr;
      EXPECT_EQ(aclrtCreateStream(&own), 0);
      {
        TestTensor x({16}, ACL_INT32);
        TestTensor one({1}, ACL_INT32);
        const TestScalar factor(ACL_INT32, {1});
        x.Write(std::vector<Value>(16, Value{static_cast<long double>(t)}));
        one.Write({{1}});
        for (int i = 0; i < 300; ++i) {
          uint64_t bytes = 0;
          aclOpExecutor* executor = nullptr;
          EXPECT_EQ(aclnnInplaceAddGetWorkspaceSize(x.get(), one.get(), factor.get(), &bytes, &executor), 0);
          EXPECT_EQ(aclnnInplaceAdd(nullptr, 0, executor, own), 0);
        }
        EXPECT_EQ(aclrtSynchronizeStream(own), 0);
        ExpectValues(x.Read(), std::vector<Value>(16, Value{static_cast<long double>(t + 300)}));
      }
      EXPECT_EQ(aclrtDestroyStream(own), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace aclnn_test
