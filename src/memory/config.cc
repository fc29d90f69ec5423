// SPDX-License-Identifier: Apache-2.0
#include "memory/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/env.h"

namespace reprise::memory {
namespace {

// Megabytes that still fit when they become bytes.
constexpr uint64_t kMostMiB = (UINT64_MAX >> 20) - 1;

std::string_view Trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// Pieces between separators, which do not count within [ ].
std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  size_t begin = 0;
  bool bracket = false;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == separator && !bracket)) {
      pieces.push_back(Trim(text.substr(begin, i - begin)));
      begin = i + 1;
    } else if (text[i] == '[') {
      bracket = true;
    } else if (text[i] == ']') {
      bracket = false;
    }
  }
  return pieces;
}

bool ReadBool(std::string_view text, bool& out) {
  if (text != "True" && text != "False") return false;
  out = text == "True";
  return true;
}

std::optional<uint64_t> ReadInt(std::string_view text, uint64_t low, uint64_t high) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < low || value > high) return std::nullopt;
  return value;
}

bool ReadSize(std::string_view text, uint64_t unit, uint64_t low, uint64_t high, uint64_t& out) {
  const auto value = ReadInt(text, low, high);
  if (value) out = *value * unit;
  return value.has_value();
}

std::optional<double> ReadFraction(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

// One number for all sizes, or [256:1,512:2,>:4]: sizes from 256 MiB on, from 512 MiB on, from 1 GiB on. What is
// smaller than the first goes with it.
bool ReadDivisions(std::string_view text, std::vector<uint64_t>& out) {
  const auto divisions = [](std::string_view number) -> std::optional<uint64_t> {
    const auto value = ReadInt(number, 0, uint64_t{1} << 20);
    if (value && *value != 0 && !std::has_single_bit(*value)) return std::nullopt;
    return value;
  };
  std::vector<uint64_t> result(out.size(), 0);
  if (text.empty() || text.front() != '[') {
    const auto value = divisions(text);
    if (!value) return false;
    std::fill(result.begin(), result.end(), *value);
    out = std::move(result);
    return true;
  }
  if (text.size() < 2 || text.back() != ']') return false;
  size_t next = 0;  // the first class that nothing was said about
  bool closed = false;
  for (const std::string_view entry : Split(text.substr(1, text.size() - 2), ',')) {
    const size_t colon = entry.find(':');
    if (colon == std::string_view::npos || closed) return false;
    const std::string_view size = Trim(entry.substr(0, colon));
    const auto value = divisions(Trim(entry.substr(colon + 1)));
    if (!value) return false;
    if (size == ">") {
      std::fill(result.begin() + static_cast<ptrdiff_t>(next), result.end(), *value);
      closed = true;
      continue;
    }
    const auto mib = ReadInt(size, 1, uint64_t{1} << (result.size() - 1));
    if (!mib || !std::has_single_bit(*mib)) return false;
    const auto index = static_cast<size_t>(std::countr_zero(*mib));
    if (index < next) return false;
    if (next == 0) std::fill(result.begin(), result.begin() + static_cast<ptrdiff_t>(index), *value);
    result[index] = *value;
    next = index + 1;
  }
  out = std::move(result);
  return true;
}

std::string ShowBool(bool value) { return value ? "True" : "False"; }
std::string ShowMiB(uint64_t bytes) { return bytes == UINT64_MAX ? "" : fmt::format("{}", bytes / kMiB); }

std::string ShowDivisions(const std::vector<uint64_t>& divisions) {
  if (std::all_of(divisions.begin(), divisions.end(), [&](uint64_t d) { return d == divisions.front(); })) {
    return fmt::format("{}", divisions.empty() ? 0 : divisions.front());
  }
  std::string out;
  for (size_t i = 0; i < divisions.size(); ++i) {
    out += fmt::format("{}{}:{}", i == 0 ? "[" : ",", uint64_t{1} << i, divisions[i]);
  }
  return out + "]";
}

struct Key {
  const char* name;
  const char* allowed;
  bool (*read)(std::string_view text, Config& config);
  /// Empty: the key cannot say what is set, which is its default.
  std::string (*show)(const Config& config);
  /// Allocators look at the value each time, so it may change while they are in use.
  bool is_changeable = false;
};

constexpr const char* kBoolText = "True or False";
constexpr const char* kMiBText = "a number of MiB, 0 or more";

// As the variables spell them. An older name has no `show`: its successor shows the value.
constexpr Key kKeys[] = {
    {"max_split_size_mb", "a number of MiB, more than 20",
     [](auto t, Config& c) { return ReadSize(t, kMiB, 21, kMostMiB, c.max_split_size); },
     [](const Config& c) { return ShowMiB(c.max_split_size); }, true},
    {"max_non_split_rounding_mb", "a number of MiB, 20 or more",
     [](auto t, Config& c) { return ReadSize(t, kMiB, 20, kMostMiB, c.max_non_split_rounding); },
     [](const Config& c) { return ShowMiB(c.max_non_split_rounding); }, true},
    {"large_segment_size_mb", "a number of MiB from 20 to 512",
     [](auto t, Config& c) { return ReadSize(t, kMiB, 20, 512, c.large_segment_size); },
     [](const Config& c) { return ShowMiB(c.large_segment_size); }},
    {"segment_size_mb", "a number of MiB from 20 to 512; the key is called large_segment_size_mb now",
     [](auto t, Config& c) { return ReadSize(t, kMiB, 20, 512, c.large_segment_size); }, nullptr},
    {"garbage_collection_threshold", "a number between 0 and 1, neither of them",
     [](auto t, Config& c) {
       const auto value = ReadFraction(t);
       if (!value || *value <= 0 || *value >= 1) return false;
       c.garbage_collection_threshold = *value;
       return true;
     },
     [](const Config& c) {
       return c.garbage_collection_threshold == 0 ? "" : fmt::format("{}", c.garbage_collection_threshold);
     }},
    {"roundup_power2_divisions",
     "0 or a power of two, or a list like [256:1,512:2,>:4] of sizes in MiB (ascending powers of two up to 32768, last "
     "perhaps >) with such a number each",
     [](auto t, Config& c) { return ReadDivisions(t, c.roundup_power2_divisions); },
     [](const Config& c) { return ShowDivisions(c.roundup_power2_divisions); }},
    {"expandable_segments", kBoolText, [](auto t, Config& c) { return ReadBool(t, c.expandable_segments); },
     [](const Config& c) { return ShowBool(c.expandable_segments); }, true},
    {"page_size", "1g",
     [](auto t, Config& c) {
       if (t == "1g") c.expandable_pages_1g = true;
       return t == "1g";
     },
     [](const Config& c) { return std::string(c.expandable_pages_1g ? "1g" : ""); }},
    {"base_addr_aligned_kb", "a number of KiB from 0 to 16",
     [](auto t, Config& c) { return ReadSize(t, kKiB, 0, 16, c.base_addr_aligned); },
     [](const Config& c) { return fmt::format("{}", c.base_addr_aligned / kKiB); }},
    {"multi_stream_lazy_reclaim", kBoolText, [](auto t, Config& c) { return ReadBool(t, c.multi_stream_lazy_reclaim); },
     [](const Config& c) { return ShowBool(c.multi_stream_lazy_reclaim); }},
    {"per_process_memory_fraction", "a number from 0 to 1",
     [](auto t, Config& c) {
       const auto value = ReadFraction(t);
       if (!value || *value < 0 || *value > 1) return false;
       c.per_process_memory_fraction = *value;
       return true;
     },
     [](const Config& c) { return fmt::format("{}", c.per_process_memory_fraction); }, true},
    {"release_lock_on_npumalloc", kBoolText, [](auto t, Config& c) { return ReadBool(t, c.release_lock_on_malloc); },
     [](const Config& c) { return ShowBool(c.release_lock_on_malloc); }, true},
    {"throw_on_npumalloc_oom", kBoolText, [](auto t, Config& c) { return ReadBool(t, c.throw_on_oom); },
     [](const Config& c) { return ShowBool(c.throw_on_oom); }, true},
    {"graph_capture_record_stream_reuse", kBoolText,
     [](auto t, Config& c) { return ReadBool(t, c.graph_capture_record_stream_reuse); },
     [](const Config& c) { return ShowBool(c.graph_capture_record_stream_reuse); }, true},
    {"pinned_use_background_threads", kBoolText,
     [](auto t, Config& c) { return ReadBool(t, c.pinned_use_background_threads); },
     [](const Config& c) { return ShowBool(c.pinned_use_background_threads); }},
    {"pinned_max_round_threshold_mb", kMiBText,
     [](auto t, Config& c) { return ReadSize(t, kMiB, 0, kMostMiB, c.pinned_max_round_threshold); },
     [](const Config& c) { return ShowMiB(c.pinned_max_round_threshold); }, true},
    {"pinned_max_cached_size_mb", kMiBText,
     [](auto t, Config& c) { return ReadSize(t, kMiB, 0, kMostMiB, c.pinned_max_cached_size); },
     [](const Config& c) { return ShowMiB(c.pinned_max_cached_size); }, true},
    {"pinned_mem_register", kBoolText, [](auto t, Config& c) { return ReadBool(t, c.pinned_mem_register); },
     [](const Config& c) { return ShowBool(c.pinned_mem_register); }},
    {"pinned_reserve_segment_size_mb", kMiBText,
     [](auto t, Config& c) { return ReadSize(t, kMiB, 0, kMostMiB, c.pinned_reserve_segment_size); },
     [](const Config& c) { return ShowMiB(c.pinned_reserve_segment_size); }},
    {"pin_memory_expandable_segments", kBoolText,
     [](auto t, Config& c) { return ReadBool(t, c.pin_memory_expandable_segments); },
     [](const Config& c) { return ShowBool(c.pin_memory_expandable_segments); }},
};

size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

Status UnknownKey(std::string_view name) {
  // The names of long texts are not worth comparing.
  const Key* nearest = &kKeys[0];
  std::string all;
  for (const Key& key : kKeys) {
    if (name.size() < 100 && Distance(name, key.name) < Distance(name, nearest->name)) nearest = &key;
    all += fmt::format("{}{}", all.empty() ? "" : ", ", key.name);
  }
  const bool near = name.size() < 100 && Distance(name, nearest->name) <= std::max<size_t>(3, name.size() / 3);
  return Error(kInvalidValue, fmt::format("the settings of the allocators know no key '{}'", name))
      .Culprit(fmt::format("key '{}'", name))
      .Hint(near ? fmt::format("did you mean {}?", nearest->name) : fmt::format("use one of {}", all));
}

}  // namespace

namespace {

// Reads the list into `config`; `named` hears of each key.
template <class Named>
Status ReadList(std::string_view text, Config& config, Named named) {
  for (const std::string_view entry : Split(text, ',')) {
    // A list that was put together from an empty variable begins or ends with a comma.
    if (entry.empty()) continue;
    const size_t colon = entry.find(':');
    const std::string_view name = Trim(entry.substr(0, colon));
    const auto key = std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& k) { return name == k.name; });
    if (key == std::end(kKeys)) return UnknownKey(name);
    REPRISE_RETURN_IF_ERROR(named(*key));
    const std::string_view value = colon == std::string_view::npos ? std::string_view() : Trim(entry.substr(colon + 1));
    if (!key->read(value, config)) {
      return Error(kInvalidValue, fmt::format("'{}' is no value for {}", value, name))
          .Culprit(fmt::format("'{}' in the settings of the allocators", entry))
          .Hint(fmt::format("{} takes {}", name, key->allowed));
    }
  }
  return {};
}

// The ranges of expandable segments are neither split nor collected.
Status ExcludeEachOther(bool max_split, std::string_view text) {
  const char* other = max_split ? "max_split_size_mb" : "garbage_collection_threshold";
  return Error(kInvalidValue, fmt::format("expandable_segments:True and {} exclude each other", other))
      .Culprit(fmt::format("'{}' in the settings of the allocators", Trim(text)))
      .Hint(fmt::format("leave out {} or expandable_segments", other));
}

}  // namespace

StatusOr<Config> Config::Parse(std::string_view text) {
  Config config;
  bool max_split = false;
  bool collection = false;
  REPRISE_RETURN_IF_ERROR(ReadList(text, config, [&](const Key& key) -> Status {
    const std::string_view name = key.name;
    max_split |= name == "max_split_size_mb";
    collection |= name == "garbage_collection_threshold";
    return {};
  }));
  if (config.expandable_segments && (max_split || collection)) return ExcludeEachOther(max_split, text);
  return config;
}

StatusOr<Config::Change> Config::ChangedBy(std::string_view text) const {
  Change change{*this};
  REPRISE_RETURN_IF_ERROR(ReadList(text, change.config, [&](const Key& key) -> Status {
    change.names_fraction |= std::string_view(key.name) == "per_process_memory_fraction";
    if (key.is_changeable) return {};
    std::string all;
    for (const Key& other : kKeys) {
      if (other.is_changeable) all += fmt::format("{}{}", all.empty() ? "" : ", ", other.name);
    }
    return Error(kInvalidValue,
                 fmt::format("{} is read when the allocators are made, and cannot change after that", key.name))
        .Culprit(fmt::format("key '{}'", key.name))
        .Hint(fmt::format("set it in {} before the program starts; these may change: {}",
                          EnvName(EnvVar::kNpuAllocConf), all));
  }));
  const bool max_split = change.config.max_split_size != UINT64_MAX;
  if (change.config.expandable_segments && (max_split || change.config.garbage_collection_threshold > 0)) {
    return ExcludeEachOther(max_split, text);
  }
  return change;
}

StatusOr<Config> Config::FromEnvironment() {
  const std::string& ours = Env(EnvVar::kNpuAllocConf);
  const std::string& shared = Env(EnvVar::kAllocConf);
  if (!ours.empty() && !shared.empty()) {
    return Error(kInvalidValue,
                 fmt::format("both {} and {} are set", EnvName(EnvVar::kNpuAllocConf), EnvName(EnvVar::kAllocConf)))
        .Culprit(fmt::format("{}='{}' and {}='{}'", EnvName(EnvVar::kNpuAllocConf), ours, EnvName(EnvVar::kAllocConf),
                             shared))
        .Hint("unset one of the two variables");
  }
  const EnvVar set = ours.empty() ? EnvVar::kAllocConf : EnvVar::kNpuAllocConf;
  StatusOr<Config> config = Parse(Env(set));
  if (!config.ok()) {
    const Status status = std::move(config).status();
    Status::Detail detail = status.detail();
    detail.culprit += fmt::format(", which {} holds", EnvName(set));
    return Status(std::move(detail));
  }
  config->no_cache = !Env(EnvVar::kNoMemoryCaching).empty();
  return config;
}

std::vector<std::pair<std::string, std::string>> Config::Settings() const {
  std::vector<std::pair<std::string, std::string>> settings = AllSettings();
  std::erase_if(settings, [](const auto& setting) { return setting.second.empty(); });
  return settings;
}

std::vector<std::pair<std::string, std::string>> Config::AllSettings() const {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const Key& key : kKeys) {
    if (key.show != nullptr) settings.emplace_back(key.name, key.show(*this));
  }
  settings.emplace_back(EnvName(EnvVar::kNoMemoryCaching), no_cache ? "1" : "");
  return settings;
}

}  // namespace reprise::memory
