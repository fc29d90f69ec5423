// SPDX-License-Identifier: Apache-2.0
//
// Wrong calls of the functions for events and value cells.
#include <climits>

#include "fixture.h"

namespace reprise::testing {
namespace {

[[gnu::constructor]] void Environment(int, char** argv, char**) { RestartWith(argv, {{"REPRISE_DEVICES", "2"}}); }

struct World : BasicWorld {
  aclrtEvent never = nullptr;        // aclrtCreateEvent, never recorded
  aclrtEvent flag = nullptr;         // classic, ACL_EVENT_SYNC
  aclrtEvent time_line = nullptr;    // classic, ACL_EVENT_TIME_LINE
  aclrtEvent progress = nullptr;     // classic, without SYNC and TIME_LINE; recorded
  aclrtEvent external = nullptr;     // ACL_EVENT_EXTERNAL
  aclrtEvent device_only = nullptr;  // ACL_EVENT_DEVICE_USE_ONLY
  aclrtEvent ex = nullptr;           // Ex, ACL_EVENT_SYNC
  aclrtEvent ex_time = nullptr;      // Ex, SYNC and TIME_LINE; never recorded
  aclrtEvent ex_no_sync = nullptr;   // Ex, TIME_LINE
  aclrtEvent ipc = nullptr;          // Ex, ACL_EVENT_IPC
  aclrtEvent pending = nullptr;      // aclrtCreateEvent, recorded behind a closed gate
  aclrtEvent in_capture = nullptr;   // Ex, recorded in the open capture

  char* cell() { return static_cast<char*>(memory); }
};

class EventMisuse : public Misuse<World> {
 protected:
  void SetUp() override {
    Misuse::SetUp();
    World& w = world_;
    MUST(aclrtCreateEvent(&w.never));
    MUST(aclrtCreateEvent(&w.pending));
    MUST(aclrtCreateEventWithFlag(&w.flag, ACL_EVENT_SYNC));
    MUST(aclrtCreateEventWithFlag(&w.time_line, ACL_EVENT_TIME_LINE));
    MUST(aclrtCreateEventWithFlag(&w.progress, ACL_EVENT_CAPTURE_STREAM_PROGRESS));
    MUST(aclrtCreateEventWithFlag(&w.external, ACL_EVENT_EXTERNAL));
    MUST(aclrtCreateEventWithFlag(&w.device_only, ACL_EVENT_DEVICE_USE_ONLY));
    MUST(aclrtCreateEventExWithFlag(&w.ex, ACL_EVENT_SYNC));
    MUST(aclrtCreateEventExWithFlag(&w.ex_time, ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE));
    MUST(aclrtCreateEventExWithFlag(&w.ex_no_sync, ACL_EVENT_TIME_LINE));
    MUST(aclrtCreateEventExWithFlag(&w.ipc, ACL_EVENT_IPC));
    MUST(aclrtCreateEventExWithFlag(&w.in_capture, ACL_EVENT_SYNC));
    MUST(aclrtRecordEvent(w.progress, w.stream));
    MUST(aclrtRecordEvent(w.event, w.stream));
    MUST(aclrtSynchronizeStream(w.stream));
  }

  void TearDown() override {
    World& w = world_;
    Misuse::TearDown();  // first: what holds streams up ends here
    for (const aclrtEvent event : {w.never, w.pending, w.flag, w.time_line, w.progress, w.external, w.device_only, w.ex,
                                   w.ex_time, w.ex_no_sync, w.ipc, w.in_capture}) {
      EXPECT_EQ(0, aclrtDestroyEvent(event));
    }
  }

  void StillWorks() override {
    Misuse::StillWorks();
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    float ms = -1;
    EXPECT_EQ(0, aclrtRecordEvent(world_.event, world_.stream));
    EXPECT_EQ(0, aclrtStreamWaitEvent(world_.stream, world_.event));
    EXPECT_EQ(0, aclrtSynchronizeEventWithTimeout(world_.event, kPatience));
    EXPECT_EQ(0, aclrtQueryEventStatus(world_.event, &status));
    EXPECT_EQ(status, ACL_EVENT_RECORDED_STATUS_COMPLETE);
    EXPECT_EQ(0, aclrtEventElapsedTime(&ms, world_.event, world_.event));
    EXPECT_EQ(ms, 0);
  }
};

TEST_F(EventMisuse, NullPointers) {
  Everywhere({
      ROW(100000, aclrtCreateEvent(nullptr)),
      ROW(100000, aclrtCreateEventWithFlag(nullptr, ACL_EVENT_SYNC)),
      ROW(100000, aclrtCreateEventExWithFlag(nullptr, ACL_EVENT_SYNC)),
      ROW(100000, aclrtDestroyEvent(nullptr)),
      ROW(100000, aclrtRecordEvent(nullptr, w.stream)),
      ROW(100000, aclrtRecordEvent(nullptr, nullptr)),
      ROW(100000, aclrtRecordEventWithFlag(nullptr, w.stream, 0)),
      ROW(100000, aclrtStreamWaitEvent(w.stream, nullptr)),
      ROW(100000, aclrtStreamWaitEvent(nullptr, nullptr)),
      ROW(100000, aclrtStreamWaitEventWithTimeout(w.stream, nullptr, 0)),
      ROW(100000, aclrtStreamWaitEventWithFlag(w.stream, nullptr, 0, 0)),
      ROW(100000, aclrtResetEvent(nullptr, w.stream)),
      ROW(100000, aclrtQueryEvent(nullptr, w.out.As<aclrtEventStatus>())),
      ROW(100000, aclrtQueryEvent(w.event, nullptr)),
      ROW(100000, aclrtQueryEventStatus(nullptr, w.out.As<aclrtEventRecordedStatus>())),
      ROW(100000, aclrtQueryEventStatus(w.event, nullptr)),
      ROW(100000, aclrtQueryEventWaitStatus(nullptr, w.out.As<aclrtEventWaitStatus>())),
      ROW(100000, aclrtQueryEventWaitStatus(w.event, nullptr)),
      ROW(100000, aclrtSynchronizeEvent(nullptr)),
      ROW(100000, aclrtSynchronizeEventWithTimeout(nullptr, 10)),
      ROW(100000, aclrtEventElapsedTime(nullptr, w.event, w.event)),
      ROW(100000, aclrtEventElapsedTime(w.out.As<float>(), nullptr, w.event)),
      ROW(100000, aclrtEventElapsedTime(w.out.As<float>(), w.event, nullptr)),
      ROW(100000, aclrtEventGetTimestamp(nullptr, w.out.As<uint64_t>())),
      ROW(100000, aclrtEventGetTimestamp(w.event, nullptr)),
      ROW(100000, aclrtGetEventId(nullptr, w.out.As<uint32_t>())),
      ROW(100000, aclrtGetEventId(w.event, nullptr)),
      ROW(100000, aclrtGetEventAvailNum(nullptr)),
      ROW(100000, aclrtValueWrite(nullptr, 1, 0, w.stream)),
      ROW(100000, aclrtValueWait(nullptr, 1, 0, w.stream)),
  });
}

TEST_F(EventMisuse, FlagsAndRanges) {
  Everywhere({
      ROW(107000, aclrtCreateEventWithFlag(w.out.handle(), 0)),
      ROW(107000, aclrtCreateEventWithFlag(w.out.handle(), ACL_EVENT_IPC)),
      ROW(107000, aclrtCreateEventWithFlag(w.out.handle(), 0x80)),
      ROW(107000, aclrtCreateEventWithFlag(w.out.handle(), 0x80000001)),
      ROW(107000, aclrtCreateEventWithFlag(w.out.handle(), UINT32_MAX)),
      ROW(107000, aclrtCreateEventWithFlag(w.out.handle(), ACL_EVENT_EXTERNAL | ACL_EVENT_SYNC)),
      ROW(107000, aclrtCreateEventWithFlag(w.out.handle(), ACL_EVENT_DEVICE_USE_ONLY | ACL_EVENT_TIME_LINE)),
      ROW(107000, aclrtCreateEventWithFlag(w.out.handle(), ACL_EVENT_DEVICE_USE_ONLY | ACL_EVENT_EXTERNAL)),
      ROW(107000, aclrtCreateEventExWithFlag(w.out.handle(), 0)),
      ROW(107000, aclrtCreateEventExWithFlag(w.out.handle(), 4)),
      ROW(107000, aclrtCreateEventExWithFlag(w.out.handle(), ACL_EVENT_DEVICE_USE_ONLY)),
      ROW(107000, aclrtCreateEventExWithFlag(w.out.handle(), ACL_EVENT_EXTERNAL)),
      ROW(107000, aclrtCreateEventExWithFlag(w.out.handle(), ACL_EVENT_IPC | ACL_EVENT_SYNC)),
      ROW(107000, aclrtCreateEventExWithFlag(w.out.handle(), 0x80000000)),
      ROW(107000, aclrtCreateEventExWithFlag(w.out.handle(), UINT32_MAX)),
      ROW(100000, aclrtRecordEventWithFlag(w.ex, w.stream, 2)),
      ROW(100000, aclrtRecordEventWithFlag(w.ex, w.stream, UINT32_MAX)),
      ROW(107000, aclrtStreamWaitEventWithTimeout(w.stream, w.ex, -1)),
      ROW(107000, aclrtStreamWaitEventWithTimeout(w.stream, w.ex, INT_MIN)),
      ROW(100000, aclrtStreamWaitEventWithFlag(w.stream, w.ex, 0, 2)),
      ROW(100000, aclrtStreamWaitEventWithFlag(w.stream, w.ex, 0, UINT32_MAX)),
      ROW(100000, aclrtStreamWaitEventWithFlag(w.stream, w.ex, 1, ACL_EVENT_WAIT_EXTERNAL)),
      ROW(100000, aclrtStreamWaitEventWithFlag(w.stream, w.ex, UINT32_MAX, ACL_EVENT_WAIT_EXTERNAL)),
      ROW(107000, aclrtSynchronizeEventWithTimeout(w.event, 0)),
      ROW(107000, aclrtSynchronizeEventWithTimeout(w.event, -2)),
      ROW(107000, aclrtSynchronizeEventWithTimeout(w.event, INT_MIN)),
      ROW(107000, aclrtValueWrite(w.memory, 1, 1, w.stream)),
      ROW(107000, aclrtValueWrite(w.memory, 1, UINT32_MAX, w.stream)),
      ROW(107000, aclrtValueWait(w.memory, 1, 4, w.stream)),
      ROW(107000, aclrtValueWait(w.memory, 1, UINT32_MAX, w.stream)),
  });
  // Refused calls fix nothing: the event may still be used either way.
  EXPECT_ACL(0, aclrtRecordEventWithFlag(world_.ex, world_.stream, 0));
  EXPECT_ACL(0, aclrtStreamWaitEventWithFlag(world_.stream, world_.ex, 0, 0));
}

TEST_F(EventMisuse, CellsOfValueTasks) {
  Everywhere({
      ROW(107000, aclrtValueWrite(w.cell() + 1, 1, 0, w.stream)),
      ROW(107000, aclrtValueWrite(w.cell() + 4, 1, 0, w.stream)),
      ROW(107000, aclrtValueWrite(&w.local, 1, 0, w.stream)),
      ROW(107000, aclrtValueWrite(Address(8), 1, 0, w.stream)),
      ROW(107000, aclrtValueWrite(Address(UINTPTR_MAX - 7), 1, 0, w.stream)),
      ROW(107000, aclrtValueWrite(w.event, 1, 0, w.stream)),
      ROW(107000, aclrtValueWait(w.cell() + 1, 1, 0, w.stream)),
      ROW(107000, aclrtValueWait(w.cell() + 4, 1, 1, w.stream)),
      ROW(107000, aclrtValueWait(&w.local, 1, 2, w.stream)),
      ROW(107000, aclrtValueWait(Address(8), 1, 3, w.stream)),
      ROW(107000, aclrtValueWait(Address(UINTPTR_MAX - 7), 1, 0, w.stream)),
      ROW(107000, aclrtValueWait(w.stream, 1, 0, w.stream)),
      ROW(0, aclrtValueWrite(w.memory, 1, 0, w.stream)),
      ROW(0, aclrtValueWait(w.memory, 1, 1, w.stream)),
      ROW(0, aclrtValueWrite(w.pinned, 1, 0, w.stream)),
  });
  EXPECT_EQ(world_.local, 0);
  // A cell just behind an allocation, and one in freed memory.
  void* block = nullptr;
  MUST(aclrtMalloc(&block, 64, ACL_MEM_MALLOC_NORMAL_ONLY));
  size_t bytes = 0;
  MUST(aclrtMemGetAddressRange(block, nullptr, &bytes));
  world_.bad = static_cast<char*>(block) + bytes;
  Everywhere({ROW(107000, aclrtValueWrite(w.bad, 1, 0, w.stream)), ROW(107000, aclrtValueWait(w.bad, 1, 0, w.stream))});
  world_.bad = block;
  MUST(aclrtFree(block));
  Everywhere({ROW(107000, aclrtValueWrite(w.bad, 1, 0, w.stream)), ROW(107000, aclrtValueWait(w.bad, 1, 0, w.stream))});
}

TEST_F(EventMisuse, BadEvents) {
  for (const Handle& bad : world_.BadHandles("event")) {
    Everywhere(bad, {
                        ROW(107017, aclrtDestroyEvent(w.bad)),
                        ROW(107017, aclrtRecordEvent(w.bad, w.stream)),
                        ROW(107017, aclrtRecordEvent(w.bad, nullptr)),
                        ROW(107017, aclrtRecordEvent(w.bad, w.foreign)),
                        ROW(107017, aclrtRecordEventWithFlag(w.bad, w.stream, 0)),
                        ROW(107017, aclrtRecordEventWithFlag(w.bad, w.stream, 1)),
                        ROW(107017, aclrtStreamWaitEvent(w.stream, w.bad)),
                        ROW(107017, aclrtStreamWaitEventWithTimeout(w.stream, w.bad, 1)),
                        ROW(107017, aclrtStreamWaitEventWithFlag(w.stream, w.bad, 1, 0)),
                        ROW(107017, aclrtStreamWaitEventWithFlag(w.stream, w.bad, 0, 1)),
                        ROW(107017, aclrtResetEvent(w.bad, w.stream)),
                        ROW(107017, aclrtQueryEvent(w.bad, w.out.As<aclrtEventStatus>())),
                        ROW(107017, aclrtQueryEventStatus(w.bad, w.out.As<aclrtEventRecordedStatus>())),
                        ROW(107017, aclrtQueryEventWaitStatus(w.bad, w.out.As<aclrtEventWaitStatus>())),
                        ROW(107017, aclrtSynchronizeEvent(w.bad)),
                        ROW(107017, aclrtSynchronizeEventWithTimeout(w.bad, -1)),
                        ROW(107017, aclrtEventElapsedTime(w.out.As<float>(), w.bad, w.event)),
                        ROW(107017, aclrtEventElapsedTime(w.out.As<float>(), w.event, w.bad)),
                        ROW(107017, aclrtEventGetTimestamp(w.bad, w.out.As<uint64_t>())),
                        ROW(107017, aclrtGetEventId(w.bad, w.out.As<uint32_t>())),
                        // Onto a stream that is captured: the capture does not suffer either.
                        ROW(107017, aclrtRecordEvent(w.bad, w.captured)),
                        ROW(107017, aclrtStreamWaitEvent(w.captured, w.bad)),
                    });
  }
}

TEST_F(EventMisuse, BadStreams) {
  std::vector<Handle> bad_streams = world_.BadHandles("stream");
  for (const Handle& bad : bad_streams) {
    Everywhere(bad, {
                        ROW(107017, aclrtRecordEvent(w.ex, w.bad)),
                        ROW(107017, aclrtRecordEventWithFlag(w.ex, w.bad, 0)),
                        ROW(107017, aclrtRecordEventWithFlag(w.ex, w.bad, 1)),
                        ROW(107017, aclrtStreamWaitEvent(w.bad, w.ex)),
                        ROW(107017, aclrtStreamWaitEventWithTimeout(w.bad, w.ex, 1)),
                        ROW(107017, aclrtStreamWaitEventWithFlag(w.bad, w.ex, 0, 1)),
                        ROW(107017, aclrtResetEvent(w.flag, w.bad)),
                        ROW(107017, aclrtValueWrite(w.memory, 1, 0, w.bad)),
                        ROW(107017, aclrtValueWait(w.memory, 1, 0, w.bad)),
                    });
  }
  Everywhere({
      ROW(107003, aclrtRecordEvent(w.ex, w.foreign)),
      ROW(107003, aclrtRecordEventWithFlag(w.ex, w.foreign, 1)),
      ROW(107003, aclrtStreamWaitEvent(w.foreign, w.ex)),
      ROW(107003, aclrtStreamWaitEventWithTimeout(w.foreign, w.ex, 1)),
      ROW(107003, aclrtStreamWaitEventWithFlag(w.foreign, w.ex, 0, 1)),
      ROW(107003, aclrtResetEvent(w.flag, w.foreign)),
      ROW(107003, aclrtValueWrite(w.memory, 1, 0, w.foreign)),
      ROW(107003, aclrtValueWait(w.memory, 1, 0, w.foreign)),
  });
  aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
  EXPECT_ACL(0, aclrtQueryEventStatus(world_.ex, &status));
  EXPECT_EQ(status, ACL_EVENT_RECORDED_STATUS_COMPLETE) << "no refused record counts";
}

TEST_F(EventMisuse, StreamsOfAnotherDevice) {
  MUST(aclrtSetDevice(1));
  const aclrtStream other = NewStream();
  aclrtEvent event = nullptr;
  MUST(aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC));
  MUST(aclrtSetCurrentContext(world_.context));
  world_.bad = other;
  Everywhere({
      ROW(107003, aclrtRecordEvent(w.ex, w.bad)),
      ROW(107003, aclrtStreamWaitEvent(w.bad, w.ex)),
      ROW(107003, aclrtStreamWaitEventWithFlag(w.bad, w.ex, 0, 0)),
      ROW(107003, aclrtResetEvent(w.flag, w.bad)),
      ROW(107003, aclrtValueWrite(w.memory, 1, 0, w.bad)),
  });
  // Events order the streams of different devices.
  EXPECT_ACL(0, aclrtSetDevice(1));
  EXPECT_ACL(0, aclrtRecordEvent(event, other));
  EXPECT_ACL(0, aclrtSetCurrentContext(world_.context));
  EXPECT_ACL(0, aclrtStreamWaitEvent(world_.stream, event));
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(world_.stream, kPatience));
  EXPECT_ACL(0, aclrtResetDeviceForce(1));
  Everywhere({
      ROW(107017, aclrtRecordEvent(w.ex, w.bad)),
      ROW(107017, aclrtStreamWaitEvent(w.bad, w.ex)),
  });
  EXPECT_ACL(0, aclrtSynchronizeEvent(event));
  EXPECT_ACL(0, aclrtDestroyEvent(event));
}

TEST_F(EventMisuse, SortsOfEventsThatDoNotAnswer) {
  Everywhere({
      ROW(207000, aclrtQueryEvent(w.ex, w.out.As<aclrtEventStatus>())),
      ROW(207000, aclrtQueryEvent(w.ipc, w.out.As<aclrtEventStatus>())),
      ROW(207000, aclrtQueryEvent(w.external, w.out.As<aclrtEventStatus>())),
      ROW(207000, aclrtQueryEvent(w.device_only, w.out.As<aclrtEventStatus>())),
      ROW(207000, aclrtQueryEventStatus(w.external, w.out.As<aclrtEventRecordedStatus>())),
      ROW(207000, aclrtQueryEventStatus(w.device_only, w.out.As<aclrtEventRecordedStatus>())),
      ROW(207000, aclrtQueryEventWaitStatus(w.ex, w.out.As<aclrtEventWaitStatus>())),
      ROW(207000, aclrtQueryEventWaitStatus(w.ipc, w.out.As<aclrtEventWaitStatus>())),
      ROW(207000, aclrtQueryEventWaitStatus(w.external, w.out.As<aclrtEventWaitStatus>())),
      ROW(207000, aclrtSynchronizeEvent(w.external)),
      ROW(207000, aclrtSynchronizeEvent(w.device_only)),
      ROW(207000, aclrtSynchronizeEventWithTimeout(w.external, 10)),
      ROW(207000, aclrtEventElapsedTime(w.out.As<float>(), w.external, w.event)),
      ROW(207000, aclrtEventElapsedTime(w.out.As<float>(), w.event, w.external)),
      ROW(207000, aclrtEventElapsedTime(w.out.As<float>(), w.ipc, w.event)),
      ROW(207000, aclrtEventElapsedTime(w.out.As<float>(), w.event, w.device_only)),
      ROW(207000, aclrtEventGetTimestamp(w.external, w.out.As<uint64_t>())),
      ROW(207000, aclrtEventGetTimestamp(w.ipc, w.out.As<uint64_t>())),
      ROW(207000, aclrtEventGetTimestamp(w.device_only, w.out.As<uint64_t>())),
      ROW(207000, aclrtGetEventId(w.ex, w.out.As<uint32_t>())),
      ROW(207000, aclrtGetEventId(w.ipc, w.out.As<uint32_t>())),
      ROW(207000, aclrtResetEvent(w.ex, w.stream)),
      ROW(207000, aclrtResetEvent(w.ipc, w.stream)),
      ROW(207000, aclrtResetEvent(w.time_line, w.stream)),
      ROW(207000, aclrtResetEvent(w.never, w.stream)),
      ROW(107000, aclrtResetEvent(w.device_only, w.stream)),
      ROW(107000, aclrtRecordEvent(w.device_only, w.stream)),
      ROW(107000, aclrtRecordEventWithFlag(w.device_only, w.stream, 1)),
      ROW(107000, aclrtStreamWaitEvent(w.stream, w.device_only)),
      ROW(107000, aclrtStreamWaitEventWithFlag(w.stream, w.device_only, 0, 1)),
      ROW(207000, aclrtStreamWaitEvent(w.stream, w.ex_no_sync)),
      ROW(207000, aclrtStreamWaitEvent(w.stream, w.time_line)),
      ROW(207000, aclrtStreamWaitEventWithTimeout(w.stream, w.progress, 1)),
      ROW(107000, aclrtStreamWaitEvent(w.stream, w.never)),
      ROW(107000, aclrtStreamWaitEventWithTimeout(w.stream, w.never, 1)),
      ROW(107000, aclrtStreamWaitEventWithFlag(w.stream, w.never, 1, 0)),
      ROW(507000, aclrtEventElapsedTime(w.out.As<float>(), w.never, w.event)),
      ROW(507000, aclrtEventElapsedTime(w.out.As<float>(), w.event, w.never)),
      ROW(507000, aclrtEventElapsedTime(w.out.As<float>(), w.ex_time, w.ex_time)),
      ROW(107006, aclrtEventElapsedTime(w.out.As<float>(), w.progress, w.event)),
      ROW(107006, aclrtEventElapsedTime(w.out.As<float>(), w.event, w.progress)),
      ROW(107006, aclrtEventGetTimestamp(w.never, w.out.As<uint64_t>())),
      ROW(107006, aclrtEventGetTimestamp(w.progress, w.out.As<uint64_t>())),
      ROW(107006, aclrtEventGetTimestamp(w.ex_time, w.out.As<uint64_t>())),
      ROW(207000, aclrtRecordEventWithFlag(w.event, w.stream, ACL_EVENT_RECORD_EXTERNAL)),
      ROW(207000, aclrtRecordEventWithFlag(w.flag, w.stream, ACL_EVENT_RECORD_EXTERNAL)),
      ROW(207000, aclrtRecordEventWithFlag(w.external, w.stream, ACL_EVENT_RECORD_EXTERNAL)),
      ROW(207000, aclrtRecordEventWithFlag(w.ex_time, w.stream, ACL_EVENT_RECORD_EXTERNAL)),
      ROW(207000, aclrtRecordEventWithFlag(w.ipc, w.stream, ACL_EVENT_RECORD_EXTERNAL)),
      ROW(207000, aclrtStreamWaitEventWithFlag(w.stream, w.event, 0, ACL_EVENT_WAIT_EXTERNAL)),
      ROW(207000, aclrtStreamWaitEventWithFlag(w.stream, w.external, 0, ACL_EVENT_WAIT_EXTERNAL)),
      ROW(207000, aclrtStreamWaitEventWithFlag(w.stream, w.ex_time, 0, ACL_EVENT_WAIT_EXTERNAL)),
  });
}

TEST_F(EventMisuse, RecordThatHasNotRun) {
  const aclrtStream held = NewStream();
  Gate gate;
  gate.Block(held);
  MUST(aclrtRecordEvent(world_.pending, held));
  Everywhere({
      ROW(507047, aclrtSynchronizeEventWithTimeout(w.pending, 1)),
      ROW(107006, aclrtEventElapsedTime(w.out.As<float>(), w.pending, w.event)),
      ROW(107006, aclrtEventElapsedTime(w.out.As<float>(), w.event, w.pending)),
      ROW(107006, aclrtEventGetTimestamp(w.pending, w.out.As<uint64_t>())),
      ROW(0, aclrtQueryEvent(w.pending, w.out.As<aclrtEventStatus>())),
  });
  aclrtEventStatus status = ACL_EVENT_STATUS_COMPLETE;
  EXPECT_ACL(0, aclrtQueryEvent(world_.pending, &status));
  EXPECT_EQ(status, ACL_EVENT_STATUS_NOT_READY);
  gate.Open();
  EXPECT_ACL(0, aclrtSynchronizeEventWithTimeout(world_.pending, kPatience));
  uint64_t time = 0;
  EXPECT_ACL(0, aclrtEventGetTimestamp(world_.pending, &time));
}

// The first use of an event decides whether its records (waits) reach outside; a refused one decides, too.
TEST_F(EventMisuse, ExternalFlagOutsideOfACapture) {
  Everywhere({
      ROW(107029, aclrtRecordEventWithFlag(w.ex, w.stream, ACL_EVENT_RECORD_EXTERNAL)),
      ROW(107029, aclrtRecordEventWithFlag(w.ex, nullptr, ACL_EVENT_RECORD_EXTERNAL)),
      ROW(107029, aclrtStreamWaitEventWithFlag(w.stream, w.ex, 0, ACL_EVENT_WAIT_EXTERNAL)),
      ROW(107000, aclrtRecordEvent(w.ex, w.stream)),
      ROW(107000, aclrtRecordEventWithFlag(w.ex, w.stream, ACL_EVENT_RECORD_DEFAULT)),
      ROW(107000, aclrtStreamWaitEvent(w.stream, w.ex)),
      ROW(107000, aclrtStreamWaitEventWithTimeout(w.stream, w.ex, 1)),
      ROW(0, aclrtRecordEvent(w.in_capture, w.stream)),
      ROW(0, aclrtStreamWaitEvent(w.stream, w.in_capture)),
      ROW(107000, aclrtRecordEventWithFlag(w.in_capture, w.stream, ACL_EVENT_RECORD_EXTERNAL)),
      ROW(107000, aclrtStreamWaitEventWithFlag(w.stream, w.in_capture, 0, ACL_EVENT_WAIT_EXTERNAL)),
  });
}

TEST_F(EventMisuse, CapturedStream) {
  for (const auto mode :
       {ACL_MODEL_RI_CAPTURE_MODE_GLOBAL, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL, ACL_MODEL_RI_CAPTURE_MODE_RELAXED}) {
    BeginCapture(mode);
    MUST(aclrtRecordEvent(world_.in_capture, world_.captured));
    MUST(aclrtRecordEvent(world_.ex_time, world_.stream));
    const Rows rows = {
        ROW(107028, aclrtQueryEventStatus(w.in_capture, w.out.As<aclrtEventRecordedStatus>())),
        ROW(207000, aclrtQueryEvent(w.in_capture, w.out.As<aclrtEventStatus>())),
        ROW(207000, aclrtQueryEventWaitStatus(w.in_capture, w.out.As<aclrtEventWaitStatus>())),
        ROW(107028, aclrtSynchronizeEvent(w.in_capture)),
        ROW(107028, aclrtSynchronizeEventWithTimeout(w.in_capture, 10)),
        ROW(107028, aclrtEventElapsedTime(w.out.As<float>(), w.in_capture, w.event)),
        ROW(107028, aclrtEventElapsedTime(w.out.As<float>(), w.event, w.in_capture)),
        ROW(107028, aclrtEventGetTimestamp(w.in_capture, w.out.As<uint64_t>())),
        ROW(107031, aclrtStreamWaitEvent(nullptr, w.in_capture)),
        ROW(107031, aclrtRecordEvent(w.in_capture, nullptr)),
        ROW(207000, aclrtRecordEvent(w.event, w.captured)),
        ROW(207000, aclrtStreamWaitEvent(w.captured, w.event)),
        ROW(207000, aclrtRecordEvent(w.flag, w.captured)),
        ROW(207000, aclrtStreamWaitEvent(w.captured, w.flag)),
        ROW(207000, aclrtResetEvent(w.flag, w.captured)),
        ROW(207000, aclrtRecordEvent(w.ipc, w.captured)),
        ROW(207000, aclrtStreamWaitEvent(w.captured, w.ipc)),
        ROW(207000, aclrtResetEvent(w.in_capture, w.captured)),
        ROW(207000, aclrtStreamWaitEvent(w.captured, w.ex_no_sync)),
        ROW(107000, aclrtRecordEvent(w.device_only, w.captured)),
        ROW(107000, aclrtStreamWaitEvent(w.captured, w.device_only)),
        ROW(107000, aclrtResetEvent(w.device_only, w.captured)),
        ROW(107024, aclrtStreamWaitEvent(w.captured, w.ex_time)),
        ROW(107000, aclrtRecordEventWithFlag(w.in_capture, w.captured, ACL_EVENT_RECORD_EXTERNAL)),
        ROW(100000, aclrtRecordEventWithFlag(w.in_capture, w.captured, 2)),
        ROW(107000, aclrtValueWrite(w.cell() + 4, 1, 0, w.captured)),
        ROW(107000, aclrtValueWait(w.memory, 1, 4, w.captured)),
        ROW(0, aclrtRecordEvent(w.ex_no_sync, w.captured)),
        ROW(0, aclrtValueWrite(w.memory, 1, 0, w.captured)),
    };
    RunRows(rows);
    StillWorks();
    EndCapture();
    EXPECT_ACL(0, aclrtSynchronizeEventWithTimeout(world_.in_capture, kPatience));
  }
}

TEST_F(EventMisuse, OneExternalUsePerGraph) {
  BeginCapture(ACL_MODEL_RI_CAPTURE_MODE_RELAXED);
  const Rows rows = {
      ROW(0, aclrtRecordEventWithFlag(w.ex, w.captured, ACL_EVENT_RECORD_EXTERNAL)),
      ROW(107000, aclrtRecordEventWithFlag(w.ex, w.captured, ACL_EVENT_RECORD_EXTERNAL)),
      ROW(107000, aclrtStreamWaitEventWithFlag(w.captured, w.ex, 0, ACL_EVENT_WAIT_EXTERNAL)),
      ROW(0, aclrtStreamWaitEventWithFlag(w.captured, w.in_capture, 0, ACL_EVENT_WAIT_EXTERNAL)),
      ROW(107000, aclrtStreamWaitEventWithFlag(w.captured, w.in_capture, 0, ACL_EVENT_WAIT_EXTERNAL)),
      ROW(107000, aclrtRecordEventWithFlag(w.in_capture, w.captured, ACL_EVENT_RECORD_EXTERNAL)),
  };
  RunRows(rows);
  EndCapture();
}

TEST_F(EventMisuse, ThreadWithoutContext) {
  WithoutContext({
      ROW(107002, aclrtCreateEvent(w.out.handle())),
      ROW(107002, aclrtCreateEventWithFlag(w.out.handle(), ACL_EVENT_SYNC)),
      ROW(107002, aclrtCreateEventExWithFlag(w.out.handle(), ACL_EVENT_SYNC)),
      ROW(107002, aclrtRecordEvent(w.ex, w.stream)),
      ROW(107002, aclrtRecordEvent(w.ex, nullptr)),
      ROW(107002, aclrtRecordEventWithFlag(w.ex, w.stream, 1)),
      ROW(107002, aclrtStreamWaitEvent(w.stream, w.ex)),
      ROW(107002, aclrtStreamWaitEvent(nullptr, w.ex)),
      ROW(107002, aclrtStreamWaitEventWithTimeout(w.stream, w.ex, 1)),
      ROW(107002, aclrtStreamWaitEventWithFlag(w.stream, w.ex, 0, 1)),
      ROW(107002, aclrtResetEvent(w.flag, w.stream)),
      ROW(107002, aclrtGetEventAvailNum(w.out.As<uint32_t>())),
      ROW(107002, aclrtValueWrite(w.memory, 1, 0, w.stream)),
      ROW(107002, aclrtValueWrite(w.memory, 1, 0, nullptr)),
      ROW(107002, aclrtValueWait(w.memory, 1, 0, w.stream)),
      ROW(107017, aclrtRecordEvent(w.stream, w.event)),
      ROW(0, aclrtQueryEventStatus(w.ex, w.out.As<aclrtEventRecordedStatus>())),
      ROW(0, aclrtSynchronizeEvent(w.ex)),
      ROW(0, aclrtGetEventId(w.event, w.out.As<uint32_t>())),
  });
}

TEST_F(EventMisuse, DeviceThatWasReset) {
  AfterReset({
      ROW(107002, aclrtCreateEvent(w.out.handle())),
      ROW(107002, aclrtCreateEventExWithFlag(w.out.handle(), ACL_EVENT_SYNC)),
      ROW(107017, aclrtRecordEvent(w.ex, w.stream)),
      ROW(107002, aclrtRecordEvent(w.ex, nullptr)),
      ROW(107017, aclrtStreamWaitEvent(w.stream, w.ex)),
      ROW(107002, aclrtStreamWaitEvent(nullptr, w.ex)),
      ROW(107017, aclrtResetEvent(w.flag, w.stream)),
      ROW(107000, aclrtValueWrite(w.memory, 1, 0, w.stream)),
      ROW(107000, aclrtValueWait(w.memory, 1, 0, nullptr)),
      ROW(107017, aclrtValueWrite(w.pinned, 1, 0, w.stream)),
      ROW(107002, aclrtValueWrite(w.pinned, 1, 0, nullptr)),
      ROW(0, aclrtSynchronizeEvent(w.event)),
      ROW(0, aclrtDestroyEvent(w.event)),
      ROW(107017, aclrtDestroyEvent(w.event)),
  });
}

TEST_F(EventMisuse, RandomArguments) {
  World& w = world_;
  std::vector<void*> events;  // live ones in the first places, replaced as calls make and destroy them
  std::vector<aclrtStream> streams;
  const std::vector<uint32_t> flags = {0, 1, 2, 3, 4, 8, 9, 0x10, 0x20, 0x21, 0x40, 0x80, UINT32_MAX};
  const std::vector<int> times = {INT_MIN, -2, 0, 1, 2};  // no -1: a wait of the host must end
  std::vector<void*> cells = {nullptr,
                              w.cell(),
                              w.cell() + 8,
                              w.cell() + 1,
                              w.cell() + World::kMemoryBytes,
                              w.pinned,
                              &w.local,
                              Address(8),
                              Address(UINTPTR_MAX - 7),
                              w.event,
                              w.cell() + World::kMemoryBytes - 4};
  void* place = nullptr;
  aclrtEventStatus status;
  aclrtEventRecordedStatus recorded;
  aclrtEventWaitStatus waited;
  float ms;
  uint64_t u64;
  uint32_t u32;
  const auto event = [&](Dice& d) { return d.Pick(events); };
  const auto stream = [&](Dice& d) { return d.Pick(streams); };
  const auto keep = [&](Dice& d, int code) {
    if (code == 0) {
      void*& slot = events[d.Below(6)];
      (void)aclrtDestroyEvent(slot);  // it may be null or destroyed
      DropMessage();
      slot = place;
    }
    return code;
  };
  const std::vector<RandomCall> calls = {
      {"aclrtCreateEvent", [&](Dice& d) { return keep(d, aclrtCreateEvent(d.Below(4) == 0 ? nullptr : &place)); }},
      {"aclrtCreateEventWithFlag", [&](Dice& d) { return keep(d, aclrtCreateEventWithFlag(&place, d.Pick(flags))); }},
      {"aclrtCreateEventExWithFlag",
       [&](Dice& d) { return keep(d, aclrtCreateEventExWithFlag(&place, d.Pick(flags))); }},
      {"aclrtDestroyEvent", [&](Dice& d) { return aclrtDestroyEvent(event(d)); }},
      {"aclrtRecordEvent", [&](Dice& d) { return aclrtRecordEvent(event(d), stream(d)); }},
      {"aclrtRecordEvent", [&](Dice& d) { return aclrtRecordEvent(event(d), stream(d)); }},
      {"aclrtRecordEventWithFlag",
       [&](Dice& d) {
         return aclrtRecordEventWithFlag(event(d), stream(d), d.Pick<uint32_t>({0, 1, 2, UINT32_MAX}));
       }},
      {"aclrtStreamWaitEvent", [&](Dice& d) { return aclrtStreamWaitEvent(stream(d), event(d)); }},
      {"aclrtStreamWaitEventWithTimeout",
       [&](Dice& d) { return aclrtStreamWaitEventWithTimeout(stream(d), event(d), d.Pick(times)); }},
      {"aclrtStreamWaitEventWithFlag",
       [&](Dice& d) {
         return aclrtStreamWaitEventWithFlag(stream(d), event(d), d.Pick<uint32_t>({0, 1, UINT32_MAX}),
                                             d.Pick<uint32_t>({0, 1, 2}));
       }},
      {"aclrtResetEvent", [&](Dice& d) { return aclrtResetEvent(event(d), stream(d)); }},
      {"aclrtQueryEvent", [&](Dice& d) { return aclrtQueryEvent(event(d), &status); }},
      {"aclrtQueryEventStatus", [&](Dice& d) { return aclrtQueryEventStatus(event(d), &recorded); }},
      {"aclrtQueryEventWaitStatus", [&](Dice& d) { return aclrtQueryEventWaitStatus(event(d), &waited); }},
      {"aclrtSynchronizeEventWithTimeout",
       [&](Dice& d) { return aclrtSynchronizeEventWithTimeout(event(d), d.Pick(times)); }},
      {"aclrtEventElapsedTime", [&](Dice& d) { return aclrtEventElapsedTime(&ms, event(d), event(d)); }},
      {"aclrtEventGetTimestamp", [&](Dice& d) { return aclrtEventGetTimestamp(event(d), &u64); }},
      {"aclrtGetEventId", [&](Dice& d) { return aclrtGetEventId(event(d), &u32); }},
      {"aclrtGetEventAvailNum", [&](Dice& d) { return aclrtGetEventAvailNum(d.Below(2) == 0 ? nullptr : &u32); }},
      {"aclrtValueWrite",
       [&](Dice& d) {
         return aclrtValueWrite(d.Pick(cells), d.Below(3), d.Pick<uint32_t>({0, 1}), stream(d));
       }},
      {"aclrtValueWait",
       [&](Dice& d) {
         return aclrtValueWait(d.Pick(cells), d.Below(3), d.Pick<uint32_t>({0, 1, 2, 3, 4}), stream(d));
       }},
  };
  const std::vector<Handle> no_events = w.BadHandles("event");
  const std::vector<Handle> no_streams = w.BadHandles("stream");
  for (const uint64_t seed : Seeds(Loops(300, 30))) {
    events.assign(6, nullptr);
    for (const Handle& bad : no_events) events.push_back(bad.handle);
    // Two streams to work on and two captures, which the calls fork, join, spoil or leave alone.
    streams = {NewStream(), NewStream(), NewStream(), NewStream(), nullptr, w.foreign};
    const size_t live = 4;
    for (size_t i = 0; i < 3; ++i) streams.insert(streams.end(), streams.begin(), streams.begin() + live);
    for (const Handle& bad : no_streams) streams.push_back(bad.handle);
    MUST(aclmdlRICaptureBegin(streams[2], ACL_MODEL_RI_CAPTURE_MODE_GLOBAL));
    MUST(aclmdlRICaptureBegin(streams[3], ACL_MODEL_RI_CAPTURE_MODE_RELAXED));
    RunRandomCalls(seed, 400, calls);
    for (const size_t i : {2, 3}) {
      aclmdlRI model = nullptr;
      DropMessage();
      const int code = aclmdlRICaptureEnd(streams[i], &model);
      EXPECT_TRUE(CheckAcl(code, code, "aclmdlRICaptureEnd"));
      EXPECT_TRUE(code != 0 || aclmdlRIDestroy(model) == 0);
    }
    for (size_t i = 0; i < live; ++i) EXPECT_ACL(0, aclrtDestroyStreamForce(streams[i]));
    for (size_t i = 0; i < 6; ++i) (void)aclrtDestroyEvent(events[i]);
    if (HasFailure()) return;
    // A wait for something that nobody does any more would hold up the default stream, and the end of the test.
    aclrtStream default_stream = nullptr;
    MUST(aclrtCtxGetCurrentDefaultStream(&default_stream));
    EXPECT_ACL(0, aclrtStreamAbort(default_stream));
    StillWorks();
  }
}

}  // namespace
}  // namespace reprise::testing
