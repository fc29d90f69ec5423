// SPDX-License-Identifier: Apache-2.0
//
// Queue buffers.
#include "tdt/buffer.h"

#include <fmt/format.h>

#include "acl/acl_tdt_queue.h"
#include "runtime/context.h"
#include "runtime/report.h"

using namespace reprise::errors;  // NOLINT: the numbers of errors, by name
using reprise::Status;
namespace runtime = reprise::runtime;
namespace tdt = reprise::tdt;
using runtime::Api;
using runtime::NotNull;

aclError acltdtAllocBuf(size_t size, uint32_t type, acltdtBuf* buf) {
  return Api("acltdtAllocBuf", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    if (type != ACL_TDT_NORMAL_MEM && type != ACL_TDT_DVPP_MEM) {
      return reprise::Error(kInvalidArgument,
                            fmt::format("type is {}, must be 0 (ordinary) or 1 (image preprocessing)", type))
          .Culprit("parameter type")
          .Hint("pass ACL_TDT_NORMAL_MEM; the memory is the same for both");
    }
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const runtime::Context* context, runtime::CurrentContext());
    REPRISE_ASSIGN_OR_RETURN(*buf, tdt::AllocBuffer(size));
    return {};
  });
}

aclError acltdtFreeBuf(acltdtBuf buf) {
  return Api("acltdtFreeBuf", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    return tdt::FreeBuffer(buf);
  });
}

aclError acltdtCopyBufRef(const acltdtBuf buf, acltdtBuf* newBuf) {
  return Api("acltdtCopyBufRef", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    REPRISE_RETURN_IF_ERROR(NotNull(newBuf, "newBuf"));
    REPRISE_ASSIGN_OR_RETURN(*newBuf, tdt::CopyBuffer(buf));
    return {};
  });
}

aclError acltdtGetBufData(const acltdtBuf buf, void** dataPtr, size_t* size) {
  return Api("acltdtGetBufData", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    REPRISE_RETURN_IF_ERROR(NotNull(dataPtr, "dataPtr"));
    REPRISE_RETURN_IF_ERROR(NotNull(size, "size"));
    REPRISE_ASSIGN_OR_RETURN(const tdt::BufferExtent extent, tdt::BufferData(buf));
    *dataPtr = extent.data;
    *size = extent.bytes;
    return {};
  });
}

aclError acltdtSetBufDataLen(acltdtBuf buf, size_t len) {
  return Api("acltdtSetBufDataLen", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    return tdt::SetBufferLength(buf, len);
  });
}

aclError acltdtGetBufDataLen(acltdtBuf buf, size_t* len) {
  return Api("acltdtGetBufDataLen", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    REPRISE_RETURN_IF_ERROR(NotNull(len, "len"));
    REPRISE_ASSIGN_OR_RETURN(*len, tdt::BufferLength(buf));
    return {};
  });
}

aclError acltdtSetBufUserData(acltdtBuf buf, const void* dataPtr, size_t size, size_t offset) {
  return Api("acltdtSetBufUserData", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    REPRISE_RETURN_IF_ERROR(NotNull(dataPtr, "dataPtr"));
    return tdt::WriteUserArea(buf, dataPtr, size, offset);
  });
}

aclError acltdtGetBufUserData(const acltdtBuf buf, void* dataPtr, size_t size, size_t offset) {
  return Api("acltdtGetBufUserData", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    REPRISE_RETURN_IF_ERROR(NotNull(dataPtr, "dataPtr"));
    return tdt::ReadUserArea(buf, dataPtr, size, offset);
  });
}

aclError acltdtAppendBufChain(acltdtBuf headBuf, acltdtBuf buf) {
  return Api("acltdtAppendBufChain", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(headBuf, "headBuf"));
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    return tdt::AppendToChain(headBuf, buf);
  });
}

aclError acltdtGetBufChainNum(acltdtBuf headBuf, uint32_t* num) {
  return Api("acltdtGetBufChainNum", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(headBuf, "headBuf"));
    REPRISE_RETURN_IF_ERROR(NotNull(num, "num"));
    REPRISE_ASSIGN_OR_RETURN(*num, tdt::ChainLength(headBuf));
    return {};
  });
}

aclError acltdtGetBufFromChain(acltdtBuf headBuf, uint32_t index, acltdtBuf* buf) {
  return Api("acltdtGetBufFromChain", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(headBuf, "headBuf"));
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    REPRISE_ASSIGN_OR_RETURN(*buf, tdt::ChainMember(headBuf, index));
    return {};
  });
}
