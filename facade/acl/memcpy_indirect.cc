// SPDX-License-Identifier: Apache-2.0
//
// Copies whose addresses are read from device memory when they run.
#include <fmt/format.h>

#include "acl/acl.h"
#include "check.h"
#include "runtime/indirect_copy.h"
#include "runtime/report.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::NotNull;
using runtime::NotNullInner;

namespace {

Status CheckKind(aclrtMemcpyKind kind, int code) {
  if (kind == ACL_MEMCPY_INNER_DEVICE_TO_DEVICE) return {};
  return Error(code, fmt::format("kind is {}, must be ACL_MEMCPY_INNER_DEVICE_TO_DEVICE ({})", static_cast<int>(kind),
                                 static_cast<int>(ACL_MEMCPY_INNER_DEVICE_TO_DEVICE)))
      .Culprit("parameter kind")
      .Hint("copy within one device, or use aclrtMemcpyAsync");
}

}  // namespace

aclError aclrtMemcpyAsyncWithOffset(void** dst, size_t destMax, size_t dstDataOffset, const void** src, size_t count,
                                    size_t srcDataOffset, aclrtMemcpyKind kind, aclrtStream stream) {
  return Api("aclrtMemcpyAsyncWithOffset", [&]() -> Status {
    if (count == 0) return {};
    REPRISE_RETURN_IF_ERROR(NotNullInner(dst, "dst"));
    REPRISE_RETURN_IF_ERROR(NotNullInner(src, "src"));
    REPRISE_RETURN_IF_ERROR(CheckKind(kind, kInvalidValue));
    if (count > destMax) {
      return Error(kInvalidValue, fmt::format("count is {}, destMax is only {}", count, destMax))
          .Culprit("parameters count and destMax")
          .Hint("pass the size of the destination, and copy no more than that");
    }
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(DeviceReachesCell(dst, sizeof(void*), "dst"));
    REPRISE_RETURN_IF_ERROR(DeviceReachesCell(src, sizeof(void*), "src"));
    return runtime::SubmitCopyByCells(*on, {dst, dstDataOffset}, {src, srcDataOffset}, count);
  });
}

aclError aclrtGetMemcpyDescSize(aclrtMemcpyKind kind, size_t* descSize) {
  return Api("aclrtGetMemcpyDescSize", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(descSize, "descSize"));
    REPRISE_RETURN_IF_ERROR(CheckKind(kind, kInvalidArgument));
    *descSize = runtime::kCopyDescriptorBytes;
    return {};
  });
}

aclError aclrtSetMemcpyDesc(void* desc, aclrtMemcpyKind kind, void* srcAddr, void* dstAddr, size_t count,
                            void* config) {
  return Api("aclrtSetMemcpyDesc", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(desc, "desc"));
    REPRISE_RETURN_IF_ERROR(NotNull(srcAddr, "srcAddr"));
    REPRISE_RETURN_IF_ERROR(NotNull(dstAddr, "dstAddr"));
    if (count == 0) {
      return Error(kInvalidArgument, "count is 0, must be at least 1 byte")
          .Culprit("parameter count")
          .Hint("pass the number of bytes to copy");
    }
    REPRISE_RETURN_IF_ERROR(CheckKind(kind, kInvalidArgument));
    REPRISE_RETURN_IF_ERROR(IsReserved(config, "config", kInvalidValue));
    REPRISE_RETURN_IF_ERROR(DeviceReaches(desc, runtime::kCopyDescriptorBytes, "desc"));
    REPRISE_RETURN_IF_ERROR(DeviceReaches(srcAddr, count, "srcAddr"));
    REPRISE_RETURN_IF_ERROR(DeviceReaches(dstAddr, count, "dstAddr"));
    runtime::WriteCopyDescriptor(desc, dstAddr, srcAddr, count);
    return {};
  });
}

aclError aclrtMemcpyAsyncWithDesc(void* desc, aclrtMemcpyKind kind, aclrtStream stream) {
  return Api("aclrtMemcpyAsyncWithDesc", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(desc, "desc"));
    REPRISE_RETURN_IF_ERROR(NotNull(stream, "stream"));
    REPRISE_RETURN_IF_ERROR(CheckKind(kind, kInvalidArgument));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    REPRISE_RETURN_IF_ERROR(DeviceReaches(desc, runtime::kCopyDescriptorBytes, "desc"));
    return runtime::SubmitCopyByDescriptor(*on, desc);
  });
}
