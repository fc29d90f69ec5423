// SPDX-License-Identifier: Apache-2.0
//
// Causal convolution of sequences whose last tokens are kept from call to call.
//
// Formula   for a sequence of L tokens and a window of W, with the line of C tokens that it has in the states:
//             padded = line[0, offset + W - 1) and then x; out[i] = sum over w of weight[w] * padded[offset + i + w]
//             offset = accepted - 1 where tokens were accepted, else C - (W - 1). A sequence of which nothing has been
//             computed begins with zeros instead, and offset 0.
// State     the last tokens of padded, as many as there are and fit, become the last ones of the line. Where a sequence
//             has blocks, it reads the line of its initial block, leaves the line of its last one, and in those of the
//             blocks that it fills before, the W - 1 tokens before the block's end.
// Accumulation  float32; W - 1 tokens are kept as they are.
// Aliasing  out may be x, else none.
#pragma once

#include "kernels/strided.h"

namespace reprise::kernels {

inline constexpr int64_t kMostTaps = 16;
/// Channels of a unit of work.
inline constexpr int64_t kTapChannels = 64;

/// What does not depend on addresses.
struct KeptConvolution {
  int64_t sequences = 0;
  int64_t tokens = 0;        ///< of all sequences
  int64_t batch_tokens = 0;  ///< of a batch of x
  int64_t channels = 0;
  int64_t window = 0;       ///< at most kMostTaps
  int64_t lines = 0;        ///< of the states
  int64_t line_tokens = 0;  ///< window - 1 or more
  int64_t blocks = 0;       ///< columns of the table of lines; 0: a sequence has one line
  int64_t block_tokens = 0;
  int64_t skipped_line = -1;  ///< sequences with this line are left out
  bool adds_input = false;    ///< out += x
  bool clears_start = false;  ///< the first W - 1 tokens of a sequence give 0, before x is added
  bool is_in_place = false;   ///< out is x: tokens of no sequence stay as they are; else they get zeros
};

/// Absent ones have no data. All of states, x, weight and out have one type of at most 32 bits.
struct KeptConvolutionOperands {
  TensorRef x;         ///< [token, channel] or [batch, token, channel]
  TensorRef out;       ///< alike
  TensorRef weight;    ///< [window, channel]
  TensorRef states;    ///< [line, token, channel]
  TensorRef starts;    ///< int32 [sequence + 1]; absent: a sequence is a batch of x
  TensorRef lines;     ///< int32 [sequence] or [sequence, block]; absent: line b for sequence b
  TensorRef accepted;  ///< int32 [sequence]
  TensorRef computed;  ///< int32 [sequence]
  TensorRef first_block, last_block, initial_block;  ///< int32 [sequence]
};

/// \param range  counts groups of kTapChannels channels. Numbers that are out of range are moved into it; a line or a
///               block that there is not reads zeros and keeps nothing, and so does a sequence without tokens.
void ConvolveKept(const KeptConvolution& shape, const KeptConvolutionOperands& operands, Range range);

}  // namespace reprise::kernels
