// SPDX-License-Identifier: Apache-2.0
#include "kernels/copy.h"

#include <cstring>

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

// Copies `rows` rows of `n` elements: destination rows contiguous, source
// columns contiguous. Tiles keep both sides within the first-level cache.
template <class Word>
void TransposeTile(const char* src, int64_t src_column_stride, char* dst, int64_t dst_row_stride, int64_t rows,
                   int64_t n) {
  constexpr int64_t kTile = 16;
  for (int64_t i0 = 0; i0 < n; i0 += kTile) {
    const int64_t i1 = std::min(n, i0 + kTile);
    for (int64_t r = 0; r < rows; ++r) {
      char* dst_row = dst + r * dst_row_stride;
      const char* src_row = src + r * static_cast<int64_t>(sizeof(Word));
      for (int64_t i = i0; i < i1; ++i) {
        std::memcpy(dst_row + i * static_cast<int64_t>(sizeof(Word)), src_row + i * src_column_stride, sizeof(Word));
      }
    }
  }
}

template <class Word>
inline constexpr int64_t kMaxRows = 64 / sizeof(Word) * 2;  // two cache lines of the source

// The same for strides that put the lines of a tile into the same few sets of the cache: whole lines are read and
// written at once, and turned in a buffer.
template <class Word>
void TransposeThroughBuffer(const char* src, int64_t src_column_stride, char* dst, int64_t dst_row_stride, int64_t rows,
                            int64_t n) {
  constexpr int64_t kSide = kMaxRows<Word>;
  Word buffer[kSide][kSide + 16 / sizeof(Word)];
  for (int64_t i0 = 0; i0 < n; i0 += kSide) {
    const int64_t columns = std::min(n - i0, kSide);
    for (int64_t i = 0; i < columns; ++i) {
      const Word* column = reinterpret_cast<const Word*>(src + (i0 + i) * src_column_stride);
      for (int64_t r = 0; r < rows; ++r) buffer[r][i] = column[r];
    }
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(dst + r * dst_row_stride + i0 * static_cast<int64_t>(sizeof(Word)), buffer[r],
                  static_cast<size_t>(columns) * sizeof(Word));
    }
  }
}

template <class Word>
void CopyTransposed(const Loop& loop, Range range) {
  const int64_t column_stride = loop.strides[0][kSrc];
  const int64_t row_stride = loop.strides[1][kDst];
  constexpr int64_t kSetStride = 1024;
  const bool collides = column_stride % kSetStride == 0 || row_stride % kSetStride == 0;
  // Collect full rows that follow each other along dim 1 into one tile.
  const char* src = nullptr;
  char* dst = nullptr;
  int64_t rows = 0;
  const auto flush = [&] {
    if (rows != 0 && collides) {
      TransposeThroughBuffer<Word>(src, column_stride, dst, row_stride, rows, loop.sizes[0]);
    } else if (rows != 0) {
      TransposeTile<Word>(src, column_stride, dst, row_stride, rows, loop.sizes[0]);
    }
    rows = 0;
  };
  ForEachRow(loop, range, [&](char* const* ptrs, const int64_t*, int64_t n) {
    if (n != loop.sizes[0]) {  // a cut row at either end of the range
      flush();
      TransposeTile<Word>(ptrs[kSrc], column_stride, ptrs[kDst], row_stride, 1, n);
      return;
    }
    const bool continues = rows != 0 && rows < kMaxRows<Word> && ptrs[kDst] == dst + rows * row_stride &&
                           ptrs[kSrc] == src + rows * static_cast<int64_t>(sizeof(Word));
    if (!continues) {
      flush();
      src = ptrs[kSrc];
      dst = ptrs[kDst];
    }
    ++rows;
  });
  flush();
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
  if (dim == 0 || !IsContiguous(dst)) return false;
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
