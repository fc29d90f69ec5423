// SPDX-License-Identifier: Apache-2.0
#include "compiler/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <set>
#include <vector>

#include "compiler/constant.h"
#include "opdef/infer.h"

namespace reprise::compiler {
namespace {

constexpr size_t kMostShown = 16;

std::string TypeText(const Tensor& tensor) {
  std::string text = fmt::format("{} {}", tensor.dtype < 0 ? "?" : opdef::TypeName(tensor.dtype), tensor.shape.text());
  if (tensor.format != kFormatNd) text += fmt::format(" format {}", tensor.format);
  return text;
}

std::string ValueText(const Constant& constant) {
  if (ElementsOf(constant) <= static_cast<int64_t>(kMostShown)) {
    const std::string elements = ElementsText(constant);
    return elements.empty() && !constant.bytes.empty() ? fmt::format("{} bytes", constant.bytes.size()) : elements;
  }
  if (UniformValueOf(constant)) {
    const auto bytes = static_cast<size_t>(opdef::TypeBits(constant.dtype) / 8);
    return ElementsText({constant.dtype, {}, constant.bytes.substr(0, bytes)}) + " ...";
  }
  return fmt::format("{} bytes", constant.bytes.size());
}

std::string AttributesText(const opdef::Attributes& attributes) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : attributes) {
    texts.push_back(fmt::format("{} = {}", name, opdef::AttributeText(value)));
  }
  return fmt::format("{{{}}}", fmt::join(texts, ", "));
}

std::string InputsText(const Graph& graph, const Node& node) {
  std::vector<std::string> inputs;
  for (const Input& input : node.inputs) {
    const std::string source = graph.TextOf(input.source);
    inputs.push_back(input.name.empty() ? source : fmt::format("{} = {}", input.name, source));
  }
  return fmt::format("{}", fmt::join(inputs, ", "));
}

void WriteNode(const Graph& graph, const Node& node, Notes notes, std::string& text) {
  auto out = std::back_inserter(text);
  fmt::format_to(out, "{} = {}({})", node.name, node.type, InputsText(graph, node));
  if (!node.attributes.empty()) fmt::format_to(out, " {}", AttributesText(node.attributes));
  if (notes == Notes::kShow && !node.notes.empty()) fmt::format_to(out, " notes {}", AttributesText(node.notes));
  if (!node.graphs.empty()) {
    std::vector<std::string> names;
    for (const auto& inner : node.graphs) names.push_back(inner->name);
    fmt::format_to(out, " calls ({})", fmt::join(names, ", "));
  }
  if (!node.after.empty()) {
    std::vector<std::string> names;
    for (const NodeId first : node.after) names.push_back(graph.at(first).name);
    fmt::format_to(out, " after ({})", fmt::join(names, ", "));
  }
  const char* separator = " : ";
  for (const Output& output : node.outputs) {
    fmt::format_to(out, "{}{}{}", separator, output.name.empty() ? "" : output.name + " ", TypeText(output.tensor));
    separator = ", ";
  }
  if (node.constant != nullptr) fmt::format_to(out, " = {}", ValueText(*node.constant));
  text += '\n';
}

void WriteGraph(const Graph& graph, Notes notes, std::set<const Graph*>& seen, std::string& text) {
  auto out = std::back_inserter(text);
  fmt::format_to(out, "graph {}\n", graph.name);
  for (const NodeId id : TopologicalOrder(graph)) WriteNode(graph, graph.at(id), notes, text);
  std::vector<std::string> results;
  for (const Port& port : graph.results) results.push_back(graph.TextOf(port));
  fmt::format_to(out, "return {}", fmt::join(results, ", "));
  if (!graph.results_after.empty()) {
    std::vector<std::string> names;
    for (const NodeId first : graph.results_after) names.push_back(graph.at(first).name);
    fmt::format_to(out, " after ({})", fmt::join(names, ", "));
  }
  text += '\n';
  for (const Node& node : graph.nodes) {
    if (node.is_removed) continue;
    for (const auto& inner : node.graphs) {
      if (!seen.insert(inner.get()).second) continue;
      text += '\n';
      WriteGraph(*inner, notes, seen, text);
    }
  }
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string ToText(const Graph& graph, Notes notes) {
  std::string text;
  std::set<const Graph*> seen = {&graph};
  WriteGraph(graph, notes, seen, text);
  return text;
}

std::string ToDot(const Graph& graph) {
  std::string dot = fmt::format("digraph {} {{\n  node [shape=box, fontname=\"sans-serif\"];\n", Quoted(graph.name));
  auto out = std::back_inserter(dot);
  for (NodeId id = 0; id < graph.nodes.size(); ++id) {
    const Node& node = graph.at(id);
    if (node.is_removed) continue;
    fmt::format_to(out, "  n{} [label={}];\n", id, Quoted(node.name + "\n" + node.type));
    for (const Input& input : node.inputs) {
      if (!input.source.is_set()) continue;
      fmt::format_to(out, "  n{} -> n{} [label={}];\n", input.source.node, id,
                     Quoted(TypeText(graph.TensorOf(input.source))));
    }
    for (const NodeId first : node.after) fmt::format_to(out, "  n{} -> n{} [style=dashed];\n", first, id);
  }
  dot += "  results [shape=plaintext];\n";
  for (const Port& port : graph.results) {
    fmt::format_to(out, "  n{} -> results [label={}];\n", port.node, Quoted(TypeText(graph.TensorOf(port))));
  }
  return dot + "}\n";
}

}  // namespace reprise::compiler
