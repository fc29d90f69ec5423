// SPDX-License-Identifier: Apache-2.0
#include "kernels/loss.h"

#include "kernels/class_loss.h"
#include "kernels/staged.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::ClassOperands;
using kernels::ClassSums;
using kernels::DType;
using kernels::LossOp;
using kernels::LossOperands;
using kernels::TensorRef;

// What becomes of the losses of single elements or samples.
enum Reduction : int64_t { kNone, kMean, kSum, kBatchMean };

// Elements whose losses one task adds up: cuts that do not depend on the threads.
constexpr int64_t kSumBlock = 16384;
// Light elements that one costs.
constexpr int64_t kLossCost = 2;
constexpr int64_t kExpCost = 8;

Status CheckReduction(const OpCall& call, int64_t most) {
  const int64_t reduction = call.Int("reduction");
  if (reduction >= 0 && reduction <= most) return {};
  return call.Invalid(fmt::format("reduction is {}, expected 0 (none), 1 (mean) or 2 (sum){}", reduction,
                                  most == kBatchMean ? " or 3 (mean over the batch)" : ""));
}

void StoreNumber(double value, const TensorRef& ref) {
  kernels::FindCast(DType::kDouble, ref.dtype)(reinterpret_cast<const char*>(&value), 0, static_cast<char*>(ref.data),
                                               0, 1);
}

double LoadNumber(const TensorRef& ref) {
  double value;
  kernels::FindCast(ref.dtype, DType::kDouble)(static_cast<const char*>(ref.data), 0, reinterpret_cast<char*>(&value),
                                               sizeof value, 1);
  return value;
}

// ---- Losses of elements ----

bool IsGradient(const OpCall& call) { return call.Has("gradOutput") || call.Has("gradOut"); }

// What the elements are compared in: self and target (and gradOutput) broadcast; nothing else may enlarge that.
Status ElementsShape(OpCall& call, Dims& shape) {
  const std::span<const int64_t> first = call.Get("self").sizes();
  shape = Dims(first.data(), first.size());
  for (const Operand& input : call.inputs) {
    Dims wider;
    if (!Broadcast(shape, input.sizes(), wider)) {
      return call.Invalid(fmt::format("{} do not broadcast: {} {} does not fit {}", call.InputShapes(),
                                      call.NameOf(input), ShapeText(input.sizes()), ShapeText(shape)),
                          "sizes, aligned at the last dim, must be equal or 1");
    }
    std::string_view name = call.op.params[input.param].name;
    if (name == "gradOut") name = "gradOutput";
    const bool may_widen = name == "target" || (name == "gradOutput" && call.Int("reduction") == kNone);
    if (!(wider == shape) && !may_widen && name != "self" && name != "gradOutput") {
      return call.InvalidOperand(input, fmt::format("has shape {}, which does not broadcast to {}",
                                                    ShapeText(input.sizes()), ShapeText(shape)));
    }
    if (!(name == "gradOutput" && call.Int("reduction") != kNone && input.tensor->count == 1)) shape = wider;
  }
  return {};
}

Status ElementLossShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckReduction(call, call.Has("logTarget") ? kBatchMean : kSum));
  Dims shape;
  REPRISE_RETURN_IF_ERROR(ElementsShape(call, shape));
  if (IsGradient(call) || call.Int("reduction") == kNone) {
    return call.CheckShape(call.outputs[0], shape, [] { return "the broadcast shape"; });
  }
  return call.CheckShape(call.outputs[0], {}, [] { return "the shape of a reduced loss,"; });
}

// refs: the result or its shape, x, target, those of weight, pos_weight and grad that are given, then what the sum is
// written to.
enum : size_t { kOpInt, kGivenInt, kBlockInt, kCountInt };
enum : size_t { kBetaScalar, kScaleScalar };
enum : int64_t { kHasWeight = 1, kHasPosWeight = 2, kHasGrad = 4 };

LossOperands OperandsOf(const Launch& launch) {
  LossOperands operands;
  operands.x = &launch.refs[1];
  operands.target = &launch.refs[2];
  const int64_t given = launch.ints[kGivenInt];
  size_t next = 3;
  if ((given & kHasWeight) != 0) operands.weight = &launch.refs[next++];
  if ((given & kHasPosWeight) != 0) operands.pos_weight = &launch.refs[next++];
  if ((given & kHasGrad) != 0) operands.grad = &launch.refs[next++];
  operands.beta = launch.scalars[kBetaScalar].As<double>();
  return operands;
}

void RunMapLoss(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  LossOperands operands = OperandsOf(launch);
  operands.scale = launch.scalars[kScaleScalar].As<double>();
  kernels::MapLoss(static_cast<LossOp>(launch.ints[kOpInt]), operands, launch.compute, launch.refs[0], range);
}

// A unit is a block of elements. A single one gives the result, several leave partial sums.
void RunSumLoss(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const LossOperands operands = OperandsOf(launch);
  const size_t last = launch.refs.size() - 1;
  const TensorRef result = launch.Ref(last, memory);
  const int64_t count = launch.ints[kCountInt];
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const kernels::Range elements = {unit * kSumBlock, std::min(count, (unit + 1) * kSumBlock)};
    const double sum = kernels::SumLoss(static_cast<LossOp>(launch.ints[kOpInt]), operands, launch.compute, elements);
    if (launch.uses[last].slot == OperandUse::kTemporary) {
      static_cast<double*>(result.data)[unit] = sum;
    } else {
      StoreNumber(sum / launch.scalars[kScaleScalar].As<double>(), result);
    }
  }
}

void RunAddUp(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  const TensorRef partials = launch.Ref(1, memory);
  const auto* sums = static_cast<const double*>(partials.data);
  double sum = 0;
  for (int64_t i = 0; i < partials.sizes[0]; ++i) sum += sums[i];
  StoreNumber(sum / launch.scalars[0].As<double>(), launch.refs[0]);
}

// What the sum of the losses is divided by.
double Divisor(const OpCall& call, int64_t count) {
  const int64_t reduction = call.Int("reduction");
  if (reduction == kMean) return static_cast<double>(count);
  if (reduction != kBatchMean) return 1;
  const std::span<const int64_t> sizes = call.Get("self").sizes();
  return sizes.empty() ? 1 : static_cast<double>(sizes[0]);
}

Status LowerElementLoss(OpCall& call) {
  const auto base = static_cast<LossOp>(call.op.computation.code);
  LossOp op = base;
  if (call.Has("logTarget") && call.Bool("logTarget")) {
    op = base == LossOp::kKl ? LossOp::kKlLog : base == LossOp::kKlGrad ? LossOp::kKlLogGrad : LossOp::kKlLogTargetGrad;
  }
  double beta = 0;
  if (call.Has("beta")) {
    beta = call.Real("beta");
    if (!(beta >= 0)) return call.Invalid(fmt::format("beta is {}, must not be negative", beta));
  }
  const bool is_mapped = IsGradient(call) || call.Int("reduction") == kNone;
  Dims shape;
  REPRISE_RETURN_IF_ERROR(ElementsShape(call, shape));
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  const double divisor = Divisor(call, count);
  const int64_t blocks = std::max<int64_t>(1, (count + kSumBlock - 1) / kSumBlock);
  TensorRef partials;
  if (!is_mapped && blocks > 1) partials = call.Temporary(DType::kDouble, {{blocks}});

  Launch& launch = call.AddLaunch(is_mapped ? RunMapLoss : RunSumLoss);
  launch.refs.reserve(6);
  launch.uses.reserve(6);
  if (is_mapped) {
    call.Write(launch, call.outputs[0]);
  } else {
    launch.refs.push_back(kernels::MakeContiguous(nullptr, call.compute, static_cast<int>(shape.size()), shape.data()));
    launch.uses.push_back({OperandUse::kAbsent, false});
  }
  call.Read(launch, call.Get("self"));
  call.Read(launch, call.Get("target"));
  int64_t given = 0;
  const auto add = [&](std::initializer_list<std::string_view> names, int64_t bit) {
    for (std::string_view name : names) {
      const Operand* operand = call.Has(name) ? call.Find(name) : nullptr;
      if (operand == nullptr) continue;
      call.Read(launch, *operand);
      given |= bit;
    }
  };
  add({"weight", "weightOptional"}, kHasWeight);
  add({"posWeightOptional"}, kHasPosWeight);
  add({"gradOutput", "gradOut"}, kHasGrad);
  Coalesce(launch.refs);
  for (int64_t value : {static_cast<int64_t>(op), given, kSumBlock, count}) launch.ints.push_back(value);
  launch.scalars.push_back(kernels::Scalar::Of(beta));
  const bool is_heavy = base != LossOp::kMse && base != LossOp::kL1 && base != LossOp::kMseGrad &&
                        base != LossOp::kL1Grad && base != LossOp::kSmoothL1Grad;
  const int64_t cost = is_heavy ? kExpCost : kLossCost;
  if (is_mapped) {
    launch.scalars.push_back(kernels::Scalar::Of(IsGradient(call) ? 1.0 / divisor : 1.0));
    launch.units = count;
    launch.grain = GrainOf(cost);
    return {};
  }
  launch.scalars.push_back(kernels::Scalar::Of(divisor));
  launch.units = blocks;
  launch.grain = GrainOf(kSumBlock * cost);
  if (blocks == 1) {
    call.Write(launch, call.outputs[0]);
    return {};
  }
  call.WriteTemporary(launch, partials);
  Launch& finish = call.AddLaunch(RunAddUp);
  finish.scalars.push_back(kernels::Scalar::Of(divisor));
  call.Write(finish, call.outputs[0]);
  call.ReadTemporary(finish, partials);
  finish.units = 1;
  return {};
}

// ---- Losses of classes ----

Status CheckSizes(OpCall& call, const Operand& operand, std::span<const int64_t> expected, std::string_view what) {
  return call.CheckShape(operand, expected, [&] { return std::string(what); });
}

Status CheckSingle(const OpCall& call, const Operand& operand) {
  if (operand.tensor->count == 1) return {};
  return call.InvalidOperand(operand, fmt::format("has shape {}, expected one element", ShapeText(operand.sizes())));
}

StatusOr<Reduction> ReductionOf(const OpCall& call) {
  if (!call.Has("reductionOptional")) {
    REPRISE_RETURN_IF_ERROR(CheckReduction(call, kSum));
    return static_cast<Reduction>(call.Int("reduction"));
  }
  const std::string_view text = call.Text("reductionOptional");
  if (text.empty() || text == "mean") return kMean;
  if (text == "sum") return kSum;
  if (text == "none") return kNone;
  return call.Invalid(fmt::format("reductionOptional is \"{}\", expected \"mean\", \"sum\" or \"none\"", text));
}

const Operand* FindIf(const OpCall& call, std::string_view name) { return call.Has(name) ? call.Find(name) : nullptr; }

const Operand* WeightOf(const OpCall& call) {
  const Operand* weight = FindIf(call, "weight");
  return weight != nullptr ? weight : FindIf(call, "weightOptional");
}

// The scores, whose dim of classes is dim 1, or 0 where there is no other.
const Operand& ScoresOf(const OpCall& call) {
  for (std::string_view name : {"self", "input", "logProb"}) {
    if (const Operand* scores = FindIf(call, name)) return *scores;
  }
  return call.inputs[0];
}

int ClassDim(const Operand& scores) { return scores.rank() == 1 ? 0 : 1; }

// `code` holds the rank that scores with samples have.
Status ClassLossShape(OpCall& call) {
  const Operand& scores = ScoresOf(call);
  const int rank = call.op.computation.code;
  const bool may_be_single = rank == 2 && call.Has("self");
  if (scores.rank() != rank && !(may_be_single && scores.rank() == 1)) {
    return call.InvalidOperand(
        scores, fmt::format("has shape {}, expected {} dims, classes in dim 1", ShapeText(scores.sizes()), rank));
  }
  const int dim = ClassDim(scores);
  Dims samples;
  for (int d = 0; d < scores.rank(); ++d) {
    if (d != dim) samples.push_back(scores.sizes()[static_cast<size_t>(d)]);
  }
  const int64_t classes = scores.sizes()[static_cast<size_t>(dim)];
  REPRISE_RETURN_IF_ERROR(CheckSizes(call, call.Get("target"), samples, "the shape of the samples"));
  if (const Operand* weight = WeightOf(call)) {
    REPRISE_RETURN_IF_ERROR(CheckSizes(call, *weight, {&classes, 1}, "one weight for each class:"));
  }
  REPRISE_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(call));
  for (std::string_view name : {"gradOutput", "gradLoss", "lossOut"}) {
    const Operand* operand = FindIf(call, name);
    if (operand == nullptr) continue;
    if (reduction == kNone) {
      REPRISE_RETURN_IF_ERROR(CheckSizes(call, *operand, samples, "the shape of the samples"));
    } else {
      REPRISE_RETURN_IF_ERROR(CheckSingle(call, *operand));
    }
  }
  for (std::string_view name : {"totalWeight", "totalWeightOut"}) {
    if (const Operand* operand = FindIf(call, name)) REPRISE_RETURN_IF_ERROR(CheckSingle(call, *operand));
  }
  if (const Operand* out = FindIf(call, "logProbOut")) {
    REPRISE_RETURN_IF_ERROR(CheckSizes(call, *out, scores.sizes(), "the shape of the scores"));
  }
  const Operand* out = FindIf(call, "out");
  if (out == nullptr) return {};
  if (call.Has("gradOutput") || call.Has("gradLoss")) {
    return CheckSizes(call, *out, scores.sizes(), "the shape of the scores");
  }
  if (reduction == kNone) return CheckSizes(call, *out, samples, "the shape of the samples");
  return CheckSingle(call, *out);
}

// refs: the loss or gradient, scores, target, weight, then those of one kind.
enum : size_t { kResultRef, kScoresRef, kTargetRef, kWeightRef, kOwnRef, kPartialsRef };
enum : size_t { kReductionInt, kIgnoredInt, kSamplesInt, kBlockSizeInt, kClassesInt };

ClassOperands ClassOperandsOf(const Launch& launch) {
  ClassOperands operands;
  operands.scores = &launch.refs[kScoresRef];
  operands.target = &launch.refs[kTargetRef];
  operands.weight = launch.RefOrNull(kWeightRef);
  operands.ignored = launch.ints[kIgnoredInt];
  operands.smoothing = launch.scalars[0].As<double>();
  return operands;
}

bool IsCrossEntropy(const Launch& launch) { return launch.op.id == OpId::kCrossEntropyLoss; }

void FinishClassLoss(const Launch& launch, const ClassSums& sums) {
  const int64_t reduction = launch.ints[kReductionInt];
  if (reduction != kNone) {
    const double smoothing = launch.scalars[0].As<double>();
    double loss = sums.loss.Value();
    if (smoothing != 0) {
      loss = (1 - smoothing) * loss + smoothing / static_cast<double>(launch.ints[kClassesInt]) * sums.smooth.Value();
    }
    StoreNumber(reduction == kMean ? loss / sums.weight.Value() : loss, launch.refs[kResultRef]);
  }
  if (IsCrossEntropy(launch)) return;
  // A loss for each of several samples has no total.
  const bool is_none = reduction == kNone && launch.refs[kTargetRef].rank != 0;
  StoreNumber(is_none ? 0 : sums.weight.Value(), launch.refs[kOwnRef]);
}

// A unit is a block of samples. A single one gives the result, several leave partial sums.
void RunClassLoss(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const ClassOperands operands = ClassOperandsOf(launch);
  const TensorRef* each = launch.ints[kReductionInt] == kNone ? &launch.refs[kResultRef] : nullptr;
  const int64_t block = launch.ints[kBlockSizeInt];
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    const kernels::Range samples = {unit * block, std::min(launch.ints[kSamplesInt], (unit + 1) * block)};
    ClassSums sums;
    if (IsCrossEntropy(launch)) {
      kernels::CrossEntropy(operands, launch.compute, launch.refs[kOwnRef], each, sums, memory.scratch, samples);
    } else {
      kernels::Nll(operands, launch.compute, each, sums, samples);
    }
    if (launch.refs.size() > kPartialsRef) {
      static_cast<ClassSums*>(launch.Ref(kPartialsRef, memory).data)[unit] = sums;
    } else {
      FinishClassLoss(launch, sums);
    }
  }
}

void RunFinishClassLoss(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  const TensorRef partials = launch.Ref(kPartialsRef, memory);
  const auto* parts = static_cast<const ClassSums*>(partials.data);
  ClassSums sums;
  for (int64_t i = 0; i < partials.sizes[0]; ++i) {
    sums.loss.Add(parts[i].loss);
    sums.weight.Add(parts[i].weight);
    sums.smooth.Add(parts[i].smooth);
  }
  FinishClassLoss(launch, sums);
}

Status CheckCrossEntropy(const OpCall& call) {
  const double smoothing = call.Real("labelSmoothing");
  if (!(smoothing >= 0 && smoothing <= 1)) {
    return call.Invalid(fmt::format("labelSmoothing is {}, expected a number from 0 to 1", smoothing));
  }
  if (call.Real("lseSquareScaleForZloss") != 0) {
    return call.Invalid(
        fmt::format("lseSquareScaleForZloss is {}, only 0 is supported", call.Real("lseSquareScaleForZloss")));
  }
  if (call.Has("returnZloss") && call.Bool("returnZloss")) {
    return call.Invalid("returnZloss is true, only false is supported");
  }
  return {};
}

// What all launches of a loss of classes begin with.
void BeginClassLaunch(OpCall& call, Launch& launch, const Operand& result, bool result_has_classes, Reduction reduction,
                      int64_t block, double smoothing) {
  const Operand& scores = ScoresOf(call);
  const int dim = ClassDim(scores);
  const int64_t classes = scores.sizes()[static_cast<size_t>(dim)];
  int64_t samples = 1;
  for (int64_t size : call.Get("target").sizes()) samples *= size;
  launch.refs.reserve(kPartialsRef + 1);
  launch.uses.reserve(kPartialsRef + 1);
  const TensorRef ref = call.RefOf(result);
  call.Write(launch, result, result_has_classes ? kernels::WithDimLast(ref, dim) : ref);
  call.Read(launch, scores, kernels::WithDimLast(call.RefOf(scores), dim));
  call.Read(launch, call.Get("target"));
  call.ReadOptional(launch, WeightOf(call));
  for (int64_t value : {static_cast<int64_t>(reduction), call.Int("ignoreIndex"), samples, block, classes}) {
    launch.ints.push_back(value);
  }
  launch.scalars.push_back(kernels::Scalar::Of(smoothing));
}

Status LowerClassLoss(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(call));
  const bool is_cross_entropy = call.Has("logProbOut");
  if (is_cross_entropy) REPRISE_RETURN_IF_ERROR(CheckCrossEntropy(call));
  const Operand& scores = ScoresOf(call);
  const int64_t samples = call.Get("target").tensor->count;
  const int64_t classes = scores.sizes()[static_cast<size_t>(ClassDim(scores))];
  const int64_t cost = is_cross_entropy ? std::max<int64_t>(1, classes) : 1;
  const int64_t block = std::max<int64_t>(1, kSumBlock / cost);
  const int64_t blocks = std::max<int64_t>(1, (samples + block - 1) / block);
  TensorRef partials;
  if (blocks > 1) partials = call.Temporary(DType::kDouble, {{blocks, static_cast<int64_t>(sizeof(ClassSums) / 8)}});
  const Operand& result = is_cross_entropy ? call.Get("lossOut") : call.Get("out");
  const Operand& own = is_cross_entropy ? call.Get("logProbOut") : call.Get("totalWeightOut");
  const double smoothing = is_cross_entropy ? call.Real("labelSmoothing") : 0;
  const auto add = [&](Launch::Kernel kernel) -> Launch& {
    Launch& launch = call.AddLaunch(kernel);
    BeginClassLaunch(call, launch, result, false, reduction, block, smoothing);
    call.Write(launch, own);
    return launch;
  };
  Launch& launch = add(RunClassLoss);
  if (blocks > 1) call.WriteTemporary(launch, partials);
  launch.units = blocks;
  launch.grain = GrainOf(block * (is_cross_entropy ? classes * kExpCost : kLossCost));
  if (is_cross_entropy) {
    call.AddScratch(launch, static_cast<uint64_t>(kernels::ClassScratchBytes(classes, call.compute)));
  }
  if (blocks == 1) return {};
  Launch& finish = add(RunFinishClassLoss);
  call.ReadTemporary(finish, partials);
  finish.units = 1;
  return {};
}

void RunNllGrad(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const double divisor = launch.ints[kReductionInt] == kMean ? LoadNumber(launch.refs[kPartialsRef]) : 1;
  kernels::NllGrad(ClassOperandsOf(launch), launch.refs[kOwnRef], divisor, launch.compute, launch.refs[kResultRef],
                   range);
}

Status LowerNllGrad(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(call));
  Launch& launch = call.AddLaunch(RunNllGrad);
  BeginClassLaunch(call, launch, call.Get("out"), true, reduction, 0, 0);
  call.Read(launch, call.Get("gradOutput"));
  call.Read(launch, call.Get("totalWeight"));
  if (call.outputs[0].tensor->count == 0) return {};
  launch.units = launch.ints[kSamplesInt];
  launch.grain = GrainOf(launch.ints[kClassesInt] / 2 + kLossCost);
  return {};
}

void RunSumOfWeights(const Launch& launch, kernels::Range, const Launch::KernelMemory& memory) {
  *static_cast<double*>(launch.Ref(kOwnRef, memory).data) =
      kernels::SumOfTargetWeights(ClassOperandsOf(launch), launch.compute, {0, launch.ints[kSamplesInt]});
}

void RunCrossEntropyGrad(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const bool is_mean = launch.ints[kReductionInt] == kMean;
  const double divisor = is_mean ? *static_cast<const double*>(launch.Ref(kPartialsRef, memory).data) : 1;
  kernels::CrossEntropyGrad(ClassOperandsOf(launch), launch.refs[kOwnRef], divisor, launch.compute,
                            launch.refs[kResultRef], memory.scratch, range);
}

Status LowerCrossEntropyGrad(OpCall& call) {
  REPRISE_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(call));
  REPRISE_RETURN_IF_ERROR(CheckCrossEntropy(call));
  const double smoothing = call.Real("labelSmoothing");
  const Operand& out = call.Get("out");
  if (out.tensor->count == 0) return {};
  TensorRef sum;
  if (reduction == kMean) {
    sum = call.Temporary(DType::kDouble, {{1}});
    Launch& weights = call.AddLaunch(RunSumOfWeights);
    BeginClassLaunch(call, weights, out, true, reduction, 0, smoothing);
    call.WriteTemporary(weights, sum);
    weights.units = 1;
  }
  Launch& launch = call.AddLaunch(RunCrossEntropyGrad);
  BeginClassLaunch(call, launch, out, true, reduction, 0, smoothing);
  call.Read(launch, call.Get("gradLoss"));
  if (reduction == kMean) call.ReadTemporary(launch, sum);
  launch.units = launch.ints[kSamplesInt];
  launch.grain = GrainOf(launch.ints[kClassesInt] * kExpCost);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::ClassScratchBytes(launch.ints[kClassesInt], call.compute)));
  return {};
}

// ---- Soft labels ----

Status SoftmaxCrossShape(OpCall& call) {
  const Operand& features = call.Get("features");
  if (features.rank() == 0) {
    return call.InvalidOperand(features, "has no dims, expected classes in the last one");
  }
  const std::span<const int64_t> sizes = features.sizes();
  REPRISE_RETURN_IF_ERROR(CheckSizes(call, call.Get("labels"), sizes, "the shape of features"));
  REPRISE_RETURN_IF_ERROR(CheckSizes(call, call.Get("backprop"), sizes, "the shape of features"));
  return CheckSizes(call, call.Get("loss"), sizes.first(sizes.size() - 1), "the shape of features without classes");
}

void RunSoftmaxCross(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  kernels::SoftmaxCross(launch.refs[2], launch.refs[3], launch.compute, launch.refs[0], launch.refs[1], memory.scratch,
                        range);
}

Status LowerSoftmaxCross(OpCall& call) {
  const Operand& features = call.Get("features");
  const int64_t classes = features.sizes().back();
  if (classes == 0) return {};
  Launch& launch = call.AddLaunch(RunSoftmaxCross);
  call.Write(launch, call.Get("loss"));
  call.Write(launch, call.Get("backprop"));
  call.Read(launch, features);
  call.Read(launch, call.Get("labels"));
  launch.units = features.tensor->count / classes;
  launch.grain = GrainOf(classes * 2 * kExpCost);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::ClassScratchBytes(classes, call.compute)));
  return {};
}

}  // namespace

// The code of these is the rank of the scores.

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/loss.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
