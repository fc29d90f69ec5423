// SPDX-License-Identifier: Apache-2.0
#include "ops/digest.h"

namespace reprise::ops {

kernels::Digest DigestOf(const void* data, uint64_t bytes) { return kernels::DigestOf(data, bytes); }

}  // namespace reprise::ops
