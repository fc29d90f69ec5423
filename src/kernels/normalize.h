// SPDX-License-Identifier: Apache-2.0
//
// Softmax and the norms, row by row. A row is the innermost dims of its operands (WithDimLast brings another dim there)
// and rows are counted in row-major order.
//
// Formulas  kSoftmax         out = e / sum of e, e = exp(a - max of a)
//           kLogSoftmax      out = (a - max of a) - log(sum of e)
//           kSoftmaxGrad     out = (a - sum of a b) b, for the gradient a and the result b
//           kLogSoftmaxGrad  out = a - exp(b) sum of a
//           LayerNorm        out = (x - mean) rstd weight + bias, rstd = 1 / sqrt(mean of (x - mean)^2 + eps)
//           RmsNorm          out = x rstd weight, rstd = 1 / sqrt(mean of x^2 + eps)
// Accumulation  float32 for float32, float16 and bfloat16 in the order of simd/normalize.h, float64 for float64; every
//   result is rounded once to the type that it is stored in.
// NaN, Inf  IEEE 754. A softmax row with a NaN or a +Inf, or with nothing but -Inf, is all NaN; otherwise -Inf gives 0
//   (kLogSoftmax: -Inf).
// Sameness  a row's bits depend on its values only, not on the range; nor on strides, but that the softmax of float32
//   columns that lie side by side adds in order, in blocks of 128.
// Aliasing  out may be the very same view as an input of equal item size.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// How rows are worked on: `batch` at a time, so that short ones share a pass through the buffers.
struct RowWork {
  int64_t length = 0;  ///< elements of a row
  int64_t batch = 1;   ///< rows
};

/// Bytes of scratch that a kernel here needs for one operand of `elements` elements at a time; 0 where it is in place.
int64_t StagingBytes(const TensorRef& ref, DType compute, int64_t elements);

enum class RowOp : uint8_t { kSoftmax, kLogSoftmax, kSoftmaxGrad, kLogSoftmaxGrad };

/// \param b        of the gradients only
/// \param scratch  the sum of StagingBytes of out, a and b for a batch
void MapRows(RowOp op, const TensorRef& out, const TensorRef& a, const TensorRef* b, DType compute, RowWork work,
             void* scratch, Range rows);

/// kLogSoftmax of contiguous rows. out may be x.
void LogSoftmaxOfRows(const float* x, float* out, int64_t rows, int64_t n);
void LogSoftmaxOfRows(const double* x, double* out, int64_t rows, int64_t n);

/// Operands of the norms. Null means: for weight ones, for bias zeros, for mean (of gradients) that of RmsNorm, for
/// outputs nobody wants it. Statistics have one element for each row, weight and bias one for each of a row.
struct NormOperands {
  const TensorRef* x = nullptr;
  const TensorRef* weight = nullptr;
  const TensorRef* bias = nullptr;
  const TensorRef* out = nullptr;  ///< the result; of gradients dx
  const TensorRef* mean = nullptr;
  const TensorRef* rstd = nullptr;
  const TensorRef* dy = nullptr;  ///< of gradients
  /// Of the sum x = alpha * x1 + x2, rounded to the type of x, which is then written first; it is not rounded where x
  /// is null.
  const TensorRef* x1 = nullptr;
  const TensorRef* x2 = nullptr;
  const TensorRef* scaled = nullptr;  ///< of gradients: alpha * dx, the gradient for x1
  double alpha = 1;
};

/// Bytes of scratch for the functions below.
int64_t NormScratchBytes(const NormOperands& operands, bool is_layer_norm, DType compute, RowWork work);

void LayerNorm(const NormOperands& operands, double eps, DType compute, RowWork work, void* scratch, Range rows);
void RmsNorm(const NormOperands& operands, double eps, DType compute, RowWork work, void* scratch, Range rows);

/// Gradients of a part of the rows. `dw` and `db` (of MathType, null together or, for RmsNorm, db alone) get the sums
/// over these rows of the gradients for weight and bias.
void NormGrad(const NormOperands& operands, DType compute, RowWork work, void* scratch, void* dw, void* db, Range rows);

/// out[j] = sum over p of partials[p * stride + j], for j in range.
void SumPartials(const void* partials, int64_t count, int64_t stride, DType compute, const TensorRef& out, Range range);

}  // namespace reprise::kernels
