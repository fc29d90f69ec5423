// SPDX-License-Identifier: Apache-2.0
//
// Conditional tasks with collectives in their bodies, for ranks in processes of their own.
#include "conditions.h"
#include "process_ranks.h"

namespace reprise::testing {
namespace {

// Sums of all sorts: in the slots, through shared memory or the network, in pieces, of two steps and of one.
struct Work {
  explicit Work(const Rank& of, uint32_t ranks)
      : rank(of), n(ranks), recorder(of), small(4), large(300000), passed(300000), all(3000 * n) {}
  void Record() {
    const aclrtStream stream = recorder.stream();
    for (Buffer<int64_t>* data : {&small, &large})
      EXPECT_OK(HcclAllReduce(data->data(), data->data(), data->size(), HCCL_DATA_TYPE_INT64, HCCL_REDUCE_SUM,
                              rank.comm, stream));
    EXPECT_OK(HcclAllGather(large.data(), all.data(), 3000, HCCL_DATA_TYPE_INT64, rank.comm, stream));
    const auto next = static_cast<uint32_t>((rank.rank + 1) % n);
    const auto last = static_cast<uint32_t>((rank.rank + n - 1) % n);
    for (const size_t count : {small.size(), large.size()}) {
      HcclSendRecvItem items[] = {{HCCL_SEND, large.data(), count, HCCL_DATA_TYPE_INT64, next},
                                  {HCCL_RECV, passed.data(), count, HCCL_DATA_TYPE_INT64, last}};
      EXPECT_OK(HcclBatchSendRecv(items, 2, rank.comm, stream));
    }
    EXPECT_OK(HcclBroadcast(all.data(), 3000, HCCL_DATA_TYPE_INT64, n - 1, rank.comm, stream));
  }
  void Fill() {
    for (Buffer<int64_t>* data : {&small, &large, &all}) data->Fill([](size_t i) { return static_cast<int64_t>(i); });
  }
  void Expect(int rounds) {
    int64_t factor = 1;
    for (int i = 0; i < rounds; ++i) factor *= n;
    ASSERT_EQ(3 * factor, small[3]);
    ASSERT_EQ(299999 * factor, large[299999]);
    if (rounds != 0) {
      ASSERT_EQ(299999 * factor, passed[299999]);
      ASSERT_EQ(2999 * factor, all[3000 * n - 1]);
    }
  }

  const Rank rank;
  const int64_t n;
  Recorder recorder;
  Buffer<int64_t> small;
  Buffer<int64_t> large;
  Buffer<int64_t> passed;
  Buffer<int64_t> all;
};

}  // namespace

void RunConditions(const Arguments& arguments, bool differs) {
  Group group(arguments);
  Work work(group.me, arguments.ranks);
  uint64_t* loop = nullptr;
  uint64_t* choice = nullptr;
  const aclmdlRI graph = work.recorder.Graph([&] {
    loop = work.recorder.Add(ACL_MODEL_RI_COND_TYPE_WHILE, {[&] {
                               work.Record();
                               work.recorder.CountDown(&loop);
                             }});
    choice = work.recorder.Add(ACL_MODEL_RI_COND_TYPE_SWITCH,
                               {[&] { work.Record(); }, [&] { work.Record(), work.Record(); }});
  });
  for (uint64_t step = 0; step < 8; ++step) {
    work.Fill();
    *loop = step % 4;
    *choice = step % 3;
    EXPECT_EQ(0, aclmdlRIExecuteAsync(graph, group.me.stream)) << Message();
    EXPECT_OK(HcclBarrier(group.me.comm, group.me.stream));
    group.me.Wait();
    work.Expect(static_cast<int>(step % 4 + (step % 3 == 2 ? 0 : step % 3 + 1)));
  }
  if (differs) {
    *loop = arguments.rank == 1 ? 1 : 2;
    EXPECT_EQ(0, aclmdlRIExecuteAsync(graph, group.me.stream)) << Message();
    EXPECT_EQ(507049, aclrtSynchronizeStreamWithTimeout(group.me.stream, 60000));
    const std::string message = Message();
    EXPECT_NE(std::string::npos, message.find("EI0005")) << message;
    EXPECT_NE(std::string::npos, message.find("a condition")) << message;
  }
  EXPECT_EQ(0, aclmdlRIDestroy(graph));
}

}  // namespace reprise::testing
