// SPDX-License-Identifier: Apache-2.0
#include "base/verbose.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <regex>

#include "base/env.h"
#include "base/no_destroy.h"

namespace reprise {

namespace internal {
constinit std::atomic<uint64_t> g_event_counts[static_cast<size_t>(VerboseEvent::kCount)]{};
}  // namespace internal

namespace {

constexpr EventInfo kEvents[] = {
#define REPRISE_EVENT(id, category, name, meaning) {VerboseCategory::category, name, meaning},
#include "base/verbose.def"
#undef REPRISE_EVENT
};

constexpr VerboseCategory kCategories[] = {VerboseCategory::kDispatch, VerboseCategory::kPlan,
                                           VerboseCategory::kCapture, VerboseCategory::kAlloc,
                                           VerboseCategory::kFusion};

uint32_t BitOf(VerboseCategory category) { return 1u << static_cast<uint32_t>(category); }

struct Setting {
  uint32_t categories = 0;
  std::optional<std::regex> filter;
};

const Setting& TheSetting() {
  static const auto* const setting = [] {
    auto* made = new Setting;
    VerboseSetting parsed = ParseVerbose(Env(EnvVar::kVerbose));
    made->categories = parsed.categories;
    if (!parsed.filter.empty()) made->filter.emplace(parsed.filter, std::regex::ECMAScript | std::regex::optimize);
    if (!parsed.complaint.empty()) ComplainOfSetting(EnvVar::kVerbose, parsed.complaint);
    return made;
  }();
  return *setting;
}

}  // namespace

const EventInfo& InfoOf(VerboseEvent event) { return kEvents[static_cast<size_t>(event)]; }

const char* CategoryName(VerboseCategory category) {
  switch (category) {
    case VerboseCategory::kDispatch: return "dispatch";
    case VerboseCategory::kPlan: return "plan";
    case VerboseCategory::kCapture: return "capture";
    case VerboseCategory::kAlloc: return "alloc";
    case VerboseCategory::kFusion: return "fusion";
  }
  return "";
}

VerboseSetting ParseVerbose(std::string_view text) {
  VerboseSetting setting;
  // The filter is the last part, because it may hold any character.
  constexpr std::string_view kFilter = "filter=";
  size_t filter = text.starts_with(kFilter) ? 0 : text.find(";filter=");
  if (filter != std::string_view::npos) {
    setting.filter = text.substr(filter + kFilter.size() + (text[filter] == ';' ? 1 : 0));
    text = text.substr(0, filter);
    try {
      (void)std::regex(setting.filter);
    } catch (const std::regex_error&) {
      setting.complaint =
          fmt::format("has a filter that is no regular expression: {}; all lines are shown", setting.filter);
      setting.filter.clear();
    }
  }
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    bool known = word.empty();
    for (const VerboseCategory category : kCategories) {
      if (word != CategoryName(category) && word != "all") continue;
      setting.categories |= BitOf(category);
      known = true;
    }
    if (!known) {
      setting.complaint = fmt::format("names {}, which is none of dispatch, plan, capture, alloc, fusion, all", word);
    }
  }
  return setting;
}

bool IsVerbose(VerboseCategory category) noexcept { return (TheSetting().categories & BitOf(category)) != 0; }

void Tell(VerboseEvent event, std::string_view text) noexcept try {
  const EventInfo& info = InfoOf(event);
  if (!IsVerbose(info.category)) return;
  const std::string line = fmt::format("reprise: {}: {}: {}\n", CategoryName(info.category), info.name, text);
  const std::optional<std::regex>& filter = TheSetting().filter;
  if (filter && !std::regex_search(line, *filter)) return;
  std::fwrite(line.data(), 1, line.size(), stderr);
} catch (...) {
  // A line less; the event is counted.
}

}  // namespace reprise
