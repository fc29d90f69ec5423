// SPDX-License-Identifier: Apache-2.0
#include "compiler/passes/fusion_list.h"

#include <vector>

#include "compiler/passes/fusions.h"

namespace reprise::compiler {

// Layers written out in steps, as front ends write them, then what removes operators, then parts into wholes, then what
// takes these wholes in.
std::span<const Pass> FusionPasses() {
  static const auto* const all = [] {
    auto* const passes = new std::vector<Pass>;
    for (const std::span<const Pass> some : {RecurrentFusions(), MovementFusions(), ActivationFusions(), NormFusions(),
                                             ProductFusions(), ConvolutionFusions(), AttentionFusions()}) {
      passes->insert(passes->end(), some.begin(), some.end());
    }
    return passes;
  }();
  return *all;
}

}  // namespace reprise::compiler
