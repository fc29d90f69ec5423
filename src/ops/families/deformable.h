// SPDX-License-Identifier: Apache-2.0
//
// What operators by type take of deformable.cc.
#pragma once

#include "ops/op_call.h"

namespace reprise::ops::deformable {

/// x [N, C, H, W] and offset as deformable.cc has it; offsetOut is the image of what was read, or its gradient.
Status DeformableShape(OpCall& call);
Status LowerOffsets(OpCall& call);
Status LowerOffsetsGradient(OpCall& call);

}  // namespace reprise::ops::deformable
