// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/switches.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace reprise::compiler {
namespace {

using nlohmann::json;

// The next part in front of the mark, without blanks around it.
std::string_view TakePart(std::string_view& text, char mark) {
  const size_t end = std::min(text.find(mark), text.size());
  std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  while (!part.empty() && (part.front() == ' ' || part.front() == '\t')) part.remove_prefix(1);
  while (!part.empty() && (part.back() == ' ' || part.back() == '\t')) part.remove_suffix(1);
  return part;
}

Status WrongFile(std::string_view name, std::string what) {
  return Error(kInvalidArgument, fmt::format("{} {}", name, what))
      .Culprit("option ge.fusionSwitchFile")
      .Hint(R"(write {"Switch": {"GraphFusion": {"ALL": "on", "PassA": "off"}, "UBFusion": {}}})");
}

Status ReadGroup(const json& file, const char* group, std::string_view name, Switches& switches) {
  const auto found = file.find(group);
  if (found == file.end()) return {};
  if (!found->is_object()) return WrongFile(name, fmt::format("has a member {} that is no object", group));
  for (const auto& [pass, value] : found->items()) {
    if (value != "on" && value != "off") {
      return WrongFile(name, fmt::format("says {} of the pass {} in {}, which is neither \"on\" nor \"off\"",
                                         value.dump(-1, ' ', false, json::error_handler_t::replace), pass, group));
    }
    switches[pass] = value == "on";
  }
  return {};
}

}  // namespace

StatusOr<Switches> ParseSwitches(std::string_view text) {
  Switches switches;
  while (!text.empty()) {
    std::string_view part = TakePart(text, ';');
    if (part.empty()) continue;
    const std::string_view whole = part;
    const std::string_view name = TakePart(part, ':');
    const std::string_view word = TakePart(part, ':');
    if (name.empty() || !part.empty() || (word != "on" && word != "off")) {
      return Error(kInvalidArgument, fmt::format("\"{}\" is no switch of a pass", whole))
          .Culprit("option ge.optimizationSwitch")
          .Hint("write names with on or off: \"PassA:on;PassB:off\"");
    }
    switches[std::string(name)] = word == "on";
  }
  return switches;
}

std::vector<std::string> ParseDisabled(std::string_view text, std::vector<std::string>& unknown) {
  std::vector<std::string> disabled;
  while (!text.empty()) {
    const std::string_view name = TakePart(text, ',');
    if (name.empty()) continue;
    (CanBeDisabled(name) ? disabled : unknown).emplace_back(name);
  }
  return disabled;
}

Status ParseSwitchFile(std::string_view text, std::string_view name, PassOptions& options) {
  const json file = json::parse(text, nullptr, false);
  if (file.is_discarded()) return WrongFile(name, "is no JSON");
  if (!file.is_object()) return WrongFile(name, "has no member Switch");
  const auto found = file.find("Switch");
  if (found == file.end() || !found->is_object()) return WrongFile(name, "has no member Switch");
  REPRISE_RETURN_IF_ERROR(ReadGroup(*found, "GraphFusion", name, options.graph_fusions));
  return ReadGroup(*found, "UBFusion", name, options.buffer_fusions);
}

Status ReadSwitchFile(const std::string& path, PassOptions& options) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) return WrongFile("the file " + path, "cannot be read");
  return ParseSwitchFile(text, "the file " + path, options);
}

std::string FusionResult(uint64_t session, uint32_t graph, const PassRecords& records) {
  json graph_fusion = json::object();
  json buffer_fusion = json::object();
  for (const auto& [name, record] : records) {
    const Pass* pass = FindPass(name);
    if (pass == nullptr || pass->group == PassGroup::kPlain || record.matched == 0) continue;
    json counts = {{"match_times", fmt::format("{}", record.matched)},
                   {"effect_times", fmt::format("{}", record.changed)}};
    if (pass->group == PassGroup::kGraphFusion) {
      graph_fusion[name] = std::move(counts);
      continue;
    }
    counts["repository_hit_times"] = "0";
    buffer_fusion[name] = std::move(counts);
  }
  const json result = {{fmt::format("session_and_graph_id_{}_{}", session, graph),
                        {{"graph_fusion", std::move(graph_fusion)}, {"ub_fusion", std::move(buffer_fusion)}}}};
  return result.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace reprise::compiler
