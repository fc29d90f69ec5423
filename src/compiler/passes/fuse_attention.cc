// SPDX-License-Identifier: Apache-2.0
//
// Attention and rotary position embedding out of their parts.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "compiler/passes/fusions.h"
#include "compiler/passes/patterns.h"

namespace reprise::compiler {
namespace {

// ---- Attention ----

struct Scores {
  Port query;
  Port key;
  double scale = 1;
};

// query x key^T * scale
std::optional<Scores> ScoresOf(Match& match, Port port) {
  const Product product = match.Factors(port);
  if (product.ports.size() != 1 || !product.divisors.empty()) return std::nullopt;
  const NodeId node = match.Maker(match.BeforeCast(product.ports[0]), {"BatchMatMul", "BatchMatMulV2"});
  if (node == kNoNode || match.Flag(node, "adj_x1") || !match.Flag(node, "adj_x2")) return std::nullopt;
  if (match.In(node, "bias").is_set() || match.In(node, "offset_w").is_set()) return std::nullopt;
  Scores scores = {match.In(node, "x1"), match.In(node, "x2"), product.factor};
  // Factors of queries and keys count as well before the product.
  for (Port* operand : {&scores.query, &scores.key}) {
    const size_t mark = match.Mark();
    const Product scaled = match.Factors(*operand);
    if (scaled.ports.size() == 1 && scaled.divisors.empty() &&
        match.TensorOf(scaled.ports[0]).dtype == match.TensorOf(*operand).dtype) {
      *operand = scaled.ports[0];
      scores.scale *= scaled.factor;
    } else {
      match.BackTo(mark);
    }
  }
  return scores;
}

// Heads that were repeated for groups of queries: [b, n, s, d] as [b, n, 1, s, d], broadcast, as [b, n * g, s, d].
Port BeforeRepetition(Match& match, Port port) {
  const size_t mark = match.Mark();
  const NodeId joined = match.Maker(port, {"Reshape"});
  const NodeId repeated =
      joined == kNoNode ? kNoNode : match.Maker(match.In(joined, "x"), {"Expand", "BroadcastTo", "Tile"});
  const NodeId widened =
      repeated == kNoNode ? kNoNode : match.Maker(match.In(repeated, "x"), {"Unsqueeze", "ExpandDims", "Reshape"});
  if (widened != kNoNode) {
    const Port source = match.In(widened, "x");
    const opdef::Shape& heads = match.TensorOf(source).shape;
    const opdef::Shape& one = match.graph().at(widened).outputs[0].tensor.shape;
    const opdef::Shape& many = match.graph().at(repeated).outputs[0].tensor.shape;
    const opdef::Shape& all = match.TensorOf(port).shape;
    constexpr size_t kWide = 5;
    const bool has_ranks = heads.has_rank() && one.has_rank() && many.has_rank() && all.has_rank() &&
                           heads.rank() + 1 == kWide && one.rank() == kWide && many.rank() == kWide &&
                           all.rank() + 1 == kWide;
    if (has_ranks && one[2].Is(1) && AreEqual(heads[0], one[0]) && AreEqual(heads[1], one[1]) &&
        AreEqual(heads[2], one[3]) && AreEqual(heads[3], one[4]) && AreEqual(one[0], many[0]) &&
        AreEqual(one[1], many[1]) && AreEqual(one[3], many[3]) && AreEqual(one[4], many[4]) &&
        AreEqual(many[1] * many[2], all[1]) && AreEqual(heads[0], all[0]) && AreEqual(heads[2], all[2])) {
      return source;
    }
  }
  match.BackTo(mark);
  return port;
}

// Whether the parts are queries [b, n, s, d] or [b, s, d], keys and values to go with them. Says why not.
bool FitsAttention(Match& match, const Scores& scores, Port value, Port mask) {
  const Tensor& query = match.TensorOf(scores.query);
  const int32_t dtype = query.dtype;
  if (!IsSingleOrHalf(dtype)) {
    match.Refuse("queries are of a type that attention does not take");
    return false;
  }
  if (match.TensorOf(scores.key).dtype != dtype || match.TensorOf(value).dtype != dtype ||
      match.Result().dtype != dtype) {
    match.Refuse("queries, keys, values and the result have different types");
    return false;
  }
  const opdef::Shape& q = query.shape;
  const opdef::Shape& k = match.TensorOf(scores.key).shape;
  const opdef::Shape& v = match.TensorOf(value).shape;
  if (!q.has_rank() || !k.has_rank() || !v.has_rank() || q.rank() < 3 || q.rank() > 4 || k.rank() != q.rank() ||
      v.rank() != q.rank()) {
    match.Refuse("queries, keys and values have not 3 or 4 dims");
    return false;
  }
  const size_t last = q.rank() - 1;
  if (!AreEqual(q[0], k[0]) || !AreEqual(q[0], v[0]) || !AreEqual(k[last - 1], v[last - 1]) || !q[last].is_number() ||
      !AreEqual(q[last], k[last]) || !AreEqual(q[last], v[last])) {
    match.Refuse("batches, lengths or widths of queries, keys and values differ, or are not known");
    return false;
  }
  if (q.rank() == 4) {
    const bool has_heads = q[1].is_number() && k[1].is_number() && v[1].is_number() && q[1].number() > 0 &&
                           k[1].number() > 0 && k[1].number() == v[1].number() && q[1].number() % k[1].number() == 0;
    if (!has_heads) {
      match.Refuse("the heads of queries are no multiple of those of keys and values");
      return false;
    }
  }
  if (match.Result().shape != q) {
    match.Refuse("the result has another shape than the queries");
    return false;
  }
  if (!mask.is_set()) return true;
  const Tensor& shift = match.TensorOf(mask);
  if (q.rank() != 4 || !shift.shape.has_rank() || shift.shape.rank() != 4) {
    match.Refuse("the mask has not 4 dims: batch, heads, queries, keys");
    return false;
  }
  const bool is_known =
      dtype == kBFloat16 ? shift.dtype == kBFloat16 : shift.dtype == kFloat32 || shift.dtype == kFloat16;
  if (!is_known) match.Refuse("attention of this type takes no mask of that type");
  return is_known;
}

void ReplaceByAttention(Match& match, const Scores& scores, Port value, Port mask) {
  constexpr int64_t kAll = std::numeric_limits<int32_t>::max();
  const opdef::Shape& query = match.TensorOf(scores.query).shape;
  const bool has_heads = query.rank() == 4;
  opdef::Attributes attributes = {
      {"num_heads", has_heads ? query[1].number() : int64_t{1}},
      {"num_key_value_heads", has_heads ? match.TensorOf(scores.key).shape[1].number() : int64_t{1}},
      {"input_layout", std::string(has_heads ? "BNSD" : "BSH")},
      {"pre_tokens", kAll},
      {"next_tokens", kAll}};
  const auto scale = static_cast<float>(scores.scale);
  if (match.TensorOf(scores.query).dtype == kBFloat16) {
    attributes.emplace("scale", scale);
    return match.Replace("FusedInferAttentionScore",
                         {{"query", scores.query}, {"key0", scores.key}, {"value0", value}, {"pse_shift", mask}},
                         std::move(attributes));
  }
  attributes.emplace("scale_value", scale);
  match.Replace("PromptFlashAttention",
                {{"query", scores.query}, {"key", scores.key}, {"value", value}, {"pse_shift", mask}},
                std::move(attributes));
}

// softmax(query x key^T * scale + mask) x value
void FuseAttention(Match& match) {
  if (match.Flag(match.root(), "adj_x1") || match.Flag(match.root(), "adj_x2") || match.In("bias").is_set()) return;
  const NodeId softmax = match.Maker(match.BeforeCast(match.In("x1")), {"SoftmaxV2"});
  if (softmax == kNoNode) return;
  const Port weights = match.In(softmax, "x");
  const opdef::Shape& shape = match.TensorOf(weights).shape;
  const std::vector<int64_t> axes = match.Ints(softmax, "axes");
  const bool is_last =
      axes.size() == 1 && shape.has_rank() && (axes[0] == -1 || axes[0] + 1 == static_cast<int64_t>(shape.rank()));
  if (!is_last) return match.Refuse("the softmax is not one over the keys");
  const Port sum = match.BeforeCast(weights);
  const size_t mark = match.Mark();
  Port mask;
  std::optional<Scores> scores = ScoresOf(match, sum);
  if (!scores) {
    match.BackTo(mark);
    const NodeId add = match.Maker(sum, {"Add", "AddV2"});
    if (add == kNoNode) return match.Refuse("the scores are not those of queries and keys");
    const auto [first, second] = match.Both(add);
    const size_t behind = match.Mark();
    scores = ScoresOf(match, match.BeforeCast(first));
    mask = second;
    if (!scores) {
      match.BackTo(behind);
      scores = ScoresOf(match, match.BeforeCast(second));
      mask = first;
    }
    if (!scores) return match.Refuse("the scores are not those of queries and keys, or keys are not transposed");
  }
  scores->key = BeforeRepetition(match, scores->key);
  const Port value = BeforeRepetition(match, match.In("x2"));
  if (!FitsAttention(match, *scores, value, mask) || !match.IsClosed()) return;
  ReplaceByAttention(match, *scores, value, mask);
}

// ---- Layouts of attention ----

bool SwapsHeads(const Match& match, NodeId transpose) {
  if (match.graph().at(transpose).type == "Transpose") {
    return match.Integers(match.In(transpose, "perm")) == std::vector<int64_t>{0, 2, 1, 3};
  }
  return match.Ints(transpose, match.graph().at(transpose).type == "Permute" ? "order" : "perm") ==
         std::vector<int64_t>{0, 2, 1, 3};
}

// Queries, keys and values that were transposed from [b, s, n, d], and a result that is transposed back: attention
// takes and gives that layout itself.
void FuseAttentionLayout(Match& match) {
  if (!SwapsHeads(match, match.root())) return;
  const NodeId attention = match.Maker(match.In("x"), {"PromptFlashAttention", "FusedInferAttentionScore"});
  if (attention == kNoNode || match.Text(attention, "input_layout") != "BNSD") return;
  const Node& node = match.graph().at(attention);
  const bool is_prompt = node.type == "PromptFlashAttention";
  if (node.outputs.size() > 1 && match.Flag(attention, "softmax_lse_flag")) {
    return match.Refuse("the sums of the softmax are wanted");
  }
  Port operands[3] = {match.In(attention, "query"), match.In(attention, is_prompt ? "key" : "key0"),
                      match.In(attention, is_prompt ? "value" : "value0")};
  // What stands beside them and a mask has a layout of its own, or none.
  const Port mask = match.In(attention, "pse_shift");
  const auto others = std::count_if(node.inputs.begin(), node.inputs.end(), [&](const Input& input) {
    return input.source.is_set() && input.source != mask &&
           std::find(std::begin(operands), std::end(operands), input.source) == std::end(operands);
  });
  if (others != 0) return match.Refuse("the attention has more than a mask beside its operands");
  const size_t mark = match.Mark();
  bool are_transposed = true;
  Port sources[3];
  for (int i = 0; i < 3 && are_transposed; ++i) {
    const NodeId transpose = match.Maker(operands[i], {"Transpose", "TransposeD", "Permute"});
    are_transposed = transpose != kNoNode && SwapsHeads(match, transpose);
    if (are_transposed) sources[i] = match.In(transpose, "x");
  }
  if (are_transposed) {
    std::copy(std::begin(sources), std::end(sources), std::begin(operands));
  } else {
    match.BackTo(mark);
  }
  if (!match.IsClosed()) return;
  opdef::Attributes attributes = node.attributes;
  attributes.insert_or_assign("input_layout", std::string(are_transposed ? "BSND" : "BNSD_BSND"));
  const std::string type = node.type;
  match.Replace(type,
                {{"query", operands[0]},
                 {is_prompt ? "key" : "key0", operands[1]},
                 {is_prompt ? "value" : "value0", operands[2]},
                 {"pse_shift", mask}},
                std::move(attributes));
}

// ---- Rotary position embedding ----

enum class Turn : uint8_t { kHalves, kPairs };

// (-second half, first half) of x; or of each pair of neighbours (-odd, even).
std::optional<Turn> TurnOf(Match& match, Port turned, Port x) {
  NodeId join = match.Maker(turned, {"ConcatV2", "ConcatD"});
  Turn turn = Turn::kHalves;
  if (join == kNoNode) {
    const NodeId flat = match.Maker(turned, {"Reshape"});
    if (flat == kNoNode) return std::nullopt;
    join = match.Maker(match.In(flat, "x"), {"Pack"});
    turn = Turn::kPairs;
    if (join == kNoNode) return std::nullopt;
  }
  const opdef::Shape& shape = match.TensorOf(x).shape;
  if (!shape.has_rank() || shape.rank() == 0) return std::nullopt;
  const auto rank = static_cast<int64_t>(shape.rank());
  int64_t dim = 0;
  if (turn == Turn::kPairs) {
    dim = match.Int(join, "axis");
    if (dim != -1 && dim != rank) return std::nullopt;
  } else if (match.graph().at(join).type == "ConcatD") {
    dim = match.Int(join, "concat_dim");
  } else {
    const auto given = match.Integers(match.In(join, "concat_dim"));
    if (!given || given->size() != 1) return std::nullopt;
    dim = (*given)[0];
  }
  if (turn == Turn::kHalves && dim != -1 && dim != rank - 1) return std::nullopt;
  const std::vector<Port> parts = match.List(join, "x");
  if (parts.size() != 2) return std::nullopt;
  const Product negated = match.Factors(parts[0]);
  if (negated.factor != -1 || negated.ports.size() != 1 || !negated.divisors.empty()) return std::nullopt;
  const auto first = match.HalfOf(negated.ports[0]);
  const auto second = match.HalfOf(parts[1]);
  if (!first || !second || first->whole != x || second->whole != x || first->dim != rank - 1 ||
      second->dim != rank - 1 || first->index != 1 || second->index != 0) {
    return std::nullopt;
  }
  const bool is_interleaved = turn == Turn::kPairs;
  if (first->is_interleaved != is_interleaved || second->is_interleaved != is_interleaved) return std::nullopt;
  return turn;
}

// x * cos + turned(x) * sin
void FuseRotary(Match& match) {
  const auto [left, right] = match.Both(match.root());
  for (const auto& [plain, turned] : {std::pair(left, right), std::pair(right, left)}) {
    match.BackTo(0);
    const NodeId first = match.Maker(plain, {"Mul"});
    const NodeId second = match.Maker(turned, {"Mul"});
    if (first == kNoNode || second == kNoNode) return;
    const auto [x1, x2] = match.Both(first);
    const auto [y1, y2] = match.Both(second);
    const size_t mark = match.Mark();
    for (const auto& [x, cos] : {std::pair(x1, x2), std::pair(x2, x1)}) {
      for (const auto& [turned_x, sin] : {std::pair(y1, y2), std::pair(y2, y1)}) {
        match.BackTo(mark);
        const auto turn = TurnOf(match, turned_x, x);
        if (!turn) continue;
        const Tensor& tensor = match.TensorOf(x);
        const int32_t dtype = tensor.dtype;
        if (!IsSingleOrHalf(dtype) || match.Result() != tensor) {
          return match.Refuse("the result has another type or shape than x, or a type that cannot be turned");
        }
        for (const Port factor : {cos, sin}) {
          const Tensor& other = match.TensorOf(factor);
          if (other.dtype != dtype || !other.shape.has_rank() || other.shape.rank() != tensor.shape.rank() ||
              !AreEqual(other.shape.back(), tensor.shape.back())) {
            return match.Refuse("cos or sin has another type, other dims or another width than x");
          }
        }
        if (!(match.TensorOf(cos).shape == match.TensorOf(sin).shape)) {
          return match.Refuse("cos and sin have different shapes");
        }
        if (!match.IsClosed()) return;
        if (*turn == Turn::kHalves) return match.Replace("RotaryMul", {{"x", x}, {"r1", cos}, {"r2", sin}});
        return match.Replace("RotaryPositionEmbedding", {{"x", x}, {"cos", cos}, {"sin", sin}}, {{"mode", int64_t{1}}});
      }
    }
  }
}

Status RunAttention(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"BatchMatMul", "BatchMatMulV2"}, FuseAttention);
}
Status RunAttentionLayout(Graph& graph, PassContext& context) {
  return RunFusion(graph, context, {"Transpose", "TransposeD", "Permute"}, FuseAttentionLayout);
}
Status RunRotary(Graph& graph, PassContext& context) { return RunFusion(graph, context, {"Add", "AddV2"}, FuseRotary); }

constexpr Pass kAttentionPasses[] = {
    Fusion("RotaryMulFusionPass", RunRotary, "rotary position embedding"),
    Fusion("FlashAttentionFusionPass", RunAttention, "attention from two products and a softmax"),
    Fusion("FlashAttentionLayoutFusionPass", RunAttentionLayout, "transposes of heads around attention"),
};

}  // namespace

std::span<const Pass> AttentionFusions() { return kAttentionPasses; }

}  // namespace reprise::compiler
