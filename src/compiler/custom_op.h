// SPDX-License-Identifier: Apache-2.0
//
// Operators whose work is not the compiler's, those of the program and collectives: code that a run calls when it comes
// to the node, and that puts its work on the stream.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/executable.h"
#include "compiler/graph.h"

namespace reprise::compiler {

/// One run of one node. All tensors are in device memory.
struct CustomCall {
  const Node& node;
  runtime::Stream& stream;
  std::span<const RunTensor> inputs;  ///< of the node, with null addresses and types of -1 for those left out
  std::span<const Tensor> told;       ///< what is known of the outputs
  std::span<RunTensor> outputs;       ///< to be filled in
  std::function<StatusOr<void*>(uint64_t bytes)> allocate;  ///< memory until the stream has passed the run
};

/// Threads: thread-safe.
class CustomOp {
 public:
  virtual ~CustomOp() = default;
  /// Whether the value of an input must be there when Run is called.
  virtual bool ReadsValue(const Node& node, uint32_t input) const = 0;
  virtual Status Run(CustomCall& call) const = 0;
};

/// A second one of a type replaces the first one, for runs from then on. Threads: thread-safe.
void RegisterCustomOp(std::string type, std::shared_ptr<const CustomOp> op);
/// Null where the program has none. Threads: thread-safe.
std::shared_ptr<const CustomOp> FindCustomOp(std::string_view type);

/// Whether the node exchanges data with other processes. Nodes of a graph that do so run in the order of the graph.
inline bool IsCollective(const Node& node) { return node.type.starts_with("Hcom"); }

/// Whether a run calls code for the node: it is one of the program's, or a collective.
inline bool IsCustom(const Node& node) {
  return node.kind == NodeKind::kOperator && (node.op == nullptr || IsCollective(node)) &&
         FindCustomOp(node.type) != nullptr;
}

}  // namespace reprise::compiler
