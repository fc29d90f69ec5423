// SPDX-License-Identifier: Apache-2.0
#include "collective/fold.h"

#include <algorithm>
#include <bit>
#include <type_traits>

namespace reprise::collective {
namespace {

using kernels::BFloat16;
using kernels::Half;

// Of many sources, so many elements are combined before they are written.
constexpr int64_t kBlock = 1024;
// Sources that are combined with what is there in one pass.
constexpr size_t kAtOnce = 3;

// What a T is combined in.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

// The bits of two floating point numbers that are equal, as those of zeros: +0 where one has it (max), -0 (min).
template <bool kMax, class F>
F EqualOf(F a, F b) {
  using Bits = std::conditional_t<sizeof(F) == 4, uint32_t, uint64_t>;
  const Bits x = std::bit_cast<Bits>(a);
  const Bits y = std::bit_cast<Bits>(b);
  return std::bit_cast<F>(kMax ? Bits(x & y) : Bits(x | y));
}

template <FoldKind kKind, class W>
W Combine(W a, W b) {
  if constexpr (std::is_integral_v<W>) {
    using U = std::conditional_t<sizeof(W) <= 4, uint32_t, uint64_t>;  // wraps, also where int would be promoted to
    if constexpr (kKind == FoldKind::kSum) return static_cast<W>(static_cast<U>(a) + static_cast<U>(b));
    if constexpr (kKind == FoldKind::kProduct) return static_cast<W>(static_cast<U>(a) * static_cast<U>(b));
    if constexpr (kKind == FoldKind::kMax) return std::max(a, b);
    return std::min(a, b);
  } else {
    if constexpr (kKind == FoldKind::kSum) return a + b;
    if constexpr (kKind == FoldKind::kProduct) return a * b;
    constexpr bool kMax = kKind == FoldKind::kMax;
    const W chosen = a == b ? EqualOf<kMax>(a, b) : (kMax ? a < b : b < a) ? b : a;
    return a != a ? a : b != b ? b : chosen;
  }
}

// out[i] = first[i] and the i-th elements of `kRest` others, in their order. `out` may be any of them, as a whole: then
// an element is read before it is written, and no other one depends on it, which the compiler cannot know.
template <class T, FoldKind kKind, size_t kRest, class Out, class First>
void Chain(Out* out, const First* first, const void* const* rest, int64_t begin, int64_t length) {
  static_assert(kRest <= 3);
  using W = Wide<T>;
  const auto of = [&](size_t i) { return static_cast<const T*>(rest[i]) + begin; };
  const T* const a = kRest > 0 ? of(0) : nullptr;
  const T* const b = kRest > 1 ? of(1) : nullptr;
  const T* const c = kRest > 2 ? of(2) : nullptr;
#pragma GCC ivdep
  for (int64_t i = 0; i < length; ++i) {
    W value = static_cast<W>(first[i]);
    if constexpr (kRest > 0) value = Combine<kKind>(value, static_cast<W>(a[i]));
    if constexpr (kRest > 1) value = Combine<kKind>(value, static_cast<W>(b[i]));
    if constexpr (kRest > 2) value = Combine<kKind>(value, static_cast<W>(c[i]));
    out[i] = static_cast<Out>(value);
  }
}

template <class T, FoldKind kKind, class Out, class First>
void ChainOf(size_t rest_count, Out* out, const First* first, const void* const* rest, int64_t begin, int64_t length) {
  switch (rest_count) {
    case 0: return Chain<T, kKind, 0>(out, first, rest, begin, length);
    case 1: return Chain<T, kKind, 1>(out, first, rest, begin, length);
    case 2: return Chain<T, kKind, 2>(out, first, rest, begin, length);
    default: return Chain<T, kKind, 3>(out, first, rest, begin, length);
  }
}

template <class T, FoldKind kKind>
void Run(void* dst, const void* const* sources, size_t source_count, int64_t count) {
  if (source_count <= kAtOnce + 1)
    return ChainOf<T, kKind>(source_count - 1, static_cast<T*>(dst), static_cast<const T*>(sources[0]), sources + 1, 0,
                             count);
  // What is combined stays in the cache until the last sources are.
  Wide<T> block[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t length = std::min(kBlock, count - begin);
    Chain<T, kKind, kAtOnce>(block, static_cast<const T*>(sources[0]) + begin, sources + 1, begin, length);
    size_t k = kAtOnce + 1;
    for (; source_count - k > kAtOnce; k += kAtOnce) Chain<T, kKind, kAtOnce>(block, block, sources + k, begin, length);
    ChainOf<T, kKind>(source_count - k, static_cast<T*>(dst) + begin, block, sources + k, begin, length);
  }
}

template <class T>
void ByKind(FoldKind kind, void* dst, const void* const* sources, size_t source_count, int64_t count) {
  switch (kind) {
    case FoldKind::kSum: return Run<T, FoldKind::kSum>(dst, sources, source_count, count);
    case FoldKind::kProduct: return Run<T, FoldKind::kProduct>(dst, sources, source_count, count);
    case FoldKind::kMax: return Run<T, FoldKind::kMax>(dst, sources, source_count, count);
    case FoldKind::kMin: return Run<T, FoldKind::kMin>(dst, sources, source_count, count);
  }
}

}  // namespace

void Fold(DType type, FoldKind kind, void* dst, const void* const* sources, size_t source_count, int64_t count) {
  switch (type) {
    case DType::kFloat: return ByKind<float>(kind, dst, sources, source_count, count);
    case DType::kFloat16: return ByKind<Half>(kind, dst, sources, source_count, count);
    case DType::kBFloat16: return ByKind<BFloat16>(kind, dst, sources, source_count, count);
    case DType::kDouble: return ByKind<double>(kind, dst, sources, source_count, count);
    case DType::kInt8: return ByKind<int8_t>(kind, dst, sources, source_count, count);
    case DType::kInt16: return ByKind<int16_t>(kind, dst, sources, source_count, count);
    case DType::kInt32: return ByKind<int32_t>(kind, dst, sources, source_count, count);
    case DType::kInt64: return ByKind<int64_t>(kind, dst, sources, source_count, count);
    case DType::kUInt8: return ByKind<uint8_t>(kind, dst, sources, source_count, count);
    case DType::kUInt16: return ByKind<uint16_t>(kind, dst, sources, source_count, count);
    case DType::kUInt32: return ByKind<uint32_t>(kind, dst, sources, source_count, count);
    case DType::kUInt64: return ByKind<uint64_t>(kind, dst, sources, source_count, count);
    default: return;
  }
}

}  // namespace reprise::collective
