// SPDX-License-Identifier: Apache-2.0
#include "ops/named_ops/settings.h"
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

// The bias goes into the product while its sums are wide, where one kernel does both.
Status LowerProductWithBias(NamedCall& call) {
  const StridedView out = call.OutputView();
  const StridedView bias = call.Input("bias").view();
  const StridedView first = MatrixOf(call, 0);
  const StridedView second = MatrixOf(call, 1);
  constexpr size_t kBatched = 3;
  const size_t rank = out.sizes.size();
  const bool is_plain = first.sizes.size() == rank && second.sizes.size() == rank &&
                        (rank < kBatched || (rank == kBatched && first.sizes[0] == second.sizes[0]));
  if (is_plain && bias.dtype == out.dtype && first.dtype == out.dtype) {
    const StepArgument one = kernels::Scalar::Of<int64_t>(1);
    const StepArgument precision = int64_t{0};
    return rank == kBatched ? StepWith(call, "aclnnBaddbmm",
                                       {{"self", bias},
                                        {"batch1", first},
                                        {"batch2", second},
                                        {"beta", one},
                                        {"alpha", one},
                                        {"out", out},
                                        {"cubeMathType", precision}})
                            : StepWith(call, "aclnnAddmm",
                                       {{"self", bias},
                                        {"mat1", first},
                                        {"mat2", second},
                                        {"beta", one},
                                        {"alpha", one},
                                        {"out", out},
                                        {"cubeMathType", precision}});
  }
  const bool is_wide = Wide(out.dtype) == out.dtype;
  const StridedView product = is_wide ? out : call.Temporary(Wide(out.dtype), call.shape());
  REPRISE_RETURN_IF_ERROR(call.Step(kMatmul, {first, second, product, int64_t{0}}));
  REPRISE_RETURN_IF_ERROR(call.Step(kAdd, {product, bias, product}));
  return is_wide ? Status() : call.Step(kCopy, {product, out});
}

// Products of int8 add up in int32, by the kernel of quantised products, whose scale plays no part there.
Status LowerByteProduct(NamedCall& call) {
  constexpr int64_t kOne[] = {1};
  return StepWith(call, "aclnnQuantMatmulV4",
                  {{"x1", call.inputs[0].view()},
                   {"x2", call.inputs[1].view()},
                   {"scale", Placeholder(call, kernels::DType::kFloat, kOne)},
                   {"bias", OptionalInput(call, "bias")},
                   {"transposeX1", IsTransposed(call, 0)},
                   {"transposeX2", IsTransposed(call, 1)},
                   {"out", call.OutputView()}});
}

Status LowerProduct(NamedCall& call) {
  const bool has_row = !call.Has("bias") || call.Input("bias").rank() == 1;
  if (call.inputs[0].dtype() == kernels::DType::kInt8 && call.OutputView().dtype == kernels::DType::kInt32 && has_row) {
    return LowerByteProduct(call);
  }
  if (call.Has("bias")) return LowerProductWithBias(call);
  return call.Step(kMatmul, {MatrixOf(call, 0), MatrixOf(call, 1), call.OutputView(), int64_t{0}});
}

// ---- Factors and inverses ----

Status LowerInverse(NamedCall& call) {
  StridedView x = call.Input("x").view();
  if (call.context.Bool("adjoint")) {
    if (kernels::CategoryOf(x.dtype) == kernels::Category::kComplex) {
      return call.context.WrongAttribute("adjoint", "is true for complex matrices", "invert them, and turn the result");
    }
    x = x.Transposed();
  }
  return StepWith(call, "aclnnInverse", {{"self", x}, {"out", call.OutputView()}});
}

Status LowerQr(NamedCall& call) {
  return StepWith(call, "aclnnLinalgQr",
                  {{"self", call.Input("x").view()},
                   {"mode", int64_t{call.context.Bool("full_matrices") ? 1 : 0}},
                   {"Q", call.Output("q").view()},
                   {"R", call.Output("r").view()}});
}

constexpr NamedOp kMatmulRows[] = {
    {"BatchMatMul", kArithmetic, LowerProduct},
    {"BatchMatMulV2", kArithmetic, LowerProduct},
    {"MatMul", kArithmetic, LowerProduct},
    {"MatMulV2", kArithmetic, LowerProduct},
    As("Cholesky", kSolverTypes, "aclnnLinalgCholesky", "x %false ="),
    As("LogMatrixDeterminant", {kernels::DType::kFloat, kernels::DType::kDouble}, "aclnnSlogdet", "x =sign =y"),
    {"MatrixInverse", kSolverTypes, LowerInverse},
    {"Qr", kSolverTypes, LowerQr},
};

}  // namespace

std::span<const NamedOp> MatmulRows() { return kMatmulRows; }

}  // namespace reprise::ops::named
