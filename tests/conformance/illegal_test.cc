// SPDX-License-Identifier: Apache-2.0
//
// Calls that are illegal while a stream or event is captured, in every mode: AG-062 … AG-078.
//
// Captures here are RELAXED, which does not help; none of the refusals invalidates.
#include "fixture.h"
#include "weak.h"

namespace reprise::conformance {
namespace {

class Illegal : public AclGraph {
 protected:
  void SetUp() override {
    AclGraph::SetUp();
    stream_ = NewStream();
    log_ = NewLog();
    Begin(stream_, kRelaxed);
    MUST(Append(stream_, log_, 1));
  }

  // The capture survived the refusal: still active, ends with 0, holds what was captured, and nothing ran before.
  void CaptureIsUnharmed() {
    ExpectActive(stream_);
    MUST(Append(stream_, log_, 2));
    const aclmdlRI model = End(stream_);
    EXPECT_THAT(log_.Ids(), IsEmpty());
    Replay(model, stream_);
    EXPECT_THAT(log_.Ids(), ElementsAre(1, 2));
  }

  aclrtStream stream_ = nullptr;
  Log log_;
};

TEST_F(Illegal, AG_062_SynchronizeOfCapturingStreamIsRefused) {
  EXPECT_ACL(107027, aclrtSynchronizeStream(stream_));
  CaptureIsUnharmed();
}

TEST_F(Illegal, AG_063_SynchronizeWithTimeoutOfCapturingStreamIsRefused) {
  EXPECT_ACL(107027, aclrtSynchronizeStreamWithTimeout(stream_, 10));
  CaptureIsUnharmed();
}

TEST_F(Illegal, AG_064_QueryOfCapturingStreamIsRefused) {
  aclrtStreamStatus status = ACL_STREAM_STATUS_RESERVED;
  EXPECT_ACL(107027, aclrtStreamQuery(stream_, &status));
  CaptureIsUnharmed();
}

TEST_F(Illegal, AG_065_DestructionOfCapturingStreamIsRefused) {
  EXPECT_ACL(107027, aclrtDestroyStream(stream_));
  ExpectActive(stream_);
  EXPECT_ACL(107027, aclrtDestroyStreamForce(stream_));
  CaptureIsUnharmed();
}

TEST_F(Illegal, AG_066_SynchronizeOfDeviceIsRefused) {
  EXPECT_ACL(107027, aclrtSynchronizeDevice());
  EXPECT_ACL(107027, aclrtSynchronizeDeviceWithTimeout(10));
  CaptureIsUnharmed();
  EXPECT_ACL(0, aclrtSynchronizeDeviceWithTimeout(kWaitMs));
}

TEST_F(Illegal, AG_067_SynchronizeOfForkedStreamIsRefused) {
  const aclrtStream forked = NewStream();
  Edge(stream_, forked);
  EXPECT_ACL(107027, aclrtSynchronizeStream(forked));
  ExpectActive(forked);
  Edge(forked, stream_);
  CaptureIsUnharmed();
  EXPECT_ACL(0, aclrtSynchronizeStreamWithTimeout(forked, kWaitMs));
}

TEST_F(Illegal, AG_068_SynchronizeOfCapturedEventIsRefused) {
  const aclrtEvent event = NewEx();
  MUST(aclrtRecordEvent(event, stream_));
  EXPECT_ACL(107028, aclrtSynchronizeEvent(event));
  EXPECT_ACL(107028, aclrtSynchronizeEventWithTimeout(event, 10));
  CaptureIsUnharmed();
}

TEST_F(Illegal, AG_069_QueryOfCapturedEventIsRefused) {
  const aclrtEvent event = NewEx();
  MUST(aclrtRecordEvent(event, stream_));
  aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
  EXPECT_ACL(107028, aclrtQueryEventStatus(event, &status));
  CaptureIsUnharmed();
}

TEST_F(Illegal, AG_070_ElapsedTimeOfCapturedEventIsRefused) {
  const aclrtStream other = NewStream();
  const aclrtEvent captured = NewEx(ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE);
  const aclrtEvent ordinary = NewEx(ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE);
  MUST(aclrtRecordEvent(ordinary, other));
  Sync(other);
  MUST(aclrtRecordEvent(captured, stream_));
  float ms = 0;
  EXPECT_ACL(107028, aclrtEventElapsedTime(&ms, captured, ordinary));
  EXPECT_ACL(107028, aclrtEventElapsedTime(&ms, ordinary, captured));
  CaptureIsUnharmed();
}

TEST_F(Illegal, AG_071_EventIsOrdinaryAgainForQueriesAfterTheCapture) {
  const aclrtEvent event = NewEx();
  MUST(aclrtRecordEvent(event, stream_));
  aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
  EXPECT_ACL(107028, aclrtQueryEventStatus(event, &status));
  End(stream_);
  EXPECT_ACL(0, aclrtQueryEventStatus(event, &status));
  EXPECT_EQ(status, ACL_EVENT_RECORDED_STATUS_COMPLETE);
}

TEST_F(Illegal, AG_072_EventIsOrdinaryAgainForWaitsAfterTheCapture) {
  const aclrtEvent event = NewEx();
  MUST(aclrtRecordEvent(event, stream_));
  EXPECT_ACL(107028, aclrtSynchronizeEvent(event));
  const aclmdlRI model = End(stream_);
  EXPECT_ACL(0, aclrtSynchronizeEventWithTimeout(event, kWaitMs));
  EXPECT_ACL(0, aclrtSynchronizeEvent(event));
  EXPECT_THAT(log_.Ids(), IsEmpty()) << "synchronising must not run the graph";
  Replay(model, stream_);
  EXPECT_THAT(log_.Ids(), ElementsAre(1));
}

TEST_F(Illegal, AG_073_ExecutionOnCapturingStreamIsRefused) {
  const aclmdlRI other = CaptureAppend(log_, 9);
  EXPECT_ACL(107027, aclmdlRIExecuteAsync(other, stream_));
  CaptureIsUnharmed();  // 9 is neither run nor captured
}

TEST_F(Illegal, AG_074_ExecutionOfModelBeingCapturedIsRefused) {
  const aclrtStream s2 = NewStream();
  EXPECT_ACL(107026, aclmdlRIExecuteAsync(ModelOf(stream_), s2));
  Sync(s2);
  CaptureIsUnharmed();
}

TEST_F(Illegal, AG_075_DestructionOfModelBeingCapturedIsRefused) {
  EXPECT_ACL(107026, aclmdlRIDestroy(ModelOf(stream_)));
  CaptureIsUnharmed();
}

TEST_F(Illegal, AG_076_OverflowSwitchOfCapturingStreamIsRefused) {
  REQUIRE_FN(aclrtSetStreamOverflowSwitch);
  EXPECT_ACL(107027, aclrtSetStreamOverflowSwitch(stream_, 1));
  CaptureIsUnharmed();
  EXPECT_ACL(0, aclrtSetStreamOverflowSwitch(stream_, 1));
}

TEST_F(Illegal, AG_077_NoneOfTheRefusalsInvalidates) {
  const aclrtStream s2 = NewStream();
  const aclrtStream forked = NewStream();
  const aclrtEvent event = NewEx(ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE);
  const aclmdlRI other = CaptureAppend(log_, 9);
  Edge(stream_, forked);
  MUST(aclrtRecordEvent(event, stream_));
  aclrtStreamStatus stream_status = ACL_STREAM_STATUS_RESERVED;
  aclrtEventRecordedStatus event_status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
  float ms = 0;
  EXPECT_ACL(107027, aclrtSynchronizeStream(stream_));
  EXPECT_ACL(107027, aclrtSynchronizeStreamWithTimeout(stream_, 10));
  EXPECT_ACL(107027, aclrtStreamQuery(stream_, &stream_status));
  EXPECT_ACL(107027, aclrtDestroyStream(stream_));
  EXPECT_ACL(107027, aclrtDestroyStreamForce(stream_));
  EXPECT_ACL(107027, aclrtSynchronizeDevice());
  EXPECT_ACL(107027, aclrtSynchronizeStream(forked));
  EXPECT_ACL(107028, aclrtSynchronizeEvent(event));
  EXPECT_ACL(107028, aclrtQueryEventStatus(event, &event_status));
  EXPECT_ACL(107028, aclrtEventElapsedTime(&ms, event, event));
  EXPECT_ACL(107027, aclmdlRIExecuteAsync(other, stream_));
  EXPECT_ACL(107026, aclmdlRIExecuteAsync(ModelOf(stream_), s2));
  EXPECT_ACL(107026, aclmdlRIDestroy(ModelOf(stream_)));
  if (aclrtSetStreamOverflowSwitch != nullptr) {
    EXPECT_ACL(107027, aclrtSetStreamOverflowSwitch(stream_, 1));
  }
  Edge(forked, stream_);
  CaptureIsUnharmed();
}

TEST_F(Illegal, AG_078_SynchronizeOfAnotherStreamIsLegal) {
  const aclrtStream s2 = NewStream();
  const Log other = NewLog();
  MUST(SlowAppend(s2, other, 7));
  EXPECT_ACL(0, aclrtSynchronizeStream(s2));
  EXPECT_THAT(other.Ids(), ElementsAre(7));
  CaptureIsUnharmed();
}

}  // namespace
}  // namespace reprise::conformance
