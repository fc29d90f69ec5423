// SPDX-License-Identifier: Apache-2.0
//
// Launches that picture_chain.h lets read pictures in another order.
#pragma once

#include "kernels/pool.h"
#include "kernels/separable.h"
#include "ops/launch.h"

namespace reprise::ops {

/// Whether the launch reduces refs[1] to refs[0], both in memory of the program; refs[1] has the dims that the program
/// gave it, and any strides: the bits do not depend on them.
bool ReducesAnyStrides(const Launch& launch);
/// How it is cut, given the strides that refs[1] has now.
void SplitReduction(Launch& launch);

/// The same for a layer norm, or one by root mean square, of the last dims of refs[1].
bool NormalisesAnyStrides(const Launch& launch);

/// Whether the launch joins refs behind the first along dim 1 to refs[0], which is contiguous; all of float32.
bool JoinsChannels(const Launch& launch);

/// A pool of the planes of pictures [N, C, 1, H, W].
struct PicturePool {
  const kernels::PoolShape* shape = nullptr;
  bool is_max = false;
  size_t self = 0;     ///< of Launch::refs; the values are refs[0]
  size_t indices = 0;  ///< 0: there are none
};
/// Whether the launch is one whose values kernels/channels_last_pool.h gives with the same bits, all of float32.
bool FindPool(const Launch& launch, PicturePool& pool);

/// The map of a launch, if each element of refs[0] [N, C, D, H, W] is a copy of one of refs[1], of the same picture and
/// channel: a resize to the nearest, padding by repetition. All of float32; null: it is another.
const kernels::Separable* FindPixelMap(const Launch& launch);

}  // namespace reprise::ops
