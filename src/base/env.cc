// SPDX-License-Identifier: Apache-2.0
#include "base/env.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

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
constexpr std::string_view kOurs = "REPRISE_";

// How many letters have to be put in, left out or changed to make one of the other.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// Names of other parts (the PyTorch layer's, the tests') are far from all of these.
void TellMisspelt() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view name = std::string_view(*entry).substr(0, std::string_view(*entry).find('='));
    if (!name.starts_with(kOurs) || name.size() > 64) continue;
    const Row* nearest = nullptr;
    size_t least = 3;  // two letters wrong at most
    for (const Row& row : kRows) {
      if (!std::string_view(row.name).starts_with(kOurs)) continue;
      const size_t distance = Distance(name, row.name);
      if (distance < least) least = distance, nearest = &row;
    }
    if (nearest == nullptr || least == 0) continue;
    std::fprintf(stderr, "reprise: the variable %.*s is not known; did you mean %s?\n", static_cast<int>(name.size()),
                 name.data(), nearest->name);
  }
}

// The text as a number, by `parse`; the default, and a complaint, when it is none.
template <class Parse>
auto NumberOf(EnvVar variable, const char* kind, Parse parse) {
  const Row& row = kRows[static_cast<size_t>(variable)];
  const std::string& text = Env(variable);
  if (const auto value = parse(text)) return *value;
  // Set but empty is a way to unset.
  if (!text.empty()) ComplainOfSetting(variable, fmt::format("is {}; the default {} is used", kind, row.fallback));
  using Value = typename decltype(parse(text))::value_type;
  return parse(row.fallback).value_or(Value{0});
}

}  // namespace

void ComplainOfSetting(EnvVar variable, std::string_view why) noexcept {
  static constinit std::array<std::atomic<bool>, kCount> told{};
  const char* const name = EnvName(variable);
  if (!std::string_view(name).starts_with(kOurs) || told[static_cast<size_t>(variable)].exchange(true)) return;
  std::fprintf(stderr, "reprise: %s=%s %.*s\n", name, Env(variable).c_str(), static_cast<int>(why.size()), why.data());
}

const std::string& Env(EnvVar variable) {
  // Read together and once: a program that changes its environment later must not see half of the change.
  static const auto* const values = [] {
    TellMisspelt();
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

int64_t EnvInt(EnvVar variable) { return NumberOf(variable, "no number", ParseInt); }

int64_t EnvInt(EnvVar variable, int64_t low, int64_t high) {
  const int64_t value = EnvInt(variable), used = std::clamp(value, low, high);
  if (used != value) {
    ComplainOfSetting(variable, fmt::format("is not between {} and {}; {} is used", low, high, used));
  }
  return used;
}

uint64_t EnvBytes(EnvVar variable) { return NumberOf(variable, "no size such as 64M or 2G", ParseBytes); }

const char* EnvName(EnvVar variable) { return kRows[static_cast<size_t>(variable)].name; }

}  // namespace reprise
