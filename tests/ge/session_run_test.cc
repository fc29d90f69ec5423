// SPDX-License-Identifier: Apache-2.0
//
// Graphs of sessions that run: memory, results, streams, callbacks, caches.
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>

#include "../unit/product_generator.h"
#include "engine_fixture.h"
#include "support/json.h"

namespace reprise::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(EngineTest, GE_022_030_CompileLoadExecute) {
  AddCompiled(1, kAddText);
  const Summary summary = (*session_->Compiled(1))->summary();
  EXPECT_TRUE(summary.is_static);
  EXPECT_THAT(summary.output_shapes, ElementsAre(ElementsAre(4)));
  EXPECT_THAT(summary.output_types, ElementsAre(0));
  ASSERT_EQ(Text(session_->LoadGraph(1, {}, stream_)), "");
  const std::vector<InputTensor> inputs{OnDevice({1, 2, 3, 4}, {4})};
  std::vector<OutputTensor> outputs(1);
  outputs[0] = {Block(64), 16, -1, {}, nullptr};
  void* const own = outputs[0].data;
  ASSERT_EQ(Text(session_->Execute(1, stream_, inputs, outputs)), "");
  Sync();
  EXPECT_EQ(outputs[0].data, own);
  EXPECT_THAT(outputs[0].shape, ElementsAre(4));
  EXPECT_THAT(Floats(outputs[0].data, 16), ElementsAre(2, 8, 18, 32));
  auto timeline = session_->Timeline(1);  // GE-049
  ASSERT_TRUE(timeline.ok());
  const auto events = reprise::testing::ParseJson(*timeline);
  ASSERT_TRUE(events.is_array());
  EXPECT_FALSE(events.empty());
}

TEST_F(EngineTest, GE_034_RunGraphCompilesAndWaits) {
  ASSERT_EQ(Add(1, kAddText).code(), 0);
  std::vector<float> x{1, 2, 3, 4};
  const std::vector<InputTensor> inputs{OnHost(x, {4})};
  for (int i = 0; i < 2; ++i) {
    std::vector<HostTensor> outputs;
    ASSERT_EQ(Text(session_->RunAndWait(1, inputs, outputs)), "");
    EXPECT_THAT(Floats(outputs[0]), ElementsAre(2, 8, 18, 32));
    EXPECT_THAT(outputs[0].shape, ElementsAre(4));
  }
}

TEST_F(EngineTest, GE_035_038_OutputsComeFromTheAllocatorOfTheStream) {
  AddCompiled(1, kAddText);
  const auto allocator = std::make_shared<CountingAllocator>();
  ASSERT_EQ(session_->RegisterAllocator(stream_, allocator).code(), 0);
  const std::vector<InputTensor> inputs{OnDevice({1, 2, 3, 4}, {4})};
  std::vector<OutputTensor> outputs;
  ASSERT_EQ(Text(session_->RunOnStream(1, stream_, inputs, outputs)), "");
  Sync();
  EXPECT_TRUE(allocator->live.contains(outputs[0].data));
  EXPECT_THAT(Floats(outputs[0].data, outputs[0].bytes), ElementsAre(2, 8, 18, 32));
  EXPECT_EQ(session_->RemoveGraph(1).code(), 0);
  EXPECT_EQ(allocator->live.size(), 1U);  // the result is the caller's
  outputs.clear();
  EXPECT_THAT(allocator->live, IsEmpty());
  // Without an allocator it is memory of the engine's.
  ASSERT_EQ(session_->UnregisterAllocator(stream_).code(), 0);
  AddCompiled(1, kAddText);
  ASSERT_EQ(Text(session_->RunOnStream(1, stream_, inputs, outputs)), "");
  Sync();
  EXPECT_THAT(Floats(outputs[0].data, outputs[0].bytes), ElementsAre(2, 8, 18, 32));
}

TEST_F(EngineTest, GE_019_036_CallsDuringARun) {
  ASSERT_EQ(Add(1, kAddText).code(), 0);
  const auto allocator = std::make_shared<CountingAllocator>();
  ASSERT_EQ(session_->RegisterAllocator(stream_, allocator).code(), 0);
  const std::vector<InputTensor> inputs{OnDevice({1, 2, 3, 4}, {4})};
  int calls = 0;
  allocator->on_malloc = [&] {
    if (calls++ > 0) return;
    std::vector<OutputTensor> none;
    EXPECT_EQ(session_->RunOnStream(1, stream_, inputs, none).code(), kGraphAlreadyRunning);
    EXPECT_EQ(session_->CompileGraph(1).code(), kGraphAlreadyRunning);
    EXPECT_EQ(session_->LoadGraph(1, {}, stream_).code(), kGraphAlreadyRunning);
    EXPECT_EQ(session_->SetConstBase(1, &calls, 1 << 20).code(), kGraphIsRunning);
    EXPECT_EQ(session_->RemoveGraph(1).code(), 0);
    EXPECT_EQ(session_->RemoveGraph(1).code(), kGraphNotExist);
  };
  std::vector<OutputTensor> outputs;
  ASSERT_EQ(Text(session_->RunOnStream(1, stream_, inputs, outputs)), "");
  Sync();
  EXPECT_GT(calls, 0);
  EXPECT_THAT(Floats(outputs[0].data, outputs[0].bytes), ElementsAre(2, 8, 18, 32));
  outputs.clear();
  EXPECT_THAT(allocator->live, IsEmpty());
}

TEST_F(EngineTest, GE_036_037_CallbacksOfQueuedRuns) {
  ASSERT_EQ(Add(1, kAddText).code(), 0);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::vector<float>> seen;
  int failed = 0;
  int busy = 0;
  const auto input = [](float value) {
    const std::vector<float> values(4, value);
    return std::vector<HostTensor>{{0, {4}, std::string(reinterpret_cast<const char*>(values.data()), 16)}};
  };
  for (int i = 1; i <= 3; ++i) {
    ASSERT_EQ(Text(session_->RunLater(1, input(static_cast<float>(i)),
                                      [&](const Status& status, std::vector<HostTensor>& outputs) {
                                        const std::lock_guard lock(mutex);
                                        status.ok() ? seen.push_back(Floats(outputs[0])) : void(++failed);
                                        changed.notify_all();
                                      })),
              "");
  }
  EXPECT_EQ(session_->CompileGraph(1).code() == 0, false);
  ASSERT_EQ(session_
                ->RunLater(1, {},
                           [&](const Status& status, std::vector<HostTensor>& outputs) {
                             const std::lock_guard lock(mutex);
                             if (status.code() == kParamInvalid && outputs.empty()) ++failed;
                             ++busy;
                             changed.notify_all();
                           })
                .code(),
            0);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return busy == 1; });
  EXPECT_EQ(failed, 1);
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_THAT(seen[2], ElementsAre(12, 15, 18, 21));
}

TEST_F(EngineTest, GE_027_039_BasesOfTheProgram) {
  AddCompiled(1, kAddText, {{"ge.featureBaseRefreshable", "1"}});
  const Summary summary = (*session_->Compiled(1))->summary();
  ASSERT_EQ(Text(session_->SetConstBase(1, Block(summary.const_size()), summary.const_size())), "");
  const std::vector<InputTensor> inputs{OnDevice({1, 2, 3, 4}, {4})};
  for (int i = 0; i < 3; ++i) {
    void* block = nullptr;
    ASSERT_EQ(aclrtMalloc(&block, summary.feature_size(), ACL_MEM_MALLOC_HUGE_FIRST), ACL_SUCCESS);
    ASSERT_EQ(Text(session_->UpdateFeatureBase(1, block, summary.feature_size())), "");
    std::vector<OutputTensor> outputs;
    ASSERT_EQ(Text(session_->RunOnStream(1, stream_, inputs, outputs)), "");
    Sync();
    EXPECT_THAT(Floats(outputs[0].data, outputs[0].bytes), ElementsAre(2, 8, 18, 32));
    ASSERT_EQ(aclrtFree(block), ACL_SUCCESS);
  }
}

TEST_F(EngineTest, GE_040_041_WrongTensors) {
  AddCompiled(1, kAddText);
  const InputTensor good = OnDevice({1, 2, 3, 4}, {4});
  const struct {
    std::vector<InputTensor> inputs;
    std::vector<OutputTensor> outputs;
    int number;
    const char* text;
  } kCases[] = {
      {{}, {}, kParamInvalid, "0 inputs are given"},
      {{good, good}, {}, kParamInvalid, "2 inputs are given"},
      {{good}, {{}, {}}, kGraphGetInOutFailed, "2 outputs are given"},
      {{OnDevice({1, 2}, {2})}, {}, kParamInvalid, "input 0 has 8 bytes"},
      {{OnDevice({1, 2, 3, 4, 5, 6}, {6})}, {}, kParamInvalid, "[6]"},
      {{OnDevice({1, 2, 3, 4}, {(int64_t{1} << 62) + 1, 4})}, {}, kParamInvalid, "[4611686018427387905, 4]"},
      {{OnDevice({1, 2, 3, 4}, {-2, -2})}, {}, kParamInvalid, "[-2, -2]"},
      {{{nullptr, 16, {0, {4}}}}, {}, kParamInvalid, "no address"},
      {{good}, {{Block(64), 15, -1, {}, nullptr}}, kParamInvalid, "E19025"},
  };
  for (const auto& [inputs, outputs, number, text] : kCases) {
    std::vector<OutputTensor> results = outputs;
    const Status status = session_->RunOnStream(1, stream_, inputs, results);
    EXPECT_EQ(status.code(), number) << text << " " << Text(status);
    EXPECT_THAT(Text(status), HasSubstr(text));
  }
  std::vector<float> x{1, 2, 3, 4};
  const std::vector<InputTensor> host{OnHost(x, {4})};
  std::vector<OutputTensor> outputs;
  EXPECT_THAT(Text(session_->Execute(1, stream_, host, outputs)), HasSubstr("host"));
  EXPECT_EQ(session_->RemoveGraph(1).code(), 0);
  AddCompiled(1, kAddText);
  ASSERT_EQ(Text(session_->LoadGraph(1, {{"ge.exec.hostInputIndexes", "0"}}, stream_)), "");
  ASSERT_EQ(Text(session_->Execute(1, stream_, host, outputs)), "");
  x.assign(4, 0);  // read before the call returned
  Sync();
  EXPECT_THAT(Floats(outputs[0].data, outputs[0].bytes), ElementsAre(2, 8, 18, 32));
}

TEST_F(EngineTest, GE_032_FrozenInputsKeepTheirAddress) {
  AddCompiled(1, kAddText);
  ASSERT_EQ(Text(session_->LoadGraph(1, {{"ge.exec.frozenInputIndexes", "0"}}, stream_)), "");
  const std::vector<InputTensor> first{OnDevice({1, 2, 3, 4}, {4})};
  const std::vector<InputTensor> second{OnDevice({0, 0, 0, 0}, {4})};
  for (const auto& inputs : {first, second}) {
    std::vector<OutputTensor> outputs;
    ASSERT_EQ(Text(session_->Execute(1, stream_, inputs, outputs)), "");
    Sync();
    EXPECT_THAT(Floats(outputs[0].data, outputs[0].bytes), ElementsAre(2, 8, 18, 32));
  }
}

TEST_F(EngineTest, GE_044_084_ShapesThatRunsTell) {
  for (const char* const jit : {"1", "2"}) {
    const bool is_specialised = *jit == '1';
    ASSERT_EQ(Add(1, kOpenText, {{"ge.jit_compile", jit}}).code(), 0);
    for (const int64_t rows : {2, 4, 2}) {
      const std::vector<float> values(static_cast<size_t>(rows) * 3, 1.5F);
      const std::vector<InputTensor> inputs{OnDevice(values, {rows, 3})};
      std::vector<OutputTensor> outputs;
      ASSERT_EQ(Text(session_->RunOnStream(1, stream_, inputs, outputs)), "");
      Sync();
      EXPECT_THAT(outputs[0].shape, ElementsAre(rows, 3));
      EXPECT_EQ(Floats(outputs[0].data, outputs[0].bytes), std::vector<float>(values.size(), 3));
      EXPECT_EQ((*session_->Compiled(1))->summary().is_static, is_specialised);
    }
    EXPECT_EQ(session_->RemoveGraph(1).code(), 0);
  }
}

TEST_F(EngineTest, GE_088_089_GearsAreChosenByTheShapesOfARun) {
  for (const char* const hybrid : {"0", "1"}) {
    AddCompiled(1, kOpenText,
                {{"ge.inputShape", "x:-1,3"},
                 {"ge.dynamicDims", "1;4"},
                 {"ge.dynamicNodeType", "1"},
                 {"ge.compileHybridMode", hybrid}});
    EXPECT_THAT((*session_->Compiled(1))->summary().output_shapes, ElementsAre(ElementsAre(4, 3)));
    for (const int64_t rows : {1, 4, 2}) {
      const std::vector<float> values(static_cast<size_t>(rows) * 3, 2);
      const std::vector<InputTensor> inputs{OnDevice(values, {rows, 3})};
      std::vector<OutputTensor> outputs;
      const Status status = session_->RunOnStream(1, stream_, inputs, outputs);
      if (rows == 2 && *hybrid == '0') {
        EXPECT_THAT(Text(status), HasSubstr("those of no gear"));
        continue;
      }
      ASSERT_EQ(Text(status), "");
      Sync();
      EXPECT_THAT(outputs[0].shape, ElementsAre(rows, 3));
      EXPECT_EQ(Floats(outputs[0].data, outputs[0].bytes), std::vector<float>(values.size(), 4));
    }
    EXPECT_EQ(session_->RemoveGraph(1).code(), 0);
  }
}

TEST_F(EngineTest, GE_045_TheSecondInterface) {
  Begin({}, {}, Interface::kSecond);
  ASSERT_EQ(Add(1, kAddText).code(), 0);
  std::vector<float> x{1, 2, 3, 4};
  std::vector<HostTensor> results;
  ASSERT_EQ(Text(session_->RunAndWait(1, std::vector{OnHost(x, {4})}, results)), "");
  ASSERT_EQ(Text(session_->RunAndWait(1, std::vector{OnDevice(x, {4})}, results)), "");
  EXPECT_THAT(Floats(results[0]), ElementsAre(2, 8, 18, 32));
  std::vector<OutputTensor> outputs;
  EXPECT_EQ(session_->RunOnStream(1, stream_, std::vector{OnDevice(x, {4})}, outputs).code(), kUnsupported);
  ASSERT_EQ(Add(2, kAddText).code(), 0);
  EXPECT_EQ(Text(session_->LoadGraph(2, {}, nullptr)), "");
}

TEST_F(EngineTest, GE_046_ConstantsInFiles) {
  setenv("ASCEND_WORK_PATH", folder_.c_str(), 1);
  for (const char* const mode : {"1", "2"}) {
    Begin({}, {{"ge.externalWeight", mode}});
    AddCompiled(1, kAddText);
    const Summary summary = (*session_->Compiled(1))->summary();
    ASSERT_EQ(summary.weights.size(), 1U);
    EXPECT_EQ(summary.weights[0].bytes, 16U);
    std::ifstream file(summary.weights[0].path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    EXPECT_THAT(Floats(bytes.data(), bytes.size()), ElementsAre(1, 2, 3, 4));
    const uint64_t id = session_->id();
    session_.reset();
    CloseSession(id);
    EXPECT_FALSE(std::filesystem::exists(summary.weights[0].path));
  }
  unsetenv("ASCEND_WORK_PATH");
}

TEST_F(EngineTest, GE_100_ConstantsFromFiles) {
  const auto put = [&](const char* name, const std::vector<float>& values) {
    std::ofstream file(folder_ / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * 4));
    return (folder_ / name).string();
  };
  const std::string at = put("at", {9, 9, 1, 2, 3, 4});
  const std::string path = put("path", {10, 20, 30, 40});
  const std::string bin = put("bin", {100, 200, 300, 400});
  const OptionMap bins{
      {"ge.exec.value_bins", R"({"value_bins": [{"value_bin_id": "id", "value_bin_file": ")" + bin + R"("}]})"}};
  const auto text = [](const std::string& attributes) {
    return "graph g\nx = Data() : float32 [4]\nw = FileConstant() {" + attributes +
           "} : float32 [4]\ny = Add(x, w)\nreturn y\n";
  };
  const std::string location = "location = \"" + at + "\", offset = 8, length = 16";
  const std::string file_path = "file_path = \"" + path + "\"";
  const std::string file_id = "file_id = \"id\"";
  const struct {
    std::string attributes;
    std::vector<float> expected;
  } kCases[] = {{location + ", " + file_path + ", " + file_id, {1, 2, 3, 4}},
                {file_path + ", " + file_id, {10, 20, 30, 40}},
                {file_id, {100, 200, 300, 400}}};
  uint32_t id = 0;
  for (const auto& [attributes, expected] : kCases) {
    AddCompiled(++id, text(attributes), bins);
    std::vector<OutputTensor> outputs;
    ASSERT_EQ(Text(session_->RunOnStream(id, stream_, std::vector{OnDevice({0, 0, 0, 0}, {4})}, outputs)), "");
    Sync();
    EXPECT_EQ(Floats(outputs[0].data, 16), expected) << attributes;
  }
  const auto refusal = [&](const std::string& attributes, const OptionMap& options) {
    EXPECT_EQ(Text(Add(++id, text(attributes), options)), "");
    return Text(session_->CompileGraph(id));
  };
  const std::string gone = (folder_ / "gone").string();
  EXPECT_THAT(refusal("file_path = \"" + gone + "\"", {}), AllOf(HasSubstr("node w"), HasSubstr(gone)));
  EXPECT_THAT(refusal(file_id, {}), HasSubstr("no file is known for its file_id id"));
  EXPECT_THAT(refusal(file_id, {{"ge.exec.value_bins", "id"}}), HasSubstr("ge.exec.value_bins is id"));
}

TEST_F(EngineTest, GE_098_PrintsInTheOrderOfTheProgram) {
  AddCompiled(1,
              "graph g\n"
              "x = Data() : float32 [2]\n"
              "first = StringFormat(x) {template = \"first {}\", placeholder = \"{}\", summarize = 3}\n"
              "p1 = PrintV2(first) {output_stream = \"stdout\"}\n"
              "y = Add(x, x) after (p1)\n"
              "second = StringFormat(y, x) {template = \"second {} {}\", placeholder = \"{}\", summarize = 3}\n"
              "p2 = PrintV2(second) {output_stream = \"stdout\"} after (p1)\n"
              "return y after (p2)\n");
  for (int run = 0; run < 2; ++run) {
    ::testing::internal::CaptureStdout();
    std::vector<OutputTensor> outputs;
    ASSERT_EQ(Text(session_->RunOnStream(1, stream_, std::vector{OnDevice({1, 2}, {2})}, outputs)), "");
    Sync();
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "first [1 2]\nsecond [2 4] [1 2]\n");
  }
}

TEST_F(EngineTest, GE_099_RefDataOfTwoGraphsIsOneStorage) {
  AddCompiled(1,
              "graph write\nref = RefData() : float32 [4]\nx = Data() : float32 [4]\nsum = Add(ref, x)\n"
              "y = Assign(ref = ref, value = sum)\nreturn sum after (y)\n");
  AddCompiled(2, "graph read\nx = Data() : float32 [4]\nref = RefData() : float32 [4]\ny = Mul(ref, x)\nreturn y\n");
  const InputTensor storage = OnDevice({1, 1, 1, 1}, {4});
  for (int run = 1; run < 4; ++run) {
    std::vector<OutputTensor> outputs;
    ASSERT_EQ(Text(session_->RunOnStream(1, stream_, std::vector{storage, OnDevice({1, 2, 3, 4}, {4})}, outputs)), "");
    outputs.clear();
    ASSERT_EQ(Text(session_->RunOnStream(2, stream_, std::vector{OnDevice({2, 2, 2, 2}, {4}), storage}, outputs)), "");
    Sync();
    const auto n = static_cast<float>(run);
    EXPECT_THAT(Floats(storage.data, 16), ElementsAre(1 + n, 1 + 2 * n, 1 + 3 * n, 1 + 4 * n));
    EXPECT_THAT(Floats(outputs[0].data, 16), ElementsAre(2 + 2 * n, 2 + 4 * n, 2 + 6 * n, 2 + 8 * n));
  }
}

TEST_F(EngineTest, GE_047_048_CompiledGraphsAreKeptAndFoundAgain) {
  const auto options = [&](const std::string& folder) {
    return OptionMap{{"ge.graph_compiler_cache_dir", folder}, {"ge.graph_key", "key-1"}};
  };
  ASSERT_EQ(Add(1, kAddText, options(folder_ / "nothing")).code(), 0);
  EXPECT_THAT(Text(session_->CompileGraph(1)), HasSubstr("no folder"));
  EXPECT_EQ(session_->RemoveGraph(1).code(), 0);
  const auto compile = [&](const char* text, const OptionMap& more = {}) {
    const uint64_t before = CountOfCompilations();
    TakeWarnings();
    OptionMap all = options(folder_);
    all.insert(more.begin(), more.end());
    AddCompiled(1, text, all);
    std::vector<OutputTensor> outputs;
    const std::vector<InputTensor> inputs{OnDevice({1, 2, 3, 4}, {4})};
    EXPECT_EQ(Text(session_->RunOnStream(1, stream_, inputs, outputs)), "");
    Sync();
    EXPECT_THAT(Floats(outputs[0].data, outputs[0].bytes), ElementsAre(2, 8, 18, 32));
    EXPECT_EQ(session_->RemoveGraph(1).code(), 0);
    return CountOfCompilations() - before;
  };
  EXPECT_EQ(compile(kAddText), 1U);
  const auto index = reprise::testing::ParseJson(std::ifstream(folder_ / "key-1.idx"));
  EXPECT_EQ(index["cache_file_list"][0]["graph_key"], "key-1");
  const std::filesystem::path file = folder_ / index["cache_file_list"][0]["cache_file_name"].get<std::string>();
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_EQ(compile(kAddText), 0U) << TakeWarnings();
  // Another graph under the same key.
  EXPECT_EQ(compile("graph add\nx = Data() : float32 [4]\nw = Const() : float32 [4] = 1, 2, 3, 4\nt = Add(w, x)\n"
                    "y = Mul(t, x)\nreturn y\n"),
            1U);
  EXPECT_THAT(TakeWarnings(), ::testing::AnyOf(HasSubstr("another graph"), IsEmpty()));
  EXPECT_EQ(compile(kAddText), 1U);
  EXPECT_EQ(compile(kAddText), 0U) << TakeWarnings();
  // Other passes.
  EXPECT_EQ(compile(kAddText, {{"ge.oo.level", "O1"}}), 1U);
  EXPECT_THAT(TakeWarnings(), HasSubstr("compiled with other options"));
  EXPECT_EQ(compile(kAddText, {{"ge.oo.level", "O1"}}), 0U) << TakeWarnings();
  EXPECT_EQ(compile(kAddText, {{"ge.topoSortingMode", "1"}}), 1U);
  EXPECT_EQ(compile(kAddText), 1U);
  // Damaged.
  const auto again = reprise::testing::ParseJson(std::ifstream(folder_ / "key-1.idx"));
  const std::filesystem::path kept = folder_ / again["cache_file_list"][0]["cache_file_name"].get<std::string>();
  std::fstream damage(kept, std::ios::in | std::ios::out | std::ios::binary);
  damage.seekp(-1, std::ios::end);
  damage.put('\x7F');
  damage.close();
  EXPECT_EQ(compile(kAddText), 1U);
  std::ofstream(folder_ / "cache.conf") << R"({"cache_debug_mode": true})";
  EXPECT_EQ(compile(kAddText), 1U);
}

TEST_F(EngineTest, GE_081_LabelsOfStreams) {
  const std::string text = R"(graph labels
x = Data() : float32 [4]
a = Add(x, x) notes {_user_stream_label = "one"}
b = Mul(x, x) notes {_user_stream_label = "two"}
y = Sub(a, b)
return y
)";
  ASSERT_EQ(Add(1, text, {{"ge.enableSingleStream", "true"}}).code(), 0);
  EXPECT_THAT(Text(session_->CompileGraph(1)), HasSubstr("label of a stream"));
  AddCompiled(2, text);
  const Summary summary = (*session_->Compiled(2))->summary();
  int64_t next = 0;
  for (const LogicalStream& stream : summary.streams) EXPECT_EQ(stream.id, next++);
  EXPECT_EQ(summary.streams.size(), 3U);
  EXPECT_THAT(summary.stream_graph, HasSubstr("style=dashed"));
}

// The function that a generator has made gets the memory of each run.
TEST_F(EngineTest, GeneratedFunctionsAreToldWhereRunsHaveTheirMemory) {
  reprise::testing::ProductGenerator generator;
  AddCompiled(1, R"(graph products
x = Data() : float32 [4096]
w = Data() : float32 [4096]
y = Mul(x, w)
z = Mul(y, x)
return z
)");
  ASSERT_EQ(Text(session_->LoadGraph(1, {}, stream_)), "");
  for (int run = 1; run <= 3; ++run) {
    const auto value = static_cast<float>(run);
    const std::vector<InputTensor> inputs{OnDevice(std::vector<float>(4096, value), {4096}),
                                          OnDevice(std::vector<float>(4096, 0.5F), {4096})};
    std::vector<OutputTensor> outputs(1);
    outputs[0] = {Block(4096 * 4), 4096 * 4, -1, {}, nullptr};
    ASSERT_EQ(Text(session_->Execute(1, stream_, inputs, outputs)), "");
    Sync();
    EXPECT_THAT(Floats(outputs[0].data, 4096 * 4), ::testing::Each(value * value * 0.5F)) << run;
  }
  EXPECT_GE(generator.made, 1) << generator.declined;
}

TEST_F(EngineTest, ResultsHaveTheTypeOfTheOption) {
  AddCompiled(1, kAddText, {{"ge.outputDatatype", "INT32"}});
  EXPECT_THAT((*session_->Compiled(1))->summary().output_types, ElementsAre(3));
  const std::vector<InputTensor> inputs{OnDevice({1, 2.6F, 3, 4}, {4})};
  std::vector<OutputTensor> outputs;
  ASSERT_EQ(Text(session_->RunOnStream(1, stream_, inputs, outputs)), "");
  Sync();
  const auto* values = static_cast<const int32_t*>(outputs[0].data);
  EXPECT_THAT(std::vector<int32_t>(values, values + 4), ElementsAre(2, 11, 18, 32));
  ASSERT_EQ(Text(Add(2, kAddText, {{"ge.outputDatatype", "HIF8"}})), "");
  EXPECT_THAT(Text(session_->CompileGraph(2)), HasSubstr("which results cannot have here"));
}

TEST_F(EngineTest, GE_070_FusionsAreCounted) {
  const std::filesystem::path file = folder_ / "FE" / std::to_string(getpid()) / "fusion_result.json";
  ASSERT_EQ(setenv("ASCEND_WORK_PATH", folder_.c_str(), 1), 0);
  const std::string text =
      "graph g\nx = Data() : float32 [4, 8]\nw = Const() : float32 [8, 8] = 0.5 ...\nb = Const() : float32 [8] = 1 "
      "...\n"
      "p = MatMulV2(x1 = x, x2 = w)\ny = Add(p, b)\nreturn y\n";
  for (const char* const when : {"0", "1", "2"}) {
    std::filesystem::remove_all(folder_ / "FE");
    Begin({{"ge.exportCompileStat", when}}, {});
    AddCompiled(1, text);
    EXPECT_EQ(std::filesystem::exists(file), *when == '2') << when;
    session_.reset();
    ASSERT_EQ(Finalize().code(), 0);
    ASSERT_EQ(std::filesystem::exists(file), *when != '0') << when;
    if (*when == '0') continue;
    std::ifstream stream(file);
    const auto result = reprise::testing::ParseJson(stream);
    ASSERT_EQ(result.size(), 1U);
    EXPECT_EQ(result.begin().value()["graph_fusion"]["MatMulBiasAddFusionPass"]["effect_times"], "1") << result.dump(2);
  }
  unsetenv("ASCEND_WORK_PATH");
}

}  // namespace
}  // namespace reprise::engine
