// SPDX-License-Identifier: Apache-2.0
//
// What users of captured graphs suffer from elsewhere, one test each: what they read or get here instead. The numbers
// are the specified ones; the words are ours.
#include <acl/acl_rt_memory_soma.h>
#include <poll.h>
#include <reprise/kernel.h>
#include <reprise/reprise.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>

#include "fixture.h"
#include "support/json.h"

namespace reprise::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kMaxStreams = 24;
constexpr int kMaxTasks = 300;

__attribute__((constructor)) void SetEnvironment(int, char** argv, char**) {
  RestartWith(argv, {{"REPRISE_TRACE_CALLS", "1"},
                     {"REPRISE_MAX_STREAMS", "24"},
                     {"REPRISE_MAX_STREAM_TASKS", "300"},
                     {"REPRISE_STALL_MS", "150"}});
}

REPRISE_KERNEL(add, REPRISE_KERNEL_VECTOR, (uint64_t * cell, uint64_t value)) { *cell += value; }
REPRISE_KERNEL(nop, REPRISE_KERNEL_VECTOR, ()) {}

const RepriseKernelTable& Kernels() {
  static const RepriseKernelDesc kernels[] = {add_desc, nop_desc};
  static const RepriseKernelTable table = {REPRISE_KERNEL_ABI_VERSION, 2, kernels};
  return table;
}

class Pains : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    static const int32_t registered = repriseRegisterKernels("pains", &Kernels());
    ASSERT_EQ(registered, 0);
    MUST(aclrtBinaryLoadFromFile("pains", nullptr, &binary_));
    MUST(aclrtBinaryGetFunction(binary_, "add", &add_));
    MUST(aclrtBinaryGetFunction(binary_, "nop", &nop_));
    stream_ = NewStream();
    cell_ = static_cast<uint64_t*>(NewMemory(64));
  }
  void TearDown() override {
    EXPECT_EQ(0, aclrtBinaryUnLoad(binary_));
    Runtime::TearDown();
  }

  static std::string Message() {
    const char* const message = aclGetRecentErrMsg();
    return message != nullptr ? message : "";
  }
  // The message of a call that must fail with `code`.
  template <class Call>
  static std::string Refusal(int code, Call call) {
    DropMessage();
    EXPECT_EQ(call(), code);
    const std::string message = Message();
    EXPECT_THAT(message, AllOf(HasSubstr(std::to_string(code)), HasSubstr("Solution: ")));
    return message;
  }
  // The message of a call that times out and can be repeated. What is parked has a moment to answer, which a loaded
  // machine may let pass; so the call is repeated until `parts` have all been told, or for a minute.
  template <class Call>
  static std::string Timeout(const std::vector<std::string>& parts, Call call) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
    for (;;) {
      const std::string message = Refusal(507046, call);
      const bool all = std::all_of(parts.begin(), parts.end(),
                                   [&](const std::string& part) { return message.find(part) != std::string::npos; });
      if (all || HasFailure() || std::chrono::steady_clock::now() >= end) return message;
    }
  }
  static aclrtEvent NewEvent() {
    aclrtEvent event = nullptr;
    EXPECT_EQ(0, aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
    return event;
  }
  int Add(aclrtStream stream, uint64_t value) { return AddTo(stream, cell_, value); }
  int AddTo(aclrtStream stream, uint64_t* cell, uint64_t value) {
    struct {
      uint64_t* cell;
      uint64_t value;
    } arguments{cell, value};
    return aclrtLaunchKernelWithHostArgs(add_, 1, stream, nullptr, &arguments, sizeof arguments, nullptr, 0);
  }
  static void Begin(aclrtStream stream, aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL) {
    ASSERT_EQ(0, aclmdlRICaptureBegin(stream, mode)) << Message();
  }
  static aclmdlRI End(aclrtStream stream) {
    aclmdlRI model = nullptr;
    EXPECT_EQ(0, aclmdlRICaptureEnd(stream, &model)) << Message();
    return model;
  }
  void Replay(aclmdlRI model) {
    MUST(aclmdlRIExecuteAsync(model, stream_));
    MUST(aclrtSynchronizeStream(stream_));
  }
  static std::vector<nlohmann::json> Dump(aclmdlRI model, uint32_t flags) {
    const std::string path = "pains_test_" + std::to_string(::getpid()) + ".json";
    EXPECT_EQ(0, aclmdlRIDebugJsonPrint(model, path.c_str(), flags)) << Message();
    std::ifstream file(path);
    const auto tasks = ParseJson(file);
    std::remove(path.c_str());
    EXPECT_TRUE(tasks.is_array());
    return {tasks.begin(), tasks.end()};
  }

  aclrtBinHandle binary_ = nullptr;
  aclrtFuncHandle add_ = nullptr;
  aclrtFuncHandle nop_ = nullptr;
  aclrtStream stream_ = nullptr;
  uint64_t* cell_ = nullptr;
};

// A stream was not joined: a bare number, then the clean-up fails with another one that hides it.
TEST_F(Pains, P01_UnjoinedStreamIsNamedAndTheCleanUpRepeatsTheCause) {
  const aclrtStream side = NewStream();
  uint32_t tag = 77;
  aclrtStreamAttrValue value{};
  value.userCustomTag = tag;
  MUST(aclrtSetStreamAttribute(side, ACL_STREAM_ATTR_USER_CUSTOM_TAG, &value));
  const aclrtEvent fork = NewEvent();
  Begin(stream_);
  MUST(aclrtRecordEvent(fork, stream_));
  MUST(aclrtStreamWaitEvent(side, fork));
  MUST(Add(side, 1));
  aclmdlRI model = nullptr;
  const std::string first = Refusal(107025, [&] { return aclmdlRICaptureEnd(stream_, &model); });
  EXPECT_THAT(first, AllOf(HasSubstr("(tag 77)"), HasSubstr("event"), HasSubstr("add"), HasSubstr("thread"),
                           HasSubstr("aclrtStreamWaitEvent, called by"), HasSubstr("aclrtStreamWaitEvent(stream")));
  const std::string again = Refusal(107029, [&] { return aclmdlRICaptureEnd(stream_, &model); });
  EXPECT_THAT(again, AllOf(HasSubstr("107025"), HasSubstr("not joined")));
  // Everything is usable again at once.
  Begin(stream_);
  MUST(Add(stream_, 1));
  Replay(End(stream_));
  EXPECT_EQ(*cell_, 1);
}

// Streams run out during a capture; nobody says who has them.
TEST_F(Pains, P02_ExhaustedStreamsNameTheirHolders) {
  std::vector<aclmdlRI> models;
  for (int i = 0; i < 3; ++i) {
    Begin(stream_);
    MUST(Add(stream_, 1));
    models.push_back(End(stream_));
  }
  MUST(aclmdlRISetName(models[1], "decode"));
  std::vector<aclrtStream> streams;
  aclrtStream last = nullptr;
  while (aclrtCreateStream(&last) == 0) streams.push_back(last);
  const std::string message = Refusal(207008, [&] { return aclrtCreateStream(&last); });
  EXPECT_THAT(message, AllOf(HasSubstr("all 24 are in use"), HasSubstr("held by the program"), HasSubstr("\"decode\""),
                             HasSubstr("REPRISE_MAX_STREAMS")));
  // A capture needs one more; the stream that would not fit is named.
  const std::string in_capture = Refusal(207008, [&] { return aclmdlRICaptureBegin(stream_, {}); });
  EXPECT_THAT(in_capture, HasSubstr("of the capture"));
  for (const aclrtStream stream : streams) MUST(aclrtDestroyStream(stream));
  Begin(stream_);
  aclmdlRI model = End(stream_);
  EXPECT_NE(model, nullptr);
}

// How many graphs fit is guessed with constants.
TEST_F(Pains, P03_BillOfAGraphIsKnownBeforeItIsFinished) {
  uint32_t available = 0;
  MUST(aclrtGetStreamAvailableNum(&available));
  const aclrtStream side = NewStream();
  const aclrtEvent fork = NewEvent(), join = NewEvent();
  aclmdlRICaptureStatus status{};
  aclmdlRI open = nullptr;
  Begin(stream_);
  MUST(aclrtRecordEvent(fork, stream_));
  MUST(aclrtStreamWaitEvent(side, fork));
  MUST(Add(side, 1));
  MUST(aclmdlRICaptureGetInfo(stream_, &status, &open));
  GraphStats bill{};
  MUST(GetGraphStats(open, &bill));
  EXPECT_EQ(bill.streams, 2);
  EXPECT_EQ(bill.events, 1);
  EXPECT_EQ(bill.tasks, 3);
  EXPECT_GT(bill.memory_bytes, 0);
  MUST(aclrtRecordEvent(join, side));
  MUST(aclrtStreamWaitEvent(stream_, join));
  const aclmdlRI model = End(stream_);
  uint32_t left = 0;
  MUST(aclrtGetStreamAvailableNum(&left));
  EXPECT_EQ(available - left, 1 + bill.streams) << "the side stream and what the bill says";
  const nlohmann::json shown = Dump(model, 0).front()["args"]["Bill"];
  EXPECT_EQ(shown["Streams"], 2);
  EXPECT_EQ(shown["Events"], 2);
  EXPECT_EQ(shown["Tasks"], Dump(model, 0).size());
  EXPECT_GT(shown["Bytes"], 0);
  MUST(aclmdlRIDestroy(model));
  MUST(aclrtGetStreamAvailableNum(&left));
  EXPECT_EQ(available - left, 1);
}

TEST_F(Pains, P03_TasksOfAStreamAreLimitedAsConfigured) {
  Begin(stream_);
  for (int i = 0; i < kMaxTasks; ++i) MUST(Add(stream_, 1));
  const std::string message = Refusal(507002, [&] { return Add(stream_, 1); });
  EXPECT_THAT(message, AllOf(HasSubstr("300 tasks"), HasSubstr("REPRISE_MAX_STREAM_TASKS")));
  aclmdlRI model = nullptr;
  EXPECT_THAT(Refusal(507903, [&] { return aclmdlRICaptureEnd(stream_, &model); }), HasSubstr("507002"));
  Begin(stream_);
  for (int i = 0; i + 1 < kMaxTasks; ++i) MUST(Add(stream_, 1));
  Replay(End(stream_));
  EXPECT_EQ(*cell_, kMaxTasks - 1);
}

// The text points the wrong way, and the first failure is swallowed by those that follow from it.
TEST_F(Pains, P04_TheFirstFailureIsKept) {
  const aclrtStream other = NewStream();
  const aclrtEvent mine = NewEvent();
  Begin(stream_);
  Begin(other);
  MUST(aclrtRecordEvent(mine, stream_));
  EXPECT_EQ(107032, aclrtStreamWaitEvent(other, mine));
  EXPECT_EQ(0, Add(stream_, 1));  // accepted and dropped
  aclmdlRI model = nullptr;
  const std::string end = Refusal(507903, [&] { return aclmdlRICaptureEnd(stream_, &model); });
  EXPECT_THAT(end, AllOf(HasSubstr("107032"), HasSubstr("another capture")));
  EXPECT_THAT(Refusal(507903, [&] { return aclmdlRICaptureEnd(other, &model); }), HasSubstr("107032"));
}

// Pageable host memory in a captured copy: silent garbage.
TEST_F(Pains, P06_PageableMemoryInACaptureIsRefusedByName) {
  std::vector<char> host(64);
  Begin(stream_);
  const std::string message =
      Refusal(107000, [&] { return aclrtMemcpyAsync(cell_, 64, host.data(), 64, ACL_MEMCPY_HOST_TO_DEVICE, stream_); });
  EXPECT_THAT(message, AllOf(HasSubstr("src"), HasSubstr("pageable"), HasSubstr("aclrtMallocHost")));
  void* pinned = nullptr;
  MUST(aclrtMallocHost(&pinned, 64));
  *static_cast<uint64_t*>(pinned) = 42;
  MUST(aclrtMemcpyAsync(cell_, 64, pinned, 64, ACL_MEMCPY_HOST_TO_DEVICE, stream_));
  Replay(End(stream_));
  EXPECT_EQ(*cell_, 42);
  MUST(aclrtFreeHost(pinned));
}

// What a graph reads is freed before it is replayed.
TEST_F(Pains, P07_ReplayAfterFreeNamesTaskMemoryAndWhoFreedIt) {
  void* const source = NewMemory(4 << 20);  // large: the pages are gone with it
  Begin(stream_);
  MUST(Add(stream_, 1));
  MUST(aclrtMemcpyAsync(cell_, 8, source, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_));
  const aclmdlRI model = End(stream_);
  Replay(model);
  MUST(aclrtFree(source));
  const std::string message = Refusal(107000, [&] { return aclmdlRIExecuteAsync(model, stream_); });
  EXPECT_THAT(message, AllOf(HasSubstr("task 1"), HasSubstr("MEMCPY"), HasSubstr("device memory 0x"),
                             HasSubstr("was freed by thread"), HasSubstr("aclrtFree, called by")));
  // It stays refused, and harms nobody else.
  EXPECT_ACL(107000, aclmdlRIExecuteAsync(model, stream_));
  MUST(Add(stream_, 1));
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(*cell_, 1);
  MUST(aclmdlRIDestroy(model));
}

TEST_F(Pains, P07_ArgumentsOfKernelsCountToo) {
  auto* const counter = static_cast<uint64_t*>(NewMemory(4 << 20));
  Begin(stream_);
  MUST(AddTo(stream_, counter, 5));
  const aclmdlRI model = End(stream_);
  MUST(aclrtFree(NewMemory(4096)));  // of no interest to the graph
  Replay(model);
  EXPECT_EQ(*counter, 5);
  MUST(aclrtFree(counter));
  const std::string message = Refusal(107000, [&] { return aclmdlRIExecuteAsync(model, stream_); });
  EXPECT_THAT(message, AllOf(HasSubstr("task 0"), HasSubstr("add")));
}

// Memory that is unmapped and mapped again at its place (sleep and wake of a server) is as good as before.
TEST_F(Pains, P07_MemoryMappedAgainIsFine) {
  constexpr size_t kBytes = 2 << 20;
  aclrtPhysicalMemProp prop{};
  prop.handleType = ACL_MEM_HANDLE_TYPE_NONE;
  prop.allocationType = ACL_MEM_ALLOCATION_TYPE_PINNED;
  prop.memAttr = ACL_HBM_MEM_HUGE;
  prop.location = {0, ACL_MEM_LOCATION_TYPE_DEVICE};
  void* address = nullptr;
  aclrtDrvMemHandle first = nullptr, second = nullptr;
  MUST(aclrtReserveMemAddress(&address, kBytes, 0, nullptr, 0));
  MUST(aclrtMallocPhysical(&first, kBytes, &prop, 0));
  MUST(aclrtMapMem(address, kBytes, 0, first, 0));
  auto* const counter = static_cast<uint64_t*>(address);
  *counter = 0;
  Begin(stream_);
  MUST(AddTo(stream_, counter, 3));
  const aclmdlRI model = End(stream_);
  Replay(model);
  MUST(aclrtUnmapMem(address));
  EXPECT_ACL(107000, aclmdlRIExecuteAsync(model, stream_));
  MUST(aclrtMallocPhysical(&second, kBytes, &prop, 0));
  MUST(aclrtMapMem(address, kBytes, 0, second, 0));
  *counter = 0;
  Replay(model);
  EXPECT_EQ(*counter, 3);
  MUST(aclmdlRIDestroy(model));
  MUST(aclrtUnmapMem(address));
  MUST(aclrtFreePhysical(first));
  MUST(aclrtFreePhysical(second));
  MUST(aclrtReleaseMemAddress(address));
}

// Host scalars are frozen without a word.
TEST_F(Pains, P09_FrozenValuesAreListed) {
  Begin(stream_);
  MUST(Add(stream_, 0xABCD));
  const aclmdlRI model = End(stream_);
  const std::string frozen = Dump(model, 1).front()["args"]["Frozen Values"];
  EXPECT_EQ(frozen, "[1]=0xabcd") << "the address in front of it is no frozen value";
}

// An update races with the replays around it, or needs a device synchronisation.
TEST_F(Pains, P10_UpdatesAreOrderedWithReplays) {
  const aclrtStream updater = NewStream();
  aclrtTaskGrp group = nullptr;
  Begin(stream_);
  MUST(aclmdlRICaptureTaskGrpBegin(stream_));
  MUST(Add(stream_, 1));
  MUST(aclmdlRICaptureTaskGrpEnd(stream_, &group));
  const aclmdlRI model = End(stream_);
  Gate gate;
  gate.Block(stream_);  // nothing has run when the last update is submitted
  uint64_t expected = 0;
  for (uint64_t value = 1; value <= 50; ++value) {
    MUST(aclmdlRICaptureTaskUpdateBegin(updater, group));
    MUST(Add(updater, value));
    MUST(aclmdlRICaptureTaskUpdateEnd(updater));
    const aclrtEvent updated = NewEvent(), replayed = NewEvent();
    MUST(aclrtRecordEvent(updated, updater));
    MUST(aclrtStreamWaitEvent(stream_, updated));
    MUST(aclmdlRIExecuteAsync(model, stream_));
    MUST(aclrtRecordEvent(replayed, stream_));
    MUST(aclrtStreamWaitEvent(updater, replayed));
    expected += value;
  }
  gate.Open();
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(*cell_, expected);
}

// A task group is left open; the end of the capture says so without a place.
TEST_F(Pains, P11_OpenTaskGroupNamesWhereItBegan) {
  Begin(stream_);
  MUST(aclmdlRICaptureTaskGrpBegin(stream_));
  MUST(Add(stream_, 1));
  const std::string nested = Refusal(107033, [&] { return aclmdlRICaptureTaskGrpBegin(stream_); });
  EXPECT_THAT(nested, HasSubstr("aclmdlRICaptureTaskGrpBegin, called by thread"));
  aclmdlRI model = nullptr;
  const std::string message = Refusal(107033, [&] { return aclmdlRICaptureEnd(stream_, &model); });
  EXPECT_THAT(message, AllOf(HasSubstr("still open"), HasSubstr("aclmdlRICaptureTaskGrpBegin, called by thread"),
                             HasSubstr("aclmdlRICaptureTaskGrpEnd")));
}

// A failed capture leaves memory and the state of the allocator behind.
TEST_F(Pains, P16_FailedCaptureGivesEverythingBack) {
  size_t free_before = 0, total = 0, free_after = 0;
  uint32_t streams_before = 0, streams_after = 0, events_before = 0, events_after = 0;
  const aclrtStream side = NewStream();
  const aclrtEvent fork = NewEvent();
  MUST(aclrtGetMemInfo(ACL_HBM_MEM, &free_before, &total));
  MUST(aclrtGetStreamAvailableNum(&streams_before));
  MUST(aclrtGetEventAvailNum(&events_before));
  for (int i = 0; i < 100; ++i) {
    Begin(stream_);
    void* block = nullptr;
    aclrtMemPool pool = nullptr;
    aclrtMemPoolProps props{};
    props.location.type = ACL_MEM_LOCATION_TYPE_DEVICE;
    MUST(aclrtMemPoolCreate(&pool, &props));
    MUST(aclrtMemPoolMallocAsync(&block, 4096, pool, stream_));
    MUST(aclrtRecordEvent(fork, stream_));
    MUST(aclrtStreamWaitEvent(side, fork));
    aclmdlRI model = nullptr;
    EXPECT_EQ(107025, aclmdlRICaptureEnd(stream_, &model));
    MUST(aclrtMemPoolDestroy(pool));
  }
  MUST(aclrtGetMemInfo(ACL_HBM_MEM, &free_after, &total));
  MUST(aclrtGetStreamAvailableNum(&streams_after));
  MUST(aclrtGetEventAvailNum(&events_after));
  EXPECT_EQ(free_after, free_before);
  EXPECT_EQ(streams_after, streams_before);
  EXPECT_EQ(events_after, events_before);
}

// A failed capture poisons streams, threads and the process.
TEST_F(Pains, P17_AfterAFailedCaptureAllIsAsIfItHadNeverBegun) {
  const aclrtStream side = NewStream();
  const aclrtEvent fork = NewEvent();
  Begin(stream_);
  MUST(aclrtRecordEvent(fork, stream_));
  MUST(aclrtStreamWaitEvent(side, fork));
  MUST(Add(side, 100));
  EXPECT_EQ(107030, aclrtMemset(cell_, 8, 0, 8));
  aclmdlRI model = nullptr;
  EXPECT_EQ(107025, aclmdlRICaptureEnd(stream_, &model));
  for (const aclrtStream stream : {stream_, side}) {
    aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE;
    MUST(aclmdlRICaptureGetInfo(stream, &status, nullptr));
    EXPECT_EQ(status, ACL_MODEL_RI_CAPTURE_STATUS_NONE);
    MUST(Add(stream, 1));
    MUST(aclrtSynchronizeStream(stream));
  }
  MUST(aclrtMemset(cell_, 8, 0, 8));  // what the capture forbade
  MUST(aclrtSynchronizeDevice());
  MUST(aclrtSynchronizeEvent(fork));
}

// Another thread breaks a capture in global mode.
TEST_F(Pains, P18_OffendingThreadAndCallAreNamed) {
  Begin(stream_);
  MUST(Add(stream_, 1));
  aclrtContext context = nullptr;
  MUST(aclrtGetCurrentContext(&context));
  std::string message;
  std::thread loader([&] {
    MUST(aclrtSetCurrentContext(context));
    message = Refusal(107030, [&] { return aclrtMemset(cell_, 8, 0, 8); });
    // The way out that the message names.
    aclmdlRICaptureMode mode = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
    MUST(aclmdlRICaptureThreadExchangeMode(&mode));
    MUST(aclrtMemset(cell_, 8, 0, 8));
  });
  loader.join();
  EXPECT_THAT(message, AllOf(HasSubstr("aclrtMemset"), HasSubstr("on thread"), HasSubstr("begun by thread"),
                             HasSubstr("mode GLOBAL"), HasSubstr("aclmdlRICaptureBegin, called by thread"),
                             HasSubstr("aclmdlRICaptureThreadExchangeMode")));
  Replay(End(stream_));
  EXPECT_EQ(*cell_, 1) << "the capture went on";
}

// An operator copies synchronously while it is captured.
TEST_F(Pains, P20_SynchronousCopyNamesTheAsynchronousForm) {
  uint64_t host = 7;
  Begin(stream_);
  const std::string message =
      Refusal(107030, [&] { return aclrtMemcpy(cell_, 8, &host, 8, ACL_MEMCPY_HOST_TO_DEVICE); });
  EXPECT_THAT(message, AllOf(HasSubstr("aclrtMemcpy, called by thread"), HasSubstr("asynchronous form")));
  End(stream_);
}

// Two captures meet.
TEST_F(Pains, P33_MeetingCapturesAreBothNamed) {
  const aclrtStream other = NewStream();
  const aclrtEvent mine = NewEvent();
  Begin(stream_);
  Begin(other);
  MUST(aclrtRecordEvent(mine, stream_));
  const std::string message = Refusal(107032, [&] { return aclrtStreamWaitEvent(other, mine); });
  const auto first = message.find("capture of model");
  ASSERT_NE(first, std::string::npos);
  EXPECT_NE(message.find("capture of model", first + 1), std::string::npos) << "the second session\n" << message;
  aclmdlRI model = nullptr;
  EXPECT_EQ(507903, aclmdlRICaptureEnd(stream_, &model));
  EXPECT_EQ(507903, aclmdlRICaptureEnd(other, &model));
}

// A graph is launched inside a capture.
TEST_F(Pains, P34_LaunchInsideACaptureSaysWhatToDo) {
  Begin(stream_);
  MUST(Add(stream_, 1));
  const aclmdlRI inner = End(stream_);
  Begin(stream_);
  const std::string message = Refusal(107027, [&] { return aclmdlRIExecuteAsync(inner, stream_); });
  EXPECT_THAT(message, AllOf(HasSubstr("begun by thread"), HasSubstr("on another stream"), HasSubstr("body")));
  MUST(Add(stream_, 2));
  Replay(End(stream_));
  EXPECT_EQ(*cell_, 2);
}

// Membership of streams breaks on cycles and destroyed streams.
TEST_F(Pains, P36_CyclesAndDestroyedStreams) {
  const aclrtStream side = NewStream();
  const aclrtEvent there = NewEvent(), back = NewEvent();
  Begin(stream_);
  for (int i = 0; i < 10; ++i) {
    MUST(aclrtRecordEvent(there, stream_));
    MUST(aclrtStreamWaitEvent(side, there));
    MUST(Add(side, 1));
    MUST(aclrtRecordEvent(back, side));
    MUST(aclrtStreamWaitEvent(stream_, back));
    MUST(Add(stream_, 1));
  }
  EXPECT_NE(0, aclrtDestroyStream(side)) << "it takes part";
  const aclmdlRI model = End(stream_);
  MUST(aclrtDestroyStream(side));  // the graph has a stream of its own
  MUST(aclrtDestroyEvent(there));
  Replay(model);
  EXPECT_EQ(*cell_, 20);
}

// A wait that nothing will satisfy hangs without a word.
TEST_F(Pains, P39_TimeoutSaysWhatIsWaitedFor) {
  const aclrtStream other = NewStream();
  aclrtNotify notify = nullptr;
  uint32_t id = 0;
  MUST(aclrtCreateNotify(&notify, 0));
  MUST(aclrtGetNotifyId(notify, &id));
  const aclrtEvent event = NewEvent();
  MUST(aclrtWaitAndResetNotify(notify, other, 0));
  MUST(aclrtRecordEvent(event, other));
  MUST(aclrtStreamWaitEvent(stream_, event));
  const std::string held_by = "NOTIFY_WAIT of notify " + std::to_string(id);
  const std::string message =
      Timeout({"EVENT_WAIT", held_by}, [&] { return aclrtSynchronizeStreamWithTimeout(stream_, 20); });
  EXPECT_THAT(message, AllOf(HasSubstr("EVENT_WAIT"), HasSubstr(held_by)));
  MUST(aclrtRecordNotify(notify, NewStream()));
  MUST(aclrtSynchronizeStream(stream_));
  MUST(aclrtDestroyNotify(notify));
}

TEST_F(Pains, P39_ReplayThatHangsSaysWhichTaskOfTheGraph) {
  Begin(stream_);
  MUST(aclrtValueWait(cell_, 1, ACL_STREAM_WAIT_VALUE_EQ, stream_));
  const aclmdlRI model = End(stream_);
  MUST(aclmdlRIExecuteAsync(model, stream_));
  const std::string message =
      Timeout({"graph stream", "WAIT_VALUE at 0x"}, [&] { return aclrtSynchronizeStreamWithTimeout(stream_, 20); });
  EXPECT_THAT(message, AllOf(HasSubstr("graph stream"), HasSubstr("WAIT_VALUE at 0x"), HasSubstr("model")));
  MUST(aclrtValueWrite(cell_, 1, 0, NewStream()));
  MUST(aclrtSynchronizeStream(stream_));
}

TEST_F(Pains, P39_BuiltModelThatHangsSaysWhichTask) {
  aclrtStream head = nullptr;
  MUST(aclrtCreateStreamWithConfig(&head, 0, ACL_STREAM_PERSISTENT));
  aclmdlRI model = nullptr;
  MUST(aclmdlRIBuildBegin(&model, 0));
  MUST(aclmdlRIBindStream(model, head, ACL_MODEL_STREAM_FLAG_HEAD));
  MUST(aclrtValueWait(cell_, 1, ACL_STREAM_WAIT_VALUE_EQ, head));
  MUST(aclmdlRIEndTask(model, head));
  MUST(aclmdlRIBuildEnd(model, nullptr));
  const std::string message = Timeout({"graph stream", "WAIT_VALUE at 0x"}, [&] { return aclmdlRIExecute(model, 20); });
  EXPECT_THAT(message, AllOf(HasSubstr("graph stream"), HasSubstr("WAIT_VALUE at 0x")));
  MUST(aclrtValueWrite(cell_, 1, 0, stream_));
  MUST(aclrtSynchronizeStream(stream_));
  MUST(aclmdlRIExecute(model, kPatience));  // behind those that timed out
  MUST(aclmdlRIDestroy(model));
}

// Standard error of the process goes to a pipe while this lives, and what was not read then to where it went before.
class StderrPipe {
 public:
  StderrPipe() {
    int ends[2];
    EXPECT_EQ(0, ::pipe(ends));
    read_ = ends[0];
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[1]);
  }
  StderrPipe(const StderrPipe&) = delete;
  StderrPipe& operator=(const StderrPipe&) = delete;
  ~StderrPipe() {
    while (!Read(0).empty()) {
    }
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    ::close(read_);
    std::fputs(said_.c_str(), stderr);
  }

  /// What has come within `ms`, or was there; empty when nothing came.
  std::string Read(int ms) {
    pollfd waiting{read_, POLLIN, 0};
    if (::poll(&waiting, 1, ms) <= 0) return "";
    char part[4096];
    const ssize_t got = ::read(read_, part, sizeof part);
    if (got <= 0) return "";
    said_.append(part, static_cast<size_t>(got));
    return {part, static_cast<size_t>(got)};
  }

 private:
  const int before_ = ::dup(STDERR_FILENO);
  int read_ = -1;
  std::string said_;
};

TEST_F(Pains, P39_EndlessSynchronisationSpeaksUp) {
  const aclrtStream writer = NewStream();
  MUST(aclrtValueWait(cell_, 1, ACL_STREAM_WAIT_VALUE_EQ, stream_));
  aclrtContext context = nullptr;
  MUST(aclrtGetCurrentContext(&context));
  std::vector<std::thread> waiters;
  std::string said;
  const auto tells = [&said] {
    return said.find("without progress") != std::string::npos && said.find("WAIT_VALUE at 0x") != std::string::npos;
  };
  {
    StderrPipe standard_error;
    // A waiter speaks once, and only if what is parked answers it in time. On a loaded machine that may fail: then the
    // next waiter asks.
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
    while (!tells() && std::chrono::steady_clock::now() < end) {
      waiters.emplace_back([&] {
        MUST(aclrtSetCurrentContext(context));
        MUST(aclrtSynchronizeStream(stream_));
      });
      for (std::string part; !tells() && !(part = standard_error.Read(2000)).empty();) said += part;
    }
    MUST(aclrtValueWrite(cell_, 1, 0, writer));
    for (std::thread& waiter : waiters) waiter.join();
  }
  EXPECT_THAT(said, AllOf(HasSubstr("without progress"), HasSubstr("WAIT_VALUE at 0x")));
}

// A host function that waits for what comes behind it would never end.
struct SelfWait {
  aclrtContext context;
  aclrtStream stream;
  int64_t timeout_ms;  // -1: synchronises without a limit
  bool whole_device;
  int code = -1;
  std::string said;
};
void WaitForMyself(void* argument) {
  auto* wait = static_cast<SelfWait*>(argument);
  (void)aclrtSetCurrentContext(wait->context);
  DropMessage();
  wait->code = wait->whole_device ? aclrtSynchronizeDevice()
               : wait->timeout_ms < 0
                   ? aclrtSynchronizeStream(wait->stream)
                   : aclrtSynchronizeStreamWithTimeout(wait->stream, static_cast<int32_t>(wait->timeout_ms));
  const char* message = aclGetRecentErrMsg();
  wait->said = message != nullptr ? message : "";
}

TEST_F(Pains, P39_AHostFunctionThatWaitsForItselfIsTold) {
  SelfWait wait{};
  wait.stream = stream_;
  MUST(aclrtGetCurrentContext(&wait.context));
  for (const bool whole_device : {false, true}) {
    for (const bool captured : {false, true}) {
      wait.timeout_ms = -1;
      wait.whole_device = whole_device;
      wait.code = -1;
      if (captured) Begin(stream_);
      MUST(aclrtLaunchHostFunc(stream_, WaitForMyself, &wait));
      MUST(Add(stream_, 1));
      if (captured) Replay(End(stream_));
      EXPECT_ACL(0, aclrtSynchronizeStream(stream_));
      EXPECT_EQ(wait.code, 507000) << whole_device << captured;
      EXPECT_THAT(wait.said, HasSubstr("waits for that stream, and so for itself"));
    }
  }
  EXPECT_EQ(*cell_, 4);
  // With a limit it ends by itself, and says why nothing came.
  wait.whole_device = false;
  wait.timeout_ms = 5;
  MUST(aclrtLaunchHostFunc(stream_, WaitForMyself, &wait));
  EXPECT_ACL(0, aclrtSynchronizeStream(stream_));
  EXPECT_EQ(wait.code, 507046);
  EXPECT_THAT(wait.said, AllOf(HasSubstr("host function"), HasSubstr("which waits for it: a deadlock")));
  // Another stream is fine.
  wait.stream = NewStream();
  wait.timeout_ms = -1;
  MUST(aclrtLaunchHostFunc(stream_, WaitForMyself, &wait));
  EXPECT_ACL(0, aclrtSynchronizeStream(stream_));
  EXPECT_EQ(wait.code, 0) << wait.said;
}

std::string NumberOf(aclrtStream stream) {
  int32_t id = -1;
  EXPECT_EQ(0, aclrtStreamGetId(stream, &id));
  return std::to_string(id);
}

// What runs is told as what is parked is.
std::atomic<bool> g_spins{false};
REPRISE_KERNEL(spin, REPRISE_KERNEL_VECTOR, (uint64_t * cell)) {
  while (g_spins.load()) sched_yield();
  *cell += 1;
}

TEST_F(Pains, P39_WhatRunsIsTold) {
  {
    Gate gate;
    gate.Block(stream_);
    const std::string said = AwaitParked(stream_, "host function");
    EXPECT_THAT(said, AllOf(HasSubstr("runs on thread"), HasSubstr("stream " + NumberOf(stream_) + ", task ")));
    // A host function that waits for that one.
    const aclrtStream second = NewStream();
    SelfWait wait{};
    wait.stream = stream_;
    wait.timeout_ms = -1;
    MUST(aclrtGetCurrentContext(&wait.context));
    MUST(aclrtLaunchHostFunc(second, WaitForMyself, &wait));
    AwaitParked(second, "and waits for stream " + NumberOf(stream_));
    gate.Open();
    EXPECT_ACL(0, aclrtSynchronizeStream(second));
    EXPECT_EQ(wait.code, 0) << wait.said;
  }
  static const RepriseKernelDesc kernels[] = {spin_desc};
  static const RepriseKernelTable table = {REPRISE_KERNEL_ABI_VERSION, 1, kernels};
  static const int32_t registered = repriseRegisterKernels("pains_spin", &table);
  ASSERT_EQ(registered, 0);
  aclrtBinHandle binary = nullptr;
  aclrtFuncHandle spins = nullptr;
  MUST(aclrtBinaryLoadFromFile("pains_spin", nullptr, &binary));
  MUST(aclrtBinaryGetFunction(binary, "spin", &spins));
  g_spins = true;
  MUST(aclrtLaunchKernelWithHostArgs(spins, 1, stream_, nullptr, &cell_, sizeof cell_, nullptr, 0));
  const std::string said = AwaitParked(stream_, "KERNEL_AICORE runs");
  g_spins = false;
  EXPECT_THAT(said, HasSubstr("stream " + NumberOf(stream_) + ", task "));
  EXPECT_ACL(0, aclrtSynchronizeStream(stream_));
  // The same of a graph.
  Begin(stream_);
  MUST(aclrtLaunchKernelWithHostArgs(spins, 1, stream_, nullptr, &cell_, sizeof cell_, nullptr, 0));
  const aclmdlRI model = End(stream_);
  g_spins = true;
  MUST(aclmdlRIExecuteAsync(model, stream_));
  AwaitParked(stream_, "MODEL_EXECUTE");
  g_spins = false;
  EXPECT_ACL(0, aclrtSynchronizeStream(stream_));
  EXPECT_EQ(*cell_, 2);
  EXPECT_EQ(0, aclrtBinaryUnLoad(binary));
}

// The thread that synchronises does the work itself as a rule, and cannot tell then that it makes no progress.
TEST_F(Pains, P39_AKernelThatDoesNotEndIsToldByName) {
  static const RepriseKernelDesc kernels[] = {spin_desc};
  static const RepriseKernelTable table = {REPRISE_KERNEL_ABI_VERSION, 1, kernels};
  static const int32_t registered = repriseRegisterKernels("pains_endless", &table);
  ASSERT_EQ(registered, 0);
  aclrtBinHandle binary = nullptr;
  aclrtFuncHandle spins = nullptr;
  MUST(aclrtBinaryLoadFromFile("pains_endless", nullptr, &binary));
  MUST(aclrtBinaryGetFunction(binary, "spin", &spins));
  for (const bool captured : {false, true}) {
    SCOPED_TRACE(captured);
    aclmdlRI model = nullptr;
    if (captured) {
      Begin(stream_);
      MUST(Add(stream_, 1));
    }
    g_spins = true;
    const auto launch = [&] {
      MUST(aclrtLaunchKernelWithHostArgs(spins, 1, stream_, nullptr, &cell_, sizeof cell_, nullptr, 0));
    };
    if (captured) {
      launch();
      model = End(stream_);
    }
    std::string said;
    {
      StderrPipe standard_error;
      // The main thread reads; another one synchronises, and may well run the kernel.
      aclrtContext context = nullptr;
      MUST(aclrtGetCurrentContext(&context));
      // A waiter speaks once, which may be before a worker of a loaded machine has begun: then the next one waits.
      std::vector<std::thread> waiters;
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
      while (said.find("kernel spin") == std::string::npos && std::chrono::steady_clock::now() < end) {
        waiters.emplace_back([&, launches = waiters.empty()] {
          MUST(aclrtSetCurrentContext(context));
          if (launches && captured) {
            MUST(aclmdlRIExecuteAsync(model, stream_));
          } else if (launches) {
            launch();
          }
          MUST(aclrtSynchronizeStream(stream_));
        });
        for (std::string part;
             said.find("kernel spin") == std::string::npos && !(part = standard_error.Read(2000)).empty();) {
          said += part;
        }
      }
      g_spins = false;
      for (std::thread& waiter : waiters) waiter.join();
    }
    EXPECT_THAT(said, AllOf(HasSubstr("without progress"), HasSubstr("kernel spin"), HasSubstr("on thread ")));
  }
  EXPECT_EQ(0, aclrtBinaryUnLoad(binary));
}

// What a host function would wait for in vain is refused at once, whichever call it is.
struct Inside {
  aclrtContext context = nullptr;
  std::function<int()> call;
  int code = -1;
  std::string said;
  static void Run(void* argument) {
    auto* inside = static_cast<Inside*>(argument);
    (void)aclrtSetCurrentContext(inside->context);
    DropMessage();
    inside->code = inside->call();
    const char* message = aclGetRecentErrMsg();
    inside->said = message != nullptr ? message : "";
  }
};

TEST_F(Pains, P39_EveryWaitOfAHostFunctionForItselfIsRefused) {
  Inside inside;
  MUST(aclrtGetCurrentContext(&inside.context));
  const aclrtEvent behind = NewEvent();
  aclrtEvent before = nullptr;
  MUST(aclrtCreateEvent(&before));
  MUST(aclrtRecordEvent(before, stream_));
  aclmdlRI model = nullptr;
  struct Case {
    int code;
    const char* words;
    std::function<int()> call;
  };
  const std::vector<Case> cases = {
      {507000, "waits for that stream, and so for itself", [&] { return aclrtSynchronizeStream(stream_); }},
      {507000, "waits for that stream, and so for itself", [] { return aclrtSynchronizeDevice(); }},
      {507000, "recorded behind it", [&] { return aclrtSynchronizeEvent(behind); }},
      {0, "", [&] { return aclrtSynchronizeEvent(before); }},
      {507000, "destroys that stream", [&] { return aclrtDestroyStream(stream_); }},
      {507000, "destroys that stream", [&] { return aclrtDestroyStreamForce(stream_); }},
      {507000, "resets the device", [] { return aclrtResetDevice(0); }},
      {507000, "resets the device", [] { return aclrtResetDeviceForce(0); }},
  };
  for (const Case& one : cases) {
    Gate gate;
    gate.Block(stream_);
    inside.call = one.call;
    MUST(aclrtLaunchHostFunc(stream_, Inside::Run, &inside));
    MUST(aclrtRecordEvent(behind, stream_));
    gate.Open();
    MUST(aclrtSynchronizeStream(stream_));
    EXPECT_EQ(inside.code, one.code) << one.words << inside.said;
    EXPECT_THAT(inside.said, HasSubstr(one.words));
  }
  // A model whose own host function executes, or destroys, it.
  for (const bool destroys : {false, true}) {
    inside.call = [&] { return destroys ? aclmdlRIDestroy(model) : aclmdlRIExecute(model, -1); };
    aclrtStream head = nullptr;
    MUST(aclrtCreateStreamWithConfig(&head, 0, ACL_STREAM_PERSISTENT));
    MUST(aclmdlRIBuildBegin(&model, 0));
    MUST(aclmdlRIBindStream(model, head, ACL_MODEL_STREAM_FLAG_HEAD));
    MUST(aclrtLaunchHostFunc(head, Inside::Run, &inside));
    MUST(aclmdlRIEndTask(model, head));
    MUST(aclmdlRIBuildEnd(model, nullptr));
    MUST(aclmdlRIExecuteAsync(model, stream_));
    MUST(aclrtSynchronizeStream(stream_));
    MUST(aclmdlRIDestroy(model));
    MUST(aclrtDestroyStream(head));
    EXPECT_EQ(inside.code, destroys ? 107037 : 507000) << inside.said;
    EXPECT_THAT(inside.said, HasSubstr("host function"));
  }
  MUST(aclrtDestroyEvent(before));
}

// Callbacks run on a thread of the program, and hold their stream up all the same.
TEST_F(Pains, P39_CallbacksAreToldAsHostFunctionsAre) {
  Inside inside;
  MUST(aclrtGetCurrentContext(&inside.context));
  std::atomic<uint64_t> id{0};
  std::atomic<bool> takes_up{false};
  const auto serve = [&](int times) {
    id = static_cast<uint64_t>(pthread_self());
    id.notify_all();
    takes_up.wait(false);
    for (int i = 0; i < times; ++i) EXPECT_EQ(0, aclrtProcessReport(kPatience));
  };
  std::thread server(serve, 2);
  id.wait(0);
  MUST(aclrtSubscribeReport(id.load(), stream_));
  inside.call = [&] { return aclrtSynchronizeStream(stream_); };
  MUST(aclrtLaunchCallback(Inside::Run, &inside, ACL_CALLBACK_BLOCK, stream_));
  const std::string parked = AwaitParked(stream_, "which has not come for it with aclrtProcessReport");
  EXPECT_THAT(parked, AllOf(HasSubstr("callback "), HasSubstr("Inside::Run")));
  takes_up = true;
  takes_up.notify_all();
  MUST(aclrtSynchronizeStream(stream_));
  EXPECT_EQ(inside.code, 507000) << inside.said;
  // One that blocks, in the thread that serves.
  std::atomic<bool> open{false};
  auto wait = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->wait(false); };
  MUST(aclrtLaunchCallback(wait, &open, ACL_CALLBACK_BLOCK, stream_));
  const std::string said = AwaitParked(stream_, " runs on thread ");
  EXPECT_THAT(said, AllOf(HasSubstr("task "), HasSubstr(": callback "), HasSubstr(" ms and ")));
  open = true;
  open.notify_all();
  MUST(aclrtSynchronizeStream(stream_));
  server.join();
  MUST(aclrtUnSubscribeReport(id.load(), stream_));
}

// Whoever waits for an event hears of it, too.
TEST_F(Pains, P39_EndlessWaitForAnEventSpeaksUp) {
  const aclrtEvent event = NewEvent();
  Gate gate;
  gate.Block(stream_);
  MUST(aclrtRecordEvent(event, stream_));
  std::string said;
  {
    StderrPipe standard_error;
    std::vector<std::thread> waiters;  // until the host function has begun
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatience);
    while (said.find("host function") == std::string::npos && std::chrono::steady_clock::now() < end) {
      waiters.emplace_back([&] { MUST(aclrtSynchronizeEvent(event)); });
      for (std::string part;
           said.find("host function") == std::string::npos && !(part = standard_error.Read(2000)).empty();) {
        said += part;
      }
    }
    gate.Open();
    for (std::thread& waiter : waiters) waiter.join();
  }
  EXPECT_THAT(said, AllOf(HasSubstr("for Ex event "), HasSubstr("without progress"), HasSubstr("host function ")));
}

// Empty operations that are fine eagerly fail in a recording.
TEST_F(Pains, P45_EmptyOperationsAreCaptured) {
  Begin(stream_);
  const aclmdlRI empty = End(stream_);
  Replay(empty);
  EXPECT_EQ(Dump(empty, 1).size(), 0);
  const aclrtEvent event = NewEvent();
  Begin(stream_);
  MUST(aclrtRecordEvent(event, stream_));  // nobody waits for it
  MUST(aclrtLaunchKernelWithHostArgs(nop_, 1, stream_, nullptr, cell_, 8, nullptr, 0));
  MUST(aclrtMemcpyAsync(cell_, 0, cell_ + 1, 0, ACL_MEMCPY_DEVICE_TO_DEVICE, stream_));
  MUST(Add(stream_, 1));
  Replay(End(stream_));
  EXPECT_EQ(*cell_, 1);
}

}  // namespace
}  // namespace reprise::testing
