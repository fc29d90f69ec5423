// SPDX-License-Identifier: Apache-2.0
#include "support/json.h"

#include <iterator>
#include <string>

namespace reprise::testing {

nlohmann::json ParseJson(std::string_view text) { return nlohmann::json::parse(text, nullptr, false); }

nlohmann::json ParseJson(std::istream& stream) {
  return ParseJson(std::string(std::istreambuf_iterator<char>(stream), {}));
}

}  // namespace reprise::testing
