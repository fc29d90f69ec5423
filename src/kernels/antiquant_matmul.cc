// SPDX-License-Identifier: Apache-2.0
#include "kernels/antiquant_matmul.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cast.h"
#include "kernels/simd/bfloat16_pairs.h"
#include "kernels/simd/bfloat16_tile.h"
#include "kernels/simd/low_bits.h"
#include "kernels/simd/matmul_tile.h"
#include "kernels/simd/matrix_unit.h"

namespace reprise::kernels {
namespace {

constexpr int64_t kCols = kAntiquantColumns;
constexpr int64_t kDepth = 256;  // of panels; a multiple of what an element holds
constexpr int64_t kBlockRows = 132;
constexpr int64_t kPanelRows = 4 * kBlockRows;  // of x, which share a panel
constexpr int64_t kLeftStride = kDepth + 16;
constexpr int64_t kUnitLeftStride = kDepth + simd::kUnitDepth;  // for the matrix unit, which reads whole lines
constexpr int64_t kMostStep = 32;                               // of simd::LowBitsStep()
// Up to so many rows the numbers of a weight are multiplied where they lie.
constexpr int64_t kFewRows = 16;
// From so many on they become bfloat16, where x is that and its pairs are multiplied.
constexpr int64_t kLeastPairRows = 6;
// Groups of the depth whose scales are read at a time.
constexpr int64_t kMostPairGroups = 16;
// For few rows: numbers of a row of x at a time, by how many rows there are, and groups at a time.
constexpr int64_t kMostSpread = 4096;
constexpr int64_t kMostGroups = 128;
// Columns that are read as one run.
constexpr int64_t kRun = 2048;

constexpr int64_t kLineBytes = 64;
constexpr int64_t kGroupsAhead = 2;  // whose scales are asked for

constexpr int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

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

// The number of row k and column n, from an element that holds several.
float NumberAt(const AntiquantWeight& w, int64_t k, int64_t n) {
  if (w.is_prepared) {
    const auto* const pairs = static_cast<const uint8_t*>(w.weight.data);
    return static_cast<float>(simd::PreparedNumber(pairs, w.weight.sizes[0], k, n));
  }
  const int64_t numbers = NumbersIn(w.weight.dtype);
  const bool along_rows = w.packing == Packing::kAlongRows;
  const char* const word = along_rows ? At(w.weight, k, n / numbers) : At(w.weight, k / numbers, n);
  uint32_t bits = 0;
  std::memcpy(&bits, word, static_cast<size_t>(ItemSize(w.weight.dtype)));
  // To the top and back, which extends the sign.
  const auto shift = static_cast<uint32_t>(28 - 4 * ((along_rows ? n : k) % numbers));
  return static_cast<float>(static_cast<int32_t>(bits << shift) >> 28);
}

// How the numbers of a weight lie.
enum class Lines : uint8_t {
  kRows,     // those of a row back to back
  kColumns,  // those of a column
  kNeither,  // otherwise, or a byte has numbers of two groups
};

Lines LinesOf(const AntiquantWeight& w, int64_t depth) {
  const TensorRef& weight = w.weight;
  const bool has_rows = weight.strides[1] == 1 || weight.sizes[1] == 1;
  const bool has_columns = weight.strides[0] == 1 || weight.sizes[0] == 1;
  switch (w.packing) {
    case Packing::kNone:
      return weight.dtype != DType::kInt8 ? Lines::kNeither
             : has_rows                   ? Lines::kRows
             : has_columns                ? Lines::kColumns
                                          : Lines::kNeither;
    case Packing::kAlongRows: return has_rows ? Lines::kRows : Lines::kNeither;
    default: return has_columns && (w.group % 2 == 0 || w.group >= depth) ? Lines::kColumns : Lines::kNeither;
  }
}

// Parts of bfloat16 whose sum a number of x is, if pairs of them are multiplied; else 0.
int PartsOf(const TensorRef& x, const AntiquantWeight& w) {
  const bool has_pairs = w.packing == Packing::kAlongRows && LinesOf(w, x.sizes[1]) == Lines::kRows &&
                         (w.group % 2 == 0 || w.group >= x.sizes[1]) && x.sizes[0] <= MostPreparedAntiquantRows();
  if (!has_pairs) return 0;
  return x.dtype == DType::kBFloat16 ? 1 : x.dtype == DType::kFloat16 ? 2 : 0;
}

// Whether blocks of the weight become panels of pairs, rather than of float32, and what multiplies them.
enum class PairTilesOf : uint8_t { kNone, kInstruction, kMatrixUnit };
PairTilesOf FindPairTiles(const TensorRef& x, const AntiquantWeight& w) {
  const int64_t depth = x.sizes[1];
  if (LinesOf(w, depth) == Lines::kNeither || x.sizes[0] < kLeastPairRows || depth == 0) return PairTilesOf::kNone;
  const auto has_groups_of = [&](int64_t n) { return w.group % n == 0 || w.group >= depth; };
  const bool has_16_bits = x.dtype == DType::kBFloat16 || x.dtype == DType::kFloat16;
  if (has_16_bits && has_groups_of(simd::kUnitDepth) && simd::HasMatrixUnit()) return PairTilesOf::kMatrixUnit;
  return x.dtype == DType::kBFloat16 && has_groups_of(2) && simd::HasFastBFloat16Pairs() ? PairTilesOf::kInstruction
                                                                                         : PairTilesOf::kNone;
}

// One call: ranges of columns of one product.
class Product {
 public:
  Product(const TensorRef& x, const AntiquantWeight& weight, const TensorRef& bias, const TensorRef& out, void* scratch)
      : x_(x),
        w_(weight),
        bias_(bias),
        out_(out),
        m_(out.sizes[0]),
        k_(x.sizes[1]),
        lines_(LinesOf(weight, k_)),
        parts_(PartsOf(x, weight)),
        pair_tiles_(parts_ == 0 ? FindPairTiles(x, weight) : PairTilesOf::kNone),
        store_(FindCast(DType::kFloat, out.dtype)) {
    left_ = static_cast<float*>(scratch);
    right_ = left_ + kLeftFloats;
    c_ = right_ + kRightFloats;
    factors_ = c_ + kSumFloats;
    group_sums_ = factors_ + kFactorFloats;
    bytes_ = reinterpret_cast<uint8_t*>(group_sums_ + kGroupSumFloats);
  }

  static constexpr int64_t kLeftFloats = kPanelRows * kUnitLeftStride;
  static constexpr int64_t kRightFloats = kDepth * kCols;
  static constexpr int64_t kSumFloats = kPanelRows * kCols;
  static constexpr int64_t kFactorFloats = 2 * (kRun + simd::kPairColumns);
  static constexpr int64_t kOffsets = kFactorFloats / 2;  // behind scales
  static constexpr int64_t kGroupSumFloats = kMostPairGroups * kPanelRows;
  static constexpr int64_t kBytes = kDepth * kCols;

  void Run(int64_t begin, int64_t end) {
    if (parts_ != 0 && k_ > 0) {
      const int64_t run = std::min(m_ == 1 ? kRun : kRun / 2, kSumFloats / m_ / kCols * kCols);
      for (int64_t n = begin; n < end; n += run) StreamPairs(n, std::min(run, end - n));
    } else if (pair_tiles_ != PairTilesOf::kNone) {
      RunTiles([&](int64_t m0, int64_t rows, int64_t n, int64_t cols) { PairTiles(m0, rows, n, cols); }, begin, end);
    } else if (m_ <= kFewRows && lines_ == Lines::kColumns && k_ > 0) {
      for (int64_t n = begin; n < end; n += kCols) StreamColumns(n, std::min(kCols, end - n));
    } else if (m_ <= kFewRows && lines_ == Lines::kRows && k_ > 0) {
      const int64_t run = m_ == 1 ? kRun : kRun / 2;
      for (int64_t n = begin; n < end; n += run) StreamRows(n, std::min(run, end - n));
    } else {
      RunTiles([&](int64_t m0, int64_t rows, int64_t n, int64_t cols) { Tiles(m0, rows, n, cols); }, begin, end);
    }
  }

 private:
  // Calls fn(m0, rows, n, cols) for blocks of columns [begin, end).
  template <class Fn>
  void RunTiles(Fn&& fn, int64_t begin, int64_t end) {
    for (int64_t m0 = 0; m0 < m_; m0 += kPanelRows) {
      const int64_t rows = std::min(kPanelRows, m_ - m0);
      const int64_t most = std::min(kRun, kSumFloats / rows / kCols * kCols);
      for (int64_t n = begin; n < end; n += most) fn(m0, rows, n, std::min(most, end - n));
    }
  }

  bool has_offset() const { return w_.offset.data != nullptr; }

  // Numbers from row k and column n on; k and n are multiples of what an element holds along their dim.
  simd::LowBits Numbers(int64_t k, int64_t n) const {
    const int64_t item = ItemSize(w_.weight.dtype);
    const bool is_packed = w_.packing != Packing::kNone;
    const auto* const from = reinterpret_cast<const uint8_t*>(w_.weight.data);
    const auto bytes = [&](int64_t numbers) { return is_packed ? numbers / 2 : numbers; };
    if (lines_ == Lines::kRows) {
      const int64_t stride = w_.weight.sizes[0] == 1 ? 0 : w_.weight.strides[0] * item;
      return {from + k * stride + bytes(n), stride, is_packed};
    }
    const int64_t stride = w_.weight.sizes[1] == 1 ? 0 : w_.weight.strides[1] * item;
    return {from + n * stride + bytes(k), stride, is_packed};
  }

  // A line of scales or offsets, zeros behind it.
  void ReadFactors(const TensorRef& ref, int64_t group, int64_t n, int64_t cols, float* to) const {
    ReadLine(ref, group, n, 1, cols, to);
    std::fill(to + cols, to + RoundUp(cols, kMostStep), 0.0F);
  }

  // Few rows; columns of the weight are read one after the other.
  void StreamColumns(int64_t n, int64_t cols) {
    // The depth in parts of whole groups, or a long group in parts.
    const int64_t most = m_ == 1 ? kMostSpread : m_ == 2 ? kMostSpread / 2 : kMostSpread / 4;
    const int64_t group = std::min(w_.group, most);
    const int64_t groups =
        group < w_.group ? 1 : std::clamp<int64_t>(most / simd::SpreadLength(group, group), 1, kMostGroups);
    const int64_t left_stride = most + kMostStep;
    float* const line = c_ + kSumFloats / 2;  // a row of x
    float* const offsets = right_ + kRightFloats / 2;
    for (int64_t k0 = 0; k0 < k_;) {
      int64_t depth = std::min(k_ - k0, group * groups);
      if (group < w_.group) depth = std::min(depth, w_.group - k0 % w_.group);  // a part of one group
      for (int64_t i = 0; i < m_; ++i) {
        ReadLine(x_, i, k0, 1, depth, line);
        simd::SpreadRow(line, depth, group, w_.packing != Packing::kNone, left_ + i * left_stride);
      }
      const int64_t first = k0 / w_.group;
      const int64_t count = (depth + group - 1) / group;
      ReadGroups(w_.scale, first, count, n, cols, right_);
      if (has_offset()) ReadGroups(w_.offset, first, count, n, cols, offsets);
      simd::MultiplyLowBitsByColumns({Numbers(k0, n), left_, left_stride, right_, has_offset() ? offsets : nullptr,
                                      kCols, group, c_, kCols, m_, cols, depth, k0 != 0});
      k0 += depth;
    }
    Store(0, m_, n, cols, kCols);
  }

  // to[g * kCols + j] = element (first + g, n + j), along the dim in which they lie closer.
  void ReadGroups(const TensorRef& ref, int64_t first, int64_t count, int64_t n, int64_t cols, float* to) const {
    const bool by_columns = ref.sizes[0] > 1 && ref.sizes[1] > 1 && ref.strides[0] < ref.strides[1];
    if (!by_columns) {
      for (int64_t g = 0; g < count; ++g) ReadLine(ref, first + g, n, 1, cols, to + g * kCols);
      return;
    }
    float line[kMostGroups];
    for (int64_t j = 0; j < cols; ++j) {
      ReadLine(ref, first, n + j, 0, count, line);
      for (int64_t g = 0; g < count; ++g) to[g * kCols + j] = line[g];
    }
  }

  // Few rows; rows of the weight are read side by side.
  void StreamRows(int64_t n, int64_t cols) {
    const bool is_packed = w_.packing != Packing::kNone;
    const int64_t stride = RoundUp(cols, kMostStep);
    float* const scale = factors_;
    float* const offset = factors_ + kOffsets;
    std::fill_n(c_, m_ * stride, 0.0F);
    int64_t last_group = -1;
    for (int64_t k0 = 0; k0 < k_; k0 += kMostSpread) {
      const int64_t part = std::min(kMostSpread, k_ - k0);
      for (int64_t i = 0; i < m_; ++i) ReadLine(x_, i, k0, 1, part, left_ + i * kMostSpread);
      for (int64_t begin = k0; begin < k0 + part;) {
        const int64_t group = begin / w_.group;
        const int64_t end = std::min(k0 + part, (group + 1) * w_.group);
        if (group != last_group) {
          ReadFactors(w_.scale, group, n, cols, scale);
          simd::OrderLine(scale, stride, is_packed);
          if (has_offset()) {
            ReadFactors(w_.offset, group, n, cols, offset);
            simd::OrderLine(offset, stride, is_packed);
          }
          last_group = group;
        }
        simd::MultiplyLowBitsByRows({Numbers(begin, n), left_ + (begin - k0), kMostSpread, scale,
                                     has_offset() ? offset : nullptr, c_, stride, m_, cols, end - begin});
        begin = end;
      }
    }
    for (int64_t i = 0; i < m_; ++i) simd::RestoreLine(c_ + i * stride, stride, is_packed);
    Store(0, m_, n, cols, stride);
  }

  // Few rows of 16 bits and numbers of 4 bits along rows, which are read side by side, or prepared.
  void StreamPairs(int64_t n, int64_t cols) {
    const int64_t stride = RoundUp(cols, simd::kPairColumns);
    float* const line = right_;  // a row of x
    auto* const pairs = reinterpret_cast<uint32_t*>(left_);
    const int64_t most = std::min(kMostSpread, 2 * kLeftFloats / (m_ * parts_) / kMostStep * kMostStep);
    std::fill_n(c_, m_ * stride, 0.0F);
    bool has_others = false;
    for (int64_t k0 = 0; k0 < k_; k0 += most) {
      const int64_t part = std::min(most, k_ - k0);
      for (int64_t i = 0; i < m_; ++i) {
        ReadLine(x_, i, k0, 1, part, line);
        has_others |= simd::SpreadPairs(line, part, parts_, pairs + i * parts_ * (most / 2), most / 2);
      }
      simd::LowBitsPairs block = {};
      block.left = pairs;
      block.left_stride = most / 2;
      block.parts = parts_;
      block.c = c_;
      block.c_stride = stride;
      block.rows = m_;
      block.is_prepared = w_.is_prepared;
      if (!w_.is_prepared) {
        AddGroups(block, k0, part, n, cols);
        continue;
      }
      for (int64_t j = 0; j < cols; j += simd::kPairColumns, block.c += simd::kPairColumns) {
        AddGroups(block, k0, part, n + j, std::min(simd::kPairColumns, cols - j));
      }
    }
    for (int64_t i = 0; !w_.is_prepared && i < m_; ++i) simd::RestorePairLine(c_ + i * stride, stride);
    if (has_others) AddBesidePairs(n, cols, stride);
    Store(0, m_, n, cols, stride);
  }

  // Products of rows [k0, k0 + part) and columns [n, n + cols), group by group.
  void AddGroups(simd::LowBitsPairs block, int64_t k0, int64_t part, int64_t n, int64_t cols) const {
    block.scale = factors_;
    block.offset = has_offset() ? factors_ + kOffsets : nullptr;
    block.cols = cols;
    for (int64_t begin = k0; begin < k0 + part; begin += block.depth) {
      const int64_t group = begin / w_.group;
      block.depth = std::min(k0 + part, (group + 1) * w_.group) - begin;
      ReadPairFactors(w_.scale, group, n, cols, factors_);
      if (has_offset()) ReadPairFactors(w_.offset, group, n, cols, factors_ + kOffsets);
      if (w_.is_prepared) {
        const auto* const tiles = static_cast<const uint8_t*>(w_.weight.data);
        block.weight.data = tiles + simd::PreparedPairsBytes(k_, n) + begin * simd::kPairColumns / 2;
      } else {
        block.weight = Numbers(begin, n);
      }
      simd::MultiplyLowBitsPairs(block);
      block.left += block.depth / 2;
    }
  }

  void ReadPairFactors(const TensorRef& ref, int64_t group, int64_t n, int64_t cols, float* to) const {
    ReadLine(ref, group, n, 1, cols, to);
    // Those of the next group lie too far away for the processor to foresee.
    const char* const next = At(ref, std::min(group + kGroupsAhead, ref.sizes[0] - 1), n);
    for (int64_t l = 0; l < cols * ItemSize(ref.dtype); l += kLineBytes) __builtin_prefetch(next + l);
    const int64_t reach = RoundUp(cols, simd::kPairColumns);
    std::fill(to + cols, to + reach, 0.0F);
    if (!w_.is_prepared) simd::OrderPairLine(to, reach);
  }

  // Products of numbers of x that pairs leave out: rare, and one by one.
  void AddBesidePairs(int64_t n, int64_t cols, int64_t stride) {
    float* const scale = factors_;
    float* const offset = factors_ + kOffsets;
    for (int64_t i = 0; i < m_; ++i) {
      for (int64_t k = 0; k < k_; ++k) {
        float value = 0;
        ReadLine(x_, i, k, 1, 1, &value);
        if (!simd::IsBesidePairs(value)) continue;
        ReadFactors(w_.scale, k / w_.group, n, cols, scale);
        if (has_offset()) ReadFactors(w_.offset, k / w_.group, n, cols, offset);
        for (int64_t j = 0; j < cols; ++j) {
          c_[i * stride + j] += value * (NumberAt(w_, k, n + j) + (has_offset() ? offset[j] : 0)) * scale[j];
        }
      }
    }
  }

  // Rows [m0, m0 + rows), the weight unpacked block by block.
  void Tiles(int64_t m0, int64_t rows, int64_t n, int64_t cols) {
    const int64_t stride = RoundUp(cols, kMostStep);
    if (k_ == 0) std::fill_n(c_, rows * stride, 0.0F);
    for (int64_t k0 = 0; k0 < k_; k0 += kDepth) TileBlock(m0, rows, k0, n, cols, stride);
    Store(m0, rows, n, cols, stride);
  }

  // One block of the depth, from k0 on.
  void TileBlock(int64_t m0, int64_t rows, int64_t k0, int64_t n, int64_t cols, int64_t stride) {
    const int64_t width = simd::PanelWidth(float());
    const int64_t depth = std::min(kDepth, k_ - k0);
    for (int64_t r = 0; r < rows; ++r) ReadLine(x_, m0 + r, k0, 1, depth, left_ + r * kLeftStride);
    for (int64_t j = 0; j < cols; j += kCols) {
      const int64_t part = std::min(kCols, cols - j);
      Unpack(k0, depth, n + j, part, width);
      for (int64_t i = 0; i < rows; i += kBlockRows) {
        simd::MultiplyBlock({left_ + i * kLeftStride, kLeftStride}, {right_, width * depth, width}, c_ + i * stride + j,
                            stride, std::min(kBlockRows, rows - i), RoundUp(part, width), depth, k0 != 0);
      }
    }
  }

  // The same by pairs of bfloat16: numbers are multiplied, and the sums of each group by its scale.
  void PairTiles(int64_t m0, int64_t rows, int64_t n, int64_t cols) {
    const int64_t stride = RoundUp(cols, kMostStep);
    for (int64_t k0 = 0; k0 < k_; k0 += kDepth) {
      const int64_t depth = std::min(kDepth, k_ - k0);
      if (!CopyLeft(m0, rows, k0, depth)) {
        TileBlock(m0, rows, k0, n, cols, stride);
        continue;
      }
      for (int64_t j = 0; j < cols; j += kCols) {
        const int64_t part = std::min(kCols, cols - j);
        const simd::LowBits lines = BlockLines(k0, depth, n + j, part);
        for (int64_t begin = 0; begin < depth;) {
          PairGroupRun run = ReadPairGroups(k0, begin, depth, n + j, part);
          // What is read next: as much of the next columns, or of the first ones of the next rows.
          simd::NextRead next;
          if (j + part < cols) {
            next = NextLines(k0 + begin, run.end - begin, n + j + part, std::min(kCols, cols - j - part));
          } else if (k0 + kDepth + run.end <= k_) {
            next = NextLines(k0 + kDepth + begin, run.end - begin, n, std::min(kCols, cols));
          }
          MultiplyGroups(lines, begin, run, rows, part, c_ + j, stride, k0 + begin != 0, next);
          begin = run.end;
        }
      }
    }
    Store(m0, rows, n, cols, stride);
  }

  // How x lies in left_ then: a part of it, or two, behind each other.
  int left_parts() const { return x_.dtype == DType::kFloat16 ? 2 : 1; }
  int64_t left_stride() const { return pair_tiles_ == PairTilesOf::kMatrixUnit ? kUnitLeftStride : kLeftStride; }
  int64_t left_part_stride() const { return kPanelRows * left_stride(); }

  // Rows of x to left_, with a 0 behind them, and what is to be known about them. \return false: pairs do not give the
  // sums
  bool CopyLeft(int64_t m0, int64_t rows, int64_t k0, int64_t depth) {
    auto* const left = reinterpret_cast<BFloat16*>(left_);
    const int64_t x_stride = x_.sizes[1] == 1 ? 0 : x_.strides[1] * ItemSize(x_.dtype);
    const CastFn copy = FindCast(x_.dtype, x_.dtype);
    const int64_t tile = pair_tiles_ == PairTilesOf::kMatrixUnit ? simd::kUnitRows : rows;
    for (int64_t r = 0; r < rows; ++r) {
      BFloat16* const to = left + r * left_stride();
      uint8_t& least = leasts_[r / tile];
      if (left_parts() == 2) {
        Half line[kDepth];
        copy(At(x_, m0 + r, k0), x_stride, reinterpret_cast<char*>(line), sizeof(Half), depth);
        const uint8_t of_row = simd::SplitParts(line, depth, to, left_part_stride());
        if (of_row == 0) return false;
        least = r % tile == 0 ? of_row : std::min(least, of_row);
        to[left_part_stride() + depth] = BFloat16();
      } else {
        copy(At(x_, m0 + r, k0), x_stride, reinterpret_cast<char*>(to), sizeof(BFloat16), depth);
      }
      to[depth] = BFloat16();
    }
    if (left_parts() == 2) return true;
    for (int64_t r = 0; r < rows; r += tile) {
      leasts_[r / tile] =
          simd::LeastExponent({left + r * left_stride(), left_stride()}, std::min(tile, rows - r), depth);
    }
    return !has_offset() || !HasInfiniteSum(rows, depth);  // an offset may not be multiplied by itself then
  }

  // Whether the sum of some row of x is infinite, or no number.
  bool HasInfiniteSum(int64_t rows, int64_t depth) {
    simd::SumRows({reinterpret_cast<BFloat16*>(left_), left_stride()}, rows, depth, group_sums_);
    return std::any_of(group_sums_, group_sums_ + rows, [](float sum) { return !std::isfinite(sum); });
  }

  // Groups, or parts of them, of a block of the depth up to row `end`; their scales and offsets are in factors_.
  struct PairGroupRun {
    int64_t steps[kMostPairGroups];
    int64_t ends[kMostPairGroups];
    int64_t count = 0;
    int64_t end = 0;
  };
  PairGroupRun ReadPairGroups(int64_t k0, int64_t begin, int64_t depth, int64_t n, int64_t cols) const {
    PairGroupRun run;
    for (; begin < depth && run.count < kMostPairGroups; ++run.count) {
      const int64_t group = (k0 + begin) / w_.group;
      run.end = std::min(depth, (group + 1) * w_.group - k0);
      run.steps[run.count] = simd::EvenDepth(run.end - begin) / 2;
      run.ends[run.count] = run.end;
      ReadFactors(w_.scale, group, n, cols, factors_ + run.count * kCols);
      if (has_offset()) ReadFactors(w_.offset, group, n, cols, factors_ + kOffsets + run.count * kCols);
      begin = run.end;
    }
    return run;
  }

  // Rows from `begin` on of a block.
  void MultiplyGroups(simd::LowBits lines, int64_t begin, const PairGroupRun& run, int64_t rows, int64_t cols, float* c,
                      int64_t stride, bool accumulates, const simd::NextRead& next) {
    const bool is_packed = w_.packing != Packing::kNone;
    const auto numbers = !is_packed               ? simd::PairNumbers::kBytes
                         : lines_ == Lines::kRows ? simd::PairNumbers::kHalves
                                                  : simd::PairNumbers::kColumns;
    lines.data += (numbers == simd::PairNumbers::kColumns ? begin / 2 : begin) * lines.stride;
    auto* const panels = reinterpret_cast<BFloat16*>(right_);
    simd::PairPanelsOfNumbers(lines, numbers, cols, run.end - begin, panels);
    const simd::LeftRows<BFloat16> left = {reinterpret_cast<BFloat16*>(left_) + begin, left_stride()};
    simd::PairGroups groups = {run.steps, run.count, factors_, nullptr, kCols, nullptr, kPanelRows};
    if (has_offset()) {
      SumGroups(left, begin, run, rows);
      groups.offset = factors_ + kOffsets;
      groups.left_sums = group_sums_;
    }
    const int64_t padded = RoundUp(cols, simd::kPairPanelWidth);
    if (pair_tiles_ == PairTilesOf::kMatrixUnit) {
      simd::MultiplyUnitGroups({left.data, left.row_stride, left_part_stride(), left_parts(), leasts_}, panels, groups,
                               c, stride, rows, padded, accumulates, &next);
    } else {
      simd::MultiplyPairGroups(left, leasts_[0], panels, groups, c, stride, rows, padded, accumulates, &next);
    }
  }

  // The sums of rows of x, of all parts, group by group.
  void SumGroups(const simd::LeftRows<BFloat16>& left, int64_t begin, const PairGroupRun& run, int64_t rows) {
    float second[kPanelRows];
    int64_t at = begin;
    for (int64_t g = 0; g < run.count; at = run.ends[g++]) {
      float* const sums = group_sums_ + g * kPanelRows;
      simd::LeftRows<BFloat16> part = {left.data + (at - begin), left.row_stride};
      simd::SumRows(part, rows, run.ends[g] - at, sums);
      if (left_parts() == 1) continue;
      part.data += left_part_stride();
      simd::SumRows(part, rows, run.ends[g] - at, second);
      for (int64_t i = 0; i < rows; ++i) sums[i] += second[i];
    }
  }

  // Where rows [k0, k0 + depth) of columns [n, n + cols) lie.
  simd::NextRead NextLines(int64_t k0, int64_t depth, int64_t n, int64_t cols) const {
    const int share = w_.packing == Packing::kNone ? 2 : 4;
    const simd::LowBits lines = Numbers(k0, n);
    const bool has_rows = lines_ == Lines::kRows;
    const int64_t bytes = (has_rows ? cols : depth) * 2 / share;
    return {reinterpret_cast<const char*>(lines.data),
            has_rows ? depth : cols,
            lines.stride,
            std::max<int64_t>(1, bytes),
            false,
            share};
  }

  // Rows [k0, k0 + depth) of columns [n, n + cols), one after the other, or two of them if they share bytes.
  simd::LowBits BlockLines(int64_t k0, int64_t depth, int64_t n, int64_t cols) const {
    const bool is_packed = w_.packing != Packing::kNone;
    const simd::LowBits numbers = Numbers(k0, n);
    if (lines_ == Lines::kRows) return numbers;
    simd::TransposeBytes(numbers.data, numbers.stride, cols, is_packed ? (depth + 1) / 2 : depth, bytes_, kCols);
    return {bytes_, kCols, is_packed};
  }

  // Rows [k0, k0 + depth) of columns [n, n + cols) as panels in right_.
  void Unpack(int64_t k0, int64_t depth, int64_t n, int64_t cols, int64_t width) {
    const bool is_packed = w_.packing != Packing::kNone;
    float* const scale = factors_;
    float* const offset = factors_ + kOffsets;
    const simd::LowBits lines = lines_ == Lines::kNeither ? simd::LowBits{} : BlockLines(k0, depth, n, cols);
    for (int64_t begin = 0; begin < depth;) {
      const int64_t group = (k0 + begin) / w_.group;
      const int64_t end = std::min(depth, (group + 1) * w_.group - k0);
      ReadFactors(w_.scale, group, n, cols, scale);
      if (has_offset()) ReadFactors(w_.offset, group, n, cols, offset);
      if (lines_ == Lines::kNeither) {
        for (int64_t k = begin; k < end; ++k) UnpackRow(k0 + k, k, n, cols, depth, width, scale, offset);
      } else {
        simd::LowBitsPanels block = {lines, scale, has_offset() ? offset : nullptr, cols, end - begin, right_, width,
                                     depth, begin};
        if (lines_ == Lines::kRows) {
          for (float* line : {scale, offset}) simd::OrderLine(line, RoundUp(cols, kMostStep), is_packed);
          block.weight.data += begin * lines.stride;
          simd::LowBitsRowsToPanels(block);
        } else {
          block.weight.data += (is_packed ? begin / 2 : begin) * lines.stride;
          simd::LowBitsLinesToPanels(block);
        }
      }
      begin = end;
    }
  }

  // One row of any weight to row `at` of the panels.
  void UnpackRow(int64_t k, int64_t at, int64_t n, int64_t cols, int64_t depth, int64_t width, const float* scale,
                 const float* offset) {
    float row[kCols + kMostStep] = {};
    if (w_.packing == Packing::kNone) {
      ReadLine(w_.weight, k, n, 1, cols, row);
    } else {
      for (int64_t j = 0; j < cols; ++j) row[j] = NumberAt(w_, k, n + j);
    }
    for (int64_t j = 0; j < cols; ++j) row[j] = (row[j] + (has_offset() ? offset[j] : 0)) * scale[j];
    for (int64_t j = 0; j < cols; j += width) std::copy_n(row + j, width, right_ + j * depth + at * width);
  }

  // Sums of rows [m0, m0 + rows) and columns [n, n + cols), whose rows are `stride` apart, to out.
  void Store(int64_t m0, int64_t rows, int64_t n, int64_t cols, int64_t stride) {
    if (bias_.data != nullptr) {
      const int64_t step = bias_.sizes[0] == 1 ? 0 : bias_.strides[0] * ItemSize(bias_.dtype);
      FindCast(bias_.dtype, DType::kFloat)(static_cast<const char*>(bias_.data) + n * step, step,
                                           reinterpret_cast<char*>(factors_), sizeof(float), cols);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j) c_[i * stride + j] += factors_[j];
      }
    }
    const int64_t item = ItemSize(out_.dtype);
    for (int64_t i = 0; i < rows; ++i) {
      store_(reinterpret_cast<const char*>(c_ + i * stride), sizeof(float),
             static_cast<char*>(out_.data) + ((m0 + i) * out_.strides[0] + n * out_.strides[1]) * item,
             out_.strides[1] * item, cols);
    }
  }

  const TensorRef& x_;
  const AntiquantWeight& w_;
  const TensorRef& bias_;
  const TensorRef& out_;
  const int64_t m_, k_;
  const Lines lines_;
  const int parts_;
  const PairTilesOf pair_tiles_;
  const CastFn store_;
  float* left_;
  float* right_;
  float* c_;
  float* factors_;
  float* group_sums_;  // of rows of x
  uint8_t* bytes_;
  uint8_t leasts_[kPanelRows / simd::kUnitRows] = {};
};

}  // namespace

int64_t PreparedAntiquantBytes(const TensorRef& x, const AntiquantWeight& weight) {
  if (PartsOf(x, weight) == 0) return 0;
  return simd::PreparedPairsBytes(weight.weight.sizes[0], weight.weight.sizes[1] * NumbersIn(weight.weight.dtype));
}

int64_t MostPreparedAntiquantRows() {
  if (!simd::HasBFloat16Pairs()) return 0;
  return simd::HasFastBFloat16Pairs() ? simd::kMostPairRows : kLeastPairRows - 1;
}

void PrepareAntiquant(const TensorRef& weight, void* to) {
  const int64_t stride = weight.sizes[0] == 1 ? 0 : weight.strides[0] * ItemSize(weight.dtype);
  simd::PreparePairs({static_cast<const uint8_t*>(weight.data), stride, true}, weight.sizes[0],
                     weight.sizes[1] * NumbersIn(weight.dtype), static_cast<uint8_t*>(to));
}

int64_t AntiquantUnitCount(int64_t columns) { return (columns + kCols - 1) / kCols; }

int64_t AntiquantScratchBytes() {
  return (Product::kLeftFloats + Product::kRightFloats + Product::kSumFloats + Product::kFactorFloats +
          Product::kGroupSumFloats) *
             static_cast<int64_t>(sizeof(float)) +
         Product::kBytes;
}

void AntiquantMatMul(const TensorRef& x, const AntiquantWeight& weight, const TensorRef& bias, const TensorRef& out,
                     Range units, void* scratch) {
  if (units.begin >= units.end) return;
  Product(x, weight, bias, out, scratch).Run(units.begin * kCols, std::min(units.end * kCols, out.sizes[1]));
}

}  // namespace reprise::kernels
