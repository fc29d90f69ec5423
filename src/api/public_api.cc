// SPDX-License-Identifier: Apache-2.0
#include "reprise/reprise.h"

#include <fmt/format.h>

#include "model/model.h"
#include "observe/dump_file.h"
#include "runtime/report.h"
#include "runtime/stream.h"
#include "runtime/tasks.h"

namespace reprise {

const char* Version() { return REPRISE_VERSION; }

int GetGraphStats(void* model_ri, GraphStats* stats) {
  return runtime::Api("reprise::GetGraphStats", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(stats, "stats"));
    REPRISE_ASSIGN_OR_RETURN(model::Model * model, model::FindOwnModel(model_ri));
    const model::Bill bill = model->TakeBill();
    stats->tasks = static_cast<uint32_t>(bill.tasks);
    stats->streams = static_cast<uint32_t>(bill.streams);
    stats->events = static_cast<uint32_t>(bill.events);
    stats->memory_bytes = bill.bytes;
    return {};
  });
}

int WriteGraphPicture(void* model_ri, const char* path, bool every_task) {
  return runtime::Api("reprise::WriteGraphPicture", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(path, "path"));
    REPRISE_ASSIGN_OR_RETURN(model::Model * model, model::FindOwnModel(model_ri));
    return observe::WriteDump(*model, path, every_task);
  });
}

namespace {

// `operands`: null where the caller does not tell them.
Status SubmitForeignClosure(void* stream, const char* name, std::function<int()> closure,
                            const std::vector<RepriseOperand>* operands) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(name, "name"));
  if (!closure) return Error(kInvalidValue, "parameter closure is empty").Hint("pass a function");
  REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
  runtime::AttachedOperands attached;
  if (operands != nullptr) {
    REPRISE_ASSIGN_OR_RETURN(attached, runtime::ReadOperands(operands->data(), operands->size()));
  }
  return runtime::SubmitClosure(
      *on, name,
      [work = std::move(closure)](device::RunContext&) -> Status {
        const int code = work();
        return code == 0 ? Status()
                         : Error(code, fmt::format("the closure returned {}", code))
                               .Hint("look at what the closure does, and return 0 from it when it succeeds");
      },
      std::move(attached));
}

}  // namespace

int LaunchClosure(void* stream, const char* name, std::function<int()> closure) {
  return runtime::Api("reprise::LaunchClosure",
                      [&] { return SubmitForeignClosure(stream, name, std::move(closure), nullptr); });
}

int LaunchClosure(void* stream, const char* name, std::function<int()> closure,
                  const std::vector<RepriseOperand>& operands) {
  return runtime::Api("reprise::LaunchClosure",
                      [&] { return SubmitForeignClosure(stream, name, std::move(closure), &operands); });
}

}  // namespace reprise
