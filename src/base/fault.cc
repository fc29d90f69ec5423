// SPDX-License-Identifier: Apache-2.0
#include "base/fault.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/env.h"

namespace reprise {
namespace {

struct Armed {
  std::mutex mutex;
  std::string name;
  int countdown = 0;
  bool fired = false;
};

// Set until the first pass, which reads REPRISE_FAIL_AT.
std::atomic<bool> g_armed{true};

Armed& State() {
  static auto* const state = [] {
    auto* s = new Armed;
    const std::string& spec = Env(EnvVar::kFailAt);
    if (const size_t colon = spec.rfind(':'); colon != std::string::npos) {
      s->name = spec.substr(0, colon);
      const auto pass = ParseInt(std::string_view(spec).substr(colon + 1));
      s->countdown = pass && *pass > 0 && *pass <= INT32_MAX ? static_cast<int>(*pass) : 0;
      g_armed = s->countdown > 0;
    }
    return s;
  }();
  return *state;
}

}  // namespace

bool FaultPoint(std::string_view name) noexcept {
  if (!g_armed.load(std::memory_order_relaxed)) return false;
  Armed& state = State();
  std::lock_guard lock(state.mutex);
  if (state.countdown == 0 || (state.name != "*" && state.name != name)) return false;
  if (--state.countdown > 0) return false;
  state.fired = true;
  g_armed = false;
  return true;
}

void ArmFault(std::string_view name, int n) {
  Armed& state = State();
  std::lock_guard lock(state.mutex);
  state.name = name;
  state.countdown = n;
  state.fired = false;
  g_armed = n > 0;
}

bool FaultFired() {
  Armed& state = State();
  std::lock_guard lock(state.mutex);
  return state.fired;
}

}  // namespace reprise
