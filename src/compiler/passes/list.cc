// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "compiler/passes/functions.h"
#include "compiler/passes/fusion_list.h"

namespace reprise::compiler {
namespace {

constexpr std::string_view kFolding = "ge.oo.constantFolding";
constexpr std::string_view kDeadCode = "ge.oo.deadCodeElimination";

constexpr Pass Row(Stage stage, Level level, std::string_view name, Status (*run)(Graph&, PassContext&),
                   std::string_view about, std::string_view switched_by = {}) {
  return {name, stage, level, PassGroup::kPlain, switched_by, run, about};
}

constexpr Pass kPasses[] = {
    Row(Stage::kPrepare, Level::kO0, "PrintPass", JoinPrints, "StringFormat and the PrintV2 behind it, as one"),
    Row(Stage::kPrepare, Level::kO0, "WriteOrderPass", OrderWrites,
        "control edges between those that write memory in place and those that use it"),
    Row(Stage::kPrepare, Level::kO0, "CollectiveOrderPass", OrderCollectives,
        "control edges between collectives, so that all ranks meet in the order of the program"),
    // Inference
    Row(Stage::kInference, Level::kO1, "AssertPass", RemoveAsserts, "in inference, Assert and Print"),
    Row(Stage::kInference, Level::kO1, "DeadBranchPass", RemoveDeadBranches,
        "If, Case and Switch of which one branch is never taken", kDeadCode),
    Row(Stage::kInference, Level::kO1, "ReplaceWithEmptyConstPass", ReplaceEmpty, "nodes whose outputs are all empty",
        kFolding),
    Row(Stage::kInference, Level::kO1, "DimensionComputePass", FoldDimensions,
        "Shape, ShapeN, Size and Rank of known shapes", kFolding),
    Row(Stage::kInference, Level::kO1, "ConstantFoldingPass", FoldConstants, "nodes whose inputs are all constant",
        kFolding),
    // Prepare
    Row(Stage::kPrepareOptimise, Level::kO1, "ReshapeIdlePass", RemoveIdleReshapes,
        "Reshape to the shape that is there"),
    Row(Stage::kPrepareOptimise, Level::kO1, "DropoutPass", RemoveDropout, "in inference, Dropout"),
    Row(Stage::kPrepareOptimise, Level::kO1, "TransposeUnchangedPass", RemoveUnchangedTransposes,
        "Transpose that moves no element and no dim but those of size 1 among themselves"),
    Row(Stage::kPrepareOptimise, Level::kO1, "MarkerPass", RemoveMarkers,
        "StopGradient, PreventGradient, Snapshot, GuaranteeConst, PlaceholderWithDefault"),
    Row(Stage::kPrepareOptimise, Level::kO1, "IdentityPass", RemoveIdentity, "Identity that no mark protects"),
    Row(Stage::kPrepareOptimise, Level::kO1, "PrunePass", Prune, "nodes that no result and no effect needs"),
    // Before the fusions
    Row(Stage::kFusion, Level::kO3, "ReshapeIdlePass", RemoveIdleReshapes, "Reshape to the shape that is there"),
    Row(Stage::kFusion, Level::kO3, "NeutralElementPass", RemoveNeutral,
        "products and quotients with 1, differences with 0"),
    Row(Stage::kFusion, Level::kO3, "CastRemovePass", RemoveCasts,
        "Cast to the type that is there; Cast to a type that holds all values, and back"),
    // Stage 1, first
    Row(Stage::kOptimise1, Level::kO3, "ConvLayoutPass", ChooseImageLayout,
        "convolutions, and what stands between them, with channels behind the spatial dims"),
    Row(Stage::kOptimise1, Level::kO3, "ConstantFuseSamePass", MergeConstants,
        "constants of equal type, shape and bytes"),
    Row(Stage::kOptimise1, Level::kO3, "CommonSubexpressionEliminationPass", MergeSubexpressions,
        "nodes that compute the same from the same"),
    Row(Stage::kOptimise1, Level::kO3, "TransOpWithoutReshapeFusionPass", JoinTransforms,
        "chains of Transpose and of TransData, as one"),
    // Stage 1, second
    Row(Stage::kOptimise2, Level::kO3, "AddNPass", RemoveSingleSums, "AddN of one input"),
    Row(Stage::kOptimise2, Level::kO3, "CastRemovePass", RemoveCasts,
        "Cast to the type that is there; Cast to a type that holds all values, and back"),
    Row(Stage::kOptimise2, Level::kO3, "TransOpSymmetryEliminationPass", RemoveSymmetricTransforms,
        "Transpose and TransData that undo one another"),
    Row(Stage::kOptimise2, Level::kO3, "DimensionAdjustPass", AdjustDims,
        "ExpandDims of a constant axis, as Unsqueeze"),
    Row(Stage::kOptimise2, Level::kO3, "UselessControlEdgePass", RemoveUselessOrder,
        "control edges that other edges imply"),
    Row(Stage::kOptimise2, Level::kO3, "TransposeToSqueezePass", ReplaceUnitTransposes,
        "Transpose that moves dims of size 1 only, as Squeeze and Unsqueeze"),
    Row(Stage::kOptimise2, Level::kO1, "ReshapeRemovePass", RemoveReshapes,
        "in static graphs, reshapes in a row as one; what is left is marked `_no_task`: memory seen in another shape"),
    Row(Stage::kOptimise2, Level::kO1, "ConstantFoldingPass", FoldConstants, "nodes whose inputs are all constant",
        kFolding),
    // Stage 1, third
    Row(Stage::kOptimise3, Level::kO1, "PrunePass", Prune, "nodes that no result and no effect needs"),
    Row(Stage::kOptimise3, Level::kO3, "RemoveSameConstPass", MergeConstants,
        "constants of equal type, shape and bytes"),
    // Before tasks are made
    Row(Stage::kBeforeBuild, Level::kO3, "TensorMoveDeletePass", RemoveTensorMoves,
        "TensorMove whose source may be used itself"),
    Row(Stage::kBeforeBuild, Level::kO0, "MemoryConflictPass", GuardMemory,
        "copies of constants that are written, of what collectives and loops use up, of inputs that are other results"),
    Row(Stage::kBeforeBuild, Level::kO1, "InplacePass", MarkInPlace,
        "elementwise nodes that may write over an input: `_inplace_support_input_index`"),
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
