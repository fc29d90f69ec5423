// SPDX-License-Identifier: Apache-2.0
//
// Functions that callers look up by name: those of sessions once more, prototypes, streams of a compiled graph.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "call.h"
#include "ge/access.h"
#include "ge/ge_api.h"

using namespace reprise::ge_runner;  // NOLINT: its functions are all that follows uses
namespace engine = reprise::engine;
using reprise::runtime::Api;

namespace {

using Pairs = std::vector<std::pair<ge::AscendString, ge::AscendString>>;

Pairs PairsOf(const ge::IrDefinition::Entries& entries) {
  Pairs pairs;
  for (const auto& [name, kind] : entries) pairs.emplace_back(name.c_str(), kind.c_str());
  return pairs;
}

// A value of each logical stream, by name of graph.
template <class T, class Read>
ge::Status ForEachStream(const char* api, const ge::CompiledGraphSummary& summary,
                         std::map<ge::AscendString, std::vector<T>>& values, Read read) {
  return static_cast<ge::Status>(Api(api, [&]() -> reprise::Status {
    values.clear();
    std::shared_ptr<ge::StreamAllocationSummary> streams;
    static_cast<void>(summary.GetStreamAllocationSummary(streams));
    for (const auto& [name, infos] : streams->GetAllLogicalStreamInfos()) {
      for (const ge::LogicalStreamAllocationInfo& info : infos) values[name].push_back(read(info));
    }
    return {};
  }));
}

}  // namespace

extern "C" {

ge::Status GeSessionLoadGraph(ge::Session& session, uint32_t graph_id, const AscendStringMap& options, void* stream) {
  return session.LoadGraph(graph_id, options, stream);
}
ge::Status GeSessionExecuteGraphWithStreamAsync(ge::Session& session, uint32_t graph_id, void* stream,
                                                const std::vector<gert::Tensor>& inputs,
                                                std::vector<gert::Tensor>& outputs) {
  return session.ExecuteGraphWithStreamAsync(graph_id, stream, inputs, outputs);
}
ge::Status GeSessionGraphDebugJSONPrint(const ge::Session& session, uint32_t graph_id, uint32_t flags,
                                        ge::AscendString& json) {
  return session.GraphDebugJSONPrint(graph_id, flags, json);
}

ge::Status GetRegisteredIrDef(const char* op_type, Pairs& inputs, Pairs& outputs, Pairs& attrs) {
  return static_cast<ge::Status>(Api("GetRegisteredIrDef", [&]() -> reprise::Status {
    auto definition = ge::GraphAccess::DefinitionOf(op_type != nullptr ? op_type : "");
    if (!definition.ok()) {
      return engine::Fail(engine::kFailed, engine::kBadValue,
                          op_type == nullptr ? "op_type is null" : fmt::format("no operator has the type {}", op_type))
          .Culprit("parameter op_type")
          .Hint("pass a type such as MatMulV2");
    }
    inputs = PairsOf(definition->inputs);
    outputs = PairsOf(definition->outputs);
    attrs = PairsOf(definition->attributes);
    return {};
  }));
}

ge::Status GEStreamAllocationSummaryGetStringInfos(const ge::CompiledGraphSummary& summary,
                                                   std::map<ge::AscendString, std::vector<ge::AscendString>>& infos) {
  return ForEachStream("GEStreamAllocationSummaryGetStringInfos", summary, infos,
                       [](const ge::LogicalStreamAllocationInfo& info) { return info.ToStringInfo(); });
}
ge::Status GEStreamAllocationSummaryGetLogicalStreamIds(const ge::CompiledGraphSummary& summary,
                                                        std::map<ge::AscendString, std::vector<int64_t>>& ids) {
  return ForEachStream("GEStreamAllocationSummaryGetLogicalStreamIds", summary, ids,
                       [](const ge::LogicalStreamAllocationInfo& info) { return info.GetLogicalStreamId(); });
}
ge::Status GEStreamAllocationSummaryGetUsrStreamLabels(
    const ge::CompiledGraphSummary& summary, std::map<ge::AscendString, std::vector<ge::AscendString>>& labels) {
  return ForEachStream("GEStreamAllocationSummaryGetUsrStreamLabels", summary, labels,
                       [](const ge::LogicalStreamAllocationInfo& info) { return info.GetUsrStreamLabel(); });
}
ge::Status GEStreamAllocationSummaryIsAssignedByStreamPass(const ge::CompiledGraphSummary& summary,
                                                           std::map<ge::AscendString, std::vector<bool>>& assigned) {
  return ForEachStream("GEStreamAllocationSummaryIsAssignedByStreamPass", summary, assigned,
                       [](const ge::LogicalStreamAllocationInfo& info) { return info.IsAssignedByStreamPass(); });
}
ge::Status GEStreamAllocationSummaryGetAttachedStreamIds(
    const ge::CompiledGraphSummary& summary, std::map<ge::AscendString, std::vector<std::vector<int64_t>>>& ids) {
  return ForEachStream("GEStreamAllocationSummaryGetAttachedStreamIds", summary, ids,
                       [](const ge::LogicalStreamAllocationInfo& info) { return info.GetAttachedStreamIds(); });
}
ge::Status GEStreamAllocationSummaryGetPhysicalStreamNums(const ge::CompiledGraphSummary& summary,
                                                          std::map<ge::AscendString, std::vector<int64_t>>& numbers) {
  return ForEachStream(
      "GEStreamAllocationSummaryGetPhysicalStreamNums", summary, numbers,
      [](const ge::LogicalStreamAllocationInfo& info) { return static_cast<int64_t>(info.GetPhysicalStreamNum()); });
}
ge::Status GEStreamAllocationSummaryGetHcclFollowedStreamNums(
    const ge::CompiledGraphSummary& summary, std::map<ge::AscendString, std::vector<int64_t>>& numbers) {
  return ForEachStream(
      "GEStreamAllocationSummaryGetHcclFollowedStreamNums", summary, numbers,
      [](const ge::LogicalStreamAllocationInfo& info) { return static_cast<int64_t>(info.GetHcclFollowedStreamNum()); });
}
ge::Status GEStreamAllocationSummaryGetAllNodes(
    const ge::CompiledGraphSummary& summary,
    std::map<ge::AscendString, std::vector<std::vector<ge::AscendString>>>& nodes) {
  return ForEachStream("GEStreamAllocationSummaryGetAllNodes", summary, nodes,
                       [](const ge::LogicalStreamAllocationInfo& info) { return info.GetAllNodes(); });
}
ge::Status GEStreamAllocationSummaryGetStreamGraphs(const ge::CompiledGraphSummary& summary,
                                                    std::map<ge::AscendString, std::vector<ge::AscendString>>& graphs) {
  return static_cast<ge::Status>(Api("GEStreamAllocationSummaryGetStreamGraphs", [&]() -> reprise::Status {
    graphs.clear();
    std::shared_ptr<ge::StreamAllocationSummary> streams;
    static_cast<void>(summary.GetStreamAllocationSummary(streams));
    for (const auto& [name, text] : streams->ToStreamGraph()) graphs[name].push_back(text);
    return {};
  }));
}
}
