// SPDX-License-Identifier: Apache-2.0
//
// Matrix products as BLAS has them: sizes and strides become matrices, the rest is ops/blas.h. A vector is a matrix of
// one column.
#include "acl/ops/acl_cblas.h"

#include <fmt/format.h>

#include "ops/blas.h"
#include "runtime/report.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
using reprise::runtime::Api;
namespace ops = reprise::ops;

namespace {

Status CheckSize(const char* api, int size, const char* name) {
  if (size >= 0) return {};
  return Error(kInvalidArgument, fmt::format("{}: {} is {}, must not be negative", api, name, size))
      .Culprit(fmt::format("parameter {}", name))
      .Hint("pass the sizes of the matrices");
}

aclError Gemm(const char* api, aclTransType trans_a, aclTransType trans_b, aclTransType trans_c, int m, int n, int k,
              const void* alpha, const void* a, int lda, aclDataType type_a, const void* b, int ldb, aclDataType type_b,
              const void* beta, void* c, int ldc, aclDataType type_c, aclComputeType type,
              aclrtStream stream) noexcept {
  return Api(api, [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(CheckSize(api, m, "m"));
    REPRISE_RETURN_IF_ERROR(CheckSize(api, n, "n"));
    REPRISE_RETURN_IF_ERROR(CheckSize(api, k, "k"));
    const auto matrix = [](const char* name, const void* data, aclDataType dtype, int rows, int columns, int stride,
                           const char* stride_name, aclTransType trans, const char* trans_name) {
      const bool is_transposed = trans == 1;
      return ops::BlasMatrix{.name = name,
                             .data = data,
                             .dtype = dtype,
                             .rows = is_transposed ? columns : rows,
                             .columns = is_transposed ? rows : columns,
                             .row_stride = stride,
                             .stride_name = stride_name,
                             .transposition = trans,
                             .transposition_name = trans_name};
    };
    const ops::BlasCall call{.name = api,
                             .a = matrix("matrixA", a, type_a, m, k, lda, "lda", trans_a, "transA"),
                             .b = matrix("matrixB", b, type_b, k, n, ldb, "ldb", trans_b, "transB"),
                             .c = matrix("matrixC", c, type_c, m, n, ldc, "ldc", trans_c, "transC"),
                             .alpha = alpha,
                             .beta = beta,
                             .compute_type = type};
    return ops::RunBlas(call, stream);
  });
}

// A is m by n as it is stored.
aclError Gemv(const char* api, aclTransType trans, int m, int n, const void* alpha, const void* a, int lda,
              aclDataType type_a, const void* x, int incx, aclDataType type_x, const void* beta, void* y, int incy,
              aclDataType type_y, aclComputeType type, aclrtStream stream) noexcept {
  return Api(api, [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(CheckSize(api, m, "m"));
    REPRISE_RETURN_IF_ERROR(CheckSize(api, n, "n"));
    const bool is_transposed = trans == 1;
    const auto vector = [](const char* name, const void* data, aclDataType dtype, int length, int stride,
                           const char* stride_name) {
      return ops::BlasMatrix{.name = name,
                             .data = data,
                             .dtype = dtype,
                             .rows = length,
                             .columns = 1,
                             .row_stride = stride,
                             .stride_name = stride_name};
    };
    const ops::BlasCall call{.name = api,
                             .a = {.name = "a",
                                   .data = a,
                                   .dtype = type_a,
                                   .rows = m,
                                   .columns = n,
                                   .row_stride = lda,
                                   .stride_name = "lda",
                                   .transposition = trans,
                                   .transposition_name = "transA"},
                             .b = vector("x", x, type_x, is_transposed ? m : n, incx, "incx"),
                             .c = vector("y", y, type_y, is_transposed ? n : m, incy, "incy"),
                             .alpha = alpha,
                             .beta = beta,
                             .compute_type = type};
    return ops::RunBlas(call, stream);
  });
}

}  // namespace

aclError aclblasGemvEx(aclTransType transA, int m, int n, const void* alpha, const void* a, int lda,
                       aclDataType dataTypeA, const void* x, int incx, aclDataType dataTypeX, const void* beta, void* y,
                       int incy, aclDataType dataTypeY, aclComputeType type, aclrtStream stream) {
  return Gemv("aclblasGemvEx", transA, m, n, alpha, a, lda, dataTypeA, x, incx, dataTypeX, beta, y, incy, dataTypeY,
              type, stream);
}

aclError aclblasHgemv(aclTransType transA, int m, int n, const aclFloat16* alpha, const aclFloat16* a, int lda,
                      const aclFloat16* x, int incx, const aclFloat16* beta, aclFloat16* y, int incy,
                      aclComputeType type, aclrtStream stream) {
  return Gemv("aclblasHgemv", transA, m, n, alpha, a, lda, ACL_FLOAT16, x, incx, ACL_FLOAT16, beta, y, incy,
              ACL_FLOAT16, type, stream);
}

aclError aclblasS8gemv(aclTransType transA, int m, int n, const int32_t* alpha, const int8_t* a, int lda,
                       const int8_t* x, int incx, const int32_t* beta, int32_t* y, int incy, aclComputeType type,
                       aclrtStream stream) {
  return Gemv("aclblasS8gemv", transA, m, n, alpha, a, lda, ACL_INT8, x, incx, ACL_INT8, beta, y, incy, ACL_INT32, type,
              stream);
}

aclError aclblasGemmEx(aclTransType transA, aclTransType transB, aclTransType transC, int m, int n, int k,
                       const void* alpha, const void* matrixA, int lda, aclDataType dataTypeA, const void* matrixB,
                       int ldb, aclDataType dataTypeB, const void* beta, void* matrixC, int ldc, aclDataType dataTypeC,
                       aclComputeType type, aclrtStream stream) {
  return Gemm("aclblasGemmEx", transA, transB, transC, m, n, k, alpha, matrixA, lda, dataTypeA, matrixB, ldb, dataTypeB,
              beta, matrixC, ldc, dataTypeC, type, stream);
}

aclError aclblasHgemm(aclTransType transA, aclTransType transB, aclTransType transC, int m, int n, int k,
                      const aclFloat16* alpha, const aclFloat16* matrixA, int lda, const aclFloat16* matrixB, int ldb,
                      const aclFloat16* beta, aclFloat16* matrixC, int ldc, aclComputeType type, aclrtStream stream) {
  return Gemm("aclblasHgemm", transA, transB, transC, m, n, k, alpha, matrixA, lda, ACL_FLOAT16, matrixB, ldb,
              ACL_FLOAT16, beta, matrixC, ldc, ACL_FLOAT16, type, stream);
}

aclError aclblasS8gemm(aclTransType transA, aclTransType transB, aclTransType transC, int m, int n, int k,
                       const int32_t* alpha, const int8_t* matrixA, int lda, const int8_t* matrixB, int ldb,
                       const int32_t* beta, int32_t* matrixC, int ldc, aclComputeType type, aclrtStream stream) {
  return Gemm("aclblasS8gemm", transA, transB, transC, m, n, k, alpha, matrixA, lda, ACL_INT8, matrixB, ldb, ACL_INT8,
              beta, matrixC, ldc, ACL_INT32, type, stream);
}
