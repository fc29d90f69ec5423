// SPDX-License-Identifier: Apache-2.0
//
// What a person and a tool learn from a refusal: call sites with REPRISE_TRACE_CALLS, JSON with REPRISE_ERROR_JSON.
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

// The words fit the call that was made.
TEST_F(Diagnosis, AMemsetIsNoCopy) {
  const aclrtStream stream = NewStream();
  void* const memory = NewMemory(64);
  MUST(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  MUST(aclmdlRICaptureTaskGrpBegin(stream));
  DropMessage();
  EXPECT_EQ(507009, aclrtMemsetAsync(memory, 64, 1, 64, stream));
  EXPECT_THAT(Message(), ::testing::HasSubstr("a memset (MEMCPY_ASYNC) task"));
  aclmdlRI model = nullptr;
  EXPECT_ACL(507903, aclmdlRICaptureEnd(stream, &model));
  DropMessage();
  EXPECT_EQ(107000, aclrtMemset(memory, 64, 1, 65));
  EXPECT_THAT(Message(), ::testing::Not(::testing::HasSubstr("copy")));
}

TEST_F(Diagnosis, AnEventThatACaptureRecordedWasRecorded) {
  const aclrtStream stream = NewStream();
  aclrtEvent event = nullptr;
  MUST(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE));
  MUST(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  MUST(aclrtRecordEvent(event, stream));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream, &model));
  MUST(aclmdlRIExecuteAsync(model, stream));
  MUST(aclrtSynchronizeStream(stream));
  float ms = 0;
  DropMessage();
  EXPECT_EQ(507000, aclrtEventElapsedTime(&ms, event, event));
  std::string message = Message();
  EXPECT_THAT(message, ::testing::HasSubstr("was recorded in a capture only"));
  EXPECT_THAT(message, ::testing::HasSubstr("before and after aclmdlRIExecuteAsync"));
  EXPECT_THAT(message, ::testing::Not(::testing::HasSubstr("never recorded")));
  // Of one that was not, there is nothing else to say.
  aclrtEvent other = nullptr;
  MUST(aclrtCreateEventExWithFlag(&other, ACL_EVENT_TIME_LINE));
  EXPECT_EQ(507000, aclrtEventElapsedTime(&ms, other, other));
  EXPECT_THAT(Message(), ::testing::HasSubstr("never recorded"));
  MUST(aclmdlRIDestroy(model));
  MUST(aclrtDestroyEvent(event));
  MUST(aclrtDestroyEvent(other));
}

// A host function must not wait, and has no context: to set one there would be the wrong advice.
TEST_F(Diagnosis, AHostFunctionIsNotToldToSetADevice) {
  struct Heard {
    aclrtStream stream = nullptr;
    int code = 0;
    std::string message;
  } heard;
  heard.stream = NewStream();
  const auto call = [](void* argument) {
    auto& mine = *static_cast<Heard*>(argument);
    aclrtEvent event = nullptr;
    mine.code = aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC);
    mine.message = Message();
  };
  MUST(aclrtLaunchHostFunc(heard.stream, call, &heard));
  MUST(aclrtSynchronizeStream(heard.stream));
  EXPECT_EQ(107002, heard.code);
  EXPECT_THAT(heard.message, ::testing::HasSubstr("a host function has no current context"));
  EXPECT_THAT(heard.message, ::testing::HasSubstr("on a thread of the program"));
  EXPECT_THAT(heard.message, ::testing::Not(::testing::HasSubstr("aclrtSetDevice")));
  EXPECT_EQ(FaultOfWords(heard.message), "");
}

TEST_F(Diagnosis, ATextFileIsNoKernelBinary) {
  const std::string path = "diagnosis_test_" + std::to_string(::getpid()) + ".txt";
  std::ofstream(path) << "not a kernel\n";
  aclrtBinHandle binary = nullptr;
  DropMessage();
  EXPECT_EQ(107000, aclrtBinaryLoadFromFile(path.c_str(), nullptr, &binary));
  std::string message = Message();
  EXPECT_THAT(message, ::testing::HasSubstr("neither an ELF file nor a JSON description"));
  EXPECT_THAT(message, ::testing::HasSubstr("the path of a shared object with kernels"));
  EXPECT_EQ(107000, aclrtBinaryLoadFromData("not a kernel", 12, nullptr, &binary));
  EXPECT_THAT(Message(), ::testing::HasSubstr("pass the content of a shared object with kernels"));
  std::remove(path.c_str());
}

TEST_F(Diagnosis, ARefusalNamesItsCallOnce) {
  const aclrtStream stream = NewStream();
  MUST(aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
  DropMessage();
  EXPECT_EQ(107027, aclrtSynchronizeStream(stream));
  EXPECT_THAT(Message(), ::testing::HasSubstr(": aclrtSynchronizeStream failed: not allowed on stream"));
  EXPECT_EQ(107027, aclrtSynchronizeDevice());
  EXPECT_THAT(Message(),
              ::testing::HasSubstr("aclrtSynchronizeDevice failed: not allowed while a stream of the context "
                                   "is being captured: it waits for the whole device"));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream, &model));
}

// What a stale handle, one of another sort, and none at all are told.
TEST_F(Diagnosis, AdviceAboutAHandleFitsWhatItIs) {
  const aclrtStream stream = NewStream();
  MUST(aclrtDestroyStream(stream));
  DropMessage();
  EXPECT_EQ(107017, aclrtDestroyStream(stream));
  EXPECT_THAT(Message(), ::testing::HasSubstr("Solution: use the stream before it is destroyed, and destroy it once."));
  aclrtEvent event = nullptr;
  MUST(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
  EXPECT_EQ(107017, aclrtSynchronizeStream(event));
  EXPECT_THAT(Message(), ::testing::HasSubstr("Solution: pass a handle of kind stream for this parameter."));
  int local = 0;
  EXPECT_EQ(107017, aclrtSynchronizeStream(&local));
  EXPECT_THAT(Message(), ::testing::HasSubstr("Solution: pass the stream handle that its creating call wrote."));
  MUST(aclrtDestroyEvent(event));
}

// FaultOfWords, which every refusal of the tests passes through, finds what it is there to find.
TEST_F(Diagnosis, BadWordsAreFound) {
  const auto words = [](const std::string& cause, const std::string& advice, const std::string& culprit) {
    return FaultOfWords("EE1001 (1): Title(107000): aclrtFoo failed: " + cause + "\n        Solution: " + advice +
                        ".\n        TraceBack (most recent call last):\n        Culprit: " + culprit + ".\n");
  };
  EXPECT_EQ(words("size is 0, must be at least 1", "pass 1 or more for size", "parameter size"), "");
  EXPECT_NE(words("size is 0", "correct the value that the text names", ""), "");
  EXPECT_NE(words("size is 0", "look the number up in docs/errors.md", ""), "");
  EXPECT_NE(words("x: nobody waits for its last record", "nobody waits for its last record", ""), "");
  EXPECT_NE(words("x", "pass the pointer that aclrtMalloc returned", "pass the pointer that aclrtMalloc returned"), "");
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

}  // namespace
}  // namespace reprise::testing
