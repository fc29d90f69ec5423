// SPDX-License-Identifier: Apache-2.0
#include "kernels/order_key.h"

#include <algorithm>

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 256;
constexpr int64_t kInsertion = 32;  // rows up to this length are not worth counting

inline uint32_t Ordered(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t ordered = bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
  const uint32_t number = x == 0 ? 0x80000000u : ordered;
  return x == x ? number : ~0u;
}
inline uint64_t Ordered(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint64_t ordered = bits ^ (static_cast<uint64_t>(static_cast<int64_t>(bits) >> 63) | uint64_t{1} << 63);
  const uint64_t number = x == 0 ? uint64_t{1} << 63 : ordered;
  return x == x ? number : ~uint64_t{0};
}
inline uint32_t Ordered(int32_t x) { return static_cast<uint32_t>(x) ^ 0x80000000u; }
inline uint32_t Ordered(uint32_t x) { return x; }
inline uint64_t Ordered(int64_t x) {
  return static_cast<uint64_t>(x) ^ uint64_t { 1 } << 63;
}
inline uint64_t Ordered(uint64_t x) { return x; }

inline void Make(uint32_t key, int64_t place, NarrowItem& item) {
  item = static_cast<uint64_t>(key) << 32 | static_cast<uint64_t>(place);
}
inline void Make(uint64_t key, int64_t place, WideItem& item) { item = {key, static_cast<uint64_t>(place)}; }

template <class T, class Item>
void ReadAs(DType dtype, const char* src, int64_t stride, int64_t n, int64_t first, uint64_t flip, Item* items) {
  const CastFn load = FindCast(dtype, DTypeOf<T>());
  T block[kBlock];
  using Key = decltype(Ordered(T{}));
  const auto mask = static_cast<Key>(flip);
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    const T* x = block;
    if (dtype == DTypeOf<T>() && stride == sizeof(T)) {
      x = reinterpret_cast<const T*>(src) + begin;
    } else {
      load(src + begin * stride, stride, reinterpret_cast<char*>(block), sizeof(T), count);
    }
    for (int64_t i = 0; i < count; ++i) Make(Ordered(x[i]) ^ mask, first + begin + i, items[begin + i]);
  }
}

// Byte `digit` of the key.
inline unsigned DigitOf(NarrowItem item, int digit) { return static_cast<unsigned>(item >> (32 + 8 * digit)) & 255u; }
inline unsigned DigitOf(const WideItem& item, int digit) {
  return static_cast<unsigned>(item.key >> (8 * digit)) & 255u;
}

template <class Item, int kDigits>
void Sort(Item* items, Item* other, int64_t n) {
  if (n <= kInsertion) {
    for (int64_t i = 1; i < n; ++i) {
      const Item item = items[i];
      int64_t j = i;
      for (; j > 0 && item < items[j - 1]; --j) items[j] = items[j - 1];
      items[j] = item;
    }
    return;
  }
  // Items arrive in the order of their places, and every pass keeps it.
  int64_t counts[kDigits][256] = {};
  for (int64_t i = 0; i < n; ++i) {
    for (int d = 0; d < kDigits; ++d) ++counts[d][DigitOf(items[i], d)];
  }
  Item* from = items;
  Item* to = other;
  for (int d = 0; d < kDigits; ++d) {
    int64_t* count = counts[d];
    if (count[DigitOf(from[0], d)] == n) continue;  // one digit for all
    int64_t begin = 0;
    for (int v = 0; v < 256; ++v) {
      const int64_t size = count[v];
      count[v] = begin;
      begin += size;
    }
    for (int64_t i = 0; i < n; ++i) to[count[DigitOf(from[i], d)]++] = from[i];
    std::swap(from, to);
  }
  if (from != items) std::copy_n(from, n, items);
}

}  // namespace

OrderKeys::OrderKeys(DType dtype, bool descending)
    : dtype_(dtype),
      is_floating_(CategoryOf(dtype) == Category::kFloating),
      flip_(descending ? ~uint64_t{0} : 0),
      nan_key_(IsWide(dtype) ? ~flip_ : ~flip_ & 0xffffffffu) {}

void OrderKeys::Read(const char* src, int64_t stride, int64_t n, int64_t first, NarrowItem* items) const {
  if (is_floating_) return ReadAs<float>(dtype_, src, stride, n, first, flip_, items);
  if (dtype_ == DType::kUInt32) return ReadAs<uint32_t>(dtype_, src, stride, n, first, flip_, items);
  ReadAs<int32_t>(dtype_, src, stride, n, first, flip_, items);
}

void OrderKeys::Read(const char* src, int64_t stride, int64_t n, int64_t first, WideItem* items) const {
  if (is_floating_) return ReadAs<double>(dtype_, src, stride, n, first, flip_, items);
  if (dtype_ == DType::kUInt64) return ReadAs<uint64_t>(dtype_, src, stride, n, first, flip_, items);
  ReadAs<int64_t>(dtype_, src, stride, n, first, flip_, items);
}

void SortItems(NarrowItem* items, NarrowItem* other, int64_t n) { Sort<NarrowItem, 4>(items, other, n); }
void SortItems(WideItem* items, WideItem* other, int64_t n) { Sort<WideItem, 8>(items, other, n); }

}  // namespace reprise::kernels
