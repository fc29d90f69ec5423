// SPDX-License-Identifier: Apache-2.0
//
// A compiled graph as bytes: a line of JSON that says what it is and ends in a checksum, then the graph after all
// passes as a model.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include "compiler/hash.h"

namespace reprise::compiler {

inline constexpr std::string_view kCompiledFileStart = R"({"format": "reprise compiled graph 2")";

/// `about`: what the line begins with, kCompiledFileStart and more.
inline std::string PackCompiled(std::string_view about, std::string_view model) {
  return fmt::format("{}, \"checksum\": \"{}\"}}\n{}", about, DigestText(model), model);
}

/// The line and the model in `bytes`; without a model where it is damaged. Nothing for bytes of another kind.
struct CompiledParts {
  std::string_view about;  ///< without the checksum
  std::optional<std::string_view> model;
};
inline std::optional<CompiledParts> SplitCompiled(std::string_view bytes) {
  constexpr std::string_view kKind = R"({"format": "reprise compiled graph )";
  constexpr std::string_view kChecksum = ", \"checksum\": \"";
  if (!bytes.starts_with(kKind)) return std::nullopt;
  const size_t end = bytes.find('\n');
  const std::string_view line = bytes.substr(0, end);
  const size_t checksum = line.rfind(kChecksum);
  CompiledParts parts{line.substr(0, checksum), std::nullopt};
  if (end == std::string_view::npos || checksum == std::string_view::npos) return parts;
  const std::string_view model = bytes.substr(end + 1);
  if (line.substr(checksum + kChecksum.size()) == DigestText(model) + "\"}") parts.model = model;
  return parts;
}

}  // namespace reprise::compiler
