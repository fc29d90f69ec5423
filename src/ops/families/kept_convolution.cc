// SPDX-License-Identifier: Apache-2.0
//
// Causal convolutions of sequences that go on from call to call.
#include "kernels/kept_convolution.h"

#include <limits>
#include <memory>

#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::KeptConvolution;
using kernels::KeptConvolutionOperands;

// What a sequence with blocks has a number of, each.
constexpr const char* kBlockIndices[] = {"blockIdxFirstScheduledTokenOptional", "blockIdxLastScheduledTokenOptional",
                                         "initialStateIdxOptional"};

bool HasBlocks(const OpCall& call) {
  const Operand* const lines = call.Find("cacheIndicesOptional");
  return lines != nullptr && lines->rank() == 2;
}

Status KeptTypes(OpCall& call) {
  call.compute = call.Get("x").dtype;
  for (const char* name : {"weight", "convStates", "y"}) {
    if (!call.Has(name)) continue;
    const Operand& operand = call.Get(name);
    if (operand.dtype == call.compute) continue;
    return call.InvalidOperand(operand, fmt::format("has {}, expected the type {} of x", kernels::Name(operand.dtype),
                                                    kernels::Name(call.compute)));
  }
  return {};
}

Status CheckKeptModes(const OpCall& call) {
  for (const char* name : {"residualConnection", "convMode"}) {
    const int64_t mode = call.Int(name);
    if (mode != 0 && mode != 1) return call.Invalid(fmt::format("{} is {}, expected 0 or 1", name, mode));
  }
  if (call.Int("convMode") == 1 && call.Find("numComputedTokensOptional") == nullptr) {
    return call.Invalid("numComputedTokensOptional is null, but convMode is 1",
                        "tell how many tokens of each sequence have been computed, or pass convMode 0");
  }
  return {};
}

// Where sequences have a line for each of their blocks.
Status CheckBlocks(OpCall& call) {
  const bool has_blocks = HasBlocks(call);
  for (const char* name : {kBlockIndices[0], kBlockIndices[1], kBlockIndices[2], "numComputedTokensOptional"}) {
    const bool belongs_to_blocks = name != std::string_view("numComputedTokensOptional");
    const bool is_given = call.Find(name) != nullptr;
    if (has_blocks && !is_given) {
      return call.Invalid(
          fmt::format("{} is null, but cacheIndicesOptional has a row of blocks for each sequence", name),
          "pass it, or cacheIndicesOptional with one number for each sequence");
    }
    if (!has_blocks && is_given && belongs_to_blocks) {
      return call.Invalid(
          fmt::format("{} is given, but cacheIndicesOptional has no row of blocks for each sequence", name),
          "pass null for it, or cacheIndicesOptional of shape [sequences, blocks]");
    }
  }
  const int64_t block = call.Int("blockSize");
  if (has_blocks && (block < 2 || block > std::numeric_limits<int32_t>::max())) {
    return call.Invalid(fmt::format("blockSize is {}, expected 2 or more", block));
  }
  return {};
}

StatusOr<int64_t> CountSequences(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand* const starts = call.Find("queryStartLocOptional");
  if (starts == nullptr) {
    if (x.rank() == 3) return x.sizes()[0];
    return call.Invalid("queryStartLocOptional is null, but x has two dims",
                        "tell where each sequence begins, and where the last one ends");
  }
  if (starts->rank() != 1 || starts->sizes()[0] == 0) {
    return call.InvalidOperand(*starts,
                               fmt::format("has shape {}, expected [sequences + 1]", ShapeText(starts->sizes())));
  }
  return starts->sizes()[0] - 1;
}

Status KeptShape(OpCall& call) {
  const Operand& x = call.Get("x");
  const Operand& weight = call.Get("weight");
  const Operand& states = call.Get("convStates");
  if (x.rank() != 2 && x.rank() != 3) {
    return call.InvalidOperand(
        x, fmt::format("has shape {}, expected [tokens, channels] or [batch, tokens, channels]", ShapeText(x.sizes())));
  }
  const int64_t channels = x.sizes().back();
  if (weight.rank() != 2 || weight.sizes()[0] < 1 || weight.sizes()[0] > kernels::kMostTaps ||
      weight.sizes()[1] != channels) {
    return call.InvalidOperand(weight, fmt::format("has shape {}, expected [window, {}] with a window of 1 to {}",
                                                   ShapeText(weight.sizes()), channels, kernels::kMostTaps));
  }
  if (states.rank() != 3 || states.sizes()[1] < weight.sizes()[0] - 1 || states.sizes()[2] != channels) {
    return call.InvalidOperand(states, fmt::format("has shape {}, expected [lines, {} tokens or more, {}]",
                                                   ShapeText(states.sizes()), weight.sizes()[0] - 1, channels));
  }
  REPRISE_RETURN_IF_ERROR(CheckKeptModes(call));
  REPRISE_ASSIGN_OR_RETURN(const int64_t sequences, CountSequences(call));
  const std::span<const int64_t> each(&sequences, 1);
  const Operand* const lines = call.Find("cacheIndicesOptional");
  if (lines != nullptr && !HasBlocks(call)) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(*lines, each, [] { return "one for each sequence, or a row:"; }));
  } else if (lines != nullptr && lines->sizes()[0] != sequences) {
    return call.InvalidOperand(*lines, fmt::format("has shape {}, expected a row for each of {} sequences",
                                                   ShapeText(lines->sizes()), sequences));
  }
  if (lines == nullptr && states.sizes()[0] < sequences) {
    return call.InvalidOperand(states, fmt::format("has shape {}: {} lines for {} sequences", ShapeText(states.sizes()),
                                                   states.sizes()[0], sequences));
  }
  REPRISE_RETURN_IF_ERROR(CheckBlocks(call));
  for (const char* name : {"numAcceptedTokensOptional", "numComputedTokensOptional", kBlockIndices[0], kBlockIndices[1],
                           kBlockIndices[2]}) {
    if (const Operand* operand = call.Find(name)) {
      REPRISE_RETURN_IF_ERROR(call.CheckShape(*operand, each, [] { return "one for each sequence:"; }));
    }
  }
  if (!call.Has("y")) return {};
  return call.CheckShape(call.Get("y"), x.sizes(), [] { return "the shape of x,"; });
}

// refs: out, states, x, weight, starts, lines, accepted, computed, first block, last block, initial block.
void RunKept(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const Refs& refs = launch.refs;
  const KeptConvolutionOperands operands = {.x = refs[2],
                                            .out = refs[0],
                                            .weight = refs[3],
                                            .states = refs[1],
                                            .starts = refs[4],
                                            .lines = refs[5],
                                            .accepted = refs[6],
                                            .computed = refs[7],
                                            .first_block = refs[8],
                                            .last_block = refs[9],
                                            .initial_block = refs[10]};
  kernels::ConvolveKept(launch.State<KeptConvolution>(), operands, range);
}

Status LowerKept(OpCall& call) {
  const Operand& x = call.Get("x");
  const std::span<const int64_t> states = call.Get("convStates").sizes();
  const bool is_in_place = !call.Has("y");
  auto shape = std::make_shared<KeptConvolution>();
  REPRISE_ASSIGN_OR_RETURN(shape->sequences, CountSequences(call));
  shape->channels = x.sizes().back();
  shape->batch_tokens = x.sizes()[x.sizes().size() - 2];
  shape->tokens = (x.rank() == 3 ? x.sizes()[0] : 1) * shape->batch_tokens;
  shape->window = call.Get("weight").sizes()[0];
  shape->lines = states[0];
  shape->line_tokens = states[1];
  shape->blocks = HasBlocks(call) ? call.Get("cacheIndicesOptional").sizes()[1] : 0;
  shape->block_tokens = call.Int("blockSize");
  shape->skipped_line = call.Int("padSlotId");
  shape->adds_input = call.Int("residualConnection") == 1;
  shape->clears_start = call.Int("convMode") == 1;
  shape->is_in_place = is_in_place;
  Launch& launch = call.AddLaunch(RunKept);
  call.Write(launch, is_in_place ? x : call.Get("y"));
  call.Write(launch, call.Get("convStates"));
  call.Read(launch, x);
  call.Read(launch, call.Get("weight"));
  for (const char* name : {"queryStartLocOptional", "cacheIndicesOptional", "numAcceptedTokensOptional",
                           "numComputedTokensOptional", kBlockIndices[0], kBlockIndices[1], kBlockIndices[2]}) {
    call.ReadOptional(launch, call.Find(name));
  }
  launch.units = (shape->channels + kernels::kTapChannels - 1) / kernels::kTapChannels;
  launch.grain = GrainOf(shape->tokens * kernels::kTapChannels * (shape->window + 1));
  launch.state = std::move(shape);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/kept_convolution.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
