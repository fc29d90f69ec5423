// SPDX-License-Identifier: Apache-2.0
//
// Marks and ranges of the program. The functions return nothing or no number of an error; the text of one is kept for
// aclGetRecentErrMsg.
#include <fmt/format.h>

#include <cstring>
#include <string>

#include "device/timeline.h"
#include "mstx/ms_tools_ext.h"
#include "observe/markers.h"
#include "runtime/report.h"

using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
using reprise::observe::Markers;
using reprise::runtime::Api;
using reprise::runtime::NotNull;

namespace {

constexpr size_t kLongestMarker = 4096;

StatusOr<std::string> ReadMarker(const char* text, const char* parameter) {
  REPRISE_RETURN_IF_ERROR(NotNull(text, parameter));
  const size_t length = strnlen(text, kLongestMarker + 1);
  if (length >= 1 && length <= kLongestMarker) return std::string(text, length);
  return Error(100000, fmt::format("{} is {}, must have 1 to {} bytes", parameter, length == 0 ? "empty" : "longer",
                                   kLongestMarker))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint("pass a short text that says what begins here");
}

// Handles are numbers that never come again, so that one of a destroyed domain is known for what it is.
mstxDomainHandle_t DomainHandle(uint64_t number) { return reinterpret_cast<mstxDomainHandle_t>(number); }

StatusOr<uint64_t> ReadDomain(mstxDomainHandle_t handle) {
  REPRISE_RETURN_IF_ERROR(NotNull(handle, "domain"));
  return reinterpret_cast<uint64_t>(handle);
}

}  // namespace

void mstxMarkA(const char* message, aclrtStream stream) {
  Api("mstxMarkA", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const std::string text, ReadMarker(message, "message"));
    return Markers::Mark(0, text, stream);
  });
}

mstxRangeId mstxRangeStartA(const char* message, aclrtStream stream) {
  uint64_t range = MSTX_INVALID_ID;
  Api("mstxRangeStartA", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const std::string text, ReadMarker(message, "message"));
    REPRISE_ASSIGN_OR_RETURN(range, Markers::Start(0, text, stream));
    return {};
  });
  return range;
}

void mstxRangeEnd(mstxRangeId id) {
  Api("mstxRangeEnd", [&]() -> Status { return Markers::End(0, id); });
}

mstxDomainHandle_t mstxDomainCreateA(const char* name) {
  mstxDomainHandle_t domain = nullptr;
  Api("mstxDomainCreateA", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(std::string text, ReadMarker(name, "name"));
    REPRISE_ASSIGN_OR_RETURN(const uint64_t number, Markers::CreateDomain(std::move(text)));
    domain = DomainHandle(number);
    return {};
  });
  return domain;
}

void mstxDomainDestroy(mstxDomainHandle_t domain) {
  Api("mstxDomainDestroy", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const uint64_t number, ReadDomain(domain));
    return Markers::DestroyDomain(number);
  });
}

void mstxDomainMarkA(mstxDomainHandle_t domain, const char* message, aclrtStream stream) {
  Api("mstxDomainMarkA", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const uint64_t number, ReadDomain(domain));
    REPRISE_ASSIGN_OR_RETURN(const std::string text, ReadMarker(message, "message"));
    return Markers::Mark(number, text, stream);
  });
}

mstxRangeId mstxDomainRangeStartA(mstxDomainHandle_t domain, const char* message, aclrtStream stream) {
  uint64_t range = MSTX_INVALID_ID;
  Api("mstxDomainRangeStartA", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const uint64_t number, ReadDomain(domain));
    REPRISE_ASSIGN_OR_RETURN(const std::string text, ReadMarker(message, "message"));
    REPRISE_ASSIGN_OR_RETURN(range, Markers::Start(number, text, stream));
    return {};
  });
  return range;
}

void mstxDomainRangeEnd(mstxDomainHandle_t domain, mstxRangeId id) {
  Api("mstxDomainRangeEnd", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const uint64_t number, ReadDomain(domain));
    return Markers::End(number, id);
  });
}

void mstxGetToolId(uint64_t* id) {
  Api("mstxGetToolId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(id, "id"));
    *id = reprise::device::Timeline::on() ? MSTX_TOOL_MSPROF_ID : MSTX_TOOL_INVALID_ID;
    return {};
  });
}
