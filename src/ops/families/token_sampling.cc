// SPDX-License-Identifier: Apache-2.0
//
// Sampling of tokens and the step to the next one (kernels/token_sampling.h).
#include "kernels/token_sampling.h"

#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::TokenSampling;

constexpr int64_t kSamplingCost = 64;    // of a logit: its place in the order, its exponential
constexpr int64_t kMostSampledK = 1024;  // of the first version

Status TokenSamplingShape(OpCall& call) {
  const Operand& logits = call.Get("logits");
  if (logits.rank() != 2 || logits.sizes()[1] == 0) {
    return call.InvalidOperand(logits, fmt::format("has shape {}, expected [batch, vocabulary], with a token at least",
                                                   ShapeText(logits.sizes())));
  }
  for (const std::string_view name : {"topK", "topP", "minPs", "logitsSelectIdx"}) {
    if (!call.Has(name) || call.Find(name) == nullptr || call.Get(name).tensor->count == 0) continue;
    REPRISE_RETURN_IF_ERROR(
        call.CheckCount(call.Get(name), logits.sizes().first(1), [] { return "one element for each row,"; }));
  }
  if (call.Get("topK").tensor->count != logits.sizes()[0] || call.Get("topP").tensor->count != logits.sizes()[0]) {
    return call.Invalid(fmt::format("topK {} and topP {} have other numbers of elements than logits {} has rows",
                                    ShapeText(call.Get("topK").sizes()), ShapeText(call.Get("topP").sizes()),
                                    ShapeText(logits.sizes())));
  }
  const bool needs_logits = call.Bool("isNeedLogits");
  const bool needs_samples = call.Has("isNeedSampleResult") && call.Bool("isNeedSampleResult");
  const auto check = [&](std::string_view name, bool is_needed) -> Status {
    if (!call.Has(name) || !is_needed) return {};
    const Operand* const operand = call.Find(name);
    if (operand == nullptr) return call.Invalid(fmt::format("{} is null, but asked for", name), "pass a tensor");
    return call.CheckShape(*operand, logits.sizes(), [] { return "the shape of logits,"; });
  };
  REPRISE_RETURN_IF_ERROR(check("q", call.Find("q") != nullptr && call.Get("q").tensor->count != 0));
  REPRISE_RETURN_IF_ERROR(check("logitsTopKPSelect", needs_logits));
  REPRISE_RETURN_IF_ERROR(check("logitsIdx", needs_samples));
  return check("logitsSortMasked", needs_samples);
}

// refs: token, kept, order, sorted, logits, top_k, top_p, q, min_p.
void RunSampling(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  TokenSampling sampling = launch.State<TokenSampling>();
  sampling.token = launch.RefOrNull(0);
  sampling.kept = launch.RefOrNull(1);
  sampling.order = launch.RefOrNull(2);
  sampling.sorted = launch.RefOrNull(3);
  sampling.logits = launch.RefOrNull(4);
  sampling.top_k = launch.RefOrNull(5);
  sampling.top_p = launch.RefOrNull(6);
  sampling.q = launch.RefOrNull(7);
  sampling.min_p = launch.RefOrNull(8);
  kernels::SampleTokens(sampling, memory.scratch, range);
}

Status LowerSampling(OpCall& call) {
  auto settings = std::make_shared<TokenSampling>();
  settings->eps = call.Real("eps");
  settings->most_k = call.Has("ksMax") ? call.Int("ksMax") : kMostSampledK;
  settings->is_logits = !call.Has("inputIsLogits") || call.Bool("inputIsLogits");
  const bool needs_samples = call.Has("isNeedSampleResult") && call.Bool("isNeedSampleResult");
  const auto given = [&](std::string_view name) -> const Operand* {
    const Operand* const operand = call.Has(name) ? call.Find(name) : nullptr;
    return operand != nullptr && operand->tensor->count != 0 ? operand : nullptr;
  };
  const Operand& logits = call.Get("logits");
  Launch& launch = call.AddLaunch(RunSampling);
  launch.state = std::move(settings);
  call.Write(launch, call.Get("logitsSelectIdx"));
  call.WriteOptional(launch, call.Bool("isNeedLogits") ? given("logitsTopKPSelect") : nullptr);
  call.WriteOptional(launch, needs_samples ? given("logitsIdx") : nullptr);
  call.WriteOptional(launch, needs_samples ? given("logitsSortMasked") : nullptr);
  call.Read(launch, logits);
  call.Read(launch, call.Get("topK"));
  call.Read(launch, call.Get("topP"));
  call.ReadOptional(launch, given("q"));
  call.ReadOptional(launch, given("minPs"));
  launch.units = logits.sizes()[0];
  launch.grain = GrainOf(logits.sizes()[1] * kSamplingCost);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::TokenSamplingScratchBytes(logits.sizes()[1])));
  return {};
}

// ---- The step to the next token ----

constexpr std::string_view kAdvanced[] = {"inputTokens", "inputPositions", "seqLens", "slotMapping"};

Status AdvanceStepShape(OpCall& call) {
  const int64_t sequences = call.Int("numSeqs");
  const int64_t queries = call.Int("numQueries");
  for (const std::string_view name : {"specToken", "acceptedNum"}) {
    if (!call.Has(name) || call.Find(name) == nullptr) continue;
    return call.Invalid(fmt::format("{} is given, but steps with guessed tokens are not computed", name),
                        "pass null for specToken and acceptedNum, and move guessed tokens by operators of their own");
  }
  if (queries < 0 || queries > sequences || call.Int("blockSize") < 1) {
    return call.Invalid(
        fmt::format("numQueries is {}, numSeqs {}, blockSize {}", queries, sequences, call.Int("blockSize")),
        "pass as many queries as sequences or fewer, and blocks of one token at least");
  }
  for (const std::string_view name : kAdvanced) {
    REPRISE_RETURN_IF_ERROR(call.CheckCount(call.Get(name), {&sequences, 1}, [] { return "numSeqs elements:"; }));
  }
  REPRISE_RETURN_IF_ERROR(
      call.CheckCount(call.Get("sampledTokenIds"), {&queries, 1}, [] { return "numQueries elements:"; }));
  const Operand& blocks = call.Get("blockTables");
  if (blocks.rank() == 2 && blocks.sizes()[0] >= queries) return {};
  return call.InvalidOperand(
      blocks, fmt::format("has shape {}, expected [numSeqs = {}, blocks]", ShapeText(blocks.sizes()), sequences));
}

void RunAdvance(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::AdvanceSequences({.tokens = &launch.refs[0],
                             .positions = &launch.refs[1],
                             .lengths = &launch.refs[2],
                             .slots = &launch.refs[3],
                             .sampled = &launch.refs[4],
                             .blocks = &launch.refs[5],
                             .block_size = launch.ints[0]},
                            range);
}

Status LowerAdvance(OpCall& call) {
  Launch& launch = call.AddLaunch(RunAdvance);
  for (const std::string_view name : kAdvanced) call.Write(launch, call.Get(name));
  call.Read(launch, call.Get("sampledTokenIds"));
  call.Read(launch, call.Get("blockTables"));
  launch.ints.push_back(call.Int("blockSize"));
  launch.units = call.Int("numQueries");
  launch.grain = GrainOf(kSamplingCost);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/token_sampling.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
