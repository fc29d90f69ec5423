// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.h"

#include <acl/acl.h>
#include <c10/util/Exception.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include <array>
#include <atomic>
#include <mutex>

#include "common/error.h"
#include "common/python_stack.h"

namespace torch_npu {
namespace {

constexpr int kMaxDevices = 64;

std::atomic<bool> g_initialized{false};
std::atomic<bool> g_alive{true};
std::array<std::atomic<bool>, kMaxDevices> g_has_context{};

thread_local c10::DeviceIndex t_device = 0;
thread_local c10::DeviceIndex t_context_of = -1;  // whose context this thread has

void CheckIndex(c10::DeviceIndex device) {
  const c10::DeviceIndex count = DeviceCount();
  TORCH_CHECK(device >= 0 && device < count, "invalid device index ", static_cast<int>(device), ": there ",
              count == 1 ? "is 1 npu device" : "are " + std::to_string(count) + " npu devices",
              "; ASCEND_RT_VISIBLE_DEVICES chooses which ones are visible");
}

}  // namespace

c10::DeviceIndex DeviceCount() noexcept {
  uint32_t count = 0;
  return aclrtGetDeviceCount(&count) == 0 ? static_cast<c10::DeviceIndex>(count) : c10::DeviceIndex{0};
}

void LazyInit() {
  if (g_initialized.load(std::memory_order_acquire)) [[likely]]
    return;
  TORCH_CHECK(!torch::utils::is_device_in_bad_fork(c10::kPrivateUse1),
              "Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, you must use the "
              "'spawn' start method");
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (g_initialized.load(std::memory_order_acquire)) return;
  constexpr int kInitializedBefore = 100002;
  const int code = aclInit(nullptr);
  if (code != kInitializedBefore) Check(code, "aclInit");
  g_initialized.store(true, std::memory_order_release);
  torch::utils::register_fork_handler_for_device_init(c10::kPrivateUse1);
}

bool IsInitialized() noexcept { return g_initialized.load(std::memory_order_acquire); }
bool IsAlive() noexcept { return g_alive.load(std::memory_order_acquire); }

void Shutdown() noexcept {
  if (!IsInitialized() || !g_alive.load()) return;
  const ReleaseGil no_gil;
  for (int device = 0; device < kMaxDevices; ++device) {
    if (!g_has_context[static_cast<size_t>(device)].load()) continue;
    if (aclrtSetDevice(device) == 0) (void)aclrtSynchronizeDevice();
  }
  g_alive.store(false, std::memory_order_release);
}

c10::DeviceIndex CurrentDevice() noexcept { return t_device; }

void SetDevice(c10::DeviceIndex device) {
  if (device == t_context_of) [[likely]] {
    t_device = device;
    return;
  }
  LazyInit();
  CheckIndex(device);
  Check(aclrtSetDevice(device), "aclrtSetDevice");
  t_device = device;
  t_context_of = device;
  g_has_context[static_cast<size_t>(device)].store(true, std::memory_order_release);
}

c10::DeviceIndex ExchangeDevice(c10::DeviceIndex device) {
  const c10::DeviceIndex before = t_device;
  if (device != before || t_context_of != device) SetDevice(device);
  return before;
}

bool HasContext(c10::DeviceIndex device) noexcept {
  return device >= 0 && device < kMaxDevices && g_has_context[static_cast<size_t>(device)].load();
}

void EnsureContext() {
  if (t_context_of != t_device) [[unlikely]]
    SetDevice(t_device);
}

void SynchronizeDevice(c10::DeviceIndex device) {
  const c10::DeviceIndex before = ExchangeDevice(device);
  int code;
  {
    const ReleaseGil no_gil;
    code = aclrtSynchronizeDevice();
  }
  if (before != device) SetDevice(before);
  Check(code, "aclrtSynchronizeDevice");
}

}  // namespace torch_npu
