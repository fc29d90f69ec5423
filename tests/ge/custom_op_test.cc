// SPDX-License-Identifier: Apache-2.0
//
// Operators of the program's own in graphs: prototype, class, run.
#include <acl/acl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "all_ops.h"
#include "ge/ge_api.h"
#include "graph/custom_op.h"
#include "graph/graph.h"
#include "graph/operator_reg.h"
#include "register/op_impl_registry.h"

// The tensors of `x` one behind the other, `count` times; `tail` behind them, if it is there.
namespace ge {
REG_OP(TestRepeat)
    .DYNAMIC_INPUT(x, TensorType::ALL())
    .INPUT(count, TensorType::ALL())
    .OPTIONAL_INPUT(tail, TensorType::ALL())
    .OUTPUT(y, TensorType::ALL())
    .ATTR(text, String, "none")
    .OP_END_FACTORY_REG(TestRepeat);
IMPL_OP(TestRepeat).InputsDataDependency({1});
REG_OP(TestInPlace).INPUT(x, TensorType::ALL()).OUTPUT(x, TensorType::ALL()).OP_END_FACTORY_REG(TestInPlace);
REG_OP(TestFails).INPUT(x, TensorType::ALL()).OUTPUT(y, TensorType::ALL()).OP_END_FACTORY_REG(TestFails);
IMPL_OP(TestFails);
}  // namespace ge

namespace {

using Options = std::map<ge::AscendString, ge::AscendString>;
using testing::ElementsAre;
using testing::HasSubstr;
namespace op = ge::op;

gert::StorageShape ShapeOf(int64_t size) { return {{size}, {size}}; }

class TestRepeat : public ge::EagerExecuteOp {
 public:
  ge::Status Execute(gert::EagerOpExecutionContext* context) override {
    std::vector<const gert::Tensor*> parts;
    for (size_t i = 0; context->GetDynamicInputTensor(0, i) != nullptr; ++i) {
      parts.push_back(context->GetDynamicInputTensor(0, i));
    }
    EXPECT_EQ(context->GetIrInputInstanceInfo(0)->GetInstanceNum(), parts.size());
    const gert::Tensor* const number = context->GetRequiredInputTensor(1);
    int64_t count = 0;
    if (aclrtMemcpy(&count, 8, number->GetAddr(), 8, ACL_MEMCPY_DEVICE_TO_HOST) != ACL_SUCCESS) return ge::FAILED;
    const gert::Tensor* const tail = context->GetOptionalInputTensor(2);
    size_t bytes = tail != nullptr ? tail->GetSize() : 0;
    for (const gert::Tensor* part : parts) bytes += static_cast<size_t>(count) * part->GetSize();
    gert::Tensor* const y =
        context->MallocOutputTensor(0, ShapeOf(static_cast<int64_t>(bytes / 4)), gert::StorageFormat(), ge::DT_FLOAT);
    if (y == nullptr) return ge::FAILED;
    auto* to = static_cast<char*>(y->GetAddr());
    const auto append = [&](const gert::Tensor& part) {
      aclrtMemcpyAsync(to, part.GetSize(), part.GetAddr(), part.GetSize(), ACL_MEMCPY_DEVICE_TO_DEVICE,
                       context->GetStream());
      to += part.GetSize();
    };
    for (int64_t i = 0; i < count; ++i) {
      for (const gert::Tensor* part : parts) append(*part);
    }
    if (tail != nullptr) append(*tail);
    EXPECT_NE(context->MallocWorkSpace(64), nullptr);
    return ge::SUCCESS;
  }
};

// Writes zeros over its input.
class TestInPlace : public ge::EagerExecuteOp {
 public:
  ge::graphStatus Execute(gert::EagerOpExecutionContext* context) override {
    const gert::Tensor* const x = context->GetInputTensor(0);
    aclrtMemsetAsync(const_cast<void*>(x->GetAddr()), x->GetSize(), 0, x->GetSize(), context->GetStream());
    EXPECT_EQ(context->MakeOutputRefInput(0, 9), nullptr);
    return context->MakeOutputRefInput(0, 0) != nullptr ? ge::GRAPH_SUCCESS : ge::GRAPH_FAILED;
  }
};

class TestFails : public ge::EagerExecuteOp {
 public:
  ge::graphStatus Execute(gert::EagerOpExecutionContext* context) override {
    switch (how++) {
      case 0: throw std::runtime_error("not today");
      case 1: return 7;
      case 2: return ge::GRAPH_SUCCESS;  // without an output
      default:
        EXPECT_EQ(context->MallocOutputTensor(0, ShapeOf(-1), gert::StorageFormat(), ge::DT_FLOAT), nullptr);
        return ge::GRAPH_FAILED;
    }
  }
  int how = 0;
};

REG_AUTO_MAPPING_OP(TestRepeat);
REG_AUTO_MAPPING_OP(TestInPlace);
REG_AUTO_MAPPING_OP(TestFails);

ge::TensorDesc Floats(const std::vector<int64_t>& dims) {
  return ge::TensorDesc(ge::Shape(dims), ge::FORMAT_ND, ge::DT_FLOAT);
}

op::Data DataOf(const char* name, int64_t index, const std::vector<int64_t>& dims) {
  op::Data data(name);
  data.set_attr_index(index);
  data.update_input_desc_x(Floats(dims));
  data.update_output_desc_y(Floats(dims));
  return data;
}

ge::Tensor TensorOf(std::vector<float> values) {
  ge::Tensor tensor(Floats({static_cast<int64_t>(values.size())}));
  EXPECT_EQ(tensor.SetData(reinterpret_cast<const uint8_t*>(values.data()), values.size() * 4), ge::GRAPH_SUCCESS);
  return tensor;
}

std::vector<float> ValuesOf(const ge::Tensor& tensor) {
  std::vector<float> values(tensor.GetSize() / 4);
  if (!values.empty()) std::memcpy(values.data(), tensor.GetData(), tensor.GetSize());
  return values;
}

class CustomOps : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    ASSERT_EQ(ge::GEInitialize(Options{{"ge.exec.deviceId", "0"}}), ge::SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(ge::GEFinalize(), ge::SUCCESS);
    aclrtResetDevice(0);
    aclFinalize();
  }
  static std::string Message() { return ge::GEGetErrorMsgV2().GetString(); }
};

op::Const Number(int64_t value) {
  ge::Tensor tensor(ge::TensorDesc(ge::Shape(), ge::FORMAT_ND, ge::DT_INT64));
  EXPECT_EQ(tensor.SetData(reinterpret_cast<const uint8_t*>(&value), 8), ge::GRAPH_SUCCESS);
  op::Const constant("count");
  constant.set_attr_value(tensor);
  return constant;
}

// The sizes that it finds are those of what follows; what comes before it is computed when it runs.
TEST_F(CustomOps, RunBetweenOperatorsOfTheLibrary) {
  auto x = DataOf("x", 0, {2});
  op::Add sum("sum");
  sum.set_input_x1(x).set_input_x2(x);
  op::TestRepeat repeat("repeat");
  repeat.create_dynamic_input_x(2).set_dynamic_input_x(0, sum).set_dynamic_input_x(1, x).set_input_count(Number(2));
  op::Relu relu("relu");
  relu.set_input_x(repeat);
  ge::Graph graph("g");
  graph.SetInputs({x}).SetOutputs({relu});
  ge::Session session(Options{});
  ASSERT_EQ(session.AddGraph(1, graph), ge::SUCCESS) << Message();
  for (const float value : {1.0F, 3.0F}) {
    std::vector<ge::Tensor> outputs;
    ASSERT_EQ(session.RunGraph(1, {TensorOf({value, -value})}, outputs), ge::SUCCESS) << Message();
    EXPECT_THAT(ValuesOf(outputs[0]), ElementsAre(2 * value, 0, value, 0, 2 * value, 0, value, 0));
  }
}

TEST_F(CustomOps, OptionalInputsAndValuesOfTheDevice) {
  auto x = DataOf("x", 0, {2});
  op::Shape shape("shape");
  shape.set_input_x(x);
  op::Cast count("count");
  count.set_input_x(shape).set_attr_dst_type(ge::DT_INT64);
  op::Relu relu("relu");
  relu.set_input_x(x);
  op::TestRepeat repeat("repeat");
  repeat.create_dynamic_input_x(1).set_dynamic_input_x(0, x).set_input_count(count).set_input_tail(relu);
  ge::Graph graph("g");
  graph.SetInputs({x}).SetOutputs({repeat});
  ge::Session session(Options{});
  ASSERT_EQ(session.AddGraph(1, graph), ge::SUCCESS) << Message();
  std::vector<ge::Tensor> outputs;
  ASSERT_EQ(session.RunGraph(1, {TensorOf({5, -6})}, outputs), ge::SUCCESS) << Message();
  EXPECT_THAT(ValuesOf(outputs[0]), ElementsAre(5, -6, 5, -6, 5, 0));
}

TEST_F(CustomOps, AnOutputThatIsAnInput) {
  auto x = DataOf("x", 0, {2});
  op::Add sum("sum");
  sum.set_input_x1(x).set_input_x2(x);
  op::TestInPlace zero("zero");
  zero.set_input_x(sum);
  ge::Graph graph("g");
  graph.SetInputs({x}).SetOutputs({zero});
  ge::Session session(Options{});
  ASSERT_EQ(session.AddGraph(1, graph), ge::SUCCESS) << Message();
  std::vector<ge::Tensor> outputs;
  ASSERT_EQ(session.RunGraph(1, {TensorOf({5, -6})}, outputs), ge::SUCCESS) << Message();
  EXPECT_THAT(ValuesOf(outputs[0]), ElementsAre(0, 0));
}

TEST_F(CustomOps, WhatFailsInThemFailsTheRun) {
  auto x = DataOf("x", 0, {2});
  op::TestFails fails("fails");
  fails.set_input_x(x);
  ge::Graph graph("g");
  graph.SetInputs({x}).SetOutputs({fails});
  ge::Session session(Options{});
  ASSERT_EQ(session.AddGraph(1, graph), ge::SUCCESS) << Message();
  for (const char* text :
       {"throws: not today", "answers 7", "has not made output 0", "shape or type of unknown size"}) {
    std::vector<ge::Tensor> outputs;
    EXPECT_NE(session.RunGraph(1, {TensorOf({5, -6})}, outputs), ge::SUCCESS);
    EXPECT_THAT(Message(), HasSubstr(text));
  }
}

TEST_F(CustomOps, Registration) {
  EXPECT_TRUE(ge::CustomOpFactory::IsExistOp("TestRepeat"));
  EXPECT_FALSE(ge::CustomOpFactory::IsExistOp("Add"));
  EXPECT_NE(ge::CustomOpFactory::CreateCustomOp("TestRepeat"), nullptr);
  EXPECT_EQ(ge::CustomOpFactory::CreateCustomOp("Add"), nullptr);
  std::vector<ge::AscendString> all;
  EXPECT_EQ(ge::CustomOpFactory::GetAllRegisteredOps(all), ge::GRAPH_SUCCESS);
  EXPECT_EQ(all.size(), 3U);
  const auto create = [] { return std::unique_ptr<ge::BaseCustomOp>(new TestInPlace); };
  EXPECT_EQ(ge::CustomOpFactory::RegisterCustomOpCreator("Add", create), ge::GRAPH_PARAM_INVALID);
  EXPECT_THAT(Message(), HasSubstr("one of the library"));
  EXPECT_EQ(ge::CustomOpFactory::RegisterCustomOpCreator("", create), ge::GRAPH_PARAM_INVALID);
  EXPECT_EQ(ge::CustomOpFactory::RegisterCustomOpCreator("Own", nullptr), ge::GRAPH_PARAM_INVALID);
  EXPECT_EQ(ge::CustomOpFactory::RegisterCustomOpCreator("Own", [] { return nullptr; }), ge::GRAPH_PARAM_INVALID);
}

}  // namespace
