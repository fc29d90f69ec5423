// SPDX-License-Identifier: Apache-2.0
//
// The explicit build API and execution: AG-158 … AG-179, AG-181, AG-182. AG-180 takes longer than ten seconds by
// specification and has its own program, slow_test.cc.
#include "fixture.h"
#include "weak.h"

#include <atomic>
#include <numeric>

namespace reprise::conformance {
namespace {

class Build : public AclGraph {
 protected:
  aclmdlRI NewBuild() {
    aclmdlRI model = nullptr;
    MUST(aclmdlRIBuildBegin(&model, 0));
    Own(model);
    return model;
  }
  // Binds a new persistent stream as head of `model`.
  aclrtStream BindHead(aclmdlRI model) {
    const aclrtStream stream = NewStream(ACL_STREAM_PERSISTENT);
    MUST(aclmdlRIBindStream(model, stream, ACL_MODEL_STREAM_FLAG_HEAD));
    return stream;
  }
  void Unbind(aclmdlRI model, aclrtStream stream) { MUST(aclmdlRIUnbindStream(model, stream)); }
};

TEST_F(Build, AG_158_BuildBeginChecksItsArguments) {
  REQUIRE_FN(aclmdlRIBuildBegin);
  EXPECT_ACL(100000, aclmdlRIBuildBegin(nullptr, 0));
  aclmdlRI model = nullptr;
  EXPECT_ACL(107000, aclmdlRIBuildBegin(&model, 1));
  EXPECT_EQ(model, nullptr);
  EXPECT_ACL(0, aclmdlRIBuildBegin(&model, 0));
  Own(model);
}

TEST_F(Build, AG_159_BindOfOrdinaryStreamIsRefused) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIBindStream);
  const aclmdlRI model = NewBuild();
  const aclrtStream s = NewStream();
  EXPECT_ACL(107000, aclmdlRIBindStream(model, s, ACL_MODEL_STREAM_FLAG_HEAD));
  const Log log = NewLog();
  MUST(Append(s, log, 1));
  Sync(s);
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

TEST_F(Build, AG_160_BindWithUnknownFlagIsRefused) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIBindStream, aclmdlRIUnbindStream);
  const aclmdlRI model = NewBuild();
  const aclrtStream p = NewStream(ACL_STREAM_PERSISTENT);
  EXPECT_ACL(107000, aclmdlRIBindStream(model, p, 5));
  EXPECT_ACL(107005, aclmdlRIUnbindStream(model, p)) << "the refused call must not bind";
  EXPECT_ACL(0, aclmdlRIBindStream(model, p, ACL_MODEL_STREAM_FLAG_DEFAULT));
  EXPECT_ACL(0, aclmdlRIUnbindStream(model, p));
}

TEST_F(Build, AG_161_StreamIsBoundOnce) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIBindStream, aclmdlRIUnbindStream);
  const aclmdlRI model = NewBuild();
  const aclmdlRI other = NewBuild();
  const aclrtStream p = BindHead(model);
  EXPECT_ACL(107005, aclmdlRIBindStream(model, p, ACL_MODEL_STREAM_FLAG_HEAD));
  EXPECT_ACL(107005, aclmdlRIBindStream(other, p, ACL_MODEL_STREAM_FLAG_HEAD));
  EXPECT_ACL(0, aclmdlRIUnbindStream(model, p));
}

TEST_F(Build, AG_162_BuildEndWithReservedArgumentIsRefused) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIBindStream, aclmdlRIEndTask, aclmdlRIBuildEnd, aclmdlRIExecute,
             aclmdlRIUnbindStream);
  const aclmdlRI model = NewBuild();
  const aclrtStream p = BindHead(model);
  MUST(aclmdlRIEndTask(model, p));
  int reserved = 0;
  EXPECT_ACL(100000, aclmdlRIBuildEnd(model, &reserved));
  EXPECT_ACL(0, aclmdlRIBuildEnd(model, nullptr));
  EXPECT_ACL(0, aclmdlRIExecute(model, kWaitMs));
  Unbind(model, p);
}

TEST_F(Build, AG_163_BuiltModelHasRunWhenExecuteReturns) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIBindStream, aclmdlRIEndTask, aclmdlRIBuildEnd, aclmdlRIExecute,
             aclmdlRIUnbindStream);
  const Log log = NewLog();
  aclmdlRI model = nullptr;
  EXPECT_ACL(0, aclmdlRIBuildBegin(&model, 0));
  Own(model);
  const aclrtStream p = NewStream(ACL_STREAM_PERSISTENT);
  EXPECT_ACL(0, aclmdlRIBindStream(model, p, ACL_MODEL_STREAM_FLAG_HEAD));
  EXPECT_ACL_AS(0, aclrtLaunchKernelWithHostArgs, SlowAppend(p, log, 1));
  EXPECT_ACL_AS(0, aclrtLaunchKernelWithHostArgs, Append(p, log, 2));
  EXPECT_ACL(0, aclmdlRIEndTask(model, p));
  EXPECT_ACL(0, aclmdlRIBuildEnd(model, nullptr));
  EXPECT_THAT(log.Ids(), IsEmpty());
  EXPECT_ACL(0, aclmdlRIExecute(model, -1));
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2));
  EXPECT_ACL(0, aclmdlRIExecute(model, kWaitMs));
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2, 1, 2));
  // The asynchronous form takes built models, too.
  const aclrtStream s = NewStream();
  Replay(model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2, 1, 2, 1, 2));
  EXPECT_ACL(0, aclmdlRIUnbindStream(model, p));
}

TEST_F(Build, AG_164_ExecuteChecksItsTimeout) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIBindStream, aclmdlRIEndTask, aclmdlRIBuildEnd, aclmdlRIExecute,
             aclmdlRIUnbindStream);
  const Log log = NewLog();
  const aclmdlRI model = NewBuild();
  const aclrtStream p = BindHead(model);
  MUST(Append(p, log, 1));
  MUST(aclmdlRIEndTask(model, p));
  MUST(aclmdlRIBuildEnd(model, nullptr));
  EXPECT_ACL(107000, aclmdlRIExecute(model, 0));
  EXPECT_ACL(107000, aclmdlRIExecute(model, -2));
  EXPECT_THAT(log.Ids(), IsEmpty());
  EXPECT_ACL(0, aclmdlRIExecute(model, kWaitMs));
  EXPECT_THAT(log.Ids(), ElementsAre(1));
  Unbind(model, p);
}

TEST_F(Build, AG_165_ExecuteOfCapturedModelIsRefused) {
  REQUIRE_FN(aclmdlRIExecute);
  const Log log = NewLog();
  const aclmdlRI model = CaptureAppend(log, 1);
  EXPECT_ACL(107000, aclmdlRIExecute(model, -1));
  EXPECT_THAT(log.Ids(), IsEmpty());
  Replay(model, NewStream());
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

TEST_F(Build, AG_166_ExecuteReportsItsTimeout) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIBindStream, aclmdlRIEndTask, aclmdlRIBuildEnd, aclmdlRIExecute,
             aclmdlRIUnbindStream);
  const Log log = NewLog();
  const Gate gate = NewGate();
  const aclmdlRI model = NewBuild();
  const aclrtStream p = BindHead(model);
  WaitAt(p, gate);
  MUST(Append(p, log, 1));
  MUST(aclmdlRIEndTask(model, p));
  MUST(aclmdlRIBuildEnd(model, nullptr));
  EXPECT_ACL(507046, aclmdlRIExecute(model, kBlockedMs));
  EXPECT_THAT(log.Ids(), IsEmpty());
  Open(gate);
  EXPECT_ACL(0, aclmdlRIExecute(model, kWaitMs));
  // Whether the execution that was given up still counts is left open; this one counts.
  EXPECT_THAT(log.Ids(), ::testing::AnyOf(SizeIs(1), SizeIs(2)));
  Unbind(model, p);
}

TEST_F(Build, AG_167_ModelWithoutEndTaskFailsAtExecution) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIBindStream, aclmdlRIBuildEnd, aclmdlRIExecute, aclmdlRIUnbindStream);
  const Log log = NewLog();
  const aclmdlRI model = NewBuild();
  const aclrtStream p = BindHead(model);
  MUST(Append(p, log, 1));
  MUST(aclmdlRIBuildEnd(model, nullptr));
  EXPECT_ACL(507011, aclmdlRIExecute(model, kWaitMs));
  Unbind(model, p);
}

TEST_F(Build, AG_168_UnbindOfUnboundStreamIsRefused) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIBindStream, aclmdlRIUnbindStream);
  const aclmdlRI model = NewBuild();
  const aclmdlRI other = NewBuild();
  const aclrtStream unbound = NewStream(ACL_STREAM_PERSISTENT);
  EXPECT_ACL(107005, aclmdlRIUnbindStream(model, unbound));
  const aclrtStream elsewhere = BindHead(other);
  EXPECT_ACL(107005, aclmdlRIUnbindStream(model, elsewhere));
  EXPECT_ACL(0, aclmdlRIUnbindStream(other, elsewhere));
}

TEST_F(Build, AG_169_PersistentStreamStoresItsTasks) {
  const aclrtStream p = NewStream(ACL_STREAM_PERSISTENT);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  EXPECT_ACL_AS(0, aclrtLaunchKernelWithHostArgs, Append(p, log, 1));
  EXPECT_ACL(0, aclrtSynchronizeStream(p));
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(p, kWaitMs));
  aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
  EXPECT_ACL(0, aclrtStreamQuery(p, &status));
  EXPECT_EQ(status, ACL_STREAM_STATUS_COMPLETE);
  // Other streams run meanwhile; the stored kernel had every chance to run, too.
  MUST(SlowAppend(s, log, 2));
  Sync(s);
  EXPECT_THAT(log.Ids(), ElementsAre(2));
}

TEST_F(Build, AG_170_BindToCapturedModelIsRefused) {
  REQUIRE_FN(aclmdlRIBindStream);
  const Log log = NewLog();
  const aclmdlRI model = CaptureAppend(log, 1);
  const aclrtStream p = NewStream(ACL_STREAM_PERSISTENT);
  EXPECT_ACL(107000, aclmdlRIBindStream(model, p, ACL_MODEL_STREAM_FLAG_HEAD));
  Replay(model, NewStream());
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

TEST_F(Build, AG_171_ExecutionOfNullIsRefused) {
  const aclrtStream s = NewStream();
  EXPECT_ACL(100000, aclmdlRIExecuteAsync(nullptr, s));
  Sync(s);
}

TEST_F(Build, AG_172_ExecutionOnPersistentStreamIsRefused) {
  const Log log = NewLog();
  const aclmdlRI model = CaptureAppend(log, 1);
  EXPECT_ACL(107000, aclmdlRIExecuteAsync(model, NewStream(ACL_STREAM_PERSISTENT)));
  Replay(model, NewStream());
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

TEST_F(Build, AG_173_HundredQueuedExecutionsRunOneAfterAnother) {
  constexpr uint64_t kRuns = 100;
  const aclrtStream s = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  uint64_t* const cell = NewCell(0);
  // Each run reads the counter, pauses, writes it back by one higher and logs it from another captured stream: runs
  // that overlap lose a count or log one twice.
  Begin(s);
  MUST(Launch(s, "slow_axpb", cell, uint64_t{1}, uint64_t{1}, uint64_t{50}));
  Edge(s, s2);
  MUST(Launch(s2, "append_value", log.words, cell));
  Edge(s2, s);
  const aclmdlRI model = End(s);
  for (uint64_t run = 0; run < kRuns; ++run) EXPECT_ACL(0, aclmdlRIExecuteAsync(model, s));
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(s, kWaitMs));
  EXPECT_EQ(ReadCell(cell), kRuns);
  std::vector<uint64_t> expected(kRuns);
  std::iota(expected.begin(), expected.end(), 1);
  EXPECT_THAT(log.Ids(), ElementsAreArray(expected));
}

TEST_F(Build, AG_174_GraphIsOneOperationOfItsStream) {
  const aclrtStream s = NewStream();
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  Begin(s1);
  Edge(s1, s2);
  MUST(SlowAppend(s2, log, 2));
  MUST(SlowAppend(s2, log, 3));
  Edge(s2, s1);
  const aclmdlRI model = End(s1);
  MUST(SlowAppend(s, log, 1));
  EXPECT_ACL(0, aclmdlRIExecuteAsync(model, s));
  MUST(Append(s, log, 4));
  EXPECT_ACL(0, aclmdlRIExecuteAsync(model, s));
  MUST(Append(s, log, 5));
  Sync(s);
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2, 3, 4, 2, 3, 5));
}

TEST_F(Build, AG_175_ExecutionOfDestroyedModelIsRefused) {
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  const aclmdlRI model = CaptureAppend(log, 1);
  DestroyModel(model);
  EXPECT_ACL(107017, aclmdlRIExecuteAsync(model, s));
  Sync(s);
  EXPECT_THAT(log.Ids(), IsEmpty());
}

TEST_F(Build, AG_176_ExecutionAcrossContextsIsRefused) {
  const aclrtContext b = NewContext();
  const Log log = NewLog();
  const aclmdlRI model = CaptureAppend(log, 1);
  MUST(aclrtSetCurrentContext(b));
  const aclrtStream stream_of_b = NewStream();
  EXPECT_ACL(107004, aclmdlRIExecuteAsync(model, stream_of_b));
  MUST(aclrtSetCurrentContext(context()));
  EXPECT_ACL(107003, aclmdlRIExecuteAsync(model, stream_of_b));
  EXPECT_THAT(log.Ids(), IsEmpty());
  Replay(model, NewStream());
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

TEST_F(Build, AG_177_AbortOfNullIsRefused) {
  REQUIRE_FN(aclmdlRIAbort);
  EXPECT_ACL(107000, aclmdlRIAbort(nullptr));
}

TEST_F(Build, AG_178_DestructionOfNullIsRefused) { EXPECT_ACL(100000, aclmdlRIDestroy(nullptr)); }

TEST_F(Build, AG_179_DestroyWaitsForPendingExecutions) {
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  Begin(s);
  for (uint64_t id = 1; id <= 3; ++id) MUST(SlowAppend(s, log, id));
  const aclmdlRI model = End(s);
  ForgetModel(model);
  EXPECT_ACL(0, aclmdlRIExecuteAsync(model, s));
  EXPECT_ACL(0, aclmdlRIDestroy(model));
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2, 3));
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(s, kWaitMs));
  EXPECT_ACL(107017, aclmdlRIDestroy(model));
}

TEST_F(Build, AG_181_CapturedHostFunctionRunsOncePerReplay) {
  struct Calls {
    std::atomic<int> count{0};
  } calls;
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  Begin(s);
  MUST(SlowAppend(s, log, 1));
  EXPECT_ACL(0, aclrtLaunchHostFunc(
                    s, [](void* data) { static_cast<Calls*>(data)->count += 1; }, &calls));
  MUST(Append(s, log, 2));
  const aclmdlRI model = End(s);
  EXPECT_EQ(calls.count, 0);
  for (int replay = 1; replay <= 3; ++replay) {
    Replay(model, s);
    EXPECT_EQ(calls.count, replay);
  }
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2, 1, 2, 1, 2));
}

TEST_F(Build, AG_182_CapturedValueWriteReleasesCapturedValueWait) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  uint64_t* const flag = NewCell(0);
  Begin(s1);
  Edge(s1, s2);
  EXPECT_ACL(0, aclrtValueWait(flag, 1, ACL_STREAM_WAIT_VALUE_EQ, s2));
  MUST(Append(s2, log, 2));
  EXPECT_ACL(0, aclrtValueWrite(flag, 0, 0, s2));
  MUST(SlowAppend(s1, log, 1));
  EXPECT_ACL(0, aclrtValueWrite(flag, 1, 0, s1));
  Edge(s2, s1);
  const aclmdlRI model = End(s1);
  EXPECT_EQ(ReadCell(flag), 0U);
  for (int replay = 1; replay <= 3; ++replay) {
    log.Clear();
    Replay(model, s1);
    EXPECT_THAT(log.Ids(), ElementsAre(1, 2));
    EXPECT_EQ(ReadCell(flag), 0U);
  }
}

TEST_F(Build, TasksOfABuiltModelAreThoseOfItsStreams) {
  const aclmdlRI model = NewBuild();
  const aclrtStream head = BindHead(model);
  const aclrtStream second = NewStream(ACL_STREAM_PERSISTENT);
  MUST(aclmdlRIBindStream(model, second, ACL_MODEL_STREAM_FLAG_DEFAULT));
  const Log log = NewLog();
  MUST(Append(head, log, 1));
  MUST(aclrtActiveStream(second, head));
  MUST(Append(second, log, 2));
  MUST(Append(second, log, 3));
  MUST(aclmdlRIEndTask(model, second));
  const std::vector<aclrtStream> streams = StreamsOf(model);
  EXPECT_THAT(streams, ElementsAre(second, head)) << "the streams of the user";
  for (const bool built : {false, true}) {
    if (built) MUST(aclmdlRIBuildEnd(model, nullptr));
    const std::vector<aclmdlRITask> first = TasksOf(head), rest = TasksOf(second);
    ASSERT_THAT(first, SizeIs(2));
    ASSERT_THAT(rest, SizeIs(3));
    aclmdlRITaskType type{};
    EXPECT_ACL(0, aclmdlRITaskGetType(first[0], &type));
    EXPECT_EQ(type, ACL_MODEL_RI_TASK_KERNEL);
    EXPECT_ACL(0, aclmdlRITaskGetType(rest[2], &type));
    EXPECT_EQ(type, ACL_MODEL_RI_TASK_DEFAULT);
    aclmdlRITaskParams params{};
    EXPECT_ACL(0, aclmdlRITaskGetParams(rest[1], &params));
    EXPECT_EQ(params.kernelTaskParams.numBlocks, 1);
    uint32_t sequence = 0;
    EXPECT_ACL(207000, aclmdlRITaskGetSeqId(first[0], &sequence));
    EXPECT_ACL(207000, aclmdlRITaskSetParams(first[0], &params));
    EXPECT_ACL(207000, aclmdlRITaskDisable(first[0]));
  }
  MUST(aclmdlRIExecute(model, 10'000));
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2, 3));
  const aclmdlRITask stale = TasksOf(second)[0];
  MUST(aclmdlRIUnbindStream(model, second));
  aclmdlRITaskType type{};
  EXPECT_ACL(107017, aclmdlRITaskGetType(stale, &type));
  uint32_t count = 0;
  EXPECT_ACL(107000, aclmdlRIGetTasksByStream(second, nullptr, &count));
}

}  // namespace
}  // namespace reprise::conformance
