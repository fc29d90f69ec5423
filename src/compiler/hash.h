// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "ops/digest.h"

namespace reprise::compiler {

/// FNV-1a, for keys of some hundred bytes; goes on from `hash`.
inline uint64_t HashOf(std::string_view bytes, uint64_t hash = 0xCBF29CE484222325) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

/// 32 hex digits for data of any size, as fast as memory gives it.
inline std::string DigestText(std::string_view bytes) {
  const kernels::Digest digest = ops::DigestOf(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", digest.words[0], digest.words[1]);
}

}  // namespace reprise::compiler
