// SPDX-License-Identifier: Apache-2.0
//
// class ge::Session: each function is one call of the session behind the number.
#include <string>
#include <utility>

#include "call.h"
#include "engine/engine.h"
#include "ge/ge_api.h"
#include "summary_access.h"
#include "tensors.h"

using namespace reprise::ge_runner;  // NOLINT: its functions are all that follows uses
namespace engine = reprise::engine;

namespace ge {
Session::Session(const AscendStringMap& options) {
  reprise::runtime::Api("ge::Session::Session", [&]() -> reprise::Status {
    REPRISE_ASSIGN_OR_RETURN(session_id_, engine::OpenSession(engine::Interface::kFirst, OptionsOf(options)));
    return {};
  });
}
Session::~Session() {
  reprise::runtime::Api("ge::Session::~Session", [&]() -> reprise::Status {
    engine::CloseSession(session_id_);
    return {};
  });
}

ge::Status Session::AddGraph(uint32_t graph_id, const Graph& graph) {
  return AddGraph(graph_id, graph, AscendStringMap());
}
ge::Status Session::AddGraph(uint32_t graph_id, const Graph& graph, const AscendStringMap& options) {
  return AddGraphTo(session_id_, "ge::Session::AddGraph", graph_id, graph, options, false);
}
ge::Status Session::AddGraphWithCopy(uint32_t graph_id, const Graph& graph) {
  return AddGraphWithCopy(graph_id, graph, AscendStringMap());
}
ge::Status Session::AddGraphWithCopy(uint32_t graph_id, const Graph& graph, const AscendStringMap& options) {
  return AddGraphTo(session_id_, "ge::Session::AddGraphWithCopy", graph_id, graph, options, true);
}
ge::Status Session::RemoveGraph(uint32_t graph_id) {
  return OnSession(session_id_, "ge::Session::RemoveGraph",
                   [&](engine::Session& s) { return s.RemoveGraph(graph_id); });
}

ge::Status Session::CompileGraph(uint32_t graph_id) {
  return OnSession(session_id_, "ge::Session::CompileGraph",
                   [&](engine::Session& s) { return s.CompileGraph(graph_id); });
}
ge::Status Session::BuildGraph(uint32_t graph_id, const std::vector<InputTensorInfo>& inputs) {
  return OnSession(session_id_, "ge::Session::BuildGraph",
                   [&](engine::Session& s) { return s.BuildGraph(graph_id, MetasOf(inputs)); });
}
ge::Status Session::BuildGraph(uint32_t graph_id, const std::vector<ge::Tensor>& inputs) {
  return OnSession(session_id_, "ge::Session::BuildGraph",
                   [&](engine::Session& s) { return s.BuildGraph(graph_id, MetasOf(inputs)); });
}
CompiledGraphSummaryPtr Session::GetCompiledGraphSummary(uint32_t graph_id) {
  return SummaryAccess::Of(session_id_, "ge::Session::GetCompiledGraphSummary", graph_id);
}
bool Session::IsGraphNeedRebuild(uint32_t graph_id) {
  bool needs = true;
  OnSession(session_id_, "ge::Session::IsGraphNeedRebuild", [&](engine::Session& s) -> reprise::Status {
    needs = s.NeedsRebuild(graph_id);
    return {};
  });
  return needs;
}

ge::Status Session::SetGraphConstMemoryBase(uint32_t graph_id, const void* const memory, size_t size) {
  return OnSession(session_id_, "ge::Session::SetGraphConstMemoryBase",
                   [&](engine::Session& s) { return s.SetConstBase(graph_id, memory, size); });
}
ge::Status Session::UpdateGraphFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size) {
  return OnSession(session_id_, "ge::Session::UpdateGraphFeatureMemoryBase",
                   [&](engine::Session& s) { return s.UpdateFeatureBase(graph_id, memory, size); });
}
ge::Status Session::UpdateGraphRefreshableFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size) {
  return OnSession(session_id_, "ge::Session::UpdateGraphRefreshableFeatureMemoryBase",
                   [&](engine::Session& s) { return s.UpdateRefreshableBase(graph_id, memory, size); });
}
ge::Status Session::SetGraphFixedFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size) {
  return OnSession(session_id_, "ge::Session::SetGraphFixedFeatureMemoryBase", [&](engine::Session& s) {
    return s.SetFixedBase(graph_id, engine::MemoryType::kDefault, memory, size);
  });
}
ge::Status Session::SetGraphFixedFeatureMemoryBaseWithType(uint32_t graph_id, MemoryType type, const void* const memory,
                                                           size_t size) {
  return SetFixedBase(session_id_, "ge::Session::SetGraphFixedFeatureMemoryBaseWithType", graph_id, type, memory, size);
}

ge::Status Session::LoadGraph(const uint32_t graph_id, const AscendStringMap& options, void* stream) const {
  return OnSession(session_id_, "ge::Session::LoadGraph",
                   [&](engine::Session& s) { return s.LoadGraph(graph_id, OptionsOf(options), stream); });
}
ge::Status Session::ExecuteGraphWithStreamAsync(uint32_t graph_id, void* stream,
                                                const std::vector<gert::Tensor>& inputs,
                                                std::vector<gert::Tensor>& outputs) {
  return OnSession(session_id_, "ge::Session::ExecuteGraphWithStreamAsync", [&](engine::Session& s) -> reprise::Status {
    RunTensors tensors(inputs, outputs);
    REPRISE_RETURN_IF_ERROR(s.Execute(graph_id, stream, tensors.inputs(), tensors.outputs()));
    Return(tensors.outputs(), outputs);
    return {};
  });
}
ge::Status Session::RunGraphWithStreamAsync(uint32_t graph_id, void* stream, const std::vector<Tensor>& inputs,
                                            std::vector<Tensor>& outputs) {
  return OnSession(session_id_, "ge::Session::RunGraphWithStreamAsync", [&](engine::Session& s) -> reprise::Status {
    RunTensors tensors(inputs, outputs);
    REPRISE_RETURN_IF_ERROR(s.RunOnStream(graph_id, stream, tensors.inputs(), tensors.outputs()));
    Return(tensors.outputs(), outputs);
    return {};
  });
}
ge::Status Session::RunGraph(uint32_t graph_id, const std::vector<Tensor>& inputs, std::vector<Tensor>& outputs) {
  return OnSession(session_id_, "ge::Session::RunGraph", [&](engine::Session& s) -> reprise::Status {
    std::vector<engine::HostTensor> results;
    REPRISE_RETURN_IF_ERROR(s.RunAndWait(graph_id, InputsOf(inputs), results));
    Return(results, outputs);
    return {};
  });
}
ge::Status Session::RunGraphAsync(uint32_t graph_id, const std::vector<ge::Tensor>& inputs, RunAsyncCallback callback) {
  return OnSession(session_id_, "ge::Session::RunGraphAsync", [&](engine::Session& s) -> reprise::Status {
    REPRISE_RETURN_IF_ERROR(CheckCallback(static_cast<bool>(callback)));
    const auto done = [callback](const reprise::Status& status, std::vector<engine::HostTensor>& results) {
      std::vector<Tensor> outputs;
      Return(results, outputs);
      callback(static_cast<ge::Status>(status.code()), outputs);
    };
    return s.RunLater(graph_id, CopiesOf(InputsOf(inputs)), done);
  });
}

ge::Status Session::RegisterExternalAllocator(const void* const stream, AllocatorPtr allocator) const {
  return OnSession(session_id_, "ge::Session::RegisterExternalAllocator", [&](engine::Session& s) {
    return s.RegisterAllocator(const_cast<void*>(stream), AllocatorOf(std::move(allocator)));
  });
}
ge::Status Session::UnregisterExternalAllocator(const void* const stream) const {
  return OnSession(session_id_, "ge::Session::UnregisterExternalAllocator",
                   [&](engine::Session& s) { return s.UnregisterAllocator(const_cast<void*>(stream)); });
}

ge::Status Session::GraphDebugJSONPrint(uint32_t graph_id, uint32_t /*flags*/, AscendString& json) const {
  return OnSession(session_id_, "ge::Session::GraphDebugJSONPrint", [&](engine::Session& s) -> reprise::Status {
    REPRISE_ASSIGN_OR_RETURN(const std::string text, s.Timeline(graph_id));
    json = AscendString(text.c_str());
    return {};
  });
}
uint64_t Session::GetSessionId() const { return session_id_; }

ge::Status Session::GetVariables(const std::vector<AscendString>& var_names, std::vector<Tensor>& var_values) {
  return OnSession(session_id_, "ge::Session::GetVariables", [&](engine::Session& s) -> reprise::Status {
    std::vector<std::string> names;
    for (const AscendString& name : var_names) names.emplace_back(name.GetString());
    REPRISE_ASSIGN_OR_RETURN(std::vector<engine::HostTensor> values, s.ReadVariables(names));
    Return(values, var_values);
    return {};
  });
}
ge::Status Session::RegisterCallBackFunc(const char* key, const pAscendCallBackFunc& callback) {
  return RegisterCollector(session_id_, key, callback != nullptr ? CollectorCallback(callback) : CollectorCallback());
}
ge::Status Session::PaRemapped(const uint64_t /*va*/, const uint64_t /*new_pa*/, const uint64_t /*len*/) const {
  return static_cast<ge::Status>(reprise::runtime::Refuse("ge::Session::PaRemapped", engine::kParamInvalid,
                                                          "memory has no physical addresses that could change here",
                                                          "leave the call out"));
}
ge::Status Session::ShardGraphs() {
  return Unsupported("ge::Session::ShardGraphs", "graphs are not distributed over devices", "add one graph per device");
}
ge::Status Session::ShardGraphsToFile(const char* /*file_path*/) const {
  return Unsupported("ge::Session::ShardGraphsToFile", "graphs are not distributed over devices",
                     "add one graph per device");
}
ge::Status Session::SaveGraphsToPb(const char* /*file_path*/) const {
  return Unsupported("ge::Session::SaveGraphsToPb", "graphs are not distributed over devices",
                     "save a graph with ge::Graph::SaveToFile");
}

}  // namespace ge
