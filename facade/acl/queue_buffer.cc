// SPDX-License-Identifier: Apache-2.0
//
// Shared queue buffers; the functions of acl_tdt_queue.h work on the same objects.
#include "tdt/buffer.h"

#include "acl/acl.h"
#include "runtime/context.h"
#include "runtime/report.h"

using reprise::Status;
namespace runtime = reprise::runtime;
namespace tdt = reprise::tdt;
using runtime::Api;
using runtime::NotNull;

aclError aclrtAllocBuf(aclrtMbuf* buf, size_t size) {
  return Api("aclrtAllocBuf", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const runtime::Context* context, runtime::CurrentContext());
    REPRISE_ASSIGN_OR_RETURN(*buf, tdt::AllocBuffer(size));
    return {};
  });
}

aclError aclrtFreeBuf(aclrtMbuf buf) {
  return Api("aclrtFreeBuf", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    return tdt::FreeBuffer(buf);
  });
}

aclError aclrtCopyBufRef(const aclrtMbuf buf, aclrtMbuf* newBuf) {
  return Api("aclrtCopyBufRef", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    REPRISE_RETURN_IF_ERROR(NotNull(newBuf, "newBuf"));
    REPRISE_ASSIGN_OR_RETURN(*newBuf, tdt::CopyBuffer(buf));
    return {};
  });
}

aclError aclrtGetBufData(const aclrtMbuf buf, void** dataPtr, size_t* size) {
  return Api("aclrtGetBufData", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    REPRISE_RETURN_IF_ERROR(NotNull(dataPtr, "dataPtr"));
    REPRISE_RETURN_IF_ERROR(NotNull(size, "size"));
    REPRISE_ASSIGN_OR_RETURN(const tdt::BufferExtent extent, tdt::BufferData(buf));
    *dataPtr = extent.data;
    *size = extent.bytes;
    return {};
  });
}

aclError aclrtSetBufDataLen(aclrtMbuf buf, size_t len) {
  return Api("aclrtSetBufDataLen", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    return tdt::SetBufferLength(buf, len);
  });
}

aclError aclrtGetBufDataLen(aclrtMbuf buf, size_t* len) {
  return Api("aclrtGetBufDataLen", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    REPRISE_RETURN_IF_ERROR(NotNull(len, "len"));
    REPRISE_ASSIGN_OR_RETURN(*len, tdt::BufferLength(buf));
    return {};
  });
}

aclError aclrtSetBufUserData(aclrtMbuf buf, const void* dataPtr, size_t size, size_t offset) {
  return Api("aclrtSetBufUserData", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    REPRISE_RETURN_IF_ERROR(NotNull(dataPtr, "dataPtr"));
    return tdt::WriteUserArea(buf, dataPtr, size, offset);
  });
}

aclError aclrtGetBufUserData(const aclrtMbuf buf, void* dataPtr, size_t size, size_t offset) {
  return Api("aclrtGetBufUserData", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    REPRISE_RETURN_IF_ERROR(NotNull(dataPtr, "dataPtr"));
    return tdt::ReadUserArea(buf, dataPtr, size, offset);
  });
}

aclError aclrtAppendBufChain(aclrtMbuf headBuf, aclrtMbuf buf) {
  return Api("aclrtAppendBufChain", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(headBuf, "headBuf"));
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    return tdt::AppendToChain(headBuf, buf);
  });
}

aclError aclrtGetBufChainNum(aclrtMbuf headBuf, uint32_t* num) {
  return Api("aclrtGetBufChainNum", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(headBuf, "headBuf"));
    REPRISE_RETURN_IF_ERROR(NotNull(num, "num"));
    REPRISE_ASSIGN_OR_RETURN(*num, tdt::ChainLength(headBuf));
    return {};
  });
}

aclError aclrtGetBufFromChain(aclrtMbuf headBuf, uint32_t index, aclrtMbuf* buf) {
  return Api("aclrtGetBufFromChain", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(headBuf, "headBuf"));
    REPRISE_RETURN_IF_ERROR(NotNull(buf, "buf"));
    REPRISE_ASSIGN_OR_RETURN(*buf, tdt::ChainMember(headBuf, index));
    return {};
  });
}
