// SPDX-License-Identifier: Apache-2.0
//
// Collectives in graphs. Tests carry the items of the specification.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "../runtime/child.h"
#include "ranks.h"

namespace {

using namespace reprise::testing;

aclmdlRI Capture(const Rank& rank, const std::function<void()>& body) {
  aclmdlRI model = nullptr;
  EXPECT_EQ(0, aclmdlRICaptureBegin(rank.stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL)) << Message();
  body();
  EXPECT_EQ(0, aclmdlRICaptureEnd(rank.stream, &model)) << Message();
  return model;
}

struct Data {
  std::vector<Buffer<int64_t>> buffers;
  Data(Ranks& ranks, size_t count) {
    for (Rank& r : ranks) {
      r.Use();
      buffers.emplace_back(count);
    }
  }
  void Set(int64_t value) {
    for (auto& buffer : buffers) buffer.Fill([&](size_t) { return value; });
  }
  int64_t* at(const Rank& r) { return buffers[r.rank].data(); }
};

HcclResult Sum(const Rank& r, Data& data) {
  return HcclAllReduce(data.at(r), data.at(r), data.buffers[r.rank].size(), HCCL_DATA_TYPE_INT64, HCCL_REDUCE_SUM,
                       r.comm, r.stream);
}

TEST(HcclCapture, HC_080_HC_087_ReplaysSeeFreshInputs) {
  Ranks ranks(2);
  Data data(ranks, 2000);
  data.Set(1);
  std::vector<aclmdlRI> models;
  for (Rank& r : ranks) {
    r.Use();
    models.push_back(Capture(r, [&] {
      EXPECT_OK(Sum(r, data));
      int32_t one[] = {0};
      HcclComm other = nullptr;
      EXPECT_OK(HcclCommInitAll(1, one, &other));
      EXPECT_OK(HcclCommDestroy(other));
    }));
  }
  EXPECT_EQ(1, data.buffers[0][0]);  // nothing has run
  for (int64_t step = 1; step <= 100; ++step) {
    data.Set(step);
    ranks.InLine([&](Rank& r) { EXPECT_EQ(0, aclmdlRIExecuteAsync(models[r.rank], r.stream)) << Message(); });
    ASSERT_EQ(2 * step, data.buffers[0][1999]);
    ASSERT_EQ(2 * step, data.buffers[1][0]);
  }
  for (aclmdlRI model : models) EXPECT_EQ(0, aclmdlRIDestroy(model));
}

TEST(HcclCapture, HC_081_EveryOperator) {
  Ranks ranks(2);
  Data in(ranks, 8);
  Data out(ranks, 8);
  const auto type = HCCL_DATA_TYPE_INT64;
  const uint64_t counts[] = {2, 1};
  const uint64_t places[] = {0, 2};
  const uint64_t matrix[] = {1, 1, 1, 1};
  const uint64_t ones[] = {1, 1};
  const uint64_t near[] = {0, 1};
  const std::vector<std::function<HcclResult(Rank&)>> calls = {
      [&](Rank& r) { return HcclAllReduce(in.at(r), out.at(r), 2, type, HCCL_REDUCE_SUM, r.comm, r.stream); },
      [&](Rank& r) { return HcclReduce(in.at(r), out.at(r), 2, type, HCCL_REDUCE_SUM, 1, r.comm, r.stream); },
      [&](Rank& r) { return HcclReduceScatter(in.at(r), out.at(r), 2, type, HCCL_REDUCE_SUM, r.comm, r.stream); },
      [&](Rank& r) {
        return HcclReduceScatterV(in.at(r), counts, places, out.at(r), counts[r.rank], type, HCCL_REDUCE_SUM, r.comm,
                                  r.stream);
      },
      [&](Rank& r) { return HcclAllGather(in.at(r), out.at(r), 2, type, r.comm, r.stream); },
      [&](Rank& r) {
        return HcclAllGatherV(in.at(r), counts[r.rank], out.at(r), counts, places, type, r.comm, r.stream);
      },
      [&](Rank& r) { return HcclBroadcast(in.at(r), 2, type, 1, r.comm, r.stream); },
      [&](Rank& r) { return HcclScatter(in.at(r), out.at(r), 2, type, 1, r.comm, r.stream); },
      [&](Rank& r) { return HcclAlltoAll(in.at(r), 1, type, out.at(r), 1, type, r.comm, r.stream); },
      [&](Rank& r) { return HcclAlltoAllV(in.at(r), ones, near, type, out.at(r), ones, near, type, r.comm, r.stream); },
      [&](Rank& r) { return HcclAlltoAllVC(in.at(r), matrix, type, out.at(r), type, r.comm, r.stream); },
      [&](Rank& r) { return HcclBarrier(r.comm, r.stream); },
      [&](Rank& r) {
        return r.rank == 0 ? HcclSend(in.at(r), 3, type, 1, r.comm, r.stream)
                           : HcclRecv(out.at(r), 3, type, 0, r.comm, r.stream);
      },
      [&](Rank& r) {
        HcclSendRecvItem items[] = {{HCCL_SEND, in.at(r), 2, type, 1 - r.rank},
                                    {HCCL_RECV, out.at(r), 2, type, 1 - r.rank}};
        return HcclBatchSendRecv(items, 2, r.comm, r.stream);
      }};
  for (size_t i = 0; i < calls.size(); ++i) {
    SCOPED_TRACE(i);
    const auto set = [&] {
      for (Rank& r : ranks) {
        in.buffers[r.rank].Fill([&](size_t k) { return static_cast<int64_t>(100 * r.rank + k); });
        out.buffers[r.rank].Fill([](size_t) { return -1; });
      }
    };
    set();
    ranks.InLine([&](Rank& r) { EXPECT_OK(calls[i](r)); });
    const std::vector<int64_t> eager[] = {out.buffers[0].Values(), in.buffers[1].Values(), out.buffers[1].Values(),
                                          in.buffers[0].Values()};
    std::vector<aclmdlRI> models;
    for (Rank& r : ranks) {
      r.Use();
      models.push_back(Capture(r, [&] { EXPECT_OK(calls[i](r)); }));
    }
    for (int replay = 0; replay < 3; ++replay) {
      set();
      ranks.InLine([&](Rank& r) { EXPECT_EQ(0, aclmdlRIExecuteAsync(models[r.rank], r.stream)) << Message(); });
      EXPECT_EQ(eager[0], out.buffers[0].Values());
      EXPECT_EQ(eager[1], in.buffers[1].Values());
      EXPECT_EQ(eager[2], out.buffers[1].Values());
      EXPECT_EQ(eager[3], in.buffers[0].Values());
    }
    for (aclmdlRI model : models) EXPECT_EQ(0, aclmdlRIDestroy(model));
  }
}

TEST(HcclCapture, HC_082_HC_083_HC_085_GraphsAndEagerCallsPairUp) {
  Ranks ranks(2);
  Data data(ranks, 16);
  ranks[0].Use();
  std::vector<aclmdlRI> models;
  for (int i = 0; i < 3; ++i)
    models.push_back(Capture(ranks[0], [&] {
      EXPECT_OK(Sum(ranks[0], data));
      EXPECT_OK(Sum(ranks[0], data));
    }));
  for (int step = 0; step < 100; ++step) {
    data.Set(1);
    ranks.InLine([&](Rank& r) {
      if (r.rank == 0 && step % 3 != 2) {
        EXPECT_EQ(0, aclmdlRIExecuteAsync(models[2], r.stream)) << Message();
      } else {
        EXPECT_OK(Sum(r, data));
        EXPECT_OK(Sum(r, data));
      }
    });
    ASSERT_EQ(4, data.buffers[0][15]);
    ASSERT_EQ(4, data.buffers[1][0]);
  }
  for (aclmdlRI model : models) EXPECT_EQ(0, aclmdlRIDestroy(model));
}

TEST(HcclCapture, DISABLED_Strict) {
  Ranks ranks(2);
  Data data(ranks, 16);
  const auto capture = [&](Rank& r, int operators) {
    r.Use();
    return Capture(r, [&] {
      for (int i = 0; i < operators; ++i) EXPECT_OK(Sum(r, data));
    });
  };
  // Equal graphs pair up, also as others of the rank are made anew; eager calls pair up with eager ones.
  std::vector<aclmdlRI> models{capture(ranks[0], 2), capture(ranks[1], 2)};
  for (int step = 0; step < 3; ++step) {
    data.Set(1);
    ranks.InLine([&](Rank& r) { EXPECT_EQ(0, aclmdlRIExecuteAsync(models[r.rank], r.stream)) << Message(); });
    ASSERT_EQ(4, data.buffers[0][15]);
    ranks.InLine([&](Rank& r) { EXPECT_OK(Sum(r, data)); });
    ASSERT_EQ(8, data.buffers[1][15]);
  }
  // Two operators against three: all ranks are told at the first.
  const aclmdlRI longer = capture(ranks[1], 3);
  for (Rank& r : ranks) {
    r.Use();
    EXPECT_EQ(0, aclmdlRIExecuteAsync(r.rank == 0 ? models[0] : longer, r.stream)) << Message();
  }
  for (Rank& r : ranks) {
    r.Use();
    EXPECT_EQ(507049, aclrtSynchronizeStreamWithTimeout(r.stream, 60000));
    const std::string message = Message();
    EXPECT_NE(std::string::npos, message.find("EI0005")) << message;
    EXPECT_NE(std::string::npos, message.find("the graph that it is of")) << message;
  }
  models.push_back(longer);
  for (aclmdlRI model : models) EXPECT_EQ(0, aclmdlRIDestroy(model));
  // A graph against calls.
  Ranks fresh(2);
  fresh[0].Use();
  const aclmdlRI model = Capture(fresh[0], [&] { EXPECT_OK(Sum(fresh[0], data)); });
  EXPECT_EQ(0, aclmdlRIExecuteAsync(model, fresh[0].stream)) << Message();
  fresh[1].Use();
  EXPECT_OK(Sum(fresh[1], data));
  for (Rank& r : fresh) {
    r.Use();
    EXPECT_EQ(507049, aclrtSynchronizeStreamWithTimeout(r.stream, 60000));
    EXPECT_NE(std::string::npos, Message().find(", called"));
  }
  fresh[0].Use();
  EXPECT_EQ(0, aclmdlRIDestroy(model));
}
TEST(HcclCapture, HC_096_StrictGraphsPairUpWithEqualOnes) {
  ::setenv("REPRISE_HCCL_STRICT_GRAPH", "1", 1);
  { Child child("HcclCapture.DISABLED_Strict", ""); }
  ::unsetenv("REPRISE_HCCL_STRICT_GRAPH");
}

TEST(HcclCapture, HC_084_TwoGroupsOnForkedStreams) {
  Ranks ranks(2);
  Ranks others(2);
  Data a(ranks, 3000);
  Data b(ranks, 10);
  std::vector<aclmdlRI> models;
  std::vector<aclrtStream> side(2);
  std::vector<aclrtEvent> fork(2);
  std::vector<aclrtEvent> join(2);
  for (Rank& r : ranks) {
    r.Use();
    OK(aclrtCreateStream(&side[r.rank]));
    OK(aclrtCreateEventExWithFlag(&fork[r.rank], ACL_EVENT_SYNC));
    OK(aclrtCreateEventExWithFlag(&join[r.rank], ACL_EVENT_SYNC));
    models.push_back(Capture(r, [&] {
      EXPECT_EQ(0, aclrtRecordEvent(fork[r.rank], r.stream));
      EXPECT_EQ(0, aclrtStreamWaitEvent(side[r.rank], fork[r.rank]));
      Rank there = others[r.rank];
      there.stream = side[r.rank];
      EXPECT_OK(Sum(r, a));
      EXPECT_OK(Sum(there, b));
      EXPECT_OK(Sum(r, a));
      EXPECT_OK(Sum(there, b));
      EXPECT_EQ(0, aclrtRecordEvent(join[r.rank], side[r.rank]));
      EXPECT_EQ(0, aclrtStreamWaitEvent(r.stream, join[r.rank]));
    }));
  }
  for (int step = 0; step < 30; ++step) {
    a.Set(1);
    b.Set(2);
    ranks.InLine([&](Rank& r) { EXPECT_EQ(0, aclmdlRIExecuteAsync(models[r.rank], r.stream)) << Message(); });
    ASSERT_EQ(4, a.buffers[1][2999]);
    ASSERT_EQ(8, b.buffers[0][9]);
  }
  for (Rank& r : ranks) {
    r.Use();
    EXPECT_EQ(0, aclmdlRIDestroy(models[r.rank]));
    EXPECT_EQ(0, aclrtDestroyStream(side[r.rank]));
    EXPECT_EQ(0, aclrtDestroyEvent(fork[r.rank]));
    EXPECT_EQ(0, aclrtDestroyEvent(join[r.rank]));
  }
}

TEST(HcclCapture, HC_088_HC_092_WhereOperatorsDoNotBelong) {
  Ranks ranks(1);
  Data data(ranks, 4);
  Rank& r = ranks[0];
  aclmdlRI model = nullptr;
  OK(aclmdlRICaptureBegin(r.stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  OK(aclmdlRICaptureTaskGrpBegin(r.stream));
  EXPECT_EQ(HCCL_E_RUNTIME, Sum(r, data));
  EXPECT_NE(std::string::npos, Message().find("507009")) << Message();
  EXPECT_EQ(HCCL_E_RUNTIME, Sum(r, data));  // the capture is invalid now
  aclrtTaskGrp group = nullptr;
  (void)aclmdlRICaptureTaskGrpEnd(r.stream, &group);
  EXPECT_NE(0, aclmdlRICaptureEnd(r.stream, &model));
}

TEST(HcclCapture, HC_089_DumpsNameTheOperators) {
  Ranks ranks(1);
  Data data(ranks, 4);
  aclmdlRI model = Capture(ranks[0], [&] { EXPECT_OK(Sum(ranks[0], data)); });
  const std::string path = "/tmp/reprise_hccl_dump_" + std::to_string(getpid()) + ".json";
  OK(aclmdlRIDebugJsonPrint(model, path.c_str(), 0));
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::remove(path.c_str());
  EXPECT_NE(std::string::npos, text.str().find("HCCL_ALLREDUCE")) << text.str();
  EXPECT_EQ(0, aclmdlRIDestroy(model));
}

TEST(HcclCapture, HC_093_AGraphWhoseGroupIsGone) {
  Ranks ranks(1);
  Data data(ranks, 4);
  char name[128];
  OK(HcclGetCommName(ranks[0].comm, name));
  aclmdlRI model = Capture(ranks[0], [&] { EXPECT_OK(Sum(ranks[0], data)); });
  OK(HcclCommDestroy(std::exchange(ranks[0].comm, nullptr)));
  EXPECT_EQ(507011, aclmdlRIExecuteAsync(model, ranks[0].stream));
  EXPECT_NE(std::string::npos, Message().find(name)) << Message();
  EXPECT_EQ(0, aclmdlRIDestroy(model));
}

TEST(HcclCapture, HC_094_AGroupOverACapturedAndAFreeStream) {
  Ranks ranks(2);
  Data captured(ranks, 8);
  Data eager(ranks, 8);
  captured.Set(1);
  eager.Set(1);
  std::vector<aclmdlRI> models;
  std::vector<Rank> free;
  for (Rank& r : ranks) {
    r.Use();
    free.push_back(r);
    EXPECT_EQ(0, aclrtCreateStream(&free.back().stream));
    aclmdlRI model = nullptr;
    EXPECT_EQ(0, aclmdlRICaptureBegin(r.stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    EXPECT_OK(HcclGroupStart());
    EXPECT_OK(Sum(r, captured));
    EXPECT_OK(Sum(free.back(), eager));
    EXPECT_OK(HcclGroupEnd());
    EXPECT_EQ(0, aclmdlRICaptureEnd(r.stream, &model));
    models.push_back(model);
  }
  for (Rank& r : free) {
    r.Use();
    r.Wait();
    EXPECT_EQ(2, eager.at(r)[7]);     // has run
    EXPECT_EQ(1, captured.at(r)[7]);  // has not
  }
  ranks.InLine([&](Rank& r) { EXPECT_EQ(0, aclmdlRIExecuteAsync(models[r.rank], r.stream)) << Message(); });
  for (Rank& r : free) {
    EXPECT_EQ(2, eager.at(r)[7]);
    EXPECT_EQ(2, captured.at(r)[7]);
    r.Use();
    EXPECT_EQ(0, aclrtDestroyStream(r.stream));
  }
  for (aclmdlRI model : models) EXPECT_EQ(0, aclmdlRIDestroy(model));
}

TEST(HcclCapture, HC_095_TwoGraphsOfOneGroupOnTwoStreams) {
  Ranks ranks(2);
  Data one(ranks, 3000);
  Data two(ranks, 3000);
  one.Set(1);
  two.Set(2);
  std::vector<aclmdlRI> models[2];
  std::vector<Rank> other;
  for (Rank& r : ranks) {
    r.Use();
    other.push_back(r);
    EXPECT_EQ(0, aclrtCreateStream(&other.back().stream));
    models[0].push_back(Capture(r, [&] {
      for (int i = 0; i < 3; ++i) EXPECT_OK(Sum(r, one));
    }));
    models[1].push_back(Capture(other.back(), [&] {
      for (int i = 0; i < 3; ++i) EXPECT_OK(Sum(other.back(), two));
    }));
  }
  for (int step = 0; step < 5; ++step) {
    for (Rank& r : ranks) {
      r.Use();
      EXPECT_EQ(0, aclmdlRIExecuteAsync(models[0][r.rank], r.stream)) << Message();
      EXPECT_EQ(0, aclmdlRIExecuteAsync(models[1][r.rank], other[r.rank].stream)) << Message();
    }
    for (Rank& r : ranks) {
      r.Use();
      r.Wait();
      other[r.rank].Wait();
    }
  }
  for (Rank& r : ranks) {
    EXPECT_EQ(int64_t{1} << 15, one.at(r)[2999]);
    EXPECT_EQ(int64_t{2} << 15, two.at(r)[2999]);
    r.Use();
    EXPECT_EQ(0, aclrtDestroyStream(other[r.rank].stream));
    for (auto& both : models) EXPECT_EQ(0, aclmdlRIDestroy(both[r.rank]));
  }
}

TEST(HcclCapture, HC_097_HC_098_HF_06_HF_13_AbortAndResume) {
  Ranks ranks(2);
  Data data(ranks, 4);
  std::vector<aclmdlRI> models;
  for (Rank& r : ranks) {
    r.Use();
    models.push_back(Capture(r, [&] { EXPECT_OK(Sum(r, data)); }));
  }
  ranks[0].Use();
  OK(aclmdlRIExecuteAsync(models[0], ranks[0].stream));
  OK(aclrtStreamAbort(ranks[0].stream));
  (void)aclrtSynchronizeStreamWithTimeout(ranks[0].stream, 60000);
  ranks[1].Use();
  OK(aclmdlRIExecuteAsync(models[1], ranks[1].stream));
  EXPECT_EQ(507057, aclrtSynchronizeStreamWithTimeout(ranks[1].stream, 60000));
  for (Rank& r : ranks) EXPECT_OK(HcclCommSuspend(r.comm));
  for (Rank& r : ranks) EXPECT_OK(HcclCommResume(r.comm));
  data.Set(3);
  ranks.InLine([&](Rank& r) { EXPECT_EQ(0, aclmdlRIExecuteAsync(models[r.rank], r.stream)) << Message(); });
  EXPECT_EQ(6, data.buffers[0][3]);
  EXPECT_EQ(6, data.buffers[1][0]);
  for (aclmdlRI model : models) EXPECT_EQ(0, aclmdlRIDestroy(model));
}

}  // namespace
