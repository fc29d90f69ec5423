// SPDX-License-Identifier: Apache-2.0
//
// What all ways to call attention share: which operand is what, how their layouts are seen as one, which sequences the
// lengths make, and what their queries see.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/attention.h"
#include "ops/op_call.h"

namespace reprise::ops::attention {

using kernels::AttentionSequence;
using kernels::AttentionSetup;
using kernels::TensorRef;

/// Copies of each value in the statistics of aclnnFlashAttentionScore.
inline constexpr int64_t kStatisticCopies = 8;

/// Ways to call attention: Computation::code.
enum Kind : uint8_t { kPrompt, kIncremental, kFused, kTraining };
inline Kind KindOf(const OpCall& call) { return static_cast<Kind>(call.op.computation.code); }

enum SparseMode : int64_t { kDefault, kAllMask, kLeftUpCausal, kRightDownCausal, kBand, kPrefix, kCompressedPrefix };

// ---- Operands and their views: attention_views.cc ----

/// A tensor as [batch, head, token, depth].
struct HeadView {
  TensorRef ref;
  int64_t batch() const { return ref.sizes[0]; }
  int64_t heads() const { return ref.sizes[1]; }
  int64_t tokens() const { return ref.sizes[2]; }
  int64_t depth() const { return ref.sizes[3]; }
};

/// The operands by what they are; null for those that are not given.
struct Parts {
  const Operand *query = nullptr, *shift = nullptr, *mask = nullptr, *drop = nullptr, *table = nullptr, *sink = nullptr,
                *query_rope = nullptr, *key_rope = nullptr, *out = nullptr, *maximum = nullptr, *sum = nullptr,
                *log_sum = nullptr;
  const Operand *query_factor = nullptr, *score_factor = nullptr, *weight_factor = nullptr, *value_factor = nullptr,
                *out_scale = nullptr, *out_offset = nullptr;
  const Operand *both_scale = nullptr, *both_offset = nullptr;  ///< of keys and values, side by side
  const Operand *key_scale = nullptr, *key_offset = nullptr, *value_scale = nullptr, *value_offset = nullptr;
  std::span<const Operand> keys, values;
};

/// Refuses operands that are not supported.
StatusOr<Parts> FindParts(const OpCall& call);

bool IsLayout(std::string_view text);
/// `heads`: of a last dim H; where that is not known (0) `depth` is.
StatusOr<HeadView> ViewAs(const OpCall& call, const Operand& operand, std::string_view layout, int64_t heads,
                          int64_t depth);
/// A view [batch, head, query, key] of something that broadcasts to at least that.
StatusOr<TensorRef> ScoreView(const OpCall& call, const Operand& operand, int64_t batch, int64_t heads, int64_t queries,
                              int64_t keys);
/// Shape [batch, head, token, copies], or [token, head, copies].
StatusOr<TensorRef> StatisticView(OpCall& call, const Operand& operand, const HeadView& query, bool is_packed,
                                  int64_t copies);

/// The first of the names that the operator has; empty if it has none.
std::string_view FirstOf(const OpCall& call, std::initializer_list<std::string_view> names);
/// Nothing for an empty name.
std::span<const int64_t> IntsOf(const OpCall& call, std::string_view name);
void AddOptional(const OpCall& call, Launch& launch, const Operand* operand, const TensorRef& view, bool is_write);

// ---- The whole call: attention_call.cc ----

/// Where things are, and who sees what.
struct Attention {
  Parts parts;
  std::shared_ptr<AttentionSetup> setup = std::make_shared<AttentionSetup>();
  HeadView query, out;
  std::vector<HeadView> keys, values;
  std::string_view layout, out_layout;
  bool is_packed = false;  ///< sequences end to end
  int64_t capacity = 0;    ///< tokens of keys that a sequence may have
  int64_t sparse_mode = kDefault;
  TensorRef table, mask, shift, drop, sink, query_rope, key_rope;
  TensorRef query_factor, key_scale, key_offset, value_scale, value_offset, out_scale, out_offset;
  bool key_scale_in_pages = false, value_scale_in_pages = false;
  const Operand* mask_operand = nullptr;  ///< null if the mask is not read

  bool is_paged() const { return parts.table != nullptr; }
};

/// Fills `a`, which is as it was made; what has to do with values of arguments stays empty in a call that only asks for
/// the size of the workspace.
Status Describe(OpCall& call, Attention& a);

// ---- Sequences: attention_sequences.cc ----

/// The sequences that the lengths make, and a run without keys for queries that belong to none; into the setup.
Status AddSequences(OpCall& call, Attention& a);

/// Of all sequences of a call.
struct Extent {
  int64_t most_queries = 0;  ///< of a sequence with keys
  int64_t most_keys = 0;
  int64_t scores = 0;  ///< pairs of a query and a key, of all heads
};
/// What the queries of each sequence may see, and where its bits in the drop mask begin.
StatusOr<Extent> SetVisible(const OpCall& call, Attention& a);

// ---- Quantised operands: attention_factors.cc ----

/// The factors of int8 tokens and results, as the modes of the call say.
Status ReadFactors(const OpCall& call, Attention& a, const Extent& extent);
/// One type for what is not int8.
Status InferAttentionTypes(OpCall& call);

// ---- Rules: attention.cc ----

/// One type for all operands that the row does not declare apart.
Status AttentionTypes(OpCall& call);

}  // namespace reprise::ops::attention
