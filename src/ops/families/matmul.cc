// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/plans.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

// Multiply-adds that are worth a thread: some tens of microseconds.
constexpr int64_t kGrainMultiplyAdds = int64_t{1} << 21;
constexpr int64_t kMaxCubeMathType = 4;

void RunMatmul(const Launch& launch, kernels::Range range, const Launch::Memory& memory) {
  kernels::MatMul(launch.refs[1], launch.refs[2], launch.compute, launch.refs[0], range, memory.scratch);
}

// Inserts a dim of size 1.
void InsertDim(kernels::TensorRef& ref, int at) {
  for (int d = ref.rank; d > at; --d) {
    ref.sizes[d] = ref.sizes[d - 1];
    ref.strides[d] = ref.strides[d - 1];
  }
  ref.sizes[at] = 1;
  ref.strides[at] = 0;
  ++ref.rank;
}

Status WrongRank(const OpCall& call, const Operand& operand, int rank) {
  return call.InvalidOperand(operand, fmt::format("has shape {}, expected {} dims", ShapeText(operand.sizes()), rank));
}

}  // namespace

Status MatmulShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  const Operand& mat2 = call.inputs[1];
  for (const Operand& input : call.inputs) {
    if (input.rank() == 0) return call.InvalidOperand(input, "is a scalar, expected at least one dim");
  }
  const std::span<const int64_t> a = self.sizes();
  const std::span<const int64_t> b = mat2.sizes();
  const int64_t a_depth = a.back();
  const int64_t b_depth = b.size() == 1 ? b[0] : b[b.size() - 2];
  if (a_depth != b_depth) {
    return call.Invalid(fmt::format("{} cannot be multiplied: the last dim of {} is {}, the {} dim of {} is {}",
                                    call.InputShapes(), call.NameOf(self), a_depth,
                                    b.size() == 1 ? "only" : "last but one", call.NameOf(mat2), b_depth));
  }
  Dims shape;
  if (!Broadcast(a.first(a.size() - std::min<size_t>(2, a.size())), b.first(b.size() - std::min<size_t>(2, b.size())),
                 shape)) {
    return call.Invalid(fmt::format("the batch dims of {} do not broadcast", call.InputShapes()),
                        "batch sizes, aligned at the last one, must be equal or 1");
  }
  if (a.size() > 1) shape.push_back(a[a.size() - 2]);
  if (b.size() > 1) shape.push_back(b.back());
  return call.CheckShape(call.outputs[0], shape, [] { return "the shape"; });
}

Status MatrixShape(OpCall& call) {
  for (const Operand& input : call.inputs) {
    if (input.rank() != 2) return WrongRank(call, input, 2);
  }
  return MatmulShape(call);
}

Status BatchMatrixShape(OpCall& call) {
  for (const Operand& input : call.inputs) {
    if (input.rank() != 3) return WrongRank(call, input, 3);
  }
  if (call.inputs[0].sizes()[0] != call.inputs[1].sizes()[0]) {
    return call.Invalid(fmt::format("{} have batch sizes {} and {}", call.InputShapes(), call.inputs[0].sizes()[0],
                                    call.inputs[1].sizes()[0]),
                        "pass batches of the same size, or use aclnnMatmul, which broadcasts them");
  }
  return MatmulShape(call);
}

Status PlanMatmul(OpCall& call) {
  const int64_t math_type = call.Int("cubeMathType");
  if (math_type < 0 || math_type > kMaxCubeMathType) {
    return call.Invalid(fmt::format("cubeMathType is {}, expected a value from 0 to {}", math_type, kMaxCubeMathType),
                        "0 keeps the type; the others allow less precision, which this device does not need");
  }
  kernels::TensorRef a = call.RefOf(call.inputs[0]);
  kernels::TensorRef b = call.RefOf(call.inputs[1]);
  kernels::TensorRef out = call.RefOf(call.outputs[0]);
  // A vector is a row on the left and a column on the right.
  const bool is_row = a.rank == 1;
  const bool is_column = b.rank == 1;
  if (is_row) InsertDim(a, 0);
  if (is_column) InsertDim(b, 1);
  if (is_row) InsertDim(out, is_column ? out.rank : out.rank - 1);
  if (is_column) InsertDim(out, out.rank);

  Launch& launch = call.AddLaunch(RunMatmul);
  call.Write(launch, call.outputs[0], out);
  call.Read(launch, call.inputs[0], a);
  call.Read(launch, call.inputs[1], b);
  launch.units = kernels::MatMulUnitCount(a, b, launch.compute, out);
  if (launch.units == 0) return {};
  const int64_t per_unit = kernels::ElementCount(out) / launch.units * std::max<int64_t>(1, a.sizes[a.rank - 1]);
  launch.grain = std::max<int64_t>(1, kGrainMultiplyAdds / std::max<int64_t>(1, per_unit));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::MatMulScratchBytes(a, b, launch.compute, out)));
  return {};
}

// ---- Computations -----------------------------------------------------------------------------------------------

constexpr Computation kMatmul = {
    .dtype_rule = PromoteInputs, .shape_rule = MatmulShape, .engine = Engine::kCube, .plan = PlanMatmul};
constexpr Computation kMm = {
    .dtype_rule = PromoteInputs, .shape_rule = MatrixShape, .engine = Engine::kCube, .plan = PlanMatmul};
constexpr Computation kBatchMatMul = {
    .dtype_rule = PromoteInputs, .shape_rule = BatchMatrixShape, .engine = Engine::kCube, .plan = PlanMatmul};

}  // namespace reprise::ops
