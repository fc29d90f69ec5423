// SPDX-License-Identifier: Apache-2.0
//
// Blocks of products by the matrix unit of the processor (AMX), which multiplies tiles of bfloat16 and adds to float32.
// Operands of float32 and float16 are sums of two or three numbers of bfloat16: their parts.
#pragma once

#include <cstdint>

#include "kernels/float16.h"
#include "kernels/simd/bfloat16_tile.h"
#include "kernels/simd/matmul_tile.h"

namespace reprise::kernels::simd {

/// Whether the processor has one that this process may use. Nothing else here may be called where it has not.
bool HasMatrixUnit();
/// Whether products of float32 go there, too.
bool HasMatrixUnitForFloat32();
/// What goes there from now on; short types, unless somebody says otherwise. Bits of products depend on it, and so do
/// the forms that were made of operands: it is said before the first of them.
enum class MatrixUnitUse : uint8_t { kNone, kShortTypes, kAll };
void SetMatrixUnitUse(MatrixUnitUse use);

/// Keeps the unit ready for products of this thread, which takes a tenth of a microsecond each time. Scopes may nest.
class MatrixUnitScope {
 public:
  explicit MatrixUnitScope(bool is_used);  ///< false: does nothing
  ~MatrixUnitScope();
  MatrixUnitScope(const MatrixUnitScope&) = delete;
  MatrixUnitScope& operator=(const MatrixUnitScope&) = delete;

 private:
  bool is_used_;
};

/// Rows of a tile, and its depth: an element of out adds, for each kUnitDepth of the depth and each pair of parts, the
/// sum of two chains of fused multiply-adds: of even and of odd places. Missing places count as 0 times 0.
inline constexpr int64_t kUnitRows = 16;
inline constexpr int64_t kUnitDepth = 32;
inline constexpr int64_t kMostUnitParts = 3;
/// Most rows and most depth of a call.
inline constexpr int64_t kMostUnitRows = 128;
inline constexpr int64_t kMostUnitDepth = 256;

// What parts can hold is a byte for some numbers together: the exponent of the smallest part that a number of their
// least exponent may have, zeros counting as large; 0 if some number is not finite, or too small for its parts.

/// The parts of a left operand: element (i, k) of part p lies at data[p * part_stride + i * row_stride + k].
struct UnitLeft {
  const BFloat16* data;
  int64_t row_stride;
  int64_t part_stride;
  int parts;
  const uint8_t* least;          ///< for each kUnitRows rows
  LeftRows<float> numbers = {};  ///< of three parts: what they are parts of
};

/// Panels of pairs (bfloat16_tile.h), one after the other, all parts of each together. Where `least` is 0 a panel of
/// three parts is one of float32.
struct UnitRight {
  const BFloat16* data;
  int parts;
  const uint8_t* least;  ///< for each panel
};

/// c[rows x cols] = left * right, or += if `accumulates`. The parts of both operands are multiplied with each other,
/// but of three and three only those whose numbers add to less than three. \pre cols is a multiple of kPairPanelWidth;
/// both operands have as many parts, or the right one has one; depth is above 0, and the left operand has a 0 behind an
/// odd one, in each row of each part
void MultiplyUnitBlock(const UnitLeft& left, const UnitRight& right, float* c, int64_t c_stride, int64_t rows,
                       int64_t cols, int64_t depth, bool accumulates, const NextRead* next = nullptr);

/// As MultiplyPairGroups, of left operands of one or two parts and any number of rows. \pre groups but the last are
/// multiples of kUnitDepth; all of them together are kMostUnitDepth at most
void MultiplyUnitGroups(const UnitLeft& left, const BFloat16* right, PairGroups groups, float* c, int64_t c_stride,
                        int64_t rows, int64_t cols, bool accumulates, const NextRead* next);

/// The parts of n numbers: to[p * part_stride + i]. Those of bfloat16 have one, of float16 two, of float32 three;
/// digits beyond are cut off. \return what they can hold
uint8_t SplitParts(const float* from, int64_t n, int parts, BFloat16* to, int64_t part_stride);
uint8_t SplitParts(const Half* from, int64_t n, BFloat16* to, int64_t part_stride);

/// Two parts of n numbers of float32, rounded to 16 digits.
void SplitRounded(const float* from, int64_t n, BFloat16* to, int64_t part_stride);

/// A panel of float32, `depth` rows of kPairPanelWidth, as a panel of pairs of so many parts, a row of zeros behind an
/// odd depth. \return what they can hold
uint8_t PartsOfPanel(const float* panel, int64_t depth, int parts, BFloat16* to);

}  // namespace reprise::kernels::simd
