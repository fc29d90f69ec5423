// SPDX-License-Identifier: Apache-2.0
//
// Element-wise arithmetic over broadcast, strided operands of any types.
//
// Inputs are converted on load from their own type to `compute` and the result
// on store from `compute` to out's type, both by the rules of cast.h. The
// function itself, by category of `compute`:
//
//   op     floating, complex         integer (modulo 2^bits)          bool
//   kAdd   a + alpha * b             same                             a or (alpha and b)
//   kSub   a - alpha * b             same                             a xor (alpha and b)
//   kMul   a * b                     same                             a and b
//   kDiv   a / b                     truncated; x / 0 = 0             a and b
//   kRelu  a <= 0 ? 0 : a            same                             a
//   kExp   e^a                       -                                -
//   kNeg   -a (sign bit flipped)     same                             -
//   kAbs   |a| (complex: modulus)    same; |min| = min                a
//   kCopy  a                         a                                a
//
// Rounding  each written operation rounds once to nearest even in `compute`
//   (alpha * b and the sum round separately; nothing is fused). float16 and
//   bfloat16 compute in float32, alpha included, and round the result once.
//   kExp is within 2 ulp in float32 and float64.
// NaN, Inf  as IEEE 754; relu keeps NaN and turns -0 into +0. Complex division
//   scales its operands and does not overflow in between.
// Sameness  one contiguous row function per op and type serves every layout,
//   and its vector body, tail and instruction sets agree: the bits do not depend
//   on strides, alignment, range or processor. (Two exceptions: which NaN comes out
//   of two NaN operands, and float64 and complex exp, which are the C library's.)
// Aliasing  out may be the very same view as an input of equal item size; other
//   overlap is not allowed. No two elements of out may share memory.
#pragma once

#include "kernels/cast.h"
#include "kernels/strided.h"

namespace reprise::kernels {

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv };
enum class UnaryOp : uint8_t { kCopy, kRelu, kExp, kNeg, kAbs };

/// Whether the op is defined for a compute type; see the table above.
/// kRelu has no complex form; kExp needs a floating or complex type.
bool Supports(BinaryOp op, DType compute);
bool Supports(UnaryOp op, DType compute);

/// out = op(a, b). `alpha` is read by kAdd and kSub only. `range` counts
/// elements of out. A scalar operand is a TensorRef of rank 0.
/// \pre a and b broadcast to out's shape; Supports(op, compute).
void Binary(BinaryOp op, const TensorRef& a, const TensorRef& b, const Scalar& alpha, DType compute,
            const TensorRef& out, Range range);

/// out = op(a). \pre a broadcasts to out's shape; Supports(op, compute).
void Unary(UnaryOp op, const TensorRef& a, DType compute, const TensorRef& out, Range range);

// --- Calls that are looked up once and made often ---------------------------------

/// Operands of a row function, all of one type and contiguous.
struct RowArgs {
  void* out = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;                  // of binary ops
  alignas(8) unsigned char alpha[16] = {};  // a MathType<T>, of kAdd and kSub
};

/// Computes elements [begin, end) as Binary and Unary do; `args` points to RowArgs. The same element gives the same
/// bits wherever the range begins, if only at a multiple of 2 vectors (32 elements).
using RowFn = void (*)(const void* args, int64_t begin, int64_t end);

/// The function for operands of type `dtype`, which is also the type of the computation.
/// \param is_scaled    alpha is not 1
/// \param b_is_single  b is one element, used for all; null is returned for types without a function of that sort
RowFn FindBinaryRow(BinaryOp op, DType dtype, bool is_scaled, bool b_is_single);
/// \pre Supports(op, dtype).
RowFn FindUnaryRow(UnaryOp op, DType dtype);

}  // namespace reprise::kernels
