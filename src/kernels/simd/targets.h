// SPDX-License-Identifier: Apache-2.0
//
// Include before hwy/foreach_target.h. Names the instruction sets that are not
// worth their build time: SSSE3 lacks nothing that SSE4 is needed for here, and
// AVX3_DL adds only integer dot products. The scalable sets are left to NEON: the
// kernels keep vectors in arrays and need lane counts known at compile time.
//
// A source that defines REPRISE_DOT_TARGETS before has AVX3_DL, for those, and not SSE4 nor plain AVX3.
//
// A source that defines REPRISE_FEW_TARGETS before leaves out SSE4, too: loops over rows gain little there, and
// machines without AVX2 are rare.
#pragma once

#if defined(REPRISE_DOT_TARGETS)
#define HWY_WANT_AVX3_DL
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#elif defined(REPRISE_FEW_TARGETS)
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
