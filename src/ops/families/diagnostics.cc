// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cmath>
#include <thread>

#include "kernels/copy.h"
#include "ops/computations.h"
#include "ops/op_call.h"
#include "ops/rules.h"

namespace reprise::ops {
namespace {

using kernels::DType;

// ---- SilentCheck ----

enum Verdict : int32_t { kNormal, kWarning, kFault };

constexpr int64_t kFaultsCount = 1;  // npuAsdDetect: a fault enters the history like any value

struct Limits {
  int64_t min_steps;
  float threshold[2];  // of fault, of warning
  float coefficient[2];
  int64_t detect;
};

void RunSilentCheck(const Launch& launch, kernels::Range, const Launch::KernelMemory&) {
  const auto& limits = launch.State<Limits>();
  float value = 0;
  kernels::FindCast(launch.refs[3].dtype, DType::kFloat)(static_cast<const char*>(launch.refs[3].data), 0,
                                                         reinterpret_cast<char*>(&value), 0, 1);
  const kernels::TensorRef& history = launch.refs[0];
  auto* const base = static_cast<float*>(history.data);
  float* const entry[3] = {base, base + history.strides[0], base + 2 * history.strides[0]};  // before, least, most
  auto& step = *static_cast<int64_t*>(launch.refs[1].data);

  const bool has_history = step > 0;
  const float spread = has_history ? *entry[2] - *entry[1] : 0.0F;
  const float jump = has_history ? std::fabs(value - *entry[0]) : 0.0F;
  const auto exceeds = [&](int level) {
    return std::fabs(value) > limits.threshold[level] ||
           (step >= limits.min_steps && has_history && jump > limits.coefficient[level] * spread);
  };
  Verdict verdict = kNormal;
  if (!std::isfinite(value) || exceeds(0)) {
    verdict = kFault;
  } else if (exceeds(1)) {
    verdict = kWarning;
  }
  if (verdict != kFault || limits.detect == kFaultsCount) {
    if (std::isfinite(value)) {
      *entry[0] = value;
      *entry[1] = has_history ? std::fmin(*entry[1], value) : value;
      *entry[2] = has_history ? std::fmax(*entry[2], value) : value;
    }
    ++step;
  }
  *static_cast<int32_t*>(launch.refs[2].data) = verdict;
}

struct AverageLimits {
  float threshold[2];  // of fault, of warning
  float beta;
  int64_t detect;
};

// refs: average, gradient, step, result, value.
void RunSilentCheckV2(const Launch& launch, kernels::Range, const Launch::KernelMemory&) {
  const auto& limits = launch.State<AverageLimits>();
  float value = 0;
  kernels::FindCast(launch.refs[4].dtype, DType::kFloat)(static_cast<const char*>(launch.refs[4].data), 0,
                                                         reinterpret_cast<char*>(&value), 0, 1);
  auto& average = *static_cast<float*>(launch.refs[0].data);
  auto& step = *static_cast<int64_t*>(launch.refs[2].data);
  // The average begins with 0: without the division the first ones are too small.
  const float before = step > 0 ? average / (1.0F - std::pow(limits.beta, static_cast<float>(step))) : average;
  Verdict verdict = kNormal;
  if (!std::isfinite(value) || value > before * limits.threshold[0]) {
    verdict = kFault;
  } else if (value > before * limits.threshold[1]) {
    verdict = kWarning;
  }
  if (verdict == kFault && step == 0 && limits.detect != kFaultsCount) {
    kernels::Fill(launch.refs[1], kernels::Scalar::Of(0.0F), kernels::FullRange(launch.refs[1]));
  }
  if (verdict != kFault || limits.detect == kFaultsCount) {
    if (std::isfinite(value)) average = limits.beta * average + (1.0F - limits.beta) * value;
    ++step;
  }
  *static_cast<int32_t*>(launch.refs[3].data) = verdict;
}

Status SilentCheckShape(OpCall& call) {
  constexpr int64_t kHistory = 3;
  for (const char* name : {"val", "stepRef", "result"}) {
    const Operand& operand = call.Get(name);
    if (operand.tensor->count == 1) continue;
    return call.InvalidOperand(operand, fmt::format("has shape {}, expected one element", ShapeText(operand.sizes())));
  }
  const Operand& history = call.Get("sfdaRef");
  return call.CheckShape(history, {&kHistory, 1}, [] { return "the value before, the least, the most:"; });
}

Status LowerSilentCheck(OpCall& call) {
  Launch& launch = call.AddLaunch(RunSilentCheck);
  const auto real = [&](const char* name) { return static_cast<float>(call.Real(name)); };
  launch.state = std::make_shared<Limits>(Limits{call.Int("cMinSteps"),
                                                 {real("cThreshL1"), real("cThreshL2")},
                                                 {real("cCoeffL1"), real("cCoeffL2")},
                                                 call.Int("npuAsdDetect")});
  call.Write(launch, call.Get("sfdaRef"));
  call.Write(launch, call.Get("stepRef"));
  call.Write(launch, call.Get("result"));
  call.Read(launch, call.Get("val"));
  launch.units = 1;
  return {};
}

Status SilentCheckV2Shape(OpCall& call) {
  for (const char* name : {"val", "max", "avgRef", "stepRef", "result"}) {
    const Operand* const operand = call.Find(name);
    if (operand == nullptr || operand->tensor->count == 1) continue;
    return call.InvalidOperand(*operand,
                               fmt::format("has shape {}, expected one element", ShapeText(operand->sizes())));
  }
  return {};
}

Status LowerSilentCheckV2(OpCall& call) {
  const double beta = call.Real("beta1");
  if (!(beta >= 0 && beta < 1)) {
    return call.Invalid(fmt::format("beta1 is {}, expected a value from 0 to below 1", beta));
  }
  Launch& launch = call.AddLaunch(RunSilentCheckV2);
  const auto real = [&](const char* name) { return static_cast<float>(call.Real(name)); };
  launch.state = std::make_shared<AverageLimits>(
      AverageLimits{{real("cThreshL1"), real("cThreshL2")}, static_cast<float>(beta), call.Int("npuAsdDetect")});
  call.Write(launch, call.Get("avgRef"));
  call.Write(launch, call.Get("inputGradRef"));
  call.Write(launch, call.Get("stepRef"));
  call.Write(launch, call.Get("result"));
  call.Read(launch, call.Get("val"));
  launch.units = 1;
  return {};
}

// ---- Sleep ----

// ints: nanoseconds.
void RunSleep(const Launch& launch, kernels::Range, const Launch::KernelMemory&) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(launch.ints[0]));
}

Status NoType(OpCall&) { return {}; }
Status NoShape(OpCall&) { return {}; }

Status LowerSleep(OpCall& call) {
  int64_t total = 0;
  for (int64_t cycles : call.Ints("cycles")) {
    if (cycles < 0 || __builtin_add_overflow(total, cycles, &total)) {
      return call.Invalid(fmt::format("cycles {} are not what a stream can wait for", ShapeText(call.Ints("cycles"))),
                          "pass numbers that are not negative");
    }
  }
  Launch& launch = call.AddLaunch(RunSleep);
  launch.ints.push_back(total);
  launch.units = 1;
  return {};
}

}  // namespace

// The rows of api/computations.csv.
#define REPRISE_COMPUTATION REPRISE_DEFINE_COMPUTATION
#include "ops/generated/diagnostics.def"
#undef REPRISE_COMPUTATION

}  // namespace reprise::ops
