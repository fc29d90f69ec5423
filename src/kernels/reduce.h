// SPDX-License-Identifier: Apache-2.0
//
// Reductions over any set of dims.
//
// Formula   out[kept] = finish(fold of term(cast(self, compute)) over the
//   reduced dims); n is the number of reduced elements, v the value of the spec:
//
//   op                 term            fold   finish             of nothing
//   kSum               x               +                         0
//   kNanSum            x, NaN is 0     +                         0
//   kMean              x               +      s / n              NaN
//   kProd              x               *                         1
//   kMax, kMin         x               max                       (refuse it)
//   kAny, kAll         x != 0          or,and                    false, true
//   kNormZero          x != 0          +                         0
//   kNormOne           |x|             +                         0
//   kNormTwo           |x|^2           +      sqrt(s)            0
//   kNormInf           |x|             max                       0
//   kNormMinusInf      |x|             min                       (refuse it)
//   kNormP             |x|^v           +      s^(1/v)            0
//   kLogSumExp         e^(x - m)       +      log(s) + m         -infinity
//   kVar, kStd         (x - mean)^2    +      s / max(0, n - v)  NaN
//                                             (its root)
//
//   where m is the largest x (0 where that is infinite); kVar, kStd and
//   kLogSumExp walk over the elements twice.
// Accumulation  float32 for float32, float16, bfloat16; float64, complex64 and
//   complex128 in their own type (the norms of complex numbers are real);
//   integers and bool modulo 2^64, their largest and smallest in 32 or 64 bits.
//   The result is cast once to out's type (integers wrap).
// Order     one fixed tree: the reduced elements in row-major order are cut into
//   blocks of 512; element i of a block goes to lane i % 16, the lanes are folded
//   pairwise, and so are the blocks. It depends on the number of reduced
//   elements alone, so neither the range nor the strides nor a cut into parts
//   change a bit. The error of a sum grows with the logarithm of the number of
//   blocks.
// NaN, Inf  as IEEE 754; the largest and smallest are NaN if an element is.
// Aliasing  none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

enum class ReduceOp : uint8_t {
  kSum,
  kNanSum,
  kMean,
  kProd,
  kMax,
  kMin,
  kAny,
  kAll,
  kNormZero,
  kNormOne,
  kNormTwo,
  kNormInf,
  kNormMinusInf,
  kNormP,
  kLogSumExp,
  kVar,
  kStd,
};

struct ReduceSpec {
  ReduceOp op = ReduceOp::kSum;
  DType compute = DType::kUndefined;  ///< what the elements are cast to first
  double value = 0;                   ///< p of kNormP, correction of kVar and kStd
};

/// Walks over the elements: 1 or 2.
int ReducePasses(ReduceOp op);

/// Type of what is between passes and parts.
DType ReduceStage(const ReduceSpec& spec);

/// Reduces self over the dims whose bits are set in `dim_mask` (bit d: dim d).
///
/// \param out    the kept dims of self, in order; reduced dims are absent
/// \param mean   also the means, of the shape of out; null or for kVar and kStd
/// \param range  counts elements of out (FullRange(out) is everything)
void Reduce(const ReduceSpec& spec, const TensorRef& self, uint32_t dim_mask, const TensorRef& out,
            const TensorRef* mean, Range range);

// ---- The same in parts, for few outputs of many elements each ----

/// Reduced elements of one part.
inline constexpr int64_t kReducePart = 64 * 512;

/// One pass over parts of the elements.
///
/// \param partials  contiguous, of type ReduceStage: [parts, kept dims]
/// \param shift     what the first pass left; null in the first one
/// \param range     counts elements of partials
void ReduceParts(const ReduceSpec& spec, int pass, const TensorRef& self, uint32_t dim_mask, const TensorRef* shift,
                 const TensorRef& partials, Range range);

/// Folds and finishes what ReduceParts left.
///
/// \param count  reduced elements of an output
/// \param out    of pass 0 of 2: contiguous, of type ReduceStage
/// \param range  counts elements of out
void ReducePartials(const ReduceSpec& spec, int pass, const TensorRef& partials, const TensorRef* shift, int64_t count,
                    const TensorRef& out, const TensorRef* mean, Range range);

/// Sums self; `compute` and the rest as above.
inline void ReduceSum(const TensorRef& self, uint32_t dim_mask, DType compute, const TensorRef& out, Range range) {
  Reduce({ReduceOp::kSum, compute}, self, dim_mask, out, nullptr, range);
}

}  // namespace reprise::kernels
