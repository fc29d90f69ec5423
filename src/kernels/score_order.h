// SPDX-License-Identifier: Apache-2.0
//
// The order in which scores are chosen: NaN first, then the greatest, then the first.
#pragma once

#include <cmath>
#include <cstdint>

namespace reprise::kernels {

/// Whether score `a` is chosen before score `b`.
inline bool IsChosenBefore(const float* scores, int32_t a, int32_t b) {
  const bool a_is_nan = std::isnan(scores[a]);
  const bool b_is_nan = std::isnan(scores[b]);
  if (a_is_nan != b_is_nan) return a_is_nan;
  if (!a_is_nan && scores[a] != scores[b]) return scores[a] > scores[b];
  return a < b;
}

}  // namespace reprise::kernels
