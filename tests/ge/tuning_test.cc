// SPDX-License-Identifier: Apache-2.0
//
// Tuning, by the functions of libaoe_tuning.so and by those below them.
#include <csignal>
#include <fstream>

#include "compiler/tuning_bank.h"
#include "engine/banks.h"
#include "engine/tuning.h"
#include "engine/tuning_run.h"
#include "engine_fixture.h"
#include "ge/access.h"
#include "ge/ge_api.h"

using AoeOptions = std::map<ge::AscendString, ge::AscendString>;
extern "C" {
uint32_t AoeInitialize(const AoeOptions& options);
uint32_t AoeFinalize();
uint32_t AoeCreateSession(uint64_t& session);
uint32_t AoeDestroySession(uint64_t session);
uint32_t AoeSetGeSession(uint64_t session, ge::Session* ge_session);
uint32_t AoeSetDependGraphs(uint64_t session, const std::vector<ge::Graph>& graphs);
uint32_t AoeSetDependGraphsInputs(uint64_t session, const std::vector<std::vector<ge::Tensor>>& inputs);
uint32_t AoeSetTuningGraph(uint64_t session, const ge::Graph& graph);
uint32_t AoeSetTuningGraphInput(uint64_t session, const std::vector<ge::Tensor>& inputs);
uint32_t AoeTuningGraph(uint64_t session, const AoeOptions& options);
}

namespace reprise::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Two places where fusions have a choice.
constexpr const char* kFusedText = R"(graph fused
x = Data() : float32 [4, 8]
s = Sigmoid(x)
a = Mul(x, s)
e = Exp(a)
l = Log1p(e)
t = Tanh(l)
y = Mul(a, t)
return y
)";

class TuningTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    bank_ = folder_ / "bank";
    work_ = folder_ / "work";
    std::filesystem::create_directories(work_);
    Begin({}, {{"ge.op_bank_path", bank_}});
    SetTuningClock([](const std::string&, const std::string& choice) { return choice == "off" ? 1.0 : 10.0; });
  }
  void TearDown() override {
    SetTuningClock({});
    EXPECT_EQ(AoeFinalize(), 0U);
    EngineTest::TearDown();
  }
  size_t Entries(const std::string& folder) {
    auto bank = compiler::TuningBank::Open(folder);
    return bank.ok() ? (*bank)->size() : 0;
  }
  std::vector<std::string> Types(uint32_t graph) {
    std::vector<std::string> types;
    auto compiled = session_->Compiled(graph);
    if (!compiled.ok()) return types;
    for (const compiler::Node& node : (*compiled)->optimised().nodes) {
      if (!node.is_removed && node.kind == compiler::NodeKind::kOperator) types.push_back(node.type);
    }
    return types;
  }
  static HostTensor Sample(const std::vector<int64_t>& shape) {
    size_t count = 1;
    for (const int64_t size : shape) count *= static_cast<size_t>(size);
    return {0, shape, std::string(count * 4, '\0')};
  }
  uint64_t Open(const std::string& text, std::vector<HostTensor> inputs) {
    auto id = OpenTuning();
    EXPECT_EQ(Text(SetTuningSession(*id, session_->id())), "");
    EXPECT_EQ(Text(SetTuningGraph(*id, Parse(text))), "");
    EXPECT_EQ(Text(SetTuningInputs(*id, std::move(inputs))), "");
    return *id;
  }
  static std::string Outcome(StatusOr<compiler::TuneReport> report) {
    if (report.ok()) return "tried " + std::to_string(report->tried) + ", known " + std::to_string(report->known);
    return Text(std::move(report).status());
  }

  std::string bank_;
  std::string work_;
};

TEST_F(TuningTest, GE_096_TuneAndCompileWithWhatWasMeasured) {
  AddCompiled(1, kFusedText);
  EXPECT_THAT(Types(1), ElementsAre("Swish", "Mish"));

  ASSERT_EQ(AoeInitialize({{"work_path", work_.c_str()}, {"job_type", "1"}}), 0U);
  ge::Session session(AoeOptions{{"ge.op_bank_path", bank_.c_str()}});
  uint64_t id = 0;
  ASSERT_EQ(AoeCreateSession(id), 0U);
  ASSERT_EQ(AoeSetGeSession(id, &session), 0U);
  const ge::TensorDesc desc(ge::Shape({4, 8}), ge::FORMAT_ND, ge::DT_FLOAT);
  const ge::Tensor sample(desc, std::vector<uint8_t>(128));
  ASSERT_EQ(AoeSetDependGraphs(id, {ge::GraphAccess::Wrap(Parse(kAddText))}), 0U);
  const ge::TensorDesc four(ge::Shape({4}), ge::FORMAT_ND, ge::DT_FLOAT);
  ASSERT_EQ(AoeSetDependGraphsInputs(id, {{ge::Tensor(four, std::vector<uint8_t>(16))}}), 0U);
  const ge::Graph subject = ge::GraphAccess::Wrap(Parse(kFusedText));
  ASSERT_EQ(AoeSetTuningGraph(id, subject), 0U);
  ASSERT_EQ(AoeSetTuningGraphInput(id, {sample}), 0U);
  ASSERT_EQ(AoeTuningGraph(id, {}), 0U) << ge::GEGetErrorMsgV2().GetString();
  EXPECT_EQ(Entries(bank_), 2U);
  EXPECT_EQ(Entries(work_), 2U);

  AddCompiled(2, kFusedText);
  EXPECT_THAT(Types(2), ElementsAre("Sigmoid", "Mul", "Exp", "Log1p", "Tanh", "Mul"));

  ASSERT_EQ(AoeSetDependGraphs(id, {}), 0U);
  ASSERT_EQ(AoeSetDependGraphsInputs(id, {}), 0U);
  ASSERT_EQ(AoeSetTuningGraph(id, ge::GraphAccess::Wrap(Parse(kAddText))), 0U);
  ASSERT_EQ(AoeSetTuningGraphInput(id, {ge::Tensor(four, std::vector<uint8_t>(16))}), 0U);
  EXPECT_EQ(AoeTuningGraph(id, {}), 8U) << "nothing is fused";
  EXPECT_EQ(AoeDestroySession(id), 0U);
  EXPECT_EQ(AoeDestroySession(id), static_cast<uint32_t>(kParamInvalid));
  EXPECT_THAT(ge::GEGetErrorMsgV2().GetString(), HasSubstr("no tuning session"));
}

volatile std::sig_atomic_t g_signals = 0;

TEST_F(TuningTest, AnInterruptKeepsWhatWasMeasured) {
  ASSERT_EQ(Text(BeginTuning({{"work_path", work_}, {"job_type", "1"}})), "");
  const uint64_t id = Open(kFusedText, {Sample({4, 8})});
  const auto before = std::signal(SIGINT, [](int) { g_signals = g_signals + 1; });
  SetTuningClock([](const std::string&, const std::string&) {
    std::raise(SIGINT);
    return 1.0;
  });
  EXPECT_THAT(Outcome(RunTuning(id, {})), HasSubstr("interrupted by SIGINT, with 1 choices measured"));
  EXPECT_EQ(g_signals, 1) << "the program's handler comes after the tuning";
  SetTuningClock([](const std::string&, const std::string&) { return 1.0; });
  EXPECT_EQ(Outcome(RunTuning(id, {})), "tried 1, known 1");
  std::signal(SIGINT, before);
  EXPECT_EQ(Entries(bank_), 2U);
}

TEST_F(TuningTest, Refusals) {
  EXPECT_THAT(Outcome(RunTuning(1, {})), HasSubstr("no tuning session 1"));
  EXPECT_THAT(Text(OpenTuning().status()), HasSubstr("before AoeInitialize"));
  EXPECT_THAT(Text(BeginTuning({{"work_path", work_ + "/none"}})), HasSubstr("no folder that exists"));
  EXPECT_THAT(Text(BeginTuning({{"job_type", "3"}})), HasSubstr("neither 1 nor 2"));
  EXPECT_EQ(Text(BeginTuning({{"work_path", work_}})), "");
  TakeWarnings();
  EXPECT_EQ(Text(BeginTuning({})), "");
  EXPECT_THAT(TakeWarnings(), HasSubstr("called before"));
  auto id = OpenTuning();
  ASSERT_TRUE(id.ok());
  EXPECT_THAT(Outcome(RunTuning(*id, {})), HasSubstr("before AoeSetGeSession"));
  EXPECT_THAT(Text(SetTuningSession(*id, 0)), HasSubstr("not there"));
  EXPECT_EQ(AoeSetGeSession(*id, nullptr), static_cast<uint32_t>(kParamInvalid));
  EXPECT_EQ(Text(SetTuningSession(*id, session_->id())), "");
  EXPECT_THAT(Outcome(RunTuning(*id, {})), HasSubstr("before AoeSetTuningGraph"));
  EXPECT_EQ(Text(SetTuningGraph(*id, Parse(kOpenText))), "");
  EXPECT_THAT(Outcome(RunTuning(*id, {})), HasSubstr("0 inputs are given, the graph has 1"));
  EXPECT_EQ(Text(SetTuningInputs(*id, {Sample({2, 4})})), "");
  EXPECT_THAT(Outcome(RunTuning(*id, {})), HasSubstr("has the shape [2, 4]"));
  EXPECT_EQ(Text(SetTuningInputs(*id, {Sample({2, 3})})), "");
  EXPECT_THAT(Outcome(RunTuning(*id, {{"ge.aoe_config_file", folder_ / "none"}})), HasSubstr("no file that exists"));
  EXPECT_EQ(Text(SetDependInputs(*id, {{}})), "");
  EXPECT_THAT(Outcome(RunTuning(*id, {})), HasSubstr("0 graphs to run first, and inputs for 1"));
  EXPECT_EQ(Text(SetDependInputs(*id, {})), "");
  EXPECT_EQ(Outcome(RunTuning(*id, {})), "tried 0, known 0");
  // A bank that cannot be made.
  std::ofstream(folder_ / "file") << "text";
  Begin({}, {{"ge.op_bank_path", folder_ / "file"}});
  EXPECT_EQ(Text(SetTuningSession(*id, session_->id())), "");
  EXPECT_THAT(Outcome(RunTuning(*id, {})), HasSubstr("cannot be made"));
}

TEST_F(TuningTest, WhereTheBankIs) {
  EXPECT_THAT(BankFolders("environment", "option", "/home/me"),
              ElementsAre("environment", "option", "/home/me/Ascend/latest/data/aoe/custom/op"));
  EXPECT_THAT(BankFolders("", "", ""), IsEmpty());
  const OptionSet options({}, {{"ge.op_bank_path", bank_}}, {});
  EXPECT_FALSE(std::filesystem::exists(bank_));
  auto bank = OpenBank(bank_);
  ASSERT_TRUE(bank.ok());
  EXPECT_EQ(OpenBank(bank_)->get(), bank->get());
  // What another process adds is seen.
  auto other = compiler::TuningBank::Open(bank_);
  ASSERT_EQ(Text((*other)->Add("key", {"on", 1})), "");
  const auto found = FindBank(options);
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(found->Find("key").has_value());
  EXPECT_EQ(FindBank(options), found);
}

TEST_F(TuningTest, ABankThatWasRemovedIsMadeAnew) {
  ASSERT_EQ(Text(BeginTuning({{"work_path", work_}, {"job_type", "1"}})), "");
  const uint64_t id = Open(kFusedText, {Sample({4, 8})});
  EXPECT_EQ(Outcome(RunTuning(id, {})), "tried 2, known 0");
  std::filesystem::remove_all(bank_);
  std::filesystem::remove_all(work_);
  std::filesystem::create_directories(work_);
  EXPECT_EQ(Outcome(RunTuning(id, {})), "tried 2, known 0");
  EXPECT_EQ(Entries(bank_), 2U);
}

TEST_F(TuningTest, ProgressInOneLine) {
  EXPECT_EQ(ProgressLine::Text(1, 4, 2, "MatMul", 80), "tuning [#####...............] 1/4, about 6 s left: MatMul");
  EXPECT_EQ(ProgressLine::Text(1, 100, 60, "MatMul", 24), "tuning [................");
}

}  // namespace
}  // namespace reprise::engine
