// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include <cstring>

#include "kernels/arithmetic.h"
#include "kernels/batch.h"
#include "kernels/cast.h"
#include "kernels/simd/matmul_tile.h"

namespace reprise::kernels {
namespace {

using simd::kTileRows;
using simd::LeftRows;
using simd::RightPanels;

// Block sizes in elements. A block of the left operand (132 x 256) and one
// panel of the right (256 x 16) are read over and over: second- and first-level
// cache. kBlockRows is a multiple of the tile height, kBlockCols of any width.
constexpr int64_t kBlockRows = 132;
constexpr int64_t kBlockCols = 256;
constexpr int64_t kBlockDepth = 256;
// Row blocks that share one packing of the right operand.
constexpr int64_t kGroup = 4;
// Rows of a packed left operand are this much longer than its depth, so that they lie in different cache sets.
constexpr int64_t kLeftGap = 16;
// A right operand that takes less than this is read where it lies: the first-level cache holds it.
constexpr int64_t kInPlaceBytes = 32 << 10;
// Lanes that packing reads at a time from an operand contiguous in depth.
constexpr int64_t kLines = 8;

// Up to so many rows the right operand is read where it lies, once: packing it would cost more than it saves.
constexpr int64_t kFewRows = 16;
// Columns of a work item then, by layout; rows are read in long runs, longer where c is a single row.
constexpr int64_t kStreamByColumns = 64;
constexpr int64_t kStreamByRows = 1024;
constexpr int64_t kStreamByRowsOfOne = 2048;
// Depth at a time, for columns that are contiguous in it. By rows it is kBlockDepth.
constexpr int64_t kStreamDepth = 4096;

constexpr int64_t DivideUp(int64_t n, int64_t by) { return (n + by - 1) / by; }
constexpr int64_t RoundUp(int64_t n, int64_t to) { return DivideUp(n, to) * to; }

// ---- The block product for types without a vector body ----

template <class T>
int64_t PanelWidthOf() {
  if constexpr (std::is_floating_point_v<T>)
    return simd::PanelWidth(T());
  else
    return 8;
}

template <class T>
void MultiplyBlock(LeftRows<T> left, RightPanels<T> right, T* c, int64_t c_stride, int64_t rows, int64_t cols,
                   int64_t depth, bool accumulates) {
  if constexpr (std::is_floating_point_v<T>) {
    simd::MultiplyBlock(left, right, c, c_stride, rows, cols, depth, accumulates);
  } else {
    constexpr int64_t kWidth = 8;
    for (int64_t j = 0; j < cols; j += kWidth) {
      for (int64_t i = 0; i < rows; ++i) {
        const T* a = left.data + i * left.row_stride;
        const T* b = right.data + j / kWidth * right.panel_stride;
        T sum[kWidth] = {};
        for (int64_t k = 0; k < depth; ++k) {
          const T value = a[k];
          for (int64_t l = 0; l < kWidth; ++l) {
            sum[l] = AddValue(sum[l], MulValue(value, b[k * right.row_stride + l]));
          }
        }
        T* row = c + i * c_stride + j;
        for (int64_t l = 0; l < kWidth; ++l) row[l] = accumulates ? AddValue(row[l], sum[l]) : sum[l];
      }
    }
  }
}

// ---- The problem ----

// How a product is computed.
enum class Way : uint8_t {
  kTiles,    // packed panels, tiles of out in registers
  kColumns,  // few rows; columns of the right operand are contiguous
  kRows,     // few rows; its rows are
};

void SwapLast(TensorRef& ref) {
  std::swap(ref.sizes[ref.rank - 1], ref.sizes[ref.rank - 2]);
  std::swap(ref.strides[ref.rank - 1], ref.strides[ref.rank - 2]);
}

bool IsStreamed(DType compute, DType right) {
  switch (compute) {
    case DType::kFloat:
    case DType::kFloat16:
    case DType::kBFloat16: return right == DType::kFloat || right == DType::kFloat16 || right == DType::kBFloat16;
    case DType::kDouble: return right == DType::kDouble;
    default: return false;
  }
}

struct Problem {
  TensorRef a, b, out;
  bool is_turned;  // out^T = b^T x a^T is computed, whose left operand has few rows
  int64_t m, n, k, batch;
  Way way = Way::kTiles;
  int64_t unit_cols = kBlockCols;
  int64_t row_blocks, col_blocks;

  Problem(const TensorRef& left, const TensorRef& right, DType compute, const TensorRef& result)
      : a(left), b(right), out(result) {
    const int64_t rows = out.sizes[out.rank - 2];
    const int64_t cols = out.sizes[out.rank - 1];
    is_turned = cols < rows && cols <= kFewRows;
    if (is_turned) {
      std::swap(a, b);
      SwapLast(a);
      SwapLast(b);
      SwapLast(out);
    }
    m = out.sizes[out.rank - 2];
    n = out.sizes[out.rank - 1];
    k = a.sizes[a.rank - 1];
    batch = EntryCount(out, 2);
    if (m <= kFewRows && IsStreamed(compute, b.dtype)) {
      if (b.strides[b.rank - 2] == 1 || k == 1) {
        way = Way::kColumns;
        unit_cols = kStreamByColumns;
      } else if (b.strides[b.rank - 1] == 1 || n == 1) {
        way = Way::kRows;
        unit_cols = m == 1 ? kStreamByRowsOfOne : kStreamByRows;
      }
    }
    row_blocks = way == Way::kTiles ? DivideUp(m, kBlockRows) : std::min<int64_t>(m, 1);
    col_blocks = DivideUp(n, unit_cols);
  }
  int64_t units() const { return batch * row_blocks * col_blocks; }
};

// Where the three matrices of one batch entry begin.
struct Matrices {
  const char* a;
  const char* b;
  char* out;
};

// A block of an operand seen by the packing: lanes (rows of a, columns of b) by
// depth; strides in bytes.
struct Block {
  const char* data;
  int64_t lane_stride;
  int64_t depth_stride;
  CastFn cast;
};

// dst[j * dst_stride + i] = src[i * src_stride + j]
template <class T>
void Transpose(const T* src, int64_t src_stride, int64_t rows, int64_t cols, T* dst, int64_t dst_stride) {
  if constexpr (std::is_same_v<T, float>) {
    simd::Transpose(src, src_stride, rows, cols, dst, dst_stride);
  } else {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) dst[j * dst_stride + i] = src[i * src_stride + j];
    }
  }
}

// Copies a block to dst[lane * row_stride + k]; `line` is scratch, see Layout.
template <class T>
void PackRows(const Block& block, int64_t lanes, int64_t depth, T* dst, int64_t row_stride, T* line) {
  constexpr int64_t kItem = sizeof(T);
  if (block.depth_stride <= block.lane_stride || lanes == 1) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      block.cast(block.data + lane * block.lane_stride, block.depth_stride,
                 reinterpret_cast<char*>(dst + lane * row_stride), kItem, depth);
    }
    return;
  }
  for (int64_t k = 0; k < depth; k += kLines) {
    const int64_t count = std::min(kLines, depth - k);
    for (int64_t l = 0; l < count; ++l) {
      block.cast(block.data + (k + l) * block.depth_stride, block.lane_stride,
                 reinterpret_cast<char*>(line + l * kBlockDepth), kItem, lanes);
    }
    Transpose(line, kBlockDepth, count, lanes, dst + k, row_stride);
  }
}

// Rearranges a block into panels of `width` lanes: dst[(lane / width) * depth *
// width + k * width + lane % width], missing lanes zero. `line` is scratch, see Layout.
template <class T>
void PackPanels(const Block& block, int64_t lanes, int64_t depth, int64_t width, T* dst, T* line) {
  constexpr int64_t kItem = sizeof(T);
  const int64_t padded = RoundUp(lanes, width);
  if (block.lane_stride <= block.depth_stride || depth == 1) {
    for (int64_t k = 0; k < depth; ++k) {
      block.cast(block.data + k * block.depth_stride, block.lane_stride, reinterpret_cast<char*>(line), kItem, lanes);
      std::fill(line + lanes, line + padded, T{});
      for (int64_t lane = 0; lane < padded; lane += width) {
        std::copy_n(line + lane, width, dst + lane * depth + k * width);
      }
    }
    return;
  }
  // Lanes are contiguous in depth: read a few at a time and exchange rows and columns.
  for (int64_t lane = 0; lane < padded; lane += kLines) {
    const int64_t count = std::min(kLines, padded - lane);
    for (int64_t l = 0; l < count; ++l) {
      T* to = line + l * kBlockDepth;
      if (lane + l < lanes) {
        block.cast(block.data + (lane + l) * block.lane_stride, block.depth_stride, reinterpret_cast<char*>(to), kItem,
                   depth);
      } else {
        std::fill_n(to, depth, T{});
      }
    }
    // Panels are narrower than kLines on some processors.
    for (int64_t l = 0; l < count; l += width) {
      Transpose(line + l * kBlockDepth, kBlockDepth, std::min(width, count - l), depth,
                dst + (lane + l) / width * width * depth + (lane + l) % width, width);
    }
  }
}

// ---- The product in accumulation type T ----

// Scratch memory, in elements of T.
template <class T>
struct Layout {
  int64_t width = PanelWidthOf<T>();
  int64_t left_stride = 0;
  int64_t left = 0, right = 0, c, c_stride, line;

  explicit Layout(const Problem& p) {
    if (p.way == Way::kTiles) {
      const int64_t rows = RoundUp(std::min(p.m, kBlockRows), kTileRows);
      const int64_t depth = std::min(p.k, kBlockDepth);
      c_stride = RoundUp(std::min(p.n, kBlockCols), width);
      left_stride = depth + kLeftGap;
      left = RoundUp(rows * left_stride, 16);
      right = RoundUp(c_stride * depth, 16);
      c = RoundUp(std::min(p.row_blocks, kGroup) * rows * c_stride, 16);
      line = kLines * kBlockDepth;
    } else {
      c_stride = RoundUp(std::min(p.n, p.unit_cols), 16);
      left_stride = RoundUp(std::min(p.k, p.way == Way::kColumns ? kStreamDepth : kBlockDepth), 16);
      left = p.m * left_stride;
      c = p.m * c_stride;
      right = p.way == Way::kRows ? c : 0;  // the sums of one block of the depth
      line = std::max(kLines * kBlockDepth, c_stride);
    }
  }

  int64_t Bytes() const { return (left + right + c + line) * static_cast<int64_t>(sizeof(T)); }
};

template <class T>
class Product {
 public:
  Product(const Problem& problem, DType compute, void* scratch, const MatMulEpilogue* epilogue)
      : problem_(problem),
        a_(problem.a),
        b_(problem.b),
        out_(problem.out),
        layout_(problem_),
        cast_a_(FindCast(a_.dtype, DTypeOf<T>())),
        cast_b_(FindCast(b_.dtype, DTypeOf<T>())),
        store_(DTypeOf<T>(), std::is_unsigned_v<T> ? compute : DTypeOf<T>(), out_.dtype) {
    left_ = static_cast<T*>(scratch);
    right_ = left_ + layout_.left;
    c_ = right_ + layout_.right;
    line_ = c_ + layout_.c;
    // Vector bodies write whole panels.
    writes_out_ = std::is_floating_point_v<T> && epilogue == nullptr && out_.dtype == DTypeOf<T>() &&
                  out_.strides[out_.rank - 1] == 1 &&
                  (problem.way == Way::kTiles ? problem.n % layout_.width == 0 : problem.way == Way::kColumns);
    if (epilogue == nullptr) return;
    has_epilogue_ = true;
    alpha_ = epilogue->alpha.As<T>();
    beta_ = epilogue->beta.As<T>();
    addend_ = epilogue->addend;
    if (addend_.data == nullptr) return;
    if (problem.is_turned) SwapLast(addend_);
    read_addend_ = RowReader(addend_.dtype, std::is_unsigned_v<T> ? compute : DTypeOf<T>(), DTypeOf<T>());
    for (int d = 0; d < addend_.rank; ++d) {
      if (addend_.sizes[d] == 1) addend_.strides[d] = 0;
    }
  }

  void Run(Range range) {
    int64_t unit = range.begin;
    while (unit < range.end) {
      const int64_t row_block = unit % problem_.row_blocks;
      const int64_t column = unit / problem_.row_blocks;
      const int64_t batch = column / problem_.col_blocks;
      const int64_t n0 = column % problem_.col_blocks * problem_.unit_cols;
      const Matrices at = {EntryOf(a_, 2, out_, 2, batch), EntryOf(b_, 2, out_, 2, batch),
                           EntryOf(out_, 2, out_, 2, batch)};
      const int64_t cols = std::min(problem_.unit_cols, problem_.n - n0);
      if (problem_.way == Way::kTiles) {
        const int64_t group = std::min({range.end - unit, problem_.row_blocks - row_block, kGroup});
        const int64_t m0 = row_block * kBlockRows;
        RunGroup(at, batch, m0, std::min(group * kBlockRows, problem_.m - m0), n0, cols);
        unit += group;
      } else {
        RunStream(at, batch, n0, cols);
        ++unit;
      }
    }
  }

 private:
  // `rows` rows from m0 on, of columns n0 to n0 + cols.
  void RunGroup(const Matrices& at, int64_t batch, int64_t m0, int64_t rows, int64_t n0, int64_t cols) {
    T* c = c_;
    int64_t c_stride = layout_.c_stride;
    if (writes_out_) {
      c_stride = out_.strides[out_.rank - 2];
      c = reinterpret_cast<T*>(at.out) + m0 * c_stride + n0;
    }
    if (problem_.k == 0) {
      for (int64_t i = 0; i < rows; ++i) std::fill_n(c + i * c_stride, cols, T{});
    }
    for (int64_t k0 = 0; k0 < problem_.k; k0 += kBlockDepth) {
      const int64_t depth = std::min(kBlockDepth, problem_.k - k0);
      const Block right = RightBlock(at.b, k0, n0);
      const int64_t in_place = InPlaceCols(cols);
      if (in_place < cols) {
        Block rest = right;
        rest.data += in_place * right.lane_stride;
        PackPanels(rest, cols - in_place, depth, layout_.width, right_, line_);
      }
      for (int64_t i = 0; i < rows; i += kBlockRows) {
        const int64_t block_rows = std::min(kBlockRows, rows - i);
        const LeftRows<T> left = Left(at.a, m0 + i, k0, block_rows, depth);
        Multiply(left, right, in_place, cols, c + i * c_stride, c_stride, block_rows, depth, k0 != 0);
      }
    }
    if (has_epilogue_) Finish(batch, m0, n0, rows, cols);
    if (!writes_out_) Store(at.out, m0, n0, rows, cols);
  }

  // All rows of columns n0 to n0 + cols, the right operand read where it lies.
  void RunStream(const Matrices& at, int64_t batch, int64_t n0, int64_t cols) {
    if constexpr (std::is_floating_point_v<T>) {
      T* c = c_;
      int64_t c_stride = layout_.c_stride;
      if (writes_out_) {
        c_stride = out_.strides[out_.rank - 2];
        c = reinterpret_cast<T*>(at.out) + n0;
      }
      if (problem_.k == 0) {
        for (int64_t i = 0; i < problem_.m; ++i) std::fill_n(c + i * c_stride, cols, T{});
      }
      const bool by_rows = problem_.way == Way::kRows;
      const int64_t step = by_rows ? kBlockDepth : kStreamDepth;
      for (int64_t k0 = 0; k0 < problem_.k; k0 += step) {
        const int64_t depth = std::min(step, problem_.k - k0);
        const LeftRows<T> left = Left(at.a, 0, k0, problem_.m, depth);
        const char* const right = RightBlock(at.b, k0, n0).data;
        const bool is_first = k0 == 0;
        T* const sums = by_rows && !is_first ? right_ : c;
        if constexpr (std::is_same_v<T, double>) {
          Stream<double>(left, right, sums, c_stride, cols, depth, !is_first);
        } else if (b_.dtype == DType::kFloat) {
          Stream<float>(left, right, sums, c_stride, cols, depth, !is_first);
        } else if (b_.dtype == DType::kFloat16) {
          Stream<Half>(left, right, sums, c_stride, cols, depth, !is_first);
        } else {
          Stream<BFloat16>(left, right, sums, c_stride, cols, depth, !is_first);
        }
        if (sums == c) continue;
        for (int64_t i = 0; i < problem_.m; ++i) {
          for (int64_t j = 0; j < cols; ++j) c[i * c_stride + j] += sums[i * c_stride + j];
        }
      }
      if (has_epilogue_) Finish(batch, 0, n0, problem_.m, cols);
      if (!writes_out_) Store(at.out, 0, n0, problem_.m, cols);
    }
  }

  template <class B>
  void Stream(LeftRows<T> left, const char* right, T* c, int64_t c_stride, int64_t cols, int64_t depth,
              bool accumulates) {
    const bool by_rows = problem_.way == Way::kRows;
    const simd::StreamBlock<T, B> block = {left,
                                           reinterpret_cast<const B*>(right),
                                           b_.strides[by_rows ? b_.rank - 2 : b_.rank - 1],
                                           c,
                                           c_stride,
                                           problem_.m,
                                           cols,
                                           depth,
                                           accumulates && !by_rows};
    if (by_rows) {
      simd::MultiplyByRows(block);
    } else {
      simd::MultiplyByColumns(block);
    }
  }

  // The sums in c_ become alpha * sum + beta * addend.
  void Finish(int64_t batch, int64_t m0, int64_t n0, int64_t rows, int64_t cols) {
    const int64_t item = ItemSize(addend_.dtype);
    const char* const from = addend_.data == nullptr ? nullptr : EntryOf(addend_, 2, out_, 2, batch);
    for (int64_t i = 0; i < rows; ++i) {
      T* row = c_ + i * layout_.c_stride;
      if (from == nullptr) {
        for (int64_t j = 0; j < cols; ++j) row[j] = MulValue(alpha_, row[j]);
        continue;
      }
      const int64_t row_stride = addend_.strides[addend_.rank - 2] * item;
      const int64_t col_stride = addend_.strides[addend_.rank - 1] * item;
      read_addend_.Read(from + (m0 + i) * row_stride + n0 * col_stride, col_stride, reinterpret_cast<char*>(line_),
                        sizeof(T), cols);
      for (int64_t j = 0; j < cols; ++j) row[j] = AddValue(MulValue(alpha_, row[j]), MulValue(beta_, line_[j]));
    }
  }

  void Multiply(LeftRows<T> left, const Block& right, int64_t in_place, int64_t cols, T* c, int64_t c_stride,
                int64_t rows, int64_t depth, bool accumulates) {
    const int64_t width = layout_.width;
    if (in_place > 0) {
      const RightPanels<T> panels = {reinterpret_cast<const T*>(right.data), width,
                                     right.depth_stride / static_cast<int64_t>(sizeof(T))};
      MultiplyBlock(left, panels, c, c_stride, rows, in_place, depth, accumulates);
    }
    if (in_place < cols) {
      const RightPanels<T> panels = {right_, width * depth, width};
      MultiplyBlock(left, panels, c + in_place, c_stride, rows, RoundUp(cols - in_place, width), depth, accumulates);
    }
  }

  // Columns of the block that can be read without packing.
  int64_t InPlaceCols(int64_t cols) const {
    const bool is_plain = b_.dtype == DTypeOf<T>() && b_.strides[b_.rank - 1] == 1;
    const int64_t bytes = problem_.k * b_.strides[b_.rank - 2] * static_cast<int64_t>(sizeof(T));
    if (!is_plain || bytes > kInPlaceBytes) return 0;
    return cols / layout_.width * layout_.width;
  }

  // The left operand where it lies, or a copy.
  LeftRows<T> Left(const char* a, int64_t m0, int64_t k0, int64_t rows, int64_t depth) {
    const int64_t item = ItemSize(a_.dtype);
    const int64_t row_stride = a_.strides[a_.rank - 2];
    const int64_t depth_stride = a_.strides[a_.rank - 1];
    const char* const begin = a + (m0 * row_stride + k0 * depth_stride) * item;
    if (a_.dtype == DTypeOf<T>() && (depth_stride == 1 || depth == 1)) {
      return {reinterpret_cast<const T*>(begin), row_stride};
    }
    PackRows({begin, row_stride * item, depth_stride * item, cast_a_}, rows, depth, left_, layout_.left_stride, line_);
    return {left_, layout_.left_stride};
  }

  Block RightBlock(const char* b, int64_t k0, int64_t n0) const {
    const int64_t item = ItemSize(b_.dtype);
    const int64_t depth_stride = b_.strides[b_.rank - 2] * item;
    const int64_t col_stride = b_.strides[b_.rank - 1] * item;
    return {b + k0 * depth_stride + n0 * col_stride, col_stride, depth_stride, cast_b_};
  }

  void Store(char* out, int64_t m0, int64_t n0, int64_t rows, int64_t cols) const {
    const int64_t item = ItemSize(out_.dtype);
    const int64_t row_stride = out_.strides[out_.rank - 2] * item;
    const int64_t col_stride = out_.strides[out_.rank - 1] * item;
    for (int64_t i = 0; i < rows; ++i) {
      store_.Read(reinterpret_cast<const char*>(c_ + i * layout_.c_stride), sizeof(T),
                  out + (m0 + i) * row_stride + n0 * col_stride, col_stride, cols);
    }
  }

  const Problem& problem_;
  const TensorRef& a_;
  const TensorRef& b_;
  const TensorRef& out_;
  Layout<T> layout_;
  CastFn cast_a_;
  CastFn cast_b_;
  RowReader store_;
  bool writes_out_ = false;  // sums need no scratch memory
  bool has_epilogue_ = false;
  T alpha_{};
  T beta_{};
  TensorRef addend_;
  RowReader read_addend_{DType::kFloat, DType::kFloat, DType::kFloat};
  T* left_;
  T* right_;
  T* c_;
  T* line_;
};

// Calls fn with the accumulation type. Integers accumulate unsigned: the low
// bits of a sum of products do not depend on the sign.
template <class Fn>
decltype(auto) DispatchAccumulation(DType compute, Fn&& fn) {
  switch (compute) {
    case DType::kFloat:
    case DType::kFloat16:
    case DType::kBFloat16: return fn(TypeTag<float>{});
    case DType::kDouble: return fn(TypeTag<double>{});
    case DType::kComplex64: return fn(TypeTag<std::complex<float>>{});
    case DType::kComplex128: return fn(TypeTag<std::complex<double>>{});
    case DType::kInt64:
    case DType::kUInt64:
    case DType::kBool: return fn(TypeTag<uint64_t>{});
    default: return fn(TypeTag<uint32_t>{});
  }
}

}  // namespace

int64_t MatMulUnitCount(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out) {
  return Problem(a, b, compute, out).units();
}

int64_t MatMulScratchBytes(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out) {
  const Problem problem(a, b, compute, out);
  return DispatchAccumulation(compute, [&](auto tag) { return Layout<typename decltype(tag)::Type>(problem).Bytes(); });
}

void MatMul(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out, Range range, void* scratch,
            const MatMulEpilogue* epilogue) {
  if (range.begin >= range.end) return;
  const Problem problem(a, b, compute, out);
  DispatchAccumulation(compute, [&](auto tag) {
    Product<typename decltype(tag)::Type>(problem, compute, scratch, epilogue).Run(range);
  });
}

}  // namespace reprise::kernels
