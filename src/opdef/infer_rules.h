// SPDX-License-Identifier: Apache-2.0
//
// The rules of inference that rows of the table name, one function each (infer_*.cc). A rule sets the shapes of the
// outputs that Infer() has left open, and the types of those whose source is kRule.
#pragma once

#include "base/status.h"

namespace reprise::opdef {

class InferContext;

namespace infer {
#define REPRISE_RULE(name) Status name(InferContext& call);
#include "opdef/graph_ops/rules.def"
#undef REPRISE_RULE
}  // namespace infer

}  // namespace reprise::opdef
