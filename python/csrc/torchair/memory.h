// SPDX-License-Identifier: Apache-2.0
//
// Memory for graphs, from PyTorch's caching allocator of the device.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <ge/ge_allocator.h>

#include <memory>
#include <mutex>
#include <unordered_map>

namespace torchair {

/// Of the stream that is current where it is asked.
class StreamAllocator final : public ge::Allocator {
 public:
  /// One for each stream.
  static std::shared_ptr<StreamAllocator> Of(void* stream);

  ge::MemBlock* Malloc(size_t size) override;
  void Free(ge::MemBlock* block) override;
  /// The memory at this address, which is then no longer the engine's; empty where it is not one of these blocks.
  c10::DataPtr Take(const void* address);

 private:
  std::mutex mutex_;
  struct Block;
  std::unordered_map<const void*, Block*> blocks_;  // by address
};

/// Memory for values between nodes, which graphs of one stream share, since they run one after another.
struct FeatureBlock {
  c10::DataPtr memory;
  size_t bytes = 0;
};

/// The first block of the stream that is large enough, else a new one. It goes with its last user.
std::shared_ptr<FeatureBlock> ShareFeatures(void* stream, size_t bytes);

c10::DataPtr AllocateOnDevice(size_t bytes);

}  // namespace torchair
