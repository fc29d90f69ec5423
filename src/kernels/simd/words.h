// SPDX-License-Identifier: Apache-2.0
//
// 16 x 16 words of 32 bits in registers. Internal to simd/.
#pragma once

#include "kernels/simd/bfloat16_instructions.h"

#if defined(__x86_64__)
namespace reprise::kernels::simd {

/// Exchanges rows and columns.
REPRISE_PAIRS inline void ExchangeWords(__m512i (&rows)[16]) {
  constexpr int kWords = 16;
  __m512i pairs[kWords];
  for (int i = 0; i < kWords; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < kWords; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  // A quarter of a vector now has four rows of one column: quarter q of rows[4 * g + c] rows 4 * g on of column 4 * q +
  // c.
  for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(rows[c], rows[4 + c], 0x44);
    const __m512i low23 = _mm512_shuffle_i32x4(rows[c], rows[4 + c], 0xEE);
    const __m512i high01 = _mm512_shuffle_i32x4(rows[8 + c], rows[12 + c], 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(rows[8 + c], rows[12 + c], 0xEE);
    rows[c] = _mm512_shuffle_i32x4(low01, high01, 0x88);
    rows[4 + c] = _mm512_shuffle_i32x4(low01, high01, 0xDD);
    rows[8 + c] = _mm512_shuffle_i32x4(low23, high23, 0x88);
    rows[12 + c] = _mm512_shuffle_i32x4(low23, high23, 0xDD);
  }
}

}  // namespace reprise::kernels::simd
#endif
