// SPDX-License-Identifier: Apache-2.0
//
// What tests demand of an exploration. Each prints how many schedules it took.
#pragma once

#include <gtest/gtest.h>

#include "../unit/scale.h"
#include "explorer.h"

namespace interleave {

inline std::string TestName() {
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  return std::string(test->test_suite_name()) + "." + test->name();
}

inline void Print(const char* what, const std::string& name, const Report& report) {
  std::printf("%-58s %8llu schedules, %9llu steps, up to %4llu decisions: %s\n", name.c_str(),
              static_cast<unsigned long long>(report.schedules), static_cast<unsigned long long>(report.steps),
              static_cast<unsigned long long>(report.longest), what);
}

/// No schedule within the bound fails, and all of them were run.
inline void ExpectSound(const char* variant, const Options& options, const std::function<void()>& program) {
  const std::string name = TestName() + variant;
  Options bounded = options;
  if (reprise::testing::kSanitized && bounded.preemptions > 1) --bounded.preemptions;  // for the time it takes
  const Report report = Explore(name, bounded, program);
  Print(report.failed ? "FAILS" : report.complete ? "all sound" : "CUT OFF", name, report);
  EXPECT_FALSE(report.failed) << report.text;
  EXPECT_TRUE(report.complete) << "the bound on schedules was reached: " << report.text;
}

/// The explorer finds the mistake, and says what it is.
inline void ExpectFound(const char* variant, const Options& options, const std::function<void()>& program,
                        const std::string& says) {
  const std::string name = TestName() + variant;
  const Report report = Explore(name, options, program);
  Print(report.failed ? "found, as it should be" : "NOT FOUND", name, report);
  EXPECT_TRUE(report.failed) << "the mistake was not found";
  if (reprise::testing::kSanitized) return;  // AddressSanitizer may say it first, in its words
  EXPECT_NE(report.text.find(says), std::string::npos) << report.text;
}

inline constexpr const char* kDeadlock = "lost wake-up: nobody can go on";
inline constexpr const char* kCheckFailed = "does not hold: ";
inline constexpr const char* kGone = "an operation on an atomic that is gone";

}  // namespace interleave
