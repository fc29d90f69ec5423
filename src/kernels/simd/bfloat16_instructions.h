// SPDX-License-Identifier: Apache-2.0
//
// Instructions for pairs of bfloat16 (AVX512_BF16), and the attribute of functions that use them. Internal to simd/.
#pragma once

#if defined(__x86_64__)
// Values that some functions leave undefined on purpose.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#define REPRISE_PAIRS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace reprise::kernels::simd {

/// The numbers of 16 pairs in float32.
REPRISE_PAIRS inline __m512 Even(__m512i pair) { return _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16)); }
REPRISE_PAIRS inline __m512 Odd(__m512i pair) {
  return _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
}

}  // namespace reprise::kernels::simd
#endif
