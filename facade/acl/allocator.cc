// SPDX-License-Identifier: Apache-2.0
//
// Allocators that a program registers for its streams. Offline models would take their memory from them; here they are
// kept and given back.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>

#include "acl/acl.h"
#include "acl/acl_rt_allocator.h"
#include "check.h"
#include "runtime/objects.h"
#include "runtime/report.h"

namespace reprise::facade {
namespace {

struct AllocatorDesc {
  aclrtAllocator object = nullptr;
  aclrtAllocatorAllocFunc alloc = nullptr;
  aclrtAllocatorFreeFunc free = nullptr;
  aclrtAllocatorAllocAdviseFunc alloc_advise = nullptr;
  aclrtAllocatorGetAddrFromBlockFunc address_of = nullptr;
};

struct Registered {
  aclrtAllocatorDesc handle;
  AllocatorDesc desc;  // as it was at the registration
};

HandleTable<AllocatorDesc, HandleKind::kAllocatorDesc>& Descs() {
  static constinit NoDestroy<HandleTable<AllocatorDesc, HandleKind::kAllocatorDesc>> table;
  return table.value;
}

struct ByStream {
  std::mutex mutex;
  std::map<const void*, Registered> of;  // stream handles are never used again, so old entries match nothing
};

ByStream& All() {
  static auto* const all = new ByStream;
  return *all;
}

StatusOr<AllocatorDesc*> Find(aclrtAllocatorDesc desc) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNull(desc, "allocatorDesc"));
  return runtime::FindObject(Descs(), desc, "allocator descriptor");
}

template <class Function>
aclError Store(const char* api, aclrtAllocatorDesc desc, Function AllocatorDesc::*member, Function value,
               const char* parameter) {
  return runtime::Api(api, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(AllocatorDesc * found, Find(desc));
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(reinterpret_cast<const void*>(value), parameter));
    found->*member = value;
    return {};
  });
}

// Streams may have been destroyed since they were registered.
void ForgetDestroyedStreams(ByStream& all) {
  std::erase_if(all.of, [](const auto& entry) { return runtime::Streams().Find(entry.first) == nullptr; });
}

}  // namespace
}  // namespace reprise::facade

using namespace reprise::facade;  // NOLINT: a file of C functions
using reprise::Error;
using reprise::Status;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::NotNull;

aclrtAllocatorDesc aclrtAllocatorCreateDesc(void) {
  void* handle = nullptr;
  Api("aclrtAllocatorCreateDesc", [&]() -> Status {
    auto desc = std::make_unique<AllocatorDesc>();
    handle = Descs().Insert(desc.get());
    if (handle == nullptr)
      return Error(kOutOfHostMemory, "the process has too many allocator descriptors")
          .Hint("destroy descriptors that are no longer needed with aclrtAllocatorDestroyDesc");
    (void)desc.release();  // the table holds it until aclrtAllocatorDestroyDesc
    return {};
  });
  return handle;
}

aclError aclrtAllocatorDestroyDesc(aclrtAllocatorDesc allocatorDesc) {
  return Api("aclrtAllocatorDestroyDesc", [&]() -> Status {
    if (Descs().Destroy(allocatorDesc)) return {};
    return Find(allocatorDesc).status();
  });
}

aclError aclrtAllocatorSetObjToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocator allocator) {
  return Store("aclrtAllocatorSetObjToDesc", allocatorDesc, &AllocatorDesc::object, allocator, "allocator");
}

aclError aclrtAllocatorSetAllocFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorAllocFunc func) {
  return Store("aclrtAllocatorSetAllocFuncToDesc", allocatorDesc, &AllocatorDesc::alloc, func, "func");
}

aclError aclrtAllocatorSetFreeFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorFreeFunc func) {
  return Store("aclrtAllocatorSetFreeFuncToDesc", allocatorDesc, &AllocatorDesc::free, func, "func");
}

aclError aclrtAllocatorSetAllocAdviseFuncToDesc(aclrtAllocatorDesc allocatorDesc, aclrtAllocatorAllocAdviseFunc func) {
  return Store("aclrtAllocatorSetAllocAdviseFuncToDesc", allocatorDesc, &AllocatorDesc::alloc_advise, func, "func");
}

aclError aclrtAllocatorSetGetAddrFromBlockFuncToDesc(aclrtAllocatorDesc allocatorDesc,
                                                     aclrtAllocatorGetAddrFromBlockFunc func) {
  return Store("aclrtAllocatorSetGetAddrFromBlockFuncToDesc", allocatorDesc, &AllocatorDesc::address_of, func, "func");
}

aclError aclrtAllocatorRegister(aclrtStream stream, aclrtAllocatorDesc allocatorDesc) {
  return Api("aclrtAllocatorRegister", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_ASSIGN_OR_RETURN(const AllocatorDesc* found, Find(allocatorDesc));
    REPRISE_RETURN_IF_ERROR(NotNull(found->object, "allocatorDesc->obj"));
    REPRISE_RETURN_IF_ERROR(NotNull(reinterpret_cast<const void*>(found->alloc), "allocatorDesc->allocFunc"));
    REPRISE_RETURN_IF_ERROR(NotNull(reinterpret_cast<const void*>(found->free), "allocatorDesc->freeFunc"));
    REPRISE_RETURN_IF_ERROR(
        NotNull(reinterpret_cast<const void*>(found->address_of), "allocatorDesc->getAddrFromBlockFunc"));
    REPRISE_ASSIGN_OR_RETURN(const runtime::Stream* on, runtime::FindStream(stream));
    ByStream& all = All();
    std::lock_guard lock(all.mutex);
    ForgetDestroyedStreams(all);
    all.of[on->handle()] = {allocatorDesc, *found};
    return {};
  });
}

aclError aclrtAllocatorGetByStream(aclrtStream stream, aclrtAllocatorDesc* allocatorDesc, aclrtAllocator* allocator,
                                   aclrtAllocatorAllocFunc* allocFunc, aclrtAllocatorFreeFunc* freeFunc,
                                   aclrtAllocatorAllocAdviseFunc* allocAdviseFunc,
                                   aclrtAllocatorGetAddrFromBlockFunc* getAddrFromBlockFunc) {
  return Api("aclrtAllocatorGetByStream", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(allocatorDesc, "allocatorDesc"));
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_ASSIGN_OR_RETURN(const runtime::Stream* on, runtime::FindStream(stream));
    Registered registered{};
    {
      ByStream& all = All();
      std::lock_guard lock(all.mutex);
      const auto it = all.of.find(on->handle());
      if (it != all.of.end()) registered = it->second;
    }
    *allocatorDesc = registered.handle;
    if (allocator != nullptr) *allocator = registered.desc.object;
    if (allocFunc != nullptr) *allocFunc = registered.desc.alloc;
    if (freeFunc != nullptr) *freeFunc = registered.desc.free;
    if (allocAdviseFunc != nullptr) *allocAdviseFunc = registered.desc.alloc_advise;
    if (getAddrFromBlockFunc != nullptr) *getAddrFromBlockFunc = registered.desc.address_of;
    return {};
  });
}

aclError aclrtAllocatorUnregister(aclrtStream stream) {
  return Api("aclrtAllocatorUnregister", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_ASSIGN_OR_RETURN(const runtime::Stream* on, runtime::FindStream(stream));
    ByStream& all = All();
    std::lock_guard lock(all.mutex);
    all.of.erase(on->handle());
    return {};
  });
}
