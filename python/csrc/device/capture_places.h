// SPDX-License-Identifier: Apache-2.0
//
// Which lines of Python began the captures that are open, and which made other streams join them: for messages.
#pragma once

#include <string>

#include "device/stream.h"

namespace torch_npu {

void NoteCaptureBegin(const NPUStream& stream);
void NoteCaptureEnd(c10::DeviceIndex device, c10::StreamId stream) noexcept;
/// Whether a capture of this extension is open anywhere.
bool IsAnyCapturing() noexcept;
/// `stream` has joined a capture by waiting for an event.
void NoteFork(const NPUStream& stream);

/// "file:line in function", "" when nobody knows. By the runtime's number of the stream.
std::string CaptureBegunAt(c10::DeviceIndex device, int32_t number);
std::string ForkedAt(c10::DeviceIndex device, int32_t number);

}  // namespace torch_npu
