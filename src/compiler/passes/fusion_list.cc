// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/fusion_list.h"

#include <vector>

#include "compiler/passes/fusions.h"

namespace reprise::compiler {

// What removes operators first, then parts into wholes, then what takes these wholes in.
std::span<const Pass> FusionPasses() {
  static const auto* const all = [] {
    auto* const passes = new std::vector<Pass>;
    for (const std::span<const Pass> some : {MovementFusions(), ActivationFusions(), NormFusions(), ProductFusions(),
                                             ConvolutionFusions(), AttentionFusions()}) {
      passes->insert(passes->end(), some.begin(), some.end());
    }
    return passes;
  }();
  return *all;
}

}  // namespace reprise::compiler
