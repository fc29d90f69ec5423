// SPDX-License-Identifier: Apache-2.0
//
// Attention and rotary position embedding out of their parts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/passes/fusions.h"
#include "compiler/passes/patterns.h"

namespace reprise::compiler {
namespace {

// ---- Attention ----

// An operand, and the shape in which attention takes it: its own, or one with the dims of batch and heads apart. Its
// dims are brought into this order before, if there is one.
struct Operand {
  Port port;
  opdef::Shape shape;
  std::vector<int64_t> perm = {};
};

opdef::Shape InOrder(const opdef::Shape& shape, const std::vector<int64_t>& perm) {
  opdef::Shape result = shape;
  for (size_t d = 0; d < perm.size(); ++d) result[d] = shape[static_cast<size_t>(perm[d])];
  return result;
}

struct Scores {
  Operand query;
  Operand key;
  double scale = 1;
};

// [b * n, s, d], which may be a reshape of [b, n, s, d], as [b, n, s, d].
Operand WithHeads(Match& match, Port port, const opdef::Dim& batch, const opdef::Dim& heads) {
  const size_t mark = match.Mark();
  const Port before = match.BeforeFlattening(port, 4);
  if (before.is_set()) {
    const opdef::Shape& shape = match.TensorOf(before).shape;
    if (AreEqual(shape[0], batch) && AreEqual(shape[1], heads)) return {before, shape, {}};
  }
  match.BackTo(mark);
  const opdef::Shape& joined = match.TensorOf(port).shape;
  if (!joined.has_rank() || joined.rank() != 3 || !AreEqual(joined[0], batch * heads)) return {port, joined, {}};
  return {port, {batch, heads, joined[1], joined[2]}, {}};
}

// A factor, which may stand in front of the product as well.
void TakeFactor(Match& match, Operand& operand, double& scale) {
  const size_t mark = match.Mark();
  const Product scaled = match.Factors(operand.port);
  if (scaled.ports.size() == 1 && scaled.divisors.empty() &&
      match.TensorOf(scaled.ports[0]) == match.TensorOf(operand.port)) {
    operand.port = scaled.ports[0];
    scale *= scaled.factor;
  } else {
    match.BackTo(mark);
  }
}

std::vector<int64_t> OrderOf(const Match& match, NodeId transpose) {
  if (match.graph().at(transpose).type == "Transpose") {
    return match.Integers(match.In(transpose, "perm")).value_or(std::vector<int64_t>());
  }
  return match.Ints(transpose, match.graph().at(transpose).type == "Permute" ? "order" : "perm");
}

// Keys [b, n, d, s] that were transposed, perhaps without a dim of a batch of 1, as [b, n, s, d]: the last two dims
// stay in the order in which they were.
bool TakeTranspose(Match& match, Operand& operand) {
  const size_t mark = match.Mark();
  const NodeId apart = match.Maker(operand.port, {"Reshape"});
  const Port port = apart == kNoNode ? operand.port : match.In(apart, "x");
  const opdef::Shape& from = match.TensorOf(port).shape;
  const size_t rank = from.rank();
  const NodeId transpose = match.Maker(port, {"Transpose", "TransposeD", "Permute"});
  std::vector<int64_t> perm = transpose == kNoNode ? std::vector<int64_t>() : OrderOf(match, transpose);
  const bool fits = operand.shape.has_rank() && operand.shape.rank() == 4 && from.has_rank() && rank >= 3 &&
                    perm.size() == rank && perm[rank - 2] + 1 == static_cast<int64_t>(rank) &&
                    AreEqual(from[rank - 2], operand.shape[2]) && AreEqual(from[rank - 1], operand.shape[3]) &&
                    std::all_of(perm.begin(), perm.end(), [](int64_t dim) { return dim >= 0; });
  if (!fits) {
    match.BackTo(mark);
    return false;
  }
  std::swap(perm[rank - 2], perm[rank - 1]);
  std::swap(operand.shape[2], operand.shape[3]);
  operand.port = match.In(transpose, "x");
  if (!std::is_sorted(perm.begin(), perm.end())) operand.perm = std::move(perm);
  return true;
}

// query x key^T * scale
std::optional<Scores> ScoresOf(Match& match, Port port) {
  const Product product = match.Factors(port);
  if (product.ports.size() != 1 || !product.divisors.empty()) return std::nullopt;
  const Port products = match.BeforeCast(product.ports[0]);
  NodeId node = match.Maker(products, {"BatchMatMul", "BatchMatMulV2"});
  // Batch and heads may be one dim for the product.
  const bool is_joined = node == kNoNode;
  if (is_joined) {
    const NodeId apart = match.Maker(products, {"Reshape"});
    const opdef::Shape& shape = match.TensorOf(products).shape;
    if (apart == kNoNode || !shape.has_rank() || shape.rank() != 4) return std::nullopt;
    const opdef::Shape& joined = match.TensorOf(match.In(apart, "x")).shape;
    if (!joined.has_rank() || joined.rank() != 3 || !AreEqual(joined[1], shape[2]) || !AreEqual(joined[2], shape[3])) {
      return std::nullopt;
    }
    node = match.Maker(match.In(apart, "x"), {"BatchMatMul", "BatchMatMulV2"});
  }
  if (node == kNoNode || match.Flag(node, "adj_x1")) return std::nullopt;
  if (match.In(node, "bias").is_set() || match.In(node, "offset_w").is_set()) return std::nullopt;
  Scores scores = {{}, {}, product.factor};
  for (const bool is_query : {true, false}) {
    Operand& operand = is_query ? scores.query : scores.key;
    operand.port = match.In(node, is_query ? "x1" : "x2");
    operand.shape = match.TensorOf(operand.port).shape;
    if (is_joined) {
      const opdef::Shape& shape = match.TensorOf(products).shape;
      operand = WithHeads(match, operand.port, shape[0], shape[1]);
    }
    TakeFactor(match, operand, scores.scale);
    if (is_query || match.Flag(node, "adj_x2")) continue;
    if (!TakeTranspose(match, operand)) return std::nullopt;
    TakeFactor(match, operand, scores.scale);
  }
  return scores;
}

// Heads that were repeated for groups of queries: [b, n, s, d] as [b, n, 1, s, d], broadcast, as [b, n * g, s, d].
Operand BeforeRepetition(Match& match, const Operand& operand) {
  const Port port = operand.port;
  const size_t mark = match.Mark();
  const NodeId joined = operand.perm.empty() ? match.Maker(port, {"Reshape"}) : kNoNode;
  const NodeId repeated =
      joined == kNoNode ? kNoNode : match.Maker(match.In(joined, "x"), {"Expand", "BroadcastTo", "Tile"});
  const NodeId widened =
      repeated == kNoNode ? kNoNode : match.Maker(match.In(repeated, "x"), {"Unsqueeze", "ExpandDims", "Reshape"});
  if (widened != kNoNode) {
    const Port source = match.In(widened, "x");
    const opdef::Shape& heads = match.TensorOf(source).shape;
    const opdef::Shape& one = match.graph().at(widened).outputs[0].tensor.shape;
    const opdef::Shape& many = match.graph().at(repeated).outputs[0].tensor.shape;
    const opdef::Shape& all = operand.shape;
    constexpr size_t kWide = 5;
    const bool has_ranks = heads.has_rank() && one.has_rank() && many.has_rank() && all.has_rank() &&
                           heads.rank() + 1 == kWide && one.rank() == kWide && many.rank() == kWide &&
                           all.rank() + 1 == kWide;
    if (has_ranks && one[2].Is(1) && AreEqual(heads[0], one[0]) && AreEqual(heads[1], one[1]) &&
        AreEqual(heads[2], one[3]) && AreEqual(heads[3], one[4]) && AreEqual(one[0], many[0]) &&
        AreEqual(one[1], many[1]) && AreEqual(one[3], many[3]) && AreEqual(one[4], many[4]) &&
        AreEqual(many[1] * many[2], all[1]) && AreEqual(heads[0], all[0]) && AreEqual(heads[2], all[2])) {
      return {source, heads, {}};
    }
  }
  match.BackTo(mark);
  return operand;
}

// Whether the parts are queries [b, n, s, d] or [b, s, d], keys and values to go with them. Says why not.
// `is_choice`: the mask has bytes, of which numbers of the type of the scores are made.
// `is_joined`: the result has batch and heads as one dim.
bool FitsAttention(Match& match, const Scores& scores, const Operand& value, Port mask, bool is_choice,
                   bool is_joined) {
  const int32_t dtype = match.TensorOf(scores.query.port).dtype;
  if (!IsSingleOrHalf(dtype)) {
    match.Refuse("queries are of a type that attention does not take");
    return false;
  }
  if (match.TensorOf(scores.key.port).dtype != dtype || match.TensorOf(value.port).dtype != dtype ||
      match.Result().dtype != dtype) {
    match.Refuse("queries, keys, values and the result have different types");
    return false;
  }
  const opdef::Shape& q = scores.query.shape;
  const opdef::Shape& k = scores.key.shape;
  const opdef::Shape& v = value.shape;
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
  for (const Operand* operand : {&scores.query, &scores.key, &value}) {
    const opdef::Shape& own = match.TensorOf(operand->port).shape;
    if (InOrder(own, operand->perm) == operand->shape || operand->shape.is_static()) continue;
    match.Refuse("batch and heads are one dim, and sizes are not known");
    return false;
  }
  if (is_joined) {
    const opdef::Shape& result = match.Result().shape;
    if (!result.has_rank() || result.rank() != 3 || !result[1].is_number() || !AreEqual(result[1], q[2]) ||
        !AreEqual(result[2], q[3])) {
      match.Refuse("the result has another shape than the queries with batch and heads as one, or none that is known");
      return false;
    }
  } else if (match.Result().shape != q) {
    match.Refuse("the result has another shape than the queries");
    return false;
  }
  if (!mask.is_set()) return true;
  const Tensor& shift = match.TensorOf(mask);
  if (q.rank() != 4 || !shift.shape.has_rank() || shift.shape.rank() < 2 || shift.shape.rank() > 4) {
    match.Refuse("the mask has not 2 to 4 dims: batch, heads, queries, keys");
    return false;
  }
  if (is_choice) return true;
  const bool is_known =
      dtype == kBFloat16 ? shift.dtype == kBFloat16 : shift.dtype == kFloat32 || shift.dtype == kFloat16;
  if (!is_known) match.Refuse("attention of this type takes no mask of that type");
  return is_known;
}

// The mask with dims of 1 in front.
Port WithFourDims(Match& match, Port mask) {
  if (!mask.is_set() || match.TensorOf(mask).shape.rank() == 4) return mask;
  Tensor wide = match.TensorOf(mask);
  std::vector<opdef::Dim> dims = wide.shape.dims();
  std::vector<int64_t> axes;
  while (dims.size() < 4) {
    dims.insert(dims.begin(), opdef::Dim(1));
    axes.push_back(static_cast<int64_t>(axes.size()));
  }
  wide.shape = opdef::Shape(std::move(dims));
  return match.AddOperator("mask", "Unsqueeze", {{"x", mask}}, std::move(wide), {{"axes", std::move(axes)}});
}

// The operand in its shape.
Port Given(Match& match, const Operand& operand, std::string_view name) {
  Tensor tensor = match.TensorOf(operand.port);
  Port port = operand.port;
  if (!operand.perm.empty()) {
    tensor.shape = InOrder(tensor.shape, operand.perm);
    const Port perm = match.AddIntegers(fmt::format("{}_perm", name), operand.perm);
    port = match.AddOperator(fmt::format("{}_rows", name), "Transpose", {{"x", port}, {"perm", perm}}, tensor);
  }
  if (tensor.shape == operand.shape) return port;
  tensor.shape = operand.shape;
  const Port sizes = match.AddIntegers(fmt::format("{}_shape", name), operand.shape.numbers());
  return match.AddOperator(name, "Reshape", {{"x", port}, {"shape", sizes}}, std::move(tensor));
}

// Turns the root into a Reshape of `x`, whose first dim follows from the others.
void ReplaceByReshape(Match& match, Port x) {
  const opdef::Shape& shape = match.Result().shape;
  std::vector<int64_t> sizes = {-1};
  for (size_t d = 1; d < shape.rank(); ++d) sizes.push_back(shape[d].number());
  match.Replace("Reshape", {{"x", x}, {"shape", match.AddIntegers("shape", sizes)}});
}

void ReplaceByAttention(Match& match, const Scores& scores, const Operand& value, Port mask, bool is_joined) {
  constexpr int64_t kAll = std::numeric_limits<int32_t>::max();
  const opdef::Shape& query = scores.query.shape;
  const bool has_heads = query.rank() == 4;
  opdef::Attributes attributes = {{"num_heads", has_heads ? query[1].number() : int64_t{1}},
                                  {"num_key_value_heads", has_heads ? scores.key.shape[1].number() : int64_t{1}},
                                  {"input_layout", std::string(has_heads ? "BNSD" : "BSH")},
                                  {"pre_tokens", kAll},
                                  {"next_tokens", kAll}};
  const auto scale = static_cast<float>(scores.scale);
  const Port shift = WithFourDims(match, mask);
  const Port queries = Given(match, scores.query, "query");
  const Port keys = Given(match, scores.key, "key");
  const Port values = Given(match, value, "value");
  const Tensor result = match.TensorOf(queries);
  const auto replace = [&](std::string_view type, std::initializer_list<Match::NewInput> inputs) {
    if (!is_joined) return match.Replace(type, inputs, std::move(attributes));
    ReplaceByReshape(match, match.AddOperator("heads", type, inputs, result, std::move(attributes)));
  };
  if (result.dtype == kBFloat16) {
    attributes.emplace("scale", scale);
    return replace("FusedInferAttentionScore",
                   {{"query", queries}, {"key0", keys}, {"value0", values}, {"pse_shift", shift}});
  }
  attributes.emplace("scale_value", scale);
  replace("PromptFlashAttention", {{"query", queries}, {"key", keys}, {"value", values}, {"pse_shift", shift}});
}

// The softmax that weights are. Also with zeros for rows all of whose scores are -Inf, as PyTorch's
// scaled_dot_product_attention has them: attention gives zeros for such rows, too.
NodeId SoftmaxOf(Match& match, Port weights) {
  const size_t mark = match.Mark();
  const NodeId choice = match.Maker(weights, {"SelectV2"});
  if (choice == kNoNode) return match.Maker(weights, {"SoftmaxV2"});
  const NodeId softmax = match.Maker(match.In(choice, "else"), {"SoftmaxV2"});
  const NodeId empty = match.Maker(match.In(choice, "condition"), {"ReduceAll"});
  const NodeId hidden = empty == kNoNode ? kNoNode : match.Maker(match.In(empty, "x"), {"Equal"});
  if (softmax != kNoNode && hidden != kNoNode && match.Number(match.In(choice, "then")) == 0.0 &&
      match.Flag(empty, "keep_dims")) {
    const Port scores = match.In(softmax, "x");
    const auto [left, right] = match.Both(hidden);
    const auto axes = match.Integers(match.In(empty, "axes"));
    const auto rank = static_cast<int64_t>(match.TensorOf(scores).shape.rank());
    const bool is_last = axes && axes->size() == 1 && ((*axes)[0] == -1 || (*axes)[0] + 1 == rank);
    if (is_last && left == scores && match.Number(right) == -std::numeric_limits<double>::infinity()) return softmax;
  }
  match.BackTo(mark);
  return kNoNode;
}

// Scores where a mask of bytes says so, and a number elsewhere.
struct Choice {
  Port scores;
  Port mask;
  double number = 0;
  bool keeps = true;  // what the mask says is kept; else the rest is
};

std::optional<Choice> ChoiceOf(Match& match, Port port) {
  Choice choice;
  Port number;
  if (const NodeId node = match.Maker(port, {"SelectV2"}); node != kNoNode) {
    choice.mask = match.In(node, "condition");
    choice.scores = match.In(node, "then");
    number = match.In(node, "else");
    if (match.Number(choice.scores)) {
      std::swap(choice.scores, number);
      choice.keeps = false;
    }
  } else if (const NodeId fill = match.Maker(port, {"MaskedFill"}); fill != kNoNode) {
    choice = {match.In(fill, "x"), match.In(fill, "mask"), 0, false};
    number = match.In(fill, "value");
  } else {
    return std::nullopt;
  }
  const auto value = match.Number(number);
  if (!value) return std::nullopt;
  choice.number = *value;
  return choice;
}

// Scores are lost in a number as large as this: adding it gives it.
bool HidesScores(double number) { return std::isfinite(number) && number < -0x1p120; }

// What is added to scores so that they become the choice.
Port AddedOf(Match& match, const Choice& choice) {
  const int32_t dtype = match.TensorOf(choice.scores).dtype;
  const double values[2] = {0, choice.number};
  const Port kept = match.AddConstant("kept", dtype, {}, std::span(values, 1));
  const Port hidden = match.AddConstant("hidden", dtype, {}, std::span(values + 1, 1));
  const Tensor result{.dtype = dtype, .shape = match.TensorOf(choice.mask).shape};
  return match.AddOperator(
      "added", "SelectV2",
      {{"condition", choice.mask}, {"then", choice.keeps ? kept : hidden}, {"else", choice.keeps ? hidden : kept}},
      result);
}

// softmax(query x key^T * scale + mask) x value
void FuseAttention(Match& match) {
  if (match.Flag(match.root(), "adj_x1") || match.Flag(match.root(), "adj_x2") || match.In("bias").is_set()) return;
  Operand attended = {match.In("x2"), match.TensorOf(match.In("x2")).shape, {}};
  NodeId softmax = SoftmaxOf(match, match.BeforeCast(match.In("x1")));
  // Batch and heads may be one dim for this product.
  const bool is_joined = softmax == kNoNode;
  if (is_joined) {
    const Port heads = match.BeforeFlattening(match.BeforeCast(match.In("x1")), 4);
    softmax = heads.is_set() ? SoftmaxOf(match, match.BeforeCast(heads)) : kNoNode;
    if (softmax == kNoNode) return;
    const opdef::Shape& weighted = match.TensorOf(heads).shape;
    attended = WithHeads(match, attended.port, weighted[0], weighted[1]);
  }
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
  std::optional<Choice> choice;
  if (!scores) {
    match.BackTo(mark);
    choice = ChoiceOf(match, sum);
    if (!choice) match.BackTo(mark);
  }
  if (choice) {
    scores = ScoresOf(match, match.BeforeCast(choice->scores));
    if (!scores) return match.Refuse("the scores are not those of queries and keys, or keys are not transposed");
    if (!HidesScores(choice->number)) {
      return match.Refuse("a mask of bytes puts a number in place of scores that does not hide them in a sum");
    }
    if (match.TensorOf(choice->scores).dtype != match.TensorOf(scores->query.port).dtype) {
      return match.Refuse("a mask of bytes chooses scores of another type than the queries");
    }
    mask = choice->mask;
  } else if (!scores) {
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
  const Operand value = BeforeRepetition(match, attended);
  if (!FitsAttention(match, *scores, value, mask, choice.has_value(), is_joined) || !match.IsClosed()) return;
  if (choice) mask = AddedOf(match, *choice);
  ReplaceByAttention(match, *scores, value, mask, is_joined);
}

// ---- Layouts of attention ----

bool SwapsHeads(const Match& match, NodeId transpose) {
  return OrderOf(match, transpose) == std::vector<int64_t>{0, 2, 1, 3};
}

// Heads of a batch of 1 without the dim of the batch.
Port WithBatch(Match& match, Port port) {
  const NodeId single = match.Maker(port, {"Reshape"});
  if (single == kNoNode) return {};
  const Port heads = match.In(single, "x");
  const opdef::Shape& from = match.TensorOf(heads).shape;
  const opdef::Shape& to = match.TensorOf(port).shape;
  if (!from.has_rank() || from.rank() != 4 || !from[0].Is(1) || !to.has_rank() || to.rank() != 3) return {};
  for (size_t d = 0; d < 3; ++d) {
    if (!AreEqual(from[d + 1], to[d])) return {};
  }
  return heads;
}

// Queries, keys and values that were transposed from [b, s, n, d], and a result that is transposed back: attention
// takes and gives that layout itself.
void FuseAttentionLayout(Match& match) {
  const bool has_batch = SwapsHeads(match, match.root());
  if (!has_batch && OrderOf(match, match.root()) != std::vector<int64_t>{1, 0, 2}) return;
  const Port heads = has_batch ? match.In("x") : WithBatch(match, match.In("x"));
  if (!heads.is_set()) return;
  const NodeId attention = match.Maker(heads, {"PromptFlashAttention", "FusedInferAttentionScore"});
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
  const std::initializer_list<Match::NewInput> inputs = {{"query", operands[0]},
                                                         {is_prompt ? "key" : "key0", operands[1]},
                                                         {is_prompt ? "value" : "value0", operands[2]},
                                                         {"pse_shift", mask}};
  if (has_batch) return match.Replace(type, inputs, std::move(attributes));
  Tensor tokens = match.TensorOf(heads);
  std::swap(tokens.shape[1], tokens.shape[2]);
  ReplaceByReshape(match, match.AddOperator("tokens", type, inputs, std::move(tokens), std::move(attributes)));
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
