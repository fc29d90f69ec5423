// SPDX-License-Identifier: Apache-2.0
//
// Settings with which nothing can be captured. The program runs once with each; REFUSED_BECAUSE says what the message
// has to name.
#include <cstdlib>

#include "fixture.h"

namespace reprise::testing {
namespace {

using RefusedBySettings = GraphTest;

TEST_F(RefusedBySettings, TheMessageNamesTheSettingAndNothingHasChanged) {
  const char* const because = std::getenv("REFUSED_BECAUSE");
  if (because == nullptr) GTEST_SKIP() << "runs with the settings that tests/graph/CMakeLists.txt gives it";
  void* pinned = host_memory::Allocate(100);
  const Books before = Books::Take();
  Graph graph;
  EXPECT_TRUE(Refused(107000, because, [&] { graph.CaptureBegin(); }));
  EXPECT_EQ(graph.state(), GraphState::kEmpty);
  EXPECT_EQ(StatusOf(stream_), ACL_MODEL_RI_CAPTURE_STATUS_NONE);
  EXPECT_EQ(Books::Take(), before);
  host_memory::Free(pinned);
}

}  // namespace
}  // namespace reprise::testing
