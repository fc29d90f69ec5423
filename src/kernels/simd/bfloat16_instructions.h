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
#endif
