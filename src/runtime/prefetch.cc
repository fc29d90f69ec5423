// SPDX-License-Identifier: Apache-2.0
#include "runtime/prefetch.h"

#include <vector>

#include "ir/task.h"

namespace reprise::runtime {
namespace {

struct PrefetchPayload {
  std::vector<PrefetchItem>* items;
};

constexpr ir::TaskType kPrefetch = {
    ir::TaskKind::kNop,
    "NOP",
    [](device::RunContext&, void* payload) {
      for (const PrefetchItem& item : *static_cast<PrefetchPayload*>(payload)->items) {
        (void)device::ManagedMemory::Get().Visit(item.begin, item.bytes,
                                                 [&](device::ManagedState& state) { state.prefetched = item.place; });
      }
      return ir::RunResult::kDone;
    },
    [](void* payload) noexcept { delete static_cast<PrefetchPayload*>(payload)->items; },
    nullptr,
    [](const void* payload, ir::TaskInfo& info) {
      info.name = "Prefetch";
      for (const PrefetchItem& item : *static_cast<const PrefetchPayload*>(payload)->items) {
        info.ranges.push_back({item.begin, item.bytes, false});
      }
    },
    nullptr,
    nullptr,
    true};

}  // namespace

Status SubmitPrefetch(Stream& stream, std::span<const PrefetchItem> items) {
  PrefetchPayload payload{new std::vector<PrefetchItem>(items.begin(), items.end())};
  return stream.Submit(ir::MakeTask(kPrefetch, payload));
}

}  // namespace reprise::runtime
