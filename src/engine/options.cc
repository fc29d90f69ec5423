// SPDX-License-Identifier: Apache-2.0
#include "engine/options.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "base/mutex.h"
#include "base/no_destroy.h"
#include "compiler/passes/switches.h"
#include "engine/numbers.h"
#include "engine/option_values.h"
#include "engine/warnings.h"

namespace reprise::engine {
namespace {

constexpr uint8_t kG = kGlobalLevel;
constexpr uint8_t kS = kSessionLevel;
constexpr uint8_t kGr = kGraphLevel;
constexpr uint8_t kL = kLoadLevel;
constexpr uint8_t kGS = kG | kS;
constexpr uint8_t kSGr = kS | kGr;
constexpr uint8_t kAll = kG | kS | kGr;
using enum OptionKind;

constexpr OptionRow kRows[] = {
#define REPRISE_GE_OPTION(key, levels, kind, values, initial, has_effect, about) \
  {key, levels, kind, values, initial, has_effect, about},
#include "engine/options.def"
#undef REPRISE_GE_OPTION
};

bool IsSorted() { return std::ranges::is_sorted(kRows, {}, &OptionRow::key); }

std::vector<std::string_view> Split(std::string_view text, char separator) { return SplitText(text, separator); }

bool IsOneOf(std::string_view value, std::string_view values) {
  return std::ranges::count(Split(values, '|'), value) != 0;
}

bool IsNumber(std::string_view value, std::string_view range) {
  const std::optional<int64_t> number = NumberOf(value);
  if (!number) return false;
  const size_t dots = range.find("..");
  const auto low = NumberOf(range.substr(0, dots));
  const auto high = NumberOf(range.substr(dots + 2));
  return (!low || *number >= *low) && (!high || *number <= *high);
}

bool IsKey(std::string_view value) {
  return value.size() <= 128 &&
         std::ranges::all_of(value, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
}

bool IsSteps(std::string_view value) {
  return std::ranges::all_of(Split(value, '|'), [](std::string_view part) {
    const size_t dash = part.find('-');
    const auto first = NumberOf(part.substr(0, dash));
    if (!first || *first < 0) return false;
    if (dash == std::string_view::npos) return true;
    const auto last = NumberOf(part.substr(dash + 1));
    return last && *last >= *first;
  });
}

bool IsStreams(std::string_view value) {
  if (value == "cv") return true;
  const size_t colon = value.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view mode = value.substr(0, colon);
  return (mode == "LoadBalance" || mode == "MainStream") && IsNumber(value.substr(colon + 1), "1..64");
}

bool IsFile(std::string_view value) {
  struct stat entry {};
  return stat(std::string(value).c_str(), &entry) == 0 && S_ISREG(entry.st_mode);
}

// What is expected; empty where the value is fine.
std::string Expected(const OptionRow& row, std::string_view value) {
  switch (row.kind) {
    case kText: return {};
    case kChoice: return IsOneOf(value, row.values) ? "" : fmt::format("one of {}", row.values);
    case kNumber: return IsNumber(value, row.values) ? "" : fmt::format("an integer of {}", row.values);
    case kFile: return IsFile(value) ? "" : "the path of a file that exists";
    case kKey: return IsKey(value) ? "" : "1 to 128 letters, digits, underscores and hyphens";
    case kSwitches:
      return compiler::ParseSwitches(value).ok() ? "" : "\"Pass:on\" and \"Pass:off\" with semicolons between them";
    case kSteps: return IsSteps(value) ? "" : "steps and ranges of steps such as 0|3-5";
    case kStreams: return IsStreams(value) ? "" : "cv, LoadBalance:N or MainStream:N with N of 1..64";
  }
  return {};
}

const char* NameOf(OptionLevel level) {
  switch (level) {
    case kGlobalLevel: return "GEInitialize";
    case kSessionLevel: return "a session";
    case kGraphLevel: return "AddGraph";
    case kLoadLevel: return "LoadGraph";
  }
  return "";
}

struct Told {
  Mutex mutex;
  std::set<std::string, std::less<>> keys REPRISE_GUARDED_BY(mutex);
};

bool IsNew(const std::string& key) {
  static NoDestroy<Told> told;
  MutexLock lock(told.value.mutex);
  return told.value.keys.insert(key).second;
}

}  // namespace

std::span<const OptionRow> OptionRows() { return kRows; }

const OptionRow* FindOption(std::string_view key) {
  [[maybe_unused]] static const bool sorted = IsSorted();
  const auto* const found = std::ranges::find(kRows, key, &OptionRow::key);
  return found != std::end(kRows) ? found : nullptr;
}

Status CheckOptions(const OptionMap& options, OptionLevel level, int number) {
  for (const auto& [key, value] : options) {
    if (key.empty()) {
      return Fail(kFailed, kBadValue, "an option has an empty key")
          .Culprit(fmt::format("options of {}", NameOf(level)))
          .Hint("give every option a key");
    }
    const OptionRow* const row = FindOption(key);
    if (row == nullptr || (row->levels & level) == 0) {
      if (IsNew(fmt::format("{} {}", static_cast<int>(level), key))) {
        Warn(fmt::format("option {} means nothing to {} and is ignored{}", key, NameOf(level),
                         row == nullptr ? "" : ": it is set elsewhere"));
      }
      continue;
    }
    if (value.empty()) continue;
    if (const std::string expected = Expected(*row, value); !expected.empty()) {
      return Fail(key == "ge.exec.disableReuseMemory" ? kFailed : number, kBadValue,
                  fmt::format("option {} is \"{}\", must be {}", key, value, expected))
          .Culprit(fmt::format("option {} of {}", key, NameOf(level)))
          .Hint(fmt::format("set it to {}, or leave it out", expected));
    }
  }
  return {};
}

OptionSet::OptionSet(const OptionMap& process, const OptionMap& session, const OptionMap& graph) {
  const auto add = [this](const OptionMap& options, OptionLevel level) {
    for (const auto& [key, value] : options) {
      const OptionRow* const row = FindOption(key);
      if (row != nullptr && (row->levels & level) != 0 && !value.empty()) given_[key] = value;
    }
  };
  add(process, kGlobalLevel);
  add(session, kSessionLevel);
  add(graph, kGraphLevel);
}

std::string_view OptionSet::Get(std::string_view key) const {
  if (const auto found = given_.find(key); found != given_.end()) return found->second;
  const OptionRow* const row = FindOption(key);
  return row != nullptr ? row->initial : std::string_view();
}

int64_t OptionSet::Number(std::string_view key) const { return NumberOf(Get(key)).value_or(0); }

Status OptionSet::CheckTogether(int number) const {
  const auto refuse = [number](std::string_view first, std::string_view what, std::string hint) {
    return Fail(number, kBadValue, fmt::format("option {} {}", first, what))
        .Culprit(fmt::format("option {}", first))
        .Hint(std::move(hint));
  };
  if (IsSet("ge.exec.precision_mode") && IsSet("ge.exec.precision_mode_v2")) {
    return refuse("ge.exec.precision_mode", "is set together with ge.exec.precision_mode_v2, which excludes it",
                  "set one of the two");
  }
  if (Is("ge.AllowMultiGraphParallelCompile", "1") && Is("ge.exec.variable_acc", "True")) {
    return refuse("ge.AllowMultiGraphParallelCompile", "is 1, which ge.exec.variable_acc = True excludes",
                  "set one of the two");
  }
  if (Number("ge.deterministicLevel") > 0 && !Is("ge.deterministic", "1")) {
    return refuse("ge.deterministicLevel", "is above 0, but ge.deterministic is not 1", "set ge.deterministic to 1");
  }
  if (Is("ge.exec.enableDump", "1") && Is("ge.exec.enableDumpDebug", "1")) {
    return refuse("ge.exec.enableDump", "is set together with ge.exec.enableDumpDebug, which excludes it",
                  "set one of the two");
  }
  if ((Is("ge.exec.enableDump", "1") || Is("ge.exec.enableDumpDebug", "1")) && Get("ge.exec.dumpPath").empty()) {
    return refuse(Is("ge.exec.enableDump", "1") ? "ge.exec.enableDump" : "ge.exec.enableDumpDebug",
                  "is 1, but ge.exec.dumpPath is not set", "name a folder in ge.exec.dumpPath");
  }
  if (Is("ge.exec.enableDumpDebug", "1")) {
    return Fail(kUnsupported, kBadValue,
                "option ge.exec.enableDumpDebug looks for overflows that devices count, which the CPU does not")
        .Culprit("option ge.exec.enableDumpDebug")
        .Hint("leave it out, or set ge.exec.enableDump with ge.exec.dumpData = stats, which counts what is no number");
  }
  if (Is("ge.enableSingleStream", "true") && !Get("ge.autoMultistreamParallelMode").empty()) {
    return refuse("ge.enableSingleStream", "is true, which ge.autoMultistreamParallelMode excludes",
                  "set one of the two");
  }
  return {};
}

}  // namespace reprise::engine
