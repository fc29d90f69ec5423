// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: keys and tokens of objects that processes share. The first byte says who reads the rest.
#include <acl/acl.h>

#include <cstring>
#include <string>

#include "device/share.h"
#include "input.h"

using namespace reprise::fuzz;  // NOLINT: the two functions that libFuzzer looks for
using reprise::device::ShareKey;

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  Must("aclInit", aclInit(nullptr));
  Must("aclrtSetDevice", aclrtSetDevice(0));
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  Input input(data, bytes);
  const uint8_t reader = input.Byte() % 8;
  std::string text = input.Text(100);
  // What is printed is read back, and packs into 64 bits without loss where the fields fit.
  if (const auto key = ShareKey::Parse(text)) {
    const auto again = ShareKey::Parse(key->Print());
    if (!again || again->pid != key->pid || again->index != key->index || again->nonce != key->nonce ||
        again->space != key->space) {
      Found("key \"" + text + "\" is printed as " + key->Print());
    }
  }
  uint64_t token = 0;
  std::memcpy(&token, text.data(), std::min(text.size(), sizeof token));
  text.resize(65);  // keys are arrays of 65 characters, not always with a zero at the end
  void* made = nullptr;
  int32_t pid = 1;
  switch (reader) {
    case 0:
      if (Checked("aclrtIpcMemImportByKey", aclrtIpcMemImportByKey(&made, text.data(), 0)) == 0)
        Found("memory from nowhere");
      break;
    case 1:
      if (Checked("aclrtNotifyImportByKey", aclrtNotifyImportByKey(&made, text.data(), 0)) == 0)
        Found("notify from nowhere");
      break;
    case 2: {
      aclrtIpcEventHandle handle = {};
      std::memcpy(handle.reserved, text.data(), std::min(text.size(), sizeof handle.reserved));
      if (Checked("aclrtIpcOpenEventHandle", aclrtIpcOpenEventHandle(handle, &made)) == 0) Found("event from nowhere");
      break;
    }
    case 3:
      if (Checked("aclrtMemImportFromShareableHandle", aclrtMemImportFromShareableHandle(token, 0, &made)) == 0) {
        Found("physical memory from nowhere");
      }
      break;
    case 4: Checked("aclrtIpcMemClose", aclrtIpcMemClose(text.data())); break;
    case 5: Checked("aclrtIpcMemSetImportPid", aclrtIpcMemSetImportPid(text.data(), &pid, 1)); break;
    case 6: Checked("aclrtMemSetPidToShareableHandle", aclrtMemSetPidToShareableHandle(token, &pid, 1)); break;
    default: {
      const ShareKey key = ShareKey::Unpack(token);
      if (key.pid >= 0 && key.Pack() != token) Found("a token changes when it is unpacked and packed");
      break;
    }
  }
  return 0;
}
