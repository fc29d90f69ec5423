// SPDX-License-Identifier: Apache-2.0
#include "torchair/memory.h"

#include <utility>
#include <vector>

namespace torchair {

c10::DataPtr AllocateOnDevice(size_t bytes) { return c10::GetAllocator(c10::kPrivateUse1)->allocate(bytes); }

std::shared_ptr<StreamAllocator> StreamAllocator::Of(void* stream) {
  static std::mutex mutex;
  static auto& all = *new std::unordered_map<void*, std::shared_ptr<StreamAllocator>>;
  const std::lock_guard lock(mutex);
  auto& found = all[stream];
  if (found == nullptr) found = std::make_shared<StreamAllocator>();
  return found;
}

struct StreamAllocator::Block final : ge::MemBlock {
  Block(StreamAllocator& allocator, c10::DataPtr taken, size_t bytes)
      : ge::MemBlock(allocator, taken.get(), bytes), memory(std::move(taken)) {}
  c10::DataPtr memory;
};

ge::MemBlock* StreamAllocator::Malloc(size_t size) {
  try {
    auto block = std::make_unique<Block>(*this, AllocateOnDevice(size), size);
    const std::lock_guard lock(mutex_);
    blocks_[block->GetAddr()] = block.get();
    return block.release();
  } catch (const std::exception&) {  // out of memory: the engine says so
    return nullptr;
  }
}

void StreamAllocator::Free(ge::MemBlock* block) {
  const std::unique_ptr<Block> own(static_cast<Block*>(block));  // gives the memory back without the lock
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(own->GetAddr());
  // Memory that was taken may be that of another block by now.
  if (found != blocks_.end() && found->second == own.get()) blocks_.erase(found);
}

c10::DataPtr StreamAllocator::Take(const void* address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return {};
  c10::DataPtr memory = std::move(found->second->memory);
  blocks_.erase(found);
  return memory;
}

std::shared_ptr<FeatureBlock> ShareFeatures(void* stream, size_t bytes) {
  static std::mutex mutex;
  static auto& all = *new std::unordered_map<void*, std::vector<std::weak_ptr<FeatureBlock>>>;
  const std::lock_guard lock(mutex);
  auto& blocks = all[stream];
  for (size_t i = blocks.size(); i-- > 0;) {
    if (blocks[i].expired()) blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(i));
  }
  for (const auto& weak : blocks) {
    auto block = weak.lock();
    if (block != nullptr && block->bytes >= bytes) return block;
  }
  auto block = std::make_shared<FeatureBlock>(FeatureBlock{AllocateOnDevice(bytes), bytes});
  blocks.push_back(block);
  return block;
}

}  // namespace torchair
