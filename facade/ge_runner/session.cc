// SPDX-License-Identifier: Apache-2.0
//
// The graph engine, which is not here yet: what would compile and run a graph refuses.
#include "ge_api.h"
#include "message.h"
#include "runtime/report.h"

using reprise::runtime::Refuse;

namespace {

ge::Status No(const char* api, ge::Status number = ge::FAILED) {
  return static_cast<ge::Status>(
      Refuse(api, static_cast<int>(number), "there is no graph engine yet that compiles graphs of operators",
             "run the model eagerly, or capture it as a graph: torch.npu.NPUGraph, or torch.compile with the backend "
             "npugraph_ex or, of torchair, the mode reduce-overhead"));
}

}  // namespace

const char* reprise_ge_message() noexcept {
  const char* text = reprise::runtime::TakeRecentMessage();
  return text != nullptr ? text : "";
}

namespace ge {

Status GEInitialize(const AscendStringMap& /*options*/) { return No("ge::GEInitialize", UNSUPPORTED); }
Status GEFinalize() { return SUCCESS; }  // nothing has been initialised
AscendString GEGetErrorMsgV2() { return {reprise_ge_message()}; }
AscendString GEGetWarningMsgV2() { return {""}; }

// Sessions without an engine are made, invalid, and go; every call on one fails.
Session::Session(const AscendStringMap& /*options*/) { No("ge::Session::Session"); }
Session::~Session() = default;

Status Session::AddGraph(uint32_t /*id*/, const Graph& /*graph*/, const AscendStringMap& /*options*/) {
  return No("ge::Session::AddGraph");
}
Status Session::RemoveGraph(uint32_t /*id*/) { return No("ge::Session::RemoveGraph"); }
Status Session::CompileGraph(uint32_t /*id*/) { return No("ge::Session::CompileGraph"); }
std::shared_ptr<CompiledGraphSummary> Session::GetCompiledGraphSummary(uint32_t /*id*/) {
  No("ge::Session::GetCompiledGraphSummary");
  return nullptr;
}
Status Session::SetGraphConstMemoryBase(uint32_t /*id*/, const void* /*memory*/, size_t /*size*/) {
  return No("ge::Session::SetGraphConstMemoryBase");
}
Status Session::UpdateGraphFeatureMemoryBase(uint32_t /*id*/, const void* /*memory*/, size_t /*size*/) {
  return No("ge::Session::UpdateGraphFeatureMemoryBase");
}
Status Session::UpdateGraphRefreshableFeatureMemoryBase(uint32_t /*id*/, const void* /*memory*/, size_t /*size*/) {
  return No("ge::Session::UpdateGraphRefreshableFeatureMemoryBase");
}
Status Session::SetGraphFixedFeatureMemoryBase(uint32_t /*id*/, const void* /*memory*/, size_t /*size*/) {
  return No("ge::Session::SetGraphFixedFeatureMemoryBase");
}
Status Session::RegisterExternalAllocator(const void* /*stream*/, std::shared_ptr<Allocator> /*allocator*/) const {
  return No("ge::Session::RegisterExternalAllocator");
}
Status Session::RunGraph(uint32_t /*id*/, const std::vector<Tensor>& /*inputs*/, std::vector<Tensor>& /*outputs*/) {
  return No("ge::Session::RunGraph");
}
Status Session::RunGraphWithStreamAsync(uint32_t /*id*/, void* /*stream*/, const std::vector<Tensor>& /*inputs*/,
                                        std::vector<Tensor>& /*outputs*/) {
  return No("ge::Session::RunGraphWithStreamAsync");
}

// Nobody has such an object: Session gives none out.
bool CompiledGraphSummary::IsStatic() const { return false; }
Status CompiledGraphSummary::GetConstMemorySize(size_t& size) const {
  size = 0;
  return No("ge::CompiledGraphSummary::GetConstMemorySize");
}
Status CompiledGraphSummary::GetFeatureMemorySize(size_t& size) const {
  size = 0;
  return No("ge::CompiledGraphSummary::GetFeatureMemorySize");
}
Status CompiledGraphSummary::GetFixedFeatureMemorySize(size_t& size) const {
  size = 0;
  return No("ge::CompiledGraphSummary::GetFixedFeatureMemorySize");
}
Status CompiledGraphSummary::GetFeatureMemoryBaseRefreshable(bool& refreshable) const {
  refreshable = false;
  return No("ge::CompiledGraphSummary::GetFeatureMemoryBaseRefreshable");
}
Status CompiledGraphSummary::GetOutputShapes(std::vector<Shape>& shapes) const {
  shapes.clear();
  return No("ge::CompiledGraphSummary::GetOutputShapes");
}
Status CompiledGraphSummary::GetOutputDtypes(std::vector<DataType>& types) const {
  types.clear();
  return No("ge::CompiledGraphSummary::GetOutputDtypes");
}

}  // namespace ge
