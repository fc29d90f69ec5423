// SPDX-License-Identifier: Apache-2.0
//
// Updates of the stored tasks of built models.
#include "model/task_update.h"

#include <fmt/format.h>

#include <cstring>

#include "acl/acl.h"
#include "check.h"
#include "random_request.h"
#include "runtime/report.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
namespace model = reprise::model;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::NotNull;
using runtime::NotNullInner;
using runtime::Stream;

namespace {

Status CheckRest(const uint32_t (&reserved)[4]) {
  for (const uint32_t word : reserved) REPRISE_RETURN_IF_ERROR(IsReserved(word, "info->val.rsv", kInvalidValue));
  return {};
}

Status ReadNewRequest(const void* source, size_t bytes, runtime::RandomRequest* request) {
  if (bytes == sizeof(aclrtRandomNumTaskInfo)) {
    aclrtRandomNumTaskInfo info;
    std::memcpy(&info, source, sizeof info);
    *request = {};
    return ReadRandomRequest(info, request);
  }
  aclrtRandomNumFuncParaInfo info;
  std::memcpy(&info, source, sizeof info);
  request->a = {};
  request->b = {};
  return ReadRandomFunction(info, request);
}

StatusOr<model::RandomUpdate> ReadRandom(const aclrtRandomTaskUpdateAttr& attr) {
  REPRISE_RETURN_IF_ERROR(NotNullInner(attr.srcAddr, "info->val.randomTaskAttr.srcAddr"));
  if (attr.size != sizeof(aclrtRandomNumTaskInfo) && attr.size != sizeof(aclrtRandomNumFuncParaInfo)) {
    return Error(kInvalidValue, fmt::format("info->val.randomTaskAttr.size is {}, must be {} or {}", attr.size,
                                            sizeof(aclrtRandomNumTaskInfo), sizeof(aclrtRandomNumFuncParaInfo)))
        .Culprit("parameter info, field size")
        .Hint("keep an aclrtRandomNumTaskInfo, or an aclrtRandomNumFuncParaInfo, in device memory");
  }
  REPRISE_RETURN_IF_ERROR(CheckRest(attr.rsv));
  REPRISE_RETURN_IF_ERROR(DeviceReaches(attr.srcAddr, attr.size, "info->val.randomTaskAttr.srcAddr"));
  return model::RandomUpdate{attr.srcAddr, attr.size, ReadNewRequest};
}

StatusOr<model::KernelUpdate> ReadKernel(const aclrtAicAivTaskUpdateAttr& attr) {
  model::KernelUpdate update{};
  if (attr.funcEntryAddr == nullptr && attr.blockDimAddr == nullptr) {
    return Error(kInvalidValue, "funcEntryAddr and blockDimAddr are both null: nothing would change")
        .Culprit("parameter info")
        .Hint("pass the address of a new entry, of a new number of blocks, or both");
  }
  REPRISE_RETURN_IF_ERROR(CheckRest(attr.rsv));
  if (attr.funcEntryAddr != nullptr) {
    REPRISE_RETURN_IF_ERROR(NotNullInner(attr.binHandle, "info->val.aicAivTaskAttr.binHandle"));
    REPRISE_ASSIGN_OR_RETURN(update.binary,
                             runtime::FindObject(runtime::KernelBinaries(), attr.binHandle, "kernel binary"));
    REPRISE_RETURN_IF_ERROR(DeviceReachesCell(attr.funcEntryAddr, 8, "info->val.aicAivTaskAttr.funcEntryAddr"));
    update.entry = static_cast<const uint64_t*>(attr.funcEntryAddr);
  }
  if (attr.blockDimAddr != nullptr) {
    REPRISE_RETURN_IF_ERROR(DeviceReachesCell(attr.blockDimAddr, 4, "info->val.aicAivTaskAttr.blockDimAddr"));
    update.blocks = static_cast<const uint32_t*>(attr.blockDimAddr);
  }
  return update;
}

}  // namespace

aclError aclrtTaskUpdateAsync(aclrtStream taskStream, uint32_t taskId, aclrtTaskUpdateInfo* info,
                              aclrtStream execStream) {
  return Api("aclrtTaskUpdateAsync", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(info, "info"));
    REPRISE_RETURN_IF_ERROR(InRange(info->id, ACL_RT_UPDATE_RANDOM_TASK, ACL_RT_UPDATE_AIC_AIV_TASK, "info->id"));
    REPRISE_ASSIGN_OR_RETURN(Stream * stored, runtime::FindStream(taskStream));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(execStream));
    if (info->id == ACL_RT_UPDATE_RANDOM_TASK) {
      REPRISE_ASSIGN_OR_RETURN(const model::RandomUpdate update, ReadRandom(info->val.randomTaskAttr));
      return model::UpdateRandom(*stored, taskId, update, *on);
    }
    REPRISE_ASSIGN_OR_RETURN(const model::KernelUpdate update, ReadKernel(info->val.aicAivTaskAttr));
    return model::UpdateKernel(*stored, taskId, update, *on);
  });
}
