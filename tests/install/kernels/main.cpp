// Launches the kernels of the library by their functions, and those of the binary by name.
#include <cstdint>
#include <cstdio>
#include <string>

#include "acl/acl.h"
#include "tiling.h"

// What a kernel takes by value is declared before.
#include "aclrtlaunch_add_custom.h"
#include "aclrtlaunch_scale_custom.h"

#define CHECK(call)                                                              \
  if (const auto code = (call)) {                                                \
    const char* words = aclGetRecentErrMsg();                                    \
    std::printf("%s: %d %s\n", #call, int(code), words != nullptr ? words : ""); \
    return 1;                                                                    \
  }

int main(int, char** argv) {
  CHECK(aclInit(nullptr));
  CHECK(aclrtSetDevice(0));
  aclrtStream stream = nullptr;
  CHECK(aclrtCreateStream(&stream));
  constexpr uint32_t kCount = 1000;
  uint8_t* memory[3];
  float host[kCount];
  for (uint32_t i = 0; i < kCount; ++i) host[i] = float(i);
  for (uint8_t*& at : memory) {
    CHECK(aclrtMalloc(reinterpret_cast<void**>(&at), sizeof host, ACL_MEM_MALLOC_HUGE_FIRST));
    CHECK(aclrtMemcpy(at, sizeof host, host, sizeof host, ACL_MEMCPY_HOST_TO_DEVICE));
  }
  CHECK(ACLRT_LAUNCH_KERNEL(add_custom)(8, stream, memory[0], memory[1], memory[2], AddTiling{kCount, 1, 0}));
  CHECK(ACLRT_LAUNCH_KERNEL(scale_custom)(8, stream, memory[2], 2, kCount));  // 2 becomes a float: SCALE is 3 here
  CHECK(aclrtSynchronizeStream(stream));
  CHECK(aclrtMemcpy(host, sizeof host, memory[2], sizeof host, ACL_MEMCPY_DEVICE_TO_HOST));
  if (host[7] != 84 || host[999] != 999 * 12) return 2;
  if (ACLRT_LAUNCH_KERNEL(scale_custom)(0, stream, memory[2], 2, kCount) != 107000) return 3;

  aclrtBinHandle binary = nullptr;
  aclrtFuncHandle function = nullptr;
  CHECK(aclrtBinaryLoadFromFile((std::string(argv[1]) + "/fatbin/ascendc_kernels/ascendc_kernels.o").c_str(), nullptr,
                                &binary));
  CHECK(aclrtBinaryGetFunction(binary, "scale_custom", &function));
  struct {
    void* x;
    float by;
    uint32_t : 32;
    uint64_t n;
  } args{memory[2], 1, kCount};
  CHECK(aclrtLaunchKernelWithHostArgs(function, 1, stream, nullptr, &args, sizeof args, nullptr, 0));
  CHECK(aclrtSynchronizeStream(stream));
  CHECK(aclrtMemcpy(host, sizeof host, memory[2], sizeof host, ACL_MEMCPY_DEVICE_TO_HOST));
  if (host[7] != 84 * 5) return 4;
  std::puts("test pass");
  return 0;
}
