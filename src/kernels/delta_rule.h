// SPDX-License-Identifier: Apache-2.0
//
// Gated delta rule: attention with a state instead of keys.
//
// Formula   token by token of a sequence and a head, with a = exp(g) * diag(exp(gk)):
//             S = S a;  S = S + beta * (v - S k) k^T;  out = scale * S q.
// State     [state, head, value element, key element]. Sequence b begins with state b, or, where every token names one,
//           with that of its first token, or of the last one that was accepted before. A token that names a state
//           leaves S there; without names S goes to state b behind the last token. A name that is no state reads zeros
//           and stores nothing.
// Accumulation  float32.
// Aliasing  the new states may be the old ones, else none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

/// Heads of queries and keys divide those of values. Absent ones have no data.
struct DeltaRuleOperands {
  TensorRef query;      ///< [token, key head, key element]
  TensorRef key;        ///< alike
  TensorRef value;      ///< [token, head, value element]
  TensorRef beta;       ///< [token, head]; absent: 1
  TensorRef decay;      ///< g, [token, head]
  TensorRef key_decay;  ///< gk, [token, head, key element]
  TensorRef lengths;    ///< int32 or int64 [sequence]; moved into what is left of the tokens
  TensorRef names;      ///< int32 or int64 [token]
  TensorRef accepted;   ///< int32 or int64 [sequence]
  TensorRef state;
  TensorRef new_state;
  TensorRef out;  ///< [token, head, value element]
  float scale = 1;
};

int64_t DeltaRuleScratchBytes(const DeltaRuleOperands& operands);

/// \param range  counts heads. Tokens behind the last sequence get zeros.
void DeltaRule(const DeltaRuleOperands& operands, Range range, void* scratch);

}  // namespace reprise::kernels
