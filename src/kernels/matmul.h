// SPDX-License-Identifier: Apache-2.0
//
// Batched matrix product.
//
// Formula   out[.., m, n] = sum over k of a[.., m, k] * b[.., k, n]; the batch
//   dims of a and b broadcast to those of out. K == 0 gives zeros. With an
//   epilogue alpha * that + beta * addend.
// Accumulation, by `compute`:
//   float32, float16, bfloat16  in float32 (operands are exact in it)
//   float64, complex            in their own type
//   integers                    modulo 2^bits of `compute`
//   bool                        or of ands
// Order     k ascends within blocks of 256, whose sums are added in order. Up to
//   10 rows times contiguous columns (as the transposed weight of a linear
//   layer has them) are summed in as many chains as a vector has lanes. Of
//   bfloat16 k ascends in pairs, the odd one first, where the processor
//   multiplies them so (simd/bfloat16_tile.h). A matrix unit adds the sums of
//   even and odd places of 32 (simd/matrix_unit.h); more than 32 rows of
//   float16, and of float32 if asked for (REPRISE_MATRIX_UNIT), go to it as
//   parts of bfloat16, of which products below 2^-24 of the whole are left out.
//   Order and fusing follow from shapes, types and strides alone, with a matrix
//   unit also from whether numbers are too small for it: not from the range.
// Rounding  float32 and float64 fuse multiply and add where the processor can;
//   the sum is rounded once to out's type. (Processors without fused
//   multiply-add may differ in the last bits.)
// NaN, Inf  as IEEE 754; nothing is skipped, 0 * Inf is NaN.
// Aliasing  none: out must not overlap a, b or the scratch memory.
#pragma once

#include "kernels/cast.h"
#include "kernels/strided.h"

namespace reprise::kernels {

/// Work items of a product: blocks of out, each computed by one thread. 0 if
/// out has no elements. The arguments are those of MatMul.
int64_t MatMulUnitCount(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out,
                        bool is_prepared = false);

/// What a work item of a product does.
struct ProductWork {
  int64_t multiply_adds;
  int64_t bytes;  ///< of the right operand
  /// Calls for few items are worth it: in tiles of numbers as they are, where a copy of the left operand for each call
  /// takes less than threads that wait for each other at the end.
  bool has_cheap_calls;
};
ProductWork MatMulUnitWork(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out,
                           bool is_prepared = false);

/// What MatMulScratchBytes gives at most.
inline constexpr int64_t kMostMatMulScratchBytes = int64_t{4} << 20;

/// Bytes of scratch that one MatMul call needs; calls that run at the same time
/// need one each.
int64_t MatMulScratchBytes(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out,
                           bool is_prepared = false);

/// What becomes of the sums before they are rounded to the type of out; computed in the accumulation type.
struct MatMulEpilogue {
  Scalar alpha = Scalar::Of<int64_t>(1);
  Scalar beta = Scalar::Of<int64_t>(0);
  TensorRef addend;  ///< as many dims as out, size 1 repeats; without data: none, and beta does not count
};

/// Computes blocks [range.begin, range.end) of out.
///
/// \param a, b, out  rank at least 2, any strides and types; a and b are
///                   converted to the accumulation type when read
/// \param compute    see the table above
/// \param scratch    MatMulScratchBytes bytes, aligned to 64; contents are lost
/// \param epilogue   null: out is the sums
/// \param prepared   null: b is read where it lies; else what PreparedRight::write made of b, whose memory is not read
/// then.
///                   `range` and `scratch` are those of prepared products
void MatMul(const TensorRef& a, const TensorRef& b, DType compute, const TensorRef& out, Range range, void* scratch,
            const MatMulEpilogue* epilogue = nullptr, const void* prepared = nullptr);

/// A right operand in the order in which products read it, on this processor.
struct PreparedRight {
  int64_t bytes = 0;  ///< 0: it cannot be prepared for such a left one
  /// \param prepared  `bytes` bytes, aligned to 64
  void (*write)(const TensorRef& b, void* prepared) = nullptr;
};
/// Sizes and values alone decide: operands of one address, type, shape and strides can share what the same function
/// wrote.
PreparedRight FindPreparedRight(const TensorRef& a, const TensorRef& b, DType compute);

}  // namespace reprise::kernels
