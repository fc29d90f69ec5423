// SPDX-License-Identifier: Apache-2.0
//
// Classes of the graph engine as a caller uses them, and what the engine itself refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "../../facade/ge_runner/ge_api.h"
#include "acl/acl.h"
#include "ge/values.h"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Message() {
  const char* text = aclGetRecentErrMsg();
  return text != nullptr ? text : "";
}

// A field of a protobuf message that holds bytes.
std::string Field(int number, const std::string& bytes) {
  std::string text;
  text += static_cast<char>(number << 3 | 2);
  text += static_cast<char>(bytes.size());
  return text + bytes;
}

std::string Node(const char* name, const char* type) { return Field(6, Field(1, name) + Field(2, type)); }

TEST(GeText, ComparesAndSorts) {
  const ge::AscendString a("a"), b("b"), empty(nullptr);
  EXPECT_STREQ(a.GetString(), "a");
  EXPECT_STREQ(empty.GetString(), "");
  EXPECT_TRUE(a == ge::AscendString("a"));
  EXPECT_TRUE(empty == ge::AscendString(""));
  EXPECT_FALSE(a == b);
  EXPECT_TRUE(a < b);
  EXPECT_FALSE(b < a);
  EXPECT_STREQ(ge::GetFormatName(ge::FORMAT_NCHW), "NCHW");
  EXPECT_STREQ(ge::GetFormatName(static_cast<ge::Format>(29 | 4 << 8)), "FRACTAL_NZ");  // with groups
  EXPECT_STREQ(ge::GetFormatName(ge::FORMAT_RESERVED), "RESERVED");
}

TEST(GeTensor, KeepsItsDescription) {
  ge::TensorDesc desc;
  desc.SetDataType(static_cast<ge::DataType>(1));
  desc.SetFormat(ge::FORMAT_NCHW);
  desc.SetPlacement(ge::kPlacementDevice);
  desc.SetOriginShape(ge::Shape({2, 3}));
  ge::Tensor tensor;
  EXPECT_EQ(tensor.SetTensorDesc(desc), ge::GRAPH_SUCCESS);
  EXPECT_EQ(tensor.GetDataType(), 1);
  EXPECT_EQ(tensor.GetFormat(), ge::FORMAT_NCHW);
  EXPECT_EQ(tensor.GetPlacement(), ge::kPlacementDevice);
  EXPECT_EQ(tensor.GetOriginShapeDimNum(), 2u);
  EXPECT_EQ(tensor.SetShapeDimNum(3), ge::GRAPH_SUCCESS);
  EXPECT_EQ(tensor.SetShapeDim(1, 7), ge::GRAPH_SUCCESS);
  EXPECT_THAT(tensor.GetTensorDesc().GetShape().GetDims(), ElementsAre(0, 7, 0));
  // The description that came out is a copy.
  tensor.GetTensorDesc().SetDataType(ge::DT_FLOAT);
  EXPECT_EQ(tensor.GetDataType(), 1);
  EXPECT_EQ(tensor.GetShapeDim(9), 0);
}

TEST(GeTensor, RefusesDimsThatItDoesNotHave) {
  ge::Tensor tensor;
  EXPECT_EQ(tensor.SetShapeDim(0, 1), ge::GRAPH_PARAM_OUT_OF_RANGE);
  EXPECT_THAT(Message(), HasSubstr("idx is 0, but the shape has 0 dimensions"));
  EXPECT_EQ(tensor.SetOriginShapeDimNum(65), ge::GRAPH_PARAM_OUT_OF_RANGE);
  EXPECT_THAT(Message(), HasSubstr("dim_num is 65, must be at most 64"));
}

TEST(GeTensor, FreesItsMemoryOnce) {
  int freed = 0;
  uint8_t bytes[4] = {};
  const ge::Tensor::DeleteFunc deleter = [&](uint8_t* memory) { freed += memory == bytes ? 1 : 100; };
  {
    ge::Tensor tensor;
    EXPECT_EQ(tensor.SetData(bytes, sizeof bytes, deleter), ge::GRAPH_SUCCESS);
    const ge::Tensor same = tensor;
    EXPECT_EQ(same.GetData(), bytes);
    EXPECT_EQ(tensor.ResetData(nullptr, 0, {}), ge::GRAPH_SUCCESS);
    EXPECT_EQ(freed, 1);
    EXPECT_EQ(tensor.SetData(bytes, sizeof bytes, deleter), ge::GRAPH_SUCCESS);
    const auto taken = tensor.ResetData();
    EXPECT_EQ(taken.get(), bytes);
    EXPECT_EQ(tensor.GetData(), nullptr);
    EXPECT_EQ(freed, 1);
  }
  EXPECT_EQ(freed, 2);
  ge::Tensor tensor;
  EXPECT_EQ(tensor.SetData(nullptr, 4, deleter), ge::GRAPH_NULL_PTR);
}

TEST(GeGraph, ReadsTheNodesOfItsModel) {
  const std::string model = Field(1, "model") + Field(7, Field(1, "root") + Node("x", "Data") + Node("y", "Relu")) +
                            Field(7, Node("z", "Add"));
  ge::Graph graph("mine");
  ASSERT_EQ(graph.LoadFromSerializedModelArray(model.data(), model.size()), ge::GRAPH_SUCCESS) << Message();
  ge::Graph copy("copy");
  EXPECT_EQ(copy.CopyFrom(graph), ge::GRAPH_SUCCESS);
  std::vector<std::string> types;
  for (const ge::GNode& node : copy.GetAllNodes()) {
    ge::AscendString type;
    EXPECT_EQ(node.GetType(type), ge::GRAPH_SUCCESS);
    types.emplace_back(type.GetString());
  }
  EXPECT_THAT(types, ElementsAre("Data", "Relu"));

  const std::string path = testing::TempDir() + "graph.air";
  EXPECT_EQ(copy.SaveToFile(path.c_str()), ge::GRAPH_SUCCESS);
  std::ifstream file(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), model);
  std::remove(path.c_str());
  EXPECT_EQ(copy.SaveToFile("/nowhere/graph.air"), ge::GRAPH_FAILED);
  EXPECT_THAT(Message(), HasSubstr("\"/nowhere/graph.air\" cannot be written"));
}

TEST(GeGraph, RefusesWhatIsNoModel) {
  const std::string model = Field(7, Node("x", "Data"));
  ge::Graph graph("mine");
  ASSERT_EQ(graph.LoadFromSerializedModelArray(model.data(), model.size()), ge::GRAPH_SUCCESS);
  for (size_t bytes = 1; bytes < model.size(); ++bytes) {
    EXPECT_EQ(graph.LoadFromSerializedModelArray(model.data(), bytes), ge::GRAPH_PARAM_INVALID) << bytes;
  }
  EXPECT_THAT(Message(), HasSubstr("are no serialised ModelDef"));
  EXPECT_EQ(graph.LoadFromSerializedModelArray(model.data(), 0), ge::GRAPH_PARAM_INVALID);
  EXPECT_THAT(Message(), HasSubstr("the model holds no graph"));
  EXPECT_EQ(graph.LoadFromSerializedModelArray(nullptr, 1), ge::GRAPH_NULL_PTR);
  EXPECT_EQ(graph.GetAllNodes().size(), 1u);  // as it was before
}

TEST(GeOperator, HasNoPrototypes) {
  EXPECT_FALSE(ge::OperatorFactory::IsExistOp("Relu"));
  ge::Operator op = ge::OperatorFactory::CreateOperator("r", "Relu");
  EXPECT_THAT(Message(), HasSubstr("operators of the graph engine have no prototypes here"));
  ge::AscendStringMap attributes;
  EXPECT_EQ(op.GetAllIrAttrNamesAndTypes(attributes), ge::GRAPH_FAILED);
  EXPECT_EQ(op.UpdateInputDesc("x", ge::TensorDesc()), ge::GRAPH_FAILED);
}

TEST(GeEngine, RefusesWithASentence) {
  EXPECT_EQ(ge::GEInitialize({}), ge::UNSUPPORTED);
  const ge::AscendString text = ge::GEGetErrorMsgV2();
  EXPECT_THAT(text.GetString(), HasSubstr("there is no graph engine yet that compiles graphs of operators"));
  EXPECT_STREQ(ge::GEGetErrorMsgV2().GetString(), "");  // told once
  ge::Session session({});
  EXPECT_EQ(session.AddGraph(1, ge::Graph("g"), {}), ge::FAILED);
  EXPECT_EQ(session.CompileGraph(1), ge::FAILED);
  EXPECT_EQ(session.GetCompiledGraphSummary(1), nullptr);
  std::vector<ge::Tensor> outputs;
  EXPECT_EQ(session.RunGraph(1, {}, outputs), ge::FAILED);
  EXPECT_EQ(session.RunGraphWithStreamAsync(1, nullptr, {}, outputs), ge::FAILED);
  EXPECT_THAT(Message(), HasSubstr("ge::Session::RunGraphWithStreamAsync"));
  EXPECT_STREQ(ge::GEGetWarningMsgV2().GetString(), "");
  EXPECT_EQ(ge::GEFinalize(), ge::SUCCESS);
}

}  // namespace
