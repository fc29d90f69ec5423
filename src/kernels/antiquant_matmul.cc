// SPDX-License-Identifier: Apache-2.0
#include "kernels/antiquant_matmul.h"

#include <cmath>
#include <cstring>

#include "kernels/cast.h"
#include "kernels/simd/matmul_tile.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kCols = kAntiquantColumns;
constexpr int64_t kDepth = 256;  // a multiple of what an element holds
constexpr int64_t kRows = 132;   // of x, converted at a time
constexpr int64_t kRowsInC = 4 * kRows;
constexpr int64_t kLeftStride = kDepth + 16;
// Up to so many rows the numbers of a weight are multiplied where they lie.
constexpr int64_t kFewRows = 16;

const char* At(const TensorRef& ref, int64_t i, int64_t j) {
  const int64_t row = ref.sizes[0] == 1 ? 0 : i * ref.strides[0];
  const int64_t column = ref.sizes[1] == 1 ? 0 : j * ref.strides[1];
  return static_cast<const char*>(ref.data) + (row + column) * ItemSize(ref.dtype);
}

// n elements along dim `dim` as float32, a size of 1 repeated.
void ReadLine(const TensorRef& ref, int64_t i, int64_t j, int dim, int64_t n, float* to) {
  const int64_t stride = ref.sizes[dim] == 1 ? 0 : ref.strides[dim] * ItemSize(ref.dtype);
  FindCast(ref.dtype, DType::kFloat)(At(ref, i, j), stride, reinterpret_cast<char*>(to), sizeof(float), n);
}

int64_t NumbersIn(DType packed) { return 2 * ItemSize(packed); }

// Elements of a packed line, from a multiple of what an element of `type` holds on.
void Unpack(DType type, const char* word, int64_t stride, int64_t n, float* to) {
  const int64_t numbers = NumbersIn(type);
  for (int64_t i = 0; i < n; i += numbers, word += stride * ItemSize(type)) {
    uint32_t bits = 0;
    if (type == DType::kInt32) {
      std::memcpy(&bits, word, sizeof bits);
    } else {
      bits = static_cast<uint8_t>(*word);
    }
    for (int64_t l = 0; l < std::min(numbers, n - i); ++l) {
      // To the top and back, which extends the sign.
      to[i + l] = static_cast<float>(static_cast<int32_t>(bits << (28 - 4 * l)) >> 28);
    }
  }
}

// to[i] = (from[i] + offset) * scale; the steps of the general way, in one.
void Dequantize(const int8_t* from, float offset, float scale, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = (static_cast<float>(from[i]) + offset) * scale;
}
void Dequantize(const int8_t* from, const float* offset, const float* scale, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = (static_cast<float>(from[i]) + offset[i]) * scale[i];
}

// to[l * kCols + j] for rows [k, k + depth) and columns [n, n + cols).
void DequantizeRows(const AntiquantWeight& w, int64_t k, int64_t depth, int64_t n, int64_t cols, float* to) {
  float scale[kCols];
  float offset[kCols] = {};
  int64_t last_group = -1;
  const bool is_plain = w.packing == Packing::kNone && w.weight.dtype == DType::kInt8 && w.weight.strides[1] == 1;
  for (int64_t l = 0; l < depth; ++l) {
    const int64_t group = (k + l) / w.group;
    if (group != last_group) {
      ReadLine(w.scale, group, n, 1, cols, scale);
      if (w.offset.data != nullptr) ReadLine(w.offset, group, n, 1, cols, offset);
      last_group = group;
    }
    float* row = to + l * kCols;
    if (is_plain) {
      Dequantize(reinterpret_cast<const int8_t*>(At(w.weight, k + l, n)), offset, scale, cols, row);
    } else {
      if (w.packing == Packing::kAlongRows) {
        Unpack(w.weight.dtype, At(w.weight, k + l, n / NumbersIn(w.weight.dtype)), w.weight.strides[1], cols, row);
      } else {
        ReadLine(w.weight, k + l, n, 1, cols, row);
      }
      for (int64_t j = 0; j < cols; ++j) row[j] = (row[j] + offset[j]) * scale[j];
    }
    std::fill(row + cols, row + kCols, 0.0F);
  }
}

// to[j * kDepth + l], the other way round.
void DequantizeColumns(const AntiquantWeight& w, int64_t k, int64_t depth, int64_t n, int64_t cols, float* to) {
  for (int64_t j = 0; j < cols; ++j) {
    float* column = to + j * kDepth;
    const bool is_plain = w.packing == Packing::kNone && w.weight.dtype == DType::kInt8 && w.weight.strides[0] == 1;
    if (w.packing == Packing::kAlongColumns) {
      Unpack(w.weight.dtype, At(w.weight, k / NumbersIn(w.weight.dtype), n + j), w.weight.strides[0], depth, column);
    } else if (!is_plain) {
      ReadLine(w.weight, k, n + j, 0, depth, column);
    }
    for (int64_t begin = 0; begin < depth;) {
      const int64_t group = (k + begin) / w.group;
      const int64_t end = std::min(depth, (group + 1) * w.group - k);
      float scale = 0;
      float offset = 0;
      ReadLine(w.scale, group, n + j, 1, 1, &scale);
      if (w.offset.data != nullptr) ReadLine(w.offset, group, n + j, 1, 1, &offset);
      if (is_plain) {
        Dequantize(reinterpret_cast<const int8_t*>(At(w.weight, k + begin, n + j)), offset, scale, end - begin,
                   column + begin);
      } else {
        for (int64_t l = begin; l < end; ++l) column[l] = (column[l] + offset) * scale;
      }
      begin = end;
    }
  }
}

// Adds the products with rows [k, k + depth) of the weight, as they are, to raw[i * kCols + j]. `part` has room for as
// many sums.
void AddRawProducts(const AntiquantWeight& w, const float* left, int64_t rows, int64_t k, int64_t depth, int64_t n,
                    int64_t cols, float* part, float* raw) {
  const bool by_columns = w.weight.strides[0] == 1;
  const simd::StreamBlock<float, int8_t> block = {{left, kLeftStride},
                                                  reinterpret_cast<const int8_t*>(At(w.weight, k, n)),
                                                  w.weight.strides[by_columns ? 1 : 0],
                                                  part,
                                                  kCols,
                                                  rows,
                                                  cols,
                                                  depth,
                                                  false};
  if (by_columns) {
    simd::MultiplyByColumns(block);
  } else {
    simd::MultiplyByRows(block);
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) raw[i * kCols + j] += part[i * kCols + j];
  }
}

bool IsPlain(const AntiquantWeight& w) {
  return w.packing == Packing::kNone && w.weight.dtype == DType::kInt8 &&
         (w.weight.strides[0] == 1 || w.weight.strides[1] == 1);
}

// Whether offsets can be taken out of the sums: no infinity, which they might cancel.
bool IsFinite(const TensorRef& x) {
  float line[kDepth];
  float sum = 0;
  for (int64_t i = 0; i < x.sizes[0]; ++i) {
    for (int64_t k = 0; k < x.sizes[1]; k += kDepth) {
      const int64_t depth = std::min(kDepth, x.sizes[1] - k);
      ReadLine(x, i, k, 1, depth, line);
      for (int64_t l = 0; l < depth; ++l) sum += line[l] * 0.0F;
    }
  }
  return sum == 0;
}

// c = x * weight for columns [n, n + cols): each group's sums of numbers as they are, times its scale.
// `memory`: kFewRows * (kLeftStride + 2 * kCols) floats.
void MultiplyFewRows(const TensorRef& x, const AntiquantWeight& w, int64_t n, int64_t cols, float* memory, float* c) {
  const int64_t rows = x.sizes[0];
  const int64_t k = x.sizes[1];
  float* const left = memory;
  float* const part = left + kFewRows * kLeftStride;
  float* const raw = part + kFewRows * kCols;
  float scale[kCols];
  float offset[kCols] = {};
  std::fill_n(c, rows * kCols, 0.0F);
  for (int64_t begin = 0; begin < k; begin += w.group) {
    const int64_t end = std::min(k, begin + w.group);
    float left_sum[kFewRows] = {};
    std::fill_n(raw, rows * kCols, 0.0F);
    for (int64_t k0 = begin; k0 < end; k0 += kDepth) {
      const int64_t depth = std::min(kDepth, end - k0);
      for (int64_t i = 0; i < rows; ++i) {
        float* const row = left + i * kLeftStride;
        ReadLine(x, i, k0, 1, depth, row);
        for (int64_t l = 0; l < depth; ++l) left_sum[i] += row[l];
      }
      AddRawProducts(w, left, rows, k0, depth, n, cols, part, raw);
    }
    ReadLine(w.scale, begin / w.group, n, 1, cols, scale);
    if (w.offset.data != nullptr) ReadLine(w.offset, begin / w.group, n, 1, cols, offset);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        c[i * kCols + j] += (raw[i * kCols + j] + offset[j] * left_sum[i]) * scale[j];
      }
    }
  }
}

}  // namespace

int64_t AntiquantUnitCount(int64_t columns) { return (columns + kCols - 1) / kCols; }

int64_t AntiquantScratchBytes() {
  return (kRows * kLeftStride + kDepth * kCols + kRowsInC * kCols) * static_cast<int64_t>(sizeof(float));
}

void AntiquantMatMul(const TensorRef& x, const AntiquantWeight& weight, const TensorRef& bias, const TensorRef& out,
                     Range units, void* scratch) {
  float* const left = static_cast<float*>(scratch);
  float* const right = left + kRows * kLeftStride;
  float* const c = right + kDepth * kCols;
  const int64_t m = out.sizes[0];
  const int64_t k = x.sizes[1];
  const int64_t width = simd::PanelWidth(float());
  const bool by_columns = weight.packing == Packing::kAlongColumns ||
                          (weight.packing == Packing::kNone && weight.weight.strides[0] < weight.weight.strides[1]);
  const CastFn store = FindCast(DType::kFloat, out.dtype);
  const bool is_streamed = m <= kFewRows && IsPlain(weight) && (weight.offset.data == nullptr || IsFinite(x));
  float addend[kCols];
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t n = unit * kCols;
    const int64_t cols = std::min(kCols, out.sizes[1] - n);
    for (int64_t m0 = 0; m0 < m; m0 += kRowsInC) {
      const int64_t rows = std::min(kRowsInC, m - m0);
      if (k == 0) std::fill_n(c, rows * kCols, 0.0F);
      if (is_streamed) MultiplyFewRows(x, weight, n, cols, left, c);
      for (int64_t k0 = 0; k0 < k && !is_streamed; k0 += kDepth) {
        const int64_t depth = std::min(kDepth, k - k0);
        if (by_columns) {
          DequantizeColumns(weight, k0, depth, n, cols, right);
        } else {
          DequantizeRows(weight, k0, depth, n, cols, right);
        }
        for (int64_t i = 0; i < rows; i += kRows) {
          const int64_t part = std::min(kRows, rows - i);
          for (int64_t r = 0; r < part; ++r) ReadLine(x, m0 + i + r, k0, 1, depth, left + r * kLeftStride);
          if (by_columns) {
            simd::MultiplyByColumns(simd::StreamBlock<float, float>{
                {left, kLeftStride}, right, kDepth, c + i * kCols, kCols, part, cols, depth, k0 != 0});
          } else {
            simd::MultiplyBlock({left, kLeftStride}, {right, width, kCols}, c + i * kCols, kCols, part,
                                (cols + width - 1) / width * width, depth, k0 != 0);
          }
        }
      }
      if (bias.data != nullptr) {
        const int64_t stride = bias.sizes[0] == 1 ? 0 : bias.strides[0] * ItemSize(bias.dtype);
        FindCast(bias.dtype, DType::kFloat)(static_cast<const char*>(bias.data) + n * stride, stride,
                                            reinterpret_cast<char*>(addend), sizeof(float), cols);
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < cols; ++j) c[i * kCols + j] += addend[j];
        }
      }
      const int64_t item = ItemSize(out.dtype);
      for (int64_t i = 0; i < rows; ++i) {
        store(reinterpret_cast<const char*>(c + i * kCols), sizeof(float),
              static_cast<char*>(out.data) + ((m0 + i) * out.strides[0] + n * out.strides[1]) * item,
              out.strides[1] * item, cols);
      }
    }
  }
}

}  // namespace reprise::kernels
