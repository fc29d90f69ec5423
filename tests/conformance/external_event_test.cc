// SPDX-License-Identifier: Apache-2.0
//
// Events that cross the edge of a graph: AG-114 … AG-133.
#include "fixture.h"
#include "weak.h"

namespace reprise::conformance {
namespace {

// A graph that waits for an EXTERNAL event, resets it and appends 1.
class ExternalEvent : public AclGraph {
 protected:
  aclmdlRI CaptureWaitResetAppend(aclrtStream stream, aclrtEvent event, const Log& log) {
    Begin(stream);
    EXPECT_ACL(0, aclrtStreamWaitEvent(stream, event));
    EXPECT_ACL(0, aclrtResetEvent(event, stream));
    MUST(Append(stream, log, 1));
    return End(stream);
  }
};

TEST_F(ExternalEvent, AG_114_ExternalEventIsAnOrdinaryTaskOfTheGraph) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  const aclrtEvent event = NewClassicWithFlag(ACL_EVENT_EXTERNAL);
  const aclmdlRI model = CaptureWaitResetAppend(s1, event, log);
  const std::vector<aclrtStream> streams = StreamsOf(model);
  ASSERT_THAT(streams, SizeIs(1));
  EXPECT_THAT(TypesOf(streams[0]),
              ElementsAre(ACL_MODEL_RI_TASK_EVENT_WAIT, ACL_MODEL_RI_TASK_EVENT_RESET, ACL_MODEL_RI_TASK_KERNEL));
  MUST(aclrtRecordEvent(event, s2));
  Sync(s2);
  Replay(model, s1);
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

TEST_F(ExternalEvent, AG_115_ReplayBlocksUntilTheEventIsRecordedOutside) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  const aclrtEvent event = NewClassicWithFlag(ACL_EVENT_EXTERNAL);
  const aclmdlRI model = CaptureWaitResetAppend(s1, event, log);
  EXPECT_ACL(0, aclmdlRIExecuteAsync(model, s1));
  ExpectBlocked(s1);
  aclrtStreamStatus status = ACL_STREAM_STATUS_COMPLETE;
  EXPECT_ACL(0, aclrtStreamQuery(s1, &status));
  EXPECT_EQ(status, ACL_STREAM_STATUS_NOT_READY);
  EXPECT_THAT(log.Ids(), IsEmpty());
  EXPECT_ACL(0, aclrtRecordEvent(event, s2));
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(s1, kWaitMs));
  EXPECT_THAT(log.Ids(), ElementsAre(1));
  EXPECT_ACL(0, aclrtStreamQuery(s1, &status));
  EXPECT_EQ(status, ACL_STREAM_STATUS_COMPLETE);
}

TEST_F(ExternalEvent, AG_116_EachReplayNeedsItsOwnRecord) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  const aclrtEvent event = NewClassicWithFlag(ACL_EVENT_EXTERNAL);
  const aclmdlRI model = CaptureWaitResetAppend(s1, event, log);
  for (size_t round = 1; round <= 2; ++round) {
    EXPECT_ACL(0, aclmdlRIExecuteAsync(model, s1));
    ExpectBlocked(s1);
    EXPECT_THAT(log.Ids(), SizeIs(round - 1)) << "the graph resets the event";
    EXPECT_ACL(0, aclrtRecordEvent(event, s2));
    Sync(s1);
    EXPECT_THAT(log.Ids(), SizeIs(round));
  }
}

TEST_F(ExternalEvent, AG_117_WaitOutsideIsOrderedAfterTheRecordInTheGraph) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  const aclrtEvent event = NewClassicWithFlag(ACL_EVENT_EXTERNAL);
  Begin(s1);
  MUST(SlowAppend(s1, log, 1));
  EXPECT_ACL(0, aclrtRecordEvent(event, s1));
  const aclmdlRI model = End(s1);
  EXPECT_ACL(0, aclmdlRIExecuteAsync(model, s1));
  EXPECT_ACL(0, aclrtStreamWaitEvent(s2, event));
  MUST(Append(s2, log, 2));
  Sync(s2);
  Sync(s1);
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2));
}

TEST_F(ExternalEvent, AG_118_ExternalEventDoesNotPullAStreamIn) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const aclrtStream s3 = NewStream();
  const Log log = NewLog();
  const aclrtEvent event = NewClassicWithFlag(ACL_EVENT_EXTERNAL);
  Begin(s1);
  EXPECT_ACL(0, aclrtRecordEvent(event, s1));
  EXPECT_ACL(0, aclrtStreamWaitEvent(s2, event));
  ExpectIdle(s2);
  ExpectActive(s1);
  // The wait on s2 is an ordinary one: work behind it runs when somebody records.
  MUST(Append(s2, log, 1));
  ExpectBlocked(s2);
  EXPECT_ACL(0, aclrtRecordEvent(event, s3));
  Sync(s2);
  EXPECT_THAT(log.Ids(), ElementsAre(1));
  End(s1);
}

TEST_F(ExternalEvent, AG_119_HostCannotAskAnExternalEvent) {
  const aclrtStream s = NewStream();
  const aclrtEvent event = NewClassicWithFlag(ACL_EVENT_EXTERNAL);
  const aclrtEvent timed = NewEx(ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE);
  MUST(aclrtRecordEvent(timed, s));
  Sync(s);
  aclrtEventRecordedStatus recorded = ACL_EVENT_RECORDED_STATUS_NOT_READY;
  aclrtEventStatus status = ACL_EVENT_STATUS_RESERVED;
  aclrtEventWaitStatus wait_status = ACL_EVENT_WAIT_STATUS_RESERVED;
  uint64_t timestamp = 0;
  float ms = 0;
  EXPECT_ACL(207000, aclrtSynchronizeEvent(event));
  EXPECT_ACL(207000, aclrtSynchronizeEventWithTimeout(event, 10));
  EXPECT_ACL(207000, aclrtQueryEventStatus(event, &recorded));
  EXPECT_ACL(207000, aclrtQueryEvent(event, &status));
  EXPECT_ACL(207000, aclrtQueryEventWaitStatus(event, &wait_status));
  EXPECT_ACL(207000, aclrtEventElapsedTime(&ms, event, timed));
  EXPECT_ACL(207000, aclrtEventElapsedTime(&ms, timed, event));
  EXPECT_ACL(207000, aclrtEventGetTimestamp(event, &timestamp));
}

TEST_F(ExternalEvent, AG_120_ExternalFlagMustBeAlone) {
  aclrtEvent event = nullptr;
  EXPECT_ACL(107000, aclrtCreateEventWithFlag(&event, ACL_EVENT_EXTERNAL | ACL_EVENT_SYNC));
  EXPECT_EQ(event, nullptr);
  EXPECT_ACL(0, aclrtCreateEventWithFlag(&event, ACL_EVENT_EXTERNAL));
  EXPECT_ACL(0, aclrtDestroyEvent(event));
}

TEST_F(ExternalEvent, AG_121_RecordFlagTwoIsRefused) {
  const aclrtStream s = NewStream();
  const aclrtEvent event = NewEx();
  Begin(s);
  EXPECT_ACL(100000, aclrtRecordEventWithFlag(event, s, 2));
  ExpectActive(s);
  EXPECT_EQ(CountTasks(End(s)), 0U);
}

TEST_F(ExternalEvent, AG_122_ExternalRecordOutsideACaptureIsRefused) {
  const aclrtStream s = NewStream();
  const aclrtEvent event = NewEx();
  EXPECT_ACL(107029, aclrtRecordEventWithFlag(event, s, ACL_EVENT_RECORD_EXTERNAL));
  ExpectIdle(s);
}

TEST_F(ExternalEvent, AG_123_ExternalWaitWithTimeoutIsRefused) {
  const aclrtStream s = NewStream();
  const aclrtEvent event = NewEx();
  Begin(s);
  EXPECT_ACL(100000, aclrtStreamWaitEventWithFlag(s, event, 5, ACL_EVENT_WAIT_EXTERNAL));
  ExpectActive(s);
  EXPECT_ACL(0, aclrtStreamWaitEventWithFlag(s, event, 0, ACL_EVENT_WAIT_EXTERNAL));
  EXPECT_EQ(CountTasks(End(s)), 1U);
}

TEST_F(ExternalEvent, AG_124_ExternalRecordOfClassicEventIsRefused) {
  const aclrtStream s = NewStream();
  const aclrtEvent event = NewClassic();
  Begin(s);
  EXPECT_ACL(207000, aclrtRecordEventWithFlag(event, s, ACL_EVENT_RECORD_EXTERNAL));
  ExpectActive(s);
  EXPECT_EQ(CountTasks(End(s)), 0U);
}

TEST_F(ExternalEvent, AG_125_ExternalRecordNeedsAPureSyncEvent) {
  const aclrtStream s = NewStream();
  const aclrtEvent event = NewEx(ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE);
  Begin(s);
  EXPECT_ACL(207000, aclrtRecordEventWithFlag(event, s, ACL_EVENT_RECORD_EXTERNAL));
  ExpectActive(s);
  EXPECT_EQ(CountTasks(End(s)), 0U);
}

TEST_F(ExternalEvent, AG_126_ExternalRecordAfterPlainRecordIsRefused) {
  const aclrtStream s = NewStream();
  const aclrtStream s2 = NewStream();
  const aclrtEvent event = NewEx();
  EXPECT_ACL(0, aclrtRecordEventWithFlag(event, s2, ACL_EVENT_RECORD_DEFAULT));
  Sync(s2);
  Begin(s);
  EXPECT_ACL(107000, aclrtRecordEventWithFlag(event, s, ACL_EVENT_RECORD_EXTERNAL));
  ExpectActive(s);
  EXPECT_EQ(CountTasks(End(s)), 0U);
}

TEST_F(ExternalEvent, AG_127_PlainRecordAfterExternalRecordIsRefused) {
  const aclrtStream s = NewStream();
  const aclrtStream s2 = NewStream();
  const aclrtEvent event = NewEx();
  Begin(s);
  EXPECT_ACL(0, aclrtRecordEventWithFlag(event, s, ACL_EVENT_RECORD_EXTERNAL));
  EXPECT_ACL(107000, aclrtRecordEvent(event, s));
  ExpectActive(s);
  EXPECT_ACL(107000, aclrtRecordEvent(event, s2));
  ExpectActive(s);
  EXPECT_EQ(CountTasks(End(s)), 1U);
}

TEST_F(ExternalEvent, AG_128_SecondExternalRecordInOneGraphIsRefused) {
  const aclrtStream s = NewStream();
  const aclrtEvent event = NewEx();
  Begin(s);
  EXPECT_ACL(0, aclrtRecordEventWithFlag(event, s, ACL_EVENT_RECORD_EXTERNAL));
  EXPECT_ACL(107000, aclrtRecordEventWithFlag(event, s, ACL_EVENT_RECORD_EXTERNAL));
  ExpectActive(s);
  EXPECT_EQ(CountTasks(End(s)), 1U);
  // Another graph may record it.
  Begin(s);
  EXPECT_ACL(0, aclrtRecordEventWithFlag(event, s, ACL_EVENT_RECORD_EXTERNAL));
  End(s);
}

TEST_F(ExternalEvent, AG_129_ExternalRecordAndWaitInOneGraphAreRefused) {
  const aclrtStream s = NewStream();
  const aclrtEvent recorded = NewEx();
  const aclrtEvent waited = NewEx();
  Begin(s);
  EXPECT_ACL(0, aclrtRecordEventWithFlag(recorded, s, ACL_EVENT_RECORD_EXTERNAL));
  EXPECT_ACL(107000, aclrtStreamWaitEventWithFlag(s, recorded, 0, ACL_EVENT_WAIT_EXTERNAL));
  ExpectActive(s);
  EXPECT_ACL(0, aclrtStreamWaitEventWithFlag(s, waited, 0, ACL_EVENT_WAIT_EXTERNAL));
  EXPECT_ACL(107000, aclrtRecordEventWithFlag(waited, s, ACL_EVENT_RECORD_EXTERNAL));
  ExpectActive(s);
  EXPECT_EQ(CountTasks(End(s)), 2U);
}

TEST_F(ExternalEvent, AG_130_PlainWaitOutsideFollowsTheExternalRecord) {
  const aclrtStream s = NewStream();
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  const Log of_graph = NewLog();  // for the host, which may not read what s2 writes meanwhile
  const aclrtEvent event = NewEx();
  Begin(s);
  MUST(SlowAppend(s, log, 1));
  MUST(Append(s, of_graph, 1));
  EXPECT_ACL(0, aclrtRecordEventWithFlag(event, s, ACL_EVENT_RECORD_EXTERNAL));
  const aclmdlRI model = End(s);
  for (int round = 0; round < 3; ++round) {
    log.Clear();
    of_graph.Clear();
    EXPECT_ACL(0, aclmdlRIExecuteAsync(model, s1));
    EXPECT_ACL(0, aclrtStreamWaitEvent(s2, event));
    MUST(Append(s2, log, 2));
    EXPECT_ACL(0, aclrtSynchronizeEventWithTimeout(event, kWaitMs));  // the host sees the instance, too
    EXPECT_THAT(of_graph.Ids(), ElementsAre(1));
    Sync(s2);
    Sync(s1);
    EXPECT_THAT(log.Ids(), ElementsAre(1, 2));
  }
}

TEST_F(ExternalEvent, AG_131_ExternalWaitForNothingIsNoWait) {
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  const aclrtEvent event = NewEx();
  Begin(s);
  EXPECT_ACL(0, aclrtStreamWaitEventWithFlag(s, event, 0, ACL_EVENT_WAIT_EXTERNAL));
  MUST(Append(s, log, 1));
  const aclmdlRI model = End(s);
  EXPECT_EQ(CountTasks(model), 2U);
  Replay(model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

TEST_F(ExternalEvent, AG_132_GraphsChainedByAnExternalEventRunInSubmissionOrder) {
  const aclrtStream s = NewStream();
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  const aclrtEvent event = NewEx();
  Begin(s);
  MUST(SlowAppend(s, log, 1));
  EXPECT_ACL(0, aclrtRecordEventWithFlag(event, s, ACL_EVENT_RECORD_EXTERNAL));
  const aclmdlRI g1 = End(s);
  Begin(s);
  EXPECT_ACL(0, aclrtStreamWaitEventWithFlag(s, event, 0, ACL_EVENT_WAIT_EXTERNAL));
  MUST(Append(s, log, 2));
  const aclmdlRI g2 = End(s);
  for (int round = 0; round < 3; ++round) {
    log.Clear();
    EXPECT_ACL(0, aclmdlRIExecuteAsync(g1, s1));
    EXPECT_ACL(0, aclmdlRIExecuteAsync(g2, s2));
    Sync(s2);
    Sync(s1);
    EXPECT_THAT(log.Ids(), ElementsAre(1, 2));
  }
}

TEST_F(ExternalEvent, AG_133_ExternalWaitInAConditionalBodyIsRefused) {
  REQUIRE_FN(aclmdlRICondHandleCreate, aclmdlRIAddCondTask, aclmdlRICaptureToModelRIBegin);
  const aclrtStream s = NewStream();
  const aclrtStream aux = NewStream();
  const Log log = NewLog();
  const aclrtEvent event = NewEx();
  Begin(s);
  aclmdlRICondHandle handle = nullptr;
  MUST(aclmdlRICondHandleCreate(ModelOf(s), 1, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &handle));
  aclmdlRI body = nullptr;
  aclmdlRICondTaskParams params = {};
  params.handle = handle;
  params.type = ACL_MODEL_RI_COND_TYPE_IF;
  params.size = 1;
  params.modelRIArray = &body;
  MUST(aclmdlRIAddCondTask(params, s, 0));
  MUST(aclmdlRICaptureToModelRIBegin(aux, body, kGlobal));
  EXPECT_ACL(207000, aclrtStreamWaitEventWithFlag(aux, event, 0, ACL_EVENT_WAIT_EXTERNAL));
  ExpectActive(aux);
  EXPECT_ACL(207000, aclrtRecordEventWithFlag(NewEx(), aux, ACL_EVENT_RECORD_EXTERNAL));
  ExpectActive(aux);
  MUST(Append(aux, log, 1));
  MUST(aclmdlRICaptureEnd(aux, nullptr));
  const aclmdlRI model = End(s);
  Replay(model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

}  // namespace
}  // namespace reprise::conformance
