// SPDX-License-Identifier: Apache-2.0
//
// Subscriptions to the operators of an offline model, and readers for their records. There are no offline models here,
// so no subscription succeeds and no record is ours: the readers say so instead of guessing at foreign bytes.
#include <fmt/format.h>

#include <memory>

#include "acl/acl_prof.h"
#include "profile/profiler.h"
#include "runtime/objects.h"
#include "runtime/report.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
using reprise::profile::ProfilerSubscription;
using reprise::profile::ProfilerSubscriptions;
using reprise::runtime::Api;
using reprise::runtime::NotNull;
namespace runtime = reprise::runtime;

namespace {

// Bytes of a record: type and name at their longest, and the numbers.
constexpr size_t kRecordBytes =
    (ACL_PROF_MAX_OP_TYPE_LEN + ACL_PROF_MAX_OP_NAME_LEN + 6 * sizeof(uint64_t) + 7) / 8 * 8;

Status NoModel(uint32_t model) {
  return Error(kInvalidModelId, fmt::format("modelId is {}: runs of single models are not recorded", model))
      .Culprit("parameter modelId")
      .Hint("record the whole program instead, with aclprofInit and aclprofStart");
}

Status NotOurs(const void* records, size_t bytes) {
  REPRISE_RETURN_IF_ERROR(NotNull(records, "opInfo"));
  if (bytes == 0 || bytes % kRecordBytes != 0) {
    return Error(kInvalidArgument, fmt::format("opInfoLen is {}, must be a multiple of {}", bytes, kRecordBytes))
        .Culprit("parameter opInfoLen")
        .Hint("pass the bytes that a subscription delivered, and their number");
  }
  return Error(kInvalidArgument,
               fmt::format("the {} bytes at opInfo are no records of this library: it delivers none", bytes))
      .Culprit("parameter opInfo")
      .Hint("record with aclprofStart, and read the file that aclprofStop writes");
}

Status NotOursInto(const void* records, size_t bytes, const void* out, const char* parameter) {
  REPRISE_RETURN_IF_ERROR(NotNull(out, parameter));
  return NotOurs(records, bytes);
}

}  // namespace

aclError aclprofModelSubscribe(uint32_t modelId, const aclprofSubscribeConfig* profSubscribeConfig) {
  return Api("aclprofModelSubscribe", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(profSubscribeConfig, "profSubscribeConfig"));
    REPRISE_RETURN_IF_ERROR(
        runtime::FindObject(ProfilerSubscriptions(), profSubscribeConfig, "profiler subscription").status());
    if (reprise::profile::Profiler::Get().is_ready()) {
      return Error(kProfApiConflict,
                   "the profiler is initialised: a program records as a whole or model by model, not both")
          .Culprit("an earlier aclprofInit")
          .Hint("call aclprofFinalize first");
    }
    return NoModel(modelId);
  });
}

aclError aclprofModelUnSubscribe(uint32_t modelId) {
  return Api("aclprofModelUnSubscribe", [&]() -> Status { return NoModel(modelId); });
}

aclprofSubscribeConfig* aclprofCreateSubscribeConfig(int8_t timeInfoSwitch, aclprofAicoreMetrics aicoreMetrics,
                                                     void* fd) {
  void* handle = nullptr;
  Api("aclprofCreateSubscribeConfig", [&]() -> Status {
    if (timeInfoSwitch != 0 && timeInfoSwitch != 1) {
      return Error(kInvalidArgument,
                   fmt::format("timeInfoSwitch is {}, must be 0 or 1", static_cast<int>(timeInfoSwitch)))
          .Culprit("parameter timeInfoSwitch")
          .Hint("pass 1 for times, 0 for none");
    }
    const auto metrics = static_cast<uint32_t>(aicoreMetrics);
    if (metrics > ACL_AICORE_MEMORY_ACCESS && metrics != ACL_AICORE_NONE) {
      return Error(kInvalidArgument,
                   fmt::format("aicoreMetrics is {}, must be 0 to {} or {}", metrics,
                               static_cast<int>(ACL_AICORE_MEMORY_ACCESS), static_cast<int>(ACL_AICORE_NONE)))
          .Culprit("parameter aicoreMetrics")
          .Hint("pass ACL_AICORE_NONE");
    }
    REPRISE_RETURN_IF_ERROR(NotNull(fd, "fd"));
    auto made = std::make_unique<ProfilerSubscription>();
    handle = ProfilerSubscriptions().Insert(made.get());
    if (handle == nullptr)
      return Error(kResourceExhausted, "the process has too many profiler subscriptions")
          .Hint("destroy configurations with aclprofDestroySubscribeConfig");
    made.release();
    return {};
  });
  return static_cast<aclprofSubscribeConfig*>(handle);
}

aclError aclprofDestroySubscribeConfig(const aclprofSubscribeConfig* profSubscribeConfig) {
  return Api("aclprofDestroySubscribeConfig", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(profSubscribeConfig, "profSubscribeConfig"));
    REPRISE_RETURN_IF_ERROR(
        runtime::FindObject(ProfilerSubscriptions(), profSubscribeConfig, "profiler subscription").status());
    delete ProfilerSubscriptions().Erase(profSubscribeConfig);
    return {};
  });
}

aclError aclprofGetOpDescSize(size_t* opDescSize) {
  return Api("aclprofGetOpDescSize", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(opDescSize, "opDescSize"));
    *opDescSize = kRecordBytes;
    return {};
  });
}

aclError aclprofGetOpNum(const void* opInfo, size_t opInfoLen, uint32_t* opNumber) {
  return Api("aclprofGetOpNum", [&]() -> Status { return NotOursInto(opInfo, opInfoLen, opNumber, "opNumber"); });
}

aclError aclprofGetOpTypeLen(const void* opInfo, size_t opInfoLen, uint32_t /*index*/, size_t* opTypeLen) {
  return Api("aclprofGetOpTypeLen", [&]() -> Status { return NotOursInto(opInfo, opInfoLen, opTypeLen, "opTypeLen"); });
}

aclError aclprofGetOpType(const void* opInfo, size_t opInfoLen, uint32_t /*index*/, char* opType,
                          size_t /*opTypeLen*/) {
  return Api("aclprofGetOpType", [&]() -> Status { return NotOursInto(opInfo, opInfoLen, opType, "opType"); });
}

aclError aclprofGetOpNameLen(const void* opInfo, size_t opInfoLen, uint32_t /*index*/, size_t* opNameLen) {
  return Api("aclprofGetOpNameLen", [&]() -> Status { return NotOursInto(opInfo, opInfoLen, opNameLen, "opNameLen"); });
}

aclError aclprofGetOpName(const void* opInfo, size_t opInfoLen, uint32_t /*index*/, char* opName,
                          size_t /*opNameLen*/) {
  return Api("aclprofGetOpName", [&]() -> Status { return NotOursInto(opInfo, opInfoLen, opName, "opName"); });
}

uint64_t aclprofGetOpStart(const void* opInfo, size_t opInfoLen, uint32_t /*index*/) {
  Api("aclprofGetOpStart", [&]() -> Status { return NotOurs(opInfo, opInfoLen); });
  return 0;
}

uint64_t aclprofGetOpEnd(const void* opInfo, size_t opInfoLen, uint32_t /*index*/) {
  Api("aclprofGetOpEnd", [&]() -> Status { return NotOurs(opInfo, opInfoLen); });
  return 0;
}

uint64_t aclprofGetOpDuration(const void* opInfo, size_t opInfoLen, uint32_t /*index*/) {
  Api("aclprofGetOpDuration", [&]() -> Status { return NotOurs(opInfo, opInfoLen); });
  return 0;
}

size_t aclprofGetModelId(const void* opInfo, size_t opInfoLen, uint32_t /*index*/) {
  Api("aclprofGetModelId", [&]() -> Status { return NotOurs(opInfo, opInfoLen); });
  return 0;
}

aclprofSubscribeOpFlag aclprofGetOpFlag(const void* opInfo, size_t opInfoLen, uint32_t /*index*/) {
  Api("aclprofGetOpFlag", [&]() -> Status { return NotOurs(opInfo, opInfoLen); });
  return ACL_SUBSCRIBE_NONE;
}

const char* aclprofGetOpAttriValue(const void* opInfo, size_t opInfoLen, uint32_t /*index*/,
                                   aclprofSubscribeOpAttri /*attri*/) {
  Api("aclprofGetOpAttriValue", [&]() -> Status { return NotOurs(opInfo, opInfoLen); });
  return nullptr;
}
