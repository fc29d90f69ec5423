// SPDX-License-Identifier: Apache-2.0
//
// Faults that random programs and races have found, as short as they come.
#include <chrono>

#include "../conformance/fixture.h"

namespace reprise::stress {
namespace {

using conformance::kRelaxed;
using conformance::Log;
using ::testing::ElementsAre;

class Regressions : public conformance::AclGraph {};

// The replay of a body must leave the external events of the graph around it in place.
TEST_F(Regressions, ExternalEventsBehindAConditionalTask) {
  const aclrtStream s = NewStream();
  const aclrtStream aux = NewStream();
  const Log log = NewLog();
  const aclrtEvent in = NewEx();
  const aclrtEvent out = NewEx();
  Begin(s, kRelaxed);
  aclmdlRICondHandle handle = nullptr;
  MUST(aclmdlRICondHandleCreate(ModelOf(s), 1, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &handle));
  aclmdlRI body = nullptr;
  aclmdlRICondTaskParams params = {};
  params.handle = handle;
  params.type = ACL_MODEL_RI_COND_TYPE_IF;
  params.size = 1;
  params.modelRIArray = &body;
  MUST(aclmdlRIAddCondTask(params, s, 0));
  MUST(aclmdlRICaptureToModelRIBegin(aux, body, kRelaxed));
  MUST(Append(aux, log, 1));
  MUST(aclmdlRICaptureEnd(aux, nullptr));
  MUST(aclrtStreamWaitEventWithFlag(s, in, 0, ACL_EVENT_WAIT_EXTERNAL));
  MUST(Append(s, log, 2));
  MUST(aclrtRecordEventWithFlag(out, s, ACL_EVENT_RECORD_EXTERNAL));
  const aclmdlRI model = End(s);
  MUST(aclmdlRIExecuteAsync(model, s));
  MUST(aclrtStreamWaitEvent(aux, out));
  MUST(Append(aux, log, 3));
  Sync(aux);
  Sync(s);
  EXPECT_THAT(log.Ids(), ElementsAre(1, 2, 3));
}

// A task handle of a destroyed model must not name a task of a model that came later, however many have come.
TEST_F(Regressions, TaskHandlesDoNotComeBack) {
  const Log log = NewLog();
  const aclrtStream s = NewStream();
  aclmdlRITask first = nullptr;
  for (int i = 0; i < 300; ++i) {
    Begin(s, kRelaxed);
    MUST(Append(s, log, 1));
    const aclmdlRI model = End(s);
    if (first == nullptr) {
      first = FindTask(model, ACL_MODEL_RI_TASK_KERNEL);
    } else {
      EXPECT_ACL(107017, aclmdlRITaskDisable(first));
    }
    DestroyModel(model);
  }
}

// A loop whose condition never becomes 0 ends when its stream is aborted, and keeps nobody else from working.
TEST_F(Regressions, EndlessLoopsCanBeAborted) {
  for (const bool forked : {false, true}) {
    const aclrtStream s = NewStream();
    const aclrtStream side = NewStream();
    const aclrtStream aux = NewStream();
    const Log log = NewLog();
    const Log others = NewLog();
    const aclrtEvent edge = NewEx();
    Begin(s, kRelaxed);
    MUST(aclrtRecordEvent(edge, s));
    MUST(aclrtStreamWaitEvent(side, edge));
    aclmdlRICondHandle handle = nullptr;
    MUST(aclmdlRICondHandleCreate(ModelOf(s), 1, ACL_MODEL_RI_COND_HANDLE_ASSIGN_DEFAULT, &handle));
    aclmdlRI body = nullptr;
    aclmdlRICondTaskParams params = {};
    params.handle = handle;
    params.type = ACL_MODEL_RI_COND_TYPE_WHILE;
    params.size = 1;
    params.modelRIArray = &body;
    MUST(aclmdlRIAddCondTask(params, forked ? side : s, 0));
    MUST(aclmdlRICaptureToModelRIBegin(aux, body, kRelaxed));
    MUST(Append(aux, log, 1));
    MUST(aclmdlRICaptureEnd(aux, nullptr));
    MUST(aclrtRecordEvent(edge, side));
    MUST(aclrtStreamWaitEvent(s, edge));
    const aclmdlRI model = End(s);
    MUST(aclmdlRIExecuteAsync(model, s));
    EXPECT_ACL(507046, aclrtSynchronizeStreamWithTimeout(s, 20));
    MUST(Append(aux, others, 2));
    Sync(aux);
    EXPECT_THAT(others.Ids(), ElementsAre(2));
    MUST(aclrtStreamAbort(s));
    EXPECT_NE(aclrtSynchronizeStreamWithTimeout(s, conformance::kWaitMs), 507046);
    DestroyModel(model);
  }
}

// The teardown of a context is patient with streams that wait for something, ten seconds long: with all of them at
// once, not in turn, which would be four minutes.
TEST_F(Regressions, TeardownIsPatientOnce) {
  const auto start = std::chrono::steady_clock::now();
  aclrtContext before = nullptr;
  aclrtContext own = nullptr;
  MUST(aclrtGetCurrentContext(&before));
  MUST(aclrtCreateContext(&own, 0));
  aclrtEvent never = nullptr;
  MUST(aclrtCreateEventWithFlag(&never, ACL_EVENT_EXTERNAL));
  for (int i = 0; i < 24; ++i) {
    aclrtStream stream = nullptr;
    MUST(aclrtCreateStream(&stream));
    MUST(aclrtStreamWaitEvent(stream, never));
  }
  MUST(aclrtDestroyContext(own));
  MUST(aclrtSetCurrentContext(before));
  MUST(aclrtDestroyEvent(never));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(100));
}

}  // namespace
}  // namespace reprise::stress
