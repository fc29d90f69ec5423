// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "base/status.h"
#include "device/memory.h"
#include "runtime/allocation.h"
#include "runtime/device.h"

namespace reprise::compiler {

/// Device memory of an executable. Freed under running work it stays until that is done.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  static StatusOr<DeviceBlock> Allocate(runtime::Device& device, uint64_t bytes) {
    DeviceBlock block;
    if (bytes == 0) return block;
    REPRISE_ASSIGN_OR_RETURN(block.data_, runtime::AllocateBlock(device, bytes, runtime::PageWish::kAny, false));
    block.bytes_ = bytes;
    return block;
  }
  DeviceBlock(DeviceBlock&& other) noexcept { *this = std::move(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBlock() {
    if (data_ != nullptr) (void)device::MemoryRegistry::Get().Free(data_, device::MemoryKind::kDevice);
  }

  void* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace reprise::compiler
