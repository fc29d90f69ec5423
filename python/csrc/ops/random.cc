// SPDX-License-Identifier: Apache-2.0
//
// Random numbers: the core's draws, one task each, where it makes the type; else the CPU's operator, with a generator
// that is seeded when the task runs. Either way a replay makes the numbers that the eager call would have made then.
#include "ops/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <limits>
#include <string>
#include <utility>

#include "common/error.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "graph/liveness.h"
#include "ops/alias.h"
#include "ops/kernel_scope.h"
#include "ops/launch.h"
#include "ops/tensors.h"
#include "rng/generator.h"

namespace torch_npu {
namespace {

using OptionalGenerator = std::optional<at::Generator>;
using reprise::ElementType;

at::Generator Seeded(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

bool IsReal(at::ScalarType type) { return at::isFloatingType(type) && ElementTypeOf(type).has_value(); }

// draw(stream, generator, address, type, count) fills memory whose elements lie back to back. Others get theirs by a
// copy.
template <class Draw>
void DrawInto(at::Tensor& self, const OptionalGenerator& generator, Draw&& draw) {
  at::assert_no_internal_overlap(self);
  reprise::Generator& core = CoreGenerator(generator);
  const bool direct = self.is_non_overlapping_and_dense();
  const at::Tensor out = direct ? self : Empty(self.sizes(), self.scalar_type(), self.device());
  NoteUse(out);
  SubmitDraw([&](void* stream) {
    draw(stream, core, out.mutable_data_ptr(), *ElementTypeOf(self.scalar_type()), out.numel());
  });
  if (!direct) self.copy_(out);
}

// Types and numbers that the CPU's operator does not take are found out at the call: by drawing one element, from a
// generator that nobody else has.
template <class Work>
void TryOnCpu(const char* name, at::ScalarType type, const Work& work) {
  const KernelScope scope;
  at::Tensor one = at::zeros({1}, at::TensorOptions(type).device(c10::kCPU));
  try {
    work(one, Seeded(0));
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    TORCH_CHECK_NOT_IMPLEMENTED(text.find("not implemented for '") == std::string::npos, name, ": ", text,
                                ": on npu the operator of the CPU does this, which does not make this type; convert ",
                                "to another first, such as float32");
    TORCH_CHECK(false, name, ": ", text);
  }
}

// work(tensor on the CPU, generator of the CPU).
template <class Work>
void OnCpu(const char* name, at::Tensor& self, const OptionalGenerator& generator, Work work) {
  TryOnCpu(name, self.scalar_type(), work);
  Aliases aliases(c10::kCPU);
  LaunchRandom(name, CoreGenerator(generator),
               [to = aliases.Of(self), work = std::move(work)](uint64_t seed) mutable { work(to, Seeded(seed)); });
}

// The frame of every fill: nothing is drawn for no elements.
template <class Work>
at::Tensor& Filled(at::Tensor& self, Work&& work) {
  TORCH_CHECK(self.device().type() == c10::kPrivateUse1, "a generator of npu cannot fill a tensor on ", self.device(),
              ": make the tensor with device=\"npu\", or draw with torch.Generator(\"", self.device(), "\")");
  if (self.numel() == 0) return self;
  const c10::DeviceGuard guard(self.device());
  work();
  return self;
}

void CheckFloating(const char* name, const at::Tensor& self) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()), name, " makes floating numbers, but the tensor has the type ",
              self.scalar_type(), "; convert it first");
}

at::Tensor& Uniform(at::Tensor& self, double from, double to, OptionalGenerator generator) {
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
  return Filled(self, [&] {
    if (!IsReal(self.scalar_type())) {
      OnCpu("uniform_", self, generator, [=](at::Tensor& t, at::Generator g) { t.uniform_(from, to, std::move(g)); });
      return;
    }
    DrawInto(self, generator, [&](void* stream, reprise::Generator& core, void* out, ElementType type, int64_t count) {
      reprise::DrawUniform(stream, core, out, type, count, from, to);
    });
  });
}

at::Tensor& Normal(at::Tensor& self, double mean, double deviation, OptionalGenerator generator) {
  TORCH_CHECK(deviation >= 0, "normal expects std >= 0.0, but found std ", deviation);
  return Filled(self, [&] {
    if (!IsReal(self.scalar_type())) {
      OnCpu("normal_", self, generator,
            [=](at::Tensor& t, at::Generator g) { t.normal_(mean, deviation, std::move(g)); });
      return;
    }
    DrawInto(self, generator, [&](void* stream, reprise::Generator& core, void* out, ElementType type, int64_t count) {
      reprise::DrawNormal(stream, core, out, type, count, mean, deviation);
    });
  });
}

at::Tensor& LogNormal(at::Tensor& self, double mean, double deviation, OptionalGenerator generator) {
  TORCH_CHECK(deviation > 0, "log_normal_ expects std > 0.0, but found std=", deviation);
  CheckFloating("log_normal_", self);
  return Filled(self, [&] {
    DrawInto(self, generator, [&](void* stream, reprise::Generator& core, void* out, ElementType type, int64_t count) {
      reprise::DrawLogNormal(stream, core, out, type, count, mean, deviation);
    });
  });
}

at::Tensor& Exponential(at::Tensor& self, double rate, OptionalGenerator generator) {
  TORCH_CHECK(rate > 0, "exponential_ expects lambda > 0.0, but found lambda=", rate);
  CheckFloating("exponential_", self);
  return Filled(self, [&] {
    DrawInto(self, generator, [&](void* stream, reprise::Generator& core, void* out, ElementType type, int64_t count) {
      reprise::DrawExponential(stream, core, out, type, count, rate);
    });
  });
}

at::Tensor& Cauchy(at::Tensor& self, double median, double width, OptionalGenerator generator) {
  TORCH_CHECK(width > 0, "cauchy_ expects sigma > 0.0, but found sigma=", width);
  CheckFloating("cauchy_", self);
  return Filled(self, [&] {
    DrawInto(self, generator, [&](void* stream, reprise::Generator& core, void* out, ElementType type, int64_t count) {
      reprise::DrawCauchy(stream, core, out, type, count, median, width);
    });
  });
}

at::Tensor& Geometric(at::Tensor& self, double p, OptionalGenerator generator) {
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  return Filled(self, [&] {
    if (!IsReal(self.scalar_type())) {
      OnCpu("geometric_", self, generator, [=](at::Tensor& t, at::Generator g) { t.geometric_(p, std::move(g)); });
      return;
    }
    DrawInto(self, generator, [&](void* stream, reprise::Generator& core, void* out, ElementType type, int64_t count) {
      reprise::DrawGeometric(stream, core, out, type, count, p);
    });
  });
}

at::Tensor& BernoulliScalar(at::Tensor& self, double p, OptionalGenerator generator) {
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  return Filled(self, [&] {
    if (!ElementTypeOf(self.scalar_type()).has_value()) {
      OnCpu("bernoulli_", self, generator, [=](at::Tensor& t, at::Generator g) { t.bernoulli_(p, std::move(g)); });
      return;
    }
    DrawInto(self, generator, [&](void* stream, reprise::Generator& core, void* out, ElementType type, int64_t count) {
      reprise::DrawBernoulli(stream, core, out, type, count, p);
    });
  });
}

at::Tensor& BernoulliTensor(at::Tensor& self, const at::Tensor& p, OptionalGenerator generator) {
  TORCH_CHECK(at::isFloatingType(p.scalar_type()), "expected probabilities tensor to have floating type, got ",
              p.scalar_type());
  if (p.device().is_cpu() && p.dim() == 0) return BernoulliScalar(self, p.item().toDouble(), generator);
  TORCH_CHECK(p.device() == self.device(), "bernoulli_: the probabilities are on ", p.device(), ", the tensor on ",
              self.device(), "; move one of them");
  const at::Tensor each = p.expand(self.sizes());
  return Filled(self, [&] {
    if (!ElementTypeOf(self.scalar_type()).has_value() || !ElementTypeOf(p.scalar_type()).has_value() ||
        !self.is_contiguous()) {
      TryOnCpu("bernoulli_", self.scalar_type(), [&](at::Tensor& t, at::Generator g) {
        t.bernoulli_(at::full({1}, 0.5, at::TensorOptions(p.scalar_type())), std::move(g));
      });
      Aliases aliases(c10::kCPU);
      LaunchRandom("bernoulli_", CoreGenerator(generator),
                   [to = aliases.Of(self), from = aliases.Of(each)](uint64_t seed) mutable {
                     to.bernoulli_(from, Seeded(seed));
                   });
      return;
    }
    const at::Tensor probabilities = each.contiguous();
    NoteUse(probabilities);
    DrawInto(self, generator, [&](void* stream, reprise::Generator& core, void* out, ElementType type, int64_t count) {
      reprise::DrawBernoulli(stream, core, out, type, count, probabilities.const_data_ptr(),
                             *ElementTypeOf(probabilities.scalar_type()));
    });
  });
}

at::Tensor& BernoulliOut(const at::Tensor& p, OptionalGenerator generator, at::Tensor& out) {
  Resize(out, p.sizes());
  return BernoulliTensor(out, p, std::move(generator));
}

// The integers that the type holds exactly.
std::pair<int64_t, int64_t> LimitsOf(at::ScalarType type) {
  switch (type) {
    case at::kBool: return {0, 1};
    case at::kByte: return {0, 255};
    case at::kChar: return {-128, 127};
    case at::kShort: return {INT16_MIN, INT16_MAX};
    case at::kInt: return {INT32_MIN, INT32_MAX};
    case at::kHalf: return {-(1 << 11), 1 << 11};
    case at::kBFloat16: return {-(1 << 8), 1 << 8};
    case at::kFloat: return {-(1 << 24), 1 << 24};
    case at::kDouble: return {-(int64_t{1} << 53), int64_t{1} << 53};
    default: return {INT64_MIN, INT64_MAX};
  }
}

// From `low` to `high`, both included; the CPU's operator where the core's draw does not reach.
template <class OnCpuWork>
at::Tensor& Integers(at::Tensor& self, int64_t low, int64_t high, const OptionalGenerator& generator, OnCpuWork work) {
  return Filled(self, [&] {
    const auto [lowest, highest] = LimitsOf(self.scalar_type());
    if (!ElementTypeOf(self.scalar_type()).has_value() || low < lowest || high > highest || high == INT64_MAX) {
      OnCpu("random_", self, generator, std::move(work));
      return;
    }
    DrawInto(self, generator, [&](void* stream, reprise::Generator& core, void* out, ElementType type, int64_t count) {
      reprise::DrawInteger(stream, core, out, type, count, low, high + 1);
    });
  });
}

at::Tensor& RandomFrom(at::Tensor& self, int64_t from, std::optional<int64_t> to, OptionalGenerator generator) {
  TORCH_CHECK(!to.has_value() || from < *to, "random_ expects 'from' to be less than 'to', but got from=", from,
              " >= to=", to.value_or(0));
  const auto [lowest, highest] = LimitsOf(self.scalar_type());
  const int64_t last = to.has_value() ? *to - 1 : highest;
  if (at::isIntegralType(self.scalar_type(), true)) {
    TORCH_CHECK(lowest <= from && from <= highest, "from is out of bounds for ", self.dtype());
    TORCH_CHECK(lowest <= last && last <= highest, "to - 1 is out of bounds for ", self.dtype());
  }
  return Integers(self, from, last, generator,
                  [=](at::Tensor& t, at::Generator g) { t.random_(from, to, std::move(g)); });
}

at::Tensor& RandomTo(at::Tensor& self, int64_t to, OptionalGenerator generator) {
  return RandomFrom(self, 0, to, std::move(generator));
}

at::Tensor& Random(at::Tensor& self, OptionalGenerator generator) {
  return Integers(self, 0, LimitsOf(self.scalar_type()).second, generator,
                  [](at::Tensor& t, at::Generator g) { t.random_(std::move(g)); });
}

at::Tensor& Permutation(int64_t n, OptionalGenerator generator, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  const auto [lowest, highest] = LimitsOf(out.scalar_type());
  TORCH_CHECK(n == 0 || n - 1 <= highest, "n is too large for result tensor type: '", out.toString(), "'");
  Resize(out, {n});
  return Filled(out, [&] {
    if (!at::isIntegralType(out.scalar_type(), false) || !ElementTypeOf(out.scalar_type()).has_value()) {
      OnCpu("randperm", out, generator,
            [](at::Tensor& t, at::Generator g) { t.copy_(at::randperm(t.numel(), std::move(g), t.options())); });
      return;
    }
    DrawInto(out, generator, [&](void* stream, reprise::Generator& core, void* to, ElementType type, int64_t count) {
      reprise::DrawPermutation(stream, core, to, type, count);
    });
  });
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("uniform_", Uniform);
  m.impl("normal_", Normal);
  m.impl("log_normal_", LogNormal);
  m.impl("exponential_", Exponential);
  m.impl("cauchy_", Cauchy);
  m.impl("geometric_", Geometric);
  m.impl("bernoulli_.float", BernoulliScalar);
  m.impl("bernoulli_.Tensor", BernoulliTensor);
  m.impl("bernoulli.out", BernoulliOut);
  m.impl("random_.from", RandomFrom);
  m.impl("random_.to", RandomTo);
  m.impl("random_", Random);
  m.impl("randperm.generator_out", Permutation);
}

}  // namespace

std::optional<ElementType> ElementTypeOf(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return ElementType::kFloat32;
    case at::kHalf: return ElementType::kFloat16;
    case at::kBFloat16: return ElementType::kBFloat16;
    case at::kDouble: return ElementType::kFloat64;
    case at::kBool: return ElementType::kBool;
    case at::kByte: return ElementType::kUInt8;
    case at::kChar: return ElementType::kInt8;
    case at::kShort: return ElementType::kInt16;
    case at::kInt: return ElementType::kInt32;
    case at::kLong: return ElementType::kInt64;
    default: return std::nullopt;
  }
}

}  // namespace torch_npu
