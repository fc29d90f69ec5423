// A program without kernels: a copy there and back on a stream.
#include <acl/acl.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

int main() {
  if (aclInit(nullptr) != ACL_SUCCESS || aclrtSetDevice(0) != ACL_SUCCESS) return 1;
  aclrtStream stream = nullptr;
  if (aclrtCreateStream(&stream) != ACL_SUCCESS) return 2;
  const char text[] = "there and back";
  char back[sizeof text] = {};
  void* device = nullptr;
  if (aclrtMalloc(&device, sizeof text, ACL_MEM_MALLOC_HUGE_FIRST) != ACL_SUCCESS) return 3;
  if (aclrtMemcpy(device, sizeof text, text, sizeof text, ACL_MEMCPY_HOST_TO_DEVICE) != ACL_SUCCESS) return 4;
  if (aclrtMemcpy(back, sizeof back, device, sizeof text, ACL_MEMCPY_DEVICE_TO_HOST) != ACL_SUCCESS) return 5;
  if (aclrtSynchronizeStream(stream) != ACL_SUCCESS || aclrtDestroyStream(stream) != ACL_SUCCESS) return 6;
  if (aclrtFree(device) != ACL_SUCCESS || aclrtResetDevice(0) != ACL_SUCCESS || aclFinalize() != ACL_SUCCESS) return 7;
  std::puts(back);
  return std::strcmp(text, back) == 0 ? 0 : 8;
}
