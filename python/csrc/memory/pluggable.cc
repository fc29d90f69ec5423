// SPDX-License-Identifier: Apache-2.0
#include "memory/pluggable.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "memory/device_allocator.h"

namespace torch_npu {
namespace {

struct Block {
  ssize_t bytes;
  int device;
  aclrtStream stream;
};

struct PluggedState {
  std::mutex mutex;
  std::shared_ptr<const PluggableAllocator> allocator;
  std::unordered_map<void*, Block> blocks;
};

// Never destroyed: tensors may outlive static objects.
PluggedState& Plugged() {
  static auto* const state = new PluggedState;
  return *state;
}

std::atomic<const PluggableAllocator*> g_current{nullptr};

}  // namespace

void ChangeCurrentAllocator(std::shared_ptr<const PluggableAllocator> allocator) {
  TORCH_CHECK(!WasAllocated(),
              "the allocator cannot be changed: memory of the device was allocated with the current "
              "one already; call change_current_allocator before the first tensor is made");
  PluggedState& state = Plugged();
  const std::lock_guard lock(state.mutex);
  TORCH_CHECK(state.allocator == nullptr, "the allocator was changed before, which is possible once in a process");
  g_current.store(allocator.get(), std::memory_order_release);
  state.allocator = std::move(allocator);
}

std::shared_ptr<const PluggableAllocator> CurrentAllocator() {
  PluggedState& state = Plugged();
  const std::lock_guard lock(state.mutex);
  return state.allocator;
}

bool HasPluggableAllocator() noexcept { return g_current.load(std::memory_order_acquire) != nullptr; }

void* PluggableAllocate(size_t bytes, const NPUStream& stream) {
  if (bytes == 0) return nullptr;
  TORCH_CHECK(!stream.is_capturing(),
              "a capture needs memory of the caching allocator, which keeps it for the graph; "
              "this process has changed to a pluggable allocator (change_current_allocator)");
  const PluggableAllocator& allocator = *g_current.load(std::memory_order_acquire);
  const Block made{static_cast<ssize_t>(bytes), stream.device_index(), stream.handle()};
  void* const block = allocator.allocate(made.bytes, made.device, made.stream);
  TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr,
                   "NPU out of memory: the pluggable allocator has returned null "
                   "for ",
                   bytes, " bytes on device ", made.device);
  PluggedState& state = Plugged();
  const std::lock_guard lock(state.mutex);
  state.blocks[block] = made;
  return block;
}

bool PluggableFree(void* address) {
  PluggedState& state = Plugged();
  Block block;
  {
    const std::lock_guard lock(state.mutex);
    const auto found = state.blocks.find(address);
    if (found == state.blocks.end()) return false;
    block = found->second;
    state.blocks.erase(found);
  }
  state.allocator->free(address, block.bytes, block.device, block.stream);
  return true;
}

void RefusePluggable(const char* what) {
  TORCH_CHECK(!HasPluggableAllocator(), what,
              " is something that only the caching allocator has; this process has "
              "changed to a pluggable allocator (change_current_allocator)");
}

}  // namespace torch_npu
