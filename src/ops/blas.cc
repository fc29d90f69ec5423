// SPDX-License-Identifier: Apache-2.0
#include "ops/blas.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "kernels/scale_add.h"
#include "ops/lowerings.h"
#include "ops/named_call.h"
#include "ops/op_call.h"
#include "ops/rules.h"
#include "runtime/dump.h"
#include "runtime/report.h"
#include "runtime/stream.h"

namespace reprise::ops {
namespace {

using kernels::DType;

constexpr int kMaxComputeType = 1;  // high precision, low precision

void RunScaleAdd(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::ScaleAdd(launch.refs[1], launch.refs[2], launch.refs[3], launch.refs[0], range);
}

Status LowerScaleAdd(OpCall& call) {
  Launch& launch = call.AddLaunch(RunScaleAdd);
  call.Write(launch, call.outputs[0]);
  for (size_t i = 1; i < call.inputs.size(); ++i) call.Read(launch, call.inputs[i]);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(1);
  return {};
}

constexpr Computation kProduct = {
    .dtype_rule = TypeOfOutput, .shape_rule = MatmulShape, .engine = Engine::kCube, .lower = LowerMatmul};
constexpr Computation kScaleAdd = {
    .dtype_rule = TypeOfOutput, .shape_rule = BroadcastInputs, .engine = Engine::kCube, .lower = LowerScaleAdd};
constexpr std::array kProductParams = {In("A"), In("B"), Out("product"), Attr("cubeMathType", ParamKind::kInt)};
constexpr std::array kScaleAddParams = {InOut("C"), In("product"), In("alpha"), In("beta")};
constexpr Routine kProductRoutine = {kProductParams, kProduct};
constexpr Routine kScaleAddRoutine = {kScaleAddParams, kScaleAdd};
constexpr NamedOp kGemm = {.type = "Gemm", .types = kNumericTypes};
constexpr std::array<opdef::Operand, 1> kGemmOutputs = {{{.name = "C"}}};
constexpr opdef::GraphOp kGemmOperator = {.type = "Gemm", .outputs = kGemmOutputs};  // checked here, never inferred

Status Invalid(const BlasCall& call, const char* parameter, std::string text, std::string hint) {
  return Error(kInvalidArgument, fmt::format("{}: {} {}", call.name, parameter, text))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint(std::move(hint));
}

// The matrix after op().
StatusOr<StridedView> ViewOf(const BlasCall& call, const BlasMatrix& matrix) {
  if (matrix.transposition != 0 && matrix.transposition != 1) {
    return Error(kApiNotSupported, fmt::format("{}: {} is {}, which is no row-major matrix", call.name,
                                               matrix.transposition_name, matrix.transposition))
        .Culprit(fmt::format("parameter {}", matrix.transposition_name))
        .Hint("pass 0 for a matrix as it is, 1 for a transposed one");
  }
  const int64_t dense = matrix.columns * matrix.item_stride;
  if (matrix.row_stride != -1 && matrix.row_stride < std::max<int64_t>(1, dense)) {
    return Invalid(call, matrix.stride_name, fmt::format("is {}", matrix.row_stride),
                   fmt::format("pass at least {}, or -1 for no gaps", std::max<int64_t>(1, dense)));
  }
  StridedView view;
  view.dtype = static_cast<DType>(matrix.dtype);
  const std::array sizes = {matrix.rows, matrix.columns};
  const std::array strides = {matrix.row_stride == -1 ? dense : matrix.row_stride, matrix.item_stride};
  view.sizes.assign(sizes.data(), 2);
  view.strides.assign(strides.data(), 2);
  view.data = const_cast<void*>(matrix.data);  // written only where it is C
  return matrix.transposition == 1 ? view.Transposed() : view;
}

Status CheckMemory(const BlasCall& call, const BlasMatrix& matrix, const StridedView& view) {
  const bool is_empty = view.sizes[0] == 0 || view.sizes[1] == 0;
  // int times int and a few more: the number of elements fits 64 bits, that of bytes need not.
  const int64_t items =
      is_empty ? 0 : (view.sizes[0] - 1) * view.strides[0] + (view.sizes[1] - 1) * view.strides[1] + 1;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(items, kernels::ItemSize(view.dtype), &bytes)) {
    return Error(kInvalidValue,
                 fmt::format("{}: {} has {} elements, more than memory has", call.name, matrix.name, items))
        .Culprit(fmt::format("parameter {}", matrix.name))
        .Hint("check the sizes and strides");
  }
  return CheckDeviceMemory(call.name, matrix.name, matrix.data, static_cast<uint64_t>(bytes),
                           fmt::format("parameter {}", matrix.name), "allocate it with aclrtMalloc");
}

}  // namespace

Status RunBlas(const BlasCall& call, const void* stream) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(call.alpha, "alpha"));
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(call.beta, "beta"));
  for (const BlasMatrix* matrix : {&call.a, &call.b, &call.c}) {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(matrix->data, matrix->name));
  }
  if (call.compute_type < 0 || call.compute_type > kMaxComputeType) {
    return Invalid(call, "type", fmt::format("is {}", call.compute_type), "pass 0 (high precision) or 1 (low)");
  }
  // Types: both operands one, and a result that their sums have.
  const auto a = static_cast<DType>(call.a.dtype);
  const auto c = static_cast<DType>(call.c.dtype);
  const bool is_short = a == DType::kFloat16 || a == DType::kBFloat16;
  const bool is_known = is_short || a == DType::kFloat || a == DType::kDouble || a == DType::kInt8;
  const DType sum = a == DType::kInt8 ? DType::kInt32 : is_short ? DType::kFloat : a;
  if (!is_known || call.a.dtype != call.b.dtype || (c != sum && !(is_short && c == a))) {
    return Error(kInvalidArgument,
                 fmt::format("{}: {} is {}, {} is {}, {} is {}", call.name, call.a.name, DTypeText(call.a.dtype),
                             call.b.name, DTypeText(call.b.dtype), call.c.name, DTypeText(call.c.dtype)))
        .Culprit("the data types")
        .Hint("both operands have one type, the result has it, too, or float32 for 16-bit floats, int32 for int8");
  }
  REPRISE_ASSIGN_OR_RETURN(const StridedView left, ViewOf(call, call.a));
  REPRISE_ASSIGN_OR_RETURN(const StridedView right, ViewOf(call, call.b));
  REPRISE_ASSIGN_OR_RETURN(const StridedView out, ViewOf(call, call.c));
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, runtime::FindStream(stream));
  REPRISE_RETURN_IF_ERROR(CheckMemory(call, call.a, left));
  REPRISE_RETURN_IF_ERROR(CheckMemory(call, call.b, right));
  REPRISE_RETURN_IF_ERROR(CheckMemory(call, call.c, out));
  for (const auto& [name, data] : {std::pair{"alpha", call.alpha}, {"beta", call.beta}}) {
    REPRISE_RETURN_IF_ERROR(CheckDeviceMemory(call.name, name, data, static_cast<uint64_t>(kernels::ItemSize(c)),
                                              fmt::format("parameter {}", name),
                                              "put the number into memory of aclrtMalloc"));
  }

  constexpr int64_t kKeepPrecision = 0;
  NamedCall steps(kGemm, kGemmOperator);
  const StridedView product = steps.Temporary(sum, out.sizes);
  REPRISE_RETURN_IF_ERROR(steps.Step(kProductRoutine, {left, right, product, kKeepPrecision}));
  const StridedView alpha = StridedView::Of(c, {}, const_cast<void*>(call.alpha));
  const StridedView beta = StridedView::Of(c, {}, const_cast<void*>(call.beta));
  REPRISE_RETURN_IF_ERROR(steps.Step(kScaleAddRoutine, {out, product, alpha, beta}));
  if (runtime::Dump::wants_tensors()) [[unlikely]] {
    steps.told = {TensorInfoOf("A", left, true, false), TensorInfoOf("B", right, true, false),
                  TensorInfoOf("alpha", alpha, true, false), TensorInfoOf("beta", beta, true, false),
                  TensorInfoOf("C", out, true, true)};
  }
  return steps.Submit(*found);
}

}  // namespace reprise::ops
