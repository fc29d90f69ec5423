// SPDX-License-Identifier: Apache-2.0
//
// Forks and joins: AG-090 … AG-113.
//
// The kernels that come first are slow, so that a missing edge shows as a wrong order in the log.
#include "fixture.h"
#include "weak.h"

namespace reprise::conformance {
namespace {

TEST_F(AclGraph, AG_090_WaitOnCapturedEventPullsTheStreamIn) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const aclrtEvent event = NewEx();
  Begin(s1);
  EXPECT_ACL(0, aclrtRecordEvent(event, s1));
  ExpectIdle(s2);
  EXPECT_ACL(0, aclrtStreamWaitEvent(s2, event));
  ExpectActive(s2);
  EXPECT_EQ(ModelOf(s2), ModelOf(s1));
  Edge(s2, s1);
  End(s1);
  ExpectIdle(s2);
}

TEST_F(AclGraph, AG_091_ForkAndJoinKeepTheOrder) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  const aclrtEvent fork = NewEx();
  const aclrtEvent join = NewEx();
  Begin(s1);
  MUST(SlowAppend(s1, log, 1));
  EXPECT_ACL(0, aclrtRecordEvent(fork, s1));
  EXPECT_ACL(0, aclrtStreamWaitEvent(s2, fork));
  MUST(SlowAppend(s2, log, 2));
  EXPECT_ACL(0, aclrtRecordEvent(join, s2));
  EXPECT_ACL(0, aclrtStreamWaitEvent(s1, join));
  MUST(Append(s1, log, 3));
  const aclmdlRI model = End(s1);
  ExpectIdle(s2);
  EXPECT_THAT(log.Ids(), IsEmpty());
  for (int round = 0; round < 3; ++round) {
    log.Clear();
    Replay(model, s1);
    EXPECT_THAT(log.Ids(), ElementsAre(1, 2, 3));
  }
}

TEST_F(AclGraph, AG_092_ForkWithoutAnythingElseIsUnjoined) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  Begin(s1);
  Edge(s1, s2);
  ExpectActive(s2);
  EndIsRefused(s1, 107025);
  ExpectIdle(s2);
}

TEST_F(AclGraph, AG_093_ForkWithWorkIsUnjoined) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  Begin(s1);
  Edge(s1, s2);
  MUST(Append(s2, log, 1));
  EndIsRefused(s1, 107025);
  ExpectIdle(s2);
  // Both streams are ordinary again and nothing of the capture runs.
  MUST(Append(s2, log, 2));
  Sync(s2);
  Sync(s1);
  EXPECT_THAT(log.Ids(), ElementsAre(2));
}

TEST_F(AclGraph, AG_094_RecordThatNobodyWaitsForIsUnjoined) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const aclrtEvent join = NewEx();
  Begin(s1);
  Edge(s1, s2);
  MUST(aclrtRecordEvent(join, s2));
  EndIsRefused(s1, 107025);
  ExpectIdle(s2);
}

TEST_F(AclGraph, AG_095_WorkAfterTheJoinRecordIsUnjoined) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  Begin(s1);
  Edge(s1, s2);
  Edge(s2, s1);
  MUST(Append(s2, log, 1));
  EndIsRefused(s1, 107025);
  ExpectIdle(s2);
}

TEST_F(AclGraph, AG_096_ChainOfForksMayJoinBackwards) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const aclrtStream s3 = NewStream();
  const Log log = NewLog();
  Begin(s1);
  MUST(SlowAppend(s1, log, 1));
  Edge(s1, s2);
  MUST(SlowAppend(s2, log, 2));
  Edge(s2, s3);
  MUST(SlowAppend(s3, log, 3));
  Edge(s3, s2);
  MUST(SlowAppend(s2, log, 4));
  Edge(s2, s1);
  MUST(Append(s1, log, 5));
  const aclmdlRI model = End(s1);
  ExpectIdle(s2);
  ExpectIdle(s3);
  Replay(model, s1);
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(AclGraph, AG_097_StreamMayJoinThroughItsSibling) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const aclrtStream s3 = NewStream();
  const Log log = NewLog();
  Begin(s1);
  MUST(SlowAppend(s1, log, 1));
  Edge(s1, s2);
  Edge(s1, s3);
  MUST(SlowAppend(s3, log, 2));
  Edge(s3, s2);
  MUST(SlowAppend(s2, log, 3));
  Edge(s2, s1);
  MUST(Append(s1, log, 4));
  const aclmdlRI model = End(s1);
  Replay(model, s1);
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2, 3, 4));
}

TEST_F(AclGraph, AG_098_RecordWaitedForOnlyByASiblingBeforeItsOwnRecordJoins) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const aclrtStream s3 = NewStream();
  const Log log = NewLog();
  const aclrtEvent e2 = NewEx();
  const aclrtEvent e3 = NewEx();
  Begin(s1);
  Edge(s1, s2);
  Edge(s1, s3);
  MUST(SlowAppend(s3, log, 1));
  MUST(aclrtRecordEvent(e3, s3));
  MUST(aclrtStreamWaitEvent(s2, e3));
  MUST(aclrtRecordEvent(e2, s2));  // the wait is the only task between
  MUST(aclrtStreamWaitEvent(s1, e2));
  MUST(Append(s1, log, 2));
  const aclmdlRI model = End(s1);
  ExpectIdle(s3);
  Replay(model, s1);
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2));
}

TEST_F(AclGraph, AG_099_OriginContinuesAfterTheJoin) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  uint64_t* const cell = NewCell(1);
  Begin(s1);
  Edge(s1, s2);
  MUST(Launch(s2, "slow_axpb", cell, uint64_t{2}, uint64_t{1}, kSlowUs));
  Edge(s2, s1);
  MUST(Axpb(s1, cell, 10, 0));
  MUST(Axpb(s1, cell, 1, 5));
  const aclmdlRI model = End(s1);
  Replay(model, s1);
  EXPECT_EQ(ReadCell(cell), 35U);  // (1*2+1)*10+5
  Replay(model, s1);
  EXPECT_EQ(ReadCell(cell), 715U);  // (35*2+1)*10+5
}

TEST_F(AclGraph, AG_100_JoinedStreamMayForkAgain) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  Begin(s1);
  Edge(s1, s2);
  MUST(SlowAppend(s2, log, 1));
  Edge(s2, s1);
  MUST(SlowAppend(s1, log, 2));
  Edge(s1, s2);
  MUST(SlowAppend(s2, log, 3));
  Edge(s2, s1);
  MUST(Append(s1, log, 4));
  const aclmdlRI model = End(s1);
  Replay(model, s1);
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2, 3, 4));
}

TEST_F(AclGraph, AG_101_ClassicEventCannotBeRecordedInACapture) {
  const aclrtStream s1 = NewStream();
  const aclrtEvent event = NewClassic();
  Begin(s1);
  EXPECT_ACL(207000, aclrtRecordEvent(event, s1));
  ExpectActive(s1);
  EXPECT_ACL(207000, aclrtStreamWaitEvent(s1, event));
  ExpectActive(s1);
  EXPECT_EQ(CountTasks(End(s1)), 0U);
}

TEST_F(AclGraph, AG_102_ClassicSyncEventCannotBeRecordedInACapture) {
  const aclrtStream s1 = NewStream();
  const aclrtEvent event = NewClassicWithFlag(ACL_EVENT_SYNC);
  Begin(s1);
  EXPECT_ACL(207000, aclrtRecordEvent(event, s1));
  ExpectActive(s1);
  EXPECT_ACL(207000, aclrtStreamWaitEvent(s1, event));
  ExpectActive(s1);
  EXPECT_EQ(CountTasks(End(s1)), 0U);
}

TEST_F(AclGraph, AG_103_RecordOfExEventWithoutSyncIsSilentlyNothing) {
  const aclrtStream s1 = NewStream();
  const Log log = NewLog();
  const aclrtEvent event = NewEx(ACL_EVENT_TIME_LINE);
  Begin(s1);
  MUST(Append(s1, log, 1));
  EXPECT_ACL(0, aclrtRecordEvent(event, s1));
  ExpectActive(s1);
  const aclmdlRI model = End(s1);
  EXPECT_EQ(CountTasks(model), 1U);
  EXPECT_EQ(CountTasks(model, ACL_MODEL_RI_TASK_KERNEL), 1U);
}

TEST_F(AclGraph, AG_104_WaitOnEventRecordedOutsideIsRefused) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const aclrtEvent event = NewEx();
  MUST(aclrtRecordEvent(event, s2));
  Sync(s2);
  Begin(s1);
  EXPECT_ACL(107024, aclrtStreamWaitEvent(s1, event));
  ExpectActive(s1);
  ExpectIdle(s2);
  EXPECT_EQ(CountTasks(End(s1)), 0U);
}

TEST_F(AclGraph, AG_105_WaitOnEventNeverRecordedAddsNoDependency) {
  const aclrtStream s1 = NewStream();
  const Log log = NewLog();
  const aclrtEvent event = NewEx();
  Begin(s1);
  EXPECT_ACL(0, aclrtStreamWaitEvent(s1, event));
  ExpectActive(s1);
  MUST(Append(s1, log, 1));
  const aclmdlRI model = End(s1);
  EXPECT_EQ(CountTasks(model, ACL_MODEL_RI_TASK_EVENT_WAIT), 0U);
  Replay(model, s1);
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

TEST_F(AclGraph, AG_106_WaitAcrossTwoCapturesInvalidatesBoth) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const aclrtEvent event = NewEx();
  Begin(s1);
  Begin(s2);
  MUST(aclrtRecordEvent(event, s1));
  EXPECT_ACL(107032, aclrtStreamWaitEvent(s2, event));
  ExpectInvalidated(s1);
  ExpectInvalidated(s2);
  EndIsRefused(s1, 507903);
  ExpectInvalidated(s2);
  EndIsRefused(s2, 507903);
  EXPECT_TRUE(CopyWorks());
}

TEST_F(AclGraph, AG_107_DefaultStreamCannotJoinACapture) {
  const aclrtStream s1 = NewStream();
  const aclrtStream d = DefaultStream();
  const aclrtEvent event = NewEx();
  Begin(s1);
  MUST(aclrtRecordEvent(event, s1));
  EXPECT_ACL(107031, aclrtStreamWaitEvent(d, event));
  ExpectActive(s1);
  ExpectIdle(d);
  End(s1);
}

TEST_F(AclGraph, AG_108_NullStreamCannotJoinACapture) {
  const aclrtStream s1 = NewStream();
  const aclrtEvent event = NewEx();
  Begin(s1);
  MUST(aclrtRecordEvent(event, s1));
  EXPECT_ACL(107031, aclrtStreamWaitEvent(nullptr, event));
  ExpectActive(s1);
  ExpectIdle(DefaultStream());
  End(s1);
}

TEST_F(AclGraph, AG_109_OneEventObjectMayForkAndJoin) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  const aclrtEvent event = NewEx();
  Begin(s1);
  MUST(SlowAppend(s1, log, 1));
  EXPECT_ACL(0, aclrtRecordEvent(event, s1));
  EXPECT_ACL(0, aclrtStreamWaitEvent(s2, event));
  MUST(SlowAppend(s2, log, 2));
  EXPECT_ACL(0, aclrtRecordEvent(event, s2));
  EXPECT_ACL(0, aclrtStreamWaitEvent(s1, event));
  MUST(Append(s1, log, 3));
  const aclmdlRI model = End(s1);
  for (int round = 0; round < 3; ++round) {
    log.Clear();
    Replay(model, s1);
    EXPECT_THAT(log.Ids(), ElementsAre(1, 2, 3));
  }
}

TEST_F(AclGraph, AG_110_GraphKeepsItsOrderWhenTheUserEventsAreGone) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  Begin(s1);
  MUST(SlowAppend(s1, log, 1));
  const aclrtEvent fork = Edge(s1, s2);
  MUST(SlowAppend(s2, log, 2));
  const aclrtEvent join = Edge(s2, s1);
  MUST(Append(s1, log, 3));
  const aclmdlRI model = End(s1);
  DestroyEvent(fork);
  DestroyEvent(join);
  for (int round = 0; round < 2; ++round) {
    log.Clear();
    Replay(model, s1);
    EXPECT_THAT(log.Ids(), ElementsAre(1, 2, 3));
  }
}

TEST_F(AclGraph, AG_111_GraphOutlivesItsUserStreams) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const aclrtStream other = NewStream();
  const Log log = NewLog();
  Begin(s1);
  MUST(SlowAppend(s1, log, 1));
  Edge(s1, s2);
  MUST(SlowAppend(s2, log, 2));
  Edge(s2, s1);
  MUST(Append(s1, log, 3));
  const aclmdlRI model = End(s1);
  DestroyStream(s1);
  DestroyStream(s2);
  for (int round = 0; round < 2; ++round) {
    log.Clear();
    Replay(model, other);
    EXPECT_THAT(log.Ids(), ElementsAre(1, 2, 3));
  }
}

TEST_F(AclGraph, AG_112_ResetOfExEventInACaptureIsRefused) {
  const aclrtStream s1 = NewStream();
  const aclrtEvent event = NewEx();
  Begin(s1);
  MUST(aclrtRecordEvent(event, s1));
  EXPECT_ACL(207000, aclrtResetEvent(event, s1));
  ExpectActive(s1);
  End(s1);
}

TEST_F(AclGraph, AG_113_OriginEndsWithOneResetPerCapturedRecord) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  Begin(s1);
  MUST(Append(s1, log, 1));
  Edge(s1, s2);
  MUST(Append(s2, log, 2));
  Edge(s2, s1);
  MUST(Append(s1, log, 3));
  const aclmdlRI model = End(s1);
  const std::vector<aclrtStream> streams = StreamsOf(model);
  ASSERT_THAT(streams, SizeIs(2));
  EXPECT_THAT(TypesOf(streams.back()),
              ElementsAre(ACL_MODEL_RI_TASK_KERNEL, ACL_MODEL_RI_TASK_EVENT_RECORD, ACL_MODEL_RI_TASK_EVENT_WAIT,
                          ACL_MODEL_RI_TASK_KERNEL, ACL_MODEL_RI_TASK_EVENT_RESET, ACL_MODEL_RI_TASK_EVENT_RESET));
  EXPECT_THAT(TypesOf(streams.front()),
              ElementsAre(ACL_MODEL_RI_TASK_EVENT_WAIT, ACL_MODEL_RI_TASK_KERNEL, ACL_MODEL_RI_TASK_EVENT_RECORD));
}

}  // namespace
}  // namespace reprise::conformance
