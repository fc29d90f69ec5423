// SPDX-License-Identifier: Apache-2.0
#include "rng/generator.h"

#include <ATen/Functions.h>
#include <ATen/Utils.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "common/error.h"
#include "device/runtime.h"

namespace torch_npu {

NPUGeneratorImpl::NPUGeneratorImpl(reprise::Generator core)
    : c10::GeneratorImpl(c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(core.device())),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      core_(std::move(core)) {}

void NPUGeneratorImpl::set_current_seed(uint64_t seed) {
  Guarded([&] { core_.ManualSeed(seed); });
}
void NPUGeneratorImpl::set_offset(uint64_t offset) {
  Guarded([&] { core_.SetOffset(offset); });
}
uint64_t NPUGeneratorImpl::get_offset() const {
  return Guarded([&] { return core_.offset(); });
}
uint64_t NPUGeneratorImpl::current_seed() const { return core_.initial_seed(); }
uint64_t NPUGeneratorImpl::seed() {
  return Guarded([&] { return core_.Seed(); });
}

void NPUGeneratorImpl::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK(state.layout() == c10::kStrided && state.device_type() == c10::kCPU && state.dtype() == at::kByte &&
                  state.is_contiguous(),
              "the RNG state must be a contiguous CPU tensor of bytes (torch.uint8)");
  const auto* const bytes = static_cast<const uint8_t*>(state.data());
  Guarded([&] { core_.SetState(std::vector<uint8_t>(bytes, bytes + state.numel())); });
}

c10::intrusive_ptr<c10::TensorImpl> NPUGeneratorImpl::get_state() const {
  const reprise::Generator::State state = Guarded([&] { return core_.GetState(); });
  const at::Tensor bytes =
      at::empty({static_cast<int64_t>(state.size())}, at::TensorOptions(at::kCPU).dtype(at::kByte));
  std::copy(state.begin(), state.end(), bytes.mutable_data_ptr<uint8_t>());
  return bytes.getIntrusivePtr();
}

void NPUGeneratorImpl::graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) {
  auto* const other = dynamic_cast<NPUGeneratorImpl*>(state.get());
  TORCH_CHECK(other != nullptr, "graphsafe_set_state needs the state of an NPU Generator, not of one on ",
              state ? state->device().str() : "no device");
  Guarded([&] { core_.ShareWith(other->core_); });
}

c10::intrusive_ptr<c10::GeneratorImpl> NPUGeneratorImpl::graphsafe_get_state() const {
  return c10::make_intrusive<NPUGeneratorImpl>(core_.Share());
}

NPUGeneratorImpl* NPUGeneratorImpl::clone_impl() const {
  return new NPUGeneratorImpl(Guarded([&] { return core_.Clone(); }));
}

const at::Generator& DefaultGenerator(c10::DeviceIndex device) {
  static std::mutex mutex;
  static auto* const generators = new std::array<at::Generator, kMaxDevices>;
  if (device < 0) device = CurrentDevice();
  TORCH_CHECK(device < DeviceCount(), "there is no npu device ", static_cast<int>(device));
  at::Generator& generator = (*generators)[static_cast<size_t>(device)];
  const std::lock_guard lock(mutex);
  if (!generator.defined()) {
    generator = at::make_generator<NPUGeneratorImpl>(Guarded([&] { return reprise::Generator::Default(device); }));
  }
  return generator;
}

at::Generator NewGenerator(c10::DeviceIndex device) {
  if (device < 0) device = CurrentDevice();
  return at::make_generator<NPUGeneratorImpl>(Guarded([&] { return reprise::Generator(device); }));
}

reprise::Generator& CoreGenerator(const std::optional<at::Generator>& generator) {
  const at::Generator& chosen = generator.has_value() && generator->defined() ? *generator : DefaultGenerator();
  TORCH_CHECK(chosen.device().type() == c10::kPrivateUse1, "expected a 'npu' generator, got one on ",
              chosen.device().str(), "; make it with torch.Generator(device='npu')");
  return static_cast<NPUGeneratorImpl*>(chosen.unsafeGetGeneratorImpl())->core();
}

}  // namespace torch_npu
