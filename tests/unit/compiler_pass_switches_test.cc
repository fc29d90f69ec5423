// SPDX-License-Identifier: Apache-2.0
//
// What switches passes, and what is told of them; random graphs before and behind all passes; large graphs.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "compiler/constant.h"
#include "compiler/evaluate.h"
#include "compiler/passes/switches.h"
#include "pass_testing.h"
#include "random_compiler_graph.h"
#include "scale.h"
#include "support/json.h"

namespace reprise::compiler {
namespace {

using reprise::testing::Loops;
using testing::Read;

// ---- Switches ----

Status DoNothing(Graph& /*graph*/, PassContext& /*context*/) { return {}; }

Pass Fusion(PassGroup group) { return {"SomeFusionPass", Stage::kFusion, Level::kO3, group, {}, DoNothing, ""}; }

TEST(PassSwitches, GE_069_LevelsFilesAndNames) {
  const Pass graph_fusion = Fusion(PassGroup::kGraphFusion);
  const Pass buffer_fusion = Fusion(PassGroup::kBufferFusion);
  PassOptions options;
  EXPECT_TRUE(IsAdmitted(graph_fusion, options));
  options.level = Level::kO1;
  EXPECT_FALSE(IsAdmitted(graph_fusion, options)) << "O1 runs no fusion";
  options.switched = ParseSwitches("SomeFusionPass:on").value();
  EXPECT_TRUE(IsAdmitted(graph_fusion, options));
  options = {};

  ASSERT_TRUE(ParseSwitchFile(R"({"Switch": {"GraphFusion": {"ALL": "off"}, "UBFusion": {"SomeFusionPass": "on"}}})",
                              "text", options)
                  .ok());
  EXPECT_FALSE(IsAdmitted(graph_fusion, options));
  EXPECT_TRUE(IsAdmitted(buffer_fusion, options));
  options.switched = ParseSwitches(" SomeFusionPass : on ; Other:off;").value();
  EXPECT_TRUE(IsAdmitted(graph_fusion, options)) << "the option beats the file";
  options.switched = ParseSwitches("ALL:off;SomeFusionPass:on").value();
  EXPECT_TRUE(IsAdmitted(graph_fusion, options)) << "the name beats ALL";
  options.switched = ParseSwitches("ALL:off").value();
  EXPECT_FALSE(IsAdmitted(buffer_fusion, options));
  EXPECT_TRUE(IsAdmitted(*FindPass("MemoryConflictPass"), options)) << "always on";
  EXPECT_FALSE(IsAdmitted(*FindPass("ConstantFoldingPass"), options));

  options = {};
  ASSERT_TRUE(
      ParseSwitchFile(R"({"Switch": {"GraphFusion": {"ALL": "off", "SomeFusionPass": "on"}}})", "text", options).ok());
  EXPECT_TRUE(IsAdmitted(graph_fusion, options));
}

TEST(PassSwitches, WrongTextsAreRefused) {
  for (const char* text : {"A", "A:yes", ":on", "A:on:off"}) {
    StatusOr<Switches> switches = ParseSwitches(text);
    ASSERT_FALSE(switches.ok()) << text;
    EXPECT_EQ(std::move(switches).status().code(), kInvalidArgument);
  }
  PassOptions options;
  for (const char* text : {"", "{", "[]", "{}", R"({"Switch": 1})", R"({"Switch": {"GraphFusion": 1}})",
                           R"({"Switch": {"UBFusion": {"A": "maybe"}}})", R"({"Switch": {"UBFusion": {"A": true}}})"}) {
    const Status status = ParseSwitchFile(text, "the file f", options);
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_EQ(status.detail().what.find("the file f "), 0U) << status.detail().what;
  }
  EXPECT_FALSE(ReadSwitchFile("/no/such/file", options).ok());
  std::vector<std::string> unknown;
  EXPECT_EQ(ParseDisabled("ConstantFoldingPass, NoSuch ,RemoveSameConstPass", unknown),
            (std::vector<std::string>{"ConstantFoldingPass", "RemoveSameConstPass"}));
  EXPECT_EQ(unknown, std::vector<std::string>{"NoSuch"});
}

TEST(PassSwitches, GE_070_ResultsOfFusionsAreCounted) {
  PassRecords records;
  for (const Pass& pass : Passes()) records[std::string(pass.name)] = {3, 2, {}};
  const auto file = reprise::testing::ParseJson(FusionResult(4, 7, records));
  const auto& graph = file.at("session_and_graph_id_4_7");
  size_t fusions = 0;
  for (const Pass& pass : Passes()) {
    const std::string name(pass.name);
    const bool is_there = graph.at("graph_fusion").contains(name) || graph.at("ub_fusion").contains(name);
    EXPECT_EQ(is_there, pass.group != PassGroup::kPlain) << name;
    if (!is_there) continue;
    ++fusions;
    const auto& counts = graph.at(pass.group == PassGroup::kGraphFusion ? "graph_fusion" : "ub_fusion").at(name);
    EXPECT_EQ(counts.at("match_times"), "3");
    EXPECT_EQ(counts.at("effect_times"), "2");
  }
  EXPECT_EQ(graph.at("graph_fusion").size() + graph.at("ub_fusion").size(), fusions);
}

TEST(PassSwitches, StagesAreToldInTheirOrder) {
  const auto graph = Read("graph g\nx = Data() : float32 [4]\na = Abs(x)\nreturn a\n");
  std::vector<std::string> stages;
  PassOptions options;
  options.on_stage = [&](Stage stage, const Graph&) { stages.emplace_back(NameOf(stage)); };
  PassRecords records;
  ASSERT_TRUE(RunPasses(*graph, options, &records).ok());
  ASSERT_EQ(stages.size(), static_cast<size_t>(Stage::kCount));
  EXPECT_EQ(stages.front(), "PreRunAfterNormalizeGraph");
  EXPECT_EQ(stages.back(), "PreRunAfterMemConflictProc");
  for (const Pass& pass : Passes()) EXPECT_EQ(records.count(std::string(pass.name)), 1U) << pass.name;
}

// ---- Random graphs ----

// Folding runs the kernels that a graph runs, and no pass changes what is computed in which order: equal bit for bit.
TEST(RandomPasses, NoPassChangesAResult) {
  PassRecords records;
  const int runs = Loops(reprise::testing::InForm(300), 60);
  for (int run = 0; run < runs; ++run) {
    testing::RandomGraph made(static_cast<uint32_t>(run));
    const std::unique_ptr<Graph> graph = made.Take();
    const std::vector<ConstantPtr> inputs = made.Inputs(*graph);
    StatusOr<std::vector<ConstantPtr>> before = EvaluateGraph(*graph, inputs);
    ASSERT_TRUE(before.ok()) << std::move(before).status().detail().what << "\n" << ToText(*graph);
    const std::string text = ToText(*graph);
    PassOptions options;
    options.graph_fusions["ALL"] = options.buffer_fusions["ALL"] = false;  // those round otherwise
    options.level = run % 4 == 0 ? Level::kO1 : Level::kO3;
    options.order = static_cast<OrderMode>(run % 4);
    const Status status = RunPasses(*graph, options, &records);
    ASSERT_TRUE(status.ok()) << status.detail().what << "\n" << text;
    ASSERT_TRUE(Verify(*graph).ok()) << text;
    StatusOr<std::vector<ConstantPtr>> behind = EvaluateGraph(*graph, inputs);
    ASSERT_TRUE(behind.ok()) << std::move(behind).status().detail().what << "\n" << text << "\n" << ToText(*graph);
    ASSERT_EQ(before->size(), behind->size());
    for (size_t i = 0; i < before->size(); ++i) {
      EXPECT_EQ((*before)[i]->shape, (*behind)[i]->shape);
      EXPECT_EQ((*before)[i]->dtype, (*behind)[i]->dtype);
      ASSERT_TRUE((*before)[i]->bytes == (*behind)[i]->bytes) << "result " << i << " of run " << run << ":\n"
                                                              << text << "\nbecame\n"
                                                              << ToText(*graph) << "\n"
                                                              << ElementsText(*(*before)[i]) << "\n"
                                                              << ElementsText(*(*behind)[i]);
    }
  }
  // The graphs are such that the passes have something to do; few graphs are not.
  if (runs < 300) return;
  for (const char* pass : {"ConstantFoldingPass", "CommonSubexpressionEliminationPass", "PrunePass", "IdentityPass",
                           "CastRemovePass", "DimensionComputePass", "ReshapeRemovePass", "InplacePass",
                           "TransOpWithoutReshapeFusionPass", "TensorMoveDeletePass", "ConstantFuseSamePass"}) {
    EXPECT_GT(records[pass].changed, 0U) << pass;
  }
}

// ---- Large graphs ----

// Layers of what every pass looks for. The passes visit nodes a bounded number of times; what would be quadratic does
// not end in the time of a test.
TEST(LargeGraphs, TwentyThousandNodes) {
  Graph graph;
  Rewriter rewriter(graph);
  const auto data = [&](const char* name) {
    Node node;
    node.name = name;
    node.type = "Data";
    node.kind = NodeKind::kData;
    node.outputs.push_back({"y", {0, kFormatNd, opdef::Shape{4, 4}}});
    const NodeId id = rewriter.Add(std::move(node));
    graph.inputs.push_back(id);
    return Port{id, 0};
  };
  const Port x = data("x");
  const Tensor matrix = graph.TensorOf(x);
  const std::vector<double> halves(16, 0.5);
  const Port half = {rewriter.AddConstant("half", MakeConstant(0, {4, 4}, std::span<const double>(halves))), 0};
  Port last = x;
  const int layers = Loops(2000, 200);
  for (int layer = 0; layer < layers; ++layer) {
    const auto add = [&](std::string_view type, const std::vector<Port>& inputs, opdef::Attributes attributes = {}) {
      return Port{rewriter.AddOperator("", type, inputs, matrix, std::move(attributes)), 0};
    };
    const std::vector<int64_t> swap = {1, 0};
    const Port equal1 = add("Mul", {last, half});
    const Port equal2 = add("Mul", {last, half});
    const Port there = add("TransposeD", {equal1}, {{"perm", swap}});
    const Port back = add("TransposeD", {there}, {{"perm", swap}});
    const Port constant = add("Add", {half, half});  // folds, and all are equal
    const Port identity = add("Identity", {back});
    add("Abs", {identity});  // nobody needs it
    const Port moved = add("TensorMove", {identity});
    last = add("Add", {moved, add("Sub", {equal2, constant})});
  }
  graph.results = {last};
  const size_t nodes = graph.nodes.size();
  PassRecords records;
  const Status status = RunPasses(graph, {}, &records);
  ASSERT_TRUE(status.ok()) << status.detail().what;
  const auto count = static_cast<uint64_t>(layers);
  EXPECT_EQ(records["IdentityPass"].changed, count);
  EXPECT_EQ(records["TransOpWithoutReshapeFusionPass"].changed, count);
  EXPECT_EQ(records["TensorMoveDeletePass"].changed, count);
  EXPECT_EQ(records["ConstantFoldingPass"].changed, count);
  EXPECT_GE(records["PrunePass"].changed, count);
  EXPECT_GE(records["CommonSubexpressionEliminationPass"].changed, count);
  EXPECT_EQ(graph.nodes.size(), 3 + 3 * static_cast<size_t>(layers)) << "of " << nodes;
}

}  // namespace
}  // namespace reprise::compiler
