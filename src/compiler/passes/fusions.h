// SPDX-License-Identifier: Apache-2.0
//
// The fusions: passes that put one operator in the place of several. docs/design/fusions.md shows the patterns.
#pragma once

#include <span>

#include "compiler/passes/passes.h"

namespace reprise::compiler {

/// A row of the lists below.
constexpr Pass Fusion(std::string_view name, Status (*run)(Graph& graph, PassContext& context),
                      std::string_view about) {
  return {name, Stage::kFusion, Level::kO3, PassGroup::kGraphFusion, {}, run, about};
}

/// In the order in which they run, by group of patterns.
std::span<const Pass> ActivationFusions();
std::span<const Pass> NormFusions();
std::span<const Pass> ProductFusions();
std::span<const Pass> AttentionFusions();
std::span<const Pass> MovementFusions();
std::span<const Pass> ConvolutionFusions();
std::span<const Pass> RecurrentFusions();

}  // namespace reprise::compiler
