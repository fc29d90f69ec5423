// SPDX-License-Identifier: Apache-2.0
//
// Attention to chosen keys.
#include "kernels/chosen_attention.h"

#include "kernels/copy.h"
#include "ops/computations.h"
#include "ops/families/token_layout.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using attention::ViewAs;
using kernels::ChosenSetup;
using kernels::DType;
using kernels::TensorRef;

// Places in Launch::refs; the backward pass has those of gradients before kChosenQuery.
enum ChosenPlace : size_t {
  kChosenOut,
  kChosenMaximum,
  kChosenSum,
  kChosenLogSum,
  kChosenQuery,
  kChosenQueryRope,
  kChosenKey,
  kChosenKeyRope,
  kChosenValue,
  kChosenChoice,
  kChosenTable,
  kChosenMask,
  kChosenSink,
  kChosenLengths,
  kChosenPlaces = kChosenLengths + 3,
};

struct ChosenState {
  ChosenSetup setup;
  std::vector<int64_t> query_numbers, key_numbers;
};

kernels::ChosenOperands ChosenOperandsOf(const Launch& launch, const Launch::KernelMemory& memory) {
  const auto& state = launch.State<ChosenState>();
  const Refs& refs = launch.refs;
  return {.lengths = LengthsOf(launch, kChosenLengths, state.query_numbers, state.key_numbers),
          .query = refs[kChosenQuery],
          .query_rope = refs[kChosenQueryRope],
          .key = refs[kChosenKey],
          .key_rope = refs[kChosenKeyRope],
          .value = refs[kChosenValue],
          .choice = refs[kChosenChoice],
          .table = refs[kChosenTable],
          .mask = refs[kChosenMask],
          .sink = refs[kChosenSink],
          .out = refs[kChosenOut],
          .maximum = launch.HasOperand(kChosenMaximum) ? launch.Ref(kChosenMaximum, memory) : TensorRef(),
          .sum = launch.HasOperand(kChosenSum) ? launch.Ref(kChosenSum, memory) : TensorRef(),
          .log_sum = refs[kChosenLogSum]};
}

void RunChosen(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::AttendChosen(launch.State<ChosenState>().setup, ChosenOperandsOf(launch, memory), range, memory.scratch);
}

// Behind kChosenPlaces: gradient, of query, of its turned part, of keys, of values.
void RunChosenBackward(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::AttendChosenBackward(launch.State<ChosenState>().setup, ChosenOperandsOf(launch, memory),
                                {.gradient = launch.refs[kChosenPlaces],
                                 .query = launch.refs[kChosenPlaces + 1],
                                 .query_rope = launch.refs[kChosenPlaces + 2],
                                 .key = launch.Ref(kChosenPlaces + 3, memory),
                                 .value = launch.Ref(kChosenPlaces + 4, memory)},
                                range, memory.scratch);
}

void RunChosenFill(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Fill(launch.Ref(0, memory), launch.scalars[0], range);
}

struct ChosenPart {
  const Operand* operand = nullptr;
  TensorRef view;
};

// A call, by the places of its operands.
struct ChosenCall {
  Tokens tokens;
  std::shared_ptr<ChosenState> state = std::make_shared<ChosenState>();
  ChosenPart parts[kChosenLengths];

  ChosenSetup& setup() { return state->setup; }
  void Set(ChosenPlace place, const Operand* operand, const TensorRef& view) { parts[place] = {operand, view}; }
};

// An optional operand that is there and not empty.
const Operand* FindGiven(const OpCall& call, std::string_view name) {
  if (!call.Has(name)) return nullptr;
  const Operand* operand = call.Find(name);
  return operand == nullptr || operand->tensor->count == 0 ? nullptr : operand;
}

// ---- Parts that several operators have ----

Status ReadChosenKeys(const OpCall& call, ChosenCall& c) {
  ChosenSetup& setup = c.setup();
  const Operand& query = call.Get("query");
  const Operand& key = call.Get("key");
  setup.layout = c.tokens.layout;
  c.state->query_numbers = c.tokens.query_numbers;
  c.state->key_numbers = c.tokens.key_numbers;
  setup.heads = c.tokens.query.heads();
  setup.kv_heads = c.tokens.key.heads();
  setup.group = setup.heads / setup.kv_heads;
  setup.depth = c.tokens.query.depth();
  if (c.tokens.key.depth() != setup.depth) {
    return call.InvalidOperand(key, fmt::format("has shape {}: heads of {} elements, those of query have {}",
                                                ShapeText(key.sizes()), c.tokens.key.depth(), setup.depth));
  }
  c.Set(kChosenQuery, &query, c.tokens.query.ref);
  c.Set(kChosenKey, &key, c.tokens.key.ref);
  setup.scale = static_cast<float>(call.Real("scaleValue"));
  setup.value_depth = setup.depth;
  const Operand* value = call.Find("value");
  if (value == nullptr) return {};  // the keys are the values
  REPRISE_ASSIGN_OR_RETURN(const TensorRef view, c.tokens.ViewOfKey(call, *value, setup.kv_heads));
  setup.value_depth = view.sizes[3];
  c.Set(kChosenValue, value, view);
  return {};
}

Status ReadChosenRope(const OpCall& call, ChosenCall& c) {
  const Operand* query = FindGiven(call, "queryRopeOptional");
  const Operand* key = FindGiven(call, "keyRopeOptional");
  if ((query == nullptr) != (key == nullptr)) {
    return call.Invalid("one of queryRopeOptional and keyRopeOptional is missing", "pass both or none");
  }
  if (query == nullptr) return {};
  ChosenSetup& setup = c.setup();
  REPRISE_ASSIGN_OR_RETURN(const TensorRef q, c.tokens.ViewOfQuery(call, *query, setup.heads));
  REPRISE_ASSIGN_OR_RETURN(const TensorRef k, c.tokens.ViewOfKey(call, *key, setup.kv_heads));
  if (q.sizes[3] != k.sizes[3]) {
    return call.InvalidOperand(*key,
                               fmt::format("has shape {}: heads of {} elements, those of queryRopeOptional have {}",
                                           ShapeText(key->sizes()), k.sizes[3], q.sizes[3]));
  }
  setup.rope_depth = q.sizes[3];
  setup.depth += setup.rope_depth;
  c.Set(kChosenQueryRope, query, q);
  c.Set(kChosenKeyRope, key, k);
  return {};
}

// [tokens of queries, key heads, entries].
Status ReadChoice(const OpCall& call, ChosenCall& c, std::string_view name, int64_t block) {
  if (block < 1) return call.Invalid(fmt::format("a block has {} keys, expected at least 1", block));
  const Operand& choice = call.Get(name);
  REPRISE_ASSIGN_OR_RETURN(const TensorRef view, c.tokens.ViewOfQuery(call, choice, c.setup().kv_heads));
  c.setup().block = block;
  c.Set(kChosenChoice, &choice, view);
  return {};
}

Status ReadChosenOut(const OpCall& call, ChosenCall& c, std::string_view name) {
  const Operand& out = call.Get(name);
  REPRISE_ASSIGN_OR_RETURN(const TensorRef view, c.tokens.ViewOfQuery(call, out, c.setup().heads));
  if (view.sizes[3] != c.setup().value_depth) {
    return call.InvalidOperand(out, fmt::format("has shape {}, expected heads of {} elements, as values have",
                                                ShapeText(out.sizes()), c.setup().value_depth));
  }
  c.Set(kChosenOut, &out, view);
  return {};
}

// Maxima or sums as [batch, key head, token, heads that share it], packed without a batch and with key heads in front.
Status ReadGroupStatistic(const OpCall& call, ChosenCall& c, ChosenPlace place, std::string_view name) {
  const Operand* operand = FindGiven(call, name);
  if (operand == nullptr) {
    return Error(kOperatorArgumentNull, fmt::format("{}: {} is null or empty", call.op.name, name))
        .Hint("pass a tensor for it, or leave out what asks for it");
  }
  const ChosenSetup& setup = c.setup();
  const Tokens& tokens = c.tokens;
  std::vector<int64_t> expected;
  if (!tokens.layout.queries_are_packed) expected.push_back(tokens.query.batch());
  for (int64_t size : {setup.kv_heads, tokens.query.tokens(), setup.heads / setup.kv_heads}) expected.push_back(size);
  if (!std::equal(expected.begin(), expected.end(), operand->sizes().begin(), operand->sizes().end())) {
    return call.InvalidOperand(
        *operand, fmt::format("has shape {}, expected {}", ShapeText(operand->sizes()), ShapeText(expected)));
  }
  if (setup.kv_heads != 1) {
    return call.InvalidOperand(*operand, fmt::format("has shape {}: statistics of {} key heads are not supported yet",
                                                     ShapeText(operand->sizes()), setup.kv_heads));
  }
  const TensorRef ref = call.RefOf(*operand);
  TensorRef view = ref;
  view.rank = 4;
  const int first = ref.rank - 3;
  view.sizes[0] = first == 1 ? ref.sizes[0] : 1;
  view.strides[0] = first == 1 ? ref.strides[0] : 0;
  view.sizes[1] = setup.heads;
  view.strides[1] = ref.strides[first + 2];
  view.sizes[2] = ref.sizes[first + 1];
  view.strides[2] = ref.strides[first + 1];
  view.sizes[3] = 1;
  view.strides[3] = 0;
  c.Set(place, operand, view);
  return {};
}

// Maxima or sums as [tokens, heads, copies].
Status ReadStatistic(const OpCall& call, ChosenCall& c, ChosenPlace place, std::string_view name) {
  const Operand& operand = call.Get(name);
  REPRISE_ASSIGN_OR_RETURN(const TensorRef view, c.tokens.ViewOfQuery(call, operand, c.setup().heads));
  if (view.sizes[3] != attention::kStatisticCopies) {
    return call.InvalidOperand(operand, fmt::format("has shape {}, expected {} copies of each number",
                                                    ShapeText(operand.sizes()), attention::kStatisticCopies));
  }
  c.Set(place, &operand, view);
  return {};
}

void ReadChosenParts(const OpCall& call, Launch& launch, const ChosenCall& c, bool is_backward) {
  for (size_t i = 0; i < kChosenLengths; ++i) {
    const ChosenPart& part = c.parts[i];
    attention::AddOptional(call, launch, part.operand, part.view, i < kChosenQuery && !is_backward);
  }
  ReadLengths(call, launch, c.tokens);
  launch.state = c.state;
}

int64_t WorkOfRow(const ChosenCall& c) {
  const ChosenSetup& setup = c.state->setup;
  const int64_t most = setup.layout.capacity();
  const TensorRef& choice = c.parts[kChosenChoice].view;
  const int64_t keys = c.parts[kChosenChoice].operand != nullptr ? std::min(most, choice.sizes[3] * setup.block) : most;
  return std::max<int64_t>(1, setup.group * keys * (setup.depth + setup.value_depth));
}

Status FinishChosen(OpCall& call, const ChosenCall& c) {
  const Operand& out = *c.parts[kChosenOut].operand;
  if (out.tensor->count == 0) return {};
  Launch& launch = call.AddLaunch(RunChosen);
  ReadChosenParts(call, launch, c, false);
  const ChosenSetup& setup = c.state->setup;
  launch.units = setup.items();
  launch.grain = GrainOfProduct(WorkOfRow(c));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::ChosenScratchBytes(setup)));
  return {};
}

// ---- Attention to keys of a list ----

Status DescribeSparse(const OpCall& call, ChosenCall& c) {
  const bool is_grad = call.Has("layoutOptional");
  const TokenNames names = {"actualSeqLengthsQueryOptional", "actualSeqLengthsKvOptional",
                            is_grad ? std::string_view() : std::string_view("blockTableOptional")};
  const std::string_view query_layout = call.Text(is_grad ? "layoutOptional" : "layoutQueryOptional");
  const std::string_view key_layout = call.Text(is_grad ? "layoutOptional" : "layoutKvOptional");
  REPRISE_ASSIGN_OR_RETURN(c.tokens,
                           ReadTokens(call, names, call.Get("query"), call.Get("key"), query_layout, key_layout));
  REPRISE_ASSIGN_OR_RETURN(c.tokens.layout.causal, CausalOf(call));
  REPRISE_RETURN_IF_ERROR(CheckNoBand(call));
  REPRISE_RETURN_IF_ERROR(ReadChosenKeys(call, c));
  REPRISE_RETURN_IF_ERROR(ReadChosenRope(call, c));
  return ReadChoice(call, c, "sparseIndices", call.Int("sparseBlockSize"));
}

Status LowerSparseAttention(OpCall& call) {
  ChosenCall c;
  REPRISE_RETURN_IF_ERROR(DescribeSparse(call, c));
  if (const int64_t mode = call.Int("attentionMode"); mode != 0 && mode != 2) {
    return call.Invalid(fmt::format("attentionMode is {}, expected 0 or 2", mode));
  }
  REPRISE_RETURN_IF_ERROR(ReadChosenOut(call, c, "attentionOut"));
  if (const Operand* sinks = FindGiven(call, "sinksOptional")) {
    const int64_t heads[] = {c.setup().heads};
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*sinks, heads, [] { return "one for each head,"; }));
    c.Set(kChosenSink, sinks, call.RefOf(*sinks));
  }
  if (call.Bool("returnSoftmaxLse")) {
    REPRISE_RETURN_IF_ERROR(ReadGroupStatistic(call, c, kChosenMaximum, "softmaxMaxOptional"));
    REPRISE_RETURN_IF_ERROR(ReadGroupStatistic(call, c, kChosenSum, "softmaxSumOptional"));
  }
  return FinishChosen(call, c);
}

// ---- Keys as bytes ----

Status LowerQuantizedSparseAttention(OpCall& call) {
  for (std::string_view name : {"keyDequantScaleOptional", "valueDequantScaleOptional"}) {
    const Operand* scale = FindGiven(call, name);
    if (scale != nullptr) return call.InvalidOperand(*scale, "is given, but factors lie beside the keys", "pass null");
  }
  const std::pair<std::string_view, int64_t> only[] = {
      {"keyQuantMode", 2}, {"valueQuantMode", 2}, {"attentionMode", 2}, {"quantScaleRepoMode", 1}};
  for (const auto& [name, value] : only) {
    if (call.Int(name) != value) {
      return call.Invalid(fmt::format("{} is {}, expected {}", name, call.Int(name), value),
                          "other ways to keep factors are not supported yet");
    }
  }
  ChosenCall c;
  const Operand& query = call.Get("query");
  const Operand& key = call.Get("key");
  const TokenNames names = {"actualSeqLengthsQueryOptional", "actualSeqLengthsKvOptional", "blockTableOptional"};
  REPRISE_ASSIGN_OR_RETURN(
      c.tokens, ReadTokens(call, names, query, key, call.Text("layoutQueryOptional"), call.Text("layoutKvOptional")));
  REPRISE_ASSIGN_OR_RETURN(c.tokens.layout.causal, CausalOf(call));
  REPRISE_RETURN_IF_ERROR(CheckNoBand(call));
  ChosenSetup& setup = c.setup();
  setup.layout = c.tokens.layout;
  setup.heads = c.tokens.query.heads();
  setup.kv_heads = c.tokens.key.heads();
  setup.group = setup.heads / setup.kv_heads;
  setup.depth = c.tokens.query.depth();
  setup.rope_depth = call.Int("ropeHeadDim");
  setup.tile = call.Int("tileSize");
  setup.scale = static_cast<float>(call.Real("scaleValue"));
  setup.value_depth = setup.depth - setup.rope_depth;
  if (setup.rope_depth < 0 || setup.value_depth < 1 || setup.tile < 1 || setup.value_depth % setup.tile != 0) {
    return call.Invalid(fmt::format("ropeHeadDim is {} and tileSize {} for queries of {} elements", setup.rope_depth,
                                    setup.tile, setup.depth),
                        "tiles must divide what is not turned");
  }
  const int64_t bytes = setup.value_depth + setup.rope_depth * kernels::ItemSize(query.dtype) +
                        setup.value_depth / setup.tile * static_cast<int64_t>(sizeof(float));
  if (c.tokens.key.depth() != bytes) {
    return call.InvalidOperand(
        key, fmt::format("has shape {}, expected lines of {} bytes", ShapeText(key.sizes()), bytes),
        "a line is the int8 numbers, the turned part in the type of query, and a float32 factor for each tile");
  }
  c.Set(kChosenQuery, &query, c.tokens.query.ref);
  c.Set(kChosenKey, &key, c.tokens.key.ref);
  REPRISE_RETURN_IF_ERROR(ReadChoice(call, c, "sparseIndices", call.Int("sparseBlockSize")));
  REPRISE_RETURN_IF_ERROR(ReadChosenOut(call, c, "attentionOut"));
  return FinishChosen(call, c);
}

Status QuantizedSparseTypes(OpCall& call) {
  call.compute = call.Get("query").dtype;
  for (std::string_view name : {"key", "value"}) {
    const Operand& operand = call.Get(name);
    if (operand.dtype == DType::kInt8) continue;
    return call.InvalidOperand(operand, fmt::format("has {}, expected int8", kernels::Name(operand.dtype)));
  }
  return call.CheckOutputsHold();
}

// ---- Blocks of keys for each query: native sparse attention ----

Status DescribeSelected(const OpCall& call, ChosenCall& c) {
  if (call.Text("inputLayout") != "TND") {
    return call.Invalid(fmt::format("inputLayout is '{}', expected TND", call.Text("inputLayout")));
  }
  REPRISE_ASSIGN_OR_RETURN(c.tokens, ReadTokens(call, {"actualSeqQLenOptional", "actualSeqKvLenOptional", ""},
                                                call.Get("query"), call.Get("key"), "TND", "TND"));
  REPRISE_ASSIGN_OR_RETURN(c.tokens.layout.causal, CausalOf(call));
  REPRISE_RETURN_IF_ERROR(ReadChosenKeys(call, c));
  if (call.Int("headNum") != c.setup().heads) {
    return call.Invalid(fmt::format("headNum is {}, but query has {} heads", call.Int("headNum"), c.setup().heads));
  }
  REPRISE_RETURN_IF_ERROR(ReadChoice(call, c, "topkIndices", call.Int("selectedBlockSize")));
  if (c.parts[kChosenChoice].view.sizes[3] != call.Int("selectedBlockCount")) {
    return call.Invalid(fmt::format("selectedBlockCount is {}, but topkIndices has {} entries for each query",
                                    call.Int("selectedBlockCount"), c.parts[kChosenChoice].view.sizes[3]));
  }
  const Operand* mask = FindGiven(call, "attenMaskOptional");
  if (mask == nullptr || call.Int("sparseMode") != 0) return {};
  return call.InvalidOperand(*mask, "is given with sparseMode 0, which is not supported yet",
                             "pass null, or sparseMode 2 with the compressed mask");
}

Status LowerSelectedAttention(OpCall& call) {
  ChosenCall c;
  REPRISE_RETURN_IF_ERROR(DescribeSelected(call, c));
  REPRISE_RETURN_IF_ERROR(ReadChosenOut(call, c, "attentionOut"));
  REPRISE_RETURN_IF_ERROR(ReadStatistic(call, c, kChosenMaximum, "softmaxMaxOut"));
  REPRISE_RETURN_IF_ERROR(ReadStatistic(call, c, kChosenSum, "softmaxSumOut"));
  return FinishChosen(call, c);
}

Status LowerSelectedInference(OpCall& call) {
  ChosenCall c;
  const int64_t heads = call.Int("numHeads");
  const int64_t key_heads = call.Int("numKeyValueHeads");
  if (heads < 1 || key_heads < 1) {
    return call.Invalid(fmt::format("numHeads is {} and numKeyValueHeads {}, expected at least 1", heads, key_heads));
  }
  const Operand& key = call.Get("key");
  const bool is_paged = FindGiven(call, "blockTableOptional") != nullptr;
  const std::string_view layout = call.Text("layoutOptional");
  REPRISE_ASSIGN_OR_RETURN(c.tokens,
                           ReadTokens(call, {"actualQSeqLenOptional", "actualKvSeqLenOptional", "blockTableOptional"},
                                      call.Get("query"), key, layout, is_paged ? "PA_BSND" : layout, heads, key_heads));
  MakeEnds(c.tokens);
  if (is_paged && call.Int("pageBlockSize") != c.tokens.key.tokens()) {
    return call.Invalid(fmt::format("pageBlockSize is {}, but the pages of key hold {} tokens",
                                    call.Int("pageBlockSize"), c.tokens.key.tokens()));
  }
  REPRISE_ASSIGN_OR_RETURN(c.tokens.layout.causal, CausalOf(call));
  REPRISE_RETURN_IF_ERROR(ReadChosenKeys(call, c));
  const Operand& choice = call.Get("topkIndices");
  REPRISE_ASSIGN_OR_RETURN(const attention::HeadView entries,
                           ViewAs(call, choice, c.tokens.layout.queries_are_packed ? "TND" : "BSND", key_heads, 0));
  if (entries.batch() != c.tokens.query.batch() || entries.tokens() != c.tokens.query.tokens() ||
      entries.depth() != call.Int("selectBlockCount") || call.Int("selectBlockSize") < 1) {
    return call.InvalidOperand(
        choice, fmt::format("has shape {}, expected {} entries of {} keys for each token of query",
                            ShapeText(choice.sizes()), call.Int("selectBlockCount"), call.Int("selectBlockSize")));
  }
  c.setup().block = call.Int("selectBlockSize");
  c.Set(kChosenChoice, &choice, entries.ref);
  REPRISE_RETURN_IF_ERROR(ReadChosenOut(call, c, "output"));
  return FinishChosen(call, c);
}

// ---- Compressed keys, and the blocks that they tell ----

struct CompressedState {
  ChosenState attention;
  kernels::BlockChoice choice;
};

// refs as RunChosen has them, then choice and hidden blocks.
void RunChooseBlocks(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& state = launch.State<CompressedState>();
  kernels::ChosenOperands forward;
  const Refs& refs = launch.refs;
  forward.lengths = LengthsOf(launch, kChosenLengths, state.attention.query_numbers, state.attention.key_numbers);
  forward.query = refs[kChosenQuery];
  forward.key = refs[kChosenKey];
  forward.value = refs[kChosenValue];
  forward.mask = refs[kChosenMask];
  forward.maximum = launch.Ref(kChosenMaximum, memory);
  forward.sum = launch.Ref(kChosenSum, memory);
  kernels::BlockChoice choice = state.choice;
  choice.choice = refs[kChosenPlaces];
  choice.hidden = refs[kChosenPlaces + 1];
  kernels::ChooseBlocks(state.attention.setup, forward, choice, range, memory.scratch);
}

// Bytes [queries, most].
Status ReadFlatMask(const OpCall& call, const Operand& mask, int64_t queries, int64_t most, TensorRef& view) {
  const TensorRef ref = call.RefOf(mask);
  if (ref.rank != 2 || ref.sizes[0] < queries || ref.sizes[1] < most) {
    return call.InvalidOperand(
        mask, fmt::format("has shape {}, expected at least [{}, {}]", ShapeText(mask.sizes()), queries, most));
  }
  view = ref;
  view.rank = 4;
  for (int d = 0; d < 2; ++d) {
    view.sizes[d] = 1;
    view.strides[d] = 0;
    view.sizes[2 + d] = ref.sizes[d];
    view.strides[2 + d] = ref.strides[d];
  }
  return {};
}

// The longest of sequences that lie end to end, or of lengths.
int64_t LongestOf(const std::vector<int64_t>& numbers, bool are_ends) {
  int64_t most = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    most = std::max(most, numbers[i] - (are_ends && i > 0 ? numbers[i - 1] : 0));
  }
  return most;
}

struct CompressedNames {
  std::string_view queries, keys, selected, mask, hidden, table, layout, stride, heads, out, choice;
};

Status ReadBlockChoice(const OpCall& call, const ChosenCall& c, const CompressedNames& names,
                       kernels::BlockChoice& choice) {
  choice.block = call.Int("compressBlockSize");
  choice.stride = call.Int(names.stride);
  choice.select = call.Int("selectBlockSize");
  choice.count = call.Int("selectBlockCount");
  if (choice.stride < 1 || choice.block < choice.stride || choice.select < choice.stride || choice.count < 1 ||
      choice.block % choice.stride != 0 || choice.select % choice.stride != 0) {
    return call.Invalid(fmt::format("compressBlockSize is {}, {} {}, selectBlockSize {} and selectBlockCount {}",
                                    choice.block, names.stride, choice.stride, choice.select, choice.count),
                        "both sizes are multiples of the stride, and the count is above 0");
  }
  const std::span<const int64_t> lengths = call.Ints(names.selected);
  const auto sequences = static_cast<size_t>(c.tokens.layout.sequences);
  if (lengths.size() != sequences) {
    return call.Invalid(fmt::format("{} has {} entries for {} sequences", names.selected, lengths.size(), sequences));
  }
  // Tokens of keys before they were compressed: ends where compressed keys have ends, too.
  const bool are_ends = c.tokens.layout.keys_are_packed;
  for (size_t i = 0; i < sequences; ++i) {
    const int64_t length = lengths[i] - (are_ends && i > 0 ? lengths[i - 1] : 0);
    if (length < 0 || length > INT32_MAX) {
      return call.Invalid(fmt::format("{} is {}", names.selected, ShapeText(lengths)), "lengths are not negative");
    }
    choice.blocks.push_back((length + choice.select - 1) / choice.select);
  }
  return {};
}

CompressedNames CompressedNamesOf(bool is_inference) {
  return is_inference ? CompressedNames{"actualQSeqLenOptional",
                                        "actualCmpKvSeqLenOptional",
                                        "actualSelKvSeqLenOptional",
                                        "attentionMaskOptional",
                                        "topKMaskOptional",
                                        "blockTableOptional",
                                        "layoutOptional",
                                        "compressBlockStride",
                                        "numHeads",
                                        "output",
                                        "topKOutput"}
                      : CompressedNames{"actualSeqQLenOptional",
                                        "actualCmpSeqKvLenOptional",
                                        "actualSelSeqKvLenOptional",
                                        "attenMaskOptional",
                                        "topkMaskOptional",
                                        "",
                                        "inputLayout",
                                        "compressStride",
                                        "headNum",
                                        "attentionOutOut",
                                        "topkIndicesOut"};
}

// Queries, keys, values and the mask.
Status DescribeCompressed(OpCall& call, ChosenCall& c, const CompressedNames& names, bool is_inference) {
  if (const std::string_view layout = call.Text(names.layout); layout != "TND" && !layout.empty()) {
    return call.Invalid(fmt::format("{} is '{}', expected TND", names.layout, layout));
  }
  if (const int64_t mode = call.Int("sparseMode"); mode != 0 && mode != 1) {
    return call.Invalid(fmt::format("sparseMode is {}, expected 0 or 1", mode), "the mask tells what is hidden");
  }
  const int64_t heads = call.Int(names.heads);
  const bool is_paged = !names.table.empty() && FindGiven(call, names.table) != nullptr;
  const int64_t key_heads = is_inference ? call.Int("numKeyValueHeads") : 0;
  REPRISE_ASSIGN_OR_RETURN(c.tokens, ReadTokens(call, {names.queries, names.keys, names.table}, call.Get("query"),
                                                call.Get("key"), "TND", is_paged ? "PA_BSND" : "TND", 0, key_heads));
  if (is_inference) MakeEnds(c.tokens);
  REPRISE_RETURN_IF_ERROR(ReadChosenKeys(call, c));
  ChosenSetup& setup = c.setup();
  if (heads != setup.heads) {
    return call.Invalid(fmt::format("{} is {}, but query has {} heads", names.heads, heads, setup.heads));
  }
  const int64_t queries = LongestOf(c.state->query_numbers, true);
  if (const Operand* mask = FindGiven(call, names.mask)) {
    TensorRef view;
    const int64_t keys = LongestOf(c.state->key_numbers, c.tokens.layout.keys_are_packed);
    REPRISE_RETURN_IF_ERROR(ReadFlatMask(call, *mask, queries, keys, view));
    c.Set(kChosenMask, mask, view);
  }
  return {};
}

// Attention, and then the choice. `statistics`: temporaries for what attention leaves, where there are no operands.
void AddCompressed(OpCall& call, const ChosenCall& c, std::shared_ptr<CompressedState> state, bool is_inference,
                   const TensorRef (&statistics)[2], const ChosenPart& choice, const ChosenPart& hidden) {
  const ChosenSetup& setup = c.state->setup;
  state->attention = *c.state;
  const auto add = [&](Launch& launch, bool is_first) {
    for (size_t i = 0; i < kChosenLengths; ++i) {
      const bool is_statistic = i == kChosenMaximum || i == kChosenSum;
      if (is_statistic && is_inference) {
        const TensorRef& temporary = statistics[i == kChosenMaximum ? 0 : 1];
        is_first ? call.WriteTemporary(launch, temporary) : call.ReadTemporary(launch, temporary);
      } else {
        attention::AddOptional(call, launch, c.parts[i].operand, c.parts[i].view, is_first && i < kChosenQuery);
      }
    }
    ReadLengths(call, launch, c.tokens);
    launch.grain = GrainOfProduct(WorkOfRow(c));
  };
  Launch& attend = call.AddLaunch(RunChosen);
  add(attend, true);
  attend.state = c.state;
  attend.units = setup.items();
  call.AddScratch(attend, static_cast<uint64_t>(kernels::ChosenScratchBytes(setup)));
  Launch& choose = call.AddLaunch(RunChooseBlocks);
  add(choose, false);
  call.Write(choose, *choice.operand, choice.view);
  attention::AddOptional(call, choose, hidden.operand, hidden.view, false);
  choose.units = setup.layout.rows() * setup.kv_heads;
  const int64_t bytes = kernels::BlockChoiceScratchBytes(setup, state->choice);
  choose.state = std::move(state);
  call.AddScratch(choose, static_cast<uint64_t>(bytes));
}

Status LowerCompressedAttention(OpCall& call) {
  const bool is_inference = call.Has("pageBlockSize");
  const CompressedNames names = CompressedNamesOf(is_inference);
  ChosenCall c;
  REPRISE_RETURN_IF_ERROR(DescribeCompressed(call, c, names, is_inference));
  auto state = std::make_shared<CompressedState>();
  REPRISE_RETURN_IF_ERROR(ReadBlockChoice(call, c, names, state->choice));
  const ChosenSetup& setup = c.setup();
  const Operand* hidden = FindGiven(call, names.hidden);
  TensorRef hidden_view;
  if (hidden != nullptr) {
    const auto most = state->choice.blocks.empty()
                          ? int64_t{0}
                          : *std::max_element(state->choice.blocks.begin(), state->choice.blocks.end());
    REPRISE_RETURN_IF_ERROR(ReadFlatMask(call, *hidden, LongestOf(c.state->query_numbers, true), most, hidden_view));
  }
  REPRISE_RETURN_IF_ERROR(ReadChosenOut(call, c, names.out));
  const Operand& choice = call.Get(names.choice);
  REPRISE_ASSIGN_OR_RETURN(const TensorRef choice_view, c.tokens.ViewOfQuery(call, choice, setup.kv_heads));
  if (choice_view.sizes[3] != state->choice.count) {
    return call.InvalidOperand(
        choice, fmt::format("has shape {}, expected {} entries", ShapeText(choice.sizes()), state->choice.count));
  }
  const int64_t sizes[] = {1, setup.heads, c.tokens.query.tokens(), 1};
  TensorRef statistics[2];
  for (int i = 0; i < 2; ++i) {
    if (is_inference) {
      statistics[i] = call.Temporary(DType::kFloat, sizes);
    } else {
      const ChosenPlace place = i == 0 ? kChosenMaximum : kChosenSum;
      REPRISE_RETURN_IF_ERROR(ReadStatistic(call, c, place, i == 0 ? "softmaxMaxOut" : "softmaxSumOut"));
    }
  }
  if (c.tokens.query.tokens() == 0) return {};
  AddCompressed(call, c, std::move(state), is_inference, statistics, {&choice, choice_view}, {hidden, hidden_view});
  return {};
}

// ---- Blocks of keys for blocks of queries ----

Status DescribeBlocks(const OpCall& call, ChosenCall& c) {
  const std::string_view layout = call.Text("qInputLayout");
  REPRISE_ASSIGN_OR_RETURN(
      c.tokens, ReadTokens(call, {"actualSeqLengthsOptional", "actualSeqLengthsKvOptional", ""}, call.Get("query"),
                           call.Get("key"), layout, call.Text("kvInputLayout")));
  MakeEnds(c.tokens);
  REPRISE_RETURN_IF_ERROR(CheckNoBand(call));
  REPRISE_RETURN_IF_ERROR(ReadChosenKeys(call, c));
  ChosenSetup& setup = c.setup();
  for (std::string_view name : {"attenMaskOptional", "blockTableOptional"}) {
    const Operand* operand = FindGiven(call, name);
    if (operand != nullptr) return call.InvalidOperand(*operand, "is not supported yet", "pass null");
  }
  if (call.Int("maskType") != 0) {
    return call.Invalid(fmt::format("maskType is {}, expected 0", call.Int("maskType")), "masks are not supported yet");
  }
  if (call.Int("numKeyValueHeads") != setup.kv_heads) {
    return call.Invalid(
        fmt::format("numKeyValueHeads is {}, but key has {} heads", call.Int("numKeyValueHeads"), setup.kv_heads));
  }
  const std::span<const int64_t> block = call.Ints("blockShapeOptional");
  if (!block.empty() && (block.size() != 2 || block[0] < 1 || block[1] < 1)) {
    return call.Invalid(fmt::format("blockShapeOptional is {}, expected two numbers above 0", ShapeText(block)));
  }
  setup.query_block = block.empty() ? 128 : block[0];
  setup.block = block.empty() ? 128 : block[1];
  setup.group = 1;  // heads of queries have blocks of their own
  const Operand* mask = FindGiven(call, "blockSparseMaskOptional");
  if (mask == nullptr) return {};
  const auto most_of = [](const std::vector<int64_t>& numbers, bool is_packed, int64_t all) {
    if (numbers.empty()) return all;
    int64_t most = is_packed ? numbers[0] : 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      most = std::max(most, is_packed ? (i == 0 ? numbers[0] : numbers[i] - numbers[i - 1]) : numbers[i]);
    }
    return std::min(most, all);
  };
  const kernels::TokenLayout& tokens = setup.layout;
  const int64_t rows = most_of(c.state->query_numbers, tokens.queries_are_packed, tokens.queries);
  const int64_t columns = most_of(c.state->key_numbers, tokens.keys_are_packed, tokens.keys);
  const auto count_of = [](int64_t most, int64_t size) { return (most + size - 1) / size; };
  const std::span<const int64_t> sizes = mask->sizes();
  const bool fits = sizes.size() == 4 && sizes[0] == tokens.sequences && sizes[1] == setup.heads &&
                    sizes[2] >= count_of(rows, setup.query_block) && sizes[3] >= count_of(columns, setup.block);
  if (!fits) {
    return call.InvalidOperand(
        *mask, fmt::format("has shape {}, expected [{}, {}, {}, {}]", ShapeText(sizes), tokens.sequences, setup.heads,
                           count_of(rows, setup.query_block), count_of(columns, setup.block)));
  }
  c.Set(kChosenTable, mask, call.RefOf(*mask));
  return {};
}

// [batch, heads, tokens, 1] or [tokens, heads, 1].
Status ReadBlockLogSum(const OpCall& call, ChosenCall& c, std::string_view name) {
  const Operand& operand = call.Get(name);
  REPRISE_ASSIGN_OR_RETURN(
      const attention::HeadView view,
      ViewAs(call, operand, c.tokens.layout.queries_are_packed ? "TND" : "BNSD", c.setup().heads, 0));
  if (view.batch() != c.tokens.query.batch() || view.tokens() != c.tokens.query.tokens() || view.depth() != 1) {
    return call.InvalidOperand(
        operand, fmt::format("has shape {}, expected one number for each head and token", ShapeText(operand.sizes())));
  }
  c.Set(kChosenLogSum, &operand, view.ref);
  return {};
}

Status LowerBlockAttention(OpCall& call) {
  ChosenCall c;
  REPRISE_RETURN_IF_ERROR(DescribeBlocks(call, c));
  REPRISE_RETURN_IF_ERROR(ReadChosenOut(call, c, "attentionOut"));
  if (const Operand* log_sum = FindGiven(call, "softmaxLseOptional"); call.Int("softmaxLseFlag") != 0) {
    if (log_sum == nullptr) {
      return Error(kOperatorArgumentNull, fmt::format("{}: softmaxLseOptional is null", call.op.name))
          .Hint("pass an aclTensor for it, or 0 for softmaxLseFlag");
    }
    REPRISE_RETURN_IF_ERROR(ReadBlockLogSum(call, c, "softmaxLseOptional"));
  }
  return FinishChosen(call, c);
}

// ---- Gradients ----

struct GradientNames {
  std::string_view result, gradient, query, key, value;
};

void FillWithZeros(OpCall& call, const TensorRef& ref, const Operand* operand) {
  Launch& launch = call.AddLaunch(RunChosenFill);
  operand != nullptr ? call.Write(launch, *operand) : call.WriteTemporary(launch, ref);
  launch.scalars.push_back(kernels::Scalar::Of(0.0f));
  launch.units = kernels::ElementCount(ref);
  launch.grain = GrainOf(1);
}

// out = elements [begin, begin + its size) of each line of sums.
Status StoreSums(OpCall& call, const ChosenCall& c, std::string_view name, const Operand& like, const TensorRef& sums,
                 int64_t begin) {
  const Operand& out = call.Get(name);
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(out, like.sizes(), [&] { return fmt::format("the shape of {},", call.NameOf(like)); }));
  REPRISE_ASSIGN_OR_RETURN(const TensorRef view, c.tokens.ViewOfKey(call, out, c.state->setup.kv_heads));
  TensorRef part = sums;
  part.sizes[3] = view.sizes[3];
  part.data =
      reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(sums.data) + static_cast<uintptr_t>(begin) * sizeof(float));
  Launch& copy = call.AddLaunch(RunCopy);
  call.Write(copy, out, view);
  call.ReadTemporary(copy, part);
  copy.units = out.tensor->count;
  copy.grain = GrainOf(1);
  return {};
}

Status FinishChosenBackward(OpCall& call, ChosenCall& c, const GradientNames& names) {
  const ChosenSetup& setup = c.setup();
  const Operand& query = *c.parts[kChosenQuery].operand;
  const Operand* query_rope = c.parts[kChosenQueryRope].operand;
  const Operand& gradient = call.Get(names.gradient);
  const Operand& dq = call.Get(names.query);
  REPRISE_RETURN_IF_ERROR(ReadChosenOut(call, c, names.result));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(dq, query.sizes(), [] { return "the shape of query,"; }));
  REPRISE_ASSIGN_OR_RETURN(const TensorRef gradient_view, c.tokens.ViewOfQuery(call, gradient, setup.heads));
  if (gradient_view.sizes[3] != setup.value_depth) {
    return call.InvalidOperand(gradient,
                               fmt::format("has shape {}, expected that of the result", ShapeText(gradient.sizes())));
  }
  REPRISE_ASSIGN_OR_RETURN(const TensorRef dq_view, c.tokens.ViewOfQuery(call, dq, setup.heads));
  const Operand* dq_rope = query_rope != nullptr ? &call.Get("dQueryRopeOut") : nullptr;
  TensorRef dq_rope_view;
  FillWithZeros(call, dq_view, &dq);
  if (dq_rope != nullptr) {
    REPRISE_RETURN_IF_ERROR(
        call.CheckShape(*dq_rope, query_rope->sizes(), [] { return "the shape of queryRopeOptional,"; }));
    REPRISE_ASSIGN_OR_RETURN(dq_rope_view, c.tokens.ViewOfQuery(call, *dq_rope, setup.heads));
    FillWithZeros(call, dq_rope_view, dq_rope);
  }
  const attention::HeadView& key = c.tokens.key;
  const Operand* value = c.parts[kChosenValue].operand;
  TensorRef sums[2];
  for (int i = 0; i < 2; ++i) {
    const int64_t sizes[] = {key.batch(), setup.kv_heads, key.tokens(), i == 0 ? setup.depth : setup.value_depth};
    sums[i] = i == 1 && value == nullptr ? sums[0] : call.Temporary(DType::kFloat, sizes);
    if (i == 0 || value != nullptr) FillWithZeros(call, sums[i], nullptr);
  }
  Launch& launch = call.AddLaunch(RunChosenBackward);
  ReadChosenParts(call, launch, c, true);
  call.Read(launch, gradient, gradient_view);
  call.Write(launch, dq, dq_view);
  attention::AddOptional(call, launch, dq_rope, dq_rope_view, true);
  for (const TensorRef& sum : sums) call.WriteTemporary(launch, sum);
  launch.units = setup.layout.sequences * setup.kv_heads;
  launch.grain = GrainOfProduct(2 * WorkOfRow(c) * std::max<int64_t>(1, setup.layout.queries));
  call.AddScratch(launch, static_cast<uint64_t>(kernels::ChosenScratchBytes(setup)));
  const Operand& key_operand = *c.parts[kChosenKey].operand;
  REPRISE_RETURN_IF_ERROR(StoreSums(call, c, names.key, key_operand, sums[0], 0));
  if (const Operand* rope = c.parts[kChosenKeyRope].operand) {
    REPRISE_RETURN_IF_ERROR(StoreSums(call, c, "dKeyRopeOut", *rope, sums[0], setup.depth - setup.rope_depth));
  }
  if (value == nullptr) return {};
  if (call.Find(names.value) == nullptr) {
    return Error(kOperatorArgumentNull, fmt::format("{}: {} is null", call.op.name, names.value))
        .Hint("pass an aclTensor for the gradient of value");
  }
  return StoreSums(call, c, names.value, *value, sums[1], 0);
}

Status LowerSparseAttentionBackward(OpCall& call) {
  ChosenCall c;
  REPRISE_RETURN_IF_ERROR(DescribeSparse(call, c));
  REPRISE_RETURN_IF_ERROR(ReadGroupStatistic(call, c, kChosenMaximum, "softmaxMax"));
  REPRISE_RETURN_IF_ERROR(ReadGroupStatistic(call, c, kChosenSum, "softmaxSum"));
  return FinishChosenBackward(call, c, {"out", "dOut", "dQueryOut", "dKeyOut", "dValueOut"});
}

Status LowerBlockAttentionBackward(OpCall& call) {
  ChosenCall c;
  REPRISE_RETURN_IF_ERROR(DescribeBlocks(call, c));
  REPRISE_RETURN_IF_ERROR(ReadBlockLogSum(call, c, "softmaxLse"));
  return FinishChosenBackward(call, c, {"attentionOut", "dout", "dq", "dk", "dv"});
}

Status LowerSelectedAttentionBackward(OpCall& call) {
  ChosenCall c;
  REPRISE_RETURN_IF_ERROR(DescribeSelected(call, c));
  REPRISE_RETURN_IF_ERROR(ReadStatistic(call, c, kChosenMaximum, "softmaxMax"));
  REPRISE_RETURN_IF_ERROR(ReadStatistic(call, c, kChosenSum, "softmaxSum"));
  return FinishChosenBackward(call, c, {"attentionOut", "attentionOutGrad", "dqOut", "dkOut", "dvOut"});
}

}  // namespace

using attention::AttentionTypes;

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/chosen_attention.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
