// SPDX-License-Identifier: Apache-2.0
//
// The steps of LSTM and GRU along a sequence, and their gradients: what depends on the step before. The products that
// do not (input times weight, sums of gradients over all steps) are matrix products of their own.
//
// Formulas, for one step of one entry of the batch; a = part of the input with its bias, h' = hidden state before it
//   LSTM  [i f g o] = a + W h' + b; i, f, o = sigmoid, g = tanh; c = f c' + i g; h = o tanh(c)
//   GRU   r = sigmoid(a_r + W_r h' + b_r), z = sigmoid(a_z + W_z h' + b_z), hn = W_n h' + b_n,
//         n = tanh(a_n + r hn); h = (1 - z) n + z h'
//   Gradients are those of these formulas, from what the forward steps saved.
// Sequences  [T, B, ..], of which direction `reverse` begins at the end; or with batch_sizes, of which entry t says how
//   many entries of the batch still run in step t: then rows are packed, [sum of batch_sizes, ..], or padded, [T B,
//   ..], whichever number of rows there is. An entry that has ended keeps its last state; padded results are 0 from
//   there on. Sizes beyond the batch count as the batch, rows beyond the tensor do not exist.
//   With `presence` instead an entry takes part in the steps that it marks; it keeps its states in the others, and h
//   and c show them, while y, the gates and tanh_c are 0 there.
// Accumulation  float32, for float64 float64; sums over the hidden state in the order of its elements, fused as those
// of
//   matrix products are. Results are rounded to the type that they are stored in, the state that is carried on is not.
// NaN, Inf  as IEEE 754.
// Aliasing  none.
#pragma once

#include "kernels/step_team.h"
#include "kernels/strided.h"

namespace reprise::kernels {

inline constexpr int kMostGates = 4;

/// Tensors have the rows of the sequence, [T, B, H] or packed, unless it says [B, H]. Null: absent, or not wanted.
struct RecurrentArgs {
  bool is_gru = false;
  bool reverse = false;
  /// LSTM: columns of input part, weight and bias are in the order i, g, f, o instead of i, f, g, o.
  bool cell_before_forget = false;
  double forget_bias = 0;  ///< LSTM: added to f before its function
  int64_t steps = 0;
  int64_t batch = 0;
  int64_t hidden = 0;
  const TensorRef* batch_sizes = nullptr;  ///< [T], of packed sequences
  /// Marks of the steps that an entry takes part in: [T, B, H], whose first element of a row counts, or [B], the number
  /// of its steps.
  const TensorRef* presence = nullptr;
  /// Rows [rows, gates * H], contiguous, of the type of the computation.
  const TensorRef* input_part = nullptr;
  /// Forwards [H, gates * H], any strides and type; of gradients [gates * H, H], contiguous, of the computation's type.
  const TensorRef* weight = nullptr;
  const TensorRef* bias = nullptr;          ///< [gates * H]
  const TensorRef* input_bias = nullptr;    ///< LSTM: [gates * H] of the input part, where that lacks it
  const TensorRef* first_h = nullptr;       ///< [B, H]; null: 0
  const TensorRef* first_c = nullptr;       ///< [B, H]; null: 0
  const TensorRef* gates[kMostGates] = {};  ///< LSTM i, g, f, o; GRU r, z, n, hn; of gradients inputs
  const TensorRef* h = nullptr;
  const TensorRef* c = nullptr;
  const TensorRef* tanh_c = nullptr;
  // ---- Results of steps ----
  const TensorRef* y = nullptr;       ///< h once more
  const TensorRef* last_h = nullptr;  ///< [B, H]
  const TensorRef* last_c = nullptr;  ///< [B, H]
  // ---- Gradients ----
  const TensorRef* of_y = nullptr;
  const TensorRef* of_last_h = nullptr;   ///< [B, H]
  const TensorRef* of_last_c = nullptr;   ///< [B, H]
  const TensorRef* of_first_h = nullptr;  ///< [B, H]; result
  const TensorRef* of_first_c = nullptr;  ///< [B, H]; result
  /// Results, contiguous, of the type of the computation: gradients of the gates before their functions, with respect
  /// to the input's and to the hidden state's part (LSTM: null, they are the same), and the hidden state before each
  /// step.
  const TensorRef* of_input_part = nullptr;
  const TensorRef* of_hidden_part = nullptr;
  const TensorRef* h_before = nullptr;
};

// ---- Steps ----
//
// Threads go through the steps together (step_team.h). A part of a step is some units of some entries: their gates, one
// product of the hidden state with some columns of the weight, then their functions. The weight is packed such that the
// columns of all gates of a unit meet in a part, and a thread that keeps its units has its share of the weight in the
// cache of its core. The state before a step and the one behind it lie apart.

/// Parts of a step, and how many are worth a thread.
int64_t RecurrentParts(const RecurrentArgs& args);
int64_t RecurrentGrain(const RecurrentArgs& args, DType compute);

/// Bytes of a weight [H, gates * H] as steps read it, on this processor. Aligned to 64.
int64_t PackedRecurrentBytes(const TensorRef& weight, DType compute);
/// \param T float or double: what steps compute in
template <class T>
void PackRecurrentWeight(const TensorRef& weight, void* to);

/// All memory is aligned to 64.
struct RecurrentMemory {
  void* states = nullptr;   ///< RecurrentStateBytes bytes, of all threads
  void* packed = nullptr;   ///< PackedRecurrentBytes bytes, of all threads
  bool is_packed = false;   ///< `packed` holds the weight already, which is not read then
  void* scratch = nullptr;  ///< RecurrentScratchBytes bytes, of this thread
};
int64_t RecurrentStateBytes(const RecurrentArgs& args, DType compute);
int64_t RecurrentScratchBytes(const RecurrentArgs& args, DType compute);

/// All steps, together with other threads that call it with the same team, each with another number of a member.
/// \param compute  float32 or float64
/// \param team     of RecurrentParts parts; null: this thread does them alone
void RecurrentSteps(const RecurrentArgs& args, DType compute, const RecurrentMemory& memory, StepTeam* team,
                    int64_t member);

// ---- Gradients ----

int64_t RecurrentGradientScratchBytes(const RecurrentArgs& args, DType compute);

/// All steps of some entries of the batch. \param compute float32 or float64
void RecurrentGradients(const RecurrentArgs& args, DType compute, void* scratch, Range entries);

/// out[j] = sum over rows of matrix[.., j], for columns j of the range.
void SumOfRows(const TensorRef& matrix, const TensorRef& out, Range columns);

/// What follows the two products of one step of an LSTM: gates = input_gates + hidden_gates + both biases, in the order
/// i, f, g, o; elements of [B, H].
struct LstmCellArgs {
  const TensorRef* input_gates;
  const TensorRef* hidden_gates;
  const TensorRef* c_before;
  const TensorRef* input_bias = nullptr;  ///< null: 0
  const TensorRef* hidden_bias = nullptr;
  const TensorRef* h;
  const TensorRef* c;
  const TensorRef* storage;  ///< [B, 4 H]: i, f, g, o
};
/// \param compute float32 or float64
void LstmCell(const LstmCellArgs& args, DType compute, Range entries);

struct LstmCellGradArgs {
  const TensorRef* of_h = nullptr;  ///< null: 0
  const TensorRef* of_c = nullptr;
  const TensorRef* c_before;
  const TensorRef* c;
  const TensorRef* storage;
  const TensorRef* of_gates;
  const TensorRef* of_c_before;
};
void LstmCellGrad(const LstmCellGradArgs& args, Range entries);

}  // namespace reprise::kernels
