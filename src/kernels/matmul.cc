// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include <cstring>
#include <vector>

#include "kernels/arithmetic.h"
#include "kernels/batch.h"
#include "kernels/cast.h"
#include "kernels/matmul_pack.h"
#include "kernels/matmul_problem.h"
#include "kernels/simd/matmul_tile.h"
#include "kernels/simd/panels.h"

namespace reprise::kernels {
namespace {

using simd::LeftRows;
using simd::RightPanels;

using namespace matmul;  // NOLINT(google-build-using-namespace)

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
                   int64_t depth, bool accumulates, const simd::NextRead* next) {
  if constexpr (std::is_floating_point_v<T>) {
    simd::MultiplyBlock(left, right, c, c_stride, rows, cols, depth, accumulates, next);
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

// Where the three matrices of one batch entry begin.
struct Matrices {
  const char* a;
  const char* b;
  char* out;
};

// ---- The product in accumulation type T ----

template <class T>
class Product {
 public:
  Product(const Problem& problem, DType compute, void* scratch, const MatMulEpilogue* epilogue, const void* prepared)
      : problem_(problem),
        a_(problem.a),
        b_(problem.b),
        out_(problem.out),
        layout_(problem_, PanelWidthOf<T>()),
        cast_a_(FindCast(a_.dtype, DTypeOf<T>())),
        cast_b_(FindCast(b_.dtype, DTypeOf<T>())),
        store_(DTypeOf<T>(), std::is_unsigned_v<T> ? compute : DTypeOf<T>(), out_.dtype),
        prepared_(static_cast<const T*>(prepared)) {
    left_ = static_cast<T*>(scratch);
    right_ = left_ + layout_.left;
    c_ = right_ + layout_.right;
    line_ = c_ + layout_.c;
    // Vector bodies write whole rows.
    pack_cols_ = b_.strides[b_.rank - 2] == 1 || prepared != nullptr ? kUnitCols : kPackCols;
    writes_out_ = std::is_floating_point_v<T> && out_.dtype == DTypeOf<T>() && out_.strides[out_.rank - 1] == 1 &&
                  problem.way != Way::kRows;
    if (epilogue == nullptr) return;
    has_epilogue_ = true;
    alpha_ = epilogue->alpha.As<T>();
    beta_ = epilogue->beta.As<T>();
    addend_ = epilogue->addend;
    if (addend_.data == nullptr) return;
    writes_out_ = writes_out_ && !Overlap(addend_, out_);
    if (problem.is_turned) SwapLast(addend_);
    read_addend_ = RowReader(addend_.dtype, std::is_unsigned_v<T> ? compute : DTypeOf<T>(), DTypeOf<T>());
    for (int d = 0; d < addend_.rank; ++d) {
      if (addend_.sizes[d] == 1) addend_.strides[d] = 0;
    }
  }

  void Run(Range range) {
    int64_t unit = range.begin;
    while (unit < range.end) {
      const int64_t first = unit % problem_.col_units;
      const int64_t group = unit / problem_.col_units % problem_.row_groups;
      const int64_t batch = unit / problem_.col_units / problem_.row_groups;
      const Matrices at = {EntryOf(a_, 2, out_, 2, batch), EntryOf(b_, 2, out_, 2, batch),
                           EntryOf(out_, 2, out_, 2, batch)};
      const int64_t units = std::min({range.end - unit, problem_.col_units - first, problem_.most_units});
      const int64_t n0 = first * problem_.unit_cols;
      const int64_t cols = std::min(units * problem_.unit_cols, problem_.n - n0);
      if (problem_.way == Way::kTiles) {
        const int64_t m0 = group * problem_.group_rows;
        const int64_t rows = std::min(problem_.group_rows, problem_.m - m0);
        const int64_t step = writes_out_ ? cols : kBlockCols;
        for (int64_t j = 0; j < cols; j += step) RunTiles(at, batch, m0, rows, n0 + j, std::min(step, cols - j));
      } else {
        RunStream(at, batch, n0, cols);
      }
      unit += units;
    }
  }

 private:
  // Whether two operands may share bytes.
  static bool Overlap(const TensorRef& x, const TensorRef& y) {
    const auto range = [](const TensorRef& ref) {
      int64_t last = 0;
      for (int d = 0; d < ref.rank; ++d) last += (ref.sizes[d] - 1) * ref.strides[d];
      const char* const begin = static_cast<const char*>(ref.data);
      return std::pair(begin, begin + (last + 1) * ItemSize(ref.dtype));
    };
    const auto [begin_x, end_x] = range(x);
    const auto [begin_y, end_y] = range(y);
    return begin_x < end_y && begin_y < end_x;
  }

  // `rows` rows from m0 on, of columns n0 to n0 + cols.
  void RunTiles(const Matrices& at, int64_t batch, int64_t m0, int64_t rows, int64_t n0, int64_t cols) {
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
      const LeftRows<T> left = Left(at.a, m0, k0, rows, depth, cols);
      for (int64_t j = 0; j < cols; j += pack_cols_) {
        const int64_t part = std::min(pack_cols_, cols - j);
        // The columns that come next; behind the last ones the first of the next block of the depth.
        if (j + part < cols) {
          FindNext(at.b, k0, depth, n0 + j + part, std::min(pack_cols_, cols - j - part));
        } else {
          FindNext(at.b, k0 + depth, std::min(kBlockDepth, problem_.k - k0 - depth), n0, std::min(pack_cols_, cols));
        }
        MultiplyPart(at.b, left, rows, k0, depth, n0 + j, part, c + j, c_stride);
        if (k0 + depth < problem_.k) continue;
        if (has_epilogue_) Finish(c + j, c_stride, batch, m0, n0 + j, rows, part);
      }
    }
    if (problem_.k == 0 && has_epilogue_) {
      for (int64_t j = 0; j < cols; j += kPackCols) {
        Finish(c + j, c_stride, batch, m0, n0 + j, rows, std::min(kPackCols, cols - j));
      }
    }
    if (!writes_out_) Store(at.out, m0, n0, rows, cols);
  }

  // At most kPackCols columns, one block of the depth.
  void MultiplyPart(const char* b, LeftRows<T> left, int64_t rows, int64_t k0, int64_t depth, int64_t n0, int64_t cols,
                    T* c, int64_t c_stride) {
    const int64_t width = layout_.width;
    const int64_t whole = cols / width * width;
    const bool accumulates = k0 != 0;
    const Block block = RightBlock(b, k0, n0);
    RightPanels<T> panels = {right_, width * depth, width};
    int64_t in_place = 0;  // columns that are read where they lie
    if (prepared_ != nullptr) {
      panels.data = prepared_ + k0 * RoundUp(problem_.n, width) + n0 * depth;
    } else {
      in_place = IsReadInPlace() ? whole : 0;
      if (in_place > 0) {
        const RightPanels<T> own = {reinterpret_cast<const T*>(block.data), width,
                                    block.depth_stride / static_cast<int64_t>(sizeof(T))};
        Multiply(left, own, c, c_stride, rows, whole, depth, accumulates);
      }
      if (in_place < cols) {
        Block rest = block;
        rest.data += in_place * block.lane_stride;
        PackPanels(rest, cols - in_place, depth, width, right_, line_);
      }
    }
    if (in_place < whole) Multiply(left, panels, c, c_stride, rows, whole, depth, accumulates);
    if (whole == cols) return;
    panels.data += (whole - in_place) * depth;
    if (!writes_out_) {  // there is room for a whole panel
      Multiply(left, panels, c + whole, c_stride, rows, width, depth, accumulates);
      return;
    }
    Multiply(left, panels, c_, width, rows, width, depth, accumulates);
    if (k0 + depth < problem_.k) return;
    for (int64_t i = 0; i < rows; ++i) std::copy_n(c_ + i * width, cols - whole, c + i * c_stride + whole);
  }

  // Where the columns lie that are read after these.
  void FindNext(const char* b, int64_t k0, int64_t depth, int64_t n0, int64_t cols) {
    next_ = {};
    if (depth <= 0 || (prepared_ == nullptr && IsReadInPlace())) return;
    if (prepared_ != nullptr) {
      const int64_t bytes = RoundUp(cols, layout_.width) * depth * static_cast<int64_t>(sizeof(T));
      next_ = {reinterpret_cast<const char*>(prepared_ + k0 * RoundUp(problem_.n, layout_.width) + n0 * depth), 1, 0,
               bytes};
      return;
    }
    const Block block = RightBlock(b, k0, n0);
    const int64_t item = ItemSize(block.dtype);
    if (block.depth_stride == item) {
      next_ = {block.data, cols, block.lane_stride, depth * item};
    } else if (block.lane_stride == item) {
      next_ = {block.data, depth, block.depth_stride, cols * item};
    }
  }

  void Multiply(LeftRows<T> left, const RightPanels<T>& right, T* c, int64_t c_stride, int64_t rows, int64_t cols,
                int64_t depth, bool accumulates) {
    for (int64_t i = 0; i < rows; i += kBlockRows) {
      MultiplyBlock({left.data + i * left.row_stride, left.row_stride}, right, c + i * c_stride, c_stride,
                    std::min(kBlockRows, rows - i), cols, depth, accumulates, &next_);
      next_ = {};
    }
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
        const LeftRows<T> left = Left(at.a, 0, k0, problem_.m, depth, cols);
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
      if (has_epilogue_) Finish(c, c_stride, batch, 0, n0, problem_.m, cols);
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

  // The sums in c become alpha * sum + beta * addend.
  void Finish(T* c, int64_t c_stride, int64_t batch, int64_t m0, int64_t n0, int64_t rows, int64_t cols) {
    const int64_t item = ItemSize(addend_.dtype);
    const char* const from = addend_.data == nullptr ? nullptr : EntryOf(addend_, 2, out_, 2, batch);
    for (int64_t i = 0; i < rows; ++i) {
      T* row = c + i * c_stride;
      if (from == nullptr) {
        for (int64_t j = 0; j < cols; ++j) row[j] = MulValue(alpha_, row[j]);
        continue;
      }
      const int64_t row_stride = addend_.strides[addend_.rank - 2] * item;
      const int64_t col_stride = addend_.strides[addend_.rank - 1] * item;
      const char* const at = from + (m0 + i) * row_stride + n0 * col_stride;
      const T* addend = line_;
      if (addend_.dtype == DTypeOf<T>() && col_stride == item) {
        addend = reinterpret_cast<const T*>(at);
      } else if (i == 0 || row_stride != 0) {
        read_addend_.Read(at, col_stride, reinterpret_cast<char*>(line_), sizeof(T), cols);
      }
      if constexpr (std::is_same_v<T, float>) {
        simd::ScaleAddRow(row, alpha_, addend, beta_, cols);
      } else {
        for (int64_t j = 0; j < cols; ++j) row[j] = AddValue(MulValue(alpha_, row[j]), MulValue(beta_, addend[j]));
      }
    }
  }

  // Whether the right operand can be read without packing.
  bool IsReadInPlace() const {
    const bool is_plain = b_.dtype == DTypeOf<T>() && b_.strides[b_.rank - 1] == 1;
    return is_plain && problem_.k * b_.strides[b_.rank - 2] * static_cast<int64_t>(sizeof(T)) <= kInPlaceBytes;
  }

  // The left operand where it lies, or a copy, for a product with `cols` columns.
  LeftRows<T> Left(const char* a, int64_t m0, int64_t k0, int64_t rows, int64_t depth, int64_t cols) {
    const int64_t item = ItemSize(a_.dtype);
    const int64_t row_stride = a_.strides[a_.rank - 2];
    const int64_t depth_stride = a_.strides[a_.rank - 1];
    const char* const begin = a + (m0 * row_stride + k0 * depth_stride) * item;
    const bool is_worth_a_copy = problem_.way == Way::kTiles && cols > kFewCols;
    if (!is_worth_a_copy && a_.dtype == DTypeOf<T>() && (depth_stride == 1 || depth == 1)) {
      return {reinterpret_cast<const T*>(begin), row_stride};
    }
    PackRows({begin, row_stride * item, depth_stride * item, a_.dtype, cast_a_}, rows, depth, left_,
             layout_.left_stride, line_);
    return {left_, layout_.left_stride};
  }

  Block RightBlock(const char* b, int64_t k0, int64_t n0) const {
    const int64_t item = ItemSize(b_.dtype);
    const int64_t depth_stride = b_.strides[b_.rank - 2] * item;
    const int64_t col_stride = b_.strides[b_.rank - 1] * item;
    return {b + k0 * depth_stride + n0 * col_stride, col_stride, depth_stride, b_.dtype, cast_b_};
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
  int64_t pack_cols_;
  simd::NextRead next_;
  const T* prepared_;        // the right operand as PrepareRightOperand leaves it; null: where it lies
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

int64_t MatMulUnitCount(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out, bool is_prepared) {
  return Problem(a, b, compute, out, is_prepared).units();
}

int64_t MatMulScratchBytes(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out,
                           bool is_prepared) {
  const Problem problem(a, b, compute, out, is_prepared);
  return DispatchAccumulation(compute, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return Layout<T>(problem, PanelWidthOf<T>()).Bytes();
  });
}

void MatMul(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out, Range range, void* scratch,
            const MatMulEpilogue* epilogue, const void* prepared) {
  if (range.begin >= range.end) return;
  const Problem problem(a, b, compute, out, prepared != nullptr);
  DispatchAccumulation(compute, [&](auto tag) {
    Product<typename decltype(tag)::Type>(problem, compute, scratch, epilogue, prepared).Run(range);
  });
}

int64_t PreparedRightBytes(const TensorRef& b, DType compute) {
  const bool is_float = compute == DType::kFloat && b.dtype == DType::kFloat;
  if (!is_float || EntryCount(b, 2) != 1) return 0;
  return b.sizes[b.rank - 2] * RoundUp(b.sizes[b.rank - 1], PanelWidthOf<float>()) * int64_t{sizeof(float)};
}

void PrepareRight(const TensorRef& b, void* prepared) {
  const int64_t width = PanelWidthOf<float>();
  const int64_t depth = b.sizes[b.rank - 2];
  const int64_t cols = b.sizes[b.rank - 1];
  const int64_t depth_stride = b.strides[b.rank - 2] * ItemSize(b.dtype);
  const int64_t col_stride = b.strides[b.rank - 1] * ItemSize(b.dtype);
  const CastFn cast = FindCast(b.dtype, DType::kFloat);
  std::vector<float> line(static_cast<size_t>(kLines * kBlockDepth));
  auto* to = static_cast<float*>(prepared);
  for (int64_t k0 = 0; k0 < depth; k0 += kBlockDepth) {
    const int64_t part = std::min(kBlockDepth, depth - k0);
    for (int64_t j = 0; j < cols; j += kPackCols) {
      const Block block = {static_cast<const char*>(b.data) + k0 * depth_stride + j * col_stride, col_stride,
                           depth_stride, b.dtype, cast};
      PackPanels(block, std::min(kPackCols, cols - j), part, width, to + j * part, line.data());
    }
    to += RoundUp(cols, width) * part;
  }
}

}  // namespace reprise::kernels
