// SPDX-License-Identifier: Apache-2.0
//
// The functions of the passes; list.cc says in which order they run and what switches them.
#pragma once

#include "compiler/passes/passes.h"

namespace reprise::compiler {

// prune.cc
Status Prune(Graph& graph, PassContext& context);

// remove.cc
Status RemoveIdentity(Graph& graph, PassContext& context);
Status RemoveMarkers(Graph& graph, PassContext& context);
Status RemoveDropout(Graph& graph, PassContext& context);
Status RemoveAsserts(Graph& graph, PassContext& context);
Status RemoveNeutral(Graph& graph, PassContext& context);
Status RemoveSingleSums(Graph& graph, PassContext& context);
Status RemoveUselessOrder(Graph& graph, PassContext& context);

// fold.cc
Status FoldConstants(Graph& graph, PassContext& context);
Status FoldDimensions(Graph& graph, PassContext& context);
Status ReplaceEmpty(Graph& graph, PassContext& context);

// merge.cc
Status MergeSubexpressions(Graph& graph, PassContext& context);
Status MergeConstants(Graph& graph, PassContext& context);

// casts.cc
Status RemoveCasts(Graph& graph, PassContext& context);
/// Whether a type of numbers holds every value of another one exactly.
bool HoldsAll(int32_t wide, int32_t narrow);

// transposes.cc
Status RemoveUnchangedTransposes(Graph& graph, PassContext& context);
Status ReplaceUnitTransposes(Graph& graph, PassContext& context);
Status RemoveSymmetricTransforms(Graph& graph, PassContext& context);
Status JoinTransforms(Graph& graph, PassContext& context);

// prints.cc
Status JoinPrints(Graph& graph, PassContext& context);

// reshapes.cc
Status RemoveIdleReshapes(Graph& graph, PassContext& context);
Status RemoveReshapes(Graph& graph, PassContext& context);
Status AdjustDims(Graph& graph, PassContext& context);

// image_layout.cc
Status ChooseImageLayout(Graph& graph, PassContext& context);

// branches.cc
Status RemoveDeadBranches(Graph& graph, PassContext& context);

// memory_order.cc
Status OrderWrites(Graph& graph, PassContext& context);
Status OrderCollectives(Graph& graph, PassContext& context);

// tensor_moves.cc
Status RemoveTensorMoves(Graph& graph, PassContext& context);

// memory_guards.cc
Status GuardMemory(Graph& graph, PassContext& context);
Status MarkInPlace(Graph& graph, PassContext& context);

}  // namespace reprise::compiler
