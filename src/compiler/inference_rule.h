// SPDX-License-Identifier: Apache-2.0
//
// Shapes of operators that a front end made: the note `_inference_rule` of a node says how its outputs follow from its
// inputs.
//
//     {"shape": {"inputs": [["s0", "s1"], ["v0"], null], "outputs": [["s0", "Floor(Div(s1, 2)) + v0"]]}, "dtype": [0]}
//
// An input binds symbols: s<k> are sizes, v<k> elements of an integer input whose value is known; null binds none.
// Expressions: integers, symbols, +, -, *, brackets, Div(a, b), Floor(a), Ceil(a), Pow(a, b), Mod(a, b). A quotient is
// exact until it is rounded.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "compiler/graph.h"

namespace reprise::compiler {

/// What a rule sees of an input.
struct RuleInput {
  opdef::Shape shape;
  std::optional<std::vector<opdef::Dim>> value;  ///< of integers, where it is known
};

/// Null where there is none.
const std::string* InferenceRuleOf(const Node& node);

/// Gives the outputs of the node shapes and types by its rule; sizes that are known already stay. What follows from
/// something that is not known is not known. Refuses (100000) a rule that is none, with node and place.
Status ApplyInferenceRule(Node& node, std::span<const RuleInput> inputs);

}  // namespace reprise::compiler
