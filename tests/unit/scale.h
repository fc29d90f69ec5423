// SPDX-License-Identifier: Apache-2.0
//
// How long the loops of a test are: sanitizers slow them down five to twenty times, and `make test-all` wants more of
// them.
#pragma once

#include <cstdlib>
#include <string_view>

extern "C" {
__attribute__((weak)) void __asan_init();  // NOLINT: names of the sanitizers
__attribute__((weak)) void __tsan_init();  // NOLINT
}

namespace reprise::testing {

/// Whether a sanitizer is linked: most tests are compiled once, for all rows, so the compiler cannot say it.
inline const bool kAddressSanitized = __asan_init != nullptr;
inline const bool kThreadSanitized = __tsan_init != nullptr;
inline const bool kSanitized = kAddressSanitized || kThreadSanitized;

/// `full` in a normal build, `reduced` under a sanitizer.
inline int Loops(int full, int reduced) { return kSanitized ? reduced : full; }

/// `count` in the short form of the tests, four times as many in the full one (REPRISE_TEST_FORM=full, `make
/// test-all`).
inline int InForm(int count) {
  const char* const form = std::getenv("REPRISE_TEST_FORM");
  return form != nullptr && std::string_view(form) == "full" ? 4 * count : count;
}

}  // namespace reprise::testing
