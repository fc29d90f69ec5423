// SPDX-License-Identifier: Apache-2.0
//
// States of the process, of sessions and graphs; what is refused in which of them, and with which number.
#include <thread>

#include "engine_fixture.h"

namespace reprise::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint64_t kEnough = 1 << 20;

// An executable that computes nothing: sizes and kinds as a test wants them.
class Fake final : public compiler::Executable {
 public:
  explicit Fake(compiler::Graph graph) : graph_(std::move(graph)) {}
  bool is_static() const override { return has_sizes; }
  const compiler::MemoryNeeds& needs() const override { return needs_; }
  const compiler::Graph& graph() const override { return graph_; }
  std::span<const compiler::Tensor> results() const override { return {}; }
  std::span<const std::pair<uint32_t, uint32_t>> shared() const override { return shared_; }
  std::span<const compiler::LogicalStream> logical_streams() const override { return streams_; }
  size_t events() const override { return 0; }
  Status SetConstants(void*, uint64_t) override { return {}; }
  Status SetFeatures(void* base, uint64_t) override {
    features = base;
    return {};
  }
  Status SetFixedFeatures(void*, uint64_t) override { return {}; }
  Status Run(runtime::Stream&, const compiler::RunRequest&) override { return {}; }

  static inline bool has_sizes = true;
  static inline compiler::MemoryNeeds needs_{1024, 2048, 512};
  static inline void* features = nullptr;
  std::vector<std::pair<uint32_t, uint32_t>> shared_{{0, 0}, {1, 0}, {1, 2}, {3, 4}};

 private:
  compiler::Graph graph_;
  std::vector<compiler::LogicalStream> streams_{1};
};

StatusOr<std::shared_ptr<compiler::Executable>> MakeFake(compiler::Graph graph, const compiler::CompileOptions&) {
  return std::shared_ptr<compiler::Executable>(std::make_shared<Fake>(std::move(graph)));
}

class SessionStates : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    SetCompileFunction(&MakeFake);
    Fake::has_sizes = true;
    Fake::needs_ = {1024, 2048, 512};
  }
  char memory_[1];
  std::vector<OutputTensor> outputs_;
};

TEST_F(EngineTest, GE_008_InitializeAndFinalize) {
  EXPECT_EQ(Initialize({}).code(), 0);
  EXPECT_THAT(TakeWarnings(), HasSubstr("before"));
  EXPECT_EQ(Initialize({{"ge.exec.deviceId", "0"}}).code(), 0);
  EXPECT_THAT(TakeWarnings(), HasSubstr("other options"));
  EXPECT_EQ(Finalize().code(), 0);
  EXPECT_EQ(Finalize().code(), 0);
  const auto late = FindSession(session_->id(), "ge::Session::AddGraph");
  EXPECT_EQ(Text(StatusOr<std::shared_ptr<Session>>(FindSession(1, "ge::Session::AddGraph")).status()),
            "4294967295 E10062: ge::Session::AddGraph was called before GEInitialize");
  EXPECT_EQ(OpenSession(Interface::kFirst, {}).status().code(), kFailed);
}

TEST_F(EngineTest, GE_009_MessagesBelongToTheirThreads) {
  runtime::Report("ge::Session::RemoveGraph", session_->RemoveGraph(77));
  std::thread([] { EXPECT_EQ(runtime::TakeRecentMessage(), nullptr); }).join();
  const char* const text = runtime::TakeRecentMessage();
  ASSERT_NE(text, nullptr);
  EXPECT_THAT(std::string(text), testing::StartsWith("E10062[PID: "));
  EXPECT_THAT(std::string(text), HasSubstr("graph_id 77"));
  EXPECT_EQ(runtime::TakeRecentMessage(), nullptr);
  Warn("one");
  std::thread([] { EXPECT_EQ(TakeWarnings(), ""); }).join();
  EXPECT_EQ(TakeWarnings(), "one\n");
  EXPECT_EQ(TakeWarnings(), "");
}

TEST_F(EngineTest, GE_010_011_012_OptionsAreChecked) {
  const struct {
    OptionMap options;
    int number;
    const char* text;
  } kCases[] = {
      {{{"", "1"}}, kFailed, "empty key"},
      {{{"ge.oo.level", "O5"}}, kParamInvalid, "one of O1|O3"},
      {{{"ge.featureBaseRefreshable", "2"}}, kParamInvalid, "one of 0|1"},
      {{{"ge.exportCompileStat", "7"}}, kParamInvalid, "one of 0|1|2"},
      {{{"ge.deterministicLevel", "4"}}, kParamInvalid, "0..3"},
      {{{"ge.deterministicLevel", "1"}}, kParamInvalid, "ge.deterministic is not 1"},
      {{{"ge.exec.disableReuseMemory", "x"}}, kFailed, "one of 0|1"},
      {{{"ge.exec.deviceId", "-2"}}, kParamInvalid, "-1.."},
      {{{"ge.exec.precision_mode", "force_fp16"}, {"ge.exec.precision_mode_v2", "fp16"}}, kParamInvalid, "excludes it"},
      {{{"ge.AllowMultiGraphParallelCompile", "1"}, {"ge.exec.variable_acc", "True"}}, kParamInvalid, "excludes"},
      {{{"ge.exec.enableDump", "1"}}, kParamInvalid, "dumpPath is not set"},
      {{{"ge.exec.enableDump", "1"}, {"ge.exec.enableDumpDebug", "1"}, {"ge.exec.dumpPath", "/tmp"}},
       kParamInvalid,
       "excludes it"},
      {{{"ge.exec.enableDumpDebug", "1"}, {"ge.exec.dumpPath", "/tmp"}}, kUnsupported, "overflows"},
      {{{"ge.exec.dumpStep", "0|5-3"}}, kParamInvalid, "steps"},
      {{{"ge.optimizationSwitch", "Pass:maybe"}}, kParamInvalid, "Pass:on"},
      {{{"ge.fusionSwitchFile", "/nonexistent/file"}}, kParamInvalid, "exists"},
  };
  ASSERT_EQ(Finalize().code(), 0);
  for (const auto& [options, number, text] : kCases) {
    const Status status = Initialize(options);
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_EQ(status.code(), number) << text;
    EXPECT_THAT(status.detail().what, testing::StartsWith("E10001: "));
    EXPECT_THAT(status.detail().what, HasSubstr(text));
    EXPECT_FALSE(IsInitialized());
  }
  EXPECT_EQ(Text(Initialize({{"ge.notAnOption", "1"}, {"ge.oo.level", ""}})), "");
  EXPECT_THAT(TakeWarnings(), HasSubstr("ge.notAnOption"));
}

TEST_F(EngineTest, OptionsOfGraphsAreCheckedAndLookedUpFromInsideOut) {
  EXPECT_EQ(Add(1, kAddText, {{"ge.jit_compile", "3"}}).code(), kGraphOptionsInvalid);
  EXPECT_EQ(Add(1, kAddText, {{"ge.exec.static_model_ops_lower_limit", "-2"}}).code(), kGraphOptionsInvalid);  // GE-087
  EXPECT_EQ(Add(1, kAddText, {{"ge.autoMultistreamParallelMode", "MainStream:65"}}).code(), kGraphOptionsInvalid);
  for (const char* const key : {"a b", "a/b", "ä"}) {
    EXPECT_EQ(Add(1, kAddText, {{"ge.graph_key", key}}).code(), kGraphOptionsInvalid) << key;
  }
  EXPECT_EQ(Add(1, kAddText, {{"ge.graph_key", std::string(129, 'a')}}).code(), kGraphOptionsInvalid);
  EXPECT_EQ(Add(1, kAddText, {{"ge.autoTuneMode", "GA"}}).code(), kFailed);  // GE-017
  const OptionSet set({{"ge.oo.level", "O1"}, {"ge.jit_compile", "0"}}, {{"ge.jit_compile", "2"}},
                      {{"ge.exec.deviceId", "3"}});
  EXPECT_EQ(set.Get("ge.oo.level"), "O1");
  EXPECT_EQ(set.Get("ge.jit_compile"), "2");
  EXPECT_EQ(set.Get("ge.exec.deviceId"), "-1");  // not an option of graphs
  EXPECT_TRUE(std::ranges::is_sorted(OptionRows(), {}, &OptionRow::key));
}

TEST_F(EngineTest, GE_015_016_GraphsAreAddedAndCopied) {
  const auto graph = Parse(kAddText);
  EXPECT_EQ(session_->AddGraph(1, graph, graph, {}).code(), 0);
  EXPECT_EQ(session_->AddGraph(1, Parse(kOpenText), Parse(kOpenText), {}).code(), 0);
  EXPECT_THAT(TakeWarnings(), HasSubstr("stays"));
  EXPECT_EQ(session_->AddGraph(2, graph, graph, {}).code(), kGraphAlreadyExist);
  EXPECT_EQ(session_->AddGraph(2, std::make_shared<compiler::Graph>(*graph), nullptr, {}).code(), 0);
  EXPECT_EQ(session_->AddGraph(2, std::make_shared<compiler::Graph>(*graph), nullptr, {}).code(), kGraphAlreadyExist);
  graph->at(graph->Find("t")).type = "Sub";
  ASSERT_EQ(Text(session_->CompileGraph(2)), "");
  std::vector<HostTensor> outputs;
  std::vector<float> x{1, 1, 1, 1};
  const std::vector<InputTensor> inputs{OnDevice(x, {4})};
  std::vector<OutputTensor> results;
  ASSERT_EQ(Text(session_->RunOnStream(2, stream_, inputs, results)), "");
  Sync();
  EXPECT_THAT(Floats(results[0].data, results[0].bytes), ElementsAre(2, 3, 4, 5));
}

TEST_F(EngineTest, GE_018_RemovedGraphsGiveTheirNumberBack) {
  EXPECT_EQ(session_->RemoveGraph(9).code(), kGraphNotExist);
  AddCompiled(1, kAddText);
  const auto allocator = std::make_shared<CountingAllocator>();
  ASSERT_EQ(session_->RegisterAllocator(stream_, allocator).code(), 0);
  ASSERT_EQ(Text(session_->LoadGraph(1, {}, stream_)), "");
  EXPECT_GT(allocator->live.size(), 0U);
  EXPECT_EQ(session_->RemoveGraph(1).code(), 0);
  EXPECT_THAT(allocator->live, IsEmpty());
  EXPECT_EQ(session_->RemoveGraph(1).code(), kGraphNotExist);
  AddCompiled(1, kOpenText);
}

TEST_F(SessionStates, GE_020_021_CompileNeedsAGraphThatRests) {
  EXPECT_EQ(session_->CompileGraph(1).code(), kGraphNotExist);
  EXPECT_EQ(session_->Compiled(1).status().code(), kGraphNotExist);
  ASSERT_EQ(Add(1, kAddText).code(), 0);
  EXPECT_TRUE(session_->NeedsRebuild(1));
  EXPECT_EQ(session_->Compiled(1).status().code(), kGraphNotBuilt);
  const uint64_t before = CountOfCompilations();
  EXPECT_EQ(session_->CompileGraph(1).code(), 0);
  EXPECT_EQ(session_->CompileGraph(1).code(), 0);
  EXPECT_THAT(TakeWarnings(), HasSubstr("compiled already"));
  EXPECT_EQ(CountOfCompilations(), before + 1);
  EXPECT_FALSE(session_->NeedsRebuild(1));
}

TEST_F(SessionStates, GE_022_023_024_SummariesOfStaticAndDynamicGraphs) {
  Fake::needs_ = {};
  AddCompiled(1, kAddText, {{"ge.featureBaseRefreshable", "1"}});
  const Summary none = (*session_->Compiled(1))->summary();
  EXPECT_TRUE(none.is_static && none.is_refreshable);
  EXPECT_EQ(none.const_size(), 512U);
  EXPECT_EQ(none.feature_size(), 512U);
  EXPECT_EQ(none.refreshable_size(), 512U);
  Fake::needs_ = {1024, 2048, 512};
  AddCompiled(2, kAddText);
  const Summary some = (*session_->Compiled(2))->summary();
  EXPECT_EQ(some.feature_size(), some.needs.fixed_features + some.refreshable_size());
  // Chains of one address, each with each (GE-043).
  EXPECT_THAT(some.shared, ElementsAre(std::pair(0U, 0U), std::pair(0U, 2U), std::pair(1U, 0U), std::pair(1U, 2U),
                                       std::pair(3U, 4U)));
  Fake::has_sizes = false;
  AddCompiled(3, kAddText);
  const Summary open = (*session_->Compiled(3))->summary();
  EXPECT_FALSE(open.is_static);
  EXPECT_EQ(open.CheckStatic("sizes").code(), kFailed);
}

TEST_F(SessionStates, GE_025_ConstBase) {
  ASSERT_EQ(Add(1, kAddText).code(), 0);
  EXPECT_EQ(session_->SetConstBase(2, memory_, kEnough).code(), kGraphNotExist);
  EXPECT_EQ(session_->SetConstBase(1, memory_, kEnough).code(), kGraphNotBuilt);
  ASSERT_EQ(session_->CompileGraph(1).code(), 0);
  EXPECT_EQ(session_->SetConstBase(1, nullptr, kEnough).code(), kParamInvalid);
  EXPECT_EQ(session_->SetConstBase(1, memory_, 1023).code(), kParamInvalid);
  EXPECT_EQ(session_->SetConstBase(1, memory_, 1024).code(), 0);
  EXPECT_EQ(session_->SetConstBase(1, memory_, 1024).code(), kGraphRepeatOperation);
  ASSERT_EQ(session_->LoadGraph(1, {}, nullptr).code(), 0);
  EXPECT_EQ(session_->SetConstBase(1, memory_, 1024).code(), kGraphUnsupported);
  Fake::has_sizes = false;
  AddCompiled(2, kAddText);
  EXPECT_EQ(session_->SetConstBase(2, memory_, kEnough).code(), kFailed);
  EXPECT_EQ(session_->UpdateFeatureBase(2, memory_, kEnough).code(), kFailed);
}

TEST_F(SessionStates, GE_026_028_FeatureBases) {
  AddCompiled(1, kAddText);
  EXPECT_EQ(session_->UpdateFeatureBase(1, nullptr, kEnough).code(), kParamInvalid);
  EXPECT_EQ(session_->UpdateFeatureBase(1, memory_, 2047).code(), kParamInvalid);
  EXPECT_EQ(session_->UpdateFeatureBase(1, memory_, 2048).code(), 0);
  EXPECT_EQ(session_->UpdateFeatureBase(1, memory_, 2048).code(), kGraphRepeatOperation);
  EXPECT_EQ(session_->UpdateRefreshableBase(1, memory_, kEnough).code(), kGraphUnsupported);
  AddCompiled(2, kAddText);
  ASSERT_EQ(session_->LoadGraph(2, {}, nullptr).code(), 0);
  EXPECT_EQ(session_->UpdateFeatureBase(2, memory_, kEnough).code(), kGraphUnsupported);
  // Bases that may move (GE-027).
  AddCompiled(3, kAddText, {{"ge.featureBaseRefreshable", "1"}});
  EXPECT_EQ(session_->UpdateRefreshableBase(3, memory_, 1536).code(), 0);
  EXPECT_EQ(session_->UpdateFeatureBase(3, memory_, kEnough).code(), kGraphUnsupported);
  ASSERT_EQ(session_->LoadGraph(3, {}, nullptr).code(), 0);
  char elsewhere[1];
  EXPECT_EQ(session_->UpdateRefreshableBase(3, elsewhere, 1536).code(), 0);
  EXPECT_EQ(Fake::features, elsewhere);
}

TEST_F(SessionStates, GE_029_FixedBases) {
  AddCompiled(1, kAddText);
  EXPECT_EQ(session_->SetFixedBase(1, MemoryType::kDefault, nullptr, 16).code(), kParamInvalid);
  EXPECT_EQ(session_->SetFixedBase(1, MemoryType::kP2p, nullptr, 0).code(), kGraphUnsupported);
  EXPECT_EQ(session_->SetFixedBase(1, MemoryType::kP2p, memory_, 16).code(), 0);
  EXPECT_THAT(TakeWarnings(), HasSubstr("not used"));
  EXPECT_EQ(session_->SetFixedBase(1, MemoryType::kDefault, memory_, 511).code(), kParamInvalid);
  EXPECT_EQ(session_->SetFixedBase(1, MemoryType::kDefault, memory_, 512).code(), 0);
  EXPECT_EQ(session_->SetFixedBase(1, MemoryType::kDefault, memory_, 512).code(), kGraphRepeatOperation);
  EXPECT_EQ(session_->UpdateFeatureBase(1, memory_, kEnough).code(), kGraphUnsupported);
  EXPECT_EQ(session_->UpdateRefreshableBase(1, memory_, kEnough).code(), 0);
  AddCompiled(2, kAddText);
  EXPECT_EQ(session_->SetFixedBase(2, MemoryType::kDefault, nullptr, 0).code(), 0);
  EXPECT_EQ(session_->SetFixedBase(2, MemoryType::kDefault, nullptr, 0).code(), kGraphRepeatOperation);
  EXPECT_EQ(session_->UpdateRefreshableBase(2, memory_, kEnough).code(), kGraphUnsupported);
  EXPECT_EQ(session_->UpdateFeatureBase(2, memory_, kEnough).code(), 0);
  ASSERT_EQ(session_->LoadGraph(2, {}, nullptr).code(), 0);
  EXPECT_EQ(session_->SetFixedBase(2, MemoryType::kDefault, memory_, 512).code(), kGraphUnsupported);
  Begin({{"ge.exec.staticMemoryPolicy", "4"}}, {});
  AddCompiled(1, kAddText);
  EXPECT_EQ(session_->SetFixedBase(1, MemoryType::kDefault, nullptr, 0).code(), kGraphUnsupported);
}

TEST_F(SessionStates, GE_030_031_LoadOnceThenExecute) {
  ASSERT_EQ(Add(1, kAddText).code(), 0);
  EXPECT_EQ(session_->LoadGraph(1, {}, nullptr).code(), kGraphNotBuilt);
  EXPECT_EQ(session_->Execute(1, stream_, {}, outputs_).code(), kParamInvalid);
  ASSERT_EQ(session_->CompileGraph(1).code(), 0);
  EXPECT_EQ(session_->Execute(1, stream_, {}, outputs_).code(), kParamInvalid);
  EXPECT_EQ(session_->Timeline(1).status().code(), kModelNotLoaded);  // GE-049
  EXPECT_EQ(Text(session_->LoadGraph(1, {{"ge.someKey", "1"}}, nullptr)), "");
  EXPECT_EQ(session_->LoadGraph(1, {}, nullptr).code(), kGraphRepeatOperation);
  EXPECT_TRUE(session_->Timeline(1).ok());
}

TEST_F(SessionStates, GE_032_033_FrozenAndHostInputs) {
  const char* const kThree = R"(graph three
a = Data() : float32 [4]
b = Data() : float32 [4]
c = Data() : float32 [?]
y = AddN(a, b, c) {N = 3}
return y
)";
  const struct {
    bool is_static;
    const char* frozen;
    const char* host;
    bool is_good;
  } kCases[] = {
      {true, "0;2", "", true},         {true, "1,4096,16", "", true}, {true, "0;x", "", false},
      {true, "3", "", false},          {true, "-1", "", false},       {true, "0,4096", "", false},
      {true, "0,0,16", "", false},     {true, "0,-1,16", "", false},  {true, "0", "0", false},
      {true, "0", "1;2", true},        {true, "", "5", false},        {true, "", "1,2", false},
      {false, "1,4096,16", "", true},  {false, "1", "", false},       {false, "2,4096,16", "", false},
      {false, "1,4096,16;", "", true},
  };
  uint32_t id = 0;
  for (const auto& [is_static, frozen, host, is_good] : kCases) {
    Fake::has_sizes = is_static;
    AddCompiled(++id, kThree);
    const Status status =
        session_->LoadGraph(id, {{"ge.exec.frozenInputIndexes", frozen}, {"ge.exec.hostInputIndexes", host}}, nullptr);
    EXPECT_EQ(status.code(), is_good ? 0 : kParamInvalid) << frozen << " " << host << " " << Text(status);
  }
}

TEST_F(SessionStates, GE_042_088_HintsAndGears) {
  const char* const kTwo = R"(graph two
a = Data() : float32 [?, 3]
b = Data() : float32 [?]
y = Identity(a)
return y
)";
  const struct {
    OptionMap options;
    int number;
    const char* text;
  } kCases[] = {
      {{{"ge.inputHintShape", "0:[2, 3];1:[5]"}}, 0, ""},
      {{{"ge.inputHintShape", "0:[-3];1:[5]"}}, 0, ""},
      {{{"ge.inputHintShape", "0:[2,3]"}}, kParamInvalid, "it has 1 shapes"},
      {{{"ge.inputHintShape", "0:[2,3];1:[5];2:[]"}}, kParamInvalid, "none of the 2 inputs"},
      {{{"ge.inputHintShape", "0:[2,4];1:[5]"}}, kParamInvalid, "[2, 4]"},
      {{{"ge.inputHintShape", "0:2,3;1:5"}}, kParamInvalid, "no index with a shape"},
      {{{"ge.inputShape", "a:-1,3;b:-1"}, {"ge.dynamicDims", "1,2;3,4"}, {"ge.dynamicNodeType", "1"}}, 0, ""},
      {{{"ge.inputShape", "a:-1,3;b:-1"}, {"ge.dynamicDims", "1,2"}}, kParamInvalid, "1 gears"},
      {{{"ge.inputShape", "a:-1,3;b:-1"}, {"ge.dynamicDims", "1,2;1,2"}}, kParamInvalid, "twice"},
      {{{"ge.inputShape", "a:-1,3;b:-1"}, {"ge.dynamicDims", "1,-2;3,4"}}, kParamInvalid, "0 and more"},
      {{{"ge.inputShape", "a:-1,3;b:-1"}, {"ge.dynamicDims", "1;2"}}, kParamInvalid, "has 1 sizes"},
      {{{"ge.inputShape", "a:-1,3;c:-1"}, {"ge.dynamicDims", "1,2;3,4"}}, kParamInvalid, "no input"},
      {{{"ge.inputShape", "a:2,3"}, {"ge.dynamicDims", "1;2"}}, kParamInvalid, "no size is -1"},
  };
  uint32_t id = 0;
  for (const auto& [options, number, text] : kCases) {
    ASSERT_EQ(Text(Add(++id, kTwo, options)), "");
    const Status status = session_->CompileGraph(id);
    EXPECT_EQ(status.code(), number) << text << Text(status);
    EXPECT_THAT(Text(status), HasSubstr(text));
  }
  const auto shape = [&](uint32_t graph, size_t input) {
    const auto compiled = *session_->Compiled(graph);
    return compiled->optimised().at(compiled->optimised().inputs[input]).outputs[0].tensor.shape.text();
  };
  EXPECT_EQ(shape(1, 0), "[2, 3]");
  EXPECT_EQ(shape(1, 1), "[5]");
  EXPECT_EQ(shape(2, 0), "[?, 3]");
  // Sizes that stay open are not those of a hint.
  ASSERT_EQ(Add(51, kTwo, {{"ge.inputHintShape", "0:[2, 3];1:[5]"}, {"ge.jit_compile", "2"}}).code(), 0);
  ASSERT_EQ(Text(session_->CompileGraph(51)), "");
  EXPECT_EQ(shape(51, 0), "[?, 3]");
  // What a caller says counts more than a hint.
  ASSERT_EQ(Add(50, kTwo, {{"ge.inputHintShape", "0:[2,3];1:[5]"}}).code(), 0);
  const std::vector<InputMeta> metas{{0, {7, 3}}, {0, {8}}};
  ASSERT_EQ(Text(session_->CompileGraph(50, metas)), "");
  EXPECT_EQ(shape(50, 0), "[7, 3]");
  // Sizes that stay open do so whatever is said.
  AddCompiled(51, kTwo, {{"ge.inputHintShape", "0:[2,3];1:[5]"}, {"ge.jit_compile", "2"}});
  EXPECT_EQ(shape(51, 0), "[?, 3]");
}

TEST_F(SessionStates, GE_034_037_RunsThatCompileThemselves) {
  AddCompiled(1, kAddText);
  std::vector<HostTensor> results;
  EXPECT_EQ(session_->RunAndWait(1, {}, results).code(), kUnsupported);
  EXPECT_EQ(session_->RunLater(1, {}, [](const Status&, std::vector<HostTensor>&) {}).code(), kUnsupported);
  EXPECT_EQ(session_->RunAndWait(2, {}, results).code(), kGraphNotExist);
}

TEST_F(SessionStates, GE_038_Allocators) {
  const auto allocator = std::make_shared<CountingAllocator>();
  EXPECT_NE(session_->RegisterAllocator(nullptr, allocator).code(), 0);
  EXPECT_NE(session_->RegisterAllocator(stream_, nullptr).code(), 0);
  EXPECT_EQ(session_->UnregisterAllocator(stream_).code(), 0);
  EXPECT_EQ(session_->RegisterAllocator(stream_, allocator).code(), 0);
  const auto last = std::make_shared<CountingAllocator>();
  EXPECT_EQ(session_->RegisterAllocator(stream_, last).code(), 0);
  AddCompiled(1, kAddText);
  ASSERT_EQ(session_->LoadGraph(1, {}, stream_).code(), 0);
  EXPECT_EQ(allocator->taken, 0);
  EXPECT_EQ(last->taken, 2);
  // A region with a base of the program's takes nothing (GE-039).
  AddCompiled(2, kAddText);
  ASSERT_EQ(session_->SetConstBase(2, memory_, kEnough).code(), 0);
  ASSERT_EQ(session_->UpdateFeatureBase(2, memory_, kEnough).code(), 0);
  ASSERT_EQ(session_->LoadGraph(2, {}, stream_).code(), 0);
  EXPECT_EQ(last->taken, 2);
  last->refuses = true;
  AddCompiled(3, kAddText);
  EXPECT_EQ(session_->LoadGraph(3, {}, stream_).code(), kOutOfMemory);
  EXPECT_EQ(session_->RemoveGraph(1).code(), 0);
  EXPECT_THAT(last->live, IsEmpty());
}

}  // namespace
}  // namespace reprise::engine
