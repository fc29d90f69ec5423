// SPDX-License-Identifier: Apache-2.0
//
// Tokens to experts and back.
#include "kernels/routing.h"

#include "kernels/copy.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;
using kernels::RoutingSetup;
using kernels::RowQuantization;
using kernels::TensorRef;

// Experts for which there are counters in the workspace.
constexpr int64_t kMostExperts = int64_t{1} << 20;

std::string RoutingText(const Operand& operand) { return ShapeText(operand.sizes()); }

Status CheckRoutingRank(const OpCall& call, const Operand& operand, int least, int most) {
  if (operand.rank() >= least && operand.rank() <= most) return {};
  return call.InvalidOperand(
      operand, fmt::format("has shape {}, expected {} dims", RoutingText(operand),
                           least == most ? fmt::format("{}", least) : fmt::format("{} or {}", least, most)));
}

Status RefusePadding(const OpCall& call) {
  if (!call.Bool("paddedMode")) return {};
  return call.Invalid("paddedMode is true, which is not supported yet", "pass false");
}

TensorRef AtLeastARow(TensorRef ref) {
  if (ref.data != nullptr && ref.rank == 0) {
    ref.rank = 1;
    ref.sizes[0] = 1;
    ref.strides[0] = 1;
  }
  return ref;
}

// ---- To the experts ----

// Ways to lay out rows: Computation::code.
enum ExpandKind : uint8_t { kExpandByRowIdx, kExpand, kExpandQuantized, kExpandPermuted, kExpandQuantizedSecond };

// Places in Launch::refs.
struct OrderAt {
  enum : size_t { kRowIdxOut, kExpertIdxOut, kCounts, kBefore, kSource, kExpert, kWords, kExpertIdx, kRowIdx };
};
struct ExpandAt {
  enum : size_t { kOut, kScaleOut, kX, kSource, kExpert, kScale, kOffset };
};

void RunOrder(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  const auto& setup = launch.State<RoutingSetup>();
  kernels::OrderAssignments(setup,
                            {.expert_idx = launch.refs[OrderAt::kExpertIdx],
                             .row_idx = launch.refs[OrderAt::kRowIdx],
                             .row_idx_out = launch.refs[OrderAt::kRowIdxOut],
                             .expert_idx_out = launch.refs[OrderAt::kExpertIdxOut],
                             .counts = launch.refs[OrderAt::kCounts],
                             .before_capacity = launch.refs[OrderAt::kBefore],
                             .source = static_cast<int64_t*>(launch.Ref(OrderAt::kSource, memory).data),
                             .expert = static_cast<int64_t*>(launch.Ref(OrderAt::kExpert, memory).data)},
                            static_cast<int64_t*>(launch.Ref(OrderAt::kWords, memory).data));
}

void RunExpand(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::ExpandRows(static_cast<RowQuantization>(launch.ints[0]), launch.refs[ExpandAt::kX],
                      static_cast<const int64_t*>(launch.Ref(ExpandAt::kSource, memory).data),
                      static_cast<const int64_t*>(launch.Ref(ExpandAt::kExpert, memory).data),
                      AtLeastARow(launch.refs[ExpandAt::kScale]), AtLeastARow(launch.refs[ExpandAt::kOffset]),
                      launch.refs[ExpandAt::kOut], launch.refs[ExpandAt::kScaleOut], range);
}

const char* ScaleOutName(const OpCall& call) {
  return call.Has("dynamicQuantScaleOutOptional") ? "dynamicQuantScaleOutOptional" : "expandedScaleOut";
}

// Whether the counts before rows beyond the capacity are dropped are asked for.
bool WantsCountsBefore(const OpCall& call) {
  for (const char* name : {"expertTokensBeforeCapacityFlagOptional", "expertTokensBeforeCapacityFlag"}) {
    if (call.Has(name)) return call.Bool(name);
  }
  return false;
}

struct ExpandParts {
  const Operand *x, *expert_idx, *row_idx, *out, *row_idx_out, *expert_idx_out, *counts, *before, *scale, *offset,
      *scale_out;
};

ExpandParts ExpandPartsOf(const OpCall& call) {
  const bool is_permute = call.op.computation.code == kExpandPermuted;
  return {.x = call.Find(is_permute ? "tokens" : "x"),
          .expert_idx = call.Find(is_permute ? "indices" : "expertIdx"),
          .row_idx = call.Find("rowIdx"),
          .out = call.Find(is_permute ? "permuteTokensOut" : "expandedXOut"),
          .row_idx_out = call.Find(is_permute ? "sortedIndicesOut" : "expandedRowIdxOut"),
          .expert_idx_out = call.Find("expandedExpertIdxOut"),
          .counts = call.Find(call.Has("expertTokensCountOrCumsumOutOptional") ? "expertTokensCountOrCumsumOutOptional"
                                                                               : "expertTokensCountOrCumsumOut"),
          .before = call.Find("expertTokensBeforeCapacityOutOptional"),
          .scale = call.Find("scaleOptional"),
          .offset = call.Find("offsetOptional"),
          .scale_out = call.Find(ScaleOutName(call))};
}

StatusOr<RowQuantization> QuantizationOf(const OpCall& call) {
  if (!call.Has("quantMode")) return RowQuantization::kNone;
  const int64_t mode = call.Int("quantMode");
  if (call.op.computation.code == kExpandQuantizedSecond && mode == -1) {
    return call.Invalid("quantMode is -1, expected 0 or 1", "0 by scaleOptional and offsetOptional, 1 by the rows");
  }
  if (mode < -1 || mode > 1) {
    return call.Invalid(fmt::format("quantMode is {}, expected -1, 0 or 1", mode),
                        "-1 none, 0 by scaleOptional and offsetOptional, 1 by the rows themselves");
  }
  return static_cast<RowQuantization>(mode + 1);
}

Status ExpandTypes(OpCall& call) {
  const ExpandParts parts = ExpandPartsOf(call);
  call.compute = parts.x->dtype;
  REPRISE_ASSIGN_OR_RETURN(const RowQuantization quantization, QuantizationOf(call));
  const DType wanted = quantization == RowQuantization::kNone ? call.compute : DType::kInt8;
  if (parts.out->dtype != wanted) {
    return call.InvalidOperand(
        *parts.out, fmt::format("has {}, expected {}", kernels::Name(parts.out->dtype), kernels::Name(wanted)));
  }
  if (quantization != RowQuantization::kNone && !kSingleAndHalfTypes.Has(call.compute)) {
    return call.InvalidOperand(*parts.x, fmt::format("has {}, which is not quantized", kernels::Name(call.compute)),
                               "pass quantMode -1");
  }
  return {};
}

// Which experts are here, and what the row indices name; of the operators that have a range of them.
Status DescribeExpertRange(const OpCall& call, int64_t experts, int64_t drop, RoutingSetup& setup) {
  const std::span<const int64_t> range = call.Ints("activeExpertRangeOptional");
  if (!range.empty()) {
    if (range.size() != 2 || range[0] < 0 || range[1] < range[0] || range[1] > kMostExperts) {
      return call.Invalid(fmt::format("activeExpertRangeOptional is {}, expected two numbers that ascend, up to {}",
                                      ShapeText(range), kMostExperts));
    }
    setup.first_expert = range[0];
    setup.end_expert = range[1];
  }
  setup.keeps_others = experts <= 0 && range.empty();
  const int64_t type = call.Int("rowIdxType");
  if (type != 0 && (type != 1 || drop == 1)) {
    return call.Invalid(
        fmt::format("rowIdxType is {}, expected {}", type, drop == 1 ? "0 with dropPadMode 1" : "0 or 1"));
  }
  setup.names_sources = type == 1;
  return {};
}

// What is counted of each expert.
Status DescribeCounts(const OpCall& call, const ExpandParts& parts, int64_t experts, RoutingSetup& setup) {
  using Count = RoutingSetup::Count;
  if (!call.Has("expertTokensNumType")) {
    const char* const name = call.Has("expertTokensCountOrCumsumFlag") ? "expertTokensCountOrCumsumFlag"
                                                                       : "expertTokensCountOrCumsumFlagOptional";
    const int64_t flag = call.Int(name);
    if (flag < 0 || flag > 2) {
      return call.Invalid(fmt::format("{} is {}, expected 0, 1 or 2", name, flag),
                          "0 none, 1 where the rows of each expert end, 2 how many they are");
    }
    setup.count = parts.counts == nullptr ? Count::kNone : static_cast<Count>(flag);
  } else if (call.Bool("expertTokensNumFlag") && parts.counts != nullptr) {
    const int64_t type = call.Int("expertTokensNumType");
    if (type < 0 || type > 2) {
      return call.Invalid(fmt::format("expertTokensNumType is {}, expected 0, 1 or 2", type),
                          "0 where the rows of each expert end, 1 how many they are, 2 pairs of expert and count");
    }
    setup.count = static_cast<Count>(type + 1);
  }
  if (setup.count != Count::kNone && setup.end_expert == 0) {
    return call.Invalid(fmt::format("expertNum is {}, but counts are asked for", experts), "pass how many there are");
  }
  return {};
}

// What the attributes and shapes say.
Status DescribeRouting(OpCall& call, const ExpandParts& parts, RoutingSetup& setup) {
  const uint8_t kind = call.op.computation.code;
  REPRISE_RETURN_IF_ERROR(CheckRoutingRank(call, *parts.x, 2, 2));
  REPRISE_RETURN_IF_ERROR(CheckRoutingRank(call, *parts.expert_idx, 1, 2));
  setup.tokens = parts.x->sizes()[0];
  setup.assignments = parts.expert_idx->tensor->count;
  setup.choices = parts.expert_idx->rank() == 2 ? parts.expert_idx->sizes()[1] : 1;
  if (parts.expert_idx->sizes()[0] != setup.tokens) {
    return call.InvalidOperand(
        *parts.expert_idx, fmt::format("has shape {}, expected [{}, choices] for {} {}", RoutingText(*parts.expert_idx),
                                       setup.tokens, call.NameOf(*parts.x), RoutingText(*parts.x)));
  }
  const int64_t all = setup.assignments;
  if (kind == kExpandPermuted) {
    REPRISE_RETURN_IF_ERROR(RefusePadding(call));
    const int64_t wanted = call.Int("numOutTokens");
    setup.rows = wanted > 0 ? std::min(wanted, all) : all + wanted;
    if (setup.rows < 0) {
      return call.Invalid(fmt::format("numOutTokens is {}, expected at least {}", wanted, -all),
                          "0: all, below 0: that many fewer");
    }
    return {};
  }
  const int64_t active = call.Int(call.Has("activeNum") ? "activeNum" : "activeNumOptional");
  if (kind == kExpandByRowIdx) {
    if (active < 0) return call.Invalid(fmt::format("activeNum is {}, expected at least 0", active));
    setup.rows = std::min(active, setup.tokens) * setup.choices;
    return call.CheckShape(*parts.row_idx, parts.expert_idx->sizes(), [] { return "the shape of expertIdx"; });
  }
  const bool is_second = kind == kExpand;
  const auto name = [&](const char* plain, const char* optional) { return is_second ? optional : plain; };
  const int64_t experts = call.Int(name("expertNum", "expertNumOptional"));
  const int64_t drop = call.Int(name("dropPadMode", "dropPadModeOptional"));
  const int64_t capacity = call.Int(name("expertCapacity", "expertCapacityOptional"));
  if (drop != 0 && drop != 1) return call.Invalid(fmt::format("dropPadMode is {}, expected 0 or 1", drop));
  if (experts > kMostExperts || (drop == 1 && experts <= 0)) {
    return call.Invalid(fmt::format("expertNum is {}, expected a value from 1 to {}", experts, kMostExperts));
  }
  setup.end_expert = std::max<int64_t>(experts, 0);
  if (call.Has("rowIdxType")) REPRISE_RETURN_IF_ERROR(DescribeExpertRange(call, experts, drop, setup));
  if (drop == 1) {
    if (capacity <= 0 || capacity > std::max<int64_t>(setup.tokens, 1)) {
      return call.Invalid(
          fmt::format("expertCapacity is {}, expected a value from 1 to {} tokens", capacity, setup.tokens));
    }
    setup.capacity = capacity;
    setup.rows = (setup.end_expert - setup.first_expert) * capacity;
  } else {
    setup.rows = active > 0 ? std::min(active, all) : all;
  }
  return DescribeCounts(call, parts, experts, setup);
}

Status ExpandShape(OpCall& call) {
  const ExpandParts parts = ExpandPartsOf(call);
  RoutingSetup setup;
  REPRISE_RETURN_IF_ERROR(DescribeRouting(call, parts, setup));
  const int64_t n = parts.x->sizes()[1];
  Dims rows;
  if (setup.capacity != 0) {
    for (int64_t size : {setup.end_expert - setup.first_expert, setup.capacity, n}) rows.push_back(size);
    if (parts.out->rank() == 2) {
      rows.resize(0);
      for (int64_t size : {setup.rows, n}) rows.push_back(size);
    }
  } else {
    for (int64_t size : {setup.rows, n}) rows.push_back(size);
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*parts.out, rows, [] { return "a row for each choice of a token,"; }));
  const auto check = [&](const Operand* operand, std::span<const int64_t> shape) -> Status {
    if (operand == nullptr) return {};
    return call.CheckCount(*operand, shape, [] { return "the shape"; });
  };
  REPRISE_RETURN_IF_ERROR(check(parts.row_idx_out, {&setup.assignments, 1}));
  REPRISE_RETURN_IF_ERROR(check(parts.expert_idx_out, {&setup.assignments, 1}));
  const int64_t experts[] = {setup.end_expert - setup.first_expert, 2};
  if (setup.count == RoutingSetup::Count::kPairs) {
    // As many pairs as there is room for.
    if (parts.counts->rank() != 2 || parts.counts->sizes()[1] != 2 || parts.counts->sizes()[0] < experts[0]) {
      return call.InvalidOperand(*parts.counts, fmt::format("has shape {}, expected [{}, 2] or more pairs",
                                                            RoutingText(*parts.counts), experts[0]));
    }
  } else if (setup.count != RoutingSetup::Count::kNone) {
    REPRISE_RETURN_IF_ERROR(check(parts.counts, {experts, 1}));
  }
  if (parts.before != nullptr && WantsCountsBefore(call)) {
    REPRISE_RETURN_IF_ERROR(check(parts.before, {experts, 1}));
  }
  REPRISE_ASSIGN_OR_RETURN(const RowQuantization quantization, QuantizationOf(call));
  const bool has_scales =
      quantization == RowQuantization::kDynamic || (quantization == RowQuantization::kNone && parts.scale != nullptr);
  if (has_scales && parts.scale_out != nullptr) REPRISE_RETURN_IF_ERROR(check(parts.scale_out, {&setup.rows, 1}));
  if (quantization == RowQuantization::kDynamic && parts.scale_out == nullptr) {
    return Error(kOperatorArgumentNull,
                 fmt::format("{}: {} is null, but quantMode is 1", call.op.name, ScaleOutName(call)))
        .Hint("pass an aclTensor for it, or leave out what asks for it");
  }
  switch (quantization) {
    case RowQuantization::kNone:
      return parts.scale != nullptr
                 ? call.CheckCount(*parts.scale, {&setup.tokens, 1}, [] { return "one for each token:"; })
                 : Status();
    case RowQuantization::kStatic:
      for (const Operand* operand : {parts.scale, parts.offset}) {
        if (operand == nullptr) {
          return call.Invalid("scaleOptional or offsetOptional is null, but quantMode is 0", "pass one number each");
        }
        if (operand->tensor->count == 1) continue;
        return call.InvalidOperand(*operand, fmt::format("has shape {}, expected one element", RoutingText(*operand)));
      }
      return {};
    case RowQuantization::kDynamic: {
      if (parts.scale == nullptr) return {};
      const bool fits = parts.scale->rank() == 2 && parts.scale->sizes()[1] == n &&
                        (parts.scale->sizes()[0] == 1 || parts.scale->sizes()[0] == experts[0]);
      if (fits) return {};
      return call.InvalidOperand(*parts.scale, fmt::format("has shape {}, expected [1, {}] or [{}, {}]",
                                                           RoutingText(*parts.scale), n, experts[0], n));
    }
  }
  return {};
}

Status LowerExpand(OpCall& call) {
  const ExpandParts parts = ExpandPartsOf(call);
  auto setup = std::make_shared<RoutingSetup>();
  REPRISE_RETURN_IF_ERROR(DescribeRouting(call, parts, *setup));
  REPRISE_ASSIGN_OR_RETURN(const RowQuantization quantization, QuantizationOf(call));
  const bool has_before = parts.before != nullptr && WantsCountsBefore(call);
  const bool has_scale_out =
      parts.scale_out != nullptr &&
      (quantization == RowQuantization::kDynamic || (quantization == RowQuantization::kNone && parts.scale != nullptr));
  const int64_t words = kernels::OrderAssignmentsWords(*setup);
  const TensorRef source = call.Temporary(DType::kInt64, {&setup->rows, 1});
  const TensorRef expert = call.Temporary(DType::kInt64, {&setup->rows, 1});
  const TensorRef work = call.Temporary(DType::kInt64, {&words, 1});
  Launch& order = call.AddLaunch(RunOrder);
  call.Write(order, *parts.row_idx_out);
  call.WriteOptional(order, parts.expert_idx_out);
  call.WriteOptional(order, setup->count != RoutingSetup::Count::kNone ? parts.counts : nullptr);
  call.WriteOptional(order, has_before ? parts.before : nullptr);
  call.WriteTemporary(order, source);
  call.WriteTemporary(order, expert);
  call.WriteTemporary(order, work);
  call.Read(order, *parts.expert_idx);
  call.ReadOptional(order, parts.row_idx);
  order.units = 1;
  order.state = setup;

  Launch& expand = call.AddLaunch(RunExpand);
  TensorRef rows = call.RefOf(*parts.out);
  call.Write(expand, *parts.out, rows);
  call.WriteOptional(expand, has_scale_out ? parts.scale_out : nullptr);
  call.Read(expand, *parts.x);
  call.ReadTemporary(expand, source);
  call.ReadTemporary(expand, expert);
  call.ReadOptional(expand, parts.scale);
  call.ReadOptional(expand, parts.offset);
  expand.ints.push_back(static_cast<int64_t>(quantization));
  expand.units = parts.out->tensor->count == 0 && !has_scale_out ? 0 : setup->rows;
  expand.grain = GrainOf(parts.x->sizes()[1]);
  return {};
}

// ---- And back ----

enum CombineKind : uint8_t { kFinalize, kFinalizeSecond, kUnpermute, kPermuteGradient };
struct CombineAt {
  enum : size_t { kOut, kRows, kPlace, kWeight, kBias, kExpert, kX1, kX2 };
};

void RunCombine(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::CombineRows({.rows = launch.refs[CombineAt::kRows],
                        .place = launch.refs[CombineAt::kPlace],
                        .weight = launch.refs[CombineAt::kWeight],
                        .bias = launch.refs[CombineAt::kBias],
                        .expert = launch.refs[CombineAt::kExpert],
                        .x1 = launch.refs[CombineAt::kX1],
                        .x2 = launch.refs[CombineAt::kX2],
                        .out = launch.refs[CombineAt::kOut],
                        .choices = launch.ints[0],
                        .by_choice = launch.ints[1] != 0},
                       range);
}

struct CombineParts {
  const Operand *rows, *place, *weight, *bias, *expert, *x1, *x2, *out;
  int64_t choices = 1;
  bool by_choice = false;
};

const Operand* FindFirstOf(const OpCall& call, std::initializer_list<std::string_view> names) {
  for (std::string_view name : names) {
    if (const Operand* operand = call.Find(name)) return operand;
  }
  return nullptr;
}

// What aclnnMoeFinalizeRoutingV4 takes beyond the second version.
Status CheckChoices(const OpCall& call, CombineParts& parts) {
  for (const char* name :
       {"oriXOptional", "constExpertAlpha1Optional", "constExpertAlpha2Optional", "constExpertVOptional"}) {
    if (const Operand* operand = call.Find(name)) {
      return call.InvalidOperand(*operand, "is given, but experts that copy or are constant are not supported",
                                 "pass null");
    }
  }
  for (const char* name : {"zeroExpertRangeOptional", "copyExpertRangeOptional", "constExpertRangeOptional"}) {
    if (call.Ints(name).empty()) continue;
    return call.Invalid(fmt::format("{} is {}, but experts that copy or are constant are not supported", name,
                                    ShapeText(call.Ints(name))),
                        "pass null");
  }
  const int64_t k = call.Int("k");
  if (parts.weight == nullptr && k > 1) parts.choices = k;
  if (k == 1 || k == parts.choices) return {};
  return call.Invalid(fmt::format("k is {}, expected 1 or the {} choices of each token", k, parts.choices));
}

StatusOr<CombineParts> CombinePartsOf(const OpCall& call) {
  CombineParts parts = {.rows = FindFirstOf(call, {"expandedX", "permutedTokens", "permutedOutputGrad"}),
                        .place = FindFirstOf(call, {"expandedRowIdx", "sortedIndices"}),
                        .weight = FindFirstOf(call, {"scalesOptional", "probsOptional"}),
                        .bias = call.Find("biasOptional"),
                        .expert = call.Find("expertIdxOptional"),
                        .x1 = call.Find("x1Optional"),
                        .x2 = call.Find("x2Optional"),
                        .out = &call.outputs[0]};
  const int64_t places = parts.place->tensor->count;
  switch (call.op.computation.code) {
    case kFinalizeSecond: {
      const int64_t mode = call.Int("dropPadMode");
      if (mode < 0 || mode > 3) {
        return call.Invalid(fmt::format("dropPadMode is {}, expected a value from 0 to 3", mode),
                            "0 and 1: expandedRowIdx counts tokens first, 2 and 3: choices first");
      }
      parts.by_choice = mode < 2;
      break;
    }
    case kFinalize: parts.by_choice = true; break;
    default: REPRISE_RETURN_IF_ERROR(RefusePadding(call)); break;
  }
  if (call.Has("numTopk")) {
    parts.choices = call.Int("numTopk");
  } else if (parts.weight != nullptr) {
    parts.choices = parts.weight->rank() == 2 ? parts.weight->sizes()[1] : 1;
  } else if (call.op.computation.code == kFinalize || call.op.computation.code == kFinalizeSecond) {
    const int64_t tokens = parts.out->rank() == 2 ? parts.out->sizes()[0] : 0;
    parts.choices = tokens == 0 ? 1 : places / tokens;
  }
  if (call.Has("k")) REPRISE_RETURN_IF_ERROR(CheckChoices(call, parts));
  if (parts.choices < 1 || places % parts.choices != 0) {
    return call.Invalid(fmt::format("{} choices of each token do not go with {} {}", parts.choices,
                                    call.NameOf(*parts.place), RoutingText(*parts.place)));
  }
  return parts;
}

Status CombineShape(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const CombineParts parts, CombinePartsOf(call));
  REPRISE_RETURN_IF_ERROR(CheckRoutingRank(call, *parts.rows, 2, 3));
  REPRISE_RETURN_IF_ERROR(CheckRoutingRank(call, *parts.place, 1, 2));
  const int64_t n = parts.rows->sizes().back();
  const int64_t tokens = parts.place->tensor->count / parts.choices;
  const int64_t shape[] = {tokens, n};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*parts.out, shape, [] { return "a row for each token,"; }));
  for (const Operand* x : {parts.x1, parts.x2}) {
    if (x != nullptr) REPRISE_RETURN_IF_ERROR(call.CheckShape(*x, shape, [] { return "a row for each token,"; }));
  }
  const int64_t choices[] = {tokens, parts.choices};
  for (const Operand* each : {parts.weight, parts.expert}) {
    if (each != nullptr) {
      REPRISE_RETURN_IF_ERROR(call.CheckShape(*each, choices, [] { return "one for each choice of a token,"; }));
    }
  }
  if (parts.bias == nullptr) return {};
  if (parts.expert == nullptr) {
    return call.InvalidOperand(*parts.bias, "is there, but expertIdxOptional is null",
                               "it says which row of bias counts");
  }
  if (parts.bias->rank() == 2 && parts.bias->sizes()[1] == n) return {};
  return call.InvalidOperand(*parts.bias,
                             fmt::format("has shape {}, expected [experts, {}]", RoutingText(*parts.bias), n));
}

Status LowerCombine(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const CombineParts parts, CombinePartsOf(call));
  Launch& launch = call.AddLaunch(RunCombine);
  call.Write(launch, *parts.out);
  call.Read(launch, *parts.rows);
  call.Read(launch, *parts.place);
  for (const Operand* operand : {parts.weight, parts.bias, parts.expert, parts.x1, parts.x2}) {
    call.ReadOptional(launch, operand);
  }
  launch.ints.push_back(parts.choices);
  launch.ints.push_back(parts.by_choice ? 1 : 0);
  launch.units = parts.out->tensor->count == 0 ? 0 : parts.out->sizes()[0];
  launch.grain = GrainOf(parts.out->sizes()[1] * parts.choices * 2);
  return {};
}

struct CombineBackwardAt {
  enum : size_t { kRowsGradient, kWeightGradient, kGradient, kRows, kPlace, kWeight };
};

void RunCombineBackward(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::CombineOperands operands;
  operands.rows = launch.refs[CombineBackwardAt::kRows];
  operands.place = launch.refs[CombineBackwardAt::kPlace];
  operands.weight = launch.refs[CombineBackwardAt::kWeight];
  operands.choices = launch.ints[0];
  kernels::CombineRowsBackward(operands, launch.refs[CombineBackwardAt::kGradient],
                               launch.refs[CombineBackwardAt::kRowsGradient],
                               launch.refs[CombineBackwardAt::kWeightGradient], range);
}

void RunClearRows(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Fill(launch.refs[0], launch.scalars[0], range);
}

Status UnpermuteGradShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(RefusePadding(call));
  const Operand& rows = call.Get("permuteTokens");
  const Operand& gradient = call.Get("unpermutedTokensGrad");
  const Operand& place = call.Get("sortedIndices");
  const Operand* const probs = call.Find("probsOptional");
  REPRISE_RETURN_IF_ERROR(CheckRoutingRank(call, rows, 2, 2));
  REPRISE_RETURN_IF_ERROR(CheckRoutingRank(call, gradient, 2, 2));
  REPRISE_RETURN_IF_ERROR(CheckRoutingRank(call, place, 1, 2));
  const int64_t tokens = gradient.sizes()[0];
  const int64_t choices = probs == nullptr ? 1 : probs->rank() == 2 ? probs->sizes()[1] : 1;
  if (rows.sizes()[1] != gradient.sizes()[1] || place.tensor->count != tokens * choices) {
    return call.Invalid(
        fmt::format("permuteTokens {}, unpermutedTokensGrad {} and sortedIndices {} do not fit for {} choices",
                    RoutingText(rows), RoutingText(gradient), RoutingText(place), choices));
  }
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("permutedTokensGradOut"), rows.sizes(), [] { return "the shape of permuteTokens,"; }));
  if (probs == nullptr) return {};
  const int64_t shape[] = {tokens, choices};
  REPRISE_RETURN_IF_ERROR(call.CheckShape(*probs, shape, [] { return "one for each choice of a token,"; }));
  const Operand* const probs_gradient = call.Find("probsGradOut");
  if (probs_gradient == nullptr) {
    return Error(kOperatorArgumentNull, fmt::format("{}: probsGradOut is null, but probsOptional is not", call.op.name))
        .Hint("pass an aclTensor for it, or leave out what asks for it");
  }
  return call.CheckShape(*probs_gradient, shape, [] { return "the shape of probsOptional,"; });
}

Status LowerUnpermuteGrad(OpCall& call) {
  const Operand& rows_gradient = call.Get("permutedTokensGradOut");
  const Operand& gradient = call.Get("unpermutedTokensGrad");
  const Operand* const probs = call.Find("probsOptional");
  Launch& zero = call.AddLaunch(RunClearRows);
  call.Write(zero, rows_gradient);
  zero.scalars.push_back(kernels::Scalar::Of(0.0F));
  zero.units = rows_gradient.tensor->count;
  zero.grain = GrainOf(1);
  Launch& launch = call.AddLaunch(RunCombineBackward);
  call.Write(launch, rows_gradient);
  call.WriteOptional(launch, probs != nullptr ? call.Find("probsGradOut") : nullptr);
  call.Read(launch, gradient);
  call.Read(launch, call.Get("permuteTokens"));
  call.Read(launch, call.Get("sortedIndices"));
  call.ReadOptional(launch, probs);
  const int64_t choices = probs == nullptr ? 1 : probs->sizes().size() == 2 ? probs->sizes()[1] : 1;
  launch.ints.push_back(choices);
  launch.units = gradient.sizes()[0];
  launch.grain = GrainOf(gradient.sizes()[1] * choices * 3);
  return {};
}

// ---- Counts ----

void RunCountUpTo(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::CountUpTo(launch.refs[1], launch.refs[0], range);
}

Status ExpertTokensShape(OpCall& call) {
  const int64_t experts = call.Int("numExperts");
  if (experts < 1) return call.Invalid(fmt::format("numExperts is {}, expected at least 1", experts));
  REPRISE_RETURN_IF_ERROR(CheckRoutingRank(call, call.inputs[0], 1, 1));
  return call.CheckShape(call.outputs[0], {&experts, 1}, [] { return "one number for each expert:"; });
}

Status LowerExpertTokens(OpCall& call) {
  Launch& launch = call.AddLaunch(RunCountUpTo);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.inputs[0]);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(64);
  return {};
}

Status RoutingInt(OpCall& call) {
  call.compute = DType::kInt32;
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/routing.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
