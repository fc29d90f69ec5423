// SPDX-License-Identifier: Apache-2.0
#include "kernels/mask.h"

#include <cstring>

namespace reprise::kernels {
namespace {

template <class Word>
void FillWords(const TensorRef& self, const TensorRef& mask, const void* value, Range range) {
  Word fill;
  std::memcpy(&fill, value, sizeof fill);
  ForEachRow(MakeLoop({&self, &mask}), range, [&](char* const* ptrs, const int64_t* strides, int64_t n) {
    const auto* bits = reinterpret_cast<const uint8_t*>(ptrs[1]);
    auto* words = reinterpret_cast<Word*>(ptrs[0]);
    if (strides[1] == 0) {
      if (*bits == 0) return;
      for (int64_t i = 0; i < n; ++i) *reinterpret_cast<Word*>(ptrs[0] + i * strides[0]) = fill;
    } else if (strides[0] == static_cast<int64_t>(sizeof(Word)) && strides[1] == 1) {
      for (int64_t i = 0; i < n; ++i) words[i] = bits[i] != 0 ? fill : words[i];
    } else {
      for (int64_t i = 0; i < n; ++i) {
        if (bits[i * strides[1]] != 0) *reinterpret_cast<Word*>(ptrs[0] + i * strides[0]) = fill;
      }
    }
  });
}

struct Bytes16 {
  uint64_t words[2];
};

}  // namespace

void MaskedFill(const TensorRef& self, const TensorRef& mask, const void* value, Range range) {
  switch (ItemSize(self.dtype)) {
    case 1: return FillWords<uint8_t>(self, mask, value, range);
    case 2: return FillWords<uint16_t>(self, mask, value, range);
    case 4: return FillWords<uint32_t>(self, mask, value, range);
    case 8: return FillWords<uint64_t>(self, mask, value, range);
    default: return FillWords<Bytes16>(self, mask, value, range);
  }
}

void MaskedScatter(const TensorRef& self, const TensorRef& mask, const TensorRef& source) {
  const int64_t item = ItemSize(self.dtype);
  const auto size = static_cast<size_t>(item);
  const Loop from = MakeLoop({&source}, LoopOrder::kRowMajor);
  int64_t used = 0;
  // The row of source that is being used up.
  const char* row = nullptr;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  ForEachRow(MakeLoop({&self, &mask}, LoopOrder::kRowMajor), FullRange(self),
             [&](char* const* ptrs, const int64_t* strides, int64_t n) {
               for (int64_t i = 0; i < n; ++i) {
                 if (ptrs[1][i * strides[1]] == 0) continue;
                 if (used == row_end) {
                   if (used == from.count) return;
                   const int64_t length = std::min(from.sizes[0], from.count - used);
                   ForEachRow(from, {used, used + length},
                              [&](char* const* source_ptrs, const int64_t*, int64_t) { row = source_ptrs[0]; });
                   row_begin = used;
                   row_end = used + length;
                 }
                 std::memcpy(ptrs[0] + i * strides[0], row + (used - row_begin) * from.strides[0][0], size);
                 ++used;
               }
             });
}

}  // namespace reprise::kernels
