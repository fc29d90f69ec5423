// SPDX-License-Identifier: Apache-2.0
//
// Task groups and their update: AG-134 … AG-157.
#include "fixture.h"
#include "weak.h"

namespace reprise::conformance {
namespace {

class TaskGroup : public AclGraph {
 protected:
  struct Grouped {
    aclmdlRI model = nullptr;
    aclrtTaskGrp group = nullptr;
  };

  // A graph: append `before`, then a group that appends `ids` in order, then append `after`.
  Grouped CaptureGroup(aclrtStream stream, const Log& log, const std::vector<uint64_t>& ids, uint64_t before = 100,
                       uint64_t after = 200) {
    Grouped made;
    Begin(stream);
    MUST(Append(stream, log, before));
    MUST(aclmdlRICaptureTaskGrpBegin(stream));
    for (const uint64_t id : ids) MUST(Append(stream, log, id));
    MUST(aclmdlRICaptureTaskGrpEnd(stream, &made.group));
    MUST(Append(stream, log, after));
    made.model = End(stream);
    return made;
  }
};

TEST_F(TaskGroup, AG_134_GroupBeginOnNullStreamIsRefused) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin);
  EXPECT_ACL(100000, aclmdlRICaptureTaskGrpBegin(nullptr));
}

TEST_F(TaskGroup, AG_135_GroupBeginOnIdleStreamIsRefused) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin);
  const aclrtStream s = NewStream();
  EXPECT_ACL(107029, aclmdlRICaptureTaskGrpBegin(s));
  ExpectIdle(s);
}

TEST_F(TaskGroup, AG_136_GroupsDoNotNest) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd);
  const aclrtStream s = NewStream();
  Begin(s);
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpBegin(s));
  EXPECT_ACL(107033, aclmdlRICaptureTaskGrpBegin(s));
  ExpectActive(s);
  aclrtTaskGrp group = nullptr;
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpEnd(s, &group));
  End(s);
}

TEST_F(TaskGroup, AG_137_GroupEndWithoutBeginIsRefused) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpEnd);
  const aclrtStream s = NewStream();
  Begin(s);
  aclrtTaskGrp group = nullptr;
  EXPECT_ACL(107033, aclmdlRICaptureTaskGrpEnd(s, &group));
  EXPECT_EQ(group, nullptr);
  ExpectActive(s);
  End(s);
}

TEST_F(TaskGroup, AG_138_GroupEndWithoutPlaceForTheHandleIsRefused) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd);
  const aclrtStream s = NewStream();
  Begin(s);
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpBegin(s));
  EXPECT_ACL(100000, aclmdlRICaptureTaskGrpEnd(s, nullptr));
  ExpectActive(s);
  aclrtTaskGrp group = nullptr;
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpEnd(s, &group)) << "the refused call must leave the group open";
  End(s);
}

TEST_F(TaskGroup, AG_139_GroupOfTwoKernels) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  Begin(s);
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpBegin(s));
  MUST(Append(s, log, 1));
  MUST(Launch(s, "mix_append", log.words, uint64_t{2}));
  aclrtTaskGrp group = nullptr;
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpEnd(s, &group));
  EXPECT_NE(group, nullptr);
  const aclmdlRI model = End(s);
  EXPECT_EQ(CountTasks(model, ACL_MODEL_RI_TASK_KERNEL), 2U);
  Replay(model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2));
}

TEST_F(TaskGroup, AG_140_EmptyGroupIsLegal) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  Begin(s);
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpBegin(s));
  aclrtTaskGrp first = nullptr;
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpEnd(s, &first));
  EXPECT_NE(first, nullptr);
  // Groups may follow each other.
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpBegin(s));
  MUST(Append(s, log, 1));
  aclrtTaskGrp second = nullptr;
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpEnd(s, &second));
  EXPECT_NE(second, nullptr);
  EXPECT_NE(first, second);
  Replay(End(s), s);
  EXPECT_THAT(log.Ids(), ElementsAre(1));
}

TEST_F(TaskGroup, AG_141_CopyInsideAGroupInvalidates) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin);
  const aclrtStream s = NewStream();
  uint64_t* const src = NewCell(1);
  uint64_t* const dst = NewCell(2);
  Begin(s);
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpBegin(s));
  EXPECT_ACL(507009, aclrtMemcpyAsync(dst, 8, src, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, s));
  ExpectInvalidated(s);
  EndIsRefused(s, 507903);
  EXPECT_EQ(ReadCell(dst), 2U);
  // So does a kernel of the AI CPU.
  const Log log = NewLog();
  Begin(s);
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpBegin(s));
  EXPECT_ACL_AS(507009, aclrtLaunchKernelWithHostArgs, Launch(s, "aicpu_append", log.words, uint64_t{1}));
  ExpectInvalidated(s);
  EndIsRefused(s, 507903);
}

TEST_F(TaskGroup, AG_142_GroupEndReportsWhatBrokeTheGroup) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd);
  const aclrtStream s = NewStream();
  uint64_t* const cell = NewCell(2);
  Begin(s);
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpBegin(s));
  EXPECT_ACL(507009, aclrtMemsetAsync(cell, 8, 0, 8, s));
  ExpectInvalidated(s);
  aclrtTaskGrp group = s;
  EXPECT_ACL(507009, aclmdlRICaptureTaskGrpEnd(s, &group));
  EXPECT_EQ(group, nullptr);
  ExpectInvalidated(s);
  EndIsRefused(s, 507903);
}

TEST_F(TaskGroup, AG_143_TaskOnAnotherStreamInterruptsTheGroup) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd);
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  Begin(s1);
  Edge(s1, s2);
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpBegin(s1));
  EXPECT_ACL_AS(107034, aclrtLaunchKernelWithHostArgs, Append(s2, log, 1));
  ExpectInvalidated(s1);
  ExpectInvalidated(s2);
  aclrtTaskGrp group = s1;
  EXPECT_ACL(107034, aclmdlRICaptureTaskGrpEnd(s1, &group));
  EXPECT_EQ(group, nullptr);
  EndIsRefused(s1, 507903);
  ExpectIdle(s2);
}

TEST_F(TaskGroup, AG_144_OpenGroupAbortsTheCaptureAtEnd) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  Begin(s);
  const aclmdlRI model = ModelOf(s);
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpBegin(s));
  MUST(Append(s, log, 1));
  EndIsRefused(s, 107033);
  uint32_t id = 0;
  EXPECT_ACL(107017, aclmdlRIGetId(model, &id)) << "the model must be destroyed";
  // The stream left the group, too.
  Begin(s);
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpBegin(s));
  EndIsRefused(s, 107033);
}

TEST_F(TaskGroup, AG_145_UpdateBeginChecksItsArguments) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd, aclmdlRICaptureTaskUpdateBegin);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  const Grouped graph = CaptureGroup(s, log, {1});
  EXPECT_ACL(100000, aclmdlRICaptureTaskUpdateBegin(s, nullptr));
  EXPECT_ACL(100000, aclmdlRICaptureTaskUpdateBegin(nullptr, graph.group));
  MUST(Append(s, log, 9));
  Sync(s);
  EXPECT_THAT(log.Ids(), ElementsAre(9)) << "the stream must not be in update state";
}

TEST_F(TaskGroup, AG_146_UpdateOnCapturingStreamIsRefused) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd, aclmdlRICaptureTaskUpdateBegin,
             aclmdlRICaptureTaskUpdateEnd);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  const Grouped graph = CaptureGroup(s, log, {1});
  Begin(s);
  EXPECT_ACL(107027, aclmdlRICaptureTaskUpdateBegin(s, graph.group));
  ExpectActive(s);
  EXPECT_ACL(107027, aclmdlRICaptureTaskUpdateEnd(s));
  ExpectActive(s);
  End(s);
}

TEST_F(TaskGroup, AG_147_SecondUpdateBeginOnOneStreamIsRefused) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd, aclmdlRICaptureTaskUpdateBegin,
             aclmdlRICaptureTaskUpdateEnd);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  const Grouped graph = CaptureGroup(s, log, {1});
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(s, graph.group));
  EXPECT_ACL(107033, aclmdlRICaptureTaskUpdateBegin(s, graph.group));
  EXPECT_ACL_AS(0, aclrtLaunchKernelWithHostArgs, Append(s, log, 2));
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(s));
  Replay(graph.model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(100, 2, 200));
}

TEST_F(TaskGroup, AG_148_GroupIsUpdatedByOneStreamAtATime) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd, aclmdlRICaptureTaskUpdateBegin,
             aclmdlRICaptureTaskUpdateEnd);
  const aclrtStream s1 = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  const Grouped graph = CaptureGroup(s1, log, {1});
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(s1, graph.group));
  EXPECT_ACL(107033, aclmdlRICaptureTaskUpdateBegin(s2, graph.group));
  MUST(Append(s1, log, 2));
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(s1));
  Sync(s1);
  // Free again.
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(s2, graph.group));
  MUST(Append(s2, log, 3));
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(s2));
  Replay(graph.model, s2);
  EXPECT_THAT(log.Ids(), ElementsAre(100, 3, 200));
}

TEST_F(TaskGroup, AG_149_UpdateEndWithoutBeginIsRefused) {
  REQUIRE_FN(aclmdlRICaptureTaskUpdateEnd);
  const aclrtStream s = NewStream();
  EXPECT_ACL(107033, aclmdlRICaptureTaskUpdateEnd(s));
  EXPECT_ACL(100000, aclmdlRICaptureTaskUpdateEnd(nullptr));
}

TEST_F(TaskGroup, AG_150_UpdatedArgumentsHoldForTheNextExecutions) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd, aclmdlRICaptureTaskUpdateBegin,
             aclmdlRICaptureTaskUpdateEnd);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  const Grouped graph = CaptureGroup(s, log, {1, 2});
  Replay(graph.model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(100, 1, 2, 200));
  log.Clear();
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(s, graph.group));
  EXPECT_ACL_AS(0, aclrtLaunchKernelWithHostArgs, Append(s, log, 11));
  // Another function and block count of the same kind.
  EXPECT_ACL_AS(0, aclrtLaunchKernelWithHostArgs,
                LaunchBlock(s, "slow_append", 2, ArgBlock(log.words, uint64_t{12}, kSlowUs)));
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(s));
  EXPECT_ACL(0, aclmdlRIExecuteAsync(graph.model, s));
  Sync(s);
  EXPECT_THAT(log.Ids(), ElementsAre(100, 11, 12, 12, 200));
  log.Clear();
  Replay(graph.model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(100, 11, 12, 12, 200)) << "the update persists";
}

TEST_F(TaskGroup, AG_151_UpdateDoesNotRunTheKernels) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd, aclmdlRICaptureTaskUpdateBegin,
             aclmdlRICaptureTaskUpdateEnd);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  const Grouped graph = CaptureGroup(s, log, {1});
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(s, graph.group));
  MUST(Append(s, log, 2));
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(s));
  Sync(s);
  EXPECT_THAT(log.Ids(), IsEmpty());
  Replay(graph.model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(100, 2, 200));
}

TEST_F(TaskGroup, AG_152_TooFewKernelsAreReportedAtTheEndOfTheUpdate) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd, aclmdlRICaptureTaskUpdateBegin,
             aclmdlRICaptureTaskUpdateEnd);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  const Grouped graph = CaptureGroup(s, log, {1, 2});
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(s, graph.group));
  MUST(Append(s, log, 11));
  EXPECT_ACL(507000, aclmdlRICaptureTaskUpdateEnd(s));
  // The update state is left: the stream runs kernels, and the group can be updated again.
  MUST(Append(s, log, 9));
  Sync(s);
  EXPECT_THAT(log.Ids(), ElementsAre(9));
  EXPECT_ACL(107033, aclmdlRICaptureTaskUpdateEnd(s));
  log.Clear();
  Replay(graph.model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(100, 11, 2, 200)) << "replaced tasks stay replaced";
  // Nothing at all between begin and end, as some programs do.
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(s, graph.group));
  EXPECT_ACL(507000, aclmdlRICaptureTaskUpdateEnd(s));
  log.Clear();
  Replay(graph.model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(100, 11, 2, 200));
}

TEST_F(TaskGroup, AG_153_KernelBeyondTheGroupIsRefused) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd, aclmdlRICaptureTaskUpdateBegin,
             aclmdlRICaptureTaskUpdateEnd);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  const Grouped graph = CaptureGroup(s, log, {1});
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(s, graph.group));
  EXPECT_ACL_AS(0, aclrtLaunchKernelWithHostArgs, Append(s, log, 2));
  EXPECT_ACL_AS(507000, aclrtLaunchKernelWithHostArgs, Append(s, log, 3));
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(s));
  Sync(s);
  EXPECT_THAT(log.Ids(), IsEmpty());
  Replay(graph.model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(100, 2, 200));
}

TEST_F(TaskGroup, AG_154_CopyInsideAnUpdateIsRefused) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd, aclmdlRICaptureTaskUpdateBegin,
             aclmdlRICaptureTaskUpdateEnd);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  uint64_t* const src = NewCell(1);
  uint64_t* const dst = NewCell(2);
  const Grouped graph = CaptureGroup(s, log, {1});
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(s, graph.group));
  EXPECT_ACL(507009, aclrtMemcpyAsync(dst, 8, src, 8, ACL_MEMCPY_DEVICE_TO_DEVICE, s));
  MUST(Append(s, log, 2));
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(s));
  Replay(graph.model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(100, 2, 200));
  EXPECT_EQ(ReadCell(dst), 2U);
}

TEST_F(TaskGroup, AG_155_KernelOfAnotherKindIsRefused) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd, aclmdlRICaptureTaskUpdateBegin,
             aclmdlRICaptureTaskUpdateEnd);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  Begin(s);
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpBegin(s));
  MUST(Launch(s, "cube_append", log.words, uint64_t{1}));
  aclrtTaskGrp group = nullptr;
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpEnd(s, &group));
  const aclmdlRI model = End(s);
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(s, group));
  EXPECT_ACL_AS(507000, aclrtLaunchKernelWithHostArgs, Append(s, log, 2));
  // The right kind is still accepted.
  EXPECT_ACL_AS(0, aclrtLaunchKernelWithHostArgs, Launch(s, "cube_append", log.words, uint64_t{3}));
  EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(s));
  Replay(model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(3));
}

TEST_F(TaskGroup, AG_156_TheLastUpdateWins) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd, aclmdlRICaptureTaskUpdateBegin,
             aclmdlRICaptureTaskUpdateEnd);
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  const Grouped graph = CaptureGroup(s, log, {1, 2});
  for (const uint64_t id : {10, 20}) {
    EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(s, graph.group));
    MUST(Append(s, log, id));
    MUST(Append(s, log, id + 1));
    EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(s));
  }
  Replay(graph.model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(100, 20, 21, 200));
}

TEST_F(TaskGroup, AG_157_UpdateOrderedByAnExternalEventReachesTheRunningExecution) {
  REQUIRE_FN(aclmdlRICaptureTaskGrpBegin, aclmdlRICaptureTaskGrpEnd, aclmdlRICaptureTaskUpdateBegin,
             aclmdlRICaptureTaskUpdateEnd);
  const aclrtStream s = NewStream();
  const aclrtStream s2 = NewStream();
  const Log log = NewLog();
  const aclrtEvent event = NewClassicWithFlag(ACL_EVENT_EXTERNAL);
  Begin(s);
  MUST(Append(s, log, 100));
  MUST(aclrtStreamWaitEvent(s, event));
  MUST(aclrtResetEvent(event, s));
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpBegin(s));
  MUST(Append(s, log, 1));
  aclrtTaskGrp group = nullptr;
  EXPECT_ACL(0, aclmdlRICaptureTaskGrpEnd(s, &group));
  const aclmdlRI model = End(s);
  for (uint64_t round = 1; round <= 3; ++round) {
    log.Clear();
    EXPECT_ACL(0, aclmdlRIExecuteAsync(model, s));
    ExpectBlocked(s);
    EXPECT_ACL(0, aclmdlRICaptureTaskUpdateBegin(s2, group));
    MUST(Append(s2, log, 10 * round));
    EXPECT_ACL(0, aclmdlRICaptureTaskUpdateEnd(s2));
    EXPECT_ACL(0, aclrtRecordEvent(event, s2));
    Sync(s);
    EXPECT_THAT(log.Ids(), ElementsAre(100, 10 * round));
  }
}

}  // namespace
}  // namespace reprise::conformance
