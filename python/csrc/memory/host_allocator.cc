// SPDX-License-Identifier: Apache-2.0
#include "memory/host_allocator.h"

#include <acl/acl.h>
#include <reprise/memory.h>

#include "common/error.h"
#include "common/python_stack.h"
#include "device/runtime.h"
#include "device/stream.h"
#include "memory/stats.h"

namespace torch_npu {
namespace {

namespace host_memory = reprise::host_memory;

void Delete(void* block) {
  if (block == nullptr || !IsAlive()) return;
  try {
    host_memory::Free(block);
  } catch (...) {  // gone already
  }
}

using torch_npu::Fill;  // beside the one here

void Fill(at::DurationStat& to, const reprise::DurationStat& from) {
  to.total = from.total;
  to.max = from.max;
  to.min = from.min;
  to.count = from.count;
}

class CachingHostAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    EnsureContext();
    void* const block = Guarded([&] { return host_memory::Allocate(bytes); });
    return {block, block, &Delete, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  bool record_event(void* address, void*, c10::Stream stream) override {
    return Guarded([&] { return host_memory::RecordUse(address, NPUStream(stream).handle()); });
  }
  void empty_cache() override {
    if (!IsInitialized()) return;
    const ReleaseGil no_gil;
    Guarded([] { host_memory::EmptyCache(); });
  }
  at::HostStats get_stats() override {
    const reprise::HostStats from = Guarded([] { return host_memory::Stats(); });
    at::HostStats to;
    Fill(to.allocations, from.allocations);
    Fill(to.active_requests, from.active_requests);
    Fill(to.allocated_bytes, from.allocated_bytes);
    Fill(to.active_bytes, from.active_bytes);
    Fill(to.host_alloc_time, from.host_alloc_time);
    Fill(to.host_free_time, from.host_free_time);
    to.num_host_alloc = from.num_host_alloc;
    to.num_host_free = from.num_host_free;
    return to;
  }
  void reset_accumulated_stats() override {
    Guarded([] { host_memory::ResetAccumulatedStats(); });
  }
  void reset_peak_stats() override {
    Guarded([] { host_memory::ResetPeakStats(); });
  }
};

CachingHostAllocator* const g_host_allocator = [] {
  auto* const allocator = new CachingHostAllocator;
  at::setHostAllocator(at::kPrivateUse1, allocator);
  return allocator;
}();

}  // namespace

at::HostAllocator& HostMemory() { return *g_host_allocator; }

bool IsPinned(const void* address) {
  if (!IsInitialized()) return false;
  aclrtPtrAttributes attributes{};
  return aclrtPointerGetAttributes(address, &attributes) == 0 && attributes.location.type == ACL_MEM_LOCATION_TYPE_HOST;
}

}  // namespace torch_npu
