// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: argument lists of kernels, placeholders, and launch attributes. The kernel copies what it is given.
#include <acl/acl.h>
#include <reprise/kernel.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "input.h"
#include "runtime/kernel.h"

namespace {

// Reads every byte of its arguments, so that the sanitizer sees those that are not there.
int32_t ReadAll(const RepriseKernelContext*, const void* args, size_t bytes) {
  volatile unsigned char sum = 0;
  for (size_t i = 0; i < bytes; ++i) sum = static_cast<unsigned char>(sum + static_cast<const unsigned char*>(args)[i]);
  return 0;
}
constexpr RepriseKernelDesc kKernel = {"read_all", 7, &ReadAll, REPRISE_KERNEL_VECTOR, 0, 0, nullptr, 0};
constexpr RepriseKernelTable kTable = {REPRISE_KERNEL_ABI_VERSION, 1, &kKernel};

aclrtBinHandle binary = nullptr;
aclrtFuncHandle kernel = nullptr;
aclrtStream stream = nullptr;

}  // namespace

using namespace reprise::fuzz;  // NOLINT: the two functions that libFuzzer looks for
// Arguments in the order in which they are written, whatever the compiler: inputs mean the same everywhere.
#define CALL(function, ...) (Ordered{#function, function, __VA_ARGS__}.result)
#define MUST(...) Must(#__VA_ARGS__, (__VA_ARGS__))

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  MUST(aclInit(nullptr));
  MUST(aclrtSetDevice(0));
  MUST(repriseRegisterKernels("fuzz", &kTable));
  MUST(aclrtBinaryLoadFromFile("fuzz", nullptr, &binary));
  MUST(aclrtBinaryGetFunction(binary, "read_all", &kernel));
  MUST(aclrtCreateStream(&stream));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  Input input(data, bytes);
  // A binary of its own: argument lists live as long as their binary.
  aclrtBinHandle own = nullptr;
  aclrtFuncHandle function = nullptr;
  MUST(aclrtBinaryLoadFromData("fuzz", 5, nullptr, &own));
  MUST(aclrtBinaryGetFunction(own, "read_all", &function));
  std::vector<aclrtArgsHandle> lists;
  std::vector<aclrtParamHandle> params = {nullptr};
  std::vector<unsigned char> value(70u << 10, 1);
  const auto list = [&]() -> aclrtArgsHandle {
    const uint8_t byte = input.Byte();
    if (byte >= 250 || lists.empty()) return byte % 2 == 0 ? nullptr : static_cast<void*>(own);
    return lists[byte % lists.size()];
  };
  const auto param = [&]() -> aclrtParamHandle {
    const uint8_t byte = input.Byte();
    return byte < 250 ? params[byte % params.size()] : reinterpret_cast<void*>(input.Number<uint64_t>());
  };
  // Bytes that the value has, or so many that the call must refuse them before it looks.
  const auto size = [&]() -> size_t {
    const uint8_t byte = input.Byte();
    return byte < 200 ? byte : byte < 240 ? (byte - 200u) * 1700u : SIZE_MAX - byte;
  };
  for (int calls = 0; calls < 100 && !input.empty(); ++calls) {
    void* made = nullptr;
    switch (input.Byte() % 10) {
      case 0:
        if (lists.size() < 8 && CALL(aclrtKernelArgsInit, function, &made) == 0) lists.push_back(made);
        break;
      case 1:
        if (CALL(aclrtKernelArgsAppend, list(), value.data(), size(), &made) == 0) params.push_back(made);
        break;
      case 2:
        if (CALL(aclrtKernelArgsAppendPlaceHolder, list(), &made) == 0) params.push_back(made);
        break;
      case 3: {
        const size_t wanted = size();
        if (CALL(aclrtKernelArgsGetPlaceHolderBuffer, list(), param(), wanted, &made) == 0)
          std::memset(made, 2, wanted);
        break;
      }
      case 4: CALL(aclrtKernelArgsParaUpdate, list(), param(), value.data(), size()); break;
      case 5: CALL(aclrtKernelArgsFinalize, list()); break;
      case 6: CALL(aclrtLaunchKernelWithConfig, function, input.Byte() % 4, stream, nullptr, list(), nullptr); break;
      default: {
        std::array<aclrtPlaceHolderInfo, 3> places{};
        for (auto& place : places) place = {input.Usual(200), input.Usual(200)};
        std::array<aclrtLaunchKernelAttr, 2> attributes{};
        for (auto& attribute : attributes) {
          attribute.id = static_cast<aclrtLaunchKernelAttrId>(input.Usual(16));
          attribute.value.rsv[0] = input.Number<uint32_t>();
        }
        aclrtLaunchKernelCfg config{attributes.data(), input.Byte() % 3u};
        const size_t wanted = size();
        std::vector<unsigned char> exact(wanted <= value.size() ? wanted : 1, 3);  // whose end the sanitizer guards
        CALL(aclrtLaunchKernelWithHostArgs, function, input.Byte() % 4, stream, &config, exact.data(), wanted,
             places.data(), input.Byte() % 4u);
        break;
      }
    }
  }
  (void)CALL(aclrtSynchronizeStreamWithTimeout, stream, 60'000);
  MUST(aclrtBinaryUnLoad(own));
  return 0;
}
