// SPDX-License-Identifier: Apache-2.0
//
// The dump section of a configuration, as its users write it: a file, some operators, and the tree of files read back.
#include <acl/acl_dump.h>
#include <acl/acl_op.h>
#include <acl/ops/acl_cblas.h>
#include <aclnn/acl_meta.h>
#include <aclnnop/aclnn_add.h>
#include <aclnnop/aclnn_mul.h>
#include <aclnnop/aclnn_nonzero.h>

#include <filesystem>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "child.h"
#include "kernels.h"
#include "support/json.h"

namespace reprise::testing {
namespace {

namespace fs = std::filesystem;

// A .npy file, taken apart by hand.
struct Npy {
  std::string type;
  std::vector<int64_t> shape;
  std::string data;

  explicit Npy(const fs::path& path) {
    const std::string all = ReadAll(path);
    if (all.substr(0, 8) != std::string("\x93NUMPY\x01\x00", 8)) return;
    const size_t length = static_cast<unsigned char>(all[8]) + 256U * static_cast<unsigned char>(all[9]);
    EXPECT_EQ((10 + length) % 64, 0U) << path;
    const std::string header = all.substr(10, length);
    std::smatch found;
    const std::regex form(R"(\{'descr': '([^']+)', 'fortran_order': False, 'shape': \(([^)]*)\), \} *\n)");
    EXPECT_TRUE(std::regex_match(header, found, form)) << header;
    type = found[1];
    std::istringstream sizes(found[2]);
    for (std::string size; std::getline(sizes, size, ',');) {
      if (size.find_first_of("0123456789") != std::string::npos) shape.push_back(std::stoll(size));
    }
    data = all.substr(10 + length);
  }

  template <class T>
  std::vector<T> As() const {
    std::vector<T> values(data.size() / sizeof(T));
    std::memcpy(values.data(), data.data(), values.size() * sizeof(T));
    return values;
  }
};

using Floats = std::vector<float>;
using Shape = std::vector<int64_t>;

struct Received {
  std::mutex mutex;
  std::map<std::string, std::string> files;
  std::set<std::string> ended;
};
Received* g_got = nullptr;

int32_t Take(const acldumpChunk* chunk, int32_t) {
  std::lock_guard lock(g_got->mutex);
  std::string& file = g_got->files[chunk->fileName];
  if (static_cast<size_t>(chunk->offset) != file.size()) return 1;
  file.append(reinterpret_cast<const char*>(chunk->dataBuf), chunk->bufLen);
  if (chunk->isLastChunk != 0) g_got->ended.insert(chunk->fileName);
  return 0;
}

class DataDumps : public Tools {
 protected:
  void SetUp() override {
    Tools::SetUp();
    stream_ = NewStream();
    path_ = folder_ / "out";
    memory_ = static_cast<float*>(NewMemory(4096));
    std::memset(memory_, 0, 4096);
  }
  void TearDown() override {
    (void)aclFinalize();
    (void)aclmdlFinalizeDump();
    acldumpUnregCallback();
    for (aclTensor* tensor : tensors_) EXPECT_EQ(0, aclDestroyTensor(tensor));
    MUST(aclrtDestroyStream(stream_));
    Tools::TearDown();
  }

  // {"dump": {"dump_path": …, <more>}}
  std::string Config(const std::string& more) {
    const std::string file = (folder_ / "acl.json").string();
    std::ofstream(file) << R"({"dump": {"dump_path": ")" + path_.string() + "\"" + (more.empty() ? "" : ", ") + more +
                               "}}";
    return file;
  }
  void Begin(const std::string& more) { ASSERT_EQ(0, aclInit(Config(more).c_str())) << aclGetRecentErrMsg(); }

  aclTensor* Tensor(void* data, const Shape& sizes, Shape strides = {}, aclDataType type = ACL_FLOAT) {
    if (strides.empty()) {
      strides.resize(sizes.size());
      int64_t stride = 1;
      for (size_t d = sizes.size(); d-- > 0; stride *= sizes[d]) strides[d] = stride;
    }
    aclTensor* tensor = aclCreateTensor(sizes.data(), sizes.size(), type, strides.data(), 0, ACL_FORMAT_ND,
                                        sizes.data(), sizes.size(), data);
    EXPECT_NE(tensor, nullptr);
    tensors_.push_back(tensor);
    return tensor;
  }
  // out = a + b.
  void Add(aclTensor* a, aclTensor* b, aclTensor* out) {
    float one = 1;
    aclScalar* alpha = aclCreateScalar(&one, ACL_FLOAT);
    uint64_t workspace = 0;
    aclOpExecutor* executor = nullptr;
    ASSERT_EQ(0, aclnnAddGetWorkspaceSize(a, b, alpha, out, &workspace, &executor)) << aclGetRecentErrMsg();
    EXPECT_EQ(0, aclnnAdd(nullptr, 0, executor, stream_));
    EXPECT_EQ(0, aclDestroyScalar(alpha));
  }
  void Mul(aclTensor* a, aclTensor* b, aclTensor* out) {
    uint64_t workspace = 0;
    aclOpExecutor* executor = nullptr;
    ASSERT_EQ(0, aclnnMulGetWorkspaceSize(a, b, out, &workspace, &executor)) << aclGetRecentErrMsg();
    EXPECT_EQ(0, aclnnMul(nullptr, 0, executor, stream_));
  }
  // Waits, and ends the dump.
  void End() {
    EXPECT_ACL(0, aclrtSynchronizeStream(stream_));
    EXPECT_ACL(0, aclFinalize());
  }

  // Every file below the folder, as its path from there; task, stream and time in a name become t.s.T, and a second one
  // of a name gets a plus.
  std::map<std::string, fs::path> Tree() const {
    std::map<std::string, fs::path> files;
    if (!fs::exists(path_)) return files;
    for (const auto& entry : fs::recursive_directory_iterator(path_)) {
      if (!entry.is_regular_file()) continue;
      std::string name = fs::relative(entry.path(), path_).string();
      name = std::regex_replace(name, std::regex(R"(^\d{14}/)"), "");
      name = std::regex_replace(name, std::regex(R"(\.\d{16}(?=\.|$))"), ".T");
      name = std::regex_replace(name, std::regex(R"(\.\d+\.)" + std::to_string(IdOf(stream_)) + R"(\.T)"), ".t.s.T");
      while (!files.emplace(name, entry.path()).second) name += '+';
    }
    return files;
  }
  static std::vector<std::string> NamesOf(const std::map<std::string, fs::path>& tree) {
    std::vector<std::string> names;
    for (const auto& entry : tree) names.push_back(entry.first);
    return names;
  }
  // The only file whose name matches.
  fs::path TheFile(const std::string& form) const {
    fs::path found;
    int count = 0;
    for (const auto& [name, path] : Tree()) {
      if (!std::regex_match(name, std::regex(form))) continue;
      found = path;
      ++count;
    }
    EXPECT_EQ(count, 1) << form << " among " << ::testing::PrintToString(NamesOf(Tree()));
    return found;
  }

  aclrtStream stream_ = nullptr;
  fs::path path_;
  float* memory_ = nullptr;
  std::vector<aclTensor*> tensors_;
};

using Names = std::vector<std::string>;

TEST_F(DataDumps, AnOperatorLeavesItsTensors) {
  for (int i = 0; i < 24; ++i) memory_[i] = static_cast<float>(i);
  // a: every other element, transposed; b: one row for all.
  aclTensor* a = Tensor(memory_, {2, 3}, {2, 4});
  aclTensor* b = Tensor(memory_ + 20, {3});
  aclTensor* out = Tensor(memory_ + 64, {2, 3});
  Begin(R"("dump_mode": "all")");
  Add(a, b, out);
  End();
  EXPECT_EQ(NamesOf(Tree()), (Names{"0/Add.aclnnAdd.t.s.T", "0/Add.aclnnAdd.t.s.T.input.0.npy",
                                    "0/Add.aclnnAdd.t.s.T.input.1.npy", "0/Add.aclnnAdd.t.s.T.output.0.npy"}));
  const auto tree = Tree();
  const Npy first(tree.at("0/Add.aclnnAdd.t.s.T.input.0.npy"));
  EXPECT_EQ(first.type, "<f4");
  EXPECT_EQ(first.shape, (Shape{2, 3}));
  EXPECT_EQ(first.As<float>(), (Floats{0, 4, 8, 2, 6, 10}));
  const Npy second(tree.at("0/Add.aclnnAdd.t.s.T.input.1.npy"));
  EXPECT_EQ(second.shape, (Shape{3}));
  EXPECT_EQ(second.As<float>(), (Floats{20, 21, 22}));
  EXPECT_EQ(Npy(tree.at("0/Add.aclnnAdd.t.s.T.output.0.npy")).As<float>(), (Floats{20, 25, 30, 22, 27, 32}));
  const json said = ParseJson(ReadAll(tree.at("0/Add.aclnnAdd.t.s.T")));
  ASSERT_FALSE(said.is_discarded());
  EXPECT_EQ(said["op_type"], "Add");
  EXPECT_EQ(said["stream"], IdOf(stream_));
  EXPECT_EQ(said["failed"], false);
  ASSERT_EQ(said["tensors"].size(), 3U);
  EXPECT_EQ(said["tensors"][1]["kind"], "input");
  EXPECT_EQ(said["tensors"][1]["name"], "other");
  EXPECT_EQ(said["tensors"][0]["strides"], json({2, 4}));
  EXPECT_EQ(said["tensors"][2]["data_type"], "float32");
  EXPECT_TRUE(fs::exists(fs::path(tree.at("0/Add.aclnnAdd.t.s.T")).parent_path() /
                         said["tensors"][2]["file"].get<std::string>()));
}

TEST_F(DataDumps, InputsAreThoseFromBeforeTheRun) {
  memory_[0] = 3;
  memory_[1] = 4;
  aclTensor* x = Tensor(memory_, {1});
  aclTensor* y = Tensor(memory_ + 1, {1});
  Begin(R"("dump_mode": "all")");
  float one = 1;
  aclScalar* alpha = aclCreateScalar(&one, ACL_FLOAT);
  uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(0, aclnnInplaceAddGetWorkspaceSize(x, y, alpha, &workspace, &executor));
  EXPECT_EQ(0, aclnnInplaceAdd(nullptr, 0, executor, stream_));
  EXPECT_EQ(0, aclDestroyScalar(alpha));
  End();
  EXPECT_EQ(Npy(TheFile(R"(.*\.input\.0\.npy)")).As<float>(), (Floats{3}));
  EXPECT_EQ(Npy(TheFile(R"(.*\.input\.1\.npy)")).As<float>(), (Floats{4}));
  EXPECT_EQ(Npy(TheFile(R"(.*\.output\.0\.npy)")).As<float>(), (Floats{7}));
}

TEST_F(DataDumps, MovedTensorsAreReadWhereTheyAre) {
  for (int i = 0; i < 4; ++i) memory_[i] = static_cast<float>(10 + i);
  aclTensor* x = Tensor(memory_, {1});
  aclTensor* out = Tensor(memory_ + 64, {1});
  Begin(R"("dump_mode": "all")");
  uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(0, aclnnMulGetWorkspaceSize(x, x, out, &workspace, &executor));
  ASSERT_EQ(0, aclSetAclOpExecutorRepeatable(executor));
  EXPECT_EQ(0, aclnnMul(nullptr, 0, executor, stream_));  // queued: it keeps its addresses
  ASSERT_EQ(0, aclSetInputTensorAddr(executor, 1, x, memory_ + 2));
  EXPECT_EQ(0, aclnnMul(nullptr, 0, executor, stream_));
  End();
  EXPECT_EQ(0, aclDestroyAclOpExecutor(executor));
  std::multiset<float> second, results;
  for (const auto& [name, path] : Tree()) {
    if (name.find("input.1.npy") != std::string::npos) second.insert(Npy(path).As<float>().at(0));
    if (name.find("output.0.npy") != std::string::npos) results.insert(Npy(path).As<float>().at(0));
  }
  EXPECT_EQ(second, (std::multiset<float>{10, 12}));
  EXPECT_EQ(results, (std::multiset<float>{100, 120}));
}

TEST_F(DataDumps, ModesAndTheEndOfTheDump) {
  aclTensor* x = Tensor(memory_, {2});
  Begin("");
  Add(x, x, x);
  End();
  Add(x, x, x);
  ASSERT_EQ(0, aclrtSynchronizeStream(stream_));
  EXPECT_EQ(NamesOf(Tree()), (Names{"0/Add.aclnnAdd.t.s.T", "0/Add.aclnnAdd.t.s.T.output.0.npy"})) << "the default";
  fs::remove_all(path_);
  Begin(R"("dump_mode": "input", "dump_op_switch": "on", "dump_list": [])");
  Add(x, x, x);
  End();
  EXPECT_EQ(NamesOf(Tree()),
            (Names{"0/Add.aclnnAdd.t.s.T", "0/Add.aclnnAdd.t.s.T.input.0.npy", "0/Add.aclnnAdd.t.s.T.input.1.npy"}));
}

TEST_F(DataDumps, EveryTypeBecomesAnArray) {
  struct Row {
    aclDataType type;
    const char* numpy;
    std::string bytes;
    std::string saved;
  };
  const auto bytes = [](auto... values) {
    std::string out;
    (out.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
    return out;
  };
  const std::vector<Row> rows = {
      {ACL_FLOAT16, "<f2", bytes(uint16_t{0x3C00}, uint16_t{0xC000}), bytes(uint16_t{0x3C00}, uint16_t{0xC000})},
      {ACL_BF16, "<f4", bytes(uint16_t{0x3F80}, uint16_t{0xC000}), bytes(1.0F, -2.0F)},
      {ACL_DOUBLE, "<f8", bytes(1.5, -2.5), bytes(1.5, -2.5)},
      {ACL_BOOL, "|b1", bytes(uint8_t{0}, uint8_t{7}), bytes(uint8_t{0}, uint8_t{1})},
      {ACL_INT8, "|i1", bytes(int8_t{-1}, int8_t{7}), bytes(int8_t{-1}, int8_t{7})},
      {ACL_UINT8, "|u1", bytes(uint8_t{255}, uint8_t{7}), bytes(uint8_t{255}, uint8_t{7})},
      {ACL_INT16, "<i2", bytes(int16_t{-300}, int16_t{7}), bytes(int16_t{-300}, int16_t{7})},
      {ACL_UINT16, "<u2", bytes(uint16_t{60000}, uint16_t{7}), bytes(uint16_t{60000}, uint16_t{7})},
      {ACL_INT32, "<i4", bytes(-70000, 7), bytes(-70000, 7)},
      {ACL_UINT32, "<u4", bytes(4000000000U, 7U), bytes(4000000000U, 7U)},
      {ACL_INT64, "<i8", bytes(int64_t{-1}, int64_t{1} << 60), bytes(int64_t{-1}, int64_t{1} << 60)},
      {ACL_UINT64, "<u8", bytes(~uint64_t{0}, uint64_t{1}), bytes(~uint64_t{0}, uint64_t{1})},
      {ACL_COMPLEX64, "<c8", bytes(1.0F, 2.0F, 3.0F, 4.0F), bytes(1.0F, 2.0F, 3.0F, 4.0F)},
      {ACL_COMPLEX128, "<c16", bytes(1.0, 2.0, 3.0, 4.0), bytes(1.0, 2.0, 3.0, 4.0)}};
  // What the program itself hands to the dump facility.
  EXPECT_EQ(0, aclDumpOpTensors("Custom", "custom", nullptr, 0, 0, stream_)) << "nothing is dumped yet";
  Begin(R"("dump_mode": "all")");
  auto* at = reinterpret_cast<char*>(memory_);
  std::vector<aclTensor*> all;
  for (const Row& row : rows) {
    std::memcpy(at, row.bytes.data(), row.bytes.size());
    all.push_back(Tensor(at, {2}, {1}, row.type));
    at += 64;
  }
  all.push_back(Tensor(nullptr, {0, 5}));  // no elements
  EXPECT_EQ(0, aclDumpOpTensors("Custom", "my custom/op", all.data(), all.size() - 1, 1, stream_));
  EXPECT_EQ(161001, aclDumpOpTensors("Custom", nullptr, nullptr, 0, 0, stream_));
  EXPECT_EQ(161001, aclDumpOpTensors("Custom", "custom", nullptr, 1, 0, stream_));
  EXPECT_EQ(161002, aclDumpOpTensors("Custom", "custom", all.data(), SIZE_MAX, 0, stream_));
  End();
  const auto tree = Tree();
  ASSERT_EQ(tree.size(), rows.size() + 2);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Npy npy(tree.at("0/Custom.my_custom_op.t.s.T.input." + std::to_string(i) + ".npy"));
    EXPECT_EQ(npy.type, rows[i].numpy);
    EXPECT_EQ(npy.shape, (Shape{2})) << rows[i].numpy;
    EXPECT_EQ(npy.data, rows[i].saved) << rows[i].numpy;
  }
  const Npy empty(tree.at("0/Custom.my_custom_op.t.s.T.output.0.npy"));
  EXPECT_EQ(empty.shape, (Shape{0, 5}));
  EXPECT_EQ(empty.data, "");
}

TEST_F(DataDumps, StatisticsAreATable) {
  const float values[] = {-2, 6, INFINITY, -INFINITY, NAN, NAN, 4, 0};
  std::memcpy(memory_, values, sizeof values);
  aclTensor* x = Tensor(memory_, {2, 4});
  aclTensor* zero = Tensor(memory_ + 64, {1});
  aclTensor* out = Tensor(memory_ + 128, {2, 4});
  Begin(R"("dump_data": "stats")");
  Add(x, zero, out);
  End();
  EXPECT_EQ(NamesOf(Tree()), (Names{"0/Add.aclnnAdd.t.s.T.csv"}));
  EXPECT_EQ(ReadAll(TheFile(".*csv")),
            "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,L2norm Value,Count,"
            "Nan Count,Negative Inf Count,Positive Inf Count\n"
            "Output,0,32,float32,ND,2x4,6,-2,2,7.483314773547883,8,2,1,1\n");
  fs::remove_all(path_);
  Begin(R"("dump_data": "stats", "dump_mode": "input", "dump_stats": ["Min", "Nan"])");
  auto* numbers = reinterpret_cast<int64_t*>(memory_ + 256);
  numbers[0] = (int64_t{1} << 60) + 1;  // more than a double holds
  numbers[1] = INT64_MAX;
  Mul(Tensor(numbers, {2}, {1}, ACL_INT64), Tensor(numbers, {2}, {1}, ACL_INT64),
      Tensor(numbers + 2, {2}, {1}, ACL_INT64));
  End();
  EXPECT_EQ(ReadAll(TheFile(".*csv")),
            "Input/Output,Index,Data Size,Data Type,Format,Shape,Min Value,Count,Nan Count\n"
            "Input,0,16,int64,ND,2,1152921504606846977,2,0\n"
            "Input,1,16,int64,ND,2,1152921504606846977,2,0\n");
}

TEST_F(DataDumps, ExecutionsOfGraphsHaveFoldersOfTheirOwn) {
  aclTensor* x = Tensor(memory_, {1});
  aclTensor* y = Tensor(memory_ + 1, {1});
  memory_[1] = 1;
  aclmdlRI models[2] = {};
  // One from before the dump began, whose tensors are known as its kernels walk them.
  for (int i = 0; i < 2; ++i) {
    if (i == 1)
      Begin(R"("dump_list": [{"model_name": "net"}, {"model_name": "other", "layer": ["Mul"]}], "dump_step": "1|3-9")");
    MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    Add(x, y, x);
    MUST(aclmdlRICaptureEnd(stream_, &models[i]));
    MUST(aclmdlRISetName(models[i], i == 0 ? "other" : "net"));
  }
  Add(x, y, x);  // dump_list names graphs, so single operators are not meant
  for (int i = 0; i < 4; ++i) MUST(aclmdlRIExecuteAsync(models[1], stream_));
  for (int i = 0; i < 4; ++i) MUST(aclmdlRIExecuteAsync(models[0], stream_));
  End();
  Names names = NamesOf(Tree());
  ASSERT_EQ(names.size(), 4U) << ::testing::PrintToString(names);
  for (std::string& name : names) {
    name = std::regex_replace(name, std::regex(R"(\.\d+\.\d+\.T)"), ".t.s.T");
    name = std::regex_replace(name, std::regex(R"(net/\d+/)"), "net/id/");
  }
  EXPECT_EQ(names, (Names{"0/net/id/1/Add.aclnnAdd.t.s.T", "0/net/id/1/Add.aclnnAdd.t.s.T.output.0.npy",
                          "0/net/id/3/Add.aclnnAdd.t.s.T", "0/net/id/3/Add.aclnnAdd.t.s.T.output.0.npy"}));
  EXPECT_EQ(Npy(TheFile(R"(0/net/\d+/1/.*npy)")).As<float>(), (Floats{3}));
  EXPECT_EQ(Npy(TheFile(R"(0/net/\d+/3/.*npy)")).As<float>(), (Floats{5}));
  const json said = ParseJson(ReadAll(TheFile(R"(0/net/\d+/3/.*T)")));
  EXPECT_EQ(said["model"], "net");
  EXPECT_EQ(said["data_index"], 3);
  EXPECT_EQ(memory_[0], 9) << "all of it ran";
  fs::remove_all(path_);
  // A graph that was captured before the dump began.
  Begin(R"("dump_list": [{"layer": ["Add"]}])");
  MUST(aclmdlRIExecuteAsync(models[0], stream_));
  End();
  EXPECT_EQ(Npy(TheFile(R"(0/other/\d+/0/Add\..*npy)")).As<float>(), (Floats{10}));
  EXPECT_NE(ReadAll(TheFile(R"(0/other/\d+/0/Add\..*T)")).find("planned before the dump began"), std::string::npos);
  for (aclmdlRI model : models) MUST(aclmdlRIDestroy(model));
}

TEST_F(DataDumps, LayersAndBlacklistsChoose) {
  aclTensor* x = Tensor(memory_, {1});
  Begin(R"("dump_list": [{"layer": ["Mul", "aclnnNonesuch"]}], "dump_op_switch": "on")");
  Add(x, x, x);
  Mul(x, x, x);
  End();
  EXPECT_EQ(NamesOf(Tree()), (Names{"0/Mul.aclnnMul.t.s.T", "0/Mul.aclnnMul.t.s.T.output.0.npy"}));
  fs::remove_all(path_);
  Begin(R"("dump_mode": "all", "dump_op_switch": "on", "dump_list": [{"optype_blacklist": [{"name": "Mul",
        "pos": ["input1", "output0"]}], "opname_blacklist": [{"name": "aclnnAdd"}]}])");
  Add(x, x, x);
  Mul(x, x, x);
  End();
  EXPECT_EQ(NamesOf(Tree()),
            (Names{"0/Add.aclnnAdd.t.s.T", "0/Mul.aclnnMul.t.s.T", "0/Mul.aclnnMul.t.s.T.input.0.npy"}));
}

TEST_F(DataDumps, MatrixRoutinesAndOperatorsByTypeAreDumped) {
  const float a[] = {1, 2, 3, 4};
  std::memcpy(memory_, a, sizeof a);
  memory_[16] = 2;   // alpha
  memory_[17] = 1;   // beta
  memory_[32] = 10;  // C
  constexpr auto kPlain = static_cast<aclTransType>(0);
  constexpr auto kPrecise = static_cast<aclComputeType>(0);
  const auto gemm = [&] {
    MUST(aclblasGemmEx(kPlain, kPlain, kPlain, 2, 2, 2, memory_ + 16, memory_, -1, ACL_FLOAT, memory_, -1, ACL_FLOAT,
                       memory_ + 17, memory_ + 32, -1, ACL_FLOAT, kPrecise, stream_));
  };
  Begin(R"("dump_mode": "all", "dump_level": "op")");
  gemm();
  const int64_t dims[] = {2};
  aclTensorDesc* desc = aclCreateTensorDesc(ACL_FLOAT, 1, dims, ACL_FORMAT_ND);
  aclDataBuffer* in = aclCreateDataBuffer(memory_, 8);
  aclDataBuffer* out = aclCreateDataBuffer(memory_ + 64, 8);
  aclTensorDesc* descs[] = {desc, desc};
  aclDataBuffer* inputs[] = {in, in};
  MUST(aclopExecuteV2("Mul", 2, descs, inputs, 1, descs, &out, nullptr, stream_));
  Launch(count_up_, stream_);  // a kernel, no operator
  End();
  auto tree = Tree();
  EXPECT_EQ(Npy(TheFile(R"(0/Gemm\.Gemm\..*output\.0\.npy)")).As<float>(), (Floats{24, 20, 30, 44}));
  EXPECT_EQ(Npy(TheFile(R"(0/Gemm\.Gemm\..*input\.4\.npy)")).As<float>(), (Floats{10, 0, 0, 0})) << "C as it was";
  EXPECT_EQ(Npy(TheFile(R"(0/Mul\.Mul\..*output\.0\.npy)")).As<float>(), (Floats{1, 4}));
  EXPECT_EQ(tree.size(), 7U + 4U) << ::testing::PrintToString(NamesOf(tree));
  fs::remove_all(path_);
  Begin(R"("dump_level": "kernel")");
  gemm();
  Launch(count_up_, stream_);
  End();
  tree = Tree();
  // Two kernels: the product, and what is made of it.
  EXPECT_EQ(tree.size(), 4U + 1U) << ::testing::PrintToString(NamesOf(tree));
  for (const auto& [name, path] : tree) {
    if (name.find("npy") == std::string::npos) continue;
    EXPECT_EQ(name.rfind("0/Gemm.Gemm_kernel.", 0), 0U) << name;
    EXPECT_EQ(Npy(path).shape, (Shape{2, 2}));
  }
  fs::remove_all(path_);
  // All arguments, in the older dump.
  MUST(aclopStartDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS, path_.c_str()));
  gemm();
  MUST(aclopExecuteV2("Mul", 2, descs, inputs, 1, descs, &out, nullptr, stream_));
  // They pass the same door when they are captured.
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  gemm();
  MUST(aclopExecuteV2("Mul", 2, descs, inputs, 1, descs, &out, nullptr, stream_));
  MUST(aclmdlRICaptureEnd(stream_, &model));
  MUST(aclopStopDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS));
  MUST(aclrtSynchronizeStream(stream_));
  MUST(aclmdlRIDestroy(model));
  const std::string lines = ReadAll(Tree().begin()->second);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3 + 3);
  size_t captured = 0;
  constexpr std::string_view kCaptured = R"("captured":true)";
  for (size_t at = lines.find(kCaptured); at != std::string::npos; at = lines.find(kCaptured, at + 1)) ++captured;
  EXPECT_EQ(captured, 3U) << lines;
  EXPECT_NE(
      lines.find(R"("operator":"Gemm","operands":[{"name":"A","data_type":"float32","format":"ND","shape":[2,2])"),
      std::string::npos)
      << lines;
  EXPECT_NE(lines.find(R"("operator":"Mul")"), std::string::npos) << lines;
  aclDestroyTensorDesc(desc);
  MUST(aclDestroyDataBuffer(in));
  MUST(aclDestroyDataBuffer(out));
}

TEST_F(DataDumps, ShapesThatARunFindsOut) {
  memory_[1] = 5;
  memory_[3] = 6;
  aclTensor* x = Tensor(memory_, {4});
  auto* found = reinterpret_cast<int64_t*>(memory_ + 64);
  aclTensor* out = Tensor(found, {4, 1}, {}, ACL_INT64);
  Begin("");
  uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(0, aclnnNonzeroGetWorkspaceSize(x, out, &workspace, &executor)) << aclGetRecentErrMsg();
  EXPECT_EQ(0, aclnnNonzero(workspace != 0 ? NewMemory(workspace) : nullptr, workspace, executor, stream_));
  End();
  const Npy npy(TheFile(R"(0/Nonzero\.aclnnNonzero\..*output\.0\.npy)"));
  EXPECT_EQ(npy.shape, (Shape{2, 1}));
  EXPECT_EQ(npy.As<int64_t>(), (std::vector<int64_t>{1, 3}));
}

TEST_F(DataDumps, KernelsOfTheProgramSayWhatIsKnown) {
  Begin(R"("dump_mode": "all")");
  Launch(count_up_, stream_);
  End();
  EXPECT_EQ(NamesOf(Tree()), (Names{"0/count_up.count_up.t.s.T"}));
  const json said = ParseJson(ReadAll(TheFile(".*T")));
  ASSERT_FALSE(said.is_discarded());
  EXPECT_NE(said["note"].get<std::string>().find("no tensors"), std::string::npos);
  EXPECT_EQ(said["args_bytes"], 8);
  ASSERT_EQ(said["pointers"].size(), 1U);
  EXPECT_EQ(std::stoull(said["pointers"][0]["address"].get<std::string>(), nullptr, 16),
            reinterpret_cast<uintptr_t>(cell_));
  EXPECT_EQ(said["tensors"], json::array());
}

TEST_F(DataDumps, TheWatchedOperatorIsLookedAtAgainBehindOthers) {
  aclTensor* product = Tensor(memory_, {1});
  aclTensor* other = Tensor(memory_ + 8, {1});
  memory_[0] = 3;
  memory_[8] = 100;
  // The sum tramples on the product.
  Begin(R"("dump_scene": "watcher", "dump_list": [{"layer": ["Add"], "watcher_nodes": ["Mul"]}])");
  Add(other, other, other);  // nothing is known of the product yet
  Mul(product, product, product);
  Add(other, product, product);
  End();
  EXPECT_EQ(NamesOf(Tree()),
            (Names{"0/Mul.aclnnMul_To_aclnnAdd.t.s.T", "0/Mul.aclnnMul_To_aclnnAdd.t.s.T.output.0.npy"}));
  EXPECT_EQ(Npy(TheFile(".*npy")).As<float>(), (Floats{209}));
}

TEST_F(DataDumps, TheCallbackGetsPiecesInsteadOfFiles) {
  Received got;
  g_got = &got;
  ASSERT_EQ(0, acldumpRegCallback(Take, 0));
  Begin("");
  aclTensor* x = Tensor(NewMemory(4 * 200'000), {200'000});
  Add(x, x, x);
  End();
  EXPECT_TRUE(Tree().empty());
  ASSERT_EQ(got.files.size(), 2U);
  EXPECT_EQ(got.ended.size(), 2U);
  for (const auto& [name, bytes] : got.files) {
    EXPECT_EQ(name.rfind(path_.string(), 0), 0U) << name;
    if (name.ends_with(".npy")) {
      EXPECT_EQ(bytes.size(), 128 + 800'000U);
    }
  }
}

TEST_F(DataDumps, ManyThreadsAtOnce) {
  constexpr int kThreads = 4, kEach = 40;
  Begin(R"("dump_mode": "all")");
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      EXPECT_EQ(0, aclrtSetDevice(0));
      aclrtStream stream = NewStream();
      auto* memory = static_cast<float*>(NewMemory(64));
      *memory = 1;
      const int64_t one = 1;
      aclTensor* x = aclCreateTensor(&one, 1, ACL_FLOAT, &one, 0, ACL_FORMAT_ND, &one, 1, memory);
      for (int i = 0; i < kEach; ++i) {
        uint64_t workspace = 0;
        aclOpExecutor* executor = nullptr;
        EXPECT_EQ(0, aclnnMulGetWorkspaceSize(x, x, x, &workspace, &executor));
        EXPECT_EQ(0, aclnnMul(nullptr, 0, executor, stream));
      }
      EXPECT_EQ(0, aclrtSynchronizeStream(stream));
      EXPECT_EQ(0, aclDestroyTensor(x));
      EXPECT_EQ(0, aclrtDestroyStream(stream));
      EXPECT_EQ(0, aclrtFree(memory));
    });
  }
  for (std::thread& thread : threads) thread.join();
  End();
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(path_)) files += entry.is_regular_file();
  EXPECT_EQ(files, 4U * kThreads * kEach);
}

TEST_F(DataDumps, WhatCannotBeWrittenIsToldAtTheEnd) {
  aclTensor* x = Tensor(memory_, {1});
  memory_[0] = 1;
  MUST(aclmdlInitDump());
  MUST(aclmdlSetDump(Config("").c_str()));
  std::ofstream(path_ / "x") << "a file";
  // In the place of the folder.
  fs::remove_all(path_);
  std::ofstream(path_) << "a file";
  Add(x, x, x);
  EXPECT_ACL(0, aclrtSynchronizeStream(stream_));
  EXPECT_ACL(100004, aclmdlFinalizeDump());
  EXPECT_EQ(memory_[0], 2) << "the operator itself goes on";
  fs::remove(path_);
}

TEST_F(DataDumps, OptionsAreHonouredOrRefused) {
  MUST(aclmdlInitDump());
  const std::vector<std::pair<std::string, std::string>> bad = {
      {R"("dump_scene": "everything")", "dump.dump_scene"},
      {R"("dump_level": "some")", "dump.dump_level"},
      {R"("dump_step": 1)", "dump.dump_step"},
      {R"("dump_step": "1||2")", "dump.dump_step"},
      {R"("dump_step": "5-")", "dump.dump_step"},
      {R"("dump_step": "5-4")", "dump.dump_step"},
      {R"("dump_step": "0ad")", "dump.dump_step"},
      {R"("dump_step": "-1")", "dump.dump_step"},
      {R"("dump_step": "99999999999999999999")", "dump.dump_step"},
      {R"("dump_data": "both")", "dump.dump_data"},
      {R"("dump_stats": ["Max"])", "dump.dump_stats"},
      {R"("dump_data": "stats", "dump_stats": ["Mode"])", "dump.dump_stats"},
      {R"("dump_data": "stats", "dump_stats": [])", "dump.dump_stats"},
      {R"("dump_op_switch": "perhaps")", "dump.dump_op_switch"},
      {R"("dump_op_switch": "off")", "nothing would be dumped"},
      {R"("dump_debug": "on")", "no overflow flags"},
      {R"("dump_list": [{"opname_range": []}])", "opname_range"},
      {R"("dump_list": [{"optype_blacklist": [1]}])", "optype_blacklist"},
      {R"("dump_list": [{"opname_blacklist": [{"name": "x", "pos": [1]}]}])", "opname_blacklist"},
      {R"("dump_list": [{"layer": ["a"], "watcher_nodes": ["b"]}])", "watcher_nodes"},
      {R"("dump_scene": "watcher")", "dump_list"},
      {R"("dump_scene": "watcher", "dump_mode": "all", "dump_list": [{"layer": ["a"], "watcher_nodes": ["b"]}])",
       "dump_mode"},
      {R"("dump_scene": "watcher", "dump_op_switch": "on", "dump_list": [{"layer": ["a"], "watcher_nodes": ["b"]}])",
       "dump_op_switch"}};
  for (const auto& [text, words] : bad) {
    ASSERT_EQ(100009, aclmdlSetDump(Config(text).c_str())) << text;
    const char* message = aclGetRecentErrMsg();
    ASSERT_NE(message, nullptr);
    EXPECT_NE(std::string(message).find(words), std::string::npos) << message;
  }
  EXPECT_EQ(nullptr, acldumpGetPath(DATA_DUMP)) << "nothing was switched on";
  EXPECT_EQ(0,
            aclmdlSetDump(Config(R"("dump_debug": "off", "dump_step": "", "quant_dumpable": true, "new": 1)").c_str()));
  MUST(aclmdlFinalizeDump());
}

TEST_F(DataDumps, ScenesOfFailuresDiffer) {
  const auto fail = [&](const std::string& scene) -> json {
    fs::remove_all(path_);
    Begin(R"("dump_scene": ")" + scene + "\"");
    void* args[] = {cell_};
    EXPECT_ACL(0, aclrtLaunchKernelWithHostArgs(fail_now_, 1, stream_, nullptr, args, sizeof args, nullptr, 0));
    EXPECT_ACL(507015, aclrtSynchronizeStream(stream_));
    EXPECT_ACL(0, aclFinalize());
    return ParseJson(ReadAll(TheFile(R"(extra-info/data-dump/0/fail_now\.fail_now\.t\.s\.T)")));
  };
  for (const char* scene : {"lite_exception", "aic_err_brief_dump"}) {
    const json brief = fail(scene);
    ASSERT_EQ(brief["tensors"].size(), 2U);
    EXPECT_FALSE(brief.contains("kernel"));
    EXPECT_FALSE(brief["tensors"][0].contains("shape"));
    EXPECT_EQ(Tree().size(), 3U);
  }
  for (const char* scene : {"exception", "aic_err_norm_dump"}) {
    const json normal = fail(scene);
    EXPECT_EQ(normal["kernel"], "fail_now");
    EXPECT_EQ(normal["error_code"], 507015);
    EXPECT_TRUE(normal["tensors"][0].contains("shape"));
    EXPECT_TRUE(normal["tensors"][0].contains("data_type"));
    EXPECT_FALSE(normal.contains("cores"));
    EXPECT_EQ(Tree().size(), 3U);
  }
  const json detailed = fail("aic_err_detail_dump");
  EXPECT_EQ(detailed["kernel"], "fail_now");
  EXPECT_TRUE(detailed.contains("cores"));
  EXPECT_EQ(Tree().size(), 4U);
  EXPECT_NE(ReadAll(TheFile(R"(.*\.maps)")).find("tools_dump"), std::string::npos);
}

// The body of the next test, in a process of its own.
TEST_F(DataDumps, DISABLED_FailsWithoutAConfiguration) {
  fs::current_path(Child::Argument());
  if (std::getenv("ASCEND_DUMP_SCENE") != nullptr && std::string(std::getenv("ASCEND_DUMP_SCENE")) == "wrong") {
    EXPECT_ACL(100009, aclInit(nullptr));
    return;
  }
  ASSERT_EQ(0, aclInit(nullptr));
  void* args[] = {cell_};
  EXPECT_ACL(0, aclrtLaunchKernelWithHostArgs(fail_now_, 1, stream_, nullptr, args, sizeof args, nullptr, 0));
  EXPECT_ACL(507015, aclrtSynchronizeStream(stream_));
}

TEST_F(DataDumps, TheEnvironmentAsksForFailures) {
  const auto run = [&](const char* scene, const char* path, const char* collect) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    ::setenv("ASCEND_DUMP_SCENE", scene, 1);
    ::setenv("ASCEND_DUMP_PATH", path, 1);
    ::setenv("NPU_COLLECT_PATH", collect, 1);
    Child("DataDumps.DISABLED_FailsWithoutAConfiguration", path_.string()).Join();
    for (const char* variable : {"ASCEND_DUMP_SCENE", "ASCEND_DUMP_PATH", "NPU_COLLECT_PATH"}) ::unsetenv(variable);
    return Tree();
  };
  const auto find = [](const std::map<std::string, fs::path>& tree, const std::string& folder) {
    for (const auto& [name, path] : tree) {
      const bool is_description =
          name.ends_with(".T") && name.rfind(folder + "extra-info/data-dump/0/fail_now.", 0) == 0;
      if (is_description) return ParseJson(ReadAll(path));
    }
    ADD_FAILURE() << "no description below " << folder << " in " << ::testing::PrintToString(NamesOf(tree));
    return json();
  };
  EXPECT_TRUE(run("", "", "").empty());
  EXPECT_TRUE(run("wrong", "", "").empty());
  EXPECT_FALSE(find(run("aic_err_brief_dump", "there", "elsewhere"), "there/").contains("kernel"));
  EXPECT_TRUE(find(run("aic_err_detail_dump", "", "elsewhere"), "").contains("cores"));
  EXPECT_TRUE(find(run("", "there", "elsewhere"), "elsewhere/").contains("kernel"));
}

}  // namespace
}  // namespace reprise::testing
