// SPDX-License-Identifier: Apache-2.0
//
// The classes and functions of libge_runner.so, as programs call them.
#include <acl/acl.h>
#include <acl/error_codes/ge_error_codes.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "all_ops.h"
#include "engine/numbers.h"
#include "exe_graph/runtime/tensor.h"
#include "ge/ge_api.h"
#include "ge/ge_api_v2.h"
#include "graph/graph.h"

// The numbers of the interface are those of the engine.
static_assert(ge::FAILED == static_cast<ge::Status>(reprise::engine::kFailed));
#define REPRISE_GE_NUMBER(name, public_name, number) \
  static_assert(ge::public_name == number && reprise::engine::name == number);
#include "engine/numbers.def"
#undef REPRISE_GE_NUMBER

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using Options = std::map<ge::AscendString, ge::AscendString>;
namespace op = ge::op;

std::string Message() { return ge::GEGetErrorMsgV2().GetString(); }

ge::TensorDesc Floats(std::vector<int64_t> dims) {
  return ge::TensorDesc(ge::Shape(dims), ge::FORMAT_ND, ge::DT_FLOAT);
}

// y = x + x
ge::Graph Doubling(const char* name, const std::vector<int64_t>& dims) {
  op::Data data("x");
  data.set_attr_index(0);
  data.update_input_desc_x(Floats(dims));
  data.update_output_desc_y(Floats(dims));
  op::Add add("add");
  add.set_input_x1(data).set_input_x2(data);
  ge::Graph graph(name);
  graph.SetInputs({data}).SetOutputs({add});
  return graph;
}

class Blocks final : public ge::Allocator {
 public:
  ge::MemBlock* Malloc(size_t size) override {
    void* address = nullptr;
    EXPECT_EQ(aclrtMalloc(&address, size, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
    ++live;
    return new ge::MemBlock(*this, address, size);
  }
  void Free(ge::MemBlock* block) override {
    --live;
    EXPECT_EQ(aclrtFree(block->GetAddr()), ACL_SUCCESS);
    delete block;
  }
  int live = 0;
};

class GeApi : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    ASSERT_EQ(aclrtCreateStream(&stream_), ACL_SUCCESS);
    ASSERT_EQ(ge::GEInitialize(Options{{"ge.exec.deviceId", "0"}}), ge::SUCCESS);
    ge::GEGetWarningMsgV2();
  }
  void TearDown() override {
    EXPECT_EQ(ge::GEFinalize(), ge::SUCCESS);
    for (void* block : blocks_) aclrtFree(block);
    aclrtDestroyStream(stream_);
    aclrtResetDevice(0);
    aclFinalize();
  }
  ge::Tensor OnDevice(const std::vector<float>& values) {
    void* block = nullptr;
    EXPECT_EQ(aclrtMalloc(&block, values.size() * 4, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
    blocks_.push_back(block);
    std::memcpy(block, values.data(), values.size() * 4);
    ge::Tensor tensor(Floats({static_cast<int64_t>(values.size())}));
    EXPECT_EQ(tensor.SetData(static_cast<uint8_t*>(block), values.size() * 4, [](uint8_t*) {}), ge::GRAPH_SUCCESS);
    return tensor;
  }
  static std::vector<float> Values(const void* data, size_t bytes) {
    std::vector<float> values(bytes / 4);
    std::memcpy(values.data(), data, bytes);
    return values;
  }

  void* stream_ = nullptr;
  std::vector<void*> blocks_;
};

TEST(GeApiBefore, GE_008_SessionsOfNoEngine) {
  EXPECT_EQ(ge::GEFinalize(), ge::SUCCESS);
  ge::Session session(Options{});
  EXPECT_THAT(Message(), HasSubstr("GEInitialize"));
  EXPECT_EQ(session.AddGraph(1, ge::Graph("g")), ge::FAILED);
  const std::string text = Message();
  EXPECT_THAT(text, StartsWith("E10062"));
  EXPECT_THAT(text, HasSubstr("ge::Session::AddGraph"));
  EXPECT_EQ(Message(), "");
  EXPECT_EQ(session.GetCompiledGraphSummary(1), nullptr);
  EXPECT_EQ(ge::GEGetErrorMsg().substr(0, 6), "E10062");
}

TEST(GeApiBefore, GE_014_NumbersOfFailures) {
  constexpr uint32_t kCommon = 0x50100000, kClient = 0x50101000, kInit = 0x50102000, kSession = 0x50103000,
                     kGraph = 0x50104000, kRuntime = 0x50108000;
  const std::pair<uint32_t, uint32_t> kNumbers[] = {
      {ge::SUCCESS, 0},
      {ge::FAILED, 0xFFFFFFFF},
      {ge::MEMALLOC_FAILED, kCommon},
      {ge::PARAM_INVALID, kCommon + 1},
      {ge::RT_FAILED, kCommon + 3},
      {ge::INTERNAL_ERROR, kCommon + 4},
      {ge::END_OF_SEQUENCE, kCommon + 7},
      {ge::PATH_INVALID, kCommon + 8},
      {ge::UNSUPPORTED, kCommon + 100},
      {ge::OUT_OF_MEMORY, kCommon + 101},
      {ge::GE_CLI_INIT_FAILED, kClient + 1},
      {ge::GE_CLI_SESS_CONSTRUCT_FAILED, kClient + 3},
      {ge::GE_CLI_SESS_DESTROY_FAILED, kClient + 4},
      {ge::GE_CLI_SESS_ADD_FAILED, kClient + 5},
      {ge::GE_CLI_SESS_REMOVE_FAILED, kClient + 7},
      {ge::GE_CLI_SESS_RUN_FAILED, kClient + 8},
      {ge::GE_CLI_GE_ALREADY_INITIALIZED, kClient + 10},
      {ge::GE_CLI_GE_NOT_INITIALIZED, kClient + 11},
      {ge::GE_MULTI_INIT, kInit},
      {ge::GE_FINALIZE_NOT_INIT, kInit + 1},
      {ge::GE_SESS_ALREADY_RUNNING, kSession + 1},
      {ge::GE_SESSION_NOT_EXIST, kSession + 5},
      {ge::GE_SESSION_MANAGER_NOT_INIT, kSession + 6},
      {ge::GE_GRAPH_INIT_FAILED, kGraph},
      {ge::GE_GRAPH_ALREADY_RUNNING, kGraph + 1},
      {ge::GE_GRAPH_GRAPH_NOT_EXIST, kGraph + 2},
      {ge::GE_GRAPH_GRAPH_ALREADY_EXIST, kGraph + 3},
      {ge::GE_GRAPH_GRAPH_IS_RUNNING, kGraph + 4},
      {ge::GE_GRAPH_GET_IN_OUT_FAILED, kGraph + 19},
      {ge::GE_GRAPH_EXECUTE_FAILED, kGraph + 21},
      {ge::GE_GRAPH_PREPARE_FAILED, kGraph + 25},
      {ge::GE_GRAPH_PRERUN_FAILED, kGraph + 28},
      {ge::GE_GRAPH_INFERSHAPE_FAILED, kGraph + 30},
      {ge::GE_GRAPH_GRAPH_NODE_NULL, kGraph + 36},
      {ge::GE_GRAPH_UNSUPPORTED, kGraph + 41},
      {ge::GE_GRAPH_OPTIONS_INVALID, kGraph + 51},
      {ge::GE_GRAPH_NOT_BUILT, kGraph + 55},
      {ge::GE_GRAPH_REPEAT_OPERATION, kGraph + 66},
      {ge::GE_RTI_MODEL_NOT_LOADED, kRuntime + 4},
      {domi::PARAM_INVALID, 0x03000001},
      {domi::INTERNAL_ERROR, 0x03000004},
      {ge::GRAPH_SUCCESS, 0},
      {ge::GRAPH_FAILED, 0xFFFFFFFF},
      {ge::GRAPH_NOT_CHANGED, 1343242304},
      {ge::GRAPH_PARAM_INVALID, 50331649},
      {ge::GRAPH_PARAM_OUT_OF_RANGE, 50331644},
      {ge::GRAPH_NULL_PTR, 50331538},
      {ACL_ERROR_GE_PARAM_INVALID, 145000},
      {ACL_ERROR_GE_INTERNAL_ERROR, 545000},
  };
  for (const auto& [number, expected] : kNumbers) EXPECT_EQ(number, expected);
}

// The calls of torchair, in its order.
TEST_F(GeApi, TheWayOfTorchair) {
  ge::Session session(Options{{"ge.session_device_id", "0"}});
  const ge::Graph built = Doubling("main", {4});
  std::vector<uint8_t> model;
  ASSERT_EQ(built.SaveToMem(model), ge::GRAPH_SUCCESS) << Message();
  ge::Graph graph("main");
  ASSERT_EQ(graph.LoadFromSerializedModelArray(model.data(), model.size()), ge::GRAPH_SUCCESS) << Message();
  ASSERT_EQ(session.AddGraph(7, graph, Options{{"ge.jit_compile", "2"}, {"frozenInput", "0"}}), ge::SUCCESS)
      << Message();
  EXPECT_THAT(ge::GEGetWarningMsgV2().GetString(), HasSubstr("frozenInput"));
  ASSERT_EQ(session.CompileGraph(7), ge::SUCCESS) << Message();
  const auto summary = session.GetCompiledGraphSummary(7);
  ASSERT_NE(summary, nullptr);
  EXPECT_TRUE(summary->IsStatic());
  size_t size = 0;
  EXPECT_EQ(summary->GetConstMemorySize(size), ge::SUCCESS);
  EXPECT_EQ(size, 512U);
  std::vector<ge::Shape> shapes;
  std::vector<ge::DataType> types;
  EXPECT_EQ(summary->GetOutputShapes(shapes), ge::SUCCESS);
  EXPECT_EQ(summary->GetOutputDtypes(types), ge::SUCCESS);
  EXPECT_THAT(shapes.at(0).GetDims(), ElementsAre(4));
  EXPECT_THAT(types, ElementsAre(ge::DT_FLOAT));
  std::map<ge::AscendString, std::vector<ge::AscendString>> infos;
  EXPECT_EQ(GEStreamAllocationSummaryGetStringInfos(*summary, infos), ge::SUCCESS);
  EXPECT_THAT(infos.begin()->second.at(0).GetString(), HasSubstr("logic_stream_id: 0"));
  const auto blocks = std::make_shared<Blocks>();
  ASSERT_EQ(session.RegisterExternalAllocator(stream_, blocks), ge::SUCCESS);
  std::vector<ge::Tensor> outputs;
  ASSERT_EQ(session.RunGraphWithStreamAsync(7, stream_, {OnDevice({1, 2, 3, 4})}, outputs), ge::SUCCESS) << Message();
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_THAT(Values(outputs.at(0).GetData(), outputs[0].GetSize()), ElementsAre(2, 4, 6, 8));
  EXPECT_EQ(outputs[0].GetDataType(), ge::DT_FLOAT);
  EXPECT_EQ(outputs[0].GetShapeDim(0), 4);
  EXPECT_GT(blocks->live, 0);
  ASSERT_EQ(session.RemoveGraph(7), ge::SUCCESS);
  outputs.clear();
  EXPECT_EQ(blocks->live, 0);
}

TEST_F(GeApi, LoadAndExecuteWithTensorsOfRuns) {
  ge::Session session(std::map<std::string, std::string>{});
  ASSERT_EQ(session.AddGraph(1, Doubling("g", {4}), std::map<std::string, std::string>{}), ge::SUCCESS) << Message();
  ASSERT_EQ(session.CompileGraph(1), ge::SUCCESS) << Message();
  ge::AscendString json;
  EXPECT_EQ(GeSessionGraphDebugJSONPrint(session, 1, 0, json), ge::GE_RTI_MODEL_NOT_LOADED);
  ASSERT_EQ(GeSessionLoadGraph(session, 1, {}, stream_), ge::SUCCESS) << Message();
  EXPECT_EQ(GeSessionGraphDebugJSONPrint(session, 1, 0, json), ge::SUCCESS);
  const ge::Tensor x = OnDevice({1, 2, 3, 4});
  std::vector<gert::Tensor> inputs(1);
  inputs[0].SetData(gert::TensorData(const_cast<uint8_t*>(x.GetData()), nullptr, 16, gert::kOnDeviceHbm));
  inputs[0].SetDataType(ge::DT_FLOAT);
  inputs[0].MutableStorageShape() = {4};
  std::vector<gert::Tensor> outputs(1);
  ASSERT_EQ(GeSessionExecuteGraphWithStreamAsync(session, 1, stream_, inputs, outputs), ge::SUCCESS) << Message();
  ASSERT_EQ(aclrtSynchronizeStream(stream_), ACL_SUCCESS);
  EXPECT_THAT(Values(outputs[0].GetAddr(), outputs[0].GetSize()), ElementsAre(2, 4, 6, 8));
  EXPECT_EQ(outputs[0].GetStorageShape().GetDim(0), 4);
  // Who takes the memory has it for as long as it likes.
  gert::TensorAddrManager manager = nullptr;
  void* const taken = outputs[0].MutableTensorData().Release(manager);
  outputs.clear();
  ASSERT_NE(manager, nullptr);
  EXPECT_EQ(manager(taken, gert::kFreeTensor, nullptr), ge::GRAPH_SUCCESS);
}

TEST_F(GeApi, RunsThatWaitAndCallBack) {
  ge::Session session(Options{});
  const ge::Graph graph = Doubling("g", {4});
  ASSERT_EQ(session.AddGraph(1, graph), ge::SUCCESS) << Message();
  EXPECT_EQ(session.AddGraph(2, graph), ge::GE_GRAPH_GRAPH_ALREADY_EXIST);
  ASSERT_EQ(session.AddGraphWithCopy(2, graph), ge::SUCCESS) << Message();
  const std::vector<float> values{1, 2, 3, 4};
  const std::vector<ge::Tensor> inputs{ge::Tensor(Floats({4}), reinterpret_cast<const uint8_t*>(values.data()), 16)};
  std::vector<ge::Tensor> outputs;
  ASSERT_EQ(session.RunGraph(1, inputs, outputs), ge::SUCCESS) << Message();
  EXPECT_THAT(Values(outputs.at(0).GetData(), outputs[0].GetSize()), ElementsAre(2, 4, 6, 8));
  std::thread([&] {  // which has no context
    EXPECT_EQ(session.RunGraph(1, inputs, outputs), ge::SUCCESS) << Message();
  })
      .join();
  EXPECT_EQ(session.RunGraphAsync(2, inputs, nullptr), ge::PARAM_INVALID);
  std::promise<std::vector<float>> done;
  ASSERT_EQ(session.RunGraphAsync(2, inputs,
                                  [&](ge::Status status, std::vector<ge::Tensor>& results) {
                                    done.set_value(status == ge::SUCCESS
                                                       ? Values(results.at(0).GetData(), results[0].GetSize())
                                                       : std::vector<float>{});
                                  }),
            ge::SUCCESS)
      << Message();
  EXPECT_THAT(done.get_future().get(), ElementsAre(2, 4, 6, 8));
  EXPECT_EQ(session.ShardGraphs(), ge::UNSUPPORTED);
  EXPECT_THAT(Message(), HasSubstr("not distributed"));
}

TEST_F(GeApi, GE_045_TheSecondInterface) {
  ge::GeSession session(Options{});
  ASSERT_EQ(session.AddGraphClone(1, Doubling("g", {-1})), ge::SUCCESS) << Message();
  float values[] = {1, 2, 3};
  std::vector<gert::Tensor> inputs(1);
  inputs[0].SetData(gert::TensorData(values, nullptr, 12, gert::kOnHost));
  inputs[0].SetDataType(ge::DT_FLOAT);
  inputs[0].MutableStorageShape() = {3};
  std::vector<gert::Tensor> outputs;
  ASSERT_EQ(session.RunGraph(1, inputs, outputs), ge::SUCCESS) << Message();
  EXPECT_THAT(Values(outputs.at(0).GetAddr(), outputs[0].GetSize()), ElementsAre(2, 4, 6));
  EXPECT_EQ(session.RunGraphWithStreamAsync(1, stream_, inputs, outputs), ge::UNSUPPORTED);
  ge::ModelBufferData model;
  EXPECT_EQ(session.GetCompiledModel(1, model), ge::SUCCESS) << Message();
  EXPECT_GT(model.length, 0U);
}

TEST(GeApiBefore, GE_013_PrototypesInTheirOrder) {
  std::vector<std::pair<ge::AscendString, ge::AscendString>> inputs, outputs, attributes;
  ASSERT_EQ(GetRegisteredIrDef("MatMulV2", inputs, outputs, attributes), ge::SUCCESS);
  const auto text = [](const auto& pairs) {
    std::string all;
    for (const auto& [name, kind] : pairs) all += std::string(name.GetString()) + ":" + kind.GetString() + " ";
    return all;
  };
  EXPECT_EQ(text(inputs), "x1:required x2:required bias:optional offset_w:optional ");
  EXPECT_EQ(text(outputs), "y:required ");
  EXPECT_EQ(text(attributes), "transpose_x1:VT_BOOL transpose_x2:VT_BOOL offset_x:VT_INT ");
  EXPECT_NE(GetRegisteredIrDef("NoSuchOperator", inputs, outputs, attributes), ge::SUCCESS);
  EXPECT_NE(GetRegisteredIrDef(nullptr, inputs, outputs, attributes), ge::SUCCESS);
}

}  // namespace
