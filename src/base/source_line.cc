// SPDX-License-Identifier: Apache-2.0
#include "base/source_line.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "base/calls.h"
#include "base/mutex.h"
#include "base/symbols.h"

#ifdef REPRISE_LIBBACKTRACE
#include <backtrace.h>
#endif

namespace reprise {
namespace {

struct Place {
  std::string line;      // "file.cc:12"
  std::string function;  // as the linker knows it
};

struct Known {
  Mutex mutex;
  std::map<const void*, std::string> places REPRISE_GUARDED_BY(mutex);
#ifdef REPRISE_LIBBACKTRACE
  backtrace_state* state = nullptr;
  std::set<const void*> looked_for;  // files that a state was made for
#endif
};
Known& TheKnown() {
  static auto* const known = new Known;
  return *known;
}

#ifdef REPRISE_LIBBACKTRACE

// A state knows the files that were loaded when it was first asked, and cannot be freed. So there is a new one for each
// file that the last one did not know.
Place Look(Known& known, const void* address) {
  Place place;
  const auto found = [](void* to, uintptr_t, const char* file, int line, const char* function) -> int {
    auto& out = *static_cast<Place*>(to);
    if (file == nullptr) return 0;
    out.line = fmt::format("{}:{}", file, line);
    if (function != nullptr) out.function = function;
    return 1;  // the innermost of inlined functions
  };
  const auto failed = [](void*, const char*, int) {};
  Dl_info info{};
  const void* const file = dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
  for (int round = 0; round < 2 && place.line.empty(); ++round) {
    if (known.state == nullptr || round != 0) {
      if (!known.looked_for.insert(file).second) break;
      known.state = backtrace_create_state(nullptr, 0, failed, nullptr);
      if (known.state == nullptr) break;
    }
    backtrace_pcinfo(known.state, reinterpret_cast<uintptr_t>(address), found, failed, &place);
  }
  return place;
}

#else

// What addr2line says: the function on one line, "file:line" on the next, question marks where it knows nothing.
Place Look(Known&, const void* address) {
  Symbol symbol;
  if (!FindSymbol(address, symbol)) return {};
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  const std::string where = fmt::format("{:#x}", symbol.in_file);
  std::string words[] = {"addr2line", "-f", "-e", symbol.file, where};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), words[4].data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const bool runs = posix_spawnp(&pid, "addr2line", &actions, nullptr, arguments, environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string said;
  char part[512];
  for (ssize_t got; runs && (got = read(ends[0], part, sizeof part)) > 0;) said.append(part, static_cast<size_t>(got));
  close(ends[0]);
  if (runs) waitpid(pid, nullptr, 0);
  const size_t end = said.find('\n');
  if (end == std::string::npos) return {};
  Place place{said.substr(end + 1, said.find_first_of(" \n", end + 1) - end - 1), said.substr(0, end)};
  if (place.line.starts_with("??") || place.line.ends_with(":?") || place.line.ends_with(":0")) place.line.clear();
  if (place.function == "??") place.function.clear();
  return place;
}

#endif

std::string Demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> words(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                          std::free);
  return words != nullptr ? words.get() : name;
}

}  // namespace

std::string DescribeSourceLine(const void* address) {
  Known& known = TheKnown();
  const NoCancel no_cancel;
  MutexLock lock(known.mutex);
  const auto it = known.places.find(address);
  if (it != known.places.end()) return it->second;
  Place place = Look(known, address);
  Symbol symbol;
  if (place.function.empty() && FindSymbol(address, symbol)) place.function = symbol.name;
  std::string text = place.line;
  if (!place.function.empty()) text += (text.empty() ? "" : " in ") + Demangled(place.function.c_str());
  return known.places.emplace(address, std::move(text)).first->second;
}

}  // namespace reprise
