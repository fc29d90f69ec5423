// SPDX-License-Identifier: Apache-2.0
#include "compiler/import/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <unordered_map>

#include <api/ge.pb.h>

namespace reprise::compiler {
namespace {

namespace proto = ge::proto;

// By number of ge.proto.DataType: the number of ge::DataType, which is that of aclDataType.
constexpr std::array<int32_t, 41> kTypes = {-1, 0,  1,  2,  4,  6,  7,  3,  9,  8,  10, 12, 11, 13,
                                            14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27,
                                            29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41};

opdef::Shape ShapeOf(const proto::ShapeDef& shape) {
  const std::vector<int64_t> dims(shape.dim().begin(), shape.dim().end());
  return opdef::Shape::Of(dims);
}

Tensor TensorOf(const proto::TensorDescriptor& desc) {
  Tensor tensor;
  tensor.dtype = TypeOfProto(desc.dtype());
  tensor.shape = ShapeOf(desc.shape());
  if (const auto found = desc.attr().find("format_for_int"); found != desc.attr().end()) {
    tensor.format = static_cast<int32_t>(found->second.i());
  }
  return tensor;
}

template <class T, class Field>
std::vector<T> VectorOf(const Field& field) {
  std::vector<T> values;
  values.reserve(static_cast<size_t>(field.size()));
  for (const auto& value : field) values.push_back(static_cast<T>(value));
  return values;
}

std::optional<opdef::AttributeValue> ListOf(const proto::AttrDef::ListValue& list) {
  using List = proto::AttrDef::ListValue;
  if (list.i_size() > 0) return VectorOf<int64_t>(list.i());
  if (list.f_size() > 0) return VectorOf<float>(list.f());
  if (list.b_size() > 0) return VectorOf<bool>(list.b());
  if (list.s_size() > 0) return VectorOf<std::string>(list.s());
  const auto types = [&] {
    std::vector<opdef::DataTypeValue> values;
    for (const int64_t number : list.dt()) values.push_back({static_cast<int32_t>(number)});
    return values;
  };
  if (list.dt_size() > 0) return types();
  switch (list.val_type()) {  // all lists are empty; writers do not always say which one is meant
    case List::VT_LIST_FLOAT: return std::vector<float>{};
    case List::VT_LIST_BOOL: return std::vector<bool>{};
    case List::VT_LIST_STRING: return std::vector<std::string>{};
    case List::VT_LIST_DATA_TYPE: return types();
    case List::VT_LIST_NONE:
    case List::VT_LIST_INT: return std::vector<int64_t>{};
    default: return std::nullopt;
  }
}

// Nothing for kinds that no operator has: tensors, descriptions, graphs, functions.
std::optional<opdef::AttributeValue> AttributeOf(const proto::AttrDef& attr) {
  switch (attr.value_case()) {
    case proto::AttrDef::kS: return attr.s();
    case proto::AttrDef::kI: return attr.i();
    case proto::AttrDef::kF: return attr.f();
    case proto::AttrDef::kB: return attr.b();
    case proto::AttrDef::kDt: return opdef::DataTypeValue{static_cast<int32_t>(attr.dt())};
    case proto::AttrDef::kList: return ListOf(attr.list());
    case proto::AttrDef::kListListInt: {
      std::vector<std::vector<int64_t>> lists;
      for (const auto& list : attr.list_list_int().list_list_i()) lists.push_back(VectorOf<int64_t>(list.list_i()));
      return lists;
    }
    default: return std::nullopt;
  }
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
  if (error != std::errc() || stop != end || edge.output < -1) return std::nullopt;
  return edge;
}

// The subgraphs of a model by name, as far as they are read: null while one is being read. Nodes that call the same one
// share it.
using Subgraphs = std::map<std::string, std::shared_ptr<Graph>, std::less<>>;

class Importer {
 public:
  Importer(const proto::ModelDef& model, const proto::GraphDef& source, Subgraphs& subgraphs)
      : model_(model), source_(source), subgraphs_(subgraphs), graph_(std::make_unique<Graph>()) {
    graph_->name = source.name();
  }

  StatusOr<std::unique_ptr<Graph>> Run() {
    REPRISE_RETURN_IF_ERROR(AddNodes());
    for (const proto::OpDef& op : source_.op()) REPRISE_RETURN_IF_ERROR(Connect(op));
    REPRISE_RETURN_IF_ERROR(NumberInputs());
    return std::move(graph_);
  }

 private:
  Status Wrong(const proto::OpDef& op, std::string what, std::string hint) const {
    return Error(kInvalidArgument, fmt::format("node {} ({}): {}", op.name(), op.type(), what))
        .Culprit(fmt::format("graph {}", source_.name()))
        .Hint(std::move(hint));
  }

  Status AddNodes() {
    for (const proto::OpDef& op : source_.op()) {
      if (op.type() == "NetOutput") {
        if (net_output_ != nullptr) return Wrong(op, "the graph has another NetOutput", "leave one");
        net_output_ = &op;
        continue;
      }
      Node node;
      node.name = op.name();
      node.type = op.type();
      node.kind = KindOfType(op.type());
      node.op = opdef::FindGraphOp(op.type());
      for (const auto& [name, attr] : op.attr()) {
        auto value = AttributeOf(attr);
        if (!value) continue;
        const bool is_own = node.op == nullptr || node.op->FindAttribute(name) != nullptr;
        (is_own ? node.attributes : node.notes).emplace(name, std::move(*value));
      }
      for (const proto::TensorDescriptor& desc : op.output_desc())
        node.outputs.push_back({desc.name(), TensorOf(desc)});
      if (node.outputs.empty() && node.kind != NodeKind::kOrder && node.kind != NodeKind::kOperator) {
        node.outputs.push_back({"y", {}});
      }
      if (node.kind == NodeKind::kConstant) REPRISE_RETURN_IF_ERROR(AddConstant(op, node));
      for (const std::string& name : op.subgraph_name()) REPRISE_RETURN_IF_ERROR(AddSubgraph(op, name, node));
      if (!ids_.emplace(op.name(), static_cast<NodeId>(graph_->nodes.size())).second) {
        return Wrong(op, "another node has this name", "give every node of a graph a name of its own");
      }
      graph_->nodes.push_back(std::move(node));
    }
    return {};
  }

  Status AddConstant(const proto::OpDef& op, Node& node) const {
    const auto found = op.attr().find("value");
    if (found == op.attr().end() || !found->second.has_t()) {
      return Wrong(op, "it has no attribute value with a tensor", "set the attribute value");
    }
    const proto::TensorDef& tensor = found->second.t();
    auto constant = std::make_shared<Constant>();
    constant->dtype = TypeOfProto(tensor.desc().dtype());
    constant->shape.assign(tensor.desc().shape().dim().begin(), tensor.desc().shape().dim().end());
    constant->bytes = tensor.data();
    node.outputs[0].tensor = TensorOf(tensor.desc());
    node.constant = std::move(constant);
    return {};
  }

  Status AddSubgraph(const proto::OpDef& op, const std::string& name, Node& node) {
    const auto [known, is_new] = subgraphs_.emplace(name, nullptr);
    if (is_new) {
      const auto found = std::find_if(model_.graph().begin(), model_.graph().end(),
                                      [&](const proto::GraphDef& graph) { return graph.name() == name; });
      if (found == model_.graph().end()) {
        return Wrong(op, fmt::format("the model has no graph {}", name), "add the subgraph to the model");
      }
      REPRISE_ASSIGN_OR_RETURN(known->second, Importer(model_, *found, subgraphs_).Run());
    } else if (known->second == nullptr) {
      return Wrong(op, fmt::format("the graph {} calls itself", name), "loops are While operators with a subgraph");
    }
    node.graphs.push_back(known->second);
    return {};
  }

  StatusOr<Port> Find(const proto::OpDef& op, const Edge& edge) {
    const auto found = ids_.find(std::string(edge.name));
    if (found == ids_.end()) {
      return Wrong(op, fmt::format("an input comes from {}, which the graph does not have", edge.name),
                   "connect it to a node of the graph");
    }
    Node& source = graph_->at(found->second);
    const auto output = static_cast<uint32_t>(std::max<int64_t>(edge.output, 0));
    // Writers may leave descriptions of outputs out: operators then say themselves what they have.
    if (source.outputs.empty() && source.op != nullptr && output < 4096) {
      while (source.outputs.size() <= output) source.outputs.emplace_back();
    }
    return Port{found->second, output};
  }

  Status Connect(const proto::OpDef& op) {
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
    std::map<int64_t, NodeId> numbered;
    for (const proto::OpDef& op : source_.op()) {
      if (KindOfType(op.type()) != NodeKind::kData) continue;
      const auto found = op.attr().find("index");
      if (found == op.attr().end() || found->second.value_case() != proto::AttrDef::kI) {
        return Wrong(op, "it has no attribute index", "number the Data nodes from 0");
      }
      if (!numbered.emplace(found->second.i(), ids_.at(op.name())).second) {
        return Wrong(op, fmt::format("another Data node has index {}", found->second.i()), "number them from 0");
      }
    }
    for (const auto& [index, id] : numbered) {
      if (index != static_cast<int64_t>(graph_->inputs.size())) {
        return Error(kInvalidArgument, fmt::format("node {}: index {} where {} comes next", graph_->at(id).name, index,
                                                   graph_->inputs.size()))
            .Culprit(fmt::format("graph {}", source_.name()))
            .Hint("number the Data nodes from 0 without gaps");
      }
      graph_->inputs.push_back(id);
    }
    return {};
  }

  const proto::ModelDef& model_;
  const proto::GraphDef& source_;
  Subgraphs& subgraphs_;
  std::unique_ptr<Graph> graph_;
  std::unordered_map<std::string, NodeId> ids_;
  const proto::OpDef* net_output_ = nullptr;
};

}  // namespace

int32_t TypeOfProto(int type) {
  return type >= 0 && type < static_cast<int>(kTypes.size()) ? kTypes[static_cast<size_t>(type)] : -1;
}

int ProtoOfType(int32_t dtype) {
  const auto* const found = std::find(kTypes.begin() + 1, kTypes.end(), dtype);
  return found == kTypes.end() ? 0 : static_cast<int>(found - kTypes.begin());
}

StatusOr<std::unique_ptr<Graph>> Import(const proto::ModelDef& model) {
  if (model.graph_size() == 0) {
    return Error(kInvalidArgument, "the model has no graph")
        .Hint("pass a serialised ge.proto.ModelDef with one graph at least");
  }
  Subgraphs subgraphs;
  subgraphs.emplace(model.graph(0).name(), nullptr);
  REPRISE_ASSIGN_OR_RETURN(auto graph, Importer(model, model.graph(0), subgraphs).Run());
  REPRISE_RETURN_IF_ERROR(Verify(*graph));
  return graph;
}

StatusOr<std::unique_ptr<Graph>> ImportBytes(std::string_view bytes) {
  const google::protobuf::LogSilencer silence;  // the refusal says it
  proto::ModelDef model;
  if (bytes.size() > INT32_MAX || !model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Error(kInvalidArgument, fmt::format("{} bytes are no serialised ge.proto.ModelDef", bytes.size()))
        .Hint("pass what SerializeToString of a ModelDef gives; it holds 2 GiB at most");
  }
  return Import(model);
}

}  // namespace reprise::compiler
