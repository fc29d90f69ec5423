// SPDX-License-Identifier: Apache-2.0
#include "runtime/overflow.h"

#include <array>
#include <atomic>
#include <cstring>
#include <map>

#include "base/mutex.h"
#include "device/memory.h"
#include "ir/task.h"
#include "runtime/device.h"
#include "runtime/submission.h"

namespace reprise::runtime {
namespace {

// Shared by its context and by the queued tasks that use it: those run after the context has let go of its residents.
class Block final : public ContextResident {
 public:
  Block(void* context_handle, void* memory) : memory_(memory), context_handle_(context_handle) {}

  void* memory() const { return memory_; }
  void Retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void Release() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    (void)device::MemoryRegistry::Get().Free(memory_, device::MemoryKind::kDevice);
    delete this;
  }
  void ReleaseFromContext() override;

 private:
  ~Block() = default;

  std::atomic<uint32_t> references_{1};
  void* const memory_;
  void* const context_handle_;
};

struct Blocks {
  Mutex mutex;
  std::map<void*, Block*> of_context REPRISE_GUARDED_BY(mutex);  // by handle
};

Blocks& TheBlocks() {
  static auto* const blocks = new Blocks;
  return *blocks;
}

void Block::ReleaseFromContext() {
  {
    Blocks& blocks = TheBlocks();
    MutexLock lock(blocks.mutex);
    blocks.of_context.erase(context_handle_);
  }
  Release();
}

// With a reference for the caller.
StatusOr<Block*> BlockOf(Context& context) {
  Blocks& blocks = TheBlocks();
  MutexLock lock(blocks.mutex);
  const auto it = blocks.of_context.find(context.handle());
  if (it != blocks.of_context.end()) {
    it->second->Retain();
    return it->second;
  }
  REPRISE_ASSIGN_OR_RETURN(
      void* memory, device::MemoryRegistry::Get().AllocateDevice(context.device().id(), kOverflowStatusBytes, 4096));
  std::memset(memory, 0, kOverflowStatusBytes);
  auto* block = new Block(context.handle(), memory);
  if (!context.AddResident(block)) {
    block->Release();
    return Error(kNoContext, "the context is being destroyed by another thread")
        .Hint("let no other thread destroy or reset what this one works with");
  }
  blocks.of_context[context.handle()] = block;
  block->Retain();
  return block;
}

struct OverflowPayload {
  Block* block;
  void* output;
};

void DestroyPayload(void* payload) noexcept { static_cast<OverflowPayload*>(payload)->block->Release(); }

constexpr ir::TaskType kOverflowRead = {.kind = ir::TaskKind::kCopy,
                                        .name = "MEMCPY_ASYNC",
                                        .run =
                                            [](device::RunContext&, void* payload) {
                                              auto* p = static_cast<OverflowPayload*>(payload);
                                              std::memcpy(p->output, p->block->memory(), kOverflowStatusBytes);
                                              return ir::RunResult::kDone;
                                            },
                                        .destroy = DestroyPayload,
                                        .never_waits = true,
                                        .operands =
                                            [](const void* payload, ir::OperandSink& sink) {
                                              const auto* p = static_cast<const OverflowPayload*>(payload);
                                              sink.Take({p->block->memory(), kOverflowStatusBytes, ir::Access::kRead});
                                              sink.Take({p->output, kOverflowStatusBytes, ir::Access::kWrite});
                                            }};

constexpr ir::TaskType kOverflowClear = {
    .kind = ir::TaskKind::kFill,
    .name = "MEMCPY_ASYNC",
    .run =
        [](device::RunContext&, void* payload) {
          auto* p = static_cast<OverflowPayload*>(payload);
          std::memset(p->block->memory(), 0, kOverflowStatusBytes);
          return ir::RunResult::kDone;
        },
    .destroy = DestroyPayload,
    .never_waits = true,
    .operands =
        [](const void* payload, ir::OperandSink& sink) {
          const auto* p = static_cast<const OverflowPayload*>(payload);
          sink.Take({p->block->memory(), kOverflowStatusBytes, ir::Access::kWrite});
        }};

std::array<std::atomic<uint32_t>, device::kMaxDevices>& Modes() {
  static auto* const modes = [] {
    auto* all = new std::array<std::atomic<uint32_t>, device::kMaxDevices>;
    for (auto& mode : *all) mode = static_cast<uint32_t>(OverflowMode::kInfNan);
    return all;
  }();
  return *modes;
}

}  // namespace

OverflowMode GetOverflowMode(const Device& device) {
  return static_cast<OverflowMode>(Modes()[static_cast<size_t>(device.id())].load());
}

void SetOverflowMode(const Device& device, OverflowMode mode) {
  Modes()[static_cast<size_t>(device.id())] = static_cast<uint32_t>(mode);
}

StatusOr<void*> OverflowAddress(Context& context) {
  REPRISE_ASSIGN_OR_RETURN(Block * block, BlockOf(context));
  void* memory = block->memory();
  block->Release();
  return memory;
}

Status SubmitOverflowRead(Stream& stream, void* output) {
  REPRISE_ASSIGN_OR_RETURN(Block * block, BlockOf(stream.context()));
  OverflowPayload payload{block, output};
  return SubmitNow(stream, ir::MakeTask(kOverflowRead, payload));
}

Status SubmitOverflowClear(Stream& stream) {
  REPRISE_ASSIGN_OR_RETURN(Block * block, BlockOf(stream.context()));
  OverflowPayload payload{block, nullptr};
  return SubmitNow(stream, ir::MakeTask(kOverflowClear, payload));
}

}  // namespace reprise::runtime
