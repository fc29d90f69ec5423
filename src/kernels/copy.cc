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
void CopyTransposed(const Loop& loop, Range range) {
  constexpr int64_t kMaxRows = 64 / sizeof(Word) * 2;  // two cache lines of the source
  const int64_t column_stride = loop.strides[0][kSrc];
  const int64_t row_stride = loop.strides[1][kDst];
  // Collect full rows that follow each other along dim 1 into one tile.
  const char* src = nullptr;
  char* dst = nullptr;
  int64_t rows = 0;
  const auto flush = [&] {
    if (rows != 0) TransposeTile<Word>(src, column_stride, dst, row_stride, rows, loop.sizes[0]);
    rows = 0;
  };
  ForEachRow(loop, range, [&](char* const* ptrs, const int64_t*, int64_t n) {
    if (n != loop.sizes[0]) {  // a cut row at either end of the range
      flush();
      TransposeTile<Word>(ptrs[kSrc], column_stride, ptrs[kDst], row_stride, 1, n);
      return;
    }
    const bool continues = rows != 0 && rows < kMaxRows && ptrs[kDst] == dst + rows * row_stride &&
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

void CopySameType(Loop& loop, int64_t item, CastFn copy_row, Range range) {
  if (loop.base[kDst] != loop.base[kSrc] && ArrangeTranspose(loop, item)) {
    switch (item) {
      case 1: return CopyTransposed<uint8_t>(loop, range);
      case 2: return CopyTransposed<uint16_t>(loop, range);
      case 4: return CopyTransposed<uint32_t>(loop, range);
      case 8: return CopyTransposed<uint64_t>(loop, range);
      default: return CopyTransposed<Bytes16>(loop, range);
    }
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

void Concat(std::span<const TensorRef> sources, int dim, const TensorRef& dst, Range range) {
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
