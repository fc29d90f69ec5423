// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/copy.h"
#include "kernels/dropout.h"
#include "kernels/multinomial.h"
#include "kernels/philox.h"
#include "kernels/staged.h"
#include "ops/computations.h"
#include "ops/dense.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::Distribution;
using kernels::DrawCall;
using kernels::DType;
using kernels::TensorRef;

// Light elements that a random number costs.
constexpr int64_t kDrawCost = 8;

// Seed and offset may be tensors of one element.
Status SeedShape(OpCall& call) {
  for (std::string_view name : {"seedTensor", "offsetTensor"}) {
    if (!call.Has(name) || call.Get(name).tensor->count == 1) continue;
    return call.InvalidOperand(call.Get(name),
                               fmt::format("has shape {}, expected one element", ShapeText(call.Get(name).sizes())));
  }
  return {};
}

struct Seed {
  uint64_t seed, offset;
};

int64_t ReadInteger(const TensorRef& ref) {
  int64_t value = 0;
  kernels::FindCast(ref.dtype, DType::kInt64)(static_cast<const char*>(ref.data), 0, reinterpret_cast<char*>(&value), 0,
                                              1);
  return value;
}

// Three Launch::ints: seed, offset, and the place in Launch::refs of tensors with more of them, 0 without such. To be
// called when all other operands are there.
void AddSeed(OpCall& call, Launch& launch) {
  const bool has_tensors = call.Has("seedTensor");
  launch.ints.push_back(has_tensors ? 0 : call.Int("seed"));
  launch.ints.push_back(call.Int("offset"));
  launch.ints.push_back(has_tensors ? static_cast<int64_t>(launch.refs.size()) : 0);
  if (!has_tensors) return;
  call.Read(launch, call.Get("seedTensor"));
  call.Read(launch, call.Get("offsetTensor"));
}

Seed SeedOf(const Launch& launch, size_t first) {
  Seed seed{static_cast<uint64_t>(launch.ints[first]), static_cast<uint64_t>(launch.ints[first + 1])};
  const auto place = static_cast<size_t>(launch.ints[first + 2]);
  if (place == 0) return seed;
  seed.seed = static_cast<uint64_t>(ReadInteger(launch.refs[place]));
  seed.offset += static_cast<uint64_t>(ReadInteger(launch.refs[place + 1]));
  return seed;
}

// ---- Draws ----

// refs: the numbers, for kBernoulliEach the probabilities.
enum : size_t { kDistributionInt, kLowInt, kRangeInt, kSeedInts };

DrawCall DrawOf(const Launch& launch, const TensorRef& out) {
  DrawCall draw;
  draw.distribution = static_cast<Distribution>(launch.ints[kDistributionInt]);
  draw.type = out.dtype;
  draw.a = launch.scalars[0].As<double>();
  draw.b = launch.scalars[1].As<double>();
  draw.low = launch.ints[kLowInt];
  draw.range = static_cast<uint64_t>(launch.ints[kRangeInt]);
  draw.count = kernels::ElementCount(out);
  draw.out = out.data;
  return draw;
}

void RunDraw(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  DrawCall draw = DrawOf(launch, launch.Ref(0, memory));
  const int64_t seed_place = launch.ints[kSeedInts + 2];
  if ((seed_place != 0 ? seed_place : static_cast<int64_t>(launch.refs.size())) > 1) {
    const TensorRef in = launch.Ref(1, memory);
    draw.in_type = in.dtype;
    draw.in = in.data;
  }
  // A probability that is none counts as the nearest one; NaN as 0.
  const Seed seed = SeedOf(launch, kSeedInts);
  kernels::Draw(draw, seed.seed, seed.offset, range);
}

void AddDraw(OpCall& call, Launch& launch, const DrawCall& draw) {
  for (int64_t value : {static_cast<int64_t>(draw.distribution), draw.low, static_cast<int64_t>(draw.range)}) {
    launch.ints.push_back(value);
  }
  AddSeed(call, launch);
  launch.scalars.push_back(kernels::Scalar::Of(draw.a));
  launch.scalars.push_back(kernels::Scalar::Of(draw.b));
  launch.units = draw.distribution == Distribution::kPermutation ? 1 : draw.count;
  launch.grain = draw.distribution == Distribution::kPermutation ? 0 : GrainOf(kDrawCost);
}

// Draws into `out`, through a temporary where that is not row-major. `each` holds the probabilities of kBernoulliEach.
Status LowerDraw(OpCall& call, const Operand& out, DrawCall draw, const Operand* each = nullptr) {
  draw.type = out.dtype;
  draw.count = out.tensor->count;
  if (each != nullptr) draw.in_type = each->dtype;
  if (std::string reason = kernels::WhyNot(draw); !reason.empty()) return call.Invalid(std::move(reason));
  if (draw.count == 0) return {};
  const TensorRef ref = call.RefOf(out);
  const bool is_direct = kernels::IsContiguous(ref);
  TensorRef temporary;
  if (!is_direct) temporary = call.Temporary(out.dtype, out.sizes());
  TensorRef probabilities;
  const auto same_shape = [&](const Operand& operand) {
    return std::equal(operand.sizes().begin(), operand.sizes().end(), out.sizes().begin(), out.sizes().end()) &&
           kernels::IsContiguous(call.RefOf(operand));
  };
  const bool each_is_direct = each == nullptr || same_shape(*each);
  if (!each_is_direct) {
    probabilities = call.Temporary(each->dtype, out.sizes());
    Launch& spread = call.AddLaunch(RunCopy);
    call.WriteTemporary(spread, probabilities);
    call.Read(spread, *each);
    spread.units = draw.count;
    spread.grain = GrainOf(1);
  }
  Launch& launch = call.AddLaunch(RunDraw);
  if (is_direct) {
    call.Write(launch, out);
  } else {
    call.WriteTemporary(launch, temporary);
  }
  if (each != nullptr) {
    if (each_is_direct) {
      call.Read(launch, *each);
    } else {
      call.ReadTemporary(launch, probabilities);
    }
  }
  AddDraw(call, launch, draw);
  if (is_direct) return {};
  Launch& copy = call.AddLaunch(RunCopy);
  call.Write(copy, out);
  call.ReadTemporary(copy, temporary);
  copy.units = draw.count;
  copy.grain = GrainOf(1);
  return {};
}

Status LowerUniform(OpCall& call) {
  DrawCall draw;
  draw.distribution = Distribution::kUniform;
  draw.a = call.Real("from");
  draw.b = call.Real("to");
  return LowerDraw(call, call.outputs[0], draw);
}

Status LowerNormal(OpCall& call) {
  DrawCall draw;
  draw.distribution = Distribution::kNormal;
  draw.a = call.Real("mean");
  draw.b = call.Real("std");
  return LowerDraw(call, call.outputs[0], draw);
}

Status LowerRandom(OpCall& call) {
  DrawCall draw;
  draw.distribution = Distribution::kRandint;
  draw.low = call.Int("from");
  const int64_t to = call.Int("to");
  if (to <= draw.low) {
    return call.Invalid(fmt::format("from is {} and to {}: there is no integer in [from, to)", draw.low, to));
  }
  draw.range = static_cast<uint64_t>(to) - static_cast<uint64_t>(draw.low);
  return LowerDraw(call, call.outputs[0], draw);
}

// Numbers that the type holds with all that lie between: as torch's random_() without a range.
Status LowerRandomAny(OpCall& call) {
  DrawCall draw;
  draw.distribution = Distribution::kRandint;
  switch (call.outputs[0].dtype) {
    case DType::kBool: draw.range = 2; break;
    case DType::kInt8: draw.range = uint64_t{1} << 7; break;
    case DType::kUInt8: draw.range = uint64_t{1} << 8; break;
    case DType::kInt16: draw.range = uint64_t{1} << 15; break;
    case DType::kUInt16: draw.range = uint64_t{1} << 16; break;
    case DType::kInt32: draw.range = uint64_t{1} << 31; break;
    case DType::kUInt32: draw.range = uint64_t{1} << 32; break;
    case DType::kInt64: draw.range = uint64_t{1} << 63; break;
    case DType::kUInt64: draw.range = 0; break;  // all of them
    case DType::kFloat16: draw.range = (uint64_t{1} << 11) + 1; break;
    case DType::kBFloat16: draw.range = (uint64_t{1} << 8) + 1; break;
    case DType::kFloat: draw.range = (uint64_t{1} << 24) + 1; break;
    default: draw.range = (uint64_t{1} << 53) + 1; break;
  }
  return LowerDraw(call, call.outputs[0], draw);
}

Status LowerBernoulli(OpCall& call) {
  DrawCall draw;
  draw.distribution = Distribution::kBernoulli;
  draw.a = call.Scalar("prob")->As<double>();
  return LowerDraw(call, call.outputs[0], draw);
}

Status LowerBernoulliTensor(OpCall& call) {
  DrawCall draw;
  draw.distribution = Distribution::kBernoulliEach;
  return LowerDraw(call, call.outputs[0], draw, &call.Get("prob"));
}

// Every input broadcasts to the output, which they do not enlarge.
Status BroadcastToOutput(OpCall& call) {
  const Operand& out = call.outputs[0];
  for (const Operand& input : call.inputs) {
    Dims shape;
    if (Broadcast(out.sizes(), input.sizes(), shape) && shape == Dims(out.sizes().data(), out.sizes().size())) continue;
    return call.InvalidOperand(input, fmt::format("has shape {}, which does not broadcast to {} of {}",
                                                  ShapeText(input.sizes()), ShapeText(out.sizes()), call.NameOf(out)));
  }
  return {};
}

Status RandpermShape(OpCall& call) {
  const int64_t n = call.Int("n");
  if (n < 0) return call.Invalid(fmt::format("n is {}, must not be negative", n));
  const Operand& out = call.outputs[0];
  return call.CheckShape(out, {&n, 1}, [] { return "as n says, the shape"; });
}

Status LowerRandperm(OpCall& call) {
  DrawCall draw;
  draw.distribution = Distribution::kPermutation;
  return LowerDraw(call, call.outputs[0], draw);
}

// ---- Normal numbers with parameters of their own ----

template <class T>
void ScaleNumbers(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  constexpr int64_t kChunk = 512;
  const kernels::Staged<T> out(launch.refs[0]), numbers(launch.Ref(1, memory)), mean(launch.refs[2]),
      deviation(launch.refs[3]);
  alignas(64) T out_buffer[kChunk], number_buffer[kChunk], mean_buffer[kChunk], deviation_buffer[kChunk];
  for (int64_t begin = range.begin; begin < range.end; begin += kChunk) {
    const int64_t n = std::min(kChunk, range.end - begin);
    const T* z = numbers.Read(begin, n, number_buffer);
    const T* m = mean.Read(begin, n, mean_buffer);
    const T* s = deviation.Read(begin, n, deviation_buffer);
    T* to = out.Target(begin, out_buffer);
    for (int64_t i = 0; i < n; ++i) to[i] = m[i] + s[i] * z[i];
    out.Write(begin, n, out_buffer);
  }
}

void RunScaleNumbers(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.refs[1].dtype == DType::kDouble) {
    ScaleNumbers<double>(launch, range, memory);
  } else {
    ScaleNumbers<float>(launch, range, memory);
  }
}

// Parameter `name`, which is a tensor or a number.
Operand TensorOrNumber(const OpCall& call, std::string_view name, kernels::Scalar& number) {
  if (const Operand* tensor = call.Find(name); tensor != nullptr) return *tensor;
  number = kernels::Scalar::Of(call.Real(name));
  return {nullptr, &number, number.dtype, -1, 0, -1, true};
}

Status LowerNormalTensors(OpCall& call) {
  const Operand& out = call.outputs[0];
  DrawCall draw;
  draw.distribution = Distribution::kNormal;
  draw.b = 1;
  draw.count = out.tensor->count;
  if (draw.count == 0) return {};
  const TensorRef numbers = call.Temporary(out.dtype == DType::kDouble ? DType::kDouble : DType::kFloat, out.sizes());
  Launch& launch = call.AddLaunch(RunDraw);
  call.WriteTemporary(launch, numbers);
  AddDraw(call, launch, draw);
  Launch& scale = call.AddLaunch(RunScaleNumbers);
  call.Write(scale, out);
  call.ReadTemporary(scale, numbers);
  kernels::Scalar given[2];
  call.Read(scale, TensorOrNumber(call, "mean", given[0]));
  call.Read(scale, TensorOrNumber(call, "std", given[1]));
  Coalesce(scale.refs);
  scale.units = draw.count;
  scale.grain = GrainOf(2);
  return {};
}

// ---- RReLU: a slope of its own for each number below 0 ----

Status RreluShape(OpCall& call) {
  const Operand& self = call.inputs[0];
  REPRISE_RETURN_IF_ERROR(call.CheckShape(call.Get("noise"), self.sizes(), [] { return "the shape of self,"; }));
  return call.CheckShape(call.Has("out") ? call.Get("out") : self, self.sizes(), [] { return "the shape of self,"; });
}

// refs: out, self, and in training noise and slopes; scalar: the slope otherwise.
template <class T>
void ApplySlopes(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  T* out = DataOf<T>(launch, 0, memory);
  const T* self = DataOf<T>(launch, 1, memory);
  if (launch.refs.size() < 4) {
    const T slope = launch.scalars[0].As<T>();
    for (int64_t i = range.begin; i < range.end; ++i) out[i] = self[i] <= 0 ? self[i] * slope : self[i];
    return;
  }
  T* noise = DataOf<T>(launch, 2, memory);
  const T* slopes = DataOf<T>(launch, 3, memory);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const T x = self[i];
    noise[i] = x <= 0 ? slopes[i] : T(1);
    out[i] = x * noise[i];
  }
}

void RunSlopes(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  if (launch.refs[0].dtype == DType::kDouble) return ApplySlopes<double>(launch, range, memory);
  ApplySlopes<float>(launch, range, memory);
}

Status LowerRrelu(OpCall& call) {
  const Operand& self_operand = call.inputs[0];
  const auto lower = call.Scalar("lower")->As<double>();
  const auto upper = call.Scalar("upper")->As<double>();
  if (!std::isfinite(lower) || !std::isfinite(upper) || lower > upper) {
    return call.Invalid(fmt::format("lower is {} and upper {}, expected finite numbers in order", lower, upper));
  }
  const int64_t count = self_operand.tensor->count;
  if (count == 0) return {};
  const DType type = WideFloatOf(call.compute);
  const bool is_training = call.Bool("training");
  const Dense out = DenseOutput(call, call.Has("out") ? call.Get("out") : self_operand, type);
  const Dense self = DenseInput(call, self_operand, type);
  Dense noise, slopes;
  if (is_training) {
    noise = DenseOutput(call, call.Get("noise"), type);
    slopes = DenseTemporary(call, type, {&count, 1});
    DrawCall draw;
    draw.a = lower;
    draw.b = upper;
    draw.type = type;
    draw.count = count;
    if (std::string reason = kernels::WhyNot(draw); !reason.empty()) return call.Invalid(std::move(reason));
    Launch& launch = call.AddLaunch(RunDraw);
    slopes.Write(call, launch);
    AddDraw(call, launch, draw);
  }
  Launch& launch = call.AddLaunch(RunSlopes);
  launch.scalars.push_back(kernels::Scalar::Of((lower + upper) / 2));
  out.Write(call, launch);
  self.Read(call, launch);
  if (is_training) {
    noise.Write(call, launch);
    slopes.Read(call, launch);
  }
  launch.units = count;
  launch.grain = GrainOf(2);
  if (is_training) noise.Store(call);
  out.Store(call);
  return {};
}

// ---- Dropout ----

Status CheckProbability(const OpCall& call) {
  const double p = call.Real("prob");
  if (p >= 0 && p <= 1) return {};
  return call.Invalid(fmt::format("prob is {}, expected a probability from 0 to 1", p));
}

// The elements that a mask of parameter shape is for.
StatusOr<int64_t> MaskedElements(const OpCall& call) {
  int64_t count = 1;
  for (int64_t size : call.Ints("shape")) {
    if (size < 0 || (size != 0 && count > INT64_MAX / 1024 / size)) {
      return call.Invalid(fmt::format("shape {} is not that of a tensor", ShapeText(call.Ints("shape"))));
    }
    count *= size;
  }
  return count;
}

Status MaskShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(SeedShape(call));
  REPRISE_ASSIGN_OR_RETURN(const int64_t count, MaskedElements(call));
  const int64_t bytes = kernels::DropoutMaskBytes(count);
  return call.CheckShape(call.outputs[0], {&bytes, 1}, [&] {
    return fmt::format("16 bytes for 128 elements of shape {}:", ShapeText(call.Ints("shape")));
  });
}

void RunDropoutMask(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  const Seed seed = SeedOf(launch, 1);
  kernels::DropoutMask(launch.scalars[0].As<double>(), seed.seed, seed.offset, launch.ints[0], launch.refs[0], range);
}

Status LowerDropoutMask(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckProbability(call));
  if (call.Has("probDataType")) {
    const DType type = call.Type("probDataType");
    if (!kFloatingTypes.Has(type)) {
      return call.Invalid(
          fmt::format("probDataType is {}, expected a floating type", DTypeText(static_cast<int32_t>(type))));
    }
  }
  REPRISE_ASSIGN_OR_RETURN(const int64_t count, MaskedElements(call));
  Launch& launch = call.AddLaunch(RunDropoutMask);
  call.Write(launch, call.outputs[0]);
  launch.scalars.push_back(kernels::Scalar::Of(call.Real("prob")));
  launch.ints.push_back(count);
  AddSeed(call, launch);
  launch.units = kernels::DropoutMaskBytes(count) / kernels::kMaskGroup;
  launch.grain = GrainOf(8 * kernels::kMaskGroup * 4);
  return {};
}

Status ApplyMaskShape(OpCall& call) {
  const Operand& self = call.Get("self");
  const Operand& mask = call.Get("mask");
  const int64_t bytes = kernels::DropoutMaskBytes(self.tensor->count);
  REPRISE_RETURN_IF_ERROR(call.CheckShape(mask, {&bytes, 1}, [] { return "16 bytes for 128 elements of self:"; }));
  return call.CheckShape(call.outputs[0], self.sizes(), [] { return "the shape"; });
}

// A unit is 8 elements: a byte of the mask.
void RunApplyDropout(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::ApplyDropout(launch.refs[1], launch.refs[2], launch.scalars[0].As<double>(), launch.refs[0],
                        {range.begin * 8, std::min(range.end * 8, launch.ints[0])});
}

Status LowerApplyDropout(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckProbability(call));
  const double p = call.Real("prob");
  Launch& launch = call.AddLaunch(RunApplyDropout);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.Get("self"));
  call.Read(launch, call.Get("mask"));
  const int64_t count = call.outputs[0].tensor->count;
  launch.ints.push_back(count);
  launch.scalars.push_back(kernels::Scalar::Of(p < 1 ? 1 / (1 - p) : 0.0));
  launch.units = (count + 7) / 8;
  launch.grain = GrainOf(8 * 2);
  return {};
}

// refs: out, grad or self, mask; both as long as the mask says.
Status LowerDropoutGradient(OpCall& call) {
  const double scale = call.Real("scale");
  if (!std::isfinite(scale)) return call.Invalid(fmt::format("scale is {}, expected a finite number", scale));
  Launch& launch = call.AddLaunch(RunApplyDropout);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, call.inputs[0]);
  call.Read(launch, call.Get("mask"));
  const int64_t count = call.outputs[0].tensor->count;
  launch.ints.push_back(count);
  launch.scalars.push_back(kernels::Scalar::Of(scale));
  launch.units = (count + 7) / 8;
  launch.grain = GrainOf(8 * 2);
  return {};
}

Status DropoutGradientShape(OpCall& call) {
  const Operand& grad = call.inputs[0];
  const int64_t bytes = kernels::DropoutMaskBytes(grad.tensor->count);
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("mask"), {&bytes, 1}, [] { return "16 bytes for 128 elements of gradY:"; }));
  return call.CheckShape(call.outputs[0], grad.sizes(), [] { return "the shape"; });
}

Status DropoutWithMaskShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(SeedShape(call));
  const Operand& input = call.Get("input");
  if (const Operand* noise = call.Find("optionalNoiseShape"); noise != nullptr) {
    return call.InvalidOperand(*noise, "is given, but elements are dropped one by one here", "pass null");
  }
  const double p = call.Real("p");
  if (!(p >= 0 && p <= 1)) return call.Invalid(fmt::format("p is {}, expected a probability from 0 to 1", p));
  const int64_t bytes = kernels::DropoutMaskBytes(input.tensor->count);
  REPRISE_RETURN_IF_ERROR(
      call.CheckShape(call.Get("maskOut"), {&bytes, 1}, [] { return "16 bytes for 128 elements of input:"; }));
  return call.CheckShape(call.Get("out"), input.sizes(), [] { return "the shape"; });
}

// The mask of DropoutGenMask, then what DropoutDoMask makes of it.
Status LowerDropoutWithMask(OpCall& call) {
  const double p = call.Real("p");
  const Operand& input = call.Get("input");
  const Operand& mask = call.Get("maskOut");
  const int64_t count = input.tensor->count;
  Launch& draw = call.AddLaunch(RunDropoutMask);
  call.Write(draw, mask);
  draw.scalars.push_back(kernels::Scalar::Of(p));
  draw.ints.push_back(count);
  AddSeed(call, draw);
  draw.units = kernels::DropoutMaskBytes(count) / kernels::kMaskGroup;
  draw.grain = GrainOf(8 * kernels::kMaskGroup * 4);
  Launch& launch = call.AddLaunch(RunApplyDropout);
  call.Write(launch, call.Get("out"));
  call.Read(launch, input);
  call.Read(launch, mask);
  launch.ints.push_back(count);
  launch.scalars.push_back(kernels::Scalar::Of(p < 1 ? 1 / (1 - p) : 0.0));
  launch.units = (count + 7) / 8;
  launch.grain = GrainOf(8 * 2);
  return {};
}

// ---- Exponential numbers ----

std::string_view RateName(const OpCall& call) { return call.Has("lambda") ? "lambda" : "lambd"; }

Status ExponentialShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(SeedShape(call));
  const int64_t count = call.outputs[0].tensor->count;
  if (call.Has("count") && call.Int("count") != count) {
    return call.Invalid(fmt::format("count is {}, selfRef has {} elements", call.Int("count"), count));
  }
  const double rate = call.Real(RateName(call));
  if (rate > 0) return {};
  return call.Invalid(fmt::format("{} is {}, expected a number above 0", RateName(call), rate));
}

Status LowerExponential(OpCall& call) {
  DrawCall draw;
  draw.distribution = Distribution::kExponential;
  draw.a = call.Real(RateName(call));
  return LowerDraw(call, call.outputs[0], draw);
}

// ---- Multinomial ----

Status MultinomialShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(SeedShape(call));
  const Operand& self = call.Get("self");
  if (self.rank() != 1 && self.rank() != 2) {
    return call.InvalidOperand(self, fmt::format("has shape {}, expected 1 or 2 dims", ShapeText(self.sizes())));
  }
  const int64_t samples = call.Int("numsamples");
  const int64_t categories = self.sizes().back();
  if (samples <= 0) return call.Invalid(fmt::format("numsamples is {}, must be positive", samples));
  if (categories == 0) return call.InvalidOperand(self, "has no categories");
  if (!call.Bool("replacement") && samples > categories) {
    return call.Invalid(fmt::format("numsamples is {}, but self has only {} categories", samples, categories),
                        "draw with replacement");
  }
  Dims shape(self.sizes().data(), self.sizes().size());
  shape[shape.size() - 1] = samples;
  return call.CheckShape(call.outputs[0], shape, [] { return "one row of samples for each row"; });
}

void RunMultinomial(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory) {
  const Seed seed = SeedOf(launch, 1);
  kernels::Multinomial(launch.refs[1], launch.ints[0] != 0, seed.seed, seed.offset, launch.refs[0], memory.scratch,
                       range);
}

Status LowerMultinomial(OpCall& call) {
  const Operand& self = call.Get("self");
  const int64_t categories = self.sizes().back();
  Launch& launch = call.AddLaunch(RunMultinomial);
  call.Write(launch, call.outputs[0]);
  call.Read(launch, self);
  launch.ints.push_back(call.Int("replacement"));
  AddSeed(call, launch);
  launch.units = self.tensor->count / categories;
  launch.grain = GrainOf((categories + call.Int("numsamples")) * kDrawCost);
  call.AddScratch(launch, static_cast<uint64_t>(kernels::MultinomialScratchBytes(categories)));
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/random.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
