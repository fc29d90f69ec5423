// SPDX-License-Identifier: Apache-2.0
//
// What a person and a tool learn from a refusal: call sites with REPRISE_TRACE_CALLS, JSON with REPRISE_ERROR_JSON.
#include <reprise/verbose.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fixture.h"

namespace reprise::testing {
namespace {

std::string JsonPath() { return "diagnosis_test_" + std::to_string(::getpid()) + ".jsonl"; }

__attribute__((constructor)) void SetEnvironment(int, char** argv, char**) {
  static const std::string path = JsonPath();
  RestartWith(argv, {{"REPRISE_VERBOSE", "plan,capture;filter=captured|capture_"},
                     {"REPRISE_TRACE_CALLS", "1"},
                     {"REPRISE_ERROR_JSON", path.c_str()}});
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

uint64_t CountOf(const std::string& name) {
  for (const EventCounter& counter : EventCounters()) {
    if (counter.name == name) return counter.count;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

TEST_F(Diagnosis, VerboseTellsWhyAGraphKeepsToItsStreams) {
  const aclrtStream origin = NewStream(), side = NewStream();
  auto* const cell = static_cast<uint64_t*>(NewMemory(64));
  aclrtEvent fork = nullptr, join = nullptr;
  MUST(aclrtCreateEventExWithFlag(&fork, ACL_EVENT_SYNC));
  MUST(aclrtCreateEventExWithFlag(&join, ACL_EVENT_SYNC));
  const uint64_t kept = CountOf("graph_as_captured"), ended = CountOf("capture_ended"),
                 failed = CountOf("capture_failed");
  ::testing::internal::CaptureStderr();
  MUST(aclmdlRICaptureBegin(origin, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  MUST(aclrtRecordEvent(fork, origin));
  MUST(aclrtStreamWaitEvent(side, fork));
  MUST(aclrtValueWait(cell, 1, ACL_STREAM_WAIT_VALUE_GEQ, side));
  MUST(aclrtRecordEvent(join, side));
  MUST(aclrtStreamWaitEvent(origin, join));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(origin, &model));
  aclmdlRI none = nullptr;
  EXPECT_ACL(107029, aclmdlRICaptureEnd(origin, &none));
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, ::testing::HasSubstr("reprise: plan: graph_as_captured: model "));
  EXPECT_THAT(told, ::testing::HasSubstr("may wait for something outside of the graph"));
  EXPECT_THAT(told, ::testing::HasSubstr("reprise: capture: capture_ended: capture of model "));
  EXPECT_EQ(CountOf("graph_as_captured"), kept + 1);
  EXPECT_EQ(CountOf("capture_ended"), ended + 1);
  EXPECT_EQ(CountOf("capture_failed"), failed) << "nothing was captured that could fail";
  MUST(aclmdlRIDestroy(model));
  EXPECT_ACL(0, aclrtDestroyEvent(fork));
  EXPECT_ACL(0, aclrtDestroyEvent(join));
}

}  // namespace
}  // namespace reprise::testing
