// SPDX-License-Identifier: Apache-2.0
//
// Which queries and keys belong together, for operators whose lengths are tensors or lists of numbers.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/token_sequences.h"
#include "ops/families/attention.h"

namespace reprise::ops {

/// The names of parameters; "" for those that the operator does not have.
struct TokenNames {
  std::string_view query_lengths, key_lengths, table;
};

/// Queries, keys and lengths of one call.
struct Tokens {
  kernels::TokenLayout layout;
  attention::HeadView query, key;
  std::string_view query_layout, key_layout;  ///< as attention::ViewAs takes them
  const Operand* query_lengths = nullptr;     ///< null for those that are not tensors
  const Operand* key_lengths = nullptr;
  const Operand* table = nullptr;
  std::vector<int64_t> query_numbers, key_numbers;  ///< of lists

  /// [batch, head, token, element] of something that lies like the queries, or like the keys.
  StatusOr<kernels::TensorRef> ViewOfQuery(const OpCall& call, const Operand& operand, int64_t heads) const;
  StatusOr<kernels::TensorRef> ViewOfKey(const OpCall& call, const Operand& operand, int64_t heads) const;
  /// [batch, head, token, 1] of a number for each head of a token.
  StatusOr<kernels::TensorRef> NumbersOfQuery(const OpCall& call, const Operand& operand) const;
  StatusOr<kernels::TensorRef> NumbersOfKey(const OpCall& call, const Operand& operand) const;
};

/// Layouts BSND, BNSD, TND, BSH, and PA_BSND for keys: an empty text is BSND. The numbers of heads are needed where a
/// dim holds them and the elements.
StatusOr<Tokens> ReadTokens(const OpCall& call, const TokenNames& names, const Operand& query, const Operand& key,
                            std::string_view query_layout, std::string_view key_layout, int64_t query_heads = 0,
                            int64_t key_heads = 0);

/// Turns lists of lengths of tokens that lie end to end into ends, where they are lengths: those that add up to all
/// tokens. (Where both readings fit they mean the same.)
void MakeEnds(Tokens& tokens);

/// sparseMode 0, 2 or 3: none, causal from the left upper or from the right lower corner.
StatusOr<kernels::Causal> CausalOf(const OpCall& call);

/// preTokens and nextTokens limit nothing.
Status CheckNoBand(const OpCall& call);

/// Lengths as a kernel takes them; refs of the launch from `first` on are lengths of queries, of keys, and the table.
void ReadLengths(const OpCall& call, Launch& launch, const Tokens& tokens);
kernels::TokenLengths LengthsOf(const Launch& launch, size_t first, const std::vector<int64_t>& query_numbers,
                                const std::vector<int64_t>& key_numbers);

}  // namespace reprise::ops
