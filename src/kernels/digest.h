// SPDX-License-Identifier: Apache-2.0
//
// Digests: 128 bits that tell whether bytes are still what they were. They depend on the bytes alone, not on the
// machine.
//
// Two sums of 64 bits, of the words and of products of their halves under keys of their places, mixed. A change within
// one word changes the first; two changes that cancel there stay hidden with a chance of about 2^-32 if their values
// are chosen against each other, and of 2^-64 if they are not. Digests find what has changed, and do not stand against
// somebody who looks for equal ones.
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
