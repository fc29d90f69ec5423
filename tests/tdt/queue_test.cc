// SPDX-License-Identifier: Apache-2.0
//
// Queues of buffers: attributes, enqueuing and dequeuing, rights, routes.
#include <atomic>
#include <mutex>

#include "fixture.h"

namespace reprise::testing {
namespace {

class QueueTest : public Runtime {};

constexpr acltdtQueueAttrType kNoAttribute = static_cast<acltdtQueueAttrType>(2);

TEST_F(QueueTest, Attributes) {
  acltdtQueueAttr* attr = acltdtCreateQueueAttr();
  ASSERT_NE(attr, nullptr);
  uint32_t depth = 0;
  const char* name = nullptr;
  size_t size = 0;
  MUST(acltdtGetQueueAttr(attr, ACL_TDT_QUEUE_DEPTH_UINT32, sizeof depth, &size, &depth));
  EXPECT_EQ(depth, 128u);
  EXPECT_EQ(size, sizeof depth);
  MUST(acltdtGetQueueAttr(attr, ACL_TDT_QUEUE_NAME_PTR, sizeof name, &size, &name));
  EXPECT_STREQ(name, "");
  EXPECT_EQ(size, sizeof name);
  std::string text(127, 'q');
  name = text.c_str();
  depth = 65536;
  MUST(acltdtSetQueueAttr(attr, ACL_TDT_QUEUE_NAME_PTR, sizeof name, &name));
  MUST(acltdtSetQueueAttr(attr, ACL_TDT_QUEUE_DEPTH_UINT32, sizeof depth, &depth));
  const std::string copy = text;
  text.assign(127, 'z');
  // Refused calls change nothing.
  const std::string long_text(128, 'l');
  const char *too_long = long_text.c_str(), *none = nullptr, *empty = "";
  const uint32_t zero = 0, too_deep = 65537;
  EXPECT_ACL(100000, acltdtSetQueueAttr(attr, ACL_TDT_QUEUE_NAME_PTR, sizeof name, &too_long));
  EXPECT_ACL(100000, acltdtSetQueueAttr(attr, ACL_TDT_QUEUE_NAME_PTR, sizeof name, &none));
  EXPECT_ACL(100000, acltdtSetQueueAttr(attr, ACL_TDT_QUEUE_NAME_PTR, sizeof name, &empty));
  EXPECT_ACL(100000, acltdtSetQueueAttr(attr, ACL_TDT_QUEUE_NAME_PTR, 4, &name));
  EXPECT_ACL(100000, acltdtSetQueueAttr(attr, ACL_TDT_QUEUE_DEPTH_UINT32, sizeof zero, &zero));
  EXPECT_ACL(100000, acltdtSetQueueAttr(attr, ACL_TDT_QUEUE_DEPTH_UINT32, sizeof too_deep, &too_deep));
  EXPECT_ACL(100000, acltdtSetQueueAttr(attr, ACL_TDT_QUEUE_DEPTH_UINT32, 8, &depth));
  EXPECT_ACL(100000, acltdtSetQueueAttr(attr, kNoAttribute, 4, &depth));
  EXPECT_ACL(100000, acltdtGetQueueAttr(attr, kNoAttribute, 8, &size, &depth));
  EXPECT_ACL(100000, acltdtGetQueueAttr(attr, ACL_TDT_QUEUE_DEPTH_UINT32, 3, &size, &depth));
  depth = 0;
  MUST(acltdtGetQueueAttr(attr, ACL_TDT_QUEUE_NAME_PTR, 64, &size, &name));
  EXPECT_EQ(name, copy);
  MUST(acltdtGetQueueAttr(attr, ACL_TDT_QUEUE_DEPTH_UINT32, sizeof depth, &size, &depth));
  EXPECT_EQ(depth, 65536u);
  MUST(acltdtDestroyQueueAttr(attr));
  EXPECT_ACL(107017, acltdtDestroyQueueAttr(attr));
}

TEST_F(QueueTest, BuffersPassInOrder) {
  const uint32_t queue = NewQueue(3);
  acltdtBuf out = nullptr;
  EXPECT_ACL(207013, acltdtDequeue(queue, &out, 0));
  acltdtBuf in[3];
  for (int i = 0; i < 3; ++i) {
    in[i] = NumberBuf(i);
    MUST(acltdtEnqueue(queue, in[i], 0));
    EXPECT_ACL(107017, acltdtFreeBuf(in[i])) << "belongs to the queue";
  }
  const acltdtBuf late = NumberBuf(3);
  EXPECT_ACL(207014, acltdtEnqueue(queue, late, 0));
  EXPECT_ACL(207014, acltdtEnqueue(queue, late, 5));
  for (int i = 0; i < 3; ++i) {
    MUST(acltdtDequeue(queue, &out, 0));
    EXPECT_NE(out, in[i]) << "a handle of its own";
    EXPECT_EQ(TakeNumber(out), i);
  }
  EXPECT_EQ(TakeNumber(late), 3) << "was refused, so it is still ours";
  EXPECT_ACL(207013, acltdtDequeue(queue, &out, 5));
  EXPECT_ACL(100000, acltdtDequeue(queue, &out, -2));
  MUST(acltdtDestroyQueue(queue));
  EXPECT_ACL(100032, acltdtDestroyQueue(queue));
}

TEST_F(QueueTest, ChainsAndUserAreasPass) {
  const uint32_t queue = NewQueue(1);
  const acltdtBuf head = NumberBuf(10), member = NumberBuf(20);
  MUST(acltdtAppendBufChain(head, member));
  MUST(acltdtSetBufUserData(head, "hello", 6, 0));
  EXPECT_ACL(107000, acltdtEnqueue(queue, member, 0)) << "not a head";
  MUST(acltdtEnqueue(queue, head, 0));
  size_t length = 0;
  EXPECT_ACL(107017, acltdtGetBufDataLen(head, &length));
  EXPECT_ACL(107017, acltdtGetBufDataLen(member, &length));
  acltdtBuf out = nullptr, second = nullptr;
  MUST(acltdtDequeue(queue, &out, 0));
  uint32_t count = 0;
  MUST(acltdtGetBufChainNum(out, &count));
  EXPECT_EQ(count, 2u);
  MUST(acltdtGetBufFromChain(out, 1, &second));
  EXPECT_NE(second, member);
  char user[6] = "";
  MUST(acltdtGetBufUserData(out, user, sizeof user, 0));
  EXPECT_STREQ(user, "hello");
  // As data: the bytes of the chain one behind the other.
  MUST(acltdtEnqueue(queue, out, 0));
  int64_t numbers[3] = {-1, -1, -1};
  size_t size = 77;
  EXPECT_ACL(100000, acltdtDequeueData(queue, numbers, 15, &size, nullptr, 0, 0)) << "too small";
  EXPECT_EQ(numbers[0], -1);
  EXPECT_EQ(size, 77u);
  char part[3] = "";
  MUST(acltdtDequeueData(queue, numbers, sizeof numbers, &size, part, 2, 0));
  EXPECT_EQ(size, 16u);
  EXPECT_EQ(numbers[0], 10);
  EXPECT_EQ(numbers[1], 20);
  EXPECT_EQ(numbers[2], -1);
  EXPECT_STREQ(part, "he");
  MUST(acltdtDestroyQueue(queue));
}

TEST_F(QueueTest, DataIsCopied) {
  const uint32_t queue = NewQueue(2);
  char data[] = "payload", user[] = "mark";
  MUST(acltdtEnqueueData(queue, data, sizeof data, user, sizeof user, 0, 0));
  data[0] = user[0] = '?';
  acltdtBuf buf = nullptr;
  MUST(acltdtDequeue(queue, &buf, 0));
  void* address = nullptr;
  size_t capacity = 0, length = 0;
  MUST(acltdtGetBufData(buf, &address, &capacity));
  MUST(acltdtGetBufDataLen(buf, &length));
  EXPECT_EQ(length, sizeof data);
  EXPECT_STREQ(static_cast<char*>(address), "payload");
  char read[sizeof user] = "";
  MUST(acltdtGetBufUserData(buf, read, sizeof read, 0));
  EXPECT_STREQ(read, "mark");
  MUST(acltdtFreeBuf(buf));
  char big[97] = "";
  EXPECT_ACL(100000, acltdtEnqueueData(queue, nullptr, 8, nullptr, 0, 0, 0));
  EXPECT_ACL(100000, acltdtEnqueueData(queue, data, 0, nullptr, 0, 0, 0));
  EXPECT_ACL(100000, acltdtEnqueueData(queue, data, 8, big, 97, 0, 0));
  EXPECT_ACL(100000, acltdtEnqueueData(queue, data, 8, nullptr, 1, 0, 0));
  EXPECT_ACL(100000, acltdtEnqueueData(queue, data, 8, nullptr, 0, 0, 1));
  EXPECT_ACL(207001, acltdtEnqueueData(queue, data, SIZE_MAX, nullptr, 0, 0, 0));
  EXPECT_ACL(207013, acltdtDequeueData(queue, data, 8, &length, nullptr, 0, 0)) << "nothing came in";
  MUST(acltdtDestroyQueue(queue));
}

TEST_F(QueueTest, DestroyFreesWhatIsLeft) {
  const uint32_t queue = NewQueue(4);
  const acltdtBuf buf = NumberBuf(1);
  acltdtBuf twin = nullptr;
  MUST(acltdtCopyBufRef(buf, &twin));
  MUST(acltdtEnqueue(queue, buf, 0));
  MUST(PutNumber(queue, 2));
  MUST(acltdtDestroyQueue(queue));
  EXPECT_EQ(TakeNumber(twin), 1) << "a reference of its own";
  const uint32_t later = NewQueue(1);
  EXPECT_NE(later, queue) << "ids are not used again";
  MUST(acltdtDestroyQueue(later));
}

TEST_F(QueueTest, NeedsAContextToBeMade) {
  acltdtQueueAttr* attr = acltdtCreateQueueAttr();
  uint32_t queue = 5;
  std::thread([&] { EXPECT_ACL(107002, acltdtCreateQueue(attr, &queue)); }).join();
  EXPECT_EQ(queue, 5u);
  MUST(acltdtCreateQueue(attr, &queue));
  std::thread([&] {
    // Its use needs none.
    EXPECT_EQ(0, PutNumber(queue, 1));
    EXPECT_EQ(1, GetNumber(queue));
  }).join();
  MUST(acltdtDestroyQueue(queue));
  MUST(acltdtDestroyQueueAttr(attr));
}

TEST_F(QueueTest, RightsAreThoseOfThisProcess) {
  const uint32_t queue = NewQueue(1);
  const int32_t self = getpid();
  MUST(acltdtGrantQueue(queue, self, ACL_TDT_QUEUE_PERMISSION_DEQUEUE, 0));
  uint32_t rights = 0;
  MUST(acltdtAttachQueue(queue, -1, &rights));
  EXPECT_EQ(rights,
            ACL_TDT_QUEUE_PERMISSION_MANAGE | ACL_TDT_QUEUE_PERMISSION_DEQUEUE | ACL_TDT_QUEUE_PERMISSION_ENQUEUE);
  EXPECT_ACL(207000, acltdtGrantQueue(queue, self + 1, ACL_TDT_QUEUE_PERMISSION_DEQUEUE, 0));
  EXPECT_ACL(207000, acltdtGrantQueue(queue, -1, ACL_TDT_QUEUE_PERMISSION_DEQUEUE, 0));
  EXPECT_ACL(100000, acltdtGrantQueue(queue, self, 0, 0));
  EXPECT_ACL(100000, acltdtGrantQueue(queue, self, 8, 0));
  EXPECT_ACL(100000, acltdtGrantQueue(queue, self, 1, -5));
  EXPECT_ACL(100000, acltdtAttachQueue(queue, -5, &rights));
  EXPECT_ACL(100000, acltdtAttachQueue(queue, 0, nullptr));
  MUST(acltdtDestroyQueue(queue));
  EXPECT_ACL(100032, acltdtGrantQueue(queue, self, 1, 0));
  EXPECT_ACL(100032, acltdtAttachQueue(queue, 0, &rights));
}

TEST_F(QueueTest, DestroyWakesWaiters) {
  for (int round = 0; round < Loops(200, 30); ++round) {
    const uint32_t queue = NewQueue(1);
    const bool enqueues = round % 2 == 0;
    if (enqueues) {
      ASSERT_EQ(0, PutNumber(queue, 0));
    }
    std::atomic<int> started{0};
    std::vector<std::thread> threads;
    const acltdtBuf mine = NumberBuf(42);
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        started.fetch_add(1);
        acltdtBuf out = nullptr;
        int64_t number = 0;
        size_t size = 0;
        if (enqueues) {
          EXPECT_EQ(100032, i == 0 ? acltdtEnqueue(queue, mine, -1) : PutNumber(queue, i, -1));
        } else {
          EXPECT_EQ(100032, i == 0 ? acltdtDequeue(queue, &out, -1)
                                   : acltdtDequeueData(queue, &number, sizeof number, &size, nullptr, 0, -1));
        }
      });
    }
    while (started.load() < 3) std::this_thread::yield();
    for (int i = 0; i < round; ++i) std::this_thread::yield();
    ASSERT_EQ(0, acltdtDestroyQueue(queue));
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(42, TakeNumber(mine)) << "came back";
  }
  DropMessage();
}

// A buffer that one call is still giving away belongs to that call.
TEST_F(QueueTest, BufferIsLockedWhileItWaitsForRoom) {
  const uint32_t queue = NewQueue(1);
  MUST(PutNumber(queue, 1));
  const acltdtBuf buf = NumberBuf(2);
  std::atomic<bool> sent{false};
  std::thread sender([&] {
    EXPECT_EQ(0, acltdtEnqueue(queue, buf, kLong));
    sent = true;
  });
  size_t length = 0;
  while (acltdtGetBufDataLen(buf, &length) == 0 && !sent) std::this_thread::yield();
  EXPECT_FALSE(sent) << "there was no room";
  EXPECT_ACL(107017, acltdtFreeBuf(buf));
  EXPECT_ACL(107017, acltdtEnqueue(queue, buf, 0));
  EXPECT_EQ(1, GetNumber(queue));
  sender.join();
  EXPECT_EQ(2, GetNumber(queue));
  MUST(acltdtDestroyQueue(queue));
}

// Every number arrives once, those of one producer in their order.
TEST_F(QueueTest, ManyProducersAndConsumers) {
  constexpr int kProducers = 3, kConsumers = 3;
  const int each = Loops(3000, 300);
  const uint32_t queue = NewQueue(5);
  std::vector<std::atomic<int>> seen(static_cast<size_t>(kProducers * each));
  std::atomic<int> left = kProducers * each;
  std::vector<std::thread> threads;
  for (int p = 0; p < kProducers; ++p) {
    threads.emplace_back([&, p] {
      ASSERT_EQ(0, aclrtSetDevice(0));
      for (int i = 0; i < each; ++i) {
        const int64_t number = int64_t{p} * each + i;
        ASSERT_EQ(0, i % 2 == 0 ? acltdtEnqueue(queue, NumberBuf(number), kLong) : PutNumber(queue, number, kLong));
      }
    });
  }
  for (int c = 0; c < kConsumers; ++c) {
    threads.emplace_back([&] {
      std::vector<int64_t> last(kProducers, -1);
      while (left.fetch_sub(1) > 0) {
        acltdtBuf buf = nullptr;
        ASSERT_EQ(0, acltdtDequeue(queue, &buf, kLong));
        const int64_t number = TakeNumber(buf);
        const auto producer = static_cast<size_t>(number / each);
        ASSERT_GT(number, last[producer]);
        last[producer] = number;
        seen[static_cast<size_t>(number)].fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](const std::atomic<int>& count) { return count == 1; }));
  MUST(acltdtDestroyQueue(queue));
}

// ---- Routes ----

class RouteTest : public QueueTest {
 protected:
  static std::vector<RouteList::Entry> Query(int mode, uint32_t source, uint32_t destination) {
    acltdtQueueRouteQueryInfo* info = acltdtCreateQueueRouteQueryInfo();
    const auto value = static_cast<acltdtQueueRouteQueryMode>(mode);
    EXPECT_EQ(0, acltdtSetQueueRouteQueryInfo(info, ACL_TDT_QUEUE_ROUTE_QUERY_MODE_ENUM, sizeof value, &value));
    EXPECT_EQ(0, acltdtSetQueueRouteQueryInfo(info, ACL_TDT_QUEUE_ROUTE_QUERY_SRC_ID_UINT32, 4, &source));
    EXPECT_EQ(0, acltdtSetQueueRouteQueryInfo(info, ACL_TDT_QUEUE_ROUTE_QUERY_DST_ID_UINT32, 4, &destination));
    RouteList list{{1000, 1001}};  // is replaced
    EXPECT_EQ(0, acltdtQueryQueueRoutes(info, list));
    EXPECT_EQ(0, acltdtDestroyQueueRouteQueryInfo(info));
    return list.entries();
  }
};

TEST_F(RouteTest, HandsOn) {
  const uint32_t a = NewQueue(4), b = NewQueue(2);
  MUST(PutNumber(a, 1));  // before the route is bound
  RouteList list{{a, b}};
  EXPECT_EQ(list.entries(), (std::vector<RouteList::Entry>{{a, b, ACL_TDT_QUEUE_ROUTE_UNBIND}}));
  MUST(acltdtBindQueueRoutes(list));
  MUST(acltdtBindQueueRoutes(list)) << "a second time changes nothing";
  EXPECT_EQ(list.entries(), (std::vector<RouteList::Entry>{{a, b, ACL_TDT_QUEUE_ROUTE_BIND}}));
  // b holds two, a holds the rest.
  for (int i = 2; i <= 6; ++i) MUST(PutNumber(a, i));
  EXPECT_EQ(207014, PutNumber(a, 7));
  acltdtBuf buf = nullptr;
  for (int i = 1; i <= 6; ++i) {
    MUST(acltdtDequeue(b, &buf, 0));
    EXPECT_EQ(TakeNumber(buf), i);
  }
  EXPECT_ACL(207013, acltdtDequeue(b, &buf, 0));
  MUST(acltdtUnbindQueueRoutes(list));
  EXPECT_EQ(list.entries(), (std::vector<RouteList::Entry>{{a, b, ACL_TDT_QUEUE_ROUTE_UNBIND}}));
  EXPECT_ACL(100000, acltdtUnbindQueueRoutes(list));
  MUST(PutNumber(a, 8));
  EXPECT_ACL(207013, acltdtDequeue(b, &buf, 0));
  EXPECT_EQ(GetNumber(a), 8);
  MUST(acltdtDestroyQueue(a));
  MUST(acltdtDestroyQueue(b));
}

TEST_F(RouteTest, GoesToAllDestinationsTogether) {
  const uint32_t a = NewQueue(1), b = NewQueue(2), c = NewQueue(1);
  RouteList list{{a, b}, {a, c}};
  MUST(acltdtBindQueueRoutes(list));
  const acltdtBuf head = NumberBuf(1);
  MUST(acltdtAppendBufChain(head, NumberBuf(2)));
  MUST(acltdtEnqueue(a, head, 0));
  MUST(PutNumber(a, 3));  // waits in a until c has room
  EXPECT_EQ(207014, PutNumber(a, 4));
  int64_t numbers[2] = {};
  size_t size = 0;
  MUST(acltdtDequeueData(b, numbers, sizeof numbers, &size, nullptr, 0, 0));
  EXPECT_EQ(size, 16u);
  EXPECT_EQ(numbers[1], 2);
  acltdtBuf buf = nullptr;
  EXPECT_ACL(207013, acltdtDequeue(b, &buf, 0));
  MUST(acltdtDequeue(c, &buf, 0));
  uint32_t count = 0;
  MUST(acltdtGetBufChainNum(buf, &count));
  EXPECT_EQ(count, 2u);
  MUST(acltdtFreeBuf(buf));
  EXPECT_EQ(GetNumber(b), 3);
  EXPECT_EQ(GetNumber(c), 3);
  for (const uint32_t queue : {a, b, c}) MUST(acltdtDestroyQueue(queue));
}

TEST_F(RouteTest, LinesAndConfluences) {
  const uint32_t a = NewQueue(1), b = NewQueue(1), c = NewQueue(1), d = NewQueue(1);
  RouteList list{{a, c}, {b, c}, {c, d}};
  MUST(acltdtBindQueueRoutes(list));
  for (int i = 0; i < 3; ++i) MUST(PutNumber(a, i));  // 0 in d, 1 in c, 2 in a
  EXPECT_EQ(207014, PutNumber(a, 3));
  MUST(PutNumber(b, 3));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(GetNumber(d), i);
  const int64_t last = GetNumber(d) + GetNumber(d);
  EXPECT_EQ(last, 5) << "2 and 3 in any order";
  for (const uint32_t queue : {a, b, c, d}) MUST(acltdtDestroyQueue(queue));
}

TEST_F(RouteTest, AllOrNone) {
  const uint32_t a = NewQueue(1), b = NewQueue(1), c = NewQueue(1);
  RouteList empty, stale{{a, b}, {b, 4'000'000'000}}, self{{a, a}}, circle{{a, b}, {b, c}, {c, a}};
  EXPECT_ACL(100000, acltdtBindQueueRoutes(empty));
  EXPECT_ACL(100000, acltdtUnbindQueueRoutes(empty));
  EXPECT_ACL(100032, acltdtBindQueueRoutes(stale));
  EXPECT_ACL(100000, acltdtBindQueueRoutes(self));
  EXPECT_ACL(100000, acltdtBindQueueRoutes(circle));
  EXPECT_TRUE(Query(ACL_TDT_QUEUE_ROUTE_QUERY_SRC, a, 0).empty());
  EXPECT_EQ(circle.entries()[0].status, static_cast<int32_t>(ACL_TDT_QUEUE_ROUTE_UNBIND));
  RouteList good{{a, b}, {b, c}}, back{{c, a}};
  MUST(acltdtBindQueueRoutes(good));
  EXPECT_ACL(100000, acltdtBindQueueRoutes(back));
  EXPECT_ACL(100000, acltdtUnbindQueueRoutes(circle)) << "one of them is not bound";
  EXPECT_EQ(Query(ACL_TDT_QUEUE_ROUTE_QUERY_SRC, a, 0).size(), 1u);
  MUST(acltdtUnbindQueueRoutes(good));
  MUST(acltdtBindQueueRoutes(back));
  MUST(acltdtDestroyQueue(a));
  MUST(acltdtUnbindQueueRoutes(back)) << "a broken one";
  for (const uint32_t queue : {b, c}) MUST(acltdtDestroyQueue(queue));
}

TEST_F(RouteTest, QueriesAndBrokenRoutes) {
  const uint32_t a = NewQueue(1), b = NewQueue(2), c = NewQueue(1);
  RouteList list{{a, b}, {a, c}, {b, c}};
  MUST(acltdtBindQueueRoutes(list));
  constexpr int32_t kBound = ACL_TDT_QUEUE_ROUTE_BIND, kBroken = ACL_TDT_QUEUE_ROUTE_BIND_ABNORMAL;
  using Entries = std::vector<RouteList::Entry>;
  EXPECT_EQ(Query(ACL_TDT_QUEUE_ROUTE_QUERY_SRC, a, 0), (Entries{{a, b, kBound}, {a, c, kBound}}));
  EXPECT_EQ(Query(ACL_TDT_QUEUE_ROUTE_QUERY_DST, 0, c), (Entries{{a, c, kBound}, {b, c, kBound}}));
  EXPECT_EQ(Query(ACL_TDT_QUEUE_ROUTE_QUERY_SRC_AND_DST, a, c), (Entries{{a, c, kBound}}));
  EXPECT_TRUE(Query(ACL_TDT_QUEUE_ROUTE_QUERY_SRC_AND_DST, c, a).empty());
  EXPECT_TRUE(Query(ACL_TDT_QUEUE_ROUTE_QUERY_ABNORMAL, 0, 0).empty());
  MUST(PutNumber(c, 1));  // full: holds up a and b
  MUST(PutNumber(a, 2));
  MUST(acltdtDestroyQueue(c));
  EXPECT_EQ(GetNumber(b), 2) << "c holds up nobody any more";
  const Entries broken = Query(ACL_TDT_QUEUE_ROUTE_QUERY_ABNORMAL, 0, 0);
  EXPECT_EQ(broken, (Entries{{a, c, kBroken}, {b, c, kBroken}}));
  EXPECT_EQ(Query(ACL_TDT_QUEUE_ROUTE_QUERY_SRC, a, 0), (Entries{{a, b, kBound}, {a, c, kBroken}}));
  MUST(acltdtUnbindQueueRoutes(list));
  EXPECT_TRUE(Query(ACL_TDT_QUEUE_ROUTE_QUERY_ABNORMAL, 0, 0).empty());
  MUST(acltdtDestroyQueue(a));
  MUST(acltdtDestroyQueue(b));
}

TEST_F(RouteTest, LimitsOfRoutesAndQueues) {
  constexpr size_t kRoutes = 1024, kQueues = 8192;
  std::vector<uint32_t> queues;
  for (size_t i = 0; i < kQueues; ++i) queues.push_back(NewQueue(1));
  acltdtQueueAttr* attr = acltdtCreateQueueAttr();
  uint32_t none = 77;
  EXPECT_ACL(207005, acltdtCreateQueue(attr, &none));
  EXPECT_EQ(none, 77u);
  MUST(acltdtDestroyQueueAttr(attr));
  // A line, so that the search for circles has the longest way.
  RouteList line, too_many;
  const auto add = [](acltdtQueueRouteList* list, uint32_t from, uint32_t to) {
    acltdtQueueRoute* route = acltdtCreateQueueRoute(from, to);
    EXPECT_EQ(0, acltdtAddQueueRoute(list, route));
    EXPECT_EQ(0, acltdtDestroyQueueRoute(route));
  };
  for (size_t i = kRoutes; i-- > 0;) add(line, queues[i], queues[i + 1]);
  for (int repeat = 0; repeat < 20; ++repeat) add(line, queues[0], queues[1]);  // counts once
  for (size_t i = 0; i <= kRoutes; ++i) add(too_many, queues[i], queues[i + 1]);
  EXPECT_ACL(207005, acltdtBindQueueRoutes(too_many));
  MUST(acltdtBindQueueRoutes(line));
  EXPECT_ACL(207005, acltdtBindQueueRoutes(too_many)) << "one more";
  RouteList back{{queues[kRoutes], queues[0]}};
  EXPECT_ACL(100000, acltdtBindQueueRoutes(back));
  MUST(PutNumber(queues[0], 5));
  EXPECT_EQ(5, GetNumber(queues[kRoutes]));
  MUST(acltdtUnbindQueueRoutes(line));
  for (const uint32_t queue : queues) MUST(acltdtDestroyQueue(queue));
}

TEST_F(RouteTest, QueriesThatAskForNothing) {
  acltdtQueueRouteQueryInfo* info = acltdtCreateQueueRouteQueryInfo();
  RouteList list;
  EXPECT_ACL(100000, acltdtQueryQueueRoutes(info, list)) << "no mode";
  int mode = 3;
  EXPECT_ACL(100000, acltdtSetQueueRouteQueryInfo(info, ACL_TDT_QUEUE_ROUTE_QUERY_MODE_ENUM, sizeof mode, &mode));
  mode = ACL_TDT_QUEUE_ROUTE_QUERY_DST;
  EXPECT_ACL(100000, acltdtSetQueueRouteQueryInfo(info, ACL_TDT_QUEUE_ROUTE_QUERY_MODE_ENUM, 8, &mode));
  MUST(acltdtSetQueueRouteQueryInfo(info, ACL_TDT_QUEUE_ROUTE_QUERY_MODE_ENUM, sizeof mode, &mode));
  uint32_t id = 0;
  MUST(acltdtSetQueueRouteQueryInfo(info, ACL_TDT_QUEUE_ROUTE_QUERY_SRC_ID_UINT32, sizeof id, &id));
  EXPECT_ACL(100000, acltdtQueryQueueRoutes(info, list)) << "no destination";
  EXPECT_ACL(100000, acltdtSetQueueRouteQueryInfo(info, static_cast<acltdtQueueRouteQueryInfoParamType>(3), 4, &id));
  MUST(acltdtDestroyQueueRouteQueryInfo(info));
  EXPECT_ACL(107017, acltdtDestroyQueueRouteQueryInfo(info));
  acltdtQueueRoute* route = acltdtCreateQueueRoute(1, 2);
  size_t size = 0;
  EXPECT_ACL(100000, acltdtGetQueueRoute(list, 0, route));
  EXPECT_ACL(100000, acltdtGetQueueRouteParam(route, static_cast<acltdtQueueRouteParamType>(3), 4, &size, &id));
  EXPECT_ACL(100000, acltdtGetQueueRouteParam(route, ACL_TDT_QUEUE_ROUTE_DST_UINT32, 2, &size, &id));
  MUST(acltdtGetQueueRouteParam(route, ACL_TDT_QUEUE_ROUTE_DST_UINT32, 8, &size, &id));
  EXPECT_EQ(id, 2u);
  MUST(acltdtDestroyQueueRoute(route));
}

// Consumers at the end of a diamond see every number twice, while routes come and go.
TEST_F(RouteTest, ManyThreadsThroughADiamond) {
  const uint32_t a = NewQueue(4), b = NewQueue(3), c = NewQueue(2), d = NewQueue(4), aside = NewQueue(1);
  RouteList list{{a, b}, {a, c}, {b, d}, {c, d}};
  MUST(acltdtBindQueueRoutes(list));
  const int each = Loops(2000, 200);
  std::vector<std::atomic<int>> seen(static_cast<size_t>(2 * each));
  std::atomic<int> left = 4 * each;
  std::vector<std::thread> threads;
  for (int p = 0; p < 2; ++p) {
    threads.emplace_back([&, p] {
      for (int i = 0; i < each; ++i) ASSERT_EQ(0, PutNumber(a, p * each + i, kLong));
    });
    threads.emplace_back([&] {
      while (left.fetch_sub(1) > 0) {
        const int64_t number = GetNumber(d, kLong);
        ASSERT_GE(number, 0);
        seen[static_cast<size_t>(number)].fetch_add(1);
      }
    });
  }
  threads.emplace_back([&] {
    RouteList other{{d, aside}};
    for (int i = 0; i < each / 10; ++i) {
      ASSERT_EQ(0, PutNumber(aside, 0)) << "full, so that nothing leaves d for it";
      ASSERT_EQ(0, acltdtBindQueueRoutes(other));
      ASSERT_EQ(0, acltdtUnbindQueueRoutes(other));
      ASSERT_EQ(0, GetNumber(aside));
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](const std::atomic<int>& count) { return count == 2; }));
  for (const uint32_t queue : {a, b, c, d, aside}) MUST(acltdtDestroyQueue(queue));
  EXPECT_ACL(100000, acltdtUnbindQueueRoutes(list)) << "went with the queues";
}

}  // namespace
}  // namespace reprise::testing
