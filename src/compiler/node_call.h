// SPDX-License-Identifier: Apache-2.0
//
// A node as a call of its operator by type: operands in the order of the row, values of constants where the row wants
// them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "compiler/graph.h"
#include "ops/named_call.h"

namespace reprise::compiler {

class NodeCall {
 public:
  /// \param arena  borrowed; may be null, see ops::NamedCall
  NodeCall(const Graph& graph, NodeId node, ops::Arena* arena);

  /// Whether there are steps for the node (100024), and its operands fit.
  Status TakeStatus() { return std::move(status_); }

  /// Memory of an input (output) of the node. \param strides  in elements; empty: row-major
  void SetInput(uint32_t input, void* data, std::span<const int64_t> strides = {});
  void SetOutput(uint32_t output, void* data, uint64_t bytes, std::span<const int64_t> strides = {});
  /// Nobody wants the output: it gets memory of the call if the steps need it.
  void LeaveOut(uint32_t output);
  /// Whether the row wants the value of an input.
  bool IsValue(uint32_t input) const { return is_value_[input]; }
  /// The value of an input that is no constant node: `bytes` in host memory.
  void SetValue(uint32_t input, std::span<const char> bytes);

  /// Checks operands and works out the shapes of the outputs, the largest ones where they depend on data. Refusals name
  /// the node.
  Status Infer();
  /// Plans all steps. After Infer, when all operands have memory.
  Status Plan();
  ops::NamedCall& call() { return *call_; }

 private:
  void Describe();
  void Fill(ops::NamedTensor& tensor, const Tensor& known) const;
  Status Named(Status&& status) const;

  const Graph& graph_;
  const Node& node_;
  Status status_;
  std::unique_ptr<ops::NamedCall> call_;
  std::vector<size_t> places_;  // of the node's inputs among those of the call
  std::vector<bool> is_value_;
};

/// Whether an operator's row wants the value of an input. False for operands that do not fit.
bool IsValueInput(const Graph& graph, NodeId node, uint32_t input);

}  // namespace reprise::compiler
