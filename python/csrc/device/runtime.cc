// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.h"

#include <acl/acl.h>
#include <c10/util/Exception.h>
#include <pthread.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>

#include "common/error.h"
#include "common/python_stack.h"
#include "memory/device_allocator.h"

namespace torch_npu {
namespace {

std::atomic<bool> g_initialized{false};
std::atomic<bool> g_alive{true};
std::atomic<c10::DeviceIndex> g_count{0};  // once initialized
std::array<std::atomic<bool>, kMaxDevices> g_has_context{};

thread_local c10::DeviceIndex t_device = 0;
thread_local c10::DeviceIndex t_context_of = -1;  // whose context this thread has

void CheckIndex(c10::DeviceIndex device) { TORCH_CHECK(device >= 0 && device < DeviceCount(), WhyNoDevice(device)); }

// An empty list hides all devices, and so does one that does not ascend.
c10::DeviceIndex CountVisible(const char* list, const char* devices) noexcept {
  const long asked = devices != nullptr ? std::strtol(devices, nullptr, 10) : 1;
  const long all = asked >= 1 && asked <= kMaxDevices ? asked : 1;
  if (list == nullptr) return static_cast<c10::DeviceIndex>(all);
  long count = 0;
  for (long last = -1; *list >= '0' && *list <= '9';) {
    char* after = nullptr;
    const long id = std::strtol(list, &after, 10);
    if (id <= last) return 0;
    if (id >= all) break;
    ++count;
    last = id;
    if (*after != ',') break;
    list = after + 1;
  }
  return static_cast<c10::DeviceIndex>(count);
}

}  // namespace

// The devices that the environment leaves, asked anew until the runtime starts: then it settles which ones there are.
c10::DeviceIndex DeviceCount() noexcept {
  if (g_initialized.load(std::memory_order_acquire)) [[likely]]
    return g_count.load(std::memory_order_relaxed);
  const char* devices = std::getenv("REPRISE_DEVICES");
  if (devices == nullptr) devices = std::getenv("LOCAL_WORLD_SIZE");  // of torchrun: a device for each rank
  return CountVisible(std::getenv("ASCEND_RT_VISIBLE_DEVICES"), devices);
}

std::string WhyNoDevice(int64_t device) {
  const int count = DeviceCount();
  std::string why = "invalid device index " + std::to_string(device) + ": there " +
                    (count == 1 ? "is 1 npu device, npu:0" : "are " + std::to_string(count) + " npu devices");
  if (device >= count && device < kMaxDevices) {
    const char* const visible = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
    why += "; set REPRISE_DEVICES=" + std::to_string(device + 1) + " in the environment before Python starts";
    if (visible != nullptr) why += ", and see ASCEND_RT_VISIBLE_DEVICES, which is \"" + std::string(visible) + "\"";
  }
  return why;
}

bool IsDevice(c10::DeviceIndex device) noexcept {
  return HasContext(device) || (device >= 0 && device < DeviceCount());
}

c10::DeviceIndex ToDeviceIndex(int64_t device) {
  TORCH_CHECK(device >= -1 && device < kMaxDevices, WhyNoDevice(device));
  return static_cast<c10::DeviceIndex>(device);
}

void LazyInit() {
  if (g_initialized.load(std::memory_order_acquire)) [[likely]]
    return;
  // Runs InitRuntime, and then what Python has queued. It leaves that for later under a mode of fake tensors.
  if (CanTakeGil()) torch::utils::device_lazy_init(c10::kPrivateUse1);
  InitRuntime();
}

void InitRuntime() {
  if (g_initialized.load(std::memory_order_acquire)) return;
  TORCH_CHECK(!torch::utils::is_device_in_bad_fork(c10::kPrivateUse1),
              "Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, you must use the "
              "'spawn' start method");
  const c10::DeviceIndex visible = DeviceCount();
  TORCH_CHECK(visible > 0, "No NPU devices are available: ASCEND_RT_VISIBLE_DEVICES hides all; name one, or unset it");
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (g_initialized.load(std::memory_order_acquire)) return;
  constexpr int kInitializedBefore = 100002;
  DescribeRefusals();
  const int code = aclInit(nullptr);
  if (code != kInitializedBefore) Check(code, "aclInit");
  CheckMemorySettings();
  uint32_t count = 0;
  Check(aclrtGetDeviceCount(&count), "aclrtGetDeviceCount");
  g_count.store(std::min(visible, static_cast<c10::DeviceIndex>(count)), std::memory_order_relaxed);
  g_initialized.store(true, std::memory_order_release);
  torch::utils::register_fork_handler_for_device_init(c10::kPrivateUse1);
  // In the child there are no threads of the runtime: whatever it tries is refused, whatever it frees is left alone.
  pthread_atfork(nullptr, nullptr, [] {
    g_initialized.store(false);
    g_alive.store(false);
    t_context_of = -1;
  });
}

bool IsInitialized() noexcept { return g_initialized.load(std::memory_order_acquire); }
bool IsAlive() noexcept { return g_alive.load(std::memory_order_acquire); }

void Shutdown() noexcept {
  if (!IsInitialized() || !g_alive.load()) return;
  const ReleaseGil no_gil;
  for (int device = 0; device < kMaxDevices; ++device) {
    if (!g_has_context[static_cast<size_t>(device)].load()) continue;
    // Work that waits for something that will not come must not keep the process from ending.
    constexpr int kMostMilliseconds = 10'000;
    if (aclrtSetDevice(device) == 0) (void)aclrtSynchronizeDeviceWithTimeout(kMostMilliseconds);
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

DeviceScope::DeviceScope(c10::DeviceIndex device) : before_(device < 0 ? CurrentDevice() : ExchangeDevice(device)) {
  EnsureContext();
}

DeviceScope::~DeviceScope() {
  if (before_ == t_device) return;
  try {
    SetDevice(before_);
  } catch (...) {  // it was current before, so it exists
  }
}

void SynchronizeDevice(c10::DeviceIndex device) {
  int code;
  {
    const DeviceScope scope(device);
    const ReleaseGil no_gil;
    code = aclrtSynchronizeDevice();
  }
  Check(code, "aclrtSynchronizeDevice");
}

}  // namespace torch_npu
