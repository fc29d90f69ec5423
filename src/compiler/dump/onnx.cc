// SPDX-License-Identifier: Apache-2.0
//
// Graphs as models of ONNX in protobuf's text form. The operators are none of ONNX: viewers show them by their types,
// which stand behind "ge:".
#include <fmt/format.h>

#include <iterator>

#include "compiler/dump/dump.h"
#include "compiler/dump/quoted.h"
#include "opdef/infer.h"

namespace reprise::compiler {
namespace {

struct ElementType {
  int32_t dtype;
  int onnx;
};
constexpr ElementType kElementTypes[] = {{0, 1},   {1, 10},  {2, 3},   {3, 6},   {4, 2},   {6, 5},   {7, 4},
                                         {8, 12},  {9, 7},   {10, 13}, {11, 11}, {12, 9},  {13, 8},  {16, 14},
                                         {17, 15}, {27, 16}, {29, 22}, {35, 19}, {36, 17}, {37, 24}, {40, 23}};

int ElementTypeOf(int32_t dtype) {
  for (const ElementType& type : kElementTypes) {
    if (type.dtype == dtype) return type.onnx;
  }
  return 0;
}

class Writer {
 public:
  explicit Writer(Content content) : content_(content) {}

  void WriteGraph(const Graph& graph, int depth) {
    for (const NodeId id : TopologicalOrder(graph)) WriteNode(graph, graph.at(id), depth);
    if (!graph.results.empty() || !graph.results_after.empty()) {
      Line(depth, "node {{");
      for (const Port& port : graph.results) Line(depth + 1, "input: {}", Quoted(graph.TextOf(port)));
      for (const NodeId first : graph.results_after) Line(depth + 1, "input: {}", Quoted(graph.at(first).name + ":-1"));
      Line(depth + 1, "name: \"NetOutput\"");
      Line(depth + 1, "op_type: \"ge:NetOutput\"");
      Line(depth, "}}");
    }
    Line(depth, "name: {}", Quoted(graph.name));
    if (content_ == Content::kAll) WriteConstants(graph, depth);
    for (const NodeId id : graph.inputs) {
      for (size_t i = 0; i < graph.at(id).outputs.size(); ++i) WriteValue(graph, {id, uint32_t(i)}, "input", depth);
    }
    for (const Port& port : graph.results) WriteValue(graph, port, "output", depth);
    if (content_ == Content::kStructure) return;
    for (const NodeId id : TopologicalOrder(graph)) {
      if (graph.at(id).kind == NodeKind::kData) continue;
      for (size_t i = 0; i < graph.at(id).outputs.size(); ++i) {
        WriteValue(graph, {id, uint32_t(i)}, "value_info", depth);
      }
    }
  }

  std::string text;

  template <class... Arguments>
  void Line(int depth, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text.append(static_cast<size_t>(depth) * 2, ' ');
    fmt::format_to(std::back_inserter(text), format, std::forward<Arguments>(arguments)...);
    text += '\n';
  }

 private:
  void WriteNode(const Graph& graph, const Node& node, int depth) {
    Line(depth, "node {{");
    for (const Input& input : node.inputs) {
      Line(depth + 1, "input: {}", input.source.is_set() ? Quoted(graph.TextOf(input.source)) : "\"\"");
    }
    for (const NodeId first : node.after) Line(depth + 1, "input: {}", Quoted(graph.at(first).name + ":-1"));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      Line(depth + 1, "output: {}", Quoted(fmt::format("{}:{}", node.name, i)));
    }
    Line(depth + 1, "name: {}", Quoted(node.name));
    Line(depth + 1, "op_type: {}", Quoted("ge:" + node.type));
    if (content_ != Content::kStructure) {
      for (const opdef::Attributes* const set : {&node.attributes, &node.notes}) {
        for (const auto& [name, value] : *set) WriteAttribute(name, value, depth + 1);
      }
    }
    for (size_t i = 0; i < node.graphs.size(); ++i) {
      Line(depth + 1, "attribute {{");
      Line(depth + 2, "name: \"graph{}\"", i);
      Line(depth + 2, "type: GRAPH");
      Line(depth + 2, "g {{");
      WriteGraph(*node.graphs[i], depth + 3);
      Line(depth + 2, "}}");
      Line(depth + 1, "}}");
    }
    Line(depth, "}}");
  }

  void WriteAttribute(const std::string& name, const opdef::AttributeValue& value, int depth) {
    const auto* const plain = std::get_if<std::string>(&value);
    Line(depth, "attribute {{");
    Line(depth + 1, "name: {}", Quoted(name));
    Line(depth + 1, "type: STRING");
    Line(depth + 1, "s: {}", Quoted(plain != nullptr ? *plain : opdef::AttributeText(value)));
    Line(depth, "}}");
  }

  void WriteConstants(const Graph& graph, int depth) {
    for (const Node& node : graph.nodes) {
      if (node.is_removed || node.constant == nullptr) continue;
      Line(depth, "initializer {{");
      for (const int64_t dim : node.constant->shape) Line(depth + 1, "dims: {}", dim);
      Line(depth + 1, "data_type: {}", ElementTypeOf(node.constant->dtype));
      Line(depth + 1, "name: {}", Quoted(node.name + ":0"));
      Line(depth + 1, "raw_data: {}", Quoted(node.constant->bytes));
      Line(depth, "}}");
    }
  }

  void WriteValue(const Graph& graph, const Port& port, const char* field, int depth) {
    const Tensor& tensor = graph.TensorOf(port);
    Line(depth, "{} {{", field);
    Line(depth + 1, "name: {}", Quoted(graph.TextOf(port)));
    if (content_ != Content::kStructure) {
      Line(depth + 1, "type {{");
      Line(depth + 2, "tensor_type {{");
      Line(depth + 3, "elem_type: {}", ElementTypeOf(tensor.dtype));
      if (tensor.shape.has_rank()) WriteShape(tensor.shape, depth + 3);
      Line(depth + 2, "}}");
      Line(depth + 1, "}}");
    }
    Line(depth, "}}");
  }

  void WriteShape(const opdef::Shape& shape, int depth) {
    Line(depth, "shape {{");
    for (const opdef::Dim& dim : shape.dims()) {
      if (dim.is_number()) {
        Line(depth + 1, "dim {{ dim_value: {} }}", dim.number());
      } else {
        Line(depth + 1, "dim {{ dim_param: {} }}", Quoted(dim.text()));
      }
    }
    Line(depth, "}}");
  }

  Content content_;
};

}  // namespace

std::string OnnxText(const Graph& graph, Content content) {
  Writer writer(content);
  writer.Line(0, "ir_version: 8");
  writer.Line(0, "producer_name: \"reprise\"");
  writer.Line(0, "graph {{");
  writer.WriteGraph(graph, 1);
  writer.Line(0, "}}");
  writer.Line(0, "opset_import {{ domain: \"ge\" version: 1 }}");
  return std::move(writer.text);
}

}  // namespace reprise::compiler
