// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace reprise {

/// Stands for bytes that are no UTF-8.
inline constexpr char32_t kReplacement = 0xFFFD;

/// The character at `at`, which moves behind it. A byte that begins no well-formed sequence (Unicode, table 3-7: no
/// overlong forms, no surrogates, nothing above U+10FFFF) is one kReplacement.
inline char32_t NextCharacter(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(at);
  const size_t start = at++;
  if (lead < 0x80) return lead;
  const unsigned more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  if (lead < 0xC2 || lead > 0xF4) return kReplacement;
  unsigned low = 0x80, high = 0xBF;  // of the second byte
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  char32_t character = lead & (0x3Fu >> more);
  for (unsigned i = 1; i <= more; ++i) {
    const unsigned next = byte(start + i);
    if (next < low || next > high) return kReplacement;
    character = character << 6 | (next & 0x3F);
    low = 0x80, high = 0xBF;
  }
  at = start + 1 + more;
  return character;
}

/// Appends the bytes text[from, to), which NextCharacter has read as `character`, or the replacement for them.
inline void AppendCharacter(std::string& out, char32_t character, std::string_view text, size_t from, size_t to) {
  if (character == kReplacement) {
    out += "\xEF\xBF\xBD";
  } else {
    out.append(text, from, to - from);
  }
}

}  // namespace reprise
