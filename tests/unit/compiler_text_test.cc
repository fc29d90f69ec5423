// SPDX-License-Identifier: Apache-2.0
//
// Graphs from text, and how they are rewritten.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "pass_testing.h"

namespace reprise::compiler {
namespace {

using testing::Read;
using testing::Sorted;

// ---- Texts of graphs ----

TEST(CompilerText, WhatIsWrittenIsRead) {
  const std::string text =
      "graph main\n"
      "x = Data() {index = 0} : y float32 [s0, 128]\n"
      "img = Data() {index = 1} : y float16 [1, 3, 8, 8] format 0\n"
      "w = Const() : y int64 [2] = 1, -1\n"
      "half = Const() : y bfloat16 [2, 1] = 0.5, -3\n"
      "flags = Const() : y bool [3] = 1, 0, 1\n"
      "big = Const() : y float32 [100] = 0.25 ...\n"
      "none = Const() : y float32 [0, 3] = \n"
      "sum = ReduceSum(x = x:0, axes = w:0) {keep_dims = true} notes {_mark = \"a\\\"b\", _n = [1, 2]} "
      "after (img, half) : y float32 [1, 1]\n"
      "many = Unknown(img:0, nothing) {a = 1.5, b = [true, false], c = [[1, 2], [3]], d = [\"x\"]} : y float32 [..], "
      "z ? [2*s0+1, ?]\n"
      "called = PartitionedCall(x:0) calls (inner) : y float32 [4]\n"
      "return sum:0, many:1 after (called)\n"
      "\n"
      "graph inner\n"
      "a = Data() : y float32 [4]\n"
      "b = Relu(x = a:0) : y float32 [4]\n"
      "return b:0\n";
  StatusOr<std::unique_ptr<Graph>> graph = FromText(text);
  ASSERT_TRUE(graph.ok()) << std::move(graph).status().detail().what;
  EXPECT_EQ(ToText(**graph, Notes::kShow), text);
  EXPECT_EQ((*graph)->inputs.size(), 2U);
}

TEST(CompilerText, ShortFormsAreRead) {
  const std::unique_ptr<Graph> graph = Read(
      "graph g\n"
      "# a comment\n"
      "x = Data() : float32 [2, 3]\n"
      "c = Cast(y) {dst_type = float16}\n"
      "y = Relu(x)\n"
      "w = Const() : float32 [2, 3] = 1, 2 ...\n"
      "s = Add(y, w)\n"
      "return c, s:0\n");
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(ToText(*graph),
            "graph g\n"
            "x = Data() : y float32 [2, 3]\n"
            "y = Relu(x:0) : y float32 [2, 3]\n"
            "c = Cast(y:0) {dst_type = 1} : y float16 [2, 3]\n"
            "w = Const() : y float32 [2, 3] = 1, 2, 2, 2, 2, 2\n"
            "s = Add(y:0, w:0) : y float32 [2, 3]\n"
            "return c:0, s:0\n");
}

TEST(CompilerText, RefusalsNameTheLine) {
  for (const auto& [text, wanted] : std::vector<std::pair<std::string, std::string>>{
           {"", "there is no graph"},
           {"x = Data()\n", "line 1: the first line is no"},
           {"graph g\nx Data()\n", "line 2: \"=\" is missing"},
           {"graph g\nx = Data() : floaty [2]\n", "line 2: \"floaty\" is no type"},
           {"graph g\nx = Data() : float32 [2\n", "line 2: \",\" is missing"},
           {"graph g\nx = Data() : float32 [t]\n", "line 2: a size is no number or symbol"},
           {"graph g\nx = Relu(y)\n", "line 2: the graph has no node y"},
           {"graph g\nx = Data()\nx = Data()\n", "line 3: another node has this name"},
           {"graph g\nx = Const() : float32 [2] = 1\n", "line 2: the shape has 2 elements, 1 are there"},
           {"graph g\nx = Const() : float32 [2] = 1, b\n", "line 2: an element is no number"},
           {"graph g\nx = Data()\nreturn x\ny = Relu(x)\n", "line 4: a line stands behind the return"},
           {"graph g\nx = Data() {a = b}\n", "line 2: \"b\" is no value"},
           {"graph g\nx = Data() more\n", "line 2: something follows"},
           {"graph g\nx = If() calls (h)\n", "line 2: there is no graph h"},
           {"graph g\nx = If() calls (g)\n", "line 2: the graph g calls itself"},
           {"graph g\nx = If() calls (g)\ny = If() calls (h)\n", "line 3: there is no graph h"},
       }) {
    StatusOr<std::unique_ptr<Graph>> graph = FromText(text);
    ASSERT_FALSE(graph.ok()) << text;
    const Status status = std::move(graph).status();
    EXPECT_EQ(status.code(), kInvalidArgument);
    EXPECT_NE(status.detail().what.find(wanted), std::string::npos) << status.detail().what << "\n" << wanted;
    EXPECT_FALSE(status.detail().hint.empty());
  }
}

TEST(CompilerText, DamagedTextsAreReadOrRefused) {
  std::mt19937 random(7);
  const std::string good =
      "graph g\nx = Data() : float32 [s0, 3]\ny = Relu(x) {a = [1, [2]], b = \"c\"} notes {d = 1.5} after (x)\n"
      "w = Const() : int32 [2] = 1, 2\nc = If(x) calls (h) : float32 [..]\nreturn y:0, c after (x)\n"
      "graph h\na = Data() : int8 [2]\nreturn a\n";
  int refused = 0;
  constexpr int kRuns = 2000;
  for (int run = 0; run < kRuns; ++run) {
    std::string text = good;
    for (size_t change = 0; change <= random() % 3; ++change) {
      text[random() % text.size()] = good[random() % good.size()];
    }
    if (random() % 4 == 0) text.resize(random() % text.size());
    StatusOr<std::unique_ptr<Graph>> graph = FromText(text);
    refused += graph.ok() ? 0 : 1;
    EXPECT_TRUE(!graph.ok() || !Verify(**graph).ok() || !ToText(**graph, Notes::kShow).empty());
  }
  EXPECT_GT(refused, kRuns / 4);
  EXPECT_LT(refused, kRuns);
}

// ---- Rewriter ----

constexpr const char* kChain =
    "graph g\n"
    "x = Data() : float32 [4]\n"
    "w = Data() : float32 [4]\n"
    "a = Relu(x) after (w)\n"
    "b = Abs(a)\n"
    "c = Neg(a)\n"
    "d = Add(b, c) after (a)\n"
    "return d, a after (b)\n";

TEST(Rewriter, KnowsUsesAndFollowers) {
  const std::unique_ptr<Graph> graph = Read(kChain);
  ASSERT_NE(graph, nullptr);
  Rewriter rewriter(*graph);
  const NodeId a = graph->Find("a");
  EXPECT_EQ(rewriter.UsesOf({a, 0}), (std::vector<Use>{{graph->Find("b"), 0}, {graph->Find("c"), 0}, {kNoNode, 1}}));
  EXPECT_EQ(rewriter.FollowersOf(a), (std::vector<NodeId>{graph->Find("d")}));
  EXPECT_EQ(rewriter.FollowersOf(graph->Find("b")), (std::vector<NodeId>{kNoNode}));
  EXPECT_TRUE(rewriter.HasOneReader({graph->Find("b"), 0}));
  EXPECT_FALSE(rewriter.HasOneReader({a, 0}));
  EXPECT_FALSE(rewriter.HasOneReader({graph->Find("d"), 0})) << "a result";
  rewriter.Set({graph->Find("c"), 0}, {graph->Find("b"), 0});
  rewriter.Set({graph->Find("c"), 0}, {a, 0});
  EXPECT_EQ(rewriter.UseCount({a, 0}), 3U);
  EXPECT_EQ(rewriter.UsesOf({a, 0}).size(), 3U);
  EXPECT_EQ(rewriter.UsesOf({graph->Find("b"), 0}).size(), 1U);
}

TEST(Rewriter, SplicedNodesLeaveTheirOrder) {
  const std::unique_ptr<Graph> graph = Read(kChain);
  ASSERT_NE(graph, nullptr);
  Rewriter rewriter(*graph);
  rewriter.Splice(graph->Find("a"));
  EXPECT_EQ(Sorted(*graph), Sorted(*Read("graph g\n"
                                         "x = Data() : float32 [4]\n"
                                         "w = Data() : float32 [4]\n"
                                         "b = Abs(x) after (w)\n"
                                         "c = Neg(x) after (w)\n"
                                         "d = Add(b, c) after (x, w)\n"
                                         "return d, x after (w, b)\n")))
      << ToText(*graph);
}

TEST(Rewriter, InsertsReplacesAndRemoves) {
  const std::unique_ptr<Graph> graph = Read(kChain);
  ASSERT_NE(graph, nullptr);
  Rewriter rewriter(*graph);
  Node copy;
  copy.type = "Identity";
  copy.op = opdef::FindGraphOp("Identity");
  rewriter.InsertOnEdge({graph->Find("b"), 0}, copy);
  rewriter.InsertOnEdge({kNoNode, 1}, copy);
  const NodeId sub = rewriter.AddOperator("d", "Sub", {{graph->Find("b"), 0}, {graph->Find("c"), 0}},
                                          graph->at(graph->Find("d")).outputs[0].tensor);
  EXPECT_EQ(graph->at(sub).name, "d_1");
  rewriter.Replace(graph->Find("d"), sub);
  EXPECT_EQ(Sorted(*graph), Sorted(*Read("graph g\n"
                                         "x = Data() : float32 [4]\n"
                                         "w = Data() : float32 [4]\n"
                                         "a = Relu(x) after (w)\n"
                                         "Identity = Identity(x = a)\n"
                                         "Identity_1 = Identity(x = a)\n"
                                         "b = Abs(Identity)\n"
                                         "c = Neg(a)\n"
                                         "d_1 = Sub(x1 = b, x2 = c) after (a)\n"
                                         "return d_1, Identity_1 after (b)\n")))
      << ToText(*graph);
  rewriter.Set({kNoNode, 0}, {graph->Find("x"), 0});
  rewriter.RemoveWithSources(sub);
  EXPECT_EQ(graph->Find("c"), kNoNode);
  EXPECT_NE(graph->Find("b"), kNoNode) << "results wait for it";
  Compact(*graph);
  EXPECT_TRUE(Verify(*graph).ok());
  EXPECT_EQ(graph->nodes.size(), 6U);
}

}  // namespace
}  // namespace reprise::compiler
