// SPDX-License-Identifier: Apache-2.0
#include "kernels/simd/matrix_unit.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <iterator>

#include "kernels/simd/low_bits.h"
#include "kernels/simd/matrix_instructions.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace reprise::kernels::simd {
namespace {

std::atomic<MatrixUnitUse> use_of_unit{MatrixUnitUse::kShortTypes};

}  // namespace

void SetMatrixUnitUse(MatrixUnitUse use) { use_of_unit.store(use, std::memory_order_relaxed); }
bool HasMatrixUnitForFloat32() {
  return use_of_unit.load(std::memory_order_relaxed) == MatrixUnitUse::kAll && HasMatrixUnit();
}

#if defined(__x86_64__) && defined(__linux__)
namespace {

constexpr int kLanes = 16;
constexpr int64_t kItem = sizeof(BFloat16);
constexpr int64_t kTileBytes = kUnitDepth * kItem;  // of a row of a tile
constexpr int64_t kPanelRow = 2 * kPairPanelWidth;  // elements: a row of pairs
constexpr int64_t kPanelRowBytes = kPanelRow * kItem;
constexpr int64_t kStepPairs = kUnitDepth / 2;

// Not every compiler knows their names for __builtin_cpu_supports.
bool HasTileInstructions() {
  constexpr unsigned kBFloat16 = 1U << 22, kTiles = 1U << 24, kInt8 = 1U << 25;
  constexpr unsigned kAll = kBFloat16 | kTiles | kInt8;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAll) == kAll;
}

// Asks the kernel for the state of tile registers, which a process has by permission only (Linux 5.16).
bool MayUseTiles() {
  constexpr int kRequestPermission = 0x1023;
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// ---- Steps: a tile of 32 or 16 rows and 32 columns, kUnitDepth of the depth ----

// Where the two rows of tiles of a left operand, and a panel, begin; strides and distances of parts in bytes.
struct Places {
  const char* left[2];
  int64_t left_stride[2];
  int64_t left_part[2];
  const char* right;
  int64_t right_part;
};

// Pairs of parts in the order in which their products are added: one operand changes from each to the next, if
// possible.
struct PartPair {
  int left, right;
};
template <int kLeft, int kRight>
struct PartPairs;
template <>
struct PartPairs<1, 1> {
  static constexpr PartPair kOf[] = {{0, 0}};
};
template <>
struct PartPairs<2, 1> {
  static constexpr PartPair kOf[] = {{0, 0}, {1, 0}};
};
template <>
struct PartPairs<2, 2> {
  static constexpr PartPair kOf[] = {{0, 0}, {0, 1}, {1, 1}, {1, 0}};
};
template <>
struct PartPairs<3, 3> {
  static constexpr PartPair kOf[] = {{0, 0}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 2}};
};

// Registers 0 to 3 are sums, 4 and 5 rows of the left operand, 6 and 7 halves of the panel.
template <class Pairs, size_t kIndex, int kTiles>
REPRISE_MATRIX inline __attribute__((always_inline)) void AddProducts(const Places& at) {
  constexpr PartPair kPair = Pairs::kOf[kIndex];
  constexpr PartPair kBefore = kIndex == 0 ? PartPair{-1, -1} : Pairs::kOf[kIndex == 0 ? 0 : kIndex - 1];
  if constexpr (kPair.left != kBefore.left) {
    _tile_loadd(4, at.left[0] + kPair.left * at.left_part[0], at.left_stride[0]);
  }
  if constexpr (kPair.right != kBefore.right) {
    _tile_loadd(6, at.right + kPair.right * at.right_part, kPanelRowBytes);
  }
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kPair.right != kBefore.right) {
    _tile_loadd(7, at.right + kPair.right * at.right_part + kPanelRowBytes / 2, kPanelRowBytes);
  }
  _tile_dpbf16ps(1, 4, 7);
  if constexpr (kTiles == 2) {
    if constexpr (kPair.left != kBefore.left) {
      _tile_loadd(5, at.left[1] + kPair.left * at.left_part[1], at.left_stride[1]);
    }
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  if constexpr (kIndex + 1 < std::size(Pairs::kOf)) AddProducts<Pairs, kIndex + 1, kTiles>(at);
}

// Memory that will be read soon: rows of `row_bytes`, a line after the other. Steps ask for equal shares of it: a burst
// is more than memory gives.
class Ahead {
 public:
  Ahead() = default;
  // For one panel of many, `panel_bytes` each, which take so many steps.
  Ahead(const NextRead* next, int64_t panel, int64_t panel_bytes, int64_t steps) {
    if (next == nullptr || next->data == nullptr || next->row_bytes <= 0) return;
    const int64_t share = panel_bytes / next->share;
    lines_ = (share / kLine + steps - 1) / steps;
    if (next->rows == 1) {
      data_ = next->data + panel * share;
      left_in_row_ = row_bytes_ = INT64_MAX;
      return;
    }
    row_bytes_ = left_in_row_ = next->row_bytes;
    data_ = next->data + panel * share / next->row_bytes * next->row_stride;
    jump_ = next->row_stride - (next->row_bytes + kLine - 1) / kLine * kLine;
  }
  // The share of a step.
  REPRISE_MATRIX inline void Ask() {
    if (data_ == nullptr) return;
    for (int64_t lines = lines_; lines > 0; --lines) {
      __builtin_prefetch(data_, 0, 2);
      data_ += kLine;
      left_in_row_ -= kLine;
      if (left_in_row_ <= 0) {
        data_ += jump_;
        left_in_row_ = row_bytes_;
      }
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const char* data_ = nullptr;  // null: nothing
  int64_t lines_ = 0, row_bytes_ = 0, left_in_row_ = 0, jump_ = 0;
};

// Places of so many steps, and of a last one of fewer places, which are copies with zeros behind them.
struct Depth {
  Places main;
  int64_t steps;
  Places rest;
  bool has_rest;
};

template <int kLeft, int kRight, int kTiles>
REPRISE_MATRIX void SumTiles(const Depth& depth, Ahead& ahead, float* to) {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kTiles == 2) {
    _tile_zero(2);
    _tile_zero(3);
  }
  using Pairs = PartPairs<kLeft, kRight>;
  Places at = depth.main;
  for (int64_t s = 0; s < depth.steps; ++s) {
    ahead.Ask();
    AddProducts<Pairs, 0, kTiles>(at);
    at.left[0] += kTileBytes;
    at.left[1] += kTileBytes;
    at.right += kStepPairs * kPanelRowBytes;
  }
  if (depth.has_rest) {
    ahead.Ask();
    AddProducts<Pairs, 0, kTiles>(depth.rest);
  }
  constexpr int64_t kBytes = kPairPanelWidth * static_cast<int64_t>(sizeof(float));
  _tile_stored(0, to, kBytes);
  _tile_stored(1, to + kLanes, kBytes);
  if constexpr (kTiles == 2) {
    _tile_stored(2, to + kUnitRows * kPairPanelWidth, kBytes);
    _tile_stored(3, to + kUnitRows * kPairPanelWidth + kLanes, kBytes);
  }
}

using SumTilesFn = void (*)(const Depth& depth, Ahead& ahead, float* to);
// For one and two rows of tiles.
using SumTilesFns = SumTilesFn[2];

template <int kLeft, int kRight>
constexpr SumTilesFns kSumTiles = {SumTiles<kLeft, kRight, 1>, SumTiles<kLeft, kRight, 2>};

const SumTilesFns& FindSumTiles(int left, int right) {
  if (left == 3) return kSumTiles<3, 3>;
  if (left == 2) return right == 2 ? kSumTiles<2, 2> : kSumTiles<2, 1>;
  return kSumTiles<1, 1>;
}

// c = the sums of tiles, or += those. (Rows of c may be far apart, in the same few sets of a cache: tiles are not
// stored there.)
REPRISE_MATRIX inline void AddRows(const float* from, int64_t rows, float* c, int64_t c_stride, bool accumulates) {
  for (int64_t i = 0; i < rows; ++i, from += kPairPanelWidth, c += c_stride) {
    for (int64_t v = 0; v < kPairPanelWidth; v += kLanes) {
      __m512 sum = _mm512_loadu_ps(from + v);
      if (accumulates) sum = _mm512_add_ps(_mm512_loadu_ps(c + v), sum);
      _mm512_storeu_ps(c + v, sum);
    }
  }
}

// ---- Blocks ----

// A left operand as rows of tiles: where it lies, but for what a tile would read beyond its end, which is copied.
class LeftTiles {
 public:
  LeftTiles(const UnitLeft& left, int64_t rows, int64_t depth) : left_(left), rows_(rows) {
    const int64_t whole_depth = depth / kUnitDepth * kUnitDepth;
    const int64_t whole_rows = rows / kUnitRows * kUnitRows;
    if (whole_depth < depth) Copy(0, rows, whole_depth, depth - whole_depth, kUnitDepth, rest_rows_);
    if (whole_rows < rows && whole_depth > 0) Copy(whole_rows, rows, 0, whole_depth, kMostUnitDepth, last_rows_);
  }

  void Place(int64_t row, int t, Depth& depth) const {
    const bool is_whole = row + kUnitRows <= rows_;
    depth.main.left[t] = is_whole ? reinterpret_cast<const char*>(left_.data + row * left_.row_stride)
                                  : reinterpret_cast<const char*>(last_rows_);
    depth.main.left_stride[t] = (is_whole ? left_.row_stride : kMostUnitDepth) * kItem;
    depth.main.left_part[t] = (is_whole ? left_.part_stride : kUnitRows * kMostUnitDepth) * kItem;
    depth.rest.left[t] = reinterpret_cast<const char*>(rest_rows_ + row * kUnitDepth);
    depth.rest.left_stride[t] = kTileBytes;
    depth.rest.left_part[t] = kMostUnitRows * kTileBytes;
  }

 private:
  // Rows [begin, end) and as many rows of zeros as a tile lacks; `n` places from `k` on.
  void Copy(int64_t begin, int64_t end, int64_t k, int64_t n, int64_t stride, uint16_t* to) const {
    const int64_t count = (end - begin + kUnitRows - 1) / kUnitRows * kUnitRows;
    const int64_t most = stride == kUnitDepth ? kMostUnitRows : kUnitRows;
    const int64_t width = (n + kUnitDepth - 1) / kUnitDepth * kUnitDepth;
    for (int p = 0; p < left_.parts; ++p, to += most * stride) {
      const BFloat16* from = left_.data + p * left_.part_stride + begin * left_.row_stride + k;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t here = begin + i < end ? n : 0;
        if (here > 0) std::memcpy(to + i * stride, from + i * left_.row_stride, static_cast<size_t>(here * kItem));
        std::memset(to + i * stride + here, 0, static_cast<size_t>((width - here) * kItem));
      }
    }
  }

  const UnitLeft& left_;
  int64_t rows_;
  alignas(64) uint16_t rest_rows_[kMostUnitParts * kMostUnitRows * kUnitDepth];  // bits; left as they are
  alignas(64) uint16_t last_rows_[kMostUnitParts * kUnitRows * kMostUnitDepth];
};

// Rows of the left operand in float32.
REPRISE_MATRIX void SumLeft(const UnitLeft& left, int64_t row, int64_t rows, int64_t depth, float* to) {
  for (int64_t i = 0; i < rows; ++i, to += kMostUnitDepth) {
    const BFloat16* const from = left.data + (row + i) * left.row_stride;
    for (int64_t k = 0; k < depth; k += kLanes) {
      const auto lanes = static_cast<__mmask16>((1U << std::min<int64_t>(kLanes, depth - k)) - 1);
      __m512 sum = _mm512_setzero_ps();
      for (int p = left.parts - 1; p >= 0; --p) {
        const __m256i part = _mm256_maskz_loadu_epi16(lanes, from + p * left.part_stride + k);
        sum = _mm512_add_ps(_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(part), 16)), sum);
      }
      _mm512_mask_storeu_ps(to + k, lanes, sum);
    }
  }
}

// A panel in float32.
REPRISE_MATRIX void SumPanel(const BFloat16* panel, int parts, int64_t part_stride, int64_t depth, float* to) {
  for (int64_t k = 0; k < depth; k += 2, to += 2 * kPairPanelWidth) {
    for (int64_t v = 0; v < kPairPanelWidth; v += kLanes) {
      __m512 even = _mm512_setzero_ps();
      __m512 odd = _mm512_setzero_ps();
      for (int p = parts - 1; p >= 0; --p) {
        const __m512i pairs = _mm512_loadu_si512(panel + p * part_stride + k / 2 * kPanelRow + 2 * v);
        even = _mm512_add_ps(Even(pairs), even);
        odd = _mm512_add_ps(Odd(pairs), odd);
      }
      _mm512_storeu_ps(to + v, even);
      _mm512_storeu_ps(to + kPairPanelWidth + v, odd);
    }
  }
}

}  // namespace

bool HasMatrixUnit() {
  static const bool is_there = __builtin_cpu_supports("avx512bf16") != 0 && HasTileInstructions() && MayUseTiles();
  return is_there && use_of_unit.load(std::memory_order_relaxed) != MatrixUnitUse::kNone && LowBitsStep() == 2 * kLanes;
}

namespace {

// A right operand, panel by panel: where it lies, but for the rest of the depth behind whole steps, which is copied.
class RightTiles {
 public:
  RightTiles(const BFloat16* panels, int parts, int64_t depth)
      : panels_(panels), parts_(parts), steps_(depth / kUnitDepth), rest_pairs_(depth % kUnitDepth / 2) {
    part_stride_ = depth / 2 * kPanelRow;
    if (rest_pairs_ > 0) std::memset(rest_, 0, sizeof rest_);
  }

  const BFloat16* Panel(int64_t p) const { return panels_ + p * parts_ * part_stride_; }
  int64_t part_stride() const { return part_stride_; }  // elements
  int64_t panel_bytes() const { return parts_ * part_stride_ * kItem; }
  // Of `rows` rows, two tiles at a time.
  int64_t StepsFor(int64_t rows) const {
    return (rows + 2 * kUnitRows - 1) / (2 * kUnitRows) * (steps_ + (rest_pairs_ > 0 ? 1 : 0));
  }

  void Place(int64_t p, Depth& depth) {
    const BFloat16* const panel = Panel(p);
    depth.main.right = reinterpret_cast<const char*>(panel);
    depth.main.right_part = part_stride_ * kItem;
    depth.rest.right = reinterpret_cast<const char*>(rest_);
    depth.rest.right_part = kStepPairs * kPanelRowBytes;
    for (int q = 0; rest_pairs_ > 0 && q < parts_; ++q) {
      std::memcpy(rest_ + q * kStepPairs * kPanelRow, panel + q * part_stride_ + steps_ * kStepPairs * kPanelRow,
                  static_cast<size_t>(rest_pairs_ * kPanelRowBytes));
    }
  }

 private:
  const BFloat16* panels_;
  int parts_;
  int64_t steps_, rest_pairs_, part_stride_;
  alignas(64) uint16_t rest_[kMostUnitParts * kStepPairs * kPanelRow];  // bits; left as they are
};

// Rows of the left operand and a panel in float32, for products that the unit cannot make.
class WideBlock {
 public:
  // Rows [row, row + rows).
  LeftRows<float> Left(const UnitLeft& left, int64_t row, int64_t rows, int64_t depth) {
    if (left.numbers.data != nullptr) {
      return {left.numbers.data + row * left.numbers.row_stride, left.numbers.row_stride};
    }
    SumLeft(left, row, rows, depth, left_);
    return {left_, kMostUnitDepth};
  }
  RightPanels<float> Right(const BFloat16* panel, int parts, uint8_t least, int64_t part_stride, int64_t depth) {
    const float* wide = right_;
    if (parts == kMostUnitParts && least == 0) {
      wide = reinterpret_cast<const float*>(panel);
    } else {
      SumPanel(panel, parts, part_stride, depth, right_);
    }
    return {wide, kPairPanelWidth, kPairPanelWidth};
  }

 private:
  alignas(64) float left_[kUnitRows * kMostUnitDepth];
  alignas(64) float right_[kMostUnitDepth * kPairPanelWidth];
};

// Calls fn(i, count, fits) for rows of tiles: two of them at a time where both fit.
template <class Fn>
REPRISE_MATRIX inline void ForRowTiles(const uint8_t* left_least, uint8_t right_least, int64_t rows, Fn& fn) {
  for (int64_t i = 0; i < rows;) {
    const bool fits = HasNoSubnormal(left_least[i / kUnitRows], right_least);
    const bool has_two = fits && i + kUnitRows < rows && HasNoSubnormal(left_least[i / kUnitRows + 1], right_least);
    const int64_t count = std::min(rows - i, has_two ? 2 * kUnitRows : kUnitRows);
    fn.Run(i, count, fits);
    i += count;
  }
}

// c += scale * (sum + offset * the sum of the left row), 32 columns.
REPRISE_MATRIX inline void AddScaledRows(const float* from, int64_t rows, const PairGroups& groups, int64_t group,
                                         int64_t row, float* c, int64_t c_stride) {
  for (int64_t v = 0; v < kPairPanelWidth; v += kLanes) {
    const __m512 scale = _mm512_loadu_ps(groups.scale + group * groups.stride + v);
    const bool has_offset = groups.offset != nullptr;
    const __m512 offset = has_offset ? _mm512_loadu_ps(groups.offset + group * groups.stride + v) : _mm512_setzero_ps();
    for (int64_t i = 0; i < rows; ++i) {
      __m512 sum = _mm512_loadu_ps(from + i * kPairPanelWidth + v);
      if (has_offset) {
        sum = _mm512_fmadd_ps(offset, _mm512_set1_ps(groups.left_sums[group * groups.left_stride + row + i]), sum);
      }
      float* const to = c + i * c_stride + v;
      _mm512_storeu_ps(to, _mm512_fmadd_ps(sum, scale, _mm512_loadu_ps(to)));
    }
  }
}

// What rows of tiles of one panel become.
struct PlainTiles {
  const UnitLeft& left;
  const LeftTiles& left_tiles;
  RightTiles& right_tiles;
  const SumTilesFns& sum_tiles;
  int parts;
  int64_t depth;
  float* c;
  int64_t c_stride;
  bool accumulates;
  int64_t panel = 0;
  uint8_t least = 0;
  Depth at{};
  Ahead ahead{};

  // In float32. By itself, since it takes 48 KiB on the stack and is rare.
  __attribute__((noinline)) void RunWide(int64_t i, int64_t count, float* to) const {
    WideBlock wide;
    MultiplyBlock(wide.Left(left, i, count, depth),
                  wide.Right(right_tiles.Panel(panel), parts, least, right_tiles.part_stride(), depth), to, c_stride,
                  count, kPairPanelWidth, depth, accumulates);
  }

  REPRISE_MATRIX inline void Run(int64_t i, int64_t count, bool fits) {
    float* const to = c + i * c_stride + panel * kPairPanelWidth;
    if (!fits) return RunWide(i, count, to);
    const bool has_two = count > kUnitRows;
    left_tiles.Place(i, 0, at);
    if (has_two) left_tiles.Place(i + kUnitRows, 1, at);
    alignas(64) float sums[2 * kUnitRows * kPairPanelWidth];
    sum_tiles[has_two](at, ahead, sums);
    AddRows(sums, count, to, c_stride, accumulates);
  }
};

struct GroupTiles {
  const UnitLeft& left;
  const LeftTiles& left_tiles;
  RightTiles& right_tiles;
  const SumTilesFns& sum_tiles;
  PairGroups groups;
  int64_t first_row;
  int64_t depth;
  float* c;
  int64_t c_stride;
  bool accumulates;
  int64_t panel = 0;
  Depth at{};
  Ahead ahead{};

  // In float32, as above.
  __attribute__((noinline)) void RunWide(int64_t i, int64_t count, float* to) const {
    WideBlock wide;
    LeftRows<float> wide_left = wide.Left(left, i, count, depth);
    RightPanels<float> wide_right =
        wide.Right(right_tiles.Panel(panel), 1, kLeastOfNumbers, right_tiles.part_stride(), depth);
    alignas(64) float sums[kUnitRows * kPairPanelWidth];
    for (int64_t g = 0; g < groups.count; ++g) {
      const int64_t places = 2 * groups.steps[g];
      MultiplyBlock(wide_left, wide_right, sums, kPairPanelWidth, count, kPairPanelWidth, places, false);
      AddScaledRows(sums, count, groups, g, first_row + i, to, c_stride);
      wide_left.data += places;
      wide_right.data += places * kPairPanelWidth;
    }
  }

  REPRISE_MATRIX inline void Run(int64_t i, int64_t count, bool fits) {
    float* const to = c + i * c_stride + panel * kPairPanelWidth;
    for (int64_t r = 0; !accumulates && r < count; ++r) std::fill_n(to + r * c_stride, kPairPanelWidth, 0.0F);
    if (!fits) return RunWide(i, count, to);
    const bool has_two = count > kUnitRows;
    left_tiles.Place(i, 0, at);
    if (has_two) left_tiles.Place(i + kUnitRows, 1, at);
    alignas(64) float sums[2 * kUnitRows * kPairPanelWidth];
    Depth group = at;
    for (int64_t g = 0; g < groups.count; ++g) {
      const int64_t pairs = groups.steps[g];
      group.steps = pairs / kStepPairs;
      group.has_rest = pairs % kStepPairs != 0;
      sum_tiles[has_two](group, ahead, sums);
      AddScaledRows(sums, count, groups, g, first_row + i, to, c_stride);
      group.main.left[0] += group.steps * kTileBytes;
      group.main.left[1] += group.steps * kTileBytes;
      group.main.right += group.steps * kStepPairs * kPanelRowBytes;
    }
  }
};

}  // namespace

REPRISE_MATRIX void MultiplyUnitBlock(const UnitLeft& left, const UnitRight& right, float* c, int64_t c_stride,
                                      int64_t rows, int64_t cols, int64_t depth, bool accumulates,
                                      const NextRead* next) {
  const int64_t even_depth = EvenDepth(depth);
  const LeftTiles left_tiles(left, rows, even_depth);
  RightTiles right_tiles(right.data, right.parts, even_depth);
  PlainTiles tiles = {left, left_tiles, right_tiles, FindSumTiles(left.parts, right.parts), right.parts, depth,
                      c,    c_stride,   accumulates};
  tiles.at.steps = even_depth / kUnitDepth;
  tiles.at.has_rest = even_depth % kUnitDepth != 0;
  const TileRegisters registers;
  for (int64_t p = 0; p < cols / kPairPanelWidth; ++p) {
    right_tiles.Place(p, tiles.at);
    tiles.panel = p;
    tiles.least = right.least[p];
    tiles.ahead = Ahead(next, p, right_tiles.panel_bytes(), right_tiles.StepsFor(rows));
    ForRowTiles(left.least, tiles.least, rows, tiles);
  }
}

REPRISE_MATRIX void MultiplyUnitGroups(const UnitLeft& left, const BFloat16* right, PairGroups groups, float* c,
                                       int64_t c_stride, int64_t rows, int64_t cols, bool accumulates,
                                       const NextRead* next) {
  int64_t depth = 0;
  for (int64_t g = 0; g < groups.count; ++g) depth += 2 * groups.steps[g];
  RightTiles right_tiles(right, 1, depth);
  const TileRegisters registers;
  for (int64_t row = 0; row < rows; row += kMostUnitRows) {
    UnitLeft block = left;
    block.data += row * left.row_stride;
    block.least += row / kUnitRows;
    const int64_t count = std::min(kMostUnitRows, rows - row);
    const LeftTiles left_tiles(block, count, depth);
    GroupTiles tiles = {block,    left_tiles, right_tiles, FindSumTiles(left.parts, 1),
                        groups,   row,        depth,       c + row * c_stride,
                        c_stride, accumulates};
    for (int64_t p = 0; p < cols / kPairPanelWidth; ++p) {
      right_tiles.Place(p, tiles.at);
      tiles.panel = p;
      tiles.ahead = Ahead(row == 0 ? next : nullptr, p, right_tiles.panel_bytes(), right_tiles.StepsFor(count));
      ForRowTiles(block.least, kLeastOfNumbers, count, tiles);
      tiles.groups.scale += kPairPanelWidth;
      if (groups.offset != nullptr) tiles.groups.offset += kPairPanelWidth;
    }
  }
}

namespace {

constexpr int kPartDigits = 8;

// The parts of 16 numbers, in upper halves of words; the digits that are left go to the next one.
REPRISE_MATRIX inline __m512i TakePart(__m512& rest) {
  const __m512i part = _mm512_and_si512(_mm512_castps_si512(rest), _mm512_set1_epi32(static_cast<int>(0xFFFF0000U)));
  rest = _mm512_sub_ps(rest, _mm512_castsi512_ps(part));
  return part;
}

// The least exponent of numbers, where 0 is the largest; and the largest, for those that are not finite.
struct Exponents {
  __m512i least, most;
  REPRISE_MATRIX Exponents() : least(_mm512_set1_epi32(-1)), most(_mm512_setzero_si512()) {}
  REPRISE_MATRIX inline void Add(__m512 numbers) {
    const __m512i size = _mm512_and_si512(_mm512_castps_si512(numbers), _mm512_set1_epi32(0x7FFFFFFF));
    least = _mm512_min_epu32(least, _mm512_sub_epi32(size, _mm512_set1_epi32(1)));
    most = _mm512_max_epu32(most, size);
  }
  REPRISE_MATRIX uint8_t Of(int parts) const {
    constexpr uint32_t kInfinity = 0x7F800000U;
    if (_mm512_reduce_max_epu32(most) >= kInfinity) return 0;
    const uint32_t smallest = _mm512_reduce_min_epu32(least) + 1;
    if (smallest == 0) return 255;  // all are 0
    const int exponent = static_cast<int>(smallest >> 23) - kPartDigits * (parts - 1);
    return static_cast<uint8_t>(std::max(exponent, 0));
  }
};

// A number that is not finite is its own first part; the others, which came out as differences, become 0.
void ClearBehindInfinite(int64_t n, int parts, BFloat16* to, int64_t part_stride) {
  for (int64_t i = 0; i < n; ++i) {
    if (std::isfinite(static_cast<float>(to[i]))) continue;
    for (int p = 1; p < parts; ++p) to[p * part_stride + i] = BFloat16();
  }
}

template <int kParts, class Load>
REPRISE_MATRIX inline uint8_t Split(int64_t n, BFloat16* to, int64_t part_stride, Load load) {
  Exponents exponents;
  for (int64_t i = 0; i < n; i += kLanes) {
    const auto lanes = static_cast<__mmask16>((1U << std::min<int64_t>(kLanes, n - i)) - 1);
    __m512 rest = load.Of(i, lanes);
    exponents.Add(rest);
#pragma GCC unroll 3
    for (int p = 0; p < kParts; ++p) {
      const __m256i part = _mm512_cvtepi32_epi16(_mm512_srli_epi32(TakePart(rest), 16));
      _mm256_mask_storeu_epi16(to + p * part_stride + i, lanes, part);
    }
  }
  const uint8_t least = exponents.Of(kParts);
  if (least == 0) ClearBehindInfinite(n, kParts, to, part_stride);
  return least;
}
struct LoadFloats {
  const float* from;
  REPRISE_MATRIX inline __m512 Of(int64_t i, __mmask16 lanes) const { return _mm512_maskz_loadu_ps(lanes, from + i); }
};
struct LoadHalves {
  const Half* from;
  REPRISE_MATRIX inline __m512 Of(int64_t i, __mmask16 lanes) const {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, from + i));
  }
};

template <int kParts>
REPRISE_MATRIX uint8_t SplitPanel(const float* panel, int64_t depth, BFloat16* to) {
  const int64_t part_stride = EvenDepth(depth) * kPairPanelWidth;
  BFloat16* const begin = to;
  Exponents exponents;
  for (int64_t k = 0; k < depth; k += 2, panel += 2 * kPairPanelWidth, to += kPanelRow) {
    for (int64_t v = 0; v < kPairPanelWidth; v += kLanes) {
      __m512 even = _mm512_loadu_ps(panel + v);
      __m512 odd = k + 1 < depth ? _mm512_loadu_ps(panel + kPairPanelWidth + v) : _mm512_setzero_ps();
      exponents.Add(even);
      exponents.Add(odd);
#pragma GCC unroll 3
      for (int p = 0; p < kParts; ++p) {
        const __m512i low = _mm512_srli_epi32(TakePart(even), 16);
        _mm512_storeu_si512(to + p * part_stride + 2 * v, _mm512_or_si512(low, TakePart(odd)));
      }
    }
  }
  const uint8_t least = exponents.Of(kParts);
  if (least == 0) ClearBehindInfinite(part_stride, kParts, begin, part_stride);
  return least;
}

}  // namespace

uint8_t SplitParts(const float* from, int64_t n, int parts, BFloat16* to, int64_t part_stride) {
  switch (parts) {
    case 1: return Split<1>(n, to, part_stride, LoadFloats{from});
    case 2: return Split<2>(n, to, part_stride, LoadFloats{from});
    default: return Split<3>(n, to, part_stride, LoadFloats{from});
  }
}
uint8_t SplitParts(const Half* from, int64_t n, BFloat16* to, int64_t part_stride) {
  return Split<2>(n, to, part_stride, LoadHalves{from});
}

REPRISE_MATRIX void SplitRounded(const float* from, int64_t n, BFloat16* to, int64_t part_stride) {
  const __m512 factor = _mm512_set1_ps(257);  // digits behind the sixteenth fall off the sum
  for (int64_t i = 0; i < n; i += kLanes) {
    const auto lanes = static_cast<__mmask16>((1U << std::min<int64_t>(kLanes, n - i)) - 1);
    const __m512 number = _mm512_maskz_loadu_ps(lanes, from + i);
    const __m512 large = _mm512_mul_ps(number, factor);
    __m512 rest = _mm512_sub_ps(large, _mm512_sub_ps(large, number));
    for (int p = 0; p < 2; ++p) {
      const __m256i part = _mm512_cvtepi32_epi16(_mm512_srli_epi32(TakePart(rest), 16));
      _mm256_mask_storeu_epi16(to + p * part_stride + i, lanes, part);
    }
  }
}

MatrixUnitScope::MatrixUnitScope(bool is_used) : is_used_(is_used) {
  if (is_used_) TileRegisters::Open();
}
MatrixUnitScope::~MatrixUnitScope() {
  if (is_used_) TileRegisters::Close();
}

uint8_t PartsOfPanel(const float* panel, int64_t depth, int parts, BFloat16* to) {
  if (parts == 2) return SplitPanel<2>(panel, depth, to);
  if (parts == 1) return SplitPanel<1>(panel, depth, to);
  const uint8_t least = SplitPanel<3>(panel, depth, to);
  if (least == 0) {
    auto* const floats = reinterpret_cast<float*>(to);
    std::copy_n(panel, depth * kPairPanelWidth, floats);
    if (depth % 2 != 0) std::fill_n(floats + depth * kPairPanelWidth, kPairPanelWidth, 0.0F);
  }
  return least;
}

#else

bool HasMatrixUnit() { return false; }
void MultiplyUnitBlock(const UnitLeft&, const UnitRight&, float*, int64_t, int64_t, int64_t, int64_t, bool,
                       const NextRead*) {}
void MultiplyUnitGroups(const UnitLeft&, const BFloat16*, PairGroups, float*, int64_t, int64_t, int64_t, bool,
                        const NextRead*) {}
uint8_t SplitParts(const float*, int64_t, int, BFloat16*, int64_t) { return 0; }
uint8_t SplitParts(const Half*, int64_t, BFloat16*, int64_t) { return 0; }
void SplitRounded(const float*, int64_t, BFloat16*, int64_t) {}
uint8_t PartsOfPanel(const float*, int64_t, int, BFloat16*) { return 0; }
MatrixUnitScope::MatrixUnitScope(bool is_used) : is_used_(is_used) {}
MatrixUnitScope::~MatrixUnitScope() = default;

#endif

}  // namespace reprise::kernels::simd
