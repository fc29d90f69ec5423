// SPDX-License-Identifier: Apache-2.0
//
// Launches that picture_chain.h lets read pictures in another order.
#pragma once

#include "ops/launch.h"

namespace reprise::ops {

/// Whether the launch reduces refs[1] to refs[0], both in memory of the program; refs[1] has the dims that the program
/// gave it, and any strides: the bits do not depend on them.
bool ReducesAnyStrides(const Launch& launch);
/// How it is cut, given the strides that refs[1] has now.
void SplitReduction(Launch& launch);

/// The same for a layer norm, or one by root mean square, of the last dims of refs[1].
bool NormalisesAnyStrides(const Launch& launch);

/// Whether the launch joins refs behind the first, contiguous and of float32, along dim 1 to refs[0].
bool JoinsChannels(const Launch& launch);

}  // namespace reprise::ops
