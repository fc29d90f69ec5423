// SPDX-License-Identifier: Apache-2.0
//
// For tests: vector functions on each instruction set that the machine has.
#pragma once

#include <hwy/targets.h>

#include <cstdint>

namespace reprise::kernels::simd::testing {

/// Runs fn(target) once for each instruction set, with functions dispatched to it; returns how many there are.
template <class Fn>
int ForEachTarget(Fn&& fn) {
  int count = 0;
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1, ++count) {
    hwy::SetSupportedTargetsForTest(rest & -rest);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    fn(rest & -rest);
    hwy::SetSupportedTargetsForTest(0);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return count;
}

}  // namespace reprise::kernels::simd::testing
