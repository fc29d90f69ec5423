// SPDX-License-Identifier: Apache-2.0
//
// Attention between floating numbers of 8 bits, with a factor for each block of tokens, and its gradients.
//
// Weights, and gradients of scores, meet the other numbers as 8-bit floats of the type of the query, after a factor
// that makes good use of their range. All sums are float32.
#include <cmath>
#include <limits>

#include "kernels/small_float.h"
#include "opdef/graph_op.h"
#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/families/stream_parts.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::Range;
using kernels::SmallFloat;
using kernels::TensorRef;

struct EightBitShape {
  int64_t batch, heads, key_heads, queries, keys, depth, value_depth;
  float scale = 1;
  SmallFloat type = SmallFloat::kHiFloat8;

  int64_t KeyHeadOf(int64_t head) const { return head / (heads / key_heads); }
};

bool HeadsFirst(const OpCall& call) { return call.Text("inputLayout") == "BNSD"; }

// Dims of a tensor [batch, token, head, element], or with heads first, in the latter order.
struct HeadDims {
  int64_t batch, heads, tokens, depth;
};

HeadDims DimsOf(const OpCall& call, const Operand& operand) {
  const std::span<const int64_t> s = operand.sizes();
  return HeadsFirst(call) ? HeadDims{s[0], s[1], s[2], s[3]} : HeadDims{s[0], s[2], s[1], s[3]};
}

const Operand& KeysOf(const OpCall& call) { return call.Get(call.Has("keyIn") ? "keyIn" : "key"); }

EightBitShape EightBitShapeOf(const OpCall& call) {
  const Operand& query = call.Get("query");
  const HeadDims q = DimsOf(call, query), k = DimsOf(call, KeysOf(call)), v = DimsOf(call, call.Get("value"));
  return {.batch = q.batch,
          .heads = q.heads,
          .key_heads = k.heads,
          .queries = q.tokens,
          .keys = k.tokens,
          .depth = q.depth,
          .value_depth = v.depth,
          .scale = static_cast<float>(call.Real("scaleValue")),
          .type = static_cast<SmallFloat>(query.type_number)};
}

Status EightBitTypes(OpCall& call) {
  call.compute = DType::kFloat;
  const Operand& query = call.Get("query");
  const int32_t type = query.type_number;
  if (!kernels::IsSmallFloat(type) || type == static_cast<int32_t>(SmallFloat::kFloat8E8M0)) {
    return call.InvalidOperand(
        query, fmt::format("has {}, expected hifloat8, float8_e4m3fn or float8_e5m2", opdef::TypeName(type)));
  }
  for (const char* name : {"key", "keyIn", "value", "dy"}) {
    if (!call.Has(name) || call.Get(name).type_number == type) continue;
    const Operand& operand = call.Get(name);
    return call.InvalidOperand(operand, fmt::format("has {}, expected the type {} of query",
                                                    opdef::TypeName(operand.type_number), opdef::TypeName(type)));
  }
  return {};
}

// So many tokens have a factor together; 0 where none of the sizes that there are fits.
int64_t BlockOf(int64_t tokens, int64_t factors) {
  for (const int64_t block : {128, 256, 512}) {
    if ((tokens + block - 1) / block == factors) return block;
  }
  return 0;
}

Status CheckFactors(const OpCall& call, const char* name, const HeadDims& of) {
  const Operand& factors = call.Get(name);
  const std::span<const int64_t> s = factors.sizes();
  if (factors.rank() == 4 && s[0] == of.batch && s[1] == of.heads && s[3] == 1 && BlockOf(of.tokens, s[2]) != 0) {
    return {};
  }
  return call.InvalidOperand(factors, fmt::format("has shape {}, expected [{}, {}, blocks, 1], with blocks of 128, 256 "
                                                  "or 512 of {} tokens",
                                                  ShapeText(s), of.batch, of.heads, of.tokens));
}

Status CheckHeads(OpCall& call) {
  const std::string_view layout = call.Text("inputLayout");
  if (layout != "BSND" && layout != "BNSD") {
    return call.Invalid(fmt::format("inputLayout is '{}', expected BSND or BNSD", layout));
  }
  if (call.Find("attenMaskOptional") != nullptr) {
    return call.Invalid("attenMaskOptional is given, but this operator has no masks",
                        "leave it out, or convert the inputs and use aclnnFlashAttentionScoreV2");
  }
  const Operand& query = call.Get("query");
  const Operand& key = KeysOf(call);
  const Operand& value = call.Get("value");
  for (const Operand* operand : {&query, &key, &value}) {
    if (operand->rank() == 4) continue;
    return call.InvalidOperand(*operand, fmt::format("has shape {}, expected 4 dims", ShapeText(operand->sizes())));
  }
  const HeadDims q = DimsOf(call, query), k = DimsOf(call, key), v = DimsOf(call, value);
  if (k.batch != q.batch || k.depth != q.depth || k.heads == 0 || q.heads % k.heads != 0) {
    return call.InvalidOperand(key, fmt::format("has shape {}, which does not fit {} of query", ShapeText(key.sizes()),
                                                ShapeText(query.sizes())));
  }
  if (v.batch != k.batch || v.heads != k.heads || v.tokens != k.tokens) {
    return call.InvalidOperand(value, fmt::format("has shape {}, which does not fit {} of {}", ShapeText(value.sizes()),
                                                  ShapeText(key.sizes()), call.NameOf(key)));
  }
  if (call.Int("headNum") != q.heads) {
    return call.Invalid(fmt::format("headNum is {}, but query has {} heads", call.Int("headNum"), q.heads));
  }
  REPRISE_RETURN_IF_ERROR(CheckFactors(call, "dScaleQ", q));
  REPRISE_RETURN_IF_ERROR(CheckFactors(call, "dScaleK", k));
  return CheckFactors(call, "dScaleV", v);
}

Status CheckRowNumbers(const OpCall& call, const char* name, const HeadDims& q) {
  const Operand& numbers = call.Get(name);
  const std::span<const int64_t> s = numbers.sizes();
  if (numbers.rank() == 4 && s[0] == q.batch && s[1] == q.heads && s[2] == q.tokens && s[3] > 0) return {};
  return call.InvalidOperand(
      numbers, fmt::format("has shape {}, expected [{}, {}, {}, 1]", ShapeText(s), q.batch, q.heads, q.tokens));
}

Status CheckOneNumber(const OpCall& call, const char* name) {
  const Operand* const factor = call.Find(name);
  if (factor == nullptr || factor->tensor->count == 1) return {};
  return call.InvalidOperand(*factor, fmt::format("has shape {}, expected [1]", ShapeText(factor->sizes())));
}

Status EightBitAttentionShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckHeads(call));
  const HeadDims q = DimsOf(call, call.Get("query"));
  REPRISE_RETURN_IF_ERROR(CheckOneNumber(call, "pScale"));
  for (const char* name : {"softmaxMaxOut", "softmaxSumOut"}) {
    REPRISE_RETURN_IF_ERROR(CheckRowNumbers(call, name, q));
  }
  Dims shape(call.Get("query").sizes().data(), call.Get("query").sizes().size());
  shape[3] = call.Get("value").sizes()[3];
  return call.CheckShape(call.Get("attentionOutOut"), shape,
                         [] { return "that of query, with the elements of value:"; });
}

Status EightBitGradientShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckHeads(call));
  const Operand& query = call.Get("query");
  const HeadDims q = DimsOf(call, query);
  for (const char* name : {"pScale", "dsScale"}) REPRISE_RETURN_IF_ERROR(CheckOneNumber(call, name));
  for (const char* name : {"softmaxMax", "softmaxSum"}) REPRISE_RETURN_IF_ERROR(CheckRowNumbers(call, name, q));
  Dims shape(query.sizes().data(), query.sizes().size());
  shape[3] = call.Get("value").sizes()[3];
  for (const char* name : {"dy", "attentionIn"}) {
    REPRISE_RETURN_IF_ERROR(
        call.CheckShape(call.Get(name), shape, [] { return "that of query, with the elements of value:"; }));
  }
  REPRISE_RETURN_IF_ERROR(CheckFactors(call, "dScaleDy", q));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("dqOut"), query.sizes(), [] { return "the shape of query,"; }));
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("dkOut"), KeysOf(call).sizes(), [] { return "the shape of keyIn,"; }));
  return call.CheckShape(call.Get("dvOut"), call.Get("value").sizes(), [] { return "the shape of value,"; });
}

// ---- Inputs and outputs as [batch, head, token, element] ----

void ExchangeTokensAndHeads(TensorRef& ref) {
  std::swap(ref.sizes[1], ref.sizes[2]);
  std::swap(ref.strides[1], ref.strides[2]);
}

TensorRef HeadsOf(const OpCall& call, const Operand& operand) {
  TensorRef ref = call.RefOf(operand);
  if (!HeadsFirst(call)) ExchangeTokensAndHeads(ref);
  return ref;
}

std::span<const int64_t> SizesOfHeads(const TensorRef& ref) { return {ref.sizes, 4}; }

// refs: out; x, factors. ints: type, tokens of a block, or 0 without factors. A unit is a token of a head.
void RunWidenTokens(const Launch& launch, Range range, const Launch::KernelMemory& memory) {
  const TensorRef& x = launch.refs[1];
  const TensorRef& factors = launch.refs[2];
  const auto type = static_cast<SmallFloat>(launch.ints[0]);
  const int64_t block = launch.ints[1], depth = x.sizes[3];
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const int64_t token = unit % x.sizes[2], head = unit / x.sizes[2] % x.sizes[1], b = unit / x.sizes[2] / x.sizes[1];
    const auto* const from =
        static_cast<const uint8_t*>(x.data) + b * x.strides[0] + head * x.strides[1] + token * x.strides[2];
    const float factor = static_cast<const float*>(
        factors.data)[b * factors.strides[0] + head * factors.strides[1] + token / block * factors.strides[2]];
    float* const to = DataOf<float>(launch, 0, memory) + unit * depth;
    for (int64_t d = 0; d < depth; ++d) to[d] = kernels::FromSmall(type, from[d * x.strides[3]]) * factor;
  }
}

Dense WidenedTokens(OpCall& call, const Operand& operand, const char* factors_name) {
  const Operand& factors = call.Get(factors_name);
  const TensorRef view = HeadsOf(call, operand);
  const Dense wide = DenseTemporary(call, DType::kFloat, SizesOfHeads(view));
  Launch& launch = call.AddLaunch(RunWidenTokens);
  wide.Write(call, launch);
  call.Read(launch, operand, view);
  call.Read(launch, factors);
  launch.ints.push_back(operand.type_number);
  launch.ints.push_back(BlockOf(view.sizes[2], factors.sizes()[2]));
  launch.units = view.sizes[0] * view.sizes[1] * view.sizes[2];
  launch.grain = GrainOf(8 * view.sizes[3]);
  return wide;
}

// An output with tokens and heads in the order of the call, written by heads. \pre `values` is not used any more.
void StoreHeads(OpCall& call, const Dense& values, const Operand& output) {
  Launch& copy = call.AddLaunch(RunCopy);
  call.Write(copy, output, HeadsOf(call, output));
  values.Read(call, copy);
  copy.units = output.tensor->count;
  copy.grain = GrainOf(1);
}

Dense HeadsTemporary(OpCall& call, const Operand& output) {
  return DenseTemporary(call, DType::kFloat, SizesOfHeads(HeadsOf(call, output)));
}

float FactorOf(const Launch& launch, size_t i) {
  return launch.HasOperand(i) ? *static_cast<const float*>(launch.refs[i].data) : 1.0f;
}

float Rounded(SmallFloat type, float value) { return kernels::FromSmall(type, kernels::ToSmall(type, value)); }

void AddScaled(float* to, float factor, const float* from, int64_t count) {
  for (int64_t d = 0; d < count; ++d) to[d] += factor * from[d];
}

// ---- Forward ----

// refs: out, maxima, sums; query, key, value, factor of the weights. A unit is a query of a head.
void RunEightBitAttention(const Launch& launch, Range range, const Launch::KernelMemory& memory) {
  const auto& s = launch.State<EightBitShape>();
  auto* const scores = static_cast<float*>(memory.scratch);
  const float factor = FactorOf(launch, 6);
  for (int64_t row = range.begin; row < range.end; ++row) {
    const int64_t head = row / s.queries % s.heads, b = row / s.queries / s.heads;
    const int64_t first_key = (b * s.key_heads + s.KeyHeadOf(head)) * s.keys;
    const float* const query = DataOf<float>(launch, 3, memory) + row * s.depth;
    const float* const keys = DataOf<float>(launch, 4, memory) + first_key * s.depth;
    const float* const values = DataOf<float>(launch, 5, memory) + first_key * s.value_depth;
    float* const out = DataOf<float>(launch, 0, memory) + row * s.value_depth;
    float most = -std::numeric_limits<float>::infinity(), sum = 0;
    for (int64_t j = 0; j < s.keys; ++j) {
      scores[j] = s.scale * Dot(query, keys + j * s.depth, s.depth);
      most = scores[j] > most || std::isnan(scores[j]) ? scores[j] : most;
    }
    std::fill_n(out, s.value_depth, 0.0f);
    for (int64_t j = 0; j < s.keys; ++j) {
      const float weight = std::exp(scores[j] - most);
      sum += weight;
      AddScaled(out, Rounded(s.type, weight * factor), values + j * s.value_depth, s.value_depth);
    }
    for (int64_t d = 0; d < s.value_depth && s.keys > 0; ++d) out[d] /= sum * factor;
    DataOf<float>(launch, 1, memory)[row] = most;
    DataOf<float>(launch, 2, memory)[row] = sum;
  }
}

// A number for each row, as often as the last dim is long.
void StoreRowNumbers(OpCall& call, const Dense& numbers, const Operand& output) {
  TensorRef spread = numbers.ref;
  spread.sizes[3] = output.sizes()[3];
  spread.strides[3] = 0;
  Launch& copy = call.AddLaunch(RunCopy);
  call.Write(copy, output);
  call.ReadTemporary(copy, spread);
  copy.units = output.tensor->count;
  copy.grain = GrainOf(1);
}

Status LowerEightBitAttention(OpCall& call) {
  const auto shape = std::make_shared<EightBitShape>(EightBitShapeOf(call));
  const Dense query = WidenedTokens(call, call.Get("query"), "dScaleQ");
  const Dense key = WidenedTokens(call, call.Get("key"), "dScaleK");
  const Dense value = WidenedTokens(call, call.Get("value"), "dScaleV");
  const Operand& attention = call.Get("attentionOutOut");
  const Dense out = HeadsTemporary(call, attention);
  const int64_t rows[] = {shape->batch, shape->heads, shape->queries, 1};
  const Dense maxima = DenseTemporary(call, DType::kFloat, rows);
  const Dense sums = DenseTemporary(call, DType::kFloat, rows);
  Launch& launch = call.AddLaunch(RunEightBitAttention);
  for (const Dense* output : {&out, &maxima, &sums}) output->Write(call, launch);
  for (const Dense* input : {&query, &key, &value}) input->Read(call, launch);
  call.ReadOptional(launch, call.Find("pScale"));
  launch.units = shape->batch * shape->heads * shape->queries;
  launch.grain = GrainOf(shape->keys * (shape->depth + shape->value_depth + 32));
  call.AddScratch(launch, static_cast<uint64_t>(std::max<int64_t>(shape->keys, 1)) * sizeof(float));
  launch.state = shape;
  StoreHeads(call, out, attention);
  StoreRowNumbers(call, maxima, call.Get("softmaxMaxOut"));
  StoreRowNumbers(call, sums, call.Get("softmaxSumOut"));
  return {};
}

// ---- Backward ----

// What both kernels read: refs 2 to 8 are query, key, value, dy, maxima, sums, means; 9 and 10 the factors of weights
// and of gradients of scores. Means: sum over the elements of dy * attention.
class EightBitPair {
 public:
  EightBitPair(const Launch& launch, const Launch::KernelMemory& memory)
      : s_(launch.State<EightBitShape>()),
        query_(DataOf<float>(launch, 2, memory)),
        key_(DataOf<float>(launch, 3, memory)),
        value_(DataOf<float>(launch, 4, memory)),
        dy_(DataOf<float>(launch, 5, memory)),
        maxima_(DataOf<float>(launch, 6, memory)),
        sums_(DataOf<float>(launch, 7, memory)),
        means_(DataOf<float>(launch, 8, memory)),
        weight_factor(FactorOf(launch, 9)),
        score_factor(FactorOf(launch, 10)) {}

  const EightBitShape& shape() const { return s_; }
  const float* Query(int64_t row) const { return query_ + row * s_.depth; }
  const float* Key(int64_t row) const { return key_ + row * s_.depth; }
  const float* Dy(int64_t row) const { return dy_ + row * s_.value_depth; }

  // The weight, and the gradient of the score, of a row of queries and one of keys, each times its factor and rounded.
  void Find(int64_t row, int64_t key_row, float& weight, float& score_gradient) const {
    const float score = s_.scale * Dot(Query(row), Key(key_row), s_.depth);
    const float exact = std::exp(score - maxima_[row]) / sums_[row];
    const float gradient = Dot(Dy(row), value_ + key_row * s_.value_depth, s_.value_depth);
    weight = Rounded(s_.type, exact * weight_factor);
    score_gradient = Rounded(s_.type, exact * (gradient - means_[row]) * score_factor);
  }

 private:
  const EightBitShape& s_;
  const float *query_, *key_, *value_, *dy_, *maxima_, *sums_, *means_;

 public:
  const float weight_factor, score_factor;
};

// refs: means; dy, attention. ints: elements. A unit is a query of a head.
void RunMeans(const Launch& launch, Range range, const Launch::KernelMemory& memory) {
  const int64_t depth = launch.ints[0];
  for (int64_t row = range.begin; row < range.end; ++row) {
    DataOf<float>(launch, 0, memory)[row] =
        Dot(DataOf<float>(launch, 1, memory) + row * depth, DataOf<float>(launch, 2, memory) + row * depth, depth);
  }
}

// refs: gradient of the queries, none; the rest as EightBitPair says. A unit is a query of a head.
void RunOfQueries(const Launch& launch, Range range, const Launch::KernelMemory& memory) {
  const EightBitPair pair(launch, memory);
  const EightBitShape& s = pair.shape();
  for (int64_t row = range.begin; row < range.end; ++row) {
    const int64_t head = row / s.queries % s.heads, b = row / s.queries / s.heads;
    const int64_t first_key = (b * s.key_heads + s.KeyHeadOf(head)) * s.keys;
    float* const out = DataOf<float>(launch, 0, memory) + row * s.depth;
    std::fill_n(out, s.depth, 0.0f);
    for (int64_t j = 0; j < s.keys; ++j) {
      float weight, gradient;
      pair.Find(row, first_key + j, weight, gradient);
      AddScaled(out, gradient, pair.Key(first_key + j), s.depth);
    }
    for (int64_t d = 0; d < s.depth; ++d) out[d] *= s.scale / pair.score_factor;
  }
}

// refs: gradients of the keys and values; the rest as EightBitPair says. A unit is a key of a head of keys.
void RunOfKeys(const Launch& launch, Range range, const Launch::KernelMemory& memory) {
  const EightBitPair pair(launch, memory);
  const EightBitShape& s = pair.shape();
  const int64_t group = s.heads / s.key_heads;
  for (int64_t key = range.begin; key < range.end; ++key) {
    const int64_t key_head = key / s.keys % s.key_heads, b = key / s.keys / s.key_heads;
    float* const of_key = DataOf<float>(launch, 0, memory) + key * s.depth;
    float* const of_value = DataOf<float>(launch, 1, memory) + key * s.value_depth;
    std::fill_n(of_key, s.depth, 0.0f);
    std::fill_n(of_value, s.value_depth, 0.0f);
    const int64_t first = (b * s.heads + key_head * group) * s.queries;
    for (int64_t row = first; row < first + group * s.queries; ++row) {
      float weight, gradient;
      pair.Find(row, key, weight, gradient);
      AddScaled(of_key, gradient, pair.Query(row), s.depth);
      AddScaled(of_value, weight, pair.Dy(row), s.value_depth);
    }
    for (int64_t d = 0; d < s.depth; ++d) of_key[d] *= s.scale / pair.score_factor;
    for (int64_t d = 0; d < s.value_depth; ++d) of_value[d] /= pair.weight_factor;
  }
}

// The first of the numbers that a row has.
Dense FirstOfRows(OpCall& call, const Operand& operand) {
  TensorRef first = call.RefOf(operand);
  first.sizes[3] = 1;
  return DenseInput(call, operand, first, DType::kFloat);
}

Status LowerEightBitGradient(OpCall& call) {
  const auto shape = std::make_shared<EightBitShape>(EightBitShapeOf(call));
  const Operand& attention = call.Get("attentionIn");
  const Dense query = WidenedTokens(call, call.Get("query"), "dScaleQ");
  const Dense key = WidenedTokens(call, call.Get("keyIn"), "dScaleK");
  const Dense value = WidenedTokens(call, call.Get("value"), "dScaleV");
  const Dense dy = WidenedTokens(call, call.Get("dy"), "dScaleDy");
  const Dense kept = DenseInput(call, attention, HeadsOf(call, attention), DType::kFloat);
  const Dense maxima = FirstOfRows(call, call.Get("softmaxMax"));
  const Dense sums = FirstOfRows(call, call.Get("softmaxSum"));
  const int64_t rows = shape->batch * shape->heads * shape->queries;
  const Dense means = DenseTemporary(call, DType::kFloat, {&rows, 1});
  const Dense of_query = HeadsTemporary(call, call.Get("dqOut"));
  const Dense of_key = HeadsTemporary(call, call.Get("dkOut"));
  const Dense of_value = HeadsTemporary(call, call.Get("dvOut"));

  Launch& mean = call.AddLaunch(RunMeans);
  means.Write(call, mean);
  dy.Read(call, mean);
  kept.Read(call, mean);
  mean.ints.push_back(shape->value_depth);
  mean.units = rows;
  mean.grain = GrainOf(shape->value_depth);
  const auto read = [&](Launch& launch) {
    for (const Dense* input : {&query, &key, &value, &dy, &maxima, &sums, &means}) input->Read(call, launch);
    for (const char* name : {"pScale", "dsScale"}) call.ReadOptional(launch, call.Find(name));
    launch.state = shape;
  };
  const int64_t pair_cost = 2 * (shape->depth + shape->value_depth) + 64;
  Launch& queries = call.AddLaunch(RunOfQueries);
  of_query.Write(call, queries);
  call.WriteOptional(queries, nullptr);
  read(queries);
  queries.units = rows;
  queries.grain = GrainOf(shape->keys * pair_cost);
  Launch& keys = call.AddLaunch(RunOfKeys);
  of_key.Write(call, keys);
  of_value.Write(call, keys);
  read(keys);
  keys.units = shape->batch * shape->key_heads * shape->keys;
  keys.grain = GrainOf(shape->queries * pair_cost);
  StoreHeads(call, of_query, call.Get("dqOut"));
  StoreHeads(call, of_key, call.Get("dkOut"));
  StoreHeads(call, of_value, call.Get("dvOut"));
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/eight_bit_attention.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
