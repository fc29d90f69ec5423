// SPDX-License-Identifier: Apache-2.0
#include "model/external_event.h"

#include "device/scheduler.h"
#include "ir/task_info.h"
#include "runtime/device.h"

namespace reprise::model {
namespace {

void DescribeExternal(const void* payload, ir::TaskInfo& info) {
  info.event_id = static_cast<const ExternalEventPayload*>(payload)->event_id;
}

}  // namespace

const ir::TaskType kExternalRecord = {
    .kind = ir::TaskKind::kExternalRecord,
    .name = "CAPTURE_RECORD_EXTERNAL",
    .run =
        [](device::RunContext& context, void* payload) {
          auto* record = static_cast<runtime::EventRecord*>(
              context.bindings[static_cast<ExternalEventPayload*>(payload)->binding]);
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
          auto* record = static_cast<runtime::EventRecord*>(context.bindings[p->binding]);
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
