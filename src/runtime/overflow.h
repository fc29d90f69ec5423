// SPDX-License-Identifier: Apache-2.0
//
// Floating-point overflow status: a block of 64 bytes for each context, in device memory. Tasks read and clear it in
// stream order. No kernel of the CPU device raises it: results are IEEE infinities and NaN.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "runtime/context.h"
#include "runtime/stream.h"

namespace reprise::runtime {

constexpr uint64_t kOverflowStatusBytes = 64;

/// The numbers are those of aclrtFloatOverflowMode.
enum class OverflowMode : uint32_t { kSaturation = 0, kInfNan = 1 };

/// Mode of the device for streams created from now on; kInfNan unless set.
OverflowMode GetOverflowMode(const Device& device);
void SetOverflowMode(const Device& device, OverflowMode mode);

/// Address of the context's block; made at the first use, gone with the context.
StatusOr<void*> OverflowAddress(Context& context);
/// Queues a copy of the block to `output`.
Status SubmitOverflowRead(Stream& stream, void* output);
Status SubmitOverflowClear(Stream& stream);

}  // namespace reprise::runtime
