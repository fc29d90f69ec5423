// SPDX-License-Identifier: Apache-2.0
//
// Operators: prototypes of the library and of a program, edges, lists, attributes, inference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "all_ops.h"
#include "ge/access.h"
#include "graph/operator_factory.h"
#include "graph/operator_reg.h"
#include "message.h"

// As a program declares an operator of its own.
namespace ge {
REG_OP(TestScale)
    .INPUT(x, TensorType({DT_FLOAT, DT_INT32}))
    .OPTIONAL_INPUT(mask, TensorType::ALL())
    .DYNAMIC_INPUT(more, TensorType::FLOAT())
    .OUTPUT(y, TensorType::BasicType())
    .DYNAMIC_OUTPUT(parts, TensorType::ALL())
    .ATTR(factor, Float, 1.5)
    .ATTR(axes, ListInt, {0, 1})
    .ATTR(mode, String, "sum")
    .ATTR(names, ListString, {"a", "b"})
    .REQUIRED_ATTR(count, Int)
    .GRAPH(body)
    .OP_END_FACTORY_REG(TestScale)

        IMPLEMT_COMMON_INFERFUNC(InferTestScale) {
  return op.UpdateOutputDesc("y", op.GetInputDescByName("x"));
}
COMMON_INFER_FUNC_REG(TestScale, InferTestScale)
IMPLEMT_VERIFIER(TestScale, VerifyTestScale) { return op.get_attr_count() > 0 ? GRAPH_SUCCESS : GRAPH_PARAM_INVALID; }
VERIFY_FUNC_REG(TestScale, VerifyTestScale)
}  // namespace ge

namespace {

using ge::testing::Message;
using testing::ElementsAre;
using testing::HasSubstr;
namespace op = ge::op;

static_assert(sizeof(ge::Operator) == 24 && sizeof(ge::Graph) == 16 && sizeof(ge::GNode) == 16);
static_assert(std::has_virtual_destructor_v<ge::Operator>);

ge::TensorDesc Desc(std::vector<int64_t> dims, ge::DataType type = ge::DT_FLOAT) {
  return ge::TensorDesc(ge::Shape(dims), ge::FORMAT_ND, type);
}

TEST(GeFactory, MakesOperatorsOfAllTypes) {
  std::vector<ge::AscendString> types;
  EXPECT_EQ(ge::OperatorFactory::GetOpsTypeList(types), ge::GRAPH_SUCCESS);
  EXPECT_GT(types.size(), 400u);
  for (const ge::AscendString& type : types) {
    EXPECT_TRUE(ge::OperatorFactory::IsExistOp(type.GetString()));
    const ge::Operator made = ge::OperatorFactory::CreateOperator("name", type.GetString());
    EXPECT_EQ(made.GetOpType(), type.GetString());
    EXPECT_EQ(made.GetName(), "name");
    EXPECT_TRUE(ge::GraphAccess::DefinitionOf(type.GetString()).ok());
  }
  EXPECT_FALSE(ge::OperatorFactory::IsExistOp("NoSuchType"));
  EXPECT_FALSE(ge::OperatorFactory::IsExistOp(static_cast<const char*>(nullptr)));
  EXPECT_TRUE(ge::OperatorFactory::CreateOperator("x", "NoSuchType").IsEmpty());
  EXPECT_THAT(Message(), HasSubstr("there is no operator type NoSuchType"));
  EXPECT_TRUE(ge::OperatorFactory::CreateOperator(nullptr, "Add").IsEmpty());
}

TEST(GeOperator, TellsItsPrototype) {
  ge::Operator sum("s", "ReduceSum");
  EXPECT_EQ(sum.GetInputsSize(), 2u);
  EXPECT_EQ(sum.GetOutputsSize(), 1u);
  std::map<ge::AscendString, ge::AscendString> attributes;
  EXPECT_EQ(sum.GetAllIrAttrNamesAndTypes(attributes), ge::GRAPH_SUCCESS);
  EXPECT_THAT(attributes, ElementsAre(std::pair(ge::AscendString("keep_dims"), ge::AscendString("VT_BOOL"))));
  auto definition = ge::GraphAccess::DefinitionOf("Case");
  ASSERT_TRUE(definition.ok());
  EXPECT_EQ(definition->inputs, (ge::IrDefinition::Entries{{"branch_index", "required"}, {"input", "dynamic"}}));
  EXPECT_FALSE(ge::GraphAccess::DefinitionOf("NoSuchType").ok());
  const ge::Operator data("Data");
  EXPECT_NE(ge::Operator("Data").GetName(), data.GetName());  // names of their own
}

TEST(GeOperator, IsConnectedByNamesAndIndexes) {
  op::Data x("x");
  op::Unpack unpack("unpack");
  unpack.set_input_x(x).create_dynamic_output_y(3);
  op::Add add("add");
  add.set_input_x1(unpack, 1).set_input_x2_by_name(unpack, "y2");
  ge::Graph graph("g");
  graph.SetOutputs({add});
  EXPECT_EQ(graph.FindNodeByName("add")->GetInDataNodesAndPortIndexs(0).second, 1);
  EXPECT_EQ(graph.FindNodeByName("add")->GetInDataNodesAndPortIndexs(1).second, 2);
  ge::Operator mul("mul", "Mul");
  mul.SetInput(0U, unpack, 0U).SetInput(1U, unpack, "y1").SetInput("x1", x);
  const struct {
    std::function<void()> call;
    const char* message;
  } kCases[] = {
      {[&] { mul.SetInput("x3", x); }, "operator mul (Mul) has no input x3"},
      {[&] { mul.SetInput("x1", unpack); }, "operator unpack (Unpack) has 3 outputs"},
      {[&] { mul.SetInput("x1", unpack, "z"); }, "operator unpack (Unpack) has no output z"},
      {[&] { mul.SetInput("x1", unpack, 3U); }, "so that there is no 3"},
      {[&] { mul.SetInput(2U, x, 0U); }, "so that there is no 2"},
      {[&] { mul.SetInput(static_cast<const char*>(nullptr), x); }, "dst_name is null"},
      {[&] { mul.SetInput("x1", ge::Operator()); }, "the operator is empty"},
      {[&] { mul.SetInput("x1", mul); }, "operator mul (Mul) would wait for itself"},
      {[&] { unpack.SetInput("x", add); }, "operator unpack (Unpack) would wait for itself, by way of operator add"},
      {[&] { x.AddControlInput(add); }, "operator x (Data) would wait for itself"},
  };
  for (const auto& entry : kCases) {
    entry.call();
    EXPECT_THAT(Message(), HasSubstr(entry.message));
  }
  unpack.BreakConnect();
  x.AddControlInput(add);  // no circle any more
  EXPECT_EQ(Message(), "");
}

TEST(GeOperator, HasListsOfTensors) {
  op::Data x("x");
  op::ConcatV2 concat("concat");
  EXPECT_EQ(concat.GetDynamicInputNum("x"), 0);
  concat.create_dynamic_input_x(2).set_dynamic_input_x(0, x).set_dynamic_input_x(1, x, "y");
  EXPECT_EQ(concat.GetDynamicInputNum("x"), 2);
  EXPECT_EQ(concat.GetInputsSize(), 3u);
  EXPECT_EQ(concat.update_dynamic_input_desc_x(1, Desc({4})), ge::GRAPH_SUCCESS);
  EXPECT_THAT(concat.get_dynamic_input_desc_x(1).GetShape().GetDims(), ElementsAre(4));
  EXPECT_EQ(concat.update_dynamic_input_desc_x(2, Desc({4})), ge::GRAPH_PARAM_OUT_OF_RANGE);
  concat.create_dynamic_input_x(1);
  EXPECT_THAT(Message(), HasSubstr("the list x of operator concat (ConcatV2) has been made, with 2 tensors"));
  concat.DynamicInputRegister("concat_dim", 2);
  EXPECT_THAT(Message(), HasSubstr("has no list concat_dim of inputs"));
  concat.DynamicInputRegister("x", 1U << 30);
  EXPECT_THAT(Message(), HasSubstr("must be at most 65536"));
  EXPECT_EQ(concat.GetDynamicOutputNum("y"), -1);
}

TEST(GeOperator, KeepsAttributes) {
  ge::Operator add("a", "Add");
  add.SetAttr("int", int64_t{5})
      .SetAttr("real", 0.5F)
      .SetAttr("on", true)
      .SetAttr("text", "abc")
      .SetAttr("type", ge::DT_INT8);
  add.SetAttr("ints", {1, 2, 3})
      .SetAttr("small", std::vector<int32_t>{4})
      .SetAttr("lists", std::vector<std::vector<int64_t>>{{1}});
  add.SetAttr(std::string("texts"), std::vector<std::string>{"p", "q"});
  int32_t small = 0;
  uint32_t positive = 0;
  float real = 0;
  bool on = false;
  std::string text;
  ge::DataType type = ge::DT_FLOAT;
  std::vector<int64_t> ints;
  std::vector<std::string> texts;
  EXPECT_EQ(add.GetAttr("int", small), ge::GRAPH_SUCCESS);
  EXPECT_EQ(small, 5);
  EXPECT_EQ(add.GetAttr("real", real), ge::GRAPH_SUCCESS);
  EXPECT_EQ(add.GetAttr("on", on), ge::GRAPH_SUCCESS);
  EXPECT_TRUE(on);
  EXPECT_EQ(add.GetAttr("text", text), ge::GRAPH_SUCCESS);
  EXPECT_EQ(text, "abc");
  EXPECT_EQ(add.GetAttr(std::string("type"), type), ge::GRAPH_SUCCESS);
  EXPECT_EQ(type, ge::DT_INT8);
  EXPECT_EQ(add.GetAttr("small", ints), ge::GRAPH_SUCCESS);
  EXPECT_THAT(ints, ElementsAre(4));
  EXPECT_EQ(add.GetAttr("texts", texts), ge::GRAPH_SUCCESS);
  EXPECT_THAT(texts, ElementsAre("p", "q"));
  std::map<ge::AscendString, ge::AscendString> kinds;
  EXPECT_EQ(add.GetAllAttrNamesAndTypes(kinds), ge::GRAPH_SUCCESS);
  EXPECT_STREQ(kinds["lists"].GetString(), "VT_LIST_LIST_INT");

  EXPECT_EQ(add.GetAttr("none", small), ge::GRAPH_FAILED);
  EXPECT_THAT(Message(), HasSubstr("operator a (Add) has no attribute none"));
  EXPECT_EQ(add.GetAttr("real", small), ge::GRAPH_FAILED);
  add.SetAttr("int", int64_t{-1});
  EXPECT_EQ(add.GetAttr("int", positive), ge::GRAPH_FAILED);
  EXPECT_EQ(add.GetAttr(static_cast<const char*>(nullptr), small), ge::GRAPH_NULL_PTR);
  add.SetAttr(static_cast<const char*>(nullptr), true);
  EXPECT_THAT(Message(), HasSubstr("name is null"));
  ge::Operator().SetAttr("x", true);
  EXPECT_THAT(Message(), HasSubstr("the operator is empty"));
}

TEST(GeOperator, InfersItsOutputs) {
  const std::vector<int64_t> axis = {-1};
  op::Const axes("axes");
  axes.set_attr_value(ge::Tensor(Desc({1}, ge::DT_INT64), reinterpret_cast<const uint8_t*>(axis.data()), 8));
  op::Data x("x");
  x.update_output_desc_y(Desc({2, 5}, ge::DT_FLOAT16));
  op::ReduceSum sum("sum");
  sum.set_input_x(x).set_input_axes(axes).set_attr_keep_dims(true);
  EXPECT_EQ(sum.InferShapeAndType(), ge::GRAPH_SUCCESS) << Message();
  EXPECT_THAT(sum.get_output_desc_y().GetShape().GetDims(), ElementsAre(2, 1));
  EXPECT_EQ(sum.get_output_desc_y().GetDataType(), ge::DT_FLOAT16);
  ge::Tensor value;
  EXPECT_EQ(sum.GetInputConstData("axes", value), ge::GRAPH_SUCCESS);
  EXPECT_EQ(sum.GetInputConstData("x", value), ge::GRAPH_FAILED);

  op::Add add("add");
  add.update_input_desc_x1(Desc({2, 3}));
  add.update_input_desc_x2(Desc({4, 3}));
  EXPECT_EQ(add.InferShapeAndType(), ge::GRAPH_FAILED);
  EXPECT_THAT(Message(), HasSubstr("add"));
  add.update_input_desc_x2(Desc({-1, 3}));
  EXPECT_EQ(add.InferShapeAndType(), ge::GRAPH_SUCCESS) << Message();
  EXPECT_THAT(add.get_output_desc_y().GetShape().GetDims(), ElementsAre(2, 3));
  EXPECT_EQ(ge::Operator().InferShapeAndType(), ge::GRAPH_FAILED);
  EXPECT_EQ(ge::Operator("u", "NoSuchType").InferShapeAndType(), ge::GRAPH_FAILED);
}

TEST(GeOperator, ChecksItsAttributes) {
  op::ArgMaxWithValue arg("arg");
  EXPECT_EQ(arg.VerifyAllAttr(), ge::GRAPH_FAILED);
  EXPECT_THAT(Message(), HasSubstr("operator arg (ArgMaxWithValue) needs the attribute dimension"));
  arg.set_attr_dimension(0);
  EXPECT_EQ(arg.VerifyAllAttr(), ge::GRAPH_SUCCESS);
  arg.SetAttr("dimension", "zero");
  EXPECT_EQ(arg.VerifyAllAttr(), ge::GRAPH_FAILED);
  EXPECT_EQ(arg.VerifyAllAttr(true), ge::GRAPH_SUCCESS);
}

TEST(GeOperator, IsDeclaredByAProgram) {
  EXPECT_TRUE(ge::OperatorFactory::IsExistOp("TestScale"));
  op::Data x("x");
  op::TestScale scale("scale");
  EXPECT_EQ(scale.get_attr_factor(), 1.5F);
  EXPECT_THAT(scale.get_attr_axes(), ElementsAre(0, 1));
  EXPECT_EQ(std::string(scale.get_attr_mode()), "sum");
  scale.set_input_x(x).create_dynamic_input_more(1).set_attr_mode(std::string("max"));
  scale.create_dynamic_output_parts(2);
  EXPECT_EQ(scale.GetInputsSize(), 3u);
  EXPECT_EQ(scale.GetOutputsSize(), 3u);
  EXPECT_EQ(scale.GetSubgraphNamesCount(), 1u);
  EXPECT_EQ(scale.VerifyAllAttr(), ge::GRAPH_FAILED);
  EXPECT_THAT(Message(), HasSubstr("needs the attribute count"));
  scale.set_attr_count(0);
  EXPECT_EQ(scale.VerifyAllAttr(), ge::GRAPH_PARAM_INVALID);
  scale.set_attr_count(2);
  EXPECT_EQ(scale.VerifyAllAttr(), ge::GRAPH_SUCCESS);
  scale.update_input_desc_x(Desc({7}));
  EXPECT_EQ(scale.InferShapeAndType(), ge::GRAPH_SUCCESS);
  EXPECT_THAT(scale.get_output_desc_y().GetShape().GetDims(), ElementsAre(7));
  auto definition = ge::GraphAccess::DefinitionOf("TestScale");
  ASSERT_TRUE(definition.ok());
  EXPECT_EQ(definition->attributes, (ge::IrDefinition::Entries{{"factor", "VT_FLOAT"},
                                                               {"axes", "VT_LIST_INT"},
                                                               {"mode", "VT_STRING"},
                                                               {"names", "VT_LIST_STRING"},
                                                               {"count", "VT_INT"}}));
  EXPECT_EQ(ge::OperatorFactory::Register("Add", [](const ge::AscendString&) { return ge::Operator(); }),
            ge::GRAPH_FAILED);
  EXPECT_THAT(Message(), HasSubstr("the operator type Add is one of the library"));
}

}  // namespace
