// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "compiler/passes/functions.h"
#include "compiler/passes/fusion_list.h"

namespace reprise::compiler {
namespace {

constexpr Pass kPasses[] = {
    {"IdentityPass",
     Stage::kPrepareOptimise,
     Level::kO1,
     PassGroup::kPlain,
     {},
     RemoveIdentity,
     "Identity without a mark that protects it"},
    {"PrunePass",
     Stage::kPrepareOptimise,
     Level::kO1,
     PassGroup::kPlain,
     {},
     Prune,
     "nodes that no result and no effect needs"},
};

std::vector<Pass> AllPasses() {
  std::vector<Pass> passes(std::begin(kPasses), std::end(kPasses));
  const std::span<const Pass> fusions = FusionPasses();
  passes.insert(passes.end(), fusions.begin(), fusions.end());
  std::stable_sort(passes.begin(), passes.end(), [](const Pass& a, const Pass& b) { return a.stage < b.stage; });
  return passes;
}

}  // namespace

std::span<const Pass> Passes() {
  static const auto* const passes = new std::vector<Pass>(AllPasses());
  return *passes;
}

}  // namespace reprise::compiler
