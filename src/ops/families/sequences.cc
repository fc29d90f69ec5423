// SPDX-License-Identifier: Apache-2.0
//
// Tensors made of numbers alone: sequences and the unit matrix.
#include <cmath>

#include "kernels/generate.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

void RunArange(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Arange(launch.scalars[0], launch.scalars[1], launch.refs[0], range);
}

void RunLinspace(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Linspace(launch.scalars[0], launch.scalars[1], launch.ints[0], launch.refs[0], range);
}

void RunEye(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  kernels::Eye(launch.refs[0], range);
}

Status CheckRealScalars(const OpCall& call, std::initializer_list<std::string_view> names) {
  for (std::string_view name : names) {
    const kernels::Scalar& value = *call.Scalar(name);
    if (kernels::CategoryOf(value.dtype) == kernels::Category::kComplex) {
      return call.Invalid(fmt::format("{} is {}, expected a real number", name, kernels::Name(value.dtype)));
    }
    const auto number = value.As<double>();
    if (number != number || number - number != 0) return call.Invalid(fmt::format("{} is {}", name, number));
  }
  return {};
}

Status EyeShape(OpCall& call) {
  const int64_t shape[2] = {call.Int("n"), call.Int("m")};
  if (shape[0] < 0 || shape[1] < 0) return call.Invalid(fmt::format("n is {} and m is {}", shape[0], shape[1]));
  return call.CheckShape(call.outputs[0], shape, [] { return "n and m,"; });
}

Status LowerEye(OpCall& call) {
  Launch& launch = call.AddLaunch(RunEye);
  call.Write(launch, call.outputs[0]);
  const int64_t columns = call.outputs[0].sizes()[1];
  launch.units = columns == 0 ? 0 : call.outputs[0].sizes()[0];
  launch.grain = GrainOf(columns);
  return {};
}

// `code`: whether the end belongs to the sequence.
Status ArangeShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckRealScalars(call, {"start", "end", "step"}));
  const bool has_end = call.op.computation.code != 0;
  double count = 0;
  const auto start = call.Scalar("start")->As<double>();
  const auto end = call.Scalar("end")->As<double>();
  const auto step = call.Scalar("step")->As<double>();
  if (step == 0) return call.Invalid("step is 0");
  if ((end > start && step < 0) || (end < start && step > 0)) {
    return call.Invalid(fmt::format("step is {}, which does not lead from start {} to end {}", step, start, end));
  }
  if (has_end) {
    count = std::floor((end - start) / step) + 1;
  } else if (call.compute == kernels::DType::kInt64) {
    const auto first = call.Scalar("start")->As<int64_t>();
    const auto last = call.Scalar("end")->As<int64_t>();
    const auto distance = call.Scalar("step")->As<int64_t>();
    if (distance == 0) return call.Invalid("step is 0 as int64");
    const __int128 way = static_cast<__int128>(last) - first;
    count = static_cast<double>(static_cast<int64_t>((way + distance - (distance > 0 ? 1 : -1)) / distance));
  } else {
    count = std::ceil((end - start) / step);
  }
  if (!(count < 9.0e18)) return call.Invalid(fmt::format("the sequence has {} elements", count));
  const auto size = static_cast<int64_t>(count);
  return call.CheckShape(call.outputs[0], {&size, 1}, [&] {
    return fmt::format("for the sequence from {} to {} by {} the shape", start, end, step);
  });
}

Status LowerArange(OpCall& call) {
  Launch& launch = call.AddLaunch(RunArange);
  launch.scalars.push_back(*call.Scalar("start"));
  launch.scalars.push_back(*call.Scalar("step"));
  call.Write(launch, call.outputs[0]);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(1);
  return {};
}

Status LinspaceShape(OpCall& call) {
  REPRISE_RETURN_IF_ERROR(CheckRealScalars(call, {"start", "end"}));
  const int64_t steps = call.Int("steps");
  if (steps < 0) return call.Invalid(fmt::format("steps is {}, expected 0 or more", steps));
  return call.CheckShape(call.outputs[0], {&steps, 1}, [] { return "as steps says, the shape"; });
}

// ints: steps; scalars: start, end, base. Exponents as Linspace counts them, from the nearer end.
void RunLogspace(const Launch& launch, kernels::Range range, const Launch::KernelMemory&) {
  constexpr int64_t kChunk = 256;
  const kernels::TensorRef& out = launch.refs[0];
  const int64_t steps = launch.ints[0];
  const auto start = launch.scalars[0].As<double>();
  const auto end = launch.scalars[1].As<double>();
  const auto base = launch.scalars[2].As<double>();
  const double step = steps > 1 ? (end - start) / static_cast<double>(steps - 1) : 0;
  const kernels::CastFn store = kernels::FindCast(kernels::DType::kDouble, out.dtype);
  const int64_t stride = out.strides[0] * kernels::ItemSize(out.dtype);
  double values[kChunk];
  for (int64_t begin = range.begin; begin < range.end; begin += kChunk) {
    const int64_t n = std::min(kChunk, range.end - begin);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = begin + i;
      const double power = at < steps / 2 || steps == 1 ? start + static_cast<double>(at) * step
                                                        : end - static_cast<double>(steps - 1 - at) * step;
      values[i] = std::pow(base, power);
    }
    store(reinterpret_cast<const char*>(values), sizeof(double), static_cast<char*>(out.data) + begin * stride, stride,
          n);
  }
}

Status LowerLogspace(OpCall& call) {
  const double base = call.Real("base");
  if (base != base || base - base != 0) return call.Invalid(fmt::format("base is {}", base));
  Launch& launch = call.AddLaunch(RunLogspace);
  const bool is_integer = kernels::CategoryOf(call.compute) < kernels::Category::kFloating;
  for (const char* name : {"start", "end"}) {
    const auto value = call.Scalar(name)->As<double>();
    launch.scalars.push_back(kernels::Scalar::Of(is_integer ? std::trunc(value) : value));
  }
  launch.scalars.push_back(kernels::Scalar::Of(base));
  launch.ints.push_back(call.Int("steps"));
  call.Write(launch, call.outputs[0]);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(16);
  return {};
}

Status LowerLinspace(OpCall& call) {
  Launch& launch = call.AddLaunch(RunLinspace);
  launch.scalars.push_back(*call.Scalar("start"));
  launch.scalars.push_back(*call.Scalar("end"));
  launch.ints.push_back(call.Int("steps"));
  call.Write(launch, call.outputs[0]);
  launch.units = call.outputs[0].tensor->count;
  launch.grain = GrainOf(1);
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/sequences.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
