// SPDX-License-Identifier: Apache-2.0
#include "compiler/stage_plan.h"

#include <algorithm>
#include <map>

#include "compiler/custom_op.h"
#include "compiler/operands.h"
#include "compiler/storage.h"

namespace reprise::compiler {
namespace {

enum class Turn : uint8_t { kUnneeded, kNow, kAlone, kLater };

bool IsSource(const Node& node) { return node.kind == NodeKind::kData || node.kind == NodeKind::kConstant; }

class Planner {
 public:
  Planner(Graph graph, const CompileOptions& options) : graph_(std::move(graph)), options_(options) {}

  StatusOr<std::unique_ptr<StagePlan>> Run() {
    order_ = TopologicalOrder(graph_);
    FindTurns();
    next_value_ = static_cast<ValueId>(graph_.inputs.size());
    for (uint32_t i = 0; i < graph_.inputs.size(); ++i) values_[{graph_.inputs[i], 0}] = i;
    REPRISE_RETURN_IF_ERROR(MakeProgram());
    MakeLoneNodes();
    MakeRest();
    return std::move(plan_);
  }

 private:
  using Key = std::pair<NodeId, uint32_t>;

  template <class Visit>
  void ForEachBefore(const Node& node, Visit visit) const {
    for (const Input& input : node.inputs) {
      if (input.source.is_set()) visit(input.source.node);
    }
    for (const NodeId first : node.after) visit(first);
  }

  void FindTurns() {
    turns_.assign(graph_.nodes.size(), Turn::kUnneeded);
    std::vector<bool> needed(graph_.nodes.size(), false);
    for (const Port& port : graph_.results) needed[port.node] = true;
    for (const NodeId id : graph_.results_after) needed[id] = true;
    for (const NodeId id : order_) {
      const Node& node = graph_.at(id);
      const bool has_effect =
          IsCustom(node) || (node.op != nullptr && node.op->repeatability == opdef::Repeatability::kEffect);
      if (has_effect) needed[id] = true;
    }
    for (size_t i = order_.size(); i-- > 0;) {
      if (needed[order_[i]]) ForEachBefore(graph_.at(order_[i]), [&](NodeId before) { needed[before] = true; });
    }
    bool collective_waits = false;  // ranks meet in the order of the graph, whatever is ready first
    for (const NodeId id : order_) {
      if (!needed[id]) continue;
      const Node& node = graph_.at(id);
      bool waits = IsCollective(node) && collective_waits;
      ForEachBefore(node, [&](NodeId before) { waits |= turns_[before] != Turn::kNow; });
      turns_[id] = waits ? Turn::kLater : IsReady(graph_, id) ? Turn::kNow : Turn::kAlone;
      collective_waits |= waits && IsCollective(node);
    }
  }

  // A graph of some nodes; what comes from elsewhere becomes a Data node.
  struct Piece {
    Graph graph;
    std::map<NodeId, NodeId> nodes;
    std::map<Key, NodeId> data;
    std::vector<Port> inputs;  // of the stage's graph, by Data node
  };

  Port PortIn(Piece& piece, const Port& port) {
    const Node& source = graph_.at(port.node);
    if (const auto here = piece.nodes.find(port.node); here != piece.nodes.end()) return {here->second, port.output};
    if (source.kind == NodeKind::kConstant) {
      piece.graph.nodes.push_back(source);
      piece.graph.nodes.back().after.clear();
      const auto id = static_cast<NodeId>(piece.graph.nodes.size() - 1);
      piece.nodes[port.node] = id;
      return {id, port.output};
    }
    const auto [entry, is_new] = piece.data.try_emplace({port.node, port.output}, kNoNode);
    if (is_new) {
      Node data;
      data.name = port.output == 0 ? source.name : source.name + "." + std::to_string(port.output);
      data.type = "Data";
      data.kind = NodeKind::kData;
      data.outputs.push_back({"y", graph_.TensorOf(port)});
      piece.graph.nodes.push_back(std::move(data));
      entry->second = static_cast<NodeId>(piece.graph.nodes.size() - 1);
      piece.graph.inputs.push_back(entry->second);
      piece.inputs.push_back(port);
    }
    return {entry->second, 0};
  }

  NodeId AddNode(Piece& piece, NodeId id) {
    Node node = graph_.at(id);
    for (Input& input : node.inputs) {
      if (input.source.is_set()) input.source = PortIn(piece, input.source);
    }
    std::vector<NodeId> after;
    for (const NodeId before : node.after) {
      if (const auto here = piece.nodes.find(before); here != piece.nodes.end()) after.push_back(here->second);
    }
    node.after = std::move(after);
    piece.graph.nodes.push_back(std::move(node));
    const auto added = static_cast<NodeId>(piece.graph.nodes.size() - 1);
    piece.nodes[id] = added;
    return added;
  }

  Status MakeProgram() {
    Piece piece;
    piece.graph.name = graph_.name;
    size_t work = 0;
    for (const NodeId id : order_) {
      if (turns_[id] != Turn::kNow || IsSource(graph_.at(id))) continue;
      AddNode(piece, id);
      work += graph_.at(id).kind == NodeKind::kOperator ? 1 : 0;
    }
    // Results of the whole graph first, each of its own, so that they can be written where the caller wants them.
    plan_->results.resize(graph_.results.size());
    for (uint32_t i = 0; i < graph_.results.size(); ++i) {
      if (turns_[graph_.results[i].node] != Turn::kNow) continue;
      plan_->results[i] = {false, AddOutput(piece, graph_.results[i])};
    }
    for (const NodeId id : order_) {
      if (turns_[id] != Turn::kAlone && turns_[id] != Turn::kLater) continue;
      for (const Input& input : graph_.at(id).inputs) {
        if (!input.source.is_set()) continue;
        const Port& port = input.source;
        if (turns_[port.node] != Turn::kNow || IsSource(graph_.at(port.node))) continue;
        if (values_.contains({port.node, port.output})) continue;
        values_[{port.node, port.output}] = AddOutput(piece, port);
      }
    }
    if (work == 0 && piece.graph.results.empty()) return {};
    for (const Port& port : piece.inputs) plan_->program_inputs.push_back(values_.at({port.node, port.output}));
    for (const Port& port : piece.graph.results) plan_->program_outputs.push_back(piece.graph.TensorOf(port));
    REPRISE_ASSIGN_OR_RETURN(Program* const program, Program::Build(piece.graph, options_));
    plan_->program.reset(program);
    plan_->graph = std::move(piece.graph);
    return {};
  }

  ValueId AddOutput(Piece& piece, const Port& port) {
    piece.graph.results.push_back(PortIn(piece, port));
    return next_value_++;
  }

  void MakeLoneNodes() {
    for (const NodeId id : order_) {
      if (turns_[id] != Turn::kAlone) continue;
      LoneNode& lone = plan_->lone.emplace_back();
      Piece piece;
      piece.graph.name = graph_.name;
      lone.node = AddNode(piece, id);
      for (const Port& port : piece.inputs) lone.inputs.push_back(values_.at({port.node, port.output}));
      lone.first_output = next_value_;
      for (uint32_t i = 0; i < graph_.at(id).outputs.size(); ++i) {
        piece.graph.results.push_back({lone.node, i});
        values_[{id, i}] = next_value_++;
      }
      lone.graph = std::move(piece.graph);
    }
    for (uint32_t i = 0; i < graph_.results.size(); ++i) {
      const Port& port = graph_.results[i];
      if (turns_[port.node] == Turn::kAlone) plan_->results[i] = {false, values_.at({port.node, port.output})};
    }
  }

  void MakeRest() {
    Piece piece;
    piece.graph.name = graph_.name;
    for (const NodeId id : order_) {
      if (turns_[id] != Turn::kLater) continue;
      AddNode(piece, id);
      plan_->has_rest = true;
    }
    if (!plan_->has_rest) return;
    for (uint32_t i = 0; i < graph_.results.size(); ++i) {
      const Port& port = graph_.results[i];
      if (turns_[port.node] != Turn::kLater) continue;
      plan_->results[i] = {true, static_cast<uint32_t>(piece.graph.results.size())};
      piece.graph.results.push_back(PortIn(piece, port));
    }
    for (const NodeId id : graph_.results_after) {
      if (turns_[id] == Turn::kLater) piece.graph.results_after.push_back(piece.nodes.at(id));
    }
    for (const Port& port : piece.inputs) plan_->rest_inputs.push_back(values_.at({port.node, port.output}));
    // What is known of shapes now is worked out anew, from what the run finds.
    plan_->rest = std::move(piece.graph);
  }

  Graph graph_;
  const CompileOptions& options_;
  std::vector<NodeId> order_;
  std::vector<Turn> turns_;
  std::map<Key, ValueId> values_;
  ValueId next_value_ = 0;
  std::unique_ptr<StagePlan> plan_ = std::make_unique<StagePlan>();
};

}  // namespace

bool IsReady(const Graph& graph, NodeId id) {
  const Node& node = graph.at(id);
  if (node.kind == NodeKind::kCall || IsCustom(node)) return false;
  if (node.kind == NodeKind::kConstant) return true;  // texts, whose size no type tells, too
  if (node.kind == NodeKind::kOrder) return true;
  for (const Output& output : node.outputs) {
    if (!BytesOf(output.tensor)) return false;
  }
  if (node.kind != NodeKind::kOperator || node.op == nullptr) return true;
  StatusOr<Operands> operands = BindOperands(graph, id);
  if (!operands.ok()) return true;  // and the program refuses it
  for (size_t o = 0; o < operands.value().size(); ++o) {
    if (!node.op->inputs[o].is_value()) continue;
    for (const uint32_t input : operands.value()[o]) {
      if (graph.at(node.inputs[input].source.node).constant == nullptr) return false;
    }
  }
  return true;
}

StatusOr<std::unique_ptr<StagePlan>> PlanStage(Graph graph, const CompileOptions& options) {
  return Planner(std::move(graph), options).Run();
}

}  // namespace reprise::compiler
