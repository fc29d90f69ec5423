// SPDX-License-Identifier: Apache-2.0
#include "compiler/views.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "compiler/constant.h"
#include "compiler/operands.h"
#include "compiler/rewrite.h"
#include "compiler/strided_views.h"

namespace reprise::compiler {
namespace {

constexpr std::array<std::string_view, 9> kReshapes = {"ExpandDims", "FlattenV2", "Identity",    "Reshape", "Squeeze",
                                                       "SqueezeV3",  "Unsqueeze", "UnsqueezeV3", "Bitcast"};
constexpr std::array<std::string_view, 3> kJoins = {"Concat", "ConcatD", "ConcatV2"};
constexpr std::array<std::string_view, 2> kSplits = {"SplitD", "SplitV"};

bool HasInput(const Node& node, std::string_view name) {
  return std::any_of(node.inputs.begin(), node.inputs.end(),
                     [&](const Input& input) { return input.name == name && input.source.is_set(); });
}

}  // namespace

std::optional<std::vector<int64_t>> NumbersOf(const Graph& graph, const Node& node, std::string_view name) {
  for (const Input& input : node.inputs) {
    if (input.name != name || !input.source.is_set()) continue;
    const Node& source = graph.at(input.source.node);
    return source.constant != nullptr ? IntegersOf(*source.constant) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::vector<int64_t>> BlockBegin(const Graph& graph, const Node& node,
                                               const std::vector<int64_t>& sizes) {
  for (const auto& [name, value] : node.attributes) {
    if (name.ends_with("_mask") && !(std::holds_alternative<int64_t>(value) && std::get<int64_t>(value) == 0))
      return std::nullopt;
  }
  const auto begin = NumbersOf(graph, node, "begin");
  const auto axes = NumbersOf(graph, node, "axes");
  const auto strides = NumbersOf(graph, node, "strides");
  if (!begin || HasInput(node, "axes") != axes.has_value() || HasInput(node, "strides") != strides.has_value())
    return std::nullopt;
  if (strides && std::any_of(strides->begin(), strides->end(), [](int64_t stride) { return stride != 1; }))
    return std::nullopt;
  std::vector<int64_t> from(sizes.size(), 0);
  const auto rank = static_cast<int64_t>(sizes.size());
  for (size_t i = 0; i < begin->size(); ++i) {
    int64_t dim = axes && i < axes->size() ? (*axes)[i] : static_cast<int64_t>(i);
    if (dim < 0) dim += rank;
    if (dim < 0 || dim >= rank) return std::nullopt;
    const int64_t size = sizes[static_cast<size_t>(dim)];
    from[static_cast<size_t>(dim)] = std::clamp<int64_t>((*begin)[i] < 0 ? (*begin)[i] + size : (*begin)[i], 0, size);
  }
  return from;
}

bool IsReshape(const Node& node) {
  if (std::find(kReshapes.begin(), kReshapes.end(), node.type) == kReshapes.end()) return false;
  return !node.notes.contains("_cannot_be_deleted") && !node.inputs.empty() && node.inputs[0].source.is_set();
}

uint32_t SlicedInput(const Node& node) {
  for (uint32_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i].name == "x") return i;
  }
  return 0;
}

bool IsSlice(const Graph& graph, NodeId id) {
  const Node& node = graph.at(id);
  if (std::find(kSplits.begin(), kSplits.end(), node.type) != kSplits.end()) return true;
  return node.type == "StridedSliceV2" && SliceOffsets(graph, id).has_value();
}

// Cuts along the first dim that is not 1 leave pieces that lie back to back.
std::optional<std::vector<uint64_t>> SliceOffsets(const Graph& graph, NodeId id) {
  const Node& node = graph.at(id);
  const bool is_block = node.type == "StridedSliceV2";
  if (!is_block && std::find(kSplits.begin(), kSplits.end(), node.type) == kSplits.end()) return std::nullopt;
  if (node.notes.contains("_cannot_be_deleted") || node.inputs.empty() ||
      !node.inputs[SlicedInput(node)].source.is_set())
    return std::nullopt;
  const Tensor& whole = graph.TensorOf(node.inputs[SlicedInput(node)].source);
  const int64_t bits = opdef::TypeBits(whole.dtype);
  if (!whole.shape.is_static() || bits < 8) return std::nullopt;
  const std::vector<int64_t> sizes = whole.shape.numbers();
  size_t dim = 0;
  while (dim < sizes.size() && sizes[dim] == 1) ++dim;
  std::vector<uint64_t> offsets;
  uint64_t offset = 0;
  int64_t rows = 0;
  if (is_block) {
    const auto begin = BlockBegin(graph, node, sizes);
    if (!begin || whole.shape.elements().Is(0)) return std::nullopt;
    if (dim < sizes.size()) rows = (*begin)[dim];
    int64_t row = bits / 8;
    for (size_t d = dim + 1; d < sizes.size(); ++d) row *= sizes[d];
    offset = static_cast<uint64_t>(rows * row);
  }
  for (const Output& output : node.outputs) {
    if (!output.tensor.shape.is_static() || output.tensor.dtype != whole.dtype) return std::nullopt;
    const std::vector<int64_t> part = output.tensor.shape.numbers();
    if (part.size() != sizes.size()) return std::nullopt;
    uint64_t bytes = static_cast<uint64_t>(bits / 8);
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (d != dim && part[d] != sizes[d]) return std::nullopt;
      bytes *= static_cast<uint64_t>(part[d]);
    }
    offsets.push_back(offset);
    offset += bytes;
    if (dim < sizes.size()) rows += part[dim];
  }
  if (dim < sizes.size() && (is_block ? rows > sizes[dim] : rows != sizes[dim])) return std::nullopt;
  return offsets;
}

std::optional<std::vector<JoinedPart>> JoinedParts(const Graph& graph, NodeId id) {
  const Node& node = graph.at(id);
  if (node.op == nullptr || node.outputs.size() != 1) return std::nullopt;
  if (std::find(kJoins.begin(), kJoins.end(), node.type) == kJoins.end()) return std::nullopt;
  const Tensor& whole = node.outputs[0].tensor;
  const int64_t bits = opdef::TypeBits(whole.dtype);
  StatusOr<Operands> operands = BindOperands(graph, id);
  if (!operands.ok() || !whole.shape.is_static() || whole.shape.rank() == 0 || bits < 8) return std::nullopt;
  const std::vector<int64_t> sizes = whole.shape.numbers();
  std::optional<int64_t> dim;
  if (const auto found = node.attributes.find("concat_dim"); found != node.attributes.end()) {
    if (const auto* number = std::get_if<int64_t>(&found->second)) dim = *number;
  }
  const std::vector<uint32_t>* list = nullptr;
  for (size_t o = 0; o < operands.value().size(); ++o) {
    const std::vector<uint32_t>& inputs = operands.value()[o];
    if (node.op->inputs[o].is_list()) {
      list = &inputs;
    } else if (inputs.size() == 1) {
      const Node& source = graph.at(node.inputs[inputs[0]].source.node);
      const auto numbers = source.constant != nullptr ? IntegersOf(*source.constant) : std::nullopt;
      if (numbers && numbers->size() == 1) dim = numbers->front();
    }
  }
  if (list == nullptr || !dim) return std::nullopt;
  const auto rank = static_cast<int64_t>(sizes.size());
  if (*dim < 0) *dim += rank;
  if (*dim < 0 || *dim >= rank) return std::nullopt;
  // With only sizes of 1 in front, each tensor is one piece of the result.
  const bool is_piece = std::all_of(sizes.begin(), sizes.begin() + *dim, [](int64_t size) { return size == 1; });
  const std::vector<int64_t> strides = RowMajorStrides(sizes);
  std::vector<JoinedPart> parts;
  int64_t before = 0;  // elements along the dim
  for (const uint32_t input : *list) {
    const Tensor& tensor = graph.TensorOf(node.inputs[input].source);
    if (tensor.dtype != whole.dtype || !tensor.shape.is_static() || tensor.shape.rank() != sizes.size())
      return std::nullopt;
    const auto offset = static_cast<uint64_t>(before * strides[static_cast<size_t>(*dim)] * (bits / 8));
    parts.push_back({input, offset, is_piece ? std::vector<int64_t>() : strides});
    before += tensor.shape[static_cast<size_t>(*dim)].number();
  }
  return parts;
}

std::optional<uint32_t> ReferencedInput(const Graph& graph, NodeId id, uint32_t output) {
  for (const auto& [from, to] : WrittenInputs(graph, id)) {
    if (to == output) return from;
  }
  return std::nullopt;
}

}  // namespace reprise::compiler
