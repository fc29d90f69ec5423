// SPDX-License-Identifier: Apache-2.0
//
// Wrong calls of the functions for channels, queues and queue buffers: null and bad handles, bad ids, random calls.
#include "../misuse/fixture.h"
#include "fixture.h"
#include "tdt/buffer.h"
#include "tdt/channel.h"

namespace reprise::testing {
namespace {

struct World : BasicWorld {
  acltdtBuf buf = nullptr;
  acltdtQueueAttr* attr = nullptr;
  acltdtQueueRoute* route = nullptr;
  acltdtQueueRouteList* list = nullptr;
  acltdtQueueRouteQueryInfo* query = nullptr;
  acltdtDataItem* item = nullptr;
  acltdtDataset* dataset = nullptr;  // holds the item
  acltdtDataset* empty = nullptr;
  acltdtChannelHandle* channel = nullptr;
  uint32_t queue = 0;
  uint32_t bad_queue = 0;
  std::vector<int32_t> values{1, 2, 3};

  template <class T>
  T* Bad() {
    return static_cast<T*>(bad);
  }
};

class TdtMisuse : public Misuse<World> {
 protected:
  void SetUp() override {
    Misuse::SetUp();
    World& w = world_;
    w.buf = NewBuf(64);
    w.attr = acltdtCreateQueueAttr();
    w.route = acltdtCreateQueueRoute(0, 1);
    w.list = acltdtCreateQueueRouteList();
    w.query = acltdtCreateQueueRouteQueryInfo();
    w.item = NewItem(w.values);
    w.dataset = acltdtCreateDataset();
    MUST(acltdtAddDataItem(w.dataset, w.item));
    w.empty = acltdtCreateDataset();
    w.channel = acltdtCreateChannelWithCapacity(0, "misuse", 2);
    w.queue = NewQueue(2);

    const acltdtBuf dead_buf = NewBuf(1);
    MUST(acltdtFreeBuf(dead_buf));
    w.AddHandles("queue buffer", w.buf, dead_buf);
    acltdtQueueAttr* dead_attr = acltdtCreateQueueAttr();
    MUST(acltdtDestroyQueueAttr(dead_attr));
    w.AddHandles("attribute", w.attr, dead_attr);
    acltdtQueueRoute* dead_route = acltdtCreateQueueRoute(0, 0);
    MUST(acltdtDestroyQueueRoute(dead_route));
    w.AddHandles("route", w.route, dead_route);
    acltdtQueueRouteList* dead_list = acltdtCreateQueueRouteList();
    MUST(acltdtDestroyQueueRouteList(dead_list));
    w.AddHandles("list", w.list, dead_list);
    acltdtQueueRouteQueryInfo* dead_query = acltdtCreateQueueRouteQueryInfo();
    MUST(acltdtDestroyQueueRouteQueryInfo(dead_query));
    w.AddHandles("query", w.query, dead_query);
    acltdtDataItem* dead_item = NewItem(w.values);
    MUST(acltdtDestroyDataItem(dead_item));
    w.AddHandles("item", w.item, dead_item);
    acltdtDataset* dead_dataset = acltdtCreateDataset();
    MUST(acltdtDestroyDataset(dead_dataset));
    w.AddHandles("dataset", w.dataset, dead_dataset);
    acltdtChannelHandle* dead_channel = acltdtCreateChannel(0, "dead");
    MUST(acltdtDestroyChannel(dead_channel));
    w.AddHandles("channel", w.channel, dead_channel);
  }

  void TearDown() override {
    World& w = world_;
    EXPECT_EQ(0, acltdtFreeBuf(w.buf));
    EXPECT_EQ(0, acltdtDestroyQueueAttr(w.attr));
    EXPECT_EQ(0, acltdtDestroyQueueRoute(w.route));
    EXPECT_EQ(0, acltdtDestroyQueueRouteList(w.list));
    EXPECT_EQ(0, acltdtDestroyQueueRouteQueryInfo(w.query));
    EXPECT_EQ(0, acltdtDestroyDataset(w.dataset));
    EXPECT_EQ(0, acltdtDestroyDataset(w.empty));
    EXPECT_EQ(0, acltdtDestroyDataItem(w.item));
    EXPECT_EQ(0, acltdtDestroyChannel(w.channel));
    EXPECT_EQ(0, acltdtDestroyQueue(w.queue));
    Misuse::TearDown();
  }

  void StillWorks() override {
    Misuse::StillWorks();
    World& w = world_;
    EXPECT_EQ(0, acltdtSendTensor(w.channel, w.dataset, 0));
    EXPECT_EQ(0, acltdtReceiveTensor(w.channel, w.empty, 0));
    EXPECT_EQ(w.values, ValuesOf(acltdtGetDataItem(w.empty, 0)));
    EXPECT_EQ(0, PutNumber(w.queue, 7));
    EXPECT_EQ(7, GetNumber(w.queue));
    uint32_t count = 0;
    EXPECT_EQ(0, acltdtGetBufChainNum(w.buf, &count));
    EXPECT_EQ(count, 1u);
    EXPECT_EQ(0u, acltdtGetQueueRouteNum(w.list));
    EXPECT_EQ(1u, acltdtGetDatasetSize(w.dataset));
    DropMessage();
  }
};

TEST_F(TdtMisuse, NullPointersOfChannels) {
  Everywhere({
      ROW(100000, acltdtDestroyDataItem(nullptr)),
      ROW(100000, acltdtGetDimsFromItem(nullptr, w.out.As<int64_t>(), 1)),
      ROW(100000, acltdtGetDimsFromItem(w.item, nullptr, 1)),
      ROW(100000, acltdtGetSliceInfoFromItem(nullptr, w.out.As<size_t>(), w.out.As<size_t>(1))),
      ROW(100000, acltdtGetSliceInfoFromItem(w.item, nullptr, w.out.As<size_t>(1))),
      ROW(100000, acltdtGetSliceInfoFromItem(w.item, w.out.As<size_t>(), nullptr)),
      ROW(100000, acltdtDestroyDataset(nullptr)),
      ROW(100000, acltdtAddDataItem(nullptr, w.item)),
      ROW(100000, acltdtAddDataItem(w.dataset, nullptr)),
      ROW(100000, acltdtDestroyChannel(nullptr)),
      ROW(100000, acltdtStopChannel(nullptr)),
      ROW(100000, acltdtCleanChannel(nullptr)),
      ROW(100000, acltdtSendTensor(nullptr, w.dataset, 0)),
      ROW(100000, acltdtSendTensor(w.channel, nullptr, 0)),
      ROW(100000, acltdtSendTensor(w.channel, w.dataset, -2)),
      ROW(100000, acltdtReceiveTensor(nullptr, w.dataset, 0)),
      ROW(100000, acltdtReceiveTensor(w.channel, nullptr, 0)),
      ROW(100000, acltdtReceiveTensor(w.channel, w.dataset, 0)),
      ROW(100000, acltdtQueryChannelSize(nullptr, w.out.As<size_t>())),
      ROW(100000, acltdtQueryChannelSize(w.channel, nullptr)),
  });
  acltdtDataset* never = acltdtCreateDataset();
  EXPECT_ACL(100000, acltdtSendTensor(world_.channel, never, 0)) << "empty";
  MUST(acltdtDestroyDataset(never));
  EXPECT_NONE(100000, acltdtGetDataAddrFromItem(nullptr));
  EXPECT_NONE(100000, acltdtGetDataItem(nullptr, 0));
  EXPECT_NONE(100000, acltdtGetDatasetName(nullptr));
  EXPECT_EQ(ACL_TENSOR_DATA_UNDEFINED, acltdtGetTensorTypeFromItem(nullptr));
  EXPECT_EQ(ACL_DT_UNDEFINED, acltdtGetDataTypeFromItem(nullptr));
  EXPECT_EQ(0u, acltdtGetDataSizeFromItem(nullptr));
  EXPECT_EQ(0u, acltdtGetDimNumFromItem(nullptr));
  EXPECT_EQ(0u, acltdtGetDatasetSize(nullptr));
  EXPECT_EQ(0u, acltdtGetQueueRouteNum(nullptr));
  EXPECT_TRUE(CheckAcl(100000, 100000, "acltdtGetQueueRouteNum"));
}

TEST_F(TdtMisuse, NullPointersOfQueues) {
  Everywhere({
      ROW(100000, acltdtDestroyQueueAttr(nullptr)),
      ROW(100000, acltdtSetQueueAttr(nullptr, ACL_TDT_QUEUE_DEPTH_UINT32, 4, &w.local)),
      ROW(100000, acltdtSetQueueAttr(w.attr, ACL_TDT_QUEUE_DEPTH_UINT32, 4, nullptr)),
      ROW(100000, acltdtGetQueueAttr(nullptr, ACL_TDT_QUEUE_DEPTH_UINT32, 4, w.out.As<size_t>(), w.out.handle(1))),
      ROW(100000, acltdtGetQueueAttr(w.attr, ACL_TDT_QUEUE_DEPTH_UINT32, 4, nullptr, w.out.handle(1))),
      ROW(100000, acltdtGetQueueAttr(w.attr, ACL_TDT_QUEUE_DEPTH_UINT32, 4, w.out.As<size_t>(), nullptr)),
      ROW(100000, acltdtCreateQueue(nullptr, w.out.As<uint32_t>())),
      ROW(100000, acltdtCreateQueue(w.attr, nullptr)),
      ROW(100000, acltdtEnqueue(w.queue, nullptr, 0)),
      ROW(100000, acltdtEnqueue(w.queue, w.buf, -2)),
      ROW(100000, acltdtDequeue(w.queue, nullptr, 0)),
      ROW(100000, acltdtDequeueData(w.queue, nullptr, 8, w.out.As<size_t>(), nullptr, 0, 0)),
      ROW(100000, acltdtDequeueData(w.queue, w.out.handle(), 8, nullptr, nullptr, 0, 0)),
      ROW(100000, acltdtDequeueData(w.queue, w.out.handle(), 0, w.out.As<size_t>(1), nullptr, 0, 0)),
      ROW(100000, acltdtDequeueData(w.queue, w.out.handle(), 8, w.out.As<size_t>(1), nullptr, 1, 0)),
      ROW(100000, acltdtDequeueData(w.queue, w.out.handle(), 8, w.out.As<size_t>(1), w.out.handle(2), 97, 0)),
      ROW(100000, acltdtDestroyQueueRoute(nullptr)),
      ROW(100000,
          acltdtGetQueueRouteParam(nullptr, ACL_TDT_QUEUE_ROUTE_SRC_UINT32, 4, w.out.As<size_t>(), w.out.handle(1))),
      ROW(100000, acltdtGetQueueRouteParam(w.route, ACL_TDT_QUEUE_ROUTE_SRC_UINT32, 4, nullptr, w.out.handle(1))),
      ROW(100000, acltdtGetQueueRouteParam(w.route, ACL_TDT_QUEUE_ROUTE_SRC_UINT32, 4, w.out.As<size_t>(), nullptr)),
      ROW(100000, acltdtDestroyQueueRouteList(nullptr)),
      ROW(100000, acltdtAddQueueRoute(nullptr, w.route)),
      ROW(100000, acltdtAddQueueRoute(w.list, nullptr)),
      ROW(100000, acltdtGetQueueRoute(nullptr, 0, w.route)),
      ROW(100000, acltdtGetQueueRoute(w.list, 0, nullptr)),
      ROW(100000, acltdtBindQueueRoutes(nullptr)),
      ROW(100000, acltdtUnbindQueueRoutes(nullptr)),
      ROW(100000, acltdtQueryQueueRoutes(nullptr, w.list)),
      ROW(100000, acltdtQueryQueueRoutes(w.query, nullptr)),
      ROW(100000, acltdtDestroyQueueRouteQueryInfo(nullptr)),
      ROW(100000, acltdtSetQueueRouteQueryInfo(nullptr, ACL_TDT_QUEUE_ROUTE_QUERY_SRC_ID_UINT32, 4, &w.local)),
      ROW(100000, acltdtSetQueueRouteQueryInfo(w.query, ACL_TDT_QUEUE_ROUTE_QUERY_SRC_ID_UINT32, 4, nullptr)),
  });
}

TEST_F(TdtMisuse, NullPointersOfBuffers) {
  Everywhere({
      ROW(100000, acltdtAllocBuf(8, ACL_TDT_NORMAL_MEM, nullptr)),
      ROW(100000, acltdtFreeBuf(nullptr)),
      ROW(100000, acltdtCopyBufRef(nullptr, w.out.handle())),
      ROW(100000, acltdtCopyBufRef(w.buf, nullptr)),
      ROW(100000, acltdtGetBufData(nullptr, w.out.handle(), w.out.As<size_t>(1))),
      ROW(100000, acltdtGetBufData(w.buf, nullptr, w.out.As<size_t>(1))),
      ROW(100000, acltdtGetBufData(w.buf, w.out.handle(), nullptr)),
      ROW(100000, acltdtSetBufDataLen(nullptr, 1)),
      ROW(100000, acltdtGetBufDataLen(nullptr, w.out.As<size_t>())),
      ROW(100000, acltdtGetBufDataLen(w.buf, nullptr)),
      ROW(100000, acltdtSetBufUserData(nullptr, &w.local, 1, 0)),
      ROW(100000, acltdtSetBufUserData(w.buf, nullptr, 1, 0)),
      ROW(100000, acltdtGetBufUserData(nullptr, w.out.handle(), 1, 0)),
      ROW(100000, acltdtGetBufUserData(w.buf, nullptr, 1, 0)),
      ROW(100000, acltdtAppendBufChain(nullptr, w.buf)),
      ROW(100000, acltdtAppendBufChain(w.buf, nullptr)),
      ROW(100000, acltdtGetBufChainNum(nullptr, w.out.As<uint32_t>())),
      ROW(100000, acltdtGetBufChainNum(w.buf, nullptr)),
      ROW(100000, acltdtGetBufFromChain(nullptr, 0, w.out.handle())),
      ROW(100000, acltdtGetBufFromChain(w.buf, 0, nullptr)),
      ROW(100000, aclrtAllocBuf(nullptr, 8)),
      ROW(100000, aclrtFreeBuf(nullptr)),
      ROW(100000, aclrtCopyBufRef(nullptr, w.out.handle())),
      ROW(100000, aclrtCopyBufRef(w.buf, nullptr)),
      ROW(100000, aclrtGetBufData(nullptr, w.out.handle(), w.out.As<size_t>(1))),
      ROW(100000, aclrtGetBufData(w.buf, nullptr, w.out.As<size_t>(1))),
      ROW(100000, aclrtGetBufData(w.buf, w.out.handle(), nullptr)),
      ROW(100000, aclrtSetBufDataLen(nullptr, 1)),
      ROW(100000, aclrtGetBufDataLen(nullptr, w.out.As<size_t>())),
      ROW(100000, aclrtGetBufDataLen(w.buf, nullptr)),
      ROW(100000, aclrtSetBufUserData(nullptr, &w.local, 1, 0)),
      ROW(100000, aclrtSetBufUserData(w.buf, nullptr, 1, 0)),
      ROW(100000, aclrtGetBufUserData(nullptr, w.out.handle(), 1, 0)),
      ROW(100000, aclrtGetBufUserData(w.buf, nullptr, 1, 0)),
      ROW(100000, aclrtAppendBufChain(nullptr, w.buf)),
      ROW(100000, aclrtAppendBufChain(w.buf, nullptr)),
      ROW(100000, aclrtGetBufChainNum(nullptr, w.out.As<uint32_t>())),
      ROW(100000, aclrtGetBufChainNum(w.buf, nullptr)),
      ROW(100000, aclrtGetBufFromChain(nullptr, 0, w.out.handle())),
      ROW(100000, aclrtGetBufFromChain(w.buf, 0, nullptr)),
  });
}

TEST_F(TdtMisuse, BadBuffers) {
  const Rows rows{
      ROW(107017, acltdtFreeBuf(w.bad)),
      ROW(107017, acltdtCopyBufRef(w.bad, w.out.handle())),
      ROW(107017, acltdtGetBufData(w.bad, w.out.handle(), w.out.As<size_t>(1))),
      ROW(107017, acltdtSetBufDataLen(w.bad, 0)),
      ROW(107017, acltdtGetBufDataLen(w.bad, w.out.As<size_t>())),
      ROW(107017, acltdtSetBufUserData(w.bad, &w.local, 1, 0)),
      ROW(107017, acltdtGetBufUserData(w.bad, w.out.handle(), 1, 0)),
      ROW(107017, acltdtAppendBufChain(w.bad, w.buf)),
      ROW(107017, acltdtAppendBufChain(w.buf, w.bad)),
      ROW(107017, acltdtGetBufChainNum(w.bad, w.out.As<uint32_t>())),
      ROW(107017, acltdtGetBufFromChain(w.bad, 0, w.out.handle())),
      ROW(107017, acltdtEnqueue(w.queue, w.bad, 0)),
      ROW(107017, aclrtFreeBuf(w.bad)),
      ROW(107017, aclrtCopyBufRef(w.bad, w.out.handle())),
      ROW(107017, aclrtGetBufData(w.bad, w.out.handle(), w.out.As<size_t>(1))),
      ROW(107017, aclrtSetBufDataLen(w.bad, 0)),
      ROW(107017, aclrtGetBufDataLen(w.bad, w.out.As<size_t>())),
      ROW(107017, aclrtSetBufUserData(w.bad, &w.local, 1, 0)),
      ROW(107017, aclrtGetBufUserData(w.bad, w.out.handle(), 1, 0)),
      ROW(107017, aclrtAppendBufChain(w.bad, w.buf)),
      ROW(107017, aclrtAppendBufChain(w.buf, w.bad)),
      ROW(107017, aclrtGetBufChainNum(w.bad, w.out.As<uint32_t>())),
      ROW(107017, aclrtGetBufFromChain(w.bad, 0, w.out.handle())),
  };
  for (const Handle& bad : world_.BadHandles("queue buffer")) Everywhere(bad, rows);
}

TEST_F(TdtMisuse, BadObjectsOfQueues) {
  for (const Handle& bad : world_.BadHandles("attribute")) {
    Everywhere(bad,
               {
                   ROW(107017, acltdtDestroyQueueAttr(w.Bad<acltdtQueueAttr>())),
                   ROW(107017, acltdtSetQueueAttr(w.Bad<acltdtQueueAttr>(), ACL_TDT_QUEUE_DEPTH_UINT32, 4, &w.local)),
                   ROW(107017, acltdtGetQueueAttr(w.Bad<acltdtQueueAttr>(), ACL_TDT_QUEUE_DEPTH_UINT32, 4,
                                                  w.out.As<size_t>(), w.out.handle(1))),
                   ROW(107017, acltdtCreateQueue(w.Bad<acltdtQueueAttr>(), w.out.As<uint32_t>())),
               });
  }
  for (const Handle& bad : world_.BadHandles("route")) {
    Everywhere(bad, {
                        ROW(107017, acltdtDestroyQueueRoute(w.Bad<acltdtQueueRoute>())),
                        ROW(107017, acltdtGetQueueRouteParam(w.Bad<acltdtQueueRoute>(), ACL_TDT_QUEUE_ROUTE_SRC_UINT32,
                                                             4, w.out.As<size_t>(), w.out.handle(1))),
                        ROW(107017, acltdtAddQueueRoute(w.list, w.Bad<acltdtQueueRoute>())),
                    });
  }
  for (const Handle& bad : world_.BadHandles("list")) {
    Everywhere(bad, {
                        ROW(107017, acltdtDestroyQueueRouteList(w.Bad<acltdtQueueRouteList>())),
                        ROW(107017, acltdtAddQueueRoute(w.Bad<acltdtQueueRouteList>(), w.route)),
                        ROW(107017, acltdtGetQueueRoute(w.Bad<acltdtQueueRouteList>(), 0, w.route)),
                        ROW(107017, acltdtBindQueueRoutes(w.Bad<acltdtQueueRouteList>())),
                        ROW(107017, acltdtUnbindQueueRoutes(w.Bad<acltdtQueueRouteList>())),
                    });
    EXPECT_EQ(0u, acltdtGetQueueRouteNum(static_cast<acltdtQueueRouteList*>(bad.handle)));
  }
  for (const Handle& bad : world_.BadHandles("query")) {
    Everywhere(bad, {
                        ROW(107017, acltdtDestroyQueueRouteQueryInfo(w.Bad<acltdtQueueRouteQueryInfo>())),
                        ROW(107017, acltdtQueryQueueRoutes(w.Bad<acltdtQueueRouteQueryInfo>(), w.list)),
                        ROW(107017, acltdtSetQueueRouteQueryInfo(w.Bad<acltdtQueueRouteQueryInfo>(),
                                                                 ACL_TDT_QUEUE_ROUTE_QUERY_SRC_ID_UINT32, 4, &w.local)),
                    });
  }
}

TEST_F(TdtMisuse, BadObjectsOfChannels) {
  for (const Handle& bad : world_.BadHandles("item")) {
    Everywhere(
        bad,
        {
            ROW(107017, acltdtDestroyDataItem(w.Bad<acltdtDataItem>())),
            ROW(107017, acltdtGetDimsFromItem(w.Bad<acltdtDataItem>(), w.out.As<int64_t>(), 1)),
            ROW(107017, acltdtGetSliceInfoFromItem(w.Bad<acltdtDataItem>(), w.out.As<size_t>(), w.out.As<size_t>(1))),
            ROW(107017, acltdtAddDataItem(w.dataset, w.Bad<acltdtDataItem>())),
        });
    auto* item = static_cast<acltdtDataItem*>(bad.handle);
    EXPECT_EQ(ACL_TENSOR_DATA_UNDEFINED, acltdtGetTensorTypeFromItem(item));
    EXPECT_EQ(ACL_DT_UNDEFINED, acltdtGetDataTypeFromItem(item));
    EXPECT_EQ(0u, acltdtGetDataSizeFromItem(item));
    EXPECT_EQ(0u, acltdtGetDimNumFromItem(item));
    EXPECT_NONE(107017, acltdtGetDataAddrFromItem(item));
  }
  for (const Handle& bad : world_.BadHandles("dataset")) {
    Everywhere(bad, {
                        ROW(107017, acltdtDestroyDataset(w.Bad<acltdtDataset>())),
                        ROW(107017, acltdtAddDataItem(w.Bad<acltdtDataset>(), w.item)),
                        ROW(107017, acltdtSendTensor(w.channel, w.Bad<acltdtDataset>(), -1)),
                        ROW(107017, acltdtReceiveTensor(w.channel, w.Bad<acltdtDataset>(), -1)),
                    });
    auto* dataset = static_cast<acltdtDataset*>(bad.handle);
    EXPECT_EQ(0u, acltdtGetDatasetSize(dataset));
    EXPECT_NONE(107017, acltdtGetDataItem(dataset, 0));
    EXPECT_NONE(107017, acltdtGetDatasetName(dataset));
  }
  for (const Handle& bad : world_.BadHandles("channel")) {
    Everywhere(bad, {
                        ROW(107017, acltdtDestroyChannel(w.Bad<acltdtChannelHandle>())),
                        ROW(107017, acltdtStopChannel(w.Bad<acltdtChannelHandle>())),
                        ROW(107017, acltdtCleanChannel(w.Bad<acltdtChannelHandle>())),
                        ROW(107017, acltdtSendTensor(w.Bad<acltdtChannelHandle>(), w.dataset, -1)),
                        ROW(107017, acltdtReceiveTensor(w.Bad<acltdtChannelHandle>(), w.empty, -1)),
                        ROW(107017, acltdtQueryChannelSize(w.Bad<acltdtChannelHandle>(), w.out.As<size_t>())),
                    });
  }
}

TEST_F(TdtMisuse, BadQueues) {
  const uint32_t dead = NewQueue(1);
  MUST(acltdtDestroyQueue(dead));
  for (const uint32_t id : {dead, world_.queue + 1000, UINT32_MAX}) {
    world_.bad_queue = id;
    Everywhere({
        ROW(100032, acltdtDestroyQueue(w.bad_queue)),
        ROW(100032, acltdtEnqueue(w.bad_queue, w.buf, -1)),
        ROW(100032, acltdtDequeue(w.bad_queue, w.out.handle(), -1)),
        ROW(100032, acltdtEnqueueData(w.bad_queue, &w.local, 8, nullptr, 0, -1, 0)),
        ROW(100032, acltdtDequeueData(w.bad_queue, w.out.handle(), 8, w.out.As<size_t>(1), nullptr, 0, -1)),
        ROW(100032, acltdtGrantQueue(w.bad_queue, getpid(), 1, -1)),
        ROW(100032, acltdtAttachQueue(w.bad_queue, -1, w.out.As<uint32_t>())),
    });
  }
}

// Anything at all, with live and stale handles: no crash, no wait without end, a message for each refusal.
TEST_F(TdtMisuse, RandomCalls) {
  std::vector<void*> handles{nullptr, world_.memory, &world_.local, Address(1)};
  for (const Handle& handle : world_.live) {
    // The world's own objects stay; those of other sorts are wrong here.
    const bool taken =
        handle.kind == "queue buffer" || handle.kind == "item" || handle.kind == "dataset" || handle.kind == "channel";
    if (!taken) handles.push_back(handle.handle);
  }
  for (const Handle& handle : world_.dead) handles.push_back(handle.handle);
  const size_t buffers = tdt::LiveBuffers();
  const tdt::ChannelCounts objects = tdt::LiveChannelObjects();
  for (const uint64_t seed : Seeds(Loops(8, 2))) {
    std::vector<void*> bufs = handles, items = handles, datasets = handles, channels = handles;
    std::vector<uint32_t> queues{world_.queue, UINT32_MAX};
    const std::vector<int32_t> waits{0, 0, 0, 1, -2};
    const std::vector<size_t> sizes{0, 1, 8, 96, 97, SIZE_MAX};
    char room[256] = "";
    size_t size = 0;
    uint32_t count = 0;
    void* pointer = nullptr;
    const auto keep = [&pointer](std::vector<void*>& all, int code) {
      if (code == 0) all.push_back(pointer);
      return code;
    };
    const std::vector<RandomCall> calls{
        {"acltdtAllocBuf",
         [&](Dice& d) {
           return keep(bufs, acltdtAllocBuf(d.Pick(sizes), static_cast<uint32_t>(d.Below(3)), &pointer));
         }},
        {"aclrtCopyBufRef", [&](Dice& d) { return keep(bufs, aclrtCopyBufRef(d.Pick(bufs), &pointer)); }},
        {"acltdtAppendBufChain", [&](Dice& d) { return acltdtAppendBufChain(d.Pick(bufs), d.Pick(bufs)); }},
        {"acltdtGetBufFromChain",
         [&](Dice& d) {
           return keep(bufs, acltdtGetBufFromChain(d.Pick(bufs), static_cast<uint32_t>(d.Below(3)), &pointer));
         }},
        {"aclrtGetBufChainNum", [&](Dice& d) { return aclrtGetBufChainNum(d.Pick(bufs), &count); }},
        {"aclrtSetBufDataLen", [&](Dice& d) { return aclrtSetBufDataLen(d.Pick(bufs), d.Pick(sizes)); }},
        {"acltdtGetBufUserData",
         [&](Dice& d) { return acltdtGetBufUserData(d.Pick(bufs), room, d.Pick(sizes), d.Pick(sizes)); }},
        {"acltdtFreeBuf", [&](Dice& d) { return acltdtFreeBuf(d.Pick(bufs)); }},
        {"acltdtEnqueue", [&](Dice& d) { return acltdtEnqueue(d.Pick(queues), d.Pick(bufs), d.Pick(waits)); }},
        {"acltdtDequeue", [&](Dice& d) { return keep(bufs, acltdtDequeue(d.Pick(queues), &pointer, d.Pick(waits))); }},
        {"acltdtEnqueueData",
         [&](Dice& d) {
           const size_t bytes = d.Pick(std::vector<size_t>{0, 1, 200, SIZE_MAX});
           return acltdtEnqueueData(d.Pick(queues), room, bytes, room, d.Pick(sizes), d.Pick(waits), 0);
         }},
        {"acltdtDequeueData",
         [&](Dice& d) {
           return acltdtDequeueData(d.Pick(queues), room, d.Pick(std::vector<size_t>{0, 8, 150}), &size, nullptr, 0,
                                    d.Pick(waits));
         }},
        {"acltdtDestroyQueue",
         [&](Dice& d) { return acltdtDestroyQueue(d.Below(5) == 0 ? queues.back() : UINT32_MAX); }},
        {"acltdtCreateQueue",
         [&](Dice&) {
           const uint32_t id = NewQueue(2);
           queues.push_back(id);
           return 0;
         }},
        {"acltdtBindQueueRoutes",
         [&](Dice& d) {
           RouteList list{{d.Pick(queues), d.Pick(queues)}, {d.Pick(queues), d.Pick(queues)}};
           return acltdtBindQueueRoutes(list);
         }},
        {"acltdtUnbindQueueRoutes",
         [&](Dice& d) {
           RouteList list{{d.Pick(queues), d.Pick(queues)}};
           return acltdtUnbindQueueRoutes(list);
         }},
        {"acltdtCreateDataItem",
         [&](Dice& d) {
           const int64_t dims[] = {static_cast<int64_t>(d.Below(3)), d.Below(9) == 0 ? INT64_MAX : 1};
           acltdtDataItem* item = acltdtCreateDataItem(d.PickEnum<acltdtTensorType>({-1, 0, 1, 5}), dims, 2,
                                                       d.PickEnum<aclDataType>({-1, 2, 5, 99}), room, d.Pick(sizes));
           if (item == nullptr) return 100000;
           items.push_back(item);
           return 0;
         }},
        {"acltdtDestroyDataItem",
         [&](Dice& d) { return acltdtDestroyDataItem(static_cast<acltdtDataItem*>(d.Pick(items))); }},
        {"acltdtCreateDataset",
         [&](Dice&) {
           datasets.push_back(acltdtCreateDataset());
           return 0;
         }},
        {"acltdtAddDataItem",
         [&](Dice& d) {
           return acltdtAddDataItem(static_cast<acltdtDataset*>(d.Pick(datasets)),
                                    static_cast<acltdtDataItem*>(d.Pick(items)));
         }},
        {"acltdtDestroyDataset",
         [&](Dice& d) { return acltdtDestroyDataset(static_cast<acltdtDataset*>(d.Pick(datasets))); }},
        {"acltdtCreateChannel",
         [&](Dice& d) {
           channels.push_back(acltdtCreateChannel(0, d.Below(2) == 0 ? "one" : "two"));
           return 0;
         }},
        {"acltdtDestroyChannel",
         [&](Dice& d) { return acltdtDestroyChannel(static_cast<acltdtChannelHandle*>(d.Pick(channels))); }},
        {"acltdtStopChannel",
         [&](Dice& d) {
           auto* channel = static_cast<acltdtChannelHandle*>(d.Pick(channels));
           return d.Below(10) == 0 ? acltdtStopChannel(channel) : acltdtStopChannel(nullptr);
         }},
        {"acltdtSendTensor",
         [&](Dice& d) {
           return acltdtSendTensor(static_cast<acltdtChannelHandle*>(d.Pick(channels)),
                                   static_cast<acltdtDataset*>(d.Pick(datasets)), d.Pick(waits));
         }},
        {"acltdtReceiveTensor",
         [&](Dice& d) {
           auto* dataset = static_cast<acltdtDataset*>(d.Pick(datasets));
           const int code =
               acltdtReceiveTensor(static_cast<acltdtChannelHandle*>(d.Pick(channels)), dataset, d.Pick(waits));
           if (code == 0) items.push_back(acltdtGetDataItem(dataset, 0));
           return code;
         }},
    };
    RunRandomCalls(seed, Loops(3000, 600), calls);
    // The rest goes; what is stale by now is refused.
    for (const uint32_t queue : queues) {
      if (queue != world_.queue) (void)acltdtDestroyQueue(queue);
    }
    while (acltdtDequeue(world_.queue, &pointer, 0) == 0) bufs.push_back(pointer);
    for (int pass = 0; pass < 2; ++pass) {
      for (void* buf : bufs) {
        (void)acltdtFreeBuf(buf);
      }
    }
    for (void* dataset : datasets) {
      (void)acltdtDestroyDataset(static_cast<acltdtDataset*>(dataset));
    }
    for (void* channel : channels) {
      (void)acltdtDestroyChannel(static_cast<acltdtChannelHandle*>(channel));
    }
    for (void* item : items) {
      (void)acltdtDestroyDataItem(static_cast<acltdtDataItem*>(item));
    }
    MUST(acltdtCleanChannel(world_.channel));
    DropMessage();
    EXPECT_EQ(tdt::LiveBuffers(), buffers);
    EXPECT_EQ(tdt::LiveChannelObjects(), objects);
  }
}

}  // namespace
}  // namespace reprise::testing
