// SPDX-License-Identifier: Apache-2.0
//
// Every acquisition may fail: the call says so, nothing leaks, nothing is lost, and the same call then succeeds.
#include "base/fault.h"

#include <functional>

#include "fixture.h"
#include "tdt/buffer.h"
#include "tdt/channel.h"

namespace reprise::testing {
namespace {

class FaultTest : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    buffers_ = tdt::LiveBuffers();
    channels_ = tdt::LiveChannelObjects();
  }
  void TearDown() override {
    ArmFault("", 0);
    EXPECT_EQ(tdt::LiveBuffers(), buffers_);
    EXPECT_EQ(tdt::LiveChannelObjects(), channels_);
    Runtime::TearDown();
  }

  // Makes the first, second, third … acquisition of `call` fail until it gets through; the number of failures.
  static int FailAll(const char* point, int code, const std::function<int()>& call) {
    for (int n = 1;; ++n) {
      ArmFault(point, n);
      const int got = call();
      const bool fired = FaultFired();
      ArmFault("", 0);
      EXPECT_EQ(got, fired ? code : 0) << point << ":" << n;
      if (!fired || got != code) return n - 1;
    }
  }

  size_t buffers_ = 0;
  tdt::ChannelCounts channels_{};
};

TEST_F(FaultTest, Buffers) {
  acltdtBuf buf = nullptr, copy = nullptr;
  EXPECT_EQ(1, FailAll("tdt.memory", 207001, [&] { return acltdtAllocBuf(8, 0, &buf); }));
  MUST(acltdtFreeBuf(buf));
  EXPECT_EQ(1, FailAll("tdt.object", 207005, [&] { return aclrtAllocBuf(&buf, 8); }));
  MUST(acltdtAppendBufChain(buf, NewBuf(8)));
  MUST(acltdtAppendBufChain(buf, NewBuf(8)));
  EXPECT_EQ(3, FailAll("tdt.object", 207005, [&] { return acltdtCopyBufRef(buf, &copy); }));
  MUST(acltdtFreeBuf(copy));
  MUST(acltdtFreeBuf(buf));
}

TEST_F(FaultTest, Queues) {
  acltdtQueueAttr* attr = nullptr;
  uint32_t queue = 0;
  EXPECT_EQ(1, FailAll("tdt.object", 207005, [&] {
              attr = acltdtCreateQueueAttr();
              return attr != nullptr ? 0 : 207005;
            }));
  EXPECT_EQ(1, FailAll("tdt.object", 207005, [&] { return acltdtCreateQueue(attr, &queue); }));
  MUST(acltdtDestroyQueueAttr(attr));
  const acltdtBuf buf = NumberBuf(1);
  MUST(acltdtAppendBufChain(buf, NumberBuf(2)));
  EXPECT_EQ(2, FailAll("tdt.object", 207005, [&] { return acltdtEnqueue(queue, buf, 0); }));
  EXPECT_EQ(1, FailAll("tdt.memory", 207001, [&] { return PutNumber(queue, 3); }));
  EXPECT_EQ(1, FailAll("tdt.object", 207005, [&] { return PutNumber(queue, 4); }));
  acltdtBuf out = nullptr;
  // Taking out acquires nothing.
  EXPECT_EQ(0, FailAll("*", 0, [&] { return acltdtDequeue(queue, &out, 0); }));
  MUST(acltdtFreeBuf(out));
  EXPECT_EQ(3, GetNumber(queue));
  EXPECT_EQ(4, GetNumber(queue));
  MUST(acltdtDestroyQueue(queue));
}

TEST_F(FaultTest, RouteWaitsForMemory) {
  const uint32_t a = NewQueue(4), b = NewQueue(4), c = NewQueue(4);
  RouteList list{{a, b}, {a, c}};
  MUST(acltdtBindQueueRoutes(list));
  ArmFault("tdt.object", 2);  // the copy for the second destination
  MUST(PutNumber(a, 1));
  EXPECT_TRUE(FaultFired());
  ArmFault("", 0);
  acltdtBuf buf = nullptr;
  EXPECT_ACL(207013, acltdtDequeue(b, &buf, 0));
  EXPECT_ACL(207013, acltdtDequeue(c, &buf, 0));
  MUST(PutNumber(a, 2));
  for (const uint32_t queue : {b, c}) {
    EXPECT_EQ(1, GetNumber(queue));
    EXPECT_EQ(2, GetNumber(queue));
    MUST(acltdtDestroyQueue(queue));
  }
  MUST(acltdtDestroyQueue(a));
}

TEST_F(FaultTest, Channels) {
  acltdtChannelHandle* channel = nullptr;
  EXPECT_EQ(1, FailAll("tdt.object", 207005, [&] {
              channel = acltdtCreateChannelWithCapacity(0, "fault", 2);
              return channel != nullptr ? 0 : 207005;
            }));
  std::vector<int32_t> one{1}, two{2};
  acltdtDataItem* items[2] = {NewItem(one), NewItem(two)};
  acltdtDataset *sent = acltdtCreateDataset(), *got = acltdtCreateDataset();
  for (acltdtDataItem* item : items) MUST(acltdtAddDataItem(sent, item));
  EXPECT_EQ(2, FailAll("tdt.memory", 200000, [&] { return acltdtSendTensor(channel, sent, 0); }));
  size_t size = 0;
  MUST(acltdtQueryChannelSize(channel, &size));
  EXPECT_EQ(size, 1u);
  EXPECT_EQ(2, FailAll("tdt.object", 207005, [&] { return acltdtReceiveTensor(channel, got, 0); }));
  EXPECT_EQ(acltdtGetDatasetSize(got), 2u);
  EXPECT_EQ(ValuesOf(acltdtGetDataItem(got, 1)), two);
  // A dataset that was received before keeps its items when receiving fails.
  MUST(acltdtSendTensor(channel, sent, 0));
  ArmFault("tdt.object", 2);
  EXPECT_ACL(207005, acltdtReceiveTensor(channel, got, 0));
  ArmFault("", 0);
  EXPECT_EQ(ValuesOf(acltdtGetDataItem(got, 0)), one);
  MUST(acltdtReceiveTensor(channel, got, 0));
  MUST(acltdtDestroyDataset(got));
  MUST(acltdtDestroyDataset(sent));
  for (acltdtDataItem* item : items) MUST(acltdtDestroyDataItem(item));
  MUST(acltdtDestroyChannel(channel));
}

}  // namespace
}  // namespace reprise::testing
