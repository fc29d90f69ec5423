// SPDX-License-Identifier: Apache-2.0
//
// Digests: 128 bits that tell whether bytes are still what they were. They depend on the bytes alone, not on the
// machine.
//
// A change within one word of 64 bits always shows. Other changes stay hidden with the chance of two random numbers of
// 128 bits to be equal: digests find what has changed, and do not stand against somebody who looks for equal ones.
#pragma once

#include <cstdint>

namespace reprise::kernels {

struct Digest {
  uint64_t words[2] = {};

  friend bool operator==(const Digest&, const Digest&) = default;
};

/// Reads as fast as memory gives. Any alignment.
Digest DigestOf(const void* data, uint64_t bytes);

}  // namespace reprise::kernels
