// SPDX-License-Identifier: Apache-2.0
//
// Rows (the last dim) of any view as float32, single numbers, and numbers of few bits.
#pragma once

#include <cmath>

#include "kernels/batch.h"
#include "kernels/cast.h"

namespace reprise::kernels::row_io {

/// Bytes from an element of the last dim to the next; 0 where one element stands for all.
inline int64_t StepOf(const TensorRef& ref) {
  const int last = ref.rank - 1;
  return last < 0 || ref.sizes[last] == 1 ? 0 : ref.strides[last] * ItemSize(ref.dtype);
}

/// n elements of row `row` of `shape` in `ref`, which broadcasts to it, from element `begin` on.
inline void ReadPart(const TensorRef& ref, const TensorRef& shape, int64_t row, int64_t begin, int64_t n, float* to) {
  const char* const from = ref.rank == 0 ? static_cast<const char*>(ref.data) : EntryOf(ref, 1, shape, 1, row);
  const int64_t step = StepOf(ref);
  FindCast(ref.dtype, DType::kFloat)(from + begin * step, step, reinterpret_cast<char*>(to), sizeof(float), n);
}
inline void Read(const TensorRef& ref, int64_t row, int64_t n, float* to) { ReadPart(ref, ref, row, 0, n, to); }

inline void WritePart(const TensorRef& ref, int64_t row, int64_t begin, int64_t n, const float* from) {
  const int64_t step = ref.strides[ref.rank - 1] * ItemSize(ref.dtype);
  FindCast(DType::kFloat, ref.dtype)(reinterpret_cast<const char*>(from), sizeof(float),
                                     EntryOf(ref, 1, ref, 1, row) + begin * step, step, n);
}
inline void Write(const TensorRef& ref, int64_t row, int64_t n, const float* from) { WritePart(ref, row, 0, n, from); }

/// Element i, counted row-major.
inline float Number(const TensorRef& ref, int64_t i) {
  float value = 0;
  FindCast(ref.dtype, DType::kFloat)(EntryOf(ref, 0, ref, 0, i), 0, reinterpret_cast<char*>(&value), 0, 1);
  return value;
}
inline void PutNumber(const TensorRef& ref, int64_t i, float value) {
  FindCast(DType::kFloat, ref.dtype)(reinterpret_cast<const char*>(&value), 0, EntryOf(ref, 0, ref, 0, i), 0, 1);
}
inline int64_t Word(const TensorRef& ref, int64_t i) {
  int64_t word = 0;
  FindCast(ref.dtype, DType::kInt64)(EntryOf(ref, 0, ref, 0, i), 0, reinterpret_cast<char*>(&word), 0, 1);
  return word;
}
inline void PutWord(const TensorRef& ref, int64_t i, int64_t word) {
  FindCast(DType::kInt64, ref.dtype)(reinterpret_cast<const char*>(&word), 0, EntryOf(ref, 0, ref, 0, i), 0, 1);
}

/// What numbers of few bits can hold.
struct IntegerRange {
  float bottom, top;
};

constexpr int64_t kPackedNumbers = 8;  // of 4 bits in an int32

/// \param is_packed  int32 of eight 4-bit numbers, the first in the lowest bits
inline IntegerRange RangeOf(DType type, bool is_packed) {
  if (is_packed) return {-8, 7};
  if (type == DType::kUInt8) return {0, 255};
  if (type == DType::kInt8) return {-128, 127};
  return {-2147483648.0F, 2147483520.0F};
}

/// Nearest integer, ties to even, within the range; NaN becomes 0.
inline float RoundInto(float value, IntegerRange range) {
  const float low = value < range.bottom ? range.bottom : value;
  const float bounded = low > range.top ? range.top : low;
  return bounded == bounded ? std::nearbyint(bounded) : 0.0F;
}

/// Rounds `v`, which is lost, and stores it as n elements of row `row` from `begin` on; packed: begin and n are
/// multiples of eight, and the row has an eighth as many elements.
inline void WriteIntegers(const TensorRef& ref, bool is_packed, int64_t row, int64_t begin, int64_t n, float* v) {
  const IntegerRange range = RangeOf(ref.dtype, is_packed);
  for (int64_t i = 0; i < n; ++i) v[i] = RoundInto(v[i], range);
  if (!is_packed) return WritePart(ref, row, begin, n, v);
  const int64_t step = ref.strides[ref.rank - 1] * ItemSize(ref.dtype);
  char* const to = EntryOf(ref, 1, ref, 1, row) + begin / kPackedNumbers * step;
  for (int64_t i = 0; i < n; i += kPackedNumbers) {
    uint32_t word = 0;
    for (int64_t j = 0; j < kPackedNumbers; ++j) {
      word |= (static_cast<uint32_t>(static_cast<int32_t>(v[i + j])) & 0xF) << (4 * j);
    }
    std::memcpy(to + i / kPackedNumbers * step, &word, sizeof word);
  }
}

/// Rows [begin, end) of each group, from a list of ends or of counts that is clamped to `limit`; a row beyond is -1.
class GroupWalk {
 public:
  /// \param list  integers [groups]; without data: all rows are of group 0
  GroupWalk(const TensorRef& list, bool holds_ends, int64_t limit)
      : list_(list), holds_ends_(holds_ends), limit_(limit), end_(list.data == nullptr ? limit : 0), group_(-1) {
    if (list.data == nullptr) group_ = 0;
  }
  /// \pre rows ascend from call to call
  int64_t GroupOf(int64_t row) {
    while (row >= end_) {
      if (list_.data == nullptr || ++group_ >= list_.sizes[0]) {
        group_ = list_.data == nullptr ? 0 : list_.sizes[0];
        return -1;
      }
      const int64_t number = Word(list_, group_);
      end_ = holds_ends_ ? std::clamp(number, end_, limit_) : end_ + std::clamp<int64_t>(number, 0, limit_ - end_);
    }
    return group_;
  }

 private:
  const TensorRef& list_;
  bool holds_ends_;
  int64_t limit_, end_, group_;
};

}  // namespace reprise::kernels::row_io
