// SPDX-License-Identifier: Apache-2.0
//
// The abort of everything that a device does, and the failure mode of streams, which concerns a whole context.
#pragma once

#include "base/status.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace reprise::runtime {

/// Drops what is queued on all streams of the device, and waits for what runs. 107035 when that takes longer than
/// `timeout_ms`, which is over at `deadline`.
///
/// Threads: thread-safe; other threads may destroy streams meanwhile.
Status DropTasks(const Device& device, uint32_t timeout_ms, const Deadline& deadline);

/// Sets what a stream does after a failed task: go on, or stop. One stream that stops makes all streams of its context
/// stop, later ones included. 107000 when the mode of the stream was set before.
Status SetFailureMode(Stream& stream, bool stops);

}  // namespace reprise::runtime
