// SPDX-License-Identifier: Apache-2.0
//
// The summation order shared by the reductions: blocks of kSumBlock elements,
// element i of a block in lane i % kSumLanes, lanes folded pairwise, block sums
// combined pairwise in order of arrival. Lanes start at +0.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/arithmetic.h"

namespace reprise::kernels {

inline constexpr int64_t kSumBlock = 512;
inline constexpr int64_t kSumLanes = 16;

/// lanes[0] = pairwise sum of all lanes, for kColumns sums side by side.
template <class T, int64_t kColumns>
inline void FoldLanes(T (*lanes)[kColumns]) {
  for (int64_t width = kSumLanes / 2; width > 0; width /= 2) {
    for (int64_t l = 0; l < width; ++l) {
      for (int64_t j = 0; j < kColumns; ++j) {
        lanes[l][j] = AddValue(lanes[l][j], lanes[l + width][j]);
      }
    }
  }
}

/// The sum of a contiguous block of at most kSumBlock elements.
template <class T>
inline T SumOfBlock(const T* x, int64_t n) {
  T lanes[kSumLanes][1] = {};
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    for (int64_t l = 0; l < kSumLanes; ++l) lanes[l][0] = AddValue(lanes[l][0], x[i + l]);
  }
  for (int64_t l = 0; i + l < n; ++l) lanes[l][0] = AddValue(lanes[l][0], x[i + l]);
  FoldLanes<T, 1>(lanes);
  return lanes[0][0];
}

/// Combines block sums pairwise, like the carries of a binary counter: level L
/// holds the sum of 2^L blocks while bit L of the count is set.
template <class T, int64_t kColumns>
class SumTree {
 public:
  void Push(const T* sums) {
    T carry[kColumns];
    for (int64_t j = 0; j < kColumns; ++j) carry[j] = sums[j];
    int level = 0;
    for (uint64_t count = count_++; (count & 1) != 0; count >>= 1, ++level) {
      for (int64_t j = 0; j < kColumns; ++j) carry[j] = AddValue(levels_[level][j], carry[j]);
    }
    for (int64_t j = 0; j < kColumns; ++j) levels_[level][j] = carry[j];
  }

  void Push(T sum) requires(kColumns == 1) { Push(&sum); }

  /// Writes the total of everything pushed; zeros if nothing was.
  void Finish(T* total) const {
    bool is_first = true;
    for (int64_t j = 0; j < kColumns; ++j) total[j] = T{};
    for (uint64_t rest = count_; rest != 0; rest &= rest - 1) {
      const T* sums = levels_[std::countr_zero(rest)];
      for (int64_t j = 0; j < kColumns; ++j) {
        total[j] = is_first ? sums[j] : AddValue(sums[j], total[j]);
      }
      is_first = false;
    }
  }

 private:
  // 2^36 blocks of 512 elements: more than any address space holds in bytes.
  static constexpr int kLevels = 37;
  T levels_[kLevels][kColumns];
  uint64_t count_ = 0;
};

}  // namespace reprise::kernels
