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

}  // namespace reprise::compiler
