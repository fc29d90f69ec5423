// SPDX-License-Identifier: Apache-2.0
//
// Notifies and counting notifies: semaphores between streams and processes.
#include "runtime/notify.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "acl/acl.h"
#include "capture/session.h"
#include "check.h"
#include "runtime/context.h"
#include "runtime/device.h"
#include "runtime/report.h"
#include "share_key.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
using reprise::StatusOr;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::CountNotify;
using runtime::Notify;
using runtime::NotNull;
using runtime::Stream;

namespace {

StatusOr<Notify*> FindNotify(aclrtNotify handle) { return runtime::FindObject(runtime::Notifies(), handle, "notify"); }

StatusOr<CountNotify*> FindCount(aclrtCntNotify handle) {
  REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(handle, "cntNotify"));
  return runtime::FindObject(runtime::CountNotifies(), handle, "counting notify");
}

// Flags that are 0 or one bit.
Status IsZeroOr(uint64_t flags, uint64_t bit, const char* meaning) {
  if (flags == 0 || flags == bit) return {};
  return Error(kInvalidValue, fmt::format("flags is {:#x}, must be 0 or {} ({})", flags, bit, meaning))
      .Culprit("parameter flags")
      .Hint(fmt::format("pass 0 or {}", meaning));
}

}  // namespace

aclError aclrtCreateNotify(aclrtNotify* notify, uint64_t flag) {
  return Api("aclrtCreateNotify", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(notify, "notify"));
    REPRISE_RETURN_IF_ERROR(InRange(flag, ACL_NOTIFY_DEFAULT, ACL_NOTIFY_DEVICE_USE_ONLY, "flag"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Context * context, runtime::CurrentContext());
    REPRISE_ASSIGN_OR_RETURN(Notify * made, Notify::Create(context->device()));
    *notify = made->handle();
    return {};
  });
}

aclError aclrtDestroyNotify(aclrtNotify notify) {
  return Api("aclrtDestroyNotify", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(notify, "notify"));
    REPRISE_ASSIGN_OR_RETURN(Notify * found, FindNotify(notify));
    if (Notify::Destroy(found)) return {};
    return FindNotify(notify).status();  // another thread was faster
  });
}

aclError aclrtRecordNotify(aclrtNotify notify, aclrtStream stream) {
  return Api("aclrtRecordNotify", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(notify, "notify"));
    REPRISE_ASSIGN_OR_RETURN(Notify * found, FindNotify(notify));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    return found->RecordOn(*on);
  });
}

aclError aclrtWaitAndResetNotify(aclrtNotify notify, aclrtStream stream, uint32_t timeout) {
  return Api("aclrtWaitAndResetNotify", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(notify, "notify"));
    REPRISE_ASSIGN_OR_RETURN(Notify * found, FindNotify(notify));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    return found->WaitOn(*on, timeout);
  });
}

aclError aclrtGetNotifyId(aclrtNotify notify, uint32_t* notifyId) {
  return Api("aclrtGetNotifyId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(notify, "notify"));
    REPRISE_RETURN_IF_ERROR(NotNull(notifyId, "notifyId"));
    REPRISE_ASSIGN_OR_RETURN(Notify * found, FindNotify(notify));
    *notifyId = static_cast<uint32_t>(found->id());
    return {};
  });
}

aclError aclrtNotifyBatchReset(aclrtNotify* notifies, size_t num) {
  return Api("aclrtNotifyBatchReset", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(notifies, "notifies"));
    REPRISE_RETURN_IF_ERROR(NotZero(num, "num", kInvalidValue));
    // All are looked up before any is changed.
    for (size_t i = 0; i < num; ++i) {
      auto found = FindNotify(notifies[i]);
      if (!found.ok()) return std::move(found).status();
    }
    for (size_t i = 0; i < num; ++i) {
      if (Notify* found = runtime::Notifies().Find(notifies[i])) found->Reset();
    }
    return {};
  });
}

aclError aclrtNotifyGetExportKey(aclrtNotify notify, char* key, size_t len, uint64_t flags) {
  return Api("aclrtNotifyGetExportKey", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(notify, "notify"));
    REPRISE_RETURN_IF_ERROR(NotNull(key, "key"));
    REPRISE_RETURN_IF_ERROR(CheckKeyRoom(len));
    REPRISE_RETURN_IF_ERROR(IsZeroOr(flags, ACL_RT_NOTIFY_EXPORT_FLAG_DISABLE_PID_VALIDATION,
                                     "ACL_RT_NOTIFY_EXPORT_FLAG_DISABLE_PID_VALIDATION"));
    REPRISE_ASSIGN_OR_RETURN(Notify * found, FindNotify(notify));
    REPRISE_ASSIGN_OR_RETURN(const reprise::device::ShareKey made, found->Export(flags == 0));
    WriteKey(made, key, len);
    return {};
  });
}

aclError aclrtNotifyImportByKey(aclrtNotify* notify, const char* key, uint64_t flags) {
  return Api("aclrtNotifyImportByKey", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(notify, "notify"));
    REPRISE_RETURN_IF_ERROR(NotNull(key, "key"));
    REPRISE_RETURN_IF_ERROR(
        IsZeroOr(flags, ACL_RT_NOTIFY_IMPORT_FLAG_ENABLE_PEER_ACCESS, "ACL_RT_NOTIFY_IMPORT_FLAG_ENABLE_PEER_ACCESS"));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const runtime::Context* context, runtime::CurrentContext());
    REPRISE_ASSIGN_OR_RETURN(const reprise::device::ShareKey parsed, ReadKey(key));
    REPRISE_ASSIGN_OR_RETURN(Notify * made, Notify::Import(parsed));
    *notify = made->handle();
    return {};
  });
}

aclError aclrtNotifySetImportPid(aclrtNotify notify, int32_t* pid, size_t num) {
  return Api("aclrtNotifySetImportPid", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(notify, "notify"));
    REPRISE_RETURN_IF_ERROR(NotNull(pid, "pid"));
    REPRISE_RETURN_IF_ERROR(NotZero(num, "num", kInvalidValue));
    REPRISE_ASSIGN_OR_RETURN(Notify * found, FindNotify(notify));
    return found->AllowTakers(pid, num);
  });
}

aclError aclrtNotifySetImportPidInterServer(aclrtNotify notify, aclrtServerPid* serverPids, size_t num) {
  return Api("aclrtNotifySetImportPidInterServer", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(notify, "notify"));
    REPRISE_RETURN_IF_ERROR(NotNull(serverPids, "serverPids"));
    (void)num;
    return Error(kFeatureNotSupported, "notifies are not shared between servers")
        .Hint("share notifies between processes of one machine: aclrtNotifySetImportPid");
  });
}

aclError aclrtCntNotifyCreate(aclrtCntNotify* cntNotify, uint64_t flag) {
  return Api("aclrtCntNotifyCreate", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(cntNotify, "cntNotify"));
    REPRISE_RETURN_IF_ERROR(IsReserved(flag, "flag", kInvalidValue));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const runtime::Context* context, runtime::CurrentContext());
    REPRISE_ASSIGN_OR_RETURN(CountNotify * made, CountNotify::Create());
    *cntNotify = made->handle();
    return {};
  });
}

aclError aclrtCntNotifyDestroy(aclrtCntNotify cntNotify) {
  return Api("aclrtCntNotifyDestroy", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(CountNotify * found, FindCount(cntNotify));
    if (CountNotify::Destroy(found)) return {};
    return FindCount(cntNotify).status();  // another thread was faster
  });
}

aclError aclrtCntNotifyRecord(aclrtCntNotify cntNotify, aclrtStream stream, aclrtCntNotifyRecordInfo* info) {
  return Api("aclrtCntNotifyRecord", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(info, "info"));
    const auto mode = static_cast<uint32_t>(info->mode);
    if (mode != ACL_RT_CNT_NOTIFY_RECORD_SET_VALUE_MODE && mode != ACL_RT_CNT_NOTIFY_RECORD_ADD_MODE &&
        mode != ACL_RT_CNT_NOTIFY_RECORD_BIT_OR_MODE && mode != ACL_RT_CNT_NOTIFY_RECORD_BIT_AND_MODE) {
      return Error(kInvalidValue, fmt::format("info->mode is {}, must be 0 (set), 1 (add), 2 (or) or 4 (and)", mode))
          .Culprit("parameter info->mode")
          .Hint("set info->mode to one of the enumerators");
    }
    REPRISE_ASSIGN_OR_RETURN(CountNotify * found, FindCount(cntNotify));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    return found->ChangeOn(*on, static_cast<runtime::CountChange>(mode), info->value);
  });
}

aclError aclrtCntNotifyWaitWithTimeout(aclrtCntNotify cntNotify, aclrtStream stream, aclrtCntNotifyWaitInfo* info) {
  return Api("aclrtCntNotifyWaitWithTimeout", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(info, "info"));
    REPRISE_RETURN_IF_ERROR(InRange(static_cast<uint32_t>(info->mode), ACL_RT_CNT_NOTIFY_WAIT_LESS_MODE,
                                    ACL_RT_CNT_NOTIFY_WAIT_EQUAL_WITH_BITMASK_MODE, "info->mode"));
    REPRISE_ASSIGN_OR_RETURN(CountNotify * found, FindCount(cntNotify));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    return found->WaitOn(*on, static_cast<runtime::CountCompare>(info->mode), info->value, info->timeout,
                         info->isClear != 0);
  });
}

aclError aclrtCntNotifyReset(aclrtCntNotify cntNotify, aclrtStream stream) {
  return Api("aclrtCntNotifyReset", [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(CountNotify * found, FindCount(cntNotify));
    REPRISE_ASSIGN_OR_RETURN(Stream * on, runtime::FindStream(stream));
    return found->ChangeOn(*on, runtime::CountChange::kReset, 0);
  });
}

aclError aclrtCntNotifyGetId(aclrtCntNotify cntNotify, uint32_t* notifyId) {
  return Api("aclrtCntNotifyGetId", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNullInner(notifyId, "notifyId"));
    REPRISE_ASSIGN_OR_RETURN(CountNotify * found, FindCount(cntNotify));
    *notifyId = static_cast<uint32_t>(found->id());
    return {};
  });
}
