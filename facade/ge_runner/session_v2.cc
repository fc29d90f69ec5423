// SPDX-License-Identifier: Apache-2.0
//
// class ge::GeSession: the sessions of the engine through its second interface.
#include <cstring>
#include <string>
#include <utility>

#include "call.h"
#include "engine/engine.h"
#include "ge/ge_api_v2.h"
#include "summary_access.h"
#include "tensors.h"

using namespace reprise::ge_runner;  // NOLINT: its functions are all that follows uses
namespace engine = reprise::engine;

namespace ge {
GeSession::GeSession(const AscendStringMap& options) {
  reprise::runtime::Api("ge::GeSession::GeSession", [&]() -> reprise::Status {
    REPRISE_ASSIGN_OR_RETURN(session_id_, engine::OpenSession(engine::Interface::kSecond, OptionsOf(options)));
    return {};
  });
}
GeSession::~GeSession() {
  reprise::runtime::Api("ge::GeSession::~GeSession", [&]() -> reprise::Status {
    engine::CloseSession(session_id_);
    return {};
  });
}

Status GeSession::AddGraph(uint32_t graph_id, const Graph& graph) { return AddGraph(graph_id, graph, {}); }
Status GeSession::AddGraph(uint32_t graph_id, const Graph& graph, const AscendStringMap& options) {
  return AddGraphTo(session_id_, "ge::GeSession::AddGraph", graph_id, graph, options, false);
}
Status GeSession::AddGraphClone(uint32_t graph_id, const Graph& graph) { return AddGraphClone(graph_id, graph, {}); }
Status GeSession::AddGraphClone(uint32_t graph_id, const Graph& graph, const AscendStringMap& options) {
  return AddGraphTo(session_id_, "ge::GeSession::AddGraphClone", graph_id, graph, options, true);
}
Status GeSession::RemoveGraph(uint32_t graph_id) {
  return OnSession(session_id_, "ge::GeSession::RemoveGraph",
                   [&](engine::Session& s) { return s.RemoveGraph(graph_id); });
}

Status GeSession::CompileGraph(uint32_t graph_id) {
  return OnSession(session_id_, "ge::GeSession::CompileGraph",
                   [&](engine::Session& s) { return s.CompileGraph(graph_id); });
}
Status GeSession::CompileGraph(uint32_t graph_id, const std::vector<ge::Tensor>& inputs) {
  return OnSession(session_id_, "ge::GeSession::CompileGraph",
                   [&](engine::Session& s) { return s.CompileGraph(graph_id, MetasOf(inputs)); });
}
CompiledGraphSummaryPtr GeSession::GetCompiledGraphSummary(uint32_t graph_id) {
  return SummaryAccess::Of(session_id_, "ge::GeSession::GetCompiledGraphSummary", graph_id);
}
Status GeSession::GetCompiledModel(uint32_t graph_id, ModelBufferData& model_buffer) {
  return OnSession(session_id_, "ge::GeSession::GetCompiledModel", [&](engine::Session& s) -> reprise::Status {
    REPRISE_ASSIGN_OR_RETURN(const std::string model, s.CompiledModel(graph_id));
    model_buffer.data = std::shared_ptr<uint8_t>(new uint8_t[model.size()], std::default_delete<uint8_t[]>());
    std::memcpy(model_buffer.data.get(), model.data(), model.size());
    model_buffer.length = model.size();
    return {};
  });
}
bool GeSession::IsGraphNeedRebuild(uint32_t graph_id) {
  bool needs = true;
  OnSession(session_id_, "ge::GeSession::IsGraphNeedRebuild", [&](engine::Session& s) -> reprise::Status {
    needs = s.NeedsRebuild(graph_id);
    return {};
  });
  return needs;
}

Status GeSession::SetGraphConstMemoryBase(uint32_t graph_id, const void* const memory, size_t size) {
  return OnSession(session_id_, "ge::GeSession::SetGraphConstMemoryBase",
                   [&](engine::Session& s) { return s.SetConstBase(graph_id, memory, size); });
}
Status GeSession::UpdateGraphFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size) {
  return OnSession(session_id_, "ge::GeSession::UpdateGraphFeatureMemoryBase",
                   [&](engine::Session& s) { return s.UpdateFeatureBase(graph_id, memory, size); });
}
Status GeSession::UpdateGraphRefreshableFeatureMemoryBase(uint32_t graph_id, const void* const memory, size_t size) {
  return OnSession(session_id_, "ge::GeSession::UpdateGraphRefreshableFeatureMemoryBase",
                   [&](engine::Session& s) { return s.UpdateRefreshableBase(graph_id, memory, size); });
}
Status GeSession::SetGraphFixedFeatureMemoryBaseWithType(uint32_t graph_id, MemoryType type, const void* const memory,
                                                         size_t size) {
  return SetFixedBase(session_id_, "ge::GeSession::SetGraphFixedFeatureMemoryBaseWithType", graph_id, type, memory,
                      size);
}

Status GeSession::LoadGraph(const uint32_t graph_id, const AscendStringMap& options, void* stream) const {
  return OnSession(session_id_, "ge::GeSession::LoadGraph",
                   [&](engine::Session& s) { return s.LoadGraph(graph_id, OptionsOf(options), stream); });
}
Status GeSession::RunGraph(uint32_t graph_id, const std::vector<gert::Tensor>& inputs,
                           std::vector<gert::Tensor>& outputs) {
  return OnSession(session_id_, "ge::GeSession::RunGraph", [&](engine::Session& s) -> reprise::Status {
    std::vector<engine::HostTensor> results;
    REPRISE_RETURN_IF_ERROR(s.RunAndWait(graph_id, InputsOf(inputs), results));
    Return(results, outputs);
    return {};
  });
}
Status GeSession::RunGraphWithStreamAsync(uint32_t graph_id, void* stream, const std::vector<gert::Tensor>& inputs,
                                          std::vector<gert::Tensor>& outputs) {
  return OnSession(session_id_, "ge::GeSession::RunGraphWithStreamAsync", [&](engine::Session& s) -> reprise::Status {
    RunTensors tensors(inputs, outputs);
    REPRISE_RETURN_IF_ERROR(s.RunOnStream(graph_id, stream, tensors.inputs(), tensors.outputs()));
    Return(tensors.outputs(), outputs);
    return {};
  });
}
Status GeSession::RunGraphAsync(uint32_t graph_id, const std::vector<gert::Tensor>& inputs,
                                RunAsyncCallbackV2 callback) {
  return OnSession(session_id_, "ge::GeSession::RunGraphAsync", [&](engine::Session& s) -> reprise::Status {
    REPRISE_RETURN_IF_ERROR(CheckCallback(static_cast<bool>(callback)));
    const auto done = [callback](const reprise::Status& status, std::vector<engine::HostTensor>& results) {
      CallBack(callback, status, results);
    };
    return s.RunLater(graph_id, CopiesOf(InputsOf(inputs)), done);
  });
}

Status GeSession::RegisterExternalAllocator(const void* const stream, AllocatorPtr allocator) const {
  return OnSession(session_id_, "ge::GeSession::RegisterExternalAllocator", [&](engine::Session& s) {
    return s.RegisterAllocator(const_cast<void*>(stream), AllocatorOf(std::move(allocator)));
  });
}
Status GeSession::UnregisterExternalAllocator(const void* const stream) const {
  return OnSession(session_id_, "ge::GeSession::UnregisterExternalAllocator",
                   [&](engine::Session& s) { return s.UnregisterAllocator(const_cast<void*>(stream)); });
}
uint64_t GeSession::GetSessionId() const { return session_id_; }

}  // namespace ge
