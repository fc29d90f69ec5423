// SPDX-License-Identifier: Apache-2.0
#include "exec/code_choice.h"

#include <algorithm>
#include <memory>
#include <new>

#include "base/env.h"
#include "device/timeline.h"

namespace reprise::exec {
namespace {

enum class Rule : uint8_t { kNever, kIfFaster, kAlways };

// The least of so many times is near the truth.
constexpr int kTimedRuns = 4;
// Those before are not timed: the program may still be changing the graph, and caches fill.
constexpr int kRunsBefore = 12;
// Code is 90 bytes for each call.
constexpr uint64_t kMostCalls = 1 << 16;
// A function that is called so many times in a row is predicted.
constexpr uint64_t kMostRepeats = 4;
// Time of a call and what else the execution does, from which on a misprediction does not count.
constexpr uint64_t kShortNs = 250;

Rule TheRule() {
  static const Rule rule = static_cast<Rule>(EnvInt(EnvVar::kCallCode, 0, 2));
  return rule;
}

}  // namespace

void CodeChoice::Reopen() noexcept {
  left_ = TheRule() == Rule::kNever ? 0 : TheRule() == Rule::kAlways ? 1 : kRunsBefore + 2 * kTimedRuns;
  least_loop_ = least_code_ = UINT64_MAX;
  began_ = 0;
}

void CodeChoice::Begin(Plan& plan, int32_t device_id) noexcept {
  try {
    --left_;
    if (TheRule() == Rule::kAlways) {
      plan.SetCallCode(CallCode::Make(plan, 1, device_id));
      return;
    }
    if (left_ == 2 * kTimedRuns) {
      const CallCode::Calls counted = CallCode::Count(plan, CallCode::kLeastRun);
      calls_ = counted.calls;
      if (calls_ > kMostCalls || counted.changes * kMostRepeats <= calls_) left_ = 0;
    } else if (left_ == kTimedRuns) {
      if (least_loop_ < calls_ * kShortNs) plan.SetCallCode(CallCode::Make(plan, CallCode::kLeastRun, device_id));
      if (plan.call_code() == nullptr) left_ = 0;
    } else if (left_ == 0 && least_code_ > least_loop_ - least_loop_ / 16) {
      plan.SetCallCode(nullptr);
    }
    began_ = left_ < 2 * kTimedRuns && left_ != 0 ? device::Timeline::Now() : 0;
  } catch (const std::bad_alloc&) {
    left_ = 0;
  }
}

void CodeChoice::End(bool failed) noexcept {
  if (began_ == 0 || failed) return;
  uint64_t& least = left_ > kTimedRuns ? least_loop_ : least_code_;
  least = std::min(least, device::Timeline::Now() - began_);
  began_ = 0;
}

}  // namespace reprise::exec
