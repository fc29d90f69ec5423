// SPDX-License-Identifier: Apache-2.0
//
// Functions with std::string, which is one type before C++11 and another one since: compiled once for each.
#include <map>
#include <string>
#include <vector>

#include "collector.h"
#include "ge/ge_api.h"

namespace ge {
namespace {

std::map<AscendString, AscendString> Neutral(const std::map<std::string, std::string>& options) {
  std::map<AscendString, AscendString> map;
  for (const auto& option : options) map[AscendString(option.first.c_str())] = AscendString(option.second.c_str());
  return map;
}

}  // namespace

Status GEInitialize(const std::map<std::string, std::string>& options) { return GEInitialize(Neutral(options)); }
std::string GEGetErrorMsg() { return GEGetErrorMsgV2().GetString(); }
std::string GEGetWarningMsg() { return GEGetWarningMsgV2().GetString(); }

Session::Session(const std::map<std::string, std::string>& options) : Session(Neutral(options)) {}
Status Session::AddGraph(uint32_t graph_id, const Graph& graph, const std::map<std::string, std::string>& options) {
  return AddGraph(graph_id, graph, Neutral(options));
}
Status Session::GetVariables(const std::vector<std::string>& var_names, std::vector<Tensor>& var_values) {
  std::vector<AscendString> names;
  for (const std::string& name : var_names) names.emplace_back(name.c_str());
  return GetVariables(names, var_values);
}
Status Session::RegisterCallBackFunc(const std::string& key, const pCallBackFunc& callback) {
  reprise::ge_runner::CollectorCallback collector;
  if (callback != nullptr) {
    collector = [callback](uint32_t graph_id, const std::map<AscendString, Tensor>& values) {
      std::map<std::string, Tensor> named;
      for (const auto& value : values) named.emplace(value.first.GetString(), value.second);
      return callback(graph_id, named);
    };
  }
  return reprise::ge_runner::RegisterCollector(session_id_, key.c_str(), collector);
}

}  // namespace ge
