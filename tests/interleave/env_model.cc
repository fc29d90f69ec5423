// SPDX-License-Identifier: Apache-2.0
//
// base/env.h for programs under the explorer: the table's defaults, whatever the environment says, and the scenario's
// time of spinning. In the place of base/env.cc, which reads once and early; and of device/work_cost.cc, which
// measures.
#include "base/env.h"

#include "device/work_cost.h"

namespace reprise {
namespace {

struct Row {
  const char* name;
  const char* fallback;
};
constexpr Row kElements[] = {
#define REPRISE_ENV(id, name, fallback, meaning) {name, fallback},
#include "base/env.def"
#undef REPRISE_ENV
};

}  // namespace

const char* EnvName(EnvVar variable) { return kElements[static_cast<size_t>(variable)].name; }

const std::string& Env(EnvVar variable) {
  static const auto* const values = [] {
    auto* all = new std::vector<std::string>;
    for (const Row& row : kElements) all->emplace_back(row.fallback);
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

const device::Costs& device::TheCosts() noexcept {
  static const Costs costs;
  return costs;
}

void ComplainOfSetting(EnvVar, std::string_view) noexcept {}

int64_t EnvInt(EnvVar variable) {
  if (variable == EnvVar::kSpinUs) return ::interleave::SpinUs();
  return ParseInt(Env(variable)).value_or(0);
}

int64_t EnvInt(EnvVar variable, int64_t low, int64_t high) { return std::clamp(EnvInt(variable), low, high); }

}  // namespace reprise
