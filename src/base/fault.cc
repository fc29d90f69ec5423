// SPDX-License-Identifier: Apache-2.0
#include "base/fault.h"

#include <atomic>
#include <cstdint>
#include <string>

#include "base/env.h"
#include "base/mutex.h"

namespace reprise {

constinit std::atomic<bool> internal::g_fault_armed{true};

namespace {

using internal::g_fault_armed;

struct Armed {
  Mutex mutex;
  std::string name REPRISE_GUARDED_BY(mutex);
  int countdown REPRISE_GUARDED_BY(mutex) = 0;
  bool fired REPRISE_GUARDED_BY(mutex) = false;
};

Armed& State() {
  static auto* const state = []() REPRISE_NOT_ANALYSED {  // nobody else knows it yet
    auto* s = new Armed;
    const std::string& spec = Env(EnvVar::kFailAt);
    if (const size_t colon = spec.rfind(':'); colon != std::string::npos) {
      s->name = spec.substr(0, colon);
      const auto pass = ParseInt(std::string_view(spec).substr(colon + 1));
      s->countdown = pass && *pass > 0 && *pass <= INT32_MAX ? static_cast<int>(*pass) : 0;
    }
    if (!spec.empty() && s->countdown == 0) {
      ComplainOfSetting(EnvVar::kFailAt, "is not of the form POINT:N, N from 1; nothing fails");
    }
    g_fault_armed = s->countdown > 0;
    return s;
  }();
  return *state;
}

}  // namespace

bool internal::ArmedFaultPoint(std::string_view name) noexcept {
  Armed& state = State();
  MutexLock lock(state.mutex);
  if (state.countdown == 0 || (state.name != "*" && state.name != name)) return false;
  if (--state.countdown > 0) return false;
  state.fired = true;
  g_fault_armed = false;
  return true;
}

void ArmFault(std::string_view name, int n) {
  Armed& state = State();
  MutexLock lock(state.mutex);
  state.name = name;
  state.countdown = n;
  state.fired = false;
  g_fault_armed = n > 0;
}

bool FaultFired() {
  Armed& state = State();
  MutexLock lock(state.mutex);
  return state.fired;
}

}  // namespace reprise
