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

namespace {

// "./program(main+0x2a) [0x11cf]"; empty when it cannot be told.
std::string PlaceInProgram() {
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
      continue;
    }
    if (!inside) continue;
    const auto offset = reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(info.dli_fbase);
    const std::string place =
        info.dli_sname != nullptr
            ? fmt::format("{}+{:#x}", info.dli_sname,
                          reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(info.dli_saddr))
            : fmt::format("+{:#x}", offset);
    // The module's offset is what addr2line wants.
    return fmt::format("{}({}) [{:#x}]", info.dli_fname, place, offset);
  }
  return {};
}

}  // namespace

std::string DescribeCaller() {
  const std::string place = PlaceInProgram();
  return fmt::format("thread {}{}{}", ::syscall(SYS_gettid), place.empty() ? "" : " at ", place);
}

std::string DescribeCall() {
  if (!internal::g_call_trace || t_api == nullptr) return {};
  const std::string place = PlaceInProgram();
  return fmt::format("{}, called by thread {}{}{}", t_api, ::syscall(SYS_gettid), place.empty() ? "" : " from ", place);
}

}  // namespace reprise
