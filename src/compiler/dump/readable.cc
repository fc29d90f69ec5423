// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <iterator>
#include <map>
#include <set>

#include "compiler/dump/dump.h"
#include "compiler/operands.h"
#include "kernels/float16.h"
#include "opdef/infer.h"

namespace reprise::compiler {
namespace {

constexpr size_t kShownWhole = 6;
constexpr size_t kShownOfMore = 3;  // at either end

template <class T>
std::string Element(const std::string& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return fmt::format("{}", value);
}

// Element `i` of a constant; empty for types that are not shown.
std::string ElementText(const Constant& constant, size_t i) {
  const std::string& bytes = constant.bytes;
  uint16_t half = 0;
  switch (constant.dtype) {
    case 0: return Element<float>(bytes, i);
    case 1: std::memcpy(&half, bytes.data() + i * 2, 2); return fmt::format("{}", kernels::HalfBitsToFloat(half));
    case 2: return fmt::format("{}", static_cast<int>(static_cast<int8_t>(bytes[i])));
    case 3: return Element<int32_t>(bytes, i);
    case 4: return fmt::format("{}", static_cast<int>(static_cast<uint8_t>(bytes[i])));
    case 6: return Element<int16_t>(bytes, i);
    case 7: return Element<uint16_t>(bytes, i);
    case 8: return Element<uint32_t>(bytes, i);
    case 9: return Element<int64_t>(bytes, i);
    case 10: return Element<uint64_t>(bytes, i);
    case 11: return Element<double>(bytes, i);
    case 12: return bytes[i] != 0 ? "true" : "false";
    case 27: std::memcpy(&half, bytes.data() + i * 2, 2); return fmt::format("{}", kernels::BFloat16BitsToFloat(half));
    default: return {};
  }
}

std::string ConstantText(const Constant& constant) {
  if (constant.bytes.empty()) return "<empty>";
  const int64_t bits = opdef::TypeBits(constant.dtype);
  const size_t count = bits < 8 ? 0 : constant.bytes.size() / static_cast<size_t>(bits / 8);
  if (count == 0 || ElementText(constant, 0).empty()) {
    return fmt::format("<values of type {}>", opdef::TypeName(constant.dtype));
  }
  const auto elements = [&](size_t begin, size_t end) {
    std::vector<std::string> texts;
    for (size_t i = begin; i < end; ++i) texts.push_back(ElementText(constant, i));
    return fmt::format("{}", fmt::join(texts, ", "));
  };
  if (count <= kShownWhole) return fmt::format("[{}]", elements(0, count));
  return fmt::format("[{} ... {}]", elements(0, kShownOfMore), elements(count - kShownOfMore, count));
}

// The attribute that holds subgraph `i` of a node.
std::string GraphAttribute(const Node& node, size_t i) {
  if (node.type == "If") return i == 0 ? "then_branch" : "else_branch";
  if (node.type == "While") return i == 0 ? "cond" : "body";
  if (node.type == "Case") return fmt::format("branches{}", i);
  if (node.type == "For") return "body";
  return i == 0 ? std::string("f") : fmt::format("f{}", i);
}

class Readable {
 public:
  void Write(const Graph& graph) {
    seen_.insert(&graph);
    names_.clear();
    std::map<std::pair<NodeId, uint32_t>, size_t> users;
    CountUsers(graph, users);
    size_t values = 0;
    fmt::format_to(Out(), "graph(\"{}\"):\n", graph.name);
    for (const NodeId id : TopologicalOrder(graph)) {
      const Node& node = graph.at(id);
      fmt::format_to(Out(), "  %{} : [#users={}] = Node[type={}] (inputs = ({}), attrs = {{{}}})\n", node.name,
                     node.outputs.size(), node.type, Inputs(graph, id), Attributes(node));
      for (uint32_t i = 0; i < node.outputs.size(); ++i) {
        if (node.outputs.size() == 1) {
          names_[{id, 0}] = node.name;
          continue;
        }
        const std::string name = values == 0 ? "ret" : fmt::format("ret_{}", values);
        ++values;
        names_[{id, i}] = name;
        fmt::format_to(Out(), "  %{} : [#users={}] = get_element[node=%{}]({})\n", name, users[{id, i}], node.name, i);
      }
    }
    std::vector<std::string> results;
    for (size_t i = 0; i < graph.results.size(); ++i) {
      const std::string name = NameOf(graph.results[i]);
      results.push_back(graph.results.size() == 1 ? name : fmt::format("output_{}={}", i, name));
    }
    fmt::format_to(Out(), "  return ({})\n", fmt::join(results, ", "));
    for (const Node& node : graph.nodes) {
      if (node.is_removed) continue;
      for (const auto& inner : node.graphs) {
        if (seen_.count(inner.get()) > 0) continue;
        text += '\n';
        Write(*inner);
      }
    }
  }

  std::string text;

 private:
  std::back_insert_iterator<std::string> Out() { return std::back_inserter(text); }

  static void CountUsers(const Graph& graph, std::map<std::pair<NodeId, uint32_t>, size_t>& users) {
    for (const Node& node : graph.nodes) {
      if (node.is_removed) continue;
      for (const Input& input : node.inputs) ++users[{input.source.node, input.source.output}];
    }
    for (const Port& port : graph.results) ++users[{port.node, port.output}];
  }

  std::string NameOf(const Port& port) const {
    const auto found = names_.find({port.node, port.output});
    return '%' + (found != names_.end() ? found->second : std::string("?"));
  }

  std::string Inputs(const Graph& graph, NodeId id) const {
    const Node& node = graph.at(id);
    std::vector<std::string> names(node.inputs.size());
    for (size_t i = 0; i < names.size(); ++i) {
      names[i] = node.inputs[i].name.empty() ? fmt::format("_input_{}", i) : node.inputs[i].name;
    }
    if (node.op != nullptr) {
      StatusOr<Operands> operands = BindOperands(graph, id);
      for (size_t k = 0; operands.ok() && k < operands->size(); ++k) {
        const opdef::Operand& operand = node.op->inputs[k];
        for (size_t n = 0; n < (*operands)[k].size(); ++n) {
          names[(*operands)[k][n]] =
              operand.is_list() ? fmt::format("{}_{}", operand.name, n) : std::string(operand.name);
        }
      }
    }
    std::vector<std::string> inputs;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!node.inputs[i].source.is_set()) continue;
      inputs.push_back(fmt::format("{}={}", names[i], NameOf(node.inputs[i].source)));
    }
    return fmt::format("{}", fmt::join(inputs, ", "));
  }

  static std::string Attributes(const Node& node) {
    std::vector<std::string> attributes;
    for (size_t i = 0; i < node.graphs.size(); ++i) {
      attributes.push_back(fmt::format("{}: %{}", GraphAttribute(node, i), node.graphs[i]->name));
    }
    if (node.constant != nullptr) attributes.push_back("value: " + ConstantText(*node.constant));
    for (const auto& [name, value] : node.attributes) {
      if (name.starts_with('_')) continue;
      attributes.push_back(fmt::format("{}: {}", name, opdef::AttributeText(value)));
    }
    return fmt::format("{}", fmt::join(attributes, ", "));
  }

  std::set<const Graph*> seen_;
  std::map<std::pair<NodeId, uint32_t>, std::string> names_;
};

}  // namespace

std::string ReadableText(const Graph& graph) {
  Readable readable;
  readable.Write(graph);
  return std::move(readable.text);
}

}  // namespace reprise::compiler
