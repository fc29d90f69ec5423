// SPDX-License-Identifier: Apache-2.0
//
// Device variables and kernels by the address of their host shadow. Compilers of device code register those; binaries
// for this device are compiled for the host and have none, so that every symbol is unknown.
#include <fmt/format.h>

#include "acl/acl.h"
#include "capture/session.h"
#include "check.h"
#include "runtime/report.h"

using namespace reprise::facade;  // NOLINT: this file defines only C functions
using reprise::Error;
using reprise::Status;
namespace capture = reprise::capture;
namespace runtime = reprise::runtime;
using runtime::Api;
using runtime::NotNull;
using runtime::NotNullInner;

namespace {

Status Unknown(const void* symbol, const char* what, const char* hint) {
  return Error(kSymbolNotFound, fmt::format("no {} is registered for symbol {}: host-compiled binaries register none",
                                            what, fmt::ptr(symbol)))
      .Culprit("parameter symbol")
      .Hint(hint);
}

Status NoVariable(const void* symbol) {
  return Unknown(symbol, "device variable", "keep the data in memory of aclrtMalloc, and pass its address to kernels");
}

Status CheckCopy(const void* symbol, const void* memory, const char* name, aclrtMemcpyKind kind) {
  REPRISE_RETURN_IF_ERROR(NotNullInner(symbol, "symbol"));
  REPRISE_RETURN_IF_ERROR(NotNullInner(memory, name));
  return InRange(kind, 0, ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE, "kind", kInvalidArgument);
}

Status CheckRoom(size_t count, size_t most) {
  if (count <= most) return {};
  return Error(kInvalidValue, fmt::format("count is {}, dstMax is only {}", count, most))
      .Culprit("parameters count and dstMax")
      .Hint("pass the size of the destination, and copy no more than that");
}

Status CopyNow(const char* api, const void* symbol) {
  REPRISE_RETURN_IF_ERROR(capture::CheckUnsafe(api));
  return NoVariable(symbol);
}

Status CopyLater(aclrtStream stream, aclrtMemcpyKind kind, const void* symbol) {
  if (kind == ACL_MEMCPY_HOST_TO_HOST) {
    return Error(kFeatureNotSupported, "kind is ACL_MEMCPY_HOST_TO_HOST, which has no asynchronous form")
        .Culprit("parameter kind")
        .Hint("pass the direction between host and device");
  }
  REPRISE_ASSIGN_OR_RETURN([[maybe_unused]] const runtime::Stream* found, runtime::FindStream(stream));
  return NoVariable(symbol);
}

}  // namespace

aclError aclrtGetFuncBySymbol(const void* symbol, aclrtFuncHandle* funcHandle) {
  return Api("aclrtGetFuncBySymbol", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(symbol, "symbol"));
    REPRISE_RETURN_IF_ERROR(NotNull(funcHandle, "funcHandle"));
    return Unknown(symbol, "kernel", "load the binary, and find the kernel with aclrtBinaryGetFunction");
  });
}

aclError aclrtGetSymbolAddress(const void* symbol, void** devPtr) {
  return Api("aclrtGetSymbolAddress", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(symbol, "symbol"));
    REPRISE_RETURN_IF_ERROR(NotNull(devPtr, "devPtr"));
    return NoVariable(symbol);
  });
}

aclError aclrtGetSymbolSize(const void* symbol, size_t* size) {
  return Api("aclrtGetSymbolSize", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(NotNull(symbol, "symbol"));
    REPRISE_RETURN_IF_ERROR(NotNull(size, "size"));
    return NoVariable(symbol);
  });
}

aclError aclrtMemcpyToSymbol(const void* symbol, const void* src, size_t count, [[maybe_unused]] size_t offset,
                             aclrtMemcpyKind kind) {
  return Api("aclrtMemcpyToSymbol", [&]() -> Status {
    if (count == 0) return {};
    REPRISE_RETURN_IF_ERROR(CheckCopy(symbol, src, "src", kind));
    return CopyNow("aclrtMemcpyToSymbol", symbol);
  });
}

aclError aclrtMemcpyToSymbolAsync(const void* symbol, const void* src, size_t count, [[maybe_unused]] size_t offset,
                                  aclrtMemcpyKind kind, aclrtStream stream) {
  return Api("aclrtMemcpyToSymbolAsync", [&]() -> Status {
    if (count == 0) return {};
    REPRISE_RETURN_IF_ERROR(CheckCopy(symbol, src, "src", kind));
    return CopyLater(stream, kind, symbol);
  });
}

aclError aclrtMemcpyFromSymbol(void* dst, size_t dstMax, const void* symbol, size_t count,
                               [[maybe_unused]] size_t offset, aclrtMemcpyKind kind) {
  return Api("aclrtMemcpyFromSymbol", [&]() -> Status {
    if (count == 0) return {};
    REPRISE_RETURN_IF_ERROR(CheckCopy(symbol, dst, "dst", kind));
    REPRISE_RETURN_IF_ERROR(CheckRoom(count, dstMax));
    return CopyNow("aclrtMemcpyFromSymbol", symbol);
  });
}

aclError aclrtMemcpyFromSymbolAsync(void* dst, size_t dstMax, const void* symbol, size_t count,
                                    [[maybe_unused]] size_t offset, aclrtMemcpyKind kind, aclrtStream stream) {
  return Api("aclrtMemcpyFromSymbolAsync", [&]() -> Status {
    if (count == 0) return {};
    REPRISE_RETURN_IF_ERROR(CheckCopy(symbol, dst, "dst", kind));
    REPRISE_RETURN_IF_ERROR(CheckRoom(count, dstMax));
    return CopyLater(stream, kind, symbol);
  });
}
