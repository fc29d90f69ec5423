// SPDX-License-Identifier: Apache-2.0
//
// Stream-ordered memory pools.
#include "runtime/memory_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "acl/acl.h"
#include "acl/acl_rt_memory_soma.h"
#include "capture/graph_memory.h"
#include "check.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/reclaim.h"
#include "runtime/report.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
namespace capture = reprise::capture;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::MemoryPool;
using runtime::NotNull;
using runtime::NotNullInner;
using runtime::PoolAttribute;

namespace {

StatusOr<MemoryPool*> FindPool(aclrtMemPool pool) {
  REPRISE_RETURN_IF_ERROR(NotNull(pool, "memPool"));
  return runtime::FindObject(runtime::MemoryPools(), pool, "memory pool");
}

Status CheckAttribute(aclrtMemPoolAttr attr) {
  return InRange(attr, ACL_RT_MEM_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES, ACL_RT_MEM_POOL_ATTR_USED_MEM_HIGH, "attr");
}

// The first three attributes are 32 bits wide, the others 64.
bool IsSwitch(aclrtMemPoolAttr attr) { return attr <= ACL_RT_MEM_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES; }

}  // namespace

aclError aclrtMemPoolCreate(aclrtMemPool* memPool, const aclrtMemPoolProps* poolProps) {
  return Api("aclrtMemPoolCreate", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(memPool, "memPool"));
    REPRISE_RETURN_IF_ERROR(NotNull(poolProps, "poolProps"));
    REPRISE_RETURN_IF_ERROR(InRange(poolProps->allocType, ACL_MEM_ALLOCATION_TYPE_PINNED,
                                    ACL_MEM_ALLOCATION_TYPE_PINNED, "poolProps->allocType", kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(InRange(poolProps->handleType, ACL_MEM_HANDLE_TYPE_NONE, ACL_MEM_HANDLE_TYPE_NONE,
                                    "poolProps->handleType", kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(InRange(poolProps->location.type, ACL_MEM_LOCATION_TYPE_DEVICE,
                                    ACL_MEM_LOCATION_TYPE_DEVICE, "poolProps->location.type", kInvalidArgument));
    const auto* reserved = poolProps->reserved;
    if (std::any_of(reserved, reserved + sizeof poolProps->reserved, [](unsigned char byte) { return byte != 0; })) {
      return Error(kInvalidArgument, "poolProps->reserved is not zero")
          .Culprit("parameter poolProps->reserved")
          .Hint("set the whole of poolProps to zero before filling it");
    }
    REPRISE_ASSIGN_OR_RETURN(runtime::Device * device, runtime::FindDevice(poolProps->location.id));
    REPRISE_ASSIGN_OR_RETURN(const MemoryPool* made, MemoryPool::Create(*device, poolProps->maxSize));
    *memPool = made->handle();
    return {};
  });
}

aclError aclrtMemPoolDestroy(const aclrtMemPool memPool) {
  return Api("aclrtMemPoolDestroy", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(MemoryPool * pool, FindPool(memPool));
    if (MemoryPool::Destroy(pool)) return {};
    return FindPool(memPool).status();  // another thread was faster
  });
}

aclError aclrtMemPoolSetAttr(aclrtMemPool memPool, aclrtMemPoolAttr attr, void* value) {
  return Api("aclrtMemPoolSetAttr", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(MemoryPool * pool, FindPool(memPool));
    REPRISE_RETURN_IF_ERROR(NotNullInner(value, "value"));
    REPRISE_RETURN_IF_ERROR(CheckAttribute(attr));
    uint64_t number = 0;
    std::memcpy(&number, value, IsSwitch(attr) ? sizeof(uint32_t) : sizeof number);
    return pool->Set(static_cast<PoolAttribute>(attr), number);
  });
}

aclError aclrtMemPoolGetAttr(aclrtMemPool memPool, aclrtMemPoolAttr attr, void* value) {
  return Api("aclrtMemPoolGetAttr", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const MemoryPool* pool, FindPool(memPool));
    REPRISE_RETURN_IF_ERROR(NotNullInner(value, "value"));
    REPRISE_RETURN_IF_ERROR(CheckAttribute(attr));
    const uint64_t number = pool->Get(static_cast<PoolAttribute>(attr));
    std::memcpy(value, &number, IsSwitch(attr) ? sizeof(uint32_t) : sizeof number);
    return {};
  });
}

aclError aclrtMemPoolMallocAsync(void** ptr, size_t size, aclrtMemPool memPool, aclrtStream stream) {
  return Api("aclrtMemPoolMallocAsync", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_ASSIGN_OR_RETURN(MemoryPool * pool, FindPool(memPool));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    if (pool->device() != on->device().id()) {
      return Error(kInvalidValue,
                   fmt::format("{} cannot serve {} of device {}", pool->Describe(), on->Describe(), on->device().id()))
          .Culprit("parameter memPool")
          .Hint("pass a stream of the pool's device");
    }
    if (size == 0) return {};
    REPRISE_ASSIGN_OR_RETURN(void* block, capture::TakeGraphMemory(*on, size));
    if (block == nullptr) {
      REPRISE_ASSIGN_OR_RETURN(block, runtime::OrReclaim(
                                          pool->device(), size, [&] { return pool->Take(*on, size); },
                                          [&] { return !pool->IsFullFor(size); }));
    }
    *ptr = block;
    return {};
  });
}

aclError aclrtMemPoolFreeAsync(void* ptr, aclrtStream stream) {
  return Api("aclrtMemPoolFreeAsync", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    REPRISE_ASSIGN_OR_RETURN(const bool of_graph, capture::GiveBackGraphMemory(*on, ptr));
    return of_graph ? Status() : MemoryPool::GiveBack(ptr, *on);
  });
}

aclError aclrtMemPoolTrimTo(aclrtMemPool memPool, size_t minBytesToKeep) {
  return Api("aclrtMemPoolTrimTo", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(MemoryPool * pool, FindPool(memPool));
    pool->TrimTo(minBytesToKeep);
    return {};
  });
}
