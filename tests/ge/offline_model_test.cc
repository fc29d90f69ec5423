// SPDX-License-Identifier: Apache-2.0
//
// Graphs compiled ahead of time as offline models: built by libge_compiler.so, run by the functions aclmdl*.
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

// y = x + x
ge::Graph Twofold(const std::vector<int64_t>& dims, const char* name = "x") {
  op::Data data(name);
  data.set_attr_index(0);
  data.update_input_desc_x(Floats(dims));
  data.update_output_desc_y(Floats(dims));
  op::Add add("add");
  add.set_input_x1(data).set_input_x2(data);
  ge::Graph graph("twofold");
  graph.SetInputs({data}).SetOutputs({add});
  return graph;
}

class OfflineModel : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(aclInit(nullptr), ACL_SUCCESS);
    ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
    folder_ = std::filesystem::temp_directory_path() / ("offline_model_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    Options global;
    ASSERT_EQ(ge::aclgrphBuildInitialize(global), ge::GRAPH_SUCCESS);
    memory_ = Device({0, 0, 0, 0, 0, 0, 0, 0});
    result_ = Device({0, 0, 0, 0, 0, 0, 0, 0});
  }
  void TearDown() override {
    for (const aclmdlDataset* dataset : datasets_) EXPECT_EQ(aclmdlDestroyDataset(dataset), ACL_SUCCESS);
    for (aclDataBuffer* buffer : buffers_) EXPECT_EQ(aclDestroyDataBuffer(buffer), ACL_SUCCESS);
    EXPECT_EQ(aclmdlDestroyDesc(desc_), ACL_SUCCESS);
    for (void* memory : blocks_) aclrtFree(memory);
    ge::aclgrphBuildFinalize();
    std::filesystem::remove_all(folder_);
    aclrtResetDevice(0);
    aclFinalize();
  }
  static std::string Message() {
    const char* const text = aclGetRecentErrMsg();
    return text != nullptr ? text : "";
  }
  static ge::ModelBufferData Built(const ge::Graph& graph, const Options& options = {}) {
    ge::ModelBufferData model;
    EXPECT_EQ(ge::aclgrphBuildModel(graph, options, model), ge::GRAPH_SUCCESS) << Message();
    return model;
  }
  uint32_t Loaded(const ge::ModelBufferData& model) {
    uint32_t id = 0;
    EXPECT_EQ(aclmdlLoadFromMem(model.data.get(), model.length, &id), ACL_SUCCESS) << Message();
    EXPECT_EQ(aclmdlGetDesc(desc_, id), ACL_SUCCESS) << Message();
    return id;
  }
  void* Device(const std::vector<float>& values) {
    void* memory = nullptr;
    EXPECT_EQ(aclrtMalloc(&memory, values.size() * 4, ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
    blocks_.push_back(memory);
    Write(memory, values);
    return memory;
  }
  static void Write(void* memory, const std::vector<float>& values) {
    EXPECT_EQ(aclrtMemcpy(memory, values.size() * 4, values.data(), values.size() * 4, ACL_MEMCPY_HOST_TO_DEVICE), 0);
  }
  static std::vector<float> Read(const void* memory, size_t count) {
    std::vector<float> values(count);
    EXPECT_EQ(aclrtMemcpy(values.data(), count * 4, memory, count * 4, ACL_MEMCPY_DEVICE_TO_HOST), ACL_SUCCESS);
    return values;
  }
  aclDataBuffer* Buffer(void* data, size_t bytes) {
    buffers_.push_back(aclCreateDataBuffer(data, bytes));
    return buffers_.back();
  }
  aclmdlDataset* List(const std::vector<std::pair<void*, size_t>>& buffers) {
    aclmdlDataset* dataset = aclmdlCreateDataset();
    for (const auto& [data, bytes] : buffers) EXPECT_EQ(aclmdlAddDatasetBuffer(dataset, Buffer(data, bytes)), 0);
    datasets_.push_back(dataset);
    return dataset;
  }
  static std::vector<int64_t> Dims(const aclmdlIODims& dims) { return {dims.dims, dims.dims + dims.dimCount}; }

  std::filesystem::path folder_;
  aclmdlDesc* desc_ = aclmdlCreateDesc();
  void* memory_ = nullptr;
  void* result_ = nullptr;
  std::vector<void*> blocks_;
  std::vector<aclDataBuffer*> buffers_;
  std::vector<const aclmdlDataset*> datasets_;
};

TEST_F(OfflineModel, IsBuiltSavedDescribedAndRun) {
  const ge::ModelBufferData model = Built(Twofold({2, 3}));
  ASSERT_EQ(ge::aclgrphSaveModel((folder_ / "net").c_str(), model), ge::GRAPH_SUCCESS);
  const std::string path = folder_ / "net.om";
  uint32_t id = 0;
  ASSERT_EQ(aclmdlLoadFromFile(path.c_str(), &id), ACL_SUCCESS) << Message();
  for (const bool from_file : {false, true}) {
    ASSERT_EQ(from_file ? aclmdlGetDescFromFile(desc_, path.c_str()) : aclmdlGetDesc(desc_, id), ACL_SUCCESS);
    EXPECT_EQ(aclmdlGetNumInputs(desc_), 1U);
    EXPECT_EQ(aclmdlGetNumOutputs(desc_), 1U);
    EXPECT_EQ(aclmdlGetInputSizeByIndex(desc_, 0), 24U);
    EXPECT_EQ(aclmdlGetOutputSizeByIndex(desc_, 0), 24U);
    EXPECT_STREQ(aclmdlGetInputNameByIndex(desc_, 0), "x");
    EXPECT_STREQ(aclmdlGetOutputNameByIndex(desc_, 0), "add:0");
    EXPECT_EQ(aclmdlGetInputDataType(desc_, 0), ACL_FLOAT);
    EXPECT_EQ(aclmdlGetOutputFormat(desc_, 0), ACL_FORMAT_ND);
  }
  aclmdlIODims dims;
  ASSERT_EQ(aclmdlGetInputDims(desc_, 0, &dims), ACL_SUCCESS);
  EXPECT_THAT(Dims(dims), ElementsAre(2, 3));
  EXPECT_STREQ(dims.name, "x");
  ASSERT_EQ(aclmdlGetOutputDims(desc_, 0, &dims), ACL_SUCCESS);
  EXPECT_THAT(Dims(dims), ElementsAre(2, 3));
  size_t index = 7;
  EXPECT_EQ(aclmdlGetInputIndexByName(desc_, "x", &index), ACL_SUCCESS);
  EXPECT_EQ(index, 0U);
  EXPECT_EQ(aclmdlGetOutputIndexByName(desc_, "y", &index), ACL_ERROR_INVALID_PARAM);

  Write(memory_, {1, 2, 3, 4, 5, 6});
  const aclmdlDataset* input = List({{memory_, 24}});
  aclmdlDataset* output = List({{result_, 24}});
  ASSERT_EQ(aclmdlExecute(id, input, output), ACL_SUCCESS) << Message();
  EXPECT_THAT(Read(result_, 6), ElementsAre(2, 4, 6, 8, 10, 12));
  aclrtStream stream = nullptr;
  ASSERT_EQ(aclrtCreateStream(&stream), ACL_SUCCESS);
  Write(memory_, {0, 0, 0, 1, 1, 1});
  ASSERT_EQ(aclmdlExecuteAsync(id, input, output, stream), ACL_SUCCESS) << Message();
  ASSERT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  EXPECT_THAT(Read(result_, 6), ElementsAre(0, 0, 0, 2, 2, 2));
  // Part of a capture.
  aclmdlRI captured = nullptr;
  ASSERT_EQ(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL), ACL_SUCCESS);
  EXPECT_EQ(aclmdlExecuteAsync(id, input, output, stream), ACL_SUCCESS) << Message();
  ASSERT_EQ(aclmdlRICaptureEnd(stream, &captured), ACL_SUCCESS);
  Write(memory_, {3, 3, 3, 3, 3, 3});
  ASSERT_EQ(aclmdlRIExecuteAsync(captured, stream), ACL_SUCCESS);
  ASSERT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
  EXPECT_THAT(Read(result_, 6), ElementsAre(6, 6, 6, 6, 6, 6));
  EXPECT_EQ(aclmdlRIDestroy(captured), ACL_SUCCESS);
  EXPECT_EQ(aclrtDestroyStream(stream), ACL_SUCCESS);
  EXPECT_EQ(aclmdlUnload(id), ACL_SUCCESS);
  EXPECT_EQ(aclmdlUnload(id), ACL_ERROR_INVALID_MODEL_ID);
  EXPECT_EQ(aclmdlExecute(id, input, output), ACL_ERROR_INVALID_MODEL_ID);
  EXPECT_THAT(Message(), HasSubstr("no model with the id"));
}

TEST_F(OfflineModel, MemoryOfTheCallerAndOutputsWithoutMemory) {
  const ge::ModelBufferData model = Built(Twofold({4}));
  size_t work = 0;
  size_t weights = 0;
  ASSERT_EQ(aclmdlQuerySizeFromMem(model.data.get(), model.length, &work, &weights), ACL_SUCCESS) << Message();
  ASSERT_GT(work, 0U);
  ASSERT_GT(weights, 0U);
  void* const work_memory = Device(std::vector<float>(work / 4));
  void* const weight_memory = Device(std::vector<float>(weights / 4));
  uint32_t id = 0;
  ASSERT_EQ(aclmdlLoadFromMemWithMem(model.data.get(), model.length, &id, work_memory, work, weight_memory, weights), 0)
      << Message();
  Write(memory_, {1, 2, 3, 4});
  const aclmdlDataset* input = List({{memory_, 16}});
  aclmdlDataset* output = List({{nullptr, 0}});
  ASSERT_EQ(aclmdlExecute(id, input, output), ACL_SUCCESS) << Message();
  aclDataBuffer* const made = aclmdlGetDatasetBuffer(output, 0);
  ASSERT_EQ(aclGetDataBufferSizeV2(made), 16U);
  EXPECT_THAT(Read(aclGetDataBufferAddr(made), 4), ElementsAre(2, 4, 6, 8));
  EXPECT_EQ(aclmdlUnload(id), ACL_SUCCESS);
  EXPECT_THAT(Read(aclGetDataBufferAddr(made), 4), ElementsAre(2, 4, 6, 8));
  EXPECT_EQ(aclrtFree(aclGetDataBufferAddr(made)), ACL_SUCCESS) << Message();
}

TEST_F(OfflineModel, SizesThatStayOpen) {
  const uint32_t id = Loaded(Built(Twofold({-1})));
  aclmdlIODims dims;
  ASSERT_EQ(aclmdlGetInputDims(desc_, 0, &dims), ACL_SUCCESS);
  EXPECT_THAT(Dims(dims), ElementsAre(-1));
  EXPECT_EQ(aclmdlGetInputSizeByIndex(desc_, 0), 0U);
  aclmdlDataset* input = List({{memory_, 32}});
  aclmdlDataset* output = List({{result_, 32}});
  EXPECT_EQ(aclmdlExecute(id, input, output), ACL_ERROR_MODEL_INPUT_NOT_MATCH);
  EXPECT_THAT(Message(), HasSubstr("aclmdlSetDatasetTensorDesc"));
  for (const int64_t count : {3, 5}) {
    aclTensorDesc* const told = aclCreateTensorDesc(ACL_FLOAT, 1, &count, ACL_FORMAT_ND);
    ASSERT_EQ(aclmdlSetDatasetTensorDesc(input, told, 0), ACL_SUCCESS);
    aclDestroyTensorDesc(told);  // the list has a copy
    Write(memory_, std::vector<float>(8, static_cast<float>(count)));
    Write(result_, std::vector<float>(8, 0));
    ASSERT_EQ(aclmdlExecute(id, input, output), ACL_SUCCESS) << Message();
    std::vector<float> expected(8, 0);
    std::fill_n(expected.begin(), count, 2 * static_cast<float>(count));
    EXPECT_EQ(Read(result_, 8), expected);
    const aclTensorDesc* const made = aclmdlGetDatasetTensorDesc(output, 0);
    ASSERT_NE(made, nullptr) << Message();
    int64_t size = 0;
    EXPECT_EQ(aclGetTensorDescDimV2(made, 0, &size), ACL_SUCCESS);
    EXPECT_EQ(size, count);
  }
  // An output that the run allocates.
  aclmdlDataset* free = List({{nullptr, 0}});
  ASSERT_EQ(aclmdlExecute(id, input, free), ACL_SUCCESS) << Message();
  void* const made = aclGetDataBufferAddr(aclmdlGetDatasetBuffer(free, 0));
  EXPECT_THAT(Read(made, 5), ElementsAre(10, 10, 10, 10, 10));
  EXPECT_EQ(aclrtFree(made), ACL_SUCCESS) << Message();
  EXPECT_EQ(aclmdlUnload(id), ACL_SUCCESS);
}

TEST_F(OfflineModel, GearsOfBatches) {
  const uint32_t id =
      Loaded(Built(Twofold({-1, 2}), Options{{"input_shape", "x:-1,2"}, {"dynamic_batch_size", "1,2,4"}}));
  aclmdlBatch batch;
  ASSERT_EQ(aclmdlGetDynamicBatch(desc_, &batch), ACL_SUCCESS);
  EXPECT_EQ(std::vector<uint64_t>(batch.batch, batch.batch + batch.batchCount), (std::vector<uint64_t>{1, 2, 4}));
  EXPECT_EQ(aclmdlGetNumInputs(desc_), 2U);
  EXPECT_EQ(aclmdlGetInputSizeByIndex(desc_, 0), 32U);
  EXPECT_EQ(aclmdlGetOutputSizeByIndex(desc_, 0), 32U);
  aclmdlIODims dims;
  ASSERT_EQ(aclmdlGetInputDims(desc_, 0, &dims), ACL_SUCCESS);
  EXPECT_THAT(Dims(dims), ElementsAre(-1, 2));
  size_t index = 0;
  ASSERT_EQ(aclmdlGetInputIndexByName(desc_, ACL_DYNAMIC_TENSOR_NAME, &index), ACL_SUCCESS);
  aclmdlDataset* input = List({{memory_, 32}, {Device({0, 0}), aclmdlGetInputSizeByIndex(desc_, index)}});
  aclmdlDataset* output = List({{result_, 32}});
  EXPECT_EQ(aclmdlExecute(id, input, output), ACL_ERROR_MODEL_INPUT_NOT_MATCH);
  EXPECT_THAT(Message(), HasSubstr("no gear is chosen"));
  Write(memory_, {1, 2, 3, 4, 5, 6, 7, 8});
  for (const uint64_t size : {2, 4, 1}) {
    Write(result_, std::vector<float>(8, 0));
    ASSERT_EQ(aclmdlSetDynamicBatchSize(id, input, index, size), ACL_SUCCESS) << Message();
    ASSERT_EQ(aclmdlExecute(id, input, output), ACL_SUCCESS) << Message();
    std::vector<float> expected(8, 0);
    for (size_t i = 0; i < 2 * size; ++i) expected[i] = 2 * static_cast<float>(i + 1);
    EXPECT_EQ(Read(result_, 8), expected);
    EXPECT_EQ(aclGetTensorDescSize(aclmdlGetDatasetTensorDesc(output, 0)), 8 * size);
  }
  EXPECT_EQ(aclmdlSetDynamicBatchSize(id, input, index, 3), ACL_ERROR_INVALID_PARAM);
  EXPECT_THAT(Message(), HasSubstr("[1] [2] [4]"));
  EXPECT_EQ(aclmdlSetDynamicBatchSize(id, input, 0, 2), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclmdlSetDynamicHWSize(id, input, index, 2, 2), ACL_ERROR_MODEL_NOT_DYNAMIC);
  EXPECT_EQ(aclmdlUnload(id), ACL_SUCCESS);
}

TEST_F(OfflineModel, GearsOfImagesAndOfAnySizes) {
  uint32_t id =
      Loaded(Built(Twofold({1, -1, -1}), Options{{"input_shape", "x:1,-1,-1"}, {"dynamic_image_size", "1,2;2,4"}}));
  aclmdlHW sizes;
  ASSERT_EQ(aclmdlGetDynamicHW(desc_, 0, &sizes), ACL_SUCCESS);
  ASSERT_EQ(sizes.hwCount, 2U);
  EXPECT_EQ(sizes.hw[1][1], 4U);
  aclmdlDataset* input = List({{memory_, 32}, {nullptr, 0}});
  aclmdlDataset* output = List({{result_, 32}});
  Write(memory_, {1, 1, 1, 1, 1, 1, 1, 1});
  ASSERT_EQ(aclmdlSetDynamicHWSize(id, input, 1, 1, 2), ACL_SUCCESS) << Message();
  ASSERT_EQ(aclmdlExecute(id, input, output), ACL_SUCCESS) << Message();
  EXPECT_THAT(Read(result_, 3), ElementsAre(2, 2, 0));
  EXPECT_EQ(aclmdlUnload(id), ACL_SUCCESS);

  id = Loaded(Built(Twofold({1, -1, -1}), Options{{"input_shape", "x:1,-1,-1"}, {"dynamic_dims", "1,3;4,1"}}));
  size_t count = 0;
  ASSERT_EQ(aclmdlGetInputDynamicGearCount(desc_, 0, &count), ACL_SUCCESS);
  ASSERT_EQ(count, 2U);
  std::vector<aclmdlIODims> gears(count);
  ASSERT_EQ(aclmdlGetInputDynamicDims(desc_, 0, gears.data(), count), ACL_SUCCESS);
  EXPECT_THAT(Dims(gears[1]), ElementsAre(1, 4, 1));
  ASSERT_EQ(aclmdlSetInputDynamicDims(id, input, 1, &gears[1]), ACL_SUCCESS) << Message();
  Write(result_, std::vector<float>(8, 0));
  ASSERT_EQ(aclmdlExecute(id, input, output), ACL_SUCCESS) << Message();
  EXPECT_THAT(Read(result_, 5), ElementsAre(2, 2, 2, 2, 0));
  gears[1].dims[2] = 7;
  EXPECT_EQ(aclmdlSetInputDynamicDims(id, input, 1, &gears[1]), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclmdlUnload(id), ACL_SUCCESS);
  // Options that do not fit.
  ge::ModelBufferData model;
  for (const Options& options :
       {Options{{"input_shape", "x:1,-1,-1"}, {"dynamic_image_size", "1,2,3;2,4,5"}},
        Options{{"input_shape", "x:1,2,-1"}, {"dynamic_image_size", "1,2;2,4"}},
        Options{{"input_shape", "x:1,1,1"}, {"dynamic_batch_size", "1,2"}},
        Options{{"input_shape", "x:1,-1,-1"}, {"dynamic_dims", "1,3"}},
        Options{{"input_shape", "x:1,-1,-1"}, {"dynamic_dims", "1,3;4,1"}, {"dynamic_batch_size", "1,2"}}}) {
    EXPECT_NE(ge::aclgrphBuildModel(Twofold({1, -1, -1}), options, model), ge::GRAPH_SUCCESS);
  }
}

TEST_F(OfflineModel, LongNamesHaveShortOnes) {
  const std::string name(200, 'n');
  const uint32_t id = Loaded(Built(Twofold({2}, name.c_str())));
  aclmdlIODims dims;
  ASSERT_EQ(aclmdlGetInputDims(desc_, 0, &dims), ACL_SUCCESS);
  EXPECT_EQ(std::string(dims.name), "acl_modelId_" + std::to_string(id) + "_input_0");
  EXPECT_EQ(aclmdlGetTensorRealName(desc_, dims.name), name);
  EXPECT_EQ(aclmdlGetTensorRealName(desc_, "other"), nullptr);
  EXPECT_EQ(aclmdlUnload(id), ACL_SUCCESS);
}

TEST_F(OfflineModel, WrongCallsAreRefused) {
  const ge::ModelBufferData model = Built(Twofold({2}));
  uint32_t id = 0;
  EXPECT_EQ(aclmdlLoadFromMem(nullptr, 4, &id), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclmdlLoadFromMem(model.data.get(), 0, &id), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclmdlLoadFromMem(model.data.get(), model.length, nullptr), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclmdlLoadFromFile((folder_ / "none.om").c_str(), &id), ACL_ERROR_INVALID_FILE);
  EXPECT_THAT(Message(), HasSubstr("none.om"));
  EXPECT_EQ(aclmdlLoadFromFile(folder_.c_str(), &id), ACL_ERROR_INVALID_FILE);
  EXPECT_EQ(aclmdlLoadFromMem("IMOD0123", 8, &id), ACL_ERROR_API_NOT_SUPPORT);
  EXPECT_THAT(Message(), HasSubstr("for the chip"));
  EXPECT_EQ(aclmdlLoadFromMem("anything", 8, &id), ACL_ERROR_PARSE_MODEL);
  std::string damaged(reinterpret_cast<const char*>(model.data.get()), model.length);
  damaged.back() ^= 1;
  EXPECT_EQ(aclmdlLoadFromMem(damaged.data(), damaged.size(), &id), ACL_ERROR_DESERIALIZE_MODEL);
  EXPECT_EQ(aclmdlLoadFromMem(model.data.get(), model.length / 2, &id), ACL_ERROR_DESERIALIZE_MODEL);
  EXPECT_EQ(aclmdlLoadFromMemWithMem(model.data.get(), model.length, &id, memory_, 1, nullptr, 0),
            ACL_ERROR_INVALID_PARAM);

  EXPECT_EQ(aclmdlGetNumInputs(desc_), 0U);  // not filled
  EXPECT_THAT(Message(), HasSubstr("aclmdlGetDesc"));
  id = Loaded(model);
  EXPECT_EQ(aclmdlGetInputSizeByIndex(desc_, 1), 0U);
  EXPECT_EQ(aclmdlGetInputNameByIndex(desc_, 1), nullptr);
  EXPECT_EQ(aclmdlGetInputDataType(desc_, 1), ACL_DT_UNDEFINED);
  EXPECT_EQ(aclmdlGetInputDims(desc_, 0, nullptr), ACL_ERROR_INVALID_PARAM);
  aclmdlDataset* input = List({{memory_, 8}});
  aclmdlDataset* output = List({{result_, 8}});
  aclmdlDataset* small = List({{memory_, 4}});
  aclmdlDataset* none = List({});
  EXPECT_EQ(aclmdlExecute(id, nullptr, output), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclmdlExecute(id, none, output), ACL_ERROR_MODEL_INPUT_NOT_MATCH);
  EXPECT_EQ(aclmdlExecute(id, input, none), ACL_ERROR_MODEL_OUTPUT_NOT_MATCH);
  EXPECT_EQ(aclmdlExecute(id, small, output), ACL_ERROR_MODEL_INPUT_NOT_MATCH);
  EXPECT_THAT(Message(), HasSubstr("input 0"));
  EXPECT_EQ(aclmdlExecute(id, input, small), ACL_ERROR_INVALID_PARAM);
  EXPECT_EQ(aclmdlSetDynamicBatchSize(id, input, 0, 2), ACL_ERROR_MODEL_NOT_DYNAMIC);
  EXPECT_EQ(aclmdlGetDatasetBuffer(input, 1), nullptr);
  EXPECT_EQ(aclmdlGetDatasetTensorDesc(input, 0), nullptr);
  EXPECT_EQ(aclmdlSetDatasetTensorDesc(input, nullptr, 1), ACL_ERROR_INVALID_PARAM);
  aclDataBuffer* const gone = aclCreateDataBuffer(memory_, 8);
  aclmdlDataset* stale = List({});
  ASSERT_EQ(aclmdlAddDatasetBuffer(stale, gone), ACL_SUCCESS);
  aclDestroyDataBuffer(gone);
  EXPECT_EQ(aclmdlExecute(id, stale, output), ACL_ERROR_RT_INVALID_HANDLE);
  EXPECT_EQ(aclmdlExecute(id, reinterpret_cast<aclmdlDataset*>(desc_), output), ACL_ERROR_RT_INVALID_HANDLE);
  // The device goes, and the model with it.
  for (void* block : blocks_) EXPECT_EQ(aclrtFree(block), ACL_SUCCESS);
  blocks_.clear();
  ASSERT_EQ(aclrtResetDevice(0), ACL_SUCCESS);
  ASSERT_EQ(aclrtSetDevice(0), ACL_SUCCESS);
  EXPECT_EQ(aclmdlExecute(id, input, output), ACL_ERROR_RT_MODEL_CONTEXT);
  EXPECT_EQ(aclmdlUnload(id), ACL_SUCCESS);
}

}  // namespace
