// SPDX-License-Identifier: Apache-2.0
//
// torch.Generator(device="npu"), over the core's generator: the same numbers in a replay as in the eager call.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>
#include <reprise/random.h>

#include <optional>

namespace torch_npu {

class NPUGeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit NPUGeneratorImpl(reprise::Generator core);

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override;
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;

  static c10::DeviceType device_type() { return c10::kPrivateUse1; }
  reprise::Generator& core() { return core_; }

 private:
  NPUGeneratorImpl* clone_impl() const override;

  reprise::Generator core_;
};

/// The device's own, made when the device is. -1: the current device.
const at::Generator& DefaultGenerator(c10::DeviceIndex device = -1);
at::Generator NewGenerator(c10::DeviceIndex device = -1);

/// The core's generator to draw from: of `generator`, or of the current device when there is none. Throws for
/// generators of other devices.
reprise::Generator& CoreGenerator(const std::optional<at::Generator>& generator);

}  // namespace torch_npu
