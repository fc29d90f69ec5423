// SPDX-License-Identifier: Apache-2.0
//
// Conditional tasks: AG-216 … AG-236.
#include "fixture.h"
#include "weak.h"

#include <stdexcept>

namespace reprise::conformance {
namespace {

constexpr aclmdlRICondHandleFlag kKeepValue = static_cast<aclmdlRICondHandleFlag>(0);
constexpr aclmdlRICondHandleFlag kAssignDefault = ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT;
constexpr aclmdlRICondTaskType kIf = ACL_MODEL_RI_COND_TYPE_IF;
constexpr aclmdlRICondTaskType kWhile = ACL_MODEL_RI_COND_TYPE_WHILE;
constexpr aclmdlRICondTaskType kSwitch = ACL_MODEL_RI_COND_TYPE_SWITCH;

class Conditional : public AclGraph {
 protected:
  void SetUp() override {
    AclGraph::SetUp();
    stream_ = NewStream();
    log_ = NewLog();
  }

  aclmdlRICondHandle NewHandle(aclmdlRI model, uint32_t value, aclmdlRICondHandleFlag flag) {
    aclmdlRICondHandle handle = nullptr;
    MUST(aclmdlRICondHandleCreate(model, value, flag, &handle));
    EXPECT_NE(handle, nullptr);
    return handle;
  }
  uint64_t* CellOf(aclmdlRICondHandle handle) {
    uint64_t* cell = nullptr;
    MUST(aclmdlRICondHandleGetCondPtr(handle, &cell));
    if (cell == nullptr) throw std::runtime_error("aclmdlRICondHandleGetCondPtr returned 0 without a pointer");
    return cell;
  }
  static aclmdlRICondTaskParams Params(aclmdlRICondHandle handle, aclmdlRICondTaskType type,
                                       std::vector<aclmdlRI>& bodies) {
    aclmdlRICondTaskParams params = {};
    params.handle = handle;
    params.type = type;
    params.size = static_cast<uint32_t>(bodies.size());
    params.modelRIArray = bodies.data();
    return params;
  }
  std::vector<aclmdlRI> AddTask(aclrtStream stream, aclmdlRICondHandle handle, aclmdlRICondTaskType type, size_t size) {
    std::vector<aclmdlRI> bodies(size, nullptr);
    MUST(aclmdlRIAddCondTask(Params(handle, type, bodies), stream, 0));
    for (const aclmdlRI body : bodies) EXPECT_NE(body, nullptr);
    return bodies;
  }
  // Captures `work` into `body` on the auxiliary stream.
  template <class Work>
  void CaptureBody(aclmdlRI body, Work work) {
    const aclrtStream aux = NewStream();
    MUST(aclmdlRICaptureToModelRIBegin(aux, body, kGlobal));
    EXPECT_EQ(ModelOf(aux), body);
    work(aux);
    aclmdlRI ended = nullptr;
    MUST(aclmdlRICaptureEnd(aux, &ended));
    EXPECT_EQ(ended, body);
    ExpectIdle(aux);
  }
  void CaptureAppendBody(aclmdlRI body, uint64_t id) {
    CaptureBody(body, [&](aclrtStream aux) { MUST(Append(aux, log_, id)); });
  }

  aclrtStream stream_ = nullptr;
  Log log_;
};

// What every test of this file needs.
#define REQUIRE_CONDITIONALS() \
  REQUIRE_FN(aclmdlRICondHandleCreate, aclmdlRICondHandleGetCondPtr, aclmdlRIAddCondTask, aclmdlRICaptureToModelRIBegin)

TEST_F(Conditional, AG_216_UnknownHandleFlagIsRefused) {
  REQUIRE_CONDITIONALS();
  Begin(stream_);
  aclmdlRICondHandle handle = nullptr;
  EXPECT_ACL(107000, aclmdlRICondHandleCreate(ModelOf(stream_), 0, static_cast<aclmdlRICondHandleFlag>(2), &handle));
  EXPECT_EQ(handle, nullptr);
  ExpectActive(stream_);
  EXPECT_ACL(0, aclmdlRICondHandleCreate(ModelOf(stream_), 0, kKeepValue, &handle));
  EXPECT_NE(handle, nullptr);
  End(stream_);
}

TEST_F(Conditional, AG_217_HandleNeedsACapturingModel) {
  REQUIRE_CONDITIONALS();
  REQUIRE_FN(aclmdlRIBuildBegin);
  const aclmdlRI ended = CaptureAppend(log_, 1);
  aclmdlRICondHandle handle = nullptr;
  EXPECT_ACL(107000, aclmdlRICondHandleCreate(ended, 0, kKeepValue, &handle));
  EXPECT_EQ(handle, nullptr);
  aclmdlRI build = nullptr;
  MUST(aclmdlRIBuildBegin(&build, 0));
  Own(build);
  EXPECT_ACL(207000, aclmdlRICondHandleCreate(build, 0, kKeepValue, &handle));
  EXPECT_EQ(handle, nullptr);
}

TEST_F(Conditional, AG_218_TaskOnIdleStreamIsRefused) {
  REQUIRE_CONDITIONALS();
  const aclrtStream idle = NewStream();
  Begin(stream_);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 1, kAssignDefault);
  std::vector<aclmdlRI> bodies(1, nullptr);
  EXPECT_ACL(107029, aclmdlRIAddCondTask(Params(handle, kIf, bodies), idle, 0));
  ExpectIdle(idle);
  ExpectActive(stream_);
  // The handle is still free.
  CaptureAppendBody(AddTask(stream_, handle, kIf, 1)[0], 1);
  Replay(End(stream_), stream_);
  EXPECT_THAT(log_.Ids(), ElementsAre(1));
}

TEST_F(Conditional, AG_219_NumberOfBodiesIsChecked) {
  REQUIRE_CONDITIONALS();
  Begin(stream_);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 1, kAssignDefault);
  std::vector<aclmdlRI> bodies(3, nullptr);
  aclmdlRICondTaskParams params = Params(handle, kIf, bodies);
  EXPECT_ACL(107000, aclmdlRIAddCondTask(params, stream_, 0));
  params.size = 0;
  EXPECT_ACL(107000, aclmdlRIAddCondTask(params, stream_, 0));
  params.type = kWhile;
  params.size = 2;
  EXPECT_ACL(107000, aclmdlRIAddCondTask(params, stream_, 0));
  params.type = kSwitch;
  params.size = 0;
  EXPECT_ACL(107000, aclmdlRIAddCondTask(params, stream_, 0));
  ExpectActive(stream_);
  EXPECT_EQ(CountTasks(End(stream_)), 0U);
}

TEST_F(Conditional, AG_220_HandleServesOneTask) {
  REQUIRE_CONDITIONALS();
  Begin(stream_);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 1, kAssignDefault);
  CaptureAppendBody(AddTask(stream_, handle, kIf, 1)[0], 1);
  std::vector<aclmdlRI> bodies(1, nullptr);
  EXPECT_ACL(107000, aclmdlRIAddCondTask(Params(handle, kIf, bodies), stream_, 0));
  ExpectActive(stream_);
  const aclmdlRI model = End(stream_);
  EXPECT_EQ(CountTasks(model), 1U);
  Replay(model, stream_);
  EXPECT_THAT(log_.Ids(), ElementsAre(1));
}

TEST_F(Conditional, AG_221_HandleServesItsOwnModelOnly) {
  REQUIRE_CONDITIONALS();
  const aclrtStream other = NewStream();
  Begin(stream_);
  Begin(other);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 1, kAssignDefault);
  std::vector<aclmdlRI> bodies(1, nullptr);
  EXPECT_ACL(107000, aclmdlRIAddCondTask(Params(handle, kIf, bodies), other, 0));
  ExpectActive(stream_);
  ExpectActive(other);
  EXPECT_EQ(CountTasks(End(other)), 0U);
  End(stream_);
}

TEST_F(Conditional, AG_222_UncapturedBodyAbortsTheParent) {
  REQUIRE_CONDITIONALS();
  const aclrtStream forked = NewStream();
  Begin(stream_);
  Edge(stream_, forked);
  Edge(forked, stream_);
  AddTask(stream_, NewHandle(ModelOf(stream_), 1, kAssignDefault), kIf, 1);
  EndIsRefused(stream_, 107045);
  ExpectIdle(forked);
  // A body that has begun and not ended is as bad.
  const aclrtStream aux = NewStream();
  Begin(stream_);
  const std::vector<aclmdlRI> bodies = AddTask(stream_, NewHandle(ModelOf(stream_), 1, kAssignDefault), kIf, 1);
  MUST(aclmdlRICaptureToModelRIBegin(aux, bodies[0], kGlobal));
  EndIsRefused(stream_, 107045);
  ExpectIdle(aux);
}

TEST_F(Conditional, AG_223_IfWithDefaultOneRunsItsBodyEachReplay) {
  REQUIRE_CONDITIONALS();
  Begin(stream_);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 1, kAssignDefault);
  uint64_t* const cell = CellOf(handle);
  CaptureAppendBody(AddTask(stream_, handle, kIf, 1)[0], 1);
  const aclmdlRI model = End(stream_);
  EXPECT_THAT(log_.Ids(), IsEmpty());
  for (size_t replay = 1; replay <= 3; ++replay) {
    WriteCell(cell, 0);  // the default is assigned anew at each execution
    Replay(model, stream_);
    EXPECT_THAT(log_.Ids(), SizeIs(replay));
  }
}

TEST_F(Conditional, AG_224_IfWithValueZeroRunsTheSecondBody) {
  REQUIRE_CONDITIONALS();
  Begin(stream_);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 0, kAssignDefault);
  const std::vector<aclmdlRI> bodies = AddTask(stream_, handle, kIf, 2);
  CaptureAppendBody(bodies[0], 1);
  CaptureAppendBody(bodies[1], 2);
  const aclmdlRI model = End(stream_);
  Replay(model, stream_);
  EXPECT_THAT(log_.Ids(), ElementsAre(2));
}

TEST_F(Conditional, AG_225_WhileRunsUntilItsBodyClearsTheCell) {
  REQUIRE_CONDITIONALS();
  Begin(stream_);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 5, kAssignDefault);
  uint64_t* const cell = CellOf(handle);
  CaptureBody(AddTask(stream_, handle, kWhile, 1)[0], [&](aclrtStream aux) {
    MUST(Launch(aux, "append_value", log_.words, cell));
    MUST(Launch(aux, "decrement", cell));
  });
  const aclmdlRI model = End(stream_);
  for (int replay = 0; replay < 2; ++replay) {
    log_.Clear();
    Replay(model, stream_);
    EXPECT_THAT(log_.Ids(), ElementsAre(5, 4, 3, 2, 1));
    EXPECT_EQ(ReadCell(cell), 0U);
  }
}

TEST_F(Conditional, AG_226_WhileWithValueZeroRunsNothing) {
  REQUIRE_CONDITIONALS();
  Begin(stream_);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 0, kAssignDefault);
  uint64_t* const cell = CellOf(handle);
  CaptureBody(AddTask(stream_, handle, kWhile, 1)[0], [&](aclrtStream aux) {
    MUST(Append(aux, log_, 1));
    MUST(aclrtValueWrite(cell, 0, 0, aux));
  });
  MUST(Append(stream_, log_, 2));
  const aclmdlRI model = End(stream_);
  Replay(model, stream_);
  EXPECT_THAT(log_.Ids(), ElementsAre(2));
}

TEST_F(Conditional, AG_227_SwitchRunsTheBodyOfItsValue) {
  REQUIRE_CONDITIONALS();
  Begin(stream_);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 0, kKeepValue);
  uint64_t* const cell = CellOf(handle);
  const std::vector<aclmdlRI> bodies = AddTask(stream_, handle, kSwitch, 3);
  for (size_t i = 0; i < bodies.size(); ++i) CaptureAppendBody(bodies[i], 10 + i);
  const aclmdlRI model = End(stream_);
  struct Row {
    uint64_t value;
    std::vector<uint64_t> expected;
  };
  const Row rows[] = {{0, {10}}, {1, {11}}, {2, {12}}, {3, {}}, {uint64_t{1} << 40, {}}, {(uint64_t{1} << 32) + 2, {}}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.value);
    log_.Clear();
    WriteCell(cell, row.value);
    Replay(model, stream_);
    EXPECT_EQ(log_.Ids(), row.expected);
    EXPECT_EQ(ReadCell(cell), row.value) << "without ASSIGN_DEFAULT the value persists";
  }
}

TEST_F(Conditional, AG_228_ValueWrittenByACapturedCopyDecides) {
  REQUIRE_CONDITIONALS();
  uint64_t* const pinned = NewPinned(1, 0);
  Begin(stream_);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 1, kKeepValue);
  MUST(SlowAppend(stream_, log_, 100));
  EXPECT_ACL(0, aclrtMemcpyAsync(CellOf(handle), 8, pinned, 8, ACL_MEMCPY_HOST_TO_DEVICE, stream_));
  const std::vector<aclmdlRI> bodies = AddTask(stream_, handle, kIf, 2);
  CaptureAppendBody(bodies[0], 1);
  CaptureAppendBody(bodies[1], 2);
  const aclmdlRI model = End(stream_);
  for (const uint64_t value : {0, 1, 0, 7}) {
    SCOPED_TRACE(value);
    pinned[0] = value;
    log_.Clear();
    Replay(model, stream_);
    EXPECT_THAT(log_.Ids(), ElementsAre(100, value != 0 ? 1 : 2));
  }
}

TEST_F(Conditional, AG_229_IfInsideWhile) {
  REQUIRE_CONDITIONALS();
  Begin(stream_);
  const aclmdlRICondHandle loop = NewHandle(ModelOf(stream_), 3, kAssignDefault);
  uint64_t* const counter = CellOf(loop);
  CaptureBody(AddTask(stream_, loop, kWhile, 1)[0], [&](aclrtStream aux) {
    MUST(Launch(aux, "append_value", log_.words, counter));
    const aclmdlRICondHandle odd = NewHandle(ModelOf(aux), 0, kKeepValue);
    MUST(Launch(aux, "parity", CellOf(odd), counter));
    const std::vector<aclmdlRI> branch = AddTask(aux, odd, kIf, 1);
    CaptureAppendBody(branch[0], 100);
    MUST(Launch(aux, "decrement", counter));
  });
  MUST(Append(stream_, log_, 200));
  const aclmdlRI model = End(stream_);
  for (int replay = 0; replay < 2; ++replay) {
    log_.Clear();
    Replay(model, stream_);
    EXPECT_THAT(log_.Ids(), ElementsAre(3, 100, 2, 1, 100, 200));
  }
}

TEST_F(Conditional, AG_230_BodyCaptureNeedsASubModel) {
  REQUIRE_CONDITIONALS();
  REQUIRE_FN(aclmdlRIBuildBegin);
  const aclrtStream aux = NewStream();
  const aclmdlRI root = CaptureAppend(log_, 1);
  EXPECT_ACL(107000, aclmdlRICaptureToModelRIBegin(aux, root, kGlobal));
  ExpectIdle(aux);
  aclmdlRI build = nullptr;
  MUST(aclmdlRIBuildBegin(&build, 0));
  Own(build);
  EXPECT_ACL(107000, aclmdlRICaptureToModelRIBegin(aux, build, kGlobal));
  ExpectIdle(aux);
  Begin(stream_);
  EXPECT_ACL(107000, aclmdlRICaptureToModelRIBegin(aux, ModelOf(stream_), kGlobal));
  ExpectIdle(aux);
  ExpectActive(stream_);
  End(stream_);
}

TEST_F(Conditional, AG_231_BodyIsCapturedOnce) {
  REQUIRE_CONDITIONALS();
  const aclrtStream aux = NewStream();
  const aclrtStream aux2 = NewStream();
  Begin(stream_);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 1, kAssignDefault);
  const std::vector<aclmdlRI> bodies = AddTask(stream_, handle, kIf, 1);
  MUST(aclmdlRICaptureToModelRIBegin(aux, bodies[0], kGlobal));
  EXPECT_ACL(107026, aclmdlRICaptureToModelRIBegin(aux2, bodies[0], kGlobal)) << "being captured";
  ExpectIdle(aux2);
  MUST(Append(aux, log_, 1));
  MUST(aclmdlRICaptureEnd(aux, nullptr));
  EXPECT_ACL(107026, aclmdlRICaptureToModelRIBegin(aux, bodies[0], kGlobal)) << "captured";
  ExpectIdle(aux);
  ExpectActive(stream_);
  Replay(End(stream_), stream_);
  EXPECT_THAT(log_.Ids(), ElementsAre(1));
}

TEST_F(Conditional, AG_232_BodyIsNoModelOfItsOwn) {
  REQUIRE_CONDITIONALS();
  const aclrtStream other = NewStream();
  Begin(stream_);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 1, kAssignDefault);
  const aclmdlRI body = AddTask(stream_, handle, kIf, 1)[0];
  CaptureAppendBody(body, 1);
  const aclmdlRI model = End(stream_);
  EXPECT_ACL(207000, aclmdlRIDestroy(body));
  EXPECT_ACL(207000, aclmdlRIExecuteAsync(body, other));
  uint32_t count = 0;
  EXPECT_ACL(207000, aclmdlRIGetStreams(body, nullptr, &count));
  Sync(other);
  EXPECT_THAT(log_.Ids(), IsEmpty());
  uint32_t ids[2] = {};
  EXPECT_ACL(0, aclmdlRIGetId(body, &ids[0]));
  EXPECT_ACL(0, aclmdlRIGetId(model, &ids[1]));
  EXPECT_NE(ids[0], ids[1]);
  Replay(model, stream_);
  EXPECT_THAT(log_.Ids(), ElementsAre(1));
}

TEST_F(Conditional, AG_233_LaterTasksWaitForTheWholeBody) {
  REQUIRE_CONDITIONALS();
  const aclrtStream forked = NewStream();
  Begin(stream_);
  MUST(SlowAppend(stream_, log_, 1));
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 1, kAssignDefault);
  CaptureBody(AddTask(stream_, handle, kIf, 1)[0], [&](aclrtStream aux) {
    MUST(SlowAppend(aux, log_, 2));
    Edge(aux, forked);  // bodies fork and join on their own
    MUST(SlowAppend(forked, log_, 3));
    Edge(forked, aux);
    MUST(SlowAppend(aux, log_, 4));
  });
  MUST(Append(stream_, log_, 5));
  const aclmdlRI model = End(stream_);
  for (int replay = 0; replay < 2; ++replay) {
    log_.Clear();
    Replay(model, stream_);
    EXPECT_THAT(log_.Ids(), ElementsAre(1, 2, 3, 4, 5));
  }
}

TEST_F(Conditional, AG_234_GetCondPtrChecksItsArguments) {
  REQUIRE_CONDITIONALS();
  Begin(stream_);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 1, kAssignDefault);
  uint64_t* cell = nullptr;
  EXPECT_ACL(100000, aclmdlRICondHandleGetCondPtr(nullptr, &cell));
  EXPECT_EQ(cell, nullptr);
  EXPECT_ACL(100000, aclmdlRICondHandleGetCondPtr(handle, nullptr));
  EXPECT_ACL(0, aclmdlRICondHandleGetCondPtr(handle, &cell));
  ASSERT_NE(cell, nullptr);
  EXPECT_EQ(ReadCell(cell), 0U) << "zero at creation";
  uint64_t* again = nullptr;
  const aclmdlRI model = End(stream_);  // a handle without a task is legal
  EXPECT_ACL(0, aclmdlRICondHandleGetCondPtr(handle, &again));
  EXPECT_EQ(again, cell) << "stable for the life of the model";
  Replay(model, stream_);
  EXPECT_EQ(ReadCell(cell), 1U) << "the default is assigned though no task uses it";
}

TEST_F(Conditional, AG_235_BodyCaptureMayEndWithoutPlaceForTheModel) {
  REQUIRE_CONDITIONALS();
  const aclrtStream aux = NewStream();
  Begin(stream_);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 1, kAssignDefault);
  MUST(aclmdlRICaptureToModelRIBegin(aux, AddTask(stream_, handle, kIf, 1)[0], kGlobal));
  MUST(Append(aux, log_, 1));
  EXPECT_ACL(0, aclmdlRICaptureEnd(aux, nullptr));
  ExpectIdle(aux);
  Replay(End(stream_), stream_);
  EXPECT_THAT(log_.Ids(), ElementsAre(1));
}

TEST_F(Conditional, AG_236_BodiesDieWithTheRoot) {
  REQUIRE_CONDITIONALS();
  Begin(stream_);
  const aclmdlRICondHandle handle = NewHandle(ModelOf(stream_), 1, kAssignDefault);
  const aclmdlRI body = AddTask(stream_, handle, kIf, 1)[0];
  CaptureAppendBody(body, 1);
  const aclmdlRI model = End(stream_);
  uint32_t id = 0;
  EXPECT_ACL(0, aclmdlRIGetId(body, &id));
  DestroyModel(model);
  EXPECT_ACL(107017, aclmdlRIGetId(body, &id));
  uint64_t* cell = nullptr;
  EXPECT_ACL(107017, aclmdlRICondHandleGetCondPtr(handle, &cell)) << "the handle dies, too";
}

}  // namespace
}  // namespace reprise::conformance
