// SPDX-License-Identifier: Apache-2.0
//
// Limits that a program sets: core budgets, of a stream before that of the process before what the chip has; and sizes
// of stacks and buffers, which the CPU device only keeps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/device.h"
#include "runtime/stream.h"

namespace reprise::runtime {

/// Core budgets; `type` as CoreLimits counts them, 0 cube and 1 vector.
///
/// Threads: thread-safe.
uint32_t EffectiveCores(Device& device, const Stream* stream, int type);
/// Budget of the calling thread: of the stream that it uses, if that is a stream of the device.
uint32_t EffectiveCoresOfThread(Device& device, int type);
void SetCores(Device& device, int type, uint32_t cores);
void SetCores(Stream& stream, int type, uint32_t cores);
void ResetCores(Device& device);
void ResetCores(Stream& stream);

/// Sizes that a device takes over when it is set next.
enum class SizeLimit : uint8_t { kStack, kPrintBuffer };
struct SizeBounds {
  size_t lowest;
  size_t highest;
};
SizeBounds BoundsOf(SizeLimit limit);
/// `bytes` lies within the bounds; rounded up as a device does.
///
/// Threads: thread-safe.
void SetSize(SizeLimit limit, size_t bytes);
size_t SizeOf(SizeLimit limit);

/// Options of the process by their number, aclSysParamOpt; only kept.
constexpr size_t kSystemOptions = 8;
std::atomic<int64_t>& SystemOption(size_t number);

}  // namespace reprise::runtime
