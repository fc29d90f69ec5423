// SPDX-License-Identifier: Apache-2.0
//
// Rules of attention and of what fills its caches. Layouts name the dims: B batch, S sequence, N heads, D elements of a
// head, H = N * D, T = all tokens of a batch.
#include "opdef/infer_util.h"

namespace reprise::opdef::infer {
namespace {

// The layout of the queries and that of the result: "BNSD_BSND" names both.
struct Layouts {
  std::string in, out;
};

Layouts LayoutsOf(const InferContext& call) {
  const std::string text = call.Text("input_layout");
  const size_t bar = text.find('_');
  if (bar == std::string::npos) return {text, text};
  return {text.substr(0, bar), text.substr(bar + 1)};
}

// What queries say of the dims. Unknown is what they do not.
struct Heads {
  Dim batch = Dim::Unknown(), tokens = Dim::Unknown(), heads, size = Dim::Unknown();
};

Status ReadQuery(InferContext& call, const InferTensor& query, const std::string& layout, const Dim& heads,
                 Heads* out) {
  constexpr std::string_view kLetters = "BSNDHT";
  const bool is_known =
      layout.size() >= 3 && layout.size() <= 4 && layout.find_first_not_of(kLetters) == std::string::npos;
  if (!is_known) {
    return call.WrongAttribute("input_layout", fmt::format("is \"{}\"", call.Text("input_layout")),
                               "use BSH, SBH, BNSD, BSND, TND or NTD");
  }
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(query, layout.size()));
  out->heads = heads;
  if (!query.shape.has_rank()) return {};
  for (size_t d = 0; d < layout.size(); ++d) {
    const Dim& size = query.shape[d];
    switch (layout[d]) {
      case 'B': out->batch = size; break;
      case 'S':
      case 'T': out->tokens = size; break;
      case 'D': out->size = size; break;
      case 'H': out->size = FloorDiv(size, heads); break;
      default: REPRISE_RETURN_IF_ERROR(call.ExpectEqual(query, size, heads, "number of heads")); break;
    }
  }
  return {};
}

Sizes ShapeIn(const std::string& layout, const Heads& heads) {
  Sizes out;
  for (const char letter : layout) {
    const Dim& size = letter == 'B'                    ? heads.batch
                      : letter == 'S' || letter == 'T' ? heads.tokens
                      : letter == 'N'                  ? heads.heads
                                                       : heads.size;
    out.dims().push_back(letter == 'H' ? heads.heads * heads.size : size);
  }
  return out;
}

StatusOr<int64_t> HeadCount(const InferContext& call, std::string_view name) {
  const int64_t heads = call.Int(name);
  if (heads > 0) return heads;
  return call.WrongAttribute(name, fmt::format("is {}", heads), "set it to the number of heads");
}

// Elements of a head of the values; unknown where pages hide them.
Dim ValueSize(const InferTensor& value, const std::string& layout, const Dim& otherwise) {
  if (!value.shape.has_rank() || value.shape.rank() != layout.size() || layout.back() != 'D') return otherwise;
  return value.shape.back();
}

}  // namespace

Status FlashAttention(InferContext& call) {  // rule
  const Layouts layouts = LayoutsOf(call);
  REPRISE_ASSIGN_OR_RETURN(const int64_t count, HeadCount(call, "head_num"));
  Heads heads;
  REPRISE_RETURN_IF_ERROR(ReadQuery(call, call.In("query"), layouts.in, count, &heads));
  constexpr int64_t kLanes = 8;  // each statistic stands there eight times
  const bool is_packed = layouts.in == "TND";
  const Sizes statistic =
      is_packed ? Sizes{heads.tokens, heads.heads, kLanes} : Sizes{heads.batch, heads.heads, heads.tokens, kLanes};
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("softmax_max"), statistic));
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("softmax_sum"), statistic));
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("softmax_out"), Sizes{0}));  // nobody keeps the probabilities
  heads.size = ValueSize(call.In("value"), layouts.in, heads.size);
  return call.Set(call.Out("attention_out"), ShapeIn(layouts.out, heads));
}

Status InferAttention(InferContext& call) {  // rule
  const Layouts layouts = LayoutsOf(call);
  const InferTensor& query = call.In("query");
  REPRISE_ASSIGN_OR_RETURN(const int64_t count, HeadCount(call, "num_heads"));
  Heads heads;
  REPRISE_RETURN_IF_ERROR(ReadQuery(call, query, layouts.in, count, &heads));
  if (call.List("value").empty()) return call.WrongInputs("value has no tensors", "pass one at least");
  const bool has_pages = call.Has("block_table");
  if (!has_pages) heads.size = ValueSize(call.List("value")[0], layouts.in, heads.size);
  InferResult& out = call.Out("attention_out");
  constexpr int32_t kInt8 = 2;
  if (out.dtype == -1) {
    out.dtype = call.Has("quant_scale2") ? kInt8
                : out.wanted != -1       ? out.wanted
                : query.dtype == kInt8   ? 1
                                         : query.dtype;
  }
  if (call.outputs.size() > 1) {
    InferResult& lse = call.Out("softmax_lse");
    if (lse.dtype == -1) lse.dtype = 0;
    const bool is_packed = layouts.in == "TND" || layouts.in == "NTD";
    const Sizes shape =
        is_packed ? Sizes{heads.tokens, heads.heads, 1} : Sizes{heads.batch, heads.heads, heads.tokens, 1};
    REPRISE_RETURN_IF_ERROR(call.Set(lse, call.Bool("softmax_lse_flag") ? shape : Sizes{0}));
  }
  return call.Set(out, ShapeIn(layouts.out, heads));
}

// ---- Caches ----

// [b, 1, s, d]: the rotated part is as wide as cos, the normed one as gamma.
Status KvCache(InferContext& call) {  // rule
  const InferTensor& kv = call.In("kv");
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(kv, 4));
  const auto with_last = [&](const Sizes& of) {
    Sizes shape = kv.shape.has_rank() ? kv.shape : Sizes::Unknown(4);
    shape.dims().back() = of.has_rank() && of.rank() != 0 ? of.back() : Dim::Unknown();
    return shape;
  };
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("k_rope"), with_last(call.In("cos").shape)));
  return call.Set(call.Out("c_kv"), with_last(call.In("gamma").shape));
}

// Rows of queries, keys and values side by side: three tensors of as many heads as head_nums says.
Status QkvCache(InferContext& call) {  // rule
  const InferTensor& qkv = call.In("qkv");
  const std::vector<int64_t> counts = call.Ints("head_nums");
  constexpr size_t kParts = 3;
  const int64_t all = counts.size() == kParts ? counts[0] + counts[1] + counts[2] : 0;
  if (all < 1)
    return call.WrongAttribute("head_nums", "is " + TextOf(counts), "give the heads of queries, keys and values");
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(qkv, 2));
  const Sizes rows = qkv.shape.has_rank() ? qkv.shape : Sizes::Unknown(2);
  constexpr std::string_view kOutputs[] = {"q_out_before_quant", "k_out_before_quant", "v_out_before_quant"};
  for (size_t i = 0; i < kParts; ++i) {
    const Sizes shape = {rows[0], FloorDiv(rows[1], all) * counts[i]};
    REPRISE_RETURN_IF_ERROR(call.Set(call.Out(kOutputs[i]), call.Bool("is_output_qkv") ? shape : Sizes{0}));
  }
  return {};
}

// Rows split into queries, keys and values, each in heads as wide as cos.
Status RopeSplit(InferContext& call) {  // rule
  const InferTensor& x = call.In("x");
  const Sizes& cos = call.In("cos").shape;
  const std::vector<int64_t> sizes = call.Ints("size_splits");
  constexpr size_t kParts = 3;
  if (sizes.size() != kParts || std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; })) {
    return call.WrongAttribute("size_splits", "is " + TextOf(sizes), "give the widths of queries, keys and values");
  }
  const Dim width = cos.has_rank() && cos.rank() != 0 ? cos.back() : Dim::Unknown();
  for (size_t i = 0; i < kParts; ++i) {
    InferResult& out = call.Out(i);
    if (out.dtype == -1) out.dtype = call.In("cos").dtype;
    if (!x.shape.has_rank() || x.shape.rank() == 0) {
      REPRISE_RETURN_IF_ERROR(call.Set(out, Sizes::UnknownRank()));
      continue;
    }
    std::vector<Dim> dims = Part(x.shape, 0, x.shape.rank() - 1);
    dims.push_back(FloorDiv(sizes[i], width));
    dims.push_back(width);
    REPRISE_RETURN_IF_ERROR(call.Set(out, Sizes(std::move(dims))));
  }
  return {};
}

// Tokens [b, s, h] or [t, h]; heads as weight_uk [n, d, c] has them.
Status MlaProlog(InferContext& call) {  // rule
  const InferTensor& tokens = call.In("token_x");
  const InferTensor& heads = call.In("weight_uk");
  const Sizes& rope = call.In("rope_sin").shape;
  REPRISE_RETURN_IF_ERROR(call.ExpectRank(heads, 3));
  const Dim count = heads.shape.has_rank() ? heads.shape[0] : Dim::Unknown();
  const Dim width = heads.shape.has_rank() ? heads.shape[2] : Dim::Unknown();
  const bool is_quantised = call.Has("quant_scale_ckv") && call.In("kv_cache").dtype == 2;
  for (const std::string_view name : {"query", "query_rope", "query_norm"}) {
    const bool is_there = std::any_of(call.op.outputs.begin(), call.op.outputs.end(),
                                      [&](const Operand& output) { return output.name == name; });
    if (!is_there || call.Out(name).dtype != -1) continue;
    const bool is_int8 = name == "query" ? is_quantised : name == "query_norm" && call.In("weight_uq_qr").dtype == 2;
    call.Out(name).dtype = call.Out(name).wanted != -1 ? call.Out(name).wanted : is_int8 ? 2 : heads.dtype;
  }
  if (!tokens.shape.has_rank() || tokens.shape.rank() < 2) return call.Open();
  const Sizes rows(Part(tokens.shape, 0, tokens.shape.rank() - 1));
  const auto with = [&](std::initializer_list<Dim> more) {
    std::vector<Dim> dims = rows.dims();
    dims.insert(dims.end(), more.begin(), more.end());
    return Sizes(std::move(dims));
  };
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("query"), with({count, width})));
  const Dim rotated = rope.has_rank() && rope.rank() != 0 ? rope.back() : Dim::Unknown();
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("query_rope"), with({count, rotated})));
  if (call.op.type == "MlaProlog") return {};
  REPRISE_RETURN_IF_ERROR(
      call.Set(call.Out("dequant_scale_q_nope"), is_quantised ? Sizes{rows.elements(), count, 1} : Sizes{0}));
  if (call.op.type == "MlaPrologV2") return {};
  const Sizes& gamma = call.In("rmsnorm_gamma_cq").shape;
  const Dim normed = gamma.has_rank() && gamma.rank() != 0 ? gamma.back() : Dim::Unknown();
  const bool has_norm = call.Bool("query_norm_flag");
  REPRISE_RETURN_IF_ERROR(call.Set(call.Out("query_norm"), has_norm ? with({normed}) : Sizes{0}));
  const bool has_scale = has_norm && call.In("weight_uq_qr").dtype == 2;
  return call.Set(call.Out("dequant_scale_q_norm"), has_scale ? Sizes{rows.elements(), 1} : Sizes{0});
}

}  // namespace reprise::opdef::infer
