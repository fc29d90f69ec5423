// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/fusion_list.h"

namespace reprise::compiler {

std::span<const Pass> FusionPasses() { return {}; }

}  // namespace reprise::compiler
