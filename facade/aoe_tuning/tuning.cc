// SPDX-License-Identifier: Apache-2.0
//
// Functions of tuning. They return 0, or a number of the graph engine, whose text ge::GEGetErrorMsg gives.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/numbers.h"
#include "engine/tuning.h"
#include "ge/access.h"
#include "ge/ge_api.h"
#include "runtime/report.h"

namespace engine = reprise::engine;
using AoeOptions = std::map<ge::AscendString, ge::AscendString>;
using GraphPtr = std::shared_ptr<const reprise::compiler::Graph>;

namespace {

constexpr uint32_t kNothingToTune = 8;

template <class Body>
uint32_t Call(const char* api, Body body) noexcept {
  return static_cast<uint32_t>(reprise::runtime::Api(api, body));
}

engine::OptionMap OptionsOf(const AoeOptions& options) {
  engine::OptionMap map;
  for (const auto& [key, value] : options) map[key.GetString()] = value.GetString();
  return map;
}

// A copy: programs go on with theirs.
reprise::StatusOr<GraphPtr> CopyOf(const ge::Graph& graph) {
  auto model = ge::GraphAccess::ModelOf(graph);
  if (!model.ok()) return engine::As(engine::kParamInvalid, engine::kBadInput, std::move(model).status());
  if (*model == nullptr) {
    return engine::Fail(engine::kParamInvalid, engine::kBadInput, "the graph is empty")
        .Culprit("parameter graph")
        .Hint("give it inputs and outputs, or load a model into it");
  }
  return std::make_shared<const reprise::compiler::Graph>(**model);
}

std::vector<engine::HostTensor> CopiesOf(const std::vector<ge::Tensor>& tensors) {
  std::vector<engine::HostTensor> copies;
  for (const ge::Tensor& tensor : tensors) {
    std::vector<int64_t> shape(tensor.GetShapeDimNum());
    for (size_t d = 0; d < shape.size(); ++d) shape[d] = tensor.GetShapeDim(d);
    std::string bytes;
    if (tensor.GetData() != nullptr) bytes.assign(reinterpret_cast<const char*>(tensor.GetData()), tensor.GetSize());
    copies.push_back({static_cast<int32_t>(tensor.GetDataType()), std::move(shape), std::move(bytes)});
  }
  return copies;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

uint32_t AoeInitialize(const AoeOptions& options) {
  return Call("AoeInitialize", [&] { return engine::BeginTuning(OptionsOf(options)); });
}
uint32_t AoeFinalize() {
  return Call("AoeFinalize", [] { return engine::EndTuning(); });
}

uint32_t AoeCreateSession(uint64_t& session) {
  return Call("AoeCreateSession", [&]() -> reprise::Status {
    REPRISE_ASSIGN_OR_RETURN(session, engine::OpenTuning());
    return {};
  });
}
uint32_t AoeDestroySession(uint64_t session) {
  return Call("AoeDestroySession", [&] { return engine::CloseTuning(session); });
}

uint32_t AoeSetGeSession(uint64_t session, ge::Session* ge_session) {
  return Call("AoeSetGeSession", [&]() -> reprise::Status {
    if (ge_session == nullptr) {
      return engine::Fail(engine::kParamInvalid, engine::kNullValue, "geSession is null")
          .Culprit("parameter geSession")
          .Hint("pass a session that was made after GEInitialize");
    }
    return engine::SetTuningSession(session, ge_session->GetSessionId());
  });
}

uint32_t AoeSetDependGraphs(uint64_t session, const std::vector<ge::Graph>& graphs) {
  return Call("AoeSetDependGraphs", [&]() -> reprise::Status {
    std::vector<GraphPtr> copies;
    for (const ge::Graph& graph : graphs) {
      REPRISE_ASSIGN_OR_RETURN(GraphPtr copy, CopyOf(graph));
      copies.push_back(std::move(copy));
    }
    return engine::SetDependGraphs(session, std::move(copies));
  });
}
uint32_t AoeSetDependGraphsInputs(uint64_t session, const std::vector<std::vector<ge::Tensor>>& inputs) {
  return Call("AoeSetDependGraphsInputs", [&] {
    std::vector<std::vector<engine::HostTensor>> copies;
    for (const std::vector<ge::Tensor>& tensors : inputs) copies.push_back(CopiesOf(tensors));
    return engine::SetDependInputs(session, std::move(copies));
  });
}

uint32_t AoeSetTuningGraph(uint64_t session, const ge::Graph& graph) {
  return Call("AoeSetTuningGraph", [&]() -> reprise::Status {
    REPRISE_ASSIGN_OR_RETURN(GraphPtr copy, CopyOf(graph));
    return engine::SetTuningGraph(session, std::move(copy));
  });
}
uint32_t AoeSetTuningGraphInput(uint64_t session, const std::vector<ge::Tensor>& inputs) {
  return Call("AoeSetTuningGraphInput", [&] { return engine::SetTuningInputs(session, CopiesOf(inputs)); });
}

uint32_t AoeTuningGraph(uint64_t session, const AoeOptions& options) {
  bool is_nothing = false;
  const uint32_t number = Call("AoeTuningGraph", [&]() -> reprise::Status {
    REPRISE_ASSIGN_OR_RETURN(const reprise::compiler::TuneReport report,
                             engine::RunTuning(session, OptionsOf(options)));
    is_nothing = report.tried + report.known == 0;
    return {};
  });
  return number == 0 && is_nothing ? kNothingToTune : number;
}

}  // extern "C"
#pragma GCC visibility pop
