// SPDX-License-Identifier: Apache-2.0
#include "compiler/operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace reprise::compiler {
namespace {

// "x12" is number 12 of the list "x".
std::optional<uint32_t> NumberBehind(std::string_view name, std::string_view list) {
  if (!name.starts_with(list) || name.size() == list.size()) return std::nullopt;
  uint32_t number = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + list.size(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

class Binder {
 public:
  Binder(const Graph& graph, const Node& node) : graph_(graph), node_(node), operands_(node.op->inputs.size()) {}

  StatusOr<Operands> Run() {
    const bool has_names =
        std::all_of(node_.inputs.begin(), node_.inputs.end(), [](const Input& input) { return !input.name.empty(); });
    if (has_names) {
      REPRISE_RETURN_IF_ERROR(ByName());
    } else {
      REPRISE_RETURN_IF_ERROR(ByPosition());
    }
    for (size_t i = 0; i < operands_.size(); ++i) {
      const opdef::Operand& operand = node_.op->inputs[i];
      if (!operands_[i].empty() || operand.is_optional() || operand.is_list()) continue;
      return Wrong(fmt::format("the input {} is missing", operand.name));
    }
    return std::move(operands_);
  }

 private:
  Status Wrong(std::string what) const {
    return Error(kInvalidArgument, fmt::format("node {} ({}): {}", node_.name, node_.type, what))
        .Culprit(fmt::format("graph {}", graph_.name))
        .Hint("its inputs are " + opdef::InputsText(*node_.op));
  }

  // The operand of a name and, of a list, the number there.
  std::optional<std::pair<size_t, uint32_t>> Find(std::string_view name) const {
    for (size_t i = 0; i < operands_.size(); ++i) {
      const opdef::Operand& operand = node_.op->inputs[i];
      if (operand.name == name) return std::pair(i, 0U);
    }
    for (size_t i = 0; i < operands_.size(); ++i) {
      const opdef::Operand& operand = node_.op->inputs[i];
      if (!operand.is_list()) continue;
      if (const auto number = NumberBehind(name, operand.name)) return std::pair(i, *number);
    }
    return std::nullopt;
  }

  Status ByName() {
    for (uint32_t i = 0; i < node_.inputs.size(); ++i) {
      const Input& input = node_.inputs[i];
      const auto found = Find(input.name);
      if (!found) return Wrong(fmt::format("it has no input {}", input.name));
      if (!input.source.is_set()) continue;
      std::vector<uint32_t>& operand = operands_[found->first];
      if (node_.op->inputs[found->first].is_list() ? found->second != operand.size() : !operand.empty()) {
        return Wrong(fmt::format("the input {} is there twice, or not in its turn", input.name));
      }
      operand.push_back(i);
    }
    return {};
  }

  // A list takes what the operands behind it do not need.
  Status ByPosition() {
    const auto needed_behind = [&](size_t operand) {
      size_t count = 0;
      for (size_t i = operand + 1; i < operands_.size(); ++i) {
        if (!node_.op->inputs[i].is_optional() && !node_.op->inputs[i].is_list()) ++count;
      }
      return count;
    };
    uint32_t next = 0;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const bool is_list = node_.op->inputs[i].is_list();
      do {
        if (next >= node_.inputs.size() || (is_list && node_.inputs.size() - next <= needed_behind(i))) break;
        if (node_.inputs[next].source.is_set()) operands_[i].push_back(next);
        ++next;
      } while (is_list);
    }
    if (next == node_.inputs.size()) return {};
    return Wrong(fmt::format("it has {} inputs, {} too many", node_.inputs.size(), node_.inputs.size() - next));
  }

  const Graph& graph_;
  const Node& node_;
  Operands operands_;
};

}  // namespace

StatusOr<Operands> BindOperands(const Graph& graph, NodeId node) { return Binder(graph, graph.at(node)).Run(); }

std::vector<size_t> OutputCounts(const Node& node) {
  const std::span<const opdef::Operand> operands = node.op->outputs;
  std::vector<size_t> counts;
  for (const opdef::Operand& operand : operands) {
    const size_t others = operands.size() - 1;
    counts.push_back(!operand.is_list() ? 1 : node.outputs.size() > others ? node.outputs.size() - others : 0);
  }
  return counts;
}

size_t CallerInput(const Graph& callee, size_t place, size_t skipped) {
  const Node& data = callee.at(callee.inputs[place]);
  const auto parent = data.notes.find("_parent_node_index");
  const auto* const index = parent != data.notes.end() ? std::get_if<int64_t>(&parent->second) : nullptr;
  return index != nullptr ? static_cast<size_t>(*index) - skipped : place;
}

}  // namespace reprise::compiler
