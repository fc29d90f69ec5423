// SPDX-License-Identifier: Apache-2.0
//
// The cross entropy of a linear layer whose vocabulary may lie on several devices: what each part contributes, the loss
// of the whole, and the gradients of a part.
#include <cmath>

#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/families/recurrent_parts.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace vocabulary {
namespace {

using kernels::DType;
using recurrent::Part;

constexpr int64_t kBits = 8;        // of a byte of the mask
constexpr int64_t kLogitCost = 16;  // light elements: an exponential
constexpr auto kRow = [] { return "one number for each row,"; };

Part PartOf(const Dense& dense) {
  return {dense.is_temporary ? nullptr : dense.operand, dense.ref, dense.is_temporary};
}

Status CheckLayer(OpCall& call) {
  const Operand& input = call.Get("input");
  const Operand& weight = call.Get("weight");
  if (input.rank() == 2 && weight.rank() == 2 && input.sizes()[1] == weight.sizes()[1] && weight.sizes()[0] > 0) {
    return {};
  }
  return call.Invalid(
      fmt::format("input has shape {} and weight {}, expected [rows, features] and [vocabulary, features]",
                  ShapeText(input.sizes()), ShapeText(weight.sizes())));
}

Status CheckNoSmoothing(const OpCall& call) {
  if (call.Real("labelSmoothing") == 0) return {};
  return call.Invalid(fmt::format("labelSmoothing is {}, which is not computed", call.Real("labelSmoothing")),
                      "pass 0");
}

// input x weight^T, rounded to their type.
Dense AddLogits(OpCall& call, const Operand* result) {
  const int64_t sizes[] = {call.Get("input").sizes()[0], call.Get("weight").sizes()[0]};
  const Dense logits =
      result != nullptr ? DenseOutput(call, *result, call.compute) : DenseTemporary(call, call.compute, sizes);
  recurrent::AddProduct(call, PartOf(logits), recurrent::PartOf(call, &call.Get("input")),
                        recurrent::Swapped(recurrent::PartOf(call, &call.Get("weight")), 0, 1), {});
  return logits;
}

// ---- What a part contributes ----

// refs: maximum, sum, predicted, mask, own index, logits, target. A unit is eight rows, one byte of the mask.
void RunPart(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const int64_t rows = launch.ints[0], vocabulary = launch.ints[1], begin = launch.ints[2], end = launch.ints[3];
  const auto* logits = DataOf<float>(launch, 5, memory);
  const auto* target = DataOf<int64_t>(launch, 6, memory);
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    unsigned mask = 0;
    for (int64_t row = unit * kBits; row < (unit + 1) * kBits; ++row) {
      mask <<= 1;
      if (row >= rows) {
        mask |= 1;
        continue;
      }
      const float* const line = logits + row * vocabulary;
      float most = line[0];
      for (int64_t j = 1; j < vocabulary; ++j) most = line[j] > most || std::isnan(line[j]) ? line[j] : most;
      double sum = 0;
      for (int64_t j = 0; j < vocabulary; ++j) sum += static_cast<double>(std::exp(line[j] - most));
      const int64_t own = target[row] - begin;
      const bool is_out = target[row] < begin || target[row] > end || own >= vocabulary;
      mask |= is_out ? 1U : 0U;
      DataOf<float>(launch, 0, memory)[row] = most;
      DataOf<float>(launch, 1, memory)[row] = static_cast<float>(sum);
      DataOf<float>(launch, 2, memory)[row] = is_out ? 0 : line[own] - most;
      DataOf<int64_t>(launch, 4, memory)[row] = is_out ? 0 : own;
    }
    DataOf<uint8_t>(launch, 3, memory)[unit] = static_cast<uint8_t>(mask);
  }
}

}  // namespace

Status PartShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckLayer(call));
  const int64_t rows = call.Get("input").sizes()[0];
  const int64_t begin = call.Int("vocabStartIndex"), end = call.Int("vocabEndIndex");
  if (begin < 0 || end < begin) {
    return call.Invalid(fmt::format("vocabStartIndex is {} and vocabEndIndex {}", begin, end),
                        "pass the first and the last index of this part of the vocabulary");
  }
  for (const std::string_view name :
       {"target", "logitsMaxLocalOut", "sumExpLogitsLocalOut", "predictedLogitsLocalOut", "maskedTargetOut"}) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), {&rows, 1}, kRow));
  }
  const int64_t bytes = (rows + kBits - 1) / kBits;
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("targetMaskOut"), {&bytes, 1}, [] { return "a bit for each row,"; }));
  if (call.Find("vocabParallelLogitsOutOptional") == nullptr) return {};
  const int64_t logits[] = {rows, call.Get("weight").sizes()[0]};
  return call.CheckShape(call.Get("vocabParallelLogitsOutOptional"), logits, [] { return "[rows, vocabulary]:"; });
}

Status LowerPart(OpCall& call) {
  const Dense logits = AddLogits(call, call.Find("vocabParallelLogitsOutOptional"));
  const Dense wide = DenseTemporary(call, DType::kFloat, {logits.ref.sizes, 2});
  recurrent::AddCopyOf(call, PartOf(wide), PartOf(logits));
  const Dense target = DenseInput(call, call.Get("target"), DType::kInt64);
  const Dense results[] = {DenseOutput(call, call.Get("logitsMaxLocalOut"), DType::kFloat),
                           DenseOutput(call, call.Get("sumExpLogitsLocalOut"), DType::kFloat),
                           DenseOutput(call, call.Get("predictedLogitsLocalOut"), DType::kFloat),
                           DenseOutput(call, call.Get("targetMaskOut"), DType::kUInt8),
                           DenseOutput(call, call.Get("maskedTargetOut"), DType::kInt64)};
  Launch& launch = call.AddLaunch(RunPart);
  for (const Dense& result : results) result.Write(call, launch);
  wide.Read(call, launch);
  target.Read(call, launch);
  const int64_t rows = wide.ref.sizes[0], vocabulary = wide.ref.sizes[1];
  launch.ints.push_back(rows);
  launch.ints.push_back(vocabulary);
  launch.ints.push_back(call.Int("vocabStartIndex"));
  launch.ints.push_back(call.Int("vocabEndIndex"));
  launch.units = (rows + kBits - 1) / kBits;
  launch.grain = GrainOf(kBits * kLogitCost * vocabulary);
  for (const Dense& result : results) result.Store(call);
  if (call.Find("vocabParallelLogitsOutOptional") != nullptr) logits.Store(call);
  return {};
}

// ---- The loss of the whole ----

namespace {

// refs: loss, softmax, maximum, sum, predicted, logits. A unit is a row.
void RunWhole(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const int64_t vocabulary = launch.ints[0];
  const auto* most = DataOf<float>(launch, 2, memory);
  const auto* sum = DataOf<float>(launch, 3, memory);
  const auto* logits = DataOf<float>(launch, 5, memory);
  auto* const loss = DataOf<float>(launch, 0, memory);
  auto* const softmax = DataOf<float>(launch, 1, memory);
  for (int64_t row = range.begin; row < range.end; ++row) {
    if (loss != nullptr) loss[row] = std::log(sum[row]) - DataOf<float>(launch, 4, memory)[row];
    for (int64_t j = row * vocabulary; softmax != nullptr && j < (row + 1) * vocabulary; ++j) {
      softmax[j] = std::exp(logits[j] - most[row]) / sum[row];
    }
  }
}

Dense AddSoftmax(OpCall& call, const Dense& loss, const Dense& softmax, const Dense& predicted, const Dense& logits,
                 std::string_view most, std::string_view sum) {
  const Dense of_rows[] = {DenseInput(call, call.Get(most), DType::kFloat),
                           DenseInput(call, call.Get(sum), DType::kFloat)};
  Launch& launch = call.AddLaunch(RunWhole);
  loss.Write(call, launch);
  softmax.Write(call, launch);
  for (const Dense& each : of_rows) each.Read(call, launch);
  predicted.Read(call, launch);
  logits.Read(call, launch);
  launch.ints.push_back(logits.ref.rank == 2 ? logits.ref.sizes[1] : 0);
  launch.units = of_rows[0].ref.sizes[0];
  launch.grain = GrainOf(kLogitCost * (launch.ints[0] + 1));
  return softmax;
}

}  // namespace

Status WholeShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckNoSmoothing(call));
  const Operand& most = call.Get("logitsMax");
  if (most.rank() != 1) {
    return call.InvalidOperand(most, fmt::format("has shape {}, expected [rows]", ShapeText(most.sizes())));
  }
  for (const std::string_view name : {"sumExpLogits", "predictedLogits", "lossOut"}) {
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), most.sizes(), kRow));
  }
  const Operand* const logits = call.Find("vocabParallelLogitsOptional");
  const Operand* const softmax = call.Find("softMaxOutOptional");
  if (softmax == nullptr) return {};
  if (logits == nullptr) {
    return call.Invalid("softMaxOutOptional is given, but vocabParallelLogitsOptional is null",
                        "pass the logits, or null for both");
  }
  if (logits->rank() != 2 || logits->sizes()[0] != most.sizes()[0]) {
    return call.InvalidOperand(*logits, fmt::format("has shape {}, expected [rows = {}, vocabulary]",
                                                    ShapeText(logits->sizes()), most.sizes()[0]));
  }
  return call.CheckShape(*softmax, logits->sizes(), [] { return "the shape of vocabParallelLogitsOptional,"; });
}

Status LowerWhole(OpCall& call) {
  const Operand* const softmax_out = call.Find("softMaxOutOptional");
  const Dense logits =
      softmax_out != nullptr ? DenseInput(call, call.Get("vocabParallelLogitsOptional"), DType::kFloat) : Dense();
  const Dense predicted = DenseInput(call, call.Get("predictedLogits"), DType::kFloat);
  const Dense loss = DenseOutput(call, call.Get("lossOut"), DType::kFloat);
  const Dense softmax = DenseOutput(call, softmax_out, DType::kFloat);
  AddSoftmax(call, loss, softmax, predicted, logits, "logitsMax", "sumExpLogits");
  loss.Store(call);
  if (softmax_out != nullptr) softmax.Store(call);
  return {};
}

// ---- Gradients of a part ----

namespace {

// refs: of the logits, softmax, grad, mask, own index. A unit is a row.
void RunOfLogits(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const int64_t vocabulary = launch.ints[0];
  const auto* mask = DataOf<uint8_t>(launch, 3, memory);
  for (int64_t row = range.begin; row < range.end; ++row) {
    const float grad = DataOf<float>(launch, 2, memory)[row];
    const float* const from = DataOf<float>(launch, 1, memory) + row * vocabulary;
    float* const to = DataOf<float>(launch, 0, memory) + row * vocabulary;
    for (int64_t j = 0; j < vocabulary; ++j) to[j] = from[j] * grad;
    const bool is_out = (mask[row / kBits] >> (kBits - 1 - row % kBits) & 1) != 0;
    const int64_t own = DataOf<int64_t>(launch, 4, memory)[row];
    if (!is_out && own >= 0 && own < vocabulary) to[own] = (from[own] - 1) * grad;
  }
}

}  // namespace

Status PartGradientShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckNoSmoothing(call));
  REPRISE_RETURN_IF_ERROR(CheckLayer(call));
  const Operand& input = call.Get("input");
  const Operand& weight = call.Get("weight");
  const int64_t rows = input.sizes()[0];
  const bool has_softmax = call.Find("softmaxOptional") != nullptr;
  if (!has_softmax && (call.Find("logitsMaxOptional") == nullptr || call.Find("sumExpLogitsOptional") == nullptr)) {
    return call.Invalid("softmaxOptional is null, and so is logitsMaxOptional or sumExpLogitsOptional",
                        "pass the probabilities, or both of the others");
  }
  for (const std::string_view name : {"grad", "maskedTarget", "logitsMaxOptional", "sumExpLogitsOptional"}) {
    if (call.Find(name) == nullptr) continue;
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get(name), {&rows, 1}, kRow));
  }
  const int64_t bytes = (rows + kBits - 1) / kBits;
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("targetMask"), {&bytes, 1}, [] { return "a bit for each row,"; }));
  if (has_softmax) {
    const int64_t shape[] = {rows, weight.sizes()[0]};
    REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("softmaxOptional"), shape, [] { return "[rows, vocabulary]:"; }));
  }
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("inputGradOut"), input.sizes(), [] { return "the shape of input,"; }));
  return call.CheckShape(call.Get("weightGradOut"), weight.sizes(), [] { return "the shape of weight,"; });
}

Status LowerPartGradient(OpCall& call) {
  const int64_t sizes[] = {call.Get("input").sizes()[0], call.Get("weight").sizes()[0]};
  Dense softmax;
  if (call.Find("softmaxOptional") != nullptr) {
    softmax = DenseInput(call, call.Get("softmaxOptional"), DType::kFloat);
  } else {
    const Dense wide = DenseTemporary(call, DType::kFloat, sizes);
    recurrent::AddCopyOf(call, PartOf(wide), PartOf(AddLogits(call, nullptr)));
    softmax = DenseTemporary(call, DType::kFloat, sizes);
    AddSoftmax(call, {}, softmax, {}, wide, "logitsMaxOptional", "sumExpLogitsOptional");
  }
  const Dense grad = DenseInput(call, call.Get("grad"), DType::kFloat);
  const Dense mask = DenseInput(call, call.Get("targetMask"), DType::kUInt8);
  const Dense own = DenseInput(call, call.Get("maskedTarget"), DType::kInt64);
  const Dense of_logits = DenseTemporary(call, DType::kFloat, sizes);
  Launch& launch = call.AddLaunch(RunOfLogits);
  of_logits.Write(call, launch);
  for (const Dense* input : std::initializer_list<const Dense*>{&softmax, &grad, &mask, &own})
    input->Read(call, launch);
  launch.ints.push_back(sizes[1]);
  launch.units = sizes[0];
  launch.grain = GrainOf(2 * sizes[1]);
  const auto part = [&](std::string_view name) { return recurrent::PartOf(call, &call.Get(name)); };
  recurrent::AddProduct(call, part("inputGradOut"), PartOf(of_logits), part("weight"), {});
  recurrent::AddProduct(call, part("weightGradOut"), recurrent::Swapped(PartOf(of_logits), 0, 1), part("input"), {});
  return {};
}

}  // namespace vocabulary

using vocabulary::LowerPart;
using vocabulary::LowerPartGradient;
using vocabulary::LowerWhole;
using vocabulary::PartGradientShape;
using vocabulary::PartShape;
using vocabulary::WholeShape;

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/vocabulary_loss.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
