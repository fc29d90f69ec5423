// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include <wire/ge.pb.h>
#include "compiler/import/fields.h"
#include "compiler/import/proto.h"
#include "opdef/graph_op.h"

namespace reprise::compiler {
namespace {

constexpr int kDeepest = 200;                 // subgraphs of subgraphs
constexpr size_t kMostOfOne = 4096;           // outputs of a list that nobody described
constexpr size_t kMostUndescribed = 1 << 18;  // of a graph

NodeKind KindOf(std::string_view type) {
  if (type == "Data" || type == "RefData") return NodeKind::kData;
  if (type == "Const" || type == "Constant") return NodeKind::kConstant;
  if (type == "NoOp" || type == "ControlTrigger") return NodeKind::kOrder;
  for (const std::string_view call : {"PartitionedCall", "StatefulPartitionedCall", "If", "Case", "While", "For"}) {
    if (type == call) return NodeKind::kCall;
  }
  return NodeKind::kOperator;
}

// Sources of one output, of which attributes tell type and shape.
bool HasTypeInAttributes(std::string_view type) {
  return type == "FileConstant" || type == "ConstPlaceHolder" || type == "Variable" || type == "VariableV2";
}

struct Edge {
  std::string_view name;
  int64_t output = 0;
};

// "name:1"; a name alone is its first output, and names may have colons themselves.
std::optional<Edge> EdgeOf(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Edge{text, 0};
  Edge edge{text.substr(0, colon), 0};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, edge.output);
  if (error != std::errc() || stop != end || edge.output < -1 || edge.output > INT32_MAX) return std::nullopt;
  return edge;
}

// The subgraphs of a model by name, as far as they are read: null while one is being read. Nodes that call the same one
// share it.
using Subgraphs = std::map<std::string, std::shared_ptr<Graph>, std::less<>>;

class Importer {
 public:
  Importer(wire::ModelDef& model, wire::GraphDef& source, Subgraphs& subgraphs, int depth)
      : model_(model), source_(source), subgraphs_(subgraphs), depth_(depth), graph_(std::make_unique<Graph>()) {
    graph_->name = source.name();
  }

  StatusOr<std::unique_ptr<Graph>> Run() {
    REPRISE_RETURN_IF_ERROR(AddNodes());
    for (const wire::OpDef& op : source_.op()) REPRISE_RETURN_IF_ERROR(Connect(op));
    REPRISE_RETURN_IF_ERROR(NumberInputs());
    KeepTheRest();
    return std::move(graph_);
  }

 private:
  Status Wrong(const wire::OpDef& op, std::string what, std::string hint) const {
    return Error(kInvalidArgument, fmt::format("node {} ({}): {}", op.name(), op.type(), what))
        .Culprit(fmt::format("graph {}", source_.name()))
        .Hint(std::move(hint));
  }
  // Of Data nodes: texts that users look for by this number.
  Status WrongInput(const wire::OpDef& op, std::string_view what) const {
    return Error(kInvalidArgument, fmt::format("E13025: node {} ({}): {}", op.name(), op.type(), what))
        .Culprit(fmt::format("graph {}", source_.name()))
        .Hint(
            "number the Data nodes from 0 without gaps, and give sizes of -1 (unknown) and up, or -2 alone for an "
            "unknown rank");
  }

  Status AddNodes() {
    for (const auto& [name, attr] : source_.attr()) {
      if (auto value = AttributeOf(attr)) graph_->attributes.emplace(name, std::move(*value));
    }
    graph_->nodes.reserve(static_cast<size_t>(source_.op_size()));
    for (wire::OpDef& op : *source_.mutable_op()) {
      if (op.type() == "NetOutput") {
        if (net_output_ != nullptr) return Wrong(op, "the graph has another NetOutput", "leave one");
        net_output_ = &op;
        continue;
      }
      Node node;
      node.name = op.name();
      node.type = op.type();
      node.kind = KindOf(op.type());
      node.op = opdef::FindGraphOp(op.type());
      for (const auto& [name, attr] : op.attr()) {
        auto value = AttributeOf(attr);
        if (!value) continue;
        const bool is_own = node.op == nullptr || node.op->FindAttribute(name) != nullptr;
        (is_own ? node.attributes : node.notes).emplace(name, std::move(*value));
      }
      REPRISE_RETURN_IF_ERROR(CheckDims(op));
      for (const wire::TensorDescriptor& desc : op.output_desc()) {
        node.outputs.push_back({desc.name(), TensorOf(desc), nullptr, HasOpenType(desc)});
      }
      if (node.outputs.empty()) AddOutput(op, node);
      if (node.kind == NodeKind::kConstant) REPRISE_RETURN_IF_ERROR(AddConstant(op, node));
      for (const std::string& name : op.subgraph_name()) {
        REPRISE_RETURN_IF_ERROR(AddSubgraph(op, name, op.input_size(), node));
      }
      if (!ids_.emplace(op.name(), static_cast<NodeId>(graph_->nodes.size())).second) {
        return Wrong(op, "another node has this name", "give every node of a graph a name of its own");
      }
      graph_->nodes.push_back(std::move(node));
    }
    return {};
  }

  Status CheckDims(const wire::OpDef& op) const {
    for (const auto* const descs : {&op.output_desc(), &op.input_desc()}) {
      for (const wire::TensorDescriptor& desc : *descs) {
        for (const int64_t dim : desc.shape().dim()) {
          if (dim >= -2) continue;
          const std::string what = fmt::format("a size of its shape is {}", dim);
          if (KindOf(op.type()) == NodeKind::kData) return WrongInput(op, what);
          return Wrong(op, what, "give sizes of -1 (unknown) and up, or -2 alone for an unknown rank");
        }
      }
    }
    return {};
  }

  // Where writers leave the description out, and there is one output nevertheless.
  static void AddOutput(const wire::OpDef& op, Node& node) {
    if (node.kind == NodeKind::kData && op.input_desc_size() > 0) {  // it has one description, twice or once
      node.outputs.push_back({"y", TensorOf(op.input_desc(0))});
    } else if (HasTypeInAttributes(node.type)) {
      Output output{"y", {}};
      for (const char* const name : {"shape", "storage_shape", "origin_shape"}) {
        const auto found = node.attributes.find(name);
        const auto* const dims =
            found == node.attributes.end() ? nullptr : std::get_if<std::vector<int64_t>>(&found->second);
        if (dims == nullptr) continue;
        output.tensor.shape = opdef::Shape::Of(*dims);
        break;
      }
      if (const auto found = node.attributes.find("dtype"); found != node.attributes.end()) {
        if (const auto* const type = std::get_if<opdef::DataTypeValue>(&found->second)) {
          output.tensor.dtype = type->number;
        }
      }
      node.outputs.push_back(std::move(output));
    } else if (node.kind != NodeKind::kOrder && node.kind != NodeKind::kOperator) {
      node.outputs.push_back({"y", {}});
    }
  }

  Status AddConstant(wire::OpDef& op, Node& node) const {
    const auto found = op.mutable_attr()->find(kValueAttribute);
    if (found == op.mutable_attr()->end() || !found->second.has_t()) {
      return Wrong(op, "it has no attribute value with a tensor", "set the attribute value");
    }
    wire::TensorDef& tensor = *found->second.mutable_t();
    auto constant = std::make_shared<Constant>();
    constant->dtype = TypeOfProto(tensor.desc().dtype());
    constant->shape.assign(tensor.desc().shape().dim().begin(), tensor.desc().shape().dim().end());
    constant->bytes = std::move(*tensor.mutable_data());
    tensor.clear_data();
    node.outputs[0].tensor = TensorOf(tensor.desc());
    node.constant = std::move(constant);
    return {};
  }

  Status AddSubgraph(const wire::OpDef& op, const std::string& name, int arguments, Node& node) {
    const auto [known, is_new] = subgraphs_.emplace(name, nullptr);
    if (is_new) {
      const auto found = std::find_if(model_.mutable_graph()->begin(), model_.mutable_graph()->end(),
                                      [&](const wire::GraphDef& graph) { return graph.name() == name; });
      if (found == model_.mutable_graph()->end()) {
        return Wrong(op, fmt::format("the model has no graph {}", name), "add the subgraph to the model");
      }
      if (depth_ == kDeepest) {
        return Wrong(op, fmt::format("subgraphs lie more than {} deep in each other", kDeepest), "call fewer of them");
      }
      Importer importer(model_, *found, subgraphs_, depth_ + 1);
      importer.arguments_ = arguments;
      REPRISE_ASSIGN_OR_RETURN(known->second, importer.Run());
    } else if (known->second == nullptr) {
      return Wrong(op, fmt::format("the graph {} calls itself", name), "loops are While operators with a subgraph");
    }
    node.graphs.push_back(known->second);
    return {};
  }

  StatusOr<Port> Find(const wire::OpDef& op, const Edge& edge) {
    const auto found = ids_.find(std::string(edge.name));
    if (found == ids_.end()) {
      return Wrong(op, fmt::format("an input comes from {}, which the graph does not have", edge.name),
                   "connect it to a node of the graph");
    }
    Node& source = graph_->at(found->second);
    const auto output = static_cast<uint32_t>(std::max<int64_t>(edge.output, 0));
    // Writers may leave descriptions of outputs out: operators then say themselves what they have.
    if (source.op != nullptr && source.outputs.empty()) undescribed_.insert(found->second);
    if (undescribed_.count(found->second) > 0 && output >= source.outputs.size()) {
      const bool has_list = std::any_of(source.op->outputs.begin(), source.op->outputs.end(),
                                        [](const opdef::Operand& operand) { return operand.is_list(); });
      const size_t most = has_list ? kMostOfOne : source.op->outputs.size();
      if (output < most && outputs_added_ < kMostUndescribed) {
        outputs_added_ += output + 1 - source.outputs.size();
        source.outputs.resize(output + 1);
      }
    }
    return Port{found->second, output};
  }

  Status Connect(const wire::OpDef& op) {
    const bool is_end = &op == net_output_;
    const NodeId self = is_end ? kNoNode : ids_.at(op.name());
    int values = 0;
    for (const std::string& text : op.input()) {
      Input input;
      if (!text.empty()) {
        const std::optional<Edge> edge = EdgeOf(text);
        if (!edge) return Wrong(op, fmt::format("the input \"{:.80}\" is no edge", text), "write it as name:output");
        REPRISE_ASSIGN_OR_RETURN(const Port port, Find(op, *edge));
        if (edge->output == -1) {
          (is_end ? graph_->results_after : graph_->at(self).after).push_back(port.node);
          continue;
        }
        input.source = port;
      }
      if (values < op.input_desc_size()) input.name = op.input_desc(values).name();
      ++values;
      if (is_end) {
        if (!input.source.is_set()) return Wrong(op, "a result is left out", "connect it to a node of the graph");
        graph_->results.push_back(input.source);
      } else {
        graph_->at(self).inputs.push_back(std::move(input));
      }
    }
    return {};
  }

  Status NumberInputs() {
    std::map<int64_t, const wire::OpDef*> numbered;
    for (const wire::OpDef& op : source_.op()) {
      if (KindOf(op.type()) != NodeKind::kData) continue;
      const auto found = op.attr().find("index");
      if (found == op.attr().end() || found->second.value_case() != wire::AttrDef::kI) {
        return WrongInput(op, "it has no attribute index");
      }
      if (!numbered.emplace(found->second.i(), &op).second) {
        return WrongInput(op, fmt::format("another Data node has index {}", found->second.i()));
      }
    }
    for (const auto& [index, op] : numbered) {
      // A subgraph need not use all that its caller hands over.
      while (depth_ > 0 && index > static_cast<int64_t>(graph_->inputs.size()) && index < arguments_) {
        AddUnusedInput();
      }
      if (index != static_cast<int64_t>(graph_->inputs.size())) {
        return WrongInput(*op, fmt::format("index {} where {} comes next", index, graph_->inputs.size()));
      }
      graph_->inputs.push_back(ids_.at(op->name()));
    }
    return {};
  }

  void AddUnusedInput() {
    Node node;
    node.type = "Data";
    node.kind = NodeKind::kData;
    node.attributes.emplace("index", static_cast<int64_t>(graph_->inputs.size()));
    node.notes.emplace(kUnusedInput, true);
    node.outputs.push_back({"y", {}});
    for (size_t number = graph_->inputs.size(); node.name.empty() || ids_.count(node.name) > 0; ++number) {
      node.name = fmt::format("unused_input_{}", number);
    }
    const auto id = static_cast<NodeId>(graph_->nodes.size());
    ids_.emplace(node.name, id);
    graph_->inputs.push_back(id);
    graph_->nodes.push_back(std::move(node));
  }

  // ---- What is left over ----

  void KeepTheRest() {
    int position = -1;
    for (int i = 0; i < source_.op_size(); ++i) {
      wire::OpDef& op = *source_.mutable_op(i);
      if (&op == net_output_) {
        position = i;
      } else {
        KeepNode(op, graph_->at(ids_.at(op.name())));
      }
    }
    wire::OpDef end;
    if (net_output_ != nullptr) {
      end.Swap(net_output_);
      StripInputs(graph_->results, graph_->results_after, end);
      end.clear_type();
    }
    const int last = source_.op_size() - 1;
    source_.clear_op();
    if (net_output_ != nullptr) {
      end.Swap(source_.add_op());
      if (position != last) source_.add_op()->set_id(position);
    }
    source_.clear_name();
    StripAttributes(*source_.mutable_attr());
    graph_->unread = Keep(source_);
  }

  void KeepNode(wire::OpDef& op, Node& node) {
    std::vector<Port> sources;
    for (Input& input : node.inputs) sources.push_back(input.source);
    StripInputs(sources, node.after, op);
    const int described = std::min(op.input_desc_size(), static_cast<int>(node.inputs.size()));
    for (int i = 0; i < described; ++i) {
      op.mutable_input_desc(i)->clear_name();
      node.inputs[static_cast<size_t>(i)].unread = Keep(op.input_desc(i));
    }
    op.mutable_input_desc()->DeleteSubrange(0, described);
    for (int i = 0; i < op.output_desc_size(); ++i) {
      op.mutable_output_desc(i)->clear_name();
      StripTensor(*op.mutable_output_desc(i));
      node.outputs[static_cast<size_t>(i)].unread = Keep(op.output_desc(i));
    }
    op.clear_output_desc();
    if (node.constant != nullptr) {
      wire::TensorDef& value = *op.mutable_attr()->at(kValueAttribute).mutable_t();
      if (value.has_desc()) StripTensor(*value.mutable_desc());
    }
    StripAttributes(*op.mutable_attr());
    op.clear_name();
    op.clear_type();
    op.clear_subgraph_name();
    node.unread = Keep(op);
  }

  // Edges that are written in another order, or otherwise, than ours are kept as they are.
  void StripInputs(const std::vector<Port>& sources, const std::vector<NodeId>& after, wire::OpDef& op) const {
    const std::vector<std::string> edges = EdgesOf(*graph_, sources, after);
    if (std::equal(edges.begin(), edges.end(), op.input().begin(), op.input().end())) op.clear_input();
  }

  wire::ModelDef& model_;
  wire::GraphDef& source_;
  Subgraphs& subgraphs_;
  int depth_;
  int arguments_ = 0;  // of the caller, those of order counted, too
  std::unique_ptr<Graph> graph_;
  std::unordered_map<std::string, NodeId> ids_;
  std::set<NodeId> undescribed_;
  size_t outputs_added_ = 0;
  wire::OpDef* net_output_ = nullptr;
};

}  // namespace

std::vector<std::string> EdgesOf(const Graph& graph, const std::vector<Port>& sources,
                                 const std::vector<NodeId>& after) {
  std::vector<std::string> edges;
  for (const Port& port : sources) {
    edges.push_back(port.is_set() ? fmt::format("{}:{}", graph.at(port.node).name, port.output) : std::string());
  }
  for (const NodeId first : after) edges.push_back(graph.at(first).name + ":-1");
  return edges;
}

StatusOr<std::unique_ptr<Graph>> ImportModel(std::string_view bytes) {
  const google::protobuf::LogSilencer silence;  // the refusal says it
  wire::ModelDef model;
  if (bytes.size() > INT32_MAX || !model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Error(kInvalidArgument, fmt::format("{} bytes are no serialised ge.proto.ModelDef", bytes.size()))
        .Hint("pass what SerializeToString of a ModelDef gives; it holds 2 GiB at most");
  }
  if (model.graph_size() == 0) {
    return Error(kInvalidArgument, "the model has no graph")
        .Hint("pass a serialised ge.proto.ModelDef with one graph at least");
  }
  Subgraphs subgraphs;
  std::vector<std::string> names;
  for (const wire::GraphDef& graph : model.graph()) names.push_back(graph.name());
  subgraphs.emplace(names[0], nullptr);
  REPRISE_ASSIGN_OR_RETURN(auto graph, Importer(model, *model.mutable_graph(0), subgraphs, 0).Run());
  // Graphs that were read leave their names, in the order of the model; others stay.
  std::set<std::string_view> seen;
  for (int i = 0; i < model.graph_size(); ++i) {
    const std::string& name = names[static_cast<size_t>(i)];
    if (i > 0 && subgraphs.count(name) == 0) continue;
    if (!seen.insert(name).second) continue;  // the second one of a name has not been read
    model.mutable_graph(i)->Clear();
    model.mutable_graph(i)->set_name(name);
  }
  graph->model = Keep(model);
  return graph;
}

}  // namespace reprise::compiler
