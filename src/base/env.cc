// SPDX-License-Identifier: Apache-2.0
#include "base/env.h"

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

int64_t ParseInt(const std::string& text, std::string* rest) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) {
    *rest = "?";
    return 0;
  }
  rest->assign(end, text.data() + text.size() - end);
  return value;
}

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

int64_t EnvInt(EnvVar variable) {
  std::string rest;
  const int64_t value = ParseInt(Env(variable), &rest);
  return rest.empty() ? value : ParseInt(kRows[static_cast<size_t>(variable)].fallback, &rest);
}

uint64_t EnvBytes(EnvVar variable) {
  for (const std::string& text : {Env(variable), std::string(kRows[static_cast<size_t>(variable)].fallback)}) {
    std::string rest;
    const int64_t value = ParseInt(text, &rest);
    if (value < 0) continue;
    if (rest.empty()) return static_cast<uint64_t>(value);
    const int shift = rest == "k" || rest == "K"   ? 10
                      : rest == "m" || rest == "M" ? 20
                      : rest == "g" || rest == "G" ? 30
                                                   : 0;
    if (shift != 0 && value <= INT64_MAX >> shift) return static_cast<uint64_t>(value) << shift;
  }
  return 0;
}

const char* EnvName(EnvVar variable) { return kRows[static_cast<size_t>(variable)].name; }

}  // namespace reprise
