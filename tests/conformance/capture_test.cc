// SPDX-License-Identifier: Apache-2.0
//
// Beginning, asking about and ending a capture: AG-001 … AG-035.
#include "fixture.h"
#include "weak.h"

namespace reprise::conformance {
namespace {

TEST_F(AclGraph, AG_001_BeginOnNullStreamIsRefused) {
  EXPECT_ACL(100000, aclmdlRICaptureBegin(nullptr, kGlobal));
  // The refusal left no capture mode behind.
  EXPECT_TRUE(CopyWorks());
}

TEST_F(AclGraph, AG_002_BeginWithModeThreeIsRefused) {
  const aclrtStream s = NewStream();
  EXPECT_ACL(107000, aclmdlRICaptureBegin(s, OddMode(3)));
  ExpectIdle(s);
  Begin(s);
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_003_BeginWithModeMinusOneIsRefused) {
  const aclrtStream s = NewStream();
  EXPECT_ACL(107000, aclmdlRICaptureBegin(s, OddMode(-1)));
  ExpectIdle(s);
  EXPECT_TRUE(CopyWorks());
}

TEST_F(AclGraph, AG_004_BeginOnDefaultStreamIsRefused) {
  const aclrtStream d = DefaultStream();
  ASSERT_NE(d, nullptr);
  EXPECT_ACL(207000, aclmdlRICaptureBegin(d, kGlobal));
  ExpectIdle(d);
  const Log log = NewLog();
  MUST(Append(d, log, 1));
  Sync(d);
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

TEST_F(AclGraph, AG_005_BeginWithoutContextIsRefused) {
  const aclrtStream s = NewStream();
  Worker nobody(nullptr);
  nobody.Run([&] { EXPECT_ACL(107002, aclmdlRICaptureBegin(s, kGlobal)); });
  ExpectIdle(s);
  Begin(s);
  End(s);
}

TEST_F(AclGraph, AG_006_BeginOnStreamOfAnotherContextIsRefused) {
  const aclrtStream s = NewStream();
  const aclrtContext b = NewContext();
  MUST(aclrtSetCurrentContext(b));
  EXPECT_ACL(107003, aclmdlRICaptureBegin(s, kGlobal));
  MUST(aclrtSetCurrentContext(context()));
  ExpectIdle(s);
  Begin(s);
  End(s);
}

TEST_F(AclGraph, AG_007_SecondBeginOnCapturingStreamIsRefused) {
  const aclrtStream s = NewStream();
  Begin(s);
  const aclmdlRI model = ModelOf(s);
  EXPECT_ACL(107027, aclmdlRICaptureBegin(s, kGlobal));
  ExpectActive(s);
  EXPECT_EQ(ModelOf(s), model);
  EXPECT_EQ(End(s), model);
}

TEST_F(AclGraph, AG_008_BeginOnForkedStreamIsRefused) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  Begin(s1);
  Edge(s1, s2);
  EXPECT_ACL(107027, aclmdlRICaptureBegin(s2, kGlobal));
  ExpectActive(s1);
  ExpectActive(s2);
  EXPECT_EQ(ModelOf(s2), ModelOf(s1));
  Edge(s2, s1);
  End(s1);
  ExpectIdle(s2);
}

TEST_F(AclGraph, AG_009_BeginOnBoundStreamIsRefused) {
  REQUIRE_FN(aclmdlRIBuildBegin, aclmdlRIBindStream);
  const aclrtStream bound = NewStream(ACL_STREAM_PERSISTENT);
  aclmdlRI build = nullptr;
  MUST(aclmdlRIBuildBegin(&build, 0));
  Own(build);
  MUST(aclmdlRIBindStream(build, bound, ACL_MODEL_STREAM_FLAG_HEAD));
  EXPECT_ACL(107005, aclmdlRICaptureBegin(bound, kGlobal));
  ExpectIdle(bound);
  // The binding is the reason, not the flag: an unbound persistent stream may be captured.
  const aclrtStream unbound = NewStream(ACL_STREAM_PERSISTENT);
  EXPECT_ACL(0, aclmdlRICaptureBegin(unbound, kGlobal));
  End(unbound);
}

TEST_F(AclGraph, AG_010_BeginOnStreamOfUnsupportedKindIsRefused) {
  for (const uint32_t flag : {ACL_STREAM_CPU_SCHEDULE, ACL_STREAM_DEVICE_USE_ONLY}) {
    SCOPED_TRACE(flag);
    const aclrtStream s = NewStream(flag);
    EXPECT_ACL(507000, aclmdlRICaptureBegin(s, kGlobal));
    ExpectIdle(s);
  }
  EXPECT_TRUE(CopyWorks());
}

TEST_F(AclGraph, AG_011_BeginOnDestroyedStreamIsRefused) {
  const aclrtStream s = NewStream();
  DestroyStream(s);
  EXPECT_ACL(107017, aclmdlRICaptureBegin(s, kGlobal));
  EXPECT_TRUE(CopyWorks());
}

TEST_F(AclGraph, AG_012_GetInfoOfCapturingStream) {
  const aclrtStream s = NewStream();
  Begin(s);
  aclmdlRICaptureStatus status = kNone;
  aclmdlRI model = nullptr;
  EXPECT_ACL(0, aclmdlRICaptureGetInfo(s, &status, &model));
  EXPECT_EQ(status, kActive);
  EXPECT_NE(model, nullptr);
  // Callable from any thread.
  Worker u(context());
  u.Run([&] {
    ExpectActive(s);
    EXPECT_EQ(ModelOf(s), model);
  });
  End(s);
}

TEST_F(AclGraph, AG_013_GetInfoOfIdleStream) {
  const aclrtStream s = NewStream();
  aclmdlRICaptureStatus status = kActive;
  aclmdlRI model = s;
  EXPECT_ACL(0, aclmdlRICaptureGetInfo(s, &status, &model));
  EXPECT_EQ(status, kNone);
  EXPECT_EQ(model, nullptr);
}

TEST_F(AclGraph, AG_014_GetInfoOfNullStreamIsRefused) {
  aclmdlRICaptureStatus status = kActive;
  aclmdlRI model = &status;
  EXPECT_ACL(100000, aclmdlRICaptureGetInfo(nullptr, &status, &model));
  EXPECT_EQ(status, kActive) << "a refused call must not touch its outputs";
  EXPECT_EQ(model, &status);
}

TEST_F(AclGraph, AG_015_GetInfoWithoutAnyOutputIsRefused) {
  const aclrtStream s = NewStream();
  EXPECT_ACL(100000, aclmdlRICaptureGetInfo(s, nullptr, nullptr));
  Begin(s);
  EXPECT_ACL(100000, aclmdlRICaptureGetInfo(s, nullptr, nullptr));
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_016_GetInfoWithOneOutput) {
  const aclrtStream s = NewStream();
  Begin(s);
  aclmdlRICaptureStatus status = kNone;
  EXPECT_ACL(0, aclmdlRICaptureGetInfo(s, &status, nullptr));
  EXPECT_EQ(status, kActive);
  aclmdlRI model = nullptr;
  EXPECT_ACL(0, aclmdlRICaptureGetInfo(s, nullptr, &model));
  EXPECT_NE(model, nullptr);
  EXPECT_EQ(End(s), model);
}

TEST_F(AclGraph, AG_017_EndReturnsTheModelOfGetInfo) {
  const aclrtStream s = NewStream();
  Begin(s);
  aclmdlRI announced = nullptr;
  MUST(aclmdlRICaptureGetInfo(s, nullptr, &announced));
  aclmdlRI model = nullptr;
  EXPECT_ACL(0, aclmdlRICaptureEnd(s, &model));
  Own(model);
  EXPECT_EQ(model, announced);
  ExpectIdle(s);
}

TEST_F(AclGraph, AG_018_EndOfNullStreamIsRefused) {
  const aclrtStream s = NewStream();
  Begin(s);
  aclmdlRI model = s;
  EXPECT_ACL(100000, aclmdlRICaptureEnd(nullptr, &model));
  EXPECT_EQ(model, s) << "a refused call must not touch its outputs";
  ExpectActive(s);
  End(s);
}

TEST_F(AclGraph, AG_019_EndWithoutPlaceForTheModelKeepsTheCapture) {
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  Begin(s);
  MUST(Append(s, log, 1));
  EXPECT_ACL(107000, aclmdlRICaptureEnd(s, nullptr));
  ExpectActive(s);
  const aclmdlRI model = End(s);
  Replay(model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

TEST_F(AclGraph, AG_020_EndOfIdleStreamIsRefusedAndClearsTheModel) {
  const aclrtStream s = NewStream();
  aclmdlRI model = s;
  EXPECT_ACL(107029, aclmdlRICaptureEnd(s, &model));
  EXPECT_EQ(model, nullptr);
}

TEST_F(AclGraph, AG_021_EndOfIdleStreamWithoutPlaceForTheModelIsRefused) {
  const aclrtStream s = NewStream();
  EXPECT_ACL(107029, aclmdlRICaptureEnd(s, nullptr));
  ExpectIdle(s);
}

TEST_F(AclGraph, AG_022_EndOnForkedStreamIsRefused) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  Begin(s1);
  Edge(s1, s2);
  aclmdlRI model = s1;
  EXPECT_ACL(107036, aclmdlRICaptureEnd(s2, &model));
  EXPECT_EQ(model, nullptr);
  ExpectActive(s1);
  ExpectActive(s2);
  MUST(Append(s2, log, 1));
  Edge(s2, s1);
  Replay(End(s1), s1);
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

TEST_F(AclGraph, AG_023_GlobalCaptureEndedByAnotherThreadIsAborted) {
  const aclrtStream s = NewStream();
  Begin(s, kGlobal);
  Worker u(context());
  u.Run([&] { EndIsRefused(s, 107038); });
  ExpectIdle(s);
  // The counters of both threads are released.
  EXPECT_TRUE(CopyWorks());
  u.Run([&] { EXPECT_TRUE(CopyWorks()); });
}

TEST_F(AclGraph, AG_024_ThreadLocalCaptureEndedByAnotherThreadIsAborted) {
  const aclrtStream s = NewStream();
  Begin(s, kThreadLocal);
  Worker u(context());
  u.Run([&] { EndIsRefused(s, 107038); });
  ExpectIdle(s);
  EXPECT_TRUE(CopyWorks());
}

TEST_F(AclGraph, AG_025_RelaxedCaptureMayBeEndedByAnotherThread) {
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  Begin(s, kRelaxed);
  MUST(Append(s, log, 1));
  Worker u(context());
  aclmdlRI model = nullptr;
  u.Run([&] {
    MUST(Append(s, log, 2));  // any thread may submit
    EXPECT_ACL(0, aclmdlRICaptureEnd(s, &model));
  });
  Own(model);
  ExpectIdle(s);
  Replay(model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2));
}

TEST_F(AclGraph, AG_026_StreamCanBeCapturedAgainAfterEndOnWrongThread) {
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  Begin(s, kGlobal);
  MUST(Append(s, log, 1));
  Worker u(context());
  u.Run([&] { EndIsRefused(s, 107038); });
  EXPECT_ACL(0, aclmdlRICaptureBegin(s, kGlobal));
  ExpectActive(s);
  MUST(Append(s, log, 2));
  Replay(End(s), s);
  EXPECT_THAT(log.Ids(), ElementsAre(2));  // nothing of the aborted capture
}

TEST_F(AclGraph, AG_027_EmptyCaptureExecutesAsNoOp) {
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  EXPECT_ACL(0, aclmdlRICaptureBegin(s, kGlobal));
  aclmdlRI model = nullptr;
  EXPECT_ACL(0, aclmdlRICaptureEnd(s, &model));
  Own(model);
  EXPECT_EQ(CountTasks(model), 0U);
  MUST(SlowAppend(s, log, 1));
  EXPECT_ACL(0, aclmdlRIExecuteAsync(model, s));
  MUST(Append(s, log, 2));
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(s, kWaitMs));
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2));
}

TEST_F(AclGraph, AG_028_CapturedWorkDoesNotRunBeforeReplay) {
  const aclrtStream s = NewStream();
  uint64_t* const cell = NewCell(5);
  Begin(s);
  MUST(Axpb(s, cell, 2, 1));
  EXPECT_EQ(ReadCell(cell), 5U);
  const aclmdlRI model = End(s);
  Sync(s);
  EXPECT_EQ(ReadCell(cell), 5U);
  Replay(model, s);
  EXPECT_EQ(ReadCell(cell), 11U);
}

TEST_F(AclGraph, AG_029_WorkQueuedBeforeBeginRunsThoughTheCaptureStaysOpen) {
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  const Gate gate = NewGate();
  const aclrtEvent before = NewEx();
  WaitAt(s, gate);
  MUST(Append(s, log, 1));
  MUST(aclrtRecordEvent(before, s));  // an ordinary record: no capture yet
  Begin(s);
  MUST(Append(s, log, 2));
  EXPECT_THAT(log.Ids(), IsEmpty()) << "the gate is shut";
  Open(gate);
  EXPECT_ACL(0, aclrtSynchronizeEventWithTimeout(before, kWaitMs));
  EXPECT_THAT(log.Ids(), ElementsAre(1));
  ExpectActive(s);
  Replay(End(s), s);
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2));
}

TEST_F(AclGraph, AG_030_TwoCapturesOfOneThreadAreTwoModels) {
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  Begin(s1, kGlobal);
  Begin(s2, kThreadLocal);
  EXPECT_NE(ModelOf(s1), ModelOf(s2));
  MUST(Append(s1, log, 1));
  MUST(Append(s2, log, 2));
  const aclmdlRI m1 = End(s1);
  ExpectActive(s2);
  const aclmdlRI m2 = End(s2);
  EXPECT_NE(m1, m2);
  Replay(m2, s1);
  EXPECT_THAT(log.Ids(), ElementsAre(2));
  Replay(m1, s1);
  EXPECT_THAT(log.Ids(), ElementsAre(2, 1));
}

TEST_F(AclGraph, AG_031_GetInfoOfInvalidatedCapture) {
  const aclrtStream s = NewStream();
  const aclrtStream other = NewStream();
  BeginInvalidated(s, other);
  aclmdlRICaptureStatus status = kNone;
  aclmdlRI model = nullptr;
  EXPECT_ACL(0, aclmdlRICaptureGetInfo(s, &status, &model));
  EXPECT_EQ(status, kInvalidated);
  EXPECT_NE(model, nullptr);
  EndIsRefused(s, 507903);
  EndIsRefused(other, 507903);
}

TEST_F(AclGraph, AG_032_EndOfInvalidatedCaptureAbortsIt) {
  const aclrtStream s = NewStream();
  const aclrtStream forked = NewStream();
  const aclrtStream other = NewStream();
  Begin(s, kRelaxed);
  Edge(s, forked);
  Begin(other, kRelaxed);
  const aclrtEvent event = NewEx();
  MUST(aclrtRecordEvent(event, s));
  EXPECT_ACL(107032, aclrtStreamWaitEvent(other, event));
  ExpectInvalidated(s);
  ExpectInvalidated(forked);
  EndIsRefused(s, 507903);
  ExpectIdle(forked);
  ExpectInvalidated(other);
  EndIsRefused(other, 507903);
  // Both streams work again.
  const Log log = NewLog();
  MUST(Append(s, log, 1));
  MUST(Append(forked, log, 2));
  Sync(s);
  Sync(forked);
  EXPECT_THAT(log.Ids(), SizeIs(2));
}

TEST_F(AclGraph, AG_033_BeginOnInvalidatedStreamIsRefused) {
  const aclrtStream s = NewStream();
  const aclrtStream other = NewStream();
  BeginInvalidated(s, other);
  EXPECT_ACL(107027, aclmdlRICaptureBegin(s, kRelaxed));
  ExpectInvalidated(s);
  EndIsRefused(s, 507903);
  EndIsRefused(other, 507903);
  EXPECT_ACL(0, aclmdlRICaptureBegin(s, kRelaxed));
  End(s);
}

TEST_F(AclGraph, AG_034_SecondEndIsRefused) {
  const aclrtStream s = NewStream();
  Begin(s);
  End(s);
  EndIsRefused(s, 107029);
}

TEST_F(AclGraph, AG_035_StreamCanBeCapturedAgain) {
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  Begin(s);
  MUST(Append(s, log, 1));
  const aclmdlRI first = End(s);
  EXPECT_ACL(0, aclmdlRICaptureBegin(s, kGlobal));
  MUST(Append(s, log, 2));
  const aclmdlRI second = End(s);
  EXPECT_NE(first, second);
  Replay(second, s);
  Replay(first, s);
  EXPECT_THAT(log.Ids(), ElementsAre(2, 1));
}

}  // namespace
}  // namespace reprise::conformance
