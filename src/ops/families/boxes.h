// SPDX-License-Identifier: Apache-2.0
//
// What operators by type take of boxes.cc.
#pragma once

#include "ops/op_call.h"

namespace reprise::ops::boxes {

Status OverlapShape(OpCall& call);
Status LowerOverlap(OpCall& call);
/// Pairs of boxes bBoxes and gtBoxes [4, n]; dy, overlap and atanSub have n elements, gradients the shape of the boxes.
Status CompleteShape(OpCall& call);
Status LowerComplete(OpCall& call);
Status LowerCompleteGradient(OpCall& call);

}  // namespace reprise::ops::boxes
