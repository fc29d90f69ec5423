// SPDX-License-Identifier: Apache-2.0
//
// What launches of a convolution with channels in front, of a batch norm of inference compute: for those who compute it
// with channels behind (picture_chain.h).
#pragma once

#include <span>

#include "kernels/channel_norm.h"
#include "kernels/convolution.h"
#include "ops/launch.h"

namespace reprise::ops {

/// A convolution of float32 that ChannelsLastConv computes with the same bits.
struct PlaneConvolution {
  kernels::ConvShape shape;
  kernels::TensorRef input, weight, out;  ///< of rank 5, in memory of the program
  const kernels::TensorRef* bias = nullptr;
  size_t launches = 0;
  bool is_turned = false;  ///< the launches turn it themselves
  bool unfolds = false;    ///< the same bits come of one tap, whose channels are all elements of a filter
};

/// Whether `launches` begin with one.
bool FindPlaneConvolution(std::span<const Launch* const> launches, PlaneConvolution& found);
/// The two ways in which there are launches for it.
bool FindConvolutionOfPlanes(std::span<const Launch* const> launches, PlaneConvolution& found);
bool FindTurnedConvolution(std::span<const Launch* const> launches, PlaneConvolution& found);

/// Whether the launch is a batch norm of inference that computes each element by itself; `args` points into it.
bool FindElementNorm(const Launch& launch, kernels::BatchNormArgs& args);

namespace channels_last {

/// Packs refs[1], a weight, into refs[0] as the state, a ChannelsLastConv, reads it.
void RunPack(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory);
/// Turns refs[1] into refs[0]; pixels in front of planes, and the other way round.
void RunPixelsOfPlanes(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory);
void RunPlanesOfPixels(const Launch& launch, kernels::Range range, const Launch::KernelMemory& memory);
void SplitTurning(Launch& launch, const kernels::TensorRef& planes);

}  // namespace channels_last

}  // namespace reprise::ops
