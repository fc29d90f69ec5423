// SPDX-License-Identifier: Apache-2.0
//
// Row by row, what models chain: a norm and what quantizes it, a gated activation between two scalings, results of
// attention over parts of the keys, the choice of likely tokens. A row is the last dim.
//
// Accumulation  float32, each step rounded; sums in the order of simd/normalize.h or ascending. Rounded once where the
//   result is stored; the sum of a norm is rounded to its type first.
// Quantized     clamp(round(v)) from -128 to 127 (4 bits: -8 to 7), ties to even, NaN becomes 0.
// NaN, Inf  as IEEE 754.
// Aliasing  none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// sum = x1 + x2; y = sum * rstd * gamma (+ beta), rstd = 1 / sqrt(mean of sum^2 + epsilon).
/// Static: out = y / scale + zero (or y * scale + zero), quantized. Dynamic: v = y * scale, step = max |v| / 127,
/// out = v / step, quantized; 0 where step is 0; step NaN and zeros where v has a NaN.
struct NormQuantOperands {
  TensorRef x1, x2, gamma, beta;  ///< beta without data: none; gamma and beta [n]
  TensorRef scale[2], zero[2];    ///< [n] or [1]; without data: 1 and 0
  TensorRef out[2];               ///< int8; without data: not wanted
  TensorRef step[2];              ///< float32, the shape without the last dim; of dynamic ones
  TensorRef sum, norm;            ///< norm without data: not wanted
  bool is_dynamic = false, divides = true;
  float epsilon = 0;
};
int64_t NormQuantScratchBytes(int64_t n);
void NormQuant(const NormQuantOperands& operands, Range rows, void* scratch);

/// v = x, or (x (+ bias)) * weight_scale * row_scale (+ bias) of integers; a and b are halves of v, or its even and odd
/// elements. out = a * sigmoid(a) * b, or min(a, limit) * sigmoid(alpha * min(a, limit)) * (clamp(b, limit) + shift).
/// Then static: out / scale + offset, quantized; dynamic: as NormQuant with out * scale; or as it is.
struct SwigluOperands {
  TensorRef x;
  TensorRef weight_scale;   ///< [groups, 2 n], as many rows as groups or one
  TensorRef row_scale;      ///< one for each row
  TensorRef bias;           ///< as weight_scale; int32 is added before scaling
  TensorRef scale, offset;  ///< [groups, n] or [groups, 1]
  TensorRef group_counts;   ///< rows of each group, or their ends; without data: one group of all rows
  TensorRef out;            ///< int8, int32 of eight 4-bit numbers each, or the type of x
  TensorRef step;           ///< float32, one for each row; of dynamic ones
  enum class Mode : uint8_t { kPlain, kStatic, kDynamic } mode = Mode::kPlain;
  bool activates_left = true, interleaves = false, clips = false;
  bool holds_ends = false;  ///< group_counts tells where groups end
  bool multiplies = false;  ///< static: by scale, instead of dividing by it
  float limit = 0, alpha = 1, shift = 0;
};
int64_t SwigluScratchBytes(int64_t n);
/// Rows beyond the groups stay as they are.
void SwigluRows(const SwigluOperands& operands, Range rows, void* scratch);

/// log_sum = log of the sum over i of exp(log_sums[i]), out = sum over i of exp(log_sums[i] - log_sum) * parts[i];
/// 0 and -Inf where all are -Inf. A +Inf stands for a part without keys.
/// \param log_sums  float32 [row]; parts [row, n]
void MergeParts(const TensorRef* log_sums, const TensorRef* parts, int64_t count, const TensorRef& out,
                const TensorRef& log_sum, Range rows);

/// out = logits where they are among the k greatest of their row and in the smallest set of greatest ones whose
/// softmax adds up to p, else -Inf.
/// \param p, k  one for each row, or without data; k int32. A k below 1 or beyond the row keeps all.
int64_t TopKTopPScratchBytes(int64_t n);
void TopKTopP(const TensorRef& logits, const TensorRef& p, const TensorRef& k, const TensorRef& out, Range rows,
              void* scratch);

/// Rotary position embedding by a table: of each head the first m elements are turned by the angles at the position of
/// its token, the others stay. a[i] = x[i] * cos[i] - x[j] * sin[i], b: x[j] * cos[i] + x[i] * sin[i], where i and j
/// are m / 2 apart, or neighbours if `pairs`.
struct TableRotation {
  int64_t head_size = 0;
  bool pairs = false;
  int64_t sections[4] = {0, 0, 0, 0};  ///< angles [0, s0) come from the first row of positions, then s1, s2, s3
  bool alternates = false;             ///< angle i comes from row i % 3 where i < 3 * s[i % 3], else from the first one
};
/// \param positions  int32 or int64 [token], or [rows, token]
/// \param table      [position, m]: m / 2 cosines, then as many sines; a position out of range is moved into it
/// \param x, y       [token, heads * head_size]
int64_t TableRotationScratchBytes(int64_t width, int64_t m);
void RotateByTable(const TableRotation& rotation, const TensorRef& positions, const TensorRef& table,
                   const TensorRef& x, const TensorRef& y, Range tokens, void* scratch);

}  // namespace reprise::kernels
