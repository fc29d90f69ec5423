// SPDX-License-Identifier: Apache-2.0
#include "ops/families/recurrent_parts.h"

#include <memory>

#include "kernels/matmul.h"
#include "ops/computations.h"
#include "ops/rules.h"
#include "ops/spatial.h"

namespace reprise::ops::recurrent {

using kernels::DType;
using kernels::RecurrentArgs;
using kernels::TensorRef;

namespace {

// refs: out, a, b, addend.
void RunRecurrentProduct(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MatMulEpilogue epilogue;
  if (launch.HasOperand(3)) {
    epilogue.beta = kernels::Scalar::Of<int64_t>(1);
    epilogue.addend = launch.Ref(3, memory);
  }
  kernels::MatMul(launch.Ref(1, memory), launch.Ref(2, memory), launch.compute, launch.Ref(0, memory), range,
                  memory.scratch, launch.HasOperand(3) ? &epilogue : nullptr);
}

void RunColumnSums(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::SumOfRows(launch.Ref(1, memory), launch.refs[0], range);
}

}  // namespace

Part PartOf(const OpCall& call, const Operand* operand) {
  if (operand == nullptr) return {};
  return {operand, call.RefOf(*operand), false};
}
Part NewPart(OpCall& call, DType type, std::initializer_list<int64_t> sizes) {
  return {nullptr, call.Temporary(type, {sizes.begin(), sizes.size()}), true};
}
void WritePart(const OpCall& call, Launch& launch, const Part& part) {
  if (part.is_temporary) return call.WriteTemporary(launch, part.ref);
  if (part.operand != nullptr) return call.Write(launch, *part.operand, part.ref);
  call.WriteOptional(launch, nullptr);
}
void ReadPart(const OpCall& call, Launch& launch, const Part& part) {
  if (part.is_temporary) return call.ReadTemporary(launch, part.ref);
  if (part.operand != nullptr) return call.Read(launch, *part.operand, part.ref);
  call.ReadOptional(launch, nullptr);
}

Part Swapped(Part part, int a, int b) {
  std::swap(part.ref.sizes[a], part.ref.sizes[b]);
  std::swap(part.ref.strides[a], part.ref.strides[b]);
  return part;
}

Part Narrow(Part part, int dim, int64_t begin, int64_t count) {
  const int64_t bytes = begin * part.ref.strides[dim] * kernels::ItemSize(part.ref.dtype);
  part.ref.data = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(part.ref.data) + static_cast<uintptr_t>(bytes));
  part.ref.sizes[dim] = count;
  return part;
}

Part EntryOfFirst(Part part, int64_t index) {
  part = Narrow(part, 0, index, 1);
  for (int d = 0; d + 1 < part.ref.rank; ++d) {
    part.ref.sizes[d] = part.ref.sizes[d + 1];
    part.ref.strides[d] = part.ref.strides[d + 1];
  }
  --part.ref.rank;
  return part;
}

bool Flatten(TensorRef& ref) {
  if (ref.rank == 2) return true;
  if (ref.sizes[0] != 1 && ref.sizes[1] != 1 && ref.strides[0] != ref.sizes[1] * ref.strides[1]) return false;
  const int64_t stride = ref.sizes[1] != 1 ? ref.strides[1] : ref.strides[0];
  ref.sizes[0] *= ref.sizes[1];
  ref.strides[0] = stride;
  ref.sizes[1] = ref.sizes[2];
  ref.strides[1] = ref.strides[2];
  ref.rank = 2;
  return true;
}

void AddCopyOf(OpCall& call, const Part& to, const Part& from) {
  Launch& launch = call.AddLaunch(RunCopy);
  WritePart(call, launch, to);
  ReadPart(call, launch, from);
  launch.units = kernels::ElementCount(to.ref);
  launch.grain = kGrainElements;
}

void AddProduct(OpCall& call, const Part& out, const Part& a, const Part& b, const Part& addend) {
  Launch& launch = call.AddLaunch(RunRecurrentProduct);
  WritePart(call, launch, out);
  ReadPart(call, launch, a);
  ReadPart(call, launch, b);
  ReadPart(call, launch, addend);
  launch.units = kernels::MatMulUnitCount(a.ref, b.ref, launch.compute, out.ref);
  if (launch.units == 0) return;
  launch.grain = GrainOfProduct(kernels::ElementCount(out.ref) / launch.units * std::max<int64_t>(1, a.ref.sizes[1]));
  const auto bytes = kernels::MatMulScratchBytes(a.ref, b.ref, launch.compute, out.ref);
  call.AddScratch(launch, static_cast<uint64_t>(bytes));
}

void AddSumOfRows(OpCall& call, const Part& out, const Part& matrix) {
  Launch& launch = call.AddLaunch(RunColumnSums);
  WritePart(call, launch, out);
  ReadPart(call, launch, matrix);
  launch.units = matrix.ref.sizes[1];
  launch.grain = GrainOf(matrix.ref.sizes[0]);
}

void AddSteps(OpCall& call, Launch::Kernel kernel, const RecurrentArgs& settings, std::span<const StepPart> results,
              std::span<const StepPart> inputs) {
  Launch& launch = call.AddLaunch(kernel);
  auto state = std::make_shared<StepState>();
  state->settings = settings;
  for (const StepPart& part : results) WritePart(call, launch, part.part);
  for (const StepPart& part : inputs) ReadPart(call, launch, part.part);
  for (const auto& parts : {results, inputs}) {
    for (const StepPart& part : parts) state->places.emplace_back(part.place, part.gate);
  }
  launch.state = std::move(state);
  launch.units = settings.batch;
  const int64_t gates = settings.is_gru ? 3 : 4;
  launch.grain = GrainOfProduct(settings.steps * settings.hidden * (gates * settings.hidden + kCellCost));
  const DType math = MathOf(call.compute);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::RecurrentScratchBytes(settings, math)));
}

}  // namespace reprise::ops::recurrent
