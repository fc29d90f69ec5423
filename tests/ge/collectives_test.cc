// SPDX-License-Identifier: Apache-2.0
//
// Collective operators in graphs: ranks of this process, a device, a session and a thread for each.
#include <fmt/format.h>
#include <hccl/hccl.h>
#include <hccl/hccl_comm.h>

#include <functional>
#include <thread>

#include "engine_fixture.h"

namespace reprise::engine {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

inline const bool kHasDevices = ::setenv("REPRISE_DEVICES", "4", 1) == 0;

class CollectivesTest : public EngineTest {
 protected:
  // What a rank has.
  struct Rank {
    uint32_t rank = 0;
    uint32_t ranks = 0;
    HcclComm comm = nullptr;
    aclrtStream stream = nullptr;
    std::shared_ptr<Session> session;

    // The result of the only output; of the first run also what came before it.
    std::vector<float> Run(const std::string& text, std::vector<float> x, std::vector<int64_t> shape,
                           const OptionMap& options = {}) const {
      auto graph = compiler::FromText(text);
      EXPECT_TRUE(graph.ok()) << Text(std::move(graph).status());
      const std::shared_ptr<compiler::Graph> model(std::move(graph).value());
      EXPECT_EQ(Text(session->AddGraph(1, model, model, options)), "");
      EXPECT_EQ(Text(session->CompileGraph(1)), "");
      void* block = nullptr;
      EXPECT_EQ(aclrtMalloc(&block, x.size() * 4 + 64, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
      std::memcpy(block, x.data(), x.size() * 4);
      std::vector<float> result;
      for (int run = 0; run < 2; ++run) {
        std::vector<OutputTensor> outputs;
        const std::vector<InputTensor> inputs{{block, x.size() * 4, {0, shape}}};
        EXPECT_EQ(Text(session->RunOnStream(1, stream, inputs, outputs)), "");
        EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(stream, 60000), 0) << aclGetRecentErrMsg();
        if (outputs.size() != 1) break;
        std::vector<float> found = Floats(outputs[0].data, outputs[0].bytes);
        EXPECT_TRUE(run == 0 || found == result);
        result = std::move(found);
      }
      EXPECT_EQ(Text(session->RemoveGraph(1)), "");
      EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
      return result;
    }
  };

  // Runs `body` on each rank of a group "world".
  void OnRanks(uint32_t ranks, const std::function<void(Rank&)>& body) {
    HcclRootInfo token;
    ASSERT_EQ(HcclGetRootInfo(&token), HCCL_SUCCESS);
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < ranks; ++i) {
      threads.emplace_back([&, i] {
        Rank rank{i, ranks, nullptr, nullptr, nullptr};
        EXPECT_EQ(aclrtSetDevice(static_cast<int>(i)), ACL_SUCCESS);
        EXPECT_EQ(aclrtCreateStream(&rank.stream), ACL_SUCCESS);
        HcclCommConfig config;
        HcclCommConfigInit(&config);
        std::strcpy(config.hcclCommName, "world");
        EXPECT_EQ(HcclCommInitRootInfoConfig(ranks, &token, i, &config, &rank.comm), HCCL_SUCCESS);
        auto id = OpenSession(Interface::kFirst, {{"ge.session_device_id", std::to_string(i)}});
        auto session = FindSession(*id, "test");
        rank.session = *session;
        body(rank);
        rank.session.reset();
        CloseSession(*id);
        EXPECT_EQ(HcclCommDestroy(rank.comm), HCCL_SUCCESS);
        EXPECT_EQ(aclrtDestroyStream(rank.stream), ACL_SUCCESS);
        EXPECT_EQ(aclrtResetDevice(static_cast<int>(i)), ACL_SUCCESS);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

// A sum of what ranks computed, used by what comes behind it; the input is used, too, and stays.
TEST_F(CollectivesTest, HG_001_SumsBetweenOperators) {
  OnRanks(3, [](Rank& rank) {
    const auto r = static_cast<float>(rank.rank);
    const auto found = rank.Run(R"(graph sums
x = Data() : float32 [4]
t = Add(x, x)
s = HcomAllReduce(t) {reduction = "sum", group = "world", fusion = 0}
u = Mul(s, s)
m = HcomAllReduce(u) {reduction = "max", group = "world", fusion = 0}
y = Sub(m, t)
return y
)",
                                {r, r + 1, 2, 3}, {4});
    // s = 2 * sum of x over ranks 0, 1, 2
    EXPECT_THAT(found, ElementsAre(36 - 2 * r, 144 - 2 * (r + 1), 144 - 4, 324 - 6));
  });
}

TEST_F(CollectivesTest, HG_002_EveryOperator) {
  OnRanks(2, [](Rank& rank) {
    const auto r = static_cast<float>(rank.rank);
    const auto run = [&](const std::string& node, std::vector<float> x, std::vector<int64_t> shape) {
      std::string sizes;
      for (const int64_t size : shape) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
      return rank.Run("graph one\nx = Data() : float32 [" + sizes + "]\n" + node + "\nreturn y\n", std::move(x), shape);
    };
    EXPECT_THAT(run("y = HcomAllGather(x) {rank_size = 2, group = \"world\"}", {r, 5}, {1, 2}),
                ElementsAre(0, 5, 1, 5));
    EXPECT_THAT(
        run("y = HcomReduceScatter(x) {reduction = \"sum\", rank_size = 2, group = \"world\"}", {r, 5, r, 7}, {2, 2}),
        ElementsAreArray(rank.rank == 0 ? std::vector<float>{1, 10} : std::vector<float>{1, 14}));
    EXPECT_THAT(run("y = HcomAllToAll(x) {group = \"world\"}", {r, r + 10}, {2}),
                ElementsAreArray(rank.rank == 0 ? std::vector<float>{0, 1} : std::vector<float>{10, 11}));
    EXPECT_THAT(run("y = HcomBroadcast(x) {root_rank = 1, group = \"world\"} : y0 float32 [2]", {r, 3}, {2}),
                ElementsAre(1, 3));
    EXPECT_THAT(run("y = HcomReduce(x) {root_rank = 1, reduction = \"prod\", group = \"world\"}", {r + 2, 3}, {2}),
                ElementsAreArray(rank.rank == 0 ? std::vector<float>{2, 3} : std::vector<float>{6, 9}));
    // Rank 0 sends one row to itself and two to rank 1, which sends one to rank 0 and none to itself.
    const std::string of_zero = rank.rank == 0 ? "2, 4" : "2, 0";
    const std::string to_me = rank.rank == 0 ? "2, 2" : "4, 0";
    const std::string places = rank.rank == 0 ? "0, 2" : "0, 2";
    const std::string to_places = rank.rank == 0 ? "0, 2" : "0, 4";
    EXPECT_THAT(run("a = Const() : int64 [2] = " + of_zero + "\nb = Const() : int64 [2] = " + places +
                        "\nc = Const() : int64 [2] = " + to_me + "\nd = Const() : int64 [2] = " + to_places +
                        "\ny = HcomAllToAllV(x, a, b, c, d) {group = \"world\"}",
                    {10 * r, 10 * r + 1, 10 * r + 2, 10 * r + 3, 10 * r + 4, 10 * r + 5}, {3, 2}),
                ElementsAreArray(rank.rank == 0 ? std::vector<float>{0, 1, 10, 11} : std::vector<float>{2, 3, 4, 5}));
    EXPECT_THAT(run("m = Const() : int64 [4] = 1, 2, 3, 0\ny = HcomAllToAllVC(x, m) {rank = " +
                        std::to_string(rank.rank) + ", group = \"world\"}",
                    {10 * r, 10 * r + 1, 10 * r + 2}, {3}),
                ElementsAreArray(rank.rank == 0 ? std::vector<float>{0, 10, 11, 12} : std::vector<float>{1, 2}));
    const std::string own = rank.rank == 0 ? "1" : "3";
    EXPECT_THAT(run("a = Const() : int64 [1] = " + own + "\nb = Const() : int64 [2] = 1, 3\n" +
                        "y = HcomAllGatherV(x, a, b) {group = \"world\"}",
                    rank.rank == 0 ? std::vector<float>{7} : std::vector<float>{1, 2, 3}, {rank.rank == 0 ? 1 : 3}),
                ElementsAre(7, 1, 2, 3));
    // Blocks with a gap between them.
    EXPECT_THAT(
        run("a = Const() : int64 [1] = " + own + "\nb = Const() : int64 [2] = 1, 3\nc = Const() : int64 [2] = 0, 2\n" +
                "y = HcomAllGatherV(x, a, b, c) {group = \"world\"}",
            rank.rank == 0 ? std::vector<float>{7} : std::vector<float>{1, 2, 3}, {rank.rank == 0 ? 1 : 3}),
        ElementsAre(7, 0, 1, 2, 3));
    EXPECT_THAT(run("a = Const() : int64 [1] = " + own + "\nb = Const() : int64 [2] = 1, 3\n" +
                        "y = HcomReduceScatterV(x, a, b) {reduction = \"min\", group = \"world\"}",
                    {r, 1 - r, 5 + r, 6 - r}, {4}),
                ElementsAreArray(rank.rank == 0 ? std::vector<float>{0} : std::vector<float>{0, 5, 5}));
  });
}

// HG-003
TEST_F(CollectivesTest, HG_003_OpenSizes) {
  OnRanks(2, [](Rank& rank) {
    auto graph = compiler::FromText(
        "graph open\nx = Data() : float32 [?, 2]\nt = Add(x, x)\n"
        "y = HcomAllReduce(t) {reduction = \"sum\", group = \"world\", fusion = 0}\nreturn y\n");
    const std::shared_ptr<compiler::Graph> model(std::move(graph).value());
    ASSERT_EQ(Text(rank.session->AddGraph(1, model, model, {})), "");
    for (const int64_t rows : {2, 3, 1, 2}) {
      std::vector<float> x(static_cast<size_t>(rows) * 2, static_cast<float>(rank.rank + 1));
      std::vector<HostTensor> outputs;
      ASSERT_EQ(Text(rank.session->RunAndWait(1, std::vector<InputTensor>{OnHost(x, {rows, 2})}, outputs)), "");
      ASSERT_EQ(outputs.size(), 1U);
      EXPECT_EQ(Floats(outputs[0]), std::vector<float>(static_cast<size_t>(rows) * 2, 6));
    }
  });
}

// HG-009
TEST_F(CollectivesTest, HG_009_SendAndReceiveInTheOrderOfTheGraph) {
  OnRanks(2, [](Rank& rank) {
    const std::string send =
        "HcomSend(x) {group = \"world\", sr_tag = 1, dest_rank = " + std::to_string(1 - rank.rank) + "}\n";
    const std::string receive =
        "y = HcomReceive() {group = \"world\", sr_tag = 1, src_rank = " + std::to_string(1 - rank.rank) +
        ", shape = [2], dtype = 0} : float32 [2]\n";
    const auto r = static_cast<float>(rank.rank);
    const std::string text = "graph pair\nx = Data() : float32 [2]\n" +
                             (rank.rank == 0 ? "s = " + send + receive : receive + "s = " + send) + "return y\n";
    EXPECT_THAT(rank.Run(text, {r, r + 4}, {2}), ElementsAre(1 - r, 5 - r));
  });
}

// HG-020: operators that do not need each other run in the order of the graph, beside a rank that calls the functions.
TEST_F(CollectivesTest, HG_020_ARankThatCallsWhatAnotherHasCompiled) {
  OnRanks(2, [](Rank& rank) {
    if (rank.rank == 0) {
      const auto found = rank.Run(R"(graph mixed
x = Data() : float32 [2]
a = HcomAllReduce(x) {reduction = "sum", group = "world", fusion = 0}
b = Mul(a, a)
c = HcomAllReduce(b) {reduction = "max", group = "world", fusion = 0}
d = HcomAllReduce(x) {reduction = "min", group = "world", fusion = 0}
e = Add(c, d)
return e
)",
                                  {1, 2}, {2});
      EXPECT_THAT(found, ElementsAre(101, 102));
      return;
    }
    void* block = nullptr;
    ASSERT_EQ(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
    auto* const values = static_cast<float*>(block);
    const auto f32 = HCCL_DATA_TYPE_FP32;
    for (int run = 0; run < 2; ++run) {
      for (const HcclReduceOp op : {HCCL_REDUCE_SUM, HCCL_REDUCE_MAX, HCCL_REDUCE_MIN}) {
        values[0] = op == HCCL_REDUCE_MAX ? 100 : 3;
        values[1] = op == HCCL_REDUCE_MAX ? 100 : op == HCCL_REDUCE_MIN ? 3 : 4;
        EXPECT_EQ(HcclAllReduce(values, values, 2, f32, op, rank.comm, rank.stream), HCCL_SUCCESS);
        EXPECT_EQ(aclrtSynchronizeStreamWithTimeout(rank.stream, 60000), 0) << aclGetRecentErrMsg();
      }
    }
    EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
  });
}

TEST_F(CollectivesTest, HG_012_CapturedRunsOfACompiledGraph) {
  OnRanks(2, [](Rank& rank) {
    auto graph = compiler::FromText(
        "graph captured\nx = Data() : float32 [2]\nt = Add(x, x)\n"
        "s = HcomAllReduce(t) {reduction = \"sum\", group = \"world\", fusion = 0}\ny = Add(s, t)\nreturn y\n");
    const std::shared_ptr<compiler::Graph> model(std::move(graph).value());
    ASSERT_EQ(Text(rank.session->AddGraph(1, model, model, {})), "");
    ASSERT_EQ(Text(rank.session->CompileGraph(1)), "");
    void* block = nullptr;
    ASSERT_EQ(aclrtMalloc(&block, 128, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
    auto* const x = static_cast<float*>(block);
    float* const y = x + 16;
    std::vector<OutputTensor> outputs{{y, 8, 0, {2}, nullptr}};
    const std::vector<InputTensor> inputs{{x, 8, {0, {2}}}};
    ASSERT_EQ(Text(rank.session->RunOnStream(1, rank.stream, inputs, outputs)), "");
    ASSERT_EQ(aclrtSynchronizeStreamWithTimeout(rank.stream, 60000), 0);
    aclmdlRI captured = nullptr;
    ASSERT_EQ(aclmdlRICaptureBegin(rank.stream, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL), 0);
    ASSERT_EQ(Text(rank.session->RunOnStream(1, rank.stream, inputs, outputs)), "");
    ASSERT_EQ(aclmdlRICaptureEnd(rank.stream, &captured), 0);
    for (int replay = 0; replay < 100; ++replay) {
      const auto r = static_cast<float>(rank.rank);
      x[0] = static_cast<float>(replay) + r;
      x[1] = r;
      ASSERT_EQ(aclmdlRIExecuteAsync(captured, rank.stream), 0);
      ASSERT_EQ(aclrtSynchronizeStreamWithTimeout(rank.stream, 60000), 0) << aclGetRecentErrMsg();
      ASSERT_EQ(y[0], 2 * (2 * static_cast<float>(replay) + 1) + 2 * x[0]);
      ASSERT_EQ(y[1], 2 + 2 * r);
    }
    EXPECT_EQ(aclmdlRIDestroy(captured), 0);
    EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
  });
}

TEST_F(CollectivesTest, HG_016_AnUnknownGroupIsNamedWhenTheGraphIsLoaded) {
  AddCompiled(1,
              "graph lost\nx = Data() : float32 [2]\ny = HcomAllReduce(x) {reduction = \"sum\", group = \"nobody\", "
              "fusion = 0}\nreturn y\n");
  EXPECT_THAT(Text(session_->LoadGraph(1, {}, stream_)),
              HasSubstr("node y (HcomAllReduce) names the group \"nobody\""));
  std::vector<OutputTensor> outputs;
  const std::vector<InputTensor> inputs{OnDevice({1, 2}, {2})};
  EXPECT_THAT(Text(session_->RunOnStream(1, stream_, inputs, outputs)), HasSubstr("nobody"));
  AddCompiled(2, kAddText);  // the session goes on
  OnRanks(2, [](Rank& rank) {
    auto graph = compiler::FromText(
        "graph wrong\nx = Data() : float32 [4]\ny = HcomAllGather(x) {rank_size = 3, group = \"world\"}\nreturn y\n");
    const std::shared_ptr<compiler::Graph> model(std::move(graph).value());
    ASSERT_EQ(Text(rank.session->AddGraph(1, model, model, {})), "");
    ASSERT_EQ(Text(rank.session->CompileGraph(1)), "");
    EXPECT_THAT(Text(rank.session->LoadGraph(1, {}, rank.stream)),
                HasSubstr("says rank_size 3, and the group world has 2"));
  });
}

TEST_F(CollectivesTest, HG_019_OperatorsThatAreNotHere) {
  ASSERT_EQ(Text(Add(1, "graph remote\nx = Data() : int64 [2]\nn = HcomRemoteRead(x) {dtype = 0}\nreturn n\n")), "");
  EXPECT_THAT(Text(session_->CompileGraph(1)), HasSubstr("HcomRemoteRead"));
}

TEST_F(CollectivesTest, BadCountsAndReductionsAreRefused) {
  OnRanks(2, [](Rank& rank) {
    const auto refusal = [&](const std::string& nodes) {
      auto graph = compiler::FromText("graph bad\nx = Data() : float32 [4]\n" + nodes + "return y\n");
      const std::shared_ptr<compiler::Graph> model(std::move(graph).value());
      EXPECT_EQ(Text(rank.session->AddGraph(1, model, model, {})), "");
      std::vector<float> x(4);
      std::vector<HostTensor> outputs;
      const std::string text = Text(rank.session->RunAndWait(1, std::vector<InputTensor>{OnHost(x, {4})}, outputs));
      EXPECT_EQ(Text(rank.session->RemoveGraph(1)), "");
      return text;
    };
    const std::string counts = "a = Const() : int64 [2] = 3, 2\nb = Const() : int64 [2] = 0, 3\n";
    EXPECT_THAT(refusal(counts + "y = HcomAllToAllV(x, a, b, a, b) {group = \"world\"}\n"),
                HasSubstr("has a block of 2 elements at 3 for rank 1 in send_data, which has 4"));
    EXPECT_THAT(refusal("y = HcomAllReduce(x) {reduction = \"mean\", group = \"world\", fusion = 0}\n"),
                HasSubstr("has the reduction \"mean\""));
    EXPECT_THAT(refusal("y = HcomBroadcast(x) {root_rank = 2, group = \"world\"} : y0 float32 [4]\n"),
                HasSubstr("says root_rank 2"));
    EXPECT_THAT(refusal("a = Const() : int64 [1] = 4\nb = Const() : int64 [3] = 1, 1, 2\n"
                        "y = HcomAllGatherV(x, a, b) {group = \"world\"}\n"),
                HasSubstr("has 3 recv_counts of int64, and needs 2"));
  });
}

}  // namespace
}  // namespace reprise::engine
