// SPDX-License-Identifier: Apache-2.0
#include "ops/named_ops/steps.h"

namespace reprise::ops::named {
namespace {

// ---- Matrices ----

bool IsTransposed(const NamedCall& call, int operand) {
  const char* const names[2][2] = {{"transpose_x1", "transpose_x2"}, {"adj_x1", "adj_x2"}};
  return call.context.Bool(names[call.op.type.starts_with("Batch")][operand]);
}

StridedView MatrixOf(const NamedCall& call, int operand) {
  const StridedView view = call.inputs[static_cast<size_t>(operand)].view();
  return IsTransposed(call, operand) ? view.Transposed() : view;
}

Status LowerProduct(NamedCall& call) {
  constexpr int64_t kKeepPrecision = 0;
  const StridedView out = call.OutputView();
  if (!call.Has("bias")) {
    return call.Step(kMatmul, {MatrixOf(call, 0), MatrixOf(call, 1), out, kKeepPrecision});
  }
  const StridedView product = call.Temporary(Wide(out.dtype), call.shape());
  REPRISE_RETURN_IF_ERROR(call.Step(kMatmul, {MatrixOf(call, 0), MatrixOf(call, 1), product, kKeepPrecision}));
  REPRISE_RETURN_IF_ERROR(call.Step(kAdd, {product, call.Input("bias").view(), product}));
  return call.Step(kCopy, {product, out});
}

constexpr NamedOp kMatmulRows[] = {
    {"BatchMatMul", kArithmetic, LowerProduct},
    {"BatchMatMulV2", kArithmetic, LowerProduct},
    {"MatMul", kArithmetic, LowerProduct},
    {"MatMulV2", kArithmetic, LowerProduct},
};

}  // namespace

std::span<const NamedOp> MatmulRows() { return kMatmulRows; }

}  // namespace reprise::ops::named
