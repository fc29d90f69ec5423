// SPDX-License-Identifier: Apache-2.0
#include "fixture.h"

namespace reprise::testing {
namespace {
struct World : BasicWorld {};
using EventMisuse = Misuse<World>;
TEST_F(EventMisuse, Null) {
  Everywhere({
      ROW(100000, aclrtQueryEvent(nullptr, w.out.As<aclrtEventStatus>())),
      ROW(100000, aclrtQueryEvent(w.event, nullptr)),
  });
}
TEST_F(EventMisuse, Handles) {
  for (const Handle& bad : world_.BadHandles("event")) {
    Everywhere(bad, {ROW(107017, aclrtDestroyEvent(w.bad))});
  }
}
}  // namespace
}  // namespace reprise::testing
