// SPDX-License-Identifier: Apache-2.0
//
// Keys of objects between processes, as C callers hold them: printable text of at most 64 characters and a zero.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <string_view>

#include "base/status.h"
#include "device/share.h"

namespace reprise::facade {

constexpr size_t kKeyBytes = 65;

inline Status CheckKeyRoom(size_t bytes) {
  if (bytes >= kKeyBytes) return {};
  return Error(kInvalidValue, fmt::format("len is {}, must be at least {}", bytes, kKeyBytes))
      .Culprit("parameter len")
      .Hint(fmt::format("pass an array of {} characters", kKeyBytes));
}

inline void WriteKey(const device::ShareKey& key, char* out, size_t bytes) {
  const std::string text = key.Print();
  std::memset(out, 0, bytes);
  std::memcpy(out, text.data(), text.size());
}

inline StatusOr<device::ShareKey> ReadKey(const char* text, size_t most = kKeyBytes) {
  const std::string_view key(text, ::strnlen(text, most));
  if (const auto parsed = device::ShareKey::Parse(key)) return *parsed;
  return Error(kInvalidValue, fmt::format("key \"{}\" is none that an export function gave", key))
      .Culprit("parameter key")
      .Hint("pass the text that the exporting process received, unchanged");
}

}  // namespace reprise::facade
