// SPDX-License-Identifier: Apache-2.0
//
// Graphs of operators and of models, as nodes and edges, and what the compiler gets of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "all_ops.h"
#include "compiler/executable.h"
#include "compiler/text.h"
#include "ge/access.h"
#include "graph/graph.h"
#include "message.h"

namespace {

using ge::GraphAccess;
using ge::testing::Message;
using testing::ElementsAre;
using testing::HasSubstr;
namespace op = ge::op;

ge::TensorDesc Floats(std::vector<int64_t> dims) {
  return ge::TensorDesc(ge::Shape(dims), ge::FORMAT_ND, ge::DT_FLOAT);
}

op::Data Input(const char* name, std::vector<int64_t> dims, int64_t index = 0) {
  op::Data data(name);
  data.set_attr_index(index);
  data.update_input_desc_x(Floats(dims));
  data.update_output_desc_y(Floats(dims));
  return data;
}

op::Const Ints(const char* name, std::vector<int64_t> values) {
  const ge::TensorDesc desc(ge::Shape({static_cast<int64_t>(values.size())}), ge::FORMAT_ND, ge::DT_INT64);
  op::Const constant(name);
  constant.set_attr_value(ge::Tensor(desc, reinterpret_cast<const uint8_t*>(values.data()), values.size() * 8));
  return constant;
}

std::string TextOf(const ge::Graph& graph) {
  auto model = GraphAccess::ModelOf(graph);
  if (!model.ok()) {
    const reprise::Status status = std::move(model).status();
    return "refused: " + status.detail().what;
  }
  return *model == nullptr ? "null" : reprise::compiler::ToText(**model);
}

std::vector<std::string> NamesOf(const std::vector<ge::GNode>& nodes) {
  std::vector<std::string> names;
  for (const ge::GNode& node : nodes) {
    ge::AscendString name;
    EXPECT_EQ(node.GetName(name), ge::GRAPH_SUCCESS);
    names.emplace_back(name.GetString());
  }
  return names;
}

// x + y, and the sum over the first dim of that.
struct Sum {
  op::Data x = Input("x", {2, 3}, 0);
  op::Data y = Input("y", {3}, 1);
  op::Const axes = Ints("axes", {0});
  op::Add add = op::Add("add").set_input_x1(x).set_input_x2(y);
  op::ReduceSum sum = op::ReduceSum("sum").set_input_x(add).set_input_axes(axes).set_attr_keep_dims(true);
};

TEST(GeGraph, IsMadeOfOperators) {
  const Sum ops;
  ge::Graph graph("g");
  graph.SetInputs({ops.x, ops.y}).SetOutputs({ops.sum});
  EXPECT_TRUE(graph.IsValid());
  EXPECT_EQ(TextOf(graph),
            "graph g\n"
            "x = Data() {index = 0} : y float32 [2, 3]\n"
            "y = Data() {index = 1} : y float32 [3]\n"
            "add = Add(x1 = x:0, x2 = y:0) : y ? [..]\n"
            "axes = Const() : y int64 [1] = 0\n"
            "sum = ReduceSum(x = add:0, axes = axes:0) {keep_dims = true} : y ? [..]\n"
            "return sum:0\n");
  EXPECT_EQ(*GraphAccess::ModelOf(graph), *GraphAccess::ModelOf(graph));  // the same object
  const ge::Graph same = graph;
  EXPECT_EQ(GraphAccess::IdentityOf(same), GraphAccess::IdentityOf(graph));
  EXPECT_NE(GraphAccess::IdentityOf(ge::Graph("g")), GraphAccess::IdentityOf(graph));
}

TEST(GeGraph, TakesOutputsInFourWays) {
  const Sum ops;
  op::Unpack unpack("unpack");
  unpack.set_input_x(ops.x).set_attr_num(2).create_dynamic_output_y(2);
  const auto results = [&](const std::function<void(ge::Graph&)>& set) {
    ge::Graph graph("g");
    graph.SetInputs({ops.x, ops.y});
    set(graph);
    const std::string text = TextOf(graph);
    return text.substr(text.find("return"));
  };
  using Indexed = std::vector<std::pair<ge::Operator, std::vector<size_t>>>;
  EXPECT_EQ(results([&](ge::Graph& g) { g.SetOutputs({unpack, ops.add}); }), "return unpack:0, unpack:1, add:0\n");
  EXPECT_EQ(results([&](ge::Graph& g) {
              g.SetOutputs(Indexed{{unpack, {1}}, {ops.add, {}}});
            }),
            "return unpack:1, add:0\n");
  EXPECT_EQ(results([&](ge::Graph& g) {
              g.SetOutputs(std::vector<std::pair<ge::Operator, std::string>>{{unpack, "y1"}});
            }),
            "return unpack:1\n");
  EXPECT_EQ(results([&](ge::Graph& g) {
              g.SetOutputs(std::vector<std::pair<ge::Operator, ge::AscendString>>{{unpack, "y0"}});
            }),
            "return unpack:0\n");
  ge::Graph graph("g");
  graph.SetOutputs(Indexed{{unpack, {2}}});
  EXPECT_THAT(Message(), HasSubstr("has 2 outputs, so that there is no 2"));
  graph.SetOutputs(std::vector<std::pair<ge::Operator, ge::AscendString>>{{unpack, "z"}});
  EXPECT_THAT(Message(), HasSubstr("operator unpack (Unpack) has no output z"));
  graph.SetOutputs({ge::Operator()});
  EXPECT_THAT(Message(), HasSubstr("operator 0 is empty"));
}

TEST(GeGraph, FollowsItsOperatorsUntilItIsTaken) {
  Sum ops;
  ge::Graph graph("g");
  graph.SetInputs({ops.x, ops.y}).SetOutputs({ops.sum});
  EXPECT_EQ(graph.GetAllNodes().size(), 6u);  // five and the results
  ops.sum.set_attr_keep_dims(false);
  ge::AscendString name("sum");
  bool keeps = true;
  EXPECT_EQ(graph.FindNodeByName(name)->GetAttr("keep_dims", keeps), ge::GRAPH_SUCCESS);
  EXPECT_FALSE(keeps);
  EXPECT_THAT(TextOf(graph), HasSubstr("keep_dims = false"));
  ops.sum.set_attr_keep_dims(true);
  EXPECT_THAT(TextOf(graph), HasSubstr("keep_dims = false"));
  graph.SetOutputs({ops.add});
  EXPECT_THAT(Message(), HasSubstr("the graph g was read from a model, changed as nodes, or compiled"));
}

TEST(GeGraph, NumbersItsInputs) {
  const struct {
    int64_t first, second;
    const char* order;
  } kCases[] = {{1, 0, "y"}, {0, 1, "x"}, {0, 0, "x"}, {5, 7, "x"}};
  for (const auto& entry : kCases) {
    const op::Data x = Input("x", {3}, entry.first), y = Input("y", {3}, entry.second);
    ge::Graph graph("g");
    graph.SetInputs({x, y}).SetOutputs({op::Add("add").set_input_x1(x).set_input_x2(y)});
    auto model = GraphAccess::ModelOf(graph);
    ASSERT_TRUE(model.ok());
    EXPECT_EQ((*model)->at((*model)->inputs[0]).name, entry.order) << entry.first << entry.second;
  }
}

TEST(GeGraph, KeepsOrderAndTargets) {
  const Sum ops;
  op::NoOp point("point");
  point.AddControlInput(ops.add);
  op::Relu late = op::Relu("late").set_input_x(ops.x);
  late.AddControlInput(point);
  ge::Graph graph("g");
  graph.SetInputs({ops.x, ops.y}).SetOutputs({late}).SetTargets({ops.sum});
  auto model = GraphAccess::ModelOf(graph);
  ASSERT_TRUE(model.ok());
  EXPECT_THAT(reprise::compiler::ToText(**model), HasSubstr("late = Relu(x = x:0) after (point)"));
  ASSERT_EQ((*model)->results_after.size(), 1u);
  EXPECT_EQ((*model)->at((*model)->results_after[0]).name, "sum");
}

TEST(GeGraph, RefusesWhatIsNoGraph) {
  const Sum ops;
  ge::Graph missing("g");
  missing.SetInputs({ops.x}).SetOutputs({op::Add("half").set_input_x1(ops.x)});
  EXPECT_THAT(TextOf(missing), HasSubstr("refused: node half (Add): the input x2 is missing"));
  ge::Graph twice("g");
  twice.SetInputs({ops.x}).SetOutputs({op::Relu("r").set_input_x(op::Abs("r").set_input_x(ops.x))});
  EXPECT_THAT(TextOf(twice), HasSubstr("refused: two operators of the graph have the name r"));
  ge::Graph bare("g");
  bare.SetInputs({ops.x}).SetOutputs({op::ArgMaxWithValue("a").set_input_x(ops.x)});
  EXPECT_THAT(TextOf(bare), HasSubstr("dimension"));
  EXPECT_EQ(TextOf(ge::Graph()), "null");
  EXPECT_FALSE(ge::Graph().IsValid());
  EXPECT_FALSE(ge::Graph("g").IsValid());
}

ge::Graph Branch(const char* name, bool adds) {
  op::Data x = Input((std::string(name) + "_x").c_str(), {3}, 0);
  ge::Operator result = op::Relu((std::string(name) + "_r").c_str()).set_input_x(x);
  if (adds) result = op::Add((std::string(name) + "_r").c_str()).set_input_x1(x).set_input_x2(x);
  ge::Graph graph(name);
  graph.SetInputs({x}).SetOutputs({result});
  return graph;
}

TEST(GeGraph, CallsGraphs) {
  op::Data cond = Input("cond", {}, 0), x = Input("x", {3}, 1);
  op::If branch("branch");
  branch.set_input_cond(cond).create_dynamic_input_input(1).set_dynamic_input_input(0, x).create_dynamic_output_output(
      1);
  branch.set_subgraph_builder_then_branch([] { return Branch("yes", true); });
  ge::Graph graph("g");
  graph.SetInputs({cond, x}).SetOutputs({branch});
  EXPECT_THAT(TextOf(graph), HasSubstr("refused: operator branch (If) has no graph else_branch to call"));
  branch.set_subgraph_builder_else_branch([] { return Branch("no", false); });
  const std::string text = TextOf(graph);
  EXPECT_THAT(text, HasSubstr("graph yes"));
  EXPECT_THAT(text, HasSubstr("graph no"));
  EXPECT_THAT(NamesOf(graph.GetAllNodes()), ElementsAre("cond", "x", "branch", "NetOutput", "yes_x", "yes_r",
                                                        "NetOutput", "no_x", "no_r", "NetOutput"));
  EXPECT_EQ(graph.GetDirectNode().size(), 4u);
  ASSERT_NE(graph.GetSubgraph("yes"), nullptr);
  EXPECT_EQ(graph.GetSubgraph("yes"), graph.GetSubgraph("yes"));
  EXPECT_EQ(graph.GetSubgraph("maybe"), nullptr);
  EXPECT_EQ(graph.GetAllSubgraphs().size(), 2u);
  EXPECT_EQ(graph.RemoveSubgraph("yes"), ge::GRAPH_FAILED);
  EXPECT_THAT(Message(), HasSubstr("node branch calls the graph yes"));
  ge::GraphPtr inner;
  EXPECT_EQ(graph.FindNodeByName("branch")->GetSubgraph(1, inner), ge::GRAPH_SUCCESS);
  EXPECT_EQ(inner->GetName(), "no");
  EXPECT_EQ(graph.FindNodeByName("branch")->GetSubgraph(2, inner), ge::GRAPH_PARAM_OUT_OF_RANGE);
  EXPECT_EQ(graph.FindNodeByName("branch")->SetSubgraph(0, graph), ge::GRAPH_PARAM_INVALID);
  EXPECT_THAT(Message(), HasSubstr("would call itself"));
  EXPECT_EQ(graph.AddSubgraph(graph), ge::GRAPH_FAILED);
  EXPECT_EQ(graph.AddSubgraph(ge::Graph("other")), ge::GRAPH_SUCCESS);
  EXPECT_EQ(graph.RemoveSubgraph("other"), ge::GRAPH_SUCCESS);
}

ge::Graph Endless() {
  op::Data x = Input("x", {3});
  op::PartitionedCall call("call");
  call.create_dynamic_input_args(1).set_dynamic_input_args(0, x).create_dynamic_output_output(1);
  call.set_subgraph_builder_f([] { return Endless(); });
  ge::Graph graph("endless");
  graph.SetInputs({x}).SetOutputs({call});
  return graph;
}

TEST(GeGraph, RefusesGraphsWithoutAnEnd) {
  EXPECT_THAT(TextOf(Endless()), HasSubstr("operator call (PartitionedCall) calls a graph that calls a graph"));
}

TEST(GeGraph, IsChangedAsNodes) {
  ge::Graph graph("g");
  ge::GNode x = graph.AddNodeByOp(Input("x", {3}));
  ge::GNode relu = graph.AddNodeByOp(op::Relu("relu"));
  ge::GNode add = graph.AddNodeByOp(op::Add("add"));
  EXPECT_EQ(graph.AddDataEdge(x, 0, relu, 0), ge::GRAPH_SUCCESS);
  EXPECT_EQ(graph.AddDataEdge(relu, 0, add, 0), ge::GRAPH_SUCCESS);
  EXPECT_EQ(graph.AddDataEdge(x, 0, add, 1), ge::GRAPH_SUCCESS);
  EXPECT_EQ(graph.AddControlEdge(relu, add), ge::GRAPH_SUCCESS);
  EXPECT_THAT(TextOf(graph), HasSubstr("add = Add(x1 = relu:0, x2 = x:0) after (relu)"));

  EXPECT_EQ(graph.AddDataEdge(x, 0, add, 1), ge::GRAPH_FAILED);
  EXPECT_THAT(Message(), HasSubstr("input 1 of node add is connected already"));
  EXPECT_EQ(graph.AddDataEdge(x, 1, add, 1), ge::GRAPH_PARAM_OUT_OF_RANGE);
  EXPECT_EQ(graph.AddDataEdge(x, 0, add, -1), ge::GRAPH_PARAM_OUT_OF_RANGE);
  EXPECT_EQ(graph.AddControlEdge(add, relu), ge::GRAPH_FAILED);
  EXPECT_THAT(Message(), HasSubstr("the edge from add to relu would close a circle"));
  ge::GNode none;
  ge::AscendString text;
  EXPECT_EQ(none.GetName(text), ge::GRAPH_FAILED);
  EXPECT_EQ(graph.AddDataEdge(none, 0, add, 0), ge::GRAPH_PARAM_INVALID);
  EXPECT_EQ(graph.RemoveEdge(x, 0, add, 0), ge::GRAPH_FAILED);

  // Neighbours.
  const auto from = add.GetInDataNodesAndPortIndexs(0);
  ASSERT_NE(from.first, nullptr);
  EXPECT_EQ(from.first->GetName(text), ge::GRAPH_SUCCESS);
  EXPECT_STREQ(text.GetString(), "relu");
  EXPECT_EQ(from.second, 0);
  EXPECT_EQ(x.GetOutDataNodesAndPortIndexs(0).size(), 2u);
  EXPECT_EQ(add.GetInControlNodes().size(), 1u);
  EXPECT_EQ(relu.GetOutControlNodes().size(), 1u);
  EXPECT_EQ(add.GetInDataNodesAndPortIndexs(7).first, nullptr);
  int32_t index = -1;
  EXPECT_EQ(add.GetInputIndexByName("x2", index), ge::GRAPH_SUCCESS);
  EXPECT_EQ(index, 1);
  EXPECT_EQ(add.GetInputIndexByName("x3", index), ge::GRAPH_FAILED);

  EXPECT_EQ(graph.RemoveEdge(relu, 0, add, 0), ge::GRAPH_SUCCESS);
  EXPECT_EQ(graph.RemoveEdge(relu, -1, add, -1), ge::GRAPH_SUCCESS);
  EXPECT_EQ(graph.RemoveNode(relu), ge::GRAPH_SUCCESS);
  EXPECT_EQ(relu.GetName(text), ge::GRAPH_FAILED);
  EXPECT_THAT(Message(), HasSubstr("the graph g has no node relu any more"));
  EXPECT_EQ(graph.RemoveNode(relu), ge::GRAPH_FAILED);
  EXPECT_THAT(NamesOf(graph.GetDirectNode()), ElementsAre("x", "add"));
}

TEST(GeGraph, KeepsWhatNodesAreTold) {
  const Sum ops;
  ge::Graph graph("g");
  graph.SetInputs({ops.x, ops.y}).SetOutputs({ops.sum});
  const ge::GNodePtr sum = graph.FindNodeByName("sum");
  ASSERT_NE(sum, nullptr);
  ge::AscendString label("one");
  EXPECT_EQ(sum->SetAttr("_user_stream_label", label), ge::GRAPH_SUCCESS);
  ge::Tensor tensor(ge::TensorDesc(ge::Shape({1}), ge::FORMAT_ND, ge::DT_UINT8), std::vector<uint8_t>{4});
  EXPECT_EQ(sum->SetAttr("_extra", tensor), ge::GRAPH_SUCCESS);
  label = "";
  EXPECT_EQ(sum->GetAttr("_user_stream_label", label), ge::GRAPH_SUCCESS);
  EXPECT_STREQ(label.GetString(), "one");
  EXPECT_TRUE(sum->HasAttr("_extra"));
  EXPECT_FALSE(sum->HasAttr("_other"));
  int64_t number = 0;
  EXPECT_EQ(sum->GetAttr("_user_stream_label", number), ge::GRAPH_FAILED);
  ge::TensorDesc desc = Floats({1, 3});
  desc.SetOriginFormat(ge::FORMAT_NCHW);
  EXPECT_EQ(sum->UpdateOutputDesc(0, desc), ge::GRAPH_SUCCESS);
  ge::TensorDesc read;
  EXPECT_EQ(sum->GetOutputDesc(0, read), ge::GRAPH_SUCCESS);
  EXPECT_THAT(read.GetShape().GetDims(), ElementsAre(1, 3));
  EXPECT_EQ(read.GetOriginFormat(), ge::FORMAT_NCHW);
  EXPECT_EQ(sum->GetOutputDesc(1, read), ge::GRAPH_PARAM_OUT_OF_RANGE);
  EXPECT_EQ(sum->GetInputConstData(1, tensor), ge::GRAPH_SUCCESS);
  EXPECT_EQ(tensor.GetSize(), 8u);
  EXPECT_EQ(sum->GetInputConstData(0, tensor), ge::GRAPH_FAILED);
  auto model = GraphAccess::ModelOf(graph);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ((*model)->at((*model)->Find("sum")).notes.count("_user_stream_label"), 1u);
}

TEST(GeGraph, CopiesAreIndependent) {
  const Sum ops;
  ge::Graph graph("g"), copy("copy");
  graph.SetInputs({ops.x, ops.y}).SetOutputs({ops.sum});
  EXPECT_EQ(copy.CopyFrom(graph), ge::GRAPH_SUCCESS);
  EXPECT_EQ(copy.GetName(), "copy");
  bool off = false, keeps = false;
  EXPECT_EQ(graph.FindNodeByName("sum")->SetAttr("keep_dims", off), ge::GRAPH_SUCCESS);
  EXPECT_EQ(copy.FindNodeByName("sum")->GetAttr("keep_dims", keeps), ge::GRAPH_SUCCESS);
  EXPECT_TRUE(keeps);
  EXPECT_EQ(copy.CopyFrom(ge::Graph()), ge::GRAPH_FAILED);
  const ge::GraphPtr made = ge::Graph::ConstructFromInputs({ops.x, ops.y}, "made");
  ASSERT_NE(made, nullptr);
  ge::Operator found;
  EXPECT_EQ(made->FindOpByName("sum", found), ge::GRAPH_SUCCESS);
  EXPECT_EQ(found.GetOpType(), "ReduceSum");
  EXPECT_EQ(made->FindOpByName("none", found), ge::GRAPH_FAILED);
  std::vector<ge::Operator> many;
  EXPECT_EQ(made->FindOpByType("Data", many), ge::GRAPH_SUCCESS);
  EXPECT_EQ(many.size(), 2u);
  EXPECT_EQ(ge::Graph::ConstructFromInputs({}, "made"), nullptr);
}

TEST(GeGraph, GoesToTheCompiler) {
  const Sum ops;
  ge::Graph graph("g");
  graph.SetInputs({ops.x, ops.y}).SetOutputs({ops.sum});
  auto model = GraphAccess::ModelOf(graph);
  ASSERT_TRUE(model.ok());
  auto compiled = reprise::compiler::Executable::Compile(**model, {});
  ASSERT_TRUE(compiled.ok());
  EXPECT_TRUE((*compiled)->is_static());
  ASSERT_EQ((*compiled)->results().size(), 1u);
  EXPECT_EQ((*compiled)->results()[0].shape.text(), "[1, 3]");
  GraphAccess::SetModel(graph, std::make_shared<reprise::compiler::Graph>((*compiled)->graph()));
  EXPECT_NE(graph.FindNodeByName("sum"), nullptr);
}

// A field of a protobuf message that holds bytes, and one that holds a number.
std::string Field(int number, const std::string& bytes) {
  std::string text;
  text += static_cast<char>(number << 3 | 2);
  text += static_cast<char>(bytes.size());
  return text + bytes;
}
std::string Node(const char* name, const char* type, const std::string& more = {}) {
  return Field(6, Field(1, name) + Field(2, type) + more);
}
std::string Model() {
  const std::string index = Field(10, Field(1, "index") + Field(2, std::string("\x18\0", 2)));
  return Field(1, "model") + Field(7, Field(1, "root") + Node("x", "Data", index) + Node("y", "Relu", Field(5, "x:0")));
}

TEST(GeGraph, ReadsAndWritesModels) {
  const std::string model = Model();
  ge::Graph graph("mine");
  ASSERT_EQ(graph.LoadFromSerializedModelArray(model.data(), model.size()), ge::GRAPH_SUCCESS) << Message();
  ge::Graph copy("copy");
  EXPECT_EQ(copy.CopyFrom(graph), ge::GRAPH_SUCCESS);
  EXPECT_THAT(NamesOf(copy.GetAllNodes()), ElementsAre("x", "y"));
  EXPECT_THAT(TextOf(copy), HasSubstr("y = Relu("));

  const std::string path = testing::TempDir() + "graph.air";
  EXPECT_EQ(copy.SaveToFile(path.c_str()), ge::GRAPH_SUCCESS);
  std::ifstream file(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), model);
  ge::Graph read;
  EXPECT_EQ(read.LoadFromFile(path.c_str()), ge::GRAPH_SUCCESS) << Message();
  EXPECT_EQ(read.GetAllNodes().size(), 2u);
  std::remove(path.c_str());
  EXPECT_EQ(read.LoadFromFile(path.c_str()), ge::GRAPH_FAILED);
  EXPECT_THAT(Message(), HasSubstr("cannot be read: No such file"));
  std::vector<uint8_t> bytes;
  EXPECT_EQ(copy.SaveToMem(bytes), ge::GRAPH_SUCCESS);
  EXPECT_EQ(read.LoadFromMem(bytes.data(), bytes.size()), ge::GRAPH_SUCCESS);
  EXPECT_EQ(copy.SaveToFile("/nowhere/graph.air"), ge::GRAPH_FAILED);
  EXPECT_THAT(Message(), HasSubstr("\"/nowhere/graph.air\" cannot be written"));
  std::ostringstream out;
  EXPECT_EQ(copy.Dump(ge::Graph::DumpFormat::kReadable, out), ge::GRAPH_SUCCESS);
  EXPECT_THAT(out.str(), HasSubstr("Node[type=Relu] (inputs = (x=%x)"));
  out.str("");
  EXPECT_EQ(copy.Dump(ge::Graph::DumpFormat::kOnnx, out), ge::GRAPH_SUCCESS);
  EXPECT_THAT(out.str(), HasSubstr("Relu"));
  EXPECT_EQ(copy.Dump(static_cast<ge::Graph::DumpFormat>(9), out), ge::GRAPH_PARAM_INVALID);
}

TEST(GeGraph, WritesWhatWasMadeOfOperators) {
  const Sum ops;
  ge::Graph graph("g"), read("read");
  graph.SetInputs({ops.x, ops.y}).SetOutputs({ops.sum});
  ge::AttrValue value;
  EXPECT_EQ(value.SetAttrValue(std::vector<int64_t>{1, 1}), ge::GRAPH_SUCCESS);
  EXPECT_EQ(graph.SetAttr("_input_placements", value), ge::GRAPH_SUCCESS);
  std::vector<uint8_t> bytes;
  ASSERT_EQ(graph.SaveToMem(bytes), ge::GRAPH_SUCCESS) << Message();
  ASSERT_EQ(read.LoadFromMem(bytes.data(), bytes.size()), ge::GRAPH_SUCCESS) << Message();
  EXPECT_EQ(TextOf(read), TextOf(graph));
  ge::AttrValue other;
  std::vector<int64_t> placements;
  EXPECT_EQ(read.GetAttr("_input_placements", other), ge::GRAPH_SUCCESS);
  EXPECT_EQ(other.GetAttrValue(placements), ge::GRAPH_SUCCESS);
  EXPECT_THAT(placements, ElementsAre(1, 1));
  EXPECT_EQ(read.GetAttr("_none", other), ge::GRAPH_FAILED);
  std::ostringstream out;
  EXPECT_EQ(graph.Dump(ge::Graph::DumpFormat::kTxt, out), ge::GRAPH_SUCCESS);
  EXPECT_THAT(out.str(), HasSubstr("type: \"ReduceSum\""));
}

TEST(GeGraph, RefusesWhatIsNoModel) {
  const std::string model = Model();
  ge::Graph graph("mine");
  ASSERT_EQ(graph.LoadFromSerializedModelArray(model.data(), model.size()), ge::GRAPH_SUCCESS);
  for (size_t bytes = 0; bytes < model.size(); ++bytes) {
    EXPECT_EQ(graph.LoadFromSerializedModelArray(model.data(), bytes), ge::GRAPH_PARAM_INVALID) << bytes;
  }
  EXPECT_THAT(Message(), HasSubstr("model"));
  EXPECT_EQ(graph.LoadFromSerializedModelArray(nullptr, 1), ge::GRAPH_NULL_PTR);
  EXPECT_EQ(graph.LoadFromFile(static_cast<const char*>(nullptr)), ge::GRAPH_NULL_PTR);
  EXPECT_EQ(graph.GetAllNodes().size(), 2u);  // as it was before
}

}  // namespace
