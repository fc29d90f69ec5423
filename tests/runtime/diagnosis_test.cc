// SPDX-License-Identifier: Apache-2.0
//
// What a person and a tool learn from a refusal: call sites with REPRISE_TRACE_CALLS, JSON with REPRISE_ERROR_JSON.
#include <dlfcn.h>
#include <reprise/error.h>
#include <reprise/kernel.h>
#include <reprise/verbose.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "../support/program_folder.h"
#include "../unit/scale.h"
#include "fixture.h"
#include "support/json.h"

namespace reprise::testing {
namespace {

std::string JsonPath() { return "diagnosis_test_" + std::to_string(::getpid()) + ".jsonl"; }

__attribute__((constructor)) void SetEnvironment(int argc, char** argv, char**) {
  if (argc > 1 && std::string(argv[1]).find("DISABLED_Untraced") != std::string::npos) return;
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

// Neither the function nor the program exports anything for it; all they have is -g.
__attribute__((noinline)) int RefusedInTheProgram() {
  const int code = aclrtSynchronizeStream(reinterpret_cast<aclrtStream>(1));
  asm volatile("");
  return code;
}

TEST_F(Diagnosis, CallsAreNamedByLine) {
  DropMessage();
  EXPECT_EQ(107017, RefusedInTheProgram());
  EXPECT_THAT(Message(), ::testing::ContainsRegex("diagnosis_test\\.cc:[0-9]+ in .*RefusedInTheProgram"));
  // The same of a library that was loaded when others had been looked for.
  void* const library = ::dlopen(BesideProgram("libruntime_diagnosis_library.so").c_str(), RTLD_NOW);
  ASSERT_NE(library, nullptr) << ::dlerror();
  const auto call = reinterpret_cast<int (*)()>(::dlsym(library, "CallFromLibrary"));
  ASSERT_NE(call, nullptr);
  DropMessage();
  EXPECT_EQ(107017, call());
  EXPECT_THAT(Message(), ::testing::ContainsRegex("diagnosis_library\\.cc:[0-9]+ in .*RefusedInALibrary"));
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
  for (std::string line; std::getline(file, line);) errors.push_back(ParseJson(line));
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
  for (std::string line; std::getline(file, line);) errors.push_back(ParseJson(line));
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

// ---- Faults: this program once more, which dies of a wild access ----

REPRISE_KERNEL(wild, REPRISE_KERNEL_VECTOR, (uint64_t * cell, uint64_t at)) {
  if (ctx.block_index + 1 != ctx.block_count) return;  // the last one, which another thread may run
  *reinterpret_cast<volatile uint64_t*>(at) = *cell;
}
REPRISE_KERNEL(fine, REPRISE_KERNEL_VECTOR, (uint64_t * cell)) { *cell = 1; }
REPRISE_KERNEL(killed, REPRISE_KERNEL_VECTOR, (uint64_t*)) { std::raise(SIGFPE); }

__attribute__((noinline)) void CrashInHostFunction(void* at) { *static_cast<volatile int*>(at) = 1; }

void* const kWild = reinterpret_cast<void*>(uintptr_t{0x10});

void EndAsItWishes(int, siginfo_t*, void*) {
  static constexpr char kWords[] = "a handler of the program\n";
  (void)!::write(STDERR_FILENO, kWords, sizeof kWords - 1);
  ::_exit(7);
}

class Faults : public Runtime {
 public:
  static std::string SaidInChild(const std::string& test) { return InChild(test).said; }

 protected:
  struct End {
    int status;
    std::string said;
  };
  // Runs the disabled test of that name in a process of its own.
  static End InChild(const std::string& test, const char* report = "1") {
    int ends[2];
    EXPECT_EQ(0, ::pipe(ends));
    const pid_t pid = ::fork();
    if (pid == 0) {
      const rlimit no_core{0, 0};
      ::setrlimit(RLIMIT_CORE, &no_core);
      ::setenv("REPRISE_REPORT_FAULTS", report, 1);
      ::dup2(ends[1], STDERR_FILENO);
      const std::string filter = "--gtest_filter=Faults.DISABLED_" + test;
      ::execl("/proc/self/exe", "fault", filter.c_str(), "--gtest_also_run_disabled_tests",
              "--gtest_output=", "--gtest_catch_exceptions=0", nullptr);
      ::_exit(99);
    }
    ::close(ends[1]);
    End end{};
    char part[4096];
    for (ssize_t got; (got = ::read(ends[0], part, sizeof part)) > 0;) end.said.append(part, static_cast<size_t>(got));
    ::close(ends[0]);
    EXPECT_EQ(pid, ::waitpid(pid, &end.status, 0));
    return end;
  }
  // The default action, or the sanitizer's, comes behind the report.
  static void ExpectDeathOf(const End& end, int signal) {
    if (kSanitized) {
      EXPECT_NE(end.status, 0);
      EXPECT_THAT(end.said, ::testing::HasSubstr("Sanitizer"));
    } else {
      EXPECT_TRUE(WIFSIGNALED(end.status) && WTERMSIG(end.status) == signal) << end.status << end.said;
    }
  }
  void SetUp() override {
    Runtime::SetUp();
    static const RepriseKernelDesc kernels[] = {wild_desc, fine_desc, killed_desc};
    static const RepriseKernelTable table = {REPRISE_KERNEL_ABI_VERSION, 3, kernels};
    static const int32_t registered = repriseRegisterKernels("diagnosis", &table);
    ASSERT_EQ(registered, 0);
    MUST(aclrtBinaryLoadFromFile("diagnosis", nullptr, &binary_));
    stream_ = NewStream();
    cell_ = NewMemory(64);
  }
  void TearDown() override {
    EXPECT_EQ(0, aclrtBinaryUnLoad(binary_));
    Runtime::TearDown();
  }
  void Launch(const char* name, uint32_t blocks = 1) {
    aclrtFuncHandle function = nullptr;
    MUST(aclrtBinaryGetFunction(binary_, name, &function));
    void* args[] = {cell_, kWild};
    MUST(aclrtLaunchKernelWithHostArgs(function, blocks, stream_, nullptr, args, sizeof args, nullptr, 0));
  }
  void SynchronizeForEver() { (void)aclrtSynchronizeStream(stream_); }

  aclrtBinHandle binary_ = nullptr;
  aclrtStream stream_ = nullptr;
  void* cell_ = nullptr;
};

TEST_F(Faults, DISABLED_Kernel) {
  Launch("fine");
  Launch("wild");
  SynchronizeForEver();
}
TEST_F(Faults, AKernelIsNamedWithItsArguments) {
  const End end = InChild("Kernel");
  ExpectDeathOf(end, SIGSEGV);
  for (const char* part :
       {"reprise: SIGSEGV at 0x10 (in no allocation) on thread ", "in kernel wild, task 1 (KERNEL_AICORE) of stream ",
        "arguments: 16 bytes at 0x", "slot 0: 0x", "  device memory [0x", ") of device 0, byte 0 of ",
        "slot 1: 0x0000000000000010\n"}) {
    EXPECT_THAT(end.said, ::testing::HasSubstr(part));
  }
}

TEST_F(Faults, DISABLED_ManyBlocks) {
  Launch("wild", 64);
  SynchronizeForEver();
}
TEST_F(Faults, ABlockOnAnotherThreadIsNamedAsWell) {
  const End end = InChild("ManyBlocks");
  ExpectDeathOf(end, SIGSEGV);
  EXPECT_THAT(end.said, ::testing::HasSubstr("in kernel wild, task 0 (KERNEL_AICORE) of stream "));
  EXPECT_THAT(end.said, ::testing::HasSubstr("of 64 blocks"));
}

TEST_F(Faults, DISABLED_Graph) {
  MUST(aclmdlRICaptureBegin(stream_, ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < 3; ++i) Launch("fine");
  MUST(aclrtMemsetAsync(cell_, 64, 0, 64, stream_));
  Launch("wild");
  Launch("fine");
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream_, &model));
  MUST(aclmdlRIExecuteAsync(model, stream_));
  SynchronizeForEver();
}
TEST_F(Faults, AKernelOfAGraphIsNamed) {
  const End end = InChild("Graph");
  ExpectDeathOf(end, SIGSEGV);
  EXPECT_THAT(end.said, ::testing::HasSubstr("in kernel wild, task 4 (KERNEL_AICORE) of graph stream "));
  EXPECT_THAT(end.said, ::testing::HasSubstr("slot 1: 0x0000000000000010\n"));
}

TEST_F(Faults, DISABLED_HostFunction) {
  MUST(aclrtLaunchHostFunc(stream_, CrashInHostFunction, kWild));
  SynchronizeForEver();
}
TEST_F(Faults, AHostFunctionIsNamedAlthoughNobodyExportsIt) {
  const End end = InChild("HostFunction");
  ExpectDeathOf(end, SIGSEGV);
  EXPECT_THAT(end.said, ::testing::HasSubstr("in host function "));
  EXPECT_THAT(end.said, ::testing::HasSubstr("CrashInHostFunction"));
  EXPECT_THAT(end.said, ::testing::HasSubstr(" in runtime_diagnosis, task 0 of stream "));
}

TEST_F(Faults, DISABLED_Sent) {
  Launch("killed");
  SynchronizeForEver();
}
TEST_F(Faults, ASignalThatWasSentEndsTheProcess) {
  const End end = InChild("Sent");
  ExpectDeathOf(end, SIGFPE);
  EXPECT_THAT(end.said, ::testing::HasSubstr("reprise: SIGFPE, which a process has sent, on thread "));
  EXPECT_THAT(end.said, ::testing::HasSubstr("in kernel killed, task 0"));
}

TEST_F(Faults, DISABLED_Handler) {
  Launch("wild");
  SynchronizeForEver();
}
// Before the first call of the child's, which sets handlers with its first work.
const bool kHasHandler = [] {
  const std::string word = "Faults.DISABLED_Handler";
  std::ifstream arguments("/proc/self/cmdline");
  const std::string all((std::istreambuf_iterator<char>(arguments)), {});
  if (all.find(word) == std::string::npos) return false;
  struct sigaction own {};
  own.sa_sigaction = EndAsItWishes;
  own.sa_flags = SA_SIGINFO;
  return ::sigaction(SIGSEGV, &own, nullptr) == 0;
}();
TEST_F(Faults, AHandlerOfTheProgramComesBehindTheReport) {
  const End end = InChild("Handler");
  EXPECT_TRUE(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 7) << end.status << end.said;
  EXPECT_LT(end.said.find("in kernel wild"), end.said.find("a handler of the program"));
  EXPECT_THAT(end.said, ::testing::HasSubstr("a handler of the program"));
}

TEST_F(Faults, DISABLED_Untraced) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(107017, aclrtSynchronizeStream(reinterpret_cast<aclrtStream>(1)));
    const char* const message = aclGetRecentErrMsg();
    std::fprintf(stderr, "message: %s", message != nullptr ? message : "none");
  }
}
// Not in the environment of this program, whose calls are traced.
TEST(Hint, OneMessageSaysHowCallsAreTraced) {
  ::unsetenv("REPRISE_TRACE_CALLS");
  ::unsetenv("REPRISE_ERROR_JSON");
  const std::string said = Faults::SaidInChild("Untraced");
  ::setenv("REPRISE_TRACE_CALLS", "1", 1);
  ::setenv("REPRISE_ERROR_JSON", JsonPath().c_str(), 1);
  const size_t at = said.find("REPRISE_TRACE_CALLS=1");
  EXPECT_NE(at, std::string::npos) << said;
  EXPECT_EQ(said.find("REPRISE_TRACE_CALLS=1", at + 1), std::string::npos) << said;
}

TEST_F(Faults, NothingIsSaidWithoutTheWish) {
  const End end = InChild("Kernel", "0");
  ExpectDeathOf(end, SIGSEGV);
  EXPECT_THAT(end.said, ::testing::Not(::testing::HasSubstr("reprise: SIG")));
}

}  // namespace
}  // namespace reprise::testing
