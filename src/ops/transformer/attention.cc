// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "ops/transformer/plan.h"

namespace reprise::ops::transformer {
namespace {

using kernels::DType;
using Lengths = std::vector<int64_t>;

// What a mask of ones hides in bfloat16.
constexpr float kHiddenShift = -10000.0f;
// Side of the mask that stands for a causal one, which is not read.
constexpr int64_t kCausalMask = 2048;
constexpr int64_t kRightDownCausal = 3;

// One call of the fused operator.
struct Fused {
  Tensor query, key, value, out;
  const char* layout = "TND";
  Lengths query_lengths, key_lengths;  // as the layout wants them
  const Tensor* table = nullptr;       // of pages
  const Tensor* shift = nullptr;
  bool is_causal = false;
  const Tensor* query_rope = nullptr;
  const Tensor* key_rope = nullptr;
  const Tensor* log_sum = nullptr;
};

Status AddFused(Plan& plan, const Fused& call, int64_t heads, int64_t kv_heads, float scale) {
  Tensor hidden;
  if (call.is_causal) hidden = Repeated(plan.chain.Zeros(DType::kBool, {1, 1}), {kCausalMask, kCausalMask});
  const Tensor* const nothing = nullptr;
  return plan.chain.Add("aclnnFusedInferAttentionScoreV3",
                        {{"query", &call.query},
                         {"key", std::vector<Tensor>{call.key}},
                         {"value", std::vector<Tensor>{call.value}},
                         {"pseShiftOptional", call.shift},
                         {"attenMaskOptional", call.is_causal ? &hidden : nothing},
                         {"actualSeqLengthsOptional", call.query_lengths},
                         {"actualSeqLengthsKvOptional", call.key_lengths},
                         {"blockTableOptional", call.table},
                         {"queryRopeOptional", call.query_rope},
                         {"keyRopeOptional", call.key_rope},
                         {"numHeads", heads},
                         {"numKeyValueHeads", kv_heads},
                         {"scaleValue", static_cast<double>(scale)},
                         {"inputLayout", call.layout},
                         {"sparseMode", call.is_causal ? kRightDownCausal : int64_t{0}},
                         {"blockSize", call.table != nullptr ? call.key.sizes[2] : int64_t{0}},
                         {"softmaxLseFlag", call.log_sum != nullptr},
                         {"attentionOut", &call.out},
                         {"softmaxLse", call.log_sum}});
}

// What is added to the scores: the mask itself, -10000 for each of its ones in bfloat16, -Inf for those of integers.
StatusOr<Tensor> ShiftOf(Plan& plan, std::string_view name, DType type) {
  const Tensor& mask = plan.In(name);
  const DType given = mask.dtype();
  if (given != DType::kBFloat16 && given == type) return mask;
  const Tensor shift = plan.chain.Temporary(type, mask.sizes);
  if (given == DType::kBool || given == DType::kInt8 || given == DType::kUInt8) {
    const Tensor hidden = plan.chain.Temporary(DType::kBool, mask.sizes);
    REPRISE_RETURN_IF_ERROR(plan.chain.Add("aclnnCast", {{"self", &mask}, {"dtype", DType::kBool}, {"out", &hidden}}));
    REPRISE_RETURN_IF_ERROR(plan.chain.Add("aclnnInplaceZero", {{"selfRef", &shift}}));
    REPRISE_RETURN_IF_ERROR(plan.chain.Add("aclnnInplaceMaskedFillScalar",
                                           {{"selfRef", &shift},
                                            {"mask", &hidden},
                                            {"value", kernels::Scalar::Of(-std::numeric_limits<float>::infinity())}}));
    return shift;
  }
  if (given == DType::kBFloat16) {
    REPRISE_RETURN_IF_ERROR(
        plan.chain.Add("aclnnMuls", {{"self", &mask}, {"other", kernels::Scalar::Of(kHiddenShift)}, {"out", &shift}}));
    return shift;
  }
  REPRISE_RETURN_IF_ERROR(plan.chain.Add("aclnnCast", {{"self", &mask}, {"dtype", type}, {"out", &shift}}));
  return shift;
}

Lengths EndsOf(const Lengths& lengths) {
  Lengths ends(lengths.size());
  std::partial_sum(lengths.begin(), lengths.end(), ends.begin());
  return ends;
}

int64_t LongestOf(const Lengths& lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

std::string Text(const Lengths& lengths) { return ShapeText(lengths); }

// [1, tokens, heads, size] of some of the tokens.
Tensor SequenceOf(const Tensor& tokens, int64_t begin, int64_t count) {
  const Tensor part = Narrowed(tokens, 0, begin, count);
  return Reshaped(part, {1, count, part.sizes[1], part.sizes[2]});
}

// A row of pages for each of `rows` sequences.
StatusOr<Tensor> TableOf(const Plan& plan, int64_t rows) {
  const Tensor& table = plan.In("blockTables");
  if (table.dtype() != DType::kInt32) {
    return plan.Wrong("blockTables", fmt::format("is {}, expected int32", DTypeText(table.dtype_number)));
  }
  if (table.sizes.size() != 2 || table.sizes[0] < rows) {
    return plan.WrongShape("blockTables", fmt::format("[sequences, blocks] with {} sequences", rows));
  }
  return Narrowed(table, 0, 0, rows);
}

// ---- A query for each sequence ----

// The mask of single queries as [batch, heads, 1, keys].
Status SetSingleShift(Plan& plan, Mask mask, DType type, Tensor& shift) {
  if (mask == Mask::kNone) return {};
  if (!plan.Has("mask")) return plan.Wrong("mask", "is missing", "pass it, or say that there is none (maskType 0)");
  REPRISE_ASSIGN_OR_RETURN(shift, ShiftOf(plan, "mask", type));
  const Dims sizes = shift.sizes;
  const size_t rank = sizes.size();
  if (rank < 2 || rank > 4 || sizes[rank - 2] != 1 || (rank == 4) != (rank == 4 && mask == Mask::kAlibi)) {
    return plan.WrongShape(
        "mask", mask == Mask::kAlibi ? "[batch, heads, 1, keys] or [heads, 1, keys]" : "[batch, 1, keys] or [1, keys]");
  }
  if (rank == 3) {
    shift = mask == Mask::kAlibi ? Reshaped(shift, {1, sizes[0], 1, sizes[2]})
                                 : Reshaped(shift, {sizes[0], 1, 1, sizes[2]});
  }
  if (rank == 2) shift = Reshaped(shift, {1, 1, 1, sizes[1]});
  return {};
}

Status MakeSingle(const PagedAttention& request, Plan& plan, Fused& call, const Lengths& contexts) {
  const int64_t tokens = call.query.sizes[0];
  if (static_cast<int64_t>(contexts.size()) != tokens) {
    return plan.Wrong("contextLens", fmt::format("has {} entries for {} queries", contexts.size(), tokens),
                      "pass a length for each query");
  }
  if (contexts.empty()) return {};
  REPRISE_ASSIGN_OR_RETURN(const Tensor table, TableOf(plan, tokens));
  call.table = &table;
  call.layout = "BSND";
  call.query = Reshaped(call.query, {tokens, 1, call.query.sizes[1], call.query.sizes[2]});
  call.out = Reshaped(call.out, {tokens, 1, call.out.sizes[1], call.out.sizes[2]});
  call.key_lengths = contexts;
  Tensor shift;
  REPRISE_RETURN_IF_ERROR(SetSingleShift(plan, request.mask, call.query.dtype(), shift));
  if (request.mask != Mask::kNone) call.shift = &shift;
  return AddFused(plan, call, request.heads, request.kv_heads, request.scale);
}

// ---- Several queries for each sequence, the last ones of its context ----

struct Chunks {
  Lengths queries, contexts;
  Mask mask = Mask::kNone;
  int64_t heads = 0, kv_heads = 0;
  float scale = 1;
};

Status CheckChunks(const Plan& plan, const Chunks& chunks, int64_t tokens) {
  const Lengths& queries = chunks.queries;
  const Lengths& contexts = chunks.contexts;
  bool fits =
      queries.size() == contexts.size() && std::accumulate(queries.begin(), queries.end(), int64_t{0}) <= tokens;
  for (size_t i = 0; fits && i < queries.size(); ++i) fits = queries[i] <= contexts[i];
  if (fits) return {};
  return plan.Invalid(
      fmt::format("the lengths of the queries are {} and those of the contexts {}, for {} queries", Text(queries),
                  Text(contexts), tokens),
      "each sequence has the last tokens of its context as queries, all of them together at most as many "
      "as query has");
}

// A row of the mask for each query: a call for each sequence.
Status MakeRows(Plan& plan, const Fused& whole, const Chunks& chunks) {
  REPRISE_ASSIGN_OR_RETURN(const Tensor shift, ShiftOf(plan, "mask", whole.query.dtype()));
  int64_t begin = 0;
  for (size_t i = 0; i < chunks.queries.size(); ++i) {
    const int64_t count = chunks.queries[i];
    if (count != 0) {
      const Tensor table = Narrowed(*whole.table, 0, static_cast<int64_t>(i), 1);
      const Tensor rows = Narrowed(shift, 0, begin, count);
      Fused call = whole;
      call.layout = "BSND";
      call.query = SequenceOf(whole.query, begin, count);
      call.out = SequenceOf(whole.out, begin, count);
      call.query_lengths = {count};
      call.key_lengths = {chunks.contexts[i]};
      call.table = &table;
      call.shift = &rows;
      REPRISE_RETURN_IF_ERROR(AddFused(plan, call, chunks.heads, chunks.kv_heads, chunks.scale));
    }
    begin += count;
  }
  return {};
}

Status MakeChunks(Plan& plan, Fused& call, const Chunks& chunks) {
  REPRISE_RETURN_IF_ERROR(CheckChunks(plan, chunks, call.query.sizes[0]));
  if (chunks.queries.empty()) return {};
  REPRISE_ASSIGN_OR_RETURN(const Tensor table, TableOf(plan, static_cast<int64_t>(chunks.queries.size())));
  call.table = &table;
  if (chunks.mask == Mask::kRows && plan.Has("mask")) {
    const Dims& sizes = plan.In("mask").sizes;
    if (sizes.size() == 2 && sizes[0] >= call.query.sizes[0] && sizes[1] >= LongestOf(chunks.contexts)) {
      return MakeRows(plan, call, chunks);
    }
  }
  call.is_causal = chunks.mask != Mask::kNone;  // whatever the size of the mask: it hides what comes later
  call.query_lengths = EndsOf(chunks.queries);
  call.key_lengths = chunks.contexts;
  return AddFused(plan, call, chunks.heads, chunks.kv_heads, chunks.scale);
}

// ---- Sequences that look at themselves ----

// Lengths of queries and of keys: one row for both, or one for each.
Status ReadLengths(const Plan& plan, Lengths& queries, Lengths& keys) {
  REPRISE_ASSIGN_OR_RETURN(queries, plan.HostInts("seqLen"));
  keys = queries;
  const Dims& sizes = plan.In("seqLen").sizes;
  if (sizes.size() == 2 && sizes[0] == 2) {
    keys.assign(queries.begin() + sizes[1], queries.end());
    queries.resize(static_cast<size_t>(sizes[1]));
  } else if (sizes.size() > 1) {
    return plan.WrongShape("seqLen", "[sequences] or [2, sequences]");
  }
  return {};
}

Status CheckPacked(const Plan& plan, std::string_view name, const Lengths& lengths, int64_t tokens) {
  if (std::accumulate(lengths.begin(), lengths.end(), int64_t{0}) <= tokens) return {};
  return plan.Wrong("seqLen", fmt::format("has the lengths {}, but {} has {} tokens", Text(lengths), name, tokens),
                    "the lengths of all sequences together are at most the tokens that there are");
}

// A mask for each sequence: a call for each.
Status MakeEach(const SelfAttention& request, Plan& plan, const Fused& whole, const Tensor& shift,
                const Lengths& queries, const Lengths& keys) {
  int64_t query = 0, key = 0;
  for (size_t i = 0; i < queries.size(); ++i) {
    if (queries[i] != 0) {
      const Tensor part = Narrowed(shift, 0, static_cast<int64_t>(i), 1);
      Fused call = whole;
      call.layout = "BSND";
      call.query = SequenceOf(whole.query, query, queries[i]);
      call.out = SequenceOf(whole.out, query, queries[i]);
      call.key = SequenceOf(whole.key, key, keys[i]);
      call.value = SequenceOf(whole.value, key, keys[i]);
      call.shift = &part;
      REPRISE_RETURN_IF_ERROR(AddFused(plan, call, request.heads, request.kv_heads, request.scale));
    }
    query += queries[i];
    key += keys[i];
  }
  return {};
}

// The mask as [batch, heads, queries, keys]; nothing where it stands for a causal one.
Status ReadMask(const SelfAttention& request, Plan& plan, DType type, int64_t longest, size_t sequences,
                std::optional<Tensor>& shift) {
  const Dims sizes = plan.In("mask").sizes;
  const size_t rank = sizes.size();
  if (rank < 2 || rank > 4) return plan.WrongShape("mask", "2 to 4 dims");
  if (request.mask == Mask::kNorm && sizes[rank - 1] < longest) return {};
  REPRISE_ASSIGN_OR_RETURN(Tensor view, ShiftOf(plan, "mask", type));
  const bool has_heads = request.mask == Mask::kAlibi;
  if (rank == 2) view = Reshaped(view, {1, 1, sizes[0], sizes[1]});
  if (rank == 3)
    view = has_heads ? Reshaped(view, {1, sizes[0], sizes[1], sizes[2]})
                     : Reshaped(view, {sizes[0], 1, sizes[1], sizes[2]});
  const bool fits_batch = view.sizes[0] == 1 || view.sizes[0] == static_cast<int64_t>(sequences);
  if (!fits_batch || view.sizes[2] < longest || view.sizes[3] < longest) {
    return plan.WrongShape("mask", fmt::format("room for {} sequences of up to {} tokens", sequences, longest));
  }
  shift = std::move(view);
  return {};
}

Status MakePacked(const SelfAttention& request, Plan& plan) {
  Fused call;
  REPRISE_ASSIGN_OR_RETURN(call.query, plan.Tokens("query", request.heads));
  REPRISE_ASSIGN_OR_RETURN(call.out, plan.OutTokens("output", request.heads));
  REPRISE_ASSIGN_OR_RETURN(call.key, plan.Tokens("key", request.kv_heads));
  REPRISE_ASSIGN_OR_RETURN(call.value, plan.Tokens("value", request.kv_heads));
  Lengths queries, keys;
  REPRISE_RETURN_IF_ERROR(ReadLengths(plan, queries, keys));
  REPRISE_RETURN_IF_ERROR(CheckPacked(plan, "query", queries, call.query.sizes[0]));
  REPRISE_RETURN_IF_ERROR(CheckPacked(plan, "key", keys, call.key.sizes[0]));
  if (queries.empty()) return {};
  std::optional<Tensor> shift;
  if (request.mask == Mask::kCausal) {
    call.is_causal = true;
  } else if (request.mask != Mask::kNone) {
    if (!plan.Has("mask")) return plan.Wrong("mask", "is missing", "pass it, or say that there is none (maskType 0)");
    const int64_t longest = std::max(LongestOf(queries), LongestOf(keys));
    REPRISE_RETURN_IF_ERROR(ReadMask(request, plan, call.query.dtype(), longest, queries.size(), shift));
    call.is_causal = !shift.has_value();
    if (shift.has_value() && shift->sizes[0] > 1) return MakeEach(request, plan, call, *shift, queries, keys);
    if (shift.has_value()) call.shift = &*shift;
  }
  call.query_lengths = EndsOf(queries);
  call.key_lengths = EndsOf(keys);
  return AddFused(plan, call, request.heads, request.kv_heads, request.scale);
}

}  // namespace

Status Make(const PagedAttention& request, Plan& plan) {
  Fused call;
  REPRISE_ASSIGN_OR_RETURN(call.query, plan.Tokens("query", request.heads));
  REPRISE_ASSIGN_OR_RETURN(call.out, plan.OutTokens("attnOut", request.heads));
  REPRISE_ASSIGN_OR_RETURN(call.key, plan.Pages("keyCache", request.kv_heads));
  if (request.value_size != 0) {
    if (request.value_size < 0 || request.value_size > call.key.sizes[3]) {
      return plan.Invalid(
          fmt::format("mlaVHeadSize is {}, expected a value from 1 to {}", request.value_size, call.key.sizes[3]));
    }
    call.value = Narrowed(call.key, 3, 0, request.value_size);
  } else {
    REPRISE_ASSIGN_OR_RETURN(call.value, plan.Pages("valueCache", request.kv_heads));
  }
  REPRISE_ASSIGN_OR_RETURN(const Lengths contexts, plan.HostInts("contextLens"));
  if (!request.has_query_lengths) return MakeSingle(request, plan, call, contexts);
  Chunks chunks = {{}, contexts, request.mask, request.heads, request.kv_heads, request.scale};
  REPRISE_ASSIGN_OR_RETURN(chunks.queries, plan.HostInts("qSeqLens"));
  return MakeChunks(plan, call, chunks);
}

Status Make(const SelfAttention& request, Plan& plan) {
  if (!request.is_paged) return MakePacked(request, plan);
  Fused call;
  REPRISE_ASSIGN_OR_RETURN(call.query, plan.Tokens("query", request.heads));
  REPRISE_ASSIGN_OR_RETURN(call.out, plan.OutTokens("output", request.heads));
  REPRISE_ASSIGN_OR_RETURN(call.key, plan.Pages("key", request.kv_heads));
  REPRISE_ASSIGN_OR_RETURN(call.value, plan.Pages("value", request.kv_heads));
  Chunks chunks = {{}, {}, request.mask, request.heads, request.kv_heads, request.scale};
  REPRISE_ASSIGN_OR_RETURN(chunks.queries, plan.HostInts("seqLen"));
  REPRISE_ASSIGN_OR_RETURN(chunks.contexts, plan.HostInts("kvSeqLen"));
  return MakeChunks(plan, call, chunks);
}

Status Make(const LatentAttention& request, Plan& plan) {
  Fused call;
  REPRISE_ASSIGN_OR_RETURN(call.query, plan.Tokens("qNope", request.heads));
  REPRISE_ASSIGN_OR_RETURN(Tensor query_rope, plan.Tokens("qRope", request.heads));
  REPRISE_ASSIGN_OR_RETURN(call.out, plan.OutTokens("attenOut", request.heads));
  REPRISE_ASSIGN_OR_RETURN(call.key, plan.Pages("ctKV", request.kv_heads));
  REPRISE_ASSIGN_OR_RETURN(const Tensor key_rope, plan.Pages("kRope", request.kv_heads));
  call.value = call.key;
  REPRISE_ASSIGN_OR_RETURN(call.key_lengths, plan.HostInts("contextLens"));
  const int64_t tokens = call.query.sizes[0];
  if (static_cast<int64_t>(call.key_lengths.size()) != tokens || query_rope.sizes[0] != tokens) {
    return plan.Wrong("contextLens",
                      fmt::format("has {} entries for {} queries and {} parts of queries that are turned",
                                  call.key_lengths.size(), tokens, query_rope.sizes[0]));
  }
  if (tokens == 0) return {};
  REPRISE_ASSIGN_OR_RETURN(const Tensor table, TableOf(plan, tokens));
  call.table = &table;
  call.layout = "BSND";
  call.query = Reshaped(call.query, {tokens, 1, request.heads, call.query.sizes[2]});
  call.out = Reshaped(call.out, {tokens, 1, request.heads, call.out.sizes[2]});
  query_rope = Reshaped(query_rope, {tokens, 1, request.heads, query_rope.sizes[2]});
  call.query_rope = &query_rope;
  call.key_rope = &key_rope;
  if (!plan.Has("lse")) return AddFused(plan, call, request.heads, request.kv_heads, request.scale);
  const Tensor sums = plan.chain.Temporary(DType::kFloat, {tokens, request.heads, 1, 1});
  call.log_sum = &sums;
  REPRISE_RETURN_IF_ERROR(AddFused(plan, call, request.heads, request.kv_heads, request.scale));
  if (plan.Out("lse").count != sums.count)
    return plan.WrongShape("lse", fmt::format("[{}, {}, 1]", tokens, request.heads));
  const Tensor flat = Reshaped(sums, {tokens * request.heads});
  const Tensor lse = Reshaped(plan.Out("lse"), {tokens * request.heads});
  return plan.chain.Add("aclnnInplaceCopy", {{"selfRef", &lse}, {"src", &flat}});
}

Status Make(const RingAttention& request, Plan& plan) {
  Fused call;
  REPRISE_ASSIGN_OR_RETURN(call.query, plan.Tokens("qNope", request.heads));
  REPRISE_ASSIGN_OR_RETURN(const Tensor query_rope, plan.Tokens("qRope", request.heads));
  REPRISE_ASSIGN_OR_RETURN(call.key, plan.Tokens("kNope", request.kv_heads));
  REPRISE_ASSIGN_OR_RETURN(const Tensor key_rope, plan.Tokens("kRope", request.kv_heads));
  REPRISE_ASSIGN_OR_RETURN(call.value, plan.Tokens("value", request.kv_heads));
  REPRISE_ASSIGN_OR_RETURN(const Tensor output, plan.OutTokens("output", request.heads));
  Lengths queries, keys;
  REPRISE_RETURN_IF_ERROR(ReadLengths(plan, queries, keys));
  const int64_t tokens = call.query.sizes[0];
  REPRISE_RETURN_IF_ERROR(CheckPacked(plan, "qNope", queries, tokens));
  REPRISE_RETURN_IF_ERROR(CheckPacked(plan, "kNope", keys, call.key.sizes[0]));
  const Tensor& lse = plan.Out("softmaxLse");
  const int64_t heads = request.heads;
  if (lse.sizes.size() != 2 || lse.sizes[0] != heads || lse.sizes[1] != tokens || lse.dtype() != DType::kFloat) {
    return plan.WrongShape("softmaxLse", fmt::format("[{}, {}] of float32", heads, tokens));
  }
  if (queries.empty() || tokens == 0) return {};
  call.query_rope = &query_rope;
  call.key_rope = &key_rope;
  call.is_causal = request.is_causal;
  call.query_lengths = EndsOf(queries);
  call.key_lengths = EndsOf(keys);
  const Tensor sums = plan.chain.Temporary(DType::kFloat, {tokens, heads, 1});
  call.log_sum = &sums;
  call.out = request.is_first ? output : plan.chain.Temporary(output.dtype(), output.sizes);
  REPRISE_RETURN_IF_ERROR(AddFused(plan, call, heads, request.kv_heads, request.scale));
  const Tensor by_head = Exchanged(lse, 0, 1);
  const Tensor table = Reshaped(sums, {tokens, heads});
  if (request.is_first) return plan.chain.Add("aclnnInplaceCopy", {{"selfRef", &by_head}, {"src", &table}});
  if (!plan.Has("prevOut") || !plan.Has("prevLse")) {
    return plan.Invalid("prevOut or prevLse is missing",
                        "the first part has neither: calcType 1, calc_type_first_ring");
  }
  const Tensor& before = plan.In("prevLse");
  if (before.count != sums.count || plan.In("prevOut").count != output.count || before.sizes.size() != 2) {
    return plan.WrongShape("prevLse", fmt::format("[{}, {}], and prevOut the shape of output", heads, tokens));
  }
  const Tensor before_by_token = plan.chain.Temporary(DType::kFloat, {tokens, heads});
  const Tensor before_view = Exchanged(before, 0, 1);
  REPRISE_RETURN_IF_ERROR(plan.chain.Add("aclnnInplaceCopy", {{"selfRef", &before_by_token}, {"src", &before_view}}));
  const int64_t rows = tokens * heads;
  const int64_t size = output.sizes[2];
  const Tensor joined = plan.chain.Temporary(DType::kFloat, {rows});
  const Tensor out = Reshaped(output, {rows, size});
  REPRISE_RETURN_IF_ERROR(plan.chain.Add(
      "aclnnAttentionUpdate",
      {{"lse", std::vector<Tensor>{Reshaped(before_by_token, {rows}), Reshaped(sums, {rows})}},
       {"localOut", std::vector<Tensor>{Reshaped(plan.In("prevOut"), {rows, size}), Reshaped(call.out, {rows, size})}},
       {"updateType", int64_t{1}},
       {"out", &out},
       {"lseOut", &joined}}));
  const Tensor joined_table = Reshaped(joined, {tokens, heads});
  return plan.chain.Add("aclnnInplaceCopy", {{"selfRef", &by_head}, {"src", &joined_table}});
}

}  // namespace reprise::ops::transformer
