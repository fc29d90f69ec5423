// SPDX-License-Identifier: Apache-2.0
//
// What generators ask for, over graphs, allocators and streams.
#include <fmt/format.h>

#include "api/graph_impl.h"
#include "api/runtime_driver.h"
#include "api/streams.h"
#include "rng/generator.h"
#include "runtime/device.h"
#include "runtime/stream.h"
#include "runtime/tasks.h"

namespace reprise::rng {
namespace {

class RuntimeEnvironment final : public Environment {
 public:
  uint64_t CurrentCapture(int device) override { return CaptureOf(api::CurrentStreamOrNull(device)); }

  uint64_t CaptureOf(void* stream) override {
    if (stream == nullptr) return 0;  // a default stream is never captured
    const CallGuard call;
    const runtime::Stream* found = runtime::Streams().Find(stream);
    return found != nullptr ? found->capture_id() : 0;
  }

  Status Register(uint64_t capture, std::shared_ptr<GeneratorState> state) override {
    const Graph::Impl::Owner owner = Graph::Impl::FindOwner(capture);
    if (owner.is_body) {
      return Error(kCaptureModeForbids,
                   "RNG inside conditional nodes is not supported: how often a body draws is not known")
          .Hint("draw before the condition, and use the numbers inside");
    }
    if (owner.graph == nullptr) {
      return Error(kCaptureModeForbids,
                   "random numbers are drawn in a capture that no reprise::Graph began: nobody would move the "
                   "offset on at each replay")
          .Hint("capture with reprise::Graph (in Python: torch.npu.graph)");
    }
    owner.graph->Adopt(std::move(state));
    return {};
  }

  StatusOr<int64_t*> AllocateCell(int device) override {
    REPRISE_ASSIGN_OR_RETURN(memory::DeviceAllocator * memory, api::DeviceMemory());
    REPRISE_ASSIGN_OR_RETURN(const runtime::Context* context, runtime::CurrentContext());
    if (context->device().id() != device) {
      return Error(kNoContext, fmt::format("a generator of device {} draws in a capture, but device {} is current",
                                           device, context->device().id()))
          .Hint(fmt::format("call aclrtSetDevice({}) in this thread first", device));
    }
    // For the default stream, which is never captured: so the cell is outside of every graph's pool.
    REPRISE_ASSIGN_OR_RETURN(void* const cell,
                             memory->Allocate(device, sizeof(int64_t), context->default_stream()->handle()));
    return static_cast<int64_t*>(cell);
  }

  void FreeCell(int64_t* cell) noexcept override {
    [[maybe_unused]] const Status freed = api::DeviceMemoryOrNull()->Free(cell);
  }

  Status WriteCells(void* stream, int64_t* seed_cell, int64_t seed, int64_t* offset_cell, int64_t offset) override {
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(runtime::SubmitValueWrite(*on, seed_cell, static_cast<uint64_t>(seed)));
    REPRISE_RETURN_IF_ERROR(runtime::SubmitValueWrite(*on, offset_cell, static_cast<uint64_t>(offset)));
    memory::DeviceAllocator& memory = *api::DeviceMemoryOrNull();
    REPRISE_RETURN_IF_ERROR(memory.RecordStream(seed_cell, stream));
    return memory.RecordStream(offset_cell, stream);
  }
};

}  // namespace

Environment& TheEnvironment() {
  static auto* const environment = new RuntimeEnvironment;
  return *environment;
}

}  // namespace reprise::rng
