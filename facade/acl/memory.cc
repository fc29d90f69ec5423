// SPDX-License-Identifier: Apache-2.0
//
// Device and pinned host memory, copies and fills.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "acl/acl.h"
#include "capture/host_copies.h"
#include "capture/session.h"
#include "check.h"
#include "device/memory.h"
#include "device/parked_memory.h"
#include "device/virtual_memory.h"
#include "runtime/allocation.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/report.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
using reprise::capture::CopyBatch;
using reprise::capture::CopyKind;
using reprise::device::MemoryKind;
using reprise::device::MemoryRange;
using reprise::device::MemoryRegistry;
namespace capture = reprise::capture;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::Context;
using runtime::NotNull;
using runtime::Stream;

namespace {

constexpr uint64_t kHostRegisterAlignment = 4096;
constexpr uint64_t kMaxCopy2dWidth = 5'000'000;
constexpr uint64_t kMaxCopy2dHeight = 5'242'880;
// Counts above these are garbage: arrays that they describe would not be read but run over.
constexpr int64_t kMaxMallocAttributes = 64;
constexpr int64_t kMaxBatches = 1 << 24;
constexpr int64_t kMaxAddresses = 1 << 24;

MemoryRegistry& Memory() { return MemoryRegistry::Get(); }

// ---- Allocation ----

runtime::PageWish PagesOf(uint32_t policy) {
  switch (policy & 0xFF) {  // the low values choose the page, the rest are hints that are OR-ed in
    case ACL_MEM_MALLOC_HUGE_ONLY:
    case ACL_MEM_MALLOC_HUGE_ONLY_P2P: return runtime::PageWish::kHuge;
    case ACL_MEM_MALLOC_NORMAL_ONLY:
    case ACL_MEM_MALLOC_NORMAL_ONLY_P2P: return runtime::PageWish::kSmall;
    case ACL_MEM_MALLOC_HUGE1G_ONLY:
    case ACL_MEM_MALLOC_HUGE1G_ONLY_P2P: return runtime::PageWish::kGiant;
    default: return runtime::PageWish::kAny;
  }
}

Status Malloc(void** out, size_t size, uint32_t policy, bool extra) {
  REPRISE_RETURN_IF_ERROR(NotNull(out, "devPtr"));
  REPRISE_RETURN_IF_ERROR(NotZero(size, "size"));
  REPRISE_ASSIGN_OR_RETURN(Context * context, runtime::CurrentContext());
  REPRISE_ASSIGN_OR_RETURN(*out, runtime::AllocateBlock(context->device(), size, PagesOf(policy), extra));
  return {};
}

// The attributes of an aclrtMallocConfig; the device that they name, if any.
Status ReadConfig(const aclrtMallocConfig* config, runtime::Device** device) {
  if (config == nullptr || config->numAttrs == 0) return {};
  REPRISE_RETURN_IF_ERROR(NotNull(config->attrs, "cfg->attrs"));
  REPRISE_RETURN_IF_ERROR(InRange(config->numAttrs, 0, kMaxMallocAttributes, "cfg->numAttrs"));
  for (size_t i = 0; i < config->numAttrs; ++i) {
    const aclrtMallocAttribute& attribute = config->attrs[i];
    REPRISE_RETURN_IF_ERROR(InRange(attribute.attr, ACL_RT_MEM_ATTR_RSV, ACL_RT_MEM_ATTR_VA_FLAG, "cfg->attrs[].attr"));
    if (attribute.attr == ACL_RT_MEM_ATTR_DEVICE_ID && device != nullptr) {
      REPRISE_ASSIGN_OR_RETURN(*device, runtime::FindDevice(attribute.value.deviceId));
    }
  }
  return {};
}

Status MallocHost(void** out, uint64_t size) {
  REPRISE_RETURN_IF_ERROR(NotNull(out, "hostPtr"));
  REPRISE_RETURN_IF_ERROR(NotZero(size, "size"));
  REPRISE_ASSIGN_OR_RETURN(Context * context, runtime::CurrentContext());
  REPRISE_ASSIGN_OR_RETURN(*out, Memory().AllocateHost(context->device().id(), size));
  return {};
}

Status SynchronizeBeforeFree(const char* api) {
  REPRISE_ASSIGN_OR_RETURN(Context * context, runtime::CurrentContext());
  REPRISE_RETURN_IF_ERROR(capture::CheckNoCaptureIn(*context, api));
  return context->Synchronize(-1);
}

Status RegisterHost(void* pointer, uint64_t size, MemoryRegistry::Registration how) {
  // Pinning takes whole pages anyway; what is mapped has an address of its own, which begins with a page.
  if (how.mapped && reinterpret_cast<uintptr_t>(pointer) % kHostRegisterAlignment != 0) {
    return Error(kInvalidValue,
                 fmt::format("ptr {} is not aligned to {} bytes", fmt::ptr(pointer), kHostRegisterAlignment))
        .Hint("allocate the memory with posix_memalign or mmap");
  }
  REPRISE_ASSIGN_OR_RETURN(Context * context, runtime::CurrentContext());
  // Tasks touch registered memory without asking, so it has to be there.
  if (!reprise::device::IsAccessible(pointer, size)) {
    return Error(kInvalidValue,
                 fmt::format("ptr {}: not all of its {} bytes are memory that the process can read and write",
                             fmt::ptr(pointer), size))
        .Hint("register memory that is allocated, and unregister it before it is freed");
  }
  return Memory().Register(context->device().id(), pointer, size, how);
}

// ---- Copies ----

Status CheckCopySize(size_t count, size_t most, const char* parameter) {
  if (count <= most) [[likely]]
    return {};
  return Error(kInvalidValue, fmt::format("count is {}, {} is only {}", count, parameter, most))
      .Hint(fmt::format("pass the size of the destination for {}, and write no more than that", parameter));
}

CopyKind KindOf(aclrtMemcpyKind kind) { return static_cast<CopyKind>(kind); }
static_assert(ACL_MEMCPY_DEFAULT == static_cast<int>(CopyKind::kDefault) &&
              ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE == static_cast<int>(CopyKind::kStagedHostToDevice));

Status MemcpyAsync(void* dst, size_t dest_max, const void* src, size_t count, aclrtMemcpyKind kind,
                   aclrtStream stream_handle, const char* api) {
  if (count == 0) return {};
  REPRISE_RETURN_IF_ERROR(NotNull(dst, "dst"));
  REPRISE_RETURN_IF_ERROR(NotNull(src, "src"));
  REPRISE_RETURN_IF_ERROR(InRange(kind, 0, ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE, "kind", kInvalidArgument));
  if (kind == ACL_MEMCPY_HOST_TO_HOST) {
    return Error(kFeatureNotSupported, "kind is ACL_MEMCPY_HOST_TO_HOST, which has no asynchronous form")
        .Hint("use aclrtMemcpy");
  }
  REPRISE_RETURN_IF_ERROR(CheckCopySize(count, dest_max, "destMax"));
  if (dst == src) return {};
  REPRISE_ASSIGN_OR_RETURN(Stream * stream, runtime::FindStream(stream_handle));
  return capture::CopyInOrder(*stream, dst, src, count, KindOf(kind), api);
}

Status CheckCopy2d(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height,
                   aclrtMemcpyKind kind) {
  REPRISE_RETURN_IF_ERROR(NotNull(dst, "dst"));
  REPRISE_RETURN_IF_ERROR(NotNull(src, "src"));
  if (kind < ACL_MEMCPY_HOST_TO_DEVICE || kind > ACL_MEMCPY_DEFAULT) {
    return Error(kInvalidArgument,
                 fmt::format("kind is {}, must be {} to {}", static_cast<int>(kind),
                             static_cast<int>(ACL_MEMCPY_HOST_TO_DEVICE), static_cast<int>(ACL_MEMCPY_DEFAULT)))
        .Hint("pass the direction of the copy, or ACL_MEMCPY_DEFAULT");
  }
  if (width > dst_pitch || width > src_pitch) {
    return Error(kInvalidArgument,
                 fmt::format("width is {}, more than dpitch {} or spitch {}", width, dst_pitch, src_pitch))
        .Hint("pass pitches of at least width bytes: a pitch is the distance between the begins of two rows");
  }
  const size_t pitch = dst_pitch > src_pitch ? dst_pitch : src_pitch;
  if (height - 1 > (UINT64_MAX - width) / pitch) {
    return Error(kInvalidValue, fmt::format("{} rows of pitch {} exceed the address space", height, pitch))
        .Hint("pass height in rows, and pitches in bytes");
  }
  return {};
}

// ---- Batch of copies ----

Status CheckLocation(const MemoryRange& range, const aclrtMemLocation& wanted, const char* parameter, size_t item) {
  const bool wants_device = wanted.type == ACL_MEM_LOCATION_TYPE_DEVICE;
  if (wants_device == (range.kind == MemoryKind::kDevice)) return {};
  return Error(kInvalidValue, fmt::format("{}[{}] is {}, its attribute says {}", parameter, item, DescribeRange(range),
                                          wants_device ? "device" : "host"))
      .Hint("give the item an attribute that names where its addresses are");
}

// The items of a batch; zero-sized ones are left out.
StatusOr<CopyBatch> ReadBatch(void** dsts, size_t* dest_maxs, void** srcs, size_t* sizes, size_t count,
                              aclrtMemcpyBatchAttr* attrs, size_t* attrs_indexes, size_t num_attrs,
                              size_t* fail_index) {
  *fail_index = SIZE_MAX;
  REPRISE_RETURN_IF_ERROR(NotNull(sizes, "sizes"));
  if (count == 0)
    return Error(kInvalidArgument, "numBatches is 0, must be at least 1")
        .Hint("pass the number of copies in the arrays");
  REPRISE_RETURN_IF_ERROR(InRange(count, 1, kMaxBatches, "numBatches"));
  CopyBatch batch;
  bool all_zero = true;
  for (size_t i = 0; i < count; ++i) all_zero &= sizes[i] == 0;
  if (all_zero) return batch;
  REPRISE_RETURN_IF_ERROR(NotNull(dsts, "dsts"));
  REPRISE_RETURN_IF_ERROR(NotNull(srcs, "srcs"));
  REPRISE_RETURN_IF_ERROR(NotNull(dest_maxs, "destMaxs"));
  REPRISE_RETURN_IF_ERROR(NotNull(attrs, "attrs"));
  REPRISE_RETURN_IF_ERROR(NotNull(attrs_indexes, "attrsIndexes"));
  if (num_attrs == 0 || num_attrs > count) {
    return Error(kInvalidValue, fmt::format("numAttrs is {}, must be 1 to numBatches ({})", num_attrs, count))
        .Hint("pass the number of entries in attrs and attrsIndexes");
  }
  for (size_t i = 0; i < num_attrs; ++i) {
    const bool in_order = i == 0 ? attrs_indexes[0] == 0 : attrs_indexes[i] > attrs_indexes[i - 1];
    if (!in_order || attrs_indexes[i] >= count) {
      return Error(kInvalidValue,
                   fmt::format("attrsIndexes[{}] is {}: the list must begin with 0, rise strictly and stay below "
                               "{}",
                               i, attrs_indexes[i], count))
          .Hint("let attrsIndexes[i] be the first item that attrs[i] describes");
    }
  }
  size_t attr = 0;
  const auto wanted_direction = [&](const aclrtMemcpyBatchAttr& a) {
    return a.dstLoc.type == ACL_MEM_LOCATION_TYPE_DEVICE && a.srcLoc.type != ACL_MEM_LOCATION_TYPE_DEVICE;
  };
  for (size_t i = 0; i < count; ++i) {
    while (attr + 1 < num_attrs && attrs_indexes[attr + 1] <= i) ++attr;
    if (sizes[i] == 0) continue;
    *fail_index = i;
    REPRISE_RETURN_IF_ERROR(NotNull(dsts[i], "dsts[]"));
    REPRISE_RETURN_IF_ERROR(NotNull(srcs[i], "srcs[]"));
    REPRISE_RETURN_IF_ERROR(CheckCopySize(sizes[i], dest_maxs[i], "destMaxs[]"));
    const aclrtMemcpyBatchAttr& wanted = attrs[attr];
    const bool to_device = wanted.dstLoc.type == ACL_MEM_LOCATION_TYPE_DEVICE;
    const bool from_device = wanted.srcLoc.type == ACL_MEM_LOCATION_TYPE_DEVICE;
    if (to_device == from_device || wanted_direction(wanted) != wanted_direction(attrs[0])) {
      return Error(kInvalidValue,
                   fmt::format("item {} is not a copy in the batch's one direction between host and device", i))
          .Hint("use one call for each direction");
    }
    auto sides = capture::FindSides(dsts[i], sizes[i], srcs[i], sizes[i]);
    if (!sides.ok()) return std::move(sides).status();
    REPRISE_RETURN_IF_ERROR(CheckLocation(sides->dst, wanted.dstLoc, "dsts", i));
    REPRISE_RETURN_IF_ERROR(CheckLocation(sides->src, wanted.srcLoc, "srcs", i));
    batch.items.push_back({dsts[i], srcs[i], sizes[i]});
    batch.sides.push_back(*sides);
  }
  *fail_index = SIZE_MAX;
  return batch;
}

Status MemcpyBatch(void** dsts, size_t* dest_maxs, void** srcs, size_t* sizes, size_t count,
                   aclrtMemcpyBatchAttr* attrs, size_t* indexes, size_t num_attrs, size_t* fail_index,
                   const char* api) {
  REPRISE_ASSIGN_OR_RETURN(const CopyBatch batch,
                           ReadBatch(dsts, dest_maxs, srcs, sizes, count, attrs, indexes, num_attrs, fail_index));
  return capture::CopyBatchNow(batch, api);
}

Status MemcpyBatchAsync(void** dsts, size_t* dest_maxs, void** srcs, size_t* sizes, size_t count,
                        aclrtMemcpyBatchAttr* attrs, size_t* indexes, size_t num_attrs, size_t* fail_index,
                        aclrtStream stream_handle, const char* api) {
  REPRISE_ASSIGN_OR_RETURN(const CopyBatch batch,
                           ReadBatch(dsts, dest_maxs, srcs, sizes, count, attrs, indexes, num_attrs, fail_index));
  if (batch.items.empty()) return {};
  REPRISE_ASSIGN_OR_RETURN(Stream * stream, runtime::FindStream(stream_handle));
  return capture::CopyBatchInOrder(*stream, batch, api);
}

// ---- Fills ----

Status CheckFill32(void* pointer, size_t bytes, size_t count) {
  if (reinterpret_cast<uintptr_t>(pointer) % 4 != 0) {
    return Error(kInvalidArgument, fmt::format("ptr {} is not aligned to 4 bytes", fmt::ptr(pointer)))
        .Hint("pass an address that is a multiple of 4");
  }
  if (count > bytes / 4) {
    return Error(kInvalidArgument, fmt::format("N is {}, memSize holds only {} values of 4 bytes", count, bytes / 4))
        .Hint("pass the size of the destination in bytes for memSize, and the number of 32-bit values for N");
  }
  return capture::CheckFillWords(pointer, count);
}

}  // namespace

aclError aclrtMalloc(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return Api("aclrtMalloc", [&] { return Malloc(devPtr, size, policy, true); });
}

aclError aclrtMallocAlign32(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return Api("aclrtMallocAlign32", [&] { return Malloc(devPtr, size, policy, false); });
}

aclError aclrtMallocCached(void** devPtr, size_t size, aclrtMemMallocPolicy policy) {
  return Api("aclrtMallocCached", [&] { return Malloc(devPtr, size, policy, true); });
}

aclError aclrtMallocWithCfg(void** devPtr, size_t size, aclrtMemMallocPolicy policy, aclrtMallocConfig* cfg) {
  return Api("aclrtMallocWithCfg", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(devPtr, "devPtr"));
    REPRISE_RETURN_IF_ERROR(NotZero(size, "size"));
    REPRISE_ASSIGN_OR_RETURN(Context * context, runtime::CurrentContext());
    runtime::Device* device = &context->device();
    REPRISE_RETURN_IF_ERROR(ReadConfig(cfg, &device));
    REPRISE_ASSIGN_OR_RETURN(*devPtr, runtime::AllocateBlock(*device, size, PagesOf(policy), true));
    return {};
  });
}

aclError aclrtMallocForTaskScheduler(void** devPtr, size_t size, aclrtMemMallocPolicy policy, aclrtMallocConfig* cfg) {
  return Api("aclrtMallocForTaskScheduler", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(ReadConfig(cfg, nullptr));
    return Malloc(devPtr, size, policy, true);
  });
}

aclError aclrtFree(void* devPtr) {
  return Api("aclrtFree", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(devPtr, "devPtr"));
    return Memory().Free(devPtr, MemoryKind::kDevice);
  });
}

aclError aclrtFreeWithDevSync(void* devPtr) {
  return Api("aclrtFreeWithDevSync", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(devPtr, "devPtr"));
    REPRISE_RETURN_IF_ERROR(SynchronizeBeforeFree("aclrtFreeWithDevSync"));
    return Memory().Free(devPtr, MemoryKind::kDevice);
  });
}

aclError aclrtMemFlush(void* devPtr, size_t size) {
  return Api("aclrtMemFlush", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(devPtr, "devPtr"));
    return NotZero(size, "size");  // caches of the CPU are coherent
  });
}

aclError aclrtMemInvalidate(void* devPtr, size_t size) {
  return Api("aclrtMemInvalidate", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(devPtr, "devPtr"));
    return NotZero(size, "size");
  });
}

aclError aclrtPointerGetAttributes(const void* ptr, aclrtPtrAttributes* attributes) {
  return Api("aclrtPointerGetAttributes", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    REPRISE_RETURN_IF_ERROR(NotNull(attributes, "attributes"));
    *attributes = {};
    const auto range = Memory().Find(ptr);
    attributes->location.type = !range             ? ACL_MEM_LOCATION_TYPE_UNREGISTERED
                                : range->is_host() ? ACL_MEM_LOCATION_TYPE_HOST
                                : range->managed   ? ACL_MEM_LOCATION_TYPE_MANAGED
                                                   : ACL_MEM_LOCATION_TYPE_DEVICE;
    if (range) {
      attributes->location.id = static_cast<uint32_t>(range->device);
      attributes->pageSize = range->page_bytes;
    }
    return {};
  });
}

aclError aclrtCheckMemType(void** addrList, uint32_t size, uint32_t memType, uint32_t* checkResult, uint32_t reserve) {
  return Api("aclrtCheckMemType", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(addrList, "addrList"));
    REPRISE_RETURN_IF_ERROR(NotNull(checkResult, "checkResult"));
    REPRISE_RETURN_IF_ERROR(InRange(size, 1, kMaxAddresses, "size"));
    constexpr uint32_t kTypes = ACL_RT_MEM_TYPE_DEV | ACL_RT_MEM_TYPE_DVPP | ACL_RT_MEM_TYPE_RSVD;
    if (memType == 0 || (memType & ~kTypes) != 0) {
      return Error(kInvalidValue,
                   fmt::format("memType is {:#x}, must be a combination of the bits {:#x}", memType, kTypes))
          .Culprit("parameter memType")
          .Hint("combine ACL_RT_MEM_TYPE_DEV, ACL_RT_MEM_TYPE_DVPP and ACL_RT_MEM_TYPE_RSVD");
    }
    REPRISE_RETURN_IF_ERROR(IsReserved(reserve, "reserve", kInvalidValue));
    const auto fits = [&](const void* address) {
      // There is no memory of image preprocessing, so nothing has that type.
      const auto range = Memory().Find(address);
      if ((memType & ACL_RT_MEM_TYPE_DEV) != 0 && range && range->kind == MemoryKind::kDevice) return true;
      return (memType & ACL_RT_MEM_TYPE_RSVD) != 0 && reprise::device::VirtualMemory::Get().IsReserved(address);
    };
    *checkResult = std::all_of(addrList, addrList + size, fits) ? 1 : 0;
    return {};
  });
}

aclError aclrtMemGetAddressRange(void* ptr, void** pbase, size_t* psize) {
  return Api("aclrtMemGetAddressRange", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    const auto range = Memory().Find(ptr);
    if (!range)
      return Error(kInvalidValue, fmt::format("ptr {} {}", fmt::ptr(ptr), Memory().Explain(ptr)))
          .Hint("pass an address within memory that the runtime allocated or registered");
    if (pbase != nullptr) *pbase = reinterpret_cast<void*>(range->begin);
    if (psize != nullptr) *psize = range->bytes;
    return {};
  });
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total) {
  return Api("aclrtGetMemInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(free, "free"));
    REPRISE_RETURN_IF_ERROR(NotNull(total, "total"));
    REPRISE_RETURN_IF_ERROR(InRange(attr, ACL_DDR_MEM, ACL_MEM_P2P_HUGE1G, "attr"));
    REPRISE_ASSIGN_OR_RETURN(Context * context, runtime::CurrentContext());
    // The profile has HBM only; classes that name DDR do not exist on it.
    const bool is_ddr = attr == ACL_DDR_MEM || (attr >= ACL_DDR_MEM_HUGE && attr <= ACL_DDR_MEM_NORMAL) ||
                        attr == ACL_DDR_MEM_P2P_HUGE || attr == ACL_DDR_MEM_P2P_NORMAL;
    reprise::device::ParkedMemory::Get().Sweep();
    *total = is_ddr ? 0 : MemoryRegistry::total_bytes();
    *free = is_ddr ? 0 : *total - Memory().used_bytes(context->device().id());
    return {};
  });
}

aclError aclrtGetMemUsageInfo(int32_t deviceId, aclrtMemUsageInfo* memUsageInfo, size_t inputNum, size_t* outputNum) {
  return Api("aclrtGetMemUsageInfo", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(memUsageInfo, "memUsageInfo"));
    REPRISE_RETURN_IF_ERROR(NotNull(outputNum, "outputNum"));
    REPRISE_RETURN_IF_ERROR(NotZero(inputNum, "inputNum", kInvalidValue));
    REPRISE_ASSIGN_OR_RETURN(runtime::Device * device, runtime::FindDevice(deviceId));
    reprise::device::ParkedMemory::Get().Sweep();
    memUsageInfo[0] = {};
    std::strncpy(memUsageInfo[0].name, "RUNTIME", sizeof memUsageInfo[0].name - 1);
    memUsageInfo[0].curMemSize = Memory().used_bytes(device->id());
    memUsageInfo[0].memPeakSize = Memory().peak_bytes(device->id());
    *outputNum = 1;
    return {};
  });
}

aclError aclrtMallocHost(void** hostPtr, size_t size) {
  return Api("aclrtMallocHost", [&] { return MallocHost(hostPtr, size); });
}

aclError aclrtMallocHostWithCfg(void** ptr, uint64_t size, aclrtMallocConfig* cfg) {
  return Api("aclrtMallocHostWithCfg", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(ReadConfig(cfg, nullptr));
    return MallocHost(ptr, size);
  });
}

aclError aclrtFreeHost(void* hostPtr) {
  return Api("aclrtFreeHost", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(hostPtr, "hostPtr"));
    return Memory().Free(hostPtr, MemoryKind::kPinnedHost);
  });
}

aclError aclrtFreeHostWithDevSync(void* hostPtr) {
  return Api("aclrtFreeHostWithDevSync", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(hostPtr, "hostPtr"));
    REPRISE_RETURN_IF_ERROR(SynchronizeBeforeFree("aclrtFreeHostWithDevSync"));
    return Memory().Free(hostPtr, MemoryKind::kPinnedHost);
  });
}

aclError aclrtHostRegister(void* ptr, uint64_t size, aclrtHostRegisterType type, void** devPtr) {
  return Api("aclrtHostRegister", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    REPRISE_RETURN_IF_ERROR(NotNull(devPtr, "devPtr"));
    REPRISE_RETURN_IF_ERROR(NotZero(size, "size"));
    if (type != ACL_HOST_REGISTER_MAPPED) {
      return Error(kFeatureNotSupported,
                   fmt::format("type is {}; only ACL_HOST_REGISTER_MAPPED (0) is supported", static_cast<int>(type)))
          .Hint("pass ACL_HOST_REGISTER_MAPPED");
    }
    REPRISE_RETURN_IF_ERROR(RegisterHost(ptr, size, {.mapped = true, .pinned = false}));
    *devPtr = ptr;  // the device addresses host memory as the host does
    return {};
  });
}

aclError aclrtHostRegisterV2(void* ptr, uint64_t size, uint32_t flag) {
  return Api("aclrtHostRegisterV2", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    REPRISE_RETURN_IF_ERROR(NotZero(size, "size"));
    constexpr uint32_t kSupported = ACL_HOST_REG_MAPPED | ACL_HOST_REG_PINNED;
    constexpr uint32_t kReserved = ACL_HOST_REG_IOMEMORY | ACL_HOST_REG_READONLY;
    if (flag == 0 || (flag & ~(kSupported | kReserved)) != 0) {
      return Error(kInvalidValue, fmt::format("flag is {:#x}, must be a combination of ACL_HOST_REG_MAPPED and "
                                              "ACL_HOST_REG_PINNED",
                                              flag))
          .Hint("pass ACL_HOST_REG_MAPPED, ACL_HOST_REG_PINNED or both");
    }
    if ((flag & kReserved) != 0) {
      return Error(kFeatureNotSupported,
                   fmt::format("flag is {:#x}; ACL_HOST_REG_IOMEMORY and ACL_HOST_REG_READONLY are reserved", flag))
          .Hint("pass ACL_HOST_REG_MAPPED, ACL_HOST_REG_PINNED or both");
    }
    return RegisterHost(ptr, size,
                        {.mapped = (flag & ACL_HOST_REG_MAPPED) != 0, .pinned = (flag & ACL_HOST_REG_PINNED) != 0});
  });
}

aclError aclrtHostGetDevicePointer(void* pHost, void** pDevice, uint32_t flag) {
  return Api("aclrtHostGetDevicePointer", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(pHost, "pHost"));
    REPRISE_RETURN_IF_ERROR(NotNull(pDevice, "pDevice"));
    REPRISE_RETURN_IF_ERROR(IsReserved(flag, "flag", kInvalidArgument));
    const auto range = Memory().Find(pHost);
    if (!range || !range->is_host()) {
      return Error(kHostMemoryNotRegistered, fmt::format("pHost {} {}", fmt::ptr(pHost), Memory().Explain(pHost)))
          .Hint(range ? "pass host memory: device memory has its device address already"
                      : "register the range with aclrtHostRegister first");
    }
    if (!range->mapped) {
      return Error(kInvalidValue, fmt::format("{} was registered without ACL_HOST_REG_MAPPED", DescribeRange(*range)))
          .Hint("register it with ACL_HOST_REG_MAPPED, also in addition");
    }
    *pDevice = pHost;
    return {};
  });
}

aclError aclrtHostUnregister(void* ptr) {
  return Api("aclrtHostUnregister", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    return Memory().Unregister(ptr);
  });
}

aclError aclrtMemcpy(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind) {
  return Api("aclrtMemcpy", [&]() -> Status {
    if (count == 0) return {};
    REPRISE_RETURN_IF_ERROR(NotNull(dst, "dst"));
    REPRISE_RETURN_IF_ERROR(NotNull(src, "src"));
    REPRISE_RETURN_IF_ERROR(InRange(kind, 0, ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE, "kind", kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(CheckCopySize(count, destMax, "destMax"));
    if (dst == src) return {};
    return capture::CopyNow(dst, src, count, KindOf(kind), "aclrtMemcpy");
  });
}

aclError aclrtMemcpyAsync(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
  return Api("aclrtMemcpyAsync",
             [&] { return MemcpyAsync(dst, destMax, src, count, kind, stream, "aclrtMemcpyAsync"); });
}

aclError aclrtMemcpyAsyncWithCondition(void* dst, size_t destMax, const void* src, size_t count, aclrtMemcpyKind kind,
                                       aclrtStream stream) {
  return Api("aclrtMemcpyAsyncWithCondition",
             [&] { return MemcpyAsync(dst, destMax, src, count, kind, stream, "aclrtMemcpyAsyncWithCondition"); });
}

aclError aclrtMemcpy2d(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                       aclrtMemcpyKind kind) {
  return Api("aclrtMemcpy2d", [&]() -> Status {
    if (width == 0 || height == 0) return {};
    REPRISE_RETURN_IF_ERROR(CheckCopy2d(dst, dpitch, src, spitch, width, height, kind));
    return capture::CopyRowsNow({dst, dpitch, src, spitch, width, height}, KindOf(kind), "aclrtMemcpy2d");
  });
}

aclError aclrtMemcpy2dAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                            aclrtMemcpyKind kind, aclrtStream stream) {
  return Api("aclrtMemcpy2dAsync", [&]() -> Status {
    if (width == 0 || height == 0) return {};
    REPRISE_RETURN_IF_ERROR(CheckCopy2d(dst, dpitch, src, spitch, width, height, kind));
    REPRISE_RETURN_IF_ERROR(InRange(width, 1, kMaxCopy2dWidth, "width"));
    REPRISE_RETURN_IF_ERROR(InRange(height, 1, kMaxCopy2dHeight, "height"));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    return capture::CopyRowsInOrder(*on, {dst, dpitch, src, spitch, width, height}, KindOf(kind), "aclrtMemcpy2dAsync");
  });
}

aclError aclrtMemcpyBatch(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                          aclrtMemcpyBatchAttr* attrs, size_t* attrsIndexes, size_t numAttrs, size_t* failIndex) {
  return Api("aclrtMemcpyBatch", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(failIndex, "failIndex"));
    return MemcpyBatch(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs, failIndex,
                       "aclrtMemcpyBatch");
  });
}

aclError aclrtMemcpyBatchV2(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                            aclrtMemcpyBatchAttr* attrs, size_t* attrsIndexes, size_t numAttrs) {
  return Api("aclrtMemcpyBatchV2", [&] {
    size_t fail_index = 0;
    return MemcpyBatch(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs, &fail_index,
                       "aclrtMemcpyBatchV2");
  });
}

aclError aclrtMemcpyBatchAsync(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                               aclrtMemcpyBatchAttr* attrs, size_t* attrsIndexes, size_t numAttrs, size_t* failIndex,
                               aclrtStream stream) {
  return Api("aclrtMemcpyBatchAsync", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(failIndex, "failIndex"));
    return MemcpyBatchAsync(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs, failIndex, stream,
                            "aclrtMemcpyBatchAsync");
  });
}

aclError aclrtMemcpyBatchAsyncV2(void** dsts, size_t* destMaxs, void** srcs, size_t* sizes, size_t numBatches,
                                 aclrtMemcpyBatchAttr* attrs, size_t* attrsIndexes, size_t numAttrs,
                                 aclrtStream stream) {
  return Api("aclrtMemcpyBatchAsyncV2", [&] {
    size_t fail_index = 0;
    return MemcpyBatchAsync(dsts, destMaxs, srcs, sizes, numBatches, attrs, attrsIndexes, numAttrs, &fail_index, stream,
                            "aclrtMemcpyBatchAsyncV2");
  });
}

aclError aclrtMemset(void* devPtr, size_t maxCount, int32_t value, size_t count) {
  return Api("aclrtMemset", [&]() -> Status {
    if (count == 0) return {};
    REPRISE_RETURN_IF_ERROR(NotNull(devPtr, "devPtr"));
    REPRISE_RETURN_IF_ERROR(CheckCopySize(count, maxCount, "maxCount"));
    return capture::FillNow(devPtr, static_cast<uint8_t>(value), count, "aclrtMemset");
  });
}

aclError aclrtMemsetAsync(void* devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
  return Api("aclrtMemsetAsync", [&]() -> Status {
    if (count == 0) return {};
    REPRISE_RETURN_IF_ERROR(NotNull(devPtr, "devPtr"));
    REPRISE_RETURN_IF_ERROR(CheckCopySize(count, maxCount, "maxCount"));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    return capture::FillInOrder(*on, devPtr, static_cast<uint8_t>(value), count, "aclrtMemsetAsync");
  });
}

aclError aclrtMemsetD32(void* ptr, size_t memSize, uint32_t value, size_t N) {
  return Api("aclrtMemsetD32", [&]() -> Status {
    if (N == 0) return {};
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    REPRISE_RETURN_IF_ERROR(CheckFill32(ptr, memSize, N));
    return capture::FillWordsNow(ptr, value, N, "aclrtMemsetD32");
  });
}

aclError aclrtMemsetD32Async(void* ptr, size_t memSize, uint32_t value, size_t N, aclrtStream stream) {
  return Api("aclrtMemsetD32Async", [&]() -> Status {
    if (N == 0) return {};
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    REPRISE_RETURN_IF_ERROR(CheckFill32(ptr, memSize, N));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    return capture::FillWordsInOrder(*on, ptr, value, N);
  });
}
