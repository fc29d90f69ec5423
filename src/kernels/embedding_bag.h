// SPDX-License-Identifier: Apache-2.0
//
// Rows of a table, reduced bag by bag; rows with a bounded norm.
//
// Bag       bag b holds the items from offsets[b] up to offsets[b + 1], the last one up to the end (to the last offset
//   where that is told); offsets count as the nearest ones that make sense. An item whose index is `padding`, or none
//   of the table, is not in its bag.
// Formula   sum: out = sum of weight[index] (* scale of the item); mean: divided by the number of items in the bag;
//   max: the largest element of each column and the index of the first row that has it. An empty bag gives 0.
// Order     ascending items, in float32 (float64 for that), rounded once. NaN wins in max.
// Data      row-major: weight and out of one type, float32 or float64; all integers int64.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

enum class BagMode : uint8_t { kSum, kMean, kMax };

struct EmbeddingBags {
  BagMode mode = BagMode::kSum;
  int64_t rows = 0;  ///< of weight
  int64_t width = 0;
  int64_t items = 0;
  int64_t bags = 0;
  bool has_end = false;  ///< offsets has bags + 1 entries
  int64_t padding = -1;

  /// The items of a bag.
  Range ItemsOf(const int64_t* offsets, int64_t bag) const;
  bool Counts(int64_t index) const { return index >= 0 && index < rows && index != padding; }
};

/// sizes: items in each bag. scales and max_indices [bags, width] may be null. A unit is a bag.
void ReduceBags(const EmbeddingBags& bags, DType type, const void* weight, const int64_t* indices,
                const int64_t* offsets, const void* scales, void* out, int64_t* sizes, int64_t* max_indices,
                Range units);
/// of_item: the bag of each item; items before the first bag belong to bag 0.
void BagsOfItems(const EmbeddingBags& bags, const int64_t* offsets, int64_t* of_item);

/// Rows of table [rows, width] that an index names are scaled down to the norm `limit` where theirs is larger. `seen`
/// is scratch of a byte for each row.
void RenormRows(DType type, void* table, int64_t rows, int64_t width, const int64_t* indices, int64_t count,
                double order, double limit, uint8_t* seen);

}  // namespace reprise::kernels
