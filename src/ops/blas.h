// SPDX-License-Identifier: Apache-2.0
//
// Matrix products as BLAS has them (acl/ops/acl_cblas.h): C = alpha * op(A) * op(B) + beta * C, row-major.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace reprise::ops {

/// A matrix argument as the C functions get it.
struct BlasMatrix {
  const char* name;  ///< of the parameter; "matrixA"
  const void* data;
  int32_t dtype;  ///< aclDataType
  int64_t rows;   ///< as stored: before op()
  int64_t columns;
  int64_t row_stride;       ///< elements; -1: no gaps
  const char* stride_name;  ///< "lda"
  int64_t item_stride = 1;  ///< elements between the columns: vectors have one column or one row
  int transposition = 0;    ///< aclTransType: 0 as it is, 1 transposed
  const char* transposition_name = "";
};

struct BlasCall {
  const char* name;  ///< "aclblasGemmEx"
  BlasMatrix a, b, c;
  const void* alpha;  ///< device addresses of numbers of c's type
  const void* beta;
  int compute_type;  ///< aclComputeType
};

/// Checks and queues the product. Sums of int8 are int32, of the 16-bit floats float32, whatever the compute type.
///
/// Threads:  thread-safe
/// Capture:  recorded as kernels; alpha and beta are read when these run
/// Errors:   100000 for null, negative sizes, strides that are too small, types that do not fit; 107000 for memory that
///           the device does not reach; 200001 for a storage that is no row-major matrix
Status RunBlas(const BlasCall& call, const void* stream);

}  // namespace reprise::ops
