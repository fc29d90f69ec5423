// SPDX-License-Identifier: Apache-2.0
//
// Tokens to experts and back: a token goes to several experts; its rows are laid out expert by expert, and what the
// experts made of them is added up again.
//
// Assignments  count through expert_idx in row-major order: assignment a is choice a % k of token a / k.
// Order        OrderAssignments sorts them by expert, equal ones by their place (or by the one row_idx gives them).
// Gating       p = softmax or sigmoid of each row; the experts are chosen by p + bias, groups of them first if there
// are
//              any: those with the greatest maximum or sum of the two greatest. Of equal ones the first counts as
//              greater, NaN is greater than any number. y = p of the chosen ones, divided by their sum + eps on demand,
//              times a factor.
// Accumulation float32, in the order of the choices; rounded once.
// Indices      from the device: those out of range are skipped and write nothing.
// Aliasing     none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

struct RoutingSetup {
  int64_t assignments = 0;
  int64_t choices = 1;  ///< k
  int64_t tokens = 0;
  int64_t rows = 0;          ///< of what is laid out
  int64_t first_expert = 0;  ///< experts that are counted, [first, end)
  int64_t end_expert = 0;
  bool keeps_others = true;    ///< other experts have rows, too; otherwise they come last and have none
  int64_t capacity = 0;        ///< rows of each expert; 0: as many as it has tokens
  bool names_sources = false;  ///< row_idx_out[place] = assignment, not row_idx_out[assignment] = place
  enum class Count : uint8_t { kNone, kEnds, kCounts, kPairs } count = Count::kNone;
};

struct RoutingOperands {
  TensorRef expert_idx;       ///< integers [assignments]
  TensorRef row_idx;          ///< alike, or without data; its token is what it holds % tokens
  TensorRef row_idx_out;      ///< int32 [assignments]
  TensorRef expert_idx_out;   ///< sorted; or without data, and the next two
  TensorRef counts;           ///< [experts], or [experts, 2] of pairs: expert and count, those with a count first
  TensorRef before_capacity;  ///< [experts]
  int64_t* source;            ///< [rows]: token of each row, -1: none
  int64_t* expert;            ///< [rows]: place of its expert among those that are counted
};

/// int64 words of memory that the function needs.
int64_t OrderAssignmentsWords(const RoutingSetup& setup);
void OrderAssignments(const RoutingSetup& setup, const RoutingOperands& operands, int64_t* words);

/// How rows get from x to y.
enum class RowQuantization : uint8_t { kNone, kStatic, kDynamic };

/// y[r] = x[source[r]], 0 where that is -1.
///
/// kNone: scale_out[r] = scale[source[r]], if there is one. kStatic: y = clamp(round(x * scale + offset)), one number
/// each. kDynamic: as DynamicQuantize with smooth = scale [1 or experts, n], step in scale_out[r].
/// \param range  counts rows
void ExpandRows(RowQuantization quantization, const TensorRef& x, const int64_t* source, const int64_t* expert,
                const TensorRef& scale, const TensorRef& offset, const TensorRef& y, const TensorRef& scale_out,
                Range range);

/// out[t] = x1[t] + x2[t] + sum over j of weight[t, j] * (rows[place(t, j)] + bias[expert[t, j]]); absent operands have
/// no data: weight is 1 then, the others 0.
struct CombineOperands {
  TensorRef rows;    ///< [row, n]; a row that is not there is 0
  TensorRef place;   ///< int32: element t * choices + j, or t + tokens * j
  TensorRef weight;  ///< [t, choices]
  TensorRef bias;    ///< [experts, n]
  TensorRef expert;  ///< int32 [t, choices]
  TensorRef x1;      ///< [t, n]
  TensorRef x2;
  TensorRef out;  ///< [t, n]
  int64_t choices = 1;
  bool by_choice = false;  ///< place counts tokens first
};
/// \param range  counts tokens
void CombineRows(const CombineOperands& operands, Range range);

/// The gradients of that for rows and weight: rows_gradient[place(t, j)] = weight[t, j] * gradient[t],
/// weight_gradient[t, j] = sum over n of gradient[t] * rows[place(t, j)]. Rows that no place names stay as they are.
void CombineRowsBackward(const CombineOperands& operands, const TensorRef& gradient, const TensorRef& rows_gradient,
                         const TensorRef& weight_gradient, Range range);

/// ends[e] = how many of the ascending `sorted` are at most e. \param range  counts experts
void CountUpTo(const TensorRef& sorted, const TensorRef& ends, Range range);

struct GroupGating {
  bool is_sigmoid = false;
  bool sums_two = false;  ///< a group counts as much as its two greatest, not as its greatest
  bool divides = false;   ///< by the sum of the chosen
  int64_t groups = 1;
  int64_t chosen_groups = 1;
  float factor = 1;
  float eps = 0;
};
/// Bytes of scratch for one call.
int64_t GroupGatingScratchBytes(int64_t columns, int64_t groups);
/// \param x     [row, column]; bias [column] or without data
/// \param y     [row, k]; expert int32 alike
/// \param norm  float32 [row, column]: p; or without data
/// \param range  counts rows
void ChooseExpertsInGroups(const GroupGating& gating, const TensorRef& x, const TensorRef& bias, const TensorRef& y,
                           const TensorRef& expert, const TensorRef& norm, Range range, void* scratch);

}  // namespace reprise::kernels
