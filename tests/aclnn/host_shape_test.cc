// SPDX-License-Identifier: Apache-2.0
//
// Operators that find out the shape of their result: the object takes it when phase two returns, captures refuse them,
// executors cannot be repeatable.
#include "aclnnop/aclnn_masked_select.h"
#include "aclnnop/aclnn_nonzero.h"
#include "aclnnop/aclnn_relu.h"
#include "aclnnop/aclnn_unique2.h"
#include "harness.h"

namespace aclnn_test {
namespace {

class HostShapeTest : public AclnnTest {
 protected:
  HostShapeTest() : self({2, 3}, ACL_FLOAT), out({6, 2}, ACL_INT64) {}
  void SetUp() override {
    AclnnTest::SetUp();
    self.Write({{0}, {5}, {0}, {-1}, {0}, {2}});
  }

  static Shape ViewOf(const aclTensor* tensor) {
    int64_t* dims = nullptr;
    uint64_t count = 0;
    EXPECT_EQ(aclGetViewShape(tensor, &dims, &count), 0);
    const Shape shape(dims, dims + count);
    delete[] dims;
    return shape;
  }
  aclOpExecutor* Plan(const aclTensor* result) {
    uint64_t bytes = 0;
    aclOpExecutor* executor = nullptr;
    EXPECT_EQ(aclnnNonzeroGetWorkspaceSize(self.get(), const_cast<aclTensor*>(result), &bytes, &executor), 0)
        << RecentMessage();
    EXPECT_LE(bytes, workspace.bytes());
    return executor;
  }
  aclnnStatus Run(aclOpExecutor* executor) {
    return aclnnNonzero(workspace.data(), workspace.bytes(), executor, stream);
  }

  TestTensor self;
  TestTensor out;
  Memory workspace{4096};
};

TEST_F(HostShapeTest, TheObjectTakesTheShapeWhenPhaseTwoReturns) {
  aclOpExecutor* executor = Plan(out.get());
  EXPECT_EQ(ViewOf(out.get()), (Shape{6, 2})) << "phase one knows nothing yet";
  ASSERT_EQ(Run(executor), 0) << RecentMessage();
  EXPECT_EQ(ViewOf(out.get()), (Shape{3, 2}));
  const auto* found = reinterpret_cast<const int64_t*>(out.storage());
  EXPECT_EQ(std::vector<int64_t>(found, found + 6), (std::vector<int64_t>{0, 1, 1, 0, 1, 2}));
}

TEST_F(HostShapeTest, NothingFoundIsAShape) {
  self.Write(std::vector<Value>(6));
  ASSERT_EQ(Run(Plan(out.get())), 0) << RecentMessage();
  EXPECT_EQ(ViewOf(out.get()), (Shape{0, 2}));
}

TEST_F(HostShapeTest, WorkBeforeItOnTheStreamCounts) {
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnInplaceReluGetWorkspaceSize(self.get(), &bytes, &executor), 0);
  ASSERT_EQ(aclnnInplaceRelu(nullptr, 0, executor, stream), 0);
  ASSERT_EQ(Run(Plan(out.get())), 0) << RecentMessage();
  EXPECT_EQ(ViewOf(out.get()), (Shape{2, 2}));
}

TEST_F(HostShapeTest, ACaptureRefusesAndGoesOn) {
  TestTensor x({4}, ACL_FLOAT);
  x.Write(std::vector<Value>(4, Value{-1}));
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED), 0) << RecentMessage();
  EXPECT_EQ(Run(Plan(out.get())), 361001);
  const std::string message = RecentMessage();
  for (const char* part : {"aclnnNonzero", "shape of the result", "107027", "outside"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_EQ(ViewOf(out.get()), (Shape{6, 2}));
  uint64_t bytes = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(aclnnInplaceReluGetWorkspaceSize(x.get(), &bytes, &executor), 0);
  ASSERT_EQ(aclnnInplaceRelu(nullptr, 0, executor, stream), 0) << RecentMessage();
  aclmdlRI model = nullptr;
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &model), 0) << RecentMessage();
  ASSERT_EQ(aclmdlRIExecuteAsync(model, stream), 0) << RecentMessage();
  ASSERT_EQ(aclrtSynchronizeStream(stream), 0);
  ExpectValues(x.Read(), std::vector<Value>(4));
  EXPECT_EQ(aclmdlRIDestroy(model), 0);
  ASSERT_EQ(Run(Plan(out.get())), 0) << "after the capture: " << RecentMessage();
  EXPECT_EQ(ViewOf(out.get()), (Shape{3, 2}));
}

TEST_F(HostShapeTest, TheObjectMustLiveInPhaseTwo) {
  const int64_t dims[] = {6, 2};
  aclTensor* gone = aclCreateTensor(dims, 2, ACL_INT64, nullptr, 0, ACL_FORMAT_ND, nullptr, 0, out.storage());
  aclOpExecutor* executor = Plan(gone);
  ASSERT_EQ(aclDestroyTensor(gone), 0);
  EXPECT_EQ(Run(executor), 161002);
  EXPECT_NE(RecentMessage().find("out"), std::string::npos) << RecentMessage();
}

TEST_F(HostShapeTest, AnExecutorCannotBeRepeatable) {
  aclOpExecutor* executor = Plan(out.get());
  EXPECT_EQ(aclSetAclOpExecutorRepeatable(executor), 561000);
  EXPECT_NE(RecentMessage().find("aclnnNonzero"), std::string::npos) << RecentMessage();
  ASSERT_EQ(Run(executor), 0) << "it can still be used: " << RecentMessage();
  EXPECT_EQ(ViewOf(out.get()), (Shape{3, 2}));
}

TEST_F(HostShapeTest, SeveralOutputsTakeTheirs) {
  TestTensor values({6}, ACL_FLOAT);
  TestTensor counts({6}, ACL_INT64);
  ASSERT_EQ(RUN(aclnnUnique2, self.get(), true, false, true, values.get(), nullptr, counts.get()), 0)
      << RecentMessage();
  EXPECT_EQ(ViewOf(values.get()), (Shape{4}));
  EXPECT_EQ(ViewOf(counts.get()), (Shape{4}));
  const auto* found = reinterpret_cast<const int64_t*>(counts.storage());
  EXPECT_EQ(std::vector<int64_t>(found, found + 4), (std::vector<int64_t>{1, 3, 1, 1}));
  EXPECT_EQ(RUN(aclnnUnique2, self.get(), true, true, false, values.get(), nullptr, nullptr), 161001)
      << "an output that was asked for";
}

TEST_F(HostShapeTest, TooSmallAnOutputIsRefused) {
  TestTensor small({5, 2}, ACL_INT64);
  EXPECT_EQ(RUN(aclnnNonzero, self.get(), small.get()), 161002);
  TestTensor mask({3}, ACL_BOOL);
  TestTensor picked({5}, ACL_FLOAT);
  EXPECT_EQ(RUN(aclnnMaskedSelect, self.get(), mask.get(), picked.get()), 161002);
  EXPECT_NE(RecentMessage().find("[6]"), std::string::npos) << RecentMessage();
}

}  // namespace
}  // namespace aclnn_test
