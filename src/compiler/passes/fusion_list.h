// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "compiler/passes/passes.h"

namespace reprise::compiler {

/// Passes that put one operator in the place of several, of Stage::kFusion, in the order in which they run.
std::span<const Pass> FusionPasses();

}  // namespace reprise::compiler
