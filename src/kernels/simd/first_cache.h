// SPDX-License-Identifier: Apache-2.0
//
// How large the first-level data cache of a core is, which decides how tiles of products are cut. Results do not depend
// on it.
#pragma once

#include <cstdint>

namespace reprise::kernels::simd {

/// In bytes. 48 KiB where the system does not tell.
int64_t FirstCacheBytes();

/// For tests: tiles are cut as for a cache of so many bytes from now on; 0: as for that of this processor.
void PretendFirstCache(int64_t bytes);

/// Two panels of a product do not stay in the cache, nor does one beside rows of the left operand: tiles of half as
/// many rows by two panels read fewer factors then, and of fewer rows at a time, which may all lie in one set of the
/// cache.
inline bool PrefersLowTiles() { return FirstCacheBytes() < int64_t{40} << 10; }

}  // namespace reprise::kernels::simd
