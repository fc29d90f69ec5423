// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <fmt/format.h>

#include <map>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/no_destroy.h"
#include "engine/device_work.h"
#include "engine/fusion_results.h"
#include "engine/numbers.h"
#include "engine/warnings.h"

namespace reprise::engine {
namespace {

struct Engine {
  Mutex mutex;
  bool is_initialized REPRISE_GUARDED_BY(mutex) = false;
  OptionMap options REPRISE_GUARDED_BY(mutex);
  std::map<uint64_t, std::shared_ptr<Session>> sessions REPRISE_GUARDED_BY(mutex);
  uint64_t next_id REPRISE_GUARDED_BY(mutex) = 1;
};

Engine& TheEngine() {
  static NoDestroy<Engine> engine;
  return engine.value;
}

Status NotBegun(const char* api) {
  return Fail(kFailed, kWrongOrder, fmt::format("{} was called before GEInitialize", api))
      .Culprit(fmt::format("the call of {}", api))
      .Hint("call ge::GEInitialize first");
}

// Lets go of a session. A callback of its own thread cannot wait for that thread: another one does.
void End(std::shared_ptr<Session> session) {
  if (session != nullptr && session->IsOwnThread()) std::thread([gone = std::move(session)] {}).detach();
}

}  // namespace

Status Initialize(const OptionMap& options) {
  REPRISE_RETURN_IF_ERROR(CheckOptions(options, kGlobalLevel, kParamInvalid));
  REPRISE_RETURN_IF_ERROR(OptionSet(options, {}, {}).CheckTogether(kParamInvalid));
  Engine& engine = TheEngine();
  MutexLock lock(engine.mutex);
  if (engine.is_initialized) {
    Warn(engine.options == options ? "GEInitialize was called before"
                                   : "GEInitialize was called before with other options, which stay");
    return {};
  }
  engine.options = options;
  engine.is_initialized = true;
  return {};
}

Status Finalize() {
  std::map<uint64_t, std::shared_ptr<Session>> sessions;
  {
    Engine& engine = TheEngine();
    MutexLock lock(engine.mutex);
    if (!engine.is_initialized) return {};
    engine.is_initialized = false;
    engine.options.clear();
    sessions.swap(engine.sessions);
  }
  for (auto& [id, session] : sessions) End(std::move(session));
  WriteFusions();
  ReleaseDevices();
  return {};
}

bool IsInitialized() {
  Engine& engine = TheEngine();
  MutexLock lock(engine.mutex);
  return engine.is_initialized;
}

StatusOr<uint64_t> OpenSession(Interface interface, const OptionMap& options) {
  Engine& engine = TheEngine();
  OptionMap process;
  uint64_t id = 0;
  {
    MutexLock lock(engine.mutex);
    if (!engine.is_initialized) return NotBegun("ge::Session::Session");
    process = engine.options;
    id = engine.next_id++;
  }
  REPRISE_RETURN_IF_ERROR(CheckOptions(options, kSessionLevel, kParamInvalid));
  REPRISE_RETURN_IF_ERROR(OptionSet(process, options, {}).CheckTogether(kParamInvalid));
  auto session = std::make_shared<Session>(id, interface, std::move(process), options);
  MutexLock lock(engine.mutex);
  if (!engine.is_initialized) return NotBegun("ge::Session::Session");
  engine.sessions[id] = std::move(session);
  return id;
}

void CloseSession(uint64_t id) {
  std::shared_ptr<Session> gone;
  {
    Engine& engine = TheEngine();
    MutexLock lock(engine.mutex);
    const auto found = engine.sessions.find(id);
    if (found == engine.sessions.end()) return;
    gone = std::move(found->second);
    engine.sessions.erase(found);
  }
  End(std::move(gone));
}

StatusOr<std::shared_ptr<Session>> FindSession(uint64_t id, const char* api) {
  Engine& engine = TheEngine();
  MutexLock lock(engine.mutex);
  if (!engine.is_initialized) return NotBegun(api);
  if (const auto found = engine.sessions.find(id); found != engine.sessions.end()) return found->second;
  return Fail(kFailed, kWrongOrder, fmt::format("{} was called on a session that is not there", api))
      .Culprit(fmt::format("session {}", id))
      .Hint("make the session after GEInitialize, with options that are accepted, and before GEFinalize");
}

}  // namespace reprise::engine
