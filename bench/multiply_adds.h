// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace bench {

/// Multiplies and adds float32 vectors that stay in registers, with every instruction that the compiler may use for
/// this machine; as many sums at once as hide the latency of one. Gives how many multiply-adds of numbers these were.
int64_t MultiplyAddsInRegisters(int64_t rounds);

}  // namespace bench
