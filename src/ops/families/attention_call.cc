// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ops/families/attention.h"

namespace reprise::ops::attention {
namespace {

// Side of the mask that stands for a causal or a banded one.
constexpr int64_t kCompressedMask = 2048;

// Paged keys have layouts of their own.
std::string_view KeyLayoutOf(const Attention& a, const Operand& key) {
  if (!a.is_paged()) return a.layout;
  return key.rank() == 3 ? std::string_view("BSH") : std::string_view("BNSD");
}

// Layouts, heads, and the view of the queries.
Status ReadQuery(const OpCall& call, Attention& a) {
  const std::string_view text = call.Text("inputLayout");
  const size_t underscore = text.find('_');
  a.layout = text.substr(0, underscore);
  a.out_layout = underscore == std::string_view::npos ? a.layout : text.substr(underscore + 1);
  if (!IsLayout(a.layout) || !IsLayout(a.out_layout)) {
    return call.Invalid(fmt::format("inputLayout is '{}', expected BSH, SBH, BSND, BNSD, TND or NTD", text),
                        "two of them, as in BNSD_BSND, are that of the inputs and that of the output");
  }
  a.is_packed = a.layout[0] == 'T' || a.layout[1] == 'T';
  AttentionSetup& setup = *a.setup;
  const bool is_training = KindOf(call) == kTraining;
  setup.heads = call.Int(is_training ? "headNum" : "numHeads");
  if (setup.heads <= 0) return call.Invalid(fmt::format("the number of heads is {}, expected at least 1", setup.heads));
  REPRISE_ASSIGN_OR_RETURN(a.query, ViewAs(call, *a.parts.query, a.layout, setup.heads, 0));
  setup.depth = a.query.depth();
  setup.kv_heads = is_training ? 0 : call.Int("numKeyValueHeads");
  if (!is_training && setup.kv_heads == 0) setup.kv_heads = setup.heads;
  if (setup.kv_heads < 0)
    return call.Invalid(fmt::format("numKeyValueHeads is {}, expected at least 0", setup.kv_heads));
  return {};
}

// One tensor of keys and the values that belong to it.
Status ReadPair(const OpCall& call, Attention& a, const Operand& key, const Operand& value) {
  AttentionSetup& setup = *a.setup;
  const std::string_view layout = KeyLayoutOf(a, key);
  REPRISE_ASSIGN_OR_RETURN(a.keys.emplace_back(), ViewAs(call, key, layout, setup.kv_heads, setup.depth));
  const HeadView& k = a.keys.back();
  if (k.heads() == 0 || setup.heads % k.heads() != 0) {
    return call.InvalidOperand(
        key, fmt::format("has {} heads, which do not divide the {} of query", k.heads(), setup.heads));
  }
  setup.kv_heads = k.heads();
  REPRISE_ASSIGN_OR_RETURN(a.values.emplace_back(), ViewAs(call, value, layout, setup.kv_heads, 0));
  const HeadView& v = a.values.back();
  if (k.depth() != a.query.depth()) {
    return call.InvalidOperand(key, fmt::format("has shape {}: heads of {} elements, those of query have {}",
                                                ShapeText(key.sizes()), k.depth(), setup.depth));
  }
  if (v.batch() != k.batch() || v.tokens() != k.tokens() || v.depth() != a.values[0].depth()) {
    return call.InvalidOperand(value, fmt::format("has shape {}, which does not fit {} {}", ShapeText(value.sizes()),
                                                  call.NameOf(key), ShapeText(key.sizes())));
  }
  const int64_t batch = a.parts.keys.size() > 1 ? 1 : a.query.batch();
  if (!a.is_paged() && k.batch() != batch) {
    return call.InvalidOperand(key, fmt::format("has shape {}, expected a batch of {}", ShapeText(key.sizes()), batch));
  }
  a.capacity = std::max(a.capacity, k.tokens());
  return {};
}

// The parts of queries and keys that are turned, where they come apart from the others.
Status ReadRope(const OpCall& call, Attention& a) {
  const Parts& parts = a.parts;
  if ((parts.query_rope == nullptr) != (parts.key_rope == nullptr)) {
    return call.Invalid(fmt::format("one of {} and {} is missing", FirstOf(call, {"queryRopeOptional", "queryRope"}),
                                    FirstOf(call, {"keyRopeOptional", "keyRope", "keyInRope"})),
                        "pass both or none");
  }
  if (parts.query_rope == nullptr) return {};
  AttentionSetup& setup = *a.setup;
  REPRISE_ASSIGN_OR_RETURN(const HeadView q, ViewAs(call, *parts.query_rope, a.layout, setup.heads, 0));
  REPRISE_ASSIGN_OR_RETURN(const HeadView k,
                           ViewAs(call, *parts.key_rope, KeyLayoutOf(a, *parts.key_rope), setup.kv_heads, 0));
  if (q.batch() != a.query.batch() || q.tokens() != a.query.tokens()) {
    return call.InvalidOperand(*parts.query_rope,
                               fmt::format("has shape {}, which does not fit query {}",
                                           ShapeText(parts.query_rope->sizes()), ShapeText(parts.query->sizes())));
  }
  if (parts.keys.size() != 1 || k.batch() != a.keys[0].batch() || k.tokens() != a.keys[0].tokens() ||
      k.depth() != q.depth()) {
    return call.InvalidOperand(
        *parts.key_rope,
        fmt::format("has shape {}, which does not fit {} {} and heads of {}", ShapeText(parts.key_rope->sizes()),
                    call.NameOf(parts.keys[0]), ShapeText(parts.keys[0].sizes()), q.depth()));
  }
  a.query_rope = q.ref;
  a.key_rope = k.ref;
  setup.rope_depth = q.depth();
  setup.depth += setup.rope_depth;
  return {};
}

Status ReadKeys(const OpCall& call, Attention& a) {
  const size_t count = a.parts.keys.size();
  for (size_t i = 0; i < count; ++i) REPRISE_RETURN_IF_ERROR(ReadPair(call, a, a.parts.keys[i], a.parts.values[i]));
  REPRISE_RETURN_IF_ERROR(ReadRope(call, a));
  const bool is_single = a.is_paged() || a.is_packed;
  if (count > 1 && (is_single || static_cast<int64_t>(count) != a.query.batch())) {
    return call.Invalid(
        fmt::format("key has {} tensors, expected 1{}", count,
                    is_single ? std::string() : fmt::format(" or {}, one for each of the batch", a.query.batch())));
  }
  a.setup->value_depth = a.values[0].depth();
  return {};
}

Status ReadOut(const OpCall& call, Attention& a) {
  const Operand* operand = a.parts.out;
  if (operand == nullptr) return call.Invalid("attentionInOptional is missing", "pass what the forward pass made");
  const AttentionSetup& setup = *a.setup;
  REPRISE_ASSIGN_OR_RETURN(a.out, ViewAs(call, *operand, a.out_layout, setup.heads, 0));
  if (a.out.batch() == a.query.batch() && a.out.tokens() == a.query.tokens() && a.out.depth() == setup.value_depth) {
    return {};
  }
  return call.InvalidOperand(
      *operand, fmt::format("has shape {}, expected batch {}, {} tokens, {} heads of {} elements in the layout {}",
                            ShapeText(operand->sizes()), a.query.batch(), a.query.tokens(), setup.heads,
                            setup.value_depth, a.out_layout));
}

Status ReadPages(const OpCall& call, Attention& a) {
  if (!a.is_paged()) return {};
  a.table = call.RefOf(*a.parts.table);
  a.setup->page_tokens = a.capacity;
  if (a.table.rank != 2) {
    return call.InvalidOperand(
        *a.parts.table, fmt::format("has shape {}, expected [batch, blocks]", ShapeText(a.parts.table->sizes())));
  }
  if (const int64_t block = call.Int("blockSize"); block != a.capacity) {
    return call.Invalid(fmt::format("blockSize is {}, but the blocks of key hold {} tokens", block, a.capacity));
  }
  a.capacity = a.keys[0].batch() == 0 ? 0 : a.table.sizes[1] * a.setup->page_tokens;
  return {};
}

Status ReadMask(const OpCall& call, Attention& a, const Extent& extent) {
  const Operand* mask = a.parts.mask;
  const bool is_compressed = a.sparse_mode >= kLeftUpCausal && a.sparse_mode != kPrefix;
  a.mask_operand = is_compressed ? nullptr : mask;
  if (a.mask_operand != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(a.mask, ScoreView(call, *a.mask_operand, a.is_packed ? 1 : a.query.batch(), a.setup->heads,
                                               extent.most_queries, extent.most_keys));
    return {};
  }
  if (mask == nullptr || a.sparse_mode == kCompressedPrefix) return {};
  const std::span<const int64_t> sizes = mask->sizes();
  const size_t rank = sizes.size();
  if (rank >= 2 && sizes[rank - 1] == kCompressedMask && sizes[rank - 2] == kCompressedMask) return {};
  return call.InvalidOperand(*mask, fmt::format("has shape {}, expected [{}, {}] for sparseMode {}", ShapeText(sizes),
                                                kCompressedMask, kCompressedMask, a.sparse_mode));
}

Status ReadShift(const OpCall& call, Attention& a, const Extent& extent) {
  AttentionSetup& setup = *a.setup;
  if (a.parts.shift != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(a.shift, ScoreView(call, *a.parts.shift, a.is_packed ? 1 : a.query.batch(), setup.heads,
                                                extent.most_queries, extent.most_keys));
  }
  setup.scale = static_cast<float>(call.Real("scaleValue"));
  const int64_t most_pse_type = KindOf(call) == kTraining ? 1 : 0;
  const int64_t pse_type = call.Has("pseType") ? call.Int("pseType") : most_pse_type;
  if (pse_type < 0 || pse_type > most_pse_type) {
    return call.Invalid(fmt::format("pseType is {}, expected {}", pse_type, most_pse_type == 1 ? "0 or 1" : "0"),
                        "slopes that are turned into a shift are not supported yet");
  }
  setup.shift_first = pse_type == 1;
  return {};
}

Status ReadDrop(const OpCall& call, Attention& a, const Extent& extent) {
  const Operand* drop = a.parts.drop;
  if (drop == nullptr) return {};
  const double keep = call.Real("keepProb");
  if (!(keep > 0 && keep <= 1)) {
    return call.Invalid(fmt::format("keepProb is {}, expected a value above 0 and up to 1", keep));
  }
  a.setup->keep = static_cast<float>(keep);
  a.drop = call.RefOf(*drop);
  const int64_t bytes = (extent.scores + 7) / 8;  // a bit for each
  if (a.drop.rank == 1 && a.drop.sizes[0] >= bytes) return {};
  return call.InvalidOperand(
      *drop, fmt::format("has shape {}, expected one dim of at least {} bytes", ShapeText(drop->sizes()), bytes));
}

Status ReadSink(OpCall& call, Attention& a) {
  if (a.parts.sink == nullptr) return {};
  a.sink = call.RefOf(*a.parts.sink);
  const int64_t expected[] = {a.setup->heads};
  return call.CheckShape(*a.parts.sink, expected, [] { return "one for each head,"; });
}

}  // namespace

Status Describe(OpCall& call, Attention& a) {
  REPRISE_ASSIGN_OR_RETURN(a.parts, FindParts(call));
  if (call.Has("actualSharedPrefixLenOptional") && call.IsGiven("actualSharedPrefixLenOptional")) {
    return call.Invalid("actualSharedPrefixLenOptional is not supported yet", "pass null");
  }
  REPRISE_RETURN_IF_ERROR(ReadQuery(call, a));
  REPRISE_RETURN_IF_ERROR(ReadKeys(call, a));
  REPRISE_RETURN_IF_ERROR(ReadOut(call, a));
  REPRISE_RETURN_IF_ERROR(ReadPages(call, a));
  REPRISE_RETURN_IF_ERROR(AddSequences(call, a));
  if (call.only_tells_size()) return {};
  a.sparse_mode = call.Has("sparseMode") ? call.Int("sparseMode") : int64_t{kDefault};
  REPRISE_ASSIGN_OR_RETURN(const Extent extent, SetVisible(call, a));
  REPRISE_RETURN_IF_ERROR(ReadMask(call, a, extent));
  REPRISE_RETURN_IF_ERROR(ReadShift(call, a, extent));
  REPRISE_RETURN_IF_ERROR(ReadDrop(call, a, extent));
  REPRISE_RETURN_IF_ERROR(ReadFactors(call, a, extent));
  return ReadSink(call, a);
}

}  // namespace reprise::ops::attention
