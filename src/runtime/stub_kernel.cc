// SPDX-License-Identifier: Apache-2.0
#include "runtime/stub_kernel.h"

#include <fmt/format.h>

#include <map>

#include "base/mutex.h"

namespace reprise::runtime {
namespace {

// Handles, not pointers: a binary that is unloaded takes its functions along.
struct StubTable {
  Mutex mutex;
  std::map<const void*, void*> functions REPRISE_GUARDED_BY(mutex);
};

StubTable& Stubs() {
  static auto* const table = new StubTable;
  return *table;
}

}  // namespace

Status RegisterStub(const void* stub, const KernelFunction& function) {
  StubTable& stubs = Stubs();
  MutexLock lock(stubs.mutex);
  void*& handle = stubs.functions[stub];
  const KernelFunction* known = handle != nullptr ? KernelFunctions().Find(handle) : nullptr;
  if (known != nullptr && known != &function) {
    return Error(kKernelDuplicate, fmt::format("{} stands for kernel {} already", fmt::ptr(stub), known->name))
        .Culprit("parameter stubFunc")
        .Hint("choose another address for each kernel");
  }
  handle = function.handle;
  return {};
}

StatusOr<KernelFunction*> FindStub(const void* stub) {
  StubTable& stubs = Stubs();
  MutexLock lock(stubs.mutex);
  const auto it = stubs.functions.find(stub);
  KernelFunction* function = it != stubs.functions.end() ? KernelFunctions().Find(it->second) : nullptr;
  if (function != nullptr) return function;
  return Error(kKernelLookup, fmt::format("{} stands for no kernel", fmt::ptr(stub)))
      .Culprit("parameter stubFunc")
      .Hint(it != stubs.functions.end() ? "its binary was unloaded: register binary and function again"
                                        : "register the address with rtFunctionRegister first");
}

}  // namespace reprise::runtime
