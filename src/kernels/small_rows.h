// SPDX-License-Identifier: Apache-2.0
//
// Rows (the last dim) that become floating numbers of 8 bits, or begin as such; and products that are scaled and added.
//
// Accumulation  float32, each step rounded.
// Numbers   of 8 bits lie in tensors of uint8; a SmallFloat beside them says what they are. They round as ToSmall does.
// Step      what stored numbers are multiplied by to have the values again: v / step is stored, 0 where step is 0. A
// NaN
//   makes its step NaN, and with it the numbers that share the step.
// Groups    a list of ends or of counts, clamped to the rows there are.
// Aliasing  none.
#pragma once

#include "kernels/small_float.h"
#include "kernels/strided.h"

namespace reprise::kernels {

/// The greatest finite number; infinity's ladder begins behind it.
float GreatestSmall(SmallFloat type);

// ---- Blocks of the rows of groups ----

/// Blocks of rows by columns: step = min(max |x| / top, most), y = x / step. Blocks begin anew with each group: those
/// of group i at row begin_i / rows + i of `step`. Steps that no block has are 0, and so are rows of y beyond the
/// groups.
struct GroupedBlocks {
  TensorRef x = {}, y = {};  ///< [.., m, n]
  TensorRef step = {};       ///< float32 [.., m / rows + groups, blocks across]
  TensorRef ends = {};       ///< integers [groups]
  SmallFloat type = SmallFloat::kFloat8E5M2;
  int64_t rows = 1, columns = 128;
  float top = 1, most = INFINITY;
};
/// \param units  of each matrix as many as it has rows of `step`, and one more for the rows beyond the groups
void QuantizeGroupedBlocks(const GroupedBlocks& operands, Range units);

// ---- Scaled, with what was greatest ----

/// y = x * scale[g], extent = max |x| for each row, of groups of the first dim; without a list all is one group. Rows
/// of y beyond the groups become 0.
struct ScaledSmall {
  TensorRef x = {}, y = {};
  TensorRef scale = {};   ///< float32 [groups]
  TensorRef ends = {};    ///< integers [groups], or without data
  TensorRef extent = {};  ///< float32, one for each row
  SmallFloat type = SmallFloat::kFloat8E5M2;
};
void QuantizeScaled(const ScaledSmall& operands, Range rows);
/// out[group] = the greatest extent of its rows, 0 where it has none, in the type of out.
/// \param ends     as ScaledSmall::ends
/// \param limit    the size of the first dim
void FindGroupExtents(const TensorRef& extent, const TensorRef& ends, int64_t limit, const TensorRef& out,
                      Range groups);

// ---- After a gated activation ----

/// v = silu(min(a, limit)) * clamp(b, -limit, limit) * weight, a and b the halves of a row of x; limits that are not
/// greater than 0 do nothing. Rows beyond the groups become 0, and so do their steps.
struct SmallSwiglu {
  TensorRef x = {};
  TensorRef weight = {};  ///< one for each row, or without data
  TensorRef counts = {};  ///< integers [groups], or without data: all rows are one group
  TensorRef given = {};   ///< steps of groups, or one; of kGiven
  TensorRef y = {};
  TensorRef step = {};    ///< one for each block, row by row
  TensorRef origin = {};  ///< v as it is, or without data
  SmallFloat type = SmallFloat::kFloat8E4M3;
  enum class Mode : uint8_t {
    kBlocks,     ///< of kSmallBlock: step = max(max |v|, kLeastExtent) / top in float32
    kExponents,  ///< of kSmallGroup: step = 2 ^ (floor(log2(max |v|)) - top) as float8_e8m0, places in pairs
    kGiven
  } mode = Mode::kGiven;
  float limit = 0;
  float top = 1;
  bool rounds_up = false;  ///< kBlocks: step becomes the next power of two
};
inline constexpr int64_t kSmallBlock = 128;
inline constexpr int64_t kSmallGroup = 32;
inline constexpr float kLeastExtent = 1e-8F;
int64_t SmallSwigluScratchBytes(int64_t n);
void QuantizeSwiglu(const SmallSwiglu& operands, Range rows, void* scratch);
/// extent[row] = max |v|.
void FindSwigluExtents(const SmallSwiglu& operands, const TensorRef& extent, Range rows, void* scratch);
/// step[group] = max(the greatest of its extents, kLeastExtent) / top. \param counts  as SmallSwiglu::counts
void FindGroupSteps(const TensorRef& extent, const TensorRef& counts, float top, const TensorRef& step, Range groups);

/// Of v for x, and of the sum over rows for weight: the sum of grad * silu(a) * b, or of grad * origin. An element that
/// a limit holds has none. Rows beyond the groups become 0.
struct SmallSwigluGradient {
  TensorRef grad = {}, x = {};
  TensorRef weight = {}, origin = {}, counts = {};  ///< or without data
  TensorRef grad_x = {};
  TensorRef grad_weight = {};  ///< one for each row, or without data
  float limit = 0;
};
int64_t SmallSwigluGradientScratchBytes(int64_t n);
void SwigluGradient(const SmallSwigluGradient& operands, Range rows, void* scratch);

// ---- Products ----

/// Numbers as float32; with `exponents` times those of 32 neighbours along k each: exponents[j / 64, n, j / 32 % 2] for
/// j = k, and with groups exponents[begin_i / 64 + i + j / 64, ..] for j = k - begin_i. Rows beyond the groups become
/// 0.
struct SmallMatrix {
  TensorRef x = {};          ///< [.., k, n]; with exponents [k, n]
  TensorRef exponents = {};  ///< float8_e8m0 [.., n, 2], or without data
  TensorRef groups = {};     ///< integers [groups], or without data
  bool holds_ends = true;
  SmallFloat type = SmallFloat::kHiFloat8;
  TensorRef out = {};  ///< float32, the shape of x
};
void WidenSmall(const SmallMatrix& operands, Range rows);

/// y += product * column_scale * row_scale; a group of depth 0 changes nothing.
struct ScaledSum {
  TensorRef product = {};                       ///< float32, the shape of y
  TensorRef column_scale = {}, row_scale = {};  ///< broadcast to y; or without data
  TensorRef groups = {};                        ///< of the first dim of y; or without data
  bool holds_ends = true;
  int64_t depth = 0;
  TensorRef y = {};
};
void AddScaledProduct(const ScaledSum& operands, Range rows);

// ---- Turned into quantized caches ----

/// v = x, or (x (+ bias)) * weight_scale * row_scale (+ bias) of integers. Its heads [0, q_heads) are turned into q,
/// the next kv_heads into k, and the last are v: x * cos + half(x) * sin, where half(x) is the second half of a head,
/// negated, and then its first. The caches get round(k * scale + offset), ties to even, clamped; NaN becomes 0.
struct TurnedCaches {
  TensorRef x = {};                             ///< [tokens, (q_heads + 2 kv_heads) * size]
  TensorRef weight_scale = {}, row_scale = {};  ///< a row, one for each token; or without data
  TensorRef bias = {};                          ///< a row, or without data
  TensorRef cos = {}, sin = {};                 ///< [tokens, size]
  TensorRef slots = {};                         ///< integers
  TensorRef scale[2] = {}, offset[2] = {};      ///< [kv_heads, size], sizes may be 1; offset or without data
  TensorRef cache[2] = {};                      ///< int8 [.., .., kv_heads, size]
  TensorRef q = {}, k = {}, v = {};             ///< [.., heads, size]; or without data
  int64_t q_heads = 0, kv_heads = 0, size = 0;
  int64_t per_sequence = 0;  ///< tokens of a sequence, which go to lines slots[b], slots[b] + 1, .. of page b; 0: token
                             ///< t goes to line slots[t] of all pages. Lines that there are not get nothing
};
int64_t TurnedCachesScratchBytes(int64_t width);
void TurnIntoCaches(const TurnedCaches& operands, Range tokens, void* scratch);

}  // namespace reprise::kernels
