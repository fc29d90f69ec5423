// SPDX-License-Identifier: Apache-2.0
#include "compiler/run_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/storage.h"
#include "ops/named_call.h"

namespace reprise::compiler {
namespace {

constexpr uint64_t kLargestItem = 16;  // bytes of a complex number

Status Refuse(const Graph& graph, std::string what, std::string hint) {
  return Error(kInvalidArgument, std::move(what)).Culprit(fmt::format("graph {}", graph.name)).Hint(std::move(hint));
}

}  // namespace

uint64_t NeededBytes(const RunTensor& tensor) { return BytesOf(tensor.dtype, tensor.shape).value_or(0); }

bool KnownTensor::Fits(const RunTensor& given) const {
  return given.dtype == dtype && given.shape == shape && given.bytes >= bytes && (bytes == 0 || given.data != nullptr);
}

KnownTensor KnownTensor::Of(const Tensor& tensor) {
  return {tensor.dtype, tensor.shape.numbers(), BytesOf(tensor).value_or(0)};
}

Status CheckCounts(const Graph& graph, const RunRequest& request) {
  if (request.inputs.size() != graph.inputs.size()) {
    return Refuse(graph, fmt::format("the run has {} inputs, the graph {}", request.inputs.size(), graph.inputs.size()),
                  "pass one tensor for each Data node, in the order of their index");
  }
  if (request.outputs.size() != graph.results.size()) {
    return Refuse(graph,
                  fmt::format("the run has {} outputs, the graph {}", request.outputs.size(), graph.results.size()),
                  "pass one tensor for each result of the graph");
  }
  return {};
}

Status CheckInput(const Graph& graph, size_t index, const RunTensor& given) {
  const Node& node = graph.at(graph.inputs[index]);
  const Tensor& known = node.outputs[0].tensor;
  if (known.dtype >= 0 && given.dtype != known.dtype) {
    return Refuse(graph,
                  fmt::format("input {} ({}) is {}, the graph takes {}", index, node.name, opdef::TypeName(given.dtype),
                              opdef::TypeName(known.dtype)),
                  "cast the tensor, or compile the graph for its type");
  }
  bool fits = !known.shape.has_rank() || known.shape.rank() == given.shape.size();
  for (size_t d = 0; fits && d < given.shape.size(); ++d) {
    fits = given.shape[d] >= 0 &&
           (!known.shape.has_rank() || !known.shape[d].is_number() || known.shape[d].number() == given.shape[d]);
  }
  if (!fits) {
    return Refuse(graph,
                  fmt::format("input {} ({}) has the shape {}, the graph takes {}", index, node.name,
                              opdef::Shape::Of(given.shape).text(), known.shape.text()),
                  "pass a tensor of that shape, or compile the graph with unknown sizes (-1)");
  }
  if (!ops::BytesOf(given.shape, kLargestItem)) {
    return Refuse(graph,
                  fmt::format("input {} ({}) has the shape {}, which is too large", index, node.name,
                              opdef::Shape::Of(given.shape).text()),
                  "pass the shape that the tensor has");
  }
  const uint64_t needed = NeededBytes(given);
  if (needed != 0 && (given.data == nullptr || given.bytes < needed)) {
    return Refuse(graph,
                  given.data == nullptr
                      ? fmt::format("input {} ({}) has no memory", index, node.name)
                      : fmt::format("input {} ({}) has {} bytes, {} are needed", index, node.name, given.bytes, needed),
                  "pass the address of all elements");
  }
  return {};
}

Status PlaceOutput(const Graph& graph, size_t index, const Tensor& known, RunTensor& given,
                   OutputAllocator* allocator) {
  const std::optional<uint64_t> needed = BytesOf(known);
  given.dtype = known.dtype;
  given.shape = known.shape.numbers();
  if (!needed) {
    return Refuse(graph, fmt::format("output {} has the shape {}, which is not known", index, known.shape.text()),
                  "pass inputs that decide it");
  }
  if (given.data != nullptr) {
    if (given.bytes >= *needed) return {};
    return Refuse(
        graph,
        fmt::format("output {} has {} bytes, {} are needed for {}", index, given.bytes, *needed, known.shape.text()),
        "pass a larger block, or none and an allocator");
  }
  if (*needed == 0) return {};
  if (allocator == nullptr) {
    return Refuse(graph, fmt::format("output {} has no memory", index),
                  "pass the address of a block, or register an allocator for the stream");
  }
  given.data = allocator->Allocate(index, *needed);
  given.bytes = *needed;
  if (given.data != nullptr) return {};
  return Error(kOutOfDeviceMemory, fmt::format("the allocator has no {} bytes for output {}", *needed, index))
      .Culprit(fmt::format("graph {}", graph.name))
      .Hint("free device memory");
}

bool AreOutputsApart(std::span<const RunTensor> inputs, std::span<const RunTensor> outputs,
                     std::span<const KnownTensor> known_inputs, std::span<const KnownTensor> known_outputs) {
  constexpr size_t kMostPairs = 4096;
  if ((inputs.size() + outputs.size()) * outputs.size() > kMostPairs) return false;
  const auto overlaps = [](const RunTensor& a, uint64_t a_bytes, uintptr_t begin, uintptr_t end) {
    const auto at = reinterpret_cast<uintptr_t>(a.data);
    return !a.on_host && a_bytes != 0 && at < end && begin < at + a_bytes;
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(outputs[i].data);
    const uintptr_t end = begin + known_outputs[i].bytes;
    if (begin == end) continue;
    for (size_t j = 0; j < inputs.size(); ++j) {
      if (overlaps(inputs[j], known_inputs[j].bytes, begin, end)) return false;
    }
    for (size_t j = 0; j < i; ++j) {
      if (overlaps(outputs[j], known_outputs[j].bytes, begin, end)) return false;
    }
  }
  return true;
}

std::vector<size_t> OverlappingOutputs(std::span<const RunTensor> inputs, std::span<const RunTensor> outputs,
                                       std::span<const std::pair<uint32_t, uint32_t>> shared) {
  struct Piece {
    uintptr_t begin;
    uintptr_t end;
    size_t number;  // outputs behind inputs
  };
  std::vector<Piece> pieces;
  const auto add = [&](const RunTensor& tensor, size_t number) {
    const uint64_t bytes = NeededBytes(tensor);
    const auto begin = reinterpret_cast<uintptr_t>(tensor.data);
    if (bytes != 0 && !tensor.on_host) pieces.push_back({begin, begin + bytes, number});
  };
  for (size_t i = 0; i < inputs.size(); ++i) add(inputs[i], i);
  for (size_t i = 0; i < outputs.size(); ++i) add(outputs[i], inputs.size() + i);
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.number < b.number;
  });
  const auto is_shared = [&](size_t a, size_t b) {
    return std::any_of(shared.begin(), shared.end(), [&](const std::pair<uint32_t, uint32_t>& pair) {
      return std::min(a, b) == pair.first && std::max(a, b) == inputs.size() + pair.second;
    });
  };
  std::vector<size_t> found;
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (size_t j = i + 1; j < pieces.size() && pieces[j].begin < pieces[i].end; ++j) {
      const size_t last = std::max(pieces[i].number, pieces[j].number);
      if (last < inputs.size() || is_shared(pieces[i].number, pieces[j].number)) continue;
      found.push_back(last - inputs.size());
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace reprise::compiler
