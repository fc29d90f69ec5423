// SPDX-License-Identifier: Apache-2.0
//
// Address space and physical memory apart from each other.
#include "device/virtual_memory.h"

#include <fmt/format.h>

#include <cstring>

#include "acl/acl.h"
#include "check.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/reclaim.h"
#include "runtime/report.h"
#include "share_key.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
using reprise::device::AccessLocation;
using reprise::device::PhysicalProperties;
using reprise::device::ShareKey;
using reprise::device::VirtualMemory;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::NotNull;
using runtime::NotNullInner;

namespace {

constexpr uint64_t kPage4K = 4u << 10;
constexpr uint64_t kPage2M = 2u << 20;
constexpr uint64_t kPage1G = 1u << 30;

VirtualMemory& Memory() { return VirtualMemory::Get(); }

uint64_t Granularity(aclrtMemAttr attribute) {
  switch (attribute) {
    case ACL_DDR_MEM_NORMAL:
    case ACL_DDR_MEM_P2P_NORMAL:
    case ACL_MEM_NORMAL:
    case ACL_MEM_P2P_NORMAL: return kPage4K;
    case ACL_HBM_MEM_HUGE1G:
    case ACL_HBM_MEM_P2P_HUGE1G:
    case ACL_MEM_HUGE1G:
    case ACL_MEM_P2P_HUGE1G: return kPage1G;
    default: return kPage2M;  // normal pages of HBM too
  }
}

bool IsDdr(aclrtMemAttr attribute) {
  switch (attribute) {
    case ACL_DDR_MEM:
    case ACL_DDR_MEM_HUGE:
    case ACL_DDR_MEM_NORMAL:
    case ACL_DDR_MEM_P2P_HUGE:
    case ACL_DDR_MEM_P2P_NORMAL: return true;
    default: return false;
  }
}

bool IsHost(aclrtMemLocationType type) {
  return type == ACL_MEM_LOCATION_TYPE_HOST || type == ACL_MEM_LOCATION_TYPE_HOST_NUMA;
}

Status CheckProperties(const aclrtPhysicalMemProp& prop) {
  const auto refuse = [](const char* field, int64_t value, const char* must) -> Status {
    return Error(kInvalidArgument, fmt::format("prop->{} is {}, must be {}", field, value, must))
        .Culprit(fmt::format("parameter prop->{}", field))
        .Hint(fmt::format("set prop->{} to that", field));
  };
  if (prop.handleType != ACL_MEM_HANDLE_TYPE_NONE) return refuse("handleType", prop.handleType, "0 (NONE)");
  if (prop.allocationType != ACL_MEM_ALLOCATION_TYPE_PINNED) {
    return refuse("allocationType", prop.allocationType, "0 (PINNED)");
  }
  const bool on_host = IsHost(prop.location.type);
  if (!on_host && prop.location.type != ACL_MEM_LOCATION_TYPE_DEVICE) {
    return refuse("location.type", prop.location.type, "0 (HOST), 1 (DEVICE) or 4 (HOST_NUMA)");
  }
  if (static_cast<uint32_t>(prop.memAttr) > ACL_MEM_P2P_HUGE1G) return refuse("memAttr", prop.memAttr, "0 to 17");
  if (!on_host && IsDdr(prop.memAttr)) return refuse("memAttr", prop.memAttr, "an attribute of HBM on a device");
  return {};
}

StatusOr<PhysicalProperties> ReadProperties(const aclrtPhysicalMemProp& prop) {
  REPRISE_RETURN_IF_ERROR(CheckProperties(prop));
  const bool on_host = IsHost(prop.location.type);
  REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
  PhysicalProperties properties;
  properties.attribute = static_cast<uint32_t>(prop.memAttr);
  properties.location_type = static_cast<uint32_t>(prop.location.type);
  properties.location_id = prop.location.id;
  properties.device = context->device().id();
  properties.on_host = on_host;
  if (!on_host) {
    REPRISE_ASSIGN_OR_RETURN(const runtime::Device* owner, runtime::FindDevice(prop.location.id));
    properties.device = owner->id();
  }
  return properties;
}

Status IsMultiple(uint64_t size, uint64_t granularity, const char* parameter) {
  if (size % granularity == 0) return {};
  return Error(kInvalidValue, fmt::format("{} is {}, must be a multiple of {}", parameter, size, granularity))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint("round it up to what aclrtMemGetAllocationGranularity gives");
}

StatusOr<AccessLocation> ReadLocation(const aclrtMemLocation& location) {
  if (location.type == ACL_MEM_LOCATION_TYPE_DEVICE) {
    REPRISE_ASSIGN_OR_RETURN(const runtime::Device* device, runtime::FindDevice(location.id));
    (void)device;
  } else if (!IsHost(location.type)) {
    return Error(kInvalidValue, fmt::format("the location's type is {}, must be 0 (host), 1 (device) or 4 (NUMA node)",
                                            static_cast<int>(location.type)))
        .Culprit("the type of the location")
        .Hint("pass one of ACL_MEM_LOCATION_TYPE_HOST, _DEVICE and _HOST_NUMA");
  }
  return AccessLocation{static_cast<uint32_t>(location.type), location.id};
}

Status Reserve(void** out, size_t size, size_t alignment, void* expected, uint64_t flags) {
  REPRISE_RETURN_IF_ERROR(NotNull(out, "virPtr"));
  REPRISE_RETURN_IF_ERROR(NotZero(size, "size"));
  REPRISE_RETURN_IF_ERROR(IsReserved(alignment, "alignment", kInvalidValue));
  // 1, which expandable segments pass, asks for huge pages: the addresses are aligned to them in any case. They belong
  // to the process and to no device, so that no context has to be current.
  REPRISE_RETURN_IF_ERROR(InRange(flags, 0, 1, "flags"));
  REPRISE_ASSIGN_OR_RETURN(*out, Memory().Reserve(size, expected));
  return {};
}

Status Map(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags, bool accessible) {
  REPRISE_RETURN_IF_ERROR(NotNull(virPtr, "virPtr"));
  REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
  REPRISE_RETURN_IF_ERROR(NotZero(size, "size"));
  REPRISE_RETURN_IF_ERROR(IsReserved(flags, "flags", kInvalidArgument));
  REPRISE_RETURN_IF_ERROR(IsReserved(offset, "offset", kInvalidValue));
  return Memory().Map(virPtr, size, handle, accessible);
}

Status CheckShareType(aclrtMemSharedHandleType type) {
  return InRange(type, ACL_MEM_SHARE_HANDLE_TYPE_DEFAULT, ACL_MEM_SHARE_HANDLE_TYPE_FABRIC, "shareType",
                 kInvalidArgument);
}

// A fabric handle holds the printable key, the default one its 64 bits.
StatusOr<ShareKey> ReadShareable(const void* shareable, aclrtMemSharedHandleType type) {
  REPRISE_RETURN_IF_ERROR(CheckShareType(type));
  if (type == ACL_MEM_SHARE_HANDLE_TYPE_FABRIC) {
    return ReadKey(reinterpret_cast<const char*>(static_cast<const aclrtMemFabricHandle*>(shareable)->data),
                   sizeof(aclrtMemFabricHandle::data));
  }
  uint64_t token = 0;
  std::memcpy(&token, shareable, sizeof token);
  return ShareKey::Unpack(token);
}

Status Allow(const ShareKey& key, const int32_t* pid, size_t count) {
  REPRISE_RETURN_IF_ERROR(NotNull(pid, "pid"));
  REPRISE_RETURN_IF_ERROR(NotZero(count, "pidNum"));
  return reprise::device::AllowTakers(key, pid, count);
}

Status Import(const ShareKey& key, int64_t device_id, aclrtDrvMemHandle* handle) {
  REPRISE_ASSIGN_OR_RETURN(const runtime::Device* device, runtime::FindDevice(device_id));
  REPRISE_ASSIGN_OR_RETURN(*handle, Memory().Import(key, device->id()));
  return {};
}

Status CheckExportFlags(uint64_t flags) {
  return InRange(flags, ACL_RT_VMM_EXPORT_FLAG_DEFAULT, ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION, "flags");
}

}  // namespace

aclError aclrtReserveMemAddress(void** virPtr, size_t size, size_t alignment, void* expectPtr, uint64_t flags) {
  return Api("aclrtReserveMemAddress", [&] { return Reserve(virPtr, size, alignment, expectPtr, flags); });
}

aclError aclrtReserveMemAddressNoUCMemory(void** virPtr, size_t size, size_t alignment, void* expectPtr,
                                          uint64_t flags) {
  return Api("aclrtReserveMemAddressNoUCMemory", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(virPtr, "virPtr"));
    REPRISE_RETURN_IF_ERROR(NotZero(size, "size"));
    REPRISE_RETURN_IF_ERROR(NotNullInner(expectPtr, "expectPtr"));
    REPRISE_RETURN_IF_ERROR(IsMultiple(size, kPage1G, "size"));
    return Reserve(virPtr, size, alignment, expectPtr, flags);
  });
}

aclError aclrtReleaseMemAddress(void* virPtr) {
  return Api("aclrtReleaseMemAddress", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(virPtr, "virPtr"));
    return Memory().Release(virPtr);
  });
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size, const aclrtPhysicalMemProp* prop, uint64_t flags) {
  return Api("aclrtMallocPhysical", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_RETURN_IF_ERROR(NotNull(prop, "prop"));
    REPRISE_RETURN_IF_ERROR(NotZero(size, "size"));
    REPRISE_RETURN_IF_ERROR(IsReserved(flags, "flags", kInvalidArgument));
    REPRISE_ASSIGN_OR_RETURN(const PhysicalProperties properties, ReadProperties(*prop));
    REPRISE_RETURN_IF_ERROR(IsMultiple(size, Granularity(prop->memAttr), "size"));
    REPRISE_ASSIGN_OR_RETURN(
        *handle, runtime::OrReclaim(properties.device, size, [&] { return Memory().Create(size, properties); }));
    return {};
  });
}

aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
  return Api("aclrtFreePhysical", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    return Memory().Free(handle);
  });
}

aclError aclrtMapMem(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags) {
  return Api("aclrtMapMem", [&] { return Map(virPtr, size, offset, handle, flags, true); });
}

aclError aclrtMemMapNoAccess(void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags) {
  return Api("aclrtMemMapNoAccess", [&] { return Map(virPtr, size, offset, handle, flags, false); });
}

aclError aclrtUnmapMem(void* virPtr) {
  return Api("aclrtUnmapMem", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(virPtr, "virPtr"));
    return Memory().Unmap(virPtr);
  });
}

aclError aclrtMemSetAccess(void* virPtr, size_t size, aclrtMemAccessDesc* desc, size_t count) {
  return Api("aclrtMemSetAccess", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNullInner(virPtr, "virPtr"));
    REPRISE_RETURN_IF_ERROR(NotNullInner(desc, "desc"));
    REPRISE_RETURN_IF_ERROR(NotZero(count, "count", kInvalidValue));
    REPRISE_RETURN_IF_ERROR(InRange(count, 1, 1024, "count"));
    // All are looked at before any takes effect.
    for (int apply = 0; apply < 2; ++apply) {
      for (size_t i = 0; i < count; ++i) {
        const auto flags = static_cast<uint32_t>(desc[i].flags);
        if (flags != ACL_RT_MEM_ACCESS_FLAGS_NONE && flags != ACL_RT_MEM_ACCESS_FLAGS_READ &&
            flags != ACL_RT_MEM_ACCESS_FLAGS_READWRITE) {
          return Error(kInvalidValue, fmt::format("desc[{}].flags is {}, must be 0, 1 or 3", i, flags))
              .Culprit(fmt::format("parameter desc[{}].flags", i))
              .Hint("pass one of ACL_RT_MEM_ACCESS_FLAGS_NONE, _READ and _READWRITE");
        }
        REPRISE_ASSIGN_OR_RETURN(const AccessLocation location, ReadLocation(desc[i].location));
        if (apply == 1) REPRISE_RETURN_IF_ERROR(Memory().SetAccess(virPtr, size, location, flags));
      }
    }
    return {};
  });
}

aclError aclrtMemGetAccess(void* virPtr, aclrtMemLocation* location, uint64_t* flag) {
  return Api("aclrtMemGetAccess", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(virPtr, "virPtr"));
    REPRISE_RETURN_IF_ERROR(NotNull(location, "location"));
    REPRISE_RETURN_IF_ERROR(NotNull(flag, "flag"));
    REPRISE_ASSIGN_OR_RETURN(const AccessLocation where, ReadLocation(*location));
    REPRISE_ASSIGN_OR_RETURN(const uint32_t flags, Memory().GetAccess(virPtr, where));
    *flag = flags;
    return {};
  });
}

aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp* prop, aclrtMemGranularityOptions option,
                                          size_t* granularity) {
  return Api("aclrtMemGetAllocationGranularity", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(prop, "prop"));
    REPRISE_RETURN_IF_ERROR(NotNull(granularity, "granularity"));
    REPRISE_RETURN_IF_ERROR(
        InRange(option, ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED, "option"));
    REPRISE_RETURN_IF_ERROR(CheckProperties(*prop));
    if (!IsHost(prop->location.type)) {
      REPRISE_ASSIGN_OR_RETURN(const runtime::Device* owner, runtime::FindDevice(prop->location.id));
      (void)owner;
    }
    *granularity = Granularity(prop->memAttr);
    return {};
  });
}

aclError aclrtMemGetAllocationPropertiesFromHandle(aclrtDrvMemHandle handle, aclrtPhysicalMemProp* prop) {
  return Api("aclrtMemGetAllocationPropertiesFromHandle", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_RETURN_IF_ERROR(NotNull(prop, "prop"));
    REPRISE_ASSIGN_OR_RETURN(const PhysicalProperties properties, Memory().Describe(handle));
    *prop = {};
    prop->memAttr = static_cast<aclrtMemAttr>(properties.attribute);
    prop->location.type = static_cast<aclrtMemLocationType>(properties.location_type);
    prop->location.id = properties.location_id;
    return {};
  });
}

aclError aclrtMemRetainAllocationHandle(void* virPtr, aclrtDrvMemHandle* handle) {
  return Api("aclrtMemRetainAllocationHandle", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(virPtr, "virPtr"));
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_ASSIGN_OR_RETURN(*handle, Memory().Retain(virPtr));
    return {};
  });
}

aclError aclrtMemExportToShareableHandle(aclrtDrvMemHandle handle, aclrtMemHandleType handleType, uint64_t flags,
                                         uint64_t* shareableHandle) {
  return Api("aclrtMemExportToShareableHandle", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_RETURN_IF_ERROR(NotNull(shareableHandle, "shareableHandle"));
    REPRISE_RETURN_IF_ERROR(IsReserved(static_cast<uint32_t>(handleType), "handleType", kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(CheckExportFlags(flags));
    REPRISE_ASSIGN_OR_RETURN(const ShareKey key, Memory().Export(handle, flags == 0));
    *shareableHandle = key.Pack();
    return {};
  });
}

aclError aclrtMemExportToShareableHandleV2(aclrtDrvMemHandle handle, uint64_t flags, aclrtMemSharedHandleType shareType,
                                           void* shareableHandle) {
  return Api("aclrtMemExportToShareableHandleV2", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_RETURN_IF_ERROR(NotNull(shareableHandle, "shareableHandle"));
    REPRISE_RETURN_IF_ERROR(CheckExportFlags(flags));
    REPRISE_RETURN_IF_ERROR(CheckShareType(shareType));
    REPRISE_ASSIGN_OR_RETURN(const ShareKey key, Memory().Export(handle, flags == 0));
    if (shareType == ACL_MEM_SHARE_HANDLE_TYPE_FABRIC) {
      auto* fabric = static_cast<aclrtMemFabricHandle*>(shareableHandle);
      WriteKey(key, reinterpret_cast<char*>(fabric->data), sizeof fabric->data);
    } else {
      const uint64_t token = key.Pack();
      std::memcpy(shareableHandle, &token, sizeof token);
    }
    return {};
  });
}

aclError aclrtMemImportFromShareableHandle(uint64_t shareableHandle, int32_t deviceId, aclrtDrvMemHandle* handle) {
  return Api("aclrtMemImportFromShareableHandle", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    return Import(ShareKey::Unpack(shareableHandle), deviceId, handle);
  });
}

aclError aclrtMemImportFromShareableHandleV2(void* shareableHandle, aclrtMemSharedHandleType shareType, uint64_t flags,
                                             aclrtDrvMemHandle* handle) {
  return Api("aclrtMemImportFromShareableHandleV2", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(shareableHandle, "shareableHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_RETURN_IF_ERROR(IsReserved(flags, "flags", kInvalidArgument));
    REPRISE_ASSIGN_OR_RETURN(const ShareKey key, ReadShareable(shareableHandle, shareType));
    REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
    return Import(key, context->device().id(), handle);
  });
}

aclError aclrtMemSetPidToShareableHandle(uint64_t shareableHandle, int32_t* pid, size_t pidNum) {
  return Api("aclrtMemSetPidToShareableHandle", [&] { return Allow(ShareKey::Unpack(shareableHandle), pid, pidNum); });
}

aclError aclrtMemSetPidToShareableHandleV2(void* shareableHandle, aclrtMemSharedHandleType shareType, int32_t* pid,
                                           size_t pidNum) {
  return Api("aclrtMemSetPidToShareableHandleV2", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(shareableHandle, "shareableHandle"));
    REPRISE_ASSIGN_OR_RETURN(const ShareKey key, ReadShareable(shareableHandle, shareType));
    return Allow(key, pid, pidNum);
  });
}

aclError aclrtMemP2PMap(void* devPtr, size_t size, int32_t dstDevId, uint64_t flags) {
  return Api("aclrtMemP2PMap", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(devPtr, "devPtr"));
    REPRISE_RETURN_IF_ERROR(InRange(size, 1, INT64_MAX, "size", kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(IsReserved(flags, "flags", kInvalidArgument));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const runtime::Device* device, runtime::FindDevice(dstDevId));
    REPRISE_ASSIGN_OR_RETURN(const auto range,
                             reprise::device::MemoryRegistry::Get().CheckRange(devPtr, size, "devPtr"));
    if (range.kind == reprise::device::MemoryKind::kDevice) return {};  // every device reaches it already
    return Error(kInvalidValue, fmt::format("devPtr {} is not device memory", fmt::ptr(devPtr)))
        .Culprit(fmt::format("devPtr {}", reprise::device::MemoryRegistry::Get().Explain(devPtr)))
        .Hint("pass memory of aclrtMalloc, or a mapped address");
  });
}

aclError aclrtHostMemMapCapabilities(uint32_t deviceId, aclrtHacType hacType, aclrtHostMemMapCapability* capabilities) {
  return Api("aclrtHostMemMapCapabilities", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(capabilities, "capabilities"));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const runtime::Device* device, runtime::FindDevice(deviceId));
    REPRISE_RETURN_IF_ERROR(InRange(hacType, ACL_RT_HAC_TYPE_STARS, ACL_RT_HAC_TYPE_CCU, "hacType"));
    switch (hacType) {
      case ACL_RT_HAC_TYPE_RDMA:
      case ACL_RT_HAC_TYPE_DVPP:
      case ACL_RT_HAC_TYPE_UDMA:
      case ACL_RT_HAC_TYPE_CCU:  // engines that are not there
        *capabilities = ACL_RT_HOST_MEM_MAP_NOT_SUPPORTED;
        break;
      default: *capabilities = ACL_RT_HOST_MEM_MAP_SUPPORTED;
    }
    return {};
  });
}
