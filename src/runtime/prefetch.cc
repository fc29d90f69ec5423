// SPDX-License-Identifier: Apache-2.0
#include "runtime/prefetch.h"

#include <vector>

#include "ir/task.h"
#include "ir/task_info.h"
#include "runtime/submission.h"

namespace reprise::runtime {
namespace {

struct PrefetchPayload {
  std::vector<PrefetchItem>* items;
};

constexpr ir::TaskType kPrefetch = {
    .kind = ir::TaskKind::kNop,
    .name = "NOP",
    .run =
        [](device::RunContext&, void* payload) {
          for (const PrefetchItem& item : *static_cast<PrefetchPayload*>(payload)->items) {
            (void)device::ManagedMemory::Get().Visit(
                item.begin, item.bytes, [&](device::ManagedState& state) { state.prefetched = item.place; });
          }
          return ir::RunResult::kDone;
        },
    .destroy = [](void* payload) noexcept { delete static_cast<PrefetchPayload*>(payload)->items; },
    .describe = [](const void*, ir::TaskInfo& info) { info.name = "Prefetch"; },
    .never_waits = true,
    .operands =
        [](const void* payload, ir::OperandSink& sink) {
          for (const PrefetchItem& item : *static_cast<const PrefetchPayload*>(payload)->items) {
            sink.Take({item.begin, item.bytes, ir::Access::kRead});
          }
        }};

}  // namespace

Status SubmitPrefetch(Stream& stream, std::span<const PrefetchItem> items) {
  PrefetchPayload payload{new std::vector<PrefetchItem>(items.begin(), items.end())};
  return Submit(stream, ir::MakeTask(kPrefetch, payload));
}

}  // namespace reprise::runtime
