// SPDX-License-Identifier: Apache-2.0
//
// Reports of frameworks: what they measured becomes ranges in the timeline, what they tell beside that becomes marks.
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <string_view>

#include "device/memory.h"
#include "device/timeline.h"
#include "experiment/msprof/toolchain/prof_api.h"
#include "profile/profiler.h"
#include "runtime/report.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
using reprise::device::Timeline;
using reprise::profile::Profiler;
using reprise::runtime::Api;
using reprise::runtime::NotNull;

namespace {

constexpr size_t kLongestHashText = 4096;

Status CheckReport(const void* report, uint32_t bytes, const char* parameter) {
  REPRISE_RETURN_IF_ERROR(NotNull(report, parameter));
  uint16_t magic = 0;
  if (bytes < sizeof magic) {
    return Error(kInvalidValue, fmt::format("length is {}, must be at least {}", bytes, sizeof magic))
        .Culprit("parameter length")
        .Hint("pass the number of bytes of the report");
  }
  if (!reprise::device::CopyUntrusted(&magic, report, sizeof magic)) {
    return Error(kInvalidValue, fmt::format("{} is {}, which is no readable memory", parameter, fmt::ptr(report)))
        .Culprit(fmt::format("parameter {}", parameter))
        .Hint("pass the address of a report");
  }
  if (magic == MSPROF_REPORT_DATA_MAGIC_NUM) return {};
  return Error(kInvalidValue, fmt::format("{} begins with {:#x}, must begin with {:#x}", parameter, magic,
                                          MSPROF_REPORT_DATA_MAGIC_NUM))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint("set magicNumber to MSPROF_REPORT_DATA_MAGIC_NUM");
}

// An instant with the number of the report's type, which begins as all reports do.
Status MarkReport(const void* data, uint32_t bytes, const char* what) {
  struct Begin {
    uint16_t magic;
    uint16_t level;
    uint32_t type;
  };
  REPRISE_RETURN_IF_ERROR(CheckReport(data, bytes, "data"));
  Begin begin{};
  if (!Timeline::on() || bytes < sizeof begin || !reprise::device::CopyUntrusted(&begin, data, sizeof begin)) return {};
  Timeline::Get().Mark(fmt::format("{} of type {}, level {}", what, begin.type, begin.level));
  return {};
}

}  // namespace

int32_t MsprofRegisterCallback(uint32_t /*moduleId*/, ProfCommandHandle handle) {
  return Api("MsprofRegisterCallback",
             [&]() -> Status { return NotNull(reinterpret_cast<const void*>(handle), "handle"); });
}

int32_t MsprofReportApi(uint32_t /*agingFlag*/, const MsprofApi* api) {
  return Api("MsprofReportApi", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(CheckReport(api, sizeof *api, "api"));
    MsprofApi report;
    if (!reprise::device::CopyUntrusted(&report, api, sizeof report)) {
      return Error(kInvalidValue,
                   fmt::format("api is {}, of which not all {} bytes are readable", fmt::ptr(api), sizeof report))
          .Culprit("parameter api")
          .Hint("pass the address of a MsprofApi");
    }
    if (report.endTime < report.beginTime) {
      return Error(kInvalidValue, fmt::format("endTime {} lies before beginTime {}", report.endTime, report.beginTime))
          .Culprit("parameter api")
          .Hint("take both times from MsprofSysCycleTime");
    }
    if (!Timeline::on()) return {};
    std::string name = Profiler::Get().TextOf(report.itemId);
    if (name.empty()) name = fmt::format("report of type {}, level {}", report.type, report.level);
    Timeline::Get().Range(name, report.beginTime, report.endTime, static_cast<int32_t>(report.threadId));
    return {};
  });
}

int32_t MsprofReportCompactInfo(uint32_t /*agingFlag*/, const void* data, uint32_t length) {
  return Api("MsprofReportCompactInfo", [&]() -> Status { return MarkReport(data, length, "compact info"); });
}

int32_t MsprofReportAdditionalInfo(uint32_t /*agingFlag*/, const void* data, uint32_t length) {
  return Api("MsprofReportAdditionalInfo", [&]() -> Status { return MarkReport(data, length, "additional info"); });
}

uint64_t MsprofGetHashId(const char* hashInfo, size_t length) {
  uint64_t number = 0;
  Api("MsprofGetHashId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(hashInfo, "hashInfo"));
    if (length == 0 || length > kLongestHashText) {
      return Error(kInvalidValue, fmt::format("length is {}, must be 1 to {}", length, kLongestHashText))
          .Culprit("parameter length")
          .Hint("pass the number of bytes of the text");
    }
    REPRISE_ASSIGN_OR_RETURN(number, Profiler::Get().NumberOf(std::string_view(hashInfo, strnlen(hashInfo, length))));
    return {};
  });
  return number;
}

uint64_t MsprofSysCycleTime() { return reprise::device::Timeline::Now(); }
