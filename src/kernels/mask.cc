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

// Walks a tensor row by row, in row-major order.
class RowCursor {
 public:
  explicit RowCursor(const TensorRef& ref) : loop_(MakeLoop({&ref}, LoopOrder::kRowMajor)) {}

  // Moves to the next row; false behind the last one.
  bool Next() {
    if (begin_ == loop_.count) return false;
    const int64_t n = std::min(loop_.sizes[0], loop_.count - begin_);
    ForEachRow(loop_, {begin_, begin_ + n}, [&](char* const* ptrs, const int64_t*, int64_t) { row_ = ptrs[0]; });
    begin_ += n;
    size_ = n;
    return true;
  }
  const char* row() const { return row_; }
  int64_t size() const { return size_; }
  int64_t stride() const { return loop_.strides[0][0]; }

 private:
  Loop loop_;
  int64_t begin_ = 0;
  const char* row_ = nullptr;
  int64_t size_ = 0;
};

template <class Word>
void ScatterWords(const TensorRef& self, const TensorRef& mask, const TensorRef& source) {
  RowCursor cursor(source);
  const int64_t stride = cursor.stride();
  const char* from = nullptr;
  int64_t left = 0;  // elements of the row
  bool is_over = false;
  ForEachRow(MakeLoop({&self, &mask}, LoopOrder::kRowMajor), FullRange(self),
             [&](char* const* ptrs, const int64_t* strides, int64_t n) {
               for (int64_t i = 0; i < n && !is_over; ++i) {
                 if (ptrs[1][i * strides[1]] == 0) continue;
                 if (left == 0) [[unlikely]] {
                   if (!cursor.Next()) {
                     is_over = true;
                     return;
                   }
                   from = cursor.row();
                   left = cursor.size();
                 }
                 std::memcpy(ptrs[0] + i * strides[0], from, sizeof(Word));
                 from += stride;
                 --left;
               }
             });
}

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
  switch (ItemSize(self.dtype)) {
    case 1: return ScatterWords<uint8_t>(self, mask, source);
    case 2: return ScatterWords<uint16_t>(self, mask, source);
    case 4: return ScatterWords<uint32_t>(self, mask, source);
    case 8: return ScatterWords<uint64_t>(self, mask, source);
    default: return ScatterWords<Bytes16>(self, mask, source);
  }
}

}  // namespace reprise::kernels
