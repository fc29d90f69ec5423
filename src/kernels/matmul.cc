// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include <cstring>

#include "kernels/arithmetic.h"
#include "kernels/cast.h"
#include "kernels/simd/matmul_tile.h"

namespace reprise::kernels {
namespace {

using simd::kPanelHeight;
using simd::RightPanels;

// Block sizes in elements. A block of the left operand (132 x 256) and one
// panel of the right (256 x 16) are read over and over: second- and first-level
// cache. kBlockRows is a multiple of the panel height, kBlockCols of any width.
constexpr int64_t kBlockRows = 132;
constexpr int64_t kBlockCols = 256;
constexpr int64_t kBlockDepth = 256;
// Row blocks that share one packing of the right operand.
constexpr int64_t kGroup = 4;
// Up to this many rows the right operand is read in place if its layout allows:
// packing it would cost more than it saves.
constexpr int64_t kInPlaceRows = 2 * kPanelHeight;
// Lanes that packing reads at a time from an operand contiguous in depth.
constexpr int64_t kLines = 4;

constexpr int64_t DivideUp(int64_t n, int64_t by) { return (n + by - 1) / by; }
constexpr int64_t RoundUp(int64_t n, int64_t to) { return DivideUp(n, to) * to; }

// --- The block product for types without a vector body ---------------------------

template <class T>
int64_t PanelWidthOf() {
  if constexpr (std::is_floating_point_v<T>)
    return simd::PanelWidth(T());
  else
    return 8;
}

template <class T>
void MultiplyBlock(const T* left, RightPanels<T> right, T* c, int64_t c_stride, int64_t rows, int64_t cols,
                   int64_t depth, bool accumulates) {
  if constexpr (std::is_floating_point_v<T>) {
    simd::MultiplyBlock(left, right, c, c_stride, rows, cols, depth, accumulates);
  } else {
    constexpr int64_t kWidth = 8;
    for (int64_t j = 0; j < cols; j += kWidth) {
      for (int64_t i = 0; i < rows; ++i) {
        const T* a = left + i / kPanelHeight * depth * kPanelHeight + i % kPanelHeight;
        const T* b = right.data + j / kWidth * right.panel_stride;
        T sum[kWidth] = {};
        for (int64_t k = 0; k < depth; ++k) {
          const T value = a[k * kPanelHeight];
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

// --- The problem -------------------------------------------------------------------

struct Problem {
  int64_t m, n, k, batch;
  int64_t row_blocks, col_blocks;
};

Problem MakeProblem(const TensorRef& a, const TensorRef& out) {
  Problem p;
  p.m = out.sizes[out.rank - 2];
  p.n = out.sizes[out.rank - 1];
  p.k = a.sizes[a.rank - 1];
  p.batch = 1;
  for (int d = 0; d < out.rank - 2; ++d) p.batch *= out.sizes[d];
  p.row_blocks = DivideUp(p.m, kBlockRows);
  p.col_blocks = DivideUp(p.n, kBlockCols);
  return p;
}

// Where the three matrices of one batch entry begin.
struct Matrices {
  const char* a;
  const char* b;
  char* out;
};

Matrices FindMatrices(const TensorRef& a, const TensorRef& b, const TensorRef& out, int64_t batch) {
  const TensorRef* refs[3] = {&a, &b, &out};
  char* base[3];
  for (int r = 0; r < 3; ++r) base[r] = static_cast<char*>(refs[r]->data);
  for (int back = 3; back <= out.rank; ++back) {
    const int64_t size = out.sizes[out.rank - back];
    const int64_t index = batch % size;
    batch /= size;
    for (int r = 0; r < 3; ++r) {
      const int d = refs[r]->rank - back;
      if (d < 0 || refs[r]->sizes[d] == 1) continue;
      base[r] += index * refs[r]->strides[d] * ItemSize(refs[r]->dtype);
    }
  }
  return {base[0], base[1], base[2]};
}

// A block of an operand seen by the packing: lanes (rows of a, columns of b) by
// depth; strides in bytes.
struct Block {
  const char* data;
  int64_t lane_stride;
  int64_t depth_stride;
  CastFn cast;
};

// Rearranges a block into panels of `width` lanes: dst[(lane / width) * depth *
// width + k * width + lane % width], missing lanes zero. `line` is scratch, see Layout.
template <class T>
void Pack(const Block& block, int64_t lanes, int64_t depth, int64_t width, T* dst, T* line) {
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
  // Lanes are contiguous in depth: read a few at a time and interleave them.
  const int64_t step = width % kLines == 0 ? kLines : 1;
  for (int64_t lane = 0; lane < padded; lane += step) {
    T* column = dst + lane / width * width * depth + lane % width;
    for (int64_t l = 0; l < step; ++l) {
      T* to = line + l * kBlockDepth;
      if (lane + l < lanes) {
        block.cast(block.data + (lane + l) * block.lane_stride, block.depth_stride, reinterpret_cast<char*>(to), kItem,
                   depth);
      } else {
        std::fill_n(to, depth, T{});
      }
    }
    if (step == kLines) {
      for (int64_t k = 0; k < depth; ++k) {
        for (int64_t l = 0; l < kLines; ++l) column[k * width + l] = line[l * kBlockDepth + k];
      }
    } else {
      for (int64_t k = 0; k < depth; ++k) column[k * width] = line[k];
    }
  }
}

// --- The product in accumulation type T ---------------------------------------------

// Scratch memory, in elements of T.
template <class T>
struct Layout {
  int64_t width = PanelWidthOf<T>();
  int64_t left, right, c, c_stride, line;

  explicit Layout(const Problem& p) {
    const int64_t rows = RoundUp(std::min(p.m, kBlockRows), kPanelHeight);
    const int64_t depth = std::min(p.k, kBlockDepth);
    c_stride = RoundUp(std::min(p.n, kBlockCols), width);
    left = RoundUp(rows * depth, 16);
    right = RoundUp(c_stride * depth, 16);
    c = RoundUp(std::min(p.row_blocks, kGroup) * rows * c_stride, 16);
    line = std::max(kLines * kBlockDepth, kBlockCols + kPanelHeight);
  }

  int64_t Bytes() const { return (left + right + c + line) * static_cast<int64_t>(sizeof(T)); }
};

template <class T>
class Product {
 public:
  Product(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out, void* scratch,
          const MatMulEpilogue* epilogue)
      : a_(a),
        b_(b),
        out_(out),
        problem_(MakeProblem(a, out)),
        layout_(problem_),
        cast_a_(FindCast(a.dtype, DTypeOf<T>())),
        cast_b_(FindCast(b.dtype, DTypeOf<T>())),
        store_(DTypeOf<T>(), std::is_unsigned_v<T> ? compute : DTypeOf<T>(), out.dtype) {
    left_ = static_cast<T*>(scratch);
    right_ = left_ + layout_.left;
    c_ = right_ + layout_.right;
    line_ = c_ + layout_.c;
    if (epilogue == nullptr) return;
    has_epilogue_ = true;
    alpha_ = epilogue->alpha.As<T>();
    beta_ = epilogue->beta.As<T>();
    addend_ = epilogue->addend;
    if (addend_.data == nullptr) return;
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
      const int64_t group = std::min({range.end - unit, problem_.row_blocks - row_block, kGroup});
      RunGroup(column / problem_.col_blocks, column % problem_.col_blocks, row_block, group);
      unit += group;
    }
  }

 private:
  // Row blocks [row_block, row_block + group) of one column block of one batch.
  void RunGroup(int64_t batch, int64_t col_block, int64_t row_block, int64_t group) {
    const Matrices at = FindMatrices(a_, b_, out_, batch);
    const int64_t n0 = col_block * kBlockCols;
    const int64_t cols = std::min(kBlockCols, problem_.n - n0);
    const int64_t m0 = row_block * kBlockRows;
    const int64_t rows = std::min(group * kBlockRows, problem_.m - m0);
    if (problem_.k == 0) std::fill_n(c_, rows * layout_.c_stride, T{});
    for (int64_t k0 = 0; k0 < problem_.k; k0 += kBlockDepth) {
      const int64_t depth = std::min(kBlockDepth, problem_.k - k0);
      const Block right = RightBlock(at.b, k0, n0);
      const int64_t in_place = InPlaceCols(cols);
      if (in_place < cols) {
        Block rest = right;
        rest.data += in_place * right.lane_stride;
        Pack(rest, cols - in_place, depth, layout_.width, right_, line_);
      }
      for (int64_t i = 0; i < rows; i += kBlockRows) {
        const int64_t block_rows = std::min(kBlockRows, rows - i);
        Pack(LeftBlock(at.a, m0 + i, k0), block_rows, depth, kPanelHeight, left_, line_);
        Multiply(right, in_place, cols, c_ + i * layout_.c_stride, block_rows, depth, k0 != 0);
      }
    }
    if (has_epilogue_) Finish(batch, m0, n0, rows, cols);
    Store(at.out, m0, n0, rows, cols);
  }

  // The sums in c_ become alpha * sum + beta * addend.
  void Finish(int64_t batch, int64_t m0, int64_t n0, int64_t rows, int64_t cols) {
    const int64_t item = ItemSize(addend_.dtype);
    const char* from = static_cast<const char*>(addend_.data);
    for (int d = addend_.rank - 3; from != nullptr && d >= 0; --d) {
      from += batch % out_.sizes[d] * addend_.strides[d] * item;
      batch /= out_.sizes[d];
    }
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

  void Multiply(const Block& right, int64_t in_place, int64_t cols, T* c, int64_t rows, int64_t depth,
                bool accumulates) {
    const int64_t width = layout_.width;
    if (in_place > 0) {
      const RightPanels<T> panels = {reinterpret_cast<const T*>(right.data), width,
                                     right.depth_stride / static_cast<int64_t>(sizeof(T))};
      MultiplyBlock(left_, panels, c, layout_.c_stride, rows, in_place, depth, accumulates);
    }
    if (in_place < cols) {
      const RightPanels<T> panels = {right_, width * depth, width};
      MultiplyBlock(left_, panels, c + in_place, layout_.c_stride, rows, RoundUp(cols - in_place, width), depth,
                    accumulates);
    }
  }

  // Columns of the block that can be read without packing.
  int64_t InPlaceCols(int64_t cols) const {
    const bool is_plain = b_.dtype == DTypeOf<T>() && b_.strides[b_.rank - 1] == 1;
    if (!is_plain || problem_.m > kInPlaceRows) return 0;
    return cols / layout_.width * layout_.width;
  }

  Block LeftBlock(const char* a, int64_t m0, int64_t k0) const {
    const int64_t item = ItemSize(a_.dtype);
    const int64_t row_stride = a_.strides[a_.rank - 2] * item;
    const int64_t depth_stride = a_.strides[a_.rank - 1] * item;
    return {a + m0 * row_stride + k0 * depth_stride, row_stride, depth_stride, cast_a_};
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

  const TensorRef& a_;
  const TensorRef& b_;
  const TensorRef& out_;
  Problem problem_;
  Layout<T> layout_;
  CastFn cast_a_;
  CastFn cast_b_;
  RowReader store_;
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

int64_t MatMulUnitCount(const TensorRef& a, const TensorRef&, DType, const TensorRef& out) {
  const Problem p = MakeProblem(a, out);
  return p.batch * p.row_blocks * p.col_blocks;
}

int64_t MatMulScratchBytes(const TensorRef& a, const TensorRef&, DType compute, const TensorRef& out) {
  return DispatchAccumulation(
      compute, [&](auto tag) { return Layout<typename decltype(tag)::Type>(MakeProblem(a, out)).Bytes(); });
}

void MatMul(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out, Range range, void* scratch,
            const MatMulEpilogue* epilogue) {
  if (range.begin >= range.end) return;
  DispatchAccumulation(
      compute, [&](auto tag) { Product<typename decltype(tag)::Type>(a, b, compute, out, scratch, epilogue).Run(range); });
}

}  // namespace reprise::kernels
