// SPDX-License-Identifier: Apache-2.0
#include "ops/families/attention.h"
#include "kernels/copy.h"
#include "ops/computations.h"
#include "ops/rules.h"

namespace reprise::ops::attention {

Status AttentionTypes(OpCall& call) {
  call.compute = call.inputs[0].dtype;
  for (const Operand& input : call.inputs) {
    if (input.apart || input.dtype == call.compute) continue;
    return call.InvalidOperand(input, fmt::format("has {}, expected the type {} of query", kernels::Name(input.dtype),
                                                  kernels::Name(call.compute)));
  }
  return OneType(call);
}

namespace {

// Places in Launch::refs.
enum Place : size_t {
  kOut,
  kMaximum,
  kSum,
  kLogSum,
  kQuery,
  kMask,
  kShift,
  kDrop,
  kTable,
  kSink,
  kQueryRope,
  kKeyRope,
  kQueryFactor,
  kScoreFactor,
  kWeightFactor,
  kValueFactor,
  kOutScale,
  kOutOffset,
  kKeyScale,
  kKeyOffset,
  kValueScale,
  kValueOffset,
  kPartial,
  kFirstKeys
};

kernels::AttentionOperands OperandsOf(const Launch& launch) {
  const size_t lists = (launch.refs.size() - kFirstKeys) / 2;
  return {.query = launch.refs[kQuery],
          .mask = launch.refs[kMask],
          .shift = launch.refs[kShift],
          .drop = launch.refs[kDrop],
          .table = launch.refs[kTable],
          .sink = launch.refs[kSink],
          .query_rope = launch.refs[kQueryRope],
          .key_rope = launch.refs[kKeyRope],
          .query_factor = launch.refs[kQueryFactor],
          .score_factor = launch.refs[kScoreFactor],
          .weight_factor = launch.refs[kWeightFactor],
          .value_factor = launch.refs[kValueFactor],
          .out_scale = launch.refs[kOutScale],
          .out_offset = launch.refs[kOutOffset],
          .key_factors = {launch.refs[kKeyScale], launch.refs[kKeyOffset], launch.ints[0] != 0},
          .value_factors = {launch.refs[kValueScale], launch.refs[kValueOffset], launch.ints[1] != 0},
          .out = launch.refs[kOut],
          .maximum = launch.refs[kMaximum],
          .sum = launch.refs[kSum],
          .log_sum = launch.refs[kLogSum],
          .keys = {launch.refs.begin() + kFirstKeys, lists},
          .values = {launch.refs.begin() + kFirstKeys + lists, lists}};
}

void RunAttention(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::Attend(launch.State<AttentionSetup>(), OperandsOf(launch), range,
                  static_cast<float*>(launch.Ref(kPartial, memory).data), memory.scratch);
}

void RunMerge(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::MergeAttention(launch.State<AttentionSetup>(), OperandsOf(launch), range,
                          static_cast<const float*>(launch.Ref(kPartial, memory).data), memory.scratch);
}

void RunZero(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Fill(launch.refs[0], launch.scalars[0], range);
}

// What the largest call with these shapes needs.
void LowerSize(OpCall& call, Attention& a) {
  AttentionSetup& setup = *a.setup;
  kernels::PrepareAttention(setup, a.capacity);
  const int64_t partials = kernels::MostAttentionPartials(setup, a.capacity);
  call.Temporary(kernels::DType::kFloat, {&partials, 1});
  for (int i = 0; i < 2; ++i) {  // of Attend and of MergeAttention, each in as many parts as there can be
    Launch& launch = call.AddLaunch(RunAttention);
    launch.units = INT32_MAX;
    launch.grain = 1;
    call.AddScratch(launch, static_cast<uint64_t>(kernels::AttentionScratchBytes(setup)));
  }
}

// Views of the statistics that the call asks for.
struct Statistics {
  TensorRef maximum, sum, log_sum;
  const Operand* log_sum_operand = nullptr;  // null if it is not written
};

// Statistics that nobody asks for and that have memory become zeros.
StatusOr<Statistics> ReadStatistics(OpCall& call, const Attention& a) {
  const Kind kind = KindOf(call);
  const Parts& parts = a.parts;
  Statistics result;
  if (kind == kTraining) {
    REPRISE_ASSIGN_OR_RETURN(result.maximum,
                             StatisticView(call, *parts.maximum, a.query, a.is_packed, kStatisticCopies));
    REPRISE_ASSIGN_OR_RETURN(result.sum, StatisticView(call, *parts.sum, a.query, a.is_packed, kStatisticCopies));
  } else if (kind == kFused && call.Bool("softmaxLseFlag")) {
    const Operand* log_sum = parts.log_sum;
    if (log_sum == nullptr) {
      return Error(kOperatorArgumentNull, fmt::format("{}: softmaxLse is null", call.op.name))
          .Hint("pass an aclTensor for it, or leave out what asks for it");
    }
    result.log_sum_operand = log_sum;
    if (log_sum->dtype != kernels::DType::kFloat) {
      return call.InvalidOperand(*log_sum, fmt::format("has {}, expected float32", kernels::Name(log_sum->dtype)));
    }
    REPRISE_ASSIGN_OR_RETURN(result.log_sum, StatisticView(call, *log_sum, a.query, a.is_packed, 1));
  } else if (parts.log_sum != nullptr) {
    Launch& zero = call.AddLaunch(RunZero);
    call.Write(zero, *parts.log_sum);
    zero.scalars.push_back(kernels::Scalar::Of(0.0f));
    zero.units = parts.log_sum->tensor->count;
    zero.grain = GrainOf(1);
  }
  return result;
}

// `partial`: what Attend leaves for MergeAttention.
void AddAttention(OpCall& call, const Attention& a, const Statistics& statistics, const TensorRef& partial,
                  bool is_merge) {
  const Parts& parts = a.parts;
  const AttentionSetup& setup = *a.setup;
  Launch& launch = call.AddLaunch(is_merge ? RunMerge : RunAttention);
  call.Write(launch, *parts.out, a.out.ref);
  AddOptional(call, launch, parts.maximum, statistics.maximum, true);
  AddOptional(call, launch, parts.sum, statistics.sum, true);
  AddOptional(call, launch, statistics.log_sum_operand, statistics.log_sum, true);
  call.Read(launch, *parts.query, a.query.ref);
  AddOptional(call, launch, a.mask_operand, a.mask, false);
  AddOptional(call, launch, parts.shift, a.shift, false);
  AddOptional(call, launch, parts.drop, a.drop, false);
  AddOptional(call, launch, parts.table, a.table, false);
  AddOptional(call, launch, parts.sink, a.sink, false);
  AddOptional(call, launch, parts.query_rope, a.query_rope, false);
  AddOptional(call, launch, parts.key_rope, a.key_rope, false);
  const auto number = [&](const Operand* operand) {
    AddOptional(call, launch, operand, operand != nullptr ? call.RefOf(*operand) : TensorRef(), false);
  };
  AddOptional(call, launch, parts.query_factor, a.query_factor, false);
  for (const Operand* factor : {parts.score_factor, parts.weight_factor, parts.value_factor}) number(factor);
  AddOptional(call, launch, parts.out_scale, a.out_scale, false);
  AddOptional(call, launch, parts.out_offset, a.out_offset, false);
  const auto either = [](const Operand* own, const Operand* both) { return own != nullptr ? own : both; };
  AddOptional(call, launch, either(parts.key_scale, parts.both_scale), a.key_scale, false);
  AddOptional(call, launch, either(parts.key_offset, parts.both_offset), a.key_offset, false);
  AddOptional(call, launch, either(parts.value_scale, parts.both_scale), a.value_scale, false);
  AddOptional(call, launch, either(parts.value_offset, parts.both_offset), a.value_offset, false);
  launch.ints.push_back(a.key_scale_in_pages ? 1 : 0);
  launch.ints.push_back(a.value_scale_in_pages ? 1 : 0);
  if (!setup.is_split) {
    call.ReadOptional(launch, nullptr);
  } else if (is_merge) {
    call.ReadTemporary(launch, partial);
  } else {
    call.WriteTemporary(launch, partial);
  }
  for (size_t i = 0; i < a.keys.size(); ++i) call.Read(launch, parts.keys[i], a.keys[i].ref);
  for (size_t i = 0; i < a.values.size(); ++i) call.Read(launch, parts.values[i], a.values[i].ref);
  launch.state = a.setup;
  launch.units = is_merge ? setup.merge_units : setup.units;
  // By the room that there is, not by the keys of this call, so that a call with other lengths is cut alike.
  const int64_t rows = a.query.batch() * setup.heads * a.query.tokens();
  const int64_t work =
      rows * (is_merge ? setup.value_depth * setup.pieces : a.capacity * (setup.depth + setup.value_depth));
  const int64_t per_unit = work / std::max<int64_t>(1, launch.units);
  launch.grain = GrainOfProduct(per_unit);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::AttentionScratchBytes(setup)));
}

Status LowerAttention(OpCall& call) {
  Attention a;
  REPRISE_RETURN_IF_ERROR(Describe(call, a));
  if (call.only_tells_size()) {
    LowerSize(call, a);
    return {};
  }
  REPRISE_ASSIGN_OR_RETURN(const Statistics statistics, ReadStatistics(call, a));
  if (a.parts.out->tensor->count == 0) return {};
  AttentionSetup& setup = *a.setup;
  kernels::PrepareAttention(setup, a.capacity);
  TensorRef partial;
  if (setup.is_split) {
    const int64_t count = kernels::AttentionPartialCount(setup);
    partial = call.Temporary(kernels::DType::kFloat, {&count, 1});
  }
  AddAttention(call, a, statistics, partial, false);
  if (setup.is_split) AddAttention(call, a, statistics, partial, true);
  return {};
}

}  // namespace
}  // namespace reprise::ops::attention

namespace reprise::ops {

using namespace attention;  // NOLINT: the functions that the rows name

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/attention.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
