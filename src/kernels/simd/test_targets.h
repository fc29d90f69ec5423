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

/// Whether an instruction set multiplies and adds with one rounding. Functions that do so where they can give the same
/// bits on all that have it, and on all that have not. \pre The source of the function does not name AVX3_DL
/// (targets.h): where that one alone is chosen, its scalar code runs.
inline bool HasFusedMultiplyAdd(int64_t target) {
#if HWY_ARCH_X86
  return (target & (HWY_AVX2 | HWY_AVX3)) != 0;
#else
  return (target & (HWY_EMU128 | HWY_SCALAR)) == 0;
#endif
}

}  // namespace reprise::kernels::simd::testing
