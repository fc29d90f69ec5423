// SPDX-License-Identifier: Apache-2.0
//
// Graphs of the compiler: read from models as front ends write them, verified, with shapes that were worked out.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "compiler/graph.h"
#include "compiler/import/import.h"
#include "compiler/operands.h"
#include "compiler/text.h"
#include "model_bytes.h"
#include "scale.h"

namespace reprise::compiler {
namespace {

using namespace reprise::testing;  // NOLINT: builders of models

StatusOr<std::unique_ptr<Graph>> Read(const Model& model) { return ImportBytes(model.Bytes()); }

// Two layers; a list, a left-out input, an edge of order, a sum over dims that a constant names.
Model Network() {
  Model model;
  model.Data("x", 0, kProtoFloat, {-1, 128});
  model.Data("w", 1, kProtoFloat, {128, 64});
  model.Op("product", "MatMulV2", {"x:0", "w:0", "", ""}, {"x1", "x2", "bias", "offset_w"});
  model.Op("active", "Relu", {"product:0"}, {"x"});
  model.Op("both", "ConcatD", {"active:0", "product:0"}, {"x0", "x1"})
      .Set("concat_dim", IntAttr(1))
      .Set("N", IntAttr(2))
      .Set("nn_module_stack", TextAttr("model.layer"));
  model.Const("axes", {1});
  model.Op("sum", "ReduceSum", {"both:0", "axes:0", "active:-1"}, {"x", "axes"}).Set("keep_dims", BoolAttr(true));
  model.Results({"sum:0", "product:0", "active:-1"});
  return model;
}

TEST(CompilerGraph, IsReadWithShapesWorkedOut) {
  StatusOr<std::unique_ptr<Graph>> graph = Read(Network());
  ASSERT_TRUE(graph.ok()) << std::move(graph).status().detail().what;
  opdef::Facts facts;
  const Status status = InferShapes(**graph, facts);
  ASSERT_TRUE(status.ok()) << status.detail().what;
  EXPECT_EQ(ToText(**graph),
            "graph main\n"
            "x = Data() {index = 0} : y float32 [?, 128]\n"
            "w = Data() {index = 1} : y float32 [128, 64]\n"
            "product = MatMulV2(x1 = x:0, x2 = w:0, bias = nothing, offset_w = nothing) : y float32 [?, 64]\n"
            "active = Relu(x = product:0) : y float32 [?, 64]\n"
            "both = ConcatD(x0 = active:0, x1 = product:0) {N = 2, concat_dim = 1} : "
            "y float32 [?, 128]\n"
            "axes = Const() : y int64 [1] = 1\n"
            "sum = ReduceSum(x = both:0, axes = axes:0) {keep_dims = true} after (active) : y float32 [?, 1]\n"
            "return sum:0, product:0 after (active)\n");
  EXPECT_EQ(std::get<std::string>((*graph)->at(4).notes.at("nn_module_stack")), "model.layer");
  const std::string dot = ToDot(**graph);
  EXPECT_NE(dot.find("n0 -> n2 [label=\"float32 [?, 128]\"]"), std::string::npos) << dot;
  EXPECT_NE(dot.find("n3 -> n6 [style=dashed]"), std::string::npos) << dot;
}

TEST(CompilerGraph, SubgraphsHangBelowTheirCallers) {
  Model model;
  model.Data("x", 0, kProtoFloat, {4});
  for (const char* name : {"first", "second"}) {
    model.Op(name, "PartitionedCall", {"x:0"}, {"args0"}).Calls("inner");
  }
  model.Results({"first:0", "second:0"});
  model.NextGraph("inner");
  model.Data("a", 0, kProtoFloat, {4});
  model.Op("b", "Relu", {"a:0"}, {"x"});
  model.Results({"b:0"});
  StatusOr<std::unique_ptr<Graph>> graph = Read(model);
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ((*graph)->at(1).graphs[0], (*graph)->at(2).graphs[0]);
  EXPECT_EQ((*graph)->at(1).graphs[0]->results.size(), 1U);
}

TEST(CompilerGraph, OperandsByNameAndByPosition) {
  for (const bool has_names : {true, false}) {
    Model model;
    model.Data("a", 0, kProtoFloat, {4});
    model.Data("b", 1, kProtoFloat, {4});
    ModelOp& op = has_names ? model.Op("all", "ConcatD", {"a:0", "b:0", "a:0"}, {"x0", "x1", "x2"})
                            : model.Op("all", "ConcatD", {"a:0", "b:0", "a:0"});
    op.Set("concat_dim", IntAttr(0));
    model.Results({"all:0"});
    StatusOr<std::unique_ptr<Graph>> graph = Read(model);
    ASSERT_TRUE(graph.ok());
    EXPECT_EQ(BindOperands(**graph, 2).value(), (Operands{{0, 1, 2}}));
  }
}

// ---- Refusals ----

struct BadModel {
  const char* wanted;
  std::function<void(Model&)> make;
};

TEST(CompilerGraph, SaysWhatIsWrongAndWhere) {
  const std::vector<BadModel> cases = {
      {"node b (Relu): an input comes from c, which the graph does not have",
       [](Model& m) { m.Op("b", "Relu", {"c:0"}, {"x"}); }},
      {"node b (Relu): the input \"a:one\" is no edge", [](Model& m) { m.Op("b", "Relu", {"a:one"}, {"x"}); }},
      {"node b (Relu): input 0 (x) comes from output 3 of a (Data), which has 1",
       [](Model& m) { m.Op("b", "Relu", {"a:3"}, {"x"}); }},
      {"node b (Relu): it has no input z", [](Model& m) { m.Op("b", "Relu", {"a:0"}, {"z"}); }},
      {"node b (Relu): it has 2 inputs, 1 too many",
       [](Model& m) {
         m.Op("b", "Relu", {"a:0", "a:0"});
       }},
      {"node b (Relu): the input x is missing", [](Model& m) { m.Op("b", "Relu", {}); }},
      {"node a (Relu): another node has this name", [](Model& m) { m.Op("a", "Relu", {"a:0"}); }},
      {"waits for itself", [](Model& m) { m.Op("b", "Relu", {"c:0"}), m.Op("c", "Relu", {"b:0"}); }},
      {"waits for itself",
       [](Model& m) {
         m.Op("b", "Relu", {"a:0", "b:-1"}, {"x"});
       }},
      {"E13025: node c (Data): it has no attribute index", [](Model& m) { m.Op("c", "Data", {}); }},
      {"E13025: node c (Data): another Data node has index 0", [](Model& m) { m.Data("c", 0, kProtoFloat, {1}); }},
      {"E13025: node c (Data): index 2 where 1 comes next", [](Model& m) { m.Data("c", 2, kProtoFloat, {1}); }},
      {"node c (Const): it has no attribute value", [](Model& m) { m.Op("c", "Const", {}); }},
      {"node c (Const): its value has 16 bytes, its shape and type int64 ask for 24",
       [](Model& m) {
         m.Const("c", {1, 2}, {3});
       }},
      {"node c (PartitionedCall): the model has no graph inner",
       [](Model& m) { m.Op("c", "PartitionedCall", {"a:0"}).Calls("inner"); }},
      {"node c (PartitionedCall): the graph main calls itself",
       [](Model& m) { m.Op("c", "PartitionedCall", {"a:0"}).Calls("main"); }},
      {"node c (NetOutput): the graph has another NetOutput",
       [](Model& m) { m.Results({"a:0"}), m.Op("c", "NetOutput", {"a:0"}); }},
      {"node sum (ReduceSum): ",
       [](Model& m) {
         m.Const("axes", {0});
         m.Op("sum", "ReduceSum", {"a:0", "axes:0"}, {"x", "axes"}).Set("keep_dims", TextAttr("yes"));
       }},
  };
  for (const BadModel& bad : cases) {
    Model model;
    model.Data("a", 0, kProtoFloat, {4});
    bad.make(model);
    StatusOr<std::unique_ptr<Graph>> graph = Read(model);
    ASSERT_FALSE(graph.ok()) << bad.wanted;
    const Status status = std::move(graph).status();
    EXPECT_EQ(status.code(), kInvalidArgument);
    EXPECT_NE(status.detail().what.find(bad.wanted), std::string::npos) << status.detail().what << "\n" << bad.wanted;
    EXPECT_FALSE(status.detail().hint.empty());
  }
  EXPECT_FALSE(ImportBytes("no model").ok());
  EXPECT_FALSE(ImportBytes("").ok()) << "a model without a graph";
}

TEST(CompilerGraph, ShapesThatContradictNameTheNode) {
  Model model;
  model.Data("x", 0, kProtoFloat, {4, 8});
  model.Data("w", 1, kProtoFloat, {9, 2});
  model.Op("product", "MatMulV2", {"x:0", "w:0"}, {"x1", "x2"});
  model.Results({"product:0"});
  StatusOr<std::unique_ptr<Graph>> graph = Read(model);
  ASSERT_TRUE(graph.ok());
  opdef::Facts facts;
  const Status status = InferShapes(**graph, facts);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.detail().what.find("node product: "), 0U) << status.detail().what;
}

// Bytes that were changed at random are read or refused, and never crash.
TEST(CompilerGraph, DamagedModelsAreReadOrRefused) {
  std::mt19937 random(5);
  const std::string good = Network().Bytes();
  int refused = 0;
  const int runs = Loops(3000, 500);
  for (int run = 0; run < runs; ++run) {
    std::string bytes = good;
    for (size_t change = 0; change <= random() % 3; ++change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    StatusOr<std::unique_ptr<Graph>> graph = ImportBytes(bytes);
    refused += graph.ok() ? 0 : 1;
    if (!graph.ok()) continue;
    opdef::Facts facts;
    [[maybe_unused]] const Status status = InferShapes(**graph, facts);
    EXPECT_FALSE(ToText(**graph).empty());
  }
  EXPECT_GT(refused, runs / 4);
  EXPECT_LT(refused, runs);
}

// ---- Order ----

TEST(CompilerGraph, OrderIsTopologicalAndStable) {
  std::mt19937 random(3);
  for (int run = 0; run < Loops(200, 30); ++run) {
    Graph graph;
    const auto count = static_cast<NodeId>(2 + random() % 40);
    std::vector<NodeId> level(count);
    for (NodeId i = 0; i < count; ++i) level[i] = i;
    std::shuffle(level.begin(), level.end(), random);  // edges go from lower to higher levels
    for (NodeId i = 0; i < count; ++i) {
      Node node;
      node.type = "Relu";
      node.outputs.resize(1);
      for (NodeId other = 0; other < count; ++other) {
        if (level[other] < level[i] && random() % 8 == 0) node.inputs.push_back({"", {other, 0}});
        if (level[other] < level[i] && random() % 16 == 0) node.after.push_back(other);
      }
      graph.Add(std::move(node));
    }
    const std::vector<NodeId> order = TopologicalOrder(graph);
    ASSERT_EQ(order.size(), count);
    std::vector<size_t> place(count);
    for (size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
    for (NodeId i = 0; i < count; ++i) {
      for (const Input& input : graph.at(i).inputs) ASSERT_LT(place[input.source.node], place[i]);
      for (const NodeId first : graph.at(i).after) ASSERT_LT(place[first], place[i]);
    }
  }
}

}  // namespace
}  // namespace reprise::compiler
