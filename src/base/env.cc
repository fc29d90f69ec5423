// SPDX-License-Identifier: Apache-2.0
#include "base/env.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

namespace reprise {
namespace {

struct Row {
  const char* name;
  const char* fallback;
};

constexpr Row kRows[] = {
#define REPRISE_ENV(id, name, fallback, meaning) {name, fallback},
#include "base/env.def"
#undef REPRISE_ENV
};
constexpr size_t kCount = std::size(kRows);

}  // namespace

const std::string& Env(EnvVar variable) {
  // Read together and once: a program that changes its environment later must not see half of the change.
  static const auto* const values = [] {
    auto* all = new std::array<std::string, kCount>;
    for (size_t i = 0; i < kCount; ++i) {
      const char* set = std::getenv(kRows[i].name);
      (*all)[i] = set != nullptr ? set : kRows[i].fallback;
    }
    return all;
  }();
  return (*values)[static_cast<size_t>(variable)];
}

std::optional<int64_t> ParseInt(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<uint64_t> ParseBytes(std::string_view text) {
  int shift = 0;
  if (!text.empty()) {
    switch (text.back()) {
      case 'k':
      case 'K': shift = 10; break;
      case 'm':
      case 'M': shift = 20; break;
      case 'g':
      case 'G': shift = 30; break;
      default: break;
    }
  }
  if (shift != 0) text.remove_suffix(1);
  const std::optional<int64_t> value = ParseInt(text);
  if (!value || *value < 0 || *value > INT64_MAX >> shift) return std::nullopt;
  return static_cast<uint64_t>(*value) << shift;
}

int64_t EnvInt(EnvVar variable) {
  if (const auto value = ParseInt(Env(variable))) return *value;
  return ParseInt(kRows[static_cast<size_t>(variable)].fallback).value_or(0);
}

int64_t EnvInt(EnvVar variable, int64_t low, int64_t high) { return std::clamp(EnvInt(variable), low, high); }

uint64_t EnvBytes(EnvVar variable) {
  if (const auto value = ParseBytes(Env(variable))) return *value;
  return ParseBytes(kRows[static_cast<size_t>(variable)].fallback).value_or(0);
}

const char* EnvName(EnvVar variable) { return kRows[static_cast<size_t>(variable)].name; }

}  // namespace reprise
