// SPDX-License-Identifier: Apache-2.0
#include "memory/device_allocator.h"

#include <acl/acl.h>
#include <reprise/memory.h>

#include <atomic>

#include "common/error.h"
#include "common/python_stack.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "graph/liveness.h"
#include "memory/history.h"
#include "memory/pluggable.h"
#include "memory/stats.h"

namespace torch_npu {
namespace {

namespace device_memory = reprise::device_memory;

std::atomic<bool> g_was_allocated{false};

using torch_npu::Fill;  // beside the one here

void Fill(c10::CachingAllocator::StatArray& to, const reprise::StatBySize& from) {
  const reprise::Stat* const parts[] = {&from.all, &from.small_pool, &from.large_pool};
  for (size_t i = 0; i < 3; ++i) Fill(to[i], *parts[i]);
}

class CachingDeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const NPUStream stream = CurrentStream();
    EnsureContext();
    void* const block = AllocateOn(stream, bytes);
    return {block, block, &FreeBlock, stream.device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &FreeBlock; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    Check(aclrtMemcpyAsync(to, bytes, from, bytes, ACL_MEMCPY_DEVICE_TO_DEVICE, CurrentStream().handle()),
          "aclrtMemcpyAsync");
  }

  bool initialized() override { return IsInitialized(); }
  void emptyCache(c10::MempoolId_t pool) override {
    if (!IsInitialized() || HasPluggableAllocator()) return;
    EnsureContext();
    const ReleaseGil no_gil;
    Guarded([&] { device_memory::EmptyCache({pool.first, pool.second}); });
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    const NPUStream user(stream);
    RefuseExternal(user, "record_stream");
    if (!IsOurs(data) || HasPluggableAllocator()) return;
    Guarded([&] { device_memory::RecordStream(data.get_context(), user.handle()); });
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    RefusePluggable("statistics of device memory");
    const reprise::DeviceStats from = Guarded([&] { return device_memory::Stats(device); });
    c10::CachingDeviceAllocator::DeviceStats to;
    Fill(to.allocation, from.allocation);
    Fill(to.segment, from.segment);
    Fill(to.active, from.active);
    Fill(to.inactive_split, from.inactive_split);
    Fill(to.allocated_bytes, from.allocated_bytes);
    Fill(to.reserved_bytes, from.reserved_bytes);
    Fill(to.active_bytes, from.active_bytes);
    Fill(to.inactive_split_bytes, from.inactive_split_bytes);
    Fill(to.requested_bytes, from.requested_bytes);
    Fill(to.oversize_allocations, from.oversize_allocations);
    Fill(to.oversize_segments, from.oversize_segments);
    to.num_alloc_retries = from.num_alloc_retries;
    to.num_ooms = from.num_ooms;
    to.num_oom_rejections = from.num_oom_rejections;
    to.num_sync_all_streams = from.num_sync_all_streams;
    to.num_device_alloc = from.num_device_alloc;
    to.num_device_free = from.num_device_free;
    to.max_split_size = from.max_split_size;
    return to;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    Guarded([&] { device_memory::ResetAccumulatedStats(device); });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    Guarded([&] { device_memory::ResetPeakStats(device); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const c10::DeviceIndex before = ExchangeDevice(device);
    size_t free = 0;
    size_t total = 0;
    const int code = aclrtGetMemInfo(ACL_HBM_MEM, &free, &total);
    if (before != device) SetDevice(before);
    Check(code, "aclrtGetMemInfo");
    return {free, total};
  }
};

CachingDeviceAllocator* const g_device_allocator = [] {
  auto* const allocator = new CachingDeviceAllocator;
  // What the device works on may need the GIL, which whoever waits for memory holds.
  device_memory::SetWaitScope([]() -> void* { return new ReleaseGil; },
                              [](void* released) { delete static_cast<ReleaseGil*>(released); });
  c10::SetAllocator(c10::kPrivateUse1, allocator);
  return allocator;
}();

}  // namespace

c10::DeviceAllocator& DeviceMemory() { return *g_device_allocator; }

void* AllocateOn(const NPUStream& stream, size_t bytes) {
  if (!g_was_allocated.load(std::memory_order_relaxed)) g_was_allocated.store(true);
  if (HasPluggableAllocator()) [[unlikely]]
    return PluggableAllocate(bytes, stream);
  void* const block = Guarded([&] { return device_memory::Allocate(bytes, stream.handle()); });
  NoteBirth(block);
  return block;
}

void FreeBlock(void* block) {
  if (block == nullptr || !IsAlive()) return;
  NoteFree(block);
  if (HasPluggableAllocator() && PluggableFree(block)) return;
  try {
    device_memory::Free(block, ContextOfFree());
  } catch (...) {  // gone already: the device was reset
  }
}

bool IsOurs(const c10::DataPtr& data) noexcept { return data.get_deleter() == &FreeBlock; }

bool WasAllocated() noexcept { return g_was_allocated.load(); }

void CheckMemorySettings() {
  try {
    (void)reprise::MemorySettings();
  } catch (const reprise::Exception& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

}  // namespace torch_npu
