// SPDX-License-Identifier: Apache-2.0
#include <acl/acl_dump.h>
#include <aclnn/acl_meta.h>
#include <aclnnop/aclnn_add.h>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "base/fault.h"
#include "kernels.h"
#include "scale.h"
#include "support/json.h"

namespace reprise::testing {
namespace {

std::vector<json> Lines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(ParseJson(line));
    EXPECT_FALSE(lines.back().is_discarded()) << line;
  }
  return lines;
}

std::string HexOf(const void* data, size_t bytes) {
  std::string out;
  for (size_t i = 0; i < bytes; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<const unsigned char*>(data)[i]);
    out += digits;
  }
  return out;
}

// What the callback of acldumpRegCallback got.
struct Received {
  std::mutex mutex;
  std::map<std::string, std::string> files;
  std::set<std::string> ended;
  int bad = 0;
  int32_t answer = 0;
  std::function<void()> also;
};
Received* g_received = nullptr;

int32_t Receive(const acldumpChunk* chunk, int32_t bytes) {
  Received& all = *g_received;
  if (all.also) all.also();
  std::lock_guard lock(all.mutex);
  std::string& file = all.files[chunk->fileName];
  if (static_cast<size_t>(bytes) < chunk->bufLen || chunk->flag != 0 || all.ended.contains(chunk->fileName)) ++all.bad;
  if (static_cast<size_t>(chunk->offset) != file.size()) ++all.bad;
  file.append(reinterpret_cast<const char*>(chunk->dataBuf), chunk->bufLen);
  if (chunk->isLastChunk != 0) all.ended.insert(chunk->fileName);
  return all.answer;
}

class Dumps : public Tools {
 protected:
  void SetUp() override {
    Tools::SetUp();
    g_received = &received_;
    here_ = std::filesystem::current_path();
    std::filesystem::current_path(folder_);  // what has no folder lands here
    args_ = (folder_ / "args" / "below").string();
  }
  void TearDown() override {
    (void)aclopStopDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS);
    (void)aclmdlFinalizeDump();
    acldumpUnregCallback();
    std::filesystem::current_path(here_);
    Tools::TearDown();
  }
  std::vector<json> ArgsLines() {
    const auto files = FilesIn(args_);
    EXPECT_EQ(files.size(), 1U);
    return Lines(files.empty() ? "" : ReadAll(files.back()));
  }
  // Of the data dump: a description for each kernel.
  size_t DumpedFiles() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(args_)) count += entry.is_regular_file();
    return count;
  }
  std::string Config(const std::string& text) {
    const std::string file = (folder_ / "dump.json").string();
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }
  std::string GoodConfig() const { return R"({"dump": {"dump_path": ")" + args_ + R"("}})"; }

  Received received_;
  std::filesystem::path here_;
  std::string args_;
};

TEST_F(Dumps, ArgumentsOfLaunchesAreWritten) {
  const aclrtStream stream = NewStream();
  Launch(count_up_, stream);
  EXPECT_ACL(0, aclopStartDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS, args_.c_str()));
  Launch(count_twice_, stream);
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  Launch(count_up_, stream);
  MUST(aclmdlRICaptureEnd(stream, &model));
  for (int i = 0; i < 3; ++i) MUST(aclmdlRIExecuteAsync(model, stream));
  // Arguments that are read when the kernel runs are not read at the launch.
  uint64_t* const block = cell_ + 8;
  *block = reinterpret_cast<uint64_t>(cell_);
  MUST(aclrtLaunchKernel(count_up_, 2, block, 64, stream));
  const char odd[11] = "0123456789";
  MUST(aclrtLaunchKernelWithHostArgs(fail_now_, 1, stream, nullptr, const_cast<char*>(odd), sizeof odd, nullptr, 0));
  EXPECT_ACL(0, aclopStopDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS));
  Launch(count_up_, stream);
  (void)aclrtSynchronizeStream(stream);
  const auto lines = ArgsLines();
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0]["name"], "count_twice");
  EXPECT_EQ(lines[0]["args"], HexOf(&cell_, sizeof cell_));
  EXPECT_EQ(lines[0]["stream"], IdOf(stream));
  EXPECT_EQ(lines[0]["captured"], false);
  EXPECT_EQ(lines[1]["name"], "count_up");
  EXPECT_EQ(lines[1]["captured"], true);
  EXPECT_EQ(lines[2]["blocks"], 2);
  EXPECT_EQ(lines[2]["args_bytes"], 64);
  EXPECT_FALSE(lines[2].contains("args"));
  EXPECT_EQ(std::stoull(lines[2]["args_address"].get<std::string>(), nullptr, 16), reinterpret_cast<uintptr_t>(block));
  EXPECT_EQ(lines[3]["args"], HexOf(odd, sizeof odd));
  MUST(aclmdlRIDestroy(model));
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Dumps, OperatorsShowTheirTensors) {
  const int64_t dims[] = {4}, strides[] = {1};
  auto* data = static_cast<float*>(NewMemory(256));
  const auto tensor = [&](float* at) {
    return aclCreateTensor(dims, 1, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, dims, 1, at);
  };
  aclTensor *a = tensor(data), *b = tensor(data + 16), *out = tensor(data + 32);
  float one = 1;
  aclScalar* alpha = aclCreateScalar(&one, ACL_FLOAT);
  uint64_t workspace = 0;
  aclOpExecutor* executor = nullptr;
  ASSERT_EQ(0, aclnnAddGetWorkspaceSize(a, b, alpha, out, &workspace, &executor));
  ASSERT_EQ(workspace, 0U);
  EXPECT_ACL(0, aclopStartDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS, args_.c_str()));
  EXPECT_EQ(0, aclnnAdd(nullptr, 0, executor, nullptr));
  EXPECT_ACL(0, aclopStopDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS));
  MUST(aclrtSynchronizeStream(nullptr));
  const auto lines = ArgsLines();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["name"], "Add");
  ASSERT_EQ(lines[0]["tensors"].size(), 3U);
  int written = 0;
  for (const json& one_tensor : lines[0]["tensors"]) {
    EXPECT_EQ(one_tensor["bytes"], 16);
    if (one_tensor["written"] != true) continue;
    ++written;
    EXPECT_EQ(std::stoull(one_tensor["address"].get<std::string>(), nullptr, 16),
              reinterpret_cast<uintptr_t>(data + 32));
  }
  EXPECT_EQ(written, 1);
  for (aclTensor* t : {a, b, out}) EXPECT_EQ(0, aclDestroyTensor(t));
  EXPECT_EQ(0, aclDestroyScalar(alpha));
}

TEST_F(Dumps, TheCallbackGetsPiecesInsteadOfFiles) {
  const aclrtStream stream = NewStream();
  received_.also = [&] { Launch(count_up_, stream); };  // not dumped, and no endless loop
  EXPECT_ACL(0, acldumpRegCallback(Receive, 0));
  EXPECT_ACL(0, aclopStartDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS, args_.c_str()));
  for (int i = 0; i < 5; ++i) Launch(count_twice_, stream);
  EXPECT_ACL(0, aclopStopDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS));
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_EQ(*cell_, 11U) << "five and one for each piece";
  EXPECT_TRUE(FilesIn(args_).empty());
  ASSERT_EQ(received_.files.size(), 1U);
  EXPECT_EQ(Lines(received_.files.begin()->second).size(), 5U);
  EXPECT_TRUE(received_.ended.contains(received_.files.begin()->first));
  EXPECT_EQ(received_.bad, 0);
  received_.also = nullptr;
  acldumpUnregCallback();
  EXPECT_ACL(0, aclopStartDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS, args_.c_str()));
  Launch(count_twice_, stream);
  EXPECT_ACL(0, aclopStopDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS));
  EXPECT_EQ(ArgsLines().size(), 1U);
  EXPECT_EQ(received_.files.size(), 1U);
  MUST(aclrtSynchronizeStream(stream));
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Dumps, TheCallbackMayEndEverything) {
  const aclrtStream stream = NewStream();
  received_.also = [&] {
    acldumpUnregCallback();
    (void)aclopStopDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS);
  };
  EXPECT_ACL(0, acldumpRegCallback(Receive, 0));
  EXPECT_ACL(0, aclopStartDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS, args_.c_str()));
  Launch(count_twice_, stream);
  EXPECT_ACL(100045, aclopStopDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS));
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_EQ(*cell_, 1U);
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Dumps, WhatCannotBeWrittenIsToldAtTheEnd) {
  const aclrtStream stream = NewStream();
  received_.answer = 1;
  EXPECT_ACL(0, acldumpRegCallback(Receive, 0));
  EXPECT_ACL(0, aclopStartDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS, args_.c_str()));
  Launch(count_twice_, stream);
  EXPECT_ACL(100004, aclopStopDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS));
  EXPECT_ACL(100045, aclopStopDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS));
  EXPECT_ACL(0, acldumpRegCallback(nullptr, 0));
  EXPECT_ACL(0, aclopStartDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS, args_.c_str()));
  std::filesystem::remove_all(args_);
  Launch(count_twice_, stream);
  EXPECT_ACL(0, aclrtSynchronizeStream(stream));
  EXPECT_ACL(100004, aclopStopDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS));
  EXPECT_EQ(*cell_, 2U) << "the launches themselves go on";
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Dumps, AFailingFile) {
  const aclrtStream stream = NewStream();
  EXPECT_ACL(0, aclopStartDumpArgs(1, args_.c_str()));
  ArmFault("dump.file", 1);
  Launch(count_up_, stream);
  Launch(count_twice_, stream);
  EXPECT_ACL(100004, aclopStopDumpArgs(1));
  EXPECT_EQ(ArgsLines().size(), 1U) << "the second launch could be written";
  ArmFault("dump.file", 1);
  EXPECT_ACL(100004, acldumpSaveExceptionInfo("x", nullptr, nullptr, 0));
  EXPECT_ACL(0, aclrtSynchronizeStream(stream));
  EXPECT_EQ(*cell_, 2U);
  MUST(aclrtDestroyStream(stream));
}

TEST_F(Dumps, ArgumentsStateRules) {
  const std::string file = (folder_ / "file").string();
  std::ofstream(file) << "x";
  EXPECT_ACL(100045, aclopStopDumpArgs(ACL_OP_DUMP_OP_AICORE_ARGS));
  EXPECT_ACL(100000, aclopStartDumpArgs(0, args_.c_str()));
  EXPECT_ACL(100000, aclopStartDumpArgs(3, args_.c_str()));
  EXPECT_ACL(100000, aclopStopDumpArgs(2));
  EXPECT_ACL(100000, aclopStartDumpArgs(1, nullptr));
  EXPECT_ACL(100000, aclopStartDumpArgs(1, ""));
  EXPECT_ACL(100000, aclopStartDumpArgs(1, std::string(5000, 'x').c_str()));
  EXPECT_ACL(100003, aclopStartDumpArgs(1, file.c_str()));
  EXPECT_ACL(0, aclopStartDumpArgs(1, args_.c_str()));
  EXPECT_ACL(100044, aclopStartDumpArgs(1, args_.c_str()));
  EXPECT_ACL(0, aclopStopDumpArgs(1));
  EXPECT_ACL(100045, aclopStopDumpArgs(1));
  EXPECT_ACL(100000, acldumpRegCallback(Receive, 1));
  EXPECT_ACL(0, acldumpRegCallback(Receive, 0));
  EXPECT_ACL(0, acldumpRegCallback(Receive, 0));
}

TEST_F(Dumps, Paths) {
  EXPECT_EQ(nullptr, acldumpGetPath(DATA_DUMP));
  EXPECT_EQ(nullptr, acldumpGetPath(OVERFLOW_DUMP));
  EXPECT_STREQ(acldumpGetPath(AIC_ERR_BRIEF_DUMP), "./extra-info/data-dump");
  DropMessage();
  EXPECT_EQ(nullptr, acldumpGetPath(static_cast<acldumpType>(0)));
  EXPECT_NE(nullptr, aclGetRecentErrMsg());
  EXPECT_EQ(nullptr, acldumpGetPath(static_cast<acldumpType>(6)));
  EXPECT_ACL(0, aclopStartDumpArgs(1, args_.c_str()));
  const char* path = acldumpGetPath(DATA_DUMP);
  EXPECT_EQ(path, args_);
  EXPECT_EQ(path, acldumpGetPath(DATA_DUMP)) << "the address stays";
  EXPECT_ACL(0, aclopStopDumpArgs(1));
  EXPECT_EQ(nullptr, acldumpGetPath(DATA_DUMP));
  EXPECT_EQ(path, args_);
  char text[ACL_DUMP_MAX_FILE_PATH_LENGTH];
  EXPECT_ACL(0, acldumpGetExceptionInfoPath(text, sizeof text));
  EXPECT_STREQ(text, "./extra-info/data-dump");
  EXPECT_ACL(0, acldumpGetExceptionInfoPath(text, std::strlen(text) + 1));
  EXPECT_ACL(100000, acldumpGetExceptionInfoPath(text, std::strlen(text)));
  EXPECT_ACL(100000, acldumpGetExceptionInfoPath(text, 0));
  EXPECT_ACL(100000, acldumpGetExceptionInfoPath(nullptr, 100));
}

acldumpTensorInfo TensorAt(void* address, size_t bytes) {
  acldumpTensorInfo info{};
  info.type = ACL_DUMP_TENSOR_INPUT;
  info.tensorSize = bytes;
  info.format = ACL_FORMAT_ND;
  info.dataType = ACL_FLOAT;
  info.tensorAddr = static_cast<int64_t*>(address);
  info.addrType = ACL_DUMP_ADDR_PTR;
  info.placement = ACL_DUMP_PLACEMENT_DEVICE;
  info.shapeNum = 2;
  info.shape[0] = 2;
  info.shape[1] = 3;
  return info;
}

TEST_F(Dumps, TensorsOfFailedOperatorsAreSaved) {
  constexpr size_t kPage = 4096;
  std::vector<char> large(600'000);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7);
  // Two pages and a hole behind them.
  auto* edge =
      static_cast<char*>(::mmap(nullptr, 4 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(edge, MAP_FAILED);
  ASSERT_EQ(0, ::munmap(edge + 2 * kPage, 2 * kPage));
  std::memset(edge, 'e', 2 * kPage);
  void* pointer = large.data();
  std::vector<acldumpTensorInfo> tensors = {
      TensorAt(large.data(), large.size()),     TensorAt(&pointer, 100), TensorAt(edge + 10, size_t{1} << 60),
      TensorAt(reinterpret_cast<void*>(8), 64), TensorAt(nullptr, 64),   TensorAt(large.data(), 0)};
  tensors[1].addrType = ACL_DUMP_ADDR_PTR_PTR;
  tensors[1].type = ACL_DUMP_TENSOR_OUTPUT;
  EXPECT_ACL(0, acldumpSaveExceptionInfo("failed_op", "a \"tag\"", tensors.data(), tensors.size()));
  const std::filesystem::path folder = folder_ / "extra-info" / "data-dump";
  const json saved = ParseJson(ReadAll(folder / "failed_op"));
  ASSERT_FALSE(saved.is_discarded());
  EXPECT_EQ(saved["tag"], "a \"tag\"");
  ASSERT_EQ(saved["tensors"].size(), tensors.size());
  EXPECT_EQ(saved["tensors"][0]["shape"], json({2, 3}));
  EXPECT_EQ(ReadAll(folder / "failed_op.0.bin"), std::string(large.data(), large.size()));
  EXPECT_EQ(saved["tensors"][1]["type"], ACL_DUMP_TENSOR_OUTPUT);
  EXPECT_EQ(ReadAll(folder / "failed_op.1.bin"), std::string(large.data(), 100));
  EXPECT_EQ(saved["tensors"][2]["saved_bytes"], 2 * kPage - 10);
  EXPECT_EQ(ReadAll(folder / "failed_op.2.bin"), std::string(2 * kPage - 10, 'e'));
  for (int i : {3, 4, 5}) {
    EXPECT_EQ(saved["tensors"][i]["saved_bytes"], 0) << i;
    EXPECT_FALSE(saved["tensors"][i].contains("file")) << i;
  }
  EXPECT_EQ(FilesIn(folder).size(), 4U);
  EXPECT_ACL(0, acldumpSaveExceptionInfo("nothing", nullptr, nullptr, 0));
  // The same in pieces.
  EXPECT_ACL(0, acldumpRegCallback(Receive, 0));
  EXPECT_ACL(0, acldumpSaveExceptionInfo("sent", nullptr, tensors.data(), 1));
  EXPECT_EQ(received_.bad, 0);
  EXPECT_EQ(received_.files["./extra-info/data-dump/sent.0.bin"], std::string(large.data(), large.size()));
  EXPECT_EQ(received_.ended.size(), 2U);
  received_.answer = -1;
  EXPECT_ACL(100004, acldumpSaveExceptionInfo("refused", nullptr, tensors.data(), 1));
  ASSERT_EQ(0, ::munmap(edge, 2 * kPage));
}

TEST_F(Dumps, WrongExceptionInfo) {
  acldumpTensorInfo tensor = TensorAt(cell_, 8);
  for (const char* name : {"", ".", "..", "/etc/passwd", "a/b", "../up"}) {
    EXPECT_ACL(100000, acldumpSaveExceptionInfo(name, nullptr, &tensor, 1));
  }
  EXPECT_ACL(100000, acldumpSaveExceptionInfo(std::string(1000, 'x').c_str(), nullptr, &tensor, 1));
  EXPECT_ACL(100000, acldumpSaveExceptionInfo(nullptr, nullptr, &tensor, 1));
  EXPECT_ACL(100000, acldumpSaveExceptionInfo("x", nullptr, nullptr, 1));
  EXPECT_ACL(100000, acldumpSaveExceptionInfo("x", nullptr, &tensor, SIZE_MAX));
  EXPECT_ACL(100000, acldumpSaveExceptionInfo("x", nullptr, reinterpret_cast<acldumpTensorInfo*>(64), 1));
  const auto with = [&](auto change) {
    acldumpTensorInfo changed = tensor;
    change(changed);
    return changed;
  };
  for (const acldumpTensorInfo& bad : {with([](auto& t) { t.shapeNum = ACL_DUMP_MAX_SHAPE_NUM + 1; }),
                                       with([](auto& t) { t.originShapeNum = UINT32_MAX; }),
                                       with([](auto& t) { t.type = static_cast<acldumpTensorType>(3); }),
                                       with([](auto& t) { t.addrType = static_cast<acldumpTensorAddressType>(-1); }),
                                       with([](auto& t) { t.placement = ACL_DUMP_PLACEMENT_END; })}) {
    EXPECT_ACL(100000, acldumpSaveExceptionInfo("x", nullptr, &bad, 1));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "extra-info")) << "nothing was written";
}

TEST_F(Dumps, TheConfiguredDump) {
  const aclrtStream stream = NewStream();
  const std::string config = Config(GoodConfig());
  EXPECT_ACL(100045, aclmdlSetDump(config.c_str()));
  EXPECT_ACL(100045, aclmdlFinalizeDump());
  EXPECT_ACL(0, aclmdlInitDump());
  EXPECT_ACL(100044, aclmdlInitDump());
  EXPECT_ACL(100000, aclmdlSetDump(nullptr));
  EXPECT_ACL(0, aclmdlSetDump(config.c_str()));
  EXPECT_EQ(acldumpGetPath(DATA_DUMP), args_);
  EXPECT_EQ(acldumpGetPath(AIC_ERR_NORM_DUMP), args_);
  Launch(count_up_, stream);
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_ACL(0, aclmdlFinalizeDump());
  Launch(count_up_, stream);
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_EQ(DumpedFiles(), 1U);
  EXPECT_EQ(nullptr, acldumpGetPath(DATA_DUMP));
  EXPECT_ACL(100045, aclmdlFinalizeDump());
  EXPECT_ACL(100045, aclmdlSetDump(config.c_str()));
  // Both ways of asking at once: each has its file.
  EXPECT_ACL(0, aclmdlInitDump());
  EXPECT_ACL(0, aclmdlSetDump(config.c_str()));
  EXPECT_ACL(0, aclmdlSetDump(config.c_str()));
  EXPECT_ACL(0, aclopStartDumpArgs(1, (folder_ / "other").c_str()));
  Launch(count_up_, stream);
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_ACL(0, aclmdlFinalizeDump());
  Launch(count_up_, stream);
  EXPECT_ACL(0, aclopStopDumpArgs(1));
  EXPECT_EQ(DumpedFiles(), 2U);
  ASSERT_EQ(FilesIn(folder_ / "other").size(), 1U);
  EXPECT_EQ(Lines(ReadAll(FilesIn(folder_ / "other")[0])).size(), 2U);
  MUST(aclrtSynchronizeStream(stream));
  MUST(aclrtDestroyStream(stream));
}

// ---- The file of aclInit ----

class DumpOfFile : public Dumps {
 protected:
  void TearDown() override {
    (void)aclFinalize();
    Dumps::TearDown();
  }
  // What the launch of a failing kernel with `args` leaves.
  void FailWith(const void* args, size_t bytes, aclrtStream stream) {
    std::string copy(static_cast<const char*>(args), bytes);
    MUST(aclrtLaunchKernelWithHostArgs(fail_now_, 1, stream, nullptr, copy.data(), bytes, nullptr, 0));
    EXPECT_ACL(507015, aclrtSynchronizeStream(stream));
  }
};

TEST_F(DumpOfFile, DataIsWrittenFromInitToFinalize) {
  const aclrtStream stream = NewStream();
  EXPECT_ACL(0, aclInit(Config(GoodConfig()).c_str()));
  EXPECT_EQ(acldumpGetPath(DATA_DUMP), args_);
  Launch(count_up_, stream);
  // Only the file configures now.
  EXPECT_ACL(100044, aclmdlInitDump());
  EXPECT_ACL(100045, aclmdlSetDump(Config(GoodConfig()).c_str()));
  EXPECT_ACL(100045, aclmdlFinalizeDump());
  Launch(count_twice_, stream);
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_ACL(0, aclFinalize());
  Launch(count_up_, stream);
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_EQ(DumpedFiles(), 2U);
  EXPECT_EQ(nullptr, acldumpGetPath(DATA_DUMP));
  // And the calls again afterwards, or instead.
  EXPECT_ACL(0, aclmdlInitDump());
  EXPECT_ACL(100044, aclInit(Config(GoodConfig()).c_str()));
  EXPECT_ACL(100037, aclFinalize()) << "a refused aclInit takes no reference";
  EXPECT_ACL(0, aclmdlFinalizeDump());
  EXPECT_ACL(0, aclInit(Config(R"({"dump": {}})").c_str())) << "nothing is asked for";
  EXPECT_ACL(0, aclmdlInitDump());
  EXPECT_ACL(0, aclmdlFinalizeDump());
  MUST(aclrtDestroyStream(stream));
}

TEST_F(DumpOfFile, FailedTasksAreSavedInTheDocumentedFolder) {
  const aclrtStream stream = NewStream();
  const std::string config =
      Config(R"({"dump": {"dump_scene": "aic_err_brief_dump", "dump_path": ")" + args_ + R"("}})");
  EXPECT_ACL(0, aclInit(config.c_str()));
  const std::filesystem::path folder = std::filesystem::path(args_) / "extra-info" / "data-dump" / "0";
  EXPECT_EQ(acldumpGetPath(AIC_ERR_BRIEF_DUMP), folder.string());
  EXPECT_EQ(nullptr, acldumpGetPath(DATA_DUMP)) << "only what fails is written";
  Launch(count_up_, stream);
  MUST(aclrtSynchronizeStream(stream));
  EXPECT_FALSE(std::filesystem::exists(folder));
  std::memset(cell_, 0x5A, 64);
  const uint64_t args[3] = {reinterpret_cast<uint64_t>(cell_ + 1), 77, 0};
  FailWith(args, sizeof args, stream);
  // <kernel>.<kernel>.<task>.<stream>.<time>, and the data beside it.
  auto files = FilesIn(folder);
  ASSERT_EQ(files.size(), 3U);
  std::sort(files.begin(), files.end());
  const std::string name = files[0].filename().string();
  EXPECT_EQ(name.rfind("fail_now.fail_now.", 0), 0U) << name;
  EXPECT_NE(name.find("." + std::to_string(IdOf(stream)) + "."), std::string::npos) << name;
  const json saved = ParseJson(ReadAll(files[0]));
  ASSERT_FALSE(saved.is_discarded());
  EXPECT_NE(saved["tag"].get<std::string>().find("507015 in kernel fail_now"), std::string::npos) << saved["tag"];
  ASSERT_EQ(saved["tensors"].size(), 2U) << "the block, and the memory behind its first word";
  EXPECT_EQ(ReadAll(files[1]), std::string(reinterpret_cast<const char*>(args), sizeof args));
  const std::string data = ReadAll(files[2]);
  EXPECT_GE(data.size(), 4096U - 8);
  EXPECT_EQ(data.substr(0, 56), std::string(56, '\x5A'));
  // The callback gets all of it in pieces instead.
  EXPECT_ACL(0, acldumpRegCallback(Receive, 0));
  FailWith(args, sizeof args, stream);
  EXPECT_EQ(FilesIn(folder).size(), 3U);
  {
    std::lock_guard lock(received_.mutex);
    EXPECT_EQ(received_.files.size(), 3U);
    EXPECT_EQ(received_.ended.size(), 3U);
    EXPECT_EQ(received_.bad, 0);
    EXPECT_EQ(received_.files.begin()->first.rfind(folder.string(), 0), 0U) << received_.files.begin()->first;
  }
  acldumpUnregCallback();
  EXPECT_ACL(0, aclFinalize());
  FailWith(args, sizeof args, stream);
  EXPECT_EQ(FilesIn(folder).size(), 3U);
  // Without a path: where NPU_COLLECT_PATH and others say, at last here.
  EXPECT_ACL(0, aclInit(Config(R"({"dump": {"dump_scene": "lite_exception"}})").c_str()));
  FailWith(args, sizeof args, stream);
  EXPECT_EQ(FilesIn(folder_ / "extra-info" / "data-dump" / "0").size(), 3U);
  MUST(aclrtDestroyStream(stream));
}

TEST_F(DumpOfFile, BadSectionsAreRefused) {
  for (const char* bad : {R"({"dump": 1})", R"({"dump": {"dump_path": ""}})", R"({"dump": {"dump_mode": "all"}})",
                          R"({"dump": {"dump_scene": "everything"}})", R"({"dump": {"dump_scene": 1}})",
                          R"({"dump": {"dump_scene": "lite_exception", "dump_path": 1}})",
                          R"({"dump": {"dump_path": "/proc/no/such"}})"}) {
    EXPECT_ACL(100009, aclInit(Config(bad).c_str())) << bad;
  }
  EXPECT_ACL(100037, aclFinalize());
  EXPECT_ACL(0, aclmdlInitDump()) << "nothing was begun";
  EXPECT_ACL(0, aclmdlFinalizeDump());
}

// ---- Where functions are looked up ----

// Of the folder where the others are: sanitizers open libraries in the program's stead, without its search path.
void* OpenLibrary(const std::string& name) {
  Dl_info place{};
  if (::dladdr(reinterpret_cast<const void*>(&aclInit), &place) == 0) return nullptr;
  return ::dlopen((std::filesystem::path(place.dli_fname).parent_path() / name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

TEST(Libraries, HoldTheNamesThatProgramsLookUpThere) {
  const std::map<const char*, std::vector<const char*>> names = {
      {"libacl_op_compiler.so",
       {"aclopCompileAndExecute", "aclopStartDumpArgs", "aclopStopDumpArgs", "aclrtCtxSetSysParamOpt",
        "aclrtGetSysParamOpt", "aclrtSetSysParamOpt"}},
      {"libascendcl.so",
       {"aclInit", "aclopStartDumpArgs", "aclopStopDumpArgs", "aclprofCreateConfig", "aclprofCreateStepInfo",
        "aclprofDestroyConfig", "aclprofDestroyStepInfo", "aclprofFinalize", "aclprofGetStepTimestamp", "aclprofInit",
        "aclprofStart", "aclprofStop", "aclrtGetSysParamOpt"}},
      {"libmsprofiler.so",
       {"aclprofGetSupportedFeatures", "aclprofGetSupportedFeaturesV2", "aclprofInit", "aclprofMarkEx",
        "aclprofRegisterDeviceCallback", "aclprofSetConfig", "aclprofWarmup"}},
      {"libms_tools_ext.so",
       {"mstxMemHeapRegister", "mstxMemHeapUnregister", "mstxMemRegionsRegister", "mstxMemRegionsUnregister"}},
      {"libascend_dump.so", {"aclopStartDumpArgs", "acldumpRegCallback"}}};
  for (const auto& [library, functions] : names) {
    void* const handle = OpenLibrary(library);
    ASSERT_NE(handle, nullptr) << ::dlerror();
    for (const char* function : functions) EXPECT_NE(::dlsym(handle, function), nullptr) << library << ": " << function;
    ::dlclose(handle);
  }
  // What one library makes, the other one knows.
  void* const ascendcl = OpenLibrary("libascendcl.so");
  void* const profiler = OpenLibrary("libmsprofiler.so");
  ASSERT_TRUE(ascendcl != nullptr && profiler != nullptr);
  using Create = void* (*)(int8_t, int, void*);
  using Destroy = int (*)(const void*);
  auto* const create = reinterpret_cast<Create>(::dlsym(ascendcl, "aclprofCreateSubscribeConfig"));
  auto* const destroy = reinterpret_cast<Destroy>(::dlsym(profiler, "aclprofDestroySubscribeConfig"));
  ASSERT_TRUE(create != nullptr && destroy != nullptr);
  int out[2] = {};
  void* const made = create(1, 0xFF, &out[1]);
  if (made != nullptr) {
    EXPECT_EQ(0, destroy(made));
    EXPECT_NE(0, destroy(made));
  }
  ::dlclose(ascendcl);
  ::dlclose(profiler);
}

TEST_F(Dumps, BadConfigurationsAreRefused) {
  EXPECT_ACL(0, aclmdlInitDump());
  const std::string path = R"("dump_path": ")" + args_ + R"(")";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "line 1"},
      {"{", "line 1"},
      {"{\n\"dump\": {\n\"dump_path\" \"x\"}}", "line 3"},
      {"[]", "key dump"},
      {"1", "key dump"},
      {"{}", "key dump"},
      {R"({"dump": []})", "key dump"},
      {R"({"dump": {}})", "key dump.dump_path"},
      {R"({"dump": {"dump_path": 1}})", "key dump.dump_path"},
      {R"({"dump": {"dump_path": ""}})", "key dump.dump_path"},
      {R"({"dump": {"dump_path": "a\u0000b"}})", "key dump.dump_path"},
      {R"({"dump": {"dump_path": "/proc/no/such"}})", "key dump.dump_path"},
      {R"({"dump": {"dump_path": ")" + std::string(5000, 'x') + R"("}})", "key dump.dump_path"},
      {R"({"dump": {)" + path + R"(, "dump_mode": "some"}})", "key dump.dump_mode"},
      {R"({"dump": {)" + path + R"(, "dump_mode": 1}})", "key dump.dump_mode"},
      {R"({"dump": {)" + path + R"(, "dump_list": {}}})", "key dump.dump_list"},
      {R"({"dump": {)" + path + R"(, "dump_list": [1]}})", "key dump.dump_list"},
      {R"({"dump": {)" + path + R"(, "dump_list": [{"model_name": 1}]}})", "model_name"},
      {R"({"dump": {)" + path + R"(, "dump_list": [{"layer": [1]}]}})", "layer"},
      {std::string(100'000, '['), "nested"},
      {std::string("\0\xFF\xFE", 3), "line 1"}};
  for (const auto& [text, words] : bad) {
    const std::string config = Config(text);
    ASSERT_EQ(100009, aclmdlSetDump(config.c_str())) << text.substr(0, 100);
    const char* message = aclGetRecentErrMsg();
    ASSERT_NE(nullptr, message);
    EXPECT_NE(std::string(message).find(words), std::string::npos) << message;
    EXPECT_NE(std::string(message).find(config), std::string::npos) << message;
  }
  EXPECT_ACL(100009, aclmdlSetDump("/no/such/file"));
  EXPECT_ACL(100009, aclmdlSetDump(""));
  EXPECT_ACL(100009, aclmdlSetDump(folder_.c_str()));
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(0, ::mkfifo(pipe.c_str(), 0600));
  EXPECT_ACL(100009, aclmdlSetDump(pipe.c_str()));
  EXPECT_ACL(100009, aclmdlSetDump(Config(std::string(2 << 20, ' ')).c_str()));
  EXPECT_EQ(nullptr, acldumpGetPath(DATA_DUMP)) << "nothing was switched on";
  for (const std::string& good :
       {R"({"dump": {)" + path + R"(, "dump_mode": "input", "dump_list": [], "dump_step": "1|2"}, "profiler": {}})",
        R"({"dump": {)" + path +
            R"(, "dump_mode": "all", "dump_list": [{"model_name": "m", "layer": ["a", "b"]}, {}]}})"}) {
    EXPECT_ACL(0, aclmdlSetDump(Config(good).c_str()));
  }
  EXPECT_ACL(0, aclmdlFinalizeDump());
}

TEST_F(Dumps, RandomConfigurationsAreTakenOrRefused) {
  EXPECT_ACL(0, aclmdlInitDump());
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string good =
      R"({"dump":{"dump_path":"d","dump_list":[{"model_name":"m","layer":["a"]}],"dump_mode":"all","x":[1,2.5e3,null]}})";
  constexpr char kSyntax[] = "{}[]\",:\\0eE-.\n\0\xFFu";
  int taken = 0;
  for (int i = 0; i < Loops(600, 100); ++i) {
    std::string text = good;
    for (unsigned changes = random() % 4; changes != 0; --changes) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, 1 + random() % 8); break;
        case 2: text.insert(at, 1 + random() % 40, kSyntax[random() % (sizeof kSyntax - 1)]); break;
        default: text.insert(at, text.substr(random() % text.size(), random() % 30));
      }
      std::replace(text.begin(), text.end(), '/', '|');  // nothing outside of the folder
      if (text.empty()) text = " ";
    }
    DropMessage();
    const int result = aclmdlSetDump(Config(text).c_str());
    ASSERT_TRUE(result == 0 || result == 100009) << result << " for\n" << text;
    EXPECT_EQ(result == 0, aclGetRecentErrMsg() == nullptr);
    taken += result == 0 ? 1 : 0;
  }
  EXPECT_GT(taken, 0);
  EXPECT_ACL(0, aclmdlFinalizeDump());
}

TEST_F(Dumps, LaunchesOfManyThreadsAreWholeLines) {
  EXPECT_ACL(0, aclopStartDumpArgs(1, args_.c_str()));
  constexpr int kThreads = 4;
  const int launches = Loops(300, 50);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      EXPECT_EQ(0, aclrtSetDevice(0));
      const aclrtStream stream = NewStream();
      auto* cell = static_cast<uint64_t*>(NewMemory(64));
      for (int i = 0; i < launches; ++i) {
        void* args[] = {cell};
        EXPECT_EQ(0, aclrtLaunchKernelWithHostArgs(count_up_, 1, stream, nullptr, args, sizeof args, nullptr, 0));
      }
      EXPECT_EQ(0, aclrtSynchronizeStream(stream));
      EXPECT_EQ(0, aclrtDestroyStream(stream));
      EXPECT_EQ(0, aclrtFree(cell));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_ACL(0, aclopStopDumpArgs(1));
  EXPECT_EQ(ArgsLines().size(), static_cast<size_t>(kThreads * launches));
}

}  // namespace
}  // namespace reprise::testing
