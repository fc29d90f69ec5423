// SPDX-License-Identifier: Apache-2.0
//
// Wrong calls of the capture, execution, naming and dump functions of models.
#include <atomic>
#include <climits>
#include <filesystem>
#include <fstream>

#include "graph_world.h"

namespace reprise::testing {
namespace {

using World = GraphWorld;

aclmdlRICaptureMode Mode(int value) { return static_cast<aclmdlRICaptureMode>(value); }

void Ignore(void*) {}
void CountCall(void* counter) { ++*static_cast<int*>(counter); }

const std::string kLongPath = std::string(5000, 'p');
const std::string kLongName = std::string(10'000, 'n');

class Graph : public GraphMisuse<World> {
 protected:
  /// Two captures that are linked, which invalidates both.
  void Invalidate(aclrtStream first, aclrtStream second) {
    MUST(aclmdlRICaptureBegin(first, kRelaxed));
    MUST(aclmdlRICaptureBegin(second, kRelaxed));
    const aclrtEvent event = NewEx();
    MUST(aclrtRecordEvent(event, first));
    EXPECT_ACL(107032, aclrtStreamWaitEvent(second, event));
    MUST(aclrtDestroyEvent(event));
  }
};

TEST_F(Graph, Null) {
  Everywhere({
      ROW(100000, aclmdlRICaptureBegin(nullptr, kGlobal)),
      ROW(100000, aclmdlRICaptureBegin(nullptr, Mode(3))),
      ROW(100000, aclmdlRICaptureToModelRIBegin(nullptr, w.body, kGlobal)),
      ROW(100000, aclmdlRICaptureToModelRIBegin(w.aux, nullptr, kGlobal)),
      ROW(100000, aclmdlRICaptureToModelRIBegin(nullptr, nullptr, Mode(9))),
      ROW(100000, aclmdlRICaptureGetInfo(nullptr, w.out.As<aclmdlRICaptureStatus>(), w.out.handle(1))),
      ROW(100000, aclmdlRICaptureGetInfo(w.stream, nullptr, nullptr)),
      ROW(100000, aclmdlRICaptureGetInfo(nullptr, nullptr, nullptr)),
      ROW(100000, aclmdlRICaptureEnd(nullptr, w.out.handle())),
      ROW(100000, aclmdlRICaptureEnd(nullptr, nullptr)),
      ROW(107029, aclmdlRICaptureEnd(w.aux, nullptr)),
      ROW(100000, aclmdlRICaptureThreadExchangeMode(nullptr)),
      ROW(100000, aclmdlRIExecuteAsync(nullptr, w.stream)),
      ROW(100000, aclmdlRIExecuteAsync(nullptr, nullptr)),
      ROW(100000, aclmdlRIExecute(nullptr, -1)),
      ROW(100000, aclmdlRIExecute(nullptr, 0)),
      ROW(107000, aclmdlRIAbort(nullptr)),
      ROW(107000, aclmdlRIDestroyRegisterCallback(nullptr, Ignore, nullptr)),
      ROW(107000, aclmdlRIDestroyRegisterCallback(w.model, nullptr, nullptr)),
      ROW(107000, aclmdlRIDestroyUnregisterCallback(nullptr, Ignore)),
      ROW(107000, aclmdlRIDestroyUnregisterCallback(w.model, nullptr)),
      ROW(100000, aclmdlRIDestroy(nullptr)),
      ROW(100000, aclmdlRISetName(nullptr, "name")),
      ROW(100000, aclmdlRISetName(w.model, nullptr)),
      ROW(100000, aclmdlRIGetName(nullptr, 64, w.out.As<char>())),
      ROW(100000, aclmdlRIGetName(w.model, 64, nullptr)),
      ROW(100000, aclmdlRIGetName(w.model, 0, nullptr)),
      ROW(100000, aclmdlRIGetId(nullptr, w.out.As<uint32_t>())),
      ROW(100000, aclmdlRIGetId(w.model, nullptr)),
      ROW(100000, aclmdlRIDebugPrint(nullptr)),
      ROW(100000, aclmdlRIDebugJsonPrint(nullptr, "/dev/null", 0)),
      ROW(100000, aclmdlRIDebugJsonPrint(w.model, nullptr, 0)),
  });
}

TEST_F(Graph, ModelThatIsNone) {
  BadHandles("model", {
                          ROW(107017, aclmdlRICaptureToModelRIBegin(w.aux, w.bad, kGlobal)),
                          ROW(107017, aclmdlRIExecuteAsync(w.bad, w.stream)),
                          ROW(107017, aclmdlRIExecuteAsync(w.bad, nullptr)),
                          ROW(107017, aclmdlRIExecute(w.bad, 10)),
                          ROW(107000, aclmdlRIExecute(w.bad, 0)),
                          ROW(107017, aclmdlRIAbort(w.bad)),
                          ROW(107017, aclmdlRIDestroyRegisterCallback(w.bad, Ignore, nullptr)),
                          ROW(107017, aclmdlRIDestroyUnregisterCallback(w.bad, Ignore)),
                          ROW(107017, aclmdlRIDestroy(w.bad)),
                          ROW(107017, aclmdlRISetName(w.bad, "name")),
                          ROW(107017, aclmdlRIGetName(w.bad, 64, w.out.As<char>())),
                          ROW(107000, aclmdlRIGetName(w.bad, 0, w.out.As<char>())),
                          ROW(107017, aclmdlRIGetId(w.bad, w.out.As<uint32_t>())),
                          ROW(107017, aclmdlRIDebugPrint(w.bad)),
                          ROW(107017, aclmdlRIDebugJsonPrint(w.bad, "/dev/null", 0)),
                      });
  // A handle says what it is instead.
  DropMessage();
  EXPECT_EQ(aclmdlRIExecuteAsync(world_.event, world_.stream), 107017);
  EXPECT_THAT(aclGetRecentErrMsg(), ::testing::HasSubstr("handle of kind event, not model"));
}

TEST_F(Graph, StreamThatIsNone) {
  BadHandles("stream", {
                           ROW(107017, aclmdlRICaptureBegin(w.bad, kGlobal)),
                           ROW(107000, aclmdlRICaptureBegin(w.bad, Mode(3))),
                           ROW(107017, aclmdlRICaptureToModelRIBegin(w.bad, w.body, kGlobal)),
                           ROW(107017, aclmdlRICaptureGetInfo(w.bad, w.out.As<aclmdlRICaptureStatus>(), nullptr)),
                           ROW(107017, aclmdlRICaptureGetInfo(w.bad, nullptr, w.out.handle())),
                           ROW(107017, aclmdlRICaptureEnd(w.bad, w.out.handle())),
                           ROW(107017, aclmdlRICaptureEnd(w.bad, nullptr)),
                           ROW(107017, aclmdlRIExecuteAsync(w.model, w.bad)),
                           ROW(107017, aclmdlRIExecuteAsync(w.body, w.bad)),
                           ROW(107017, aclmdlRIExecuteAsync(w.built, w.bad)),
                       });
}

TEST_F(Graph, ValuesOutOfRange) {
  Everywhere({
      ROW(107000, aclmdlRICaptureBegin(w.aux, Mode(3))),
      ROW(107000, aclmdlRICaptureBegin(w.aux, Mode(-1))),
      ROW(107000, aclmdlRICaptureBegin(w.aux, Mode(INT_MAX))),
      ROW(107000, aclmdlRICaptureBegin(w.aux, Mode(INT_MIN))),
      ROW(107000, aclmdlRICaptureBegin(w.default_stream, Mode(3))),
      ROW(107000, aclmdlRICaptureToModelRIBegin(w.aux, w.body, Mode(3))),
      ROW(107000, aclmdlRICaptureToModelRIBegin(w.aux, w.body, Mode(-1))),
      ROW(107000, aclmdlRICaptureThreadExchangeMode(w.out.As<aclmdlRICaptureMode>())),
      ROW(107000, aclmdlRIExecute(w.built, 0)),
      ROW(107000, aclmdlRIExecute(w.built, -2)),
      ROW(107000, aclmdlRIExecute(w.built, INT_MIN)),
      ROW(107000, aclmdlRIExecute(w.model, 0)),
      ROW(107000, aclmdlRIGetName(w.model, 0, w.out.As<char>())),
  });
  for (const int value : {3, 4, -1, INT_MAX, INT_MIN}) {
    aclmdlRICaptureMode mode = Mode(value);
    EXPECT_ACL(107000, aclmdlRICaptureThreadExchangeMode(&mode)) << value;
    EXPECT_EQ(static_cast<int>(mode), value) << "the refused value stays where it was";
  }
  aclmdlRICaptureMode mode = kRelaxed;
  EXPECT_ACL(0, aclmdlRICaptureThreadExchangeMode(&mode));
  EXPECT_EQ(mode, kGlobal) << "refused calls left the thread's mode alone";
  EXPECT_ACL(0, aclmdlRICaptureThreadExchangeMode(&mode));
}

TEST_F(Graph, StreamsThatCannotBeCaptured) {
  Everywhere({
      ROW(507000, aclmdlRICaptureBegin(w.cpu_schedule, kGlobal)),
      ROW(507000, aclmdlRICaptureBegin(w.device_only, kRelaxed)),
      ROW(107003, aclmdlRICaptureBegin(w.foreign, kGlobal)),
      ROW(107005, aclmdlRICaptureBegin(w.bound, kThreadLocal)),
      ROW(207000, aclmdlRICaptureBegin(w.default_stream, kGlobal)),
      ROW(507000, aclmdlRICaptureEnd(w.cpu_schedule, w.out.handle())),
      ROW(507000, aclmdlRICaptureEnd(w.device_only, w.out.handle())),
      ROW(507000, aclmdlRICaptureEnd(w.device_only, nullptr)),
      ROW(107003, aclmdlRICaptureEnd(w.foreign, w.out.handle())),
      ROW(107005, aclmdlRICaptureEnd(w.bound, w.out.handle())),
      ROW(207000, aclmdlRICaptureEnd(w.default_stream, w.out.handle())),
      ROW(207000, aclmdlRICaptureEnd(w.default_stream, nullptr)),
      ROW(107003, aclmdlRICaptureGetInfo(w.foreign, w.out.As<aclmdlRICaptureStatus>(), w.out.handle(1))),
      ROW(0, aclmdlRICaptureGetInfo(w.default_stream, w.out.As<aclmdlRICaptureStatus>(), w.out.handle(1))),
      ROW(0, aclmdlRICaptureGetInfo(w.bound, w.out.As<aclmdlRICaptureStatus>(), nullptr)),
      ROW(0, aclmdlRICaptureGetInfo(w.device_only, nullptr, w.out.handle(1))),
  });
  // The flags are looked at before the owner.
  EXPECT_ACL(0, aclrtSetCurrentContext(other_context_));
  RunRows({
      ROW(507000, aclmdlRICaptureBegin(w.cpu_schedule, kGlobal)),
      ROW(507000, aclmdlRICaptureEnd(w.cpu_schedule, w.out.handle())),
  });
  EXPECT_ACL(0, aclrtSetCurrentContext(world_.context));
}

TEST_F(Graph, EndOfNoCaptureNamesNoModel) {
  for (const aclrtStream stream : {world_.stream, world_.aux, world_.persistent}) {
    aclmdlRI model = &world_.local;
    EXPECT_ACL(107029, aclmdlRICaptureEnd(stream, &model));
    EXPECT_EQ(model, nullptr);
  }
  StillWorks();
}

TEST_F(Graph, WithoutContext) {
  OnThread(nullptr, {
                        ROW(107002, aclmdlRICaptureBegin(w.aux, kGlobal)),
                        ROW(507000, aclmdlRICaptureBegin(w.cpu_schedule, kGlobal)),
                        ROW(107000, aclmdlRICaptureToModelRIBegin(w.aux, w.model, kGlobal)),
                        ROW(107002, aclmdlRICaptureToModelRIBegin(w.aux, w.body, kGlobal)),
                        ROW(107002, aclmdlRICaptureGetInfo(w.aux, w.out.As<aclmdlRICaptureStatus>(), w.out.handle(1))),
                        ROW(107002, aclmdlRICaptureEnd(w.aux, w.out.handle())),
                        ROW(107000, aclmdlRICaptureThreadExchangeMode(w.out.As<aclmdlRICaptureMode>())),
                        ROW(107002, aclmdlRIExecuteAsync(w.model, w.stream)),
                        ROW(107002, aclmdlRIExecuteAsync(w.model, nullptr)),
                        ROW(107002, aclmdlRIExecute(w.built, 10)),
                        ROW(107000, aclmdlRIExecute(w.model, 10)),
                        ROW(107002, aclmdlRIAbort(w.built)),
                        ROW(107002, aclmdlRIAbort(w.model)),
                        ROW(107002, aclmdlRISetName(w.model, "name")),
                        ROW(107002, aclmdlRIGetName(w.model, 64, w.out.As<char>())),
                        ROW(107002, aclmdlRIGetId(w.model, w.out.As<uint32_t>())),
                        ROW(107002, aclmdlRIDebugPrint(w.model)),
                        ROW(107002, aclmdlRIDebugJsonPrint(w.model, "/dev/null", 0)),
                    });
  std::thread([] {
    aclmdlRICaptureMode mode = kRelaxed;
    EXPECT_ACL(107002, aclmdlRICaptureThreadExchangeMode(&mode));
    EXPECT_EQ(mode, kRelaxed);
  }).join();
  StillWorks();
}

TEST_F(Graph, OtherContext) {
  Everywhere({
      ROW(107004, aclmdlRIExecuteAsync(w.foreign_model, w.stream)),
      ROW(107004, aclmdlRIExecuteAsync(w.foreign_model, w.foreign)),
      ROW(107004, aclmdlRIExecuteAsync(w.foreign_built, nullptr)),
      ROW(107003, aclmdlRIExecuteAsync(w.model, w.foreign)),
      ROW(107004, aclmdlRIExecute(w.foreign_built, 10)),
      ROW(107000, aclmdlRIExecute(w.foreign_model, 10)),
      ROW(107004, aclmdlRIAbort(w.foreign_built)),
      ROW(107004, aclmdlRIAbort(w.foreign_model)),
      ROW(107004, aclmdlRISetName(w.foreign_model, "name")),
      ROW(107004, aclmdlRIGetName(w.foreign_model, 64, w.out.As<char>())),
      ROW(107004, aclmdlRIGetId(w.foreign_model, w.out.As<uint32_t>())),
      ROW(107004, aclmdlRIDebugPrint(w.foreign_model)),
      ROW(107004, aclmdlRIDebugJsonPrint(w.foreign_built, "/dev/null", 0)),
  });
  EXPECT_ACL(0, aclrtSetCurrentContext(other_context_));
  RunRows({
      ROW(107004, aclmdlRICaptureToModelRIBegin(w.foreign, w.body, kGlobal)),
      ROW(107003, aclmdlRICaptureToModelRIBegin(w.aux, w.body, kGlobal)),
      ROW(107004, aclmdlRIExecuteAsync(w.model, w.foreign)),
      ROW(107000, aclmdlRIExecuteAsync(w.model, w.bound)),
      ROW(207000, aclmdlRIExecuteAsync(w.body, w.foreign)),
  });
  EXPECT_ACL(0, aclrtSetCurrentContext(world_.context));
  StillWorks();
}

TEST_F(Graph, ModelsOfTheWrongKindOrState) {
  Everywhere({
      ROW(107000, aclmdlRICaptureToModelRIBegin(w.aux, w.model, kGlobal)),
      ROW(107000, aclmdlRICaptureToModelRIBegin(w.aux, w.built, kGlobal)),
      ROW(107000, aclmdlRICaptureToModelRIBegin(w.aux, w.fresh, kGlobal)),
      ROW(107026, aclmdlRICaptureToModelRIBegin(w.aux, w.body, kGlobal)),
      ROW(207000, aclmdlRIExecuteAsync(w.body, w.stream)),
      ROW(507011, aclmdlRIExecuteAsync(w.fresh, w.stream)),
      ROW(507011, aclmdlRIExecuteAsync(w.fresh, nullptr)),
      ROW(107000, aclmdlRIExecuteAsync(w.model, w.persistent)),
      ROW(107000, aclmdlRIExecuteAsync(w.model, w.bound)),
      ROW(107000, aclmdlRIExecuteAsync(w.built, w.bound)),
      ROW(107000, aclmdlRIExecuteAsync(w.model, w.cpu_schedule)),
      ROW(107000, aclmdlRIExecuteAsync(w.model, w.device_only)),
      ROW(107000, aclmdlRIExecuteAsync(w.body, w.device_only)),
      ROW(107000, aclmdlRIExecute(w.model, -1)),
      ROW(107000, aclmdlRIExecute(w.body, -1)),
      ROW(507011, aclmdlRIExecute(w.fresh, -1)),
      ROW(207000, aclmdlRIAbort(w.model)),
      ROW(207000, aclmdlRIAbort(w.body)),
      ROW(0, aclmdlRIAbort(w.built)),
      ROW(0, aclmdlRIAbort(w.fresh)),
      ROW(207000, aclmdlRIDestroy(w.body)),
      ROW(207000, aclmdlRIDestroyRegisterCallback(w.body, Ignore, nullptr)),
      ROW(207000, aclmdlRIDestroyUnregisterCallback(w.body, Ignore)),
      ROW(107000, aclmdlRIDestroyUnregisterCallback(w.model, Ignore)),
      ROW(0, aclmdlRIGetId(w.body, w.out.As<uint32_t>())),
      ROW(0, aclmdlRISetName(w.body, "body")),
      ROW(0, aclmdlRIDebugPrint(w.body)),
      ROW(0, aclmdlRIDebugPrint(w.fresh)),
      ROW(0, aclmdlRIDebugJsonPrint(w.built, "/dev/null", UINT32_MAX)),
  });
}

TEST_F(Graph, DuringACapture) {
  for (const aclmdlRICaptureMode mode : {kGlobal, kThreadLocal, kRelaxed}) {
    Open(mode);
    RunRows({
        ROW(107027, aclmdlRICaptureBegin(w.origin, kGlobal)),
        ROW(107027, aclmdlRICaptureBegin(w.origin, kRelaxed)),
        ROW(107027, aclmdlRICaptureBegin(w.forked, kThreadLocal)),
        ROW(107000, aclmdlRICaptureEnd(w.origin, nullptr)),
        ROW(107000, aclmdlRICaptureEnd(w.forked, nullptr)),
        ROW(107000, aclmdlRICaptureToModelRIBegin(w.aux, w.open_model, kGlobal)),
        ROW(107026, aclmdlRICaptureToModelRIBegin(w.origin, w.body, kGlobal)),
        ROW(107027, aclmdlRIExecuteAsync(w.model, w.origin)),
        ROW(107027, aclmdlRIExecuteAsync(w.model, w.forked)),
        ROW(107027, aclmdlRIExecuteAsync(w.built, w.forked)),
        ROW(107027, aclmdlRIExecuteAsync(w.open_model, w.origin)),
        ROW(107026, aclmdlRIExecuteAsync(w.open_model, w.stream)),
        ROW(107026, aclmdlRIExecuteAsync(w.open_model, nullptr)),
        ROW(107000, aclmdlRIExecute(w.open_model, 10)),
        ROW(207000, aclmdlRIAbort(w.open_model)),
        ROW(107026, aclmdlRIDestroy(w.open_model)),
        ROW(0, aclmdlRISetName(w.open_model, "open")),
        ROW(507000, aclmdlRIGetName(w.open_model, 4, w.out.As<char>())),
        ROW(0, aclmdlRIGetName(w.open_model, 5, w.out.As<char>())),
        ROW(0, aclmdlRIGetId(w.open_model, w.out.As<uint32_t>())),
        ROW(0, aclmdlRIDebugPrint(w.open_model)),
        ROW(0, aclmdlRIDebugJsonPrint(w.open_model, "/dev/null", 1)),
        ROW(107000, aclmdlRIDebugJsonPrint(w.open_model, "/dev/null/x", 1)),
        ROW(0, aclmdlRIDestroyRegisterCallback(w.open_model, Ignore, nullptr)),
        ROW(107000, aclmdlRIDestroyRegisterCallback(w.open_model, Ignore, &w)),
        ROW(0, aclmdlRIDestroyUnregisterCallback(w.open_model, Ignore)),
        ROW(107000, aclmdlRIDestroyUnregisterCallback(w.open_model, Ignore)),
    });
    // Only the origin ends a capture.
    aclmdlRI ended = &world_.local;
    EXPECT_ACL(107036, aclmdlRICaptureEnd(world_.forked, &ended));
    EXPECT_EQ(ended, nullptr);
    ExpectCaptureActive();
    StillWorks();
    Close();
  }
}

TEST_F(Graph, DuringACaptureOtherThreadsAndContexts) {
  Open(kGlobal);
  world_.captured = nullptr;  // these threads cannot look at it
  OnThread(nullptr, {
                        ROW(107000, aclmdlRICaptureEnd(w.origin, nullptr)),
                        ROW(107002, aclmdlRICaptureEnd(w.origin, w.out.handle())),
                        ROW(107002, aclmdlRICaptureEnd(w.forked, w.out.handle())),
                    });
  OnThread(other_context_, {
                               ROW(107003, aclmdlRICaptureEnd(w.origin, w.out.handle())),
                               ROW(107003, aclmdlRICaptureGetInfo(w.origin, nullptr, w.out.handle())),
                               ROW(107003, aclmdlRICaptureBegin(w.origin, kGlobal)),
                               ROW(107027, aclmdlRIExecuteAsync(w.model, w.origin)),
                               ROW(107004, aclmdlRIExecuteAsync(w.open_model, w.foreign)),
                           });
  world_.captured = world_.origin;
  OnThread(world_.context, {
                               ROW(107000, aclmdlRICaptureEnd(w.origin, nullptr)),
                               ROW(107027, aclmdlRICaptureBegin(w.origin, kGlobal)),
                               ROW(107026, aclmdlRIDestroy(w.open_model)),
                               ROW(0, aclmdlRICaptureGetInfo(w.forked, nullptr, w.out.handle())),
                           });
  Close();
}

TEST_F(Graph, EndOnAnotherThread) {
  for (const aclmdlRICaptureMode mode : {kGlobal, kThreadLocal}) {
    Open(mode);
    world_.captured = nullptr;
    const aclmdlRI lost = world_.open_model;
    std::thread([&] {
      EXPECT_EQ(0, aclrtSetCurrentContext(world_.context));
      EndFails(107038, world_.origin);
    }).join();
    EXPECT_EQ(Status(world_.forked), ACL_MODEL_RI_CAPTURE_STATUS_NONE) << "the whole capture is over";
    EXPECT_ACL(107017, aclmdlRIDestroy(lost));
    // The begin thread may do synchronous copies again, and capture again.
    EXPECT_ACL(0, aclrtMemcpy(world_.cell, 8, world_.cell + 1, 8, ACL_MEMCPY_DEVICE_TO_DEVICE));
    StillWorks();
    Open(mode);
    Close();
  }
  // A capture whose thread has ended cannot be ended any more, but given up.
  std::thread([&] {
    EXPECT_EQ(0, aclrtSetCurrentContext(world_.context));
    Open(kThreadLocal);
  }).join();
  world_.captured = nullptr;
  EndFails(107038, world_.origin);
  EXPECT_EQ(Status(world_.forked), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  // In mode RELAXED anybody may end it.
  std::thread([&] {
    EXPECT_EQ(0, aclrtSetCurrentContext(world_.context));
    Open(kRelaxed);
  }).join();
  Close();
  StillWorks();
}

TEST_F(Graph, EndOfABadCapture) {
  const World& w = world_;
  // Forked and not joined.
  Open();
  world_.captured = nullptr;
  EndFails(107025, w.origin);
  EXPECT_EQ(Status(w.forked), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  // A group is open.
  MUST(aclmdlRICaptureBegin(w.origin, kGlobal));
  MUST(aclmdlRICaptureTaskGrpBegin(w.origin));
  EndFails(107033, w.origin);
  // A body was not captured, or not to its end.
  for (const bool begun : {false, true}) {
    MUST(aclmdlRICaptureBegin(w.origin, kGlobal));
    aclmdlRI model = nullptr;
    MUST(aclmdlRICaptureGetInfo(w.origin, nullptr, &model));
    aclmdlRICondHandle handle = nullptr;
    MUST(aclmdlRICondHandleCreate(model, 0, static_cast<aclmdlRICondHandleFlag>(0), &handle));
    aclmdlRI body = nullptr;
    MUST(aclmdlRIAddCondTask({handle, ACL_MODEL_RI_COND_TYPE_WHILE, 1, &body}, w.origin, 0));
    if (begun) {
      MUST(aclmdlRICaptureToModelRIBegin(w.aux, body, kGlobal));
    }
    EndFails(107045, w.origin);
    EXPECT_EQ(Status(w.aux), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
    uint32_t id = 0;
    EXPECT_ACL(107017, aclmdlRIGetId(body, &id)) << "bodies go with their root";
    uint64_t* cell = nullptr;
    EXPECT_ACL(107017, aclmdlRICondHandleGetCondPtr(handle, &cell));
  }
  StillWorks();
  Open();
  Close();
}

TEST_F(Graph, BodyThatIsNotCapturedYet) {
  Open();
  const aclmdlRI captured_body = world_.body;
  aclmdlRICondHandle handle = nullptr;
  MUST(aclmdlRICondHandleCreate(world_.open_model, 1, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &handle));
  MUST(aclmdlRIAddCondTask({handle, ACL_MODEL_RI_COND_TYPE_IF, 1, &world_.body}, world_.origin, 0));
  RunRows({
      ROW(507000, aclmdlRICaptureToModelRIBegin(w.cpu_schedule, w.body, kGlobal)),
      ROW(107003, aclmdlRICaptureToModelRIBegin(w.foreign, w.body, kGlobal)),
      ROW(107005, aclmdlRICaptureToModelRIBegin(w.bound, w.body, kGlobal)),
      ROW(207000, aclmdlRICaptureToModelRIBegin(w.default_stream, w.body, kGlobal)),
      ROW(107027, aclmdlRICaptureToModelRIBegin(w.origin, w.body, kGlobal)),
      ROW(107027, aclmdlRICaptureToModelRIBegin(w.forked, w.body, kRelaxed)),
      ROW(207000, aclmdlRIExecuteAsync(w.body, w.stream)),
      ROW(207000, aclmdlRIDestroy(w.body)),
      ROW(0, aclmdlRIDebugJsonPrint(w.body, "/dev/null", 1)),
  });
  EXPECT_ACL(0, aclmdlRICaptureToModelRIBegin(world_.aux, world_.body, kGlobal));
  RunRows({
      ROW(107026, aclmdlRICaptureToModelRIBegin(w.persistent, w.body, kGlobal)),
      ROW(107026, aclmdlRICaptureToModelRIBegin(w.aux, w.body, kGlobal)),
      ROW(107027, aclmdlRICaptureBegin(w.aux, kGlobal)),
      ROW(107027, aclmdlRIExecuteAsync(w.model, w.aux)),
      ROW(207000, aclmdlRIDestroy(w.body)),
  });
  // Ending the body on another thread fails, and takes the root along at its end.
  EXPECT_ACL(0, aclmdlRICaptureEnd(world_.aux, nullptr)) << "the model of a body is known";
  RunRows({ROW(107026, aclmdlRICaptureToModelRIBegin(w.aux, w.body, kGlobal))});
  world_.body = captured_body;
  Close();

  MUST(aclmdlRICaptureBegin(world_.origin, kGlobal));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureGetInfo(world_.origin, nullptr, &model));
  MUST(aclmdlRICondHandleCreate(model, 1, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &handle));
  aclmdlRI body = nullptr;
  MUST(aclmdlRIAddCondTask({handle, ACL_MODEL_RI_COND_TYPE_IF, 1, &body}, world_.origin, 0));
  MUST(aclmdlRICaptureToModelRIBegin(world_.aux, body, kGlobal));
  std::thread([&] {
    EXPECT_EQ(0, aclrtSetCurrentContext(world_.context));
    EndFails(107038, world_.aux);
  }).join();
  EXPECT_ACL(107026, aclmdlRICaptureToModelRIBegin(world_.aux, body, kGlobal)) << "a body has one try";
  EndFails(107045, world_.origin);
  StillWorks();
}

TEST_F(Graph, InvalidatedCapture) {
  World& world = world_;
  const aclrtStream first = NewStream();
  const aclrtStream second = NewStream();
  Invalidate(first, second);
  world.origin = first;
  MUST(aclmdlRICaptureGetInfo(first, nullptr, &world.open_model));
  RunRows({
      ROW(107027, aclmdlRICaptureBegin(w.origin, kRelaxed)),
      ROW(107000, aclmdlRICaptureEnd(w.origin, nullptr)),
      ROW(107000, aclmdlRICaptureToModelRIBegin(w.aux, w.open_model, kGlobal)),
      ROW(107027, aclmdlRIExecuteAsync(w.model, w.origin)),
      ROW(107026, aclmdlRIExecuteAsync(w.open_model, w.stream)),
      ROW(107026, aclmdlRIDestroy(w.open_model)),
      ROW(0, aclmdlRISetName(w.open_model, "doomed")),
      ROW(0, aclmdlRIDebugPrint(w.open_model)),
  });
  EXPECT_EQ(0, Launch(first, world.cell, 1)) << "work is accepted and dropped";
  for (const aclrtStream stream : {first, second}) {
    EXPECT_EQ(Status(stream), ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED);
    EndFails(507903, stream);
  }
  EXPECT_EQ(*world.cell, 0U);
  world.origin = nullptr;
  StillWorks();
  Open();
  Close();
}

TEST_F(Graph, StreamThatUpdatesAGroup) {
  World& world = world_;
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(world.aux, world.captured_model.group));
  RunRows({
      ROW(507009, aclmdlRICaptureBegin(w.aux, kGlobal)),
      ROW(507009, aclmdlRIExecuteAsync(w.model, w.aux)),
      ROW(507009, aclmdlRIExecuteAsync(w.built, w.aux)),
      ROW(0, aclmdlRICaptureGetInfo(w.aux, w.out.As<aclmdlRICaptureStatus>(), nullptr)),
  });
  EXPECT_EQ(Status(world.aux), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  aclmdlRI ended = nullptr;
  EXPECT_ACL(107029, aclmdlRICaptureEnd(world.aux, &ended));
  EXPECT_EQ(0, Launch(world.aux, world.captured_model.cell, 10)) << "the same that it was";
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(world.aux));
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(world.aux, kPatience));
  StillWorks();
}

TEST_F(Graph, Names) {
  const aclmdlRI model = world_.model;
  Everywhere({
      ROW(0, aclmdlRISetName(w.model, "")),
      ROW(0, aclmdlRIGetName(w.model, 1, w.out.As<char>())),
      ROW(0, aclmdlRISetName(w.model, "four")),
      ROW(507000, aclmdlRIGetName(w.model, 1, w.out.As<char>())),
      ROW(507000, aclmdlRIGetName(w.model, 4, w.out.As<char>())),
      ROW(0, aclmdlRIGetName(w.model, 5, w.out.As<char>())),
      ROW(0, aclmdlRIGetName(w.model, UINT32_MAX, w.out.As<char>())),
      ROW(0, aclmdlRISetName(w.model, kLongName.c_str())),
      ROW(507000, aclmdlRIGetName(w.model, 511, w.out.As<char>())),
      ROW(0, aclmdlRIGetName(w.model, 512, w.out.As<char>())),
      ROW(0, aclmdlRISetName(w.model, "{} %s \x01\xff\"\\\n")),
      ROW(0, aclmdlRIDebugPrint(w.model)),
      ROW(0, aclmdlRIDebugJsonPrint(w.model, "/dev/null", 1)),
  });
  EXPECT_ACL(0, aclmdlRISetName(model, kLongName.c_str()));
  std::vector<char> text(1024, '#');
  EXPECT_ACL(0, aclmdlRIGetName(model, 1024, text.data()));
  EXPECT_EQ(std::string(text.data()), kLongName.substr(0, 511));
  EXPECT_EQ(text[512], '#');
}

TEST_F(Graph, UnwritableDumps) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("misuse_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  Everywhere({
      ROW(107000, aclmdlRIDebugJsonPrint(w.model, "", 0)),
      ROW(107000, aclmdlRIDebugJsonPrint(w.model, "/", 0)),
      ROW(107000, aclmdlRIDebugJsonPrint(w.model, "/no/such/folder/x.json", 0)),
      ROW(107000, aclmdlRIDebugJsonPrint(w.model, "/dev/null/x.json", 1)),
      ROW(107000, aclmdlRIDebugJsonPrint(w.model, "/dev/full", 0)),
      ROW(107000, aclmdlRIDebugJsonPrint(w.built, "/dev/full", 1)),
      ROW(107000, aclmdlRIDebugJsonPrint(w.model, kLongPath.c_str(), 0)),
      ROW(107000, aclmdlRIDebugJsonPrint(w.body, "{}{0}%n/x", 0)),
  });
  // A refused dump leaves an older file alone.
  const std::string path = folder / "dump.json";
  EXPECT_ACL(0, aclmdlRIDebugJsonPrint(world_.model, path.c_str(), UINT32_MAX)) << "unknown flags are ignored";
  const auto size = std::filesystem::file_size(path);
  EXPECT_GT(size, 100U);
  EXPECT_ACL(107004, aclmdlRIDebugJsonPrint(world_.foreign_model, path.c_str(), 0));
  EXPECT_ACL(107017, aclmdlRIDebugJsonPrint(&world_, path.c_str(), 0));
  EXPECT_EQ(std::filesystem::file_size(path), size);
  std::filesystem::remove_all(folder);
}

TEST_F(Graph, CallbacksAreRegisteredOnce) {
  Captured extra;
  Capture(extra);
  const aclmdlRI model = extra.model;
  int calls = 0;
  int other_calls = 0;
  EXPECT_ACL(0, aclmdlRIDestroyRegisterCallback(model, CountCall, &calls));
  EXPECT_ACL(107000, aclmdlRIDestroyRegisterCallback(model, CountCall, &other_calls));
  EXPECT_ACL(107000, aclmdlRIDestroyUnregisterCallback(model, Ignore));
  EXPECT_ACL(0, aclmdlRIDestroyRegisterCallback(model, Ignore, nullptr));
  EXPECT_ACL(0, aclmdlRIDestroyUnregisterCallback(model, Ignore));
  EXPECT_ACL(107000, aclmdlRIDestroyUnregisterCallback(model, Ignore));
  EXPECT_ACL(107000, aclmdlRIDestroyRegisterCallback(model, nullptr, &calls));
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(other_calls, 0);
  EXPECT_ACL(107017, aclmdlRIDestroyUnregisterCallback(model, CountCall));
  EXPECT_EQ(calls, 1);
  // A callback that uses the model finds it gone.
  Capture(extra);
  static aclmdlRI g_going = nullptr;
  static int g_code = 0;
  g_going = extra.model;
  EXPECT_ACL(0, aclmdlRIDestroyRegisterCallback(
                    g_going, [](void*) { g_code = aclmdlRIDestroy(g_going); }, nullptr));
  EXPECT_ACL(0, aclmdlRIDestroy(g_going));
  EXPECT_EQ(g_code, 107017);
  StillWorks();
}

TEST_F(Graph, DestroyWhileExecutingWaits) {
  Captured extra;
  Capture(extra);
  Gate gate;
  gate.Block(world_.stream);
  for (int i = 0; i < 3; ++i) EXPECT_ACL(0, aclmdlRIExecuteAsync(extra.model, world_.stream));
  std::thread opener([&] { gate.Open(); });
  EXPECT_ACL(0, aclmdlRIDestroy(extra.model));
  opener.join();
  EXPECT_EQ(*extra.cell, 3 * Captured::kAdds) << "nothing of the queued executions is lost";
  EXPECT_ACL(107017, aclmdlRIExecuteAsync(extra.model, world_.stream));
  EXPECT_ACL(107017, aclmdlRIDestroy(extra.model));
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(world_.stream, kPatience));
  StillWorks();
}

TEST_F(Graph, FailingKernelFailsItsExecutionOnly) {
  const World& w = world_;
  const aclrtStream stream = NewStream();
  MUST(aclmdlRICaptureBegin(stream, kRelaxed));
  uint64_t args[] = {1};
  MUST(aclrtLaunchKernelWithHostArgs(w.fail, 1, stream, nullptr, args, sizeof args, nullptr, 0));
  MUST(Launch(stream, w.cell, 1));
  aclmdlRI model = nullptr;
  MUST(aclmdlRICaptureEnd(stream, &model));
  for (int i = 0; i < 2; ++i) {
    EXPECT_ACL(0, aclmdlRIExecuteAsync(model, w.stream));
    EXPECT_ACL(507015, aclrtSynchronizeStreamWithTimeout(w.stream, kPatience));
    EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(w.stream, kPatience)) << "told once";
    EXPECT_EQ(*w.cell, 0U);
  }
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  StillWorks();
}

TEST_F(Graph, ExecuteThatTimesOut) {
  World& w = world_;
  Built waiting;
  waiting.stream = NewStreamWith(ACL_STREAM_PERSISTENT);
  MUST(aclmdlRIBuildBegin(&waiting.model, 0));
  MUST(aclmdlRIBindStream(waiting.model, waiting.stream, ACL_MODEL_STREAM_FLAG_HEAD));
  MUST(aclrtValueWrite(w.cell + 1, 1, 0, waiting.stream));
  MUST(aclrtValueWait(w.cell, 1, ACL_STREAM_WAIT_VALUE_EQ, waiting.stream));
  MUST(aclmdlRIEndTask(waiting.model, waiting.stream));
  MUST(aclmdlRIBuildEnd(waiting.model, nullptr));
  EXPECT_ACL(507046, aclmdlRIExecute(waiting.model, 1));
  EXPECT_ACL(507046, aclmdlRIExecute(waiting.model, 1)) << "the second one queues behind the first";
  StillWorks();
  MUST(aclrtValueWrite(w.cell, 1, 0, w.stream));
  EXPECT_ACL(0, aclmdlRIExecute(waiting.model, kPatience));
  // And one that is aborted.
  *w.cell = 0;
  const std::atomic_ref<uint64_t> begun(w.cell[1]);
  begun.store(0);
  EXPECT_ACL(507046, aclmdlRIExecute(waiting.model, 1));
  while (begun.load() == 0) std::this_thread::yield();  // nothing is aborted that has not begun
  EXPECT_ACL(0, aclmdlRIAbort(waiting.model));
  *w.cell = 1;
  EXPECT_ACL(507023, aclmdlRIExecute(waiting.model, kPatience)) << "tells of the execution before it, once";
  EXPECT_ACL(0, aclmdlRIExecute(waiting.model, kPatience));
  EXPECT_ACL(0, aclmdlRIDestroy(waiting.model));
  StillWorks();
}

// ---------------------------------------------------------------------------------------------------------------------

class GraphFuzz : public Graph {
 protected:
  static constexpr size_t kStreams = 4;

  void SetUp() override {
    Graph::SetUp();
    World& w = world_;
    streams_ = {nullptr, w.stream, w.default_stream, w.foreign, w.bound, w.persistent, w.cpu_schedule};
    for (size_t i = 0; i < kStreams; ++i) {
      own_.push_back(NewStream());
      // More often than the others.
      streams_.insert(streams_.end(), 3, own_.back());
    }
    own_.insert(own_.end(), {w.stream, w.persistent});
    for (const Handle& bad : w.BadHandles("stream")) streams_.push_back(bad.handle);
    fixed_models_ = {nullptr, w.body, w.foreign_model, w.foreign_built, w.fresh};
    for (const Handle& bad : w.BadHandles("model")) fixed_models_.push_back(bad.handle);
    for (size_t i = 0; i < 3; ++i) Renew(i);
  }

  // A model that the calls may destroy.
  void Renew(size_t i) {
    if (models_.size() <= i) models_.resize(i + 1);
    if (i % 2 == 0) {
      Captured made;
      Capture(made);
      models_[i] = made.model;
    } else {
      Built made;
      Build(made);
      models_[i] = made.model;
    }
  }
  static bool IsLive(aclmdlRI model) {
    uint32_t id = 0;
    const bool live = aclmdlRIGetId(model, &id) == 0;
    DropMessage();
    return live;
  }

  aclrtStream AnyStream(Dice& dice) { return dice.Pick(streams_); }
  aclmdlRI AnyModel(Dice& dice) {
    switch (dice.Below(4)) {
      case 0: return dice.Pick(fixed_models_);
      case 1: return open_.empty() ? world_.model : dice.Pick(open_);
      case 2: return ended_.empty() ? world_.built : dice.Pick(ended_);
      default: return dice.Pick(models_);
    }
  }
  // Those that Destroy may get: not the world's own.
  aclmdlRI AnyVictim(Dice& dice) {
    aclmdlRI model = AnyModel(dice);
    return model == world_.model || model == world_.built || model == world_.fresh || model == world_.foreign_model ||
                   model == world_.foreign_built
               ? nullptr
               : model;
  }

  void EndAll() {
    for (const aclrtStream stream : own_) {
      aclmdlRI model = nullptr;
      if (aclmdlRICaptureEnd(stream, &model) == 0) {
        EXPECT_ACL(0, aclmdlRIDestroy(model));
      }
    }
    for (const aclrtStream stream : own_) EXPECT_EQ(Status(stream), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
    DropMessage();
  }

  std::vector<aclrtStream> streams_;
  std::vector<aclrtStream> own_;
  std::vector<aclmdlRI> fixed_models_;
  std::vector<aclmdlRI> models_;
  std::vector<aclmdlRI> open_;   // seen while being captured; perhaps gone
  std::vector<aclmdlRI> ended_;  // that CaptureEnd returned; perhaps gone
};

TEST_F(GraphFuzz, RandomArguments) {
  const std::vector<int> modes = {0, 1, 2, 3, -1, INT_MAX, INT_MIN};
  const std::vector<const char*> names = {nullptr, "", "a", "{}%s", kLongName.c_str()};
  const std::vector<const char*> paths = {nullptr,          "", "/dev/null", "/dev/full", "/no/dir/x", "/dev/null/x",
                                          kLongPath.c_str()};
  const std::vector<int> timeouts = {0, -1, -2, 1, kPatience, INT_MIN};
  const std::vector<aclrtCallback> callbacks = {nullptr, Ignore, CountCall};
  static int counter = 0;  // models of the world, which keep the callback, outlive the test
  std::vector<char> text(2048);
  const std::vector<RandomCall> calls = {
      {"aclmdlRICaptureBegin",
       [&](Dice& d) { return aclmdlRICaptureBegin(AnyStream(d), d.PickEnum<aclmdlRICaptureMode>(modes)); }},
      {"aclmdlRICaptureToModelRIBegin",
       [&](Dice& d) {
         return aclmdlRICaptureToModelRIBegin(AnyStream(d), AnyModel(d), d.PickEnum<aclmdlRICaptureMode>(modes));
       }},
      {"aclmdlRICaptureGetInfo",
       [&](Dice& d) {
         aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
         aclmdlRI model = nullptr;
         const int code = aclmdlRICaptureGetInfo(AnyStream(d), d.Below(4) == 0 ? nullptr : &status,
                                                 d.Below(4) == 0 ? nullptr : &model);
         if (model != nullptr) open_.push_back(model);
         return code;
       }},
      {"aclmdlRICaptureEnd",
       [&](Dice& d) {
         aclmdlRI model = nullptr;
         const int code = aclmdlRICaptureEnd(AnyStream(d), d.Below(4) == 0 ? nullptr : &model);
         if (model != nullptr) ended_.push_back(model);
         return code;
       }},
      {"aclmdlRICaptureThreadExchangeMode",
       [&](Dice& d) {
         auto mode = d.PickEnum<aclmdlRICaptureMode>(modes);
         return aclmdlRICaptureThreadExchangeMode(d.Below(8) == 0 ? nullptr : &mode);
       }},
      {"aclmdlRIExecuteAsync", [&](Dice& d) { return aclmdlRIExecuteAsync(AnyModel(d), AnyStream(d)); }},
      {"aclmdlRIExecute", [&](Dice& d) { return aclmdlRIExecute(AnyModel(d), d.Pick(timeouts)); }},
      {"aclmdlRIAbort", [&](Dice& d) { return aclmdlRIAbort(AnyModel(d)); }},
      {"aclmdlRIDestroyRegisterCallback",
       [&](Dice& d) { return aclmdlRIDestroyRegisterCallback(AnyModel(d), d.Pick(callbacks), &counter); }},
      {"aclmdlRIDestroyUnregisterCallback",
       [&](Dice& d) { return aclmdlRIDestroyUnregisterCallback(AnyModel(d), d.Pick(callbacks)); }},
      {"aclmdlRIDestroy", [&](Dice& d) { return aclmdlRIDestroy(AnyVictim(d)); }},
      {"aclmdlRISetName", [&](Dice& d) { return aclmdlRISetName(AnyModel(d), d.Pick(names)); }},
      {"aclmdlRIGetName",
       [&](Dice& d) {
         return aclmdlRIGetName(AnyModel(d), d.Pick(std::vector<uint32_t>{0, 1, 5, 512, 2048}),
                                d.Below(4) == 0 ? nullptr : text.data());
       }},
      {"aclmdlRIGetId",
       [&](Dice& d) {
         uint32_t id = 0;
         return aclmdlRIGetId(AnyModel(d), d.Below(4) == 0 ? nullptr : &id);
       }},
      {"aclmdlRIDebugPrint", [&](Dice& d) { return aclmdlRIDebugPrint(AnyModel(d)); }},
      {"aclmdlRIDebugJsonPrint",
       [&](Dice& d) { return aclmdlRIDebugJsonPrint(AnyModel(d), d.Pick(paths), static_cast<uint32_t>(d.Below(4))); }},
  };
  int steps = 0;
  const auto after = [&] {
    if (++steps % 16 != 0) return;
    for (const aclrtStream stream : own_) {  // something to end and to execute
      aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
      EXPECT_EQ(0, aclmdlRICaptureGetInfo(stream, &status, nullptr));
      if (status == ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE) {
        EXPECT_EQ(0, Launch(stream, world_.cell + 1, 1));
      }
    }
    for (size_t i = 0; i < models_.size(); ++i) {
      if (!IsLive(models_[i])) Renew(i);
    }
  };
  for (const uint64_t seed : Seeds(Loops(6, 2))) {
    RunRandomCalls(seed, Loops(3000, 600), calls, after);
    if (HasFailure()) break;
    aclmdlRICaptureMode mode = kGlobal;
    EXPECT_ACL(0, aclmdlRICaptureThreadExchangeMode(&mode));
    EndAll();
    for (const aclmdlRI model : ended_) {
      if (IsLive(model)) {
        EXPECT_ACL(0, aclmdlRIDestroy(model));
      }
    }
    ended_.clear();
    open_.clear();
    // An aborted execution tells its stream.
    const int code = aclrtSynchronizeDeviceWithTimeout(kPatience);
    EXPECT_TRUE(code == 0 || code == 507023) << code;
    EXPECT_ACL(0, aclrtSynchronizeDeviceWithTimeout(kPatience));
    StillWorks();
  }
  for (const aclmdlRI model : models_) {
    if (IsLive(model)) {
      EXPECT_ACL(0, aclmdlRIDestroy(model));
    }
  }
}

}  // namespace
}  // namespace reprise::testing
