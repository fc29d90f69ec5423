// SPDX-License-Identifier: Apache-2.0
#include "base/call_trace.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "base/env.h"
#include "base/source_line.h"

namespace reprise {
namespace {

constexpr int kFrames = 24;
thread_local const char* t_api = nullptr;
thread_local int t_depth = 0;

// Libraries of ours, whose frames lie between the caller and us.
bool IsOurs(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  for (const std::string_view ours :
       {"libreprise.", "libascendcl.", "libnnopbase.", "libopapi.", "libacl_", "libmsprofiler.", "libascend_dump."}) {
    if (name.starts_with(ours)) return true;
  }
  return false;
}

}  // namespace

constinit bool internal::g_call_trace = false;

void ReadCallTrace() noexcept { internal::g_call_trace = EnvInt(EnvVar::kTraceCalls) != 0; }

// An operator calls runtime functions inside of its own: the outermost is what the program called.
void CallScope::Enter(const char* api) noexcept {
  if (t_depth++ == 0) t_api = api;
}

void CallScope::Leave() noexcept {
  if (--t_depth == 0) t_api = nullptr;
}

Caller FindCaller() {
  std::array<void*, kFrames> frames{};
  const int count = backtrace(frames.data(), kFrames);
  bool inside = false;  // a sanitizer's frames may come before ours
  for (int i = 0; i < count; ++i) {
    Dl_info info{};
    // The return address lies behind the call; one less is inside of it.
    const void* const at = static_cast<const char*>(frames[static_cast<size_t>(i)]) - 1;
    if (dladdr(at, &info) == 0 || info.dli_fname == nullptr) continue;
    if (IsOurs(info.dli_fname)) {
      inside = true;
    } else if (inside) {
      return {at, ::syscall(SYS_gettid)};
    }
  }
  return {nullptr, ::syscall(SYS_gettid)};
}

std::string DescribePlace(const void* place) {
  Dl_info info{};
  if (place == nullptr || dladdr(place, &info) == 0 || info.dli_fname == nullptr) return {};
  const auto at = reinterpret_cast<uintptr_t>(place);
  const uintptr_t offset = at - reinterpret_cast<uintptr_t>(info.dli_fbase);
  const std::string symbol = info.dli_sname != nullptr ? fmt::format("{}+{:#x}", info.dli_sname,
                                                                     at - reinterpret_cast<uintptr_t>(info.dli_saddr))
                                                       : fmt::format("+{:#x}", offset);
  // Names and lines of functions that nobody exports are in the file, as a rule.
  const std::string line = DescribeSourceLine(place);
  // The module's offset is what addr2line wants.
  return fmt::format("{}({}) [{:#x}]{}", info.dli_fname, symbol, offset, line.empty() ? "" : ", " + line);
}

std::string DescribeCall() {
  if (!internal::g_call_trace || t_api == nullptr) return {};
  const Caller caller = FindCaller();
  const std::string place = DescribePlace(caller.place);
  return fmt::format("{}, called by thread {}{}{}", t_api, caller.thread, place.empty() ? "" : " from ", place);
}

}  // namespace reprise
