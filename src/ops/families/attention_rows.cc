// SPDX-License-Identifier: Apache-2.0
//
// Rows around attention: parts put together, heads normed and turned on their way into caches, windows compressed.
#include "kernels/attention_rows.h"

#include "kernels/paged_cache.h"
#include "ops/computations.h"
#include "ops/families/attention.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using attention::HeadView;
using attention::ViewAs;
using kernels::DType;
using kernels::TensorRef;

const Operand* RowGiven(const OpCall& call, std::string_view name) {
  const Operand* operand = call.Has(name) ? call.Find(name) : nullptr;
  return operand == nullptr || operand->tensor->count == 0 ? nullptr : operand;
}

// ---- Parts of attention put together ----

// refs: out, maximum, sum, then of both parts: out, maximum, sum.
void RunJoinRing(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const Refs& refs = launch.refs;
  kernels::RingParts parts;
  parts.new_out = refs[0];
  parts.new_maximum = refs[1];
  parts.new_sum = refs[2];
  for (size_t p = 0; p < 2; ++p) {
    parts.out[p] = refs[3 + 3 * p];
    parts.maximum[p] = refs[4 + 3 * p];
    parts.sum[p] = refs[5 + 3 * p];
  }
  kernels::JoinRing(parts, range, static_cast<float*>(memory.scratch));
}

Status LowerRing(OpCall& call) {
  const std::string_view layout = call.Text("inputLayoutOptional");
  const std::string_view softmax = call.Text("inputSoftmaxLayoutOptional");
  const bool is_packed = layout == "TND";
  if (!is_packed && !layout.empty() && layout != "SBH") {
    return call.Invalid(fmt::format("inputLayoutOptional is '{}', expected SBH or TND", layout));
  }
  if (is_packed && softmax != "TND") {
    return call.Invalid(fmt::format("inputSoftmaxLayoutOptional is '{}' with tokens end to end", softmax),
                        "pass TND and statistics [tokens, heads, 8]; others are not supported yet");
  }
  const Operand& maximum = call.Get("prevSoftmaxMax");
  const std::string_view statistic_layout = is_packed ? "TND" : "BNSD";
  REPRISE_ASSIGN_OR_RETURN(const HeadView model, ViewAs(call, maximum, statistic_layout, 0, 0));
  const auto view_of = [&](const char* name, bool is_statistic, TensorRef& view) -> Status {
    const Operand& operand = call.Get(name);
    const Operand& like = is_statistic ? maximum : call.Get("prevAttnOut");
    REPRISE_RETURN_IF_ERROR(
        call.CheckShape(operand, like.sizes(), [&] { return fmt::format("the shape of {},", call.NameOf(like)); }));
    REPRISE_ASSIGN_OR_RETURN(const HeadView seen, ViewAs(call, operand,
                                                         is_statistic ? statistic_layout
                                                         : is_packed  ? std::string_view("TND")
                                                                      : std::string_view("SBH"),
                                                         model.heads(), 0));
    if (seen.batch() != model.batch() || seen.tokens() != model.tokens()) {
      return call.InvalidOperand(operand,
                                 fmt::format("has shape {}, which does not fit {} {}", ShapeText(operand.sizes()),
                                             call.NameOf(maximum), ShapeText(maximum.sizes())));
    }
    view = seen.ref;
    return {};
  };
  Launch& launch = call.AddLaunch(RunJoinRing);
  int number = 0;
  for (const char* name : {"attnOut", "softmaxMaxOut", "softmaxSumOut", "prevAttnOut", "prevSoftmaxMax",
                           "prevSoftmaxSum", "curAttnOut", "curSoftmaxMax", "curSoftmaxSum"}) {
    TensorRef view;
    REPRISE_RETURN_IF_ERROR(view_of(name, number % 3 != 0, view));
    number < 3 ? call.Write(launch, call.Get(name), view) : call.Read(launch, call.Get(name), view);
    ++number;
  }
  const TensorRef& out = launch.refs[0];
  launch.units = out.sizes[0] * out.sizes[1] * out.sizes[2];
  launch.grain = GrainOf(4 * out.sizes[3]);
  call.AddScratch(launch, static_cast<uint64_t>(3 * out.sizes[3]) * sizeof(float));
  return {};
}

// ---- Heads into caches ----

struct QkvState {
  float epsilon;
  int64_t size;
  int64_t heads[3];
};

// refs: query, lines of keys and of values, copies of queries, keys, values; qkv, both gammas, cos, sin, scales and
// offsets of keys, of values.
void RunSplitQkv(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const auto& state = launch.State<QkvState>();
  const Refs& refs = launch.refs;
  kernels::QkvHeads heads;
  heads.query = refs[0];
  for (size_t i = 0; i < 2; ++i) {
    heads.lines[i] = launch.Ref(1 + i, memory);
    heads.scales[i] = refs[11 + 2 * i];
    heads.offsets[i] = refs[12 + 2 * i];
  }
  for (size_t i = 0; i < 3; ++i) heads.copies[i] = refs[3 + i];
  heads.qkv = refs[6];
  heads.query_gamma = refs[7];
  heads.key_gamma = refs[8];
  heads.cos = refs[9];
  heads.sin = refs[10];
  heads.epsilon = state.epsilon;
  heads.size = state.size;
  std::copy_n(state.heads, 3, heads.heads);
  kernels::SplitQkv(heads, range, static_cast<float*>(memory.scratch));
}

// refs: cache, lines, slots.
void RunQkvStore(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ScatterTokens(launch.Ref(1, memory), launch.refs[2], kernels::SlotRule::kEach, 1,
                         kernels::CacheLayout::kPieces, launch.refs[0], range);
}

StatusOr<std::shared_ptr<QkvState>> DescribeQkv(OpCall& call, int64_t& tokens) {
  const std::span<const int64_t> sizes = call.Ints("qkvSize");
  const std::span<const int64_t> heads = call.Ints("headNums");
  const Operand& qkv = call.Get("qkv");
  if (sizes.size() != 4 || heads.size() != 3) {
    return call.Invalid(fmt::format("qkvSize is {} and headNums {}", ShapeText(sizes), ShapeText(heads)),
                        "pass [batch, tokens, heads, elements], and the heads of queries, keys and values");
  }
  if (const std::string_view mode = call.Text("cacheModeOptional"); !mode.empty() && mode != "PA_NZ") {
    return call.Invalid(fmt::format("cacheModeOptional is '{}', expected PA_NZ", mode));
  }
  auto state = std::make_shared<QkvState>();
  int64_t sum = 0;
  for (size_t i = 0; i < 3; ++i) {
    state->heads[i] = heads[i];
    sum = heads[i] < 1 || heads[i] > sizes[2] ? INT64_MIN / 8 : sum + heads[i];
  }
  state->size = sizes[3];
  state->epsilon = static_cast<float>(call.Real("epsilon"));
  tokens = qkv.rank() == 2 ? qkv.sizes()[0] : -1;
  const bool fits = tokens >= 0 && sizes[0] >= 0 && sizes[1] >= 0 && sizes[0] * sizes[1] == tokens && sum == sizes[2] &&
                    sizes[3] > 0 && sizes[3] % 2 == 0 && qkv.sizes()[1] == sizes[2] * sizes[3];
  if (!fits) {
    return call.InvalidOperand(qkv,
                               fmt::format("has shape {} for qkvSize {} and headNums {}", ShapeText(qkv.sizes()),
                                           ShapeText(sizes), ShapeText(heads)),
                               "qkv is [batch * tokens, heads * elements], with an even number of elements");
  }
  for (const char* name : {"qGamma", "kGamma"}) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), {&state->size, 1}, [] { return "one for each element:"; }));
  }
  const int64_t angles[] = {tokens, state->size};
  for (const char* name : {"cos", "sin"}) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), angles, [] { return "a line for each token,"; }));
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("index"), {&tokens, 1}, [] { return "one for each token:"; }));
  const int64_t query[] = {tokens, state->heads[0] * state->size};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("qOutRef"), query, [] { return "a line for each token,"; }));
  return state;
}

// A factor for each element of each head, of one head, or for all.
Status ReadQkvFactor(const OpCall& call, Launch& launch, const char* name, int64_t heads, int64_t size) {
  const Operand* operand = RowGiven(call, name);
  if (operand == nullptr) {
    call.ReadOptional(launch, nullptr);
    return {};
  }
  TensorRef ref = call.RefOf(*operand);
  if (ref.rank == 1) {
    ref.sizes[1] = ref.sizes[0];
    ref.strides[1] = ref.strides[0];
    ref.sizes[0] = 1;
    ref.rank = 2;
  }
  const bool fits =
      ref.rank == 2 && (ref.sizes[0] == 1 || ref.sizes[0] == heads) && (ref.sizes[1] == 1 || ref.sizes[1] == size);
  if (!fits) {
    return call.InvalidOperand(*operand, fmt::format("has shape {}, expected [{}] or [{}, {}]",
                                                     ShapeText(operand->sizes()), size, heads, size));
  }
  call.Read(launch, *operand, ref);
  return {};
}

Status LowerQkvCache(OpCall& call) {
  int64_t tokens = 0;
  REPRISE_ASSIGN_OR_RETURN(const auto state, DescribeQkv(call, tokens));
  Launch& launch = call.AddLaunch(RunSplitQkv);
  call.Write(launch, call.Get("qOutRef"));
  TensorRef lines[2];
  for (int i = 0; i < 2; ++i) {
    const int64_t sizes[] = {tokens, state->heads[1 + i] * state->size};
    lines[i] = call.Temporary(DType::kFloat, sizes);
    call.WriteTemporary(launch, lines[i]);
  }
  int part = 0;
  for (const char* name : {"qOutBeforeQuantOptional", "kOutBeforeQuantOptional", "vOutBeforeQuantOptional"}) {
    const Operand* copy = RowGiven(call, name);
    if (copy != nullptr) {
      const int64_t sizes[] = {tokens, state->heads[part] * state->size};
      REPRISE_RETURN_IF_ERROR(call.CheckShape(*copy, sizes, [] { return "a line for each token,"; }));
    }
    call.WriteOptional(launch, copy);
    ++part;
  }
  for (const char* name : {"qkv", "qGamma", "kGamma", "cos", "sin"}) call.Read(launch, call.Get(name));
  REPRISE_RETURN_IF_ERROR(ReadQkvFactor(call, launch, "kScaleOptional", state->heads[1], state->size));
  REPRISE_RETURN_IF_ERROR(ReadQkvFactor(call, launch, "kOffsetOptional", state->heads[1], state->size));
  REPRISE_RETURN_IF_ERROR(ReadQkvFactor(call, launch, "vScaleOptional", state->heads[2], state->size));
  REPRISE_RETURN_IF_ERROR(ReadQkvFactor(call, launch, "vOffsetOptional", state->heads[2], state->size));
  launch.state = state;
  launch.units = tokens;
  launch.grain = GrainOf(8 * call.Get("qkv").sizes()[1]);
  call.AddScratch(launch, static_cast<uint64_t>(6 * state->size) * sizeof(float));
  part = 0;
  for (const auto& [name, scale] : {std::pair("kCacheRef", "kScaleOptional"), {"vCacheRef", "vScaleOptional"}}) {
    const Operand& cache = call.Get(name);
    const DType wanted = RowGiven(call, scale) != nullptr ? DType::kInt8 : call.compute;
    if (cache.dtype != wanted) {
      return call.InvalidOperand(
          cache, fmt::format("has {}, expected {} {} {}", kernels::Name(cache.dtype), kernels::Name(wanted),
                             wanted == DType::kInt8 ? "with" : "without", scale));
    }
    const TensorRef view = call.RefOf(cache);
    const int64_t line = lines[part].sizes[1];
    if (view.rank != 4 || kernels::CacheLine(kernels::CacheLayout::kPieces, view) != line ||
        view.sizes[3] * kernels::ItemSize(cache.dtype) != kernels::kPieceBytes) {
      const int64_t piece = kernels::kPieceBytes / kernels::ItemSize(cache.dtype);
      return call.InvalidOperand(cache, fmt::format("has shape {}, expected [pages, {} / {}, tokens, {}]",
                                                    ShapeText(cache.sizes()), line, piece, piece));
    }
    Launch& store = call.AddLaunch(RunQkvStore);
    call.Write(store, cache);
    call.ReadTemporary(store, lines[part]);
    call.Read(store, call.Get("index"));
    store.units = tokens == 0 || cache.tensor->count == 0 ? 0 : kernels::ScatterParts(lines[part]);
    store.grain = GrainOf(tokens * kernels::kScatterPart);
    ++part;
  }
  return {};
}

Status QkvTypes(OpCall& call) {
  call.compute = call.Get("qkv").dtype;
  for (const char* name : {"qGamma", "kGamma", "cos", "sin"}) {
    const Operand& operand = call.Get(name);
    if (operand.dtype == call.compute) continue;
    return call.InvalidOperand(operand, fmt::format("has {}, expected the type {} of qkv", kernels::Name(operand.dtype),
                                                    kernels::Name(call.compute)));
  }
  return {};
}

// ---- Windows ----

using kernels::WindowCache;
using kernels::Windows;

// refs: out, input, weight.
void RunCompress(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::CompressWindows(launch.State<Windows>(), launch.refs[1], launch.refs[2], launch.refs[0], range,
                           static_cast<float*>(memory.scratch));
}

// refs: gradient of input, gradient, weight.
void RunCompressInput(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::CompressInputBackward(launch.State<Windows>(), launch.refs[1], launch.refs[2], launch.refs[0], range,
                                 static_cast<float*>(memory.scratch));
}

// refs: gradient of weight, gradient, input.
void RunCompressWeight(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::CompressWeightBackward(launch.State<Windows>(), launch.refs[1], launch.refs[2], launch.refs[0], range);
}

// refs: cache, input, weight, table, slots.
void RunCompressNewest(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const Refs& refs = launch.refs;
  kernels::CompressNewest(launch.State<WindowCache>(), refs[1], refs[2], refs[3], refs[4], refs[0], range,
                          static_cast<float*>(memory.scratch));
}

Status CheckWindows(const OpCall& call, const Operand& input, int heads_dim) {
  const int64_t block = call.Int("compressBlockSize");
  const int64_t stride = call.Int("compressStride");
  if (block < 1 || stride < 1) {
    return call.Invalid(
        fmt::format("compressBlockSize is {} and compressStride {}, expected at least 1", block, stride));
  }
  const Operand& weight = call.Get("weight");
  const int64_t heads = input.sizes()[static_cast<size_t>(heads_dim)];
  if (weight.rank() == 2 && weight.sizes()[0] == block && weight.sizes()[1] == heads) return {};
  return call.InvalidOperand(weight,
                             fmt::format("has shape {}, expected [{}, {}]", ShapeText(weight.sizes()), block, heads));
}

StatusOr<std::shared_ptr<Windows>> WindowsOf(const OpCall& call, std::string_view lengths_name,
                                             std::string_view layout_name) {
  const Operand& input = call.Get("input");
  if (input.rank() != 3) {
    return call.InvalidOperand(
        input, fmt::format("has shape {}, expected [tokens, heads, elements]", ShapeText(input.sizes())));
  }
  if (const std::string_view layout = call.Text(layout_name); !layout.empty() && layout != "TND") {
    return call.Invalid(fmt::format("{} is '{}', expected TND", layout_name, layout));
  }
  if (call.Int("actSeqLenType") != 0) {
    return call.Invalid(fmt::format("actSeqLenType is {}, expected 0", call.Int("actSeqLenType")),
                        "the lengths are where each sequence ends");
  }
  REPRISE_RETURN_IF_ERROR(CheckWindows(call, input, 1));
  auto windows = std::make_shared<Windows>();
  windows->block = call.Int("compressBlockSize");
  windows->stride = call.Int("compressStride");
  const int64_t tokens = input.sizes()[0];
  const std::span<const int64_t> given = call.Ints(lengths_name);
  std::vector<int64_t> ends(given.begin(), given.end());
  if (ends.empty()) ends.push_back(tokens);
  int64_t begin = 0;
  for (const int64_t end : ends) {
    if (end < begin || end > tokens) {
      return call.Invalid(fmt::format("{} is {} for {} tokens", lengths_name, ShapeText(ends), tokens),
                          "each entry is where its sequence ends");
    }
    windows->tokens.push_back(begin);
    windows->first.push_back(static_cast<int64_t>(windows->begins.size()));
    for (int64_t at = begin; at + windows->block <= end; at += windows->stride) windows->begins.push_back(at);
    windows->end.push_back(static_cast<int64_t>(windows->begins.size()));
    begin = end;
  }
  windows->tokens.push_back(begin);
  return windows;
}

Status LowerCompress(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const auto windows, WindowsOf(call, "actSeqLenOptional", "layoutOptional"));
  const Operand& input = call.Get("input");
  const Operand& output = call.Get("output");
  const int64_t count = static_cast<int64_t>(windows->begins.size());
  const int64_t expected[] = {count, input.sizes()[1], input.sizes()[2]};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(output, expected, [] { return "a line for each window,"; }));
  Launch& launch = call.AddLaunch(RunCompress);
  call.Write(launch, output);
  call.Read(launch, input);
  call.Read(launch, call.Get("weight"));
  launch.state = windows;
  launch.units = output.tensor->count == 0 ? 0 : count;
  launch.grain = GrainOf(windows->block * input.sizes()[1] * input.sizes()[2]);
  call.AddScratch(launch, static_cast<uint64_t>(2 * input.sizes()[2]) * sizeof(float));
  return {};
}

Status LowerCompressBackward(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const auto windows, WindowsOf(call, "actSeqLenOptionalOptional", "layoutOptionalOptional"));
  const Operand& input = call.Get("input");
  const Operand& weight = call.Get("weight");
  const Operand& gradient = call.Get("outputGrad");
  const int64_t expected[] = {static_cast<int64_t>(windows->begins.size()), input.sizes()[1], input.sizes()[2]};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(gradient, expected, [] { return "a line for each window,"; }));
  const Operand& of_input = call.Get("inputGradOut");
  const Operand& of_weight = call.Get("weightGradOut");
  REPRISE_RETURN_IF_ERROR(call.CheckShape(of_input, input.sizes(), [] { return "the shape of input,"; }));
  REPRISE_RETURN_IF_ERROR(call.CheckShape(of_weight, weight.sizes(), [] { return "the shape of weight,"; }));
  const int64_t line = input.sizes()[1] * input.sizes()[2];
  Launch& first = call.AddLaunch(RunCompressInput);
  call.Write(first, of_input);
  call.Read(first, gradient);
  call.Read(first, weight);
  first.state = windows;
  first.units = of_input.tensor->count == 0 ? 0 : input.sizes()[0];
  first.grain = GrainOf(line * (windows->block / windows->stride + 1));
  call.AddScratch(first, static_cast<uint64_t>(2 * input.sizes()[2]) * sizeof(float));
  Launch& second = call.AddLaunch(RunCompressWeight);
  call.Write(second, of_weight);
  call.Read(second, gradient);
  call.Read(second, input);
  second.state = windows;
  second.units = of_weight.tensor->count == 0 ? 0 : windows->block;
  second.grain = GrainOf(expected[0] * line);
  return {};
}

Status LowerCompressNewest(OpCall& call) {
  const Operand& input = call.Get("input");
  const Operand* table = RowGiven(call, "blockTableOptional");
  const int rank = table != nullptr ? 4 : 3;
  if (input.rank() != rank) {
    return call.InvalidOperand(
        input, fmt::format("has shape {}, expected {}", ShapeText(input.sizes()),
                           rank == 4 ? "[pages, tokens, heads, elements]" : "[tokens, heads, elements]"));
  }
  REPRISE_RETURN_IF_ERROR(CheckWindows(call, input, rank - 2));
  auto state = std::make_shared<WindowCache>();
  state->block = call.Int("compressBlockSize");
  state->stride = call.Int("compressStride");
  const std::span<const int64_t> lengths = call.Ints("actSeqLenOptional");
  const int64_t type = call.Int("actSeqLenType");
  if (type != 0 && type != 1) {
    return call.Invalid(fmt::format("actSeqLenType is {}, expected 0 or 1", type), "0 ends, 1 lengths");
  }
  const int64_t count = static_cast<int64_t>(lengths.size());
  if (table != nullptr && (table->rank() != 2 || table->sizes()[0] != count)) {
    return call.InvalidOperand(*table,
                               fmt::format("has shape {}, expected [{}, pages]", ShapeText(table->sizes()), count));
  }
  const int64_t room =
      table != nullptr ? (input.sizes()[0] == 0 ? 0 : table->sizes()[1] * input.sizes()[1]) : input.sizes()[0];
  if (table != nullptr && call.Int("pageBlockSize") != input.sizes()[1]) {
    return call.Invalid(fmt::format("pageBlockSize is {}, but the pages of input hold {} tokens",
                                    call.Int("pageBlockSize"), input.sizes()[1]));
  }
  int64_t begin = 0;
  for (const int64_t given : lengths) {
    const int64_t length = type == 0 ? given - begin : given;
    if (length < 0 || (table != nullptr ? length : begin + length) > room) {
      return call.Invalid(fmt::format("actSeqLenOptional is {} for room of {} tokens", ShapeText(lengths), room));
    }
    state->lengths.push_back(length);
    state->begins.push_back(begin);
    begin = type == 0 ? given : begin + length;
  }
  const Operand& cache = call.Get("outputCache");
  const std::span<const int64_t> line = input.sizes().subspan(static_cast<size_t>(rank) - 2);
  if (cache.rank() != 3 || cache.sizes()[1] != line[0] || cache.sizes()[2] != line[1]) {
    return call.InvalidOperand(
        cache, fmt::format("has shape {}, expected [lines, {}, {}]", ShapeText(cache.sizes()), line[0], line[1]));
  }
  const Operand& slots = call.Get("slotMapping");
  REPRISE_RETURN_IF_ERROR(call.CheckShape(slots, {&count, 1}, [] { return "one for each sequence:"; }));
  Launch& launch = call.AddLaunch(RunCompressNewest);
  call.Write(launch, cache);
  call.Read(launch, input);
  call.Read(launch, call.Get("weight"));
  call.ReadOptional(launch, table);
  call.Read(launch, slots);
  launch.state = state;
  launch.units = cache.tensor->count == 0 ? 0 : count;
  // One after the other: of two sequences with one slot the later one counts.
  launch.grain = 0;
  call.AddScratch(launch, static_cast<uint64_t>(2 * line[1]) * sizeof(float));
  return {};
}

}  // namespace

using attention::AttentionTypes;

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/attention_rows.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
