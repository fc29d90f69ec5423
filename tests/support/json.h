// SPDX-License-Identifier: Apache-2.0
//
// The parser of nlohmann/json, compiled once for all tests: a source that calls it itself takes seconds longer.
#pragma once

#include <istream>
#include <nlohmann/json.hpp>
#include <string_view>

namespace reprise::testing {

/// The value of a text; malformed: a discarded value (`is_discarded()`).
nlohmann::json ParseJson(std::string_view text);

/// The value of the rest of a stream; malformed: a discarded value.
nlohmann::json ParseJson(std::istream& stream);
inline nlohmann::json ParseJson(std::istream&& stream) { return ParseJson(stream); }

}  // namespace reprise::testing
