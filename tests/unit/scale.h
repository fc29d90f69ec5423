// SPDX-License-Identifier: Apache-2.0
//
// How long the loops of a test are: sanitizers slow them down five to twenty times, and `make test-all` wants more of
// them.
#pragma once

#include <cstdlib>
#include <string_view>

namespace reprise::testing {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

/// `full` in a normal build, `reduced` under a sanitizer.
constexpr int Loops(int full, int reduced) { return kSanitized ? reduced : full; }

/// `count` in the short form of the tests, four times as many in the full one (REPRISE_TEST_FORM=full, `make
/// test-all`).
inline int InForm(int count) {
  const char* const form = std::getenv("REPRISE_TEST_FORM");
  return form != nullptr && std::string_view(form) == "full" ? 4 * count : count;
}

}  // namespace reprise::testing
