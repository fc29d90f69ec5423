// SPDX-License-Identifier: Apache-2.0
//
// What the networks of recurrent.cc and dynamic_rnn.cc share: operands and temporaries seen alike, products, and the
// launch of the steps (kernels/recurrent.h).
#pragma once

#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "kernels/recurrent.h"
#include "ops/op_call.h"

namespace reprise::ops::recurrent {

inline constexpr int64_t kCellCost = 64;  ///< light elements: the functions of all gates

// ---- What launches work on: an operand through a view, or a temporary ----

struct Part {
  const Operand* operand = nullptr;  ///< null: a temporary, or absent
  kernels::TensorRef ref;
  bool is_temporary = false;
};

Part PartOf(const OpCall& call, const Operand* operand);
Part NewPart(OpCall& call, kernels::DType type, std::initializer_list<int64_t> sizes);
void WritePart(const OpCall& call, Launch& launch, const Part& part);
void ReadPart(const OpCall& call, Launch& launch, const Part& part);

/// Dims a and b exchanged.
Part Swapped(Part part, int a, int b);
/// Entries [begin, begin + count) of a dim.
Part Narrow(Part part, int dim, int64_t begin, int64_t count);
/// The entry of the first dim, without it.
Part EntryOfFirst(Part part, int64_t index);
/// [T, B, n] as [T * B, n]; false where the rows do not allow it.
bool Flatten(kernels::TensorRef& ref);

// ---- Launches ----

void AddCopyOf(OpCall& call, const Part& to, const Part& from);
/// out = a x b + addend, which may be absent.
void AddProduct(OpCall& call, const Part& out, const Part& a, const Part& b, const Part& addend);
void AddSumOfRows(OpCall& call, const Part& out, const Part& matrix);

/// The members of RecurrentArgs in the order of the operands of a launch: results first.
using StepRef = const kernels::TensorRef* kernels::RecurrentArgs::*;
struct StepPart {
  StepRef place;
  int gate;  // of member gates; -1: another member
  Part part;
};

struct StepState {
  kernels::RecurrentArgs settings;
  std::vector<std::pair<StepRef, int>> places;
};

/// The type that steps compute in.
inline kernels::DType MathOf(kernels::DType compute) {
  return compute == kernels::DType::kDouble ? compute : kernels::DType::kFloat;
}

template <void (*kRun)(const kernels::RecurrentArgs&, kernels::DType, void*, kernels::Range)>
void RunRecurrent(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& state = launch.State<StepState>();
  kernels::RecurrentArgs args = state.settings;
  kernels::TensorRef refs[24];
  for (size_t i = 0; i < state.places.size(); ++i) {
    if (!launch.HasOperand(i)) continue;
    refs[i] = launch.Ref(i, memory);
    const auto [place, gate] = state.places[i];
    (gate >= 0 ? args.gates[gate] : args.*place) = &refs[i];
  }
  kRun(args, MathOf(launch.compute), memory.scratch, range);
}

/// Adds the launch of `kernel`, which is RunRecurrent of a function of kernels/recurrent.h.
void AddSteps(OpCall& call, Launch::Kernel kernel, const kernels::RecurrentArgs& settings,
              std::span<const StepPart> results, std::span<const StepPart> inputs);

// ---- dynamic_rnn.cc: computations of operators by type ----

/// Shapes of one layer and direction of an LSTM, from x [steps, batch, features] and wh [hidden, 4 * hidden].
Status DynamicRnnShape(OpCall& call);
Status LowerDynamicRnn(OpCall& call);
Status LowerDynamicRnnGrad(OpCall& call);

}  // namespace reprise::ops::recurrent
