// SPDX-License-Identifier: Apache-2.0
//
// Reductions that picture_chain.h lets read pictures in another order.
#pragma once

#include "ops/launch.h"

namespace reprise::ops {

/// Whether the launch reduces refs[1], in memory of the program, whose rank is that of the program, to refs[0]: the
/// bits are the same whatever the strides of refs[1].
bool ReducesAnyStrides(const Launch& launch);
/// How it is cut, given the strides that refs[1] has now.
void SplitReduction(Launch& launch);

}  // namespace reprise::ops
