// SPDX-License-Identifier: Apache-2.0
//
// Memory of communicators.
#include "hccl/hccl_comm.h"
#include "hccl/hccl_sym_win.h"
#include "hccl_report.h"
#include "runtime/allocation.h"
#include "runtime/context.h"

using reprise::runtime::Refuse;

namespace {

HcclResult No(const char* api) {
  return static_cast<HcclResult>(Refuse(api, HCCL_E_NOT_SUPPORT, "windows of communicators are not here yet",
                                        "call the operators: they reach all device memory"));
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

HcclResult HcclCommSetMemoryRange(HcclComm, void*, size_t, size_t, uint64_t) { return No("HcclCommSetMemoryRange"); }
HcclResult HcclCommUnsetMemoryRange(HcclComm, void*) { return No("HcclCommUnsetMemoryRange"); }
HcclResult HcclCommActivateCommMemory(HcclComm, void*, size_t, size_t, aclrtDrvMemHandle, uint64_t) {
  return No("HcclCommActivateCommMemory");
}
HcclResult HcclCommDeactivateCommMemory(HcclComm, void*) { return No("HcclCommDeactivateCommMemory"); }
HcclResult HcclCommRegister(HcclComm, void*, uint64_t, void**, uint32_t) { return No("HcclCommRegister"); }
HcclResult HcclCommDeregister(HcclComm, void*) { return No("HcclCommDeregister"); }
HcclResult HcclCommExchangeMem(HcclComm, void*, uint32_t*, uint32_t) { return No("HcclCommExchangeMem"); }
HcclResult HcclCommSymWinRegister(HcclComm, void*, uint64_t, HcclCommSymWindow*, uint32_t) {
  return No("HcclCommSymWinRegister");
}
HcclResult HcclCommSymWinDeregister(HcclCommSymWindow) { return No("HcclCommSymWinDeregister"); }
HcclResult HcclCommSymWinGet(HcclComm, void*, size_t, HcclCommSymWindow*, size_t*) { return No("HcclCommSymWinGet"); }
HcclResult HcclSymWinGetPeerPointer(HcclCommSymWindow, size_t, uint32_t, void**) {
  return No("HcclSymWinGetPeerPointer");
}
HcommResult HcommMemAlloc(void**, size_t) { return No("HcommMemAlloc"); }
HcommResult HcommMemFree(void*) { return No("HcommMemFree"); }

}  // extern "C"
#pragma GCC visibility pop
