// SPDX-License-Identifier: Apache-2.0
//
// The graph engine of the process: begun once, with options for all sessions; sessions by number.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "engine/options.h"
#include "engine/session.h"

namespace reprise::engine {

// Threads: all functions may be called from any thread; Initialize and Finalize one at a time.

/// Checks the options and begins. Begun already: a warning, which says whether the options are others.
Status Initialize(const OptionMap& options);
/// Ends all sessions, and the engine. Nothing happens when it was not begun.
Status Finalize();
bool IsInitialized();

/// kFailed before Initialize.
StatusOr<uint64_t> OpenSession(Interface interface, const OptionMap& options);
/// Ends the session when the calls that use it have returned. Unknown numbers are ignored.
void CloseSession(uint64_t id);
/// kFailed, naming the call, before Initialize and for a session that is not there.
StatusOr<std::shared_ptr<Session>> FindSession(uint64_t id, const char* api);

}  // namespace reprise::engine
