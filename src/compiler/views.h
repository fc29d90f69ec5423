// SPDX-License-Identifier: Apache-2.0
//
// Nodes whose outputs are memory of their inputs, and compute nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/graph.h"

namespace reprise::compiler {

/// The elements of the first input in their order, under another shape or name, in its memory. Copies that have to stay
/// (_cannot_be_deleted) are none; MemoryConflictPass marks those whose memory somebody writes.
bool IsReshape(const Node& node);

/// One of the operators that cut a tensor.
bool IsSlice(const Node& node);
/// Which input a node of IsSlice cuts.
uint32_t SlicedInput(const Node& node);
/// Where the outputs of a cut begin in its input, in bytes, if each lies back to back there; else nothing. Copies that
/// have to stay have none.
std::optional<std::vector<uint64_t>> SliceOffsets(const Graph& graph, NodeId node);

/// The input that an output is, written in place.
std::optional<uint32_t> ReferencedInput(const Graph& graph, NodeId node, uint32_t output);

/// An input of a node that joins tensors, and how many bytes of the result lie before it.
struct JoinedPart {
  uint32_t input;
  uint64_t offset;
};

/// Where the inputs of a node that joins tensors lie in the result, if they lie there one behind the other; nothing for
/// other nodes.
std::optional<std::vector<JoinedPart>> JoinedParts(const Graph& graph, NodeId id);

}  // namespace reprise::compiler
