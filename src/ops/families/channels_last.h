// SPDX-License-Identifier: Apache-2.0
//
// Convolutions of tensors whose channels lie back to back: what convolution.cc and operators by type take of
// channels_last.cc.
#pragma once

#include "kernels/channels_last_conv.h"
#include "ops/op_call.h"

namespace reprise::ops::channels_last {

/// Operands of one convolution, as views of rank 5.
struct Operands {
  const Operand* input = nullptr;
  const Operand* weight = nullptr;
  const Operand* packed =
      nullptr;  ///< the weight as ChannelsLastConv::Pack leaves it; null: it is packed with each run
  const Operand* bias = nullptr;
  const Operand* addend = nullptr;
  const Operand* out = nullptr;
  kernels::TensorRef input_ref, weight_ref, addend_ref, out_ref;
  bool is_temporary = false;  ///< out_ref lies in the workspace
  bool has_planes = false;    ///< channels of input and out lie in front: they are turned around the convolution
};

/// Whether a convolution with channels in front is worth being turned. float32; the sums are then those with channels
/// behind, to the bit.
bool IsWorthTurning(const kernels::ConvShape& shape, const kernels::TensorRef& input, const kernels::TensorRef& out);

/// \pre kernels::ChannelsLastConv::Fits(shape, input_ref, out_ref), or IsWorthTurning(...) where has_planes
Status AddLaunches(OpCall& call, const kernels::ConvShape& shape, const Operands& operands,
                   const kernels::ConvEpilogue& epilogue);

}  // namespace reprise::ops::channels_last

namespace reprise::ops::convolution {

// Rules of a convolution with what follows it, for operators by type. Parameters: input, weight, packed, bias, addend,
// stride, padding, dilation, groups, activation (kernels::ConvActivation), low, high, output; ChannelsLastConv fits
// them.
Status FusedTypes(OpCall& call);
Status FusedShape(OpCall& call);
Status LowerFused(OpCall& call);

}  // namespace reprise::ops::convolution
