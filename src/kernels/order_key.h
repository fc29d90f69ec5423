// SPDX-License-Identifier: Apache-2.0
//
// Elements as unsigned numbers in the same order, each with its place: what sorting, selecting and finding duplicates
// work on. NaN is larger than any number, all NaN are equal, and so are the two zeros. Since the place is the lower
// part, items never tie and every order is stable.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/cast.h"
#include "kernels/strided.h"

namespace reprise::kernels {

/// An element of at most 32 bits: key above, place below.
using NarrowItem = uint64_t;
/// An element of 64 bits.
struct WideItem {
  uint64_t key;
  uint64_t place;
  friend bool operator<(const WideItem& a, const WideItem& b) {
    return a.key < b.key || (a.key == b.key && a.place < b.place);
  }
};

inline uint32_t KeyOf(NarrowItem item) { return static_cast<uint32_t>(item >> 32); }
inline uint64_t KeyOf(const WideItem& item) { return item.key; }
inline int64_t PlaceOf(NarrowItem item) { return static_cast<int64_t>(item & 0xffffffffu); }
inline int64_t PlaceOf(const WideItem& item) { return static_cast<int64_t>(item.place); }

/// Most elements whose places fit.
inline constexpr int64_t kMostNarrowItems = int64_t{1} << 32;

inline bool IsWide(DType dtype) { return ItemSize(dtype) == 8; }

/// Reads rows of one type as items.
class OrderKeys {
 public:
  /// \param descending  turns the order of the keys around, not that of the places
  OrderKeys(DType dtype, bool descending);

  /// Items of n elements, the first of which has the place `first`.
  void Read(const char* src, int64_t stride, int64_t n, int64_t first, NarrowItem* items) const;
  void Read(const char* src, int64_t stride, int64_t n, int64_t first, WideItem* items) const;

  /// Keys of NaN lie at the end (descending: at the begin); false for types without.
  bool IsNan(uint64_t key) const { return is_floating_ && key == nan_key_; }

 private:
  DType dtype_;
  bool is_floating_;
  uint64_t flip_;  // all ones for descending order
  uint64_t nan_key_;
};

/// Sorts items by key; `other` is memory for as many. The result lies in `items`.
void SortItems(NarrowItem* items, NarrowItem* other, int64_t n);
void SortItems(WideItem* items, WideItem* other, int64_t n);

}  // namespace reprise::kernels
