// SPDX-License-Identifier: Apache-2.0
#include "kernels/int8_matmul.h"

#include <algorithm>
#include <cstring>

#include "kernels/batch.h"
#include "kernels/cast.h"
#include "kernels/simd/int8_dot.h"
#include "kernels/simd/int8_unit.h"
#include "kernels/simd/low_bits.h"
#include "kernels/simd/matrix_unit.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kCols = 64;       // of a work item
constexpr int64_t kMostRows = 128;  // that share what is read of the weight
constexpr int64_t kLeftBytes = int64_t{1} << 20;
// Beyond, MatMul does it: its scratch memory has a bound.
constexpr int64_t kMostDepth = int64_t{1} << 18;
// Depth at a time: columns are read in long runs where few rows share them.
constexpr int64_t kFewRows = 8;
constexpr int64_t kLongDepth = 4096;
constexpr int64_t kShortDepth = 1024;
// Columns of sums at a time, by that.
constexpr int64_t kManyCols = 1024;
// Columns whose numbers do not lie back to back are turned before.
constexpr int64_t kTurnedDepth = 512;
constexpr int64_t kTurnedStride = kTurnedDepth + 64;

constexpr int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

int64_t SumCols(int64_t rows) { return rows <= kFewRows ? kManyCols : kCols; }

// Rows of a work item, about the same for all.
int64_t GroupRows(int64_t m, int64_t depth) {
  const int64_t most = std::clamp<int64_t>(kLeftBytes / std::max<int64_t>(1, simd::Int8RowBytes(depth)), 1, kMostRows);
  const int64_t groups = std::max<int64_t>(1, (m + most - 1) / most);
  return std::max<int64_t>(1, (m + groups - 1) / groups);
}

// Whether the matrix unit multiplies groups of so many rows: it wants columns as tiles, which few rows do not repay.
bool UsesUnit(int64_t group_rows) { return group_rows > kFewRows && simd::HasMatrixUnit(); }

class Int8Product {
 public:
  Int8Product(const TensorRef& a, const TensorRef& b, const TensorRef& out, void* scratch,
              const DequantizeOperands* factors, const MatMulEpilogue* epilogue)
      : a_(a),
        b_(b),
        out_(out),
        factors_(factors),
        epilogue_(epilogue),
        m_(out.sizes[out.rank - 2]),
        n_(out.sizes[out.rank - 1]),
        k_(a.sizes[a.rank - 1]),
        group_rows_(GroupRows(m_, k_)),
        sum_cols_(SumCols(group_rows_)),
        uses_unit_(UsesUnit(group_rows_)),
        left_stride_(LeftStride(k_, uses_unit_)) {
    const int64_t rows = RoomForRows(group_rows_, uses_unit_);
    left_ = static_cast<char*>(scratch);
    sums_ = reinterpret_cast<int32_t*>(left_ + rows * left_stride_);
    tiles_ = reinterpret_cast<int8_t*>(sums_ + rows * sum_cols_);
    turned_ = tiles_ + (uses_unit_ ? kCols * kShortDepth : 0);
    line_ = turned_ + kCols * kTurnedStride;
    reads_columns_ = b.strides[b.rank - 2] == 1 || k_ == 1;
  }

  static int64_t ScratchBytes(int64_t m, int64_t k) {
    const int64_t rows = GroupRows(m, k);
    const bool uses_unit = UsesUnit(rows);
    return RoomForRows(rows, uses_unit) *
               (LeftStride(k, uses_unit) + SumCols(rows) * static_cast<int64_t>(sizeof(int32_t))) +
           (uses_unit ? kCols * kShortDepth : 0) + kCols * kTurnedStride + RoundUp(k, 64);
  }

  void Run(Range range) {
    const int64_t col_units = (n_ + kCols - 1) / kCols;
    const int64_t groups = (m_ + group_rows_ - 1) / group_rows_;
    int64_t known = -1;
    for (int64_t unit = range.begin; unit < range.end;) {
      const int64_t n0 = unit % col_units * kCols;
      const int64_t units = std::min({range.end - unit, col_units - unit % col_units, sum_cols_ / kCols});
      const int64_t cols = std::min(units * kCols, n_ - n0);
      const int64_t place = unit / col_units;  // batch and group
      const int64_t batch = place / groups;
      const int64_t m0 = place % groups * group_rows_;
      const int64_t rows = std::min(group_rows_, m_ - m0);
      if (place != known) PrepareLeft(EntryOf(a_, 2, out_, 2, batch), m0, rows);
      known = place;
      for (int64_t j = 0; j < cols; j += kCols) {
        Multiply(EntryOf(b_, 2, out_, 2, batch), rows, n0 + j, std::min(kCols, cols - j), sums_ + j);
      }
      Store(batch, m0, rows, n0, cols);
      unit += units;
    }
  }

 private:
  // Tiles of the matrix unit are read and written whole.
  static int64_t RoomForRows(int64_t rows, bool uses_unit) {
    return uses_unit ? RoundUp(rows, simd::kInt8TileRows) : rows;
  }
  static int64_t LeftStride(int64_t depth, bool uses_unit) {
    return uses_unit ? RoundUp(depth, simd::kInt8TileDepth) : simd::Int8RowBytes(depth);
  }

  void PrepareLeft(const char* a, int64_t m0, int64_t rows) {
    const int64_t depth_stride = a_.strides[a_.rank - 1];
    for (int64_t i = 0; i < rows; ++i) {
      const auto* row = reinterpret_cast<const int8_t*>(a) + (m0 + i) * a_.strides[a_.rank - 2];
      if (depth_stride != 1) {
        for (int64_t k = 0; k < k_; ++k) line_[k] = row[k * depth_stride];
        row = line_;
      }
      char* const to = left_ + i * left_stride_;
      if (uses_unit_) {
        std::memcpy(to, row, static_cast<size_t>(k_));
        std::memset(to + k_, 0, static_cast<size_t>(left_stride_ - k_));
      } else {
        simd::PrepareInt8Row(row, k_, to);
      }
    }
  }

  void Multiply(const char* b, int64_t rows, int64_t n0, int64_t cols, int32_t* sums) {
    for (int64_t i = 0; k_ == 0 && i < rows; ++i) std::fill_n(sums + i * sum_cols_, cols, 0);
    const int64_t step = !reads_columns_ ? kTurnedDepth : rows <= kFewRows ? kLongDepth : kShortDepth;
    const int64_t depth_stride = b_.strides[b_.rank - 2];
    const int64_t col_stride = b_.strides[b_.rank - 1];
    for (int64_t k0 = 0; k0 < k_; k0 += step) {
      const int64_t depth = std::min(step, k_ - k0);
      const auto* right = reinterpret_cast<const int8_t*>(b) + k0 * depth_stride + n0 * col_stride;
      int64_t right_stride = col_stride;
      if (!reads_columns_) {
        Turn(right, depth_stride, col_stride, depth, cols);
        right = turned_;
        right_stride = kTurnedStride;
      }
      if (uses_unit_) {
        simd::PackInt8Tiles(right, right_stride, cols, depth, tiles_);
        simd::MultiplyInt8Tiles({reinterpret_cast<const int8_t*>(left_) + k0, left_stride_, tiles_, sums, sum_cols_,
                                 rows, cols, depth, k0 != 0});
        continue;
      }
      // k0 is a multiple of 64 numbers, whose bytes a prepared row tells.
      simd::MultiplyInt8({left_ + simd::Int8RowBytes(k0), left_stride_, right, right_stride, sums, sum_cols_, rows,
                          cols, depth, k0 != 0});
    }
  }

  // Columns of `depth` numbers back to back.
  void Turn(const int8_t* right, int64_t depth_stride, int64_t col_stride, int64_t depth, int64_t cols) {
    if (col_stride == 1) {
      simd::TransposeBytes(reinterpret_cast<const uint8_t*>(right), depth_stride, depth, cols,
                           reinterpret_cast<uint8_t*>(turned_), kTurnedStride);
      return;
    }
    for (int64_t j = 0; j < cols; ++j) {
      for (int64_t k = 0; k < depth; ++k) turned_[j * kTurnedStride + k] = right[k * depth_stride + j * col_stride];
    }
  }

  // A window of a tensor of the shape of out, sizes of 1 repeated; of lines of columns only the columns.
  TensorRef Window(TensorRef ref, int64_t batch, int64_t m0, int64_t rows, int64_t n0, int64_t cols) const {
    if (ref.data == nullptr || ref.rank == 0) return ref;
    const int last = ref.rank - 1;
    const int64_t item = ItemSize(ref.dtype);
    char* at = static_cast<char*>(ref.data);
    if (ref.rank >= 2) {
      at = EntryOf(ref, 2, out_, 2, batch);
      TensorRef matrix = ref;
      matrix.rank = 2;
      for (int d = 0; d < 2; ++d) {
        matrix.sizes[d] = ref.sizes[ref.rank - 2 + d];
        matrix.strides[d] = ref.strides[ref.rank - 2 + d];
      }
      if (matrix.sizes[0] != 1) {
        at += m0 * matrix.strides[0] * item;
        matrix.sizes[0] = rows;
      }
      if (matrix.sizes[1] != 1) {
        at += n0 * matrix.strides[1] * item;
        matrix.sizes[1] = cols;
      }
      matrix.data = at;
      return matrix;
    }
    if (ref.sizes[last] != 1) {
      ref.data = at + n0 * ref.strides[last] * item;
      ref.sizes[last] = cols;
    }
    return ref;
  }

  void Store(int64_t batch, int64_t m0, int64_t rows, int64_t n0, int64_t cols) {
    TensorRef y = Window(out_, batch, m0, rows, n0, cols);
    y.sizes[0] = rows;
    y.sizes[1] = cols;
    if (factors_ == nullptr) {
      if (epilogue_ != nullptr) Finish(Window(epilogue_->addend, batch, m0, rows, n0, cols), rows, cols);
      for (int64_t i = 0; i < rows; ++i) {
        auto* const to = static_cast<int32_t*>(y.data) + i * y.strides[0];
        for (int64_t j = 0; j < cols; ++j) to[j * y.strides[1]] = sums_[i * sum_cols_ + j];
      }
      return;
    }
    DequantizeOperands part = *factors_;
    part.sums = y;
    part.sums.data = sums_;
    part.sums.dtype = DType::kInt32;
    part.sums.strides[0] = sum_cols_;
    part.sums.strides[1] = 1;
    part.scale = Window(factors_->scale, batch, m0, rows, n0, cols);
    part.offset = Window(factors_->offset, batch, m0, rows, n0, cols);
    part.bias = Window(factors_->bias, batch, m0, rows, n0, cols);
    if (part.row_scale.data != nullptr && part.row_scale.sizes[0] != 1) {
      part.row_scale.data =
          static_cast<char*>(part.row_scale.data) + m0 * part.row_scale.strides[0] * ItemSize(part.row_scale.dtype);
      part.row_scale.sizes[0] = rows;
    }
    DequantizeSums(part, y, {0, rows});
  }

  // alpha * sum + beta * addend.
  void Finish(const TensorRef& addend, int64_t rows, int64_t cols) {
    const auto alpha = epilogue_->alpha.As<uint32_t>();
    const auto beta = epilogue_->beta.As<uint32_t>();
    uint32_t line[kManyCols] = {};
    for (int64_t i = 0; i < rows; ++i) {
      if (addend.data != nullptr) {
        const int64_t item = ItemSize(addend.dtype);
        const int64_t row = addend.sizes[0] == 1 ? 0 : i * addend.strides[0];
        FindCast(addend.dtype, DType::kInt32)(static_cast<const char*>(addend.data) + row * item,
                                              addend.sizes[1] == 1 ? 0 : addend.strides[1] * item,
                                              reinterpret_cast<char*>(line), sizeof(int32_t), cols);
      }
      int32_t* const sums = sums_ + i * sum_cols_;
      for (int64_t j = 0; j < cols; ++j) {
        sums[j] = static_cast<int32_t>(alpha * static_cast<uint32_t>(sums[j]) + beta * line[j]);
      }
    }
  }

  const TensorRef& a_;
  const TensorRef& b_;
  const TensorRef& out_;
  const DequantizeOperands* factors_;
  const MatMulEpilogue* epilogue_;
  const int64_t m_, n_, k_, group_rows_, sum_cols_;
  const bool uses_unit_;
  const int64_t left_stride_;
  bool reads_columns_ = false;
  char* left_;
  int32_t* sums_;
  int8_t* tiles_;
  int8_t* turned_;
  int8_t* line_;
};

}  // namespace

bool IsInt8Product(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out) {
  return a.dtype == DType::kInt8 && b.dtype == DType::kInt8 && compute == DType::kInt32 && out.dtype == DType::kInt32 &&
         a.sizes[a.rank - 1] <= kMostDepth;
}

int64_t Int8MatMulUnitCount(const TensorRef& out, int64_t depth) {
  const int64_t m = out.sizes[out.rank - 2];
  const int64_t rows = GroupRows(m, depth);
  return EntryCount(out, 2) * ((m + rows - 1) / rows) * ((out.sizes[out.rank - 1] + kCols - 1) / kCols);
}

int64_t Int8MatMulScratchBytes(const TensorRef& out, int64_t depth) {
  return Int8Product::ScratchBytes(out.sizes[out.rank - 2], depth);
}

void Int8MatMul(const TensorRef& a, const TensorRef& b, const TensorRef& out, Range range, void* scratch,
                const MatMulEpilogue* epilogue) {
  if (range.begin < range.end) Int8Product(a, b, out, scratch, nullptr, epilogue).Run(range);
}

void Int8MatMul(const TensorRef& a, const TensorRef& b, const DequantizeOperands& factors, const TensorRef& out,
                Range range, void* scratch) {
  if (range.begin < range.end) Int8Product(a, b, out, scratch, &factors, nullptr).Run(range);
}

}  // namespace reprise::kernels
