// SPDX-License-Identifier: Apache-2.0
//
// Marks and ranges of the program. The functions return nothing or no number of an error; the text of one is kept for
// aclGetRecentErrMsg.
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "device/memory.h"
#include "device/timeline.h"
#include "mstx/ms_tools_ext.h"
#include "profile/markers.h"
#include "profile/memory_marks.h"
#include "runtime/report.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
using reprise::profile::Markers;
using reprise::profile::MemoryMarks;
using reprise::runtime::Api;
using reprise::runtime::NotNull;

namespace {

constexpr size_t kLongestMarker = 4096;

StatusOr<std::string> ReadMarker(const char* text, const char* parameter) {
  REPRISE_RETURN_IF_ERROR(NotNull(text, parameter));
  const size_t length = strnlen(text, kLongestMarker + 1);
  if (length >= 1 && length <= kLongestMarker) return std::string(text, length);
  return Error(kInvalidArgument, fmt::format("{} is {}, must have 1 to {} bytes", parameter,
                                             length == 0 ? "empty" : "longer", kLongestMarker))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint("pass a short text that says what begins here");
}

// Handles are numbers that never come again, so that one of a destroyed domain is known for what it is.
mstxDomainHandle_t DomainHandle(uint64_t number) { return reinterpret_cast<mstxDomainHandle_t>(number); }

StatusOr<uint64_t> ReadDomain(mstxDomainHandle_t handle) {
  REPRISE_RETURN_IF_ERROR(NotNull(handle, "domain"));
  return reinterpret_cast<uint64_t>(handle);
}

constexpr size_t kMostBatch = 1u << 20;

// NULL is no domain.
uint64_t DomainOrNone(mstxDomainHandle_t handle) { return reinterpret_cast<uint64_t>(handle); }

Status WrongField(const char* field, uint64_t value, const char* must) {
  return Error(kInvalidValue, fmt::format("{} is {}, must be {}", field, value, must))
      .Culprit(fmt::format("{} in parameter desc", field))
      .Hint("fill the description as ms_tools_ext.h describes it");
}

// Copies `count` entries of an array that may be wild.
template <class Entry>
StatusOr<std::vector<Entry>> ReadEntries(const void* array, size_t count, const char* parameter) {
  if (count == 0 || count > kMostBatch) return WrongField("the count", count, "1 to 1048576");
  REPRISE_RETURN_IF_ERROR(NotNull(array, parameter));
  std::vector<Entry> entries(count);
  if (reprise::device::CopyUntrusted(entries.data(), array, count * sizeof(Entry))) return entries;
  return Error(kInvalidValue,
               fmt::format("{} at {}: {} entries are not readable there", parameter, fmt::ptr(array), count))
      .Culprit(fmt::format("{} in parameter desc", parameter))
      .Hint("pass an array and the number of its entries");
}

StatusOr<std::vector<MemoryMarks::Range>> ReadRanges(mstxMemType type, const void* array, size_t count) {
  if (type != MSTX_MEM_TYPE_VIRTUAL_ADDRESS) return WrongField("the type of memory", type, "0 (virtual addresses)");
  REPRISE_ASSIGN_OR_RETURN(const auto given, ReadEntries<mstxMemVirtualRangeDesc_t>(array, count, "the ranges"));
  std::vector<MemoryMarks::Range> ranges;
  for (const auto& one : given) ranges.push_back({one.deviceId, reinterpret_cast<uint64_t>(one.ptr), one.size});
  return ranges;
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

mstxMemHeapHandle_t mstxMemHeapRegister(mstxDomainHandle_t domain, mstxMemHeapDesc_t const* desc) {
  uint64_t heap = 0;
  Api("mstxMemHeapRegister", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(desc, "desc"));
    if (desc->usage != MSTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR) return WrongField("usage", desc->usage, "0");
    REPRISE_ASSIGN_OR_RETURN(const auto ranges, ReadRanges(desc->type, desc->typeSpecificDesc, 1));
    REPRISE_ASSIGN_OR_RETURN(heap, MemoryMarks::AddHeap(DomainOrNone(domain), ranges[0]));
    return {};
  });
  return reinterpret_cast<mstxMemHeapHandle_t>(heap);
}

void mstxMemHeapUnregister(mstxDomainHandle_t domain, mstxMemHeapHandle_t heap) {
  Api("mstxMemHeapUnregister", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(heap, "heap"));
    return MemoryMarks::RemoveHeap(DomainOrNone(domain), reinterpret_cast<uint64_t>(heap));
  });
}

void mstxMemRegionsRegister(mstxDomainHandle_t domain, mstxMemRegionsRegisterBatch_t const* desc) {
  Api("mstxMemRegionsRegister", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(desc, "desc"));
    REPRISE_RETURN_IF_ERROR(NotNull(desc->heap, "heap"));
    REPRISE_ASSIGN_OR_RETURN(const auto ranges, ReadRanges(desc->regionType, desc->regionDescArray, desc->regionCount));
    std::vector<uint64_t> numbers(ranges.size());
    REPRISE_RETURN_IF_ERROR(
        MemoryMarks::AddRegions(DomainOrNone(domain), reinterpret_cast<uint64_t>(desc->heap), ranges, numbers.data()));
    for (size_t i = 0; desc->regionHandleArrayOut != nullptr && i < numbers.size(); ++i) {
      desc->regionHandleArrayOut[i] = reinterpret_cast<mstxMemRegionHandle_t>(numbers[i]);
    }
    return {};
  });
}

void mstxMemRegionsUnregister(mstxDomainHandle_t domain, mstxMemRegionsUnregisterBatch_t const* desc) {
  Api("mstxMemRegionsUnregister", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(desc, "desc"));
    REPRISE_ASSIGN_OR_RETURN(const auto given,
                             ReadEntries<mstxMemRegionRef_t>(desc->refArray, desc->refCount, "refArray"));
    std::vector<MemoryMarks::Reference> regions;
    for (const mstxMemRegionRef_t& one : given) {
      if (one.refType != MSTX_MEM_REGION_REF_TYPE_POINTER && one.refType != MSTX_MEM_REGION_REF_TYPE_HANDLE) {
        return WrongField("refType", one.refType, "0 (pointer) or 1 (handle)");
      }
      regions.push_back({one.refType == MSTX_MEM_REGION_REF_TYPE_HANDLE, reinterpret_cast<uint64_t>(one.pointer)});
    }
    return MemoryMarks::RemoveRegions(DomainOrNone(domain), regions);
  });
}
