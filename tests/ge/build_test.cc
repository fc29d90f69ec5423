// SPDX-License-Identifier: Apache-2.0
//
// Graphs compiled ahead of time: libge_compiler.so.
#include <acl/acl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "all_ops.h"
#include "engine/numbers.h"
#include "ge/ge_api.h"
#include "ge/ge_ir_build.h"
#include "graph/graph.h"

namespace {

using Options = std::map<ge::AscendString, ge::AscendString>;
using testing::ElementsAre;
using testing::HasSubstr;
namespace op = ge::op;

ge::TensorDesc Floats(const std::vector<int64_t>& dims) {
  return ge::TensorDesc(ge::Shape(dims), ge::FORMAT_ND, ge::DT_FLOAT);
}

// y = (x + x) * 3
ge::Graph Sixfold(const std::vector<int64_t>& dims) {
  op::Data data("x");
  data.set_attr_index(0);
  data.update_input_desc_x(Floats(dims));
  data.update_output_desc_y(Floats(dims));
  op::Add add("add");
  add.set_input_x1(data).set_input_x2(data);
  const float three = 3;
  ge::Tensor value(Floats({}));
  EXPECT_EQ(value.SetData(reinterpret_cast<const uint8_t*>(&three), 4), ge::GRAPH_SUCCESS);
  op::Const constant("three");
  constant.set_attr_value(value);
  op::Mul mul("mul");
  mul.set_input_x1(add).set_input_x2(constant);
  ge::Graph graph("sixfold");
  graph.SetInputs({data}).SetOutputs({mul});
  return graph;
}

class Build : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    folder_ = std::filesystem::temp_directory_path() / ("ge_build_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    Options global{{"ge.socVersion", "Ascend910B"}};
    ASSERT_EQ(ge::aclgrphBuildInitialize(global), ge::GRAPH_SUCCESS);
  }
  void TearDown() override {
    ge::aclgrphBuildFinalize();
    std::filesystem::remove_all(folder_);
    aclrtResetDevice(0);
    aclFinalize();
  }
  static std::string Message() { return ge::GEGetErrorMsgV2().GetString(); }
  // What a session makes of it.
  static std::vector<float> Run(const ge::Graph& graph, std::vector<float> x) {
    EXPECT_EQ(ge::GEInitialize(Options{{"ge.exec.deviceId", "0"}}), ge::SUCCESS);
    std::vector<float> values;
    {
      ge::Session session(Options{});
      EXPECT_EQ(session.AddGraph(1, graph), ge::SUCCESS) << Message();
      ge::Tensor input(Floats({static_cast<int64_t>(x.size())}));
      EXPECT_EQ(input.SetData(reinterpret_cast<const uint8_t*>(x.data()), x.size() * 4), ge::GRAPH_SUCCESS);
      std::vector<ge::Tensor> outputs;
      EXPECT_EQ(session.RunGraph(1, {input}, outputs), ge::SUCCESS) << Message();
      if (!outputs.empty()) {
        values.resize(outputs[0].GetSize() / 4);
        std::memcpy(values.data(), outputs[0].GetData(), outputs[0].GetSize());
      }
    }
    EXPECT_EQ(ge::GEFinalize(), ge::SUCCESS);
    return values;
  }

  std::filesystem::path folder_;
};

TEST_F(Build, SavedLoadedAndRun) {
  ge::ModelBufferData model;
  ASSERT_EQ(ge::aclgrphBuildModel(Sixfold({-1}), Options{{"input_shape", "x:2"}, {"input_format", "ND"}}, model),
            ge::GRAPH_SUCCESS)
      << Message();
  ASSERT_EQ(ge::aclgrphSaveModel((folder_ / "net").c_str(), model), ge::GRAPH_SUCCESS) << Message();
  const std::string path = folder_ / "net.om";
  EXPECT_EQ(std::filesystem::file_size(path), model.length);
  ge::Graph loaded("loaded");
  ASSERT_EQ(loaded.LoadFromFile(path.c_str()), ge::GRAPH_SUCCESS) << Message();
  EXPECT_THAT(Run(loaded, {1, -2}), ElementsAre(6, -12));
  ge::Graph again("again");
  ASSERT_EQ(again.LoadFromMem(model.data.get(), model.length), ge::GRAPH_SUCCESS) << Message();
  EXPECT_THAT(Run(again, {1, 0}), ElementsAre(6, 0));
  // Damaged.
  std::fstream damage(path, std::ios::in | std::ios::out | std::ios::binary);
  damage.seekp(-1, std::ios::end);
  damage.put('\x7F');
  damage.close();
  EXPECT_NE(loaded.LoadFromFile(path.c_str()), ge::GRAPH_SUCCESS);
  EXPECT_THAT(Message(), HasSubstr("is damaged"));
  EXPECT_NE(loaded.LoadFromMem(model.data.get(), 30), ge::GRAPH_SUCCESS);
}

TEST_F(Build, SizesThatStayOpen) {
  ge::ModelBufferData model;
  ASSERT_EQ(ge::aclgrphBuildModel(Sixfold({-1}), Options{}, model), ge::GRAPH_SUCCESS) << Message();
  ge::Graph loaded("loaded");
  ASSERT_EQ(loaded.LoadFromMem(model.data.get(), model.length), ge::GRAPH_SUCCESS) << Message();
  EXPECT_THAT(Run(loaded, {1, 2, 3}), ElementsAre(6, 12, 18));
}

TEST_F(Build, Refusals) {
  const struct {
    const char* key;
    const char* value;
    const char* text;
  } kCases[] = {
      {"dynamic_batch_size", "1,2", "no size of -1"},
      {"dynamic_dims", "1;2", "no size of -1"},
      {"dynamic_image_size", "1,2", "no size of -1"},
      {"ge.dynamicDims", "1;2", "no size of -1"},
      {"insert_op_conf", "aipp.cfg", "not preprocessed"},
      {"out_nodes", "add:0", "outputs are those of the graph"},
      {"output_type", "mul:0:FP16", "names single outputs"},
      {"input_shape", "x", "no colon"},
      {"input_shape", "y:1", "no input y"},
      {"input_shape", "x:one", "is no size"},
      {"ge.oo.level", "O7", "must be one of O1|O3"},
      {"ge.exec.precision_mode", "force_fp32", nullptr},
  };
  for (const auto& [key, value, text] : kCases) {
    ge::ModelBufferData model;
    const ge::graphStatus status = ge::aclgrphBuildModel(Sixfold({-1}), Options{{key, value}}, model);
    if (text == nullptr) {
      EXPECT_EQ(status, ge::GRAPH_SUCCESS) << Message();
      continue;
    }
    EXPECT_NE(status, ge::GRAPH_SUCCESS) << key;
    EXPECT_THAT(Message(), HasSubstr(text));
    EXPECT_EQ(model.data, nullptr);
  }
  ge::ModelBufferData model;
  EXPECT_NE(ge::aclgrphSaveModel("x", model), ge::GRAPH_SUCCESS);
  model.data = std::shared_ptr<uint8_t>(new uint8_t[4](), std::default_delete<uint8_t[]>());
  model.length = 4;
  EXPECT_NE(ge::aclgrphSaveModel((folder_ / "x").c_str(), model), ge::GRAPH_SUCCESS);
  EXPECT_THAT(Message(), HasSubstr("no compiled graph"));
  EXPECT_EQ(ge::aclgrphBundleSaveModel("x", model), ge::UNSUPPORTED);
  ge::aclgrphBuildFinalize();
  EXPECT_NE(ge::aclgrphBuildModel(Sixfold({2}), Options{}, model), ge::GRAPH_SUCCESS);
  EXPECT_THAT(Message(), HasSubstr("before aclgrphBuildInitialize"));
  Options bad{{"ge.oo.level", "O7"}};
  EXPECT_NE(ge::aclgrphBuildInitialize(bad), ge::GRAPH_SUCCESS);
}

TEST_F(Build, GraphsOfOneOperatorAndVersions) {
  int major = -1;
  int minor = -1;
  int patch = -1;
  EXPECT_EQ(ge::aclgrphGetIRVersion(&major, &minor, &patch), ge::GRAPH_SUCCESS);
  EXPECT_EQ(major, ge::IR_MAJOR_VERSION);
  EXPECT_NE(ge::aclgrphGetIRVersion(&major, nullptr, &patch), ge::GRAPH_SUCCESS);
  ge::Graph graph("g");
  ASSERT_EQ(ge::aclgrphGenerateForOp("Relu", {Floats({2})}, {Floats({2})}, graph), ge::GRAPH_SUCCESS) << Message();
  EXPECT_EQ(ge::aclgrphInferShapeAndType(graph), ge::GRAPH_SUCCESS) << Message();
  EXPECT_THAT(Run(graph, {-1, 4}), ElementsAre(0, 4));
  EXPECT_NE(ge::aclgrphGenerateForOp("Relu", {}, {Floats({2})}, graph), ge::GRAPH_SUCCESS);
  EXPECT_NE(ge::aclgrphGenerateForOp("NoSuchOperator", {Floats({2})}, {Floats({2})}, graph), ge::GRAPH_SUCCESS);
}

}  // namespace
