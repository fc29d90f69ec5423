// SPDX-License-Identifier: Apache-2.0
#include "ops/families/recurrent_parts.h"

#include <memory>

#include "kernels/matmul.h"
#include "ops/computations.h"
#include "ops/families/products.h"
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
                  memory.scratch, launch.HasOperand(3) ? &epilogue : nullptr, PreparedRight(launch));
}

void RunColumnSums(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::SumOfRows(launch.Ref(1, memory), launch.refs[0], range);
}

using StepRef = const TensorRef* RecurrentArgs::*;

// How the operands of a launch become RecurrentArgs.
struct StepState {
  RecurrentArgs settings;
  std::vector<std::pair<StepRef, int>> places;  // a member, or entry of member gates
  size_t weight = 0;                            // of steps: which operand
};

// RecurrentArgs of a run.
class RunArgs {
 public:
  RunArgs(const Launch& launch, const Launch::KernelMemory& memory) {
    const auto& state = launch.State<StepState>();
    args = state.settings;
    for (size_t i = 0; i < state.places.size(); ++i) {
      if (!launch.HasOperand(i)) continue;
      refs_[i] = launch.Ref(i, memory);
      const auto [place, gate] = state.places[i];
      (gate >= 0 ? args.gates[gate] : args.*place) = &refs_[i];
    }
  }
  RunArgs(const RunArgs&) = delete;
  RunArgs& operator=(const RunArgs&) = delete;

  RecurrentArgs args;

 private:
  TensorRef refs_[24];
};

// Behind the operands of the steps: the packed weight, and the states.
void RunSteps(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const RunArgs run(launch, memory);
  const auto& state = launch.State<StepState>();
  kernels::RecurrentMemory parts;
  parts.is_packed = launch.uses[state.weight].is_prepared;
  parts.packed = parts.is_packed ? launch.refs[state.weight].data : launch.Ref(state.places.size(), memory).data;
  parts.states = launch.Ref(state.places.size() + 1, memory).data;
  parts.scratch = memory.scratch;
  kernels::RecurrentSteps(run.args, MathOf(launch.compute), parts, memory.team, range.begin);
}

void RunGradients(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const RunArgs run(launch, memory);
  kernels::RecurrentGradients(run.args, MathOf(launch.compute), memory.scratch, range);
}

PreparedForm FindPackedWeight(const Launch& launch) {
  const size_t operand = launch.State<StepState>().weight;
  const DType math = MathOf(launch.compute);
  PreparedForm form;
  form.operand = operand;
  form.bytes = static_cast<uint64_t>(kernels::PackedRecurrentBytes(launch.refs[operand], math));
  form.write = math == DType::kDouble ? kernels::PackRecurrentWeight<double> : kernels::PackRecurrentWeight<float>;
  form.adopt = [](Launch&) {};
  form.keeps_bits = true;
  return form;
}

// Operands of a launch that are members of RecurrentArgs: results first.
void FillSteps(const OpCall& call, Launch& launch, StepState& state, const RecurrentArgs& settings,
               std::span<const StepPart> results, std::span<const StepPart> inputs) {
  state.settings = settings;
  for (const StepPart& part : results) WritePart(call, launch, part.part);
  for (const StepPart& part : inputs) ReadPart(call, launch, part.part);
  for (const auto& parts : {results, inputs}) {
    for (const StepPart& part : parts) state.places.emplace_back(part.place, part.gate);
  }
}

size_t PlaceOf(const StepState& state, StepRef place) {
  size_t i = 0;
  while (state.places[i].second >= 0 || state.places[i].first != place) ++i;
  return i;
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
  launch.grain = GrainOf(1);
}

void AddProduct(OpCall& call, const Part& out, const Part& a, const Part& b, const Part& addend) {
  Launch& launch = call.AddLaunch(RunRecurrentProduct);
  WritePart(call, launch, out);
  ReadPart(call, launch, a);
  ReadPart(call, launch, b);
  ReadPart(call, launch, addend);
  SplitProduct(call, launch);
}

void AddSumOfRows(OpCall& call, const Part& out, const Part& matrix) {
  Launch& launch = call.AddLaunch(RunColumnSums);
  WritePart(call, launch, out);
  ReadPart(call, launch, matrix);
  launch.units = matrix.ref.sizes[1];
  launch.grain = GrainOf(matrix.ref.sizes[0]);
}

void AddSteps(OpCall& call, const RecurrentArgs& settings, std::span<const StepPart> results,
              std::span<const StepPart> inputs) {
  Launch& launch = call.AddLaunch(RunSteps);
  const DType math = MathOf(call.compute);
  const auto state = std::make_shared<StepState>();
  FillSteps(call, launch, *state, settings, results, inputs);
  state->weight = PlaceOf(*state, &RecurrentArgs::weight);
  const int64_t packed = kernels::PackedRecurrentBytes(launch.refs[state->weight], math);
  WritePart(call, launch, NewPart(call, DType::kUInt8, {packed}));
  WritePart(call, launch, NewPart(call, DType::kUInt8, {kernels::RecurrentStateBytes(settings, math)}));
  launch.state = state;
  launch.goes_in_steps = true;
  launch.units = kernels::RecurrentParts(settings);
  launch.grain = kernels::RecurrentGrain(settings, math);
  launch.find_prepared = FindPackedWeight;
  call.AddScratch(launch, static_cast<uint64_t>(kernels::RecurrentScratchBytes(settings, math)));
}

void AddGradients(OpCall& call, const RecurrentArgs& settings, std::span<const StepPart> results,
                  std::span<const StepPart> inputs) {
  Launch& launch = call.AddLaunch(RunGradients);
  auto state = std::make_shared<StepState>();
  FillSteps(call, launch, *state, settings, results, inputs);
  launch.state = std::move(state);
  launch.units = settings.batch;
  const int64_t gates = settings.is_gru ? 3 : 4;
  launch.grain = GrainOfProduct(settings.steps * settings.hidden * (gates * settings.hidden + kCellCost));
  const DType math = MathOf(call.compute);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::RecurrentGradientScratchBytes(settings, math)));
}

}  // namespace reprise::ops::recurrent
