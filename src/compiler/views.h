// SPDX-License-Identifier: Apache-2.0
//
// Nodes whose outputs are memory of their inputs, and compute nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "compiler/graph.h"

namespace reprise::compiler {

/// The elements of the first input in their order, under another shape or name, in its memory. Copies that have to stay
/// (_cannot_be_deleted) are none; MemoryConflictPass marks those whose memory somebody writes.
bool IsReshape(const Node& node);

/// One of the operators that cut a tensor: splits, and a StridedSliceV2 whose block lies back to back.
bool IsSlice(const Graph& graph, NodeId node);
/// Which input a node of IsSlice cuts.
uint32_t SlicedInput(const Node& node);
/// Where the outputs of a cut begin in its input, in bytes, if each lies back to back there; else nothing. Copies that
/// have to stay have none.
std::optional<std::vector<uint64_t>> SliceOffsets(const Graph& graph, NodeId node);

/// The numbers of an input of constants; nothing where it is left out or not known.
std::optional<std::vector<int64_t>> NumbersOf(const Graph& graph, const Node& node, std::string_view name);
/// Where a StridedSliceV2 of a tensor of these sizes begins in each dim, if it takes neighbours; else nothing.
std::optional<std::vector<int64_t>> BlockBegin(const Graph& graph, const Node& node, const std::vector<int64_t>& sizes);

/// The input that an output is, written in place.
std::optional<uint32_t> ReferencedInput(const Graph& graph, NodeId node, uint32_t output);

/// An input of a node that joins tensors, and how many bytes of the result lie before it.
struct JoinedPart {
  uint32_t input;
  uint64_t offset;
  std::vector<int64_t> strides = {};  ///< of its elements in the result, in elements; empty: they lie back to back
};

/// Where the inputs of a node that joins tensors lie in the result; nothing for other nodes.
std::optional<std::vector<JoinedPart>> JoinedParts(const Graph& graph, NodeId id);

}  // namespace reprise::compiler
