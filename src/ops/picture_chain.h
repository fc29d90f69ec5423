// SPDX-License-Identifier: Apache-2.0
//
// Chains of convolutions (ir/chain.h): a convolution and what follows it (a norm of inference, a sum, an activation)
// become one link that computes with channels behind and keeps its result so for the next ones. So do norms and what
// follows them, joins along the channels and products with a number for each channel, where they read such results; and
// reductions and norms of pixels read them.
//
// A picture is a contiguous tensor [N, C, ..] of float32. Of each result
//   who reads it as a picture, the input or the addend of a link, reads a copy with channels behind ("mirror");
//   its place in memory is written only as far as somebody else reads it, or as the tasks do not write it again by the
//   end, unless the program had given that memory back.
// One result between the tasks of a link may be needed by others: it is written to memory on the way, and the link ends
// before the second.
#pragma once

#include <span>

#include "ir/chain.h"

namespace reprise::ops {

/// The chain of these tasks, all those of a graph in their order, but for the first that waits or does not tell what it
/// reads and writes, and what follows it: there others may look at memory, and write to it. Where there is such a task,
/// `reused`, which counts tasks, is not looked at. Without parts where there is nothing that would pay.
ir::Chain MakePictureChain(std::span<const ir::ChainTask> tasks, std::span<const ir::ReusedBlock> reused);

}  // namespace reprise::ops
