// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include <cstring>
#include <vector>

#include "kernels/arithmetic.h"
#include "kernels/batch.h"
#include "kernels/cast.h"
#include "kernels/int8_matmul.h"
#include "kernels/matmul_pack.h"
#include "kernels/matmul_problem.h"
#include "kernels/simd/matmul_tile.h"
#include "kernels/simd/matrix_unit.h"
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

template <class T, class B>
void MultiplyBlock(LeftRows<T> left, RightPanels<B> right, T* c, int64_t c_stride, int64_t rows, int64_t cols,
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

// The byte of each panel of pairs.
void FindLeast(const BFloat16* panels, int64_t cols, int64_t depth, uint8_t* least) {
  const int64_t numbers = simd::kPairPanelWidth * simd::EvenDepth(depth);
  for (int64_t j = 0; j < cols; j += simd::kPairPanelWidth, panels += numbers) {
    *least++ = simd::LeastExponent({panels, numbers}, 1, numbers);
  }
}

// Where the three matrices of one batch entry begin.
struct Matrices {
  const char* a;
  const char* b;
  char* out;
};

// ---- The product in accumulation type T, of operands that are packed as Item: T, or bfloat16 in pairs ----

template <class T, class Item>
class Product {
 public:
  Product(const Problem& problem, DType compute, void* scratch, const MatMulEpilogue* epilogue, const void* prepared)
      : problem_(problem),
        a_(problem.a),
        b_(problem.b),
        out_(problem.out),
        layout_(problem_, PanelWidthOf<T>()),
        cast_a_(FindCast(a_.dtype, DTypeOf<Item>())),
        cast_b_(FindCast(b_.dtype, DTypeOf<Item>())),
        store_(DTypeOf<T>(), std::is_unsigned_v<T> ? compute : DTypeOf<T>(), out_.dtype),
        prepared_(prepared) {
    left_ = static_cast<Item*>(scratch);
    right_ = left_ + layout_.left;
    c_ = reinterpret_cast<T*>(right_ + layout_.right);
    line_ = c_ + layout_.c;
    numbers_ = line_ + layout_.line;
    panels_ = numbers_ + layout_.numbers;
    pack_cols_ = b_.strides[b_.rank - 2] == 1 && prepared == nullptr ? kUnitCols
                 : IsReadInPlace()                                   ? kBlockCols
                                                                     : kPackCols;
    // Vector bodies write whole rows.
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
      const Matrices at = {EntryOf(a_, 2, out_, 2, batch),
                           prepared_ == nullptr ? EntryOf(b_, 2, out_, 2, batch) : nullptr,
                           EntryOf(out_, 2, out_, 2, batch)};
      const int64_t units = std::min({range.end - unit, problem_.col_units - first, problem_.most_units});
      if (prepared_ != nullptr) {
        entry_ = EntryIndexOf(b_, 2, out_, 2, batch);
        prepared_before_ = entry_ * PanelsBefore(layout_.TileDepth(problem_.k), 0, 0);
      }
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
  static constexpr bool kIsPairs = Layout<T, Item>::kIsPairs;

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
      const LeftRows<Item> left = Left(at.a, m0, k0, rows, depth);
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
  void MultiplyPart(const char* b, LeftRows<Item> left, int64_t rows, int64_t k0, int64_t depth, int64_t n0,
                    int64_t cols, T* c, int64_t c_stride) {
    if (prepared_ != nullptr) {
      if constexpr (kIsPairs) least_ = PreparedLeast(k0, n0);
      DispatchRight(prepared_, [&](auto* panels) {
        MultiplyPanels(left, panels + prepared_before_ + PanelsBefore(k0, depth, n0), rows, k0, depth, cols, c,
                       c_stride);
      });
      return;
    }
    const int64_t width = layout_.width;
    Block block = RightBlock(b, k0, n0);
    if constexpr (kIsPairs) {
      least_ = own_least_;
      if (problem_.parts > 1) {
        block.cast = FindCast(b_.dtype, DType::kFloat);
        PackPartPanels(block, cols, depth, problem_.parts, panels_, line_, right_, own_least_);
      } else {
        PackPairPanels(block, cols, depth, right_);
        FindLeast(right_, cols, depth, own_least_);
      }
    } else {
      if (IsReadInPlace()) {
        const int64_t whole = cols / width * width;
        DispatchRight(block.data, [&](auto* own) {
          const RightPanels<std::remove_cvref_t<decltype(*own)>> panels = {own, width, b_.strides[b_.rank - 2]};
          if (whole > 0) Multiply(left, panels, c, c_stride, rows, whole, depth, k0 != 0);
        });
        block.data += whole * block.lane_stride;
        cols -= whole;
        c += whole;
      }
      if (cols == 0) return;
      PackPanels(block, cols, depth, width, right_, line_);
    }
    MultiplyPanels(left, right_, rows, k0, depth, cols, c, c_stride);
  }

  // Panels that lie back to back, the last of which may be wider than the columns that are left.
  template <class B>
  void MultiplyPanels(LeftRows<Item> left, const B* panels, int64_t rows, int64_t k0, int64_t depth, int64_t cols, T* c,
                      int64_t c_stride) {
    const int64_t width = layout_.width;
    // In scratch memory there is room for whole panels.
    const int64_t whole = writes_out_ ? cols / width * width : RoundUp(cols, width);
    const bool accumulates = k0 != 0;
    RightPanels<B> right = {panels, width * layout_.PanelDepth(depth), width};
    if (whole > 0) Multiply(left, right, c, c_stride, rows, whole, depth, accumulates);
    if (whole >= cols) return;
    right.data += whole * layout_.PanelDepth(depth);
    least_ += whole / width;
    Multiply(left, right, c_, width, rows, width, depth, accumulates);
    if (k0 + depth < problem_.k) return;
    for (int64_t i = 0; i < rows; ++i) std::copy_n(c_ + i * width, cols - whole, c + i * c_stride + whole);
  }

  // Calls fn with `data`, elements of the right operand that tiles widen by themselves.
  template <class Fn>
  void DispatchRight(const void* data, Fn&& fn) const {
    if constexpr (std::is_same_v<Item, float>) {
      if (b_.dtype == DType::kFloat16) return fn(static_cast<const Half*>(data));
      if (b_.dtype == DType::kBFloat16) return fn(static_cast<const BFloat16*>(data));
    }
    fn(static_cast<const Item*>(data));
  }

  // Elements in front of a panel of a prepared matrix.
  int64_t PanelsBefore(int64_t k0, int64_t depth, int64_t n0) const {
    return k0 * problem_.parts * RoundUp(problem_.n, layout_.width) + n0 * layout_.PanelDepth(depth);
  }

  // The bytes of prepared panels of pairs from there on: they lie behind all matrices.
  const uint8_t* PreparedLeast(int64_t k0, int64_t n0) const {
    const int64_t panels = DivideUp(problem_.n, layout_.width);
    const int64_t matrix = PanelsBefore(layout_.TileDepth(problem_.k), 0, 0) * static_cast<int64_t>(sizeof(BFloat16));
    const auto* const bytes = static_cast<const uint8_t*>(prepared_) + EntryCount(b_, 2) * matrix;
    return bytes + (entry_ * DivideUp(problem_.k, kBlockDepth) + k0 / kBlockDepth) * panels + n0 / layout_.width;
  }

  // Where the columns lie that are read after these.
  void FindNext(const char* b, int64_t k0, int64_t depth, int64_t n0, int64_t cols) {
    next_ = {};
    // Tiles of few rows take less time than the panels to come: they ask for more of them at a time.
    next_.is_behind_panels = prepared_ != nullptr && !problem_.uses_pairs && problem_.m > simd::kTileRows;
    if (depth <= 0) return;
    if (prepared_ != nullptr) {
      const int64_t item = kIsPairs ? static_cast<int64_t>(sizeof(Item)) : ItemSize(b_.dtype);
      next_.data = static_cast<const char*>(prepared_) + (prepared_before_ + PanelsBefore(k0, depth, n0)) * item;
      next_.rows = 1;
      next_.row_bytes = RoundUp(cols, layout_.width) * layout_.PanelDepth(depth) * item;
      return;
    }
    const Block block = RightBlock(b, k0, n0);
    const int64_t item = ItemSize(block.dtype);
    if (block.depth_stride == item) {
      next_ = {block.data, cols, block.lane_stride, depth * item, false};
    } else if (block.lane_stride == item) {
      next_ = {block.data, depth, block.depth_stride, cols * item, false};
    }
  }

  template <class B>
  void Multiply(LeftRows<Item> left, const RightPanels<B>& right, T* c, int64_t c_stride, int64_t rows, int64_t cols,
                int64_t depth, bool accumulates) {
    const int64_t block_rows = problem_.uses_unit ? simd::kMostUnitRows : kBlockRows;
    for (int64_t i = 0; i < rows; i += block_rows) {
      const LeftRows<Item> block = {left.data + i * left.row_stride, left.row_stride};
      const int64_t count = std::min(block_rows, rows - i);
      T* const to = c + i * c_stride;
      if constexpr (kIsPairs) {
        if (problem_.uses_unit) {
          simd::UnitLeft parts = {block.data, block.row_stride, PartStride(), problem_.parts,
                                  left_leasts_ + i / simd::kUnitRows};
          if (problem_.parts == 3)
            parts.numbers = {left_numbers_.data + i * left_numbers_.row_stride, left_numbers_.row_stride};
          simd::MultiplyUnitBlock(parts, {right.data, problem_.parts, least_}, to, c_stride, count, cols, depth,
                                  accumulates, &next_);
        } else {
          simd::MultiplyPairBlock(block, left_leasts_[0], {right.data, least_}, to, c_stride, count, cols,
                                  layout_.TileDepth(depth), accumulates, &next_);
        }
      } else {
        MultiplyBlock(block, right, to, c_stride, count, cols, depth, accumulates, &next_);
      }
      next_ = {};
    }
  }

  // All rows of columns n0 to n0 + cols, the right operand read where it lies.
  void RunStream(const Matrices& at, int64_t batch, int64_t n0, int64_t cols) {
    if constexpr (std::is_floating_point_v<Item>) {
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

  // Whether the right operand can be read without packing. Few rows read it once or twice.
  bool IsReadInPlace() const {
    if (kIsPairs || b_.strides[b_.rank - 1] != 1) return false;
    if (problem_.reads_rows_in_place) return true;
    const int64_t bytes = problem_.k * b_.strides[b_.rank - 2] * static_cast<int64_t>(sizeof(T));
    return b_.dtype == DTypeOf<T>() && bytes <= kInPlaceBytes;
  }

  // The left operand where it lies, or a copy that has it as Item.
  LeftRows<Item> Left(const char* a, int64_t m0, int64_t k0, int64_t rows, int64_t depth) {
    const int64_t item = ItemSize(a_.dtype);
    const int64_t row_stride = a_.strides[a_.rank - 2];
    const int64_t depth_stride = a_.strides[a_.rank - 1];
    const char* const begin = a + (m0 * row_stride + k0 * depth_stride) * item;
    if constexpr (kIsPairs) {
      if (problem_.parts > 1)
        return SplitLeft({begin, row_stride * item, depth_stride * item, a_.dtype, nullptr}, rows, depth);
    }
    LeftRows<Item> left = {reinterpret_cast<const Item*>(begin), row_stride};
    if (!layout_.is_left_in_place) {
      left = {left_, layout_.left_stride};
      PackRows({begin, row_stride * item, depth_stride * item, a_.dtype, cast_a_}, rows, depth, left_,
               layout_.left_stride, reinterpret_cast<Item*>(line_));
    }
    if constexpr (kIsPairs) {
      if (depth % 2 != 0) {
        for (int64_t i = 0; i < rows; ++i) left_[i * layout_.left_stride + depth] = Item();
      }
      const int64_t step = problem_.uses_unit ? simd::kUnitRows : rows;
      for (int64_t i = 0; i < rows; i += step) {
        const LeftRows<Item> some = {left.data + i * left.row_stride, left.row_stride};
        left_leasts_[i / step] = simd::LeastExponent(some, std::min(step, rows - i), depth);
      }
    }
    return left;
  }

  // Elements between the parts of the left operand.
  int64_t PartStride() const { return problem_.group_rows * layout_.left_stride; }

  // The left operand as parts.
  LeftRows<BFloat16> SplitLeft(Block block, int64_t rows, int64_t depth) {
    left_numbers_ = {reinterpret_cast<const float*>(block.data),
                     block.lane_stride / static_cast<int64_t>(sizeof(float))};
    const bool is_in_place = layout_.numbers == 0;
    if (!is_in_place) {
      left_numbers_ = {numbers_, kLeftStride};
      block.cast = FindCast(a_.dtype, DType::kFloat);
      PackRows(block, rows, depth, numbers_, kLeftStride, line_);
    }
    for (int64_t i = 0; i < rows; ++i) {
      Item* const to = left_ + i * layout_.left_stride;
      const uint8_t least = is_in_place && a_.dtype == DType::kFloat16
                                ? simd::SplitParts(reinterpret_cast<const Half*>(block.data + i * block.lane_stride),
                                                   depth, to, PartStride())
                                : simd::SplitParts(left_numbers_.data + i * left_numbers_.row_stride, depth,
                                                   problem_.parts, to, PartStride());
      for (int p = 0; depth % 2 != 0 && p < problem_.parts; ++p) to[p * PartStride() + depth] = Item();
      uint8_t& of_tile = left_leasts_[i / simd::kUnitRows];
      of_tile = i % simd::kUnitRows == 0 ? least : std::min(of_tile, least);
    }
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
  Layout<T, Item> layout_;
  CastFn cast_a_;
  CastFn cast_b_;
  RowReader store_;
  int64_t pack_cols_;
  simd::NextRead next_;
  const void* prepared_;         // the right operand as PrepareRight leaves it; null: where it lies
  int64_t entry_ = 0;            // of the right operand's batch
  int64_t prepared_before_ = 0;  // elements in front of its matrix
  uint8_t left_leasts_[kUnitGroupRows / simd::kUnitRows] = {};  // what pairs know about their operands
  LeftRows<float> left_numbers_{};                              // what the parts of the left operand are parts of
  const uint8_t* least_ = own_least_;
  uint8_t own_least_[kPackCols / simd::kPairPanelWidth] = {};
  bool writes_out_ = false;  // sums need no scratch memory
  bool has_epilogue_ = false;
  T alpha_{};
  T beta_{};
  TensorRef addend_;
  RowReader read_addend_{DType::kFloat, DType::kFloat, DType::kFloat};
  Item* left_;
  Item* right_;
  T* c_;
  T* line_;
  T* numbers_;
  T* panels_;
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

// Calls fn with that, and with what operands are packed as.
template <class Fn>
decltype(auto) DispatchProduct(const Problem& problem, DType compute, Fn&& fn) {
  if (problem.uses_pairs) return fn(TypeTag<float>{}, TypeTag<BFloat16>{});
  return DispatchAccumulation(compute, [&](auto tag) { return fn(tag, tag); });
}

}  // namespace

int64_t MatMulUnitCount(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out, bool is_prepared) {
  if (IsInt8Product(a, b, compute, out)) return Int8MatMulUnitCount(out, a.sizes[a.rank - 1]);
  return Problem(a, b, compute, out, is_prepared).units();
}

ProductWork MatMulUnitWork(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out,
                           bool is_prepared) {
  ProductWork work = Problem(a, b, compute, out, is_prepared).UnitWork();
  if (IsInt8Product(a, b, compute, out)) work.has_cheap_calls = false;
  return work;
}

int64_t MatMulScratchBytes(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out,
                           bool is_prepared) {
  if (IsInt8Product(a, b, compute, out)) return Int8MatMulScratchBytes(out, a.sizes[a.rank - 1]);
  const Problem problem(a, b, compute, out, is_prepared);
  return DispatchProduct(problem, compute, [&](auto sum, auto item) {
    using T = typename decltype(sum)::Type;
    return Layout<T, typename decltype(item)::Type>(problem, PanelWidthOf<T>()).Bytes();
  });
}

namespace {

// Multiply-adds of a product that is not cut at all, and rows and depth up to which it has the bits of one that is.
constexpr int64_t kSmallProduct = 4096;
constexpr int64_t kSmallColumns = 8;  // a multiple of these
static_assert(kMostRowsWithoutParts < kBlockRows);

bool IsSmall(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out) {
  for (const TensorRef* const ref : {&a, &b, &out}) {
    if (ref->rank != 2 || ref->dtype != DType::kFloat || ref->strides[1] != 1) return false;
  }
  const int64_t rows = out.sizes[0], cols = out.sizes[1], depth = a.sizes[1];
  return compute == DType::kFloat && rows <= kMostRowsWithoutParts && cols <= kUnitCols && cols % kSmallColumns == 0 &&
         depth <= kBlockDepth && rows * cols * depth <= kSmallProduct;
}

void SmallMatMul(const TensorRef& a, const TensorRef& b, const TensorRef& out) {
  const auto* const left = static_cast<const float*>(a.data);
  const auto* const right = static_cast<const float*>(b.data);
  simd::MultiplySmall({.left = {left, a.strides[0]},
                       .right = right,
                       .right_stride = b.strides[0],
                       .c = static_cast<float*>(out.data),
                       .c_stride = out.strides[0],
                       .rows = out.sizes[0],
                       .cols = out.sizes[1],
                       .depth = a.sizes[1],
                       .accumulates = false});
}

}  // namespace

void MatMul(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out, Range range, void* scratch,
            const MatMulEpilogue* epilogue, const void* prepared) {
  if (range.begin >= range.end) return;
  if (epilogue == nullptr && prepared == nullptr && IsSmall(a, b, compute, out)) return SmallMatMul(a, b, out);
  if (IsInt8Product(a, b, compute, out)) return Int8MatMul(a, b, out, range, scratch, epilogue);
  const Problem problem(a, b, compute, out, prepared != nullptr);
  DispatchProduct(problem, compute, [&](auto sum, auto item) {
    using T = typename decltype(sum)::Type;
    Product<T, typename decltype(item)::Type>(problem, compute, scratch, epilogue, prepared).Run(range);
  });
}

namespace {

// Calls fn(block, columns, depth, panels) for each block, whose panels follow those of the one before. `parts`: of
// pairs; 0: panels hold no pairs.
template <class Item, class Fn>
Item* PrepareBlocks(const TensorRef& b, Item* to, int parts, Fn&& fn) {
  const int64_t width = PanelWidthOf<float>();
  const int64_t depth = b.sizes[b.rank - 2];
  const int64_t cols = b.sizes[b.rank - 1];
  const int64_t depth_stride = b.strides[b.rank - 2] * ItemSize(b.dtype);
  const int64_t col_stride = b.strides[b.rank - 1] * ItemSize(b.dtype);
  const CastFn cast = FindCast(b.dtype, parts > 1 ? DType::kFloat : b.dtype);
  const int64_t entries = EntryCount(b, 2);
  for (int64_t entry = 0; entry < entries; ++entry) {
    const char* const from = EntryOf(b, 2, b, 2, entry);
    for (int64_t k0 = 0; k0 < depth; k0 += kBlockDepth) {
      const int64_t part = std::min(kBlockDepth, depth - k0);
      const int64_t panel_depth = parts > 0 ? parts * simd::EvenDepth(part) : part;
      for (int64_t j = 0; j < cols; j += kPackCols) {
        const Block block = {from + k0 * depth_stride + j * col_stride, col_stride, depth_stride, b.dtype, cast};
        fn(block, std::min(kPackCols, cols - j), part, to + j * panel_depth);
      }
      to += RoundUp(cols, width) * panel_depth;
    }
  }
  return to;
}

// Types stay as they are.
template <class B>
void PreparePanels(const TensorRef& b, B* to) {
  std::vector<B> line(static_cast<size_t>(kLines * kBlockDepth));
  PrepareBlocks(b, to, 0, [&](const Block& block, int64_t cols, int64_t depth, B* panels) {
    PackPanels(block, cols, depth, PanelWidthOf<float>(), panels, line.data());
  });
}

void WritePanels(const TensorRef& b, void* prepared) {
  switch (b.dtype) {
    case DType::kFloat16: return PreparePanels(b, static_cast<Half*>(prepared));
    case DType::kBFloat16: return PreparePanels(b, static_cast<BFloat16*>(prepared));
    default: return PreparePanels(b, static_cast<float*>(prepared));
  }
}

void WritePairs(const TensorRef& b, void* prepared) {
  const auto visit = [&](auto&& fn) { return PrepareBlocks(b, static_cast<BFloat16*>(prepared), 1, fn); };
  auto* least = reinterpret_cast<uint8_t*>(visit([](const Block& block, int64_t cols, int64_t depth, BFloat16* panels) {
    PackPairPanels(block, cols, depth, panels);
  }));
  visit([&](const Block&, int64_t cols, int64_t depth, const BFloat16* panels) {
    FindLeast(panels, cols, depth, least);
    least += DivideUp(cols, simd::kPairPanelWidth);
  });
}

void WriteParts(const TensorRef& b, void* prepared) {
  const int parts = UnitPartsOf(b.dtype);
  std::vector<float> line(static_cast<size_t>(kLines * kBlockDepth));
  std::vector<float> numbers(static_cast<size_t>(kPackCols * kBlockDepth));
  std::vector<uint8_t> leasts;
  BFloat16* const end =
      PrepareBlocks(b, static_cast<BFloat16*>(prepared), parts,
                    [&](const Block& block, int64_t cols, int64_t depth, BFloat16* panels) {
                      uint8_t least[kPackCols / simd::kPairPanelWidth] = {};
                      PackPartPanels(block, cols, depth, parts, numbers.data(), line.data(), panels, least);
                      leasts.insert(leasts.end(), least, least + DivideUp(cols, simd::kPairPanelWidth));
                    });
  std::copy(leasts.begin(), leasts.end(), reinterpret_cast<uint8_t*>(end));
}

}  // namespace

PreparedRight FindPreparedRight(const TensorRef& a, const TensorRef& b, DType compute) {
  const auto is_float = [](DType dtype) {
    return dtype == DType::kFloat || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  };
  if (!is_float(compute) || !is_float(b.dtype)) return {};
  if (b.dtype == DType::kFloat16 && !simd::WidensHalf()) return {};
  for (int d = 0; d < b.rank - 2; ++d) {
    if (b.strides[d] == 0 && b.sizes[d] > 1) return {};  // would be made again and again
  }
  const int64_t width = PanelWidthOf<float>();
  const int64_t depth = b.sizes[b.rank - 2];
  const int64_t cols = RoundUp(b.sizes[b.rank - 1], width);
  const int64_t entries = EntryCount(b, 2);
  const bool has_pairs = HasPairPanels(b.dtype);
  if (has_pairs && a.dtype != b.dtype) return {};
  const int parts = has_pairs ? 1 : UsesParts(a, b.dtype, a.sizes[a.rank - 2], depth) ? UnitPartsOf(b.dtype) : 0;
  if (parts == 0) return {entries * depth * cols * ItemSize(b.dtype), WritePanels};
  const int64_t bytes = parts * simd::EvenDepth(depth) * cols * static_cast<int64_t>(sizeof(BFloat16)) +
                        DivideUp(depth, kBlockDepth) * cols / width;  // panels, and a byte of each
  return {entries * bytes, has_pairs ? WritePairs : WriteParts};
}

}  // namespace reprise::kernels
