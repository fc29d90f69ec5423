// SPDX-License-Identifier: Apache-2.0
//
// The dump that a configuration file describes, and marks for the profiler.
#include "runtime/dump.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "base/log.h"
#include "check.h"
#include "dump_of_file.h"
#include "profile/profiler.h"

namespace reprise::facade {
namespace {

using nlohmann::json;
using runtime::Dump;

constexpr off_t kMostConfigBytes = 1 << 20;
constexpr int kMaxNesting = 16;
constexpr size_t kLongestPath = 4095;

Status BadConfig(const std::string& file, const std::string& culprit, std::string what, std::string hint) {
  return Error(kInvalidDumpConfig, fmt::format("dump configuration \"{}\": {}", file, what))
      .Culprit(culprit.empty() ? fmt::format("file \"{}\"", file) : fmt::format("{} of \"{}\"", culprit, file))
      .Hint(std::move(hint));
}

StatusOr<std::string> ReadText(const std::string& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0) {
    return BadConfig(file, "", fmt::format("cannot be read: {}", std::strerror(errno)), "check the path");
  }
  // Before it is opened: a pipe would never end.
  if (!S_ISREG(found.st_mode)) return BadConfig(file, "", "is no regular file", "pass the path of a JSON file");
  if (found.st_size > kMostConfigBytes) {
    return BadConfig(file, "", fmt::format("has {} bytes, must have at most {}", found.st_size, kMostConfigBytes),
                     "pass the path of a dump configuration");
  }
  std::string text(static_cast<size_t>(found.st_size), '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(text.data(), found.st_size);
  text.resize(static_cast<size_t>(in.gcount()));
  if (in.bad() || (!in && text.empty() && found.st_size != 0)) {
    return BadConfig(file, "", "cannot be read", "check the permissions");
  }
  return text;
}

Status TooDeep(const std::string& file) {
  return BadConfig(file, "", fmt::format("is nested more than {} levels deep", kMaxNesting), "nest less deeply");
}

StatusOr<json> Parse(const std::string& file, const std::string& text) {
  bool too_deep = false;
  try {
    json parsed = json::parse(text, [&](int depth, json::parse_event_t event, json&) {
      too_deep =
          too_deep || ((event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) &&
                       depth >= kMaxNesting);
      return !too_deep;
    });
    if (!too_deep) return parsed;
  } catch (const json::exception& error) {
    if (too_deep) return TooDeep(file);
    const auto* where = dynamic_cast<const json::parse_error*>(&error);
    const size_t byte = where != nullptr ? std::min(where->byte, text.size()) : 0;
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(byte), '\n');
    return BadConfig(file, fmt::format("line {}", line), fmt::format("line {} is no valid JSON", line),
                     "correct the JSON text at that line");
  }
  return TooDeep(file);
}

// The key dump of a configuration, read key by key. What a key says is honoured, or refused.
class DumpSection {
 public:
  DumpSection(const std::string& file, const json& section) : file_(file), section_(section) {}

  StatusOr<Dump::Settings> Read() {
    bool is_watcher = false;
    REPRISE_RETURN_IF_ERROR(ReadScene(&is_watcher));
    REPRISE_RETURN_IF_ERROR(ReadPath());
    REPRISE_RETURN_IF_ERROR(ReadWhat());
    REPRISE_RETURN_IF_ERROR(ReadSteps());
    REPRISE_RETURN_IF_ERROR(ReadStatistics());
    REPRISE_RETURN_IF_ERROR(ReadList());
    REPRISE_RETURN_IF_ERROR(ReadSwitches());
    if (settings_.scene != Dump::Scene::kNone) return std::move(settings_);
    if (is_watcher) {
      REPRISE_RETURN_IF_ERROR(CheckWatcher());
    } else if (!settings_.data.watched.empty()) {
      return Wrong("dump_list[].watcher_nodes", "left out unless dump_scene is \"watcher\"");
    }
    return std::move(settings_);
  }

 private:
  Status Wrong(const std::string& key, const std::string& must) const {
    return BadConfig(file_, fmt::format("key dump.{}", key), fmt::format("dump.{} must be {}", key, must),
                     R"(write {"dump": {"dump_path": "folder", "dump_list": [], "dump_mode": "all"}})");
  }
  const json* Find(const char* key) const {
    const auto found = section_.find(key);
    return found != section_.end() ? &*found : nullptr;
  }
  // One of a few words; null where the key is missing.
  Status ReadWord(const char* key, std::initializer_list<const char*> words, const char** word) const {
    *word = nullptr;
    const json* value = Find(key);
    if (value == nullptr) return {};
    for (const char* known : words) {
      if (*value == known) *word = known;
    }
    if (*word != nullptr) return {};
    std::string must;
    for (const char* known : words) {
      if (!must.empty()) must += known == *(words.end() - 1) ? " or " : ", ";
      must += fmt::format("\"{}\"", known);
    }
    return Wrong(key, must);
  }

  Status ReadScene(bool* is_watcher) {
    const char* scene = nullptr;
    REPRISE_RETURN_IF_ERROR(ReadWord(
        "dump_scene",
        {"exception", "lite_exception", "aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump", "watcher"},
        &scene));
    if (scene == nullptr) return {};
    const std::string_view name = scene;
    *is_watcher = name == "watcher";
    if (*is_watcher) return {};
    settings_.scene = name == "aic_err_detail_dump"                        ? Dump::Scene::kDetail
                      : name == "aic_err_norm_dump" || name == "exception" ? Dump::Scene::kNormal
                                                                           : Dump::Scene::kBrief;
    return {};
  }

  Status ReadPath() {
    const json* path = Find("dump_path");
    if (path == nullptr && settings_.scene != Dump::Scene::kNone) return {};
    if (path == nullptr || !path->is_string() || path->get_ref<const std::string&>().empty() ||
        path->get_ref<const std::string&>().size() > kLongestPath ||
        path->get_ref<const std::string&>().find('\0') != std::string::npos) {
      return Wrong("dump_path", "the name of a folder");
    }
    settings_.folder = path->get<std::string>();
    return {};
  }

  Status ReadWhat() {
    const char* mode = nullptr;
    REPRISE_RETURN_IF_ERROR(ReadWord("dump_mode", {"input", "output", "all"}, &mode));
    const std::string_view what = mode != nullptr ? mode : "output";
    settings_.data.inputs = what != "output";
    settings_.data.outputs = what != "input";
    const char* level = nullptr;
    REPRISE_RETURN_IF_ERROR(ReadWord("dump_level", {"op", "kernel", "all"}, &level));
    const std::string_view levels = level != nullptr ? level : "all";
    settings_.data.operators = levels != "kernel";
    settings_.data.kernels = levels != "op";
    return {};
  }

  // "0|5-8".
  Status ReadSteps() {
    constexpr size_t kMostRanges = 100;
    const json* steps = Find("dump_step");
    if (steps == nullptr || *steps == "") return {};
    const Status wrong = Wrong("dump_step", "numbers of executions from 0 on, or ranges of them, such as \"0|5-8\"");
    if (!steps->is_string()) return wrong.Clone();
    std::string_view rest = steps->get_ref<const std::string&>();
    const auto number = [](std::string_view text, uint64_t* out) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
      return !text.empty() && error == std::errc() && end == text.data() + text.size();
    };
    for (bool more = true; more;) {
      const size_t bar = rest.find('|');
      more = bar != std::string_view::npos;
      const std::string_view part = rest.substr(0, bar);
      const size_t dash = part.find('-');
      std::pair<uint64_t, uint64_t> range;
      if (!number(part.substr(0, dash), &range.first)) return wrong.Clone();
      range.second = range.first;
      if (dash != std::string_view::npos && !number(part.substr(dash + 1), &range.second)) return wrong.Clone();
      if (range.second < range.first) return wrong.Clone();
      settings_.data.steps.push_back(range);
      if (settings_.data.steps.size() > kMostRanges) {
        return Wrong("dump_step", fmt::format("at most {} numbers and ranges", kMostRanges));
      }
      if (more) rest = rest.substr(bar + 1);
    }
    return {};
  }

  Status ReadStatistics() {
    const char* data = nullptr;
    REPRISE_RETURN_IF_ERROR(ReadWord("dump_data", {"tensor", "stats"}, &data));
    settings_.data.statistics = data != nullptr && std::string_view(data) == "stats";
    const json* columns = Find("dump_stats");
    if (columns == nullptr) return {};
    constexpr std::string_view kKnown[] = {"Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm"};
    if (!settings_.data.statistics) return Wrong("dump_stats", "left out unless dump_data is \"stats\"");
    if (!columns->is_array() || columns->empty()) return Wrong("dump_stats", "an array of texts");
    for (const json& column : *columns) {
      const bool known = column.is_string() && std::find(std::begin(kKnown), std::end(kKnown),
                                                         column.get_ref<const std::string&>()) != std::end(kKnown);
      if (!known) return Wrong("dump_stats", fmt::format("an array of \"{}\"", fmt::join(kKnown, "\", \"")));
      settings_.data.columns.insert(column.get<std::string>());
    }
    return {};
  }

  Status ReadNames(const json& entry, const char* key, std::vector<std::string>* names) const {
    const auto found = entry.find(key);
    if (found == entry.end()) return {};
    if (!found->is_array() || !std::all_of(found->begin(), found->end(), [](const json& n) { return n.is_string(); })) {
      return Wrong(fmt::format("dump_list[].{}", key), "an array of texts");
    }
    for (const json& name : *found) names->push_back(name.get<std::string>());
    return {};
  }

  // [{"name": "Add", "pos": ["input0"]}]
  Status ReadWithout(const json& entry, const char* key, std::vector<runtime::DataDumpOptions::Without>* out) const {
    const auto found = entry.find(key);
    if (found == entry.end()) return {};
    const Status wrong =
        Wrong(fmt::format("dump_list[].{}", key), R"(an array like [{"name": "Add", "pos": ["input0"]}])");
    if (!found->is_array()) return wrong.Clone();
    for (const json& one : *found) {
      const auto name = one.is_object() ? one.find("name") : one.end();
      if (!one.is_object() || name == one.end() || !name->is_string()) return wrong.Clone();
      runtime::DataDumpOptions::Without without{name->get<std::string>(), {}};
      if (const auto positions = one.find("pos"); positions != one.end()) {
        if (!positions->is_array()) return wrong.Clone();
        for (const json& position : *positions) {
          if (!position.is_string()) return wrong.Clone();
          without.positions.insert(position.get<std::string>());
        }
      }
      out->push_back(std::move(without));
    }
    return {};
  }

  Status ReadList() {
    const json* list = Find("dump_list");
    if (list == nullptr) return {};
    if (!list->is_array()) return Wrong("dump_list", "an array");
    for (const json& entry : *list) {
      if (!entry.is_object()) return Wrong("dump_list", "an array of objects");
      runtime::DataDumpOptions::Layers layers;
      if (const auto name = entry.find("model_name"); name != entry.end()) {
        if (!name->is_string()) return Wrong("dump_list[].model_name", "a text");
        layers.model = name->get<std::string>();
      }
      REPRISE_RETURN_IF_ERROR(ReadNames(entry, "layer", &layers.layers));
      REPRISE_RETURN_IF_ERROR(ReadNames(entry, "watcher_nodes", &settings_.data.watched));
      REPRISE_RETURN_IF_ERROR(ReadWithout(entry, "optype_blacklist", &settings_.data.without_types));
      REPRISE_RETURN_IF_ERROR(ReadWithout(entry, "opname_blacklist", &settings_.data.without_names));
      if (entry.contains("opname_range")) {
        return Wrong("dump_list[].opname_range", "left out: graphs have no order of names here; list them as layer");
      }
      settings_.data.list.push_back(std::move(layers));
    }
    return {};
  }

  Status ReadSwitches() {
    const char* debug = nullptr;
    REPRISE_RETURN_IF_ERROR(ReadWord("dump_debug", {"on", "off"}, &debug));
    if (debug != nullptr && std::string_view(debug) == "on") {
      return Wrong("dump_debug",
                   "\"off\": this device has no overflow flags of operators; dump_data \"stats\" counts "
                   "infinities and nans");
    }
    const char* single = nullptr;
    REPRISE_RETURN_IF_ERROR(ReadWord("dump_op_switch", {"on", "off"}, &single));
    settings_.data.single = single != nullptr ? std::string_view(single) == "on" : settings_.data.list.empty();
    // Without dump_list single operators are meant, or, where nothing is said at all, everything.
    settings_.data.graphs = !settings_.data.list.empty() || single == nullptr;
    if (!settings_.data.single && !settings_.data.graphs) {
      return Wrong("dump_op_switch", "\"on\" while dump_list is empty: nothing would be dumped");
    }
    return {};
  }

  Status CheckWatcher() const {
    if (!settings_.data.outputs || settings_.data.inputs) {
      return Wrong("dump_mode", "\"output\" while dump_scene is \"watcher\"");
    }
    if (const json* single = Find("dump_op_switch"); single != nullptr && *single == "on") {
      return Wrong("dump_op_switch", "\"off\" while dump_scene is \"watcher\"");
    }
    const bool has_layers = std::any_of(settings_.data.list.begin(), settings_.data.list.end(),
                                        [](const auto& entry) { return !entry.layers.empty(); });
    if (settings_.data.watched.empty() || !has_layers) {
      return Wrong("dump_list", R"([{"layer": ["Add"], "watcher_nodes": ["Mul"]}] while dump_scene is "watcher")");
    }
    return {};
  }

  const std::string& file_;
  const json& section_;
  Dump::Settings settings_;
};

// What the configuration asks for; everything that it says has been looked at.
StatusOr<Dump::Settings> CheckConfig(const std::string& file, const json& config) {
  const auto dump = config.is_object() ? config.find("dump") : config.end();
  if (!config.is_object() || dump == config.end() || !dump->is_object()) {
    return BadConfig(file, "key dump", "dump must be an object",
                     R"(write {"dump": {"dump_path": "folder", "dump_list": [], "dump_mode": "all"}})");
  }
  constexpr std::string_view kKnown[] = {"dump_path",      "dump_mode",  "dump_level",    "dump_step",
                                         "dump_data",      "dump_stats", "dump_list",     "dump_debug",
                                         "dump_op_switch", "dump_scene", "quant_dumpable"};
  REPRISE_ASSIGN_OR_RETURN(Dump::Settings settings, DumpSection(file, *dump).Read());
  for (const auto& [key, value] : dump->items()) {
    const bool is_known = std::find(std::begin(kKnown), std::end(kKnown), key) != std::end(kKnown);
    const bool is_for_data = key != "dump_path" && key != "dump_scene";
    if (!is_known) {
      REPRISE_LOG(kWarning, "ASCENDCL", "dump configuration \"{}\": no key of dump is called {}; it is ignored", file,
                  key);
    } else if (settings.scene != Dump::Scene::kNone && is_for_data && value != json::array()) {
      REPRISE_LOG(kWarning, "ASCENDCL",
                  "dump configuration \"{}\": dump.{} has no effect, as dump_scene asks for failed tasks alone", file,
                  key);
    }
  }
  return settings;
}

Status NoFolder(const std::string& file, Status configured) {
  if (configured.code() != kInvalidFile) return configured;
  return BadConfig(file, "key dump.dump_path", configured.detail().what, "name a folder that can be written to");
}

}  // namespace

Status StartDumpOfFile(const std::string& file, const std::string& text) {
  REPRISE_RETURN_IF_ERROR(Dump::Get().StartOfEnvironment());
  REPRISE_ASSIGN_OR_RETURN(const json config, Parse(file, text));
  const auto dump = config.find("dump");
  if (dump == config.end() || *dump == json::object()) return {};
  REPRISE_ASSIGN_OR_RETURN(const Dump::Settings settings, CheckConfig(file, config));
  REPRISE_RETURN_IF_ERROR(NoFolder(file, Dump::Get().StartOfFile(settings)));
  return {};
}

Status EndDumpOfFile() { return Dump::Get().EndOfFile(); }

}  // namespace reprise::facade

using namespace reprise;          // NOLINT: a file of C functions
using namespace reprise::facade;  // NOLINT

aclError aclmdlInitDump() {
  return runtime::Api("aclmdlInitDump", []() -> Status { return runtime::Dump::Get().Init(); });
}

aclError aclmdlSetDump(const char* dumpCfgPath) {
  return runtime::Api("aclmdlSetDump", [&]() -> Status {
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(dumpCfgPath, "dumpCfgPath"));
    REPRISE_RETURN_IF_ERROR(Dump::Get().CheckInit());
    const std::string file(dumpCfgPath, strnlen(dumpCfgPath, kLongestPath + 1));
    REPRISE_ASSIGN_OR_RETURN(const std::string text, ReadText(file));
    REPRISE_ASSIGN_OR_RETURN(const json config, Parse(file, text));
    REPRISE_ASSIGN_OR_RETURN(const Dump::Settings settings, CheckConfig(file, config));
    return NoFolder(file, Dump::Get().Configure(settings));
  });
}

aclError aclmdlFinalizeDump() {
  return runtime::Api("aclmdlFinalizeDump", []() -> Status { return runtime::Dump::Get().Finalize(); });
}

aclError aclrtProfTrace(void* userdata, int32_t length, aclrtStream stream) {
  return runtime::Api("aclrtProfTrace", [&]() -> Status {
    constexpr int32_t kLongest = 1024;  // more is no mark
    constexpr size_t kShown = 64;
    REPRISE_RETURN_IF_ERROR(runtime::NotNull(userdata, "userdata"));
    REPRISE_RETURN_IF_ERROR(InRange(length, 1, kLongest, "length"));
    REPRISE_ASSIGN_OR_RETURN(runtime::Stream * on, runtime::FindStream(stream));
    std::string data(static_cast<size_t>(length), '\0');
    if (!device::CopyUntrusted(data.data(), userdata, data.size())) {
      return Error(kInvalidValue,
                   fmt::format("userdata {} does not point to {} readable bytes", fmt::ptr(userdata), length))
          .Culprit("parameters userdata and length")
          .Hint("pass the address of the data and its size");
    }
    // Text as text, other data as hexadecimal digits.
    std::string_view text(data.data(), strnlen(data.data(), data.size()));
    const bool printable = !text.empty() &&
                           std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c != 0x7F; }) &&
                           data.find_first_not_of('\0', text.size()) == std::string::npos;
    const auto* bytes = reinterpret_cast<const unsigned char*>(data.data());
    const std::string name =
        printable ? std::string(text)
                  : fmt::format("data {:02x}", fmt::join(bytes, bytes + std::min(data.size(), kShown), ""));
    return reprise::profile::Profiler::MarkOn(*on, name, false);
  });
}
