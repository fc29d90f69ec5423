// SPDX-License-Identifier: Apache-2.0
#include "call.h"

#include "ge/access.h"

namespace reprise::ge_runner {

namespace {

// The graph below one of the program's, and what tells it from others: null for a copy.
struct GraphOf {
  std::shared_ptr<compiler::Graph> model;
  std::shared_ptr<const void> identity;
};

StatusOr<GraphOf> ModelOf(const ge::Graph& graph, bool copies) {
  auto model = ge::GraphAccess::ModelOf(graph);
  if (!model.ok()) return engine::As(engine::kParamInvalid, engine::kBadInput, std::move(model).status());
  if (*model == nullptr) {
    return engine::Fail(engine::kParamInvalid, engine::kBadInput, "the graph is empty")
        .Culprit("parameter graph")
        .Hint("give it inputs and outputs, or load a model into it");
  }
  if (copies) return GraphOf{std::make_shared<compiler::Graph>(**model), nullptr};
  return GraphOf{*model, *model};
}

}  // namespace

ge::Status AddGraphTo(uint64_t session, const char* api, uint32_t graph_id, const ge::Graph& graph,
                      const AscendStringMap& options, bool copies) noexcept {
  return OnSession(session, api, [&](engine::Session& found) -> Status {
    REPRISE_ASSIGN_OR_RETURN(GraphOf added, ModelOf(graph, copies));
    return found.AddGraph(graph_id, std::move(added.model), std::move(added.identity), OptionsOf(options));
  });
}

ge::Status Unsupported(const char* api, const char* reason, const char* advice) noexcept {
  return static_cast<ge::Status>(runtime::Refuse(api, engine::kUnsupported, reason, advice));
}

ge::AscendString TakeMessage() noexcept {
  const char* const text = runtime::TakeRecentMessage();
  return {text != nullptr ? text : ""};
}

}  // namespace reprise::ge_runner
