// SPDX-License-Identifier: Apache-2.0
//
// Managed memory: one address for host and device.
#include <fmt/format.h>
#include <sched.h>

#include <vector>

#include "acl/acl.h"
#include "check.h"
#include "device/managed_memory.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/prefetch.h"
#include "runtime/reclaim.h"
#include "runtime/report.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
using reprise::device::kManagedGranule;
using reprise::device::ManagedMemory;
using reprise::device::ManagedPlace;
using reprise::device::ManagedState;
using reprise::device::ManagedSummary;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::NotNull;
using runtime::NotNullInner;
using runtime::PrefetchItem;
using runtime::Stream;

namespace {

constexpr int kNone = -2;  // instead of an id: no place, or several
constexpr int kHost = -1;
constexpr int64_t kMaxNumaNode = 1023;
// Counts above these are garbage: arrays that they describe would not be read but run over.
constexpr int64_t kMaxPrefetches = 1 << 24;
constexpr int64_t kMaxAttributes = 1 << 10;

ManagedMemory& Memory() { return ManagedMemory::Get(); }

StatusOr<ManagedPlace> ReadPlace(const aclrtMemManagedLocation& location, const char* parameter) {
  switch (location.type) {
    case ACL_MEM_LOCATIONTYPE_DEVICE: {
      REPRISE_ASSIGN_OR_RETURN(const runtime::Device* device, runtime::FindDevice(location.id));
      return ManagedPlace{ACL_MEM_LOCATIONTYPE_DEVICE, device->id()};
    }
    case ACL_MEM_LOCATIONTYPE_HOST: return ManagedPlace{ACL_MEM_LOCATIONTYPE_HOST, kHost};
    case ACL_MEM_LOCATIONTYPE_HOST_NUMA:
      REPRISE_RETURN_IF_ERROR(InRange(location.id, 0, kMaxNumaNode, fmt::format("{}.id", parameter).c_str()));
      return ManagedPlace{ACL_MEM_LOCATIONTYPE_HOST_NUMA, location.id};
    case ACL_MEM_LOCATIONTYPE_HOST_NUMA_CURRENT: {
      unsigned cpu = 0, node = 0;
      if (getcpu(&cpu, &node) != 0) node = 0;
      return ManagedPlace{ACL_MEM_LOCATIONTYPE_HOST_NUMA, static_cast<int32_t>(node)};
    }
    case ACL_MEM_LOCATIONTYPE_INVALID: break;
  }
  return Error(kInvalidValue, fmt::format("{}.type is {}, must be {} to {}", parameter, static_cast<int>(location.type),
                                          static_cast<int>(ACL_MEM_LOCATIONTYPE_DEVICE),
                                          static_cast<int>(ACL_MEM_LOCATIONTYPE_HOST_NUMA_CURRENT)))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint("name a device, the host, or a NUMA node");
}

Status SetAccess(const void* pointer, uint64_t size, const aclrtMemManagedLocation& location, bool on) {
  REPRISE_ASSIGN_OR_RETURN(const ManagedPlace place, ReadPlace(location, "location"));
  if (place.type == ACL_MEM_LOCATIONTYPE_HOST_NUMA) {
    return Error(kInvalidValue, "location names a NUMA node; accesses are advised for a device or for the host")
        .Culprit("parameter location")
        .Hint("pass ACL_MEM_LOCATIONTYPE_DEVICE or ACL_MEM_LOCATIONTYPE_HOST");
  }
  const bool is_host = place.type == ACL_MEM_LOCATIONTYPE_HOST;
  return Memory().SetAccess(pointer, size, is_host ? ManagedMemory::kHostAccess : place.id, on);
}

Status CheckAttribute(aclrtMemManagedRangeAttribute attribute, const void* data, size_t bytes) {
  REPRISE_RETURN_IF_ERROR(InRange(attribute, ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                  ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID, "attribute"));
  REPRISE_RETURN_IF_ERROR(NotNull(data, "data"));
  const bool is_list = attribute == ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
  if (is_list ? bytes != 0 && bytes % sizeof(int) == 0 : bytes == sizeof(int)) return {};
  return Error(kInvalidValue, fmt::format("dataSize is {} for attribute {}, must be {}", bytes,
                                          static_cast<int>(attribute), is_list ? "a multiple of 4 above 0" : "4"))
      .Culprit("parameter dataSize")
      .Hint("pass the bytes of an int, or of an array of them for ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY");
}

void WriteAttribute(const ManagedSummary& range, aclrtMemManagedRangeAttribute attribute, void* data, size_t bytes) {
  const bool is_prefetch = attribute >= ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION;
  const ManagedPlace place = is_prefetch ? range.prefetched : range.preferred;
  int* const out = static_cast<int*>(data);
  switch (attribute) {
    case ACL_MEM_RANGE_ATTRIBUTE_READ_MOSTLY: *out = range.read_mostly ? 1 : 0; break;
    case ACL_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      size_t at = 0;
      const size_t most = bytes / sizeof(int);
      if (range.accessed_by_host && at < most) out[at++] = kHost;
      for (const int device : range.accessed_by) {
        if (at < most) out[at++] = device;
      }
      while (at < most) out[at++] = kNone;
      break;
    }
    case ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
    case ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE: *out = static_cast<int>(place.type); break;
    case ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case ACL_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
    case ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    case ACL_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID: *out = place.id; break;
  }
}

}  // namespace

aclError aclrtMemAllocManaged(void** ptr, uint64_t size, uint32_t flag) {
  return Api("aclrtMemAllocManaged", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    if (flag != ACL_RT_MEM_ATTACH_GLOBAL) {
      return Error(kInvalidArgument,
                   fmt::format("flag is {}, must be ACL_RT_MEM_ATTACH_GLOBAL ({})", flag, ACL_RT_MEM_ATTACH_GLOBAL))
          .Culprit("parameter flag")
          .Hint("pass ACL_RT_MEM_ATTACH_GLOBAL");
    }
    if (size == 0) {
      return Error(kInvalidValue, "size is 0, must be at least 1 byte")
          .Culprit("parameter size")
          .Hint("pass the size of the block");
    }
    REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
    const int device = context->device().id();
    REPRISE_ASSIGN_OR_RETURN(*ptr, runtime::OrReclaim(device, size, [&] { return Memory().Allocate(device, size); }));
    return {};
  });
}

aclError aclrtMemManagedAdvise(const void* const ptr, uint64_t size, aclrtMemManagedAdviseType advise,
                               aclrtMemManagedLocation location) {
  return Api("aclrtMemManagedAdvise", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    REPRISE_RETURN_IF_ERROR(NotZero(size, "size"));
    REPRISE_RETURN_IF_ERROR(
        InRange(advise, ACL_MEM_ADVISE_SET_READ_MOSTLY, ACL_MEM_ADVISE_UNSET_ACCESSED_BY, "advise"));
    if (size % kManagedGranule != 0) {
      return Error(kInvalidValue, fmt::format("size is {}, must be a multiple of {}", size, kManagedGranule))
          .Culprit("parameter size")
          .Hint("round the size up to 2 MiB, as aclrtMemAllocManaged does");
    }
    REPRISE_RETURN_IF_ERROR(Memory().Check(ptr, size));
    ManagedPlace preferred;
    switch (advise) {
      case ACL_MEM_ADVISE_SET_READ_MOSTLY:
      case ACL_MEM_ADVISE_UNSET_READ_MOSTLY:
        return Memory().Visit(
            ptr, size, [&](ManagedState& state) { state.read_mostly = advise == ACL_MEM_ADVISE_SET_READ_MOSTLY; });
      case ACL_MEM_ADVISE_SET_PREFERRED_LOCATION: {
        REPRISE_ASSIGN_OR_RETURN(preferred, ReadPlace(location, "location"));
        break;
      }
      case ACL_MEM_ADVISE_UNSET_PREFERRED_LOCATION: break;
      case ACL_MEM_ADVISE_SET_ACCESSED_BY: return SetAccess(ptr, size, location, true);
      case ACL_MEM_ADVISE_UNSET_ACCESSED_BY: return SetAccess(ptr, size, location, false);
    }
    return Memory().Visit(ptr, size, [&](ManagedState& state) { state.preferred = preferred; });
  });
}

aclError aclrtMemManagedPrefetchAsync(const void* ptr, size_t size, aclrtMemManagedLocation location, uint32_t flags,
                                      aclrtStream stream) {
  return Api("aclrtMemManagedPrefetchAsync", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    REPRISE_RETURN_IF_ERROR(NotZero(size, "size"));
    REPRISE_RETURN_IF_ERROR(IsReserved(flags, "flags", kInvalidArgument));
    REPRISE_ASSIGN_OR_RETURN(const ManagedPlace place, ReadPlace(location, "location"));
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(Memory().Check(ptr, size));
    const PrefetchItem item{ptr, size, place};
    return runtime::SubmitPrefetch(*found, {&item, 1});
  });
}

aclError aclrtMemManagedPrefetchBatchAsync(const void** ptrs, size_t* sizes, size_t count,
                                           aclrtMemManagedLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                           size_t numPrefetchLocs, uint64_t flags, aclrtStream stream) {
  return Api("aclrtMemManagedPrefetchBatchAsync", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptrs, "ptrs"));
    REPRISE_RETURN_IF_ERROR(NotNull(sizes, "sizes"));
    REPRISE_RETURN_IF_ERROR(NotNull(prefetchLocs, "prefetchLocs"));
    REPRISE_RETURN_IF_ERROR(NotNull(prefetchLocIdxs, "prefetchLocIdxs"));
    REPRISE_RETURN_IF_ERROR(InRange(count, 1, INT64_MAX, "count", kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(InRange(numPrefetchLocs, 1, INT64_MAX, "numPrefetchLocs", kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(IsReserved(flags, "flags", kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(InRange(count, 1, kMaxPrefetches, "count"));
    REPRISE_RETURN_IF_ERROR(InRange(numPrefetchLocs, 1, static_cast<int64_t>(count), "numPrefetchLocs"));
    std::vector<ManagedPlace> places;
    for (size_t i = 0; i < numPrefetchLocs; ++i) {
      const bool in_order = i == 0 ? prefetchLocIdxs[0] == 0 : prefetchLocIdxs[i] > prefetchLocIdxs[i - 1];
      if (!in_order || prefetchLocIdxs[i] >= count) {
        return Error(kInvalidValue,
                     fmt::format("prefetchLocIdxs[{}] is {}: the list must begin with 0, rise strictly and stay "
                                 "below {}",
                                 i, prefetchLocIdxs[i], count))
            .Culprit("parameter prefetchLocIdxs")
            .Hint("name the first range of each location");
      }
      REPRISE_ASSIGN_OR_RETURN(const ManagedPlace place, ReadPlace(prefetchLocs[i], "prefetchLocs[]"));
      places.push_back(place);
    }
    REPRISE_ASSIGN_OR_RETURN(Stream * found, runtime::FindStream(stream));
    std::vector<PrefetchItem> items;
    size_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      while (at + 1 < numPrefetchLocs && prefetchLocIdxs[at + 1] <= i) ++at;
      REPRISE_RETURN_IF_ERROR(NotNullInner(ptrs[i], "ptrs[]"));
      REPRISE_RETURN_IF_ERROR(InRange(sizes[i], 1, INT64_MAX, "sizes[]"));
      REPRISE_RETURN_IF_ERROR(Memory().Check(ptrs[i], sizes[i]));
      items.push_back({ptrs[i], sizes[i], places[at]});
    }
    return runtime::SubmitPrefetch(*found, items);
  });
}

aclError aclrtMemManagedGetAttr(aclrtMemManagedRangeAttribute attribute, const void* ptr, size_t size, void* data,
                                size_t dataSize) {
  return Api("aclrtMemManagedGetAttr", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    REPRISE_RETURN_IF_ERROR(NotNull(data, "data"));
    REPRISE_RETURN_IF_ERROR(NotZero(size, "size"));
    REPRISE_RETURN_IF_ERROR(CheckAttribute(attribute, data, dataSize));
    REPRISE_ASSIGN_OR_RETURN(const ManagedSummary range, Memory().Summarize(ptr, size));
    WriteAttribute(range, attribute, data, dataSize);
    return {};
  });
}

aclError aclrtMemManagedGetAttrs(aclrtMemManagedRangeAttribute* attributes, size_t numAttributes, const void* ptr,
                                 size_t size, void** data, size_t* dataSizes) {
  return Api("aclrtMemManagedGetAttrs", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    REPRISE_RETURN_IF_ERROR(NotNull(attributes, "attributes"));
    REPRISE_RETURN_IF_ERROR(NotNull(data, "data"));
    REPRISE_RETURN_IF_ERROR(NotNull(dataSizes, "dataSizes"));
    REPRISE_RETURN_IF_ERROR(NotZero(size, "size"));
    REPRISE_RETURN_IF_ERROR(InRange(numAttributes, 1, kMaxAttributes, "numAttributes"));
    for (size_t i = 0; i < numAttributes; ++i) {
      REPRISE_RETURN_IF_ERROR(CheckAttribute(attributes[i], data[i], dataSizes[i]));
    }
    REPRISE_ASSIGN_OR_RETURN(const ManagedSummary range, Memory().Summarize(ptr, size));
    for (size_t i = 0; i < numAttributes; ++i) WriteAttribute(range, attributes[i], data[i], dataSizes[i]);
    return {};
  });
}
