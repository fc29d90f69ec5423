// SPDX-License-Identifier: Apache-2.0
//
// LowerNamed: an operator by its type turned into launches that a compiler of graphs places and runs.
//
//     NamedRequest request{.type = "TopKV2", .attributes = &node.attributes, .arena = &arena};
//     request.inputs = {{OperandOf(float32, {4, 8}, x)}, {OperandOf(int32, {}, nullptr, bytes_of_k)}};
//     request.outputs = {{OperandOf(float32, {4, 3}, values)}, {OperandOf(int32, {4, 3}, indices)}};
//     REPRISE_ASSIGN_OR_RETURN(std::unique_ptr<NamedCall> call, LowerNamed(std::move(request)));
//     for (const NamedCall::PlannedStep& step : call->steps()) ...  // so many of call->launches()
//
// Nothing is read or written before the launches run, so addresses may be places in memory that does not exist yet:
// disjoint ranges for disjoint tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ops/named_call.h"

namespace reprise::ops {

/// An operator with what is known of its operands.
struct NamedRequest {
  std::string_view type;
  /// By operand of the row: one tensor, any number for a list, none for one that is left out. Value operands need
  /// their constant and no memory; other constants have memory, or are kept by the arena.
  std::vector<std::vector<NamedTensor>> inputs = {};
  /// By operand of the row; dims and type may be open. An output of no tensor gets memory of the arena. An output that
  /// is an input written in place has the address of that input, or the input is copied first.
  std::vector<std::vector<NamedTensor>> outputs = {};
  const Attributes* attributes = nullptr;  ///< borrowed until the call is gone
  Arena* arena = nullptr;                  ///< borrowed likewise
};

/// One operand. `constant` may be empty.
NamedTensor OperandOf(int32_t dtype, std::vector<int64_t> dims, void* data, std::span<const char> constant = {});

/// Whether operators of the type have steps.
bool HasSteps(std::string_view type);

/// Binds, infers and plans. The shapes of all inputs are known.
/// Errors: 100024 for a type without steps, 100021, 100022, 100023 for operands and attributes that do not fit it,
///         100000 for what a step refuses
StatusOr<std::unique_ptr<NamedCall>> LowerNamed(NamedRequest&& request);

/// The refusal of a type that has no steps.
Status NoSteps(std::string_view type);

}  // namespace reprise::ops
