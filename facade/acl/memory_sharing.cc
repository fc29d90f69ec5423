// SPDX-License-Identifier: Apache-2.0
//
// Device memory between processes, by key.
#include <fmt/format.h>

#include "acl/acl.h"
#include "check.h"
#include "device/ipc_memory.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/report.h"
#include "share_key.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
using reprise::device::ShareKey;
namespace device = reprise::device;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::NotNull;

aclError aclrtIpcMemGetExportKey(void* devPtr, size_t size, char* key, size_t len, uint64_t flags) {
  return Api("aclrtIpcMemGetExportKey", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(devPtr, "devPtr"));
    REPRISE_RETURN_IF_ERROR(NotNull(key, "key"));
    REPRISE_RETURN_IF_ERROR(NotZero(size, "size", kInvalidValue));
    REPRISE_RETURN_IF_ERROR(CheckKeyRoom(len));
    REPRISE_RETURN_IF_ERROR(
        InRange(flags, ACL_RT_IPC_MEM_EXPORT_FLAG_DEFAULT, ACL_RT_IPC_MEM_EXPORT_FLAG_DISABLE_PID_VALIDATION, "flags"));
    REPRISE_ASSIGN_OR_RETURN(const runtime::Context* context, runtime::CurrentContext());
    (void)context;  // its work, and that of others, may use the memory meanwhile
    REPRISE_ASSIGN_OR_RETURN(const ShareKey made, device::ExportMemory(devPtr, size, flags == 0));
    WriteKey(made, key, len);
    return {};
  });
}

aclError aclrtIpcMemImportByKey(void** devPtr, const char* key, uint64_t flags) {
  return Api("aclrtIpcMemImportByKey", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(devPtr, "devPtr"));
    REPRISE_RETURN_IF_ERROR(NotNull(key, "key"));
    REPRISE_RETURN_IF_ERROR(
        InRange(flags, ACL_RT_IPC_MEM_IMPORT_FLAG_DEFAULT, ACL_RT_IPC_MEM_IMPORT_FLAG_ENABLE_PEER_ACCESS, "flags"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
    REPRISE_ASSIGN_OR_RETURN(const ShareKey parsed, ReadKey(key));
    REPRISE_ASSIGN_OR_RETURN(*devPtr, device::ImportMemory(parsed, context->device().id()));
    return {};
  });
}

aclError aclrtIpcMemClose(const char* key) {
  return Api("aclrtIpcMemClose", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(key, "key"));
    REPRISE_ASSIGN_OR_RETURN(const ShareKey parsed, ReadKey(key));
    return device::CloseMemory(parsed);
  });
}

aclError aclrtIpcMemSetImportPid(const char* key, int32_t* pid, size_t num) {
  return Api("aclrtIpcMemSetImportPid", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(key, "key"));
    REPRISE_RETURN_IF_ERROR(NotNull(pid, "pid"));
    REPRISE_RETURN_IF_ERROR(NotZero(num, "num", kInvalidValue));
    REPRISE_ASSIGN_OR_RETURN(const ShareKey parsed, ReadKey(key));
    return device::AllowTakers(parsed, pid, num);
  });
}

aclError aclrtIpcMemSetAttr(const char* key, aclrtIpcMemAttrType type, uint64_t attr) {
  return Api("aclrtIpcMemSetAttr", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(key, "key"));
    REPRISE_ASSIGN_OR_RETURN(const ShareKey parsed, ReadKey(key));
    (void)parsed;  // chooses between links of the device, of which the CPU has none
    (void)type;
    (void)attr;
    return {};
  });
}

aclError aclrtIpcMemImportPidInterServer(const char* key, aclrtServerPid* serverPids, size_t num) {
  return Api("aclrtIpcMemImportPidInterServer", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(key, "key"));
    REPRISE_RETURN_IF_ERROR(NotNull(serverPids, "serverPids"));
    (void)num;
    return Error(kFeatureNotSupported, "memory is not shared between servers")
        .Hint("share memory between processes of one machine: aclrtIpcMemSetImportPid");
  });
}
