// SPDX-License-Identifier: Apache-2.0
#include "kernels/select.h"

#include <numeric>

#include "kernels/cast.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kBlock = 256;

// Calls fn(flags, ptrs, strides, first, n) for blocks of at most kBlock elements of a part; flags[i] is 0 or 1 for
// element first + i of the loop, whose last operand is tested.
template <class Fn>
void ForEachBlock(const Loop& loop, DType tested, int64_t part, Fn&& fn) {
  const CastFn load = FindCast(tested, DType::kBool);
  const int k = loop.operand_count - 1;
  const Range elements{part * kSelectPart, std::min(loop.count, (part + 1) * kSelectPart)};
  int64_t first = elements.begin;
  uint8_t flags[kBlock];
  ForEachRow(loop, elements, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = std::min(kBlock, n - begin);
      load(ptrs[k] + begin * strides[k], strides[k], reinterpret_cast<char*>(flags), 1, count);
      for (int64_t i = 0; i < count; ++i) flags[i] = flags[i] != 0;
      fn(flags, ptrs[0] + begin * strides[0], strides[0], first, count);
      first += count;
    }
  });
}

template <class Bits>
void CopyMasked(const Loop& loop, DType mask, int64_t part, char* to, int64_t stride) {
  ForEachBlock(loop, mask, part, [&](const uint8_t* flags, const char* src, int64_t src_stride, int64_t, int64_t n) {
    Bits picked[kBlock];
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
      picked[count] = *reinterpret_cast<const Bits*>(src + i * src_stride);
      count += flags[i];
    }
    for (int64_t i = 0; i < count; ++i) *reinterpret_cast<Bits*>(to + i * stride) = picked[i];
    to += count * stride;
  });
}

struct Bits128 {
  uint64_t words[2];
};

}  // namespace

void CountNonZero(const TensorRef& self, int64_t* counts, Range range) {
  const Loop loop = MakeLoop({&self}, LoopOrder::kRowMajor);
  for (int64_t part = range.begin; part < range.end; ++part) {
    int64_t count = 0;
    ForEachBlock(loop, self.dtype, part, [&](const uint8_t* flags, const char*, int64_t, int64_t, int64_t n) {
      int32_t block = 0;
      for (int64_t i = 0; i < n; ++i) block += flags[i];
      count += block;
    });
    counts[part] = count;
  }
}

int64_t TotalOf(const int64_t* counts, int64_t n) { return std::accumulate(counts, counts + n, int64_t{0}); }

void WriteNonZero(const TensorRef& self, const int64_t* counts, const TensorRef& out, int64_t element_stride,
                  int64_t coordinate_stride, Range range) {
  if (range.begin >= range.end || self.rank == 0) return;
  const Loop loop = MakeLoop({&self}, LoopOrder::kRowMajor);
  const CastFn store = FindCast(DType::kInt64, out.dtype);
  const int64_t item = ItemSize(out.dtype);
  const int last = self.rank - 1;
  const int64_t width = self.sizes[last];
  char* to = static_cast<char*>(out.data) + TotalOf(counts, range.begin) * element_stride * item;
  for (int64_t part = range.begin; part < range.end; ++part) {
    // Coordinates of the row along the last dim that the elements are in; it begins at `row`.
    int64_t coordinates[kMaxRank];
    int64_t row = -1;
    ForEachBlock(loop, self.dtype, part, [&](const uint8_t* flags, const char*, int64_t, int64_t first, int64_t n) {
      int64_t places[kBlock];
      int64_t count = 0;
      for (int64_t i = 0; i < n; ++i) {
        places[count] = first + i;
        count += flags[i];
      }
      int64_t columns[kMaxRank][kBlock];
      for (int64_t i = 0; i < count; ++i) {
        if (row < 0 || places[i] >= row + width) {
          int64_t rest = places[i] / width;
          row = rest * width;
          for (int d = last - 1; d >= 0; --d) {
            coordinates[d] = rest % self.sizes[d];
            rest /= self.sizes[d];
          }
        }
        for (int d = 0; d < last; ++d) columns[d][i] = coordinates[d];
        columns[last][i] = places[i] - row;
      }
      for (int d = 0; d <= last; ++d) {
        store(reinterpret_cast<const char*>(columns[d]), sizeof(int64_t), to + d * coordinate_stride * item,
              element_stride * item, count);
      }
      to += count * element_stride * item;
    });
  }
}

void WriteMasked(const TensorRef& self, const TensorRef& mask, const int64_t* counts, const TensorRef& out,
                 Range range) {
  if (range.begin >= range.end) return;
  const Loop loop = MakeLoop({&self, &mask}, LoopOrder::kRowMajor);
  const int64_t stride = out.strides[0] * ItemSize(out.dtype);
  char* to = static_cast<char*>(out.data) + TotalOf(counts, range.begin) * stride;
  for (int64_t part = range.begin; part < range.end; ++part) {
    switch (ItemSize(self.dtype)) {
      case 1: CopyMasked<uint8_t>(loop, mask.dtype, part, to, stride); break;
      case 2: CopyMasked<uint16_t>(loop, mask.dtype, part, to, stride); break;
      case 4: CopyMasked<uint32_t>(loop, mask.dtype, part, to, stride); break;
      case 8: CopyMasked<uint64_t>(loop, mask.dtype, part, to, stride); break;
      default: CopyMasked<Bits128>(loop, mask.dtype, part, to, stride);
    }
    to += counts[part] * stride;
  }
}

}  // namespace reprise::kernels
