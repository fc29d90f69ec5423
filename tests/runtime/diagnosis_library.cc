// SPDX-License-Identifier: Apache-2.0
//
// A library of a program that diagnosis_test loads late, and whose calls are refused.
#include <acl/acl.h>

__attribute__((noinline)) static int RefusedInALibrary() {
  const int code = aclrtSynchronizeStream(reinterpret_cast<aclrtStream>(1));
  asm volatile("");  // no tail call: the frame has to be there
  return code;
}

extern "C" __attribute__((visibility("default"))) int CallFromLibrary() { return RefusedInALibrary(); }
