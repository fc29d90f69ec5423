// SPDX-License-Identifier: Apache-2.0
//
// What sessions keep and hand out: variables, results for callbacks, dumps of values, memory that graphs share.
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine_fixture.h"

namespace reprise::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::UnorderedElementsAre;

// total = total + x, in place.
constexpr const char* kCountText = R"(graph count
x = Data() : float32 [4]
total = Variable() {shared_name = "total"} : float32 [4]
sum = Add(total, x)
y = Assign(ref = total, value = sum)
return y
)";

std::vector<std::filesystem::path> FilesBelow(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::exists(folder)) return files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(std::filesystem::relative(entry.path(), folder));
  }
  std::ranges::sort(files);
  return files;
}

class SessionState : public EngineTest {
 protected:
  std::vector<float> Run(uint32_t graph, std::vector<float> x) {
    std::vector<HostTensor> outputs;
    const std::vector<InputTensor> inputs{OnHost(x, {static_cast<int64_t>(x.size())})};
    EXPECT_EQ(Text(session_->RunAndWait(graph, inputs, outputs)), "");
    return outputs.empty() ? std::vector<float>() : Floats(outputs[0]);
  }
};

TEST_F(SessionState, VariablesLastFromRunToRunAndAreSharedByName) {
  ASSERT_EQ(Text(Add(1, kCountText)), "");
  EXPECT_THAT(Run(1, {1, 2, 3, 4}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(Run(1, {1, 1, 1, 1}), ElementsAre(2, 3, 4, 5));
  // Another graph of the session has the same one, by the name of its node.
  ASSERT_EQ(Text(Add(2,
                     "graph read\nx = Data() : float32 [4]\ntotal = VariableV2() : float32 [4]\ny = Mul(total, x)\n"
                     "return y\n")),
            "");
  EXPECT_THAT(Run(2, {2, 2, 2, 2}), ElementsAre(4, 6, 8, 10));
  const std::vector<std::string> names{"total"};
  auto values = session_->ReadVariables(names);
  ASSERT_TRUE(values.ok());
  EXPECT_THAT(Floats((*values)[0]), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT((*values)[0].shape, ElementsAre(4));
  // On streams, too; outputs of the program's own memory.
  EXPECT_EQ(session_->RemoveGraph(1).code(), 0);
  ASSERT_EQ(Text(Add(3, kCountText)), "");
  std::vector<OutputTensor> outputs;
  ASSERT_EQ(Text(session_->RunOnStream(3, stream_, std::vector{OnDevice({1, 1, 1, 1}, {4})}, outputs)), "");
  ASSERT_THAT(outputs, SizeIs(1));
  Sync();
  EXPECT_THAT(Floats(outputs[0].data, 16), ElementsAre(3, 4, 5, 6));
  // Another session has variables of its own.
  outputs.clear();
  Begin({}, {});
  ASSERT_EQ(Text(Add(1, kCountText)), "");
  EXPECT_THAT(Run(1, {1, 2, 3, 4}), ElementsAre(1, 2, 3, 4));
}

TEST_F(SessionState, WhatVariablesCannotBe) {
  ASSERT_EQ(Text(Add(1, kCountText)), "");
  EXPECT_THAT(Text(session_->CompileGraph(1)), HasSubstr("has variables"));
  ASSERT_EQ(Text(Add(2,
                     "graph g\nx = Data() : float32 [4]\ntotal = Variable() : float32 [?]\ny = Add(total, x)\n"
                     "return y\n")),
            "");
  std::vector<float> x{1, 2, 3, 4};
  std::vector<HostTensor> outputs;
  EXPECT_THAT(Text(session_->RunAndWait(2, std::vector{OnHost(x, {4})}, outputs)), HasSubstr("no size"));
  EXPECT_THAT(Run(1, x), ElementsAre(1, 2, 3, 4));
  ASSERT_EQ(Text(Add(3,
                     "graph g\nx = Data() : float32 [4]\ntotal = Variable() : float32 [1]\ny = Add(total, x)\n"
                     "return y\n")),
            "");
  EXPECT_THAT(Text(session_->RunAndWait(3, std::vector{OnHost(x, {4})}, outputs)),
              testing::ContainsRegex("the variable total is .* \\[4\\] in one graph"));
  const std::vector<std::string> names{"nothing"};
  EXPECT_THAT(Text(session_->ReadVariables(names).status()), HasSubstr("no variable nothing"));
}

TEST_F(SessionState, ResultsForCallbacks) {
  const std::string text = R"(graph g
x = Data() : float32 [4]
total = Variable() : float32 [4]
sum = Add(total, x)
new = Assign(ref = total, value = sum)
loss = Summary(new)
saved = Save(total)
y = Mul(x, x)
return y after (loss, saved)
)";
  using Values = std::map<std::string, HostTensor>;
  std::vector<std::pair<uint32_t, Values>> seen;
  int answer = 0;
  ASSERT_EQ(Text(session_->RegisterCallback("Summary",
                                            [&](uint32_t graph, const Values& values) {
                                              seen.emplace_back(graph, values);
                                              return answer;
                                            })),
            "");
  ASSERT_EQ(Text(Add(7, text)), "");
  EXPECT_THAT(Run(7, {1, 2, 3, 4}), ElementsAre(1, 4, 9, 16));
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].first, 7U);
  ASSERT_TRUE(seen[0].second.contains("loss"));
  EXPECT_THAT(Floats(seen[0].second.at("loss")), ElementsAre(1, 2, 3, 4));
  ASSERT_EQ(Text(session_->RegisterCallback("Save",
                                            [&](uint32_t graph, const Values& values) {
                                              seen.emplace_back(graph, values);
                                              return 0;
                                            })),
            "");
  Run(7, {1, 1, 1, 1});
  ASSERT_THAT(seen, SizeIs(3));
  EXPECT_TRUE(seen[1].second.contains("total"));
  std::vector<float> x{1, 2, 3, 4};
  std::vector<HostTensor> outputs;
  answer = 5;
  EXPECT_THAT(Text(session_->RunAndWait(7, std::vector{OnHost(x, {4})}, outputs)), HasSubstr("answers 5"));
  EXPECT_EQ(session_->RegisterCallback("Other", [](uint32_t, const Values&) { return 0; }).code(), kParamInvalid);
  EXPECT_EQ(session_->RegisterCallback("Save", nullptr).code(), kParamInvalid);
}

TEST_F(SessionState, ResultsForCallbacksOfRunsOnStreams) {
  using Values = std::map<std::string, HostTensor>;
  std::vector<Values> seen;
  int answer = 0;
  ASSERT_EQ(
      Text(Add(7, "graph g\nx = Data() : float32 [4]\ny = Mul(x, x)\nloss = Summary(y)\nreturn x after (loss)\n")), "");
  const auto run = [&](std::vector<float> x) {
    std::vector<OutputTensor> outputs;
    EXPECT_EQ(Text(session_->RunOnStream(7, stream_, std::vector{OnDevice(x, {4})}, outputs)), "");
    EXPECT_THAT(outputs, SizeIs(1));
    return aclrtSynchronizeStream(stream_);
  };
  EXPECT_EQ(run({1, 2, 3, 4}), ACL_SUCCESS);  // nobody wants them
  ASSERT_EQ(Text(session_->RegisterCallback("Summary",
                                            [&](uint32_t graph, const Values& values) {
                                              EXPECT_EQ(graph, 7U);
                                              seen.push_back(values);
                                              return answer;
                                            })),
            "");
  EXPECT_EQ(run({1, 2, 3, 4}), ACL_SUCCESS);
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_THAT(Floats(seen[0].at("loss")), ElementsAre(1, 4, 9, 16));
  answer = 5;
  EXPECT_NE(run({1, 1, 1, 1}), ACL_SUCCESS);
  EXPECT_THAT(std::string(aclGetRecentErrMsg()), HasSubstr("answers 5"));
}

TEST_F(SessionState, VariablesOfBranchesAndOfCalledGraphs) {
  ASSERT_EQ(Text(Add(1, R"(graph g
x = Data() : float32 [4]
axes = Const() : int64 [1] = 0
p = ReduceSum(x, axes)
i = If(p, x) calls (yes, no) : output0 float32 [4]
c = PartitionedCall(x) calls (twice) : output0 float32 [4]
return i, c

graph yes
v = Data() : float32 [4]
total = Variable() {shared_name = "total"} : float32 [4]
sum = Add(total, v)
y = Assign(ref = total, value = sum)
return y

graph no
v = Data() : float32 [4]
total = Variable() {shared_name = "total"} : float32 [4]
y = Sub(v, total)
return y

graph twice
v = Data() : float32 [4]
seen = Variable() : float32 [4]
sum = Add(seen, v)
next = Assign(ref = seen, value = sum)
y = Add(next, v)
return y
)")),
            "");
  const auto run = [&](std::vector<float> x) {
    std::vector<HostTensor> outputs;
    EXPECT_EQ(Text(session_->RunAndWait(1, std::vector{OnHost(x, {4})}, outputs)), "");
    std::vector<std::vector<float>> values;
    for (const HostTensor& output : outputs) values.push_back(Floats(output));
    return values;
  };
  using Both = std::vector<std::vector<float>>;
  EXPECT_EQ(run({1, 2, 3, 4}), (Both{{1, 2, 3, 4}, {2, 4, 6, 8}}));
  EXPECT_EQ(run({1, 1, 1, 1}), (Both{{2, 3, 4, 5}, {3, 4, 5, 6}}));
  EXPECT_EQ(run({0, 0, 0, 0}), (Both{{-2, -3, -4, -5}, {2, 3, 4, 5}}));
  const std::vector<std::string> names{"total", "seen"};
  auto values = session_->ReadVariables(names);
  ASSERT_TRUE(values.ok());
  EXPECT_THAT(Floats((*values)[0]), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(Floats((*values)[1]), ElementsAre(2, 3, 4, 5));
  // Not in loops, whose values are those of a trip.
  ASSERT_EQ(Text(Add(2, R"(graph g
x = Data() : int32 []
w = While(x) calls (goes_on, body) : output0 int32 []
return w

graph goes_on
v = Data() : int32 []
limit = Variable() : int32 []
y = Less(v, limit)
return y

graph body
v = Data() : int32 []
y = Add(v, v)
return y
)")),
            "");
  std::vector<HostTensor> outputs;
  const int32_t one = 1;
  const InputTensor input{const_cast<int32_t*>(&one), 4, {3, {}}};
  EXPECT_THAT(Text(session_->RunAndWait(2, std::vector{input}, outputs)), HasSubstr("variable of the loop w"));
}

TEST_F(SessionState, GE_097_DumpsOfValues) {
  Begin({}, {{"ge.exec.enableDump", "1"},
             {"ge.exec.dumpPath", folder_ / "all"},
             {"ge.exec.dumpMode", "all"},
             {"ge.exec.dumpStep", "1|3-4"}});
  ASSERT_EQ(Text(Add(5, kAddText)), "");
  for (int i = 0; i < 4; ++i) EXPECT_THAT(Run(5, {1, 2, 3, 4}), ElementsAre(2, 8, 18, 32));
  std::vector<std::string> names;
  std::string folder;
  for (const auto& file : FilesBelow(folder_ / "all")) {
    const std::vector<std::string> parts(file.begin(), file.end());
    ASSERT_THAT(parts, SizeIs(6)) << file;  // time, device, model, its number, step, file
    EXPECT_THAT((std::vector<std::string>{parts[1], parts[2], parts[3]}), ElementsAre("0", "add", "5"));
    std::string name = parts[5];
    // Without the place in the graph, the stream and the time.
    const size_t first = name.find('.', name.find('.') + 1);
    const size_t last = name.find(".", name.find(".", name.find('.', first + 1) + 1) + 1);
    names.push_back(parts[4] + " " + name.substr(0, first) + name.substr(last));
    if (name.ends_with("Mul.y.output.0.npy")) folder = file.parent_path();
  }
  EXPECT_THAT(names, UnorderedElementsAre("1 Add.t.input.0.npy", "1 Add.t.input.1.npy", "1 Add.t.output.0.npy",
                                          "1 Mul.y.input.0.npy", "1 Mul.y.input.1.npy", "1 Mul.y.output.0.npy",
                                          "3 Add.t.input.0.npy", "3 Add.t.input.1.npy", "3 Add.t.output.0.npy",
                                          "3 Mul.y.input.0.npy", "3 Mul.y.input.1.npy", "3 Mul.y.output.0.npy"));
  for (const auto& file : FilesBelow(folder_ / "all")) {
    if (file.string().find("/1/Add.t.") == std::string::npos || file.string().find("output") == std::string::npos)
      continue;
    std::ifstream stream(folder_ / "all" / file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    ASSERT_EQ(bytes.size() % 64, 16U);
    EXPECT_THAT(bytes, HasSubstr("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }"));
    EXPECT_THAT(Floats(bytes.data() + bytes.size() - 16, 16), ElementsAre(2, 4, 6, 8));
  }
}

TEST_F(SessionState, GE_097_DumpsOfSomeNodesAsStatistics) {
  Begin({{"ge.exec.enableDump", "1"}, {"ge.exec.dumpPath", folder_ / "some"}},
        {{"ge.exec.dumpData", "stats"}, {"ge.exec.dumpLayer", "y nothing"}});
  ASSERT_EQ(Text(Add(5, kOpenText, {{"ge.jit_compile", "2"}})), "");
  std::vector<float> x{1, 2, 3, 4, 5, 6};
  std::vector<HostTensor> outputs;
  ASSERT_EQ(Text(session_->RunAndWait(5, std::vector{OnHost(x, {2, 3})}, outputs)), "");
  const auto files = FilesBelow(folder_ / "some");
  ASSERT_THAT(files, SizeIs(1));
  EXPECT_EQ(files[0].filename(), "statistics.csv");
  std::ifstream stream(folder_ / "some" / files[0]);
  const std::string table{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  EXPECT_THAT(table, testing::AllOf(HasSubstr("\nAdd,y,Output,0,24,"), HasSubstr(",\"[2, 3]\",6,12,2,7,0,0\n")));
  // What cannot be asked for.
  session_.reset();
  ASSERT_EQ(Finalize().code(), 0);
  EXPECT_THAT(Text(Initialize({{"ge.exec.enableDump", "1"}})), HasSubstr("dumpPath is not set"));
  EXPECT_THAT(Text(Initialize({{"ge.exec.enableDumpDebug", "1"}, {"ge.exec.dumpPath", "."}})), HasSubstr("overflows"));
  EXPECT_THAT(Text(Initialize({{"ge.exec.enableDump", "1"}, {"ge.exec.dumpPath", "."}, {"ge.exec.dumpStep", "3-1"}})),
              HasSubstr("dumpStep"));
}

TEST_F(SessionState, GE_083_SpellingsOfStreamModes) {
  uint32_t id = 0;
  for (const char* const good : {"cv", "LoadBalance:1", "MainStream:64"}) {
    AddCompiled(++id, kAddText, {{"ge.autoMultistreamParallelMode", good}, {"ge.exec.enableEngineParallel", "1"}});
  }
  for (const char* const bad : {"CV", "LoadBalance", "LoadBalance:0", "MainStream:65", "MainStream:x", "Other:2"}) {
    EXPECT_EQ(Add(++id, kAddText, {{"ge.autoMultistreamParallelMode", bad}}).code(), kGraphOptionsInvalid) << bad;
  }
  EXPECT_EQ(Add(++id, kAddText, {{"ge.exec.enableEngineParallel", "2"}}).code(), kGraphOptionsInvalid);
  EXPECT_EQ(Add(++id, kAddText, {{"ge.autoMultistreamParallelMode", "cv"}, {"ge.enableSingleStream", "true"}}).code(),
            kGraphOptionsInvalid);
}

// Values of many sizes whose lives overlap now and then.
std::string Ladder(const std::string& name, const std::string& shape) {
  return "graph " + name + "\nx = Data() : float32 " + shape + R"(
a = Sqrt(x)
b = SoftmaxV2(a)
c = Sqrt(b)
d = SoftmaxV2(c)
e = Add(b, d)
f = SoftmaxV2(e)
g = Mul(f, c)
return g
)";
}

TEST_F(SessionState, GE_077_GearsUseOneMemory) {
  AddCompiled(1, Ladder("g", "[?, 64]"),
              {{"ge.inputShape", "x:-1,64"}, {"ge.dynamicDims", "1;8;32"}, {"ge.dynamicNodeType", "1"}});
  AddCompiled(2, Ladder("g", "[32, 64]"));
  const Summary gears = (*session_->Compiled(1))->summary();
  const Summary largest = (*session_->Compiled(2))->summary();
  EXPECT_GT(largest.feature_size(), 512U);
  EXPECT_EQ(gears.feature_size(), largest.feature_size());
}

TEST_F(SessionState, GE_078_MemoryPriorityNeedsNoMore) {
  uint32_t id = 0;
  for (const char* const shape : {"[32, 64]", "[7, 13]", "[129, 3]"}) {
    AddCompiled(++id, Ladder("g", shape));
    AddCompiled(++id, Ladder("g", shape), {{"ge.exec.memoryOptimizationPolicy", "MemoryPriority"}});
    EXPECT_LE((*session_->Compiled(id))->summary().feature_size(),
              (*session_->Compiled(id - 1))->summary().feature_size());
  }
}

TEST_F(SessionState, GE_079_GraphsOfASessionShareMemory) {
  for (const char* const policy : {"1", "2", "4"}) {
    Begin({}, {{"ge.exec.staticMemoryPolicy", policy}});
    AddCompiled(1, Ladder("small", "[2, 8]"));
    AddCompiled(2, Ladder("large", "[64, 64]"));
    std::vector<float> expected[2];
    const std::vector<InputTensor> inputs[] = {
        {OnDevice(std::vector<float>(16, 0.5F), {2, 8})},
        {OnDevice(std::vector<float>(4096, 0.25F), {64, 64})},
    };
    void* other = nullptr;
    ASSERT_EQ(aclrtCreateStream(&other), ACL_SUCCESS);
    // Small, large, small again, in turns on two streams: the results are those of the first time.
    for (int i = 0; i < 6; ++i) {
      const uint32_t graph = i % 2;
      void* const stream = i % 3 == 0 ? other : stream_;
      std::vector<OutputTensor> outputs;
      ASSERT_EQ(Text(session_->RunOnStream(graph + 1, stream, inputs[graph], outputs)), "");
      ASSERT_EQ(aclrtSynchronizeStream(stream), ACL_SUCCESS);
      const std::vector<float> result = Floats(outputs[0].data, outputs[0].bytes);
      if (expected[graph].empty()) expected[graph] = result;
      EXPECT_EQ(result, expected[graph]);
    }
    EXPECT_EQ(session_->shared_feature_bytes(), (*session_->Compiled(2))->summary().needs.features);
    EXPECT_GT(session_->shared_feature_bytes(), (*session_->Compiled(1))->summary().needs.features);
    // Memory of the program's comes first.
    const uint64_t before = session_->shared_feature_bytes();
    AddCompiled(3, Ladder("own", "[128, 64]"));
    const uint64_t bytes = (*session_->Compiled(3))->summary().feature_size();
    ASSERT_EQ(Text(session_->UpdateFeatureBase(3, Block(bytes), bytes)), "");
    std::vector<OutputTensor> outputs;
    ASSERT_EQ(
        Text(session_->RunOnStream(3, stream_, std::vector{OnDevice(std::vector<float>(8192, 1), {128, 64})}, outputs)),
        "");
    Sync();
    EXPECT_EQ(session_->shared_feature_bytes(), before);
    outputs.clear();
    ASSERT_EQ(aclrtDestroyStream(other), ACL_SUCCESS);
  }
  Begin({}, {{"ge.exec.staticMemoryPolicy", "3"}});
  AddCompiled(1, kAddText);
  EXPECT_EQ(session_->shared_feature_bytes(), 0U);
}

// Values between stages come from the allocator of the stream, and are back when the run is queued.
TEST_F(SessionState, RunsOfOpenShapesUseTheAllocatorOfTheStream) {
  const std::string text = R"(graph g
x = Data() : float32 [?]
n = NonZero(x)
c = Cast(n) {dst_type = 0}
y = Relu(c)
return y
)";
  ASSERT_EQ(Text(Add(1, text, {{"ge.jit_compile", "2"}})), "");
  const auto allocator = std::make_shared<CountingAllocator>();
  ASSERT_EQ(session_->RegisterAllocator(stream_, allocator).code(), 0);
  for (int i = 0; i < 3; ++i) {
    std::vector<OutputTensor> outputs;
    ASSERT_EQ(Text(session_->RunOnStream(1, stream_, std::vector{OnDevice({0, 2, 0, 4, 5}, {5})}, outputs)), "");
    Sync();
    EXPECT_THAT(Floats(outputs[0].data, outputs[0].bytes), ElementsAre(1, 3, 4));
    EXPECT_EQ(allocator->live.size(), 1U);
    EXPECT_GT(allocator->taken, i + 1);
  }
  allocator->refuses = true;
  std::vector<OutputTensor> outputs;
  EXPECT_THAT(Text(session_->RunOnStream(1, stream_, std::vector{OnDevice({0, 2, 0, 4, 5}, {5})}, outputs)),
              HasSubstr("has no"));
}

TEST_F(SessionState, PlansByShapeAreCounted) {
  ASSERT_EQ(Text(Add(1, kOpenText, {{"ge.jit_compile", "2"}})), "");
  for (int64_t rows = 1; rows <= 66; ++rows) {
    for (int again = 0; again < 2; ++again) {
      std::vector<OutputTensor> outputs;
      const std::vector<float> values(static_cast<size_t>(rows) * 3, 1);
      ASSERT_EQ(Text(session_->RunOnStream(1, stream_, std::vector{OnDevice(values, {rows, 3})}, outputs)), "");
    }
  }
  Sync();
  auto text = session_->Timeline(1);
  ASSERT_TRUE(text.ok());
  const auto events = nlohmann::json::parse(*text);
  EXPECT_EQ(events.back()["ph"], "C");
  EXPECT_EQ(events.back()["args"], nlohmann::json::parse(R"({"hits": 66, "misses": 66, "evictions": 2})"));
}

}  // namespace
}  // namespace reprise::engine
