// SPDX-License-Identifier: Apache-2.0
//
// Which keys are worth attention, and the training of what tells it.
#include "kernels/indexer.h"

#include "kernels/copy.h"
#include "ops/computations.h"
#include "ops/families/token_layout.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::IndexerSetup;
using kernels::IndexerTarget;
using kernels::TensorRef;

// Places in Launch::refs. The backward pass writes those behind kIndexLengths.
enum IndexPlace : size_t {
  kIndexChoice,
  kIndexValues,
  kIndexMaximum,
  kIndexSum,
  kIndexQuery,
  kIndexKey,
  kIndexWeight,
  kIndexQueryFactor,
  kIndexKeyFactor,
  kIndexLengths,
  kIndexPlaces = kIndexLengths + 3,
  kGradScore = kIndexPlaces,
  kGradQuery,
  kGradKey,
  kGradWeight,
  kGradLoss,
  kTargetQuery,
  kTargetQueryRope,
  kTargetKey,
  kTargetKeyRope,
  kTargetMaximum,
  kTargetSum,
};

/// Computation::code.
enum IndexTask : uint8_t {
  kTaskChoose,
  kTaskChooseQuantized,
  kTaskSums,
  kTaskGradient,
  kTaskSparseLoss,
  kTaskDenseLoss
};
IndexTask IndexTaskOf(const OpCall& call) { return static_cast<IndexTask>(call.op.computation.code); }

struct IndexState {
  IndexerSetup setup;
  IndexerTarget target;
  std::vector<int64_t> query_numbers, key_numbers;
};

kernels::IndexerOperands IndexOperandsOf(const Launch& launch) {
  const auto& state = launch.State<IndexState>();
  const Refs& refs = launch.refs;
  return {.lengths = LengthsOf(launch, kIndexLengths, state.query_numbers, state.key_numbers),
          .query = refs[kIndexQuery],
          .key = refs[kIndexKey],
          .weight = refs[kIndexWeight],
          .query_factor = refs[kIndexQueryFactor],
          .key_factor = refs[kIndexKeyFactor],
          .choice = refs[kIndexChoice],
          .values = refs[kIndexValues],
          .maximum = refs[kIndexMaximum],
          .sum = refs[kIndexSum]};
}

void RunChooseKeys(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ChooseKeys(launch.State<IndexState>().setup, IndexOperandsOf(launch), range, memory.scratch);
}

void RunIndexerSums(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::IndexerSums(launch.State<IndexState>().setup, IndexOperandsOf(launch), range, memory.scratch);
}

void RunIndexerBackward(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& state = launch.State<IndexState>();
  const Refs& refs = launch.refs;
  kernels::IndexerBackward(state.setup, IndexOperandsOf(launch), state.target,
                           {.query = refs[kTargetQuery],
                            .query_rope = refs[kTargetQueryRope],
                            .key = refs[kTargetKey],
                            .key_rope = refs[kTargetKeyRope],
                            .maximum = refs[kTargetMaximum],
                            .sum = refs[kTargetSum]},
                           {.score = refs[kGradScore],
                            .query = refs[kGradQuery],
                            .key = launch.Ref(kGradKey, memory),
                            .weight = refs[kGradWeight],
                            .loss = launch.Ref(kGradLoss, memory)},
                           range, memory.scratch);
}

// refs: out, parts [sequence, key head].
void RunIndexerLoss(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  const TensorRef parts = launch.Ref(1, memory);
  double loss = 0;
  for (int64_t i = 0; i < kernels::ElementCount(parts); ++i) loss += static_cast<const float*>(parts.data)[i];
  *static_cast<float*>(launch.refs[0].data) = static_cast<float>(loss);
}

void RunIndexFill(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Fill(launch.Ref(0, memory), launch.scalars[0], range);
}

const Operand* IndexGiven(const OpCall& call, std::string_view name) {
  const Operand* operand = call.Has(name) ? call.Find(name) : nullptr;
  return operand == nullptr || operand->tensor->count == 0 ? nullptr : operand;
}

struct IndexPart {
  const Operand* operand = nullptr;
  TensorRef view;
};

struct IndexCall {
  Tokens tokens;
  std::shared_ptr<IndexState> state = std::make_shared<IndexState>();
  IndexPart parts[kTargetSum + 1];

  IndexerSetup& setup() { return state->setup; }
  void Set(IndexPlace place, const Operand* operand, const TensorRef& view) { parts[place] = {operand, view}; }
};

Status DescribeIndexer(const OpCall& call, IndexCall& c) {
  const bool is_loss = IndexTaskOf(call) >= kTaskSparseLoss;
  const bool is_trained = IndexTaskOf(call) >= kTaskSums;
  const Operand& query = call.Get(is_loss || IndexTaskOf(call) == kTaskSums ? "queryIndex" : "query");
  const Operand& key = call.Get(is_loss || IndexTaskOf(call) == kTaskSums ? "keyIndex" : "key");
  const TokenNames names = {"actualSeqLengthsQueryOptional", "actualSeqLengthsKeyOptional",
                            is_trained ? std::string_view() : std::string_view("blockTableOptional")};
  REPRISE_ASSIGN_OR_RETURN(
      c.tokens, ReadTokens(call, names, query, key, call.Text(is_trained ? "layoutOptional" : "layoutQueryOptional"),
                           call.Text(is_trained ? "layoutOptional" : "layoutKeyOptional")));
  REPRISE_ASSIGN_OR_RETURN(c.tokens.layout.causal, CausalOf(call));
  REPRISE_RETURN_IF_ERROR(CheckNoBand(call));
  IndexerSetup& setup = c.setup();
  setup.layout = c.tokens.layout;
  setup.heads = c.tokens.query.heads();
  setup.kv_heads = c.tokens.key.heads();
  setup.depth = c.tokens.query.depth();
  c.state->query_numbers = c.tokens.query_numbers;
  c.state->key_numbers = c.tokens.key_numbers;
  if (c.tokens.key.depth() != setup.depth) {
    return call.InvalidOperand(
        key, fmt::format("has shape {}: heads of {} elements, those of {} have {}", ShapeText(key.sizes()),
                         c.tokens.key.depth(), call.NameOf(query), setup.depth));
  }
  c.Set(kIndexQuery, &query, c.tokens.query.ref);
  c.Set(kIndexKey, &key, c.tokens.key.ref);
  const Operand& weights = call.Get("weights");
  REPRISE_ASSIGN_OR_RETURN(const TensorRef weight, c.tokens.NumbersOfQuery(call, weights));
  c.Set(kIndexWeight, &weights, weight);
  if (setup.layout.capacity() > INT32_MAX) {
    return call.InvalidOperand(key, fmt::format("has shape {}: places of keys are int32", ShapeText(key.sizes())));
  }
  return {};
}

void ReadIndexParts(const OpCall& call, Launch& launch, const IndexCall& c, bool is_backward) {
  for (size_t i = 0; i < kIndexLengths; ++i) {
    const IndexPart& part = c.parts[i];
    attention::AddOptional(call, launch, part.operand, part.view, i < kIndexQuery && !is_backward);
  }
  ReadLengths(call, launch, c.tokens);
  launch.state = c.state;
}

int64_t IndexWorkOfRow(const IndexerSetup& setup) {
  return std::max<int64_t>(1, setup.layout.capacity() * (setup.heads / setup.kv_heads) * setup.depth);
}

void FinishIndexer(OpCall& call, const IndexCall& c, Launch::Kernel kernel) {
  Launch& launch = call.AddLaunch(kernel);
  ReadIndexParts(call, launch, c, false);
  const IndexerSetup& setup = c.state->setup;
  launch.units = setup.items();
  launch.grain = GrainOfProduct(IndexWorkOfRow(setup));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::IndexerScratchBytes(setup)));
}

// ---- Choice ----

Status LowerIndexer(OpCall& call) {
  IndexCall c;
  REPRISE_RETURN_IF_ERROR(DescribeIndexer(call, c));
  IndexerSetup& setup = c.setup();
  if (IndexTaskOf(call) == kTaskChooseQuantized) {
    for (std::string_view name : {"queryQuantMode", "keyQuantMode"}) {
      if (call.Int(name) != 0) {
        return call.Invalid(fmt::format("{} is {}, expected 0", name, call.Int(name)),
                            "a factor for each token and head");
      }
    }
    const Operand& query_factor = call.Get("queryDequantScale");
    REPRISE_ASSIGN_OR_RETURN(const TensorRef of_query, c.tokens.NumbersOfQuery(call, query_factor));
    c.Set(kIndexQueryFactor, &query_factor, of_query);
    const Operand& key_factor = call.Get("keyDequantScale");
    REPRISE_ASSIGN_OR_RETURN(const TensorRef of_key, c.tokens.NumbersOfKey(call, key_factor));
    c.Set(kIndexKeyFactor, &key_factor, of_key);
  }
  setup.count = call.Int("sparseCount");
  if (setup.count < 1) return call.Invalid(fmt::format("sparseCount is {}, expected at least 1", setup.count));
  const Operand& choice = call.Get("sparseIndicesOut");
  const auto check = [&](const Operand& operand, TensorRef& view) -> Status {
    REPRISE_ASSIGN_OR_RETURN(view, c.tokens.ViewOfQuery(call, operand, setup.kv_heads));
    if (view.sizes[3] == setup.count) return {};
    return call.InvalidOperand(operand, fmt::format("has shape {}, expected {} entries for each query",
                                                    ShapeText(operand.sizes()), setup.count));
  };
  TensorRef view;
  REPRISE_RETURN_IF_ERROR(check(choice, view));
  c.Set(kIndexChoice, &choice, view);
  if (call.Has("returnValues") && call.Bool("returnValues")) {
    const Operand* values = call.Find("sparseValuesOut");
    if (values == nullptr) {
      return Error(kOperatorArgumentNull, fmt::format("{}: sparseValuesOut is null", call.op.name))
          .Hint("pass an aclTensor for it, or false for returnValues");
    }
    REPRISE_RETURN_IF_ERROR(check(*values, view));
    c.Set(kIndexValues, values, view);
  }
  if (choice.tensor->count != 0) FinishIndexer(call, c, RunChooseKeys);
  return {};
}

Status IndexerTypes(OpCall& call) {
  const bool is_quantized = IndexTaskOf(call) == kTaskChooseQuantized;
  const bool is_loss = IndexTaskOf(call) >= kTaskSparseLoss || IndexTaskOf(call) == kTaskSums;
  const Operand& query = call.Get(is_loss ? "queryIndex" : "query");
  const Operand& key = call.Get(is_loss ? "keyIndex" : "key");
  call.compute = is_quantized ? DType::kFloat : query.dtype;
  const DType wanted = is_quantized ? DType::kInt8 : query.dtype;
  for (const Operand* operand : {&query, &key}) {
    if (operand->dtype == wanted) continue;
    return call.InvalidOperand(
        *operand, fmt::format("has {}, expected {}", kernels::Name(operand->dtype), kernels::Name(wanted)));
  }
  return {};
}

// Numbers [batch, key head, token], packed [key head, token].
Status ReadIndexSums(const OpCall& call, IndexCall& c, IndexPlace place, std::string_view name) {
  const Operand& operand = call.Get(name);
  const bool is_packed = c.tokens.layout.queries_are_packed;
  REPRISE_ASSIGN_OR_RETURN(attention::HeadView view,
                           attention::ViewAs(call, operand, is_packed ? "NT" : "BNS", c.setup().kv_heads, 0));
  view.ref.sizes[3] = 1;
  if (view.batch() != c.tokens.query.batch() || view.tokens() != c.tokens.query.tokens()) {
    return call.InvalidOperand(operand, fmt::format("has shape {}, expected a number for each key head and token",
                                                    ShapeText(operand.sizes())));
  }
  c.Set(place, &operand, view.ref);
  return {};
}

Status LowerIndexerSums(OpCall& call) {
  IndexCall c;
  REPRISE_RETURN_IF_ERROR(DescribeIndexer(call, c));
  REPRISE_RETURN_IF_ERROR(ReadIndexSums(call, c, kIndexMaximum, "softmaxMaxOut"));
  REPRISE_RETURN_IF_ERROR(ReadIndexSums(call, c, kIndexSum, "softmaxSumOut"));
  if (c.parts[kIndexMaximum].operand->tensor->count != 0) FinishIndexer(call, c, RunIndexerSums);
  return {};
}

// ---- Gradients ----

// Maxima or sums of attention: [batch, key head, token, heads that share it] with one key head.
Status ReadTargetStatistic(const OpCall& call, IndexCall& c, IndexPlace place, std::string_view name, int64_t heads) {
  const Operand& operand = call.Get(name);
  const bool is_packed = c.tokens.layout.queries_are_packed;
  TensorRef ref = call.RefOf(operand);
  const int first = is_packed ? 0 : 1;
  const bool fits = ref.rank == first + 3 && (is_packed || ref.sizes[0] == c.tokens.query.batch()) &&
                    ref.sizes[first] == 1 && ref.sizes[first + 1] == c.tokens.query.tokens() &&
                    ref.sizes[first + 2] == heads;
  if (!fits) {
    return call.InvalidOperand(operand,
                               fmt::format("has shape {}, expected {}[1, {}, {}]", ShapeText(operand.sizes()),
                                           is_packed ? "" : "a batch of ", c.tokens.query.tokens(), heads),
                               "attention to one head of keys is supported");
  }
  TensorRef view = ref;
  view.rank = 4;
  view.sizes[0] = is_packed ? 1 : ref.sizes[0];
  view.strides[0] = is_packed ? 0 : ref.strides[0];
  view.sizes[1] = heads;
  view.strides[1] = ref.strides[first + 2];
  view.sizes[2] = ref.sizes[first + 1];
  view.strides[2] = ref.strides[first + 1];
  view.sizes[3] = 1;
  view.strides[3] = 0;
  c.Set(place, &operand, view);
  return {};
}

// What attention weighs the keys with.
Status ReadTarget(const OpCall& call, IndexCall& c) {
  const Operand& query = call.Get("query");
  const Operand& key = call.Get("key");
  IndexerTarget& target = c.state->target;
  REPRISE_ASSIGN_OR_RETURN(const TensorRef q, c.tokens.ViewOfQuery(call, query, 0));
  REPRISE_ASSIGN_OR_RETURN(const TensorRef k, c.tokens.ViewOfKey(call, key, 0));
  c.Set(kTargetQuery, &query, q);
  c.Set(kTargetKey, &key, k);
  target.heads = q.sizes[1];
  target.kv_heads = k.sizes[1];
  target.depth = q.sizes[3];
  target.scale = static_cast<float>(call.Real("scaleValue"));
  if (target.kv_heads != 1 || k.sizes[3] != target.depth || c.setup().kv_heads != 1) {
    return call.InvalidOperand(
        key, fmt::format("has shape {}, expected one head of {} elements", ShapeText(key.sizes()), target.depth));
  }
  const Operand* query_rope = IndexGiven(call, "queryRopeOptional");
  const Operand* key_rope = IndexGiven(call, "keyRopeOptional");
  if ((query_rope == nullptr) != (key_rope == nullptr)) {
    return call.Invalid("one of queryRopeOptional and keyRopeOptional is missing", "pass both or none");
  }
  if (query_rope != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(const TensorRef qr, c.tokens.ViewOfQuery(call, *query_rope, target.heads));
    REPRISE_ASSIGN_OR_RETURN(const TensorRef kr, c.tokens.ViewOfKey(call, *key_rope, 1));
    if (qr.sizes[3] != kr.sizes[3]) {
      return call.InvalidOperand(*key_rope, fmt::format("has shape {}, expected heads of {} elements",
                                                        ShapeText(key_rope->sizes()), qr.sizes[3]));
    }
    c.Set(kTargetQueryRope, query_rope, qr);
    c.Set(kTargetKeyRope, key_rope, kr);
    target.rope_depth = qr.sizes[3];
    target.depth += target.rope_depth;
  }
  REPRISE_RETURN_IF_ERROR(ReadTargetStatistic(call, c, kTargetMaximum, "softmaxMax", target.heads));
  return ReadTargetStatistic(call, c, kTargetSum, "softmaxSum", target.heads);
}

void FillIndexGradient(OpCall& call, const TensorRef& ref, const Operand* operand) {
  Launch& launch = call.AddLaunch(RunIndexFill);
  operand != nullptr ? call.Write(launch, *operand) : call.WriteTemporary(launch, ref);
  launch.scalars.push_back(kernels::Scalar::Of(0.0f));
  launch.units = kernels::ElementCount(ref);
  launch.grain = GrainOf(1);
}

Status ReadIndexChoice(OpCall& call, IndexCall& c) {
  const Operand& choice = call.Get("sparseIndices");
  REPRISE_ASSIGN_OR_RETURN(const TensorRef view, c.tokens.ViewOfQuery(call, choice, c.setup().kv_heads));
  c.Set(kIndexChoice, &choice, view);
  c.setup().count = view.sizes[3];
  if (!call.Has("dy")) return {};
  const Operand& dy = call.Get("dy");
  REPRISE_RETURN_IF_ERROR(call.CheckShape(dy, choice.sizes(), [] { return "the shape of sparseIndices,"; }));
  REPRISE_ASSIGN_OR_RETURN(const TensorRef given, c.tokens.ViewOfQuery(call, dy, c.setup().kv_heads));
  c.Set(kGradScore, &dy, given);
  return {};
}

struct IndexGradientNames {
  std::string_view query, key, weights;
};

void AddIndexerBackward(OpCall& call, const IndexCall& c, const TensorRef& key_sums, const TensorRef& losses,
                        bool has_loss) {
  Launch& launch = call.AddLaunch(RunIndexerBackward);
  ReadIndexParts(call, launch, c, true);
  const auto add = [&](size_t place, bool is_write) {
    attention::AddOptional(call, launch, c.parts[place].operand, c.parts[place].view, is_write);
  };
  add(kGradScore, false);
  add(kGradQuery, true);
  call.WriteTemporary(launch, key_sums);
  add(kGradWeight, true);
  if (has_loss) {
    call.WriteTemporary(launch, losses);
  } else {
    call.ReadOptional(launch, nullptr);
  }
  for (size_t place = kTargetQuery; place <= kTargetSum; ++place) add(place, false);
  const IndexerSetup& setup = c.state->setup;
  launch.units = setup.layout.sequences * setup.kv_heads;
  launch.grain = 1;
  call.AddScratch(launch, static_cast<uint64_t>(kernels::IndexerBackwardScratchBytes(setup, c.state->target)));
}

Status LowerIndexerBackward(OpCall& call) {
  IndexCall c;
  REPRISE_RETURN_IF_ERROR(DescribeIndexer(call, c));
  const IndexTask task = IndexTaskOf(call);
  const bool has_loss = task >= kTaskSparseLoss;
  if (task != kTaskDenseLoss) REPRISE_RETURN_IF_ERROR(ReadIndexChoice(call, c));
  if (const Operand* sinks = IndexGiven(call, "sinksOptional")) {
    return call.InvalidOperand(*sinks, "is given, but what a sink makes of the wanted weights is not published",
                               "pass null, and statistics without a sink");
  }
  if (has_loss) REPRISE_RETURN_IF_ERROR(ReadTarget(call, c));
  if (task == kTaskDenseLoss) {
    REPRISE_RETURN_IF_ERROR(ReadIndexSums(call, c, kIndexMaximum, "softmaxMaxIndex"));
    REPRISE_RETURN_IF_ERROR(ReadIndexSums(call, c, kIndexSum, "softmaxSumIndex"));
  }
  const IndexGradientNames names = has_loss ? IndexGradientNames{"dQueryIndexOut", "dKeyIndexOut", "dWeightsOut"}
                                            : IndexGradientNames{"dQueryOut", "dKeyOut", "dWeightsOut"};
  const std::pair<std::string_view, IndexPlace> outputs[] = {
      {names.query, kIndexQuery}, {names.key, kIndexKey}, {names.weights, kIndexWeight}};
  for (const auto& [name, like] : outputs) {
    const Operand& model = *c.parts[like].operand;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), model.sizes(),
                                            [&] { return fmt::format("the shape of {},", call.NameOf(model)); }));
  }
  const Operand& dq = call.Get(names.query);
  const Operand& dk = call.Get(names.key);
  const Operand& dw = call.Get(names.weights);
  const IndexerSetup& setup = c.setup();
  REPRISE_ASSIGN_OR_RETURN(const TensorRef dq_view, c.tokens.ViewOfQuery(call, dq, setup.heads));
  REPRISE_ASSIGN_OR_RETURN(const TensorRef dk_view, c.tokens.ViewOfKey(call, dk, setup.kv_heads));
  REPRISE_ASSIGN_OR_RETURN(const TensorRef dw_view, c.tokens.NumbersOfQuery(call, dw));
  c.Set(kGradQuery, &dq, dq_view);
  c.Set(kGradWeight, &dw, dw_view);
  FillIndexGradient(call, dq_view, &dq);
  FillIndexGradient(call, dw_view, &dw);
  const int64_t key_sizes[] = {c.tokens.key.batch(), setup.kv_heads, c.tokens.key.tokens(), setup.depth};
  const TensorRef key_sums = call.Temporary(DType::kFloat, key_sizes);
  FillIndexGradient(call, key_sums, nullptr);
  const int64_t loss_sizes[] = {setup.layout.sequences, setup.kv_heads};
  const TensorRef losses = has_loss ? call.Temporary(DType::kFloat, loss_sizes) : TensorRef();
  AddIndexerBackward(call, c, key_sums, losses, has_loss);
  Launch& copy = call.AddLaunch(RunCopy);
  call.Write(copy, dk, dk_view);
  call.ReadTemporary(copy, key_sums);
  copy.units = dk.tensor->count;
  copy.grain = GrainOf(1);
  if (!has_loss) return {};
  const Operand& loss = call.Get("lossOut");
  const int64_t one[] = {1};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(loss, one, [] { return "the shape"; }));
  Launch& sum = call.AddLaunch(RunIndexerLoss);
  call.Write(sum, loss);
  call.ReadTemporary(sum, losses);
  sum.units = 1;
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/indexer.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
