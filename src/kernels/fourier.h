// SPDX-License-Identifier: Apache-2.0
//
// Fourier transforms of rows.
//
// Formula   out[k] = sum over j of in[j] * root^(j * k), root = exp(-2 pi i / n).
// Accumulation  complex128, by the factors of n: as many operations as n times the sum of its prime factors.
// Rounding  once, where a result is stored.
// NaN, Inf  as IEEE 754.
// Aliasing  none.
#pragma once

#include <complex>

#include "kernels/strided.h"

namespace reprise::kernels {

using FourierNumber = std::complex<double>;

/// roots[j] = exp(-2 pi i j / n).
void FillRoots(FourierNumber* roots, int64_t n);
/// out = the transform of n numbers. \param terms  room for n numbers
void TransformRow(const FourierNumber* in, int64_t n, const FourierNumber* roots, FourierNumber* out,
                  FourierNumber* terms);

/// Bytes of scratch for transforms of n numbers.
constexpr int64_t FourierScratchBytes(int64_t n) { return 3 * n * static_cast<int64_t>(sizeof(FourierNumber)); }

/// Transforms of windows of n numbers of a row, `hop` apart: out[row, k, t] = factor * the transform of
/// x[row, t * hop + j] * window[j - (n - width) / 2], 0 where the window does not reach.
struct WindowTransforms {
  TensorRef x = {};       ///< [rows, length], real or complex
  TensorRef window = {};  ///< [width], real or complex; without data: ones
  TensorRef out = {};     ///< complex [rows, bins, frames], or pairs of numbers [rows, bins, frames, 2]
  int64_t n = 1, hop = 1, width = 1;
  double factor = 1;
  const FourierNumber* roots = nullptr;
};
/// \param frames  counts frames, row by row
void TransformWindows(const WindowTransforms& operands, Range frames, void* scratch);

/// out = factor * the first bins of the transform of the last dim of x, which is cut or filled with zeros to n.
struct RealTransforms {
  TensorRef x = {};    ///< [.., length], real
  TensorRef out = {};  ///< pairs of numbers [.., bins, 2]
  int64_t n = 1;
  double factor = 1;
  const FourierNumber* roots = nullptr;
};
void TransformRealRows(const RealTransforms& operands, Range rows, void* scratch);

}  // namespace reprise::kernels
