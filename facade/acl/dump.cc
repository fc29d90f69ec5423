// SPDX-License-Identifier: Apache-2.0
//
// The dump that a configuration file describes, and marks for the profiler.
#include "runtime/dump.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "acl/acl.h"
#include "base/log.h"
#include "check.h"
#include "dump_of_file.h"
#include "observe/profiler.h"

namespace reprise::facade {
namespace {

using nlohmann::json;
using runtime::Dump;

constexpr off_t kMostConfigBytes = 1 << 20;
constexpr int kMaxNesting = 16;
constexpr size_t kLongestPath = 4095;

Status BadConfig(const std::string& file, const std::string& culprit, std::string what, std::string hint) {
  return Error(100009, fmt::format("dump configuration \"{}\": {}", file, what))
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

// What the configuration asks for; everything that it says has been looked at.
StatusOr<Dump::Settings> CheckConfig(const std::string& file, const json& config) {
  const auto wrong = [&](const std::string& key, const char* must) {
    return BadConfig(file, fmt::format("key {}", key), fmt::format("{} must be {}", key, must),
                     R"(write {"dump": {"dump_path": "folder", "dump_list": [], "dump_mode": "all"}})");
  };
  const auto dump = config.is_object() ? config.find("dump") : config.end();
  if (!config.is_object() || dump == config.end() || !dump->is_object()) return wrong("dump", "an object");
  Dump::Settings settings;
  if (const auto scene = dump->find("dump_scene"); scene != dump->end()) {
    constexpr std::string_view kScenes[] = {"lite_exception", "aic_err_brief_dump", "aic_err_norm_dump",
                                            "aic_err_detail_dump"};
    if (!scene->is_string() ||
        std::find(std::begin(kScenes), std::end(kScenes), scene->get_ref<const std::string&>()) == std::end(kScenes)) {
      return wrong("dump.dump_scene",
                   "\"lite_exception\", \"aic_err_brief_dump\", \"aic_err_norm_dump\" or \"aic_err_detail_dump\"");
    }
    settings.of_failures = true;
  }
  const auto path = dump->find("dump_path");
  if (path == dump->end() && settings.of_failures) return settings;
  if (path == dump->end() || !path->is_string() || path->get_ref<const std::string&>().empty() ||
      path->get_ref<const std::string&>().size() > kLongestPath ||
      path->get_ref<const std::string&>().find('\0') != std::string::npos) {
    return wrong("dump.dump_path", "the name of a folder");
  }
  if (const auto mode = dump->find("dump_mode"); mode != dump->end()) {
    if (*mode != "input" && *mode != "output" && *mode != "all") {
      return wrong("dump.dump_mode", "\"input\", \"output\" or \"all\"");
    }
  }
  if (const auto list = dump->find("dump_list"); list != dump->end()) {
    if (!list->is_array()) return wrong("dump.dump_list", "an array");
    for (const json& entry : *list) {
      if (!entry.is_object()) return wrong("dump.dump_list", "an array of objects");
      if (const auto name = entry.find("model_name"); name != entry.end() && !name->is_string()) {
        return wrong("dump.dump_list[].model_name", "a text");
      }
      const auto layers = entry.find("layer");
      if (layers == entry.end()) continue;
      if (!layers->is_array() ||
          !std::all_of(layers->begin(), layers->end(), [](const json& layer) { return layer.is_string(); })) {
        return wrong("dump.dump_list[].layer", "an array of texts");
      }
    }
  }
  settings.folder = path->get<std::string>();
  return settings;
}

Status NoFolder(const std::string& file, Status configured) {
  if (configured.code() != 100003) return configured;
  return BadConfig(file, "key dump.dump_path", configured.detail().what, "name a folder that can be written to");
}

}  // namespace

Status StartDumpOfFile(const std::string& file, const std::string& text) {
  REPRISE_ASSIGN_OR_RETURN(const json config, Parse(file, text));
  const auto dump = config.find("dump");
  if (dump == config.end() || *dump == json::object()) return {};
  REPRISE_ASSIGN_OR_RETURN(const Dump::Settings settings, CheckConfig(file, config));
  REPRISE_RETURN_IF_ERROR(NoFolder(file, Dump::Get().StartOfFile(settings)));
  for (const auto& [key, value] : dump->items()) {
    if (key == "dump_path" || key == "dump_scene" || value == json::array()) continue;
    REPRISE_LOG(
        kWarning, "ASCENDCL", "configuration key dump.{} is accepted and has no effect: {}", key,
        settings.of_failures ? "what belongs to a failed task is saved" : "the arguments of all launches are written");
  }
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
      return Error(107000, fmt::format("userdata {} does not point to {} readable bytes", fmt::ptr(userdata), length))
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
    return observe::Profiler::MarkOn(*on, name, false);
  });
}
