// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace reprise::memory {

/// Names of functions and files are bytes, but file formats want text: what is no UTF-8 becomes question marks.
inline std::string Utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size();) {
    const auto byte = [&](size_t k) { return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u; };
    const unsigned first = byte(0);
    size_t length = 1;
    bool good = first < 0x80;
    if (first >= 0xC2 && first <= 0xF4) {
      length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
      good = true;
      for (size_t k = 1; k < length; ++k) good &= (byte(k) & 0xC0) == 0x80;
      // Overlong forms, surrogates, what XML does not allow, and what lies behind the last character.
      if (first == 0xE0) good &= byte(1) >= 0xA0;
      if (first == 0xED) good &= byte(1) < 0xA0;
      if (first == 0xEF) good &= byte(1) != 0xBF || byte(2) < 0xBE;
      if (first == 0xF0) good &= byte(1) >= 0x90;
      if (first == 0xF4) good &= byte(1) < 0x90;
    }
    if (good) {
      out += bytes.substr(i, length);
      i += length;
    } else {
      out += '?';
      ++i;
    }
  }
  return out;
}

}  // namespace reprise::memory
