// SPDX-License-Identifier: Apache-2.0
//
// Vector bodies of the generator and of the float32 numbers that are made from its words. Compiled once per instruction
// set; all sets give the same bits, because each function is a fixed sequence of IEEE operations without fusion.
//
// All functions make the numbers of `blocks` blocks from `first` on, four for each: number j of block b goes to
// out[4 * (b - first) + j]. \pre first and blocks are multiples of kBlockStep.
#pragma once

#include <cstdint>

namespace reprise::kernels::simd {

/// Blocks in the widest vector.
inline constexpr int64_t kBlockStep = 16;

/// What all blocks of a draw share: the key, and the lower half of the counter.
struct PhiloxSource {
  uint64_t seed;
  uint64_t counter;
};

void PhiloxWords(const PhiloxSource& source, uint64_t first, int64_t blocks, uint32_t* out);

/// min(from + u * width, last) for u of 24 bits in [0, 1).
void UniformRow(const PhiloxSource& source, uint64_t first, int64_t blocks, float from, float width, float last,
                float* out);

/// mean + deviation * z; z of words 0 and 1 are the cosine and the sine of one Box-Muller pair, those of 2 and 3 too.
void NormalRow(const PhiloxSource& source, uint64_t first, int64_t blocks, float mean, float deviation, float* out);

/// -log(u) * scale for u in (0, 1); the logarithm is never 0.
void ExponentialRow(const PhiloxSource& source, uint64_t first, int64_t blocks, float scale, float* out);

}  // namespace reprise::kernels::simd
