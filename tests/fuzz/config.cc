// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: bytes as the configuration file of aclInit.
#include <acl/acl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "input.h"

using namespace reprise::fuzz;  // NOLINT: the two functions that libFuzzer looks for

extern "C" int LLVMFuzzerInitialize(int*, char***) { return 0; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const int file = memfd_create("fuzz-config", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, bytes, 0) != static_cast<ssize_t>(bytes)) {
    std::fprintf(stderr, "no temporary file\n");
    std::_Exit(2);
  }
  if (Checked("aclInit", aclInit(path.c_str())) == 0) Must("aclFinalize", aclFinalize());
  // Whatever it was, the process can be initialised in the ordinary way.
  Must("aclInit", aclInit(nullptr));
  Must("aclFinalize", aclFinalize());
  return 0;
}
