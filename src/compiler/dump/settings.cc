// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/env.h"
#include "base/log.h"
#include "compiler/dump/dump.h"

namespace reprise::compiler {
namespace {

// What level 2 takes, beside stages whose names contain one of kUsualParts.
constexpr std::string_view kUsual[] = {"PreRunBegin",
                                       "RunCustomPassBeforeInfershape",
                                       "PreRunAfterNormalizeGraph",
                                       "AfterInfershape",
                                       "RunCustomPass_AfterInferShape",
                                       "PreRunAfterPrepare",
                                       "PreRunAfterOptimizeOriginalGraph",
                                       "PreRunAfterOptimizeAfterStage1",
                                       "PreRunAfterOptimizeSubgraph",
                                       "PreRunAfterOptimizeGraphBeforeBuild",
                                       "Build",
                                       "ComputeGraphBeforeLowering",
                                       "ExeGraphBeforeOptimize",
                                       "ExecuteGraphAfterSplit"};
constexpr std::string_view kUsualParts[] = {"AutoFuseBeforeOptimize", "AutoFuseAfterOptimize", "RunCustomPass"};
constexpr std::string_view kFirst = "PreRunBegin";
constexpr std::string_view kLast = "Build";

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::vector<std::string> PartsOf(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t bar = std::min(text.find('|'), text.size());
    if (bar > 0) parts.emplace_back(text.substr(0, bar));
    text.remove_prefix(std::min(bar + 1, text.size()));
  }
  return parts;
}

std::optional<DumpForm> FormOf(std::string_view name) {
  if (name == "onnx") return DumpForm::kOnnx;
  if (name == "ge_proto") return DumpForm::kProto;
  if (name == "readable") return DumpForm::kReadable;
  return std::nullopt;
}

}  // namespace

bool DumpSettings::Takes(std::string_view stage) const {
  if (!is_on) return false;
  const auto is_part = [stage](std::string_view part) { return Contains(stage, part); };
  switch (level) {
    case 0: return std::any_of(stages.begin(), stages.end(), is_part);
    case 1: return true;
    case 3: return stage == kLast;
    case 4: return stage == kFirst;
    default:
      return std::find(std::begin(kUsual), std::end(kUsual), stage) != std::end(kUsual) ||
             std::any_of(std::begin(kUsualParts), std::end(kUsualParts), is_part);
  }
}

DumpSettings ReadDumpSettings(const DumpVariables& variables, std::vector<std::string>* complaints) {
  DumpSettings settings;
  if (variables.graph == "1") settings.content = Content::kAll;
  if (variables.graph == "3") settings.content = Content::kStructure;
  settings.is_on = variables.graph == "1" || variables.graph == "2" || variables.graph == "3";
  if (!settings.is_on && !variables.graph.empty() && variables.graph != "0") {
    complaints->push_back(fmt::format("DUMP_GE_GRAPH={} is not 1, 2 or 3; nothing is dumped", variables.graph));
  }
  const std::vector<std::string> names = PartsOf(variables.level);
  const auto is_number = [](const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (names.size() == 1 && names[0].size() == 1 && names[0] >= "1" && names[0] <= "4") {
    settings.level = names[0][0] - '0';
  } else if (std::any_of(names.begin(), names.end(), is_number)) {
    complaints->push_back(fmt::format(
        "DUMP_GRAPH_LEVEL={} is neither 1, 2, 3 or 4 nor a list of names of stages; 2 is used", variables.level));
  } else if (!names.empty()) {
    settings.level = 0;
    settings.stages = names;
  }
  for (const std::string& name : PartsOf(variables.form)) {
    const std::optional<DumpForm> form = FormOf(name);
    if (!form) {
      complaints->push_back(fmt::format("DUMP_GRAPH_FORMAT: {} is not onnx, ge_proto or readable", name));
    } else if (std::find(settings.forms.begin(), settings.forms.end(), *form) == settings.forms.end()) {
      settings.forms.push_back(*form);
    }
  }
  if (settings.forms.empty()) settings.forms = {DumpForm::kProto, DumpForm::kOnnx};
  for (const std::string* const path : {&variables.dump_path, &variables.path, &variables.work_path}) {
    if (settings.folder.empty()) settings.folder = *path;
  }
  return settings;
}

const DumpSettings& TheDumpSettings() {
  static const DumpSettings settings = [] {
    std::vector<std::string> complaints;
    DumpSettings read = ReadDumpSettings({.graph = Env(EnvVar::kDumpGeGraph),
                                          .level = Env(EnvVar::kDumpGraphLevel),
                                          .form = Env(EnvVar::kDumpGraphFormat),
                                          .path = Env(EnvVar::kDumpGraphPath),
                                          .dump_path = Env(EnvVar::kDumpPath),
                                          .work_path = Env(EnvVar::kWorkPath)},
                                         &complaints);
    for (const std::string& text : complaints) REPRISE_LOG(kWarning, "GE", "{}", text);
    return read;
  }();
  return settings;
}

}  // namespace reprise::compiler
