// SPDX-License-Identifier: Apache-2.0
//
// How long the loops of a test are: sanitizers slow them down five to twenty times.
#pragma once

namespace reprise::testing {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

/// `full` in a normal build, `reduced` under a sanitizer.
constexpr int Loops(int full, int reduced) { return kSanitized ? reduced : full; }

}  // namespace reprise::testing
