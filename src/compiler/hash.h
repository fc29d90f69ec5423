// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace reprise::compiler {

/// FNV-1a, for names of files and keys; goes on from `hash`.
inline uint64_t HashOf(std::string_view bytes, uint64_t hash = 0xCBF29CE484222325) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

}  // namespace reprise::compiler
