// SPDX-License-Identifier: Apache-2.0
//
// Attention with a state.
#include "kernels/delta_rule.h"

#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DeltaRuleOperands;

// refs: out, new state, query, key, value, beta, state, lengths, g, gk, names, accepted; scalars: scale.
DeltaRuleOperands DeltaRuleOperandsOf(const Launch& launch) {
  const Refs& refs = launch.refs;
  return {.query = refs[2],
          .key = refs[3],
          .value = refs[4],
          .beta = refs[5],
          .decay = refs[8],
          .key_decay = refs[9],
          .lengths = refs[7],
          .names = refs[10],
          .accepted = refs[11],
          .state = refs[6],
          .new_state = refs[1],
          .out = refs[0],
          .scale = launch.scalars[0].As<float>()};
}

void RunDeltaRule(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::DeltaRule(DeltaRuleOperandsOf(launch), range, memory.scratch);
}

const Operand* FindState(const OpCall& call, const char* name) { return call.Has(name) ? call.Find(name) : nullptr; }

const Operand& OldState(const OpCall& call) { return call.Get(call.Has("stateRef") ? "stateRef" : "initialState"); }

Status DeltaRuleShape(OpCall& call) {
  const Operand& query = call.Get("query");
  const Operand& key = call.Get("key");
  const Operand& value = call.Get("value");
  for (const Operand* operand : {&query, &key, &value}) {
    if (operand->rank() == 3) continue;
    return call.InvalidOperand(
        *operand, fmt::format("has shape {}, expected [tokens, heads, elements]", ShapeText(operand->sizes())));
  }
  const std::span<const int64_t> k = key.sizes();
  const std::span<const int64_t> v = value.sizes();
  REPRISE_RETURN_IF_ERROR(call.CheckShape(query, k, [] { return "the shape of key,"; }));
  if (k[0] != v[0] || k[1] == 0 || v[1] % k[1] != 0) {
    return call.InvalidOperand(value,
                               fmt::format("has shape {}, expected the {} tokens of key and a multiple of its {} "
                                           "heads",
                                           ShapeText(v), k[0], k[1]));
  }
  const Operand& state = OldState(call);
  const Operand& lengths = call.Get("actualSeqLengths");
  if (state.rank() != 4 || !std::equal(state.sizes().begin() + 1, state.sizes().end(),
                                       std::initializer_list<int64_t>{v[1], v[2], k[2]}.begin())) {
    return call.InvalidOperand(
        state, fmt::format("has shape {}, expected [states, {}, {}, {}]", ShapeText(state.sizes()), v[1], v[2], k[2]));
  }
  if (lengths.rank() != 1) {
    return call.InvalidOperand(lengths, fmt::format("has shape {}, expected one dim", ShapeText(lengths.sizes())));
  }
  const int64_t sequences = lengths.sizes()[0];
  const Operand* names = FindState(call, "ssmStateIndices");
  const bool fits = call.Has("stateRef") ? state.sizes()[0] >= sequences : state.sizes()[0] == sequences;
  if (names == nullptr && !fits) {
    return call.InvalidOperand(state, fmt::format("has shape {}: {} states for {} sequences", ShapeText(state.sizes()),
                                                  state.sizes()[0], sequences));
  }
  const int64_t of_token[] = {v[0], v[1], k[2]};
  for (const auto& [name, rank] : {std::pair("beta", 2), {"g", 2}, {"gk", 3}, {"ssmStateIndices", 1}}) {
    if (const Operand* operand = FindState(call, name)) {
      REPRISE_RETURN_IF_ERROR(call.CheckShape(*operand, {of_token, static_cast<size_t>(rank)},
                                              [] { return "one for each token, and head, and element:"; }));
    }
  }
  if (const Operand* accepted = FindState(call, "numAcceptedTokens")) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*accepted, {&sequences, 1}, [] { return "one for each sequence:"; }));
  }
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("out"), v, [] { return "the shape of value,"; }));
  if (const Operand* final_state = FindState(call, "finalState")) {
    return call.CheckShape(*final_state, state.sizes(), [] { return "the shape of initialState,"; });
  }
  return {};
}

Status DeltaRuleTypes(OpCall& call) {
  call.compute = call.Get("query").dtype;
  for (const char* name : {"key", "value"}) {
    const Operand& operand = call.Get(name);
    if (operand.dtype == call.compute) continue;
    return call.InvalidOperand(operand, fmt::format("has {}, expected the type {} of query",
                                                    kernels::Name(operand.dtype), kernels::Name(call.compute)));
  }
  return {};
}

Status LowerDeltaRule(OpCall& call) {
  const Operand& out = call.Get("out");
  const Operand& state = OldState(call);
  Launch& launch = call.AddLaunch(RunDeltaRule);
  call.Write(launch, out);
  call.Write(launch, call.Get(call.Has("stateRef") ? "stateRef" : "finalState"));
  for (const char* name : {"query", "key", "value", "beta"}) call.ReadOptional(launch, call.Find(name));
  call.Read(launch, state);
  call.Read(launch, call.Get("actualSeqLengths"));
  for (const char* name : {"g", "gk", "ssmStateIndices", "numAcceptedTokens"}) {
    call.ReadOptional(launch, FindState(call, name));
  }
  launch.scalars.push_back(kernels::Scalar::Of(static_cast<float>(call.Real("scaleValue"))));
  launch.units = out.sizes()[1];
  launch.grain = GrainOf(out.sizes()[0] * state.sizes()[2] * state.sizes()[3]);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::DeltaRuleScratchBytes(DeltaRuleOperandsOf(launch))));
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/delta_rule.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
