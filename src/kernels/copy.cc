// SPDX-License-Identifier: Apache-2.0
#include "kernels/copy.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace reprise::kernels {
namespace {

constexpr int kDst = 0;
constexpr int kSrc = 1;

// Moves a dim along which the source is contiguous next to the innermost dim,
// which must be contiguous in the destination. The order of the items changes,
// not their set. Returns false if the loop has no such pair of dims.
bool ArrangeTranspose(Loop& loop, int64_t item) {
  if (loop.rank < 2 || loop.strides[0][kDst] != item || loop.strides[0][kSrc] == item || loop.strides[0][kSrc] == 0) {
    return false;
  }
  for (int d = 1; d < loop.rank; ++d) {
    if (loop.strides[d][kSrc] != item) continue;
    for (; d > 1; --d) {
      std::swap(loop.sizes[d], loop.sizes[d - 1]);
      for (int k : {kDst, kSrc}) std::swap(loop.strides[d][k], loop.strides[d - 1][k]);
    }
    return true;
  }
  return false;
}

struct Bytes16 {
  uint64_t words[2];
};

// A transpose: destination rows contiguous (i counts along them), source columns contiguous (r counts along those).
struct Turn {
  const char* src;
  int64_t src_stride;  // from column to column: the next i
  char* dst;
  int64_t dst_stride;  // from row to row: the next r
};

template <class Word>
Turn At(const Turn& turn, int64_t r, int64_t i) {
  constexpr int64_t kItem = sizeof(Word);
  return {turn.src + i * turn.src_stride + r * kItem, turn.src_stride, turn.dst + r * turn.dst_stride + i * kItem,
          turn.dst_stride};
}

template <class Word>
struct VectorOf {
  using Type __attribute__((vector_size(16))) = Word;
};
template <>
struct VectorOf<Bytes16> {
  using Type = Bytes16;
};

// The lower (upper) halves of a and b, element by element in turn.
template <bool kUpper, class Vector, size_t... kIndex>
Vector Zip(Vector a, Vector b, std::index_sequence<kIndex...>) {
  constexpr size_t kCount = sizeof...(kIndex), kFirst = kUpper ? kCount / 2 : 0;
  return __builtin_shufflevector(a, b, static_cast<int>(kFirst + kIndex / 2 + kIndex % 2 * kCount)...);
}

// The elements of a and then b with even (odd) places.
template <size_t kOdd, class Vector, size_t... kIndex>
Vector Unzip(Vector a, Vector b, std::index_sequence<kIndex...>) {
  return __builtin_shufflevector(a, b, static_cast<int>(2 * kIndex + kOdd)...);
}

// As many vectors as one has elements, turned in registers: each round doubles the length of the pieces that are right.
template <class Word>
[[gnu::always_inline]] inline void TurnVectors(typename VectorOf<Word>::Type* v) {
  constexpr int kCount = 16 / sizeof(Word);
  if constexpr (kCount > 1) {
    using Vector = typename VectorOf<Word>::Type;
    constexpr auto kElements = std::make_index_sequence<kCount>();
#pragma GCC unroll 4
    for (int round = 1; round < kCount; round *= 2) {
      Vector next[kCount];
#pragma GCC unroll 8
      for (int k = 0; k < kCount / 2; ++k) {
        next[2 * k] = Zip<false>(v[k], v[k + kCount / 2], kElements);
        next[2 * k + 1] = Zip<true>(v[k], v[k + kCount / 2], kElements);
      }
#pragma GCC unroll 16
      for (int k = 0; k < kCount; ++k) v[k] = next[k];
    }
  }
}

// kColumns columns (kRows rows) of which one element each is next to another in the destination (source): the reads
// (writes) are as many streams.
template <class Word, int kColumns>
void TurnColumns(const Turn& turn, int64_t rows) {
  constexpr int64_t kItem = sizeof(Word);
  const char* from = turn.src;
  char* to = turn.dst;
  if constexpr (kColumns == 2 && kItem < 16) {
    if (turn.dst_stride == 2 * kItem) {
      constexpr auto kElements = std::make_index_sequence<16 / kItem>();
      for (; rows >= 16 / kItem; rows -= 16 / kItem, from += 16, to += 32) {
        typename VectorOf<Word>::Type v[2];
        std::memcpy(&v[0], from, 16);
        std::memcpy(&v[1], from + turn.src_stride, 16);
        const typename VectorOf<Word>::Type pairs[] = {Zip<false>(v[0], v[1], kElements),
                                                       Zip<true>(v[0], v[1], kElements)};
        std::memcpy(to, pairs, 32);
      }
    }
  }
  for (int64_t r = 0; r < rows; ++r, from += kItem, to += turn.dst_stride) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kColumns; ++i) std::memcpy(to + i * kItem, from + i * turn.src_stride, sizeof(Word));
  }
}
template <class Word, int kRows>
void TurnRows(const Turn& turn, int64_t n) {
  constexpr int64_t kItem = sizeof(Word);
  const char* from = turn.src;
  char* to = turn.dst;
  if constexpr (kRows == 2 && kItem < 16) {
    if (turn.src_stride == 2 * kItem) {
      constexpr auto kElements = std::make_index_sequence<16 / kItem>();
      for (; n >= 16 / kItem; n -= 16 / kItem, from += 32, to += 16) {
        typename VectorOf<Word>::Type v[2];
        std::memcpy(v, from, 32);
        const auto even = Unzip<0>(v[0], v[1], kElements), odd = Unzip<1>(v[0], v[1], kElements);
        std::memcpy(to, &even, 16);
        std::memcpy(to + turn.dst_stride, &odd, 16);
      }
    }
  }
  for (int64_t i = 0; i < n; ++i, from += turn.src_stride, to += kItem) {
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRows; ++r) std::memcpy(to + r * turn.dst_stride, from + r * kItem, sizeof(Word));
  }
}

// As many rows and columns as a vector has elements.
constexpr int64_t kVector = 16;
template <class Word>
inline constexpr int64_t kSquare = kVector / sizeof(Word);
template <class Word>
[[gnu::always_inline]] inline void TurnSquare(const Turn& turn) {
  typename VectorOf<Word>::Type v[kSquare<Word>];
#pragma GCC unroll 16
  for (int64_t k = 0; k < kSquare<Word>; ++k) std::memcpy(&v[k], turn.src + k * turn.src_stride, kVector);
  TurnVectors<Word>(v);
#pragma GCC unroll 16
  for (int64_t k = 0; k < kSquare<Word>; ++k) std::memcpy(turn.dst + k * turn.dst_stride, &v[k], kVector);
}

// Calls call(first, how many) for all from `begin` on, four at most at a time, with the number as a type.
template <class Call>
void ForEachFew(int64_t begin, int64_t end, Call&& call) {
  for (; end - begin >= 4; begin += 4) call(begin, std::integral_constant<int, 4>());
  switch (end - begin) {
    case 1: return call(begin, std::integral_constant<int, 1>());
    case 2: return call(begin, std::integral_constant<int, 2>());
    case 3: return call(begin, std::integral_constant<int, 3>());
    default: return;
  }
}

// What does not fill a tile.
template <class Word>
void TurnAnything(const Turn& turn, int64_t rows, int64_t n) {
  const int64_t full_rows = rows / kSquare<Word> * kSquare<Word>, full_n = n / kSquare<Word> * kSquare<Word>;
  for (int64_t i = 0; i < full_n; i += kSquare<Word>) {
    for (int64_t r = 0; r < full_rows; r += kSquare<Word>) TurnSquare<Word>(At<Word>(turn, r, i));
  }
  ForEachFew(full_n, n, [&](int64_t i, auto count) { TurnColumns<Word, count()>(At<Word>(turn, 0, i), rows); });
  ForEachFew(full_rows, rows, [&](int64_t r, auto count) { TurnRows<Word, count()>(At<Word>(turn, r, 0), full_n); });
}

constexpr int64_t kLine = 64;
template <class Word>
inline constexpr int64_t kSide = kLine / sizeof(Word);

// One cache line of each of so many columns becomes one line of each of so many rows. Lines are read and written
// whole, one after the other: strides that put them into the same few sets of a cache do no harm.
template <class Word>
void TurnTile(const Turn& turn) {
  alignas(kLine) char buffer[kSide<Word>][kLine];
  const Turn staged{turn.src, turn.src_stride, buffer[0], kLine};
  for (int64_t i = 0; i < kSide<Word>; i += kSquare<Word>) {
    for (int64_t r = 0; r < kSide<Word>; r += kSquare<Word>) TurnSquare<Word>(At<Word>(staged, r, i));
  }
  for (int64_t r = 0; r < kSide<Word>; ++r) std::memcpy(turn.dst + r * turn.dst_stride, buffer[r], kLine);
}

// A block is what the address translation of both sides keeps at once, and about what a thread is given.
template <class Word>
inline constexpr int64_t kBlockRows = sizeof(Word) < 4 ? 512 / sizeof(Word) : 128;
template <class Word>
inline constexpr int64_t kBlockColumns = 32768 / kBlockRows<Word>;

template <class Word>
void TurnBlock(const Turn& turn, int64_t rows, int64_t n) {
  const int64_t full_rows = rows / kSide<Word> * kSide<Word>, full_n = n / kSide<Word> * kSide<Word>;
  for (int64_t r = 0; r < full_rows; r += kSide<Word>) {
    for (int64_t i = 0; i < full_n; i += kSide<Word>) TurnTile<Word>(At<Word>(turn, r, i));
  }
  if (full_rows != 0 && full_n != n) TurnAnything<Word>(At<Word>(turn, 0, full_n), full_rows, n - full_n);
  if (full_rows != rows) TurnAnything<Word>(At<Word>(turn, full_rows, 0), rows - full_rows, n);
}

// Items [begin, end) of a block of rows of `n`, in row-major order.
template <class Word>
void TurnPart(const Turn& turn, int64_t n, Range range) {
  const int64_t first = (range.begin + n - 1) / n, last = range.end / n;
  if (first > last) return TurnAnything<Word>(At<Word>(turn, last, range.begin - last * n), 1, range.end - range.begin);
  if (const int64_t head = first * n - range.begin; head != 0) {
    TurnAnything<Word>(At<Word>(turn, first - 1, n - head), 1, head);
  }
  if (first != last) TurnBlock<Word>(At<Word>(turn, first, 0), last - first, n);
  if (const int64_t tail = range.end - last * n; tail != 0) TurnAnything<Word>(At<Word>(turn, last, 0), 1, tail);
}

// Whole planes of the two inner dims, of which each is one block at most, along one more dim. \return how many items
template <class Word>
int64_t TurnSmallPlanes(const Loop& loop, Range range) {
  const int64_t n = loop.sizes[0], rows = loop.sizes[1], plane = n * rows;
  if (loop.rank != 3 || range.begin % plane != 0 || rows > kBlockRows<Word> || n > kBlockColumns<Word>) return 0;
  const int64_t first = range.begin / plane, last = range.end / plane;
  Turn turn{loop.base[kSrc] + first * loop.strides[2][kSrc], loop.strides[0][kSrc],
            loop.base[kDst] + first * loop.strides[2][kDst], loop.strides[1][kDst]};
  for (int64_t p = first; p < last; ++p) {
    TurnBlock<Word>(turn, rows, n);
    turn.src += loop.strides[2][kSrc];
    turn.dst += loop.strides[2][kDst];
  }
  return (last - first) * plane;
}

// The items of the two inner dims are counted block by block: in bands of rows, in each band by columns, in each block
// by rows. So a range is few blocks, however long the rows are.
template <class Word>
void CopyTransposed(const Loop& loop, Range range) {
  const int64_t n = loop.sizes[0], rows = loop.sizes[1], plane = n * rows;
  constexpr int64_t kRows = kBlockRows<Word>, kColumns = kBlockColumns<Word>;
  for (int64_t done = range.begin; done != range.end;) {
    if (const int64_t turned = TurnSmallPlanes<Word>(loop, {done, range.end}); turned != 0) {
      done += turned;
      continue;
    }
    Turn turn{loop.base[kSrc], loop.strides[0][kSrc], loop.base[kDst], loop.strides[1][kDst]};
    int64_t rest = done / plane;
    for (int d = 2; d < loop.rank; ++d) {
      turn.src += rest % loop.sizes[d] * loop.strides[d][kSrc];
      turn.dst += rest % loop.sizes[d] * loop.strides[d][kDst];
      rest /= loop.sizes[d];
    }
    const int64_t in_plane = done % plane;
    const int64_t row = in_plane / (kRows * n) * kRows;
    const int64_t band_rows = std::min(kRows, rows - row);
    const int64_t in_band = in_plane - row * n;
    const int64_t column = in_band / (band_rows * kColumns) * kColumns;
    const int64_t columns = std::min(kColumns, n - column);
    const int64_t first = in_band - band_rows * column;
    const int64_t last = std::min(band_rows * columns, first + range.end - done);
    TurnPart<Word>(At<Word>(turn, row, column), columns, {first, last});
    done += last - first;
  }
}

// The loop over the rows of `loop`.
Loop RowsOf(const Loop& loop) {
  Loop outer = loop;
  outer.rank = loop.rank - 1;
  outer.count = loop.count / loop.sizes[0];
  for (int d = 0; d < outer.rank; ++d) {
    outer.sizes[d] = loop.sizes[d + 1];
    for (int k : {kDst, kSrc}) outer.strides[d][k] = loop.strides[d + 1][k];
  }
  return outer;
}

// Rows that are contiguous on both sides, without the odometer for each.
void CopyContiguousRows(const Loop& loop, int64_t item, Range range) {
  const auto copy = [&](char* const* ptrs, const int64_t*, int64_t n) {
    std::memcpy(ptrs[kDst], ptrs[kSrc], static_cast<size_t>(n * item));
  };
  const int64_t length = loop.sizes[0];
  const Range rows{(range.begin + length - 1) / length, range.end / length};
  if (loop.rank == 1 || rows.begin >= rows.end) return ForEachRow(loop, range, copy);
  ForEachRow(loop, {range.begin, rows.begin * length}, copy);
  const auto bytes = static_cast<size_t>(length * item);
  ForEachRow(RowsOf(loop), rows, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    char* to = ptrs[kDst];
    const char* from = ptrs[kSrc];
    for (int64_t r = 0; r < n; ++r) {
      std::memcpy(to, from, bytes);
      to += strides[kDst];
      from += strides[kSrc];
    }
  });
  ForEachRow(loop, {rows.end * length, range.end}, copy);
}

// Each element of the source several times side by side: dim 0 repeats, dim 1 walks the source.
template <class Word>
void CopySpread(const Loop& loop, Range range) {
  const int64_t repeats = loop.sizes[0];
  const int64_t stride = loop.strides[1][kSrc];
  const int64_t dst_stride = loop.strides[1][kDst];
  const Range elements{(range.begin + repeats - 1) / repeats, (range.end + repeats - 1) / repeats};
  ForEachRow(RowsOf(loop), elements, [&](char* const* ptrs, const int64_t*, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const Word word = *reinterpret_cast<const Word*>(ptrs[kSrc] + i * stride);
      Word* to = reinterpret_cast<Word*>(ptrs[kDst] + i * dst_stride);
      for (int64_t r = 0; r < repeats; ++r) to[r] = word;
    }
  });
}

template <class Call>
void WithWord(int64_t item, Call&& call) {
  switch (item) {
    case 1: return call(uint8_t{});
    case 2: return call(uint16_t{});
    case 4: return call(uint32_t{});
    case 8: return call(uint64_t{});
    default: return call(Bytes16{});
  }
}

void CopySameType(Loop& loop, int64_t item, CastFn copy_row, Range range) {
  if (loop.base[kDst] != loop.base[kSrc] && ArrangeTranspose(loop, item)) {
    return WithWord(item, [&](auto word) { CopyTransposed<decltype(word)>(loop, range); });
  }
  if (loop.strides[0][kDst] == item && loop.strides[0][kSrc] == item && loop.base[kDst] != loop.base[kSrc]) {
    return CopyContiguousRows(loop, item, range);
  }
  // A range belongs to the elements whose first copy it holds.
  constexpr int64_t kFewRepeats = 32;
  if (loop.rank > 1 && loop.sizes[0] <= kFewRepeats && loop.strides[0][kDst] == item && loop.strides[0][kSrc] == 0) {
    return WithWord(item, [&](auto word) { CopySpread<decltype(word)>(loop, range); });
  }
  ForEachRow(loop, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    copy_row(ptrs[kSrc], strides[kSrc], ptrs[kDst], strides[kDst], n);
  });
}

}  // namespace

void Copy(const TensorRef& src, const TensorRef& dst, Range range) {
  if (range.begin >= range.end) return;
  Loop loop = MakeLoop({&dst, &src});
  const CastFn cast = FindCast(src.dtype, dst.dtype);
  if (src.dtype == dst.dtype) return CopySameType(loop, ItemSize(dst.dtype), cast, range);
  ForEachRow(loop, range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    cast(ptrs[kSrc], strides[kSrc], ptrs[kDst], strides[kDst], n);
  });
}

void Fill(const TensorRef& dst, const Scalar& value, Range range) {
  if (range.begin >= range.end) return;
  alignas(16) char item[16];
  FindCast(value.dtype, dst.dtype)(reinterpret_cast<const char*>(value.bytes), 0, item, 0, 1);
  const CastFn copy_row = FindCast(dst.dtype, dst.dtype);
  ForEachRow(MakeLoop({&dst}), range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    copy_row(item, 0, ptrs[kDst], strides[kDst], n);
  });
}

void Zero(const TensorRef& dst, Range range) {
  if (range.begin >= range.end) return;
  const int64_t item = ItemSize(dst.dtype);
  ForEachRow(MakeLoop({&dst}), range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    if (strides[kDst] == item) {
      std::memset(ptrs[kDst], 0, static_cast<size_t>(n * item));
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      std::memset(ptrs[kDst] + i * strides[kDst], 0, static_cast<size_t>(item));
    }
  });
}

namespace {

// Everything contiguous: dst is rows, each of a piece of every source. The range counts elements of dst as they lie.
bool ConcatRows(std::span<const TensorRef> sources, int dim, const TensorRef& dst, Range range) {
  if (!IsContiguous(dst)) return false;
  for (const TensorRef& src : sources) {
    if (src.dtype != dst.dtype || src.rank != dst.rank || !IsContiguous(src)) return false;
  }
  const int64_t item = ItemSize(dst.dtype);
  int64_t inner = item;  // bytes of one position of dim
  for (int d = dim + 1; d < dst.rank; ++d) inner *= dst.sizes[d];
  constexpr int64_t kShortPiece = 64;
  if (inner * dst.sizes[dim] < kShortPiece * static_cast<int64_t>(sources.size())) return false;
  const int64_t row = inner * dst.sizes[dim];
  const int64_t begin = range.begin * item;
  const int64_t end = range.end * item;
  char* to = static_cast<char*>(dst.data);
  for (int64_t r = begin / row; r * row < end; ++r) {
    int64_t at = r * row;
    for (const TensorRef& src : sources) {
      const int64_t bytes = inner * src.sizes[dim];
      const int64_t first = std::max(begin, at);
      const int64_t last = std::min(end, at + bytes);
      if (first < last) {
        std::memcpy(to + first, static_cast<const char*>(src.data) + r * bytes + (first - at),
                    static_cast<size_t>(last - first));
      }
      at += bytes;
    }
  }
  return true;
}

}  // namespace

void Concat(std::span<const TensorRef> sources, int dim, const TensorRef& dst, Range range) {
  if (range.begin >= range.end || ConcatRows(sources, dim, dst, range)) return;
  int64_t first = 0;     // loop item at which the current source begins
  int64_t position = 0;  // its index along `dim`
  for (const TensorRef& src : sources) {
    const int64_t count = ElementCount(src);
    if (count == 0) {
      // Either empty along another dim, then dst is empty too, or no part of it.
      continue;
    }
    TensorRef part = dst;
    part.sizes[dim] = src.sizes[dim];
    part.data = static_cast<char*>(dst.data) + position * dst.strides[dim] * ItemSize(dst.dtype);
    Copy(src, part, {std::max<int64_t>(0, range.begin - first), std::min(count, range.end - first)});
    first += count;
    position += src.sizes[dim];
  }
}

}  // namespace reprise::kernels
