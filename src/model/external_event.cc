// SPDX-License-Identifier: Apache-2.0
#include "model/external_event.h"

#include "device/scheduler.h"
#include "exec/bindings.h"
#include "ir/task_info.h"
#include "runtime/device.h"

namespace reprise::model {
namespace {

void DescribeExternal(const void* payload, ir::TaskInfo& info) {
  info.event_id = static_cast<const ExternalEventPayload*>(payload)->event_id;
}

runtime::EventRecord* BoundRecord(const device::RunContext& context, const ExternalEventPayload& payload) {
  return context.bindings->events[payload.binding];
}

}  // namespace

const ir::TaskType kExternalRecord = {
    .kind = ir::TaskKind::kExternalRecord,
    .name = "CAPTURE_RECORD_EXTERNAL",
    .run =
        [](device::RunContext& context, void* payload) {
          runtime::EventRecord* const record = BoundRecord(context, *static_cast<ExternalEventPayload*>(payload));
          record->Complete(runtime::Devices()[static_cast<size_t>(context.device_id)]->NowUs());
          return ir::RunResult::kDone;
        },
    .describe = DescribeExternal,
    .operands = ir::NoOperands};

const ir::TaskType kExternalWait = {
    .kind = ir::TaskKind::kExternalWait,
    .name = "CAPTURE_WAIT_EXTERNAL",
    .run =
        [](device::RunContext& context, void* payload) {
          auto* p = static_cast<ExternalEventPayload*>(payload);
          runtime::EventRecord* const record = BoundRecord(context, *p);
          p->parked_at = nullptr;
          if (record == nullptr) return ir::RunResult::kDone;
          const auto done = [record] { return record->done(); };
          if (done() || !record->waiters.AddUnless(done, context.runnable(), &context.scheduler())) {
            return ir::RunResult::kDone;
          }
          p->parked_at = record;
          return ir::RunResult::kParked;
        },
    .cancel =
        [](void* payload, device::Runnable* runnable) noexcept {
          auto* p = static_cast<ExternalEventPayload*>(payload);
          if (p->parked_at != nullptr) p->parked_at->waiters.Remove(runnable);
          p->parked_at = nullptr;
        },
    .describe = DescribeExternal,
    .operands = ir::NoOperands};

}  // namespace reprise::model
