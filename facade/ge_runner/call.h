// SPDX-License-Identifier: Apache-2.0
//
// What the functions of the library share: the session behind a number, options, models of graphs, refusals.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "engine/numbers.h"
#include "ge/ge_error_codes.h"
#include "graph/ascend_string.h"
#include "graph/graph.h"
#include "runtime/report.h"

namespace reprise::ge_runner {

using AscendStringMap = std::map<ge::AscendString, ge::AscendString>;

inline engine::OptionMap OptionsOf(const AscendStringMap& options) {
  engine::OptionMap map;
  for (const auto& [key, value] : options) map[key.GetString()] = value.GetString();
  return map;
}

/// Body of a function of a session: `body` with the session of that number.
template <class Body>
ge::Status OnSession(uint64_t id, const char* api, Body body) noexcept {
  return static_cast<ge::Status>(runtime::Api(api, [&]() -> Status {
    REPRISE_ASSIGN_OR_RETURN(const std::shared_ptr<engine::Session> session, engine::FindSession(id, api));
    return body(*session);
  }));
}

/// AddGraph, and with a copy.
ge::Status AddGraphTo(uint64_t session, const char* api, uint32_t graph_id, const ge::Graph& graph,
                      const AscendStringMap& options, bool copies) noexcept;

/// UNSUPPORTED, with the reason.
ge::Status Unsupported(const char* api, const char* reason, const char* advice) noexcept;

/// The calling thread's message, taken away.
ge::AscendString TakeMessage() noexcept;

}  // namespace reprise::ge_runner
