// SPDX-License-Identifier: Apache-2.0
//
// Python callables as tasks of a stream. A task owns the objects it needs: they live until it has run, or as long as
// the graph that captured it.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include "device/stream.h"

namespace torch_npu {

/// Queues `function(data)`, or records it. It runs on a thread of the runtime, with the GIL; what it raises is reported
/// as unraisable, and the stream goes on. Called with the GIL, which is released while the stream takes the task.
void LaunchHostFunction(const NPUStream& stream, pybind11::object function, pybind11::object data);

/// Queues `function(*args)` for the main thread, which calls it some time after its turn in the stream. Every tuple
/// ("host_tensor_ptr", address, bytes, shape, dtype) in `args`, also in nested lists and tuples, is copied at its turn;
/// the function sees ("host_tensor_buffer", bytearray, shape, dtype).
void LaunchPendingHostFunction(const NPUStream& stream, pybind11::object function, const pybind11::object& args);

/// Runs what LaunchPendingHostFunction left to do. Main thread, with the GIL. The interpreter does that by itself while
/// it runs byte code.
void RunPendingHostFunctions();

/// Callbacks in the older style: `function(data)` runs on a thread that serves the streams of its device that were
/// subscribed. Not in captures.
void SubscribeReport(const NPUStream& stream);
/// Waits for the stream, without the GIL.
void UnsubscribeReport(const NPUStream& stream);
void LaunchCallback(const NPUStream& stream, pybind11::object function, pybind11::object data);

}  // namespace torch_npu
