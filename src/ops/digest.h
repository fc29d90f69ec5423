// SPDX-License-Identifier: Apache-2.0
//
// Digests for libraries above the core, which do not link kernels.
#pragma once

#include "kernels/digest.h"

namespace reprise::ops {

/// As kernels::DigestOf.
kernels::Digest DigestOf(const void* data, uint64_t bytes);

}  // namespace reprise::ops
