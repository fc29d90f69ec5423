// SPDX-License-Identifier: Apache-2.0
//
// Factors of matrices, each for a batch, of which one work item is one matrix.
//
// Cholesky  a = l * l^H, or u^H * u; only that triangle of a is read, the other one of the result is 0. A matrix that
// is
//   not positive definite gives NaN everywhere in the triangle.
// QR        a = q * r by Householder's reflections: the diagonal of r is real, of the sign that LAPACK gives it.
// SVD       a = u * diag(sigma) * v^T, sigma descending: Householder's reflections, then Jacobi's rotations of pairs of
//   columns until all are orthogonal to the last bits. u and v are orthonormal whatever the rank. A matrix with NaN or
//   Inf gives NaN.
// Accumulation  float64 and complex128 for every type, in scratch memory; rounded once.
// Order     depends on the matrix alone.
// Aliasing  outputs may not overlap inputs.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// \pre a and out: [.., n, n], float32, float64 or complex.
void Cholesky(const TensorRef& a, bool upper, const TensorRef& out, Range batches, void* scratch);
int64_t CholeskyScratchBytes(DType type, int64_t n);

/// \pre a [.., m, n], r [.., k, n] or [.., m, n], q [.., m, as many columns as r has rows], or null
void Qr(const TensorRef& a, const TensorRef* q, const TensorRef& r, Range batches, void* scratch);
/// \param q_columns  0 without q
int64_t QrScratchBytes(DType type, int64_t m, int64_t n, int64_t q_columns);

/// \pre a [.., m, n], sigma [.., k] real; has_vectors: u [.., m, k or m], v [.., n, k or n], k = min(m, n)
void Svd(const TensorRef& a, const TensorRef& sigma, const TensorRef& u, const TensorRef& v, bool has_vectors,
         Range batches, void* scratch);
/// \param columns  of the larger one of u and v; 0 without vectors
int64_t SvdScratchBytes(DType type, int64_t m, int64_t n, int64_t columns);

}  // namespace reprise::kernels
