// SPDX-License-Identifier: Apache-2.0
//
// Tokens to experts and back, by a map [tokens, experts] that tells who computes which; the choice of experts by a
// table or with its gradients; tokens that come rank by rank.
//
// Entries   of a map are counted expert by expert, each expert's tokens ascending: entry i is row i of what is laid
//           out. With a capacity each expert has that many rows: its tokens first, then the others, ascending.
// Accumulation  float32, rounded once; a token's rows in their order.
// Indices   from the device: those out of range are skipped.
// Aliasing  none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

struct MapLayout {
  TensorRef map = {};  ///< bool or 8-bit integers [tokens, experts]
  int64_t rows = 0;
  int64_t capacity = 0;  ///< 0: as many rows as the expert has tokens
};
/// token[i] and expert[i] of row i, -1 both where no entry is left.
void ListEntries(const MapLayout& layout, int64_t* token, int64_t* expert);
/// order: rows by token, equal ones in their order, those without a token last; begin[t]: where token t begins in it,
/// begin[tokens] behind the last.
void OrderByToken(const int64_t* token, int64_t rows, int64_t tokens, int64_t* order, int64_t* begin);
/// token[i] = index[i], or -1 where that is none of `tokens`.
void ReadTokens(const TensorRef& index, int64_t tokens, int64_t* token);
/// Of rows that lie as sorted_indices says, `choices` of each token: the same lists.
void ListSorted(const TensorRef& sorted_indices, int64_t choices, int64_t tokens, int64_t* order, int64_t* begin,
                int64_t* token);

/// out[i] = from[token[i], expert[i]], 0 without an entry.
void GatherPairs(const TensorRef& from, const int64_t* token, const int64_t* expert, const TensorRef& out, Range rows);
/// out[token[i], expert[i]] = from[i]. \pre out is 0
void ScatterPairs(const TensorRef& from, const int64_t* token, const int64_t* expert, const TensorRef& out, Range rows);
/// out[t] = sum over the rows r of token t of rows[r] * weight[r]. \param weight  [rows] or without data: 1
void SumRowsOfTokens(const TensorRef& rows, const TensorRef& weight, const int64_t* order, const int64_t* begin,
                     const TensorRef& out, Range tokens);

/// The gradients of that: entry i is row out_index[i] of token[i].
struct UnpermuteGradient {
  TensorRef gradient = {};  ///< [tokens, n]
  TensorRef rows = {};      ///< [rows, n]; of probs
  TensorRef probs = {};     ///< [tokens, experts], or without data
  TensorRef out_index = {};
  TensorRef rows_gradient = {};    ///< [rows, n]; rows without an entry stay as they are
  TensorRef probs_gradient = {};   ///< [tokens, experts], or without data
  const int64_t* token = nullptr;  ///< by entry, and the next
  const int64_t* expert = nullptr;
};
void UnpermuteByMapBackward(const UnpermuteGradient& operands, Range entries);

/// order[i] = the token at row i once those of each expert are together; they come rank by rank, `counts` [ranks,
/// experts] of each expert. Tokens beyond the counts come last.
void OrderByExpert(const TensorRef& counts, int64_t tokens, int64_t* order);
/// How many tokens each expert has from all ranks, or where its tokens end.
void SumRanks(const TensorRef& counts, bool wants_ends, const TensorRef& out);

/// Softmax or sigmoid of each row of x, and those of it that the row of `table` names which `ids` tells, divided by
/// their sum + eps on demand, times a factor. An expert or id that is none gives 0 and expert -1.
struct TableGating {
  bool is_sigmoid = false, divides = false;
  float factor = 1, eps = 0;
};
int64_t TableGatingScratchBytes(int64_t columns, int64_t k);
void GateByTable(const TableGating& gating, const TensorRef& x, const TensorRef& ids, const TensorRef& table,
                 const TensorRef& y, const TensorRef& expert, const TensorRef& norm, Range rows, void* scratch);

/// The gradient of the chosen scores for x: norm [row, column] is what gating gave, expert [row, k] the choice.
int64_t GatingGradientScratchBytes(int64_t columns, int64_t k);
void GatingGradient(const TableGating& gating, const TensorRef& norm, const TensorRef& gradient,
                    const TensorRef& expert, const TensorRef& out, Range rows, void* scratch);

/// y = the k greatest of softmax(x), divided by their sum if `divides`; expert their places, or the number of columns
/// in a finished row; all = softmax(x).
/// \param finished, all  without data: none
int64_t TopKSoftmaxScratchBytes(int64_t columns);
void TopKSoftmax(const TensorRef& x, const TensorRef& finished, bool divides, const TensorRef& y,
                 const TensorRef& expert, const TensorRef& all, Range rows, void* scratch);

/// Physical experts for logical ones, and which of the choices are kept.
struct ExpertBalance {
  TensorRef expert_ids = {};  ///< [tokens, k]
  TensorRef table = {};       ///< [experts, columns]: how many places, then the places
  TensorRef scales = {};      ///< [tokens, k], or without data
  TensorRef threshold = {};   ///< [k]
  TensorRef active = {};      ///< [tokens], or without data
  TensorRef ids_out = {}, mask_out = {};
  int64_t rank = 0, world = 1;
  bool by_token = false;
};
void BalanceExperts(const ExpertBalance& operands, Range tokens);

}  // namespace reprise::kernels
