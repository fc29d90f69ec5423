// SPDX-License-Identifier: Apache-2.0
//
// Turns of executions of one replay, one of which is given up while the one before it ends.
#include <gtest/gtest.h>

#include "graphs.h"
// Behind the shim:
#include "expect.h"

namespace interleave {
namespace {

// The turns are 0, 1 and 2. Turn 1 is given up at any moment while 0 runs and ends, or before; 2 comes all the same.
void MiddleIsGivenUp(bool cancels) {
  Device device(1);
  SmallGraph graph(1);
  graph.Letter(0, 'a');
  std::unique_ptr<Replay> replay;
  {
    Straight straight;
    replay = std::make_unique<Replay>(graph.Compile(), *device);
  }
  {
    const uint64_t first_turn = replay->Submit();
    const uint64_t given_up = replay->Submit();
    const uint64_t last_turn = replay->Submit();
    Kept<Driver> first(*replay, first_turn, 1);
    Kept<Driver> last(*replay, last_turn, 1);
    device->Wake(*first);
    device->Wake(*last);
    if (cancels) replay->Cancel(given_up);
    first->done.Wait();
    last->done.Wait();
    device->Retire(*first);
    device->Retire(*last);
  }
  INTERLEAVE_CHECK(graph.Letters() == "aa");
  Straight straight;
  replay.reset();
}

TEST(Turns, OneIsGivenUpWhileTheOneBeforeEnds) {
  ExpectSound("", {.preemptions = 2}, [] { MiddleIsGivenUp(true); });
}
TEST(Turns, MutantThatKeepsTheOneInTheMiddle) {
  ExpectFound(
      "", {}, [] { MiddleIsGivenUp(false); }, kDeadlock);
}

}  // namespace
}  // namespace interleave
