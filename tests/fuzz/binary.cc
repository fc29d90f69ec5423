// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: bytes as a kernel binary. A shared object runs code when it is loaded, so what passes the checks is not
// loaded here: the target asks the checks, and loads only what they refuse or what the loader would not touch.
#include <acl/acl.h>

#include <string>
#include <string_view>

#include "input.h"
#include "runtime/kernel.h"
#include "runtime/kernel_image.h"

using namespace reprise::fuzz;  // NOLINT: the two functions that libFuzzer looks for
using reprise::runtime::ImageKind;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  Must("aclInit", aclInit(nullptr));
  Must("aclrtSetDevice", aclrtSetDevice(0));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  const std::string image(reinterpret_cast<const char*>(data), bytes);  // a copy, whose end the sanitizer guards
  auto kind = reprise::runtime::InspectImage(image, "<input>");
  if (kind.ok() && kind.value() == ImageKind::kLoadable) return 0;
  const size_t before = reprise::runtime::KernelBinaries().live();
  aclrtBinHandle binary = nullptr;
  const int got =
      Checked("aclrtBinaryLoadFromData", aclrtBinaryLoadFromData(image.data(), image.size(), nullptr, &binary));
  if (got == 0) {
    if (!kind.ok()) Found("a file that the checks refuse was loaded");
    aclrtFuncHandle function = nullptr;
    if (Checked("aclrtBinaryGetFunction", aclrtBinaryGetFunction(binary, "axpb", &function)) == 0) {
      Found("a file for another machine has a kernel");
    }
    Must("aclrtBinaryUnLoad", aclrtBinaryUnLoad(binary));
  }
  if (reprise::runtime::KernelBinaries().live() != before) Found("a kernel binary is left behind");
  return 0;
}
