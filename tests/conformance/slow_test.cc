// SPDX-License-Identifier: Apache-2.0
//
// AG-180: aclmdlRIDestroy gives up after ten seconds, by specification. ctest label: slow.
#include "fixture.h"
#include "weak.h"

#include <chrono>

namespace reprise::conformance {
namespace {

TEST_F(AclGraph, AG_180_DestroyGivesUpOnAReplayThatBlocksLongerThanTenSeconds) {
  using Clock = std::chrono::steady_clock;
  const aclrtStream s = NewStream();
  const Log log = NewLog();
  const Gate gate = NewGate();
  Begin(s);
  WaitAt(s, gate);
  MUST(Append(s, log, 1));
  const aclmdlRI model = End(s);
  EXPECT_ACL(0, aclmdlRIExecuteAsync(model, s));
  const auto begin = Clock::now();
  EXPECT_ACL(107037, aclmdlRIDestroy(model));
  const auto waited = Clock::now() - begin;
  EXPECT_GE(waited, std::chrono::milliseconds(9900));
  EXPECT_LE(waited, std::chrono::seconds(60)) << "an end, however loaded the machine is";
  EXPECT_THAT(log.Ids(), IsEmpty());
  // The model is intact: the blocked replay ends, and it can be executed again and destroyed.
  Open(gate);
  Sync(s);
  EXPECT_THAT(log.Ids(), ElementsAre(1));
  Replay(model, s);
  EXPECT_THAT(log.Ids(), ElementsAre(1, 1));
  ForgetModel(model);
  EXPECT_ACL(0, aclmdlRIDestroy(model));
}

}  // namespace
}  // namespace reprise::conformance
