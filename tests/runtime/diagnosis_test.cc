// SPDX-License-Identifier: Apache-2.0
//
// What a person and a tool learn from a refusal: call sites with REPRISE_TRACE_CALLS, JSON with REPRISE_ERROR_JSON.
#include <reprise/error.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fixture.h"

namespace reprise::testing {
namespace {

std::string JsonPath() { return "diagnosis_test_" + std::to_string(::getpid()) + ".jsonl"; }

__attribute__((constructor)) void SetEnvironment(int, char** argv, char**) {
  static const std::string path = JsonPath();
  RestartWith(argv, {{"REPRISE_TRACE_CALLS", "1"}, {"REPRISE_ERROR_JSON", path.c_str()}});
}

class Diagnosis : public Runtime {
 protected:
  static void TearDownTestSuite() { std::remove(JsonPath().c_str()); }
  static std::string Message() {
    const char* const message = aclGetRecentErrMsg();
    return message != nullptr ? message : "";
  }
};

// Not inlined and exported, so that the message can name it.
__attribute__((noinline, visibility("default"))) int ForkForgetfully(aclrtStream side, aclrtEvent fork) {
  const int code = aclrtStreamWaitEvent(side, fork);
  asm volatile("");  // no tail call: the frame has to be there
  return code;
}

TEST_F(Diagnosis, UnjoinedStreamNamesItsForkAndItsLastTask) {
  const aclrtStream origin = NewStream(), side = NewStream();
  void* const memory = NewMemory(64);
  aclrtEvent fork = nullptr;
  MUST(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
  MUST(aclmdlRICaptureBegin(origin, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  MUST(aclrtRecordEvent(fork, origin));
  MUST(ForkForgetfully(side, fork));
  MUST(aclrtMemsetAsync(memory, 64, 1, 64, side));
  aclmdlRI model = nullptr;
  DropMessage();
  EXPECT_EQ(107025, aclmdlRICaptureEnd(origin, &model));
  const std::string message = Message();
  EXPECT_THAT(message, ::testing::HasSubstr("aclrtStreamWaitEvent, called by thread"));
  EXPECT_THAT(message, ::testing::HasSubstr("aclrtMemsetAsync, called by thread"));
  EXPECT_THAT(message, ::testing::HasSubstr("runtime_diagnosis")) << "the program";
  EXPECT_THAT(message, ::testing::HasSubstr("aclmdlRICaptureEnd, called by thread"));
  EXPECT_ACL(0, aclrtDestroyEvent(fork));
}

TEST_F(Diagnosis, EveryRefusalIsOneJsonObject) {
  int local = 0;
  EXPECT_ACL(107017, aclrtSynchronizeStream(&local));
  EXPECT_ACL(100000, aclrtMalloc(nullptr, 64, ACL_MEM_MALLOC_HUGE_FIRST));
  std::vector<nlohmann::json> errors;
  std::ifstream file(JsonPath());
  for (std::string line; std::getline(file, line);) errors.push_back(nlohmann::json::parse(line));
  ASSERT_GE(errors.size(), 2u);
  const nlohmann::json& last = errors.back();
  EXPECT_EQ(last["code"], 100000);
  EXPECT_EQ(last["api"], "aclrtMalloc");
  EXPECT_EQ(last["pid"], ::getpid());
  EXPECT_FALSE(last["what"].get<std::string>().empty());
  EXPECT_FALSE(last["solution"].get<std::string>().empty());
  EXPECT_THAT(last["call"].get<std::string>(), ::testing::HasSubstr("called by thread"));
  EXPECT_EQ(errors[errors.size() - 2]["api"], "aclrtSynchronizeStream");
}

// What a language above the library adds, and what it refuses by itself.
TEST_F(Diagnosis, LanguagesAboveCompleteLinesAndWriteTheirOwn) {
  ASSERT_TRUE(WritesRefusals());
  SetRefusalDescriber([](Refusal& refusal) {
    refusal.hint = "say \"wait\"";
    refusal.kind = "Refused";
    refusal.place = "train.py:3 in step";
  });
  int local = 0;
  EXPECT_ACL(107017, aclrtSynchronizeStream(&local));
  SetRefusalDescriber(nullptr);
  EXPECT_ACL(107017, aclrtSynchronizeStream(&local));
  WriteRefusal({"torch.empty", 107000, "no such layout", "", "use another", "ValueError", "stream 3", "train.py:4"});
  std::vector<nlohmann::json> errors;
  std::ifstream file(JsonPath());
  for (std::string line; std::getline(file, line);) errors.push_back(nlohmann::json::parse(line));
  ASSERT_GE(errors.size(), 3u);
  const nlohmann::json &completed = *(errors.end() - 3), &plain = *(errors.end() - 2), &own = errors.back();
  EXPECT_EQ(completed["solution"], "say \"wait\"");
  EXPECT_EQ(completed["type"], "Refused");
  EXPECT_EQ(completed["python"], "train.py:3 in step");
  EXPECT_EQ(completed["api"], "aclrtSynchronizeStream");
  EXPECT_FALSE(plain.contains("type") || plain.contains("python") || plain.contains("stream"));
  EXPECT_EQ(own["api"], "torch.empty");
  EXPECT_EQ(own["name"], "ACL_ERROR_RT_PARAM_INVALID");
  EXPECT_EQ(own["what"], "no such layout");
  EXPECT_EQ(own["stream"], "stream 3");
}

}  // namespace
}  // namespace reprise::testing
