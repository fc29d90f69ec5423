// SPDX-License-Identifier: Apache-2.0
#include "compiler/export/export.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <map>
#include <set>

#include <wire/ge.pb.h>
#include "compiler/import/fields.h"
#include "compiler/import/proto.h"

namespace reprise::compiler {
namespace {

// All graphs, the root first, each with a name of its own: passes may have made copies.
class GraphNames {
 public:
  explicit GraphNames(const Graph& root) { Add(root); }
  const std::vector<const Graph*>& graphs() const { return graphs_; }
  const std::string& NameOf(const Graph& graph) const { return names_.at(&graph); }

 private:
  void Add(const Graph& graph) {
    if (names_.count(&graph) > 0) return;
    std::string name = graph.name;
    for (int number = 1; !taken_.insert(name).second; ++number) name = fmt::format("{}_{}", graph.name, number);
    names_.emplace(&graph, std::move(name));
    graphs_.push_back(&graph);
    for (const Node& node : graph.nodes) {
      if (node.is_removed) continue;
      for (const auto& inner : node.graphs) Add(*inner);
    }
  }

  std::vector<const Graph*> graphs_;
  std::map<const Graph*, std::string> names_;
  std::set<std::string> taken_;
};

class Exporter {
 public:
  Exporter(const Graph& graph, const GraphNames& names, const ExportOptions& options)
      : graph_(graph), names_(names), options_(options) {}

  wire::GraphDef Run() {
    auto kept = Kept<wire::GraphDef>(graph_.unread);
    int position = -1;
    if (kept.op_size() > 1) position = static_cast<int>(std::min<int64_t>(kept.op(1).id(), INT32_MAX));
    const bool has_end =
        kept.op_size() > 0 || !graph_.results.empty() || !graph_.results_after.empty() || graph_.unread == nullptr;
    wire::OpDef end;
    const bool is_read = kept.op_size() > 0;
    if (is_read) end.Swap(kept.mutable_op(0));
    kept.clear_op();
    wire::GraphDef out;
    if (options_.content != Content::kStructure) {
      out.Swap(&kept);
      WriteAttributes(graph_.attributes, nullptr, *out.mutable_attr());
    }
    out.set_name(names_.NameOf(graph_));
    for (NodeId id = 0; id < graph_.nodes.size(); ++id) {
      const Node& node = graph_.at(id);
      if (node.is_removed || (node.notes.count(kUnusedInput) > 0 && !IsUsed(id))) continue;
      if (has_end && out.op_size() == position) WriteEnd(end, is_read, *out.add_op());
      WriteNode(node, *out.add_op());
    }
    if (has_end && (position < 0 || position >= out.op_size())) WriteEnd(end, is_read, *out.add_op());
    return out;
  }

 private:
  bool IsUsed(NodeId id) const {
    const auto comes_from = [id](const Port& port) { return port.node == id; };
    return std::any_of(graph_.results.begin(), graph_.results.end(), comes_from) ||
           std::any_of(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& node) {
             return std::any_of(node.inputs.begin(), node.inputs.end(),
                                [&](const Input& input) { return comes_from(input.source); });
           });
  }

  void WriteNode(const Node& node, wire::OpDef& op) const {
    auto kept = Kept<wire::OpDef>(node.unread);
    std::vector<Port> sources;
    for (const Input& input : node.inputs) sources.push_back(input.source);
    WriteEdges(sources, node.after, kept, op);
    op.set_name(node.name);
    op.set_type(node.type);
    for (const auto& inner : node.graphs) op.add_subgraph_name(names_.NameOf(*inner));
    if (options_.content == Content::kStructure) return;
    kept.clear_input();
    op.MergeFrom(kept);
    op.clear_input_desc();
    WriteAttributes(node.attributes, &node.notes, *op.mutable_attr());
    if (node.constant != nullptr) WriteConstant(*node.constant, op);
    if (options_.content == Content::kNoData) DropData(*op.mutable_attr());
    const bool is_new = node.unread == nullptr;
    WriteInputs(node, is_new, op);
    for (const wire::TensorDescriptor& desc : kept.input_desc()) {  // of Data nodes, whose inputs are none
      wire::TensorDescriptor& written = *op.add_input_desc();
      written = desc;
      if (node.kind == NodeKind::kData && !node.outputs.empty()) {
        WriteTensor(node.outputs[0].tensor, options_.completes, written);
      }
    }
    size_t described = node.outputs.size();
    while (!is_new && !options_.completes && described > 0 && node.outputs[described - 1].unread == nullptr) {
      --described;
    }
    for (size_t i = 0; i < described; ++i) {
      wire::TensorDescriptor& desc = *op.add_output_desc();
      desc = Kept<wire::TensorDescriptor>(node.outputs[i].unread);
      desc.set_name(node.outputs[i].name);
      WriteTensor(node.outputs[i].tensor, true, desc);
    }
  }

  void WriteInputs(const Node& node, bool is_new, wire::OpDef& op) const {
    size_t described = node.inputs.size();
    while (!is_new && !options_.completes && described > 0 && node.inputs[described - 1].unread == nullptr &&
           node.inputs[described - 1].name.empty()) {
      --described;
    }
    for (size_t i = 0; i < described; ++i) {
      const Input& input = node.inputs[i];
      const bool completes = options_.completes || input.unread == nullptr;
      wire::TensorDescriptor& desc = *op.add_input_desc();
      desc = Kept<wire::TensorDescriptor>(input.unread);
      desc.set_name(input.name);
      if (input.source.is_set()) {
        WriteTensor(graph_.TensorOf(input.source), completes, desc);
      } else if (input.unread == nullptr) {
        wire::AttrDef yes;
        yes.set_i(1);
        (*desc.mutable_attr())["_is_unfed_optional"] = yes;
      }
    }
  }

  void WriteConstant(const Constant& constant, wire::OpDef& op) const {
    wire::TensorDef& value = *(*op.mutable_attr())[kValueAttribute].mutable_t();
    Tensor tensor;
    tensor.dtype = constant.dtype;
    tensor.shape = opdef::Shape::Of(constant.shape);
    if (value.has_desc()) tensor.format = TensorOf(value.desc()).format;
    WriteTensor(tensor, true, *value.mutable_desc());
    if (options_.content == Content::kAll) value.set_data(constant.bytes);
  }

  static void DropData(AttrMap& attrs) {
    for (auto& [name, attr] : attrs) {
      if (attr.has_t()) attr.mutable_t()->clear_data();
      if (!attr.has_list()) continue;
      for (wire::TensorDef& tensor : *attr.mutable_list()->mutable_t()) tensor.clear_data();
    }
  }

  void WriteEnd(const wire::OpDef& read, bool is_read, wire::OpDef& op) const {
    WriteEdges(graph_.results, graph_.results_after, read, op);
    if (options_.content != Content::kStructure) {
      wire::OpDef rest = read;
      rest.clear_input();
      op.MergeFrom(rest);
    }
    op.set_type("NetOutput");
    if (is_read) {
      op.set_name(read.name());
    } else {
      std::string name = "NetOutput";
      const auto is_taken = [&](const Node& node) { return !node.is_removed && node.name == name; };
      while (std::any_of(graph_.nodes.begin(), graph_.nodes.end(), is_taken)) name += '_';
      op.set_name(name);
    }
    if (options_.content == Content::kStructure) return;
    const auto results = static_cast<int>(graph_.results.size());
    if (op.input_desc_size() > results)
      op.mutable_input_desc()->DeleteSubrange(results, op.input_desc_size() - results);
    const bool completes = !is_read || options_.completes;
    for (int i = 0; i < results; ++i) {
      const bool is_described = i < op.input_desc_size();
      if (!is_described && !completes) break;
      wire::TensorDescriptor& desc = is_described ? *op.mutable_input_desc(i) : *op.add_input_desc();
      if (!is_described) desc.set_name(fmt::format("input{}", i));
      WriteTensor(graph_.TensorOf(graph_.results[static_cast<size_t>(i)]), completes, desc);
    }
  }

  // Edges in the order in which they were read, if they are the same ones.
  void WriteEdges(const std::vector<Port>& sources, const std::vector<NodeId>& after, const wire::OpDef& kept,
                  wire::OpDef& op) const {
    const std::vector<std::string> edges = EdgesOf(graph_, sources, after);
    std::vector<std::string> values;
    std::vector<std::string> order;
    for (const std::string& text : kept.input()) {
      const size_t colon = text.rfind(':');
      const bool is_order = colon != std::string::npos && text.substr(colon) == ":-1";
      (is_order ? order : values).push_back(colon == std::string::npos && !text.empty() ? text + ":0" : text);
    }
    values.insert(values.end(), order.begin(), order.end());
    if (kept.input_size() > 0 && values == edges) {
      *op.mutable_input() = kept.input();
      return;
    }
    for (const std::string& edge : edges) op.add_input(edge);
  }

  const Graph& graph_;
  const GraphNames& names_;
  const ExportOptions& options_;
};

}  // namespace

StatusOr<std::string> ExportModel(const Graph& graph, const ExportOptions& options) {
  const google::protobuf::LogSilencer silence;
  const GraphNames names(graph);
  std::map<std::string, const Graph*, std::less<>> missing;
  for (const Graph* const one : names.graphs()) missing.emplace(names.NameOf(*one), one);
  auto kept = Kept<wire::ModelDef>(graph.model);
  wire::ModelDef model;
  google::protobuf::RepeatedPtrField<wire::GraphDef> read;
  read.Swap(kept.mutable_graph());
  if (options.content != Content::kStructure) model.Swap(&kept);
  const auto write = [&](const Graph& one) {
    *model.add_graph() = Exporter(one, names, options).Run();
    missing.erase(names.NameOf(one));
  };
  write(graph);
  for (int i = 1; i < read.size(); ++i) {
    const bool is_name = read[i].op_size() == 0;
    const auto found = missing.find(read[i].name());
    if (is_name && found != missing.end()) {
      write(*found->second);
    } else if (!is_name || names.graphs().size() == 1) {
      *model.add_graph() = read[i];  // nobody calls it
    }
  }
  for (const Graph* const one : names.graphs()) {
    if (missing.count(names.NameOf(*one)) > 0) write(*one);
  }
  if (model.ByteSizeLong() > INT32_MAX) {
    return Error(kInvalidArgument,
                 fmt::format("the graph {} has {} bytes, a model at most 2 GiB", graph.name, model.ByteSizeLong()))
        .Culprit(fmt::format("graph {}", graph.name))
        .Hint("keep its weights in files (ge.externalWeight), or write it without data");
  }
  return BytesOf(model);
}

}  // namespace reprise::compiler
