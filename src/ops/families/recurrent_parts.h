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

/// An operand of steps: a member of RecurrentArgs, or one of its gates.
struct StepPart {
  const kernels::TensorRef* kernels::RecurrentArgs::*place;
  int gate;  // of member gates; -1: another member
  Part part;
};

/// The type that steps compute in.
inline kernels::DType MathOf(kernels::DType compute) {
  return compute == kernels::DType::kDouble ? compute : kernels::DType::kFloat;
}

/// Add the launch of the steps, or of their gradients (kernels/recurrent.h).
void AddSteps(OpCall& call, const kernels::RecurrentArgs& settings, std::span<const StepPart> results,
              std::span<const StepPart> inputs);
void AddGradients(OpCall& call, const kernels::RecurrentArgs& settings, std::span<const StepPart> results,
                  std::span<const StepPart> inputs);

// ---- dynamic_rnn.cc: computations of operators by type ----

/// Shapes of one layer and direction of an LSTM, from x [steps, batch, features] and wh [hidden, 4 * hidden].
Status DynamicRnnShape(OpCall& call);
Status LowerDynamicRnn(OpCall& call);
Status LowerDynamicRnnGrad(OpCall& call);

}  // namespace reprise::ops::recurrent
