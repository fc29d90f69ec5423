// SPDX-License-Identifier: Apache-2.0
//
// Which C function does each C++ overload of acl_rt_api.h reach? The C functions are replaced by stand-ins
// that note their name; a template that called itself would not return.

#include "acl/acl_rt_api.h"

#include <cstdio>
#include <string>

namespace {

std::string g_reached;

aclError Reach(const char* function) {
  g_reached = function;
  return ACL_SUCCESS;
}

int g_failures = 0;

void Expect(const char* overload, aclError result, const char* function) {
  if (result == ACL_SUCCESS && g_reached == function) {
    return;
  }
  std::fprintf(stderr, "%s reached %s, should reach %s\n", overload, g_reached.c_str(), function);
  ++g_failures;
}

}  // namespace

#define STAND_IN(function, ...) \
  extern "C" aclError function(__VA_ARGS__) { return Reach(#function); }

STAND_IN(aclrtSynchronizeDeviceWithTimeout, int32_t)
STAND_IN(aclrtSynchronizeStreamWithTimeout, aclrtStream, int32_t)
STAND_IN(aclrtSynchronizeEventWithTimeout, aclrtEvent, int32_t)
STAND_IN(aclrtStreamWaitEventWithTimeout, aclrtStream, aclrtEvent, int32_t)
STAND_IN(aclrtCreateStreamWithConfig, aclrtStream*, uint32_t, uint32_t)
STAND_IN(aclrtSetOpExecuteTimeOutV2, uint64_t, uint64_t*)
STAND_IN(aclrtCreateEventExWithFlag, aclrtEvent*, uint32_t)
STAND_IN(aclrtMalloc, void**, size_t, aclrtMemMallocPolicy)
STAND_IN(aclrtMallocWithCfg, void**, size_t, aclrtMemMallocPolicy, aclrtMallocConfig*)
STAND_IN(aclrtMallocHost, void**, size_t)
STAND_IN(aclrtMallocHostWithCfg, void**, uint64_t, aclrtMallocConfig*)
STAND_IN(aclrtMemAllocManaged, void**, uint64_t, uint32_t)
STAND_IN(aclrtPointerGetAttributes, const void*, aclrtPtrAttributes*)
STAND_IN(aclrtHostRegister, void*, uint64_t, aclrtHostRegisterType, void**)
STAND_IN(aclrtHostRegisterV2, void*, uint64_t, uint32_t)
STAND_IN(aclrtHostUnregister, void*)
STAND_IN(aclrtHostGetDevicePointer, void*, void**, uint32_t)
STAND_IN(aclrtMemcpy, void*, size_t, const void*, size_t, aclrtMemcpyKind)
STAND_IN(aclrtMemcpyAsync, void*, size_t, const void*, size_t, aclrtMemcpyKind, aclrtStream)
STAND_IN(aclrtMemcpy2d, void*, size_t, const void*, size_t, size_t, size_t, aclrtMemcpyKind)
STAND_IN(aclrtMemcpy2dAsync, void*, size_t, const void*, size_t, size_t, size_t, aclrtMemcpyKind, aclrtStream)
STAND_IN(aclrtMemcpyBatchV2, void**, size_t*, void**, size_t*, size_t, aclrtMemcpyBatchAttr*, size_t*, size_t)
STAND_IN(aclrtMemcpyBatchAsync, void**, size_t*, void**, size_t*, size_t, aclrtMemcpyBatchAttr*, size_t*, size_t,
         size_t*, aclrtStream)
STAND_IN(aclrtMemcpyBatchAsyncV2, void**, size_t*, void**, size_t*, size_t, aclrtMemcpyBatchAttr*, size_t*, size_t,
         aclrtStream)
STAND_IN(aclrtMemManagedPrefetchAsync, const void*, size_t, aclrtMemManagedLocation, uint32_t, aclrtStream)
STAND_IN(aclrtMemManagedPrefetchBatchAsync, const void**, size_t*, size_t, aclrtMemManagedLocation*, size_t*, size_t,
         uint64_t, aclrtStream)
STAND_IN(aclrtGetSymbolAddress, const void*, void**)
STAND_IN(aclrtGetSymbolSize, const void*, size_t*)
STAND_IN(aclrtMemcpyToSymbol, const void*, const void*, size_t, size_t, aclrtMemcpyKind)
STAND_IN(aclrtMemcpyToSymbolAsync, const void*, const void*, size_t, size_t, aclrtMemcpyKind, aclrtStream)
STAND_IN(aclrtMemcpyFromSymbol, void*, size_t, const void*, size_t, size_t, aclrtMemcpyKind)
STAND_IN(aclrtMemcpyFromSymbolAsync, void*, size_t, const void*, size_t, size_t, aclrtMemcpyKind, aclrtStream)

#define EXPECT(call, function) Expect(#call, call, #function)

int main() {
  constexpr aclrtMemcpyKind kind = ACL_MEMCPY_HOST_TO_DEVICE;
  constexpr aclrtMemMallocPolicy policy = ACL_MEM_MALLOC_NORMAL_ONLY;
  aclrtStream stream = nullptr;
  aclrtEvent event = nullptr;
  uint64_t actual = 0;
  size_t size = 0;
  float value = 0;
  float* data = &value;
  const float* constData = &value;
  void* raw = nullptr;
  aclrtPtrAttributes attributes;
  aclrtMemManagedLocation location = {};
  aclrtMallocConfig config = {};
  aclrtMemcpyBatchAttr attr = {};

  EXPECT(aclrtSynchronizeDevice(1), aclrtSynchronizeDeviceWithTimeout);
  EXPECT(aclrtSynchronizeStream(stream, 1), aclrtSynchronizeStreamWithTimeout);
  EXPECT(aclrtSynchronizeEvent(event, 1), aclrtSynchronizeEventWithTimeout);
  EXPECT(aclrtStreamWaitEvent(stream, event, 1), aclrtStreamWaitEventWithTimeout);
  EXPECT(aclrtCreateStream(&stream, 0, ACL_STREAM_FAST_LAUNCH), aclrtCreateStreamWithConfig);
  EXPECT(aclrtSetOpExecuteTimeOut(1, &actual), aclrtSetOpExecuteTimeOutV2);
  EXPECT(aclrtCreateEvent(&event, ACL_EVENT_SYNC), aclrtCreateEventExWithFlag);

  EXPECT(aclrtMalloc(&raw, 4, policy), aclrtMalloc);  // the C function keeps its calls
  EXPECT(aclrtMalloc(&raw, 4), aclrtMallocWithCfg);
  EXPECT(aclrtMalloc(&data, 4, policy), aclrtMallocWithCfg);
  EXPECT(aclrtMalloc(&data, 4, policy, &config), aclrtMallocWithCfg);
  EXPECT(aclrtMallocHost(&raw, 4), aclrtMallocHost);
  EXPECT(aclrtMallocHost(&data, 4), aclrtMallocHostWithCfg);
  EXPECT(aclrtMemAllocManaged(&data, 4), aclrtMemAllocManaged);
  EXPECT(aclrtPointerGetAttributes(data, &attributes), aclrtPointerGetAttributes);
  EXPECT(aclrtHostRegister(data, 4, ACL_HOST_REGISTER_MAPPED, &raw), aclrtHostRegister);
  EXPECT(aclrtHostRegister(data, 4, ACL_HOST_REG_PINNED), aclrtHostRegisterV2);
  EXPECT(aclrtHostRegister(raw, 4, ACL_HOST_REG_PINNED), aclrtHostRegisterV2);
  EXPECT(aclrtHostUnregister(data), aclrtHostUnregister);
  EXPECT(aclrtHostGetDevicePointer(data, &data, 0), aclrtHostGetDevicePointer);

  EXPECT(aclrtMemcpy(data, 4, constData, 4, kind), aclrtMemcpy);
  EXPECT(aclrtMemcpy(raw, 4, constData, 4, kind), aclrtMemcpy);
  EXPECT(aclrtMemcpyAsync(data, 4, constData, 4, kind, stream), aclrtMemcpyAsync);
  EXPECT(aclrtMemcpy2d(data, 4, constData, 4, 4, 1, kind), aclrtMemcpy2d);
  EXPECT(aclrtMemcpy2dAsync(data, 4, constData, 4, 4, 1, kind, stream), aclrtMemcpy2dAsync);

  EXPECT(aclrtMemcpyBatch(&data, &size, &data, &size, 1, &attr, &size, 1), aclrtMemcpyBatchV2);
  EXPECT(aclrtMemcpyBatch(&data, &size, &data, &size, 1, &attr, &size, 1, &size), aclrtMemcpyBatchV2);
  EXPECT(aclrtMemcpyBatch(&data, &size, &data, &size, 1, attr), aclrtMemcpyBatchV2);
  EXPECT(aclrtMemcpyBatch(&data, &size, &data, &size, 1, attr, &size), aclrtMemcpyBatchV2);
  EXPECT(aclrtMemcpyBatchAsync(&data, &size, &data, &size, 1, &attr, &size, 1, stream), aclrtMemcpyBatchAsyncV2);
  EXPECT(aclrtMemcpyBatchAsync(&data, &size, &data, &size, 1, &attr, &size, 1, &size, stream), aclrtMemcpyBatchAsync);
  EXPECT(aclrtMemcpyBatchAsync(&data, &size, &data, &size, 1, attr, stream), aclrtMemcpyBatchAsyncV2);
  EXPECT(aclrtMemcpyBatchAsync(&data, &size, &data, &size, 1, attr, &size, stream), aclrtMemcpyBatchAsync);

  EXPECT(aclrtMemManagedPrefetchAsync(data, 4, location, 0, stream), aclrtMemManagedPrefetchAsync);
  EXPECT(aclrtMemManagedPrefetchBatchAsync(&constData, &size, 1, &location, &size, 1, 0, stream),
         aclrtMemManagedPrefetchBatchAsync);
  EXPECT(aclrtGetSymbolAddress(&value, &data), aclrtGetSymbolAddress);
  EXPECT(aclrtGetSymbolSize(&value, &size), aclrtGetSymbolSize);
  EXPECT(aclrtMemcpyToSymbol(&value, constData, 4, 0, kind), aclrtMemcpyToSymbol);
  EXPECT(aclrtMemcpyToSymbolAsync(&value, constData, 4, 0, kind, stream), aclrtMemcpyToSymbolAsync);
  EXPECT(aclrtMemcpyFromSymbol(data, 4, &value, 4, 0, kind), aclrtMemcpyFromSymbol);
  EXPECT(aclrtMemcpyFromSymbolAsync(data, 4, &value, 4, 0, kind, stream), aclrtMemcpyFromSymbolAsync);

  return g_failures == 0 ? 0 : 1;
}
