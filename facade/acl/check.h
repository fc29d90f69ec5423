// SPDX-License-Identifier: Apache-2.0
//
// Argument checks that many C functions share. Each returns a refusal that names the parameter, what it is and what it
// must be: "priority is 9, must be 0 to 7".
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "base/env.h"
#include "base/status.h"
#include "base/strict.h"
#include "device/memory.h"
#include "runtime/report.h"
#include "runtime/stream.h"

namespace reprise::facade {

using namespace errors;  // NOLINT: files with C functions use this namespace, and name errors

[[gnu::cold, gnu::noinline]] inline Status OutOfRange(int64_t number, int64_t low, int64_t high, const char* parameter,
                                                      int code) {
  return Error(code, fmt::format("{} is {}, must be {} to {}", parameter, number, low, high))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint(fmt::format("pass {} to {} for {}", low, high, parameter));
}

/// `code` unless low <= value <= high. Enumerators count as their numbers.
template <class T>
Status InRange(T value, int64_t low, int64_t high, const char* parameter, int code = kInvalidValue) {
  int64_t number;
  if constexpr (std::is_unsigned_v<T> && sizeof(T) == 8) {
    number = value > static_cast<uint64_t>(INT64_MAX) ? INT64_MAX : static_cast<int64_t>(value);
  } else {
    number = static_cast<int64_t>(value);
  }
  if (number >= low && number <= high) [[likely]]
    return {};
  return OutOfRange(number, low, high, parameter, code);
}

/// `code` for a size or a number that is 0.
inline Status NotZero(uint64_t value, const char* parameter, int code = kInvalidArgument) {
  if (value != 0) [[likely]]
    return {};
  return Error(code, fmt::format("{} is 0, must be at least 1", parameter))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint(fmt::format("pass 1 or more for {}", parameter));
}

/// `code` unless the reserved parameter is 0 or null.
template <class T>
Status IsReserved(T value, const char* parameter, int code) {
  if (!value) [[likely]]
    return {};
  std::string text;
  if constexpr (std::is_pointer_v<T>) {
    text = fmt::format("{}", fmt::ptr(value));
  } else {
    text = fmt::format("{}", value);
  }
  return Error(code, fmt::format("{} is {}, must be {}: it is reserved", parameter, text,
                                 std::is_pointer_v<T> ? "null" : "0"))
      .Culprit(fmt::format("parameter {}", parameter))
      .Hint(fmt::format("pass {} for {}", std::is_pointer_v<T> ? "NULL" : "0", parameter));
}

/// Host timeouts: -1 waits for ever, other values are milliseconds above 0.
inline Status IsTimeout(int32_t timeout) {
  if (timeout == -1 || timeout > 0) [[likely]]
    return {};
  return Error(kInvalidValue,
               fmt::format("timeout is {}, must be -1 (for ever) or a number of milliseconds above 0", timeout))
      .Culprit("parameter timeout")
      .Hint("pass -1 to wait for ever");
}

/// 107000 unless [pointer, pointer + bytes) lies in one range that the device reaches: device memory, pinned or
/// registered host memory. Switched off by REPRISE_CHECK_POINTERS=0.
inline Status DeviceReaches(const void* pointer, uint64_t bytes, const char* parameter) {
  if (!device::ChecksPointers()) return {};
  const device::MemoryRegistry& memory = device::MemoryRegistry::Get();
  REPRISE_ASSIGN_OR_RETURN(const device::MemoryRange range, memory.CheckRange(pointer, bytes, parameter));
  if (range.kind != device::MemoryKind::kPageable) [[likely]] {
    if (!IsStrict() || !range.is_host() || memory.IsRegisteredForDevice(pointer)) [[likely]]
      return {};
    return StrictRefusal(kInvalidValue, fmt::format("{} {} is host memory, which a device does not reach", parameter,
                                                    fmt::ptr(pointer)))
        .Culprit(fmt::format("{} {}", parameter, memory.Explain(pointer)))
        .Hint(fmt::format("allocate {} with aclrtMalloc, or give the memory a device address with aclrtHostRegister",
                          parameter));
  }
  return Error(kInvalidValue, fmt::format("{} {} is not device memory", parameter, fmt::ptr(pointer)))
      .Culprit(fmt::format("{} {}", fmt::ptr(pointer), memory.Explain(pointer)))
      .Hint(fmt::format("allocate {} with aclrtMalloc", parameter));
}

/// As DeviceReaches, for a cell that the device reads in one piece, which must lie at a multiple of its size.
inline Status DeviceReachesCell(const void* pointer, uint64_t bytes, const char* parameter) {
  if (reinterpret_cast<uintptr_t>(pointer) % bytes != 0) {
    return Error(kInvalidValue, fmt::format("{} {} is not aligned to {} bytes", parameter, fmt::ptr(pointer), bytes))
        .Culprit(fmt::format("parameter {}", parameter))
        .Hint(fmt::format("pass an address that is a multiple of {}", bytes));
  }
  return DeviceReaches(pointer, bytes, parameter);
}

/// For strict mode: 107000 when the host would read device memory at `pointer`.
[[gnu::cold]] inline Status HostReads(const void* pointer, const char* parameter) {
  const device::MemoryRegistry& memory = device::MemoryRegistry::Get();
  const auto range = memory.Find(pointer);
  if (!range || range->is_host() || range->managed) return {};
  return StrictRefusal(kInvalidValue, fmt::format("{} {} is device memory, which the host does not reach", parameter,
                                                  fmt::ptr(pointer)))
      .Culprit(fmt::format("{} {}", parameter, memory.Explain(pointer)))
      .Hint(fmt::format("pass {} in memory of the host", parameter));
}

/// REPRISE_STRICT=1: 100001 before aclInit and after aclFinalize.
Status CheckInitialized(const char* api);

}  // namespace reprise::facade
