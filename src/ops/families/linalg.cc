// SPDX-License-Identifier: Apache-2.0
#include "kernels/linalg.h"

#include "kernels/copy.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;

void RunInverse(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Inverse(launch.refs[1], launch.refs[0], range, memory.scratch);
}

void RunSignLogDet(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::SignLogDet(launch.refs[2], launch.refs[0], launch.refs[1], range, memory.scratch);
}

// ints: upper, transpose, unitriangular.
void RunTriangularSolve(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const kernels::TriangularSystem system = {launch.ints[0] != 0, launch.ints[1] != 0, launch.ints[2] != 0};
  kernels::TriangularSolve(launch.refs[1], launch.refs[2], system, launch.refs[0], range, memory.scratch);
}

Status CheckSquare(const OpCall& call, const Operand& matrix) {
  const std::span<const int64_t> sizes = matrix.sizes();
  if (sizes.size() >= 2 && sizes[sizes.size() - 1] == sizes[sizes.size() - 2]) return {};
  return call.InvalidOperand(
      matrix, fmt::format("has shape {}, expected square matrices: two equal sizes at the end", ShapeText(sizes)));
}

Dims BatchOf(const Operand& matrix) { return Dims(matrix.sizes().data(), matrix.sizes().size() - 2); }

DType RealPartOf(DType dtype) {
  return dtype == DType::kComplex64 ? DType::kFloat : dtype == DType::kComplex128 ? DType::kDouble : dtype;
}

// One item for each matrix of `batch`, which costs `flops`.
void SplitBatch(OpCall& call, Launch& launch, const Dims& batch, int64_t flops, int64_t scratch_bytes) {
  launch.units = 1;
  for (int64_t size : batch) launch.units *= size;
  if (launch.units == 0) return;
  launch.grain = GrainOf(flops);
  call.AddScratch(launch, static_cast<uint64_t>(std::max<int64_t>(scratch_bytes, 1)));
}

Status InverseShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckSquare(call, call.inputs[0]));
  return call.CheckShape(call.outputs[0], call.inputs[0].sizes(), [] { return "the shape"; });
}

Status LowerInverse(OpCall& call) {
  const Operand& self = call.inputs[0];
  const int64_t n = self.sizes().back();
  Launch& launch = call.AddLaunch(RunInverse);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, self);
  if (self.tensor->count == 0) return {};
  SplitBatch(call, launch, BatchOf(self), n * n * n, kernels::InverseScratchBytes(self.dtype, n));
  return {};
}

Status SlogdetTypes(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(OneType(call));
  const Operand& log = call.Get("logOut");
  if (log.dtype == RealPartOf(call.compute)) return {};
  return call.InvalidOperand(log, fmt::format("has {}, expected {} for {}", kernels::Name(log.dtype),
                                              kernels::Name(RealPartOf(call.compute)), call.InputTypes()));
}

Status SlogdetShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckSquare(call, call.inputs[0]));
  const Dims batch = BatchOf(call.inputs[0]);
  for (const Operand& output : call.outputs) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(output, batch, [] { return "the batch shape"; }));
  }
  return {};
}

Status LowerSlogdet(OpCall& call) {
  const Operand& self = call.inputs[0];
  const int64_t n = self.sizes().back();
  Launch& launch = call.AddLaunch(RunSignLogDet);
  call.Write(launch, call.outputs[0]);
  call.Write(launch, call.outputs[1]);
  call.Read(launch, self);
  SplitBatch(call, launch, BatchOf(self), n * n * n / 2, kernels::SignLogDetScratchBytes(self.dtype, n));
  return {};
}

Status TriangularSolveShape(OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand& a = call.Get("A");
  REPRISE_RETURN_IF_ERROR(CheckSquare(call, a));
  if (self.rank() < 2 || self.sizes()[self.sizes().size() - 2] != a.sizes().back()) {
    return call.InvalidOperand(self, fmt::format("has shape {}, expected {} rows for A {}", ShapeText(self.sizes()),
                                                 a.sizes().back(), ShapeText(a.sizes())));
  }
  Dims shape;
  if (!Broadcast(BatchOf(self), BatchOf(a), shape)) {
    return call.Invalid(fmt::format("the batch dims of {} do not broadcast", call.InputShapes()),
                        "batch sizes, aligned at the last one, must be equal or 1");
  }
  Dims solution = shape;
  solution.push_back(a.sizes().back());
  solution.push_back(self.sizes().back());
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("xOut"), solution, [] { return "the shape"; }));
  shape.push_back(a.sizes().back());
  shape.push_back(a.sizes().back());
  return call.CheckShape(call.Get("mOut"), shape, [] { return "the shape of A"; });
}

Status LowerTriangularSolve(OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand& a = call.Get("A");
  const Operand& x = call.Get("xOut");
  const Operand& m = call.Get("mOut");
  const int64_t n = a.sizes().back();
  const int64_t columns = self.sizes().back();
  Launch& solve = call.AddLaunch(RunTriangularSolve);
  for (const char* name : {"upper", "transpose", "unitriangular"}) solve.ints.push_back(call.Bool(name) ? 1 : 0);
  call.Write(solve, x);
  call.Read(solve, self);
  call.Read(solve, a);
  if (x.tensor->count != 0) {
    SplitBatch(call, solve, BatchOf(x), n * n * columns / 2, kernels::TriangularSolveScratchBytes(x.dtype, n, columns));
  }
  Launch& copy = call.AddLaunch(RunCopy);
  call.Write(copy, m);
  call.Read(copy, a);
  copy.units = m.tensor->count;
  copy.grain = GrainOf(1);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/linalg.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
