// SPDX-License-Identifier: Apache-2.0
//
// What the functions aclrtlaunch_<kernel> of an ascendc_library do; included by sources that ascendc.cmake writes.
#pragma once

#include <acl/acl.h>
#include <reprise/kernel.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <type_traits>

namespace reprise_launch {

// The tables of several sources as one; the argument lists of kernels stay where they are.
template <size_t Sources>
struct JoinedTable {
  RepriseKernelTable table = {REPRISE_KERNEL_ABI_VERSION, 0, nullptr};

  explicit JoinedTable(const RepriseKernelTable* const (&tables)[Sources]) {
    uint32_t count = 0;
    for (const RepriseKernelTable* part : tables) count += part->kernel_count;
    auto* kernels = new RepriseKernelDesc[count];
    uint32_t next = 0;
    for (const RepriseKernelTable* part : tables) {
      for (uint32_t i = 0; i < part->kernel_count; ++i) {
        kernels[next] = part->kernels[i];
        kernels[next].entry = next + 1;
        ++next;
      }
    }
    table.kernel_count = count;
    table.kernels = kernels;
  }
};

// A kernel of the library that is linked into the program. Found at its first launch, when there is a context.
class Kernel {
 public:
  Kernel(const char* name, const RepriseKernelTable* table) : name_(name), table_(table) {}

  template <class... Args>
  uint32_t Launch(uint32_t blocks, aclrtStream stream, Args... args) {
    static_assert((std::is_trivially_copyable_v<Args> && ...), "kernel parameters are copied as bytes");
    unsigned char block[(reprise::kernel_detail::SlotBytes(sizeof(Args)) + ... + 8)] = {};
    unsigned char* at = block;
    ((std::memcpy(at, &args, sizeof args), at += reprise::kernel_detail::SlotBytes(sizeof args)), ...);
    aclrtFuncHandle function = function_.load(std::memory_order_acquire);
    if (function == nullptr) {
      if (const uint32_t failed = Find(&function)) return failed;
    }
    return static_cast<uint32_t>(aclrtLaunchKernelWithHostArgs(function, blocks, stream, nullptr, block,
                                                               static_cast<size_t>(at - block), nullptr, 0));
  }

 private:
  uint32_t Find(aclrtFuncHandle* function) {
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    *function = function_.load(std::memory_order_relaxed);
    if (*function != nullptr) return 0;
    char key[64];
    std::snprintf(key, sizeof key, "ascendc_library %p", static_cast<const void*>(table_));
    const int32_t registered = repriseRegisterKernels(key, table_);
    if (registered != 0 && registered != 507028)
      return static_cast<uint32_t>(registered);  // 507028: another kernel did
    aclrtBinHandle binary = nullptr;
    if (const aclError failed = aclrtBinaryLoadFromFile(key, nullptr, &binary)) return static_cast<uint32_t>(failed);
    if (const aclError failed = aclrtBinaryGetFunction(binary, name_, function)) return static_cast<uint32_t>(failed);
    function_.store(*function, std::memory_order_release);
    return 0;
  }

  const char* const name_;
  const RepriseKernelTable* const table_;
  std::atomic<aclrtFuncHandle> function_{nullptr};
};

}  // namespace reprise_launch
