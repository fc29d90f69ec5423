// SPDX-License-Identifier: Apache-2.0
//
// Profiling: what to record and when, and the marks, ranges and steps that a program sets.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "acl/acl_prof.h"
#include "base/log.h"
#include "device/memory.h"
#include "profile/profiler.h"
#include "runtime/device.h"
#include "runtime/report.h"
#include "runtime/stream.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
using reprise::profile::Profiler;
using reprise::runtime::Api;
using reprise::runtime::NotNull;
namespace runtime = reprise::runtime;

namespace {

constexpr size_t kLongestPath = 4096;
constexpr size_t kLongestStampText = 127;
constexpr size_t kLongestMessage = 4096;
constexpr uint64_t kMostMegabytes = UINT32_MAX;

// Text of at most `bytes`, ending earlier at a zero byte.
std::string Text(const char* text, size_t bytes) { return {text, strnlen(text, bytes)}; }

Status CheckLength(size_t length, size_t most, const char* parameter) {
  if (length >= 1 && length <= most) return {};
  return Error(kInvalidArgument, fmt::format("{} is {}, must be 1 to {}", parameter, length, most))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint("pass the number of bytes of the text");
}

StatusOr<std::vector<int32_t>> ReadDevices(const uint32_t* list, uint32_t count) {
  const auto devices = static_cast<uint32_t>(runtime::Devices().size());
  REPRISE_RETURN_IF_ERROR(NotNull(list, "deviceIdList"));
  if (count == 0 || count > devices) {
    return Error(kInvalidArgument, fmt::format("deviceNums is {}, must be 1 to {}", count, devices))
        .Culprit("parameter deviceNums")
        .Hint("list each device that aclrtGetDeviceCount counts at most once");
  }
  std::vector<int32_t> out;
  for (uint32_t i = 0; i < count; ++i) {
    const auto id = static_cast<int32_t>(list[i]);
    if (list[i] >= devices || std::find(out.begin(), out.end(), id) != out.end()) {
      return Error(kInvalidArgument,
                   fmt::format("deviceIdList[{}] is {}, must be a device below {} that is not in the list yet", i,
                               list[i], devices))
          .Culprit("parameter deviceIdList")
          .Hint("list each device once");
    }
    out.push_back(id);
  }
  return out;
}

Status CheckMetrics(aclprofAicoreMetrics metrics) {
  const auto number = static_cast<uint32_t>(metrics);
  if (number <= ACL_AICORE_MEMORY_ACCESS || number == ACL_AICORE_NONE) return {};
  return Error(kInvalidArgument,
               fmt::format("aicoreMetrics is {}, must be 0 to {} or {}", number,
                           static_cast<int>(ACL_AICORE_MEMORY_ACCESS), static_cast<int>(ACL_AICORE_NONE)))
      .Culprit("parameter aicoreMetrics")
      .Hint("pass ACL_AICORE_NONE: the CPU device has no core counters");
}

// "200MB" or "200".
Status SetStorageLimit(const std::string& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string unit = text.substr(digits);
  const uint64_t number = digits == 0 || digits > 10 ? 0 : std::stoull(text.substr(0, digits));
  if (number == 0 || number > kMostMegabytes || (!unit.empty() && unit != "MB")) {
    return Error(kInvalidArgument,
                 fmt::format("config is \"{}\", must be a number of megabytes from 1 to {}, as in \"200MB\"", text,
                             kMostMegabytes))
        .Culprit("parameter config of ACL_PROF_STORAGE_LIMIT")
        .Hint("write the number and MB");
  }
  return Profiler::Get().SetStorageLimit(number);
}

}  // namespace

aclError aclprofInit(const char* profilerResultPath, size_t length) {
  return Api("aclprofInit", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(profilerResultPath, "profilerResultPath"));
    REPRISE_RETURN_IF_ERROR(CheckLength(length, kLongestPath, "length"));
    const std::string folder = Text(profilerResultPath, length);
    REPRISE_RETURN_IF_ERROR(CheckLength(folder.size(), kLongestPath, "profilerResultPath (its length)"));
    return Profiler::Get().Init(folder);
  });
}

aclError aclprofFinalize() {
  return Api("aclprofFinalize", []() -> Status { return Profiler::Get().Finalize(); });
}

aclprofConfig* aclprofCreateConfig(uint32_t* deviceIdList, uint32_t deviceNums, aclprofAicoreMetrics aicoreMetrics,
                                   const aclprofAicoreEvents* aicoreEvents, uint64_t dataTypeConfig) {
  void* config = nullptr;
  Api("aclprofCreateConfig", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(std::vector<int32_t> devices, ReadDevices(deviceIdList, deviceNums));
    REPRISE_RETURN_IF_ERROR(CheckMetrics(aicoreMetrics));
    if (aicoreEvents != nullptr) {
      return Error(kInvalidArgument, "aicoreEvents is not null: the CPU device counts no core events")
          .Culprit("parameter aicoreEvents")
          .Hint("pass NULL");
    }
    REPRISE_ASSIGN_OR_RETURN(config, Profiler::Get().CreateConfig(std::move(devices), dataTypeConfig));
    return {};
  });
  return static_cast<aclprofConfig*>(config);
}

aclError aclprofDestroyConfig(const aclprofConfig* profilerConfig) {
  return Api("aclprofDestroyConfig", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(profilerConfig, "profilerConfig"));
    return Profiler::Get().DestroyConfig(profilerConfig);
  });
}

aclError aclprofSetConfig(aclprofConfigType configType, const char* config, size_t configLength) {
  return Api("aclprofSetConfig", [&]() -> Status {
    const auto type = static_cast<uint32_t>(configType);
    if (type <= ACL_PROF_ARGS_MIN || type >= ACL_PROF_ARGS_MAX || type == 2) {
      return Error(kInvalidArgument, fmt::format("configType is {}, must be 1 or 3 to {}", type, ACL_PROF_ARGS_MAX - 1))
          .Culprit("parameter configType")
          .Hint("pass one of the options of aclprofConfigType");
    }
    REPRISE_RETURN_IF_ERROR(NotNull(config, "config"));
    REPRISE_RETURN_IF_ERROR(CheckLength(configLength, kLongestPath, "configLength"));
    const std::string text = Text(config, configLength);
    REPRISE_RETURN_IF_ERROR(CheckLength(text.size(), kLongestPath, "config (its length)"));
    if (configType == ACL_PROF_PATH) return Profiler::Get().SetFolder(text);
    if (configType == ACL_PROF_STORAGE_LIMIT) return SetStorageLimit(text);
    // The others choose how often hardware is sampled that the CPU device does not have.
    REPRISE_LOG(kInfo, "ASCENDCL", "aclprofSetConfig: option {} = {} has no effect on the CPU device", type, text);
    return Profiler::Get().is_ready() ? Status()
                                      : Status(Error(kProfNotRun, "the profiler is not initialised")
                                                   .Culprit("aclprofInit was not called")
                                                   .Hint("call aclprofInit first"));
  });
}

aclError aclprofStart(const aclprofConfig* profilerConfig) {
  return Api("aclprofStart", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(profilerConfig, "profilerConfig"));
    return Profiler::Get().Start(profilerConfig);
  });
}

aclError aclprofWarmup(const aclprofConfig* profilerConfig) {
  return Api("aclprofWarmup", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(profilerConfig, "profilerConfig"));
    return Profiler::Get().CheckStart(profilerConfig);
  });
}

// None beyond what every configuration collects: the list is empty.
static Status ListFeatures(size_t* size, void** data) {
  REPRISE_RETURN_IF_ERROR(NotNull(size, "featuresSize"));
  REPRISE_RETURN_IF_ERROR(NotNull(data, "featuresData"));
  *size = 0;
  *data = nullptr;
  return {};
}

aclError aclprofGetSupportedFeatures(size_t* featuresSize, void** featuresData) {
  return Api("aclprofGetSupportedFeatures", [&] { return ListFeatures(featuresSize, featuresData); });
}

aclError aclprofGetSupportedFeaturesV2(size_t* featuresSize, void** featuresData) {
  return Api("aclprofGetSupportedFeaturesV2", [&] { return ListFeatures(featuresSize, featuresData); });
}

// Devices that are set later are recorded anyway.
aclError aclprofRegisterDeviceCallback() {
  return Api("aclprofRegisterDeviceCallback", []() -> Status { return {}; });
}

aclError aclprofStop(const aclprofConfig* profilerConfig) {
  return Api("aclprofStop", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(profilerConfig, "profilerConfig"));
    return Profiler::Get().Stop(profilerConfig);
  });
}

// ---- Steps ----

aclprofStepInfo* aclprofCreateStepInfo() {
  void* step = nullptr;
  Api("aclprofCreateStepInfo", [&]() -> Status {
    step = Profiler::CreateStep();
    if (step == nullptr)
      return Error(kResourceExhausted, "the process has too many profiler steps")
          .Hint("destroy steps with aclprofDestroyStepInfo");
    return {};
  });
  return static_cast<aclprofStepInfo*>(step);
}

void aclprofDestroyStepInfo(aclprofStepInfo* stepinfo) {
  Api("aclprofDestroyStepInfo", [&]() -> Status {
    if (Profiler::DestroyStep(stepinfo)) return {};
    return Error(kInvalidHandle, "stepinfo is no step that aclprofCreateStepInfo made and that still exists")
        .Culprit("parameter stepinfo")
        .Hint("destroy each step once");
  });
}

aclError aclprofGetStepTimestamp(aclprofStepInfo* stepInfo, aclprofStepTag tag, aclrtStream stream) {
  return Api("aclprofGetStepTimestamp", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stepInfo, "stepInfo"));
    if (tag != ACL_STEP_START && tag != ACL_STEP_END) {
      return Error(kInvalidArgument, fmt::format("tag is {}, must be 0 (start) or 1 (end)", static_cast<int>(tag)))
          .Culprit("parameter tag")
          .Hint("pass ACL_STEP_START or ACL_STEP_END");
    }
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    return Profiler::StepTime(stepInfo, tag == ACL_STEP_END, *on);
  });
}

// ---- Marks ----

void* aclprofCreateStamp() {
  void* stamp = nullptr;
  Api("aclprofCreateStamp", [&]() -> Status {
    stamp = Profiler::CreateStamp();
    if (stamp == nullptr)
      return Error(kResourceExhausted, "the process has too many profiler stamps")
          .Hint("destroy stamps with aclprofDestroyStamp");
    return {};
  });
  return stamp;
}

void aclprofDestroyStamp(void* stamp) {
  Api("aclprofDestroyStamp", [&]() -> Status {
    if (Profiler::DestroyStamp(stamp)) return {};
    return Error(kInvalidHandle, "stamp is no stamp that aclprofCreateStamp made and that still exists")
        .Culprit("parameter stamp")
        .Hint("destroy each stamp once");
  });
}

aclError aclprofSetStampTraceMessage(void* stamp, const char* msg, uint32_t msgLen) {
  return Api("aclprofSetStampTraceMessage", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stamp, "stamp"));
    REPRISE_RETURN_IF_ERROR(NotNull(msg, "msg"));
    REPRISE_RETURN_IF_ERROR(CheckLength(msgLen, kLongestStampText, "msgLen"));
    return Profiler::SetStampText(stamp, Text(msg, msgLen));
  });
}

aclError aclprofMark(void* stamp) {
  return Api("aclprofMark", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stamp, "stamp"));
    return Profiler::MarkStamp(stamp);
  });
}

aclError aclprofMarkEx(const char* msg, size_t msgLen, aclrtStream stream) {
  return Api("aclprofMarkEx", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(msg, "msg"));
    REPRISE_RETURN_IF_ERROR(CheckLength(msgLen, kLongestMessage, "msgLen"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    return Profiler::MarkOn(*on, Text(msg, msgLen), true);
  });
}

// ---- Ranges ----

aclError aclprofPush(void* stamp) {
  return Api("aclprofPush", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stamp, "stamp"));
    return Profiler::PushStamp(stamp);
  });
}

aclError aclprofPop() {
  return Api("aclprofPop", []() -> Status { return Profiler::Pop(); });
}

aclError aclprofRangeStart(void* stamp, uint32_t* rangeId) {
  return Api("aclprofRangeStart", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stamp, "stamp"));
    REPRISE_RETURN_IF_ERROR(NotNull(rangeId, "rangeId"));
    REPRISE_ASSIGN_OR_RETURN(*rangeId, Profiler::Get().StartRange(stamp));
    return {};
  });
}

aclError aclprofRangeStop(uint32_t rangeId) {
  return Api("aclprofRangeStop", [&]() -> Status { return Profiler::Get().StopRange(rangeId); });
}

uint64_t aclprofStr2Id(const char* message) {
  uint64_t number = 0;
  Api("aclprofStr2Id", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(message, "message"));
    REPRISE_ASSIGN_OR_RETURN(number, Profiler::Get().NumberOf({message, strnlen(message, kLongestMessage)}));
    return {};
  });
  return number;
}

aclError aclprofRangePushEx(aclprofEventAttributes* attr) {
  return Api("aclprofRangePushEx", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(attr, "attr"));
    const auto wrong = [](const char* field, uint64_t value, uint64_t wanted) {
      return Error(kInvalidArgument, fmt::format("attr->{} is {}, must be {}", field, value, wanted))
          .Culprit(fmt::format("parameter attr, field {}", field))
          .Hint("fill the structure as acl_prof.h describes it");
    };
    if (attr->version != ACL_PROF_EVENT_ATTR_VERSION) {
      return wrong("version", attr->version, ACL_PROF_EVENT_ATTR_VERSION);
    }
    if (attr->size != sizeof *attr) return wrong("size", attr->size, sizeof *attr);
    if (attr->messageType != ACL_PROF_MESSAGE_TYPE_TENSOR_INFO) {
      return wrong("messageType", attr->messageType, ACL_PROF_MESSAGE_TYPE_TENSOR_INFO);
    }
    REPRISE_RETURN_IF_ERROR(NotNull(attr->message.tensorInfo, "attr->message.tensorInfo"));
    aclprofTensorInfo info;
    if (!reprise::device::CopyUntrusted(&info, attr->message.tensorInfo, sizeof info)) {
      return Error(kInvalidArgument, fmt::format("attr->message.tensorInfo is {}, which is no readable memory",
                                                 fmt::ptr(attr->message.tensorInfo)))
          .Culprit("parameter attr, field message.tensorInfo")
          .Hint("pass the address of an aclprofTensorInfo");
    }
    Profiler& profiler = Profiler::Get();
    std::string name = profiler.TextOf(info.opNameId);
    if (name.empty()) name = fmt::format("operator {}", info.opNameId);
    if (const std::string type = profiler.TextOf(info.opTypeId); !type.empty()) name += fmt::format(" ({})", type);
    Profiler::PushNamed(name);
    return {};
  });
}

aclError aclprofRangePop() {
  return Api("aclprofRangePop", []() -> Status { return Profiler::PopNamed(); });
}
