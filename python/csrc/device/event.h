// SPDX-License-Identifier: Apache-2.0
//
// Events are c10::Event, whose flag may carry flags of the runtime: that is how events that are external to graphs, or
// shared between processes, pass through torch's generic code.
#pragma once

#include <acl/acl.h>
#include <c10/core/Event.h>

#include "device/stream.h"

namespace torch_npu {

/// The flags of the runtime that events of such a flag are created with, and back.
uint32_t RuntimeFlags(c10::EventFlag flag) noexcept;
c10::EventFlag FlagOf(uint32_t runtime_flags) noexcept;

bool IsExternal(const c10::Event& event) noexcept;
bool IsTimed(const c10::Event& event) noexcept;

/// Creates the runtime's event on the device unless it exists: for those that are awaited or exported before they are
/// recorded.
void CreateNow(c10::Event& event, c10::DeviceIndex device);
/// Puts an existing event of the runtime into one that has none; it is destroyed with it.
void Adopt(c10::Event& event, aclrtEvent handle, c10::DeviceIndex device);

void Record(c10::Event& event, const NPUStream& stream);
/// Makes the next work of the stream wait. Nothing to do for an event that was never recorded, except external ones.
void Wait(c10::Event& event, const NPUStream& stream);
/// External events only: makes it unrecorded again, in stream order.
void Reset(c10::Event& event, const NPUStream& stream);
/// Milliseconds between two timed, recorded events; waits for both.
double ElapsedTime(const c10::Event& begin, const c10::Event& end);

// For the device guard.
void RecordRuntimeEvent(void** event, const NPUStream& stream, c10::DeviceIndex created_on, c10::EventFlag flag);
void WaitRuntimeEvent(void* event, const NPUStream& stream);
bool QueryRuntimeEvent(void* event);
void SynchronizeRuntimeEvent(void* event);
void DestroyRuntimeEvent(void* event) noexcept;

}  // namespace torch_npu
