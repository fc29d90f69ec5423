// SPDX-License-Identifier: Apache-2.0
//
// Memory of communicators.
#include "device/memory.h"
#include "collective/window.h"
#include "hccl/hccl_comm.h"
#include "hccl/hccl_sym_win.h"
#include "hccl_report.h"
#include "runtime/context.h"
#include "runtime/device.h"

namespace collective = reprise::collective;
using collective::Communicator;
using reprise::Error;
using reprise::Status;
using reprise::hccl::Api;
using reprise::hccl::NotNull;

namespace {

constexpr uint64_t kGranule = uint64_t{2} << 20;

Status Zero(uint64_t value, const char* parameter) {
  if (value == 0) return {};
  return Error(HCCL_E_PARA, fmt::format("{} is {}, must be 0", parameter, value))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint("pass 0");
}

uintptr_t Address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// Looks the communicator up when all pointers are there.
reprise::StatusOr<Communicator*> Find(HcclComm comm, const void* pointer, const char* parameter) {
  REPRISE_RETURN_IF_ERROR(NotNull(comm, "comm"));
  REPRISE_RETURN_IF_ERROR(NotNull(pointer, parameter));
  return collective::FindCommunicator(comm);
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

HcclResult HcclCommSetMemoryRange(HcclComm comm, void* baseVirPtr, size_t size, size_t alignment, uint64_t flags) {
  return Api("HcclCommSetMemoryRange", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] Communicator * found, Find(comm, baseVirPtr, "baseVirPtr"));
    REPRISE_RETURN_IF_ERROR(Zero(alignment, "alignment"));
    REPRISE_RETURN_IF_ERROR(Zero(flags, "flags"));
    return collective::SetMemoryRange(Address(baseVirPtr), size);
  });
}

HcclResult HcclCommUnsetMemoryRange(HcclComm comm, void* baseVirPtr) {
  return Api("HcclCommUnsetMemoryRange", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] Communicator * found, Find(comm, baseVirPtr, "baseVirPtr"));
    return collective::UnsetMemoryRange(Address(baseVirPtr));
  });
}

HcclResult HcclCommActivateCommMemory(HcclComm comm, void* virPtr, size_t size, size_t offset, aclrtDrvMemHandle handle,
                                      uint64_t flags) {
  return Api("HcclCommActivateCommMemory", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] Communicator * found, Find(comm, virPtr, "virPtr"));
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_RETURN_IF_ERROR(Zero(offset, "offset"));
    REPRISE_RETURN_IF_ERROR(Zero(flags, "flags"));
    return collective::ActivateMemory(Address(virPtr), size);
  });
}

HcclResult HcclCommDeactivateCommMemory(HcclComm comm, void* virPtr) {
  return Api("HcclCommDeactivateCommMemory", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] Communicator * found, Find(comm, virPtr, "virPtr"));
    return collective::DeactivateMemory(Address(virPtr));
  });
}

HcclResult HcclCommRegister(HcclComm comm, void* addr, uint64_t size, void** handle, uint32_t flag) {
  return Api("HcclCommRegister", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(handle, "handle"));
    REPRISE_ASSIGN_OR_RETURN(Communicator * found, Find(comm, addr, "addr"));
    REPRISE_RETURN_IF_ERROR(Zero(flag, "flag"));
    REPRISE_ASSIGN_OR_RETURN(*handle, collective::RegisterWindow(*found, addr, size));
    return {};
  });
}

HcclResult HcclCommDeregister(HcclComm comm, void* handle) {
  return Api("HcclCommDeregister", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const Communicator* found, Find(comm, handle, "handle"));
    return collective::DeregisterWindow(*found, handle);
  });
}

HcclResult HcclCommExchangeMem(HcclComm comm, void* windowHandle, uint32_t* peerRanks, uint32_t peerRankNum) {
  return Api("HcclCommExchangeMem", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(peerRanks, "peerRanks"));
    REPRISE_ASSIGN_OR_RETURN(const Communicator* found, Find(comm, windowHandle, "windowHandle"));
    REPRISE_RETURN_IF_ERROR(collective::CheckWindow(*found, windowHandle));
    for (uint32_t i = 0; i < peerRankNum; ++i) {
      if (peerRanks[i] < found->ranks()) continue;
      return Error(HCCL_E_PARA,
                   fmt::format("peerRanks[{}] is {}, the communicator has {} ranks", i, peerRanks[i], found->ranks()))
          .Culprit("parameter peerRanks")
          .Hint("name ranks of the communicator");
    }
    return {};  // operators reach all memory as it is
  });
}

HcclResult HcclCommSymWinRegister(HcclComm comm, void* addr, uint64_t size, HcclCommSymWindow* winHandle,
                                  uint32_t flag) {
  return Api("HcclCommSymWinRegister", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(winHandle, "winHandle"));
    REPRISE_ASSIGN_OR_RETURN(Communicator * found, Find(comm, addr, "addr"));
    if (flag != 1)
      return Error(HCCL_E_PARA, fmt::format("flag is {}, must be 1", flag)).Culprit("parameter flag").Hint("pass 1");
    REPRISE_ASSIGN_OR_RETURN(*winHandle, collective::RegisterSymmetric(*found, addr, size));
    return {};
  });
}

HcclResult HcclCommSymWinDeregister(HcclCommSymWindow winHandle) {
  return Api("HcclCommSymWinDeregister", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(winHandle, "winHandle"));
    return collective::DeregisterSymmetric(winHandle);
  });
}

HcclResult HcclCommSymWinGet(HcclComm comm, void* ptr, size_t size, HcclCommSymWindow* winHandle, size_t* offset) {
  return Api("HcclCommSymWinGet", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(winHandle, "winHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(offset, "offset"));
    REPRISE_ASSIGN_OR_RETURN(const Communicator* found, Find(comm, ptr, "ptr"));
    REPRISE_ASSIGN_OR_RETURN(*winHandle, collective::FindSymmetric(*found, ptr, size, offset));
    return {};
  });
}

HcclResult HcclSymWinGetPeerPointer(HcclCommSymWindow winHandle, size_t offset, uint32_t peerRank, void** ptr) {
  return Api("HcclSymWinGetPeerPointer", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(winHandle, "winHandle"));
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    REPRISE_ASSIGN_OR_RETURN(*ptr, collective::PeerPointer(winHandle, offset, peerRank));
    return {};
  });
}

HcommResult HcommMemAlloc(void** ptr, size_t size) {
  return Api("HcommMemAlloc", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    if (size == 0 || size > (uint64_t{1} << 48)) {
      return Error(HCCL_E_PARA, fmt::format("size is {}", size))
          .Culprit("parameter size")
          .Hint("pass the bytes that are needed");
    }
    REPRISE_ASSIGN_OR_RETURN(const reprise::runtime::Context* context, reprise::runtime::CurrentContext());
    const uint64_t bytes = (size + kGranule - 1) / kGranule * kGranule;
    REPRISE_ASSIGN_OR_RETURN(*ptr, reprise::device::MemoryRegistry::Get().AllocateDevice(context->device().id(), bytes,
                                                                                         reprise::device::kHugePage));
    return {};
  });
}

HcommResult HcommMemFree(void* ptr) {
  return Api("HcommMemFree", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(ptr, "ptr"));
    return reprise::device::MemoryRegistry::Get().Free(ptr, reprise::device::MemoryKind::kDevice);
  });
}

}  // extern "C"
#pragma GCC visibility pop
