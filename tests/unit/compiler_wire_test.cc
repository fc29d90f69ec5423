// SPDX-License-Identifier: Apache-2.0
//
// Models that are read and written again: bytes, text and files; the plugin that does it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "compiler/export/export.h"
#include "compiler/import/file_constant.h"
#include "compiler/import/import.h"
#include "compiler/import/plugin.h"
#include "compiler/operands.h"
#include "compiler/text.h"
#include "full_model.h"
#include "model_bytes.h"

namespace reprise::compiler {
namespace {

using namespace reprise::testing;  // NOLINT: builders of models

std::string WhatOf(Status&& status) { return status.ok() ? "nothing is wrong" : status.detail().what; }

std::unique_ptr<Graph> Read(const std::string& bytes) {
  StatusOr<std::unique_ptr<Graph>> graph = ImportBytes(bytes);
  if (graph.ok()) return std::move(graph).value();
  ADD_FAILURE() << WhatOf(std::move(graph).status());
  return std::make_unique<Graph>();
}

std::string Written(const Graph& graph, const ExportOptions& options = {}) {
  StatusOr<std::string> bytes = ExportBytes(graph, options);
  if (bytes.ok()) return std::move(bytes).value();
  ADD_FAILURE() << WhatOf(std::move(bytes).status());
  return {};
}

std::string TextOf(const std::string& bytes) {
  StatusOr<std::string> text = TextOfModel(bytes);
  return text.ok() ? std::move(text).value() : WhatOf(std::move(text).status());
}

// ---- The plugin ----

TEST(ProtoPlugin, OpensOnceForAllThreads) {
  std::vector<const ProtoFunctions*> found(8, nullptr);
  std::vector<std::thread> threads;
  for (const ProtoFunctions*& one : found) {
    threads.emplace_back([&one] {
      StatusOr<const ProtoFunctions*> opened = OpenProto();
      if (opened.ok()) one = *opened;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const ProtoFunctions* const one : found) EXPECT_EQ(one, found[0]);
  ASSERT_NE(found[0], nullptr);
}

TEST(ProtoPlugin, SaysWhatIsMissing) {
  for (const char* const path : {"/nowhere/libreprise_ge_proto.so", "libreprise.so"}) {
    StatusOr<const ProtoFunctions*> opened = OpenProtoAt(path);
    ASSERT_FALSE(opened.ok()) << path;
    const Status status = std::move(opened).status();
    EXPECT_EQ(status.code(), kInvalidFile);
    EXPECT_NE(status.detail().what.find(path), std::string::npos) << status.detail().what;
    EXPECT_NE(status.detail().hint.find("libprotobuf"), std::string::npos) << status.detail().hint;
  }
}

// Anything that goes wrong between two releases of protobuf ends the process here; tests/ops runs this beside PyTorch.
TEST(ProtoPlugin, ReadsAndWritesAModel) {
  Model model;
  model.Data("x", 0, kProtoFloat, {-1, 8});
  model.Op("y", "Relu", {"x:0"}, {"x"});
  model.Results({"y:0"});
  const std::string bytes = model.Bytes();
  EXPECT_EQ(Written(*Read(bytes)), bytes);
  EXPECT_NE(TextOf(bytes).find("type: \"Relu\""), std::string::npos);
}

// ---- Messages ----

TEST(Wire, GE_001_EveryFieldIsWrittenAgainAsItWasRead) {
  const std::string bytes = FullModel(false);
  StatusOr<std::string> again = ModelOfText(TextOf(bytes));
  ASSERT_TRUE(again.ok()) << WhatOf(std::move(again).status());  // a field without a name would not be read
  EXPECT_TRUE(*again == bytes) << TextOf(bytes);
  // Through a graph, too.
  const std::string written = Written(*Read(bytes));
  EXPECT_TRUE(written == bytes) << TextOf(bytes) << "\n\nis written as\n\n" << TextOf(written);
}

TEST(Wire, GE_001_UnknownFieldsSurvive) {
  const std::string bytes = FullModel(true);
  const std::string written = Written(*Read(bytes));
  EXPECT_TRUE(written == bytes) << TextOf(bytes) << "\n\nis written as\n\n" << TextOf(written);
}

TEST(Wire, GE_002_TypesHaveTwoNumbers) {
  // By number of a model, from 0 on: the number of tensors and attributes.
  const std::vector<int32_t> wanted = {-1, 0,  1,  2,  4,  6,  7,  3,  9,  8,  10, 12, 11, 13,
                                       14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
                                       29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41};
  for (int number = 0; number <= 40; ++number) {
    EXPECT_EQ(TypeOfProto(number), wanted[static_cast<size_t>(number)]) << number;
    EXPECT_EQ(ProtoOfType(wanted[static_cast<size_t>(number)]), number);
    Model model;
    model.Data("x", 0, number, {1});
    const std::string bytes = model.Bytes();
    const std::unique_ptr<Graph> graph = Read(bytes);
    EXPECT_EQ(graph->at(0).outputs[0].tensor.dtype, wanted[static_cast<size_t>(number)]);
    EXPECT_EQ(Written(*graph), bytes) << number;
  }
  for (const int none : {-1, 41, 99}) EXPECT_EQ(TypeOfProto(none), -1);
  for (const int none : {-1, 5, 28, 42}) EXPECT_EQ(ProtoOfType(none), 0);
}

TEST(Wire, GE_003_EdgesOfOrderStandAnywhere) {
  const std::vector<std::vector<std::string>> orders = {
      {"a:0", "b:0", "c:-1"}, {"c:-1", "a:0", "b:0"}, {"a:0", "c:-1", "b:0"}, {"a", "c:-1", "b"}};
  for (const std::vector<std::string>& inputs : orders) {
    Model model;
    for (int i = 0; i < 3; ++i) model.Data(std::string(1, "abc"[i]), i, kProtoFloat, {4});
    model.Op("sum", "Add", inputs, {"x1", "x2"});
    model.Results({"c:-1", "sum:0"});
    const std::unique_ptr<Graph> graph = Read(model.Bytes());
    const Node& sum = graph->at(3);
    ASSERT_EQ(sum.inputs.size(), 2U);
    EXPECT_EQ(sum.inputs[0].name, "x1");
    EXPECT_EQ(sum.inputs[0].source, (Port{0, 0}));
    EXPECT_EQ(sum.inputs[1].source, (Port{1, 0}));
    EXPECT_EQ(sum.after, (std::vector<NodeId>{2}));
    EXPECT_EQ(graph->results_after, (std::vector<NodeId>{2}));
    EXPECT_EQ(Written(*graph), model.Bytes()) << inputs[0];
    // Other edges are written in our own order.
    graph->at(3).after.clear();
    EXPECT_EQ(TextOf(Written(*graph)).find("input: \"c:-1\"\n    input_desc"), std::string::npos);
    EXPECT_EQ(Read(Written(*graph))->at(3).after.size(), 0U);
  }
}

TEST(Wire, GE_004_OptionalInputsThatAreAbsent) {
  struct Case {
    std::vector<std::string> inputs;
    std::vector<std::string> names;
  };
  const std::vector<Case> cases = {{{"a:0", "b:0", "", ""}, {"x1", "x2", "bias", "offset_w"}},
                                   {{"a:0", "b:0"}, {"x1", "x2"}},
                                   {{"a:0", "b:0", "c:0"}, {"x1", "x2", "bias"}},
                                   {{"c:0", "b:0", "a:0"}, {"bias", "x2", "x1"}}};
  for (const Case& one : cases) {
    Model model;
    model.Data("a", 0, kProtoFloat, {2, 3});
    model.Data("b", 1, kProtoFloat, {3, 4});
    model.Data("c", 2, kProtoFloat, {4});
    ModelOp& op = model.Op("product", "MatMulV2", one.inputs, one.names);
    for (size_t i = 0; i < one.inputs.size(); ++i) {
      if (one.inputs[i].empty()) op.input_descs[i].attrs["_is_unfed_optional"] = IntAttr(1);
    }
    model.Results({"product:0"});
    const std::unique_ptr<Graph> graph = Read(model.Bytes());
    StatusOr<Operands> operands = BindOperands(*graph, 3);
    ASSERT_TRUE(operands.ok()) << WhatOf(std::move(operands).status());
    const auto source = [&](size_t operand) {
      return (*operands)[operand].empty() ? Port{} : graph->at(3).inputs[(*operands)[operand][0]].source;
    };
    EXPECT_EQ(source(0), (Port{0, 0}));
    EXPECT_EQ(source(1), (Port{1, 0}));
    const bool has_bias = one.inputs.size() == 3;
    if ((*operands)[2].empty() || !source(2).is_set()) {
      EXPECT_FALSE(has_bias);
    } else {
      EXPECT_EQ(source(2), (Port{2, 0}));
    }
    EXPECT_EQ(Written(*graph), model.Bytes());
  }
}

TEST(Wire, TypesThatNobodyMeantAreInferred) {
  for (const bool is_named : {false, true}) {
    Model model;
    model.Data("a", 0, kProtoInt64, {2});
    Desc& desc = model.Op("y", "Identity", {"a:0"}, {"x"}).Output(kProtoFloat, {}).output_descs[0];
    if (is_named) desc.attrs["_fx_tensor_name"] = TextAttr("y-aten.clone.OUTPUT.0");
    model.Results({"y:0"});
    const std::unique_ptr<Graph> graph = Read(model.Bytes());
    opdef::Facts facts;
    EXPECT_EQ(WhatOf(InferShapes(*graph, facts)),
              is_named ? "node y: Identity: y is float32, but x is int64" : "nothing is wrong");
    EXPECT_EQ(graph->at(1).outputs[0].tensor.dtype, is_named ? 0 : 9);
  }
}

TEST(Wire, GE_005_ListsAreReadFromTheFieldThatHasSomething) {
  Model model;
  model.Op("n", "Later", {})
      .Set("texts", Message().Sub(1, Message().Bytes(2, "a").Bytes(2, "b")))
      .Set("ints", Message().Sub(1, Message().Ints(3, {4})))
      .Set("floats", Message().Sub(1, Message().Floats(4, {0.5F}).Int(20, 2)))
      .Set("none", Message().Sub(1, Message()))
      .Set("no_texts", Message().Sub(1, Message().Int(20, 1)));
  const std::unique_ptr<Graph> graph = Read(model.Bytes());
  const opdef::Attributes& found = graph->at(0).attributes;
  EXPECT_EQ(std::get<std::vector<std::string>>(found.at("texts")), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(std::get<std::vector<int64_t>>(found.at("ints")), (std::vector<int64_t>{4}));
  EXPECT_EQ(std::get<std::vector<float>>(found.at("floats")), (std::vector<float>{0.5F}));
  EXPECT_TRUE(std::get<std::vector<int64_t>>(found.at("none")).empty());
  EXPECT_TRUE(std::get<std::vector<std::string>>(found.at("no_texts")).empty());
  EXPECT_EQ(Written(*graph), model.Bytes()) << "val_type stays as it was";
  graph->at(0).attributes["ints"] = std::vector<int64_t>{5};
  graph->at(0).attributes.erase("texts");
  EXPECT_EQ(Read(Written(*graph))->at(0).attributes, graph->at(0).attributes);
}

TEST(Wire, GE_006_ListsOfInputsAreGroupedByTheirPrefix) {
  Model model;
  for (int i = 0; i < 3; ++i) model.Data(std::string(1, "abc"[i]), i, kProtoFloat, {4});
  model.Const("axis", {0});
  model.Op("all", "ConcatV2", {"b:0", "axis:0", "a:0", "c:0"}, {"x0", "concat_dim", "x1", "x2"});
  model.Results({"all:0"});
  const std::unique_ptr<Graph> graph = Read(model.Bytes());
  const size_t list = graph->at(4).op->inputs[0].is_list() ? 0 : 1;
  const Operands operands = BindOperands(*graph, 4).value();
  EXPECT_EQ(operands[list], (std::vector<uint32_t>{0, 2, 3}));
  EXPECT_EQ(operands[1 - list], (std::vector<uint32_t>{1}));
  EXPECT_EQ(Written(*graph), model.Bytes());
}

TEST(Wire, GE_007_DataThatIsNumberedWronglyIsRefused) {
  struct Case {
    const char* wanted;
    void (*make)(Model& model);
  };
  const std::vector<Case> cases = {
      {"node b (Data): it has no attribute index", [](Model& m) { m.Op("b", "Data", {}); }},
      {"node b (Data): it has no attribute index", [](Model& m) { m.Op("b", "Data", {}).Set("index", TextAttr("1")); }},
      {"node b (RefData): another Data node has index 0",
       [](Model& m) { m.Op("b", "RefData", {}).Set("index", IntAttr(0)); }},
      {"node b (Data): index 2 where 1 comes next", [](Model& m) { m.Data("b", 2, kProtoFloat, {1}); }},
      {"node b (Data): index -1 where 0 comes next", [](Model& m) { m.Data("b", -1, kProtoFloat, {1}); }},
      {"node b (Data): a size of its shape is -3",
       [](Model& m) {
         m.Data("b", 1, kProtoFloat, {4, -3});
       }},
  };
  for (const Case& one : cases) {
    Model model;
    model.Data("a", 0, kProtoFloat, {4});
    one.make(model);
    StatusOr<std::unique_ptr<Graph>> graph = ImportBytes(model.Bytes());
    ASSERT_FALSE(graph.ok()) << one.wanted;
    const Status status = std::move(graph).status();
    EXPECT_EQ(status.detail().what, std::string("E13025: ") + one.wanted);
    EXPECT_EQ(status.detail().culprit, "graph main");
    EXPECT_FALSE(status.detail().hint.empty());
  }
}

// ---- Structure ----

TEST(Wire, StructuralOperatorsAreWrittenAgain) {
  Model model;
  model.SetOfGraph("_input_placements", IntsAttr({0, 1, -1}));
  model.SetOfGraph("_output_dtypes", IntsAttr({0}));
  model.Data("x", 0, kProtoFloat, {-2});
  model.Op("state", "RefData", {}).Set("index", IntAttr(1)).Output(kProtoFloat, {4});
  model.Op("flag", "Data", {}).Set("index", IntAttr(2)).Output(kProtoInt32, {});
  model.Op("weight", "FileConstant", {})
      .Set("shape", IntsAttr({2, 2}))
      .Set("dtype", TypeAttr(0))
      .Set("file_path", TextAttr("w.bin"));
  model.Op("there", "ConstPlaceHolder", {}).Set("origin_shape", IntsAttr({4})).Set("storage_shape", IntsAttr({4, 1}));
  model.Op("kept", "Variable", {}).Set("shared_name", TextAttr("v")).Output(kProtoFloat, {4});
  model.Op("either", "If", {"flag:0", "x:0"}, {"cond", "input0"})
      .Calls("then")
      .Calls("else")
      .Output(kProtoFloat, {4}, "output0");
  model.Op("called", "PartitionedCall", {"state:0", "x:0"}, {"args0", "args1"})
      .Calls("second")
      .Output(1, {4}, "output0");
  model.Op("again", "While", {"x:0"}, {"input0"}).Calls("then").Calls("else").Output(1, {4}, "output0");
  model.Op("counted", "For", {"flag:0", "flag:0", "flag:0", "x:0"}).Calls("then");
  model.Op("chosen", "Case", {"flag:0", "x:0"}).Calls("else").Calls("then");
  model.Op("wait", "NoOp", {"kept:-1"});
  model.Results({"either:0", "called:0", "wait:-1", "again:0"});
  for (const char* const name : {"then", "else"}) {
    model.NextGraph(name);
    model.Data("a", 0, kProtoFloat, {4}).Set("_parent_node_index", IntAttr(1));
    model.Results({"a:0"});
  }
  model.NextGraph("second");  // uses its second argument alone
  model.Data("a", 1, kProtoFloat, {4});
  model.Results({"a:0"});
  const std::string bytes = model.Bytes();
  const std::unique_ptr<Graph> graph = Read(bytes);
  EXPECT_EQ(std::get<std::vector<int64_t>>(graph->attributes.at("_input_placements")),
            (std::vector<int64_t>{0, 1, -1}));
  EXPECT_EQ(graph->inputs, (std::vector<NodeId>{0, 1, 2}));
  EXPECT_EQ(graph->at(3).outputs[0].tensor, (Tensor{0, kFormatNd, opdef::Shape{2, 2}}));
  EXPECT_EQ(graph->at(4).outputs[0].tensor.shape, (opdef::Shape{4, 1}));
  EXPECT_EQ(graph->at(6).graphs[0], graph->at(8).graphs[0]) << "subgraphs are shared";
  EXPECT_EQ(graph->at(7).graphs[0]->inputs.size(), 2U);
  EXPECT_EQ(graph->results_after.size(), 1U);
  const std::string written = Written(*graph);
  EXPECT_TRUE(written == bytes) << TextOf(bytes) << "\n\nis written as\n\n" << TextOf(written);
}

TEST(Wire, ChangesAreWritten) {
  Model model;
  model.Data("x", 0, kProtoFloat, {2, 3}).input_descs.push_back({"x", kProtoFloat, {2, 3}});
  ModelOp& op = model.Op("y", "Relu", {"x:0"}, {"x"}).Output(kProtoFloat, {2, 3});
  op.input_descs[0] = {"x", kProtoFloat, {2, 3}};
  model.Const("c", {1, 2});
  model.Results({"y:0"}).input_descs.push_back({"input0", kProtoFloat, {2, 3}});
  const std::unique_ptr<Graph> graph = Read(model.Bytes());
  graph->at(0).outputs[0].tensor.shape = opdef::Shape{5, opdef::Dim::Unknown()};
  graph->at(0).outputs[0].tensor.dtype = 1;
  graph->at(1).outputs[0].tensor = {1, 0, opdef::Shape::UnknownRank()};
  auto value = std::make_shared<Constant>(*graph->at(2).constant);
  value->shape = {1}, value->bytes.resize(8);
  graph->at(2).constant = value;
  Node cast;
  cast.type = "Cast";
  cast.inputs = {{"x", {1, 0}}, {"mask", {}}};
  cast.outputs = {{"y", {3, kFormatNd, opdef::Shape{7}}}};
  cast.attributes["dst_type"] = int64_t{3};
  graph->results[0] = {graph->Add(cast), 0};
  const std::string text = TextOf(Written(*graph));
  Model wanted;
  wanted.Data("x", 0, 2, {5, -1}).input_descs.push_back({"x", 2, {5, -1}});
  ModelOp& relu = wanted.Op("y", "Relu", {"x:0"}, {"x"});
  relu.input_descs[0] = {"x", 2, {5, -1}};
  relu.output_descs.push_back({"y", 2, {-2}, {{"format_for_int", IntAttr(0)}}});
  wanted.Const("c", {1});
  ModelOp& made = wanted.Op("Cast", "Cast", {"y:0", ""}, {"x", "mask"}).Set("dst_type", IntAttr(3));
  made.input_descs[0] = {"x", 2, {-2}, {{"format_for_int", IntAttr(0)}}};
  made.input_descs[1].attrs["_is_unfed_optional"] = IntAttr(1);
  made.Output(kProtoInt32, {7});
  wanted.Results({"Cast:0"}).input_descs.push_back({"input0", kProtoInt32, {7}});
  std::string same = TextOf(wanted.Bytes());
  // The name of the format, which stands before the attributes.
  for (size_t at = 0; (at = same.find("attr {\n        key: \"format_for_int\"", at)) != std::string::npos; at += 80) {
    same.insert(at, "layout: \"NCHW\"\n      ");
  }
  EXPECT_EQ(text, same);
}

TEST(Wire, ContentIsLeftOut) {
  Model model;
  model.Const("c", {1, 2}).Set("t", FullAttrs()["t"]).Set("l_t", FullAttrs()["l_t"]);
  model.Results({"c:0"});
  const std::unique_ptr<Graph> graph = Read(model.Bytes());
  EXPECT_EQ(Written(*graph), model.Bytes());
  const std::string no_data = TextOf(Written(*graph, {.content = Content::kNoData}));
  EXPECT_EQ(no_data.find("data:"), std::string::npos) << no_data;
  EXPECT_NE(no_data.find("dtype: DT_INT64"), std::string::npos);
  Model structure;
  structure.Op("c", "Const", {});
  structure.Results({"c:0"});
  EXPECT_EQ(Written(*graph, {.content = Content::kStructure}), structure.Bytes());
  EXPECT_NE(TextOf(Written(*graph, {.completes = true})).find("output_desc"), std::string::npos);
}

TEST(Wire, SubgraphsOfOneNameAreToldApart) {
  Model model;
  model.Data("x", 0, kProtoFloat, {4});
  for (const char* const name : {"a", "b"}) model.Op(name, "PartitionedCall", {"x:0"}).Calls("inner");
  model.NextGraph("inner");
  model.Data("x", 0, kProtoFloat, {4});
  const std::unique_ptr<Graph> graph = Read(model.Bytes());
  graph->at(2).graphs[0] = std::make_shared<Graph>(*graph->at(1).graphs[0]);
  graph->at(2).graphs[0]->at(0).name = "other";
  const std::unique_ptr<Graph> again = Read(Written(*graph));
  EXPECT_EQ(again->at(1).graphs[0]->at(0).name, "x");
  EXPECT_EQ(again->at(2).graphs[0]->at(0).name, "other");
}

TEST(Wire, DeepAndWideModelsAreRefused) {
  Model deep;
  for (int i = 0; i < 1000; ++i) {
    deep.Op("call", "PartitionedCall", {}).Calls("g" + std::to_string(i));
    deep.NextGraph("g" + std::to_string(i));
  }
  StatusOr<std::unique_ptr<Graph>> graph = ImportBytes(deep.Bytes());
  ASSERT_FALSE(graph.ok());
  EXPECT_NE(WhatOf(std::move(graph).status()).find("more than 200 deep"), std::string::npos);
  for (const char* const edge : {"a:4096", "a:2147483647", "a:9223372036854775807"}) {
    Model wide;
    wide.Op("a", "SplitD", {"a:0"}).Set("split_dim", IntAttr(0)).Set("num_split", IntAttr(1));
    wide.Op("b", "Relu", {edge});
    EXPECT_FALSE(ImportBytes(wide.Bytes()).ok()) << edge;
  }
}

// ---- Text and files ----

TEST(Wire, TextIsReadWithLineAndColumn) {
  StatusOr<std::unique_ptr<Graph>> graph = FromProtoText(
      "graph {\n  name: \"main\"\n  op { name: \"x\" type: \"Data\" attr { key: \"index\" value { i: 0 } } }\n}\n");
  ASSERT_TRUE(graph.ok()) << WhatOf(std::move(graph).status());
  EXPECT_EQ((*graph)->inputs.size(), 1U);
  graph = FromProtoText("name: \"alone\" op { name: \"n\" type: \"NoOp\" }");
  ASSERT_TRUE(graph.ok()) << "one graph";
  EXPECT_EQ((*graph)->name, "alone");
  graph = FromProtoText("graph {\n  nome: \"main\"\n}");
  ASSERT_FALSE(graph.ok());
  const Status status = std::move(graph).status();
  EXPECT_EQ(status.code(), kParseFile);
  EXPECT_NE(status.detail().what.find("line 2, column 7: "), std::string::npos) << status.detail().what;
}

class WireFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/reprise_wire_XXXXXX";
    folder_ = mkdtemp(path);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Put(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  std::filesystem::path folder_;
};

TEST_F(WireFiles, ModelsAreSavedAndLoaded) {
  const std::unique_ptr<Graph> graph = Read(FullModel(true));
  const std::string path = folder_ / "model.air";
  ASSERT_TRUE(SaveModel(*graph, path).ok());
  StatusOr<std::unique_ptr<Graph>> again = LoadModel(path);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(Written(**again), FullModel(true));
  EXPECT_EQ(SaveModel(*graph, folder_ / "no" / "model.air").code(), kWriteFile);
  EXPECT_EQ(SaveModel(*graph, folder_).code(), kWriteFile);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "no drafts are left";
  for (const std::filesystem::path& wrong : {folder_, folder_ / "other.air"}) {
    StatusOr<std::unique_ptr<Graph>> none = LoadModel(wrong);
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(std::move(none).status().code(), kInvalidFile);
  }
}

TEST_F(WireFiles, FileConstantsLookInThreePlaces) {
  Put("at", "....abcdefgh");
  Put("path", "ABCDEFGH");
  Put("id", "12345678");
  Put("short", "1234");
  FileConstantPlaces places{folder_, {{"one", "id"}}};
  const auto read = [&](opdef::Attributes more) {
    Node node;
    node.name = "w";
    node.type = "FileConstant";
    node.attributes = {{"shape", std::vector<int64_t>{2}}, {"dtype", opdef::DataTypeValue{0}}};
    for (auto& [name, value] : more) node.attributes[name] = value;
    StatusOr<std::shared_ptr<const Constant>> constant = ReadFileConstant(node, places);
    return constant.ok() ? (*constant)->bytes : WhatOf(std::move(constant).status());
  };
  const auto text = [](const char* value) { return opdef::AttributeValue(std::string(value)); };
  const opdef::AttributeValue four = int64_t{4};
  const opdef::AttributeValue eight = int64_t{8};
  EXPECT_EQ(read({{"location", text("at")}, {"offset", four}, {"file_path", text("path")}, {"file_id", text("one")}}),
            "abcdefgh");
  EXPECT_EQ(read({{"location", text("at")}, {"offset", four}, {"length", eight}}), "abcdefgh");
  EXPECT_EQ(read({{"file_path", text("path")}, {"offset", four}, {"file_id", text("one")}}), "ABCDEFGH");
  EXPECT_EQ(read({{"file_id", text("one")}}), "12345678");
  EXPECT_EQ(read({}), "node w (FileConstant): it names no file");
  EXPECT_EQ(read({{"file_id", text("two")}}), "node w (FileConstant): no file is known for its file_id two");
  EXPECT_NE(read({{"file_path", text("none")}}).find("No such file"), std::string::npos);
  EXPECT_NE(read({{"file_path", text("short")}}).find("it has 4 bytes, and 8 from byte 0 on"), std::string::npos);
  EXPECT_NE(read({{"location", text("at")}, {"offset", int64_t{-1}}}).find("from byte -1 on"), std::string::npos);
  EXPECT_NE(read({{"location", text("at")}, {"length", four}}).find("its length is 4"), std::string::npos);
  EXPECT_NE(read({{"file_path", text("path")}, {"shape", std::vector<int64_t>{-1}}}).find("do not say"),
            std::string::npos);
  EXPECT_NE(read({{"file_path", text("path")}, {"shape", std::vector<int64_t>{INT64_MAX, 3}}}).find("do not say"),
            std::string::npos);
}

}  // namespace
}  // namespace reprise::compiler
