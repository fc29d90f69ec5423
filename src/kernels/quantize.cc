// SPDX-License-Identifier: Apache-2.0
#include "kernels/quantize.h"

#include <cmath>

#include "kernels/batch.h"
#include "kernels/cast.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kChunk = 512;  // elements in flight; a multiple of kPacked
constexpr int64_t kPacked = 8;   // of 4 bits in an int32

struct Bounds {
  float bottom;
  float top;
};
Bounds BoundsOf(const TensorRef& y) { return y.dtype == DType::kInt8 ? Bounds{-128, 127} : Bounds{-8, 7}; }

// Elements [begin, begin + n) of a row, as float32.
struct FloatRow {
  const char* data;
  int64_t stride;  // bytes
  CastFn cast;

  FloatRow(const TensorRef& ref, const char* begin)
      : data(begin),
        stride(ref.sizes[ref.rank - 1] == 1 ? 0 : ref.strides[ref.rank - 1] * ItemSize(ref.dtype)),
        cast(FindCast(ref.dtype, DType::kFloat)) {}
  void Read(int64_t begin, int64_t n, float* to) const {
    cast(data + begin * stride, stride, reinterpret_cast<char*>(to), sizeof(float), n);
  }
};

// v becomes an integer within the bounds. Clamping first gives the same number and keeps the tricks exact.
void RoundRow(float* v, int64_t n, Bounds bounds, Rounding rounding) {
  for (int64_t i = 0; i < n; ++i) {
    const float value = v[i] < bounds.bottom ? bounds.bottom : v[i];
    const float clamped = value > bounds.top ? bounds.top : value;
    v[i] = clamped == clamped ? clamped : 0.0F;
  }
  switch (rounding) {
    case Rounding::kNearest:
      // Numbers of this size have no bits behind the point.
      for (int64_t i = 0; i < n; ++i) v[i] = (v[i] + 0x1.8p23F) - 0x1.8p23F;
      break;
    case Rounding::kTrunc:
      for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>(static_cast<int32_t>(v[i]));
      break;
    case Rounding::kFloor:
    case Rounding::kCeil: {
      const float step = rounding == Rounding::kFloor ? -1.0F : 1.0F;
      for (int64_t i = 0; i < n; ++i) {
        const auto whole = static_cast<float>(static_cast<int32_t>(v[i]));
        v[i] = whole + ((v[i] - whole) * step > 0 ? step : 0.0F);
      }
      break;
    }
  }
}

void StoreRow(const TensorRef& y, char* row, int64_t begin, int64_t n, const float* v) {
  const int64_t stride = y.strides[y.rank - 1] * ItemSize(y.dtype);
  if (y.dtype == DType::kInt8) {
    int8_t bytes[kChunk];
    for (int64_t i = 0; i < n; ++i) bytes[i] = static_cast<int8_t>(static_cast<int32_t>(v[i]));
    FindCast(DType::kInt8, DType::kInt8)(reinterpret_cast<const char*>(bytes), 1, row + begin * stride, stride, n);
    return;
  }
  for (int64_t i = 0; i < n; i += kPacked) {
    uint32_t word = 0;
    for (int64_t j = 0; j < kPacked; ++j) {
      word |= (static_cast<uint32_t>(static_cast<int32_t>(v[i + j])) & 0xF) << (4 * j);
    }
    std::memcpy(row + (begin + i) / kPacked * stride, &word, sizeof word);
  }
}

// The row of smooth that row `row` of x takes; null: none.
const char* SmoothRow(const TensorRef& smooth, const TensorRef& group_index, int64_t row) {
  const char* first = static_cast<const char*>(smooth.data);
  if (first == nullptr || group_index.data == nullptr) return first;
  const CastFn read = FindCast(group_index.dtype, DType::kInt64);
  const int64_t step = group_index.strides[0] * ItemSize(group_index.dtype);
  for (int64_t e = 0; e < group_index.sizes[0]; ++e) {
    int64_t end = 0;
    read(static_cast<const char*>(group_index.data) + e * step, 0, reinterpret_cast<char*>(&end), 0, 1);
    if (row < end) return first + e * smooth.strides[0] * ItemSize(smooth.dtype);
  }
  return nullptr;
}

}  // namespace

int64_t QuantizeRowCount(const TensorRef& x) { return ElementCount(x) == 0 ? 0 : EntryCount(x, 1); }

void Quantize(const TensorRef& x, const TensorRef& scale, const TensorRef& offset, bool square, Rounding rounding,
              const TensorRef& y, Range rows) {
  const int64_t n = x.sizes[x.rank - 1];
  const Bounds bounds = BoundsOf(y);
  float v[kChunk];
  float factor[kChunk];
  float shift[kChunk];
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const FloatRow from(x, EntryOf(x, 1, x, 1, row));
    const FloatRow scales(scale, EntryOf(scale, 1, x, 1, row));
    char* const to = EntryOf(y, 1, x, 1, row);
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t part = std::min(kChunk, n - begin);
      from.Read(begin, part, v);
      scales.Read(begin, part, factor);
      for (int64_t i = 0; i < part; ++i) v[i] *= factor[i];
      if (square) {
        for (int64_t i = 0; i < part; ++i) v[i] *= factor[i];
      }
      if (offset.data != nullptr) {
        FloatRow(offset, EntryOf(offset, 1, x, 1, row)).Read(begin, part, shift);
        for (int64_t i = 0; i < part; ++i) v[i] += shift[i];
      }
      RoundRow(v, part, bounds, rounding);
      StoreRow(y, to, begin, part, v);
    }
  }
}

void DynamicQuantize(const TensorRef& x, const TensorRef& smooth, const TensorRef& group_index, const TensorRef& y,
                     const TensorRef& scale, const TensorRef& offset, Range rows) {
  const int64_t n = x.sizes[x.rank - 1];
  const Bounds bounds = BoundsOf(y);
  float v[kChunk];
  float factor[kChunk];
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const FloatRow from(x, EntryOf(x, 1, x, 1, row));
    char* const to = EntryOf(y, 1, x, 1, row);
    const char* const smooth_row = SmoothRow(smooth, group_index, row);
    const auto read = [&](int64_t begin, int64_t part) {
      from.Read(begin, part, v);
      if (smooth_row == nullptr) return;
      FloatRow(smooth, smooth_row).Read(begin, part, factor);
      for (int64_t i = 0; i < part; ++i) v[i] *= factor[i];
    };
    // Four at a time, so that no comparison waits for the one before.
    float low[4] = {INFINITY, INFINITY, INFINITY, INFINITY};
    float high[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    bool has_nan = false;
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t part = std::min(kChunk, n - begin);
      read(begin, part);
      int32_t unordered = 0;
      for (int64_t i = 0; i < part; ++i) unordered |= v[i] != v[i] ? 1 : 0;
      has_nan = has_nan || unordered != 0;
      int64_t i = 0;
      for (; i + 4 <= part; i += 4) {
        for (int64_t l = 0; l < 4; ++l) {
          low[l] = v[i + l] < low[l] ? v[i + l] : low[l];
          high[l] = v[i + l] > high[l] ? v[i + l] : high[l];
        }
      }
      for (; i < part; ++i) {
        low[0] = v[i] < low[0] ? v[i] : low[0];
        high[0] = v[i] > high[0] ? v[i] : high[0];
      }
    }
    const float smallest = std::min({low[0], low[1], low[2], low[3]});
    const float largest = std::max({high[0], high[1], high[2], high[3]});
    const bool is_symmetric = offset.data == nullptr;
    float step =
        is_symmetric ? std::max(-smallest, largest) / bounds.top : (largest - smallest) / (bounds.top - bounds.bottom);
    if (has_nan) step = NAN;
    const float zero = is_symmetric || step == 0 ? 0.0F : bounds.top - largest / step;
    std::memcpy(EntryOf(scale, 0, x, 1, row), &step, sizeof step);
    if (!is_symmetric) std::memcpy(EntryOf(offset, 0, x, 1, row), &zero, sizeof zero);
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t part = std::min(kChunk, n - begin);
      if (n > kChunk) read(begin, part);
      if (step == 0 || step != step) {
        std::fill_n(v, part, 0.0F);
      } else {
        for (int64_t i = 0; i < part; ++i) v[i] = v[i] / step + zero;
      }
      RoundRow(v, part, bounds, Rounding::kNearest);
      StoreRow(y, to, begin, part, v);
    }
  }
}

namespace {

constexpr int kPackedOffsetShift = 37;
constexpr uint64_t kPackedMark = uint64_t{1} << 46;
constexpr uint32_t kPackedScaleBits = 0xFFFFE000U;
constexpr int64_t kMostPackedOffset = 255;

bool IsPackedParam(DType type) { return type == DType::kInt64 || type == DType::kUInt64; }

// Elements [begin, begin + n) of a line of one or many.
void ReadParam(const TensorRef& ref, int64_t begin, int64_t n, float* to) {
  const int last = ref.rank - 1;
  const bool repeats = ref.rank == 0 || ref.sizes[last] == 1;
  const int64_t stride = repeats ? 0 : ref.strides[last] * ItemSize(ref.dtype);
  FindCast(ref.dtype, DType::kFloat)(static_cast<const char*>(ref.data) + begin * stride, stride,
                                     reinterpret_cast<char*>(to), sizeof(float), n);
}

void ReadPacked(const TensorRef& ref, int64_t begin, int64_t n, float* scale, float* offset) {
  const bool repeats = ref.rank == 0 || ref.sizes[ref.rank - 1] == 1;
  const int64_t stride = repeats ? 0 : ref.strides[ref.rank - 1] * ItemSize(ref.dtype);
  for (int64_t i = 0; i < n; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(ref.data) + (begin + i) * stride, sizeof word);
    const auto bits = static_cast<uint32_t>(word);
    std::memcpy(scale + i, &bits, sizeof bits);
    // To the top and back, which extends the sign.
    offset[i] = static_cast<float>(static_cast<int64_t>(word << (64 - 46)) >> (64 - 9));
  }
}

}  // namespace

void DequantizeSums(const DequantizeOperands& o, const TensorRef& y, Range rows) {
  const int64_t n = o.sums.sizes[o.sums.rank - 1];
  const int64_t m = o.sums.sizes[o.sums.rank - 2];
  const bool bias_is_whole = o.bias.data != nullptr && o.bias.dtype == DType::kInt32;
  const bool is_packed = IsPackedParam(o.scale.dtype);
  int32_t sums[kChunk];
  int32_t whole[kChunk];
  float v[kChunk];
  float factor[kChunk];
  float shift[kChunk];
  const CastFn copy = FindCast(DType::kInt32, DType::kInt32);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const char* const from = EntryOf(o.sums, 1, o.sums, 1, row);
    char* const to = EntryOf(y, 1, y, 1, row);
    const int64_t stride = y.strides[y.rank - 1] * ItemSize(y.dtype);
    const char* const bias = o.bias.data == nullptr ? nullptr
                             : o.bias.rank == 1     ? static_cast<const char*>(o.bias.data)
                                                    : EntryOf(o.bias, 1, o.sums, 1, row);
    const int64_t bias_stride = bias == nullptr ? 0 : o.bias.strides[o.bias.rank - 1] * ItemSize(o.bias.dtype);
    float of_row = 1;
    if (o.row_scale.data != nullptr) {
      const int64_t at = row % m * (o.row_scale.sizes[0] == 1 ? 0 : o.row_scale.strides[0]);
      FindCast(o.row_scale.dtype, DType::kFloat)(
          static_cast<const char*>(o.row_scale.data) + at * ItemSize(o.row_scale.dtype), 0,
          reinterpret_cast<char*>(&of_row), 0, 1);
    }
    for (int64_t begin = 0; begin < n; begin += kChunk) {
      const int64_t part = std::min(kChunk, n - begin);
      copy(from + begin * o.sums.strides[o.sums.rank - 1] * 4, o.sums.strides[o.sums.rank - 1] * 4,
           reinterpret_cast<char*>(sums), 4, part);
      if (bias_is_whole) {
        copy(bias + begin * bias_stride, bias_stride, reinterpret_cast<char*>(whole), 4, part);
        for (int64_t i = 0; i < part; ++i) {
          sums[i] = static_cast<int32_t>(static_cast<uint32_t>(sums[i]) + static_cast<uint32_t>(whole[i]));
        }
      }
      if (y.dtype == DType::kInt32) {
        copy(reinterpret_cast<const char*>(sums), 4, to + begin * stride, stride, part);
        continue;
      }
      if (is_packed) {
        ReadPacked(o.scale, begin, part, factor, shift);
      } else {
        ReadParam(o.scale, begin, part, factor);
        std::fill_n(shift, part, 0.0F);
      }
      for (int64_t i = 0; i < part; ++i) v[i] = static_cast<float>(sums[i]) * factor[i];
      if (o.row_scale.data != nullptr) {
        for (int64_t i = 0; i < part; ++i) v[i] *= of_row;
      }
      if (bias != nullptr && !bias_is_whole) {
        FindCast(o.bias.dtype, DType::kFloat)(bias + begin * bias_stride, bias_stride, reinterpret_cast<char*>(factor),
                                              sizeof(float), part);
        for (int64_t i = 0; i < part; ++i) v[i] += factor[i];
      }
      if (y.dtype != DType::kInt8) {
        FindCast(DType::kFloat, y.dtype)(reinterpret_cast<const char*>(v), sizeof(float), to + begin * stride, stride,
                                         part);
        continue;
      }
      if (o.offset.data != nullptr) ReadParam(o.offset, begin, part, shift);
      for (int64_t i = 0; i < part; ++i) v[i] += shift[i];
      RoundRow(v, part, BoundsOf(y), Rounding::kNearest);
      StoreRow(y, to, begin, part, v);
    }
  }
}

void PackQuantParam(const TensorRef& scale, const TensorRef& offset, bool rounds, const TensorRef& y, Range range) {
  constexpr uint32_t kHalfOfCut = 0x1000;
  for (int64_t i = range.begin; i < range.end; ++i) {
    float value = 0;
    ReadParam(scale, i, 1, &value);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    if (rounds && std::isfinite(value)) bits += kHalfOfCut;
    uint64_t word = (bits & kPackedScaleBits) | kPackedMark;
    if (offset.data != nullptr) {
      float shift = 0;
      ReadParam(offset, i, 1, &shift);
      const float bounded = std::fmin(std::fmax(std::nearbyint(shift), -256.0F), static_cast<float>(kMostPackedOffset));
      word |= (static_cast<uint64_t>(static_cast<int64_t>(bounded == bounded ? bounded : 0.0F)) & 0x1FF)
              << kPackedOffsetShift;
    }
    std::memcpy(EntryOf(y, 0, y, 0, i), &word, sizeof word);
  }
}

void PackInt4(const TensorRef& x, const TensorRef& y, Range rows) {
  const int64_t words = y.sizes[y.rank - 1];
  const int64_t from_stride = x.strides[x.rank - 1] * 4;
  const int64_t to_stride = y.strides[y.rank - 1] * 4;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const char* from = EntryOf(x, 1, x, 1, row);
    char* const to = EntryOf(y, 1, y, 1, row);
    for (int64_t i = 0; i < words; ++i) {
      uint32_t word = 0;
      for (int64_t j = 0; j < kPacked; ++j, from += from_stride) {
        uint32_t number = 0;
        std::memcpy(&number, from, sizeof number);
        word |= (number & 0xF) << (4 * j);
      }
      std::memcpy(to + i * to_stride, &word, sizeof word);
    }
  }
}

}  // namespace reprise::kernels
