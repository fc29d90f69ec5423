// SPDX-License-Identifier: Apache-2.0
//
// What a run was given, against what its graph takes and gives.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "compiler/executable.h"
#include "compiler/graph.h"

namespace reprise::compiler {

/// What the elements of a tensor take; its block may be larger. 0 for a type that is not known.
uint64_t NeededBytes(const RunTensor& tensor);

/// What an input or output of known shape is, ready to be compared with what a run brings.
struct KnownTensor {
  int32_t dtype = -1;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;

  static KnownTensor Of(const Tensor& tensor);
  /// It is this, and has memory for it. Where not, CheckInput or PlaceOutput have the last word.
  bool Fits(const RunTensor& given) const;
};

/// 100000 unless there are as many tensors as the graph has inputs and outputs.
Status CheckCounts(const Graph& graph, const RunRequest& request);
/// 100000 unless input `index` is what the graph takes there; unknown sizes take any.
Status CheckInput(const Graph& graph, size_t index, const RunTensor& given);
/// Memory of an output: the caller's, if it is large enough (100000), else of the allocator. Fills in what it is.
Status PlaceOutput(const Graph& graph, size_t index, const Tensor& known, RunTensor& given, OutputAllocator* allocator);

/// Whether no output shares bytes with an input or another output. False also where that would take long to tell.
bool AreOutputsApart(std::span<const RunTensor> inputs, std::span<const RunTensor> outputs,
                     std::span<const KnownTensor> known_inputs, std::span<const KnownTensor> known_outputs);
/// The outputs that share bytes with an input or with an output before them.
std::vector<size_t> OverlappingOutputs(std::span<const RunTensor> inputs, std::span<const RunTensor> outputs,
                                       std::span<const std::pair<uint32_t, uint32_t>> shared);

}  // namespace reprise::compiler
