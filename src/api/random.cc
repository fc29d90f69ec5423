// SPDX-License-Identifier: Apache-2.0
#include "reprise/random.h"

#include <fmt/format.h>

#include <utility>

#include "api/streams.h"
#include "api/throw.h"
#include "rng/draw.h"
#include "rng/generator.h"
#include "runtime/device.h"
#include "runtime/report.h"
#include "runtime/stream.h"

namespace reprise {
namespace {

using kernels::Distribution;
using kernels::DrawCall;

rng::DefaultGenerators& Defaults() {
  static auto* const generators = new rng::DefaultGenerators(rng::TheEnvironment());  // lives as long as the process
  return *generators;
}

int DeviceCount() { return static_cast<int>(runtime::Devices().size()); }

DrawCall Call(Distribution distribution, void* out, ElementType type, int64_t count) {
  DrawCall call;
  call.distribution = distribution;
  call.type = static_cast<kernels::DType>(type);
  call.count = count;
  call.out = out;
  return call;
}

DrawCall Call(Distribution distribution, void* out, ElementType type, int64_t count, double a, double b = 0) {
  DrawCall call = Call(distribution, out, type, count);
  call.a = a;
  call.b = b;
  return call;
}

void Submit(const char* function, void* stream, Generator& generator, const DrawCall& call) {
  api::Call(function, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, api::FindStreamOrCurrent(stream));
    return rng::SubmitDraw(*found, *generator.impl(), call);
  });
}

}  // namespace

Generator::Generator(std::shared_ptr<rng::Generator> impl) : impl_(std::move(impl)) {}

Generator::Generator(int device) {
  impl_ = api::Value("reprise::Generator", [&]() -> StatusOr<std::shared_ptr<rng::Generator>> {
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const runtime::Device* found, runtime::FindDevice(device));
    return rng::Generator::Create(rng::TheEnvironment(), device);
  });
}

Generator Generator::Default(int device) {
  (void)api::Value("reprise::Generator::Default", [&] { return runtime::FindDevice(device); });
  return Generator(Defaults().Of(device));
}

int Generator::device() const { return impl_->device(); }
uint64_t Generator::initial_seed() const { return impl_->CurrentSeed(); }
void Generator::ManualSeed(uint64_t seed) {
  api::Call("reprise::Generator::ManualSeed", [&] { return impl_->SetCurrentSeed(seed); });
}
uint64_t Generator::Seed() {
  return api::Value("reprise::Generator::Seed", [&] { return impl_->NewSeed(); });
}
uint64_t Generator::offset() const {
  return api::Value("reprise::Generator::offset", [&] { return impl_->GetOffset(); });
}
void Generator::SetOffset(uint64_t offset) {
  api::Call("reprise::Generator::SetOffset", [&] { return impl_->SetOffset(offset); });
}
void Generator::SetState(const State& state) {
  api::Call("reprise::Generator::SetState", [&] { return impl_->SetState(state); });
}
Generator::State Generator::GetState() const {
  return api::Value("reprise::Generator::GetState", [&] { return impl_->GetState(); });
}
void Generator::SetState(const std::vector<uint8_t>& state) {
  api::Call("reprise::Generator::SetState", [&] { return impl_->SetState(state); });
}
Generator Generator::Clone() const {
  return Generator(api::Value("reprise::Generator::Clone", [&] { return impl_->Clone(); }));
}
Generator Generator::Share() const { return Generator(impl_->GraphsafeGetState()); }
void Generator::ShareWith(const Generator& other) {
  api::Call("reprise::Generator::ShareWith", [&] { return impl_->GraphsafeSetState(other.impl_.get()); });
}

std::vector<Generator::State> GetRngStates() {
  std::vector<Generator::State> states;
  for (int device = 0; device < DeviceCount(); ++device) states.push_back(Generator::Default(device).GetState());
  return states;
}

void SetRngStates(const std::vector<Generator::State>& states) {
  if (states.size() != static_cast<size_t>(DeviceCount())) {
    api::Throw("reprise::SetRngStates",
               Error(kInvalidValue, fmt::format("{} states for {} devices", states.size(), DeviceCount()))
                   .Culprit("parameter states")
                   .Hint("pass what GetRngStates has returned"));
  }
  for (int device = 0; device < DeviceCount(); ++device) {
    Generator::Default(device).SetState(states[static_cast<size_t>(device)]);
  }
}

void ManualSeedAll(uint64_t seed) {
  for (int device = 0; device < DeviceCount(); ++device) Generator::Default(device).ManualSeed(seed);
}

uint64_t SeedAll() {
  const uint64_t seed = Generator::Default(0).Seed();
  ManualSeedAll(seed);
  return seed;
}

void DrawUniform(void* stream, Generator& generator, void* out, ElementType type, int64_t count, double from,
                 double to) {
  Submit("reprise::DrawUniform", stream, generator, Call(Distribution::kUniform, out, type, count, from, to));
}

void DrawNormal(void* stream, Generator& generator, void* out, ElementType type, int64_t count, double mean,
                double deviation) {
  Submit("reprise::DrawNormal", stream, generator, Call(Distribution::kNormal, out, type, count, mean, deviation));
}

void DrawLogNormal(void* stream, Generator& generator, void* out, ElementType type, int64_t count, double mean,
                   double deviation) {
  Submit("reprise::DrawLogNormal", stream, generator,
         Call(Distribution::kLogNormal, out, type, count, mean, deviation));
}

void DrawExponential(void* stream, Generator& generator, void* out, ElementType type, int64_t count, double rate) {
  Submit("reprise::DrawExponential", stream, generator, Call(Distribution::kExponential, out, type, count, rate));
}

void DrawCauchy(void* stream, Generator& generator, void* out, ElementType type, int64_t count, double median,
                double half_width) {
  Submit("reprise::DrawCauchy", stream, generator, Call(Distribution::kCauchy, out, type, count, median, half_width));
}

void DrawGeometric(void* stream, Generator& generator, void* out, ElementType type, int64_t count, double probability) {
  Submit("reprise::DrawGeometric", stream, generator, Call(Distribution::kGeometric, out, type, count, probability));
}

void DrawBernoulli(void* stream, Generator& generator, void* out, ElementType type, int64_t count, double probability) {
  Submit("reprise::DrawBernoulli", stream, generator, Call(Distribution::kBernoulli, out, type, count, probability));
}

void DrawBernoulli(void* stream, Generator& generator, void* out, ElementType type, int64_t count,
                   const void* probabilities, ElementType probability_type) {
  DrawCall call = Call(Distribution::kBernoulliEach, out, type, count);
  call.in = probabilities;
  call.in_type = static_cast<kernels::DType>(probability_type);
  Submit("reprise::DrawBernoulli", stream, generator, call);
}

void DrawInteger(void* stream, Generator& generator, void* out, ElementType type, int64_t count, int64_t low,
                 int64_t high) {
  const char* const function = "reprise::DrawInteger";
  if (low >= high) {
    api::Throw(function, Error(kInvalidValue, fmt::format("there is no integer in [{}, {})", low, high))
                             .Culprit("parameters low and high")
                             .Hint("pass a high that is greater than low; it is not drawn itself"));
  }
  DrawCall call = Call(Distribution::kRandint, out, type, count);
  call.low = low;
  call.range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  Submit(function, stream, generator, call);
}

void DrawDropout(void* stream, Generator& generator, const void* in, void* out, void* mask, ElementType type,
                 int64_t count, double probability) {
  DrawCall call = Call(Distribution::kDropout, out, type, count, probability);
  call.in = in;
  call.mask = mask;
  Submit("reprise::DrawDropout", stream, generator, call);
}

void DrawPermutation(void* stream, Generator& generator, void* out, ElementType type, int64_t count) {
  Submit("reprise::DrawPermutation", stream, generator, Call(Distribution::kPermutation, out, type, count));
}

void LaunchRandomClosure(void* stream, Generator& generator, const char* name,
                         std::function<int(uint64_t seed)> closure) {
  api::Call("reprise::LaunchRandomClosure", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(name, "name"));
    if (!closure) {
      return Error(kInvalidValue, "parameter closure is empty").Culprit("parameter closure").Hint("pass a function");
    }
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * found, api::FindStreamOrCurrent(stream));
    return rng::SubmitRandomClosure(
        *found, *generator.impl(), name, [work = std::move(closure)](device::RunContext&, uint64_t seed) -> Status {
          const int code = work(seed);
          return code == 0 ? Status()
                           : Error(code, fmt::format("the closure returned {}", code))
                                 .Hint("look at what the closure does, and return 0 from it when it succeeds");
        });
  });
}

}  // namespace reprise
